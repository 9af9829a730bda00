"""Prompts in; texts, token counts and score probabilities out.

engine.py     Engine, the interface of all of them
sharing.py    which rows of a call share an image

On this machine:

encoding.py   text -> token ids: data text is never markup; which token carries a score
vision.py     images -> pixels -> features, as each family's original code makes them
features.py   the features of a call's images, each encoded once, the cache bounded in bytes
decoding.py   the state of a call and of its answers
prefixes.py   what the prompts of a block have in common
attention.py  attention over shared prefixes, with keys and values computed and kept once
work.py       what a call computed, and how long that took
stream.py     the answers of a block, taking each other's places
pace.py       how large a batch is fastest, found while it runs
trial.py      whether a model's rows can share prefixes
plain.py      padded batches, for models whose rows can't
cache.py      keys and values while a plain batch decodes
budget.py     how much memory a batch takes, and how much there is
planning.py   what a call is going to compute: blocks of prompts, and how many at once
forward.py    one pass and a greedy answer, for research
local.py      the torch engine
pictures.py   images as a model's own processor takes them
processed.py  the engine of chat models with a processor of their own, and the choice between the two

Behind an OpenAI-compatible server:

background.py many waiting requests, in a thread of their own
transport.py  one request: its limits, its repetitions, its cost
chat.py       the wire format: prompt -> messages, reply -> answer
server.py     the server engine

On GPUs, many GPUs, many machines:

source.py     a checkpoint as another library reads it
vllm.py       vLLM in this process
ray.py        any of the others in many processes, by Ray

A name brings its module when it is first used, so that the server engine needs no torch, and none needs vLLM or Ray.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vjudge.engines.encoding import Encoder, Scale
    from vjudge.engines.engine import Answer, Ask, Engine
    from vjudge.engines.features import ImageFeatures
    from vjudge.engines.forward import Forward
    from vjudge.engines.local import TorchEngine
    from vjudge.engines.processed import ProcessorEngine, local_engine
    from vjudge.engines.ray import RayEngine
    from vjudge.engines.server import ServerEngine
    from vjudge.engines.vllm import VllmEngine

__all__ = [
    "Answer",
    "Ask",
    "Encoder",
    "Engine",
    "Forward",
    "ImageFeatures",
    "ProcessorEngine",
    "RayEngine",
    "Scale",
    "ServerEngine",
    "TorchEngine",
    "VllmEngine",
    "local_engine",
]

_HOMES = {
    "Answer": "engine",
    "Ask": "engine",
    "Encoder": "encoding",
    "Engine": "engine",
    "Forward": "forward",
    "ImageFeatures": "features",
    "ProcessorEngine": "processed",
    "RayEngine": "ray",
    "Scale": "encoding",
    "ServerEngine": "server",
    "TorchEngine": "local",
    "local_engine": "processed",
    "VllmEngine": "vllm",
}


def __getattr__(name: str) -> Any:
    """Bring a public name on first use."""
    if name not in _HOMES:
        raise AttributeError(f"module 'vjudge.engines' has no attribute {name!r}")
    return getattr(import_module(f"vjudge.engines.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
