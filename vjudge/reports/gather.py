"""`report`: the runs that a card rests on, graded now or given, and the truth they are held against."""

from __future__ import annotations

import re
import tempfile
import warnings
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from vjudge import data, plots
from vjudge.engines.engine import say
from vjudge.probes import PERTURBATIONS, Trials, battery, pairs_of_items
from vjudge.probes.runs import COMPARED, ORIGINAL, Scored, groups_of, scored, text_ids
from vjudge.records import is_missing
from vjudge.reports.card import Card, measure
from vjudge.runs import Run, RunError

PROBES = ("blindness", "verbosity", "length", "injection", "position", "consistency")
CONTROLS = tuple(name for name in PERTURBATIONS if name.startswith(("image_", "response_padded", "injected_")))


def report(
    judge: Any,
    items: Any = None,
    *,
    truth: Any = None,
    truth_name: str | None = None,
    score: str = "score",
    by: str | None = None,
    venue: str = "acl",
    out: str | Path | None = None,
    controls: int | None = 200,
    samples: int = 4,
    gold: str = "observed",
    manifest: str | Path | None = None,
    name: str | Mapping[str, str] | None = None,
    collection: str | None = None,
    n_resamples: int = 2_000,
    seed: int = 0,
    progress: bool = True,
    **grading: Any,
) -> Card:
    """Make a judge's report card: agreement under the human ceiling, its biases, failures, calibration and cost.

    Args:
        judge: a judge, which then grades the items and the controls; or a run that `Judge.grade` or `Judge.compare`
            returned; a frame of `load_verdicts` or of one's own, with `score` naming the judge's column; or runs by
            name, as `probes.Trials` has them: "original", the perturbations, "sampled", "compared". Further judges of
            a frame stand beside this one in the paper's table.
        items: what was graded, or is to be.
        truth: what scores are held against: None for gold, else the mean of people; a column of the run or the items;
            or a Series by id. truth_name: what captions call it.
        score: the judge's column, "score", "expected_score", or of a frame of verdicts the judge's name.
        by: a column of the run; agreement is then given for each of its values too.
        venue: of the paper's figures, one of `plots.VENUES`.
        out: a folder for the card, the paper, and in `runs` what is graded, so that the same call continues after an
            interruption. None writes nothing.
        controls: the most items that controls are graded on, in whole groups drawn at random; None for all, 0 for none.
        samples: verdicts an item for consistency.
        gold: "observed", "exact" or "rated", see `probes.Trials`.
        manifest: the folder of a run that is given; a run that is graded has its own.
        name: what the card calls the judge; or a mapping from the data's names of judges to those to print.
        collection: what the card calls the items.
        n_resamples, seed: of resampling and draws.
        progress: whether to say the number of verdicts beforehand and show progress.
        grading: further options of `Judge.grade`: mode, batch_size and so on.

    Returns:
        The card. It shows itself in a notebook; `table` has its numbers, `absent` what could not be measured and why;
        `write(folder)` writes it.

    Raises:
        ValueError: there is no verdict, or no such column, truth or venue; as `Judge.grade` where it grades.

    Source: Mitchell et al., "Model Cards for Model Reporting", FAT* 2019, for what a card is.

    >>> import vjudge as vj
    >>> items = vj.load_collection("scenes", split="test", limit=20)
    >>> run = vj.load_judge("tiny", device="cpu").grade(items, mode="score", progress=False)
    >>> card = vj.report(run, n_resamples=200)  # or vj.report(judge, items), which grades the controls too
    >>> [part.name for part in card.parts]
    ['agreement', 'failures', 'calibration', 'cost']
    >>> card.absent[0]
    ('human ceiling', 'no item was rated by two people')
    """
    plots.width(venue, "half")  # a venue that is unknown is refused before anything is graded
    items = data.load_collection(items) if isinstance(items, (str, Path)) else items
    facts = {} if manifest is None else dict(Run(manifest).manifest)
    names = name if isinstance(name, Mapping) else {}
    others, pairs = dict[str, pd.Series](), None
    with warnings.catch_warnings(record=True) as alerts, tempfile.TemporaryDirectory() as temporary:
        warnings.simplefilter("always")
        warnings.filterwarnings("ignore", "constrained_layout")  # of a figure that shows as much itself
        if isinstance(judge, (pd.DataFrame, Mapping)):
            runs, others, score = _runs(judge, score)
            run = runs[ORIGINAL if ORIGINAL in runs else COMPARED]
            trials = Trials(runs, items, score=score, gold=gold, seed=seed)
        else:
            if items is None:
                raise ValueError("a judge needs items to grade: pass the collection as items=")
            items = data.canonical(items.to_dict("records") if isinstance(items, pd.DataFrame) else items)
            some, passes = _some(items, controls, seed), len(CONTROLS) + samples
            pairs = pairs_of_items(some, limit=len(some), seed=seed)
            if progress:
                line = f"{len(items):,} items once, {len(some):,} under {passes} controls"
                say(f"report: about {len(items) + passes * len(some):,} verdicts: {line}; vj.plan says what they take")
            home = Path(temporary if out is None else out, "runs")
            run = judge.grade(items, out=home / "all", progress=progress, **grading)
            with suppress(RunError):  # not every judge keeps a journal
                facts = facts or dict(Run(home / "all").manifest)
            trials = Trials(judge, some, out=home, score=score, gold=gold, seed=seed, progress=False, **grading)
        if not len(run):
            raise ValueError("the run holds no verdict: there is nothing to report")
        own = str(run["judge"].iloc[0] if "judge" in run else score)
        origin = (data.origin(items) if items is not None else {}) or facts.get("note", {}).get("origin", {})
        ids, nothing = text_ids(run), np.full(len(run), np.nan)
        card = Card(
            judge=name if isinstance(name, str) else names.get(own, own),
            collection=collection or str(origin.get("source") or run.attrs.get("name") or "the collection"),
            truth=truth_name or ("people's preferences" if truth is None else str(truth)),
            run=run,
            trials=trials,
            pairs=trials.judge is None and ORIGINAL not in trials.runs,
            scores=Scored(ids, nothing, nothing, groups_of(run)),
            venue=venue,
            options={"n_resamples": n_resamples, "seed": seed},
            others={names.get(key, key): column for key, column in others.items()},
            facts=facts,
        )
        if card.pairs:
            card.run = run.assign(preference=run.get("preference") if truth is None else run[truth])
            if "verdict_ba" in run:
                card.probes = battery(trials, probes=["position"], progress=False)
        else:
            values, label, card.ratings = _truth(run, items, truth)
            # With a truth of one's own, the mean of people would stand in where it is missing.
            rest = run if truth is None else run.drop(columns="human_scores", errors="ignore")
            card.run, card.truth = rest.assign(gold=values), truth_name or label
            card.scores = scored(card.run, score)
            here = np.isin(ids, list(trials.items["id"])) if trials.judge is not None else slice(None)
            trials.runs[ORIGINAL] = card.run[here].reset_index(drop=True)
            if np.isfinite(card.scores.score).any() and controls != 0:
                card.probes = battery(trials, pairs=pairs, probes=PROBES, samples=samples, progress=progress)
        measure(card, by)
    texts = [str(alert.message) for alert in alerts if issubclass(alert.category, (UserWarning, RuntimeWarning))]
    card.remarks += {re.sub(r"\d+", "", text): text for text in texts}.values()  # once, whatever its numbers
    if out is not None:
        card.write(out)
    return card


def _some(items: Any, controls: int | None, seed: int) -> Any:
    """Whole groups at random until there are as many items as the controls may have."""
    if controls is None or len(items) <= controls:
        return items
    columns = [name for name in ("id", "group") if name in items.column_names]
    groups = pd.Series(groups_of(items.select_columns(columns).to_pandas())).astype(str)
    order = np.random.default_rng(seed).permutation(np.unique(groups))
    sizes = groups.value_counts()[order].cumsum().to_numpy()
    return items.select(np.flatnonzero(groups.isin(order[: np.searchsorted(sizes, controls) + 1])))


def _runs(given: Any, score: str) -> tuple[dict[str, pd.DataFrame], dict[str, pd.Series], str]:
    """Runs by name as `Trials` has them, further judges' scores by id, and the column of the scores."""
    if isinstance(given, Mapping):
        if not {ORIGINAL, COMPARED} & set(given):
            names = ", ".join(map(repr, given)) or "none"
            raise ValueError(f"there is no run of the items themselves (runs: {names}): name it {ORIGINAL!r}, or"
                             f" {COMPARED!r} for pairs")  # fmt: skip
        return dict(given), {}, score
    if score not in given and "verdict" in given:
        return {COMPARED: given}, {}, score
    if score not in given:
        judges = given.attrs.get("judges") or list(given)
        raise ValueError(f"the frame has no column {score!r}: name the judge's with score=, such as {judges[:6]}")
    ids = given.get("id", given.get("item", pd.Series(range(len(given)), given.index)))
    frame = given.assign(id=ids, judge=given.get("judge", score))
    answers = frame[score].dropna()
    if len(answers) and answers.map(lambda value: isinstance(value, str)).all():
        return {COMPARED: frame.assign(verdict=frame[score])}, {}, score
    raters = [name for name in frame.attrs.get("raters", ()) if name in frame]
    if raters and "human_scores" not in frame:
        frame["human_scores"] = frame[raters].to_numpy().tolist()
    judges = [name for name in frame.attrs.get("judges", ()) if name in frame and name != score]
    others = {name: frame[name].set_axis(text_ids(frame)) for name in judges}
    return {ORIGINAL: frame.assign(score=frame[score])}, others, "score"


def _truth(run: pd.DataFrame, items: Any, truth: Any) -> tuple[np.ndarray, str, list[Any]]:
    """The truth of each verdict, its name, and people's ratings of each item."""
    ids = text_ids(run)

    def column(name: str) -> list[Any]:
        cells = {} if items is None else {str(row["id"]): row.get(name) for row in data.rows_of(items)}
        return list(run[name]) if name in run else [cells.get(id) for id in ids]

    people = [list(cell) if isinstance(cell, (list, tuple, np.ndarray)) else [] for cell in column("human_scores")]
    ratings = [people[place] for place in np.flatnonzero(~pd.Series(ids).duplicated())]
    if truth is None:
        own = run[run.columns.intersection(["id", "gold", "human_scores"])]
        series = data.truth(own if items is None else items)
        if series.attrs.get("labelled_by"):
            raise ValueError("people scored items that a review chose, which are no random sample: report on a"
                             " collection without the column `weight`, or correlate with weights=")  # fmt: skip
        counts = {sum(not is_missing(value) for value in cell) for cell in ratings} - {0}
        if series.name == "mean of people" and len(counts) == 1:
            series = series.rename("one rater's score" if counts == {1} else f"the mean of {counts.pop()} raters")
    elif isinstance(truth, str):
        series = pd.to_numeric(pd.Series(column(truth), ids, dtype=object, name=truth.replace("_", " ")))
        if series.isna().all():
            raise ValueError(f"truth={truth!r} is no column of the run or of the items, or holds no number")
    else:
        series = truth
    values = series.set_axis(series.index.map(str)).groupby(level=0).first().reindex(ids)
    return values.to_numpy(float), str(series.name or "the truth given"), ratings
