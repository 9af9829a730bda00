"""What requests hold, what replies are read as, and that a key is cut out of them; by hand, without a server."""

from __future__ import annotations

import base64
import json
import math
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from servers import completion

from vjudge.engines.chat import ECHO, UNCOUNTED, Call, Reading, at_verdict, read_reply, read_tokens, scale_key
from vjudge.engines.engine import Ask
from vjudge.engines.transport import Key, Unanswered, Usage, check_url

KEY = "sk-proj-4Zt9bQ-7xWm2Kf0aLr8V_Yc3Ne5Hs1"
SCALE = {n: f" {n}" for n in range(1, 6)}

# --- keys and addresses -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "echo",
    [
        KEY,
        f"Incorrect key: {KEY[:20]} ... {KEY[20:]}",
        " ".join(KEY),
        "\n".join(KEY[at : at + 9] for at in range(0, len(KEY), 9)),
        quote(KEY, safe=""),
        "".join(f"%{ord(c):02x}" for c in KEY),
        base64.b64encode(KEY.encode()).decode(),
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


@pytest.mark.parametrize("url", ["ftp://a/v1", "a/v1", "https:///v1"])
def test_what_is_no_address(url: str) -> None:
    with pytest.raises(ValueError, match="is no URL"):
        check_url(url)


@pytest.mark.parametrize("url", [f"https://me:{KEY}@a/v1", f"https://a/v1?key={KEY}", f"https://a/v1#{KEY}"])
def test_an_address_holds_no_key(url: str) -> None:
    with pytest.raises(ValueError, match="may hold no user") as refusal:
        check_url(url)
    assert KEY not in str(refusal.value) and check_url("https://a:8/v1/") == "https://a:8/v1"


# --- what a request holds ---------------------------------------------------------------------------------------------


# --- what a reply says ------------------------------------------------------------------------------------------------


def read(body: Any, usage: Usage | None = None) -> Any:
    return read_reply(body, usage or Usage(), Key(KEY))[0]


def test_a_reply() -> None:
    usage = Usage(price=(1.0, 2.0))
    reply = read(completion("Fine. [RESULT] 3"), usage)
    assert (reply.text, reply.failure, reply.stopped) == ("Fine. [RESULT] 3", None, True)
    assert (reply.n_prompt_tokens, reply.n_new_tokens) == (100, 10)
    assert usage.spend == pytest.approx(120e-6)
    plain = read({"choices": [{"text": " 4", "finish_reason": "length"}]}, usage)
    assert (plain.text, plain.stopped, plain.n_prompt_tokens) == (" 4", False, 0) and usage.oddities[UNCOUNTED] == 1
    assert "1 answers without a token count" in str(usage) and math.isnan(Usage().spend)


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"choices": []},
        {"choices": ["text"]},
        {"choices": [{"message": {"content": 4}, "finish_reason": "stop"}]},
        {"choices": [{"message": {"content": "a"}}]},
    ],
)
def test_what_is_no_completion(body: Any) -> None:
    with pytest.raises(Unanswered, match="no chat completion"):
        read(body)


@pytest.mark.parametrize("count", [10**30, -1, 1.5, True, "7", None, [1], 2**31])
def test_counts_that_are_none(count: Any) -> None:
    """A count of 10**30 stood in the record, where no later call could read it."""
    usage = Usage(price=(1.0, 1.0))
    reply = read(completion("[RESULT] 3") | {"usage": {"prompt_tokens": count, "completion_tokens": 5}}, usage)
    assert (reply.n_prompt_tokens, reply.n_new_tokens, usage.oddities[UNCOUNTED], usage.spend) == (0, 0, 1, 0)
    assert json.loads(json.dumps(reply.n_prompt_tokens)) == 0


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.just("[RESULT] 3"),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                "choices message content finish_reason text logprobs top_logprobs token logprob usage".split()
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)


@given(JSON)
def test_any_reply_is_read_or_refused(body: Any) -> None:
    """What a server says never ends a run: it is an answer, or a failure with its reason."""
    reply = completion("It is so. [RESULT] 3")
    usage, ask = Usage(), Ask(marker="[RESULT]", scales=[SCALE])
    call = Call(ask, {}, scales={scale_key(SCALE): Reading(SCALE)})
    replies = [body if isinstance(body, dict) else {}, reply | {"usage": body}, reply | {"choices": [body]}]
    replies += [completion("[RESULT] 3") | {"choices": [reply["choices"][0] | {"logprobs": body}]}]
    for each in replies:
        try:
            answer = call.answer(0, [read_reply(each, usage, Key(KEY))], usage)
        except Unanswered:
            continue
        answer.text.encode()
        assert 0 <= answer.n_prompt_tokens < 2**31 and 0 <= usage.prompt_tokens < 2**40
        assert not any(math.isnan(value) or value > 1e-3 for value in (answer.score_logprobs or {}).values())


def test_a_key_in_a_reply_is_cut_out_and_counted() -> None:
    usage = Usage()
    echo = base64.b64encode(KEY.encode()).decode()
    reply = read(completion(f"Your key is {echo}. [RESULT] 3") | {"model": f"m-{KEY}"}, usage)
    assert reply.text == "Your key is [key]=. [RESULT] 3"
    assert usage.oddities[ECHO] == 1 and "repeated the key" in str(usage)


def listed(values: Any, token: Any = "a") -> dict[str, Any]:
    top = [{"token": token, "logprob": value} for value in values]
    return {"logprobs": {"content": [{"token": "b", "logprob": -1.0, "top_logprobs": top}]}}


@pytest.mark.parametrize(
    "choice",
    [listed([value]) for value in (math.nan, 0.5, "-1", None, True, math.inf, 10**400)]
    + [listed([-1.0], token) for token in (4, None, ["a"])]
    + [listed([-0.1]), {}, {"logprobs": None}, {"logprobs": {"content": []}}, {"logprobs": {"content": 4}}]
    + [{"logprobs": 5}, {"logprobs": {"content": [None]}}, {"logprobs": {"tokens": ["a"], "token_logprobs": []}}],
)
def test_log_probabilities_that_are_none(choice: Any) -> None:
    assert read_tokens(choice) is None  # the last of the second line: .90 and .37 are no probabilities


def chances(body: Any) -> dict[int, float] | None:
    choice = body["choices"][0]
    tokens = read_tokens(choice)
    assert tokens is not None
    shares = at_verdict(choice["message"]["content"], tokens, marker="[RESULT]", texts=SCALE)
    return shares and {score: round(math.exp(value), 9) for score, value in shares.items()}


def test_the_distribution_by_hand() -> None:
    # " 4" and "4" are one score; " four" is none; 3 is not listed and counts as 0.
    near = {" 4": 0.5, "4": 0.2, " 5": 0.1, " 1": 0.05, " four": 0.1}
    assert chances(completion("A 2 and a 3. [RESULT] 4", alternatives=near)) == {1: 0.05, 2: 0, 3: 0, 4: 0.7, 5: 0.1}
    # Drawn although it is not among the most probable: the token's own log-probability counts (1e-4 in `completion`).
    drawn = completion("[RESULT] 2", alternatives={" 1": 0.5, " 3": 0.25})
    assert chances(drawn) == {1: 0.5, 2: 1e-4, 3: 0.25, 4: 0, 5: 0}


@pytest.mark.parametrize(
    ("text", "reads"),
    [
        ("Good. [RESULT] 4", True),
        ("Good. [result]: **4**", True),
        ("It is 4.", False),
        ("[RESULT] of it all is 4", False),
        ("[RESULT] 2 or rather [RESULT] 4", True),
        ("[RESULT] 4 and [RESULT]", False),
        ("[RESULT] 44", False),
    ],
)
def test_where_the_verdict_is_read(text: str, reads: bool) -> None:
    shares = chances(completion(text, alternatives={" 4": 0.5, "4": 0.3, " 2": 0.1}))
    assert shares == ({1: 0, 2: 0.1, 3: 0, 4: 0.8, 5: 0} if reads else None)
