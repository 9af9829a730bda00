"""An absolute judge as a reward model: which of two responses it scores higher, against people's preferences.

Prometheus is used so on HHH Alignment and MT-Bench's human judgements: both responses are scored by themselves, and the
higher score wins. Equal scores are a tie, which is a verdict and counted as one; nothing breaks it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from vjudge import metrics
from vjudge.data import CollectionError, Problem, rows_of
from vjudge.records import NAN, Rubric, is_missing

CARRIED = ("preference", "category", "group")


def rank_by_score(
    judge: Any,
    pairs: Any,
    *,
    rubric: Rubric | None = None,
    within: float = 0.0,
    expected: bool = False,
    out: str | Path | None = None,
    **options: Any,
) -> pd.DataFrame:
    """Grade both responses of every pair and say which scores higher.

    Args:
        judge: anything with `Judge.grade`. It never sees the two responses together, so there is no order to turn.
        pairs: rows with `response_a` and `response_b`.
        rubric: for pairs without one, where the judge's wording shows a rubric; Prometheus was given one for each set.
        within: scores no further apart than this are a tie.
        expected: whether to compare expected scores, where there are some, in place of the written ones; ties then all
            but vanish, and with them what the judge said.
        out, options: of `Judge.grade`.

    Returns:
        One row a pair: id, judge, verdict ("a", "b", "tie", or None without two scores), score_a, score_b, failure, and
        preference, category and group where the pairs have them. `Judge.compare` gives the same columns, so that
        `metrics` reads either. `attrs["failures"]` counts failures by reason.

    Raises:
        CollectionError: two rows of one id; bad rows, as `Judge.grade`.

    Source: Prometheus (arXiv 2310.08491), section on ranking evaluation.
    """
    rows = rows_of(pairs)
    _check_ids(rows)
    graded = judge.grade(list(_singles(rows, rubric)), out=out, **options)
    found = {row["id"]: row for row in graded.to_dict("records")}
    made = []
    for row in rows:
        sides = [found[f"{row['id']}/{side}"] for side in "ab"]
        a, b = (_value(side, expected) for side in sides)
        failed = {side: got["failure"] for side, got in zip("ab", sides, strict=True) if not is_missing(got["failure"])}
        failure = "; ".join(f"{side}: {reason}" for side, reason in failed.items())
        verdict = None if is_missing(a) or is_missing(b) else "tie" if abs(a - b) <= within else "a" if a > b else "b"
        known = {name: row[name] for name in CARRIED if name in row}
        known["group"] = str(row["id"] if is_missing(row.get("group")) else row["group"])
        scores = {"score_a": a, "score_b": b}
        made.append(
            {"id": row["id"], "judge": judge.name, "verdict": verdict, **scores, "failure": failure or None, **known}
        )
    frame = pd.DataFrame(made)
    for name in ("verdict", "failure"):
        frame[name] = pd.Series([row[name] for row in made], dtype=object)
    frame.attrs = {"failures": dict(graded.attrs.get("failures", {})), "within": within}
    return frame


def benchmark(verdicts: pd.DataFrame, **options: Any) -> pd.DataFrame:
    """Accuracy on a set of pairs as its reports give it: overall, macro over categories, and each category.

    Args:
        verdicts: from `rank_by_score` or `Judge.compare`, with preference; category where the set has some (join it to
            the frame of `compare`).
        options: of `metrics.pairwise_accuracy`: confidence.

    Returns:
        Columns estimate, low, high, n, missing. Index (part, statistic): part "all" has the rows of
        `metrics.pairwise_accuracy` (with_ties, without_ties, both_decided, all_pairs, and macro ones), and "tie" (share
        of the judge's verdicts); then each category its without_ties and tie. From `compare` in both orders, "all" also
        has consistent, flipped, tie_in_one and first_chosen of `metrics.order_consistency`.

    Raises:
        ValueError: there is no preference.
    """
    if "preference" not in verdicts:
        raise ValueError("the verdicts have no column preference: load the set with its human preferences")
    named = verdicts["category"].notna() if "category" in verdicts else pd.Series(False, index=verdicts.index)
    categories = verdicts["category"] if len(named) and named.all() else None
    groups = list(verdicts["group"])
    whole = metrics.pairwise_accuracy(
        verdicts["verdict"], verdicts["preference"], categories=categories, groups=groups, **options
    )
    tie = metrics.win_rate(verdicts["verdict"], groups=groups, **options).loc[["tie"]]
    parts = {"all": [whole, tie]}
    if {"verdict_ab", "verdict_ba"} <= set(verdicts):
        parts["all"].append(
            metrics.order_consistency(verdicts["verdict_ab"], verdicts["verdict_ba"], groups=groups, **options)
        )
    if categories is not None:
        for name, part in verdicts.groupby("category", sort=True):
            own = list(part["group"])
            right = metrics.pairwise_accuracy(part["verdict"], part["preference"], groups=own, **options)
            parts[str(name)] = [
                right.loc[["without_ties"]],
                metrics.win_rate(part["verdict"], groups=own, **options).loc[["tie"]],
            ]
    table = pd.concat({name: pd.concat(tables) for name, tables in parts.items()}, names=["part", "statistic"])
    table.attrs = {**whole.attrs, "without_category": int((~named).sum()) if "category" in verdicts else len(verdicts)}
    return table


def _singles(rows: Any, rubric: Rubric | None) -> Iterator[dict[str, Any]]:
    """Both responses of every pair as rows to grade, named "id/a" and "id/b"."""
    for row in rows:
        kept = {
            name: row.get(name) for name in ("images", "instruction", "reference_answer", "criteria", "descriptions")
        }
        if rubric is not None and not len(kept["descriptions"] or ()):
            kept |= {"criteria": rubric.criteria, "descriptions": list(rubric.descriptions), "lowest": rubric.lowest}
        elif "lowest" in row:
            kept["lowest"] = row["lowest"]
        kept["group"] = str(row["id"] if is_missing(row.get("group")) else row["group"])
        for side in "ab":
            yield {"id": f"{row['id']}/{side}", **kept, "response": row[f"response_{side}"]}


def _value(verdict: Mapping[str, Any], expected: bool) -> float:
    mean = verdict.get("expected_score", NAN)
    return float(mean) if expected and not is_missing(mean) else float(verdict["score"])


def _check_ids(rows: Any) -> None:
    first: dict[str, int] = {}
    problems = [
        Problem(
            index, str(row["id"]), "id", f"is the same as row {first[str(row['id'])]}'s", "give every pair its own id"
        )
        for index, row in enumerate(rows)
        if first.setdefault(str(row["id"]), index) != index
    ]
    if problems:
        raise CollectionError(f"{len(problems)} of {len(rows)} pairs share an id:", problems)
