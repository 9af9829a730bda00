"""The picture always arrives beyond grading: probes, policies, pairs and training see it under any of its names."""

import numpy as np
import pytest
from pandas import DataFrame

from conftest import make_rows
from samples import picture
from vjudge import data, load_judge, preference, probes, review
from vjudge.preference.candidates import checked
from vjudge.training import prompt_and_target


def test_arrays_are_pictures_of_their_own_scale_and_lists_have_commas():
    arrays = [
        np.full((4, 4, 3), 40_000, np.uint16),
        np.full((4, 4), 200, np.uint8),
        np.full((4, 4, 3), 0.5),
    ]
    rows = [row | {"image": array} for row, array in zip(make_rows(3), arrays, strict=True)]
    for row in rows:
        del row["images"]
    shown = [row["images"][0].convert("RGB").getpixel((0, 0))[0] for row in data.canonical(rows)]
    assert shown == pytest.approx([156, 200, 128], abs=1)
    with pytest.raises(data.CollectionError, match="a list without commas, as NumPy prints one"):
        data.canonical([rows[0] | {"descriptions": "['no' 'yes']"}])


def test_a_picture_under_another_name_gives_what_images_gives(random_judge, tmp_path):
    judge = load_judge(random_judge, device="cpu")
    files = [picture(tmp_path, f"{colour}.png", colour) for colour in ("red", "blue")]
    results = []
    for name in ("images", "image", "image_path", "img"):
        rows = []
        for row, file in zip(make_rows(2), files, strict=True):
            del row["images"]
            cell = [str(tmp_path / file)] if name == "images" else str(tmp_path / file)
            rows.append(row | {name: cell, "group": file, "feedback": "It is so."})
        swapped = probes.perturb(rows, "image_swapped", seed=1)
        answers = preference.respond(judge, rows, max_new_tokens=3)
        pairs = checked(DataFrame(rows).assign(chosen="it is red", rejected="it is dark"))
        result = [
            judge.grade(swapped, mode="score")["expected_score"].tolist(),
            answers[["response", "n_prompt_tokens"]].to_numpy().tolist(),
            preference.prompt_of(judge, rows[0]).text,
            [pair["images"] for pair in pairs],
            judge.render(rows[0]),
            review.show(rows[0])._repr_html_(),
            prompt_and_target(rows[0], judge.template),
        ]
        results.append(result)
    assert results[1:] == results[:1] * 3
