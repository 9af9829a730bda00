"""Photos: real photographs with hand-written instructions, rubrics, reference answers, responses and feedback.

The photographs are read from the installed scikit-image and scikit-learn packages; vjudge holds only the texts
(`assets/photos`, with a data card).
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from importlib import resources, util
from pathlib import Path
from typing import Any

import numpy as np

from vjudge.images import ImageError, fingerprint, open_image

EXTRAS = ("aspect", "fault", "credit")
"""Columns beyond the canonical ones: what the rubric is about; what shows the response's faults ("picture": no text
says enough, "text": the reference answer or the wording does, "none": there is none); whose photograph it is."""


@dataclass(frozen=True)
class Photo:
    """A photograph in an installed package."""

    module: str  # the package
    path: str  # inside the package
    credit: str  # author and licence, as the package states them
    url: str  # where the package took it from
    file: str  # SHA-256 (hex) of the file
    pixels: str  # `vjudge.images.fingerprint` of the decoded picture; a JPEG's depends on the decoder's version

    def find(self) -> Path:
        """The photograph's file; ImageError where it is absent or not the one that the texts are about."""
        spec = util.find_spec(self.module)
        home = spec and spec.submodule_search_locations
        file = Path(home[0] if home else "", self.path)
        if not home or not file.is_file():
            raise ImageError(
                f"{self.path} is not there: pip install scikit-image scikit-learn (0.26 and 1.9 were used)"
            )
        if hashlib.sha256(file.read_bytes()).hexdigest() != self.file and fingerprint(open_image(file)) != self.pixels:
            raise ImageError(f"{self.path}: this version of {self.module} shows another picture under this name")
        return file


def _lines(name: str) -> list[dict[str, Any]]:
    text = resources.files("vjudge").joinpath("assets", "photos", name).read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


PHOTOS: dict[str, Photo] = {line.pop("name"): Photo(**line) for line in _lines("photos.jsonl")}
"""Every photograph by name.

Source: skimage/data/_fetchers.py and sklearn/datasets/images/README.txt, which links flower to vultilion's page.
"""


def rows(split: str | None = None, limit: int | None = None) -> list[dict[str, Any]]:
    """The collection's rows: three cases a photograph, five responses a case, one for each score.

    Args:
        split: "test" or None, which is the same: there is one split; ValueError for another.
        limit: how many rows, counted from the first; None for all.

    Returns:
        Rows with the canonical columns and `EXTRAS`, scores shuffled within a case; `group` is the photograph.
        ImageError where one is absent or has changed.
    """
    if split not in (None, "test"):
        raise ValueError(f"photos has no split {split!r}; its one split is test")
    paths = {name: str(photo.find()) for name, photo in PHOTOS.items()}
    lines = []
    for number, case in enumerate(_lines("texts.jsonl")):
        name = case["photo"]
        shared = {key: case[key] for key in ("instruction", "reference_answer", "criteria", "descriptions", "aspect")}
        shared |= {"images": [{"bytes": None, "path": paths[name]}], "human_scores": []}
        shared |= {"group": f"photos-{name}", "credit": PHOTOS[name].credit}
        for place, level in enumerate(np.random.default_rng(number).permutation(len(case["responses"])).tolist()):
            own = {"response": case["responses"][level], "feedback": case["feedback"][level]}
            own |= {"gold": float(level + 1), "fault": case["fault"][level]}
            lines.append({"id": f"photos-{name}-{number % 3}-{place}", **shared, **own})
    return lines[:limit]
