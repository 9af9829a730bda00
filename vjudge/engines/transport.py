"""Requests to a server: bodies bounded in time and size, repeated only where the transport failed, the key kept.

Connection errors, time-outs and HTTP 408, 429 and 5xx are repeated; an answer that the server did give never is. The
key goes into one header, and is cut out of everything that a server says.
"""

from __future__ import annotations

import base64
import itertools
import json
import os
import random
import re
import threading
import time
from collections import Counter
from typing import Any
from urllib.parse import quote, urlsplit

import httpx

OPENAI = "https://api.openai.com/v1"
KEY_NAME = "OPENAI_API_KEY"
RETRIED = frozenset({408, 429, *range(500, 600)})
HOPELESS = frozenset({401, 402, 403, 404, 405, 407, *range(300, 400)})  # the next prompt would fare no better
RETRIES = 6
FIRST_BACKOFF, LONGEST_BACKOFF = 1.0, 60.0  # seconds; half of it at least, at random, so that requests spread
LONGEST_WAIT = 600.0  # seconds of a Retry-After; a longer one ends the call
MOST_BYTES = 1 << 24  # of an answer
SHOWN = 300  # characters of a server's own words in a message
WINDOW = 8  # letters and digits of a key in a row that are cut out
HEADERS = {"Accept": "application/json", "Accept-Encoding": "identity", "Content-Type": "application/json"}


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

    `stopped` is None, or why no further request is sent; `lock` is for whoever changes `usage`, which counts "requests"
    and "repetitions for ..." here.
    """

    def __init__(self, base_url: str, key: Key, usage: Counter[str], timeout: float) -> None:
        self.base_url, self.key, self.usage, self.timeout = base_url, key, usage, timeout
        self.stopped: str | None = None
        self._stop, self.lock = threading.Event(), threading.Lock()
        self._reached = False  # whether anything at this address ever answered
        self._http = httpx.Client(
            headers=HEADERS | key.headers,
            timeout=httpx.Timeout(timeout, connect=min(timeout, 30.0), pool=None),
            follow_redirects=False,
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

    def post(self, path: str, body: dict[str, Any], *, answers: bool = True) -> dict[str, Any]:
        """Send one request and return the JSON object that answers it; "/tokenize" stands beside the base URL's "/v1".

        What only looks at the server (not `answers`) is not counted, is repeated once at most and never ends a call.
        Rejected: a status that speaks of this request. Unanswered: none after all repetitions, or no JSON object.
        """
        url = self.base_url.removesuffix("/v1") + path if path.startswith("/") else f"{self.base_url}/{path}"
        content, repetitions, pause, reason = json.dumps(body).encode(), RETRIES if answers else 1, 0.0, ""
        for attempt in itertools.count():
            if self._stop.wait(pause):
                raise Unanswered(self.stopped)
            with self.lock:
                self.usage.update(["requests", *([f"repetitions for {reason}"] if attempt else [])] if answers else [])
            pause, words = min(LONGEST_BACKOFF, FIRST_BACKOFF * 2.0**attempt) * random.uniform(0.5, 1.0), ""
            try:
                response, answer = self._once(url, content)
                self._reached = True
                if response.status_code not in RETRIED:
                    return self._read(response, answer, answers)
                reason, after = f"HTTP {response.status_code}", response.headers.get("retry-after", "")
                if b"insufficient_quota" in answer:
                    self.stop(f"the account's quota is used up ({reason})")
                elif re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", after):
                    pause = max(pause, float(after))
                    if pause > LONGEST_WAIT:
                        self.stop(f"the server asks to wait {after} s, longer than {LONGEST_WAIT:.0f} s")
            except httpx.TimeoutException:
                reason = "time-out"
            except httpx.TransportError as error:
                reason, words = type(error).__name__, f" ({self.shown(str(error))})"
                if isinstance(error, httpx.ConnectError) and not self._reached:
                    repetitions = 1  # a wrong address gets no better
            if attempt >= repetitions and not self.stopped:
                raise Unanswered(f"{reason}, in each of {attempt + 1} attempts{words}")
        raise AssertionError("unreachable")

    def shown(self, text: str) -> str:
        """A server's words made fit to print: short, on one line, without the key."""
        text = self.key.cut(text[: 8 * SHOWN])
        text = " ".join("".join(c if c.isprintable() else " " for c in text).split())
        return text if len(text) <= SHOWN else text[:SHOWN] + "..."

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

    def _read(self, response: httpx.Response, answer: bytes, answers: bool) -> dict[str, Any]:
        """The JSON object of a final answer."""
        status, reply = response.status_code, None
        try:
            reply = json.loads(answer)
        except (ValueError, RecursionError):
            pass  # said below, after what the status says
        error = reply.get("error", reply) if isinstance(reply, dict) else reply
        message = error.get("message", error) if isinstance(error, dict) else error
        words = self.shown(message if isinstance(message, str) else answer[: 8 * SHOWN].decode(errors="replace"))
        if 300 <= status < 400:
            words = f"it redirects to {self.shown(response.headers.get('location', 'nowhere'))}; correct base_url"
        if status in HOPELESS and answers:
            self.stop(f"HTTP {status}: {words}")
            raise Unanswered(f"HTTP {status}: {words}")
        if status != 200:
            raise Rejected(f"HTTP {status}: {words}")
        if not isinstance(reply, dict):
            kind = self.shown(response.headers.get("content-type", "no content type"))
            raise Unanswered(f"the server's answer is not JSON as expected ({kind}): {words!r}")
        if reply.get("error"):
            raise Unanswered(f"the server answered with an error: {words}")
        return reply
