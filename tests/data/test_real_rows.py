"""Adapters on rows as they were published, and on what is evidenced of sets without public rows."""

from __future__ import annotations

import json
import shutil
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from samples import ROWS, plain

from vjudge.data import canonical, load_collection, readable
from vjudge.data.critic import interpret
from vjudge.data.load import ADAPTERS

NAMED = {adapter.name: adapter for adapter in ADAPTERS}
real = pytest.mark.skipif(not ROWS.is_dir(), reason="the published rows are not at hand")


def published(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (ROWS / name).read_text("utf-8").splitlines()]


def load(path: Path) -> list[dict[str, Any]]:
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # no row is unreadable
        return plain(load_collection(path))


# -- judges


@real
def test_vl_rewardbench_counts_its_categories_by_its_ids() -> None:
    counts = Counter()
    read = NAMED["VL-RewardBench"].read
    for row in published("vl_rewardbench_labels.jsonl"):
        cells = read({**row, "query": "?", "response": ["x", "y"], "image": ""}, None)
        counts[cells["category"]] += 1
        counts[f"prefers {cells['preference']}"] += 1
    assert counts == {"hallucination": 749, "reasoning": 318, "general": 183, "prefers a": 1245, "prefers b": 5}


@real
def test_vl_rewardbench_rows() -> None:
    rows = load(ROWS / "vl_rewardbench.jsonl")
    assert len(rows) == 35 and all(row["response_a"] and row["response_b"] and row["instruction"] for row in rows)
    assert {row["category"] for row in rows} == {"hallucination", "reasoning", "general"}
    assert len({row["id"] for row in rows}) == 35 and {row["judge"] for row in rows} > {"human"}


@real
@pytest.mark.parametrize("name", ["mllm_judge_score.jsonl", "mllm_judge_score_arxiv.jsonl"])
def test_mllm_judge_scores_under_either_name(name: str) -> None:
    rows, raw = load(ROWS / name), published(name)
    assert [row["gold"] for row in rows] == [float(row.get("human", row.get("Human_answer"))) for row in raw]
    assert [row["category"] for row in rows] == [row["original_dataset"] for row in raw]
    assert all(row["response"] == line["answer"] for row, line in zip(rows, raw, strict=True))


@real
def test_mllm_judge_pairs_whose_label_changes_its_name() -> None:
    rows, raw = load(ROWS / "mllm_judge_pair.jsonl"), published("mllm_judge_pair.jsonl")
    labels = [row.get("human_answer", row.get("human")) for row in raw]
    assert [row["preference"] for row in rows] == [{"A": "a", "B": "b", "C": "tie"}[label] for label in labels]
    assert {row["category"] for row in rows} == {"coco", "ChartQA", "mm-vet"}
    assert rows[0]["policy_a"] == "gpt4" and rows[-1]["response_b"] == raw[-1]["answer2"]["answer"]


@real
def test_mllm_judge_batches() -> None:
    for row, line in zip(load(ROWS / "mllm_judge_batch.jsonl"), published("mllm_judge_batch.jsonl"), strict=True):
        order = sorted(range(len(row["ranks"])), key=row["ranks"].__getitem__)
        assert "".join("ABCDEF"[place] for place in order) == line["human_answer"]
        assert row["policies"] == [answer["name"] for answer in line["answers"]]


def test_multimodal_rewardbench_has_six_categories() -> None:
    read = NAMED["Multimodal RewardBench"].read
    row = {"Text": "?", "Image": "a.png", "Output1": "x", "Output2": "y", "Better": "Output2"}
    cells = [
        read({**row, "ID": id, "Category": category}, None)
        for id, category in [("pairs-1", "safety"), ("math-1", "reasoning"), ("r-1", "reasoning"), ("v", "vqa")]
    ]
    assert [cell["category"] for cell in cells] == ["safety", "reasoning", "reasoning", "vqa"]
    assert [cell["subcategory"] for cell in cells] == ["safety/bias", "reasoning/math", "reasoning/coding", "vqa"]


# -- policies


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


# -- Prometheus


@real
@pytest.mark.filterwarnings("ignore:Preference-Collection")
def test_feedback_and_preference_collections() -> None:
    rows, raw = load(ROWS / "feedback_collection.jsonl"), published("feedback_collection.jsonl")
    assert [row["response"] for row in rows] == [line["orig_response"] for line in raw]
    assert rows[0]["gold"] == float(raw[0]["orig_score"]) and len(rows[0]["descriptions"]) == 5
    raw = published("preference_collection.jsonl")
    assert [row["response_b"] for row in plain(canonical(raw))] == [line["orig_response_B"] for line in raw]
    assert NAMED["Perception-Bench"].split == "train"  # its one split


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


def turns(prompt: str, answer: str) -> dict[str, Any]:
    talk = [{"from": "human", "value": f"<image>\n{prompt}"}, {"from": "gpt", "value": answer}]
    return {"id": "vlfeedback_1", "source": "s", "image": "a.jpg", "conversations": talk}


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
