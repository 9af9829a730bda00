"""What a report card is made of: judges or their runs, by name, with the truth of each item."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pandas import DataFrame

from vjudge import data
from vjudge.judge import JudgeLike
from vjudge.metrics.columns import groups_of
from vjudge.probes.runs import COMPARED, ORIGINAL, ProbeRuns, scored
from vjudge.runs import MANIFEST, Run

FACTS = ["model", "revision", "checkpoint", "mode"]


@dataclass
class Side:
    """One judge's verdicts, and its scores by item: score, gold, group; of pairs only the group."""

    name: str
    run: DataFrame
    probe_runs: ProbeRuns
    scores: DataFrame
    truth: str
    facts: str = "the run does not record how it was asked"
    battery: Any = None  # of its probes

    @property
    def pairs(self) -> bool:
        """Whether the verdicts are comparisons of two responses."""
        return "score" not in self.scores


def by_name(judge: Any, items: Any) -> dict:
    """Judges, or runs by perturbation, under the names by which they stand side by side."""
    sides = {"": judge}
    if isinstance(judge, Mapping) and not {ORIGINAL, COMPARED} & set(judge):
        sides = dict(judge)
    for name, one in sides.items():
        who = repr(name) if name else "the judge"
        if isinstance(one, DataFrame):
            if "id" not in one or not {"score", "verdict"} & set(one):
                raise ValueError(
                    f"{who}: a run has the columns id and score (of pairs verdict), not"
                    f" {list(one)}; a wide table of scores is for vjudge.from_scores"
                )
            if one.empty:
                raise ValueError(f"{who}: the run has no rows; give a run with verdicts")
            sides[name] = {ORIGINAL if "score" in one else COMPARED: one}
        elif not isinstance(one, Mapping) and (items is None or not isinstance(one, JudgeLike)):
            raise ValueError(f"{who}: give a run with verdicts, or a judge with items to grade")
    return sides


def side_of(
    name: str,
    one: Any,
    items: Any,
    home: Path | None,
    controls: int,
    probing: Mapping,
    grading: Mapping,
) -> Side:
    """One judge's side: graded now in the folder `home`, or given as runs by perturbation."""
    facts = Side.facts
    if isinstance(one, Mapping):
        probe_runs = ProbeRuns(one, items, **probing)
        run = one.get(ORIGINAL, one.get(COMPARED))
        few = run
    else:
        order = np.random.default_rng(probing["seed"]).permutation(len(items))
        few = items.select(sorted(order[:controls]))  # in their order: neighbours share work
        folder = home and home / "all"
        run = one.grade(items, out=folder, **grading)
        probe_runs = ProbeRuns(one, few, out=home, **probing, **{**grading, "progress": False})
        if folder and (folder / MANIFEST).is_file():
            manifest = Run(folder).manifest
            known = {fact: manifest[fact] for fact in FACTS if manifest.get(fact)}
            known |= manifest["decoding"]
            facts = "; ".join(f"{fact} {value}" for fact, value in known.items())
    name = name or probe_runs.name
    if "score" not in run:
        groups = DataFrame({"group": groups_of(run)})
        return Side(name, run, probe_runs, groups, "people's preferences", facts)
    truth = data.truth(data.rows_of(run if items is None else items))
    truth = truth[~truth.index.duplicated()]
    run = run.assign(gold=truth.reindex(run["id"].map(str)).to_numpy())
    probe_runs.runs[ORIGINAL] = run[run["id"].isin(list(few["id"]))].reset_index(drop=True)
    return Side(
        name,
        run,
        probe_runs,
        scored(run, "score"),
        str(truth.name),
        facts,
    )
