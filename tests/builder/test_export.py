"""The exported folder: loaded, taken apart and trained on as what was built."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest
import yaml

import vjudge as vj
from vjudge import builder, data
from vjudge.records import Item

SAMPLES = Path(__file__).parents[3] / "shared/data/prometheus_vision_samples/sample_train_data.json"


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    generator = builder.ScriptedGenerator(2, planted={"not JSON": 0.1})
    return builder.build(generator.images, generator, out=tmp_path_factory.mktemp("b") / "out", progress=False)


@pytest.fixture(scope="module")
def folder(built, tmp_path_factory):
    return built.export(tmp_path_factory.mktemp("c") / "c", name="Scenes, by script", license="cc0-1.0", note="Drawn.")


def test_the_folder_loads_as_what_was_built(built, folder):
    items = vj.load_collection(folder)
    data.validate(items)
    assert data.fingerprint(items) == data.fingerprint(built.items())
    with pytest.raises(data.CollectionError, match="holds something already"):
        built.export(folder)


def test_a_file_keeps_its_bytes(built, tmp_path):
    (name, content), *_ = built.images.items()
    (tmp_path / "a.png").write_bytes(content + b"more")
    one = builder.Build(**vars(built) | {"images": built.images | {name: tmp_path / "a.png"}})
    assert (one.export(tmp_path / "c") / "images" / f"{name}.png").read_bytes() == content + b"more"


def test_the_card_says_what_is_in_it_and_how_it_was_made(built, folder):
    text = (folder / "README.md").read_text()
    head = yaml.safe_load(text.split("---")[1])
    assert head["license"] == "cc0-1.0" and head["configs"][0]["data_files"][0]["path"] == "train.parquet"
    n_broken = built.faults().at["not JSON", "all"]
    versions = [stage.version for stage in builder.STAGES.values()]
    lines = ("2 of 2 images, 6 rubrics, 12 instructions", "60 responses", f"not JSON: {n_broken} (", built.generator)
    assert n_broken and all(line in text for line in (*lines, *versions, "Drawn."))


def test_a_built_row_passes_what_a_published_one_passes(folder):
    """Prompt and target are those of the published training rows, and can be taken apart again byte for byte."""
    built = pd.read_parquet(folder / "train.parquet").to_dict("records")
    levels = [f"orig_score{n}_description" for n in range(1, 6)]
    names = ["image", "instruction", "output", "orig_instruction", "orig_response", "orig_reference_answer"]
    assert [*built[0]][:13] == [*names, "orig_criteria", *levels, "orig_feedback"]
    rows = json.loads(SAMPLES.read_text()) if SAMPLES.exists() else []
    for row in built:
        closing = f"So the overall score is {row['orig_score']}.\n[RESULT] {row['orig_score']}"
        assert row["output"] == f"{row['orig_feedback']} {closing}"
        turns = (("human", f"<image>\n{row['instruction']}"), ("gpt", row["output"]))
        turns = [{"from": who, "value": text} for who, text in turns]
        rows.append({"id": row["id"], "image": row["image"], "conversations": turns})
    for row, item in zip(rows, map(Item.from_row, data.rows_of(data.canonical(rows))), strict=True):
        assert item.rubric and len(item.rubric.descriptions) == 5
        prompt, target = (turn["value"] for turn in row["conversations"])
        assert vj.prompts.target(item.feedback, int(item.gold)) == target
        assert vj.prompts.TEMPLATES["prometheus-vision"].render(item).text.endswith(f"{prompt} ASSISTANT:")


def test_a_judge_trains_on_the_exported_folder(folder, tmp_path):
    """Two steps from the embedded judge, on the folder as a user would load it."""
    pytest.importorskip("torch")
    from vjudge.training import fine_tune

    items = vj.load_collection(folder).select(range(10))
    judge = fine_tune("tiny", items, out=tmp_path, steps=2, batch_size=5, device="cpu", progress=False)
    (verdict,) = vj.load_judge(judge).grade(items.select([0]), progress=False).to_dict("records")
    assert verdict["raw"]
