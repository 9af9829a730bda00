"""The data sets of Prometheus-Vision, Prometheus and Prometheus 2: the `orig_*` columns, and ready training rows."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from vjudge.data.schema import Adapter, BadRow, Row, levels_of
from vjudge.prompts import TEMPLATES
from vjudge.prompts.parse import parse
from vjudge.records import NAN, Item, Rubric, as_score, is_missing

_LEVEL = re.compile(r"orig_score(-?\d+)_description")
_HEADER = re.compile(r"\n###(?:The instruction|Response|Reference Answer|Score Rubrics|Feedback)")
_SECTIONS = re.compile(
    r"\A(?P<images>(?:<image>\n)*).*?"
    r"###The instruction to evaluate:\n(?P<instruction>.*)\n\n###Response to evaluate:\n(?P<response>.*?)"
    r"(?:\n\n###Reference Answer \(Score \d+\):\n(?P<reference>.*))?\n\n"
    r"###Score Rubrics:\n(?P<rubric>.*)\n\n###Feedback:",
    re.DOTALL,
)


def _rubric(row: Row, part: str | None) -> dict[str, Any]:
    """The level descriptions; of a row without a score also score and feedback, as its target text states them."""
    cells: dict[str, Any] = {"descriptions": []} | levels_of(row, _LEVEL)
    score, lowest = row.get("orig_score"), cells.get("lowest", 1)
    if (is_missing(score) or not str(score).strip()) and isinstance(row.get("output"), str):
        scores = range(lowest, lowest + len(cells["descriptions"])) or (1,)
        cells["gold"], cells["feedback"] = _target(row["output"], scores, "output")
    return cells


def _preference(row: Row, part: str | None) -> dict[str, Any]:
    """The scores and the preference of a pair; where it contradicts the scores there is none, and `fault` says why."""
    scores, faults = dict.fromkeys("ab", NAN), []
    for side in "ab":
        try:
            scores[side] = as_score(row.get(f"orig_score_{side.upper()}"))
        except ValueError as error:
            faults.append(f"orig_score_{side.upper()}: {error}")
    preference = str(row.get("orig_preference")).strip().lower()
    if preference not in ("a", "b"):
        faults.append(f"orig_preference: {row.get('orig_preference')!r} is neither A nor B")
    elif scores[preference] < max(scores.values()):
        stated = f"A {scores['a']:g}, B {scores['b']:g}"
        faults.append(f"orig_preference: {preference.upper()} contradicts the scores ({stated})")
    cells = {"score_a": scores["a"], "score_b": scores["b"], "preference": None if faults else preference}
    return cells | {"fault": "; ".join(faults) or None}


def _training(row: Row, part: str | None) -> dict[str, Any]:
    """A training row of prometheus-vision: its prompt taken apart, byte for byte, and its target's verdict.

    Source: kaistAI/prometheus-vision sample_train_data.json.
    """
    try:
        prompt, *targets = [turn["value"] for turn in row["conversations"]]
        item, rubric = _take_apart(prompt)
    except (LookupError, TypeError, ValueError) as error:
        what = "the prompt is in no known wording, or its sections cannot be told apart"
        raise BadRow(("conversations", what, "use the collection's orig_* columns")) from error
    cells = {name: getattr(item, name) for name in ("instruction", "response", "reference_answer")}
    cells |= {"criteria": rubric.criteria, "descriptions": list(rubric.descriptions)}
    cells |= {"lowest": rubric.lowest} if rubric.lowest != 1 else {}
    if targets:
        cells["gold"], cells["feedback"] = _target(targets[0], rubric.scores, "conversations")
    return cells


def _target(text: str, scores: Sequence[int], field: str) -> tuple[float, str]:
    """The score and the feedback of a judge's target text."""
    verdict = parse(text, scores=scores)
    if verdict.failure:
        raise BadRow((field, f"its target text has {verdict.failure}", "correct it or leave the row out"))
    return verdict.score, verdict.feedback


def _take_apart(prompt: str) -> tuple[Item, Rubric]:
    """The item that renders to this prompt; ValueError unless there is exactly one way to read it."""
    headers, match = _HEADER.findall(prompt), _SECTIONS.search(prompt)
    if match is None or len(headers) != len(set(headers)):
        raise ValueError("the sections are not there, or one of them twice")
    criteria, *levels = re.split(r"\nScore (-?\d+): ", match["rubric"])
    places = ("",) * match["images"].count("\n")
    for template in TEMPLATES.values():
        if template.compares or not template.sees_images or not template.needs:
            continue
        for text in (criteria, criteria[1:-1]):  # some wordings put the criteria in brackets
            rubric = Rubric(text, tuple(levels[1::2]), int(levels[0]))
            item = Item("", places, match["instruction"], match["response"], rubric, match["reference"])
            if template.render(item).text == template.conversation.opening + prompt + template.conversation.closing:
                return item, rubric
    raise ValueError("no template renders to it")


_NAMES = {
    "images": "images image",
    "instruction": "orig_instruction",
    "reference_answer": "orig_reference_answer",
    "criteria": "orig_criteria",
    "feedback": "orig_feedback",
}
_ITEM = _NAMES | {"response": "orig_response original_response", "gold": "orig_score"}  # samples say `original_`
_PAIR = _NAMES | {"response_a": "orig_response_A", "response_b": "orig_response_B"}
# The prompt and target over again, and what was read.
_DROP = f"instruction|output|messages|input|image|images|{_LEVEL.pattern}|orig_(score|response|preference)(_[AB])?"


def _set(name: str, columns: str, names: dict[str, str], owner: str = "prometheus-eval", **options: Any) -> Adapter:
    """A set that both of the authors' accounts hold on the hub; the only split of all is train."""
    ids = tuple(f"{account}/{name}" for account in dict.fromkeys((owner, "prometheus-eval", "kaist-ai")))
    return Adapter(name, tuple(columns.split()), names, **{"more": _rubric, "drop": _DROP, "ids": ids, **options})


_RESPONSE, _BOTH = "orig_instruction orig_response", "orig_response_A orig_response_B orig_preference"
_BENCH = f"{_RESPONSE} orig_criteria orig_score1_description orig_score5_description"
_SAMPLES = "orig_instruction original_response"

ADAPTERS = (
    _set("Perception-Collection", _RESPONSE, _ITEM, "kaist-ai"),
    _set("evaluation samples", _SAMPLES, _ITEM, ids=(), benchmark="perception-bench"),
    _set("Perception-Bench", "orig_instruction orig_criteria", _NAMES, "kaist-ai", benchmark="perception-bench"),
    _set("Feedback-Collection", _RESPONSE, _ITEM),
    _set("Feedback-Bench", _BENCH, _ITEM, benchmark="feedback-bench"),
    _set("Preference-Collection", _BOTH, _PAIR, more=_preference),
    Adapter(
        "prometheus-vision training rows",
        ("conversations",),
        {"images": "images image"},
        _training,
        "conversations|image|images",
    ),
)
