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
WORDS = (*world.COLOURS, *world.SHAPES)
_KEYS = {"count": WORDS, "presence": WORDS}
_VALUES = {
    "shape": world.SHAPES,
    "position": world.SHAPES,
    "colour": tuple(world.COLOURS),
    "size": tuple(world.SIZES),
    "count": NUMBERS,
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
        drawn = {"responses": [each["response"] for each in answers], "times": [1] * size, "drawn": size}
        truth = [each["gold"] for each in answers]
        questions.append({"id": row["id"].rpartition("-")[0], **own, **drawn, "true_scores": truth})
    return questions


def scene_questions(split: str = "test", *, limit: int | None = None, seed: int = 0) -> list[dict[str, Any]]:
    """The questions of Scenes without their responses, for a policy to answer.

    Args:
        split, limit, seed: as for `scene_candidates`, whose other columns the rows have.
    """
    answered = ("responses", "times", "drawn", "true_scores")
    rows = scene_candidates(split, limit=limit, seed=seed)
    return [{name: value for name, value in row.items() if name not in answered} for row in rows]


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
    sentences = [piece.strip() for piece in _MARK.split(response)]
    claims = [read_claim(sentence, aspect) for sentence in sentences if sentence]
    readable = [claim for claim in claims if claim is not None]
    different = dict.fromkeys(readable)
    right = sum(seen(scene, aspect, key) == word for key, word in different)
    wrong, unreadable = len(different) - right, len(claims) - len(readable)
    missing = max(0, N_CLAIMS - len({key for key, _ in different}))
    return {
        "score": float(max(LOWEST, HIGHEST - wrong - unreadable - missing)),
        **{"claims": len(claims), "right": right, "wrong": wrong, "missing": missing},
        **{"repeated": len(readable) - len(different), "unreadable": unreadable},
    }


def with_true_scores(candidates: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Candidates with `true_scores`, one for each response.

    Args:
        candidates: from `draw` or `gather` on `scene_questions`.
    """
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
    parts = [
        {f"true_{name}": value for name, value in true_score(by_id[id], response).items()}
        if isinstance(response, str)
        else {}
        for id, response in zip(answers["id"], answers["response"], strict=True)
    ]
    return pd.concat([answers, pd.DataFrame(parts, index=answers.index, dtype=float)], axis=1)


def read_claim(sentence: str, aspect: str) -> tuple[str, str] | None:
    """A sentence as (key, what it says there), such as ("top-left", "star"); None where it is none of the aspect."""
    for pattern, fixed in _patterns(aspect):
        match = pattern.fullmatch(sentence)
        if match:
            parts = match.groupdict()
            return parts["key"], fixed or parts["said"]
    return None


def seen(scene: world.Scene, aspect: str, key: str) -> str:
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
    keys = f"(?P<key>{'|'.join(sorted(_KEYS.get(aspect, world.PLACES), key=len, reverse=True))})"
    said = f"(?P<said>{'|'.join(_VALUES.get(aspect, ()))})"
    patterns = []
    for wording in ASPECTS[aspect].wordings:
        for form, fixed in zip(wording.split("|"), ("present", "absent"), strict=False):
            text = re.escape(form).replace(r"\{key\}", keys).replace(r"\{said\}", said)
            text = text.replace(r"\{thing\}", f"(?:a|something) {keys}")
            patterns.append((re.compile(rf"{text}\.?"), fixed if aspect == "presence" else ""))
    return tuple(patterns)


@lru_cache(maxsize=4096)
def _scene(group: str, seed: int) -> world.Scene:
    match = _GROUP.fullmatch(group)
    if match is None:
        raise ValueError(f"group {group!r} names no scene: true scores are known of scene_questions alone")
    return world.sample(match["split"], seed, int(match["index"]))
