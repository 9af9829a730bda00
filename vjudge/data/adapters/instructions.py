"""LLaVA-Bench and VisIT-Bench: questions about images, whose responses come from the policy under evaluation.

None of them has a rubric; `vjudge.data.with_responses` adds one with the responses.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from vjudge.data.adapters.adapter import Adapter, Row, images, rest, texts


def read_wild(row: Row, part: str | None = None) -> dict[str, Any]:
    """A question of LLaVA-Bench in the wild; GPT-4's answer, written from a caption, is the reference."""
    return {
        **rest(row, "question_id", "text", "image", "answer"),
        **texts(row, {"instruction": "text"}),
        "id": row["question_id"],
        "images": images(row),
        "reference_answer": row.get("answer"),
    }


def open_wild(folder: Path) -> list[Row]:
    """The questions with GPT-4's answers and the captions, from the files that the set consists of.

    Source: liuhaotian/llava-bench-in-the-wild.
    """
    answers = {line["question_id"]: line.get("text") for line in _lines(folder / "answers_gpt4.jsonl")}
    captions = {line.get("image"): line.get("caption") for line in _lines(folder / "context.jsonl")}
    return [
        {**line, "answer": answers.get(line.get("question_id")), "caption": captions.get(line.get("image"))}
        for line in _lines(folder / "questions.jsonl")
    ]


def _lines(file: Path) -> list[dict[str, Any]]:
    """The objects of a file of lines; none where the file is absent."""
    if not file.is_file():
        return []
    return [json.loads(line) for line in file.read_text(encoding="utf-8-sig").splitlines() if line.strip()]


def read_coco(row: Row, part: str | None = None) -> dict[str, Any]:
    """A question of LLaVA-Bench (COCO); its answer is GPT-4's."""
    return {
        **rest(row, "question_id", "question", "image", "answer"),
        **texts(row, {"instruction": "question"}),
        "id": row["question_id"],
        "images": images(row),
        "reference_answer": row["answer"],
        "group": row.get("image_id"),
    }


def read_visit(row: Row, part: str | None = None) -> dict[str, Any]:
    """A question of VisIT-Bench.

    GPT-4's output is the reference answer unless people rated it wrong; it stays in `reference_output` in any case.
    """
    wrong = str(row.get("human_ratings_gpt4_correct")).strip().lower() in ("false", "0", "0.0")
    return {
        **rest(row, "image", "instruction"),
        **texts(row, {"instruction": "instruction"}),
        "images": images(row),
        "reference_answer": None if wrong else row["reference_output"],
        "group": row.get("image_id"),
    }


LLAVA_BENCH_WILD = Adapter(
    "LLaVA-Bench (in the wild)",
    columns=("question_id", "image", "text", "category"),
    read=read_wild,
    ids=("liuhaotian/llava-bench-in-the-wild",),
    reads_folder=open_wild,
    marker="questions.jsonl",
    image_roots=("images", "."),
)
LLAVA_BENCH_COCO = Adapter(
    "LLaVA-Bench (COCO)",
    columns=("question_id", "question", "image", "answer", "caption"),
    read=read_coco,
    ids=("lmms-lab/llava-bench-coco",),
)
VISIT_BENCH = Adapter(
    "VisIT-Bench",
    columns=("instruction_category", "image", "instruction", "reference_output"),
    read=read_visit,
    ids=("mlfoundations/VisIT-Bench",),
    split="test",
    gated=True,
)
