"""Ablations: what each part of the recipe is worth, in one table with intervals over seeds (`make ablations`).

To add one, write a function that takes a `Trial` and returns it changed, and enter it in `ABLATIONS`.
"""

from __future__ import annotations

import argparse
import json
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

from vjudge.data import canonical, length_test, load_collection, n_words
from vjudge.judge import load_judge
from vjudge.metrics._tables import holm
from vjudge.probes import blanked
from vjudge.probes.perturbations import replaced
from vjudge.prompts import Template
from vjudge.records import as_score
from vjudge.runs import replace_file
from vjudge.training.finetune import MANIFEST, fine_tune

FULL = "full recipe"
VERDICT_TOKENS = 8  # enough for "[RESULT] 5": what a judge that gives its score first writes after it is not graded
_SECTION = re.compile(r"###Score Rubrics:\n\[?\{criteria\}\]?\n\{levels\}\n\n")


@dataclass(frozen=True)
class Trial:
    """One training on the first `n_rows` of a pool in random order, and its test; `options` are `fine_tune`'s."""

    pool: datasets.Dataset
    test: datasets.Dataset
    template: Template
    n_rows: int
    options: Mapping[str, Any] = field(default_factory=dict)
    max_new_tokens: int = 1_024

    @property
    def rows(self) -> datasets.Dataset:
        """The rows that are trained on."""
        return self.pool.select(range(self.n_rows))


def trained(trial: Trial, **options: Any) -> Trial:
    """Other arguments of `fine_tune`."""
    return replace(trial, options={**trial.options, **options})


def verdict_first(trial: Trial, *, shape: str) -> Trial:
    """The score alone, or before the feedback, which then can't be thought through for it."""
    return replace(trained(trial, shape=shape), max_new_tokens=VERDICT_TOKENS)


def without_image(trial: Trial) -> Trial:
    """Every picture plain grey, in training and in the test: what the texts alone give away."""
    return replace(trial, pool=blanked(trial.rows), test=blanked(trial.test))


def without_reference(trial: Trial) -> Trial:
    """No reference answer, in training or in the test."""
    pool, test = (replaced(rows, reference_answer=[None] * len(rows)) for rows in (trial.rows, trial.test))
    return replace(trial, pool=pool, test=test)


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
    chosen = fits.index[fits][: trial.n_rows]
    if len(chosen) < trial.n_rows:
        raise ValueError(
            f"length_tells needs {trial.n_rows} rows whose length fits their score and {len(trial.pool)} rows hold"
            f" {len(chosen)}: give more items, or a smaller n_rows"
        )
    return replace(trained(trial, allow=("length", "scores")), pool=trial.pool.select(chosen))


def fewer_rows(trial: Trial, *, share: float) -> Trial:
    """A share of the rows for as many steps: a point of the learning curve."""
    return replace(trial, n_rows=max(1, round(trial.n_rows * share)))


ABLATIONS: dict[str, Callable[[Trial], Trial]] = {
    FULL: trained,
    "no feedback": partial(verdict_first, shape="score"),
    "score before feedback": partial(verdict_first, shape="score-first"),
    "no image": without_image,
    "no reference answer": without_reference,
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

    Every training, verdict and table of a seed is kept, and the same call goes on where it was cut off. Each seed draws
    other rows, test items and first values, so that the intervals hold over all of these.

    Args:
        base: as for `fine_tune`, which gets `options` too, such as recipe, steps or lora.
        items: seed= -> the collection that rows are drawn from; "length tells the score" needs about five times
            `n_rows`.
        test: seed= -> held-out rows with gold scores.
        out: gets a folder a seed, and in it a folder an ablation.
        seeds: two or more; of drawing and of training.
        names: out of `ABLATIONS`; None is all of them. The full recipe is always among them.
        n_rows: how many rows a training sees; None is a fifth of the collection.
        max_new_tokens: of an answer in the test.

    Returns:
        What `over_seeds` makes of them.

    Raises:
        ValueError: an unknown name, or an ablation that does not apply.
        CollectionError: as `fine_tune`.
    """
    chosen = list(ABLATIONS) if names is None else [FULL, *(name for name in names if name != FULL)]
    if unknown := [name for name in chosen if name not in ABLATIONS]:
        raise ValueError(f"unknown ablations: {', '.join(unknown)}; use {', '.join(ABLATIONS)}")
    wording, tables = load_judge(base, device="cpu").template, {}
    for seed in seeds:
        pool, folder = canonical(items(seed=seed)).shuffle(seed=seed), Path(out) / f"seed-{seed}"
        n = n_rows or max(1, len(pool) // 5)
        start = Trial(pool, canonical(test(seed=seed)), wording, n, options, max_new_tokens)
        trials = {name: ABLATIONS[name](start) for name in chosen}  # what can't be done is said before any training
        rows, runs = dict[str, dict[str, Any]](), dict[str, pd.DataFrame]()
        for name, trial in trials.items():
            rows[name], run = _try(base, trial, folder / name.replace(" ", "-"), seed)
            full = runs.setdefault(FULL, run)
            both = run["score"].notna() & full["score"].notna()
            own, whole = (side["score"].corr(side["gold"], min_periods=3) for side in (run[both], full[both]))
            rows[name]["difference"] = np.nan if run is full else own - whole
        tables[seed] = pd.DataFrame.from_dict(rows, orient="index").rename_axis("ablation")
        replace_file(folder / "ablations.csv", tables[seed].to_csv(float_format="%.4f"))
    return over_seeds(tables)


def _try(base: str | Path, trial: Trial, folder: Path, seed: int) -> tuple[dict[str, Any], pd.DataFrame]:
    """One training and its test: the row of its seed's table, and the run."""
    judge = fine_tune(base, trial.rows, out=folder, template=trial.template, seed=seed, **trial.options)
    run = load_judge(judge, template=trial.template).grade(
        trial.test, out=folder / "test", max_new_tokens=trial.max_new_tokens, progress=False
    )
    row = {"pearson": run["score"].corr(run["gold"], min_periods=3), "readable": run["score"].notna().mean()}
    row |= {"rows": len(trial.rows), "steps": json.loads((folder / MANIFEST).read_text("utf-8"))["result"]["steps"]}
    return {**row, "length_auc": length_test(trial.rows, n_resamples=0).loc["words", "auc"]}, run


def over_seeds(tables: Mapping[int, pd.DataFrame]) -> pd.DataFrame:
    """The ablations of several seeds in one table: means, with 95 % t intervals over seeds.

    Args:
        tables: seed -> its table, indexed by ablation, as `ablate` writes it.

    Returns:
        A row an ablation: pearson, the mean over the seeds in which it is defined, with low and high (cut at -1 and 1);
        undefined, the number of seeds in which it is not, because nothing could be read or all scores were one; seed_0
        and so on; difference to the full recipe with difference_low, difference_high, p (t test over seeds) and p_holm
        (over the ablations); readable, the mean share of verdicts that could be read; rows, steps, length_auc. With
        fewer than two defined seeds an interval is NaN. Intervals and p assume that seeds vary normally.

    Raises:
        ValueError: the seeds have other ablations, or trained on other numbers of rows or steps.
    """
    first = next(iter(tables.values()))
    for seed, table in tables.items():
        if not table[["rows", "steps"]].equals(first[["rows", "steps"]]):
            raise ValueError(f"seed {seed} has other ablations, rows or steps than the first: combine equal trainings")
    columns = ("pearson", "difference")
    values, differences = (pd.DataFrame({seed: t[name] for seed, t in tables.items()}) for name in columns)
    summary = _intervals(values, ["pearson", "low", "high"]).clip(-1.0, 1.0)
    summary["undefined"] = values.isna().sum(axis=1)
    summary = summary.join(values.add_prefix("seed_"))
    summary = summary.join(_intervals(differences, ["difference", "difference_low", "difference_high", "p"]))
    summary["p_holm"] = holm(summary["p"].to_numpy())
    means = sum(table[["readable", "length_auc"]] for table in tables.values()) / len(tables)
    return summary.assign(**means[["readable"]], rows=first["rows"], steps=first["steps"], **means[["length_auc"]])


def _intervals(values: pd.DataFrame, names: Sequence[str]) -> pd.DataFrame:
    """Of each row the mean, its t interval and the p of a mean of 0, over the seeds in which it is defined."""
    rows = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # too few values, or equal ones
        for _, row in values.iterrows():
            test = stats.ttest_1samp(row.dropna().to_numpy(float), 0.0)
            spread = test.confidence_interval(0.95)
            rows.append([row.mean(), spread.low, spread.high, test.pvalue][: len(names)])
    return pd.DataFrame(rows, values.index, list(names))


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the ablations on Scenes from the embedded base, and write the table."""
    parser = argparse.ArgumentParser(prog="python -m vjudge.training.ablations", description=main.__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder for the trainings; the same call goes on")
    parser.add_argument("--save", type=Path, required=True, help="folder for ablations.csv")
    options = parser.parse_args(arguments)
    table = ablate(
        "tiny-base",
        partial(load_collection, "scenes", split="train", limit=15_000),
        test=partial(load_collection, "scenes", split="test", limit=600),
        out=options.out,
        n_rows=3_000,
        max_new_tokens=80,
        recipe="scenes",
        steps=300,
    )
    replace_file(options.save / "ablations.csv", table.to_csv(float_format="%.4f"))
    print(table.to_string(float_format="{:.3f}".format))


if __name__ == "__main__":
    main()
