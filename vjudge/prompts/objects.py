"""Read verdicts out of JSON objects, fenced or not, with prose around them or not."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import NamedTuple

from vjudge.prompts import values
from vjudge.prompts.values import MORE, NO_VALUE, OFF_SCALE, Said, plain_text
from vjudge.records import weighted_mean


class Reading(NamedTuple):
    """What is said at one place of an answer, or as a text why nothing is."""

    start: int
    end: int
    said: Said | str
    feedback: str | None = None  # that stands there, too
    prose: bool = False  # of no value in the first words: a heading, say


_KEYS = {
    "score": "(?:(?:overall|final|total|revised|corrected|adjusted)_)?(?:score|rating)|overall",
    "choice": "choice|winner|better_response|verdict|preference|better|answer",
}


def _under(cells: Sequence, keys: str) -> list:
    """The values of an object under all keys that match a pattern; a key may stand twice."""
    return [value for key, value in cells if re.fullmatch(keys, _key(key))]


def _key(name: str) -> str:
    return re.sub(r"[\s-]", "_", name.strip().casefold())


def read_json(text: str, gives: str, scale: Sequence, weights: Mapping) -> list:
    """What each JSON object with a verdict in it says."""
    decoder = json.JSONDecoder(object_pairs_hook=tuple, strict=False)
    readings = []
    end = 0
    for brace in islice(re.finditer(r"\{", text), 50):  # in floods of braces no more are tried
        if brace.start() < end:
            continue
        try:
            cells, end = decoder.raw_decode(text, brace.start())
        except (ValueError, RecursionError):  # no JSON
            continue
        said = _by_name(cells, scale, weights) if weights else _by_key(cells, gives, scale)
        if said is not None:
            readings.append(Reading(brace.start(), end, said, _told(cells)))
    return readings


def read_verdicts(text: str, scales: Mapping) -> dict:
    """The level of each named criterion, or of "" a verdict's, in a JSON object.

    `scales` maps each name to its scale: level -> text. ValueError: a level is missing, or two
    objects differ.

    >>> read_verdicts('Here it is: {"verdict": "4"}', {"": {4: " 4", 5: " 5"}})
    {'': 4}
    """
    (texts, *_) = scales.values()
    labels = {text.strip(' "'): level for level, text in texts.items()}
    gives = "score" if all(label.lstrip("-").isdigit() for label in labels) else "choice"
    readings = []
    if gives == "score":
        weights = {name or "verdict": 1.0 for name in scales}
        readings = read_json(text, gives, tuple(texts), weights)
    if not readings and "" in scales:
        readings = read_json(text, gives, tuple(texts), {})
    found = []
    for reading in readings:
        said = reading.said
        if isinstance(said, str):
            raise ValueError(said)
        levels = said.scores or {"verdict": labels.get(str(said.choice).upper(), said.score)}
        found.append({name: levels[name or "verdict"] for name in scales})
    if not found or any(each != found[0] for each in found):
        raise ValueError("two verdicts" if found else "no verdict in it")
    if not all(level in texts for level in found[0].values()):
        raise ValueError("not on the scale")
    return {name: int(level) for name, level in found[0].items()}


def _by_key(cells: Sequence, gives: str, scale: Sequence) -> Said | str | None:
    """What an object says, or why it says nothing; None where it holds no key of a verdict."""
    for top in _under(cells, "max(?:imum)?(?:_score)?|out_of|scale"):
        numbers = re.findall(r"\d+", str(top))
        if gives == "score" and numbers and numbers[-1] != str(scale[-1]):
            return f"{OFF_SCALE} of {scale[0]} to {scale[-1]} (the object names another)"
    return _together(_under(cells, _KEYS[gives]), gives, scale)


def _together(given: Sequence, gives: str, scale: Sequence) -> Said | str | None:
    """What the values under a key say; None without any."""
    found = set()
    for value in given:
        if isinstance(value, tuple):  # {"accuracy": {"score": 4, "feedback": "..."}}
            value = dict(value).get("score")
        line = plain_text(value if isinstance(value, str) else json.dumps(value))
        said = values.score(line, scale) if gives == "score" else values.choice(line)
        found.add(MORE if isinstance(value, bool | list) else said)
    if len(found) > 1:
        return "two verdicts (in one object)"
    return found.pop() if found else None


def _by_name(cells: Sequence, scale: Sequence, weights: Mapping) -> Said | str | None:
    """The score of each criterion, under "scores" or beside each other, as numbers or objects."""
    for inner in _under(cells, "scores"):
        cells = inner if isinstance(inner, tuple) else cells
    scores = {}
    for name in weights:
        said = _together(_under(cells, re.escape(_key(name))), "score", scale)
        if isinstance(said, Said) and said.choice is None:
            scores[name] = said.score
        elif isinstance(said, str) and said != NO_VALUE:
            return f"{said} (criterion {name})"
    absent = [name for name in weights if name not in scores]
    if absent:
        return f"no verdict marker (no score for {', '.join(absent)})" if scores else None
    return Said(weighted_mean(scores, weights), scores=scores)


def _told(cells: Sequence) -> str | None:
    """The feedback that an object holds."""
    for told in _under(cells, "feedback|reasoning|explanation|rationale|reason|analysis"):
        if isinstance(told, tuple):
            return "\n".join(f"{name}: {text}" for name, text in told)
        return str(told).strip()
    return None
