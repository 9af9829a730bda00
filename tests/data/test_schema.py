"""Canonical rows: every way of giving a picture or a rating ends in the same row, and what cannot is named."""

import base64
import json
import math

import datasets
import numpy as np
from pandas import DataFrame
from PIL import Image
from pytest import fail, fixture, mark, raises

from samples import LEVELS, plain, png, row
from vjudge.data import CollectionError, canonical, fingerprint, load_collection, rows_of, validate
from vjudge.data.cells import rater_scores
from vjudge.data.checks import check_rows
from vjudge.images import open_image
from vjudge.records import Item, Pair

RED = (255, 0, 0)


@fixture
def picture(tmp_path):
    (tmp_path / "red.png").write_bytes(png())
    return tmp_path / "red.png"


def encoded(path):
    return base64.b64encode(path.read_bytes()).decode()


FORMS = {
    "path": lambda path: path,
    "bytes": lambda path: path.read_bytes(),
    "dict of bytes": lambda path: {"bytes": path.read_bytes(), "path": None},
    "dict of a path": lambda path: {"bytes": None, "path": str(path)},
    "PIL": lambda path: Image.open(path),
    "array": lambda path: np.asarray(Image.open(path)),
    "list of lists": lambda path: np.asarray(Image.open(path)).tolist(),
    "data URI": lambda path: f"data:image/png;base64,{encoded(path)}",
    "base64": encoded,
    "JSON": lambda path: json.dumps([str(path)]),
    "Python's list as text": lambda path: str([str(path)]),
    "tuple": lambda path: (str(path),),
    "array of paths": lambda path: np.array([str(path)], dtype=object),
}


@mark.parametrize("form", FORMS)
def test_every_form_of_a_picture_in_every_column_is_the_same_row_and_one_group(
    picture, tmp_path, form
):
    Image.new("RGB", (4, 4), "blue").save(tmp_path / "blue.png")
    files = [picture, picture, tmp_path / "blue.png"]
    for column in ("images", "image", "image_path", "img", "Image File"):
        mine = [row(str(n), **{column: FORMS[form](path)}) for n, path in enumerate(files)]
        for items in (mine, DataFrame(mine), iter(mine)):
            one, same, other = rows_of(items)
            (found,) = one["images"]
            assert open_image(found).getpixel((0, 0)) == RED
            assert one["group"] == same["group"] != other["group"]
            assert column == "images" or column not in one
        validate(mine, sees_images=True)
        assert open_image(canonical(mine)[0]["images"][0]).getpixel((0, 0)) == RED
        several = rows_of([row(**{column: [FORMS[form](picture), str(picture)]})])[0]["images"]
        assert len(several) == 2 and open_image(several[0]).size == (4, 4)


def test_every_entrance_of_a_collection_gives_the_same_rows(picture, tmp_path):
    scores = {"gold": 4.0, "human_scores": [3.0, 4.0]}
    expected = [row(str(n), images=[str(picture)], **scores) for n in range(3)]
    mine = [row(str(n), img=str(picture), gold=4, human_scores="3;4") for n in range(3)]
    frame, dataset = DataFrame(mine), datasets.Dataset.from_list(mine)
    frame.assign(descriptions=json.dumps(LEVELS)).to_csv(tmp_path / "a.csv", index=False)
    frame.to_json(tmp_path / "a.json", orient="records")
    for name in ("a.jsonl", "lines.json"):
        frame.to_json(tmp_path / name, orient="records", lines=True)
    frame.to_parquet(tmp_path / "a.parquet")
    dataset.save_to_disk(str(tmp_path / "saved"))
    names = "a.csv a.json a.jsonl lines.json a.parquet saved"
    files = [tmp_path / name for name in names.split()]
    forms = [mine, frame, frame.set_index("id"), canonical(mine), *files, str(files[0])]
    forms += [dataset, dataset.select([2, 1, 0]).select([2, 1, 0])]
    forms += [dataset.cast_column("img", datasets.Image()), load_collection(files[2])]
    forms += [list(map(Item.from_row, rows_of(expected))), rows_of(mine)]
    assert {fingerprint(form) for form in forms} == {fingerprint(expected)}
    (pair,) = rows_of([Pair("p", ("a.png",), "Say.", "Red.", "Blue.", preference="a")])
    assert Pair.from_row(pair).preference == "a" and pair["images"] == ["a.png"]


@mark.parametrize(
    "wrong, message",
    [
        (DataFrame([[1, 2]], columns=["gold", "gold"]), "the frame has several columns gold"),
        (7, "a collection cannot be a int; give a Dataset"),
        ({"id": [1], "instruction": ["Say."]}, "a collection cannot be a dict"),
        (datasets.DatasetDict(), "a collection cannot be a DatasetDict"),
        ([row(image="a.png", image_path="b.png")], "`image` and `image_path` name different pict"),
        ([row(image=png(), image_path=png("blue"))], "`image` and `image_path` name different"),
    ],
)
def test_what_is_no_collection_is_named(wrong, message):
    with raises(CollectionError, match=message):
        rows_of(wrong)[0]


BYTES = {"bytes": png(), "path": "a.png"}


@mark.parametrize(
    "one, other", [("a.png", "a.png"), (png(), BYTES), (None, "a.png"), (BYTES, "images/a.png")]
)
def test_two_columns_that_name_one_picture_are_one(one, other):
    assert len(rows_of([row(image=one, image_path=other)])[0]["images"]) == 1


def test_an_empty_list_is_said_a_missing_cell_is_not_and_the_picture_is_the_group():
    cells = [[], "[]", None, float("nan"), ""]
    read = [each["images"] for each in rows_of([row(images=cell) for cell in cells])]
    assert read == [[], [], None, None, None] and "images" not in rows_of([row()])[0]
    stored = canonical([row(str(n), images=cell) for n, cell in enumerate([["a.png"], [], None])])
    assert [each["images"] and len(each["images"]) for each in plain(stored)] == [1, [], None]
    made = [row(image="a.png"), row(image=png()), row(image="a.png", group="g")]
    path, digest, named = (each["group"] for each in rows_of(made))
    assert (path, len(digest), named) == ("a.png", 16, "g")


def test_a_data_set_is_read_row_by_row_with_its_pictures_undecoded(monkeypatch):
    """Its only column of pictures may have any name."""
    files = [png((n, 0, 0)) for n in range(40)]
    dataset = datasets.Dataset.from_dict({"id": [str(n) for n in range(40)], "photo": files})
    dataset = dataset.cast_column("photo", datasets.Image())
    monkeypatch.setattr(Image, "open", lambda *_, **__: fail("a picture was opened"))
    rows = rows_of(dataset)
    assert rows[37]["images"][0]["bytes"] == files[37]
    assert [each["id"] for each in rows] == dataset["id"][:]
    two = dataset.add_column("other", files).cast_column("other", datasets.Image())
    assert "images" not in rows_of(two)[0]  # neither of two is taken for the picture


@mark.parametrize("form", [list, DataFrame, datasets.Dataset.from_list])
def test_rows_without_ids_are_numbered_whatever_they_stand_in(form):
    bare = {name: cell for name, cell in row(images=[]).items() if name != "id"}
    validate(form([bare] * 3))
    assert [one["id"] for one in rows_of(form([bare] * 3))] == ["0", "1", "2"]
    assert canonical(form([bare] * 3))["id"][:] == ["0", "1", "2"]
    with raises(CollectionError, match=r"row 1 \(id None\), id: is missing or not unique"):
        validate([bare | {"id": "a"}, bare])


@mark.parametrize(
    "cells, expected",
    [
        (("3;4;2", "[3, 4, 2]", "3 4 2", "3|4|2", "3,4,2", "(3, 4, 2)", "[3. 4. 2.]"), [3, 4, 2]),
        (("3 ; 4.25", "[3, 4.25]", "(3|4.25)", "['3', '4.25']"), [3, 4.25]),
        ((10, "10", "[10]", np.int64(10)), [10]),
        ((None, "", "[]"), []),
        (("3,5;4",), [3.5, 4]),
    ],
)
def test_ratings_are_as_many_as_were_given(cells, expected):
    for cell in cells:
        assert (
            rater_scores(cell) == expected == rows_of([row(human_scores=cell)])[0]["human_scores"]
        )
    assert list(map(math.isnan, rater_scores("3;;nan;4"))) == [False, True, True, False]


@mark.parametrize(
    "field, cell, what",
    [
        ("response", "ok \ud83d", "surrogates not allowed"),
        ("note", {"a": ["\ud83d"]}, "surrogates not allowed"),
        ("images", ["\ud83d.png"], "surrogates not allowed"),
        ("gold", 10**5000, "Exceeds the limit .4300 digits"),
        ("gold", "1" * 5000, "is not a number"),
        ("human_scores", "3;four", "'four' is not a number"),
    ],
    ids=range(6),  # one is too long
)
def test_a_hostile_cell_is_named_with_its_row_and_field(field, cell, what):
    rows = [row("good"), row("bad") | {field: cell}]
    for read in (lambda: rows_of(rows)[1], lambda: validate(rows), lambda: canonical(rows)):
        with raises(CollectionError, match=what) as error:
            read()
        assert (error.value.problems[0].index, error.value.problems[0].field) == (1, field)


def test_errors_show_the_first_ones_and_the_count():
    with raises(CollectionError) as error:
        validate([row(str(n), gold=9) for n in range(50)])
    message = str(error.value)
    assert len(error.value.problems) == 50 and message.count("is off the rubric") == 10
    assert message.endswith("and 40 more, all in the error's `problems`")


def test_a_row_without_an_id_is_told_from_one_with_the_id_of_another():
    rows = [{"id": None}, {"id": "a"}, {"id": "a"}]
    with raises(CollectionError) as caught:
        check_rows(rows, "gold", [True] * 3, "", "")
    found = [(problem.index, problem.reason) for problem in caught.value.problems]
    assert found == [(0, "is missing"), (2, "is not unique")]
