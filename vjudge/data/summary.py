"""What a collection holds, and how far its scores can be had from length, without looking."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pandas as pd
from scipy import sparse, stats

from vjudge.data.load import rows_of
from vjudge.records import as_score, lowest_of, text_of, unit_of

UNSPACED = {  # the signs of scripts without spaces between words
    "kana": "\u3041-\u30ff\u31f0-\u31ff\uff66-\uff9f",
    "Chinese": "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff",
    "Thai, Lao, Khmer, Burmese": "\u0e01-\u0eff\u1000-\u109f\u1780-\u17ff",
}
SPACELESS = "".join(UNSPACED.values())
_CHARACTER = re.compile(rf"[{SPACELESS}]")
_BLOCK = 4_000_000  # numbers held at once by a bootstrap


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
    return pd.DataFrame(lines, columns=["group", "instruction", "criteria", "reference", "n", "scores", "rows"])


def levels(items: Any) -> list[int]:
    """The scores that the rubrics of a collection have, ascending; empty where it has no rubric.

    >>> levels([{"id": "a", "criteria": "Is it right?", "descriptions": ["no", "nearly", "yes"], "lowest": 0}])
    [0, 1, 2]
    """
    scales = {(lowest_of(row), len(row.get("descriptions") or ())) for row in rows_of(items)}
    return sorted({level for lowest, n in scales for level in range(lowest, lowest + n)})


def lengths(items: Any, *, field: str = "response") -> pd.DataFrame:
    """Each item's id, group, gold score, and the words (see `n_words`) and characters of a text; NaN where missing."""
    lines = []
    for row in rows_of(items):
        text = text_of(row, field)
        sizes = (math.nan, math.nan) if text is None else (n_words(text), len(text))
        lines.append((str(row.get("id")), unit_of(row), as_score(row.get("gold")), *sizes))
    return pd.DataFrame(lines, columns=["id", "group", "gold", "words", "characters"])


def length_test(items: Any, *, field: str = "response", n_resamples: int = 10_000, seed: int = 0) -> pd.DataFrame:
    """Test whether a text's length tells the gold score.

    AUC is the probability that, of two items with different scores, the one with the higher score has the longer text,
    ties in length counted as half: 0.5 means that length tells nothing.

    Rows words and characters. Columns: kruskal_h and kruskal_p, the Kruskal-Wallis test of equal lengths at all scores,
    which takes items as independent; auc in [0, 1] with low and high, its 95 % percentile bootstrap interval over whole
    groups (NaN for no resamples); n (items used) and missing. What is undefined is NaN.

    Source: Hanley and McNeil, Radiology 143 (1982), for the AUC as a probability over pairs.
    """
    table = lengths(items, field=field)
    used = table.dropna(subset=["gold", "words"])
    (group, groups), (score, scores) = pd.factorize(used["group"]), pd.factorize(used["gold"], sort=True)
    tests = pd.DataFrame(math.nan, ["words", "characters"], ["kruskal_h", "kruskal_p", "auc", "low", "high"])
    for unit in tests.index if len(scores) > 1 else ():
        length, distinct = pd.factorize(used[unit], sort=True)
        if len(distinct) > 1:
            parts = [part.to_numpy() for _, part in used.groupby("gold")[unit]]
            tests.loc[unit, ["kruskal_h", "kruskal_p"]] = tuple(stats.kruskal(*parts))
        shape = (len(scores), len(distinct))
        cells = (np.ones(len(used)), (group, score * len(distinct) + length))
        by_group = sparse.csr_array(cells, shape=(len(groups), math.prod(shape)))
        tests.loc[unit, "auc"] = _auc(by_group.sum(axis=0).reshape(shape))
        if n_resamples and len(groups) > 1:
            rng, n, block = np.random.default_rng(seed), len(groups), max(1, _BLOCK // max(by_group.shape))
            draws = []
            for start in range(0, n_resamples, block):
                many = range(min(block, n_resamples - start))
                times = np.stack([np.bincount(rng.integers(n, size=n), minlength=n) for _ in many])
                draws.append(_auc((times @ by_group).reshape(-1, *shape)))
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
