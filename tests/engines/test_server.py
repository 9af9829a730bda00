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
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote

import numpy as np
import openai._base_client
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import vjudge as vj
from servers import (
    ChatServer,
    Proxy,
    Reply,
    Request,
    Tokenizer,
    completion,
    judge,
    score_of,
    vicuna,
)
from vjudge.engines import client as client_module
from vjudge.engines.client import Key, Unanswered, address
from vjudge.engines.engine import Ask
from vjudge.engines.logprobs import at_verdict, read_tokens
from vjudge.engines.server import UNCOUNTED, ServerCall, ServerError
from vjudge.images import open_image
from vjudge.judge import Judge, load_judge
from vjudge.prompts import TEMPLATES
from vjudge.records import Item
from vjudge.runs import Run

KEY = "sk-proj-4Zt9bQ-7xWm2Kf0aLr8V_Yc3Ne5Hs1"
SCALE = {n: f" {n}" for n in range(1, 6)}
MARKED = replace(TEMPLATES["chat"], marker="[RESULT]", format="prometheus")
THREE, BARE = completion("[RESULT] 3"), completion("[RESULT] 4", logprobs=False)


@pytest.fixture(autouse=True)
def surroundings(monkeypatch: pytest.MonkeyPatch) -> None:
    """No key or proxy from outside, and pauses of a hundredth of their length."""
    for name in list(os.environ):
        if name.lower().endswith("_proxy") or name == "OPENAI_API_KEY":
            monkeypatch.delenv(name)
    monkeypatch.setattr(openai._base_client, "INITIAL_RETRY_DELAY", 0.005)


def ask(server: ChatServer, **options: Any) -> Judge:
    asked = {"template": MARKED} | options
    return load_judge("openai:judge-1", base_url=server.url, **asked)


def grade(judge: Judge, rows: Any, **options: Any) -> pd.DataFrame:
    """One request after the other."""
    return judge.grade(rows, **{"progress": False, "batch_size": 1, "unread": "missing"} | options)


class Once:
    """An answer that is each of `first` for one prompt's request and the judge's own afterwards."""

    def __init__(
        self, *first: Reply | Callable[[Request], Reply], then: Callable[[Request], Reply] = judge
    ) -> None:
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
    scores = {request.text: score_of(request) for request in server.asked}
    assert len(server.asked) == 20 and len(server.requests) == 21
    assert list(frame["id"]) == [row["id"] for row in rows[:20]]
    assert list(frame["score"]) == [
        scores[judged.render(row).replace("<image>", "")] for row in rows[:20]
    ]
    assert (
        frame["failure"].isna().all()
        and (frame["feedback"] == frame["raw"].str.split("\n").str[0]).all()
    )
    # 0.6 on the score and 0.08 on each other: shares 0.6 / 0.92 and 0.08 / 0.92.
    for _, row in frame.iterrows():
        share = {n: (0.6 if n == row["score"] else 0.08) / 0.92 for n in range(1, 6)}
        assert row["probabilities"] == pytest.approx(share) and row[
            "probability_mass"
        ] == pytest.approx(0.92)
        assert row["expected_score"] == pytest.approx(sum(n * p for n, p in share.items()))
    assert (frame["n_prompt_tokens"] == 100).all() and (frame["n_new_tokens"] == 10).all()
    (line,) = capsys.readouterr().err.strip().splitlines()  # 2100 x 2 + 210 x 10 millionths
    assert line.endswith(
        "21 requests; 2100 prompt tokens; 210 new tokens; 0.0063 at the given price"
    )


def test_what_a_request_holds(rows: Any, monkeypatch: Any) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    draws = {"samples": 2, "temperature": 0.7}
    with ChatServer(judge) as server:
        grade(ask(server), rows[:1], max_new_tokens=77)
        grade(
            ask(server, fields={"seed": None, "reasoning_effort": "low"}),
            rows[:1],
            **draws,
            top_p=0.9,
        )
        grade(ask(server), rows[:1], **draws, repetition_penalty=1.03)
    first, plain, _, one, two = server.asked
    assert first.headers["authorization"] == f"Bearer {KEY}"
    body = {name: value for name, value in first.body.items() if name != "messages"}
    assert body == {
        "model": "judge-1",
        "max_tokens": 77,
        "temperature": 0.0,
        "logprobs": True,
        "top_logprobs": 20,
    }
    (message,) = first.body["messages"]
    assert message["role"] == "user" and [part["type"] for part in message["content"]] == [
        "image_url",
        "text",
    ]
    assert (
        message["content"][1]["text"] == TEMPLATES["chat"].render(Item.from_row(rows[0])).parts[-1]
    )
    (uri,) = first.pictures
    assert uri.startswith("data:image/png;base64,")
    assert np.array_equal(np.asarray(open_image(uri)), np.asarray(open_image(rows[0]["images"][0])))
    assert (plain.body["top_p"], plain.body["reasoning_effort"], "seed" in plain.body) == (
        0.9,
        "low",
        False,
    )
    assert one.body["seed"] != two.body["seed"] and max(one.body["seed"], two.body["seed"]) < 2**31
    assert one.body["repetition_penalty"] == 1.03
    assert {
        name: server.requests[0].body[name] for name in body
    } == body  # the short test has the same options


def test_a_plan_sends_nothing(rows: Any) -> None:
    """Requests, tokens and, with prices, the cost; nothing is NaN without a reason."""
    with showing(Tokenizer(vicuna)) as server:
        judged = ask(server, price=(2.0, 10.0))
        plan = vj.plan(judged, rows[:10], max_new_tokens=50)
        assert not server.requests and not server.looks
    assert plan["planned"][["verdicts", "requests", "new tokens", "images shown"]].tolist() == [
        10,
        10,
        500,
        10,
    ]
    tokens = sum(len(judged.render(row).replace("<image>", "")) for row in rows[:10]) / 4
    assert (
        plan.loc["prompt tokens", "planned"] == tokens
        and "estimated" in plan.loc["prompt tokens", "note"]
    )
    assert plan.loc["cost", "planned"] == pytest.approx((tokens * 2 + 500 * 10) / 1e6)
    plan = vj.plan(
        load_judge("openai:m", base_url="http://127.0.0.1:1/v1"), rows[:10], mode="score"
    )
    assert math.isnan(plan.loc["cost", "planned"]) and "price" in plan.loc["cost", "note"]
    assert (
        plan.loc["new tokens", "planned"] == 10
        and plan["note"][plan["planned"].isna()].ne("").all()
    )


# --- log-probabilities ------------------------------------------------------------------------------------------------


def test_a_server_without_log_probabilities(rows: Any, capsys: Any) -> None:
    with ChatServer(lambda request: Reply(BARE), tokenizer=Tokenizer(chatml)) as server:
        with pytest.raises(
            ServerError, match="gave no log-probabilities .*, and score mode needs them"
        ):
            grade(ask(server), rows[:5], mode="score")
        assert not server.asked and len(server.requests) == 1  # one short request, nothing else
        frame = grade(ask(server), rows[:5])
    assert (frame["score"] == 4).all() and frame["expected_score"].isna().all()
    assert frame.attrs["without_distribution"] == 5
    assert "no log-probabilities came with it, or" in capsys.readouterr().err
    refusal = Reply({"error": {"message": "logprobs are not supported"}}, status=400)
    with ChatServer(
        lambda request: refusal if request.body.get("logprobs") else Reply(BARE)
    ) as server:
        with pytest.raises(ServerError, match="not supported; .*fields= .*by None leaves out"):
            grade(ask(server), rows[:5])
        assert (grade(ask(server, fields={"logprobs": None}), rows[:5])["score"] == 4).all()


def test_one_answer_without_log_probabilities(rows: Any) -> None:
    """The server offered them, and left them out or sent NaN: no distribution there, in score mode no score."""
    spoilt = completion("[RESULT] 3")
    spoilt["choices"][0]["logprobs"]["content"][1]["logprob"] = math.nan
    with ChatServer(Once(Reply(BARE), Reply(spoilt))) as server:
        frame = grade(ask(server), rows[:3])
    assert (
        list(frame["expected_score"].isna()) == [True, True, False] and frame["score"].notna().all()
    )
    with showing(Tokenizer(chatml), Reply(BARE)) as server:
        frame = grade(ask(server), rows[:3], mode="score")
    assert (
        list(frame["score"].isna()) == [True, False, False]
        and "no log-probabilities" in frame["failure"][0]
    )


@pytest.mark.parametrize(
    ("text", "near", "expected"),
    [
        # " 4" and "4" are one score; " four" is none; 3 is not listed and counts as 0.
        (
            "A 2. [RESULT] 4",
            {" 4": 0.5, "4": 0.2, " 5": 0.1, " 1": 0.05, " four": 0.1},
            [0.05, 0, 0, 0.7, 0.1],
        ),
        # Drawn although it is not among the most probable: the token's own log-probability counts (1e-4 here).
        ("[RESULT] 2", {" 1": 0.5, " 3": 0.25}, [0.5, 1e-4, 0.25, 0, 0]),
        ("Good. [result]: **4**", {" 4": 0.5, "4": 0.3, " 2": 0.1}, [0, 0.1, 0, 0.8, 0]),
        ("[RESULT] 2 or rather [RESULT] 4", {" 4": 0.5, " 2": 0.1}, [0, 0.1, 0, 0.5, 0]),
        ("[RESULT] of it all is 4", {" 4": 0.5}, None),
        ("[RESULT] 4 and [RESULT]", {" 4": 0.5}, None),
    ],
)
def test_the_distribution_by_hand(
    text: str, near: dict[str, float], expected: list[float] | None
) -> None:
    (choice,) = completion(text, alternatives=near)["choices"]
    shares = at_verdict(text, read_tokens(choice), "[RESULT]", SCALE)
    assert (shares and [math.exp(value) for value in shares.values()]) == (
        expected and pytest.approx(expected)
    )


# --- a server that shows its tokens -----------------------------------------------------------------------------------


def wordy(request: Request, tokenizer: Tokenizer, end: str = "[RESULT]") -> Reply:
    """A judge whose distribution after the marker is known: .3 on 1 and .1 on the other digits, listed by token."""
    if not tokenizer.text(request.body).endswith(end):
        return Reply(completion("It is so. [RESULT] 4", alternatives={" 4": 0.6, " 1": 0.2}))
    odds = {tokenizer.ids(f" {n}")[0]: math.log(0.3 if n == 1 else 0.1) for n in SCALE}
    ids = request.body["logprob_token_ids"]
    entries = [{"token": f"token_id:{id}", "logprob": odds.get(id, -20.0)} for id in ids]
    reply = completion(" 1")
    reply["choices"][0]["logprobs"] = {"content": [entries[0] | {"top_logprobs": entries}]}
    return Reply(reply)


def showing(tokenizer: Tokenizer, *first: Reply) -> ChatServer:
    return ChatServer(
        Once(*first, then=lambda request: wordy(request, tokenizer)), tokenizer=tokenizer
    )


def chatml(messages: Any, *, open: bool = False) -> str:
    text = "".join(f"<{role}>\n{text}</s>" for role, text in messages)
    return text.removesuffix("</s>") if open else f"{text}<assistant>\n"


def trimming(messages: Any, *, open: bool = False) -> str:
    """The same for blanks at a text's end, as many templates have it: no matter where the judge's texts have none."""
    return vicuna([(role, text.strip()) for role, text in messages], open=open)


@pytest.mark.parametrize("mode", ["feedback", "score"])
@pytest.mark.parametrize(
    ("tokenizer", "fields"),
    [
        (
            Tokenizer(trimming),
            {"add_special_tokens"},
        ),  # the first token is missing in the chat template: vLLM's case
        (Tokenizer(partial(vicuna, bos="<s>")), set()),
        (Tokenizer(vicuna, start=""), set()),  # a vocabulary without one
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
        assert len(server.requests) == 4
    end = " [RESULT]" if mode == "score" else ""
    texts = [TEMPLATES["prometheus-vision"].render(Item.from_row(row)).text + end for row in some]
    assert {tokenizer.text(request.body) for request in server.asked} == {
        tokenizer.start + text for text in texts
    }
    assert {"add_special_tokens"} & set(server.asked[0].body) == fields
    assert frame["failure"].isna().all() and "not checked" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("tokenizer", "mode", "reason"),
    [
        (Tokenizer(chatml), "feedback", "judge's own prompt: its tokens are not the judge's own"),
        # The reply was another turn's, and expected scores were off by up to 2.9 in silence.
        (
            Tokenizer(vicuna, continues=False),
            "score",
            "the beginning of an answer after it: .*from token",
        ),
    ],
)
def test_another_prompt_than_the_judges_own_is_refused(
    rows: Any, tokenizer: Tokenizer, mode: str, reason: str
) -> None:
    with showing(tokenizer) as server:
        with pytest.raises(ServerError, match=f"{reason}.*conversation=None"):
            grade(ask(server, template="prometheus-vision"), rows[:2], mode=mode)
        assert not server.requests
        assert (
            grade(ask(server, template="prometheus-vision", conversation=None), rows[:2])["score"]
            .eq(4)
            .all()
        )


@pytest.mark.parametrize("reply", [{"tokens": ["a"]}, {"tokens": [1], "max_model_len": -3}])
def test_a_tokenizer_that_talks_nonsense_is_none(rows: Any, capsys: Any, reply: Any) -> None:
    tokenizer = Tokenizer(vicuna)
    tokenizer.reply = lambda body: Reply(reply)  # type: ignore[method-assign]
    with ChatServer(judge, tokenizer=tokenizer) as server:
        frame = grade(ask(server, template="prometheus-vision"), rows[:2])
        assert frame["failure"].isna().all() and "not checked" in capsys.readouterr().err
        with pytest.raises(
            ServerError, match='/tokenize.*whether it continues.*use mode="feedback"'
        ):
            grade(ask(server), rows[:2], mode="score")


def test_score_mode_reads_the_scores_tokens(rows: Any) -> None:
    with showing(Tokenizer(chatml)) as server:
        frame = grade(ask(server), rows[:3], mode="score")
    share = {1: 0.3 / 0.7, **dict.fromkeys(range(2, 6), 0.1 / 0.7)}
    for _, row in frame.iterrows():
        assert row["probabilities"] == pytest.approx(share) and row[
            "probability_mass"
        ] == pytest.approx(0.7)
    body = server.asked[0].body
    user, begun = body["messages"]
    assert begun == {"role": "assistant", "content": "[RESULT]"} and body["continue_final_message"]
    assert not user["content"][1]["text"].endswith("[RESULT]")
    assert (
        body["max_tokens"],
        len(body["logprob_token_ids"]),
        body["return_tokens_as_token_ids"],
    ) == (1, 5, True)


def several(request: Request, tokenizer: Tokenizer) -> Reply:
    """A judge that writes 10 of 10: behind the marker .6 on 1 and .1 on 2 to 5, behind " 1" .25 on 0."""
    if "continue_final_message" not in request.body:
        return Reply(completion("It is so. [RESULT] 10"))
    chances = dict.fromkeys([" 2", " 3", " 4", " 5"], 0.1) | {" 1": 0.6}
    if tokenizer.text(request.body).endswith("[RESULT] 1"):
        chances = {"0": 0.25}
    odds = {tokenizer.ids(text)[0]: math.log(chance) for text, chance in chances.items()}
    ids = request.body["logprob_token_ids"]
    entries = [{"token": f"token_id:{id}", "logprob": odds.get(id, -50.0)} for id in ids]
    reply = completion(" 1")
    reply["choices"][0]["logprobs"] = {"content": [entries[0] | {"top_logprobs": entries}]}
    return Reply(reply)


@pytest.mark.parametrize("mode", ["feedback", "score"])
def test_scores_of_several_tokens_are_read_token_by_token(rows: Any, mode: str) -> None:
    """From 1 to 10, by hand: 10 has .6 x .25 = .15, and 1 the .45 that are left; the rest .1 or none."""
    ten = {**rows[0], "descriptions": [f"Level {n}." for n in range(10)], "gold": 3.0}
    tokenizer = Tokenizer(partial(vicuna, bos="<s>"))
    with ChatServer(lambda request: several(request, tokenizer), tokenizer=tokenizer) as server:
        frame = grade(ask(server, template="prometheus-vision"), [ten], mode=mode)
    assert frame["score"][0] == (10 if mode == "feedback" else 1) and frame["failure"].isna().all()
    shares = {1: 0.45, 10: 0.15} | dict.fromkeys(range(2, 6), 0.1) | dict.fromkeys(range(6, 10), 0.0)
    assert frame["probabilities"][0] == pytest.approx(shares, abs=1e-9)
    places = [tokenizer.text(request.body)[-11:] for request in server.asked[-2:]]
    assert [place.endswith(" 1") for place in places] == [False, True]


def test_scores_of_several_tokens_that_no_server_tells_apart(rows: Any, capsys: Any) -> None:
    """Without its tokens there is no distribution, and one line says so; 1 to 5 beside it has one."""
    ten = {**rows[0], "descriptions": [f"Level {n}." for n in range(10)], "gold": 3.0}
    with ChatServer(judge) as server:
        frame = grade(ask(server), [ten, rows[1]])
    assert frame["score"].notna().all() and list(frame["expected_score"].isna()) == [True, False]
    assert "1 answers without a distribution, since a level" in capsys.readouterr().err


def test_several_criteria_are_closed(rows: Any) -> None:
    """By one schema for all, or one after another where the server continues an answer."""
    named = [{"name": "right", "criteria": "Is it right?", "weight": 3.0}]
    named += [{"name": "rude", "criteria": "Is it rude?", "weight": -1.0}]
    row = {name: cell for name, cell in rows[0].items() if name not in ("gold", "human_scores")}
    row |= {"criteria": named}

    def by_schema(request: Request) -> Reply:
        form = request.body.get("response_format", {}).get("json_schema", {}).get("schema", {})
        if "feedback" in form.get("properties", {"feedback": 0}):
            return Reply(completion("It is fair."))
        return Reply(completion(json.dumps({"right": "4", "rude": "2"})))

    with ChatServer(by_schema) as server:
        frame = grade(ask(server, template="chat-json"), [row], unread="close")
    assert frame["scores"][0] == {"right": 4, "rude": 2} and frame["closed"][0]
    assert frame["score"][0] == (3 * 4 - 2) / 4
    tokenizer = Tokenizer(chatml)

    def by_continuing(request: Request) -> Reply:
        if "continue_final_message" not in request.body:
            return Reply(completion("It is fair."))
        return wordy(request, tokenizer, end=":")

    with ChatServer(by_continuing, tokenizer=tokenizer) as server:
        frame = grade(ask(server, template="chat-json"), [row], unread="close")
    assert frame["scores"][0] == {"right": 1, "rude": 1} and frame["score"][0] == (3 - 1) / 4
    begun = [request.body["messages"][-1]["content"] for request in server.asked[-2:]]
    assert begun[0] == 'It is fair.\n{"scores": {"right":'
    assert begun[1] == begun[0] + ' 1, "rude":'


# --- a server that misbehaves -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "reply", [Reply(b"", status=429), Reply(THREE, cut=40), Reply(THREE, drip=0.02)]
)
def test_what_the_transport_spoils_is_asked_again(rows: Any, reply: Reply) -> None:
    """Refused for now, half an answer, and one that comes byte by byte."""
    with ChatServer(Once(reply, reply)) as server:
        judged = ask(server, timeout=0.6)
        frame = grade(judged, rows[:3])
    assert frame["failure"].isna().all() and len(server.asked) == 5
    assert server.asked[0].body == server.asked[1].body == server.asked[2].body
    counts: Any = judged.engine.usage
    assert counts["repetitions"] == 2


def test_odd_replies_are_failures_and_no_answer_is_asked_for_again(
    rows: Any, monkeypatch: Any, tmp_path: Path
) -> None:
    """Hidden reasoning alone, a filter and the like are answers; what is none is asked for by the next call."""
    monkeypatch.setattr(client_module, "MOST_BYTES", 200_000)
    empty, refusal = completion("", finish="length"), completion("")
    empty["choices"][0]["message"]["content"] = None
    refusal["choices"][0]["message"] |= {"content": None, "refusal": "I can't judge this."}
    answers = {
        "no verdict marker": Reply(completion("I would rather not say.")),
        "cut off at the token limit": Reply(empty),
        "the judge refused": Reply(refusal),
        "the server's content filter cut the answer": Reply(
            completion("It", finish="content_filter")
        ),
        "HTTP 400: the image is too small": Reply(
            {"error": {"message": "the image is too small"}}, status=400
        ),
        "lone surrogate": Reply(completion("half a \ud83d, [RESULT] 3")),
    }
    garbage = {
        "not JSON as expected: '<html>": Reply(
            b"<html>Sign in</html>", headers={"Content-Type": "text/html"}
        ),
        "not JSON as expected: '[[": Reply(b"[" * 100_000),  # too deep
        "no chat completion (KeyError: 'choices')": Reply({}),
        "answered with an error: upstream died": Reply({"error": {"message": "upstream died"}}),
        "larger than 200000 bytes": Reply(b" " * 300_000),
    }
    # A count of 10**30 was recorded, and every later call raised.
    huge = Reply(THREE | {"usage": {"prompt_tokens": 10**30, "completion_tokens": 10**30}})
    with ChatServer(Once(*answers.values(), *garbage.values(), huge)) as server:
        judged = ask(server, price=(1.0, 1.0))
        frame = grade(judged, rows[:12], out=tmp_path)
        counts: Any = judged.engine.usage
        assert len(server.asked) == 12 and counts[UNCOUNTED] == 1 and counts["prompt tokens"] == 600
        again = grade(judged, rows[:12], out=tmp_path)
        assert len(server.asked) == 12 + len(garbage) and again["score"][6:].notna().all()
    assert grade(ask(server), rows[:12], out=tmp_path)["raw"].equals(
        again["raw"]
    )  # the server is gone by now
    assert all(
        part in failure
        for part, failure in zip([*answers, *garbage], frame["failure"][:11], strict=True)
    )
    assert frame["failure"].isna()[11] and frame["n_prompt_tokens"][11] == 0
    assert frame["raw"][2] == "I can't judge this."


def test_a_server_that_goes_down_ends_the_call_and_loses_nothing(
    rows: Any, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setattr(client_module, "RETRIES", 1)
    down = Reply(b"", status=502)
    with ChatServer(Once(*[judge] * 10, *[down] * 50)) as server:
        message = r"8 prompts in a row got no answer.*HTTP 502.*50 prompts have no answer"
        with pytest.warns(RuntimeWarning, match=message):
            frame = grade(ask(server), rows, out=tmp_path)
        assert len(server.asked) == 10 + 2 * 8  # and not 2 x 50
        assert frame["score"].notna().sum() == 10 == len(Run(tmp_path).verdicts())
        assert set(frame["failure"][10:18]) == {"HTTP 502, in each of 2 attempts"}


def test_a_redirect_stops_at_the_start(rows: Any) -> None:
    with ChatServer(judge) as other:
        elsewhere = {"Location": other.url.replace("127.0.0.1", "localhost")}
        with ChatServer(lambda request: Reply(b"", status=307, headers=elsewhere)) as server:
            with pytest.raises(
                ServerError, match="did not answer a short test request: HTTP 307: it redirects"
            ):
                grade(ask(server), rows[:9])
        assert len(server.requests) == 1 and not other.requests


@pytest.mark.parametrize(
    ("last", "reason"),
    [
        (Reply({"error": {"code": "insufficient_quota"}}, status=429), "quota is used up"),
        (
            Reply(b"", status=503, headers={"Retry-After": "9000"}),
            "asks to wait 9000 s, longer than 120 s",
        ),
    ],
)
def test_retry_after_is_obeyed_and_where_waiting_does_not_help_the_call_ends(
    rows: Any, last: Reply, reason: str
) -> None:
    async def cell() -> pd.DataFrame:  # a notebook's loop is running
        return grade(ask(server), rows[:9])

    with ChatServer(
        Once(Reply(b"", status=429, headers={"Retry-After": "0.5"}), judge, last)
    ) as server:
        with pytest.warns(RuntimeWarning, match=f"{reason}.*; 8 prompts have no answer"):
            assert list(asyncio.run(cell())["score"].notna()) == [True] + [False] * 8
        assert len(server.asked) == 3 and 0.5 <= server.asked[1].time - server.asked[0].time < 5


def test_a_server_that_drips_is_left_in_time(rows: Any, monkeypatch: Any) -> None:
    """A byte of the header now and then held a call with a time-out of 1 s for 86 s."""
    monkeypatch.setattr(client_module, "RETRIES", 1)

    def drip(connection: socket.socket) -> None:
        with connection, suppress(OSError):
            connection.recv(1 << 16)
            for byte in b"HTTP/1.1 200 OK\r\n" + b"X-Slow: " + b"x" * 1000:
                connection.send(bytes([byte]))
                time.sleep(0.2)

    def serve() -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=drip, args=(listener.accept()[0],), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=serve, daemon=True).start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
        started = time.monotonic()
        with pytest.raises(ServerError, match="time-out, in each of 2 attempts"):
            grade(load_judge("openai:m", base_url=url, timeout=1.0), rows[:1])
    assert time.monotonic() - started < 7  # two looks and two attempts, a second each


@pytest.mark.parametrize(
    ("said", "failure"),
    [
        ("judge-1", None),
        ("judge-1-2026-05-13", None),
        ("judge-1@main", None),
        ("judge-1-mini", "model 'judge-1-mini' answered, and 'judge-1' was asked"),
    ],
)
def test_another_model_than_was_asked_is_a_failure(rows: Any, said: str, failure: Any) -> None:
    with ChatServer(lambda request: Reply(THREE | {"model": said})) as server:
        if failure:
            with pytest.raises(ServerError, match=failure):
                grade(ask(server), rows[:1])
        else:
            assert grade(ask(server), rows[:1])["failure"].isna().all()


def test_reasoning_is_kept_beside_the_feedback(rows: Any) -> None:
    thought = completion("Fine. [RESULT] 3")
    thought["choices"][0]["message"]["reasoning_content"] = "[RESULT] 1, I first thought"
    with ChatServer(lambda request: Reply(thought)) as server:
        frame = grade(ask(server), rows[:1])
    assert frame["score"][0] == 3 and frame["reasoning"][0].endswith("I first thought")


def closing(request: Request) -> Reply:
    """A judge that writes prose, and a verdict where a schema wants one."""
    if "response_format" in request.body:
        return Reply(completion(json.dumps({"verdict": "2"})))
    return Reply(completion("It is a fair answer, I would say."))


def test_an_answer_without_a_verdict_is_closed_by_a_schema(rows: Any, capsys: Any) -> None:
    with ChatServer(closing) as server:
        frame = grade(ask(server), rows[:3], unread="close")
    assert frame["score"].eq(2).all() and frame["closed"].all() and frame.attrs["closed"] == 3
    assert frame["raw"].str.startswith("It is a fair").all() and frame["probabilities"].isna().all()
    assert "3 of 3 verdicts were closed" in capsys.readouterr().err
    user, answer, last = server.asked[-1].body["messages"]
    assert answer == {"role": "assistant", "content": "It is a fair answer, I would say."}
    assert "JSON" in last["content"]
    refusal = Reply({"error": {"message": "response_format is unknown"}}, status=400)
    with ChatServer(lambda r: refusal if "response_format" in r.body else closing(r)) as server:
        frame = grade(ask(server), rows[:1], unread="close")
    assert frame["failure"][0].startswith("no verdict marker") and not frame["closed"][0]
    assert list(frame.attrs["unclosed"]) == [
        "the server takes no schema to close by (HTTP 400: response_format is unknown)"
    ]


def test_an_answer_without_a_verdict_is_continued_where_that_is_possible(rows: Any) -> None:
    """The marker stands behind the answer, and the distribution is read there."""
    tokenizer = Tokenizer(chatml)
    with ChatServer(
        lambda request: (
            wordy(request, tokenizer)
            if request.body.get("continue_final_message")
            else Reply(completion("It is a fair answer."))
        ),
        tokenizer=tokenizer,
    ) as server:
        frame = grade(ask(server), rows[:2], unread="close")
    assert frame["closed"].all() and frame["score"].eq(1).all()
    share = {1: 0.3 / 0.7, **dict.fromkeys(range(2, 6), 0.1 / 0.7)}
    assert frame["probabilities"][0] == pytest.approx(share)
    begun = server.asked[-1].body["messages"][-1]
    assert begun == {"role": "assistant", "content": "It is a fair answer.\n[RESULT]"}


def test_the_blank_before_an_answer_is_written_once(rows: Any) -> None:
    """Vicuna's template writes it; an answer that holds it too had two, and another distribution."""
    tokenizer = Tokenizer(partial(vicuna, bos="<s>"))
    with ChatServer(
        lambda request: (
            wordy(request, tokenizer)
            if request.body.get("continue_final_message")
            else Reply(completion(" It is a fair answer."))
        ),
        tokenizer=tokenizer,
    ) as server:
        grade(ask(server, template="prometheus-vision"), rows[:1], unread="close")
    text = tokenizer.text(server.asked[-1].body)
    assert text.endswith("ASSISTANT: It is a fair answer.\n[RESULT]")


def test_an_answer_is_held_to_its_schema_where_the_server_can(rows: Any, capsys: Any) -> None:
    text = json.dumps({"feedback": "Fine.", "score": 4})
    with ChatServer(lambda request: Reply(completion(text))) as server:
        frame = grade(ask(server, template="chat-json"), rows[:2])
        form = server.asked[0].body["response_format"]
    assert frame["score"].eq(4).all() and form["type"] == "json_schema"
    assert set(form["json_schema"]["schema"]["properties"]) == {"feedback", "score"}
    refusal = Reply({"error": {"message": "no response_format"}}, status=400)
    with ChatServer(
        lambda r: refusal if "response_format" in r.body else Reply(completion(text))
    ) as server:
        assert grade(ask(server, template="chat-json"), rows[:2])["score"].eq(4).all()
    assert "answers in free text, since the server refuses a schema" in capsys.readouterr().err


def test_the_spend_limit(rows: Any) -> None:
    with ChatServer(judge) as server:
        # Each answer costs 100 x 1 + 10 x 10 = 200 millionths; the test request too.
        with pytest.warns(
            RuntimeWarning, match=r"the spend limit of 0.001 is reached; 6 prompts have no answer"
        ):
            frame = grade(ask(server, price=(1.0, 10.0), spend_limit=0.001), rows[:10])
        assert len(server.requests) == 5 and frame["score"].notna().sum() == 4
    with pytest.raises(ValueError, match="give a price= too"):
        ask(server, spend_limit=1.0)


# --- replies of any kind ----------------------------------------------------------------------------------------------


NAMES = st.sampled_from(
    "choices message content finish_reason logprobs top_logprobs token logprob usage".split()
)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.just("[RESULT] 3"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=20,
)


@given(JSON)
def test_any_reply_is_read_or_refused(body: Any) -> None:
    """What a server says never ends a run: it is an answer, or a failure with its reason."""
    reply = completion("It is so. [RESULT] 3")
    call: Any = ServerCall.__new__(ServerCall)
    usage: Counter[str] = Counter()
    call.engine = SimpleNamespace(model="judge-1", usage=usage)
    call.server = SimpleNamespace(tokens=lambda row: [])
    call.key = Key(KEY)
    call.ask = Ask(marker="[RESULT]", scales=[SCALE])
    replies = [
        body if isinstance(body, dict) else {},
        reply | {"usage": body},
        reply | {"choices": [body]},
    ]
    replies += [completion("[RESULT] 3") | {"choices": [reply["choices"][0] | {"logprobs": body}]}]
    for one in replies:
        try:
            answer = call.read(one, 0)
        except Unanswered:
            continue
        answer.text.encode()
        assert 0 <= answer.n_prompt_tokens < 2**31 and 0 <= usage["prompt tokens"] < 2**40
        assert not any(
            math.isnan(value) or value > 0.01 for value in (answer.score_logprobs or {}).values()
        )


# --- safety: the key stays on the way ---------------------------------------------------------------------------------


def test_a_key_is_nowhere_but_in_the_header(
    rows: Any, tmp_path: Path, monkeypatch: Any, capsys: Any
) -> None:
    """Whole, in parts, in capitals, backwards, in hexadecimal digits or base64."""
    monkeypatch.setenv("MY_KEY", KEY + "\n")
    shapes = [
        KEY,
        f"{KEY[:20]} ... {KEY[20:]}",
        "\n".join(KEY[at : at + 9] for at in range(0, len(KEY), 9)),
    ]
    shapes += [
        quote(KEY, safe=""),
        "".join(f"%{ord(c):02x}" for c in KEY),
        KEY.encode().hex(),
        KEY.upper(),
        KEY[::-1],
    ]
    shapes += [
        base64.b64encode(f"{start}{KEY}".encode()).decode() for start in ("Bearer ", "x", "")
    ]
    echo = f"{KEY[:15]} and then {base64.b64encode(KEY.encode()).decode()}"
    replies = [
        Reply(completion(f"It is {shape}, they say. [RESULT] 4") | {"system_fingerprint": shape})
        for shape in shapes
    ]
    replies += [Reply({"error": {"message": echo}}, status=400), Reply(f"<p>{echo}</p>".encode())]
    replies += [
        Reply({"error": echo}),
        Reply([echo]),
        Reply({"error": {"message": echo}}, status=403),
    ]
    with ChatServer(Once(*replies)) as server:
        judged = ask(server, key_variable="MY_KEY")
        with pytest.warns(RuntimeWarning, match="HTTP 403") as stop:
            frame = grade(judged, rows[:17], out=tmp_path)
    assert {request.headers["authorization"] for request in server.requests} == {f"Bearer {KEY}"}
    assert list(frame["score"].notna()) == [True] * 11 + [False] * 6
    assert all(
        text.startswith("It is ") and "[key]" in text and "they say" in text
        for text in frame["raw"][:11]
    )
    shown = [path.read_text(encoding="utf-8") for path in tmp_path.iterdir()] + [
        str(stop[0].message),
        frame.to_csv(),
    ]
    shown += [repr(judged), repr(vars(judged.engine)), *capsys.readouterr()]
    plain = ["".join(filter(str.isalnum, text.replace("[key]", ""))).lower() for text in shown]
    for shape in (KEY, base64.b64encode(KEY.encode()).decode(), KEY.encode().hex(), KEY[::-1]):
        letters = "".join(filter(str.isalnum, shape)).lower()
        assert not any(
            letters[at : at + 10] in text for at in range(len(letters) - 9) for text in plain
        )


def test_this_machine_is_reached_without_a_proxy(rows: Any, monkeypatch: Any) -> None:
    """The proxy got the key."""
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with Proxy() as proxy, ChatServer(judge) as server:
        for variable in ("HTTP_PROXY", "all_proxy"):
            monkeypatch.setenv(variable, proxy.url)
        for host in ("127.0.0.1", "localhost"):
            judged = load_judge(
                "openai:judge-1", base_url=server.url.replace("127.0.0.1", host), template=MARKED
            )
            assert (
                judged.grade(rows[:2], progress=False)["failure"].isna().all()
                and proxy.heard == b""
            )
    assert server.requests[0].headers["authorization"] == f"Bearer {KEY}"


def test_keys_and_addresses(monkeypatch: Any) -> None:
    with pytest.raises(ValueError, match="OPENAI_API_KEY is not set"):
        load_judge("openai:gpt-4o")
    with pytest.raises(ValueError, match="MY_KEY is not set"):
        load_judge("openai:x", base_url="http://127.0.0.1:1/v1", key_variable="MY_KEY")
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    assert load_judge("gpt-4o", engine="server").engine.model == "gpt-4o"
    load_judge("openai:x", base_url="http://gpu-node:8000/v1", key_variable=None)
    for host in ("gpu-node", "localhost.example.org", "127.0.0.1.example.org"):
        with pytest.raises(ValueError, match="in the clear"):
            load_judge("openai:x", base_url=f"http://{host}/v1")
    for url in (
        "ftp://a/v1",
        "a/v1",
        "https:///v1",
        f"https://me:{KEY}@a/v1",
        f"https://a/v1?key={KEY}",
    ):
        with pytest.raises(ValueError, match="use one like") as refusal:
            address(url, None)
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


def test_transformers_own_server_judges_as_the_engine_here(
    taught_judge: Path, rows: Any, tmp_path: Path
) -> None:
    """The same checkpoint and wording behind a server and in this process: the same texts, pictures seen by both."""
    for name in ("fastapi", "uvicorn", "openai"):
        pytest.importorskip(name)
    from transformers import AutoTokenizer, LlavaProcessor
    from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

    from conftest import PATCH, SIDE

    folder, log = Path(shutil.copytree(taught_judge, tmp_path / "judge")), tmp_path / "log"
    pixels = CLIPImageProcessorPil(
        size={"shortest_edge": SIDE}, crop_size={"height": SIDE, "width": SIDE}
    )
    options = {
        "patch_size": PATCH,
        "vision_feature_select_strategy": "default",
        "num_additional_image_tokens": 1,
    }
    tokenizer = AutoTokenizer.from_pretrained(folder)
    LlavaProcessor(pixels, tokenizer, chat_template=VICUNA, **options).save_pretrained(folder)
    (folder / "preprocessor_config.json").unlink(
        missing_ok=True
    )  # its place is in processor_config.json now
    with socket.create_server(("127.0.0.1", 0)) as free:
        host = f"127.0.0.1:{free.getsockname()[1]}"
    command = [
        sys.executable,
        "-c",
        "from transformers.cli.transformers import main; main()",
        "serve",
        str(folder),
    ]
    command += [
        "--device",
        "cpu",
        "--dtype",
        "float32",
        "--host",
        "127.0.0.1",
        "--port",
        host.rpartition(":")[2],
    ]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    with log.open("wb") as stream:
        process = subprocess.Popen(command, stdout=stream, stderr=stream, env=environment)
    try:
        for _ in range(600):
            time.sleep(0.2)
            if process.poll() is not None:
                pytest.skip(f"transformers serve ended: {log.read_text(errors='replace')[-500:]}")
            with suppress(OSError):
                urllib.request.urlopen(f"http://{host}/health", timeout=2).close()
                break
        judged = load_judge(
            f"openai:{folder}", base_url=f"http://{host}/v1", template="prometheus-vision"
        )
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            there = judged.grade(rows[:10], max_new_tokens=40, progress=False)
        with pytest.raises(ServerError, match="whether it continues an answer that is begun"):
            judged.grade(rows[:10], mode="score", progress=False)
    finally:
        process.kill()
        process.wait()
    here = load_judge(taught_judge, device="cpu").grade(
        rows[:10], batch_size=1, max_new_tokens=40, progress=False
    )
    assert there["failure"].isna().all() and (there["score"] == there["gold"]).mean() >= 0.8
    assert there["raw"].to_list() == here["raw"].to_list()
    assert there["n_prompt_tokens"].to_list() == here["n_prompt_tokens"].to_list()


# --- a real vLLM ------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(
    "VJUDGE_VLLM" not in os.environ, reason="VJUDGE_VLLM is the address of a vLLM that serves tiny"
)
@pytest.mark.parametrize("mode", ["feedback", "score"])
def test_a_real_vllm_judges_as_the_engine_here(mode: str) -> None:
    """200 items: at least 198 texts equal, every prompt as long, expected scores within .01."""
    address = os.environ["VJUDGE_VLLM"]
    with urllib.request.urlopen(f"{address}/models", timeout=10) as reply:
        name = json.load(reply)["data"][0]["id"]
    items = vj.load_collection("scenes", split="test", limit=200)
    here = load_judge("tiny", device="cpu").grade(items, mode=mode, progress=False)
    served = load_judge(
        f"openai:{name}", base_url=address, template="prometheus-vision", key_variable=None
    )
    there = served.grade(items, mode=mode, progress=False)
    gap = (there["expected_score"] - here["expected_score"]).abs()
    print(
        f"{mode}: {(there['raw'] == here['raw']).sum()} of 200 texts equal, expected scores within {gap.max():.2g}"
    )
    assert there["failure"].isna().all() and (there["raw"] == here["raw"]).sum() >= 198
    assert there["n_prompt_tokens"].to_list() == here["n_prompt_tokens"].to_list()
    assert gap.notna().all() and (gap[there["raw"] == here["raw"]] < 0.01).all()
