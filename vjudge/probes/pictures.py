"""Pictures changed: the same items with their images blanked, exchanged, shuffled or stored anew.

A judge that looks at the picture must lose its agreement with the truth when the picture is taken away or exchanged.
Each function takes a collection and returns it changed.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import datasets
import numpy as np
from PIL import Image

from vjudge.data import canonical, rows_of
from vjudge.images import open_image, picture

GREY = (128, 128, 128)


def blanked(items: datasets.Dataset, *, colour: tuple[int, int, int] = GREY) -> datasets.Dataset:
    """Replace every image by one of the same size in a single colour.

    Args:
        items: a collection with the canonical columns.
        colour: red, green, blue, 0-255.

    Returns:
        The same rows and columns, images apart.

    Raises:
        ValueError: no row has an image.
        ImageError: an image can't be read.
    """
    plain: dict[tuple[int, int], bytes] = {}

    def blank(image: Any) -> bytes:
        size = picture(image).size
        if size not in plain:
            plain[size] = _png(Image.new("RGB", size, colour))
        return plain[size]

    return _redrawn(items, blank)


def shuffled(items: datasets.Dataset, *, tiles: int = 16, seed: int = 0) -> datasets.Dataset:
    """Cut every image into tiles and put them back in random order: colours stay, shapes and places go.

    Args:
        items: a collection with the canonical columns.
        tiles: along each side; a side of fewer pixels is cut into its pixels. What the division leaves over at the
            right and lower edges stays where it is.
        seed: of the order, which is the same for images of the same size.

    Returns, raises: as `blanked`.
    """

    def shuffle(image: Any) -> bytes:
        pixels = np.asarray(open_image(image)).copy()
        rows, columns = min(tiles, pixels.shape[0]), min(tiles, pixels.shape[1])
        high, wide = pixels.shape[0] // rows, pixels.shape[1] // columns
        cut = pixels[: rows * high, : columns * wide].reshape(rows, high, columns, wide, -1).swapaxes(1, 2)
        order = np.random.default_rng(seed).permutation(rows * columns)
        mixed = cut.reshape(rows * columns, high, wide, -1)[order].reshape(rows, columns, high, wide, -1).swapaxes(1, 2)
        pixels[: rows * high, : columns * wide] = mixed.reshape(rows * high, columns * wide, -1)
        return _png(Image.fromarray(pixels))

    return _redrawn(items, shuffle)


def reencoded(items: datasets.Dataset, *, quality: int = 90) -> datasets.Dataset:
    """Store every image anew as JPEG: a change that no viewer would act on.

    Args:
        items: a collection with the canonical columns.
        quality: of the JPEG, 1-95.

    Returns, raises: as `blanked`.
    """

    def store(image: Any) -> bytes:
        file = io.BytesIO()
        open_image(image).convert("RGB").save(file, format="JPEG", quality=quality, subsampling=0)
        return file.getvalue()

    return _redrawn(items, store)


def swapped(items: datasets.Dataset, *, seed: int = 0) -> datasets.Dataset:
    """Give every group of rows (the rows about one image) the images of another group.

    The exchange is one cycle through all groups in random order, so that no group keeps its own images and each
    group's images are used once.

    Args:
        items: a collection with the canonical columns.
        seed: of the order.

    Returns:
        The same rows and columns, images apart.

    Raises:
        ValueError: fewer than two groups with images, or a row without `group`.
    """
    items = _with_images(items)
    groups = list(items["group"])
    unnamed = [index for index, group in enumerate(groups) if group is None]
    if unnamed:
        raise ValueError(
            f"group: rows {unnamed[:20]} ({len(unnamed)} in all) name no group; give each image's rows a common name"
        )
    first: dict[str, int] = {}
    for index, group in enumerate(groups):
        first.setdefault(group, index)
    if len(first) < 2:
        raise ValueError("group: images can be exchanged only between two groups or more; load more rows")
    order = [list(first)[i] for i in np.random.default_rng(seed).permutation(len(first))]
    partner = dict(zip(order, order[1:] + order[:1], strict=True))
    images = items.select_columns(["images"]).select([first[partner[group]] for group in groups])
    others = items.remove_columns(["images"])
    return datasets.concatenate_datasets([others, images], axis=1).select_columns(items.column_names)


def _redrawn(items: datasets.Dataset, draw: Callable[[Any], bytes]) -> datasets.Dataset:
    """The collection with every image replaced by what `draw` makes of it; an image that repeats is drawn once."""
    items = _with_images(items)
    known: dict[Any, bytes] = {}

    def redraw(row: dict[str, Any]) -> dict[str, Any]:
        made = []
        for image in row["images"] or ():
            key = image["bytes"] if image["bytes"] is not None else image["path"]
            if key not in known:
                known.clear()  # rows about one image follow one another: one image is kept, however many there are
                known[key] = draw(image)
            made.append({"bytes": known[key], "path": None})
        return {"images": made}

    undecoded = items.cast_column("images", datasets.Sequence(datasets.Image(decode=False)))
    changed = undecoded.map(redraw, keep_in_memory=True, load_from_cache_file=False, desc=None)
    return changed.cast_column("images", items.features["images"])


def _png(image: Image.Image) -> bytes:
    file = io.BytesIO()
    image.save(file, format="PNG")
    return file.getvalue()


def _with_images(items: Any) -> datasets.Dataset:
    """A collection in the canonical columns, which has images."""
    made = canonical(items)
    if not any(row["images"] for row in rows_of(made.select_columns(["images"]))):
        raise ValueError("images: no row has an image, so there is nothing to perturb")
    return made
