"""What a server is found to do before a call's first prompt: does it write the judge's own prompt,
and can it continue an answer?"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from PIL import Image

from vjudge.engines.client import OPENAI, Client, Rejected, Unanswered
from vjudge.engines.engine import Ask, check_images, say
from vjudge.engines.logprobs import LISTED
from vjudge.engines.tokens import Scale
from vjudge.images import data_uri
from vjudge.prompts import IMAGE, Control, Conversation, Prompt
from vjudge.records import is_int_at_least

BLANK = data_uri(Image.new("RGB", (64, 64), "white"))  # stands for any picture
PROBE = "Answer with the word yes.\n\n###Ünit:  1 + 1\n\n###Feedback:"  # templates change such text


class ServerError(RuntimeError):
    """The server can't be used as asked; the message says why and what to do."""


class Handshake:
    """What a call found out about its server, as far as the options need it.

    Attributes:
        context: tokens of the model's context; 0 where the server shows no tokens.
        tokens: of each scale whose distribution can be read, score -> token; the mapping is empty
            where the server shows no tokens.
        begun: how an answer begins in a score pass.
        sent: fields of each request.
        closings: of each scale, what is put behind an answer to read the scale there.
        continues: whether the server continues an answer token for token, so that it can be closed.
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
        self.begun = ""
        self.tokens: dict[Any, Mapping[int, int]] = {}
        self.closings: dict[Any, str] = {}
        self.probes = list(dict.fromkeys(map(probe, prompts)))
        self._look()
        for row in rows:
            scale = tuple(ask.scale(row).items())
            if scale and scale not in self.tokens:
                tokens = self._scale_tokens(dict(scale))
                if tokens is not None:
                    self.tokens[scale] = tokens
        self.sent = self._fields()
        self.continues = self._continues()

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

    def _scale_tokens(self, texts: Mapping[int, str]) -> Mapping[int, int] | None:
        """Each score's token after the marker; None where no distribution can be read."""
        if not self.context:  # the first token may not tell "1" from "10"
            own = [text.strip() for text in texts.values()]
            for text in own:
                if sum(other.startswith(text) for other in own) > 1:
                    return None
            return {}
        scale = Scale.read(self.ask.marker, texts, self._encoded)
        tokens = scale.tokens if len(scale.tokens) <= LISTED else {}
        if not self.ask.scores:
            if tokens and self.ask.closing is not None:
                begun = self._begun(self.ask.closing.marker, texts, scale)
                if begun is not None:
                    self.closings[tuple(texts.items())] = begun
            return tokens or None
        begun = self._begun(self.ask.marker, texts, scale)
        if not tokens or begun is None or self.begun not in ("", begun):
            raise ValueError(
                f'no single token of this server tells {sorted(texts)} apart; use mode="feedback"'
            )
        self.begun = begun
        return tokens

    def _begun(self, marker: str, texts: Mapping[int, str], scale: Scale) -> str | None:
        """The marker, and what stands between it and the scores' tokens, such as a blank."""
        score, text = next(iter(texts.items()))
        before = self._encoded(f".\n{marker}{text}")[: -len(scale.paths[score])]
        for end in range(len(text)):
            if self._encoded(f".\n{marker}{text[:end]}") == before:
                return marker + text[:end]
        return None

    def _fields(self) -> dict[str, Any]:
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
        if not self.context or not (ask.scores or self.conversation):
            return sent
        faults: dict[str, None] = {}
        for way in ({}, {"add_special_tokens": True}):  # a template may leave the first token out
            differences = [self._difference(way, probe, self.begun) for probe in self.probes]
            if not any(differences):
                return sent | way
            faults |= dict.fromkeys(filter(None, differences))
        end = " and the beginning of an answer after it" if ask.scores else ""
        raise ServerError(
            f"{self.client.base_url} can't be made to write the judge's own prompt{end}:"
            f" {'; '.join(faults)}. Start it with the judge's own chat template (--chat-template);"
            " conversation=None asks in the server's own words"
        )

    def _continues(self) -> bool:
        if not self.context or self.ask.closing is None:
            return False
        way = {name: self.sent[name] for name in ("add_special_tokens",) if name in self.sent}
        begun = f"It is so.{self.ask.closing.marker}"
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
        if not text:
            return []
        return self._tokenized({"prompt": text, "add_special_tokens": False})

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
