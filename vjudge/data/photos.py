"""Photos: ten photographs with rubrics, responses and feedback.

The photographs are read from the installed packages scikit-image and scikit-learn; vjudge holds
only what is said of them.
"""

from __future__ import annotations

import hashlib
import json
from importlib import resources, util
from pathlib import Path
from typing import Any

import numpy as np

from vjudge.images import ImageError, fingerprint, open_image

COLUMNS = ("aspect", "credit", "fault_shows_in")
"""Beyond the canonical ones: what the rubric is about; whose photograph it is; what shows the
response's faults: "picture" (no text says enough), "text" (the reference answer or the wording
does) or "none" (there is no fault)."""


def lines(name: str) -> list[dict[str, Any]]:
    """The lines of a file of `assets/photos`."""
    text = resources.files("vjudge").joinpath("assets", "photos", name).read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def file_of(photo: dict[str, str]) -> Path:
    """The file of a line of `photos.jsonl`.

    It is known by its SHA-256, or by its pixels, which for a JPEG depend on the decoder's version.

    Raises:
        ImageError: it is absent, or shows something else than the texts say.
    """
    spec = util.find_spec(photo["module"])
    folders = spec.submodule_search_locations if spec else None
    file = Path(folders[0] if folders else "", photo["path"])
    if not file.is_file():
        remedy = "pip install scikit-image scikit-learn (0.26 and 1.9 were used)"
        raise ImageError(f"{photo['path']} is not there: {remedy}")
    if hashlib.sha256(file.read_bytes()).hexdigest() == photo["file"]:
        return file
    if fingerprint(open_image(file)) != photo["pixels"]:
        what = f"this version of {photo['module']} shows another picture under this name"
        raise ImageError(f"{photo['path']}: {what}")
    return file


def rows(split: str | None = None, limit: int | None = None) -> list[dict[str, Any]]:
    """The rows of photos: three cases a photograph, five responses a case in random order.

    A case has one response for each score; `group` is the photograph, and `COLUMNS` are further.

    Raises:
        ValueError: there is no such split.
        ImageError: see `file_of`.
    """
    if split not in (None, "test"):
        raise ValueError(f"photos has no split {split!r}; its one split is test")
    photos = {}
    for photo in lines("photos.jsonl"):
        photos[photo["name"]] = photo | {"path": str(file_of(photo))}
    made = []
    for number, cells in enumerate(lines("texts.jsonl")):
        name = cells.pop("photo")
        responses = cells.pop("responses")
        feedback = cells.pop("feedback")
        shows_in = cells.pop("fault_shows_in")
        cells["images"] = [{"bytes": None, "path": photos[name]["path"]}]
        cells |= {"human_scores": [], "group": f"photos-{name}", "credit": photos[name]["credit"]}
        order = np.random.default_rng(number).permutation(len(responses)).tolist()
        for place, level in enumerate(order):
            row = {
                "id": f"photos-{name}-{number % 3}-{place}",
                **cells,
                "response": responses[level],
                "feedback": feedback[level],
                "fault_shows_in": shows_in[level],
                "gold": level + 1.0,
            }
            made.append(row)
    return made[:limit]
