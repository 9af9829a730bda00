"""Several judges as one; a judge with a value head."""

import math
from dataclasses import replace

import pytest

import vjudge as vj
from samples import Scripted, pair, scripted
from vjudge.judging.judge import Judge
from vjudge.judging.runs import Run
from vjudge.prompts import TEMPLATES, VICUNA_V1


def fixed(name, text):
    """A judge that writes one text."""
    return scripted(lambda prompt, ask, place: f"So. [RESULT] {text}", name)


@pytest.mark.parametrize(
    ("texts", "combine", "score", "n"),
    [
        ("145", "mean", 10 / 3, 3),
        ("141", "majority", 1.0, 3),
        ("14", "majority", 2.5, 2),  # equally frequent scores are averaged
        ("1?5", "mean", 3.0, 2),
        ("???", "mean", math.nan, 0),
    ],
)
def test_a_panel_grades(texts, combine, score, n, rows, tmp_path):
    judges = [fixed(f"judge {place}", text) for place, text in enumerate(texts)]
    run = vj.panel(judges, combine=combine).grade(rows[:4], out=tmp_path)
    missing = len(texts) - n
    assert run["score"].tolist() == pytest.approx([score] * 4, nan_ok=True)
    assert run["n"].eq(n).all() and run["missing"].eq(missing).all()
    assert run["failure"].notna().all() == (n == 0) and set(run["judge"]) == {"panel"}
    for place in range(len(texts)):
        assert len(Run(tmp_path / f"judge-{place}").verdicts()) == 4


@pytest.mark.parametrize(
    ("texts", "combine", "verdict"),
    [
        (["A", "A", "B"], "majority", "tie"),  # each always takes the first
        (["?", "?"], "median", None),
    ],
)
def test_a_panel_compares(texts, combine, verdict):
    judges = [fixed(str(place), text) for place, text in enumerate(texts)]
    run = vj.panel(judges, combine=combine).compare([pair("1"), pair("2")])
    assert run["verdict"].tolist() == [verdict] * 2
    assert run["missing"].eq(texts.count("?")).all()


def test_a_panel_of_unsound_members_is_refused(rows):
    one, two = fixed("one", ""), fixed("two", "")
    for judges, combine, message in (
        ([one], "mean", "two judges or more"),
        ([fixed("a b", ""), fixed("a/b", "")], "mean", "names of their own"),
        ([one, two], "sum", "combine='sum': use one of mean"),
    ):
        with pytest.raises(ValueError, match=message):
            vj.panel(judges, combine=combine)
    two.template = TEMPLATES["llava-critic"]
    with pytest.raises(ValueError, match="no common scale .*'two', template='llava-critic'"):
        vj.panel([one, two]).grade(rows[:2])


def test_a_judge_with_a_value_head_has_no_scale_and_no_order(capsys, tmp_path):
    """A value head that likes long responses, up to a point."""

    def value_of(prompt, ask, place):
        assert ask.mode == "value"
        length = len(prompt.text)
        return {"value": math.nan if length > 900 else length / 7}

    template = replace(TEMPLATES["skywork-vl-reward"], conversation=VICUNA_V1)
    judge = Judge("value", template=template, engine=Scripted(write=value_of))
    items = [pair("1", response="x"), pair("2", response="x" * 99)]
    run = judge.grade(items, out=tmp_path)
    assert run[["lowest", "highest"]].isna().all(axis=None)
    assert run["score"].is_monotonic_increasing
    pairs = [pair("1", "long answer", "short"), pair("2", "a", "b"), pair("3", "x" * 999, "b")]
    run = judge.compare(pairs)
    assert run["verdict"].tolist() == ["a", "tie", None] and run["failure"].notna().sum() == 1
    with pytest.raises(ValueError, match="have no place for a verdict"):
        judge.grade(items, mode="score")
    with pytest.raises(ValueError, match="draws nothing"):
        judge.grade(items, temperature=1.0, samples=2)
