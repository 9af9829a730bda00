"""Read verdicts out of JSON objects, fenced or not, nested or not, in prose or not."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from vjudge.prompts import values
from vjudge.prompts.values import MORE, NO_VALUE, OFF_SCALE, Said, plain_text
from vjudge.records import Rubric


class Reading(NamedTuple):
    """What is said at one place of an answer, or as a text why nothing is."""

    start: int
    end: int
    said: Said | str
    feedback: str | None = None  # that stands there, too
    prose: bool = False  # of no value in the first words: a heading, say
    value: int = 0  # where the value begins


_TRIES = 50  # bounds the time on floods of braces
_DEPTH = 5  # of an object inside others
_KEYS = {
    "score": "(?:(?:overall|final|total|revised|corrected|adjusted)_)?"
    "(?:score|rating|grade|verdict)|overall|result",
    "choice": "(?:(?:overall|final)_)?(?:choice|winner|better_response|verdict|preference|better"
    "|answer)",
    "lowest": "score",
}
_INSIDE = (  # keys of objects in which a verdict may stand
    "(?:(?:overall|final|my|judge)_)?(?:evaluation|result|verdict|output|judge?ment|assessment|review"
    "|response|answer|data|score|rating|grad(?:e|ing)|feedback|report|analysis|json)|overall|final"
)


def json_objects(text: str, pairs: Callable | None = None) -> Iterator[tuple[int, int, Any]]:
    """Each outermost JSON object of a text, fenced or not, behind its begin and its end.

    >>> [found for *_, found in json_objects('Here: {"score": 4} {broken')]
    [{'score': 4}]

    Args:
        text: may hold anything; an object nested deeper than Python reads is passed over.
        pairs: makes a value of an object's keys and values; None for a dict.
    """
    decoder = json.JSONDecoder(object_pairs_hook=pairs, strict=False)
    start = 0
    for _ in range(_TRIES):
        brace = re.compile(r"\{(?=\s{0,99}[\"}])").search(text, start)
        if brace is None:
            return
        try:
            value, start = decoder.raw_decode(text, brace.start())
        except (ValueError, RecursionError):  # no JSON: look behind this brace
            start = brace.end()
        else:
            yield brace.start(), start, value


def _under(cells: Sequence, keys: str) -> list:
    """The values of an object under all keys that match a pattern; a key may stand twice."""
    return [value for key, value in cells if re.fullmatch(keys, _key(key))]


def _key(name: str) -> str:
    return re.sub(r"[\s-]", "_", name.strip().casefold())


def read_json(text: str, gives: str, scale: Sequence, rubric: Rubric | None = None) -> list:
    """What each JSON object with a verdict in it says.

    It `gives` a "score", a "choice", or of a list of scores the "lowest"; or each named criterion
    of a rubric a score.
    """
    scales = {name: each.scores for name, each in rubric.by_name.items()} if rubric else {}
    readings = []
    for start, stop, cells in json_objects(text, tuple):
        verdict = _by_name(cells, scales) if scales else _by_key(cells, gives, scale)
        if rubric and isinstance(verdict, Said) and isinstance(verdict.scores, Mapping):
            verdict = verdict._replace(score=rubric.combined(verdict.scores))
        if verdict is not None:
            readings.append(Reading(start, stop, verdict, _told(cells), value=stop))
    return readings


def read_verdicts(text: str, scales: Mapping) -> dict:
    """The level of each named criterion, or of "" a verdict's, in a JSON object.

    `scales` maps each name to its scale: level -> text. ValueError: a level is missing, or two
    objects differ.

    >>> read_verdicts('Here it is: {"verdict": "4"}', {"": {4: " 4", 5: " 5"}})
    {'': 4}
    """
    texts = scales.get("", {})
    labels = {text.strip(' "'): level for level, text in texts.items()}
    gives = "score" if all(label.lstrip("-").isdigit() for label in labels) else "choice"
    readings: list = []
    for *_, cells in json_objects(text, tuple):
        verdict = _by_key(cells, gives, tuple(texts)) if texts else _by_name(cells, scales)
        if isinstance(verdict, str):
            raise ValueError(verdict)
        if verdict is not None:
            readings.append(
                verdict.scores or {"": labels.get(str(verdict.choice).upper(), verdict.score)}
            )
    if not readings or any(levels != readings[0] for levels in readings):
        raise ValueError("two verdicts" if readings else "no verdict in it")
    if not all(level in scales[name] for name, level in readings[0].items()):
        raise ValueError("not on the scale")
    return {name: int(level) for name, level in readings[0].items()}


def _by_key(cells: Sequence, gives: str, scale: Sequence, depth: int = 0) -> Said | str | None:
    """What an object says, or why it says nothing; None where it holds no key of a verdict."""
    # 1) its own keys
    for top in _under(cells, "max(?:imum)?(?:_score)?|out_of|scale"):
        numbers = re.findall(r"\d{1,9}", str(top)) if isinstance(top, str | int | float) else []
        if gives == "score" and numbers and numbers[-1] != str(scale[-1]):
            return f"{OFF_SCALE} of {scale[0]} to {scale[-1]} (the object names another)"
    verdict = _together(_under(cells, _KEYS[gives]), gives, scale)
    if verdict not in (None, NO_VALUE):
        return verdict
    # 2) those of the objects inside it
    inner = [cell for cell in _under(cells, _INSIDE) if isinstance(cell, tuple)]
    verdicts: set = {verdict}
    for cell in inner if depth < _DEPTH else ():
        verdicts.add(_by_key(cell, gives, scale, depth + 1))
    return _only(verdicts)


def _only(verdicts: set) -> Said | str | None:
    """What several values say; those that say nothing don't count beside one that does."""
    for silent in (None, NO_VALUE):
        if len(verdicts) > 1:
            verdicts.discard(silent)
    return verdicts.pop() if len(verdicts) == 1 else "two verdicts (in one object)"


def _together(cells: Sequence, gives: str, scale: Sequence) -> Said | str | None:
    """What the values under a key say; None without any."""
    verdicts: set = {None}
    for cell in cells:
        if isinstance(cell, tuple):  # {"accuracy": {"score": 4, "feedback": "..."}}
            cell = dict(cell).get("score", dict(cell).get("value"))
        if gives == "lowest":
            verdicts.add(_lowest(cell, scale))
        elif isinstance(cell, bool | list):
            verdicts.add(MORE)
        elif isinstance(cell, str | int | float):
            text = plain_text(str(cell)[: values.LONGEST + 1])
            verdicts.add(values.score(text, scale) if gives == "score" else values.choice(text))
        else:
            verdicts.add(NO_VALUE)
    return _only(verdicts)


def _lowest(cell: object, scale: Sequence) -> Said | str:
    """The lowest of a list of scores, which are all kept; or why one of them is none."""
    scores = []
    for number in cell if isinstance(cell, list) else [cell]:
        level: Said | str = MORE
        if isinstance(number, str | int | float):
            level = values.score(plain_text(str(number)[: values.LONGEST]), scale, halves=True)
        if isinstance(level, str):
            return level
        scores.append(level.score)
    return Said(min(scores), scores=tuple(scores)) if scores else NO_VALUE


def _by_name(cells: Sequence, scales: Mapping[str, Iterable[int]]) -> Said | str | None:
    """The score of each criterion, under "scores" or beside each other, as numbers or objects."""
    for inner in _under(cells, "scores"):
        cells = inner if isinstance(inner, tuple) else cells
    scores = {}
    for name, scale in scales.items():
        verdict = _together(_under(cells, re.escape(_key(name))), "score", tuple(scale))
        if isinstance(verdict, Said) and verdict.choice is None:
            scores[name] = verdict.score
        elif isinstance(verdict, str) and verdict != NO_VALUE:
            return f"{verdict} (criterion {name})"
    absent = [name for name in scales if name not in scores]
    if absent:
        return f"no verdict marker (no score for {', '.join(absent)})" if scores else None
    return Said(scores=scores)


def _told(cells: Sequence) -> str | None:
    """The feedback that an object holds."""
    texts = _under(cells, "feedback|reasoning|explanation|rationale|reason|analysis")
    if not texts:
        return None
    lines = (
        [f"{name}: {text}" for name, text in texts[0]] if isinstance(texts[0], tuple) else texts[:1]
    )
    return "\n".join(map(str, lines)).strip()
