"""Is a longer response scored higher for its length alone?

Shared arguments and the table are those of `vjudge.probes.sensitivity`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from scipy import special

from vjudge.data import rows_of
from vjudge.metrics._tables import check_options
from vjudge.probes.contrasts import Contrast, agreement, change
from vjudge.probes.estimates import Estimate, coefficient, equal, log_odds, rank_correlation
from vjudge.probes.outcome import Unmet, row, table
from vjudge.probes.trials import ORIGINAL, Scored, Trials, groups_of, scored

UNITS = ("words", "characters")


def length(
    judge: Any, items: Any = None, *, unit: str = "words", out: Any = None, score: str = "score",
    confidence: float = 0.95, seed: int = 0, **grading: Any,
) -> pd.DataFrame:  # fmt: skip
    """The slope of the score on the length of the response at equal gold score. It must stay: no slope.

    Better answers may well be longer, so the gold score is held equal: by a column for each of its levels, or, with
    more than ten levels, ten classes and the score within them. What gold does not know of quality is not held equal.

    Args:
        unit: "words" or "characters".
        Others: see `vjudge.probes.sensitivity`. With runs, the original is enough; items give the responses, unless
            the run has a column `response`.

    Returns:
        Rows "slope at equal gold" (score points a doubling of length), "partial rank correlation" (Spearman's, gold
        held equal) and "slope at gold g" for each level of gold with ten rows or more.

    Raises:
        Unmet: no gold scores, or no responses.
    """
    if unit not in UNITS:
        raise ValueError(f"unit={unit!r}: use one of {', '.join(UNITS)}")
    trials = Trials.of(judge, items, out=out, seed=seed, confidence=confidence, **grading)
    run = scored(trials.run(), score)
    doublings = _doublings(_responses(trials).reindex(run.ids), unit)
    if np.isnan(run.gold).all():
        raise Unmet("needs gold scores: better answers may be longer, and only equal gold tells that from a bias")
    used = ~(np.isnan(run.score) | np.isnan(run.gold) | np.isnan(doublings))
    rows, x = run[used], doublings[used]
    y, gold, group = rows.score, rows.gold, rows.group
    told: dict[str, Any] = dict(judge=trials.name, probe="length", must="stay")
    whole = slope_at_equal_gold(rows, x, confidence=confidence)
    ranks = rank_correlation(x, y, equal(gold), group, confidence=confidence)
    slope_unit, missing = f"score per doubling of {unit}", int((~used).sum())
    made = [
        row(whole, case="slope at equal gold", unit=slope_unit, missing=missing, **told),
        row(ranks, case="partial rank correlation", unit="Spearman's rho", missing=missing, **told),
    ]
    levels, counts = np.unique(gold, return_counts=True)
    for level in levels[counts >= 10] if len(levels) <= 10 else ():
        here = gold == level
        design = np.column_stack([x[here], np.ones(here.sum())])
        estimate = coefficient(y[here], design, group[here], confidence=confidence)
        made.append(row(estimate, case=f"slope at gold {level:g}", unit=slope_unit, **told))
    return table(made, confidence=confidence, seed=seed)


def slope_at_equal_gold(run: Scored, x: np.ndarray, *, confidence: float) -> Estimate:
    """The slope of the score on x with the gold score held equal; no score, gold or x may be missing."""
    design = np.column_stack([x, equal(run.gold)])
    return coefficient(run.score, design, run.group, confidence=confidence)


def verbosity(
    judge: Any, items: Any = None, *, unit: str = "words", out: Any = None, score: str = "score",
    confidence: float = 0.95, seed: int = 0, **grading: Any,
) -> pd.DataFrame:  # fmt: skip
    """Whether sentences that say nothing move the score: responses padded to twice their length, and trimmed of them.

    The score must stay. Each item is its own control, so that nothing need be held equal and no gold is needed. Rows
    give the mean change, and the slope through zero on the doublings of length: score points a doubling (the sign is
    that of length: positive where longer scores higher, for trimming too); and, where gold is known, the change in
    agreement with it. Responses with nothing to trim are left out.
    """
    trials = Trials.of(judge, items, out=out, seed=seed, confidence=confidence, **grading)
    rows: list[dict[str, Any]] = []
    for name in trials.available(("response_padded", "response_trimmed")):
        try:
            pair = Contrast.of(trials.run(), trials.run(name), score=score)
        except Unmet:
            if name == "response_padded" or trials.judge is None:
                raise
            continue  # most collections hold nothing to trim
        what = name.replace("_", " ")
        told: dict[str, Any] = dict(judge=trials.name, probe="verbosity", must="stay")
        told |= {"missing": pair.n_left_out, "moved": pair.moved}
        rows.append(row(change(pair, confidence=confidence), case=f"{what}: change", unit="score points", **told))
        if pair.has_gold:
            kept = agreement(pair, confidence=confidence)
            rows.append(row(kept, case=f"{what}: agreement", unit="score per gold point", **told))
        if not trials.has_items:
            continue
        before = _doublings(_responses(trials).reindex(pair.ids), unit)
        after = _doublings(trials.perturbed(name, "response").reindex(pair.ids), unit)
        estimate = coefficient(pair.delta, after - before, pair.group, confidence=confidence)
        rows.append(row(estimate, case=f"{what}: slope", unit=f"score per doubling of {unit}", **told))
    return table(rows, confidence=confidence, seed=seed)


def length_controlled(
    comparison: pd.DataFrame, pairs: Any, *, unit: str = "characters", confidence: float = 0.95
) -> pd.DataFrame:
    """Length bias in pairwise verdicts, and the win rate of `response_a` were the lengths equal.

    A logistic regression of the verdict (1 for a, 0 for b, 1/2 for a tie) on a constant, the tanh of the standardised
    difference in length, and the known preference (1, -1, 0) where every pair has one.

    Args:
        comparison: as `Judge.compare` returns it.
        pairs: what was compared, with `id`, `response_a`, `response_b`.
        unit: "characters", as AlpacaEval counts, or "words".
        confidence: of the intervals.

    Returns:
        Rows "length: log-odds" (of a's winning, for an advantage in length of one standard deviation: tanh(1) = .76 of
        the coefficient; must stay 0), "win rate" and "length-controlled win rate" (shares; no interval for the second,
        which is a prediction).

    What differs from AlpacaEval's length-controlled win rate: the term for the difficulty of each instruction, which
    needs the verdicts on many models, gives way to the known preference or to nothing; there is no penalty on the
    coefficients; the standard errors are robust to groups.

    Source: Dubois, Galambosi, Liang and Hashimoto, "Length-Controlled AlpacaEval" (arXiv 2404.04475), section 3.
    """
    check_options(confidence=confidence)
    texts = pd.DataFrame(
        [{name: pair.get(name) for name in ("id", "response_a", "response_b", "preference")} for pair in rows_of(pairs)]
        if not isinstance(pairs, pd.DataFrame)
        else pairs
    )
    texts = texts.assign(id=texts["id"].astype(str)).set_index("id").reindex(comparison["id"].astype(str))
    gone = texts.index[texts["response_a"].isna() | texts["response_b"].isna()]
    if len(gone):
        raise ValueError(
            f"pairs: {len(gone)} compared ids have no two responses ({', '.join(gone[:5])}); pass them all"
        )
    outcome = comparison["verdict"].map({"a": 1.0, "b": 0.0, "tie": 0.5}).to_numpy(dtype=float)
    used = ~np.isnan(outcome)
    y, group = outcome[used], groups_of(comparison)[used]
    told: dict[str, Any] = dict(judge=_judge(comparison), probe="length_controlled", missing=int((~used).sum()))
    if len(y) < 3:
        raise Unmet(f"needs verdicts on pairs; there are {len(y)}")
    differences = _lengths(texts["response_a"], unit) - _lengths(texts["response_b"], unit)
    preference = None
    note = "no preference known: quality is held equal on average only"
    if "preference" in texts and texts["preference"].isin(["a", "b", "tie"]).all():
        preference = texts["preference"].map({"a": 1.0, "b": -1.0, "tie": 0.0}).to_numpy(dtype=float)[used]
        note = "known preference held equal"
    slope, beta, design = log_odds_of_length(y, differences[used], preference, group, confidence=confidence)
    level = coefficient(y - 0.5, np.ones(len(y)), group, confidence=confidence)
    wins = Estimate(level.effect + 0.5, level.low + 0.5, level.high + 0.5, level.p, level.n, level.groups).within(0, 1)
    controlled = float(special.expit(design[:, 1:] @ beta[1:]).mean()) if not np.isnan(beta).any() else np.nan
    nothing = Estimate(controlled, np.nan, np.nan, np.nan, level.n, level.groups)
    rows = [
        row(slope, case="length: log-odds", must="stay", unit="log-odds, full advantage in length", note=note, **told),
        row(wins, case="win rate", must=None, unit="share of a, ties as half", note="p: of one half", **told),
        row(nothing, case="length-controlled win rate", must=None, unit="share of a at equal length", **told),
    ]
    return table(rows, confidence=confidence, seed=0)


def log_odds_of_length(
    chosen: np.ndarray, difference: np.ndarray, preference: np.ndarray | None, group: np.ndarray, *, confidence: float
) -> tuple[Estimate, np.ndarray, np.ndarray]:
    """The regression of `length_controlled` on arrays.

    Args:
        chosen: 1 for a, 0 for b, 1/2 for a tie. difference: length of a less that of b. preference: 1, -1, 0 or None.
        group, confidence: as in `vjudge.probes.estimates.coefficient`.

    Returns:
        The coefficient of the advantage in length; all coefficients; the design, the advantage in its first column.
    """
    spread = difference.std()
    advantage = np.tanh(difference / spread) if spread > 0 else np.zeros(len(chosen))
    columns = [advantage, np.ones(len(chosen))]
    if preference is not None and preference.any():
        columns.append(preference)
    design = np.column_stack(columns)
    return *log_odds(chosen, design, group, confidence=confidence), design


def _judge(frame: pd.DataFrame) -> str:
    return str(frame["judge"].iloc[0]) if "judge" in frame and len(frame) else "judge"


def _responses(trials: Trials) -> pd.Series:
    run = trials.run(ORIGINAL)
    if "response" in run:
        return run.assign(id=run["id"].astype(str)).drop_duplicates("id").set_index("id")["response"]
    return trials.texts("response")["response"]


def _lengths(texts: pd.Series, unit: str) -> np.ndarray:
    if unit not in UNITS:
        raise ValueError(f"unit={unit!r}: use one of {', '.join(UNITS)}")
    counted = [
        np.nan if not isinstance(text, str) else float(len(text.split()) if unit == "words" else len(text))
        for text in texts.to_numpy(dtype=object)
    ]
    return np.array(counted, dtype=float)


def _doublings(texts: pd.Series, unit: str) -> np.ndarray:
    """Base-2 logarithm of the length; NaN for a text that is missing or empty."""
    lengths = _lengths(texts, unit)
    return np.log2(np.where(lengths > 0, lengths, np.nan))
