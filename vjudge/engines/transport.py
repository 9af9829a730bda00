"""Requests to a server: bodies bounded in time and size, repeated only where the transport failed, its key kept.

Connection errors, time-outs and HTTP 408, 429 and 5xx are repeated; an answer that the server did give never is. The
key goes into one header, and is cut out of everything that a server says.
"""

from __future__ import annotations

import base64
import ipaddress
import itertools
import json
import math
import os
import random
import re
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlsplit

import httpx

RETRIED = frozenset({408, 429, *range(500, 600)})
HOPELESS = frozenset({401, 402, 403, 404, 405, 407, *range(300, 400)})  # the next prompt would fare no better
FIRST_BACKOFF, LONGEST_BACKOFF = 1.0, 60.0  # seconds; half of it at least, at random, so that requests spread
LONGEST_WAIT = 600.0  # seconds of a Retry-After; a longer one ends the call
MOST_BYTES = 1 << 24  # of an answer
SHOWN = 300  # characters of a server's own words in a message
WINDOW = 8  # letters and digits of a key in a row that are cut out
HEADERS = {"Accept": "application/json", "Accept-Encoding": "identity", "Content-Type": "application/json"}


class ServerError(RuntimeError):
    """The server can't be used as asked; the message says why and what to do."""


class Unanswered(Exception):
    """One prompt got no answer, for a reason that may pass."""


class Rejected(Exception):
    """The server turned one request down, and would do so again."""


@dataclass
class Usage:
    """What the requests of an engine came to, since it was made.

    Requests with repetitions and short test requests, but not those that only tokenise; reason -> repetitions; answers;
    tokens as the server reports them (a request that broke off may be billed too); what an answer lacked -> answers;
    and the price of a million prompt tokens and a million new ones, None where not given.
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
        if not self._windows:
            return text
        places = [match.start() for match in re.finditer("[0-9A-Za-z]", text)]
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
    """Requests to one server over a pool of connections, from any number of threads.

    `stopped` is None, or why no further request is sent; `lock` is for whoever changes `usage`.
    """

    def __init__(self, base_url: str, key: Key, usage: Usage, timeout: float, retries: int, connections: int) -> None:
        self.base_url, self.key, self.usage, self.timeout, self.retries = base_url, key, usage, timeout, retries
        self.stopped: str | None = None
        self._stop, self.lock = threading.Event(), threading.Lock()
        self._closed_until = -math.inf  # a Retry-After holds for every request of this key
        self._reached = False  # whether anything at this address ever answered
        self._http = httpx.Client(
            headers=HEADERS | key.headers,
            timeout=httpx.Timeout(timeout, connect=min(timeout, 30.0), pool=None),
            limits=httpx.Limits(max_connections=connections),
            follow_redirects=False,
            trust_env=not is_loopback(base_url),  # where the environment's proxies are, and SSL_CERT_FILE
            verify=base_url.startswith("https:"),  # http has none, and reading the certificates takes long
        )

    def close(self) -> None:
        """End the call: requests under way do not repeat themselves."""
        self.stop("the call has ended")
        self._http.close()

    def post(self, path: str, body: dict[str, Any], *, answers: bool = True) -> dict[str, Any]:
        """Send one request and return the JSON object that answers it; "/tokenize" stands beside the base URL's "/v1".

        What only looks at the server (not `answers`) is not counted, is repeated once at most and never ends a call.
        Rejected: a status that speaks of this request. Unanswered: none after all repetitions, or no JSON object.
        """
        url = self.base_url.removesuffix("/v1") + path if path.startswith("/") else f"{self.base_url}/{path}"
        content, repetitions = json.dumps(body).encode(), self.retries if answers else min(self.retries, 1)
        pause, reason = 0.0, ""
        for attempt in itertools.count():
            self._wait(pause)
            with self.lock:
                self.usage.requests += answers
                self.usage.retries.update([reason] if attempt and answers else [])
            words = ""
            try:
                status, headers, answer = self._once(url, content)
                self._reached = True
                if status not in RETRIED:
                    return self._read(status, headers, answer, answers)
                reason = f"HTTP {status}"
                self._obey(headers, answer)
            except httpx.TimeoutException:
                reason = "time-out"
            except httpx.TransportError as error:
                reason, words = type(error).__name__, f" ({self.shown(str(error))})"
                if isinstance(error, httpx.ConnectError) and not self._reached:
                    repetitions = min(repetitions, 1)  # a wrong address gets no better
            if attempt >= repetitions and not self.stopped:
                raise Unanswered(f"{reason}, in each of {attempt + 1} attempts{words}")
            pause = min(LONGEST_BACKOFF, FIRST_BACKOFF * 2.0**attempt) * random.uniform(0.5, 1.0)
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

    def _wait(self, seconds: float) -> None:
        """Wait so long, and for as long as the server asks; Unanswered once the call has stopped."""
        until = time.monotonic() + seconds
        while (left := max(until, self._closed_until) - time.monotonic()) > 0 and not self.stopped:
            self._stop.wait(left)
        if self.stopped:
            raise Unanswered(self.stopped)

    def _once(self, url: str, content: bytes) -> tuple[int, httpx.Headers, bytes]:
        """Status, headers and the body, as far as it is read."""
        until, answer = time.monotonic() + self.timeout, bytearray()
        with self._http.stream("POST", url, content=content) as response:
            for chunk in response.iter_raw():  # undecoded: a few compressed bytes could unfold to any size
                answer += chunk
                if len(answer) > MOST_BYTES:
                    raise Unanswered(f"the server's answer is larger than {MOST_BYTES} bytes")
                if time.monotonic() > until:
                    raise httpx.ReadTimeout("byte by byte")
            return response.status_code, response.headers, bytes(answer)

    def _obey(self, headers: httpx.Headers, answer: bytes) -> None:
        """Wait as long as a busy server says, or stop where that is too long, or no waiting helps."""
        if b"insufficient_quota" in answer:
            self.stop(f"the account's quota is used up: {self._words(_json(answer), answer)}")
        if re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", after := headers.get("retry-after", "").strip()):
            self._closed_until = max(self._closed_until, time.monotonic() + float(after))
            if float(after) > LONGEST_WAIT:
                self.stop(f"the server asks to wait {after} s, longer than {LONGEST_WAIT:.0f} s")

    def _read(self, status: int, headers: httpx.Headers, answer: bytes, answers: bool) -> dict[str, Any]:
        """The JSON object of a final answer."""
        reply = _json(answer)
        words = self._words(reply, answer)
        if 300 <= status < 400:
            words = f"it redirects to {self.shown(headers.get('location', 'nowhere'))}; correct base_url"
        if status in HOPELESS and answers:
            self.stop(f"HTTP {status}: {words}")
            raise Unanswered(f"HTTP {status}: {words}")
        if status != 200:
            raise Rejected(f"HTTP {status}: {words}")
        if not isinstance(reply, dict):
            kind = self.shown(headers.get("content-type", "no content type"))
            raise Unanswered(f"the server's answer is not JSON as expected ({kind}): {words!r}")
        if reply.get("error"):
            raise Unanswered(f"the server answered with an error: {words}")
        return reply

    def _words(self, reply: Any, answer: bytes) -> str:
        """What an error answer says, in short."""
        error = reply.get("error", reply) if isinstance(reply, dict) else reply
        message = error.get("message", error) if isinstance(error, dict) else error
        return self.shown(message if isinstance(message, str) else answer[: 8 * SHOWN].decode(errors="replace"))


def _json(answer: bytes) -> Any:
    """What an answer holds; None where it is no JSON."""
    try:
        return json.loads(answer)
    except (ValueError, RecursionError):
        return None
