"""How long responses are, and whether their length predicts their score."""

from __future__ import annotations

import math
from functools import partial
from itertools import permutations

import numpy as np
import pandas as pd
from scipy import stats

from vjudge import data
from vjudge.data.schema import Items
from vjudge.metrics.columns import Column, check_columns, design_of
from vjudge.metrics.resampling import (
    Floats,
    Weights,
    by_code,
    codes,
    distinct,
    net_concordance,
)
from vjudge.metrics.tables import INTERVAL, tabulate
from vjudge.records import is_missing

FEW_BLOCKS = 50  # up to which the test within blocks is exact
SMALL_BLOCK = 6  # responses, of which there are 720 orders


def lengths(texts: Column) -> pd.Series:
    """Measure each text in words; NaN where it is missing.

    Args:
        texts: n texts; None and NaN are missing. See `vjudge.data.n_words` for what is a word: a
            character of a script without spaces is one.

    Returns:
        One length a text, with the index of a Series.

    Source: Unicode's blocks for the scripts; spaces as the bounds of words as in AlpacaEval's
    lengths.

    >>> lengths(["a cat", None, "一只猫"]).tolist()
    [2.0, nan, 3.0]
    """
    check_columns(texts=texts)
    index = texts.index if isinstance(texts, pd.Series) else None
    column = pd.Series(list(texts), index, dtype=object, name="length")
    counts = column.map(lambda text: math.nan if is_missing(text) else data.n_words(text))
    return counts.astype(float)


def length_test(
    items: Items,
    *,
    n_resamples: int = 10_000,
    seed: int = 0,
) -> pd.DataFrame:
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
        Rows words and characters; columns auc in [0, 1] with low and high, its 95 % interval;
        within in [0, 1] with p, of the test that score and length are independent within cases; n
        (items used) and missing. What is undefined is NaN.

    Source: Hanley and McNeil, Radiology 143 (1982), for the AUC as a probability over pairs;
    Hirsch, Slack and Smith, Water Resources Research 18 (1982), for Kendall's test within blocks.

    >>> answers = ["A cat.", "A grey cat.", "A grey cat on a mat."]
    >>> rows = [{"group": "g", "response": text, "gold": n} for n, text in enumerate(answers)]
    >>> length_test(rows, n_resamples=0).loc["words", ["auc", "within"]].tolist()
    [1.0, 1.0]
    """
    table = data.lengths(items)
    table["case"] = 0
    for number, rows in enumerate(data.cases(items)["rows"]):
        table.loc[rows, "case"] = number
    used = table.dropna(subset=["gold", "words"])
    tests = {}
    for unit in ("words", "characters"):
        columns = used[["gold", unit]].astype(float)
        cells, cell = distinct(columns.to_numpy())
        auc = tabulate(
            partial(_auc, *cells.T),
            ["auc"],
            design_of(cell, used["group"], np.ones(len(used), dtype=bool)),
            method="fisher",
            why="no two scores",
            n_resamples=n_resamples,
            seed=seed,
        )
        # Twice the AUC less 1 is on the scale of a correlation.
        bounds = (auc.iloc[0][INTERVAL] + 1) / 2
        blocks = [block.to_numpy() for _, block in columns.groupby(used["case"])]
        tests[unit] = [*bounds, *within_blocks(blocks)]
    result = pd.DataFrame(tests, ["auc", "low", "high", "within", "p"]).T.rename_axis("unit")
    return result.assign(n=len(used), missing=len(table) - len(used))


def _auc(score: Floats, length: Floats, weights: Weights) -> Floats:
    """Twice the AUC less 1: concordant less discordant pairs over those that differ in score."""
    code = codes(score)
    w = np.asarray(weights, dtype=float)
    pairs = (w.sum(axis=0) ** 2 - ((by_code(code) @ w) ** 2).sum(axis=0)) / 2
    return (net_concordance(code, codes(length), w) / pairs)[None]


def within_blocks(blocks: list[Floats]) -> tuple[float, float]:
    """How often the better of two responses is the longer one within blocks, and a p-value.

    Args:
        blocks: of each question an array with score and length of each response, shape (n, 2).

    Returns:
        The share in [0, 1] over pairs with different scores, ties in length counted as half, and
        the p of the test that score and length are independent within blocks: exact for up to 50
        blocks of up to six responses, else by the normal distribution; NaN without such pairs.

    Four pairs in which the better one is always the longer: 2 / 2^4 = .125, where the normal
    distribution says .046.

    Source: Daniels, Biometrika 33 (1944), 129-135, of which Kendall's S with ties is a case.
    """
    net = 0.0
    pairs = 0
    variance = 0.0
    orders = []
    for block in blocks:
        n = len(block)
        signs = np.sign(block.T[:, :, None] - block.T[:, None])  # (score and length, n, n)
        net += float(signs.prod(axis=0).sum())
        pairs += int(np.count_nonzero(signs[0]))
        orders.append(signs)
        # The variance of the sum over orders of the items
        squares = (signs**2).sum(axis=(1, 2))
        spread = (signs.sum(axis=2) ** 2).sum(axis=1) - squares
        variance += 2 * squares.prod() / max(n * (n - 1), 1)
        variance += 4 * spread.prod() / max(n * (n - 1) * (n - 2), 1)
    if not pairs:
        return math.nan, math.nan
    if len(blocks) <= FEW_BLOCKS and max(map(len, blocks)) <= SMALL_BLOCK:
        p = _exact(round(abs(net) / 2), orders)
    elif variance:
        p = float(2 * stats.norm.sf(abs(net) / math.sqrt(variance)))
    else:
        p = 1.0
    return float((net / pairs + 1) / 2), p


def _exact(net: int, blocks: list[Floats]) -> float:
    """The share of all orders of the lengths within blocks whose |S| is `net` or more.

    S of a block is the number of pairs of which the better is the longer, less that of which it is
    the shorter. Blocks are independent, so that the distribution of their sum is the convolution of
    theirs: of two pairs 1/4, 1/2, 1/4 at -2, 0, 2.
    """
    distribution = np.ones(1)  # of S from -reach to reach
    for ahead, longer in blocks:
        order = np.array(list(permutations(range(len(ahead)))))  # (orders, n)
        shuffled = longer[order[:, :, None], order[:, None, :]]  # (orders, n, n)
        s = np.rint((ahead * shuffled).sum(axis=(1, 2)) / 2).astype(int)
        reach = math.comb(len(ahead), 2)
        share = np.bincount(s + reach, minlength=2 * reach + 1) / len(order)
        distribution = np.convolve(distribution, share)
    reach = len(distribution) // 2
    extreme = np.abs(np.arange(-reach, reach + 1)) >= net
    return float(min(distribution[extreme].sum(), 1.0))
