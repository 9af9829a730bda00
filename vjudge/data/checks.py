"""Whether a collection can be used: every bad row, named before a long run."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

from vjudge.data.load import check_pictures, rows_of
from vjudge.data.schema import CollectionError, Fault, Problem, Row, id_of, suggestion
from vjudge.images import ImageError, Pictures
from vjudge.records import criteria_of, is_missing, lowest_of, row_levels, rubric_faults, text_of

RUBRIC = frozenset({"criteria", "descriptions"})
_UNNAMED = (
    "images",
    "is missing",
    "name it, or give an empty list, which says on purpose that there are none",
)
_CALLS = {"responses": "rank", "response_a": "compare", "response": "grade"}  # for which rows
_FILL = "fill it in or leave the row out"
_CORRECT = "correct it, or give None if unknown"


def validate(
    items: Any,
    *,
    needs: Collection[str] | None = None,
    sees_images: bool = False,
    pictures: Callable[[Any], Any] | None = None,
    pairs: bool | None = None,
) -> None:
    """Check a whole collection before a long run; each image is looked at once, by its header.

    Args:
        items: as for `vjudge.data.rows_of`.
        needs: what else the judge's wording shows, `Template.needs`; None asks items for a rubric,
            pairs for none.
        sees_images: whether the judge looks at images: then one column must name them, if only as
            empty lists.
        pictures: the `Pictures` of the call, which opens no file twice.
        pairs: whether rows must hold two responses, or one; None takes each row by its columns.

    Raises:
        CollectionError: every bad row: its id, texts, rubric, scores, preference or images.

    >>> validate([{"id": "a", "instruction": "What?", "answer": "A cat.", "images": []}], needs=())
    Traceback (most recent call last):
    vjudge.data.schema.CollectionError: 1 of 1 rows cannot be used:
      row 0 (id 'a'), response: there is no column response; `answer` looks like it: rename it
    """
    rows = rows_of(items)
    pictures = pictures or Pictures()
    if not len(rows):
        raise CollectionError("the collection has no rows; check split= and limit=")
    if sees_images:
        check_pictures(rows)
    problems = list[Problem]()
    first_with = dict[str, int]()
    pictured = sees_images
    for index, (row, faults) in enumerate(rows.reads()):
        id = id_of(row)
        unreadable = {field for field, *_ in faults}
        if "row" not in unreadable:
            first = first_with.setdefault(id, index) if id and id.strip() else None
            if first != index:
                what = "is missing" if first is None else f"is the same as row {first}'s"
                faults.append(("id", what, "give every row its own id"))
            pair = ("response_a" in row or "response_b" in row) if pairs is None else pairs
            shown = (() if pair else RUBRIC) if needs is None else needs
            own = itertools.chain(
                _text_faults(row, rows.columns, pair, shown, by_call=pairs is not None),
                _image_faults(row, pictures),
                _rubric_faults(row, rows.columns, pair, shown),
            )
            faults += [fault for fault in own if fault[0] not in unreadable]
            if row.get("images") is None:
                faults.append(_UNNAMED)
        problems += [Problem(index, id, *fault) for fault in faults]
        pictured = pictured or bool(row.get("images"))
    if not pictured:  # where no row has a picture, none is missing
        problems = [one for one in problems if (one.field, one.what) != _UNNAMED[:2]]
    if problems:
        raise CollectionError.of_rows(problems, len(rows))


def _text_faults(
    row: Row, columns: Sequence[str], pair: bool, needs: Collection[str], *, by_call: bool
) -> Iterator[Fault]:
    """Missing texts, and a preference that is none."""
    texts = ("instruction", "response_a", "response_b") if pair else ("instruction", "response")
    for field in texts:
        if field not in row:
            others = [name for name in _CALLS if name in row and name not in texts]
            remedy = suggestion(field, columns)
            if others and by_call:
                remedy = f"these rows are for `{_CALLS[others[0]]}`"
            yield field, f"there is no column {field}", remedy
        elif text_of(row, field) is None:
            why = f" ({row['fault']})" if isinstance(row.get("fault"), str) else ""
            yield field, f"is missing or blank{why}", _FILL
    for field in sorted(set(needs) - RUBRIC):
        if text_of(row, field) is None:
            yield field, "is missing, and the judge's wording shows it", _FILL
    preference = row.get("preference")
    if pair and not is_missing(preference) and preference not in ("a", "b", "tie"):
        yield "preference", f"{preference!r} is not one of a, b and tie", _CORRECT


def _image_faults(row: Row, pictures: Callable[[Any], Any]) -> Iterator[Fault]:
    for position, source in enumerate(row.get("images") or ()):
        try:
            pictures(source)
        except ImageError as error:
            what, _, remedy = str(error).rpartition("; ")
            yield f"images[{position}]", what, remedy


def _rubric_faults(
    row: Row, columns: Sequence[str], pair: bool, needs: Collection[str]
) -> Iterator[Fault]:
    """What keeps the rubric from being one, and scores that lie off it."""
    levels = row.get("descriptions") or None
    lowest = 1
    try:
        lowest = lowest_of(row)
    except ValueError as error:
        yield "lowest", str(error), "give the score of the first description, or None for 1"
    described = row_levels({**row, "lowest": lowest}) if levels else {}
    if row.get("anchors"):
        levels = described
        lowest = min(described)
    criteria, named = criteria_of(row.get("named_criteria") or row.get("criteria"))
    faults = rubric_faults(criteria, levels, lowest=lowest, named=named)
    if levels is None:  # no rubric: a fault only where the judge is shown one
        what = "is missing, and the judge's wording shows it"
        faults = [(field, what) for field, _ in faults if field in needs]
    for field, what in faults:
        remedy = "write one text for each score, all different"
        if field == "criteria":
            remedy = "fill it in"
        hint = suggestion(field, columns) if field not in row else ""
        yield field, what, hint if "`" in hint else remedy
    if levels is None or faults or pair:
        return
    for field in ("gold", "human_scores"):
        yield from _scale_faults(field, row.get(field), lowest, max(described))


def _scale_faults(field: str, cell: Any, lowest: int, highest: int) -> Iterator[Fault]:
    scores = cell if isinstance(cell, list) else [cell]
    off = {score for score in scores if isinstance(score, float)}
    off = {score for score in off if score < lowest or score > highest}
    if off:
        listed = ", ".join(f"{score:g}" for score in sorted(off))
        yield field, f"{listed} is off the rubric ({lowest}-{highest})", _CORRECT
