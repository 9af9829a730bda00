"""The review as a notebook tool, without a browser: every control does its one thing, and only what may be seen is."""

import itertools
import json
import xml.etree.ElementTree as ET

import pytest
from reviews import judged, rows

from vjudge.review import TAGS, Review, Reviewer, matrix


@pytest.fixture
def tool(opened):
    return Reviewer(opened())


def press(tool, *names):
    for name in names:
        tool._buttons[name].click()


def primary(tool):
    return {name for name, button in tool._buttons.items() if button.button_style == "primary"}


def test_what_is_pressed_again_is_withdrawn_and_undo_brings_it_back(tool):
    buttons = ["score 4", "left", f"right: {TAGS[0]}", f"right: {TAGS[1]}"]
    votes = {"score": 4, "better": "left", "tags": {"right": list(TAGS[:2])}}
    words = f"Your vote: score 4; better feedback: left; right: {TAGS[0]}, {TAGS[1]}"
    press(tool, *buttons)
    assert tool.review.case.votes == votes and primary(tool) == set(buttons)
    assert tool._status.value == words
    for name in buttons:
        press(tool, name)
        assert name not in primary(tool)
        press(tool, "undo")
        assert tool.review.case.votes == votes


def test_a_note_is_kept_on_going_on_and_a_refused_one_stays_in_its_field(tool, monkeypatch):
    tool._note.value = "looks twice"
    press(tool, "next")
    assert tool._note.value == "" and tool.review.step(-1).votes == {"note": "looks twice"}
    tool._note.value = "kept"

    def full(value, id=None):
        raise OSError(28, "no <b>space</b> left")

    monkeypatch.setattr(tool.review, "note", full)
    press(tool, "next")
    assert tool.review.case.number == 0 and tool._note.value == "kept"
    assert "no &lt;b&gt;space&lt;/b&gt; left" in tool._status.value


def test_the_tool_is_dead_while_it_works_and_a_larger_picture_is_larger(tool, monkeypatch):
    busy = []
    look = lambda: busy.append("vj-busy" in tool.widget._dom_classes)  # noqa: E731
    monkeypatch.setattr(tool.review, "refresh", look)
    press(tool, "next", "previous")
    tool._size.value = 840
    assert 'width="840"' in tool._case.value
    assert busy == [True] * 3 and "vj-busy" not in tool.widget._dom_classes


def test_the_controls_list_and_clear_and_a_page_without_a_kernel_shows_the_case(tool):
    labels = dict(tool._filters["disagreement"].options), dict(tool._filters["score"].options)
    assert labels[0]["large disagreement"] == "large" and labels[1]["no verdict"] == "none"
    tool._filters["criterion"].value = "odd"
    tool._filters["order"].value = "worst"
    assert tool.review.listed == ["i1", "i3", "i5"]
    bundle = tool._repr_mimebundle_()
    assert bundle["application/vnd.jupyter.widget-view+json"]["model_id"]
    assert "Question 1?" in bundle["text/html"] and "item 1 of 3, 0 of 6" in bundle["text/plain"]
    ET.fromstring(bundle["text/html"])
    tool._filters["truth"].value = "1"
    assert tool._status.value == "Clear a filter to go on."
    press(tool, "score 4")
    assert "no item passes the filters" in tool._status.value
    tool.filter()
    assert len(tool.review.listed) == 6 and tool._filters["criterion"].value == ""


def test_a_long_scale_has_a_field_and_the_levels_of_the_figure(tmp_path):
    bare = [row | {"criteria": None, "descriptions": None} for row in rows()]
    runs = {"mine": judged("first", [3.0, 17.0, 99.0, 100.0, 55.0, 20.0])}
    shown = Reviewer(Review(bare, runs, out=tmp_path, annotator="ann", scale=(0, 100)))
    for score in (101, 55):
        shown._score.value = score
        press(shown, "score")
        assert ("101 is not a whole number from 0 to 100" in shown._status.value) == (score == 101)
    assert shown.review.case.votes == {"score": 55}
    table = shown.review.confusion("mine")
    assert table.loc["0", "100"] == 2 and table.loc["10", "60"] == 1  # 5 and 55 count up


@pytest.mark.parametrize(
    "scale, keys",
    [
        ((1, 5), "12345"),
        ((0, 10), "0123456789"),
        ((1, 11), "123456789"),  # 10 and 11 have two digits, and no key
        ((-2, 2), "012"),  # no key types a sign
    ],
)
def test_a_score_of_one_digit_has_that_key_and_any_other_none(tmp_path, scale, keys):
    bare = [row | {"criteria": None, "descriptions": None} for row in rows()]
    runs = {"mine": judged("first", [float(scale[0])] * 6)}
    shown = Reviewer(Review(bare, runs, out=tmp_path, annotator="ann", scale=scale))
    key_of = {}  # score -> the classes that stand for a key
    for name, button in shown._buttons.items():
        if name.startswith("score "):
            key_of[name[6:]] = [text for text in button._dom_classes if "vj-key-" in text]
    assert len(key_of) == scale[1] - scale[0] + 1
    assert {score: found for score, found in key_of.items() if found} == {
        key: [f"vj-key-{key}"] for key in keys
    }


def cells(shown):
    """The matrix's buttons by row and column."""
    width = len(shown.table.columns) + 1
    grid = shown.widget.children[2].children[width:]
    names = itertools.product(shown.table.index, ["", *shown.table.columns])
    return dict(zip(names, grid, strict=True))


def test_a_cell_of_the_matrix_opens_the_review_on_its_items(opened):
    shown = matrix(opened(), judge="first")
    tool = shown.reviewer
    assert [*shown.table.index, *shown.table.columns] == [
        *"1234512345",
        "none",
    ]  # as `plots.confusion`
    assert tool.widget.layout.display == "none"
    assert "Rows: gold. Columns: first. Items: 5; without a truth yet: 1. Scores" in shown.text
    places = {("1", "1"): 0, ("2", "4"): 1, ("3", "3"): 2, ("4", "none"): 3, ("5", "5"): 4}
    buttons = cells(shown)
    assert {cell for cell in buttons if buttons[cell].description == "1"} == set(places)
    for cell, number in places.items():
        buttons[cell].click()
        assert tool.widget.layout.display == "" and "item 1 of 1" in tool._progress.value
        assert tool.review.case.item.id == f"i{number}"
    ET.fromstring(shown._repr_mimebundle_()["text/html"])
    with pytest.raises(ValueError, match="judge 'third' is unknown; use one of first, second"):
        matrix(opened(), judge="third")


def test_a_vote_lands_on_the_item_that_shows(opened):
    review = opened()
    tool = Reviewer(review)
    review.goto("i4")  # elsewhere, on the same review
    press(tool, "score 1")
    assert review.votes()[["id", "value"]].to_numpy().tolist() == [["i0", 1]]
    beside = matrix(review, judge="first")
    cells(beside)["3", "3"].click()  # lists i2 in a tool of its own
    press(tool, "next", "score 2")
    press(beside.reviewer, "score 5")
    votes = review.votes("score").set_index("id")["value"]
    assert votes.to_dict() == {"i0": 1, "i1": 2, "i2": 5}
    assert tool.review.case.item.id == "i1" and review.case.item.id == "i4"


def test_a_note_is_written_only_where_it_was_edited(opened):
    one, other = Reviewer(opened()), Reviewer(opened())  # two widgets on one folder
    other._note.value = "typed here"
    press(other, "note")
    press(one, "score 3")  # its field is still empty, and was not edited
    assert one.review.votes("note")["value"].tolist() == ["typed here"]
    assert one._note.value == "typed here"  # shows after an action
    one._note.value = ""
    press(one, "score 4")
    assert one.review.votes("note").empty


def send(tool, *events, session="page"):
    tool._channel.value = json.dumps({"session": session, "queue": events})


def event(number, action, item, **more):
    return {"number": number, "action": action, "item": str(item), "pressed": False, **more}


def test_an_event_of_the_page_carries_its_item_and_note_and_acts_once(opened):
    tool = Reviewer(opened())
    first = event(1, "score-4", 0, note="looks twice", edited=11)
    late = event(3, "score-2", 0)  # pressed while item 0 still showed
    send(tool, first)
    send(tool, first, event(2, "next", 0), late)  # a slow link sends again what is not answered
    votes = [(vote["id"], vote["field"], vote["value"]) for vote in tool.review._log.lines]
    assert votes == [("i0", "note", "looks twice"), ("i0", "score", 4), ("i0", "score", 2)]
    assert tool.review.case.item.id == "i1" and 'data-done="3"' in tool._case.value
    send(tool, event(1, "next", 1), session="another tab")
    send(tool, event(4, "score-2", 0, pressed=True))  # it showed as pressed: withdrawn
    assert tool.review.votes("score").empty and tool.review.case.item.id == "i2"


@pytest.mark.parametrize(
    "message", ["", "[]", "{", '{"session": 1}', '{"session": 1, "queue": [{}]}']
)
def test_a_message_that_is_none_changes_nothing(opened, message):
    tool = Reviewer(opened())
    tool._channel.value = message
    assert not tool.review._log.lines


def test_a_refused_press_says_why(opened):
    tool = Reviewer(opened())
    send(tool, event(1, "score-4", 99, note="x"))
    assert not tool.review._log.lines and "is not under review" in tool._status.value
    tool.filter(truth="1", criterion="odd")
    send(tool, event(2, "score-4", ""))
    assert "no item passes the filters" in tool._status.value and "data-refused" in tool._case.value
    tool.filter()
    send(tool, event(3, "score-4", ""))  # pressed while nothing was listed
    assert not tool.review._log.lines


def test_it_advances_when_an_item_has_its_score_and_its_answer(opened):
    tool = Reviewer(opened(), advance=True)
    press(tool, "score 4")
    assert tool.review.case.item.id == "i0"
    press(tool, "both good")
    assert tool.review.case.item.id == "i1"
    press(tool, "previous", "score 2")  # a correction stays
    assert tool.review.case.votes == {"score": 2, "better": "both good"}
    assert "about" not in tool._progress.value
    keys = {button.tooltip for button in tool._buttons.values() if button.tooltip[:4] == "key "}
    assert keys == {f"key {key}" for key in ["ArrowLeft", "ArrowRight", *"u12345lrgb"]}
