"""Perturbations change one thing and nothing else."""

import numpy as np
import pytest

import vjudge as vj
from validity.simulated import collection
from vjudge import probes
from vjudge.data.summary import n_words
from vjudge.probes.changes import FILLERS, MID_GREY


@pytest.fixture(scope="module")
def items():
    rows = vj.load_collection("scenes", split="test", limit=40)  # four pictures
    return rows.add_column("own_answer", ["A red square."] * len(rows))


def _pictures(items):
    return np.array([np.asarray(row["images"][0].convert("RGB")) for row in items])


def test_pictures_are_blanked_swapped_or_stored_anew(items):
    old = _pictures(items)
    again = _pictures(probes.reencoded(items)).astype(float)
    blank = _pictures(probes.blanked(items))
    assert blank.shape == old.shape and (blank == MID_GREY).all()
    assert ((again != old).mean(axis=(1, 2, 3)) > 0).all() and np.abs(again - old).mean() < 4
    new = _pictures(probes.swapped(items, seed=3))
    swaps = {(a.tobytes(), b.tobytes()) for a, b in zip(old, new, strict=True)}
    assert len(swaps) == 4  # whole groups are exchanged
    assert all(a != b for a, b in swaps) and {a for a, _ in swaps} == {b for _, b in swaps}
    with pytest.raises(ValueError, match="two groups"):
        probes.swapped(items.select(range(5)))
    with pytest.raises(ValueError, match="no row has an image"):
        probes.blanked(items.remove_columns("images").add_column("images", [[]] * len(items)))


def test_responses_that_are_pictures_are_blanked_and_swapped():
    drawings = vj.load_collection("drawings", limit=20)  # four instructions
    drawings = vj.load_collection([row | {"images": row["response_images"]} for row in drawings])
    grey = probes.perturb(drawings, "response_image_blanked")
    moved = probes.perturb(drawings, "response_image_swapped", seed=3)
    old, blank, new = (
        [row["response_images"][0].convert("RGB").tobytes() for row in rows]
        for rows in (drawings, grey, moved)
    )
    assert set(blank) == {bytes(MID_GREY) * 192 * 192} and blank != old
    assert sorted(new) == sorted(old)  # each response once
    groups = dict(zip(old, drawings["group"], strict=True))
    swaps = {(groups[one], group) for one, group in zip(new, drawings["group"], strict=True)}
    assert len(swaps) == 4 and all(one != group for one, group in swaps)
    for changed in (grey, moved):  # the question's pictures are left alone
        assert (_pictures(changed) == _pictures(drawings)).all()
    pairs = vj.load_collection(probes.pairs_of_items(drawings, limit=6))
    blank = probes.blanked(pairs, responses=True)[0]
    assert [blank[f"response_{side}_images"][0].getpixel((9, 9)) for side in "ab"] == [
        MID_GREY,
        MID_GREY,
    ]
    # what is done to texts applies to no row without one
    for name in ("response_padded", "response_bold", "injected_order"):
        with pytest.raises(ValueError, match="applies to none of the 20 items"):
            probes.perturb(drawings, name)
    with pytest.raises(ValueError, match="response_images: no row has an image"):
        probes.blanked(vj.load_collection("scenes", limit=5), responses=True)


CHANGES = {
    "shown": {"instruction"},
    "answered": {"instruction"},
    "rubric": {"criteria", "descriptions"},
    "response": {"response"},
    "injected": {"response"},
    "image": set(),
    "levels": {"descriptions"},
}


@pytest.mark.parametrize(
    "name", [name for name, kind in probes.PERTURBATIONS.items() if not kind.responses]
)
def test_a_perturbation_changes_its_part_and_repeats_itself(items, name):
    changed = probes.perturb(items, name, seed=1)
    again = probes.perturb(items, name, seed=1)
    assert len(changed) and changed.features == items.features
    rows, repeated = (each.remove_columns("images").to_list() for each in (changed, again))
    before = {row["id"]: row for row in items.remove_columns("images")}
    part = name.split("_")[0]
    for row in rows:
        moved = {column for column, value in row.items() if value != before[row["id"]][column]}
        assert moved == CHANGES[part]
    assert rows == repeated and (_pictures(changed) == _pictures(again)).all()


def _answers(*texts, instruction="?"):
    row = collection(1)[0] | {"instruction": instruction}
    return vj.data.canonical([row | {"id": text, "response": text} for text in texts])


def test_padding_doubles_the_length_of_english_responses_and_leaves_out_others():
    english = "The picture shows a dog on the grass."
    german = "Auf dem Bild ist ein Hund zu sehen."
    (added,) = probes.padded(_answers(german, english))
    text = added["response"]
    assert text.startswith(english) and 2 <= n_words(text) / n_words(english) < 4
    for filler in FILLERS:
        text = text.replace(filler, "")
    assert text.strip() == english
    short = probes.padded(_answers("Two dogs.", instruction="What is there?"))
    assert short[0]["response"].removeprefix("Two dogs. ") in FILLERS
    for text in (german, "图中有一只狗躺在草地上。", "3.5 + 2 = 5.5"):
        with pytest.raises(ValueError, match="applies to none of the 1 items"):
            probes.padded(_answers(text))
