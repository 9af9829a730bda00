"""The way of a published data set: its real rows train a judge, which grades rows and gets the benchmark's number."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

import vjudge as vj
from vjudge.data import validate
from vjudge.training import fine_tune

SAMPLES = Path(__file__).parents[3] / "shared" / "data" / "prometheus_vision_samples"


def longer(folder: Path) -> Path:
    """The embedded base with room for published prompts, which have some 3,000 of its bytes' tokens."""
    shutil.copytree(Path(vj.__file__).parent / "assets" / "tiny-base", folder)
    config = json.loads((folder / "config.json").read_text())
    config["text_config"]["max_position_embeddings"] = 4096
    (folder / "config.json").write_text(json.dumps(config))
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps(settings | {"model_max_length": 4096}))
    return folder


@pytest.mark.skipif(not SAMPLES.is_dir(), reason="the published samples are not at hand")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("quantization", [None, "4bit"], ids=["LoRA", "QLoRA"])
def test_published_rows_train_a_judge_that_gets_its_benchmarks_number(quantization: str | None, tmp_path: Path) -> None:
    """Prometheus-Vision's three training rows and three evaluation rows; only the pictures are ours."""
    if quantization:
        pytest.importorskip("bitsandbytes")
    for name in ("sample_train_data.json", "sample_eval_data.jsonl"):
        shutil.copy(SAMPLES / name, tmp_path / name)
    train, test = (vj.load_collection(tmp_path / name) for name in ("sample_train_data.json", "sample_eval_data.jsonl"))
    pictures = {picture["path"] for row in vj.data.rows_of(train) for picture in row["images"]}
    pictures |= {picture["path"] for row in vj.data.rows_of(test) for picture in row["images"]}
    for number, path in enumerate(sorted(pictures)):
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Image.effect_noise((64 + number, 64), 90).convert("RGB").save(path)
    validate(train)
    validate(test)
    options: dict[str, Any] = {"lora": True, "quantization": quantization, "allow": ["length", "scores"]}
    options |= {"steps": 2, "max_length": 4096, "batch_size": 1, "progress": False}
    judge = fine_tune(longer(tmp_path / "tiny-base"), train, out=tmp_path / "judge", **options)
    assert json.loads((judge / "judge.json").read_text())["template"] == "prometheus-vision"
    graded = vj.load_judge(judge, device="cpu").grade(train, mode="score", progress=False)
    assert graded["score"].notna().all() and graded["gold"].tolist() == [1, 2, 3]
    table = vj.benchmark(graded.assign(score=graded["expected_score"]), name="perception-bench", n_resamples=100)
    assert table.index[0] == ("overall", "pearson", "left out") and table["official"].all()
    assert table["n"].iloc[0] == 3 and -1 <= table["estimate"].iloc[0] <= 1
    unscored = vj.load_judge(judge, device="cpu").grade(test, mode="score", progress=False)
    with pytest.raises(ValueError, match="Perception-Bench needs true score"):
        vj.benchmark(unscored, name="perception-bench")
