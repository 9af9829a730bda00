"""Make pairs of responses to one question from graded single responses."""

from __future__ import annotations

import math
from contextlib import suppress
from itertools import combinations

import numpy as np

from vjudge import data
from vjudge.data import CollectionError, rows_of
from vjudge.data.schema import Items, Row
from vjudge.judging.comparing import sign
from vjudge.records import is_missing

OF_A_RESPONSE = "response response_images gold feedback human_scores".split()  # no pair shares it


def pairs_of_items(items: Items, *, limit: int | None = None, seed: int = 0) -> list[Row]:
    """Make pairs of responses to the same question of a rubric collection, for `Judge.compare`.

    Args:
        items: rows with a response each; rows that are pairs are returned as they are.
        limit: the largest number of pairs, drawn at random; None takes all.
        seed: for that draw, and for which response is a.

    Returns:
        Pairs with `gold_a`, `gold_b` and `preference`, by the true score (gold, else the mean of
        human scores), None where that is unknown. A pair without a category gets the difference of
        the true scores as its category.

    Source: LLaVA-Critic (arXiv 2410.02712) makes pairs of scored responses likewise.

    >>> import vjudge as vj
    >>> items = vj.load_collection("scenes", split="test", limit=10)
    >>> pair = pairs_of_items(items, limit=1)[0]
    >>> pair["preference"] == ("a" if pair["gold_a"] > pair["gold_b"] else "b")
    True
    """
    collection = data.canonical(items)
    rows = list(rows_of(collection))
    if "response_a" in collection.column_names:
        return rows[:limit]
    scores = np.full(len(rows), np.nan)
    with suppress(CollectionError):  # no row has a true score
        scores = data.truth(collection).to_numpy(float)

    # 1) every two rows about one question; of too many, a random sample in their order
    indices: list[tuple[int, int]] = []
    for indices_of_question in data.cases(items)["rows"]:
        indices += combinations(indices_of_question, 2)
    rng = np.random.default_rng(seed)
    if limit is not None and len(indices) > limit:
        drawn = rng.choice(len(indices), size=limit, replace=False)
        indices = [indices[i] for i in sorted(drawn)]

    # 2) a coin decides which of the two is a
    pairs = []
    for i, j in indices:
        if rng.random() >= 0.5:
            i, j = j, i
        pairs.append(_pair(rows[i], rows[j], float(scores[i] - scores[j])))
    return pairs


def _pair(row_a: Row, row_b: Row, difference: float) -> Row:
    """Make one pair of two rows about one question.

    Args:
        row_a, row_b: whose responses become a and b; all other cells are those of `row_a`.
        difference: the true score of a minus that of b, NaN if unknown.
    """
    pair = {name: value for name, value in row_a.items() if name not in OF_A_RESPONSE}
    pair["id"] = f"{row_a['id']}|{row_b['id']}"
    for side, row in (("a", row_a), ("b", row_b)):
        pair[f"response_{side}"] = row["response"]
        if "response_images" in row:
            pair[f"response_{side}_images"] = row["response_images"]
        pair[f"gold_{side}"] = row["gold"]
    pair["preference"] = None
    if not math.isnan(difference):
        pair["preference"] = sign(difference)
        if is_missing(pair.get("category")):
            pair["category"] = f"true scores differ by {abs(difference):.2g}"
    return pair
