"""What a collection holds, and how far its scores can be had without looking: from length, shared words, frequency."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from rapidfuzz.distance import LCSseq
from scipy import sparse, stats

from vjudge.data.load import rows_of
from vjudge.data.schema import CollectionError
from vjudge.images import ImageError, Pictures
from vjudge.records import as_score, lowest_of, text_of, unit_of

UNSPACED = {  # the signs of scripts without spaces between words
    "kana": "\u3041-\u30ff\u31f0-\u31ff\uff66-\uff9f",
    "Chinese": "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff",
    "Thai, Lao, Khmer, Burmese": "\u0e01-\u0eff\u1000-\u109f\u1780-\u17ff",
}
SPACELESS = "".join(UNSPACED.values())
_CHARACTER, _WORDS = re.compile(rf"[{SPACELESS}]"), re.compile(rf"[{SPACELESS}]|[^\W_{SPACELESS}]+")
_BLOCK = 4_000_000  # numbers held at once by a bootstrap
_MOST_JACKKNIFED = 2_000  # groups; beyond, BCa's correction vanishes and its jackknife, quadratic in groups, does not


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


def counts(items: Any, *, by: str | Mapping[str, str] = "criteria") -> pd.DataFrame:
    """Count items per gold score, for each value of the column `by` (or name that it gives a criterion) and over all.

    Rows are the values in order of appearance, then "all"; columns every score of the rubrics, and any other that
    occurs, "missing" where an item has none, and "total". CollectionError: a criterion without name.
    """
    rows, column = rows_of(items), by if isinstance(by, str) else "criteria"
    names = ["none" if row.get(column) is None else str(row[column]) for row in rows]
    if not isinstance(by, str):
        if nameless := sorted(set(names) - set(by)):
            raise CollectionError(f"`by` has no name for these criteria, add them: {nameless}")
        names = [by[name] for name in names]
    scores = pd.Series([as_score(row.get("gold")) for row in rows], dtype=float)
    columns: list[Any] = [
        int(score) if score % 1 == 0 else score for score in sorted({*levels(rows), *scores.dropna()})
    ]
    table = scores.groupby([pd.Series(names, dtype=object), scores]).size().unstack(fill_value=0)
    table = table.reindex(index=dict.fromkeys(names), columns=columns, fill_value=0)
    table.columns = pd.Index(columns, dtype=object)
    if scores.isna().any():
        table["missing"] = scores.isna().groupby(pd.Series(names)).sum()
    table["total"] = table.sum(axis=1)
    table.loc["all"] = table.sum(axis=0)
    return table.astype(int).rename_axis(index=column if isinstance(by, str) else "name", columns="score")


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
    which takes items as independent; auc in [0, 1] with low and high, its 95 % bootstrap interval over whole groups
    (BCa; percentile beyond 2,000 groups; NaN for no resamples); cut_min and cut_max, the least and greatest AUC over
    all ways to cut the scale in two; n (items used) and missing. What is undefined is NaN.

    Source: Hanley and McNeil, Radiology 143 (1982), for the AUC as a probability over pairs.
    """
    table = lengths(items, field=field)
    used = table.dropna(subset=["gold", "words"])
    tests = {unit: _length_row(used, unit, n_resamples, seed) for unit in ("words", "characters")}
    return pd.DataFrame.from_dict(tests, orient="index").assign(missing=len(table) - len(used)).rename_axis("unit")


def _length_row(used: pd.DataFrame, unit: str, n_resamples: int, seed: int) -> dict[str, float | int]:
    names = ("kruskal_h", "kruskal_p", "auc", "low", "high", "cut_min", "cut_max")
    row: dict[str, float | int] = {**dict.fromkeys(names, math.nan), "n": len(used)}
    (score, scores), (length, texts) = (pd.factorize(used[name], sort=True) for name in ("gold", unit))
    if len(scores) < 2:
        return row
    if len(texts) > 1:
        test = stats.kruskal(*(part.to_numpy() for _, part in used.groupby("gold")[unit]))
        row |= {"kruskal_h": float(test.statistic), "kruskal_p": float(test.pvalue)}
    table = np.zeros((len(scores), len(texts)))
    np.add.at(table, (score, length), 1)
    cuts = [_auc(np.stack([table[:cut].sum(axis=0), table[cut:].sum(axis=0)])) for cut in range(1, len(scores))]
    row |= {"auc": float(_auc(table)), "cut_min": float(min(cuts)), "cut_max": float(max(cuts))}
    group, groups = pd.factorize(used["group"])
    if not n_resamples or len(groups) < 2:
        return row
    cells = score * len(texts) + length
    by_group = sparse.csr_array((np.ones(len(used)), (group, cells)), shape=(len(groups), table.size))

    def statistic(resamples: np.ndarray, axis: int = -1) -> np.ndarray:
        flat = resamples.reshape(-1, resamples.shape[-1])
        start = np.arange(len(flat))[:, None] * len(groups)
        times = np.bincount((flat + start).ravel(), minlength=len(flat) * len(groups)).reshape(len(flat), -1)
        return _auc((times @ by_group).reshape(-1, *table.shape)).reshape(resamples.shape[:-1])

    data = (np.arange(len(groups)),)
    options: dict[str, Any] = {"vectorized": True, "batch": max(1, _BLOCK // max(table.size, len(groups)))}
    rng = np.random.default_rng(seed)
    result = stats.bootstrap(data, statistic, n_resamples=n_resamples, method="percentile", rng=rng, **options)
    # Where every group has equal lengths at all scores, so has every resample: there is nothing to correct for.
    if np.ptp(result.bootstrap_distribution) > 1e-12 and len(groups) <= _MOST_JACKKNIFED:
        result = stats.bootstrap(data, statistic, n_resamples=0, method="BCa", bootstrap_result=result, **options)
    return row | {"low": float(result.confidence_interval.low), "high": float(result.confidence_interval.high)}


def _auc(table: np.ndarray) -> np.ndarray:
    """AUC of length for score from how often each occurs with each: shape (..., scores, lengths) to (...)."""
    below = np.cumsum(table, axis=-2) - table  # of lower score, at each length
    won = (table * (np.cumsum(below, axis=-1) - below / 2)).sum(axis=(-2, -1))
    per_score = table.sum(axis=-1)
    pairs = (per_score * (np.cumsum(per_score, axis=-1) - per_score)).sum(axis=-1)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(won / pairs)


def rubric_overlap(items: Any, *, max_pairs: int = 20_000, seed: int = 0) -> pd.DataFrame:
    """Compare every two distinct rubrics: ROUGE-L (F1) of their texts, 0 for no shared word, 1 for equal words.

    One row a pair: a and b (their criteria), rouge_l over criteria and levels, rouge_l_criteria over criteria alone; of
    more than `max_pairs`, so many are drawn at random. `attrs`: n_rubrics and n_pairs, how many there are in all.
    """
    texts = dict.fromkeys((text_of(row, "criteria"), *(row.get("descriptions") or ())) for row in rows_of(items))
    rubrics = [(text[0], words_of(text[0]), words_of("\n".join(text))) for text in texts if text[0] is not None]
    later, earlier = np.tril_indices(len(rubrics), -1)
    n_pairs = len(later)
    if n_pairs > max_pairs:
        drawn = np.sort(np.random.default_rng(seed).choice(n_pairs, max_pairs, replace=False))
        later, earlier = later[drawn], earlier[drawn]
    pairs = [(rubrics[i], rubrics[j]) for i, j in zip(earlier, later, strict=True)]
    lines = [(a[0], b[0], rouge_l(a[2], b[2]), rouge_l(a[1], b[1])) for a, b in pairs]
    table = pd.DataFrame(lines, columns=["a", "b", "rouge_l", "rouge_l_criteria"])
    table.attrs = {"n_rubrics": len(rubrics), "n_pairs": n_pairs}
    return table


def words_of(text: str) -> list[str]:
    """The words of a text in lower case, without signs; a character of a script without spaces is one."""
    return _WORDS.findall(text.lower())


def rouge_l(target: Sequence[str], prediction: Sequence[str]) -> float:
    """ROUGE-L F1 in [0, 1] of two texts' words, as they are: nothing is stemmed.

    Source: Lin, ROUGE (2004); equal to the rouge-score package, whose own words are of a-z and 0-9 alone.
    """
    total = len(target) + len(prediction)
    return 2 * LCSseq.similarity(target, prediction) / total if total else 0.0


def image_sizes(items: Any) -> pd.DataFrame:
    """List the distinct images with their sizes, from their headers.

    Returns:
        One row an image, in order of first appearance: width and height in pixels; n_items that show it; row and place
        where it stands first; fault, missing or why it cannot be opened.
    """
    opens, images = Pictures(), dict[str, dict[str, Any]]()
    for position, row in enumerate(rows_of(items)):
        for place, source in enumerate(row.get("images") or ()):
            line = {"width": pd.NA, "height": pd.NA, "n_items": 0, "row": position, "place": place, "fault": None}
            try:
                picture = opens(source)
                key, line["width"], line["height"] = picture.key, *picture.size
            except ImageError as error:
                key = line["fault"] = str(error)
            images.setdefault(key, line)["n_items"] += 1
    return pd.DataFrame(list(images.values()), columns=["width", "height", "n_items", "row", "place", "fault"])
