"""Collections from files: every kind of file in one form, and every bad row named before a run."""

from __future__ import annotations

import json
import math
import tracemalloc
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pandas as pd
import pytest
import samples
from samples import LEVELS, lines, orig, png

from vjudge.data import CollectionError, canonical, files, load_collection, validate
from vjudge.prompts import TEMPLATES, target
from vjudge.records import Item

SAMPLES = Path(__file__).parents[3] / "shared" / "data" / "prometheus_vision_samples"


def row(id: str = "a", **changes: Any) -> dict[str, Any]:
    return samples.row(id, **{"images": [], **changes})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "pictures").mkdir()
    (tmp_path / "pictures" / "red.png").write_bytes(png())
    return tmp_path


@pytest.mark.skipif(not SAMPLES.is_dir(), reason="the published samples are not at hand")
def test_the_published_samples() -> None:
    template = TEMPLATES["prometheus-vision"]
    evaluation = samples.plain(load_collection(SAMPLES / "sample_eval_data.jsonl"))
    raw = [json.loads(line) for line in (SAMPLES / "sample_eval_data.jsonl").read_text("utf-8").splitlines()]
    assert len(evaluation) == 3
    for item, source in zip(evaluation, raw, strict=True):
        assert template.render(Item.from_row(item)).text.endswith(f"<image>\n{source['instruction']} ASSISTANT:")
        assert math.isnan(item["gold"]) and item["feedback"] is None and item["group"] == source["image"]
        assert item["images"] == [{"bytes": None, "path": str(SAMPLES / source["image"])}]
    training = samples.plain(load_collection(SAMPLES / "sample_train_data.json"))
    raw = json.loads((SAMPLES / "sample_train_data.json").read_text("utf-8"))
    assert [item["gold"] for item in training] == [1, 2, 3] and [item["id"] for item in training] == ["0", "1", "2"]
    for item, source in zip(training, raw, strict=True):
        prompt, answer = (turn["value"] for turn in source["conversations"])
        assert template.render(Item.from_row(item)).text.endswith(f"USER: {prompt} ASSISTANT:")
        assert target(item["feedback"], int(item["gold"])) == answer


def test_limit_and_splits(folder: Path) -> None:
    rows = [row(str(i)) for i in range(5)]
    lines(folder / "test.jsonl", *rows)
    assert load_collection(folder, limit=2)["id"][:] == ["0", "1"]
    assert len(load_collection(folder, limit=9)) == 5 and len(load_collection(folder, limit=0)) == 0
    lines(folder / "train.jsonl", *rows[:1])
    assert len(load_collection(folder, split="test")) == 5
    parts = {name: load_collection(folder / f"{name}.jsonl") for name in ("test", "train")}
    datasets.DatasetDict(parts).save_to_disk(str(folder / "saved"))
    assert load_collection(folder / "saved", split="test", limit=3)["id"][:] == ["0", "1", "2"]
    for path, split, message in [
        (folder, None, "has several splits, and split= names none; it has: test, train"),
        (folder / "saved", "c", "has no split 'c'; it has: test, train"),
        (folder / "pictures", None, "holds no .jsonl, .json, .csv, .parquet file"),
    ]:
        with pytest.raises(CollectionError, match=message):
            load_collection(path, split=split)
    (folder / "train.jsonl").unlink()
    with pytest.raises(CollectionError, match="has no split 'train'; it has: test"):  # never the test rows for it
        load_collection(folder, split="train")
    with pytest.raises(CollectionError, match="limit is -1"):
        load_collection(folder, limit=-1)


@pytest.mark.parametrize("kind", ["a.jsonl", "a.json", "a.csv", "a.parquet", "saved", "folder"])
def test_a_split_asked_of_what_has_none_is_said_once_and_is_no_error(folder: Path, kind: str) -> None:
    rows, path = pd.DataFrame([row(str(n), images=None) for n in range(3)]), folder / kind
    if kind == "saved":
        canonical(rows).save_to_disk(str(path))
    elif kind == "folder":
        lines(path / "mine.jsonl", *rows.to_dict("records"))
    elif kind == "a.csv":
        rows.assign(descriptions=str(LEVELS)).to_csv(path, index=False)
    elif kind == "a.parquet":
        rows.to_parquet(path)
    else:
        rows.to_json(path, orient="records", lines=kind == "a.jsonl")
    with pytest.warns(UserWarning) as warned:
        assert load_collection(path, split="test", limit=2)["id"][:] == ["0", "1"]
    (warning,) = [str(warning.message) for warning in warned]
    assert "without splits: split='test' says nothing" in warning


def test_a_parquet_file_is_read_in_blocks(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 12 MB of pictures a few blocks stand in memory as rows, however few row groups the file has."""
    monkeypatch.setattr(files, "BLOCK", 10)
    pictures = [[{"bytes": np.random.default_rng(n).bytes(100_000), "path": None}] for n in range(120)]
    pd.DataFrame([row(str(n), images=cell) for n, cell in enumerate(pictures)]).to_parquet(folder / "a.parquet")
    load_collection(folder / "a.parquet", limit=1)  # what is imported at first use
    tracemalloc.start()
    items = load_collection(folder / "a.parquet")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 0.5 * (folder / "a.parquet").stat().st_size
    assert samples.plain(items.select([119]))[0]["images"] == pictures[119]


def test_rows_that_cannot_be_read_are_all_named(folder: Path) -> None:
    rows = [orig(orig_score="four"), orig(), [1], orig(id="x", orig_response=3), {"id": "y"}]
    with pytest.raises(CollectionError, match=r"row 0 \(id None\), gold: 'four' is not a number; give num") as error:
        load_collection(lines(folder / "bad.jsonl", *rows))
    problems = [(problem.index, problem.id, problem.field) for problem in error.value.problems]
    assert problems == [(0, None, "gold"), (2, None, "row"), (3, "x", "response"), (4, "y", "instruction")]
    (folder / "cut.jsonl").write_text('{"id": 1}\n{"id": \n[\n', "utf-8")
    with pytest.raises(CollectionError, match="3 of 3 rows of .*cut.jsonl' cannot be used:") as error:
        load_collection(folder / "cut.jsonl")
    assert [problem.field for problem in error.value.problems] == ["instruction", "row", "row"]
    assert canonical([row("a", note=1), row("b", note="x"), row("c")])["note"][:] == ["1", "x", None]  # of mixed types
    for name, content in [("a.json", b"[1,"), ("c.parquet", b"PAR"), ("d.txt", b"x"), ("e.csv", b"id\n\xf6\n")]:
        (folder / name).write_bytes(content)
        with pytest.raises(CollectionError, match=name):
            load_collection(folder / name)


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_a_table_in_text_is_read_whatever_separates_it(folder: Path, separator: str) -> None:
    frame = pd.DataFrame([samples.row(str(n), human_scores="3|4|2", gold=3.5) for n in range(2)])
    frame = frame.assign(descriptions=str(LEVELS), image_path="pictures/red.png", reference_answer=["NA", None])
    frame.to_csv(folder / "rows.csv", sep=separator, index=False, encoding="utf-8-sig")
    items = load_collection(folder / "rows.csv")
    validate(items, sees_images=True)
    assert items[1]["images"][0].size == (4, 4) and items["human_scores"][1] == [3, 4, 2] and items["gold"][0] == 3.5
    assert items["group"][0] == "pictures/red.png" and items["descriptions"][0] == LEVELS
    assert items["reference_answer"][:] == ["NA", None]  # a word, not a missing cell


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("id;instruction;response;human_scores\na;Say.;Red.;3,5\n", "human_scores: '3,5' may be one score or two"),
        ("id,instruction,response,response\na,What?,A,B\n", "a.csv' has several columns response; keep one of each"),
        ("id,instruction,response\na,Say, it.,Red.\n", "row 0 .id 'a'., row: has 1 more cells than the header"),
    ],
)
def test_a_table_that_can_be_read_in_two_ways_is_named(folder: Path, text: str, message: str) -> None:
    (folder / "a.csv").write_text(text, "utf-8")
    with pytest.raises(CollectionError, match=message):
        load_collection(folder / "a.csv")


@pytest.mark.parametrize(
    ("cell", "field", "what"),
    [
        ("9" * 5000, "gold", "is not a number"),
        ("[" * 100_000 + "]" * 100_000, "row", "is nested too deeply"),
        ('"ok \\ud83d"', "gold", "holds half a character"),
    ],
    ids=range(3),
)
def test_a_hostile_value_in_a_file_is_named_with_its_row(folder: Path, cell: str, field: str, what: str) -> None:
    good = json.dumps(row())
    bad = json.dumps(row("b", gold="HERE")).replace('"HERE"', cell)
    (folder / "a.jsonl").write_text(f"{good}\n{bad}\n", "utf-8")
    (folder / "a.json").write_text(f"[{good}, {bad}]", "utf-8")
    for name in ("a.jsonl", "a.json"):
        with pytest.raises(CollectionError, match=what) as error:
            load_collection(folder / name)
        assert [(problem.index, problem.field) for problem in error.value.problems] == [(1, field)]


def test_a_missing_picture_stays_missing_and_an_empty_list_empty(folder: Path) -> None:
    cells = [["pictures/red.png"], [], None]
    items = load_collection(lines(folder / "a.jsonl", *[row(str(n), images=cell) for n, cell in enumerate(cells)]))
    assert [len(each["images"]) if each["images"] is not None else None for each in items] == [1, 0, None]
    with pytest.raises(CollectionError, match="row 2 .id '2'., images: is missing; name it, or give an empty list"):
        validate(items)
    files = [png("red"), png("blue"), None]
    typed = datasets.Dataset.from_list([samples.row(str(n)) for n in range(3)])
    typed = typed.add_column("photo", files).cast_column("photo", datasets.Image())
    assert [each["images"] and len(each["images"]) for each in canonical(typed)] == [1, 1, None]
    groups = canonical(typed)["group"][:]
    assert canonical(typed.add_column("group", ["g", None, None]))["group"][:] == ["g", *groups[1:]]
    assert len(set(groups)) == 3 and groups[2] == "2"


def test_a_name_that_leads_nowhere_is_answered(folder: Path) -> None:
    for name, message in {
        "scene": "unknown collection 'scene'.*'scenes' looks like it.*kaist-ai/Perception-Coll.*.jsonl.*data.canonical",
        "Multimodal RewardBench": "Multimodal RewardBench: get it from https://github.com/facebook",
        str(folder / "gone.csv"): "there is no file .*gone.csv'; a relative path counts from",
        None: "by its name or path, and this is a NoneType",
    }.items():
        with pytest.raises(CollectionError, match=message):
            load_collection(name)  # type: ignore[arg-type]
