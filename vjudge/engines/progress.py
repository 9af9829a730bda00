"""What a long call shows while it runs: a progress bar, and lines that don't break it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from tqdm.auto import tqdm


def say(line: str) -> None:
    """Print a line above a progress bar: on standard error, in a notebook on standard output."""
    in_notebook = type(sys.stderr).__module__.startswith("ipykernel")
    tqdm.write(line, file=sys.stdout if in_notebook else sys.stderr)


@contextmanager
def progress_bar(total: int, done: int, *, show: bool) -> Iterator[tqdm]:
    """Open a progress bar that starts at `done` of `total`; `show=False` hides it.

    `tqdm` registers a bar before it has built it. An interruption in between leaves a bar that
    breaks every later line, so this function takes such a bar off the register.
    """
    registered = set(tqdm._instances)
    try:
        bar = tqdm(total=total, initial=done, disable=not show)
    except BaseException:
        for half_built in set(tqdm._instances) - registered:
            tqdm._instances.discard(half_built)
        raise
    with bar:
        yield bar
