"""The plan of a run against the run itself."""

from __future__ import annotations

import math

import pytest

import vjudge as vj


@pytest.fixture(scope="module")
def judge() -> vj.Judge:
    return vj.load_judge("tiny", device="cpu")


@pytest.fixture(scope="module")
def items():
    return vj.load_collection("scenes", split="test", limit=40)


def test_a_plan_is_what_the_run_computes(judge, items):
    """Counts are equal to the run's, and less than without sharing; nothing is measured where that is not wanted."""
    run = judge.grade(items, max_new_tokens=4, progress=False)
    plan, work = vj.plan(judge, items, max_new_tokens=4, seconds=0)["planned"], run.attrs["work"]
    assert plan["prompt tokens"] == work["prompt_tokens"] == run["n_prompt_tokens"].sum()
    assert plan["computed"] == work["computed_tokens"] and 0.2 < plan["saved"] < 1
    assert plan["images encoded"] == work["images"] == len(set(items["group"])) == 4
    assert plan["verdicts"] == len(run) and plan["answers at once"] == work["at_once"] == 40
    assert math.isnan(plan["total"])


def test_time_is_measured_on_a_part(judge, items):
    """The measured part is no longer than asked for, and the bound holds every answer at its limit."""
    plan = vj.plan(judge, items, max_new_tokens=8, seconds=60)
    assert plan.loc["new tokens", "planned"] == 8
    assert plan.loc["total", "planned"] == pytest.approx(plan.loc[["images", "prompts", "answers"], "planned"].sum())
    assert plan.loc["at most", "planned"] == pytest.approx(plan.loc["total", "planned"])
    short = vj.plan(judge, items, max_new_tokens=200, seconds=1e-9)
    assert math.isnan(short.loc["total", "planned"])


def test_score_mode_writes_nothing(judge, items):
    plan = vj.plan(judge, items, mode="score", seconds=30)
    assert plan.loc["new tokens", "planned"] == 0 == plan.loc["answers", "planned"]
    assert plan.loc["at most", "planned"] == plan.loc["total", "planned"] > 0


def test_nothing_in_a_plan_is_unknown_without_a_reason(judge, items):
    for name, line in vj.plan(judge, items, max_new_tokens=4, seconds=0).iterrows():
        assert not math.isnan(line["planned"]) or line["note"], name


def test_a_ranking_is_planned_by_what_it_asks(judge, items):
    rows = [{**items[0], "responses": ["one", "two", "three"]}]
    assert vj.plan(judge, rows, by="scores", seconds=0).loc["verdicts", "planned"] == 3
    with pytest.raises(ValueError, match="no wording for two"):
        vj.plan(judge, rows, seconds=0)


def test_what_can_not_be_planned_is_said(judge, items):
    with pytest.raises(vj.data.CollectionError, match="no rows"):
        vj.plan(judge, [], seconds=0)


def test_an_option_that_the_call_has_not_is_refused(judge, items):
    with pytest.raises(TypeError, match="^foo: the judge's grade has no such option; it has batch_size"):
        vj.plan(judge, items, seconds=0, foo=1)
    rows = [{**items[0], "responses": ["one", "two"]}]
    for options, name in (({"by": "foo"}, "by='foo'"), ({"by": "scores", "orders": "one"}, "orders='one'")):
        with pytest.raises(ValueError, match=name):
            vj.plan(judge, rows, seconds=0, **options)
