"""Perturbations change one thing and nothing else."""

from __future__ import annotations

import datasets
import numpy as np
import pytest

import vjudge as vj
from validity.simulated import collection
from vjudge import probes
from vjudge.data.summary import n_words
from vjudge.probes.perturbations import FILLERS, GREY


@pytest.fixture(scope="module")
def items() -> datasets.Dataset:
    rows = vj.load_collection("scenes", split="test", limit=40)  # four pictures
    return rows.add_column("own_answer", ["A red square."] * len(rows))


def _pictures(items: datasets.Dataset) -> list[np.ndarray]:
    return [np.asarray(row["images"][0].convert("RGB")) for row in items]


def test_pictures_are_blanked_swapped_or_stored_anew(items):
    old = _pictures(items)
    for before, blank, again in zip(
        old, _pictures(probes.blanked(items)), _pictures(probes.reencoded(items)), strict=True
    ):
        assert (blank == GREY).all() and blank.shape == before.shape
        assert 0 < np.abs(again.astype(float) - before).mean() < 4
    swapped = [picture.tobytes() for picture in _pictures(probes.swapped(items, seed=3))]
    old = [picture.tobytes() for picture in old]
    assert all(a != b for a, b in zip(old, swapped, strict=True)) and set(old) == set(swapped)
    assert len(set(zip(items["group"], swapped, strict=True))) == 4  # whole groups are exchanged
    with pytest.raises(ValueError, match="two groups"):
        probes.swapped(items.select(range(5)))
    with pytest.raises(ValueError, match="no row has an image"):
        probes.blanked(items.remove_columns("images").add_column("images", [[]] * len(items)))


CHANGES = {
    "shown": {"instruction"},
    "answered": {"instruction"},
    "rubric": {"criteria", "descriptions"},
    "response": {"response"},
    "injected": {"response"},
    "image": {"images"},
    "levels": {"descriptions"},
}


@pytest.mark.parametrize("name", probes.PERTURBATIONS)
def test_a_perturbation_changes_its_part_and_repeats_itself(items, name):
    changed = probes.perturb(items, name, seed=1)
    again = probes.perturb(items, name, seed=1)
    assert len(changed) and changed.features == items.features
    texts = changed.remove_columns("images").to_list()
    before = {row["id"]: row for row in items.remove_columns("images")}
    moved = set()
    for row in texts:
        moved |= {column for column, value in row.items() if value != before[row["id"]][column]}
    part = name.split("_")[0]
    assert moved <= CHANGES[part] and (moved or part == "image")
    assert texts == again.remove_columns("images").to_list()
    assert all((a == b).all() for a, b in zip(_pictures(changed), _pictures(again), strict=True))


def _answers(*texts: str, instruction: str = "?") -> datasets.Dataset:
    row = dict(collection(1)[0]) | {"instruction": instruction}
    rows = [row | {"id": str(place), "response": text} for place, text in enumerate(texts)]
    return vj.data.canonical(rows)


def test_padding_doubles_the_length_of_english_responses_and_leaves_out_others():
    english = "The picture shows a dog on the grass."
    german = "Auf dem Bild ist ein Hund zu sehen."
    added = probes.padded(_answers(german, english))
    assert added["id"] == ["1"]
    text = added[0]["response"]
    assert text.startswith(english) and 2 <= n_words(text) / n_words(english) < 4
    for filler in FILLERS:
        text = text.replace(filler, "")
    assert text.strip() == english
    short = probes.padded(_answers("Two dogs.", instruction="What is there?"))
    assert short[0]["response"].removeprefix("Two dogs. ") in FILLERS
    for text in (german, "图中有一只狗躺在草地上。", "3.5 + 2 = 5.5"):
        with pytest.raises(ValueError, match="applies to none of the 1 items"):
            probes.padded(_answers(text))
