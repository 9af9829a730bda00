"""The examples in the docstrings of this room hold."""

from __future__ import annotations

import doctest
from collections.abc import Iterator
from types import ModuleType

import pytest

from vjudge.prompts import families, parse, template


@pytest.fixture(autouse=True)
def unchanged() -> Iterator[None]:
    before = dict(families.FAMILIES)
    yield
    families.FAMILIES.clear()
    families.FAMILIES.update(before)


@pytest.mark.parametrize("module", [families, parse, template], ids=lambda module: module.__name__)
def test_examples(module: ModuleType) -> None:
    result = doctest.testmod(module)
    assert result.attempted > 1 and not result.failed
