"""Load the module of a public name when the name is first used."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy_names(
    package: str, names: Mapping[str, str], modules: frozenset[str] = frozenset()
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Make what a package needs in order to import a module when one of its names is first used.

    Args:
        package: the package's `__name__`.
        names: module below the package -> the public names that it defines, separated by blanks,
            such as {"judging.panel": "combine_samples panel"}.
        modules: modules of the package that may be named themselves.

    Returns:
        The package's `__getattr__`, `__dir__` and `__all__`, which lists the public names.
    """
    homes = {name: module for module, text in names.items() for name in text.split()}

    def bring(name: str) -> Any:
        if name in homes:
            return getattr(import_module(f"{package}.{homes[name]}"), name)
        if name in modules:
            return import_module(f"{package}.{name}")
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return bring, lambda: sorted({*homes, *modules}), list(homes)
