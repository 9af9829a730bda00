"""The examples in the docstrings of the metrics run as they stand."""

from __future__ import annotations

import doctest
import warnings
from importlib import import_module

import pytest

from vjudge import metrics

MODULES = ["_tables", "agreement", "baselines", "calibration", "correlation", "pairwise", "ppi"]


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_run(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # small examples are undefined here and there
        result = doctest.testmod(import_module(f"vjudge.metrics.{name}"))
    assert result.attempted and not result.failed


def test_every_public_statistic_has_a_source() -> None:
    for name in metrics.__all__:
        function = getattr(metrics, name)
        if callable(function) and function.__module__.rsplit(".", 1)[-1] in MODULES:
            assert "Source:" in (function.__doc__ or ""), name
