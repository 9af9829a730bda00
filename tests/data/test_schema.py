"""Canonical rows: every way of giving a picture or a rating ends in the same row, and what cannot is named."""

from __future__ import annotations

import base64
import json
import math
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from samples import LEVELS, plain, png, row
from vjudge.data import (
    CollectionError,
    canonical,
    fingerprint,
    load_collection,
    rows_of,
    truth,
    validate,
)
from vjudge.data.rows import canonical_row, ratings
from vjudge.images import open_image
from vjudge.records import IMAGE_COLUMNS, Item, Pair


@pytest.fixture
def picture(tmp_path: Path) -> Path:
    (tmp_path / "red.png").write_bytes(png())
    return tmp_path / "red.png"


FORMS = {
    "path": lambda path: path,
    "bytes": lambda path: path.read_bytes(),
    "dict of bytes": lambda path: {"bytes": path.read_bytes(), "path": None},
    "dict of a path": lambda path: {"bytes": None, "path": str(path)},
    "PIL": lambda path: Image.open(path),
    "array": lambda path: np.asarray(Image.open(path)),
    "list of lists": lambda path: np.asarray(Image.open(path)).tolist(),
    "data URI": lambda path: (
        "data:image/png;base64," + base64.b64encode(path.read_bytes()).decode()
    ),
    "base64": lambda path: base64.b64encode(path.read_bytes()).decode(),
    "JSON": lambda path: json.dumps([str(path)]),
    "Python's list as text": lambda path: str([str(path)]),
    "tuple": lambda path: (str(path),),
    "array of paths": lambda path: np.array([str(path)], dtype=object),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_a_picture_in_every_column_is_the_same_row_and_one_group(
    picture: Path, tmp_path: Path, form: str
) -> None:
    Image.new("RGB", (4, 4), "blue").save(tmp_path / "blue.png")
    for column in ("images", "image", "image_path", "img", "Image File"):
        mine = [row(str(n), **{column: FORMS[form](path)}) for n, path in enumerate([picture] * 2)]
        mine.append(row("2", **{column: FORMS[form](tmp_path / "blue.png")}))
        for items in (mine, pd.DataFrame(mine), iter(mine)):
            one, same, other = rows_of(items)
            assert len(one["images"]) == 1 and open_image(one["images"][0]).getpixel((0, 0)) == (
                255,
                0,
                0,
            )
            assert one["group"] == same["group"] != other["group"] and (
                column == "images" or column not in one
            )
        validate(mine, sees_images=True)
        (stored, *_) = canonical(mine)
        assert open_image(stored["images"][0]).getpixel((0, 0)) == (255, 0, 0)
        several = rows_of([row(**{column: [FORMS[form](picture), str(picture)]})])[0]["images"]
        assert len(several) == 2 and open_image(several[0]).size == (4, 4)


def test_every_entrance_of_a_collection_gives_the_same_rows(picture: Path, tmp_path: Path) -> None:
    expected = [
        row(str(n), images=[str(picture)], gold=4.0, human_scores=[3.0, 4.0]) for n in range(3)
    ]
    mine = [row(str(n), img=str(picture), gold=4.0, human_scores="3;4") for n in range(3)]
    frame, dataset = pd.DataFrame(mine), datasets.Dataset.from_list(mine)
    frame.assign(descriptions=json.dumps(LEVELS)).to_csv(tmp_path / "a.csv", index=False)
    frame.to_json(tmp_path / "a.jsonl", orient="records", lines=True)
    frame.to_json(tmp_path / "a.json", orient="records")
    frame.to_json(tmp_path / "lines.json", orient="records", lines=True)
    frame.to_parquet(tmp_path / "a.parquet")
    dataset.save_to_disk(str(tmp_path / "saved"))
    forms = [
        mine,
        frame,
        dataset,
        dataset.select([2, 1, 0]).select([2, 1, 0]),
        frame.set_index("id"),
    ]
    forms += [
        dataset.cast_column("img", datasets.Image()),
        list(map(Item.from_row, rows_of(expected))),
    ]
    forms += [
        tmp_path / name
        for name in ("a.csv", "a.jsonl", "a.json", "lines.json", "a.parquet", "saved")
    ]
    forms += [str(tmp_path / "a.csv"), canonical(mine), load_collection(tmp_path / "a.jsonl")]
    assert {fingerprint(form) for form in forms} == {fingerprint(expected)}
    for form in forms:
        rows = rows_of(form)
        assert rows_of(rows) is rows and [each["id"] for each in rows] == ["0", "1", "2"]
        assert [each["gold"] for each in rows[:2]] == [4, 4] and rows[-1]["human_scores"] == [3, 4]
        validate(form, sees_images=True)
    pair = Pair("p", ("a.png",), "Say.", "Red.", "Blue.", preference="a")
    assert Pair.from_row(rows_of([pair])[0]).preference == "a" and rows_of([pair])[0]["images"] == [
        "a.png"
    ]
    with pytest.raises(
        CollectionError, match="the frame has several columns gold; keep one of each"
    ):
        rows_of(pd.concat([frame, frame[["gold"]]], axis=1))
    for wrong in (7, row(), datasets.DatasetDict({"test": dataset})):
        with pytest.raises(
            CollectionError, match="a collection cannot be a (int|dict|DatasetDict); give a Dataset"
        ):
            rows_of(wrong)


def test_two_columns_that_name_different_pictures_are_both_named(picture: Path) -> None:
    for one, other in (("a.png", "b.png"), (str(picture), png("blue"))):
        with pytest.raises(
            CollectionError, match="columns `image` and `image_path` name different pictures"
        ):
            rows_of([row(image=one, image_path=other)])[0]
    for one, other in [("a.png", "a.png"), (png(), {"bytes": png(), "path": "a.png"}), (None, "a.png"),
                       ({"bytes": png(), "path": "a.png"}, "images/a.png")]:  # fmt: skip
        assert len(rows_of([row(image=one, image_path=other)])[0]["images"]) == 1
    with pytest.raises(CollectionError, match="img: a picture cannot be of type set; give a path"):
        rows_of([row(img={1})])[0]


def test_an_empty_list_is_said_a_missing_cell_is_not_and_the_picture_is_the_group(
    picture: Path,
) -> None:
    cells: list[Any] = [[], "[]", None, float("nan"), ""]
    assert [each["images"] for each in rows_of([row(images=cell) for cell in cells])] == [
        [],
        [],
        None,
        None,
        None,
    ]
    assert "images" not in rows_of([row()])[0]
    stored = canonical([row(str(n), images=cell) for n, cell in enumerate([["a.png"], [], None])])
    assert [each["images"] and len(each["images"]) for each in plain(stored)] == [1, [], None]
    with pytest.raises(
        CollectionError, match="row 2 .id '2'., images: is missing; name it, or give"
    ):
        validate(stored.remove_columns("images").add_column("images", [[png()], [], None]))
    made = rows_of([row(image=str(picture)), row(image=png()), row(image="a.png", group="g")])
    groups = [each.get("group") for each in made]
    assert groups[0] == str(picture) and len(groups[1]) == 16 and groups[2] == "g"


def test_a_data_set_is_read_row_by_row_with_its_pictures_undecoded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    files = [png((n, 0, 0)) for n in range(40)]
    dataset = datasets.Dataset.from_dict({"id": [str(n) for n in range(40)], "photo": files})
    dataset = dataset.cast_column("photo", datasets.Image())
    monkeypatch.setattr(Image, "open", lambda *_, **__: pytest.fail("a picture was opened"))
    rows = rows_of(dataset)
    assert (
        rows[37]["images"][0]["bytes"] == files[37]
        and [each["id"] for each in rows] == dataset["id"][:]
    )
    assert [each["images"][0]["bytes"] for each in rows_of(dataset.shuffle(seed=0))] != files


@pytest.mark.parametrize("form", [list, pd.DataFrame, datasets.Dataset.from_list])
def test_rows_without_ids_are_numbered_whatever_they_stand_in(form: Any, tmp_path: Path) -> None:
    plain = [
        {name: cell for name, cell in row().items() if name != "id"} | {"images": []}
        for _ in range(3)
    ]
    validate(form(plain))
    rows = rows_of(form(plain))
    assert [one["id"] for one in rows] == ["0", "1", "2"] and rows[2]["id"] == "2"
    pd.DataFrame(plain).to_csv(tmp_path / "a.csv", index=False)
    assert load_collection(tmp_path / "a.csv")["id"][:] == ["0", "1", "2"]
    with pytest.raises(
        CollectionError, match=r"row 1 \(id None\), id: is missing; give every row its own id"
    ):
        validate([plain[0] | {"id": "a"}, plain[1]])


def test_levels_in_columns_of_their_own_are_the_descriptions() -> None:
    cells = {f"score{score}_description": f"level {score}" for score in (2, 0, 1)} | {
        "score3_description": None
    }
    (read,) = rows_of([{"id": "a", "criteria": "c", **cells}])
    assert (read["descriptions"], read["lowest"]) == (["level 0", "level 1", "level 2"], 0)
    assert not any(name.startswith("score") for name in read)
    with pytest.raises(
        CollectionError,
        match=r"descriptions: the levels are for scores \[1, 3\]; leave no score out",
    ):
        rows_of([{"id": "a", "score1_description": "x", "score3_description": "y"}])[0]
    own = {"id": "a", "descriptions": ["x", "y"], "score1_description": "z"}
    assert rows_of([own])[0] == own, "a rubric that is there stays what it is"


def test_ratings_in_columns_of_their_own_are_named() -> None:
    rows = [{"id": "a", "rater_1": 3, "rater_2": 4}]
    with pytest.raises(
        CollectionError, match="`rater_1`, `rater_2` look like it: put them in one list"
    ):
        truth(rows)


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (("3;4;2", "[3, 4, 2]", "3 4 2", "3|4|2", "3,4,2", "(3, 4, 2)", "[3. 4. 2.]"), [3, 4, 2]),
        ((10, "10", "[10]", np.int64(10)), [10]),
        ((None, "", "[]"), []),
        (("3,5;4",), [3.5, 4]),
    ],
)
def test_ratings_are_as_many_as_were_given(cells: Any, expected: list[float]) -> None:
    for cell in cells:
        assert ratings(cell) == expected == rows_of([row(human_scores=cell)])[0]["human_scores"]
    assert list(map(math.isnan, ratings("3;;nan;4"))) == [False, True, True, False]


DEEP: Any = []
for _ in range(100_000):
    DEEP = [DEEP]
scores = st.lists(
    st.integers(0, 100) | st.floats(0, 100).map(lambda value: round(value, 3)),
    min_size=1,
    max_size=8,
)


@given(
    scores, st.sampled_from([";", "|", ",", " ", ", ", " ; "]), st.sampled_from(["", "[]", "()"])
)
def test_ratings_written_in_any_way_are_read_back(
    values: list[float], separator: str, brackets: str
) -> None:
    text = brackets[:1] + separator.join(map(str, values)) + brackets[1:]
    assert ratings(text) == ratings(values) == values


@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats()
        | st.text(max_size=8)
        | st.binary(max_size=8),
        lambda inner: (
            st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=2)
        ),
        max_leaves=6,
    ),
    st.sampled_from(IMAGE_COLUMNS),
)
def test_whatever_stands_in_a_picture_column_is_a_list_or_a_fault(cell: Any, column: str) -> None:
    made, faults = canonical_row(row(**{column: cell}))
    assert faults or made["images"] is None or isinstance(made["images"], list)


@pytest.mark.parametrize(
    ("field", "cell", "what"),
    [
        ("response", "ok \ud83d", "holds half a character"),
        ("note", {"a": ["\ud83d"]}, "holds half a character"),
        ("images", ["\ud83d.png"], "holds half a character"),
        ("gold", 10**5000, "cannot be written .Exceeds the limit .4300 digits"),
        ("gold", "1" * 5000, "is not a number"),
        ("id", 10**5000, "cannot be written .Exceeds the limit .4300 digits"),
        ("note", DEEP, "cannot be written .maximum recursion"),
        ("human_scores", "3;four", "'four' is not a number"),
    ],
    ids=range(8),
)
def test_a_hostile_cell_is_named_with_its_row_and_field(field: str, cell: Any, what: str) -> None:
    rows = [row("good"), row("bad") | {field: cell}]
    for read in (lambda: rows_of(rows)[1], lambda: validate(rows), lambda: canonical(rows)):
        with pytest.raises(CollectionError, match=what) as error:
            read()
        assert (error.value.problems[0].index, error.value.problems[0].field) == (1, field)


def test_errors_show_the_first_three_of_a_kind_and_the_count() -> None:
    with pytest.raises(CollectionError) as error:
        validate([row(str(n), response="" if n else "x", gold=9) for n in range(50)])
    message = str(error.value)
    assert len(error.value.problems) == 99 and message.count("response: is missing") == 3
    assert message.count("is off the rubric") == 3 and message.endswith(
        "and 93 more, all in the error's `problems`"
    )
