"""Photos: real photographs with hand-written instructions, rubrics, reference answers, responses and feedback.

The photographs are read from the installed scikit-image and scikit-learn packages; vjudge holds only the texts
(`assets/photos`, with a data card).
"""

from __future__ import annotations

import hashlib
import json
from importlib import resources, util
from pathlib import Path
from typing import Any

import numpy as np

from vjudge.images import ImageError, fingerprint, open_image

EXTRAS = ("aspect", "fault", "credit")
"""Columns beyond the canonical ones: what the rubric is about; what shows the response's faults ("picture": no text
says enough, "text": the reference answer or the wording does, "none": there is none); whose photograph it is."""


def find(photo: dict[str, str]) -> Path:
    """The file of a line of `assets/photos/photos.jsonl`; ImageError: it is absent, or is not what the texts are about.

    Beside the file's SHA-256 its decoded pixels count; a JPEG's depend on the decoder's version.

    Source: skimage/data/_fetchers.py and sklearn/datasets/images/README.txt, which links flower to vultilion's page.
    """
    module, path = photo["module"], photo["path"]
    spec = util.find_spec(module)
    file = Path((spec and spec.submodule_search_locations or [""])[0], path)
    if not spec or not file.is_file():
        raise ImageError(f"{path} is not there: pip install scikit-image scikit-learn (0.26 and 1.9 were used)")
    same = hashlib.sha256(file.read_bytes()).hexdigest() == photo["file"]
    if not same and fingerprint(open_image(file)) != photo["pixels"]:
        raise ImageError(f"{path}: this version of {module} shows another picture under this name")
    return file


def lines(name: str) -> list[dict[str, Any]]:
    """The lines of a file of `assets/photos`."""
    text = resources.files("vjudge").joinpath("assets", "photos", name).read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


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
    photos = {photo["name"]: photo | {"path": str(find(photo))} for photo in lines("photos.jsonl")}
    made = []
    for number, case in enumerate(lines("texts.jsonl")):
        name, scored = case.pop("photo"), {part: case.pop(part) for part in ("responses", "feedback", "fault")}
        case |= {"images": [{"bytes": None, "path": photos[name]["path"]}], "human_scores": []}
        case |= {"group": f"photos-{name}", "credit": photos[name]["credit"]}
        for place, level in enumerate(np.random.default_rng(number).permutation(len(scored["responses"])).tolist()):
            own = {part.removesuffix("s"): texts[level] for part, texts in scored.items()}
            made.append({"id": f"photos-{name}-{number % 3}-{place}", **case, **own, "gold": level + 1.0})
    return made[:limit]
