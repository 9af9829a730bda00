"""What a judge is asked, and how its answer is read.

template.py   a prompt; the words around a user's turn; one wording, filled with one item or pair; chat templates
wordings.py   the judges' own wordings, to the letter, each with its source: `TEMPLATES`
parse.py      an answer -> a verdict, or no verdict and the reason: `parse`, `FORMATS`
families.py   judges known by name: wording, decoding, paper; register your own
"""

from __future__ import annotations

from vjudge.prompts import families as families
from vjudge.prompts import parse as parse
from vjudge.prompts.template import IMAGE, MESSAGES, Control, Conversation, Prompt, Template, question, split, target
from vjudge.prompts.wordings import QWEN_1_5, TEMPLATES, VICUNA_V1

__all__ = ["IMAGE", "MESSAGES", "QWEN_1_5", "TEMPLATES", "VICUNA_V1", "Control", "Conversation", "Prompt", "Template"]
__all__ += ["families", "parse", "question", "split", "target"]

__dir__ = __all__.copy
