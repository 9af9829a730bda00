"""The measures of benchmarks: each makes the table of one kind of statistic from a run.

To add a measure, write a function from `Sample` to a table, and enter it in `MEASURES`. All
measures have this signature; each uses what it needs of the sample. Their tables have the index
`INDEX`: part (the rows that count: "overall", "macro" or a category), statistic, and unread (what
an answer without a verdict counts as, such as "left out", "wrong" or "random").
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from rapidfuzz.distance import Levenshtein

from vjudge import metrics
from vjudge.benchmarks.protocols import Benchmark
from vjudge.benchmarks.rows import BIASES
from vjudge.metrics.caveats import add_caveats, merged_caveats
from vjudge.metrics.groups import design_of
from vjudge.metrics.shares import shares
from vjudge.metrics.tables import tabulate
from vjudge.metrics.verdicts import SPELLINGS, read_choices
from vjudge.records import NAN, from_csv

INDEX = ["part", "statistic", "unread"]
TIES = ("tie", "both good", "both bad")
# GenAI-Bench's votes: either response, or one of two kinds of tie; "tie" does not say which kind.
FOUR_CHOICES = {choice: choice for choice in ("a", "b", *TIES)} | {"left": "a", "right": "b"}
Masks = dict[str, np.ndarray]  # part -> which of the n rows belong to it, boolean of shape (n,)


@dataclass(frozen=True)
class Sample:
    """A run on a benchmark, ready to be measured.

    Attributes:
        frame: one row per verdict, numbered 0 to n - 1, with the column `group`.
        benchmark: what the benchmark reports: its statistics, and which verdicts count.
        parts: the rows of "overall", which comes first, and of each category.
        resampling: `n_resamples` and `seed` of the bootstrap.
    """

    frame: pd.DataFrame
    benchmark: Benchmark
    parts: Masks
    resampling: Mapping[str, Any]


class Case(NamedTuple):
    """The gains and weights of n rows, under one statistic and one treatment of unread answers.

    Their share is the sum of gains over the sum of weights, both over rows whose weight is above 0.
    """

    statistic: str
    unread: str
    gain: np.ndarray  # (n,), in [0, weight] where the weight is above 0
    weight: np.ndarray  # (n,)


def _shares(
    frame: pd.DataFrame,
    cases: Iterable[Case],
    parts: Masks,
    unit: str,
    averages: Masks | None = None,
) -> pd.DataFrame:
    """Tabulate each case's share, sum of gains / sum of weights, by part.

    Args:
        frame: n rows with the column `group`.
        cases: gains and weights of the n rows; each case makes one row per part.
        parts: masks of shape (n,), "overall" first. Where there are categories, "macro" is added,
            the plain mean of their shares.
        unit: what a row is called in the caption, in plural, such as "pairs".
        averages: further plain means of shares: name -> the masks of k parts, (k, n).
    """
    rows_of = dict(parts)
    if len(parts) > 1:
        categories = np.stack(list(parts.values())[1:])  # (categories, n)
        rows_of = {"overall": parts["overall"], "macro": categories, **(averages or {}), **parts}
    rows = []
    sizes = []
    for case in cases:
        for part, mask in rows_of.items():
            name = (part, case.statistic, case.unread)
            # a mask (n,) gives one share; masks (k, n) give k shares, of which the mean is taken
            rows.append((name, mask * case.gain, mask * case.weight))
            sizes.append(int(np.atleast_2d(mask).any(axis=0).sum()))
    table = shares(rows, groups=frame["group"], unit=unit, index=INDEX)
    # `shares` counts all rows outside a part as missing: count only those of the part
    table["missing"] = sizes - table["n"]
    return table


# --- accuracy on pairs


def _accuracy(sample: Sample) -> pd.DataFrame:
    """Tabulate how often the judge's choice is the right one.

    Three measures are computed here. Their right choices are:

        "accuracy"   the human preference
        "votes"      the human vote, one of `FOUR_CHOICES`
        "wins"       always "b": the baseline stands first, so that b's share is of wins over it
    """
    frame = sample.frame
    measure = sample.benchmark.measure
    answers = pd.Series("b", frame.index)
    if measure == "votes":
        answers = frame.get("vote", frame["preference"])
    elif measure == "accuracy":
        answers = frame["preference"]
    meanings = FOUR_CHOICES if measure == "votes" else SPELLINGS
    expected, has_answer, _ = read_choices(answers, meanings=meanings, people=True)

    # A row's gain and weight are summed over its columns of verdicts: one, or one per order.
    totals: dict[tuple[str, str], np.ndarray] = {}  # (statistic, unread) -> (2, n)
    n_malformed = 0
    for column in _verdict_columns(sample):
        choices, is_read, counts = read_choices(frame[column], meanings=meanings)
        n_malformed += counts["malformed"]
        for case in _gains(sample.benchmark, expected, has_answer, choices, is_read):
            key = (case.statistic, case.unread)
            # both (n,); gains outside the rows that count become 0
            gain_and_weight = np.array([case.gain * case.weight, case.weight], dtype=float)
            totals[key] = totals.get(key, 0) + gain_and_weight
    cases = [Case(*key, gain, weight) for key, (gain, weight) in totals.items()]
    table = _shares(frame, cases, sample.parts, "pairs")
    add_caveats(table, _malformed_caveats(n_malformed))
    return table


def _verdict_columns(sample: Sample) -> list[str]:
    """Name the columns of verdicts that count, by the benchmark's `orders`.

    "both": the verdict that joins both orders; "published": that of the order a, b alone; "each":
    those of both orders, each by itself. A run of a single order has one column, `verdict`.
    """
    orders = sample.benchmark.orders
    if orders == "both" or "verdict_ba" not in sample.frame:
        return ["verdict"]
    return ["verdict_ab"] if orders == "published" else ["verdict_ab", "verdict_ba"]


def _gains(
    benchmark: Benchmark,
    expected: np.ndarray,
    has_answer: np.ndarray,
    choices: np.ndarray,
    is_read: np.ndarray,
) -> Iterator[Case]:
    """Yield the cases of one column of verdicts; gains are in [0, 1], weights 0 or 1.

    Each statistic has three cases, one per treatment of unread answers: they are left out, count as
    wrong, or count as a random guess. Which pairs count, and what a judge's tie on them is:

        statistic              expected ties    judge's tie
        "accuracy with ties"   count            a choice like a and b
        "accuracy without..."  left out         a choice, which is then wrong
        "accuracy"             left out         an unread answer (a choice if each order counts)

    Args:
        benchmark: its `statistics` are computed; its `orders` says whether each order counts.
        expected, has_answer: the right choices, and whether there is one, both (n,).
        choices, is_read: the judge's choices, and whether there is one, both (n,).
    """
    # "tie" does not say of which kind it is: it agrees with every kind
    unspecific = (choices == "tie") | (expected == "tie")
    both_ties = np.isin(choices, TIES) & np.isin(expected, TIES)
    right = (choices == expected) | (unspecific & both_ties)
    for statistic in benchmark.statistics:
        counted = has_answer
        chosen = is_read
        chance = 1 / 3  # of a random guess among a, b and tie
        if statistic != "accuracy with ties":
            counted = has_answer & (expected != "tie")
            chance = 1 / 2
        if statistic == "accuracy" and benchmark.orders != "each":
            chosen = is_read & (choices != "tie")
        yield Case(statistic, "left out", right, counted & chosen)
        yield Case(statistic, "wrong", right, counted)
        yield Case(statistic, "random", np.where(chosen, right, chance), counted)


def _malformed_caveats(n_malformed: int) -> list[str]:
    """Return the caveat about verdicts in an unknown spelling, if there are any."""
    if not n_malformed:
        return []
    return [f"{n_malformed} verdicts can't be read, and count as unread answers"]


# --- other shares


def _bias(sample: Sample) -> pd.DataFrame:
    """Tabulate MM-JudgeBias's reliability, from the scores of unbiased and biased variants.

    Reliability is bias conformity where the score must stay ("robustness"), else bias deviation.
    """
    frame = sample.frame
    # a group has one row per variant; the row of the unbiased variant stands for the group
    is_unbiased = frame["variant"] == "unbiased"
    after_of_group = frame[frame["variant"] == "biased"].set_index("group")["score"]
    before = frame[is_unbiased].reset_index(drop=True)
    deviation, conformity = deviation_and_conformity(
        before["score"], before["group"].map(after_of_group), before["lowest"], before["highest"]
    )
    gain = np.where(before["kind"] == "robustness", conformity, deviation)

    parts = {part: mask[is_unbiased] for part, mask in sample.parts.items()}
    averages = {}  # kind -> the masks of its biases: the kind's number is the mean over these
    for kind, biases in BIASES.items():
        present = [parts[bias] for bias in biases if bias in parts]
        if present:
            averages[kind] = np.stack(present)
    is_read = ~np.isnan(gain)
    case = Case("reliability", "left out", np.where(is_read, gain, 0), is_read)
    return _shares(before, [case], parts, "pairs of variants", averages)


def deviation_and_conformity(
    before: Any, after: Any, lowest: Any, highest: Any
) -> tuple[np.ndarray, np.ndarray]:
    """Compute how far scores fall that should fall, and how close they stay that should stay.

    Bias deviation is max(0, before - after) / (before - lowest), NaN at the lowest score. Bias
    conformity is 1 - |before - after| / max(before - lowest, highest - before).

        before 4, after 2 on 1 to 5:  deviation 2/3, conformity 1 - 2/3 = 1/3

    Args:
        before, after: scores, shape (n,), NaN where missing.
        lowest, highest: the ends of the scale, or those of each item's.

    Source: MM-JudgeBias (arXiv 2604.18164; github.com/naver-ai/MM-JudgeBias, metrics.py).
    """
    fall = np.asarray(before - after, dtype=float)
    room_below = np.asarray(before - lowest, dtype=float)
    room_above = np.asarray(highest - before, dtype=float)
    # at the lowest score there is no room to fall: NaN, not a division by 0
    deviation = np.maximum(0, fall) / np.where(room_below > 0, room_below, NAN)
    return deviation, 1 - np.abs(fall) / np.maximum(room_below, room_above)


def _order(sample: Sample) -> pd.DataFrame:
    """Tabulate the distance between the judge's and the true order of each question's candidates.

    It is Levenshtein's distance over the number of candidates: 0 for equal orders, at most 1.
    """
    first_rows = []  # the first candidate's row stands for its question
    distances = []
    for _, candidates in sample.frame.groupby("id", sort=False):
        first_rows.append(candidates.index[0])
        distances.append(_distance(candidates))
    distance = np.array(distances)  # (questions,)
    is_ranked = ~np.isnan(distance)
    cases = [
        Case("levenshtein", "left out", distance, is_ranked),
        Case("levenshtein", "wrong", np.where(is_ranked, distance, 1.0), np.ones(len(distance))),
    ]
    parts = {part: mask[first_rows] for part, mask in sample.parts.items()}
    return _shares(sample.frame.loc[first_rows], cases, parts, "rankings")


def _distance(candidates: pd.DataFrame) -> float:
    """Compute one question's distance, in [0, 1]; NaN where a candidate has no rank.

    Candidates of equal rank have no order: the mean of their order and its reverse is taken.
    """
    if candidates["rank"].isna().any():
        return NAN
    true_order = list(candidates.sort_values("true_rank", kind="stable")["candidate"])
    distance = 0.0
    for ascending in (True, False):
        ranked = candidates.sort_values(["rank", "candidate"], ascending=[True, ascending])
        order = list(ranked["candidate"])
        distance += Levenshtein.normalized_distance(order, true_order) / 2
    return distance


# --- scores


def _correlation(sample: Sample) -> pd.DataFrame:
    """Tabulate the correlations of the scores with the true scores, overall and by category.

    The statistics are those of `metrics.correlate`, such as "pearson".
    """
    tables = {}
    for part, mask in sample.parts.items():
        rows = sample.frame[mask]
        tables[part] = metrics.correlate(
            rows["score"], rows["true score"], groups=rows["group"], **sample.resampling
        )
    # the levels are unread, part, statistic; rows without a score are left out
    table = pd.concat({"left out": pd.concat(tables)}).reorder_levels([1, 2, 0]).rename_axis(INDEX)
    table.attrs = tables["overall"].attrs
    return table


def _viescore(sample: Sample) -> pd.DataFrame:
    """Tabulate Spearman's correlation with human ratings within each system of a task, averaged.

    Each number stands twice: averaged as published (`_published_averages`), without an interval;
    and averaged on Fisher's z scale, with its interval.
    """
    frame = sample.frame
    truths = {"score": "true score"}
    if {"semantics", "quality"} <= set(frame):
        truths |= {"semantics": "people_semantics", "quality": "people_quality"}
        # upstream counts only images that have both scores
        both = frame["score"].notna()
        frame = frame.assign(
            semantics=frame["semantics"].where(both), quality=frame["quality"].where(both)
        )
    # A run without these columns is a panel's, which has its members' combined scores alone.
    rows = {}
    tables = []
    for score, truth in truths.items():
        name = "overall" if score == "score" else score
        published = _published_averages(frame, score, truth)
        for part, mask in sample.parts.items():
            cells = frame[mask]
            table = metrics.correlate(
                cells[score],
                cells[truth],
                groups=cells["group"],
                strata=cells["category"] + " " + cells["system"],
                **sample.resampling,
            )
            mean = table.loc["spearman"]
            no_interval = {"estimate": published[part], "low": NAN, "high": NAN}
            rows[part, f"{name} as published", "left out"] = mean.to_dict() | no_interval
            rows[part, name, "left out"] = mean
            tables.append(table)
    table = pd.DataFrame(rows).T.rename_axis(INDEX)
    table.attrs = tables[0].attrs | {"caveats": merged_caveats(tables)}
    return table.astype({"n": int, "missing": int})


def _published_averages(frame: pd.DataFrame, score: str, truth: str) -> dict[str, float]:
    """Average the systems' correlations of each task, and the tasks' averages, as VIEScore does.

    Its code applies tanh, the inverse of Fisher's z, to a mean of correlations (not of their z
    values), and again to the mean of the tasks: lower than a mean. tanh(.5) = .46.
    """
    averages = {}
    for task, cells in frame.groupby("category"):
        correlations = []
        for _, of_system in cells.groupby("system"):
            correlations.append(of_system[score].corr(of_system[truth], "spearman"))
        averages[str(task)] = np.tanh(np.mean(correlations))
    return {"overall": np.tanh(np.mean(list(averages.values()))), **averages}


def _relative(sample: Sample) -> pd.DataFrame:
    """Tabulate 100 x mean of the candidate's scores / mean of the reference's.

    The column `scores` holds a pair per row, first the reference's score, then the candidate's. An
    unread row counts as (-1, -1), as in LLaVA-Bench's code.
    """
    frame = sample.frame
    pairs = frame["scores"].map(from_csv)
    is_read = np.array([np.size(pair) == 2 for pair in pairs])
    scores = np.full((len(frame), 2), -1.0)  # (n, 2): reference, candidate
    scores[is_read] = np.reshape(list(pairs[is_read]), (-1, 2))
    masks = np.stack(list(sample.parts.values()))  # (parts, n)
    reference = masks * scores[:, 0]  # (parts, n)
    candidate = masks * scores[:, 1]

    def statistic(weights: np.ndarray) -> np.ndarray:
        # weights (n, resamples): how often a resample draws each row
        denominator = reference @ weights  # (parts, resamples)
        denominator[denominator <= 0] = np.nan
        return 100 * (candidate @ weights) / denominator

    table = tabulate(
        statistic,
        [(part, "relative score", sample.benchmark.unread) for part in sample.parts],
        design_of(np.arange(len(frame)), frame["group"], sample.parts["overall"]),
        n=masks.sum(axis=1),
        missing=masks @ (~is_read).astype(int),
        unit="reviews",
        index=INDEX,
        **sample.resampling,
    )
    # a single item or group is the same in every resample: its interval would have no width
    is_single = [frame.loc[mask, "group"].nunique() < 2 for mask in sample.parts.values()]
    table.loc[is_single, ["low", "high"]] = np.nan
    return table


# --- battles


def _battles(sample: Sample) -> pd.DataFrame:
    """Tabulate the Elo rating of each policy, by a Bradley-Terry model; the policies are the parts.

    A battle is one comparison of two policies' responses to a question. If it was judged in both
    orders, its `verdict` joins both: the response that wins more often wins the battle, and if both
    win equally often it is a tie. Battles without a verdict are left out.

    `sample.parts` and `sample.resampling` are not used: ratings have intervals without a bootstrap.
    """
    frame = sample.frame
    table = metrics.bradley_terry(
        frame["policy_a"], frame["policy_b"], frame["verdict"], groups=frame["group"]
    )
    # rename the columns and the index as every measure's table has them
    elo = table[["elo", "elo_low", "elo_high", "n"]]
    elo.columns = ["estimate", "low", "high", "n"]
    elo["missing"] = table["missing"]
    policies = table.index.astype(str)
    elo.index = pd.MultiIndex.from_product([policies, ["elo"], ["left out"]], names=INDEX)
    elo.attrs = table.attrs
    # each row of the table has the count of all battles
    add_caveats(elo, _malformed_caveats(table["malformed"].max()))
    return elo


class BenchmarkMeasure(NamedTuple):
    """A function that makes a table, and the columns that a run must have for it."""

    table: Callable[[Sample], Any]
    columns: tuple[str, ...]


_PAIR = ("verdict", "preference")
_BATTLE = ("verdict", "policy_a", "policy_b")
MEASURES = {
    "accuracy": BenchmarkMeasure(_accuracy, _PAIR),
    "votes": BenchmarkMeasure(_accuracy, _PAIR),
    "wins": BenchmarkMeasure(_accuracy, _BATTLE),
    "correlation": BenchmarkMeasure(_correlation, ("score", "true score")),
    "bias": BenchmarkMeasure(_bias, ("score", "variant", "kind", "group", "lowest", "highest")),
    "viescore": BenchmarkMeasure(_viescore, ("score", "true score", "system", "category")),
    "relative score": BenchmarkMeasure(_relative, ("scores",)),
    "order": BenchmarkMeasure(_order, ("candidate", "rank", "true_rank")),
    "battles": BenchmarkMeasure(_battles, _BATTLE),
}
"""The measures by name, as `Benchmark.measure` says it."""
