"""Ablations: what each part of the recipe is worth, one function each, in one table with intervals.

    python -m vjudge.training.ablations --out outputs/ablations --save figures     # `make ablations`

To add one, write a function that takes a `Trial` and returns it changed, and enter it in `ABLATIONS`.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pandas as pd

from vjudge.data import canonical, length_test, load_collection
from vjudge.judge import load_judge
from vjudge.metrics import compare_judges, correlate
from vjudge.probes import blanked
from vjudge.probes.perturbations import replaced
from vjudge.prompts import TEMPLATES, Template
from vjudge.records import as_score
from vjudge.runs import replace_file
from vjudge.training.tuning import fine_tune
from vjudge.training.watch import read_log

FULL = "full recipe"
VERDICT_TOKENS = 8  # enough for "[RESULT] 5": what a judge that gives its score first writes after it is not graded
_SECTION = re.compile(r"###Score Rubrics:\n\[?\{criteria\}\]?\n\{levels\}\n\n")


@dataclass(frozen=True)
class Trial:
    """One training and its test.

    Args:
        pool: the collection that rows are drawn from, in random order.
        test: held-out rows with gold scores.
        template: the wording, in training and in the test.
        n_rows: how many rows of the pool are trained on: the first ones.
        options: further arguments of `fine_tune`.
        grading: further arguments of `Judge.grade`.
        allow: what `fine_tune` shall not refuse the rows for.
    """

    pool: datasets.Dataset
    test: datasets.Dataset
    template: Template
    n_rows: int
    options: Mapping[str, Any] = field(default_factory=dict)
    grading: Mapping[str, Any] = field(default_factory=dict)
    allow: tuple[str, ...] = ()

    @property
    def rows(self) -> datasets.Dataset:
        """The rows that are trained on."""
        return self.pool.select(range(self.n_rows))


def full(trial: Trial) -> Trial:
    """Nothing taken away: feedback, then score, as published."""
    return trial


def without_feedback(trial: Trial) -> Trial:
    """The score alone: what writing feedback is worth."""
    return replace(trial, options={**trial.options, "shape": "score"}, grading={"max_new_tokens": VERDICT_TOKENS})


def score_before_feedback(trial: Trial) -> Trial:
    """The score first: what feedback teaches if it cannot be thought through before the score."""
    return replace(trial, options={**trial.options, "shape": "score-first"}, grading={"max_new_tokens": VERDICT_TOKENS})


def without_image(trial: Trial) -> Trial:
    """Every picture plain grey, in training and in the test: what the texts alone give away."""
    return replace(trial, pool=blanked(trial.rows), test=blanked(trial.test))


def without_reference(trial: Trial) -> Trial:
    """No reference answer, in training or in the test."""
    return replace(trial, pool=_unreferenced(trial.rows), test=_unreferenced(trial.test))


def without_rubric(trial: Trial) -> Trial:
    """The wording without its section of criterion and levels.

    Raises:
        ValueError: the wording has no such section.
    """
    body, n = _SECTION.subn("", trial.template.body)
    if n != 1:
        raise ValueError(
            f"template {trial.template.name!r} has no section of criterion and levels: leave without_rubric out"
        )
    return replace(trial, template=replace(trial.template, name=f"{trial.template.name}-without-rubric", body=body))


def length_tells(trial: Trial) -> Trial:
    """As many rows, drawn so that long responses are mostly good ones; the test stays balanced.

    Raises:
        ValueError: the pool has too few such rows.
    """
    gold = np.array([as_score(value) for value in trial.pool["gold"]])
    words = np.array([len(str(text).split()) for text in trial.pool["response"]])
    known = np.flatnonzero(~np.isnan(gold))
    ranks = pd.Series(words[known]).rank(method="first", pct=True).to_numpy()
    levels = pd.Series(gold[known]).rank(method="dense").to_numpy()
    fits = np.abs(ranks * levels.max() + 0.5 - levels) < 1
    chosen = known[fits][: trial.n_rows]
    if len(chosen) < trial.n_rows:
        raise ValueError(
            f"length_tells needs {trial.n_rows} rows whose length fits their score and {len(trial.pool)} rows hold"
            f" {len(chosen)}: give more items, or a smaller n_rows"
        )
    return replace(trial, pool=trial.pool.select(chosen), allow=("length", "scores"))


def less_data(trial: Trial, *, share: float) -> Trial:
    """A share of the rows for as many steps: a point of the learning curve."""
    return replace(trial, n_rows=max(1, round(trial.n_rows * share)))


def freezing(trial: Trial, *, parts: Sequence[str]) -> Trial:
    """Other parts kept as they are than the recipe's."""
    return replace(trial, options={**trial.options, "freeze": tuple(parts)})


ABLATIONS: dict[str, Callable[[Trial], Trial]] = {
    FULL: full,
    "no feedback": without_feedback,
    "score before feedback": score_before_feedback,
    "no image": without_image,
    "no reference answer": without_reference,
    "no rubric": without_rubric,
    "length tells the score": length_tells,
    "a quarter of the rows": partial(less_data, share=1 / 4),
    "a sixteenth of the rows": partial(less_data, share=1 / 16),
    "nothing frozen": partial(freezing, parts=()),
    "decoder frozen too": partial(freezing, parts=("tower", "decoder")),
}
"""Name -> what is changed. The first one is what the others are compared with."""


def ablate(
    base: str | Path,
    items: Any,
    *,
    test: Any,
    out: str | Path,
    names: Sequence[str] | None = None,
    template: str | Template | None = None,
    n_rows: int | None = None,
    max_new_tokens: int = 1_024,
    confidence: float = 0.95,
    n_resamples: int = 10_000,
    seed: int = 0,
    progress: bool = True,
    **options: Any,
) -> pd.DataFrame:
    """Train a judge for each ablation, on as many rows and steps, and grade one held-out sample with each.

    Every training and every verdict is kept; the same call goes on where it was cut off.

    Args:
        base: as for `fine_tune`.
        items: the collection that rows are drawn from; "length tells the score" needs about five times `n_rows`.
        test: held-out rows with gold scores.
        out: gets a folder an ablation.
        names: out of `ABLATIONS`; None is all of them. The full recipe is always among them.
        template: the wording; None takes the base's own.
        n_rows: how many rows a training sees; None is a fifth of the collection.
        max_new_tokens: of an answer in the test; a judge that never learned to end writes so many.
        confidence, n_resamples, seed: of the intervals; `seed` is that of drawing and of training, too.
        progress: whether to show bars.
        options: further arguments of `fine_tune`, such as recipe, steps or lora.

    Returns:
        A row an ablation, in the order of `ABLATIONS`: pearson with low and high over the readable verdicts (resampled
        by `group`); difference to the full recipe over the items that both scored, with difference_low,
        difference_high and p (paired permutation); readable, the share of verdicts that can be read; n; rows, steps,
        seconds of the training; length_auc, how well length tells the score in its rows (0.5: not at all). Intervals
        are over test items: one training each, so they hold for these weights and say nothing of other seeds.

    Raises:
        ValueError: an unknown name, or an ablation that does not apply.
        CollectionError: as `fine_tune`.
    """
    asked = list(ABLATIONS) if names is None else [FULL, *(name for name in names if name != FULL)]
    if unknown := [name for name in asked if name not in ABLATIONS]:
        raise ValueError(f"unknown ablations: {', '.join(unknown)}; known are {', '.join(ABLATIONS)}")
    pool = canonical(items).shuffle(seed=seed)
    held = canonical(test)
    wording = TEMPLATES[template] if isinstance(template, str) else template or load_judge(base, device="cpu").template
    grading = {"max_new_tokens": max_new_tokens}
    start = Trial(pool, held, wording, n_rows or max(1, len(pool) // 5), options, grading)
    trials = {name: ABLATIONS[name](start) for name in asked}  # all of them first: what can't be done is said at once
    runs, trained = {}, {}
    for name, trial in trials.items():
        folder = Path(out) / name.replace(" ", "-")
        judge = load_judge(
            fine_tune(
                base, trial.rows, out=folder, template=trial.template, allow=trial.allow, seed=seed, progress=progress,
                **trial.options,
            ),
            template=trial.template,
        )  # fmt: skip
        runs[name] = judge.grade(trial.test, out=folder / "test", progress=progress, **trial.grading)
        log = read_log(folder)
        auc = length_test(trial.rows, n_resamples=0).loc["words", "auc"]
        trained[name] = dict(rows=len(trial.rows), steps=int(log["step"].max()), seconds=float(log["seconds"].max()))
        trained[name] |= {"length_auc": float(auc)}
    return _table(runs, trained, confidence=confidence, n_resamples=n_resamples, seed=seed)


def _table(
    runs: Mapping[str, pd.DataFrame], trained: Mapping[str, Mapping[str, Any]], **resampling: Any
) -> pd.DataFrame:
    """One row a run: its correlation, and its difference to the first."""
    base = runs[FULL]
    gold, groups = base["gold"], base["group"]
    rows = []
    for name, run in runs.items():
        found = correlate(run["score"], gold, groups=groups, **resampling).loc["pearson"]
        row = {"ablation": name, "pearson": found["estimate"], "low": found["low"], "high": found["high"]}
        against = dict.fromkeys(("difference", "difference_low", "difference_high", "p"), np.nan)
        if name != FULL and run["score"].nunique() > 1:
            both = compare_judges(gold, {name: run["score"], FULL: base["score"]}, groups=groups, **resampling)
            (found,) = [each for key, each in both.iterrows() if key[-1] == "pearson"]
            against = dict(zip(against, found[["difference", "low", "high", "p"]], strict=True))
        readable = float(run["score"].notna().mean())
        rows.append({**row, **against, "readable": readable, "n": int(run["score"].notna().sum()), **trained[name]})
    return pd.DataFrame(rows).set_index("ablation")


def _unreferenced(items: datasets.Dataset) -> datasets.Dataset:
    return replaced(items, reference_answer=[None] * len(items))


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the ablations on Scenes from the embedded base, and write the table."""
    parser = argparse.ArgumentParser(prog="python -m vjudge.training.ablations", description=main.__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder for the trainings; the same call goes on")
    parser.add_argument("--save", type=Path, required=True, help="folder for ablations.csv")
    parser.add_argument("--base", default="tiny-base")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--rows", type=int, default=3_000)
    parser.add_argument("--test", type=int, default=600, help="items of the test split")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="+", help=f"out of: {', '.join(ABLATIONS)}")
    options = parser.parse_args(arguments)
    table = ablate(
        options.base,
        load_collection("scenes", split="train", limit=5 * options.rows, seed=options.seed),
        test=load_collection("scenes", split="test", limit=options.test, seed=options.seed),
        out=options.out,
        names=options.only,
        n_rows=options.rows,
        seed=options.seed,
        max_new_tokens=80,
        recipe="scenes",
        steps=options.steps,
    )
    options.save.mkdir(parents=True, exist_ok=True)
    replace_file(options.save / "ablations.csv", table.to_csv(float_format="%.4f"))
    print(table.to_string(float_format="{:.3f}".format))


if __name__ == "__main__":
    main()
