"""Run a benchmark as it was published, in one call; and audit a published number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from vjudge.benchmarks.numbers import (
    BenchmarkResult,
    Deviation,
    Kind,
    benchmark_result,
    key_of,
    numbers,
    subset_of,
)
from vjudge.benchmarks.pairs import pairs_of_items
from vjudge.benchmarks.protocols import PROTOCOLS, Protocol, Reader
from vjudge.data import CollectionError, canonical, load_collection, rows_of
from vjudge.judging.asking import Options
from vjudge.judging.comparing import SWAPPED, parts_of, sign
from vjudge.judging.judge import Judge, JudgeLike
from vjudge.judging.panel import Panel
from vjudge.prompts import Template, families
from vjudge.records import Rubric, from_csv, is_missing
from vjudge.results import analysis

WITHOUT_IMAGES = ("mt-bench", "feedback-bench", "preference-bench")
IMMATERIAL = ("batch_size", "seed")  # options that no protocol decides
DRAWING = ("samples", "temperature", "top_p", "repetition_penalty")
Row = Mapping[str, Any]


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
        data: rows, or a file of them; None loads the set from the hub. Where the judge's wording
            shows criteria and rows have none, they get `GENERAL`; where the benchmark is of pairs
            and rows are single responses, pairs are made of them: both are deviations.
        out: a folder that records every verdict; the same call continues there.
        protocol: a key of `PROTOCOLS`; None takes how the authors of this judge ran it where that
            is known, else the benchmark's own.
        progress: whether to show a bar.
        deviations: options of the call that differ from the protocol, such as `samples=1`,
            `orders="both"` or `template="chat-relative"`.

    Returns:
        The benchmark's numbers as `benchmark` gives them. `.official` is True only where a
        published protocol was followed on all of the benchmark's rows; `.deviations` lists what was
        not; `.facts` has the rest.

    ValueError: an unknown benchmark or protocol; TypeError: an unknown option; CollectionError: bad
    rows. That given rows are the published ones is not checked.

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
    # 1) the run by the protocol; of a panel each member's, combined
    name = key_of(name)
    options = {"data": data, "protocol": protocol, "progress": progress, **deviations}
    changes: list[Deviation] = []
    if isinstance(judge, Panel):
        changes.append(
            Deviation("panel", f"the verdicts of {len(judge.judges)} judges are combined")
        )
        runs = {}
        for member, home in judge.folders(out):
            key, runs[member.name], n_rows, its = _run(member, name, out=home, **options)
            changes += [Deviation(kind, f"{member.name}: {text}") for kind, text in its]
        run = judge.combined(runs)
    else:
        key, run, n_rows, changes = _run(judge, name, out=out, **options)
    rule = PROTOCOLS[key]

    # 2) its number
    spec, table, _ = numbers(run, name, {"n_resamples": 2_000, "seed": 0})
    failures = run["failure"].value_counts() if "failure" in run else {}
    facts = {
        "protocol": key,
        "open": rule.open,
        "items": n_rows,
        "failures": dict(failures),
        "unread_draws": _total(run, "unread_draws"),
    }
    changes += subset_of(name, n_rows)
    return benchmark_result(spec, {judge.name: table}, changes, facts)


def _run(
    judge: JudgeLike,
    name: str,
    *,
    data: Any,
    out: str | Path | None,
    protocol: str | None,
    progress: bool,
    **deviations: Any,
) -> tuple[str, pd.DataFrame, int, list[Deviation]]:
    """The protocol's name, a judge's run by it, its number of rows, and what was done otherwise."""
    # 1) how the benchmark is run, and in which wording
    if not isinstance(judge, Judge):
        remedy = "give one whose wording can be chosen: a Judge, or a panel of them"
        raise TypeError(f"judge is a {type(judge).__name__}: {remedy}")
    key = protocol or f"{name} by {_family(judge)}"
    if protocol is None and key not in PROTOCOLS:
        key = name
    if key not in PROTOCOLS:
        raise ValueError(f"there is no protocol {key!r}: use one of {', '.join(PROTOCOLS)}")
    rule = PROTOCOLS[key]
    asked, wording, changes = _asked_by(judge, rule, deviations.pop("template", None))
    of_set, _, of_judge = key.partition(" by ")
    if of_set != name:
        changes.append(Deviation("protocol", f"the protocol is that of {of_set!r}"))
    if of_judge not in ("", _family(judge)):
        changes.append(Deviation("protocol", f"the protocol is that of the judge {of_judge!r}"))
    singly = rule.call != "grade" and not wording.compares  # two responses by their scores
    options = _options(judge, rule, deviations, changes, singly=singly)

    # 2) the run; the benchmark's own reader reads answers to its own wording
    published = published_rows(name, rule.collection, data)
    if rule.call == "compare" and len(published) and "response_a" not in published[0]:
        n_single = len(published)
        published = pairs_of_items(published, limit=n_single)
        text = f"{len(published)} pairs are made of {n_single} single responses"
        changes.append(Deviation("rows", text))
    rows, n_filled = with_rubric(published, wording)
    if n_filled:
        text = f"{n_filled} of {len(rows)} rows have no criteria: they get general ones"
        changes.append(Deviation("rows", text))
    options |= {"out": out, "progress": progress}
    if singly and rule.call == "compare" and not judge.gives_values:
        run = _by_scores(asked, rows, **options)
    else:
        run = getattr(asked, rule.call)(rows, **options)
    if rule.reader and wording.name == rule.template and options.get("mode") != "score":
        run = reread(run, rule.reader)

    # 3) what of its verdicts is not as published
    meant = name in WITHOUT_IMAGES or not wording.sees_images  # the text alone is judged
    closed = "answers without a verdict were closed, which is not published"
    empty = "answers are empty, or a server failed: they have no verdict"
    n_blind = 0 if meant else int((~run["sees_image"]).sum())
    counts: list[tuple[Kind, str, int]] = [
        ("closed", closed, _total(run, "closed")),
        ("images", "answers were judged without an image", n_blind),
        ("unanswered", empty, _total(run, "empty_draws")),
    ]
    changes += [Deviation(kind, f"{count} {text}") for kind, text, count in counts if count]
    return key, run, len(rows), changes


def _total(run: pd.DataFrame, column: str) -> int:
    """The sum of a column of counts or of truth values, 0 where the run has none."""
    return int(run[column].sum()) if column in run else 0


def _family(judge: Any) -> str:
    return getattr(judge.family, "name", "")


def _asked_by(
    judge: Judge, rule: Protocol, chosen: str | Template | None
) -> tuple[Judge, Template, list[Deviation]]:
    """The judge with the protocol's wording, that wording, and where it is asked otherwise."""
    never_official = bool(rule.unofficial) and _family(judge) not in rule.own

    # a value head and a judge of whose kind no wording is published keep their own
    own = judge.template
    if rule.call != "grade" and judge.pairs is not None:
        own = judge.pairs
    template = chosen or rule.template
    if template is None and not judge.gives_values:
        texts = []
        if never_official:
            texts.append(f"asked in the judge's wording {own.name!r}: {rule.unofficial}")
        if rule.call != "grade" and judge.pairs is None:
            texts.append("each response is graded by itself: the judge has no wording for two")
        return judge, own, [Deviation("wording", text) for text in texts]
    changes = [Deviation("wording", rule.unofficial)] if never_official else []
    if template is None or judge.gives_values:
        text = "a value head is asked in no wording: each response gets a number"
        return judge, own, [*changes, Deviation("wording", text)]

    wording = families.wording(template)
    if wording.name != rule.template:
        published = rule.template or "none that vjudge has"
        text = f"the wording is {wording.name!r}, published is {published!r}"
        changes.append(Deviation("wording", text))
    elif wording.fingerprint() != families.wording(rule.template).fingerprint():
        text = f"the wording is another than the published {wording.name!r}"
        changes.append(Deviation("wording", text))
    if wording.sees_images and not judge.template.sees_images:
        changes.append(Deviation("images", "the judge sees no images"))
    return judge.reworded(wording), wording, changes


def _options(
    judge: Judge,
    rule: Protocol,
    deviations: dict[str, Any],
    changes: list[Deviation],
    *,
    singly: bool,
) -> dict[str, Any]:
    """The options of the call; adds to `changes` which of them are not the published ones."""
    options = dict(rule.options)
    if _family(judge) in rule.own:
        options = dict(judge.family.published) if judge.family else {}
    if judge.gives_values:
        options = {}
    if singly:
        options.pop("orders", None)
        if rule.call == "rank":
            options["by"] = "scores"
    published = {**asdict(Options()), "unread": "missing", **options}
    for option, value in deviations.items():
        was = published.get(option)
        if value != was and option not in IMMATERIAL:
            text = f"{option} is {value!r}, published is {was!r}"
            changes.append(Deviation("option", text))
    if deviations.get("mode") == "score":  # it draws nothing
        options = {name: value for name, value in options.items() if name not in DRAWING}
    return options | deviations


def reread(run: pd.DataFrame, reader: Reader) -> pd.DataFrame:
    """A comparison's verdicts by a benchmark's own reader: the choice of more than half of a pair's
    draws, None where there is none.

    `run` needs `draws` or the columns `raw_ab` and `raw_ba`, and where the reader looks at it
    `preference`. `unread_draws` and `empty_draws` count, in each row, answers that the reader could
    not read and those that are not there.

    Source: each reader's benchmark, see `PROTOCOLS`.

    >>> import pandas as pd
    >>> from vjudge.benchmarks import reread
    >>> run = pd.DataFrame({"id": ["p"], "raw_ab": ["<1>"], "raw_ba": ["<2>"]})
    >>> reread(run, lambda text, preferred: "a" if "1" in text else "b")["verdict"].tolist()
    ['a']
    """
    verdicts = []
    unread = []
    empty = []
    for row in run.to_dict("records"):
        draws = from_csv(row.get("draws"))
        if draws is None:
            orders = [order for order in ("ab", "ba") if f"raw_{order}" in row]
            draws = [{"order": order, "raw": row[f"raw_{order}"]} for order in orders]
        votes = []
        n_empty = 0
        for draw in draws:
            names: dict[Any, Any] = SWAPPED if draw["order"] == "ba" else {}
            preferred = row.get("preference")
            choice = None
            if draw["raw"]:  # none of a server that failed
                choice = reader(draw["raw"], names.get(preferred, preferred))
            else:
                n_empty += 1
            votes.append(names.get(choice, choice))
        unread.append(votes.count(None))
        empty.append(n_empty)
        leading = max(("a", "b", "tie"), key=votes.count)
        verdicts.append(leading if votes.count(leading) > len(votes) / 2 else None)
    table = run.assign(unread_draws=unread, empty_draws=empty)
    return table.assign(verdict=pd.Series(verdicts, index=run.index, dtype=object))


def _by_scores(judge: Any, pairs: Sequence[Row], **options: Any) -> pd.DataFrame:
    """Pairs by the scores of either response by itself, whose difference is the verdict.

    Source: Prometheus (arXiv 2310.08491), section on ranking evaluation.
    """
    rows = [{**pair, "responses": [pair["response_a"], pair["response_b"]]} for pair in pairs]
    graded = judge.grade(list(parts_of(rows, "scores")), **options)
    scores = graded["score"].to_numpy(float).reshape(len(rows), 2, -1).mean(axis=2)
    lead = pd.Series(scores @ [1, -1])
    run = pd.DataFrame(rows).drop(columns=["images", "responses"])
    run["verdict"] = lead.map(sign, na_action="ignore").astype(object)
    both = graded.groupby(np.repeat(run.index, len(graded) // len(run)))
    run["failure"] = both["failure"].first()
    run["closed"] = both["closed"].any()
    run["sees_image"] = both["sees_image"].all()
    return run


# --- A benchmark's rows, as a judge is given them

GENERAL = Rubric(
    "Is the answer right, complete and helpful, given the question and what the images show?",
    (
        "It is wrong, or does not answer the question.",
        "It is mostly wrong, or leaves out most of what was asked.",
        "It is partly right, with clear mistakes or omissions.",
        "It is right in all that matters, with a small mistake or omission.",
        "It is right and complete, and says it clearly.",
    ),
)
"""What a judge is given whose wording shows criteria, where a benchmark has none."""


def published_rows(name: str, collection: str, given: Any) -> Sequence[Row]:
    """A benchmark's rows: those that are given, canonical or as published, else the hub's."""
    source = collection if given is None else given
    if isinstance(source, (str, Path)):
        if not source:
            what = f"{name} is not on the hub in one piece, or not in columns known here"
            raise ValueError(f"{what}: give its rows as data=")
        return rows_of(load_collection(source))
    read = AS_PUBLISHED.get(name)
    rows = given.to_dict("records") if isinstance(given, pd.DataFrame) else given
    if read is not None and len(rows) and "response_a" not in rows[0]:
        rows = [read(row, index) for index, row in enumerate(rows)]
    return rows_of(canonical(rows))


GENAI_BENCH_VOTES = {"leftvote": "a", "rightvote": "b", "tievote": "tie", "bothbad_vote": "tie"}


def genai_bench_row(row: Row, index: int) -> dict[str, Any]:
    """A vote of TIGER-Lab/GenAI-Bench on two pictures as a pair; the last two images are judged."""
    vote = row["vote_type"]
    if vote not in GENAI_BENCH_VOTES:
        votes = ", ".join(GENAI_BENCH_VOTES)
        raise CollectionError(f"row {index}: vote_type is {vote!r}: use one of {votes}")
    images = "source_image left_image right_image left_output_image right_output_image".split()
    task = "image_edition" if "source_image" in row else "image_generation"
    return {
        "id": f"{task}:{index}",
        "images": [row[name] for name in images if name in row],
        "instruction": row["prompt"] if "prompt" in row else row["instruct_prompt"],
        "response_a": "The last image but one.",
        "response_b": "The last image.",
        "preference": GENAI_BENCH_VOTES[vote],
        "category": task,
    }


AS_PUBLISHED = {"genai-bench": genai_bench_row}
"""Sets whose published rows are read here; those of the others `load_collection` knows."""


def with_rubric(rows: Sequence[Row], wording: Template) -> tuple[Sequence[Row], int]:
    """The rows with `GENERAL` where a wording shows criteria and a row has none; how many have it.

    A row that has criteria of its own keeps them.
    """
    if "criteria" not in wording.needs:
        return rows, 0
    filled = list(map(dict, rows))
    count = 0
    for row in filled:
        if is_missing(row.get("criteria")) or row["criteria"] == "":
            row.update(GENERAL.as_row())
            count += 1
    return filled, count


# --- Published numbers


def audit(parts: Mapping[str, tuple[float, int]], *, reported: float | None = None) -> pd.DataFrame:
    """What a published number must be, from the accuracies of a benchmark's groups.

    Args:
        parts: group -> (accuracy in [0, 1], number of items).
        reported: the number that was published for all groups together.

    Returns:
        Rows "over items" (each item counts once) and "over groups" (each group counts once):
        `estimate`, `n`, and `distance` of the reported number.

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


def protocol_table() -> pd.DataFrame:
    """What each protocol says: wording, draws, orders, temperature, what it leaves open.

    >>> protocol_table().loc["vl-rewardbench", ["wording", "orders"]].tolist()
    ['vl-rewardbench', 'random']
    """
    rows = {}
    for name, rule in PROTOCOLS.items():
        rows[name] = {
            "wording": rule.template or "the judge's own",
            "draws": rule.options.get("samples", 1),
            "orders": rule.options.get("orders", ""),
            "temperature": rule.options.get("temperature", 0.0),
            "left open": rule.open,
            "never official, since": rule.unofficial,
        }
    return pd.DataFrame.from_dict(rows, orient="index")
