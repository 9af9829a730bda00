"""`align`: choose the judge that agrees best with people on one half, and test it on the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from pandas import DataFrame, Series

from vjudge import data, plots
from vjudge.analysis import readings
from vjudge.analysis.score_table import Scores, StatisticName, scores
from vjudge.analysis.tables import names_of, truth_of
from vjudge.judging.counts import WORK
from vjudge.judging.judge import JudgeLike
from vjudge.judging.paths import file_name
from vjudge.results import NotComputed, Result, analysis, options

CHOOSES = "chooses"  # the half of the groups on which the best candidate is chosen
REPORTS = "reports"  # the other half, on which its agreement is estimated
ENOUGH_GROUPS = 30  # groups per half; with fewer, only large differences between candidates show


@analysis
def align(
    judges: Mapping[str, JudgeLike] | Sequence[JudgeLike],
    items: Any,
    *,
    people: Sequence[str] | None = None,
    statistic: StatisticName = "pearson",
    out: str | Path | None = None,
    seed: int | None = None,
    n_resamples: int | None = None,
    confidence: float | None = None,
    **grading: Any,
) -> Result:
    """Choose the judge that agrees best with people, and estimate its agreement on unseen items.

    The best of several estimates is too high by chance. So half of the groups (the images), drawn
    at random, chooses the judge, and the other half gives the estimate to report. Candidates may be
    one model with several prompt templates (`Judge.reworded`) or several sets of examples, or
    several models.

    Args:
        judges: two candidates or more, by name; or a list of judges with different names.
        items: the collection, with human_scores; without them gold is the truth.
        people: where items are a table, its columns with each person's scores.
        statistic: "pearson", "spearman" or "kendall".
        out: a folder that records every verdict, with one folder per candidate.
        seed: the seed of the halves and of resampling; None means that of `vjudge.settings`.
        n_resamples, confidence: for intervals; None means those of `vjudge.settings`.
        grading: further options of `Judge.grade`.

    Returns:
        One row per candidate and half ("chooses", "reports"): judge, half, estimate, low, high, n,
        missing, tokens (read and written, of all its verdicts) and chosen. Both halves have only
        items on which every candidate gave a verdict.

    Raises:
        ValueError: there are fewer than two candidates, two have one name, or one is named like a
            column; and as for `Judge.grade`.

    >>> import vjudge as vj
    >>> items = vj.load_collection("scenes", split="test", limit=32)
    >>> tiny = vj.load_judge("tiny", device="cpu")
    >>> pair = {"plain": tiny, "readme": tiny.reworded("prometheus-vision-readme")}
    >>> vj.align(pair, items, mode="score", progress=False).table["half"].unique().tolist()
    ['chooses', 'reports']
    """
    # 1) The verdicts of each candidate
    candidates = _by_name(judges)
    rows = items if people is None else data.rows_of(items, people=people)
    # Candidates become columns of one table with those of the collection
    taken = candidates.keys() & data.rows_of(rows).columns
    if taken:
        raise ValueError(
            f"{names_of(taken)}: columns of the collection; give candidates other names"
        )
    runs = {}
    for name, judge in candidates.items():
        folder = None if out is None else Path(out) / file_name(name)
        runs[name] = judge.grade(rows, out=folder, **grading)
    table = scores(runs, items=rows)
    if table.people:
        table = replace(table, gold=None)  # agreement is with people, not with a true score

    # 2) Each candidate's agreement on each half of the items that all candidates graded
    resampling = options(seed=seed, n_resamples=n_resamples, confidence=confidence)
    truth, truth_name = truth_of(table)
    is_complete = truth.notna() & table.frame[table.judges].notna().all(axis=1)
    # Without the caveats of the data, which the result below has already
    complete = replace(table, frame=table.frame[is_complete], caveats=[])
    groups = complete.frame[str(table.group)]
    in_choosing_half = halved(groups, resampling["seed"])
    cells, caveats = _agreement_by_half(complete, in_choosing_half, statistic, resampling)
    caveats += _limits(table, is_complete, groups[~in_choosing_half].nunique())
    # WORK[:2] are the columns with the numbers of tokens read and written
    tokens = {name: float(run.filter(WORK[:2]).sum().sum()) for name, run in runs.items()}
    cells["tokens"] = cells["judge"].map(tokens)

    # 3) The choice
    cells["chosen"] = cells["judge"] == choice_of(cells)
    return table._result(
        cells,
        name="align",
        reading=_reading(cells, truth_name, statistic),
        caption=f"Agreement of candidates with {truth_name} on two halves of the groups",
        caveats=caveats,
        plot=partial(plots.forest, cells, by="half", label=readings.SYMBOLS[statistic]),
    )


def _by_name(judges: Mapping[str, JudgeLike] | Sequence[JudgeLike]) -> dict[str, JudgeLike]:
    """Return the candidates by name.

    Raises:
        ValueError: there are fewer than two, or two have one name.
    """
    if isinstance(judges, Mapping):
        candidates = dict(judges)
    else:
        candidates = {judge.name: judge for judge in judges}
    if len(candidates) < len(judges):
        raise ValueError("two candidates have one name: give a dict, judges by name")
    if len(candidates) < 2:
        raise ValueError("there is one candidate, and a choice takes two")
    return candidates


def halved(groups: Series, seed: int) -> Series:
    """Draw half of the groups, and tell for each item whether its group is drawn.

    Args:
        groups: the group of each item.
        seed: the seed of the draw.

    Returns:
        A mask, one boolean per item. Of an odd number of groups, the smaller half is drawn.

    Raises:
        NotComputed: there are fewer than four groups.
    """
    units = groups.unique()
    if len(units) < 4:
        raise NotComputed(
            f"{len(units)} groups have a score of people and verdicts of all candidates, and two"
            " halves take four: add items about other images"
        )
    drawn = np.random.default_rng(seed).permutation(len(units))[: len(units) // 2]
    return groups.isin(units[drawn])


def _agreement_by_half(
    table: Scores,
    in_choosing_half: Series,
    statistic: StatisticName,
    resampling: Mapping[str, Any],
) -> tuple[DataFrame, list[str]]:
    """Correlate each candidate with the truth on each half.

    Args:
        table: the items that every candidate graded.
        in_choosing_half: a mask of the items, True in the half that chooses.
        statistic, resampling: as for `Scores.correlate`.

    Returns:
        One row per candidate and half, and the caveats of these numbers, each with its half.
    """
    tables = []
    caveats: list[str] = []
    for half, mask in {CHOOSES: in_choosing_half, REPORTS: ~in_choosing_half}.items():
        frame = table.frame[mask].reset_index(drop=True)
        result = replace(table, frame=frame).correlate(statistic=statistic, **resampling)
        cells = result.table[result.table["statistic"] == statistic].assign(half=half)
        tables.append(cells[["judge", "half", "estimate", "low", "high", "n", "missing"]])
        caveats += [f"the half that {half}: {text}" for text in result.caveats]
    return pd.concat(tables, ignore_index=True), caveats


def _limits(table: Scores, is_complete: Series, n_groups: int) -> list[str]:
    """List the caveats of a small half and of items left out; empty where neither applies.

    Args:
        table: the table before incomplete items were left out.
        is_complete: a mask of its items, True where an item has a truth and every candidate's
            verdict.
        n_groups: the number of groups in the half that reports.
    """
    caveats = []
    if n_groups < ENOUGH_GROUPS:
        caveats.append(
            f"the half that reports has {n_groups} groups: both choice and number are rough"
        )
    n_left_out = int((~is_complete).sum())
    if n_left_out:
        missing = table.frame[table.judges].isna().sum()
        # Each incomplete candidate with the number of items on which it gave no verdict
        listed = names_of(f"{name} {count}" for name, count in missing[missing > 0].items())
        caveats.append(
            f"{n_left_out} of {len(is_complete)} items are left out: a candidate gave no verdict"
            f" ({listed}), or nobody a score"
        )
    return caveats


def choice_of(cells: DataFrame) -> str:
    """Return the candidate with the highest estimate on the half that chooses; the first of ties.

    Args:
        cells: one row per candidate and half, with columns judge, half, estimate.

    Raises:
        NotComputed: no candidate has an estimate.
    """
    estimates = cells[cells["half"] == CHOOSES].set_index("judge")["estimate"]
    if estimates.isna().all():
        raise NotComputed(f"no candidate has a correlation with people: {readings.UNDEFINED}")
    return str(estimates.idxmax())


def _reading(cells: DataFrame, truth: str, statistic: StatisticName) -> str:
    """Say which candidate was chosen, its agreement on both halves, and the tokens used."""
    chosen = cells[cells["chosen"]].set_index("half")  # two rows, one per half
    reported = cells[cells["half"] == REPORTS].set_index("judge")["estimate"]
    name = chosen.loc[REPORTS, "judge"]
    text = (
        f"{name} agrees best with {truth} on the half that chooses:"
        f" {readings.SYMBOLS[statistic]} {readings.bounds(chosen.loc[CHOOSES])}. Report"
        f" {readings.bounds(chosen.loc[REPORTS])}, of the half that did not choose."
    )
    if reported.max() > reported[name]:  # False where the half that reports has no estimate
        text += f" There {reported.idxmax()} is higher: the choice may be chance."
    # A candidate has the same number in both of its rows
    tokens = cells.drop_duplicates("judge")["tokens"].sum()
    return f"{text} {len(reported)} candidates took {tokens:,.0f} tokens."
