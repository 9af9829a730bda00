"""Perturbations change one thing and nothing else, and fill a response up in its own language."""

from __future__ import annotations

import datasets
import numpy as np
import pytest

import vjudge as vj
from validity.simulated import collection
from vjudge import probes
from vjudge.data.summary import n_words
from vjudge.probes.languages import FILLERS, language_of


@pytest.fixture(scope="module")
def items() -> datasets.Dataset:
    rows = vj.load_collection("scenes", split="test", limit=40)  # four pictures
    return rows.add_column("own_answer", ["A red square."] * len(rows))


def _pictures(items: datasets.Dataset) -> list[np.ndarray]:
    return [np.asarray(row["images"][0].convert("RGB")) for row in items]


def test_pictures_are_blanked_swapped_shuffled_or_stored_anew(items):
    before, blank = _pictures(items), _pictures(probes.blanked(items))
    assert all(
        (new == probes.GREY).all() and new.shape == old.shape
        for old, new in zip(before, blank, strict=True)
    )
    swapped = [new.tobytes() for new in _pictures(probes.swapped(items, seed=3))]
    old = [picture.tobytes() for picture in before]
    assert all(a != b for a, b in zip(old, swapped, strict=True)) and set(old) == set(swapped)
    assert len(set(zip(items["group"], swapped, strict=True))) == 4  # whole groups are exchanged
    mixed, stored = (
        _pictures(probes.perturb(items, "image_shuffled")),
        _pictures(probes.reencoded(items)),
    )
    for old, new, again in zip(before, mixed, stored, strict=True):
        colours = [
            np.sort(pixels.astype(int).reshape(-1, 3) @ (1, 256, 65536)) for pixels in (old, new)
        ]
        assert (old != new).any() and (colours[0] == colours[1]).all()
        assert 0 < np.abs(again.astype(float) - old).mean() < 4
    with pytest.raises(ValueError, match="two groups"):
        probes.swapped(items.select(range(5)))
    with pytest.raises(ValueError, match="no row has an image"):
        probes.blanked(items.remove_columns("images").add_column("images", [[]] * len(items)))


@pytest.mark.parametrize("name", probes.PERTURBATIONS)
def test_a_perturbation_changes_its_part_and_repeats_itself(items, name):
    columns = {"query": {"instruction"}, "shown": {"instruction"}, "answered": {"instruction"},
               "rubric": {"criteria", "descriptions"}, "response": {"response"}, "injected": {"response"}, "image": {"images"},
               "levels": {"descriptions"}, "criterion": {"criteria", "descriptions"},
               "reference": {"reference_answer"}}  # fmt: skip
    part, changed, again = (
        name.split("_")[0],
        *(probes.perturb(items, name, seed=1) for _ in range(2)),
    )
    assert (
        len(changed)
        and changed.column_names == items.column_names
        and changed.features == items.features
    )
    before = {row["id"]: row for row in items.remove_columns("images")}
    moved = set()
    for row in changed.remove_columns("images"):
        moved |= {column for column, value in row.items() if value != before[row["id"]][column]}
    assert moved <= columns[part] and (moved or part == "image")
    assert changed.remove_columns("images").to_list() == again.remove_columns("images").to_list()
    assert all((a == b).all() for a, b in zip(_pictures(changed), _pictures(again), strict=True))


ANSWERS = {
    "en": "The picture shows a dog that is lying on the grass, and there is a ball on the left.",
    "de": "Auf dem Bild ist ein Hund zu sehen, der auf der Wiese liegt, und links liegt ein Ball.",
    "fr": "Sur la photo, il y a un chien qui est couché dans l'herbe avec une balle.",
    "es": "En la foto se ve un perro que está acostado en la hierba con una pelota.",
    "it": "Nella foto c'è un cane che è sdraiato sull'erba con una palla.",
    "pt": "Na foto há um cão que não está deitado na relva com uma bola.",
    "ru": "На фотографии собака лежит на траве, это большой пёс, и слева лежит мяч.",
    "zh": "图中有一只狗躺在草地上，左边有一个红色的球。",
    "zh-Hant": "圖中有一隻狗躺在草地上，左邊有一個紅色的球。",
    "ja": "写真には、草の上に寝ている犬と、左側に赤いボールが写っています。",
    "ko": "사진에는 잔디밭에 누워 있는 개가 있고 왼쪽에 빨간 공이 있습니다.",
}
STRANGERS = {
    "Polish": "Na zdjęciu pies leży na trawie, a po lewej stronie jest piłka i to nie jest kot.",
    "Arabic": "في الصورة كلب مستلق على العشب وعلى اليسار كرة حمراء.",
    "no words": "3.5 + 2 = 5.5",
}


def _answers(*texts: str, instruction: str = "?") -> datasets.Dataset:
    row = dict(collection(1)[0]) | {"instruction": instruction}
    return vj.data.canonical(
        [row | {"id": str(i), "response": text} for i, text in enumerate(texts)]
    )


@pytest.mark.parametrize("language", FILLERS)
def test_padding_doubles_the_length_in_the_language_of_the_response(language):
    answer, filler = ANSWERS[language], FILLERS[language]
    assert language_of(answer) == language
    added = probes.padded(_answers(answer))[0]["response"]
    assert answer in added and 1.9 < n_words(added) / n_words(answer) < 3.2
    for text in (answer, *sorted(filler["openings"] + filler["closings"], key=len, reverse=True)):
        added = added.replace(text, "")
    assert not added.strip()
    assert probes.perturb(_answers("?", instruction=answer), "query_removed")["instruction"] == [
        filler["missing"]
    ]


def test_what_is_in_no_language_that_is_spoken_here_is_refused_or_counted():
    for name, text in STRANGERS.items():
        assert language_of(text) is None, name
        with pytest.raises(ValueError, match="language that can't be told, or in none of en, de"):
            probes.padded(_answers(text))
    with pytest.warns(UserWarning, match=r"1 of 2 rows \(0\)"):
        assert probes.padded(_answers(STRANGERS["Arabic"], ANSWERS["de"]))["id"] == ["1"]
    named = probes.padded(_answers(STRANGERS["no words"]), language="fr")[0]["response"]
    assert any(text in named for text in FILLERS["fr"]["closings"])
    short = probes.padded(_answers("Ein Hund.", instruction="Was ist auf dem Bild zu sehen?"))[0][
        "response"
    ]
    assert any(
        text in short for text in FILLERS["de"]["closings"]
    )  # two words say little: the question says the rest


def test_chinese_is_counted_in_characters_and_cut_at_its_own_full_stops():
    two = "图中有一只狗。左边有一个红色的球。"
    assert n_words(two) in (15, 17)
    assert (
        probes.perturb(_answers(two), "response_listed")[0]["response"]
        == "- 图中有一只狗。\n- 左边有一个红色的球。"
    )
