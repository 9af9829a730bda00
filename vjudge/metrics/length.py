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
    """Count the words of each text.

    Args:
        texts: n texts; None and NaN are missing. `vjudge.data.n_words` defines a word; a character
            of a script without spaces is one.

    Returns:
        One length per text, NaN where it is missing, with the index of `texts` if it has one.

    Source: Unicode's blocks define the scripts; AlpacaEval's lengths also split words at spaces.

    >>> lengths(["a cat", None, "一只猫"]).tolist()
    [2.0, nan, 3.0]
    """
    check_columns(texts=texts)
    index = texts.index if isinstance(texts, pd.Series) else None
    counts = [math.nan if is_missing(text) else data.n_words(text) for text in texts]
    return pd.Series(counts, index, dtype=float, name="length")


def length_test(
    items: Items,
    *,
    n_resamples: int = 10_000,
    seed: int = 0,
) -> pd.DataFrame:
    """Test whether a response's length predicts the gold score.

    The AUC is the probability that, of two responses with different scores, the one with the higher
    score is the longer one, ties in length counted as half: 0.5 means that length predicts nothing.
    `within` is the same probability over pairs of responses to one case, that is, to one question
    (see `data.cases`), which calls for the same length of both.

    Args:
        items: as for `data.rows_of`, with gold scores.
        n_resamples: the number of bootstrap samples of whole groups; 0 for no interval.
        seed: of the resampling, at least 0.

    Returns:
        Rows words and characters, by which length is measured; columns
        - auc, in [0, 1], with low and high, its 95 % interval;
        - within, in [0, 1], with p, of the test that score and length are independent within cases;
        - n (items used) and missing.
        What is undefined is NaN.

    Source: Hanley and McNeil, Radiology 143 (1982), for the AUC as a probability over pairs;
    Hirsch, Slack and Smith, Water Resources Research 18 (1982), for Kendall's test within blocks.

    >>> answers = ["A cat.", "A grey cat.", "A grey cat on a mat."]
    >>> rows = [{"group": "g", "response": text, "gold": n} for n, text in enumerate(answers)]
    >>> length_test(rows, n_resamples=0).loc["words", ["auc", "within"]].tolist()
    [1.0, 1.0]
    """
    table = data.lengths(items)  # one row per response
    table["case"] = 0  # is replaced in each row: every row belongs to one case
    for case, rows in enumerate(data.cases(items)["rows"]):
        table.loc[rows, "case"] = case
    used = table.dropna(subset=["gold", "words"])
    tests = {}
    for unit in ("words", "characters"):
        columns = used[["gold", unit]].astype(float)
        cells, cell = distinct_rows(columns.to_numpy())
        somers_d = tabulate(
            partial(_somers_d, *cells.T),
            ["auc"],
            design_of(cell, used["group"], np.ones(len(used), dtype=bool)),
            method="fisher",  # Somers' D lies in [-1, 1], as a correlation does
            reason="no two scores",
            n_resamples=n_resamples,
            seed=seed,
        )
        auc = (somers_d.iloc[0][INTERVAL] + 1) / 2  # estimate, low and high
        blocks = [block.to_numpy() for _, block in columns.groupby(used["case"])]
        tests[unit] = [*auc, *within_blocks(blocks)]
    result = pd.DataFrame(tests, ["auc", "low", "high", "within", "p"]).T.rename_axis("unit")
    return result.assign(n=len(used), missing=len(table) - len(used))


def _somers_d(score: Floats, length: Floats, weights: Weights) -> Floats:
    """Compute Somers' D of length given score, which is 2 AUC - 1.

    It is concordant minus discordant pairs, over the pairs of responses that differ in score.

    Args:
        score, length: of each cell, shape (cells,).
        weights: how often each cell occurs, shape (cells, replicates).

    Returns:
        Shape (1, replicates): one statistic.
    """
    score_rank = dense_ranks(score)
    w = np.asarray(weights, dtype=float)
    # All pairs minus those within each level of the score: (n^2 - sum of n_level^2) / 2
    level_counts = indicator_matrix(score_rank) @ w  # (levels, replicates)
    n_untied = (w.sum(axis=0) ** 2 - (level_counts**2).sum(axis=0)) / 2
    return (net_concordance(score_rank, dense_ranks(length), w) / n_untied)[None]
