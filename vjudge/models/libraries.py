"""Call the libraries that read checkpoints: name what they failed to read, and hide their bars."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from pathlib import Path

import transformers

from vjudge.models.files import reason_of


@contextlib.contextmanager
def reading(name: str, folder: Path) -> Iterator[None]:
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
