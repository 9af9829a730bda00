"""What trainings came to: readings of logs and of ablations whose truth is known."""

import json

from pandas import DataFrame
from pytest import mark

from vjudge import training

FULL = {"ablation": "full recipe", "pearson": 0.9, "low": 0.8, "high": 1.0, "difference": None}


def line(name, pearson, difference, p):
    """A row of an ablation, its interval .1 wide to both sides."""
    row = {"ablation": name, "pearson": pearson, "difference": difference, "p_holm": p}
    for column, value in (("", pearson), ("difference_", difference)):
        row |= {f"{column}low": value - 0.1, f"{column}high": value + 0.1}
    return row


def test_a_log_is_read_with_its_best_step_and_what_it_teaches(tmp_path):
    entries = [
        {"step": 0, "pearson": None, "low": None, "high": None, "parsed": 0.0, "n": 9},
        {"step": 1, "loss": 8.0},
        {"step": 10, "loss": 0.5},
        {"step": 10, "pearson": 0.8, "low": 0.7, "high": 0.9, "parsed": 1.0, "n": 9},
        {"step": 20, "loss": 0.25},
        {"step": 20, "pearson": 0.9, "low": 0.8, "high": 0.95, "parsed": 0.5, "n": 9},
    ]
    text = "\n".join(map(json.dumps, entries))
    (tmp_path / "training_log.jsonl").write_text(text)
    (tmp_path / "manifest.json").write_text("{}")
    result = training.training_log(tmp_path)
    assert "from 8 at step 1 to 0.25 at step 20" in result.reading
    assert "highest at step 10, r = .80 [.70, .90]" in result.reading  # .9 times half the verdicts
    assert result.caveats == ["this training has not ended."]
    manifest = {"result": {"lesson": "the loss rose"}}
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    assert training.training_log(tmp_path).caveats == ["the loss rose."]
    assert not training.training_log(tmp_path / "none").computed


def test_a_training_that_has_only_graded_its_base_has_no_loss_yet(tmp_path):
    entry = {"step": 0, "pearson": 0.1, "low": 0.0, "high": 0.2, "parsed": 1.0, "n": 9}
    (tmp_path / "training_log.jsonl").write_text(json.dumps(entry))
    (tmp_path / "manifest.json").write_text("{}")
    assert "no loss is logged yet" in training.training_log(tmp_path).reason


@mark.parametrize(
    "rows, reading",
    [
        (
            [line("no image", 0.1, -0.8, 0.01)],
            "do, after Holm: no image \u2212.80 [\u2212.90, \u2212.70].",
        ),
        ([line("no rubric", 0.9, 0.0, 0.9)], "do, after Holm: none. Not decided so: no rubric."),
        ([line("nothing", float("nan"), float("nan"), None)], "Without a correlation: nothing."),
    ],
)
def test_ablations_are_told_by_their_intervals(rows, reading, tmp_path):
    table = DataFrame([FULL, *rows])
    assert training.ablations(table).reading.endswith(reading)
    table.to_csv(tmp_path / "a.csv", index=False)
    assert training.ablations(tmp_path / "a.csv").reading.endswith(reading)
    assert not training.ablations(tmp_path / "gone.csv").computed


def test_losses_are_compared_over_examples():
    logs = {"mine": DataFrame({"examples": [16, 1600], "loss": [2.0, 0.1]})}
    assert "mine: from 2 to 0.1 in 1,600." in training.losses(logs).reading
