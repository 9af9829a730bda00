"""A server's replies: the parts of a completion, and the distribution at the verdict."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from vjudge.engines.client import Unanswered, without_key
from vjudge.engines.engine import FINISHES, Answer, Texts
from vjudge.engines.tokens import verdict_step

FINISHED = {"max_tokens": "length", "model_length": "length"}  # other servers' words
Token = tuple[str, dict[str, float]]  # its text or "token_id:5" -> log-probabilities, its own too


def read_reply(
    reply: Mapping[str, Any], row: int, model: str, key: str
) -> tuple[Answer, list[Token]]:
    """What a completion says, without the key; no tokens where it gave no log-probabilities.

    Unanswered: it is no completion, or not by this model.
    """
    try:
        said = reply.get("model") or model
        dated = re.escape(model) + r"(@main|-\d{4}-?\d\d-?\d\d)?"  # or the state of a day
        if not re.fullmatch(dated, said):
            name = without_key(said, key)
            raise Unanswered(f"model {name!r} answered, and {model!r} was asked")
        choice = reply["choices"][0]
        message = choice["message"]
        refusal = message.get("refusal")
        thought = message.get("reasoning_content") or message.get("reasoning")
        finish = choice.get("finish_reason")
        refused = refusal or finish == "content_filter"
        usage = reply.get("usage") or {}
        answer = Answer(
            row,
            _clean(message["content"] or refusal, key),
            int(usage.get("prompt_tokens") or 0),
            int(usage.get("completion_tokens") or 0),
            finish=FINISHED.get(finish, finish if finish in FINISHES else "stop"),
            failure="refused: the judge, or the server's content filter" if refused else None,
            reasoning=_clean(thought, key),
        )
        return answer, _tokens(choice)
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError) as error:
        what = f"{type(error).__name__}: {without_key(str(error), key)}"
        raise Unanswered(f"the server's answer is no chat completion ({what})") from None


def _clean(text: str | None, key: str) -> str:
    """A text without the key, and without halves of characters, which no file can hold."""
    return without_key(text or "", key).encode("utf-8", "replace").decode()


def _tokens(choice: Mapping[str, Any]) -> list[Token]:
    tokens: list[Token] = []
    for entry in (choice.get("logprobs") or {}).get("content") or []:
        odds = {}
        for other in (*entry["top_logprobs"], entry):
            odds[str(other["token"])] = min(other["logprob"], 0.0)
        tokens.append((str(entry["token"]), odds))
    return tokens


def at_verdict(
    text: str, tokens: Sequence[Token], marker: str, texts: Texts
) -> dict[int, float] | None:
    """The scores' log-probabilities at the verdict: the scale's first token after the last marker.

    " 4" and "4" are one score; one that is not listed has probability 0. None where no verdict
    stands after the marker.
    """
    scores = {written.strip(): score for score, written in texts.items()}
    steps = []
    before = ""
    for step, (token, _) in enumerate(tokens):
        if token.strip() in scores:
            steps.append((step, before))
        before += token
    verdict = verdict_step(text, marker, steps)
    if verdict is None:
        return None
    chances = dict.fromkeys(texts, 0.0)
    for token, logprob in tokens[verdict][1].items():
        score = scores.get(token.strip())
        if score is not None:
            chances[score] += math.exp(logprob)
    return {score: math.log(p) if p else -math.inf for score, p in chances.items()}
