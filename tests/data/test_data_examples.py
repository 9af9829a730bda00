"""The examples in the docstrings of rows and pictures run as they stand."""

from __future__ import annotations

import doctest
from types import ModuleType

import pytest

from vjudge import benchmarks, images, records, table
from vjudge.data import load, schema, validation


@pytest.mark.parametrize("module", [records, images, schema, load, validation, benchmarks, table])
def test_the_examples_run(module: ModuleType) -> None:
    result = doctest.testmod(module)
    assert result.attempted and not result.failed
