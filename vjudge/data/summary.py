"""What a collection is known by, its true scores, and what it holds."""

from __future__ import annotations

import hashlib
import json
import math
import re
from typing import Any

import pandas as pd

from vjudge.data.load import rows_of
from vjudge.data.schema import CollectionError, Row, features_of, id_of, plain, suggestion
from vjudge.images import ImageError, Pictures
from vjudge.records import as_score, is_missing, row_levels, text_of, unit_of

UNSPACED = {  # the signs of scripts without spaces between words
    "kana": "\u3041-\u30ff\u31f0-\u31ff\uff66-\uff9f",
    "Chinese": "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff",
    "Thai, Lao, Khmer, Burmese": "\u0e01-\u0eff\u1000-\u109f\u1780-\u17ff",
}
SPACELESS = "".join(UNSPACED.values())
_CHARACTER = re.compile(rf"[{SPACELESS}]")


def fingerprint(items: Any, *, pictures: Pictures | None = None) -> str:
    """SHA-256 (hex) over all that a judge or an analysis reads: canonical columns and images.

    >>> row = {"id": 1, "instruction": "What is it?", "response": "A cat.", "images": []}
    >>> same = row | {"id": "1", "human_scores": "3;4", "gold": None}
    >>> fingerprint([row | {"human_scores": [3, 4]}]) == fingerprint([same])
    True
    """
    pictures = pictures or Pictures()
    digest = hashlib.sha256()
    for row in rows_of(items):
        cells = _normal_cells(row, pictures)
        digest.update(json.dumps(cells, sort_keys=True, default=str).encode() + b"\n")
    return digest.hexdigest()


def _normal_cells(row: Row, pictures: Pictures) -> dict[str, Any]:
    """A row with one form for one meaning.

    An absent optional column, None and NaN are the same, and so are 4, 4.0 and "4".
    """
    cells = {name: plain(row.get(name)) for name in features_of(row)}
    for name in ("anchors", "named_criteria"):
        if row.get(name):
            cells[name] = plain(row[name])
    for name in ("criteria", "descriptions"):
        cells[name] = cells[name] or None
    for name in ("human_scores", "ranks"):
        if name in cells:
            cells[name] = [_number(score) for score in cells[name] or ()]
    if "gold" in cells:
        cells["gold"] = _number(cells["gold"])
    cells["id"] = str(cells["id"])
    cells["group"] = unit_of(cells)
    cells["lowest"] = _number(as_score(row.get("lowest"))) or "1"
    keys = []
    for source in cells["images"] or ():
        try:
            keys.append(str(pictures(source).key))
        except ImageError:
            keys.append("unreadable")
    cells["images"] = keys
    return cells


def _number(score: Any) -> str:
    return "" if is_missing(score) else f"{score:.17g}"


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
    ids = list[str | None]()
    scores = list[float]()
    counts: dict[str, Any] = {"gold": 0, "mean of people": 0, "missing": 0}
    for row in rows:
        score = as_score(row.get("gold"))
        people = [rating for rating in row.get("human_scores") or () if not is_missing(rating)]
        source = "gold"
        if math.isnan(score):
            source = "mean of people" if people else "missing"
            score = sum(people) / len(people) if people else math.nan
        counts[source] += 1
        ids.append(id_of(row))
        scores.append(score)
    names = [name for name in ("gold", "mean of people") if counts[name]]
    if not names:
        hints = [suggestion(field, rows.columns) for field in ("gold", "human_scores")]
        likely = [hint for hint in hints if "`" in hint]
        hint = likely[0] if likely else "add one"
        columns = ", ".join(rows.columns)
        what = f"no row has a score in gold or human_scores ({hint}); the columns are {columns}"
        raise CollectionError(what)
    index = pd.Index(ids, dtype=object, name="id")
    if isinstance(items, pd.DataFrame):
        index = items.index
    series = pd.Series(scores, index=index, dtype=float, name=" or ".join(names))
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
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for position, row in enumerate(rows_of(items)):
        case = {
            "group": unit_of(row),
            "instruction": row.get("instruction"),
            "criteria": row.get("criteria"),
            "reference": text_of(row, "reference_answer"),
        }
        key = (*case.values(), *(row.get("descriptions") or ()))
        case = found.setdefault(key, case | {"n": 0, "scores": [], "rows": []})
        case["n"] += 1
        case["rows"].append(position)
        score = as_score(row.get("gold"))
        if not math.isnan(score):
            case["scores"].append(score)
    for case in found.values():
        case["reference"] = case["reference"] is not None
        case["scores"].sort()
    names = ["group", "instruction", "criteria", "reference", "n", "scores", "rows"]
    return pd.DataFrame(list(found.values()), columns=names)


def levels(items: Any) -> list[int]:
    """The scores that the rubrics of a collection have, ascending; empty where it has no rubric.

    >>> rubric = {"criteria": "Is it right?", "descriptions": ["no", "nearly", "yes"], "lowest": 0}
    >>> levels([{"id": "a"} | rubric])
    [0, 1, 2]
    """
    scores = set[int]()
    for row in rows_of(items):
        described = row_levels(row)
        if described:
            scores |= set(range(min(described), max(described) + 1))
    return sorted(scores)


def lengths(items: Any, *, field: str = "response") -> pd.DataFrame:
    """The length of each item's text, in words (see `n_words`) and characters; NaN where missing.

    Returns:
        id, group, gold, words and characters, one row an item.
    """
    lines = []
    for row in rows_of(items):
        text = text_of(row, field)
        line = {"id": str(row.get("id")), "group": unit_of(row), "gold": as_score(row.get("gold"))}
        line["words"] = math.nan if text is None else n_words(text)
        line["characters"] = math.nan if text is None else len(text)
        lines.append(line)
    return pd.DataFrame(lines, columns=["id", "group", "gold", "words", "characters"])
