"""A prompt, and the fixed text that a conversation puts around a user turn.

Text from data is never scanned for markup. Only the mark `IMAGE` stands for an image, only a
template makes a `Control` token, and an engine must encode the strings with special tokens off.
`chat.py` has the conversations that a checkpoint's own chat template writes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Literal, TypeAlias


class Mark(Enum):
    """A place in a prompt. An enum, so that a copy or a pickle of a mark is the same object."""

    IMAGE = "<image>"
    TEXT = "vjudge-stands-in-for-text"  # for `chat.py`: a text that the chat template doesn't see

    def __str__(self) -> str:
        return str(self.value)

    def __repr__(self) -> str:
        # part of the key of every recorded verdict: as the first version wrote it
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
        # part of the key of every recorded verdict: as the first version wrote it
        return f"Control(text={self.text!r}, times=1)"


@dataclass(frozen=True)
class Reply:
    """The assistant's answer to the user turn before it, in a prompt of several turns."""

    text: str

    def __str__(self) -> str:
        return f"\n{self.text}\n"


Piece: TypeAlias = "str | Control | Reply | Mark"
"""What a prompt consists of."""


@dataclass(frozen=True)
class Prompt:
    """What goes to an engine: literal text, `IMAGE` marks and `Control` tokens, in reading order.

    Args:
        parts: a `Reply` ends each earlier turn where the engine writes the conversation.
        system: the system message where the engine writes the conversation, else "".
    """

    parts: tuple[Piece, ...]
    system: str = ""

    @property
    def text(self) -> str:
        """The prompt for a reader, with "<image>" for an image; not for tokenizing."""
        return "".join(map(str, self.parts))

    @property
    def n_images(self) -> int:
        """How many images the prompt has places for."""
        return self.parts.count(IMAGE)

    def append(self, text: str) -> Prompt:
        """Return the prompt with literal text at its end, such as a template's `forced`."""
        return Prompt(merge([*self.parts, text]), self.system)

    def with_images(self, written: Sequence[Iterable[Piece]]) -> Prompt:
        """Replace the n-th `IMAGE` by the parts that a model's processor writes for that image."""
        images = iter(written)
        pieces: list[Piece] = []
        for piece in self.parts:
            if piece is IMAGE:
                pieces.extend(next(images))
            else:
                pieces.append(piece)
        return Prompt(merge(pieces), self.system)

    def messages(self) -> list[dict]:
        """Write the prompt as chat messages: system, then user and assistant in turn.

        Raises:
            ValueError: the prompt contains control tokens, so it is a whole conversation already.
        """
        messages = []
        if self.system:
            messages.append(_message("system", [self.system]))
        # a reply ends the user turn before it; what is left at the end is the question
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
    """Write one chat message of texts and image places."""
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
    """Split text at its control tokens; only text of a template or a processor, never data.

    >>> pieces = split("<s>Hi <img>", ["<s>"], image_token="<img>")
    >>> pieces == (Control("<s>"), "Hi ", IMAGE)
    True

    Args:
        text: what a template or a processor wrote.
        controls: the spellings of control tokens; where two fit, the longer one is taken.
        image_token: the spelling that stands for an image; "" for none.

    Returns:
        tuple: the texts, a `Control` for each control token, and `IMAGE` for each image.
    """
    spellings = sorted({*controls, image_token} - {""}, key=len, reverse=True)
    pieces: list[Piece] = []
    # the group in the pattern makes re.split keep the spellings that it splits at
    for piece in re.split("(" + "|".join(map(re.escape, spellings)) + ")", text):
        if piece and piece == image_token:
            pieces.append(IMAGE)
        elif piece in spellings:
            pieces.append(Control(piece))
        else:
            pieces.append(piece)
    return merge(pieces)


@dataclass(frozen=True)
class Conversation:
    """The fixed text around one user turn, up to the place where the judge's reply starts."""

    name: str  # in the original code
    opening: str = ""  # system message and the user's role, up to the image or the prompt
    closing: str = ""  # from the end of the prompt to the reply, without what separates the reply
    controls: tuple[str, ...] = ()  # control tokens in both; all else there is plain text
    reply: str = " "  # what separates the reply
    system: str = ""  # the system message alone, for an engine that writes the conversation

    @property
    def written(self) -> bool:
        """Whether the fixed text is given here, so that the engine does not write its own."""
        return bool(self.opening or self.closing)

    def ask(self, parts: Iterable[Piece], *, answer: str | None = None) -> Prompt:
        """Build the prompt of a user turn, behind earlier turns that each end in a `Reply`.

        Args:
            parts: literal text, and `IMAGE` where an image stands.
            answer: what the assistant replied, for a judge that reads whole conversations.

        Raises:
            ValueError: there are earlier turns, and this conversation has no form for them.
        """
        # 1) the engine writes the fixed text: the turns alone
        if not self.written:
            turns = [*parts] if answer is None else [*parts, Reply(answer)]
            return Prompt(merge(turns), self.system)
        # 2) opening, turn, closing; an earlier turn is closed, answered, and a next one opened:
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
        """Build the prompt of a turn whose text follows its images."""
        leading: list[Piece] = [IMAGE, self.behind_image] * n_images
        return self.ask([*leading, text], answer=answer)

    @property
    def behind_image(self) -> str:
        """What follows an image before a turn's text: a line feed, as in the original code.

        Nothing where the engine writes the conversation.
        """
        return "\n" if self.written else ""


NEXT_TURN: dict[str, tuple[Piece, ...]] = {
    "vicuna_v1": (Control("</s>"), "USER: "),
    "qwen_1_5": (Control("<|im_end|>"), "\n", Control("<|im_start|>"), "user\n"),
}
"""What stands between an answer and the next turn, by the conversation's name.

Source: LLaVA-VL/LLaVA-NeXT llava/conversation.py (Conversation.get_prompt, styles TWO and CHATML).
"""

MESSAGES = Conversation("messages", reply="")
"""The engine writes the conversation: a server, or a checkpoint's chat template once bound."""
