"""What must hold of a collection before a long run, and its fingerprint."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from vjudge.data.schema import FEATURES, CollectionError, Problem, plain, rows_of
from vjudge.images import ImageError, check_image, open_image
from vjudge.images import fingerprint as image_fingerprint
from vjudge.records import as_score, is_missing, rubric_faults


def validate(items: Any) -> None:
    """Check a whole collection before a long run; each distinct image file is opened once, by its header.

    Args:
        items: a `datasets.Dataset`, or rows or `Item`s, with the canonical columns.

    Raises:
        CollectionError: every bad row: a missing or broken image, no image where other rows have one, a rubric with
            missing or duplicate levels, an empty instruction or response, a duplicate id, a gold score that is no
            number or off the rubric.
    """
    problems: list[Problem] = []
    first_with: dict[str, int] = {}
    imageless: list[tuple[int, str]] = []
    count = 0
    check = _Checks()
    for index, row in enumerate(rows_of(items)):
        count += 1
        id = str(row.get("id"))
        if is_missing(row.get("id")) or not id.strip():
            problems.append(Problem(index, None, "id", "is missing", "give every row its own id"))
        elif first_with.setdefault(id, index) != index:
            same = f"is the same as row {first_with[id]}'s"
            problems.append(Problem(index, id, "id", same, "give every row its own id"))
        problems += [Problem(index, id, *fault) for fault in check(row)]
        if plain(row.get("images")) in (None, []):
            imageless.append((index, id))
    if not count:
        raise CollectionError("the collection has no rows; check split= and limit=")
    if len(imageless) < count:
        what, remedy = "is empty where other rows have an image", "add it, or grade rows without images by themselves"
        problems += [Problem(index, id, "images", what, remedy) for index, id in imageless]
    if problems:
        problems.sort(key=lambda problem: problem.index)
        n_bad = len({problem.index for problem in problems})
        raise CollectionError(f"{n_bad} of {count} rows are bad, with {len(problems)} problems:", problems)


def fingerprint(items: Any) -> str:
    """SHA-256 (hex) over all that a judge or an analysis reads: the canonical columns and the images' contents.

    Args:
        items: as for `validate`. Image files are read, each once; an image that cannot be read counts as that.
    """
    digest = hashlib.sha256()
    image_digest = _Once(_image_digest)
    for row in rows_of(items):
        known = {name: plain(row.get(name)) for name in FEATURES}
        # One meaning, one form: an absent optional column, None and NaN are the same, and so are 4, 4.0 and "4".
        known["id"] = str(known["id"])
        known["group"] = known["id"] if known["group"] is None else str(known["group"])
        known["gold"], known["lowest"] = _number(row.get("gold")), _number(row.get("lowest")) or "1"
        known["human_scores"] = [_number(score) for score in known["human_scores"] or ()]
        known["images"] = [image_digest(picture) for picture in known["images"] or ()]
        digest.update(json.dumps(known, sort_keys=True, default=str).encode() + b"\n")
    return digest.hexdigest()


class _Checks:
    """What is wrong with a row by itself; a rubric or an image that many rows share is checked once."""

    def __init__(self) -> None:
        self._rubrics: dict[Any, list[tuple[str, str]]] = {}
        self._image_fault = _Once(_image_fault)

    def __call__(self, row: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
        for field in ("instruction", "response"):
            if not isinstance(row.get(field), str) or not row[field].strip():
                yield field, "is missing or blank", "fill it in or leave the row out"
        levels = plain(row.get("descriptions"))
        lowest = 1
        try:
            start = as_score(row.get("lowest"))
            lowest = 1 if math.isnan(start) else int(start)
            for score in plain(row.get("human_scores")) or ():
                as_score(score)
        except (ValueError, TypeError) as error:
            yield "lowest or human_scores", str(error), "give numbers, or None where unknown"
        key = repr((row.get("criteria"), levels, lowest))
        if key not in self._rubrics:
            self._rubrics[key] = rubric_faults(row.get("criteria"), levels, lowest=lowest)
        for field, what in self._rubrics[key]:
            yield field, what, "write one text for each score, all different" if field != "criteria" else "fill it in"
        try:
            gold = as_score(row.get("gold"))
            highest = math.nan if self._rubrics[key] else lowest + len(levels or ()) - 1
            if gold < lowest or gold > highest:
                yield "gold", f"{gold:g} is off the rubric ({lowest}-{highest})", "correct it, or give None if unknown"
        except ValueError as error:
            yield "gold", str(error), "give a number, or None where it is unknown"
        pictures = None if is_missing(row.get("images")) else row["images"]
        if isinstance(pictures, (str, bytes, Mapping)) or not (pictures is None or hasattr(pictures, "__len__")):
            yield "images", "is not a list", "give a list, with one image or more"
            return
        for position, picture in enumerate(pictures if pictures is not None else ()):
            fault = self._image_fault(picture)
            if fault:
                what, _, remedy = fault.rpartition("; ")
                yield f"images[{position}]", what, remedy


class _Once:
    """A function of an image, computed once for each distinct file."""

    def __init__(self, function: Callable[[Any], str]) -> None:
        self._function = function
        self._known: dict[Any, str] = {}

    def __call__(self, picture: Any) -> str:
        source = picture
        if isinstance(picture, Mapping):
            source = picture.get("path") if picture.get("bytes") is None else picture["bytes"]
        if isinstance(source, bytes):
            source = hashlib.sha256(source).digest()
        elif not isinstance(source, (str, Path)):
            return self._function(picture)
        if source not in self._known:
            self._known[source] = self._function(picture)
        return self._known[source]


def _number(value: Any) -> str:
    try:
        score = as_score(value)
    except ValueError:
        return repr(value)
    return "" if math.isnan(score) else f"{score:.17g}"


def _image_fault(picture: Any) -> str:
    try:
        check_image(picture)
    except ImageError as error:
        return str(error)
    return ""


def _image_digest(picture: Any) -> str:
    """The file's bytes where there is a file, which is quicker than its pixels."""
    source = picture
    if isinstance(picture, Mapping):
        source = picture.get("path") if picture.get("bytes") is None else picture["bytes"]
    try:
        if isinstance(source, (str, Path)) and not str(source).startswith("data:"):
            source = Path(source).read_bytes()
        return (
            hashlib.sha256(source).hexdigest() if isinstance(source, bytes) else image_fingerprint(open_image(source))
        )
    except (OSError, ValueError):
        return "unreadable"
