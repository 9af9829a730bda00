"""The number that a benchmark's paper reports, from a judge's run on it.

    pairs = vj.load_collection("MMInstruction/VL-RewardBench")
    vj.benchmark(judge.compare(pairs, out="outputs/vl"))

Harnesses of one benchmark differ in what an unread answer counts as: left out, wrong, or a random guess. Each number
stands under its statistic and that treatment, the official one is marked. To add a benchmark, add to `BENCHMARKS`.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from rapidfuzz.distance import Levenshtein

from vjudge import data, metrics
from vjudge.data import CollectionError
from vjudge.metrics.tables import design_of, groups_of, read_verdicts, shares, tabulate
from vjudge.records import NAN, Rubric, unit_of

__all__ = ["BENCHMARKS", "Benchmark", "benchmark", "rank_by_score"]
__dir__ = __all__.copy

_INDEX = ["part", "statistic", "unread"]


@dataclass(frozen=True)
class Benchmark:
    """What one benchmark reports."""

    title: str  # as its paper calls it
    source: str  # where the definition was read
    note: str  # what else must stand beside the number
    measure: str = "accuracy"  # which of `MEASURES` makes its table
    statistics: tuple[str, ...] = (
        "accuracy",
    )  # those of the measure that are reported, the headline first
    unread: str = "left out"  # what an unread answer counts as officially
    parts: tuple[str, ...] = ("overall", "category")  # also "macro", the plain mean over categories
    categories: tuple[
        str, ...
    ] = ()  # all of them, where a lack of some would give another macro average
    as_published: bool = False  # whether pairs count in their published order alone


_MLLM = Benchmark(
    "MLLM-as-a-Judge (pair)",
    "Chen et al., MLLM-as-a-Judge, arXiv 2402.04788",
    "no published code says what an unread answer counts as, or how data sets are averaged: both are given both ways",
    statistics=("accuracy with ties", "accuracy without ties"),
    as_published=True,
)
_WILD = Benchmark(
    "LLaVA-Bench (in the wild)",
    "haotian-liu/LLaVA@181a2f8 llava/eval/eval_gpt_review_bench.py (parse_score), llava/eval/summarize_gpt_review.py",
    "100 x mean(candidate) / mean(reference); upstream's judge is gpt-4-0314 at temperature 0.2",
    measure="relative score",
    statistics=("relative score",),
    unread="(-1, -1)",
    categories=("complex", "conv", "detail"),
)
_CORRELATED = Benchmark(
    "Perception-Bench",
    "Lee et al., Prometheus-Vision, arXiv 2401.06591, section 5",
    "upstream asks again until an answer parses, which is not done here: unread answers are left out",
    measure="correlation",
    statistics=("pearson", "kendall", "spearman"),
    parts=("overall",),
)

BENCHMARKS: dict[str, Benchmark] = {
    "vl-rewardbench": Benchmark(
        "VL-RewardBench",
        "vl-rewardbench/VL_RewardBench@6f64385 cal.py (distribution_dataset)",
        "upstream takes the majority of k answers at random order; here both orders are asked, and where they differ"
        " there is no majority. VLMEvalKit@e8e78f0 vl_rewardbench.py counts an unread answer as wrong,"
        " lmms-eval@75571cf utils.py guesses at random",
        parts=("overall", "macro", "category"),
        categories=("general", "hallucination", "reasoning"),
    ),
    "multimodal-rewardbench": Benchmark(
        "Multimodal RewardBench",
        "facebookresearch/multimodal_rewardbench@b4b92cd scripts/2_get_accuracy.py",
        "upstream draws the guess with seed 123; here it counts as the half that it is on average. Upstream's `all` is"
        " over rows. Safety holds the pairs on bias alone, as released",
        unread="random",
        as_published=True,
    ),
    "mllm-judge-score": replace(
        _MLLM,
        title="MLLM-as-a-Judge (score)",
        measure="correlation",
        statistics=("pearson",),
        as_published=False,
    ),
    "mllm-judge-pair": _MLLM,
    "mllm-judge-batch": replace(
        _MLLM,
        title="MLLM-as-a-Judge (batch)",
        note=f"normalized distance, lower is better; {_MLLM.note}",
        measure="order",
        statistics=("levenshtein",),
    ),
    "llava-bench-wild": _WILD,
    "llava-bench-coco": replace(_WILD, title="LLaVA-Bench (COCO)"),
    "visit-bench": Benchmark(
        "VisIT-Bench",
        "mlfoundations/VisIT-Bench@45b9bf8 README.md (leaderboard)",
        "upstream's Elo runs through the battles in their order; here it is the maximum-likelihood (Bradley-Terry) one"
        " on the same scale, centred at 1,000",
        measure="battles",
        statistics=("elo",),
    ),
    "perception-bench": _CORRELATED,
    "feedback-bench": replace(
        _CORRELATED,
        title="Feedback-Bench",
        source="Kim et al., Prometheus, arXiv 2310.08491, section 5",
    ),
    "preference-bench": Benchmark(
        "Preference-Bench",
        "Kim et al., Prometheus 2, arXiv 2405.01535, section 5",
        "a judge's tie counts as unread; what the paper counts them as was not found in code: beside wrong stand left"
        " out and random",
        unread="wrong",
        parts=("overall",),
    ),
}
"""What each benchmark reports, by name."""


def benchmark(
    run: pd.DataFrame, *, name: str | None = None, n_resamples: int = 2_000, seed: int = 0
) -> pd.DataFrame:
    """A benchmark's official number from a judge's run, beside other harnesses' treatments of unread answers.

    Args:
        run: from `Judge.compare`, `Judge.grade` or `Judge.rank` on the benchmark, or any frame with their columns and
            the collection's (category, preference, group, gold ...); of a judge that scores one response,
            `rank_by_score` on its pairs. Where LLaVA-Bench or VisIT-Bench was graded and true scores are known, the
            number is Prometheus-Vision's: the correlation with them.
        name: which benchmark it is, a key of `BENCHMARKS`; None takes what the run says.
        n_resamples, seed: of the 95 % intervals: Wilson's of shares, the bootstrap's of the others, over groups.

    Returns:
        Rows (part, statistic, unread): part "overall", "macro" (the plain mean over categories) and each category;
        unread is what an answer without a verdict counts as. Columns estimate (shares in [0, 1], correlations in
        [-1, 1], relative scores of 100), low, high, n, missing, and official (reported by the benchmark itself; first).
        `attrs` has benchmark, source, note and method. ValueError: the benchmark is unknown, or the run lacks a column
        that it needs.

    >>> import pandas as pd
    >>> from vjudge.metrics.official import benchmark
    >>> run = pd.DataFrame({"id": list("pqrs"), "verdict": ["a", "b", "a", None], "preference": ["a", "a", "a", "a"]})
    >>> run["category"], run["group"] = ["general", "general", "reasoning", "hallucination"], list("pqrs")
    >>> table = benchmark(run, name="vl-rewardbench")["estimate"].xs("overall").xs("accuracy")
    >>> table.round(3).to_dict()
    {'left out': 0.667, 'wrong': 0.5, 'random': 0.625}
    """
    name = name or (run.attrs.get("collection") or {}).get("benchmark")
    specs = BENCHMARKS | {spec.title: spec for spec in BENCHMARKS.values()}
    if name not in specs:
        what = (
            f"there is no benchmark {name!r}"
            if name
            else "nothing says which benchmark the run is of"
        )
        raise ValueError(f"{what}: give name=, one of {', '.join(BENCHMARKS)}")
    spec = specs[name]
    frame = (metrics.average_samples(run) if "sample" in run else run).reset_index(drop=True)
    with suppress(CollectionError):  # no row has one
        frame["true score"] = data.truth(frame.filter(["id", "gold", "human_scores"]))
    own = {"relative score": "scores", "battles": "verdict"}.get(spec.measure)
    if (
        own
        and {"score", "true score"} <= set(frame)
        and (own not in frame or frame[own].isna().all())
    ):
        note = "not the benchmark's own protocol: the correlation with the collection's true scores"
        spec = replace(_CORRELATED, title=spec.title, note=f"{note}; {_CORRELATED.note}")
    columns, remedy, make = MEASURES[spec.measure]
    if lacks := [column for column in columns if column not in frame]:
        raise ValueError(
            f"{spec.title} needs {', '.join(lacks)}, which the run does not have (its columns:"
            f" {', '.join(map(str, frame.columns))}); {remedy}, or add it from the collection"
        )
    parts = _parts(frame, spec)
    frame["group"] = groups_of(frame)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what is undefined is NaN in the table, and counted below
        table = make(
            frame, spec, parts, {"confidence": 0.95, "n_resamples": n_resamples, "seed": seed}
        )
    if n_resamples and (n_bare := int(table["low"].isna().sum())):
        warnings.warn(
            f"{n_bare} of {len(table)} rows have no interval: too few rows or groups there",
            stacklevel=2,
        )
    reported = {(statistic, spec.unread) for statistic in spec.statistics}
    official = [
        (part if part in ("overall", "macro") else "category") in spec.parts
        and (statistic, unread) in reported
        for part, statistic, unread in table.index
    ]
    table.attrs = {"benchmark": spec.title, "source": spec.source, "note": spec.note, **table.attrs}
    return table.assign(official=official).sort_values("official", ascending=False, kind="stable")


def _parts(frame: pd.DataFrame, spec: Benchmark) -> dict[str, np.ndarray]:
    """The rows of each category; a missing category, or a missing column of them, is said."""
    if spec.measure == "battles":  # its parts are the policies
        return {}
    categories = (
        frame["category"] if "category" in frame else pd.Series(index=frame.index, dtype=object)
    )
    parts = {
        str(name): (categories == name).to_numpy() for name in sorted(categories.dropna().unique())
    }
    if not parts and "category" in spec.parts:
        what = "is reported by category, and the run has none: add it from the collection"
        warnings.warn(f"{spec.title} {what}", stacklevel=3)
    elif parts and (lacks := sorted(set(spec.categories) - set(parts))):
        warnings.warn(
            f"the run has no row of {', '.join(lacks)}: {spec.title} has them too", stacklevel=3
        )
    if parts and (without := int(categories.isna().sum())):
        warnings.warn(
            f"{without} of {len(frame)} rows have no category: they count overall alone",
            stacklevel=3,
        )
    return parts


# -- measures: (run, benchmark, rows of each category, options) -> table

Parts = Mapping[str, np.ndarray]
Options = Mapping[str, Any]


def _shares(
    frame: pd.DataFrame,
    cases: Iterable[tuple[str, str, Any, Any]],
    parts: Parts,
    options: Options,
    unit: str,
) -> pd.DataFrame:
    """Shares overall, as the mean over categories, and by category; a case is statistic, unread, gain and weight."""
    places: dict[str, Any] = {"overall": 1.0} | (
        {"macro": np.stack(list(parts.values())), **parts} if parts else {}
    )
    lines = [
        (
            (part, statistic, unread),
            rows * np.asarray(gain, float),
            rows * np.asarray(weight, float),
        )
        for statistic, unread, gain, weight in cases
        for part, rows in places.items()
    ]
    return shares(
        lines, groups=frame["group"], confidence=options["confidence"], unit=unit, index=_INDEX
    )


def _accuracy(frame: pd.DataFrame, spec: Benchmark, parts: Parts, options: Options) -> pd.DataFrame:
    """Accuracy on pairs; "without ties" leaves out people's alone, and a judge's tie is wrong; else it is unread."""
    cases: list[tuple[str, str, Any, Any]] = []
    preference, preferred, _ = read_verdicts(frame["preference"], people=True)
    one_order = spec.as_published and {"verdict_ab", "verdict_ba"} <= set(frame)
    columns = {"": "verdict_ab", " in both orders": "verdict"} if one_order else {"": "verdict"}
    for (suffix, column), statistic in itertools.product(columns.items(), spec.statistics):
        judge, read, _ = read_verdicts(frame[column])
        right, counted, chance = (judge == preference).astype(float), preferred, 1 / 3
        if statistic != "accuracy with ties":
            counted, chance = preferred & (preference != "tie"), 1 / 2
        if statistic == "accuracy":
            read = read & (judge != "tie")
        cases.append((statistic + suffix, "left out", right, counted & read))
        cases.append((statistic + suffix, "wrong", right, counted))
        cases.append((statistic + suffix, "random", np.where(read, right, chance), counted))
    return _shares(frame, cases, parts, options, "pairs")


def _correlation(
    frame: pd.DataFrame, spec: Benchmark, parts: Parts, options: Options
) -> pd.DataFrame:
    """Correlation with the true scores: over all rows, within each category, and the mean of these."""
    score, true, groups = frame["score"].astype(float), frame["true score"], frame["group"]
    tables = {"overall": metrics.correlate(score, true, groups=groups, **options)}
    if len(parts) > 1:
        named = frame["category"].notna()
        columns = {"systems": list(frame["category"][named]), "levels": ["within"]}
        tables["macro"] = metrics.correlate_levels(
            score[named], true[named], **columns, **options
        ).xs("within")
        for part, rows in parts.items():
            tables[part] = metrics.correlate(
                score[rows], true[rows], groups=groups[rows], **options
            )
    table = pd.concat({"left out": pd.concat(tables)}).reorder_levels([1, 2, 0]).rename_axis(_INDEX)
    table.attrs = {"method": tables["overall"].attrs["method"]}
    return table


def _relative(frame: pd.DataFrame, spec: Benchmark, parts: Parts, options: Options) -> pd.DataFrame:
    """100 x mean of the candidate's scores / mean of the reference's, which stands first in a verdict's `scores`."""
    both = np.array([pair if np.size(pair) == 2 else (NAN, NAN) for pair in frame["scores"]], float)
    readable = ~np.isnan(both).any(axis=1)
    both = np.where(readable[:, None], both, -1.0)
    places = {"overall": np.ones(len(frame), dtype=bool), **parts}
    names = [
        (part, "relative score", unread) for part in places for unread in ("(-1, -1)", "left out")
    ]
    counted = np.stack(
        [rows & (readable | every) for rows in places.values() for every in (True, False)]
    )
    reference, candidate = counted * both[:, 0], counted * both[:, 1]

    def statistic(weights: np.ndarray) -> np.ndarray:
        below = reference @ weights
        return np.asarray(100 * (candidate @ weights) / np.where(below > 0, below, np.nan))

    missing = [int((places[part] & ~readable).sum()) for part, *_ in names]
    design = design_of(np.arange(len(frame)), frame["group"], places["overall"])
    counts = {"n": counted.sum(axis=1).tolist(), "missing": missing}
    return tabulate(statistic, names, design, unit="reviews", index=_INDEX, **counts, **options)


def _order(frame: pd.DataFrame, spec: Benchmark, parts: Parts, options: Options) -> pd.DataFrame:
    """Levenshtein distance of the judge's order from people's, over its length; of ties the mean over their orders."""
    lines, distances = [], list[float]()
    for _, rows in frame.groupby("id", sort=False):
        lines.append(rows.index[0])
        true = rows.sort_values("true_rank", kind="stable")["candidate"].tolist()
        ties = (itertools.permutations(part["candidate"]) for _, part in rows.groupby("rank"))
        orders = [list(itertools.chain.from_iterable(order)) for order in itertools.product(*ties)]
        known = rows[["rank", "true_rank"]].notna().all(axis=None)
        apart = float(np.mean([Levenshtein.distance(order, true) for order in orders])) / len(true)
        distances.append(apart if known else NAN)
    distance = np.array(distances)
    complete = ~np.isnan(distance)
    cases = [
        ("levenshtein", "left out", np.where(complete, distance, 0.0), complete),
        ("levenshtein", "wrong", np.where(complete, distance, 1.0), np.ones(len(lines))),
    ]
    return _shares(
        frame.loc[lines],
        cases,
        {part: rows[lines] for part, rows in parts.items()},
        options,
        "rankings",
    )


def _battles(frame: pd.DataFrame, spec: Benchmark, parts: Parts, options: Options) -> pd.DataFrame:
    """Elo of the policies; both orders of a battle as the judge's one verdict, more wins win, else a tie."""
    first, second = (list(frame[f"policy_{side}"]) for side in "ab")
    table = metrics.bradley_terry(first, second, frame["verdict"], groups=frame["group"], **options)
    elo = table[["elo", "elo_low", "elo_high", "n"]].set_axis(
        ["estimate", "low", "high", "n"], axis=1
    )
    elo["missing"] = int(table.attrs["missing"])
    elo.index = pd.MultiIndex.from_tuples(
        [(str(name), "elo", "left out") for name in table.index], names=_INDEX
    )
    elo.attrs = {"method": table.attrs["method"]}
    return elo


_COMPARE = "use Judge.compare, or rank_by_score for a judge that scores one response"
_OWN = "grade the responses by the benchmark's own wording, template='llava-bench-wild' or 'llava-bench-coco'"
_GRADE = "use Judge.grade on items with gold or human_scores"
MEASURES: dict[str, tuple[tuple[str, ...], str, Callable[..., pd.DataFrame]]] = {
    "accuracy": (("verdict", "preference"), _COMPARE, _accuracy),
    "correlation": (("score", "true score"), _GRADE, _correlation),
    "relative score": (("scores",), _OWN, _relative),
    "order": (("candidate", "rank", "true_rank"), "use Judge.rank", _order),
    "battles": (("verdict", "policy_a", "policy_b"), _COMPARE, _battles),
}
"""By name: the columns that a run must have, what to do where it lacks one, and what makes the table."""


_RUBRIC = ("criteria", "descriptions", "lowest", "anchors", "named_criteria")


def rank_by_score(
    judge: Any, pairs: Any, *, rubric: Rubric | None = None, **options: Any
) -> pd.DataFrame:
    """Grade both responses of every pair by themselves and say which scores higher.

    Args:
        judge: anything with `Judge.grade`. options: of `Judge.grade`.
        pairs: rows with `response_a` and `response_b`.
        rubric: for pairs without one, where the judge's wording shows a rubric; Prometheus was given one for each set.

    Returns:
        One row a pair: id, judge, verdict ("a", "b", "tie", None without two scores), score_a, score_b, group, and
        preference and category where the pairs have them; `attrs` counts the failures.

    Source: Prometheus (arXiv 2310.08491), section on ranking evaluation.
    """
    rows, singles = data.rows_of(pairs), []
    for row in rows:
        shared = {name: row.get(name) for name in ("images", "instruction", "reference_answer")}
        levels = {name: row.get(name) for name in _RUBRIC}
        if rubric is not None and not levels["descriptions"]:
            levels = rubric.as_row()
        for side in "ab":
            own = {
                "id": f"{row['id']}/{side}",
                "group": unit_of(row),
                "response": row[f"response_{side}"],
            }
            singles.append({**shared, **levels, **own})
    graded = judge.grade(singles, **options)
    a, b = graded["score"].to_numpy(float).reshape(-1, 2).T
    frame = pd.DataFrame(
        {"id": [str(row["id"]) for row in rows], "judge": judge.name, "score_a": a, "score_b": b}
    )
    choices = [{1: "a", -1: "b", 0: "tie"}.get(sign) for sign in np.sign(a - b)]
    frame.insert(2, "verdict", pd.Series(choices, dtype=object))
    for name in ("preference", "category"):
        if any(name in row for row in rows):
            frame[name] = [row.get(name) for row in rows]
    frame["group"] = [unit_of(row) for row in rows]
    frame.attrs = {
        "failures": dict(graded.attrs.get("failures", {})),
        "collection": data.origin(pairs),
    }
    return frame
