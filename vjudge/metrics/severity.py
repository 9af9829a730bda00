"""How strict each rater is, estimated from the items that raters share."""

from __future__ import annotations

import numpy as np
import pandas as pd
from scipy import sparse
from scipy.sparse.csgraph import connected_components

from vjudge.metrics.array_types import Floats, Groups, Integers, Weights
from vjudge.metrics.caveats import add_caveats
from vjudge.metrics.cells import count_matrix
from vjudge.metrics.columns import check_columns, check_options, group_columns
from vjudge.metrics.groups import design_of, group_codes
from vjudge.metrics.intervals import INTERVAL
from vjudge.metrics.tables import tabulate

SINGULAR = 1e-9  # of an eigenvalue beside the largest


def severities(
    scores: pd.DataFrame,
    *,
    groups: Groups = None,
    confidence: float = 0.95,
) -> pd.DataFrame:
    """Estimate how far each rater, person or judge, scores below the mean on the same items.

    score = quality of the item - severity of the rater + error, by least squares with an effect of
    every item, so that raters who were given better or worse items are comparable: only how raters
    differ on items that they share counts.

    Args:
        scores: one row a score, with the columns `item`, `rater` and `score`.
        groups: the unit of resampling of each row, such as the image; None: the item.
        confidence: of the intervals.

    Returns:
        One row a rater, the most severe first: `estimate` (score points below the mean of the
        raters of its part), `low`, `high`, `n` (scores), `part` (raters of different parts share no
        item, even by way of others, and can't be compared), `items` (of that part), `missing` (rows
        without a score, left out). Intervals are of a jackknife over items or groups.

    ValueError: a column is absent, fewer than two raters, or no item that two raters share.

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
    check_options(confidence=confidence)
    columns = ["item", "rater", "score"]
    if not set(columns) <= set(scores):
        raise ValueError(
            f"severities needs the columns {', '.join(columns)}, a row a score, and there are"
            f" {list(scores)}: of a column a rater make rows with DataFrame.melt"
        )
    # 1) rows with a score, and the parts of raters that shared items connect
    check_columns(scores=scores, groups=groups)
    used = scores[columns].notna().all(axis=1).to_numpy()
    rated = scores.loc[used, columns].astype({"score": float}).reset_index(drop=True)
    rater, names = pd.factorize(rated["rater"])
    item = pd.factorize(rated["item"])[0]
    if len(names) < 2:
        raise ValueError(f"{len(names)} rater(s): severities compare two or more")
    counts = count_matrix(rater, item, (len(names), item.max() + 1))  # (raters, items)
    if counts.astype(bool).sum(axis=0).max() < 2:
        raise ValueError("no item has scores of two raters: their severities can't be told apart")
    n_parts, component = connected_components(counts @ counts.T, directed=False)
    # 2) each part on its own
    tables = []
    for number in range(n_parts):
        rows = component[rater] == number
        mask = used.copy()
        mask[used] = rows
        tables.append(_severities(rated[rows], groups, mask, confidence).assign(part=number))
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


def _severities(
    rated: pd.DataFrame,
    groups: Groups,
    used: np.ndarray,
    confidence: float,
) -> pd.DataFrame:
    """Severities of raters whom shared items connect; a row of `rated` for each used row."""
    # 1) what an item adds to the normal equations: of N_r scores by rater r of its M scores,
    #    diag(N) - N N' / M on the left; on the right, r's scores less the item's mean
    rater, names = pd.factorize(rated["rater"])
    item, items = pd.factorize(rated["item"])
    shape = (len(names), len(items))
    counts = count_matrix(rater, item, shape)  # N, (raters, items)
    total = np.bincount(item)
    mean = np.bincount(item, rated["score"]) / total
    deviation = rated["score"].to_numpy() - mean[item]
    surplus = sparse.csr_array((deviation, (rater, item)), shape=shape)

    def below_mean(weights: Weights) -> Floats:
        """Severities with each item so often, (raters, replicates); NaN where raters fall apart."""
        right = surplus @ weights
        effects = np.full(right.shape, np.nan)
        for replicate, weight in enumerate(np.asarray(weights, dtype=float).T):
            left = -(counts.multiply(weight / total) @ counts.T).toarray()
            left[np.diag_indices_from(left)] += counts @ weight
            # The mean of raters is free, and 0 as the shortest solution has it.
            effect, _, rank, _ = np.linalg.lstsq(left, right[:, replicate], rcond=SINGULAR)
            if rank == len(names) - 1 > 0:
                effects[:, replicate] = -effect
        return effects

    # 2) the jackknife over items, or over groups of items
    cell = np.arange(len(items))
    unit = None if groups is None else _of_items(groups, used, item)
    table = tabulate(
        below_mean,
        names,
        design_of(cell, unit, np.ones(len(items), dtype=bool)),
        by="jackknife",
        index="rater",
        reason="of one rater alone",
        confidence=confidence,
    )
    table["n"] = np.bincount(rater)
    return table.assign(items=len(items))


def _of_items(groups: Groups, used: np.ndarray, item: Integers) -> pd.DataFrame:
    """The groups of items, from those of their rows. ValueError: an item is in two groups."""
    codes = pd.DataFrame([group_codes(column, used) for column in group_columns(groups)]).T
    by_item = codes.groupby(item)
    if (by_item.nunique() > 1).any(axis=None):
        raise ValueError("an item has scores in two groups: groups are of items here")
    return by_item.first()
