"""The image paths of rows: resolved against the folder of the collection's file, and checked."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from vjudge.data.schema import RowFaults, pictures_in


def image_paths(row: Mapping) -> Iterator[tuple[str, int, str]]:
    """Yield (column, position in its list, path) for each image that is given by a path."""
    for column, position, image in pictures_in(row):
        if isinstance(image, Mapping) and image.get("bytes") is None:
            image = image["path"]
        if isinstance(image, str):
            yield column, position, image


def resolve_paths(
    row: dict, folder: Path, subfolders: Sequence[str]
) -> tuple[RowFaults, list[str]]:
    """Resolve a row's relative image paths against a folder, and refuse paths that lead too far.

    Published sets keep images beside the folder of their file, so a path may leave `folder`, and
    must stay in the folder above.

    Args:
        row: canonical cells, into which the resolved paths are written.
        folder: of the collection's file.
        subfolders: where images may be, relative to `folder`; the first file that exists is taken.

    Returns:
        The row's faults, and the image files that are outside of `folder`.
    """
    # In the hub's cache files are links to blobs, which are one level further up:
    # datasets--NAME/snapshots/COMMIT/a.png -> datasets--NAME/blobs/HASH
    bounds = folder.parent
    in_hub_cache = bounds.name == "snapshots"
    if in_hub_cache:
        bounds = bounds.parent
    outside = []
    for column, position, path in image_paths(row):
        if "://" in path or os.path.isabs(path):
            continue
        candidates = [str(folder / subfolder / path) for subfolder in subfolders]
        file = next(filter(os.path.isfile, candidates), candidates[0])
        target = Path(os.path.realpath(file))  # with links followed
        if not target.is_relative_to(os.path.realpath(bounds)):
            reason = f"{path!r} leads out of the folder {str(folder)!r} to {str(target)!r}"
            return [(column, reason, "write its absolute path, or put it into that folder")], []
        inside = in_hub_cache or target.is_relative_to(os.path.realpath(folder))
        if target.is_file() and not inside:
            outside.append(file)
        row[column][position] = {"bytes": None, "path": file}
    return [], outside


def missing_files(row: Mapping) -> RowFaults:
    """List the images of a row whose path is a URL, or leads to no file."""
    faults = []
    for column, _, path in image_paths(row):
        if os.path.isfile(path):
            continue
        reason = f"{os.path.abspath(path)!r} is not there"
        if "://" in path:
            reason = f"{path!r} is a URL"
        faults.append((column, reason, "put the file there, or correct the path"))
    return faults
