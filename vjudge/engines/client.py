"""Requests to an OpenAI-compatible server, by the `openai` client: retries, deadlines, and the key.

The key goes into one header and is cut out of everything that a server says. Plain http carries a
key to this machine only, and no proxy stands between.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import re
import threading
import time
from collections import Counter
from collections.abc import Coroutine, Mapping
from concurrent.futures import Future
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import quote, urlsplit

import httpx
import openai

OPENAI = "https://api.openai.com/v1"
LOOPBACK = re.compile(r"localhost|::1|127(\.[0-9]{1,3}){3}")  # hosts that are this machine
KEY_NAME = "OPENAI_API_KEY"
HOPELESS = frozenset({401, 402, 403, 404, 405, 407, *range(300, 400)})  # the next is no better
RETRIES = 6
NO_RETRY = {"x-should-retry": "false"}
LONGEST_WAIT = 120.0  # seconds of a Retry-After that the client obeys; a longer one ends the call
MOST_BYTES = 1 << 24  # of an answer
SHOWN = 300  # characters of a server's own words in a message
WINDOW = 8  # letters and digits of a key in a row that are cut out


class Unanswered(Exception):
    """One request got no answer, for a reason that may pass."""


class Rejected(Unanswered):
    """The server turned one request down, and would do so again."""


class Key:
    """A server's key, and what looks like it: eight of its letters and digits in a row.

    Also in base64, in hexadecimal digits and backwards, and whatever stands between them. A key
    with fewer letters and digits is a placeholder such as "EMPTY".
    """

    def __init__(self, text: str = "") -> None:
        self.text = text
        raw = text.encode()
        shapes = [text, quote(raw, safe=""), raw.hex(), text[::-1]]
        shapes += [base64.b64encode(b"\0" * shift + raw).decode() for shift in range(3)]
        self._windows = set()
        if len(_letters(text)) >= WINDOW:
            for shape in map(_letters, shapes):
                for start in range(len(shape) - WINDOW + 1):
                    self._windows.add(shape[start : start + WINDOW])

    def __repr__(self) -> str:
        return "Key()"

    def cut(self, text: str) -> str:
        """The text with "[key]" where parts of the key stood.

        >>> Key("sk-0123-4567-89ab").cut("no: s k 0 1 2 3 4 5 6 7, sorry")
        'no: [key], sorry'
        """
        places = [match.start() for match in re.finditer("[0-9A-Za-z]", text)]
        plain = _letters(text)
        secret: set[int] = set()
        for start in range(len(plain) - WINDOW + 1):
            if plain[start : start + WINDOW] in self._windows:
                secret.update(range(places[start], places[start + WINDOW - 1] + 1))
        shown = ""
        for place, letter in enumerate(text):
            if place not in secret:
                shown += letter
            elif place - 1 not in secret:
                shown += "[key]"
        return shown

    def shown(self, text: str) -> str:
        """A server's words made fit to print: short, on one line, without the key."""
        text = self.cut(text[: 8 * SHOWN])
        printable = "".join(letter if letter.isprintable() else " " for letter in text)
        line = " ".join(printable.split())
        return line if len(line) <= SHOWN else f"{line[:SHOWN]}..."


def _letters(text: str) -> str:
    return re.sub("[^0-9A-Za-z]", "", text).lower()


def is_local(base_url: str) -> bool:
    return LOOPBACK.fullmatch(urlsplit(base_url).hostname or "") is not None


def address(base_url: str, variable: str | None) -> tuple[str, Key]:
    """A base URL without its last slash, and the key of a variable; else ValueError."""
    parts = urlsplit(base_url)
    host = parts.hostname or ""
    base_url = base_url.rstrip("/")
    odd = "@" in parts.netloc or parts.query or parts.fragment
    if parts.scheme not in ("http", "https") or not host or odd:
        raise ValueError(
            f'base_url for {host!r}: use one like "https://HOST/v1", without user, password or'
            " query, since a run's manifest keeps it; put a key into an environment variable and"
            " name that with key_variable="
        )
    key = ""
    if variable:
        key = os.environ.get(variable, "").strip()
    if not key and variable and (base_url == OPENAI or variable != KEY_NAME):
        raise ValueError(
            f"the environment variable {variable} is not set; put the server's key there"
        )
    if not re.fullmatch(r"[\x21-\x7e]*", key):
        raise ValueError(
            f"the key in {variable} holds spaces or other characters that no key has; set it again"
        )
    if key and parts.scheme != "https" and not is_local(base_url):
        raise ValueError(
            f"the key in {variable} would go to {host} in the clear; use https, or"
            " key_variable=None"
        )
    return base_url, Key(key)


class BoundedClient(httpx.AsyncClient):
    """A client with one deadline over connection, headers and body of a try, and a bounded body.

    httpx bounds each read, so that a server which sends a byte now and then would hold a request
    for ever.
    """

    def __init__(self, base_url: str, deadline: float, usage: Counter[str]) -> None:
        secure = base_url.startswith("https:")  # reading the certificates takes long
        # A proxy would be given the key of a server on this machine.
        super().__init__(trust_env=not is_local(base_url), verify=secure, timeout=deadline)
        self.deadline = deadline
        self.usage = usage

    async def send(self, request: httpx.Request, **options: Any) -> httpx.Response:
        if not request.url.path.endswith("/tokenize"):
            self.usage["requests"] += 1
            if request.headers.get("x-stainless-retry-count", "0") != "0":
                self.usage["repetitions"] += 1
        try:
            return await asyncio.wait_for(self._whole(request, options), self.deadline)
        except asyncio.TimeoutError:
            raise httpx.ReadTimeout("no whole answer in time", request=request) from None

    async def _whole(self, request: httpx.Request, options: dict[str, Any]) -> httpx.Response:
        response = await super().send(request, **{**options, "stream": True})
        headers = response.headers
        body = bytearray()
        try:
            async for chunk in response.aiter_raw():
                body += chunk
                if len(body) > MOST_BYTES:
                    return httpx.Response(413, headers=NO_RETRY, request=request)
        finally:
            await response.aclose()
        if b"insufficient_quota" in body:
            headers.update(NO_RETRY)  # no pause brings money
        return httpx.Response(
            response.status_code, headers=headers, content=bytes(body), request=request
        )


class Client:
    """Requests of one call, from a thread with an event loop of its own: a notebook's is running.

    `stopped` is None, or why no further request is sent.
    """

    def __init__(self, base_url: str, key: Key, timeout: float, usage: Counter[str]) -> None:
        self.base_url = base_url
        self.key = key
        self.stopped: str | None = None
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self._run, daemon=True).start()
        self.headers: dict[str, Any] = {"Accept-Encoding": "identity"}  # bytes unfold to any size
        if not key.text:
            self.headers["Authorization"] = openai.Omit()  # else the client sends its placeholder
        self.api = openai.AsyncOpenAI(
            base_url=base_url,
            api_key=key.text or "none",
            organization="",
            project="",
            max_retries=RETRIES,
            timeout=timeout,
            http_client=BoundedClient(base_url, timeout, usage),
        )

    def _run(self) -> None:
        self.loop.run_forever()
        self.loop.close()

    def submit(self, coroutine: Coroutine[Any, Any, Any]) -> Future[Any]:
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop)

    def stop(self, reason: str) -> None:
        """Send nothing more; the first reason stays."""
        self.stopped = self.stopped or reason

    def close(self) -> None:
        """End the call; whoever stops waits for no answer."""
        self.stop("the call has ended")

        async def end() -> None:
            others = asyncio.all_tasks() - {asyncio.current_task()}
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)
            await self.api.close()
            self.loop.call_soon(self.loop.stop)

        self.submit(end())

    async def post(self, body: Mapping[str, Any], *, look: bool = False) -> dict[str, Any]:
        """The JSON object that answers a request for a completion, or with `look` for tokens.

        Rejected: a status that speaks of this request alone.
        """
        url = "/chat/completions"
        retries = RETRIES
        if look:
            url = self.base_url.removesuffix("/v1") + "/tokenize"
            retries = 1
        options: Any = {"max_retries": retries, "headers": self.headers}
        try:
            response: httpx.Response = await self.api.post(
                url, body=dict(body), cast_to=httpx.Response, options=options
            )
        except openai.APIStatusError as error:
            raise self._refused(error.response, look) from None
        except openai.APITimeoutError:
            raise Unanswered(f"time-out, in each of {retries + 1} attempts") from None
        except openai.APIConnectionError as error:
            cause = error.__cause__ or error
            what = f"{type(cause).__name__} ({self.key.shown(str(cause))})"
            raise Unanswered(f"{what}, in each of {retries + 1} attempts") from None
        reply = _json(response.content)
        words = self._words(response.content)
        if not isinstance(reply, dict):
            raise Unanswered(f"the server's answer is not JSON as expected: {words!r}")
        if reply.get("error"):
            raise Unanswered(f"the server answered with an error: {words}")
        return reply

    def _refused(self, response: httpx.Response, look: bool) -> Unanswered:
        """What a status other than success means for this request and for the call."""
        code = response.status_code
        words = self._words(response.content)
        if code == 413 and not response.content:
            return Unanswered(f"the server's answer is larger than {MOST_BYTES} bytes")
        if response.is_redirect:
            place = self.key.shown(response.headers.get("location", "nowhere"))
            words = f"it redirects to {place}; correct base_url"
        if b"insufficient_quota" in response.content:
            self.stop(f"the account's quota is used up (HTTP {code})")
        elif code in HOPELESS and not look:
            self.stop(f"HTTP {code}: {words}")
        wait = _seconds(response.headers.get("retry-after", ""))
        if wait > LONGEST_WAIT:
            self.stop(
                f"the server asks to wait {wait:g} s, longer than {LONGEST_WAIT:g} s (HTTP {code})"
            )
        if self.stopped:
            return Unanswered(self.stopped)
        if code in (408, 409, 429) or code >= 500:
            return Unanswered(f"HTTP {code}, in each of {RETRIES + 1} attempts")
        return Rejected(f"HTTP {code}: {words}")

    def _words(self, content: bytes) -> str:
        """What a server says of an error, in its own words."""
        error = content[: 8 * SHOWN].decode(errors="replace")
        reply = _json(content)
        if isinstance(reply, dict):
            error = reply.get("error", reply)
        if isinstance(error, dict):
            error = error.get("message", error)
        return self.key.shown(str(error))


def _json(content: bytes) -> Any:
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        return None


def _seconds(after: str) -> float:
    """What a Retry-After header asks for: a number of seconds, or a date."""
    try:
        return float(after)
    except ValueError:
        pass
    try:
        return parsedate_to_datetime(after).timestamp() - time.time()
    except (TypeError, ValueError):
        return 0.0
