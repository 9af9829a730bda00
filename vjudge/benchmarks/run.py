"""Run a benchmark as it was published, in one call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd

from vjudge.benchmarks.asking import asked, family_name
from vjudge.benchmarks.measures import TIES
from vjudge.benchmarks.numbers import BenchmarkResult, benchmark_result, numbers
from vjudge.benchmarks.pairs import pairs_of_items
from vjudge.benchmarks.protocols import PROTOCOLS, Deviation, Kind, key_of, subset_of
from vjudge.benchmarks.rows import published_rows, rows_by_category
from vjudge.judging.judge import Judge, JudgeLike
from vjudge.judging.panel import Panel
from vjudge.prompts import Template
from vjudge.results import analysis

# benchmarks with rows that have no image: a judgement without one is no deviation
MAY_LACK_IMAGES = ("mt-bench", "feedback-bench", "preference-bench", "mmrb2")


@dataclass(frozen=True)
class ProtocolRun:
    """A judge's run on a benchmark by a protocol."""

    protocol: str  # a key of `PROTOCOLS`
    run: pd.DataFrame
    n_rows: int  # of the benchmark that the judge was asked about
    deviations: list[Deviation]


@analysis
def run_benchmark(
    judge: JudgeLike,
    name: str,
    *,
    data: Any = None,
    out: str | Path | None = None,
    protocol: str | None = None,
    progress: bool = True,
    **deviations: Any,
) -> BenchmarkResult:
    """Run a judge on a benchmark with its own prompt, number of draws, order, decoding and reader.

    Args:
        judge: from `load_judge`; or a panel, whose members' verdicts by the protocol are combined.
        name: of the benchmark, a key of `BENCHMARKS` such as "vl-rewardbench".
        data: rows, or a file of them; None loads the set from the hub. Rows without criteria get
            the rubric `GENERAL` where the prompt template shows criteria, and pairs are made of
            single responses where the benchmark compares: both are deviations. Whether given rows
            are the published ones is not checked.
        out: a folder that records every verdict; the same call continues there.
        protocol: a key of `PROTOCOLS`; None takes how the authors of this judge ran it where that
            is known, else the benchmark's own.
        progress: whether to show a bar.
        deviations: options of the call that differ from the protocol, such as `samples=1`,
            `orders="both"` or `template="chat-relative"`.

    Returns:
        The benchmark's numbers as `benchmark` gives them. `.official` is True only where a
        published protocol was followed on all of the benchmark's rows; `.deviations` lists what
        differed; `.facts` has the rest.

    Raises:
        ValueError: an unknown benchmark or protocol, or no rows.
        TypeError: an unknown option, or a judge without prompt templates.
        CollectionError: bad rows.

    >>> import vjudge as vj
    >>> rows = list(vj.load_collection("scenes", split="test", limit=10))
    >>> judge = vj.load_judge("tiny", device="cpu")
    >>> result = vj.run_benchmark(judge, "feedback-bench", data=rows, progress=False)
    >>> result.table.loc["overall", "n"].tolist(), result.official
    ([10, 10, 10], False)
    >>> result.deviations[-1]
    Deviation(kind='subset', text="10 of the benchmark's 1,000 rows")

    Source: each protocol's own, `PROTOCOLS[result.facts["protocol"]].source`.
    """
    name = key_of(name)
    run_by_protocol = _run_of_panel if isinstance(judge, Panel) else _run
    result = run_by_protocol(
        judge, name, out=out, data=data, protocol=protocol, progress=progress, **deviations
    )
    run = result.run
    spec, table, _ = numbers(run, name)
    failures = run["failure"].value_counts() if "failure" in run else {}
    facts: Mapping[str, Any] = {
        "protocol": result.protocol,
        "open": PROTOCOLS[result.protocol].open,
        "items": result.n_rows,
        "failures": dict(failures),
        "unread_draws": _total(run, "unread_draws"),
    }
    differences = [*result.deviations, *subset_of(name, result.n_rows)]
    return benchmark_result(spec, {judge.name: table}, differences, facts)


def _run_of_panel(panel: Any, name: str, *, out: str | Path | None, **options: Any) -> ProtocolRun:
    """Run each member of a panel by the protocol, and combine their verdicts.

    Args:
        panel: a `Panel`.
        name, out, options: as in `run_benchmark`; each member records in its own folder of `out`.

    Returns:
        The combined run. Each deviation of a member stands with the member's name.
    """
    text = f"the verdicts of {len(panel.judges)} judges are combined"
    deviations = [Deviation("panel", text)]
    runs = {}
    for member, folder in panel.folders(out):
        result = _run(member, name, out=folder, **options)
        run = result.run.drop(columns=["semantics", "quality"], errors="ignore")
        if "verdict" in run:  # a panel has one kind of tie
            run["verdict"] = run["verdict"].replace(dict.fromkeys(TIES, "tie"))
        runs[member.name] = run
        deviations += [
            Deviation(kind, f"{member.name}: {text}") for kind, text in result.deviations
        ]
    # the members share the rows; the protocol named is the last member's
    return replace(result, run=panel.combined(runs), deviations=deviations)


def _run(
    judge: JudgeLike,
    name: str,
    *,
    data: Any,
    out: str | Path | None,
    protocol: str | None,
    **options: Any,
) -> ProtocolRun:
    """Run one judge on a benchmark by a protocol.

    Arguments are as in `run_benchmark`; `options` are its `deviations` and `progress`.

    Raises:
        TypeError: the judge has no prompt templates.
    """
    # 1) the protocol
    if not isinstance(judge, Judge):
        remedy = "give one whose wording can be chosen: a Judge, or a panel of them"
        raise TypeError(f"judge is a {type(judge).__name__}: {remedy}")
    key, other_protocol = _protocol_of(judge, name, protocol)
    rule = PROTOCOLS[key]
    deviations: list[Deviation] = []

    # 2) the rows
    rows = published_rows(name, rule.collection, data)
    if rule.call == "compare" and len(rows) and "response_a" not in rows[0]:
        n_single = len(rows)
        rows = pairs_of_items(rows, limit=n_single)
        text = f"{len(rows)} pairs are made of {n_single} single responses"
        deviations.append(Deviation("rows", text))

    # 3) the run, by category where categories have their own prompt templates
    runs = []
    for category, rows_of_category in rows_by_category(rule, rows).items():
        folder = Path(out) / category if category and out is not None else out
        rule_of_category = replace(rule, template=rule.wordings.get(category, rule.template))
        run, template, of_category = asked(
            judge, rule_of_category, rows_of_category, name, out=folder, **options
        )
        runs.append(run)
        deviations += [deviation for deviation in of_category if deviation not in deviations]
    run = pd.concat(runs, ignore_index=True) if len(runs) > 1 else runs[0]

    # `template` is the last category's: all of a protocol's templates show images, or none does
    deviations += [*other_protocol, *_counted_deviations(name, run, template)]
    return ProtocolRun(key, run, len(rows), deviations)


def _protocol_of(judge: Judge, name: str, protocol: str | None) -> tuple[str, list[Deviation]]:
    """Choose the protocol: the given one, else that of the judge's authors, else the benchmark's.

    Returns:
        Its name, and the deviations of a protocol of another benchmark or another judge.
    """
    key = protocol or f"{name} by {family_name(judge)}"
    if protocol is None and key not in PROTOCOLS:
        key = name
    if key not in PROTOCOLS:
        raise ValueError(f"there is no protocol {key!r}: use one of {', '.join(PROTOCOLS)}")
    of_benchmark, _, of_family = key.partition(" by ")
    texts = []
    if of_benchmark != name:
        texts.append(f"the protocol is that of {of_benchmark!r}")
    if of_family not in ("", family_name(judge)):
        texts.append(f"the protocol is that of the judge {of_family!r}")
    return key, [Deviation("protocol", text) for text in texts]


def _counted_deviations(name: str, run: pd.DataFrame, template: Template) -> list[Deviation]:
    """List the deviations that concern single verdicts, each with the number of these verdicts.

    Args:
        name: of the benchmark.
        run: the judge's.
        template: the prompt template that was used.
    """
    closed = "answers without a verdict were closed, which is not published"
    empty = "answers are empty, or a server failed: they have no verdict"
    counts: list[tuple[Kind, str, int]] = [
        ("closed", closed, _total(run, "closed")),
        ("images", "answers were judged without an image", _n_blind(name, run, template)),
        ("unanswered", empty, _total(run, "empty_draws")),
    ]
    return [Deviation(kind, f"{count} {text}") for kind, text, count in counts if count]


def _n_blind(name: str, run: pd.DataFrame, template: Template) -> int:
    """Count the rows that were judged without an image but should have been judged with one."""
    if name in MAY_LACK_IMAGES or not template.sees_images:
        return 0
    sees_image = run["sees_image"]
    if name == "mm-judgebias":  # one variant of a pair may be the lack of the image
        sees_image = sees_image.groupby(run["group"]).any()
    return int((~sees_image).sum())


def _total(run: pd.DataFrame, column: str) -> int:
    """Sum a column of counts or booleans; 0 where the run lacks it."""
    return int(run[column].sum()) if column in run else 0
