"""Readers of a canonical column's cells.

A reader raises a ValueError or a TypeError that says why a cell cannot be read.
"""

from __future__ import annotations

import ast
import json
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import numpy as np
from PIL import Image

from vjudge.data.schema import PICTURE_COLUMNS, as_python
from vjudge.images import image_bytes, open_image
from vjudge.records import NAN, anchors_of, as_score, brief, criteria_of, is_missing, lowest_of

# A JPEG, PNG, GIF or WebP file in base64, by its first bytes, as VLMEvalKit's tables hold it.
_BASE64 = re.compile(r"(?:/9j/|iVBORw0KGgo|R0lGOD|UklGR)[A-Za-z0-9+/\s]{60,}={0,2}\s*")
_ABSENT = ("", "none", "nan", "na", "n/a", "null", "<na>")  # how tables write a missing score
_LONE_COMMA = re.compile(r"[-+]?\d+,\d+")  # "3,5": two raters, or a decimal comma


def number(cell: object, decimal: str | None = None) -> float:
    """Read a score; NaN where it is missing, however that is written.

    >>> number("3,5", ","), number("NA")
    (3.5, nan)

    Args:
        cell: a number or a text.
        decimal: the decimal sign of the cell's file, "," or "."; None where it is not known.

    Raises:
        ValueError: the cell is no number, or has a decimal comma where none is expected.
    """
    if not isinstance(cell, str):
        return as_score(cell)
    text = cell.strip()
    if text.lower() in _ABSENT:
        return NAN
    if decimal == ",":
        return as_score(text.replace(",", "."))
    if _LONE_COMMA.fullmatch(text):
        raise ValueError(
            f"{text!r} has a decimal comma, which is read in a file separated by semicolons alone:"
            " write a point (of a frame: pandas.read_csv(..., decimal=','))"
        )
    return as_score(text)


def rater_scores(cell: object, decimal: str | None = None) -> list[float]:
    """Read the scores of all raters, NaN where a rater gave none.

    >>> rater_scores("3;4;2"), rater_scores("[3, 4, 2]"), rater_scores("4,,2")
    ([3.0, 4.0, 2.0], [3.0, 4.0, 2.0], [4.0, nan, 2.0])
    >>> rater_scores("3,5; 4")  # beside semicolons a comma is a decimal one
    [3.5, 4.0]

    Args:
        cell: a list, a number or a text. Position = rater.
        decimal: as for `number`. Where commas are decimal, semicolons or bars separate raters.

    Raises:
        ValueError: a rating is no number, or it is unclear whether a comma is decimal or separates
            two raters.
    """
    cell = as_python(cell)
    if isinstance(cell, str):
        cell = _rating_texts(cell.strip(), decimal)
    if cell is None:
        return []
    if not isinstance(cell, list):
        cell = [cell]
    return [number(rating, decimal) for rating in cell]


def _rating_texts(text: str, decimal: str | None) -> list[str]:
    """Split a text into one text per rating, each with a decimal point.

    The cases, in this order:
        "[]"                    no rating
        "3,5; 4" or "3|4"       semicolons or bars separate, and commas are decimal
        "[3, 4]" or "(3 4)"     a list as JSON, Python or NumPy writes it
        "3,5"                   a decimal comma where the file's sign is a comma, two ratings where
                                it is a point, an error where it is not known
        "3, 4, 2" or "3 4 2"    commas or blanks separate
    """
    inner = re.sub(r"[\[\]()'\"]", "", text).strip()  # without brackets and quotes
    if not inner:
        return []
    if re.search("[;|]", inner):
        return re.split("[;|]", inner.replace(",", "."))
    if inner != text:
        inner = inner.rstrip(", ")
    elif decimal == "," and "," in text:
        if not _LONE_COMMA.fullmatch(text):
            raise ValueError(
                f"{text!r}: commas are decimal in this file; separate raters by ; inside quotes"
            )
        return [text.replace(",", ".")]
    elif decimal is None and _LONE_COMMA.fullmatch(text):
        raise ValueError(
            f"{text!r} is two raters or a decimal comma: write {text.replace(',', ';')!r} or"
            f" {text.replace(',', '.')!r}"
        )
    if "," in inner:
        return inner.split(",")
    return inner.split()


def _name(cell: object) -> str | None:
    """Read an id or a group as text."""
    return None if is_missing(cell) else str(cell)


def _text(cell: object) -> str | None:
    """Read a text; None where it is missing or blank."""
    if is_missing(cell):
        return None
    if not isinstance(cell, str):
        raise ValueError(f"is no text but {brief(cell)}")
    return cell if cell.strip() else None


def _texts(cell: object, fault: str = "is not a list") -> list | None:
    """Read a list; raise a ValueError with the text `fault` where the cell is something else."""
    cell = as_python(_unwrapped(cell))
    if cell is None or isinstance(cell, list):
        return cell
    raise ValueError(fault)


def _levels(cell: object) -> list | dict | None:
    """Read level descriptions: a list of texts, or anchors as a dict score -> text."""
    cell = _unwrapped(cell)
    if isinstance(cell, Mapping):
        return anchors_of(cell)
    return _texts(
        cell,
        'is no list: write JSON, ["bad", "good"] or {"0": "bad", "100": "good"}, or give each'
        " level a column, score_1 ... score_5",
    )


def _lowest(cell: object) -> int | None:
    """Read the lowest score of a rubric, which must be a whole number."""
    return None if is_missing(number(cell)) else lowest_of({"lowest": cell})


def _criteria(cell: object) -> Any:
    """Read criteria: a text, or a list of named criteria, which `criteria_of` checks.

    A text that holds such a list as JSON or Python is read as the list.
    """
    unwrapped = _unwrapped(cell)
    if isinstance(unwrapped, list) and all(isinstance(entry, Mapping) for entry in unwrapped):
        cell = unwrapped
    if isinstance(cell, list | Mapping):
        criteria_of(cell)
        return cell
    return _text(cell)


def _choice(cell: object) -> str | None:
    """Read which response of a pair is preferred: "a", "b" or "tie"."""
    choice = (_text(cell) or "").strip().lower() or None
    if choice not in ("a", "b", "tie", None):
        raise ValueError(f"{cell!r} is not one of a, b and tie")
    return choice


def _unwrapped(cell: object) -> Any:
    """Parse a text that holds a list or a mapping as JSON or Python.

    Any other cell is returned unchanged, and so is a text that only begins like a list.

    Raises:
        ValueError: the list is written without commas.
    """
    if not isinstance(cell, str) or cell.lstrip()[:1] not in ("[", "{"):
        return cell
    with suppress(ValueError, RecursionError):
        return json.loads(cell)
    if re.search(r"(['\"])\s+\1", cell):  # ['a' 'b'], which Python would read as ['ab']
        raise ValueError("is a list without commas, as NumPy prints one; write it as JSON")
    with suppress(ValueError, SyntaxError, RecursionError, MemoryError):
        return ast.literal_eval(cell.strip())
    return cell


def _pictures(cell: object) -> list | None:
    """Read the images of a cell.

    Returns:
        The images, each as `open_image` takes it; [] for none on purpose, None for a missing cell.
    """
    if isinstance(cell, (str, os.PathLike)):
        cell = _picture_text(os.fspath(cell).strip())
    # Nested lists are the pixels of one image where they have equal lengths, else several images.
    if isinstance(cell, list) and cell and isinstance(cell[0], list):
        with suppress(ValueError):
            cell = _pixels(np.asarray(cell))
    if isinstance(cell, np.ndarray) and cell.dtype.kind in "OUS":  # an array of paths or objects
        cell = cell.tolist()
    if isinstance(cell, list | tuple):
        images = []
        for element in cell:
            # A missing element stays, so that the one who opens it can name its position.
            images += _pictures(element) or [element]
        return images
    # The dict of the datasets library, with neither bytes nor a path: a missing image.
    if isinstance(cell, Mapping) and cell.get("bytes") is None and is_missing(cell.get("path")):
        return None
    if is_missing(cell) or (isinstance(cell, str) and not cell):
        return None
    if not isinstance(cell, (str, bytes, Mapping, np.ndarray, Image.Image)):
        raise ValueError(f"a picture cannot be of type {type(cell).__name__}")
    return [open_image(cell) if isinstance(cell, np.ndarray) else cell]


def _picture_text(text: str) -> Any:
    """Return what a text holds: a list of images, the bytes of a data URI or base64, or a path."""
    if _BASE64.fullmatch(text):
        text = f"data:image;base64,{''.join(text.split())}"
    if text.startswith("data:"):
        return {"bytes": image_bytes(text), "path": None}
    return _unwrapped(text)


def _pixels(array: np.ndarray) -> np.ndarray:
    """Turn integer pixels into 8 bits where their values fit; Arrow stores them in 64 bits."""
    if array.dtype.kind == "i" and 0 <= array.min() <= array.max() < 256:
        return array.astype(np.uint8)
    return array


_TEXT_COLUMNS = "instruction response response_a response_b reference_answer feedback".split()
CELL_READERS: dict = {
    **dict.fromkeys(_TEXT_COLUMNS, _text),
    "id": _name,
    "group": _name,
    "criteria": _criteria,
    "descriptions": _levels,
    "lowest": _lowest,
    "preference": _choice,
    "responses": _texts,
    **dict.fromkeys(PICTURE_COLUMNS, _pictures),
}
"""Canonical column -> the function that reads a cell of it."""
NUMBER_READERS: dict = {"gold": number, "human_scores": rater_scores, "ranks": rater_scores}
"""The same for columns of numbers; these functions also take the decimal sign of the file."""
