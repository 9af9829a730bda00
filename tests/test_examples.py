"""Every example in a docstring runs as it stands."""

import doctest
from importlib import import_module
from pathlib import Path

import pytest

from vjudge.prompts import families

PACKAGE = Path(__file__).parents[1] / "vjudge"
FILES = [
    path for path in sorted(PACKAGE.rglob("*.py")) if ">>> " in path.read_text(encoding="utf-8")
]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
@pytest.mark.filterwarnings("ignore::UserWarning")  # of few items, which examples have
def test_the_examples_run(path, monkeypatch):
    own = dict(families.FAMILIES)
    monkeypatch.setattr(families, "FAMILIES", own)  # one example registers a family
    name = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
    result = doctest.testmod(import_module(name.removesuffix(".__init__")))
    assert result.attempted and not result.failed
