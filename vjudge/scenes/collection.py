"""Scenes as a collection: cases of five responses, one for each score, with the columns of any rubric collection.

A case is one picture, one instruction and one rubric. Its five responses share wording, claims' places and order and
differ in what they say there, so that length tells nothing about the score. Wrong values follow the distribution of
right ones, so that the text alone tells next to nothing either. Half of the cases give a reference answer: a perfect
response that mostly speaks of other places or things than the response to evaluate.
"""

from __future__ import annotations

import io
import math
from typing import Any

import numpy as np

from vjudge.scenes import language, world
from vjudge.scenes.language import ASPECTS, N_CLAIMS, NUMBERS, Claim

N_IMAGES = {"train": 1_000, "validation": 100, "test": 120}
CASES_PER_IMAGE = 2
REFERENCE_RATE = 0.5  # share of cases with a reference answer
OVERLAP_RATE = 0.1  # share of reference answers that also speak of one of the response's claims
IMAGE_SIZE = 192  # pixels, width and height
WORDS = tuple((word, "colour") for word in world.COLOURS) + tuple((word, "shape") for word in world.SHAPES)


def truths(scene: world.Scene, aspect: str, rng: np.random.Generator) -> tuple[list[Claim], list[Claim]]:
    """Return true claims for a response (four) and for a reference answer (two to four others), in random order."""
    if aspect == "count":
        claims = _counts(scene, rng)
    elif aspect == "presence":
        claims = _existences(scene, rng)
    else:
        attribute = "shape" if aspect == "position" else aspect
        things = [scene.things[i] for i in rng.permutation(len(scene.things))]
        claims = [Claim(thing.place, getattr(thing, attribute), getattr(thing, attribute)) for thing in things]
    return claims[:N_CLAIMS], claims[N_CLAIMS : 2 * N_CLAIMS]


def _counts(scene: world.Scene, rng: np.random.Generator) -> list[Claim]:
    """Count the scene's four counted words, then other words, those that are shown first."""
    counted, others = list(scene.counted), [word for word in WORDS if word not in scene.counted]
    shown = [word for word in others if scene.count(*word)]
    hidden = [word for word in others if not scene.count(*word)]
    for words in (counted, shown, hidden):
        rng.shuffle(words)
    numbers = [(word, NUMBERS[scene.count(word, kind)]) for word, kind in counted + (shown + hidden)[:N_CLAIMS]]
    return [Claim(word, number, number) for word, number in numbers]


def _existences(scene: world.Scene, rng: np.random.Generator) -> list[Claim]:
    """Say of eight colours and shapes whether they are shown; a fair coin decides: existence can't be guessed."""
    words = list(WORDS)
    rng.shuffle(words)
    shown = [word for word, kind in words if scene.count(word, kind)]
    missing = [word for word, kind in words if not scene.count(word, kind)]
    claims: list[Claim] = []
    while len(claims) < 2 * N_CLAIMS:
        present = shown and (not missing or rng.random() < 0.5)
        state = "present" if present else "absent"
        claims.append(Claim((shown if present else missing).pop(), state, state))
    return claims


def falsify(scene: world.Scene, aspect: str, claim: Claim, rng: np.random.Generator) -> Claim:
    """Return a wrong claim in place of a true one, its value drawn as true values are."""
    if aspect == "presence":
        return Claim(claim.key, "absent" if claim.seen == "present" else "present", claim.seen)
    if aspect == "count":
        values = [n for n in NUMBERS[1 : world.MOST_ALIKE + 1] if n != claim.seen]
        return Claim(claim.key, str(rng.choice(values)), claim.seen)
    if aspect == "size":
        return Claim(claim.key, str(rng.choice([s for s in world.SIZES if s != claim.seen])), claim.seen)
    attribute = "colour" if aspect == "colour" else "shape"
    shown = [v for v in (getattr(thing, attribute) for thing in scene.things) if v != claim.seen]
    if aspect == "position" and rng.random() < 0.2:
        empty = [place for place in world.PLACES if scene.at(place) is None]
        if empty:  # the response puts the thing where nothing stands
            return Claim(str(rng.choice(empty)), claim.said, "empty")
    return Claim(claim.key, str(rng.choice(shown)), claim.seen)


def case(scene: world.Scene, aspect_name: str, rng: np.random.Generator) -> list[dict[str, Any]]:
    """Make the five rows of one case, scores 1-5 in random order, without `id`, `images` and `group`."""
    aspect = ASPECTS[aspect_name]
    mine, others = truths(scene, aspect_name, rng)
    criteria, descriptions = language.rubric(aspect, int(rng.integers(len(aspect.criteria))))
    instruction = aspect.instructions[rng.integers(len(aspect.instructions))]
    wording = int(rng.integers(len(aspect.wordings)))
    reference = None
    if rng.random() < REFERENCE_RATE:
        if rng.random() < OVERLAP_RATE:
            others = [mine[rng.integers(len(mine))], *others][:N_CLAIMS]
            rng.shuffle(others)
        reference = language.statement(aspect, others, int(rng.integers(len(aspect.wordings))))
    rows: list[dict[str, Any]] = []
    for n_wrong in rng.permutation(N_CLAIMS + 1):
        wrong = set(rng.choice(N_CLAIMS, size=n_wrong, replace=False).tolist())
        claims: list[Claim] = []
        for i, claim in enumerate(mine):
            variant = falsify(scene, aspect_name, claim, rng) if i in wrong else claim
            if variant.key in {c.key for c in claims}:  # an empty place was taken twice: keep to the claim's own place
                variant = falsify(scene, "shape", claim, rng)
            claims.append(variant)
        row: dict[str, Any] = {"instruction": instruction, "response": language.statement(aspect, claims, wording)}
        row |= {"reference_answer": reference, "criteria": criteria, "descriptions": descriptions}
        rows.append(row | {"gold": float(language.score(claims)), "feedback": language.feedback(claims)})
    return rows


def rows_of(split: str, index: int, seed: int = 0) -> tuple[world.Scene, list[dict[str, Any]]]:
    """Return scene number `index` of a split and the rows of its cases, each about another aspect."""
    scene = world.sample(split, seed, index)
    rng = np.random.default_rng([seed, index, world.SPLITS.index(split), 1])
    rows, group = [], f"scenes-{split}-{index:05d}"
    for i, aspect in enumerate(rng.choice(list(ASPECTS), size=CASES_PER_IMAGE, replace=False)):
        for j, row in enumerate(case(scene, str(aspect), rng)):
            rows.append({"id": f"{group}-{i}-{j}", **row, "human_scores": [], "group": group})
    return scene, rows


def rows(split: str | None = None, limit: int | None = None, seed: int = 0) -> list[dict[str, Any]]:
    """Make the collection's rows: 10 a picture; train 10,000, validation 1,000 and test 1,200.

    Args:
        split: "train", "validation" or "test"; None is "test".
        limit: how many rows, counted from the first; more than the split's size makes more pictures.
        seed: another seed is another collection of the same kind; 0 is the one that published numbers are on.

    Returns:
        Rows with the canonical columns, each picture as PNG bytes. `gold` is the true score, 1-5; `group` the picture.

    Raises:
        ValueError: for a split that Scenes does not have.
    """
    split = split or "test"
    if split not in N_IMAGES:
        raise ValueError(f"scenes has no split {split!r}; take one of {', '.join(N_IMAGES)}")
    n_rows = N_IMAGES[split] * CASES_PER_IMAGE * (N_CLAIMS + 1) if limit is None else limit
    lines: list[dict[str, Any]] = []
    for index in range(math.ceil(n_rows / (CASES_PER_IMAGE * (N_CLAIMS + 1)))):
        scene, new = rows_of(split, index, seed)
        file = io.BytesIO()
        world.draw(scene, size=IMAGE_SIZE).save(file, format="PNG")
        lines += [{**row, "images": [{"bytes": file.getvalue(), "path": None}]} for row in new]
    return lines[:n_rows]
