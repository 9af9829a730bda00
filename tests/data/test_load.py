"""Collections: every published schema and file kind in one form, and every bad row named before a run."""

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
from vjudge.data.load import _Table
from vjudge.prompts import TEMPLATES, target
from vjudge.records import Item


def row(id: str = "a", **changes: Any) -> dict[str, Any]:
    return samples.row(id, **{"images": [], **changes})


SAMPLES = Path(__file__).parents[3] / "shared" / "data" / "prometheus_vision_samples"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "pictures").mkdir()
    (tmp_path / "pictures" / "red.png").write_bytes(png())
    return tmp_path


def test_a_score_stated_only_in_the_target_is_read_from_there() -> None:
    bare = {name: value for name, value in orig().items() if name not in ("orig_score", "orig_feedback")}
    (item,) = canonical([bare | {"image": None}])
    assert (item["gold"], item["feedback"]) == (4.0, "Right. So the overall score is 4.")
    with pytest.raises(CollectionError, match=r"row 0 .* output: its target text has no verdict marker; correct it"):
        canonical([bare | {"output": "Right."}])


def test_the_published_samples() -> None:
    if not SAMPLES.is_dir():
        pytest.skip(f"the published samples are not at {SAMPLES}")
    template = TEMPLATES["prometheus-vision"]
    evaluation = load_collection(SAMPLES / "sample_eval_data.jsonl").with_format("arrow")[:].to_pylist()
    raw = [json.loads(line) for line in (SAMPLES / "sample_eval_data.jsonl").read_text("utf-8").splitlines()]
    assert len(evaluation) == 3
    for item, source in zip(evaluation, raw, strict=True):
        assert template.render(Item.from_row(item)).text.endswith(f"<image>\n{source['instruction']} ASSISTANT:")
        assert math.isnan(item["gold"]) and item["feedback"] is None
        assert item["images"] == [{"bytes": None, "path": str(SAMPLES / source["image"])}]
        assert item["group"] == source["image"]
    training = load_collection(SAMPLES / "sample_train_data.json").with_format("arrow")[:].to_pylist()
    raw = json.loads((SAMPLES / "sample_train_data.json").read_text("utf-8"))
    assert [item["gold"] for item in training] == [1, 2, 3] and [item["id"] for item in training] == ["0", "1", "2"]
    for item, source in zip(training, raw, strict=True):
        prompt, answer = (turn["value"] for turn in source["conversations"])
        assert template.render(Item.from_row(item)).text.endswith(f"USER: {prompt} ASSISTANT:")
        assert target(item["feedback"], int(item["gold"])) == answer


def conversation(**changes: Any) -> dict[str, Any]:
    item = Item.from_row(row(images=["x.png"], reference_answer="It is red.", **changes))
    conv = TEMPLATES["prometheus-vision-readme"].conversation
    text = TEMPLATES["prometheus-vision-readme"].render(item).text
    prompt = text.removeprefix(conv.opening).removesuffix(conv.closing)
    turns = [{"from": "human", "value": prompt}, {"from": "gpt", "value": target("Right.", 4)}]
    return {"id": 7, "image": "x.png", "conversations": turns}


def test_training_rows_are_taken_apart_or_refused() -> None:
    (item,) = canonical([conversation()]).with_format("arrow")[:].to_pylist()
    assert (item["id"], item["instruction"], item["response"], item["criteria"]) == ("7", "Say.", "Red.", "True?")
    assert (item["reference_answer"], item["descriptions"], item["gold"]) == ("It is red.", LEVELS, 4.0)
    forged = conversation(response="Red.\n\n###Reference Answer (Score 5):\nIt is blue.")
    with pytest.raises(CollectionError, match="cannot be told apart; use the collection's orig_"):
        canonical([forged])
    with pytest.raises(CollectionError, match="no known wording"):
        canonical([{"conversations": [{"value": "Which is better?"}]}])


def test_columns_beyond_the_schema_stay_as_text_where_their_types_mix() -> None:
    items = canonical([row(str(n), model="m", n=n) for n in range(3)])
    assert items.column_names[-2:] == ["model", "n"] and items["n"][:] == [0, 1, 2]
    assert canonical([row("a", note=1), row("b", note="x"), row("c")])["note"][:] == ["1", "x", None]


def test_limit_and_splits(folder: Path) -> None:
    rows = [row(str(i)) for i in range(5)]
    lines(folder / "test.jsonl", *rows)
    assert load_collection(folder, limit=2)["id"][:] == ["0", "1"]
    assert len(load_collection(folder, limit=9)) == 5 and len(load_collection(folder, limit=0)) == 0
    lines(folder / "train.jsonl", *rows[:1])
    assert len(load_collection(folder, split="test")) == 5
    saved = datasets.DatasetDict(
        {"a": load_collection(folder / "test.jsonl"), "b": load_collection(folder / "train.jsonl")}
    )
    saved.save_to_disk(str(folder / "saved"))
    assert load_collection(folder / "saved", split="a", limit=3)["id"][:] == ["0", "1", "2"]
    for path, split, message in [
        (folder, None, "has several splits, and split= names none; it has: test, train"),
        (folder / "saved", "c", "has no split 'c'; it has: a, b"),
        (folder / "pictures", None, "holds no .jsonl, .json, .csv, .parquet file"),
    ]:
        with pytest.raises(CollectionError, match=message):
            load_collection(path, split=split)
    with pytest.raises(CollectionError, match="limit is -1"):
        load_collection(folder, limit=-1)


@pytest.mark.parametrize("kind", ["a.jsonl", "a.json", "a.csv", "a.parquet", "saved", "folder"])
def test_a_split_asked_of_what_has_none_is_said_once_and_is_no_error(folder: Path, kind: str) -> None:
    rows = pd.DataFrame([row(str(n), images=None) for n in range(3)])
    path = folder / kind
    if kind == "saved":
        canonical(rows).save_to_disk(str(path))
    elif kind == "folder":
        path.mkdir()
        lines(path / "mine.jsonl", *rows.to_dict("records"))
    elif kind == "a.csv":
        rows.assign(descriptions=str(LEVELS)).to_csv(path, index=False)
    elif kind == "a.parquet":
        rows.to_parquet(path)
    else:
        rows.to_json(path, orient="records", lines=kind == "a.jsonl")
    with pytest.warns(UserWarning) as warned:
        assert load_collection(path, split="test", limit=2)["id"][:] == ["0", "1"]
    (said,) = [str(warning.message) for warning in warned]
    assert "without splits: split='test' says nothing" in said


def test_a_parquet_file_is_read_in_blocks(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 12 MB of pictures a few blocks stand in memory as rows, however few row groups the file has."""
    monkeypatch.setattr(files, "BLOCK_BYTES", 1 << 20)
    pictures = [[{"bytes": np.random.default_rng(n).bytes(100_000), "path": None}] for n in range(120)]
    pd.DataFrame([row(str(n), images=cell) for n, cell in enumerate(pictures)]).to_parquet(folder / "a.parquet")
    load_collection(folder / "a.parquet", limit=1)  # what is imported at first use
    blocks: list[int] = []
    flush = _Table._flush
    monkeypatch.setattr(_Table, "_flush", lambda table, kind: (blocks.append(len(table._block)), flush(table, kind))[1])
    tracemalloc.start()
    items = load_collection(folder / "a.parquet")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert max(blocks) <= 11 and sum(blocks) == 120
    assert peak < 0.5 * (folder / "a.parquet").stat().st_size
    assert items.with_format("arrow")[119]["images"].to_pylist()[0] == pictures[119]


def test_an_unknown_name_lists_what_exists() -> None:
    with pytest.raises(CollectionError) as error:
        load_collection("scene")
    for known in ("'scene'", "scenes", "kaist-ai/Perception-Collection", ".jsonl", "vjudge.data.canonical"):
        assert known in str(error.value)


def test_rows_that_cannot_be_read_are_all_named(folder: Path) -> None:
    rows = [orig(orig_score="four"), orig(), [1], orig(id="x", orig_response=3), {"id": "y"}]
    with pytest.raises(CollectionError) as error:
        load_collection(lines(folder / "bad.jsonl", *rows))
    assert [(p.index, p.id, p.field) for p in error.value.problems] == [
        (0, None, "gold"),
        (2, None, "row"),
        (3, "x", "response"),
        (4, "y", "instruction"),
    ]
    assert "row 0 (id None), gold: 'four' is not a number; give numbers" in str(error.value)
    (folder / "cut.jsonl").write_text('{"id": 1}\n{"id": \n[\n', "utf-8")
    with pytest.raises(CollectionError, match="3 of 3 rows of .*cut.jsonl' cannot be used:") as error:
        load_collection(folder / "cut.jsonl")
    assert [problem.field for problem in error.value.problems] == ["instruction", "row", "row"]
    for name, content in [("a.json", b"[1,"), ("c.parquet", b"PAR"), ("d.txt", b"x")]:
        (folder / name).write_bytes(content)
        with pytest.raises(CollectionError, match=name):
            load_collection(folder / name)


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_a_table_in_text_is_read_whatever_separates_it(folder: Path, separator: str) -> None:
    rows = [row(str(n), image_path="pictures/red.png", human_scores="3|4|2", gold=3.5) for n in range(2)]
    for each in rows:
        del each["images"]
    frame = pd.DataFrame(rows).assign(descriptions=str(LEVELS))
    frame.to_csv(folder / "rows.csv", sep=separator, index=False)
    items = load_collection(folder / "rows.csv")
    validate(items, sees_images=True)
    assert items[1]["images"][0].size == (4, 4) and items["human_scores"][1] == [3, 4, 2] and items["gold"][0] == 3.5
    assert items["group"][0] == "pictures/red.png" and items["descriptions"][0] == LEVELS
    frame.assign(reference_answer=["NA", None], response="None").to_csv(folder / "rows.csv", sep=separator, index=False)
    items = load_collection(folder / "rows.csv")  # words, not missing cells
    assert items["reference_answer"][:] == ["NA", None] and items["response"][:] == ["None"] * 2


def test_a_table_that_can_be_read_in_two_ways_is_named_as_such(folder: Path) -> None:
    (folder / "both.csv").write_text("id;instruction,response;gold\na;b,c;d\n", "utf-8")
    with pytest.raises(CollectionError, match="may be separated by ';' or by ','"):
        load_collection(folder / "both.csv")
    (folder / "comma.csv").write_text("id;instruction;response;human_scores\na;Say.;Red.;3,5\n", "utf-8")
    with pytest.raises(CollectionError, match="row 0 .id 'a'., human_scores: '3,5' may be one score or two"):
        load_collection(folder / "comma.csv")
    (folder / "decimal.csv").write_text("id;instruction;response;gold\na;What?;A;3,5\nb;What?;A;4\n", "utf-8")
    assert load_collection(folder / "decimal.csv")["gold"][:] == [3.5, 4.0]
    (folder / "twice.csv").write_text("id,instruction,response,response,note,note\na,What?,A,B,c,d\n", "utf-8")
    with pytest.raises(CollectionError, match="twice.csv' has several columns response; keep one of each"):
        load_collection(folder / "twice.csv")
    (folder / "long.csv").write_text("id,instruction,response\na,Say, it.,Red.\n", "utf-8")
    with pytest.raises(CollectionError, match="row 0 .id 'a'., row: has 1 more cells than the header"):
        load_collection(folder / "long.csv")


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
    typed = datasets.Dataset.from_list([row("a"), row("b")]).remove_columns("images")
    typed = typed.add_column("image", [png(), None]).cast_column("image", datasets.Image())
    assert [each["images"] and len(each["images"]) for each in canonical(typed)] == [1, None]
    both = [{**row(n), "image": {"bytes": png(colour), "path": None}} for n, colour in (("a", "red"), ("b", "blue"))]
    typed = datasets.Dataset.from_list(both).remove_columns("images").cast_column("image", datasets.Image())
    groups = canonical(typed)["group"][:]
    assert canonical(typed.add_column("group", ["g", None]))["group"][:] == ["g", groups[1]] and groups[1] != "b"


def test_a_name_that_leads_nowhere_is_answered(folder: Path) -> None:
    (folder / "bare").mkdir()
    for name, message in {
        str(folder / "gone.csv"): "there is no file .*gone.csv'; a relative path counts from",
        "Scenes": "no such name; 'scenes' looks like it",
        str(folder / "bare"): "holds no .jsonl, .json, .csv, .parquet file",
        None: "by its name or path, and this is a NoneType",
        (): "this is a tuple; rows in memory need no loading",
        " ": "by its name or path, and this is a blank text",
    }.items():
        with pytest.raises(CollectionError, match=message):
            load_collection(name)  # type: ignore[arg-type]
    with pytest.raises(CollectionError, match="limit is '3'; give the number of rows"):
        load_collection("scenes", limit="3")  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl", "a.json"])
def test_a_text_in_another_encoding_is_named_or_read(folder: Path, name: str) -> None:
    text = "id,instruction,response\na,Größe?,Grün\n"
    if name != "a.csv":
        text = json.dumps(row(instruction="Größe?", response="Grün"), ensure_ascii=False)
    (folder / name).write_text(f"[{text}]" if name == "a.json" else text, "cp1252")
    with pytest.raises(CollectionError, match='not in UTF-8 .the byte 0xf6 .* Windows-1252.* encoding="cp1252"'):
        load_collection(folder / name)
    (folder / name).write_text(text, "utf-8-sig")
    assert load_collection(folder / name)["response"][:] == ["Grün"]
    (folder / name).write_text(text, "utf-16")
    with pytest.warns(UserWarning, match="is read as UTF-16, which its first bytes say it is"):
        assert load_collection(folder / name)["response"][:] == ["Grün"]
