"""The plan of a run against the run itself."""

from __future__ import annotations

import pytest

import vjudge as vj


@pytest.fixture(scope="module")
def judge() -> vj.Judge:
    return vj.load_judge("tiny", device="cpu")


@pytest.fixture(scope="module")
def items():
    return vj.load_collection("scenes", split="test", limit=40)


def test_a_plan_is_what_the_run_computes(judge, items):
    """Counts are equal to the run's, and less than without sharing; what is not known says why."""
    run, table = judge.grade(items, max_new_tokens=4, progress=False), vj.plan(judge, items, max_new_tokens=4)
    plan, work = table["planned"], run.attrs["work"]
    assert plan["prompt tokens"] == work["prompt_tokens"] == run["n_prompt_tokens"].sum()
    assert plan["computed"] == work["computed_tokens"] < 0.8 * plan["prompt tokens"]
    assert plan["images encoded"] == work["images"] == len(set(items["group"])) == 4
    assert plan["verdicts"] == len(run) and plan["answers at once"] == work["at_once"] == 40
    assert plan["new tokens"] == 160
    assert table.index[plan.isna()].tolist() == ["total"] and "not measured" in table.loc["total", "note"]


def test_what_the_call_would_refuse_is_refused(judge, items):
    candidates = [{**items[0], "responses": ["one", "two", "three"]}]
    assert vj.plan(judge, candidates, by="scores").loc["verdicts", "planned"] == 3
    for rows, options, error, message in (
        (candidates, {}, ValueError, "no wording for two"),
        (candidates, {"by": "foo"}, ValueError, "by='foo'"),
        (items, {"foo": 1}, TypeError, "foo"),
        ([], {}, vj.data.CollectionError, "no rows"),
    ):
        with pytest.raises(error, match=message):
            vj.plan(judge, rows, **options)
