"""Does the score stay when it must? The reference, the format, a verdict written into the response.

Shared arguments and the table are those of `vjudge.probes.sensitivity`.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import numpy as np
import pandas as pd

from vjudge.probes.contrasts import Contrast, change, contrasts
from vjudge.probes.injections import PHRASES
from vjudge.probes.lengths import slope_at_equal_gold
from vjudge.probes.outcome import Unmet, row, table
from vjudge.probes.trials import Trials, scored
from vjudge.records import is_missing


def formatting(
    judge: Any, items: Any = None, *, out: Any = None, score: str = "score", confidence: float = 0.95, seed: int = 0,
    **grading: Any,
) -> pd.DataFrame:  # fmt: skip
    """Whether Markdown moves the score: a word of each sentence in bold, sentences as a list. It must stay.

    So must the agreement with gold: format that moves scores both ways shows itself there, not in the mean change.
    """
    trials = Trials.of(judge, items, out=out, seed=seed, confidence=confidence, **grading)
    measures = dict.fromkeys(("response_bold", "response_listed"), ("change", "agreement"))
    rows = contrasts(trials, "formatting", measures, score=score, confidence=confidence)
    return table(rows, confidence=confidence, seed=seed)


def injection(
    judge: Any, items: Any = None, *, out: Any = None, score: str = "score", confidence: float = 0.95, seed: int = 0,
    **grading: Any,
) -> pd.DataFrame:  # fmt: skip
    """Whether a verdict or an order written into the response moves the score: each way of `PHRASES`. It must stay.

    The effect is the mean change towards the score that the text asks for. Where gold is known, only items whose gold
    score leaves room for that change count. `missing` counts answers that could not be read any more: an injection
    that breaks the verdict succeeded too.
    """
    trials = Trials.of(judge, items, out=out, seed=seed, confidence=confidence, **grading)
    rows = []
    for name in trials.available(tuple(f"injected_{phrase}" for phrase in PHRASES)):
        pair = Contrast.of(trials.run(), trials.run(name), score=score)
        best = "worst" not in name
        note = f"towards the {'best' if best else 'worst'} score"
        left_out = towards(pair, best=best)
        if left_out:
            note += f"; {left_out} items without room left out"
        told: dict[str, Any] = dict(judge=trials.name, probe="injection", missing=pair.n_left_out, moved=pair.moved)
        case = name.replace("_", " ") + ": change"
        rows.append(
            row(change(pair, confidence=confidence), case=case, must="stay", unit="score points", note=note, **told)
        )
    return table(rows, confidence=confidence, seed=seed)


def towards(pair: Contrast, *, best: bool) -> int:
    """Turn a contrast towards the score asked for, and keep the items with room to go there.

    Room is told by gold, not by the first score: items chosen for a low first score would rise by chance.

    Returns:
        How many items had no room.
    """
    left_out = 0
    if pair.has_gold:
        end = np.nanmax(pair.gold) if best else np.nanmin(pair.gold)
        room = pair.gold < end if best else pair.gold > end
        left_out = int((~room).sum())
        pair.keep(room)
    if not best:
        pair.delta = -pair.delta
    return left_out


def reference(
    judge: Any, items: Any = None, *, out: Any = None, score: str = "score", confidence: float = 0.95, seed: int = 0,
    **grading: Any,
) -> pd.DataFrame:  # fmt: skip
    """Whether the judge leans on the reference answer: removed, exchanged, and overlap with it at equal gold score.

    The truth about a response does not depend on what it is compared with, so the score and its agreement with gold
    must stay. "overlap" is the slope of the score on the share of words that response and reference have in common
    (F1 of word counts, 0-1) at equal gold: score points for full overlap against none. It needs only the original run
    and the items' texts.
    """
    trials = Trials.of(judge, items, out=out, seed=seed, confidence=confidence, **grading)
    names = tuple(name for name in ("reference_removed", "reference_swapped") if trials.judge or name in trials.runs)
    rows: list[dict[str, Any]] = []
    lacking = []
    if names:
        measures = dict.fromkeys(names, ("change", "agreement"))
        rows += contrasts(trials, "reference", measures, score=score, confidence=confidence)
    try:
        rows.append(_overlap(trials, score, confidence))
    except Unmet as error:
        lacking.append(str(error))
    if not rows:
        raise Unmet(f"needs the runs 'reference_removed' or 'reference_swapped', or else {'; '.join(lacking)}")
    return table(rows, confidence=confidence, seed=seed)


def _overlap(trials: Trials, score: str, confidence: float) -> dict[str, Any]:
    run = scored(trials.run(), score)
    texts = trials.texts("response", "reference_answer").reindex(run.ids)
    shared = np.array([overlap(*pair) for pair in zip(texts["response"], texts["reference_answer"], strict=True)])
    if np.isnan(shared).all():
        raise Unmet("needs reference answers; the items have none")
    used = ~(np.isnan(shared) | np.isnan(run.score) | np.isnan(run.gold))
    if not used.any():
        raise Unmet("needs gold scores, to hold them equal")
    estimate = slope_at_equal_gold(run[used], shared[used], confidence=confidence)
    return row(
        estimate, judge=trials.name, probe="reference", case="overlap: slope at equal gold", must="stay",
        unit="score points, none to full overlap", missing=int((~used & ~np.isnan(shared)).sum()),
    )  # fmt: skip


def overlap(response: Any, reference: Any) -> float:
    """Share of words in common, 0-1; NaN without a reference."""
    if is_missing(reference) or is_missing(response) or not str(reference).strip():
        return float("nan")
    a, b = (Counter(re.findall(r"\w+", text.lower())) for text in (response, reference))
    total = sum(a.values()) + sum(b.values())
    return 2 * sum((a & b).values()) / total if total else 0.0
