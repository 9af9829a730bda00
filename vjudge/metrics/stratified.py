"""Agreement of a judge with people who labelled only some of its items, and which items to label next.

The judge has scored every item, so how often it gives each score is known; what is not known is which scores people
give where the judge gave one of them. Items are therefore labelled by strata of the judge's score: within a stratum at
random, and in the strata where a label says most about the correlation more of them (Neyman's allocation). Weighting
each stratum back to its share keeps the estimate honest, whichever strata were labelled more.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from vjudge.metrics._bootstrap import STATISTICS, Table, correlations
from vjudge.metrics._tables import check_options, same_index
from vjudge.metrics._tables import scores as read_scores

MOST_STRATA = 10
FIRST_LABELS = 4  # of every stratum, before any gets more
EXPECTED_R, MOST_R = 0.6, 0.95  # the correlation where no label tells it yet, and the most that labels are believed


def strata(judge: Sequence[float] | np.ndarray | pd.Series) -> np.ndarray:
    """The stratum of each item: its judge's score, or its decile where there are more than `MOST_STRATA` scores.

    A score that fewer than `FIRST_LABELS` items have joins the next higher one, the highest the next lower.

    Returns:
        Codes from 0, lowest score first, shape (n,); -1 where the judge gave no score.
    """
    values = read_scores(judge, name="judge")
    known = values[~np.isnan(values)]
    levels = np.unique(known)
    if len(levels) > MOST_STRATA:
        levels = np.unique(np.quantile(known, np.arange(MOST_STRATA) / MOST_STRATA))
    starts: list[float] = []
    full = True  # whether the stratum under way has enough items
    for level, above in zip(levels, [*levels[1:], np.inf], strict=True):
        if full:
            starts.append(level)
        full = ((known >= starts[-1]) & (known < above)).sum() >= FIRST_LABELS
    if len(starts) > 1 and not full:
        starts.pop()
    return np.where(np.isnan(values), -1, np.searchsorted(starts, values, side="right") - 1)


def correlate_labelled(
    judge: Sequence[float] | np.ndarray | pd.Series,
    human: Sequence[float] | np.ndarray | pd.Series,
    *,
    confidence: float = 0.95,
) -> pd.DataFrame:
    """Correlate a judge with human labels of some of its items, labelled at random within strata of its score.

    Args:
        judge: its score of each of n items; NaN items take no part and are counted.
        human: the label of each item, NaN where there is none.
        confidence: coverage of the intervals.

    Returns:
        Rows pearson, spearman, kendall; columns estimate, low, high, n (labelled), missing (items without a judge's
        score). The estimate is that of all items, each stratum's labels weighted to its number of items. The interval
        is a t interval on Fisher's scale with the variance of a stratified jackknife, over the labels within strata and
        over the strata's sizes; it is NaN, with a warning, where a stratum has a single label. Items are taken as
        independent. In 500 simulated reviews of 60 labels among 500 items on a 5-point scale, 95 % intervals of
        Pearson covered the truth in 94 %.

    Source: stratified sampling as in Cochran, Sampling Techniques (1977), chapter 5.
    """
    check_options(confidence=confidence)
    x, y = _both(judge, human)
    code = strata(x)
    sizes = np.bincount(code[code >= 0], minlength=1)
    rows = np.flatnonzero((code >= 0) & ~np.isnan(y))
    labelled = np.bincount(code[rows], minlength=len(sizes))
    result = pd.DataFrame(
        {"estimate": np.nan, "low": np.nan, "high": np.nan, "n": len(rows), "missing": int((code < 0).sum())},
        index=pd.Index(STATISTICS, name="statistic"),
    )
    if (labelled == 0).any() or len(rows) < 3:
        empty = int((labelled == 0).sum())
        warnings.warn(f"correlation is undefined: {empty} of {len(sizes)} strata have no label", stacklevel=2)
        return result
    table = Table.of(x[rows], y[rows])
    stratum = np.empty(len(table.x), dtype=int)  # of each distinct pair
    stratum[table.cell] = code[rows]

    def of(sizes: np.ndarray, labelled: np.ndarray, counts: np.ndarray) -> np.ndarray:
        """The three correlations for sizes and labels of the strata and counts of the pairs; columns broadcast."""
        with np.errstate(invalid="ignore", divide="ignore"):
            return correlations(table, (sizes / labelled)[stratum] * counts)

    counts, n_labels = table.counts[:, None].astype(float), labelled[:, None]
    estimate = of(sizes[:, None], n_labels, counts)[:, 0]
    result["estimate"] = estimate
    if np.isnan(estimate).any():
        warnings.warn("correlation is undefined: the judge's scores or the labels are constant", stacklevel=2)
    if (labelled < 2).any():
        warnings.warn("intervals are undefined: a stratum has a single label", stacklevel=2)
        return result
    # Leave out each label once: how the labels of a stratum vary.
    without = of(sizes[:, None], n_labels - (np.arange(len(sizes))[:, None] == stratum), counts - np.eye(len(stratum)))
    squares = (without - estimate[:, None]) ** 2 * table.counts
    within = np.stack([squares[:, stratum == s].sum(axis=1) for s in range(len(sizes))], axis=1)
    within *= (labelled - 1) / labelled
    # Leave out each item once: how the sizes of the strata vary.
    n_items = sizes.sum()
    drift = of(sizes[:, None] - np.eye(len(sizes)), n_labels, counts) - estimate[:, None]
    variance = within.sum(axis=1) + (n_items - 1) / n_items * (drift**2 @ sizes)
    with np.errstate(invalid="ignore", divide="ignore"):
        freedom = variance**2 / (within**2 / (labelled - 1)).sum(axis=1)  # Satterthwaite's
        width = stats.t.ppf((1 + confidence) / 2, freedom) * np.sqrt(variance) / (1 - estimate**2)
        result["low"], result["high"] = np.tanh(np.arctanh(estimate) - width), np.tanh(np.arctanh(estimate) + width)
    if np.isnan(result["low"]).any() and not np.isnan(estimate).any():
        warnings.warn("intervals are undefined: leaving a label out makes a score constant", stacklevel=2)
    result.attrs["method"] = (
        f"{confidence:.0%} t intervals on Fisher's scale, stratified jackknife of {len(rows)} labels among "
        f"{n_items} items in {len(sizes)} strata of the judge's score"
    )
    return result


def allocate(
    judge: Sequence[float] | np.ndarray | pd.Series,
    human: Sequence[float] | np.ndarray | pd.Series,
    *,
    n: int,
    seed: int = 0,
) -> pd.DataFrame:
    """Choose which items to label next so that the interval of the Pearson correlation shrinks fastest.

    Every stratum gets `FIRST_LABELS` labels first, the largest stratum first. Then each label goes where it is expected
    to take most off the variance, W_s^2 S_s^2 (1 / n_s - 1 / (n_s + 1)): W_s is the stratum's share, S_s^2 the variance
    of the correlation's influence function within it. Within a stratum the choice is random, so that
    `correlate_labelled` stays honest; plain `correlate` on such labels is not.

    Args:
        judge, human: as in `correlate_labelled`.
        n: how many items, at most; fewer where fewer are left.
        seed: of the choice within strata.

    Returns:
        One row an item, the most useful first: `position` in the input, `stratum`, `judge` (its score), `gain` (how
        much of the variance it is expected to take off, from 0 to 1; NaN while a stratum lacks its first labels).
    """
    x, y = _both(judge, human)
    code, rng = strata(x), np.random.default_rng(seed)
    sizes = np.bincount(code[code >= 0], minlength=1)
    order = rng.permutation(len(x))
    waiting = {s: [i for i in order if code[i] == s and np.isnan(y[i])] for s in range(len(sizes))}
    count = sizes - np.array([len(waiting[s]) for s in range(len(sizes))])
    spread = _influence_variance(x, y, code, sizes)
    chosen: list[dict[str, Any]] = []
    while len(chosen) < n and any(waiting.values()):
        open_strata = [s for s in waiting if waiting[s]]
        few = [s for s in open_strata if count[s] < min(FIRST_LABELS, sizes[s])]
        gains = (sizes / sizes.sum()) ** 2 * spread / np.maximum(count, 1) / (np.maximum(count, 1) + 1)
        total = ((sizes / sizes.sum()) ** 2 * spread / np.maximum(count, 1)).sum()
        stratum = max(few, key=lambda s: (-count[s], sizes[s])) if few else max(open_strata, key=lambda s: gains[s])
        item = waiting[stratum].pop(0)
        gain = np.nan if few or not total > 0 else gains[stratum] / total
        chosen.append({"position": int(item), "stratum": int(stratum), "judge": x[item], "gain": gain})
        count[stratum] += 1
    return pd.DataFrame(chosen, columns=["position", "stratum", "judge", "gain"])


def _both(judge: Any, human: Any) -> tuple[np.ndarray, np.ndarray]:
    same_index(judge=judge, human=human)
    x, y = read_scores(judge, name="judge"), read_scores(human, name="human")
    if len(x) != len(y):
        raise ValueError(f"judge has {len(x)} scores and human {len(y)}: give one of each per item, NaN for no label")
    return x, y


def _influence_variance(x: np.ndarray, y: np.ndarray, code: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Variance within each stratum of Pearson's influence function, zx zy - r (zx^2 + zy^2) / 2, shape (strata,).

    With zy = r zx + e and e of variance v = 1 - r^2, the function varies within a stratum as (1 - r^2) zx e - r e^2 /
    2: for a normal e, by (1 - r^2)^2 zx^2 v + r^2 v^2 / 2. Only r is taken from the labels: a variance of a stratum's
    own would send labels away from strata whose first few happened to agree, which biases the estimate upwards (by
    .02 at 60 labels, in a simulation).
    """
    seen = (code >= 0) & ~np.isnan(y)
    told = seen.sum() > 2 and np.ptp(x[seen]) > 0 and np.ptp(y[seen]) > 0
    r = float(np.clip(np.corrcoef(x[seen], y[seen])[0, 1], -MOST_R, MOST_R)) if told else EXPECTED_R
    centre = np.array([x[code == s].mean() for s in range(len(sizes))])
    across = np.average(centre, weights=sizes)
    spread = np.average((centre - across) ** 2, weights=sizes)
    z2 = (centre - across) ** 2 / spread if spread > 0 else np.ones(len(sizes))
    v = 1 - r**2
    return np.asarray(v**3 * z2 + r**2 * v**2 / 2)
