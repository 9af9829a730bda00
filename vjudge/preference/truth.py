"""The truth beside a judge: true scores of free answers about a scene, whether policies get better, what is overpaid.

A true score goes by the rule of the collection, carried on to free answers: five, less one for each wrong or unreadable
claim and for each of four that is missing, and 1 at the least. It never sees the judge, nor the judge it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from itertools import product
from typing import Any

import numpy as np
import pandas as pd

from vjudge.data import scenes
from vjudge.data.scenes import ASPECTS, COLOURS, N_CLAIMS, SHAPES
from vjudge.metrics._tables import design_of, tabulate

_VALUES: dict[str, Any] = {"count": scenes.NUMBERS, "colour": COLOURS, "size": scenes.SIZES}
_VALUES |= {"shape": SHAPES, "position": SHAPES}


def scene_candidates(split: str = "test", *, limit: int | None = None) -> list[dict[str, Any]]:
    """Scenes' own five responses to each question as candidates, whose true order is known without any policy.

    The rows, two a picture and at most `limit`, are as `draw` gives, with aspect and true_scores (1 to 5, each once, in
    random order). They have no reference answer, which would tell a judge what the picture shows.
    """
    size, questions = N_CLAIMS + 1, []
    rows = scenes.rows(split, limit=None if limit is None else limit * size)
    for row, *others in (rows[start : start + size] for start in range(0, len(rows), size)):
        own = {name: row[name] for name in ("images", "instruction", "criteria", "descriptions", "group")}
        own |= {"id": row["id"].rpartition("-")[0], "aspect": scenes.ASPECT_OF[row["criteria"]]}
        own |= {"responses": [each["response"] for each in (row, *others)]}
        questions.append(own | {"true_scores": [each["gold"] for each in (row, *others)]})
    return questions


def scene_questions(split: str = "test", *, limit: int | None = None) -> list[dict[str, Any]]:
    """The questions of Scenes without their responses, for a policy to answer; arguments as `scene_candidates`."""
    answered, rows = ("responses", "true_scores"), scene_candidates(split, limit=limit)
    return [{name: value for name, value in row.items() if name not in answered} for row in rows]


def true_score(question: Mapping[str, Any], response: str) -> dict[str, Any]:
    """Score one answer, to a row of `scene_questions`, by the scene.

    Returns:
        score (1-5), claims (sentences), right and wrong (different claims), missing (of four), repeated (claims made
        again), unreadable (sentences that are no claim about what was asked).
    """
    scene, aspect = _scene(question["group"]), question["aspect"]
    sentences = [sentence for piece in re.split(r"\(\d+\)", response) if (sentence := piece.strip())]
    claims = [claim for sentence in sentences if (claim := _claims(aspect).get(sentence.removesuffix(".")))]
    different = set(claims)
    right = sum(scene.shows(aspect, key) == word for key, word in different)
    wrong, unreadable = len(different) - right, len(sentences) - len(claims)
    missing = max(0, N_CLAIMS - len({key for key, _ in different}))
    return {
        "score": float(max(1, 5 - wrong - unreadable - missing)),
        **{"claims": len(sentences), "right": right, "wrong": wrong, "missing": missing},
        **{"repeated": len(claims) - len(different), "unreadable": unreadable},
    }


def with_true_scores(candidates: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Candidates, from `draw` on `scene_questions`, with `true_scores`, one for each response."""
    return [{**row, "true_scores": [true_score(row, text)["score"] for text in row["responses"]]} for row in candidates]


def score_answers(questions: Sequence[Mapping[str, Any]], answers: pd.DataFrame) -> pd.DataFrame:
    """The answers of `Policy.respond` to `scene_questions`, with the columns of `true_score`, each prefixed by
    "true_" and NaN for an answer that failed."""
    by_id = {row["id"]: row for row in questions}
    pairs = zip(answers["id"], answers["response"], strict=True)
    parts = [true_score(by_id[id], response) if isinstance(response, str) else {} for id, response in pairs]
    return answers.join(pd.DataFrame(parts, index=answers.index, dtype=float).add_prefix("true_"))


@cache
def _claims(aspect: str) -> dict[str, tuple[str, str]]:
    """Every sentence of an aspect's wordings -> its claim, a key and what is said there, such as ("top", "star")."""
    keys = (*COLOURS, *SHAPES) if aspect in ("count", "presence") else scenes.PLACES
    claims: dict[str, tuple[str, str]] = {}
    for wording, key, article in product(ASPECTS[aspect].wordings, keys, ("a", "something")):
        for form, state in zip(wording.split("|"), ("present", "absent"), strict=False):
            for said in _VALUES.get(aspect, (state,)):
                claims.setdefault(form.format(key=key, said=said, thing=f"{article} {key}"), (key, said))
    return claims


@lru_cache(maxsize=4096)
def _scene(group: str) -> scenes.Scene:
    kind, split, index = (group.split("-") + ["", ""])[:3]
    if kind != "scenes" or not index.isdigit():
        raise ValueError(f"group {group!r} names no scene: true scores are known of scene_questions alone")
    return scenes.sample(split, 0, int(index))


def compare_policies(
    answers: Mapping[str, pd.DataFrame], *, columns: Sequence[str] = ("judge", "truth"), **options: Any
) -> pd.DataFrame:
    """Policies side by side on the same questions: their means, and how far each is from the first one.

    Args:
        answers: name -> one row an answer with id, group and the columns; several to a question are averaged first.
        columns: what to compare: the judge that gave the rewards, a second judge, the truth, lengths and so on.
        options: confidence, n_resamples and seed, see `metrics.correlate`; groups are resampled.

    Returns:
        Index (measure, policy); estimate, low, high, n and missing, of questions; change, change_low and change_high,
        over the questions that both answered. A judge's change above 0 with a truth's that is not: look there.
    """
    how = {"group": "first", **dict.fromkeys(columns, "mean")}
    table = pd.concat({name: frame.groupby("id").agg(how) for name, frame in answers.items()}, axis=1).sort_index()
    groups = table.xs("group", axis=1, level=1).bfill(axis=1).iloc[:, 0]
    first, rows = next(iter(answers)), []
    for column, name in product(columns, answers):
        row = mean_of(table[name, column], groups, **options)
        if name != first:
            change = mean_of(table[name, column] - table[first, column], groups, **options).iloc[0]
            row = row.assign(change=change["estimate"], change_low=change["low"], change_high=change["high"])
        rows.append(row)
    table = pd.concat(rows).set_index(pd.MultiIndex.from_product([columns, answers], names=["measure", "policy"]))
    table.attrs = rows[-1].attrs
    return table


def mean_of(values: pd.Series, groups: Any, *, mark: Any = None, name: str = "mean", **options: Any) -> pd.DataFrame:
    """The mean of what answers are worth; with a mark, the mean where it holds less the mean where it does not.

    Values, groups and marks, such as whether it says something twice, have one entry an answer; a value that is NaN is
    left out, and groups are resampled. One row, called `name`, has the columns of `metrics.correlate`, and its options.
    """
    valid = values.notna().to_numpy()
    numbers, held = values[valid].to_numpy(dtype=float), np.asarray(valid if mark is None else mark, dtype=bool)[valid]

    def statistic(weights: Any) -> Any:
        with np.errstate(invalid="ignore", divide="ignore"):
            means = [(side * numbers) @ weights / (side @ weights) for side in (held * 1.0, ~held * 1.0)]
        return (means[0] if mark is None else means[0] - means[1])[None]

    why = "no value" if mark is None else "no answer has the mark, or every one"
    design = design_of(np.arange(len(numbers)), list(groups), valid)
    return tabulate(statistic, [name], design, unit="answers", why=why, **options)
