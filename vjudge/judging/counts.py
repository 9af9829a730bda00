"""What the verdicts of a call took, and what they lack, counted and said on one line."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from typing import TYPE_CHECKING

import pandas as pd

from vjudge.engines.progress import say
from vjudge.judging.record import Record, Records

if TYPE_CHECKING:
    from vjudge.judging.asking import Call

WORK = ("n_prompt_tokens", "n_new_tokens", "seconds")  # what each answer took
COUNTS = {  # an entry of a table's `attrs` -> the words for it
    "failures": "verdicts failed",
    "closed": "verdicts were closed: the answer held none, and the most probable one counts",
    "unclosed": "were not closed",
    "abstained": "abstained: neither a verdict nor a failure",
    "without_images": "were judged without an image",
    "remarks": "replies had a remark",
}
MAX_REASONS = 5  # reasons on a line


def work_of(records: Records) -> Record:
    """Sum what several answers took, and join who gave them and what was remarked of them."""
    row = {name: sum(record[name] for record in records) for name in WORK}
    for name in ("served_model", "remarks"):
        texts = dict.fromkeys(record[name] for record in records if record[name])
        if texts:
            row[name] = "; ".join(texts)
    return row


def announce(call: Call, frame: pd.DataFrame, records: Records, *remarks: str) -> pd.DataFrame:
    """Count what the verdicts of a call lack, in the table's `attrs` and on one line for people.

    Args:
        call: what was asked; its remarks on the collection open the line.
        frame, records: the table, and the record of each question.
        remarks: on the table.

    Returns:
        The table.
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
        if isinstance(number, dict):  # reason -> how many
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
    """Count the records with each text under a name; records without one don't count."""
    return dict(Counter(record[name] for record in records if record[name]))
