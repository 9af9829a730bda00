"""The data sets of Prometheus-Vision, Prometheus and Prometheus 2: the `orig_*` columns, and ready training rows."""

from __future__ import annotations

import math
import re
from typing import Any

from vjudge.data.schema import Adapter, BadRow, Row, images, plain, rest
from vjudge.prompts import TEMPLATES
from vjudge.prompts.parse import parse
from vjudge.records import Item, Rubric, as_score, is_missing

ALIASES: dict[str, tuple[str, ...]] = {
    "instruction": ("orig_instruction",),
    "response": ("orig_response", "original_response"),
    "reference_answer": ("orig_reference_answer",),
    "criteria": ("orig_criteria",),
    "gold": ("orig_score",),
    "feedback": ("orig_feedback",),
}
"""Canonical column -> its published names; prometheus-vision's evaluation samples say `original_response`."""
_LEVEL = re.compile(r"orig_score(-?\d+)_description")
_READY = ("output", "messages", "input", "image", "images")  # the prompt and target over again; the image is kept
_HEADER = re.compile(r"\n###(?:The instruction|Response|Reference Answer|Score Rubrics|Feedback)")
_RUBRIC_LEVEL = re.compile(r"\nScore (-?\d+): ")
_SECTIONS = re.compile(
    r"###The instruction to evaluate:\n(?P<instruction>.*)\n\n###Response to evaluate:\n(?P<response>.*?)"
    r"(?:\n\n###Reference Answer \(Score \d+\):\n(?P<reference>.*))?\n\n"
    r"###Score Rubrics:\n(?P<rubric>.*)\n\n###Feedback:",
    re.DOTALL,
)


def read_item(row: Row, part: str | None = None) -> dict[str, Any]:
    """A row of Perception-Collection, Feedback-Collection or Feedback-Bench; the score may stand in the target."""
    cells = read_question(row)
    if not any(name in row for name in ALIASES["response"]):
        raise BadRow(("response", "there is no column orig_response or original_response", "add or rename it"))
    unscored = is_missing(cells["gold"]) or not str(cells["gold"]).strip()
    if unscored and isinstance(row.get("output"), str):
        lowest = int(cells.get("lowest", 1))
        scores = tuple(range(lowest, lowest + len(cells["descriptions"])))
        cells["gold"], cells["feedback"] = _read_target(row["output"], scores, "output")
    return cells


def read_question(row: Row, part: str | None = None) -> dict[str, Any]:
    """A row of Perception-Bench, which has neither response nor score."""
    cells: dict[str, Any] = {}
    for name, aliases in ALIASES.items():
        column = next((alias for alias in aliases if alias in row), None)
        if column is None and name in ("instruction", "criteria"):
            raise BadRow((name, f"there is no column {aliases[0]}", "add or rename it"))
        cells[name] = None if column is None else plain(row[column])
    levels = {int(match[1]): row[name] for name in row if (match := _LEVEL.fullmatch(name))}
    lowest = min(levels, default=1)
    if sorted(levels) != list(range(lowest, lowest + len(levels))):
        raise BadRow(("descriptions", f"the levels are for scores {sorted(levels)}", "leave no score out"))
    cells["descriptions"] = [levels[score] for score in sorted(levels)]
    if lowest != 1:
        cells["lowest"] = lowest
    others = rest(row, *_READY, *(alias for aliases in ALIASES.values() for alias in aliases))
    others = {name: value for name, value in others.items() if not _LEVEL.fullmatch(name)}
    return {**others, **cells, "images": images(row, "images" if "images" in row else "image")}


def read_preference(row: Row, part: str | None = None) -> dict[str, Any]:
    """A row of Preference-Collection, in strings; one that contradicts itself keeps no preference and says why."""
    columns = {"instruction": "orig_instruction", "response_a": "orig_response_A", "response_b": "orig_response_B"}
    columns["criteria"] = "orig_criteria"
    cells: dict[str, Any] = {name: plain(row.get(column)) for name, column in columns.items()}
    blank = [name for name, cell in cells.items() if not isinstance(cell, str) or not cell.strip()]
    faults = [f"{columns[name]} is missing or blank" for name in blank]
    for side in "ab":
        column, score = f"orig_score_{side.upper()}", math.nan
        try:
            score = as_score(row.get(column))
        except ValueError as error:
            faults.append(f"{column}: {error}")
        if not math.isnan(score) and score not in (1, 2, 3, 4, 5):
            faults.append(f"{column}: {score:g} is not a whole number from 1 to 5")
            score = math.nan
        cells[f"score_{side}"] = score
    preference: str | None = str(row.get("orig_preference")).strip().lower()
    if preference not in ("a", "b"):
        faults.append(f"orig_preference: {row.get('orig_preference')!r} is neither A nor B")
        preference = None
    elif cells[f"score_{preference}"] < cells[f"score_{'b' if preference == 'a' else 'a'}"]:
        stated = f"A {cells['score_a']:g}, B {cells['score_b']:g}"
        faults.append(f"orig_preference: {preference.upper()} contradicts the scores ({stated})")
        preference = None
    read = ("orig_score_A", "orig_score_B", "orig_preference", "orig_reference_answer", "orig_feedback", "instruction")
    return {
        **rest(row, *_READY, *columns.values(), *read),
        **cells,
        "preference": preference,
        "reference_answer": plain(row.get("orig_reference_answer")),
        "feedback": plain(row.get("orig_feedback")),
        "fault": "; ".join(faults) or None,
    }


def read_training(row: Row, part: str | None = None) -> dict[str, Any]:
    """A training row of prometheus-vision: its prompt taken apart, byte for byte, and its target's verdict.

    Source: kaistAI/prometheus-vision sample_train_data.json.
    """
    try:
        turns = [turn["value"] for turn in row["conversations"]]
        item, rubric = _take_apart(turns[0])
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        what = "the prompt is in no known wording, or its sections cannot be told apart"
        raise BadRow(("conversations", what, "use the collection's orig_* columns")) from error
    cells = {**rest(row, "conversations", "image", "images"), "criteria": rubric.criteria}
    cells |= {name: getattr(item, name) for name in ("instruction", "response", "reference_answer")}
    cells |= {
        "descriptions": list(rubric.descriptions),
        "images": images(row, "images" if "images" in row else "image"),
    }
    if rubric.lowest != 1:
        cells["lowest"] = rubric.lowest
    if len(turns) > 1:
        cells["gold"], cells["feedback"] = _read_target(turns[1], rubric.scores, "conversations")
    return cells


def _read_target(text: str, scores: tuple[int, ...], field: str) -> tuple[float, str]:
    """The score and the feedback of a judge's target text."""
    verdict = parse(text, scores=scores or (1,))
    if verdict.failure:
        raise BadRow((field, f"its target text has {verdict.failure}", "correct it or leave the row out"))
    return verdict.score, verdict.feedback


def _take_apart(prompt: str) -> tuple[Item, Rubric]:
    """The item that renders to this prompt; ValueError unless there is exactly one way to read it."""
    headers = _HEADER.findall(prompt)
    match = _SECTIONS.search(prompt)
    if match is None or len(headers) != len(set(headers)):
        raise ValueError("the sections are not there, or one of them twice")
    criteria, *parts = _RUBRIC_LEVEL.split(match["rubric"])
    levels, lowest = tuple(parts[1::2]), int(parts[0])
    places = ("",) * len(re.match(r"(?:<image>\n)*", prompt)[0].split("\n")[:-1])  # type: ignore[index]
    for template in TEMPLATES.values():
        if template.compares or not template.sees_images or not template.needs:
            continue
        for text in (criteria, criteria[1:-1]):  # some wordings put the criteria in brackets
            rubric = Rubric(text, levels, lowest)
            item = Item("", places, match["instruction"], match["response"], rubric, match["reference"])
            if template.render(item).text == template.conversation.opening + prompt + template.conversation.closing:
                return item, rubric
    raise ValueError("no template renders to it")


_QUESTION, _RESPONSE = ("orig_instruction", "orig_criteria"), ("orig_instruction", "orig_response")
_LEVELS = ("orig_criteria", "orig_score1_description", "orig_score5_description")
_PAIR = ("orig_response_A", "orig_response_B", "orig_preference")


def _set(name: str, read: Any, columns: tuple[str, ...], *, home: str = "prometheus-eval", **options: Any) -> Adapter:
    """A set that both of the authors' accounts hold on the hub; the only split of all is train."""
    ids = dict.fromkeys((home, "prometheus-eval", "kaist-ai"))
    return Adapter(name, read, columns, tuple(f"{owner}/{name}" for owner in ids), **options)


ADAPTERS = (
    _set("Perception-Collection", read_item, _RESPONSE, home="kaist-ai", strict=True),
    _set("Perception-Bench", read_question, _QUESTION, home="kaist-ai", strict=True, benchmark="perception-bench"),
    _set("Feedback-Collection", read_item, _RESPONSE, strict=True),
    _set("Feedback-Bench", read_item, _RESPONSE + _LEVELS, strict=True, benchmark="feedback-bench"),
    _set("Preference-Collection", read_preference, _PAIR),
    Adapter("prometheus-vision evaluation rows", read_item, ("orig_instruction", "original_response"), strict=True),
    Adapter("prometheus-vision training rows", read_training, ("conversations",), strict=True),
)
