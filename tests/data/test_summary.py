"""What must hold before a run, what a collection is known by, its true scores and lengths."""

from pandas import DataFrame
from pytest import mark, raises

from samples import LEVELS, lines, picture, png, row
from vjudge import data
from vjudge.data import CollectionError, canonical, fingerprint, load_collection, truth, validate

PAIR = {"id": "a", "instruction": "What?", "response_a": "Red.", "response_b": "Blue."}
GOOD = {"bytes": png(), "path": None}
GONE = {"bytes": None, "path": "gone.png"}


@mark.parametrize(
    "changes, fields",
    [
        ({}, []),
        ({"id": "first"}, ["id"]),
        ({"images": [GONE]}, ["images[0]"]),
        ({"images": [GOOD, {"bytes": b"broken", "path": None}]}, ["images[1]"]),
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
        ({"human_scores": [4, None, "good"]}, ["human_scores"]),
        ({"human_scores": "4;7;0"}, ["human_scores"]),
    ],
)
def test_every_bad_row_is_named_with_its_fields(changes, fields):
    rows = [row("first", images=[GOOD]), row("second", images=[GOOD]) | changes, "no row"]
    with raises(CollectionError) as error:
        validate(rows)
    problems = [(problem.index, problem.field) for problem in error.value.problems]
    assert sorted(problems) == sorted([*((1, field) for field in fields), (2, "row")])


def test_a_judge_that_sees_refuses_rows_that_name_no_picture(tmp_path):
    rows = [row(image_url="x"), row("b")]
    DataFrame(rows).assign(descriptions=str(LEVELS)).to_csv(tmp_path / "a.csv")
    for items in (rows, tmp_path / "a.csv", load_collection(tmp_path / "a.csv")):
        with raises(CollectionError, match="columns are .*image_url.*empty lists says on p"):
            validate(items, sees_images=True)
        validate(items)
    validate([row(images=[]), row("b", images=[])], sees_images=True)  # said on purpose


@mark.parametrize(
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
    file = lines(tmp_path / "red/a.jsonl", base)
    other = lines(tmp_path / folder / "b.jsonl", base | change)
    assert fingerprint(load_collection(file)) != fingerprint(load_collection(other))


def test_the_truth_is_gold_else_the_mean_of_people():
    people = [row("b", human_scores="2;3;"), row("c", human_scores=[None])]
    mixed = [row("a", gold=4, human_scores=[1]), *people]
    series = truth(mixed)
    assert series.fillna(0).to_dict() == {"a": 4, "b": 2.5, "c": 0}
    assert series.attrs == {"gold": 1, "mean of people": 1, "missing": 1}
    assert truth(mixed[:1]).name == "gold" and truth(canonical(people)).name == "mean of people"
    assert truth(DataFrame(mixed, index=[7, 8, 9])).index.tolist() == [
        7,
        8,
        9,
    ]  # a run's scores and its truth stand row by row
    with raises(CollectionError, match="no row has a score in gold .*did you mean `rating`"):
        truth([row("a", rating=4)])


@mark.parametrize(
    "rows, pairs, message",
    [
        ([row()], True, r"one response each: use judge.grade\(items\)"),
        ([PAIR | {"response_a": " "}], True, "response_a: is missing or blank; fill it in .column"),
        ([row(lowest=1.5)], None, "lowest: 1.5 is not a whole number"),
        ([], None, "the collection has no rows"),
        ([PAIR], False, r"two responses each: use judge.compare\(pairs\)"),
        ([PAIR | {"preference": "c"}], None, "preference: 'c' is not one of a, b and tie"),
    ],
)
def test_a_row_of_another_kind_is_named(rows, pairs, message):
    validate([PAIR], needs=(), pairs=True)
    with raises(CollectionError, match=message):
        validate(rows, pairs=pairs)


def test_cases_are_the_responses_to_one_question_and_levels_those_of_every_rubric():
    base = {"images": [], "descriptions": ["bad", "fair", "good"], "gold": 1.0, "group": "a"}
    changes = [{"gold": 3.0}, {}, {"gold": None}, {"reference_answer": "a dog"}, {"group": "b"}]
    changes.append({"descriptions": ["bad", "fair", "best"]})
    rows = [row(str(n), **base | change) for n, change in enumerate(changes)]
    expected = {
        "n": [3, 1, 1, 1],
        "scores": [[1.0, 3.0], [1.0], [1.0], [1.0]],
        "rows": [[0, 1, 2], [3], [4], [5]],
        "reference": [False, True, False, False],
    }
    assert data.cases(rows)[list(expected)].to_dict("list") == expected
    assert data.levels([rows[0], rows[1] | {"lowest": 0}]) == [0, 1, 2, 3]
    assert data.levels([PAIR]) == [] and len(data.cases([])) == len(data.lengths([])) == 0


def test_lengths_of_rows_without_an_id_have_none_and_belong_to_no_group():
    rows = [{"id": id, "response": "Red."} for id in ("a", None, None)]
    rows[2]["group"] = "g"
    table = data.lengths(rows)
    assert table["id"].fillna("").tolist() == ["a", "", ""]
    assert table["group"].fillna("").tolist() == ["a", "", "g"]
