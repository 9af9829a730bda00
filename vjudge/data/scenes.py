"""The collections that come along: Scenes, generated from a seed, whose true score is known, and photos.

A picture of Scenes shows up to nine coloured things on a three-by-three grid. Every (shape, colour, place) belongs to
one split: training shows its own alone, and at least half of the things in another split's picture are never seen in
training. A case is one picture, one instruction and one rubric. Its five responses share wording, claims' places and
order and differ in what they say there, so that length tells nothing about the score. Wrong values follow the
distribution of right ones, so that the text alone tells next to nothing either. Half of the cases give a reference
answer: a perfect response that mostly speaks of other places or things than the response to evaluate.

Photographs are read from the installed packages scikit-image and scikit-learn; vjudge holds only what is said of them.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import re
from collections.abc import Mapping, Sequence
from importlib import resources, util
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
from PIL import Image, ImageDraw

from vjudge.images import ImageError, fingerprint, open_image

__all__ = ["ASPECTS", "ASPECT_OF", "SPLITS", "draw", "rows", "sample"]
__dir__ = __all__.copy

COLOURS = {
    "red": (214, 39, 40),
    "orange": (247, 140, 20),
    "yellow": (242, 214, 0),
    "green": (34, 150, 60),
    "blue": (40, 90, 220),
    "purple": (130, 50, 170),
    "pink": (250, 150, 195),
    "black": (30, 30, 34),
}
SHAPES = ("circle", "square", "triangle", "star", "cross", "diamond", "heart", "ring")
SIZES = {"small": 0.42, "medium": 0.64, "large": 0.92}  # width of a thing as a share of its cell
PLACES = tuple("top-left top top-right left middle right bottom-left bottom bottom-right".split())
NUMBERS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
WRONG_COUNTS = ("None", "One", "Two", "Three", "Four")
N_IMAGES = {"train": 1_000, "validation": 100, "test": 120}
SPLITS = tuple(N_IMAGES)
IMAGE_SIZE = 192  # pixels, width and height
N_CLAIMS, CASES_PER_IMAGE = 4, 2
MOST_ALIKE = 4  # the highest count that a question asks for
REFERENCE_RATE = 0.5  # share of cases with a reference answer
OVERLAP_RATE = 0.1  # share of reference answers that also speak of one of the response's claims
_FLAT = 0.45  # least share of neighbouring pixels alike: drawings reach .58 under all probes, photographs .33 at most
_LEAST_SHARE = 0.6  # of words that Scenes uses: its own texts reach .76 under all probes, those of photos average .56


# -- pictures


class Thing(NamedTuple):
    """One drawn thing: a shape of a colour and a size at a place of the grid."""

    shape: str
    colour: str
    size: str
    place: str


class Scene(NamedTuple):
    """The things of one picture, and the two colours and two shapes that counting questions ask for."""

    things: tuple[Thing, ...]
    counted: tuple[
        tuple[str, str], ...
    ]  # (word, "colour" or "shape"), each uniform on 1-4: none can be guessed
    seed: tuple[int, ...]

    def at(self, place: str) -> Thing | None:
        """The thing at `place`, or None where the cell is empty."""
        return next((thing for thing in self.things if thing.place == place), None)

    def shows(self, aspect: str, key: str) -> str:
        """What the picture shows at a claim's key, a place or a word for things; "empty" where nothing stands."""
        if aspect in ("count", "presence"):
            number = sum(key in (thing.shape, thing.colour) for thing in self.things)
            return NUMBERS[number] if aspect == "count" else "present" if number else "absent"
        thing = self.at(key)
        return (
            str(getattr(thing, "shape" if aspect == "position" else aspect)) if thing else "empty"
        )


# The split of every (shape, colour, place), fixed once and for all: 70 % train (0), 10 % validation (1), 20 % test (2).
_DRAWN = np.argsort(np.random.default_rng(2401_06591).permutation(8 * 8 * 9))  # when each was drawn
_COMBINATIONS = np.select([_DRAWN < 115, _DRAWN < 115 + 57], [2, 1], 0).reshape(8, 8, 9)


def sample(split: str, *seed: int) -> Scene:
    """Sample the scene of `split` that belongs to `seed` (any number of non-negative integers)."""
    index, colours = SPLITS.index(split), tuple(COLOURS)
    rng = np.random.default_rng([*seed, index])
    combinations: list[tuple[int, int, int]] = []
    while not combinations:
        # Of colours, then of shapes: two that are counted, and how many things have each.
        asked = [
            (rng.choice(8, size=2, replace=False), rng.integers(1, MOST_ALIKE + 1, size=2))
            for _ in range(2)
        ]
        n, drawn = (
            int(rng.integers(max(6, *(sum(counts) for _, counts in asked)), len(PLACES) + 1)),
            [],
        )
        for two, counts in asked:
            others = [word for word in range(8) if word not in two]
            more = [int(rng.choice(others)) for _ in range(n - sum(counts))]
            drawn.append([*np.repeat(two, counts).tolist(), *more])
        combinations = _arrange(rng, drawn[1], drawn[0], index)
    things = tuple(
        Thing(SHAPES[s], colours[c], [*SIZES][rng.integers(3)], PLACES[p])
        for s, c, p in combinations
    )
    counted = [(colours[word], "colour") for word in asked[0][0]] + [
        (SHAPES[word], "shape") for word in asked[1][0]
    ]
    return Scene(things, tuple(counted), (*seed, index))


def _arrange(
    rng: np.random.Generator, shapes: list[int], colours: list[int], split: int
) -> list[tuple[int, int, int]]:
    """Pair shapes, colours and places by the split's rule; empty if this order of picking came to a dead end."""
    places = rng.permutation(len(PLACES)).tolist()
    combinations: list[tuple[int, int, int]] = []
    while shapes:
        table = _COMBINATIONS[np.ix_(shapes, colours, places)]
        options = next((found for own in (split, 0) if len(found := np.argwhere(table == own))), ())
        if not len(options):
            return []
        i, j, k = options[rng.integers(len(options))]
        combinations.append((shapes.pop(i), colours.pop(j), places.pop(k)))
    own = sum(_COMBINATIONS[c] == split for c in combinations)
    return combinations if 2 * own >= len(combinations) else []


_TURNS = [(math.radians(-90 + 36 * i), 1.08 if i % 2 == 0 else 0.44) for i in range(10)]
_HALF = [(-0.33, -0.96), (0.33, -0.96), (0.33, -0.33), (0.96, -0.33), (0.96, 0.33), (0.33, 0.33)]
_ANGLES = np.linspace(
    0, 2 * math.pi, 48, endpoint=False
)  # of the classic parametric curve of a heart
_HEART = -(
    13 * np.cos(_ANGLES) - 5 * np.cos(2 * _ANGLES) - 2 * np.cos(3 * _ANGLES) - np.cos(4 * _ANGLES)
)
_OUTLINES = {
    "square": np.array([(-0.82, -0.82), (0.82, -0.82), (0.82, 0.82), (-0.82, 0.82)]),
    "triangle": np.array([(0.0, -0.92), (0.98, 0.8), (-0.98, 0.8)]),
    "star": np.array(
        [(radius * math.cos(turn), radius * math.sin(turn)) for turn, radius in _TURNS]
    ),
    "cross": np.array([*_HALF, *((-x, -y) for x, y in _HALF)]),
    "diamond": np.array([(0.0, -1.04), (0.72, 0.0), (0.0, 1.04), (-0.72, 0.0)]),
    "heart": np.stack([16 * np.sin(_ANGLES) ** 3 / 16.5, (_HEART + 2.5) / 15.5], axis=1),
}
"""The corners of every shape but circle and ring, inside the unit circle, y downwards."""


def draw(scene: Scene, palette: Mapping[str, Sequence[int]] | None = None) -> Image.Image:
    """Draw the scene as an RGB picture of 192 x 192 pixels, the same one whenever it is drawn.

    Things are shifted, turned and shaded a little by its seed; `palette` replaces colours (RGB, 0-255), thing by place.
    """
    rng = np.random.default_rng([*scene.seed, 7])
    side, cell = (
        2 * IMAGE_SIZE,
        2 * IMAGE_SIZE / 3,
    )  # drawn twice as large, then reduced: smooth edges
    image = Image.new("RGB", (side, side), tuple(rng.integers(232, 256, size=3).tolist()))
    pen = ImageDraw.Draw(image)
    for thing in scene.things:
        row, column = divmod(PLACES.index(thing.place), 3)
        radius = SIZES[thing.size] * cell / 2
        slack = max(cell / 2 - radius * 1.08, 0.0) * 0.5
        x, y = (np.array([column, row]) + 0.5) * cell + rng.uniform(-slack, slack, size=2)
        turn = math.radians(rng.uniform(-10, 10))
        shade = np.array(palette[thing.place] if palette else COLOURS[thing.colour]) + rng.integers(
            -10, 11, size=3
        )
        ink = tuple(np.clip(shade, 0, 255).tolist())
        box = (x - radius, y - radius, x + radius, y + radius)
        if thing.shape == "circle":
            pen.ellipse(box, fill=ink)
        elif thing.shape == "ring":
            pen.ellipse(box, outline=ink, width=max(2, round(radius * 0.42)))
        else:
            rotation = np.array(
                [[math.cos(turn), -math.sin(turn)], [math.sin(turn), math.cos(turn)]]
            )
            pen.polygon(
                [*map(tuple, _OUTLINES[thing.shape] @ rotation.T * radius + (x, y))], fill=ink
            )
    return image.reduce(2)


def is_scene(image: Image.Image) -> bool:
    """Whether an RGB picture is as flat as a drawing of Scenes, which the embedded judge was made for."""
    pixels = np.asarray(image)
    if min(pixels.shape[:2]) < 2:
        return True
    return all(float((np.diff(pixels, axis=axis) == 0).all(-1).mean()) >= _FLAT for axis in (0, 1))


# -- words, and what is said of a picture


class Claim(NamedTuple):
    """One statement about a picture: at `key`, the response says `said`; the picture shows `seen`."""

    key: str
    said: str
    seen: str

    @property
    def verdict(self) -> str:
        """What feedback calls it. Not "right", which is also a place."""
        return "correct" if self.said == self.seen else "wrong"


_FILE = resources.files("vjudge").joinpath("assets", "scenes.json")
_TEXTS: Any = json.loads(
    _FILE.read_text(encoding="utf-8"), object_hook=lambda cells: SimpleNamespace(**cells)
)
ASPECTS = {aspect.name: aspect for aspect in _TEXTS.aspects}
"""What rubrics look at: each a name, a noun and its plural, instructions, criteria and wordings of claims."""
ASPECT_OF = {criteria: aspect.name for aspect in ASPECTS.values() for criteria in aspect.criteria}
_VOCABULARY = frozenset(
    _TEXTS.vocabulary.split()
)  # of Scenes, and of what the probes write into it


def rubric(aspect: SimpleNamespace, variant: int) -> tuple[str, list[str]]:
    """Criteria and the five level descriptions, lowest first, of one of the aspect's eight rubrics."""
    levels = _TEXTS.levels[(variant + list(ASPECTS).index(aspect.name)) % len(_TEXTS.levels)]
    return aspect.criteria[variant], [
        level.format(n=aspect.noun, N=aspect.nouns) for level in levels
    ]


def statement(aspect: SimpleNamespace, claims: list[Claim], wording: int) -> str:
    """Claims as a numbered answer in one of the aspect's wordings, in which {thing} is the key with an article, and
    what is denied stands behind a bar."""
    forms = aspect.wordings[wording].split("|")
    parts = []
    for i, claim in enumerate(claims, start=1):
        form = forms[-1] if claim.said == "absent" else forms[0]
        thing = f"something {claim.key}" if claim.key in COLOURS else f"a {claim.key}"
        parts.append(f"({i}) {form.format(key=claim.key, said=claim.said, thing=thing)}.")
    return " ".join(parts)


def n_wrong(claims: list[Claim]) -> int:
    """How many claims are wrong: the true score of a response is 5 less these."""
    return sum(claim.said != claim.seen for claim in claims)


def feedback(claims: list[Claim]) -> str:
    """Feedback on claims: each one against the picture, then how many are wrong."""
    checks = [
        f"({i}) said {c.said}, {c.key} {c.seen}, {c.verdict}."
        for i, c in enumerate(claims, start=1)
    ]
    return " ".join([*checks, f"{WRONG_COUNTS[n_wrong(claims)]} wrong."])


def speaks_scenes(text: str) -> bool:
    """Whether a text is made of the words of Scenes, which the embedded judge was made for and nothing else."""
    words = re.findall(r"[^\W\d_]+", text.lower())
    return not words or sum(word in _VOCABULARY for word in words) >= _LEAST_SHARE * len(words)


def truths(scene: Scene, aspect: str, rng: np.random.Generator) -> tuple[list[Claim], list[Claim]]:
    """True claims for a response (four) and for a reference answer (two to four others), in random order."""
    words = [*COLOURS, *SHAPES]
    if aspect == "presence":
        rng.shuffle(words)
    shown = [word for word in words if scene.shows("presence", word) == "present"]
    hidden = [word for word in words if word not in shown]
    if (
        aspect == "count"
    ):  # the scene's four counted words, then other words, those that are shown first
        counted = [word for word, _ in scene.counted]
        others = [word for word in shown if word not in counted]
        for part in (counted, others, hidden):
            rng.shuffle(part)
        keys = counted + others + hidden
    elif (
        aspect == "presence"
    ):  # a fair coin decides whether a word is one that is shown: it can't be guessed
        keys = []
        while len(keys) < 2 * N_CLAIMS:
            keys.append((shown if shown and (not hidden or rng.random() < 0.5) else hidden).pop())
    else:
        keys = [scene.things[i].place for i in rng.permutation(len(scene.things))]
    claims = [
        Claim(key, scene.shows(aspect, key), scene.shows(aspect, key))
        for key in keys[: 2 * N_CLAIMS]
    ]
    return claims[:N_CLAIMS], claims[N_CLAIMS:]


def falsify(scene: Scene, aspect: str, claim: Claim, rng: np.random.Generator) -> Claim:
    """A wrong claim in place of a true one, its value drawn as true values are."""
    if aspect == "presence":
        return Claim(claim.key, "absent" if claim.seen == "present" else "present", claim.seen)
    if aspect == "position" and rng.random() < 0.2:
        empty = [place for place in PLACES if scene.at(place) is None]
        if empty:  # the response puts the thing where nothing stands
            return Claim(str(rng.choice(empty)), claim.said, "empty")
    values = {"count": NUMBERS[1 : MOST_ALIKE + 1], "size": SIZES}.get(aspect)
    values = values or [scene.shows(aspect, thing.place) for thing in scene.things]
    return Claim(
        claim.key, str(rng.choice([value for value in values if value != claim.seen])), claim.seen
    )


# -- rows of Scenes


def case(scene: Scene, aspect_name: str, rng: np.random.Generator) -> list[dict[str, Any]]:
    """Make the five rows of one case, scores 1-5 in random order, without `id`, `images` and `group`."""
    aspect = ASPECTS[aspect_name]
    mine, others = truths(scene, aspect_name, rng)
    criteria, descriptions = rubric(aspect, int(rng.integers(len(aspect.criteria))))
    shared: dict[str, Any] = {
        "instruction": aspect.instructions[rng.integers(len(aspect.instructions))]
    }
    shared |= {"reference_answer": None, "criteria": criteria, "descriptions": descriptions}
    wording = int(rng.integers(len(aspect.wordings)))
    if rng.random() < REFERENCE_RATE:
        if rng.random() < OVERLAP_RATE:
            others = [mine[rng.integers(len(mine))], *others][:N_CLAIMS]
            rng.shuffle(others)
        shared["reference_answer"] = statement(
            aspect, others, int(rng.integers(len(aspect.wordings)))
        )
    rows: list[dict[str, Any]] = []
    for count in rng.permutation(N_CLAIMS + 1):
        wrong = rng.choice(N_CLAIMS, size=count, replace=False)
        claims: list[Claim] = []
        for i, claim in enumerate(mine):
            variant = falsify(scene, aspect_name, claim, rng) if i in wrong else claim
            if variant.key in {
                c.key for c in claims
            }:  # an empty place was taken twice: keep to the claim's own place
                variant = falsify(scene, "shape", claim, rng)
            claims.append(variant)
        own = {"response": statement(aspect, claims, wording), "gold": 5.0 - n_wrong(claims)}
        rows.append({**shared, **own, "feedback": feedback(claims)})
    return rows


def rows_of(split: str, index: int, seed: int = 0) -> tuple[Scene, list[dict[str, Any]]]:
    """Scene number `index` of a split and the rows of its cases, each about another aspect."""
    scene = sample(split, seed, index)
    rng = np.random.default_rng([seed, index, SPLITS.index(split), 1])
    rows, group = [], f"scenes-{split}-{index:05d}"
    for i, aspect in enumerate(rng.choice(list(ASPECTS), size=CASES_PER_IMAGE, replace=False)):
        for j, row in enumerate(case(scene, str(aspect), rng)):
            rows.append({"id": f"{group}-{i}-{j}", **row, "human_scores": [], "group": group})
    return scene, rows


def rows(split: str | None = None, limit: int | None = None, seed: int = 0) -> list[dict[str, Any]]:
    """Make the collection's rows, 10 a picture: train 10,000, validation 1,000 and test (also None) 1,200.

    `limit` counts from the first one, and more than the split's size makes more pictures; published numbers are on seed
    0. Rows have the canonical columns, each picture as PNG bytes; `gold` is the true score, 1-5, and `group` the
    picture. ValueError: a split that Scenes does not have.
    """
    split = split or "test"
    if split not in N_IMAGES:
        raise ValueError(f"scenes has no split {split!r}; take one of {', '.join(N_IMAGES)}")
    per_image = CASES_PER_IMAGE * (N_CLAIMS + 1)
    n_rows = N_IMAGES[split] * per_image if limit is None else limit
    made: list[dict[str, Any]] = []
    for index in range(math.ceil(n_rows / per_image)):
        scene, new = rows_of(split, index, seed)
        draw(scene).save(file := io.BytesIO(), format="PNG")
        made += [{**row, "images": [{"bytes": file.getvalue(), "path": None}]} for row in new]
    return made[:n_rows]


# -- photos

PHOTO_COLUMNS = ("aspect", "credit", "fault")
"""Beyond the canonical ones: what the rubric is about; whose photograph it is; what shows the response's faults
("picture": no text says enough, "text": the reference answer or the wording does, "none": there is none)."""


def photo_lines(name: str) -> list[dict[str, Any]]:
    """The lines of a file of `assets/photos`."""
    text = resources.files("vjudge").joinpath("assets", "photos", name).read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def photo_file(photo: dict[str, str]) -> Path:
    """The file of a line of `photos.jsonl`; ImageError: it is absent, or shows something else than the texts say.

    It is known by its SHA-256, or by its pixels, which for a JPEG depend on the decoder's version.
    """
    spec = util.find_spec(photo["module"])
    file = Path((spec and spec.submodule_search_locations or [""])[0], photo["path"])
    if not file.is_file():
        raise ImageError(
            f"{photo['path']} is not there: pip install scikit-image scikit-learn (0.26 and 1.9 were used)"
        )
    same = hashlib.sha256(file.read_bytes()).hexdigest() == photo["file"]
    if not same and fingerprint(open_image(file)) != photo["pixels"]:
        raise ImageError(
            f"{photo['path']}: this version of {photo['module']} shows another picture under this name"
        )
    return file


def photo_rows(split: str | None = None, limit: int | None = None) -> list[dict[str, Any]]:
    """The rows of photos: three cases a photograph, five responses a case, one for each score, in random order.

    They have also `PHOTO_COLUMNS`, and `group` is the photograph. ValueError: no such split; ImageError: `photo_file`.
    """
    if split not in (None, "test"):
        raise ValueError(f"photos has no split {split!r}; its one split is test")
    photos = {
        photo["name"]: photo | {"path": str(photo_file(photo))}
        for photo in photo_lines("photos.jsonl")
    }
    made = []
    for number, cells in enumerate(photo_lines("texts.jsonl")):
        name, scored = (
            cells.pop("photo"),
            {part: cells.pop(part) for part in ("responses", "feedback", "fault")},
        )
        cells |= {"images": [{"bytes": None, "path": photos[name]["path"]}], "human_scores": []}
        cells |= {"group": f"photos-{name}", "credit": photos[name]["credit"]}
        for place, level in enumerate(
            np.random.default_rng(number).permutation(len(scored["responses"])).tolist()
        ):
            own = {part.removesuffix("s"): texts[level] for part, texts in scored.items()}
            made.append(
                {"id": f"photos-{name}-{number % 3}-{place}", **cells, **own, "gold": level + 1.0}
            )
    return made[:limit]
