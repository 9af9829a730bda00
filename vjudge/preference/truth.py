"""The true score of a free answer about a scene, by rule from the scene itself.

A policy that answers Scenes' instructions writes claims in Scenes' wordings, but nothing holds it to four of them, all
different. So the rule is that of the collection, carried on: five, less one for each wrong or unreadable claim, less
one for each of the four that is missing, and 1 at the least. For an answer of four different claims it is the
collection's own score. This rule never sees the judge, and the judge never sees this rule.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from typing import Any

import pandas as pd

from vjudge import scenes
from vjudge.scenes import world
from vjudge.scenes.language import ASPECTS, N_CLAIMS, NUMBERS

HIGHEST, LOWEST = 5, 1
ANSWERED = ("responses", "times", "drawn", "true_scores")
WORDS = (*world.COLOURS, *world.SHAPES)
_VALUES: dict[str, Sequence[str]] = {
    "shape": world.SHAPES,
    "position": world.SHAPES,
    "colour": tuple(world.COLOURS),
    "size": tuple(world.SIZES),
    "count": NUMBERS,
    "presence": (),
}
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
        times, drawn, and true_scores (1 to 5, each once, in random order). No reference answer: one would tell a judge
        what the picture shows.
    """
    size = N_CLAIMS + 1
    rows = scenes.rows(split, limit=None if limit is None else limit * size, seed=seed)
    questions = []
    for start in range(0, len(rows), size):
        row, answers = rows[start], rows[start : start + size]
        own = {name: row[name] for name in ("images", "instruction", "criteria", "descriptions", "group")}
        own |= {"reference_answer": None, "aspect": scenes.ASPECT_OF[row["criteria"]], "scenes_seed": seed}
        responses, truth = ([answer[name] for answer in answers] for name in ("response", "gold"))
        own |= {"responses": responses, "times": [1] * size, "drawn": size, "true_scores": truth}
        questions.append({"id": row["id"].rpartition("-")[0], **own})
    return questions


def scene_questions(split: str = "test", *, limit: int | None = None, seed: int = 0) -> list[dict[str, Any]]:
    """The questions of Scenes without their responses, for a policy to answer; arguments as `scene_candidates`."""
    rows = scene_candidates(split, limit=limit, seed=seed)
    return [{name: value for name, value in row.items() if name not in ANSWERED} for row in rows]


def true_score(question: Mapping[str, Any], response: str) -> dict[str, Any]:
    """Score one answer by the scene.

    Args:
        question: a row of `scene_questions`.
        response: the policy's answer.

    Returns:
        score (1-5), claims (sentences), right and wrong (different claims), missing (of four), repeated (claims made
        again), unreadable (sentences that are no claim about what was asked).
    """
    scene, aspect = _scene(question["group"], question["scenes_seed"]), question["aspect"]
    sentences = [sentence for piece in _MARK.split(response) if (sentence := piece.strip())]
    readable = [claim for sentence in sentences if (claim := _claim(sentence, aspect)) is not None]
    different = set(readable)
    right = sum(_shown(scene, aspect, key) == word for key, word in different)
    wrong, unreadable = len(different) - right, len(sentences) - len(readable)
    missing = max(0, N_CLAIMS - len({key for key, _ in different}))
    return {
        "score": float(max(LOWEST, HIGHEST - wrong - unreadable - missing)),
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
    """The true score of every answer of a policy.

    Args:
        questions: from `scene_questions`.
        answers: from `Policy.respond` on them.

    Returns:
        The answers with the columns of `true_score` prefixed by "true_"; NaN for an answer that failed.
    """
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


def _shown(scene: world.Scene, aspect: str, key: str) -> str:
    """What the picture shows at a key, in the words of the aspect's claims; "empty" where nothing stands."""
    kind = "colour" if key in world.COLOURS else "shape"
    if aspect == "presence":
        return "present" if scene.count(key, kind) else "absent"
    if aspect == "count":
        return NUMBERS[scene.count(key, kind)]
    thing = scene.at(key)
    return str(getattr(thing, "shape" if aspect == "position" else aspect)) if thing else "empty"


@cache
def _patterns(aspect: str) -> tuple[tuple[re.Pattern[str], str], ...]:
    """A pattern for each wording of an aspect, and what it says where the wording itself says it."""
    places = WORDS if aspect in ("count", "presence") else world.PLACES
    keys = f"(?P<key>{'|'.join(sorted(places, key=len, reverse=True))})"
    patterns = []
    for wording in ASPECTS[aspect].wordings:
        for form, fixed in zip(wording.split("|"), ("present", "absent"), strict=False):
            text = re.escape(form).replace(r"\{key\}", keys).replace(r"\{thing\}", f"(?:a|something) {keys}")
            text = text.replace(r"\{said\}", f"(?P<says>{'|'.join(_VALUES[aspect])})")
            patterns.append((re.compile(rf"{text}\.?"), fixed if aspect == "presence" else ""))
    return tuple(patterns)


@lru_cache(maxsize=4096)
def _scene(group: str, seed: int) -> world.Scene:
    match = _GROUP.fullmatch(group)
    if match is None:
        raise ValueError(f"group {group!r} names no scene: true scores are known of scene_questions alone")
    return world.sample(match["split"], seed, int(match["index"]))
