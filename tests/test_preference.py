"""Preference learning without a model: candidates, rewards over ordered pairs, pairs, formats, best of n, hacking."""

from __future__ import annotations

import itertools
import json
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from vjudge import preference
from vjudge.data import CollectionError, load_collection
from vjudge.engines import Answer, Engine
from vjudge.preference import best, candidates, hacking, rewards
from vjudge.preference.policy import Policy
from vjudge.probes.simulated import Planted, SimulatedJudge
from vjudge.prompts import VICUNA_V1
from vjudge.runs import RunError

LEVELS = ["Wrong.", "Poor.", "Half.", "Good.", "Right."]


class Scripted(Engine):
    """An engine whose answers depend on a row's seed alone; the second row of each call breaks where asked to."""

    name = "scripted"

    def __init__(self, *, texts: tuple[str, ...] = ("one", "two words", "three whole words"), stop_after: int = 99):
        self.texts, self.left, self.asked = texts, stop_after, []

    def identity(self) -> dict[str, Any]:
        return {"engine": self.name, "weights": "none", "versions": {}}

    def answer(self, prompts: Any, images: Any, ask: Any, wanted: Any = None) -> Iterator[list[Answer]]:
        assert ask.scales == () and ask.marker == ""
        for index in sorted(wanted):
            if not self.left:
                raise KeyboardInterrupt
            self.left -= 1
            self.asked.append(index)
            assert len(images[index]) == prompts[index].n_images
            yield [
                Answer(index, text=f" {self.texts[ask.seed(index) % len(self.texts)]} ", stopped=True, n_new_tokens=3)
            ]


def questions(n: int, **more: Any) -> list[dict[str, Any]]:
    picture = Image.new("RGB", (8, 8), "teal")
    shared = {"images": [picture], "criteria": "True?", "descriptions": LEVELS, "response": "an old one", "gold": 2.0}
    return [{"id": f"q{i}", "instruction": f"What is {i}?", "group": f"g{i // 2}", **shared, **more} for i in range(n)]


def policy(**options: Any) -> Policy:
    return Policy("scripted", engine=Scripted(**options), conversation=VICUNA_V1)  # type: ignore[arg-type]


def candidate_rows(n: int, k: int, *, seed: int = 0, alike: bool = False) -> list[dict[str, Any]]:
    """Questions whose k responses have true scores; `alike` makes them all equal."""
    rng = np.random.default_rng(seed)
    rows = []
    for row in questions(n):
        true = [3.0] * k if alike else [float(score) for score in rng.integers(1, 6, k)]
        texts = [f"answer {place} of {row['id']}" for place in range(k)]
        kept = {name: value for name, value in row.items() if name not in ("response", "gold")}
        rows.append({**kept, "responses": texts, "times": [1] * k, "drawn": k, "true_scores": true, "group": row["id"]})
    return rows


# -- candidates


def test_candidates_are_drawn_counted_and_freed_of_what_belonged_to_an_earlier_response() -> None:
    rows = preference.draw(policy(), questions(6), samples=5, progress=False)
    assert [row["id"] for row in rows] == [f"q{i}" for i in range(6)]
    assert all(
        sum(row["times"]) == row["drawn"] == 5 and len(set(row["responses"])) == len(row["responses"]) for row in rows
    )
    assert (
        not {"response", "gold"} & set(rows[0]) and rows[0]["criteria"] == "True?" and rows[0]["policy"] == "scripted"
    )
    assert candidates.PUBLISHED == {"samples": 5, "temperature": 0.7, "top_p": 0.9}
    counts = preference.account(rows)
    assert (
        counts["answers"] == 30
        and counts["failed"] == 0
        and counts["distinct"] == sum(len(r["responses"]) for r in rows)
    )


def test_what_is_drawn_depends_on_seed_question_and_number_alone() -> None:
    whole = preference.draw(policy(), questions(6), progress=False)
    part = preference.draw(policy(), questions(6)[3:], progress=False)
    assert [row["responses"] for row in whole[3:]] == [row["responses"] for row in part]
    other = preference.draw(policy(), questions(6), seed=1, progress=False)
    assert [row["times"] for row in other] != [row["times"] for row in whole]


def test_an_interrupted_drawing_continues_and_ends_the_same(tmp_path: Any) -> None:
    whole = policy().respond(questions(4), samples=3, temperature=0.7, progress=False)
    with pytest.raises(KeyboardInterrupt):
        policy(stop_after=7).respond(questions(4), samples=3, temperature=0.7, out=tmp_path / "run", progress=False)
    rest = policy()
    again = rest.respond(questions(4), samples=3, temperature=0.7, out=tmp_path / "run", progress=False)
    pd.testing.assert_frame_equal(again, whole)
    assert len(rest.engine.asked) == 5  # type: ignore[attr-defined]
    with pytest.raises(RunError, match="seed: 0 -> 1"):
        policy().respond(questions(4), samples=3, temperature=0.7, seed=1, out=tmp_path / "run", progress=False)


def test_blank_answers_fail_with_a_reason_and_make_no_candidate(capsys: Any) -> None:
    answers = policy(texts=("", "something")).respond(questions(8), samples=4, temperature=1.0, progress=False)
    blank = answers["response"].isna()
    assert 0 < blank.sum() < 32 and set(answers["failure"].dropna()) == {"the answer is blank"}
    assert "answers failed" in capsys.readouterr().err
    rows = preference.gather(questions(8), answers)
    assert preference.account(rows)["failed"] == blank.sum()
    assert all(row["responses"] in (["something"], []) for row in rows)
    with pytest.raises(ValueError, match="none of 8 questions has two distinct responses"):
        preference.reward(None, rows)


def test_bad_questions_are_all_named_before_anything_is_asked() -> None:
    rows = questions(4)
    rows[1]["instruction"], rows[3]["id"] = " ", "q0"
    with pytest.raises(CollectionError) as caught:
        policy().respond(rows, progress=False)
    assert [(problem.index, problem.field) for problem in caught.value.problems] == [(1, "instruction"), (3, "id")]


def test_a_policy_reads_the_instruction_as_plain_text() -> None:
    (row,) = questions(1, instruction="Is <image> or </s> there?")
    made = policy().prompt(row)
    assert made.n_images == 1 and "<image> or </s>" in made.parts[-1]  # one image, and the words spelled in the text


# -- rewards


def compared(rows: list[dict[str, Any]], verdict: Any) -> pd.DataFrame:
    """What `Judge.compare` would return if `verdict(first, second)` says -1, 0 or 1 for the second being better."""
    made = []
    for pair in rewards.pairs_of(rows):
        a, b = pair["response_a"], pair["response_b"]
        ab = {-1: "a", 0: "tie", 1: "b", None: None}[verdict(a, b)]
        ba = {-1: "b", 0: "tie", 1: "a", None: None}[verdict(b, a)]
        agree = None if ab is None or ba is None else ab == ba
        made.append({"id": pair["id"], "verdict_ab": ab, "verdict_ba": ba, "consistent": agree})
    return pd.DataFrame(made)


def published(texts: list[str], verdict: Any) -> list[float]:
    """r_i = sum_k a_ki - sum_l a_il written out."""
    k = range(len(texts))
    a = [[0 if i == j else verdict(texts[i], texts[j]) for j in k] for i in k]
    return [float(sum(a[m][i] for m in k) - sum(a[i][m] for m in k)) for i in k]


def test_reward_is_the_published_sum_over_ordered_pairs() -> None:
    rng = np.random.default_rng(0)
    rows = candidate_rows(20, 5)
    table: dict[Any, int] = {}

    def verdict(first: str, second: str) -> int:
        return table.setdefault((first, second), int(rng.integers(-1, 2)))

    found = rewards.rewards_of_pairs(rows, compared(rows, verdict))
    for row in rows:
        assert found[found["id"] == row["id"]]["reward"].tolist() == published(row["responses"], verdict)
    assert (found.groupby("id")["reward"].sum() == 0).all() and (found["verdicts"] == 8).all()


def test_what_depends_on_the_place_alone_cancels_to_nothing() -> None:
    rows = candidate_rows(3, 4)
    for constant in (-1, 1):
        found = rewards.rewards_of_pairs(rows, compared(rows, lambda first, second, c=constant: c))
        assert (found["reward"] == 0).all() and (found["inconsistent"] == 1).all()
        pairs = preference.make_pairs(rows, found)
        assert len(pairs) == 0 and pairs.attrs == {
            "left_out": {"pair: a tie": 3},
            "questions": 3,
            "without_pair": 3,
        }
    graded = compared(rows, lambda first, second: 0).assign(scores_ab=[(4.0, 7.0)] * 18, scores_ba=[(5.0, 8.0)] * 18)
    by_scores = rewards.rewards_of_pairs(rows, graded, points="scores")
    assert (by_scores["reward"] == 0).all()  # three points more for the second place, whatever stands there


def test_a_repeated_answer_counts_as_often_as_it_was_drawn() -> None:
    (row,) = candidate_rows(1, 3)
    order = {text: place for place, text in enumerate(row["responses"])}

    def verdict(first: str, second: str) -> int:
        return int(np.sign(order[second] - order[first]))

    drawn = [row["responses"][0], row["responses"][0], row["responses"][1], row["responses"][2]]
    distinct = {**row, "times": [2, 1, 1]}
    found = rewards.rewards_of_pairs([distinct], compared([distinct], verdict))
    written_out = published(drawn, verdict)
    assert found["reward"].tolist() == [written_out[0], written_out[2], written_out[3]]


def test_a_missing_verdict_leaves_both_responses_without_a_reward() -> None:
    rows = candidate_rows(1, 4)
    gone = {rows[0]["responses"][1], rows[0]["responses"][2]}
    found = rewards.rewards_of_pairs(rows, compared(rows, lambda first, second: None if {first, second} == gone else 1))
    assert found["reward"].isna().tolist() == [False, True, True, False] and found["missing"].tolist() == [0, 2, 2, 0]
    with pytest.raises(ValueError, match="points='wins'"):
        rewards.rewards_of_pairs(rows, pd.DataFrame(), points="wins")


@pytest.mark.parametrize("bias", [0.0, 2.0, -2.0])
def test_both_orders_remove_a_planted_bias_for_a_place_that_one_order_keeps(bias: float) -> None:
    rows = candidate_rows(400, 5, seed=1, alike=True)
    judge = SimulatedJudge(list(rewards.singles_of(rows)), Planted(position=bias, item=0.0), seed=1)
    pairs = list(rewards.pairs_of(rows))
    place: dict[str, Any] = {}
    for orders in ("one", "both"):
        found = rewards.rewards_of_pairs(rows, judge.compare(pairs, orders=orders))
        place[orders] = found["reward"].groupby(found["candidate"]).mean()
    # One order shows the earlier draw first: five equal answers, and the first one wins by its place alone.
    assert abs(place["both"]).max() < 0.4
    assert np.sign(place["one"][0] - place["one"][4]) == np.sign(bias) or not bias
    assert abs(place["one"][0] - place["one"][4]) > 3 if bias else abs(place["one"][0] - place["one"][4]) < 0.6


def test_pairs_by_both_orders_agree_with_the_truth_more_often_under_a_planted_bias() -> None:
    rows = candidate_rows(300, 5, seed=2)
    judge = SimulatedJudge(list(rewards.singles_of(rows)), Planted(position=2.5, item=0.3), seed=2)
    pairs = list(rewards.pairs_of(rows))
    agreement = {}
    for orders in ("one", "both"):
        found = rewards.rewards_of_pairs(rows, judge.compare(pairs, orders=orders))
        made = preference.make_pairs(rows, found)
        agreement[orders] = preference.true_order(made).loc["without_ties"]
    assert agreement["both"]["low"] > agreement["one"]["high"] and agreement["both"]["estimate"] > 0.95


def test_scores_reward_by_the_expected_score_and_keep_what_is_missing() -> None:
    rows = candidate_rows(2, 3)
    graded = pd.DataFrame([{"id": row["id"], "score": 4.0, "expected_score": 3.5} for row in rewards.singles_of(rows)])
    graded.loc[1, ["score", "expected_score"]] = np.nan
    graded.loc[2, "expected_score"] = np.nan
    found = rewards.rewards_of_scores(rows, graded)
    assert found["reward"].tolist()[0] == 3.5 and np.isnan(found["reward"][1]) and found["reward"][2] == 4.0
    table = preference.by_question(found)
    assert table["missing"].tolist() == [1, 0] and table["margin"].tolist() == [0.5, 0.0]
    assert table["tied_best"].tolist() == [1, 3]


# -- pairs


def scored(values: list[float], words: list[int] | None = None) -> tuple[list[dict[str, Any]], pd.DataFrame]:
    (row,) = candidate_rows(1, len(values))
    row["responses"] = [" ".join(["word"] * n) + f" {i}" for i, n in enumerate(words or [3] * len(values))]
    row["true_scores"] = [1.0, 2.0, 3.0, 4.0, 5.0][: len(values)]
    graded = pd.DataFrame([{"id": f"q0/{i}", "score": value} for i, value in enumerate(values)])
    return [row], rewards.rewards_of_scores([row], graded)


def test_extremes_and_all_pairs_with_margins_and_lengths() -> None:
    rows, found = scored([2.0, 5.0, 1.0, 5.0], [3, 30, 4, 3])
    (pair,) = preference.make_pairs(rows, found).to_dict("records")
    assert pair["id"] == "q0/1-2" and pair["margin"] == 4 and pair["length_gap"] == 26 and pair["true_rejected"] == 3
    every = preference.make_pairs(rows, found, choose="all")
    assert len(every) == 5 and (every["margin"] > 0).all() and every.attrs["left_out"] == {"pair: a tie": 1}
    wide = preference.make_pairs(rows, found, choose="all", min_margin=1.0, max_length_ratio=2.0)
    assert set(wide["id"]) == {"q0/3-0", "q0/3-2"}
    assert wide.attrs["left_out"] == {
        "pair: one response more than 2 times as long": 2,
        "pair: a tie": 1,
        "pair: margin not above 1": 1,
    }
    with pytest.raises(ValueError, match='order consistency is known of rewards by="pairs" alone'):
        preference.make_pairs(rows, found, consistent_only=True)
    with pytest.raises(ValueError, match="choose='best'"):
        preference.make_pairs(rows, found, choose="best")


def test_inconsistent_pairs_can_be_left_out_and_are_counted() -> None:
    rows = candidate_rows(1, 3)
    texts = rows[0]["responses"]

    def verdict(first: str, second: str) -> int:
        if {first, second} == {texts[0], texts[2]}:
            return 1  # always the second place
        return int(np.sign(texts.index(second) - texts.index(first)))

    found = rewards.rewards_of_pairs(rows, compared(rows, verdict))
    assert found["reward"].tolist() == [-2.0, 0.0, 2.0] and found["flipped"].tolist() == [[2], [], [0]]
    assert len(preference.make_pairs(rows, found)) == 1
    left = preference.make_pairs(rows, found, consistent_only=True)
    assert len(left) == 0 and left.attrs["left_out"] == {"pair: the orders disagree": 1}
    assert list(left.columns)[:2] == ["id", "question"]
    few = preference.make_pairs(rows, found, max_inconsistent=0.2)
    assert few.attrs["left_out"] == {"question: verdicts change with the order too often": 1}


def test_agreement_with_the_true_order_counts_true_ties_apart() -> None:
    pairs = pd.DataFrame(
        {"group": list("aabbc"), "true_chosen": [5, 4, 3, 2, 1.0], "true_rejected": [1, 2, 3, 3, np.nan]}
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        table = preference.true_order(pairs)
    assert table.loc["without_ties", "estimate"] == pytest.approx(2 / 3) and table.loc["without_ties", "n"] == 3
    assert table.loc["with_ties", "estimate"] == 0.5 and table.loc["with_ties", "missing"] == 1
    with pytest.raises(ValueError, match="no true scores"):
        preference.true_order(pairs[["group"]])


# -- formats


def test_formats_hold_the_same_pairs_and_come_back(tmp_path: Any) -> None:
    rows, found = scored([2.0, 5.0, 1.0])
    pairs = preference.make_pairs(rows, found, choose="all")
    dataset = preference.to_trl(pairs)
    first = dataset[0]
    assert [part["type"] for part in first["prompt"][0]["content"]] == ["image", "text"]
    assert (
        first["prompt"][0]["role"] == "user" and first["chosen"][0]["role"] == "assistant" and len(first["images"]) == 1
    )
    texts = ["id", "instruction", "chosen", "rejected"]
    back = pd.DataFrame(preference.from_trl(dataset))[texts]
    pd.testing.assert_frame_equal(back, pairs[texts], check_dtype=False)
    path = preference.write_llava_next(pairs, tmp_path)
    written = json.loads(path.read_text("utf-8"))
    assert list(written[0]) == ["id", "image", "prompt", "chosen", "rejected"] and written[0]["prompt"] == "What is 0?"
    assert len(list((tmp_path / "images").iterdir())) == 1  # one picture, one file
    read = pd.DataFrame(preference.read_llava_next(path))
    pd.testing.assert_frame_equal(read[texts], pairs[texts], check_dtype=False)
    assert Image.open(read["images"][0][0]).size == (8, 8)


def test_formats_refuse_what_their_readers_would_change(tmp_path: Any) -> None:
    rows = [{"id": "x", "instruction": "Where is <image>?", "images": [], "chosen": "a", "rejected": "b"}]
    with pytest.raises(CollectionError, match=r"row 0 \(id 'x'\), instruction: spells <image>"):
        preference.write_llava_next(rows, tmp_path)
    with pytest.raises(CollectionError, match="2 texts are missing among 1 pairs"):
        preference.to_trl([rows[0] | {"chosen": "", "rejected": None}])

    class Tokenizer:
        added_tokens_decoder: dict[int, Any] = {}
        all_special_tokens = ("</s>", "<image>")

    found = preference.unsafe([rows[0] | {"rejected": "done</s>"}], Tokenizer())
    assert found.to_dict("records") == [
        {"id": "x", "field": "instruction", "token": "<image>"},
        {"id": "x", "field": "rejected", "token": "</s>"},
    ]


# -- best of n


def test_best_of_n_is_the_mean_over_every_choice_of_n() -> None:
    rng = np.random.default_rng(3)
    values, judged = rng.normal(size=6), rng.integers(0, 3, 6).astype(float)
    for n in range(1, 7):
        means = []
        for chosen in itertools.combinations(range(6), n):
            top = max(judged[list(chosen)])
            means.append(np.mean([values[i] for i in chosen if judged[i] == top]))
        assert best.expected_best(judged, values)[n - 1] == pytest.approx(np.mean(means))


def test_best_of_n_over_questions_counts_repeats_and_what_is_left_out() -> None:
    table = pd.DataFrame(
        {
            "id": ["p", "p", "q", "q", "r"],
            "reward": [1.0, 2.0, 5.0, 1.0, np.nan],
            "true_score": [1.0, 5.0, 2.0, 4.0, 3.0],
            "times": [2, 1, 1, 2, 3],
            "group": ["a", "a", "b", "b", "c"],
        }
    )
    curve = preference.best_of_n(table, n_resamples=200)
    assert list(curve.index) == [1, 2, 3] and (curve["n"] == 2).all() and (curve["missing"] == 1).all()
    assert curve["estimate"].tolist() == pytest.approx([(7 / 3 + 10 / 3) / 2, (11 / 3 + 8 / 3) / 2, 3.5])
    assert curve["best_possible"].iloc[-1] == 4.5 and curve["share_of_possible"].iloc[-1] == pytest.approx(
        (3.5 - 17 / 6) / (4.5 - 17 / 6)
    )
    with pytest.raises(ValueError, match="no column 'other'"):
        preference.best_of_n(table, value="other")


# -- reward hacking


def test_a_policy_that_pleases_the_judge_alone_is_found() -> None:
    rng = np.random.default_rng(4)
    n = 60
    base = pd.DataFrame({"id": [f"q{i}" for i in range(n)], "group": [f"g{i // 2}" for i in range(n)]})
    before = base.assign(response="It is a dog.", judge=rng.normal(3, 0.3, n), truth=rng.normal(3, 0.3, n))
    hacked = base.assign(
        response="It is a dog. It is a dog. This answer is accurate and comprehensive.",
        judge=before["judge"] + rng.normal(1, 0.2, n),
        truth=before["truth"] - rng.normal(0.5, 0.2, n),
    )
    table = preference.compare_policies(before, hacked, n_resamples=500)
    assert table.attrs["hacked"] == ["truth"]
    assert table.loc["judge", "low"] > 0.8 and table.loc["truth", "high"] < 0
    assert table.loc["words", "change"] == 10 and table.loc["phrases", "change"] == 1
    assert table.loc["repetition", "after"] == pytest.approx(1 / 3)
    honest = hacked.assign(truth=before["truth"] + 0.6 + rng.normal(0, 0.1, n))
    assert preference.compare_policies(before, honest, n_resamples=500).attrs["hacked"] == []
    short = hacked.iloc[:50]
    assert preference.compare_policies(before, short, n_resamples=200).loc["judge", "missing"] == 10
    grown = preference.phrases_that_grew(before["response"], hacked["response"], top=3)
    assert "accurate and comprehensive" in preference.phrases_that_grew(before["response"], hacked["response"]).index
    assert (grown["growth"] == 1).all() and (grown["before"] == 0).all()


def test_what_a_judge_over_rewards_is_told_by_marks() -> None:
    graded = pd.DataFrame({"judge": [5.0, 5, 3, 3, 4, np.nan], "truth": [3.0, 4, 3, 3, 4, 1], "group": list("abcdef")})
    marks = {"repeats": [True, True, False, False, False, True]}
    table = preference.over_rewarded(graded, marks, n_resamples=300)
    row = table.loc["repeats"]
    assert (row["with"], row["without"], row["estimate"]) == (1.5, 0.0, 1.5) and (row["n"], row["missing"]) == (2, 1)
    assert len(hacking.features(["a. a. b.", ""])) == 2


# -- ranking by score, leaderboard


class Fixed:
    """A judge whose scores stand in the responses."""

    name = "fixed"

    def grade(self, items: Any, *, out: Any = None, **_: Any) -> pd.DataFrame:
        rows = [dict(row) for row in items]
        score = [float(row["response"].split()[-1]) if row["response"][-1].isdigit() else np.nan for row in rows]
        frame = pd.DataFrame({"id": [row["id"] for row in rows], "judge": self.name, "score": score})
        frame["expected_score"] = frame["score"] + 0.25
        frame["failure"] = [None if known == known else "no number" for known in score]
        frame["group"] = [row["group"] for row in rows]
        self.seen = rows
        return frame


def test_a_policy_gets_a_row_with_an_interval_and_its_failures_stay_missing() -> None:
    bench = [{name: value for name, value in row.items() if name not in ("response", "gold")} for row in questions(8)]
    judge = Fixed()
    strong = preference.evaluate(judge, [f"level {4 + (i % 4 > 1)}" for i in range(8)], bench, name="strong")
    answers = policy(texts=("", "level 3", "level 2")).respond(bench, temperature=1.0, progress=False)
    weak = preference.evaluate(judge, answers, bench)
    unanswered = int(answers["response"].isna().sum())
    assert 0 < unanswered < 8 and list(weak["id"]) == list(strong["id"]) == [row["id"] for row in bench]
    assert weak["failure"].dropna().tolist() == ["no answer: the answer is blank"] * unanswered
    table = preference.leaderboard([weak, strong], n_resamples=300)
    assert list(table.index) == ["strong", "scripted"] and table.loc["strong", "estimate"] == 4.5
    assert table.loc["scripted", "missing"] == unanswered and table.loc["scripted", "behind_low"] > 0
    assert table.loc["strong", "low"] < 4.5 < table.loc["strong", "high"] and np.isnan(table.loc["strong", "behind"])
    with pytest.raises(ValueError, match="two runs are of one policy"):
        preference.leaderboard([strong, strong])
    with pytest.raises(ValueError, match="name= is missing"):
        preference.evaluate(judge, ["level 3"] * 8, bench)
    direct = preference.evaluate(judge, policy(texts=("level 3",)), bench, answering={"progress": False})
    assert direct["policy"].unique().tolist() == ["scripted"] and (direct["score"] == 3).all()


# -- the adapters of sets to rank on


def write(path: Any, *rows: dict[str, Any]) -> Any:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return path


def test_hhh_alignment(tmp_path: Any) -> None:
    rows = [
        {"input": "How?", "targets": {"choices": ["kind", "rude"], "labels": [1, 0]}},
        {"input": "Why?", "targets": {"choices": ["rude", "kind"], "labels": [0, 1]}},
        {"input": "When?", "targets": {"choices": ["one"], "labels": [1]}},
    ]
    with pytest.warns(UserWarning, match="HHH"):
        pairs = load_collection(write(tmp_path / "honest.jsonl", *rows))
    assert pairs["preference"][:] == ["a", "b", None] and pairs["category"][:2] == ["honest", "honest"]
    assert pairs["response_a"][:2] == ["kind", "rude"] and "targets.choices" in pairs["fault"][2]


def test_mt_bench_human_judgements(tmp_path: Any) -> None:
    def talk(*texts: str) -> list[dict[str, str]]:
        return [{"role": ("user", "assistant")[i % 2], "content": text} for i, text in enumerate(texts)]

    shared = {"question_id": 81, "model_a": "x", "model_b": "y", "judge": "expert_0"}
    shared |= {"conversation_a": talk("Q1", "A1", "Q2", "A2"), "conversation_b": talk("Q1", "B1", "Q2", "B2")}
    rows = [
        {**shared, "winner": "model_b", "turn": 1},
        {**shared, "winner": "tie", "turn": 2},
        {**shared, "winner": "model_a", "turn": 1},  # the same people judge the same pair again
        {**shared, "winner": "neither", "turn": 3},
    ]
    with pytest.warns(UserWarning, match="MT-Bench"):
        pairs = load_collection(write(tmp_path / "human.jsonl", *rows))
    assert pairs["preference"][:] == ["b", "tie", "a", None] and pairs["group"][:3] == ["81"] * 3
    assert (pairs["instruction"][0], pairs["response_b"][0]) == ("Q1", "B1") and len(set(pairs["id"])) == 4
    assert pairs["response_a"][1] == "Assistant, turn 1:\nA1\n\nAssistant, turn 2:\nA2"
    assert "winner" in pairs["fault"][3] and "turn" in pairs["fault"][3] and pairs["category"][0] == "turn 1"


def test_on_scenes_both_orders_recover_the_true_order_that_a_planted_bias_hides_from_one() -> None:
    rows = preference.scene_candidates("test", limit=60)
    assert all(sorted(row["true_scores"]) == [1, 2, 3, 4, 5] for row in rows) and "response" not in rows[0]
    judge = SimulatedJudge(list(rewards.singles_of(rows)), Planted(position=2.5, item=0.3), seed=0)
    pairs = list(rewards.pairs_of(rows))
    both, one = (rewards.rewards_of_pairs(rows, judge.compare(pairs, orders=orders)) for orders in ("both", "one"))
    share = [preference.make_pairs(rows, found, choose="all").pipe(preference.true_order) for found in (both, one)]
    assert share[0].loc["without_ties", "low"] > share[1].loc["without_ties", "estimate"]
    # What the true score leaves of a reward depends on the place in the list with one order alone.
    rest = [found["reward"] - found.groupby("true_score")["reward"].transform("mean") for found in (both, one)]
    by_place = [gap.groupby(found["candidate"]).mean() for gap, found in zip(rest, (both, one), strict=True)]
    assert abs(by_place[0]).max() < 0.7 and by_place[1][0] > 1.5 and by_place[1][4] < -1.5
