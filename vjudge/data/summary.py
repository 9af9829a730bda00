"""Whether a collection can be used, what it is known by, its true scores, and what it holds."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy import sparse

from vjudge.data.load import check_pictures, rows_of
from vjudge.data.schema import (
    CollectionError,
    Fault,
    Problem,
    Row,
    features_of,
    id_of,
    plain,
    suggestion,
)
from vjudge.images import ImageError, Pictures
from vjudge.records import (
    as_score,
    criteria_of,
    is_missing,
    lowest_of,
    row_levels,
    rubric_faults,
    text_of,
    unit_of,
)

RUBRIC = frozenset({"criteria", "descriptions"})
UNNAMED = (
    "images",
    "is missing",
    "name it, or give an empty list, which says on purpose that there are none",
)
_CALLS = {
    "rank": "responses",
    "compare": "response_a",
    "grade": "response",
}  # what takes rows with which column
UNSPACED = {  # the signs of scripts without spaces between words
    "kana": "\u3041-\u30ff\u31f0-\u31ff\uff66-\uff9f",
    "Chinese": "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff",
    "Thai, Lao, Khmer, Burmese": "\u0e01-\u0eff\u1000-\u109f\u1780-\u17ff",
}
SPACELESS = "".join(UNSPACED.values())
_CHARACTER = re.compile(rf"[{SPACELESS}]")
_BLOCK = 4_000_000  # numbers held at once by a bootstrap


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
    rows, pictures = rows_of(items), pictures or Pictures()
    if not len(rows):
        raise CollectionError("the collection has no rows; check split= and limit=")
    if sees_images:
        check_pictures(rows)
    problems, first_with, pictured = list[Problem](), dict[str, int](), sees_images
    for index, (row, faults) in enumerate(rows.reads()):
        id, unreadable = id_of(row), {field for field, *_ in faults}
        if "row" not in unreadable:
            first = first_with.setdefault(id, index) if id and id.strip() else None
            if first != index:
                what = "is missing" if first is None else f"is the same as row {first}'s"
                faults.append(("id", what, "give every row its own id"))
            own = _faults(row, rows.columns, pairs, needs, pictures)
            faults += [fault for fault in own if fault[0] not in unreadable]
            faults += [UNNAMED] if row.get("images") is None else []
        problems += [Problem(index, id, *fault) for fault in faults]
        pictured = pictured or bool(row.get("images"))
    if problems := [one for one in problems if pictured or (one.field, one.what) != UNNAMED[:2]]:
        raise CollectionError.of_rows(problems, len(rows))


def _faults(
    row: Row, columns: Sequence[str], pairs: bool | None, needs: Any, pictures: Any
) -> Iterator[Fault]:
    """What is wrong with a canonical row by itself; the arguments are those of `validate`."""
    fill, unknown = "fill it in or leave the row out", "correct it, or give None if unknown"
    missing = "is missing, and the judge's wording shows it"
    pair = ("response_a" in row or "response_b" in row) if pairs is None else pairs
    needs = (() if pair else RUBRIC) if needs is None else needs
    texts = ("instruction", "response_a", "response_b") if pair else ("instruction", "response")
    others = [
        call
        for call, name in _CALLS.items()
        if name in row and name not in texts and pairs is not None
    ]
    for field in texts:
        if field not in row:
            remedy = f"these rows are for `{others[0]}`" if others else suggestion(field, columns)
            yield field, f"there is no column {field}", remedy
        elif text_of(row, field) is None:
            why = f" ({row['fault']})" if isinstance(row.get("fault"), str) else ""
            yield field, f"is missing or blank{why}", fill
    for field in sorted(set(needs) - RUBRIC):
        if text_of(row, field) is None:
            yield field, missing, fill
    if (
        pair
        and not is_missing(row.get("preference"))
        and row["preference"] not in ("a", "b", "tie")
    ):
        yield "preference", f"{row['preference']!r} is not one of a, b and tie", unknown
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
    described = row_levels({**row, "lowest": lowest}) if levels else {}
    if row.get("anchors"):
        levels = described
        lowest = min(levels)
    criteria, named = criteria_of(row.get("named_criteria") or row.get("criteria"))
    faults = rubric_faults(criteria, levels, lowest=lowest, named=named)
    if levels is None:  # no rubric: a fault only where the judge is shown one
        faults = [(field, missing) for field, _ in faults if field in needs]
    for field, what in faults:
        hint = suggestion(field, columns) if field not in row else ""
        remedy = (
            "fill it in" if field == "criteria" else "write one text for each score, all different"
        )
        yield field, what, hint if "`" in hint else remedy
    for field in () if levels is None or faults or pair else ("gold", "human_scores"):
        cell, highest = row.get(field), max(described)
        scores = {
            score
            for score in (cell if isinstance(cell, list) else [cell])
            if isinstance(score, float)
        }
        if off := sorted(score for score in scores if score < lowest or score > highest):
            yield (
                field,
                f"{', '.join(f'{score:g}' for score in off)} is off the rubric ({lowest}-{highest})",
                unknown,
            )


def fingerprint(items: Any, *, pictures: Pictures | None = None) -> str:
    """SHA-256 (hex) over all that a judge or an analysis reads: the canonical columns and the images' contents.

    >>> row = {"id": 1, "instruction": "What is it?", "response": "A cat.", "human_scores": [3, 4], "images": []}
    >>> fingerprint([row]) == fingerprint([row | {"id": "1", "human_scores": "3;4", "gold": None}])
    True
    """
    pictures, digest = pictures or Pictures(), hashlib.sha256()

    def number(score: Any) -> str:
        return "" if is_missing(score) else f"{score:.17g}"

    def key(source: Any) -> str:
        try:
            return str(pictures(source).key)
        except ImageError:
            return "unreadable"

    for row in rows_of(items):
        # One meaning, one form: an absent optional column, None and NaN are the same, and so are 4, 4.0 and "4".
        own = [name for name in ("anchors", "named_criteria") if row.get(name)]
        cells = {name: plain(row.get(name)) for name in (*features_of(row), *own)}
        cells |= {name: cells[name] or None for name in RUBRIC}  # blank is none
        cells |= {
            name: [number(n) for n in cells[name] or ()]
            for name in ("human_scores", "ranks")
            if name in cells
        }
        cells |= {"gold": number(cells["gold"])} if "gold" in cells else {}
        cells |= {
            "id": str(cells["id"]),
            "group": unit_of(cells),
            "lowest": number(as_score(row.get("lowest"))) or "1",
        }
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
    rows, ids, scores = rows_of(items), list[str | None](), list[float]()
    counts: dict[str, Any] = {"gold": 0, "mean of people": 0, "missing": 0}
    for row in rows:
        gold, people = (
            as_score(row.get("gold")),
            [n for n in row.get("human_scores") or () if not is_missing(n)],
        )
        source = (
            "missing"
            if math.isnan(gold) and not people
            else "mean of people"
            if math.isnan(gold)
            else "gold"
        )
        counts[source] += 1
        ids.append(id_of(row))
        scores.append(sum(people) / len(people) if source == "mean of people" else gold)
    names = [name for name in ("gold", "mean of people") if counts[name]]
    if not names:
        hints = [suggestion(field, rows.columns) for field in ("gold", "human_scores")]
        hint, columns = (
            next((text for text in hints if "`" in text), "add one"),
            ", ".join(rows.columns),
        )
        raise CollectionError(
            f"no row has a score in gold or human_scores ({hint}); the columns are {columns}"
        )
    index = (
        items.index if isinstance(items, pd.DataFrame) else pd.Index(ids, dtype=object, name="id")
    )
    series = pd.Series(scores, index=index, dtype=float, name=" or ".join(names))
    weighted = counts["mean of people"] and "weight" in rows.columns
    series.attrs = counts | (
        {"labelled_by": "the review that left a column `weight`"} if weighted else {}
    )
    return series


def n_words(text: str) -> int:
    """The words of a text, split at white space; a character of a script without spaces is a word.

    >>> n_words("A cat, asleep."), n_words("一只猫")
    (3, 3)
    """
    return len(_CHARACTER.sub(r" \g<0> ", text).split())


def cases(items: Any) -> pd.DataFrame:
    """Find the responses to one question: same group, instruction, reference answer and rubric.

    One row a case, in order of first appearance: group, instruction, criteria, reference (whether there is a reference
    answer), n (responses), scores (gold scores, sorted, without the missing), rows (positions).
    """
    found: dict[tuple[Any, ...], list[tuple[int, float]]] = {}
    for position, row in enumerate(rows_of(items)):
        rubric = (row.get("criteria"), tuple(row.get("descriptions") or ()))
        key = (unit_of(row), row["instruction"], text_of(row, "reference_answer"), *rubric)
        found.setdefault(key, []).append((position, as_score(row.get("gold"))))
    lines = []
    for (group, instruction, reference, criteria, _), members in found.items():
        scores = sorted(score for _, score in members if not math.isnan(score))
        rows = [position for position, _ in members]
        lines.append((group, instruction, criteria, reference is not None, len(rows), scores, rows))
    return pd.DataFrame(
        lines, columns=["group", "instruction", "criteria", "reference", "n", "scores", "rows"]
    )


def levels(items: Any) -> list[int]:
    """The scores that the rubrics of a collection have, ascending; empty where it has no rubric.

    >>> levels([{"id": "a", "criteria": "Is it right?", "descriptions": ["no", "nearly", "yes"], "lowest": 0}])
    [0, 1, 2]
    """
    scores = set[int]()
    for row in rows_of(items):
        described = row_levels(row)
        if described:
            scores |= set(range(min(described), max(described) + 1))
    return sorted(scores)


def lengths(items: Any, *, field: str = "response") -> pd.DataFrame:
    """Each item's id, group, gold score, and the words (see `n_words`) and characters of a text; NaN where missing."""
    lines = []
    for row in rows_of(items):
        text = text_of(row, field)
        sizes = (math.nan, math.nan) if text is None else (n_words(text), len(text))
        lines.append((str(row.get("id")), unit_of(row), as_score(row.get("gold")), *sizes))
    return pd.DataFrame(lines, columns=["id", "group", "gold", "words", "characters"])


def length_test(items: Any, *, n_resamples: int = 10_000, seed: int = 0) -> pd.DataFrame:
    """Test whether a response's length tells the gold score.

    AUC is the probability that, of two items with different scores, the one with the higher score has the longer text,
    ties in length counted as half: 0.5 means that length tells nothing. Rows words and characters; columns auc in
    [0, 1] with low and high, its 95 % percentile bootstrap interval over whole groups (NaN for no resamples), n (items
    used) and missing. What is undefined is NaN.

    Source: Hanley and McNeil, Radiology 143 (1982), for the AUC as a probability over pairs.
    """
    table = lengths(items)
    used = table.dropna(subset=["gold", "words"])
    (group, groups), (score, scores) = (
        pd.factorize(used["group"]),
        pd.factorize(used["gold"], sort=True),
    )
    tests = pd.DataFrame(math.nan, ["words", "characters"], ["auc", "low", "high"])
    for unit in tests.index if len(scores) > 1 else ():
        length, distinct = pd.factorize(used[unit], sort=True)
        shape, n = (len(scores), len(distinct)), len(groups)
        cells = (np.ones(len(used)), (group, score * len(distinct) + length))
        by_group = sparse.csr_array(cells, shape=(n, math.prod(shape)))
        tests.loc[unit, "auc"] = _auc(by_group.sum(axis=0).reshape(shape))
        rng, block, draws = np.random.default_rng(seed), max(1, _BLOCK // max(by_group.shape)), []
        for start in range(0, n_resamples if n > 1 else 0, block):
            many = range(min(block, n_resamples - start))
            times = np.stack([np.bincount(rng.integers(n, size=n), minlength=n) for _ in many])
            draws.append(_auc((times @ by_group).reshape(-1, *shape)))
        if draws:
            tests.loc[unit, ["low", "high"]] = np.quantile(np.concatenate(draws), (0.025, 0.975))
    return tests.assign(n=len(used), missing=len(table) - len(used)).rename_axis("unit")


def _auc(table: np.ndarray) -> np.ndarray:
    """AUC of length for score from how often each occurs with each: shape (..., scores, lengths) to (...)."""
    below = np.cumsum(table, axis=-2) - table  # of lower score, at each length
    won = (table * (np.cumsum(below, axis=-1) - below / 2)).sum(axis=(-2, -1))
    per_score = table.sum(axis=-1)
    pairs = (per_score * (np.cumsum(per_score, axis=-1) - per_score)).sum(axis=-1)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(won / pairs)
