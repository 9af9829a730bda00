"""What DPO learns by steps below bfloat16's grid is learned in low precision too, stored, and added up over rounds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("trl")

from vjudge import models, preference  # noqa: E402
from vjudge.preference.dpo import DpoSettings, train  # noqa: E402

TINY = Path(models.__file__).parents[1] / "assets/tiny"
RATE = 1e-5  # the weights are about .06, where bfloat16's grid is 2.4e-4 wide: a step is less than a twentieth of it
SMALL = {"learning_rate": RATE, "batch_size": 4, "microbatch": 4, "epochs": 4}


@pytest.fixture(scope="module")
def pairs() -> list[dict[str, Any]]:
    questions = preference.scene_questions("train", limit=8)
    texts = {"chosen": "(1) red comes to two.", "rejected": "(1) wrong, it is blue."}
    return [{"id": row["id"], "instruction": row["instruction"], "images": row["images"], **texts} for row in questions]


def margin(policy: Path, pairs: Any) -> float:
    """By how much a stored policy, computed in float32, prefers what was chosen: mean log-odds."""
    from vjudge.preference.dpo import PairBatches

    loaded: Any = preference.load_policy(policy, dtype="float32")
    model = loaded.engine.model.model
    batch = PairBatches(loaded.engine.model, loaded.conversation)(pairs)
    completed = batch.pop("completion_mask")[:, 1:]
    with torch.no_grad():
        logits = model(**batch).logits[:, :-1].log_softmax(-1)
    chances = logits.gather(-1, batch["input_ids"][:, 1:, None])[..., 0]
    chosen, rejected = (chances * completed).sum(1).double().chunk(2)
    return float((chosen - rejected).mean())


LORA = {"r": 8, "lora_alpha": 16}


@pytest.mark.parametrize("lora", [None, LORA], ids=["full", "lora"])
def test_bfloat16_learns_what_float32_learns_and_two_rounds_add_up(pairs: Any, tmp_path: Path, lora: Any) -> None:
    start, learned = margin(TINY, pairs), {}
    for dtype in ("float32", "bfloat16"):
        policy = TINY
        for number in (1, 2):
            out = tmp_path / f"{dtype}-{number}"
            train(policy, pairs, out, DpoSettings(**SMALL, dtype=dtype, lora=lora))
            learned[dtype, number] = margin(out, pairs) - start
            policy = out
    print(learned)
    for number in (1, 2):
        assert learned["float32", number] > 0.01
        assert learned["bfloat16", number] >= 0.8 * learned["float32", number]
    assert learned["bfloat16", 2] > 1.5 * learned["bfloat16", 1]
