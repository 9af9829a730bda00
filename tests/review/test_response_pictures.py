"""Responses that are pictures are shown wherever their texts are."""

import pandas as pd
import pytest

import vjudge as vj
from vjudge import data
from vjudge.data import CollectionError
from vjudge.plots.boxes import qualitative
from vjudge.review import Review, show, show_case
from vjudge.review.show import case_html
from vjudge.training.checks import check_leakage


@pytest.fixture(scope="module")
def items():
    return vj.load_collection("drawings", limit=10)


def test_an_item_shows_the_picture_that_responds(items):
    assert show(items[0]).data.count("<img") == 1


def test_a_case_shows_each_response_in_its_row(items):
    rows = [items[int(index)] for index in data.cases(items)["rows"].iloc[0]]
    page = show_case(rows).data
    body = page[page.index("<tbody>") :]
    assert len(rows) > 1 and body.count("<img") == len(rows)


def test_a_review_shows_it_beside_the_feedback(items, tmp_path):
    run = pd.DataFrame({"id": items["id"], "judge": "a", "score": 3.0, "feedback": "as asked"})
    case = Review(items, {"a": run}, out=tmp_path, annotator="me").case
    assert case_html(case, 200).count("<img") == 1


def test_inspection_counts_and_shows_pictures_of_responses(items):
    found = vj.inspect(items).pictures().table
    assert found["items"].sum() == len(items)
    assert vj.inspect(items).question().plot() is not None


def test_a_box_stacks_the_pictures_of_question_and_response(items):
    row = dict(items[0], images=items[1]["response_images"])
    run = pd.DataFrame({"id": [row["id"]], "score": [3.0], "feedback": ["as asked"]})
    fig = qualitative([row], {"judge": run}, [row["id"]])
    drawn = [image for ax in fig.axes for image in ax.get_images()]
    height, width = drawn[0].get_array().shape[:2]
    assert len(drawn) == 1 and height > 1.9 * width


def test_a_picture_that_responds_in_both_sets_is_leakage(items):
    train = [dict(items[0], id="t", instruction="Another sentence.")]
    with pytest.raises(CollectionError, match="response_images"):
        check_leakage(train, items)
