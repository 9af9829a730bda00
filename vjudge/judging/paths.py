"""Names of files and folders, made from the names of judges, people and runs."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

LONGEST_NAME = 120  # bytes of a file's name in UTF-8


def file_name(name: str) -> str:
    """Turn any name into the name of a file or folder, which can't lead out of its folder.

    Where the result would be too long or empty, it ends in a checksum of the name.

    >>> file_name("org/model 7b"), file_name("../../etc")
    ('org-model-7b', 'etc')
    """
    text = re.sub(r"[^\w.-]+", "-", str(name)).strip("-.")
    if text and len(text.encode()) <= LONGEST_NAME:
        return text
    digest = f"{zlib.crc32(str(name).encode('utf-8', 'surrogatepass')):08x}"
    # 9 bytes for "-" and the digest
    truncated = text.encode()[: LONGEST_NAME - 9].decode(errors="ignore")
    return f"{truncated}-{digest}".lstrip("-")


def file_names(names: Iterable[str]) -> dict[str, str]:
    """Map each name to the name of its file.

    Raises:
        ValueError: two names would share a file, at least on a system that ignores case.
    """
    files = {}
    owners: dict[str, str] = {}  # a file's name in lower case -> the name that it was made from
    for name in names:
        files[name] = file_name(name)
        folded = files[name].casefold()
        if folded in owners:
            both = f"{owners[folded]!r} and {name!r}"
            raise ValueError(f"{both} need names of their own, also as files: rename one")
        owners[folded] = name
    return files


def run_folder(outputs: str | Path, *parts: Any) -> Path:
    """Name a folder inside `outputs` after the runs that a notebook keeps there.

    Args:
        outputs: the folder of all outputs.
        parts: the judge (a name, or the arguments of `load_judge` as a dict), the collection, and
            whatever else distinguishes these runs, such as a limit.

    >>> run_folder("outputs", "org/model", "items.csv", 500).as_posix()
    'outputs/org-model-items.csv-500'
    """
    names = []
    for part in parts:
        name = part.get("name_or_path", part) if isinstance(part, Mapping) else part
        names.append(file_name(name))
    return Path(outputs) / file_name("-".join(names))
