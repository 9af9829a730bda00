"""Photos: ten photographs with rubrics, responses and feedback.

The photographs come from the installed packages scikit-image and scikit-learn; vjudge holds only
the texts about them.
"""

from __future__ import annotations

import hashlib
from importlib import resources, util
from pathlib import Path

import numpy as np

from vjudge.data.files import rows_of_file
from vjudge.data.schema import CollectionError


def lines(name: str) -> list[dict]:
    """Read the rows of a file of `assets/photos`."""
    return rows_of_file(Path(str(resources.files("vjudge") / "assets/photos" / name)))


def file_of(photo: dict) -> Path:
    """Find the file of a row of `photos.jsonl` in its package, and check it by its SHA-256.

    Raises:
        CollectionError: the file is absent, or not the one that the texts were written about.
    """
    spec = util.find_spec(photo["module"])
    folder = Path(spec.origin).parent if spec and spec.origin else Path()
    file = folder / photo["path"]
    remedy = "pip install scikit-image scikit-learn (0.26 and 1.9 were used)"
    if not file.is_file():
        raise CollectionError(f"{photo['path']} is not there: {remedy}")
    if hashlib.sha256(file.read_bytes()).hexdigest() != photo["file"]:
        raise CollectionError(f"{photo['path']} is another file in this version: {remedy}")
    return file


def rows(split: str | None = None, limit: int | None = None) -> list[dict]:
    """Make the rows of photos: three cases per photograph, five responses per case.

    A case has one response for each score, in random order; `group` is the photograph. Further
    columns: `aspect` (of the rubric), `credit` (of the photograph) and `fault_shows_in`: "picture"
    (no text tells that the response is wrong), "text" (the reference answer or the wording tells)
    or "none" (there is no fault).

    Raises:
        ValueError: there is no such split.
        CollectionError: see `file_of`.
    """
    if split not in (None, "test"):
        raise ValueError(f"photos has no split {split!r}; its one split is test")
    photos = {photo["name"]: photo for photo in lines("photos.jsonl")}
    made = []
    # The i-th entry of a case's lists (responses, feedback, faults) belongs to score i + 1.
    for number, case in enumerate(lines("texts.jsonl")):
        photo = photos[case.pop("photo")]
        responses = case.pop("responses")
        faults = case.pop("fault_shows_in")
        group = f"photos-{photo['name']}"
        image = {"bytes": None, "path": str(file_of(photo))}
        # One response per level, in an order that the case's number decides.
        order = np.random.default_rng(number).permutation(5)
        for position, level in enumerate(order.tolist()):
            row = {
                **case,
                # Each photograph has three successive cases, 0-2.
                "id": f"{group}-{number % 3}-{position}",
                "images": [image],
                "response": responses[level],
                "feedback": case["feedback"][level],
                "gold": level + 1.0,
                "group": group,
                "credit": photo["credit"],
                "fault_shows_in": faults[level],
            }
            made.append(row)
    return made[:limit]
