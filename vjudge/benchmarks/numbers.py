"""Compute the number that a benchmark's paper reports from a judge's run on it.

    pairs = vj.load_collection("MMInstruction/VL-RewardBench")
    vj.benchmark(judge.compare(pairs, out="outputs/vl"))

Published code of one benchmark differs in what an unread answer (one without a verdict) counts as:
left out, wrong, or a random guess. Each number stands under its statistic and that treatment; the
official one is marked.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from vjudge import data
from vjudge.benchmarks.measures import MEASURES, Masks, Sample
from vjudge.benchmarks.protocols import BENCHMARKS, Benchmark, Deviation, key_of, subset_of
from vjudge.data import CollectionError
from vjudge.judging.columns import closed_in, groups_of
from vjudge.metrics.caveats import merged_caveats, warn
from vjudge.metrics.intervals import INTERVAL
from vjudge.plots.forest import forest
from vjudge.plots.latex import sentences
from vjudge.plots.style import short
from vjudge.results import Result, analysis

# --- the result of a benchmark


class BenchmarkResult(Result):
    """A benchmark's numbers.

    Attributes:
        official: whether the run differs from the published procedure in no known way.
        deviations: how it differs.
        facts: about a run by `run_benchmark`: protocol, open (what the published code leaves open),
            items, failures by reason, and unread_draws (answers that the benchmark's own reader
            could not read).
    """

    official: bool = False
    deviations: Sequence[Deviation] = ()
    facts: Mapping[str, Any] = {}


def benchmark_result(
    spec: Benchmark,
    tables: Mapping[str, pd.DataFrame],
    deviations: Sequence[Deviation],
    facts: Mapping[str, Any] | None = None,
) -> BenchmarkResult:
    """Make the result of a benchmark from one table per judge.

    Args:
        spec: the benchmark.
        tables: judge -> its table by `numbers`. Several get the index level "judge".
        deviations: how the runs differ from the published procedure; any makes every number
            unofficial.
        facts: those of `BenchmarkResult`.
    """
    facts = dict(facts or {})
    first = next(iter(tables.values()))
    table = pd.concat(tables, names=["judge"]) if len(tables) > 1 else first.copy()
    table.attrs = {
        "method": first.attrs.get("method", ""),
        "caveats": merged_caveats(tables.values()),
    }
    sentences_of_judges = [_headline(spec, judge, rows) for judge, rows in tables.items()]
    verdict = "Nothing is known that was done otherwise than published."
    if deviations:
        table["official"] = False
        verdict = f"Not official: {'; '.join(deviation.text for deviation in deviations)}."
    notes = [spec.title, spec.note[:1].upper() + spec.note[1:]]
    if facts.get("open"):
        notes.append(f"Left open by the published code: {facts['open']}")
    is_headline = _is_headline(spec, table)
    result = BenchmarkResult(
        table,
        name="benchmark",
        reading=" ".join([*sentences_of_judges, verdict]),
        caption=sentences(*notes),
        plot=_drawing(spec, table[is_headline]),
        view=table[is_headline | (table.index.get_level_values("part") == "overall")],
    )
    result.official = not deviations
    result.deviations = list(deviations)
    result.facts = facts
    return result


def _headline(spec: Benchmark, judge: str, table: pd.DataFrame) -> str:
    """Summarise a judge's headline number in one sentence.

    The headline is the first row of the judge's table: a part of the benchmark, a statistic, and
    what an unread answer (one without a verdict) counts as. If the benchmark reports no overall
    number, the sentence names the lowest and the highest part instead.
    """
    part, statistic, unread = table.index[0]
    subject = f"{judge}: {statistic.capitalize()}" if judge else statistic.capitalize()
    rows = table.xs((statistic, unread), level=["statistic", "unread"])
    defined = rows.dropna(subset="estimate")
    if "overall" not in spec.parts:  # then "overall" and "macro" are beside what is reported
        defined = defined.drop(index=["overall", "macro"], errors="ignore")
    if defined.empty:
        return f"{subject} is undefined ({_counts(rows.iloc[0])})."
    if "overall" in spec.parts:
        # Fall back to the first part with an estimate where the headline's has none
        part = part if part in defined.index else defined.index[0]
        row = defined.loc[part]
        return f"{subject} {short(*row[INTERVAL])} ({part}; {_counts(row)}; unread: {unread})."
    rows = defined.sort_values("estimate")
    lowest = f"{short(*rows[INTERVAL].iloc[0])} ({rows.index[0]})"
    highest = f"{short(*rows[INTERVAL].iloc[-1])} ({rows.index[-1]})"
    return f"{subject} from {lowest} to {highest}, {len(rows)} in all (unread: {unread})."


def _counts(row: pd.Series) -> str:
    """Say how many rows count in a number, and how many are missing."""
    return f"n = {row['n']:,.0f}, {row['missing']:,.0f} missing"


def _is_headline(spec: Benchmark, table: pd.DataFrame) -> np.ndarray:
    """Return a mask of the rows with the first reported statistic and the reported treatment."""
    statistic = table.index.get_level_values("statistic") == spec.statistics[0]
    return statistic & (table.index.get_level_values("unread") == spec.unread)


def _drawing(spec: Benchmark, headline: pd.DataFrame) -> Callable[..., Figure] | None:
    """Return a function that draws the headline by part as a forest, one colour per judge.

    It is None where no number is defined.
    """
    rows = headline.reset_index().dropna(subset="estimate")
    if "overall" not in spec.parts:
        is_category = ~rows["part"].isin(["overall", "macro"])
        rows = rows[is_category].sort_values("estimate", ascending=False)
    if rows.empty:
        return None
    by = "judge" if "judge" in rows else None
    return partial(forest, rows, rows="part", by=by, label=spec.statistics[0], reference=None)


# --- from a run to its number


ID_COLUMNS = ["id", "sample", "candidate", "policy_a", "policy_b"]  # together unique in a run


@analysis
def benchmark(
    run: pd.DataFrame | Mapping[str, pd.DataFrame],
    *,
    name: str | None = None,
    n_resamples: int = 2_000,
    seed: int = 0,
) -> BenchmarkResult:
    """Compute a benchmark's official number from a run, beside other treatments of unread answers.

    Args:
        run: from `Judge.compare`, `Judge.grade` or `Judge.rank` on the benchmark, or any frame with
            their columns and the collection's (category, preference, group ...); or the runs of
            several judges by name. Prometheus-Vision's numbers on LLaVA-Bench and VisIT-Bench,
            correlations with true scores, are those of name="perception-bench".
        name: a key of `BENCHMARKS`; None takes the run's column `benchmark`.
        n_resamples, seed: for the bootstrap over groups, which gives the 95 % intervals of
            statistics that are no shares; shares have Wilson score intervals.

    Returns:
        One row per part, statistic and treatment of unread answers, the official ones first:

        - index: judge (with several), part ("overall", "macro", the plain mean over categories, and
          each category), statistic, unread (what an answer without a verdict counts as);
        - estimate, low, high: shares in [0, 1], correlations in [-1, 1], relative scores out of
          100, Elo ratings;
        - n, missing: rows that count, and rows that don't;
        - official: whether the benchmark itself reports this number.

        Verdicts are taken as they are. On a subset of the benchmark no number is official.

    Raises:
        ValueError: the benchmark is unknown; the run lacks a column that it needs, pools several
            judges, or has an id twice.

    Source: each benchmark's own, `BENCHMARKS[name].source`.

    >>> import pandas as pd
    >>> import vjudge as vj
    >>> cells = {"id": list("pqrs"), "verdict": ["a", "b", "a", None], "preference": list("aaaa")}
    >>> run = pd.DataFrame(cells | {"group": list("pqrs")})
    >>> run["category"] = ["general", "general", "reasoning", "hallucination"]
    >>> result = vj.benchmark(run, name="vl-rewardbench")
    >>> result.table["estimate"].xs("overall").xs("accuracy").round(3).to_dict()
    {'left out': 0.667, 'wrong': 0.5, 'random': 0.625}
    >>> result.official, result.deviations
    (False, [Deviation(kind='subset', text="4 of the benchmark's 1,250 rows")])
    """
    runs = dict(run) if isinstance(run, Mapping) else {"": run}
    tables = {}
    deviations: list[Deviation] = []
    for judge, run_of_judge in runs.items():
        spec, table, of_judge = numbers(run_of_judge, name, n_resamples=n_resamples, seed=seed)
        tables[judge] = table
        deviations += [deviation for deviation in of_judge if deviation not in deviations]
    return benchmark_result(spec, tables, deviations)


def numbers(
    run: pd.DataFrame, name: str | None, *, n_resamples: int = 2_000, seed: int = 0
) -> tuple[Benchmark, pd.DataFrame, list[Deviation]]:
    """Compute one judge's table; arguments as in `benchmark`.

    Returns:
        The benchmark; its table, with the column `official`; and the deviations: one if the run is
        on a subset of the benchmark's rows, else none.
    """
    # 1) the benchmark, and the rows that are measured
    if name is None and "benchmark" in run and run["benchmark"].nunique() == 1:
        name = run["benchmark"].dropna().iloc[0]
    name = key_of(name)
    spec = BENCHMARKS[name]
    measure = MEASURES[spec.measure]
    frame = _measurable(run, spec)
    sample = Sample(frame, spec, _parts(frame, spec), {"n_resamples": n_resamples, "seed": seed})

    # 2) the table; undefined numbers are NaN in it, so that warnings of them are not needed
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        table = measure.table(sample)
    is_published = table.index.get_level_values("statistic").str.endswith("as published")
    # averages "as published" never have an interval; without resamples no number has one
    n_without_interval = int(table["low"].isna()[~is_published].sum())
    if n_resamples and n_without_interval:
        reason = "too few rows or groups there, or in a category that is averaged"
        warn(f"{n_without_interval} of {len(table)} rows have no interval: {reason}")

    # 3) which of its rows the benchmark itself reports
    official = []
    for part, statistic, unread in table.index:
        level = part if part in ("overall", "macro") else "category"
        is_reported = statistic in spec.statistics and unread == spec.unread
        official.append(level in spec.parts and is_reported)
    closed = closed_in(run)  # a phrase with the number of closed verdicts, "" if there are none
    if closed:
        table.attrs["method"] += f"; {closed}"
    table = table.assign(official=official)
    table = table.sort_values("official", ascending=False, kind="stable")
    return spec, table, subset_of(name, frame["id"].nunique())


def _measurable(run: pd.DataFrame, spec: Benchmark) -> pd.DataFrame:
    """Prepare a run for its measure: check its rows and columns, and add derived columns.

    Several samples of an item become one row with their mean score. The added columns are `true
    score` (gold, else the mean of human scores), where any row has one, and `group`.
    """
    frame = run.rename(columns={"system_a": "policy_a", "system_b": "policy_b"})
    _check_one_judge(frame, spec)
    if "sample" in frame:  # the other columns are those of the first sample
        means = frame.groupby("id", sort=False)["score"].mean()
        frame = frame.drop_duplicates("id").assign(score=means.to_numpy())
    frame = frame.reset_index(drop=True)
    with suppress(CollectionError):  # no row has a true score
        frame["true score"] = data.truth(frame.filter(["id", "gold", "human_scores"]))
    lacking = [column for column in MEASURES[spec.measure].columns if column not in frame]
    if lacking:
        lack = f"{spec.title} needs {', '.join(lacking)}, which the run does not have"
        raise ValueError(f"{lack}: use run_benchmark, or add it from the collection")
    frame["group"] = groups_of(frame)
    return frame


def _check_one_judge(frame: pd.DataFrame, spec: Benchmark) -> None:
    """Raise ValueError for a run that pools several judges or has a row twice.

    A row is identified by the columns of `ID_COLUMNS` that the run has.
    """
    if "judge" in frame and frame["judge"].nunique() > 1:
        names = ", ".join(map(str, frame["judge"].dropna().unique()))
        remedy = "give them as a mapping, {name: rows}, or combine them by a panel"
        raise ValueError(f"the run pools the verdicts of several judges ({names}): {remedy}")
    is_repeated = frame.duplicated(list(frame.columns.intersection(ID_COLUMNS)))
    if is_repeated.any():
        ids = ", ".join(map(repr, frame.loc[is_repeated, "id"].unique()[:5]))
        raise ValueError(
            f"{spec.title}: {int(is_repeated.sum())} rows have the id of another ({ids}): give"
            " each item once"
        )


def _parts(frame: pd.DataFrame, spec: Benchmark) -> Masks:
    """Return a mask of the rows of "overall" and of each category, by name.

    Warns about categories of the benchmark of which the run has no row.
    """
    parts = {"overall": np.ones(len(frame), dtype=bool)}
    if spec.by in frame:
        for name, rows in frame.groupby(spec.by).groups.items():
            parts[str(name)] = frame.index.isin(rows)
    absent = [name for name in spec.categories if name not in parts]
    if absent:
        lack = f"the run has no row of {', '.join(absent)}: {spec.title} has them too"
        warn(f"{lack}; add the column {spec.by} from the collection")
    return parts


# --- published numbers


def audit(parts: Mapping[str, tuple[float, int]], *, reported: float | None = None) -> pd.DataFrame:
    """Compute what a published number must be, given the accuracies of a benchmark's groups.

    Args:
        parts: group -> (accuracy in [0, 1], number of items).
        reported: the number that was published for all groups together.

    Returns:
        Rows "over items" (each item counts once) and "over groups" (each group counts once), with
        the columns `estimate`, `n` and, of the reported number, `distance`.

    Raises:
        ValueError: an accuracy outside [0, 1].

    Source: VL-RewardBench (arXiv 2411.17451) reports both, its overall and macro accuracy.

    >>> parts = {"general": (.781, 183), "hallucination": (.727, 749), "reasoning": (.660, 318)}
    >>> table = audit(parts, reported=.7223)
    >>> table["estimate"].round(4).tolist(), table["distance"].idxmin()
    ([0.7179, 0.7227], 'over groups')
    """
    accuracies, sizes = np.transpose(list(parts.values()))
    if accuracies.min() < 0 or accuracies.max() > 1:
        raise ValueError("parts holds an accuracy outside [0, 1]: give shares, not per cent")
    estimates = {
        "over items": np.average(accuracies, weights=sizes),
        "over groups": accuracies.mean(),
    }
    table = pd.DataFrame({"estimate": estimates, "n": int(sizes.sum())})
    if reported is not None:
        table["distance"] = (table["estimate"] - reported).abs()
    return table
