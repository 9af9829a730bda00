"""Which of two judges agrees better with a reference: differences, tests, equivalence."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from vjudge.metrics.array_types import Column, Floats, Groups, Weights
from vjudge.metrics.caveats import add_caveats, merged_caveats
from vjudge.metrics.cells import distinct_rows
from vjudge.metrics.columns import check_columns, judges_by_name, read_scores
from vjudge.metrics.correlation import undefined_reason
from vjudge.metrics.groups import balanced_group_caveats, design_of, groups_from_ids
from vjudge.metrics.multiple_testing import holm
from vjudge.metrics.resampling import MAX_UNITS, evaluate
from vjudge.metrics.strata import OVERALL, Strata
from vjudge.metrics.tables import tabulate
from vjudge.metrics.weighted_correlation import STATISTICS, correlations

PAIRS = 500  # how many pairs of units the jackknife leaves out
# A table without a margin lacks p_equivalence.
COMPARISON_COLUMNS = (
    "estimate_a estimate_b difference low high p p_holm p_equivalence n missing".split()
)


def compare_judges(
    reference: Column,
    judges: Mapping[str, Column] | pd.DataFrame,
    *,
    groups: Groups = None,
    ids: Column | None = None,
    strata: Column | None = None,
    each: bool = False,
    margin: float | None = None,
    confidence: float = 0.95,
    n_resamples: int | None = None,
    seed: int = 0,
) -> pd.DataFrame:
    """Compare how well judges of the same items agree with one reference, pair by pair.

    Args:
        reference: the scores to agree with, of n items; None and NaN are missing.
        judges: name -> scores of the same items, or a frame with one column per judge; at least
            two.
        groups, ids, strata, confidence, seed: see `correlate`. With strata each judge's correlation
            is the mean of those within strata.
        each: whether to compare within each stratum, too; without strata it has no effect.
        margin: a difference in correlation, above 0, within which two judges count as equal.
        n_resamples: the most units, or random blocks of them, that the jackknife leaves out in
            turn; None takes 400; 0 leaves intervals and p NaN.

    Returns:
        One row per pair of judges a, b and statistic (index a, b, statistic), NaN with a warning
        where undefined; columns
        - estimate_a, estimate_b: each judge's correlation with the reference over the items that
          both scored;
        - difference, of a minus b, in [-2, 2], with low and high by the jackknife;
        - p, two-sided, of the t test of no difference, to which the interval belongs; p_holm,
          corrected over the pairs of judges, for each statistic alone;
        - p_equivalence, only with a margin: the p-value of two one-sided t tests of the hypothesis
          that the judges differ by the margin or more. At .05 or below they are equivalent;
        - n and missing: the items that have all three scores, and the others.
        With `each` the index has a first level, stratum, the last of which is "overall"; within
        strata p_holm is corrected over strata and pairs of judges.

    A bootstrap would draw items twice. Their ties hide differences of ranks between similar judges:
    a test at level .05 then rejects a true hypothesis in only .004 of the samples. A jackknife
    without its correction for pairs of items has the same fault. The simulated levels of this test,
    also for similar judges, groups of very unequal size and crossed designs, are in
    figures/validity_comparison.csv and validity_crossed.csv.

    Raises:
        ValueError: there are fewer than two judges, or the margin is not above 0.

    Source: Efron and Stein, Annals of Statistics 9 (1981), 586-596, for the jackknife's correction;
    Holm, Scandinavian Journal of Statistics 6 (1979), 65-70; Schuirmann, Journal of
    Pharmacokinetics and Biopharmaceutics 15 (1987), 657-680, for equivalence.

    >>> first, second = [1, 2, 3, 4, 5] * 4, [1, 3, 2, 5, 4] * 4
    >>> table = compare_judges(first, {"first": first, "second": second})
    >>> table["difference"].round(2).tolist()
    [0.2, 0.2, 0.4]
    """
    by_name = judges_by_name(judges)
    if margin is not None and not margin > 0:
        raise ValueError(
            f"margin={margin!r}: give a difference in correlation above 0, such as .05"
        )
    groups, caveats = groups_from_ids(reference, groups, ids)
    check_columns(reference=reference, ids=ids, strata=strata)
    (gold, *columns), used = read_scores(reference=reference, groups=groups, **by_name)
    scores = dict(zip(map(str, judges), columns, strict=True))
    options: dict[str, Any] = {
        "confidence": confidence,
        "n_resamples": MAX_UNITS if n_resamples is None else n_resamples,
        "seed": seed,
    }
    caveats += balanced_group_caveats(groups, used)
    table = _compare_pairs(gold, scores, groups, strata, margin, caveats, options)
    if strata is None or not each:
        return table

    # The same within each stratum: the reference of all other items is masked, and those items
    # don't count as missing.
    labels = np.array([str(label) for label in strata])
    within = {}
    for stratum in dict.fromkeys(labels):
        inside = labels == stratum
        masked = np.where(inside, gold, np.nan)
        balanced = balanced_group_caveats(groups, used & inside)
        rows = _compare_pairs(masked, scores, groups, None, margin, balanced, options)
        within[stratum] = rows.assign(missing=rows["missing"] - np.count_nonzero(~inside))
    by_stratum = pd.concat(within)
    by_stratum["p_holm"] = by_stratum.groupby(level="statistic")["p"].transform(holm)
    result = pd.concat([by_stratum, pd.concat({OVERALL: table})])
    result.index.names = ["stratum", *table.index.names]
    result.attrs = table.attrs | {"caveats": merged_caveats([table, *within.values()])}
    return result


def _compare_pairs(
    gold: Floats,
    scores: Mapping[str, Floats],
    groups: Groups,
    strata: Column | None,
    margin: float | None,
    caveats: list[str],
    options: Mapping[str, Any],
) -> pd.DataFrame:
    """Compare each pair of judges, with p-values corrected over the pairs, see `compare_judges`.

    Args:
        gold: the reference, shape (n,), NaN where missing.
        scores: judge -> scores, shape (n,), NaN where missing.
        caveats: further caveats of the table, beside those of the pairs.
        options: confidence, n_resamples and seed.
        groups, strata, margin: see `compare_judges`.
    """
    pairs = {}
    for a, b in combinations(scores, 2):
        columns = np.stack([gold, scores[a], scores[b]])
        pairs[a, b] = _compare_pair(columns, a, b, groups, strata, margin, options)
    table = pd.concat(pairs, names=["a", "b", "statistic"])
    table["p_holm"] = table.groupby(level="statistic")["p"].transform(holm)
    table = table[[name for name in COMPARISON_COLUMNS if name in table]]
    method = next(iter(pairs.values())).attrs["method"]
    table.attrs = {
        "method": f"{method}; Holm over {len(pairs)} pairs of judges",
        "caveats": merged_caveats(pairs.values()),
    }
    add_caveats(table, caveats)
    return table


def _compare_pair(
    columns: Floats,
    a: str,
    b: str,
    groups: Groups,
    strata: Column | None,
    margin: float | None,
    options: Mapping[str, Any],
) -> pd.DataFrame:
    """Compare two judges, a row per statistic.

    Args:
        columns: the scores of the reference, of a and of b, shape (3, n), NaN where missing.
        a, b: the judges' names.
        groups, strata, margin: see `compare_judges`.
        options: confidence, n_resamples and seed.
    """
    # 1) The items that both judges scored, and the strata in which all three scores vary
    used = np.asarray(~np.isnan(columns).any(axis=0))
    code = np.zeros(int(used.sum()), dtype=np.int64)  # without strata, all are in one
    caption = ""
    caveats: list[str] = []
    if strata is not None:
        stratified = Strata.of(strata, used, list(columns))
        used, code, caveats = stratified.used, stratified.code, stratified.caveats
        caption = f"; means over {len(set(code))} strata"
    columns = columns[:, used]
    reason = undefined_reason(**dict(zip(("the reference", a, b), columns, strict=True)))
    cells, cell = distinct_rows(np.column_stack([*columns, code]))  # (k, 4)
    design = design_of(cell, groups, used)
    gold, *judges, stratum = cells.T

    def correlate_both(weights: Weights) -> Floats:
        """Correlate both judges with the reference, shape (2, 3, replicates)."""
        if strata is None:
            return np.stack([correlations(gold, judge, weights) for judge in judges])
        return np.stack(
            [stratified.correlations(gold, judge, stratum, weights) for judge in judges]
        )

    # 2) The difference of their correlations, first minus second, and each correlation
    table = tabulate(
        lambda weights: np.subtract(*correlate_both(weights)),
        STATISTICS,
        design,
        by="jackknife",
        pairs=PAIRS,
        reason=f"{a} and {b}: {reason}" if reason else f"{a} and {b}",
        **options,
    )
    table = table.rename(columns={"estimate": "difference"})
    table[["estimate_a", "estimate_b"]] = np.nan
    if not reason:
        estimates = evaluate(correlate_both, design.counts[:, None])[..., 0]  # (2, 3)
        table[["estimate_a", "estimate_b"]] = estimates.T
    table.attrs["method"] += caption
    add_caveats(table, caveats)
    _add_tests(table, margin)
    return table


def _add_tests(table: pd.DataFrame, margin: float | None) -> None:
    """Add columns p, of a t test of no difference, and, with a margin, p_equivalence.

    Args:
        table: columns difference, error and freedom. Without resamples the latter two are absent,
            and the p-values are NaN.
        margin: see `compare_judges`.
    """
    error = table.get("error", np.nan)
    freedom = table.get("freedom", np.nan)
    size = table["difference"].abs()
    table["p"] = 2 * stats.t.sf(size / error, freedom)
    table.loc[(error == 0) & (size == 0), "p"] = 1.0  # both judges gave the same scores
    if margin is not None:
        # Two one-sided tests (TOST) against the margins -m and m. Their p-value is the larger of
        # both, which belongs to the margin nearer to the difference.
        table["p_equivalence"] = stats.t.sf((margin - size) / error, freedom)
