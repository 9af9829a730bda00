"""Collections from files and from a stand-in for the hub, and every bad row named before a run."""

from __future__ import annotations

import base64
import json
import math
import shutil
import tracemalloc
from pathlib import Path
from typing import Any

import datasets
import huggingface_hub
import numpy as np
import pandas as pd
import pyarrow.compute as pc  # type: ignore[import-untyped]
import pytest
from PIL import Image

import samples
from samples import LEVELS, SINGLE, judge_of, lines, orig, picture, plain, png, turns
from vjudge.data import (
    FEATURES,
    CollectionError,
    canonical,
    files,
    load,
    load_collection,
    origin,
    validate,
)
from vjudge.prompts import TEMPLATES, target
from vjudge.records import Item
from vjudge.runs import Run

SAMPLES = Path(__file__).parents[3] / "shared" / "data" / "prometheus_vision_samples"
NAME, CRITIC = "kaist-ai/Perception-Collection", "lmms-lab/LLaVA-Critic-113k"


def row(id: str = "a", **changes: Any) -> dict[str, Any]:
    return samples.row(id, **{"images": [], **changes})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    picture(tmp_path, "pictures/red.png")
    return tmp_path


@pytest.mark.skipif(not SAMPLES.is_dir(), reason="the published samples are not at hand")
def test_the_published_samples() -> None:
    template = TEMPLATES["prometheus-vision"]
    evaluation = plain(load_collection(SAMPLES / "sample_eval_data.jsonl"))
    raw = [
        json.loads(line)
        for line in (SAMPLES / "sample_eval_data.jsonl").read_text("utf-8").splitlines()
    ]
    for item, source in zip(evaluation, raw, strict=True):
        assert template.render(Item.from_row(item)).text.endswith(
            f"<image>\n{source['instruction']} ASSISTANT:"
        )
        assert (
            math.isnan(item["gold"])
            and item["feedback"] is None
            and item["group"] == source["image"]
        )
        assert item["images"] == [{"bytes": None, "path": str(SAMPLES / source["image"])}]
    training = plain(load_collection(SAMPLES / "sample_train_data.json"))
    raw = json.loads((SAMPLES / "sample_train_data.json").read_text("utf-8"))
    assert [item["gold"] for item in training] == [1, 2, 3]
    for item, source in zip(training, raw, strict=True):
        prompt, answer = (turn["value"] for turn in source["conversations"])
        assert template.render(Item.from_row(item)).text.endswith(f"USER: {prompt} ASSISTANT:")
        assert target(item["feedback"], int(item["gold"])) == answer


# -- files


def test_limit_and_splits(folder: Path) -> None:
    rows = [row(str(i)) for i in range(5)]
    lines(folder / "test.jsonl", *rows)
    assert load_collection(folder, limit=2)["id"][:] == ["0", "1"]
    assert len(load_collection(folder, limit=0)) == 0
    lines(folder / "train.jsonl", *rows[:1])
    assert len(load_collection(folder, split="test")) == 5
    parts = {name: load_collection(folder / f"{name}.jsonl") for name in ("test", "train")}
    datasets.DatasetDict(parts).save_to_disk(str(folder / "saved"))
    assert load_collection(folder / "saved", split="test", limit=3)["id"][:] == ["0", "1", "2"]
    (folder / "train.jsonl").unlink()
    for path, split, message in [
        (folder / "saved", None, "has several splits, and split= names none; it has: test, train"),
        (folder, "train", "has no split 'train'; it has: test"),  # never the test rows for it
        (folder / "pictures", None, "holds no .jsonl, .json, .csv, .tsv, .parquet file"),
        ("scene", None, "unknown collection 'scene'.*'scenes' looks like it.*data.canonical"),
    ]:
        with pytest.raises(CollectionError, match=message):
            load_collection(path, split=split)


def test_a_split_asked_of_what_has_none_is_said_once_and_is_no_error(folder: Path) -> None:
    rows = pd.DataFrame([row(str(n), images=None) for n in range(3)])
    canonical(rows).save_to_disk(str(folder / "saved"))
    rows.to_parquet(folder / "a.parquet")
    lines(folder / "folder" / "mine.jsonl", *rows.to_dict("records"))
    for name in ("a.parquet", "saved", "folder"):
        with pytest.warns(UserWarning) as warned:
            assert load_collection(folder / name, split="test", limit=2)["id"][:] == ["0", "1"]
        (warning,) = [str(warning.message) for warning in warned]
        assert "without splits: split='test' says nothing" in warning


def test_a_parquet_file_is_read_in_blocks(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 12 MB of pictures a few blocks stand in memory as rows, however few row groups the file has."""
    monkeypatch.setattr(load, "BLOCK", 10)
    monkeypatch.setattr(files, "BLOCK", 10)
    pictures = [
        [{"bytes": np.random.default_rng(n).bytes(100_000), "path": None}] for n in range(120)
    ]
    pd.DataFrame([row(str(n), images=cell) for n, cell in enumerate(pictures)]).to_parquet(
        folder / "a.parquet"
    )
    load_collection(folder / "a.parquet", limit=1)  # what is imported at first use
    tracemalloc.start()
    items = load_collection(folder / "a.parquet")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 0.5 * (folder / "a.parquet").stat().st_size
    assert plain(items.select([119]))[0]["images"] == pictures[119]


def test_rows_that_cannot_be_read_are_all_named(folder: Path) -> None:
    rows = [row(gold="four"), row(), [1], row("x", response=3), {"id": "y"}]
    with pytest.raises(
        CollectionError, match=r"row 0 .id 'a'., gold: 'four' is not a number"
    ) as no:
        load_collection(lines(folder / "bad.jsonl", *rows))
    problems = [(problem.index, problem.id, problem.field) for problem in no.value.problems]
    fields = ["gold", "row", "response", "instruction"]
    assert problems == list(zip((0, 2, 3, 4), ("a", None, "x", "y"), fields, strict=True))
    mixed = canonical([row("a", note=1), row("b", note="x"), row("c")])
    assert mixed["note"][:] == ["1", "x", None]
    files = {"a.jsonl": b'{"id": \n', "a.json": b"[1,", "c.parquet": b"PAR", "e.csv": b"id\n\xf6\n"}
    for name, content in files.items():
        (folder / name).write_bytes(content)
        with pytest.raises(CollectionError, match=name):
            load_collection(folder / name)


def test_a_tab_separated_file_with_pictures_in_base64_is_read(folder: Path) -> None:
    """As benchmark tools write it; columns that are nearly right are suggested."""
    picture = base64.b64encode(png()).decode()
    cells = {"index": 7, "image": picture, "question": "What?", "prediction": "B."}
    table = pd.DataFrame([cells])
    table.to_csv(folder / "bench.tsv", sep="\t", index=False)
    hints = "`question` looks like it(.|\n)*response; `prediction` looks like it"
    with pytest.raises(CollectionError, match=hints):
        load_collection(folder / "bench.tsv")
    table.columns = ["index", "image", "instruction", "response"]
    table.to_csv(folder / "bench.tsv", sep="\t", index=False)
    assert load_collection(folder / "bench.tsv")[0]["images"][0].getpixel((0, 0)) == (255, 0, 0)


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_a_table_in_text_is_read_whatever_separates_it(folder: Path, separator: str) -> None:
    cells = {
        "descriptions": str(LEVELS),
        "image_path": "pictures/red.png",
        "human_scores": "3|4|2",
        "gold": 3.5,
    }
    frame = pd.DataFrame(
        [samples.row("0", **cells, reference_answer="NA"), samples.row("1", **cells)]
    )
    frame.to_csv(folder / "rows.csv", sep=separator, index=False, encoding="utf-8-sig")
    items = load_collection(folder / "rows.csv")
    validate(items, sees_images=True)
    assert (
        items[1]["images"][0].size == (4, 4)
        and items["human_scores"][1] == [3, 4, 2]
        and items["gold"][0] == 3.5
    )
    assert items["group"][0] == "pictures/red.png" and items["descriptions"][0] == LEVELS
    assert items["reference_answer"][:] == ["NA", None]  # a word, not a missing cell


def test_a_table_that_can_be_read_in_two_ways_is_named(folder: Path) -> None:
    for text, message in [
        (
            "id;instruction;response;human_scores\na;Say.;Red.;3,5\n",
            "human_scores: '3,5' may be one score or two",
        ),
        (
            "id,instruction,response,response\na,What?,A,B\n",
            "a.csv' has several columns response; keep one of each",
        ),
        (
            "id,instruction,response\na,Say, it.,Red.\n",
            "row 0 .id None., row: has 1 more cells than the header",
        ),
    ]:
        (folder / "a.csv").write_text(text, "utf-8")
        with pytest.raises(CollectionError, match=message):
            load_collection(folder / "a.csv")


def test_a_hostile_value_in_a_file_is_named(folder: Path) -> None:
    for cell, what in [
        ("9" * 5000, "row 1 .*gold: .* is not a number"),
        ("[" * 100_000 + "]" * 100_000, "recursion depth|not a sound json file"),
        ('"ok \\ud83d"', "row 1 .*gold: holds half a character"),
    ]:
        bad = json.dumps(row("b", gold="HERE")).replace('"HERE"', cell)
        (folder / "a.jsonl").write_text(f"{json.dumps(row())}\n{bad}\n", "utf-8")
        (folder / "a.json").write_text(f"[{json.dumps(row())}, {bad}]", "utf-8")
        for name in ("a.jsonl", "a.json"):
            with pytest.raises(CollectionError, match=what):
                load_collection(folder / name)


def test_image_files_of_a_data_set_are_passed_on_without_a_copy() -> None:
    rows = datasets.Dataset.from_list([samples.row(str(n)) for n in range(3)])
    typed = rows.add_column("photo", [png("red"), png("blue"), png()]).cast_column(
        "photo", datasets.Image()
    )
    addresses = [
        column.chunk(0).field("bytes").buffers()[2].address
        for column in (
            typed.data.column("photo"),
            pc.list_flatten(canonical(typed).data.column("images")),
        )
    ]
    assert addresses[0] == addresses[1]
    typed = rows.add_column("photo", [png("red"), png("blue"), None]).cast_column(
        "photo", datasets.Image()
    )
    items = canonical(typed)
    assert items.column_names == list(FEATURES)  # a picture's column has no second name
    two = typed.add_column("other", [png()] * 3).cast_column("other", datasets.Image())
    assert canonical(two)["images"][:] == [None] * 3, "neither of two is taken for the picture"
    assert [each["images"] and len(each["images"]) for each in items] == [1, 1, None]
    groups = items["group"][:]
    assert canonical(typed.add_column("group", ["g", None, None]))["group"][:] == ["g", *groups[1:]]
    assert len(set(groups)) == 3 and groups[2] == "2"


# -- the hub


class Hub:
    """A hub that holds one table; `error` is what it answers when it is asked for a commit."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, *rows: dict[str, Any], error: Exception | None = None
    ) -> None:
        self.asked: list[Any] = []
        self.rows, self.error = rows, error
        monkeypatch.setattr(datasets, "load_dataset", self.load_dataset)
        monkeypatch.setattr(huggingface_hub.HfApi, "dataset_info", self.dataset_info)

    def dataset_info(self, name: str, **options: Any) -> Any:
        if self.error:
            raise self.error
        return huggingface_hub.hf_api.DatasetInfo(id=name, sha=f"sha-of-{options['revision']}")

    def load_dataset(self, name: str, part: str | None, **options: Any) -> Any:
        self.asked.append((name, part, options))
        table = datasets.Dataset.from_list(list(self.rows))
        table = (
            table.cast_column("image", datasets.Image())
            if isinstance(self.rows[0].get("image"), dict)
            else table
        )
        return table.to_iterable_dataset() if options.get("streaming") else table


def test_the_commit_is_resolved_fetched_and_recorded(
    monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    hub = Hub(monkeypatch, orig(image=str(folder / "pictures/red.png")))
    items = load_collection(NAME, limit=1, revision="v1")
    assert hub.asked == [
        (NAME, None, {"split": "train", "revision": "sha-of-v1", "streaming": True})
    ]
    assert origin(items) == {
        "schema": "Perception-Collection",
        "source": NAME,
        "split": "train",
        "revision": "v1",
        "commit": "sha-of-v1",
    }
    items.save_to_disk(str(folder / "saved"))
    assert origin(load_collection(folder / "saved")) == origin(items) == origin(items.select([0]))
    judge = judge_of("Good. [RESULT] 4", "prometheus-vision")
    judge.grade(items, out=folder / "run", progress=False)
    assert Run(folder / "run").manifest["note"]["origin"] == origin(items)


def test_image_files_of_a_hub_table_are_passed_on_untouched(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    colours = ("red", "blue", "red")
    rows = [
        turns(SINGLE, "Score: 85", id=str(n), image={"bytes": png(c), "path": None})
        for n, c in enumerate(colours)
    ]
    rows.append(turns(SINGLE, "Score: 85", id="3", image=None))
    hub = Hub(monkeypatch, *rows)
    items = load_collection(CRITIC, split="pointwise")
    assert hub.asked[0][:2] == (CRITIC, "pointwise") and hub.asked[0][2]["split"] == "train"
    assert items.features["images"] == FEATURES["images"] and items.column_names[1] == "images"
    assert [each["images"] for each in plain(items)] == [
        [{"bytes": png(c), "path": None}] for c in colours
    ] + [[]]
    group = items["group"][:]
    assert group[0] == group[2] != group[1] and group[3] == "3"  # by the image's bytes
    few = load_collection(CRITIC, limit=2)  # streamed: the default part, and the same cells
    assert (
        hub.asked[1][1] == "pointwise"
        and plain(few) == plain(items)[:2]
        and few[1]["images"][0].size == (4, 4)
    )
    with pytest.raises(CollectionError, match="has no split 'test'; it has: pointwise, pairwise"):
        load_collection(CRITIC, split="test")


def test_why_the_hub_does_not_give_a_set(monkeypatch: pytest.MonkeyPatch) -> None:
    Hub(monkeypatch, {"prompt": "x", "orig_instruction": "y"})
    with pytest.raises(
        CollectionError, match="at sha-of-new has no columns orig_response, .*pass the revision="
    ):
        load_collection("prometheus-eval/Feedback-Bench", revision="new")
    hub = Hub(monkeypatch, orig(), error=ConnectionError("no route"))  # and a copy is here
    items = load_collection("prometheus-eval/Feedback-Bench", revision="abc")
    assert origin(items)["commit"] is None and hub.asked[0][2]["revision"] == "abc"
    monkeypatch.setattr(hub, "load_dataset", lambda *_, **__: 1 / 0)
    monkeypatch.setattr(datasets, "load_dataset", hub.load_dataset)
    with pytest.raises(
        CollectionError,
        match="ZeroDivisionError: .*if it is gated, accept its terms at https://hugg",
    ):
        load_collection("mlfoundations/VisIT-Bench")


def test_a_picture_outside_of_the_files_folder_is_refused_by_name(tmp_path: Path) -> None:
    """A file from elsewhere must not make a judge read what its reader did not mean to show."""
    secret = tmp_path / "secret.png"
    Image.new("RGB", (2, 2)).save(secret)
    folder = tmp_path / "sets" / "one"
    (folder / "images").mkdir(parents=True)
    (folder / "link.png").symlink_to(secret)
    (folder / "inner.png").symlink_to(folder / "images" / "a.png")
    for place in ("one/images", "beside"):
        (folder.parent / place).mkdir(exist_ok=True)
        shutil.copy(secret, folder.parent / place / "a.png")
    row = {"instruction": "What is it?", "response": "A thing."}
    file = folder / "rows.jsonl"

    def write(*paths: str) -> None:
        rows = [row | {"id": f"row {path}", "images": [path]} for path in paths]
        file.write_text("".join(json.dumps(each) + "\n" for each in rows))

    write("images/a.png", "images/../images/a.png", "inner.png", str(secret))
    assert load_collection(file).num_rows == 4
    write("images/a.png", "../beside/a.png")  # as Perception-Bench names its images
    with pytest.warns(UserWarning, match="1 pictures stand outside of the folder .*beside/a.png"):
        assert load_collection(file).num_rows == 2
    for path in ("../../secret.png", "link.png", "images/../../../secret.png"):
        write("images/a.png", path)
        with pytest.raises(CollectionError, match=r"leads out of the folder .*absolute path") as no:
            load_collection(file)
        assert f"row {path}" in str(no.value) and "images" in str(no.value)
    # The hub's cache holds links to its blobs.
    snapshot = tmp_path / "datasets--some--set" / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (snapshot.parent.parent / "blobs").mkdir()
    shutil.copy(secret, snapshot.parent.parent / "blobs" / "0123")
    (snapshot / "a.png").symlink_to("../../blobs/0123")
    write("a.png")
    shutil.copy(file, snapshot / "rows.jsonl")
    assert load_collection(snapshot / "rows.jsonl").num_rows == 1


@pytest.mark.parametrize("rows", [pd.DataFrame([{"id": "a"}]), [{"id": "a"}], None])
def test_rows_in_place_of_a_name_are_refused_with_what_takes_them(rows):
    with pytest.raises(CollectionError, match=r"name or a path.*vjudge\.data\.canonical"):
        load_collection(rows)
