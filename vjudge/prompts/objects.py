"""Read verdicts from JSON objects, which may be fenced, nested, or surrounded by prose."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from vjudge.prompts import choices, values
from vjudge.prompts.forms import json_object
from vjudge.prompts.values import (
    MORE,
    NO_VALUE,
    OFF_SCALE,
    Candidate,
    Scale,
    Value,
    ValueOrReason,
    plain_text,
)
from vjudge.records import Rubric

Cells: TypeAlias = Sequence[tuple[str, Any]]
"""The (key, value) pairs of a JSON object, in order; a key may occur twice. A nested object is a
tuple of such pairs, too, while a JSON list is a list."""

_MOST_OBJECTS = 50  # braces that are tried in one answer: bounds the time on floods of them
_DEEPEST = 5  # levels of nesting in which a verdict is looked for
# "score", "choice" or "lowest" -> a pattern of such a verdict's keys, as `_normal` writes them.
_VERDICT_KEYS = {
    "score": "(?:(?:overall|final|total|revised|corrected|adjusted)_)?"
    "(?:score|rating|grade|verdict)|overall|result",
    "choice": "(?:(?:overall|final)_)?(?:choice|winner|better_response|verdict|preference|better"
    "|answer)",
    "lowest": "score",
}
# A pattern of the keys of nested objects in which a verdict may stand.
_INNER_KEYS = (
    "(?:(?:overall|final|my|judge)_)?(?:evaluation|result|verdict|output|judge?ment|assessment|review"
    "|response|answer|data|score|rating|grad(?:e|ing)|feedback|report|analysis|json)|overall|final"
)


def json_objects(text: str, pairs: Callable | None = None) -> Iterator[tuple[int, int, Any]]:
    """Find each outermost JSON object of a text, fenced or not.

    >>> list(json_objects('Here: {"score": 4} {broken'))
    [(6, 18, {'score': 4})]

    Args:
        text: may hold anything; an object that is nested deeper than Python reads is skipped.
        pairs: a function that converts the list of an object's (key, value) pairs, such as
            `tuple`; None makes a dict.

    Yields:
        tuple: (start, stop, object), the first two in characters of the text.
    """
    decoder = json.JSONDecoder(object_pairs_hook=pairs, strict=False)
    opening = re.compile(r"\{(?=\s{0,99}[\"}])")  # a brace before a key or a closing brace
    start = 0
    for _ in range(_MOST_OBJECTS):
        brace = opening.search(text, start)
        if brace is None:
            return
        try:
            value, start = decoder.raw_decode(text, brace.start())
        except (ValueError, RecursionError):  # no JSON: go on after this brace
            start = brace.end()
        else:
            yield brace.start(), start, value


def read_json(text: str, gives: str, scale: Scale, rubric: Rubric | None = None) -> list[Candidate]:
    """Read the verdict of each JSON object in an answer.

    Args:
        text: the answer.
        gives: "score", "choice", or "lowest" for the lowest of a list of scores.
        scale: whole numbers, lowest first.
        rubric: a rubric with named criteria, each of which gets a score on its own scale; None for
            a single verdict.

    Returns:
        One candidate per object that has a verdict, or a fault in one.
    """
    scales = rubric.scales if rubric else {}
    candidates = []
    for start, stop, cells in json_objects(text, tuple):
        value = _by_name(cells, scales) if scales else _by_key(cells, gives, scale)
        # the score of several criteria is their weighted mean
        if rubric and isinstance(value, Value) and isinstance(value.scores, Mapping):
            value = value._replace(score=rubric.combined(value.scores))
        if value is not None:
            # what follows the value begins after the object: hence value_start=stop
            feedback = _feedback_in(cells)
            candidates.append(Candidate(start, stop, value, value_start=stop, feedback=feedback))
    return candidates


def read_levels(text: str, scales: Mapping[str, Mapping[int, str]]) -> dict[str, int]:
    """Read the level of each criterion from the JSON objects in a reply.

    >>> read_levels('Here it is: {"verdict": "4"}', {"": {4: " 4", 5: " 5"}})
    {'': 4}

    Args:
        text: a reply with the object that `levels_schema` describes.
        scales: criterion -> level -> what is written for it; the only criterion "" stands for a
            single verdict.

    Returns:
        Criterion -> level.

    Raises:
        ValueError: a level is missing or not on its scale, or two objects differ.
    """
    # 1) the levels in each object; a single verdict is a score, or a label such as "A" for 0
    single = scales.get("", {})  # empty for named criteria
    labels = {label.strip(' "').upper(): level for level, label in single.items()}
    gives = "score" if all(label.lstrip("-").isdigit() for label in labels) else "choice"
    readings: list = []
    for _start, _stop, cells in json_objects(text, tuple):
        value = _by_key(cells, gives, tuple(single)) if single else _by_name(cells, scales)
        if isinstance(value, str):  # the reason why the object has no verdict
            raise ValueError(value)
        if value is not None:
            level = value.score
            if value.choice is not None:  # a label, or a choice that is no label: NaN
                level = labels.get(value.choice.upper(), level)
            readings.append({"": level} if single else value.scores)
    # 2) all objects agree, and every level is on its scale
    if not readings or any(levels != readings[0] for levels in readings):
        raise ValueError("two verdicts" if readings else "no verdict in it")
    if not all(level in scales[name] for name, level in readings[0].items()):
        raise ValueError("not on the scale")
    return {name: int(level) for name, level in readings[0].items()}


def levels_schema(scales: Mapping[str, Mapping[int, str]]) -> dict:
    """Build the JSON schema of the object that `read_levels` reads.

    Args:
        scales: as in `read_levels`. The key of a criterion is its name, that of a single verdict is
            "verdict".
    """
    properties = {}
    for name, texts in scales.items():
        labels = [text.strip(' "') for text in texts.values()]
        properties[name or "verdict"] = {"type": "string", "enum": labels}
    return json_object(properties)


# --- a single verdict, under one of `_VERDICT_KEYS`


def _by_key(cells: Cells, gives: str, scale: Scale, depth: int = 0) -> ValueOrReason | None:
    """Read the verdict of an object.

    Args:
        cells: the object.
        gives: "score", "choice" or "lowest".
        scale: whole numbers, lowest first.
        depth: in how many other objects this one is nested.

    Returns:
        The verdict, or the reason why the object has none; None where it has no key of a verdict.
    """
    # 1) under its own keys; an object that names a different scale ("max": 10, "scale": "1-10") has
    #    no verdict: its highest score is the last number
    for top in _under(cells, "max(?:imum)?(?:_score)?|out_of|scale"):
        numbers = re.findall(r"\d{1,9}", str(top)) if isinstance(top, str | int | float) else []
        if gives == "score" and numbers and numbers[-1] != str(scale[-1]):
            return f"{OFF_SCALE} of {scale[0]} to {scale[-1]} (the object names another)"
    verdict = _agreed(_under(cells, _VERDICT_KEYS[gives]), gives, scale)
    if verdict not in (None, NO_VALUE):
        return verdict
    # 2) in the objects nested in it
    verdicts: set[ValueOrReason | None] = {verdict}
    for inner in _under(cells, _INNER_KEYS):
        if isinstance(inner, tuple) and depth < _DEEPEST:
            verdicts.add(_by_key(inner, gives, scale, depth + 1))
    return _only(verdicts)


def _under(cells: Cells, keys: str) -> list[Any]:
    """List the values of an object under all keys that match a pattern."""
    return [value for key, value in cells if re.fullmatch(keys, _normal(key))]


def _normal(key: str) -> str:
    """Write a key in lower case, with "_" for blanks and hyphens: "final_score"."""
    return re.sub(r"[\s-]", "_", key.strip().casefold())


def _only(verdicts: set[ValueOrReason | None]) -> ValueOrReason | None:
    """Return the verdict that all values agree on, or the reason "two verdicts".

    None counts only where there is nothing else, and `NO_VALUE` only beside None.
    """
    for silent in (None, NO_VALUE):
        if len(verdicts) > 1:
            verdicts.discard(silent)
    return verdicts.pop() if len(verdicts) == 1 else "two verdicts (in one object)"


def _agreed(entries: Sequence[Any], gives: str, scale: Scale) -> ValueOrReason | None:
    """Read the entries under a verdict's keys, which must agree.

    Args:
        entries: values of a JSON object; one that is an object itself has the verdict under its
            key "score" or "value".
        gives: "score", "choice" or "lowest".
        scale: whole numbers, lowest first.

    Returns:
        The verdict, or the reason why there is none; None without entries.
    """
    verdicts: set[ValueOrReason | None] = {None}  # `_only` drops None where there is anything else
    for entry in entries:
        if isinstance(entry, tuple):  # {"accuracy": {"score": 4, "feedback": "..."}}
            entry = dict(entry).get("score", dict(entry).get("value"))
        if gives == "lowest":
            verdicts.add(_lowest(entry, scale))
        elif isinstance(entry, bool | list):
            verdicts.add(MORE)
        elif isinstance(entry, str | int | float):  # "4/5 (good)" is read as a line is
            text = plain_text(str(entry)[: values.LONGEST + 1])
            verdicts.add(values.score(text, scale) if gives == "score" else choices.choice(text))
        else:
            verdicts.add(NO_VALUE)
    return _only(verdicts)


def _lowest(entry: object, scale: Scale) -> ValueOrReason:
    """Read the lowest of a list of scores: VIEScore's [4, 2] is the score 2, and so is a lone 2.

    Returns:
        The lowest score with all `scores`, or the reason why one entry of the list is no score.
    """
    scores = []
    for number in entry if isinstance(entry, list) else [entry]:
        if not isinstance(number, str | int | float):
            return MORE
        text = plain_text(str(number)[: values.LONGEST])
        value = values.score(text, scale, halves=True)
        if isinstance(value, str):
            return value
        scores.append(value.score)
    return Value(min(scores), scores=tuple(scores)) if scores else NO_VALUE


# --- a score for each of several criteria


def _by_name(cells: Cells, scales: Mapping[str, Any]) -> ValueOrReason | None:
    """Read the score of each criterion from an object.

    Args:
        cells: has the scores under its key "scores", or under the criteria's names. Each score is a
            number, a text, or an object with one of these.
        scales: criterion -> the scores of its scale, lowest first.

    Returns:
        The `scores` by criterion, or the reason why one of them can't be read; None where no
        criterion has a score, so that the object is no verdict.
    """
    # {"scores": {"Accuracy": 4, "Style": 2}}, or {"accuracy": {"score": 4}, "style": "2/5"}
    for inner in _under(cells, "scores"):
        if isinstance(inner, tuple):
            cells = inner
    scores = {}
    for name, scale in scales.items():
        value = _agreed(_under(cells, re.escape(_normal(name))), "score", tuple(scale))
        if isinstance(value, Value) and value.choice is None:  # an abstention is no score
            scores[name] = value.score
        elif isinstance(value, str) and value != NO_VALUE:
            return f"{value} (criterion {name})"
    absent = [name for name in scales if name not in scores]
    if absent:
        return f"no verdict marker (no score for {', '.join(absent)})" if scores else None
    return Value(scores=scores)


def _feedback_in(cells: Cells) -> str | None:
    """Return the feedback in an object: a text, or an object with one text per criterion."""
    texts = _under(cells, "feedback|reasoning|explanation|rationale|reason|analysis")
    if not texts:
        return None
    feedback = texts[0]
    if isinstance(feedback, tuple):
        feedback = "\n".join(f"{name}: {text}" for name, text in feedback)
    return str(feedback).strip()
