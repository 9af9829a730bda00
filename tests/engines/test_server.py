"""The server engine against real servers on loopback: the tests' own, well-behaved and not, and
transformers' own."""

from __future__ import annotations

import asyncio
import base64
import json
import math
import os
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import openai._base_client
import pandas as pd
import pytest

import vjudge as vj
from servers import (
    ChatServer,
    Reply,
    Request,
    Tokenizer,
    completion,
    judge,
    listed,
    score_of,
    vicuna,
)
from vjudge.engines import client
from vjudge.engines.client import address
from vjudge.engines.replies import at_verdict, read_reply
from vjudge.engines.server import ServerError
from vjudge.images import open_image
from vjudge.judge import Judge, load_judge
from vjudge.prompts import TEMPLATES
from vjudge.records import Item
from vjudge.runs import Run

KEY = "sk-proj-4Zt9bQ-7xWm2Kf0aLr8V_Yc3Ne5Hs1"
SCALE = {n: f" {n}" for n in range(1, 6)}
MARKED = replace(TEMPLATES["chat"], marker="[RESULT]", format="prometheus")
OWN = {"template": "prometheus-vision"}
THREE = completion("[RESULT] 3")
BARE = completion("[RESULT] 4", logprobs=False)
PROSE = completion("It is a fair answer.")
SHARES = {1: 0.3 / 0.7, **dict.fromkeys(range(2, 6), 0.1 / 0.7)}  # of `wordy`


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
    asked = {"progress": False, "batch_size": 1, "unread": "missing"} | options
    return judge.grade(rows, **asked)


def graded(
    answer: Any, rows: Any, *, tokenizer: Any = None, load: Any = None, **options: Any
) -> tuple[pd.DataFrame, list[Request]]:
    """Rows by a server that gives one answer or what a function says, and what it was asked."""
    reply = answer if callable(answer) else lambda request: Reply(answer)
    with ChatServer(reply, tokenizer=tokenizer) as server:
        return grade(ask(server, **load or {}), rows, **options), server.asked


class Once:
    """An answer that is each of `first` for one prompt's request and the judge's own afterwards."""

    def __init__(self, *first: Any) -> None:
        self.first = list(first)

    def __call__(self, request: Request) -> Reply:
        reply = self.first.pop(0) if self.first and not request.is_test else judge
        return reply if isinstance(reply, Reply) else reply(request)


def without(name: str, answer: Any) -> Any:
    """A server that turns a field down."""
    refusal = Reply({"error": {"message": f"{name} is unknown"}}, status=400)
    return lambda request: refusal if name in request.body else Reply(answer)


# --- what is asked and what comes back ------------------------------------------------------------


def test_a_whole_grade(rows: Any) -> None:
    with ChatServer(judge) as server:
        judged = ask(server)
        vj.plan(judged, rows[:20], max_new_tokens=50)
        assert not server.requests and not server.looks
        frame = judged.grade(rows[:20], progress=False)
    assert len(server.asked) == 20 and len(server.requests) == 21
    scores = {request.text: score_of(request) for request in server.asked}
    texts = [judged.render(row).replace("<image>", "") for row in rows[:20]]
    assert list(frame["id"]) == [row["id"] for row in rows[:20]]
    assert list(frame["score"]) == [scores[text] for text in texts]
    # 0.6 on the score and 0.08 on each other
    share = dict.fromkeys(SCALE, 0.08 / 0.92) | {frame["score"][0]: 0.6 / 0.92}
    assert frame["probabilities"][0] == pytest.approx(share)
    assert frame["probability_mass"].round(9).eq(0.92).all()
    assert frame["n_prompt_tokens"].eq(100).all() and frame["n_new_tokens"].eq(10).all()


def test_what_a_request_holds(rows: Any, monkeypatch: Any) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    draws = {"samples": 2, "temperature": 0.7, "top_p": 0.9, "repetition_penalty": 1.03}
    with ChatServer(judge) as server:
        grade(ask(server), rows[:1], max_new_tokens=77)
        grade(ask(server, fields={"seed": None, "reasoning_effort": "low"}), rows[:1])
        grade(ask(server), rows[:1], **draws)
    first, other, one, two = server.asked
    assert first.headers["authorization"] == f"Bearer {KEY}"
    body = dict(first.body)
    (message,) = body.pop("messages")
    expected = {"model": "judge-1", "max_tokens": 77, "temperature": 0.0}
    assert body == expected | {"logprobs": True, "top_logprobs": 20}
    assert body.items() <= server.requests[0].body.items()  # the short test has the same options
    image, text = message["content"]
    assert text["text"] == TEMPLATES["chat"].render(Item.from_row(rows[0])).parts[-1]
    shown = open_image(image["image_url"]["url"])
    assert shown.tobytes() == rows[0]["images"][0].tobytes()
    assert other.body["reasoning_effort"] == "low" and "seed" not in other.body
    assert one.body["top_p"] == 0.9 and one.body["repetition_penalty"] == 1.03
    assert one.body["seed"] != two.body["seed"] and max(one.body["seed"], two.body["seed"]) < 2**31


# --- log-probabilities ----------------------------------------------------------------------------


def test_a_server_without_log_probabilities(rows: Any) -> None:
    frame, _ = graded(BARE, rows[:2], tokenizer=Tokenizer(chatml), mode="score")
    assert frame["failure"].str.contains("no score of the rubric has a probability").all()
    frame, _ = graded(BARE, rows[:5])
    assert frame["score"].eq(4).all() and frame["expected_score"].isna().all()
    with pytest.raises(ServerError, match="unknown.*fields= .*by None leaves out"):
        graded(without("logprobs", BARE), rows[:5])
    frame, _ = graded(without("logprobs", BARE), rows[:5], load={"fields": {"logprobs": None}})
    assert frame["score"].eq(4).all()


@pytest.mark.parametrize(
    ("text", "near", "expected"),
    [
        # " 4" and "4" are one score; " four" is none; 3 is not listed and counts as 0.
        (
            "A 2. [RESULT] 4",
            {" 4": 0.5, "4": 0.2, " 5": 0.1, " 1": 0.05, " four": 0.1},
            [0.05, 0, 0, 0.7, 0.1],
        ),
        # Drawn although not among the most probable: the token's own log-probability (1e-4 here).
        ("[RESULT] 2", {" 1": 0.5, " 3": 0.25}, [0.5, 1e-4, 0.25, 0, 0]),
        ("Good. [result]: **4**", {" 4": 0.5, "4": 0.3, " 2": 0.1}, [0, 0.1, 0, 0.8, 0]),
        ("[RESULT] 2 or rather [RESULT] 4", {" 4": 0.5, " 2": 0.1}, [0, 0.1, 0, 0.5, 0]),
        ("[RESULT] of it all is 4", {" 4": 0.5}, None),
        ("[RESULT] 4 and [RESULT]", {" 4": 0.5}, None),
    ],
)
def test_the_distribution_by_hand(text: str, near: Any, expected: Any) -> None:
    _, tokens = read_reply(completion(text, alternatives=near), 0, "judge-1", "")
    logprobs = at_verdict(text, tokens, "[RESULT]", SCALE)
    if expected is None:
        assert logprobs is None
    else:
        assert logprobs is not None
        assert [math.exp(value) for value in logprobs.values()] == pytest.approx(expected)


# --- a server that shows its tokens ---------------------------------------------------------------


def wordy(tokenizer: Tokenizer, *, answer: Any = None, end: str = "[RESULT]") -> Any:
    """A judge whose distribution behind `end` is known: .3 on 1 and .1 on the other digits; else
    it writes `answer`. Behind the 1 of a scale from 1 to 10 there are .25 on 0."""
    answer = answer or completion("It is so. [RESULT] 4", alternatives={" 4": 0.6, " 1": 0.2})

    def reply(request: Request) -> Reply:
        text = tokenizer.text(request.body)
        if text.endswith(end):
            chances = {f" {n}": 0.3 if n == 1 else 0.1 for n in SCALE}
        elif text.endswith(f"{end} 1"):
            chances = {"0": 0.25}
        else:
            return Reply(answer)
        return Reply(listed(request, tokenizer, chances))

    return reply


def chatml(messages: Any, *, open: bool = False) -> str:
    text = "".join(f"<{role}>\n{text}</s>" for role, text in messages)
    return text.removesuffix("</s>") if open else f"{text}<assistant>\n"


@pytest.mark.parametrize("mode", ["feedback", "score"])
@pytest.mark.parametrize("start", ["<s>", ""])  # a vocabulary with a first token and without
def test_the_prompt_is_the_judges_own_token_for_token(
    rows: Any, capsys: Any, mode: str, start: str
) -> None:
    """Also of none, one and two pictures in one call; score mode reads the scores' tokens."""
    tokenizer = Tokenizer(lambda *turns, **how: vicuna(*turns, **how, bos=start), start=start)
    some = [{**rows[n], "images": rows[n]["images"] * n} for n in range(3)]
    frame, asked = graded(wordy(tokenizer), some, tokenizer=tokenizer, load=OWN, mode=mode)
    end = " [RESULT]" if mode == "score" else ""
    texts = [TEMPLATES["prometheus-vision"].render(Item.from_row(row)).text + end for row in some]
    assert {tokenizer.text(request.body) for request in asked} == {start + text for text in texts}
    assert frame["failure"].isna().all() and "not compared" not in capsys.readouterr().err
    if mode == "score":
        assert all(shares == pytest.approx(SHARES) for shares in frame["probabilities"])
        *_, user, begun = asked[1].body["messages"]
        assert begun["content"] == "[RESULT]" and asked[1].body["max_tokens"] == 1
        assert not user["content"][-1]["text"].endswith("[RESULT]")


@pytest.mark.parametrize(
    ("tokenizer", "mode", "reason"),
    [
        (Tokenizer(chatml), "feedback", "does not write the judge's own prompt.*conversation=None"),
        # vLLM's case of a chat template without the first token, and one that writes it twice
        (Tokenizer(lambda *turns, **how: vicuna(*turns, bos="")), "feedback", "own prompt"),
        (Tokenizer(lambda *turns, **how: vicuna(*turns, bos="<s><s>")), "feedback", "own prompt"),
        # The reply was another turn's, and expected scores were off by up to 2.9 in silence.
        (Tokenizer(vicuna, continues=False), "score", "does not continue an answer.*feedback"),
    ],
)
def test_another_prompt_than_the_judges_own_is_refused(
    rows: Any, tokenizer: Tokenizer, mode: str, reason: str
) -> None:
    answer = wordy(tokenizer)
    with pytest.raises(ServerError, match=reason):
        graded(answer, rows[:2], tokenizer=tokenizer, load=OWN, mode=mode)
    load = OWN | {"conversation": None}
    assert graded(answer, rows[:2], tokenizer=tokenizer, load=load)[0]["score"].eq(4).all()


@pytest.mark.parametrize("shown", [{"tokens": [1]}, None])  # as llama.cpp's, and nothing at all
def test_a_server_that_shows_no_tokens_has_no_score_mode(
    rows: Any, capsys: Any, monkeypatch: Any, shown: Any
) -> None:
    tokenizer = Tokenizer(vicuna) if shown else None
    monkeypatch.setattr(Tokenizer, "reply", lambda self, body: Reply(shown))
    frame, _ = graded(judge, rows[:2], tokenizer=tokenizer, load=OWN)
    assert frame["failure"].isna().all() and "not compared" in capsys.readouterr().err
    with pytest.raises(ServerError, match='score mode needs.*/tokenize.*use mode="feedback"'):
        graded(judge, rows[:2], tokenizer=tokenizer, mode="score")


@pytest.mark.parametrize(("mode", "score"), [("feedback", 10), ("score", 1)])
def test_scores_of_several_tokens_are_read_token_by_token(
    rows: Any, capsys: Any, mode: str, score: int
) -> None:
    """From 1 to 10, by hand: 10 has .3 x .25 and 1 what that leaves of .3. Without the server's
    tokens there is no distribution, and one line says so."""
    ten = {**rows[0], "descriptions": [f"Level {n}." for n in range(10)], "gold": 3.0}
    tokenizer = Tokenizer(vicuna)
    answer = wordy(tokenizer, answer=completion("It is so. [RESULT] 10"))
    frame, asked = graded(answer, [ten], tokenizer=tokenizer, load=OWN, mode=mode)
    assert frame["score"][0] == score and frame["failure"].isna().all()
    chances = [0.225, *[0.1] * 4, *[0.0] * 4, 0.075]
    expected = {n: p / sum(chances) for n, p in enumerate(chances, 1)}
    assert frame["probabilities"][0] == pytest.approx(expected, abs=1e-9)
    ends = [tokenizer.text(request.body).endswith("[RESULT] 1") for request in asked[-2:]]
    assert ends == [False, True]
    frame, _ = graded(judge, [ten, rows[1]])
    assert frame["score"].notna().all() and list(frame["expected_score"].isna()) == [True, False]


# --- closing --------------------------------------------------------------------------------------


def by_schema(request: Request) -> Reply:
    """Prose, and where a schema wants verdicts the second one that it allows."""
    form = request.body.get("response_format", {}).get("json_schema", {}).get("schema", {})
    properties = form.get("properties", {"feedback": 0})
    if "feedback" in properties:
        return Reply(PROSE)
    return Reply(completion(json.dumps({name: own["enum"][1] for name, own in properties.items()})))


def test_an_answer_without_a_verdict_is_closed_by_a_schema(rows: Any, capsys: Any) -> None:
    frame, asked = graded(by_schema, rows[:3], unread="close")
    assert frame["score"].eq(2).all() and frame["closed"].all() and frame.attrs["closed"] == 3
    assert frame["raw"].str.startswith("It is a fair").all()
    assert "3 of 3 verdicts were closed" in capsys.readouterr().err
    _, answer, last = asked[-1].body["messages"]
    assert answer["content"] == "It is a fair answer." and "JSON" in last["content"]


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (without("response_format", PROSE), "no verdict to close it with: .*response_format is"),
        (PROSE, "no verdict to close it with: Expecting value"),
    ],
)
def test_an_answer_that_cannot_be_closed_says_so(rows: Any, answer: Any, reason: str) -> None:
    frame, _ = graded(answer, rows[:1], unread="close")
    assert frame["failure"][0].startswith("no verdict marker") and not frame["closed"][0]
    (said,) = frame.attrs["unclosed"]
    assert re.search(reason, said)


@pytest.mark.parametrize(
    ("template", "tokenizer", "written"),
    [
        (MARKED, Tokenizer(chatml), "It is so."),
        # Vicuna's template writes the blank before an answer; an answer that holds it had two.
        ("prometheus-vision", Tokenizer(vicuna), " It is so."),
    ],
)
def test_an_answer_without_a_verdict_is_continued_where_that_is_possible(
    rows: Any, template: Any, tokenizer: Tokenizer, written: str
) -> None:
    """The marker stands behind the answer, and the distribution is read there."""
    answer = wordy(tokenizer, answer=completion(written))
    load = {"template": template}
    frame, asked = graded(answer, rows[:2], tokenizer=tokenizer, load=load, unread="close")
    assert frame["closed"].all() and frame["score"].eq(1).all()
    assert frame["probabilities"][0] == pytest.approx(SHARES)
    begun = asked[-1].body["messages"][-1]
    assert begun == {"role": "assistant", "content": "It is so.\n[RESULT]"}


@pytest.mark.parametrize("tokenizer", [None, Tokenizer(chatml)])
def test_several_criteria_are_closed_by_one_schema(rows: Any, tokenizer: Any) -> None:
    criteria = [
        {"name": "right", "criteria": "Is it right?", "weight": 3.0},
        {"name": "rude", "criteria": "Is it rude?", "weight": -1.0},
    ]
    row = {**rows[0], "criteria": criteria, "gold": None}
    load = {"template": "chat-json"}
    frame, _ = graded(by_schema, [row], tokenizer=tokenizer, load=load, unread="close")
    assert frame["scores"][0] == {"right": 2, "rude": 2} and frame["closed"][0]
    assert frame["score"][0] == (3 * 2 - 2) / 4


@pytest.mark.parametrize("refused", ["response_format", "nothing"])
def test_an_answer_is_held_to_its_schema_where_the_server_can(
    rows: Any, capsys: Any, refused: str
) -> None:
    answer = without(refused, completion(json.dumps({"feedback": "Fine.", "score": 4})))
    frame, asked = graded(answer, rows[:2], load={"template": "chat-json"})
    assert frame["score"].eq(4).all()
    held = "response_format" in asked[0].body
    free = "refuses a schema (response_format): answers" in capsys.readouterr().err
    assert (held, free) == (refused == "nothing", refused != "nothing")


# --- a server that misbehaves ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "reply", [Reply(b"", status=429), Reply(THREE, cut=-40), Reply(THREE, drip=0.02)]
)
def test_what_the_transport_spoils_is_asked_again(rows: Any, reply: Reply) -> None:
    """Refused for now, half an answer, and one that comes byte by byte."""
    frame, asked = graded(Once(reply, reply), rows[:3], load={"timeout": 0.6})
    assert frame["failure"].isna().all()
    assert len(asked) == 5 and asked[0].body == asked[1].body == asked[2].body


ANSWERS = {  # these are answers
    "no verdict marker": Reply(completion("I would rather not say.")),
    "cut off at the token limit": Reply(completion("", finish="length", content=None)),
    "refused: the judge": Reply(completion("", content=None, refusal="I can't judge this.")),
    "or the server's content filter": Reply(completion("It. [RESULT] 3", finish="content_filter")),
    "HTTP 400.*the image is too small": Reply({"error": "the image is too small"}, status=400),
}
GARBAGE = {  # and these are asked for again by the next call
    "not JSON as expected: <html>": Reply(b"<html>", headers={"Content-Type": "text/html"}),
    "not JSON as expected": Reply(b"[" * 100_000),  # too deep
    "no chat completion .KeyError: 'choices'": Reply({}),
    "upstream died": Reply({"error": {"message": "upstream died"}}),
    "no chat completion .TypeError": Reply({"choices": [{"message": {"content": [5]}}]}),
    "no chat completion .ValueError": Reply(THREE | {"usage": {"prompt_tokens": "x"}}),
}


def test_odd_replies_are_failures_and_no_answer_is_asked_for_again(
    rows: Any, tmp_path: Path
) -> None:
    half = Reply(completion("half a \ud83d, [RESULT] 3"))
    with ChatServer(Once(*ANSWERS.values(), *GARBAGE.values(), half)) as server:
        frame = grade(ask(server), rows[:12], out=tmp_path)
        assert len(server.asked) == 12
        again = grade(ask(server), rows[:12], out=tmp_path)
        assert len(server.asked) == 12 + len(GARBAGE) and again["score"][5:].notna().all()
    # the server is gone by now
    assert grade(ask(server), rows[:12], out=tmp_path)["raw"].equals(again["raw"])
    for part, failure in zip([*ANSWERS, *GARBAGE], frame["failure"], strict=False):
        assert re.search(part, failure)
    assert frame["score"][11] == 3 and frame["raw"][2] == "I can't judge this."


def test_a_server_that_goes_down_ends_the_call_and_loses_nothing(
    rows: Any, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setattr(client, "RETRIES", 1)
    answer = Once(*[judge] * 10, *[Reply(b"", status=502)] * 50)
    with pytest.warns(RuntimeWarning, match="8 prompts in a row got no answer.*HTTP 502"):
        frame, asked = graded(answer, rows, out=tmp_path)
    assert len(asked) == 10 + 2 * 8  # and not 2 x 50
    assert frame["score"].notna().sum() == 10 == len(Run(tmp_path).verdicts())
    assert frame["failure"][10] == "HTTP 502: , repeated up to 1 times"


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        # A byte of the header now and then held a call with a time-out of 1 s for 86 s.
        (Reply(drip=0.2), "no whole answer in time, repeated up to 1 times"),
        (Reply(b"", status=307, headers={"Location": "http://localhost:1"}), "HTTP 307"),
        (Reply(THREE | {"model": "judge-1-mini"}), "'judge-1-mini' answered, and 'judge-1' was"),
        (Reply({}, status=404), "HTTP 404.*correct base_url"),
    ],
)
def test_a_server_that_cannot_be_used_is_refused_at_the_start(
    rows: Any, reply: Reply, reason: str, monkeypatch: Any
) -> None:
    monkeypatch.setattr(client, "RETRIES", 1)
    started = time.monotonic()
    with pytest.raises(ServerError, match=f"short test request: .*{reason}"):
        graded(lambda request: reply, rows[:9], load={"timeout": 0.5})
    assert time.monotonic() - started < 5


@pytest.mark.parametrize("said", ["judge-1", "judge-1-2026-05-13", "judge-1@main", None])
def test_a_dated_state_is_the_model_that_was_asked(rows: Any, said: str) -> None:
    assert graded(THREE | {"model": said}, rows[:1])[0]["score"][0] == 3


@pytest.mark.parametrize(
    ("status", "headers"),
    [
        (403, {}),
        (503, {"Retry-After": "9000"}),
        (503, {"Retry-After": "Fri, 01 Jan 2100 00:00:00 GMT"}),
    ],
)
def test_retry_after_is_obeyed_and_where_waiting_does_not_help_the_call_ends(
    rows: Any, status: int, headers: Any
) -> None:

    def later(request: Request) -> Reply:
        soon = time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(time.time() + 2))
        return Reply(b"", status=429, headers={"Retry-After": soon})

    last = [Reply(b"", status=status, headers=headers)] * 8

    async def cell() -> Any:  # a notebook's loop is running
        return graded(Once(later, judge, *last), rows[:20])

    with pytest.warns(RuntimeWarning, match=f"HTTP {status}.*asks for what is missing"):
        frame, asked = asyncio.run(cell())
    assert list(frame["score"].notna()) == [True] + [False] * 19
    assert len(asked) == (3 if status == 403 else 10)
    assert 0.9 <= asked[1].time - asked[0].time < 5


def test_reasoning_is_kept_beside_the_feedback(rows: Any) -> None:
    thought = completion("Fine. [RESULT] 3", reasoning_content="[RESULT] 1, I first thought")
    frame, _ = graded(thought, rows[:1])
    assert frame["score"][0] == 3 and frame["reasoning"][0].endswith("I first thought")


# --- safety: the key stays on the way -------------------------------------------------------------


def test_a_key_is_nowhere_but_in_the_header(
    rows: Any, tmp_path: Path, monkeypatch: Any, capsys: Any
) -> None:
    """Whole, in parts, in capitals, backwards, in hexadecimal digits or base64."""
    monkeypatch.setenv("MY_KEY", KEY + "\n")
    coded = base64.b64encode(f"x{KEY}".encode()).decode()
    shapes = [KEY, f"{KEY[:20]} ... {KEY[20:]}", KEY.upper(), KEY[::-1], KEY.encode().hex(), coded]
    replies = [Reply(completion(f"It is {one}, they say. [RESULT] 4")) for one in shapes]
    error = {"error": {"message": f"{KEY[:15]} and then {coded}"}}
    replies += [Reply(error, status=400), Reply(f"<p>{KEY}</p>".encode()), Reply(error)]
    replies += [Reply(THREE | {"model": KEY}), Reply(error, status=403)]
    with ChatServer(Once(*replies)) as server:
        judged = ask(server, key_variable="MY_KEY")
        with pytest.warns(RuntimeWarning, match="HTTP 403") as stop:
            frame = grade(judged, rows[:12], out=tmp_path)
    assert {request.headers["authorization"] for request in server.requests} == {f"Bearer {KEY}"}
    assert list(frame["score"].notna()) == [True] * 6 + [False] * 6
    assert frame["raw"][:6].str.fullmatch(r"(?s)It is .*\[key\].* they say.*").all()
    shown = [path.read_text(encoding="utf-8") for path in tmp_path.iterdir()]
    shown += [str(stop[0].message), frame.to_csv(), repr(judged), repr(vars(judged.engine))]
    text = "".join([*shown, *capsys.readouterr()]).lower()
    for shape in shapes[2:]:
        assert not any(shape[at : at + 8].lower() in text for at in range(8, len(shape) - 9))


def test_this_machine_is_reached_without_a_proxy(rows: Any, monkeypatch: Any) -> None:
    """The proxy got the key; nothing listens at this one."""
    for variable in ("HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(variable, "http://127.0.0.1:1")
    for host in ("127.0.0.1", "localhost"):
        with ChatServer(judge) as server:
            server.url = server.url.replace("127.0.0.1", host)
            assert grade(ask(server), rows[:1])["failure"].isna().all()


@pytest.mark.parametrize(
    ("key", "options", "message"),
    [
        ("", {}, "OPENAI_API_KEY is not set"),
        ("", {"base_url": "http://127.0.0.1:1/v1", "key_variable": "MY_KEY"}, "MY_KEY is not set"),
        (KEY, {"base_url": "http://gpu-node/v1"}, "in the clear"),
        (KEY, {"base_url": "http://127.0.0.1.example.org/v1"}, "in the clear"),
        (KEY, {"base_url": "ftp://a/v1"}, "use one like"),
        (KEY, {"base_url": "a/v1"}, "use one like"),
        (KEY, {"base_url": f"https://me:{KEY}@a"}, "use one like"),
        (KEY, {"base_url": f"https://a?key={KEY}"}, "use one like"),
    ],
)
def test_keys_and_addresses(monkeypatch: Any, key: str, options: Any, message: str) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", key)
    with pytest.raises(ValueError, match=message) as refusal:
        load_judge("openai:gpt-4o", **options)
    assert KEY not in str(refusal.value)
    assert address("http://gpu-node:8000/v1/", None) == ("http://gpu-node:8000/v1", "")


# --- other people's servers -----------------------------------------------------------------------


def test_transformers_own_server_judges_as_the_engine_here(tmp_path: Path) -> None:
    """The same checkpoint and wording behind a server and here: the same texts."""
    pytest.importorskip("fastapi")
    pytest.importorskip("uvicorn")
    from transformers import LlavaProcessor

    local: Any = load_judge("tiny", device="cpu")
    model = local.engine.model
    folder = Path(shutil.copytree(model.path, tmp_path / "judge"))
    LlavaProcessor(
        model.image_processor,
        model.tokenizer,
        chat_template=(folder / "chat_template.jinja").read_text(),
        patch_size=model.model.config.vision_config.patch_size,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
    ).save_pretrained(folder)
    (folder / "preprocessor_config.json").unlink(missing_ok=True)  # is in processor_config.json now
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    start = "from transformers.cli.transformers import main; main()"
    options = f"--port {port} --host 127.0.0.1 --device cpu --dtype float32".split()
    command = [sys.executable, "-c", start, "serve", str(folder), *options]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    log = tmp_path / "log"
    with log.open("wb") as stream:
        process = subprocess.Popen(command, stdout=stream, stderr=stream, env=environment)
    try:
        items = vj.load_collection("scenes", split="test", limit=6)
        for _ in range(600):
            time.sleep(0.2)
            if process.poll() is not None:
                pytest.skip(f"transformers serve ended: {log.read_text(errors='replace')[-500:]}")
            with suppress(OSError):
                urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=2).close()
                break
        judged = load_judge(f"openai:{folder}", base_url=f"http://127.0.0.1:{port}/v1", **OWN)
        there = judged.grade(items, progress=False)
        with pytest.raises(ServerError, match="score mode needs"):
            judged.grade(items, mode="score", progress=False)
    finally:
        process.kill()
        process.wait()
    here = grade(local, items)
    assert there["failure"].isna().all() and here["score"].notna().all()
    assert there["raw"].to_list() == here["raw"].to_list()
    assert there["n_prompt_tokens"].to_list() == here["n_prompt_tokens"].to_list()


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
    served = load_judge(f"openai:{name}", base_url=address, key_variable=None, **OWN)
    there = served.grade(items, mode=mode, progress=False)
    gap = (there["expected_score"] - here["expected_score"]).abs()
    same = there["raw"] == here["raw"]
    print(f"{mode}: {same.sum()} of 200 texts equal, expected scores within {gap.max():.2g}")
    assert there["failure"].isna().all() and same.sum() >= 198
    assert there["n_prompt_tokens"].to_list() == here["n_prompt_tokens"].to_list()
    assert gap.notna().all() and (gap[same] < 0.01).all()
