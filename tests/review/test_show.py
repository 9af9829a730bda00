"""Views of items, and what votes become: all that a reader needs is there, and hostile text is only text."""

import re
import xml.etree.ElementTree as ET
from functools import cache
from pathlib import Path

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st
from pandas import read_csv
from pytest import approx, mark, raises
from reviews import HOSTILE, items, judged, rows, runs

from vjudge import data, review
from vjudge.metrics import feedback_preference
from vjudge.metrics.shares import shares
from vjudge.review import ANSWERS, TAGS, Review


def row(**changes):
    more = {"reference_answer": "A reference.", "feedback": "Some feedback."}
    return rows()[1] | more | {"human_scores": [2, 3]} | changes


BARE = dict.fromkeys("reference_answer gold feedback human_scores".split())
PARTS = "i1|Question 1?|Answer 1.|A reference.|odd|five|Some feedback.|2, 3|8 x 8|true score".split(
    "|"
)
LESS = "Reference feedback|Human scores|true score|8 x 8".split("|")


@mark.parametrize(
    "changes, there, absent",
    [
        ({}, PARTS, ["none given"]),
        (BARE | {"images": []}, ["Reference answer none given", "True score none"], LESS),
        ({"images": ["<b>gone</b>.png"]}, ["<b>gone</b>.png", "does not exist"], []),
    ],
)
def test_an_item_shows_all_its_parts_and_what_is_missing(changes, there, absent):
    page = review.show(row(**changes))._repr_html_()
    text = " ".join(ET.fromstring(page).itertext())
    assert all(part in text for part in there) and not any(part in text for part in absent)
    true = re.findall(r'<li class="vj-true" style="background-color[^>]*><b>(\d)</b>', page)
    assert true == ([] if "gold" in changes else ["2"])  # without the style sheet, too


FIELDS = "id instruction response reference_answer criteria feedback".split()


def all_views(text):
    changes = {name: f"{name} {text}" for name in FIELDS}
    item = row(**changes, descriptions=[f"{level} {text}" for level in range(5)])
    views = [review.show(item), review.show_case([item])]
    return [view._repr_html_() for view in views]


def structure(page):
    """Tags and attributes; every tag closes in its place."""
    return [(element.tag, element.keys()) for element in ET.fromstring(page).iter()]


@cache
def harmless():
    return [structure(page) for page in all_views("harmless")]


@given(st.text(max_size=60))
@example(HOSTILE)
def test_any_text_is_only_text(text):
    pages = all_views(text)
    assert [structure(page) for page in pages] == harmless()
    for page in pages:
        page.encode()
        assert page.startswith('<div class="vj tex2jax_ignore mathjax_ignore">')  # no mathematics
        assert not {"\x1b", "\u202e"} & set(page)  # no terminal is steered, no text reordered


def test_a_case_is_sorted_by_score_and_shows_the_question_once():
    golds = enumerate([5.0, None, 1.0])
    case = [row(id=f"i{n}", gold=gold, response=f"answer i{n}") for n, gold in golds]
    page = review.show_case(case)._repr_html_()
    assert re.findall(r"answer (i\d)", page) == ["i2", "i0", "i1"]
    assert page.count("Question 1?") == 1 and page.count("<img") == 1
    with raises(ValueError, match="instruction, group"):
        review.show_case([row(), row(instruction="Else?", group="h")])


def test_votes_become_a_collection_with_human_scores(opened):
    ann = opened()
    bob = opened("bob")
    with raises(ValueError, match="no item has a score"):
        ann.collection()
    for who, id, score in ((ann, "i2", 4), (ann, "i4", 5), (bob, "i2", 2)):
        who.goto(id)
        who.score(score)
    rows = ann.collection()
    assert list(rows["id"]) == ["i2", "i4"] and rows["annotators"][0] == ["ann", "bob"]
    np.testing.assert_array_equal(rows["human_scores"], [[4, 2], [5, np.nan]])
    data.validate(rows)


def test_counts_of_answers_and_tags(opened):
    ann = opened()
    for answer in ANSWERS:
        ann.better(answer)
        ann.tag([TAGS[2]], side="right")
        ann.step()
    shares = ann.preferences().table
    assert shares["estimate"].tolist() == [0.25] * 4 + [0.5] * 4
    assert shares["answer"].tolist()[:4] == [
        "first is better",
        "second is better",
        "both good",
        "both bad",
    ]
    assert shares["missing"].tolist() == [0] * 8  # a tie is an answer
    tags = ann.tags().table.set_index(["judge", "tag"])
    assert {"too critical", "too optimistic"} <= {tag for _, tag in tags.index}  # arXiv 2401.06591
    given = tags.loc[("second", TAGS[2])]
    # Wilson's interval of 4 in 4: z^2 / (n + z^2) is its distance from one.
    low = 1 - 1.959964**2 / (4 + 1.959964**2)
    assert given[["estimate", "n"]].tolist() == [1.0, 4] and given["low"] == approx(low)
    opened("bob").note("nothing wrong")
    assert ann.tags().table["estimate"].sum() == approx(0.8)
    assert "between two judges" in opened(folder="one", judges=("first",)).preferences().reason


def test_several_answers_about_one_picture_count_as_one_group(tmp_path):
    table = [row | {"group": f"picture {n // 2}"} for n, row in enumerate(rows())]
    opened = Review(table, runs(), out=tmp_path, annotator="ann")
    sides = ["left", "left", "right", "right", "left", "both good"]
    for n, side in enumerate(sides):
        opened.better(side, id=f"i{n}")
        opened.tag([TAGS[0]] if n < 4 else [], side="left", id=f"i{n}")
    groups = [0, 0, 1, 1, 2, 2]
    expected = feedback_preference(sides, groups=groups)
    found = opened.preferences().table
    assert found[["low", "high"]].to_numpy() == approx(expected[["low", "high"]].to_numpy())
    assert found.loc[0, "low"] < feedback_preference(sides).loc["left", "low"]
    tags = opened.tags().table.set_index(["judge", "tag"]).loc[("first", TAGS[0])]
    hits = np.arange(6) < 4
    alone = shares([("", hits, np.ones(6))], groups=groups, unit="reviews").iloc[0]
    assert tags[["low", "high"]].tolist() == alone[["low", "high"]].tolist()


def test_export_writes_what_can_be_read_again_and_no_formula(opened, tmp_path):
    ann = opened("=cmd", tags=("@tag", *TAGS))
    ann.score(2)
    ann.better("left")
    ann.tag(["@tag"], side="left")
    ann.note('=HYPERLINK(1) </script> \u202e, \r "quoted"\n$x$')
    files = ann.export(tmp_path / "out").table.set_index("file")["path"]
    paths = {name: Path(path) for name, path in files.items()}
    names = "votes.csv collection error_tags.csv error_tags.tex preferences.csv preferences.tex"
    assert set(paths) == {*names.split(), "review.html"}
    again = data.load_collection(str(paths["collection"]))
    assert again["human_scores"] == [[2.0]] and again[0]["images"][0].size == (8, 8)
    votes = read_csv(paths["votes.csv"], lineterminator="\n", dtype=str)
    assert list(votes["field"]) == ["score", "better", "tags", "note"]
    assert votes["value"].iloc[-1] == "'" + ann.case.votes["note"]  # a row is a row
    assert not votes.fillna("").map(lambda cell: cell.startswith(("=", "+", "@"))).any(axis=None)
    assert "toprule" in paths["error_tags.tex"].read_text()
    shares = read_csv(paths["preferences.csv"]).set_index("answer")["estimate"]
    assert shares["first is better"] == 1


def test_the_page_holds_no_more_than_its_annotator_may_see_and_no_markup(tmp_path):
    feedback = f"{HOSTILE} Score: 4"
    runs = dict.fromkeys(("first", "second"), judged("first").assign(feedback=feedback))
    ann = Review(items(), runs, out=tmp_path / "votes", annotator=HOSTILE, blind=True)
    ann.better("left")
    page = Path(ann.export(tmp_path / "export").table["path"].iloc[-1]).read_text()
    tags = {element.tag for element in ET.fromstring(page).iter()}
    assert not {"script", "a", "svg"} & tags and "default-src 'none'" in page
    assert page.count('<img src="data:') == 6 and "\x1b" not in page and "\u202e" not in page
    assert page.count("Score: 4") == 2 and page.count("Score: [hidden]") == 10
    assert page.count("Left: ") == page.count("<strong>True score<") == 1  # one item has its vote
