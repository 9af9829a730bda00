"""The JSON object that a wording asks for: an example of it, and its schema."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING

from vjudge.prompts.values import Scale
from vjudge.records import Rubric

if TYPE_CHECKING:
    from vjudge.prompts.template import Template


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
