"""The Ray engine: one judge in many processes, on one machine or on a cluster.

Rows go out in blocks, those of an image one after another. Where a worker dies, Ray restarts it and
repeats its unfinished blocks. Blocks follow from all prompts of the call, also in a continued run,
so that its rows are computed beside the same others. vjudge/README.md, "On a cluster", has a script
for Slurm.
"""

from __future__ import annotations

import math
import os
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

from vjudge.engines.engine import (
    Answer,
    Answers,
    Ask,
    Engine,
    Sources,
    Wanted,
    say,
)
from vjudge.images import Picture, Pictures
from vjudge.prompts import Prompt, families
from vjudge.records import is_int_at_least

AHEAD = 2  # blocks a worker has at once, so that it never waits for the caller
ATTEMPTS = 3  # times a block is computed at most, if its worker dies each time
STARTS = 4  # times that Ray may try to start
PAUSE = 5.0  # seconds between them


class RayEngine(Engine):
    """Run a judge in several processes.

    Ray joins the cluster of RAY_ADDRESS or of this machine, or starts one; call `ray.init` before
    for anything else. A block whose worker dies three times fails as unanswered, and the next call
    asks for it again.

    Args:
        judge, load: the judge's name, and `load_judge`, or it with options such as `dtype` bound.
        workers: how many processes, each with the whole judge; None: as many as there are GPUs for.
        gpus: that Ray sets aside for a worker; None takes one, or an equal share where workers
            outnumber the GPUs.
        worker_engine, options: the workers' own engine, "hf" or "vllm" ("auto" as in
            `load_judge`), and its options.

    ImportError: Ray is not installed. ValueError: no room for a worker, or what `load_judge`
    raises. RuntimeError: Ray does not start.
    """

    name = "ray"

    def __init__(
        self,
        judge: str | Path,
        *,
        load: Any,
        workers: int | None = None,
        worker_engine: str = "auto",
        gpus: float | None = None,
        **options: Any,
    ) -> None:
        self.judge = str(judge)
        # 1) join or start Ray
        self.ray = start_ray()
        # 2) share its processors among the workers
        free = self.ray.available_resources()
        n_gpus = int(free.get("GPU", 0))
        count = _check_room(workers, gpus, int(free.get("CPU", 0)), n_gpus)
        if gpus is None:
            gpus = 1 / math.ceil(count / n_gpus) if n_gpus else 0
        # 3) start them; a folder's path and our own families hold in their processes too
        place = str(Path(judge).absolute()) if Path(judge).is_dir() else self.judge
        actor = self.ray.remote(
            num_cpus=1, num_gpus=gpus, max_restarts=-1, max_task_retries=ATTEMPTS - 1
        )(Worker)
        loaded = partial(load, place, engine=worker_engine, **options)
        known = []  # families, as they travel to another process
        for family in families.FAMILIES.values():
            known.append(replace(family, published=dict(family.published)))
        self.workers = [actor.remote(loaded, known) for _ in range(count)]
        # 4) ask the first that is ready what the judge is
        first, _ = self.ray.wait([worker.describe.remote() for worker in self.workers])
        self.template, self.pairs, family, self._identity = self._get(first[0])
        self.family = families.FAMILIES.get(family)
        # 5) how many rows go to a worker together
        self.rows = 64
        if worker_engine == "vllm":
            self.rows = 1024
        elif n_gpus:
            self.rows = 256

    def answer(
        self, prompts: Sequence[Prompt], images: Sources, ask: Ask, wanted: Wanted = None
    ) -> Answers:
        """Answer every prompt; see `Engine.answer`. `batch_size` is each worker's."""
        waiting = deque(blocks_of(images, self.rows))
        idle = deque([*self.workers] * AHEAD)
        running: dict[Any, tuple[Any, list[int], list[int]]] = {}
        try:
            while waiting or running:
                # 1) give blocks to workers that have room for one
                while waiting and idle:
                    block = waiting.popleft()
                    places = [p for p, row in enumerate(block) if wanted is None or row in wanted]
                    if not places:
                        continue
                    worker = idle.popleft()
                    parcel = parcel_of(block, prompts, images, ask)
                    result = worker.answer.remote({**parcel, "wanted": places})
                    running[result] = (worker, block, places)
                if not running:
                    break
                # 2) take over whichever is done first
                done, _ = self.ray.wait(list(running))
                worker, block, places = running.pop(done[0])
                idle.append(worker)
                answers = self._read(places, done[0])
                yield [replace(answer, index=block[answer.index]) for answer in answers]
        finally:
            for result in running:  # a call that was given up: what has not started never does
                self.ray.cancel(result)

    def identity(self) -> dict[str, Any]:
        """The workers' own, which all of them share; how many they are decides nothing."""
        return {**self._identity, "engine": f"ray, {self._identity['engine']}"}

    def _get(self, result: Any) -> Any:
        """What a worker gives; its errors are raised as they were there."""
        try:
            return self.ray.get(result)
        except self.ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, Exception):
                raise error.cause from None
            raise

    def _read(self, places: Sequence[int], result: Any) -> list[Answer]:
        """The answers of a block, by the places in it that are wanted."""
        known = self.ray.exceptions
        try:
            identity, answers = self._get(result)
        except (known.RayActorError, known.OutOfMemoryError, known.ObjectLostError) as error:
            reason = f"the worker died each time it computed this block ({type(error).__name__})"
            return [Answer(place, failure=reason, transient=True) for place in places]
        if identity != self._identity:
            raise RuntimeError(
                f"the workers of {self.judge!r} differ: {identity} and {self._identity};"
                " make them equal, by dtype= for instance"
            )
        return list(answers)


class Worker:
    """What runs in a worker's process; it loads the judge at the first call and after a restart."""

    def __init__(self, load: Callable[[], Any], known: Sequence[families.Family]) -> None:
        self.judge = cache(load)
        for family in known:
            families.FAMILIES[family.name] = family

    def describe(self) -> tuple[Any, ...]:
        """The judge's wordings, its family's name and its engine's identity."""
        judge = self.judge()
        family = judge.family.name if judge.family else None
        return judge.template, judge.pairs, family, judge.engine.identity()

    def answer(self, parcel: Mapping[str, Any]) -> tuple[dict[str, Any], list[Answer]]:
        """The engine's identity, and the answers to one block."""
        engine = self.judge().engine
        answers: list[Answer] = []
        for batch in engine.answer(**parcel):
            answers.extend(batch)
        return engine.identity(), answers


def start_ray(**options: Any) -> Any:
    """Join or start Ray, and wait for a machine that is slow to start it.

    Ray gives its own processes 30 seconds, which a crowded machine may not keep to.

    Args:
        options: for `ray.init`.

    ImportError: Ray is not installed. RuntimeError: it did not start.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is reported to anyone unasked
    try:
        import ray
    except ImportError as error:
        raise ImportError("engine='ray' needs Ray: pip install 'vjudge[ray]'") from error
    if ray.is_initialized():
        return ray
    started = time.monotonic()
    for attempt in range(1, STARTS + 1):
        try:
            ray.init(include_dashboard=False, **options)
            return ray
        except (ConnectionError, ValueError):  # no such cluster, or bad settings
            raise
        except Exception as error:  # Ray says that its node timed out by a plain Exception
            ray.shutdown()
            seconds = time.monotonic() - started
            reason = f"{type(error).__name__}: {error}"
        waited = f"Ray's node has not started in {seconds:.0f} s"
        say(f"{waited}; attempt {attempt} of {STARTS}: {reason}")
        time.sleep(PAUSE)
    raise RuntimeError(
        f"Ray did not start in {STARTS} attempts ({reason}); run `ray start --head`, then ask again"
    )


def _check_room(workers: int | None, gpus: float | None, n_cpus: int, n_gpus: int) -> int:
    """How many workers there are to be; ValueError where Ray has no room for them."""
    count = workers
    if count is None:
        count = min(n_cpus, int(n_gpus / (gpus or 1)))
    if not is_int_at_least(count, 1) or count > n_cpus or count * (gpus or 0) > n_gpus:
        raise ValueError(
            f"workers={workers!r}, gpus={gpus!r}: say how many; a worker takes one CPU, and Ray"
            f" has {n_cpus} CPUs and {n_gpus} GPUs free"
        )
    return count


def blocks_of(images: Sources, size: int) -> list[list[int]]:
    """Cut rows into blocks of at most `size`, the rows of a first image one after another."""
    pictures = Pictures()
    groups: dict[str, list[int]] = {}
    for row, sources in enumerate(images):
        key = ""
        if sources:
            key = getattr(whole(sources[0], pictures), "key", "")
        groups.setdefault(key, []).append(row)
    rows = [row for group in groups.values() for row in group]
    return [rows[start : start + size] for start in range(0, len(rows), size)]


def parcel_of(
    block: Sequence[int], prompts: Sequence[Prompt], images: Sources, ask: Ask
) -> dict[str, Any]:
    """The arguments of a worker's engine for a block.

    Rows are numbered from 0; each image travels once, with its file's bytes.
    """
    pictures = Pictures(keep_bytes=sys.maxsize)
    once: dict[str, Any] = {}
    shown = []
    for row in block:
        sources = []
        for source in images[row]:
            image = whole(source, pictures)
            sources.append(once.setdefault(getattr(image, "key", repr(image)), image))
        shown.append(sources)
    own: dict[str, Any] = {"seeds": [ask.seed(row) for row in block]}
    for name in ("scales", "schemas", "criteria"):
        every = getattr(ask, name)
        own[name] = [every[row] for row in block] if every else ()
    asked = [prompts[row] for row in block]
    return {"prompts": asked, "images": shown, "ask": replace(ask, **own)}


def whole(source: Any, pictures: Pictures) -> Any:
    """An image as another machine can open it.

    One that can't be read stays as it is: its row's worker says what is wrong.
    """
    try:
        return pictures(source.source if isinstance(source, Picture) else source)
    except (ValueError, OSError):
        return source
