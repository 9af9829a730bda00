"""Collections for simulated judges: texts without meaning, of wanted lengths, with a true score on every item."""

from __future__ import annotations

import io
from typing import Any

import datasets
import numpy as np
from PIL import Image

from vjudge.data import canonical

WORDS = "the a one of and with it is was has there here this that small plain light dark round left right".split()
N_CRITERIA = 6


def collection(
    n: int,
    *,
    per_group: int = 1,
    scale: int = 5,
    median_words: float = 60,
    spread: float = 1.0,
    better_is_longer: float = 0.0,
    references: bool = True,
    pictures: bool = True,
    seed: int = 0,
) -> datasets.Dataset:
    """Make a collection whose texts say nothing and whose gold scores are drawn.

    Args:
        n: items.
        per_group: items an image.
        scale: levels of the rubric; gold is uniform over them.
        median_words: of a response of the middle score.
        spread: standard deviation of the length, in doublings.
        better_is_longer: doublings of the median length a gold point.
        references: whether every group has a reference answer.
        pictures: whether every group has an image (a colour of its own), else none.
        seed: of all draws.

    Returns:
        The canonical collection, and a column `kind`: "text-rich" for every other group, else "photo".
    """
    rng = np.random.default_rng(seed)
    gold = rng.integers(1, scale + 1, n).astype(float)
    middle = (1 + scale) / 2
    doublings = np.log2(median_words) + better_is_longer * (gold - middle) + rng.normal(0, spread, n)
    words = np.clip(np.rint(2**doublings), 4, 2000).astype(int)
    rows: list[dict[str, Any]] = []
    for index in range(n):
        group = index // per_group
        if index % per_group == 0:  # the items of a group are responses to one question
            criterion, reference = int(rng.integers(N_CRITERIA)), _text(rng, 40) if references else None
        images = []
        if pictures:
            file = io.BytesIO()
            colour = (group * 37 % 256, group * 91 % 256, group // 4 % 256)
            picture = np.broadcast_to(np.array(colour, dtype=np.uint8), (24, 24, 3)).copy()
            picture[::2, : 12 + group % 12] = 255 - picture[::2, : 12 + group % 12]
            Image.fromarray(picture).save(file, format="PNG")
            images = [{"bytes": file.getvalue(), "path": None}]
        rows.append(
            {
                "id": f"simulated-{index}",
                "images": images,
                "instruction": f"Question number {group}: what is there?",
                "response": _text(rng, words[index]),
                "reference_answer": reference,
                "criteria": f"Criterion {criterion}: is {WORDS[criterion]} right?",
                "descriptions": [f"Level {level} of criterion {criterion}." for level in range(1, scale + 1)],
                "gold": gold[index],
                "group": f"picture-{group}",
                "kind": "text-rich" if group % 2 else "photo",
            }
        )
    return canonical(rows)


def _text(rng: np.random.Generator, n: int) -> str:
    """n words in sentences of ten."""
    words = rng.choice(WORDS, size=n)
    return " ".join(" ".join(words[start : start + 10]).capitalize() + "." for start in range(0, n, 10))
