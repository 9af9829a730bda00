"""The Ray engine: one judge in many processes, on one machine or on a cluster.

Where a worker dies, Ray restarts it and repeats its unfinished block of rows. Blocks follow from
all prompts of the call, also in a continued run, so that its rows are computed beside the same
others. vjudge/README.md, "On a cluster", has a script for Slurm.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

from vjudge.engines.engine import NOISE, Answer, Answers, Ask, Engine, Sources, Wanted
from vjudge.engines.progress import say
from vjudge.prompts import Prompt

BLOCK_ROWS = 64  # prompts of a block
RESTARTS = 2  # times a block is computed again, if its worker dies each time
STARTS = 4  # times that Ray may try to start
PAUSE = 5.0  # seconds between them


class RayEngine(Engine):
    """Run a judge in several processes.

    Ray joins the cluster of RAY_ADDRESS or of this machine, or starts one; call `ray.init` before
    for anything else. A block whose worker dies three times ends the call with Ray's error; with an
    `out` folder the next call goes on. A family that was registered in this process is not known to
    the workers: name its wording by `template`.

    Args:
        judge, load: the judge's name, and `load_judge`, or it with options such as `dtype` bound.
        workers: how many processes, each with the whole judge and one GPU, or an equal share where
            they outnumber the GPUs; None: as many as there are GPUs.
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
        **options: Any,
    ) -> None:
        # 1) join or start Ray
        self.ray = start_ray()
        # 2) share its processors among the workers, which would wait for ever without room
        free = self.ray.available_resources()
        n_cpus = int(free.get("CPU", 0))
        n_gpus = int(free.get("GPU", 0))
        count = n_gpus if workers is None else workers
        if not 1 <= count <= n_cpus:
            raise ValueError(
                f"workers={workers!r}: say how many; a worker takes one CPU, and Ray has {n_cpus}"
                f" CPUs and {n_gpus} GPUs free"
            )
        share = 1 / math.ceil(count / n_gpus) if n_gpus else 0
        # 3) start them; a folder's path holds in their processes too
        path = str(Path(judge).absolute()) if Path(judge).is_dir() else str(judge)
        actor = self.ray.remote(
            num_cpus=1, num_gpus=share, max_restarts=-1, max_task_retries=RESTARTS
        )(Worker)
        loaded = partial(load, path, engine=worker_engine, **options)
        self.workers = [actor.remote(loaded) for _ in range(count)]
        # 4) ask one what the judge is
        self.template, self.pairs, self.family, self.workers_identity = self.ray.get(
            self.workers[0].describe.remote()
        )
        self.noise = NOISE.get(self.workers_identity.get("dtype", ""), self.noise)

    def answer(
        self,
        prompts: Sequence[Prompt],
        images: Sources,
        ask: Ask,
        wanted: Wanted = None,
    ) -> Answers:
        """Answer every prompt; see `Engine.answer`. `batch_size` is each worker's."""
        rows = range(len(prompts))
        chosen: Any = rows if wanted is None else wanted
        blocks = []
        for start in rows[::BLOCK_ROWS]:
            block = rows[start : start + BLOCK_ROWS]
            if any(row in chosen for row in block):
                blocks.append(block)

        def send(worker: Any, block: range) -> Any:
            settings: dict[str, Any] = {"seeds": list(map(ask.seed, block))}
            for name in ("scales", "schemas", "criteria"):
                every = getattr(ask, name)
                settings[name] = [every[row] for row in block] if every else ()
            return worker.answer.remote(
                block,
                [prompts[row] for row in block],
                [images[row] for row in block],
                replace(ask, **settings),
                [position for position, row in enumerate(block) if row in chosen],
            )

        # each block goes to the next worker that is idle
        yield from self.ray.util.ActorPool(self.workers).map_unordered(send, blocks)

    def identity(self) -> dict[str, Any]:
        """The workers' own; how many they are decides nothing."""
        return self.workers_identity


class Worker:
    """What runs in a worker's process; it loads the judge at the first call and after a restart."""

    def __init__(self, load: Callable[[], Any]) -> None:
        self.judge = cache(load)

    def describe(self) -> tuple[Any, ...]:
        """The judge's wordings, its family and its engine's identity."""
        judge = self.judge()
        return judge.template, judge.pairs, judge.family, judge.engine.identity()

    def answer(self, block: Sequence[int], *request: Any) -> list[Answer]:
        """The answers to a block, whose rows are numbered from 0 in the request."""
        answers: list[Answer] = []
        for batch in self.judge().engine.answer(*request):
            answers += [replace(answer, index=block[answer.index]) for answer in batch]
        return answers


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
    for attempt in range(1, STARTS + 1):
        try:
            ray.init(include_dashboard=False, ignore_reinit_error=True, **options)
            return ray
        except Exception as error:  # Ray says that its node timed out by a plain Exception
            ray.shutdown()
            reason = f"{type(error).__name__}: {error}"
        say(f"Ray's node has not started, attempt {attempt} of {STARTS}: {reason}")
        time.sleep(PAUSE)
    raise RuntimeError(
        f"Ray did not start in {STARTS} attempts ({reason}); run `ray start --head`, then ask again"
    )
