"""Every way of giving a picture ends in the same verdicts; without one, an error; each file is read once a call."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pandas as pd
import pytest

import vjudge as vj
from vjudge import images
from vjudge.data import CollectionError
from vjudge.images import open_image
from vjudge.records import Item

QUIET: dict[str, Any] = {"progress": False, "max_new_tokens": 60}


@pytest.fixture(scope="module")
def judge() -> vj.Judge:
    return vj.load_judge("tiny", device="cpu")


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Rows of three pictures, whose files lie in a folder."""
    folder = tmp_path_factory.mktemp("pictures")
    rows = [dict(row) for row in vj.load_collection("scenes", split="test", limit=30)][::5]
    for row in rows:
        path = folder / f"{row['group']}.png"
        open_image(row["images"][0]).save(path)
        row["path"] = str(path)
        del row["images"]
    return rows


@pytest.fixture(scope="module")
def expected(judge: vj.Judge, rows: Any) -> list[float]:
    frame = judge.grade([{**_plain(row), "images": [row["path"]]} for row in rows], **QUIET)
    assert frame["score"].tolist() == frame["gold"].tolist()
    return frame["expected_score"].tolist()


def _plain(row: Any) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name != "path"}


def _bytes(path: str) -> bytes:
    return Path(path).read_bytes()


GIVEN = {
    "images, a path": ("images", lambda path: [path]),
    "image, a path": ("image", lambda path: path),
    "image_path": ("image_path", lambda path: path),
    "img, a Path": ("img", Path),
    "image, bytes": ("image", _bytes),
    "image, a dict": ("image", lambda path: {"bytes": _bytes(path), "path": None}),
    "images, an array": ("images", lambda path: [np.asarray(open_image(path))]),
    "image, a PIL image": ("image", open_image),
}


@pytest.mark.parametrize("how", GIVEN)
def test_every_way_of_giving_a_picture(how: str, judge: vj.Judge, rows: Any, expected: Any) -> None:
    name, given = GIVEN[how]
    items = [{**_plain(row), name: given(row["path"])} for row in rows]
    for collection in (items, pd.DataFrame(items)):
        assert judge.grade(collection, **QUIET)["expected_score"].tolist() == pytest.approx(expected, abs=1e-5)


def test_datasets_files_and_items(judge: vj.Judge, rows: Any, expected: Any, tmp_path: Path) -> None:
    flat = [{**_plain(row), "image_path": row["path"]} for row in rows]
    typed = datasets.Dataset.from_list([{**_plain(row), "image": row["path"]} for row in rows])
    datasets.Dataset.from_list(flat).to_parquet(str(tmp_path / "rows.parquet"))
    datasets.Dataset.from_list(flat).to_json(str(tmp_path / "rows.jsonl"))
    forms = [
        typed.cast_column("image", datasets.Image()),
        [Item.from_row({**r, "images": [r["image_path"]]}) for r in flat],
    ]
    forms += [vj.load_collection(tmp_path / name) for name in ("rows.parquet", "rows.jsonl")]
    forms += [tmp_path / "rows.parquet", str(tmp_path / "rows.jsonl")]
    for form in forms:
        assert judge.grade(form, **QUIET)["expected_score"].tolist() == pytest.approx(expected, abs=1e-5)


def test_rows_among_which_no_column_names_a_picture_are_refused(judge: vj.Judge, rows: Any) -> None:
    blind = [{**_plain(row), "photo_of": "x"} for row in rows]
    with pytest.raises(CollectionError, match="photo_of"):
        judge.grade(blind, **QUIET)
    with pytest.raises(CollectionError, match="image"):
        judge.grade(pd.DataFrame(blind), **QUIET)
    candidates = [{**row, "responses": ["one", "two"]} for row in blind]
    with pytest.raises(CollectionError, match="image"):
        judge.rank(candidates, by="scores", **QUIET)
    meant = [{**row, "images": []} for row in blind]
    assert judge.grade(meant, mode="score", progress=False).attrs["without_images"] == len(rows)
    ranked = judge.rank([{**row, "images": []} for row in candidates], by="scores", mode="score", progress=False)
    assert ranked.attrs["without_images"] == 2 * len(rows)


def test_pairs_and_candidates_bring_their_picture(judge: vj.Judge, rows: Any) -> None:
    from dataclasses import replace

    from vjudge.prompts import TEMPLATES, VICUNA_V1

    wording = replace(TEMPLATES["chat-relative"], conversation=VICUNA_V1)
    comparing = vj.load_judge("tiny", device="cpu", template=wording)
    few = [{**_plain(row), "response_a": row["response"], "response_b": "It is red."} for row in rows[:3]]
    tables = []
    for name in ("images", "image", "image_path"):
        pairs = [
            {**row, name: [r["path"]] if name == "images" else r["path"]} for row, r in zip(few, rows, strict=False)
        ]
        table = comparing.compare(pairs, mode="score", progress=False)
        candidates = [{**row, "responses": [row["response_a"], row["response_b"]]} for row in pairs]
        for row in candidates:
            del row["response_a"], row["response_b"]
        ranked = comparing.rank(candidates, mode="score", progress=False)
        tables.append((table["probability_a"].tolist(), ranked["value"].tolist(), table["n_prompt_tokens"].tolist()))
        assert table.attrs["without_images"] == ranked.attrs["without_images"] == 0
    assert tables[0] == tables[1] == tables[2]
    with pytest.raises(CollectionError, match="image"):
        comparing.compare(few, mode="score", progress=False)
    with pytest.raises(CollectionError, match="image"):
        comparing.rank([{**_plain(rows[0]), "responses": ["a", "b"]}], mode="score", progress=False)


def test_a_file_is_read_once_a_call(judge: vj.Judge, rows: Any, tmp_path: Path, monkeypatch: Any) -> None:
    """With a run's folder, too: validation, fingerprint and engine share what was read."""
    opened: list[str] = []
    original = io.open

    def counting(file: Any, *rest: Any, **more: Any) -> Any:
        if str(file).endswith(".png"):
            opened.append(str(file))
        return original(file, *rest, **more)

    monkeypatch.setattr("builtins.open", counting)
    monkeypatch.setattr("io.open", counting)
    assert images.open_image(rows[0]["path"]) and opened  # it counts
    opened.clear()
    items = [{**_plain(row), "images": [row["path"]]} for row in rows for _ in range(1)]
    judge.grade(items, mode="score", out=tmp_path, progress=False)
    assert sorted(opened) == sorted({row["path"] for row in rows})
