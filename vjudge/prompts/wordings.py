"""The judges' own wordings and conversations, to the letter, each with its source.

In `vjudge/assets`: `conversations.json`; `wordings.json`, with the source of each wording, its
conversation and the fields of `Template` that are not the default ones; `prompts`, one file a text.
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
    """Read a table of the assets, a row by each name, with tuples for lists."""
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
"""By architecture: the conversation of a LLaVA checkpoint that brings no chat template."""

# --- wordings


def _text(name: str) -> str:
    """Read a file of `assets/prompts`."""
    return (ASSETS / "prompts" / f"{name}.txt").read_text(encoding="utf-8")


def _wording(name: str, fields: dict) -> Template:
    """Make a wording of its row: its text is the file of its name, its system message another."""
    conversation = _CONVERSATIONS[fields.pop("conversation")]
    fields.pop("note", None)  # for readers alone
    if "system" in fields:
        system = _text(fields.pop("system"))
        opening = conversation.opening
        if opening:
            opening = opening.replace(conversation.system, system)
        conversation = replace(conversation, opening=opening, system=system)
    return Template(name, conversation=conversation, body=_text(name), **{"marker": ""} | fields)


TEMPLATES = {name: _wording(name, fields) for name, fields in read_asset("wordings").items()}
"""The wordings by name."""
