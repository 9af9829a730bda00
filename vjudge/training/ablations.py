"""Ablations: what each part of the recipe is worth, in one table with intervals over seeds.

To add one, write a function that takes a `Trial` and returns it changed, and enter it in `ABLATIONS`.
"""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pandas as pd
from scipy import stats

from vjudge.data import canonical, length_test, n_words
from vjudge.judge import load_judge
from vjudge.metrics._tables import holm
from vjudge.probes import blanked
from vjudge.probes.perturbations import replaced
from vjudge.prompts import Template
from vjudge.records import as_score
from vjudge.training.finetune import MANIFEST, fine_tune

FULL = "full recipe"
VERDICT_TOKENS = 8  # enough for "[RESULT] 5": what a judge that gives its score first writes after it is not graded
_SECTION = re.compile(r"###Score Rubrics:\n\[?\{criteria\}\]?\n\{levels\}\n\n")


@dataclass(frozen=True)
class Trial:
    """One training and its test."""

    rows: datasets.Dataset  # that are trained on: the first of `pool`
    pool: datasets.Dataset  # in random order
    test: datasets.Dataset
    template: Template
    options: Mapping[str, Any]  # of `fine_tune`


def trained(trial: Trial, **options: Any) -> Trial:
    """Other arguments of `fine_tune`."""
    return replace(trial, options={**trial.options, **options})


def without(trial: Trial, change: Callable[[Any], Any]) -> Trial:
    """Training and test without something."""
    return replace(trial, rows=change(trial.rows), test=change(trial.test))


def without_rubric(trial: Trial) -> Trial:
    """The wording without its section of criterion and levels; ValueError where it has none."""
    name, (body, n) = trial.template.name, _SECTION.subn("", trial.template.body)
    if n != 1:
        raise ValueError(f"template {name!r} has no section of criterion and levels: leave 'no rubric' out")
    return replace(trial, template=replace(trial.template, name=f"{name}-without-rubric", body=body))


def length_tells(trial: Trial) -> Trial:
    """As many rows, drawn so that long responses are mostly good ones; ValueError where the pool has too few."""
    gold = pd.Series([as_score(value) for value in trial.pool["gold"]])
    words = pd.Series([n_words(str(text)) for text in trial.pool["response"]])[gold.notna()]
    levels = gold.dropna().rank(method="dense")
    fits = (words.rank(method="first", pct=True) * levels.max() + 0.5 - levels).abs() < 1
    chosen = fits.index[fits][: len(trial.rows)]
    if len(chosen) < len(trial.rows):
        raise ValueError(
            f"length_tells needs {len(trial.rows)} rows whose length fits their score and {len(trial.pool)} rows hold"
            f" {len(chosen)}: give more items, or a smaller n_rows"
        )
    return replace(trained(trial, allow=("length", "scores")), rows=trial.pool.select(chosen))


def fewer_rows(trial: Trial, share: float) -> Trial:
    """A share of the rows for as many steps: a point of the learning curve."""
    return replace(trial, rows=trial.rows.select(range(max(1, round(len(trial.rows) * share)))))


ABLATIONS: dict[str, Callable[[Trial], Trial]] = {
    FULL: trained,
    "no feedback": partial(trained, shape="score"),
    "score before feedback": partial(trained, shape="score-first"),
    "no image": partial(without, change=blanked),  # plain grey ones: what the texts alone give away
    "no reference answer": partial(without, change=lambda rows: replaced(rows, reference_answer=[None] * len(rows))),
    "no rubric": without_rubric,
    "length tells the score": length_tells,
    "a quarter of the rows": partial(fewer_rows, share=1 / 4),
    "a sixteenth of the rows": partial(fewer_rows, share=1 / 16),
    "nothing frozen": partial(trained, freeze=()),
    "decoder frozen too": partial(trained, freeze=("tower", "decoder")),
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
    n_rows: int | None = None,
    max_new_tokens: int = 1_024,
    **options: Any,
) -> pd.DataFrame:
    """Train a judge for each ablation and seed, on as many rows and steps, and grade held-out items with each.

    Every training and verdict is kept, and the same call goes on where it was cut off. Each seed draws other rows, test
    items and first values, so that the intervals hold over all of these.

    Args:
        base: as for `fine_tune`, which gets `options` too, such as recipe, steps or lora.
        items: seed= -> the collection that rows are drawn from, for "length tells the score" five times `n_rows`.
        test: seed= -> held-out rows with gold scores.
        out: gets a folder a seed, and in it a folder an ablation.
        seeds: two or more; of drawing and of training.
        names: out of `ABLATIONS`, where the full recipe is always among them; None is all.
        n_rows: how many rows a training sees; None is a fifth of the collection.
        max_new_tokens: of an answer in the test.

    Returns:
        A row an ablation: pearson, the mean over seeds, with low and high (95 %, cut at -1 and 1); undefined, in how
        many seeds it is, because nothing could be read or all scores were one; seed_0 and so on; difference to the full
        recipe with difference_low, difference_high, p (t test over seeds) and p_holm (over the ablations); readable,
        the mean share of verdicts that could be read; rows, steps, length_auc. Intervals and p assume that seeds vary
        normally, and are NaN with fewer than two.

    Raises:
        ValueError: an unknown name, or an ablation that does not apply, before any training.
    """
    chosen = list(ABLATIONS) if names is None else [FULL, *(name for name in names if name != FULL)]
    if unknown := [name for name in chosen if name not in ABLATIONS]:
        raise ValueError(f"unknown ablations: {', '.join(unknown)}; use {', '.join(ABLATIONS)}")
    wording, results = load_judge(base, device="cpu").template, []
    for seed in seeds:
        pool = canonical(items(seed=seed)).shuffle(seed=seed)
        n_rows = n_rows or max(1, len(pool) // 5)
        start = Trial(pool.select(range(n_rows)), pool, canonical(test(seed=seed)), wording, options)
        trials = {name: ABLATIONS[name](start) for name in chosen}  # what can't be done is said before any training
        full: pd.DataFrame | None = None
        for name, trial in trials.items():
            folder = Path(out) / f"seed-{seed}" / name.replace(" ", "-")
            judge = fine_tune(base, trial.rows, out=folder, template=trial.template, seed=seed, **trial.options)
            tokens = max_new_tokens if trial.options.get("shape", "feedback") == "feedback" else VERDICT_TOKENS
            run = load_judge(judge, template=trial.template).grade(
                trial.test, out=folder / "test", max_new_tokens=tokens, progress=False
            )
            full = run if full is None else full
            both = run["score"].notna() & full["score"].notna()
            own, whole = (side["score"].corr(side["gold"], min_periods=3) for side in (run[both], full[both]))
            result = {"seed": seed, "ablation": name, "pearson": run["score"].corr(run["gold"], min_periods=3)}
            result |= {"difference": np.nan if run is full else own - whole, "readable": run["score"].notna().mean()}
            steps = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))["result"]["steps"]
            auc = length_test(trial.rows, n_resamples=0).loc["words", "auc"]
            results.append({**result, "rows": len(trial.rows), "steps": steps, "length_auc": auc})
    return over_seeds(pd.DataFrame(results))


def over_seeds(results: pd.DataFrame) -> pd.DataFrame:
    """What `ablate` returns, of a row a seed and ablation."""
    table = pd.DataFrame(index=pd.Index(results["ablation"].unique(), name="ablation"))
    for column, low, high in (("pearson", "low", "high"), ("difference", "difference_low", "difference_high")):
        values = results.pivot(index="ablation", columns="seed", values=column).reindex(table.index)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # too few values, or equal ones
            test = stats.ttest_1samp(values.to_numpy(float), 0.0, axis=1, nan_policy="omit")
            spread = test.confidence_interval(0.95)
        table = table.assign(**{column: values.mean(axis=1), low: spread.low, high: spread.high})
        if column == "pearson":
            table = table.clip(-1.0, 1.0).assign(undefined=values.isna().sum(axis=1)).join(values.add_prefix("seed_"))
    table = table.assign(p=test.pvalue, p_holm=holm(test.pvalue))
    means = results.groupby("ablation")[["readable", "rows", "steps", "length_auc"]].mean()
    return table.join(means.astype({"rows": int, "steps": int}))
