"""A chat server for tests, on loopback: it records what it is asked and misbehaves on demand."""

from __future__ import annotations

import json
import math
import re
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

TEST_REQUEST = "Answer with the word yes."


@dataclass
class Request:
    """One request as it came."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]
    time: float = field(default_factory=time.monotonic)

    @property
    def text(self) -> str:
        """All that the messages say."""
        texts = []
        for message in self.body["messages"]:
            content = message["content"]
            parts = [{"text": content}] if isinstance(content, str) else content
            texts += [part["text"] for part in parts if "text" in part]
        return "\n".join(texts)

    @property
    def pictures(self) -> list[str]:
        """The data URIs in it, in order."""
        contents = [message["content"] for message in self.body["messages"] if isinstance(message["content"], list)]
        return [part["image_url"]["url"] for content in contents for part in content if part["type"] == "image_url"]

    @property
    def is_test(self) -> bool:
        """Whether it is the short request before a call."""
        return self.text.startswith(TEST_REQUEST)


@dataclass
class Reply:
    """What is sent back.

    Args:
        body: bytes, or what is sent as JSON.
        delay: seconds before the first byte.
        drip: seconds between single bytes of the body; None sends it at once.
        cut: bytes of the body after which the connection breaks.
    """

    body: Any = b""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    delay: float = 0.0
    drip: float | None = None
    cut: int | None = None


class ChatServer:
    """A context manager around the server.

    Args:
        answer: what a request gets; called in the request's own thread.
        certificate: a PEM file with certificate and key, for https.

    Attributes:
        requests: all requests in the order they came.
        peak: how many were under way at once, at most.
    """

    def __init__(self, answer: Callable[[Request], Reply], *, certificate: Path | None = None) -> None:
        self.answer, self.requests, self.peak = answer, list[Request](), 0
        self._busy, self._lock, self._open = 0, threading.Lock(), threading.Event()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                request = Request(self.path, {name.lower(): value for name, value in self.headers.items()}, body)
                with outer._lock:
                    outer.requests.append(request)
                    outer._busy += 1
                    outer.peak = max(outer.peak, outer._busy)
                try:
                    reply = outer.answer(request)
                    outer._wait(reply.delay)
                    with outer._lock:
                        outer._busy -= 1  # the next request may come before this thread goes on
                    self._send(reply)
                except OSError:
                    self.close_connection = True  # the client left

            def _send(self, reply: Reply) -> None:
                body = reply.body if isinstance(reply.body, bytes) else json.dumps(reply.body).encode()
                self.send_response(reply.status)
                headers = {"Content-Type": "application/json", "Content-Length": str(len(body)), **reply.headers}
                for name, value in headers.items():
                    self.send_header(name, value)
                self.end_headers()
                if reply.cut is not None:
                    self.wfile.write(body[: reply.cut])
                    self.wfile.flush()
                    # A reset, as from a process that died.
                    self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    self.close_connection = True
                elif reply.drip is not None:
                    for byte in body:
                        self.wfile.write(bytes([byte]))
                        self.wfile.flush()
                        outer._wait(reply.drip)
                else:
                    self.wfile.write(body)

            def log_message(self, *args: Any) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 64

            def handle_error(self, *args: Any) -> None:
                pass

        self._server = Server(("127.0.0.1", 0), Handler)
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.url = f"{'https' if certificate else 'http'}://127.0.0.1:{self._server.server_address[1]}/v1"

    def _wait(self, seconds: float) -> None:
        """Sleep, unless the server closes."""
        self._open.wait(seconds)

    @property
    def asked(self) -> list[Request]:
        """The requests without the short ones before each call."""
        return [request for request in self.requests if not request.is_test]

    def __enter__(self) -> ChatServer:
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *error: Any) -> None:
        self._open.set()
        self._server.shutdown()
        self._server.server_close()


def completion(
    text: str,
    *,
    alternatives: Mapping[str, float] | None = None,
    logprobs: bool = True,
    tokens: tuple[int, int] | None = (100, 10),
    finish: str = "stop",
) -> dict[str, Any]:
    """A chat completion.

    Args:
        text: of the judge; its tokens are words with the blank before them, and punctuation.
        alternatives: token -> probability, at the last token of a digit.
        logprobs: whether there are any.
        tokens: the counts in `usage`; None leaves it out.
        finish: why the text ended.
    """
    words = re.findall(r" ?\w+| ?[^\w\s]|\s", text)
    digits = [place for place, word in enumerate(words) if word.strip().isdigit()]
    content = []
    for place, word in enumerate(words):
        chances = dict(alternatives) if alternatives and digits and place == digits[-1] else {word: 0.9}
        top = [{"token": token, "logprob": math.log(chance), "bytes": None} for token, chance in chances.items()]
        content.append({"token": word, "logprob": math.log(chances.get(word, 1e-4)), "top_logprobs": top})
    choice: dict[str, Any] = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": finish}
    choice["logprobs"] = {"content": content} if logprobs else None
    whole: dict[str, Any] = {"object": "chat.completion", "model": "judge-1", "choices": [choice]}
    if tokens:
        whole["usage"] = {"prompt_tokens": tokens[0], "completion_tokens": tokens[1], "total_tokens": sum(tokens)}
    return whole


def score_of(request: Request) -> int:
    """The score that `judge` gives: a number from 1 to 5 that depends on the prompt's text alone."""
    text = request.body["messages"][0]["content"]
    return 1 + sum(json.dumps(text, sort_keys=True).encode()) % 5


def judge(request: Request) -> Reply:
    """A well-behaved judge."""
    if request.is_test:
        return Reply(completion("yes", logprobs=bool(request.body.get("logprobs"))))
    score = score_of(request)
    chances = {f" {n}": 0.6 if n == score else 0.08 for n in range(1, 6)}
    forced = request.body["messages"][-1]["role"] == "assistant"
    text = f" {score}" if forced else f"It is so. So the overall score is {score}.\n[RESULT] {score}"
    return Reply(completion(text, alternatives=chances, logprobs=bool(request.body.get("logprobs"))))
