"""A leaderboard: policies under evaluation, each graded on the same questions, a row each with an interval."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from vjudge.data import CollectionError, rows_of, with_responses
from vjudge.metrics._tables import design_of, tabulate
from vjudge.preference.policy import Policy


def evaluate(
    judge: Any,
    policy: Policy | Mapping[str, str] | Sequence[str] | pd.DataFrame,
    questions: Any,
    *,
    name: str | None = None,
    out: str | Path | None = None,
    answering: Mapping[str, Any] | None = None,
    **options: Any,
) -> pd.DataFrame:
    """Grade a policy on a benchmark of questions, such as Perception-Bench, which has no responses.

    Args:
        judge: a `Judge`.
        policy: who answers; or its answers by question id, in the questions' order, or as `Policy.respond` returned
            them (one a question).
        questions: a collection of items, with a rubric where the judge's wording shows one.
        name: the policy's in tables; None takes the `Policy`'s, and is an error for bare answers.
        out: a folder for both runs, `answers` and `grades`; the same call continues there.
        answering: options of `Policy.respond`; the policy decodes greedily where they don't say otherwise.
        options: of `Judge.grade`.

    Returns:
        The run of `Judge.grade` with the column `policy`, one row a question. A question that the policy failed to
        answer was not put to the judge: it has no score, and its reason in `failure`, beginning with "no answer".

    Raises:
        CollectionError: answers that fit no question, or are missing without a reason; bad rows, as `Judge.grade`.
    """
    rows = [dict(row) for row in rows_of(questions)]
    folder = None if out is None else Path(out)
    if isinstance(policy, Policy):
        policy, name = policy.respond(rows, out=folder and folder / "answers", **(answering or {})), name or policy.name
    failed: dict[str, str] = {}
    if isinstance(policy, pd.DataFrame):
        if len(policy) != len(rows):
            raise CollectionError(f"there are {len(policy)} answers for {len(rows)} questions: give one for each")
        name = name or str(policy["policy"].iloc[0])
        failed = {str(row.id): str(row.failure) for row in policy.itertuples() if not isinstance(row.response, str)}
        policy = {str(row.id): row.response for row in policy.itertuples() if isinstance(row.response, str)}
    if not name:
        raise ValueError("name= is missing: a leaderboard needs to call the policy something")
    asked = [row for row in rows if str(row["id"]) not in failed]
    if not asked:
        raise CollectionError(f"{name} answered none of {len(rows)} questions: {next(iter(failed.values()))}")
    items = with_responses(asked, policy)
    run = judge.grade(items, out=folder and folder / "grades", **options)
    order = {str(row["id"]): place for place, row in enumerate(rows)}
    lost = pd.DataFrame(
        [
            {"id": id, "judge": judge.name, "failure": f"no answer: {reason}", "group": _group(rows[order[id]])}
            for id, reason in failed.items()
        ]
    )
    whole = pd.concat([run, lost], ignore_index=True) if failed else run
    whole = whole.sort_values("id", key=lambda ids: ids.map(order), kind="stable", ignore_index=True)
    whole.insert(1, "policy", name)
    whole.attrs = {**run.attrs, "policy": name, "unanswered": len(failed)}
    return whole


def leaderboard(
    runs: Sequence[pd.DataFrame],
    *,
    value: str = "score",
    confidence: float = 0.95,
    n_resamples: int = 10_000,
    seed: int = 0,
) -> pd.DataFrame:
    """Policies by their mean score.

    Args:
        runs: from `evaluate`, all by one judge on the same questions.
        value: "score" or "expected_score".
        confidence, n_resamples, seed: see `metrics.correlate`; groups (images) are resampled.

    Returns:
        A row a policy, the highest mean first: estimate (mean score), low, high, n (questions with a score), missing;
        behind, behind_low, behind_high: how far the row lies below the first one on the questions that both have, with
        an interval of its own, which is narrower than two rows' intervals suggest. A mean over questions with a score
        flatters a policy whose failures are its worst answers: look at missing first.

    Raises:
        ValueError: runs of several judges, of other questions, or two of one policy.
    """
    judges = {str(judge) for run in runs for judge in run["judge"].unique()}
    questions = {tuple(map(str, run["id"])) for run in runs}
    names = [str(run["policy"].iloc[0]) for run in runs]
    if len(judges) != 1 or len(questions) != 1:
        raise ValueError(
            f"a leaderboard has one judge and one set of questions, not {len(judges)} and {len(questions)}"
        )
    if len(set(names)) != len(names):
        raise ValueError(f"two runs are of one policy: {sorted({name for name in names if names.count(name) > 1})}")
    options: dict[str, Any] = dict(confidence=confidence, n_resamples=n_resamples, seed=seed)
    rows = [_mean(run[value], run["group"], name, options) for name, run in zip(names, runs, strict=True)]
    table = pd.concat(rows).sort_values("estimate", ascending=False, kind="stable")
    first = runs[names.index(str(table.index[0]))]
    for name, run in zip(names, runs, strict=True):
        if name == table.index[0]:
            continue
        gap = _mean(first[value] - run[value], run["group"], name, options).iloc[0]
        table.loc[name, ["behind", "behind_low", "behind_high"]] = gap[["estimate", "low", "high"]].to_numpy()
    table.attrs = {**rows[0].attrs, "judge": judges.pop(), "value": value}
    return table


def _mean(values: pd.Series, groups: pd.Series, name: str, options: dict[str, Any]) -> pd.DataFrame:
    known = values.notna().to_numpy()
    own = values[known].to_numpy(dtype=float)
    return tabulate(
        lambda w: (own @ w / w.sum(axis=0))[None],
        [name],
        design_of(np.arange(len(own)), list(groups), known),
        n=len(own),
        missing=int((~known).sum()),
        method="t",
        unit="questions",
        index="policy",
        why="no question has a score",
        stacklevel=4,
        **options,
    )


def _group(row: Mapping[str, Any]) -> str:
    return str(row.get("group") or row["id"])
