"""The engine for a server that speaks OpenAI's protocol: OpenAI, vLLM, SGLang, llama.cpp, others.

vLLM tells the tokens of a conversation (`/tokenize`). Before a call's first prompt they are
compared, token for token, with the judge's own wording, also up to the place where score mode
reads, and another prompt is refused. Of a server that shows no tokens a line says that nothing was
compared; it has no score mode.

Not as on this machine: the server's tokenizer may read "</s>" inside a response as a control token;
where a server can't be asked for the scores' tokens, a score outside the most probable ones counts
as probability 0 (the closing line counts such verdicts); a scale whose levels are several tokens
has a distribution only where the server continues an answer, which takes a request for each
beginning of several levels (the closing line counts those without); and no run records a prompt
without an answer: the same call asks again.

Source: platform.openai.com/docs/api-reference/chat; docs.vllm.ai, "OpenAI-Compatible Server".
"""

from __future__ import annotations

import itertools
import json
import math
import re
import time
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, wait
from dataclasses import replace
from typing import Any

from vjudge.engines.client import KEY_NAME, OPENAI, Client, Rejected, Unanswered, address
from vjudge.engines.engine import (
    FINISHES,
    Answer,
    Answers,
    Ask,
    Engine,
    Quantity,
    Sources,
    Wanted,
    say,
)
from vjudge.engines.handshake import (
    BLANK,
    Handshake,
    ServedScale,
    ServerError,
    messages,
    turn,
)
from vjudge.engines.logprobs import at_verdict, listing, read_tokens
from vjudge.images import data_uri, picture
from vjudge.prompts import Conversation, Prompt
from vjudge.records import is_int_at_least

AT_ONCE = 8  # requests under batch_size="auto"
GIVE_UP = 8  # prompts in a row without an answer
CLOSE = "Give your verdict on the answer above as JSON and nothing else."
UNCOUNTED = "answers without a token count, which are missing from the counts and the price"
SILENT = "the server gave no log-probabilities with its answer"
IMPROBABLE = "no score of the scale is among the most probable tokens"
UNREAD = "answers without a distribution, since a level takes several tokens of this server"
OFF_LIST = "answers with a score outside the most probable tokens, counted as 0"
UNFORMED = "answers in free text, since the server refuses a schema (response_format)"


class ServerEngine(Engine):
    """Ask a model behind an OpenAI-compatible server; a short request first tries a call's options.

    Args:
        model: as the server names it; an answer by another one is a failure.
        base_url: up to and including "/v1". Plain http carries a key to this machine only, where no
            proxy is taken. SSL_CERT_FILE names certificates to trust elsewhere.
        conversation: the words around a turn that the judge was trained with, which the server's
            tokens are checked against. None takes the server's own chat template as right.
        key_variable: the environment variable that holds the key, read anew for each call; None
            sends no key.
        timeout: seconds for one try, from the connection to the last byte. A time-out, a connection
            error and HTTP 408, 409, 429 and 5xx are repeated six times at most, after pauses that
            double or as Retry-After says; an answer that was given never is.
        fields: further fields of each request, such as `{"reasoning_effort": "low"}`; None as a
            value leaves a field out. A run's manifest keeps them: no secrets.
        price: for a million prompt tokens and a million new tokens, in any currency.
        spend_limit: in that currency, for this engine's lifetime; no prompt is sent beyond it.

    ValueError: an unsound address; a key that is missing, or would go over a network in the clear.

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
        key_variable: str | None = KEY_NAME,
        timeout: float = 300.0,
        fields: Mapping[str, Any] | None = None,
        price: tuple[float, float] | None = None,
        spend_limit: float | None = None,
    ) -> None:
        if spend_limit is not None and price is None:
            raise ValueError(f"spend_limit={spend_limit!r}: give a price= too")
        self.base_url, _ = address(base_url, key_variable)  # refuses a key that is missing now
        self.model = model
        self.key_variable = key_variable
        self.timeout = timeout
        self.price = price
        self.spend_limit = spend_limit
        self.fields = dict(fields or {})
        self.conversation = None if self.base_url == OPENAI else conversation
        self.usage: Counter[str] = Counter()  # of all calls: "requests", "prompt tokens" and more

    def __repr__(self) -> str:
        return f"ServerEngine({self.model!r}, base_url={self.base_url!r})"

    def answer(
        self, prompts: Sequence[Prompt], images: Sources, ask: Ask, wanted: Wanted = None
    ) -> Answers:
        """Ask for every prompt; `batch_size` is how many requests are under way at once.

        ServerError: the server lacks what the options need, or writes another prompt than the
        judge's own.
        """
        if ask.mode == "value":
            raise ServerError(f"{self!r} gives texts and no values: load the reward model here")
        jobs = []
        for row, prompt in enumerate(prompts):
            if wanted is None or row in wanted:
                jobs.append((row, turn(prompt, ask), images[row]))
        if jobs:
            yield from ServerCall(self, jobs, ask).answers()

    def plan(self, prompts: Sequence[Prompt], images: Sources, ask: Ask) -> list[Quantity]:
        """What `answer` would send and cost; nothing is sent."""
        lines = super().plan(prompts, images, ask)
        lines.insert(0, Quantity("requests", len(prompts), "", "and a short test request"))
        note = "no price= was given"
        if self.price:
            note = "every answer at its limit; the test request, repetitions and pictures on top"
        cost = self.cost({line.quantity: line.planned for line in lines})
        return [*lines, Quantity("cost", cost, "currency of price=", note)]

    def identity(self) -> dict[str, Any]:
        """See `Engine.identity`."""
        conversation = self.conversation.name if self.conversation else None
        return {
            "engine": self.name,
            "base_url": self.base_url,
            "model": self.model,
            "request": {"conversation": conversation, "fields": self.fields},
            "versions": {},
        }

    def cost(self, tokens: Mapping[str, float]) -> float:
        """The price of "prompt tokens" and "new tokens"; NaN without a price."""
        if self.price is None:
            return math.nan
        prompt, new = self.price
        return (tokens["prompt tokens"] * prompt + tokens["new tokens"] * new) / 1e6


class Unread(Exception):
    """A distribution can't be read; the reason becomes the answer's."""


class ServerCall:
    """One call, asked as the server's `/tokenize` and one short request show that it can be."""

    def __init__(
        self,
        engine: ServerEngine,
        jobs: Sequence[tuple[int, Prompt, Sequence[Any]]],
        ask: Ask,
    ) -> None:
        self.engine = engine
        self.jobs = jobs
        self.ask = ask
        self.formed = bool(ask.schemas)  # whether answers are held to their schema
        self.uris: dict[str, str] = {}  # of one prompt's pictures, for its neighbours
        _, self.key = address(engine.base_url, engine.key_variable)
        self.client = Client(engine.base_url, self.key, engine.timeout, engine.usage)
        rows = [row for row, _, _ in jobs]
        prompts = (prompt for _, prompt, _ in jobs)
        try:
            self.server = Handshake(
                self.client, engine.model, engine.conversation, ask, rows, prompts
            )
            scaled = (row for row in rows if self.server.tokens(row) is not None)
            self.client.submit(self._try(next(scaled, rows[0]))).result()
        except Unanswered as error:
            self.client.close()
            raise ServerError(
                f"{engine!r} did not answer a short test request: {error}; correct base_url where"
                " nothing listens; fields= changes, or by None leaves out, what is sent"
            ) from None
        except BaseException:
            self.client.close()
            raise

    async def _try(self, row: int) -> None:
        """Send a short request with the call's options; without a schema where it is refused."""
        prompt = self.server.probes[-1]
        uris = [BLANK] * prompt.n_images
        if self.ask.scores:
            try:
                await self._asked(row, prompt, uris)
            except Unread as error:
                if str(error) == SILENT:
                    raise ServerError(
                        f'{self.engine!r}: {SILENT}, and score mode needs them; use mode="feedback"'
                    ) from None
            return
        try:
            reply = await self.client.post(self._request(prompt, uris, row))
        except Rejected:
            if not self.formed:
                raise
            self.formed = False
            reply = await self.client.post(self._request(prompt, uris, row))
        self.read(reply, row)

    # --- asking

    def answers(self) -> Answers:
        """Ask for each row, and say at the end what it came to."""
        client = self.client
        width = self.ask.batch_size
        if not isinstance(width, int):
            width = AT_ONCE
        remaining = iter(self.jobs)
        silent = 0
        missing = 0
        try:
            running = {
                client.submit(self._answer(*job)) for job in itertools.islice(remaining, width)
            }
            while running:
                done, running = wait(running, return_when=FIRST_COMPLETED)
                answers = [future.result() for future in done]
                for answer in answers:
                    missing += answer.transient
                    silent = silent + 1 if answer.transient else 0
                    if silent == GIVE_UP:
                        last = f"the last for: {answer.failure}"
                        client.stop(f"{silent} prompts in a row got no answer, {last}")
                yield answers  # the next ones start only when the caller has come back for more
                for job in itertools.islice(remaining, len(done)):
                    running.add(client.submit(self._answer(*job)))
        finally:
            self._say(missing)
            client.close()

    def _say(self, missing: int) -> None:
        """What the engine's calls came to, and whether this one was ended early."""
        engine = self.engine
        counts = [f"{count} {what}" for what, count in list(engine.usage.items())]
        if engine.price:
            counts.append(f"{engine.cost(engine.usage):.4f} at the given price")
        say(f"{engine!r}, all told: {'; '.join(counts)}")
        if self.client.stopped is not None:
            warnings.warn(
                f"{engine!r}: {self.client.stopped}; {missing} prompts have no answer. The same"
                " call asks for what is missing; give it an `out` folder to keep what is there",
                RuntimeWarning,
                stacklevel=3,
            )

    async def _answer(self, row: int, prompt: Prompt, sources: Sequence[Any]) -> Answer:
        """The answer to a row, whatever happens."""
        started = time.perf_counter()
        engine = self.engine
        client = self.client
        if engine.spend_limit is not None and engine.cost(engine.usage) >= engine.spend_limit:
            client.stop(f"the spend limit of {engine.spend_limit:g} is reached")
        try:
            if client.stopped:
                raise Unanswered(f"not asked: {client.stopped}")
            answer = await self._asked(row, prompt, self._shown(sources))
        except Unanswered as error:
            return Answer(row, failure=str(error), transient=not isinstance(error, Rejected))
        except (Unread, ValueError, OSError) as error:  # the last two: a picture is broken
            return Answer(row, failure=str(error))
        return replace(answer, seconds=time.perf_counter() - started)

    async def _asked(self, row: int, prompt: Prompt, uris: Sequence[str]) -> Answer:
        """Ask, and read or close what was answered."""
        texts = self.ask.scale(row)
        served = self.server.scale(self.ask.marker, texts)
        # 1) a score pass reads the distribution behind the beginning of an answer
        if self.ask.scores and served is not None:
            scores, n_prompt, n_new = await self._distribution(prompt, uris, "", served)
            return Answer(row, "", n_prompt, n_new, scores, "stop")
        # 2) write the answer
        answer = self.read(await self.client.post(self._request(prompt, uris, row)), row)
        if answer.failure is not None:
            return answer
        # 3) close it, where it holds no verdict
        if self.ask.closes(row, answer.text, answer.finish):
            return await self._closed(answer, prompt, uris)
        # 4) read the distribution of a scale of several tokens at the verdict's place
        if not texts or self.server.tokens(row) is not None:
            return answer
        before, marker, after = answer.text.rpartition(self.ask.marker)
        if not marker:
            return answer
        written = any(after.startswith(text) for text in texts.values())
        if served is None or not self.server.continues or not written:
            self.engine.usage[UNREAD] += 1
            return answer
        try:
            scores, _, _ = await self._distribution(prompt, uris, self._begun(before), served)
        except (Unread, Rejected):
            self.engine.usage[UNREAD] += 1
            return answer
        return replace(answer, score_logprobs=scores)

    def _shown(self, sources: Sequence[Any]) -> list[str]:
        """A prompt's pictures as data URIs; neighbours share them."""
        pictures = [picture(source) for source in sources]
        uris = {}
        for one in pictures:
            uris[one.key] = self.uris.get(one.key) or data_uri(one.open())
        self.uris = uris
        return [uris[one.key] for one in pictures]

    def _request(self, prompt: Prompt, uris: Sequence[str], row: int) -> dict[str, Any]:
        """A request for a row, by its prompt or one that stands for it."""
        body = {**messages(prompt, uris), **self.server.sent}
        if self.ask.temperature > 0:
            body["seed"] = self.ask.seed(row) % 2**31
        tokens = self.server.tokens(row)
        if tokens is not None:
            body |= listing(tokens, as_ids=False)
        schema = self.ask.schema(row)
        if schema and self.formed:
            body["response_format"] = _form(schema)
        elif schema:
            self.engine.usage[UNFORMED] += 1
        return self._with_fields(body)

    def _with_fields(self, body: Mapping[str, Any]) -> dict[str, Any]:
        body = {**body, **self.engine.fields}
        return {name: value for name, value in body.items() if value is not None}

    def _begun(self, text: str) -> str:
        """An answer's text without the blank that the conversation writes before it."""
        if self.engine.conversation is None:
            return text
        return text.removeprefix(self.engine.conversation.reply)

    async def _distribution(
        self, prompt: Prompt, uris: Sequence[str], begun: str, served: ServedScale
    ) -> tuple[dict[int, float], int, int]:
        """A scale's log-probabilities behind the beginning of an answer; tokens of both kinds.

        Unread: no log-probabilities came, or none of the scale.
        """
        after = {}
        n_new = 0
        n_prompt = 0
        for stem, text in served.behind.items():
            tokens = served.scale.reads(stem)
            body = messages(prompt, uris, begun + text) | self.server.sent
            body |= {"max_tokens": 1, "temperature": 0.0, **listing(tokens, as_ids=True)}
            reply = await self.client.post(self._with_fields(body))
            self._check_model(reply)
            counts = self._count(reply)
            n_prompt = n_prompt or counts[0]
            n_new += counts[1]
            try:
                written = read_tokens(reply["choices"][0])
            except (KeyError, IndexError, TypeError):
                written = []
            if not written:
                raise Unread(SILENT)
            odds = written[0][1]
            after[stem] = {token: odds.get(f"token_id:{token}", -math.inf) for token in tokens}
        scores = served.scale.logprobs(after)
        if max(scores.values()) == -math.inf:
            raise Unread(IMPROBABLE)
        if -math.inf in scores.values():
            self.engine.usage[OFF_LIST] += 1
        return scores, n_prompt, n_new

    # --- closing an answer without a verdict

    async def _closed(self, answer: Answer, prompt: Prompt, uris: Sequence[str]) -> Answer:
        """The answer with the verdicts that it did not hold, or why they could not be had."""
        try:
            if self.server.continues:
                return await self._continued(answer, prompt, uris)
        except Rejected:
            pass  # such as an answer that fills the context: ask by a schema
        except Unread as error:
            return replace(answer, unclosed=str(error))
        return await self._by_schema(answer, prompt, uris)

    async def _by_schema(self, answer: Answer, prompt: Prompt, uris: Sequence[str]) -> Answer:
        """Ask for the verdicts on the answer in a form that allows nothing else."""
        # 1) the form: one of the scale's texts for each verdict
        places = self.ask.closings(answer.index)
        properties = {}
        for name, _, texts in places:
            words = [text.strip(' "') for text in texts.values()]
            properties[name or "verdict"] = {"type": "string", "enum": words}
        form = {"type": "object", "properties": properties, "required": list(properties)}
        # 2) ask, and read
        body = messages(prompt, uris)
        body["messages"].append({"role": "assistant", "content": answer.text})
        body["messages"].append({"role": "user", "content": CLOSE})
        sent = {**self.server.sent, "temperature": 0.0, "response_format": _form(form)}
        closed = {}
        try:
            reply = await self.client.post(self._with_fields({**body, **sent}))
            self._check_model(reply)
            self._count(reply)
            said = json.loads(reply["choices"][0]["message"]["content"])
            for name, _, texts in places:
                key = name or "verdict"
                place = properties[key]["enum"].index(str(said[key]).strip())
                closed[name] = list(texts)[place]
        except Rejected as error:
            return replace(answer, unclosed=f"the server takes no schema to close by ({error})")
        except (KeyError, IndexError, TypeError, ValueError):
            return replace(answer, unclosed="the server did not keep to the schema of a verdict")
        return _with_closed(answer, closed)

    async def _continued(self, answer: Answer, prompt: Prompt, uris: Sequence[str]) -> Answer:
        """Put the marker of each verdict behind the answer, and read the distribution there."""
        begun = self._begun(answer.text)
        closed = {}
        scores: dict[int, float] = {}
        for name, before, texts in self.ask.closings(answer.index):
            served = self.server.scale(before, texts)
            if served is None:
                raise Rejected("the scale can't be read behind an answer")
            scores, _, _ = await self._distribution(prompt, uris, begun, served)
            closed[name] = max(sorted(scores), key=scores.__getitem__)  # the lowest of equals
            begun += before + texts[closed[name]]
        if "" in closed:
            answer = replace(answer, score_logprobs=scores)
        return _with_closed(answer, closed)

    # --- reading

    def read(self, reply: Mapping[str, Any], row: int) -> Answer:
        """What the reply to a row says; Unanswered where it is no completion."""
        self._check_model(reply)
        # 1) the parts of a completion
        try:
            choice = reply["choices"][0]
            message = choice["message"]
            finish = choice["finish_reason"]
            content = message["content"]
            refusal = message.get("refusal")
            thinking = message.get("reasoning_content") or message.get("reasoning")
            # A model that spent all its tokens on hidden reasoning has no text, and a reason.
            if not (isinstance(content, str) or (content is None and isinstance(finish, str))):
                raise TypeError("choices[0].message.content is no text")
        except (KeyError, IndexError, TypeError, AttributeError) as error:
            what = f"{type(error).__name__}: {error}"
            raise Unanswered(f"the server's answer is no chat completion ({what})") from None
        n_prompt, n_new = self._count(reply)
        # 2) what is wrong with the text
        text = content or ""
        failure = None
        if isinstance(refusal, str) and refusal:
            text = text or refusal
            failure = "refused: the server says that the judge refused"
        elif finish == "content_filter":
            failure = "the server's content filter cut the answer"
        shown = self.key.cut(text)
        sound = shown.encode("utf-8", "backslashreplace").decode()
        if sound != shown:
            failure = "the answer is no text: it holds half of a character (a lone surrogate)"
        # 3) the distribution where the verdict was written
        scores = None
        if failure is None and self.server.tokens(row) is not None:
            scores = at_verdict(sound, read_tokens(choice), self.ask.marker, self.ask.scale(row))
        if scores and -math.inf in scores.values():
            self.engine.usage[OFF_LIST] += 1
        finish = finish if finish in FINISHES else "stop"
        thought = self.key.cut(thinking) if isinstance(thinking, str) else ""
        return Answer(
            row, sound, n_prompt, n_new, scores, finish, failure=failure, reasoning=thought
        )

    def _check_model(self, reply: Mapping[str, Any]) -> None:
        """Unanswered where another model answered than was asked."""
        said = reply.get("model")
        asked = self.engine.model
        if not isinstance(said, str) or said in (asked, f"{asked}@main"):
            return
        if re.fullmatch(rf"{re.escape(asked)}-\d{{4}}-?\d\d-?\d\d", said):
            return  # a dated state of the model
        raise Unanswered(f"model {self.key.shown(said)!r} answered, and {asked!r} was asked")

    def _count(self, reply: Mapping[str, Any]) -> tuple[int, int]:
        """The tokens of the prompt and the answer, added to the engine's usage; 0 where unsaid."""
        report = reply.get("usage")
        counts = [-1, -1]
        if isinstance(report, dict):
            counts = [report.get("prompt_tokens", -1), report.get("completion_tokens", -1)]
        if not all(is_int_at_least(count, 0) and count < 2**31 for count in counts):
            counts = [0, 0]
            self.engine.usage[UNCOUNTED] += 1
        self.engine.usage["prompt tokens"] += counts[0]
        self.engine.usage["new tokens"] += counts[1]
        return counts[0], counts[1]


def _with_closed(answer: Answer, closed: Mapping[str, int]) -> Answer:
    named = {name: score for name, score in closed.items() if name}
    return replace(answer, closed=closed.get(""), closed_scores=named if named else None)


def _form(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "json_schema",
        "json_schema": {"name": "verdict", "schema": schema, "strict": True},
    }
