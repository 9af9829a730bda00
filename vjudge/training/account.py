"""Results of trainings: the log of one, the losses of several, ablations of a recipe over seeds."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import pandas as pd

from vjudge import plots
from vjudge.judging.runs import MANIFEST
from vjudge.metrics.multiple_testing import ALPHA
from vjudge.plots.style import short
from vjudge.results import NotComputed, Result, analysis
from vjudge.training.trainer import LOG


def read_log(out: str | Path) -> pd.DataFrame:
    """Read the log of a training, one row per entry.

    Raises:
        NotComputed: the folder has no log.
    """
    file = Path(out).expanduser() / LOG
    if not file.is_file():
        raise NotComputed(f"{str(out)!r} holds no {LOG}: give the out= of fine_tune")
    return pd.read_json(file, lines=True, precise_float=True)


@analysis
def training_log(out: str | Path) -> Result:
    """Show how a training went: its loss and, where it was graded, its agreement with the truth.

    Args:
        out: the folder that `fine_tune` got, whose training may still run.

    Raises:
        NotComputed: there is no log, or no loss in it yet.
    """
    log = read_log(out)
    if "loss" not in log:
        raise NotComputed("no loss is logged yet: look again when the first steps are done")
    losses = log.dropna(subset="loss")  # other entries are evaluations
    start = losses.iloc[0]
    final = losses.iloc[-1]
    reading = (
        f"The loss goes from {start['loss']:.3g} at step {start['step']:.0f} to"
        f" {final['loss']:.3g} at step {final['step']:.0f}."
    )
    if "pearson" in log and log["pearson"].notna().any():
        graded = log.dropna(subset="pearson")
        # The rule by which `JudgeTrainer.evaluate` keeps the best weights.
        best = graded.loc[(graded["pearson"] * graded["parsed"]).idxmax()]
        numbers = short(best["pearson"], best["low"], best["high"])
        reading += (
            f" On {best['n']:.0f} held-out items the agreement is highest at step"
            f" {best['step']:.0f}, r = {numbers}, where {best['parsed']:.0%} of the verdicts can be"
            " read; these weights are the judge."
        )
    manifest = Path(out).expanduser() / MANIFEST
    # A training that has ended has a result; where its loss did not fall, "lesson" says so.
    result = json.loads(manifest.read_text("utf-8")).get("result")
    caveats = [] if result else ["this training has not ended"]
    if result and result["lesson"]:
        caveats.append(result["lesson"])
    return Result(
        log,
        name="fine_tune_curve",
        reading=reading,
        caption="Loss per token of the answer, and agreement with the true score on held-out items"
        " while it trains; bars: 95% bootstrap intervals over groups",
        caveats=caveats,
        plot=partial(plots.training_curve, log),
    )


@analysis
def losses(logs: Mapping[str, pd.DataFrame]) -> Result:
    """Compare how the loss of several trainings falls over the examples they have seen.

    Args:
        logs: name of a training -> a frame with the columns examples (seen so far) and loss.

    Raises:
        NotComputed: no log has a loss.
    """
    tables = []
    for name, log in logs.items():
        tables.append(log[["examples", "loss"]].dropna().assign(training=name))
    table = pd.concat(tables, ignore_index=True)
    if table.empty:
        raise NotComputed("no log has a loss; log_every is the number of steps between two")
    sentences = []
    for name, rows in table.groupby("training", sort=False):
        before = rows.iloc[0]
        after = rows.iloc[-1]
        sentences.append(
            f"{name}: from {before['loss']:.3g} to {after['loss']:.3g} in {after['examples']:,.0f}"
        )
    return Result(
        table,
        name="fine_tune_real",
        reading=f"Loss per token over examples: {'; '.join(sentences)}.",
        caption="Loss per token over the examples seen",
        plot=partial(
            plots.curves,
            table.assign(low=table["loss"], high=table["loss"]),  # no interval is known
            x="examples",
            y="loss",
            by="training",
            log=True,
            labels=("examples", "loss per token"),
        ),
    )


@analysis
def ablations(table: str | Path | pd.DataFrame) -> Result:
    """Show what each part of a recipe is worth: the recipe without it, over seeds.

    Args:
        table: a frame or a CSV file with one row per ablation, the full recipe first. Columns:
            ablation; pearson with low and high over seeds (NaN: undefined); difference from the
            full recipe with difference_low, difference_high; p_holm, the p value of the difference
            after Holm's correction.

    Raises:
        NotComputed: the file does not exist.
    """
    if not isinstance(table, pd.DataFrame):
        if not Path(table).is_file():
            raise NotComputed(f"there is no {str(table)!r}; `make ablations` writes it")
        table = pd.read_csv(table)
    # Sort the ablations into three: significantly different from the full recipe, not significantly
    # different, and without a correlation.
    full = table["ablation"].iloc[0]
    significant = table["p_holm"] < ALPHA
    undefined = table["pearson"].isna()
    sentences = [
        f"{row.ablation} {short(row.difference, row.difference_low, row.difference_high)}"
        for row in table[significant].itertuples()
    ]
    listed = "; ".join(sentences) or "none"
    reading = f"From the {full} differ by more than seeds do, after Holm: {listed}."
    undecided = table.loc[~significant & ~undefined & (table["ablation"] != full), "ablation"]
    if len(undecided):
        reading += f" Not decided so: {', '.join(undecided)}."
    if undefined.any():
        reading += f" Without a correlation: {', '.join(table.loc[undefined, 'ablation'])}."
    # The plot takes its points from the column `estimate`.
    bars = table.rename(columns={"pearson": "estimate"})
    bars["ablation"] += undefined.map({True: " (undefined)", False: ""})
    return Result(
        table,
        name="ablations_forest",
        reading=reading,
        caption="Pearson correlation with the true score of judges trained without one part of the"
        " recipe; means over seeds with 95% t intervals, cut at 1; undefined: a seed without"
        " verdicts, or with one score",
        caveats=["few seeds: an undecided part is not shown to be harmless"],
        plot=partial(plots.forest, bars, rows="ablation"),
        view=table[["ablation", "pearson", "low", "high", "difference", "p_holm"]],
    )
