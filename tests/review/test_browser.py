"""The review as a researcher uses it: JupyterLab in a real headless Chromium, and the file on disk after each step."""

import json
import os
from pathlib import Path

import nbformat
import pytest

import lab

SOURCE = Path(__file__).parents[2] / "notebooks/05_review_feedback.ipynb"
BLIND = 2  # of the tools in the notebook: after the one to browse with and the one of the matrix
LIGHT = "LIMIT = 15"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A folder, and the address of the JupyterLab that serves it to both tests."""
    lab.need_browser()
    folder = tmp_path_factory.mktemp("lab")
    with lab.jupyterlab(folder) as address:
        yield folder, address


def light_copy(path):
    """Notebook 05 up to its last tool, with small parameters and no stored outputs."""
    notebook = nbformat.read(SOURCE, as_version=4)
    sources = [cell.source for cell in notebook.cells]
    del notebook.cells[sources.index("votes = blind.simulate_votes()") :]
    assert notebook.cells[2].metadata.tags == ["parameters"]
    notebook.cells.insert(3, nbformat.v4.new_code_cell(LIGHT))
    notebook.cells.append(nbformat.v4.new_code_cell("pass"))  # the last one shows no prompt: folded
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    path.parent.mkdir()
    nbformat.write(notebook, path)


def saved(page, path, text):
    """Save, and wait until the notebook's file holds a text."""
    page.keyboard.press("Control+s")  # the notebook's, also with the focus in the tool
    for _ in range(300):
        if text in path.read_text():
            return
        page.wait_for_timeout(100)
    raise AssertionError("the notebook was not saved")


def test_an_afternoon_with_notebook_05(server):
    folder, address = server
    path = folder / "notebooks/05_review_feedback.ipynb"
    light_copy(path)
    with lab.chromium() as page:
        notebook = lab.Notebook(page, address, "notebooks/05_review_feedback.ipynb")
        notebook.run_all()
        assert not notebook.errors
        tool = page.locator(".vj-reviewer").nth(BLIND)
        case = tool.locator(".vj-case")
        press = lambda name: tool.locator(f".vj-do-{name}").click()  # noqa: E731
        events = lambda: [json.loads(line) for line in file.read_text().splitlines()]  # noqa: E731
        (reviewed,) = (folder / "outputs").glob("review-*")
        file = reviewed / "votes/me.jsonl"
        assert not file.exists()  # looking leaves no file

        def wait(text, tool=tool):
            tool.get_by_text(text).first.wait_for()
            tool.and_(page.locator(":not(.vj-busy)")).wait_for()

        # Blind: the names are hidden, and a vote by button is on the disk before the page shows it.
        first = tool.locator(".vj-id").inner_text()
        assert "Left" in tool.inner_text() and "tiny" not in case.inner_text()
        assert "hidden until you choose the better feedback" in case.inner_text()
        tool.locator("button:text-is('4')").click()
        wait("Your vote: score 4")
        (vote,) = events()
        assert (vote["field"], vote["value"], vote["annotator"]) == ("score", 4, "me")
        assert vote["blind"]

        # The vote on the feedbacks reveals, and no key typed then, with the focus on the button, reaches
        # the notebook, whose shortcut for "d", "d" deletes a cell.
        cells = notebook.cells
        press("left")
        wait("Your vote: none yet")  # it has both, and the next one shows
        press("previous")
        wait("better feedback: left")
        better = events()[1]
        assert better["field"] == "better" and better["blind"]
        assert better["value"].startswith("tiny") and "tiny" in case.inner_text()
        for key in "ddxa":
            page.keyboard.press(key)
        wait("better feedback: left")
        assert notebook.cells == cells and len(events()) == 2

        # On to the next item, which is hidden again, and back.
        press("next")
        page.wait_for_function("([tool, id]) => tool.querySelector('.vj-id').innerText != id",
                               arg=[tool.element_handle(), first])  # fmt: skip
        wait("Your vote: none yet")
        assert "tiny" not in case.inner_text()
        press("previous")
        wait("better feedback: left")
        assert len(events()) == 2  # browsing writes nothing

        # A cell of the confusion matrix opens the review on its items, where a vote is not blind.
        matrix = page.locator(".vj-tool:has(> .vj-matrix)")
        cell = matrix.locator(".vj-matrix button:enabled").first
        count = cell.inner_text()
        cell.click()
        opened = matrix.locator(".vj-reviewer")
        opened.get_by_text(f"item 1 of {count}, ").wait_for()
        for key in "dd":
            page.keyboard.press(key)
        assert notebook.cells == cells  # the matrix is no place for shortcuts either
        opened.locator("button:text-is('5')").click()
        opened.get_by_text("Your vote: score 5").wait_for()
        vote = events()[2]
        assert vote["value"] == 5 and not vote["blind"]
        assert set(vote["selection"]) == {"judge", "score", "truth"}

        # The page reloads: the kernel lives, and the tool goes on where it was.
        saved(page, path, "widget-view")
        notebook.open()
        wait("of 15, 1 of 15")
        press("next")
        wait("Your vote: none yet")
        tool.locator("button:text-is('2')").click()
        wait("Your vote: score 2")
        assert [vote["value"] for vote in events()[3:]] == [2]

        # The kernel restarts: all votes are there, and the first item without one shows.
        notebook.run_all(restart=True)
        assert not notebook.errors
        wait("3 of 15 voted by me")
        wait("Your vote: none yet")
        assert len(events()) == 4  # resuming writes nothing
        # Nothing sticks out on a narrow page; the notebook stays small.
        page.set_viewport_size({"width": 760, "height": 1400})
        page.wait_for_timeout(300)
        assert tool.evaluate("tool => tool.scrollWidth <= tool.clientWidth + 1")
        saved(page, path, "widget-view")
        assert path.stat().st_size < 1_000_000


MANY = """
import pandas as pd
import vjudge as vj
from vjudge.review import Review

items = vj.load_collection("scenes", split="test", limit={n})
run = pd.DataFrame({{"id": items["id"], "score": items["gold"], "feedback": items["feedback"]}})
review = Review(items, {{"a": run, "b": run}}, out="votes", annotator="me", blind=True)
review.widget(advance=True, image_size=120)
"""
SLOW = """
const send = WebSocket.prototype.send;
WebSocket.prototype.send = function (data) { setTimeout(() => send.call(this, data), 400); };
"""  # of equal length for each message, so that their order stays


def votes_of(path):
    lines = path.read_text().splitlines() if path.exists() else []
    return [json.loads(line) for line in lines]


def test_a_review_by_keyboard_on_a_slow_link(server):
    folder, address = server
    n = int(os.environ.get("VJUDGE_SITTING", 8))
    lab.write_notebook(folder / "many.ipynb", MANY.format(n=n), "pass")
    with lab.chromium() as page:
        notebook = lab.Notebook(page, address, "many.ipynb")
        notebook.run_all()
        assert not notebook.errors
        tool = page.locator(".vj-reviewer")
        shows = lambda: tool.locator(".vj-id").inner_text().removeprefix("Item ")  # noqa: E731
        file = folder / "votes/me.jsonl"
        assert tool.locator(".vj-do-left").get_attribute("aria-pressed") == "false"
        alt = tool.locator(".vj-case img").first.get_attribute("alt")
        assert alt.startswith(f"Picture 1 of item {shows()}, ")
        page.evaluate(SLOW)

        # 1) two keys an item: its score and its answer, and the next one shows
        tool.focus()
        cells, ids = notebook.cells, []
        for number in range(n - 3):
            ids.append(shows())
            page.keyboard.press("4")
            page.keyboard.press("lrgb"[number % 4])
            page.wait_for_function(
                "id => document.querySelector('.vj-reviewer .vj-id').innerText != `Item ${id}`",
                arg=ids[-1],
            )
        votes = votes_of(file)
        assert len(set(ids)) == n - 3 and notebook.cells == cells
        assert [vote["id"] for vote in votes] == [id for id in ids for _ in range(2)]
        assert all(vote["value"] == 4 and vote["blind"] for vote in votes[::2])

        # 2) a note goes where it was typed, also what was typed while the next item was on its way
        field = tool.locator(".vj-note-field textarea")
        for number in range(2):
            id = shows()
            field.click()
            page.keyboard.type(f"vague{number}", delay=20)
            tool.locator(".vj-do-next").click()
            page.wait_for_timeout(200)
            field.click()
            page.keyboard.type("!")
            page.wait_for_function(
                "id => document.querySelector('.vj-reviewer .vj-id').innerText != `Item ${id}`",
                arg=id,
            )
            page.wait_for_timeout(900)
            assert field.input_value() == ""
            notes = {
                vote["id"]: vote["value"] for vote in votes_of(file) if vote["field"] == "note"
            }
            assert notes[id] == f"vague{number}!" and len(notes) == number + 1

        # 3) a press that was on its way when the list moved on stays with the item that showed
        page.keyboard.press("Escape")
        id = shows()
        page.keyboard.press("ArrowLeft")
        page.keyboard.press("2")
        tool.get_by_text("vague1!").first.wait_for()
        page.wait_for_timeout(900)
        vote = votes_of(file)[-1]
        assert (vote["id"], vote["field"], vote["value"]) == (id, "score", 2)
        assert shows() != id
        pressed = tool.locator("[aria-pressed=true]")
        page.keyboard.press("5")
        tool.get_by_text("Your vote: score 5").first.wait_for()
        assert pressed.all_inner_texts() == ["5"]
