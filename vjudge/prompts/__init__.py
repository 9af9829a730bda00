"""What a judge is asked and how its answer is read.

The core files, in reading order:

- `conversation.py`: a prompt, and the fixed text around a user turn
- `template.py`: a prompt template, which is filled with an item or a pair
- `wordings.py`: the prompt templates of published judges (texts in `assets/prompts`)
- `values.py`: reads a score from one line
- `parse.py`: reads the verdict from an answer
- `families.py`: the judges that are known by name

The other files ask: `chat.py` (a checkpoint's own chat template), `slots.py` (images inside a
template), `forms.py` (the JSON object that a template asks for), `answers.py` (the answers to train
on). Or they read: `formats.py` (the table of formats), `choices.py` (a choice from one line),
`objects.py` (verdicts in JSON), `surroundings.py` and `phrases.py` (whether the text around a
verdict takes it back).
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
