"""The engine for a server that speaks OpenAI's protocol: OpenAI itself, vLLM, SGLang, llama.cpp and others.

What the server's model reads is checked where the server shows it. vLLM tells the tokens of a conversation
(`/tokenize`), so before a call's first prompt they are compared, token for token, with the judge's own wording. Of the
ways that such a server has (its chat template, with or without its tokenizer's special tokens, a chat template that we
send, plain completions) the first that writes the judge's prompt is taken; where none does, the call is refused. The
same holds for an answer that is begun, which score mode reads after. Elsewhere a line says that it was not checked.

What differs from an engine on this machine, and can't be otherwise:

- The server's tokenizer reads "</s>" inside a response as a control token, if it is one of its vocabulary.
- Where a server can't be asked for the scores' tokens, log-probabilities cover the most probable tokens only. A score
  that is not among them counts as probability 0, and `usage.off_list` counts such verdicts.
- A network lies between. A prompt without an answer is a failure of its row that no run records, so that the same call
  asks again; the judge's own answers are recorded and never asked for twice.
"""

from __future__ import annotations

import asyncio
import math
import os
import time
import warnings
from collections.abc import AsyncIterator, Container, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

from PIL import Image

from vjudge.engines import chat
from vjudge.engines.chat import PROBE, Call, ScoreTexts, Shape, Way, scale_key
from vjudge.engines.engine import Answer, Ask, Engine, Quantity, say, whole
from vjudge.engines.tokens import Scale
from vjudge.engines.transport import (
    Bounds,
    Client,
    Key,
    Rejected,
    ServerError,
    Unanswered,
    Usage,
    check_url,
    read_key,
    run,
    stream,
)
from vjudge.images import data_uri, picture
from vjudge.prompts import IMAGE, Control, Conversation, Prompt

OPENAI = "https://api.openai.com/v1"
KEY_VARIABLE = "OPENAI_API_KEY"
BEGUN_TOKENS = 8  # of an answer in a score pass whose tokens are not shown: room for a repeated marker
GIVE_UP = 8  # prompts in a row without an answer
KEPT_PICTURES = 16  # encoded, of the latest prompts: neighbours share them
UNCHECKED = "whether its prompt is the judge's own wording, token for token, is not checked"
CHARACTERS = 4  # a token, about, in English


class ServerEngine(Engine):
    """Ask a model behind an OpenAI-compatible server.

    Before a call's first prompt the server is looked at: how it writes a prompt, where it shows that, and by one short
    request with the call's own options (and a small blank picture, where prompts have pictures) whether address, key,
    model, options, pictures and log-probabilities are accepted; what is not raises there.

    Args:
        model: as the server names it.
        base_url: up to and including "/v1". Plain http carries a key to this machine only, and never takes a proxy
            there. Redirects are refused.
        conversation: the words around a turn that the judge was trained with: the prompt is checked against them,
            token for token, where the server shows its tokens. None takes the server's own chat template as right.
        served_as: what a run's manifest says in place of base_url, for a server of your own whose address changes from
            one day to the next; None keeps base_url, so that only the same address continues a run.
        key_variable: the environment variable that holds the key; it is read anew for each call and kept nowhere else.
            None sends no key.
        concurrency: requests at once; an integer `batch_size` of a call overrides it.
        timeout: seconds for one request, answer included.
        retries: repetitions at most of a request that met a connection error, a time-out, or HTTP 408, 429 or 5xx; one
            where nothing has answered yet. The pause doubles from a second to a minute, and is never shorter than
            Retry-After.
        max_wait: the longest Retry-After to obey, in seconds; a longer one ends the call.
        max_answer_bytes: larger answers are refused.
        ca_file: certificates (PEM) to trust instead of the system's.
        image_size: the longer side of a picture in pixels at most; None sends it as it is, as PNG.
        image_detail: OpenAI's "low" or "high".
        logprobs: True needs log-probabilities, False does without, None takes them if the server gives them. Score mode
            needs them.
        top_logprobs: how many tokens at each place the server is asked for; many allow 20 at most.
        continue_fields: fields by which this server continues an answer that is begun, in score mode; None finds out
            whether and how it does, and refuses where it does not. `{}` sends the beginning as a finished turn:
            what is read then is the first token of the next one, another measurement.
        limit_field: the name of the limit on new tokens; None takes OpenAI's "max_completion_tokens" there and
            "max_tokens" elsewhere.
        fields: further fields of each request, such as `{"reasoning_effort": "low"}`; None as a value leaves a field
            out, such as `{"seed": None}`. A run's manifest keeps them: no secrets.
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
        max_wait: float = 600.0,
        max_answer_bytes: int = 1 << 24,
        ca_file: str | None = None,
        image_size: int | None = None,
        image_detail: str | None = None,
        logprobs: bool | None = None,
        top_logprobs: int = 20,
        continue_fields: Mapping[str, Any] | None = None,
        limit_field: str | None = None,
        fields: Mapping[str, Any] | None = None,
        price: tuple[float, float] | None = None,
        spend_limit: float | None = None,
    ) -> None:
        sound = {
            f"model={model!r}: give the model's name": isinstance(model, str) and bool(model.strip()),
            f"concurrency={concurrency!r}: use a whole number from 1": whole(concurrency, 1),
            f"timeout={timeout!r}: use seconds above 0": 0 < timeout < math.inf,
            f"retries={retries!r}: use a whole number from 0": whole(retries, 0),
            f"max_wait={max_wait!r}: use seconds from 0": 0 <= max_wait < math.inf,
            f"max_answer_bytes={max_answer_bytes!r}: use a whole number from 1": whole(max_answer_bytes, 1),
            f"image_size={image_size!r}: use pixels from 1, or None": image_size is None or whole(image_size, 1),
            f"top_logprobs={top_logprobs!r}: use a whole number from 1": whole(top_logprobs, 1),
            f"price={price!r}: use two numbers from 0": price is None
            or (len(price) == 2 and all(0 <= part < math.inf for part in price)),
            f"spend_limit={spend_limit!r}: use a number from 0, with a price": spend_limit is None
            or (price is not None and spend_limit >= 0),
        }
        if faults := [fault for fault, fine in sound.items() if not fine]:
            raise ValueError("; ".join(faults))
        self.model, self.base_url, self.key_variable = model, check_url(base_url), key_variable
        self.conversation = conversation if self.base_url != OPENAI else None
        self.served_as = served_as
        self.host = urlsplit(base_url).netloc
        self.concurrency = concurrency
        self.bounds = Bounds(timeout, retries, max_wait, max_answer_bytes, ca_file)
        self.image_size, self.image_detail = image_size, image_detail
        self.logprobs, self.top_logprobs = logprobs, top_logprobs
        self.continue_fields = None if continue_fields is None else dict(continue_fields)
        self.limit_field = limit_field or ("max_completion_tokens" if self.base_url == OPENAI else "max_tokens")
        self.fields = dict(fields or {})
        self.spend_limit = spend_limit
        self.usage = Usage(price=price)
        self._uris: dict[str, str] = {}
        self._calls: dict[Any, Call] = {}  # what was found out about the server, by a call's options
        self._key()

    def __repr__(self) -> str:
        return f"ServerEngine({self.model!r}, base_url={self.base_url!r})"

    def answer(
        self,
        prompts: Sequence[Prompt],
        images: Sequence[Sequence[Any]],
        ask: Ask,
        wanted: Container[int] | None = None,
    ) -> Iterator[list[Answer]]:
        """Ask for every prompt; see `Engine.answer`.

        Prompts are the user's turns, without the words of a conversation around them. Seeds are sent modulo 2**31
        where there is a temperature, and servers promise little about them. No more than `batch_size` requests ("auto"
        takes `concurrency`) are under way or not yet taken: whoever stops here loses those at most. In a score pass
        `n_new_tokens` counts the tokens of the short answers.

        Raises:
            ServerError: the server turned the test request down, lacks what the options need, or writes another
                prompt than the judge's own.
            ValueError: unsound options; a repetition penalty for OpenAI, whose API has none; a score pass with
                logprobs=False, without a place for the verdict, or on a scale that this server can't tell apart.
        """
        faults = ask.check()
        if ask.repetition_penalty != 1 and self.base_url == OPENAI:
            faults.append(f"repetition_penalty={ask.repetition_penalty!r}: OpenAI's API has none; vLLM's server has")
        rows = [row for row in range(len(prompts)) if wanted is None or row in wanted]
        if ask.scores and self.logprobs is False:
            faults.append('mode="score" reads log-probabilities, and this judge has logprobs=False')
        if ask.scores and not (ask.marker and all(ask.scale(row) for row in rows)):
            faults.append('this template writes its verdict in no fixed place, which mode="score" needs')
        if faults:
            raise ValueError("; ".join(faults))
        if not rows:
            return iter(())
        shapes = tuple(sorted({Shape.of(prompts[row], ask.marker if ask.scores else "") for row in rows}))
        scales = {scale_key(ask.scale(row)): ask.scale(row) for row in rows if ask.scale(row)}
        options = replace(ask, scales=(), seeds=(), batch_size="auto")
        if (key := (options, shapes, *scales)) not in self._calls:
            self._calls[key] = run(_Server(self, self._client(1)).call(ask, shapes, scales))
        return self._answers(rows, prompts, images, replace(self._calls[key], ask=ask))

    def plan(
        self, prompts: Sequence[Prompt], images: Sequence[Sequence[Any]], ask: Ask, *, seconds: float = 10.0
    ) -> list[Quantity]:
        """What `answer` would send and cost; nothing is sent that costs.

        Arguments as in `Engine.plan`; nothing is measured, so `seconds` is of no effect.
        """
        count, pictures = len(prompts), sum(prompt.n_images for prompt in prompts)
        text = sum(len(part) for prompt in prompts for part in prompt.parts if isinstance(part, str))
        reads, note = text / CHARACTERS, f"estimated from the texts, {CHARACTERS} characters a token"
        note += "; pictures come on top, as many tokens as the server makes of them" if pictures else ""
        limit = count * (1 if ask.scores else ask.max_new_tokens)
        most = "one a prompt" if ask.scores else f"at most: every answer at its limit of {ask.max_new_tokens}"
        cost, why = math.nan, "no price= was given"
        if self.usage.price is not None:
            cost = (reads * self.usage.price[0] + limit * self.usage.price[1]) / 1e6
            why = "of the tokens above, with every answer at its limit; test requests and repetitions come on top"
            why += ", and pictures" if pictures else ""
        return [
            Quantity("verdicts", count),
            Quantity("requests", count, note="and a short test request; in score mode more on scales such as 1 to 10"),
            Quantity("prompt tokens", reads, note=note),
            Quantity("images shown", pictures),
            Quantity("new tokens", limit, note=most),
            Quantity("cost", cost, "currency of price=", note=why),
        ]

    def identity(self) -> dict[str, Any]:
        return {
            "engine": self.name,
            "base_url": self.served_as or self.base_url,
            "model": self.model,
            "request": {
                "conversation": self.conversation and self.conversation.name,
                "image_size": self.image_size,
                "image_detail": self.image_detail,
                "logprobs": self.logprobs,
                "top_logprobs": self.top_logprobs,
                "continue_fields": self.continue_fields,
                "fields": self.fields,
            },
            "versions": {},
        }

    # --- a call's requests --------------------------------------------------------------------------------------------

    def _answers(
        self, rows: Sequence[int], prompts: Sequence[Prompt], images: Sequence[Sequence[Any]], call: Call
    ) -> Iterator[list[Answer]]:
        """Ask for each row, and say at the end what it came to."""
        width = call.ask.batch_size if isinstance(call.ask.batch_size, int) else self.concurrency
        client = self._client(width)
        opener = ThreadPoolExecutor(1)  # one at a time: a caller's pictures may be lazy, and those share state
        silent = unasked = 0

        def bodies(row: int) -> list[dict[str, Any]]:
            parts = [chat.picture_part(self._uri(source), self.image_detail) for source in images[row]]
            return call.requests(prompts[row], parts, call.on(row), call.ask.seed(row))

        async def one(row: int) -> Answer:
            nonlocal silent, unasked
            try:
                if client.stopped is None:
                    contents = await asyncio.get_running_loop().run_in_executor(opener, bodies, row)
                    if self.spend_limit is not None and self.usage.spend >= self.spend_limit:
                        client.stop(f"the spend limit of {self.spend_limit:g} is reached")
                if client.stopped is not None:
                    unasked += 1
                    return Answer(row, failure=f"not asked: {client.stopped}", transient=True)
                started, path = time.perf_counter(), call.ways[call.shape(prompts[row])].endpoint
                replies = [chat.read_reply(await client.post(path, body), self.usage, client.key) for body in contents]
                answer = replace(call.answer(row, replies, self.usage), seconds=time.perf_counter() - started)
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
            async with client:
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

        before = self.usage.requests
        try:
            yield from stream(everything())
        finally:
            opener.shutdown(wait=False, cancel_futures=True)
            if self.usage.requests > before:
                say(f"{self.model} at {self.host}, all told: {self.usage}")
            if client.stopped is not None:
                warnings.warn(
                    f"{self.model} at {self.host}: {client.stopped}; {unasked} prompts were not asked. The same call"
                    " asks for what is missing; give it an `out` folder to keep what is there",
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

    def _client(self, connections: int) -> Client:
        return Client(self.base_url, self._key(), self.bounds, self.usage, connections=connections)


# --- looking at a server ----------------------------------------------------------------------------------------------


class _Different(Exception):
    """The server writes other tokens than the judge's own."""


class _Server:
    """What is found out about a server before a call's first prompt, by its `/tokenize` and one short request."""

    def __init__(self, engine: ServerEngine, client: Client) -> None:
        self.engine, self.client = engine, client
        self.name = f"{engine.model} at {engine.host}"
        self.context = 0  # the server's, in tokens; 0 where it does not show its tokens
        self._cache: dict[str, list[int]] = {}

    async def call(self, ask: Ask, shapes: Sequence[Shape], scales: Mapping[Any, Mapping[int, str]]) -> Call:
        """The call as the server can serve it; errors as in `ServerEngine.answer`."""
        engine = self.engine
        sent: dict[str, Any] = {"temperature": ask.temperature}
        sent |= {"top_p": ask.top_p} if ask.temperature > 0 else {}
        sent |= {"repetition_penalty": ask.repetition_penalty} if ask.repetition_penalty != 1 else {}
        limit: int | None = BEGUN_TOKENS if ask.scores else ask.max_new_tokens
        async with self.client:
            if (scales or engine.conversation) and engine.base_url != OPENAI and await self.shows():
                # Where a request is silent, a checkpoint's own settings of these would hold.
                sent |= {"repetition_penalty": ask.repetition_penalty, "skip_special_tokens": False}
                sent |= {"top_k": -1, "min_p": 0.0} if ask.temperature > 0 else {}
                limit = 1 if ask.scores else ask.max_new_tokens if ask.max_new_tokens < self.context else None
            elif engine.conversation is not None:
                say(f"{self.name} does not show its tokens (/tokenize): {UNCHECKED}")
            if ask.scores and engine.continue_fields is not None:
                self.context, limit = 0, BEGUN_TOKENS  # what is read then is what the server writes, by its text
            sent = {"model": engine.model, engine.limit_field: limit, **sent}
            call = Call(ask, sent, engine.fields, engine.top_logprobs)
            verdicts = {name: await self.verdicts(ask, texts) for name, texts in scales.items()}
            call = replace(call, verdicts={name: each for name, each in verdicts.items() if each})
            for shape in shapes:
                call = await self.way(call, shape)
            return await self.tried(call, shapes[-1])

    async def verdicts(self, ask: Ask, texts: Mapping[int, str]) -> ScoreTexts | None:
        """How the verdicts on a scale are read; None where no distribution can be, and none has to be."""
        unclear, scale = chat.clash(texts), None
        if self.context:
            ids = {score: await self.ids(f".\n{ask.marker}{text}") for score, text in texts.items()}
            shared = min(len(os.path.commonprefix(list(ids.values()))), *(len(each) - 1 for each in ids.values()))
            scale = Scale(ask.marker, dict(texts), {score: tuple(each[shared:]) for score, each in ids.items()})
            if len(set(scale.paths.values())) < len(scale.paths):
                unclear = f"the server's vocabulary writes two of the scores {sorted(texts)} alike"
            elif scale.tokens or ask.scores:
                unclear = ""
        if unclear and (ask.scores or self.engine.logprobs):
            raise ValueError(unclear)
        return None if unclear else ScoreTexts(texts, scale)

    async def way(self, call: Call, shape: Shape) -> Call:
        """The call with a way for prompts of a shape, and what their answers are begun with."""
        fields, conversation = self.engine.continue_fields, self.engine.conversation
        own = Way(continues=chat.CONTINUE if fields is None else fields)
        unchecked = replace(call, ways={**call.ways, shape: own})
        if call.ask.scores and not self.context and fields is None:
            raise ServerError(
                f"{self.name} does not show whether it continues an answer that is begun (/tokenize, which vLLM has),"
                ' and mode="score" reads right after the marker; use mode="feedback", whose expected scores are read'
                " where the verdict is written, or continue_fields= if you know how it does"
            )
        if not self.context or (conversation is None and not call.ask.scores):
            return unchecked
        ways = [own]
        if conversation is not None:
            sent = Way(fields={"chat_template": chat.VERBATIM}, conversation=conversation)
            ways += [replace(own, fields={"add_special_tokens": True}), sent]
            ways += [replace(sent, fields={**sent.fields, "add_special_tokens": True})]
            ways[:0] = [] if shape.n_images else [Way("completions", conversation=conversation)]
        prompt, parts = _probe(shape)
        faults: list[Rejected | _Different] = []
        for way in ways:
            try:
                if not call.ask.scores and conversation is not None:
                    whole_ids = await self.chunks(chat.conversation_of(prompt, conversation, None))
                    await self.compare(way.request(prompt, parts), whole_ids)
                verdicts = dict(call.verdicts)
                for name, each in verdicts.items() if call.ask.scores else ():
                    stems = await self.stems(way, prompt, parts, each, call.ask)
                    verdicts[name] = replace(each, stems={**each.stems, shape: stems})
                return replace(call, ways={**call.ways, shape: way}, verdicts=verdicts)
            except (Rejected, _Different) as error:
                faults.append(error)
        reasons = "; ".join(dict.fromkeys(map(str, faults)))
        if not call.ask.scores and all(isinstance(error, Rejected) for error in faults):
            say(f"{self.name} does not show the tokens of messages ({reasons}): {UNCHECKED}")
            return unchecked
        raise ServerError(
            f"{self.name} can't be made to write the judge's own prompt: {reasons}. Start it"
            " with the judge's own chat template (--chat-template), or with --trust-request-chat-template;"
            " conversation=None asks in the server's own words"
        )

    async def stems(
        self, way: Way, prompt: Prompt, parts: Sequence[Any], verdicts: ScoreTexts, ask: Ask
    ) -> dict[tuple[int, ...], str]:
        """What an answer is begun with so that the prompt's tokens end right where the scores differ."""
        scale, first, conversation = verdicts.scale, min(verdicts.texts), self.engine.conversation
        assert scale is not None
        begun, path = ask.marker + verdicts.texts[first], scale.paths[first]
        if conversation is not None:
            target = await self.chunks(chat.conversation_of(prompt, conversation, begun))
        else:
            target = [await self.tokens(way.request(prompt, parts)) + await self.ids(begun)]
        if tuple(target[-1][-len(path) :]) != path:
            raise _Different("the end of the prompt merges with the score into tokens that are not the scale's")
        stems: dict[tuple[int, ...], str] = {}
        for stem in scale.stems:
            text = next(verdicts.texts[score] for score, path in scale.paths.items() if path[: len(stem)] == stem)
            ends = [*target[:-1], [*target[-1][: -len(path)], *stem]]
            faults = []
            for length in range(len(text) + 1):
                try:
                    await self.compare(way.request(prompt, parts, ask.marker + text[:length]), ends)
                    stems[stem] = text[:length]
                    break
                except _Different as error:
                    faults.append(str(error))
            else:
                raise _Different(f"an answer that is begun is not continued ({faults[0]})")
        return stems

    async def tried(self, call: Call, shape: Shape) -> Call:
        """Try a call's options on one short request; the call without log-probabilities where none come."""
        silent = replace(call, verdicts={})
        if self.engine.logprobs is False or not call.verdicts:
            await self.test(silent, shape, needed=True)
            return silent
        needed = call.ask.scores or self.engine.logprobs is True
        comes = await self.test(call, shape, needed=needed)
        if comes is None:
            # Some models turn down a request for log-probabilities; anything else amiss shows again without them.
            await self.test(silent, shape, needed=True)
        if not comes and needed:
            raise ServerError(
                f"{self.name} gives no log-probabilities (a short test request brought none), which"
                f" {'score mode' if call.ask.scores else 'logprobs=True'} needs; use"
                ' mode="feedback" with logprobs=None, or a server that offers them'
            )
        if not comes:
            say(f"{self.name} gives no log-probabilities: expected_score stays missing")
        return call if comes else silent

    async def test(self, call: Call, shape: Shape, *, needed: bool) -> bool | None:
        """Send the short request; whether log-probabilities came, None where it was turned down and may be.

        Raises:
            ServerError: it got no answer, or was turned down where it is needed.
        """
        prompt, parts = _probe(shape)
        prompt = prompt.append(call.ask.marker) if call.ask.scores else prompt
        body = call.requests(prompt, parts, next(iter(call.verdicts.values()), None), 0)[0]
        try:
            reply = await self.client.post(call.ways[shape].endpoint, body)
            return chat.read_tokens(chat.read_reply(reply, self.client.usage, self.client.key).choice) is not None
        except (Rejected, Unanswered) as error:
            if not needed and (isinstance(error, Rejected) or str(error).startswith("HTTP 403")):
                self.client.stopped = None
                return None
            raise ServerError(f"{self.name} did not answer a short test request: {error}") from None

    # --- its tokens ---------------------------------------------------------------------------------------------------

    async def shows(self) -> bool:
        """Whether the server shows the tokens of texts."""
        try:
            reply = await self.post({"prompt": PROBE, "add_special_tokens": False})
            self._cache[PROBE] = _ids(reply)
        except (Rejected, Unanswered):
            return False
        self.context = reply["max_model_len"] if whole(reply.get("max_model_len"), 1) else 0
        return bool(self.context)

    async def ids(self, text: str) -> list[int]:
        """The tokens of a text, without those that the tokenizer adds by itself."""
        if text not in self._cache:
            self._cache[text] = _ids(await self.post({"prompt": text, "add_special_tokens": False}))
        return list(self._cache[text])

    async def tokens(self, request: Mapping[str, Any]) -> list[int]:
        """The tokens of a request's prompt."""
        return _ids(await self.post(request))

    async def chunks(self, prompt: Prompt) -> list[list[int]]:
        """The tokens of a whole conversation, split at its images, as `Encoder.ids` has them."""
        chunks, text = [_ids(await self.post({"prompt": "", "add_special_tokens": True}), least=0)], ""
        for part in (*prompt.parts, None):
            if isinstance(part, str):
                text += part
                continue
            chunks[-1] += await self.ids(text) if text else []
            text = ""
            if isinstance(part, Control):
                ids = await self.ids(chat.spelled([part]))
                if len(ids) != part.times:
                    raise _Different(f"the served vocabulary has no control token {part.text!r}, which the judge's has")
                chunks[-1] += ids
            elif part is IMAGE:
                chunks.append([])
        return chunks

    async def compare(self, request: Mapping[str, Any], chunks: Sequence[Sequence[int]]) -> None:
        """Compare a request's tokens with what they should be; an image is a run of one token.

        Raises:
            _Different: they are not the same, and where they part.
        """
        tokens, at = await self.tokens(request), 0
        for number, chunk in enumerate(chunks):
            if number:  # past the image before it
                at = next((end for end in range(at, len(tokens)) if tokens[end] != tokens[at]), len(tokens))
            same = len(os.path.commonprefix([tokens[at:], list(chunk)]))
            if same < len(chunk):
                own = await self.text(chunk[same : same + 12])
                raise _Different(
                    f"it writes {await self.text(tokens[at + same : at + same + 12])!r} where the judge's has {own!r}"
                )
            at += same
        if at < len(tokens):
            raise _Different(f"it writes {await self.text(tokens[at : at + 12])!r} after the end of the judge's own")

    async def text(self, ids: Sequence[int]) -> str:
        """Tokens for a reader."""
        try:
            body = {"model": self.engine.model, "tokens": list(ids)}
            text: str = (await self.client.post("/detokenize", body, answers=False))["prompt"]
            return self.client.key.cut(text[:100])  # its blanks as they are
        except (Rejected, Unanswered, KeyError, TypeError, AttributeError):
            return f"tokens {list(ids)}"

    async def post(self, body: Mapping[str, Any]) -> dict[str, Any]:
        return await self.client.post("/tokenize", {"model": self.engine.model, **body}, answers=False)


def _ids(reply: Mapping[str, Any], *, least: int = 1) -> list[int]:
    """The tokens of a reply.

    Raises:
        Rejected: it holds none.
    """
    ids = reply.get("tokens")
    if not isinstance(ids, list) or len(ids) < least or not all(whole(id, 0) for id in ids):
        raise Rejected("the server's /tokenize gives no tokens")
    return ids


def _probe(shape: Shape) -> tuple[Prompt, list[dict[str, Any]]]:
    """A short prompt of a shape, with small blank pictures."""
    blank = chat.picture_part(data_uri(Image.new("RGB", (64, 64), "white")))
    return shape.probe(), [blank] * shape.n_images
