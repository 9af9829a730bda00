"""Ranking many responses to one instruction (best of n): verdicts become values of responses."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pandas as pd

from vjudge import data
from vjudge.data.schema import Items, Row
from vjudge.judging.candidates import candidate_rows, parties_of, points_by_order
from vjudge.records import unit_of


def rank(
    candidates: Items, by: str, judged: Callable[[Items], pd.DataFrame], *, noise: float
) -> pd.DataFrame:
    """Make the table of `Judge.rank`.

    Args:
        candidates: rows with several responses.
        by: "pairs" or "scores".
        judged: a function that compares or grades rows, as `by` says, and returns the run.
        noise: scores that differ by less than this share of their scale are equal; pairs have none.
    """
    # 1) the points that each verdict gives to the candidates in it, its parties: one row per
    # verdict and party, one column per order. The verdict "a" in both orders on the candidates 0
    # and 2:
    #     verdict  candidate  sign  points
    #        1         0        1     1  1
    #        1         2       -1    -1 -1
    # By scores each candidate is the only party of its verdict, and its score is its points.
    rows = data.rows_of(candidates)
    run = judged(candidate_rows(rows, by))
    if by == "scores":
        values = expected_scores(run).to_numpy()[:, None]  # (verdicts, 1)
        noise *= scale_width(run)  # from a share of the scale to a difference of scores
    else:
        values = points_by_order(run).to_numpy()  # (verdicts, orders)
        noise = 0.0
    parties = parties_of(rows, by)
    points = values[parties["verdict"]] * parties[["sign"]].to_numpy()  # (parties, orders)
    of_candidates = pd.DataFrame(points).groupby(parties["candidate"])

    # 2) one row per candidate, with its value and its rank among the responses to the same question
    frame = _listed(rows, run["judge"].iloc[0])
    n = of_candidates.count().sum(axis=1)  # verdicts on each candidate, counted per order
    mean = of_candidates.sum().sum(axis=1) / n  # NaN without a verdict
    frame["value"] = tie_within_noise(mean, frame["id"], noise)
    frame["rank"] = frame.groupby("id")["value"].rank(method="min", ascending=False)
    frame["best"] = frame["rank"] == 1
    frame["n"] = n
    frame["missing"] = of_candidates.size() * points.shape[1] - n

    # 3) what went wrong in the verdicts on each candidate
    verdicts = run.iloc[parties["verdict"]].groupby(parties["candidate"].to_numpy())
    reasons = verdicts["failure"].agg(lambda texts: "; ".join(texts.dropna()) or None)
    frame["failure"] = reasons.astype(object).where(n == 0, None)
    frame["closed"] = verdicts["closed"].any()
    frame["sees_image"] = verdicts["sees_image"].all()
    frame.attrs = run.attrs
    return frame


def _listed(rows: Sequence[Row], judge: str) -> pd.DataFrame:
    """List the candidates of all rows, one per row of the frame.

    Returns:
        The columns id, judge, candidate (the position in `responses`), response and group; category
        and true_rank where the rows have them.
    """
    cells = []
    for row in rows:
        shared = {"id": row["id"], "judge": judge}
        if "category" in row:
            shared["category"] = row["category"]
        for position, response in enumerate(row["responses"]):
            cell = {"candidate": position, "response": response, "group": unit_of(row)}
            if row.get("ranks"):
                cell["true_rank"] = row["ranks"][position]
            cells.append(shared | cell)
    return pd.DataFrame(cells)


def expected_scores(judged: pd.DataFrame) -> pd.Series:
    """Return the expected scores of a run if every score has one, otherwise the scores.

    A mixture of both would rank responses by the form of their verdicts.
    """
    expected = judged.get("expected_score")
    # `gt` of booleans: the expected score is missing, and the score is not
    if expected is None or expected.isna().gt(judged["score"].isna()).any():
        return judged["score"]
    return expected


def scale_width(run: pd.DataFrame) -> float:
    """Return the width of a run's widest scale; a row of unknown scale counts by its |score|."""
    widths = run["score"].abs()
    if {"lowest", "highest"} <= set(run):
        widths = (run["highest"] - run["lowest"]).fillna(widths)
    return float(widths.max())


def tie_within_noise(values: pd.Series, questions: pd.Series, noise: float) -> pd.Series:
    """Make values of one question equal that differ by no more than noise.

    Sorted values form a cluster as long as each lies within the noise of the next; all values of a
    cluster become its smallest.

    Args:
        values: of the candidates; NaN stays.
        questions: the id of each candidate's question.
        noise: the largest difference that does not count, 0 or more.

    >>> values = pd.Series([3.0, 3.0000004, 3.2])
    >>> tie_within_noise(values, pd.Series(["q", "q", "q"]), 1e-6).tolist()
    [3.0, 3.0, 3.2]
    """
    ascending = values.dropna().sort_values()
    of_each = questions[ascending.index]  # the question of each value
    # a step above the noise begins the next cluster: steps 4e-7, .2 -> clusters 0, 0, 1
    clusters = (ascending.groupby(of_each).diff() > noise).groupby(of_each).cumsum()
    smallest = ascending.groupby([of_each, clusters]).transform("min")
    return smallest.reindex(values.index)
