"""Whoever takes a judge takes a panel, and anything else with a judge's names."""

import math
from dataclasses import dataclass

import pandas as pd
import pytest

import vjudge as vj
from samples import judge_of, pair, row, scripted
from vjudge import preference, probes
from vjudge.judging.judge import Judge, JudgeLike


def lengthy(name, lean=0):
    """A judge of items and of pairs by the number of characters, from 1 to 5."""

    def write(prompt, ask, place):
        text = prompt.text
        if "###Response A:" in text:
            first, rest = text.split("###Response A:\n")[1].split("\n\n###Response B:\n")
            ahead = len(first) - len(rest.split("\n\n###")[0])
            return f"So. [RESULT] {'A' if ahead >= lean else 'B'}"
        response = text.split("###Response to evaluate:\n")[1].split("\n\n###")[0]
        level = min(5, max(1, len(response) // 20 + 1 + lean))
        logprobs = {n: math.log(0.9 if n == level else 0.025) for n in range(1, 6)}
        return {"text": f"So. [RESULT] {level}", "score_logprobs": logprobs}

    return scripted(write, name)


@pytest.fixture
def panel():
    return vj.panel([lengthy("one"), lengthy("two/../2", lean=1)], name="both")


CANDIDATES = [{**row("q"), "images": [], "responses": ["x" * 5, "x" * 30, "x" * 60]}]


def test_a_panel_is_a_judge(panel):
    assert isinstance(panel, JudgeLike) and isinstance(lengthy("one"), JudgeLike)
    assert not isinstance(pd.DataFrame(), JudgeLike) and panel.sees_images
    nested = vj.panel([panel, lengthy("three")])
    run = nested.grade([row("a", images=[])])
    assert run["score"][0] == pytest.approx((1.5 + 1) / 2) and not run["sees_image"][0]
    text = panel.render(row("a", images=[]))
    assert text.count("###Response to evaluate:\nRed.") == 2 and "## two/../2" in text


def test_a_panel_ranks(panel):
    for by, values in (("scores", [1.5, 2.5, 4.5]), ("pairs", [-1.0, 0.0, 1.0])):
        frame = panel.rank(CANDIDATES, by=by)
        assert frame["value"].tolist() == values and frame["rank"].tolist() == [3, 2, 1], by
        assert set(frame["judge"]) == {"both"} and not frame["missing"].any()


def test_a_changed_panel_has_the_same_members(panel):
    """A member that is no `Judge` was left out, and a panel in the panel was taken in pieces."""
    nested = vj.panel([panel, lengthy("three")]).reworded("prometheus-vision-readme")
    assert [judge.name for judge in nested.judges] == ["both", "three"]
    assert {judge.template.name for judge in nested.members} == {"prometheus-vision-readme"}
    with pytest.raises(AttributeError, match="'Foreign' object has no attribute 'reworded'"):
        vj.panel([panel, Foreign(lengthy("inner"))]).reworded("prometheus-vision-readme")


def test_a_panel_is_planned(panel):
    items = [row(str(n), images=[]) for n in range(3)]
    assert vj.plan(panel, items).loc["verdicts", "planned"] == 6
    assert vj.plan(panel, [pair("1")]).loc["verdicts", "planned"] == 4


def test_a_panel_is_reported_inside_of_its_folder(panel, rows, tmp_path):
    out = tmp_path / "deep" / "out"
    named = {str(tmp_path / "models" / "mine"): panel, "../../up": lengthy("one")}
    card = vj.report(named, rows[:12], out=out, controls=6, n_resamples=100)
    assert set(card.claims["claim"]) >= {"agreement", "failures"}
    assert set(tmp_path.rglob("*.jsonl")) == set(out.rglob("*.jsonl")) != set()
    with pytest.raises(ValueError, match="names of their own"):
        vj.report({"a/b": panel, "a b": panel}, rows[:2], out=out)


def test_a_panel_is_probed(panel, rows):
    table = probes.battery(
        panel, rows[:12], probes=["verbosity", "length", "position", "commitment"]
    )
    frame = table.table
    assert set(frame["judge"]) == {"both"} and {"verbosity", "position"} <= set(frame["probe"])
    pairs = [pair(str(n), "x" * n, "x" * (10 - n), group=str(n)) for n in range(1, 10)]
    assert probes.position(panel, pairs).table["n"].tolist() == [9, 9]


def test_a_panel_is_run_on_a_benchmark(panel, tmp_path):
    rows = [pair(str(n), "x" * (n + 2), "x", preference="a", images=[]) for n in range(6)]
    result = vj.run_benchmark(panel, "mllm-judge-pair", data=rows, out=tmp_path, progress=False)
    assert result.table["n"].max() == 6 and not result.official
    assert "panel" in [deviation.kind for deviation in result.deviations]
    assert len(list(tmp_path.glob("*/verdicts.jsonl"))) == 2


def test_a_panel_rewards(panel):
    for by, best in (("scores", 4.5), ("pairs", 4.0)):
        rewards = preference.reward(panel, CANDIDATES, by=by)
        assert rewards["reward"].max() == best
        assert len(preference.make_pairs(CANDIDATES, rewards)) == 1


@dataclass
class Foreign:
    """A judge of somebody's own, which keeps to the names alone."""

    inner: Judge
    name: str = "foreign"
    sees_images: bool = True

    def grade(self, items, **options):
        return self.inner.grade(items, **options).assign(judge=self.name)

    def compare(self, pairs, **options):
        return self.inner.compare(pairs, **options).assign(judge=self.name)

    def rank(self, candidates, **options):
        return self.inner.rank(candidates, **options)

    def render(self, item, **options):
        return self.inner.render(item, **options)

    def plan(self, items, **options):
        return self.inner.plan(items, **options)


def test_a_judge_of_ones_own_is_taken(rows):
    judge = Foreign(lengthy("inner"))
    assert isinstance(judge, JudgeLike) and vj.plan(judge, rows[:2]).loc["verdicts", "planned"] == 2
    assert set(vj.report(judge, rows[:8], controls=4, n_resamples=100).claims["judge"]) == {
        "foreign"
    }
    assert preference.reward(judge, CANDIDATES)["reward"].is_monotonic_increasing
    mixed = vj.panel([judge, lengthy("mine", lean=1)])
    assert mixed.grade(rows[:2])["n"].eq(2).all() and mixed.rank(CANDIDATES)["rank"].tolist() == [
        3,
        2,
        1,
    ]
    with pytest.raises(TypeError, match="a Judge, or a panel of them"):
        vj.run_benchmark(judge, "mllm-judge-pair", data=[pair("1")])


def test_who_can_not_compare_is_told_apart_by_type(rows):
    judge = judge_of("[RESULT] A", pairs="llava-critic-pair")
    judge.pairs = None
    with pytest.raises(vj.NotComputed, match="wording for two responses"):
        _ = probes.position(Foreign(judge), [pair("1")]).table
