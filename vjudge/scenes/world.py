"""A scene: up to nine coloured things on a three-by-three grid, sampled from a seed and drawn with Pillow.

Every (shape, colour, place) combination belongs to one split. Scenes of the train split hold train combinations only;
at least half of the things in a validation or test scene are combinations of that split, never seen in training.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from PIL import Image, ImageDraw

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
SPLITS = ("train", "validation", "test")
MOST_ALIKE = 4  # the highest count that a question asks for
_FLAT = 0.45  # least share of neighbouring pixels alike: drawings reach .58 under all probes, photographs .33 at most


@dataclass(frozen=True)
class Thing:
    """One drawn thing: a shape of a colour and a size at a place of the grid."""

    shape: str
    colour: str
    size: str
    place: str


@dataclass(frozen=True)
class Scene:
    """The things of one picture, and the two colours and two shapes that counting questions ask for."""

    things: tuple[Thing, ...]
    counted: tuple[tuple[str, str], ...]  # (word, "colour" or "shape"), each uniform on 1-4: none can be guessed
    seed: tuple[int, ...]

    def at(self, place: str) -> Thing | None:
        """The thing at `place`, or None where the cell is empty."""
        return next((thing for thing in self.things if thing.place == place), None)

    def count(self, word: str, kind: str) -> int:
        """How many things have the colour or shape `word`; `kind` says which of the two it is."""
        return sum(getattr(thing, kind) == word for thing in self.things)


def _split_of_combinations() -> np.ndarray:
    """The split of each (shape, colour, place): 70 % train, 10 % validation, 20 % test; fixed once and for all."""
    n = len(SHAPES) * len(COLOURS) * len(PLACES)
    order, splits = np.random.default_rng(2401_06591).permutation(n), np.zeros(n, dtype=int)
    splits[order[: n // 5]] = 2
    splits[order[n // 5 : n // 5 + n // 10]] = 1
    return splits.reshape(len(SHAPES), len(COLOURS), len(PLACES))


COMBINATIONS = _split_of_combinations()  # index of the split, by shape, colour, place


def sample(split: str, *seed: int) -> Scene:
    """Sample the scene of `split` that belongs to `seed` (any number of non-negative integers)."""
    index, colours = SPLITS.index(split), tuple(COLOURS)
    rng = np.random.default_rng([*seed, index])
    while True:
        counts: list[tuple[list[int], list[int]]] = []  # of two colours, then of two shapes: words and how many of each
        for words in (colours, SHAPES):
            two = [int(word) for word in rng.choice(len(words), size=2, replace=False)]
            counts.append((two, [int(c) for c in rng.integers(1, MOST_ALIKE + 1, size=2)]))
        n = int(rng.integers(max(6, *(sum(numbers) for _, numbers in counts)), len(PLACES) + 1))
        drawn = [_fill(rng, *pair, len(words), n) for pair, words in zip(counts, (colours, SHAPES), strict=True)]
        if combinations := _arrange(rng, drawn[1], drawn[0], index):
            break
    sizes = list(SIZES)
    things = tuple(Thing(SHAPES[s], colours[c], sizes[rng.integers(3)], PLACES[p]) for s, c, p in combinations)
    counted = tuple((colours[word], "colour") for word in counts[0][0])
    return Scene(things, counted + tuple((SHAPES[word], "shape") for word in counts[1][0]), (*seed, index))


def _fill(rng: np.random.Generator, words: list[int], counts: list[int], vocabulary: int, n: int) -> list[int]:
    others = [word for word in range(vocabulary) if word not in words]
    values = [word for word, count in zip(words, counts, strict=True) for _ in range(count)]
    return values + [int(rng.choice(others)) for _ in range(n - len(values))]


def _arrange(rng: np.random.Generator, shapes: list[int], colours: list[int], split: int) -> list[tuple[int, int, int]]:
    """Pair shapes, colours and places by the split's rule; empty if this order of picking came to a dead end."""
    places = [int(p) for p in rng.permutation(len(PLACES))]
    combinations: list[tuple[int, int, int]] = []
    while shapes:
        table = COMBINATIONS[np.ix_(shapes, colours, places)]
        options = np.argwhere(table == split)
        if not len(options):
            options = np.argwhere(table == 0)
        if not len(options):
            return []
        i, j, k = options[rng.integers(len(options))]
        combinations.append((shapes.pop(i), colours.pop(j), places.pop(k)))
    own = sum(int(COMBINATIONS[c]) == split for c in combinations)
    return combinations if 2 * own >= len(combinations) else []


def _corners(shape: str) -> list[tuple[float, float]]:
    """Outline of a polygonal shape inside the unit circle, y downwards."""

    def on_circle(degrees: float, radius: float) -> tuple[float, float]:
        return radius * math.cos(math.radians(degrees)), radius * math.sin(math.radians(degrees))

    if shape == "square":
        return [(-0.82, -0.82), (0.82, -0.82), (0.82, 0.82), (-0.82, 0.82)]
    if shape == "triangle":
        return [(0.0, -0.92), (0.98, 0.8), (-0.98, 0.8)]
    if shape == "star":
        return [on_circle(-90 + 36 * i, 1.08 if i % 2 == 0 else 0.44) for i in range(10)]
    if shape == "cross":
        a, b = 0.96, 0.33
        half = [(-b, -a), (b, -a), (b, -b), (a, -b), (a, b), (b, b)]
        return half + [(-x, -y) for x, y in half]
    if shape == "diamond":
        return [(0.0, -1.04), (0.72, 0.0), (0.0, 1.04), (-0.72, 0.0)]
    angles = np.linspace(0, 2 * math.pi, 48, endpoint=False)  # heart, the classic parametric curve scaled to the circle
    x = 16 * np.sin(angles) ** 3
    y = -(13 * np.cos(angles) - 5 * np.cos(2 * angles) - 2 * np.cos(3 * angles) - np.cos(4 * angles))
    return [(float(a) / 16.5, float(b + 2.5) / 15.5) for a, b in zip(x, y, strict=True)]


_OUTLINES = {shape: np.array(_corners(shape)) for shape in SHAPES if shape not in ("circle", "ring")}


def draw(scene: Scene, *, size: int = 192, palette: dict[str, tuple[int, ...]] | None = None) -> Image.Image:
    """Draw the scene as an RGB picture of `size` x `size` pixels; the same scene is always the same picture.

    Things are shifted within their cells, turned a little and vary in shade, on a pale ground, all from the scene's
    seed. `palette` replaces the colours by others (RGB, 0-255), thing by place.
    """
    rng = np.random.default_rng([*scene.seed, 7])
    scale = 2  # drawn twice as large, then reduced: smooth edges
    ground = rng.integers(232, 256, size=3)
    image = Image.new("RGB", (size * scale, size * scale), tuple(int(v) for v in ground))
    pen = ImageDraw.Draw(image)
    cell = size * scale / 3
    for thing in scene.things:
        row, column = divmod(PLACES.index(thing.place), 3)
        radius = SIZES[thing.size] * cell / 2
        slack = max(cell / 2 - radius * 1.08, 0.0) * 0.5
        x, y = (np.array([column, row]) + 0.5) * cell + rng.uniform(-slack, slack, size=2)
        turn = math.radians(rng.uniform(-10, 10))
        base = palette[thing.place] if palette else COLOURS[thing.colour]
        ink = tuple(int(v) for v in np.clip(np.array(base) + rng.integers(-10, 11, size=3), 0, 255))
        box = (x - radius, y - radius, x + radius, y + radius)
        if thing.shape == "circle":
            pen.ellipse(box, fill=ink)
        elif thing.shape == "ring":
            pen.ellipse(box, outline=ink, width=max(2, round(radius * 0.42)))
        else:
            rotation = np.array([[math.cos(turn), -math.sin(turn)], [math.sin(turn), math.cos(turn)]])
            corners = _OUTLINES[thing.shape] @ rotation.T * radius + (x, y)
            pen.polygon([(float(a), float(b)) for a, b in corners], fill=ink)
    return image.reduce(scale)


def is_scene(image: Image.Image) -> bool:
    """Whether an RGB picture is as flat as a drawing of Scenes, which the embedded judge was made for."""
    pixels = np.asarray(image)
    if min(pixels.shape[:2]) < 2:
        return True
    return all(float((np.diff(pixels, axis=axis) == 0).all(-1).mean()) >= _FLAT for axis in (0, 1))
