"""The review as a notebook tool, without a browser: every control does its one thing, and only what may be seen is."""

from __future__ import annotations

import pytest
from reviews import Reader, judged, rows
from reviews import items as six

from vjudge.review import TAGS, Review, Reviewer, matrix


@pytest.fixture
def tool(tmp_path):
    def open_tool(names=("first", "second"), *, items=None, **options):
        runs = {name: judged(name) for name in names}
        return Reviewer(
            Review(items or six(), runs, out=tmp_path / "votes", annotator="ann", **options)
        )

    return open_tool


def press(tool, name):
    tool._buttons[name].click()


def test_what_is_pressed_again_is_withdrawn_and_undo_brings_it_back(tool):
    shown, votes = tool(), {"score": 4, "better": "left", "tags": {"right": [TAGS[1]]}}
    for name in ("score 4", "left", f"right: {TAGS[1]}"):
        press(shown, name)
    assert (
        shown.review.case.votes == votes and "score 4; better feedback: left" in shown._status.value
    )
    assert (
        shown._buttons["score 4"].button_style == shown._buttons["left"].button_style == "primary"
    )
    press(shown, "score 4")
    assert "score" not in shown.review.case.votes and shown._buttons["score 4"].button_style == ""
    press(shown, "undo")
    assert shown.review.case.votes == votes


def test_a_note_is_kept_on_going_on_and_a_refused_one_stays_in_its_field(tool, monkeypatch):
    shown = tool()
    shown._note.value = "looks twice"
    press(shown, "next")
    assert shown._note.value == "" and shown.review.step(-1).votes == {"note": "looks twice"}
    shown._note.value = "kept"
    monkeypatch.setattr(
        shown.review, "note", lambda value: (_ for _ in ()).throw(OSError(28, "no space left"))
    )
    press(shown, "next")
    assert (
        shown.review.case.number == 0
        and shown._note.value == "kept"
        and "no space left" in shown._status.value
    )


def test_the_tool_is_dead_while_it_works_and_idle_buttons_are_disabled_but_the_pressed_one(
    tool, monkeypatch
):
    shown, busy = tool(), []
    monkeypatch.setattr(
        shown.review, "refresh", lambda: busy.append("vj-busy" in shown.widget._dom_classes)
    )
    assert shown._buttons["previous"].disabled and not shown._buttons["next"].disabled
    for _ in range(5):
        press(shown, "next")
    assert busy == [True] * 5 and "vj-busy" not in shown.widget._dom_classes
    assert not shown._buttons["next"].disabled, "the pressed button keeps the focus"
    press(shown, "larger")
    assert shown._buttons["next"].disabled and not shown._buttons["previous"].disabled


def test_a_page_without_a_kernel_shows_the_case(tool):
    bundle = tool(names=("first",))._repr_mimebundle_()
    assert bundle["application/vnd.jupyter.widget-view+json"]["model_id"]
    assert "Question 0?" in bundle["text/html"] and "item 1 of 6" in bundle["text/plain"]
    Reader(bundle["text/html"])


def test_only_scores_on_the_items_scale_can_be_pressed(tool):
    shown = tool(
        items=[rows()[0] | {"descriptions": ["no", "half", "yes"], "lowest": 0}, *rows()[1:]]
    )
    free = [
        name
        for name, button in shown._buttons.items()
        if name.startswith("score") and not button.disabled
    ]
    assert free == ["score 0", "score 1", "score 2"] and "score 5" in shown._buttons


def test_a_long_scale_has_a_field(tool):
    bare = [row | {"criteria": None, "descriptions": None} for row in rows()]
    shown = tool(items=bare, scale=(0, 100))
    shown._score.value = 55
    press(shown, "score")
    assert shown.review.case.votes == {"score": 55}


def cells(shown):
    """The matrix's buttons by row and column."""
    grid = shown.widget.children[2]
    width = len(shown.table.columns) + 1
    buttons = {}
    for number, row in enumerate(shown.table.index, start=1):
        for place, column in enumerate(shown.table.columns, start=1):
            buttons[row, column] = grid.children[number * width + place]
    return buttons


def counts(shown):
    return {cell: int(b.description) for cell, b in cells(shown).items() if b.description != "0"}


def test_a_cell_of_the_matrix_opens_the_review_on_its_items(opened):
    shown = matrix(opened())
    assert counts(shown) == {
        ("1", "1"): 1,
        ("2", "4"): 1,
        ("3", "3"): 1,
        ("4", "none"): 1,
        ("5", "5"): 1,
    }
    assert shown.reviewer.widget.layout.display == "none"
    assert cells(shown)["1", "2"].disabled and not cells(shown)["1", "1"].disabled
    words = "Rows: gold. Columns: first. Items: 5; without a truth yet: 1."
    assert words in shown.widget.children[1].value
    cells(shown)["2", "4"].click()
    tool = shown.reviewer
    assert tool.widget.layout.display == "" and "item 1 of 1" in tool._progress.value
    assert tool.review.case.item.id == "i1"
    assert tool._filters["score"].value == (4, 4) and tool._filters["truth"].value == (2, 2)
    cells(shown)["4", "none"].click()
    assert tool.review.case.item.id == "i3" and tool._filters["score"].value == ""
    tool.filter()
    assert "of 6," in tool._progress.value
    Reader(shown._repr_mimebundle_()["text/html"])
    with pytest.raises(ValueError, match="judge 'third' is unknown; use one of first, second"):
        matrix(opened(), judge="third")


def test_the_matrix_of_people_and_of_a_long_scale_says_how_it_bins(tmp_path):
    bare = [
        {key: row[key] for key in ("id", "images", "instruction", "response")} for row in rows()
    ]
    people = [row | {"human_scores": [10.0 * n, 10.0 * n + 5]} for n, row in enumerate(bare)]
    runs = {"mine": judged("first", [3.0, 17.0, 99.0, 100.0, 20.0, 57.5])}
    shown = matrix(Review(people, runs, out=tmp_path, annotator="ann", scale=(0, 100)))
    assert counts(shown)["0 to 9", "0 to 9"] == counts(shown)["20 to 29", "90 to 99"] == 1
    words = shown.table.attrs["words"]
    assert "Rows: mean of people. Columns: mine. Items: 6; without a truth yet: 0." in words
    cells(shown)["40 to 49", "20 to 29"].click()
    assert shown.review.case.item.id == "i4"
    nobody = Review(bare, runs, out=tmp_path / "2", annotator="ann", scale=(0, 100))
    with pytest.raises(ValueError, match="no item has a true score"):
        matrix(nobody)
