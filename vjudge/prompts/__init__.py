"""What a judge is asked and how its answer is read.

The core, in reading order: `conversation.py` has a prompt and the text around a user turn,
`template.py` the form of a wording, `wordings.py` the wordings (texts in `assets/prompts`),
`values.py` the reading of one line, `parse.py` that of an answer, `families.py` the judges by name.

Beside it: `chat.py` has a checkpoint's own chat template, `slots.py` pictures at places inside a
wording, `forms.py` the JSON object that one asks for, `answers.py` the answers to learn from;
`formats.py` the table of formats, `choices.py` lines that choose, `objects.py` JSON answers,
`surroundings.py` and `phrases.py` what the text around a verdict makes of it.
"""

from vjudge.prompts import families as families
from vjudge.prompts import parse as parse
from vjudge.prompts.answers import target
from vjudge.prompts.conversation import (
    IMAGE,
    MESSAGES,
    Control,
    Conversation,
    Prompt,
    split,
)
from vjudge.prompts.template import Template
from vjudge.prompts.wordings import CONVERSATIONS, QWEN_1_5, TEMPLATES, VICUNA_V1

__all__ = [
    "CONVERSATIONS",
    "IMAGE",
    "MESSAGES",
    "QWEN_1_5",
    "TEMPLATES",
    "VICUNA_V1",
    "Control",
    "Conversation",
    "Prompt",
    "Template",
    "families",
    "parse",
    "split",
    "target",
]

__dir__ = __all__.copy
