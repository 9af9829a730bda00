"""Whether a response's length predicts its score, over all responses and within one question."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from vjudge import data
from vjudge.metrics.resampling import Design, Floats, replicates, values


def length_test(items: Any, *, n_resamples: int = 10_000, seed: int = 0) -> pd.DataFrame:
    """Test whether a response's length predicts the gold score.

    The AUC is the probability that, of two responses with different scores, the one with the higher
    score is the longer one, ties in length counted as half: 0.5 means that length predicts nothing.
    `within` is the same over the pairs of one case (see `data.cases`) alone, where questions can't
    differ in how long an answer they ask for.

    Args:
        items: as for `data.rows_of`, with gold scores.
        n_resamples: bootstrap samples of whole groups; 0 for no interval.
        seed: of the resampling, at least 0.

    Returns:
        Rows words and characters; columns auc in [0, 1] with low and high, its 95 % percentile
        interval; within in [0, 1] with p, of the test that length and score are independent within
        cases; n (items used) and missing. What is undefined is NaN.

    Source: Hanley and McNeil, Radiology 143 (1982), for the AUC as a probability over pairs;
    Hirsch, Slack and Smith, Water Resources Research 18 (1982), for Kendall's test within blocks.

    >>> answers = ["A cat.", "A grey cat.", "A grey cat on a mat."]
    >>> rows = [{"group": "g", "response": text, "gold": n} for n, text in enumerate(answers)]
    >>> length_test(rows, n_resamples=0).loc["words", ["auc", "within"]].tolist()
    [1.0, 1.0]
    """
    table = data.lengths(items)
    used = table.dropna(subset=["gold", "words"])
    case = np.zeros(len(table), dtype=int)
    for number, rows in enumerate(data.cases(items)["rows"]):
        case[rows] = number
    tests = pd.DataFrame(index=pd.Index(["words", "characters"], name="unit"))
    for unit in tests.index:
        tests.loc[unit, ["auc", "low", "high"]] = _auc_interval(used, unit, n_resamples, seed)
        blocks = []
        for _, block in used.groupby(case[used.index]):
            blocks.append(list(zip(block["gold"], block[unit], strict=True)))
        tests.loc[unit, ["within", "p"]] = within_blocks(blocks)
    return tests.assign(n=len(used), missing=len(table) - len(used))


def _auc_interval(
    used: pd.DataFrame, unit: str, n_resamples: int, seed: int
) -> tuple[float, float, float]:
    """The AUC with the bounds of its interval over whole groups."""
    if used["gold"].nunique() < 2:
        return math.nan, math.nan, math.nan
    score, scores = pd.factorize(used["gold"], sort=True)
    length, lengths = pd.factorize(used[unit], sort=True)
    cell, cells = pd.factorize(score * len(lengths) + length)
    design = Design(cell, pd.factorize(used["group"])[0])

    def auc(weights: Any) -> Floats:
        table = np.zeros((len(scores) * len(lengths), weights.shape[1]))
        table[cells] = weights
        return _auc(table.reshape(len(scores), len(lengths), -1))

    estimate = float(values(auc, design.counts[:, None])[0])
    if design.n_units < 2 or not n_resamples:
        return estimate, math.nan, math.nan
    width = len(scores) * len(lengths)
    drawn = replicates(auc, design, n_resamples=n_resamples, seed=seed, width=width)
    low, high = np.nanquantile(drawn, (0.025, 0.975))
    return estimate, float(low), float(high)


def _auc(table: Floats) -> Floats:
    """AUC of length for score from counts, shape (scores, lengths, replicates)."""
    below = np.cumsum(table, axis=0) - table  # of lower score, at each length
    shorter = np.cumsum(below, axis=1) - below / 2
    won = (table * shorter).sum(axis=(0, 1))
    per_score = table.sum(axis=1)
    pairs = (per_score * (np.cumsum(per_score, axis=0) - per_score)).sum(axis=0)
    return np.asarray(won / pairs)


def within_blocks(blocks: Iterable[Sequence[tuple[float, float]]]) -> tuple[float, float]:
    """How often the better of two responses is the longer one within blocks, and a p-value.

    Args:
        blocks: (score, length) of each response to one question.

    Returns:
        The share in [0, 1] over pairs with different scores, ties in length counted as half, and
        the p of the test that score and length are independent within blocks, by the normal
        approximation with ties; NaN without such pairs.
    """
    signs = n_pairs = variance = 0.0
    for block in blocks:
        for (score, length), (other_score, other_length) in combinations(block, 2):
            signs += np.sign(score - other_score) * np.sign(length - other_length)
            n_pairs += score != other_score
        variance += _variance(block)
    if not n_pairs:
        return math.nan, math.nan
    share = float(signs / n_pairs + 1) / 2
    p = float(2 * stats.norm.sf(abs(signs) / math.sqrt(variance))) if variance else 1.0
    return share, p


def _variance(block: Sequence[tuple[float, float]]) -> float:
    """Variance of Kendall's S of a block with ties in both columns.

    Source: Kendall, Rank Correlation Methods (1970), section 4.9.
    """
    n = len(block)
    if n < 2:
        return 0.0
    whole = n * (n - 1) * (2 * n + 5)
    pairs = [0.0, 0.0]
    triples = [0.0, 0.0]
    for column in (0, 1):
        for t in Counter(cells[column] for cells in block).values():
            whole -= t * (t - 1) * (2 * t + 5)
            pairs[column] += t * (t - 1)
            triples[column] += t * (t - 1) * (t - 2)
    variance = whole / 18 + pairs[0] * pairs[1] / (2 * n * (n - 1))
    if n > 2:
        variance += triples[0] * triples[1] / (9 * n * (n - 1) * (n - 2))
    return variance
