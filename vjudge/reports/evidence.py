"""What a card rests on: a judge's verdicts on the items and under each control, and the truth they are held against."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from vjudge import data
from vjudge.engines.engine import say
from vjudge.judge import plan
from vjudge.probes import PERTURBATIONS, Trials, battery, pairs_of_items
from vjudge.probes.runs import COMPARED, ORIGINAL, PADDED, SAMPLED, Scored, groups_of, scored, text_ids
from vjudge.runs import Run, RunError

PROBES = ("blindness", "verbosity", "length", "injection", "position", "consistency")
COUNTS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
SECONDS = 4.0  # how long the pace is measured before the cost is said


@dataclass
class Evidence:
    """What was measured.

    Args:
        judge: the judge's name; collection: that of the items; truth: what the scores are held against, in words.
        run: one row a verdict, with the truth in its column `gold`; of pairs, verdicts and preferences.
        scores: of each item of the run; None for pairs.
        probes: the battery's table, None where there was nothing to probe.
        trials: the runs of the controls by name.
        ratings: people's ratings, an item a row of `scores`; None where there are none.
        others: further judges' scores of the same items.
        facts: the run's manifest, as far as there is one; attrs: of the frame that was given.
    """

    judge: str
    collection: str
    truth: str
    run: pd.DataFrame
    scores: Scored | None
    probes: pd.DataFrame | None
    trials: Trials
    ratings: Any = None
    others: dict[str, pd.Series] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    attrs: dict[str, Any] = field(default_factory=dict)

    @property
    def groups(self) -> np.ndarray | None:
        """The unit of resampling of each item; None where each item is its own."""
        if self.scores is None:
            groups = groups_of(self.run)
            return None if len(set(groups)) == len(groups) else groups
        return None if len(set(self.scores.group)) == len(self.scores.group) else self.scores.group

    def of_run(self, name: str) -> pd.Series | None:
        """The scores of a control's run by the place of their item; None where it was not run."""
        if name not in self.trials.runs or self.scores is None:
            return None
        run = self.trials.scored(name)
        return pd.Series(run.score, index=run.ids).reindex(self.scores.ids).reset_index(drop=True)


class Request(NamedTuple):
    """What a card is asked for: see `report`."""

    score: str
    truth: Any
    truth_name: str | None
    pairs: Any
    out: Path | None
    controls: int | None
    samples: int
    manifest: Any
    name: str | None
    collection: str | None
    progress: bool


def gather(
    judge: Any, items: Any, call: Request, *, probing: Mapping[str, Any], grading: Mapping[str, Any]
) -> Evidence:
    """Grade what a card needs, or read it from runs.

    Args:
        judge, items, call: as `report` has them.
        probing: options of `Trials`: gold, confidence, seed; grading: those of `Judge.grade`.
    """
    items = data.load_collection(items) if isinstance(items, (str, Path)) else items
    others: dict[str, pd.Series] = {}
    pairs, manifest = call.pairs, call.manifest
    with ExitStack() as stack:
        if isinstance(judge, (pd.DataFrame, Mapping)):
            runs, others = _runs(judge, call.score)
            run = runs[ORIGINAL if ORIGINAL in runs else COMPARED]
            trials = Trials(runs, items, score=call.score if call.score in run else "score", **probing)
        else:
            if items is None:
                raise ValueError("a judge needs items to grade: pass the collection as items=")
            items = data.canonical(items.to_dict("records") if isinstance(items, pd.DataFrame) else items)
            some = _some(items, call.controls, probing["seed"])
            pairs = pairs_of_items(some, limit=len(some), seed=probing["seed"]) if pairs is None else pairs
            if call.progress:
                say(cost(judge, items, some, call.samples, pairs, grading))
            home = stack.enter_context(tempfile.TemporaryDirectory()) if call.out is None else call.out / "runs"
            run = judge.grade(items, out=Path(home) / "all", progress=call.progress, **grading)
            manifest = Path(home) / "all" if manifest is None else manifest
            trials = Trials(judge, some, out=home, score=call.score, progress=False, **probing, **grading)
        if not len(run):
            raise ValueError("the run holds no verdict: there is nothing to report")
        facts, attrs = _manifest(manifest), dict(run.attrs)
        name = call.name or str(run["judge"].iloc[0] if "judge" in run else getattr(judge, "name", call.score))
        origin = (data.origin(items) if items is not None else {}) or facts.get("note", {}).get("origin", {})
        source = call.collection or str(origin.get("source") or attrs.get("name") or "the collection")
        common: dict[str, Any] = dict(judge=name, collection=source, trials=trials, facts=facts, attrs=attrs)
        if trials.judge is None and ORIGINAL not in trials.runs:
            label = call.truth_name or ("people's preferences" if call.truth is None else str(call.truth))
            run = run.assign(preference=run.get("preference") if call.truth is None else run[call.truth])
            table = battery(trials, probes=["position"], progress=False) if "verdict_ba" in run else None
            return Evidence(truth=label, run=run, scores=None, probes=table, **common)
        values, label, ratings = _truth(run, items, call.truth)
        run = run.assign(gold=values)
        cells = scored(run, trials.score)
        here = run if trials.judge is None else run[np.isin(text_ids(run), list(trials.items["id"]))]
        trials.runs[ORIGINAL] = here.reset_index(drop=True)
        table = None
        if np.isfinite(cells.score).any() and call.controls != 0:
            table = battery(trials, pairs=pairs, probes=PROBES, samples=call.samples, progress=call.progress)
        common |= {"truth": call.truth_name or label, "ratings": ratings, "others": others}
        return Evidence(run=run, scores=cells, probes=table, **common)


def cost(judge: Any, items: Any, some: Any, samples: int, pairs: Any, grading: Mapping[str, Any]) -> str:
    """What the grading takes, in one line."""
    pictures = any(row.get("images") for row in data.rows_of(items))
    names = [name for name in PERTURBATIONS if name.startswith(("injected_", "response_padded"))]
    names += [name for name in PERTURBATIONS if name.startswith("image_")] if pictures else []
    passes = len(names) + samples
    count = len(items) + passes * len(some)
    if getattr(judge, "pairs", None) is not None:
        count += 2 * (len(pairs or ()) + len(some))
    line = f"report: about {count:,} verdicts: {len(items):,} items once, {len(some):,} under {passes} controls"
    if not hasattr(judge, "engine"):
        return line
    each = plan(judge, items, seconds=SECONDS, **grading)["planned"].dropna() / max(len(items), 1) * count
    if "total" in each:
        line += f"; about {each['total']:,.0f} seconds at the pace of one pass"
    elif "at most" in each:
        line += f"; at most {each['at most']:,.0f} seconds at the pace of one pass"
    return line + (f"; {each['cost']:,.2f} in the currency of price=" if "cost" in each else "")


def _some(items: Any, controls: int | None, seed: int) -> Any:
    """Whole groups at random until there are as many items as the controls may have."""
    if controls is None or len(items) <= controls:
        return items
    groups = groups_of(pd.DataFrame({name: items[name] for name in ("id", "group") if name in items.column_names}))
    chosen, count = set(), 0
    for group in np.random.default_rng(seed).permutation(np.unique(groups.astype(str))):
        if count < max(controls, 1):
            chosen.add(group)
            count += int((groups.astype(str) == group).sum())
    return items.select([place for place, group in enumerate(groups) if str(group) in chosen])


def _runs(given: Any, score: str) -> tuple[dict[str, pd.DataFrame], dict[str, pd.Series]]:
    """Runs by name as `Trials` has them, and other judges' scores of the items."""
    if isinstance(given, Mapping):
        own = {ORIGINAL, SAMPLED, COMPARED, PADDED, *PERTURBATIONS}
        if not {ORIGINAL, COMPARED} & set(given):
            names = ", ".join(map(repr, given)) or "none"
            raise ValueError(f"there is no run of the items themselves (runs: {names}): name it {ORIGINAL!r}, or"
                             f" {COMPARED!r} for pairs")  # fmt: skip
        ids = scored(given[ORIGINAL], score).ids if ORIGINAL in given else np.array([])
        rivals = {name: scored(given[name], score) for name in given if name not in own}
        others = {name: pd.Series(run.score, run.ids).reindex(ids) for name, run in rivals.items()}
        return {name: given[name] for name in given if name in own}, others
    if "verdict" in given and score not in given:
        return {COMPARED: given}, {}
    if score not in given:
        judges = given.attrs.get("judges") or list(given)
        raise ValueError(f"the frame has no column {score!r}: name the judge's with score=, such as {judges[:6]}")
    if {"id", "judge"} <= set(given):
        return {ORIGINAL: given}, {}
    ids = given.get("id", given.get("item", pd.Series(range(len(given)), index=given.index)))
    rest = given.drop(columns=["id", "judge", "verdict"], errors="ignore")
    frame = pd.DataFrame({"id": ids.astype(str), "judge": score}).join(rest).reset_index(drop=True)
    frame.attrs = dict(given.attrs)
    answers = frame[score].dropna()
    if len(answers) and answers.map(lambda value: isinstance(value, str)).all():
        return {COMPARED: frame.assign(verdict=frame[score])}, {}
    raters = [name for name in frame.attrs.get("raters", ()) if name in frame]
    if raters and "human_scores" not in frame:
        frame["human_scores"] = frame[raters].to_numpy().tolist()
    others = {name: frame[name] for name in frame.attrs.get("judges", ()) if name in frame and name != score}
    return {ORIGINAL: frame.assign(score=frame[score])}, others


def _truth(run: pd.DataFrame, items: Any, truth: Any) -> tuple[Any, str, Any]:
    """The truth of each verdict, its name, and people's ratings of each item."""
    ids, first = text_ids(run), ~pd.Series(text_ids(run)).duplicated().to_numpy()

    def column(name: str) -> list[Any]:
        if name in run:
            return list(run[name])
        cells = {} if items is None else {str(row["id"]): row.get(name) for row in data.rows_of(items)}
        return [cells.get(id) for id in ids]

    people = [list(cell) if isinstance(cell, (list, tuple, np.ndarray)) else [] for cell in column("human_scores")]
    ratings = [cell for cell, here in zip(people, first, strict=True) if here]
    if truth is None:
        source = run[[name for name in ("id", "gold", "human_scores") if name in run]]
        series = data.truth(items if items is not None else source)
        if series.attrs.get("labelled_by"):
            raise ValueError("people scored items that a review chose, which are no random sample: report on a"
                             " collection without the column `weight`, or correlate with weights=")  # fmt: skip
        label = _raters(series.name, ratings)
        named = series[~series.index.duplicated()]
        return named.set_axis(named.index.astype(str)).reindex(ids).to_numpy(), label, ratings
    if isinstance(truth, str):
        values = pd.to_numeric(pd.Series(column(truth), dtype=object)).to_numpy(dtype=float)
        if np.isnan(values).all():
            raise ValueError(f"truth={truth!r} is no column of the run or of the items, or holds no number")
        return values, truth.replace("_", " "), ratings
    series = truth if isinstance(truth, pd.Series) else pd.Series(list(truth))
    named = series.set_axis(series.index.astype(str))
    if not set(ids) <= set(named.index):
        if len(series) != len(run):
            raise ValueError(f"truth has {len(series)} values for {len(run)} verdicts: give one each, or index by id")
        named = series.set_axis(ids)
    values = named[~named.index.duplicated()].reindex(ids).to_numpy(dtype=float)
    return values, str(series.name or "the truth given"), ratings


def _raters(name: str, ratings: Any) -> str:
    """What a truth is called: of people, how many they were."""
    sizes = {len([value for value in cell if value is not None and value == value]) for cell in ratings or ()} - {0}
    if name == "gold":
        return "gold"
    if len(sizes) != 1 or name != "mean of people":
        return name
    (count,) = sizes
    number = COUNTS[count] if count < len(COUNTS) else str(count)
    return "one rater's score" if count == 1 else f"mean of {number} raters"


def _manifest(manifest: Any) -> dict[str, Any]:
    """A run's manifest, given as a mapping or as the run's folder; empty where there is none."""
    if manifest is None or isinstance(manifest, Mapping):
        return dict(manifest or {})
    try:
        return dict(Run(manifest).manifest)
    except RunError:
        return {}
