"""Prompts, and the words around a turn: those of a conversation, or a checkpoint's template.

Text from data is never scanned for markup: only the sentinel `IMAGE` stands for an image, only a
template makes a `Control` token, and an engine must encode the strings with special tokens off.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from functools import lru_cache
from typing import Any


class _Mark(Enum):
    """An enum, so that a copy or a pickle of a mark is still the same object."""

    IMAGE = "<image>"
    TEXT = "vjudge-stands-in-for-text"
    REPLY = "of an earlier turn"

    def __str__(self) -> str:
        return str(self.value)


IMAGE = _Mark.IMAGE
"""Stands for one image inside a `Prompt`; the n-th one is the item's n-th image."""


@dataclass(frozen=True)
class Control:
    """A control token of the judge's vocabulary, such as "<|im_start|>", `times` in a row."""

    text: str
    times: int = 1

    def __str__(self) -> str:
        return self.text * self.times


@dataclass(frozen=True)
class Reply:
    """The judge's answer to what stands before it, in a prompt of several turns."""

    text: str

    def __str__(self) -> str:
        return f"\n{self.text}\n"


@dataclass(frozen=True)
class Prompt:
    """What goes to an engine: literal text, `IMAGE`s and `Control` tokens, in reading order.

    Where the engine writes the conversation, a `Reply` ends each earlier turn.

    `system` is a system message, where the engine and not the template writes the conversation.
    """

    parts: tuple
    system: str = ""

    @property
    def text(self) -> str:
        """The prompt for a reader, with "<image>" for an image; not for tokenizing."""
        return "".join(map(str, self.parts))

    @property
    def n_images(self) -> int:
        return self.parts.count(IMAGE)

    def append(self, text: str) -> Prompt:
        """The same prompt with literal text at its end, such as a template's `forced`."""
        return Prompt(_merge([*self.parts, text]), self.system)

    def with_images(self, written: Sequence) -> Prompt:
        """The same prompt with what a model's processor writes for each image, in order."""
        images = iter(written)
        parts: list = []
        for part in self.parts:
            if part is IMAGE:
                parts.extend(next(images))
            else:
                parts.append(part)
        return Prompt(_merge(parts), self.system)

    def messages(self) -> list:
        """The prompt as chat messages (system, then user and assistant by turns).

        ValueError: the prompt is a whole conversation already.
        """
        if any(isinstance(part, Control) for part in self.parts):
            raise ValueError(
                "the prompt is a whole conversation already: render it with Template.as_messages()"
            )
        messages = [_message("system", [self.system])] if self.system else []
        turn: list = []
        for part in self.parts:
            if isinstance(part, Reply):
                messages += [_message("user", turn), _message("assistant", [part.text])]
                turn = []
            else:
                turn.append(part)
        return [*messages, _message("user", turn)] if turn else messages


def _message(role: str, parts: Iterable) -> dict:
    """One chat message of texts and image places."""
    content = []
    for part in parts:
        if part is IMAGE:
            content.append({"type": "image"})
        else:
            content.append({"type": "text", "text": part})
    return {"role": role, "content": content}


def _merge(parts: Iterable) -> tuple:
    """Join neighbouring texts and drop empty ones."""
    merged: list = []
    for part in parts:
        if isinstance(part, str) and merged and isinstance(merged[-1], str):
            merged[-1] += part
        elif part != "":
            merged.append(part)
    return tuple(merged)


def split(text: str, controls: Sequence, image_token: str = "") -> tuple:
    """Split text that a template or a processor wrote, never data, at its control tokens.

    Args:
        text: what was written.
        controls: spellings of control tokens; of two that fit, the longer one is taken.
        image_token: the spelling that stands for an image; "" for none.

    Returns:
        tuple: the texts between, a `Control` for each control token, `IMAGE` for each image.
    """
    spellings = sorted({*controls, image_token} - {""}, key=len, reverse=True)
    parts: list = []
    for piece in re.split("(" + "|".join(map(re.escape, spellings)) + ")", text):
        if piece and piece == image_token:
            parts.append(IMAGE)
        elif piece in spellings:
            parts.append(Control(piece))
        else:
            parts.append(piece)
    return _merge(parts)


@dataclass(frozen=True)
class Conversation:
    """The words around one user turn, up to where the judge's reply starts."""

    name: str  # in the original code
    opening: str = ""  # system message and the user's role, up to the image or the prompt
    closing: str = ""  # from the end of the prompt to the reply, without what separates the reply
    controls: tuple = ()  # control tokens in both; all else there is plain text
    reply: str = " "  # what separates the reply
    system: str = ""  # the system message alone, for an engine that writes the conversation

    @property
    def written(self) -> bool:
        """Whether the words stand here, and are not the engine's own."""
        return bool(self.opening or self.closing)

    def ask(self, parts: Iterable, *, answer: str | None = None) -> Prompt:
        """The prompt of a user turn, behind earlier ones that each end in a `Reply`.

        Args:
            parts: literal text, and `IMAGE` where an image stands.
            answer: what the assistant replied, for a judge that reads whole conversations.

        ValueError: a chat template can't write this, or these words have one turn alone.
        """
        if not self.written:
            turns = [*parts] if answer is None else [*parts, Reply(answer)]
            return Prompt(_merge(turns), self.system)
        closing = split(self.closing, self.controls)
        words = list(split(self.opening, self.controls))
        for part in parts:
            if not isinstance(part, Reply):
                words.append(part)
            elif self.name in NEXT_TURN:
                words += [*closing, self.reply, part.text, *NEXT_TURN[self.name]]
            else:
                raise ValueError(f"conversation {self.name!r} has one turn, no place for examples")
        words += closing
        if answer is not None:
            words += [self.reply, answer]
        return Prompt(_merge(words))

    def wrap(self, text: str, n_images: int, *, answer: str | None = None) -> Prompt:
        """The prompt of a turn's text after its images.

        Where the words stand here, a line feed follows each image, as in the original code.
        """
        return self.ask([*self.leading(n_images), text], answer=answer)

    def leading(self, n_images: int) -> list:
        """The parts of images that stand before a turn's text."""
        return [IMAGE, "\n" if self.written else ""] * n_images


NEXT_TURN: dict[str, tuple] = {
    "vicuna_v1": (Control("</s>"), "USER: "),
    "qwen_1_5": (Control("<|im_end|>"), "\n", Control("<|im_start|>"), "user\n"),
}
"""What stands between an answer and the next turn, by the conversation's name.

Source: LLaVA-VL/LLaVA-NeXT llava/conversation.py (Conversation.get_prompt, styles TWO and CHATML).
"""

MESSAGES = Conversation("messages", reply="")
"""The engine writes the conversation: a server, or a checkpoint's chat template once bound."""


@dataclass(frozen=True)
class Chat(Conversation):
    """A checkpoint's own chat template.

    Text from data never passes through it: the template is filled with stand-ins, and the texts
    take their places. Neither can a text be read as markup, nor can the template change it.
    """

    jinja: str = ""
    image_token: str = ""  # what the template writes for an image; "" for a judge without images
    variables: tuple = ()  # further names that it reads, such as bos_token
    start: str = ""  # the token that the engine puts first by itself, left out here
    day: str = ""  # what the template is told is today, as "2026-11-28"; "" where it asks for none

    def ask(self, parts: Iterable, *, answer: str | None = None) -> Prompt:
        turns = _merge(parts)
        texts: list = [part for part in turns if part is not IMAGE]
        if answer is not None:
            texts.append(answer)
        marks = {str: _Mark.TEXT, Reply: _Mark.REPLY, _Mark: IMAGE}
        remaining = iter(texts)
        filled = []
        for part in _written_by(
            self, tuple(marks[type(part)] for part in turns), answer is not None
        ):
            if part is _Mark.TEXT:
                text = next(remaining)
                part = text.text if isinstance(text, Reply) else text
            filled.append(part)
        return Prompt(_merge(filled))

    @property
    def keeps_order(self) -> bool:
        """Whether an image between two texts stays there, and is not put before them."""
        try:
            return bool(self.ask(["before", IMAGE, "behind"]).parts)
        except ValueError:
            return False


def _clock(day: str) -> str:
    """A macro in the place of `strftime_now`, by which a prompt would change at midnight."""
    if not day:
        return ""
    today = datetime.fromisoformat(day)
    replaced = f"format | replace('%-d', '{today.day}')"
    for letter in "aAbBdHIjmMpSUwWyY":  # the directives of the C standard
        replaced += f" | replace('%{letter}', '{today.strftime('%' + letter)}')"
    return f"{{% macro strftime_now(format) %}}{{{{ {replaced} }}}}{{% endmacro %}}\n"


@lru_cache(maxsize=64)
def _written_by(chat: Chat, turn: tuple, answered: bool) -> tuple:
    """What a chat template writes around a turn of images and texts, marks in their places."""
    from transformers.utils.chat_template_utils import render_jinja_template

    # 1) the conversation as messages, each text a stand-in
    stand_in = _Mark.TEXT.value
    stands_in = {IMAGE: IMAGE, _Mark.TEXT: stand_in, _Mark.REPLY: Reply(stand_in)}
    parts = [stands_in[mark] for mark in turn]
    messages = Prompt(tuple(parts), chat.system).messages()
    if answered:
        messages.append(_message("assistant", [stand_in]))
    if not chat.image_token:  # a text judge's template takes a string
        for message in messages:
            message["content"] = message["content"][0]["text"]
    turn = tuple(_Mark.TEXT if mark is _Mark.REPLY else mark for mark in turn)
    # 2) fill the template, in Jinja's sandbox
    variables: dict = dict(chat.variables)
    try:
        rendered: Any = render_jinja_template(
            [messages],
            chat_template=f"{_clock(chat.day)}{chat.jinja}",
            add_generation_prompt=not answered,
            **variables,
        )
    except Exception as error:  # a template is a program: it can raise anything
        raise ValueError(
            "the checkpoint's chat template can't write this prompt:"
            f" {type(error).__name__}: {error}"
        ) from error
    # 3) read its control tokens and marks
    written: list = []
    for number, piece in enumerate(rendered[0][0].removeprefix(chat.start).split(stand_in)):
        if number:
            written.append(_Mark.TEXT)
        written.extend(split(piece, chat.controls, chat.image_token))
    # 4) nothing of the turn may be left out or written twice, and no image among texts be moved
    expected = [*turn, _Mark.TEXT] if answered else [*turn]
    marks = [piece for piece in written if isinstance(piece, _Mark)]
    if any(marks.count(mark) != expected.count(mark) for mark in _Mark):
        raise ValueError("the checkpoint's chat template leaves out or repeats a text or an image")
    if turn.count(_Mark.TEXT) > 1 and marks != expected:
        raise ValueError(
            "the checkpoint's chat template moves images away from their places among the texts,"
            " where a response's pictures stand: give load_judge a template= with a conversation"
            " of its own"
        )
    return tuple(written)
