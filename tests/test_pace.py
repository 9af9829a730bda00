"""The batch size that a long call finds: by hand, and that a continued run computes what an unbroken one does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from conftest import make_rows

from vjudge import models
from vjudge.engines import TorchEngine
from vjudge.engines.pace import LONG, SIZES, Pace
from vjudge.judge import Judge, load_judge
from vjudge.prompts import TEMPLATES
from vjudge.records import Item
from vjudge.runs import Run

TEMPLATE = TEMPLATES["prometheus-vision"]
ASKED: dict[str, Any] = {"score_texts": {n: f" {n}" for n in range(1, 6)}, "marker": "[RESULT]"}


@pytest.mark.parametrize(
    ("seconds", "found"),
    [
        ((3, 2, 2, 2, 1, 2), 2.0),  # the fastest of two passes counts: 2, 2 and 1
        ((2, 2, 2, 2, 1.95, 2), 1.0),  # twice as many rows are faster, but by less than may be chance
        ((1, 2, 2, 2, 2, 2), 0.5),
        ((1, 1, 1, 2, 2, 2), 1.0),
    ],
)
def test_the_fastest_size_is_chosen(seconds: Any, found: float) -> None:
    pace, tried = Pace(tries=True, times=2), []
    for each in seconds:
        assert pace.found is None and pace.sizes == SIZES
        tried.append(pace.size)
        pace.took(10, 10 * each)
    assert tried == [0.5, 0.5, 1.0, 1.0, 2.0, 2.0]
    assert pace.found == pace.size == found and pace.sizes == (found,)


def test_what_was_not_measured_is_not_chosen() -> None:
    pace = Pace(tries=True, times=1)
    pace.took(10, 1.0)
    pace.settle()  # the rows ran out before the planned size had its turn
    assert pace.found == 1.0
    assert Pace(tries=False, times=1).size == 1.0


def test_a_choice_that_is_known_is_not_made_again() -> None:
    """The passes have the sizes that they had, and then the one that was chosen."""
    pace = Pace(tries=True, times=1, found=0.5)
    sizes = []
    for seconds in (3, 2, 1, 1):
        sizes.append(pace.size)
        pace.took(1, seconds)
    assert sizes == [0.5, 1.0, 2.0, 0.5] and pace.found == 0.5


@pytest.fixture(scope="module")
def prompts() -> tuple[list[Any], list[Any]]:
    rows = make_rows(48, seed=3)
    return [TEMPLATE.render(Item.from_row(row)) for row in rows], [row["images"] for row in rows]


@pytest.mark.parametrize("plain", [None, "for this test"])
@pytest.mark.parametrize("faster", [0.5, 1.0, 2.0])
def test_sizes_are_tried_on_the_calls_own_rows(
    random_judge: Path, prompts: Any, monkeypatch: Any, plain: Any, faster: float
) -> None:
    """Whichever is found, each row is computed once and says what it says with a batch size that was given."""
    engine = TorchEngine(models.load(random_judge, device="cpu"))
    monkeypatch.setattr(engine, "_plain", plain, raising=False)
    monkeypatch.setattr(engine, "max_rows", 4)
    monkeypatch.setattr(engine, "ceiling", 8)
    assert len(prompts[0]) >= LONG * 4
    monkeypatch.setattr("vjudge.engines.pace.BETTER", 1.0)
    original, sizes = Pace.took, []

    def timed(self: Pace, tokens: int, seconds: float) -> None:
        sizes.append(self.size)
        original(self, tokens, tokens * (1.0 if self.size == faster else 2.0))

    monkeypatch.setattr(Pace, "took", timed)
    options = {"max_new_tokens": 24, **ASKED}
    fixed = sorted((a for b in engine.generate(*prompts, batch_size=3, **options) for a in b), key=lambda a: a.index)
    assert engine.work.batch_found == 0 and engine.work.at_once == 3 and set(sizes) <= {1.0}
    sizes.clear()
    found = [answer for batch in engine.generate(*prompts, **options) for answer in batch]
    work = engine.work
    assert work.batch_found == faster and work.at_once == 8  # twice the planned four had their turn
    assert [*dict.fromkeys(sizes)][:3] == list(SIZES) and sizes[-1] == faster
    assert len(found) == len(fixed) == len({answer.index for answer in found})
    assert work.prompt_tokens == sum(answer.n_prompt_tokens for answer in found)
    assert work.new_tokens == sum(answer.n_new_tokens for answer in found)
    texts = {answer.index: answer.text for answer in found}
    assert sum(texts[answer.index] == answer.text for answer in fixed) == len(fixed)


@pytest.mark.parametrize("mode", ["score", "feedback"])
def test_a_continued_run_keeps_the_size_that_was_found(
    random_judge: Path, tmp_path: Path, monkeypatch: Any, mode: str
) -> None:
    """To the last bit, although the clock would now choose another."""
    judge: Judge = load_judge(random_judge, device="cpu")
    engine: Any = judge.engine
    monkeypatch.setattr(engine, "max_rows", 4)
    monkeypatch.setattr(engine, "ceiling", 8)
    monkeypatch.setattr("vjudge.engines.stream.HELD", 0.0)
    monkeypatch.setattr("vjudge.engines.local.PASSES", 1)  # the first block is small
    monkeypatch.setattr("vjudge.engines.planning.BLOCK", 6)
    rows, folder = make_rows(48, seed=3), tmp_path / "run"
    clock = {"fast": 2.0}
    original = Pace.took
    monkeypatch.setattr(
        Pace,
        "took",
        lambda self, tokens, seconds: original(self, tokens, tokens * (1.0 if self.size == clock["fast"] else 2.0)),
    )
    options: dict[str, Any] = {"mode": mode, "max_new_tokens": 12, "progress": False}
    whole = judge.grade(rows, **options)
    assert whole.attrs["work"]["batch_found"] == 2.0

    written, append = [], Run.append

    def cut_off(self: Run, verdicts: Any) -> None:
        if len(self.done) >= 30:
            raise KeyboardInterrupt
        append(self, verdicts)
        written.append(len(self.done))

    monkeypatch.setattr(Run, "append", cut_off)
    with pytest.raises(KeyboardInterrupt):
        judge.grade(rows, out=folder, **options)
    monkeypatch.setattr(Run, "append", append)
    assert Run(folder).manifest["note"]["batch_found"] == 2.0 and 30 <= written[-1] < 48
    clock["fast"] = 0.5
    again = judge.grade(rows, out=folder, **options)
    assert again.attrs["work"]["batch_found"] == 2.0
    pd.testing.assert_frame_equal(again.drop(columns="seconds"), whole.drop(columns="seconds"), check_exact=True)
    assert judge.grade(rows, **options).attrs["work"]["batch_found"] == 0.5  # a call of its own chooses for itself


def test_memory_that_runs_out_ends_the_trial(random_judge: Path, prompts: Any, monkeypatch: Any) -> None:
    """Rows that do not fit are computed with fewer, and no larger size is tried again."""
    from vjudge.engines.stream import Stream

    engine = TorchEngine(models.load(random_judge, device="cpu"))
    monkeypatch.setattr(engine, "max_rows", 4)
    monkeypatch.setattr(engine, "ceiling", 8)
    expected = [a for b in engine.generate(*prompts, max_new_tokens=24, batch_size=4, **ASKED) for a in b]
    original, sizes = Stream._pass, []

    def crowded(self: Stream, *inputs: Any) -> Any:
        sizes.append(len(self.at_work))
        if inputs[-1] is None and len(self.at_work) > 4:
            raise torch.OutOfMemoryError("no room")
        return original(self, *inputs)

    monkeypatch.setattr(Stream, "_pass", crowded)
    found = [a for b in engine.generate(*prompts, max_new_tokens=24, **ASKED) for a in b]
    assert max(sizes) > 4 and sum(size > 4 for size in sizes) == 1
    assert {a.index: a.text for a in found} == {a.index: a.text for a in expected}
    assert engine.work.batch_found in (0.5, 1.0)
