"""MM-JudgeBias's two measures over its grid of nine perturbations.

The paper (arXiv 2604.18164, ACL 2026) was not at hand: what follows is built on secondary pages. They say that query,
image and response are perturbed in nine ways over three dimensions: integrality (a part is missing), congruity (parts
don't belong together) and robustness (an irrelevant change); that Bias-Deviation looks at scores that should move and
don't, and Bias-Conformity at scores that should stay and don't. The definitions below are ours, to the letter of this
file, and numbers made with them are not to be put beside the paper's.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from vjudge.probes.catalogue import PERTURBATIONS
from vjudge.probes.contrasts import Contrast
from vjudge.probes.estimates import mean, share
from vjudge.probes.outcome import Unmet, row, table, unmet
from vjudge.probes.trials import Trials

DIMENSIONS = ("integrality", "congruity", "robustness")
NINE: dict[str, dict[str, str]] = {
    dimension: {kind.part: name for name, kind in PERTURBATIONS.items() if kind.dimension == dimension}
    for dimension in DIMENSIONS
}
"""dimension -> part (query, image, response) -> the name of the perturbation of ours that covers the cell."""


def judgebias(
    judge: Any, items: Any = None, *, tolerance: float = 0.5, out: Any = None, score: str = "score",
    confidence: float = 0.95, seed: int = 0, **grading: Any,
) -> pd.DataFrame:  # fmt: skip
    """Bias-Deviation and Bias-Conformity for each of nine perturbations, and for each dimension.

    With s and s' the scores of an item before and after a perturbation, over the items that have both:

    - Bias-Deviation of a perturbation that a sound judge must notice (integrality, congruity): the share of items with
      |s' - s| < tolerance. 1 for a judge that never notices, 0 for one that always does.
    - Bias-Conformity of one that it must not (robustness): the share with |s' - s| >= tolerance. 0 for a judge that is
      never distracted.

    Both lie in 0-1 and lower is better. An item on which a sound judge happens to give the same score after the change
    counts as a deviation too, so that a sound judge need not reach 0; compare judges on the same items.

    Args:
        tolerance: score points; half a level by default, so that any move on a scale of whole scores counts.
        Others: as in `vjudge.probes.sensitivity`. With runs, those present are measured.

    Returns:
        A row a perturbation, "integrality: image blanked" and so on, and a row a dimension: the mean over its
        perturbations of each item's flags. Shares with intervals; no p, for zero is no sensible null.
    """
    trials = Trials.of(judge, items, out=out, seed=seed, confidence=confidence, **grading)
    names = {name: dimension for dimension, cells in NINE.items() for name in cells.values()}
    rows: list[dict[str, Any]] = []
    present = trials.available(tuple(names))
    for dimension in DIMENSIONS:
        flags: list[np.ndarray] = []
        groups: list[np.ndarray] = []
        ids: list[np.ndarray] = []
        measure = "Bias-Conformity" if dimension == "robustness" else "Bias-Deviation"
        must = "stay" if dimension == "robustness" else "move"
        missing = 0
        told: dict[str, Any] = dict(judge=trials.name, probe="judgebias", must=must, unit=f"{measure}, share of items")
        for name in (name for name in present if names[name] == dimension):
            case = f"{dimension}: {name.replace('_', ' ')}"
            try:
                pair = Contrast.of(trials.run(), trials.run(name), score=score, tolerance=tolerance)
            except Unmet as error:
                if trials.judge is None:
                    raise
                rows.append(unmet("judgebias", str(error), judge=trials.name) | {"case": case, "must": must})
                continue
            bad = pair.flags if must == "stay" else ~pair.flags
            estimate = share(bad, pair.group, confidence=confidence)
            told_here = told | {"missing": pair.n_left_out, "moved": pair.moved, "note": PERTURBATIONS[name].does}
            rows.append(row(estimate, case=case, **told_here))
            flags.append(bad.astype(float))
            groups.append(pair.group)
            ids.append(pair.ids)
            missing += pair.n_left_out
        if len(flags) > 1:
            each = pd.DataFrame({"flag": np.concatenate(flags), "group": np.concatenate(groups)})
            per_item = each.groupby(np.concatenate(ids), sort=False).agg(
                flag=("flag", "mean"), group=("group", "first")
            )
            estimate = mean(per_item["flag"].to_numpy(), per_item["group"].to_numpy(), confidence=confidence)
            bounded = estimate.within(0, 1)._replace(p=np.nan)
            note = f"mean of {len(flags)} perturbations"
            rows.append(row(bounded, case=f"{dimension}: all", missing=missing, note=note, **told))
    return table(rows, confidence=confidence, seed=seed)
