"""What a run is going to take, said before it starts, and what it took."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pandas as pd

from vjudge.data import rows_of
from vjudge.engines.engine import Quantity
from vjudge.judge import Judge
from vjudge.table import check_candidates, pairs_of, singles_of


def plan(
    judge: Judge, items: Any, *, seconds: float = 10.0, run: pd.DataFrame | None = None, **options: Any
) -> pd.DataFrame:
    """Say what grading, comparing or ranking a collection takes, before it starts.

    Args:
        judge: any; where its engine computes elsewhere, nothing that costs is sent.
        items: what `grade`, `compare` (rows with `response_a`) or `rank` (rows with `responses`) takes.
        seconds: how long to measure on a part of the work on this machine, at least one pass; 0 measures nothing.
        run: the frame of the same call when it is done: what was true stands beside what was planned. Of a continued
            run, what the last call computed.
        options: of that call: `mode`, `samples`, `batch_size`, `max_new_tokens` and so on.

    Returns:
        Indexed by quantity, with the columns `planned`, `unit` and `note` (how it is known, or why it is not), and
        `was` with a run. On this machine: verdicts; unanswerable; prompt tokens, and those of them to compute, with the
        share that is saved; images shown and encoded; answers written at once; memory of the weights and of a batch;
        new tokens an answer; the time of images, prompts and answers, the total, and the most it can be, with every
        answer at its limit.

    Raises:
        ValueError: `run` is of another call.
        CollectionError: bad rows, as the call itself would say.
    """
    call = _asked(judge, items, options)
    quantities = judge.engine.plan(call.prompts, call.images, call.ask, seconds=seconds)
    lines = [(each.name, each.value, each.unit, each.note) for each in quantities]
    frame = pd.DataFrame(lines, columns=["quantity", "planned", "unit", "note"]).set_index("quantity")
    if run is not None:
        frame["was"] = pd.Series(_was(run, {each.name: each for each in quantities}), dtype="float64")
    return frame


def _asked(judge: Judge, items: Any, options: dict[str, Any]) -> Any:
    """What the judge would ask of its engine."""
    rows = rows_of(items)
    names = set(rows[0]) if len(rows) else set()
    options = {name: value for name, value in options.items() if name not in ("out", "progress")}
    if "responses" in names:
        check_candidates(rows)
        scores = options.pop("by", "pairs") == "scores"
        rows = list(singles_of(rows) if scores else pairs_of(rows))
        return judge._grading(rows, **options) if scores else judge._comparing(rows, **options)
    return judge._comparing(rows, **options) if "response_a" in names else judge._grading(rows, **options)


def _was(run: pd.DataFrame, planned: Mapping[str, Quantity]) -> dict[str, float]:
    """What a run's frame says of the same quantities."""
    work = run.attrs.get("work")
    if work is None:
        raise ValueError("this run holds no account of its work: give the frame that grade or compare returned")
    if "prompt tokens" in planned and work["prompt_tokens"] > planned["prompt tokens"].value:
        raise ValueError("the run is of another call: its prompts hold more tokens than those planned")
    total, verdicts = work["prompt_tokens"], planned["verdicts"].value
    seconds = {name: work[f"{kind}_seconds"] for kind, name in _TIMES.items()}
    return {
        "verdicts": verdicts,
        "prompt tokens": total,
        "computed": work["computed_tokens"],
        "saved": 1 - work["computed_tokens"] / total if total else math.nan,
        "images encoded": work["images"],
        "answers at once": work["at_once"],
        "new tokens": run["n_new_tokens"].sum() / verdicts,
        **seconds,
        "total": sum(seconds.values()),
    }


_TIMES = {"image": "images", "prompt": "prompts", "answer": "answers"}
