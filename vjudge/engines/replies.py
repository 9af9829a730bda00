"""A server's reply, read field by field: what is unsound costs that field, and is remarked.

Also the distribution at the verdict, by the log-probabilities of a reply's tokens.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from vjudge.engines.client import Unsound, without_key
from vjudge.engines.engine import Answer, Texts
from vjudge.prompts import parse
from vjudge.records import brief

ENDED = parse.ENDINGS | {"null", ""}
"""How servers say, in any case, that an answer ended by itself."""
CUT_OFF = ("length", "max_tokens", "model_length", "model_context_window_exceeded")
NO_TEXT = "cut off: the reply has no text"
FILTERED = "refused: the judge, or the server's content filter"
MAX_COUNT = 2**31  # tokens; what a usage names beyond it is no count of tokens
TOLERANCE = 1e-3  # by which rounded probabilities may exceed 1
CONTROL = re.compile(rb"(<[^<>]*>)?")  # a token that ends an answer and is not in its text
NO_LOGPROBS = "no distribution: the reply has no log-probabilities"
NO_DISTRIBUTION = "no distribution: the log-probabilities are not those of the verdict's tokens"


class Token(NamedTuple):
    """A token of a reply: its bytes, and its own and the listed log-probabilities.

    `logprobs` maps a token's text, or "token_id:5", to its log-probability; None where any of them
    is missing or unsound.
    """

    written: bytes
    logprobs: dict[str, float] | None


def read_reply(
    reply: Mapping[str, Any], row: int, model: str, key: str
) -> tuple[Answer, list[Token]]:
    """The answer in a completion, without the key; no tokens where it has no log-probabilities.

    Unsound: it is no completion, or not by `model`.
    """
    choice = _at(reply, "choices", 0)
    message = _at(choice, "message")
    if not isinstance(message, Mapping):
        raise Unsound("the server's answer is no chat completion: it holds no message")
    remarks: list[str] = []
    served = _served(reply.get("model"), model, key, remarks)

    # 1) what was written and thought
    text, thoughts = _text_of(message.get("content"), "content", remarks)
    refusal, _ = _text_of(message.get("refusal"), "refusal", remarks)
    for name in ("reasoning_content", "reasoning"):
        thought, inner = _text_of(message.get(name), name, remarks)
        thoughts = thoughts or thought or inner

    # 2) how it ended
    finish, failure = _ending(_at(choice, "finish_reason"), key)
    if refusal or finish == "content_filter":
        failure = FILTERED
    elif text is None and failure is None and finish == "stop":
        failure = NO_TEXT

    # 3) what it took, and its tokens
    usage = reply.get("usage")
    answer = Answer(
        row,
        _clean(text or refusal, key),
        _count(usage, "prompt_tokens", remarks),
        _count(usage, "completion_tokens", remarks),
        finish=finish,
        failure=failure,
        reasoning=_clean(thoughts, key),
        served=served,
        remarks=tuple(remarks),
    )
    return answer, _tokens(_at(choice, "logprobs", "content"))


def read_value(reply: Mapping[str, Any], row: int, model: str, key: str) -> Answer:
    """The number in a reply of vLLM's `/classify` or `/pooling`, which may give one a token.

    Unsound: it is no such number, or not by `model`.
    """
    remarks: list[str] = []
    served = _served(reply.get("model"), model, key, remarks)
    numbers = _at(reply, "data", 0, "probs")
    if numbers is None:
        numbers = _at(reply, "data", 0, "data")
    last = _at(numbers, -1)
    if isinstance(last, list) and len(last) == 1:  # the value behind each token: the last's counts
        numbers = last
    if not isinstance(numbers, list) or len(numbers) != 1 or type(numbers[0]) not in (int, float):
        raise Unsound(f"the server gives {_clean(brief(numbers), key)} and not one number")
    return Answer(
        row,
        n_prompt_tokens=_count(reply.get("usage"), "prompt_tokens", remarks),
        finish="stop",
        served=served,
        remarks=tuple(remarks),
        value=float(numbers[0]),
    )


# --- the fields


def _served(name: Any, model: str, key: str, remarks: list[str]) -> str | None:
    """The name of the model that answered; Unsound where it is another than `model`."""
    if name is None or name == "":
        return None
    if not isinstance(name, str):
        remarks.append("model is no text")
        return None
    printable = without_key(name[:200], key)
    dated = re.escape(model) + r"(@main|-\d{4}-?\d\d-?\d\d)?"  # or the state of a day
    if not re.fullmatch(dated, name):
        raise Unsound(
            f"model {printable!r} answered, and {model!r} was expected; if it is the one you mean,"
            f" load the judge with served_model={printable!r}"
        )
    return printable


def _text_of(content: Any, name: str, remarks: list[str]) -> tuple[str | None, str]:
    """The text and the thoughts of a field that is a text or a list of parts.

    A part is {"type": "text", "text": ...}, or {"type": "thinking", "thinking": [parts]}. The text
    is None where there is none.
    """
    if content is None or isinstance(content, str):
        return content, ""
    texts: list[str] = []
    thoughts: list[str] = []
    for part in content if isinstance(content, list) else [content]:
        kind = _at(part, "type")
        if kind in ("thinking", "reasoning"):
            inner = _at(part, kind) or _at(part, "text")
            thoughts += _plain(inner if isinstance(inner, list) else [inner])
        elif _plain([part]):
            texts += _plain([part])
        else:
            remarks.append(f"a part of {name} is no text")
    return "".join(texts) if texts else None, "".join(thoughts)


def _plain(parts: Sequence[Any]) -> list[str]:
    """The texts among parts that are a text, or {"text": a text}."""
    texts = [part if isinstance(part, str) else _at(part, "text") for part in parts]
    return [text for text in texts if isinstance(text, str)]


def _ending(reason: Any, key: str) -> tuple[str, str | None]:
    """How an answer ended, and why it is none where it neither ended by itself nor was cut off."""
    word = "" if reason is None else str(reason)
    plain = word.strip().casefold()
    if plain in ENDED:
        return "stop", None
    if plain == "length":
        return plain, None
    reported = " ".join(_clean(word[:80], key).split())
    return reported, None if plain in CUT_OFF else f"ended by {reported}"


def _count(usage: Any, name: str, remarks: list[str]) -> int:
    """A number of tokens; 0 where none is told."""
    count = _at(usage, name)
    if type(count) is int and 0 <= count < MAX_COUNT:
        return count
    if count is not None or not (usage is None or isinstance(usage, Mapping)):
        remarks.append(f"usage.{name} is no count")
    return 0


def _tokens(content: Any) -> list[Token]:
    """The tokens of a reply; none where one of them has no text."""
    tokens = []
    for entry in content if isinstance(content, list) else []:
        text = _at(entry, "token")
        if not isinstance(text, str):
            return []
        written = text.encode("utf-8", "surrogatepass")
        spelled = entry.get("bytes")  # a token that is a part of a character has no text of its own
        if isinstance(spelled, list) and all(byte in range(256) for byte in spelled):
            written = bytes(map(int, spelled))
        tokens.append(Token(written, _listed(entry)))
    return tokens


def _listed(entry: Mapping[str, Any]) -> dict[str, float] | None:
    """The log-probabilities at a token; None where one is unsound, or no others are listed."""
    alternatives = entry.get("top_logprobs")
    if not isinstance(alternatives, list) or not alternatives:
        return None
    logprobs = {}
    for alternative in (*alternatives, entry):
        value = _at(alternative, "logprob")
        if type(value) is int and abs(value) < MAX_COUNT:
            value = float(value)
        if type(value) is not float or not value <= TOLERANCE:  # NaN is not, either
            return None
        logprobs[str(alternative.get("token"))] = min(value, 0.0)
    return logprobs


def _at(value: Any, *path: str | int) -> Any:
    """What stands at a path of names and positions; None where there is no such place."""
    for step in path:
        try:
            value = value[step]
        except (LookupError, TypeError):
            return None
    return value


def _clean(text: str | None, key: str) -> str:
    """A text without the key, and without halves of characters, which no file can hold."""
    return without_key(text or "", key).encode("utf-8", "replace").decode()


# --- the distribution at the verdict


def at_verdict(
    text: str, tokens: Sequence[Token], marker: str, texts: Texts
) -> dict[int, float] | None:
    """The scores' log-probabilities at the verdict: the scale's first token after the last marker.

    " 4" and "4" are one score; one that is not listed has probability 0. None where no verdict
    stands after the marker, or its log-probabilities are unsound.
    """
    scores = {written.strip(): score for score, written in texts.items()}
    step = _verdict_step(text, tokens, marker, scores)
    logprobs = None if step is None else tokens[step].logprobs
    if logprobs is None:
        return None
    probabilities = dict.fromkeys(texts, 0.0)
    for token, logprob in logprobs.items():
        score = scores.get(token.strip())
        if score is not None:
            probabilities[score] += math.exp(logprob)
    if sum(probabilities.values()) > 1 + TOLERANCE:
        return None
    return {score: math.log(p) if p else -math.inf for score, p in probabilities.items()}


def _verdict_step(
    text: str, tokens: Sequence[Token], marker: str, scores: Mapping[str, int]
) -> int | None:
    """The step that wrote the verdict in a text; None where the tokens are not the text's.

    A server may list the tokens of the thinking before those of the text. Blanks do not count: a
    vocabulary may keep them apart from its tokens.

        tokens   ... [RESULT] 2 </think> Good. [RESULT] 4 </s>
        text                             Good. [RESULT] 4
                                         start ---------^ verdict = len(text) - len(tail)
    """
    plain = _bare(text.encode("utf-8", "surrogatepass"))
    label = _bare(marker.encode())
    if label not in plain:
        return None
    start = plain.rindex(label) + len(label)
    # 1) the tokens without those that ended the answer, which are not in its text
    pieces = [_bare(token.written) for token in tokens]
    while pieces and CONTROL.fullmatch(pieces[-1]) and not plain.endswith(pieces[-1] or b"\0"):
        pieces.pop()
    joined = b"".join(pieces)
    # 2) the first score behind the last marker, if the tokens from there on are the text's end
    names = [score.encode() for score in scores]
    begin = 0
    for step, piece in enumerate(pieces):
        verdict = len(plain) - (len(joined) - begin)
        if verdict >= start and tokens[step].written.strip() in names:
            between = plain[start:verdict]
            wordless = not any(map(str.isalnum, between.decode("utf-8", "replace")))
            marked = joined[:begin].endswith(label + between)
            return step if wordless and marked and plain.endswith(joined[begin:]) else None
        begin += len(piece)
    return None


def _bare(text: bytes) -> bytes:
    """A text without blanks, in lower case."""
    return b"".join(text.split()).lower()
