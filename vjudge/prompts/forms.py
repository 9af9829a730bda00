"""The JSON object that a prompt template asks for: an example of it, and its schema."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING

from vjudge.prompts.values import Scale
from vjudge.records import Rubric

if TYPE_CHECKING:
    from vjudge.prompts.template import Template


def json_example(template: Template, rubric: Rubric | None) -> str:
    """Write an example of the JSON object that a prompt template asks for.

    Args:
        template: the prompt template.
        rubric: gives the scale, and the named criteria; None where the template needs none.
    """
    return json.dumps(_form(template, rubric, template.middle), ensure_ascii=False)


def schema_of(template: Template, rubric: Rubric | None) -> dict:
    """Build the JSON schema of the object that `json_example` shows, for a server to enforce."""

    def verdict_schema(scale: Scale) -> dict:
        """Build the schema of one verdict."""
        if template.compares:
            return {"type": "string", "enum": ["A", "B", "tie"]}
        return {"type": "integer", "enum": list(scale)}

    # the form with a schema instead of each example value: {"score": {"type": "integer", ...}}
    properties = _form(template, rubric, verdict_schema)
    properties["feedback"] = {"type": "string"}
    if "scores" in properties:
        properties["scores"] = json_object(properties["scores"])
    return json_object(properties)


def _form(template: Template, rubric: Rubric | None, make_value: Callable[[Scale], object]) -> dict:
    """Build the skeleton of the JSON object that a prompt template asks for.

    It is {"feedback": "...", "score": 3} or {"feedback": "...", "choice": "B"}; for several
    criteria it is {"feedback": "...", "scores": {"Accuracy": 3, "Style": 3}}.

    Args:
        template: the prompt template.
        rubric: gives the scale, and the named criteria; None where the template needs none.
        make_value: maps the scale of a verdict to the value that stands for it; the scale of a
            choice is ().
    """
    form: dict = {"feedback": "One or two sentences on what is right and wrong."}
    if template.compares:
        form["choice"] = make_value(())
    elif rubric and rubric.named:
        form["scores"] = {name: make_value(scale) for name, scale in rubric.scales.items()}
    else:
        form["score"] = make_value(template.scores(rubric))
    return form


def json_object(properties: dict) -> dict:
    """Build the JSON schema of an object that has exactly these properties (key -> schema)."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }
