"""How long responses are, and whether their length predicts their score."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pandas as pd

from vjudge import data
from vjudge.data.schema import Items
from vjudge.metrics.array_types import Column, Floats, Weights
from vjudge.metrics.block_permutation import within_blocks
from vjudge.metrics.cells import dense_ranks, distinct_rows, indicator_matrix
from vjudge.metrics.columns import check_columns
from vjudge.metrics.groups import design_of
from vjudge.metrics.intervals import INTERVAL
from vjudge.metrics.tables import tabulate
from vjudge.metrics.weighted_correlation import net_concordance
from vjudge.records import is_missing


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
        cells, cell = distinct_rows(columns.to_numpy())
        auc = tabulate(
            partial(_auc, *cells.T),
            ["auc"],
            design_of(cell, used["group"], np.ones(len(used), dtype=bool)),
            method="fisher",
            reason="no two scores",
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
    code = dense_ranks(score)
    w = np.asarray(weights, dtype=float)
    pairs = (w.sum(axis=0) ** 2 - ((indicator_matrix(code) @ w) ** 2).sum(axis=0)) / 2
    return (net_concordance(code, dense_ranks(length), w) / pairs)[None]
