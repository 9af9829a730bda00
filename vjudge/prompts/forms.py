"""What a wording shows of several criteria, and the JSON object that it asks for."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING

from vjudge.prompts.values import Scale
from vjudge.records import Rubric

if TYPE_CHECKING:
    from vjudge.prompts.template import Template

MIXED_SCALES = {"lowest": "its lowest", "highest": "its highest score", "levels": ""}
"""Fields of a body where some criterion has a scale of its own: no number holds for all."""


def criteria_text(rubric: Rubric) -> str:
    """Write several criteria, one a line."""
    return "\n".join(f"{criterion.name}: {criterion.description}" for criterion in rubric.named)


def criteria_with_levels(rubric: Rubric) -> str:
    """Write several criteria of which some have levels of their own: each above its levels."""
    lines = []
    for name, criterion in rubric.by_name.items():
        lines += [f"{name}: {criterion.criteria}", levels_text(criterion)]
    return "\n".join(lines)


def levels_text(rubric: Rubric) -> str:
    """Write the levels of a rubric, one a line."""
    return "\n".join(f"Score {score}: {text}" for score, text in rubric.levels)


def json_example(template: Template, rubric: Rubric | None) -> str:
    """Write an example of the JSON object that a wording asks for."""
    return json.dumps(_form(template, rubric, template.middle), ensure_ascii=False)


def schema_of(template: Template, rubric: Rubric | None) -> dict:
    """Build the JSON schema of the object that a wording asks for, for a server to enforce."""

    def verdict(scale: Scale) -> dict:
        if template.compares:
            return {"type": "string", "enum": ["A", "B", "tie"]}
        return {"type": "integer", "enum": list(scale)}

    properties = _form(template, rubric, verdict)
    properties["feedback"] = {"type": "string"}
    if "scores" in properties:
        properties["scores"] = json_object(properties["scores"])
    return json_object(properties)


def _form(template: Template, rubric: Rubric | None, verdict: Callable[[Scale], object]) -> dict:
    """Build the object that is asked for, with `verdict(scale)` at the place of each verdict."""
    form: dict = {"feedback": "One or two sentences on what is right and wrong."}
    if template.compares:
        form["choice"] = verdict(())
    elif rubric and rubric.named:
        form["scores"] = {name: verdict(each.scores) for name, each in rubric.by_name.items()}
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
