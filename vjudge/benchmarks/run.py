"""Run a benchmark as it was published, in one call; and audit a published number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from itertools import chain, count
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from vjudge.benchmarks.numbers import (
    TIES,
    BenchmarkResult,
    Deviation,
    Kind,
    benchmark_result,
    key_of,
    numbers,
    subset_of,
)
from vjudge.benchmarks.pairs import pairs_of_items
from vjudge.benchmarks.pictures import FROM_FILES, FROM_ROW, viescore
from vjudge.benchmarks.protocols import PROTOCOLS, Protocol, Reader
from vjudge.data import CollectionError, canonical, load_collection, rows_of
from vjudge.data.files import rows_of_file
from vjudge.data.schema import PICTURE_COLUMNS, Row
from vjudge.judging.asking import Options
from vjudge.judging.candidates import LEFT_OUT
from vjudge.judging.choices import sign
from vjudge.judging.judge import Judge, JudgeLike
from vjudge.judging.orders import SWAPPED
from vjudge.judging.panel import Panel
from vjudge.prompts import Template, families
from vjudge.records import RESPONSE_IMAGES, Rubric, from_csv, is_missing
from vjudge.results import analysis

MAY_LACK_IMAGES = ("mt-bench", "feedback-bench", "preference-bench", "mmrb2")
IMMATERIAL = ("batch_size", "seed")  # options that no protocol decides
DRAWING = ("samples", "temperature", "top_p", "repetition_penalty")


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
    if isinstance(judge, Panel):
        key, run, n_rows, changes = _run_of_panel(judge, name, out=out, **options)
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


def _run_of_panel(
    panel: Panel, name: str, *, out: str | Path | None, **options: Any
) -> tuple[str, pd.DataFrame, int, list[Deviation]]:
    """As `_run`, of the members' verdicts by the protocol, combined."""
    changes = [Deviation("panel", f"the verdicts of {len(panel.judges)} judges are combined")]
    runs = {}
    for member, home in panel.folders(out):
        key, run, n_rows, deviations = _run(member, name, out=home, **options)
        run = run.drop(columns=["semantics", "quality"], errors="ignore")
        if "verdict" in run:  # a panel has one kind of tie
            run["verdict"] = run["verdict"].replace(dict.fromkeys(TIES, "tie"))
        runs[member.name] = run
        changes += [Deviation(kind, f"{member.name}: {text}") for kind, text in deviations]
    return key, panel.combined(runs), n_rows, changes


def _run(
    judge: JudgeLike,
    name: str,
    *,
    data: Any,
    out: str | Path | None,
    protocol: str | None,
    **options: Any,
) -> tuple[str, pd.DataFrame, int, list[Deviation]]:
    """The protocol's name, a judge's run by it, its number of rows, and what was done otherwise."""
    # 1) how the benchmark is run
    if not isinstance(judge, Judge):
        remedy = "give one whose wording can be chosen: a Judge, or a panel of them"
        raise TypeError(f"judge is a {type(judge).__name__}: {remedy}")
    key = protocol or f"{name} by {_family(judge)}"
    if protocol is None and key not in PROTOCOLS:
        key = name
    if key not in PROTOCOLS:
        raise ValueError(f"there is no protocol {key!r}: use one of {', '.join(PROTOCOLS)}")
    rule = PROTOCOLS[key]

    # 2) the run, of each category by itself where it has a wording of its own
    changes: list[Deviation] = []
    rows = published_rows(name, rule.collection, data)
    if rule.call == "compare" and len(rows) and "response_a" not in rows[0]:
        n_single = len(rows)
        rows = pairs_of_items(rows, limit=n_single)
        text = f"{len(rows)} pairs are made of {n_single} single responses"
        changes.append(Deviation("rows", text))
    runs = []
    for category, its_rows in _by_category(rule, rows).items():
        home = Path(out) / category if category and out is not None else out
        its_rule = replace(rule, template=rule.wordings.get(category, rule.template))
        run, wording, its = _asked(judge, its_rule, its_rows, name, out=home, **options)
        runs.append(run)
        changes += [change for change in its if change not in changes]
    run = pd.concat(runs, ignore_index=True) if len(runs) > 1 else runs[0]

    # 3) what is not as published
    of_set, _, of_judge = key.partition(" by ")
    if of_set != name:
        changes.append(Deviation("protocol", f"the protocol is that of {of_set!r}"))
    if of_judge not in ("", _family(judge)):
        changes.append(Deviation("protocol", f"the protocol is that of the judge {of_judge!r}"))
    return key, run, len(rows), changes + _counted(name, run, wording)


def _counted(name: str, run: pd.DataFrame, wording: Template) -> list[Deviation]:
    """What of a run's verdicts is not as published, with their number."""
    closed = "answers without a verdict were closed, which is not published"
    empty = "answers are empty, or a server failed: they have no verdict"
    counts: list[tuple[Kind, str, int]] = [
        ("closed", closed, _total(run, "closed")),
        ("images", "answers were judged without an image", _n_blind(name, run, wording)),
        ("unanswered", empty, _total(run, "empty_draws")),
    ]
    return [Deviation(kind, f"{count} {text}") for kind, text, count in counts if count]


def _by_category(rule: Protocol, rows: Sequence[Row]) -> dict[str, Sequence[Row]]:
    """The rows of each category that has a wording of its own, or all of them."""
    if not (rule.wordings and len(rows)):
        return {"": rows}
    parts: dict[str, list[Row]] = {}
    for row in rows:
        parts.setdefault(str(row.get("category")), []).append(row)
    unknown = [category for category in parts if category not in rule.wordings]
    if unknown:
        listed = ", ".join(rule.wordings)
        raise CollectionError(f"rows of category {', '.join(unknown)}: use one of {listed}")
    return dict(parts)


def _asked(
    judge: Judge, rule: Protocol, rows: Sequence[Row], name: str, **deviations: Any
) -> tuple[pd.DataFrame, Template, list[Deviation]]:
    """A judge's run on rows of one wording, that wording, and what was done otherwise."""
    # 1) the wording, and whether it shows what is judged
    out = deviations.pop("out")
    progress = deviations.pop("progress")
    asked, wording, changes = _asked_by(judge, rule, deviations.pop("template", None))
    pictured = any(row.get(column) for row in rows for column in RESPONSE_IMAGES.values())
    if pictured and not (judge.template.sees_images and wording.sees_images):
        refusal = f"responses of {name} are pictures, and template {wording.name!r} of"
        raise ValueError(f"{refusal} judge {judge.name!r} shows none: give one that sees pictures")
    singly = rule.call != "grade" and not wording.compares  # two responses by their scores
    options = _options(judge, rule, deviations, changes, singly=singly)
    rows, n_filled = with_rubric(rows, wording)
    if n_filled:
        text = f"{n_filled} of {len(rows)} rows have no criteria: they get general ones"
        changes.append(Deviation("rows", text))

    # 2) the run; the benchmark's own reader reads answers to its own wording
    options |= {"out": out, "progress": progress}
    if singly and rule.call == "compare" and not judge.gives_values:
        run = _by_scores(asked, rows, **options)
    elif rule.quality and wording.name == rule.template:
        run = viescore(asked, rows, quality=rule.quality, **options)
    else:
        run = getattr(asked, rule.call)(rows, **options)
    if wording.name == rule.template and options.get("mode") != "score":
        if rule.reader:
            run = reread(run, rule.reader)
        if rule.score_reader:
            scores = run["raw"].map(rule.score_reader)
            run["score"] = scores.where(scores.between(run["lowest"], run["highest"]))
            run["failure"] = run["failure"].where(run["score"].isna(), None)
    return run, wording, changes


def _n_blind(name: str, run: pd.DataFrame, wording: Template) -> int:
    """How many rows were judged without an image that is meant to be judged with one."""
    if name in MAY_LACK_IMAGES or not wording.sees_images:  # the text alone is judged
        return 0
    seen = run["sees_image"]
    if name == "mm-judgebias":  # a bias may be the lack of it
        seen = seen.groupby(run["group"]).any()
    return int((~seen).sum())


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
        leading = max(("a", "b", *TIES), key=votes.count)
        verdicts.append(leading if votes.count(leading) > len(votes) / 2 else None)
    table = run.assign(unread_draws=unread, empty_draws=empty)
    return table.assign(verdict=pd.Series(verdicts, index=run.index, dtype=object))


def _by_scores(judge: Any, pairs: Sequence[Row], **options: Any) -> pd.DataFrame:
    """Pairs by the scores of either response by itself, whose difference is the verdict.

    Source: Prometheus (arXiv 2310.08491), section on ranking evaluation.
    """
    rows = []
    for pair in pairs:
        shared = {name: cell for name, cell in pair.items() if name not in LEFT_OUT}
        for side in "ab":
            alone = {"id": f"{pair['id']}/{side}", "response": pair[f"response_{side}"]}
            alone["response_images"] = pair.get(f"response_{side}_images")
            rows.append(shared | alone)
    graded = judge.grade(rows, **options)
    scores = graded["score"].to_numpy(float).reshape(len(pairs), 2, -1).mean(axis=2)
    lead = pd.Series(scores @ [1, -1])
    run = pd.DataFrame([*pairs]).drop(columns=[*PICTURE_COLUMNS], errors="ignore")
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
    rows = source
    if isinstance(source, (str, Path)):
        if not source:
            reason = f"{name} is not on the hub in one piece, or not in columns known here"
            raise ValueError(f"{reason}: give its rows as data=")
        if name in FROM_FILES:
            rows = FROM_FILES[name](Path(source))
        elif name in FROM_ROW:
            rows = rows_of_file(Path(source))
        else:
            return rows_of(load_collection(source))
    elif isinstance(source, pd.DataFrame):
        rows = source.to_dict("records")
    read = FROM_ROW.get(name)
    if read is not None and len(rows) and "instruction" not in rows[0]:
        rows = list(chain.from_iterable(map(read, rows, count())))
    return rows_of(canonical(rows))


def with_rubric(rows: Sequence[Row], wording: Template) -> tuple[Sequence[Row], int]:
    """The rows with `GENERAL` where a wording shows criteria and a row has none; how many have it.

    A row that has criteria of its own keeps them.
    """
    if "criteria" not in wording.needs:
        return rows, 0
    filled = list(map(dict, rows))
    n_filled = 0
    for row in filled:
        if is_missing(row.get("criteria")) or row["criteria"] == "":
            row.update(GENERAL.as_row())
            n_filled += 1
    return filled, n_filled


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
            "wording": rule.template or ", ".join(rule.wordings.values()) or "the judge's own",
            "draws": rule.options.get("samples", 1),
            "orders": rule.options.get("orders", ""),
            "temperature": rule.options.get("temperature", 0.0),
            "left open": rule.open,
            "never official, since": rule.unofficial,
        }
    return pd.DataFrame.from_dict(rows, orient="index")
