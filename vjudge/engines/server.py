"""The engine for a server that speaks OpenAI's chat completions: OpenAI itself, vLLM, SGLang, llama.cpp and others.

What differs from an engine on this machine, and can't be otherwise:

- The server applies its own chat template and tokenizer. Whether it reads "</s>" inside a response as a control token
  is up to it.
- Log-probabilities cover the most probable tokens only (`top_logprobs`). A score that is not among them counts as
  probability 0, and `usage.off_list` counts such verdicts.
- A network lies between. A prompt without an answer is a failure of its row that no run records, so that the same call
  asks again; the judge's own answers are recorded and never asked for twice.
"""

from __future__ import annotations

import asyncio
import json
import math
import time
import warnings
from collections.abc import Container, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlsplit

from PIL import Image

from vjudge.engines.background import Background, as_finished
from vjudge.engines.chat import CHOICES, Call, Reader, bare, clashes, messages, read_tokens, restriction
from vjudge.engines.engine import Answer, Engine, say, whole
from vjudge.engines.transport import Client, Rejected, ServerError, Unanswered, Usage, check_url, read_key
from vjudge.prompts import IMAGE, Prompt

OPENAI = "https://api.openai.com/v1"
KEY_VARIABLE = "OPENAI_API_KEY"
FORCED_TOKENS = 8  # of an answer in a score pass: room for a repeated marker
GIVE_UP = 8  # prompts in a row without an answer


class ServerEngine(Engine):
    """Ask a model behind an OpenAI-compatible server.

    Before a call's first prompt, one short request with the call's own options (and a small blank picture, where the
    prompts have pictures) finds out whether address, key, model, options, pictures and log-probabilities are accepted;
    what is not raises there.

    In score mode the marker stands as the beginning of the judge's answer. A server that can continue an unfinished
    answer is told so with `continue_fields`; elsewhere (OpenAI) the marker is a finished turn and the score is read
    from the next one. `probability_mass` shows how much of the model's probability lay on the scale.

    Args:
        model: as the server names it.
        base_url: up to and including "/v1". Plain http carries a key to this machine only. Redirects are refused.
        served_as: what a run's manifest says in place of base_url, for a server of your own whose address changes from
            one day to the next; None keeps base_url, so that only the same address continues a run.
        key_variable: the environment variable that holds the key; it is read anew for each call and kept nowhere else.
            None sends no key.
        concurrency: requests at once; an integer `batch_size` of a call overrides it.
        timeout: seconds for one request, answer included.
        retries: repetitions at most of a request that met a connection error, a time-out, or HTTP 408, 429 or 5xx.
            The pause doubles from a second to a minute, and is never shorter than Retry-After.
        max_wait: the longest Retry-After to obey, in seconds; a longer one ends the call.
        max_answer_bytes: larger answers are refused.
        ca_file: certificates (PEM) to trust instead of the system's.
        image_size: the longer side of a picture in pixels at most; None sends it as it is, as PNG.
        image_detail: OpenAI's "low" or "high".
        logprobs: True needs log-probabilities, False does without, None takes them if the server gives them. Score mode
            needs them.
        top_logprobs: how many tokens at each place the server is asked for; many allow 20 at most.
        continue_fields: what makes this server continue an answer, such as `{"add_generation_prompt": False,
            "continue_final_message": True}` for vLLM and SGLang, `{}` for llama.cpp, which always does.
        choices: in score mode, let the server restrict the answer to the scores, by the field that it knows for that:
            "structured_outputs" (vLLM), "guided_choice" (vLLM before 0.12) or "regex" (SGLang). vLLM lists
            log-probabilities of before the restriction (`--logprobs-mode raw_logprobs`, its default), and the score
            that it wrote is then always among them; with `processed_logprobs` the scale has all the probability.
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

    Source: https://platform.openai.com/docs/api-reference/chat; continue_final_message in vLLM's documentation of its
    OpenAI-compatible server.
    """

    name = "server"

    def __init__(
        self,
        model: str,
        *,
        base_url: str = OPENAI,
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
        choices: str | None = None,
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
            f"choices={choices!r}: use one of {', '.join(CHOICES)}, or None": choices is None or choices in CHOICES,
            f"price={price!r}: use two numbers from 0": price is None
            or (len(price) == 2 and all(0 <= part < math.inf for part in price)),
            f"spend_limit={spend_limit!r}: use a number from 0, with a price": spend_limit is None
            or (price is not None and spend_limit >= 0),
        }
        if faults := [fault for fault, fine in sound.items() if not fine]:
            raise ValueError("; ".join(faults))
        self.model, self.base_url, self.key_variable = model, check_url(base_url), key_variable
        self.served_as = served_as
        self.host = urlsplit(base_url).netloc
        self.concurrency, self.timeout, self.retries, self.max_wait = concurrency, timeout, retries, max_wait
        self.max_answer_bytes, self.ca_file = max_answer_bytes, ca_file
        self.image_size, self.image_detail = image_size, image_detail
        self.logprobs, self.top_logprobs = logprobs, top_logprobs
        self.continue_fields = None if continue_fields is None else dict(continue_fields)
        self.choices = choices
        self.limit_field = limit_field or ("max_completion_tokens" if self.base_url == OPENAI else "max_tokens")
        self.fields = dict(fields or {})
        self.spend_limit = spend_limit
        self.usage = Usage(price=price)
        self._tests: dict[str, bool] = {}  # a call's options -> whether log-probabilities came
        self._key()

    def __repr__(self) -> str:
        return f"ServerEngine({self.model!r}, base_url={self.base_url!r})"

    def generate(
        self,
        prompts: Sequence[Prompt],
        images: Sequence[Sequence[Any]],
        *,
        score_texts: Mapping[int, str],
        marker: str,
        max_new_tokens: int,
        temperature: float = 0.0,
        top_p: float = 1.0,
        repetition_penalty: float = 1.0,
        seeds: Sequence[int] | None = None,
        batch_size: int | str = "auto",
        wanted: Container[int] | None = None,
    ) -> Iterator[list[Answer]]:
        """Ask for a text to every prompt; see `Engine.generate`.

        Prompts are the user's turns, without the words of a conversation around them. Seeds are sent modulo 2**31
        where there is a temperature, and servers promise little about them. No more than `batch_size` requests ("auto"
        takes `concurrency`) are under way or not yet taken: whoever stops here loses those at most.

        Raises:
            ServerError: the server turned the test request down, or lacks what the options need.
            ValueError: a repetition penalty for OpenAI, whose API has none (vLLM, SGLang and others take it as a field
                of the request); log-probabilities are asked for and a score's text begins with another's.
        """
        sent: dict[str, Any] = {self.limit_field: max_new_tokens, "temperature": temperature}
        if repetition_penalty != 1:
            if self.base_url == OPENAI:
                raise ValueError(f"repetition_penalty={repetition_penalty!r}: OpenAI's API has none; vLLM's server has")
            sent["repetition_penalty"] = repetition_penalty
        if temperature > 0:
            sent |= ({"top_p": top_p} if top_p < 1 else {}) | {"seed": 0}
        unclear = clashes(score_texts)
        if unclear and self.logprobs:
            raise ValueError(unclear)
        if unclear and self.logprobs is None:
            warnings.warn(f"{unclear}; expected_score stays missing", RuntimeWarning, stacklevel=2)
        read = bool(score_texts) and not unclear and self.logprobs is not False
        reader = Reader(marker, bare(score_texts), forced=False, logprobs=read)
        return self._run(prompts, images, Call(sent, reader, _width(batch_size, self.concurrency)), seeds, wanted)

    def score(
        self,
        prompts: Sequence[Prompt],
        images: Sequence[Sequence[Any]],
        *,
        score_texts: Mapping[int, str],
        marker: str,
        batch_size: int | str = "auto",
        wanted: Container[int] | None = None,
    ) -> Iterator[list[Answer]]:
        """Read the scores' distribution; see `Engine.score`. The tokens of the short answer are in `n_new_tokens`.

        Raises:
            ServerError: as in `generate`.
            ValueError: the engine was made with logprobs=False, or a score's text begins with another's.
        """
        unclear = clashes(score_texts)
        if not score_texts:
            raise ValueError('this template writes its verdict in no fixed place, which mode="score" needs')
        if unclear or self.logprobs is False:
            raise ValueError(unclear or 'mode="score" reads log-probabilities, and this judge has logprobs=False')
        sent = {self.limit_field: FORCED_TOKENS, "temperature": 0.0, **restriction(self.choices, score_texts)}
        reader = Reader(marker, bare(score_texts), forced=True, logprobs=True)
        return self._run(prompts, images, Call(sent, reader, _width(batch_size, self.concurrency)), None, wanted)

    def identity(self) -> dict[str, Any]:
        return {
            "engine": self.name,
            "base_url": self.served_as or self.base_url,
            "model": self.model,
            "request": {
                "image_size": self.image_size,
                "image_detail": self.image_detail,
                "logprobs": self.logprobs,
                "top_logprobs": self.top_logprobs,
                "continue_fields": self.continue_fields,
                "choices": self.choices,
                "fields": self.fields,
            },
            "versions": {},
        }

    def _run(
        self,
        prompts: Sequence[Prompt],
        images: Sequence[Sequence[Any]],
        call: Call,
        seeds: Sequence[int] | None,
        wanted: Container[int] | None,
    ) -> Iterator[list[Answer]]:
        """Test the server, then ask for every wanted row."""
        indices = [index for index in range(len(prompts)) if wanted is None or index in wanted]
        if not indices:
            return iter(())
        call = self._tested(call, pictured=any(prompts[index].n_images for index in indices))

        def body(index: int) -> dict[str, Any]:
            drawn = {"seed": (index if seeds is None else seeds[index]) % 2**31} if "seed" in call.sent else {}
            return self._body(prompts[index], images[index], call, drawn)

        return self._answers(indices, body, call)

    def _answers(self, indices: Sequence[int], body: Any, call: Call) -> Iterator[list[Answer]]:
        """Ask for each row, and say at the end what it came to."""
        client = self._client(call.width)
        preparing = ThreadPoolExecutor(1)  # one at a time: a caller's pictures may be lazy, and those share state
        silent = unasked = 0

        async def ask(index: int) -> Answer:
            nonlocal silent, unasked
            try:
                if client.stopped is None:
                    content = await asyncio.get_running_loop().run_in_executor(preparing, body, index)
                    if self.spend_limit is not None and self.usage.spend >= self.spend_limit:
                        client.stop(f"the spend limit of {self.spend_limit:g} is reached")
                if client.stopped is not None:
                    unasked += 1
                    return Answer(index, failure=f"not asked: {client.stopped}", transient=True)
                started = time.perf_counter()
                answer = call.reader.answer(
                    index, await client.post(content), time.perf_counter() - started, self.usage
                )
            except Unanswered as error:
                silent += 1
                if silent >= GIVE_UP:
                    client.stop(f"{silent} prompts in a row got no answer, the last for: {error}")
                return Answer(index, failure=str(error), transient=True)
            except (Rejected, ValueError, OSError) as error:  # the server turned it down; a picture is broken
                answer = Answer(index, failure=str(error))
            silent = 0
            return answer

        before = self.usage.requests
        try:
            yield from as_finished(ask, indices, width=call.width, around=client)
        finally:
            preparing.shutdown(wait=False, cancel_futures=True)
            if self.usage.requests > before:
                say(f"{self.model} at {self.host}, all told: {self.usage}")
            if client.stopped is not None:
                warnings.warn(
                    f"{self.model} at {self.host}: {client.stopped}; {unasked} prompts were not asked. The same call"
                    " asks for what is missing; give it an `out` folder to keep what is there",
                    RuntimeWarning,
                    stacklevel=2,
                )

    def _tested(self, call: Call, *, pictured: bool) -> Call:
        """Try a call's options on one short request; the call as the server can serve it.

        Raises:
            ServerError: the request was turned down, or log-probabilities are needed and did not come.
        """
        needed = call.reader.forced or self.logprobs is True
        known = json.dumps([call.sent, call.reader.forced, call.reader.logprobs, pictured], sort_keys=True)
        if known not in self._tests:
            try:
                given = self._test(call, pictured)
            except _Refused as refusal:
                if needed or not call.reader.logprobs:
                    raise ServerError(str(refusal)) from None
                # Some models turn down a request for log-probabilities; anything else amiss shows again without them.
                try:
                    given = self._test(call.without_logprobs(), pictured)
                except _Refused as refusal:
                    raise ServerError(str(refusal)) from None
            if needed and not given:
                raise ServerError(
                    f"{self.model} at {self.host} gives no log-probabilities (a short test request brought none), which"
                    f" {'score mode' if call.reader.forced else 'logprobs=True'} needs; use"
                    ' mode="feedback" with logprobs=None, or a server that offers them'
                )
            if call.reader.logprobs and not given:
                say(f"{self.model} at {self.host} gives no log-probabilities: expected_score stays missing")
            self._tests[known] = given
        return call if self._tests[known] else call.without_logprobs()

    def _test(self, call: Call, pictured: bool) -> bool:
        """Send the short request; whether log-probabilities came."""
        prompt = Prompt((*[IMAGE] * pictured, f"Answer with the word yes.{call.marker or ''}"))
        blank = [Image.new("RGB", (64, 64), "white")] * pictured
        body = self._body(prompt, blank, call)
        client = self._client(1)

        async def ask() -> dict[str, Any]:
            async with client:
                return await client.post(body)

        try:
            with Background() as background:
                reply = background.submit(ask()).result()
            call.without_logprobs().reader.answer(0, reply, 0.0, self.usage)
        except (Rejected, Unanswered) as error:
            refused = isinstance(error, Rejected) or (client.stopped or "").startswith("HTTP 403")
            raise (_Refused if refused else ServerError)(
                f"{self.model} at {self.host} did not answer a short test request: {error}"
            ) from None
        return read_tokens(reply["choices"][0]) is not None

    def _body(
        self, prompt: Prompt, sources: Sequence[Any], call: Call, drawn: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """One request."""
        options: dict[str, Any] = {
            "marker": call.marker,
            "image_size": self.image_size,
            "image_detail": self.image_detail,
        }
        said = messages(prompt, sources, **options)
        body = {"model": self.model, "messages": said, **call.sent, **(drawn or {})}
        if call.reader.forced:
            body |= self.continue_fields or {}
        if call.reader.logprobs:
            body |= {"logprobs": True, "top_logprobs": self.top_logprobs}
        return {name: value for name, value in (body | self.fields).items() if value is not None}

    def _key(self) -> str | None:
        """The key as the environment has it now."""
        needed = self.key_variable is not None and (self.base_url == OPENAI or self.key_variable != KEY_VARIABLE)
        return read_key(self.base_url, self.key_variable, needed=needed)

    def _client(self, connections: int) -> Client:
        return Client(
            f"{self.base_url}/chat/completions",
            key=self._key(),
            timeout=self.timeout,
            retries=self.retries,
            max_wait=self.max_wait,
            max_bytes=self.max_answer_bytes,
            ca_file=self.ca_file,
            connections=connections,
            usage=self.usage,
        )


class _Refused(ServerError):
    """The server understood the test request and turned it down."""


def _width(batch_size: int | str, concurrency: int) -> int:
    return batch_size if isinstance(batch_size, int) else concurrency
