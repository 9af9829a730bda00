"""The engine for a server that speaks OpenAI's protocol: OpenAI itself, vLLM, SGLang, llama.cpp and others.

vLLM tells the tokens of a conversation (`/tokenize`), so before a call's first prompt they are compared, token for
token, with the judge's own wording. Of the ways that such a server has (completions for texts, its chat template, with
or without special tokens) the first that writes the judge's prompt is taken, also up to the place that score mode reads
after; where none does, the call is refused. Elsewhere a line says that it was not checked, and score mode is refused.

What differs from an engine on this machine, and can't be otherwise:

- The server's tokenizer reads "</s>" inside a response as a control token, if it is one of its vocabulary.
- Where a server can't be asked for the scores' tokens, a score outside the most probable ones counts as probability 0,
  and `usage.oddities` counts such verdicts.
- A prompt without an answer is a failure of its row that no run records, so that the same call asks again.
"""

from __future__ import annotations

import asyncio
import math
import os
import time
import warnings
from collections.abc import AsyncIterator, Container, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

from PIL import Image

from vjudge.engines import chat
from vjudge.engines.chat import PROBE, Call, Reading, Way, scale_key
from vjudge.engines.engine import Answer, Ask, Engine, Quantity, say, whole
from vjudge.engines.tokens import Scale
from vjudge.engines.transport import Client, Key, Rejected, ServerError, Unanswered, Usage, check_url, read_key, stream
from vjudge.images import data_uri, picture
from vjudge.prompts import IMAGE, Control, Conversation, Prompt

OPENAI = "https://api.openai.com/v1"
KEY_VARIABLE = "OPENAI_API_KEY"
GIVE_UP = 8  # prompts in a row without an answer
KEPT_PICTURES = 16  # encoded, of the latest prompts: neighbours share them
UNCHECKED = "whether its prompt is the judge's own wording, token for token, is not checked"
SPECIAL = {"add_special_tokens": True}


class ServerEngine(Engine):
    """Ask a model behind an OpenAI-compatible server.

    A short request first tries the call's own options (and a small blank picture, where prompts have some); what the
    server does not accept raises there.

    Args:
        model: as the server names it.
        base_url: up to and including "/v1". Plain http carries a key to this machine only, and never takes a proxy
            there. Redirects are refused. SSL_CERT_FILE names certificates to trust elsewhere.
        conversation: the words around a turn that the judge was trained with, which the server's tokens are checked
            against. None takes the server's own chat template as right.
        served_as: what a run's manifest says in place of base_url, for a server whose address changes; None keeps it.
        key_variable: the environment variable that holds the key, read anew for each call; None sends no key.
        concurrency: requests at once; an integer `batch_size` of a call overrides it.
        timeout: seconds for one request, answer included.
        retries: repetitions at most of a request that met a connection error, a time-out, or HTTP 408, 429 or 5xx; one
            where nothing has answered yet. The pause doubles from a second to a minute, and is never shorter than
            Retry-After; one of more than ten minutes ends the call.
        image_size: the longer side of a picture in pixels at most; None sends it as it is, as PNG.
        fields: further fields of each request, such as `{"reasoning_effort": "low"}`; None as a value leaves a field
            out. A run's manifest keeps them: no secrets.
        price: for a million prompt tokens and a million new tokens, in any currency.
        spend_limit: in that currency, for this engine's lifetime; no request starts beyond it (those under way end).

    Attributes:
        usage: what all requests came to, a `vjudge.engines.transport.Usage`.

    Raises:
        ValueError: an unsound option, all of them; a key that is missing, or would go over a network in the clear.

    >>> ServerEngine("my-judge", base_url="http://127.0.0.1:8000/v1", key_variable=None)
    ServerEngine('my-judge', base_url='http://127.0.0.1:8000/v1')
    """

    name = "server"

    def __init__(
        self,
        model: str,
        *,
        base_url: str = OPENAI,
        conversation: Conversation | None = None,
        served_as: str | None = None,
        key_variable: str | None = KEY_VARIABLE,
        concurrency: int = 8,
        timeout: float = 300.0,
        retries: int = 6,
        image_size: int | None = None,
        fields: Mapping[str, Any] | None = None,
        price: tuple[float, float] | None = None,
        spend_limit: float | None = None,
    ) -> None:
        priced = price is None or (len(price) == 2 and all(0 <= part < math.inf for part in price))
        sound = {
            "model": (isinstance(model, str) and bool(model.strip()), "give the model's name"),
            "concurrency": (whole(concurrency, 1), "use a whole number from 1"),
            "timeout": (0 < timeout < math.inf, "use seconds above 0"),
            "retries": (whole(retries, 0), "use a whole number from 0"),
            "image_size": (image_size is None or whole(image_size, 1), "use pixels from 1, or None"),
            "price": (priced, "use two numbers from 0"),
            "spend_limit": (spend_limit is None or (price and spend_limit >= 0), "use a number from 0, with a price"),
        }
        values = locals()
        if faults := [f"{name}={values[name]!r}: {remedy}" for name, (fine, remedy) in sound.items() if not fine]:
            raise ValueError("; ".join(faults))
        self.model, self.base_url, self.served_as = model, check_url(base_url), served_as
        self.address = f"{model} at {urlsplit(base_url).netloc}"
        self.conversation = conversation if self.base_url != OPENAI else None
        self.key_variable, self.concurrency, self.timeout, self.retries = key_variable, concurrency, timeout, retries
        self.image_size, self.fields = image_size, dict(fields or {})
        self.spend_limit, self.usage = spend_limit, Usage(price=price)
        self._uris: dict[str, str] = {}
        self._calls: dict[Any, Call] = {}  # what the server was seen to do, by a call's options
        self._key()  # refuses one that is missing now

    def __repr__(self) -> str:
        return f"ServerEngine({self.model!r}, base_url={self.base_url!r})"

    def answer(
        self, prompts: Sequence[Prompt], images: Sequence[Sequence[Any]], ask: Ask, wanted: Container[int] | None = None
    ) -> Iterator[list[Answer]]:
        """Ask for every prompt; see `Engine.answer`.

        Prompts are the user's turns alone. Seeds are sent modulo 2**31 where there is a temperature; servers promise
        little about them. Whoever stops loses `batch_size` answers at most ("auto" takes `concurrency`).

        Raises:
            ServerError: the server lacks what the options need, or writes another prompt than the judge's own.
            ValueError: unsound options; a repetition penalty for OpenAI; a score pass without a place for the verdict,
                or on a scale that this server writes alike.
        """
        faults = ask.check()
        if ask.repetition_penalty != 1 and self.base_url == OPENAI:
            faults.append(f"repetition_penalty={ask.repetition_penalty!r}: OpenAI's API has none; vLLM's server has")
        rows = [row for row in range(len(prompts)) if wanted is None or row in wanted]
        if ask.scores and not (ask.marker and all(ask.scale(row) for row in rows)):
            faults.append('this template writes its verdict in no fixed place, which mode="score" needs')
        if faults:
            raise ValueError("; ".join(faults))
        if not rows:
            return iter(())
        turns = (chat.cut(prompts[row], ask.marker) if ask.scores else prompts[row] for row in rows)
        probes = tuple(dict.fromkeys(map(chat.probe, turns)))
        scales = {scale_key(ask.scale(row)): ask.scale(row) for row in rows if ask.scale(row)}
        key = (replace(ask, scales=(), seeds=(), batch_size="auto"), frozenset(probes), frozenset(scales))
        if key not in self._calls:
            (self._calls[key],) = stream(_Look(self, self._client(1)).call(ask, probes, scales))
        return self._answers(rows, prompts, images, replace(self._calls[key], ask=ask))

    def plan(
        self, prompts: Sequence[Prompt], images: Sequence[Sequence[Any]], ask: Ask, *, seconds: float = 10.0
    ) -> list[Quantity]:
        """What `answer` would send and cost; nothing is sent. Arguments as in `Engine.plan`; `seconds` is ignored."""
        lines = super().plan(prompts, images, ask, seconds=seconds)
        planned = {line.quantity: line.planned for line in lines}
        cost, why = math.nan, "no price= was given"
        if self.usage.price is not None:
            cost = planned["prompt tokens"] * self.usage.price[0] + planned["new tokens"] * self.usage.price[1]
            why = "every answer at its limit; test requests, repetitions and pictures come on top"
        sent = "and a short test request; in score mode more on scales such as 1 to 10"
        requests = Quantity("requests", len(prompts), "", sent)
        return [requests, *lines, Quantity("cost", cost / 1e6, "currency of price=", why)]

    def identity(self) -> dict[str, Any]:
        """See `Engine.identity`."""
        conversation = self.conversation and self.conversation.name
        return {
            "engine": self.name,
            "base_url": self.served_as or self.base_url,
            "model": self.model,
            "request": {"conversation": conversation, "image_size": self.image_size, "fields": self.fields},
            "versions": {},
        }

    def _answers(
        self, rows: Sequence[int], prompts: Sequence[Prompt], images: Sequence[Sequence[Any]], call: Call
    ) -> Iterator[list[Answer]]:
        """Ask for each row, and say at the end what it came to."""
        width = call.ask.batch_size if isinstance(call.ask.batch_size, int) else self.concurrency
        client, usage = self._client(width), self.usage
        silent, refused, before = 0, 0, usage.requests

        async def one(row: int) -> Answer:
            nonlocal silent, refused
            started = time.perf_counter()
            try:
                if self.spend_limit is not None and usage.spend >= self.spend_limit:
                    client.stop(f"the spend limit of {self.spend_limit:g} is reached")
                if client.stopped is not None:
                    refused += 1
                    return Answer(row, failure=f"not asked: {client.stopped}", transient=True)
                pictures = [chat.picture_part(self._uri(source)) for source in images[row]]
                bodies = call.requests(prompts[row], pictures, call.on(row), call.ask.seed(row))
                replies = [await client.post(call.way.endpoint, body) for body in bodies]
                answer = call.answer(row, [chat.read_reply(reply, usage, client.key) for reply in replies], usage)
                answer = replace(answer, seconds=time.perf_counter() - started)
            except Unanswered as error:
                silent += 1
                if silent >= GIVE_UP:
                    client.stop(f"{silent} prompts in a row got no answer, the last for: {error}")
                return Answer(row, failure=str(error), transient=True)
            except (Rejected, ValueError, OSError) as error:  # the server turned it down; a picture is broken
                answer = Answer(row, failure=str(error))
            silent = 0
            return answer

        async def everything() -> AsyncIterator[list[Answer]]:
            remaining, running = iter(rows), set[Any]()
            async with client.http:
                while True:  # the next one starts only when the caller has come back for more after an answer
                    while len(running) < width and (row := next(remaining, None)) is not None:
                        running.add(asyncio.create_task(one(row)))
                    if not running:
                        return
                    done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                    if sound := [task.result() for task in done if task.exception() is None]:
                        yield sound  # what was paid for goes first
                    for task in done:
                        task.result()

        try:
            yield from stream(everything())
        finally:
            if usage.requests > before:
                say(f"{self.address}, all told: {usage}")
            if client.stopped is not None:
                warnings.warn(
                    f"{self.address}: {client.stopped}; {refused} prompts were not asked. The same call asks for what"
                    " is missing; give it an `out` folder to keep what is there",
                    RuntimeWarning,
                    stacklevel=2,
                )

    def _uri(self, source: Any) -> str:
        """A picture as a data URI, encoded once for neighbouring prompts."""
        opened = picture(source)
        if opened.key not in self._uris:
            while len(self._uris) >= KEPT_PICTURES:
                del self._uris[next(iter(self._uris))]
            self._uris[opened.key] = data_uri(opened.open(), size=self.image_size)
        return self._uris[opened.key]

    def _key(self) -> Key:
        """The key as the environment has it now."""
        needed = self.key_variable is not None and (self.base_url == OPENAI or self.key_variable != KEY_VARIABLE)
        return read_key(self.base_url, self.key_variable, needed=needed)

    def _client(self, width: int) -> Client:
        return Client(self.base_url, self._key(), self.usage, self.timeout, self.retries, width)


class _Different(Exception):
    """The server writes other tokens than the judge's own."""


class _Look:
    """What a server is seen to do before a call's first prompt, by its `/tokenize` and one short request."""

    def __init__(self, engine: ServerEngine, client: Client) -> None:
        self.engine, self.client, self.name = engine, client, engine.address
        self.context = 0  # the server's, in tokens; 0 where it does not show its tokens
        self._ids: dict[str, list[int]] = {}

    async def call(
        self, ask: Ask, probes: Sequence[Prompt], scales: Mapping[Any, Mapping[int, str]]
    ) -> AsyncIterator[Call]:
        """The call as the server can serve it; errors as in `ServerEngine.answer`."""
        async with self.client.http:
            reason = await self.look()
            if reason and ask.scores:
                raise ServerError(
                    f"{self.name} does not show whether it continues an answer that is begun ({reason}), and"
                    ' mode="score" reads right after the marker; use mode="feedback", whose expected scores are read'
                    " where the verdict is written, or a server that has /tokenize, such as vLLM's"
                )
            if reason and self.engine.conversation is not None:
                say(f"{self.name} does not show its tokens ({reason}): {UNCHECKED}")
            try:
                readings = {name: await self.reading(ask, texts) for name, texts in scales.items()}
                sound = {name: reading for name, reading in readings.items() if reading}
                call = Call(ask, self.sent(ask), self.engine.fields, scales=sound)
                if self.context and (ask.scores or self.engine.conversation is not None):
                    call = replace(call, way=await self.way(call, probes))
                yield await self.tested(call, probes[-1])
            except (Rejected, Unanswered) as error:
                remedy = "; start it with the judge's own (--chat-template)" if "chat template" in str(error) else ""
                raise ServerError(f"{self.name} did not answer a short test request: {error}{remedy}") from None

    async def look(self) -> str:
        """Find out whether the server shows the tokens of texts; why not, where it does not."""
        if self.engine.base_url == OPENAI:
            return "OpenAI has no /tokenize"
        try:
            reply = await self.tokenized({"prompt": PROBE})
        except (Rejected, Unanswered) as error:
            return f"/tokenize: {error}"
        self.context = reply["max_model_len"] if whole(reply.get("max_model_len"), 1) else 0
        return "" if self.context else "/tokenize names no max_model_len"

    def sent(self, ask: Ask) -> dict[str, Any]:
        """The fields of each request."""
        limit = 1 if ask.scores else ask.max_new_tokens
        sent: dict[str, Any] = {"model": self.engine.model, "temperature": ask.temperature}
        sent |= {"top_p": ask.top_p} if ask.temperature > 0 else {}
        if self.context or ask.repetition_penalty != 1:
            sent["repetition_penalty"] = ask.repetition_penalty
        if self.context:  # where a request is silent, a checkpoint's own settings would hold
            sent |= {"skip_special_tokens": False} | ({"top_k": -1, "min_p": 0.0} if ask.temperature > 0 else {})
        if not self.context or limit < self.context:
            sent["max_completion_tokens" if self.engine.base_url == OPENAI else "max_tokens"] = limit
        return sent

    async def reading(self, ask: Ask, texts: Mapping[int, str]) -> Reading | None:
        """How the verdicts on a scale are read; None where no distribution can be, and none has to be."""
        if not self.context:  # the first token may not tell "1" from "10"
            own = [text.strip() for text in texts.values()]
            clash = any(other.startswith(text) for text in own for other in own if other != text)
            return None if clash else Reading(texts)
        start = f".\n{ask.marker}"
        ids = {score: await self.ids(start + text) for score, text in texts.items()}
        shared = min(len(os.path.commonprefix(list(ids.values()))), *(len(each) - 1 for each in ids.values()))
        scale = Scale(ask.marker, dict(texts), {score: tuple(each[shared:]) for score, each in ids.items()})
        if not ask.scores:
            return Reading(texts, scale) if scale.tokens else None
        if len(set(scale.paths.values())) < len(scale.paths):
            raise ValueError(f"the server's vocabulary writes two of the scores {sorted(texts)} alike")
        stems = {}
        for stem in scale.stems:
            score = next(score for score, path in scale.paths.items() if path[: len(stem)] == stem)
            begun = [texts[score][:end] for end in range(len(texts[score]) + 1)]
            fits = [text for text in begun if await self.ids(start + text) == [*ids[score][:shared], *stem]]
            if not fits:
                raise ValueError(f"no text ends where the server's tokens of {ask.marker + texts[score]!r} part")
            stems[stem] = fits[0]
        return Reading(texts, scale, stems)

    async def way(self, call: Call, probes: Sequence[Prompt]) -> Way:
        """The first way in which the server writes the judge's own prompts; ServerError where there is none."""
        ways, conversation = [Way()], self.engine.conversation
        if conversation is not None:
            shown = any(probe.n_images for probe in probes)
            ways = [*([] if shown else [Way(conversation=conversation)]), Way(), Way(SPECIAL)]
        begun = {call.ask.marker + text for each in call.scales.values() for text in each.stems.values()}
        faults: list[Rejected | _Different] = []
        for way in ways:
            try:
                for probe in probes:
                    for beginning in sorted(begun) if call.ask.scores else [None]:
                        await self.compare(way, probe, beginning)
                return way
            except (Rejected, _Different) as error:
                faults.append(error)
        reasons = "; ".join(dict.fromkeys(map(str, faults)))
        if not call.ask.scores and all(isinstance(error, Rejected) for error in faults):
            say(f"{self.name} does not show the tokens of messages ({reasons}): {UNCHECKED}")
            return call.way
        end = " and the beginning of an answer after it" if call.ask.scores else ""
        raise ServerError(
            f"{self.name} can't be made to write the judge's own prompt{end}: {reasons}. Start it with the judge's own"
            " chat template (--chat-template); conversation=None asks in the server's own words"
        )

    async def tested(self, call: Call, probe: Prompt) -> Call:
        """The call, tried on one short request; without log-probabilities where none come."""
        silent, reason = replace(call, scales={}), "a short test request brought none"
        try:
            if await self.test(call, probe) or not call.scales:
                return call
        except Rejected as error:
            if not call.scales:
                raise
            reason = str(error)  # some models turn down such a request; anything else amiss shows again without it
            if not call.ask.scores:
                await self.test(silent, probe)
        if call.ask.scores:
            raise ServerError(
                f"{self.name} gives no log-probabilities ({reason}), which score mode needs; use mode="
                '"feedback", or a server that offers them'
            )
        say(f"{self.name} gives no log-probabilities: expected_score stays missing")
        return silent

    async def test(self, call: Call, probe: Prompt) -> Any:
        """Send the short request; the log-probabilities that came."""
        prompt = probe.append(call.ask.marker) if call.ask.scores else probe
        body = call.requests(prompt, _blanks(probe), next(iter(call.scales.values()), None), 0)[0]
        reply = await self.client.post(call.way.endpoint, body)
        return chat.read_reply(reply, self.client.usage, self.client.key)[1]

    async def compare(self, way: Way, probe: Prompt, begun: str | None) -> None:
        """Compare the server's tokens of a prompt with the judge's, an image a run of one token; raises _Different."""
        tokens, at = (await self.tokenized(way.request(probe, _blanks(probe), begun)))["tokens"], 0
        if self.engine.conversation is not None:
            own = await self.own(chat.conversation_of(probe, self.engine.conversation, begun))
        else:  # what the server writes itself is right
            plain = (await self.tokenized(way.request(probe, _blanks(probe))))["tokens"]
            own = [plain + await self.ids(begun or "")]
        for number, chunk in enumerate(own):
            if number:  # past the image before it
                at = next((end for end in range(at, len(tokens)) if tokens[end] != tokens[at]), len(tokens))
            same = len(os.path.commonprefix([tokens[at:], chunk]))
            at += same
            if same < len(chunk):
                raise _Different(f"its tokens are not the judge's own from token {at + 1} of {len(tokens)} on")
        if at < len(tokens):
            raise _Different(f"it writes {len(tokens) - at} more tokens after the end of the judge's own")

    async def own(self, prompt: Prompt) -> list[list[int]]:
        """The tokens of a whole conversation, split at its images, as `Encoder.ids` has them."""
        chunks, text = [(await self.tokenized({"prompt": "", **SPECIAL}, least=0))["tokens"]], ""
        for part in (*prompt.parts, IMAGE):
            if isinstance(part, str):
                text += part
                continue
            chunks[-1] += await self.ids(text)
            text = ""
            if isinstance(part, Control):
                ids = await self.ids(chat.spelled([part]))
                if len(ids) != part.times:
                    raise _Different(f"the served vocabulary has no control token {part.text!r}, which the judge's has")
                chunks[-1] += ids
            else:
                chunks.append([])
        return chunks[:-1]

    async def ids(self, text: str) -> list[int]:
        """The tokens of a text, without those that the tokenizer adds by itself."""
        if text and text not in self._ids:
            self._ids[text] = (await self.tokenized({"prompt": text, "add_special_tokens": False}))["tokens"]
        return list(self._ids.get(text, []))

    async def tokenized(self, request: Mapping[str, Any], *, least: int = 1) -> dict[str, Any]:
        """What the server says of a request's prompt, its "tokens" among it; Rejected where there are none."""
        reply = await self.client.post("/tokenize", {"model": self.engine.model, **request}, answers=False)
        ids = reply.get("tokens")
        if not isinstance(ids, list) or len(ids) < least or not all(whole(id, 0) for id in ids):
            raise Rejected("the server's /tokenize gives no tokens")
        return reply


def _blanks(probe: Prompt) -> list[dict[str, Any]]:
    """A small blank picture for each image of a prompt."""
    return [chat.picture_part(data_uri(Image.new("RGB", (64, 64), "white")))] * probe.n_images
