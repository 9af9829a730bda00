"""All probes at once, and the published measures of the same runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pandas as pd

from vjudge.data.schema import Items
from vjudge.probes.biases import (
    anchoring,
    blindness,
    commitment,
    formatting,
    injection,
    rewording,
    rubric,
    verbosity,
)
from vjudge.probes.decisions import MEASURES, ProbeRow
from vjudge.probes.finish import finish
from vjudge.probes.lengths import length
from vjudge.probes.pairs import position
from vjudge.probes.runs import Judged, ProbeRuns
from vjudge.probes.systems import self_preference
from vjudge.results import NotComputed, Result, analysis

_PROBES = (
    blindness,
    rubric,
    rewording,
    length,
    verbosity,
    formatting,
    injection,
    anchoring,
    commitment,
    self_preference,
    position,
)
PROBES: dict[str, Callable[..., Result]] = {probe.__name__: probe for probe in _PROBES}
"""The battery's probes, in the order of its table."""


@analysis
def battery(
    judge: Judged,
    items: Items | None = None,
    *,
    probes: Sequence[str] = (*PROBES,),
    own: str | Sequence[str] | None = None,
    **options: Any,
) -> Result:
    """Run every probe that applies to a judge, with a verdict on each row of one table.

    Each perturbation is graded once: about twenty passes over the items. All tests of a judge share
    Holm's correction, so that at most one honest judge in twenty is accused of anything.

    Args:
        judge, items, options: see `ProbeRuns`. Among given runs, "compared" serves `position`, for
            which a judge compares responses to one question.
        probes: names of `PROBES`.
        own: the judge's own name among the responses' authors, for `self_preference`.

    Returns:
        The rows of all probes. A probe that does not apply has a row with the verdict "not run",
        whose `note` says what it needs. The figure shows the tested effects as shares of their
        margins.

    Raises:
        ValueError: an unknown probe or an invalid option.
        NotComputed: no probe applies.

    Source: each probe's own; Holm (1979) for the correction.

    >>> import pandas as pd
    >>> from vjudge.probes import battery
    >>> run = pd.DataFrame({"id": list("abcd"), "score": [1, 2, 4, 5], "gold": [1, 2, 4, 5]})
    >>> runs = {"original": run, "image_swapped": run.assign(score=3)}
    >>> table = battery(runs, probes=["blindness", "verbosity"]).table
    >>> table["probe"].tolist(), table["verdict"].tolist()
    (['blindness', 'verbosity'], ["can't say", 'not run'])
    """
    unknown = [name for name in probes if name not in PROBES]
    if unknown:
        raise ValueError(f"probe {unknown[0]!r} is unknown; use some of {', '.join(PROBES)}")
    tables = []
    caveats = []
    for runs in ProbeRuns.several(judge, items, **options):
        rows: list[ProbeRow] = []
        for name in probes:
            arguments = {"own": own} if name == "self_preference" else {}
            result = PROBES[name](runs, **arguments)
            if result.computed:
                rows += result.table.to_dict("records")
            else:
                rows.append(runs.row("", note=result.reason) | {"probe": name})
            caveats += result.caveats
        tables.append(runs.table("", rows))  # corrected anew, over the tests of all probes
    all_rows = pd.concat(tables)
    if (all_rows["verdict"] == "not run").all():
        raise NotComputed("; ".join(all_rows["note"].unique()))
    return finish("battery", tables, caveats)


@analysis
def bias_table(results: Result) -> Result:
    """Tabulate bias deviation and conformity of each perturbation of a battery.

    See `bias_scores`. Deviation, the fall as a share of the largest possible one, is best at 1
    where the score must move; conformity, how close the score stays, at 1 where it must stay.

    Args:
        results: what a probe or `battery` returned.

    Raises:
        NotComputed: there is no perturbation on a known scale.
    """
    rows = results.table.dropna(subset="deviation").drop_duplicates(["judge", "perturbation"])
    if rows.empty:
        raise NotComputed("no perturbation was graded, or no scale of the scores is known")
    columns = ["judge", "perturbation", "must", *MEASURES, "n"]
    return Result(
        rows[columns].reset_index(drop=True),
        name="bias_scores",
        caption="Bias deviation (1 is best where the score must move) and bias conformity (1 is"
        " best where it must stay), with 95% intervals, MM-JudgeBias (arXiv 2604.18164)",
    )
