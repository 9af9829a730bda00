"""Read a server's reply field by field: an invalid field is left out, with a remark.

The second half of the file computes the distribution at the verdict, from the log-probabilities of
a reply's tokens.
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
"""Finish reasons of an answer that ended by itself, in lower case; servers write any case."""
CUT_OFF = ("length", "max_tokens", "model_length", "model_context_window_exceeded")
NO_TEXT = "cut off: the reply has no text"
FILTERED = "refused: the judge, or the server's content filter"
MAX_TOKENS = 2**31  # a larger number in a reply's usage is no count of tokens
TOLERANCE = 1e-3  # by how much rounded probabilities may exceed 1, and log-probabilities 0
CONTROL_TOKEN = re.compile(rb"(<[^<>]*>)?")
"""A token such as b"</s>" or b"", which may end an answer without being in its text."""
NO_LOGPROBS = "no distribution: the reply has no log-probabilities"
NO_DISTRIBUTION = "no distribution: the log-probabilities are not those of the verdict's tokens"


class Token(NamedTuple):
    """A token of a reply: its text as bytes, and the log-probabilities at its place.

    `logprobs` maps the text of each listed token, or its number as "token_id:5", to its
    log-probability. It is None where none is listed or any is invalid.
    """

    written: bytes
    logprobs: dict[str, float] | None


def read_reply(
    reply: Mapping[str, Any], row: int, model: str, key: str
) -> tuple[Answer, list[Token]]:
    """Read the answer in a chat completion, and its tokens.

    Args:
        reply: the JSON object that the server returned.
        row: the position of the prompt in the call.
        model: the name of the model that has to have answered.
        key: the key of the server, which is cut out of every text.

    Returns:
        The answer, and its tokens; no tokens where the reply has no log-probabilities.

    Raises:
        Unsound: the reply is no chat completion, or not by `model`.
    """
    choice = _at(reply, "choices", 0)
    message = _at(choice, "message")
    if not isinstance(message, Mapping):
        raise Unsound("the server's answer is no chat completion: it holds no message")
    remarks: list[str] = []
    served = _served(reply.get("model"), model, key, remarks)

    # 1) text, refusal and thinking
    text, thinking = _text_of(message.get("content"), "content", remarks)
    refusal, _ = _text_of(message.get("refusal"), "refusal", remarks)
    # Servers put the thinking among the parts of `content`, or in a field of either name: the first
    # of these that holds any is taken.
    for name in ("reasoning_content", "reasoning"):
        thought, inner = _text_of(message.get(name), name, remarks)
        thinking = thinking or thought or inner

    # 2) how the answer ended; a refusal's text takes the place of the answer's
    finish, failure = _ending(_at(choice, "finish_reason"), key)
    if refusal or finish == "content_filter":
        failure = FILTERED
    elif text is None and failure is None and finish == "stop":
        failure = NO_TEXT

    # 3) the counts of tokens, and the tokens
    usage = reply.get("usage")
    answer = Answer(
        row,
        _clean(text or refusal, key),
        n_prompt_tokens=_count(usage, "prompt_tokens", remarks),
        n_new_tokens=_count(usage, "completion_tokens", remarks),
        finish=finish,
        failure=failure,
        reasoning=_clean(thinking, key),
        served=served,
        remarks=tuple(remarks),
    )
    return answer, _tokens(_at(choice, "logprobs", "content"))


def read_value(reply: Mapping[str, Any], row: int, model: str, key: str) -> Answer:
    """Read the value in a reply of vLLM's `/classify` or `/pooling`; return an answer without text.

    Arguments are those of `read_reply`.

    Raises:
        Unsound: the reply holds no single number, or is not by `model`.
    """
    remarks: list[str] = []
    served = _served(reply.get("model"), model, key, remarks)
    numbers = _at(reply, "data", 0, "probs")  # of /classify
    if numbers is None:
        numbers = _at(reply, "data", 0, "data")  # of /pooling
    # A reply may hold one number per token, [[0.1], [0.3]]: the last token's is the value.
    last = _at(numbers, -1)
    if isinstance(last, list) and len(last) == 1:
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


# --- the fields of a reply; their values are of any type, because any server may have sent them


def _served(name: Any, model: str, key: str, remarks: list[str]) -> str | None:
    """Return the name of the model that answered; None where the reply names none.

    A date or a revision may follow the name: "gpt-4o-2024-08-06" is "gpt-4o".

    Args:
        name: the reply's field `model`.
        model: the name of the model that has to have answered.
        key: the key of the server, which is cut out of the name.
        remarks: takes a remark where the field is no text.

    Raises:
        Unsound: another model answered.
    """
    if name is None or name == "":
        return None
    if not isinstance(name, str):
        remarks.append("model is no text")
        return None
    printable = without_key(name[:200], key)
    pattern = re.escape(model) + r"(@main|-\d{4}-?\d\d-?\d\d)?"
    if not re.fullmatch(pattern, name):
        raise Unsound(
            f"model {printable!r} answered, and {model!r} was expected; if it is the one you mean,"
            f" load the judge with served_model={printable!r}"
        )
    return printable


def _text_of(content: Any, name: str, remarks: list[str]) -> tuple[str | None, str]:
    """Return the text and the thinking of a field that is a text or a list of parts.

    A part is {"type": "text", "text": ...}, or {"type": "thinking", "thinking": [parts]}.

    Args:
        content: the field's value.
        name: the field's name, for remarks.
        remarks: takes a remark for each part that is no text.

    Returns:
        The text, None where there is none; and the thinking, "" where there is none.
    """
    if content is None or isinstance(content, str):
        return content, ""
    texts: list[str] = []
    thoughts: list[str] = []
    for part in content if isinstance(content, list) else [content]:
        kind = _at(part, "type")
        if kind in ("thinking", "reasoning"):
            inner = _at(part, kind) or _at(part, "text")
            thoughts += _texts_among(inner if isinstance(inner, list) else [inner])
        elif _texts_among([part]):
            texts += _texts_among([part])
        else:
            remarks.append(f"a part of {name} is no text")
    return "".join(texts) if texts else None, "".join(thoughts)


def _texts_among(parts: Sequence[Any]) -> list[str]:
    """Return the texts among parts that are a text, or {"text": a text}."""
    texts = [part if isinstance(part, str) else _at(part, "text") for part in parts]
    return [text for text in texts if isinstance(text, str)]


def _ending(reason: Any, key: str) -> tuple[str, str | None]:
    """Return how an answer ended, and its failure if that is one.

    An answer that ended by itself is no failure, nor is a truncated one: whether that holds a
    verdict is decided when its text is read. Any other reason makes an answer a failure.

    Args:
        reason: the finish reason in the reply, of any type.
        key: the key of the server, which is cut out of the reason.

    Returns:
        "stop", "length", or the server's reason, for `Answer.finish`; and the failure, None if
        there is none.
    """
    written = "" if reason is None else str(reason)
    lowered = written.strip().casefold()
    if lowered in ENDED:
        return "stop", None
    if lowered == "length":
        return lowered, None
    reported = " ".join(_clean(written[:80], key).split())
    return reported, None if lowered in CUT_OFF else f"ended by {reported}"


def _count(usage: Any, name: str, remarks: list[str]) -> int:
    """Return a number of tokens; 0 where none is reported, or none that is valid.

    Args:
        usage: the reply's field `usage`.
        name: the field of `usage` that holds the number.
        remarks: takes a remark where the number is invalid.
    """
    count = _at(usage, name)
    if type(count) is int and 0 <= count < MAX_TOKENS:
        return count
    if count is not None or not (usage is None or isinstance(usage, Mapping)):
        remarks.append(f"usage.{name} is no count")
    return 0


def _tokens(content: Any) -> list[Token]:
    """Return the tokens of a reply; an empty list if there are none, or if one of them has no text.

    Args:
        content: the list of tokens in the reply's log-probabilities.
    """
    tokens = []
    for entry in content if isinstance(content, list) else []:
        text = _at(entry, "token")
        if not isinstance(text, str):
            return []
        written = text.encode("utf-8", "surrogatepass")
        # A token may be a part of a character. Then its text is a replacement; its bytes are right.
        raw_bytes = entry.get("bytes")
        if isinstance(raw_bytes, list) and all(byte in range(256) for byte in raw_bytes):
            written = bytes(map(int, raw_bytes))
        tokens.append(Token(written, _listed_logprobs(entry)))
    return tokens


def _listed_logprobs(entry: Mapping[str, Any]) -> dict[str, float] | None:
    """Return the log-probabilities at a token; None where one is invalid, or none is listed.

    Args:
        entry: one token of the reply: its `token`, its `logprob`, and in `top_logprobs` the same
            two fields for each of the most probable tokens at its place.

    Returns:
        text of a token -> log-probability, of the alternatives and of the written token itself.
    """
    alternatives = entry.get("top_logprobs")
    if not isinstance(alternatives, list) or not alternatives:
        return None
    logprobs = {}
    for alternative in (*alternatives, entry):
        value = _at(alternative, "logprob")
        if type(value) is int and abs(value) < MAX_TOKENS:  # a larger one may not fit a float
            value = float(value)
        if type(value) is not float or not value <= TOLERANCE:  # NaN fails the comparison, too
            return None
        logprobs[str(alternative.get("token"))] = min(value, 0.0)
    return logprobs


def _at(value: Any, *path: str | int) -> Any:
    """Return what stands at a path of keys and positions; None where the path leads nowhere.

    >>> _at({"choices": [{"text": "4"}]}, "choices", 0, "text"), _at({"choices": []}, "choices", 0)
    ('4', None)
    """
    for step in path:
        try:
            value = value[step]
        except (LookupError, TypeError):
            return None
    return value


def _clean(text: str | None, key: str) -> str:
    """Return a text without the key, and without lone surrogates, which no file can hold."""
    return without_key(text or "", key).encode("utf-8", "replace").decode()


# --- the distribution at the verdict


def at_verdict(
    text: str, tokens: Sequence[Token], marker: str, texts: Texts
) -> dict[int, float] | None:
    """Return the scores' log-probabilities at the verdict, after the last marker.

    " 4" and "4" are the same score, and their probabilities are added. A score that is not listed
    has probability 0.

    Args:
        text: the answer.
        tokens: its tokens.
        marker: the text before the verdict.
        texts: the scale, score -> its text after the marker.

    Returns:
        score -> log-probability; None where no verdict stands after the marker, or where its
        log-probabilities are invalid.
    """
    score_of_text = {text_of_score.strip(): score for score, text_of_score in texts.items()}
    step = _verdict_step(text, tokens, marker, score_of_text)
    logprobs = None if step is None else tokens[step].logprobs
    if logprobs is None:
        return None
    probabilities = dict.fromkeys(texts, 0.0)
    for token, logprob in logprobs.items():
        score = score_of_text.get(token.strip())
        if score is not None:
            probabilities[score] += math.exp(logprob)
    if sum(probabilities.values()) > 1 + TOLERANCE:  # these were no probabilities
        return None
    return {score: math.log(p) if p else -math.inf for score, p in probabilities.items()}


def _verdict_step(
    text: str, tokens: Sequence[Token], marker: str, scores: Mapping[str, int]
) -> int | None:
    """Return the position in `tokens` of the verdict's first token; None if it is not certain.

    A server may list the tokens of the thinking before those of the text, so the end of the tokens
    is compared with the end of the text. Blanks are left out, because some vocabularies keep them
    apart from their tokens, and capitals are ignored. Where a token stands in the text is counted
    from the end, because both end alike:

        tokens   [RESULT] 2 </think> Good. [RESULT] 4 </s>
        joined   [result]2</think>good.[result]4
        plain                   good.[result]4
                                             ^ marker_end, and the verdict's position:
                                               len(plain) - (len(joined) - n_before)
    """
    plain = _bare(text.encode("utf-8", "surrogatepass"))
    bare_marker = _bare(marker.encode())
    if bare_marker not in plain:
        return None
    marker_end = plain.rindex(bare_marker) + len(bare_marker)
    # 1) leave out the control tokens that ended the answer, which are not in its text
    pieces = [_bare(token.written) for token in tokens]
    while pieces and CONTROL_TOKEN.fullmatch(pieces[-1]):
        if pieces[-1] and plain.endswith(pieces[-1]):  # "<b>" at the end of the text is text
            break
        pieces.pop()
    joined = b"".join(pieces)
    # 2) find the first token after the last marker that is a score
    score_texts = [score.encode() for score in scores]
    n_before = 0  # bytes of the tokens before this one
    for step, piece in enumerate(pieces):
        position = len(plain) - (len(joined) - n_before)
        if position >= marker_end and tokens[step].written.strip() in score_texts:
            # 3) it is the verdict if no word stands between, and the tokens are those of the text
            between = plain[marker_end:position]
            has_word = any(map(str.isalnum, between.decode("utf-8", "replace")))
            follows_marker = joined[:n_before].endswith(bare_marker + between)
            is_text_end = plain.endswith(joined[n_before:])
            return step if follows_marker and is_text_end and not has_word else None
        n_before += len(piece)
    return None


def _bare(text: bytes) -> bytes:
    """Return a text without blanks, in lower case."""
    return b"".join(text.split()).lower()
