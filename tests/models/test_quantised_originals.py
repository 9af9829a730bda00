"""The original code's small checkpoints in few bits, on a CPU: layers of odd sizes among them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import vjudge as vj

ORIGINALS = Path(__file__).parents[3] / "shared" / "fixtures"
CHECKPOINTS = ("llava15-original/llava-st-vt", "llava-next-original/llava-critic-qwen-tiny")


@pytest.mark.parametrize("way", [{"quantization": "4bit"}, {"quantization": "8bit"}, {"dtype": "bfloat16"}], ids=str)
@pytest.mark.parametrize("name", CHECKPOINTS)
def test_original_checkpoints_answer_in_few_bits(
    name: str, way: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = ORIGINALS / name
    if not folder.is_dir():
        pytest.skip("the original code's checkpoints are not beside this checkout")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    judge = vj.load_judge(folder, device="cpu", **way)
    identity = judge.engine.identity()
    assert identity["quantization"] == way.get("quantization")
    assert identity["dtype"] == way.get("dtype", "float32")
    row = next(iter(vj.load_collection("scenes", split="test", limit=1)))
    row["images"] = [folder.parent / "images" / "square.png"]
    logits = judge.forward("What is it?", row["images"]).logits
    assert logits is not None and bool(logits.isfinite().all())
    assert judge.grade([row], max_new_tokens=3, progress=False)["failure"].notna().all()  # random weights: no verdict
