"""What a server is found to do before a call's first prompt: does it write the judge's own prompt,
and can it continue an answer?"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

from PIL import Image

from vjudge.engines.client import Unanswered
from vjudge.engines.engine import Ask, Texts, check_images
from vjudge.engines.progress import say
from vjudge.engines.tokens import ScoreTokens, Stem
from vjudge.images import data_uri
from vjudge.prompts import IMAGE, Prompt
from vjudge.prompts.conversation import Reply
from vjudge.records import is_int_at_least

Part = Mapping[str, Any]  # of a message, that holds a picture
BLANK: Part = {"image_url": {"url": data_uri(Image.new("RGB", (64, 64), "white"))}}
"""Stands for any picture."""
LISTED = 20  # tokens at each place whose log-probabilities are requested; many allow no more

Job = tuple[int, Prompt, Sequence[Any]]  # a row, its turn, its pictures


class ServerError(RuntimeError):
    """The server can't be used as asked; the message says why and what to do."""


class ServedScale(NamedTuple):
    """A scale in a server's own tokens, and the text that each of its stems is read behind."""

    scale: ScoreTokens
    behind: dict[Stem, str]  # begins with the marker


class Handshake:
    """What a call found out about its server.

    Args:
        look: a request to `/tokenize` -> the reply.
        engine: the `ServerEngine`.

    Attributes:
        context: tokens of the model's context; 0 where the server shows no tokens.
        continues: whether the server continues an answer token for token, so that distributions
            can be read behind it.

    ServerError: the server writes another prompt than the judge's own, or can't do what score mode
    needs.
    """

    def __init__(
        self,
        look: Callable[[dict[str, Any]], dict[str, Any]],
        engine: Any,
        ask: Ask,
        jobs: Sequence[Job],
    ) -> None:
        self.look = look
        self.name = repr(engine)
        self.conversation = engine.conversation
        self.ask = ask
        self.context = 0
        self.continues = False
        self.scales: dict[Any, ServedScale | None] = {}
        self.encode = cache(self._encode)
        try:
            self.encode("###")
        except Unanswered as error:
            if ask.scores:
                raise ServerError(
                    f"{self.name}: score mode needs a server that shows its tokens (/tokenize) and"
                    f' continues an answer, such as vLLM\'s ({error}); use mode="feedback"'
                ) from None
            if self.conversation is not None:
                say(f"{self.name} shows no tokens: its prompt is not compared with the judge's own")
            return
        markers = [ask.marker] if ask.closing is None else [ask.marker, ask.closing.marker]
        for marker, (row, _, _) in itertools.product(markers, jobs):
            self.scale(marker, ask.scale(row))
        self._compare(jobs)

    def _compare(self, jobs: Sequence[Job]) -> None:
        """Compare the judge's own prompts, one of each form, and answers that are continued."""
        begun = f"It is so.\n{self.ask.marker}"
        served = self.scale(self.ask.marker, self.ask.scale(jobs[0][0]))
        if self.ask.scores and served:
            begun = served.behind[()]
        forms = {(prompt.n_images, prompt.system): prompt for _, prompt, _ in jobs}
        prompts = forms.values()
        if self.conversation and not all(self._agrees(prompt, "") for prompt in prompts):
            raise ServerError(
                f"{self.name} does not write the judge's own prompt, token for token. Start it with"
                " the judge's own chat template (--chat-template); conversation=None asks in the"
                " server's own words"
            )
        self.continues = all(self._agrees(prompt, begun) for prompt in prompts)
        if self.ask.scores and (not self.continues or None in self.scales.values()):
            raise ServerError(
                f"{self.name} does not continue an answer that is begun, token for token, or its"
                ' tokens do not tell the scores apart, which score mode needs; use mode="feedback"'
            )

    def scale(self, marker: str, texts: Texts) -> ServedScale | None:
        """A scale behind a marker; None where its distribution can't be read token by token."""
        if not texts or not self.context:
            return None
        key = (marker, *texts.items())
        if key not in self.scales:
            self.scales[key] = self._served(marker, texts)
        return self.scales[key]

    def firsts(self, row: int) -> list[int] | None:
        """The tokens to ask log-probabilities of while an answer is written.

        Empty where the server shows none, and the scores are known by their texts. None where one
        place can't tell the scores apart.
        """
        texts = self.ask.scale(row)
        served = self.scale(self.ask.marker, texts)
        if served is not None:
            return served.scale.steps[()] if served.scale.single else None
        letters = {text.strip()[:1] for text in texts.values()}  # "1" does not tell 1 from 10
        return [] if texts and len(letters) == len(texts) else None

    def _served(self, marker: str, texts: Texts) -> ServedScale | None:
        """A scale in the server's tokens; None where no text leads to one of its stems."""
        scale = ScoreTokens.read(marker, texts, self.encode)
        if len(scale.steps[()]) > LISTED:
            return None
        beginnings = {}
        for text in texts.values():
            for length in range(len(text)):
                begun = marker + text[:length]
                beginnings[tuple(self.encode(f".\n{begun}"))] = begun
        try:
            behind = {stem: beginnings[scale.before + stem] for stem in scale.steps}
        except KeyError:
            return None
        return ServedScale(scale, behind)

    def _agrees(self, prompt: Prompt, begun: str) -> bool:
        """Whether the server writes a prompt and the beginning of its answer as it should."""
        blanks = [BLANK] * prompt.n_images
        served = self._tokens(messages(prompt, blanks, begun))
        if self.conversation is None:  # what the server writes itself is right
            return served == [*self._tokens(messages(prompt, blanks)), *self.encode(begun)]
        # 1) the judge's own tokens, -1 for an image
        parts: list = []
        leads = True  # whether an image stands before the text of its turn
        for part in prompt.parts:
            if part is IMAGE and leads:
                parts += [IMAGE, self.conversation.behind_image]
            else:
                parts.append(part)
                leads = isinstance(part, Reply)
        written = self.conversation.ask(parts)
        if begun:
            written = written.append(self.conversation.reply + begun)
        expected = self._tokens({"prompt": "", "add_special_tokens": True})
        for piece in written.parts:
            expected += [-1] if piece is IMAGE else self.encode(str(piece))
        # 2) the same without images, each of which the server writes as a run of one token
        image = [-1]
        if -1 in expected:
            position = expected.index(-1)
            image += served[position : position + 1]
        plain = [token for token in expected if token not in image]
        return plain == [token for token in served if token not in image]

    def _encode(self, text: str) -> list[int]:
        """The tokens of a text, without those that the tokenizer adds by itself."""
        return self._tokens({"prompt": text, "add_special_tokens": False})

    def _tokens(self, request: dict[str, Any]) -> list[int]:
        """The server's tokens of a request's prompt; Unanswered where it shows none."""
        reply = self.look(request)
        tokens = reply.get("tokens")
        context: Any = reply.get("max_model_len")
        if not isinstance(tokens, list) or not is_int_at_least(context, 1):
            raise Unanswered("it tells no tokens, or not how many it takes")
        if not all(type(token) is int for token in tokens):
            raise Unanswered("its tokens are no numbers")
        self.context = context
        return tokens


def messages(prompt: Prompt, pictures: Sequence[Part], begun: str = "") -> dict[str, Any]:
    """The part of a request that holds a turn, its pictures, and how the answer begins."""
    check_images(prompt, pictures)
    turns = prompt.messages()
    remaining = iter(pictures)
    for message in turns:
        content = message["content"]
        if len(content) == 1 and "text" in content[0]:
            message["content"] = content[0]["text"]  # a plain string, which every server takes
            continue
        for entry in content:
            if entry["type"] == "image":
                entry |= {"type": "image_url", **next(remaining)}
    if not begun:
        return {"messages": turns}
    turns.append({"role": "assistant", "content": begun})
    return {"messages": turns, "add_generation_prompt": False, "continue_final_message": True}
