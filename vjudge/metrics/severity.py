"""Estimate how strict each rater is, from the items that raters share."""

from __future__ import annotations

import numpy as np
import pandas as pd
from scipy import sparse
from scipy.sparse.csgraph import connected_components

from vjudge.metrics.array_types import Booleans, Floats, Groups, Integers, Weights
from vjudge.metrics.caveats import add_caveats
from vjudge.metrics.cells import count_matrix
from vjudge.metrics.columns import check_columns, group_columns
from vjudge.metrics.groups import design_of, group_codes
from vjudge.metrics.intervals import INTERVAL
from vjudge.metrics.tables import tabulate

SINGULAR = 1e-9  # a singular value over the largest one, below which it counts as 0


def severities(
    scores: pd.DataFrame,
    *,
    groups: Groups = None,
    confidence: float = 0.95,
) -> pd.DataFrame:
    """Estimate how far each rater, person or judge, scores below the mean on the same items.

    The model is score = quality of the item - severity of the rater + error. Least squares
    estimates both effects jointly, so that raters who were given better or worse items are
    comparable: only how raters differ on items that they share counts.

    Args:
        scores: one row per score, with the columns `item`, `rater` and `score`.
        groups: the unit of resampling of each row, such as the image; None: the item.
        confidence: of the intervals, by a jackknife over items or groups.

    Returns:
        One row per rater, the most severe first, with columns
        - estimate: by how many score points the rater is below the mean of the raters of its part;
          with low and high;
        - n: the number of its scores;
        - part: the number of its part. Raters of different parts share no item, not even through
          other raters, and can't be compared;
        - items: the number of items of that part;
        - missing: the number of rows without a score, which are left out.

    Raises:
        ValueError: a column is absent, there are fewer than two raters, no item has two raters, or
            an item has scores in two groups.

    >>> rng = np.random.default_rng(0)
    >>> quality = rng.normal(3, 1, size=100)
    >>> rows = [(i, name, quality[i] - strict + rng.normal(0, 0.3))
    ...         for i in range(100) for name, strict in (("kind", -0.5), ("strict", 0.5))]
    >>> table = severities(pd.DataFrame(rows, columns=["item", "rater", "score"]))
    >>> table["estimate"].round(1).to_dict()
    {'strict': 0.5, 'kind': -0.5}

    Source: the rater facet of many-facet measurement (Linacre 1989), as the two-way model without
    interaction of incomplete blocks, Searle, Linear Models (1971), chapter 7.
    """
    columns = ["item", "rater", "score"]
    if not set(columns) <= set(scores):
        raise ValueError(
            f"severities needs the columns {', '.join(columns)}, a row a score, and there are"
            f" {list(scores)}: of a column a rater make rows with DataFrame.melt"
        )
    check_columns(scores=scores, groups=groups)
    # 1) Rows with a score
    used = scores[columns].notna().all(axis=1).to_numpy()
    rated = scores.loc[used, columns].astype({"score": float}).reset_index(drop=True)
    rater, names = pd.factorize(rated["rater"])
    item, items = pd.factorize(rated["item"])
    if len(names) < 2:
        raise ValueError(f"{len(names)} rater(s): severities compare two or more")
    counts = count_matrix(rater, item, (len(names), len(items)))
    if counts.astype(bool).sum(axis=0).max() < 2:
        raise ValueError("no item has scores of two raters: their severities can't be told apart")

    # 2) Estimate each part of the raters separately. Two raters are in one part if shared items
    #    connect them, directly or through other raters.
    n_parts, part_of_rater = connected_components(counts @ counts.T, directed=False)
    tables = []
    for part in range(n_parts):
        in_part = part_of_rater[rater] == part
        rows = used.copy()  # the rows of this part among all rows of `scores`
        rows[used] = in_part
        table = _severities_of_part(rated[in_part], groups, rows, confidence)
        tables.append(table.assign(part=part))
    result = pd.concat(tables).sort_values("estimate", ascending=False, kind="stable")
    result["missing"] = int((~used).sum())
    result.attrs = {"method": f"{confidence:.0%} jackknife intervals (Student's)", "caveats": []}
    if n_parts > 1:
        text = (
            f"raters fall into {n_parts} parts that share no items: severities are below the"
            " mean of each part, and can't be compared between parts"
        )
        add_caveats(result, [text])
    return result[[*INTERVAL, "n", "part", "items", "missing"]]


def _severities_of_part(
    rated: pd.DataFrame, groups: Groups, used: Booleans, confidence: float
) -> pd.DataFrame:
    """Estimate the severities of raters whom shared items connect.

    Args:
        rated: columns item, rater and score; one row per used row.
        groups: the groups of all rows, or None.
        used: which of all rows are in `rated`.
        confidence: coverage of the intervals, in (0, 1).

    Returns:
        One row per rater, columns as `tables.tabulate`, with n the rater's scores; and items, the
        number of all items.
    """
    # 1) The normal equations, from which the items' effects are eliminated:
    #    (diag(N 1) - N diag(1 / M) N') effects = surplus 1
    #    N, shape (raters, items), counts the scores of each item by each rater, and M, shape
    #    (items,), all scores of each item. surplus, shape (raters, items), sums each rater's scores
    #    of an item, each minus the item's mean. 1 is a vector of ones; if items have weights w,
    #    N diag(w / M) N' replaces N diag(1 / M) N', and w replaces each other 1.
    rater, names = pd.factorize(rated["rater"])
    item, items = pd.factorize(rated["item"])
    shape = (len(names), len(items))
    counts = count_matrix(rater, item, shape)  # N
    item_counts = np.bincount(item)  # M
    item_means = np.bincount(item, rated["score"]) / item_counts
    deviation = rated["score"].to_numpy() - item_means[item]
    surplus = sparse.csr_array((deviation, (rater, item)), shape=shape)

    def severity(weights: Weights) -> Floats:
        """Estimate severities for weights of the items, shape (items, replicates).

        Returns:
            Shape (raters, replicates); NaN in replicates whose items do not connect all raters.
        """
        right_sides = surplus @ weights  # (raters, replicates)
        severities = np.full(right_sides.shape, np.nan)
        for replicate, weight in enumerate(np.asarray(weights, dtype=float).T):
            matrix = -(counts.multiply(weight / item_counts) @ counts.T).toarray()
            matrix[np.diag_indices_from(matrix)] += counts @ weight
            # A constant of all raters is free. The shortest solution makes their mean 0.
            effect, _, rank, _ = np.linalg.lstsq(matrix, right_sides[:, replicate], rcond=SINGULAR)
            # The rank is one below the number of raters if items connect them all. A single rater
            # has rank 0, and no severity.
            if rank == len(names) - 1 > 0:
                severities[:, replicate] = -effect
        return severities

    # 2) The jackknife over items, or over groups of items
    if groups is not None:
        groups = _item_groups(groups, used, item)
    table = tabulate(
        severity,
        names,
        design_of(np.arange(len(items)), groups, np.ones(len(items), dtype=bool)),
        by="jackknife",
        index="rater",
        reason="of one rater alone",
        confidence=confidence,
    )
    return table.assign(n=np.bincount(rater), items=len(items))


def _item_groups(groups: Groups, used: Booleans, item: Integers) -> pd.DataFrame:
    """Find the groups of each item from those of its rows.

    Args:
        groups: the groups of all rows: one column, or two crossed ones.
        used: which of all rows count.
        item: the item of each row that counts.

    Returns:
        One row per item, and one column per grouping.

    Raises:
        ValueError: an item is in two groups.
    """
    codes = pd.DataFrame([group_codes(column, used) for column in group_columns(groups)]).T
    by_item = codes.groupby(item)
    if (by_item.nunique() > 1).any(axis=None):
        raise ValueError("an item has scores in two groups: groups are of items here")
    return by_item.first()
