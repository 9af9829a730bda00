"""What must hold of a collection before a long run, its fingerprint, and its true scores."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import pandas as pd

from vjudge.data.load import rows_of
from vjudge.data.schema import CollectionError, Fault, Problem, Row, features_of, id_of, plain, suggestion
from vjudge.images import ImageError, Pictures
from vjudge.records import as_score, is_missing, lowest_of, rubric_faults, text_of, unit_of

RUBRIC = frozenset({"criteria", "descriptions"})
_CALLS = {"rank": "responses", "compare": "response_a", "grade": "response"}  # what takes rows with which column
_NONE_ON_PURPOSE = "an `images` column of empty lists says on purpose that there are none"


def validate(
    items: Any,
    *,
    needs: Collection[str] | None = None,
    sees_images: bool = False,
    pictures: Callable[[Any], Any] | None = None,
    pairs: bool | None = None,
) -> None:
    """Check a whole collection before a long run; each distinct image is looked at once, by its header.

    Args:
        items: as for `vjudge.data.rows_of`.
        needs: what else the judge's wording shows, `Template.needs`; None asks items for a rubric, pairs for none.
        sees_images: whether the judge looks at images: then one column must name them, if only as empty lists.
        pictures: the `Pictures` of the call, which opens no file twice.
        pairs: whether rows must hold two responses, or one; None takes each row by its columns.

    CollectionError names every bad row: its id, texts, rubric, scores, preference or images.

    >>> validate([{"id": "a", "instruction": "What is it?", "answer": "A cat.", "images": []}], needs=())
    Traceback (most recent call last):
    vjudge.data.schema.CollectionError: 1 of 1 rows cannot be used:
      row 0 (id 'a'), response: there is no column response; `answer` looks like it: rename it
    """
    rows, pictures = rows_of(items), Pictures() if pictures is None else pictures
    problems, unnamed = list[Problem](), list[Problem]()
    first_with, pictured = dict[str, int](), False
    for index, (row, faults) in enumerate(rows.reads()):
        id, unreadable = id_of(row), {field for field, *_ in faults}
        if "row" not in unreadable:
            if id is None or not id.strip():
                faults.append(("id", "is missing", "give every row its own id"))
            elif first_with.setdefault(id, index) != index:
                faults.append(("id", f"is the same as row {first_with[id]}'s", "give every row its own id"))
            own = _faults(row, rows.columns, pairs, needs, pictures)
            faults += [fault for fault in own if fault[0] not in unreadable]
            if row.get("images") is None:
                remedy = f"name it, or give an empty list: {_NONE_ON_PURPOSE}"
                unnamed.append(Problem(index, id, "images", "is missing", remedy))
        problems += [Problem(index, id, *fault) for fault in faults]
        pictured = pictured or bool(row.get("images"))
    if not len(rows):
        raise CollectionError("the collection has no rows; check split= and limit=")
    if sees_images and len(unnamed) == len(rows):
        check_pictures(rows)
    problems += unnamed if pictured or sees_images else []
    if problems:
        raise CollectionError.of_rows(sorted(problems, key=lambda problem: problem.index), len(rows))


def check_pictures(items: Any) -> None:
    """Refuse with a CollectionError rows among which no column names a picture, for a model that looks at pictures."""
    rows = rows_of(items)
    if not len(rows) or any(row.get("images") is not None for row, _ in rows.reads()):
        return
    names = dict.fromkeys(str(name) for row, _ in rows.reads() for name, cell in row.items() if not is_missing(cell))
    hint = suggestion("images", names)
    hint = f"{hint} to `images`" if "`" in hint else "add a column `images` with paths, or rename yours"
    raise CollectionError(
        f"this judge looks at pictures, and no column names one (the columns are {', '.join(names)}): {hint};"
        f" {_NONE_ON_PURPOSE}"
    )


def _faults(row: Row, columns: Sequence[str], pairs: bool | None, needs: Any, pictures: Any) -> Iterator[Fault]:
    """What is wrong with a canonical row by itself; the arguments are those of `validate`."""
    fill = "fill it in or leave the row out"
    pair = ("response_a" in row or "response_b" in row) if pairs is None else pairs
    for field in ("instruction", "response_a", "response_b") if pair else ("instruction", "response"):
        if field not in row:
            calls = [call for call, name in _CALLS.items() if name in row and call != ("compare" if pair else "grade")]
            other = f"these rows are for `{calls[0]}`" if calls and pairs is not None else suggestion(field, columns)
            yield field, f"there is no column {field}", other
        elif not str(row[field] or "").strip():
            why = f" ({row['fault']})" if isinstance(row.get("fault"), str) else ""
            yield field, f"is missing or blank{why}", fill
    for field in sorted(set(needs or ()) - RUBRIC):
        if text_of(row, field) is None:
            yield field, "is missing, and the judge's wording shows it", fill
    if pair and not is_missing(row.get("preference")) and row["preference"] not in ("a", "b", "tie"):
        yield "preference", f"{row['preference']!r} is not one of a, b and tie", "correct it, or give None if unknown"
    for position, source in enumerate(row.get("images") or ()):
        try:
            pictures(source)
        except ImageError as error:
            what, _, remedy = str(error).rpartition("; ")
            yield f"images[{position}]", what, remedy
    levels, lowest = row.get("descriptions") or None, 1
    try:
        lowest = lowest_of(row)
    except ValueError as error:
        yield "lowest", str(error), "give the score of the first description, or None for 1"
    faults = rubric_faults(row.get("criteria"), levels, lowest=lowest)
    if levels is None:  # no rubric: a fault only where the judge is shown one
        why = "" if needs is None else ", and the judge's wording shows it"
        needs = (() if pair else RUBRIC) if needs is None else needs
        faults = [(field, f"is missing{why}") for field, _ in faults if field in needs]
    for field, what in faults:
        hint = suggestion(field, columns) if field not in row else ""
        remedy = "fill it in" if field == "criteria" else "write one text for each score, all different"
        yield field, what, hint if "`" in hint else remedy
    for field in () if levels is None or faults or pair else ("gold", "human_scores"):
        cell, highest = row.get(field), lowest + len(levels or ()) - 1
        scores = {score for score in (cell if isinstance(cell, list) else [cell]) if isinstance(score, float)}
        if off := sorted(score for score in scores if score < lowest or score > highest):
            what = f"{', '.join(f'{score:g}' for score in off)} is off the rubric ({lowest}-{highest})"
            yield field, what, "correct it, or give None if unknown"


def fingerprint(items: Any, *, pictures: Pictures | None = None) -> str:
    """SHA-256 (hex) over all that a judge or an analysis reads: the canonical columns and the images' contents.

    >>> row = {"id": 1, "instruction": "What is it?", "response": "A cat.", "human_scores": [3, 4], "images": []}
    >>> fingerprint([row]) == fingerprint([row | {"id": "1", "human_scores": "3;4", "gold": None}])
    True
    """
    pictures, digest = Pictures() if pictures is None else pictures, hashlib.sha256()

    def number(score: Any) -> str:
        return "" if is_missing(score) else f"{score:.17g}"

    def key(source: Any) -> str:
        try:
            return str(pictures(source).key)
        except ImageError:
            return "unreadable"

    for row in rows_of(items):
        # One meaning, one form: an absent optional column, None and NaN are the same, and so are 4, 4.0 and "4".
        cells = {name: plain(row.get(name)) for name in features_of(row)}
        cells |= {name: cells[name] or None for name in RUBRIC}  # blank is none
        cells |= {name: [number(n) for n in cells[name] or ()] for name in ("human_scores", "ranks") if name in cells}
        cells |= {"gold": number(cells["gold"])} if "gold" in cells else {}
        cells |= {"id": str(cells["id"]), "group": unit_of(cells), "lowest": number(as_score(row.get("lowest"))) or "1"}
        cells["images"] = [key(source) for source in cells["images"] or ()]
        digest.update(json.dumps(cells, sort_keys=True, default=str).encode() + b"\n")
    return digest.hexdigest()


def truth(items: Any) -> pd.Series:
    """The score that a judge's is held against: gold where there is one, else the mean of the people's.

    One number a row, NaN where nobody scored, with the index of a frame (such as a run), else by id. Its `name` says
    which it is: "gold", "mean of people", or "gold or mean of people" where rows differ; `attrs` counts the rows of
    each, and says in `labelled_by` that a review chose the items by their `weight`. CollectionError: no row has either.

    >>> rows = [{"id": "a", "gold": 4}, {"id": "b", "human_scores": "2;3"}, {"id": "c"}]
    >>> truth(rows).tolist(), truth(rows).name, truth(rows[1:]).name
    ([4.0, 2.5, nan], 'gold or mean of people', 'mean of people')
    """
    rows = rows_of(items)
    lines = [(id_of(row), as_score(row.get("gold")), row.get("human_scores") or ()) for row in rows]
    given = [[rating for rating in ratings if not is_missing(rating)] for _, _, ratings in lines]
    people = [sum(ratings) / len(ratings) if ratings else math.nan for ratings in given]
    index = (
        items.index if isinstance(items, pd.DataFrame) else pd.Index([id for id, *_ in lines], dtype=object, name="id")
    )
    gold = pd.Series([score for _, score, _ in lines], index=index, dtype=float)
    series = gold.where(gold.notna(), pd.Series(people, index=index, dtype=float))
    n_gold, n_missing = int(gold.notna().sum()), int(series.isna().sum())
    counts = {"gold": n_gold, "mean of people": len(series) - n_gold - n_missing}
    names = [name for name, count in counts.items() if count]
    if not names:
        hints = [suggestion(field, rows.columns) for field in ("gold", "human_scores")]
        hint, columns = next((text for text in hints if "`" in text), "add one"), ", ".join(rows.columns)
        raise CollectionError(f"no row has a score in gold or human_scores ({hint}); the columns are {columns}")
    series.name, series.attrs = " or ".join(names), {**counts, "missing": n_missing}
    if counts["mean of people"] and "weight" in rows.columns:
        series.attrs["labelled_by"] = "the review that left a column `weight`"
    return series
