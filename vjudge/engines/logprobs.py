"""Log-probabilities in a server's replies: what is asked for, and what they say at the verdict."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from vjudge.engines.engine import Texts
from vjudge.engines.tokens import verdict_step

LISTED = 20  # tokens at each place whose log-probabilities are requested; many allow no more

Token = tuple[str, dict[str, float]]  # its text or "token_id:5" -> log-probabilities, its own too


def listing(tokens: Collection[int], *, as_ids: bool) -> dict[str, Any]:
    """The fields that ask for log-probabilities, of these tokens among others."""
    body: dict[str, Any] = {"logprobs": True, "top_logprobs": LISTED}
    if tokens:
        body["logprob_token_ids"] = sorted(tokens)
    if as_ids:
        body["return_tokens_as_token_ids"] = True
    return body


def read_tokens(choice: Mapping[str, Any]) -> list[Token]:
    """The log-probabilities of an answer's tokens; none where the server sent none, or nonsense."""
    tokens: list[Token] = []
    try:
        for entry in choice["logprobs"]["content"]:
            odds = {}
            for other in (*entry["top_logprobs"], entry):
                odds[other["token"]] = float(other["logprob"])
            texts = all(isinstance(token, str) for token in odds)
            total = sum(map(math.exp, odds.values()))
            if not texts or not total <= 1.01:  # NaN compares as false
                return []
            tokens.append((entry["token"], odds))
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        return []
    return tokens


def at_verdict(
    text: str, tokens: Sequence[Token], marker: str, texts: Texts
) -> dict[int, float] | None:
    """The scores' log-probabilities at the verdict: the scale's first token after the last marker.

    " 4" and "4" are one score; one that is not listed has probability 0. None where no verdict
    stands after the marker.
    """
    scores = {written.strip(): score for score, written in texts.items()}
    whole = "".join(token for token, _ in tokens)
    if whole.casefold().count(marker.casefold()) != text.casefold().count(marker.casefold()):
        return None
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
