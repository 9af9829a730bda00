"""What `dir()` and tab completion show of a room: its public names, and nothing that it merely uses.

__dir__ = public(__name__)                  # the names in `__all__`
__getattr__ = lazy(__name__, {"fit": "tuning"})  # `fit` brings its module, tuning, when it is first used
"""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def public(room: str) -> Callable[[], list[str]]:
    """A room's `__dir__`."""
    return lambda: sorted(sys.modules[room].__all__)


def lazy(room: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """A room's `__getattr__`: public name -> the module that has it, so that importing the room stays light."""

    def bring(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {room!r} has no attribute {name!r}")
        return getattr(import_module(f"{room}.{homes[name]}"), name)

    return bring
