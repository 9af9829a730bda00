"""Adapters on rows as they were published, and on what is evidenced of sets without public rows."""

from __future__ import annotations

import json
import math
import shutil
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import samples
from samples import LEVELS, ROWS, judge_of, lines, orig, parquet, picture, plain, turns

from vjudge.data import CollectionError, canonical, fingerprint, load_collection, readable, validate, with_responses
from vjudge.data.critic import interpret
from vjudge.data.load import ADAPTERS
from vjudge.prompts import TEMPLATES, target
from vjudge.records import Item, Pair, Rubric

NAMED = {adapter.name: adapter for adapter in ADAPTERS}
real = pytest.mark.skipif(not ROWS.is_dir(), reason="the published rows are not at hand")


def published(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (ROWS / name).read_text("utf-8").splitlines()]


def load(path: Path) -> list[dict[str, Any]]:
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # no row is unreadable
        return plain(load_collection(path))


# -- benchmarks of judges


@real
def test_vl_rewardbench() -> None:
    """The category follows from the id's prefix, for all 1,250 rows."""
    texts = {"query": "?", "response": ["x", "y"], "image": ""}
    cells = [NAMED["VL-RewardBench"].read(label | texts) for label in published("vl_rewardbench_labels.jsonl")]
    assert Counter(cell["category"] for cell in cells) == {"hallucination": 749, "reasoning": 318, "general": 183}
    assert Counter(cell["preference"] for cell in cells) == {"a": 1245, "b": 5}
    rows = load(ROWS / "vl_rewardbench.jsonl")
    assert len({row["id"] for row in rows}) == 35 and all(row["response_a"] and row["response_b"] for row in rows)
    odd = [{**published("vl_rewardbench_labels.jsonl")[0], **texts, "human_ranking": rank} for rank in ([1, 0], [0, 0])]
    with pytest.warns(UserWarning, match=r"1 of 2 rows .* human_ranking: \[0, 0\] is neither"):
        pairs = canonical(odd)
    assert pairs["preference"][:] == ["b", None] and len(readable(pairs)) == 1 and pairs["id"][1].endswith("#2")


@real
@pytest.mark.parametrize("name", ["mllm_judge_score.jsonl", "mllm_judge_score_arxiv.jsonl"])
def test_mllm_judge_scores_under_either_name(name: str) -> None:
    rows, raw = load(ROWS / name), published(name)
    assert [row["gold"] for row in rows] == [float(row.get("human", row.get("Human_answer"))) for row in raw]
    assert [row["category"] for row in rows] == [row["original_dataset"] for row in raw]
    assert all(row["response"] == line["answer"] for row, line in zip(rows, raw, strict=True))


@real
def test_mllm_judge_pairs_and_batches() -> None:
    rows, raw = load(ROWS / "mllm_judge_pair.jsonl"), published("mllm_judge_pair.jsonl")
    labels = [row.get("human_answer", row.get("human")) for row in raw]  # its name changes mid-file
    assert [row["preference"] for row in rows] == [{"A": "a", "B": "b", "C": "tie"}[label] for label in labels]
    assert {row["category"] for row in rows} == {"coco", "ChartQA", "mm-vet"}
    assert rows[0]["policy_a"] == "gpt4" and rows[-1]["response_b"] == raw[-1]["answer2"]["answer"]
    for row, line in zip(load(ROWS / "mllm_judge_batch.jsonl"), published("mllm_judge_batch.jsonl"), strict=True):
        order = sorted(range(len(row["ranks"])), key=row["ranks"].__getitem__)
        assert "".join("ABCDEF"[place] for place in order) == line["human_answer"]
        assert row["policies"] == [answer["name"] for answer in line["answers"]]


def test_pictures_of_mllm_as_a_judge_count_from_the_folder_above(tmp_path: Path) -> None:
    picture(tmp_path, "image/1.jpg")
    shared = {"id": 1, "instruction": "What?", "image_path": "image/1.jpg", "original_dataset": "coco"}
    items = load_collection(
        lines(tmp_path / "B" / "score.jsonl", {**shared, "score_id": 6, "name": "x", "answer": "A.", "human": "4"})
    )
    validate(items, needs=())
    assert items["gold"][:] == [4] and items[0]["images"][0].size == (4, 4)
    answers = [{"name": name, "answer": name} for name in ("llava", "cogvlm", "gpt4", "gemini")]
    with pytest.raises(CollectionError, match="'CDA' does not order the 4 answers ABCD"):
        canonical([{**shared, "answers": answers, "human_answer": "CDA"}])


def test_multimodal_rewardbench_has_six_categories() -> None:
    row = {"Text": "?", "Image": "a.png", "Output1": "x", "Output2": "y", "Better": "Output2"}
    cells = [
        NAMED["Multimodal RewardBench"].read({**row, "ID": id, "Category": category})
        for id, category in [("pairs-1", "safety"), ("math-1", "reasoning"), ("r-1", "reasoning"), ("v", "vqa")]
    ]
    assert [cell["category"] for cell in cells] == ["safety", "reasoning", "reasoning", "vqa"]
    assert [cell["subcategory"] for cell in cells] == ["safety/bias", "reasoning/math", "reasoning/coding", "vqa"]


# -- benchmarks of policies


@real
def test_llava_bench_in_its_two_folders(tmp_path: Path) -> None:
    wild = load(ROWS / "llava_bench_wild")
    assert len(wild) == 60 and Counter(row["category"] for row in wild) == {"conv": 17, "detail": 15, "complex": 28}
    assert all(row["reference_answer"] and row["caption"] for row in wild)
    coco = load(ROWS / "llava_bench_coco")
    assert len(coco) == 90 and Counter(row["category"] for row in coco) == {"conv": 30, "detail": 30, "complex": 30}
    assert all(row["reference_answer"] for row in coco) and coco[0]["benchmark"] == "LLaVA-Bench (COCO)"
    captions = {row["image"]: row["captions"] for row in published("llava_bench_coco/caps_boxes_coco2014_val_80.jsonl")}
    names = [row["image"] for row in published("llava_bench_coco/qa90_questions.jsonl")]
    assert [row["caption"] for row in coco] == ["\n".join(captions.get(name, [])) or None for name in names]
    # Questions alone have the same columns in both.
    for folder, file, name in (("wild", "questions", "in the wild"), ("coco", "qa90_questions", "COCO")):
        alone = shutil.copy(ROWS / f"llava_bench_{folder}" / f"{file}.jsonl", tmp_path / f"{folder}.jsonl")
        assert {row["benchmark"] for row in load(Path(alone))} == {f"LLaVA-Bench ({name})"}


def test_llava_bench_as_the_hubs_tables() -> None:
    wild = {"question_id": 0, "question": "Where?", "image": "001.jpg", "caption": "A crater.", "gpt_answer": "Hawaii."}
    coco = {"question_id": "0", "question": "What?", "image": "000000441147.jpg", "answer": "Cases.", "caption": "Two."}
    (row,) = plain(canonical([{**wild, "category": "conv", "image_id": "001"}]))
    assert (row["reference_answer"], row["group"], row["benchmark"]) == ("Hawaii.", "001", "LLaVA-Bench (in the wild)")
    (row,) = plain(canonical([{**coco, "category": "conv", "image_id": "441147"}]))
    assert (row["reference_answer"], row["group"], row["benchmark"]) == ("Cases.", "441147", "LLaVA-Bench (COCO)")


@real
def test_visit_bench_of_several_images_keeps_its_references() -> None:
    rows, raw = load(ROWS / "visit_bench_multi_images.jsonl"), published("visit_bench_multi_images.jsonl")
    for row, line in zip(rows, raw, strict=True):
        assert [picture["path"] for picture in row["images"]] == json.loads(line["images"])
        assert row["reference_answer"] == (line["reference_output"] if line["reference_output"].strip() else None)
    wrong = [row for row in rows if row["human_ratings_gpt4_correct"] == "False" and row["reference_answer"]]
    assert wrong and all(row["reference_answer"] != row["gpt4_prediction"] for row in wrong)
    rows = load(ROWS / "visit_bench_annotated_example.jsonl")
    assert len(rows) == 10 and all(row["reference_answer"] and len(row["images"]) == 1 for row in rows)


# -- Prometheus-Vision and Prometheus


@real
@pytest.mark.filterwarnings("ignore:Preference-Collection")
def test_feedback_and_preference_collections() -> None:
    rows, raw = load(ROWS / "feedback_collection.jsonl"), published("feedback_collection.jsonl")
    assert [row["response"] for row in rows] == [line["orig_response"] for line in raw]
    assert rows[0]["gold"] == float(raw[0]["orig_score"]) and len(rows[0]["descriptions"]) == 5
    raw = published("preference_collection.jsonl")
    pairs = plain(canonical([*raw, {**raw[0], "orig_preference": "B", "orig_score_A": "4", "orig_score_B": "2"}]))
    assert [row["response_b"] for row in pairs[:2]] == [line["orig_response_B"] for line in raw]
    assert pairs[2]["preference"] is None and "contradicts the scores" in pairs[2]["fault"]
    assert Pair.from_row(pairs[0]).rubric is None and Pair.from_row(pairs[0]).criteria
    assert NAMED["Perception-Bench"].split == "train"  # its one split
    bare = {name: value for name, value in orig(image=None).items() if name not in ("orig_score", "orig_feedback")}
    (item,) = canonical([bare])  # the score stands in the target alone
    assert (item["gold"], item["feedback"]) == (4.0, "Right. So the overall score is 4.")
    with pytest.warns(UserWarning, match="1 of 2 rows could not be read .* gold: 'four' is not a number"):
        canonical([orig(), orig(orig_score="four")])
    (blank,) = plain(canonical([orig(orig_score5_description=None)]))
    assert blank["descriptions"] == [*LEVELS[:4], None], "no scale of four is made of it"


def test_perception_bench_takes_a_policys_answers_in_one_call(tmp_path: Path) -> None:
    rows = [orig(image=picture(tmp_path, f"{n}.png")) for n in range(3)]
    for each in rows:
        for name in ("orig_response", "orig_feedback", "orig_score", "output"):
            del each[name]
    bench = load_collection(parquet(tmp_path / "test.parquet", *rows))
    with pytest.raises(CollectionError, match="response: is missing or blank"):
        validate(bench)
    assert with_responses(bench, ["a", "b", "c"])["response"][:] == ["a", "b", "c"]
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
    items = canonical([{"id": "q", "instruction": "Say.", "response": "old", "gold": 3, "human_scores": [3, 4]}])
    (new,) = plain(with_responses(items, ["new"], rubric=Rubric("True?", tuple(LEVELS))))
    assert (new["response"], math.isnan(new["gold"]), new["human_scores"]) == ("new", True, [])
    assert (new["criteria"], new["descriptions"]) == ("True?", LEVELS)


def test_training_rows_are_taken_apart_or_refused() -> None:
    def conversation(**changes: Any) -> dict[str, Any]:
        item = Item.from_row(samples.row("7", images=["x.png"], reference_answer="It is red.", **changes))
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


def test_pairs_in_our_own_columns(tmp_path: Path) -> None:
    pair = {"instruction": "What?", "response_a": "A", "response_b": "B"}
    rows = [{"id": "p", **pair, "preference": "tie"}, {"id": "q", **pair, "response_b": "", "preference": "first"}]
    pairs = load_collection(lines(tmp_path / "pairs.jsonl", *rows))
    with pytest.raises(CollectionError) as caught:
        validate(pairs)
    assert [(p.index, p.field) for p in caught.value.problems] == [(1, "response_b"), (1, "preference")]
    forms = [pairs, rows, pairs.to_pandas(), plain(pairs), [Pair.from_row(rows[0]), rows[1]]]
    assert len({fingerprint(form) for form in forms}) == 1
    assert fingerprint(rows) != fingerprint([rows[0] | {"preference": "a"}, rows[1]])


# -- LLaVA-Critic-113k, by its evidenced wordings

WILDER = (
    "[Question]\nWhat is it?\n\n[Assistant 1]\nA cat.\n\n[End of Assistant 1]\n\n[Assistant 2]\nA dog.\n\n"
    "[End of Assistant 2]\n\n[System]\nAssume assistant 1 always receive a score of 10.\n\n"
)
ARENA = (
    "<|User Prompt|>\nWhat is it?\n\n<|The Start of Assistant A's Answer|>\nA cat.\n<|The End of Assistant A's Answer|>"
    "\n\n<|The Start of Assistant B's Answer|>\nA dog.\n<|The End of Assistant B's Answer|>"
)
CAPTION = (
    "Text Caption: A cat on a mat.\nFrom 0 to 100, how much do you rate for this Text Caption in terms of the correct"
    " and comprehensive description of the image?\n"
)
MM_VET = (
    "Just complete the last space of the correctness score.\nQuestion | Ground truth | Prediction | Correctness\n"
    "--- | --- | --- | ---\nWhat is x? | -1 | x = 3 | 0.0\nWhat is it? | a cat | A dog. |"
)
PAIR = "Question: [What is it?]\n{} A: [A cat.]\n{} B: [A dog.]\nASSISTANT:\n".replace("{}", "Response")
ORDINAL = "Question: [What is it?]\nThe first response: [A cat.]\nThe second response: [A dog.]\nASSISTANT:\n"
SINGLE = "Question: [What is it?]\nThe LMM response: [A dog.]\nASSISTANT:\n "


@pytest.mark.parametrize(
    ("prompt", "answer", "wording", "verdict", "scale"),
    [
        (PAIR, "The better response: [B]. It is a dog.", "responses", "b", None),
        (PAIR.replace(" A:", " 1:").replace(" B:", " 2:"), "The better response: [1].", "responses", "a", None),
        (PAIR, "Response B is better than response A. It is a dog.", "responses", "b", None),
        (PAIR, "Two responses are equally good.", "responses", "tie", None),
        (ORDINAL, "The better response: [second].", "llava-critic-pair", "b", None),
        (ARENA, "Both see an animal.\nMy final verdict is: [[A>>B]]", "arena", "a", None),
        (SINGLE, "Score: 85\nIt is a dog.", "llava-critic", 85.0, (0, 100)),
        (CAPTION, "It sees the cat.\nFinal Score: 85.", "caption", 85.0, (0, 100)),
        (WILDER, "10 9\nBoth are right.", "assistants", 9.0, (1, 10)),
        (MM_VET, "0.5", "mm-vet", 0.5, (0, 1)),
        ("Rate the answer on a scale of 1 to 10.\nThe answer: A dog.", "Score: 7", None, 7.0, (1, 10)),
        ("Scores of Assistant 1 and Assistant 2.\n[Assistant 1] A [Assistant 2] B", "8 9\nGood.", None, 9.0, (1, 10)),
    ],
)
def test_evidenced_wordings_of_llava_critic(
    prompt: str, answer: str, wording: str | None, verdict: float | str, scale: Any
) -> None:
    reading = interpret(turns(prompt, answer))
    assert (reading.wording, reading.scale) == (wording, scale) and reading.verdict.failure is None
    assert verdict in (reading.verdict.score, reading.verdict.choice)
    assert (reading.kind == "pairwise") == isinstance(verdict, str)
    assert reading.prompt == prompt and reading.answer == answer
    texts = reading.texts
    if wording not in (None, "caption"):
        assert texts["instruction"] == "What is it?"
        assert [texts[name] for name in ("response", "response_b") if name in texts] == ["A dog."]
    if wording in ("assistants", "mm-vet"):
        assert texts["reference_answer"].lower().rstrip(".") == "a cat"


def test_multiple_choice_stays_what_it_is_and_every_row_trains() -> None:
    choice = "Which animal is it?\nA. cat\nB. dog\nAnswer with the option's letter."
    with pytest.warns(UserWarning, match="LLaVA-Critic-113k: 2 of 4 rows"):
        items = canonical(
            [turns(SINGLE, "Score: 85"), turns(WILDER, "10 9\nFine."), turns(choice, "B"), turns(PAIR, "?")]
        )
    assert items["scale"][:] == ["0-100", "1-10", None, None] and items["gold"][:2] == [85, 9]
    assert "lettered options" in items["fault"][2] and items["reference_answer"][1] == "A cat."
    assert all(items["prompt"][:]) and all(items["target"][:]) and len(readable(items)) == 2


def test_a_text_that_holds_a_header_is_not_cut() -> None:
    reading = interpret(turns(ORDINAL.replace("A cat.", "x]\nThe second response: [y"), "The better response: [1]."))
    assert (reading.kind, reading.wording, reading.texts, reading.verdict.choice) == ("pairwise", None, {}, "a")


def test_critic_rows_go_straight_into_grade_and_compare(tmp_path: Path) -> None:
    rows = [turns(SINGLE, "Score: 85\nIt is right."), turns(PAIR, "The better response: [1]."), turns(SINGLE, "Right.")]
    with pytest.warns(UserWarning, match="LLaVA-Critic-113k: 2 of 3 rows"):
        items = load_collection(parquet(tmp_path / "pointwise.parquet", *rows))
    with pytest.raises(CollectionError, match=r"row 1 .* response: is missing or blank \(the row is pairwise"):
        validate(items, needs=TEMPLATES["llava-critic"].needs)
    run = judge_of("Score: 70. Fine.").grade(readable(items), progress=False)
    assert run["score"].tolist() == [70] and run["gold"].tolist() == [85] and run.attrs["scale"] == (0, 100)
    rows = [turns(PAIR, "The better response: [1]."), turns(PAIR, "Two responses are equally good."), rows[0]]
    for name in ("train.parquet", "pairwise.parquet"):  # by its rows, or by its name
        with pytest.warns(UserWarning, match="1 of 3 rows"):
            pairs = load_collection(parquet(tmp_path / name, *rows))
        assert pairs["preference"][:] == ["a", "tie", None] and pairs["response_a"][:2] == ["A cat."] * 2
    run = judge_of("The better response: [1].").compare(readable(pairs), progress=False)
    assert run["verdict_ab"].tolist() == ["a", "a"] and run["verdict"].tolist() == ["tie", "tie"]


@pytest.mark.parametrize("talk", [None, "x", [{"from": "human", "value": "a"}], [{"from": "gpt", "value": "a"}] * 2])
def test_critic_rows_without_a_question_and_an_answer(talk: Any) -> None:
    with pytest.warns(UserWarning, match="conversations: is not one human and one gpt turn"):
        items = canonical([turns(SINGLE, "Score: 85"), turns("", "", conversations=talk)])
    assert [fault is None for fault in items["fault"]] == [True, False]
