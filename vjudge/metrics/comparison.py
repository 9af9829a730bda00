"""Is judge a better than judge b by more than noise? The difference of two correlations with one reference."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats
from tqdm.auto import tqdm

from vjudge.metrics import _bootstrap
from vjudge.metrics._bootstrap import PATIENCE, STATISTICS, Design, Table, correlations
from vjudge.metrics._tables import check_options, group_codes, listed_twice, same_index, scores

COLUMNS = (
    "estimate_a",
    "estimate_b",
    "difference",
    "low",
    "high",
    "p",
    "p_holm",
    "p_williams",
    "p_steiger",
    "n",
    "missing",
)


def compare_judges(
    reference: Sequence[float] | np.ndarray | pd.Series,
    a: Sequence[float] | np.ndarray | pd.Series | Mapping[str, Any] | pd.DataFrame,
    b: Sequence[float] | np.ndarray | pd.Series | None = None,
    *,
    groups: Sequence[Any] | np.ndarray | pd.Series | None = None,
    scale: tuple[float, float] | None = None,
    confidence: float = 0.95,
    n_resamples: int = 10_000,
    seed: int = 0,
) -> pd.DataFrame:
    """Compare how well judges of the same items agree with one reference, pair by pair.

    Args:
        reference: the scores to agree with, of n items; None and NaN are missing.
        a: one judge's scores of the same items, in the same order; or many judges, as a mapping from name to scores or
            a frame with a column each.
        b: the other judge's scores; None with many judges. Two Series must share the index of the reference.
        groups: the unit of resampling of each item, for example its image. None resamples items.
        scale: lowest and highest possible score; a score outside is refused. None accepts any.
        confidence: coverage of the intervals, in (0, 1).
        n_resamples: bootstrap replicates, and permutations; 0 leaves intervals and permutation p NaN.
        seed: of the resampling; every pair of judges uses the same.

    Returns:
        A frame with a row for each pair of judges and statistic (index a, b, statistic) and columns
        estimate_a, estimate_b: each judge's correlation with the reference, over the items that both scored.
        difference: estimate_a - estimate_b, in [-2, 2], with the bounds low and high of a paired bootstrap.
        p: two-sided, of a paired permutation: the judges' names are swapped within each item, or all items of a
            group together. Scores are standardised first (ranked, for Spearman and Kendall), so that a judge that
            is only harsher or uses a wider range isn't told apart by that.
        p_holm: p corrected over the pairs of judges, for each statistic alone (Holm).
        p_williams, p_steiger: tests of two correlations that share a variable, as cross-checks: for Pearson of
            independent items with normal scores; NaN for the other statistics, and with groups.
        n, missing: items used, and left out because one of the three scores is missing.
        A correlation is NaN, with a warning, where it is undefined: fewer than three items, a constant score. `attrs`
        has the method in words for a caption, confidence, n_resamples, seed and undefined_resamples, the largest share
        of replicates without a difference, which the intervals leave out.

    Raises:
        TypeError: a score is not a number, or judges are neither two columns nor a mapping; every position is named.
        ValueError: lengths or indexes differ, a score is infinite or off the scale, a used item has no group, there are
            fewer than two judges, or an option is off range.

    Over 2,000 simulated samples of 50 items of each kind measured, the permutation told judges apart who are equally
    good in 4 % to 6 %, and the interval of the difference, on the wide side in so small a sample, left out the true one
    in 2 % to 4 %: figures/validity_comparison.csv, by `make validity`.

    Source: `metrics._bootstrap.intervals` ("t") and `metrics._bootstrap.swaps`; Williams, JRSS B 21 (1959), 396-399;
    Steiger, Psychological Bulletin 87 (1980), 245-251; Holm, Scandinavian Journal of Statistics 6 (1979), 65-70.

    >>> from vjudge.metrics import compare_judges
    >>> gold, first, second = [1, 2, 3, 4, 5] * 4, [1, 2, 3, 4, 5] * 4, [1, 3, 2, 5, 4] * 4
    >>> table = compare_judges(gold, first, second, n_resamples=200)
    >>> table["difference"].round(2).tolist()  # by how much the first agrees better
    [0.2, 0.2, 0.4]
    """
    check_options(confidence=confidence, n_resamples=n_resamples)
    columns = _judges(a, b)
    for name, column in columns.items():
        same_index(**{"reference": reference, f"judge {name}": column, "groups": groups})
    gold = scores(reference, name="reference", scale=scale)
    judged = {name: scores(column, name=name, scale=scale) for name, column in columns.items()}
    lengths = {name: len(column) for name, column in judged.items() if len(column) != len(gold)}
    if lengths:
        raise ValueError(f"reference has {len(gold)} scores, but {lengths}: give one of each per item")
    options: dict[str, Any] = dict(groups=groups, confidence=confidence, n_resamples=n_resamples, seed=seed)
    rows, undefined = {}, 0.0
    for first, second in tqdm(list(combinations(judged, 2)), desc="pairs of judges", delay=PATIENCE, leave=False):
        found, missing = _pair(gold, judged[first], judged[second], names=(first, second), **options)
        undefined = np.fmax(undefined, missing)
        rows.update({(first, second, statistic): row for statistic, row in zip(STATISTICS, found, strict=True)})
    table = pd.DataFrame.from_dict(rows, orient="index", columns=[c for c in COLUMNS if c != "p_holm"])
    table.index = pd.MultiIndex.from_tuples(rows, names=["a", "b", "statistic"])
    table = table.astype({"n": int, "missing": int})
    corrected = table.groupby(level="statistic")["p"].transform(lambda p: holm(p.to_numpy()))
    table.insert(COLUMNS.index("p_holm"), "p_holm", corrected)
    unit = "items" if groups is None else "groups"
    table.attrs = {
        "method": f"{confidence:.0%} paired bootstrap intervals (Student's) and paired permutation over {unit}, "
        f"{n_resamples:,} of each, seed {seed}; Holm over {len(rows) // len(STATISTICS)} pairs of judges",
        "confidence": confidence,
        "n_resamples": n_resamples,
        "seed": seed,
        "undefined_resamples": float(undefined),
    }
    return table


def who_beats_whom(
    comparisons: pd.DataFrame, *, statistic: str = "pearson", value: str = "verdict", alpha: float = 0.05
) -> pd.DataFrame:
    """The pairs of `compare_judges` as a square frame, judge by judge.

    Args:
        comparisons: from `compare_judges`.
        statistic: pearson, spearman or kendall.
        value: "verdict": 1 where the row's judge agrees better with the reference than the column's and p_holm is at
            most alpha, -1 where worse, 0 where they are not told apart; or "difference", row less column; or "p_holm".
        alpha: the family-wise error rate of the verdicts, in (0, 1).

    Returns:
        A frame with judges as rows and columns, in the order given; NaN on the diagonal and where undefined.

    Raises:
        ValueError: an unknown statistic or value, or alpha off range.
    """
    if statistic not in STATISTICS:
        raise ValueError(f"statistic must be one of {', '.join(STATISTICS)}, not {statistic!r}")
    if value not in ("verdict", "difference", "p_holm"):
        raise ValueError(f"value must be verdict, difference or p_holm, not {value!r}")
    if not 0 < alpha < 1:
        raise ValueError(f"alpha must lie between 0 and 1, not {alpha}")
    rows = comparisons.xs(statistic, level="statistic")
    names = list(dict.fromkeys([*rows.index.get_level_values("a"), *rows.index.get_level_values("b")]))
    matrix = pd.DataFrame(np.nan, index=pd.Index(names, name="judge"), columns=pd.Index(names, name="against"))
    for (first, second), row in rows.iterrows():
        cell = row["p_holm"] if value == "p_holm" else row["difference"]
        if value == "verdict":
            cell = np.nan if np.isnan(row["p_holm"]) else np.sign(cell) * (row["p_holm"] <= alpha)
        matrix.loc[first, second] = cell
        matrix.loc[second, first] = cell if value == "p_holm" else 0 - cell
    matrix.attrs = {**comparisons.attrs, "statistic": statistic, "alpha": alpha}
    return matrix


def williams(r_a: float, r_b: float, r_ab: float, n: int) -> tuple[float, float]:
    """Williams' t for two correlations that share a variable.

    Args:
        r_a, r_b: each judge's Pearson correlation with the reference; r_ab: of the judges with each other.
        n: independent items.

    Returns:
        t with n - 3 degrees of freedom, and its two-sided p; NaN where n is below 4 or the variance is 0.

    Source: Williams, JRSS B 21 (1959), 396-399, as in Steiger, Psychological Bulletin 87 (1980), equation 7.
    """
    mean = (r_a + r_b) / 2
    determinant = 1 - r_a**2 - r_b**2 - r_ab**2 + 2 * r_a * r_b * r_ab
    if n < 4 or not np.isfinite(determinant):
        return np.nan, np.nan
    variance = 2 * (n - 1) / (n - 3) * max(determinant, 0) + mean**2 * (1 - r_ab) ** 3
    if variance < 1e-12:
        return np.nan, np.nan
    t = (r_a - r_b) * np.sqrt((n - 1) * (1 + r_ab) / variance)
    return float(t), float(2 * stats.t.sf(abs(t), n - 3))


def steiger(r_a: float, r_b: float, r_ab: float, n: int) -> tuple[float, float]:
    """Steiger's z for two correlations that share a variable, their covariance taken at the mean correlation.

    Args:
        r_a, r_b, r_ab, n: see `williams`.

    Returns:
        z and its two-sided p; NaN where n is below 4 or a correlation is 1 or -1.

    Source: Steiger, Psychological Bulletin 87 (1980), 245-251, equation 14.
    """
    if n < 4 or not np.isfinite(r_a + r_b + r_ab) or max(abs(r_a), abs(r_b), abs(r_ab)) > 1 - 1e-12:
        return np.nan, np.nan
    squared = ((r_a + r_b) / 2) ** 2
    covariance = r_ab * (1 - 2 * squared) - squared * (1 - 2 * squared - r_ab**2) / 2
    z = (np.arctanh(r_a) - np.arctanh(r_b)) * np.sqrt((n - 3) / (2 - 2 * covariance / (1 - squared) ** 2))
    return float(z), float(2 * stats.norm.sf(abs(z)))


def holm(p: np.ndarray) -> np.ndarray:
    """p values corrected for their number by Holm's method; NaN stays NaN and isn't counted.

    Source: Holm, Scandinavian Journal of Statistics 6 (1979), 65-70.
    """
    corrected = np.full(len(p), np.nan)
    known = np.flatnonzero(~np.isnan(p))
    order = known[np.argsort(p[known], kind="stable")]
    corrected[order] = np.minimum(np.maximum.accumulate(p[order] * np.arange(len(order), 0, -1)), 1)
    return corrected


def _judges(a: Any, b: Any) -> dict[str, Any]:
    if b is None:
        if not isinstance(a, Mapping | pd.DataFrame):
            raise TypeError("give two judges as a and b, or many as a mapping from name to scores or a frame")
        given = [str(name) for name in a]
        if len(set(given)) < len(given):
            raise ValueError(f"judges share a name: {listed_twice(given)}; give each its own")
        judges = {str(name): a[name] for name in a}
    else:
        if isinstance(a, Mapping | pd.DataFrame):
            raise TypeError("a holds many judges already: leave b out")
        names = [getattr(column, "name", None) for column in (a, b)]
        named = all(isinstance(name, str) for name in names) and names[0] != names[1]
        judges = dict(zip(map(str, names) if named else ("a", "b"), (a, b), strict=True))
    if len(judges) < 2:
        raise ValueError(f"{len(judges)} judges: at least 2 are needed for a comparison")
    return judges


def _pair(
    gold: np.ndarray,
    a: np.ndarray,
    b: np.ndarray,
    *,
    names: tuple[str, str],
    groups: Any,
    confidence: float,
    n_resamples: int,
    seed: int,
) -> tuple[list[list[float]], float]:
    """The rows of one pair of judges, and the largest share of replicates without a difference."""
    used = ~(np.isnan(gold) | np.isnan(a) | np.isnan(b))
    codes = None if groups is None else group_codes(groups, used)
    gold, a, b = gold[used], a[used], b[used]
    n, missing = len(gold), int((~used).sum())
    empty = np.full(len(STATISTICS), np.nan)
    pair = f"{names[0]} and {names[1]}"
    constant = [name for name, v in zip(("reference", *names), (gold, a, b), strict=True) if n and (v == v[0]).all()]
    if n < 3 or constant:
        why = f"{n} complete items, at least 3 are needed" if n < 3 else f"{' and '.join(constant)} constant"
        warnings.warn(f"the comparison of {pair} is undefined: {why}", stacklevel=3)
        return [[np.nan] * 8 + [n, missing] for _ in STATISTICS], np.nan

    design = Design(pd.factorize(pd.MultiIndex.from_arrays([gold, a, b]), sort=False)[0].astype(np.int64), codes)
    first = np.unique(design.cell, return_index=True)[1]  # a row of each cell
    as_scored = _Sides(gold[first], a[first], b[first])
    estimates = as_scored.correlations(design.counts[:, None])[..., 0]
    p_williams, p_steiger = empty.copy(), empty.copy()
    if codes is None:
        between = correlations(Table.of(a, b), Table.of(a, b).counts[:, None], statistics=["pearson"])[0, 0]
        r_a, r_b = estimates[:, 0]
        p_williams[0], p_steiger[0] = williams(r_a, r_b, between, n)[1], steiger(r_a, r_b, between, n)[1]

    bounds, p, undefined = np.full((len(STATISTICS), 2), np.nan), empty, empty
    if design.n_units < 2:
        warnings.warn(f"{pair}: interval and p are undefined: all items belong to one group", stacklevel=3)
    elif n_resamples:
        drawn = _bootstrap.replicates(as_scored.difference, design, n_resamples=n_resamples, seed=seed)
        bounds, undefined = _bootstrap.intervals(
            drawn, estimates[0] - estimates[1], n_units=design.n_units, confidence=confidence, method="t"
        )
        p = _permutation(design, gold[first], a, b, first, n_resamples=n_resamples, seed=seed)
        if np.nanmax(undefined) > 0.01:
            warnings.warn(
                f"{pair}: a score is constant in {undefined.max():.0%} of the resamples: the intervals leave those out "
                "and are too narrow",
                stacklevel=3,
            )
    columns = [*estimates, estimates[0] - estimates[1], *bounds.T, p, p_williams, p_steiger]
    return [[*row, n, missing] for row in np.stack(columns, axis=1)], float(undefined.max())


class _Sides:
    """Two judges' correlations with a reference as functions of how often each distinct triple of scores occurs."""

    def __init__(self, gold: np.ndarray, a: np.ndarray, b: np.ndarray, statistics: Sequence[str] = STATISTICS) -> None:
        self.tables = [Table.of(gold, judge) for judge in (a, b)]
        self.pairs = [Design(table.cell).members(np.arange(len(gold))) for table in self.tables]
        self.statistics = statistics

    def correlations(self, weights: np.ndarray) -> np.ndarray:
        """Shape (2, statistics, replicates)."""
        sides = zip(self.tables, self.pairs, strict=True)
        return np.stack([correlations(t, pair @ weights, statistics=self.statistics) for t, pair in sides])

    def difference(self, weights: np.ndarray) -> np.ndarray:
        a, b = self.correlations(weights)
        return a - b


def _permutation(
    design: Design, gold: np.ndarray, a: np.ndarray, b: np.ndarray, first: np.ndarray, *, n_resamples: int, seed: int
) -> np.ndarray:
    """p of each statistic: standardised scores for Pearson, ranks for the others, then swapped between the judges."""
    found = []
    for common, statistics in ((_standardised, ["pearson"]), (stats.rankdata, ["spearman", "kendall"])):
        own, other = common(a)[first], common(b)[first]
        both = np.concatenate([gold, gold])
        sides = _Sides(both, np.concatenate([own, other]), np.concatenate([other, own]), statistics)
        permuted = _bootstrap.swaps(sides.difference, design, n_resamples=n_resamples, seed=seed)
        stands = np.concatenate([design.counts, np.zeros_like(design.counts)])[:, None]
        found.append(_bootstrap.p_value(permuted, sides.difference(stands)[:, 0]))
    return np.concatenate(found)


def _standardised(values: np.ndarray) -> np.ndarray:
    """Mean 0 and standard deviation 1; divided by the largest first, whose square may be out of a float's range."""
    centred = values - values.mean()
    centred = centred / np.abs(centred).max()
    return centred / centred.std()
