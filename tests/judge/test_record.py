"""The record of a run: a collection that grew reuses what is there, and a line belongs to its run."""

from __future__ import annotations

import math
import shutil
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from stand_in import QUIET, judge_of, pair

from vjudge.judge import Judge
from vjudge.runs import Run, RunError


def grader(name: str = "scripted") -> Judge:
    """A judge whose score depends on what it is shown alone."""

    def write(prompt: Any, ask: Any, place: int) -> tuple[str, Any]:
        score = 1 + len(prompt.text) % 5
        logprobs = {n: math.log(0.9 if n == score else 0.02) for n in ask.scale(place)}
        return f"So. [RESULT] {score}", logprobs

    return judge_of(write, name)


@pytest.mark.parametrize(
    ("change", "asked", "said"),
    [
        (lambda rows: rows[:6], 0, ""),
        (lambda rows: rows[:9], 3, "reused 6, new 3, 0 kept"),
        (lambda rows: rows[2:5], 0, "reused 3, new 0, 3 kept"),
        (lambda rows: rows[5::-1], 0, ""),
        (lambda rows: [{**rows[0], "response": "other"}, *rows[1:6]], 1, "reused 5, new 1, 1 kept"),
        (lambda rows: [{**rows[0], "images": rows[-1]["images"]}, *rows[1:6]], 1, "new 1, 1 kept"),
        (lambda rows: [{**row, "gold": 3.0} for row in rows[:6]], 0, ""),
        (
            lambda rows: [{**row, "descriptions": list("ab")} for row in rows[:6]],
            6,
            "new 6, 6 kept",
        ),
    ],
)
def test_a_changed_collection_reuses_what_is_there(
    change: Any, asked: int, said: str, rows: Any, tmp_path: Path, capsys: Any
) -> None:
    rows = [{**row, "human_scores": None, "gold": None} for row in rows[:-1]] + [rows[-1]]
    changed = change(rows)
    grader().grade(rows[:6], out=tmp_path, **QUIET)
    capsys.readouterr()
    judge = grader()
    frame = judge.grade(changed, out=tmp_path, **QUIET)
    assert judge.engine.asked == asked  # type: ignore[attr-defined]
    assert said in capsys.readouterr().err
    pd.testing.assert_frame_equal(frame, grader().grade(changed, **QUIET))
    again = grader()
    again.grade(changed, out=tmp_path, **QUIET)
    assert again.engine.asked == 0  # type: ignore[attr-defined]
    assert "reused" not in capsys.readouterr().err


def test_more_samples_reuse_the_first(rows: Any, tmp_path: Path) -> None:
    options: dict[str, Any] = {"temperature": 1.0, "out": tmp_path, **QUIET}
    judge = grader()
    judge.grade(rows[:4], samples=2, **options)
    judge.grade(rows[:4], samples=3, **options)
    assert judge.engine.asked == 12  # type: ignore[attr-defined]
    pairs = [pair("1"), pair("2")]
    assert len(judge.grade(rows[:4], samples=3, **options)) == 12
    with pytest.raises(RunError, match="template.name"):
        judge.compare(pairs, samples=2, **options)


@pytest.mark.filterwarnings("ignore:.*damaged lines:RuntimeWarning")
def test_lines_copied_from_another_judges_folder_are_never_taken_over(
    rows: Any, tmp_path: Path
) -> None:
    mine, other = tmp_path / "mine", tmp_path / "other"
    for name, folder in (("mine", mine), ("other", other)):
        grader(name).grade(rows[:4], out=folder, **QUIET)
    shutil.copy(other / "verdicts.jsonl", mine / "verdicts.jsonl")
    judge = grader("mine")
    with pytest.warns(RuntimeWarning, match="4 damaged lines .*copied from another run.*moved to"):
        judge.grade(rows[:4], out=mine, **QUIET)
    assert judge.engine.asked == 4  # type: ignore[attr-defined]
    assert len(Run(mine).verdicts()) == 4
    assert len((mine / "damaged.jsonl").read_bytes().splitlines()) == 4
