"""Which of several judges agrees best with people: chosen on one half, reported on the other."""

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

CHOOSES = "chooses"
REPORTS = "reports"
FEW_GROUPS = 30  # of a half: fewer decide between candidates that differ much, if at all


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
    """Choose the judge that agrees best with people, and report how well on items unseen so far.

    The best of several numbers is too good by chance. So half of the groups (the images) decides,
    and the other half, drawn by the seed, gives the number to report. Candidates may be one model
    in several wordings (`Judge.reworded`), with several sets of examples, or several models.

    Args:
        judges: two candidates or more, by name; or a list of judges with names of their own.
        items: the collection, with human_scores; without them gold counts.
        people: of a table, the columns with each person's scores.
        statistic: "pearson", "spearman" or "kendall".
        out: a folder that records every verdict, a folder a candidate.
        seed: of the halves and of resampling; None is that of `vjudge.settings`.
        n_resamples, confidence: of intervals; None are those of `vjudge.settings`.
        grading: further options of `Judge.grade`.

    Returns:
        A row a candidate and half ("chooses", "reports"): estimate, low, high, n, missing, tokens
        (read and written, of all its verdicts) and chosen. Both halves hold the items on which
        every candidate gave a verdict.

    Raises:
        ValueError: fewer than two candidates, two of one name, or one named as a column; and as
            `Judge.grade`.

    >>> import vjudge as vj
    >>> items = vj.load_collection("scenes", split="test", limit=32)
    >>> tiny = vj.load_judge("tiny", device="cpu")
    >>> pair = {"plain": tiny, "readme": tiny.reworded("prometheus-vision-readme")}
    >>> vj.align(pair, items, mode="score", progress=False).table["half"].unique().tolist()
    ['chooses', 'reports']
    """
    # 1) each candidate's verdicts
    named = _by_name(judges)
    rows = items if people is None else data.rows_of(items, people=people)
    taken = named.keys() & data.rows_of(rows).columns
    if taken:
        raise ValueError(
            f"{names_of(taken)}: columns of the collection; give candidates other names"
        )
    runs = {}
    for name, judge in named.items():
        folder = None if out is None else Path(out) / file_name(name)
        runs[name] = judge.grade(rows, out=folder, **grading)
    table = scores(runs, items=rows)
    if table.people:
        table = replace(table, gold=None)  # people are asked, whatever is true

    # 2) the halves, and what each says of each candidate
    resampling = options(seed=seed, n_resamples=n_resamples, confidence=confidence)
    truth, truth_name = truth_of(table)
    common = truth.notna() & table.frame[table.judges].notna().all(axis=1)
    groups = table.frame.loc[common, str(table.group)]
    chooses = halved(groups, resampling["seed"])
    cells, limits = _of_halves(table, common, chooses, statistic, resampling)
    tokens = {name: float(run.filter(WORK[:2]).sum().sum()) for name, run in runs.items()}
    cells["tokens"] = cells["judge"].map(tokens)

    # 3) the choice
    best = choice_of(cells)
    cells["chosen"] = cells["judge"] == best
    n_groups = groups[~chooses].nunique()
    if n_groups < FEW_GROUPS:
        limits.append(
            f"the half that reports has {n_groups} groups: both choice and number are rough"
        )
    n_left = len(truth) - int(common.sum())
    if n_left:
        gone = table.frame[table.judges].isna().sum()
        listed = names_of(f"{name} {count}" for name, count in gone[gone > 0].items())
        limits.append(
            f"{n_left} of {len(truth)} items are left out: a candidate gave no verdict"
            f" ({listed}), or nobody a score"
        )
    return table._result(
        cells,
        name="align",
        reading=_reading(cells, truth_name, statistic),
        caption=f"Agreement of candidates with {truth_name} on two halves of the groups",
        caveats=limits,
        plot=partial(plots.forest, cells, by="half", label=readings.SYMBOLS[statistic]),
    )


def _by_name(judges: Mapping[str, JudgeLike] | Sequence[JudgeLike]) -> dict[str, JudgeLike]:
    """The candidates by name; ValueError where there are too few, or two of one name."""
    named = dict(judges) if isinstance(judges, Mapping) else {each.name: each for each in judges}
    if len(named) < len(judges):
        raise ValueError("two candidates have one name: give a dict, judges by name")
    if len(named) < 2:
        raise ValueError("there is one candidate, and a choice takes two")
    return named


def halved(groups: Series, seed: int) -> Series:
    """Whether each item is of the half that chooses: half of the groups, drawn by the seed.

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


def _of_halves(
    table: Scores,
    common: Series,
    chooses: Series,
    statistic: StatisticName,
    resampling: Mapping[str, Any],
) -> tuple[DataFrame, list[str]]:
    """Each candidate's agreement on each half, and the known limits of these numbers."""
    within = table.frame[common]
    parts = []
    limits: list[str] = []
    for half, rows in {CHOOSES: chooses, REPORTS: ~chooses}.items():
        frame = within[rows].reset_index(drop=True)
        result = replace(table, frame=frame, caveats=[]).correlate(
            statistic=statistic, **resampling
        )
        cells = result.table[result.table["statistic"] == statistic].assign(half=half)
        parts.append(cells[["judge", "half", "estimate", "low", "high", "n", "missing"]])
        limits += [f"the half that {half}: {text}" for text in result.caveats]
    return pd.concat(parts, ignore_index=True), limits


def choice_of(cells: DataFrame) -> str:
    """The candidate with the highest estimate on the half that chooses, of equals the first.

    NotComputed: no candidate has one.
    """
    estimates = cells[cells["half"] == CHOOSES].set_index("judge")["estimate"]
    if estimates.isna().all():
        raise NotComputed(f"no candidate has a correlation with people: {readings.UNDEFINED}")
    return str(estimates.idxmax())


def _reading(cells: DataFrame, truth: str, statistic: StatisticName) -> str:
    """Who was chosen, how well it agrees on the other half, and what that took."""
    chosen = cells[cells["chosen"]].set_index("half")
    others = cells[cells["half"] == REPORTS].set_index("judge")["estimate"]
    text = (
        f"{chosen.loc[REPORTS, 'judge']} agrees best with {truth} on the half that chooses:"
        f" {readings.SYMBOLS[statistic]} {readings.bounds(chosen.loc[CHOOSES])}. Report"
        f" {readings.bounds(chosen.loc[REPORTS])}, of the half that did not choose."
    )
    if others.idxmax() != chosen.loc[REPORTS, "judge"]:
        text += f" There {others.idxmax()} is higher: the choice may be chance."
    tokens = cells.drop_duplicates("judge")["tokens"].sum()
    return f"{text} {len(others)} candidates took {tokens:,.0f} tokens."
