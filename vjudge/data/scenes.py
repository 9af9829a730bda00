"""Scenes: generated pictures whose true score is known.

A picture shows up to nine coloured things on a three-by-three grid. Every (shape, colour, place)
belongs to one split: training shows its own alone, and at least half of the things in another
split's picture are never seen in training. A case is one picture, one instruction and one rubric.
Its five responses share wording, order and the places of their claims and differ in what they say
there, so that length does not predict the score. Wrong values follow the distribution of right
ones, so that the text alone predicts next to nothing. Half of the cases give a reference answer: a
perfect response that mostly speaks of other places or things than the response to evaluate.

The collection "drawings" turns it round: the instruction asks for four things, and the five
responses are drawings of them, the right one and four with one to four faults. The embedded judge
was never taught this: its scores of the first 200 test drawings have a Kendall's tau of .06 with
gold (95 % interval -.06 to .18; wording "chat-picture", score mode), and of two drawings
("chat-picture-relative") it chooses the first shown, always.
"""

from __future__ import annotations

import io
import json
import math
from collections import namedtuple
from collections.abc import Iterator
from importlib import resources
from itertools import chain
from types import SimpleNamespace
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
N_CLAIMS = 4
CASES_PER_IMAGE = 2
MOST_ALIKE = 4  # the highest count that a question asks for
REFERENCE_RATE = 0.5  # share of cases with a reference answer
OVERLAP_RATE = 0.1  # share of reference answers that also speak of one of the response's claims

Rng = np.random.Generator
_FILE = resources.files("vjudge") / "assets/scenes.json"
_ASSET: dict = json.loads(_FILE.read_text(encoding="utf-8"))
COLOURS: dict = _ASSET["colours"]
_LEVELS: list = _ASSET["levels"]
_OUTLINES = {shape: np.array(corners) for shape, corners in _ASSET["outlines"].items()}
"""The corners of every shape but circle and ring, inside the unit circle, y downwards."""
ASPECTS = {cells["name"]: SimpleNamespace(**cells) for cells in _ASSET["aspects"]}
"""What rubrics ask about: name, noun and plural, instructions, criteria and wordings of claims."""
ASPECT_OF: dict = {}
"""The aspect of each criterion."""
for _aspect in ASPECTS.values():
    ASPECT_OF |= dict.fromkeys(_aspect.criteria, _aspect.name)


# -- pictures


# One drawn thing: a shape of a colour and a size at a place of the grid.
Thing = namedtuple("Thing", "shape colour size place")


class Scene(NamedTuple):
    """The things of one picture, and the two colours and two shapes that are counted."""

    things: tuple
    counted: tuple  # each count is uniform on 1-4
    seed: tuple

    def at(self, location: str) -> Thing | None:
        """The thing at `place`, or None where the cell is empty."""
        return next((thing for thing in self.things if thing.place == location), None)

    def shows(self, aspect: str, key: str) -> str:
        """What the picture shows at a claim's key, a place or a word for things."""
        number = list(chain(*self.things)).count(key)
        if aspect == "count":
            return NUMBERS[number]
        if aspect == "presence":
            return "present" if number else "absent"
        thing = self.at(key)
        if thing is None:
            return "empty"
        return str(getattr(thing, "shape" if aspect == "position" else aspect))


# The split of every (shape, colour, place): 70 % train (0), 10 % validation (1), 20 % test (2).
_DRAWN = np.argsort(np.random.default_rng(2401_06591).permutation(8 * 8 * 9))  # when it was drawn
_SPLIT_OF = np.select([_DRAWN < 115, _DRAWN < 115 + 57], [2, 1], 0).reshape(8, 8, 9)


def sample(split: str, *seed: int) -> Scene:
    """Sample the scene of `split` that belongs to `seed` (any number of non-negative integers)."""
    index = SPLITS.index(split)
    rng = np.random.default_rng([*seed, index])
    combinations: list = []
    while not combinations:
        # Of colours, then of shapes: two that are counted, and how many things have each.
        pairs = []
        counts = []
        for _ in range(2):
            pairs.append(rng.choice(8, size=2, replace=False))
            counts.append(rng.integers(1, MOST_ALIKE + 1, size=2))
        fewest = max(6, *map(sum, counts))
        n = rng.integers(fewest, len(PLACES) + 1)
        codes = []
        for pair, count in zip(pairs, counts, strict=True):
            not_counted = np.setdiff1d(range(8), pair)
            drawn = rng.choice(not_counted, size=n - count.sum())
            codes.append([*np.repeat(pair, count), *drawn])
        combinations = _arrange(rng, codes[1], codes[0], index)
    colours = list(COLOURS)
    sizes = list(SIZES)
    things = []
    for shape, colour, cell in combinations:
        size = sizes[rng.integers(3)]
        things.append(Thing(SHAPES[shape], colours[colour], size, PLACES[cell]))
    counted = np.take(colours, pairs[0]).tolist() + np.take(SHAPES, pairs[1]).tolist()
    return Scene(tuple(things), tuple(counted), (*seed, index))


def _arrange(rng: Rng, shapes: list, colours: list, split: int) -> list:
    """Pair shapes, colours and places by the split's rule; empty where the order hit a dead end."""
    places = rng.permutation(len(PLACES)).tolist()
    combinations = []
    while shapes:
        table = _SPLIT_OF[np.ix_(shapes, colours, places)]
        options = np.argwhere(table == split)
        if not len(options):
            options = np.argwhere(table == 0)
        if not len(options):
            return []
        shape, colour, cell = options[rng.integers(len(options))]
        combinations.append((shapes.pop(shape), colours.pop(colour), places.pop(cell)))
    n_of_split = sum(_SPLIT_OF[combination] == split for combination in combinations)
    return combinations if 2 * n_of_split >= len(combinations) else []


def paint(scene: Scene) -> Image.Image:
    """Draw the scene as an RGB picture of 192 x 192 pixels, the same one whenever it is drawn.

    Things are shifted, turned and shaded a little by its seed. A thing's colour may be "#rrggbb".
    """
    rng = np.random.default_rng([*scene.seed, 7])
    side = 2 * IMAGE_SIZE  # drawn twice as large, then reduced: smooth edges
    cell = side / 3
    image = Image.new("RGB", (side, side), tuple(rng.integers(232, 256, size=3).tolist()))
    pen = ImageDraw.Draw(image)
    for thing in scene.things:
        row, column = divmod(PLACES.index(thing.place), 3)
        radius = SIZES[thing.size] * cell / 2
        slack = max(cell / 2 - radius * 1.08, 0.0) * 0.5
        middle = (np.array([column, row]) + 0.5) * cell + rng.uniform(-slack, slack, size=2)
        turn = math.radians(rng.uniform(-10, 10))
        colour = np.array(ImageColor.getrgb(COLOURS.get(thing.colour, thing.colour)))
        ink = tuple(np.clip(colour + rng.integers(-10, 11, size=3), 0, 255).tolist())
        if thing.shape == "circle":
            pen.circle(tuple(middle), radius, fill=ink)
        elif thing.shape == "ring":
            width = max(2, round(radius * 0.42))
            pen.circle(tuple(middle), radius, outline=ink, width=width)
        else:
            cos = math.cos(turn)
            sin = math.sin(turn)
            corners = _OUTLINES[thing.shape] @ [[cos, sin], [-sin, cos]] * radius + middle
            pen.polygon(corners.flatten().tolist(), fill=ink)
    return image.reduce(2)


# -- what is said of a picture


# At `key`, the response says `said`, and the picture shows `seen`.
Claim = namedtuple("Claim", "key said seen")


def write_rubric(aspect: SimpleNamespace, variant: int | np.integer) -> tuple:
    """Criteria and the five level descriptions, lowest first, of one of the aspect's rubrics."""
    number = variant + list(ASPECTS).index(aspect.name)
    levels = _LEVELS[number % len(_LEVELS)]
    described = [level.format(n=aspect.noun, N=aspect.nouns) for level in levels]
    return aspect.criteria[variant], described


def statement(aspect: SimpleNamespace, claims: list, wording: int | np.integer) -> str:
    """Claims as a numbered answer in one of the aspect's wordings.

    In a wording {thing} is the key with an article; what is denied stands behind a bar.
    """
    forms = aspect.wordings[wording].split("|")
    sentences = []
    for i, claim in enumerate(claims, start=1):
        form = forms[-1] if claim.said == "absent" else forms[0]
        thing = f"something {claim.key}" if claim.key in COLOURS else f"a {claim.key}"
        sentences.append(f"({i}) {form.format(key=claim.key, said=claim.said, thing=thing)}.")
    return " ".join(sentences)


def n_wrong(claims: list) -> int:
    """How many claims are wrong: the true score of a response is 5 less these."""
    return sum(claim.said != claim.seen for claim in claims)


def feedback(claims: list) -> str:
    """Feedback on claims: each one against the picture, then how many are wrong."""
    sentences = []
    for i, claim in enumerate(claims, start=1):
        verdict = "wrong" if n_wrong([claim]) else "correct"  # not "right", which is also a place
        sentences.append(f"({i}) said {claim.said}, {claim.key} {claim.seen}, {verdict}.")
    sentences.append(f"{WRONG_COUNTS[n_wrong(claims)]} wrong.")
    return " ".join(sentences)


def truths(scene: Scene, aspect: str, rng: Rng) -> tuple:
    """True claims for a response (four) and for a reference answer (two to four others)."""
    if aspect in ("count", "presence"):
        keys = _words(scene, aspect, rng)
    else:
        keys = rng.permutation([thing.place for thing in scene.things]).tolist()
    claims = []
    for key in keys[: 2 * N_CLAIMS]:
        seen = scene.shows(aspect, key)
        claims.append(Claim(key, seen, seen))
    return claims[:N_CLAIMS], claims[N_CLAIMS:]


def _words(scene: Scene, aspect: str, rng: Rng) -> list:
    """Colours and shapes in the order in which claims speak of them."""
    keys_in_order = [*COLOURS, *SHAPES]
    if aspect == "presence":
        rng.shuffle(keys_in_order)
    present = [word for word in keys_in_order if scene.shows("presence", word) == "present"]
    absent = [word for word in keys_in_order if word not in present]
    keys = []
    if aspect == "count":  # the scene's counted words, then other words, the shown ones first
        remaining = [word for word in present if word not in scene.counted]
        for keys_of_kind in (list(scene.counted), remaining, absent):
            rng.shuffle(keys_of_kind)
            keys += keys_of_kind
        return keys
    while len(keys) < 2 * N_CLAIMS:  # a fair coin decides whether a word is shown: no guessing
        wants_shown = present and (not absent or rng.random() < 0.5)
        keys.append(present.pop() if wants_shown else absent.pop())
    return keys


def falsify(scene: Scene, aspect: str, claim: Claim, rng: Rng) -> Claim:
    """A wrong claim in place of a true one, its value drawn as true values are."""
    if aspect == "presence":
        return claim._replace(said="absent" if claim.seen == "present" else "present")
    if aspect == "position" and rng.random() < 0.2:
        empty = [cell for cell in PLACES if scene.at(cell) is None]
        if empty:  # the response puts the thing where nothing stands
            return Claim(str(rng.choice(empty)), claim.said, "empty")
    if aspect == "count":
        values = list(NUMBERS[1 : MOST_ALIKE + 1])
    elif aspect == "size":
        values = list(SIZES)
    else:
        values = [scene.shows(aspect, thing.place) for thing in scene.things]
    wrong = [value for value in values if value != claim.seen]
    return claim._replace(said=str(rng.choice(wrong)))


# -- drawings of what an instruction asks for

_VALUES = {"shape": SHAPES, "colour": tuple(COLOURS)}


def drawing_rows(split: str, index: int, seed: int = 0) -> list:
    """The five rows of one instruction, scores 1-5 in random order: the response is a picture."""
    scene = sample(split, seed, index)
    rng = np.random.default_rng([seed, index, SPLITS.index(split), 2])
    # 1) what is asked for
    things = [scene.things[i] for i in rng.choice(len(scene.things), N_CLAIMS, replace=False)]
    empty = np.setdiff1d(PLACES, [thing.place for thing in things])
    asked = ", ".join(map(_phrase, things))
    # 2) the drawings, each with so many faults
    group = f"drawings-{split}-{index:05d}"
    rows = []
    for number, count in enumerate(rng.permutation(N_CLAIMS + 1)):
        spoiled = rng.choice(N_CLAIMS, size=count, replace=False)
        free = iter(rng.permutation(empty).tolist())
        drawn = []
        notes = []
        for i, thing in enumerate(things):
            note = "as asked"
            if i in spoiled:
                thing, note = _faulty(thing, free, rng)
            drawn.append(thing)
            notes.append(f"({i + 1}) {_phrase(things[i])}: {note}.")
        drawing = Scene(tuple(filter(None, drawn)), (), (*scene.seed, number))
        rows.append(
            {
                "id": f"{group}-{number}",
                "instruction": f"Draw these four things and nothing else: {asked}.",
                "response_images": [_png(drawing)],
                **_ASSET["drawing"],
                "gold": 5.0 - count,
                "feedback": " ".join([*notes, f"{WRONG_COUNTS[count]} wrong."]),
                "images": [],
                "group": group,
            }
        )
    return rows


def _phrase(thing: Thing) -> str:
    article = "an" if thing.colour == "orange" else "a"
    return f"{article} {thing.colour} {thing.shape} at the {thing.place}"


def _faulty(thing: Thing, free: Iterator[str], rng: Rng) -> tuple[Thing | None, str]:
    """A thing with a fault, None where it is left out, and the fault; `free`: places to move to."""
    fault = str(rng.choice([*_VALUES, "place", "drawn"]))
    if fault == "drawn":
        return None, "not drawn"
    value = next(free) if fault == "place" else getattr(thing, fault)
    while value == getattr(thing, fault):
        value = str(rng.choice(_VALUES[fault]))
    return thing._replace(**{fault: value}), f"wrong {fault}"


def _png(scene: Scene) -> dict:
    """A scene's picture as a file."""
    file = io.BytesIO()
    paint(scene).save(file, format="PNG")
    return {"bytes": file.getvalue(), "path": None}


# -- rows


def case(scene: Scene, aspect_name: str, rng: Rng) -> list:
    """The five rows of one case, scores 1-5 in random order, without `id`, `images` and `group`."""
    aspect = ASPECTS[aspect_name]
    mine, further = truths(scene, aspect_name, rng)
    criteria, descriptions = write_rubric(aspect, rng.integers(len(aspect.criteria)))
    instruction = aspect.instructions[rng.integers(len(aspect.instructions))]
    wording = rng.integers(len(aspect.wordings))
    reference = None
    if rng.random() < REFERENCE_RATE:
        if rng.random() < OVERLAP_RATE:
            further = [mine[rng.integers(len(mine))], *further][:N_CLAIMS]
            rng.shuffle(further)
        reference = statement(aspect, further, rng.integers(len(aspect.wordings)))
    rows = []
    for count in rng.permutation(N_CLAIMS + 1):
        wrong = rng.choice(N_CLAIMS, size=count, replace=False)
        claims: list = []
        for i, claim in enumerate(mine):
            stated = claim
            if i in wrong:
                stated = falsify(scene, aspect_name, claim, rng)
            if stated.key in [earlier.key for earlier in claims]:
                # An empty place was taken twice: keep to the claim's own place.
                stated = falsify(scene, "shape", claim, rng)
            claims.append(stated)
        rows.append(
            {
                "instruction": instruction,
                "reference_answer": reference,
                "criteria": criteria,
                "category": ASPECT_OF[criteria],
                "descriptions": descriptions,
                "response": statement(aspect, claims, wording),
                "gold": 5.0 - n_wrong(claims),
                "feedback": feedback(claims),
            }
        )
    return rows


def scene_rows(split: str, index: int, seed: int = 0) -> tuple:
    """Scene number `index` of a split and the rows of its cases, each about another aspect."""
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
) -> list:
    """Make the collection's rows, 10 a picture; of drawings, 5 an instruction.

    Args:
        split: "train" (10,000 rows), "validation" (1,000) or "test" (1,200), of drawings half of
            these; None for test.
        limit: so many rows, the first ones; more than the split's size makes more pictures.
        seed: published numbers are on seed 0.

    Returns:
        Rows with the canonical columns, each picture as PNG bytes; `gold` is the true score, 1-5,
        and `group` the picture.

    Raises:
        ValueError: Scenes does not have the split.
    """
    split = split or "test"
    if split not in N_IMAGES:
        raise ValueError(f"scenes has no split {split!r}; take one of {', '.join(SPLITS)}")
    per_image = (1 if drawn else CASES_PER_IMAGE) * (N_CLAIMS + 1)
    n_rows = N_IMAGES[split] * per_image if limit is None else limit
    made = []
    for index in range(math.ceil(n_rows / per_image)):
        if drawn:
            made += drawing_rows(split, index, seed)
            continue
        scene, new = scene_rows(split, index, seed)
        picture = _png(scene)
        for row in new:
            made.append({**row, "images": [picture]})
    return made[:n_rows]
