"""The number that a benchmark's paper reports, from a judge's run on it.

    pairs = vj.load_collection("MMInstruction/VL-RewardBench")
    vj.benchmark(judge.compare(pairs, out="outputs/vl"))

Harnesses of one benchmark differ in what an unread answer counts as: left out, wrong, or a random
guess. Each number stands under its statistic and that treatment; the official one is marked. To add
a benchmark, add its fields to `../assets/benchmarks.json`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from rapidfuzz.distance import Levenshtein

from vjudge import data, metrics
from vjudge.benchmarks.pictures import BIASES
from vjudge.benchmarks.protocols import PROTOCOLS, table_of
from vjudge.data import CollectionError
from vjudge.judging.columns import closed_in, groups_of
from vjudge.metrics.caveats import add_caveats, merged_caveats
from vjudge.metrics.groups import design_of
from vjudge.metrics.intervals import INTERVAL
from vjudge.metrics.shares import shares
from vjudge.metrics.tables import tabulate
from vjudge.metrics.verdicts import SPELLINGS, read_choices
from vjudge.plots.forest import forest
from vjudge.plots.latex import sentences
from vjudge.plots.style import short
from vjudge.records import NAN, from_csv
from vjudge.results import Result, analysis

INDEX = ["part", "statistic", "unread"]
TIES = ("tie", "both good", "both bad")
FOUR = {word: word for word in ("a", "b", *TIES)}
FOUR |= {"left": "a", "right": "b"}  # a vote of two, or of either tie

Kind = Literal[
    "subset", "wording", "protocol", "option", "rows", "images", "closed", "unanswered", "panel"
]


class Deviation(NamedTuple):
    """One thing that was done otherwise than published: of which kind, and how it reads."""

    kind: Kind
    text: str


class BenchmarkResult(Result):
    """A benchmark's numbers.

    Attributes:
        official: whether nothing is known that was done otherwise than published.
        deviations: what was.
        facts: of a run by `run_benchmark`: protocol, open (what the published code leaves open),
            items, failures by reason, and unread_draws (answers that the benchmark's own reader
            could not read).
    """

    official: bool = False
    deviations: Sequence[Deviation] = ()
    facts: Mapping[str, Any] = {}


Parts = Mapping[str, np.ndarray]  # the rows of each category
_Options = Mapping[str, Any]
Draw = Callable[..., Figure]


@dataclass(frozen=True)
class Benchmark:
    """What one benchmark reports."""

    title: str  # as its paper calls it
    source: str  # where the definition was read
    note: str  # what else must stand beside the number
    measure: str = "accuracy"  # which of `MEASURES` makes its table
    statistics: tuple[str, ...] = ("accuracy",)  # what is reported, the headline first
    unread: str = "left out"  # what an unread answer counts as officially
    parts: tuple[str, ...] = ("overall", "category")  # also "macro", the plain mean over categories
    by: str = "category"  # the column that names the parts
    categories: tuple[str, ...] = ()  # all of them, where a lack of some changes the macro average
    # Which verdicts on a pair count: "both" orders joined, the "published" one alone, or "each".
    orders: Literal["both", "published", "each"] = "both"


BENCHMARKS = table_of("benchmarks", Benchmark)
"""What each benchmark reports, by name."""


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
            their columns and the collection's (category, preference, group, gold ...); or several
            judges' by name. Prometheus-Vision's numbers on LLaVA-Bench and VisIT-Bench,
            correlations with true scores, are those of name="perception-bench".
        name: which benchmark it is, a key of `BENCHMARKS`; None takes what the run says.
        n_resamples, seed: of the 95 % intervals: Wilson's of shares, the bootstrap's of the others,
            over groups.

    Returns:
        Rows (part, statistic, unread), of several judges (judge, part ...): part "overall", "macro"
        (the plain mean over categories) and each category; unread is what an answer without a
        verdict counts as. Columns estimate (shares in [0, 1], correlations in [-1, 1], relative
        scores of 100), low, high, n, missing, and official (reported by the benchmark itself;
        first). Verdicts are taken as given: of a subset of the benchmark none is official.

    ValueError: the benchmark is unknown; the run lacks a column that it needs, pools several
    judges, or has an id twice.

    Source: of each benchmark, `BENCHMARKS[name].source`.

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
    for judge, one in runs.items():
        spec, table, lacking = numbers(one, name, {"n_resamples": n_resamples, "seed": seed})
        tables[judge] = table
        deviations += [deviation for deviation in lacking if deviation not in deviations]
    return benchmark_result(spec, tables, deviations)


def numbers(
    run: pd.DataFrame, name: str | None, options: _Options
) -> tuple[Benchmark, pd.DataFrame, list[Deviation]]:
    """Which benchmark a run is of, its table, and what of the benchmark it lacks."""
    # 1) which benchmark it is, and whether the run has its columns
    if name is None and "benchmark" in run and run["benchmark"].nunique() == 1:
        name = run["benchmark"].dropna().iloc[0]
    name = key_of(name)
    spec = BENCHMARKS[name]
    frame = run.rename(columns={"system_a": "policy_a", "system_b": "policy_b"})
    _check_one_judge(frame, spec)
    if "sample" in frame:  # the mean score, beside the first sample's other columns
        score = frame.groupby("id", sort=False)["score"].mean()
        frame = frame.drop_duplicates("id").assign(score=score.to_numpy())
    frame = frame.reset_index(drop=True)
    with suppress(CollectionError):  # no row has one
        frame["true score"] = data.truth(frame.filter(["id", "gold", "human_scores"]))
    columns, make = MEASURES[spec.measure]
    lacking = [column for column in columns if column not in frame]
    if lacking:
        lack = f"{spec.title} needs {', '.join(lacking)}, which the run does not have"
        raise ValueError(f"{lack}: use run_benchmark, or add it from the collection")
    frame["group"] = groups_of(frame)
    parts = _parts(frame, spec)

    # 2) its table; what is undefined there is NaN
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        table = make(frame, spec, parts, options)
    published = table.index.get_level_values("statistic").str.endswith("as published")
    bare = int(table["low"].isna()[~published].sum())
    if options["n_resamples"] and bare:
        reason = "too few rows or groups there, or in a category that is averaged"
        warnings.warn(f"{bare} of {len(table)} rows have no interval: {reason}", stacklevel=4)

    # 3) what of it the benchmark itself reports
    deviations = subset_of(name, frame["id"].nunique())
    official = []
    for part, statistic, unread in table.index:
        kind = part if part in ("overall", "macro") else "category"
        reported = statistic in spec.statistics and unread == spec.unread
        official.append(kind in spec.parts and reported)
    closed = closed_in(run)
    if closed:
        table.attrs["method"] += f"; {closed}"
    table = table.assign(official=official)
    return spec, table.sort_values("official", ascending=False, kind="stable"), deviations


def _check_one_judge(frame: pd.DataFrame, spec: Benchmark) -> None:
    """Refuse a run that pools judges, or has a row twice."""
    if "judge" in frame and frame["judge"].nunique() > 1:
        names = ", ".join(map(str, frame["judge"].dropna().unique()))
        remedy = "give them as a mapping, {name: rows}, or combine them by a panel"
        raise ValueError(f"the run pools the verdicts of several judges ({names}): {remedy}")
    keys = frame.columns.intersection(["id", "sample", "candidate", "policy_a", "policy_b"])
    twice = frame.duplicated(list(keys))
    if twice.any():
        ids = ", ".join(map(repr, frame.loc[twice, "id"].unique()[:5]))
        raise ValueError(
            f"{spec.title}: {int(twice.sum())} rows have the id of another ({ids}): give each item"
            " once"
        )


def subset_of(name: str, n_items: int) -> list[Deviation]:
    """The deviation of so many items of a benchmark whose size is known, if they are not all."""
    n_published = PROTOCOLS[name].n_items
    if n_items >= n_published:
        return []
    return [Deviation("subset", f"{n_items:,} of the benchmark's {n_published:,} rows")]


def benchmark_result(
    spec: Benchmark,
    tables: Mapping[str, pd.DataFrame],
    deviations: Sequence[Deviation],
    facts: Mapping[str, Any] | None = None,
) -> BenchmarkResult:
    """The result of the judges' tables, with the headline of each read out."""
    several = len(tables) > 1
    first = next(iter(tables.values()))
    table = pd.concat(tables, names=["judge"]) if several else first.copy()
    if deviations:
        table["official"] = False
    caveats = merged_caveats(tables.values())
    table.attrs = {"method": first.attrs.get("method", ""), "caveats": caveats}
    readings = [_headline(spec, judge, one) for judge, one in tables.items()]
    if deviations:
        done = "; ".join(deviation.text for deviation in deviations)
        readings.append(f"Not official: {done}.")
    else:
        readings.append("Nothing is known that was done otherwise than published.")
    left_open = (facts or {}).get("open", "")
    notes = [spec.title, spec.note[:1].upper() + spec.note[1:]]
    if left_open:
        notes.append(f"Left open by the published code: {left_open}")
    headline = _is_headline(spec, table)
    result = BenchmarkResult(
        table,
        name="benchmark",
        reading=" ".join(readings),
        caption=sentences(*notes),
        plot=_drawing(spec, table[headline]),
        view=table[headline | (table.index.get_level_values("part") == "overall")],
    )
    result.official = not deviations
    result.deviations = list(deviations)
    result.facts = dict(facts or {})
    return result


def _headline(spec: Benchmark, judge: str, table: pd.DataFrame) -> str:
    """The first number of a table as a sentence; where parts stand alone, the two ends of them."""
    who = f"{judge}: " if judge else ""
    part, statistic, unread = table.index[0]
    rows = table.xs((statistic, unread), level=["statistic", "unread"]).dropna(subset="estimate")
    counts = f"n = {table['n'].iloc[0]:,}, {table['missing'].iloc[0]:,} missing"
    if rows.empty:
        return f"{who}{statistic.capitalize()} is undefined ({counts})."
    if "overall" in spec.parts:
        rows = rows.loc[[part]] if part in rows.index else rows.iloc[:1]
        value = short(*rows[INTERVAL].iloc[0])
        return f"{who}{statistic.capitalize()} {value} ({part}; {counts}; unread: {unread})."
    rows = rows.drop(index=["overall", "macro"], errors="ignore").sort_values("estimate")
    extremes = [f"{short(*row[INTERVAL])} ({name})" for name, row in rows.iloc[[-1, 0]].iterrows()]
    span = f"from {extremes[1]} to {extremes[0]}, {len(rows)} in all (unread: {unread})"
    return f"{who}{statistic.capitalize()} {span}."


def _is_headline(spec: Benchmark, table: pd.DataFrame) -> np.ndarray:
    """Which rows have the statistic and treatment that the benchmark reports first."""
    statistic = table.index.get_level_values("statistic") == spec.statistics[0]
    return statistic & (table.index.get_level_values("unread") == spec.unread)


def _drawing(spec: Benchmark, headline: pd.DataFrame) -> Draw | None:
    """The headline by part as a forest, a colour a judge."""
    rows = headline.reset_index().dropna(subset="estimate")
    if "overall" not in spec.parts:
        categories = ~rows["part"].isin(["overall", "macro"])
        rows = rows[categories].sort_values("estimate", ascending=False)
    if rows.empty:
        return None
    by = "judge" if "judge" in rows else None
    label = spec.statistics[0]
    return partial(forest, rows, rows="part", by=by, label=label, reference=None)


def key_of(name: str | None) -> str:
    """The name of a benchmark, or an error that says which there are."""
    if name in BENCHMARKS:
        return str(name)
    reason = f"there is no benchmark {name!r}"
    if not name:
        reason = "nothing says which benchmark the run is of"
    raise ValueError(f"{reason}: give name=, one of {', '.join(BENCHMARKS)}")


def _parts(frame: pd.DataFrame, spec: Benchmark) -> dict[str, np.ndarray]:
    """The rows of all and of each category; categories that are missing are said."""
    parts = {"overall": np.ones(len(frame), dtype=bool)}
    if spec.by in frame:
        for name, rows in frame.groupby(spec.by).groups.items():
            parts[str(name)] = frame.index.isin(rows)
    absent = [name for name in spec.categories if name not in parts]
    if absent:
        what = f"the run has no row of {', '.join(absent)}: {spec.title} has them too"
        warnings.warn(f"{what}; add the column {spec.by} from the collection", stacklevel=5)
    return parts


# -- measures: (run, benchmark, rows of each category, options) -> table


def _shares(
    frame: pd.DataFrame, cases: Iterable[Any], parts: Parts, unit: str, means: Parts | None = None
) -> pd.DataFrame:
    """Each share over all rows, in each part, and the plain mean of the parts and of `means`.

    A case is a statistic, what unread counts as, and the gain and the weight of each row.
    """
    places = dict(parts)
    if len(parts) > 1:
        macro = np.stack(list(parts.values())[1:])
        places = {"overall": parts["overall"], "macro": macro, **(means or {}), **parts}
    lines = []
    sizes = []
    for statistic, unread, gain, weight in cases:
        for part, rows in places.items():
            name = (part, statistic, unread)
            lines.append((name, rows * gain, rows * weight))
            sizes.append(int(np.atleast_2d(rows).any(axis=0).sum()))
    table = shares(lines, groups=frame["group"], unit=unit, index=INDEX)
    table["missing"] = sizes - table["n"]
    return table


def _accuracy(
    frame: pd.DataFrame, spec: Benchmark, parts: Parts, options: _Options
) -> pd.DataFrame:
    """Accuracy on pairs, or against votes of four: either response, both good, both bad.

    "without ties" leaves out people's, and a judge's tie is wrong; "accuracy" leaves out both. A
    win over the baseline, which stands first, is a b.
    """
    # 1) what people say, and which verdicts on a pair count
    columns = ["verdict"]
    if "verdict_ba" in frame and spec.orders != "both":
        columns = ["verdict_ab", "verdict_ba"][: 1 + (spec.orders == "each")]
    answers = pd.Series("b", frame.index)
    meanings = SPELLINGS
    if spec.measure == "votes":
        meanings = FOUR
        answers = frame.get("vote", frame["preference"])
    elif spec.measure != "wins":
        answers = frame["preference"]
    people, voted, _ = read_choices(answers, meanings=meanings, people=True)

    # 2) what each row gains and weighs, by statistic and what an unread answer counts as
    totals: dict[tuple[str, str], np.ndarray] = {}
    malformed = 0
    for column in columns:
        judge, read, account = read_choices(frame[column], meanings=meanings)
        malformed += account["malformed"]
        for statistic, unread, gain, weight in _gains(spec, people, voted, judge, read):
            case = np.array([gain * weight, weight], dtype=float)  # (2, rows)
            totals[statistic, unread] = totals.get((statistic, unread), 0) + case
    cases = [(*name, gain, weight) for name, (gain, weight) in totals.items()]
    table = _shares(frame, cases, parts, "pairs")
    add_caveats(table, _of_malformed(malformed))
    return table


def _gains(
    spec: Benchmark, people: np.ndarray, voted: np.ndarray, judge: np.ndarray, read: np.ndarray
) -> Iterator[tuple[str, str, np.ndarray, np.ndarray]]:
    """By statistic and what an unread verdict counts as: what each row gains, and whether it
    counts. `voted` and `read` say where `people` and `judge` hold a choice."""
    either = (judge == "tie") | (people == "tie")  # a tie that does not say of which kind
    right = (judge == people) | (either & np.isin(judge, TIES) & np.isin(people, TIES))
    for statistic in spec.statistics:
        counted = voted
        chosen = read
        chance = 1 / 3
        if statistic != "accuracy with ties":
            counted = voted & (people != "tie")
            chance = 1 / 2
        if statistic == "accuracy" and spec.orders != "each":
            chosen = read & (judge != "tie")
        yield statistic, "left out", right, counted & chosen
        yield statistic, "wrong", right, counted
        yield statistic, "random", np.where(chosen, right, chance), counted


def _bias(frame: pd.DataFrame, spec: Benchmark, parts: Parts, options: _Options) -> pd.DataFrame:
    """Bias deviation, (y - y') / (y - lowest) where the score falls, or of robustness conformity,
    1 - |y - y'| / max(y - lowest, highest - y): y of the unbiased variant, y' of the biased one."""
    unbiased = frame["variant"] == "unbiased"
    biased = frame[frame["variant"] == "biased"].set_index("group")["score"]
    before = frame[unbiased].reset_index(drop=True)
    below = before["score"] - before["lowest"]
    change = before["group"].map(biased) - before["score"]
    falls = -change.clip(upper=0) / below.where(below > 0)
    stays = 1 - change.abs() / np.maximum(below, before["highest"] - before["score"])
    gain = np.where(before["kind"] == "robustness", stays, falls)
    parts = {part: rows[unbiased] for part, rows in parts.items()}
    means = {}
    for kind, biases in BIASES.items():
        present = [parts[bias] for bias in biases if bias in parts]
        if present:
            means[kind] = np.stack(present)
    read = ~np.isnan(gain)
    cases = [("reliability", "left out", np.where(read, gain, 0), read)]
    return _shares(before, cases, parts, "pairs of variants", means)


def _of_malformed(count: int) -> list[str]:
    """The caveat of verdicts in another spelling than any that is known."""
    return [f"{count} verdicts can't be read, and count as unread answers"] if count else []


def _correlation(
    frame: pd.DataFrame, spec: Benchmark, parts: Parts, options: _Options
) -> pd.DataFrame:
    """Correlation with the true scores, of all rows and of each category."""
    tables = {}
    for part, rows in parts.items():
        cells = frame[rows]
        columns = (cells["score"], cells["true score"])
        tables[part] = metrics.correlate(*columns, groups=cells["group"], **options)
    table = pd.concat({"left out": pd.concat(tables)}).reorder_levels([1, 2, 0]).rename_axis(INDEX)
    table.attrs = tables["overall"].attrs
    return table


def _viescore(
    frame: pd.DataFrame, spec: Benchmark, parts: Parts, options: _Options
) -> pd.DataFrame:
    """Spearman's correlation with people within each system of a task, averaged in two ways."""
    systems = frame["category"] + " " + frame["system"]
    columns = {
        "overall": ("score", "true score"),
        "semantics": ("semantics", "people_semantics"),
        "quality": ("quality", "people_quality"),
    }
    if {"semantics", "quality"} <= set(frame):  # upstream counts what has both
        for name in ("semantics", "quality"):
            frame = frame.assign(**{name: frame[name].where(frame["score"].notna())})
    else:  # a panel's run has the scores of its members together alone
        columns = {"overall": columns["overall"]}
    lines = {}
    caveats = []
    for name, (score, truth) in columns.items():
        tasks = {}
        for task, cells in frame.groupby("category"):
            rhos = [
                cell[score].corr(cell[truth], "spearman") for _, cell in cells.groupby("system")
            ]
            tasks[task] = np.tanh(np.mean(rhos))
        published = {"overall": np.tanh(np.mean(list(tasks.values()))), **tasks}
        for part, rows in parts.items():
            cells = frame[rows]
            table = metrics.correlate(
                cells[score], cells[truth], groups=cells["group"], strata=systems[rows], **options
            )
            mean = table.loc["spearman"]
            bare = {"estimate": published[part], "low": NAN, "high": NAN}
            lines[part, f"{name} as published", "left out"] = mean.to_dict() | bare
            lines[part, name, "left out"] = mean
            caveats.append(table)
    table = pd.DataFrame(lines).T.rename_axis(INDEX)
    table.attrs = caveats[0].attrs | {"caveats": merged_caveats(caveats)}
    return table.astype({"n": int, "missing": int})


def _relative(
    frame: pd.DataFrame, spec: Benchmark, parts: Parts, options: _Options
) -> pd.DataFrame:
    """100 x mean of the candidate's scores / mean of the reference's, the first of `scores`."""
    given = frame["scores"].map(from_csv)
    readable = np.array([np.size(pair) == 2 for pair in given])
    both = np.full((len(frame), 2), -1.0)
    both[readable] = np.reshape(list(given[readable]), (-1, 2))
    counts = np.stack(list(parts.values()))
    reference = counts * both[:, 0]
    candidate = counts * both[:, 1]

    def statistic(weights: np.ndarray) -> np.ndarray:
        below = reference @ weights
        below[below <= 0] = np.nan
        return 100 * (candidate @ weights) / below

    table = tabulate(
        statistic,
        [(part, "relative score", spec.unread) for part in parts],
        design_of(np.arange(len(frame)), frame["group"], parts["overall"]),
        n=counts.sum(axis=1),
        missing=counts @ (~readable).astype(int),
        unit="reviews",
        index=INDEX,
        **options,
    )
    # one item or group never varies among the resamples, and says nothing of others
    single = [frame.loc[rows, "group"].nunique() < 2 for rows in parts.values()]
    table.loc[single, ["low", "high"]] = np.nan
    return table


def _order(frame: pd.DataFrame, spec: Benchmark, parts: Parts, options: _Options) -> pd.DataFrame:
    """Levenshtein distance of the judge's order from people's, over its length.

    Where ranks are tied, it is the mean over the tied candidates in their order and in reverse.
    """
    firsts = []
    distances = []
    for _, rows in frame.groupby("id", sort=False):
        firsts.append(rows.index[0])
        true = list(rows.sort_values("true_rank", kind="stable")["candidate"])
        distance = NAN
        if rows["rank"].notna().all():
            distance = 0.0
            for ascending in (True, False):
                ranked = rows.sort_values(["rank", "candidate"], ascending=[True, ascending])
                distance += Levenshtein.normalized_distance(list(ranked["candidate"]), true) / 2
        distances.append(distance)
    apart = np.array(distances)
    has_distance = ~np.isnan(apart)
    wrong = np.where(has_distance, apart, 1.0)
    cases = [
        ("levenshtein", "left out", apart, has_distance),
        ("levenshtein", "wrong", wrong, np.ones(len(firsts))),
    ]
    parts = {part: rows[firsts] for part, rows in parts.items()}
    return _shares(frame.loc[firsts], cases, parts, "rankings")


def _battles(frame: pd.DataFrame, spec: Benchmark, parts: Parts, options: _Options) -> pd.DataFrame:
    """Elo of the policies; of both orders of a battle more wins win, else it is a tie."""
    columns = (frame[name] for name in ("policy_a", "policy_b", "verdict"))
    table = metrics.bradley_terry(*columns, groups=frame["group"])
    elo = table[["elo", "elo_low", "elo_high", "n"]]
    elo.columns = ["estimate", "low", "high", "n"]
    elo["missing"] = table["missing"]
    names = table.index.astype(str)
    elo.index = pd.MultiIndex.from_product([names, ["elo"], ["left out"]], names=INDEX)
    elo.attrs = table.attrs
    add_caveats(elo, _of_malformed(table["malformed"].max()))
    return elo


_BATTLE = ("verdict", "policy_a", "policy_b")
MEASURES = {
    "accuracy": (("verdict", "preference"), _accuracy),
    "votes": (("verdict", "preference"), _accuracy),
    "wins": (_BATTLE, _accuracy),
    "correlation": (("score", "true score"), _correlation),
    "bias": (("score", "variant", "kind", "group", "lowest", "highest"), _bias),
    "viescore": (("score", "true score", "system", "category"), _viescore),
    "relative score": (("scores",), _relative),
    "order": (("candidate", "rank", "true_rank"), _order),
    "battles": (_BATTLE, _battles),
}
"""By name: the columns that a run must have, and the table."""
