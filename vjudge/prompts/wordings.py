"""The judges' own wordings and conversations, to the letter, each with its source.

`vjudge/assets/wordings.json` has for each wording its source, its conversation and the fields of
`Template` that are not the default ones; the texts stand in `assets/prompts`, one file a wording.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from vjudge.prompts.conversation import MESSAGES, Conversation
from vjudge.prompts.template import Template

ASSETS = Path(__file__).parents[1] / "assets"

# --- conversations

_VICUNA = (
    "A chat between a curious user and an artificial intelligence assistant. The assistant gives"
    " helpful, detailed, and polite answers to the user's questions."
)
_EVALUATOR = "You are a fair evaluator language model."
_ASSISTANT = "You are a helpful assistant."

VICUNA_V1 = Conversation(
    name="vicuna_v1", opening=f"{_VICUNA} USER: ", closing=" ASSISTANT:", system=_VICUNA
)
"""Source: kaistAI/prometheus-vision llava/conversation.py (conv_vicuna_v1)."""

LLAMA_2 = Conversation(
    name="llama-2",
    opening=f"[INST] <<SYS>>\n{_EVALUATOR}\n<</SYS>>\n\n",
    closing=" [/INST]",
    system=_EVALUATOR,
)
"""Source: prometheus-eval/prometheus evaluation/benchmark/run_absolute_scoring.py, with FastChat's
"llama-2"."""

MISTRAL = Conversation(name="mistral", opening="[INST] ", closing=" [/INST]")
"""It knows no system role. Source: prometheus-eval/prometheus-eval prometheus_eval/judge.py, with
FastChat's "mistral"."""

QWEN_1_5 = Conversation(
    name="qwen_1_5",
    opening=f"<|im_start|>system\n{_ASSISTANT}<|im_end|>\n<|im_start|>user\n",
    closing="<|im_end|>\n<|im_start|>assistant\n",
    controls=("<|im_start|>", "<|im_end|>"),
    reply="",
    system=_ASSISTANT,
)
"""LLaVA-OneVision's. Source: LLaVA-VL/LLaVA-NeXT llava/conversation.py (conv_qwen)."""

CONVERSATIONS = {"llava": VICUNA_V1, "llava_onevision": QWEN_1_5}
"""By architecture: the conversation of a LLaVA checkpoint that brings no chat template."""

# --- wordings

_CONVERSATIONS = {each.name: each for each in (VICUNA_V1, LLAMA_2, MISTRAL, QWEN_1_5, MESSAGES)}


def _text(name: str) -> str:
    return (ASSETS / "prompts" / f"{name}.txt").read_text(encoding="utf-8")


def _wording(name: str, fields: dict) -> Template:
    """One wording, whose text is the file of its name, and whose system message may be one, too."""
    conversation = _CONVERSATIONS[fields.pop("conversation")]
    if "system" in fields:
        system = _text(fields.pop("system"))
        opening = conversation.opening
        if opening:
            opening = opening.replace(conversation.system, system)
        conversation = replace(conversation, opening=opening, system=system)
    if "scale" in fields:
        fields["scale"] = tuple(fields["scale"])
    fields.pop("note", None)
    return Template(name, conversation=conversation, body=_text(name), **{"marker": ""} | fields)


_TABLE: dict = json.loads((ASSETS / "wordings.json").read_text(encoding="utf-8"))
TEMPLATES = {name: _wording(name, fields) for name, fields in _TABLE.items()}
"""The wordings by name."""
