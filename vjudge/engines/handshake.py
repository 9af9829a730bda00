"""What a server is found to do before a call's first prompt: does it write the judge's own prompt,
and can it continue an answer?"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from PIL import Image

from vjudge.engines.client import OPENAI, Client, Rejected, Unanswered
from vjudge.engines.engine import Ask, Texts, check_images, say
from vjudge.engines.logprobs import LISTED
from vjudge.engines.tokens import Scale, Stem
from vjudge.images import data_uri
from vjudge.prompts import IMAGE, Control, Conversation, Prompt
from vjudge.records import is_int_at_least

BLANK = data_uri(Image.new("RGB", (64, 64), "white"))  # stands for any picture
PROBE = "Answer with the word yes.\n\n###Ünit:  1 + 1\n\n###Feedback:"  # templates change such text


class ServerError(RuntimeError):
    """The server can't be used as asked; the message says why and what to do."""


@dataclass(frozen=True)
class ServedScale:
    """A scale in a server's own tokens, and the text that each of its stems is read behind."""

    scale: Scale
    behind: dict[Stem, str]  # begins with the marker

    @property
    def begun(self) -> str:
        """How an answer begins that goes on with a score's own tokens."""
        return self.behind[()]


class Handshake:
    """What a call found out about its server, as far as the options need it.

    Attributes:
        context: tokens of the model's context; 0 where the server shows no tokens.
        sent: fields of each request.
        continues: whether the server continues an answer token for token, so that distributions
            can be read behind it.
    """

    def __init__(
        self,
        client: Client,
        model: str,
        conversation: Conversation | None,
        ask: Ask,
        rows: Sequence[int],
        prompts: Iterable[Prompt],
    ) -> None:
        self.client = client
        self.model = model
        self.conversation = conversation
        self.ask = ask
        self.context = 0
        self.probes = list(dict.fromkeys(map(probe, prompts)))
        self._known: dict[str, list[int]] = {}  # text -> tokens
        self._look()
        # 1) the scales in the server's tokens
        self._scales: dict[Any, ServedScale | None] = {}
        places = [(ask.marker, ask.scale(row)) for row in rows]
        for row in rows:
            for _, before, texts in ask.closings(row):
                places.append((before, texts))
        for marker, texts in places:
            key = (marker, *texts.items())
            if self.context and texts and key not in self._scales:
                self._scales[key] = self._served(marker, texts)
        # 2) the judge's own prompts, and answers that are continued
        begun = self._begun(rows)
        self.sent = self._fields(begun)
        self.continues = bool(begun) or self._continues()

    def scale(self, marker: str, texts: Texts) -> ServedScale | None:
        """A scale behind a marker; None where its distribution can't be read token by token."""
        return self._scales.get((marker, *texts.items()))

    def tokens(self, row: int) -> list[int] | None:
        """The tokens to ask log-probabilities of while an answer is written.

        Empty where the server shows none, and the scores are known by their texts. None where one
        place can't tell the scores apart.
        """
        texts = self.ask.scale(row)
        if not texts:
            return None
        if self.context:
            served = self.scale(self.ask.marker, texts)
            return served.scale.firsts if served and served.scale.tokens else None
        own = [text.strip() for text in texts.values()]
        for text in own:  # the first token may not tell "1" from "10"
            if sum(other.startswith(text) for other in own) > 1:
                return None
        return []

    def post(self, body: Mapping[str, Any], *, look: bool = False) -> dict[str, Any]:
        """`Client.post` from outside of its loop."""
        reply: dict[str, Any] = self.client.submit(self.client.post(body, look=look)).result()
        return reply

    def _look(self) -> None:
        """Does the server show its tokens? ServerError where score mode needs them."""
        why = "it has no /tokenize that names max_model_len"
        try:
            if self.client.base_url != OPENAI:
                self._encoded(PROBE)
        except Unanswered as error:
            why = f"/tokenize: {error}"
        lack = f"{self.client.base_url} does not show the tokens of {self.model!r} ({why}): "
        if not self.context and self.ask.scores:
            raise ServerError(
                f"{lack}whether it continues an answer that is begun, which score mode needs, is"
                ' not known; use mode="feedback", or a server that has /tokenize, such as vLLM\'s'
            )
        if not self.context and self.conversation is not None:
            say(f"{lack}whether its prompt is the judge's own, token for token, is not checked")

    def _served(self, marker: str, texts: Texts) -> ServedScale | None:
        """A scale in the server's tokens; None where no text leads to one of its stems."""
        scale = Scale.read(marker, texts, self._encoded)
        if any(len(scale.reads(stem)) > LISTED for stem in scale.stems):
            return None
        score, text = next(iter(texts.items()))
        before = self._encoded(f".\n{marker}{text}")[: -len(scale.paths[score])]
        beginnings = {}
        for text in texts.values():
            for end in range(len(text)):
                behind = marker + text[:end]
                beginnings[tuple(self._encoded(f".\n{behind}"))] = behind
        found = {stem: beginnings.get((*before, *stem)) for stem in scale.stems}
        behind_stems = {stem: text for stem, text in found.items() if text is not None}
        return ServedScale(scale, behind_stems) if len(behind_stems) == len(found) else None

    def _begun(self, rows: Sequence[int]) -> str:
        """How every answer of a score pass begins; ValueError where a scale can't be read."""
        if not self.ask.scores:
            return ""
        begun = ""
        for row in rows:
            texts = self.ask.scale(row)
            served = self.scale(self.ask.marker, texts)
            if served is None:
                raise ValueError(
                    f"the tokens of this server don't tell {sorted(texts)} apart; use"
                    ' mode="feedback"'
                )
            begun = served.begun
        return begun

    def _fields(self, begun: str) -> dict[str, Any]:
        """The fields by which the server writes the judge's own prompts; ServerError: none do."""
        ask = self.ask
        sampled = ask.temperature > 0
        limit = 1 if ask.scores else ask.max_new_tokens
        sent: dict[str, Any] = {"model": self.model, "temperature": ask.temperature}
        if sampled:
            sent["top_p"] = ask.top_p
        if self.context or ask.repetition_penalty != 1:
            sent["repetition_penalty"] = ask.repetition_penalty
        if self.context:  # where a request is silent, a checkpoint's own settings would hold
            sent["skip_special_tokens"] = False
        if self.context and sampled:
            sent |= {"top_k": -1, "min_p": 0.0}
        if not self.context or limit < self.context:
            name = "max_completion_tokens" if self.client.base_url == OPENAI else "max_tokens"
            sent[name] = limit
        if not self.context or not (begun or self.conversation):
            return sent
        faults: dict[str, None] = {}
        for way in ({}, {"add_special_tokens": True}):  # a template may leave the first token out
            differences = [self._difference(way, probe, begun) for probe in self.probes]
            if not any(differences):
                return sent | way
            faults |= dict.fromkeys(filter(None, differences))
        end = " and the beginning of an answer after it" if begun else ""
        raise ServerError(
            f"{self.client.base_url} can't be made to write the judge's own prompt{end}:"
            f" {'; '.join(faults)}. Start it with the judge's own chat template (--chat-template);"
            " conversation=None asks in the server's own words"
        )

    def _continues(self) -> bool:
        long = [one for one in self._scales.values() if one and not one.scale.tokens]
        if not self.context or not (long or self.ask.closing):
            return False
        way = {name: self.sent[name] for name in ("add_special_tokens",) if name in self.sent}
        begun = f"It is so.\n{self.ask.marker}"
        return not any(self._difference(way, probe, begun) for probe in self.probes)

    def _difference(self, way: Mapping[str, Any], prompt: Prompt, begun: str) -> str:
        """What is not alike in the server's tokens of a prompt and the judge's own; "" for none."""
        uris = [BLANK] * prompt.n_images
        tokens = self._tokenized({**messages(prompt, uris, begun), **way})
        try:
            own = self._own_tokens(way, prompt, begun)
        except LookupError as error:
            return str(error)
        place = 0
        for token in own:
            if token is None:  # an image is a run of one token
                image = tokens[place : place + 1]
                while image and tokens[place : place + 1] == image:
                    place += 1
            elif tokens[place : place + 1] == [token]:
                place += 1
            else:
                where = f"from token {place + 1} of {len(tokens)} on"
                return f"its tokens are not the judge's own {where}"
        if place < len(tokens):
            return f"it writes {len(tokens) - place} more tokens after the end of the judge's own"
        return ""

    def _own_tokens(self, way: Mapping[str, Any], prompt: Prompt, begun: str) -> list[int | None]:
        """The judge's own tokens of a prompt, None for an image; LookupError: a control token that
        the served vocabulary lacks."""
        own: list[int | None] = []
        if self.conversation is None:  # what the server writes itself is right
            uris = [BLANK] * prompt.n_images
            own += self._tokenized({**messages(prompt, uris), **way})
            return own + self._encoded(begun)
        own += self._tokenized({"prompt": "", "add_special_tokens": True})
        text = "".join(part for part in prompt.parts if isinstance(part, str))
        words = self.conversation.wrap(text, prompt.n_images)
        if begun:
            words = words.append(self.conversation.reply + begun)
        for part in words.parts:
            if part is IMAGE:
                own.append(None)
            elif isinstance(part, Control):
                ids = self._encoded(part.text * part.times)
                if len(ids) != part.times:
                    what = f"no control token {part.text!r}, which the judge's has"
                    raise LookupError(f"the served vocabulary has {what}")
                own += ids
            else:
                own += self._encoded(str(part))
        return own

    def _encoded(self, text: str) -> list[int]:
        """The tokens of a text, without those that the tokenizer adds by itself."""
        if text and text not in self._known:
            request = {"prompt": text, "add_special_tokens": False}
            self._known[text] = self._tokenized(request)
        return self._known.get(text, [])

    def _tokenized(self, request: Mapping[str, Any]) -> list[int]:
        """The server's tokens of a request's prompt; Rejected where it shows none."""
        reply = self.post({"model": self.model, **request}, look=True)
        ids = reply.get("tokens")
        context = reply.get("max_model_len")
        sound = isinstance(ids, list) and all(is_int_at_least(id, 0) for id in ids)
        if not sound or not (ids or request.get("prompt") == ""):
            raise Rejected("the server's /tokenize gives no tokens")
        if not self.context and is_int_at_least(context, 1):
            self.context = int(context)  # type: ignore[arg-type]
        return list(ids)  # type: ignore[arg-type]


def turn(prompt: Prompt, ask: Ask) -> Prompt:
    """The user's turn: a score pass's prompt without the marker that it ends in."""
    if not ask.scores:
        return prompt
    *parts, end = prompt.parts
    return replace(prompt, parts=(*parts, str(end).removesuffix(ask.marker)))


def probe(prompt: Prompt) -> Prompt:
    """A short prompt with all that a chat template may write differently: images, system, blanks
    at the ends."""
    parts: list[Any] = []
    for part in prompt.parts:
        if isinstance(part, str):
            part = re.sub(r"(?s)\S.*\S|\S", PROBE, part)
        parts.append(part)
    return Prompt(tuple(parts), prompt.system)


def messages(prompt: Prompt, uris: Sequence[str], begun: str = "") -> dict[str, Any]:
    """The part of a request that holds a turn, its pictures, and how the answer begins."""
    check_images(prompt, uris)
    turns = prompt.messages()
    pictures = iter(uris)
    for message in turns:
        content = []
        for part in message["content"]:
            if part["type"] == "image":
                part = {"type": "image_url", "image_url": {"url": next(pictures)}}
            content.append(part)
        if len(content) == 1 and "text" in content[0]:
            message["content"] = content[0]["text"]  # a plain string, which every server takes
        else:
            message["content"] = content
    if not begun:
        return {"messages": turns}
    turns.append({"role": "assistant", "content": begun})
    return {"messages": turns, "add_generation_prompt": False, "continue_final_message": True}
