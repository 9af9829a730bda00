"""Scores at equal gold, so that better responses don't pass for a bias; the probe of length."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from vjudge.data.cells import rater_scores
from vjudge.data.schema import Items
from vjudge.data.summary import n_words
from vjudge.metrics.strictness import levelled
from vjudge.plots.scores import length_scatter
from vjudge.probes.decisions import DOUBLING, Must, ProbeRow
from vjudge.probes.effects import Effect, coefficient, equal
from vjudge.probes.finish import Drawing, probed
from vjudge.probes.runs import GOLD, Judged, MissingInputError, ProbeRuns
from vjudge.results import Result, analysis

# --- scores at equal gold


def slope_at_equal_gold(
    runs: ProbeRuns, items: pd.DataFrame, case: str, unit: str, does: str
) -> ProbeRow:
    """Make the row of the slope of the score on x at equal gold.

    The row is a test where gold is exact or rated, and a description where gold is only observed,
    as the property `gold` of `runs` says.

    Args:
        runs: of the judge.
        items: the table of `ProbeRuns.scores` with the column x.
        case, unit: see `ProbeRuns.row`.
        does: names the change of x in a sentence, such as "doubling the length".
    """
    items, complete = with_gold(runs, items)
    effect = effect_at_equal_gold(runs, complete, complete[["x"]].to_numpy())
    must: Must | None = None if runs.gold == "observed" else "stay"
    does = f"{does} {{raises}} scores at equal gold by {{size}}"
    missing = len(items) - len(complete)
    return runs.row(case, effect, unit, must, does, missing=missing, note=GOLD[runs.gold])


def effect_at_equal_gold(runs: ProbeRuns, items: pd.DataFrame, regressors: np.ndarray) -> Effect:
    """Estimate how the score depends on the first of several regressors at equal gold.

    Args:
        runs: of the judge; `runs.gold` decides how gold is held equal.
        items: n items with score, gold and group; with rated gold also error.
        regressors: shape (n, k); the coefficient of the first column is returned.
    """
    gold = items["gold"].to_numpy()
    error = None
    held_equal = equal(gold)
    if runs.gold == "rated":  # gold enters linearly: `coefficient` corrects the last column's error
        error = items["error"].to_numpy()
        held_equal = np.column_stack([np.ones(len(gold)), gold - gold.mean()])
    design = np.column_stack([regressors, held_equal])
    step = runs.ruler.step
    return coefficient(items["score"], design, items["group"], error=error, step=step)


def with_gold(runs: ProbeRuns, items: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Add the gold of a judge's items, as `runs.gold` says.

    Rated gold is the mean of the human scores after each rater's strictness is subtracted, which is
    estimated from items that raters share. The column `error` is the variance of that mean. It is
    unknown of an item with a single rating, which therefore has no gold.

    Args:
        runs: of the judge; a caveat is added where groups of raters share no item.
        items: the table of `ProbeRuns.scores` with the column x.

    Returns:
        Two tables: all items, and the complete ones, which have a score, gold and x.

    Raises:
        MissingInputError: no item is complete.
    """
    lacks = "gold scores"
    if runs.gold == "rated":
        lacks = "human_scores of two people or more an item"
        ratings_by_id = runs.column("human_scores").map(rater_scores, na_action="ignore").dropna()
        people = pd.DataFrame(ratings_by_id.tolist(), ratings_by_id.index, dtype=float)
        fit = levelled(people)
        error = fit.error / people.count(axis=1)  # of a mean of so many ratings
        gold = fit.ratings.mean(axis=1).where(error.notna())
        items = items.assign(gold=gold, error=error)
        if fit.teams > 1:
            runs.added_caveats.append(
                f"{fit.teams} parts of the raters share no item: whether one part is stricter can't"
                " be told from the quality of what it rated"
            )
    complete = items.dropna(subset=["score", "gold", "x"])
    if complete.empty:
        reason = "only at equal gold is what people see in an answer told from a bias"
        raise MissingInputError(f"needs {lacks}: {reason}")
    return items, complete


# --- the probe of length


@analysis
def length(judge: Judged, items: Items | None = None, **options: Any) -> Result:
    """Estimate the slope of the score on the response's length at equal gold, per doubling.

    Exact gold is held equal by its levels, or by ten classes and the score within them. Of people's
    mean score the noise is taken out. Otherwise the slope is only described, and `verbosity` is the
    test: where better answers are longer, noise in gold alone gives an honest judge a slope. Length
    is in words; in scripts without spaces a character is a word.

    The figure shows each score minus the mean score at the same gold, one panel per judge.

    Source: Dubois et al., length-controlled AlpacaEval (arXiv 2404.04475), by a regression too;
    ours holds gold equal.

    >>> import pandas as pd
    >>> from vjudge.probes import length
    >>> run = pd.DataFrame({"id": list("abcd"), "score": [1, 2, 3, 4], "gold": [2, 2, 3, 3]})
    >>> table = length(run.assign(group=list("abab"), response=["w", "w w", "w", "w w"])).table
    >>> round(float(table.loc[0, "effect"]), 3), table.loc[0, "finding"].partition(" (")[0]
    (1.0, 'doubling the length raises scores at equal gold by 1.00')
    """
    # both are filled while the rows are made, and drawn afterwards
    scored: list[pd.DataFrame] = []  # the items of each judge with a slope
    truths: set[str] = set()  # names of what scores are compared with

    def rows_of_length(runs: ProbeRuns) -> list[ProbeRow]:
        """Make the one row of a judge, and note what the figure needs of it."""
        items = runs.scores.copy()
        items["response"] = runs.column("response").reindex(items.index)
        lengths = items["response"].map(n_words, na_action="ignore").astype(float)
        if lengths.isna().all():
            raise MissingInputError("needs responses of words: these are pictures")
        # a slope on log2 is a change per doubling; blank responses have no length
        items["x"] = np.log2(lengths.where(lengths > 0))
        case = "slope at equal gold"
        row = slope_at_equal_gold(runs, items, case, DOUBLING, "doubling the length")
        if not np.isnan(row["effect"]):
            truths.add(runs.truth_name)
            scored.append(items.drop(columns="x").assign(judge=runs.name))
        return [row]

    def figure(table: pd.DataFrame) -> Drawing | None:
        if not scored:
            return None
        items = pd.concat(scored).rename_axis("id").reset_index()
        slopes = table.dropna(subset="effect")
        truth_name = " or ".join(sorted(truths))
        return partial(length_scatter, items, slopes, truth_name=truth_name), items

    return probed("length", rows_of_length, judge, items, figure=figure, **options)
