"""The server engine against real servers on loopback: the tests' own, well-behaved and not, and transformers' own."""

from __future__ import annotations

import asyncio
import base64
import json
import math
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
import urllib.request
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from servers import ChatServer, Proxy, Reply, Request, Tokenizer, completion, judge, score_of, vicuna

import vjudge as vj
from vjudge.engines import transport
from vjudge.engines.engine import Ask
from vjudge.engines.server import UNCOUNTED, Exchange, at_verdict, read_tokens, scale_key
from vjudge.engines.transport import Key, ServerError, Unanswered, Usage, check_url
from vjudge.images import open_image
from vjudge.judge import Judge, load_judge
from vjudge.prompts import TEMPLATES
from vjudge.records import Item
from vjudge.runs import Run, RunError

KEY = "sk-proj-4Zt9bQ-7xWm2Kf0aLr8V_Yc3Ne5Hs1"
SCALE = {n: f" {n}" for n in range(1, 6)}
THREE = completion("[RESULT] 3")


@pytest.fixture(autouse=True)
def surroundings(monkeypatch: pytest.MonkeyPatch) -> None:
    """No key or proxy from outside, and pauses of a hundredth of their length."""
    for name in list(os.environ):
        if name.lower().endswith("_proxy") or name == "OPENAI_API_KEY":
            monkeypatch.delenv(name)
    monkeypatch.setattr(transport, "FIRST_BACKOFF", 0.01)


def ask(server: ChatServer, **options: Any) -> Judge:
    return load_judge("openai:judge-1", base_url=server.url, **options)


def grade(judge: Judge, rows: Any, **options: Any) -> pd.DataFrame:
    """One request after the other."""
    return judge.grade(rows, **{"progress": False, "batch_size": 1} | options)


def same(one: pd.DataFrame, other: pd.DataFrame) -> None:
    pd.testing.assert_frame_equal(one.drop(columns="seconds"), other.drop(columns="seconds"), check_exact=True)


class Once:
    """An answer that is each of `first` for one prompt's request and the judge's own afterwards."""

    def __init__(self, *first: Reply | Callable[[Request], Reply], then: Callable[[Request], Reply] = judge) -> None:
        self.first, self.then, self.lock = list(first), then, threading.Lock()

    def __call__(self, request: Request) -> Reply:
        with self.lock:
            reply = self.first.pop(0) if self.first and not request.is_test else self.then
        return reply if isinstance(reply, Reply) else reply(request)


# --- what is asked and what comes back --------------------------------------------------------------------------------


def test_a_whole_grade(rows: Any, capsys: Any) -> None:
    with ChatServer(judge) as server:
        judged = ask(server, price=(2.0, 10.0))
        frame = judged.grade(rows[:20], progress=False)
        usage = judged.engine.usage
    scores = {request.text: score_of(request) for request in server.asked}
    assert len(server.asked) == 20 and len(server.requests) == 21
    assert list(frame["id"]) == [row["id"] for row in rows[:20]]
    assert list(frame["score"]) == [scores[judged.render(row).replace("<image>", "")] for row in rows[:20]]
    assert frame["failure"].isna().all() and (frame["feedback"] == frame["raw"].str.split("\n").str[0]).all()
    # 0.6 on the score and 0.08 on each other: shares 0.6 / 0.92 and 0.08 / 0.92.
    for _, row in frame.iterrows():
        share = {n: (0.6 if n == row["score"] else 0.08) / 0.92 for n in range(1, 6)}
        assert row["probabilities"] == pytest.approx(share) and row["probability_mass"] == pytest.approx(0.92)
        assert row["expected_score"] == pytest.approx(sum(n * p for n, p in share.items()))
    assert (frame["n_prompt_tokens"] == 100).all() and (frame["n_new_tokens"] == 10).all()
    assert frame["seconds"].between(0, 60).all() and (frame["judge"] == "openai:judge-1").all()
    assert (usage.requests, usage.answers, usage.prompt_tokens, usage.new_tokens) == (21, 21, 2100, 210)
    (line,) = capsys.readouterr().err.strip().splitlines()  # 2100 x 2 + 210 x 10 millionths
    assert "21 requests; 2100 prompt and 210 new tokens; 0.0063 at the given price" in line


def test_what_a_request_holds(rows: Any, monkeypatch: Any) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    draws = {"samples": 2, "temperature": 0.7}
    with ChatServer(judge) as server:
        grade(ask(server), rows[:1], max_new_tokens=77)
        grade(ask(server, fields={"seed": None, "reasoning_effort": "low"}), rows[:1], **draws, top_p=0.9)
        grade(ask(server, image_size=8), rows[:1], **draws, repetition_penalty=1.03)
    first, plain, _, one, two = server.asked
    assert first.headers["authorization"] == f"Bearer {KEY}"
    body = {name: value for name, value in first.body.items() if name != "messages"}
    assert body == {"model": "judge-1", "max_tokens": 77, "temperature": 0.0, "logprobs": True, "top_logprobs": 20}
    (message,) = first.body["messages"]
    assert message["role"] == "user" and [part["type"] for part in message["content"]] == ["image_url", "text"]
    assert message["content"][1]["text"] == TEMPLATES["chat"].render(Item.from_row(rows[0])).parts[-1]
    (uri,) = first.pictures
    assert uri.startswith("data:image/png;base64,")
    assert np.array_equal(np.asarray(open_image(uri)), np.asarray(open_image(rows[0]["images"][0])))
    assert (plain.body["top_p"], plain.body["reasoning_effort"], "seed" in plain.body) == (0.9, "low", False)
    assert one.body["seed"] != two.body["seed"] and max(one.body["seed"], two.body["seed"]) < 2**31
    assert one.body["repetition_penalty"] == 1.03 and max(open_image(one.pictures[0]).size) == 8
    tests = [request for request in server.requests if request.is_test]
    assert len(tests) == 3 and all(len(test.pictures) == 1 for test in tests)  # the same options, a picture too
    assert {name: tests[0].body[name] for name in body} == body


def test_a_plan_sends_nothing(rows: Any) -> None:
    """Requests, tokens and, with prices, the cost; nothing is NaN without a reason."""
    with showing(Tokenizer(vicuna)) as server:
        judged = ask(server, price=(2.0, 10.0))
        characters = sum(len(judged.render(row).replace("<image>", "")) for row in rows[:10])
        plan = vj.plan(judged, rows[:10], max_new_tokens=50)
        assert not server.requests and not server.looks
    assert plan["planned"][["verdicts", "requests", "new tokens", "images shown"]].tolist() == [10, 10, 500, 10]
    assert plan.loc["prompt tokens", "planned"] == characters / 4 and "estimated" in plan.loc["prompt tokens", "note"]
    assert plan.loc["cost", "planned"] == pytest.approx((characters / 4 * 2 + 500 * 10) / 1e6)
    plan = vj.plan(load_judge("openai:m", base_url="http://127.0.0.1:1/v1"), rows[:10], mode="score")
    assert math.isnan(plan.loc["cost", "planned"]) and "price" in plan.loc["cost", "note"]
    assert plan.loc["new tokens", "planned"] == 10 and plan["note"][plan["planned"].isna()].ne("").all()


# --- log-probabilities ------------------------------------------------------------------------------------------------


def test_a_server_without_log_probabilities(rows: Any, capsys: Any) -> None:
    def without(request: Request) -> Reply:
        if refuses and request.body.get("logprobs"):
            return Reply({"error": {"message": "logprobs are not supported with this model"}}, status=400)
        return Reply(completion("It is so. [RESULT] 3", logprobs=False))

    refuses = False
    with ChatServer(without, tokenizer=Tokenizer(chatml)) as server:
        with pytest.raises(ServerError, match="gives no log-probabilities, which score mode needs"):
            grade(ask(server), rows[:5], mode="score")
        assert not server.asked and len(server.requests) == 1  # one short request, nothing else
        frame = grade(ask(server), rows[:5])
        assert (frame["score"] == 3).all() and frame["expected_score"].isna().all()
        assert frame.attrs["without_distribution"] == 5
        assert "no log-probabilities came with it, or" in capsys.readouterr().err
        refuses = True
        with pytest.raises(ServerError, match="not supported with this model; fields= .*by None, leaves out"):
            grade(ask(server), rows[:5])
        assert (grade(ask(server, fields={"logprobs": None}), rows[:5])["score"] == 3).all()


def test_one_answer_without_log_probabilities(rows: Any) -> None:
    """The server offered them, and left them out or sent NaN: no distribution there, in score mode no score."""
    bare, spoilt = completion("[RESULT] 4", logprobs=False), completion("[RESULT] 3")
    spoilt["choices"][0]["logprobs"]["content"][1]["logprob"] = math.nan
    with ChatServer(Once(Reply(bare), Reply(spoilt))) as server:
        frame = grade(ask(server), rows[:3])
    assert list(frame["expected_score"].isna()) == [True, True, False] and frame["score"].notna().all()
    with showing(Tokenizer(chatml), Reply(bare)) as server:
        frame = grade(ask(server), rows[:3], mode="score")
    assert list(frame["score"].isna()) == [True, False, False] and "no log-probabilities" in frame["failure"][0]


def chances(body: Any) -> dict[int, float] | None:
    choice = body["choices"][0]
    shares = at_verdict(choice["message"]["content"], read_tokens(choice), "[RESULT]", SCALE)
    return shares and {score: round(math.exp(value), 9) for score, value in shares.items()}


def test_the_distribution_by_hand() -> None:
    # " 4" and "4" are one score; " four" is none; 3 is not listed and counts as 0.
    near = {" 4": 0.5, "4": 0.2, " 5": 0.1, " 1": 0.05, " four": 0.1}
    assert chances(completion("A 2 and a 3. [RESULT] 4", alternatives=near)) == {1: 0.05, 2: 0, 3: 0, 4: 0.7, 5: 0.1}
    # Drawn although it is not among the most probable: the token's own log-probability counts (1e-4 in `completion`).
    drawn = completion("[RESULT] 2", alternatives={" 1": 0.5, " 3": 0.25})
    assert chances(drawn) == {1: 0.5, 2: 1e-4, 3: 0.25, 4: 0, 5: 0}
    for text in ("Good. [result]: **4**", "[RESULT] 2 or rather [RESULT] 4"):
        assert chances(completion(text, alternatives={" 4": 0.5, "4": 0.3, " 2": 0.1})) == {
            1: 0,
            2: 0.1,
            3: 0,
            4: 0.8,
            5: 0,
        }
    for text in ("It is 4.", "[RESULT] of it all is 4", "[RESULT] 4 and [RESULT]", "[RESULT] 44"):
        assert chances(completion(text, alternatives={" 4": 0.5})) is None


# --- a server that shows its tokens -----------------------------------------------------------------------------------


def wordy(request: Request, tokenizer: Tokenizer) -> Reply:
    """A judge whose distribution after the marker is known: .3 on 1 and .1 on the other digits, listed by token."""
    if not tokenizer.text(request.body).endswith("[RESULT]"):
        return Reply(completion("It is so. [RESULT] 4", alternatives={" 4": 0.6, " 1": 0.2}))
    odds = {tokenizer.ids(f" {n}")[0]: math.log(0.3 if n == 1 else 0.1) for n in SCALE}
    ids = request.body["logprob_token_ids"]
    entries = [{"token": f"token_id:{id}", "logprob": odds.get(id, -20.0)} for id in ids]
    reply = completion(" 1")
    reply["choices"][0]["logprobs"] = {"content": [entries[0] | {"top_logprobs": entries}]}
    return Reply(reply)


def showing(tokenizer: Tokenizer, *first: Reply) -> ChatServer:
    return ChatServer(Once(*first, then=lambda request: wordy(request, tokenizer)), tokenizer=tokenizer)


def starting(messages: Any, *, open: bool = False) -> str:
    return vicuna(messages, open=open, bos="<s>")


def foreign(messages: Any, *, open: bool = False) -> str:
    return "".join(f"[{role}] {text.strip()} " for role, text in messages)


def chatml(messages: Any, *, open: bool = False) -> str:
    text = "".join(f"<{role}>\n{text}</s>" for role, text in messages)
    return text.removesuffix("</s>") if open else f"{text}<assistant>\n"


def trimming(messages: Any, *, open: bool = False) -> str:
    """The same for blanks at a text's end, as many templates have it: no matter where the judge's texts have none."""
    return vicuna([(role, text.strip()) for role, text in messages], open=open)


def wordings(rows: Any, mode: str) -> set[str]:
    """What the judge itself would read."""
    end = " [RESULT]" if mode == "score" else ""
    return {TEMPLATES["prometheus-vision"].render(Item.from_row(row)).text + end for row in rows}


@pytest.mark.parametrize("mode", ["feedback", "score"])
@pytest.mark.parametrize(
    ("tokenizer", "fields"),
    [
        (Tokenizer(vicuna), {"add_special_tokens"}),  # the first token is missing in the chat template: vLLM's case
        (Tokenizer(starting), set()),
        (Tokenizer(vicuna, start=""), set()),  # a vocabulary without one
        (Tokenizer(trimming), {"add_special_tokens"}),
    ],
)
def test_the_prompt_is_the_judges_own_token_for_token(
    rows: Any, capsys: Any, mode: str, tokenizer: Tokenizer, fields: set[str]
) -> None:
    """Also of none, one and two pictures in one call."""
    some = [{**rows[n], "images": rows[n]["images"] * n} for n in range(3)]
    with showing(tokenizer) as server:
        judged = ask(server, template="prometheus-vision")
        frame = grade(judged, some, mode=mode)
        looks = server.looks
        grade(judged, some[1:], mode=mode)
        grade(judged, some, mode=mode)
        assert server.looks > looks and len(server.requests) == 10  # what was seen of a call holds for the next
    texts = {tokenizer.start + text for text in wordings(some, mode)}
    assert {tokenizer.text(request.body) for request in server.asked} == texts
    assert {"add_special_tokens"} & set(server.asked[0].body) == fields
    assert frame["failure"].isna().all() and "not checked" not in capsys.readouterr().err


def test_another_prompt_than_the_judges_own_is_refused(rows: Any) -> None:
    with showing(Tokenizer(foreign)) as server:
        for mode in ("feedback", "score"):
            with pytest.raises(ServerError, match=r"not the judge's own from token .*conversation=None"):
                grade(ask(server, template="prometheus-vision"), rows[:3], mode=mode)
        assert not server.requests
        frame = grade(ask(server, template="prometheus-vision", conversation=None), rows[:3])
        assert frame["score"].eq(4).all()


@pytest.mark.parametrize("reply", [{"tokens": ["a"]}, {"tokens": [1], "max_model_len": -3}, [1]])
def test_a_tokenizer_that_talks_nonsense_is_none(rows: Any, capsys: Any, reply: Any) -> None:
    tokenizer = Tokenizer(vicuna)
    tokenizer.reply = lambda body: Reply(reply)  # type: ignore[method-assign]
    with ChatServer(judge, tokenizer=tokenizer) as server:
        frame = grade(ask(server, template="prometheus-vision"), rows[:2])
        assert frame["failure"].isna().all() and "not checked" in capsys.readouterr().err
        with pytest.raises(ServerError, match='whether it continues.*/tokenize.*use mode="feedback"'):
            grade(ask(server), rows[:2], mode="score")


def test_score_mode_reads_the_scores_tokens(rows: Any) -> None:
    with showing(Tokenizer(chatml)) as server:
        frame = grade(ask(server), rows[:3], mode="score")
    share = {1: 0.3 / 0.7, **dict.fromkeys(range(2, 6), 0.1 / 0.7)}
    for _, row in frame.iterrows():
        assert row["probabilities"] == pytest.approx(share) and row["probability_mass"] == pytest.approx(0.7)
    body = server.asked[0].body
    user, begun = body["messages"]
    assert begun == {"role": "assistant", "content": "[RESULT]"} and body["continue_final_message"]
    assert not user["content"][1]["text"].endswith("[RESULT]")
    assert (body["max_tokens"], len(body["logprob_token_ids"]), body["return_tokens_as_token_ids"]) == (1, 5, True)


def test_score_mode_is_refused_where_an_answer_is_not_continued(rows: Any) -> None:
    """The reply was another turn's, and expected scores were off by up to 2.9 in silence."""
    with showing(Tokenizer(vicuna, continues=False)) as server:
        with pytest.raises(ServerError, match="the beginning of an answer after it: .*from token"):
            grade(ask(server, template="prometheus-vision"), rows[:2], mode="score")
        assert not server.requests


def test_scores_of_several_tokens(rows: Any) -> None:
    """From 1 to 10: graded without a distribution, with one beside rows of 1 to 5; score mode is refused."""
    ten = {**rows[0], "descriptions": [f"Level {n}." for n in range(10)], "gold": 3.0}
    with showing(Tokenizer(vicuna)) as server:
        one = ask(server, template="prometheus-vision")
        with pytest.raises(ValueError, match="no single token of this server"):
            grade(one, [ten, rows[1]], mode="score")
        frame = grade(one, [ten, rows[1]])
    assert list(frame["score"]) == [4, 4] and list(frame["expected_score"].isna()) == [True, False]
    with ChatServer(judge) as server:
        frame = grade(ask(server), [ten])
    assert frame["score"].notna().all() and frame["expected_score"].isna().all()


# --- a server that misbehaves -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (Reply({"error": {"message": "slow down"}}, status=429, headers={"Retry-After": "0"}), "HTTP 429"),
        (Reply(THREE, cut=40), "Error"),
        (Reply(THREE, delay=5), "time-out"),
        (Reply(THREE, drip=0.02), "time-out"),
    ],
    ids=["429", "half an answer", "late", "byte by byte"],
)
def test_what_the_transport_spoils_is_asked_again(rows: Any, reply: Reply, reason: str) -> None:
    with ChatServer(Once(reply, reply)) as server:
        judged = ask(server, timeout=0.6)
        frame = grade(judged, rows[:3])
    assert frame["failure"].isna().all() and len(server.asked) == 5
    assert server.asked[0].body == server.asked[1].body == server.asked[2].body
    usage: Any = judged.engine.usage
    ((counted, times),) = usage.retries.items()
    assert times == 2 and counted.endswith(reason) and usage.answers == 4 and "2 repetitions for" in str(usage)


@pytest.mark.parametrize(
    ("reply", "failure"),
    [
        (
            Reply(b"<html>Sign in</html>", headers={"Content-Type": "text/html; charset=x"}),
            "not JSON as expected (text/html",
        ),
        (Reply(b"[" * 100_000), "not JSON"),
        (Reply(completion("half a \ud83d, [RESULT] 3")), "lone surrogate"),
        (Reply({}), "no chat completion (KeyError: 'choices')"),
        (Reply({"error": {"message": "upstream died"}}), "answered with an error: upstream died"),
        (Reply(b" " * 300_000), "larger than 200000 bytes"),
    ],
)
def test_garbage_is_a_failure_and_is_not_asked_again(rows: Any, monkeypatch: Any, reply: Reply, failure: str) -> None:
    monkeypatch.setattr(transport, "MOST_BYTES", 200_000)
    with ChatServer(Once(reply, Reply(THREE, headers={"Content-Encoding": "gzip"}))) as server:
        judged = ask(server)
        frame = grade(judged, rows[:3])
    assert len(server.asked) == 3 and not judged.engine.usage.retries
    assert failure in frame["failure"][0] and math.isnan(frame["score"][0])
    # Said to be compressed, and plain: the second is read as it is.
    assert frame["failure"][1:].isna().all() and frame["score"][1:].notna().all()


def test_what_a_server_counts_does_not_spoil_a_run(rows: Any, tmp_path: Path) -> None:
    """A count of 10**30 was recorded, and every later call raised."""
    huge = THREE | {"usage": {"prompt_tokens": 10**30, "completion_tokens": 10**30}}
    with ChatServer(Once(*[Reply(huge)] * 3)) as server:
        judged = ask(server, price=(1.0, 1.0))
        first = grade(judged, rows[:4], out=tmp_path)
        usage: Any = judged.engine.usage
        assert usage.oddities[UNCOUNTED] == 3 and usage.spend < 1 and len(grade(judged, rows[:6])) == 6
        same(grade(judged, rows[:4], out=tmp_path), first)
    assert first["failure"].isna().all() and list(first["n_prompt_tokens"]) == [0, 0, 0, 100]


def test_an_answer_is_never_asked_for_again(rows: Any, tmp_path: Path) -> None:
    """One that does not parse, one of hidden reasoning alone, a refusal, a filter, a request that was turned down."""
    empty, refusal = completion("", finish="length"), completion("")
    empty["choices"][0]["message"]["content"] = None
    refusal["choices"][0]["message"] |= {"content": None, "refusal": "I can't judge this."}
    replies = [Reply(completion("I would rather not say.")), Reply(empty)]
    replies += [Reply(refusal), Reply(completion("It", finish="content_filter"))]
    replies += [Reply({"error": {"message": "the image is too small"}}, status=400)]
    with ChatServer(Once(*replies)) as server:
        frame = grade(ask(server), rows[:6], out=tmp_path)
        same(frame, grade(ask(server), rows[:6], out=tmp_path))
        assert len(server.asked) == 6
    assert "no verdict marker" in frame["failure"][0]
    assert frame["failure"][1:].to_list() == [
        "empty answer (cut off at 10 tokens)",
        "the judge refused",
        "the server's content filter cut the answer",
        "HTTP 400: the image is too small",
        None,
    ]
    assert frame["raw"][2] == "I can't judge this."


def test_retries_are_bounded_and_the_row_is_asked_again_by_the_next_call(rows: Any, tmp_path: Path) -> None:
    down = True

    def answer(request: Request) -> Reply:  # the prompts of one score fail for good
        return Reply(b"", status=500) if down and not request.is_test and score_of(request) == 2 else judge(request)

    with ChatServer(answer) as server:
        judged = ask(server, retries=2)
        first = judged.grade(rows[:20], progress=False, out=tmp_path)
        failed = first["failure"].notna()
        n = failed.sum()
        assert 1 <= n < 8 and set(first["failure"][failed]) == {"HTTP 500, in each of 3 attempts"}
        assert len(server.asked) == 20 + 2 * n and judged.engine.usage.retries["HTTP 500"] == 2 * n
        assert len(Run(tmp_path).verdicts()) == 20 - n
        down, before = False, len(server.asked)
        second = ask(server).grade(rows[:20], progress=False, out=tmp_path)
        assert len(server.asked) - before == n
    assert second["failure"].isna().all() and (second["score"][failed] == 2).all()
    same(second[~failed], first[~failed])


def test_a_server_that_goes_down_ends_the_call_and_loses_nothing(rows: Any, tmp_path: Path) -> None:
    served = 0

    def answer(request: Request) -> Reply:
        nonlocal served
        served += not request.is_test
        return judge(request) if served <= 10 else Reply(b"", status=502)

    with ChatServer(answer) as server:
        with pytest.warns(
            RuntimeWarning, match=r"8 prompts in a row got no answer.*HTTP 502.*50 prompts have no answer"
        ):
            frame = grade(ask(server, retries=1), rows, out=tmp_path)
        assert len(server.asked) == 10 + 2 * 8  # and not 2 x 50
        assert frame["score"].notna().sum() == 10 == len(Run(tmp_path).verdicts())
        served = -1000
        frame = ask(server).grade(rows, progress=False, out=tmp_path)
    assert frame["failure"].isna().all()


@pytest.mark.parametrize(
    ("status", "message", "words"),
    [
        (401, f"Incorrect API key provided: {KEY}", "HTTP 401: Incorrect API key provided: [key]"),
        (404, "no such model", "HTTP 404: no such model"),
        (307, "", "HTTP 307: it redirects to http://localhost"),
    ],
)
def test_what_no_prompt_would_survive_stops_at_the_start(
    rows: Any, monkeypatch: Any, status: int, message: str, words: str
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with ChatServer(judge) as other:
        elsewhere = {"Location": other.url.replace("127.0.0.1", "localhost")} if status < 400 else {}
        with ChatServer(lambda request: Reply({"message": message}, status=status, headers=elsewhere)) as server:
            with pytest.raises(ServerError, match="did not answer a short test request") as stop:
                grade(ask(server), rows[:9])
        assert words in str(stop.value) and not server.asked and len(server.requests) == 1 and not other.requests


def test_retry_after_is_obeyed_by_every_request(rows: Any) -> None:
    def late(request: Request) -> Reply:
        return replace(judge(request), delay=0.5)  # the other two are under way until the client has read the 429

    with ChatServer(Once(Reply(b"", status=429, headers={"Retry-After": "1"}), late, late)) as server:
        frame = grade(ask(server), rows[:8], batch_size=3)
    assert frame["failure"].isna().all() and len(server.asked) == 9
    start = server.asked[0].time
    later = [request.time - start for request in server.asked[3:]]  # three were under way
    assert min(later) >= 0.99 and max(later) < 5


def test_the_spend_limit(rows: Any, tmp_path: Path) -> None:
    with ChatServer(judge) as server:
        # Each answer costs 100 x 1 + 10 x 10 = 200 millionths; the test request too.
        judged = ask(server, price=(1.0, 10.0), spend_limit=0.001)
        with pytest.warns(RuntimeWarning, match=r"the spend limit of 0.001 is reached; 6 prompts have no answer"):
            frame = grade(judged, rows[:10], out=tmp_path)
        assert len(server.requests) == 5 and judged.engine.usage.spend == pytest.approx(0.001)
        assert frame["score"].notna().sum() == 4
        assert grade(ask(server), rows[:10], out=tmp_path)["score"].notna().all()


def test_a_used_up_quota_ends_the_call_and_a_notebooks_loop_may_run(rows: Any, tmp_path: Path) -> None:
    spent = Reply({"error": {"message": "No quota left", "code": "insufficient_quota"}}, status=429)

    async def cell() -> pd.DataFrame:
        return grade(ask(server), rows[:9], out=tmp_path)

    with ChatServer(Once(judge, judge, spent)) as server:
        with pytest.warns(RuntimeWarning, match="quota is used up: No quota left; 7 prompts have no answer"):
            frame = asyncio.run(cell())
        assert len(server.asked) == 3 and list(frame["score"].notna()) == [True] * 2 + [False] * 7
        assert asyncio.run(cell())["score"].notna().all() and len(server.asked) == 10


def test_a_finished_run_asks_nothing_and_a_server_may_move(rows: Any, tmp_path: Path) -> None:
    with ChatServer(judge) as server:
        first = grade(ask(server, served_as="ours"), rows[:4], out=tmp_path)
    same(grade(ask(server, served_as="ours"), rows[:4], out=tmp_path), first)  # it is gone by now
    with pytest.raises(RunError, match="base_url"):
        grade(ask(server), rows[:4], out=tmp_path)


def test_unsound_options() -> None:
    options: dict[str, Any] = {"timeout": 0, "retries": -1, "image_size": 0, "price": (1,)}
    with pytest.raises(ValueError, match=r"timeout=0.*retries=-1.*image_size=0.*price="):
        load_judge("openai:x", base_url="http://127.0.0.1:1/v1", **options)
    with pytest.raises(TypeError, match="unexpected keyword argument 'device'"):
        load_judge("openai:x", base_url="http://127.0.0.1:1/v1", device="cpu")


# --- replies of any kind ----------------------------------------------------------------------------------------------


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.just("[RESULT] 3"),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from("choices message content finish_reason logprobs top_logprobs token logprob usage".split()),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)


@given(JSON)
def test_any_reply_is_read_or_refused(body: Any) -> None:
    """What a server says never ends a run: it is an answer, or a failure with its reason."""
    reply, usage = completion("It is so. [RESULT] 3"), Usage()
    exchange = Exchange(Ask(marker="[RESULT]", scales=[SCALE]), {}, tokens={scale_key(SCALE): {}})
    replies = [body if isinstance(body, dict) else {}, reply | {"usage": body}, reply | {"choices": [body]}]
    replies += [completion("[RESULT] 3") | {"choices": [reply["choices"][0] | {"logprobs": body}]}]
    for one in replies:
        try:
            answer = exchange.answer(0, one, usage, Key(KEY))
        except Unanswered:
            continue
        answer.text.encode()
        assert 0 <= answer.n_prompt_tokens < 2**31 and 0 <= usage.prompt_tokens < 2**40
        assert not any(math.isnan(value) or value > 1e-3 for value in (answer.score_logprobs or {}).values())


def listed(value: Any, token: Any = "a") -> dict[str, Any]:
    top = [{"token": token, "logprob": value}]
    return {"logprobs": {"content": [{"token": "b", "logprob": -1.0, "top_logprobs": top}]}}


@pytest.mark.parametrize(
    "choice",
    [listed(value) for value in (math.nan, 0.5, "-1", None, True, math.inf, 10**400)]
    + [listed(-1.0, token) for token in (4, None, ["a"])]
    + [listed(-0.1), {"logprobs": None}, {"logprobs": {"content": 4}}, {"logprobs": {"content": [None]}}],
)
def test_log_probabilities_that_are_none(choice: Any) -> None:
    assert not read_tokens(choice)  # the first of the last line: .90 and .37 are no probabilities


# --- safety: the key stays on the way ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "echo",
    [
        KEY,
        f"Incorrect key: {KEY[:20]} ... {KEY[20:]}",
        "\n".join(KEY[at : at + 9] for at in range(0, len(KEY), 9)),
        quote(KEY, safe=""),
        "".join(f"%{ord(c):02x}" for c in KEY),
        base64.b64encode(f"Bearer {KEY}".encode()).decode(),
        base64.urlsafe_b64encode(f"x{KEY}".encode()).decode(),
        KEY.encode().hex(),
        KEY.upper(),
        KEY[::-1],
    ],
)
def test_a_key_is_cut_out_in_every_shape(echo: str) -> None:
    cut = Key(KEY).cut(f"before it, {echo}, and after it")
    assert cut.startswith("before it, ") and cut.endswith(", and after it") and "[key]" in cut
    plain = "".join(filter(str.isalnum, cut.replace("[key]", ""))).lower()
    for shape in (KEY, base64.b64encode(KEY.encode()).decode(), KEY.encode().hex(), KEY[::-1]):
        letters = "".join(filter(str.isalnum, shape)).lower()
        assert not any(letters[at : at + 8] in plain for at in range(len(letters) - 7))


def test_a_key_is_nowhere_but_in_the_header(rows: Any, tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.setenv("MY_KEY", KEY + "\n")
    echo = f"{KEY[:15]} and then {base64.b64encode(KEY.encode()).decode()}"
    body = completion(f"It is {echo}. [RESULT] 4") | {"model": f"judge {echo}"}
    kinds = [Reply(body), Reply({"error": {"message": echo}}, status=400), Reply(f"<p>{echo}</p>".encode())]
    kinds += [Reply({"error": echo}), Reply([echo]), Reply({"error": {"message": echo}}, status=500)]
    with ChatServer(Once(*kinds)) as server:
        judged = ask(server, key_variable="MY_KEY", retries=0)
        frame = grade(judged, rows[:7], out=tmp_path)
    assert {request.headers["authorization"] for request in server.requests} == {f"Bearer {KEY}"}
    assert list(frame["score"].notna()) == [True, False, False, False, False, False, True]
    shown = [path.read_text(encoding="utf-8") for path in tmp_path.iterdir()]
    shown += [repr(judged), repr(vars(judged.engine)), *capsys.readouterr(), frame.to_csv()]
    plain = ["".join(filter(str.isalnum, text)).lower() for text in shown]
    for whole in (KEY, echo):
        letters = "".join(filter(str.isalnum, whole)).lower().replace("andthen", "")
        assert not any(letters[at : at + 12] in text for at in range(len(letters) - 11) for text in plain)


@pytest.fixture
def pem(tmp_path: Path) -> Path:
    """A certificate for judge.test and 127.0.0.1, and its key, in one file; the certificate alone beside it."""
    if subprocess.run(["openssl", "version"], capture_output=True).returncode:
        pytest.skip("no openssl here")
    both = tmp_path / "server.pem"
    make = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost"
    make += " -addext subjectAltName=IP:127.0.0.1,DNS:judge.test"
    subprocess.run([*make.split(), "-keyout", both, "-out", tmp_path / "cert"], check=True, capture_output=True)
    both.write_bytes(both.read_bytes() + (tmp_path / "cert").read_bytes())
    return both


@pytest.mark.parametrize("variable", ["HTTP_PROXY", "all_proxy"])
def test_this_machine_is_reached_without_a_proxy(rows: Any, monkeypatch: Any, variable: str) -> None:
    """The proxy got the key."""
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with Proxy() as proxy, ChatServer(judge) as server:
        monkeypatch.setenv(variable, proxy.url)
        for host in ("127.0.0.1", "localhost"):
            url = server.url.replace("127.0.0.1", host)
            frame = load_judge("openai:judge-1", base_url=url, retries=0).grade(rows[:2], progress=False)
            assert frame["failure"].isna().all() and proxy.heard == b""
    assert server.requests[0].headers["authorization"] == f"Bearer {KEY}"


def test_a_proxy_hears_of_a_key_inside_tls_alone(rows: Any, monkeypatch: Any, pem: Path) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with Proxy() as proxy, ChatServer(judge, certificate=pem) as server:
        monkeypatch.setenv("ALL_PROXY", proxy.url)
        port = server.url.rpartition(":")[2].partition("/")[0]
        monkeypatch.setenv("SSL_CERT_FILE", str(pem.parent / "cert"))
        judged = load_judge("openai:judge-1", base_url=f"https://judge.test:{port}/v1", retries=0)
        frame = judged.grade(rows[:2], progress=False)
        assert frame["failure"].isna().all() and proxy.heard.startswith(b"CONNECT judge.test:")
        assert KEY.encode() not in proxy.heard and b"uthorization" not in proxy.heard
        assert server.requests[0].headers["authorization"] == f"Bearer {KEY}"
        with pytest.raises(ValueError, match="would go to judge.test in the clear"):
            load_judge("openai:judge-1", base_url=f"http://judge.test:{port}/v1")
        with pytest.raises(ServerError, match="CERTIFICATE_VERIFY_FAILED"):
            ask(server).grade(rows[:2], progress=False)


def test_keys_and_addresses(monkeypatch: Any) -> None:
    with pytest.raises(ValueError, match="OPENAI_API_KEY is not set"):
        load_judge("openai:gpt-4o")
    with pytest.raises(ValueError, match="MY_KEY is not set"):
        load_judge("openai:x", base_url="http://127.0.0.1:1/v1", key_variable="MY_KEY")
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    assert load_judge("gpt-4o", engine="server").engine.model == "gpt-4o"
    load_judge("openai:x", base_url="http://gpu-node:8000/v1", key_variable=None)
    for url in ("ftp://a/v1", "a/v1", "https:///v1", f"https://me:{KEY}@a/v1", f"https://a/v1?key={KEY}"):
        with pytest.raises(ValueError, match="use one like") as refusal:
            check_url(url)
        assert KEY not in str(refusal.value)
    monkeypatch.setenv("OPENAI_API_KEY", "two words")
    with pytest.raises(ValueError, match="holds spaces") as refusal:
        load_judge("openai:gpt-4o")
    assert "two words" not in str(refusal.value)


# --- transformers' own server -----------------------------------------------------------------------------------------

VICUNA = (
    "{% for message in messages %}{{ ' USER: ' if message.role == 'user' else '' }}"
    "{% if message.content is string %}{{ message.content }}{% else %}{% for part in message.content %}"
    "{{ '<image>\\n' if part.type == 'image' else part.text }}{% endfor %}{% endif %}{% endfor %} ASSISTANT:"
)


@pytest.fixture(scope="module")
def served(taught_judge: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """`transformers serve` with the small judge that learned to write verdicts: its address and the model's name."""
    for name in ("fastapi", "uvicorn", "openai"):
        pytest.importorskip(name)
    from conftest import PATCH, SIDE
    from transformers import AutoTokenizer, LlavaProcessor
    from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

    folder = tmp_path_factory.mktemp("served") / "judge"
    shutil.copytree(taught_judge, folder)
    pixels = CLIPImageProcessorPil(size={"shortest_edge": SIDE}, crop_size={"height": SIDE, "width": SIDE})
    options = {"patch_size": PATCH, "vision_feature_select_strategy": "default", "num_additional_image_tokens": 1}
    tokenizer = AutoTokenizer.from_pretrained(folder)
    LlavaProcessor(pixels, tokenizer, chat_template=VICUNA, **options).save_pretrained(folder)
    (folder / "preprocessor_config.json").unlink(missing_ok=True)  # its place is in processor_config.json now
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-c", "from transformers.cli.transformers import main; main()", "serve", str(folder)]
    command += ["--device", "cpu", "--dtype", "float32", "--host", "127.0.0.1", "--port", str(port)]
    log = folder.parent / "log"
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    with log.open("wb") as stream:
        process = subprocess.Popen(command, stdout=stream, stderr=stream, env=environment)
    try:
        for _ in range(600):
            time.sleep(0.2)
            try:
                if process.poll() is None:
                    urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=2).close()
                    break
            except OSError:
                continue
            pytest.skip(f"transformers serve ended: {log.read_text(errors='replace')[-500:]}")
        else:
            pytest.skip("transformers serve did not start within two minutes")
        yield f"http://127.0.0.1:{port}/v1", str(folder)
    finally:
        process.kill()
        process.wait()


def test_transformers_own_server_judges_as_the_engine_here(
    served: tuple[str, str], taught_judge: Path, rows: Any
) -> None:
    """The same checkpoint and wording behind a server and in this process: the same texts, pictures seen by both."""
    address, name = served
    options: dict[str, Any] = {"max_new_tokens": 40, "progress": False}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        judged = load_judge(f"openai:{name}", base_url=address, template="prometheus-vision")
        there = judged.grade(rows[:10], **options)
    here = load_judge(taught_judge, device="cpu").grade(rows[:10], batch_size=1, **options)
    assert there["failure"].isna().all() and (there["score"] == there["gold"]).mean() >= 0.8
    assert there["raw"].to_list() == here["raw"].to_list()
    assert there["n_prompt_tokens"].to_list() == here["n_prompt_tokens"].to_list()
    assert judged.engine.usage.requests == 11
    with pytest.raises(ServerError, match="whether it continues an answer that is begun"):
        judged.grade(rows[:10], mode="score", progress=False)


# --- a real vLLM ------------------------------------------------------------------------------------------------------


@pytest.mark.skipif("VJUDGE_VLLM" not in os.environ, reason="VJUDGE_VLLM is the address of a vLLM that serves tiny")
@pytest.mark.parametrize("mode", ["feedback", "score"])
def test_a_real_vllm_judges_as_the_engine_here(mode: str) -> None:
    """200 items: at least 198 texts equal, every prompt as long, expected scores within .01."""
    address = os.environ["VJUDGE_VLLM"]
    with urllib.request.urlopen(f"{address}/models", timeout=10) as reply:
        name = json.load(reply)["data"][0]["id"]
    items = vj.load_collection("scenes", split="test", limit=200)
    here = load_judge("tiny", device="cpu").grade(items, mode=mode, progress=False)
    served = load_judge(f"openai:{name}", base_url=address, template="prometheus-vision", key_variable=None)
    there = served.grade(items, mode=mode, progress=False)
    gap = (there["expected_score"] - here["expected_score"]).abs()
    print(f"{mode}: {(there['raw'] == here['raw']).sum()} of 200 texts equal, expected scores within {gap.max():.2g}")
    assert there["failure"].isna().all() and (there["raw"] == here["raw"]).sum() >= 198
    assert there["n_prompt_tokens"].to_list() == here["n_prompt_tokens"].to_list()
    assert gap.notna().all() and (gap[there["raw"] == here["raw"]] < 0.01).all()
