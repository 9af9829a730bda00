"""A chat server for tests, on loopback: it records what it is asked and misbehaves on demand."""

from __future__ import annotations

import json
import math
import re
import socket
import struct
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from vjudge.prompts import VICUNA_V1


@dataclass
class Request:
    """One request as it came."""

    headers: dict[str, str]
    body: dict[str, Any]
    time: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        """Its text, the data URIs in it, and whether it is the short request before a call."""
        contents = [message["content"] for message in self.body["messages"]]
        parts = [
            part
            for each in contents
            for part in ([{"text": each}] if isinstance(each, str) else each)
        ]
        self.text = "\n".join(part["text"] for part in parts if "text" in part)
        self.pictures = [part["image_url"]["url"] for part in parts if "image_url" in part]
        self.is_test = "Answer with the word yes." in self.text


@dataclass
class Reply:
    """Bytes, or what is sent as JSON, `drip` seconds a byte, broken off after `cut` bytes."""

    body: Any = b""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    drip: float | None = None
    cut: int | None = None


class ChatServer:
    """A context manager around the server.

    `answer` gives the reply to a request, in that request's own thread, and `tokenizer` those of `/tokenize`;
    `requests` holds all requests to the model in the order they came, and `looks` counts the others.
    """

    def __init__(
        self, answer: Callable[[Request], Reply], *, tokenizer: Tokenizer | None = None
    ) -> None:
        self.answer, self.requests, self.tokenizer, self.looks = (
            answer,
            list[Request](),
            tokenizer,
            0,
        )
        self._closes = threading.Event()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                if self.path == "/tokenize":
                    outer.looks += 1
                    return self._send(
                        outer.tokenizer.reply(body) if outer.tokenizer else Reply({}, status=404)
                    )
                assert self.path == "/v1/chat/completions"
                request = Request(
                    {name.lower(): value for name, value in self.headers.items()}, body
                )
                outer.requests.append(request)
                try:
                    self._send(outer.answer(request))
                except OSError:
                    self.close_connection = True  # the client left

            def _send(self, reply: Reply) -> None:
                body = (
                    reply.body if isinstance(reply.body, bytes) else json.dumps(reply.body).encode()
                )
                self.send_response(reply.status)
                headers = {
                    "Content-Type": "application/json",
                    "Content-Length": str(len(body)),
                    **reply.headers,
                }
                for name, value in headers.items():
                    self.send_header(name, value)
                self.end_headers()
                for at in range(len(body)) if reply.drip else ():
                    self.wfile.write(body[at : at + 1])
                    outer._closes.wait(reply.drip)
                if not reply.drip:
                    self.wfile.write(body[: reply.cut])
                if reply.cut is not None:  # a reset, as from a process that died
                    self.connection.setsockopt(
                        socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
                    )
                    self.close_connection = True

            def log_message(self, *args: Any) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 64

            def handle_error(self, *args: Any) -> None:
                pass

        self._server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    @property
    def asked(self) -> list[Request]:
        """The requests without the short ones before each call."""
        return [request for request in self.requests if not request.is_test]

    def __enter__(self) -> ChatServer:
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *error: Any) -> None:
        self._closes.set()
        self._server.shutdown()
        self._server.server_close()


def completion(
    text: str,
    *,
    alternatives: Mapping[str, float] | None = None,
    logprobs: bool = True,
    finish: str = "stop",
) -> dict[str, Any]:
    """A chat completion of 100 and 10 tokens, words with the blank before them; `alternatives` to the last digit."""
    words = re.findall(r" ?\w+| ?[^\w\s]|\s", text)
    digits = [place for place, word in enumerate(words) if word.strip().isdigit()]
    content = []
    for place, word in enumerate(words):
        chances = (
            dict(alternatives) if alternatives and digits and place == digits[-1] else {word: 0.9}
        )
        top = [
            {"token": token, "logprob": math.log(chance), "bytes": None}
            for token, chance in chances.items()
        ]
        content.append(
            {"token": word, "logprob": math.log(chances.get(word, 1e-4)), "top_logprobs": top}
        )
    choice: dict[str, Any] = {
        "index": 0,
        "message": {"role": "assistant", "content": text},
        "finish_reason": finish,
    }
    choice["logprobs"] = {"content": content} if logprobs else None
    return {"choices": [choice], "usage": {"prompt_tokens": 100, "completion_tokens": 10}}


def listed(request: Request, tokenizer: Tokenizer, chances: Mapping[str, float]) -> dict[str, Any]:
    """A completion of one token, with the log-probabilities of the tokens that were asked for."""
    odds = {tokenizer.ids(text)[0]: math.log(chance) for text, chance in chances.items()}
    entries = []
    for token in request.body["logprob_token_ids"]:
        entries.append({"token": f"token_id:{token}", "logprob": odds.get(token, -50.0)})
    reply = completion(" 1")
    reply["choices"][0]["logprobs"] = {"content": [entries[0] | {"top_logprobs": entries}]}
    return reply


class Tokenizer:
    """What vLLM shows of its prompts, with words, signs and single digits for tokens.

    `template` writes the text of messages, where "<image>" stands for an image, and takes four tokens; `start` is what
    the tokenizer adds in front by itself; `continues`: whether `continue_final_message` is obeyed.
    """

    def __init__(
        self, template: Callable[..., str], *, start: str = "<s>", continues: bool = True
    ) -> None:
        self.template, self.start, self.continues = template, start, continues
        self.words: dict[str, int] = {}  # word -> token

    def ids(self, text: str) -> list[int]:
        """The tokens of a text."""
        words = re.findall(r"<image>|</?s>| ?[^\W\d]+| ?\d|\S|\s", text)
        tokens = [self.words.setdefault(word, len(self.words)) for word in words]
        return [
            token
            for token, word in zip(tokens, words, strict=True)
            for _ in range(4 if word == "<image>" else 1)
        ]

    def text(self, body: Mapping[str, Any]) -> str:
        """A prompt as the model reads it."""
        if "prompt" in body:
            return (self.start if body.get("add_special_tokens", True) else "") + body["prompt"]
        messages = []
        for message in body["messages"]:
            parts = message["content"]
            parts = [{"type": "text", "text": parts}] if isinstance(parts, str) else parts
            pictures = ["<image>"] * sum(part["type"] == "image_url" for part in parts)
            messages.append(
                (
                    message["role"],
                    "\n".join([*pictures, *(p["text"] for p in parts if "text" in p)]),
                )
            )
        start = self.start if body.get("add_special_tokens") else ""
        return start + self.template(
            messages, open=bool(body.get("continue_final_message")) and self.continues
        )

    def reply(self, body: Mapping[str, Any]) -> Reply:
        """The answer of `/tokenize`."""
        return Reply({"tokens": self.ids(self.text(body)), "max_model_len": 4096})


def vicuna(messages: list[tuple[str, str]], *, open: bool = False, bos: str = "") -> str:
    """The conversation of Prometheus-Vision, with or without its first token."""
    text = f"{bos}{VICUNA_V1.system} " if messages[0][0] != "system" else bos
    for place, (role, content) in enumerate(messages):
        if role == "assistant":
            text += f"ASSISTANT: {content}" + (
                "" if open and place == len(messages) - 1 else "</s>"
            )
        else:
            text += f"USER: {content} " if role == "user" else f"{content} "
    return text if open else text + "ASSISTANT:"


class Proxy:
    """A context manager around what a proxy hears."""

    def __init__(self) -> None:
        self.heard = b""
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"

    def __enter__(self) -> Proxy:
        threading.Thread(target=self._serve, daemon=True).start()
        return self

    def __exit__(self, *error: Any) -> None:
        self._socket.close()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                client = self._socket.accept()[0]
                self.heard += client.recv(65536)
                client.sendall(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n")
                client.close()


def score_of(request: Request) -> int:
    """The score that `judge` gives: a number from 1 to 5 that depends on the prompt's text alone."""
    return 1 + sum(json.dumps(request.body["messages"][0]["content"], sort_keys=True).encode()) % 5


def judge(request: Request) -> Reply:
    """A well-behaved judge."""
    if request.is_test:
        return Reply(completion("yes", logprobs=bool(request.body.get("logprobs"))))
    score = score_of(request)
    chances = {f" {n}": 0.6 if n == score else 0.08 for n in range(1, 6)}
    text = f"It is so. So the overall score is {score}.\n[RESULT] {score}"
    return Reply(
        completion(text, alternatives=chances, logprobs=bool(request.body.get("logprobs")))
    )
