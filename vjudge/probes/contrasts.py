"""The same items before and after one change: how the scores moved, and what that did to their agreement with gold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from vjudge.probes.catalogue import PERTURBATIONS
from vjudge.probes.estimates import NAN, Estimate, coefficient, mean
from vjudge.probes.outcome import Unmet, row, unmet
from vjudge.probes.trials import Scored, Trials, scored


class Contrast:
    """The scores of the same items before and after one change.

    Args:
        before, after: scores by item.
        tolerance: a change of at least this many score points counts as a move.

    Attributes: delta (after - before), gold, group and ids of the items scored in both; n_left_out (items of
    `after` without both scores) and moved (share).
    """

    def __init__(self, before: Scored, after: Scored, *, tolerance: float = 0.5) -> None:
        old, new = before, after
        if not np.array_equal(old.ids, new.ids):
            place = {id: row for row, id in enumerate(old.ids)}
            unknown = [id for id in new.ids if id not in place]
            if unknown:
                raise ValueError(
                    f"{len(unknown)} ids of the second run are not in the first ({', '.join(map(repr, unknown[:5]))}): "
                    "compare runs of the same items"
                )
            old = old[[place[id] for id in new.ids]]
        delta = new.score - old.score
        used = ~np.isnan(delta)
        self.delta, self.ids, self.gold, self.group = delta[used], new.ids[used], old.gold[used], old.group[used]
        self.n_left_out = int((~used).sum())
        self.flags = np.abs(self.delta) >= tolerance
        self.moved = float(self.flags.mean()) if used.any() else NAN

    @classmethod
    def of(cls, before: pd.DataFrame, after: pd.DataFrame, *, score: str, tolerance: float = 0.5) -> Contrast:
        """The contrast of a column of two runs."""
        return cls(scored(before, score), scored(after, score), tolerance=tolerance)

    def keep(self, rows: np.ndarray) -> None:
        """Go on with some of the items."""
        for name in ("delta", "ids", "gold", "group", "flags"):
            setattr(self, name, getattr(self, name)[rows])
        self.moved = float(self.flags.mean()) if len(self.flags) else NAN

    @property
    def has_gold(self) -> bool:
        """Whether gold scores of these items are known and differ."""
        return len(np.unique(self.gold[~np.isnan(self.gold)])) > 1


def change(contrast: Contrast, *, confidence: float) -> Estimate:
    """The mean change of the score, in points."""
    return mean(contrast.delta, contrast.group, confidence=confidence)


def agreement(contrast: Contrast, *, confidence: float) -> Estimate:
    """How much the slope of score on gold changes: score points a gold point; -1 where a sound judge loses all."""
    known = ~np.isnan(contrast.gold)
    gold = contrast.gold[known]
    design = np.column_stack([gold - gold.mean(), np.ones(len(gold))])
    return coefficient(contrast.delta[known], design, contrast.group[known], confidence=confidence)


def contrasts(
    trials: Trials, probe: str, measures: Mapping[str, tuple[str, ...]], *, score: str, confidence: float
) -> list[dict[str, Any]]:
    """A row for each perturbation and measure.

    Args:
        trials: the runs.
        probe: name of the probe.
        measures: perturbation -> its measures, of "change" and "agreement". A measure of agreement falls back on the
            mean change in size where the gold scores are unknown, and says so.
        score, confidence: as the probes have them.
    """
    made = []
    for name in trials.available(tuple(measures)):
        kind = PERTURBATIONS[name]
        case = name.replace("_", " ")
        try:
            after = trials.run(name)
            pair = Contrast.of(trials.run(), after, score=score)
        except Unmet as error:
            if trials.judge is None:
                raise
            made.append(unmet(probe, str(error), judge=trials.name) | {"case": case, "must": kind.must})
            continue
        told: dict[str, Any] = dict(
            judge=trials.name, probe=probe, must=kind.must, missing=pair.n_left_out, moved=pair.moved
        )
        for measure in measures[name]:
            note = kind.does
            if measure == "agreement" and pair.has_gold:
                estimate, unit = agreement(pair, confidence=confidence), "score per gold point"
            elif measure == "agreement":
                estimate, unit = mean(np.abs(pair.delta), pair.group, confidence=confidence), "score points, absolute"
                note += "; gold unknown, so the size of the change, against none at all: for greedy decoding"
            else:
                estimate, unit = change(pair, confidence=confidence), "score points"
            made.append(row(estimate, case=f"{case}: {measure}", unit=unit, note=note, **told))
    return made
