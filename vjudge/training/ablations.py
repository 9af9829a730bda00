"""Ablations: what each part of the recipe is worth, one function each, in one table with intervals over seeds.

    python -m vjudge.training.ablations --out outputs/ablations --save figures     # `make ablations`

To add one, write a function that takes a `Trial` and returns it changed, and enter it in `ABLATIONS`.
"""

from __future__ import annotations

import argparse
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pandas as pd
from scipy import stats

from vjudge.data import canonical, length_test, load_collection
from vjudge.judge import load_judge
from vjudge.metrics._tables import holm
from vjudge.probes import blanked
from vjudge.probes.perturbations import replaced
from vjudge.prompts import TEMPLATES, Template
from vjudge.records import as_score
from vjudge.runs import replace_file
from vjudge.training.finetune import fine_tune
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
    pool, test = (replaced(rows, reference_answer=[None] * len(rows)) for rows in (trial.rows, trial.test))
    return replace(trial, pool=pool, test=test)


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
    scored = np.flatnonzero(~np.isnan(gold))
    ranks = pd.Series(words[scored]).rank(method="first", pct=True).to_numpy()
    levels = pd.Series(gold[scored]).rank(method="dense").to_numpy()
    fits = np.abs(ranks * levels.max() + 0.5 - levels) < 1
    chosen = scored[fits][: trial.n_rows]
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
    items: Callable[..., Any],
    *,
    test: Callable[..., Any],
    out: str | Path,
    seeds: Sequence[int] = (0, 1, 2),
    names: Sequence[str] | None = None,
    template: str | Template | None = None,
    n_rows: int | None = None,
    max_new_tokens: int = 1_024,
    confidence: float = 0.95,
    **options: Any,
) -> pd.DataFrame:
    """Train a judge for each ablation and seed, on as many rows and steps, and grade held-out items with each.

    Every training, every verdict and the table of each seed is kept; the same call goes on where it was cut off. Each
    seed draws other rows, test items and first values, so that the intervals hold over all of these.

    Args:
        base: as for `fine_tune`.
        items: seed= -> the collection that rows are drawn from; "length tells the score" needs about five times
            `n_rows`.
        test: seed= -> held-out rows with gold scores.
        out: gets a folder a seed, and in it a folder an ablation.
        seeds: two or more; of drawing and of training.
        names: out of `ABLATIONS`; None is all of them. The full recipe is always among them.
        template: the wording; None takes the base's own.
        n_rows: how many rows a training sees; None is a fifth of the collection.
        max_new_tokens: of an answer in the test; a judge that never learned to end writes so many.
        confidence: of the intervals over seeds.
        options: further arguments of `fine_tune`, such as recipe, steps or lora.

    Returns:
        What `over_seeds` makes of them.

    Raises:
        ValueError: an unknown name, or an ablation that does not apply.
        CollectionError: as `fine_tune`.
    """
    chosen = list(ABLATIONS) if names is None else [FULL, *(name for name in names if name != FULL)]
    if unknown := [name for name in chosen if name not in ABLATIONS]:
        raise ValueError(f"unknown ablations: {', '.join(unknown)}; use {', '.join(ABLATIONS)}")
    wording = TEMPLATES[template] if isinstance(template, str) else template or load_judge(base, device="cpu").template
    tables = {}
    for seed in seeds:
        pool, folder = canonical(items(seed=seed)).shuffle(seed=seed), Path(out) / f"seed-{seed}"
        grading = {"max_new_tokens": max_new_tokens}
        start = Trial(pool, canonical(test(seed=seed)), wording, n_rows or max(1, len(pool) // 5), options, grading)
        trials = {name: ABLATIONS[name](start) for name in chosen}  # what can't be done is said before any training
        rows, runs = [], {}
        for name, trial in trials.items():
            row, runs[name] = _try(base, trial, folder / name.replace(" ", "-"), seed)
            rows.append({"ablation": name, **row, "difference": _difference(runs[name], runs[FULL])})
        tables[seed] = pd.DataFrame(rows).set_index("ablation")
        replace_file(folder / "ablations.csv", tables[seed].to_csv(float_format="%.4f"))
    return over_seeds(tables, confidence=confidence)


def _try(base: str | Path, trial: Trial, folder: Path, seed: int) -> tuple[dict[str, Any], pd.DataFrame]:
    """One training and its test: the row of its seed's table, and the run."""
    options = {**trial.options, **({"allow": trial.allow} if trial.allow else {})}
    trained = fine_tune(base, trial.rows, out=folder, template=trial.template, seed=seed, **options)
    judge = load_judge(trained, template=trial.template)
    run = judge.grade(trial.test, out=folder / "test", progress=False, **trial.grading)
    log, readable = read_log(folder), run["score"].notna()
    row = {
        "pearson": _pearson(run["score"], run["gold"]),
        "readable": float(readable.mean()),
        "n": int(readable.sum()),
        "rows": len(trial.rows),
        "steps": int(log["step"].max()),
        "seconds": float(log["seconds"].max()),
        "length_auc": float(length_test(trial.rows, n_resamples=0).loc["words", "auc"]),
    }
    return row, run


def _pearson(scores: pd.Series, gold: pd.Series) -> float:
    """Pearson over what both have; NaN where it is undefined, because nothing can be read or all scores are one."""
    both = scores.notna() & gold.notna()
    if both.sum() < 3 or scores[both].nunique() < 2 or gold[both].nunique() < 2:
        return np.nan
    return float(np.corrcoef(scores[both], gold[both])[0, 1])


def _difference(run: pd.DataFrame, full: pd.DataFrame) -> float:
    """The run's correlation less the full recipe's, over the items that both scored; NaN for the full recipe itself."""
    if run is full:
        return np.nan
    both = run["score"].notna() & full["score"].notna()
    return _pearson(run["score"][both], run["gold"][both]) - _pearson(full["score"][both], full["gold"][both])


def over_seeds(tables: Mapping[int, pd.DataFrame], *, confidence: float = 0.95) -> pd.DataFrame:
    """The ablations of several seeds in one table: means, with t intervals over seeds.

    Args:
        tables: seed -> its table, indexed by ablation: pearson, difference (to the full recipe of that seed), readable,
            rows, steps, length_auc.
        confidence: of the intervals.

    Returns:
        A row an ablation: pearson, the mean over the seeds in which it is defined, with low and high; undefined, the
        number of seeds in which it is not, because nothing could be read or all scores were one; seed_0 and so on, each
        seed's value; difference to the full recipe with difference_low, difference_high, p (t test over seeds) and
        p_holm (over the ablations); readable, the mean share of verdicts that could be read; rows, steps, length_auc.
        With fewer than two defined seeds an interval is NaN. Intervals and p assume that seeds vary normally; a mean
        near 1 may have an interval that passes it, which is cut there.

    Raises:
        ValueError: the seeds have other ablations, or trained on other numbers of rows or steps.

    >>> one, two = (pd.DataFrame({"pearson": [r], "difference": [np.nan], "readable": [1.0], "rows": [9], "steps": [2],
    ...     "length_auc": [0.5]}, index=pd.Index(["full recipe"], name="ablation")) for r in (0.8, 0.9))
    >>> over_seeds({0: one, 1: two})[["pearson", "seed_1", "undefined"]].round(2).to_numpy().tolist()
    [[0.85, 0.9, 0.0]]
    """
    first = next(iter(tables.values()))
    for seed, table in tables.items():
        if not table[["rows", "steps"]].equals(first[["rows", "steps"]]):
            raise ValueError(f"seed {seed} has other ablations, rows or steps than the first: combine equal trainings")
    rows = []
    for name in first.index:
        values = pd.Series({f"seed_{seed}": float(table.loc[name, "pearson"]) for seed, table in tables.items()})
        differences = np.array([float(table.loc[name, "difference"]) for table in tables.values()])
        mean, low, high, _ = _interval(values.to_numpy(), confidence)
        apart, apart_low, apart_high, p = _interval(differences, confidence)
        columns = ("readable", "rows", "steps", "length_auc")
        means = {column: np.mean([table.loc[name, column] for table in tables.values()]) for column in columns}
        rows.append(
            {"ablation": name, "pearson": mean, "low": max(low, -1.0), "high": min(high, 1.0)}
            | {"undefined": int(values.isna().sum()), **values}
            | {"difference": apart, "difference_low": apart_low, "difference_high": apart_high, "p": p, **means}
        )
    summary = pd.DataFrame(rows).set_index("ablation").astype({"rows": int, "steps": int})
    summary.insert(summary.columns.get_loc("p") + 1, "p_holm", holm(summary["p"].to_numpy()))
    return summary


def _interval(values: np.ndarray, confidence: float) -> tuple[float, float, float, float]:
    """Mean, t interval and the p of a mean of 0, over the values that are defined."""
    values = values[~np.isnan(values)]
    if len(values) < 2:
        return (float(values[0]) if len(values) else np.nan), np.nan, np.nan, np.nan
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # equal values: the interval is a point
        test = stats.ttest_1samp(values, 0.0)
    spread = test.confidence_interval(confidence)
    return float(values.mean()), float(spread.low), float(spread.high), float(test.pvalue)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the ablations on Scenes from the embedded base, and write the table."""
    parser = argparse.ArgumentParser(prog="python -m vjudge.training.ablations", description=main.__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder for the trainings; the same call goes on")
    parser.add_argument("--save", type=Path, required=True, help="folder for ablations.csv")
    parser.add_argument("--base", default="tiny-base")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--rows", type=int, default=3_000)
    parser.add_argument("--test", type=int, default=600, help="items of the test split")
    parser.add_argument("--seeds", type=int, nargs="+", default=(0, 1, 2))
    parser.add_argument("--only", nargs="+", help=f"out of: {', '.join(ABLATIONS)}")
    parser.add_argument("--tables", type=Path, nargs="+", help="combine these tables, one a seed, and train nothing")
    options = parser.parse_args(arguments)
    if options.tables:
        tables = [pd.read_csv(file, index_col="ablation") for file in options.tables]
        table = over_seeds(dict(zip(options.seeds, tables, strict=True)))
    else:
        table = ablate(
            options.base,
            lambda seed: load_collection("scenes", split="train", limit=5 * options.rows, seed=seed),
            test=lambda seed: load_collection("scenes", split="test", limit=options.test, seed=seed),
            out=options.out,
            seeds=options.seeds,
            names=options.only,
            n_rows=options.rows,
            max_new_tokens=80,
            recipe="scenes",
            steps=options.steps,
        )
    options.save.mkdir(parents=True, exist_ok=True)
    replace_file(options.save / "ablations.csv", table.to_csv(float_format="%.4f"))
    print(table.to_string(float_format="{:.3f}".format))


if __name__ == "__main__":
    main()
