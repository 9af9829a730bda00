"""The engine for a server that speaks OpenAI's protocol: OpenAI itself, vLLM, SGLang, llama.cpp and others.

vLLM tells the tokens of a conversation (`/tokenize`), so before a call's first prompt they are compared, token for
token, with the judge's own wording, also up to the place that score mode reads after; where the server's chat template
writes another prompt, the call is refused. Where a server shows no tokens, a line says that nothing was compared, and
score mode is refused. The key goes into one header, and is cut out of everything that a server says.

Not as on this machine: the server's tokenizer may read "</s>" inside a response as a control token; where a server
can't be asked for the scores' tokens, a score outside the most probable ones counts as probability 0 (the closing line
counts such verdicts); and no run records a prompt without an answer, so that the same call asks again.

Source: https://platform.openai.com/docs/api-reference/chat; docs.vllm.ai, "OpenAI-Compatible Server", for the fields
that continue an answer and name the tokens whose log-probabilities are wanted.
"""

from __future__ import annotations

import base64
import itertools
import json
import math
import os
import random
import re
import threading
import time
import warnings
from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import replace
from typing import Any
from urllib.parse import quote, urlsplit

import httpx
from PIL import Image

from vjudge.engines.engine import Answer, Ask, Engine, Quantity, check_images, say, whole
from vjudge.engines.tokens import Scale, verdict_step
from vjudge.images import data_uri, picture
from vjudge.prompts import IMAGE, Control, Conversation, Prompt

OPENAI = "https://api.openai.com/v1"
KEY_NAME = "OPENAI_API_KEY"
RETRIED = frozenset({408, 429, *range(500, 600)})
HOPELESS = frozenset({401, 402, 403, 404, 405, 407, *range(300, 400)})  # the next prompt would fare no better
RETRIES = 6
FIRST_BACKOFF, LONGEST_BACKOFF = 1.0, 60.0  # seconds; half of it at least, at random, so that requests spread
LONGEST_WAIT = 600.0  # seconds of a Retry-After; a longer one ends the call
MOST_BYTES = 1 << 24  # of an answer
MOST_TOKENS = 2**31 - 1  # a larger count is no count
SHOWN = 300  # characters of a server's own words in a message
WINDOW = 8  # letters and digits of a key in a row that are cut out
HEADERS = {"Accept": "application/json", "Accept-Encoding": "identity", "Content-Type": "application/json"}
AT_ONCE = 8  # requests under batch_size="auto"
GIVE_UP = 8  # prompts in a row without an answer
LISTED = 20  # tokens at each place whose log-probabilities are requested; many servers allow no more
PROBE = "Answer with the word yes.\n\n###Ünit:  1 + 1\n\n###Feedback:"  # what templates change shows in it
UNCOUNTED = "answers without a token count, which are missing from the counts and the price"
OFF_LIST = "answers with a score outside the most probable tokens, counted as 0"

Token = tuple[str, dict[str, float]]  # text, or "token_id:5" where asked for -> log-probabilities, its own among them


class ServerError(RuntimeError):
    """The server can't be used as asked; the message says why and what to do."""


class Unanswered(Exception):
    """One request got no answer, for a reason that may pass."""


class Rejected(Unanswered):
    """The server turned one request down, and would do so again."""


class Key:
    """A server's key, and what looks like it: eight of its letters and digits in a row, whatever stands between them.

    Also in base64, in hexadecimal digits and backwards. A key with fewer is a placeholder such as "EMPTY".
    """

    def __init__(self, text: str = "") -> None:
        self.headers, raw = {"Authorization": f"Bearer {text}"} if text else {}, text.encode()  # of a request
        shapes = [text, quote(raw, safe=""), raw.hex(), text[::-1]]
        shapes += [base64.b64encode(b"\0" * shift + raw).decode() for shift in range(3)]
        plain = [re.sub("[^0-9A-Za-z]", "", shape).lower() for shape in shapes]
        plain = plain if len(plain[0]) >= WINDOW else []
        self._windows = {one[at : at + WINDOW] for one in plain for at in range(len(one) - WINDOW + 1)}

    def cut(self, text: str) -> str:
        """The text with "[key]" where parts of the key stood.

        >>> Key("sk-0123-4567-89ab").cut("no: s k 0 1 2 3 4 5 6 7, sorry")
        'no: [key], sorry'
        """
        places = [match.start() for match in re.finditer("[0-9A-Za-z]", text)] if self._windows else []
        plain, secret = "".join(text[at] for at in places).lower(), set[int]()
        for at in range(len(plain) - WINDOW + 1):
            if plain[at : at + WINDOW] in self._windows:
                secret.update(range(places[at], places[at + WINDOW - 1] + 1))
        runs = itertools.groupby(range(len(text)), secret.__contains__)
        return "".join("[key]" if hidden else "".join(text[at] for at in run) for hidden, run in runs)


def check_url(base_url: str) -> str:
    """A base URL without its last slash; ValueError for no http(s) URL, or one that could hold a key."""
    parts = urlsplit(base_url)
    secret = "@" in parts.netloc or parts.query or parts.fragment
    if parts.scheme not in ("http", "https") or not parts.hostname or secret:
        raise ValueError(
            f'base_url for {parts.hostname!r}: use one like "https://HOST/v1", without user, password or query, since a'
            " run's manifest keeps it; put a key into an environment variable and name that with key_variable="
        )
    return base_url.rstrip("/")


def is_loopback(base_url: str) -> bool:
    """Whether an address is this machine: requests to it never take a proxy."""
    return bool(re.fullmatch(r"localhost|::1|127(\.[0-9]{1,3}){3}", urlsplit(base_url).hostname or ""))


def read_key(base_url: str, variable: str | None) -> Key:
    """The key in an environment variable; ValueError: missing, not fit for a header, or to be sent in the clear."""
    key = os.environ.get(variable, "").strip() if variable else ""
    if not key and variable and (base_url == OPENAI or variable != KEY_NAME):
        raise ValueError(f"the environment variable {variable} is not set; put the server's key there")
    if not re.fullmatch(r"[\x21-\x7e]*", key):
        raise ValueError(f"the key in {variable} holds spaces or other characters that no key has; set it again")
    if key and urlsplit(base_url).scheme != "https" and not is_loopback(base_url):
        host = urlsplit(base_url).hostname
        raise ValueError(f"the key in {variable} would go to {host} in the clear; use https, or key_variable=None")
    return Key(key)


class Client:
    """Requests to one server over a pool of connections, from any number of threads.

    `stopped` is None, or why no further request is sent; `lock` is for whoever changes `usage`.
    """

    def __init__(self, base_url: str, key: Key, usage: Counter[str], timeout: float) -> None:
        self.base_url, self.key, self.usage, self.timeout = base_url, key, usage, timeout
        self.stopped: str | None = None
        self._stop, self.lock = threading.Event(), threading.Lock()
        self._reached = False  # whether anything at this address ever answered
        self._http = httpx.Client(
            headers=HEADERS | key.headers,
            timeout=httpx.Timeout(timeout, connect=min(timeout, 30.0), pool=None),
            trust_env=not is_loopback(base_url),  # where the environment's proxies are, and SSL_CERT_FILE
            verify=base_url.startswith("https:"),  # http has none, and reading the certificates takes long
        )

    def stop(self, reason: str) -> None:
        """Send nothing more; the first reason stays."""
        self.stopped = self.stopped or reason
        self._stop.set()

    def close(self) -> None:
        """End the call: requests under way do not repeat themselves."""
        self.stop("the call has ended")
        self._http.close()

    def post(self, body: Mapping[str, Any], *, look: bool = False) -> dict[str, Any]:
        """Ask for a chat completion, or with `look` for tokens, and return the JSON object that answers.

        A look is not counted, is repeated once at most and never ends a call. Rejected: a status that speaks of this
        request. Unanswered: none after all repetitions, or no JSON object.
        """
        url = self.base_url.removesuffix("/v1") + "/tokenize" if look else f"{self.base_url}/chat/completions"
        content, repetitions, pause = json.dumps(body).encode(), 1 if look else RETRIES, 0.0
        for attempt in itertools.count():
            if self._stop.wait(pause):
                break
            with self.lock:
                self.usage.update([] if look else ["requests", *["repetitions"] * bool(attempt)])
            pause = min(LONGEST_BACKOFF, FIRST_BACKOFF * 2.0**attempt) * random.uniform(0.5, 1.0)
            try:
                response, answer = self._once(url, content)
                self._reached = True
                if response.status_code not in RETRIED:
                    return self._read(response, answer, look)
                reason, after = f"HTTP {response.status_code}", response.headers.get("retry-after", "")
                pause = max(pause, float(after) if re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", after) else 0)
                if b"insufficient_quota" in answer:
                    self.stop(f"the account's quota is used up ({reason})")
                elif pause > LONGEST_WAIT:
                    self.stop(f"the server asks to wait {pause:g} s, longer than {LONGEST_WAIT:g} s ({reason})")
            except httpx.TimeoutException:
                reason = "time-out"
            except httpx.TransportError as error:
                reason = f"{type(error).__name__} ({self.shown(str(error))})"
                if isinstance(error, httpx.ConnectError) and not self._reached:
                    repetitions = 1  # a wrong address gets no better
            if attempt >= repetitions and not self.stopped:
                raise Unanswered(f"{reason}, in each of {attempt + 1} attempts")
        raise Unanswered(self.stopped)

    def _once(self, url: str, content: bytes) -> tuple[httpx.Response, bytes]:
        """The response and its body."""
        until, answer = time.monotonic() + self.timeout, bytearray()
        with self._http.stream("POST", url, content=content) as response:
            for chunk in response.iter_raw():  # undecoded: a few compressed bytes could unfold to any size
                answer += chunk
                if len(answer) > MOST_BYTES:
                    raise Unanswered(f"the server's answer is larger than {MOST_BYTES} bytes")
                if time.monotonic() > until:
                    raise httpx.ReadTimeout("byte by byte")
            return response, bytes(answer)

    def _read(self, response: httpx.Response, answer: bytes, look: bool) -> dict[str, Any]:
        """The JSON object of a final answer."""
        status = response.status_code
        try:
            reply = json.loads(answer)
        except (ValueError, RecursionError):
            reply = None  # said below, after what the status says
        error = reply.get("error", reply) if isinstance(reply, dict) else reply
        message = error.get("message", error) if isinstance(error, dict) else error
        words = self.shown(message if isinstance(message, str) else answer[: 8 * SHOWN].decode(errors="replace"))
        if 300 <= status < 400:
            words = f"it redirects to {self.shown(response.headers.get('location', 'nowhere'))}; correct base_url"
        if status in HOPELESS and not look:
            self.stop(f"HTTP {status}: {words}")
            raise Unanswered(self.stopped)
        if status != 200:
            raise Rejected(f"HTTP {status}: {words}")
        if not isinstance(reply, dict):
            kind = self.shown(response.headers.get("content-type", "no content type"))
            raise Unanswered(f"the server's answer is not JSON as expected ({kind}): {words!r}")
        if reply.get("error"):
            raise Unanswered(f"the server answered with an error: {words}")
        return reply

    def shown(self, text: str) -> str:
        """A server's words made fit to print: short, on one line, without the key."""
        text = self.key.cut(text[: 8 * SHOWN])
        text = " ".join("".join(c if c.isprintable() else " " for c in text).split())
        return text if len(text) <= SHOWN else text[:SHOWN] + "..."


class ServerEngine(Engine):
    """Ask a model behind an OpenAI-compatible server; a short request first tries a call's options.

    Args:
        model: as the server names it.
        base_url: up to and including "/v1". Plain http carries a key to this machine only, and never takes a proxy
            there. Redirects are refused. SSL_CERT_FILE names certificates to trust elsewhere.
        conversation: the words around a turn that the judge was trained with, which the server's tokens are checked
            against. None takes the server's own chat template as right.
        key_variable: the environment variable that holds the key, read anew for each call; None sends no key.
        timeout: seconds for one request, answer included. A time-out, a connection error and HTTP 408, 429 and 5xx are
            repeated six times at most, after pauses that double or Retry-After; an answer that was given never is.
        image_size: the longer side of a picture in pixels at most; None sends it as it is, as PNG.
        fields: further fields of each request, such as `{"reasoning_effort": "low"}`; None as a value leaves a field
            out. A run's manifest keeps them: no secrets.
        price: for a million prompt tokens and a million new tokens, in any currency.
        spend_limit: in that currency, for this engine's lifetime; no prompt is sent beyond it (those under way end).

    Attributes:
        usage: a Counter of what all requests came to: "requests" (repetitions and test requests among them), "prompt
            tokens" and "new tokens" as the server reports them, "repetitions" and "answers ...".

    Raises ValueError: an unsound address; a key that is missing, or would go over a network in the clear.

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
        image_size: int | None = None,
        fields: Mapping[str, Any] | None = None,
        price: tuple[float, float] | None = None,
        spend_limit: float | None = None,
    ) -> None:
        if spend_limit is not None and price is None:
            raise ValueError(f"spend_limit={spend_limit!r}: give a price= too")
        self.model, self.base_url, self.key_variable, self.timeout = model, check_url(base_url), key_variable, timeout
        self.conversation = conversation if self.base_url != OPENAI else None
        self.image_size, self.fields = image_size, dict(fields or {})
        self.price, self.spend_limit, self.usage = price, spend_limit, Counter[str]()
        read_key(self.base_url, key_variable)  # refuses one that is missing now

    def __repr__(self) -> str:
        return f"ServerEngine({self.model!r}, base_url={self.base_url!r})"

    def answer(
        self, prompts: Sequence[Prompt], images: Sequence[Sequence[Any]], ask: Ask, wanted: Container[int] | None = None
    ) -> Iterator[list[Answer]]:
        """Ask for every prompt; see `Engine.answer`. `batch_size` is how many requests are under way at once.

        ServerError: the server lacks what the options need, or writes another prompt than the judge's own. ValueError:
        also a score pass without a place for the verdict, or whose scores take several of this server's tokens.
        """
        faults, rows = ask.check(), [row for row in range(len(prompts)) if wanted is None or row in wanted]
        if ask.scores and not (ask.marker and all(ask.scale(row) for row in rows)):
            faults.append('this template writes its verdict in no fixed place, which mode="score" needs')
        if faults:
            raise ValueError("; ".join(faults))
        jobs = [(row, turn(prompts[row], ask), images[row]) for row in rows]
        return ServerCall(self, jobs, ask).answers() if rows else iter(())

    def plan(self, prompts: Sequence[Prompt], images: Sequence[Sequence[Any]], ask: Ask) -> list[Quantity]:
        """What `answer` would send and cost; nothing is sent. Arguments as in `Engine.plan`."""
        lines = super().plan(prompts, images, ask)
        cost = self.cost({line.quantity: line.planned for line in lines})
        why = "every answer at its limit; the test request, repetitions and pictures come on top"
        cost_line = Quantity("cost", cost, "currency of price=", why if self.price else "no price= was given")
        return [Quantity("requests", len(prompts), "", "and a short test request"), *lines, cost_line]

    def identity(self) -> dict[str, Any]:
        """See `Engine.identity`."""
        conversation = self.conversation and self.conversation.name
        request = {"conversation": conversation, "image_size": self.image_size, "fields": self.fields}
        return {"engine": self.name, "base_url": self.base_url, "model": self.model, "request": request, "versions": {}}

    def cost(self, tokens: Mapping[str, float]) -> float:
        """The price of "prompt tokens" and "new tokens"; NaN without a price."""
        prompt, new = self.price or (math.nan, math.nan)
        return (tokens["prompt tokens"] * prompt + tokens["new tokens"] * new) / 1e6


class ServerCall:
    """One call of the server engine, asked as the server's `/tokenize` and one short request show that it can be.

    `context`: the model's, 0 where the server shows no tokens; `begun`: how an answer begins in a score pass; `tokens`:
    scale that is read -> score -> token, empty where the server shows none; `sent`: fields of each request.
    """

    def __init__(self, engine: ServerEngine, jobs: Sequence[tuple[int, Prompt, Sequence[Any]]], ask: Ask) -> None:
        key = read_key(engine.base_url, engine.key_variable)
        self.engine, self.jobs, self.ask, self.context, self.begun = engine, jobs, ask, 0, ""
        self.client = Client(engine.base_url, key, engine.usage, engine.timeout)
        self.uris: dict[str, str] = {}  # of the latest prompt's pictures: neighbours share them
        probes = list(dict.fromkeys(probe(prompt) for _, prompt, _ in jobs))
        why = "it has no /tokenize that names max_model_len"
        try:
            context = None if engine.base_url == OPENAI else self._tokenized({"prompt": PROBE}).get("max_model_len")
            self.context = context if isinstance(context, int) and whole(context, 1) else 0
        except Unanswered as error:
            why = f"/tokenize: {error}"
        lack = f"{engine!r} does not show its tokens ({why}): "
        if not self.context and ask.scores:
            lack += "whether it continues an answer that is begun, which score mode needs, is not known"
            raise ServerError(f'{lack}; use mode="feedback", or a server that has /tokenize, such as vLLM\'s')
        if not self.context and engine.conversation is not None:
            say(f"{lack}whether its prompt is the judge's own wording, token for token, is not checked")
        try:
            scales = dict.fromkeys(tuple(ask.scale(row).items()) for row, _, _ in jobs)
            reads = {scale: self._scale_tokens(dict(scale)) for scale in scales if scale}
            self.tokens = {scale: tokens for scale, tokens in reads.items() if tokens is not None}
            self.sent: Mapping[str, Any] = self._fields(probes)
            scale = next(iter(self.tokens), ())
            _, written = self._completion(self.client.post(self._request(probes[-1], _blanks(probes[-1]), 0, scale)))
        except Unanswered as error:
            remedy = "correct base_url where nothing listens; fields= changes, or by None leaves out, what is sent"
            raise ServerError(f"{engine!r} did not answer a short test request: {error}; {remedy}") from None
        if ask.scores and not written:
            raise ServerError(f'{engine!r} gives no log-probabilities, which score mode needs; use mode="feedback"')

    def answers(self) -> Iterator[list[Answer]]:
        """Ask for each row, and say at the end what it came to."""
        engine, client, usage = self.engine, self.client, self.engine.usage
        width = self.ask.batch_size if isinstance(self.ask.batch_size, int) else AT_ONCE
        # Threads, since a notebook's event loop is running already.
        pool, remaining, running = ThreadPoolExecutor(width), iter(self.jobs), set[Future[Answer]]()
        silent = missing = 0
        try:
            while True:  # the next one starts only when the caller has come back for more after an answer
                while len(running) < width and (job := next(remaining, None)) is not None:
                    running.add(pool.submit(self._answer, *job))
                if not running:
                    return
                done, running = wait(running, return_when=FIRST_COMPLETED)
                answers = [future.result() for future in done]
                for answer in answers:
                    missing += answer.transient
                    silent = silent + 1 if answer.transient else 0
                    if silent == GIVE_UP:
                        client.stop(f"{silent} prompts in a row got no answer, the last for: {answer.failure}")
                yield answers
        finally:
            counts = [f"{count} {what}" for what, count in list(usage.items())]  # a thread may still count
            spend = [f"{engine.cost(usage):.4f} at the given price"] if engine.price else []
            say(f"{engine!r}, all told: {'; '.join(counts + spend)}")
            if client.stopped is not None:
                stop = f"{engine!r}: {client.stopped}; {missing} prompts have no answer. The same call asks for what is"
                stop += " missing; give it an `out` folder to keep what is there"
                warnings.warn(stop, RuntimeWarning, stacklevel=2)
            client.close()
            pool.shutdown(wait=False, cancel_futures=True)  # whoever stops waits for no answer

    def _answer(self, row: int, prompt: Prompt, sources: Sequence[Any]) -> Answer:
        """Ask for a row."""
        started, engine, client = time.perf_counter(), self.engine, self.client
        try:
            with client.lock:
                if engine.spend_limit is not None and engine.cost(engine.usage) >= engine.spend_limit:
                    client.stop(f"the spend limit of {engine.spend_limit:g} is reached")
                if client.stopped:
                    raise Unanswered(f"not asked: {client.stopped}")
                shown, held, size = list(map(picture, sources)), self.uris, engine.image_size
                self.uris = {one.key: held.get(one.key) or data_uri(one.open(), size=size) for one in shown}
                uris = [self.uris[one.key] for one in shown]
            reply = client.post(self._request(prompt, uris, row, tuple(self.ask.scale(row).items())))
            with client.lock:
                return replace(self.read(reply, row), seconds=time.perf_counter() - started)
        except (Unanswered, ValueError, OSError) as error:  # ValueError, OSError: a picture is broken
            passing = isinstance(error, Unanswered) and not isinstance(error, Rejected)
            return Answer(row, failure=str(error), transient=passing)

    def _request(self, prompt: Prompt, uris: Sequence[str], row: int, scale: tuple[Any, ...]) -> dict[str, Any]:
        """A request for a row, or for what stands in its place."""
        body = {**messages(prompt, uris, self.begun), **self.sent}
        body |= {"seed": self.ask.seed(row) % 2**31} if self.ask.temperature > 0 else {}
        if (tokens := self.tokens.get(scale)) is not None:
            body |= {"logprobs": True, "top_logprobs": LISTED}
            body |= {"logprob_token_ids": sorted(tokens.values())} if tokens else {}
            body |= {"return_tokens_as_token_ids": True} if self.ask.scores else {}
        return {name: value for name, value in {**body, **self.engine.fields}.items() if value is not None}

    def read(self, reply: Mapping[str, Any], row: int) -> Answer:
        """What the reply to a row says; Unanswered where it is no completion."""
        answer, written = self._completion(reply)
        scale, scores, failure = self.ask.scale(row), None, answer.failure
        if (tokens := self.tokens.get(tuple(scale.items()))) is not None and failure is None:
            if not self.ask.scores:
                scores = at_verdict(answer.text, written, self.ask.marker, scale)
            elif not written:
                failure = "the server gave no log-probabilities with this answer"
            else:
                scores = {score: written[0][1].get(f"token_id:{id}", -math.inf) for score, id in tokens.items()}
                if max(scores.values()) == -math.inf:
                    failure = f"no score of the scale among the most probable tokens; it wrote {answer.text[:40]!r}"
                    scores = None
        self.client.usage.update([OFF_LIST] if scores and -math.inf in scores.values() else [])
        return replace(answer, index=row, score_logprobs=scores, failure=failure)

    def _completion(self, reply: Mapping[str, Any]) -> tuple[Answer, list[Token]]:
        """What a reply says as the answer to row 0, and its tokens; Unanswered where it is no completion."""
        try:
            choice = reply["choices"][0]
            content, refusal = choice["message"]["content"], choice["message"].get("refusal")
            finish = choice["finish_reason"]
            # A model that spent its whole budget on hidden reasoning has no text, and a reason to stop.
            if not (isinstance(content, str) or (content is None and isinstance(finish, str))):
                raise TypeError("choices[0].message.content is no text")
        except (KeyError, IndexError, TypeError, AttributeError) as error:
            raise Unanswered(f"the server's answer is no chat completion ({type(error).__name__}: {error})") from None
        report, usage = reply.get("usage"), self.client.usage
        report = report if isinstance(report, dict) else {}
        n_prompt, n_new = (report.get(name, -1) for name in ("prompt_tokens", "completion_tokens"))
        if not all(whole(count, 0) and count <= MOST_TOKENS for count in (n_prompt, n_new)):
            n_prompt = n_new = 0
            usage[UNCOUNTED] += 1
        usage.update({"prompt tokens": n_prompt, "new tokens": n_new})
        content, failure = content or "", None
        if isinstance(refusal, str) and refusal:
            failure, content = "the judge refused", content or refusal
        elif finish == "content_filter":
            failure = "the server's content filter cut the answer"
        text = self.client.key.cut(content)
        if (sound := text.encode("utf-8", "backslashreplace").decode()) != text:
            failure, text = "the answer is no text: it holds half of a character (a lone surrogate)", sound
        return Answer(0, text, n_prompt, n_new, stopped=finish != "length", failure=failure), read_tokens(choice)

    def _scale_tokens(self, texts: Mapping[int, str]) -> Mapping[int, int] | None:
        """Each score's token after the marker; None where a distribution can't be read, and none has to be."""
        if not self.context:  # the first token may not tell "1" from "10"
            own = [text.strip() for text in texts.values()]
            return None if any(b.startswith(a) for a in own for b in own if a != b) else {}
        marker = self.ask.marker
        scale = Scale.read(marker, texts, self._encoded)
        tokens = scale.tokens if len(scale.tokens) <= LISTED else {}
        if not self.ask.scores:
            return tokens or None
        # What stands between the marker and those tokens, such as a blank that is a token of its own.
        score, text = next(iter(texts.items()))
        begins = [marker + text[:end] for end in range(len(text))]
        whole_text = self._encoded(f".\n{marker}{text}")
        before = whole_text[: len(whole_text) - len(scale.paths[score])]
        begun = [begin for begin in begins if self._encoded(f".\n{begin}") == before]
        if not (tokens and begun) or self.begun not in ("", begun[0]):
            raise ValueError(f'no single token of this server tells {sorted(texts)} apart; use mode="feedback"')
        self.begun = begun[0]
        return tokens

    def _fields(self, probes: Sequence[Prompt]) -> dict[str, Any]:
        """The fields of each request, by which the server writes the judge's own prompts; ServerError: none do."""
        ask = self.ask
        limit = 1 if ask.scores else ask.max_new_tokens
        sent: dict[str, Any] = {"model": self.engine.model, "temperature": ask.temperature}
        sent |= {"top_p": ask.top_p} if ask.temperature > 0 else {}
        if self.context or ask.repetition_penalty != 1:
            sent["repetition_penalty"] = ask.repetition_penalty
        if self.context:  # where a request is silent, a checkpoint's own settings would hold
            sent |= {"skip_special_tokens": False} | ({"top_k": -1, "min_p": 0.0} if ask.temperature > 0 else {})
        if not self.context or limit < self.context:
            sent["max_completion_tokens" if self.engine.base_url == OPENAI else "max_tokens"] = limit
        if not self.context or not (ask.scores or self.engine.conversation):
            return sent
        faults: list[str] = []
        for way in ({}, {"add_special_tokens": True}):
            try:
                differences = [fault for probe in probes if (fault := self._difference(way, probe))]
            except Rejected as error:
                differences = [str(error)]
            if not differences:
                return sent | way
            faults += differences
        end = " and the beginning of an answer after it" if ask.scores else ""
        raise ServerError(
            f"{self.engine!r} can't be made to write the judge's own prompt{end}: {'; '.join(dict.fromkeys(faults))}."
            " Start it with the judge's own chat template (--chat-template); conversation=None asks in the server's own"
            " words"
        )

    def _difference(self, way: Mapping[str, Any], probe: Prompt) -> str:
        """What is not alike in the server's tokens of a prompt, an image a run of one token, and the judge's own."""
        tokens, at = self._tokenized({**messages(probe, _blanks(probe), self.begun), **way})["tokens"], 0
        own, conversation = list[int | None](), self.engine.conversation
        if conversation is None:  # what the server writes itself is right
            own += self._tokenized({**messages(probe, _blanks(probe)), **way})["tokens"] + self._encoded(self.begun)
        else:
            own += self._tokenized({"prompt": "", "add_special_tokens": True})["tokens"]
            texts = [part for part in probe.parts if part is not IMAGE]
            plain = len(texts) == 1 and probe.parts[-1] is not IMAGE  # its images stand first
            words = conversation.wrap(str(texts[0]), probe.n_images) if plain else conversation.ask(probe.parts)
            for part in words.append(conversation.reply + self.begun if self.begun else "").parts:
                text = part.text * part.times if isinstance(part, Control) else part
                own += self._encoded(text) if isinstance(text, str) else [None]
                if isinstance(part, Control) and len(self._encoded(part.text * part.times)) != part.times:
                    return f"the served vocabulary has no control token {part.text!r}, which the judge's has"
        for token in own:
            if token is None:
                at = next((end for end in range(at, len(tokens)) if tokens[end] != tokens[at]), len(tokens))
            elif tokens[at : at + 1] == [token]:
                at += 1
            else:
                return f"its tokens are not the judge's own from token {at + 1} of {len(tokens)} on"
        return f"it writes {len(tokens) - at} more tokens after the end of the judge's own" if at < len(tokens) else ""

    def _encoded(self, text: str) -> list[int]:
        """The tokens of a text, without those that the tokenizer adds by itself."""
        ids: list[int] = self._tokenized({"prompt": text, "add_special_tokens": False})["tokens"] if text else []
        return ids

    def _tokenized(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """What the server says of a request's prompt, its "tokens" among it; Rejected where there are none."""
        reply = self.client.post({"model": self.engine.model, **request}, look=True)
        ids = reply.get("tokens")
        if not isinstance(ids, list) or not all(whole(id, 0) for id in ids) or not (ids or request.get("prompt") == ""):
            raise Rejected("the server's /tokenize gives no tokens")
        return reply


def turn(prompt: Prompt, ask: Ask) -> Prompt:
    """The user's turn: a score pass's prompt without the marker that it ends in."""
    if not ask.scores:
        return prompt
    *parts, end = prompt.parts
    return replace(prompt, parts=(*parts, str(end).removesuffix(ask.marker)))


def probe(prompt: Prompt) -> Prompt:
    """A short prompt with all that a chat template may write differently: images, system, blanks at the ends."""
    parts = (re.sub(r"(?s)\S.*\S|\S", PROBE, part) if isinstance(part, str) else part for part in prompt.parts)
    return Prompt(tuple(parts), prompt.system)


def messages(prompt: Prompt, uris: Sequence[str], begun: str = "") -> dict[str, Any]:
    """The part of a request that holds a turn, its pictures, and how the answer begins."""
    check_images(prompt, uris)
    turns, pictures = prompt.messages(), ({"type": "image_url", "image_url": {"url": uri}} for uri in uris)
    for message in turns:
        content = [next(pictures) if part["type"] == "image" else part for part in message["content"]]
        alone = len(content) == 1 and "text" in content[0]  # a plain string, which every server takes
        message["content"] = content[0]["text"] if alone else content
    if not begun:
        return {"messages": turns}
    turns.append({"role": "assistant", "content": begun})
    return {"messages": turns, "add_generation_prompt": False, "continue_final_message": True}


def _blanks(probe: Prompt) -> list[str]:
    """A small blank picture for each image of a prompt."""
    return [data_uri(Image.new("RGB", (64, 64), "white"))] * probe.n_images


def read_tokens(choice: Mapping[str, Any]) -> list[Token]:
    """The log-probabilities of an answer's tokens; none where the server sent none, or sent what are none."""
    tokens: list[Token] = []
    try:
        for entry in choice["logprobs"]["content"]:
            odds = {other["token"]: other["logprob"] for other in (*entry["top_logprobs"], entry)}
            # NaN compares as false.
            if not (all(isinstance(token, str) for token in odds) and sum(map(math.exp, odds.values())) <= 1.01):
                return []
            tokens.append((entry["token"], {token: float(value) for token, value in odds.items()}))
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        return []
    return tokens


def at_verdict(text: str, tokens: Sequence[Token], marker: str, texts: Mapping[int, str]) -> dict[int, float] | None:
    """The scores' log-probabilities at the verdict, the scale's first token right after the last marker, if any.

    " 4" and "4" are one score; one that is not listed there has probability 0.
    """
    scores, written = {text.strip(): score for score, text in texts.items()}, [token for token, _ in tokens]
    if "".join(written).casefold().count(marker.casefold()) != text.casefold().count(marker.casefold()):
        return None
    steps = ((step, "".join(written[:step])) for step, token in enumerate(written) if token.strip() in scores)
    if (step := verdict_step(text, marker, steps)) is None:
        return None
    chances = dict.fromkeys(texts, 0.0)
    for token, logprob in tokens[step][1].items():
        if (score := scores.get(token.strip())) is not None:
            chances[score] += math.exp(logprob)
    return {score: math.log(chance) if chance else -math.inf for score, chance in chances.items()}
