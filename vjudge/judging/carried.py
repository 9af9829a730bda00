"""The cells of a row that its run repeats: scale, gold, human scores, the collection's own columns.

So a table of verdicts is complete without its collection: `vjudge.metrics` needs only a run.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import date, time
from typing import Any

from vjudge.data.schema import PICTURE_COLUMNS, Row
from vjudge.judging.record import Record, json_value
from vjudge.prompts import Template
from vjudge.records import NAN, Subject

CARRIED = tuple("gold human_scores preference group criteria category policy_a policy_b".split())
"""Canonical columns that a run repeats. It also repeats all columns that the collection adds."""
NOT_CARRIED = frozenset(
    "id instruction response response_a response_b responses ranks reference_answer"
    " descriptions anchors named_criteria lowest feedback context fault".split()
).union(PICTURE_COLUMNS)
"""Canonical columns that a run does not repeat."""
VERDICT_COLUMNS = frozenset(
    "judge sample score raw failure expected_score probabilities probability_mass closed choice"
    " scores reasoning served_model remarks unclosed asked order n_prompt_tokens n_new_tokens"
    " seconds verdict consistent probability_a verdict_ab verdict_ba scores_ab scores_ba"
    " feedback_ab feedback_ba raw_ab raw_ba votes_a votes_b votes_tie votes_missing"
    " draws score_a score_b n missing highest sees_image"
    " candidate value rank best true_rank".split()
)
"""The columns of a run that hold verdicts; a column of such a name in the collection is renamed."""


def carried_cells(
    template: Template, rows: Sequence[Row], subjects: Sequence[Subject], origin: Record
) -> tuple[list[Record], list[str]]:
    """Collect the cells that a run repeats of each row, as JSON values.

    A column that the collection adds under the name of a verdict's column is renamed: "score"
    becomes "item_score". A column with a cell that JSON can't hold, such as bytes, is left out of
    all rows.

    Args:
        template: of the call; it decides the scale and whether images are shown.
        rows, subjects: the same rows, as canonical rows and as items or pairs.
        origin: of the collection, see `vjudge.data.origin`.

    Returns:
        The cells of each row; and at most two remarks, on renamed columns and on those left out.
    """
    # 1) the canonical and the added cells of each row, and the columns that JSON can't hold
    cells_of_rows = []
    added_of_rows = []
    unwritable: dict[str, None] = {}  # the columns, as a set that keeps its order
    for row, subject in zip(rows, subjects, strict=True):
        cells_of_rows.append(json_value(_canonical_cells(template, row, subject, origin)))
        added_of_rows.append(_added_cells(row, unwritable))

    # 2) add them to one another; an added column may not take the name of a verdict's column
    renamed = {}  # old name -> new name
    for cells, added in zip(cells_of_rows, added_of_rows, strict=True):
        for name, cell in added.items():
            if name in unwritable:
                continue
            if name in VERDICT_COLUMNS:
                renamed[name] = f"item_{name}"
            cells[renamed.get(name, str(name))] = cell

    remarks = []
    if renamed:
        names = ", ".join(f"{old} as {new}" for old, new in renamed.items())
        remarks.append(f"the collection's columns of a verdict's name are kept: {names}")
    if unwritable:
        names = ", ".join(map(str, unwritable))
        remarks.append(f"the collection's {names} can't be written as JSON and are left out")
    return cells_of_rows, remarks


def _added_cells(row: Row, unwritable: dict[str, None]) -> Record:
    """Read the cells that the collection adds to a row.

    Args:
        row: a canonical row.
        unwritable: columns to pass over; a column whose cell JSON can't hold is added to it.
    """
    cells = {}
    for name, cell in row.items():
        if name in CARRIED or name in NOT_CARRIED or name in unwritable:
            continue
        try:
            text = json.dumps(json_value(cell), allow_nan=False, default=_date_text)
        except (TypeError, ValueError, RecursionError):
            unwritable[name] = None
        else:
            cells[name] = json.loads(text)
    return cells


def _canonical_cells(template: Template, row: Row, subject: Subject, origin: Record) -> Record:
    """Collect a row's scale, whether the judge sees an image of it, and its canonical columns."""
    # 1) the ends of the scale: that of the weighted mean of several criteria, or of the single
    # score; NaN for a value head's unbounded number
    bounds = template.scale or (NAN, NAN)
    scores = template.scores(subject.rubric)
    if subject.rubric and subject.rubric.named:
        bounds = subject.rubric.bounds
    elif scores:
        bounds = (scores[0], scores[-1])
    lowest, highest = map(float, bounds)
    sees = template.sees_images and has_pictures(subject)
    cells = {"lowest": lowest, "highest": highest, "sees_image": sees}
    if origin.get("benchmark"):
        cells["benchmark"] = origin["benchmark"]

    # 2) the canonical columns; the group and the criteria are those of the item or pair, which has
    # its criteria in a rubric if the template shows one
    criteria = getattr(subject.rubric or subject, "criteria", None)
    canonical = {**row, "group": subject.group, "criteria": criteria}
    return cells | {name: canonical[name] for name in CARRIED if name in canonical}


def has_pictures(subject: Subject) -> bool:
    """Whether a row has an image that a judge can be shown, of the question or of a response."""
    return any(getattr(subject, name, ()) for name in PICTURE_COLUMNS)


def _date_text(value: Any) -> str | None:
    """Write a date or a time as text, None where it is missing (pandas' NaT).

    Raises:
        TypeError: for anything else, which JSON can't hold.
    """
    if not isinstance(value, date | time):
        raise TypeError
    return value.isoformat() if value == value else None
