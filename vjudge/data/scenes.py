"""Scenes: generated images whose true score is known.

An image shows up to nine coloured things on a three-by-three grid. Every combination of a shape, a
colour and a place belongs to one split. Training images show combinations of their own split alone;
at least half of the things in an image of another split are combinations that training never shows.

A case is one image, one instruction and one rubric. The five responses of a case share wording,
order and the places of their claims and differ in the values that they claim there, so that length
does not predict the score. Wrong values follow the distribution of right ones, so that the text
alone predicts next to nothing. Half of the cases have a reference answer: a perfect response that
mostly speaks of other places or things than the response to evaluate does.

The collection "drawings" reverses the roles: the instruction asks for four things, and the five
responses are drawings of them, a right one and four with one to four faults. The embedded judge
was never taught this: its scores of the first 200 test drawings have a Kendall's tau of .06 with
gold (95 % interval -.06 to .18; prompt template "chat-picture", score mode). Of two drawings
(prompt template "chat-picture-relative") it always chooses the one that it is shown first.
"""

from __future__ import annotations

import io
import json
import math
from collections.abc import Iterator, Sequence
from importlib import resources
from typing import NamedTuple

import numpy as np
from PIL import Image, ImageColor, ImageDraw

SHAPES = tuple("circle square triangle star cross diamond heart ring".split())
SIZES = {"small": 0.42, "medium": 0.64, "large": 0.92}  # width of a thing as a share of its cell
PLACES = tuple("top-left top top-right left middle right bottom-left bottom bottom-right".split())
NUMBERS = tuple("zero one two three four five six seven eight nine".split())
WRONG_COUNTS = tuple("None One Two Three Four".split())
N_IMAGES = {"train": 1_000, "validation": 100, "test": 120}
SPLITS = tuple(N_IMAGES)
IMAGE_SIZE = 192  # pixels, width and height
N_CLAIMS = 4  # claims of a response, and things of a drawing
CASES_PER_IMAGE = 2
MAX_COUNT = 4  # the highest count that a question asks for
REFERENCE_RATE = 0.5  # share of cases with a reference answer
OVERLAP_RATE = 0.1  # share of reference answers that repeat one of the response's claims
MOVE_RATE = 0.2  # share of wrong positions that put the thing into an empty cell

Rng = np.random.Generator
_FILE = resources.files("vjudge") / "assets/scenes.json"
_ASSET: dict = json.loads(_FILE.read_text(encoding="utf-8"))
COLOURS: dict[str, str] = _ASSET["colours"]
"""The colours that things have, as "#rrggbb" by name."""
_LEVELS: list[list[str]] = _ASSET["levels"]
"""Sets of five level descriptions, lowest first; {n} is an aspect's noun, and {N} its plural."""
_OUTLINES = {shape: np.array(corners) for shape, corners in _ASSET["outlines"].items()}
"""The corners of every shape but circle and ring, inside the unit circle, y downwards."""


class Aspect(NamedTuple):
    """What a rubric asks about, such as colours or counts, and the texts that speak of it."""

    name: str
    noun: str
    nouns: str  # the plural
    instructions: list[str]
    criteria: list[str]
    wordings: list[str]  # sentence templates of a claim, see `statement`


ASPECTS = {cells["name"]: Aspect(**cells) for cells in _ASSET["aspects"]}
ASPECT_OF: dict[str, str] = {}
"""The aspect's name for each criterion."""
for _aspect in ASPECTS.values():
    ASPECT_OF |= dict.fromkeys(_aspect.criteria, _aspect.name)


# -- images


class Thing(NamedTuple):
    """One drawn thing: a shape of a colour and a size at a place of the grid."""

    shape: str
    colour: str
    size: str
    place: str


class Scene(NamedTuple):
    """The things of one image, and the two colours and two shapes that questions count."""

    things: tuple[Thing, ...]
    counted: tuple[str, ...]  # each count is uniform on 1-4
    seed: tuple[int, ...]

    def at(self, place: str) -> Thing | None:
        """Return the thing at a place, or None where the cell is empty."""
        return next((thing for thing in self.things if thing.place == place), None)

    def shows(self, aspect: str, key: str) -> str:
        """Return the true value of a claim.

        Args:
            aspect: the name of an aspect, which says what kind of value is asked for.
            key: what the claim speaks of: a colour or shape for "count" and "presence", else a
                place.

        Returns:
            For "count" a numeral such as "two", for "presence" "present" or "absent"; else the
            shape ("shape" and "position"), colour or size of the thing at the place, or "empty".
        """
        # A thing is a tuple of names: `key in thing` is true where it has that colour or shape.
        n_things = sum(key in thing for thing in self.things)
        if aspect == "count":
            return NUMBERS[n_things]
        if aspect == "presence":
            return "present" if n_things else "absent"
        thing = self.at(key)
        if thing is None:
            return "empty"
        # "shape", "colour" and "size" are named like the attribute that holds the value.
        return str(getattr(thing, "shape" if aspect == "position" else aspect))


# Assign each (shape, colour, place) to a split by its rank in a random order of all 576:
# ranks 0-114 to test (2), 115-171 to validation (1), the other 70 % to train (0). The numbers are
# indices into SPLITS; the random seed is an arbitrary constant.
_RANKS = np.argsort(np.random.default_rng(2401_06591).permutation(8 * 8 * 9))
_SPLIT_OF = np.select([_RANKS < 115, _RANKS < 115 + 57], [2, 1], 0).reshape(8, 8, 9)


def sample(split: str, *seed: int) -> Scene:
    """Sample a scene of a split; equal seeds give equal scenes.

    Args:
        split: one of `SPLITS`.
        seed: any number of non-negative integers.
    """
    split_index = SPLITS.index(split)
    rng = np.random.default_rng([*seed, split_index])
    combinations: list[tuple] = []
    while not combinations:  # rejection sampling: draw again where `_arrange` fails
        # 1) two colours, then two shapes that are counted, and how many things have each (1-4);
        #    in `pairs`, `counts` and `indices` entry 0 is of colours, and entry 1 of shapes
        pairs = []
        counts = []
        for _ in range(2):
            pairs.append(rng.choice(8, size=2, replace=False))
            counts.append(rng.integers(1, MAX_COUNT + 1, size=2))

        # 2) the number of things, at least six and at least as many as are counted
        fewest = max(6, *map(sum, counts))
        n_things = rng.integers(fewest, len(PLACES) + 1)

        # 3) an index for the colour, then for the shape of each thing: counted ones as often as
        #    drawn in step 1, and for the remaining things ones that are not counted
        indices = []
        for pair, n_of_each in zip(pairs, counts, strict=True):
            not_counted = np.setdiff1d(range(8), pair)
            fillers = rng.choice(not_counted, size=n_things - n_of_each.sum())
            indices.append([*np.repeat(pair, n_of_each), *fillers])
        combinations = _arrange(rng, indices[1], indices[0], split_index)

    # 4) names in place of indices, and a size for each thing
    colours = list(COLOURS)
    sizes = list(SIZES)
    things = []
    for shape, colour, cell in combinations:
        size = sizes[rng.integers(3)]
        things.append(Thing(SHAPES[shape], colours[colour], size, PLACES[cell]))
    counted = np.take(colours, pairs[0]).tolist() + np.take(SHAPES, pairs[1]).tolist()
    return Scene(tuple(things), tuple(counted), (*seed, split_index))


def _arrange(rng: Rng, shapes: list[int], colours: list[int], split: int) -> list[tuple]:
    """Combine shapes, colours and places into things that a split may show.

    Args:
        rng: random generator.
        shapes, colours: one of each per thing, as indices; both lists are emptied.
        split: the split's index in `SPLITS`.

    Returns:
        Triples (shape, colour, place) that use up `shapes` and `colours`, at least half of them of
        the split itself; an empty list where the random order leads to no such triples.
    """
    places = rng.permutation(len(PLACES)).tolist()
    combinations = []
    while shapes:
        # A combination of the split itself where there is one, else one of train (0).
        table = _SPLIT_OF[np.ix_(shapes, colours, places)]  # (shapes, colours, places) not used up
        options = np.argwhere(table == split)
        if not len(options):
            options = np.argwhere(table == 0)
        if not len(options):
            return []
        # An option is a position in each of the three lists; what it points to is used up.
        shape, colour, cell = options[rng.integers(len(options))]
        combinations.append((shapes.pop(shape), colours.pop(colour), places.pop(cell)))
    # Where too few are of the split itself, since the others were used up, the triples are refused.
    n_of_split = sum(_SPLIT_OF[combination] == split for combination in combinations)
    return combinations if 2 * n_of_split >= len(combinations) else []


def paint(scene: Scene) -> Image.Image:
    """Draw the scene as an RGB image of 192 x 192 pixels, the same one at every call.

    The scene's seed shifts, turns and shades its things a little. A thing's colour may also be
    "#rrggbb".
    """
    rng = np.random.default_rng([*scene.seed, 7])  # 7: a stream of random numbers for painting
    side = 2 * IMAGE_SIZE  # drawn twice as large, then reduced: smooth edges
    cell = side / 3
    image = Image.new("RGB", (side, side), tuple(rng.integers(232, 256, size=3).tolist()))
    pen = ImageDraw.Draw(image)
    for thing in scene.things:
        # The centre is shifted by at most half of the room between the thing and its cell's edge.
        row, column = divmod(PLACES.index(thing.place), 3)
        radius = SIZES[thing.size] * cell / 2
        slack = max(cell / 2 - radius * 1.08, 0.0) * 0.5
        centre = (np.array([column, row]) + 0.5) * cell + rng.uniform(-slack, slack, size=2)
        angle = math.radians(rng.uniform(-10, 10))
        colour = np.array(ImageColor.getrgb(COLOURS.get(thing.colour, thing.colour)))
        ink = tuple(np.clip(colour + rng.integers(-10, 11, size=3), 0, 255).tolist())
        if thing.shape == "circle":
            pen.circle(tuple(centre), radius, fill=ink)
        elif thing.shape == "ring":
            width = max(2, round(radius * 0.42))
            pen.circle(tuple(centre), radius, outline=ink, width=width)
        else:
            cos = math.cos(angle)
            sin = math.sin(angle)
            rotation = [[cos, sin], [-sin, cos]]
            corners = _OUTLINES[thing.shape] @ rotation * radius + centre  # (corners, 2)
            pen.polygon(corners.flatten().tolist(), fill=ink)
    return image.reduce(2)


# -- what responses claim of an image


class Claim(NamedTuple):
    """One statement of a response: at `key` it claims a value, and the image shows the actual one.

    `key` is a place, or a colour or shape where the claim is about counts or presence.
    """

    key: str
    claimed: str
    actual: str


def write_rubric(aspect: Aspect, variant: int | np.integer) -> tuple[str, list[str]]:
    """Write one rubric of an aspect.

    Args:
        aspect: what the rubric asks about.
        variant: index of its criteria, which also decides the set of level descriptions.

    Returns:
        The criteria, and the five level descriptions, lowest first.
    """
    # Starting from the aspect's own index, equal variants of two aspects use different sets.
    set_index = variant + list(ASPECTS).index(aspect.name)
    levels = _LEVELS[set_index % len(_LEVELS)]
    described = [level.format(n=aspect.noun, N=aspect.nouns) for level in levels]
    return aspect.criteria[variant], described


def statement(aspect: Aspect, claims: Sequence[Claim], wording: int | np.integer) -> str:
    """Write claims as a numbered answer in one of the aspect's wordings.

    A wording is a sentence template with the placeholders {key}, {said} (the claimed value) and
    {thing} (the key with an article). Wordings of presence have two templates with a bar between
    them; the second one is for a claim of absence.
    """
    templates = aspect.wordings[wording].split("|")
    sentences = []
    for i, claim in enumerate(claims, start=1):
        template = templates[-1] if claim.claimed == "absent" else templates[0]
        thing = f"something {claim.key}" if claim.key in COLOURS else f"a {claim.key}"
        sentences.append(
            f"({i}) {template.format(key=claim.key, said=claim.claimed, thing=thing)}."
        )
    return " ".join(sentences)


def n_wrong(claims: Sequence[Claim]) -> int:
    """Count the wrong claims. The true score of a response is 5 minus this count."""
    return sum(claim.claimed != claim.actual for claim in claims)


def feedback(claims: Sequence[Claim]) -> str:
    """Write the feedback on claims: each one against the image, then the number of wrong ones."""
    sentences = []
    for i, claim in enumerate(claims, start=1):
        verdict = "wrong" if n_wrong([claim]) else "correct"  # not "right", which is also a place
        sentences.append(f"({i}) said {claim.claimed}, {claim.key} {claim.actual}, {verdict}.")
    sentences.append(f"{WRONG_COUNTS[n_wrong(claims)]} wrong.")
    return " ".join(sentences)


def truths(scene: Scene, aspect: str, rng: Rng) -> tuple[list[Claim], list[Claim]]:
    """Return the four true claims of a response, then the two to four of a reference answer."""
    claims = []
    for key in _claim_keys(scene, aspect, rng)[: 2 * N_CLAIMS]:
        actual = scene.shows(aspect, key)
        claims.append(Claim(key, actual, actual))
    return claims[:N_CLAIMS], claims[N_CLAIMS:]


def _claim_keys(scene: Scene, aspect: str, rng: Rng) -> list[str]:
    """List the keys (see `Claim`) that claims of an aspect may speak of, those to take first first.

    Returns:
        For "count" all colours and shapes, the counted ones first; for "presence" eight of them in
        random order; else all occupied places in random order.
    """
    if aspect not in ("count", "presence"):
        return rng.permutation([thing.place for thing in scene.things]).tolist()
    vocabulary = [*COLOURS, *SHAPES]
    if aspect == "presence":
        rng.shuffle(vocabulary)
    present = [word for word in vocabulary if scene.shows("presence", word) == "present"]
    absent = [word for word in vocabulary if word not in present]
    keys: list[str] = []
    if aspect == "count":
        # First the words that the scene was made to count, then the other present ones, then the
        # absent ones, each kind in random order.
        remaining = [word for word in present if word not in scene.counted]
        for words_of_kind in (list(scene.counted), remaining, absent):
            rng.shuffle(words_of_kind)
            keys += words_of_kind
        return keys
    # A fair coin decides whether the next word is present, so that guessing does not help. Where
    # one kind is used up, the other kind fills the list, and no coin is tossed.
    while len(keys) < 2 * N_CLAIMS:
        takes_present = present and (not absent or rng.random() < 0.5)
        keys.append(present.pop() if takes_present else absent.pop())
    return keys


def falsify(scene: Scene, aspect: str, claim: Claim, rng: Rng) -> Claim:
    """Return a wrong claim in place of a true one.

    The wrong value is drawn from the distribution of true values. A position may keep its value
    and get another key instead.
    """
    if aspect == "presence":
        return claim._replace(claimed="absent" if claim.actual == "present" else "present")
    if aspect == "position" and rng.random() < MOVE_RATE:
        # Keep the thing and change its place: the response puts it where nothing stands.
        empty = [place for place in PLACES if scene.at(place) is None]
        if empty:
            return Claim(key=str(rng.choice(empty)), claimed=claim.claimed, actual="empty")
    if aspect == "count":
        values = list(NUMBERS[1 : MAX_COUNT + 1])
    elif aspect == "size":
        values = list(SIZES)
    else:  # a value of the scene, as often as things have it
        values = [scene.shows(aspect, thing.place) for thing in scene.things]
    wrong = [value for value in values if value != claim.actual]
    return claim._replace(claimed=str(rng.choice(wrong)))


# -- drawings of what an instruction asks for

# Attributes of a thing that a fault may change, and their values.
_VALUES = {"shape": SHAPES, "colour": tuple(COLOURS)}


def drawing_rows(split: str, index: int, seed: int = 0) -> list[dict]:
    """Make the five rows of one drawing instruction, scores 1-5 in random order.

    Args:
        split: one of `SPLITS`.
        index: number of the instruction in its split, from 0.
        seed: of the random draws.
    """
    scene = sample(split, seed, index)
    # The 2 keeps these random numbers apart from those of `scene_rows`, which has a 1.
    rng = np.random.default_rng([seed, index, SPLITS.index(split), 2])
    # 1) what is asked for; all places of the grid without an asked thing are empty
    things = [scene.things[i] for i in rng.choice(len(scene.things), N_CLAIMS, replace=False)]
    empty = np.setdiff1d(PLACES, [thing.place for thing in things])
    asked = ", ".join(map(_phrase, things))
    # 2) five drawings, with zero to four faults each
    group = f"drawings-{split}-{index:05d}"
    rows = []
    for number, n_faults in enumerate(rng.permutation(N_CLAIMS + 1)):
        spoiled = rng.choice(N_CLAIMS, size=n_faults, replace=False)
        free_places = iter(rng.permutation(empty).tolist())
        drawn = []
        notes = []
        for i, asked_thing in enumerate(things):
            thing: Thing | None = asked_thing
            note = "as asked"
            if i in spoiled:
                thing, note = _faulty(asked_thing, free_places, rng)
            if thing is not None:  # a fault may leave the thing out
                drawn.append(thing)
            notes.append(f"({i + 1}) {_phrase(asked_thing)}: {note}.")
        drawing = Scene(things=tuple(drawn), counted=(), seed=(*scene.seed, number))
        row = {
            "id": f"{group}-{number}",
            "instruction": f"Draw these four things and nothing else: {asked}.",
            "response_images": [_png(drawing)],
            **_ASSET["drawing"],
            "gold": 5.0 - n_faults,
            "feedback": " ".join([*notes, f"{WRONG_COUNTS[n_faults]} wrong."]),
            "images": [],
            "group": group,
        }
        rows.append(row)
    return rows


def _phrase(thing: Thing) -> str:
    """Describe a thing without its size: "an orange star at the top-left"."""
    article = "an" if thing.colour == "orange" else "a"
    return f"{article} {thing.colour} {thing.shape} at the {thing.place}"


def _faulty(thing: Thing, free_places: Iterator[str], rng: Rng) -> tuple[Thing | None, str]:
    """Make one random fault in a thing: another shape, colour or place, or the thing is left out.

    Args:
        thing: as it was asked for.
        free_places: where no thing was asked for; a thing that is moved takes the next one.
        rng: random generator.

    Returns:
        The thing with the fault, or None where it is left out; and the name of the fault.
    """
    attribute = str(rng.choice([*_VALUES, "place", "none"]))
    if attribute == "none":  # no attribute is wrong: the thing is left out
        return None, "not drawn"
    if attribute == "place":
        return thing._replace(place=next(free_places)), "wrong place"
    while True:  # draw a value until it is not the one that was asked for
        value = str(rng.choice(_VALUES[attribute]))
        if value != getattr(thing, attribute):
            return thing._replace(**{attribute: value}), f"wrong {attribute}"


def _png(scene: Scene) -> dict:
    """Return a scene's image as a PNG file in memory, in the form of the datasets library."""
    file = io.BytesIO()
    paint(scene).save(file, format="PNG")
    return {"bytes": file.getvalue(), "path": None}


# -- rows


def case(scene: Scene, aspect_name: str, rng: Rng) -> list[dict]:
    """Make the five rows of one case, scores 1-5 in random order.

    The caller adds the columns id, images, human_scores and group.
    """
    # 1) what the five rows share: true claims, rubric, instruction, wording, reference answer
    aspect = ASPECTS[aspect_name]
    true_claims, reference_claims = truths(scene, aspect_name, rng)
    criteria, descriptions = write_rubric(aspect, rng.integers(len(aspect.criteria)))
    instruction = aspect.instructions[rng.integers(len(aspect.instructions))]
    wording = rng.integers(len(aspect.wordings))
    reference = None
    if rng.random() < REFERENCE_RATE:
        if rng.random() < OVERLAP_RATE:
            repeated = true_claims[rng.integers(len(true_claims))]
            reference_claims = [repeated, *reference_claims][:N_CLAIMS]
            rng.shuffle(reference_claims)
        reference = statement(aspect, reference_claims, rng.integers(len(aspect.wordings)))

    # 2) five responses, with zero to four wrong claims
    rows = []
    for n_wrong_claims in rng.permutation(N_CLAIMS + 1):
        wrong_indices = rng.choice(N_CLAIMS, size=n_wrong_claims, replace=False)
        claims: list[Claim] = []
        for i, claim in enumerate(true_claims):
            stated = claim
            if i in wrong_indices:
                stated = falsify(scene, aspect_name, claim, rng)
            if stated.key in [earlier.key for earlier in claims]:
                # `falsify` moved two things into one empty place: keep this claim's place, and
                # give it another shape.
                stated = falsify(scene, "shape", claim, rng)  # never moves, unlike "position"
            claims.append(stated)
        row = {
            "instruction": instruction,
            "reference_answer": reference,
            "criteria": criteria,
            "category": ASPECT_OF[criteria],
            "descriptions": descriptions,
            "response": statement(aspect, claims, wording),
            "gold": 5.0 - n_wrong(claims),
            "feedback": feedback(claims),
        }
        rows.append(row)
    return rows


def scene_rows(split: str, index: int, seed: int = 0) -> tuple[Scene, list[dict]]:
    """Make one scene of a split, and the rows of its two cases, each on another aspect.

    Args:
        split: one of `SPLITS`.
        index: number of the scene in its split, from 0.
        seed: of the random draws.
    """
    scene = sample(split, seed, index)
    rng = np.random.default_rng([seed, index, SPLITS.index(split), 1])
    group = f"scenes-{split}-{index:05d}"
    rows = []
    aspects = rng.choice(list(ASPECTS), size=CASES_PER_IMAGE, replace=False)
    for i, aspect in enumerate(aspects):
        for j, row in enumerate(case(scene, aspect, rng)):
            rows.append({"id": f"{group}-{i}-{j}", **row, "human_scores": [], "group": group})
    return scene, rows


def rows(
    split: str | None = None, limit: int | None = None, seed: int = 0, *, drawn: bool = False
) -> list[dict]:
    """Make the rows of the collection "scenes" (10 per image) or "drawings" (5 per instruction).

    Args:
        split: "train" (10,000 rows), "validation" (1,000) or "test" (1,200); for drawings half as
            many. None for test.
        limit: how many rows to make, the first ones; a limit above the split's size makes more
            images. None makes the whole split.
        seed: of the random draws; published numbers are on seed 0.
        drawn: whether to make drawings.

    Returns:
        Rows with the canonical columns, each image as PNG bytes; `gold` is the true score, 1-5,
        and `group` the image.

    Raises:
        ValueError: Scenes does not have the split.
    """
    split = split or "test"
    if split not in N_IMAGES:
        raise ValueError(f"scenes has no split {split!r}; take one of {', '.join(SPLITS)}")
    n_cases = 1 if drawn else CASES_PER_IMAGE
    rows_per_image = n_cases * (N_CLAIMS + 1)
    n_rows = N_IMAGES[split] * rows_per_image if limit is None else limit
    made = []
    for index in range(math.ceil(n_rows / rows_per_image)):  # an instruction, or an image
        if drawn:
            made += drawing_rows(split, index, seed)
            continue
        scene, new = scene_rows(split, index, seed)
        image = _png(scene)
        for row in new:
            made.append({**row, "images": [image]})
    return made[:n_rows]
