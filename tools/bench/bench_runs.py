"""What keeping a run costs, and how cost and memory grow with the number of items. `make bench`."""

from __future__ import annotations

import resource
from time import perf_counter, process_time

import pytest
import torch

import vjudge as vj
from vjudge.judging.runs import Run


@pytest.fixture(scope="module")
def judge():
    torch.set_num_threads(1)
    return vj.load_judge("tiny", device="cpu")


def test_the_record_costs_little(judge, report, size, tmp_path, monkeypatch):
    """The time in the run's own methods, disk included, against that of the whole call."""
    items = vj.load_collection("scenes", split="test", limit=int(300 * size))
    spent = 0.0

    def timed(original):
        def method(self, *args, **options):
            nonlocal spent
            start = perf_counter()
            try:
                return original(self, *args, **options)
            finally:
                spent += perf_counter() - start

        return method

    judge.engine.identity()  # reads the weights' files, the first time
    for name in ("open", "append", "close"):
        monkeypatch.setattr(Run, name, timed(getattr(Run, name)))
    start = perf_counter()
    judge.grade(items, out=tmp_path / "run", progress=False)
    took = perf_counter() - start
    report.add(
        f"run record: share of a run of {len(items)} items",
        f"{100 * spent / took:.2f} %",
        "under 2 %",
    )


class Turns:
    """An engine in whose run another grading takes turns: whatever slows the machine slows both.

    Args:
        engine: of the judge.
        every: verdicts of the run between two turns of the other.
        other: does the other's grading.
    """

    def __init__(self, engine, every, other):
        self.engine, self.every, self.other = engine, every, other
        self.given, self.turns, self.seconds, self.inside = 0, 0, 0.0, False

    def __getattr__(self, name):
        return getattr(self.engine, name)

    def answer(self, *call):
        """What the engine answers, batch by batch."""
        for answers in self.engine.answer(*call):
            yield answers
            self.given += 0 if self.inside else len(answers)
            while not self.inside and self.turns < self.given // self.every:
                self.inside, start = True, process_time()
                self.other()
                self.seconds += process_time() - start
                self.inside, self.turns = False, self.turns + 1


def test_cost_grows_linearly(judge, report, size, monkeypatch):
    """Score passes, which cost least and so show any other cost most; batches of one size."""
    many = int(10_000 * min(1.0, size))
    items = vj.load_collection("scenes", split="test", limit=many)
    few = items.select(range(many // 10))
    options = {"mode": "score", "batch_size": judge.engine.max_rows, "progress": False}
    judge.grade(few, **options)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024  # the highest so far
    turns = Turns(judge.engine, many // 4, lambda: judge.grade(few, **options))
    monkeypatch.setattr(judge, "engine", turns)
    start = process_time()
    judge.grade(items, **options)
    whole = process_time() - start - turns.seconds
    assert (turns.given, turns.turns) == (many, 4)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024 - before
    ratio = (whole / many) / (turns.seconds / turns.turns / len(few))
    report.add(
        f"a verdict among {many:,} against one among {len(few):,}",
        f"{ratio:.2f} times the time",
        "0.9 to 1.1",
    )
    report.add(
        f"memory: {many:,} items against {len(few):,}",
        f"{grown:.0f} MiB more, {1024 * grown / many:.1f} KiB an item",
    )
