"""The judges' own prompt templates and conversations, to the letter, each with its source.

They are stored in `vjudge/assets`. `conversations.json` has the conversations. `wordings.json` has
of each template its source, its conversation and the fields of `Template` that differ from their
defaults. The folder `prompts` has one file per text: a template's body, or a system message.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from vjudge.prompts.conversation import MESSAGES, Conversation
from vjudge.prompts.template import Template

ASSETS = Path(__file__).parents[1] / "assets"


def read_asset(name: str) -> dict[str, dict[str, Any]]:
    """Read a JSON file of the assets, whose name comes without ".json": name -> row of fields."""
    table = json.loads((ASSETS / f"{name}.json").read_text(encoding="utf-8"))
    return {key: with_tuples(row) for key, row in table.items()}


def with_tuples(row: Mapping[str, Any]) -> dict[str, Any]:
    """Replace the lists of a JSON object by tuples, as the fields of a frozen dataclass need."""
    return {key: tuple(cell) if isinstance(cell, list) else cell for key, cell in row.items()}


# --- conversations

_CONVERSATIONS = {"messages": MESSAGES}
for _name, _row in read_asset("conversations").items():
    _row.pop("source")
    _CONVERSATIONS[_name] = Conversation(_name, **_row)

VICUNA_V1 = _CONVERSATIONS["vicuna_v1"]
QWEN_1_5 = _CONVERSATIONS["qwen_1_5"]
CONVERSATIONS = {"llava": VICUNA_V1, "llava_onevision": QWEN_1_5}
"""Architecture -> the conversation of its checkpoints that come without a chat template."""

# --- wordings


def _text(name: str) -> str:
    """Read a file of `assets/prompts`, whose name comes without ".txt"."""
    return (ASSETS / "prompts" / f"{name}.txt").read_text(encoding="utf-8")


def _wording(name: str, fields: dict) -> Template:
    """Make a template of its row in `wordings.json`.

    Args:
        name: the template's name, and that of the file with its body.
        fields: fields of `Template`, with the name of its conversation instead of the conversation.
            A key "system" names the file of a system message that replaces the conversation's.
    """
    conversation = _CONVERSATIONS[fields.pop("conversation")]
    fields.pop("note", None)  # only people read it
    if "system" in fields:
        system = _text(fields.pop("system"))
        opening = conversation.opening
        if opening:
            opening = opening.replace(conversation.system, system)
        conversation = replace(conversation, opening=opening, system=system)
    # in the file a row without a marker has none, while the default of `Template` is "[RESULT]"
    return Template(name, conversation=conversation, body=_text(name), **{"marker": ""} | fields)


TEMPLATES = {name: _wording(name, fields) for name, fields in read_asset("wordings").items()}
"""Name -> prompt template."""
