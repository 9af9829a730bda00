"""Each benchmark's own number from a run on rows of its layout, and an absolute judge on pairs; values by hand."""

import gzip
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from rapidfuzz.distance import Levenshtein

import vjudge as vj
from chatmodels import make
from samples import ROWS, judge_of, pair
from vjudge import data
from vjudge.benchmarks import numbers
from vjudge.data import CollectionError, load_collection

pytestmark = pytest.mark.filterwarnings("ignore:.* rows have no interval")
QUIET = {"progress": False}


def unpictured(items):
    """Rows whose pictures are not at hand."""
    return [{**row, "images": []} for row in data.rows_of(items)]


def frame_of(items, *names):
    return pd.DataFrame({name: list(items[name]) for name in ("id", "category", *names)})


@pytest.fixture(scope="module")
def labels():
    """VL-RewardBench's 1,250 real labels on texts of ours."""
    with gzip.open(ROWS / "vl_rewardbench_labels.csv.gz", "rt", encoding="utf-8") as file:
        table = pd.read_csv(file, keep_default_na=False)
    table["human_ranking"] = table[["first_rank", "second_rank"]].to_numpy().tolist()
    texts = {"query": "What?", "response": ["One.", "Two."], "image": None}
    rows = table[["id", "human_ranking", "judge"]].to_dict("records")
    return data.canonical([{**row, **texts} for row in rows])


def test_vl_rewardbench_counts_unread_answers_in_three_ways(labels):
    """One answer in seven is unread, one in three wrong; by hand, from the real ids' categories."""
    run = frame_of(labels, "preference", "group")
    run["verdict"] = np.where(run.index % 3 == 0, "b", "a")
    run.loc[::7, "verdict"] = None
    read = run["verdict"].notna()
    right = run["verdict"] == run["preference"]
    table = vj.benchmark(run, name="vl-rewardbench").table
    official = table[table["official"]]["estimate"].droplevel(["statistic", "unread"])
    shares = right[read].groupby(run["category"]).mean()
    expected = {"overall": right[read].mean(), "macro": shares.mean(), **shares}
    assert official.to_dict() == pytest.approx(expected)
    overall = table.loc["overall"].loc["accuracy"]
    expected = [right[read].mean(), right.mean(), (right + 0.5 * ~read).mean()]
    assert overall["estimate"].tolist() == pytest.approx(expected)
    assert overall.loc["left out", ["n", "missing"]].tolist() == [read.sum(), (~read).sum()]
    assert ((table["low"] < table["estimate"]) & (table["estimate"] < table["high"])).all()
    for name, lacks, message in (
        (None, [], "nothing says which benchmark the run is of: give name=, one of vl-reward"),
        ("vl", [], "there is no benchmark 'vl'"),
        ("vl-rewardbench", "preference", "needs preference, .*use run_benchmark"),
    ):
        with pytest.raises(ValueError, match=message):
            vj.benchmark(run.drop(columns=lacks), name=name)
    for frame, message in (
        (run.assign(category="reasoning"), "has no row of general, hallucination"),
        (run.drop(columns="category"), "add the column category from the collection"),
    ):
        assert any(message in text for text in vj.benchmark(frame, name="vl-rewardbench").caveats)


def test_multimodal_rewardbench_guesses_and_keeps_the_published_order():
    rows = [pair(str(n), preference="ab"[n % 2], category="vqa") for n in range(12)]
    run = judge_of("[[A]]").compare(rows, orders="one", **QUIET)
    run.loc[:3, "category"] = "safety"
    run.loc[0, "verdict"] = None
    table = vj.benchmark(run, name="multimodal-rewardbench").table["estimate"]
    assert table.index[0] == ("overall", "accuracy", "random")
    assert table.iloc[0] == pytest.approx((5 + 0.5) / 12)
    assert table["safety", "accuracy", "random"] == pytest.approx((1 + 0.5) / 4)
    both = judge_of("[[A]]").compare(rows, **QUIET)
    table = vj.benchmark(both, name="multimodal-rewardbench").table["estimate"]
    assert table.iloc[0] == 0.5  # of the published order alone


def test_mllm_judge_scores_and_pairs():
    """Pearson with people, accuracy with and without ties, on rows of their layout."""
    scores = load_collection(ROWS / "mllm_judge_score.jsonl")
    graded = frame_of(scores, "gold", "group")
    graded["score"] = 70 + 2 * (graded.index % 3)
    table = vj.benchmark(graded, name="mllm-judge-score").table
    expected = graded["score"].corr(graded["gold"])
    assert table.index[0] == ("overall", "pearson", "left out")
    assert table["estimate"].iloc[0] == pytest.approx(expected) and table["low"].iloc[0] < expected
    pairs = load_collection(ROWS / "mllm_judge_pair.jsonl")
    compared = judge_of("[[C]]").compare(unpictured(pairs), **QUIET)
    table = vj.benchmark(compared, name="mllm-judge-pair").table["estimate"].loc["overall"]
    ties = np.mean([choice == "tie" for choice in pairs["preference"]])
    assert table["accuracy with ties", "left out"] == pytest.approx(ties)
    assert table["accuracy without ties", "left out"] == 0


def test_mllm_judge_batch_is_the_distance_of_two_orders():
    batch = load_collection(ROWS / "mllm_judge_batch.jsonl")
    right = frame_of(batch, "ranks").explode("ranks", ignore_index=True)
    right["rank"] = right["true_rank"] = right.pop("ranks").astype(float)
    right["candidate"] = right.groupby("id", sort=False).cumcount()
    distances = []
    for ranks in batch["ranks"]:
        human = np.argsort(ranks).tolist()
        distances.append(Levenshtein.normalized_distance(sorted(human), human))
    shown = np.mean(distances)
    tied = right.tail(4).assign(rank=[1, 1, 3, 4], true_rank=[1, 2, 3, 4])  # ABCD or BACD
    for run, *expected in (
        (right, 0, 0),
        (right.assign(rank=right["candidate"]), shown, shown),
        (right.assign(rank=right["rank"].mask(right.index == 0)), 0, 1 / len(batch)),
        (tied, 2 / 4 / 2, 2 / 4 / 2),
    ):
        table = vj.benchmark(run, name="mllm-judge-batch").table["estimate"].loc["overall"]
        assert table["levenshtein"][["left out", "wrong"]].tolist() == pytest.approx(expected)
    ranked = judge_of("The better response: [1].").rank(unpictured(batch), **QUIET)
    table = vj.benchmark(ranked, name="mllm-judge-batch").table
    assert table.loc[("overall", "levenshtein", "left out"), "n"] == len(batch)


@pytest.mark.parametrize("kind", ["wild", "coco"])
def test_llava_bench_is_the_relative_score_by_its_own_protocol(kind):
    """Two scores from the wording's own form; one unreadable review counts as (-1, -1)."""
    questions = unpictured(load_collection(ROWS / f"llava_bench_{kind}"))[:30]
    items = [{**row, "response": "A shore."} for row in questions]
    answers = iter(["8 6\nFine.", "Unreadable.", *["10 5\nShort."] * 28])
    judge = judge_of(lambda _: next(answers), template=f"llava-bench-{kind}")
    run = judge.grade(items, **QUIET)
    assert run["scores"][0] == [8, 6] and run["score"][0] == 6
    table = vj.benchmark(run, name=f"llava-bench-{kind}", n_resamples=200).table
    assert table.index[0] == ("overall", "relative score", "(-1, -1)")
    assert table["estimate"].iloc[0] == pytest.approx(100 * (6 - 1 + 28 * 5) / (8 - 1 + 28 * 10))
    assert table[["n", "missing"]].iloc[0].tolist() == [30, 1]
    assert {row["category"] for row in items} <= set(table.index.get_level_values("part"))


def test_a_judge_takes_a_benchmarks_protocol_by_its_name(tmp_path):
    """A judge of LLaVA-Critic's build keeps each protocol's own system message, in its own conversation."""
    folder = make("onevision", tmp_path / "onevision")
    item = {"id": "i", "images": [], "instruction": "Q?", "response": "R"}
    item |= {"reference_answer": "REF", "context": "CTX"}
    checking = "You are a helpful and precise assistant for checking the quality of the answer."
    for name, row, system in [
        ("wildvision", pair("p"), "Please act as an impartial judge"),
        ("llava-wilder", item, "You are a helpful assistant."),
        ("llava-bench-wild", item, checking),
    ]:
        judge = vj.load_judge(folder, device="cpu", template=name)
        text = judge.render(row)
        assert text.startswith(f"<|im_start|>system\n{system}")
        assert text.endswith("<|im_start|>assistant\n")
    with pytest.raises(CollectionError, match="context: is missing, and the judge's wording"):
        judge.grade([{**item, "context": ""}], **QUIET)


def test_prometheus_benchmarks_correlate_with_the_true_scores():
    cells = {"score": [1, 2, 3, 4, 5, np.nan], "gold": [2, 1, 3, 5, 4, 5]}
    frame = pd.DataFrame({"id": list("pqrstu"), **cells})
    unknown = frame.drop(columns="gold")
    people = unknown.assign(human_scores=[[2], [1, 1], [3], [5], [3, 5], None])
    for run, name in (
        (frame, "perception-bench"),
        (frame, "feedback-bench"),
        (people, "perception-bench"),
    ):
        table = vj.benchmark(run, name=name, n_resamples=200).table
        assert table.loc["overall"]["estimate"].round(3).tolist() == [0.8, 0.8, 0.6]
        assert table["missing"].tolist() == [1, 1, 1] and not table["official"].any()  # a subset
    with pytest.raises(ValueError, match="needs true score"):
        vj.benchmark(unknown, name="perception-bench")


def test_battles_are_elo_and_wins_against_a_baseline_are_a_share():
    cells = {"verdict": list("aaabab"), "policy_a": list("xxyyzz"), "policy_b": list("yzzxxy")}
    frame = pd.DataFrame({"id": range(6), **cells})
    elo = vj.benchmark(frame, name="visit-bench", n_resamples=0).table["estimate"].droplevel([1, 2])
    assert elo.mean() == pytest.approx(1000) and elo["x"] > elo["y"] > elo["z"]
    frame = frame.assign(policy_b="y", verdict=["A>>B", "B>A", "b", None, "A=B", "b"])
    wins = vj.benchmark(frame, name="wildvision").table.loc["y"].loc["win rate"]
    assert wins["estimate"].to_dict() == {
        "wrong": 0.5,
        "left out": 0.6,
        "random": pytest.approx(0.583, abs=1e-3),
    }


def test_an_absolute_judge_answers_pairs_and_its_ties_are_no_choice():
    pairs = [pair(str(n), category="general", preference="a", criteria="") for n in range(4)]
    scores = iter(["5", "3", "4", "4", "2", "3", "none", "3"])
    judge = judge_of(lambda _: f"So. [RESULT] {next(scores)}", template="prometheus-vision")
    options = {"template": "prometheus-vision", "samples": 1, "temperature": 0.0, **QUIET}
    result = vj.run_benchmark(judge, "vl-rewardbench", data=pairs, **options)
    table = result.table
    assert any("has no row of hallucination, reasoning" in text for text in result.caveats)
    shares = table["estimate"].loc["overall"].loc["accuracy"]
    assert shares.to_dict() == {"left out": 0.5, "wrong": 0.25, "random": 0.5}
    assert result.facts["failures"] and not result.official


PAIRS = pd.DataFrame({"id": list("pqrs"), "verdict": list("abab"), "preference": list("aaab")})
REFUSED = [  # a run, and what is wrong with it
    (pd.concat([PAIRS.assign(judge="x"), PAIRS.assign(judge="y")]), r"several judges \(x, y\)"),
    (pd.concat([PAIRS, PAIRS.head(2)]), r"2 rows have the id of another \('p', 'q'\)"),
]


@pytest.mark.parametrize(("run", "message"), REFUSED)
def test_pooled_judges_and_ids_that_stand_twice_are_refused(run, message):
    with pytest.raises(ValueError, match=message):
        vj.benchmark(run, name="mllm-judge-pair")


def test_several_judges_by_name_stand_in_one_table():
    runs = {"x": PAIRS, "y": PAIRS.assign(verdict="a")}
    result = vj.benchmark(runs, name="mllm-judge-pair")
    estimates = result.table["estimate"].xs(
        ("overall", "accuracy with ties", "wrong"), level=[1, 2, 3]
    )
    assert estimates.to_dict() == {"x": 0.75, "y": 0.75}
    assert "x: Accuracy with ties .75" in result.reading and result.plot(column="full")


UNSPELLED = "1 verdicts can't be read, and count as unread answers."
UNEQUAL = "groups of very unequal size: 11 weigh as much as 4 equal ones"


@pytest.mark.parametrize("name", ["mllm-judge-pair", "visit-bench"])
def test_limits_of_a_metric_stand_beside_a_benchmarks_number(name):
    run = pd.DataFrame({"id": range(20), "verdict": ["a", "b", "B wins", "a"] * 5})
    run.loc[4:, "verdict"] = "a"
    run = run.assign(preference="a", policy_a="x", policy_b="y", group=[*[10] * 10, *range(10)])
    caveats = vj.benchmark(run, name=name).caveats
    assert UNSPELLED in caveats and any(text.startswith(UNEQUAL) for text in caveats), caveats
    scores = run.assign(score=range(20), gold=range(20))
    caveats = vj.benchmark(scores, name="perception-bench", n_resamples=100).caveats
    assert any(text.startswith(UNEQUAL) for text in caveats), caveats


def test_an_unread_review_is_not_replaced_by_the_next_sample():
    cells = {"id": ["p", "p", "q", "q"], "sample": [0, 1, 0, 1], "score": [np.nan, 4, 5, 3]}
    run = pd.DataFrame(cells | {"scores": [[], [8, 4], [10, 5], [8, 8]], "group": list("ppqq")})
    table = vj.benchmark(run, name="llava-bench-wild", n_resamples=0).table
    expected = 100 * (-1 + 5) / (-1 + 10)
    assert table.loc["overall", "estimate"].iloc[0] == pytest.approx(expected)
    assert table.loc["overall", "missing"].iloc[0] == 1


def test_a_category_of_one_review_has_no_interval():
    """It was 11.11 [11.11, 11.11]."""
    run = pd.DataFrame({"id": range(7), "category": ["conv", *["detail"] * 6]})
    run["scores"] = [[9, 1], *([8, number] for number in range(2, 8))]
    result = vj.benchmark(run, name="llava-bench-wild", n_resamples=200)
    table = result.table.droplevel([1, 2])
    assert table.loc["conv", "estimate"] == pytest.approx(100 / 9)
    assert table.loc["conv", ["low", "high"]].isna().all() and table.loc["detail", "low"] > 0
    assert any("1 of 3 rows have no interval" in text for text in result.caveats)
    assert result.deviations == [("subset", "7 of the benchmark's 60 rows")]


def test_public_verdicts_give_the_published_win_rate():
    public = vj.load_verdicts("wildvision").frame
    result = vj.benchmark(public.assign(verdict=public["GPT-4o"]), name="wildvision")
    assert result.official and result.table.loc["gpt-4o", "estimate"].iloc[0] == pytest.approx(
        0.806
    )


def test_a_headline_falls_back_to_the_first_part_that_is_defined():
    keys = [(part, "accuracy", "wrong") for part in ("macro", "overall", "charts")]
    index = pd.MultiIndex.from_tuples(keys, names=["part", "statistic", "unread"])
    table = pd.DataFrame({"estimate": [np.nan, 0.5, 0.6], "low": 0.4, "high": 0.7}, index)
    table["n"], table["missing"] = [0, 8, 5], [9, 1, 0]
    whole = SimpleNamespace(parts=("overall", "charts"))
    expected = "x: Accuracy .50 [.40, .70] (overall; n = 8, 1 missing; unread: wrong)."
    assert numbers._headline(whole, "x", table) == expected
    parts = SimpleNamespace(parts=("charts",))
    assert "from .60 [.40, .70] (charts) to .60" in numbers._headline(parts, "", table)
    table.loc["charts", "estimate"] = np.nan
    assert numbers._headline(parts, "", table) == "Accuracy is undefined (n = 0, 9 missing)."
