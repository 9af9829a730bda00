"""The review as a notebook tool, without a browser: every control does its one thing, and only what may be seen is."""

from __future__ import annotations

import ipywidgets
import pytest
from reviews import HOSTILE, Reader, judged, rows
from reviews import items as six

from vjudge.review import TAGS, Review, Reviewer, matrix
from vjudge.review.widget import KEYS


@pytest.fixture
def tool(tmp_path):
    def open_tool(names=("first", "second"), *, items=None, runs=None, **options):
        options = {"annotator": "ann", **options}
        items = six() if items is None else items
        runs = {name: judged(name) for name in names} if runs is None else runs
        return Reviewer(Review(items, runs, out=tmp_path / "votes", **options))

    return open_tool


def press(tool, name):
    tool._buttons[name].click()


def typed(tool, text):
    for key in text:
        tool._keys.value += key


def controls(widget):
    yield widget
    for child in getattr(widget, "children", ()):
        yield from controls(child)


def test_buttons_vote_and_what_is_pressed_again_is_withdrawn(tool):
    shown = tool()
    press(shown, "score 4")
    press(shown, "left")
    shown._tags["right", TAGS[1]].click()
    votes = {"score": 4, "better": "left", "tags": {"right": [TAGS[1]]}}
    assert shown.review.case.votes == votes
    assert shown._buttons["score 4"].button_style == shown._buttons["left"].button_style == "primary"
    assert "score 4; better feedback: left" in shown._status.value
    press(shown, "score 4")
    assert "score" not in shown.review.case.votes and shown._buttons["score 4"].button_style == ""
    press(shown, "undo")
    assert shown.review.case.votes == votes


def test_keys_do_what_the_buttons_do_and_deleting_them_does_nothing(tool):
    shown = tool()
    typed(shown, "3")
    typed(shown, "g")
    typed(shown, "n")
    assert shown.review.case.number == 1
    shown._keys.value = "3g"  # a backspace
    shown._keys.value = ""
    assert shown.review.case.number == 1 and len(shown.review.votes()) == 2
    typed(shown, "p")
    assert shown.review.case.votes == {"score": 3, "better": "both good"}
    typed(shown, "u")
    assert shown.review.case.votes == {"score": 3}
    typed(shown, "d")
    assert shown._toggles["differences"].value
    for key in "z9<":
        typed(shown, key)
        assert "does nothing here" in shown._status.value and "<<" not in shown._status.value
    assert set(KEYS.values()) <= set(shown._buttons) | set(shown._toggles)


def test_a_note_is_kept_on_going_on_and_a_refused_one_stays_in_its_field(tool, monkeypatch):
    shown = tool()
    shown._note.value = "looks twice"
    press(shown, "next")
    assert shown._note.value == "" and shown.review.step(-1).votes == {"note": "looks twice"}
    press(shown, "next")
    shown._note.value = "kept"
    monkeypatch.setattr(shown.review, "note", lambda value: (_ for _ in ()).throw(OSError(28, "no space left")))
    press(shown, "next")
    assert shown.review.case.number == 1 and shown._note.value == "kept" and "no space left" in shown._status.value


def test_errors_are_told_and_leave_the_tool_usable(tool, monkeypatch):
    shown = tool()
    shown._goto.value = "<b>nowhere</b>"
    assert "&lt;b&gt;nowhere" in shown._status.value and not shown._busy
    monkeypatch.setattr(shown.review, "score", lambda value: (_ for _ in ()).throw(OSError(28, "no space left")))
    press(shown, "score 2")
    assert "no space left" in shown._status.value and not shown._buttons["score 2"].disabled
    press(shown, "next")
    assert shown.review.case.number == 1


def test_everything_is_disabled_while_it_works(tool, monkeypatch):
    shown = tool()
    seen = []
    monkeypatch.setattr(shown.review, "refresh", lambda: seen.extend(control.disabled for control in shown._controls()))
    press(shown, "larger")
    assert len(seen) > 30 and seen.count(False) == 1, "the pressed button keeps the focus"
    assert not shown._buttons["larger"].disabled and "vj-busy" not in shown.widget._dom_classes
    interactive = (ipywidgets.Button, ipywidgets.ToggleButton, ipywidgets.Dropdown, ipywidgets.Textarea)
    inside = [control for control in controls(shown.widget) if isinstance(control, interactive)]
    assert not [control for control in inside if control not in shown._controls()]
    assert shown._buttons["previous"].disabled and not shown._buttons["next"].disabled


def test_blind_shows_neither_names_nor_scores_until_the_vote(tool):
    shown = tool(names=("first", "second"), blind=True)
    shown._toggles["true score"].value = True
    hidden = shown._case.value
    assert "True score</" not in hidden and ", score" not in hidden and "first:" not in hidden.lower()
    press(shown, "larger")
    assert shown._toggles["true score"].disabled
    press(shown, "both bad")
    assert "True score</" in shown._case.value and "Left: " in shown._case.value


def test_a_page_without_a_kernel_shows_the_case(tool):
    bundle = tool()._repr_mimebundle_()
    assert bundle["application/vnd.jupyter.widget-view+json"]["model_id"]
    assert "Question 0?" in bundle["text/html"] and "item 1 of 6" in bundle["text/plain"]
    Reader(bundle["text/html"])


def test_a_judge_alone_and_three_judges(tool, tmp_path):
    alone = tool(names=("first",))
    assert "left" not in alone._buttons
    press(alone, "score 2")
    runs = {name: judged("first").assign(feedback=name) for name in "abc"}
    three = Reviewer(Review(six(), runs, out=tmp_path / "three", annotator="ann"))
    three._tags["3", TAGS[0]].click()
    assert three.review.case.votes == {"tags": {"3": [TAGS[0]]}}
    press(three, "next")


def test_a_long_scale_has_a_field(tool):
    bare = [{key: value for key, value in row.items() if key not in ("criteria", "descriptions")} for row in rows()]
    shown = tool(items=bare, scale=(0, 100))
    shown._fields[0].value = 55
    press(shown, "score")
    assert shown.review.case.votes == {"score": 55}
    typed(shown, "5")
    assert "does nothing here" in shown._status.value, "a digit is no score of 0 to 100"


@pytest.mark.parametrize("text", [HOSTILE, "word " * 4_000, "x" * 20_000, "שלום 4. " * 9, ""])
def test_any_text_is_only_text(tool, text):
    items = [
        row | {"instruction": text or "-", "response": text, "feedback": text, "criteria": text[:99] or "-"}
        for row in rows()
    ]
    runs = {name: judged(name).assign(feedback=text) for name in ("first", "second")}
    shown = tool(items=items, runs=runs, annotator=f"ann {text[:90]}")
    plain = tool(annotator="plain")
    for viewed in (shown, plain):
        for name in ("differences", "true score"):
            viewed._toggles[name].value = True
    assert Reader(shown._case.value).tags.count("script") == 0
    assert set(Reader(shown._case.value).tags) <= {*Reader(plain._case.value).tags, "mark"}


def test_pictures_are_sent_no_larger_than_shown_and_small_ones_enlarge(tool):
    shown = tool()  # of 8 by 8 pixels
    assert 'width="8" height="8"' in shown._case.value
    size = len(shown._case.value)
    press(shown, "larger")
    assert 'width="520" height="520"' in shown._case.value and len(shown._case.value) < size + 20


def counts(shown):
    return {cell: button.description for cell, button in shown._cells.items() if button.description != "0"}


def test_a_cell_of_the_matrix_opens_the_review_on_its_items(opened):
    shown = matrix(opened())
    assert counts(shown) == {("1", "1"): "1", ("2", "4"): "1", ("3", "3"): "1", ("4", "none"): "1", ("5", "5"): "1"}
    assert shown.reviewer.widget.layout.display == "none"
    assert shown._cells["1", "2"].disabled and not shown._cells["1", "1"].disabled
    assert "Rows: gold. Columns: first. Items: 5; without a truth yet: 1." in shown._head.value
    shown._cells["2", "4"].click()
    tool = shown.reviewer
    assert tool.widget.layout.display == "" and "item 1 of 1" in tool._progress.value
    assert tool.review.case.item.id == "i1" and tool._filters["score"].value == 4 and tool._filters["truth"].value == 2
    shown._cells["4", "none"].click()
    assert tool.review.case.item.id == "i3" and tool._filters["score"].value is None
    press(tool, "all items")
    assert "of 6," in tool._progress.value
    shown._judge.value = "second"
    assert counts(shown)["1", "5"] == "1" and "Columns: second" in shown._head.value


def test_votes_redraw_the_matrix(opened):
    shown = matrix(opened(), judge="second")
    shown._by.value = "human"
    assert counts(shown) == {} and "Items: 0; without a truth yet: 6." in shown._head.value
    press(shown.reviewer, "score 2")
    assert counts(shown) == {("2", "5"): "1"}
    press(shown.reviewer, "undo")
    assert counts(shown) == {}
    press(shown.reviewer, "score 3")
    shown._cells["3", "5"].click()
    assert shown.review.case.item.id == "i0"
    assert "second" in shown._repr_mimebundle_()["text/html"] and Reader(shown._repr_mimebundle_()["text/html"])
    with pytest.raises(ValueError, match="not under review"):
        matrix(opened(), judge="third")


def test_the_matrix_of_people_and_of_a_long_scale_says_how_it_bins(tmp_path):
    bare = [{key: row[key] for key in ("id", "images", "instruction", "response")} for row in rows()]
    people = [row | {"human_scores": [10.0 * n, 10.0 * n + 5]} for n, row in enumerate(bare)]
    runs = {"mine": judged("first", [3.0, 17.0, 99.0, 100.0, 20.0, 57.5])}
    shown = matrix(Review(people, runs, out=tmp_path, annotator="ann", scale=(0, 100)))
    assert counts(shown) == {
        ("0 to 10", "0 to 10"): "1", ("11 to 21", "11 to 21"): "1", ("22 to 32", "99 to 100"): "1",
        ("33 to 43", "99 to 100"): "1", ("33 to 43", "11 to 21"): "1", ("44 to 54", "55 to 65"): "1",
    }  # fmt: skip
    assert (
        "mean of people" in shown._head.value
        and "scores in ranges; between two levels, counted with the nearest (halves up): 6" in shown._head.value
    )
    shown._cells["33 to 43", "11 to 21"].click()
    assert shown.review.case.item.id == "i4", "42.5 counts with 43"
    nobody = matrix(Review(bare, runs, out=tmp_path / "2", annotator="ann", scale=(0, 100)))
    assert [value for _, value in nobody._by.options] == ["human"]
