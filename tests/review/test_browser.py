"""The review as a researcher uses it: JupyterLab in a real headless Chromium, and the file on disk after each step."""

from __future__ import annotations

import json
from pathlib import Path

import nbformat
import pytest

import lab

SOURCE = Path(__file__).parents[2] / "notebooks/05_review_feedback.ipynb"
BLIND = 2  # of the tools in the notebook: after the one to browse with and the one of the matrix
LIGHT = "LIMIT = PHOTO_LIMIT = 15\nN_RESAMPLES = 200"


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    lab.need_browser()
    return tmp_path_factory.mktemp("lab")


@pytest.fixture(scope="module")
def address(home):
    with lab.jupyterlab(home) as address:
        yield address


def light_copy(path):
    """Notebook 05 with small parameters and no stored outputs."""
    notebook = nbformat.read(SOURCE, as_version=4)
    assert notebook.cells[2].metadata.tags == ["parameters"]
    notebook.cells.insert(3, nbformat.v4.new_code_cell(LIGHT))
    notebook.cells.append(nbformat.v4.new_code_cell("pass"))  # the last one shows no prompt: folded
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = []
            cell.execution_count = None
    path.parent.mkdir()
    nbformat.write(notebook, path)


def saved(page, path, text):
    """Save, and wait until the notebook's file holds a text."""
    page.keyboard.press("Control+s")  # the notebook's, also with the focus in the tool
    for _ in range(300):
        if text in path.read_text(encoding="utf-8"):
            return
        page.wait_for_timeout(100)
    raise AssertionError("the notebook was not saved")


def test_an_afternoon_with_notebook_05(home, address, tmp_path):
    path = home / "notebooks/05_review_feedback.ipynb"
    light_copy(path)
    with lab.chromium() as page:
        notebook = lab.Notebook(page, address, "notebooks/05_review_feedback.ipynb")
        notebook.run_all()
        assert not notebook.errors
        tool = page.locator(".vj-reviewer").nth(BLIND)
        case = tool.locator(".vj-case")
        press = lambda name: tool.locator(f".vj-do-{name}").click()  # noqa: E731
        events = lambda: [json.loads(line) for line in file.read_text().splitlines()]  # noqa: E731
        (folder,) = (home / "outputs/review").iterdir()
        file = folder / "votes/me.jsonl"
        assert not file.exists(), "looking leaves no file"

        def wait(text, tool=tool):
            tool.get_by_text(text).first.wait_for()
            tool.and_(page.locator(":not(.vj-busy)")).wait_for()

        # Blind: the names are hidden, and a vote by button is on the disk before the page shows it.
        first = tool.locator(".vj-id").inner_text()
        assert "Left" in tool.inner_text() and "tiny" not in case.inner_text()
        assert "hidden until your vote" in case.inner_text()
        tool.locator("button:text-is('4')").click()
        wait("Your vote: score 4")
        (vote,) = events()
        assert [vote[name] for name in ("field", "value", "annotator", "blind")] == [
            "score",
            4,
            "me",
            True,
        ]

        # The vote on the feedbacks reveals, and no key typed then, with the focus on the button, reaches
        # the notebook, whose shortcut for "d", "d" deletes a cell.
        cells = notebook.cells
        press("left")
        wait("better feedback: left")
        better = events()[1]
        assert better["field"] == "better" and better["blind"]
        assert better["value"].startswith("tiny") and "tiny" in case.inner_text()
        for key in ("d", "d", "b", "a"):
            page.keyboard.press(key)
        wait("better feedback: left")
        assert notebook.cells == cells and len(events()) == 2

        # On to the next item, which is hidden again; a note there is kept on going back, and undone.
        press("next")
        page.wait_for_function("([tool, id]) => tool.querySelector('.vj-id').innerText != id",
                               arg=[tool.element_handle(), first])  # fmt: skip
        wait("Your vote: none yet")
        assert "tiny" not in case.inner_text()
        tool.locator("textarea").fill("<b>looks twice</b>")
        press("previous")
        wait("better feedback: left")
        press("undo")
        wait("Your vote: none yet")
        assert [vote["value"] for vote in events()[2:]] == ["<b>looks twice</b>", None]

        # A filter lists what it names, and clears.
        tool.get_by_text("Filter and order").click()
        tool.get_by_label("My vote").select_option("given")
        wait("of 1, 1 of 15 voted by me")
        tool.get_by_text("Clear filters").click()
        wait("of 15, 1 of 15 voted by me")
        assert len(events()) == 4, "browsing writes nothing"

        # A cell of the confusion matrix opens the review on its items, where a vote is not blind.
        matrix = page.locator(".vj-tool:has(> .vj-matrix)")
        cell = matrix.locator(".vj-matrix button:enabled").first
        count = cell.inner_text()
        cell.click()
        opened = matrix.locator(".vj-reviewer")
        opened.get_by_text(f"item 1 of {count}, ").wait_for()
        for key in ("d", "d"):
            page.keyboard.press(key)
        assert notebook.cells == cells, "the matrix is no place for shortcuts either"
        opened.locator("button:text-is('5')").click()
        opened.get_by_text("Your vote: score 5").wait_for()
        vote = events()[4]
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
        assert len(events()) == 6 and events()[5]["value"] == 2

        # The kernel restarts: all votes are there.
        notebook.run_all(restart=True)
        assert not notebook.errors
        wait("Your vote: score 4; better feedback: left")
        assert len(events()) == 6, "resuming writes nothing"
        # Nothing sticks out, in the other theme and on a narrow page too; the notebook stays small.
        for theme, width in (("JupyterLab Dark", 1400), ("JupyterLab Light", 760)):
            notebook.menu("Settings", "Theme", theme)
            page.wait_for_selector(f"body[data-jp-theme-name='{theme}']", state="attached")
            page.set_viewport_size({"width": width, "height": 1400})
            page.wait_for_timeout(300)
            assert tool.evaluate("tool => tool.scrollWidth <= tool.clientWidth + 1"), (theme, width)
        saved(page, path, "widget-view")
        assert path.stat().st_size < 1_000_000


HOSTILE = """
import pandas as pd
from PIL import Image
from vjudge.review import Review, Reviewer, export

markup = ("</div></style><script>window.ran = 1</script><img src=x onerror='window.ran = 2'><svg onload='window.ran=3'>"
          "<a href='javascript:window.ran=4'>x</a> **bold** $x^2$ \\u202e\\x1b[2J")
texts = {markup: markup, "long": "word " * 4_000, "one word": "x" * 20_000, "nothing": "", "rtl": "הציון 4. " * 30}
levels = lambda text: [f"{score} {text[:2_000]}" for score in range(5)]
rows = [{"id": id, "images": [Image.new("RGB", (900, 600), "teal")], "instruction": text or "-", "response": text,
         "reference_answer": text or None, "criteria": text[:2_000] or "-", "descriptions": levels(text), "gold": 2.0,
         "feedback": text, "group": "g"} for id, text in texts.items()]
runs = {name: pd.DataFrame({"id": list(texts), "score": 1.0, "failure": None,
                            "feedback": [f"{text}{name[:1]}" if text else "" for text in texts.values()]})
        for name in (markup, "other")}
review = Review(rows, runs, out="hostile", annotator=markup)
tool = Reviewer(review)
export(rows, review, "page")
"""


def test_hostile_texts_are_shown_whole_and_nothing_runs(home, address):
    lab.write_notebook(home / "hostile.ipynb", HOSTILE, "tool")
    with lab.chromium() as page:
        notebook = lab.Notebook(page, address, "hostile.ipynb")
        notebook.run_all()
        assert not notebook.errors
        tool = page.locator(".vj-reviewer")
        for number in range(1, 6):
            tool.get_by_text(f"item {number} of 5").wait_for()
            tool.locator(".vj-do-undo:enabled").wait_for()
            assert tool.evaluate("tool => tool.scrollWidth <= tool.clientWidth + 1"), number
            assert tool.bounding_box()["height"] < 5_000, "long texts scroll in their own boxes"
            assert (
                tool.locator("img").count() == 1
                and tool.locator("script, svg, a, mjx-container").count() == 0
            )
            if number < 5:
                tool.locator(".vj-do-next").click()
        assert page.evaluate("window.ran") is None
        page.goto((home / "page/review.html").as_uri())
        assert page.locator(".vj-case").count() == 5 and page.evaluate("window.ran") is None
        assert page.evaluate("document.body.scrollWidth <= document.documentElement.clientWidth")
        assert page.locator("script, svg, a").count() == 0
