"""What keeping a run costs, and how cost and memory grow with the number of items. `make bench`."""

from __future__ import annotations

import resource
import threading
from time import perf_counter, thread_time

import pytest
import torch

import vjudge as vj
from vjudge.runs import Run


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
    report.add(f"run record: share of a run of {len(items)} items", f"{100 * spent / took:.2f} %", "under 2 %")


class Turns:
    """An engine for two gradings, each in a thread of its own: one computes at a time, and they change places at every
    batch, so that whatever slows the machine slows both. `shares` says how many verdicts each is to have given by then.
    """

    def __init__(self, engine, shares):
        self.engine, self.shares = engine, shares
        self.one = threading.Condition()
        self.given, self.over, self.seconds = dict.fromkeys(shares, 0), set(), dict.fromkeys(shares, 0.0)

    def __getattr__(self, name):
        return getattr(self.engine, name)

    def score(self, *rows, **options):
        """What the engine answers, batch by batch, each when it is its turn."""
        me = threading.current_thread().name
        for answers in self.engine.score(*rows, **options):
            yield answers
            self.given[me] += len(answers)
            self.one.notify_all()
            self.one.wait_for(lambda: self.over or self._part(me) <= min(map(self._part, self.shares)))

    def grade(self, judge, part, times):
        """Seconds of this thread's processor time, the whole of `grade` included."""
        me = threading.current_thread().name
        with self.one:
            start = thread_time()
            try:
                for _ in range(times):
                    judge.grade(part, mode="score", progress=False)
            finally:
                self.seconds[me] = thread_time() - start
                self.over.add(me)
                self.one.notify_all()

    def _part(self, name):
        return self.given[name] / self.shares[name]


def test_cost_grows_linearly(judge, report, size, monkeypatch):
    """Score passes, which cost least and so show any other cost most."""
    many, times = int(10_000 * min(1.0, size)), 4
    items = vj.load_collection("scenes", split="test", limit=many)
    few = items.select(range(many // 10))
    judge.grade(few, mode="score", progress=False)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024  # the highest so far
    turns = Turns(judge.engine, {"many": many, "few": times * len(few)})
    monkeypatch.setattr(judge, "engine", turns)
    threads = [
        threading.Thread(target=turns.grade, args=(judge, part, n), name=name)
        for name, part, n in (("many", items, 1), ("few", few, times))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert turns.given == turns.shares
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024 - before
    a_verdict = {name: turns.seconds[name] / turns.given[name] for name in turns.given}
    ratio = a_verdict["many"] / a_verdict["few"]
    report.add(f"a verdict among {many:,} against one among {len(few):,}", f"{ratio:.2f} times the time", "0.9 to 1.1")
    report.add(
        f"memory: {many:,} items against {len(few):,}", f"{grown:.0f} MiB more, {1024 * grown / many:.1f} KiB an item"
    )
