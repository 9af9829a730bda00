"""Count what the verdicts of a call took and what they lack, and print it on one line."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from typing import TYPE_CHECKING

import pandas as pd

from vjudge.engines.progress import say
from vjudge.judging.record import Record, Records

if TYPE_CHECKING:
    from vjudge.judging.asking import Call

WORK = ("n_prompt_tokens", "n_new_tokens", "seconds")  # columns: what each answer took
COUNTS = {  # an entry of a table's `attrs` -> what the line says after the number
    "failures": "verdicts failed",
    "closed": "verdicts were closed: the answer held none, and the most probable one counts",
    "unclosed": "were not closed",
    "abstained": "abstained: neither a verdict nor a failure",
    "without_images": "were judged without an image",
    "remarks": "replies had a remark",
}
MAX_REASONS = 5  # how many different reasons the line names


def work_of(records: Records) -> Record:
    """Combine the records of several answers into the columns of one row.

    Returns:
        The sums of `WORK`, and where some record has them, its `served_model` (who answered) and
        `remarks` as one text, each different text once.
    """
    row = {name: sum(record[name] for record in records) for name in WORK}
    for name in ("served_model", "remarks"):
        texts = dict.fromkeys(record[name] for record in records if record[name])
        if texts:
            row[name] = "; ".join(texts)
    return row


def announce(call: Call, frame: pd.DataFrame, records: Records, *remarks: str) -> pd.DataFrame:
    """Count what the verdicts of a call lack, in the table's `attrs` and on one printed line.

    Args:
        call: what was asked; its remarks on the collection begin the line.
        frame: the table of the call.
        records: the record of each question.
        remarks: on the table; they come next on the line.

    Returns:
        The same table, with new `attrs`.
    """
    work = call.judge.engine.work  # None where the engine computes on another machine
    frame.attrs = {
        "failures": _tally(records, "failure"),
        "closed": sum(record["closed"] for record in records),
        "unclosed": _tally(records, "unclosed"),
        "remarks": _tally(records, "remarks"),
        "abstained": sum(record["choice"] == "abstain" for record in records),
        "without_images": call.n_blind,
        "work": asdict(work) if work else None,
    }
    texts = [*call.remarks, *remarks]
    for name, meaning in COUNTS.items():
        number = frame.attrs[name]
        if isinstance(number, dict):  # a tally: reason -> number
            reasons = [f"{n} x {reason}" for reason, n in number.items()]
            meaning = f"{meaning}: {', '.join(reasons[:MAX_REASONS])}"
            number = sum(number.values())
        if number:
            texts.append(f"{number} of {len(records)} {meaning}")
    served = _tally(records, "served_model")
    if len(served) > 1:
        names = ", ".join(f"{name} ({n})" for name, n in served.items())
        texts.append(f"the model's name moved: {names}")
    if texts:
        say("; ".join(texts))
    return frame


def _tally(records: Records, name: str) -> dict[str, int]:
    """Count how many records have each text in an entry; records without a text don't count."""
    return dict(Counter(record[name] for record in records if record[name]))
