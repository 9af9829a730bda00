"""The engine for a server that speaks OpenAI's protocol: OpenAI, vLLM, SGLang, llama.cpp, others.

vLLM shows the tokens of a conversation (`/tokenize`). Before a call's first prompt they are
compared, token for token, with the judge's own prompt, also up to the place where score mode reads,
and a server that writes another prompt is refused. For a server that shows no tokens, one line says
that nothing was compared; it has no score mode. A value head is read by `/classify`, else
`/pooling`, of a vLLM that serves what `vjudge.models.classifier` writes; `/score` would join
question and response in words of its own.

Differences from an engine on this machine:

- The server's tokenizer may read "</s>" inside a response as a control token.
- Where a server can't be asked for the scores' tokens, a score outside the most probable tokens
  counts as probability 0.
- A scale whose scores are several tokens has a distribution only where the server continues an
  answer, with one request for each beginning of several scores.
- No run records a prompt without an answer: the same call asks again.

Source: platform.openai.com/docs/api-reference/chat; docs.vllm.ai, "OpenAI-Compatible Server"; for
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
from vjudge.engines.closing import (
    most_probable,
)
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
    ServedScale,
    ServerError,
    Turn,
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
from vjudge.prompts.objects import levels_schema, read_levels
from vjudge.records import brief, is_int_at_least

ADDRESS = "OPENAI_BASE_URL"  # the environment variable that names another server than OpenAI's
AT_ONCE = 8  # requests under way at once under batch_size="auto"
GIVE_UP = 8  # prompts in a row without an answer, after which no further one is sent
VALUE_PATHS = ("/classify", "/pooling")  # of vLLM: what returns the number of a value head
CLOSE = "Give your verdict on the answer above as JSON and nothing else."


@dataclass(eq=False, repr=False)
class ServerEngine(Engine):
    """Ask a model behind an OpenAI-compatible server; a short request first tries a call's options.

    Args:
        model: the model's name on the server.
        base_url: up to and including "/v1"; "" takes the environment's OPENAI_BASE_URL, else
            OpenAI's. Over plain http a key goes to this machine alone, and by no proxy.
            SSL_CERT_FILE names certificates to trust elsewhere.
        conversation: the text around a turn that the judge was trained with, which the server's
            tokens are checked against. None takes the server's own chat template as right.
        key_variable: the environment variable that holds the key, read anew for each call; None
            sends no key.
        timeout: seconds for one attempt, from the connection to the last byte. A time-out, a
            connection error and HTTP 408, 409, 429 and 5xx are repeated at most six times, after
            pauses that double or as Retry-After says. An answer that was given is never repeated.
        served_model: the name in the replies, where it is another than `model`, as behind a router.
            An answer by any other model is a failure; a date may follow either name.
        image_format, image_max_bytes: "jpeg", "png" or "webp", and the largest size of an image's
            file; other images are re-encoded, which is counted. None sends a file as it is, with
            its metadata, where it shows what the judge is to see.
        fields: further fields of each request, such as `{"reasoning_effort": "low"}`; None as a
            value leaves a field out. A run's manifest keeps them: put no secrets there.

    Raises:
        ValueError: an invalid address or option; a key that is missing, or that would go over a
            network unencrypted.

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
        # 1) check the options; `address` refuses a missing key now, though each call reads it anew
        base_url = self.base_url or os.environ.get(ADDRESS, "").strip() or OPENAI
        self.base_url, _ = address(base_url, self.key_variable)
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
        # 2) say where prompts will go
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
        """Answer every prompt, see `Engine.answer`.

        `ask.batch_size` is how many requests are under way at once.

        Raises:
            ServerError: the server lacks what the options need, or writes another prompt than the
                judge's own.
        """
        jobs = []
        for row, prompt in enumerate(prompts):
            # The prompts of a score pass end in the marker. It is sent as the answer's beginning.
            if ask.is_score_pass:
                *parts, end = prompt.parts
                prompt = replace(prompt, parts=(*parts, str(end).removesuffix(ask.marker)))
            if wanted is None or row in wanted:
                jobs.append(Job(row, prompt, images[row]))
        if jobs:
            # The event loop runs in a thread of its own, because a notebook's is running already.
            with start_blocking_portal() as portal:
                yield from ServerCall(self, ask, portal).answers(jobs)

    def identity(self) -> dict[str, Any]:
        """Return what decides the answers, see `Engine.identity`."""
        request: dict[str, Any] = {
            "conversation": self.conversation and self.conversation.name,
            "fields": self.fields,
        }
        # Options that are not given are left out: runs from before they existed still match.
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
    """Ask a server for the answers of one call.

    `_prepare` finds out what the server can do, by `/tokenize` and one short request; the other
    methods ask accordingly.

    Args:
        engine: the server's address, and how it is asked.
        ask: the options of the call.
        portal: runs coroutines in the thread of the event loop.
    """

    def __init__(self, engine: ServerEngine, ask: Ask, portal: BlockingPortal) -> None:
        self.engine = engine
        self.ask = ask
        self.portal = portal
        self.client = Client(*address(engine.base_url, engine.key_variable), engine.timeout)
        self.root = engine.base_url.removesuffix("/v1")  # of vLLM's own paths
        self.expected_model = engine.served_model or engine.model
        self.uses_schema = bool(ask.schemas)  # whether the server holds answers to their schema
        self.keeps_images = False  # whether the server may know an image by its name
        self.n_unanswered = 0  # prompts in a row without an answer
        self.stopped = ""  # why no further prompt is sent; "" while prompts are sent
        self.at_once = AT_ONCE if ask.batch_size == "auto" else int(ask.batch_size)
        self.slots = asyncio.Semaphore(self.at_once)

    # --- finding out what the server can do

    def _prepare(self, jobs: Sequence[Job]) -> None:
        """Find out what the server can do, and keep it for the requests of the call.

        Value mode sets `value_path`; any other mode sets `server`, `options`, `keeps_images` and
        `uses_schema`.

        Raises:
            ServerError: the server does not answer, or can't do what the options need.
        """
        try:
            if self.ask.mode == "value":
                self.portal.call(self._find_value_path, jobs[0])
                return
            self.server = Handshake(self._tokenize, self.engine, self.ask, jobs)
            self.keeps_images = self.server.continues and jobs[0].prompt.n_images > 0
            self.options = self._options()
            self.portal.call(self._try_options, jobs[0])
        except Unanswered as error:
            raise ServerError(
                f"{self.engine!r} did not answer a short test request: {error}; correct base_url"
                " where nothing listens; fields= changes, or by None leaves out, what is sent"
            ) from None

    def _tokenize(self, request: dict[str, Any]) -> dict[str, Any]:
        """Send a request to `/tokenize`, repeat it once at most, and return the reply."""
        body = {"model": self.engine.model, **request}
        return self.portal.call(self.client.post, f"{self.root}/tokenize", body, 1)

    async def _find_value_path(self, job: Job) -> None:
        """Set `value_path` to the first path of `VALUE_PATHS` that returns a value.

        Each is tried with a short conversation that has as many images as the job.

        Raises:
            Rejected, Refused: the server has no such path.
        """
        blanks = [BLANK] * job.prompt.n_images
        prompt = Prompt(merge([*[IMAGE] * len(blanks), "Is it so?", Reply("Yes.")]))
        for path in VALUE_PATHS:
            self.value_path = path
            try:
                await self._value(Turn(job.row, prompt, blanks))
                return
            except (Rejected, Refused) as error:
                refusal = error
        raise refusal

    def _options(self) -> dict[str, Any]:
        """Return the fields that follow from the call's options, the same in each request."""
        ask = self.ask
        context = self.server.context
        options: dict[str, Any] = {"model": self.engine.model, "temperature": ask.temperature}
        if ask.temperature:
            options["top_p"] = ask.top_p
        # A server with a known context shows its tokens: it is a vLLM, or like one. It would take a
        # sampling parameter that a request leaves out from the checkpoint's own settings.
        if context or ask.repetition_penalty != 1:
            options["repetition_penalty"] = ask.repetition_penalty
        if context:
            options |= {"top_k": -1, "min_p": 0.0, "skip_special_tokens": False}
        # A limit beyond the context would be refused; without one the context alone is the limit.
        limit = 1 if ask.is_score_pass else ask.max_new_tokens
        if not context or limit < context:
            name = "max_completion_tokens" if self.engine.base_url == OPENAI else "max_tokens"
            options[name] = limit
        return options

    async def _try_options(self, job: Job) -> None:
        """Send a short request with the call's options, to see which of them the server accepts.

        If it is rejected, it is repeated without the names of images, then also without a schema,
        and what had to be left out is set to False: `keeps_images`, `uses_schema`.

        Raises:
            Rejected: the server turns down what remains.
        """
        n_images = job.prompt.n_images
        short = Prompt((*[IMAGE] * n_images, "Answer with the word yes."), job.prompt.system)
        while True:
            blank = {**BLANK, "uuid": "vjudge-blank"} if self.keeps_images else BLANK
            turn = Turn(job.row, short, [blank] * n_images)
            try:
                await self._complete(self._request(turn), turn.row)
                break
            except Rejected:
                if self.keeps_images:
                    self.keeps_images = False
                elif self.uses_schema:
                    self.uses_schema = False
                else:
                    raise
        if self.ask.schemas and not self.uses_schema:
            say(f"{self.engine!r} refuses a schema (response_format): answers are in free text")

    # --- asking

    def answers(self, jobs: Sequence[Job]) -> Answers:
        """Yield each answer as it arrives, as a list of one; warn if the call was stopped early."""
        try:
            self._prepare(jobs)
            remaining = iter(jobs)
            pending: set[Future[Answer]] = set()
            while True:
                # `slots` lets `at_once` requests be under way. Twice as many jobs are started, so
                # that no slot is idle while an answer that arrived is written to the disk.
                for job in islice(remaining, 2 * self.at_once - len(pending)):
                    pending.add(self.portal.start_task_soon(self._answer, job))
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

    async def _answer(self, job: Job) -> Answer:
        """Return the answer to a job; whatever goes wrong becomes its `failure`.

        After `GIVE_UP` prompts in a row without an answer, or one refusal that concerns every
        request, `stopped` is set, and no further job is sent.
        """
        async with self.slots:
            started = time.perf_counter()
            if self.stopped:
                return Answer(job.row, failure=f"not asked: {self.stopped}", transient=True)
            try:
                turn, changes = self._encoded(job)
                answer = await self._asked(turn)
            # ValueError and OSError: an image can't be read. Rejected is an Unanswered, too, but
            # one that concerns this prompt alone, so that it does not count.
            except (Rejected, ValueError, OSError) as error:
                return Answer(job.row, failure=str(error))
            except Unanswered as error:
                self.n_unanswered += 1
                if isinstance(error, Refused) or self.n_unanswered == GIVE_UP:
                    self.stopped = f"{self.n_unanswered} prompts in a row got no answer: {error}"
                return Answer(job.row, failure=str(error), transient=True)
            self.n_unanswered = 0
            seconds = time.perf_counter() - started
            return replace(answer, seconds=seconds, remarks=(*changes, *answer.remarks))

    def _encoded(self, job: Job) -> tuple[Turn, list[str]]:
        """Return a job with its images encoded, and a remark for each image that was changed."""
        engine = self.engine
        images = []
        remarks = []
        for source in job.images:
            file = picture(source).encoded(engine.image_format, engine.image_max_bytes)
            image: dict[str, Any] = {"image_url": {"url": file.uri}}
            if self.keeps_images:
                image["uuid"] = hashlib.sha256(file.data).hexdigest()
            images.append(image)
            if file.change:
                remarks.append(f"a picture was {file.change}")
        return Turn(job.row, job.prompt, images), remarks

    async def _asked(self, turn: Turn) -> Answer:
        """Ask for an answer, and read or close it, as the call's mode says."""
        ask = self.ask
        if ask.mode == "value":
            return await self._value(turn)
        # the scale in the server's tokens; None where the row has none, or where it can't be read
        served = self.server.scale(ask.marker, ask.scale(turn.row))
        # 1) a score pass reads the distribution after the beginning of an answer
        if ask.is_score_pass and served is not None:
            reading = await self._distribution(turn, "", served)
            # The one new token is not the answer's end: how it ended, and that it may have no text,
            # is no failure where the distribution was read.
            failure = reading.failure if reading.score_logprobs is None else None
            return replace(reading, text="", finish="stop", failure=failure)
        # 2) else an answer is written, and closed where it holds no verdict
        answer = await self._written(turn)
        if answer.failure is not None:
            return answer
        if ask.has_to_be_closed(answer):
            return await self._closed(turn, answer)
        # 3) a scale of several tokens takes further requests, which continue the answer
        if served is None or served.scale.first_token_decides or not self.server.continues:
            return answer
        return await self._with_distribution(turn, answer, served)

    async def _value(self, turn: Turn) -> Answer:
        """Return the number that the served value head gives, without an activation function."""
        body = messages(turn) | {"model": self.engine.model, "use_activation": False}
        reply = await self._send(self.root + self.value_path, body)
        return read_value(reply, turn.row, self.expected_model, self.client.key)

    async def _written(self, turn: Turn) -> Answer:
        """Let the server write an answer; read the distribution at its verdict.

        A remark says why an answer with a marker has no distribution.
        """
        request = self._request(turn)
        answer, tokens = await self._complete(request, turn.row)
        # Log-probabilities are read only where this engine requested them, not the user's fields.
        if not request.get("logprobs") or "logprobs" in self.engine.fields:
            return answer
        marker = self.ask.marker
        logprobs = at_verdict(answer.text, tokens, marker, self.ask.scale(turn.row))
        answer = replace(answer, score_logprobs=logprobs)
        return _remarked(answer, marker, NO_DISTRIBUTION if tokens else NO_LOGPROBS)

    async def _with_distribution(self, turn: Turn, answer: Answer, served: ServedScale) -> Answer:
        """Add the distribution of a scale of several tokens at the place of the verdict.

        A verdict stands there if a score follows the last marker at once. A remark says why there
        is no distribution.
        """
        beginning, _, verdict = answer.text.rpartition(self.ask.marker)
        remark = NO_DISTRIBUTION
        if verdict.startswith(tuple(self.ask.scale(turn.row).values())):
            try:
                reading = await self._distribution(turn, beginning, served)
                answer = replace(answer, score_logprobs=reading.score_logprobs)
            except (Rejected, Unsound) as error:
                remark = f"no distribution: {error}"
        return _remarked(answer, self.ask.marker, remark)

    # --- requests

    def _request(self, turn: Turn) -> dict[str, Any]:
        """Return the body of a request for a whole answer."""
        body = messages(turn) | self.options
        if self.ask.temperature:
            body["seed"] = self.ask.seed(turn.row) % 2**31  # as a signed 32-bit number
        # None: no log-probabilities; an empty list: those of the most probable tokens alone
        tokens = self.server.first_tokens(turn.row)
        if tokens is not None:
            body |= {"logprobs": True, "top_logprobs": LISTED}
        if tokens:
            body["logprob_token_ids"] = tokens
        if self.uses_schema:
            body["response_format"] = _response_format(self.ask.schemas[turn.row])
        return body

    async def _send(
        self, url: str, body: Mapping[str, Any], retries: int | None = None
    ) -> dict[str, Any]:
        """Send a request with the engine's further fields, and return the reply.

        `retries` None stands for the usual number, `client.RETRIES`.
        """
        fields = {**body, **self.engine.fields}
        sent = {name: value for name, value in fields.items() if value is not None}
        return await self.client.post(url, sent, client.RETRIES if retries is None else retries)

    async def _complete(
        self, body: Mapping[str, Any], row: int, retries: int | None = None
    ) -> tuple[Answer, list[Token]]:
        """Send a request for a completion; return the answer, and its tokens."""
        reply = await self._send("/chat/completions", body, retries)
        return read_reply(reply, row, self.expected_model, self.client.key)

    async def _continue(
        self, turn: Turn, beginning: str, fields: dict[str, Any], n_sent: int
    ) -> tuple[Answer, list[Token]]:
        """Let the server continue an answer; images that it keeps go by their names.

        vLLM keeps images by the "uuid" that they were first sent with.

        Args:
            turn: the prompt.
            beginning: what the server is to continue.
            fields: further fields of the request.
            n_sent: how many tokens the prompt and its answer had when the server had the images; 0
                where the prompt was not sent before. A reply that reports fewer prompt tokens was
                made without the images, and is not used.

        Source: docs.vllm.ai, "Multimodal Inputs", on cached inputs.
        """
        if turn.images and n_sent and self.keeps_images:
            named = [{**image, "image_url": None} for image in turn.images]
            body = messages(turn._replace(images=named), beginning) | fields
            with suppress(Unanswered):
                answer, tokens = await self._complete(body, turn.row, retries=0)
                if answer.n_prompt_tokens >= n_sent:
                    return answer, tokens
            self.keeps_images = False  # the images are sent from now on
        return await self._complete(messages(turn, beginning) | fields, turn.row)

    async def _distribution(
        self, turn: Turn, beginning: str, served: ServedScale, *, n_sent: int = 0
    ) -> Answer:
        """Read the distribution over a scale after the beginning of an answer.

        One request is sent for each stem of the scale (see `ScoreTokens.next_tokens`); it asks for
        one token and the log-probabilities of those that go on to a score.

        Args:
            turn: the prompt.
            beginning: what the answer holds before the marker.
            served: the scale in the server's tokens.
            n_sent: as for `_continue`.

        Returns:
            The answer to the last request. Its `score_logprobs` are None where the server returned
            none of the scale.
        """
        # The conversation separates prompt and reply by a blank. The server writes it, so that an
        # answer must not begin with it again.
        if self.engine.conversation is not None:
            beginning = beginning.removeprefix(self.engine.conversation.reply)
        logprobs_after = {}
        # The shortest prompt comes last, because its count of tokens is the prompt's.
        for stem, text in reversed(served.text_before.items()):
            tokens = served.scale.next_tokens[stem]
            fields = {
                **self.options,
                "max_tokens": 1,
                "temperature": 0.0,
                "logprobs": True,
                "top_logprobs": LISTED,
                "logprob_token_ids": tokens,
                "return_tokens_as_token_ids": True,
            }
            answer, written = await self._continue(turn, beginning + text, fields, n_sent)
            listed = written[0].logprobs if written else None  # at the only token
            if listed is None or answer.failure not in (None, NO_TEXT):
                return answer
            logprobs_after[stem] = {
                token: listed.get(f"token_id:{token}", -math.inf) for token in tokens
            }
        # the scale has probability 0 where the server listed none of its tokens
        logprobs = served.scale.logprobs(logprobs_after)
        if max(logprobs.values()) == -math.inf:
            return answer
        return replace(answer, score_logprobs=logprobs)

    # --- closing an answer without a verdict

    async def _closed(self, turn: Turn, answer: Answer) -> Answer:
        """Return the answer with the verdicts that it lacks, or with the reason why it has none.

        One verdict is read after the answer and a marker, where the server continues an answer.
        Otherwise, and for several criteria, the server is asked for verdicts by a JSON schema.
        """
        scales = self.ask.scales_to_close(turn.row)
        closing: Any = self.ask.closing
        served = None  # the scale in the server's tokens, where one verdict can be read by them
        if self.server.continues and "" in scales:
            served = self.server.scale(closing.marker, scales[""])
        try:
            if served is None:
                return await self._closed_by_schema(turn, answer, scales)
            n_sent = answer.n_prompt_tokens + answer.n_new_tokens
            reading = await self._distribution(turn, answer.text, served, n_sent=n_sent)
            logprobs = reading.score_logprobs
            if logprobs is None:
                raise ValueError(reading.failure or "no log-probabilities")
        except (Rejected, Unsound, ValueError) as error:
            return replace(answer, unclosed=f"the server gave no verdict to close it with: {error}")
        return replace(answer, closed=most_probable(logprobs), score_logprobs=logprobs)

    async def _closed_by_schema(
        self, turn: Turn, answer: Answer, scales: Mapping[str, Texts]
    ) -> Answer:
        """Ask for the missing verdicts as a JSON object, by a schema that allows nothing else.

        Raises:
            ValueError: the reply holds no such verdicts: not every server keeps to a schema.
        """
        body = messages(turn)
        body["messages"].append({"role": "assistant", "content": answer.text})
        body["messages"].append({"role": "user", "content": CLOSE})
        form = _response_format(levels_schema(scales))
        body |= {**self.options, "temperature": 0.0, "response_format": form}
        reply, _ = await self._complete(body, turn.row)
        if reply.failure is not None or reply.finish != "stop":
            raise ValueError(reply.failure or f"ended by {reply.finish}")
        scores = read_levels(reply.text, scales)
        if "" in scores:
            return replace(answer, closed=scores[""])
        return replace(answer, closed_scores=scores)


def _remarked(answer: Answer, marker: str, remark: str) -> Answer:
    """Return an answer, with a remark added if it holds the marker and has no distribution."""
    if answer.score_logprobs is not None or marker.casefold() not in answer.text.casefold():
        return answer
    return replace(answer, remarks=(*answer.remarks, remark))


def _response_format(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the value of a request's `response_format`, which holds an answer to a JSON schema."""
    return {
        "type": "json_schema",
        "json_schema": {"name": "verdict", "schema": schema, "strict": True},
    }
