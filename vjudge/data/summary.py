"""What a collection is known by, its true scores, and what it holds."""

from __future__ import annotations

import hashlib
import json
import math
import re
from contextlib import suppress
from typing import Any

import pandas as pd

from vjudge.data.load import rows_of
from vjudge.data.schema import CollectionError, features_of, id_of, plain
from vjudge.images import ImageError, Pictures
from vjudge.records import as_score, is_missing, lowest_of, row_levels, text_of, unit_of

UNSPACED = {  # the signs of scripts without spaces between words
    "kana": "\u3041-\u30ff\u31f0-\u31ff\uff66-\uff9f",
    "Chinese": "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff",
    "Thai, Lao, Khmer, Burmese": "\u0e01-\u0eff\u1000-\u109f\u1780-\u17ff",
}
SPACELESS = "".join(UNSPACED.values())
_CHARACTER = re.compile(rf"[{SPACELESS}]")


def fingerprint(items: Any) -> str:
    """SHA-256 (hex) over all that a judge or an analysis reads: canonical columns and images.

    >>> row = {"id": 1, "instruction": "What is it?", "response": "A cat.", "images": []}
    >>> same = row | {"id": "1", "human_scores": "3;4", "gold": None}
    >>> fingerprint([row | {"human_scores": [3, 4]}]) == fingerprint([same])
    True
    """
    pictures = Pictures()
    digest = hashlib.sha256()
    for row in rows_of(items):
        cells: dict[str, Any] = {"lowest": lowest_of(row)}
        for name in (*features_of(row), "anchors", "named_criteria"):
            cell = plain(row.get(name))
            cells[name] = None if cell == [] else cell
        cells["group"] = unit_of(row)
        cells["images"] = []
        for source in row.get("images") or ():
            key = "unreadable"
            with suppress(ImageError):
                key = pictures(source).key
            cells["images"].append(key)
        line = json.dumps(cells, sort_keys=True, default=str)
        digest.update(line.encode() + b"\n")
    return digest.hexdigest()


def truth(items: Any) -> pd.Series:
    """The score that a judge's is held against: gold where there is one, else the mean of people's.

    >>> rows = [{"id": "a", "gold": 4}, {"id": "b", "human_scores": "2;3"}, {"id": "c"}]
    >>> truth(rows).tolist(), truth(rows).name, truth(rows[1:]).name
    ([4.0, 2.5, nan], 'gold or mean of people', 'mean of people')

    Returns:
        One number a row, NaN where nobody scored, with the index of a frame (such as a run), else
        by id. Its `name` says which it is: "gold", "mean of people", or "gold or mean of people"
        where rows differ. `attrs` counts the rows of each.

    Raises:
        CollectionError: no row has either.
    """
    rows = rows_of(items)
    scores = []
    counts: dict[str, Any] = {
        "gold": 0,
        "mean of people": 0,
        "missing": 0,
    }
    for row in rows:
        gold = as_score(row.get("gold"))
        people = [rating for rating in row.get("human_scores") or () if not is_missing(rating)]
        source = "missing"
        if not math.isnan(gold):
            source = "gold"
        elif people:
            source = "mean of people"
            gold = sum(people) / len(people)
        counts[source] += 1
        scores.append(gold)
    names = [name for name in ("gold", "mean of people") if counts[name]]
    if not names:
        columns = ", ".join(rows.columns)
        what = f"no row has a score in gold or human_scores (the columns are {columns})"
        raise CollectionError(f"{what}: rename yours")
    index = pd.Index([id_of(row) for row in rows], dtype=object, name="id")
    if isinstance(items, pd.DataFrame):
        index = items.index
    series = pd.Series(scores, index=index, name=" or ".join(names))
    series.attrs = counts
    return series


def n_words(text: str) -> int:
    """The words of a text, split at white space; a character of a spaceless script is a word.

    >>> n_words("A cat, asleep."), n_words("一只猫")
    (3, 3)
    """
    return len(_CHARACTER.sub(r" \g<0> ", text).split())


def cases(items: Any) -> pd.DataFrame:
    """Find the responses to one question: same group, instruction, reference answer and rubric.

    Returns:
        One row a case, in order of first appearance: group, instruction, criteria, reference
        (whether there is a reference answer), n (responses), scores (gold scores, sorted, without
        the missing), rows (positions).
    """
    lines: list[Any] = []
    for row in rows_of(items):
        line = {
            "group": unit_of(row),
            "instruction": row.get("instruction"),
            "criteria": row.get("criteria"),
            "reference": text_of(row, "reference_answer"),
            "levels": tuple(row.get("descriptions") or ()),
            "gold": as_score(row.get("gold")),
            "row": len(lines),
        }
        lines.append(line)
    question = ["group", "instruction", "criteria", "reference", "levels"]
    table = pd.DataFrame(lines, columns=[*question, "gold", "row"])
    found = table.groupby(question, sort=False, dropna=False).agg(
        n=("row", "size"),
        scores=("gold", lambda scores: sorted(scores.dropna())),
        rows=("row", list),
    )
    found = found.reset_index().drop(columns="levels")
    return found.assign(reference=found["reference"].notna())


def levels(items: Any) -> list[int]:
    """The scores that the rubrics of a collection have, ascending; empty where it has no rubric.

    >>> rubric = {"criteria": "Is it right?", "descriptions": ["no", "nearly", "yes"], "lowest": 0}
    >>> levels([{"id": "a"} | rubric])
    [0, 1, 2]
    """
    scores = set[int]()
    for row in rows_of(items):
        scores.update(row_levels(row))
    return list(range(min(scores), max(scores) + 1)) if scores else []


def lengths(items: Any, *, field: str = "response") -> pd.DataFrame:
    """The length of each item's text, in words (see `n_words`) and characters; NaN where missing.

    Returns:
        id, group, gold, words and characters, one row an item.
    """
    lines = []
    for row in rows_of(items):
        text = text_of(row, field)
        line = {
            "id": str(row.get("id")),
            "group": unit_of(row),
            "gold": as_score(row.get("gold")),
        }
        line["words"] = math.nan if text is None else n_words(text)
        line["characters"] = math.nan if text is None else len(text)
        lines.append(line)
    return pd.DataFrame(
        lines,
        columns=[
            "id",
            "group",
            "gold",
            "words",
            "characters",
        ],
    )
