"""Warnings that point at the user's line, and not at one of this package."""

from __future__ import annotations

import sys
import warnings


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the line outside this package from which the package was called."""
    frame = sys._getframe(1)
    level = 2  # `warnings.warn` counts this function as 1 and its caller as 2
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("vjudge."):
        frame = frame.f_back
        level += 1
    warnings.warn(message, category, stacklevel=level)
