"""The probe of position: whether the order of two responses decides."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from vjudge.benchmarks.pairs import pairs_of_items
from vjudge.data.schema import Items
from vjudge.judging.columns import groups_of
from vjudge.metrics.shares import shares
from vjudge.plots.bars import preference_bars
from vjudge.probes.decisions import ProbeRow
from vjudge.probes.effects import Effect, mean
from vjudge.probes.finish import Drawing, probed
from vjudge.probes.runs import IN_PAIRS, Judged, MissingInputError, ProbeRuns
from vjudge.results import Result, analysis

CHOSEN = {
    "first": "first shown, both times",
    "same": "same response",
    "tie": "a tie in one order or both",
    "second": "second shown, both times",
}
WINS = "share less one half"  # the unit of the effect
WON = {"a": 1.0, "tie": 0.5, "b": 0.0}  # what a verdict counts for response a


@analysis
def position(judge: Judged, items: Items | None = None, **options: Any) -> Result:
    """Test whether the order of two responses decides: every pair is shown in both orders.

    Responses of equal quality are chosen by chance in either order, so that the order decides some
    pairs of an honest judge too; only a preference for one position is tested.

    Args:
        judge: one that compares two responses; or the frame that `Judge.compare` returned.
        items: pairs, or single responses, of which pairs are made, see `pairs_of_items`.
        options: see `ProbeRuns`.

    Returns:
        Two rows: "first shown wins", the share of verdicts for the response shown first minus one
        half, ties counting half (must stay 0); and, as a description, "order decides", the share of
        pairs whose two verdicts differ.

    Source: Wang et al., Large Language Models are not Fair Evaluators (arXiv 2305.17926); both
    orders as in Zheng et al. (arXiv 2306.05685).

    >>> import pandas as pd
    >>> from vjudge.probes import position
    >>> verdicts = {"verdict_ab": ["a", "a"], "verdict_ba": ["a", "b"]}
    >>> table = position(pd.DataFrame({"id": ["1", "2"], **verdicts})).table
    >>> table.set_index("case")["effect"].to_dict()
    {'first shown wins': 0.25, 'order decides': 0.5}
    """
    shares_by_judge: dict[str, pd.DataFrame] = {}  # filled while the rows are made; then drawn

    def rows_of_position(runs: ProbeRuns) -> list[ProbeRow]:
        verdicts, missing = _verdicts(runs)
        shares_by_judge[runs.name] = _chosen(verdicts)
        return _rows(runs, verdicts, missing)

    def figure(table: pd.DataFrame) -> Drawing | None:
        if not shares_by_judge:
            return None
        draw = partial(preference_bars, shares_by_judge, labels=CHOSEN)
        return draw, pd.concat(shares_by_judge)

    return probed("position", rows_of_position, judge, items, figure=figure, **options)


def _verdicts(runs: ProbeRuns) -> tuple[pd.DataFrame, int]:
    """Return a judge's verdicts on pairs in both orders, and the number of pairs that lack one.

    The frame has the column group, and for each order of the responses a column, ab and ba: 1 where
    response a won, 0 where b won, .5 for a tie.
    """
    pairs = None  # a given run needs no pairs to compare
    if runs.judge is not None and IN_PAIRS not in runs.runs:
        pairs = runs.items
        if "response_a" not in pairs.column_names:
            pairs = pairs_of_items(pairs, limit=len(pairs), seed=runs.seed)
        if not len(pairs):
            raise MissingInputError("needs pairs: no two items are responses to one question")
    run = runs.run(IN_PAIRS, pairs)
    if not {"verdict_ab", "verdict_ba"} <= set(run.columns):
        raise MissingInputError('needs both orders of every pair: compare with orders="both"')
    verdicts = pd.DataFrame({"group": groups_of(run)}, index=run.index)
    for order in ("ab", "ba"):
        verdicts[order] = run[f"verdict_{order}"].map(WON).astype(float)
    complete = verdicts.dropna()
    if complete.empty:
        reason = f"none of {len(run)} pairs has them"
        raise MissingInputError(f"needs verdicts in both orders; {reason}")
    return complete, len(run) - len(complete)


def _rows(runs: ProbeRuns, verdicts: pd.DataFrame, missing: int) -> list[ProbeRow]:
    """Make the two rows of one judge; their intervals are clipped to the possible values.

    Args:
        runs: of the judge.
        verdicts, missing: as `_verdicts` returns them.
    """
    # The first shown is a in the order ab and b in ba: its share of wins in both orders is
    # (ab + 1 - ba) / 2, and one half less than that is (ab - ba) / 2.
    excess = _clipped(mean((verdicts["ab"] - verdicts["ba"]) / 2, verdicts["group"]), -0.5, 0.5)
    differing = _clipped(mean(verdicts["ab"] != verdicts["ba"], verdicts["group"]), 0.0, 1.0)
    wins = "standing first {raises} the share of wins by {size}"
    decides = "the order decides {size} of the pairs"
    # its own margin: no score of single responses is needed
    margin = {"margin": 0.05, "margin_of": "a share of verdicts of .55 less one half"}
    return [
        runs.row("first shown wins", excess, WINS, "stay", wins, missing=missing, **margin),
        runs.row("order decides", differing, "share of pairs", does=decides, missing=missing),
    ]


def _clipped(effect: Effect, lowest: float, highest: float) -> Effect:
    """Clip an effect's interval to the possible values."""
    return effect._replace(low=max(lowest, effect.low), high=min(highest, effect.high))


def _chosen(verdicts: pd.DataFrame) -> pd.DataFrame:
    """Tabulate the share of pairs for each of the four outcomes `CHOSEN`, with its interval."""
    is_first = (verdicts["ab"] == 1) & (verdicts["ba"] == 0)
    is_second = (verdicts["ab"] == 0) & (verdicts["ba"] == 1)
    is_same = (verdicts["ab"] == verdicts["ba"]) & (verdicts["ab"] != 0.5)
    has_tie = ~(is_first | is_second | is_same)
    cases = zip(CHOSEN, (is_first, is_same, has_tie, is_second), strict=True)
    rows = [(name, case.to_numpy(), np.ones(len(verdicts))) for name, case in cases]
    return shares(rows, groups=verdicts["group"], unit="pairs")
