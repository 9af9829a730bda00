"""How far raters agree, the human ceiling, several samples of a judge, and what its scores mean in human scores."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from vjudge.metrics import tables
from vjudge.metrics.resampling import (
    STATISTICS,
    Floats,
    Statistic,
    Table,
    Weights,
    correlations,
    summing,
)
from vjudge.metrics.tables import (
    Column,
    Groups,
    aligned,
    check_columns,
    design_of,
    group_codes,
    scores,
    tabulate,
)
from vjudge.records import is_int_at_least, is_missing

COEFFICIENTS = {  # the scale of each one's interval
    **dict.fromkeys(
        ("alpha_nominal", "alpha_ordinal", "alpha_interval", "cohen_kappa", "quadratic_kappa"),
        "fisher",
    ),
    **dict.fromkeys(("exact", "within_one"), "logit"),
}
NOMINAL = ("alpha_nominal", "cohen_kappa", "exact")
_KEYS, _SCORES = ("judge", "id"), ("score", "expected_score")
_CARRIED = ("gold", "human_scores", "group", "criteria", "category")


def agreement(
    ratings: Any, *, level: str = "scores", groups: Groups = None, **options: Any
) -> pd.DataFrame:
    """Measure how far raters agree with one another, with bootstrap intervals.

    Args:
        ratings: n items by m raters: a frame (a column a rater), a 2-D array, or one list of ratings an item (lists may
            differ in length). NaN and None are missing.
        level: "scores", or "nominal" for labels without an order, such as four-way votes.
        groups, options: confidence, n_resamples, seed, see `correlate`.

    Returns:
        Columns as `correlate`; rows alpha_nominal, alpha_ordinal, alpha_interval (Krippendorff's, over items with two
        ratings or more); cohen_kappa, quadratic_kappa (mean over pairs of raters who share items); exact, within_one
        (share of pairs of ratings of one item that are equal, or at most 1 apart). Of labels alpha_nominal, cohen_kappa
        and exact alone. Kappa needs a column to be one rater; of various ones take alpha.

    Source: Krippendorff, Content Analysis (2004), chapter 11; Light, Psychological Bulletin 76 (1971), for pairs.

    >>> agreement([[1, 2], [2, 2], [4, 3], [5, 5]], n_resamples=0)["estimate"][["exact", "within_one"]].tolist()
    [0.5, 1.0]

    ValueError: scores of a value head, which have no scale.
    """
    if level not in ("scores", "nominal"):
        raise ValueError(f'level must be "scores" or "nominal", not {level!r}')
    check_columns(ratings=ratings, groups=groups)
    tables.check_scaled("agreement", ratings)
    table, _ = read_ratings(ratings, nominal=level == "nominal")
    shared = (~np.isnan(table)).sum(axis=1) >= 2
    values, cell = _distinct(table[shared])
    names = NOMINAL if level == "nominal" else tuple(COEFFICIENTS)
    rows = [list(COEFFICIENTS).index(name) for name in names]
    return tabulate(
        lambda w: np.vstack([part(values, w) for part in (_alphas, _kappas, _close)])[rows],
        names,
        design_of(cell, groups, shared),
        method=[COEFFICIENTS[name] for name in names],
        why="no item has two ratings, or there is no variation",
        **options,
    )


def read_ratings(ratings: Any, *, nominal: bool = False) -> tuple[Floats, list[Any]]:
    """Ratings (labels as numbers if nominal) as floats (n, m), NaN where missing, and the raters' names."""
    if isinstance(ratings, pd.DataFrame):
        frame = ratings.set_axis(ratings.columns.astype(str), axis=1)
        if frame.columns.has_duplicates:
            twice = ", ".join(frame.columns[frame.columns.duplicated()].unique())
            raise ValueError(f"raters share a name: {twice}; give each column its own")
    else:
        for position, row in enumerate(ratings):
            if isinstance(row, str | bytes) or not (is_missing(row) or hasattr(row, "__iter__")):
                raise TypeError(
                    f"ratings of item {position} are {row!r}: give a list of numbers, one for each rater"
                )
        rows = [[] if is_missing(row) else list(row) for row in ratings]
        frame = pd.DataFrame(
            dict(enumerate(itertools.zip_longest(*rows))), index=range(len(rows)), dtype=object
        )
    if nominal:
        words = frame.map(tables.label_text).to_numpy(dtype=object)
        codes = pd.factorize(words.T.ravel())[0].astype(float).reshape(words.T.shape).T
        return np.where(codes < 0, np.nan, codes), list(frame)
    columns = [scores(frame[name].tolist(), name=f"rater {name}") for name in frame]
    return np.reshape(columns, (len(columns), len(frame))).T, list(frame)


def _distinct(table: Floats) -> tuple[Floats, np.ndarray]:
    """The distinct rows of ratings, missing ones among them, and the one of each item."""
    rows, cell = np.unique(np.nan_to_num(table, nan=-np.inf), axis=0, return_inverse=True)
    return np.where(np.isinf(rows), np.nan, rows), np.reshape(cell, -1)


# Coefficients of distinct rows of ratings, shape (rows, raters), for weights of shape (rows, replicates)


def _alphas(values: Floats, weights: Weights) -> Floats:
    """Krippendorff's alpha, nominal, ordinal and interval: 1 - (n - 1) / n * within-item by total disagreement."""
    present = ~np.isnan(values)
    size = present.sum(axis=1)
    scaled = weights * (size / np.maximum(size - 1, 1))[:, None]
    levels, code = np.unique(values[present], return_inverse=True)
    tally = summing(np.nonzero(present)[0], code, (len(size), len(levels)))
    counts = tally.T @ weights  # of each level, per replicate
    n = counts.sum(axis=0)

    def within(ratings: Floats) -> Floats:
        """Sum of squares around the mean of each item's ratings, from a value for each level and replicate."""
        return np.asarray(tally @ ratings**2 - (tally @ ratings) ** 2 / size[:, None])

    # Half the unequal ordered pairs of an item, over its size: what a sum of squares is for numbers.
    unequal = (size - (tally * tally).sum(axis=1) / np.maximum(size, 1)) / 2
    rank = np.cumsum(counts, axis=0) - counts / 2 - n / 2
    value = levels - (levels.mean() if len(levels) else 0.0)
    pairs = [
        (unequal @ scaled, (n - (counts**2).sum(axis=0) / n) / 2),
        ((within(rank) * scaled).sum(axis=0), (counts * rank**2).sum(axis=0)),
        (within(value[:, None])[:, 0] @ scaled, value**2 @ counts - (value @ counts) ** 2 / n),
    ]
    # NaN where the whole is nothing but rounding.
    wholes = [
        np.where(whole > 1e-12 * np.nanmax(whole, initial=0), whole, np.nan) for _, whole in pairs
    ]
    return np.stack(
        [1 - (n - 1) / n * (part / whole) for (part, _), whole in zip(pairs, wholes, strict=True)]
    )


def _kappas(values: Floats, weights: Weights) -> Floats:
    """Cohen's and quadratic kappa, mean over pairs of raters who share items; shape (2, replicates)."""
    kappas = []
    for pair in itertools.combinations(values.T, 2):
        both = ~np.isnan(pair).any(axis=0)
        if not both.any():
            continue
        level, code = np.unique(np.array(pair)[:, both], return_inverse=True)
        x, y = code.reshape(2, -1)
        w = weights[both] / weights[both].sum(axis=0)
        x_margin, y_margin = (
            summing(side, np.arange(len(side)), (len(level), len(side))) @ w for side in (x, y)
        )
        value = level - level.mean()
        chance = 1 - np.einsum("lr,lr->r", x_margin, y_margin)
        squared = value**2 @ (x_margin + y_margin) - 2 * (value @ x_margin) * (value @ y_margin)
        for observed, expected, size in (
            (1 - (x == y) @ w, chance, 1.0),
            ((level[x] - level[y]) ** 2 @ w, squared, np.ptp(level) ** 2),
        ):
            kappas.append(1 - observed / np.where(expected <= 1e-12 * size, np.nan, expected))
    if not kappas:
        return np.full((2, weights.shape[1]), np.nan)
    return np.reshape(kappas, (-1, 2, weights.shape[1])).mean(axis=0)


def _close(values: Floats, weights: Weights) -> Floats:
    """Share of pairs of ratings of one item that are equal, and at most 1 apart; shape (2, replicates)."""
    counts = np.zeros((3, len(values)))
    for first, second in itertools.combinations(values.T, 2):
        gap = np.abs(first - second)
        counts += np.stack([gap == 0, gap <= 1 + 1e-9, ~np.isnan(gap)])
    return counts[:2] @ weights / (counts[2] @ weights)


def rater_table(
    ratings: Any,
    judges: Column | Mapping[str, Column] | None = None,
    *,
    groups: Groups = None,
    n_resamples: int = 2_000,
    **options: Any,
) -> pd.DataFrame:
    """Each rater against the others, the human ceiling, and judges against each rater and their mean, in one table.

    Args:
        ratings, groups: see `agreement`; a frame's columns name the raters. options: confidence and seed.
        judges: one judge's scores of the items, or several by name; NaN where missing. None: people alone.

    Returns:
        Columns as `correlate`, index (who, against, statistic): each rater against "the others", their mean; "ceiling",
        the mean of these; each judge against each rater, against "the mean" of all, whose lower noise may carry it past
        the ceiling, and against "all but one": the mean over raters of its correlation with the mean of the others, on
        that rater's items, which is the one to hold beside the ceiling.

    Source: Calderon, Reichart and Dror, "The Alternative Annotator Test" (arXiv 2501.10970), section 3.

    >>> people = pd.DataFrame({"ann": [1, 2, 4, 5], "bob": [2, 2, 3, 5], "eve": [1, 3, 4, 4]})
    >>> float(rater_table(people, [1, 2, 3, 5], n_resamples=0)["estimate"]["judge", "the mean", "pearson"].round(2))
    0.98
    """
    by_name = (
        {} if judges is None else dict(judges) if isinstance(judges, Mapping) else {"judge": judges}
    )
    check_columns(ratings=ratings, groups=groups, **by_name)
    table, raters = read_ratings(ratings)
    columns = [scores(column, name=str(name)) for name, column in by_name.items()]
    used = (~np.isnan(table)).sum(axis=1) >= (1 if by_name else 2)
    values, cell = _distinct(np.column_stack([table, *columns])[used])
    people, machines = np.hsplit(values, [len(raters)])

    # Each row of the table is the mean of one or more correlations.
    own = [(column, _mean_of(np.delete(people, r, axis=1))) for r, column in enumerate(people.T)]
    rows: dict[tuple[Any, str], list[tuple[Floats, Floats]]]
    rows = {(name, "the others"): [pair] for name, pair in zip(raters, own, strict=True)}
    rows["ceiling", "the others"] = own
    for judge, column in zip(by_name, machines.T, strict=True):
        rows |= {
            (judge, name): [(column, person)] for name, person in zip(raters, people.T, strict=True)
        }
        rows[judge, "the mean"] = [(column, _mean_of(people))]
        rows[judge, "all but one"] = [
            (column, np.where(np.isnan(x), np.nan, rest)) for x, rest in own
        ]
    counts = np.bincount(cell, minlength=len(people))
    with_both = ([~np.isnan(x + y) for x, y in pairs] or [counts < 0] for pairs in rows.values())
    n = np.array([counts[np.any(some, axis=0)].sum() for some in with_both]).repeat(len(STATISTICS))
    functions = [[_correlation(*pair, counts) for pair in pairs] for pairs in rows.values()]

    def statistic(w: Weights) -> Floats:
        empty = np.full((1, len(STATISTICS), w.shape[1]), np.nan)
        return np.concatenate([np.mean([f(w) for f in row] or empty, axis=0) for row in functions])

    return tabulate(
        statistic,
        [(*row, name) for row in rows for name in STATISTICS],
        design_of(cell, groups, used),
        n=n,
        missing=len(table) - n,
        method="fisher",
        index=["who", "against", "statistic"],
        why="some rater has too few shared items, or no variation",
        n_resamples=n_resamples,
        **options,
    )


def _correlation(x: Floats, y: Floats, counts: np.ndarray) -> Statistic:
    """Pearson, Spearman and Kendall of two columns, without rows that lack one, as a function of the rows' weights.

    NaN of fewer than three items: `counts` of the rows.
    """
    rows = np.flatnonzero(~np.isnan(x) & ~np.isnan(y))
    if counts[rows].sum() < 3:
        return lambda weights: np.full((len(STATISTICS), weights.shape[1]), np.nan)
    table = Table(x[rows], y[rows])
    collect = summing(table.cell, rows, (len(table.counts), len(x)))
    return lambda weights: correlations(table, collect @ weights)


def _mean_of(values: Floats) -> Floats:
    """The mean of each row's ratings, NaN where there is none; rounded, so that equal means are ties."""
    with np.errstate(invalid="ignore"):
        return np.asarray(np.round(np.nansum(values, axis=1) / (~np.isnan(values)).sum(axis=1), 12))


def human_ceiling(
    ratings: Any, *, groups: Groups = None, n_resamples: int = 10_000, **options: Any
) -> pd.DataFrame:
    """Correlate each rater with the mean of the others: what a judge as good as one more human would reach.

    Takes and returns what `correlate` does, for ratings as in `agreement`; each row is the plain mean over the raters.

    Source: as VIEScore's `compute_spearman_correlation_by_item` (TIGER-AI-Lab/VIEScore, analyze_json.ipynb).

    >>> human_ceiling([[1, 2], [2, 2], [4, 3], [5, 5]], n_resamples=0)["estimate"].round(3).to_dict()
    {'pearson': 0.904, 'spearman': 0.949, 'kendall': 0.913}
    """
    table = rater_table(ratings, groups=groups, n_resamples=n_resamples, **options)
    return table.iloc[-len(STATISTICS) :].droplevel(["who", "against"])


def average_samples(run: pd.DataFrame) -> pd.DataFrame:
    """The mean of several samples of one judge, an item a row, with the failed samples counted.

    Args:
        run: from `Judge.grade(samples=...)`: id, score or expected_score, failure, and judge where there are several.

    Returns:
        A row an item (and judge), in the run's order: what describes the item, the mean of each score, n_samples,
        n_failed, and failure: the commonest reason where no sample has a score.

    Source: averaging samples as in G-Eval (arXiv 2303.16634), section 2.

    >>> run = pd.DataFrame({"id": ["p", "p", "q"], "score": [4, 5, None], "failure": [None, None, "no score"]})
    >>> average_samples(run)[["score", "n_samples", "n_failed", "failure"]].values.tolist()
    [[4.5, 2, 0, None], [nan, 1, 1, 'no score']]
    """
    keys, present, carried = (
        [name for name in names if name in run] for names in (_KEYS, _SCORES, _CARRIED)
    )
    if "id" not in keys or not present:
        raise ValueError(
            f"the run needs id and score or expected_score; it has {', '.join(map(str, run.columns))}"
        )
    values = {name: scores(run[name], name=name) for name in present}
    reasons = run["failure"] if "failure" in run else pd.Series(None, index=run.index, dtype=object)
    reasons = reasons.fillna("no score").astype(str).where(np.isnan(values[present[0]]))
    samples = run[keys].assign(**values, failure=reasons).groupby(keys, sort=False)
    table = run.drop_duplicates(keys).set_index(keys)[carried]
    table = table.join(samples[present].mean()).assign(
        n_samples=samples.size(), n_failed=samples["failure"].count()
    )
    commonest = samples["failure"].agg(
        lambda reasons: next(iter(reasons.value_counts().index), None)
    )
    table["failure"] = commonest.astype(object).where(table["n_failed"] == table["n_samples"], None)
    return table.reset_index()


def calibration_curve(
    judge: Column,
    human: Column,
    *,
    bins: int | None = None,
    groups: Groups = None,
    confidence: float = 0.95,
) -> pd.DataFrame:
    """The mean human score at each score of the judge: on the diagonal, a score means what it says.

    Args:
        judge, human: scores of n items, NaN where missing. groups, confidence: see `correlate`.
        bins: None makes a row of each score of the judge, a number so many of about equal counts (fewer where scores
            tie).

    Returns:
        A row a bin, lowest first: judge, human (mean scores), low, high (Student's t), n and share. The interval is
        NaN, with a warning, in a bin of one item, group or human score. `attrs` has missing.

    Source: reliability diagrams as in Niculescu-Mizil and Caruana, ICML 2005, of scores instead of probabilities.

    >>> calibration_curve([1, 1, 2, 2], [1, 2, 3, 4])[["judge", "human", "n"]].values.tolist()
    [[1.0, 1.5, 2.0], [2.0, 3.5, 2.0]]
    """
    tables.check_options(confidence=confidence)
    x, y, used = aligned(judge=judge, human=human, groups=groups)
    if bins is not None and not is_int_at_least(bins, 1):
        raise ValueError(f"bins must be a whole number from 1, or None, not {bins!r}")
    frame = pd.DataFrame({"judge": x[used], "human": y[used], "unit": group_codes(groups, used)})
    frame["bin"] = frame["judge"]
    if bins is not None and len(frame):
        edges = np.unique(np.quantile(frame["judge"], np.linspace(0, 1, bins + 1))[1:-1])
        frame["bin"] = np.searchsorted(edges, frame["judge"], side="right")
    by_bin = frame.groupby("bin")
    table, n = by_bin[["judge", "human"]].mean(), by_bin.size()
    totals = (
        (frame["human"] - by_bin["human"].transform("mean"))
        .groupby([frame["bin"], frame["unit"]])
        .sum()
    )
    units = totals.groupby("bin").size()
    error = np.sqrt((totals**2).groupby("bin").sum() * units / (units - 1)) / n
    half = (stats.t.ppf((1 + confidence) / 2, units - 1) * error).where(
        by_bin["human"].nunique() > 1
    )
    table = table.assign(
        low=table["human"] - half, high=table["human"] + half, n=n, share=n / len(frame)
    )
    table = table.reset_index(drop=True)
    if table.empty:
        tables.warn("there is no item with both scores")
    if alone := int(table["low"].isna().sum()):
        what = "of one item or group, or of one human score: give bins=, or more items"
        tables.warn(f"intervals are undefined in {alone} of {len(table)} bins ({what})")
    unit = "items" if groups is None else "groups"
    method = f"{confidence:.0%} intervals by Student's t over {unit}; {len(frame)} items"
    table.attrs = {"method": method, "missing": int((~used).sum())}
    return table


def calibration_errors(
    judge: Column, human: Column, *, groups: Groups = None, n_resamples: int = 2_000, **options: Any
) -> pd.DataFrame:
    """Bias (mean of score less human) and mae (mean absolute error): rows with columns and options as `correlate`.

    Source: Willmott and Matsuura, Climate Research 30 (2005), 79-82.

    >>> calibration_errors([2, 3, 4, 5], [1, 2, 3, 5], n_resamples=0)["estimate"].to_dict()
    {'bias': 0.75, 'mae': 0.75}
    """
    tables.check_scaled("calibration_errors", judge, human)
    x, y, used = aligned(judge=judge, human=human, groups=groups)
    miss = (x - y)[used]
    both, design = np.stack([miss, np.abs(miss)]), design_of(np.arange(len(miss)), groups, used)
    options |= {"n_resamples": n_resamples, "why": "too few items"}
    return tabulate(lambda w: both @ w / w.sum(axis=0), ["bias", "mae"], design, **options)
