"""Perturbed collections change the picture and nothing else."""

from __future__ import annotations

import datasets
import numpy as np
import pytest

import vjudge as vj
from vjudge import probes


@pytest.fixture(scope="module")
def items() -> datasets.Dataset:
    return vj.load_collection("scenes", split="test", limit=40)  # four pictures


def _pictures(items: datasets.Dataset) -> list[bytes]:
    return [np.asarray(row["images"][0].convert("RGB")).tobytes() for row in items]


def test_blanking_leaves_one_colour_and_all_texts(items):
    blank = probes.blanked(items)
    assert blank.column_names == items.column_names and blank.features == items.features
    for column in set(items.column_names) - {"images"}:
        assert blank[column] == items[column]
    for before, after in zip(items, blank, strict=True):
        assert after["images"][0].size == before["images"][0].size
        assert after["images"][0].convert("RGB").getcolors() == [(192 * 192, probes.GREY)]


def test_swapping_exchanges_whole_groups(items):
    swapped = probes.swapped(items, seed=3)
    assert swapped.column_names == items.column_names and swapped.features == items.features
    for column in set(items.column_names) - {"images"}:
        assert swapped[column] == items[column]
    before, after = _pictures(items), _pictures(swapped)
    assert all(a != b for a, b in zip(before, after, strict=True))
    assert set(before) == set(after)
    for group in set(items["group"]):
        assert len({after[i] for i, name in enumerate(items["group"]) if name == group}) == 1
    assert _pictures(probes.swapped(items, seed=3)) == after


def test_what_cannot_be_perturbed_is_refused(items):
    with pytest.raises(ValueError, match="two groups"):
        probes.swapped(items.select(range(5)))
    with pytest.raises(ValueError, match="no row has an image"):
        probes.blanked(items.remove_columns("images").add_column("images", [[]] * len(items)))
    with pytest.raises(ValueError, match="list"):
        probes.blanked(list(items))
