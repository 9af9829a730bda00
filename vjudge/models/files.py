"""Read the files of a checkpoint: settings, weights, and the fingerprint of both.

Nothing in a checkpoint is run as code: weights are read as tensors alone.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import logging
import os
import pickle
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import huggingface_hub
import torch
import transformers
from safetensors.torch import load_file

from vjudge.prompts.families import RECORD

ADAPTER_FILE = "adapter_config.json"  # of a folder that holds adapters on a base
CHECKED_FILES = ("config.json", "preprocessor_config.json", "processor_config.json")
SETTINGS_FILES = (
    *CHECKED_FILES,
    *"generation_config.json chat_template.json chat_template.jinja tokenizer.json".split(),
    *"tokenizer_config.json special_tokens_map.json added_tokens.json tokenizer.model".split(),
    *("vocab.json", "merges.txt", ADAPTER_FILE),
)
WEIGHT_PATTERNS = ("*.safetensors", "pytorch_model*.bin", "adapter_model.bin")
"""The kinds of weight files, best first; a checkpoint is read from the first kind that it has."""
LIMITS = {
    "num_hidden_layers|num_(attention_|key_value_)?heads|depth|r": 4096,
    "(patch|image|merge|temporal_patch)_size|head_dim": 2**16,
    "height|width": 2**13,  # of a prepared picture: 67 million pixels, as many as are opened
    "(hidden|intermediate|vocab)_size|max_position_.+|image_seq_len(gth)?|num_image_tokens": 2**30,
    "(min|max)_pixels|(shortest|longest)_edge": 2**28,
}
"""Regular expression of a field's name in settings files -> the largest number that is possible.

The smallest is 1 for each. No model can be built with any other number.
"""


# --- settings


def read_settings(file: Path) -> dict[str, Any]:
    """Read a JSON file that holds an object.

    Raises:
        ValueError: the file is damaged, or a field holds a number (named in the message) with which
            no model or preprocessing can be built, see `LIMITS`.
    """
    try:
        content = json.loads(file.read_text(encoding="utf-8"), object_hook=_checked)
        if not isinstance(content, dict):
            raise ValueError("it holds no JSON object")
    except (OSError, ValueError, RecursionError) as error:  # no file, no JSON, too deep
        raise ValueError(
            f"{file} can't be read ({error}); give a checkpoint's folder, or download it again"
        ) from error
    return content


def _checked(entries: dict[str, Any]) -> dict[str, Any]:
    """Return the entries of a JSON object unchanged; ValueError for a number beyond its limit.

    `json` calls it for every object of a file, nested ones included.
    """
    for key, value in entries.items():
        for pattern, limit in LIMITS.items():
            if isinstance(value, int | float) and re.fullmatch(pattern, key):
                if not 1 <= value <= limit:
                    raise ValueError(f"{key} = {value:,}, and from 1 to {limit:,} is possible")
    return entries


# --- files of a hub repository


def fetch(name: str, patterns: Sequence[str], *, revision: str | None = None) -> Path:
    """Download files of a hub repository once; without a connection, take what the cache has.

    Args:
        name: a hub id.
        patterns: names of files, with "*" for any characters.
        revision: a branch, tag or commit.

    Returns:
        The folder in the hub's cache.

    Raises:
        ValueError: the hub could not provide the repository.
    """
    try:
        folder = huggingface_hub.snapshot_download(
            name, revision=revision, allow_patterns=list(patterns)
        )
    except (OSError, ValueError) as error:
        raise ValueError(
            f"{name!r} is no folder here, and the hub could not provide it ({reason_of(error)}); a"
            f" model behind a server is 'openai:{name}'"
        ) from error
    return Path(folder)


def fetch_weights(name: str, *, revision: str | None = None) -> Path:
    """Download settings and weights of a hub repository; return the folder.

    Of the kinds of weight files (`WEIGHT_PATTERNS`), only the first that the repository has is
    downloaded.
    """
    for pattern in WEIGHT_PATTERNS:
        files = [*SETTINGS_FILES, RECORD, pattern, f"{pattern}.index.json"]
        folder = fetch(name, files, revision=revision)
        if weight_files(folder):
            break
    return folder


# --- weights


def weight_files(folder: Path) -> list[Path]:
    """Return the files that a folder's weights are read from, sorted; an empty list for none.

    They are of one kind: the first of `WEIGHT_PATTERNS` that the folder has. Files that an index
    (`model.safetensors.index.json`) names are of its kind, whatever they are called, also in
    subfolders.
    """
    for pattern in WEIGHT_PATTERNS:
        files = set(folder.glob(pattern))
        for index in folder.glob(f"{pattern}.index.json"):
            file_of_tensor = read_settings(index).get("weight_map")
            if isinstance(file_of_tensor, dict):
                files |= {folder / str(name) for name in file_of_tensor.values()}
        files = {file for file in files if file.is_file()}
        if files:
            return sorted(files)
    return []


def read_tensors(folder: Path) -> dict[str, torch.Tensor]:
    """Read the tensors of a folder by name: on the CPU, as stored, from memory-mapped files.

    Raises:
        ValueError: a damaged file, or one that would run code when it is read.
    """
    tensors: dict[str, torch.Tensor] = {}
    for file in weight_files(folder):
        try:
            if file.suffix == ".safetensors":
                tensors |= load_file(file)
            else:
                tensors |= torch.load(file, map_location="cpu", weights_only=True, mmap=True)
        except Exception as error:  # of any kind: libraries don't check a file before they use it
            reason = reason_of(error)
            raise ValueError(f"{file} can't be read ({reason}); download it again") from error
    return tensors


def reason_of(error: Exception) -> str:
    """Say in one line why a library could not read a file."""
    first_line = str(error).strip().partition("\n")[0][:600]
    if isinstance(error, pickle.UnpicklingError):
        first_line = f"could run code, so it was refused and nothing in it was run: {first_line}"
    return f"{type(error).__name__}: {first_line}"


# --- what libraries say while they read


@contextlib.contextmanager
def library_errors(name: str, folder: Path) -> Iterator[None]:
    """Turn any error of a library into a ValueError that names the judge and its folder.

    A ValueError that names one of them already passes as it is. No progress bar is shown.
    """
    # bitsandbytes logs every layer that it casts in 8 bits.
    logging.getLogger("bitsandbytes").setLevel(logging.ERROR)
    try:
        with without_bars():
            yield
    except ImportError as error:
        raise ValueError(f"judge {name!r} needs a package that is missing: {error}") from error
    except Exception as error:  # of any kind: libraries don't check a file before they use it
        is_named = repr(name) in str(error) or str(folder) in str(error)
        if is_named and isinstance(error, ValueError):
            raise
        reason = reason_of(error)
        raise ValueError(f"judge {name!r} can't be read from {folder} ({reason})") from error


@contextlib.contextmanager
def without_bars() -> Iterator[None]:
    """Hide transformers' progress bars, which a notebook would keep as red lines."""
    bars = transformers.utils.logging
    was_enabled = bars.is_progress_bar_enabled()
    bars.disable_progress_bar()
    try:
        yield
    finally:
        if was_enabled:
            bars.enable_progress_bar()


# --- fingerprint


def fingerprint(*folders: Path) -> str:
    """Return the SHA-256 over all files of checkpoints that decide their outputs.

    It depends on the files' contents and on their names within the folder, not on where the folder
    stands. A file that does not change is read once per process.
    """
    digest_of_all = hashlib.sha256()
    for folder in folders:
        settings = [folder / name for name in SETTINGS_FILES if (folder / name).is_file()]
        for file in [*weight_files(folder), *settings]:
            state = file.stat()
            # `_digest` reads a file again when its times or size are new. The modification time can
            # be set back by hand, the inode's change time can't.
            times = (state.st_mtime_ns, state.st_ctime_ns)
            digest = _digest(file.resolve(), times, state.st_size)
            digest_of_all.update(f"{os.path.relpath(file, folder)}\0{digest}\n".encode())
    return digest_of_all.hexdigest()


@functools.cache
def _digest(file: Path, times: tuple[int, int], size: int) -> str:
    """Return the SHA-256 of a file.

    `times` and `size` are not used here: they are parts of the cache's key, so that a file whose
    times or size are new is read again.
    """
    digest = hashlib.sha256()
    with file.open("rb") as stream:
        for chunk in iter(lambda: stream.read(1 << 20), b""):
            digest.update(chunk)
    return digest.hexdigest()
