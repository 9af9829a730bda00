"""Run a benchmark as it was published, in one call; and audit a published number."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from vjudge.asking import GREEDY, Options
from vjudge.benchmarks.numbers import benchmark, key_of
from vjudge.benchmarks.protocols import PROTOCOLS, Protocol, Reader
from vjudge.benchmarks.rows import published_rows, with_rubric
from vjudge.comparing import SWAPPED, parts_of, sign
from vjudge.data import origin, rows_of
from vjudge.metrics.tables import shares
from vjudge.prompts import Template, families
from vjudge.records import Rubric, unit_of

IMMATERIAL = ("batch_size", "seed")  # options that no protocol decides


def run_benchmark(
    judge: Any,
    name: str,
    *,
    data: Any = None,
    out: str | Path | None = None,
    protocol: str | None = None,
    progress: bool = True,
    **deviations: Any,
) -> pd.DataFrame:
    """Run a judge on a benchmark with its own prompt, number of draws, order, decoding and reader.

    Args:
        judge: from `load_judge`.
        name: of the benchmark, a key of `BENCHMARKS` such as "vl-rewardbench", or its title.
        data: rows, or a file of them; None loads the set from the hub. Where the judge's wording
            shows criteria and rows have none, they get `rows.GENERAL`.
        out: a folder that records every verdict; the same call continues there.
        protocol: a key of `PROTOCOLS`; None takes how the authors of this judge ran it where that
            is known, else the benchmark's own.
        progress: whether to show a bar.
        deviations: options of the call that differ from the protocol, such as `samples=1`,
            `orders="both"` or `template="chat-relative"`.

    Returns:
        The benchmark's number as `benchmark` gives it. `attrs["official"]` is True only where a
        published protocol was followed; `attrs["deviations"]` lists in words what was not;
        `attrs["protocol"]`, `attrs["open"]` (what the published code leaves open),
        `attrs["items"]`, `attrs["failures"]` and `attrs["unread_draws"]` (answers that the
        benchmark's own reader could not read) say the rest.

    ValueError: an unknown benchmark, protocol or option; CollectionError: bad rows.

    >>> import vjudge as vj
    >>> rows = list(vj.load_collection("scenes", split="test", limit=10))
    >>> judge = vj.load_judge("tiny", device="cpu")
    >>> table = vj.run_benchmark(judge, "feedback-bench", data=rows, progress=False)
    >>> table.loc["overall", "n"].tolist(), table.attrs["official"]
    ([10, 10, 10], False)

    Source: each protocol's own, in `attrs["source"]`.
    """
    # 1) how the benchmark is run, and in which wording
    key = protocol_of(name, judge, protocol)
    rule = PROTOCOLS[key]
    asked, wording, changes = _asked_by(judge, rule, deviations.pop("template", None))
    singly = rule.call != "grade" and not wording.compares  # two responses by their scores
    options = _options(judge, rule, deviations, changes, singly=singly)

    # 2) the run; the benchmark's own reader reads answers to its own wording
    rows, n_filled = with_rubric(published_rows(rule, data), wording)
    if n_filled:
        changes.append(f"{n_filled} of {len(rows)} rows have no criteria: they get general ones")
    options |= {"out": out, "progress": progress}
    if singly and rule.call == "compare" and not judge.gives_values:
        run = rank_by_score(asked, rows, **options)
    else:
        run = getattr(asked, rule.call)(rows, **options)
    if rule.reader and wording.name == rule.template and options.get("mode") != "score":
        run = reread(run, rule.reader)

    # 3) its number
    table = benchmark(run, name=rule.benchmark)
    official = not changes
    table["official"] = table["official"] & official
    table.attrs |= {
        "official": official,
        "deviations": changes,
        "protocol": key,
        "open": rule.open,
        "items": f"{len(rows)} of {rule.n_items}" if rule.n_items else str(len(rows)),
        "source": rule.source,
        "failures": dict(run.attrs.get("failures", {})),
        "unread_draws": run.attrs.get("unread_draws", 0),
    }
    return table


def protocol_of(name: str, judge: Any, protocol: str | None = None) -> str:
    """The protocol of a benchmark for a judge; ValueError where there is none of that name."""
    key = key_of(name)
    if protocol is None:
        own = f"{key} by {_family(judge)}"
        return own if own in PROTOCOLS else key
    if protocol not in PROTOCOLS:
        known = ", ".join(PROTOCOLS)
        raise ValueError(f"there is no protocol {protocol!r}: use one of {known}")
    return protocol


def _family(judge: Any) -> str:
    return getattr(judge.family, "name", "")


def _asked_by(
    judge: Any, rule: Protocol, chosen: str | Template | None
) -> tuple[Any, Template, list[str]]:
    """The judge with the protocol's wording, that wording, and where it is asked otherwise."""
    changes = []
    if rule.unofficial and _family(judge) not in rule.own:
        changes.append(rule.unofficial)

    # a value head and a judge of whose kind no wording is published keep their own
    own = judge.template
    if rule.call != "grade" and judge.pairs is not None:
        own = judge.pairs
    if judge.gives_values:
        changes.append("a value head is asked in no wording: each response gets a number")
        return judge, own, changes
    template = chosen or rule.template
    if template is None:
        if changes:
            changes[0] = f"asked in the judge's wording {own.name!r}: {rule.unofficial}"
        if rule.call != "grade" and judge.pairs is None:
            changes.append("each response is graded by itself: the judge has no wording for two")
        return judge, own, changes

    wording = families.wording(template)
    if wording.name != rule.template:
        published = rule.template or "none that vjudge has"
        changes.append(f"the wording is {wording.name!r}, published is {published!r}")
    if wording.sees_images and not judge.template.sees_images:
        changes.append("the judge sees no images")
    return judge.reworded(wording), wording, changes


def _options(
    judge: Any, rule: Protocol, deviations: Mapping[str, Any], changes: list[str], *, singly: bool
) -> dict[str, Any]:
    """The options of the call; adds to `changes` which of them are not the published ones."""
    options = dict(rule.options)
    if _family(judge) in rule.own:
        options = dict(judge.family.published)
    if judge.gives_values:
        options = {}
    if singly:
        options.pop("orders", None)
        if rule.call == "rank":
            options["by"] = "scores"
    defaults = asdict(Options())
    for option, value in deviations.items():
        published = options.get(option, defaults.get(option))
        if value != published and option not in IMMATERIAL:
            changes.append(f"{option} is {value!r}, published is {published!r}")
        options[option] = value
    if options.get("mode") == "score":  # it draws nothing
        for name in GREEDY:
            if name not in deviations:
                options.pop(name, None)
    return options


def reread(run: pd.DataFrame, reader: Reader) -> pd.DataFrame:
    """A comparison's verdicts by a benchmark's own reader: the choice of more than half of a pair's
    draws, None where there is none.

    `run` needs `draws` or the columns `raw_ab` and `raw_ba`, and where the reader looks at it
    `preference`.
    """
    verdicts = []
    unread = 0
    for row in run.to_dict("records"):
        votes = []
        for order, text in _texts(row):
            names: dict[Any, Any] = SWAPPED if order == "ba" else {}
            preferred = row.get("preference")
            choice = reader(text, names.get(preferred, preferred))
            votes.append(names.get(choice, choice))
        unread += votes.count(None)
        verdict = None
        for choice in ("a", "b", "tie"):
            if votes.count(choice) > len(votes) / 2:
                verdict = choice
        verdicts.append(verdict)
    table = run.assign(verdict=pd.Series(verdicts, index=run.index, dtype=object))
    table.attrs = {**run.attrs, "unread_draws": unread}
    return table


def _texts(row: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The order and the text of each draw of a pair."""
    if "draws" in row:
        return [(draw["order"], draw["raw"] or "") for draw in row["draws"]]
    return [(order, row[f"raw_{order}"] or "") for order in ("ab", "ba") if f"raw_{order}" in row]


def rank_by_score(
    judge: Any, pairs: Any, *, rubric: Rubric | None = None, **options: Any
) -> pd.DataFrame:
    """Grade both responses of every pair by themselves and say which scores higher.

    Args:
        judge: anything with `Judge.grade`.
        pairs: rows with `response_a` and `response_b`.
        rubric: for pairs without one, where the judge's wording shows a rubric; Prometheus was
            given one for each set.
        options: of `Judge.grade`; each sample of a response counts in its mean.

    Returns:
        One row a pair: id, judge, verdict ("a", "b", "tie", None without two scores), score_a,
        score_b, and what of the pair the judge's table says; `attrs` counts the failures.

    Source: Prometheus (arXiv 2310.08491), section on ranking evaluation.
    """
    candidates = []
    for row in rows_of(pairs):
        cells = {**row, "responses": [row["response_a"], row["response_b"]]}
        if rubric is not None and not row.get("descriptions"):
            cells |= rubric.as_row()
        candidates.append(cells)
    graded = judge.grade(list(parts_of(candidates, "scores")), **options)
    scores = graded["score"].to_numpy(float).reshape(len(candidates), 2, -1).mean(axis=2)
    frame = pd.DataFrame(candidates).filter(["id", "preference", "category"])
    frame.insert(1, "judge", judge.name)
    lead = pd.Series(scores[:, 0] - scores[:, 1])
    choices = lead.map(sign, na_action="ignore").astype(object)
    frame.insert(2, "verdict", choices.where(lead.notna(), None))
    frame["score_a"] = scores[:, 0]
    frame["score_b"] = scores[:, 1]
    frame["group"] = [unit_of(row) for row in candidates]
    failures = dict(graded.attrs.get("failures", {}))
    frame.attrs = {"failures": failures, "collection": origin(pairs)}
    return frame


def audit(parts: Mapping[str, tuple[float, int]], *, reported: float | None = None) -> pd.DataFrame:
    """What a published number must be, from the accuracies of a benchmark's groups.

    Args:
        parts: group -> (accuracy in [0, 1], number of items).
        reported: the number that was published for all groups together.

    Returns:
        Rows "over items" (each item counts once) and "over groups" (each group counts once):
        `estimate`, `low`, `high` (95 %, Wilson's), `n`, and `distance` of the reported number;
        `attrs["nearest"]` names the nearer row.

    ValueError: an accuracy outside [0, 1].

    >>> parts = {"general": (.781, 183), "hallucination": (.727, 749), "reasoning": (.660, 318)}
    >>> table = audit(parts, reported=.7223)
    >>> table["estimate"].round(4).tolist(), table.attrs["nearest"]
    ([0.7179, 0.7227], 'over groups')
    """
    accuracies, sizes = np.transpose(list(parts.values()))
    if not ((accuracies >= 0) & (accuracies <= 1)).all():
        raise ValueError("parts holds an accuracy outside [0, 1]: give shares, not per cent")
    right = [np.clip(share * n - np.arange(n), 0, 1) for share, n in parts.values()]
    gain = np.concatenate(right)
    group = np.repeat(np.arange(len(parts)), sizes.astype(int))
    of_groups = group == np.arange(len(parts))[:, None]
    rows = [
        ("over items", gain, np.ones(len(gain))),
        ("over groups", gain * of_groups, of_groups),
    ]
    table = shares(rows, groups=None, unit="items").drop(columns="missing")
    if reported is not None:
        table["distance"] = (table["estimate"] - reported).abs()
        table.attrs["nearest"] = table["distance"].idxmin()
    return table
