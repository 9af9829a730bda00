"""Every way of giving a picture ends in the same verdicts; without one, an error; a file is read once a call."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pandas as pd
import pytest

import vjudge as vj
from samples import lines
from vjudge.images import open_image
from vjudge.records import Item

QUIET = {"mode": "score", "progress": False}
Rows = list[dict[str, Any]]


@pytest.fixture(scope="module")
def judge():
    return vj.load_judge("tiny", device="cpu")


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    """Rows of three pictures, whose files lie in a folder, under `image_path`."""
    folder = tmp_path_factory.mktemp("pictures")
    rows = []
    for row in list(vj.load_collection("scenes", split="test", limit=30))[::5]:
        path = folder / f"{row['group']}.png"
        open_image(row.pop("images")[0]).save(path)
        rows.append({**row, "image_path": str(path)})
    return rows


@pytest.fixture(scope="module")
def expected(judge, rows):
    frame = judge.grade(rows, **QUIET)
    assert frame["expected_score"].nunique() == len(rows), "pictures and texts tell"
    blank = [{**row, "image_path": np.zeros((9, 9, 3), np.uint8)} for row in rows]
    assert (judge.grade(blank, **QUIET)["expected_score"] != frame["expected_score"]).all()
    return frame["expected_score"].tolist()


def given(name, make):
    """The rows with what is made of each picture's path under this name."""

    def change(rows, folder):
        changed = []
        for row in rows:
            cells = dict(row)
            cells[name] = make(cells.pop("image_path"))
            changed.append(cells)
        return changed

    return change


def typed(rows, folder):
    flat = datasets.Dataset.from_list(given("image", str)(rows, folder))
    return flat.cast_column("image", datasets.Image())


def parquet(rows, folder):
    datasets.Dataset.from_list(rows).to_parquet(str(folder / "rows.parquet"))
    return folder / "rows.parquet"


FORMS = {
    "a frame": lambda rows, folder: pd.DataFrame(rows),
    "img, a Path": given("img", Path),
    "image, a dict": given("image", lambda path: {"bytes": Path(path).read_bytes(), "path": None}),
    "images, an array": given("images", lambda path: [np.asarray(open_image(path))]),
    "image, a PIL image": given("image", open_image),
    "a typed dataset": typed,
    "items": lambda rows, folder: [
        Item.from_row({**row, "images": [row["image_path"]]} | {"image_path": None}) for row in rows
    ],
    "a parquet file": parquet,
    "a loaded file": lambda rows, folder: vj.load_collection(parquet(rows, folder)),
    "a file of lines": lambda rows, folder: str(lines(folder / "rows.jsonl", *rows)),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_way_of_giving_a_picture(form, judge, rows, expected, tmp_path):
    frame = judge.grade(FORMS[form](rows, tmp_path), **QUIET)
    assert frame["expected_score"].tolist() == pytest.approx(expected, abs=1e-5)
