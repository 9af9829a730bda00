"""Requests to a server: each bounded in time and size, and repeated only where the transport failed.

What is repeated: connection errors, time-outs, and the statuses 408, 429 and 5xx. What never is: an answer the server
did give, whatever it says. Every repetition is counted by its reason.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import math
import os
import random
import re
import ssl
import time
from collections import Counter
from dataclasses import dataclass, field
from datetime import timezone
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urlsplit

import httpx

RETRIED = frozenset({408, 429, *range(500, 600)})
HOPELESS = frozenset({401, 402, 403, 404, 405, 407, *range(300, 400)})  # the next prompt would fare no better
FIRST_BACKOFF, LONGEST_BACKOFF = 1.0, 60.0  # seconds; half of it at least, at random, so that requests spread
SHOWN = 300  # characters of a server's own words in a message
LOOPBACK = ("localhost", "127.0.0.1", "::1")


class ServerError(RuntimeError):
    """The server can't be used as asked; the message says why and what to do."""


class Unanswered(Exception):
    """One prompt got no answer, for a reason that may pass."""


class Rejected(Exception):
    """The server turned one prompt down, and would do so again."""


@dataclass
class Usage:
    """What the requests of an engine came to, since it was made.

    Attributes:
        requests: sent, repetitions and probes included.
        retries: reason -> repetitions.
        answers: requests that ended in an answer.
        prompt_tokens, new_tokens: as the server reports them, probes included. A request that broke off may be billed
            too, and shows only in `retries`.
        unreported: answers without a token count, missing from the two counts and from `spend`.
        without_logprobs: answers without the log-probabilities that were asked for.
        off_list: verdicts with a score outside the list of the most probable tokens; its probability counts as 0.
        models: the model's name as answered -> answers.
        price: dollars (or any currency) for a million prompt tokens and a million new ones; None where not given.
    """

    requests: int = 0
    retries: Counter[str] = field(default_factory=Counter)
    answers: int = 0
    prompt_tokens: int = 0
    new_tokens: int = 0
    unreported: int = 0
    without_logprobs: int = 0
    off_list: int = 0
    models: Counter[str] = field(default_factory=Counter)
    price: tuple[float, float] | None = None

    @property
    def spend(self) -> float:
        """The price of the counted tokens; NaN without a price."""
        if self.price is None:
            return math.nan
        return (self.prompt_tokens * self.price[0] + self.new_tokens * self.price[1]) / 1e6

    def __str__(self) -> str:
        parts = [f"{self.requests} requests"]
        if self.retries:
            reasons = ", ".join(f"{count} x {reason}" for reason, count in self.retries.most_common())
            parts.append(f"{self.retries.total()} of them repetitions ({reasons})")
        parts.append(f"{self.prompt_tokens} prompt and {self.new_tokens} new tokens")
        for count, what in (
            (self.unreported, "answers without a token count"),
            (self.without_logprobs, "answers without log-probabilities"),
            (self.off_list, "verdicts with a score outside the most probable tokens, counted as 0"),
        ):
            if count:
                parts.append(f"{count} {what}")
        if self.price is not None:
            parts.append(f"{self.spend:.4f} at the given price" + (", at least" if self.unreported else ""))
        return "; ".join(parts)


def check_url(base_url: str) -> str:
    """A base URL without its last slash.

    Raises:
        ValueError: no http(s) URL, or one that holds a password, a query or a fragment.
    """
    parts = urlsplit(base_url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f'base_url {base_url.rpartition("@")[2]!r} is no URL; use one like "https://HOST/v1"')
    if parts.username or parts.password or parts.query or parts.fragment:
        raise ValueError(
            f"base_url for {parts.hostname} may hold no user, password, query or fragment, since a run's manifest keeps"
            " it; put the key into an environment variable and name it with key_variable"
        )
    return base_url.rstrip("/")


def read_key(base_url: str, variable: str | None, *, needed: bool) -> str | None:
    """The key in an environment variable, which is the only place it is ever kept.

    Raises:
        ValueError: needed and not set; not fit for a header; or about to cross a network in the clear.
    """
    key = os.environ.get(variable, "").strip() if variable else ""
    if not key:
        if needed:
            raise ValueError(f"the environment variable {variable} is not set; put the server's key there")
        return None
    if not re.fullmatch(r"[\x21-\x7e]+", key):
        raise ValueError(f"the key in {variable} holds spaces or other characters that no key has; set it again")
    parts = urlsplit(base_url)
    if parts.scheme != "https" and parts.hostname not in LOOPBACK:
        raise ValueError(
            f"the key in {variable} would go to {parts.hostname} in the clear; use https, or key_variable=None"
        )
    return key


class Client:
    """A connection pool to one address, as an asynchronous context manager.

    Args:
        url: where requests are posted.
        key: the bearer token, or None; never shown.
        timeout: seconds for one whole request.
        retries: repetitions of one request at most.
        max_wait: the longest Retry-After that is obeyed, in seconds; a longer one stops the call.
        max_bytes: of one answer.
        ca_file: certificates to trust instead of the system's.
        connections: at once, at most.
        usage: counts what is sent.

    Attributes:
        stopped: None, or why no further request is sent.
    """

    def __init__(
        self,
        url: str,
        *,
        key: str | None,
        timeout: float,
        retries: int,
        max_wait: float,
        max_bytes: int,
        ca_file: str | None,
        connections: int,
        usage: Usage,
    ) -> None:
        self.url, self.timeout, self.retries, self.max_wait = url, timeout, retries, max_wait
        self.max_bytes, self.usage, self._key = max_bytes, usage, key
        self.stopped: str | None = None
        self._stop = asyncio.Event()
        self._closed_until = -math.inf  # a Retry-After holds for every request of this key
        self._http = httpx.AsyncClient(
            headers={"Accept": "application/json", "Accept-Encoding": "identity", "Content-Type": "application/json"}
            | ({"Authorization": f"Bearer {key}"} if key else {}),
            timeout=httpx.Timeout(None, connect=min(timeout, 30.0)),
            limits=httpx.Limits(max_connections=connections),
            follow_redirects=False,
            verify=ssl.create_default_context(cafile=ca_file) if ca_file else True,
        )

    async def __aenter__(self) -> Client:
        await self._http.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self._http.__aexit__(*error)

    async def post(self, body: dict[str, Any]) -> dict[str, Any]:
        """Send one request and return the JSON object that answers it.

        Raises:
            Rejected: a status that speaks of this prompt (400, 413, 422 and the like).
            Unanswered: no answer after all repetitions, one that is no JSON object, or a client that has `stopped`.
        """
        content = json.dumps(body).encode()
        for attempt in itertools.count():
            while (wait := self._closed_until - time.monotonic()) > 0 and not self.stopped:
                await self._pause(wait)
            if self.stopped:
                raise Unanswered(self.stopped)
            self.usage.requests += 1
            try:
                status, headers, answer = await asyncio.wait_for(self._once(content), self.timeout)
            except (asyncio.TimeoutError, httpx.TimeoutException):
                reason = "time-out"
            except httpx.TransportError as error:
                reason = type(error).__name__
                if "CERTIFICATE_VERIFY_FAILED" in str(error):
                    self.stop(f"the server's certificate is not trusted ({error}); see ca_file")
            else:
                if status not in RETRIED:
                    return self._read(status, headers, answer)
                reason = f"HTTP {status}"
                if b"insufficient_quota" in answer:  # a 429 that no waiting ends
                    self.stop(f"the account's quota is used up: {self._words(answer)}")
                if (after := retry_after(headers.get("retry-after"))) is not None:
                    if after > self.max_wait:
                        self.stop(f"the server asks to wait {after:.0f} s, longer than max_wait={self.max_wait:g} s")
                    self._closed_until = max(self._closed_until, time.monotonic() + after)
            if self.stopped:
                raise Unanswered(self.stopped)
            if attempt >= self.retries:
                raise Unanswered(f"{reason}, in each of {attempt + 1} attempts")
            self.usage.retries[reason] += 1
            await self._pause(min(LONGEST_BACKOFF, FIRST_BACKOFF * 2.0**attempt) * random.uniform(0.5, 1.0))
        raise AssertionError("unreachable")

    def stop(self, reason: str) -> None:
        """Send nothing more; the first reason stays."""
        self.stopped = self.stopped or reason
        self._stop.set()

    async def _pause(self, seconds: float) -> None:
        """Wait, but not for a call that has stopped."""
        try:
            await asyncio.wait_for(self._stop.wait(), seconds)
        except asyncio.TimeoutError:
            pass

    async def _once(self, content: bytes) -> tuple[int, httpx.Headers, bytes]:
        """Status, headers and at most `max_bytes` of the body."""
        async with self._http.stream("POST", self.url, content=content) as response:
            answer = bytearray()
            # Undecoded: a few compressed bytes could unfold to any size.
            async for chunk in response.aiter_raw():
                answer += chunk
                if len(answer) > self.max_bytes:
                    if response.status_code == 200:
                        raise Unanswered(f"the server's answer is larger than {self.max_bytes} bytes")
                    break
            return response.status_code, response.headers, bytes(answer)

    def _read(self, status: int, headers: httpx.Headers, answer: bytes) -> dict[str, Any]:
        """The JSON object of a final answer."""
        if status in HOPELESS:
            if 300 <= status < 400:
                host = urlsplit(headers.get("location", "")).hostname or "elsewhere"
                self.stop(f"the server redirects to {self._shown(host)} (HTTP {status}); correct base_url")
            else:
                self.stop(f"HTTP {status}: {self._words(answer)}")
            raise Unanswered(str(self.stopped))
        if status != 200:
            raise Rejected(f"HTTP {status}: {self._words(answer)}")
        kind = headers.get("content-type", "no content type").split(";")[0]
        try:
            reply = json.loads(answer)
        except (ValueError, RecursionError):
            shown = self._shown(answer.decode(errors="replace"))
            raise Unanswered(f"the server's answer is not JSON ({self._shown(kind)}): {shown!r}") from None
        if not isinstance(reply, dict):
            raise Unanswered(f"the server's answer is no JSON object: {self._shown(json.dumps(reply))}")
        if reply.get("error"):
            raise Unanswered(f"the server answered with an error: {self._words(answer)}")
        return reply

    def _words(self, answer: bytes) -> str:
        """What an error answer says, in short."""
        try:
            reply = json.loads(answer)
        except (ValueError, RecursionError):
            return self._shown(answer.decode(errors="replace"))
        error = reply.get("error", reply) if isinstance(reply, dict) else reply
        message = error.get("message", error) if isinstance(error, dict) else error
        return self._shown(message if isinstance(message, str) else json.dumps(message))

    def _shown(self, text: str) -> str:
        """A server's words made fit to print, without the key that some servers repeat."""
        text = text.replace(self._key, "[key]") if self._key else text
        text = " ".join("".join(c if c.isprintable() else " " for c in text[: 4 * SHOWN]).split())
        return text if len(text) <= SHOWN else text[:SHOWN] + "..."


def retry_after(value: str | None) -> float | None:
    """Seconds to wait by a Retry-After header: a number, or an HTTP date; None where it says neither.

    Source: RFC 9110, section 10.2.3.
    """
    value = (value or "").strip()
    if re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", value):
        return float(value)
    try:
        date = parsedate_to_datetime(value)
    except (ValueError, TypeError, IndexError):
        return None
    date = date if date.tzinfo else date.replace(tzinfo=timezone.utc)
    return max(0.0, date.timestamp() - time.time())
