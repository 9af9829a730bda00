"""Which rows of a call share an image: their work is worth keeping together."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from PIL import Image

from vjudge.images import Picture, fingerprint, open_image


def shortcut(source: Any) -> str | None:
    """A cheap name for an image that has one, its path or a digest of its file; None for one that must be opened."""
    if isinstance(source, Picture):
        return source.key
    if isinstance(source, Mapping):
        data, path = source.get("bytes"), source.get("path")
        return shortcut(data if data is not None else path)
    if isinstance(source, bytes):
        return f"bytes:{hashlib.sha256(source).hexdigest()}"
    return f"path:{source}" if isinstance(source, (str, Path)) else None


def image_key(source: Any) -> str:
    """A name that an image shares with itself in other rows: its `shortcut`, else a digest of its pixels.

    Args:
        source: what `open_image` opens.

    Raises:
        ValueError, OSError: it has no shortcut and can't be opened.
    """
    return shortcut(source) or f"pixels:{fingerprint(open_image(source))}"


class Sources:
    """The images of a call's rows: known by their fingerprints, and opened again when they are needed.

    Args:
        rows: for each row what `open_image` opens; indexed when needed.
    """

    def __init__(self, rows: Sequence[Sequence[Any]]) -> None:
        self.rows = rows
        self.place: dict[str, tuple[int, int]] = {}  # key -> row, and number within it
        self._known: dict[str, tuple[str, tuple[int, int]]] = {}

    def look(self, source: Any) -> tuple[str, tuple[int, int]]:
        """An image's fingerprint and size (width, height); one with a `shortcut` is opened once.

        Raises:
            ValueError, OSError: it can't be opened.
        """
        short = shortcut(source)
        known = self._known.get(short) if short else None
        if known is None:
            image = open_image(source)
            known = fingerprint(image), image.size
            if short:
                self._known[short] = known
        return known

    def open(self, keys: Iterable[str]) -> tuple[dict[str, Image.Image], dict[str, str]]:
        """Open placed images: key -> image, and key -> why there is none."""
        images, broken = {}, {}
        for key in keys:
            row, number = self.place[key]
            try:
                images[key] = open_image(self.rows[row][number])
            except (ValueError, OSError) as error:  # readable when the run was planned, gone since
                broken[key] = f"image {number + 1}: {error}"
        return images, broken


def image_groups(images: Sequence[Sequence[Any]], n_rows: int) -> dict[str, list[int]]:
    """The rows of each first image, in the order of the rows; those without images (or a readable one) under ""."""
    groups: dict[str, list[int]] = {}
    for row in range(n_rows):
        sources = images[row]
        try:
            key = image_key(sources[0]) if len(sources) else ""
        except (ValueError, OSError):
            key = ""  # whoever answers the row says what is wrong with it
        groups.setdefault(key, []).append(row)
    return groups


def blocks(groups: Mapping[str, Sequence[int]], size: int) -> Iterator[list[int]]:
    """Cut rows into blocks of at most `size`, with the rows of an image in one block, or in as few as they fill."""
    block: list[int] = []
    for key, rows in groups.items():
        if key and block and len(block) + len(rows) > size:
            yield block
            block = []
        for row in rows:
            if len(block) == size:
                yield block
                block = []
            block.append(row)
    if block:
        yield block
