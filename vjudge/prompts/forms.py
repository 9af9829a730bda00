"""What a wording shows of several criteria, and the JSON object that it asks for."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from vjudge.prompts.values import Scale
from vjudge.records import Item, Pair, Rubric, Subject

if TYPE_CHECKING:
    from vjudge.prompts.template import Template

HIGHEST = "its highest score"
"""Stands for the highest score where criteria have different scales."""


def criteria_texts(subject: Subject) -> dict[str, str]:
    """Write what is judged, and the levels of its scale, for the fields of a body.

    Where some criterion of an item has levels of its own, each criterion stands above its levels,
    and no number is the lowest or the highest score of all.
    """
    rubric = subject.rubric
    criteria = rubric.criteria if rubric else ""
    # several criteria on scales of their own, then several on one scale, then a pair's own text
    if rubric and rubric.mixed and isinstance(subject, Item):
        lines = []
        for name, rubric_alone in rubric.by_name.items():
            lines += [f"{name}: {rubric_alone.criteria}", _levels_text(rubric_alone)]
        return {"criteria": "\n".join(lines), "lowest": "its lowest", "highest": HIGHEST}
    if rubric and rubric.named:
        criteria = "\n".join(map(str, rubric.named))
    elif isinstance(subject, Pair) and subject.criteria:
        criteria = subject.criteria
    return {"criteria": criteria, "levels": _levels_text(rubric) if rubric else ""}


def _levels_text(rubric: Rubric) -> str:
    """Write the levels of a rubric, one a line."""
    return "\n".join(f"Score {score}: {text}" for score, text in rubric.levels)


def filled(reference: str, texts: Mapping[str, object]) -> str:
    """Fill the clause or the section of a reference answer."""
    if texts["highest"] == HIGHEST:  # "of score {highest}" becomes "of the highest scores"
        reference = reference.replace("score {highest}", "the highest scores")
    return reference.format(**texts)


def json_example(template: Template, rubric: Rubric | None) -> str:
    """Write an example of the JSON object that a wording asks for."""
    return json.dumps(_form(template, rubric, template.middle), ensure_ascii=False)


def schema_of(template: Template, rubric: Rubric | None) -> dict:
    """Build the JSON schema of the object that a wording asks for, for a server to enforce."""

    def verdict(scale: Scale) -> dict:
        if template.compares:
            return {"type": "string", "enum": ["A", "B", "tie"]}
        return {"type": "integer", "enum": list(scale)}

    # the form with a schema in the place of each example: {"score": {"type": "integer", ...}}
    properties = _form(template, rubric, verdict)
    properties["feedback"] = {"type": "string"}
    if "scores" in properties:
        properties["scores"] = json_object(properties["scores"])
    return json_object(properties)


def _form(template: Template, rubric: Rubric | None, verdict: Callable[[Scale], object]) -> dict:
    """Build the object that is asked for, with `verdict(scale)` at the place of each verdict.

    {"feedback": "...", "score": 3}, {"feedback": "...", "choice": "B"}, or of several criteria
    {"feedback": "...", "scores": {"Accuracy": 3, "Style": 3}}.
    """
    form: dict = {"feedback": "One or two sentences on what is right and wrong."}
    if template.compares:
        form["choice"] = verdict(())
    elif rubric and rubric.named:
        form["scores"] = {name: verdict(scale) for name, scale in rubric.scales.items()}
    else:
        form["score"] = verdict(template.scores(rubric))
    return form


def json_object(properties: dict) -> dict:
    """Build the schema of an object that has exactly these properties."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }
