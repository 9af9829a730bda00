"""Whether a collection can be used: every bad row is named before a long run starts."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from vjudge.data.layout import Layout
from vjudge.data.load import check_pictures, rows_of
from vjudge.data.rows import Rows, off_scale
from vjudge.data.schema import (
    CollectionError,
    Items,
    Problem,
    Row,
    RowFaults,
    id_of,
    pictures_in,
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
# Reasons and remedies of the problems below
_UNNAMED = "name it, or give an empty list, which says on purpose that there are none"
_KINDS = {  # the column that tells a kind of row -> what such rows hold, and the method for them
    "response": "one response each: use judge.grade(items)",
    "response_a": "two responses each: use judge.compare(pairs)",
    "responses": "several responses each: use judge.rank(candidates)",
}
_FILL = "fill it in or leave the row out"
_CORRECT = "correct it, or give None if unknown"
_NOT_SHOWN = "is missing, and the judge's wording shows it"


def validate(
    items: Items,
    *,
    needs: Collection[str] | None = None,
    sees_images: bool = False,
    pictures: Callable | None = None,
    pairs: bool | None = None,
) -> None:
    """Check a whole collection before a long run.

    Each image is looked at once, and only its header is read.

    Args:
        items: as for `vjudge.data.rows_of`.
        needs: the columns that the judge's prompt template shows, `Template.needs`; None requires
            a rubric of items and nothing of pairs.
        sees_images: whether the judge looks at images. Then a column must name them, though its
            lists may be empty, or responses must be images.
        pictures: the `Pictures` of the call, which opens no file twice.
        pairs: whether rows must have two responses (True) or one (False); None decides per row, by
            its columns.

    Raises:
        CollectionError: the rows are none or of another kind than `pairs` says; or every bad row,
            with what is wrong: its id, texts, rubric, scores, preference or images.

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
    without_images = []  # a problem per row whose column `images` is None
    ids = set()
    any_images = False
    any_response_images = False
    for index, row, faults in rows.checked():
        id = id_of(row)
        if not faults:
            faults = _row_faults(row, rows.layout, needs, pairs, pictures)
            if id is None or id in ids:
                faults.append(("id", "is missing or not unique", "give every row its own id"))
            if row.get("images") is None:
                without_images.append(Problem(index, id, "images", "is missing", _UNNAMED))
        ids.add(id)
        any_images |= bool(row.get("images"))
        any_response_images |= any(map(row.get, RESPONSE_IMAGES.values()))
        problems += problems_of(index, id, faults)
    if sees_images and not problems:
        check_pictures(rows)

    # `images` may be None in all rows, but not in some: those rows were forgotten. A judge that
    # looks at images needs the column unless it sees the responses' images.
    if any_images or (sees_images and not any_response_images):
        problems += without_images
    if problems:
        raise CollectionError.of_rows(problems, len(rows))


def _check_kind(rows: Rows, pairs: bool | None) -> None:
    """Refuse a collection whose columns show that its rows are of another kind than `pairs` says.

    Args:
        rows: canonical rows.
        pairs: True for pairs, False for items; None accepts every kind.
    """
    if pairs is None:
        return
    kinds = _KINDS.keys() & rows.columns
    expected = "response_a" if pairs else "response"
    if len(kinds) == 1 and expected not in kinds:
        raise CollectionError(f"these rows hold {_KINDS[kinds.pop()]}")


def _row_faults(
    row: Row,
    layout: Layout,
    needs: Collection[str] | None,
    pair: bool | None,
    pictures: Callable,
) -> RowFaults:
    """List what is wrong with one canonical row, apart from its id.

    Args:
        row: in canonical form.
        layout: of the row's table, which suggests remedies.
        needs: as for `validate`.
        pair: whether the row must be a pair (True) or an item (False); None decides by its columns.
        pictures: as for `validate`.
    """
    if pair is None:
        pair = "response_a" in row
    if needs is None:
        needs = () if pair else RUBRIC
    faults = layout.missing_texts(row, pair)
    for field in sorted(set(needs).difference(RUBRIC)):
        if text_of(row, field) is None:
            faults.append((field, _NOT_SHOWN, _FILL))
    for column, position, source in pictures_in(row):
        try:
            pictures(source)
        except ImageError as error:
            # Its message is "REASON; REMEDY", and the reason may hold further semicolons.
            reason, _, remedy = str(error).rpartition("; ")
            faults.append((f"{column}[{position}]", reason, remedy))
    # Scores can be compared with a valid rubric only; pairs have a preference in their place.
    rubric = _rubric_faults(row, needs)
    if not rubric and not pair:
        return faults + _score_faults(row)
    return faults + rubric


def _rubric_faults(row: Row, needs: Collection[str]) -> RowFaults:
    """List what is wrong with a row's rubric.

    Args:
        row: in canonical form.
        needs: the columns that the judge is shown. A row that has no level descriptions is at
            fault only in these.
    """
    try:
        lowest = lowest_of(row)
    except ValueError as error:
        remedy = "give the score of the first description, or None for 1"
        return [("lowest", str(error), remedy)]
    # Levels are texts that count from the lowest score, or with anchors a mapping score -> text,
    # whose lowest score a column `lowest` may repeat but not contradict.
    levels = row.get("descriptions") or None
    faults = []
    if row.get("anchors"):
        levels = row_levels(row)
        if not is_missing(row.get("lowest")) and lowest != min(levels):
            reason = f"{lowest} is not the lowest anchor {min(levels)}"
            faults.append(("lowest", reason, "leave it out"))
    criteria, named = criteria_of(row.get("named_criteria") or row.get("criteria"))
    for field, reason in rubric_faults(criteria, levels, lowest=lowest, named=named):
        if levels is None:  # a row without a rubric has a fault only where the judge is shown one
            if field not in needs:
                continue
            reason = _NOT_SHOWN
        remedy = _FILL if field == "criteria" else "give one text a score, all different"
        faults.append((field, reason, remedy))
    return faults


def _score_faults(row: Row) -> RowFaults:
    """Return a fault per column in which some score is off the scale of the row's rubric."""
    faults = []
    for field in ("gold", "human_scores"):
        off = off_scale(row, field)
        if off:
            listed = ", ".join(map("{:g}".format, off))
            levels = row_levels(row)
            reason = f"{listed} is off the rubric ({min(levels)}-{max(levels)})"
            faults.append((field, reason, _CORRECT))
    return faults


def check_rows(
    rows: Sequence[Row], field: str, is_valid: Sequence[bool], reason: str, remedy: str
) -> None:
    """Raise one error that names every row with an invalid field, or without an id of its own.

    Args:
        rows: canonical rows.
        field: the column that the caller checked.
        is_valid: for each row whether the field is valid.
        reason, remedy: texts reported for each row whose field is invalid.

    Raises:
        CollectionError: names every such row; of rows with the same id all but the first.
    """
    problems = []
    seen = set()
    for index, row in enumerate(rows):
        id = id_of(row)
        if id is None or id in seen:
            fault = "is missing" if id is None else "is not unique"
            problems.append(Problem(index, id, "id", fault, "give every row its own id"))
        if not is_valid[index]:
            problems.append(Problem(index, id, field, reason, remedy))
        seen.add(id)
    if problems:
        raise CollectionError.of_rows(problems, len(rows))
