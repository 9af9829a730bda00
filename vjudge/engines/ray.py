"""The Ray engine: one judge in many processes, on one machine or on a cluster.

Each worker is a Ray actor that loads the judge from the same name and options. Rows go out in blocks, those of an image
one after another, and a block's answers come back at once, to be recorded as they come. Where a worker dies, Ray
restarts it and repeats its unfinished blocks; a block has one result, so nothing is lost and nothing comes twice.

The blocks follow from all prompts of the call, not from those that a continued run still wants: other blocks may differ
in the last bits of a probability. vjudge/README.md, "On a cluster", has a script for Slurm.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from vjudge.engines.engine import Answer, Ask, Engine, whole
from vjudge.images import Picture, Pictures
from vjudge.prompts import Prompt, Template, families

AHEAD = 2  # blocks a worker has at once, so that it never waits for the caller
ATTEMPTS = 3  # times a block is computed at most, if its worker dies each time


class RayEngine(Engine):
    """Run a judge in several processes.

    Ray joins the cluster of RAY_ADDRESS or of this machine, or starts one; call `ray.init` before for anything else.
    A block whose worker dies three times fails as unanswered, and the next call asks for it again.

    Args:
        judge: the judge's name, as for `load_judge`.
        load: `load_judge`, or it with options such as `dtype` bound.
        workers: how many processes, each with the whole judge; None takes one for each GPU (or `gpus` of them).
        worker_engine: the workers' own engine, "torch" or "vllm"; "auto" as in `load_judge`.
        rows_per_block: rows that go to a worker together; None takes 1,024 for vLLM, else 256 on a GPU, 64 on a CPU.
        gpus: what Ray sets aside for a worker; None takes one where the cluster has any, else none.
        options: for the workers' engine.

    Attributes:
        template, pairs, family: the judge's wordings as the workers render them, and its family, if any.

    Raises:
        ImportError: Ray is not installed.
        ValueError: an unsound option; no room for a worker; the judge can't be loaded, as `load_judge` says it.
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
        gpus: float | None = None,
        **options: Any,
    ) -> None:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is reported to anyone unasked
        try:
            import ray
        except ImportError as error:
            raise ImportError("engine='ray' needs Ray: pip install 'vjudge[ray]'") from error
        if not (workers is None or whole(workers, 1)) or worker_engine not in ("auto", "torch", "vllm"):
            raise ValueError('use workers= a whole number from 1, and worker_engine= "auto", "torch" or "vllm"')
        if not ray.is_initialized():
            ray.init(include_dashboard=False)
        room = ray.cluster_resources()
        gpus = min(1.0, room.get("GPU", 0)) if gpus is None else gpus
        if workers is None and not gpus:
            raise ValueError("this Ray cluster has no GPU: say how many workers= are to share its CPUs")
        fit = [int(room.get(kind, 0) // share) for kind, share in (("CPU", 1), ("GPU", gpus)) if share]
        if not min(fit):
            raise ValueError(
                f"this Ray cluster has {room.get('CPU', 0):g} CPUs and {room.get('GPU', 0):g} GPUs, and a worker"
                f" takes one CPU and gpus={gpus:g}: give less, or a larger cluster"
            )
        self.ray, self.judge = ray, str(judge)
        self.rows_per_block = rows_per_block or (1024 if worker_engine == "vllm" else 256 if gpus else 64)
        place = str(Path(judge).absolute()) if Path(judge).is_dir() else str(judge)
        once = {"num_cpus": 1, "num_gpus": gpus, "max_restarts": -1, "max_task_retries": ATTEMPTS - 1}
        own = [dict(vars(family), published=dict(family.published)) for family in families.FAMILIES.values()]
        load = partial(load, place, engine=worker_engine, **options)
        actor = ray.remote(_Worker).options(**once)
        self.workers = [actor.remote(load, own) for _ in range(workers or fit[-1])]  # a worker for each GPU
        first, _ = ray.wait([worker.describe.remote() for worker in self.workers])
        report = ray.get(first[0])
        if "problem" in report:
            raise ValueError(report["problem"])
        self.template: Template = report["template"]
        self.pairs: Template | None = report["pairs"]
        self.family = families.FAMILIES.get(report["family"])
        self._identity: dict[str, Any] = report["identity"]

    def answer(
        self, prompts: Sequence[Prompt], images: Sequence[Sequence[Any]], ask: Ask, wanted: Container[int] | None = None
    ) -> Iterator[list[Answer]]:
        """Answer every prompt; see `Engine.answer`. `batch_size` is each worker's."""
        pictures = Pictures()
        idle, running = deque([*self.workers] * AHEAD), dict[Any, tuple[Any, list[int], list[int]]]()
        blocks = iter(_blocks(images, len(prompts), self.rows_per_block, pictures))
        try:
            while True:
                while idle and (block := next(blocks, None)) is not None:
                    places = [place for place, row in enumerate(block) if wanted is None or row in wanted]
                    if places:
                        worker, parcel = idle.popleft(), _parcel(block, prompts, images, ask, pictures)
                        running[worker.answer.remote(parcel | {"wanted": places})] = worker, block, places
                if not running:
                    return
                (result,), _ = self.ray.wait(list(running))  # in whatever order they are done
                worker, block, places = running.pop(result)
                idle.append(worker)
                yield [replace(answer, index=block[answer.index]) for answer in self._read(places, result)]
        finally:
            for result in running:
                self.ray.cancel(result)  # a call that was given up: what has not started never does

    def identity(self) -> dict[str, Any]:
        """The workers' own, which all of them share; how many they are decides nothing."""
        return {**self._identity, "engine": f"ray, {self._identity['engine']}"}

    def _read(self, places: Sequence[int], result: Any) -> list[Answer]:
        """The answers of a block, by the places in it that are wanted."""
        errors = self.ray.exceptions
        try:
            report = self.ray.get(result)
        except errors.RayTaskError as error:
            raise (error.cause if isinstance(error.cause, Exception) else error) from None
        except (errors.RayActorError, errors.OutOfMemoryError, errors.ObjectLostError) as error:
            reason = f"the worker died each time it computed this block ({type(error).__name__})"
            return [Answer(place, failure=reason, transient=True) for place in places]
        if report["identity"] != self._identity:
            raise RuntimeError(
                f"the workers of {self.judge!r} differ: {report['identity']} and {self._identity}; make them equal, by"
                " dtype= for instance, or leave out the machines that differ"
            )
        answers: list[Answer] = report["answers"]
        return answers


class _Worker:
    """What runs in a worker's process."""

    def __init__(self, load: Callable[[], Any], own: Sequence[Mapping[str, Any]]) -> None:
        families.FAMILIES.update({fields["name"]: families.Family(**fields) for fields in own})
        try:
            self.judge, self.problem = load(), ""
        except (ValueError, TypeError, ImportError, OSError) as error:
            self.problem = str(error)

    def describe(self) -> dict[str, Any]:
        if self.problem:
            return {"problem": self.problem}
        judge, family = self.judge, self.judge.family and self.judge.family.name
        identity = judge.engine.identity()
        return {"template": judge.template, "pairs": judge.pairs, "family": family, "identity": identity}

    def answer(self, parcel: Mapping[str, Any]) -> dict[str, Any]:
        """Answer one block."""
        if self.problem:
            raise RuntimeError(f"a worker can't load the judge: {self.problem}")
        answers = [answer for batch in self.judge.engine.answer(**parcel) for answer in batch]
        return {"answers": answers, "identity": self.judge.engine.identity()}


def _blocks(images: Sequence[Sequence[Any]], n_rows: int, size: int, pictures: Pictures) -> list[list[int]]:
    """Cut rows into blocks of at most `size`, the rows of a first image one after another."""
    groups: dict[str, list[int]] = {}
    for row in range(n_rows):
        first = [_key(pictures, source) for source in images[row][:1]]
        groups.setdefault("".join(first), []).append(row)
    rows = [row for group in groups.values() for row in group]
    return [rows[start : start + size] for start in range(0, n_rows, size)]


def _key(pictures: Pictures, source: Any) -> str:
    """An image's key; "" for one that can't be read: whoever answers the row says what is wrong with it."""
    try:
        return pictures(source).key
    except (ValueError, OSError):
        return ""


def _parcel(
    block: Sequence[int], prompts: Sequence[Prompt], images: Sequence[Sequence[Any]], ask: Ask, pictures: Pictures
) -> dict[str, Any]:
    """The arguments of a worker's engine for a block: rows numbered from 0, each image one object, sent once."""
    files: dict[str, Any] = {}
    sources = [[(_key(pictures, source) or repr(source), source) for source in images[row]] for row in block]
    for key, source in (one for row in sources for one in row):
        files[key] = files[key] if key in files else _portable(source)
    scales = [ask.scale(row) for row in block] if ask.scales else ()
    return {
        "prompts": [prompts[row] for row in block],
        "images": [[files[key] for key, _ in row] for row in sources],
        "ask": replace(ask, scales=scales, seeds=[ask.seed(row) for row in block]),
    }


def _portable(source: Any) -> Any:
    """An image that another machine can open: a local file becomes its bytes."""
    if isinstance(source, Picture):
        source = source.source
    if isinstance(source, Mapping) and source.get("bytes") is None:
        source = source.get("path")
    if isinstance(source, (str, Path)) and not str(source).startswith("data:"):
        try:
            return {"bytes": Path(source).read_bytes(), "path": str(source)}
        except (OSError, ValueError):
            return source  # the worker says what is wrong with it
    return source
