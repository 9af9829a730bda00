"""Does a response win because it stands first?

The table is that of `vjudge.probes.sensitivity`.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pandas as pd

from vjudge import data
from vjudge.data import rows_of
from vjudge.metrics._tables import check_options
from vjudge.probes.estimates import Estimate, mean, share
from vjudge.probes.outcome import Unmet, row, table
from vjudge.probes.trials import groups_of

OWN = ("response", "gold", "feedback", "human_scores")  # what the responses to a question do not share


def position(
    judge: Any, pairs: Any = None, *, out: Any = None, confidence: float = 0.95, seed: int = 0, **comparing: Any
) -> pd.DataFrame:
    """Whether the order of the two responses decides the verdict: every pair is shown in both orders.

    Args:
        judge: a judge with `compare`, or the frame that it returned with orders="both".
        pairs: as for `Judge.compare`; `pairs_of_items` makes them of a rubric collection.
        out, comparing: options of `Judge.compare`.
        confidence: of the intervals.
        seed: written to `attrs`; nothing is drawn here.

    Returns:
        Rows "first shown wins": the share of verdicts for the response shown first less one half, ties counting half
        (must stay 0; with both orders of every pair, quality cancels out). And "order decides": the share of pairs
        whose verdicts in the two orders differ, with no p, for zero is no sensible null. Pairs with a missing verdict
        or an abstention in an order are counted as missing.

    Raises:
        Unmet: the judge compares no pairs, or the comparison has one order only.

    >>> import pandas as pd
    >>> from vjudge.probes import position
    >>> compared = pd.DataFrame({"id": ["1", "2"], "group": ["1", "2"], "verdict_ab": ["a", "a"]})
    >>> compared["verdict_ba"] = ["a", "b"]
    >>> position(compared).set_index("case")["effect"].to_dict()
    {'first shown wins': 0.25, 'order decides': 0.5}
    """
    check_options(confidence=confidence)
    if isinstance(judge, pd.DataFrame):
        frame = judge
    elif getattr(judge, "pairs", None) is None:
        raise Unmet(f"needs a judge with a wording for two responses; {getattr(judge, 'name', judge)!r} has none")
    elif pairs is None:
        raise Unmet("needs pairs: pass pairs=, or make them with probes.pairs_of_items(items)")
    else:
        frame = judge.compare(pairs, out=out, **comparing)
    if not {"verdict_ab", "verdict_ba"} <= set(frame.columns):
        raise Unmet('needs both orders of every pair: compare with orders="both"')
    points = {"a": 1.0, "b": 0.0, "tie": 0.5}
    ab, ba = (frame[f"verdict_{order}"].map(points).to_numpy(dtype=float) for order in ("ab", "ba"))
    used = ~(np.isnan(ab) | np.isnan(ba))
    if not used.any():
        raise Unmet(f"needs verdicts in both orders; none of {len(frame)} pairs has them")
    group = groups_of(frame)[used]
    ab, ba = ab[used], ba[used]
    name = str(frame["judge"].iloc[0]) if "judge" in frame else "judge"
    told: dict[str, Any] = dict(judge=name, probe="position", must="stay", missing=int((~used).sum()))
    moved = float((ab != ba).mean())
    rows = [
        row(first_shown(ab, ba, group, confidence=confidence), case="first shown wins", unit="share less one half",
            moved=moved, **told),
        row(share(ab != ba, group, confidence=confidence), case="order decides", unit="share of pairs", moved=moved,
            **told),
    ]  # fmt: skip
    return table(rows, confidence=confidence, seed=seed)


def first_shown(ab: np.ndarray, ba: np.ndarray, group: np.ndarray, *, confidence: float) -> Estimate:
    """Share of verdicts for the response shown first, less one half; 1, 0 or 1/2 for a, b or a tie in each order."""
    return mean((ab + 1 - ba) / 2 - 0.5, group, confidence=confidence)


def pairs_of_items(items: Any, *, limit: int | None = None, seed: int = 0) -> list[dict[str, Any]]:
    """Pairs of responses to the same question, from a rubric collection.

    Args:
        items: rows with the canonical columns; responses belong together where group, instruction, reference answer
            and rubric are the same.
        limit: pairs drawn at random among all; None keeps all.
        seed: of that draw, and of which response is a.

    Returns:
        Rows for `Judge.compare`; `preference` by gold, "tie" where equal, None where unknown, and `gold_a`, `gold_b`.
    """
    rows = [dict(row) for row in rows_of(data.canonical(items))]
    rng = np.random.default_rng(seed)
    found = [pair for case in data.cases(items)["rows"] for pair in itertools.combinations(case, 2)]
    if limit is not None and len(found) > limit:
        found = [found[i] for i in sorted(rng.choice(len(found), size=limit, replace=False))]
    made = []
    for i, j in found:
        first, second = (rows[i], rows[j]) if rng.random() < 0.5 else (rows[j], rows[i])
        shared = {name: value for name, value in first.items() if name not in OWN}
        a, b = first["gold"], second["gold"]
        known = a is not None and b is not None and a == a and b == b
        made.append(
            {
                **shared,
                "id": f"{first['id']}|{second['id']}",
                **{"response_a": first["response"], "response_b": second["response"], "gold_a": a, "gold_b": b},
                "preference": ("tie" if a == b else "a" if a > b else "b") if known else None,
            }
        )
    return made
