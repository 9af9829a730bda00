"""Prompts in; texts, token counts and score probabilities out.

Read in this order; the files marked with a star are of the core:

    engine.py *    Ask, Answer and Engine, the interface of every engine
    closing.py     the text after which an answer without a verdict is read
    progress.py    the progress bar, and lines beside it
    tokens.py      text to token ids; text from data is never markup
    vision.py      images to features, each image once
    rows.py        a prompt while it is answered on this machine: its tokens, answer and readings
    batches.py *   which rows are computed together
    decoding.py *  from logits to the next token
    hf.py *        a model on this machine: encode, prefill, write, read
    cache.py       the prefixes that its rows share, and their keys and values
    vllm.py        vLLM in this process
    server.py      a judge behind an OpenAI-compatible server; client.py: requests and the key
    handshake.py   does the server write the judge's own prompt; replies.py: what its replies hold
    ray.py         any other engine in many processes

A name brings its module when it is first used: the server engine needs no torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vjudge.lazy import lazy_names

if TYPE_CHECKING:
    from vjudge.engines.engine import Answer, Ask, Engine
    from vjudge.engines.hf import HFEngine
    from vjudge.engines.ray import RayEngine
    from vjudge.engines.server import ServerEngine
    from vjudge.engines.vllm import VllmEngine

__all__ = [
    "Answer",
    "Ask",
    "Engine",
    "RayEngine",
    "ServerEngine",
    "HFEngine",
    "VllmEngine",
]
_NAMES = {
    "engine": "Answer Ask Engine",
    "hf": "HFEngine",
    "server": "ServerEngine",
    "vllm": "VllmEngine",
    "ray": "RayEngine",
}
__getattr__, __dir__, _ = lazy_names(__name__, _NAMES)  # `__all__` is for type checkers
