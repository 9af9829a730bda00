"""Scenes and photos: right by construction, balanced, and the same as ever."""

from __future__ import annotations

import json
import re
from collections import Counter
from hashlib import sha256
from types import SimpleNamespace

import datasets
import numpy as np
import pandas as pd
import pytest
from PIL import ImageColor

import vjudge as vj
from vjudge import data, images, metrics
from vjudge.data import photos, scenes
from vjudge.data.scenes import ASPECTS

PHOTOS = {photo["name"]: photo for photo in photos.lines("photos.jsonl")}
CHECK = re.compile(r"\((\d)\) said ([\w-]+), (.+?) ([\w-]+), (correct|wrong)\.")


@pytest.fixture(scope="module")
def rows() -> dict[str, list[dict]]:
    """Rows without pictures: what the text alone says."""
    return {
        split: [row for index in range(n) for row in scenes.rows_of(split, index)[1]]
        for split, n in {"train": 300, "test": 120}.items()
    }


def test_every_statement_of_feedback_is_read_off_the_drawn_scene():
    """The feedback's "seen" is compared with the scene itself, by a reading of its own, for all aspects."""
    checked = Counter()
    for index in range(60):
        scene, made = scenes.rows_of("test", index)
        for row in made:
            aspect = scenes.ASPECT_OF[row["criteria"]]
            verdicts = CHECK.findall(row["feedback"])
            for number, said, key, seen, verdict in verdicts:
                words = [word for thing in scene.things for word in (thing.colour, thing.shape)]
                if aspect == "count":
                    truth = scenes.NUMBERS[words.count(key)]
                elif aspect == "presence":
                    truth = "present" if key in words else "absent"
                else:
                    thing = {thing.place: thing for thing in scene.things}.get(key)
                    truth = (
                        getattr(thing, "shape" if aspect == "position" else aspect)
                        if thing
                        else "empty"
                    )
                assert seen == truth and (verdict == "correct") == (said == truth)
                clause = re.search(rf"\({number}\) (.*?)\.(?: |$)", row["response"])[
                    1
                ]  # the response says so, too
                assert all(
                    re.search(rf"\b{word}\b", clause)
                    for word in (key, said)[: 1 + (aspect != "presence")]
                )
            assert len(verdicts) == 4 and row["gold"] == 5 - sum(v[-1] == "wrong" for v in verdicts)
            checked[aspect] += 1
            if row["reference_answer"] and aspect == "colour":  # a reference answer is perfect
                for clause in re.findall(r"\(\d\) (.*?)\.", row["reference_answer"]):
                    place = re.search(
                        r"(top|bottom)-(left|right)|top|bottom|left|right|middle", clause
                    )[0]
                    assert scene.at(place).colour in clause
                    checked["reference"] += 1
    assert set(checked) == {*ASPECTS, "reference"} and checked["reference"] > 50


def test_its_texts_stay_those_that_the_embedded_judge_was_trained_on(rows):
    """That neither length nor text gives the score of these away: tools/validity/scenes_blind.py."""
    digests = {
        split: sha256(json.dumps(made, sort_keys=True).encode()).hexdigest()[:12]
        for split, made in rows.items()
    }
    assert digests == {"train": "a69ae4a5077e", "test": "1e182264178f"}


def test_a_seed_is_a_collection():
    first, again, other = (
        vj.load_collection("scenes", split="test", limit=20, seed=s) for s in (0, 0, 1)
    )
    assert data.fingerprint(first) == data.fingerprint(again) != data.fingerprint(other)
    data.validate(first)
    assert len(set(first["id"])) == 20 and len(set(first["group"])) == 2  # ten rows a picture
    with pytest.raises(ValueError, match="'dev'.*train, validation, test"):
        scenes.rows("dev")


def test_a_picture_shows_its_things():
    """Each thing's own colour fills part of its cell; empty cells hold the ground alone."""
    for index in range(20):
        scene = scenes.sample("test", 3, index)
        pixels = np.asarray(scenes.draw(scene), dtype=int)
        for i, place in enumerate(scenes.PLACES):
            row, column = divmod(i, 3)
            cell = pixels[row * 64 + 1 : row * 64 + 63, column * 64 + 1 : column * 64 + 63]
            if thing := scene.at(place):
                near = (
                    np.abs(cell - np.array(ImageColor.getrgb(scenes.COLOURS[thing.colour]))).max(
                        axis=-1
                    )
                    <= 12
                )
                assert 0.02 < near.mean() < 0.9
            else:
                assert np.abs(cell - pixels[0, 0]).max() == 0


# -- photos


@pytest.fixture(scope="module")
def items() -> datasets.Dataset:
    return vj.load_collection("photos")


@pytest.fixture(scope="module")
def table(items) -> pd.DataFrame:
    return items.remove_columns("images").to_pandas()


def test_photos_are_valid_and_complete_and_half_of_the_faults_show_in_the_picture_alone(
    items, table
):
    data.validate(items)
    assert [*data.FEATURES, "aspect", "credit", "fault_shows_in"] == items.column_names
    cases = data.cases(items)
    assert table["group"].nunique() == len(PHOTOS) >= 9 and len(cases) == 3 * len(PHOTOS)
    assert all(scores == [1, 2, 3, 4, 5] for scores in cases["scores"]) and cases["reference"].all()
    assert table["criteria"].nunique() == 3 * len(PHOTOS) and table["aspect"].nunique() >= 20
    tally = Counter(table["fault_shows_in"])
    assert (
        set(tally) == {"picture", "text", "none"}
        and ((table["fault_shows_in"] == "none") == (table["gold"] == 5)).all()
    )
    assert tally["picture"] >= (tally["picture"] + tally["text"]) / 2


def test_length_does_not_give_the_score_of_photos(items):
    for _, row in metrics.length_test(items, n_resamples=2_000).iterrows():
        assert row["low"] <= 0.5 <= row["high"] and 0.45 <= row["auc"] <= 0.55


def test_a_changed_or_absent_photograph_is_refused(monkeypatch, tmp_path):
    photo = PHOTOS["coins"]
    assert photos.file_of(photo).name == "coins.png"
    file = tmp_path / "data" / "coins.png"
    file.parent.mkdir()
    file.write_bytes(b"another")
    spec = SimpleNamespace(origin=str(tmp_path / "__init__.py"))
    monkeypatch.setattr(photos.util, "find_spec", lambda name: spec)
    with pytest.raises(images.ImageError, match="coins.png is another file in this version: pip"):
        photos.file_of(photo)
    monkeypatch.setattr(photos.util, "find_spec", lambda name: None)
    with pytest.raises(images.ImageError, match="astronaut.png is not there: pip install scikit"):
        vj.load_collection("photos")
