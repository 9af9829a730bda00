"""The Ray engine: one judge in many processes, on one machine or on a cluster.

Each worker is a Ray actor that loads the judge by itself, from the same name and options: weights travel over no
network of ours. Rows go out in blocks that keep the rows of an image together, and a block's answers come back at once,
so that the caller records them as they come.

What a worker's death costs is left to Ray: it restarts the actor, which loads the judge again, and repeats the blocks
that were unfinished. A block has one result, so nothing is lost and nothing comes twice.

The blocks follow from all prompts of the call, not from the ones still wanted. A continued run therefore computes the
same blocks as an unbroken one. Other blocks may differ in the last bits of a probability, as other batches do.

The README's section "On a cluster" has a script for Slurm.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from vjudge.engines.engine import Answer, Engine, say, whole
from vjudge.engines.sharing import blocks, image_groups, image_key
from vjudge.images import ImageError
from vjudge.prompts import Prompt, Template, families

AHEAD = 2  # blocks a worker has at once, so that it never waits for the caller


class RayEngine(Engine):
    """Run a judge in several processes.

    Args:
        judge: the judge's name, as for `load_judge`.
        load: makes the judge in a worker, called with its name, `engine=` and the options; `load_judge`, or it with
            options such as `dtype` bound.
        workers: how many processes, each with the whole judge; None takes one for each GPU of the cluster (or for each
            `gpus` of them).
        worker_engine: the workers' own engine, "torch" or "vllm"; "auto" as in `load_judge`.
        rows_per_block: rows that go to a worker together, at most. A worker that dies has at most two such blocks to
            repeat. None takes 1,024 for vLLM, else 256 on a GPU and 64 on a CPU.
        cpus, gpus: what Ray sets aside for a worker; `gpus` None takes one where the cluster has any, else none. For a
            judge over several GPUs, by vLLM's `tensor_parallel_size` say, give their number.
        attempts: how often a block is computed at most, if its worker dies each time; its rows then fail as unanswered,
            and the next call asks for them again.
        init: options for `ray.init`, where this process has not called it yet. Without an address there, Ray joins the
            cluster of RAY_ADDRESS or of this machine, or starts one for this process.
        options: for the workers' engine.

    Attributes:
        template, pairs: the judge's wordings as the workers render them.
        family: the judge's family; None where it has none.
        processes: worker -> its process on its machine, once it has answered a block.
        restarts: how many times a worker was started again.

    Raises:
        ImportError: Ray is not installed.
        ValueError: an unsound option; the cluster has no room for a worker; the judge can't be loaded, as `load_judge`
            says it.
    """

    name = "ray"

    def __init__(
        self,
        judge: str | Path,
        *,
        load: Callable[..., Any],
        workers: int | None = None,
        worker_engine: str = "auto",
        rows_per_block: int | None = None,
        cpus: float = 1,
        gpus: float | None = None,
        attempts: int = 3,
        init: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        sound = {
            f"workers={workers!r}: use a whole number from 1": workers is None or whole(workers, 1),
            f"rows_per_block={rows_per_block!r}: use a whole number from 1": rows_per_block is None
            or whole(rows_per_block, 1),
            f"attempts={attempts!r}: use a whole number from 1": whole(attempts, 1),
            f"cpus={cpus!r}: use a number from 0": cpus >= 0,
            f"gpus={gpus!r}: use a number from 0": gpus is None or gpus >= 0,
            f'worker_engine={worker_engine!r}: use "auto", "torch" or "vllm"': worker_engine
            in ("auto", "torch", "vllm"),
        }
        if faults := [fault for fault, fine in sound.items() if not fine]:
            raise ValueError("; ".join(faults))
        self.ray = _ray(init or {})
        there = self.ray.cluster_resources()
        gpus = min(1.0, there.get("GPU", 0)) if gpus is None else gpus
        count = int(there.get("GPU", 0) // gpus) if workers is None and gpus else workers
        if count is None:
            raise ValueError("this Ray cluster has no GPU: say how many workers= are to share its CPUs")
        fit = min(
            [int(there.get(kind, 0) // each) for kind, each in (("CPU", cpus), ("GPU", gpus)) if each], default=count
        )
        if not fit or not count:
            raise ValueError(
                f"this Ray cluster has {there.get('CPU', 0):g} CPUs and {there.get('GPU', 0):g} GPUs, and a worker"
                f" takes cpus={cpus:g} and gpus={gpus:g}: give less, or a larger cluster"
            )
        if fit < count:
            say(f"Ray has room for {fit} of {count} workers now; the others start when it has more")
        self.rows_per_block = rows_per_block or (1024 if worker_engine == "vllm" else 256 if gpus else 64)
        self.judge, self.restarts = str(judge), 0
        place = str(Path(judge).absolute()) if Path(judge).is_dir() else str(judge)
        actor = self.ray.remote(_Worker).options(
            num_cpus=cpus, num_gpus=gpus, max_restarts=-1, max_task_retries=attempts - 1
        )
        load = partial(load, place, engine=worker_engine, **options)
        known = [dict(vars(family), published=dict(family.published)) for family in families.FAMILIES.values()]
        self.workers = [actor.remote(load, known) for _ in range(count)]
        self.processes: dict[int, int] = {}
        first, _ = self.ray.wait([worker.describe.remote() for worker in self.workers])
        told = self.ray.get(first[0])
        if "problem" in told:
            raise ValueError(told["problem"])
        self.template: Template = told["template"]
        self.pairs: Template | None = told["pairs"]
        self.family = families.FAMILIES.get(told["family"])
        self._identity: dict[str, Any] = told["identity"]

    def __repr__(self) -> str:
        return f"RayEngine({self.judge!r}, workers={len(self.workers)})"

    def generate(
        self,
        prompts: Sequence[Prompt],
        images: Sequence[Sequence[Any]],
        *,
        score_texts: Mapping[int, str],
        marker: str,
        max_new_tokens: int,
        temperature: float = 0.0,
        top_p: float = 1.0,
        repetition_penalty: float = 1.0,
        seeds: Sequence[int] | None = None,
        batch_size: int | str = "auto",
        wanted: Container[int] | None = None,
    ) -> Iterator[list[Answer]]:
        """Generate a text for every prompt; see `Engine.generate`. `batch_size` is each worker's."""
        options = {
            "score_texts": dict(score_texts),
            "marker": marker,
            "max_new_tokens": max_new_tokens,
            "temperature": temperature,
            "top_p": top_p,
            "repetition_penalty": repetition_penalty,
            "batch_size": batch_size,
        }
        seeds = range(len(prompts)) if seeds is None else seeds
        return self._run("generate", prompts, images, options, seeds, wanted)

    def score(
        self,
        prompts: Sequence[Prompt],
        images: Sequence[Sequence[Any]],
        *,
        score_texts: Mapping[int, str],
        marker: str,
        batch_size: int | str = "auto",
        wanted: Container[int] | None = None,
    ) -> Iterator[list[Answer]]:
        """Read the scores' distribution; see `Engine.score`. `batch_size` is each worker's."""
        options = {"score_texts": dict(score_texts), "marker": marker, "batch_size": batch_size}
        return self._run("score", prompts, images, options, None, wanted)

    def identity(self) -> dict[str, Any]:
        """The workers' own, which all of them share; how many they are decides nothing."""
        return {**self._identity, "engine": f"ray, {self._identity['engine']}"}

    def _run(
        self,
        how: str,
        prompts: Sequence[Prompt],
        images: Sequence[Sequence[Any]],
        options: Mapping[str, Any],
        seeds: Sequence[int] | None,
        wanted: Container[int] | None,
    ) -> Iterator[list[Answer]]:
        """Hand out blocks and take their answers, in whatever order they come."""
        planned = blocks(image_groups(images, len(prompts)), self.rows_per_block)
        waiting = iter([block for block in planned if wanted is None or any(row in wanted for row in block)])
        places = deque([*range(len(self.workers))] * AHEAD)  # whose turn it is for a block
        running: dict[Any, tuple[int, list[int]]] = {}
        restarts = self.restarts
        try:
            while True:
                while places and (block := next(waiting, None)) is not None:
                    sent = _packed(block, prompts, images, options, seeds, wanted)
                    place = places.popleft()
                    running[self.workers[place].answer.remote(how, sent)] = place, block
                if not running:
                    return
                ready, _ = self.ray.wait(list(running))
                place, block = running.pop(ready[0])
                places.append(place)
                if answers := self._taken(ready[0], place, block, wanted):
                    yield answers
        finally:
            for left in running:
                self.ray.cancel(left)  # a call that was given up: what has not started never does
            if self.restarts > restarts:
                say(f"{self.judge}: Ray restarted {self.restarts - restarts} worker(s) and repeated their blocks")

    def _taken(self, result: Any, place: int, block: Sequence[int], wanted: Container[int] | None) -> list[Answer]:
        """A block's answers by the call's own numbers."""
        errors = self.ray.exceptions
        try:
            told = self.ray.get(result)
        except errors.RayTaskError as error:
            raise (error.cause if isinstance(error.cause, Exception) else error) from None
        except (errors.RayActorError, errors.OutOfMemoryError, errors.ObjectLostError) as error:
            reason = f"the worker died each time it computed this block ({type(error).__name__})"
            asked = [row for row in block if wanted is None or row in wanted]
            return [Answer(row, failure=reason, transient=True) for row in asked]
        if told["identity"] != self._identity:
            raise RuntimeError(
                f"the workers of {self.judge!r} differ: {told['identity']} and {self._identity}; make them equal, by"
                " dtype= for instance, or leave out the machines that differ"
            )
        self.restarts += self.processes.setdefault(place, told["process"]) != told["process"]
        self.processes[place] = told["process"]
        return [replace(answer, index=block[answer.index]) for answer in told["answers"]]


class _Worker:
    """What runs in a worker's process."""

    def __init__(self, load: Callable[[], Any], known: Sequence[Mapping[str, Any]]) -> None:
        families.FAMILIES.update({each["name"]: families.Family(**each) for each in known})
        try:
            self.judge, self.problem = load(), ""
        except (ValueError, TypeError, ImportError, OSError) as error:
            self.problem = str(error)

    def describe(self) -> dict[str, Any]:
        if self.problem:
            return {"problem": self.problem}
        return {
            "template": self.judge.template,
            "pairs": self.judge.pairs,
            "family": self.judge.family.name if self.judge.family else "",
            "identity": self.judge.engine.identity(),
        }

    def answer(self, how: str, sent: Mapping[str, Any]) -> dict[str, Any]:
        """Answer one block; images arrive once each."""
        if self.problem:
            raise RuntimeError(f"a worker can't load the judge: {self.problem}")
        images = [[sent["pictures"][key] for key in keys] for keys in sent["keys"]]
        batches = getattr(self.judge.engine, how)(sent["prompts"], images, wanted=sent["wanted"], **sent["options"])
        return {
            "answers": [answer for batch in batches for answer in batch],
            "identity": self.judge.engine.identity(),
            "process": os.getpid(),
        }


def _packed(
    block: Sequence[int],
    prompts: Sequence[Prompt],
    images: Sequence[Sequence[Any]],
    options: Mapping[str, Any],
    seeds: Sequence[int] | None,
    wanted: Container[int] | None,
) -> dict[str, Any]:
    """A block as it is sent: rows numbered from 0, each image once."""
    pictures: dict[str, Any] = {}
    keys: list[list[str]] = []
    for place, row in enumerate(block):
        keys.append([])
        for number, source in enumerate(images[row]):
            try:
                key = image_key(source)
            except (ImageError, OSError):
                key = f"broken:{place}:{number}"
            if key not in pictures:
                pictures[key] = _portable(source)
            keys[-1].append(key)
    return {
        "prompts": [prompts[row] for row in block],
        "keys": keys,
        "pictures": pictures,
        "options": dict(options) | ({"seeds": [seeds[row] for row in block]} if seeds is not None else {}),
        "wanted": {place for place, row in enumerate(block) if wanted is None or row in wanted},
    }


def _portable(source: Any) -> Any:
    """An image that another machine can open: a local file becomes its bytes."""
    if isinstance(source, Mapping) and source.get("bytes") is None:
        return _portable(source.get("path"))
    if isinstance(source, (str, Path)) and not str(source).startswith("data:"):
        try:
            return {"bytes": Path(source).read_bytes(), "path": str(source)}
        except (OSError, ValueError):
            return source  # the worker says what is wrong with it
    return source


def _ray(init: Mapping[str, Any]) -> Any:
    """Ray, connected."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is reported to anyone unasked
    try:
        import ray
    except ImportError as error:
        raise ImportError("engine='ray' needs Ray: pip install 'vjudge[ray]'") from error
    if not ray.is_initialized():
        ray.init(**{"include_dashboard": False, **init})
    return ray
