"""Benchmarks of judges, and of policies: of these the questions alone are published, for `data.with_responses`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vjudge.data.schema import Adapter, BadRow, Row, images, plain, rest, texts
from vjudge.records import is_missing

_MEND = "correct it or leave the row out"
_VL_HALLUCINATION, _VL_REASONING = ("hallucination", "rlaif", "rlhf"), ("mathverse", "mmmu")
_COCO_PICTURE = re.compile(r"0{4}[0-9]{8}(\.\w+)?")


# -- judges: two responses and whose is better; one and its score; several in order


def read_vl(row: Row, part: str | None = None) -> dict[str, Any]:
    """A row of VL-RewardBench: two responses, and of each its rank, 0 for the preferred one.

    Its category follows from the id's prefix. `query_source`, which looks like it, is where the picture came from.

    Source: vl-rewardbench/VL_RewardBench cal.py.
    """
    prefix = re.split("[_-]", str(row.get("id")), maxsplit=1)[0].lower()
    category = "hallucination" if prefix in _VL_HALLUCINATION else "reasoning" if prefix in _VL_REASONING else "general"
    return {
        **rest(row, "query", "response", "human_ranking", "image"),
        "images": images(row),
        "instruction": str(row["query"]).replace("<image>\n", ""),  # as the set's own code does
        **_pair(row, "response", "human_ranking", best=0),
        "category": category,
    }


def read_multimodal(row: Row, part: str | None = None) -> dict[str, Any]:
    """A row of Multimodal RewardBench; `subcategory` splits safety and reasoning as its accuracy script does.

    Source: facebookresearch/multimodal_rewardbench scripts/2_get_accuracy.py.
    """
    preference = _choice(row, "Better", {"output1": "a", "output2": "b"}, "neither Output1 nor Output2")
    id, category = str(row["ID"]), str(row.get("Category"))
    finer = {
        "safety": "safety/bias" if id.lower().startswith("pairs") else "safety/toxicity",
        "reasoning": "reasoning/math" if id.lower().startswith("math") else "reasoning/coding",
    }
    return {
        **rest(row, "ID", "Text", "Image", "Output1", "Output2", "Better", "Category"),
        **texts(row, {"instruction": "Text", "response_a": "Output1", "response_b": "Output2"}),
        "id": id,
        "images": images(row, "Image"),
        "preference": preference,
        "category": category,
        "subcategory": finer.get(category, category),
    }


def read_score(row: Row, part: str | None = None) -> dict[str, Any]:
    """A row of MLLM-as-a-Judge's scores, one person's from 1 to 5; some are strings."""
    column = _label(row)
    return {
        **_judged(row, "score_id", column, "answer", "name"),
        **texts(row, {"response": "answer"}),
        "gold": row.get(column),
        "policy": row.get("name"),
        "category": row.get("original_dataset"),
    }


def read_pair(row: Row, part: str | None = None) -> dict[str, Any]:
    """A row of MLLM-as-a-Judge's comparisons; C is a tie."""
    column = _label(row)
    preference = _choice(row, column, {"a": "a", "b": "b", "c": "tie"}, "none of A, B and C (a tie)")
    first, second = (_answer(row[name], name) for name in ("answer1", "answer2"))
    return {
        **_judged(row, "pair_id" if "pair_id" in row else "id", column, "answer1", "answer2"),
        "response_a": first[1],
        "response_b": second[1],
        "policy_a": first[0],
        "policy_b": second[0],
        "preference": preference,
        "category": row.get("original_dataset"),
    }


def read_batch(row: Row, part: str | None = None) -> dict[str, Any]:
    """A row of MLLM-as-a-Judge's rankings: the answers' letters, best first."""
    column = _label(row)
    answers = [_answer(answer, f"answers[{place}]") for place, answer in enumerate(plain(row["answers"]) or ())]
    letters = "ABCDEFGHIJ"[: len(answers)]
    order = str(row.get(column)).strip().upper()
    if len(answers) < 2 or sorted(order) != sorted(letters):
        raise BadRow((column, f"{row.get(column)!r} does not order the {len(answers)} answers {letters}", _MEND))
    return {
        **_judged(row, "id", column, "answers"),
        "responses": [text for _, text in answers],
        "policies": [name for name, _ in answers],
        "ranks": [float(order.index(letter) + 1) for letter in letters],
        "category": row.get("original_dataset"),
    }


def _pair(row: Row, texts: str, marks: str, *, best: int, within: str = "") -> dict[str, Any]:
    """Two responses in a list, and in another which is the better one: that with the mark `best`, of 0 and 1."""
    responses, order = plain(row.get(texts)), plain(row.get(marks))
    faults = []
    if not isinstance(responses, list) or len(responses) != 2 or not all(isinstance(text, str) for text in responses):
        faults.append((f"{within}{texts}", "is not a list of two texts", _MEND))
    if not isinstance(order, list) or sorted(map(str, order)) != ["0", "1"]:
        faults.append((f"{within}{marks}", f"{order!r} is neither [0, 1] nor [1, 0]", _MEND))
    if faults:
        raise BadRow(*faults)
    assert isinstance(responses, list) and isinstance(order, list)
    preference = "a" if int(order[0]) == best else "b"
    return {"response_a": responses[0], "response_b": responses[1], "preference": preference}


def _choice(row: Row, column: str, choices: Mapping[str, str], what: str) -> str:
    """What a label says, by its lower-case text."""
    choice = choices.get(str(row.get(column)).strip().lower())
    if choice is None:
        raise BadRow((column, f"{row.get(column)!r} is {what}", _MEND))
    return choice


def _judged(row: Row, id: str, *used: str) -> dict[str, Any]:
    """What the rows of MLLM-as-a-Judge have in common."""
    return {
        **rest(row, id, "id", "instruction", "image_path", *used),
        **texts(row, {"instruction": "instruction"}),
        "id": row.get(id),
        "images": images(row, "image_path"),
    }


def _label(row: Row) -> str:
    """The column of a person's judgement in MLLM-as-a-Judge; its name differs by file, and within one."""
    names = ("human", "human_answer", "Human_answer")
    return next((name for name in names if not is_missing(row.get(name))), "human")


def _answer(value: Any, field: str) -> tuple[Any, str]:
    """Who answered, and what."""
    if not isinstance(value, Mapping) or not isinstance(value.get("answer"), str):
        raise BadRow((field, "is not an object with name and answer", _MEND))
    return value.get("name"), value["answer"]


# -- policies: questions about images


def read_llava_bench(row: Row, part: str | None = None) -> dict[str, Any]:
    """A question of LLaVA-Bench in any of its forms; GPT-4's answer, written from a caption, is the reference.

    The two sets have the same columns: `benchmark` says by the picture's name which one a row is of. `context` is what
    the set's own judge reads in the picture's place: the captions, and of COCO the boxes too.
    """
    question = "text" if "text" in row else "question"
    answer = next((name for name in ("answer", "gpt_answer") if name in row), "answer")
    captions, boxes = plain(row.get("captions")), plain(row.get("instances")) or ()
    caption = "\n".join(captions) if isinstance(captions, list) else row.get("caption")
    listed = "\n".join(f"{box['category']}: {plain(box['bbox'])}" for box in boxes)
    coco = "answer" in row and question == "question"
    if isinstance(name := row.get("image"), str):
        coco = bool(_COCO_PICTURE.fullmatch(Path(name).name))
    return {
        **rest(row, "question_id", question, "image", answer, "captions", "instances"),
        **texts(row, {"instruction": question}),
        "id": row["question_id"],
        "images": images(row),
        "reference_answer": row.get(answer),
        "caption": caption,
        "context": f"{caption}\n\n{listed}" if listed else caption,
        "benchmark": f"LLaVA-Bench ({'COCO' if coco else 'in the wild'})",
        "group": row.get("image_id"),
    }


def read_visit(row: Row, part: str | None = None) -> dict[str, Any]:
    """A question of VisIT-Bench, of one picture or of several, a JSON list in a text cell, whose order matters.

    `human_ratings_gpt4_correct` is about `gpt4_prediction` and says nothing of the reference.
    """
    name = next((name for name in ("image", "images", "image_url") if row.get(name)), "image")
    reference = next((row[name] for name in ("reference_output", "output_human_annotated") if name in row), None)
    return {
        **rest(row, "image", "images", "instruction"),
        **texts(row, {"instruction": "instruction"}),
        "images": images(row, name),
        "reference_answer": reference if isinstance(reference, str) and reference.strip() else None,
        "category": row.get("instruction_category"),
        "group": row.get("image_id"),
    }


# -- pairs about texts alone, on which Prometheus ranks by its scores


def read_hhh(row: Row, part: str | None = None) -> dict[str, Any]:
    """A row of HHH Alignment: two answers, the one labelled 1 preferred; `category` is its part.

    Source: HuggingFaceH4/hhh_alignment (card: input; targets with choices and labels).
    """
    targets = plain(row["targets"])
    return {
        **rest(row, "input", "targets"),
        **texts(row, {"instruction": "input"}),
        "images": [],
        **_pair(targets if isinstance(targets, Mapping) else {}, "choices", "labels", best=1, within="targets."),
        "category": part,
    }


def read_mt_bench(row: Row, part: str | None = None) -> dict[str, Any]:
    """A row of MT-Bench's judgements: the first turn, or both as one text each, which is our wording.

    Source: lmsys/mt_bench_human_judgments (card); the question is the unit of resampling, as many people judge each.
    """
    winners = {"model_a": "a", "model_b": "b"} | dict.fromkeys(("tie", "tie (inconsistent)", "tie (bothbad)"), "tie")
    preference = _choice(row, "winner", winners, "none of model_a, model_b and tie")
    turn = row["turn"]
    if turn not in (1, 2):
        raise BadRow(("turn", f"{turn!r} is neither 1 nor 2", _MEND))
    talks = {side: _turns(row, f"conversation_{side}", turn) for side in "ab"}
    if talks["a"][0] != talks["b"][0]:
        raise BadRow(("conversation_b", "asks something else than conversation_a", _MEND))
    names = ("question_id", "model_a", "model_b", "judge", "turn")
    return {
        **rest(row, "conversation_a", "conversation_b", "winner", "model_a", "model_b"),
        "id": "/".join(str(row.get(name)) for name in names),
        "images": [],
        "instruction": _together(talks["a"][0], "User"),
        "response_a": _together(talks["a"][1], "Assistant"),
        "response_b": _together(talks["b"][1], "Assistant"),
        "policy_a": row.get("model_a"),
        "policy_b": row.get("model_b"),
        "preference": preference,
        "category": f"turn {turn}",
        "group": str(row["question_id"]),
    }


def _turns(row: Row, name: str, turn: int) -> tuple[list[str], list[str]]:
    """What the user and the assistant said, up to the judged turn."""
    try:
        roles, contents = zip(*((message["role"], message["content"]) for message in row[name]), strict=True)
        whole = all(text.strip() for text in contents) and len(roles) >= 2 * turn
    except (TypeError, KeyError, ValueError, AttributeError):  # no list of messages with texts
        whole, roles = False, ()
    if not whole or roles != ("user", "assistant") * (len(roles) // 2):
        raise BadRow((name, "is not a list of user and assistant messages, by turns, up to the judged one", _MEND))
    return list(contents[0 : 2 * turn : 2]), list(contents[1 : 2 * turn : 2])


def _together(texts: list[str], who: str) -> str:
    """One turn as it is; two as a numbered text."""
    numbered = [f"{who}, turn {number}:\n{text}" for number, text in enumerate(texts, start=1)]
    return "\n\n".join(numbered) if len(texts) > 1 else texts[0]


_MLLM: dict[str, Any] = {
    "image_roots": (".", "..", "image", "../image"),
    "repeats_ids": True,
    "home": "https://github.com/Dongping-Chen/MLLM-Judge (Dataset/)",
}
_BOXES = "caps_boxes_coco2014_val_80.jsonl"
_QUESTIONS = ("question_id", "image", "text", "category")  # of both sets of LLaVA-Bench, from their repositories

ADAPTERS = (
    Adapter(
        "VL-RewardBench",
        read_vl,
        ("query", "response", "human_ranking"),
        ids=("MMInstruction/VL-RewardBench",),
        split="test",
        repeats_ids=True,
        benchmark="vl-rewardbench",
    ),
    Adapter(
        "Multimodal RewardBench",
        read_multimodal,
        ("Text", "Output1", "Output2", "Better"),
        image_roots=(".", "data"),
        repeats_ids=True,
        home="https://github.com/facebookresearch/multimodal_rewardbench (data/all_data.json, by its own script)",
        benchmark="multimodal-rewardbench",
    ),
    Adapter(
        "MLLM-as-a-Judge (score)",
        read_score,
        ("score_id", "instruction", "answer", "image_path"),
        benchmark="mllm-judge-score",
        **_MLLM,
    ),
    Adapter(
        "MLLM-as-a-Judge (pair)",
        read_pair,
        ("instruction", "answer1", "answer2", "image_path"),
        benchmark="mllm-judge-pair",
        **_MLLM,
    ),
    Adapter(
        "MLLM-as-a-Judge (batch)",
        read_batch,
        ("instruction", "answers", "image_path"),
        benchmark="mllm-judge-batch",
        **_MLLM,
    ),
    Adapter(
        "LLaVA-Bench (in the wild)",
        read_llava_bench,
        _QUESTIONS,
        ids=("liuhaotian/llava-bench-in-the-wild",),
        files=("questions.jsonl", "answers_gpt4.jsonl", "context.jsonl"),
        image_roots=("images", "."),
        benchmark="llava-bench-wild",
    ),
    Adapter(
        "LLaVA-Bench (in the wild), as one table",
        read_llava_bench,
        ("question_id", "question", "image", "caption", "gpt_answer"),
        ids=("lmms-lab/llava-bench-in-the-wild",),
        benchmark="llava-bench-wild",
    ),
    Adapter(
        "LLaVA-Bench (COCO)",
        read_llava_bench,
        ("question_id", "question", "image", "answer", "caption"),
        ids=("lmms-lab/llava-bench-coco",),
        benchmark="llava-bench-coco",
    ),
    Adapter(
        "LLaVA-Bench (COCO), from its repository",
        read_llava_bench,
        _QUESTIONS,
        files=("qa90_questions.jsonl", "qa90_gpt4_answer.jsonl", _BOXES, f"../../../llava/eval/table/{_BOXES}"),
        image_roots=(".", "val2014"),
        home="https://github.com/haotian-liu/LLaVA (playground/data/coco2014_val_qa_eval)",
        benchmark="llava-bench-coco",
    ),
    Adapter(
        "VisIT-Bench",
        read_visit,
        ("instruction_category", "instruction"),
        ids=("mlfoundations/VisIT-Bench",),
        split="test",
        benchmark="visit-bench",
    ),
    Adapter(
        "HHH Alignment",
        read_hhh,
        ("input", "targets"),
        ids=("HuggingFaceH4/hhh_alignment",),
        split="test",
        parts=("harmless", "helpful", "honest", "other"),
        benchmark="hhh",
    ),
    Adapter(
        "MT-Bench human judgements",
        read_mt_bench,
        ("winner", "conversation_a", "conversation_b", "turn"),
        ids=("lmsys/mt_bench_human_judgments",),
        split="human",
        repeats_ids=True,
        benchmark="mt-bench",
    ),
)
