"""Send requests to an OpenAI-compatible server by the `openai` client: retries, deadlines, the key.

The key goes into one header, and is cut out of everything that a server returns. Over plain http a
key goes to this machine alone, and by no proxy. Headers that the client library adds itself, such
as those of OPENAI_CUSTOM_HEADERS and OPENAI_ORG_ID, are not sent.
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
KEY_NAME = "OPENAI_API_KEY"  # the environment variable of the key, unless another is named
LOCAL_HOSTS = ("localhost", "127.0.0.1", "::1")  # hosts that are this machine
RETRIES = 6  # after the first attempt
EXCERPT = 300  # characters of a server's reply in an error message
WINDOW = 8  # consecutive characters of a key that are cut out of a text
HIDDEN = "\uffff"  # stands for a character of a key; no text holds it
MAX_REPLY = 2**26  # bytes of a reply's body, decompressed: 67 MB
ENCODINGS = ("identity", "gzip", "deflate")
"""How a body may be compressed; other encodings can grow to thousands of times their size."""
HEADERS = {
    "Accept": "application/json",
    "Accept-Encoding": "gzip, deflate",
    "User-Agent": "vjudge",
}
PROTOCOL_HEADERS = ("Connection", "Content-Length", "Content-Type", "Host", "Transfer-Encoding")


class Unanswered(Exception):
    """One request got no answer, for a reason that may pass."""


class Unsound(Unanswered):
    """A reply came that can't be used as an answer."""


class Rejected(Unanswered):
    """The server turned one request down, and would do so again."""


class Refused(Unanswered):
    """The server would turn every request down, because of its key or its address for instance."""


def address(base_url: str, variable: str | None) -> tuple[str, str]:
    """Check a base URL, and read the key for it.

    Args:
        base_url: the address, such as "https://HOST/v1".
        variable: the environment variable that holds the key; None for no key. Only OpenAI's own
            variable may be unset, and only for another server than OpenAI's.

    Returns:
        The address without its last slash, and the key; "" for none.

    Raises:
        ValueError: an address that is no plain http or https URL; a key that is missing, that holds
            a character no key has, or that would go over a network unencrypted.
    """
    base_url = base_url.rstrip("/")
    url = httpx.URL(base_url)
    if url.scheme not in ("http", "https") or not url.host or url.userinfo or url.query:
        raise ValueError(
            f'base_url for {url.host!r}: use one like "https://HOST/v1", without user, password or'
            " query, since a run's manifest keeps it; put a key into an environment variable and"
            " name that with key_variable="
        )
    key = os.environ.get(variable or "", "").strip()  # no variable is named "": None gives no key
    if variable and not key and (base_url == OPENAI or variable != KEY_NAME):
        raise ValueError(
            f"the environment variable {variable} is not set; put the server's key there"
        )
    if not re.fullmatch("[!-~]*", key):  # the printable characters of ASCII, without the blank
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
    """Replace each occurrence of the key in a text, whole or in part, by "[key]".

    An occurrence is eight or more consecutive characters of the key, as it is, reversed, in base64
    or in hexadecimal digits, in capitals or not. A key of fewer than eight characters is a
    placeholder such as "EMPTY", and stays.

    >>> without_key("no such key: sk-0123-4567-..., sorry", "sk-0123-4567-89ab")
    'no such key: [key]..., sorry'
    """
    # 1) the key in each form; base64 has three, by the key's position in its groups of three bytes
    raw = key.encode()
    forms = [key, key[::-1], raw.hex()]
    for shift in range(3):
        forms.append(base64.b64encode(b"\0" * shift + raw).decode())
    secret = "\n".join(forms).lower()
    windows = {secret[start : start + WINDOW] for start in range(len(secret) - WINDOW + 1)}
    # 2) return a text that holds none of them, as nearly all do, after this quick test
    lowered = text.lower()
    if len(key) < WINDOW or not any(window in lowered for window in windows):
        return text
    # 3) hide each window of the text that is in the key; windows overlap, so that they hide a
    # longer occurrence together
    characters = list(text)
    for start in range(len(text) - WINDOW + 1):
        stop_at = start + WINDOW
        if text[start:stop_at].lower() in secret:
            characters[start:stop_at] = HIDDEN * WINDOW
    return re.sub(f"{HIDDEN}+", "[key]", "".join(characters))


def proxy_of(base_url: str) -> str:
    """Return host and port of the environment's proxy to an address; "" where there is none."""
    url = httpx.URL(base_url)
    if url.host in LOCAL_HOSTS or proxy_bypass(url.host):
        return ""
    proxies = getproxies()
    proxy = proxies.get(url.scheme) or proxies.get("all") or ""
    return re.sub(r"^(\w+://)?([^@/]*@)?", "", proxy).rstrip("/")  # cut "http://USER:PASSWORD@"


class TooLong(openai.OpenAIError):
    """A reply's body is too long, or compressed in a way that can hide how long it is.

    It is an OpenAIError, because the library repeats a request after an error of any other type.
    """


class BoundedClient(httpx.AsyncClient):
    """Bound a reply's time and size, and send the headers of this module alone.

    These are `HEADERS`, the key, and those of `PROTOCOL_HEADERS` that a request has.

    The timeout is one deadline for connection, headers and body of an attempt together. httpx
    applies it to each read alone, so that a server which sends a byte now and then would hold a
    request for ever.

    Args:
        key: the server's key; "" for none.
        options: for `httpx.AsyncClient`, a `timeout` among them.
    """

    def __init__(self, key: str, **options: Any) -> None:
        super().__init__(**options)
        self.named = dict(HEADERS)
        if key:
            self.named["Authorization"] = f"Bearer {key}"

    async def send(self, request: httpx.Request, **options: Any) -> httpx.Response:
        """Replace a request's headers, send it, and return the response within the timeout."""
        protocol = {
            name: request.headers[name] for name in PROTOCOL_HEADERS if name in request.headers
        }
        request.headers = httpx.Headers(protocol | self.named)
        try:
            return await asyncio.wait_for(self._read(request, **options), self.timeout.read)
        except asyncio.TimeoutError:
            raise httpx.ReadTimeout("no whole answer in time", request=request) from None

    async def _read(self, request: httpx.Request, **options: Any) -> httpx.Response:
        """Send a request, and return the response with its whole body.

        Raises:
            TooLong: the body has more than `MAX_REPLY` bytes, or an encoding not in `ENCODINGS`.
        """
        response = await super().send(request, **{**options, "stream": True})
        body = bytearray()
        try:
            encoding = response.headers.get("Content-Encoding", "identity")
            if encoding.lower() not in ENCODINGS:
                raise TooLong(f"the reply is packed as {encoding!r}, which was not asked for")
            async for chunk in response.aiter_bytes():
                body += chunk
                if len(body) > MAX_REPLY:
                    raise TooLong(f"the reply has more than {MAX_REPLY:,} bytes")
        finally:
            await response.aclose()
        headers = response.headers.copy()
        for name in ("Content-Encoding", "Content-Length", "Transfer-Encoding"):
            headers.pop(name, None)  # they describe the compressed body
        return httpx.Response(
            response.status_code, headers=headers, content=bytes(body), request=request
        )


class PlainClient(openai.AsyncOpenAI):
    """Build requests without the headers that the library adds.

    Some of them come from environment variables, and may hold characters that no header can.
    """

    default_headers = HEADERS | {"Content-Type": "application/json"}


class Client:
    """Send the requests of one call.

    Args:
        base_url, key: from `address`.
        timeout: seconds for one attempt.
    """

    def __init__(self, base_url: str, key: str, timeout: float) -> None:
        self.key = key
        # A proxy would see the key of a server on this machine, so none is used.
        is_local = httpx.URL(base_url).host in LOCAL_HOSTS
        self.api = PlainClient(
            base_url=base_url,
            api_key="not sent",  # the key goes through `BoundedClient` alone
            timeout=timeout,
            http_client=BoundedClient(key, trust_env=not is_local, timeout=timeout),
        )

    async def post(self, url: str, body: Mapping[str, Any], retries: int) -> dict[str, Any]:
        """Send a request, and return the JSON object that answers it.

        Args:
            url: a whole address, or a path after the base URL.
            body: the fields of the request.
            retries: how often the request is repeated where the failure may pass.

        Raises:
            Rejected: the server turned this request down (HTTP 400, 413, 422), or its reply is too
                long.
            Refused: it would turn all requests down (HTTP 401, 403, 404 and others).
            Unsound: the reply is no JSON object, or reports an error.
            Unanswered: no reply, or HTTP 408, 409, 429 or 5xx, also after the retries.
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
        except (ValueError, RecursionError):  # the body is no JSON, or nested too deep
            reply = None
        if not isinstance(reply, dict) or reply.get("error"):
            reason = self.shown(str(reply))
            raise Unsound(f"the server's answer is not JSON as expected: {reason}")
        return reply

    def shown(self, text: str) -> str:
        """Return a text of the server for an error message: short, on one line, without the key.

        The text is shortened twice, because a search for the key in all of it would take long, and
        because white space is joined after that search.
        """
        return " ".join(without_key(text[: 8 * EXCERPT], self.key).split())[:EXCERPT]
