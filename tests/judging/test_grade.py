"""Judge.grade end to end on the embedded judge: rows, modes, samples, records, plans, odd numbers."""

import pandas as pd
import pytest
import torch

import vjudge as vj
from samples import judge_of, scripted
from vjudge.data import CollectionError
from vjudge.judging.ranking import expected_scores
from vjudge.judging.runs import Run, RunError

COLUMNS = "id judge score feedback raw failure expected_score probabilities probability_mass closed"
COLUMNS += " n_prompt_tokens n_new_tokens seconds lowest highest sees_image"
COLUMNS += " gold human_scores group criteria category"


@pytest.fixture(scope="module")
def judge():
    return vj.load_judge("tiny", device="cpu")


@pytest.fixture(scope="module")
def items():
    return [dict(row) for row in vj.load_collection("scenes", split="test", limit=6)]


@pytest.fixture(scope="module")
def graded(judge, items):
    return judge.grade(items)


def same(one, other):
    """Two tables are the same to the bit, timings aside."""
    pd.testing.assert_frame_equal(
        one.drop(columns="seconds"), other.drop(columns="seconds"), check_exact=True
    )


def test_a_row_is_whole(graded, items):
    assert list(graded.columns) == COLUMNS.split()
    assert graded["id"].tolist() == [item["id"] for item in items]
    assert graded["failure"].isna().all() and (graded["score"] == graded["gold"]).mean() > 0.8
    for row in graded.to_dict("records"):
        shares = row["probabilities"]
        assert row["feedback"] in row["raw"] and row["raw"].endswith(f"[RESULT] {row['score']:.0f}")
        assert list(shares) == list("12345") and float(max(shares, key=shares.get)) == row["score"]
        assert row["expected_score"] == pytest.approx(sum(int(n) * p for n, p in shares.items()))
    assert graded[["lowest", "highest"]].drop_duplicates().values.tolist() == [[1.0, 5.0]]
    assert graded["sees_image"].all()


def test_score_mode_on_rubrics_of_several_scales(judge, items):
    """Each verdict is normalised over its own scale, and is its mode."""
    scales = [{"descriptions": list("abc")}, {"descriptions": list("ab"), "lowest": 0}, {}]
    few = [{**item, "gold": None, **scale} for item, scale in zip(items, scales, strict=False)]
    frame = judge.grade(few, mode="score")
    assert list(frame.columns) == COLUMNS.split()
    assert ["".join(shares) for shares in frame["probabilities"]] == ["123", "01", "12345"]
    assert frame[["lowest", "highest"]].values.tolist() == [[1, 3], [0, 1], [1, 5]]
    for row in frame.to_dict("records"):
        assert row["score"] == float(max(row["probabilities"], key=row["probabilities"].get))
        assert (row["raw"], row["n_new_tokens"], row["failure"]) == ("", 0, None)


def test_samples_are_seeded_by_item_and_number(judge, items):
    options = {"samples": 3, "temperature": 2.0, "max_new_tokens": 40}
    before = torch.get_rng_state()
    frame = judge.grade(items[:3], **options)
    assert torch.equal(torch.get_rng_state(), before), "nothing draws from the global generator"
    assert frame["sample"].tolist() == [0, 1, 2] * 3 and frame["raw"].nunique() > 4
    same(judge.grade(items[:3], **options), frame)
    assert judge.grade(items[:3], seed=1, **options)["raw"].tolist() != frame["raw"].tolist()


def test_a_run_is_recorded_continued_and_refused_to_another(judge, items, graded, tmp_path):
    same(judge.grade(items, out=tmp_path), graded)
    decoding = {"max_new_tokens": 1024, "temperature": 0.0, "top_p": 1.0, "seed": 0}
    decoding |= {"repetition_penalty": 1.0, "unread": "missing"}
    assert Run(tmp_path).manifest["decoding"] == decoding
    record = tmp_path / "verdicts.jsonl"
    record.write_bytes(b"".join(record.read_bytes().splitlines(keepends=True)[::2]))
    same(judge.grade(items, out=tmp_path), graded)
    other = vj.load_judge("tiny-base", device="cpu")
    with pytest.raises(RunError, match="judge: 'tiny' -> 'tiny-base'.*checkpoint: '"):
        other.grade(items, out=tmp_path)


def test_bad_rows_and_options_are_all_named_before_any_work(items, tmp_path):
    judge = scripted(lambda prompt, ask, place: pytest.fail("asked"))
    bad = [dict(row) for row in items[:5]]
    bad[1]["response"] = " "
    bad[2]["response"] = "ok \ud83d"
    bad[3]["images"] = [str(tmp_path / "none.png")]
    bad[4]["descriptions"] = ["a", "a", "b"]
    with pytest.raises(CollectionError) as refusal:
        judge.grade(bad, out=tmp_path / "run")
    assert {problem.index for problem in refusal.value.problems} == {1, 2, 3, 4}
    assert not (tmp_path / "run").exists()
    wrong = r"top_p=2.0.*samples=0: use a whole number from 1; seed=0.5"
    with pytest.raises(ValueError, match=wrong):
        judge.grade(items[:2], top_p=2.0, samples=0, seed=0.5)


def test_a_plan_and_what_the_run_computed(judge):
    """Work is shared; what is not known before says why."""
    items = vj.load_collection("scenes", split="test", limit=20)
    run = judge.grade(items, max_new_tokens=4)
    table = vj.plan(judge, items, max_new_tokens=4)
    plan, work = table["planned"], run.attrs["work"]
    assert work["prompt_tokens"] == run["n_prompt_tokens"].sum()
    assert work["computed_tokens"] < 0.8 * work["prompt_tokens"]
    assert work["images"] == len(set(items["group"]))
    assert plan["verdicts"] == plan["images shown"] == len(run)
    assert plan["new tokens"] == 80 and table.index[plan.isna()].tolist() == ["total"]
    assert "not measured" in table.loc["total", "note"]
    candidates = [{**items[0], "responses": ["one", "two", "three"]}]
    assert vj.plan(judge, candidates, by="scores").loc["verdicts", "planned"] == 3
    with pytest.raises(ValueError, match="no wording for two"):
        vj.plan(judge, candidates)
    with pytest.raises(TypeError, match="no option 'mod'; use one of .*mode, orders, samples"):
        vj.plan(judge, candidates, mod="score")


def test_what_can_not_be_asked_is_refused_with_its_cause():
    named = [{"name": name, "criteria": "Is it?"} for name in ("accuracy", "style")]
    row = {"id": "a", "images": [], "instruction": "What?", "response": "A cat."}
    row |= {"criteria": named, "descriptions": list("abc")}
    judge = judge_of('{"scores": {"accuracy": 1, "style": 3}}', template="chat-json")
    with pytest.raises(ValueError, match="criteria have names"):
        judge.grade([row], mode="score")
    with pytest.raises(CollectionError, match="gold: 'good' is not a number"):
        judge.grade([row | {"images": ["x.png"], "gold": "good"}])


def test_who_abstains_is_counted(items):
    run = scripted(lambda prompt, ask, place: "It can't be seen. [RESULT] N/A").grade(items)
    assert run.attrs["abstained"] == 6 and run["score"].isna().all()


def test_a_rank_is_by_one_kind_of_score():
    """An answer without a distribution is no better for its whole number."""
    frame = pd.DataFrame({"score": [4.0, 4.0, None], "expected_score": [3.4, None, None]})
    assert expected_scores(frame).tolist()[:2] == [4.0, 4.0]
