"""How long the next of 500 items takes to show in JupyterLab: from the press of the button to the picture on screen."""

from __future__ import annotations

import statistics

import lab

CELL = """
import pandas as pd
import vjudge as vj
from vjudge.review import Review, Reviewer

items = vj.load_collection("scenes", split="test", limit=500)
run = pd.DataFrame({"id": items["id"], "score": items["gold"], "feedback": items["feedback"], "failure": None})
Reviewer(Review(items, {"a": run, "b": run}, out="votes", annotator="bench", blind=True))
"""
NEXT = """() => new Promise(done => {
    const tool = document.querySelector('.vj-reviewer'), id = () => tool.querySelector('.vj-id').textContent;
    const before = id(), start = performance.now();
    tool.querySelector('.vj-do-next').click();
    const look = () => {
        const image = tool.querySelector('.vj img');
        if (id() != before && image.complete && image.naturalWidth) done(performance.now() - start);
        else requestAnimationFrame(look);
    };
    look();
})"""


def test_the_next_of_500_items(tmp_path):
    lab.need_browser()
    lab.write_notebook(tmp_path / "many.ipynb", CELL)
    with lab.jupyterlab(tmp_path) as address, lab.chromium() as page:
        notebook = lab.Notebook(page, address, "many.ipynb")
        notebook.run_all()
        times = [page.evaluate(NEXT) for _ in range(60)]
    middle, slow = statistics.median(times), statistics.quantiles(times, n=20)[-1]
    print(f"\nnext of 500 items on screen: median {middle:.0f} ms, 95 % within {slow:.0f} ms")
