"""Two responses to one question: made from a rubric collection, and shown in both orders."""

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
from vjudge.probes.effects import mean
from vjudge.probes.finish import Drawing, probed
from vjudge.probes.runs import IN_PAIRS, WINS, Judged, MissingInputError, ProbeRow, ProbeRuns
from vjudge.results import Result, analysis

CHOSEN = {
    "first": "first shown, both times",
    "same": "same response",
    "tie": "a tie in one order or both",
    "second": "second shown, both times",
}
WON = {"a": 1.0, "tie": 0.5, "b": 0.0}


@analysis
def position(judge: Judged, items: Items | None = None, **options: Any) -> Result:
    """Test whether the order of two responses decides: every pair is shown in both orders.

    `judge` has `compare`, or is the frame that this returned. The items are pairs, or single
    responses, of which pairs are made, see `pairs_of_items`. Rows are "first shown wins": the share
    of verdicts for the response shown first less one half, ties counting half (must stay 0); and, a
    description, "order decides": the share of pairs whose two verdicts differ.

    Responses of equal quality are chosen by chance in either order, so that the order decides some
    pairs of an honest judge too; only a lean to one place is tested.

    Source: Wang et al., Large Language Models are not Fair Evaluators (arXiv 2305.17926); both
    orders as in Zheng et al. (arXiv 2306.05685).

    >>> import pandas as pd
    >>> from vjudge.probes import position
    >>> verdicts = {"verdict_ab": ["a", "a"], "verdict_ba": ["a", "b"]}
    >>> table = position(pd.DataFrame({"id": ["1", "2"], **verdicts})).table
    >>> table.set_index("case")["effect"].to_dict()
    {'first shown wins': 0.25, 'order decides': 0.5}
    """
    drawn: dict[str, pd.DataFrame] = {}  # judge -> shares of pairs

    def figure(table: pd.DataFrame) -> Drawing | None:
        if not drawn:
            return None
        return partial(preference_bars, drawn, labels=CHOSEN), pd.concat(drawn)

    def rows_of_position(runs: ProbeRuns) -> list[ProbeRow]:
        rows, both = _positions(runs)
        drawn[runs.name] = _chosen(both)
        return rows

    return probed("position", rows_of_position, judge, items, figure=figure, **options)


def _positions(runs: ProbeRuns) -> tuple[list[ProbeRow], pd.DataFrame]:
    """The rows of a judge, and its verdicts in both orders: 1 for a, 0 for b."""
    pairs = None
    if runs.judge is not None and IN_PAIRS not in runs.runs:
        pairs = runs.items
        if "response_a" not in pairs.column_names:
            pairs = pairs_of_items(pairs, limit=len(pairs), seed=runs.seed)
        if not len(pairs):
            raise MissingInputError("needs pairs: no two items are responses to one question")
    frame = runs.run(IN_PAIRS, pairs)
    if not {"verdict_ab", "verdict_ba"} <= set(frame.columns):
        raise MissingInputError('needs both orders of every pair: compare with orders="both"')
    both = pd.DataFrame({"group": groups_of(frame)}, index=frame.index)
    for order in ("ab", "ba"):
        both[order] = frame[f"verdict_{order}"].map(WON).astype(float)
    both = both.dropna()
    if both.empty:
        reason = f"none of {len(frame)} pairs has them"
        raise MissingInputError(f"needs verdicts in both orders; {reason}")

    share = mean((both["ab"] - both["ba"]) / 2, both["group"])
    share = share._replace(low=max(-0.5, share.low), high=min(0.5, share.high))
    decides = mean(both["ab"] != both["ba"], both["group"])
    decides = decides._replace(low=max(0.0, decides.low), high=min(1.0, decides.high))
    missing = len(frame) - len(both)
    wins = "standing first {raises} the share of wins by {size}"
    order = "the order decides {size} of the pairs"
    rows = [
        runs.row("first shown wins", share, WINS, "stay", wins, missing=missing),
        runs.row("order decides", decides, "share of pairs", does=order, missing=missing),
    ]
    return rows, both


def _chosen(both: pd.DataFrame) -> pd.DataFrame:
    """Shares of pairs by what was chosen in the two orders, with their intervals."""
    always_first = (both["ab"] == 1) & (both["ba"] == 0)
    always_second = (both["ab"] == 0) & (both["ba"] == 1)
    same = (both["ab"] == both["ba"]) & (both["ab"] != 0.5)
    with_tie = ~(always_first | always_second | same)
    cases = zip(CHOSEN, (always_first, same, with_tie, always_second), strict=True)
    rows = [(name, case.to_numpy(), np.ones(len(both))) for name, case in cases]
    return shares(rows, groups=both["group"], unit="pairs")
