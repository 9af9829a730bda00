"""`report`: the runs that a card rests on, graded now or given, and the truth they are held against."""

from __future__ import annotations

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
from vjudge.probes import PERTURBATIONS, Trials, battery
from vjudge.probes.trials import COMPARED, ORIGINAL, groups_of, scored, text_ids
from vjudge.reports.card import Card
from vjudge.runs import Run, RunError

PROBES = ("blindness", "verbosity", "length", "injection", "position", "consistency")
CONTROLS = tuple(name for name in PERTURBATIONS if name.startswith(("image_", "response_padded", "injected_")))
SAMPLES = 4  # verdicts an item for consistency


def report(
    judge: Any,
    items: Any = None,
    *,
    truth: str | pd.Series | None = None,
    score: str = "score",
    by: str | None = None,
    venue: str = "acl",
    out: str | Path | None = None,
    controls: int | None = 200,
    gold: str = "observed",
    manifest: str | Path | None = None,
    name: Mapping[str, str] | None = None,
    collection: str | None = None,
    n_resamples: int = 2_000,
    seed: int = 0,
    progress: bool = True,
    **grading: Any,
) -> Card:
    """Make a judge's report card: agreement under the human ceiling, its biases, failures, calibration and cost.

    Args:
        judge: a judge, which then grades the items and the controls; or a run; a frame of `load_verdicts`, whose
            further judges stand beside this one; or runs by name, as `probes.Trials` has them.
        items: what was graded, or is to be.
        truth: None for gold, else the mean of people; a column of the run; or a Series by id, whose name captions use.
        score: the judge's column: "score", "expected_score", or in a frame of verdicts the judge's name.
        by: a column of the run; agreement is then given for each of its values too.
        venue: of the paper's figures, one of `plots.VENUES`.
        out: a folder for the card, the paper, and in `runs` what is graded, so that the same call continues after an
            interruption. None writes nothing.
        controls: the most items that controls are graded on, in whole groups drawn at random; None for all, 0 for none.
        gold: "observed", "exact" or "rated", see `probes.Trials`.
        manifest: the folder of a run that is given; a run that is graded has its own.
        name: names of judges in the data -> those to print; collection: what the card calls the items.
        n_resamples, seed: of resampling and draws; progress: whether to say the number of verdicts beforehand.
        grading: further options of `Judge.grade`.

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
    others, names = dict[str, pd.Series](), name or {}
    with warnings.catch_warnings(record=True) as alerts, tempfile.TemporaryDirectory() as temporary:
        warnings.simplefilter("always")
        warnings.filterwarnings("ignore", "constrained_layout")  # of a figure that shows as much itself
        if isinstance(judge, (pd.DataFrame, Mapping)):
            runs, others = _runs(judge, score)
            column = score if isinstance(judge, Mapping) else "score"
            trials = Trials(runs, items, score=column, gold=gold, seed=seed)
            run = runs[ORIGINAL if ORIGINAL in runs else COMPARED]
            some: Any = run
        else:
            if items is None:
                raise ValueError("a judge needs items to grade: pass the collection as items=")
            items = data.canonical(items.to_dict("records") if isinstance(items, pd.DataFrame) else items)
            some, passes = _some(items, controls, seed), len(CONTROLS) + SAMPLES
            if progress:
                line = f"{len(items):,} items once, {len(some):,} under {passes} controls"
                say(f"report: about {len(items) + passes * len(some):,} verdicts: {line}; vj.plan says what they take")
            home = Path(temporary if out is None else out, "runs")
            run = judge.grade(items, out=home / "all", progress=progress, **grading)
            with suppress(RunError):  # not every judge keeps a journal
                facts = dict(Run(home / "all").manifest)
            trials = Trials(judge, some, out=home, score=score, gold=gold, seed=seed, progress=False, **grading)
        if not len(run):
            raise ValueError("the run holds no verdict: there is nothing to report")
        pairs = trials.judge is None and ORIGINAL not in trials.runs
        values, truth_name, ratings = _truth(run, items, truth, pairs)
        rest = run if truth is None else run.drop(columns="human_scores", errors="ignore")  # they would fill its gaps
        run = rest.assign(**{"preference" if pairs else "gold": values})
        if not pairs:
            trials.runs[ORIGINAL] = run[run["id"].isin(list(some["id"]))].reset_index(drop=True)
        own = str(run["judge"].iloc[0] if "judge" in run else score)
        source = data.origin(items).get("source") if items is not None else None
        empty = {"score": np.nan, "gold": np.nan, "group": groups_of(run)}
        scores = pd.DataFrame(empty, text_ids(run)) if pairs else scored(run, trials.score)
        probes: pd.DataFrame | str = "no verdict could be read" if controls else "controls=0: no control was asked for"
        if pairs:
            probes = battery(trials, probes=["position"], progress=False)
        elif scores["score"].notna().any() and controls != 0:
            probes = battery(trials, probes=PROBES, samples=SAMPLES, progress=progress)
        card = Card(
            judge=names.get(own, own),
            collection=collection or str(source or run.attrs.get("name") or "the collection"),
            truth=truth_name,
            run=run,
            pairs=pairs,
            scores=scores,
            trials=trials,
            venue=venue,
            by=by,
            options={"n_resamples": n_resamples, "seed": seed},
            facts=facts,
            others={names.get(key, key): column for key, column in others.items()},
            ratings=ratings,
            probes=probes,
        )
        card.measure()
    texts = [str(alert.message) for alert in alerts if issubclass(alert.category, (UserWarning, RuntimeWarning))]
    card.remarks += dict.fromkeys(texts)
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


def _runs(given: Any, score: str) -> tuple[dict[str, pd.DataFrame], dict[str, pd.Series]]:
    """Runs by name as `Trials` has them, and further judges' scores by id."""
    if isinstance(given, Mapping):
        if not {ORIGINAL, COMPARED} & set(given):
            raise ValueError(
                f"there is no run of the items themselves: name it {ORIGINAL!r}, or {COMPARED!r} for pairs"
            )
        return dict(given), {}
    frame: pd.DataFrame = given
    if score not in frame and "verdict" in frame:
        return {COMPARED: frame}, {}
    judges = [name for name in frame.attrs.get("judges", ()) if name in frame]
    if score not in frame:
        raise ValueError(f"the frame has no column {score!r}: name the judge's with score=, such as {judges[:6]}")
    ids = frame.get("id", frame.get("item", pd.Series(range(len(frame)), frame.index)))
    run = frame.assign(id=ids, judge=frame.get("judge", score))
    if pd.api.types.infer_dtype(frame[score], skipna=True) == "string":
        return {COMPARED: run.assign(verdict=frame[score])}, {}
    if "human_scores" not in run and (raters := [name for name in frame.attrs.get("raters", ()) if name in frame]):
        run["human_scores"] = frame[raters].to_numpy().tolist()
    return {ORIGINAL: run.assign(score=run[score])}, {
        name: frame[name].set_axis(text_ids(run)) for name in judges if name != score
    }


def _truth(run: pd.DataFrame, items: Any, truth: Any, pairs: bool) -> tuple[Any, str, list[Any]]:
    """The truth of each verdict, its name, and people's ratings of each item."""
    if isinstance(truth, str) and truth not in run:
        raise ValueError(
            f"truth={truth!r} is no column of the run ({', '.join(map(str, run))}): give one, or a Series by id"
        )
    if pairs:
        return run.get(truth or "preference"), truth or "people's preferences", []
    ids = text_ids(run)
    frame = run[run.columns.intersection(["id", "gold", "human_scores"])] if items is None else items
    cells = {str(row["id"]): row.get("human_scores") for row in data.rows_of(frame)}
    ratings = [list(cells.get(id) or ()) for id in dict.fromkeys(ids)]
    if truth is None:
        truth = data.truth(frame)
        if truth.attrs.get("labelled_by"):
            raise ValueError("people scored items that a review chose, which are no random sample: report on a"
                             " collection without the column `weight`, or correlate with weights=")  # fmt: skip
        counts = {len(cell) for cell in ratings} - {0}
        if truth.name == "mean of people" and len(counts) == 1:
            truth = truth.rename("one rater's score" if counts == {1} else f"the mean of {counts.pop()} raters")
    elif isinstance(truth, str):
        truth = pd.Series(pd.to_numeric(run[truth]).to_numpy(), ids, name=truth.replace("_", " "))
    values = truth.set_axis(truth.index.map(str)).groupby(level=0).first().reindex(ids)
    return values.to_numpy(float), str(truth.name or "the truth given"), ratings
