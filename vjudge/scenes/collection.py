"""Scenes as a collection: cases of five responses, one for each score, with the columns of any rubric collection.

A case is one picture, one instruction and one rubric. Its five responses share wording, claims' places and order and
differ in what they say there, so that length tells nothing about the score. Wrong values follow the distribution of
right ones, so that the text alone tells next to nothing either. Half of the cases give a reference answer: a perfect
response that mostly speaks of other places or things than the response to evaluate. The words (aspects, rubrics,
responses of four claims, their feedback) stand in `assets/scenes.json`.
"""

from __future__ import annotations

import io
import json
import math
import re
from dataclasses import dataclass
from importlib import resources
from typing import Any

import numpy as np

from vjudge.scenes import world

N_CLAIMS = 4
NUMBERS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
WRONG_COUNTS = ("None", "One", "Two", "Three", "Four")
N_IMAGES = {"train": 1_000, "validation": 100, "test": 120}
CASES_PER_IMAGE = 2
REFERENCE_RATE = 0.5  # share of cases with a reference answer
OVERLAP_RATE = 0.1  # share of reference answers that also speak of one of the response's claims
IMAGE_SIZE = 192  # pixels, width and height
WORDS = tuple((word, "colour") for word in world.COLOURS) + tuple((word, "shape") for word in world.SHAPES)


@dataclass(frozen=True)
class Claim:
    """One statement about a picture: at `key`, the response says `said`; the picture shows `seen`."""

    key: str
    said: str
    seen: str

    @property
    def right(self) -> bool:
        """Whether what is said is what the picture shows."""
        return self.said == self.seen

    @property
    def verdict(self) -> str:
        """What feedback calls it. Not "right", which is also a place."""
        return "correct" if self.right else "wrong"


@dataclass(frozen=True)
class Aspect:
    """What a rubric looks at: its noun (singular, plural), instructions, criteria and claim wordings."""

    name: str
    noun: str
    nouns: str
    instructions: list[str]
    criteria: list[str]
    wordings: list[str]  # with {key}, {said} and {thing}, the key with an article; what is denied stands behind a bar


_TEXTS = json.loads(resources.files("vjudge").joinpath("assets", "scenes.json").read_text(encoding="utf-8"))
LEVELS: list[list[str]] = _TEXTS["levels"]
"""How well a response did, lowest score first, in eight wordings. {n}: the aspect's noun, {N}: its plural."""
ASPECTS = {aspect["name"]: Aspect(**aspect) for aspect in _TEXTS["aspects"]}
ASPECT_OF = {criteria: aspect.name for aspect in ASPECTS.values() for criteria in aspect.criteria}
_VOCABULARY = frozenset(_TEXTS["vocabulary"].split())  # of Scenes, and of what the probes write into it
_LEAST_SHARE = 0.6  # of words that Scenes uses: its own texts reach .76 under all probes, those of photos average .56


# -- the words


def rubric(aspect: Aspect, variant: int) -> tuple[str, list[str]]:
    """Criteria and the five level descriptions, lowest first, of one of the aspect's eight rubrics."""
    levels = LEVELS[(variant + list(ASPECTS).index(aspect.name)) % len(LEVELS)]
    return aspect.criteria[variant], [level.format(n=aspect.noun, N=aspect.nouns) for level in levels]


def statement(aspect: Aspect, claims: list[Claim], wording: int) -> str:
    """Claims as a numbered answer in one of the aspect's wordings."""
    forms = aspect.wordings[wording].split("|")
    parts = []
    for i, claim in enumerate(claims, start=1):
        form = forms[1] if claim.said == "absent" and len(forms) > 1 else forms[0]
        thing = f"something {claim.key}" if claim.key in world.COLOURS else f"a {claim.key}"
        parts.append(f"({i}) {form.format(key=claim.key, said=claim.said, thing=thing)}.")
    return " ".join(parts)


def n_wrong(claims: list[Claim]) -> int:
    """How many claims are wrong."""
    return sum(not claim.right for claim in claims)


def feedback(claims: list[Claim]) -> str:
    """Feedback on claims: each one against the picture, then how many are wrong."""
    checks = [f"({i}) said {c.said}, {c.key} {c.seen}, {c.verdict}." for i, c in enumerate(claims, start=1)]
    return " ".join([*checks, f"{WRONG_COUNTS[n_wrong(claims)]} wrong."])


def score(claims: list[Claim]) -> int:
    """The true score of a response of four claims: 5 less the claims that are wrong."""
    return 1 + N_CLAIMS - n_wrong(claims)


def speaks_scenes(text: str) -> bool:
    """Whether a text is made of the words of Scenes, which the embedded judge was made for and nothing else."""
    words = re.findall(r"[^\W\d_]+", text.lower())
    return not words or sum(word in _VOCABULARY for word in words) >= _LEAST_SHARE * len(words)


# -- what is said of a picture


def truths(scene: world.Scene, aspect: str, rng: np.random.Generator) -> tuple[list[Claim], list[Claim]]:
    """True claims for a response (four) and for a reference answer (two to four others), in random order."""
    if aspect == "count":  # the scene's four counted words, then other words, those that are shown first
        counted, others = list(scene.counted), [word for word in WORDS if word not in scene.counted]
        shown, hidden = ([word for word in others if bool(scene.count(*word)) is here] for here in (True, False))
        for words in (counted, shown, hidden):
            rng.shuffle(words)
        numbers = [(word, NUMBERS[scene.count(word, kind)]) for word, kind in counted + (shown + hidden)[:N_CLAIMS]]
        claims = [Claim(word, number, number) for word, number in numbers]
    elif aspect == "presence":
        claims = _existences(scene, rng)
    else:
        attribute = "shape" if aspect == "position" else aspect
        things = [scene.things[i] for i in rng.permutation(len(scene.things))]
        claims = [Claim(thing.place, getattr(thing, attribute), getattr(thing, attribute)) for thing in things]
    return claims[:N_CLAIMS], claims[N_CLAIMS : 2 * N_CLAIMS]


def _existences(scene: world.Scene, rng: np.random.Generator) -> list[Claim]:
    """Say of eight colours and shapes whether they are shown; a fair coin decides: existence can't be guessed."""
    words = list(WORDS)
    rng.shuffle(words)
    shown, hidden = ([word for word, kind in words if bool(scene.count(word, kind)) is here] for here in (True, False))
    claims: list[Claim] = []
    while len(claims) < 2 * N_CLAIMS:
        present = shown and (not hidden or rng.random() < 0.5)
        state = "present" if present else "absent"
        claims.append(Claim((shown if present else hidden).pop(), state, state))
    return claims


def falsify(scene: world.Scene, aspect: str, claim: Claim, rng: np.random.Generator) -> Claim:
    """A wrong claim in place of a true one, its value drawn as true values are."""
    if aspect == "presence":
        return Claim(claim.key, "absent" if claim.seen == "present" else "present", claim.seen)
    attribute = "shape" if aspect == "position" else aspect
    if aspect == "count":
        values = list(NUMBERS[1 : world.MOST_ALIKE + 1])
    elif aspect == "size":
        values = list(world.SIZES)
    else:
        values = [getattr(thing, attribute) for thing in scene.things]
    if aspect == "position" and rng.random() < 0.2:
        empty = [place for place in world.PLACES if scene.at(place) is None]
        if empty:  # the response puts the thing where nothing stands
            return Claim(str(rng.choice(empty)), claim.said, "empty")
    return Claim(claim.key, str(rng.choice([value for value in values if value != claim.seen])), claim.seen)


# -- rows


def case(scene: world.Scene, aspect_name: str, rng: np.random.Generator) -> list[dict[str, Any]]:
    """Make the five rows of one case, scores 1-5 in random order, without `id`, `images` and `group`."""
    aspect = ASPECTS[aspect_name]
    mine, others = truths(scene, aspect_name, rng)
    criteria, descriptions = rubric(aspect, int(rng.integers(len(aspect.criteria))))
    instruction = aspect.instructions[rng.integers(len(aspect.instructions))]
    wording, reference = int(rng.integers(len(aspect.wordings))), None
    if rng.random() < REFERENCE_RATE:
        if rng.random() < OVERLAP_RATE:
            others = [mine[rng.integers(len(mine))], *others][:N_CLAIMS]
            rng.shuffle(others)
        reference = statement(aspect, others, int(rng.integers(len(aspect.wordings))))
    rows: list[dict[str, Any]] = []
    for count in rng.permutation(N_CLAIMS + 1):
        wrong = set(rng.choice(N_CLAIMS, size=count, replace=False).tolist())
        claims: list[Claim] = []
        for i, claim in enumerate(mine):
            variant = falsify(scene, aspect_name, claim, rng) if i in wrong else claim
            if variant.key in {c.key for c in claims}:  # an empty place was taken twice: keep to the claim's own place
                variant = falsify(scene, "shape", claim, rng)
            claims.append(variant)
        row: dict[str, Any] = {"instruction": instruction, "response": statement(aspect, claims, wording)}
        row |= {"reference_answer": reference, "criteria": criteria, "descriptions": descriptions}
        rows.append(row | {"gold": float(score(claims)), "feedback": feedback(claims)})
    return rows


def rows_of(split: str, index: int, seed: int = 0) -> tuple[world.Scene, list[dict[str, Any]]]:
    """Scene number `index` of a split and the rows of its cases, each about another aspect."""
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
        ValueError: a split that Scenes does not have.
    """
    split = split or "test"
    if split not in N_IMAGES:
        raise ValueError(f"scenes has no split {split!r}; take one of {', '.join(N_IMAGES)}")
    per_image = CASES_PER_IMAGE * (N_CLAIMS + 1)
    n_rows = N_IMAGES[split] * per_image if limit is None else limit
    lines: list[dict[str, Any]] = []
    for index in range(math.ceil(n_rows / per_image)):
        scene, new = rows_of(split, index, seed)
        file = io.BytesIO()
        world.draw(scene, size=IMAGE_SIZE).save(file, format="PNG")
        lines += [{**row, "images": [{"bytes": file.getvalue(), "path": None}]} for row in new]
    return lines[:n_rows]
