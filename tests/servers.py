"""A chat server for tests, on loopback: it records what it is asked and misbehaves on demand."""

import contextlib
import json
import math
import os
import re
import socket
import struct
import subprocess
import sys
import threading
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple

from vjudge.prompts import VICUNA_V1


class Request:
    """One request as it came: its text, the data URIs in it, and whether it is the short request
    before a call."""

    def __init__(self, headers, body):
        self.headers = {name.lower(): value for name, value in headers.items()}
        self.body = body
        self.time = time.monotonic()
        texts = []
        self.pictures = []
        for message in body["messages"]:
            for part in parts_of(message):
                if "text" in part:
                    texts.append(part["text"])
                else:
                    picture = part["image_url"]
                    self.pictures.append(picture["url"] if picture else part["uuid"])
        self.text = "\n".join(texts)
        self.is_test = "Answer with the word yes." in self.text


def parts_of(message):
    content = message["content"]
    return [{"text": content}] if isinstance(content, str) else content


class Reply(NamedTuple):
    """Bytes, or a piece of them `times` over, or what is sent as JSON: `drip` seconds a byte from the header on, or up to `cut`."""

    body: bytes | dict = b""
    status: int = 200
    headers: dict = {}
    drip: float = 0
    cut: int | None = None
    times: int = 1


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        own = self.server
        if self.path == "/tokenize":
            self.answer(own.tokenizer.reply(body) if own.tokenizer else Reply({}, status=404))
            return
        assert self.path in ("/v1/chat/completions", "/classify", "/pooling")
        request = Request(self.headers, body)
        request.path = self.path
        own.requests.append(request)
        try:
            self.answer(own.reply(request))
        except OSError:
            self.close_connection = True  # the client left

    def answer(self, reply):
        body = reply.body
        if not isinstance(body, bytes):
            body = json.dumps(body).encode()
        head = [f"HTTP/1.1 {reply.status} -"]
        headers = {"Content-Type": "application/json", "Content-Length": len(body) * reply.times}
        for name, value in {**headers, **reply.headers}.items():
            head.append(f"{name}: {value}")
        whole = "\r\n".join([*head, "", ""]).encode() + body
        if reply.drip:
            for byte in whole:
                self.wfile.write(bytes([byte]))
                self.server.closes.wait(reply.drip)
        else:
            self.wfile.write(whole[: reply.cut])
            for _ in range(reply.times - 1):
                self.wfile.write(body)
        if reply.cut:  # a reset, as from a process that died
            reset = struct.pack("ii", 1, 0)
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset)
            self.close_connection = True


class ChatServer(ThreadingHTTPServer):
    """A context manager.

    `reply` gives the reply to a request, in that request's own thread, and `tokenizer` those of
    `/tokenize`; `requests` holds all requests to the model in the order they came.
    """

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, reply, *, tokenizer=None):
        self.reply = reply
        self.tokenizer = tokenizer
        self.requests = []
        self.closes = threading.Event()
        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server_address[1]}/v1"

    @property
    def asked(self):
        """The requests without the short ones before each call."""
        return [request for request in self.requests if not request.is_test]

    def handle_error(self, *args):
        pass

    def __enter__(self):
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *error):
        self.closes.set()
        self.shutdown()
        self.server_close()


def completion(text, *, alternatives=None, logprobs=True, finish="stop", **message):
    """A chat completion of 100 and 10 tokens, words with the blank before them; `alternatives` to
    the last digit, `message` further fields of the message."""
    words = re.findall(r" ?\w+| ?[^\w\s]|\s", text) if logprobs else []
    digits = [place for place, word in enumerate(words) if word.strip().isdigit()]
    content = []
    for place, word in enumerate(words):
        chances = {word: 0.9}
        if alternatives and place == digits[-1]:
            chances = alternatives
        top = [{"token": token, "logprob": math.log(p)} for token, p in chances.items()]
        own = math.log(chances.get(word, 1e-4))
        content.append({"token": word, "logprob": own, "top_logprobs": top})
    choice = {
        "message": {"role": "assistant", "content": text, **message},
        "finish_reason": finish,
        "logprobs": {"content": content} if logprobs else None,
    }
    return {"choices": [choice], "usage": {"prompt_tokens": 100, "completion_tokens": 10}}


def listed(request, tokenizer, chances):
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

    `template` writes the text of messages, where "<image>" stands for an image, and takes four
    tokens; `start` is what the tokenizer adds in front by itself; `continues`: whether
    `continue_final_message` is obeyed.
    """

    def __init__(self, template, *, start="<s>", continues=True):
        self.template = template
        self.start = start
        self.continues = continues
        self.words = {}  # word -> token

    def ids(self, text):
        """The tokens of a text."""
        ids = []
        for word in re.findall(r"<image>|</?s>| ?[^\W\d]+| ?\d|\S|\s", text):
            token = self.words.setdefault(word, len(self.words))
            ids += [token] * (4 if word == "<image>" else 1)
        return ids

    def text(self, body):
        """A prompt as the model reads it."""
        if "prompt" in body:
            return self.start if body["add_special_tokens"] else body["prompt"]
        messages = []
        for message in body["messages"]:
            lines = [part.get("text", "<image>") for part in parts_of(message)]
            messages.append((message["role"], "\n".join(lines)))
        return self.template(messages, open=self.continues and "continue_final_message" in body)

    def reply(self, body):
        """The answer of `/tokenize`."""
        return Reply({"tokens": self.ids(self.text(body)), "max_model_len": 4096})


def vicuna(messages, *, open=False, bos="<s>"):
    """The conversation of Prometheus-Vision, with or without its first token."""
    text = bos
    if messages[0][0] != "system":
        text += f"{VICUNA_V1.system} "
    for role, content in messages:
        name = {"user": "USER: ", "assistant": "ASSISTANT: "}.get(role, "")
        text += f"{name}{content}" + ("</s>" if role == "assistant" else " ")
    return text.removesuffix("</s>") if open else text + "ASSISTANT:"


def judge(request):
    """A well-behaved judge; its score is what the length of the prompt's text decides."""
    logprobs = "logprobs" in request.body
    score = 1 + len(request.text) % 5
    chances = {f" {n}": 0.6 if n == score else 0.08 for n in range(1, 6)}
    text = f"It is so. So the overall score is {score}.\n[RESULT] {score}"
    return Reply(completion(text, alternatives=chances, logprobs=logprobs))


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


@contextlib.contextmanager
def process(command, url, log, **environment):
    """A Python process that serves, from its first answer at an address to the end of a block."""
    with log.open("w") as stream:
        server = subprocess.Popen(
            [sys.executable, *command], env=os.environ | environment, stdout=stream, stderr=stream
        )
    try:
        for _ in range(900):
            assert server.poll() is None, log.read_text(errors="replace")
            with contextlib.suppress(OSError):
                urllib.request.urlopen(url, timeout=5).close()
                break
            time.sleep(0.1)
        yield
    finally:
        server.terminate()  # JupyterLab ends its kernels first
        try:
            server.wait(20)
        except subprocess.TimeoutExpired:
            server.kill()
