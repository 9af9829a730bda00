"""Notebooks executed as papermill does, many in one kernel: starting one and importing torch costs more than most."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import nbformat
import papermill
from nbclient import NotebookClient
from papermill.iorw import load_notebook_node
from papermill.parameterize import parameterize_notebook

FOLDER = Path(__file__).parents[2] / "notebooks"
SMALL = dict(LIMIT=15, N_RESAMPLES=100, BATTERY=8, SEEDS=2, SIMULATIONS=4, PHOTO_LIMIT=5, STEPS=2, TEST=6, WATCH=6,
             HELD_OUT=10, ROUNDS=1)  # fmt: skip
"""Parameters that make a notebook light; those that a notebook has are set."""
# A fresh namespace; no network, so that nothing depends on it, but the cache that is given.
FRESH = """
%reset -f
import os, warnings
os.environ |= {{"XDG_CACHE_HOME": {cache!r}, "https_proxy": "http://127.0.0.1:9", "no_proxy": ""}}
os.chdir({folder!r})
warnings.resetwarnings()
del os, warnings
"""


class Kernel:
    """A kernel, of a client that started one, that runs one notebook after the other."""

    def __init__(self, client: NotebookClient) -> None:
        self.client = client

    def run(
        self, name: str, parameters: Mapping[str, Any], tmp_path: Path
    ) -> nbformat.NotebookNode:
        """Execute a notebook, light, with outputs, figures and cache in a folder; CellExecutionError: a cell failed."""
        path = str(FOLDER / f"{name}.ipynb")
        values = {
            key: value for key, value in SMALL.items() if key in papermill.inspect_notebook(path)
        }
        values |= {
            "outputs": str(tmp_path / "outputs"),
            "figures": str(tmp_path / "figures"),
            **parameters,
        }
        notebook = parameterize_notebook(load_notebook_node(path), values)
        source = FRESH.format(cache=str(tmp_path / "cache"), folder=str(FOLDER))
        notebook.cells.insert(0, nbformat.v4.new_code_cell(source))
        self.client.nb = notebook
        self.client.reset_execution_trackers()
        for place, cell in enumerate(notebook.cells):
            self.client.execute_cell(cell, place)
        return notebook


@contextmanager
def kernel() -> Iterator[Kernel]:
    """A kernel for several notebooks, shut down at the end."""
    client = NotebookClient(nbformat.v4.new_notebook(), kernel_name="python3", timeout=900)
    with client.setup_kernel(cwd=str(FOLDER)):
        yield Kernel(client)


def lines_of(notebook: nbformat.NotebookNode) -> list[str]:
    """What the cells printed and showed, line by line."""
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    texts = [o.get("text", o.get("data", {}).get("text/plain", "")) for o in outputs]
    return [line for text in texts for line in text.splitlines()]
