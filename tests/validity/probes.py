"""Do the probes find what was planted, and nothing else? False positives, power and coverage on simulated judges.

Each simulation draws items from a large simulated collection and a judge of its own, plants one effect, and runs the
public probe on the runs of that judge. With no effect planted, the share of p below .05 is the false-positive rate;
with one, it is the power. Coverage is the share of 95 % intervals that hold the true effect on the judge's own scale
(rounded and clipped scores make it smaller than what was planted), which is the mean estimate over the other half of
the simulations. Where a score must move, the null is a judge that loses just the least share that counts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from validity.studies import POOL, STUDIES, Pool, Study

ALPHA = 0.05
DESIGNS = {"500 items, 500 images": (500, 1), "120 items, 24 images": (120, 5)}


def exact(count: int, of: int, name: str) -> dict[str, float]:
    """A share with its exact 95 % interval."""
    interval = stats.binomtest(count, of).proportion_ci(0.95, method="exact")
    return {name: count / of, f"{name}_low": interval.low, f"{name}_high": interval.high}


def summarise(drawn: pd.DataFrame, *, margin: float = np.nan) -> dict[str, Any]:
    """Shares over simulations of one case, with exact 95 % intervals; an undefined result counts as no rejection.

    `stays` is the share whose interval lies within the margin.
    """
    estimate = drawn["effect"].to_numpy(dtype=float)
    half = np.arange(len(drawn)) % 2 == 0
    truth = np.where(half, np.nanmean(estimate[~half]), np.nanmean(estimate[half]))
    defined = int((~np.isnan(estimate)).sum())
    result = {"effect": float(np.nanmean(estimate)), "simulations": len(drawn), "undefined": len(drawn) - defined}
    result |= exact(int((drawn["p"] < ALPHA).sum()), len(drawn), "rejected")
    result |= exact(int(((drawn["low"] <= truth) & (truth <= drawn["high"])).sum()), defined, "covered")
    inside = (drawn["low"] > -margin) & (drawn["high"] < margin)
    result["stays"] = np.nan if np.isnan(margin) else float(inside.mean())
    if drawn["p"].isna().all():
        result |= dict.fromkeys(("rejected", "rejected_low", "rejected_high"), np.nan)
    return result


def study_all(
    *,
    studies: Sequence[Study] = STUDIES,
    null_simulations: int = 2_000,
    power_simulations: int = 300,
    pool_size: int = POOL,
    seed: int = 0,
    report: Callable[[str], None] | None = None,
) -> pd.DataFrame:
    """False-positive rate, power and coverage of every probe: a row for each case, design and planted size.

    Null simulations have nothing planted, or no test; slow studies and those without a test get a quarter. `report`
    gets a line for each finished cell.
    """
    rows: list[dict[str, Any]] = []
    for longer in dict.fromkeys(study.longer for study in studies):
        for design, (n, per_group) in DESIGNS.items():
            pool = Pool(per_group, n=pool_size, longer=longer, seed=seed)
            for study, effect in ((s, effect) for s in studies if s.longer == longer for effect in s.effects):
                is_null = effect == study.effects[0]
                count = null_simulations if is_null or not study.tested else power_simulations
                count //= 4 if study.slow or not study.tested else 1
                drawn = study.simulate(pool, n, effect, simulations=count, seed=seed)
                for name, cell in drawn.groupby("case", sort=False):
                    setting = {"probe": study.name, "case": name, "label": study.label, "design": design}
                    setting |= {"null": is_null, "n": int(cell["n"].median()), "groups": int(cell["groups"].median())}
                    rows.append(setting | {"planted": float(effect), "unit": study.unit})
                    rows[-1] |= summarise(cell, margin=study.margin)
                    if report:
                        report(", ".join(f"{key} {value}" for key, value in rows[-1].items()))
    return pd.DataFrame(rows)


def summary(cells: pd.DataFrame) -> pd.DataFrame:
    """A row for each case: false positives and coverage by design, the smallest planted effect with power .9, and how
    often a judge without it is cleared."""
    rows = []
    for (probe, case), part in cells.groupby(["probe", "case"], sort=False):
        row: dict[str, Any] = {"probe": probe, "case": case}
        for design, here in part.groupby("design", sort=False):
            null = here[here["null"] & here["rejected"].notna()]
            larger = here["planted"] > here.loc[here["null"], "planted"].max()
            n = int(design.split()[0])  # tells the designs apart
            row[f"FP, n={n}"] = null["rejected"].iloc[0] if len(null) else np.nan
            row[f"found, n={n}"] = here[larger & (here["rejected"] >= 0.9)]["planted"].min()
            row[f"cover, n={n}"] = np.average(here["covered"], weights=here["simulations"])
            row[f"stays, n={n}"] = null["stays"].iloc[0] if len(null) else np.nan
        rows.append({**row, "planted in": part["unit"].iloc[0]})
    return pd.DataFrame(rows)
