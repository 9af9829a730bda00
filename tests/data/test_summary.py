"""What must hold before a run, what a collection is known by, its true scores and lengths: by hand, against SciPy."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from samples import LEVELS, lines, png, row
from vjudge import data
from vjudge.data import CollectionError, canonical, fingerprint, load_collection, truth, validate
from vjudge.records import Item

PAIR = {"id": "a", "instruction": "What?", "response_a": "Red.", "response_b": "Blue."}


def test_every_bad_row_is_named_with_its_remedy(tmp_path: Path) -> None:
    good = {"bytes": png(), "path": None}
    rows = [
        row("a", images=[good]),
        row("a", images=[good]),
        row("c", images=[{"bytes": None, "path": str(tmp_path / "gone.png")}]),
        row("d", images=[good, {"bytes": b"broken", "path": None}]),
        row("e", images=[good], response="  "),
        row("f", images=[good], instruction=None),
        row("g", images=[good], descriptions=["none", "few", "none", "", "all"]),
        row("h", images=[good], criteria=None, descriptions=["only one"]),
        row("i", images=[good], gold=6),
        row("j", images=[good], gold="good"),
        row("k", images=None),
        row(None, images=[good]),
        row("m", images="gone.png"),
        row("n", images=[None], descriptions=None),
        row("o", images=[good], gold="3.5", reference_answer=None),
        row("p", images=[good], human_scores=[4, None, "good"]),
        row("r", images={5}),
        row("q", images=[good], lowest="zero"),
        row("s", images=[]),
        row("t", images=[good], human_scores="4;7;0"),
        "no row",
    ]
    with pytest.raises(CollectionError) as error:
        validate(rows)
    fields: dict[int, list[str]] = {}
    for problem in error.value.problems:
        fields.setdefault(problem.index, []).append(problem.field)
    texts = {
        1: "id",
        2: "images[0]",
        3: "images[1]",
        4: "response",
        5: "instruction",
        6: "descriptions descriptions",
    }
    texts |= {
        7: "criteria descriptions",
        8: "gold",
        9: "gold",
        10: "images",
        11: "id",
        12: "images[0]",
    }
    texts |= {13: "images[0] descriptions", 15: "human_scores", 16: "images", 17: "lowest"}
    texts |= {19: "human_scores", 20: "row"}
    assert fields == {index: text.split() for index, text in texts.items()}
    message = str(error.value)
    assert message.startswith("18 of 21 rows cannot be used:\n")
    assert (
        "row 8 (id 'i'), gold: 6 is off the rubric (1-5); correct it, or give None if unknown"
        in message
    )
    assert "row 19 (id 't'), human_scores: 0, 7 is off the rubric (1-5)" in message


def test_a_judge_that_sees_refuses_rows_that_name_no_picture(tmp_path: Path) -> None:
    pd.DataFrame([row(image_url="x"), row("b")]).assign(descriptions=str(LEVELS)).to_csv(
        tmp_path / "a.csv"
    )
    for items in (
        [row(image_url="x"), row("b")],
        tmp_path / "a.csv",
        load_collection(tmp_path / "a.csv"),
    ):
        with pytest.raises(
            CollectionError, match="`image_url` looks like it: rename it to `images`"
        ) as error:
            validate(items, sees_images=True)
        assert "the columns are" in str(
            error.value
        ) and "an `images` column of empty lists says" in str(error.value)
        validate(items)
    with pytest.raises(
        CollectionError,
        match=r"columns are id, instruction, .*: add a column with paths, or rename yours to `images`",
    ):
        validate([row()], sees_images=True)
    validate([row(images=[]), row("b", images=[])], sees_images=True)  # said on purpose


@pytest.mark.parametrize(
    "names", ["response answer", "response Response", "response output", "instruction prompt"]
)
def test_a_column_that_is_nearly_right_is_suggested(tmp_path: Path, names: str) -> None:
    field, name = names.split()
    mine = row(images=[])
    mine[name] = mine.pop(field)
    path = lines(tmp_path / "a.jsonl", mine)
    for check in (lambda: validate([mine]), lambda: load_collection(path)):
        with pytest.raises(
            CollectionError, match=f"there is no column {field}; `{name}` looks like it: rename it"
        ):
            check()


def test_the_fingerprint_sees_every_column_and_the_pixels(tmp_path: Path) -> None:
    (tmp_path / "red.png").write_bytes(png())
    base = row(images=["red.png"])
    changes = (
        {},
        {"response": "Blue."},
        {"gold": 1},
        {"descriptions": LEVELS[::-1]},
        {"lowest": 0},
        {"images": []},
    )
    prints = [fingerprint(canonical([base | change], folder=tmp_path)) for change in changes]
    prints.append(fingerprint(canonical([base | {"reference_answer": "x"}], folder=tmp_path)))
    prints.append(fingerprint(canonical([base, base | {"id": "b"}], folder=tmp_path)))
    (tmp_path / "red.png").write_bytes(png("blue"))
    prints.append(fingerprint(canonical([base], folder=tmp_path)))
    assert len(set(prints)) == len(prints)


def test_the_truth_is_gold_else_the_mean_of_people() -> None:
    mixed = [
        row("a", gold=4, human_scores=[1]),
        row("b", human_scores="2;3;"),
        row("c", human_scores=[None]),
    ]
    series = truth(mixed)
    assert series["a"] == 4 and series["b"] == 2.5 and math.isnan(series["c"])
    assert series.name == "gold or mean of people" and series.attrs == {
        "gold": 1,
        "mean of people": 1,
        "missing": 1,
    }
    assert truth(mixed[:1]).name == "gold" and truth(canonical(mixed[1:])).name == "mean of people"
    run = pd.DataFrame(mixed, index=[7, 8, 9])
    assert truth(run).index.tolist() == [7, 8, 9], "a run's scores and its truth stand row by row"
    with pytest.raises(
        CollectionError, match="no row has a score in gold or human_scores .`rating` looks like it"
    ):
        truth([row("a", rating=4)])


@pytest.mark.parametrize(
    ("rows", "pairs", "message"),
    [
        ([row()], True, "there is no column response_a; these rows are for `grade`"),
        ([row(responses=["a", "b"])], True, "these rows are for `rank`"),
        ([row(lowest=1.5)], None, "lowest: 1.5 is not a whole number"),
        ([], None, "the collection has no rows"),
        ([PAIR], False, "there is no column response; these rows are for `compare`"),
    ],
    ids=range(5),
)
def test_a_row_of_another_kind_is_named(
    rows: list[dict[str, Any]], pairs: bool | None, message: str
) -> None:
    validate([PAIR], needs=(), pairs=True)
    with pytest.raises(CollectionError, match=re.escape(message)):
        validate(rows, pairs=pairs)


def graded(number: int, **changes: Any) -> dict[str, Any]:
    rubric = {"criteria": "Right?", "descriptions": ["bad", "fair", "good"]}
    return row(
        f"i{number}", **{"images": [], **rubric, "gold": 1.0, "group": f"g{number}", **changes}
    )


def test_cases_are_the_responses_to_one_question() -> None:
    changes = [
        {"gold": 3.0},
        {"gold": 1.0},
        {"gold": None},
        {"reference_answer": "a dog"},
        {"group": "b"},
    ]
    changes.append({"descriptions": ["bad", "fair", "best"]})
    cases = data.cases([graded(n, **{"group": "a", **change}) for n, change in enumerate(changes)])
    assert cases["rows"].tolist() == [[0, 1, 2], [3], [4], [5]] and cases["n"].tolist() == [
        3,
        1,
        1,
        1,
    ]
    assert cases["scores"].tolist() == [[1.0, 3.0], [1.0], [1.0], [1.0]]
    assert cases["reference"].tolist() == [False, True, False, False]


def test_levels_are_those_of_every_rubric() -> None:
    assert data.levels([graded(0), graded(1, lowest=0), graded(2, descriptions=None)]) == [
        0,
        1,
        2,
        3,
    ]


@pytest.mark.parametrize("function", [data.cases, data.lengths, data.levels])
def test_a_dataset_rows_and_items_give_the_same_and_nothing_gives_nothing(function: Any) -> None:
    rows = [
        graded(i, images=[{"bytes": png((i, 0, 0)), "path": None}], reference_answer="a cat")
        for i in range(3)
    ]
    for form in (canonical(rows), list(map(Item.from_row, rows))):
        pd.testing.assert_frame_equal(pd.DataFrame(function(form)), pd.DataFrame(function(rows)))
    bare = [
        {"id": str(n), "instruction": "What?", "response": "A cat.", "gold": 80 + n}
        for n in range(2)
    ]
    assert len(function([])) == 0 and len(function(bare)) == (0 if function is data.levels else 2)
