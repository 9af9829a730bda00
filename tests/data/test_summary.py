"""What must hold before a run, what a collection is known by, its true scores and lengths."""

import math

import pandas as pd
import pytest

from samples import LEVELS, lines, picture, png, row
from vjudge import data
from vjudge.data import CollectionError, canonical, fingerprint, load_collection, truth, validate

PAIR = {"id": "a", "instruction": "What?", "response_a": "Red.", "response_b": "Blue."}
GOOD = {"bytes": png(), "path": None}
GONE = {"bytes": None, "path": "gone.png"}


@pytest.mark.parametrize(
    "changes, fields",
    [
        ({}, []),
        ({"id": "first"}, ["id"]),
        ({"id": None}, ["id"]),
        ({"images": [GONE]}, ["images[0]"]),
        ({"images": [GOOD, {"bytes": b"broken", "path": None}]}, ["images[1]"]),
        ({"images": "gone.png"}, ["images[0]"]),
        ({"images": None}, ["images"]),
        ({"images": {5}}, ["images"]),
        ({"images": []}, []),
        ({"images": [None], "descriptions": None}, ["images[0]", "descriptions"]),
        ({"response": "  "}, ["response"]),
        ({"instruction": None}, ["instruction"]),
        ({"descriptions": ["none", "few", "none", "", "all"]}, ["descriptions"]),
        ({"criteria": None, "descriptions": ["only one"]}, ["criteria", "descriptions"]),
        ({"lowest": "zero"}, ["lowest"]),
        ({"gold": 6}, ["gold"]),
        ({"gold": "good"}, ["gold"]),
        ({"human_scores": [4, None, "good"]}, ["human_scores"]),
        ({"human_scores": "4;7;0"}, ["human_scores"]),
    ],
)
def test_every_bad_row_is_named_with_its_fields(changes, fields):
    rows = [row("first", images=[GOOD]), row("second", images=[GOOD]) | changes, "no row"]
    with pytest.raises(CollectionError) as error:
        validate(rows)
    problems = [(problem.index, problem.field) for problem in error.value.problems]
    assert sorted(problems) == sorted([*((1, field) for field in fields), (2, "row")])


def test_a_judge_that_sees_refuses_rows_that_name_no_picture(tmp_path):
    rows = [row(image_url="x"), row("b")]
    pd.DataFrame(rows).assign(descriptions=str(LEVELS)).to_csv(tmp_path / "a.csv")
    for items in (rows, tmp_path / "a.csv", load_collection(tmp_path / "a.csv")):
        with pytest.raises(CollectionError, match="columns are .*image_url.*empty lists says on p"):
            validate(items, sees_images=True)
        validate(items)
    validate([row(images=[]), row("b", images=[])], sees_images=True)  # said on purpose


@pytest.mark.parametrize(
    "change, folder",
    [
        ({"response": "Blue."}, "red"),
        ({"gold": 1}, "red"),
        ({"descriptions": LEVELS[::-1]}, "red"),
        ({"images": []}, "red"),
        ({"reference_answer": "x"}, "red"),
        ({}, "blue"),  # the same name, other pixels
    ],
)
def test_the_fingerprint_sees_every_column_and_the_pixels(change, folder, tmp_path):
    for colour in ("red", "blue"):
        picture(tmp_path, f"{colour}/a.png", colour)
    base = row(images=["a.png"], group="g")
    files = [lines(tmp_path / "red/a.jsonl", base)]
    files.append(lines(tmp_path / folder / "b.jsonl", base | change))
    first, other = (fingerprint(load_collection(file)) for file in files)
    assert first != other


def test_the_truth_is_gold_else_the_mean_of_people():
    people = [row("b", human_scores="2;3;"), row("c", human_scores=[None])]
    mixed = [row("a", gold=4, human_scores=[1]), *people]
    series = truth(mixed)
    assert series["a"] == 4 and series["b"] == 2.5 and math.isnan(series["c"])
    assert series.name == "gold or mean of people"
    assert series.attrs == {"gold": 1, "mean of people": 1, "missing": 1}
    assert truth(mixed[:1]).name == "gold" and truth(canonical(people)).name == "mean of people"
    run = pd.DataFrame(mixed, index=[7, 8, 9])
    assert truth(run).index.tolist() == [7, 8, 9]  # a run's scores and its truth stand row by row
    with pytest.raises(CollectionError, match="no row has a score in gold .*, rating"):
        truth([row("a", rating=4)])


@pytest.mark.parametrize(
    "rows, pairs, message",
    [
        ([row()], True, "response_a: is missing or blank; fill it in .column `response_a`."),
        ([row(lowest=1.5)], None, "lowest: 1.5 is not a whole number"),
        ([], None, "the collection has no rows"),
        ([PAIR], False, "response: is missing"),
        (
            [row(gold=6)],
            None,
            r"1 of 1 rows cannot(.|\n)*row 0 .id 'a'., gold: 6 is off the rubric",
        ),
        ([PAIR | {"preference": "c"}], None, "preference: 'c' is not one of a, b and tie"),
    ],
)
def test_a_row_of_another_kind_is_named(rows, pairs, message):
    validate([PAIR], needs=(), pairs=True)
    with pytest.raises(CollectionError, match=message):
        validate(rows, pairs=pairs)


def test_cases_are_the_responses_to_one_question_and_levels_those_of_every_rubric():
    base = {"images": [], "descriptions": ["bad", "fair", "good"], "gold": 1.0, "group": "a"}
    changes = [{"gold": 3.0}, {}, {"gold": None}, {"reference_answer": "a dog"}, {"group": "b"}]
    changes.append({"descriptions": ["bad", "fair", "best"]})
    rows = [row(str(n), **{**base, **change}) for n, change in enumerate(changes)]
    expected = {
        "n": [3, 1, 1, 1],
        "scores": [[1.0, 3.0], [1.0], [1.0], [1.0]],
        "rows": [[0, 1, 2], [3], [4], [5]],
        "reference": [False, True, False, False],
    }
    assert data.cases(rows)[list(expected)].to_dict("list") == expected
    assert data.levels([rows[0], rows[1] | {"lowest": 0}]) == [0, 1, 2, 3]
    bare = {"id": "a", "instruction": "What?", "response": "A cat.", "gold": 80}
    assert data.levels([bare]) == [] and len(data.lengths([bare])) == 1
    assert len(data.cases([])) == len(data.lengths([])) == 0
