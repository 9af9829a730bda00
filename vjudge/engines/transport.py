"""Requests to a server: each bounded in time and size, repeated only where the transport failed, its key kept.

Connection errors, time-outs and HTTP 408, 429 and 5xx are repeated; an answer that the server did give never is. The
key goes into one header, and is cut out of everything that a server says.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import ipaddress
import itertools
import json
import logging
import math
import os
import random
import re
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Generator
from concurrent.futures import wait
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import Any, TypeVar
from urllib.parse import quote, urlsplit

import httpx
from anyio.from_thread import start_blocking_portal

RETRIED = frozenset({408, 429, *range(500, 600)})
HOPELESS = frozenset({401, 402, 403, 404, 405, 407, *range(300, 400)})  # the next prompt would fare no better
FIRST_BACKOFF, LONGEST_BACKOFF = 1.0, 60.0  # seconds; half of it at least, at random, so that requests spread
LONGEST_WAIT = 600.0  # seconds of a Retry-After; a longer one ends the call
MOST_BYTES = 1 << 24  # of an answer
SHOWN = 300  # characters of a server's own words in a message
WINDOW = 8  # letters and digits of a key in a row that are cut out
THREAD = "vjudge requests"  # the thread that sends them
HEADERS = {"Accept": "application/json", "Accept-Encoding": "identity", "Content-Type": "application/json"}

Result = TypeVar("Result")


class ServerError(RuntimeError):
    """The server can't be used as asked; the message says why and what to do."""


class Unanswered(Exception):
    """One prompt got no answer, for a reason that may pass."""


class Rejected(Exception):
    """The server turned one request down, and would do so again."""


@dataclass
class Usage:
    """What the requests of an engine came to, since it was made.

    Attributes:
        requests: sent, repetitions and test requests included, but not those that only tokenise.
        retries: reason -> repetitions.
        answers: requests that ended in an answer.
        prompt_tokens, new_tokens: as the server reports them, test requests included; a request that broke off may be
            billed too.
        oddities: what an answer lacked, or held beside itself -> answers.
        price: for a million prompt tokens and a million new ones, in any currency; None where not given.
    """

    requests: int = 0
    retries: Counter[str] = field(default_factory=Counter)
    answers: int = 0
    prompt_tokens: int = 0
    new_tokens: int = 0
    oddities: Counter[str] = field(default_factory=Counter)
    price: tuple[float, float] | None = None

    @property
    def spend(self) -> float:
        """The price of the counted tokens; NaN without a price."""
        if self.price is None:
            return math.nan
        return (self.prompt_tokens * self.price[0] + self.new_tokens * self.price[1]) / 1e6

    def __str__(self) -> str:
        parts = [f"{self.requests} requests", f"{self.prompt_tokens} prompt and {self.new_tokens} new tokens"]
        parts += [f"{count} repetitions for {reason}" for reason, count in self.retries.most_common()]
        parts += [f"{count} answers {what}" for what, count in self.oddities.most_common()]
        return "; ".join(parts + ([f"{self.spend:.4f} at the given price"] if self.price else []))


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
        self._windows = {each[at : at + WINDOW] for each in plain for at in range(len(each) - WINDOW + 1)}

    def __repr__(self) -> str:
        return "Key()"

    def cut(self, text: str) -> str:
        """The text with "[key]" where parts of the key stood.

        >>> Key("sk-0123-4567-89ab").cut("no: s k 0 1 2 3 4 5 6 7, sorry")
        'no: [key], sorry'
        """
        letters = [(match.start(), match[0].lower()) for match in re.finditer("[0-9A-Za-z]", text)]
        plain = "".join(letter for _, letter in letters)
        secret: list[tuple[int, int]] = []  # stretches of the text, those that overlap as one
        for at in range(len(plain) - WINDOW + 1) if self._windows else ():
            if plain[at : at + WINDOW] in self._windows:
                start, end = letters[at][0], letters[at + WINDOW - 1][0] + 1
                secret.append((secret.pop()[0] if secret and start <= secret[-1][1] else start, end))
        for start, end in reversed(secret):
            text = f"{text[:start]}[key]{text[end:]}"
        return text


def check_url(base_url: str) -> str:
    """A base URL without its last slash; ValueError for no http(s) URL, or one with a password, query or fragment."""
    parts = urlsplit(base_url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f'base_url {base_url.rpartition("@")[2]!r} is no URL; use one like "https://HOST/v1"')
    if parts.username or parts.password or parts.query or parts.fragment:
        raise ValueError(
            f"base_url for {parts.hostname} may hold no user, password, query or fragment, since a run's manifest keeps"
            " it; put the key into an environment variable and name it with key_variable"
        )
    return base_url.rstrip("/")


def is_loopback(base_url: str) -> bool:
    """Whether an address is this machine: requests to it never take a proxy."""
    host = urlsplit(base_url).hostname or ""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def read_key(base_url: str, variable: str | None, *, needed: bool) -> Key:
    """The key in an environment variable; ValueError: missing, not fit for a header, or to be sent in the clear."""
    key = os.environ.get(variable, "").strip() if variable else ""
    if not key and needed:
        raise ValueError(f"the environment variable {variable} is not set; put the server's key there")
    if not re.fullmatch(r"[\x21-\x7e]*", key):
        raise ValueError(f"the key in {variable} holds spaces or other characters that no key has; set it again")
    if key and urlsplit(base_url).scheme != "https" and not is_loopback(base_url):
        host = urlsplit(base_url).hostname
        raise ValueError(f"the key in {variable} would go to {host} in the clear; use https, or key_variable=None")
    return Key(key)


class Client:
    """Requests to one server over a pool of connections, `http`, whose context is the caller's to enter.

    `stopped` is None, or why no further request is sent.
    """

    def __init__(self, base_url: str, key: Key, usage: Usage, timeout: float, retries: int, connections: int) -> None:
        self.base_url, self.key, self.usage, self.timeout, self.retries = base_url, key, usage, timeout, retries
        self.stopped: str | None = None
        self._reached = False  # whether anything at this address ever answered
        self._stop = asyncio.Event()
        self._closed_until = -math.inf  # a Retry-After holds for every request of this key
        self.http = httpx.AsyncClient(
            headers=HEADERS | key.headers,
            timeout=httpx.Timeout(None, connect=min(timeout, 30.0)),
            limits=httpx.Limits(max_connections=connections),
            follow_redirects=False,
            trust_env=not is_loopback(base_url),  # where the environment's proxies are, and SSL_CERT_FILE
            verify=base_url.startswith("https:"),  # http has none, and reading the certificates takes long
        )

    async def post(self, path: str, body: dict[str, Any], *, answers: bool = True) -> dict[str, Any]:
        """Send one request and return the JSON object that answers it; "/tokenize" stands beside the base URL's "/v1".

        What only looks at the server (not `answers`) is not counted, is repeated once at most and never ends a call.
        Rejected: a status that speaks of this request. Unanswered: none after all repetitions, or no JSON object.
        """
        url = self.base_url.removesuffix("/v1") + path if path.startswith("/") else f"{self.base_url}/{path}"
        content = json.dumps(body).encode()
        repetitions = self.retries if answers else min(self.retries, 1)
        for attempt in itertools.count():
            while (pause := self._closed_until - time.monotonic()) > 0 and not self.stopped:
                await self._pause(pause)
            if self.stopped:
                raise Unanswered(self.stopped)
            self.usage.requests += answers
            hint = ""
            try:
                status, headers, answer = await asyncio.wait_for(self._once(url, content), self.timeout)
                self._reached = True
                if status not in RETRIED:
                    return self._read(status, headers, answer, answers)
                reason = f"HTTP {status}"
                self._obey(headers, answer)
            except (asyncio.TimeoutError, httpx.TimeoutException):
                reason = "time-out"
            except httpx.TransportError as error:
                reason = type(error).__name__
                if isinstance(error, httpx.ConnectError) and not self._reached:  # a wrong address gets no better
                    repetitions = min(repetitions, 1)
                    hint = ": nothing answers there; start the server, or correct base_url"
                if "CERTIFICATE_VERIFY_FAILED" in str(error):
                    remedy = "name the file of trusted ones (PEM) in SSL_CERT_FILE"
                    self.stop(f"the server's certificate is not trusted ({self.shown(str(error))}); {remedy}")
            if self.stopped:
                raise Unanswered(self.stopped)
            if attempt >= repetitions:
                raise Unanswered(f"{reason}, in each of {attempt + 1} attempts{hint}")
            self.usage.retries[reason] += answers
            await self._pause(min(LONGEST_BACKOFF, FIRST_BACKOFF * 2.0**attempt) * random.uniform(0.5, 1.0))
        raise AssertionError("unreachable")

    def stop(self, reason: str) -> None:
        """Send nothing more; the first reason stays."""
        self.stopped = self.stopped or reason
        self._stop.set()

    def shown(self, text: str) -> str:
        """A server's words made fit to print: short, on one line, without the key."""
        text = self.key.cut(text[: 8 * SHOWN])
        text = " ".join("".join(c if c.isprintable() else " " for c in text).split())
        return text if len(text) <= SHOWN else text[:SHOWN] + "..."

    async def _pause(self, seconds: float) -> None:
        """Wait, but not for a call that has stopped."""
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._stop.wait(), seconds)

    async def _once(self, url: str, content: bytes) -> tuple[int, httpx.Headers, bytes]:
        """Status, headers and the body, as far as it is read."""
        async with self.http.stream("POST", url, content=content) as response:
            answer = bytearray()
            # Undecoded: a few compressed bytes could unfold to any size.
            async for chunk in response.aiter_raw():
                answer += chunk
                if len(answer) > MOST_BYTES:
                    raise Unanswered(f"the server's answer is larger than {MOST_BYTES} bytes")
            return response.status_code, response.headers, bytes(answer)

    def _obey(self, headers: httpx.Headers, answer: bytes) -> None:
        """Wait as long as a busy server says, or stop where that is too long, or no waiting helps."""
        if b"insufficient_quota" in answer:
            self.stop(f"the account's quota is used up: {self._words(answer)}")
        if (after := retry_after(headers.get("retry-after", ""))) is not None:
            if after > LONGEST_WAIT:
                self.stop(f"the server asks to wait {after:.0f} s, longer than {LONGEST_WAIT:.0f} s")
            self._closed_until = max(self._closed_until, time.monotonic() + after)

    def _read(self, status: int, headers: httpx.Headers, answer: bytes, answers: bool) -> dict[str, Any]:
        """The JSON object of a final answer."""
        reply, words = _json(answer), self._words(answer)
        forbids_logprobs = status == 403 and b"logprob" in answer  # of a model: a request without them may pass
        if status in HOPELESS and answers and not forbids_logprobs:
            reason = f"HTTP {status}: {words}"
            if 300 <= status < 400:
                host = urlsplit(headers.get("location", "")).hostname or "elsewhere"
                reason = f"the server redirects to {self.shown(host)} (HTTP {status}); correct base_url"
            self.stop(reason)
            raise Unanswered(reason)
        if status != 200:
            raise Rejected(f"HTTP {status}: {words}")
        if reply is None:
            kind = headers.get("content-type", "no content type").split(";")[0]
            raise Unanswered(f"the server's answer is not JSON ({self.shown(kind)}): {words!r}")
        if not isinstance(reply, dict):
            raise Unanswered(f"the server's answer is no JSON object: {words}")
        if reply.get("error"):
            raise Unanswered(f"the server answered with an error: {words}")
        return reply

    def _words(self, answer: bytes) -> str:
        """What an error answer says, in short."""
        reply = _json(answer)
        error = reply.get("error", reply) if isinstance(reply, dict) else reply
        message = error.get("message", error) if isinstance(error, dict) else error
        return self.shown(message if isinstance(message, str) else answer[: 8 * SHOWN].decode(errors="replace"))


def _json(answer: bytes) -> Any:
    """What an answer holds; None where it is no JSON."""
    try:
        return json.loads(answer)
    except (ValueError, RecursionError):
        return None


def retry_after(value: str) -> float | None:
    """Seconds to wait by a Retry-After header (RFC 9110, 10.2.3): a number or an HTTP date; None for neither."""
    if re.fullmatch(r"\s*[0-9]{1,9}(\.[0-9]{1,9})?\s*", value):
        return float(value)
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
    except (ValueError, TypeError, IndexError, OverflowError):
        return None


# The headers of an answer may hold the key, and httpcore writes them into its log.
for _name in ("httpx", *(f"httpcore.{part}" for part in ("connection", "http11", "http2", "proxy", "socks"))):
    logging.getLogger(_name).addFilter(lambda record: record.threadName != THREAD)


def stream(values: AsyncIterator[Result]) -> Generator[Result, None, None]:
    """Run an asynchronous iterator in a thread of its own, because a notebook's event loop is running already."""
    end: Any = object()

    async def following() -> Any:
        threading.current_thread().name = THREAD
        return await anext(values, end)

    with start_blocking_portal() as portal:
        while True:
            future = portal.start_task_soon(following)
            while not wait([future], timeout=0.5).done:  # on Windows, Ctrl-C does not end a wait without bound
                pass
            if (value := future.result()) is end:
                return
            yield value
