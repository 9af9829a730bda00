"""Prompts in; texts, token counts and score probabilities out.

    engine.py   Ask, Answer and Engine, the interface of all of them
    tokens.py   text to token ids, data text never markup
    vision.py   images to features, each image once
    rows.py     a prompt while it is answered here: what is read after it, how it is closed
    hf.py       a model on this machine: encode, prefill, write, read, close
    batches.py  ... which rows it computes together, and what they share
    cache.py    ... their keys and values; decoding.py: the next token
    vllm.py     vLLM in this process
    server.py   a judge behind an OpenAI-compatible server; client.py: requests and the key
    handshake.py  ... does it write the judge's own prompt; replies.py: what its replies say
    ray.py      any of the others in many processes

A name brings its module when it is first used: the server engine needs no torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vjudge import lazy

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
_HOMES = dict.fromkeys(("Answer", "Ask", "Engine"), "engine")
_HOMES |= {"HFEngine": "hf", "ServerEngine": "server", "VllmEngine": "vllm", "RayEngine": "ray"}
__getattr__, __dir__ = lazy(__name__, _HOMES), __all__.copy
