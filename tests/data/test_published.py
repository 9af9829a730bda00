"""Every published data set: rows written to its schema, quirks included, come out canonical, or say why not."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from samples import LEVELS, PAIR, SINGLE, judge_of, lines, orig, parquet, picture, plain, png, row, turns

from vjudge import data
from vjudge.data import CollectionError, canonical, load_collection, readable, validate, with_responses
from vjudge.prompts import TEMPLATES, target
from vjudge.records import Item, Pair, Rubric

PREFERENCE = {
    "instruction": "the whole prompt",
    "output": "the target",
    "orig_instruction": "Say it.",
    "orig_response_A": "One.",
    "orig_response_B": "Two.",
    "orig_reference_answer": "Both.",
    "orig_criteria": "Is it said?",
    "orig_feedback_A": "Yes.",
    "orig_score_A": "4",
    "orig_score_B": "2",
    "orig_preference": "A",
    "orig_feedback": "A says it.",
}


# -- Prometheus-Vision and Prometheus


def test_perception_bench_takes_a_policys_answers_in_one_call(tmp_path: Path) -> None:
    rows = [orig(image=picture(tmp_path, f"{n}.png")) for n in range(3)]
    for each in rows:
        for name in ("orig_response", "orig_feedback", "orig_score", "output"):
            del each[name]
    bench = load_collection(parquet(tmp_path / "test.parquet", *rows))
    assert bench["response"][:] == [None] * 3 and bench["reference_answer"][0] == "It is red."
    with pytest.raises(CollectionError, match="response: is missing or blank"):
        validate(bench)
    ordered = with_responses(bench, ["a", "b", "c"])
    validate(ordered)
    assert ordered["response"][:] == ["a", "b", "c"] and ordered["id"][:] == bench["id"][:]
    named = with_responses(bench, {"2": "c", "0": "a", "1": "b"}, policy="llava")
    assert named["response"][:] == ["a", "b", "c"] and named["id"][0] == "0/llava" and set(named["policy"]) == {"llava"}
    assert named["group"][:] == bench["group"][:] and named[0]["images"][0].size == (4, 4)
    run = judge_of("Good. [RESULT] 4", "prometheus-vision").grade(named, progress=False)
    assert run["score"].tolist() == [4, 4, 4]
    wrong: Any
    wrongs = {"2 responses for 3": ["a", "b"], "to no question": {"9": "x"}, "2 of 3 questions have": ["a", " ", None]}
    for message, wrong in wrongs.items():
        with pytest.raises(CollectionError, match=message):
            with_responses(bench, wrong)


def test_responses_replace_earlier_ones_with_their_scores() -> None:
    items = canonical([{"id": "q", "instruction": "Say.", "response": "old", "gold": 3, "human_scores": [3, 4]}])
    (made,) = plain(with_responses(items, ["new"], rubric=Rubric("True?", tuple(LEVELS))))
    assert (made["response"], math.isnan(made["gold"]), made["human_scores"]) == ("new", True, [])
    assert (made["criteria"], made["descriptions"]) == ("True?", LEVELS)


def test_a_score_stated_only_in_the_target_is_read_from_there() -> None:
    bare = {name: value for name, value in orig().items() if name not in ("orig_score", "orig_feedback")}
    (item,) = canonical([bare | {"image": None}])
    assert (item["gold"], item["feedback"]) == (4.0, "Right. So the overall score is 4.")


def test_training_rows_are_taken_apart_or_refused() -> None:
    def conversation(**changes: Any) -> dict[str, Any]:
        item = Item.from_row(row("7", images=["x.png"], reference_answer="It is red.", **changes))
        wording = TEMPLATES["prometheus-vision-readme"]
        ends = wording.conversation.opening, wording.conversation.closing
        prompt = wording.render(item).text.removeprefix(ends[0]).removesuffix(ends[1])
        talk = [{"from": "human", "value": prompt}, {"from": "gpt", "value": target("Right.", 4)}]
        return {"id": 7, "image": "x.png", "conversations": talk}

    (item,) = plain(canonical([conversation()]))
    assert (item["id"], item["instruction"], item["response"], item["criteria"]) == ("7", "Say.", "Red.", "True?")
    assert (item["reference_answer"], item["descriptions"], item["gold"]) == ("It is red.", LEVELS, 4.0)
    with pytest.raises(CollectionError, match="cannot be told apart; use the collection's orig_"):
        canonical([conversation(response="Red.\n\n###Reference Answer (Score 5):\nIt is blue.")])


def test_preference_collection_becomes_pairs_that_a_judge_compares(tmp_path: Path) -> None:
    rows = [PREFERENCE, {**PREFERENCE, "orig_preference": "B"}, {**PREFERENCE, "orig_score_A": None}]
    with pytest.warns(UserWarning, match=r"Preference-Collection: 1 of 3 rows could not be read .* contradicts"):
        pairs = load_collection(parquet(tmp_path / "train.parquet", *rows))
    assert pairs.column_names[: len(data.PAIR_FEATURES)] == list(data.PAIR_FEATURES)
    assert pairs["preference"][:] == ["a", None, "a"] and pairs["score_a"][0] == 4 and math.isnan(pairs["score_a"][2])
    assert "B contradicts the scores (A 4, B 2)" in pairs["fault"][1]
    validate(pairs)  # two texts and no label: still a pair to compare
    pair = Pair.from_row(pairs[0])
    assert pair.rubric is None and pair.criteria == "Is it said?" and pair.reference_answer == "Both."
    run = judge_of("A is better. [RESULT] A", pairs="prometheus-2-relative").compare(readable(pairs), progress=False)
    assert run["verdict"].tolist() == ["tie", "tie"] and run["preference"].tolist() == ["a", "a"]
    bad = {**PREFERENCE, "orig_score_A": "four", "orig_preference": "C"}
    with pytest.warns(UserWarning, match="1 of 1 rows"):
        (fault,) = canonical([bad])["fault"]
    for part in ("A: 'four' is not a", "neither A nor"):
        assert part in fault


# -- LLaVA-Critic-113k


def test_llava_critic_pointwise_is_graded_without_a_rubric(tmp_path: Path) -> None:
    rows = [
        turns(SINGLE, "Score: 85\nIt is right."),
        turns(PAIR, "The better response: [1]."),
        turns(SINGLE, "It is right."),
        turns("Rate it from 0 to 100.", "Score: 70"),
    ]
    with pytest.warns(UserWarning, match="LLaVA-Critic-113k: 3 of 4 rows"):
        items = load_collection(parquet(tmp_path / "pointwise.parquet", *rows))
    assert items["target"][1] == "The better response: [1]."
    for fault, part in zip(items["fault"][1:], ("pairwise part", "no score", "another wording"), strict=True):
        assert part in fault or "stands in the pointwise part" in fault
    with pytest.raises(CollectionError, match=r"row 1 .* response: is missing or blank \(the row is pairwise"):
        validate(items, needs=TEMPLATES["llava-critic"].needs)
    judge, sound = judge_of("Score: 70. Fine."), readable(items)
    run = judge.grade(sound, progress=False)
    assert run["score"].tolist() == [70] and run["gold"].tolist() == [85] and run.attrs["scale"] == (0, 100)
    assert judge.engine.shown[0].count("What?\nWhere?") == 1  # type: ignore[attr-defined]
    with pytest.raises(CollectionError, match=r"row 0 \(id '7'\), descriptions: is missing, and the judge's wording"):
        judge_of("[RESULT] 4", "prometheus-vision").grade(sound, progress=False)


def test_llava_critic_pairwise_goes_straight_into_compare(tmp_path: Path) -> None:
    answers = ("The better response: [1]. It is right.", "Two responses are equally good.")
    rows = [turns(PAIR, answer) for answer in answers]
    rows += [turns("Which of Response 1 and Response 2 is better?", answers[0]), turns(SINGLE, "Score: 85")]
    for name in ("train.parquet", "pairwise.parquet"):  # by its rows, or by its name
        with pytest.warns(UserWarning, match="2 of 4 rows"):
            pairs = load_collection(parquet(tmp_path / name, *rows))
        assert pairs["preference"][:] == ["a", "tie", "a", None]
        assert pairs["response_a"][:] == ["A cat.", "A cat.", None, None]
    run = judge_of("The better response: [1].").compare(readable(pairs), progress=False)
    assert run["verdict_ab"].tolist() == ["a", "a"] and run["verdict"].tolist() == ["tie", "tie"]


@pytest.mark.parametrize("talk", [None, "x", [{"from": "human", "value": "a"}], [{"from": "gpt", "value": "a"}] * 2])
def test_critic_rows_without_a_question_and_an_answer(talk: Any) -> None:
    with pytest.warns(UserWarning, match="conversations: is not one human and one gpt turn"):
        items = canonical([turns(SINGLE, "Score: 85"), turns("", "", conversations=talk)])
    assert [fault is None for fault in items["fault"]] == [True, False]


# -- benchmarks


def test_a_row_with_an_unreadable_label_stays_and_is_counted(tmp_path: Path) -> None:
    mine = {"id": "r", "query": "<image>\nWhat?", "response": ["A cat.", "A dog."], "human_ranking": [0, 1]}
    mine |= {"image": {"bytes": png(), "path": None}}
    rows = [mine, mine | {"human_ranking": [1, 0]}, mine | {"human_ranking": [0, 0]}]
    with pytest.warns(UserWarning, match=r"1 of 3 rows .* human_ranking: \[0, 0\] is neither"):
        pairs = load_collection(parquet(tmp_path / "test.parquet", *rows))
    assert pairs["preference"][:] == ["a", "b", None] and pairs["id"][:] == ["r", "r#2", "r#3"]
    run = judge_of("The better response: [2].").compare(readable(pairs), progress=False)
    assert run["preference"].tolist() == ["a", "b"] and run["verdict_ab"].tolist() == ["b", "b"]


def test_pictures_of_mllm_as_a_judge_count_from_the_folder_above(tmp_path: Path) -> None:
    picture(tmp_path, "image/1.jpg")
    shared = {"id": 1, "instruction": "What?", "image_path": "image/1.jpg", "original_dataset": "coco"}
    answers = [{"name": name, "answer": name} for name in ("llava", "cogvlm", "gpt4", "gemini")]
    bench = tmp_path / "Benchmark"
    lines(bench / "score.jsonl", shared | {"score_id": 6, "name": "llava", "answer": "A cat.", "human": "4"})
    lines(bench / "batch.jsonl", shared | {"answers": answers, "human_answer": "CDAB"})
    items = load_collection(bench, split="score")
    validate(items, needs=())
    assert items["gold"][:] == [4] and items[0]["images"][0].size == (4, 4)
    ranked = judge_of("The better response: [1].").rank(load_collection(bench, split="batch"), progress=False)
    assert len(ranked) == 4 and set(ranked["value"]) == {0.0}
    with pytest.raises(CollectionError, match="'CDA' does not order the 4 answers ABCD"):
        load_collection(lines(tmp_path / "cut.jsonl", shared | {"answers": answers, "human_answer": "CDA"}))


# -- rows in our own columns


def test_canonical_pairs_and_their_faults(tmp_path: Path) -> None:
    rows = [
        {"id": "p", "instruction": "What?", "response_a": "A", "response_b": "B", "preference": "tie", "n": 1},
        {"id": "q", "instruction": "What?", "response_a": "A", "response_b": "", "preference": "first", "n": 2},
    ]
    pairs = load_collection(lines(tmp_path / "pairs.jsonl", *rows))
    assert pairs.features.items() >= data.PAIR_FEATURES.items() and pairs["n"][:] == [1, 2]
    with pytest.raises(CollectionError) as caught:
        validate(pairs)
    assert [(p.index, p.field) for p in caught.value.problems] == [(1, "response_b"), (1, "preference")]
    forms = [pairs, rows, pairs.to_pandas(), plain(pairs), [Pair.from_row(rows[0]), rows[1]]]
    assert len({data.fingerprint(form) for form in forms}) == 1
    assert data.fingerprint(rows) != data.fingerprint([rows[0] | {"preference": "a"}, rows[1]])
    assert data.fingerprint(rows[:1]) != data.fingerprint([rows[0] | {"response_a": "B", "response_b": "A"}])
    with pytest.raises(CollectionError, match="row 0 .* response_b: there is no column response_b"):
        canonical([{"instruction": "What?", "response_a": "A"}])
