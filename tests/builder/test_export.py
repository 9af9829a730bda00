"""The exported folder: loaded, taken apart and trained on as what was built."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

import vjudge as vj
from vjudge import builder, data
from vjudge.prompts.parse import parse
from vjudge.records import Item

SHARED = Path(__file__).parents[3] / "shared" / "data"


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
    assert items[0]["images"][0].size == (192, 192) and len(list((folder / "images").iterdir())) == 2
    with pytest.raises(data.CollectionError, match="holds something already"):
        built.export(folder)


def test_the_card_says_what_is_in_it_and_how_it_was_made(built, folder):
    text = (folder / "README.md").read_text()
    head = yaml.safe_load(text.split("---")[1])
    assert head["license"] == "cc0-1.0" and head["configs"][0]["data_files"][0]["path"] == "train.parquet"
    n_broken = built.faults().at["not JSON", "all"]
    versions = [stage.version for stage in builder.STAGES.values()]
    lines = ("2 of 2 images, 6 rubrics, 12 instructions", "60 responses", f"not JSON: {n_broken} (", built.generator)
    assert n_broken and all(line in text for line in (*lines, *versions, "Drawn."))


def test_the_columns_are_perception_collection_s(folder):
    import pandas as pd

    rows = pd.read_parquet(folder / "train.parquet").to_dict("records")
    levels = [f"orig_score{n}_description" for n in range(1, 6)]
    names = ["image", "instruction", "output", "orig_instruction", "orig_response", "orig_reference_answer"]
    names += ["orig_criteria", *levels, "orig_feedback", "orig_score"]
    assert [*rows[0]][: len(names)] == names
    for row in rows:
        assert (folder / row["image"]).is_file()
        assert parse(row["output"], scores=(1, 2, 3, 4, 5)).score == row["orig_score"]
        closing = f"So the overall score is {row['orig_score']}.\n[RESULT] {row['orig_score']}"
        assert row["output"] == f"{row['orig_feedback']} {closing}"


@pytest.mark.parametrize("source", ["published", "built"])
def test_a_built_row_passes_what_a_published_one_passes(source, built):
    """Prompt and target are those of the published training rows, and can be taken apart again byte for byte."""
    if source == "published":
        path = SHARED / "prometheus_vision_samples" / "sample_train_data.json"
        if not path.exists():
            pytest.skip("the published samples are not beside this checkout")
        rows = json.loads(path.read_text())
    else:
        published = [builder.published_row(row, f"{row['group']}.png") for row in built.rows()]
        rows = [
            {
                "id": row["id"],
                "image": row["image"],
                "conversations": [
                    {"from": "human", "value": f"<image>\n{row['instruction']}"},
                    {"from": "gpt", "value": row["output"]},
                ],
            }
            for row in published
        ]
    for row, item in zip(rows, map(Item.from_row, data.rows_of(data.canonical(rows))), strict=True):
        assert item.rubric and len(item.rubric.descriptions) == 5 and item.gold in item.rubric.scores
        asked, told = (turn["value"] for turn in row["conversations"])
        assert vj.prompts.target(item.feedback, int(item.gold)) == told
        assert vj.prompts.TEMPLATES["prometheus-vision"].render(item).text.endswith(f"{asked} ASSISTANT:")


def test_a_judge_trains_on_the_exported_folder(folder, tmp_path):
    """Two steps from the embedded judge, on the folder as a user would load it."""
    pytest.importorskip("torch")
    from vjudge.training import fine_tune

    items = vj.load_collection(folder)
    judge = fine_tune(
        "tiny", items.select(range(10)), out=tmp_path, steps=2, batch_size=5, device="cpu", progress=False
    )
    (verdict,) = vj.load_judge(judge).grade(items.select([0]), progress=False).to_dict("records")
    assert verdict["raw"]
