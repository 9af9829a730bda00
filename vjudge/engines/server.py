"""The engine for a server that speaks OpenAI's protocol: OpenAI, vLLM, SGLang, llama.cpp, others.

vLLM tells the tokens of a conversation (`/tokenize`). Before a call's first prompt they are
compared, token for token, with the judge's own wording, also up to the place where score mode
reads, and another prompt is refused. Of a server that shows no tokens a line says that nothing was
compared; it has no score mode. A value head is read by `/classify`, else `/pooling`, of a vLLM that
serves what `vjudge.models.classifier` writes; `/score` would put question and response together in
words of its own.

Not as on this machine: the server's tokenizer may read "</s>" inside a response as a control token;
where a server can't be asked for the scores' tokens, a score outside the most probable ones counts
as probability 0; a scale whose levels are several tokens has a distribution only where the server
continues an answer, which takes a request for each beginning of several levels; and no run records
a prompt without an answer: the same call asks again.

Source: platform.openai.com/docs/api-reference/chat; docs.vllm.ai, "OpenAI-Compatible Server"; of
values vllm-project/vllm#8967, #12791, #30312, vllm/entrypoints/pooling.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import math
import os
import time
import warnings
from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field, replace
from itertools import islice
from typing import Any, Literal

from anyio.from_thread import BlockingPortal, start_blocking_portal

from vjudge.engines import client
from vjudge.engines.client import (
    KEY_NAME,
    OPENAI,
    Client,
    Refused,
    Rejected,
    Unanswered,
    Unsound,
    address,
    proxy_of,
)
from vjudge.engines.closing import has_to_be_closed, most_probable, scales_to_close
from vjudge.engines.engine import (
    NOISE,
    Answer,
    Answers,
    Ask,
    Engine,
    Sources,
    Texts,
    Wanted,
)
from vjudge.engines.handshake import (
    BLANK,
    LISTED,
    Handshake,
    Job,
    Part,
    ServedScale,
    ServerError,
    messages,
)
from vjudge.engines.progress import say
from vjudge.engines.replies import (
    NO_DISTRIBUTION,
    NO_LOGPROBS,
    NO_TEXT,
    Token,
    at_verdict,
    read_reply,
    read_value,
)
from vjudge.images import picture
from vjudge.prompts import IMAGE, Conversation, Prompt
from vjudge.prompts.conversation import Reply, merge
from vjudge.prompts.forms import json_object
from vjudge.prompts.objects import read_levels
from vjudge.records import brief, is_int_at_least

ADDRESS = "OPENAI_BASE_URL"  # the variable that names another server than OpenAI's
AT_ONCE = 8  # requests under batch_size="auto"
GIVE_UP = 8  # prompts in a row without an answer
VALUES = ("/classify", "/pooling")  # of vLLM: what gives the number of a value head
CLOSE = "Give your verdict on the answer above as JSON and nothing else."


@dataclass(eq=False, repr=False)
class ServerEngine(Engine):
    """Ask a model behind an OpenAI-compatible server; a short request first tries a call's options.

    Args:
        model: as the server names it.
        base_url: up to and including "/v1"; "" takes the environment's OPENAI_BASE_URL, else
            OpenAI's. Plain http carries a key to this machine only, where no proxy is taken.
            SSL_CERT_FILE names certificates to trust elsewhere.
        conversation: the words around a turn that the judge was trained with, which the server's
            tokens are checked against. None takes the server's own chat template as right.
        key_variable: the environment variable that holds the key, read anew for each call; None
            sends no key.
        timeout: seconds for one try, from the connection to the last byte. A time-out, a connection
            error and HTTP 408, 409, 429 and 5xx are repeated six times at most, after pauses that
            double or as Retry-After says; an answer that was given never is.
        served_model: the name that replies give, where it is another than `model`, as behind a
            router. An answer by any other model is a failure; a date may follow either name.
        image_format, image_max_bytes: "jpeg", "png" or "webp", and the most bytes of a picture's
            file: others are re-encoded, which is counted. None sends a file as it is, its metadata
            included, where it shows what the judge is to see.
        fields: further fields of each request, such as `{"reasoning_effort": "low"}`; None as a
            value leaves a field out. A run's manifest keeps them: no secrets.

    ValueError: an unsound address; a key that is missing, or would go over a network in the clear.

    >>> ServerEngine("my-judge", base_url="http://127.0.0.1:8000/v1", key_variable=None)
    ServerEngine('my-judge', base_url='http://127.0.0.1:8000/v1')
    """

    name = "server"
    noise = NOISE["bfloat16"]  # in which servers compute by default

    model: str
    _: KW_ONLY
    base_url: str = ""
    conversation: Conversation | None = None
    key_variable: str | None = KEY_NAME
    timeout: float = 300.0
    served_model: str | None = None
    image_format: Literal["jpeg", "png", "webp"] | None = None
    image_max_bytes: int | None = None
    fields: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        base_url = self.base_url or os.environ.get(ADDRESS, "").strip() or OPENAI
        self.base_url, _ = address(base_url, self.key_variable)  # refuses a key that is missing now
        if self.image_format not in (None, "jpeg", "png", "webp"):
            raise ValueError(f'image_format={self.image_format!r}: use "jpeg", "png" or "webp"')
        limit = self.image_max_bytes
        if limit is not None and not is_int_at_least(limit, 1):
            raise ValueError(f"image_max_bytes={limit!r}: use a whole number from 1")
        self.fields = dict(self.fields or {})
        try:
            json.dumps(self.fields, allow_nan=False, ensure_ascii=False).encode()
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"fields={brief(self.fields)}: use texts and numbers that JSON holds ({error})"
            ) from error
        proxy = proxy_of(self.base_url)
        by_proxy = f", by the environment's proxy {proxy}" if proxy else ""
        say(f"{self.model} is asked at {self.base_url}{by_proxy}")

    def __repr__(self) -> str:
        return f"ServerEngine({self.model!r}, base_url={self.base_url!r})"

    def answer(
        self,
        prompts: Sequence[Prompt],
        images: Sources,
        ask: Ask,
        wanted: Wanted = None,
    ) -> Answers:
        """Ask for every prompt; `batch_size` is how many requests are under way at once.

        ServerError: the server lacks what the options need, or writes another prompt than the
        judge's own.
        """
        jobs = []
        for row, prompt in enumerate(prompts):
            if ask.scores:  # which end in the marker
                *parts, end = prompt.parts
                prompt = replace(prompt, parts=(*parts, str(end).removesuffix(ask.marker)))
            if wanted is None or row in wanted:
                jobs.append((row, prompt, images[row]))
        if jobs:
            # An event loop in a thread of its own: a notebook's is running.
            with start_blocking_portal() as portal:
                yield from ServerCall(self, ask, portal).answers(jobs)

    def identity(self) -> dict[str, Any]:
        """See `Engine.identity`."""
        request: dict[str, Any] = {
            "conversation": self.conversation and self.conversation.name,
            "fields": self.fields,
        }
        for name in ("served_model", "image_format", "image_max_bytes"):
            if getattr(self, name) is not None:
                request[name] = getattr(self, name)
        return {
            "engine": self.name,
            "base_url": self.base_url,
            "model": self.model,
            "request": request,
        }


class ServerCall:
    """One call, asked as the server's `/tokenize` and one short request show that it can be."""

    def __init__(self, engine: ServerEngine, ask: Ask, portal: BlockingPortal) -> None:
        self.engine = engine
        self.ask = ask
        self.portal = portal
        self.client = Client(*address(engine.base_url, engine.key_variable), engine.timeout)
        self.formed = bool(ask.schemas)  # whether answers are held to their schema
        self.keeps = False  # whether the server may know a picture by its name
        self.silent = 0  # prompts in a row without an answer
        self.stopped = ""  # why no further prompt is sent
        self.at_once = AT_ONCE if ask.batch_size == "auto" else int(ask.batch_size)
        self.slots = asyncio.Semaphore(self.at_once)

    # --- asking

    def answers(self, jobs: Sequence[Job]) -> Answers:
        """Ask for each row, and say at the end whether the call was ended early."""
        try:
            self._prepare(jobs)
            # Twice as many prompts as requests wait, so that no slot is idle while an answer that
            # arrived is written to the disk.
            left = iter(jobs)
            pending: set[Future[Answer]] = set()
            while True:
                for job in islice(left, 2 * self.at_once - len(pending)):
                    pending.add(self.portal.start_task_soon(self._answer, *job))
                if not pending:
                    break
                arrived, pending = wait(pending, return_when=FIRST_COMPLETED)
                for future in arrived:
                    yield [future.result()]
        finally:
            self.portal.call(self.client.api.close)
        if self.stopped:
            warnings.warn(
                f"{self.engine!r}: {self.stopped}. The same call asks for what is missing; give it"
                " an `out` folder to keep what is there",
                RuntimeWarning,
                stacklevel=3,
            )

    def _prepare(self, jobs: Sequence[Job]) -> None:
        """Find out what the server can do; ServerError where it does not answer."""
        engine = self.engine
        try:
            if self.ask.mode == "value":
                self.portal.call(self._find_values, jobs[0])
                return
            self.server = Handshake(self._look, engine, self.ask, jobs)
            self.keeps = self.server.continues and jobs[0][1].n_images > 0
            self.sent = self._fields()
            self.portal.call(self._try, jobs[0])
        except Unanswered as error:
            raise ServerError(
                f"{engine!r} did not answer a short test request: {error}; correct base_url where"
                " nothing listens; fields= changes, or by None leaves out, what is sent"
            ) from None

    async def _find_values(self, job: Job) -> None:
        """Settle which endpoint gives values, by a short conversation."""
        row, prompt, _ = job
        short = Prompt(merge([*[IMAGE] * prompt.n_images, "Is it so?", Reply("Yes.")]))
        for self.values_at in VALUES:
            try:
                await self._value(row, short, [BLANK] * prompt.n_images)
                return
            except (Rejected, Refused) as error:
                refusal = error
        raise refusal

    async def _value(self, row: int, prompt: Prompt, pictures: Sequence[Part]) -> Answer:
        """The number that the served value head gives of a conversation, without an activation."""
        engine = self.engine
        body = messages(prompt, pictures) | {"model": engine.model, "use_activation": False}
        fields = {**body, **engine.fields}
        sent = {name: value for name, value in fields.items() if value is not None}
        url = engine.base_url.removesuffix("/v1") + self.values_at
        reply = await self.client.post(url, sent, client.RETRIES)
        return read_value(reply, row, engine.served_model or engine.model, self.client.key)

    def _look(self, request: dict[str, Any]) -> dict[str, Any]:
        """The reply of `/tokenize`."""
        url = self.engine.base_url.removesuffix("/v1") + "/tokenize"
        body = {"model": self.engine.model, **request}
        return self.portal.call(self.client.post, url, body, 1)

    def _fields(self) -> dict[str, Any]:
        """The fields of each request."""
        ask = self.ask
        context = self.server.context
        sent: dict[str, Any] = {"model": self.engine.model, "temperature": ask.temperature}
        if ask.temperature:
            sent["top_p"] = ask.top_p
        if context or ask.repetition_penalty != 1:
            sent["repetition_penalty"] = ask.repetition_penalty
        if context:  # where a request is silent, a checkpoint's own settings would hold
            sent |= {"top_k": -1, "min_p": 0.0, "skip_special_tokens": False}
        limit = 1 if ask.scores else ask.max_new_tokens
        if not context or limit < context:
            name = "max_completion_tokens" if self.engine.base_url == OPENAI else "max_tokens"
            sent[name] = limit
        return sent

    async def _try(self, job: Job) -> None:
        """Send a short request with the call's options, without those that a server may refuse."""
        row, prompt, _ = job
        short = Prompt((*[IMAGE] * prompt.n_images, "Answer with the word yes."), prompt.system)
        while True:
            blank = {**BLANK, "uuid": "vjudge-blank"} if self.keeps else BLANK
            try:
                await self._post(self._request(short, [blank] * prompt.n_images, row), row)
                break
            except Rejected:
                if self.keeps:
                    self.keeps = False
                elif self.formed:
                    self.formed = False
                else:
                    raise
        if self.ask.schemas and not self.formed:
            say(f"{self.engine!r} refuses a schema (response_format): answers are in free text")

    async def _answer(self, row: int, prompt: Prompt, sources: Sequence[Any]) -> Answer:
        """The answer to a row, whatever happens."""
        async with self.slots:
            started = time.perf_counter()
            if self.stopped:
                return Answer(row, failure=f"not asked: {self.stopped}", transient=True)
            try:
                pictures, changes = self._encoded(sources)
                answer = await self._asked(row, prompt, pictures)
            except (Rejected, ValueError, OSError) as error:  # the last two: a picture is broken
                return Answer(row, failure=str(error))
            except Unanswered as error:
                self.silent += 1
                if isinstance(error, Refused) or self.silent == GIVE_UP:
                    self.stopped = f"{self.silent} prompts in a row got no answer: {error}"
                return Answer(row, failure=str(error), transient=True)
            self.silent = 0
            seconds = time.perf_counter() - started
            return replace(answer, seconds=seconds, remarks=(*changes, *answer.remarks))

    def _encoded(self, sources: Sequence[Any]) -> tuple[list[Part], list[str]]:
        """A prompt's pictures as parts of a message, and what the options changed of them."""
        engine = self.engine
        parts: list[Part] = []
        changes = []
        for source in sources:
            file = picture(source).encoded(engine.image_format, engine.image_max_bytes)
            part: dict[str, Any] = {"image_url": {"url": file.uri}}
            if self.keeps:
                part["uuid"] = hashlib.sha256(file.data).hexdigest()
            parts.append(part)
            if file.change:
                changes.append(f"a picture was {file.change}")
        return parts, changes

    async def _asked(self, row: int, prompt: Prompt, pictures: Sequence[Part]) -> Answer:
        """Ask, and read or close what was answered."""
        ask = self.ask
        if ask.mode == "value":
            return await self._value(row, prompt, pictures)
        served = self.server.scale(ask.marker, ask.scale(row))
        # 1) a score pass reads the distribution behind the beginning of an answer
        if ask.scores and served is not None:
            read = await self._distribution(row, prompt, pictures, "", served)
            failure = read.failure if read.score_logprobs is None else None
            return replace(read, text="", finish="stop", failure=failure)
        # 2) write the answer
        request = self._request(prompt, pictures, row)
        answer, tokens = await self._post(request, row)
        if request.get("logprobs") and "logprobs" not in self.engine.fields:
            scores = at_verdict(answer.text, tokens, ask.marker, ask.scale(row))
            answer = replace(answer, score_logprobs=scores)
            answer = _remarked(answer, ask.marker, NO_DISTRIBUTION if tokens else NO_LOGPROBS)
        if answer.failure is not None:
            return answer
        # 3) close it, where it holds no verdict
        if has_to_be_closed(ask, answer):
            return await self._closed(answer, prompt, pictures)
        # 4) read the distribution of a scale of several tokens at the verdict's place
        if served is None or served.scale.single or not self.server.continues:
            return answer
        begun, _, verdict = answer.text.rpartition(ask.marker)
        remark = NO_DISTRIBUTION
        if verdict.startswith(tuple(ask.scale(row).values())):
            try:
                read = await self._distribution(row, prompt, pictures, begun, served)
                answer = replace(answer, score_logprobs=read.score_logprobs)
            except (Rejected, Unsound) as error:
                remark = f"no distribution: {error}"
        return _remarked(answer, ask.marker, remark)

    def _request(self, prompt: Prompt, pictures: Sequence[Part], row: int) -> dict[str, Any]:
        """A request for a row, by its prompt or one that stands for it."""
        body = messages(prompt, pictures) | self.sent
        if self.ask.temperature:
            body["seed"] = self.ask.seed(row) % 2**31
        tokens = self.server.firsts(row)
        if tokens is not None:
            body |= {"logprobs": True, "top_logprobs": LISTED}
        if tokens:
            body["logprob_token_ids"] = tokens
        if self.formed:
            body["response_format"] = _form(self.ask.schemas[row])
        return body

    async def _post(
        self, body: Mapping[str, Any], row: int, retries: int | None = None
    ) -> tuple[Answer, list[Token]]:
        """The answer to a request for a row, and its tokens."""
        engine = self.engine
        fields = {**body, **engine.fields}
        sent = {name: value for name, value in fields.items() if value is not None}
        retries = client.RETRIES if retries is None else retries
        reply = await self.client.post("/chat/completions", sent, retries)
        return read_reply(reply, row, engine.served_model or engine.model, self.client.key)

    async def _post_again(
        self, body: Mapping[str, Any], row: int, n_sent: int
    ) -> tuple[Answer, list[Token]]:
        """As `_post`; pictures of an earlier request go by their names, where the server has them.

        vLLM keeps pictures by the "uuid" that they were sent with. A reply that counts fewer tokens
        than the `n_sent` of the earlier prompt and answer was made without them: it is not used.

        Source: docs.vllm.ai, "Multimodal Inputs", on cached inputs.
        """
        turns = []
        n_named = 0
        for turn in body["messages"]:
            parts = turn["content"]
            if isinstance(parts, list):
                parts = [part | {"image_url": None} if "uuid" in part else part for part in parts]
                n_named += sum("uuid" in part for part in parts)
            turns.append(turn | {"content": parts})
        if n_named and n_sent and self.keeps:
            with suppress(Unanswered):
                reply = await self._post({**body, "messages": turns}, row, retries=0)
                if reply[0].n_prompt_tokens >= n_sent:
                    return reply
            self.keeps = False
        return await self._post(body, row)

    async def _distribution(
        self,
        row: int,
        prompt: Prompt,
        pictures: Sequence[Part],
        begun: str,
        served: ServedScale,
        *,
        n_sent: int = 0,
    ) -> Answer:
        """An answer with a scale's log-probabilities behind its beginning.

        They are None where the server gave none of the scale. `n_sent`: tokens of the prompt and
        the answer that is continued; 0 for a prompt that was not sent before.
        """
        if self.engine.conversation is not None:  # which writes this blank itself
            begun = begun.removeprefix(self.engine.conversation.reply)
        after = {}
        for stem, text in reversed(served.behind.items()):  # the shortest prompt last: it counts
            tokens = served.scale.steps[stem]
            body = messages(prompt, pictures, begun + text) | self.sent
            body |= {
                "max_tokens": 1,
                "temperature": 0.0,
                "logprobs": True,
                "top_logprobs": LISTED,
                "logprob_token_ids": tokens,
                "return_tokens_as_token_ids": True,
            }
            answer, written = await self._post_again(body, row, n_sent)
            logprobs = written[0].logprobs if written else None
            if logprobs is None or answer.failure not in (None, NO_TEXT):
                return answer
            after[stem] = {token: logprobs.get(f"token_id:{token}", -math.inf) for token in tokens}
        scores = served.scale.logprobs(after)
        if max(scores.values()) == -math.inf:
            return answer
        return replace(answer, score_logprobs=scores)

    # --- closing an answer without a verdict

    async def _closed(self, answer: Answer, prompt: Prompt, pictures: Sequence[Part]) -> Answer:
        """The answer with the verdicts that it did not hold, or why they could not be had."""
        verdicts = scales_to_close(self.ask, answer.index)
        closing: Any = self.ask.closing
        served = None
        if self.server.continues and "" in verdicts:
            served = self.server.scale(closing.marker, verdicts[""])
        try:
            if served is None:
                return await self._by_schema(answer, prompt, pictures, verdicts)
            # Put the marker behind the answer, and read the distribution there.
            read = await self._distribution(
                answer.index,
                prompt,
                pictures,
                answer.text,
                served,
                n_sent=answer.n_prompt_tokens + answer.n_new_tokens,
            )
            scores = read.score_logprobs
            if scores is None:
                raise ValueError(read.failure or "no log-probabilities")
        except (Rejected, Unsound, ValueError) as error:
            return replace(answer, unclosed=f"the server gave no verdict to close it with: {error}")
        return replace(answer, closed=most_probable(scores), score_logprobs=scores)

    async def _by_schema(
        self,
        answer: Answer,
        prompt: Prompt,
        pictures: Sequence[Part],
        verdicts: Mapping[str, Texts],
    ) -> Answer:
        """An answer with the verdicts that are asked for in a form that allows nothing else."""
        # 1) the form: one of the scale's texts for each verdict
        properties = {}
        for name, texts in verdicts.items():
            choices = [text.strip(' "') for text in texts.values()]
            properties[name or "verdict"] = {"type": "string", "enum": choices}
        # 2) ask, and read: not every server holds an answer to a schema
        body = messages(prompt, pictures)
        body["messages"].append({"role": "assistant", "content": answer.text})
        body["messages"].append({"role": "user", "content": CLOSE})
        body |= {**self.sent, "temperature": 0.0, "response_format": _form(json_object(properties))}
        reply, _ = await self._post(body, answer.index)
        if reply.failure is not None or reply.finish != "stop":
            raise ValueError(reply.failure or f"ended by {reply.finish}")
        levels = read_levels(reply.text, verdicts)
        if "" in levels:
            return replace(answer, closed=levels[""])
        return replace(answer, closed_scores=levels)


def _remarked(answer: Answer, marker: str, remark: str) -> Answer:
    """The answer, with a remark where it holds the marker and no distribution."""
    if answer.score_logprobs is not None or marker.casefold() not in answer.text.casefold():
        return answer
    return replace(answer, remarks=(*answer.remarks, remark))


def _form(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "json_schema",
        "json_schema": {"name": "verdict", "schema": schema, "strict": True},
    }
