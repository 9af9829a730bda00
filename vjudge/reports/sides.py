"""What a report card is made of: judges or their runs, by name, with the truth of each item."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from vjudge import data, probes
from vjudge.engines.engine import say
from vjudge.metrics.tables import groups_of
from vjudge.probes.runs import COMPARED, ORIGINAL, ProbeRuns, scored
from vjudge.runs import Run, RunError

CONTROLS = [
    name
    for name in probes.PERTURBATIONS
    if name.startswith(("image_", "response_padded", "injected_"))
]
SAMPLES = 4  # verdicts an item for consistency
FACTS = ["model", "revision", "weights", "dtype", "quantization", "engine", "device", "mode"]


@dataclass
class Side:
    """One judge's verdicts, its scores by item (score, gold, group), people's, and its probes."""

    name: str
    run: pd.DataFrame
    probe_runs: ProbeRuns
    scores: pd.DataFrame
    truth: str
    ratings: list[list[Any]] = field(default_factory=list)
    facts: str = ""
    battery: pd.DataFrame = field(default_factory=pd.DataFrame)

    @property
    def pairs(self) -> bool:
        """Whether the verdicts are comparisons of two responses."""
        return "score" not in self.scores

    @property
    def groups(self) -> pd.Series | None:
        """The unit of resampling of each item; None where each item is its own."""
        return None if self.scores["group"].is_unique else self.scores["group"]


def by_name(judge: Any, score: str) -> dict[str, Any]:
    """Judges, or runs by perturbation, under the names by which they stand side by side."""
    if hasattr(judge, "grade"):
        return {str(judge.name): judge}
    if isinstance(judge, pd.DataFrame):
        others = [name for name in judge.attrs.get("judges", ()) if name in judge]
        columns = dict.fromkeys([score, *others])
        return {name: {kind: run} for name, kind, run in (_run(judge, one) for one in columns)}
    if not isinstance(judge, Mapping):
        raise ValueError("give a judge, a run, or either of them by the judge's name")
    if ORIGINAL in judge or COMPARED in judge:
        runs = {name: _run(run, score)[2] for name, run in judge.items()}
        first = runs[ORIGINAL if ORIGINAL in runs else COMPARED]
        return {str(first["judge"].iloc[0]): runs}
    sides = {}
    for name, one in judge.items():
        try:
            (sides[str(name)],) = by_name(one, score).values()
        except ValueError as error:
            raise ValueError(f"{name!r}: {error}") from error
    return sides


def _run(frame: pd.DataFrame, score: str) -> tuple[str, str, pd.DataFrame]:
    """The judge's name, the kind and the rows of a run, or of one judge of a frame of verdicts."""
    if not len(frame):
        raise ValueError("the run holds no verdict: there is nothing to report")
    ids = frame.get("id", frame.get("item", pd.Series(range(len(frame)), frame.index)))
    own = score if score not in ("score", "expected_score") else "judge"
    run = frame.assign(id=ids.map(str), judge=frame.get("judge", own))
    if score not in frame and "verdict" in frame:
        return str(run["judge"].iloc[0]), COMPARED, run
    if score not in frame:
        known = [name for name in frame.attrs.get("judges", ()) if name in frame]
        raise ValueError(f"no column {score!r}: name the judge's with score=, such as {known}")
    if score in frame.attrs.get("judges", ()):
        run["judge"] = score
    name = str(run["judge"].iloc[0])
    raters = [name for name in frame.attrs.get("raters", ()) if name in frame]
    if raters and "human_scores" not in run:
        run["human_scores"] = frame[raters].to_numpy().tolist()
    if pd.api.types.infer_dtype(frame[score], skipna=True) == "string":
        return name, COMPARED, run.assign(verdict=frame[score])
    return name, ORIGINAL, run.assign(score=frame[score])


def check_request(one: Any, items: Any, by: str | None) -> None:
    """Refuse what can't be reported before anything is graded."""
    if hasattr(one, "grade") and items is None:
        raise ValueError(
            "a judge needs items to grade: give a collection, or a run that was graded before"
        )
    columns = [] if items is None else list(items.column_names)
    if not hasattr(one, "grade"):
        columns += list(one.get(ORIGINAL, one.get(COMPARED)))
    if by is not None and by not in columns:
        have = ", ".join(map(str, columns))
        raise ValueError(f"by={by!r} is no column of the items or the run, which have {have}")


def side_of(
    name: str,
    one: Any,
    items: Any,
    home: Path,
    *,
    truth: pd.Series | None,
    by: str | None,
    score: str,
    gold: str,
    controls: int | None,
    manifest: str | Path | None,
    seed: int,
    progress: bool,
    grading: Mapping[str, Any],
) -> Side:
    """One judge's side: graded now in the folder `home`, or given as runs by perturbation."""
    if hasattr(one, "grade"):
        few = _few(items, controls, seed)
        if progress:
            passes = len(CONTROLS) + SAMPLES
            what = f"{len(items):,} items once, {len(few):,} under {passes} controls"
            total = len(items) + passes * len(few)
            say(f"report: about {total:,} verdicts: {what}; vj.plan says what they take")
        run = one.grade(items, out=home / "all", progress=progress, **grading)
        options: dict[str, Any] = {"out": home, "score": score, "progress": False, **grading}
        probe_runs = ProbeRuns(one, few, gold=gold, seed=seed, **options)
        manifest = home / "all"
    else:
        probe_runs = ProbeRuns(one, items, gold=gold, seed=seed)
        run = one.get(ORIGINAL, one.get(COMPARED))
    run = run.assign(id=run["id"].map(str))
    rows = data.rows_of([] if items is None else items)
    if by is not None and by not in run:
        run[by] = run["id"].map({str(row["id"]): row.get(by) for row in rows})
    facts = ""
    if manifest is not None:
        with suppress(RunError):  # not every judge keeps a journal
            facts = _facts(Run(manifest).manifest)
    if not hasattr(one, "grade") and ORIGINAL not in one:
        name_of_truth = "people's preferences"
        if truth is not None:
            run["preference"] = truth.reindex(run["id"]).to_numpy()
            name_of_truth = str(truth.name)
        scores = pd.DataFrame({"group": groups_of(run)})
        return Side(name, run, probe_runs, scores, name_of_truth, facts=facts)
    known = run.columns.intersection(["id", "gold", "human_scores"])
    rows = data.rows_of(run[known] if items is None else items)
    people = {str(row["id"]): list(row.get("human_scores") or ()) for row in rows}
    ratings = [people.get(id, []) for id in run["id"].unique()]
    answers, name_of_truth = _truth(run, rows, ratings, truth)
    run = run.assign(gold=answers.reindex(run["id"]).to_numpy())
    if truth is not None:
        run = run.drop(columns="human_scores", errors="ignore")  # they would fill its gaps
    kept = run
    if hasattr(one, "grade"):
        kept = run[run["id"].isin(list(map(str, few["id"])))].reset_index(drop=True)
    probe_runs.runs[ORIGINAL] = kept
    scores = scored(run, probe_runs.score)
    return Side(name, run, probe_runs, scores, name_of_truth, ratings, facts)


def _few(items: Any, most: int | None, seed: int) -> Any:
    """Whole groups at random until there are as many items as the controls may have."""
    if most is None or len(items) <= most:
        return items
    frame = pd.DataFrame({"id": items["id"], "group": items["group"]})
    groups = pd.Series(groups_of(frame)).map(str)
    sizes = groups.value_counts().sort_index()
    sizes = sizes.iloc[np.random.default_rng(seed).permutation(len(sizes))].cumsum()
    kept = sizes.index[: np.searchsorted(sizes, most) + 1]
    return items.select(np.flatnonzero(groups.isin(kept)))


def _truth(
    run: pd.DataFrame, rows: Any, ratings: list[list[Any]], truth: pd.Series | None
) -> tuple[pd.Series, str]:
    """The truth by id, and what it is called."""
    answers = data.truth(rows) if truth is None else truth
    answers = answers.set_axis(answers.index.map(str)).groupby(level=0).first()
    if answers.index.intersection(run["id"]).empty:
        first = run["id"].iloc[0]
        raise ValueError(f"truth has no id of the run, such as {first!r}: index it by id")
    name = str(answers.name or "the truth given")
    counts = {len(cell) for cell in ratings} - {0}
    if name == "mean of people" and len(counts) == 1:
        name = "one rater's score" if counts == {1} else f"the mean of {counts.pop()} raters"
    return answers, name


def _facts(manifest: Mapping[str, Any]) -> str:
    """What a run's manifest says of the judge and how it was asked."""
    record = dict(manifest)
    record["wording"] = (manifest.get("template") or {}).get("name")
    facts = [f"{name} {str(record[name])[:60]}" for name in [*FACTS, "wording"] if record.get(name)]
    how = "one forward pass that reads the distribution over the scores"
    if manifest.get("decoding"):
        how = ", ".join(f"{key} {value}" for key, value in manifest["decoding"].items())
    return f"{', '.join(facts)}; decoding: {how}"
