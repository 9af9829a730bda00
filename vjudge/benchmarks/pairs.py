"""Pairs of responses to one question, made of graded single ones."""

from __future__ import annotations

import itertools
import math
from contextlib import suppress
from typing import Any

import numpy as np

from vjudge import data
from vjudge.data import CollectionError, rows_of
from vjudge.judging.choices import sign
from vjudge.records import is_missing

OF_A_RESPONSE = "response response_images gold feedback human_scores".split()  # no pair shares it


def pairs_of_items(
    items: Any,
    *,
    limit: int | None = None,
    seed: int = 0,
) -> list[dict[str, Any]]:
    """Make pairs of responses to the same question of a rubric collection, for `Judge.compare`.

    At most `limit` are drawn at random, and which response is a; `preference` is by the true score
    (gold, else the mean of people), None where that is unknown. A pair without a category has the
    difference of the true scores as one. Rows that are pairs are returned as they are.

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
    with suppress(CollectionError):  # nobody scored
        scores = data.truth(collection).to_numpy(float)
    rng = np.random.default_rng(seed)
    indices: list[Any] = []
    for case in data.cases(items)["rows"]:
        indices += itertools.combinations(case, 2)
    if limit is not None and len(indices) > limit:
        kept = rng.choice(len(indices), size=limit, replace=False)
        indices = [indices[i] for i in sorted(kept)]
    pairs = []
    for i, j in indices:
        if rng.random() >= 0.5:
            i, j = j, i
        pair = {name: value for name, value in rows[i].items() if name not in OF_A_RESPONSE}
        pair["id"] = f"{rows[i]['id']}|{rows[j]['id']}"
        for side, row in (("a", rows[i]), ("b", rows[j])):
            pair[f"response_{side}"] = row["response"]
            if "response_images" in row:
                pair[f"response_{side}_images"] = row["response_images"]
        pair |= {"gold_a": rows[i]["gold"], "gold_b": rows[j]["gold"], "preference": None}
        ahead = float(scores[i] - scores[j])
        if not math.isnan(ahead):
            pair["preference"] = sign(ahead)
            if is_missing(pair.get("category")):
                pair["category"] = f"true scores differ by {abs(ahead):.2g}"
        pairs.append(pair)
    return pairs
