"""Tables as people have them: other names, a column a rater, a sheet's edges, annotation tools' exports; what
cannot be read is an error of loading that names row, field and the call that mends it."""

import json
import math

import datasets
import numpy as np
import pandas as pd
from pytest import mark, raises, warns

from samples import LEVELS, ROWS, judge_of, lines, picture, plain, row
from vjudge import truth
from vjudge.data import CollectionError, canonical, load_collection, rows_of, validate

THEIRS = {"question": "What is it?", "output": "A cat."}
OURS = {"question": "instruction", "output": "response"}
GAP = [4.0, math.nan, 2.0]


def same(found, expected):
    return np.array_equal(np.array(found, float), np.array(expected, float), equal_nan=True)


def write(folder, text, name="a.csv", encoding="utf-8"):
    (folder / name).write_bytes(text.encode(encoding))
    return folder / name


# -- other names


@mark.parametrize("form", ["path", "frame", "list", "dataset", "parquet"])
def test_other_columns_are_named_in_the_call_whatever_the_rows_stand_in(form, tmp_path):
    table = [THEIRS | {"ann_1": 4, "ann_2": 3.5, "note": "x"}, THEIRS | {"ann_2": 5.0, "note": "y"}]
    frame = pd.DataFrame(table)
    frame.to_csv(tmp_path / "a.csv", index=False)
    frame.to_parquet(tmp_path / "a.parquet")
    forms = {
        "path": tmp_path / "a.csv",
        "frame": frame,
        "list": table,
        "dataset": datasets.Dataset.from_list(table),
        "parquet": str(tmp_path / "a.parquet"),
    }
    items = load_collection(forms[form], columns=OURS, people=["ann_2", "ann_1"])
    assert items["instruction"][:] == ["What is it?"] * 2 and items["response"][1] == "A cat."
    assert same(items["human_scores"][0], [3.5, 4]) and same(
        items["human_scores"][1], [5, math.nan]
    )
    assert items["note"][:] == ["x", "y"]  # a column of their own stays
    assert not {"ann_1", "ann_2", "question"} & set(items.column_names)
    assert truth(items).tolist() == [3.75, 5]


@mark.parametrize(
    "table, arguments, message",
    [
        (
            [THEIRS],
            {},
            r"row 0 \(id '0'\), instruction: is missing or blank; did you mean `question`\?"
            r" load_collection\(..., columns={'question': 'instruction', 'output': 'response'}\)",
        ),
        (
            [{"prompt": "?", "model_answer": "!"}],
            {},
            "'prompt': 'instruction', 'model_answer': 'resp",
        ),
        ([{"question": "?", "answer": "gold", "prediction": "!"}], {}, "'prediction': 'response'"),
        ([{"question": "?", "caption": "!"}], {}, "'caption': 'response'"),
        (
            [{"question": "?", "answer_a": "x", "answer_b": "y"}],
            {},
            "'answer_a': 'response_a', 'answer_b': 'response_b'",
        ),
        ([{"query": "?", "output1": "x", "output2": "y"}], {}, "'output2': 'response_b'"),
        ([{"a": "?", "b": "!"}], {}, "name it: .*{'YOURS': 'instruction'}.; the columns are a, b"),
        (
            [row(), row("b", response=" ")],
            {},
            r"row 1 \(id 'b'\), response: is missing.*fill it in",
        ),
        ([row() | {"response_a": "x"}], {}, "response_b: is missing"),
        (
            [THEIRS],
            {"columns": {"qestion": "instruction"}},
            "no column 'qestion': did you mean 'qu",
        ),
        (
            [THEIRS],
            {"columns": {"instruction": "question"}},
            "no column 'instruction': .*yours come first; yours are question, out",
        ),
        ([THEIRS], {"people": ["ann_1"]}, "there is no column 'ann_1'"),
        ([row(question="?")], {"columns": {"question": "instruction"}}, "'instruction': keep one"),
        (
            [row(a=4, b="x")],
            {"people": ["a", "b"]},
            "row 0 .id 'a'., human_scores: 'x' is not a num",
        ),
        ([row(), row()], {}, "row 1 .id 'a'., id: stands twice; give every row an id of its own"),
        ([row(preference="model_a")], {}, "preference: 'model_a' is not one of a, b and tie"),
        ([THEIRS], {"columns": {"question": "instructions"}}, "did you mean 'instruction'"),
        ([THEIRS], {"columns": ["question"]}, "columns is a mapping, {yours: ours}"),
        ([THEIRS], {"people": "question"}, "people a list of columns"),
        (
            [{"question_id": 81, "user_prompt": "?", "turns": ["a"]}],
            {},
            r"response: is missing.*'user_prompt': 'instruction', 'YOURS': 'response'}\); the columns",
        ),
        ([row(image="gone.png")], {}, "images: '/.*gone.png' is not there; put the file there"),
        ([row(image="https://x.org/a.png")], {}, "images: 'https://x.org/a.png' is a URL"),
    ],
)
def test_a_table_that_no_judge_can_read_is_an_error_of_loading(table, arguments, message, tmp_path):
    path = lines(tmp_path / "a.jsonl", *table)
    for source in (table, pd.DataFrame(table), path):
        with raises(CollectionError, match=message):
            load_collection(source, **arguments)
    if not arguments and "instruction" not in table[0]:
        with raises(CollectionError, match=message):
            validate(table, needs=())  # where rows are given to `grade` itself


def test_questions_wait_for_responses_only_where_the_call_says_so(tmp_path):
    path = lines(tmp_path / "a.jsonl", {"instruction": "What?"}, {"instruction": "Who?"})
    with raises(
        CollectionError, match="2 of 2 rows cannot be used(.|\n)*row 1 .*response: is miss"
    ):
        load_collection(path)
    assert load_collection(path, questions=True)["instruction"][:] == ["What?", "Who?"]
    with raises(CollectionError, match="instruction: is missing"):
        load_collection([{"id": 1}], questions=True)
    assert load_collection([{"prompt": "Say.", "target": "[RESULT] 4"}])["target"][:] == [
        "[RESULT] 4"
    ]


def test_names_of_ours_in_another_spelling_are_ours():
    table = [
        {"ID": "a", "Instruction": "?", "Response A": "x", "response-b": "y", "Preference": "B"}
    ]
    (pair,) = plain(load_collection(table))
    assert (pair["id"], pair["response_b"], pair["preference"]) == ("a", "y", "b")


# -- people's scores


@mark.parametrize(
    "cell", ["4,,2", "4;;2", "4| |2", "[4, null, 2]", "[4, None, 2]", "[4. nan 2.]", "4;NA;2"]
)
def test_a_rater_keeps_the_position_in_every_form(cell, tmp_path):
    forms = [[row(human_scores=cell)], pd.DataFrame([row(human_scores=cell)])]
    forms += [[row(human_scores=[4, None, 2])], pd.DataFrame([row(human_scores=[4, np.nan, 2])])]
    forms.append(lines(tmp_path / "a.jsonl", row(human_scores=[4, None, 2])))
    for name, frame in (("a", forms[1]), ("b", forms[3])):
        frame.assign(descriptions=json.dumps(LEVELS)).to_csv(tmp_path / f"{name}.csv", index=False)
        frame.to_parquet(tmp_path / f"{name}.parquet")
        forms += [tmp_path / f"{name}.csv", tmp_path / f"{name}.parquet"]
    for form in forms:
        assert same(load_collection(form)["human_scores"][0], GAP)
        assert truth(form).tolist() == [3]


@mark.parametrize("names", ["rater1 rater2 rater3", "ann_1 ann_2 ann_3", "human_1 human_2 human_3",
                            "annotator_a annotator_b annotator_c", "Rater 1,Rater 2,Rater 10",
                            "human_score_1 human_score_2 human_score_3", "expert-1 expert-2 expert-3"])  # fmt: skip
def test_columns_named_like_raters_are_read_and_said(names, tmp_path):
    names = names.split("," if "," in names else " ")
    table = [row() | dict(zip(reversed(names), (2, None, 4), strict=True))]
    frame = pd.DataFrame(table).assign(descriptions=json.dumps(LEVELS))
    frame.to_csv(tmp_path / "a.csv", index=False)
    for source in (table, frame, tmp_path / "a.csv", datasets.Dataset.from_list(table)):
        with warns(
            UserWarning, match=f"people's scores are read from {', '.join(names)}; peo"
        ) as said:
            items = load_collection(source)
        assert len(said) == 1 and same(items["human_scores"][0], GAP)
    with warns(UserWarning, match="people's scores"):
        assert same(rows_of(frame)[0]["human_scores"], GAP)


@mark.parametrize(
    "cells, reason",
    [
        ({"rater1": 4, "rater2": "good"}, "are numbers on the scale"),
        ({"annotator_1": 17, "annotator_2": 3}, "are numbers on the scale"),
        ({"rater_1": 4, "expert_1": 3}, "not named alike"),
        ({"human_a": True, "human_b": False}, "are numbers on the scale"),
    ],
)
def test_what_only_looks_like_raters_stays_and_is_said(cells, reason):
    with warns(UserWarning, match=f"not read as people's scores: .*{reason}.*; people="):
        (item,) = plain(load_collection([row(**cells)]))
    assert not item["human_scores"] and set(cells) <= set(item)
    if reason.startswith("not"):
        assert same(load_collection([row(**cells)], people=list(cells))["human_scores"][0], [4, 3])


def test_people_can_be_left_out(recwarn):
    (item,) = plain(load_collection([row(rater1=4, rater2=3)], people=[]))
    assert not item["human_scores"] and item["rater1"] == 4 and not recwarn.list


def test_scores_that_are_there_are_not_taken_from_other_columns(recwarn):
    assert canonical([row(human_scores=[5], rater1=1)])["human_scores"][0] == [5]
    pair = {"instruction": "?", "response_a": "x", "response_b": "y", "rater1": 1, "persona": 2}
    assert plain(load_collection([pair]))[0]["rater1"] == 1 and not recwarn.list


@mark.parametrize(
    "separator, cell, expected",
    [
        (";", "1,5", [1.5]),
        (";", '"1,5;2,5"', [1.5, 2.5]),
        (";", "1,5|2", [1.5, 2]),
        (";", "[1, 2]", [1, 2]),
        (",", '"1,5"', [1, 5]),
        (",", "1.5", [1.5]),
        ("\t", "1.5 2", [1.5, 2]),
        ("\t", "1,5", "'1,5' is two raters or a decimal comma: write '1;5' or '1.5'"),
        (";", "1,5,2", "commas are decimal in this file; separate raters by ;"),
    ],
)
def test_the_files_own_separator_decides_what_a_comma_is(separator, cell, expected, tmp_path):
    header = separator.join(["id", "instruction", "response", "human_scores"])
    text = f"{header}\r\n" + separator.join(
        ["a", "?", "1{}5".format("." if separator == "," else ","), cell]
    )
    for content in (text, f"sep={separator}\r\n{text}\r\n"):
        path = write(tmp_path, content, encoding="utf-8-sig")
        if isinstance(expected, str):
            with raises(CollectionError, match=f"row 0 .id 'a'., human_scores: .*{expected}"):
                load_collection(path)
            continue
        (item,) = plain(load_collection(path))
        assert item["human_scores"] == expected and item["response"] in ("1,5", "1.5")


def test_a_german_sheet(tmp_path):
    """Semicolons, decimal commas, a byte-order mark, levels below 0, and two columns and a row too many."""
    text = (
        "id;Instruction;Response;gold;rater_1;rater_2;criteria;lowest;score_1;score_2;score_3;;\r\n"
        'a;"Was; wo?";Ein Hund;-0,5;-1;0,5;Stimmt es?;-1;falsch;halb, aber;wahr;;\r\n'
        "b;Was?;Eine Katze;;1;;Stimmt es?;-1;falsch;halb;wahr;;;;\r\n"
        ";;;;;;;;;;;;\r\n"
    )
    for encoding in ("utf-8-sig", "utf-16"):
        path = write(tmp_path, text, encoding=encoding)
        with warns(UserWarning) as said:
            items = load_collection(path)
        assert [str(warning.message)[:30] for warning in said] == [
            "2 columns without a name and w",
            "people's scores are read from ",
        ]
        assert same(items["human_scores"][0], [-1, 0.5]) and same(
            items["human_scores"][1], [1, math.nan]
        )
        assert items["gold"][0] == -0.5 and items["descriptions"][0] == [
            "falsch",
            "halb, aber",
            "wahr",
        ]
        assert items["lowest"][:] == [-1, -1] and len(items) == 2
        validate(items)
    path = write(tmp_path, text.replace("wahr;;;;", "wahr;;"))
    frame = pd.read_csv(path, sep=";", decimal=",").iloc[:2]
    with warns(UserWarning, match="2 columns without a name"):
        assert plain(load_collection(frame))[0]["descriptions"] == ["falsch", "halb, aber", "wahr"]


@mark.parametrize(
    "cells, levels",
    [
        ({"descriptions": '["no", "half", "yes"]'}, {1: "no", 2: "half", 3: "yes"}),
        (
            {"descriptions": '["no", "half", "yes"]', "lowest": "-1"},
            {-1: "no", 0: "half", 1: "yes"},
        ),
        (
            {"descriptions": '{"0": "no", "50": "half", "100": "yes"}'},
            {0: "no", 50: "half", 100: "yes"},
        ),
        ({"descriptions": "{'-3': 'no', '3': 'yes'}"}, {-3: "no", 3: "yes"}),
        ({"score_1": "no", "score_2": "half", "score_3": "yes"}, {1: "no", 2: "half", 3: "yes"}),
        ({"score_2": "yes", "score_1": "no", "lowest": "0"}, {0: "no", 1: "yes"}),
        ({"Score -3": "no", "Score 0": "half", "Score 3": "yes"}, {-3: "no", 0: "half", 3: "yes"}),
        ({"score_0": "no", "score_100": "yes"}, {0: "no", 100: "yes"}),
        ({"score_1": "no", "score_2": "yes", "score_3": None}, {1: "no", 2: "yes"}),
    ],
)
def test_levels_anchors_and_scales_below_0_in_a_csv(cells, levels, tmp_path):
    from vjudge.records import Item, row_levels

    whole = {"id": "a", "instruction": "?", "response": "!", "criteria": "Right?"} | cells
    pd.DataFrame([whole]).to_csv(tmp_path / "a.csv", index=False)
    items = load_collection(tmp_path / "a.csv")
    validate(items)
    (item,) = rows_of(items)
    assert row_levels(item) == levels
    assert Item.from_row(item).rubric.levels == list(levels.items())
    assert row_levels(rows_of([whole])[0]) == levels


@mark.parametrize(
    "cells, message",
    [
        (
            {"descriptions": "bad; good"},
            "descriptions: is no list: write JSON, .*score_1 ... score_5",
        ),
        (
            {"descriptions": {"0": "no", "9": "yes"}, "lowest": 1},
            "lowest: 1 is not the lowest anchor 0",
        ),
        ({"lowest": "low"}, "lowest: 'low' is not a number"),
        (
            {"criteria": [{"name": "Truth", "criteria": "True?", "levels": ["no", "yes"]}]},
            "criteria: criterion 'Truth': its levels would not be used",
        ),
        ({"gold": "4,5"}, r"gold: '4,5' has a decimal comma.*pandas.read_csv\(..., decimal="),
    ],
)
def test_what_would_not_be_used_as_written_is_refused(cells, message):
    with raises(CollectionError, match=message):
        validate([row(**cells)])


def test_a_named_criterion_can_stand_in_a_csv(tmp_path):
    named = [
        {"name": "Truth", "criteria": "True?", "weight": 2},
        {"name": "Style", "criteria": "Nice?"},
    ]
    whole = row(criteria=json.dumps(named), descriptions=json.dumps(LEVELS))
    pd.DataFrame([whole]).to_csv(tmp_path / "a.csv", index=False)
    (item,) = plain(load_collection(tmp_path / "a.csv"))
    assert [entry["weight"] for entry in item["named_criteria"]] == [2, 1]


@mark.parametrize("scores, expected", [([[4, None, 2], [None], []], [3, None, None]), ([[5]], [5])])
def test_the_truth_of_lists_with_gaps(scores, expected):
    table = [row(str(n), human_scores=cell) for n, cell in enumerate(scores)]
    for source in (table, pd.DataFrame(table), load_collection(table)):
        assert truth(source).replace({math.nan: None}).tolist() == expected


def test_what_nobody_scored_and_pairs_have_no_truth():
    with raises(CollectionError, match=r"no row has a score(.|\n)*columns={'rating': 'gold'}"):
        truth([row(rating=4)])
    with raises(CollectionError, match="rows are pairs: their truth is the column `preference`"):
        truth([{"instruction": "?", "response_a": "x", "response_b": "y", "preference": "a"}])


@mark.parametrize("name", ["winner", "Human preference", "chosen", "choice"])
def test_pairs_whose_preference_has_another_name_say_so(name, recwarn):
    pair = {"instruction": "?", "response_a": "x", "response_b": "y", "length_label_id": 1}
    load_collection([pair])
    load_collection([pair | {name: "a", "preference": None}])
    load_collection([pair | {name: "tie"}], columns={name: "preference"})
    assert not len(recwarn)
    with warns(UserWarning, match=f"no column `preference`: did you mean `{name}`") as said:
        assert load_collection([pair | {name: "a"}])["preference"][:] == [None]
    assert f"columns={{'{name}': 'preference'}}" in str(said[0].message)


# -- folders of pictures, sheets


def test_a_folder_of_pictures_with_metadata(tmp_path):
    for split in ("train", "test"):
        name = picture(tmp_path, f"{split}/a.png")
        lines(tmp_path / split / "metadata.jsonl", THEIRS | {"file_name": "a.png"})
    for folder in (tmp_path / "test", tmp_path):
        items = load_collection(folder, split="test" if folder == tmp_path else None, columns=OURS)
        assert items[0]["images"][0].size == (4, 4) and name.endswith("a.png")
    (tmp_path / "test/metadata.jsonl").rename(tmp_path / "test/metadata.txt")
    with raises(CollectionError, match="holds no .jsonl.*, or pass rows or a frame"):
        load_collection(tmp_path / "test")
    (tmp_path / "test/metadata.txt").rename(tmp_path / "test/metadata.jsonl")
    built = datasets.load_dataset("imagefolder", data_dir=str(tmp_path), split="test")
    for table in (built, built.rename_column("image", "photo")):
        named = {"photo": "images"} if "photo" in table.column_names else {}
        for columns in (OURS, OURS | named):
            assert load_collection(table, columns=columns)[0]["images"][0].size == (4, 4)


def test_a_spreadsheet_says_what_to_do(tmp_path):
    with raises(CollectionError, match="is a spreadsheet: save it as CSV .*pandas.read_excel"):
        load_collection(write(tmp_path, "PK", "a.xlsx"))


# -- annotation tools


def task(number, *ratings, **data):
    """A task as Label Studio exports it; each rating is (person, stars)."""
    annotations = []
    for person, stars in ratings:
        result = [
            {"from_name": "stars", "to_name": "img", "type": "rating", "value": {"rating": stars}},
            {"from_name": "why", "to_name": "img", "type": "textarea", "value": {"text": ["so"]}},
            {
                "from_name": "box",
                "type": "rectangle",
                "value": {"x": 1, "y": 2, "width": 3, "height": 4},
            },
        ]
        annotations.append(
            {"id": 1, "completed_by": person, "was_cancelled": False, "result": result}
        )
    annotations.append({"completed_by": 9, "was_cancelled": True, "result": []})
    return {"id": number, "data": THEIRS | data, "annotations": annotations, "predictions": []}


def test_label_studio_keeps_who_rated_what(tmp_path):
    tasks = [task(1, (5, 4), (7, 2)), task(2, (7, 3)), task(3)]
    path = write(tmp_path, json.dumps(tasks), "export.json")
    for source in (path, tasks):
        with warns(UserWarning, match="read from the answers to 'stars' of 2 people"):
            items = load_collection(source, columns=OURS)
        assert items["id"][:] == ["1", "2", "3"]
        for found, expected in zip(
            items["human_scores"], ([4, 2], [None, 3], [None] * 2), strict=True
        ):
            assert same(found, expected)
        assert items["why"][0] == ["so", "so"]
    with raises(CollectionError, match="id: stands twice; of Label Studio export JSON"):
        load_collection([row(annotation_id=n) for n in (1, 2)])
    with raises(CollectionError, match="row 1 is no task .*export JSON, not JSON-MIN"):
        load_collection([tasks[0], {"id": 3, "annotations": []}])


def argilla(number, **ratings):
    answers = [{"value": value, "user_id": user} for user, value in ratings.items()]
    return {
        "id": str(number), "fields": dict(THEIRS), "metadata": {"topic": "cats"}, "vectors": {},
        "suggestions": {"stars": {"value": 1, "score": None, "agent": "m"}}, "responses": {"stars": answers},
    }  # fmt: skip


def flat(number, **ratings):
    return THEIRS | {
        "id": str(number), "topic": "cats", "stars.responses": list(ratings.values()) or None,
        "stars.responses.users": list(ratings) or None,
        "stars.responses.status": ["submitted"] * len(ratings) or None, "stars.suggestion": 1,
    }  # fmt: skip


def first(number, **ratings):
    answers = [
        {"value": value, "user_id": user, "status": "submitted"} for user, value in ratings.items()
    ]
    answers.append({"value": 1, "user_id": "z", "status": "discarded"})
    return THEIRS | {"id": str(number), "topic": "cats", "stars": answers, "stars-suggestion": None}


@mark.parametrize("record", [argilla, flat, first])
def test_argillas_records_in_their_three_forms(record):
    records = [record(1, u=4, v=2), record(2, v=3)]
    for source in (records, datasets.Dataset.from_list(records)):
        with warns(UserWarning, match="read from the answers to 'stars' of 2 people"):
            items = load_collection(source, columns=OURS)
        assert same(items["human_scores"][0], [4, 2]) and same(items["human_scores"][1], [None, 3])
        assert items["topic"][:] == ["cats"] * 2 and "stars" not in items.column_names


def test_two_questions_of_numbers_are_named_and_one_is_taken_by_name():
    records = [argilla(1, u=4, v=2)]
    records[0]["responses"]["style"] = [{"value": 5, "user_id": "v"}]
    with warns(
        UserWarning, match="people scored stars, style: columns={'stars': 'human_scores'} takes"
    ):
        items = load_collection(records, columns=OURS | {"style": "human_scores"})
    assert same(items["human_scores"][0], [None, 5]) and items["stars"][0] == [4, 2]


# -- votes on pairs


def test_mt_benchs_votes_are_pairs():
    turns = [
        {"role": role, "content": text}
        for role, text in zip("uaua", ("Q1", "A1", "Q2", "A2"), strict=True)
    ]
    vote = {
        "question_id": 81,
        "model_a": "x",
        "model_b": "y",
        "judge": "expert_0",
        "winner": "model_b",
    }
    vote |= {"conversation_a": turns, "conversation_b": turns}
    votes = [vote | {"turn": 1}, vote | {"turn": 2, "winner": "tie (inconsistent)"}]
    one, two = plain(load_collection(votes))
    assert (one["instruction"], one["response_a"], one["preference"]) == ("Q1", "A1", "b")
    assert two["response_b"] == "A1\n\nUser: Q2\n\nAssistant: A2" and two["preference"] == "tie"
    assert (two["group"], two["policy_a"], two["annotator"]) == ("81", "x", "expert_0")
    with warns(UserWarning, match="winner: 'nobody' is none of model_a, model_b, tie"):
        load_collection([*votes, vote | {"turn": 1, "winner": "nobody"}])


@mark.parametrize("name, columns", [("visit_bench_multi_images", {"gpt4_prediction": "response"})])
def test_rows_of_a_published_layout_under_other_names(name, columns):
    table = [json.loads(line) for line in (ROWS / f"{name}.jsonl").read_text("utf-8").splitlines()]
    items = load_collection(table, columns=columns)
    assert items["response"][:] == [line["gpt4_prediction"] for line in table]


# -- given to a judge


def test_a_frame_and_a_file_are_graded_and_pairs_are_sent_to_compare(tmp_path):
    judge = judge_of("4", template="chat")
    table = [row(str(n), image=picture(tmp_path, f"{n}.png"), topic="cats") for n in range(2)]
    frame = pd.DataFrame(table).assign(descriptions=json.dumps(LEVELS), rater1=4, rater2=[3, None])
    frame.to_csv(tmp_path / "a.csv", index=False)
    here = frame.assign(image=[str(tmp_path / name) for name in frame["image"]])
    for source in (here, tmp_path / "a.csv", str(tmp_path / "a.csv")):
        with warns(UserWarning, match="people's scores are read from rater1, rater2"):
            run = judge.grade(source, progress=False)
        assert run["score"].tolist() == [4, 4] and truth(run).tolist() == [3.5, 4]
    pair = {"instruction": "?", "response_a": "x", "response_b": "y", "images": []}
    with raises(CollectionError, match=r"two responses each: use judge.compare\(pairs\)"):
        judge.grade([pair])
    with raises(CollectionError, match=r"one response each: use judge.grade\(items\)"):
        judge.compare(table)
    with raises(CollectionError, match="instruction: is missing(.|\n)*{'question': 'instruction'"):
        judge.grade(pd.DataFrame([THEIRS]))  # the texts first, then that no column names a picture
    with raises(CollectionError, match="preference: 'model_a' is not one of"):
        judge.compare([pair | {"preference": "model_a"}])


def test_a_warning_points_at_the_users_line(tmp_path):
    row = {"id": 1, "instruction": "q", "response": "r", "rater1": 3, "rater2": 4}
    file = tmp_path / "rated.jsonl"
    file.write_text(json.dumps(row))
    for read in (rows_of, load_collection):
        for source in ([row], file):
            with warns(UserWarning, match="people's scores") as caught:
                read(source)
            assert [warning.filename for warning in caught] == [__file__]
