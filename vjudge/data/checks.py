"""Whether a collection can be used: every bad row, named before a long run."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from vjudge.data.load import check_pictures, rows_of
from vjudge.data.rows import Rows, off_scale
from vjudge.data.schema import (
    PICTURE_COLUMNS,
    CollectionError,
    Items,
    Problem,
    Row,
    id_of,
    problems_of,
)
from vjudge.images import ImageError, Pictures
from vjudge.records import (
    RESPONSE_IMAGES,
    criteria_of,
    is_missing,
    lowest_of,
    row_levels,
    rubric_faults,
    text_of,
)

RUBRIC: Collection[str] = ("criteria", "descriptions")
_UNNAMED = "name it, or give an empty list, which says on purpose that there are none"
_KINDS = {
    "response": "one response each: use judge.grade(items)",
    "response_a": "two responses each: use judge.compare(pairs)",
    "responses": "several responses each: use judge.rank(candidates)",
}
_FILL = "fill it in or leave the row out"
_CORRECT = "correct it, or give None if unknown"


def validate(
    items: Items,
    *,
    needs: Collection[str] | None = None,
    sees_images: bool = False,
    pictures: Callable | None = None,
    pairs: bool | None = None,
) -> None:
    """Check a whole collection before a long run; each image is looked at once, by its header.

    Args:
        items: as for `vjudge.data.rows_of`.
        needs: what else the judge's wording shows, `Template.needs`; None asks items for a rubric,
            pairs for none.
        sees_images: whether the judge looks at images: then one column must name them, if only as
            empty lists, or the responses are pictures.
        pictures: the `Pictures` of the call, which opens no file twice.
        pairs: whether rows must hold two responses, or one; None takes each row by its columns.

    Raises:
        CollectionError: every bad row: its id, texts, rubric, scores, preference or images.

    >>> validate([{"id": "a", "instruction": "What?", "response": "", "images": []}], needs=())
    Traceback (most recent call last):
    vjudge.data.schema.CollectionError: 1 of 1 rows cannot be used:
      row 0 (id 'a'), response: is missing or blank; fill it in (column `response`), or leave it out
    """
    rows = rows_of(items)
    pictures = pictures or Pictures()
    if not len(rows):
        raise CollectionError("the collection has no rows; check split= and limit=")
    _check_kind(rows, pairs)
    problems = []
    unnamed = []
    ids = set()
    pictured = False  # whether some row has a picture beside its responses
    answered = False  # whether some response has one
    for index, row, faults in rows.reads(range(len(rows))):
        id = id_of(row)
        if not faults:
            pair = "response_a" in row if pairs is None else pairs
            needed = needs if pair or needs is not None else RUBRIC
            faults = rows.layout.lacking(row, pair)
            faults += _row_faults(row, pair, needed or (), pictures)
            if id is None or id in ids:
                faults.append(("id", "is missing or not unique", "give every row its own id"))
            if row.get("images") is None:
                unnamed.append(Problem(index, id, "images", "is missing", _UNNAMED))
        ids.add(id)
        pictured = pictured or bool(row.get("images"))
        answered = answered or any(map(row.get, RESPONSE_IMAGES.values()))
        problems += problems_of(index, id, faults)
    if sees_images and not problems:
        check_pictures(rows)
    if pictured or (sees_images and not answered):  # where no row has one, none is missing
        problems += unnamed
    if problems:
        raise CollectionError.of_rows(problems, len(rows))


def _row_faults(row: Row, pair: bool, needs: Collection, pictures: Callable) -> list:
    faults = []
    for field in sorted(set(needs).difference(RUBRIC)):
        if text_of(row, field) is None:
            faults.append((field, "is missing, and the judge's wording shows it", _FILL))
    for column in PICTURE_COLUMNS:
        for position, source in enumerate(row.get(column) or ()):
            try:
                pictures(source)
            except ImageError as error:
                reason, _, remedy = str(error).rpartition("; ")
                faults.append((f"{column}[{position}]", reason, remedy))
    return faults + list(_rubric_faults(row, pair, needs))


def _check_kind(rows: Rows, pairs: bool | None) -> None:
    """Refuse rows of pairs where items are asked for, and the other way round."""
    kinds = _KINDS.keys() & rows.columns
    expected = {None: kinds, True: {"response_a"}, False: {"response"}}[pairs]
    if len(kinds) == 1 and kinds != expected:
        raise CollectionError(f"these rows hold {_KINDS[kinds.pop()]}")


def _rubric_faults(row: Row, pair: bool, needs: Collection) -> Iterator:
    """What keeps the rubric from being one, and scores that lie off it."""
    try:
        lowest = lowest_of(row)
    except ValueError as error:
        yield "lowest", str(error), "give the score of the first description, or None for 1"
        return
    levels = row.get("descriptions") or None
    if row.get("anchors"):
        levels = row_levels(row)
        if not is_missing(row.get("lowest")) and lowest != min(levels):
            yield "lowest", f"{lowest} is not the lowest anchor {min(levels)}", "leave it out"
    criteria, named = criteria_of(row.get("named_criteria") or row.get("criteria"))
    faults = rubric_faults(criteria, levels, lowest=lowest, named=named)
    if levels is None:  # no rubric: a fault only where the judge is shown one
        reason = "is missing, and the judge's wording shows it"
        faults = [(field, reason) for field, _ in faults if field in needs]
    for field, reason in faults:
        remedy = _FILL if field == "criteria" else "give one text a score, all different"
        yield field, reason, remedy
    if levels is None or faults or pair:
        return
    for field in ("gold", "human_scores"):
        off = off_scale(row, field)
        if off:
            listed = ", ".join(map("{:g}".format, off))
            described = row_levels(row)
            reason = f"{listed} is off the rubric ({min(described)}-{max(described)})"
            yield field, reason, _CORRECT
