"""Summaries of a collection: its fingerprint, true scores, cases, rubric levels and lengths."""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from collections.abc import Iterable
from contextlib import suppress

from pandas import DataFrame, Series

from vjudge.data.load import rows_of
from vjudge.data.schema import (
    PICTURE_COLUMNS,
    CollectionError,
    Items,
    as_python,
    features_of,
    id_of,
)
from vjudge.images import ImageError, Pictures
from vjudge.records import as_score, is_missing, lowest_of, row_levels, text_of, unit_of

_CHARACTER = re.compile(  # a character of a script that puts no spaces between words
    "[\u3041-\u30ff\u31f0-\u31ff\uff66-\uff9f"  # kana
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"  # Chinese
    "\u0e01-\u0eff\u1000-\u109f\u1780-\u17ff]"  # Thai, Lao, Khmer, Burmese
)


def fingerprint(items: Items) -> str:
    """Compute the SHA-256 (hex) of all that judges and analyses read: canonical columns, images.

    >>> row = {"id": 1, "instruction": "What is it?", "response": "A cat.", "images": []}
    >>> same = row | {"id": "1", "human_scores": "3;4", "gold": None}
    >>> fingerprint([row | {"human_scores": [3, 4]}]) == fingerprint([same])
    True
    """
    pictures = Pictures()
    digest = hashlib.sha256()
    for row in rows_of(items):
        # Equal rows must give equal cells, however their sources write what is missing.
        cells: dict = {"lowest": lowest_of(row)}
        for name in (*features_of(row), "anchors", "named_criteria"):
            cell = as_python(row.get(name))
            cells[name] = None if cell == [] else cell
        cells["group"] = unit_of(row)
        for column in PICTURE_COLUMNS:
            cells[column] = [_picture_key(source, pictures) for source in row.get(column) or ()]
            if not cells[column] and column != "images":
                del cells[column]  # an empty column counts as an absent one
        text = json.dumps(cells, sort_keys=True, default=str)
        digest.update(text.encode() + b"\n")
    return digest.hexdigest()


def _picture_key(source: object, pictures: Pictures) -> str:
    """Return the key of an image's content; all images that cannot be read share one key."""
    with suppress(ImageError):
        return pictures(source).key
    return "unreadable"


def truth(items: Items) -> Series:
    """Return the true score of each row: `gold`, or the mean of `human_scores` where it has none.

    >>> rows = [{"id": "a", "gold": 4}, {"id": "b", "human_scores": "2;3"}, {"id": "c"}]
    >>> truth(rows).tolist(), truth(rows).name, truth(rows[1:]).name
    ([4.0, 2.5, nan], 'gold or mean of people', 'mean of people')

    Returns:
        One number per row, NaN where nobody scored, with the index of `items` where they are a
        frame (such as a run), else by id. Its `name` says where the numbers come from: "gold",
        "mean of people", or "gold or mean of people" where rows differ. `attrs` counts the rows of
        each source, and "missing".

    Raises:
        CollectionError: no row has either. The truth of pairs is their column `preference`.
    """
    rows = rows_of(items)
    cells = [(id_of(row), as_score(row.get("gold")), row.get("human_scores")) for row in rows]
    table = DataFrame(cells, columns=["id", "gold", "human_scores"])
    scores, sources = gold_else_people(table["gold"], ratings(table["human_scores"]))
    counts = {name: int((sources == name).sum()) for name in ("gold", "mean of people", "missing")}
    used_sources = [name for name in ("gold", "mean of people") if counts[name]]
    if not used_sources and "response_a" in rows.columns:
        raise CollectionError("these rows are pairs: their truth is the column `preference`")
    if not used_sources:
        reason = "no row has a score in gold or human_scores"
        raise CollectionError(f"{reason}: {rows.layout.remedy('gold')}")
    index = items.index if isinstance(items, DataFrame) else table.set_index("id").index
    series = scores.set_axis(index).rename(" or ".join(used_sources))
    series.attrs = counts
    return series


def ratings(human_scores: Iterable) -> DataFrame:
    """Make a table (items, raters) of people's scores, NaN where a rater gave none.

    Args:
        human_scores: a list per item, position = rater; lists may differ in length, or be None.
    """
    lists = [scores or () for scores in human_scores]  # per item
    raters = itertools.zip_longest(*lists)  # per rater a tuple over items, None where it is missing
    return DataFrame(list(raters), columns=range(len(lists)), dtype=float).T


def gold_else_people(gold: Series, people: DataFrame) -> tuple[Series, Series]:
    """Return the true score of each item, and its source: "gold", "mean of people" or "missing".

    Args:
        gold: a score per item, NaN where there is none.
        people: scores (items, raters), as `ratings` makes them.
    """
    # Rounded, because equal means that were summed in another order must tie.
    means = people.mean(axis=1).round(12)
    sources = Series("missing", gold.index).mask(means.notna(), "mean of people")
    return gold.fillna(means), sources.mask(gold.notna(), "gold")


def n_words(text: str) -> int:
    """Count the words of a text, split at white space; a character of a spaceless script is a word.

    >>> n_words("A cat, asleep."), n_words("一只猫")
    (3, 3)
    """
    return len(_CHARACTER.sub(r" \g<0> ", text).split())


def cases(items: Items) -> DataFrame:
    """Find the cases of a collection: the responses to one question.

    Rows belong to one case that have the same group, instruction, reference answer and rubric.

    Returns:
        One row per case, in order of first appearance, with the columns group, instruction,
        criteria, reference (whether there is a reference answer), n (number of responses), scores
        (their gold scores, sorted, without missing ones) and rows (their positions).
    """
    # A table with one row per response, grouped by the columns that make up a question.
    question = ["group", "instruction", "criteria", "reference", "levels"]
    table_rows = []
    for row in rows_of(items):
        cells = [unit_of(row), row.get("instruction"), row.get("criteria")]
        cells += [text_of(row, "reference_answer"), tuple(row.get("descriptions") or ())]
        table_rows.append([*cells, as_score(row.get("gold"))])
    table = DataFrame(table_rows, columns=[*question, "gold"]).rename_axis("row").reset_index()
    grouped = table.groupby(question, sort=False, dropna=False).agg(
        n=("row", "size"),
        scores=("gold", lambda scores: sorted(scores.dropna())),
        rows=("row", list),
    )
    grouped = grouped.reset_index().drop(columns="levels")
    return grouped.assign(reference=grouped["reference"].notna())


def levels(items: Items) -> list:
    """List all whole scores between the lowest and the highest of a collection's rubrics.

    The list is ascending, and empty where no row has a rubric.

    >>> rubric = {"criteria": "Is it right?", "descriptions": ["no", "nearly", "yes"], "lowest": 0}
    >>> levels([{"id": "a"} | rubric])
    [0, 1, 2]
    """
    scores: set = set()
    for row in rows_of(items):
        scores.update(row_levels(row))
    return list(range(min(scores), max(scores) + 1)) if scores else []


def lengths(items: Items) -> DataFrame:
    """Measure each response in words (see `n_words`) and characters; NaN where it is missing.

    Returns:
        One row per item, with the columns id, group, gold, words and characters. The id is missing
        where the row has none, and the group where it has neither group nor id.
    """
    table = []
    for row in rows_of(items):
        text = text_of(row, "response")
        cells: dict = {"id": id_of(row), "gold": as_score(row.get("gold"))}
        # Else all rows without an id would share one group
        if cells["id"] is not None or not is_missing(row.get("group")):
            cells["group"] = unit_of(row)
        if text is not None:
            cells |= {"words": n_words(text), "characters": len(text)}
        table.append(cells)
    return DataFrame(table, columns=["id", "group", "gold", "words", "characters"])
