"""All probes that apply, in one table, with what did not apply and why."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pandas as pd
from tqdm.auto import tqdm

from vjudge.probes import biases
from vjudge.probes.outcome import Unmet, table, unmet
from vjudge.probes.runs import COMPARED, Trials

PROBES: dict[str, Callable[..., pd.DataFrame]] = {
    "blindness": biases.blindness,
    "question": biases.question,
    "rubric": biases.rubric,
    "reference": biases.reference,
    "length": biases.length,
    "verbosity": biases.verbosity,
    "formatting": biases.formatting,
    "injection": biases.injection,
    "scale": biases.scale,
    "image_kinds": biases.image_kinds,
    "position": biases.position,
    "consistency": biases.consistency,
}
"""The battery's probes, in the order of its table. `drift` compares two runs or judges and stands by itself."""


def battery(
    judge: Any, items: Any = None, *, pairs: Any = None, probes: Sequence[str] | None = None, kind: Any = "kind",
    samples: int = 4, progress: bool = True, **options: Any,
) -> pd.DataFrame:  # fmt: skip
    """Run every probe that applies to a judge, and return one table with a verdict on each row.

    Each perturbation is graded once, whichever probes use it: about twenty-five passes over the items. All tests share
    Holm's correction: of honest judges, one in twenty at most is accused of anything.

    Args:
        judge: a judge; or runs by name, see `Trials`, among them "sampled" for `consistency` and "compared" for
            `position` (what `Judge.compare` returned with orders="both").
        items: the collection.
        pairs: for `position`; made of the items where they hold several responses to a question.
        probes: names of `PROBES`; all when None.
        kind: for `image_kinds`.
        samples: for `consistency`.
        progress: whether to show a progress bar over the probes.
        options: of `Trials`: out, score, gold, margins, least, confidence, seed, and of `Judge.grade`.

    Returns:
        The probes' rows, see `outcome.COLUMNS`. A probe that does not apply has one row, which says in `note` what it
        needs. `attrs["not_run"]` maps it to that; `attrs["n_tests"]` counts the p values, `attrs["against"]` lists
        (probe, case) of verdicts against what must be, and `attrs["open"]` those of which nothing can be said.
    """
    chosen = list(PROBES) if probes is None else list(probes)
    unknown = [name for name in chosen if name not in PROBES]
    if unknown:
        raise ValueError(f"probes {unknown} are unknown; use some of {', '.join(PROBES)}")
    if not isinstance(judge, (Mapping, pd.DataFrame, Trials)):
        options = {"progress": False, **options}
    trials = Trials.of(judge, items, **options)
    rows: list[dict[str, Any]] = []
    not_run: dict[str, str] = {}
    for name in tqdm(chosen, desc="probes", unit="probe", disable=not progress):
        try:
            further: dict[str, Any] = {"image_kinds": {"kind": kind}, "consistency": {"samples": samples}}.get(name, {})
            if name == "position" and trials.judge is not None and COMPARED not in trials.runs:
                some = pairs if pairs is not None else biases.pairs_of_items(
                    trials.items, limit=len(trials.items), seed=trials.seed
                )  # fmt: skip
                further = {"pairs": some or None}
            rows += PROBES[name](trials, **further).to_dict("records")
        except Unmet as error:
            not_run[name] = str(error)
            rows.append(unmet(name, str(error), judge=trials.name))
    result = table(rows, confidence=trials.confidence, seed=trials.seed)
    result.attrs["not_run"] = not_run
    return result
