"""What reads the cells of a canonical column; ValueError or TypeError says why a cell cannot be."""

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
_ABSENT = ("", "none", "nan", "na", "n/a", "null", "<na>")  # how a missing score is written
_LONE_COMMA = re.compile(r"[-+]?\d+,\d+")  # "3,5": two raters, or a decimal comma


def number(cell: object, decimal: str | None = None) -> float:
    """A score; NaN where it is missing, however that is written.

    >>> number("3,5", ","), number("NA")
    (3.5, nan)

    Args:
        cell: a number or a text.
        decimal: the decimal sign of the cell's file, "," or "."; None where the file has none.

    Raises:
        ValueError: it is no number.
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


def rater_scores(cell: object, decimal: str | None = None) -> list:
    """One score a rater, from a list, a number or a text; NaN where a rater gave none.

    >>> rater_scores("3;4;2"), rater_scores("[3, 4, 2]"), rater_scores("4,,2")
    ([3.0, 4.0, 2.0], [3.0, 4.0, 2.0], [4.0, nan, 2.0])
    >>> rater_scores("3,5; 4")  # beside semicolons a comma is a decimal one
    [3.5, 4.0]

    Args:
        cell: a rater's place in it is kept.
        decimal: as for `number`: beside decimal commas, semicolons or bars separate raters.

    Raises:
        ValueError: a rating is not a number, or nothing tells a decimal comma from two raters.
    """
    cell = as_python(cell)
    if isinstance(cell, str):
        cell = _rating_texts(cell.strip(), decimal)
    if cell is None:
        return []
    if not isinstance(cell, list):
        cell = [cell]
    return [number(rating, decimal) for rating in cell]


def _rating_texts(text: str, decimal: str | None) -> list:
    """The ratings in a text, each as a text with a decimal point."""
    inner = re.sub(r"[\[\]()'\"]", "", text).strip()
    if not inner:
        return []
    if re.search("[;|]", inner):
        return re.split("[;|]", inner.replace(",", "."))
    if inner != text:  # a list as JSON, Python or NumPy writes it
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
    return None if is_missing(cell) else str(cell)


def _text(cell: object) -> str | None:
    if is_missing(cell):
        return None
    if not isinstance(cell, str):
        raise ValueError(f"is no text but {brief(cell)}")
    return cell if cell.strip() else None


def _texts(cell: object, fault: str = "is not a list") -> Any:
    cell = as_python(_unwrapped(cell))
    if cell is not None and not isinstance(cell, list):
        raise ValueError(fault)
    return cell


def _levels(cell: object) -> Any:
    """Descriptions as a list of texts, or as anchors: score -> text."""
    cell = _unwrapped(cell)
    if isinstance(cell, Mapping):
        return anchors_of(cell)
    return _texts(
        cell,
        'is no list: write JSON, ["bad", "good"] or {"0": "bad", "100": "good"}, or give each'
        " level a column, score_1 ... score_5",
    )


def _lowest(cell: object) -> int | None:
    return None if is_missing(number(cell)) else lowest_of({"lowest": cell})


def _criteria(cell: object) -> Any:
    """A text, or several criteria as `criteria_of` reads them."""
    written = _unwrapped(cell)
    if isinstance(written, list) and all(isinstance(entry, Mapping) for entry in written):
        cell = written
    if isinstance(cell, list | Mapping):
        criteria_of(cell)
        return cell
    return _text(cell)


def _choice(cell: object) -> str | None:
    """Which response of a pair is preferred: "a", "b" or "tie"."""
    choice = (_text(cell) or "").strip().lower() or None
    if choice not in ("a", "b", "tie", None):
        raise ValueError(f"{cell!r} is not one of a, b and tie")
    return choice


def _unwrapped(cell: object) -> Any:
    """The list or mapping in a text, as JSON or as Python writes it; anything else as it is."""
    if not isinstance(cell, str) or cell.lstrip()[:1] not in ("[", "{"):
        return cell
    with suppress(ValueError, RecursionError):
        return json.loads(cell)
    if re.search(r"(['\"])\s+\1", cell):
        raise ValueError("is a list without commas, as NumPy prints one; write it as JSON")
    with suppress(ValueError, SyntaxError, RecursionError, MemoryError):
        return ast.literal_eval(cell.strip())
    return cell


def _pictures(cell: object) -> list | None:
    """A cell's pictures, each as `open_image` takes it; [] for none on purpose, None if unsaid."""
    if isinstance(cell, (str, os.PathLike)):
        cell = _picture_text(os.fspath(cell).strip())
    if isinstance(cell, list) and cell and isinstance(cell[0], list):
        with suppress(ValueError):  # of unequal lengths: no pixels
            cell = _pixels(np.asarray(cell))
    if isinstance(cell, np.ndarray) and cell.dtype.kind in "OUS":
        cell = cell.tolist()
    if isinstance(cell, list | tuple):
        pictures = []
        for element in cell:
            pictures += _pictures(element) or [element]
        return pictures
    if isinstance(cell, Mapping) and cell.get("bytes") is None and is_missing(cell.get("path")):
        return None
    if is_missing(cell) or isinstance(cell, str) and not cell:
        return None
    if not isinstance(cell, (str, bytes, Mapping, np.ndarray, Image.Image)):
        raise ValueError(f"a picture cannot be of type {type(cell).__name__}")
    return [open_image(cell) if isinstance(cell, np.ndarray) else cell]


def _picture_text(text: str) -> Any:
    """What a text names: a list of pictures, the bytes of a data URI, else a path."""
    if _BASE64.fullmatch(text):
        text = f"data:image;base64,{''.join(text.split())}"
    if text.startswith("data:"):
        return {"bytes": image_bytes(text), "path": None}
    return _unwrapped(text)


def _pixels(array: np.ndarray) -> np.ndarray:
    """Pixels that Arrow made lists of, in 8 bits where they fit."""
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
"""What reads the cells of a canonical column."""
NUMBER_READERS: dict = {"gold": number, "human_scores": rater_scores, "ranks": rater_scores}
"""The same of columns of numbers, with the decimal sign of the cell's file."""
