"""Load the module of a public name when the name is first used."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy_getattr(
    package: str, homes: Mapping[str, str], modules: frozenset[str] = frozenset()
) -> Callable[[str], Any]:
    """Make a package's `__getattr__`, which imports the module that has a name.

    Args:
        package: the package's `__name__`.
        homes: public name -> the module below the package that defines it, such as "judging.judge".
        modules: modules of the package that may be named themselves.

    Returns:
        A function that returns the value of a name, or raises AttributeError.
    """

    def bring(name: str) -> Any:
        if name in homes:
            return getattr(import_module(f"{package}.{homes[name]}"), name)
        if name in modules:
            return import_module(f"{package}.{name}")
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return bring
