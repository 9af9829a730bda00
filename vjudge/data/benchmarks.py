"""Benchmarks of judges, and of policies: of these the questions alone are published, without a `response`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vjudge.data.schema import Adapter, BadRow, Row, plain
from vjudge.records import is_missing

_MEND = "correct it or leave the row out"


# -- judges: two responses and whose is better; one and its score; several in order


def _vl(row: Row, part: str | None) -> dict[str, Any]:
    """VL-RewardBench: of each of two responses its rank, 0 for the preferred one.

    Its category follows from the id's prefix. `query_source`, which looks like it, is where the picture came from.

    Source: vl-rewardbench/VL_RewardBench cal.py.
    """
    responses, ranks = plain(row["response"]), plain(row["human_ranking"])
    if not isinstance(responses, list) or len(responses) != 2 or not all(isinstance(text, str) for text in responses):
        raise BadRow(("response", "is not a list of two texts", _MEND))
    if not isinstance(ranks, list) or sorted(map(str, ranks)) != ["0", "1"]:
        raise BadRow(("human_ranking", f"{ranks!r} is neither [0, 1] nor [1, 0]", _MEND))
    categories = dict.fromkeys(("hallucination", "rlaif", "rlhf"), "hallucination")
    categories |= dict.fromkeys(("mathverse", "mmmu"), "reasoning")
    return {
        "instruction": str(row["query"]).replace("<image>\n", ""),  # as the set's own code does
        "response_a": responses[0],
        "response_b": responses[1],
        "preference": "ab"[int(ranks[1]) == 0],
        "category": categories.get(re.split("[_-]", str(row.get("id")))[0].lower(), "general"),
    }


def _multimodal(row: Row, part: str | None) -> dict[str, Any]:
    """Multimodal RewardBench, in its six categories."""
    preference = _choice(row, "Better", {"output1": "a", "output2": "b"}, "neither Output1 nor Output2")
    return {"preference": preference, "category": str(row.get("Category"))}


def _score(row: Row, part: str | None) -> dict[str, Any]:
    """MLLM-as-a-Judge's scores, one person's from 1 to 5; some are strings."""
    return {"gold": row.get(_label(row)), "category": row.get("original_dataset")}


def _pair(row: Row, part: str | None) -> dict[str, Any]:
    """MLLM-as-a-Judge's comparisons; C is a tie."""
    preference = _choice(row, _label(row), {"a": "a", "b": "b", "c": "tie"}, "none of A, B and C (a tie)")
    (first, a), (second, b) = (_answer(row[name], name) for name in ("answer1", "answer2"))
    cells = {"policy_a": first, "response_a": a, "policy_b": second, "response_b": b}
    return {"preference": preference, "category": row.get("original_dataset"), **cells}


def _batch(row: Row, part: str | None) -> dict[str, Any]:
    """MLLM-as-a-Judge's rankings: the answers' letters, best first."""
    answers = [_answer(answer, f"answers[{place}]") for place, answer in enumerate(plain(row["answers"]) or ())]
    letters, order = "ABCDEFGHIJ"[: len(answers)], str(row.get(_label(row))).strip().upper()
    if len(answers) < 2 or sorted(order) != sorted(letters):
        what = f"{row.get(_label(row))!r} does not order the {len(answers)} answers {letters}"
        raise BadRow((_label(row), what, _MEND))
    policies, responses = zip(*answers, strict=True)
    ranks = [order.index(letter) + 1.0 for letter in letters]
    cells = {"responses": list(responses), "policies": list(policies), "ranks": ranks}
    return {**cells, "category": row.get("original_dataset")}


def _choice(row: Row, column: str, choices: Mapping[str, str], what: str) -> str:
    """What a label says, by its lower-case text."""
    choice = choices.get(str(row.get(column)).strip().lower())
    if choice is None:
        raise BadRow((column, f"{row.get(column)!r} is {what}", _MEND))
    return choice


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


def _llava_bench(row: Row, part: str | None) -> dict[str, Any]:
    """LLaVA-Bench in any of its forms; GPT-4's answer, written from a caption, is the reference.

    The two sets have the same columns: `benchmark` says by the picture's name which one a row is of. `context` is what
    the set's own judge reads in the picture's place: the captions, and of COCO the boxes too.
    """
    captions, boxes = plain(row.get("captions")), plain(row.get("instances")) or ()
    caption = "\n".join(captions) if isinstance(captions, list) else row.get("caption")
    listed = "\n".join(f"{box['category']}: {plain(box['bbox'])}" for box in boxes)
    coco = "answer" in row and "text" not in row
    if isinstance(name := row.get("image"), str):
        coco = bool(re.fullmatch(r"0{4}[0-9]{8}(\.\w+)?", Path(name).name))
    return {
        "caption": caption,
        "context": f"{caption}\n\n{listed}" if listed else caption,
        "benchmark": f"LLaVA-Bench ({'COCO' if coco else 'in the wild'})",
        "group": row.get("image_id"),
    }


def _visit(row: Row, part: str | None) -> dict[str, Any]:
    """VisIT-Bench, of one picture or of several, a JSON list in a text cell, whose order matters.

    `human_ratings_gpt4_correct` is about `gpt4_prediction` and says nothing of the reference.
    """
    pictures: Any = next((plain(row[name]) for name in ("image", "images", "image_url") if row.get(name)), [])
    reference = next((row[name] for name in ("reference_output", "output_human_annotated") if name in row), None)
    return {
        "images": pictures if isinstance(pictures, list) else [pictures],
        "reference_answer": reference if isinstance(reference, str) and reference.strip() else None,
        "category": row.get("instruction_category"),
        "group": row.get("image_id"),
    }


def _mllm(kind: str, columns: str, more: Any, id: str = "id", **names: str) -> Adapter:
    """A part of MLLM-as-a-Judge (Dongping-Chen/MLLM-Judge, Dataset/)."""
    return Adapter(
        f"MLLM-as-a-Judge ({kind})",
        ("instruction", "image_path", *columns.split()),
        {"id": id, "images": "image_path", "instruction": "instruction", **names},
        more,
        f"id|{columns.replace(' ', '|')}|human|[hH]uman_answer",
        image_roots=(".", "..", "image", "../image"),
        repeats_ids=True,
        benchmark=f"mllm-judge-{kind}",
    )


def _llava(name: str, columns: str, benchmark: str, **options: Any) -> Adapter:
    """A form of LLaVA-Bench."""
    names = {"id": "question_id", "images": "image", "instruction": "text question"}
    names["reference_answer"] = "answer gpt_answer"
    known = ("question_id", "image", *columns.split())
    return Adapter(name, known, names, _llava_bench, "captions|instances", benchmark=benchmark, **options)


_WILD = ("questions.jsonl", "answers_gpt4.jsonl", "context.jsonl")
_BOXES = "caps_boxes_coco2014_val_80.jsonl"
_COCO = ("qa90_questions.jsonl", "qa90_gpt4_answer.jsonl", _BOXES, f"../../../llava/eval/table/{_BOXES}")

ADAPTERS = (
    Adapter(
        "VL-RewardBench",
        ("query", "response", "human_ranking"),
        {"images": "image"},
        _vl,
        "query|response|human_ranking",
        ids=("MMInstruction/VL-RewardBench",),
        split="test",
        repeats_ids=True,
        benchmark="vl-rewardbench",
    ),
    Adapter(  # facebookresearch/multimodal_rewardbench data/all_data.json, which its own script writes
        "Multimodal RewardBench",
        ("Text", "Output1", "Output2", "Better"),
        {"id": "ID", "images": "Image", "instruction": "Text", "response_a": "Output1", "response_b": "Output2"},
        _multimodal,
        "Better|Category",
        image_roots=(".", "data"),
        repeats_ids=True,
        benchmark="multimodal-rewardbench",
    ),
    _mllm("score", "score_id answer", _score, "score_id", response="answer", policy="name"),
    _mllm("pair", "answer1 answer2", _pair, "pair_id id"),
    _mllm("batch", "answers", _batch),
    _llava(
        "LLaVA-Bench (in the wild)",
        "text category",
        "llava-bench-wild",
        ids=("liuhaotian/llava-bench-in-the-wild",),
        files=_WILD,
        image_roots=("images", "."),
    ),
    _llava(
        "LLaVA-Bench (in the wild), as one table",
        "question caption gpt_answer",
        "llava-bench-wild",
        ids=("lmms-lab/llava-bench-in-the-wild",),
    ),
    _llava("LLaVA-Bench (COCO)", "question answer caption", "llava-bench-coco", ids=("lmms-lab/llava-bench-coco",)),
    _llava(  # haotian-liu/LLaVA playground/data/coco2014_val_qa_eval
        "LLaVA-Bench (COCO), from its repository",
        "text category",
        "llava-bench-coco",
        files=_COCO,
        image_roots=(".", "val2014"),
    ),
    Adapter(
        "VisIT-Bench",
        ("instruction_category", "instruction"),
        {"instruction": "instruction"},
        _visit,
        "image|images",
        ids=("mlfoundations/VisIT-Bench",),
        split="test",
        benchmark="visit-bench",
    ),
)
