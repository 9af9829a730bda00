"""The server engine against real servers on loopback: the tests' own, well-behaved and not, and
transformers' own."""

import asyncio
import base64
import gzip
import io
import json
import math
import os
import re
import time
import tracemalloc
from dataclasses import replace

import openai._base_client
import pandas as pd
import pytest
from PIL import Image

import vjudge as vj
from originals import CRITERIA, FIVE, noise, write_llava15
from servers import (
    ChatServer,
    Reply,
    Tokenizer,
    completion,
    free_port,
    judge,
    listed,
    parts_of,
    process,
    vicuna,
)
from vjudge import models
from vjudge.engines import client
from vjudge.engines.client import address
from vjudge.engines.replies import at_verdict, read_reply
from vjudge.engines.server import ServerError
from vjudge.images import open_image, pixel_digest
from vjudge.judging.loading import load_judge
from vjudge.judging.runs import Run
from vjudge.prompts import TEMPLATES
from vjudge.records import Item

KEY = "sk-proj-4Zt9bQ-7xWm2Kf0aLr8V_Yc3Ne5Hs1"
MARKED = replace(TEMPLATES["chat"], marker="[RESULT]", format="prometheus")
OWN = {"template": "prometheus-vision"}
JSON = {"template": "chat-json"}
THREE = completion("[RESULT] 3")
BARE = completion("[RESULT] 4", logprobs=False)
PROSE = completion("It is a fair answer.")
SHARES = {"1": 0.3 / 0.7, **dict.fromkeys("2345", 0.1 / 0.7)}  # of `wordy`


@pytest.fixture(autouse=True)
def surroundings(monkeypatch):
    """No key or proxy from outside, and pauses of a hundredth of their length."""
    for name in list(os.environ):
        if name.lower().endswith("_proxy") or name.startswith("OPENAI_"):
            monkeypatch.delenv(name)
    monkeypatch.setattr(openai._base_client, "INITIAL_RETRY_DELAY", 0.005)


def ask(server, **options):
    return load_judge("openai:judge-1", base_url=server.url, **{"template": MARKED} | options)


def grade(judge, rows, **options):
    """One request after the other."""
    return judge.grade(rows, **{"batch_size": 1, "unread": "missing", "progress": False} | options)


def graded(answer, rows, *, tokenizer=None, load=None, **options):
    """Rows by a server that gives one answer or what a function says, and what it was asked."""
    fixed = answer if isinstance(answer, Reply) else Reply(answer)
    reply = answer if callable(answer) else lambda request: fixed
    with ChatServer(reply, tokenizer=tokenizer) as server:
        return grade(ask(server, **load or {}), rows, **options), server.asked


def once(*first):
    """An answer that is each of `first` for one prompt's request and the judge's own afterwards."""
    left = list(first)

    def reply(request):
        own = left.pop(0) if left and not request.is_test else judge
        return own if isinstance(own, Reply) else own(request)

    return reply


def without(name, answer):
    """A server that turns a field down."""
    refusal = Reply({"error": {"message": f"{name} is unknown"}}, status=400)
    return lambda request: refusal if name in request.body else Reply(answer)


def wordy(tokenizer, answer="It is so. [RESULT] 4"):
    """A judge whose distribution behind "[RESULT]" is known: .3 on 1 and .1 on the other digits;
    behind the 1 of a scale from 1 to 10 there are .25 on 0. Elsewhere it writes `answer`."""
    written = completion(answer)

    def reply(request):
        text = tokenizer.text(request.body)
        if text.endswith("[RESULT]"):
            chances = {f" {n}": 0.3 if n == 1 else 0.1 for n in FIVE}
        elif text.endswith("[RESULT] 1"):
            chances = {"0": 0.25}
        else:
            return Reply(written)
        return Reply(listed(request, tokenizer, chances))

    return reply


def chatml(messages, *, open=False):
    text = "".join(f"<{role}>\n{text}</s>" for role, text in messages)
    return text.removesuffix("</s>") if open else f"{text}<assistant>\n"


def by_schema(request):
    """Prose, and where a schema wants verdicts the second one that it allows."""
    form = request.body.get("response_format", {}).get("json_schema", {}).get("schema", {})
    properties = form.get("properties", {"feedback": 0})
    if "feedback" in properties:
        return Reply(PROSE)
    return Reply(completion(json.dumps({name: own["enum"][1] for name, own in properties.items()})))


# --- what is asked and what comes back ------------------------------------------------------------


def test_a_whole_grade(rows):
    with ChatServer(judge) as server:
        judged = ask(server)
        vj.plan(judged, rows[:20], max_new_tokens=50)
        assert not server.requests
        frame = judged.grade(rows[:20])
    assert len(server.asked) == 20 and len(server.requests) == 21
    texts = [judged.render(row).replace("<image>", "") for row in rows[:20]]
    assert {request.text for request in server.asked} == set(texts)
    assert list(frame["score"]) == [1 + len(text) % 5 for text in texts]
    # 0.6 on the score and 0.08 on each other
    share = dict.fromkeys("12345", 0.08 / 0.92) | {f"{frame['score'][0]:.0f}": 0.6 / 0.92}
    assert frame["probabilities"][0] == pytest.approx(share)
    assert frame["probability_mass"].round(9).eq(0.92).all()
    assert frame["n_prompt_tokens"].eq(100).all() and frame["n_new_tokens"].eq(10).all()


def test_what_a_request_holds(rows, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    draws = {"samples": 2, "temperature": 0.7, "top_p": 0.9, "repetition_penalty": 1.03}
    with ChatServer(judge) as server:
        grade(ask(server), rows[:1], max_new_tokens=77)
        grade(ask(server, fields={"seed": None, "reasoning_effort": "low"}), rows[:1], **draws)
        grade(ask(server), rows[:1], **draws)
    first, other, _, one, two = server.asked
    assert first.headers["authorization"] == f"Bearer {KEY}"
    body = {name: value for name, value in first.body.items() if name != "messages"}
    expected = {"model": "judge-1", "max_tokens": 77, "temperature": 0.0}
    assert body == expected | {"logprobs": True, "top_logprobs": 20}
    assert body.items() <= server.requests[0].body.items()  # the short test has the same options
    assert first.text == TEMPLATES["chat"].render(Item.from_row(rows[0])).parts[-1]
    assert open_image(first.pictures[0]).tobytes() == rows[0]["images"][0].tobytes()
    assert other.body["reasoning_effort"] == "low" and "seed" not in other.body
    assert one.body["top_p"] == 0.9 and one.body["repetition_penalty"] == 1.03
    assert one.body["seed"] != two.body["seed"] and max(one.body["seed"], two.body["seed"]) < 2**31


def file_of(image, format, **options):
    buffer = io.BytesIO()
    image.save(buffer, format, **options)
    return buffer.getvalue()


def picture_parts(request):
    turns = map(parts_of, request.body["messages"])
    return [part for turn in turns for part in turn if "image_url" in part]


def sent(request):
    (uri,) = request.pictures
    head, _, data = uri.partition(";base64,")
    return head.removeprefix("data:image/"), base64.b64decode(data)


def test_a_picture_goes_as_the_bytes_it_came_in(rows, tmp_path):
    """A JPEG of 1.9 MB became 22 MB of base64."""
    photo = noise(300, 200)
    files = {name: file_of(photo, name) for name in ("jpeg", "png", "webp")}
    turned = Image.Exif()
    turned[274] = 6
    other = [
        file_of(photo, "JPEG", exif=turned),
        file_of(photo.convert("CMYK"), "JPEG"),
        file_of(photo, "BMP"),
        file_of(photo.convert("LA"), "PNG"),
    ]
    some = []
    for n, file in enumerate([*files.values(), *other]):
        some.append({**rows[0], "id": str(n), "images": [{"bytes": file}]})
    frame, asked = graded(judge, some)
    assert [sent(request) for request in asked[:3]] == list(files.items())
    for request, file in zip(asked[3:], other, strict=True):
        name, data = sent(request)
        assert name == "png" and pixel_digest(open_image(data)) == pixel_digest(open_image(file))
    assert "remarks" not in frame

    # re-encoded where an option says so, and counted
    load = {"image_format": "jpeg"}
    frame, asked = graded(judge, some, load=load, out=tmp_path)
    assert {sent(request)[0] for request in asked} == {"jpeg"}
    assert sent(asked[0])[1] == files["jpeg"] and frame["remarks"].isna()[0]
    assert frame.attrs["remarks"] == {"a picture was re-encoded as jpeg": 6}
    assert Run(tmp_path).manifest["request"]["image_format"] == "jpeg"
    for limit, change in ((70_000, ""), (4_000, " and reduced")):
        frame, asked = graded(judge, some[1:2], load={"image_max_bytes": limit})
        assert len(sent(asked[0])[1]) <= limit
        assert frame["remarks"][0] == f"a picture was re-encoded as jpeg{change}"
    frame, _ = graded(judge, some[:1], load={"image_max_bytes": 50})
    assert "more than 50 bytes at any size" in frame["failure"][0]


@pytest.mark.parametrize(
    "option",
    [
        {"image_format": "tiff"},
        {"image_max_bytes": 0},
        {"fields": {"top_k": math.nan}},
        {"fields": {"stop": {"a"}}},
        {"fields": {"user": "\ud800"}},
    ],
)
def test_options_that_no_request_can_hold_are_refused(option):
    """Fields that are no JSON were said to be the server's answer that is none."""
    with pytest.raises(ValueError, match=f"{next(iter(option))}=.*use"):
        load_judge("openai:judge-1", base_url="http://localhost/v1", **option)


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
        ("[RESULT] 4 and [RESULT]", {" 4": 0.5}, None),
    ],
)
def test_the_distribution_by_hand(text, near, expected):
    _, tokens = read_reply(completion(text, alternatives=near), 0, "judge-1", "")
    logprobs = at_verdict(text, tokens, "[RESULT]", FIVE)
    chances = logprobs and [math.exp(value) for value in logprobs.values()]
    assert chances == (expected and pytest.approx(expected))


FINE = completion('{"feedback": "Fine.", "score": 4}')
THOUGHT = completion("Fine. [RESULT] 3", reasoning_content="[RESULT] 1, I first thought")
CLOSE = {"unread": "close"}
UNCLOSED = "the server gave no verdict to close it with: "


@pytest.mark.parametrize(
    ("answer", "load", "options", "columns", "said"),
    [
        (BARE, {}, {}, {"score": 4, "expected_score": None}, ""),
        (BARE, OWN, {}, {"score": 4}, "not compared with the judge's own"),  # it shows no tokens
        (
            BARE,
            OWN | {"conversation": None},
            {},
            {"score": 4},
            r"^judge-1 is asked at http://127\S+\n1 .*no log-probabilities\n *{}$",
        ),
        (without("logprobs", BARE), {"fields": {"logprobs": None}}, {}, {"score": 4}, ""),
        (THREE | {"model": "judge-1-2026-05-13"}, {}, {}, {"score": 3}, ""),
        (THREE | {"model": "judge-1@main"}, {}, {}, {"score": 3}, ""),
        (THREE | {"model": None}, {}, {}, {"score": 3}, ""),
        (THOUGHT, {}, {}, {"score": 3, "reasoning": "[RESULT] 1, I first thought"}, ""),
        (FINE, JSON, {}, {"score": 4}, ""),  # held to a schema where the server can
        (without("response_format", FINE), JSON, {}, {"score": 4}, "refuses a schema"),
        (PROSE, {}, CLOSE, {"score": None, "closed": False}, f"{UNCLOSED}no verdict in it"),
        (without("response_format", PROSE), {}, CLOSE, {"score": None}, f"{UNCLOSED}.*is unknown"),
    ],
)
def test_what_an_answer_gives(rows, capsys, answer, load, options, columns, said):
    frame, asked = graded(answer, rows[:1], load=load, **options)
    for name, value in columns.items():
        own = frame[name][0]
        assert own == value or (value is None and pd.isna(own))
    assert re.search(said, f"{capsys.readouterr().err} {frame.attrs['unclosed']}")
    assert ("response_format" in asked[0].body) == (load is JSON and not said)


# --- field by field -------------------------------------------------------------------------------


def changed(text="It is so. [RESULT] 4", *, message=None, **choice):
    """A completion whose message and choice have other fields."""
    reply = completion(text)
    reply["choices"][0] |= choice
    reply["choices"][0]["message"] |= message or {}
    return reply


def logprobs(change, at=-1):
    """A completion whose last token's entry, or another one's, is changed."""
    reply = completion("It is so. [RESULT] 4", alternatives={" 4": 0.5, " 2": 0.25})
    reply["choices"][0]["logprobs"]["content"][at] |= change
    return reply


ENDED = "stop STOP end_turn Eos stop_sequence None null".split()
NOT_ENDED = (
    "MAX_TOKENS LENGTH length SAFETY network_error model_context_window_exceeded tool_calls"
    " insufficient_system_resource sensitive model_length RECITATION eos_token x"
).split()


@pytest.mark.parametrize("reason", [*ENDED, None, *NOT_ENDED, 5, ["stop"], {}, "\ud83d\n" * 99])
def test_only_what_ended_by_itself_is_an_answer(rows, reason):
    """ "[RESULT] 1" cut from 10 was a whole answer with score 1."""
    frame, _ = graded(changed("[RESULT] 1", finish_reason=reason), rows[:1])
    if reason is None or reason in ENDED:
        assert frame["score"][0] == 1 and frame["failure"][0] is None
        return
    failure = frame["failure"][0]
    assert pd.isna(frame["score"][0]) and pd.isna(frame["expected_score"][0])
    if reason in ("LENGTH", "length"):
        assert failure == "cut off at the token limit"
    else:
        assert failure == f"ended by {' '.join(str(reason)[:80].split())}".replace("\ud83d", "?")
        frame.to_csv(io.StringIO())


def test_what_was_cut_off_is_closed_and_what_was_stopped_is_not(rows):
    for reason in ("length", "MAX_TOKENS", "model_length"):
        cut = changed("It", finish_reason=reason)
        closing = completion('{"verdict": 5}')
        reply = lambda request: Reply(closing if "response_format" in request.body else cut)  # noqa: E731, B023
        frame, _ = graded(reply, rows[:1], unread="close")
        assert frame["score"][0] == 5 and frame["closed"][0]
    for reason in ("SAFETY", "network_error", "content_filter"):
        frame, asked = graded(changed("It", finish_reason=reason), rows[:1], unread="close")
        assert len(asked) == 1 and frame["score"].isna().all()


THOUGHTS = {"type": "thinking", "thinking": [{"type": "text", "text": "Is it 2?"}]}
TEXTS = [{"type": "text", "text": "It is so. "}, {"type": "text", "text": "[RESULT] 4"}]
NUMBERS = [-1, 2**63, 10**400, 1.5, True, "x", [1], math.nan, math.inf]


@pytest.mark.parametrize(
    ("answer", "columns", "remark"),
    [
        # content as a list of parts, as Mistral gives it
        (changed(message={"content": [THOUGHTS, *TEXTS]}), {"reasoning": "Is it 2?"}, None),
        (changed(message={"content": ["[RESULT]", " 4"]}), {"reasoning": None}, None),
        (changed(message={"content": [*TEXTS, 5, {"type": "image"}]}), {}, "a part of content is"),
        (changed(message={"reasoning_content": [THOUGHTS]}), {"reasoning": "Is it 2?"}, None),
        (changed(message={"reasoning": 5}), {"reasoning": None}, "a part of reasoning is no text"),
        *[
            (THREE | {"usage": {"prompt_tokens": n}}, {"score": 3}, "usage.prompt_tokens is no count")
            for n in NUMBERS
        ],
        (THREE | {"usage": "free"}, {"score": 3, "n_new_tokens": 0}, "usage.completion_tokens is no"),
        (THREE | {"model": 5}, {"score": 3}, "model is no text"),
        (changed(logprobs=[5]), {"expected_score": None}, "has no log-prob"),
        (changed(logprobs={"content": [{"logprob": 0.0}]}), {"expected_score": None}, "has no log-"),
        # an entry that is unsound matters where the verdict was written, and nowhere else
        (logprobs({"top_logprobs": None}, at=0), {"expected_score": (2 + 2 * 4) / 3}, None),
        (logprobs({"top_logprobs": None}), {"expected_score": None}, "no distribution: the log-"),
        (logprobs({"top_logprobs": []}), {"expected_score": None}, "no distribution"),
        (logprobs({"top_logprobs": [{"token": " 4"}]}), {"expected_score": None}, "no distribution"),
        *[
            (logprobs({"logprob": value}), {"expected_score": None}, "no distribution")
            for value in (None, math.nan, math.inf, 5.0, "x", True, -(10**400), [])
        ],
    ],
)  # fmt: skip
def test_what_is_unsound_costs_its_field(rows, tmp_path, answer, columns, remark):
    """The verdict stands, is recorded and not asked for again."""
    body = Reply(json.dumps(answer).encode())  # NaN and Infinity, too
    with ChatServer(lambda request: body) as server:
        frame = grade(ask(server), rows[:2], out=tmp_path)
    frame = grade(ask(server), rows[:2], out=tmp_path)
    for name, value in ({"score": 4} | columns).items():
        own = frame[name][0] if name in frame else None
        assert own == pytest.approx(value) if value is not None else pd.isna(own)
    remarks = frame.attrs["remarks"]
    assert not remarks if remark is None else remark in frame["remarks"][0]
    assert sum(remarks.values()) == (0 if remark is None else 2)


@pytest.mark.parametrize("body", [b"[" * 100_000, b"<html>", b"{}", b'{"choices": []}'])
def test_a_closing_that_is_no_reply_costs_the_closing_alone(rows, tmp_path, body):
    """The answer was thrown away with it, and paid for again by each call."""
    reply = lambda request: Reply(body if "response_format" in request.body else PROSE)  # noqa: E731
    with ChatServer(reply) as server:
        for _ in range(2):
            frame = grade(ask(server), rows[:9], unread="close", out=tmp_path)
    assert len(server.asked) == 18 and frame["raw"].eq("It is a fair answer.").all()
    assert sum(frame.attrs["unclosed"].values()) == 9


def test_an_answer_without_a_text_is_recorded_as_cut_off(rows, tmp_path):
    """It was asked for again by each call, and ended the run after eight."""
    silent = changed(message={"reasoning_content": "Hm"})
    del silent["choices"][0]["message"]["content"]
    with ChatServer(lambda request: Reply(silent)) as server:
        for _ in range(2):
            frame = grade(ask(server), rows[:9], out=tmp_path)
    assert len(server.asked) == 9 and frame["failure"].str.startswith("cut off").all()
    assert frame["reasoning"].eq("Hm").all()


def thinking(thought, answer, *, near, listed=True):
    """A completion of an answer alone, and the tokens of thought and answer, as SGLang has them."""
    whole = completion(f"{thought}</think>{answer}", alternatives=near)
    whole["choices"][0]["message"]["content"] = answer
    tokens = whole["choices"][0]["logprobs"]["content"]
    if not listed:
        del tokens[-4:]
    tokens.append({"token": "<|im_end|>", "logprob": 0.0, "top_logprobs": [tokens[0]]})
    return whole


@pytest.mark.parametrize("thought", ["A [RESULT] 2 it is, [RESULT] 2", "[RESULT] 4", "4", ""])
def test_a_distribution_is_that_of_the_answer_and_not_of_the_thinking(rows, thought):
    """It was 2.0 with a mass of 1 where the thinking quoted 2 and the answer said 4."""
    near = {" 4": 0.6, " 5": 0.2}
    frame, _ = graded(thinking(thought, "Good. [RESULT] 4", near=near), rows[:1])
    assert frame["expected_score"][0] == pytest.approx(4.25) and "remarks" not in frame
    answer = thinking(
        "A [RESULT] 4" if thought else "", "Good. [RESULT] 4", near=near, listed=False
    )
    frame, _ = graded(answer, rows[:1])
    assert frame["score"][0] == 4 and pd.isna(frame["expected_score"][0])
    assert "no distribution" in frame["remarks"][0]
    # the same of two responses
    pair = {**rows[0], "response_a": "x", "response_b": "y"}
    load = {"template": "prometheus-2-relative"}
    answer = thinking("[RESULT] A", "B is better. [RESULT] B", near=None)
    answer["choices"][0]["logprobs"]["content"][-2]["top_logprobs"] = [
        {"token": " A", "logprob": math.log(0.2)}
    ]
    answer["choices"][0]["logprobs"]["content"][-2]["logprob"] = math.log(0.6)
    with ChatServer(lambda request: Reply(answer)) as server:
        frame = ask(server, **load).compare([pair], orders="one", progress=False)
    assert frame["probability_a"][0] == pytest.approx(0.25)
    answer["usage"]["prompt_tokens"] = 2**63
    with ChatServer(lambda request: Reply(answer | {"model": "judge-1@main"})) as server:
        frame = ask(server, **load).compare([pair], progress=False)
    assert frame["remarks"][0] == "usage.prompt_tokens is no count"
    assert frame["served_model"][0] == "judge-1@main"


def test_characters_of_several_tokens_behind_a_verdict():
    """The check mark is two tokens, whose texts are no characters; bytes tell them."""
    reply = completion("[RESULT] 4", alternatives={" 4": 0.9, " 3": 0.1})
    reply["choices"][0]["message"]["content"] += " \u2705"
    for part in (b" \xe2\x9c", b"\x85"):
        entry = {"token": "\ufffd", "logprob": 0.0, "bytes": list(part)}
        reply["choices"][0]["logprobs"]["content"].append(entry)
    answer, tokens = read_reply(reply, 0, "judge-1", "")
    assert math.exp(at_verdict(answer.text, tokens, "[RESULT]", FIVE)[3]) == pytest.approx(0.1)


def test_the_model_that_answered_is_expected_and_recorded(rows, tmp_path, capsys):
    """Of Azure's deployments and routers, 4 of 4 were refused, and nothing named a remedy."""
    names = ["gpt-4o-2024-05-13", "gpt-4o-2024-05-13", "gpt-4o-2024-11-20"]
    with ChatServer(once(*[Reply(THREE | {"model": name}) for name in names])) as server:
        server.reply = lambda request, own=server.reply: (
            Reply(THREE | {"model": "gpt-4o"}) if request.is_test else own(request)
        )
        with pytest.raises(ServerError, match="load the judge with served_model='gpt-4o'"):
            grade(ask(server), rows[:3])
        frame = grade(ask(server, served_model="gpt-4o"), rows[:3], out=tmp_path)
    assert list(frame["served_model"]) == names
    moved = "the model's name moved: gpt-4o-2024-05-13 (2), gpt-4o-2024-11-20 (1)"
    assert moved in capsys.readouterr().err
    manifest = Run(tmp_path).manifest
    assert manifest["model"] == "judge-1" and manifest["request"]["served_model"] == "gpt-4o"
    frame = grade(ask(server, served_model="gpt-4o"), rows[:3], out=tmp_path)
    assert list(frame["served_model"]) == names and moved in capsys.readouterr().err


def test_a_verdict_is_on_the_disk_as_soon_as_it_arrives(rows, tmp_path):
    """Of 20,000 rows the first one was there after 8 seconds and 688 answers."""
    seen = []

    def reply(request):
        file = tmp_path / "verdicts.jsonl"
        seen.append(len(file.read_bytes().splitlines()) if file.exists() else 0)
        return Reply(THREE)

    many = [{**rows[0], "id": str(n)} for n in range(200)]
    with ChatServer(reply) as server:
        grade(ask(server), many, out=tmp_path, batch_size=2)
    assert len(seen) == 201
    assert all(n_asked - n_saved < 8 for n_asked, n_saved in enumerate(seen[1:]))


# --- a server that shows its tokens ---------------------------------------------------------------


@pytest.mark.parametrize("mode", ["feedback", "score"])
@pytest.mark.parametrize("start", ["<s>", ""])  # a vocabulary with a first token and without
def test_the_prompt_is_the_judges_own_token_for_token(rows, capsys, mode, start):
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


class Silent(Tokenizer):
    """Shows no length of the context, as llama.cpp."""

    def reply(self, body):
        return Reply({"tokens": [1]})


OTHERS = {  # servers that write another prompt than the judge's own
    "chatml": Tokenizer(chatml),
    # vLLM's case of a chat template without the first token, and one that writes it twice
    "unbegun": Tokenizer(lambda *turns, **how: vicuna(*turns, bos="")),
    "begun twice": Tokenizer(lambda *turns, **how: vicuna(*turns, bos="<s><s>")),
    # The reply was another turn's, and expected scores were off by up to 2.9 in silence.
    "ends turns": Tokenizer(vicuna, continues=False),
}
SCORELESS = 'score mode needs.*/tokenize.*use mode="feedback"'


@pytest.mark.parametrize(
    ("reply", "tokenizer", "mode", "reason"),
    [
        (judge, OTHERS["chatml"], "feedback", "write the judge's own prompt.*conversation=None"),
        (judge, OTHERS["unbegun"], "feedback", "own prompt"),
        (judge, OTHERS["begun twice"], "feedback", "own prompt"),
        (judge, OTHERS["ends turns"], "score", "does not continue an answer.*feedback"),
        (judge, None, "score", SCORELESS),
        (judge, Silent(vicuna), "score", SCORELESS),
        (without("logprobs", BARE), None, "feedback", "short test.*unknown.*by None leaves out"),
        # A byte of the header now and then held a call with a time-out of 1 s for 86 s.
        (Reply(drip=0.2), None, "feedback", "no whole answer in time, repeated up to 1 times"),
        (Reply(b"", 307, {"Location": "http://localhost:1"}), None, "feedback", "test.*HTTP 307"),
        (THREE | {"model": "judge-2"}, None, "feedback", "'judge-2' answered, and 'judge-1' was"),
        (Reply({}, status=404), None, "feedback", "short test.*HTTP 404.*correct base_url"),
    ],
)
def test_a_server_that_cannot_be_used_is_refused_at_the_start(
    rows, reply, tokenizer, mode, reason, monkeypatch
):
    monkeypatch.setattr(client, "RETRIES", 1)
    load = OWN | {"timeout": 0.5 if isinstance(reply, Reply) else 60}
    started = time.monotonic()
    with pytest.raises(ServerError, match=reason):
        graded(reply, rows[:2], tokenizer=tokenizer, load=load, mode=mode)
    assert time.monotonic() - started < 20


@pytest.mark.parametrize(("mode", "score"), [("feedback", 10), ("score", 1)])
def test_scores_of_several_tokens_are_read_token_by_token(rows, mode, score):
    """From 1 to 10, by hand: 10 has .3 x .25 and 1 what that leaves of .3. Without the server's
    tokens there is no distribution."""
    ten = {**rows[0], "descriptions": [f"Level {n}." for n in range(10)], "gold": 3.0}
    tokenizer = Tokenizer(vicuna)
    answer = wordy(tokenizer, "It is so. [RESULT] 10")
    frame, asked = graded(answer, [ten], tokenizer=tokenizer, load=OWN, mode=mode)
    assert frame["score"][0] == score and frame["failure"].isna().all()
    chances = [0.225, *[0.1] * 4, *[0.0] * 4, 0.075]
    expected = {str(n): p / sum(chances) for n, p in enumerate(chances, 1)}
    assert frame["probabilities"][0] == pytest.approx(expected, abs=1e-9)
    ends = [tokenizer.text(request.body).endswith("[RESULT] 1") for request in asked[-2:]]
    assert ends == [True, False]
    if mode == "feedback":  # behind emphasis no token of the scale stands
        bold = wordy(tokenizer, "It is so. [RESULT] **10**")
        frame, _ = graded(bold, [ten], tokenizer=tokenizer, load=OWN)
        assert frame["score"][0] == 10 and frame["probabilities"].isna().all()
        assert frame["remarks"][0].startswith("no distribution")
    frame, _ = graded(judge, [ten, rows[1]])
    assert frame["score"].notna().all() and list(frame["expected_score"].isna()) == [True, False]


# --- closing --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("template", "tokenizer", "answer", "score"),
    [
        (MARKED, None, "It is a fair answer.", 2),
        (MARKED, OTHERS["chatml"], "It is so.", 1),
        # Vicuna's template writes the blank before an answer; an answer that holds it had two.
        ("prometheus-vision", Tokenizer(vicuna), " It is so.", 1),
    ],
)
def test_an_answer_without_a_verdict_is_closed(rows, capsys, template, tokenizer, answer, score):
    """By a schema, or where the server continues it: the distribution is read behind the marker."""
    reply = wordy(tokenizer, answer) if tokenizer else by_schema
    load = {"template": template}
    frame, asked = graded(reply, rows[:2], tokenizer=tokenizer, load=load, unread="close")
    assert frame["closed"].all() and frame["score"].eq(score).all() and frame.attrs["closed"] == 2
    assert frame["raw"].eq(answer).all()
    assert "2 of 2 verdicts were closed" in capsys.readouterr().err
    *_, written, last = asked[-1].body["messages"]
    if tokenizer:
        assert last == {"role": "assistant", "content": "It is so.\n[RESULT]"}
        assert frame["probabilities"][0] == pytest.approx(SHARES)
    else:
        assert written["content"] == answer and "JSON" in last["content"]


@pytest.mark.parametrize(
    ("reply", "score"),
    [
        ('```json\n{"verdict": 4}\n```', 4),
        ('My verdict: {"verdict": "4"}.', 4),
        ('{"verdict": 4.0}', 4),
        ('{"score": "4/5"}', 4),
        ('{"verdict": 6}', None),
        ('{"verdict": [4]}', None),
        ('{"verdict": 4} or {"verdict": 5}', None),
        ('{"verdict": NaN}', None),
        ("[" * 100_000, None),
        ('{"verdict": ' * 100_000, None),
        ("4", None),
        (completion('{"verdict": 4}', finish="length"), None),
        (completion("", content=None), None),
        (completion("", content=None, refusal="No."), None),
    ],
)
def test_a_closing_that_no_schema_holds_is_read_or_said(rows, tmp_path, reply, score):
    """100,000 brackets were a RecursionError in each call."""
    closing = reply
    if isinstance(reply, str):  # each word has an entry among log-probabilities
        closing = completion(reply, logprobs=len(reply) < 1_000)
    asked_to_close = lambda request: "response_format" in request.body  # noqa: E731
    answer = lambda request: Reply(closing if asked_to_close(request) else PROSE)  # noqa: E731
    frame, _ = graded(answer, rows[:2], unread="close", out=tmp_path)
    assert frame["closed"].eq(score is not None).all() and len(Run(tmp_path).verdicts()) == 2
    assert frame["score"].eq(score).all() if score else frame["score"].isna().all()
    assert sum(frame.attrs["unclosed"].values()) == (0 if score else 2)


@pytest.mark.parametrize("value", [math.nan, None, math.inf, 3.0, "x"])
@pytest.mark.parametrize("mode", ["score", "feedback"])
def test_unsound_log_probabilities_make_no_verdict(rows, mode, value):
    """NaN made score 1 of a closing."""
    tokenizer = Tokenizer(vicuna)
    read = wordy(tokenizer, " It is so.")

    def reply(request):
        answer = read(request).body
        if "logprob_token_ids" in request.body and "[RESULT]" in tokenizer.text(request.body)[-9:]:
            answer["choices"][0]["logprobs"]["content"][0]["top_logprobs"][1]["logprob"] = value
        return Reply(json.dumps(answer).encode())

    frame, _ = graded(reply, rows[:1], tokenizer=tokenizer, load=OWN, mode=mode, unread="close")
    assert frame["score"].isna().all() and not frame["closed"].any()
    assert frame["failure"].notna().all() and frame["expected_score"].isna().all()


@pytest.mark.parametrize("server", ["keeps", "forgets", "fails", "ignores", "refuses"])
def test_a_picture_is_not_sent_twice_where_the_server_keeps_it(rows, monkeypatch, server):
    """vLLM keeps it by its name; one that answers without the picture is not believed."""
    tokenizer = Tokenizer(vicuna)
    read = wordy(tokenizer, " It is so.")

    def reply(request):
        (picture,) = picture_parts(request)
        named = picture["image_url"] is None
        if (server == "refuses" and "uuid" in picture) or (server == "forgets" and named):
            return Reply({"error": {"message": "uuid: unknown"}}, status=400)
        if server == "fails" and named:
            return Reply({}, status=500)
        answer = read(request)
        n_tokens = len(tokenizer.ids(tokenizer.text(request.body)))
        n_tokens -= 4 * (named and server == "ignores")  # those of the picture
        n_written = len(tokenizer.ids(" It is so.")) + 1
        answer.body["usage"] = {"prompt_tokens": n_tokens, "completion_tokens": n_written}
        return answer

    frame, asked = graded(reply, rows[:3], tokenizer=tokenizer, load=OWN, unread="close")
    assert frame["closed"].all() and frame["score"].eq(1).all() and "remarks" not in frame
    pictures = [request.pictures[0].startswith("data:") for request in asked]
    names = [picture_parts(request)[0].get("uuid") for request in asked]
    assert bool(names[0]) is (server != "refuses")
    if server == "keeps":
        assert pictures == [True, False] * 3 and names[0] == names[1] != names[2]
    elif server == "refuses":
        assert pictures == [True] * 6
    else:
        assert pictures == [True, False, True] + [True] * 4


@pytest.mark.parametrize("mode", ["score", "feedback"])
@pytest.mark.parametrize(
    ("change", "failure"),
    [
        ({"finish_reason": "SAFETY"}, "ended by SAFETY"),
        ({"finish_reason": "content_filter"}, "refused"),
        ({"finish_reason": "stop", "message": {"role": "assistant"}}, None),  # an end is no text
    ],
)
def test_a_distribution_that_the_server_stopped_makes_no_verdict(rows, mode, change, failure):
    tokenizer = Tokenizer(vicuna)
    read = wordy(tokenizer, " It is so.")

    def reply(request):
        answer = read(request)
        if "logprob_token_ids" in request.body and "[RESULT]" in tokenizer.text(request.body)[-9:]:
            answer.body["choices"][0] |= change
        return answer

    frame, _ = graded(reply, rows[:1], tokenizer=tokenizer, load=OWN, mode=mode, unread="close")
    assert frame["score"].notna()[0] == (failure is None)
    if failure:
        said = frame["failure"][0] if mode == "score" else min(frame.attrs["unclosed"])
        assert failure in said


@pytest.mark.parametrize("tokenizer", [None, OTHERS["chatml"]])
def test_several_criteria_are_closed_by_one_schema(rows, tokenizer):
    row = {**rows[0], "criteria": CRITERIA, "gold": None}
    frame, _ = graded(by_schema, [row], tokenizer=tokenizer, load=JSON, unread="close")
    assert frame["scores"][0] == {"right": 2, "rude": 2} and frame["closed"][0]
    assert frame["score"][0] == 2


@pytest.mark.parametrize(("overall", "closed"), [(3.5, False), (3, True)])
def test_an_answer_with_criteria_is_closed_where_its_weighted_mean_does_not_stand(
    rows, overall, closed
):
    """The engine took all weights as 1, so that it closed what the run could read, and the reverse.

    Right 4 with weight 3 and rude 2 with weight 1 are 3.5 by their weights and 3 without.
    """
    row = {**rows[0], "criteria": CRITERIA, "gold": None}
    text = f'The overall score is {overall}. {{"scores": {{"right": 4, "rude": 2}}}}'
    answered = completion(text)

    def reply(request):
        is_first = len(request.body["messages"]) == 1
        return Reply(answered) if is_first else by_schema(request)

    frame, asked = graded(reply, [row], load=JSON, unread="close")
    assert frame["closed"][0] == closed and len(asked) == 1 + closed
    assert frame["score"][0] == (2 if closed else 3.5)


# --- a server that misbehaves ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "reply", [Reply(b"", status=429), Reply(THREE, cut=-40), Reply(THREE, drip=0.02)]
)
def test_what_the_transport_spoils_is_asked_again(rows, reply):
    """Refused for now, half an answer, and one that comes byte by byte."""
    frame, asked = graded(once(reply, reply), rows[:3], load={"timeout": 0.6})
    assert frame["failure"].isna().all()
    assert len(asked) == 5 and asked[0].body == asked[1].body == asked[2].body


ANSWERS = {  # these are answers
    "cut off at the token limit": Reply(completion("", finish="length", content=None)),
    "refused: the judge": Reply(completion("", content=None, refusal="I can't judge this.")),
    "or the server's content filter": Reply(completion("It. [RESULT] 3", finish="content_filter")),
    "HTTP 400.*the image is too small": Reply({"error": "the image is too small"}, status=400),
}
GARBAGE = {  # and these are asked for again by the next call
    "not JSON as expected: <html>": Reply(b"<html>", headers={"Content-Type": "text/html"}),
    "not JSON as expected": Reply(b"[" * 100_000),  # too deep
    "no chat completion": Reply({}),
    "no chat completion: it": Reply({"choices": [{"message": [5]}]}),
    "no chat completion: it holds": Reply({"choices": []}),
}


def test_odd_replies_are_failures_and_no_answer_is_asked_for_again(rows, tmp_path):
    half = Reply(completion("half a \ud83d, [RESULT] 3"))
    with ChatServer(once(*ANSWERS.values(), *GARBAGE.values(), half)) as server:
        frame = grade(ask(server), rows[:10], out=tmp_path)
        assert len(server.asked) == 10
        again = grade(ask(server), rows[:10], out=tmp_path)
        assert len(server.asked) == 10 + len(GARBAGE) and again["score"][4:].notna().all()
    # the server is gone by now
    assert grade(ask(server), rows[:10], out=tmp_path)["raw"].equals(again["raw"])
    for part, failure in zip([*ANSWERS, *GARBAGE], frame["failure"], strict=False):
        assert re.search(part, failure)
    assert frame["score"][9] == 3 and frame["raw"][1] == "I can't judge this."


@pytest.mark.parametrize(
    ("status", "headers", "n_asked"),
    [
        (403, {}, 1),
        (502, {}, 8 * 2),
        (503, {"Retry-After": "9000"}, 8),
        (503, {"Retry-After": "Fri, 01 Jan 2100 00:00:00 GMT"}, 8),
    ],
)
def test_a_server_that_goes_down_ends_the_call_and_loses_nothing(
    rows, tmp_path, monkeypatch, status, headers, n_asked
):
    """Before it does, it is waited for as a date says."""
    monkeypatch.setattr(client, "RETRIES", 1)

    def later(request):
        soon = time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(time.time() + 2))
        return Reply(b"", status=429, headers={"Retry-After": soon})

    first = [later, judge] if status == 403 else [judge, judge]
    last = [Reply(b"", status=status, headers=headers)] * 20

    async def cell():  # a notebook's loop is running
        return graded(once(*first, *last), rows[:20], out=tmp_path)

    with pytest.warns(RuntimeWarning, match=f"HTTP {status}.*asks for what is missing"):
        frame, asked = asyncio.run(cell())
    n_done = 1 if status == 403 else 2
    assert list(frame["score"].notna()) == [True] * n_done + [False] * (20 - n_done)
    assert len(Run(tmp_path).verdicts()) == n_done and len(asked) == 2 + n_asked
    if status == 403:
        assert 0.9 <= asked[1].time - asked[0].time < 5
    if status == 502:
        assert frame["failure"][2] == "HTTP 502: , repeated up to 1 times"


# --- safety: the key stays on the way -------------------------------------------------------------


def test_a_key_is_nowhere_but_in_the_header(rows, tmp_path, monkeypatch, capsys):
    """Whole, in parts, in capitals, backwards, in hexadecimal digits or base64."""
    monkeypatch.setenv("MY_KEY", KEY + "\n")
    coded = base64.b64encode(f"x{KEY}".encode()).decode()
    shapes = [KEY, f"{KEY[:20]} ... {KEY[20:]}", KEY.upper(), KEY[::-1], KEY.encode().hex(), coded]
    replies = [Reply(completion(f"It is {one}, they say. [RESULT] 4")) for one in shapes]
    error = {"error": {"message": f"{KEY[:15]} and then {coded}"}}
    replies += [Reply(error, status=400), Reply(f"<p>{KEY}</p>".encode()), Reply(error)]
    replies += [Reply(THREE | {"model": KEY}), Reply(error, status=403)]
    with ChatServer(once(*replies)) as server:
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


def test_nothing_is_sent_but_what_the_caller_named(rows, monkeypatch):
    """The client library added these, an Authorization header in plain http among them."""
    secret = f"Authorization: Bearer {KEY}\nX-Lab: {KEY}\nX-Größe: groß"  # no ASCII: no request
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", secret)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    for name in ("ORG_ID", "PROJECT_ID", "ADMIN_KEY", "WEBHOOK_SECRET"):
        monkeypatch.setenv(f"OPENAI_{name}", f"{KEY} größer")
    cookie = {"Set-Cookie": "a=b"}
    with ChatServer(lambda request: Reply(THREE, headers=cookie)) as server:
        grade(ask(server, key_variable=None), rows[:2])
        grade(ask(server), rows[:1])
    named = "accept accept-encoding connection content-length content-type host user-agent".split()
    for request in server.requests[:3]:
        assert sorted(request.headers) == named and KEY not in str(request.headers)
    assert sorted(server.asked[-1].headers) == sorted([*named, "authorization"])
    assert str(server.asked[-1].headers).count(KEY) == 1


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (Reply(b" " * 2**20, times=600), "the reply has more than 67,108,864 bytes"),
        (Reply(gzip.compress(b" " * 2**28), headers={"Content-Encoding": "gzip"}), "more than 67"),
        (Reply(b"x", headers={"Content-Encoding": "gzip, gzip"}), "packed as 'gzip, gzip'"),
        (Reply(b"x", headers={"Content-Encoding": "br"}), "packed as 'br'"),
        (Reply(b" " * 2**20, times=600, status=500), "more than 67"),
    ],
)
def test_a_body_is_bounded_and_not_asked_for_again(rows, tmp_path, reply, reason):
    """600 MB peaked at 1.9 GB, and a gzip bomb at 2.2 GB."""
    with ChatServer(once(reply)) as server:
        for _ in range(2):
            tracemalloc.start()
            frame = grade(ask(server), rows[:2], out=tmp_path)
            _, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            assert peak < 4e8
    assert reason in frame["failure"][0] and frame["score"].notna()[1] and len(server.asked) == 2


def test_a_body_may_be_packed(rows):
    packed = gzip.compress(json.dumps(THREE).encode())
    frame, _ = graded(Reply(packed, headers={"Content-Encoding": "GZIP"}), rows[:1])
    assert frame["score"][0] == 3


def test_the_address_of_the_environment_is_taken_and_said(rows, monkeypatch, capsys):
    with ChatServer(judge) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        judged = load_judge("openai:judge-1", template=MARKED)
        assert capsys.readouterr().err == f"judge-1 is asked at {server.url}\n"
        assert grade(judged, rows[:1])["failure"].isna().all() and server.asked
        assert judged.engine.identity()["base_url"] == server.url
    monkeypatch.setenv("HTTPS_PROXY", f"http://me:{KEY}@proxy.lab:3128/")
    monkeypatch.setenv("NO_PROXY", "here.lab")
    load_judge("openai:judge-1", base_url="https://there.lab/v1", key_variable=None)
    load_judge("openai:judge-1", base_url="https://here.lab/v1", key_variable=None)
    there, here = capsys.readouterr().err.splitlines()
    assert there.endswith("https://there.lab/v1, by the environment's proxy proxy.lab:3128")
    assert here.endswith("https://here.lab/v1")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://gpu-node/v1")
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with pytest.raises(ValueError, match="in the clear"):
        load_judge("openai:judge-1")


def test_this_machine_is_reached_without_a_proxy(rows, monkeypatch):
    """The proxy got the key; nothing listens at this one."""
    for variable in ("HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(variable, "http://127.0.0.1:1")
    for host in ("127.0.0.1", "localhost"):
        with ChatServer(judge) as server:
            server.url = server.url.replace("127.0.0.1", host)
            assert grade(ask(server), rows[:1])["failure"].isna().all()


@pytest.mark.parametrize(
    ("key", "url", "message"),
    [
        ("", client.OPENAI, "OPENAI_API_KEY is not set"),
        (KEY, "http://gpu-node/v1", "in the clear"),
        (KEY, "http://127.0.0.1.example.org/v1", "in the clear"),
        (KEY, "ftp://a/v1", "use one like"),
        (KEY, "a/v1", "use one like"),
        (KEY, f"https://me:{KEY}@a", "use one like"),
        (KEY, f"https://a?key={KEY}", "use one like"),
        (f"{KEY}ä", client.OPENAI, "holds a character that no key has"),
        (f"{KEY[:20]}\n{KEY[20:]}", client.OPENAI, "holds a character that no key has"),
    ],
)
def test_keys_and_addresses(monkeypatch, key, url, message):
    monkeypatch.setenv("OPENAI_API_KEY", key)
    with pytest.raises(ValueError, match=message) as refusal:
        load_judge("openai:gpt-4o", base_url=url)
    assert KEY[:8] not in str(refusal.value) and KEY[-8:] not in str(refusal.value)
    with pytest.raises(ValueError, match="MY_KEY is not set"):
        address("http://127.0.0.1:1/v1", "MY_KEY")
    assert address("http://gpu-node:8000/v1/", None) == ("http://gpu-node:8000/v1", "")


# --- other people's servers -----------------------------------------------------------------------


def test_transformers_own_server_judges_as_the_engine_here(rows, tmp_path):
    """The same checkpoint and wording behind a server and here: the same texts."""
    pytest.importorskip("fastapi")
    folder = models.convert(write_llava15(tmp_path / "judge"), tmp_path / "converted")
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    start = "from transformers.cli.transformers import main; main()"
    options = f"--port {port} --host 127.0.0.1 --device cpu --dtype float32".split()
    command = ["-c", start, "serve", str(folder), *options]
    limits = {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    with process(command, f"{address}/health", tmp_path / "log", **limits):
        judged = load_judge(f"openai:{folder}", base_url=f"{address}/v1", **OWN)
        there = grade(judged, rows[:4], max_new_tokens=20)
    here = grade(load_judge(folder, device="cpu", **OWN), rows[:4], max_new_tokens=20)
    assert here["raw"].str.len().gt(0).all()
    for column in ("raw", "failure", "n_prompt_tokens"):
        assert there[column].equals(here[column])
