"""The number that a benchmark's paper reports, from a judge's run on it.

    pairs = vj.load_collection("MMInstruction/VL-RewardBench")
    run = judge.compare(pairs, out="outputs/vl")
    vj.benchmark(run)

Benchmarks differ in what they count, and harnesses of one benchmark differ in what an unread answer counts as: left
out, wrong, or a random guess. Each number here stands under the name of its statistic and of that treatment, with an
interval, and the official one is marked. To add a benchmark, write an entry of `BENCHMARKS`.

`rank_by_score` makes an absolute judge answer pairs, as Prometheus does on HHH Alignment and MT-Bench.
"""

from __future__ import annotations

import itertools
import math
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from vjudge import data, metrics
from vjudge.data import CollectionError, Problem
from vjudge.metrics._tables import design_of, read_verdicts, shares, tabulate
from vjudge.names import public
from vjudge.records import NAN, Rubric, is_missing, unit_of

__all__ = ["BENCHMARKS", "Benchmark", "benchmark", "rank_by_score"]
__dir__ = public(__name__)

MANY_ORDERS = 720  # of tied responses
JOINED = ("category", "preference", "group", "policy_a", "policy_b")


@dataclass(frozen=True)
class Benchmark:
    """What one benchmark reports.

    Args:
        title: as its paper calls it.
        measure: which of `MEASURES` makes its table.
        statistics: those of the measure that are reported, the headline first.
        unread: what an unread answer counts as officially, a treatment of the measure.
        parts: which parts are reported: "overall", "macro" (the plain mean over categories), "category".
        source: where the definition was read.
        note: what else must stand beside the number.
        categories: all that there are, where a run that lacks some would give another macro average.
        as_published: whether pairs count in their published order alone.
        names: further names that it goes by.
    """

    title: str
    measure: str
    statistics: tuple[str, ...]
    unread: str
    source: str
    note: str = ""
    parts: tuple[str, ...] = ("overall", "category")
    categories: tuple[str, ...] = ()
    as_published: bool = False
    names: tuple[str, ...] = ()


_PROMETHEUS = "Lee et al., Prometheus-Vision, arXiv 2401.06591, section 5"
_ASKED_AGAIN = "upstream asks again until an answer parses, which is not done here: unread answers are left out"
_TIES = "what the paper counts them as was not found in code: beside wrong stand left out and random"
_LLAVA = (
    "haotian-liu/LLaVA@181a2f8 llava/eval/eval_gpt_review_bench.py (parse_score), llava/eval/summarize_gpt_review.py"
)
_RELATIVE: dict[str, Any] = {
    "measure": "relative score",
    "statistics": ("relative score",),
    "unread": "(-1, -1)",
    "source": _LLAVA,
    "note": "100 x mean(candidate) / mean(reference); upstream's judge is gpt-4-0314 at temperature 0.2",
}
_MLLM = "Chen et al., MLLM-as-a-Judge, arXiv 2402.04788"
_UNDOCUMENTED = (
    "no published code says what an unread answer counts as, or how data sets are averaged: both are given both ways"
)

BENCHMARKS: dict[str, Benchmark] = {
    "vl-rewardbench": Benchmark(
        "VL-RewardBench",
        "accuracy",
        ("accuracy",),
        "left out",
        "vl-rewardbench/VL_RewardBench@6f64385 cal.py (distribution_dataset)",
        "upstream takes the majority of k answers at random order; here both orders are asked, and where they differ"
        " there is no majority. VLMEvalKit@e8e78f0 vl_rewardbench.py counts an unread answer as wrong,"
        " lmms-eval@75571cf utils.py guesses at random",
        parts=("overall", "macro", "category"),
        categories=("general", "hallucination", "reasoning"),
    ),
    "multimodal-rewardbench": Benchmark(
        "Multimodal RewardBench",
        "accuracy",
        ("accuracy",),
        "random",
        "facebookresearch/multimodal_rewardbench@b4b92cd scripts/2_get_accuracy.py",
        "upstream draws the guess with seed 123; here it counts as the half that it is on average. Upstream's `all` is"
        " over rows. Safety holds the pairs on bias alone, as released",
        as_published=True,
    ),
    "mllm-judge-score": Benchmark(
        "MLLM-as-a-Judge (score)",
        "correlation",
        ("pearson",),
        "left out",
        _MLLM,
        _UNDOCUMENTED,
        names=("mllm-as-a-judge-score",),
    ),
    "mllm-judge-pair": Benchmark(
        "MLLM-as-a-Judge (pair)",
        "accuracy",
        ("accuracy with ties", "accuracy without ties"),
        "left out",
        _MLLM,
        _UNDOCUMENTED,
        as_published=True,
        names=("mllm-as-a-judge-pair",),
    ),
    "mllm-judge-batch": Benchmark(
        "MLLM-as-a-Judge (batch)",
        "order",
        ("levenshtein",),
        "left out",
        _MLLM,
        f"normalized distance, lower is better; {_UNDOCUMENTED}",
        names=("mllm-as-a-judge-batch",),
    ),
    "llava-bench-wild": Benchmark(
        "LLaVA-Bench (in the wild)",
        **_RELATIVE,
        categories=("complex", "conv", "detail"),
        names=("llava-bench-in-the-wild", "llava-bench"),
    ),
    "llava-bench-coco": Benchmark("LLaVA-Bench (COCO)", **_RELATIVE, categories=("complex", "conv", "detail")),
    "visit-bench": Benchmark(
        "VisIT-Bench",
        "battles",
        ("elo",),
        "left out",
        "mlfoundations/VisIT-Bench@45b9bf8 README.md (leaderboard)",
        "upstream's Elo runs through the battles in their order; here it is the maximum-likelihood (Bradley-Terry) one"
        " on the same scale, centred at 1,000",
    ),
    "perception-bench": Benchmark(
        "Perception-Bench",
        "correlation",
        ("pearson", "kendall", "spearman"),
        "left out",
        _PROMETHEUS,
        _ASKED_AGAIN,
        parts=("overall",),
    ),
    "feedback-bench": Benchmark(
        "Feedback-Bench",
        "correlation",
        ("pearson", "kendall", "spearman"),
        "left out",
        "Kim et al., Prometheus, arXiv 2310.08491, section 5",
        _ASKED_AGAIN,
        parts=("overall",),
    ),
    "preference-bench": Benchmark(
        "Preference-Bench",
        "accuracy",
        ("accuracy",),
        "wrong",
        "Kim et al., Prometheus 2, arXiv 2405.01535, section 5",
        f"a judge's tie counts as unread; {_TIES}",
        parts=("overall",),
        names=("preference-collection",),
    ),
    "hhh": Benchmark(
        "HHH Alignment",
        "accuracy",
        ("accuracy",),
        "wrong",
        "Kim et al., Prometheus, arXiv 2310.08491, section on ranking",
        f"an absolute judge's equal scores are no choice, and count as unread; {_TIES}",
        categories=("harmless", "helpful", "honest", "other"),
        names=("hhh-alignment",),
    ),
    "mt-bench": Benchmark(
        "MT-Bench human judgements",
        "accuracy",
        ("accuracy",),
        "wrong",
        "Kim et al., Prometheus, arXiv 2310.08491, section on ranking",
        "pairs on which people saw a tie are left out; an absolute judge's equal scores are no choice, and count as"
        f" unread; {_TIES}",
        parts=("overall",),
        names=("mt-bench-human-judgments",),
    ),
}
"""What each benchmark reports, by name. Where a judge graded questions of LLaVA-Bench or VisIT-Bench whose true scores
are known, `benchmark` gives the correlation that Prometheus-Vision's paper reports on them."""


def benchmark(
    run: pd.DataFrame,
    items: Any = None,
    *,
    name: str | None = None,
    confidence: float = 0.95,
    n_resamples: int = 2_000,
    seed: int = 0,
) -> pd.DataFrame:
    """A benchmark's official number from a judge's run, beside other harnesses' treatments of unread answers.

    Args:
        run: from `Judge.compare`, `Judge.grade`, `Judge.rank` or `rank_by_score` on the benchmark.
        items: the collection, for what the run does not carry: its name, categories and true labels, joined by id.
        name: which benchmark it is, a key of `BENCHMARKS`; None takes what the run or the collection says.
        confidence, n_resamples, seed: of the intervals: Wilson's of shares, the bootstrap's of the others, over groups.

    Returns:
        Rows (part, statistic, unread): part "overall", "macro" (the plain mean over categories) and each category;
        unread is what an answer without a verdict counts as. Columns estimate (shares in [0, 1], correlations in
        [-1, 1], relative scores of 100), low, high, n, missing, and official: whether the benchmark itself reports it.
        Official rows come first. `attrs` has benchmark, source, note, judge and method.

    Raises:
        ValueError: the benchmark is not known, or run and items lack a column that it needs.

    >>> import pandas as pd
    >>> from vjudge.benchmarks import benchmark
    >>> run = pd.DataFrame({"id": list("pqrs"), "verdict": ["a", "b", "a", None], "preference": ["a", "a", "a", "a"]})
    >>> run["category"], run["group"] = ["general", "general", "reasoning", "hallucination"], list("pqrs")
    >>> table = benchmark(run, name="vl-rewardbench")["estimate"].xs("overall").xs("accuracy")
    >>> table.round(3).to_dict()
    {'left out': 0.667, 'wrong': 0.5, 'random': 0.625}
    """
    spec = _spec(run, items, name)
    judged = metrics.average_samples(run) if "sample" in run else run
    frame = _joined(judged, items)
    measure = spec.measure
    scored = "scores" in frame and any(not is_missing(pair) for pair in frame["scores"])
    if (measure == "relative score" and not scored and "score" in frame and _has_truth(frame)) or (
        measure == "battles" and "verdict" not in frame
    ):
        spec = _correlated(spec)
    options = {"confidence": confidence, "n_resamples": n_resamples, "seed": seed}
    columns, make = MEASURES[spec.measure]
    if lacking := [column for column in columns if column not in frame]:
        remedy = _REMEDIES.get(lacking[0], "give benchmark the collection as items=")
        present = ", ".join(map(str, frame.columns))
        raise ValueError(
            f"{spec.title} needs {', '.join(lacking)}, which the run does not have (its columns: {present}); {remedy}"
        )
    parts = _parts(frame, spec)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what is undefined is NaN in the table, and counted below
        table = make(frame, spec, parts, options)
    if n_bare := int(table["low"].isna().sum()) * bool(n_resamples):
        warnings.warn(f"{n_bare} of {len(table)} rows have no interval: too few rows or groups there", stacklevel=2)
    reported = {"overall": "overall" in spec.parts, "macro": "macro" in spec.parts}
    official = [
        reported.get(part, "category" in spec.parts) and statistic in spec.statistics and unread == spec.unread
        for part, statistic, unread in table.index
    ]
    method = table.attrs.get("method", "")
    table = table.assign(official=official)
    table = pd.concat([table[table["official"]], table[~table["official"]]])
    table.attrs = {"benchmark": spec.title, "source": spec.source, "note": spec.note, "unread": spec.unread}
    judges = run["judge"].dropna().unique() if "judge" in run else []
    return _with(table, judge=", ".join(map(str, judges)) or None, method=method)


def _with(table: pd.DataFrame, **attrs: Any) -> pd.DataFrame:
    table.attrs |= attrs
    return table


def _slug(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.rpartition("/")[2].lower()).strip("-")


def _spec(run: pd.DataFrame, items: Any, name: str | None) -> Benchmark:
    """The benchmark that a run is of.

    Raises:
        ValueError: nothing says it, or it is none that is known.
    """
    origins = [data.origin(items), run.attrs.get("collection") or {}]
    title = name or next((origin["benchmark"] for origin in origins if origin.get("benchmark")), None)
    names = ", ".join(BENCHMARKS)
    if not title:
        sources = [str(origin["source"]) for origin in origins if origin.get("source")]
        what = f" ({sources[0]} is none)" if sources else ""
        raise ValueError(f"nothing says which benchmark the run is of{what}: give name=, one of {names}")
    slug = _slug(title)
    for key, spec in BENCHMARKS.items():
        if slug in (key, _slug(spec.title), *spec.names):
            return spec
    raise ValueError(f"there is no benchmark {title!r}; use one of {names}")


def _correlated(spec: Benchmark) -> Benchmark:
    """The same set as Prometheus-Vision reports it: its grades against the true scores."""
    return Benchmark(
        spec.title,
        "correlation",
        ("pearson", "kendall", "spearman"),
        "left out",
        _PROMETHEUS,
        f"not the benchmark's own protocol: the correlation with the collection's true scores; {_ASKED_AGAIN}",
        parts=("overall",),
    )


def _joined(run: pd.DataFrame, items: Any) -> pd.DataFrame:
    """The run with what the collection knows of its rows.

    Raises:
        ValueError: the run has ids that the collection has not.
    """
    frame = run.reset_index(drop=True)
    if items is None:
        return frame
    rows = {str(row["id"]): row for row in data.rows_of(items)}
    ids = [str(id) for id in frame["id"]]
    if strange := [id for id in ids if id not in rows]:
        raise ValueError(f"{len(strange)} rows of the run are none of the collection's, such as id {strange[0]!r}")
    for column in (*JOINED, "gold", "human_scores"):
        if column not in frame and any(column in row for row in rows.values()):
            frame[column] = pd.Series([rows[id].get(column) for id in ids], dtype=object)
    if "candidate" in frame and "true_rank" not in frame:
        places = zip(ids, frame["candidate"], strict=True)
        frame["true_rank"] = [(rows[id].get("ranks") or {place: NAN})[place] for id, place in places]
    return frame


def _parts(frame: pd.DataFrame, spec: Benchmark) -> dict[str, np.ndarray]:
    """The rows of each category; a missing category, or a missing column of them, is said."""
    if spec.measure == "battles":  # its parts are the policies
        return {}
    if "category" not in frame or frame["category"].isna().all():
        if "category" in spec.parts or "macro" in spec.parts:
            warnings.warn(
                f"{spec.title} is reported by category, and the run has none: give benchmark the collection as items=",
                stacklevel=3,
            )
        return {}
    parts = {str(name): (frame["category"] == name).to_numpy() for name in sorted(frame["category"].dropna().unique())}
    if lacking := sorted(set(spec.categories) - set(parts)):
        warnings.warn(f"the run has no row of {', '.join(lacking)}: {spec.title} has them too", stacklevel=3)
    if without := int(frame["category"].isna().sum()):
        warnings.warn(f"{without} of {len(frame)} rows have no category: they count overall alone", stacklevel=3)
    return parts


def _groups(frame: pd.DataFrame) -> list[str]:
    """The unit of resampling of each row: its group, else its id."""
    groups = frame["group"] if "group" in frame else frame["id"]
    return [str(id if is_missing(group) else group) for id, group in zip(frame["id"], groups, strict=True)]


def _has_truth(frame: pd.DataFrame) -> bool:
    return not _truth(frame).isna().all()


def _truth(frame: pd.DataFrame) -> pd.Series:
    """Gold where there is one, else the mean of the people, as `data.truth`."""
    columns = [column for column in ("id", "gold", "human_scores") if column in frame]
    try:
        return data.truth(frame[columns].to_dict("records")).reset_index(drop=True)
    except CollectionError:
        return pd.Series(NAN, index=range(len(frame)), dtype=float)


def _cases(
    cases: Mapping[tuple[str, str], tuple[np.ndarray, np.ndarray]],
    parts: Mapping[str, np.ndarray],
    frame: pd.DataFrame,
    options: Mapping[str, Any],
    unit: str,
) -> pd.DataFrame:
    """Shares overall, as the mean over categories, and by category; `cases` has (statistic, unread) -> gain, weight."""
    rows: list[tuple[Any, Any, Any]] = []
    for (statistic, unread), (gain, weight) in cases.items():
        rows.append((("overall", statistic, unread), gain, weight))
        if parts:
            inside = np.stack(list(parts.values()))
            rows.append((("macro", statistic, unread), inside * gain, inside * weight))
        rows += [((part, statistic, unread), rows_of * gain, rows_of * weight) for part, rows_of in parts.items()]
    index = ["part", "statistic", "unread"]
    confidence = options["confidence"]
    return shares(rows, groups=_groups(frame), confidence=confidence, unit=unit, index=index)


def _accuracy(
    frame: pd.DataFrame, spec: Benchmark, parts: Mapping[str, np.ndarray], options: Mapping[str, Any]
) -> pd.DataFrame:
    """Accuracy on pairs; without ties, a judge's tie is no choice and counts as unread."""
    cases: dict[tuple[str, str], tuple[np.ndarray, np.ndarray]] = {}
    preference = read_verdicts(frame["preference"])
    decided = preference.used & (preference.choice != "tie")
    columns = {"": "verdict"}
    if spec.as_published and "verdict_ab" in frame and "verdict_ba" in frame:
        columns = {"": "verdict_ab", " in both orders": "verdict"}
    for suffix, column in columns.items():
        judge = read_verdicts(frame[column])
        right = (judge.choice == preference.choice).astype(float)
        if "accuracy" in spec.statistics:
            decisive = judge.used & (judge.choice != "tie")
            guess = np.where(decisive, right, 0.5)
            cases[f"accuracy{suffix}", "left out"] = (right, decided & decisive)
            cases[f"accuracy{suffix}", "wrong"] = (right, decided)
            cases[f"accuracy{suffix}", "random"] = (guess, decided)
            continue
        for ties, counted, chance in (("with", preference.used, 1 / 3), ("without", decided, 1 / 2)):
            guess = np.where(judge.used, right, chance)
            cases[f"accuracy {ties} ties{suffix}", "left out"] = (right, counted & judge.used)
            cases[f"accuracy {ties} ties{suffix}", "wrong"] = (right, counted)
            cases[f"accuracy {ties} ties{suffix}", "random"] = (guess, counted)
    cases = {name: (gain, weight.astype(float)) for name, (gain, weight) in cases.items()}
    return _cases(cases, parts, frame, options, "pairs")


def _correlation(
    frame: pd.DataFrame, spec: Benchmark, parts: Mapping[str, np.ndarray], options: Mapping[str, Any]
) -> pd.DataFrame:
    """Correlation with the true scores: over all rows, within each category, and the mean of these."""
    true, groups = _truth(frame), pd.Series(_groups(frame))
    if true.isna().all():
        raise ValueError(f"{spec.title} needs true scores, gold or human_scores, and the run has none: give items=")
    score = pd.Series(frame["score"].to_numpy(dtype=float))
    tables = {"overall": metrics.correlate(score, true, groups=groups, **options)}
    if len(parts) > 1:
        categories = frame["category"].astype(object)
        named = categories.notna().to_numpy()
        tables["macro"] = metrics.average_correlations(
            score[named], true[named], within=list(categories[named]), groups=None, averages=["mean"], **options
        ).xs("mean")
        for part, rows in parts.items():
            tables[part] = metrics.correlate(score[rows], true[rows], groups=list(groups[rows]), **options)
    table = pd.concat(tables, names=["part", "statistic"])
    table = pd.concat({"left out": table}, names=["unread"]).reorder_levels(["part", "statistic", "unread"])
    return _with(table, method=tables["overall"].attrs["method"])


def _relative(
    frame: pd.DataFrame, spec: Benchmark, parts: Mapping[str, np.ndarray], options: Mapping[str, Any]
) -> pd.DataFrame:
    """100 x mean of the candidate's scores / mean of the reference's, which stands first in a verdict's `scores`."""
    both = np.array([pair if pair is not None and len(pair) == 2 else (NAN, NAN) for pair in frame["scores"]], float)
    readable = ~np.isnan(both).any(axis=1)
    filled = np.where(readable[:, None], both, -1.0)
    names: list[tuple[str, str, str]] = []
    masks: list[np.ndarray] = []
    for part, rows in {"overall": np.ones(len(frame), dtype=bool), **parts}.items():
        for unread, counted in (("(-1, -1)", rows), ("left out", rows & readable)):
            names.append((part, "relative score", unread))
            masks.append(counted)
    counted = np.stack(masks)
    reference, candidate = counted * filled[:, 0], counted * filled[:, 1]

    def statistic(weights: np.ndarray) -> np.ndarray:
        below = reference @ weights
        return np.asarray(100 * (candidate @ weights) / np.where(below > 0, below, np.nan))

    everything = np.ones(len(frame), dtype=bool)
    return tabulate(
        statistic,
        names,
        design_of(np.arange(len(frame)), _groups(frame), everything),
        n=counted.sum(axis=1).tolist(),
        missing=[
            int((~readable).sum()) if part == "overall" else int((parts[part] & ~readable).sum()) for part, *_ in names
        ],
        unit="reviews",
        index=["part", "statistic", "unread"],
        **options,
    )


def _order(
    frame: pd.DataFrame, spec: Benchmark, parts: Mapping[str, np.ndarray], options: Mapping[str, Any]
) -> pd.DataFrame:
    """Levenshtein distance of the judge's order of the responses from people's, over their number.

    Where equal values leave an order open, it is the mean over the orders that they allow: all, or `MANY_ORDERS` drawn.
    """
    lines, distances, rng = [], [], np.random.default_rng(options["seed"])
    for _, rows in frame.groupby("id", sort=False):
        lines.append(rows.index[0])
        true = rows.sort_values("true_rank", kind="stable")["candidate"].tolist()
        if rows["rank"].isna().any() or rows["true_rank"].isna().any():
            distances.append(NAN)
            continue
        ties = [list(part["candidate"]) for _, part in rows.groupby("rank")]
        apart = [_levenshtein(order, true) for order in _orders(ties, rng)]
        distances.append(float(np.mean(apart)) / len(true))
    questions, distance = frame.loc[lines].reset_index(drop=True), np.array(distances)
    complete = ~np.isnan(distance)
    parts = {part: rows[lines] for part, rows in parts.items()}
    cases = {
        ("levenshtein", "left out"): (np.where(complete, distance, 0.0), complete.astype(float)),
        ("levenshtein", "wrong"): (np.where(complete, distance, 1.0), np.ones(len(complete))),
    }
    return _cases(cases, parts, questions, options, "rankings")


def _orders(ties: list[list[Any]], rng: np.random.Generator) -> Iterator[list[Any]]:
    """The orders that ties leave open."""
    if math.prod(math.factorial(len(part)) for part in ties) <= MANY_ORDERS:
        for order in itertools.product(*(itertools.permutations(part) for part in ties)):
            yield list(itertools.chain.from_iterable(order))
        return
    for _ in range(MANY_ORDERS):
        yield [part[place] for part in ties for place in rng.permutation(len(part))]


def _levenshtein(one: list[Any], other: list[Any]) -> int:
    """How many insertions, deletions and replacements make one list the other."""
    row = list(range(len(other) + 1))
    for i, first in enumerate(one, start=1):
        row, above = [i], row
        for j, second in enumerate(other, start=1):
            row.append(min(above[j] + 1, row[-1] + 1, above[j - 1] + (first != second)))
    return row[-1]


def _battles(
    frame: pd.DataFrame, spec: Benchmark, parts: Mapping[str, np.ndarray], options: Mapping[str, Any]
) -> pd.DataFrame:
    """Elo of the policies; both orders of a battle as the judge's one verdict, more wins win, else a tie."""
    table = metrics.bradley_terry(
        list(frame["policy_a"]), list(frame["policy_b"]), frame["verdict"], groups=_groups(frame), **options
    )
    index = pd.MultiIndex.from_tuples(
        [(str(policy), "elo", "left out") for policy in table.index],
        names=["part", "statistic", "unread"],
    )
    columns = {"elo": "estimate", "elo_low": "low", "elo_high": "high", "n": "n"}
    elo = table[list(columns)].rename(columns=columns).set_axis(index).assign(missing=int(table.attrs["missing"]))
    return _with(elo, method=table.attrs["method"])


MEASURES: dict[str, tuple[tuple[str, ...], Callable[..., pd.DataFrame]]] = {
    "accuracy": (("verdict", "preference"), _accuracy),
    "correlation": (("score",), _correlation),
    "relative score": (("scores",), _relative),
    "order": (("candidate", "rank", "true_rank"), _order),
    "battles": (("verdict", "policy_a", "policy_b"), _battles),
}
"""By name: the columns that a run must have, and what makes its table."""
_REMEDIES = {
    "verdict": "use Judge.compare, or rank_by_score for a judge that scores one response",
    "score": "use Judge.grade",
    "scores": "grade the responses by the benchmark's own wording, template='llava-bench-wild' or 'llava-bench-coco'",
    "rank": "use Judge.rank",
    "candidate": "use Judge.rank",
}


# -- an absolute judge on pairs


def rank_by_score(
    judge: Any,
    pairs: Any,
    *,
    rubric: Rubric | None = None,
    within: float = 0.0,
    expected: bool = False,
    out: str | Path | None = None,
    **options: Any,
) -> pd.DataFrame:
    """Grade both responses of every pair and say which scores higher.

    Args:
        judge: anything with `Judge.grade`. It never sees the two responses together, so there is no order to turn.
        pairs: rows with `response_a` and `response_b`.
        rubric: for pairs without one, where the judge's wording shows a rubric; Prometheus was given one for each set.
        within: scores no further apart than this are a tie.
        expected: whether to compare expected scores, where there are some, in place of the written ones; ties then all
            but vanish, and with them what the judge said.
        out, options: of `Judge.grade`.

    Returns:
        One row a pair: id, judge, verdict ("a", "b", "tie", or None without two scores), score_a, score_b, failure, and
        preference, category and group where the pairs have them. `Judge.compare` gives the same columns, so that
        `metrics` and `benchmark` read either. `attrs["failures"]` counts failures by reason.

    Raises:
        CollectionError: two rows of one id; bad rows, as `Judge.grade`.

    Source: Prometheus (arXiv 2310.08491), section on ranking evaluation.
    """
    rows = data.rows_of(pairs)
    _check_ids(rows)
    graded = judge.grade(list(_singles(rows, rubric)), out=out, **options)
    verdicts = {row["id"]: row for row in graded.to_dict("records")}
    lines = []
    for row in rows:
        sides = {side: verdicts[f"{row['id']}/{side}"] for side in "ab"}
        a, b = (_value(side, expected) for side in sides.values())
        failures = [f"{side}: {line['failure']}" for side, line in sides.items() if not is_missing(line["failure"])]
        choice = None if math.isnan(a) or math.isnan(b) else "tie" if abs(a - b) <= within else "a" if a > b else "b"
        line = {"id": str(row["id"]), "judge": judge.name, "verdict": choice, "score_a": a, "score_b": b}
        line |= {"failure": "; ".join(failures) or None}
        line |= {name: row[name] for name in ("preference", "category") if name in row}
        lines.append(line | {"group": unit_of(row)})
    frame = pd.DataFrame(lines)
    for name in ("verdict", "failure"):
        frame[name] = pd.Series([line[name] for line in lines], dtype=object)
    frame.attrs = {"failures": dict(graded.attrs.get("failures", {})), "within": within}
    frame.attrs["collection"] = data.origin(pairs)
    return frame


def _singles(rows: Any, rubric: Rubric | None) -> Iterator[dict[str, Any]]:
    """Both responses of every pair as rows to grade, named "id/a" and "id/b"."""
    names = ("images", "instruction", "reference_answer", "criteria", "descriptions")
    for row in rows:
        shared = {name: row.get(name) for name in names}
        if rubric is not None and not len(shared["descriptions"] or ()):
            shared |= {"criteria": rubric.criteria, "descriptions": list(rubric.descriptions), "lowest": rubric.lowest}
        elif "lowest" in row:
            shared["lowest"] = row["lowest"]
        shared["group"] = unit_of(row)
        for side in "ab":
            yield {"id": f"{row['id']}/{side}", **shared, "response": row[f"response_{side}"]}


def _value(verdict: Mapping[str, Any], expected: bool) -> float:
    mean = verdict.get("expected_score", NAN)
    return float(mean) if expected and not is_missing(mean) else float(verdict["score"])


def _check_ids(rows: Any) -> None:
    first: dict[str, int] = {}
    problems = [
        Problem(index, id, "id", f"is the same as row {first[id]}'s", "give every pair its own id")
        for index, id in enumerate(str(row["id"]) for row in rows)
        if first.setdefault(id, index) != index
    ]
    if problems:
        raise CollectionError(f"{len(problems)} of {len(rows)} pairs share an id:", problems)
