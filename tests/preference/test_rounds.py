"""Rounds of preference learning on a small random policy: to the bit, on from a cut."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("trl")

from samples import judge_of  # noqa: E402
from vjudge import models  # noqa: E402
from vjudge.preference import dpo  # noqa: E402
from vjudge.preference.dpo import run_rounds  # noqa: E402
from vjudge.runs import RunError  # noqa: E402

DRAWS = {"samples": 3, "temperature": 1.0, "max_new_tokens": 8, "progress": False}
TRAINING = {"learning_rate": 1e-3, "per_device_train_batch_size": 2, "save_strategy": "steps"}
TRAINING |= {"gradient_accumulation_steps": 1, "save_steps": 1}
KEPT = ("verdicts.jsonl", "pairs.json", "dpo.json", "model.safetensors")


def judge(left: int = 999) -> Any:
    """Scores a response by its length, notes the prompts, and stops after so many verdicts."""

    def write(text: str) -> str:
        if len(by.prompts) == left:
            raise KeyboardInterrupt
        by.prompts.append(text)
        return f"Long enough. [RESULT] {len(text) % 5 + 1}"

    by: Any = judge_of(write, template="prometheus-vision")
    by.prompts = []
    return by


@pytest.fixture(scope="module")
def call(rows: list[dict[str, Any]], random_judge: Path) -> Callable[..., Any]:
    asked = [row | {"response": None, "gold": None} for row in rows[:6]]

    def run(out: Path, *, by: Any = None, **options: Any) -> Any:
        options = {"draws": DRAWS, "rewards": {"progress": False}, "training": TRAINING, **options}
        return run_rounds(random_judge, asked, by or judge(), out, rounds=2, **options)

    return run


@pytest.fixture(scope="module")
def whole(call: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Any]]:
    out = tmp_path_factory.mktemp("rounds") / "whole"
    return out, call(out)


def state(out: Path) -> dict[str, bytes]:
    """The files that a later call must leave as they are."""
    files = {}
    for path in out.glob("round-*/**/*"):
        unfinished = path.with_name("checkpoints").exists() or "checkpoints" in path.parts
        if path.name in KEPT and not unfinished:
            files[str(path.relative_to(out))] = path.read_bytes()
    return files


def result(rounds: list[Any]) -> list[Any]:
    """What rounds come to, to the bit."""
    found = []
    for each in rounds:
        tables = (each.rewards.to_csv(), each.pairs.drop(columns="images").to_csv())
        losses = [entry["loss"] for entry in each.record["log"]]
        found.append((tables, models.weights_fingerprint(each.policy), losses))
    return found


def stop(*_: Any, **__: Any) -> None:
    raise KeyboardInterrupt


def test_each_round_starts_from_the_last_ones_policy_and_draws_anew(
    whole: Any, random_judge: Path
) -> None:
    out, (first, second) = whole
    for number, (each, start) in enumerate(((first, random_judge), (second, first.policy))):
        identity = each.record["identity"]
        assert identity["start"] == models.weights_fingerprint(start)
        assert identity["settings"]["seed"] == number
    drawn = [[row["responses"] for row in each.candidates] for each in (first, second)]
    assert drawn[0] != drawn[1]
    assert len(first.pairs) > 1 and (first.pairs["margin"] > 0).all()
    assert second.record["log"][0]["loss"] == pytest.approx(0.6931, abs=1e-3), "its own reference"
    stored = json.loads((out / "round-1/pairs.json").read_text(encoding="utf-8"))
    assert [pair["id"] for pair in stored["pairs"]] == first.pairs["id"].tolist()
    assert stored["account"] == first.pairs.attrs


def test_rounds_cut_off_anywhere_go_on_and_end_the_same(
    whole: Any, call: Any, tmp_path: Path, monkeypatch: Any
) -> None:
    out = tmp_path / "cut"
    asked = 0
    # among verdicts; before training; at its end, without the policy; in the second round
    for left, at in ((5, ""), (999, "train"), (999, "weights.write_checkpoint"), (3, "")):
        by = judge(left)
        before = state(out)
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            if at:
                patch.setattr(f"vjudge.preference.dpo.{at}", stop)
            call(out, by=by)
        asked += len(by.prompts)
        now = state(out)
        assert all(now[name].startswith(data) for name, data in before.items())
    by = judge()
    assert result(call(out, by=by)) == result(whole[1])
    n_verdicts = sum(len(each.rewards) for each in whole[1])
    assert asked + len(by.prompts) == n_verdicts, "none twice"
    before = state(out)
    monkeypatch.setattr(dpo, "Trainer", lambda **_: pytest.fail("trained again"))
    assert result(call(out, by=judge(0))) == result(whole[1]) and state(out) == before


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"draws": DRAWS | {"seed": 7}}, "seed: 0 -> 7"),
        ({"pairs": {"min_margin": 1.0}}, "holds a round with other pairs: use another folder"),
        ({"training": TRAINING | {"beta": 0.5}}, "other settings"),
    ],
)
def test_a_folder_of_another_call_is_refused_and_left_as_it_is(
    whole: Any, call: Any, change: dict[str, Any], message: str
) -> None:
    before = state(whole[0])
    with pytest.raises((RunError, ValueError), match=message):
        call(whole[0], **change)
    assert state(whole[0]) == before
