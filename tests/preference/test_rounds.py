"""Rounds of preference learning on a small random policy: to the end, to the bit, on from where they were cut off."""

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
TRAINING = {
    "learning_rate": 1e-3,
    "per_device_train_batch_size": 2,
    "gradient_accumulation_steps": 1,
}
TRAINING |= {"save_strategy": "steps", "save_steps": 1}


def judge(stop_after: int = 999) -> Any:
    """A judge that scores a response by its length, notes the prompts, and stops after so many verdicts."""

    def write(text: str) -> str:
        if len(by.prompts) == stop_after:
            raise KeyboardInterrupt
        by.prompts.append(text)
        return f"Long enough. [RESULT] {len(text) % 5 + 1}"

    by: Any = judge_of(write, template="prometheus-vision")
    by.prompts = []
    return by


@pytest.fixture(scope="module")
def call(rows: list[dict[str, Any]], random_judge: Path) -> Callable[..., Any]:
    asked = [
        {name: value for name, value in row.items() if name not in ("response", "gold")}
        for row in rows[:6]
    ]

    def run(out: Path, *, by: Any = None, n: int = 2, **options: Any) -> Any:
        options = {"draws": DRAWS, "rewards": {"progress": False}, "training": TRAINING, **options}
        return run_rounds(random_judge, asked, by or judge(), out, rounds=n, **options)

    return run


@pytest.fixture(scope="module")
def whole(call: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Any]]:
    out = tmp_path_factory.mktemp("rounds") / "whole"
    return out, call(out)


def state(out: Path) -> dict[str, bytes]:
    """What a later call must leave as it is."""
    kept = ("verdicts.jsonl", "pairs.json", "dpo.json", "model.safetensors")
    files = [
        path
        for path in out.glob("round-*/**/*")
        if path.name in kept and "checkpoints" not in path.parts
    ]
    files = [
        path for path in files if not path.with_name("checkpoints").exists()
    ]  # else it is a training to go on
    return {str(path.relative_to(out)): path.read_bytes() for path in files}


def result(rounds: list[Any]) -> list[Any]:
    """What rounds come to, to the bit."""
    tables = [
        (each.rewards.to_csv(), each.pairs.drop(columns="images").to_csv()) for each in rounds
    ]
    weights = [models.weights_fingerprint(each.policy) for each in rounds]
    losses = [[entry["loss"] for entry in each.record["log"]] for each in rounds]
    return [tables, weights, losses]


def stop(*_: Any, **__: Any) -> None:
    raise KeyboardInterrupt


def test_each_round_starts_from_the_last_ones_policy_and_draws_anew(
    whole: Any, random_judge: Path
) -> None:
    out, (first, second) = whole
    assert second.policy == out / "round-2/policy"
    starts = [models.weights_fingerprint(random_judge), models.weights_fingerprint(first.policy)]
    assert [each.record["identity"]["start"] for each in (first, second)] == starts
    assert [each.record["identity"]["settings"]["seed"] for each in (first, second)] == [0, 1]
    assert [row["responses"] for row in first.candidates] != [
        row["responses"] for row in second.candidates
    ]
    assert len(first.pairs) > 1 and (first.pairs["margin"] > 0).all()
    assert second.record["log"][0]["loss"] == pytest.approx(0.6931, abs=1e-3)  # its own reference
    stored = json.loads((out / "round-1/pairs.json").read_text(encoding="utf-8"))
    assert [pair["id"] for pair in stored["pairs"]] == first.pairs["id"].tolist()
    assert stored["account"] == first.pairs.attrs


def test_rounds_cut_off_anywhere_go_on_and_end_the_same_and_a_finished_call_does_nothing(
    whole: Any, call: Any, tmp_path: Path, monkeypatch: Any
) -> None:
    out, made, asked = tmp_path / "cut", whole[1], []
    verdicts = sum(
        len(row["responses"])
        for each in made
        for row in each.candidates
        if len(row["responses"]) > 1
    )

    def cut(stop_after: int = 999, at: str = "") -> None:
        by, before = judge(stop_after=stop_after), state(out)
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            if at:
                patch.setattr(f"vjudge.preference.dpo.{at}", stop)
            call(out, by=by)
        asked.append(len(by.prompts))
        assert all(
            state(out)[name].startswith(data) for name, data in before.items()
        )  # what was there, there is

    cut(stop_after=5)  # among verdicts
    cut(at="train")  # between pairs and training
    cut(
        at="weights.write_checkpoint"
    )  # at the end of training: the policy is not there, its checkpoints are
    assert {path.name for path in (out / "round-1/policy").iterdir()} == {"dpo.json", "checkpoints"}
    cut(stop_after=3)  # in the second round, among verdicts
    by = judge()
    assert result(call(out, by=by)) == result(made)
    assert sum(asked) + len(by.prompts) == verdicts
    before, by = state(out), judge()
    monkeypatch.setattr(dpo, "Trainer", lambda **_: pytest.fail("trained again"))
    assert result(call(out, by=by)) == result(made) and state(out) == before and not by.prompts


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
    out, before = whole[0], state(whole[0])
    with pytest.raises((RunError, ValueError), match=message):
        call(out, **change)
    assert state(out) == before
