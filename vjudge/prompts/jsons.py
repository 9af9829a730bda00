"""Read verdicts that are JSON objects: fenced or not, with prose around them or not."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from vjudge.prompts.values import (
    MORE,
    NO_VALUE,
    OFF_SCALE,
    Reading,
    Said,
    choice,
    plain_text,
    score,
)
from vjudge.records import weighted_mean

_KEYS = {
    "score": (
        *("score", "rating", "overall_score", "final_score", "overall", "total_score"),
        *("revised_score", "corrected_score", "adjusted_score"),
    ),
    "choice": ("choice", "winner", "better_response", "verdict", "preference", "better", "answer"),
}
_FEEDBACK_KEYS = ("feedback", "reasoning", "explanation", "rationale", "reason", "analysis")
_TOPS = ("max_score", "maximum_score", "max", "maximum", "out_of", "scale")  # of another scale
_MOST_STARTS = 50  # bounds the time on floods of opening braces
_TWICE = object()  # the value of a key that stands twice


def _key(name: str) -> str:
    return re.sub(r"[\s-]", "_", name.strip().casefold())


def _cells(pairs: list) -> dict:
    cells: dict = {}
    for name, value in pairs:
        key = _key(name)
        cells[key] = _TWICE if key in cells else value
    return cells


def read(text: str, gives: str, scale: Sequence, weights: Mapping) -> list:
    """What each JSON object with a verdict in it says."""
    decoder = json.JSONDecoder(object_pairs_hook=_cells, strict=False)
    readings = []
    end = 0
    for _ in range(_MOST_STARTS):
        start = text.find("{", end)
        if start < 0:
            break
        try:
            cells, end = decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            end = start + 1  # no JSON: look behind this brace
            continue
        said = _named(cells, scale, weights) if weights else _said(cells, gives, scale)
        if said is not None:
            readings.append(Reading(start, end, said, said == NO_VALUE, _feedback(cells)))
    return readings


def _said(cells: Mapping, gives: str, scale: Sequence) -> Said | str | None:
    """What an object says, or why it says nothing; None where it holds no key of a verdict."""
    found = [_value(cells[key], gives, scale) for key in _KEYS[gives] if key in cells]
    if not found:
        return None
    if len(set(found)) > 1:
        return "two verdicts (under two keys)"
    for key in _TOPS:
        top = re.findall(r"\d+", str(cells.get(key)))
        if gives == "score" and top and top[-1] != str(scale[-1]):
            return f"{OFF_SCALE} of {scale[0]} to {scale[-1]} ({key})"
    return found[0]


def _value(value: Any, gives: str, scale: Sequence) -> Said | str:
    if value is None:
        return NO_VALUE
    if value is _TWICE:
        return "two verdicts (a key stands twice)"
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return MORE
    line = plain_text(f"{value:.9g}" if isinstance(value, float) else str(value))
    return score(line, scale) if gives == "score" else choice(line, scale)


def _named(cells: Mapping, scale: Sequence, weights: Mapping) -> Said | str | None:
    """The score of each criterion, under "scores" or beside each other, as numbers or objects."""
    if isinstance(cells.get("scores"), dict):
        cells = cells["scores"]
    scores = {}
    absent = []
    for name in weights:
        value = cells.get(_key(name))
        if isinstance(value, dict):
            value = value.get("score")
        said = _value(value, "score", scale)
        if isinstance(said, Said) and said.score is not None:
            scores[name] = said.score
        elif said in (NO_VALUE, Said(choice="abstain")):
            absent.append(name)
        else:
            return f"{said} (criterion {name})"
    if absent:
        given = any(_key(name) in cells for name in weights)
        return f"no verdict marker (no score for {', '.join(absent)})" if given else None
    return Said(score=weighted_mean(scores, weights), scores=scores)


def _feedback(cells: Mapping) -> str | None:
    """The feedback that an object holds."""
    for key in _FEEDBACK_KEYS:
        value = cells.get(key)
        if isinstance(value, str):
            return value.strip()
        if isinstance(value, dict):
            return "\n".join(f"{name}: {text}" for name, text in value.items())
    return None
