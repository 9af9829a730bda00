"""Scenes and photos: right by construction, balanced, and the same as ever."""

import json
import re
from hashlib import sha256
from types import SimpleNamespace

import numpy as np
from PIL import ImageColor
from pytest import mark, raises

import vjudge as vj
from vjudge import data, metrics
from vjudge.data import photos, scenes
from vjudge.data.scenes import ASPECTS

PHOTOS = {photo["name"]: photo for photo in photos.lines("photos.jsonl")}
CHECK = re.compile(r"\((\d)\) said ([\w-]+), (.+?) ([\w-]+), (correct|wrong)\.")


def truth_of(scene, aspect, key):
    """What a picture shows at a key, by a reading of its own."""
    words = [word for thing in scene.things for word in (thing.colour, thing.shape)]
    if aspect == "count":
        return scenes.NUMBERS[words.count(key)]
    if aspect == "presence":
        return "present" if key in words else "absent"
    for thing in scene.things:
        if thing.place == key:
            return getattr(thing, "shape" if aspect == "position" else aspect)
    return "empty"


def test_every_statement_of_feedback_is_read_off_the_drawn_scene():
    checked = set()
    for index in range(60):
        scene, made = scenes.scene_rows("test", index)
        for row in made:
            aspect = scenes.ASPECT_OF[row["criteria"]]
            verdicts = CHECK.findall(row["feedback"])
            clauses = re.split(r"\. |\.$", row["response"])
            for (_, said, key, seen, verdict), clause in zip(verdicts, clauses, strict=False):
                assert seen == truth_of(scene, aspect, key)
                assert (verdict == "correct") == (said == seen)
                words = [key] if aspect == "presence" else [key, said]
                assert all(re.search(rf"\b{word}\b", clause) for word in words)
            assert len(verdicts) == 4 and row["gold"] == 5 - sum(v[-1] == "wrong" for v in verdicts)
            checked.add(aspect)
    assert checked == set(ASPECTS)


@mark.parametrize(
    "split, n, digest", [("train", 300, "a69ae4a5077e"), ("test", 120, "1e182264178f")]
)
def test_its_texts_stay_those_that_the_embedded_judge_was_trained_on(split, n, digest):
    """That neither length nor text gives the score of these away: tools/validity/scenes_blind.py."""
    rows = [row for index in range(n) for row in scenes.scene_rows(split, index)[1]]
    for row in rows:
        assert row.pop("category") == scenes.ASPECT_OF[row["criteria"]]
    assert sha256(json.dumps(rows, sort_keys=True).encode()).hexdigest()[:12] == digest


def test_a_seed_is_a_collection():
    first, again, other = (vj.load_collection("scenes", limit=20, seed=seed) for seed in (0, 0, 1))
    assert data.fingerprint(first) == data.fingerprint(again) != data.fingerprint(other)
    data.validate(first)
    assert len(set(first["id"])) == 20 and len(set(first["group"])) == 2  # ten rows a picture
    with raises(ValueError, match="'dev'.*train, validation, test"):
        scenes.rows("dev")


def test_a_picture_shows_its_things():
    """Each thing's own colour fills part of its cell; empty cells hold the ground alone."""
    for index in range(20):
        scene = scenes.sample("test", 3, index)
        pixels = np.asarray(scenes.paint(scene), dtype=int)
        for i, place in enumerate(scenes.PLACES):
            row, column = (64 * n for n in divmod(i, 3))
            cell = pixels[row + 1 : row + 63, column + 1 : column + 63]
            thing = scene.at(place)
            colour = ImageColor.getrgb(scenes.COLOURS[thing.colour]) if thing else pixels[0, 0]
            share = (abs(cell - colour).max(axis=-1) <= 12).mean()
            assert 0.02 < share < 0.9 if thing else share == 1


# -- photos


def test_photos_are_valid_and_half_of_the_faults_show_in_the_picture_alone():
    items = vj.load_collection("photos")
    data.validate(items)
    assert [*data.FEATURES, "aspect", "credit", "fault_shows_in"] == items.column_names
    table = items.remove_columns("images").to_pandas()
    cases = data.cases(items)
    n = len(PHOTOS)
    assert n >= 9 and len(cases) == 3 * n and table["aspect"].nunique() >= 20
    assert all(scores == [1, 2, 3, 4, 5] for scores in cases["scores"]) and cases["reference"].all()
    shows_in = table["fault_shows_in"]
    assert ((shows_in == "none") == (table["gold"] == 5)).all()
    assert sum(shows_in == "picture") >= sum(shows_in == "text") > 0
    assert (
        metrics.length_test(items, n_resamples=2_000)["auc"].between(0.45, 0.55).all()
    )  # length does not give the score


def test_a_changed_or_absent_photograph_is_refused(monkeypatch, tmp_path):
    photo = PHOTOS["coins"]
    assert photos.file_of(photo).name == "coins.png"
    file = tmp_path / "data" / "coins.png"
    file.parent.mkdir()
    file.write_bytes(b"another")
    spec = SimpleNamespace(origin=str(tmp_path / "__init__.py"))
    monkeypatch.setattr(photos.util, "find_spec", lambda name: spec)
    with raises(data.CollectionError, match="coins.png is another file in this version: pip"):
        photos.file_of(photo)
    monkeypatch.setattr(photos.util, "find_spec", lambda name: None)
    with raises(data.CollectionError, match="astronaut.png is not there: pip install scikit"):
        vj.load_collection("photos")


ASKED = re.compile(r"an? (\w+) (\w+) at the ([\w-]+)")
NOTE = re.compile(r"\(\d\) an? (\w+) (\w+) at the ([\w-]+): (as asked|wrong \w+|not drawn)\.")


def test_a_drawing_has_the_faults_that_its_feedback_names():
    """By the pixels at the places of what is asked: the thing's colour, another, or the ground."""
    items = vj.load_collection("drawings", limit=50)
    data.validate(items, sees_images=True)
    assert items.column_names[-1] == "response_images" and set(items["response"]) == {None}
    seen = set()
    for row in items:
        notes = NOTE.findall(row["feedback"])
        asked = ASKED.findall(row["instruction"])
        assert [note[:3] for note in notes] == asked and len(set(asked)) == 4
        assert row["gold"] == 1 + sum(note[3] == "as asked" for note in notes)
        pixels = np.asarray(row["response_images"][0], dtype=int)
        for colour, _, place, fault in notes:
            top, left = (64 * n for n in divmod(scenes.PLACES.index(place), 3))
            cell = pixels[top : top + 64, left : left + 64]
            filled = (cell.min(axis=2) < 225).mean()
            ink = np.abs(cell - ImageColor.getrgb(scenes.COLOURS[colour])).max(axis=2) <= 10
            assert (filled > 0.02) == (fault not in ("wrong place", "not drawn"))
            assert (ink.mean() > 0.01) == (fault in ("as asked", "wrong shape"))
            seen.add(fault)
    assert len(seen) == 5
    for start in range(0, 50, 5):
        assert sorted(items["gold"][start : start + 5]) == [1, 2, 3, 4, 5]
