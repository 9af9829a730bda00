"""What trainings came to, as results: a log, several losses, ablations over seeds."""

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
    """The log of a training, one row an entry; NotComputed: the folder has none."""
    file = Path(out).expanduser() / LOG
    if not file.is_file():
        raise NotComputed(f"{str(out)!r} holds no {LOG}: give the out= of fine_tune")
    return pd.read_json(file, lines=True, precise_float=True)


@analysis
def training_log(out: str | Path) -> Result:
    """Show how a training went: its loss and, where it was graded, agreement with the truth.

    Args:
        out: that of `fine_tune`, also of a training that still runs.
    """
    log = read_log(out)
    if "loss" not in log:
        raise NotComputed("no loss is logged yet: look again when the first steps are done")
    losses = log.dropna(subset="loss")
    start, final = losses.iloc[0], losses.iloc[-1]
    reading = (
        f"The loss goes from {start['loss']:.3g} at step {start['step']:.0f} to"
        f" {final['loss']:.3g} at step {final['step']:.0f}."
    )
    if "pearson" in log and log["pearson"].notna().any():
        graded = log.dropna(subset="pearson")
        best = graded.loc[(graded["pearson"] * graded["parsed"]).idxmax()]
        numbers = short(best["pearson"], best["low"], best["high"])
        reading += (
            f" On {best['n']:.0f} held-out items the agreement is highest at step"
            f" {best['step']:.0f}, r = {numbers}, where {best['parsed']:.0%} of the verdicts can be"
            " read; these weights are the judge."
        )
    manifest = Path(out).expanduser() / MANIFEST
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
        logs: name -> a frame with the columns examples and loss.
    """
    tables = [
        log[["examples", "loss"]].dropna().assign(training=name) for name, log in logs.items()
    ]
    table = pd.concat(tables, ignore_index=True)
    if table.empty:
        raise NotComputed("no log has a loss; log_every is the number of steps between two")
    sentences = []
    for name, rows in table.groupby("training", sort=False):
        before, after = rows.iloc[0], rows.iloc[-1]
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
    """Show what each part of a recipe is worth, over seeds.

    Args:
        table: a frame or a CSV: ablation (the first is the full recipe), pearson with low and high
            over seeds (NaN: undefined), difference from the full recipe with difference_low,
            difference_high, and p_holm.
    """
    if not isinstance(table, pd.DataFrame):
        if not Path(table).is_file():
            raise NotComputed(f"there is no {str(table)!r}; `make ablations` writes it")
        table = pd.read_csv(table)
    full = table["ablation"].iloc[0]
    sure = table["p_holm"] < ALPHA
    undefined = table["pearson"].isna()
    sentences = [
        f"{row.ablation} {short(row.difference, row.difference_low, row.difference_high)}"
        for row in table[sure].itertuples()
    ]
    open_ = table.loc[~sure & ~undefined & (table["ablation"] != full), "ablation"]
    listed = "; ".join(sentences) or "none"
    reading = f"From the {full} differ by more than seeds do, after Holm: {listed}."
    if len(open_):
        reading += f" Not decided so: {', '.join(open_)}."
    if undefined.any():
        reading += f" Without a correlation: {', '.join(table.loc[undefined, 'ablation'])}."
    lines = table.rename(columns={"pearson": "estimate"})
    lines["ablation"] += undefined.map({True: " (undefined)", False: ""})
    return Result(
        table,
        name="ablations_forest",
        reading=reading,
        caption="Pearson correlation with the true score of judges trained without one part of the"
        " recipe; means over seeds with 95% t intervals, cut at 1; undefined: a seed without"
        " verdicts, or with one score",
        caveats=["few seeds: an undecided part is not shown to be harmless"],
        plot=partial(plots.forest, lines, rows="ablation"),
        view=table[["ablation", "pearson", "low", "high", "difference", "p_holm"]],
    )
