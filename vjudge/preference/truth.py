"""The truth beside a judge: true scores of free answers about a scene, whether policies get better, what is overpaid.

A true score goes by the rule of the collection, carried on to free answers: five, less one for each wrong or unreadable
claim and for each of four that is missing, and 1 at the least. It never sees the judge, nor the judge it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from typing import Any

import numpy as np
import pandas as pd

from vjudge.data import scenes
from vjudge.data.scenes import ASPECTS, N_CLAIMS, NUMBERS
from vjudge.metrics._tables import design_of, tabulate
from vjudge.preference.rewards import ANSWERED

_VALUES: dict[str, Sequence[str]] = {
    "shape": scenes.SHAPES,
    "position": scenes.SHAPES,
    "count": NUMBERS,
    "presence": (),
}
_VALUES |= {"colour": tuple(scenes.COLOURS), "size": tuple(scenes.SIZES)}
_MARK = re.compile(r"\(\d+\)")
_GROUP = re.compile(r"scenes-(?P<split>[a-z]+)-(?P<index>\d+)")


def scene_candidates(split: str = "test", *, limit: int | None = None, seed: int = 0) -> list[dict[str, Any]]:
    """Scenes' own five responses to each question as candidates, whose true order is known without any policy.

    Args:
        split: "train", "validation" or "test".
        limit: how many questions, two a picture; None is the whole split.
        seed: of the collection; 0 is the published one.

    Returns:
        Rows as `draw` gives: id, images, instruction, criteria, descriptions, group, aspect, scenes_seed, responses,
        times, drawn, and true_scores (1 to 5, each once, in random order). No reference answer, which would tell a
        judge what the picture shows.
    """
    size = N_CLAIMS + 1
    rows = scenes.rows(split, limit=None if limit is None else limit * size, seed=seed)
    questions = []
    for start in range(0, len(rows), size):
        row, answers = rows[start], rows[start : start + size]
        own = {name: row[name] for name in ("images", "instruction", "criteria", "descriptions", "group")}
        own |= {"reference_answer": None, "aspect": scenes.ASPECT_OF[row["criteria"]], "scenes_seed": seed}
        own |= {"responses": [answer["response"] for answer in answers], "times": [1] * size, "drawn": size}
        own["true_scores"] = [answer["gold"] for answer in answers]
        questions.append({"id": row["id"].rpartition("-")[0], **own})
    return questions


def scene_questions(split: str = "test", *, limit: int | None = None, seed: int = 0) -> list[dict[str, Any]]:
    """The questions of Scenes without their responses, for a policy to answer; arguments as `scene_candidates`."""
    rows = scene_candidates(split, limit=limit, seed=seed)
    return [{name: value for name, value in row.items() if name not in ANSWERED} for row in rows]


def true_score(question: Mapping[str, Any], response: str) -> dict[str, Any]:
    """Score one answer, to a row of `scene_questions`, by the scene.

    Returns:
        score (1-5), claims (sentences), right and wrong (different claims), missing (of four), repeated (claims made
        again), unreadable (sentences that are no claim about what was asked).
    """
    scene, aspect = _scene(question["group"], question["scenes_seed"]), question["aspect"]
    sentences = [sentence for piece in _MARK.split(response) if (sentence := piece.strip())]
    readable = [claim for sentence in sentences if (claim := _claim(sentence, aspect)) is not None]
    different = set(readable)
    right = sum(scene.shows(aspect, key) == word for key, word in different)
    wrong, unreadable = len(different) - right, len(sentences) - len(readable)
    missing = max(0, N_CLAIMS - len({key for key, _ in different}))
    return {
        "score": float(max(1, 5 - wrong - unreadable - missing)),
        **{"claims": len(sentences), "right": right, "wrong": wrong, "missing": missing},
        **{"repeated": len(readable) - len(different), "unreadable": unreadable},
    }


def with_true_scores(candidates: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Candidates, from `draw` on `scene_questions`, with `true_scores`, one for each response."""
    return [
        {**row, "true_scores": [true_score(row, response)["score"] for response in row["responses"]]}
        for row in candidates
    ]


def score_answers(questions: Sequence[Mapping[str, Any]], answers: pd.DataFrame) -> pd.DataFrame:
    """The answers of `Policy.respond` to `scene_questions`, with the columns of `true_score`, each prefixed by
    "true_" and NaN for an answer that failed."""
    by_id = {row["id"]: row for row in questions}
    pairs = zip(answers["id"], answers["response"], strict=True)
    parts = [true_score(by_id[id], response) if isinstance(response, str) else {} for id, response in pairs]
    return answers.join(pd.DataFrame(parts, index=answers.index, dtype=float).add_prefix("true_"))


def _claim(sentence: str, aspect: str) -> tuple[str, str] | None:
    """A sentence as (key, what it says there), such as ("top-left", "star"); None where it is none of the aspect."""
    for pattern, fixed in _patterns(aspect):
        if match := pattern.fullmatch(sentence):
            return match["key"], fixed or match["says"]
    return None


@cache
def _patterns(aspect: str) -> tuple[tuple[re.Pattern[str], str], ...]:
    """A pattern for each wording of an aspect, and what it says where the wording itself says it."""
    places = (*scenes.COLOURS, *scenes.SHAPES) if aspect in ("count", "presence") else scenes.PLACES
    keys = f"(?P<key>{'|'.join(sorted(places, key=len, reverse=True))})"
    patterns = []
    for wording in ASPECTS[aspect].wordings:
        for form, fixed in zip(wording.split("|"), ("present", "absent"), strict=False):
            text = re.escape(form).replace(r"\{key\}", keys).replace(r"\{thing\}", f"(?:a|something) {keys}")
            text = text.replace(r"\{said\}", f"(?P<says>{'|'.join(_VALUES[aspect])})")
            patterns.append((re.compile(rf"{text}\.?"), fixed if aspect == "presence" else ""))
    return tuple(patterns)


@lru_cache(maxsize=4096)
def _scene(group: str, seed: int) -> scenes.Scene:
    match = _GROUP.fullmatch(group)
    if match is None:
        raise ValueError(f"group {group!r} names no scene: true scores are known of scene_questions alone")
    return scenes.sample(match["split"], seed, int(match["index"]))


# What the judge is pleased by


def compare_policies(
    answers: Mapping[str, pd.DataFrame], *, columns: Sequence[str] = ("judge", "truth"), **options: Any
) -> pd.DataFrame:
    """Policies side by side on the same questions: their means, and how far each is from the first one.

    Args:
        answers: name -> one row an answer with id, group and the columns; the others are held against the first policy,
            such as the one before training. Several answers to a question are averaged first.
        columns: what to compare: the judge that gave the rewards, a second judge, the truth, lengths and so on.
        options: confidence, n_resamples and seed, see `metrics.correlate`; groups are resampled.

    Returns:
        Index (measure, policy); estimate (mean over questions), low, high, n (questions), missing (questions without
        it); change (the mean difference from the first policy over the questions of both), change_low, change_high; NaN
        for the first. A judge's change above 0 with a truth's that is not is what to look for.

    Raises:
        ValueError: a column is missing from a frame.
    """
    tables = {}
    for name, frame in answers.items():
        if absent := [column for column in ("id", "group", *columns) if column not in frame]:
            raise ValueError(f"the answers of {name!r} have no column {', '.join(absent)}")
        tables[name] = frame.groupby("id").agg({"group": "first", **dict.fromkeys(columns, "mean")})
    ids = sorted(set().union(*(table.index for table in tables.values())))
    tables = {name: table.reindex(ids) for name, table in tables.items()}
    groups = pd.concat([table["group"] for table in tables.values()], axis=1).bfill(axis=1).iloc[:, 0]
    first, rows = next(iter(tables)), {}
    for column in columns:
        for name, table in tables.items():
            mean = _mean(table[column], groups, options)
            rows[column, name] = dict(mean.iloc[0])
            if name != first:
                change = _mean(table[column] - tables[first][column], groups, options).iloc[0]
                rows[column, name] |= {"change": change["estimate"]}
                rows[column, name] |= {f"change_{side}": change[side] for side in ("low", "high")}
    result = pd.DataFrame.from_dict(rows, orient="index")
    result.index = pd.MultiIndex.from_tuples(rows, names=["measure", "policy"])
    result.attrs = dict(mean.attrs)
    return result


def over_rewarded(graded: pd.DataFrame, marks: Mapping[str, Any], **options: Any) -> pd.DataFrame:
    """What goes with a score above the truth.

    Args:
        graded: one row an answer, with the columns judge, truth and group.
        marks: name -> a truth for each answer, such as "says something twice".
        options: confidence, n_resamples and seed, see `metrics.correlate`; groups are resampled.

    Returns:
        A row a mark: with and without (the mean of judge less truth among answers that have the mark and that don't),
        estimate (the difference), low, high, n (answers with the mark), others, missing (answers without a score).

    Raises:
        ValueError: a mark of another length.
    """
    error = (graded["judge"] - graded["truth"]).to_numpy(dtype=float)
    valid, rows = ~np.isnan(error), []
    for name, values in marks.items():
        if len(values) != len(error):
            raise ValueError(f"{name!r} has {len(values)} entries for {len(error)} answers")
        mark, gap = np.asarray(values, dtype=bool)[valid], error[valid]

        def difference(weights: Any, mark: Any = mark, gap: Any = gap) -> Any:
            with np.errstate(invalid="ignore", divide="ignore"):
                sides = [(side * gap) @ weights / (side @ weights) for side in (mark * 1.0, ~mark * 1.0)]
            return (sides[0] - sides[1])[None]

        why = "no answer has the mark, or every one"
        row = _row(difference, name, graded["group"], valid, options, n=int(mark.sum()), why=why)
        means = [gap[side].mean() if side.any() else np.nan for side in (mark, ~mark)]
        rows.append(row.assign(**{"with": means[0], "without": means[1], "others": int((~mark).sum())}))
    result = pd.concat(rows)[["with", "without", "estimate", "low", "high", "n", "others", "missing"]]
    result.attrs = rows[-1].attrs
    return result.rename_axis("mark")


def _mean(values: pd.Series, groups: pd.Series, options: Mapping[str, Any]) -> pd.DataFrame:
    """A mean over questions with its interval."""
    valid = values.notna().to_numpy()
    numbers = values[valid].to_numpy(dtype=float)
    return _row(lambda weights: (numbers @ weights / weights.sum(axis=0))[None], "mean", groups, valid, options)


def _row(
    statistic: Any, name: str, groups: pd.Series, valid: Any, options: Mapping[str, Any], **more: Any
) -> pd.DataFrame:
    design, n = design_of(np.arange(valid.sum()), list(groups), valid), int(valid.sum())
    chosen = {"confidence": 0.95, "n_resamples": 10_000, "seed": 0, "n": n, "why": "no value", **more, **options}
    return tabulate(statistic, [name], design, missing=int((~valid).sum()), method="t", unit="answers", **chosen)
