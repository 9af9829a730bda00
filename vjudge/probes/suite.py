"""All probes that apply, in one table, with what did not apply and why."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from tqdm.auto import tqdm

from vjudge.metrics.comparison import holm
from vjudge.probes import lengths, nine, positions, repeats, scales, sensitivity, stability
from vjudge.probes.outcome import COLUMNS, LEVEL, Unmet, table, unmet
from vjudge.probes.trials import COMPARED, Trials

PROBES: dict[str, Callable[..., pd.DataFrame]] = {
    "blindness": sensitivity.blindness,
    "question": sensitivity.question,
    "rubric": sensitivity.rubric,
    "reference": stability.reference,
    "length": lengths.length,
    "verbosity": lengths.verbosity,
    "formatting": stability.formatting,
    "injection": stability.injection,
    "scale": scales.scale,
    "image_kinds": scales.image_kinds,
    "position": positions.position,
    "consistency": repeats.consistency,
    "judgebias": nine.judgebias,
}
"""The battery's probes, in the order of its table. `drift` compares two runs or judges and stands by itself."""


def battery(
    judge: Any, items: Any = None, *, pairs: Any = None, probes: Sequence[str] | None = None, kind: Any = "kind",
    samples: int = 4, out: Any = None, score: str = "score", confidence: float = 0.95, seed: int = 0,
    progress: bool = True, **grading: Any,
) -> pd.DataFrame:  # fmt: skip
    """Run every probe that applies to a judge, and return one table.

    Each perturbation is graded once, whichever probes use it: about thirty passes over the items.

    Args:
        judge: a judge; or runs by name, see `vjudge.probes.sensitivity`, among them "sampled" for `consistency` and
            "compared" for `position` (what `Judge.compare` returned with orders="both").
        items: the collection.
        pairs: for `position`; made of the items where they hold several responses to a question.
        probes: names of `PROBES`; all when None.
        kind: for `image_kinds`.
        samples: for `consistency`.
        out: a folder, a sub-folder a run: after an interruption, the same call continues there.
        score, confidence, seed, grading: as in `vjudge.probes.sensitivity`.
        progress: whether to show a progress bar over the probes.

    Returns:
        The probes' rows with a further column p_holm: p after Holm's correction over all rows that have a p. `reading`
        speaks of p, not of p_holm. A probe that does not apply has one row, which says in `note` what it needs.
        `attrs["not_run"]` maps it to that, `attrs["n_tests"]` counts the p values, `attrs["found"]` lists (probe, case)
        of what must stay and moved at p_holm < .05, and `attrs["not_shown"]` what must move and did not.

    Source: Holm, Scandinavian Journal of Statistics 6 (1979).
    """
    chosen = list(PROBES) if probes is None else list(probes)
    unknown = [name for name in chosen if name not in PROBES]
    if unknown:
        raise ValueError(f"probes {unknown} are unknown; use some of {', '.join(PROBES)}")
    options = dict(grading) if isinstance(judge, (Mapping, pd.DataFrame, Trials)) else {"progress": False, **grading}
    trials = Trials.of(judge, items, out=out, seed=seed, confidence=confidence, **options)
    common: dict[str, Any] = {"score": score, "confidence": confidence, "seed": seed}
    rows: list[dict[str, Any]] = []
    not_run: dict[str, str] = {}
    for name in tqdm(chosen, desc="probes", unit="probe", disable=not progress):
        try:
            if name == "position":
                frame = _position(trials, pairs, confidence=confidence, seed=seed)
            else:
                further = {"image_kinds": {"kind": kind}, "consistency": {"samples": samples}}.get(name, {})
                frame = PROBES[name](trials, **common, **further)
            rows += frame.to_dict("records")
        except Unmet as error:
            not_run[name] = str(error)
            rows.append(unmet(name, str(error), judge=trials.name))
    found = table(rows, confidence=confidence, seed=seed)
    found.insert(COLUMNS.index("p") + 1, "p_holm", holm(found["p"].to_numpy(dtype=float)))
    sure = found["p_holm"] < LEVEL
    named = list(zip(found["probe"], found["case"], strict=True))
    found.attrs |= {
        "not_run": not_run,
        "n_tests": int(found["p"].notna().sum()),
        "found": [named[i] for i in np.flatnonzero(sure & (found["must"] == "stay"))],
        "not_shown": [named[i] for i in np.flatnonzero((found["p_holm"] >= LEVEL) & (found["must"] == "move"))],
    }
    return found


def _position(trials: Trials, pairs: Any, *, confidence: float, seed: int) -> pd.DataFrame:
    judge = trials.judge if trials.judge is not None else trials.runs.get(COMPARED)
    if judge is None:
        raise Unmet('needs a comparison of pairs in both orders: pass it as the run "compared"')
    if pairs is None and not isinstance(judge, pd.DataFrame):
        made = positions.pairs_of_items(trials.items, limit=len(trials.items), seed=seed)
        pairs = made or None
    out = None if trials.out is None else trials.out / COMPARED
    return positions.position(judge, pairs, out=out, confidence=confidence, seed=seed, **(
        {} if isinstance(judge, pd.DataFrame) else trials.grading
    ))  # fmt: skip
