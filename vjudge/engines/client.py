"""Requests to an OpenAI-compatible server, by the `openai` client: retries, deadlines, and the key.

The key goes into one header and is cut out of everything that a server says. Plain http carries a
key to this machine only, and no proxy stands between. Headers that the client library adds by
itself, such as those of OPENAI_CUSTOM_HEADERS and OPENAI_ORG_ID, are not sent.
"""

from __future__ import annotations

import asyncio
import base64
import os
import re
from collections.abc import Mapping
from typing import Any
from urllib.request import getproxies, proxy_bypass

import httpx
import openai

OPENAI = "https://api.openai.com/v1"
KEY_NAME = "OPENAI_API_KEY"
LOCAL_HOSTS = ("localhost", "127.0.0.1", "::1")  # hosts that are this machine
RETRIES = 6
EXCERPT = 300  # characters of a server's own words in a message
WINDOW = 8  # characters of a key in a row that are cut out
HIDDEN = "\uffff"  # no character of any text
MAX_REPLY = 2**26  # of a reply's body, unpacked: 67 MB
PACKED = ("identity", "gzip", "deflate")  # how a body may come; others unpack to thousands of times
HEADERS = {
    "Accept": "application/json",
    "Accept-Encoding": "gzip, deflate",
    "User-Agent": "vjudge",
}
PROTOCOL = ("Connection", "Content-Length", "Content-Type", "Host", "Transfer-Encoding")


class Unanswered(Exception):
    """One request got no answer, for a reason that may pass."""


class Unsound(Unanswered):
    """A reply came that can't be used as an answer."""


class Rejected(Unanswered):
    """The server turned one request down, and would do so again."""


class Refused(Unanswered):
    """The server would turn every request down, for its key or its address for instance."""


def address(base_url: str, variable: str | None) -> tuple[str, str]:
    """A base URL without its last slash, and the key of a variable; else ValueError."""
    base_url = base_url.rstrip("/")
    url = httpx.URL(base_url)
    if url.scheme not in ("http", "https") or not url.host or url.userinfo or url.query:
        raise ValueError(
            f'base_url for {url.host!r}: use one like "https://HOST/v1", without user, password or'
            " query, since a run's manifest keeps it; put a key into an environment variable and"
            " name that with key_variable="
        )
    key = os.environ.get(variable or "", "").strip()
    if variable and not key and (base_url == OPENAI or variable != KEY_NAME):
        raise ValueError(
            f"the environment variable {variable} is not set; put the server's key there"
        )
    if not re.fullmatch("[!-~]*", key):
        raise ValueError(
            f"the environment variable {variable} holds a character that no key has, such as a"
            " blank or a letter with an accent; put the server's key there"
        )
    if key and url.scheme == "http" and url.host not in LOCAL_HOSTS:
        raise ValueError(
            f"the key in {variable} would go to {url.host} in the clear; use https, or"
            " key_variable=None"
        )
    return base_url, key


def without_key(text: str, key: str) -> str:
    """The text with "[key]" where eight characters in a row of the key stood, or more.

    Also in base64, in hexadecimal digits and backwards, in capitals or not. A shorter key is a
    placeholder such as "EMPTY".

    >>> without_key("no such key: sk-0123-4567-..., sorry", "sk-0123-4567-89ab")
    'no such key: [key]..., sorry'
    """
    # 1) the key in each shape, cut into all its windows
    raw = key.encode()
    shapes = [key, key[::-1], raw.hex()]
    for shift in range(3):
        shapes.append(base64.b64encode(b"\0" * shift + raw).decode())
    secret = "\n".join(shapes).lower()
    windows = {secret[start : start + WINDOW] for start in range(len(secret) - WINDOW + 1)}
    # 2) hardly a text holds any of them
    lowered = text.lower()
    if len(key) < WINDOW or not any(window in lowered for window in windows):
        return text
    # 3) hide each character of those that it holds
    characters = list(text)
    for start in range(len(text) - WINDOW + 1):
        stop_at = start + WINDOW
        if text[start:stop_at].lower() in secret:
            characters[start:stop_at] = HIDDEN * WINDOW
    return re.sub(f"{HIDDEN}+", "[key]", "".join(characters))


def proxy_of(base_url: str) -> str:
    """Host and port of the environment's proxy to an address; "" where there is none."""
    url = httpx.URL(base_url)
    if url.host in LOCAL_HOSTS or proxy_bypass(url.host):
        return ""
    proxies = getproxies()
    proxy = proxies.get(url.scheme) or proxies.get("all") or ""
    return re.sub(r"^(\w+://)?([^@/]*@)?", "", proxy).rstrip("/")  # no user, no password


class TooLong(openai.OpenAIError):
    """A reply's body can't be held; being an OpenAIError, it is not asked for again."""


class BoundedClient(httpx.AsyncClient):
    """A client that sends the named headers alone, and bounds a reply's time and size.

    One deadline holds over connection, headers and body of a try: httpx bounds each read, so that
    a server which sends a byte now and then would hold a request for ever.
    """

    def __init__(self, key: str, **options: Any) -> None:
        super().__init__(**options)
        self.named = dict(HEADERS)
        if key:
            self.named["Authorization"] = f"Bearer {key}"

    async def send(self, request: httpx.Request, **options: Any) -> httpx.Response:
        protocol = {name: request.headers[name] for name in PROTOCOL if name in request.headers}
        request.headers = httpx.Headers(protocol | self.named)
        try:
            return await asyncio.wait_for(self._read(request, **options), self.timeout.read)
        except asyncio.TimeoutError:
            raise httpx.ReadTimeout("no whole answer in time", request=request) from None

    async def _read(self, request: httpx.Request, **options: Any) -> httpx.Response:
        """The response with its whole body; TooLong where that has more than `MAX_REPLY`."""
        response = await super().send(request, **{**options, "stream": True})
        body = bytearray()
        try:
            packed = response.headers.get("Content-Encoding", "identity")
            if packed.lower() not in PACKED:
                raise TooLong(f"the reply is packed as {packed!r}, which was not asked for")
            async for chunk in response.aiter_bytes():
                body += chunk
                if len(body) > MAX_REPLY:
                    raise TooLong(f"the reply has more than {MAX_REPLY:,} bytes")
        finally:
            await response.aclose()
        headers = response.headers.copy()
        for name in ("Content-Encoding", "Content-Length", "Transfer-Encoding"):
            headers.pop(name, None)  # they speak of the packed body
        return httpx.Response(
            response.status_code, headers=headers, content=bytes(body), request=request
        )


class PlainClient(openai.AsyncOpenAI):
    """The library's client without the headers that it adds, of which one may not be sendable."""

    default_headers = HEADERS | {"Content-Type": "application/json"}


class Client:
    """The requests of one call."""

    def __init__(self, base_url: str, key: str, timeout: float) -> None:
        self.key = key
        # A proxy would be given the key of a server on this machine.
        is_local = httpx.URL(base_url).host in LOCAL_HOSTS
        self.api = PlainClient(
            base_url=base_url,
            api_key="not sent",  # the key goes through `BoundedClient` alone
            timeout=timeout,
            http_client=BoundedClient(key, trust_env=not is_local, timeout=timeout),
        )

    async def post(self, url: str, body: Mapping[str, Any], retries: int) -> dict[str, Any]:
        """The JSON object that answers a request.

        Rejected: a status that speaks of this request alone. Refused: one that speaks of all.
        Unsound: no such object. Unanswered: no reply.
        """
        options: Any = {"max_retries": retries}
        try:
            reply = await self.api.post(url, body=dict(body), cast_to=object, options=options)
        except openai.APIStatusError as error:
            code = error.status_code
            reason = f"HTTP {code}: {self.shown(error.response.text)}"
            if code in (400, 413, 422):
                raise Rejected(reason) from None
            if code < 500 and code not in (408, 409, 429):
                raise Refused(reason) from None
            raise Unanswered(f"{reason}, repeated up to {retries} times") from None
        except openai.APIConnectionError as error:
            cause = error.__cause__ or error
            reason = f"{type(cause).__name__}: {self.shown(str(cause))}"
            raise Unanswered(f"{reason}, repeated up to {retries} times") from None
        except TooLong as error:
            raise Rejected(self.shown(str(error))) from None
        except (ValueError, RecursionError):
            reply = None
        if not isinstance(reply, dict) or reply.get("error"):
            reason = self.shown(str(reply))
            raise Unsound(f"the server's answer is not JSON as expected: {reason}")
        return reply

    def shown(self, text: str) -> str:
        """A server's words made fit to print: short, on one line, without the key."""
        return " ".join(without_key(text[: 8 * EXCERPT], self.key).split())[:EXCERPT]
