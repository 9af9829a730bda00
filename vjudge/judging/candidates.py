"""Rows with several responses, the candidates: what is judged, and what verdicts say of each.

The row "x" with the candidates p, q and r is judged as three pairs, or by scores as three items:

    verdict    0        1        2               0      1      2
    judged     p q      p r      q r             p      q      r
    id         "x/0-1"  "x/0-2"  "x/1-2"         "x/0"  "x/1"  "x/2"
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

import pandas as pd

from vjudge import data
from vjudge.data.checks import check_rows
from vjudge.data.schema import Row
from vjudge.judging.comparing import SIGNED_POINTS
from vjudge.records import NAN

# the columns of a judged row that hold responses, and the cells that it lacks
COLUMNS = {"scores": ["response"], "pairs": ["response_a", "response_b"]}
LEFT_OUT = ("responses", "preference", "gold", "human_scores")


def candidate_rows(rows: Sequence[Row], by: str) -> Sequence[Row]:
    """Make the rows that a judge is asked about in order to rank candidates.

    Args:
        rows: with `responses`, two texts or more.
        by: "pairs" or "scores".

    Raises:
        ValueError: another `by`. CollectionError: rows with fewer than two responses, or with
            images as responses.
    """
    if by not in COLUMNS:
        raise ValueError(f'by={by!r}: use "pairs" or "scores"')
    several = [len(row.get("responses") or ()) > 1 for row in rows]
    reason = "is not a list of two texts or more"
    check_rows(rows, "responses", several, reason, "give the candidates")
    textual = [not row.get("response_images") for row in rows]
    remedy = "grade each response, or compare pairs of them"
    check_rows(rows, "response_images", textual, "pictures are no candidates", remedy)
    return data.rows_of(list(judged_rows(rows, by)))


def judged_rows(rows: Sequence[Row], by: str) -> Iterator[Row]:
    """Split each row into one row per pair of its responses, or by "scores" per response."""
    columns = COLUMNS[by]
    for row in rows:
        shared = {name: cell for name, cell in row.items() if name not in LEFT_OUT}
        for candidates in combinations(enumerate(row["responses"]), len(columns)):
            positions, texts = zip(*candidates, strict=True)  # such as (0, 2) and ("p", "r")
            id = f"{row['id']}/{'-'.join(map(str, positions))}"
            yield shared | {"id": id} | dict(zip(columns, texts, strict=True))


def parties_of(rows: Sequence[Row], by: str) -> pd.DataFrame:
    """List the parties of each verdict: the candidates that it is about.

    Returns:
        One row per verdict and candidate, with the columns verdict (the position among the
        `judged_rows`), candidate and rival (positions among the candidates of all rows; by scores
        the rival is the candidate itself), and sign: 1 for a candidate that stands first or alone,
        -1 for one that stands second.

    >>> parties_of([{"responses": ["p", "q"]}], "pairs").values.tolist()
    [[0, 0, 1, 1], [0, 1, 0, -1]]
    """
    parties = []
    n_verdicts = 0
    n_candidates = 0
    for row in rows:
        # rows of 3 and 2 responses have the candidates 0, 1, 2 and 3, 4
        candidates = range(n_candidates, n_candidates + len(row["responses"]))
        n_candidates = candidates.stop
        # in the order of `judged_rows`: 0 1, 0 2, 1 2; by scores 0, 1, 2
        for judged in combinations(candidates, len(COLUMNS[by])):
            first, second = judged[0], judged[-1]
            parties.append((n_verdicts, first, second, 1))
            if by == "pairs":
                parties.append((n_verdicts, second, first, -1))
            n_verdicts += 1
    return pd.DataFrame(parties, columns=["verdict", "candidate", "rival", "sign"])


def points_by_order(run: pd.DataFrame) -> pd.DataFrame:
    """Read the points that the verdicts on pairs give to each pair's first response.

    Returns:
        One row per pair and one column per order, with 1, 0, -1, or NaN without a verdict. In a run
        without verdicts by order, both columns hold the pair's one verdict.
    """
    verdicts = run.filter(["verdict_ab", "verdict_ba"])
    if verdicts.columns.empty:
        verdicts = run[["verdict", "verdict"]]
    return verdicts.map(lambda verdict: float(SIGNED_POINTS.get(verdict, NAN)))
