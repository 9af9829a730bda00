"""How a judge uses its scale: leniency, range, and whether either differs between kinds of image.

The table is that of `vjudge.probes.sensitivity`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from vjudge.probes.estimates import Estimate, coefficient, mean
from vjudge.probes.outcome import Unmet, row, table
from vjudge.probes.trials import Scored, Trials, scored


def scale(
    judge: Any, items: Any = None, *, out: Any = None, score: str = "score", confidence: float = 0.95, seed: int = 0,
    **grading: Any,
) -> pd.DataFrame:  # fmt: skip
    """Leniency and use of the score range, for each judge of a run. All must stay at zero.

    Args: as in `vjudge.probes.sensitivity`; a run may hold several judges in its column `judge`.

    Returns:
        For each judge: "leniency" (mean of score less gold), "compression" (slope of score on gold, less one: negative
        where good and bad are pulled together), "best score" and "worst score" (share of items given it, less the
        share that earned it, where the ends are those of the gold scores). Whole scores that cannot leave the scale are
        compressed at its ends, even for a judge without bias: use score="expected_score" where there is one.

    Raises:
        Unmet: no gold scores.
    """
    trials = Trials.of(judge, items, out=out, seed=seed, confidence=confidence, **grading)
    run = trials.run()
    judges = run["judge"].astype(str) if "judge" in run else pd.Series(trials.name, index=run.index)
    rows: list[dict[str, Any]] = []
    for name in judges.unique():
        frame = scored(run[(judges == name).to_numpy()], score)
        used = ~(np.isnan(frame.score) | np.isnan(frame.gold))
        if np.isnan(frame.gold).all():
            raise Unmet("needs gold scores: without them nobody knows whether a mild judge saw good answers")
        y, gold, group = frame.score[used], frame.gold[used], frame.group[used]
        best, worst = np.nanmax(frame.gold), np.nanmin(frame.gold)
        told: dict[str, Any] = dict(judge=name, probe="scale", must="stay", missing=int((~used).sum()))
        share = "share given less share earned"
        error = leniency(frame[used], confidence=confidence)
        slope = compression(frame[used], confidence=confidence)
        at_best = mean((y >= best - 0.5) * 1.0 - (gold == best), group, confidence=confidence)
        at_worst = mean((y <= worst + 0.5) * 1.0 - (gold == worst), group, confidence=confidence)
        rows += [
            row(error, case="leniency", unit="score points", **told),
            row(slope, case="compression", unit="score per gold point, less one", **told),
            row(at_best, case=f"best score, {best:g}", unit=share, **told),
            row(at_worst, case=f"worst score, {worst:g}", unit=share, **told),
        ]
    return table(rows, confidence=confidence, seed=seed)


def leniency(run: Scored, *, confidence: float) -> Estimate:
    """The mean of score less gold."""
    return mean(run.score - run.gold, run.group, confidence=confidence)


def compression(run: Scored, *, confidence: float) -> Estimate:
    """The slope of score on gold, less one."""
    centred = np.column_stack([run.gold - run.gold.sum() / max(1, len(run.gold)), np.ones(len(run.gold))])
    return coefficient(run.score - run.gold, centred, run.group, confidence=confidence)


def against_others(values: np.ndarray, here: np.ndarray, group: np.ndarray, *, confidence: float) -> Estimate:
    """The mean of the values where `here` is true, less the mean of the others."""
    return coefficient(values, np.column_stack([here * 1.0, np.ones(len(here))]), group, confidence=confidence)


def image_kinds(
    judge: Any, items: Any = None, *, kind: str | Sequence[Any] | pd.Series = "kind", out: Any = None,
    score: str = "score", confidence: float = 0.95, seed: int = 0, **grading: Any,
) -> pd.DataFrame:  # fmt: skip
    """Whether a kind of image (text-rich, generated, ...) is judged more mildly, or worse, than the others.

    Args:
        kind: the column that names each item's kind, in the run or in the items; or the kinds themselves, one for each
            row of the original run.
        Others: as in `vjudge.probes.sensitivity`.

    Returns:
        For each kind, against all others: "leniency" (difference in mean error: score less gold) and "error"
        (difference in mean absolute error). Both must stay 0.

    Raises:
        Unmet: no column of kinds, one kind only, or no gold scores.
    """
    trials = Trials.of(judge, items, out=out, seed=seed, confidence=confidence, **grading)
    run = trials.run()
    frame = scored(run, score)
    if not isinstance(kind, str):
        if len(kind) != len(run):
            raise ValueError(f"kind has {len(kind)} values for {len(run)} rows: give one for each")
        kinds = pd.Series(list(kind), index=run["id"].astype(str).to_numpy())
    elif kind in run:
        kinds = pd.Series(run[kind].to_numpy(), index=run["id"].astype(str).to_numpy())
    else:
        kinds = trials.texts(kind)[kind]
    kinds = kinds[~kinds.index.duplicated()].reindex(frame.ids)
    if kinds.nunique() < 2:
        named = repr(kind) if isinstance(kind, str) else "kind"
        raise Unmet(f"needs two kinds of image or more; {named} has {kinds.nunique()}")
    if np.isnan(frame.gold).all():
        raise Unmet("needs gold scores: without them nobody knows whether a kind of image earned its scores")
    used = ~(np.isnan(frame.score) | np.isnan(frame.gold) | kinds.isna().to_numpy())
    error = (frame.score - frame.gold)[used]
    group, label = frame.group[used], kinds.to_numpy()[used]
    rows = []
    named = pd.unique(label)
    for name in named if len(named) > 2 else named[:1]:  # of two kinds, the second would mirror the first
        here = label == name
        told: dict[str, Any] = dict(judge=trials.name, probe="image_kinds", must="stay", missing=int((~used).sum()))
        told |= {"note": f"{int(here.sum())} items of this kind against {int((~here).sum())} others"}
        for case, values in (("leniency", error), ("error", np.abs(error))):
            estimate = against_others(values, here, group, confidence=confidence)
            rows.append(row(estimate, case=f"{name}: {case}", unit="score points, against the others", **told))
    return table(rows, confidence=confidence, seed=seed)
