"""A prompt, and the fixed text that a conversation puts around a user turn.

Text from data is never scanned for markup: "<image>" or "</s>" in it stays literal text. Only the
marker `IMAGE` stands for an image, only a template makes a `Control` token, and an engine must
encode the strings of a prompt without special tokens. `chat.py` has the conversations that a
checkpoint's own chat template writes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Literal, TypeAlias


class Mark(Enum):
    """A marker in a prompt that stands for an image or a text.

    It is an enum, so that a copy or a pickle of a marker is the same object.
    """

    IMAGE = "<image>"
    TEXT = "vjudge-stands-in-for-text"  # only in `chat.py`: what a chat template gets for a text

    def __str__(self) -> str:
        return str(self.value)

    def __repr__(self) -> str:
        # recorded verdicts are keyed by a hash of this text, which the first version wrote so
        return f"<_Mark.{self.name}: {self.value!r}>"


IMAGE: Literal[Mark.IMAGE] = Mark.IMAGE
"""Stands for one image inside a `Prompt`; the n-th one is the item's n-th image."""


@dataclass(frozen=True)
class Control:
    """A control token of the judge's vocabulary, such as "<|im_start|>"."""

    text: str

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        # recorded verdicts are keyed by a hash of this text, which the first version wrote so
        return f"Control(text={self.text!r}, times=1)"


@dataclass(frozen=True)
class Reply:
    """The assistant's answer to the user turn before it, in a prompt of several turns."""

    text: str

    def __str__(self) -> str:
        return f"\n{self.text}\n"


Piece: TypeAlias = "str | Control | Reply | Mark"
"""A part of a prompt: literal text, a control token, an earlier answer, or an image."""


@dataclass(frozen=True)
class Prompt:
    """What goes to an engine: literal text, `IMAGE` markers and `Control` tokens.

    Args:
        parts: the pieces in reading order. Where the engine writes the conversation, a `Reply`
            ends each earlier user turn.
        system: the system message where the engine writes the conversation, else "".
    """

    parts: tuple[Piece, ...]
    system: str = ""

    @property
    def text(self) -> str:
        """The prompt as text for people to read, with "<image>" for an image; never tokenize it."""
        return "".join(map(str, self.parts))

    @property
    def n_images(self) -> int:
        """How many images the prompt stands for."""
        return self.parts.count(IMAGE)

    def append(self, text: str) -> Prompt:
        """Return the prompt with literal text at its end, such as `Template.forced`."""
        return Prompt(merge([*self.parts, text]), self.system)

    def with_images(self, written: Sequence[Iterable[Piece]]) -> Prompt:
        """Replace the n-th `IMAGE` by the n-th of `written`, a processor's text for that image."""
        images = iter(written)
        pieces: list[Piece] = []
        for piece in self.parts:
            if piece is IMAGE:
                pieces.extend(next(images))
            else:
                pieces.append(piece)
        return Prompt(merge(pieces), self.system)

    def messages(self) -> list[dict]:
        """Write the prompt as chat messages: the system's, then the user's and the assistant's.

        Raises:
            ValueError: the prompt contains control tokens, so it is a whole conversation already.
        """
        messages = []
        if self.system:
            messages.append(_message("system", [self.system]))
        # a reply ends the user turn before it; the pieces after the last reply are the question
        turn: list[Piece] = []
        for piece in self.parts:
            if isinstance(piece, Control):
                raise ValueError(
                    "the prompt is a whole conversation already: render it with"
                    " Template.as_messages()"
                )
            if isinstance(piece, Reply):
                messages += [_message("user", turn), _message("assistant", [piece.text])]
                turn = []
            else:
                turn.append(piece)
        if turn:
            messages.append(_message("user", turn))
        return messages


def _message(role: str, parts: Iterable[Piece]) -> dict:
    """Write one chat message, a list of texts and images without their data."""
    content = []
    for piece in parts:
        if piece is IMAGE:
            content.append({"type": "image"})
        else:
            content.append({"type": "text", "text": str(piece)})
    return {"role": role, "content": content}


def merge(parts: Iterable[Piece]) -> tuple[Piece, ...]:
    """Join neighbouring texts and drop empty ones.

    >>> [str(piece) for piece in merge(["a", "b", IMAGE, "", "c"])]
    ['ab', '<image>', 'c']
    """
    merged: list[Piece] = []
    for piece in parts:
        if isinstance(piece, str) and merged and isinstance(merged[-1], str):
            merged[-1] += piece
        elif piece != "":
            merged.append(piece)
    return tuple(merged)


def split(text: str, controls: Iterable[str], image_token: str = "") -> tuple[Piece, ...]:
    """Split the text of a template or a processor at its control tokens and images.

    Text from data must never come here: its "<s>" would become a control token.

    >>> pieces = split("<s>Hi <img>", ["<s>"], image_token="<img>")
    >>> pieces == (Control("<s>"), "Hi ", IMAGE)
    True

    Args:
        text: what a template or a processor wrote.
        controls: the spellings of control tokens; where two match, the longer one is taken.
        image_token: the spelling that stands for an image; "" for none.

    Returns:
        tuple: the texts, a `Control` for each control token, and `IMAGE` for each image.
    """
    spellings = sorted({*controls, image_token} - {""}, key=len, reverse=True)
    pieces: list[Piece] = []
    # the group in the pattern makes re.split keep the spellings that it splits at
    for piece in re.split("(" + "|".join(map(re.escape, spellings)) + ")", text):
        if piece and piece == image_token:  # both are "" between neighbouring tokens
            pieces.append(IMAGE)
        elif piece in spellings:
            pieces.append(Control(piece))
        else:
            pieces.append(piece)
    return merge(pieces)


@dataclass(frozen=True)
class Conversation:
    """The fixed text around one user turn, up to where the judge's reply starts."""

    name: str  # its name in the original code
    opening: str = ""  # the text before the user turn: system message and the user's role
    closing: str = ""  # the text after the user turn, up to the separator before the reply
    controls: tuple[str, ...] = ()  # control tokens in `opening` and `closing`
    reply: str = " "  # the separator between `closing` and the reply
    system: str = ""  # the system message alone, for an engine that writes the conversation

    @property
    def written(self) -> bool:
        """Whether the fixed text is given here, so that the engine does not write its own."""
        return bool(self.opening or self.closing)

    def ask(self, parts: Iterable[Piece], *, answer: str | None = None) -> Prompt:
        """Build the prompt of a user turn, which earlier turns may precede.

        Args:
            parts: literal text, and `IMAGE` for each image; a `Reply` ends each earlier turn.
            answer: what the assistant replied to the last turn, for a judge that reads whole
                conversations; None leaves the reply to the judge.

        Raises:
            ValueError: there are earlier turns, and this conversation has no form for them.
        """
        # 1) the engine writes the fixed text: the turns alone
        if not self.written:
            turns = [*parts] if answer is None else [*parts, Reply(answer)]
            return Prompt(merge(turns), self.system)
        # 2) opening, turn, closing; an earlier turn is closed and answered, the next one opened:
        #    opening | turn | closing " " answer </s> "USER: " | turn | closing
        closing = split(self.closing, self.controls)
        prompt = [*split(self.opening, self.controls)]
        for piece in parts:
            if not isinstance(piece, Reply):
                prompt.append(piece)
                continue
            if self.name not in NEXT_TURN:
                raise ValueError(f"conversation {self.name!r} has one turn, no place for examples")
            prompt += [*closing, self.reply, piece.text, *NEXT_TURN[self.name]]
        prompt += closing
        if answer is not None:
            prompt += [self.reply, answer]
        return Prompt(merge(prompt))

    def wrap(self, text: str, n_images: int, *, answer: str | None = None) -> Prompt:
        """Build the prompt of a user turn of `n_images` images and then a text; see `ask`."""
        leading: list[Piece] = [IMAGE, self.behind_image] * n_images
        return self.ask([*leading, text], answer=answer)

    @property
    def behind_image(self) -> str:
        """The separator after an image that stands before a turn's text.

        It is a line feed, as in the original code, or "" where the engine writes the conversation.
        """
        return "\n" if self.written else ""


NEXT_TURN: dict[str, tuple[Piece, ...]] = {
    "vicuna_v1": (Control("</s>"), "USER: "),
    "qwen_1_5": (Control("<|im_end|>"), "\n", Control("<|im_start|>"), "user\n"),
}
"""Conversation name -> what stands between an answer and the next user turn.

Source: LLaVA-VL/LLaVA-NeXT llava/conversation.py (Conversation.get_prompt, styles TWO and CHATML).
"""

MESSAGES = Conversation("messages", reply="")
"""The conversation of an engine that writes the fixed text itself, as a server does.

`Template.bind` replaces it by a checkpoint's own chat template.
"""
