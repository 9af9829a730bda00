"""Conversations that a checkpoint's own chat template writes.

A chat template is a Jinja program that comes with a checkpoint. Text from data never passes through
it: the template is filled with stand-ins, which are then replaced by the texts. So a text can't be
read as markup, and the template can't change a text.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import date, datetime
from functools import lru_cache
from typing import Any

from vjudge.prompts.conversation import (
    IMAGE,
    Conversation,
    Mark,
    Piece,
    Prompt,
    Reply,
    merge,
    split,
)

STAND_IN = str(Mark.TEXT)
"""What a chat template gets instead of each text."""


@dataclass(frozen=True)
class Chat(Conversation):
    """A checkpoint's own chat template."""

    jinja: str = ""
    image_token: str = ""  # what the template writes for an image; "" for a judge without images
    variables: tuple[tuple[str, str], ...] = ()  # (name, text), such as ("bos_token", "<s>")
    start: str = ""  # the token that the engine puts first by itself; prompts leave it out
    day: str = ""  # the date that the template reads, as "2026-11-28"; "" where it reads none

    def ask(self, parts: Iterable[Piece], *, answer: str | None = None) -> Prompt:
        """Build the prompt of a user turn, as `Conversation.ask` does.

        Raises:
            ValueError: the chat template fails, or it drops, repeats or moves a text or an image.
        """
        # turns      IMAGE  "What is it?"  Reply("A cat.")  "Sure?"
        # texts             "What is it?"  "A cat."         "Sure?"
        # stand-ins  IMAGE  STAND_IN       Reply(STAND_IN)  STAND_IN
        # filled     <user> IMAGE TEXT <assistant> TEXT <user> TEXT <assistant>
        turns = merge(parts if answer is None else [*parts, Reply(answer)])
        # a `Reply` has its text in a field; a question is a text itself
        texts = [getattr(piece, "text", piece) for piece in turns if piece is not IMAGE]
        remaining = iter(texts)
        prompt: list[Piece] = []
        for piece in _fill(self, tuple(map(_stand_in, turns))):
            prompt.append(next(remaining) if piece is Mark.TEXT else piece)
        return Prompt(merge(prompt))

    @property
    def keeps_order(self) -> bool:
        """Whether an image between two texts stays there, and is not put before them."""
        try:
            self.ask(["before", IMAGE, "after"])
        except ValueError:  # `_fill` refuses a template that moves the image
            return False
        return True


def chat_of(tokenizer: Any, *, image_token: str, system: str) -> Chat | None:
    """Read the chat template of a checkpoint.

    Args:
        tokenizer: a tokenizer, or a processor with one.
        image_token: what the chat template writes for an image; "" for a text-only judge.
        system: the system message of the conversation.

    Returns:
        The checkpoint's conversation; None where it has no chat template.
    """
    # 1) the template itself; a processor's takes precedence over its tokenizer's, and of several
    #    templates the one named "default" is taken
    inner = getattr(tokenizer, "tokenizer", tokenizer)
    jinja = getattr(tokenizer, "chat_template", None) or inner.chat_template
    if isinstance(jinja, dict):
        jinja = jinja.get("default")
    if not jinja:
        return None

    # 2) the tokenizer's control tokens, and the one that it puts before every text by itself
    added = inner.added_tokens_decoder.values()
    controls = {*inner.all_special_tokens, *(str(token) for token in added if token.special)}
    start = ""
    if inner.bos_token_id in inner("").input_ids[:1]:
        start = inner.bos_token
    variables = {name: str(token) for name, token in inner.special_tokens_map.items()}

    # 3) the conversation; `reply` is found by filling the template, which needs all other fields
    chat = Chat(
        name="chat",
        controls=tuple(sorted(controls - {image_token})),
        reply="",
        system=system,
        jinja=jinja,
        image_token=image_token,
        variables=tuple(variables.items()),
        start=start,
        day=date.today().isoformat() if "strftime_now" in jinja else "",
    )
    return replace(chat, reply=_blank_before_answer(chat))


def _blank_before_answer(chat: Chat) -> str:
    """Find the whitespace that a chat template writes before an answer.

    Example: the template writes "user: hm assistant:" for a question without its answer, and
    "user: hm assistant: yes" for the same question with it. So the whitespace is " ".
    """
    try:
        question = chat.ask(["question"]).text
        _, _, written = chat.ask(["question"], answer="answer").text.partition(question)
    except ValueError:  # the template can't write an answer
        return ""
    # the leading whitespace of what stands after the question
    return written[: len(written) - len(written.lstrip())]


def _clock(day: str) -> str:
    """Write a Jinja macro `strftime_now` that formats a fixed date instead of today's.

    So a prompt that is built again on a later day is equal to the first one.

    Args:
        day: the date, as "2026-11-28"; "" for a template that reads no date, which needs no macro.
    """
    if not day:
        return ""
    # {{ strftime_now("%d %b") }} becomes "%d %b" with "%d" replaced by "28" and "%b" by "Nov"
    date_read = datetime.fromisoformat(day)
    expression = f"format | replace('%-d', '{date_read.day}')"
    for letter in "aAbBdHIjmMpSUwWyY":  # the directives of the C standard
        expression += f" | replace('%{letter}', '{date_read.strftime('%' + letter)}')"
    return f"{{% macro strftime_now(format) %}}{{{{ {expression} }}}}{{% endmacro %}}\n"


def _stand_in(piece: Piece) -> Piece:
    """Return the stand-in of a text or a reply; an image stands for itself."""
    if piece is IMAGE:
        return IMAGE
    return Reply(STAND_IN) if isinstance(piece, Reply) else STAND_IN


@lru_cache(maxsize=64)
def _fill(chat: Chat, turns: tuple[Piece, ...]) -> tuple[Piece, ...]:
    """Fill a chat template with stand-ins.

    Args:
        chat: the chat template.
        turns: stand-ins and images in reading order; the last one is a `Reply` where the
            last question has its answer.

    Returns:
        What the template writes, with `Mark.TEXT` for each stand-in.

    Raises:
        ValueError: the template fails, or it drops, repeats or moves a text or an image.
    """
    from transformers.utils.chat_template_utils import render_jinja_template

    # 1) the conversation as messages
    answered = isinstance(turns[-1], Reply)
    messages = Prompt(turns, chat.system).messages()
    if not chat.image_token:  # a text judge's template takes a string
        for message in messages:
            message["content"] = message["content"][0]["text"]

    # 2) fill the template, in Jinja's sandbox
    variables: dict[str, Any] = dict(chat.variables)
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

    # 3) read its control tokens, images and stand-ins
    #    (`rendered` is a pair of lists: the conversations as text, and positions within them)
    before, *after = rendered[0][0].removeprefix(chat.start).split(STAND_IN)
    written = [*split(before, chat.controls, chat.image_token)]
    for text in after:
        written += [Mark.TEXT, *split(text, chat.controls, chat.image_token)]

    # 4) no text and no image may be dropped or repeated. An image may move only around a single
    #    text, where the order carries no meaning; the answer is the assistant's and doesn't count
    expected = [IMAGE if piece is IMAGE else Mark.TEXT for piece in turns]
    marks = [piece for piece in written if isinstance(piece, Mark)]
    if Counter(marks) != Counter(expected):
        raise ValueError("the checkpoint's chat template leaves out or repeats a text or an image")
    n_texts = expected.count(Mark.TEXT) - answered
    if n_texts > 1 and marks != expected:
        raise ValueError(
            "the checkpoint's chat template moves images away from their places among the texts,"
            " where a response's pictures stand: give load_judge a template= with a conversation"
            " of its own"
        )
    return tuple(written)
