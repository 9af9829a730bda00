"""Judge.grade end to end on a small judge that learned to write verdicts, and on one that did not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from vjudge import data
from vjudge.engines.hf import HFEngine
from vjudge.judge import Judge, load_judge
from vjudge.runs import Run, RunError

COLUMNS = "id judge score expected_score probabilities probability_mass feedback raw failure closed".split()
COLUMNS += "n_prompt_tokens n_new_tokens seconds gold human_scores group criteria".split()


@pytest.fixture(scope="module")
def judge(taught_judge: Path) -> Judge:
    return load_judge(taught_judge, device="cpu")


@pytest.fixture(scope="module")
def clueless(random_judge: Path) -> Judge:
    """A judge of random weights, which never writes a verdict."""
    return load_judge(random_judge, device="cpu")


@pytest.fixture(scope="module")
def graded(judge: Judge, rows: Any) -> pd.DataFrame:
    return judge.grade(rows, max_new_tokens=40, progress=False)


def same(one: pd.DataFrame, other: pd.DataFrame) -> None:
    """Two tables are the same to the bit, timings aside."""
    pd.testing.assert_frame_equal(
        one.drop(columns="seconds"), other.drop(columns="seconds"), check_exact=True
    )


def test_a_row_is_whole(graded: pd.DataFrame, judge: Judge, rows: Any) -> None:
    assert list(graded.columns) == COLUMNS and list(graded["id"]) == [row["id"] for row in rows]
    assert graded["failure"].isna().all() and (graded["score"] == graded["gold"]).mean() > 0.9
    row = graded.iloc[0]
    assert row["judge"] == judge.name
    assert row["raw"].endswith(f"\n[RESULT] {row['score']:.0f}") and row["feedback"] in row["raw"]
    assert list(row["probabilities"]) == [1, 2, 3, 4, 5] and sum(
        row["probabilities"].values()
    ) == pytest.approx(1)
    assert max(row["probabilities"], key=row["probabilities"].get) == row["score"]
    assert row["expected_score"] == pytest.approx(
        sum(n * p for n, p in row["probabilities"].items())
    )
    assert row["n_prompt_tokens"] > 100 and row["n_new_tokens"] < 40 and row["seconds"] > 0
    carried = ["gold", "human_scores", "group", "criteria"]
    assert row[carried].tolist() == [rows[0][name] for name in carried]


def test_score_mode(judge: Judge, rows: Any) -> None:
    """On rubrics of several scales: each verdict is normalised over its own, and is its mode."""
    wide = {**rows[0], "descriptions": ["a", "b", "c"], "gold": 2.0, "human_scores": None}
    zero = {**rows[1], "descriptions": ["a", "b"], "lowest": 0, "gold": 0.0, "human_scores": None}
    frame = judge.grade([wide, zero, *rows[2:6]], mode="score", progress=False)
    assert list(frame.columns) == COLUMNS
    assert [list(p) for p in frame["probabilities"][:3]] == [[1, 2, 3], [0, 1], [1, 2, 3, 4, 5]]
    for _, row in frame.iterrows():
        best = max(row["probabilities"].values())
        assert sum(row["probabilities"].values()) == pytest.approx(1)
        assert row["score"] == min(n for n, p in row["probabilities"].items() if p == best)
        assert (row["raw"], row["feedback"], row["n_new_tokens"], row["failure"]) == (
            "",
            "",
            0,
            None,
        )


def test_samples(judge: Judge, rows: Any) -> None:
    options: dict[str, Any] = {
        "samples": 3,
        "temperature": 1.5,
        "max_new_tokens": 40,
        "progress": False,
    }
    frame = judge.grade(rows[:5], **options)
    assert list(frame.columns[:3]) == ["id", "judge", "sample"]
    assert list(frame["sample"]) == [0, 1, 2] * 5 and list(frame["id"][:4]) == ["item-0"] * 3 + [
        "item-1"
    ]
    assert frame["raw"].nunique() > 5
    same(judge.grade(rows[:5], **options), frame)
    assert list(judge.grade(rows[:5], seed=1, **options)["raw"]) != list(frame["raw"])
    # A verdict's draws belong to its item and number, not to its place in a collection.
    other = judge.grade(rows[3:5], **options)
    alike = other["raw"].to_numpy() == frame["raw"][9:].to_numpy()
    assert alike.sum() >= 5  # of 6: the last bits of another batch may tip a draw


def test_answers_without_a_verdict_stay_without_a_score(
    clueless: Judge, rows: Any, capsys: Any
) -> None:
    frame = clueless.grade(rows[:6], max_new_tokens=8, progress=False)
    assert frame[["score", "expected_score", "probability_mass"]].isna().all(axis=None)
    assert list(frame["probabilities"]) == [None] * 6
    assert frame["failure"].str.contains("no verdict marker|cut off").all()
    assert frame.attrs["closed"] == 0 and not frame["closed"].any()
    assert frame["raw"].str.len().gt(0).all()  # what the judge wrote is kept
    assert sum(frame.attrs["failures"].values()) == 6
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert line.startswith("6 of 6 verdicts failed: ")


def test_bad_rows_and_options_are_all_named_before_any_work(
    judge: Judge, rows: Any, tmp_path: Path
) -> None:
    bad = [dict(row) for row in rows[:5]]
    bad[1]["response"] = " "
    bad[3]["images"] = [str(tmp_path / "none.png")]
    bad[4]["descriptions"] = ["a", "a", "b"]
    with pytest.raises(data.CollectionError, match="(?s)item-1.*item-3.*item-4"):
        judge.grade(bad, out=tmp_path / "run", progress=False)
    assert not (tmp_path / "run").exists()
    with pytest.raises(
        ValueError, match=r"top_p=2.0.*samples=0: use a whole number from 1; seed=0.5"
    ):
        judge.grade(rows[:2], top_p=2.0, samples=0, seed=0.5)  # type: ignore[arg-type]


def test_a_run_is_recorded_and_not_repeated(
    judge: Judge, rows: Any, graded: pd.DataFrame, tmp_path: Path, monkeypatch: Any
) -> None:
    options: dict[str, Any] = {"max_new_tokens": 40, "out": tmp_path, "progress": False}
    same(judge.grade(rows, **options), graded)
    decoding = {"max_new_tokens": 40, "temperature": 0.0, "top_p": 1.0, "seed": 0}
    decoding |= {"repetition_penalty": 1.0, "unread": "missing"}
    assert Run(tmp_path).manifest["decoding"] == decoding
    monkeypatch.setattr(HFEngine, "_compute", lambda *args: pytest.fail("computed again"))
    same(judge.grade(rows, **options), graded)


def test_another_judge_or_decoding_is_refused_in_the_same_folder(
    judge: Judge, clueless: Judge, rows: Any, tmp_path: Path
) -> None:
    options: dict[str, Any] = {"out": tmp_path, "mode": "score", "progress": False}
    judge.grade(rows[:3], **options)
    feedback = r'mode: "score" -> "feedback";.*max_new_tokens: "absent" -> 1024;'
    for other, more, message in (
        (judge, {"mode": "feedback"}, feedback),
        (clueless, {}, r'judge: .*; weights: "'),
    ):
        with pytest.raises(RunError, match=message):
            other.grade(rows[:3], **options | more)
    judge.grade(rows[:3], batch_size=1, **options)  # no verdict depends on it


KILLS = """
import json, os, pickle, random, select, signal, sys, time, warnings
import torch
torch.set_num_threads(1)
sys.path.insert(0, sys.argv[4])
from conftest import make_rows
from vjudge.judge import load_judge
from vjudge.runs import Run

folder, out, result, size = *sys.argv[1:4], int(sys.argv[5])
warnings.simplefilter("ignore")
judge, rows = load_judge(folder, device="cpu"), make_rows(size)
options = dict(max_new_tokens=14, batch_size=3, temperature=1.0, progress=False)
sys.stderr = open(os.devnull, "w")
unbroken = judge.grade(rows, **options)
reported, kills, status, append = [], 0, signal.SIGKILL, Run.append

def reporting(self, verdicts):
    for verdict in list(verdicts):
        append(self, [verdict])
        os.write(there, (json.dumps([verdict["id"], verdict["sample"]]) + "\\n").encode())
        time.sleep(0.01)

random = random.Random(0)
while status == signal.SIGKILL:
    here, there = os.pipe()
    child = os.fork()
    if not child:
        Run.append = reporting
        judge.grade(rows, out=out, **options)
        os._exit(0)
    os.close(there)
    select.select([here], [], [])  # the first verdicts of this child are reported, or it is done
    time.sleep(random.choice([0.0, random.uniform(0.0, 0.05)]))
    finished, status = os.waitpid(child, os.WNOHANG)
    if not finished:
        os.kill(child, signal.SIGKILL)
        finished, status = os.waitpid(child, 0)
    with open(here) as pipe:
        reported += [tuple(json.loads(line)) for line in pipe.read().splitlines()]
    kills += status == signal.SIGKILL
pickle.dump((unbroken, judge.grade(rows, out=out, **options), reported, kills), open(result, "wb"))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGKILL on Windows")
def test_kill_at_random_moments(random_judge: Path, tmp_path: Path) -> None:
    """Kill a run, again and again until it is through: nothing lost, nothing twice, the same table."""
    size = int(os.environ.get("VJUDGE_KILL_ROWS", 16))
    arguments = [
        str(random_judge),
        str(tmp_path / "run"),
        str(tmp_path / "result"),
        str(Path(__file__).parents[1]),
    ]
    subprocess.run(
        [sys.executable, "-c", KILLS, *arguments, str(size)], check=True, timeout=100 * size
    )
    unbroken, final, reported, kills = pd.read_pickle(tmp_path / "result")
    print(f"{kills} kills")
    assert kills >= size // 12
    lines = (tmp_path / "run" / "verdicts.jsonl").read_text(encoding="utf-8").splitlines()
    written = [(line["id"], line["sample"]) for line in map(json.loads, lines)]
    assert len(written) == len(set(written)) == size
    # None that was reported is lost, and none was reported as done twice.
    assert set(reported) <= set(written) and len(reported) == len(set(reported))
    same(final, unbroken)
    assert np.isfinite(final["seconds"]).all()
