"""What a judge is asked and how its answer is read.

`conversation.py` is a prompt and the words around a turn, `template.py` the form of a wording,
`wordings.py` the wordings (texts in `assets/prompts`), `answers.py` the answers they ask for,
`parse.py` answer -> verdict with `values.py` for one line, `phrases.py` for what takes it back,
`families.py` the judges by name.
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
