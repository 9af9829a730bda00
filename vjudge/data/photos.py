"""Photos: ten photographs with rubrics, responses and feedback.

The photographs are read from the installed packages scikit-image and scikit-learn; vjudge holds
only what is said of them.
"""

from __future__ import annotations

import hashlib
from importlib import resources, util
from pathlib import Path

import numpy as np

from vjudge.data.files import rows_of_file
from vjudge.images import ImageError


def lines(name: str) -> list:
    """The lines of a file of `assets/photos`."""
    return rows_of_file(Path(str(resources.files("vjudge") / "assets" / "photos" / name)))


def file_of(photo: dict[str, str]) -> Path:
    """The file of a line of `photos.jsonl`, known by its SHA-256.

    Raises:
        ImageError: it is absent, or another than the texts were written about.
    """
    spec = util.find_spec(photo["module"])
    folder = Path()
    if spec and spec.origin:
        folder = Path(spec.origin).parent
    file = folder / photo["path"]
    remedy = "pip install scikit-image scikit-learn (0.26 and 1.9 were used)"
    if not file.is_file():
        raise ImageError(f"{photo['path']} is not there: {remedy}")
    if hashlib.sha256(file.read_bytes()).hexdigest() != photo["file"]:
        raise ImageError(f"{photo['path']} is another file in this version: {remedy}")
    return file


def rows(split: str | None = None, limit: int | None = None) -> list:
    """The rows of photos: three cases a photograph, five responses a case in random order.

    A case has one response for each score; `group` is the photograph. Further columns: `aspect` (of
    the rubric), `credit` (of the photograph) and `fault_shows_in`: "picture" (no text says enough),
    "text" (the reference answer or the wording does) or "none" (there is no fault).

    Raises:
        ValueError: there is no such split.
        ImageError: see `file_of`.
    """
    if split not in (None, "test"):
        raise ValueError(f"photos has no split {split!r}; its one split is test")
    photos = {photo["name"]: photo for photo in lines("photos.jsonl")}
    made = []
    for number, cells in enumerate(lines("texts.jsonl")):
        photo = photos[cells.pop("photo")]
        cells["response"] = cells.pop("responses")
        cells["gold"] = [1.0, 2.0, 3.0, 4.0, 5.0]
        cells["images"] = [{"bytes": None, "path": str(file_of(photo))}]
        cells |= {"human_scores": [], "group": f"photos-{photo['name']}"}
        cells["credit"] = photo["credit"]
        cells["fault_shows_in"] = cells.pop("fault_shows_in")
        order = np.random.default_rng(number).permutation(5)
        for place, level in enumerate(order.tolist()):
            row = {"id": f"{cells['group']}-{number % 3}-{place}", **cells}
            for name in ("response", "feedback", "fault_shows_in", "gold"):
                row[name] = cells[name][level]
            made.append(row)
    return made[:limit]
