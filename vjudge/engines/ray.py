"""The Ray engine: one judge in many processes, on one machine or on a cluster.

Where a worker dies, Ray restarts it and repeats its unfinished block of rows. The blocks follow
from all prompts of the call, also in a continued run, so that a row is always computed beside the
same others. vjudge/README.md, "On a cluster", has a script for Slurm.
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

BLOCK_ROWS = 64  # prompts per block
RESTARTS = 2  # how often a block is computed again if its worker dies each time
STARTS = 4  # the number of attempts to start Ray
PAUSE = 5.0  # seconds to wait after a failed attempt to start Ray


class RayEngine(Engine):
    """Run a judge in several processes.

    Ray joins the cluster of RAY_ADDRESS or of this machine, or starts one; call `ray.init` before
    for anything else. A block whose worker dies three times ends the call with Ray's error; with an
    `out` folder the next call continues. The workers don't know a family that was registered in
    this process: name its prompt template by `template`.

    Args:
        judge: the judge's name.
        load: `load_judge`, or it with options such as `template` bound.
        workers: how many processes, each with the whole judge and one GPU, or an equal share where
            they outnumber the GPUs; None: as many as there are GPUs.
        worker_engine: the workers' own engine, "hf" or "vllm" ("auto" as in `load_judge`).
        options: of that engine.

    Raises:
        ImportError: Ray is not installed.
        ValueError: no room for a worker, or what `load_judge` raises.
        RuntimeError: Ray does not start.
    """

    name = "ray"

    def __init__(
        self,
        judge: str | Path,
        *,
        load: Callable[..., Any],
        workers: int | None = None,
        worker_engine: str = "auto",
        **options: Any,
    ) -> None:
        # 1) join or start Ray
        self.ray = start_ray()
        # 2) share its processors among the workers; one without a free CPU would wait for ever
        free = self.ray.available_resources()
        n_cpus = int(free.get("CPU", 0))
        n_gpus = int(free.get("GPU", 0))
        n_workers = n_gpus if workers is None else workers
        if not 1 <= n_workers <= n_cpus:
            raise ValueError(
                f"workers={workers!r}: say how many; a worker takes one CPU, and Ray has {n_cpus}"
                f" CPUs and {n_gpus} GPUs free"
            )
        # Five workers on two GPUs: three on one of them, so that each takes a third of a GPU.
        gpu_share = 1 / math.ceil(n_workers / n_gpus) if n_gpus else 0
        # 3) start them; a process that dies is always replaced (max_restarts=-1). A relative path
        # would mean another folder in a worker's process, so it is made absolute
        path = str(Path(judge).absolute()) if Path(judge).is_dir() else str(judge)
        actor = self.ray.remote(
            num_cpus=1, num_gpus=gpu_share, max_restarts=-1, max_task_retries=RESTARTS
        )(Worker)
        load_on_worker = partial(load, path, engine=worker_engine, **options)
        self.workers = [actor.remote(load_on_worker) for _ in range(n_workers)]
        # 4) ask one of them what the judge is; this waits until its judge is loaded
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
        """Answer every prompt, see `Engine.answer`; `ask.batch_size` is each worker's own."""
        # 1) cut the call into blocks, and leave out those without a wanted row
        rows = range(len(prompts))
        wanted_rows: Any = rows if wanted is None else wanted
        blocks = []
        for start in range(0, len(prompts), BLOCK_ROWS):
            block = rows[start : start + BLOCK_ROWS]
            if any(row in wanted_rows for row in block):
                blocks.append(block)

        # 2) send each block to the next idle worker, which numbers the rows of a block from 0
        def send(worker: Any, block: range) -> Any:
            """Send a block to a worker; return Ray's reference to the answers."""
            return worker.answer.remote(
                block,
                [prompts[row] for row in block],
                [images[row] for row in block],
                _ask_of_block(ask, block),
                [position for position, row in enumerate(block) if row in wanted_rows],
            )

        yield from self.ray.util.ActorPool(self.workers).map_unordered(send, blocks)

    def identity(self) -> dict[str, Any]:
        """Return the identity of the workers' engines; their number decides no answer."""
        return self.workers_identity


def _ask_of_block(ask: Ask, block: range) -> Ask:
    """Return the options of a call for the rows of a block, which number from 0.

    The seeds stay those of the rows' positions in the call.
    """
    columns: dict[str, Any] = {"seeds": list(map(ask.seed, block))}
    for name in ("scales", "schemas", "criteria"):
        column = getattr(ask, name)
        columns[name] = [column[row] for row in block] if column else ()
    return replace(ask, **columns)


class Worker:
    """Answer blocks in a worker's process; the judge is loaded at the first call, once."""

    def __init__(self, load: Callable[[], Any]) -> None:
        self.judge = cache(load)

    def describe(self) -> tuple[Any, ...]:
        """Load the judge, and return what the calling process has to know of it.

        Returns:
            Four values: its prompt template for items, its prompt template for pairs, its family,
            and the identity of its engine.
        """
        judge = self.judge()
        return judge.template, judge.pairs, judge.family, judge.engine.identity()

    def answer(self, block: Sequence[int], *request: Any) -> list[Answer]:
        """Answer the rows of a block.

        Args:
            block: the position of each row in the call; the answers get these as `index`.
            request: the arguments of `Engine.answer`: prompts, images, ask and wanted; rows in
                them are numbered from 0.
        """
        answers: list[Answer] = []
        for batch in self.judge().engine.answer(*request):
            answers += [replace(answer, index=block[answer.index]) for answer in batch]
        return answers


def start_ray(**options: Any) -> Any:
    """Join or start Ray, and return the module `ray`.

    Ray gives its own processes 30 seconds to start, which may be too few on a busy machine, so this
    is attempted `STARTS` times. Where Ray runs in this process already, it is used as it is.

    Args:
        options: for `ray.init`.

    Raises:
        ImportError: Ray is not installed.
        RuntimeError: Ray did not start.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nobody is sent statistics unasked
    try:
        import ray
    except ImportError as error:
        raise ImportError("engine='ray' needs Ray: pip install 'vjudge[ray]'") from error
    for attempt in range(1, STARTS + 1):
        try:
            ray.init(include_dashboard=False, ignore_reinit_error=True, **options)
            return ray
        except Exception as error:  # Ray reports a time-out of its node by a plain Exception
            ray.shutdown()
            reason = f"{type(error).__name__}: {error}"
        say(f"Ray's node has not started, attempt {attempt} of {STARTS}: {reason}")
        time.sleep(PAUSE)
    raise RuntimeError(
        f"Ray did not start in {STARTS} attempts ({reason}); run `ray start --head`, then ask again"
    )
