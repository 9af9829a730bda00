"""How far raters agree: with one another, and each of them, and a judge, with the others."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from typing import Any, Literal

import numpy as np
import pandas as pd

from vjudge.metrics.columns import (
    Column,
    Groups,
    Ratings,
    as_floats,
    check_columns,
    check_scale,
    design_of,
    is_blank,
    judges_by_name,
)
from vjudge.metrics.resampling import (
    STATISTICS,
    Floats,
    Integers,
    Weights,
    by_code,
    correlations,
    distinct,
    is_fine,
    summing,
)
from vjudge.metrics.strata import grouped_by_id
from vjudge.metrics.tables import add_caveats, gathered_caveats, shares, tabulate
from vjudge.records import from_csv, is_missing

FINE_RESAMPLES = 1_000  # of scores with many levels
MOST_CELLS = 50_000_000  # of a table of rows by levels
LOPSIDED = 0.75  # share of ratings in one category, from which alpha and kappa say little
NOMINAL = ("alpha_nominal", "cohen_kappa", "gwet_ac1")


def agreement(
    ratings: Ratings,
    *,
    level: Literal["scores", "nominal"] = "scores",
    scale: Sequence = (),
    groups: Groups = None,
    confidence: float = 0.95,
    **options: Any,
) -> pd.DataFrame:
    """Measure how far raters agree with one another, with bootstrap intervals.

    Args:
        ratings: n items by m raters: a frame (a column a rater), a 2-D array, or one list of
            ratings an item (lists may differ in length). NaN, None and blanks ("", "NA") are
            missing. Columns lowest and highest of a frame are the scale of each row, as in a run.
        level: "scores", or "nominal" for labels without an order, such as four-way votes.
        scale: all scores that could have been given, which Gwet's coefficients count; those that
            occur where it is empty, and then too few where the scale's end is rare.
        groups, confidence, options: n_resamples, seed, see `correlate`. Scores with more than
            100 levels take 1,000 resamples by default, since each is slow.

    Returns:
        Columns as `correlate`, over the items with two ratings or more. Rows: alpha_nominal,
        alpha_ordinal, alpha_interval (Krippendorff's); icc (ICC(1,1), one rating, one-way); icc_2k,
        icc_3k (ICC(2,k) and (3,k), the mean of all m raters, of absolute agreement and of
        consistency, over the items that all of them rated); cohen_kappa, quadratic_kappa (mean over
        pairs of raters who share items); gwet_ac1, gwet_ac2 (quadratic weights); exact, within_one
        (share of pairs of ratings of one item that are equal, or at most 1 apart). Of labels
        alpha_nominal, cohen_kappa, gwet_ac1 and exact. Kappa needs a column to be one rater; of
        various ones take alpha.

    Where nearly all ratings are one category, alpha and kappa are near 0 however often raters
    agree, and their 95 % intervals cover less (a binary with 10 % of one value, two raters, 30
    items: 88 %, gwet_ac1's 93 %; five levels with 75 % at the top, up to 200 items: 85 to 89 %):
    take gwet_ac1, or gwet_ac2 with `scale`, there. figures/validity_numbers.csv.

    The formulas are this project's own since krippendorff, pingouin and scikit-learn take one
    sample at a time, and the bootstrap thousands; tests hold them equal.

    Source: Krippendorff, Content Analysis (2004), chapter 11; Light, Psychological Bulletin 76
    (1971), for pairs; Gwet, British Journal of Mathematical and Statistical Psychology 61 (2008);
    Shrout and Fleiss, Psychological Bulletin 86 (1979).

    >>> table = agreement([[1, 2], [2, 2], [4, 3], [5, 5]], n_resamples=0)
    >>> table["estimate"][["exact", "within_one"]].tolist()
    [0.5, 1.0]

    ValueError: ratings outside of their scale, or without one, as a value head's scores are; or
    of so many levels that they share no scale.
    """
    if level not in ("scores", "nominal"):
        raise ValueError(f'level must be "scores" or "nominal", not {level!r}')
    nominal = level == "nominal"
    if len(scale) and nominal:
        raise ValueError("scale= is of scores; labels have none")
    groups, caveats = grouped_by_id(ratings, groups)
    check_columns(ratings=ratings, groups=groups)
    bounds: Any = (min(scale), max(scale)) if len(scale) else None
    if isinstance(ratings, pd.DataFrame) and {"lowest", "highest"} <= set(ratings):
        bounds = ratings[["lowest", "highest"]].to_numpy(dtype=float).T  # (2, n)
        ratings = ratings.drop(columns=["lowest", "highest"])
    table, _ = read_ratings(ratings, nominal=nominal)
    if bounds is not None and not nominal:
        check_scale("agreement", bounds, ratings=table.T)
    n_ratings = (~np.isnan(table)).sum(axis=1)  # of each item
    paired = n_ratings >= 2
    cells, cell = distinct(table[paired])
    if is_fine(table):
        options.setdefault("n_resamples", FINE_RESAMPLES)
    names = list(NOMINAL if nominal else COEFFICIENTS)
    tally = Tally.of(cells, scale)
    coefficients = tabulate(
        lambda w: np.stack([COEFFICIENTS[name](tally, w) for name in names]),
        names,
        design_of(cell, groups, paired),
        method="fisher",
        why="the ratings do not vary" if paired.any() else "no item has two ratings",
        confidence=confidence,
        **options,
    )
    complete = int((n_ratings == table.shape[1]).sum())
    of_means = coefficients.index.str.endswith("k")
    coefficients.loc[of_means, ["n", "missing"]] = complete, len(table) - complete
    # Shares of the pairs of ratings of one item, which depend on one another
    equal, close, pairs = _alike(table)
    units = groups
    if groups is None and pairs.max(initial=0) > 1:
        units = np.arange(len(table))
    rows = [("exact", equal, pairs)]
    if not nominal:
        rows.append(("within_one", close, pairs))
    pair_shares = shares(rows, groups=units, unit="items", confidence=confidence)
    result = pd.concat([coefficients, pair_shares])
    result.attrs = {
        "method": f"{coefficients.attrs['method']}; {pair_shares.attrs['method']}",
        "caveats": gathered_caveats([coefficients, pair_shares]),
    }
    counts = np.bincount(cell, minlength=len(cells))
    add_caveats(result, [*caveats, *_limits(tally, counts, level, scale)])
    return result


def _limits(tally: Tally, counts: Integers, level: str, scale: Sequence) -> list[str]:
    """The known limits of agreement that apply to these ratings, in words."""
    limits = []
    of_level = counts @ tally.counts
    n = int(of_level.sum())
    if n and of_level.max() >= LOPSIDED * n:
        limits.append(
            f"{of_level.max() / n:.0%} of the ratings are of one category: alpha and kappa are low"
            " however often raters agree, and their intervals hold less than they say; take Gwet's"
        )
    kappas = kappas_of_pairs(tally, counts[:, None], quadratic=False)
    undefined = np.count_nonzero(np.isnan(kappas))
    if 0 < undefined < len(kappas):
        limits.append(
            f"kappa is undefined of {undefined} of {len(kappas)} pairs of raters, who both gave one"
            " category alone: the mean leaves them out"
        )
    levels = np.count_nonzero(of_level)
    if level == "scores" and not len(scale) and n >= 20 and levels > 0.8 * n:
        limits.append(
            f"{n} ratings have {levels} levels: those of a value head share no scale,"
            " and only correlate compares them; of others give scale="
        )
    return limits


def read_ratings(ratings: Ratings, *, nominal: bool = False) -> tuple[Floats, list[Any]]:
    """Ratings (labels as numbers if nominal) as floats (n, m), NaN where missing, and raters."""
    frame = ratings if isinstance(ratings, pd.DataFrame) else ratings_frame(ratings)
    if not frame.columns.is_unique:
        twice = ", ".join(map(str, frame.columns[frame.columns.duplicated()]))
        raise ValueError(f"raters share a name: {twice}; give each column its own")
    table = np.empty(frame.shape)
    if nominal:
        labels = frame.map(label_text).to_numpy(dtype=object)
        codes = pd.factorize(labels.ravel())[0].reshape(labels.shape)
        table = np.where(codes < 0, np.nan, codes)
    else:
        for column, name in enumerate(frame):
            table[:, column] = as_floats(frame[name], name=f"rater {name}")
    return table, list(frame)


def ratings_frame(ratings: Ratings) -> pd.DataFrame:
    """Lists of ratings, one an item, as a frame, items by raters."""
    rows = []
    for position, cell in enumerate(ratings):
        row = from_csv(cell)
        if is_missing(row):
            row = []
        elif isinstance(row, str | bytes) or not hasattr(row, "__iter__"):
            raise TypeError(
                f"ratings of item {position} are {row!r}: give a list of numbers, one a rater"
            )
        rows.append(list(row))
    return pd.DataFrame(rows, dtype=object)


def label_text(label: object) -> str | None:
    """A label as text, None where it is missing or blank; 1, 1.0 and NumPy's are one label.

    pandas turns whole numbers into floats where one is missing.

    >>> [label_text(label) for label in (1.0, "1.0", np.int64(1), 1.5, None, " ")]
    ['1', '1', '1', '1.5', None, None]
    """
    if is_blank(label):
        return None
    if isinstance(label, float | np.floating) and label.is_integer():
        return str(int(label))
    return re.sub(r"^([+-]?\d+)\.0*$", r"\1", str(label).strip())


# --- Coefficients, for weights of shape (rows, replicates): values of shape (replicates,)


@dataclass(frozen=True)
class Tally:
    """Distinct rows of ratings, and how often each level occurs in each of them."""

    ratings: Floats  # (rows, raters), NaN where missing
    levels: Floats  # (levels,), ascending, then those that nobody gave
    counts: Floats  # (rows, levels)
    size: Floats  # (rows,): ratings of each row, 2 or more

    @classmethod
    def of(cls, ratings: Floats, scale: Sequence = ()) -> Tally:
        """Of distinct rows of ratings, and of all scores that could have been given."""
        present = ~np.isnan(ratings)
        levels, code = np.unique(ratings[present], return_inverse=True)
        levels = np.concatenate([levels, np.setdiff1d(np.asarray(scale, dtype=float), levels)])
        shape = (len(ratings), len(levels))
        if math.prod(shape) > MOST_CELLS:
            raise ValueError(
                f"{len(ratings):,} different rows of ratings have {len(levels):,} levels, too many"
                " for a table of both: round them to a scale, or compare raters by correlate"
            )
        counts = summing(np.nonzero(present)[0], code, shape).toarray()
        return cls(ratings, levels, counts, counts.sum(axis=1))

    @property
    def value(self) -> Floats:
        """The levels less their mean, so that squares lose no digits."""
        return self.levels - self.levels.mean() if len(self.levels) else self.levels

    def within(self, value: Floats) -> Floats:
        """The sum of squares around each row's mean, (rows, r), from values (levels, r)."""
        return self.counts @ value**2 - (self.counts @ value) ** 2 / self.size[:, None]


def krippendorff_alpha(
    tally: Tally, weights: Weights, *, level: Literal["nominal", "ordinal", "interval"]
) -> Floats:
    """1 - (n - 1) / n times the disagreement within items over that of all n ratings."""
    of_level = tally.counts.T @ weights  # (levels, replicates)
    n = of_level.sum(axis=0)
    size = tally.size
    of_item = weights * (size / np.maximum(size - 1, 1))[:, None]
    if level == "nominal":
        # The unequal pairs of an item over its size: a sum of squares of categories
        n_equal = (tally.counts**2).sum(axis=1) / np.maximum(size, 1)
        within = (size - n_equal) @ of_item
        total = n - (of_level**2).sum(axis=0) / n
    elif level == "ordinal":
        # The value of a level is its midrank among all ratings of the replicate
        midrank = np.cumsum(of_level, axis=0) - of_level / 2 - n / 2
        within = (tally.within(midrank) * of_item).sum(axis=0)
        total = (of_level * midrank**2).sum(axis=0)
    else:
        value = tally.value
        within = tally.within(value[:, None])[:, 0] @ of_item
        total = value**2 @ of_level - (value @ of_level) ** 2 / n
    return 1 - (n - 1) / n * within / _positive(total)


def icc_of_one(tally: Tally, weights: Weights) -> Floats:
    """ICC(1,1): of one rating, one-way, with the mean size of an item for unequal ones."""
    value = tally.value
    of_level = tally.counts.T @ weights
    n = of_level.sum(axis=0)
    items = weights.sum(axis=0)
    total = value**2 @ of_level - (value @ of_level) ** 2 / n
    within = tally.within(value[:, None])[:, 0] @ weights
    between = (total - within) / (items - 1)  # mean squares
    within = within / (n - items)
    raters = (n - tally.size**2 @ weights / n) / (items - 1)
    return (between - within) / _positive(between + (raters - 1) * within)


def icc_of_mean(tally: Tally, weights: Weights, *, absolute: bool) -> Floats:
    """ICC(2,k), of absolute agreement, or ICC(3,k): of the mean of k raters who saw all items."""
    complete = ~np.isnan(tally.ratings).any(axis=1)
    x = tally.ratings[complete]  # (rows, k)
    k = x.shape[1]
    if k < 2 or not len(x):
        return np.full(weights.shape[1], np.nan)
    x = x - x.mean()
    w = weights[complete]
    n = w.sum(axis=0)
    mean_of_rater = x.T @ w / n  # (k, replicates)
    grand = mean_of_rater.mean(axis=0)
    of_items = k * (x.mean(axis=1) ** 2 @ w - n * grand**2)
    of_raters = n * ((mean_of_rater - grand) ** 2).sum(axis=0)
    total = (x**2).sum(axis=1) @ w - n * k * grand**2
    items = of_items / (n - 1)
    error = (total - of_items - of_raters) / ((n - 1) * (k - 1))
    bias = (of_raters / (k - 1) - error) / n  # of raters, which counts in absolute agreement
    return (items - error) / _positive(items + absolute * bias)


def cohen_kappa(tally: Tally, weights: Weights, *, quadratic: bool) -> Floats:
    """The mean kappa over pairs of raters who share items and have one."""
    return mean_of_defined(kappas_of_pairs(tally, weights, quadratic=quadratic))


def mean_of_defined(values: Column) -> Floats:
    """The mean along the first axis of those that are not NaN; NaN where none is."""
    defined = (~np.isnan(values)).sum(axis=0)
    return np.nansum(values, axis=0) / np.where(defined, defined, np.nan)


def kappas_of_pairs(tally: Tally, weights: Weights, *, quadratic: bool) -> Floats:
    """Cohen's kappa, or quadratic kappa, of each pair who share items: (pairs, replicates).

    NaN where both gave one category alone.
    """
    kappas = []
    for x, y in combinations(tally.ratings.T, 2):
        both = ~np.isnan(x + y)
        if not both.any():
            continue
        levels, code = np.unique([x[both], y[both]], return_inverse=True)
        x_code, y_code = code.reshape(2, -1)
        with np.errstate(invalid="ignore", divide="ignore"):
            w = weights[both] / weights[both].sum(axis=0)
        x_margin = by_code(x_code, len(levels)) @ w  # (levels, replicates)
        y_margin = by_code(y_code, len(levels)) @ w
        gap = levels[:, None] - levels
        distance = gap**2 if quadratic else (gap != 0).astype(float)
        expected = (x_margin * (distance @ y_margin)).sum(axis=0)
        kappas.append(1 - distance[x_code, y_code] @ w / _positive(expected))
    return np.reshape(kappas, (-1, weights.shape[1]))


def gwet(tally: Tally, weights: Weights, *, quadratic: bool) -> Floats:
    """Gwet's AC1, or AC2 with quadratic weights of the scale and what occurs."""
    q = len(tally.levels)
    size = tally.size
    share = weights / weights.sum(axis=0)
    prevalence = (tally.counts / size[:, None]).T @ share  # (levels, replicates)
    credit = np.eye(q)  # how far two levels agree, 0 to 1
    if quadratic:
        credit = 1 - ((tally.levels[:, None] - tally.levels) / np.ptp(tally.levels)) ** 2
    agreeing = (tally.counts * (tally.counts @ credit - 1)).sum(axis=1) / (size * (size - 1))
    chance = credit.sum() * (prevalence * (1 - prevalence)).sum(axis=0) / (q * (q - 1))
    return (agreeing @ share - chance) / (1 - chance)


COEFFICIENTS: dict[str, Callable[[Tally, Weights], Floats]] = {
    "alpha_nominal": partial(krippendorff_alpha, level="nominal"),
    "alpha_ordinal": partial(krippendorff_alpha, level="ordinal"),
    "alpha_interval": partial(krippendorff_alpha, level="interval"),
    "icc": icc_of_one,
    "icc_2k": partial(icc_of_mean, absolute=True),
    "icc_3k": partial(icc_of_mean, absolute=False),
    "cohen_kappa": partial(cohen_kappa, quadratic=False),
    "quadratic_kappa": partial(cohen_kappa, quadratic=True),
    "gwet_ac1": partial(gwet, quadratic=False),
    "gwet_ac2": partial(gwet, quadratic=True),
}


def _positive(denominator: Floats) -> Floats:
    """NaN where a denominator is nothing but rounding."""
    return np.where(denominator > 1e-12 * np.nanmax(denominator, initial=0), denominator, np.nan)


def _alike(ratings: Floats) -> Floats:
    """Of each item the pairs of ratings that are equal, that are at most 1 apart, and all pairs."""
    counts = np.zeros((3, len(ratings)))
    for x, y in combinations(ratings.T, 2):
        gap = np.abs(x - y)
        counts += [gap == 0, gap <= 1 + 1e-9, ~np.isnan(gap)]
    return counts


# --- Raters and judges, each against the others

SUBSETS = 10  # of raters, whose mean is held against the rest
MOST_RATERS = 4  # in such a mean


@dataclass(frozen=True)
class Paired:
    """Two columns of a sample by their distinct cells, few where both have few levels.

    Attributes:
        x, y: the values of each cell.
        sums: a matrix (cells, rows of the sample) that sums rows with both values by cell.
    """

    x: Floats
    y: Floats
    sums: Any

    @classmethod
    def of(cls, x: Floats, y: Floats) -> Paired:
        """From columns with NaN where a value is missing."""
        both = np.flatnonzero(~np.isnan(x + y))
        cells, code = distinct(np.column_stack([x, y])[both])
        return cls(cells[:, 0], cells[:, 1], summing(code, both, (len(cells), len(x))))

    def correlations(self, weights: Weights) -> Floats:
        """Correlations (3, replicates) of the sample's rows with these weights."""
        return correlations(self.x, self.y, self.sums @ weights)


@dataclass(frozen=True)
class Comparison:
    """A row of `raters`: whose scores are held against the mean of how many others."""

    who: str
    kind: Literal["person", "mean of k people", "judge"]
    n_others: int
    pairs: list[Paired]  # whose mean correlation it is


def raters(
    people: Ratings,
    judges: Mapping[str, Column] | pd.DataFrame | None = None,
    *,
    groups: Groups = None,
    n_resamples: int = 2_000,
    seed: int = 0,
    **options: Any,
) -> pd.DataFrame:
    """Correlate people and judges with the same other people: may a judge stand for a person?

    Each person is held against the mean of the others, and each judge against the same means, one
    person left out in turn, on that person's items. The mean of k people is held against the rest.

    Args:
        people, groups: ratings as in `agreement`; a frame's columns name the people.
        judges: scores of the items by judge; NaN where missing. None: people alone.
        n_resamples, seed, options: confidence, see `correlate`.

    Returns:
        A row each: who; kind ("person", "mean of k people" or "judge"); statistic; estimate, low,
        high, n and missing as in `correlate`; others, how many people they are held against. "One
        person" is the mean over people, the one to hold a judge beside. "Mean of 2 people", up to
        4, are means over all subsets, or 10 random ones: against fewer others, whose mean is less
        reliable, so that no row is the most that can be reached.

    Source: Calderon, Reichart and Dror, "The Alternative Annotator Test" (arXiv 2501.10970),
    section 3.

    >>> people = pd.DataFrame({"ann": [1, 2, 4, 5], "bob": [2, 2, 3, 5], "eve": [1, 3, 4, 4]})
    >>> table = raters(people, {"tiny": [1, 2, 3, 5]}, n_resamples=0)
    >>> r = table[table["statistic"] == "pearson"].set_index("who")["estimate"].round(2)
    >>> r[["ann", "one person", "tiny"]].to_dict()
    {'ann': 0.99, 'one person': 0.88, 'tiny': 0.97}
    """
    by_name = {} if judges is None else dict(judges)
    named = judges_by_name(by_name, minimum=0)
    groups, caveats = grouped_by_id(people, groups)
    check_columns(people=people, groups=groups, **named)
    table, names = read_ratings(people)
    columns = [as_floats(column, name=name) for name, column in named.items()]
    used = (~np.isnan(table)).sum(axis=1) >= 2
    cells, cell = distinct(np.column_stack([table, *columns])[used])
    design = design_of(cell, groups, used)
    of_people, of_judges = np.split(cells.T, [len(names)])
    rows = _against_the_others(of_people, list(map(str, names)), seed)
    for judge, column in zip(by_name, of_judges, strict=True):
        pairs = []
        for person in range(len(names)):
            on_persons_items = np.where(np.isnan(of_people[person]), np.nan, column)
            others = _mean(np.delete(of_people, person, axis=0))
            pairs.append(Paired.of(on_persons_items, others))
        rows.append(Comparison(str(judge), "judge", len(names) - 1, pairs))
    paired = list({id(pair): pair for row in rows for pair in row.pairs}.values())

    def statistic(weights: Weights) -> Floats:
        """The mean correlations of all rows, each pair computed once: (rows * 3, replicates)."""
        by_pair = {id(pair): pair.correlations(weights) for pair in paired}
        return np.concatenate(
            [mean_of_defined([by_pair[id(pair)] for pair in row.pairs]) for row in rows]
        )

    # How many items count in a row
    counts = []
    for row in rows:
        counted = sum(pair.sums.sum(axis=0) for pair in row.pairs) > 0
        counts += [int(design.counts[counted].sum())] * len(STATISTICS)
    result = tabulate(
        statistic,
        [(row.who, row.kind, name, row.n_others) for row in rows for name in STATISTICS],
        design,
        n=counts,
        missing=len(table) - np.array(counts),
        method="fisher",
        index=["who", "kind", "statistic", "others"],
        why="too few shared items, or no variation",
        n_resamples=n_resamples,
        seed=seed,
        **options,
    )
    flat = result.reset_index()
    flat.attrs = result.attrs
    add_caveats(flat, caveats)
    return flat["who kind statistic estimate low high n missing others".split()]


def _against_the_others(people: Floats, names: list[str], seed: int) -> list[Comparison]:
    """Each person, and the means of one, two ... of them, against the rest; people of (m, rows)."""
    m = len(names)

    def against_the_others(subset: Any) -> Paired:
        inside = people[subset]
        mean = np.where(np.isnan(inside).any(axis=0), np.nan, _mean(inside))
        return Paired.of(mean, _mean(np.delete(people, subset, axis=0)))

    alone = [against_the_others([person]) for person in range(m)]
    rows = []
    for name, pair in zip(names, alone, strict=True):
        rows.append(Comparison(name, "person", m - 1, [pair]))
    rows.append(Comparison("one person", "mean of k people", m - 1, alone))
    for k in range(2, min(m - 1, MOST_RATERS) + 1):
        subsets = list(combinations(range(m), k)) if m <= 12 else []
        if not 0 < len(subsets) <= SUBSETS:
            rng = np.random.default_rng(seed)
            subsets = [tuple(rng.permutation(m)[:k]) for _ in range(SUBSETS)]
        pairs = [against_the_others(list(subset)) for subset in subsets]
        rows.append(Comparison(f"mean of {k} people", "mean of k people", m - k, pairs))
    return rows


def _mean(ratings: Floats) -> Floats:
    """The mean of each column's ratings, NaN where there is none; equal means are ties."""
    return pd.DataFrame(ratings).mean().to_numpy().round(12)
