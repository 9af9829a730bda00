"""The ablations of `figures/ablations.csv`, on Scenes from the embedded base: `make ablations`.

What each part of the recipe is worth, in one table with intervals over seeds. To add one, give it a name in `ABLATIONS`
and a case in `ablated`.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pandas as pd
from scipy import stats

from vjudge.data import canonical, lengths, load_collection
from vjudge.judging.loading import load_judge
from vjudge.metrics import length_test
from vjudge.metrics.multiple_testing import holm
from vjudge.probes import blanked
from vjudge.probes.changes import replaced
from vjudge.prompts import Template
from vjudge.training.finetune import MANIFEST, fine_tune

FULL = "full recipe"
ABLATIONS: tuple[str, ...] = (
    FULL,
    "no feedback",
    "score before feedback",
    "no image",
    "no reference answer",
)
ABLATIONS += (
    "no rubric",
    "length tells the score",
    "a quarter of the rows",
    "a sixteenth of the rows",
)
ABLATIONS += ("nothing frozen", "decoder frozen too")
"""The names of all; the first is what the others are compared with."""
VERDICT_TOKENS = 8  # enough for "[RESULT] 5": what a judge that gives its score first writes after it is not graded
_SECTION = re.compile(r"###Score Rubrics:\n\[?\{criteria\}\]?\n\{levels\}\n\n")


def ablated(
    name: str, pool: datasets.Dataset, n_rows: int, test: datasets.Dataset, template: Template
) -> tuple[datasets.Dataset, datasets.Dataset, Template, Mapping[str, Any]]:
    """An ablation's training rows, of a pool in random order, its test rows, its wording and the arguments of
    `fine_tune` that it changes; ValueError where it does not apply."""
    rows, changes = pool.select(range(n_rows)), dict[str, Any]()
    match name:
        case "no feedback":
            changes = {"shape": "score"}
        case "score before feedback":
            changes = {"shape": "score-first"}
        case "no image":  # plain grey ones: what the texts alone give away
            rows, test = blanked(rows), blanked(test)
        case "no reference answer":
            rows, test = (
                replaced(side, reference_answer=[None] * len(side)) for side in (rows, test)
            )
        case "no rubric":
            body, n = _SECTION.subn("", template.body)
            if n != 1:
                raise ValueError(
                    f"template {template.name!r} has no section of a rubric: leave {name!r} out"
                )
            template = replace(template, name=f"{template.name}-without-rubric", body=body)
        case (
            "length tells the score"
        ):  # as many rows, drawn so that long responses are mostly good ones
            table = lengths(pool).dropna(subset="gold")
            levels = table["gold"].rank(method="dense")
            fits = (
                table["words"].rank(method="first", pct=True) * levels.max() + 0.5 - levels
            ).abs() < 1
            fitting = table.index[fits][:n_rows]
            if len(fitting) < n_rows:
                what = f"{n_rows} rows whose length fits their score, and {len(pool)} rows hold {len(fitting)}"
                raise ValueError(f"{name!r} needs {what}: give more items, or a smaller n_rows")
            rows, changes = pool.select(fitting), {"allow": ("length", "scores")}
        case "a quarter of the rows" | "a sixteenth of the rows":  # for as many steps
            rows = rows.select(range(max(1, round(n_rows / (4 if "quarter" in name else 16)))))
        case "nothing frozen":
            changes = {"freeze": ()}
        case "decoder frozen too":
            changes = {"freeze": ("tower", "decoder")}
    return rows, test, template, changes


def ablate(
    base: str | Path,
    items: Callable[..., Any],
    *,
    test: Callable[..., Any],
    out: str | Path,
    seeds: Sequence[int] = (0, 1, 2),
    names: Sequence[str] = ABLATIONS,
    n_rows: int,
    max_new_tokens: int = 1_024,
    **options: Any,
) -> pd.DataFrame:
    """A row an ablation, the means over seeds with 95 % t intervals; it goes on where it was cut off."""
    if unknown := [name for name in names if name not in ABLATIONS]:
        raise ValueError(f"unknown ablations: {', '.join(unknown)}; use {', '.join(ABLATIONS)}")
    wording, results = load_judge(base, device="cpu").template, []
    for seed in seeds:
        pool, held = canonical(items(seed=seed)).shuffle(seed=seed), canonical(test(seed=seed))
        trials = {
            name: ablated(name, pool, n_rows, held, wording)
            for name in dict.fromkeys([FULL, *names])
        }
        runs = dict[str, pd.DataFrame]()
        for name, (rows, shown, template, changes) in trials.items():
            folder, arguments = (
                Path(out) / f"seed-{seed}" / name.replace(" ", "-"),
                {**options, **changes},
            )
            trained = fine_tune(base, rows, out=folder, template=template, seed=seed, **arguments)
            tokens = (
                max_new_tokens
                if arguments.get("shape", "feedback") == "feedback"
                else VERDICT_TOKENS
            )
            judge = load_judge(trained, template=template)
            run = runs[name] = judge.grade(
                shown, out=folder / "test", max_new_tokens=tokens, progress=False
            )
            both = run["score"].notna() & runs[FULL]["score"].notna()
            own, full = (
                side["score"].corr(side["gold"], min_periods=3)
                for side in (run[both], runs[FULL][both])
            )
            result = {
                "seed": seed,
                "ablation": name,
                "pearson": run["score"].corr(run["gold"], min_periods=3),
            }
            result |= {
                "difference": np.nan if name == FULL else own - full,
                "readable": run["score"].notna().mean(),
            }
            result["steps"] = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))["result"][
                "steps"
            ]
            auc = length_test(rows, n_resamples=0).loc["words", "auc"]
            results.append({**result, "rows": len(rows), "length_auc": auc})
    return over_seeds(pd.DataFrame(results))


def over_seeds(results: pd.DataFrame) -> pd.DataFrame:
    """What `ablate` returns, of a row a seed and ablation."""
    table = pd.DataFrame(index=pd.Index(results["ablation"].unique(), name="ablation"))
    for column, low, high in (
        ("pearson", "low", "high"),
        ("difference", "difference_low", "difference_high"),
    ):
        values = results.pivot(index="ablation", columns="seed", values=column).reindex(table.index)
        mean, error, freedom = values.mean(axis=1), values.sem(axis=1), values.count(axis=1) - 1
        half = error * stats.t.ppf(0.975, freedom)
        table = table.assign(**{column: mean, low: mean - half, high: mean + half})
        if column == "pearson":
            table = (
                table.clip(-1.0, 1.0)
                .assign(undefined=values.isna().sum(axis=1))
                .join(values.add_prefix("seed_"))
            )
    p = 2 * stats.t.sf((mean / error).abs(), freedom)
    means = results.groupby("ablation")[["readable", "rows", "steps", "length_auc"]].mean()
    return table.assign(p=p, p_holm=holm(p)).join(means.astype({"rows": int, "steps": int}))


def main() -> None:
    """Run them, or go on where they were cut off, and write the table."""
    parser = argparse.ArgumentParser(prog="python -m assets.ablations", description=main.__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder for the trainings")
    parser.add_argument("--save", type=Path, required=True, help="folder for ablations.csv")
    options = parser.parse_args()
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
    table.to_csv(options.save / "ablations.csv", float_format="%.4f")
    print(table.to_string(float_format="{:.3f}".format))


if __name__ == "__main__":
    main()
