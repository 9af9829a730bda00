"""What a run is going to take, said before it starts, and what it took.

Counts are exact: the prompts are tokenised and put into blocks as the run will have them. Time is an estimate: a part
of the work is done for about ten seconds, and scaled. How long answers are is not known before they are written.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pandas as pd

from vjudge.engines.engine import Ask
from vjudge.judge import Judge, rows_of
from vjudge.table import check_candidates, pairs_of, singles_of

if TYPE_CHECKING:
    from vjudge.engines import TorchEngine
    from vjudge.engines.decoding import Decoding
    from vjudge.engines.planning import Plan

GIB = 1 << 30


def plan(
    judge: Judge, items: Any, *, seconds: float = 10.0, run: pd.DataFrame | None = None, **options: Any
) -> pd.DataFrame:
    """Say what grading, comparing or ranking a collection takes on this machine, before it starts.

    Args:
        judge: one whose model is on this machine.
        items: what `grade`, `compare` (rows with `response_a`) or `rank` (rows with `responses`) takes.
        seconds: how long to measure, at least one pass; 0 measures nothing, and the times are NaN.
        run: the frame of the same call when it is done: what was true stands beside what was planned. Of a continued
            run, what the last call computed.
        options: of that call: `mode`, `samples`, `batch_size`, `max_new_tokens` and so on.

    Returns:
        Indexed by quantity, with the columns `planned` and `unit`, and `was` with a run: verdicts; unanswerable
        (prompts that will fail, each for a reason the run states); prompt tokens, and those of them to compute, with
        the share that is saved; images shown and encoded; answers written at once (planned from the memory; a long
        run measures whether half or twice as many are faster); memory of the weights and of a batch, reckoned; new
        tokens an answer (measured on the answers that ended, NaN where none did); the time of images, prompts and
        answers, the total, and the most it can be, with every answer at its limit.

    Raises:
        ValueError: the model is not on this machine; `run` is of another call.
        CollectionError: bad rows, as the call itself would say.
    """
    engine: Any = judge.engine
    if not hasattr(engine, "answer_block"):
        raise ValueError(f"judge {judge.name!r} runs elsewhere: only a run on this machine can be planned")
    call = _asked(judge, items, options)
    run_of = _decoding(engine, call.ask)
    planned = engine.plan(call.prompts, call.images, run_of, batch_size=call.ask.batch_size)
    found = _counts(engine, planned, call)
    found |= _times(engine, planned, run_of, found, seconds)
    frame = pd.DataFrame(
        [(name, value, unit) for (name, unit), value in zip(_UNITS.items(), _values(found), strict=True)],
        columns=["quantity", "planned", "unit"],
    ).set_index("quantity")
    if run is not None:
        frame["was"] = _was(run, found)
    return frame


_UNITS = {
    "verdicts": "",
    "unanswerable": "",
    "prompt tokens": "",
    "computed": "tokens",
    "saved": "share of prompt tokens",
    "images shown": "",
    "images encoded": "",
    "answers at once": "",
    "weights": "GiB",
    "batch": "GiB",
    "new tokens": "an answer",
    "images": "seconds",
    "prompts": "seconds",
    "answers": "seconds",
    "total": "seconds",
    "at most": "seconds",
}


def _decoding(engine: TorchEngine, ask: Ask) -> Decoding:
    """How a call decodes."""
    from vjudge.engines.decoding import Decoding

    told = {name: value for name, value in vars(ask).items() if name in Decoding.__dataclass_fields__}
    texts: dict[int, str] = {}
    for scale in ask.scales:
        texts |= scale
    return Decoding(engine.encoder.scale(ask.marker, texts), **(told | ({"max_new_tokens": 0} if ask.scores else {})))


def _values(found: dict[str, float]) -> Iterator[float]:
    return (found.get(name, math.nan) for name in _UNITS)


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


def _counts(engine: TorchEngine, planned: Plan, call: Any) -> dict[str, float]:
    """What follows from the prompts alone."""
    from vjudge.engines.budget import bytes_per_token
    from vjudge.engines.planning import PLANNED
    from vjudge.engines.prefixes import leaves, n_unique

    jobs = [job for block in planned.blocks for job in block]
    total = sum(len(job.ids) for job in jobs)
    shares = engine.plain is None
    computed = sum(n_unique(leaves(block)) for block in planned.blocks) if shares else total
    slots, batch = 0, 0
    for block in planned.blocks:
        longest = max(len(job.ids) for job in block)
        rows = planned.room.rows_of(longest, answer=planned.room.max_new_tokens)
        at_once = min(len(block), planned.room.limits(leaves(block)).slots if shares else rows)
        room = longest + min(planned.room.max_new_tokens, PLANNED if shares else planned.room.max_new_tokens)
        # The longest prompts whole: what they share takes less.
        slots, batch = max(slots, at_once), max(batch, at_once * room * bytes_per_token(engine.model))
    weights = sum(tensor.nbytes for tensor in engine.model.model.parameters())
    return {
        "verdicts": len(call.prompts),
        "unanswerable": len(planned.failed),
        "prompt tokens": total,
        "computed": computed,
        "saved": 1 - computed / total if total else math.nan,
        "images shown": sum(len(job.images) for job in jobs),
        "images encoded": planned.features.distinct if shares else sum(len(job.images) for job in jobs),
        "answers at once": slots,
        "weights": weights / GIB,
        "batch": batch / GIB,
    }


def _times(
    engine: TorchEngine, planned: Plan, run: Decoding, counts: dict[str, float], seconds: float
) -> dict[str, float]:
    """Do a part of the work, and scale what it took."""
    from vjudge.engines.work import Work

    if seconds <= 0 or not planned.blocks:
        return {}
    block = planned.blocks[len(planned.blocks) // 2]  # they stand by length: one of the middle
    at_once = int(counts["answers at once"])
    work, ended, started = Work(), [], time.perf_counter()
    before = planned.features.encoded
    for answers in engine.answer_block(block[:at_once], planned, run, work, until=started + seconds):
        ended += [answer.n_new_tokens for answer in answers if answer.failure is None]
    work.images = planned.features.encoded - before
    verdicts = counts["verdicts"] - counts["unanswerable"]
    most = planned.room.max_new_tokens
    length = sum(ended) / len(ended) if ended else math.nan
    per_image = work.image_seconds / work.images if work.images else 0.0
    per_token = work.prompt_seconds / work.computed_tokens if work.computed_tokens else math.nan
    per_new = work.answer_seconds / work.new_tokens if work.new_tokens else 0.0 if not most else math.nan
    found = {
        "new tokens": length if most else 0.0,
        "images": per_image * counts["images encoded"],
        "prompts": per_token * counts["computed"],
        "answers": per_new * verdicts * length if most else 0.0,
    }
    found["total"] = found["images"] + found["prompts"] + found["answers"]
    found["at most"] = found["images"] + found["prompts"] + per_new * verdicts * most
    return found


def _was(run: pd.DataFrame, found: dict[str, float]) -> list[float]:
    """What a run's frame says of the same quantities."""
    work = run.attrs.get("work")
    if work is None:
        raise ValueError("this run holds no account of its work: give the frame that grade or compare returned")
    if work["prompt_tokens"] > found["prompt tokens"]:
        raise ValueError("the run is of another call: its prompts hold more tokens than those planned")
    new = run["n_new_tokens"].sum()
    return list(
        _values(
            {
                "verdicts": found["verdicts"],
                "unanswerable": float("nan"),
                "prompt tokens": work["prompt_tokens"],
                "computed": work["computed_tokens"],
                "saved": 1 - work["computed_tokens"] / work["prompt_tokens"] if work["prompt_tokens"] else math.nan,
                "images encoded": work["images"],
                "answers at once": work["at_once"],
                "new tokens": new / found["verdicts"],
                "images": work["image_seconds"],
                "prompts": work["prompt_seconds"],
                "answers": work["answer_seconds"],
                "total": work["image_seconds"] + work["prompt_seconds"] + work["answer_seconds"],
            }
        )
    )
