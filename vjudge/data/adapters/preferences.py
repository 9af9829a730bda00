"""Sets of human judgements to test a judge on: VL-RewardBench, Multimodal RewardBench, MLLM-as-a-Judge."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vjudge.data.adapters.adapter import Adapter, Row, images, rest, texts
from vjudge.data.schema import BadRow, plain

VL_GROUPS = {
    "vlfeedback": "general",
    "wildvision-battle": "general",
    "povid": "hallucination",
    "rlhf-v": "hallucination",
    "rlaif-v": "hallucination",
    "reasoning_tasks": "reasoning",
}
"""A row's `query_source` -> the three groups whose mean accuracy VL-RewardBench reports as macro average.

Source: vl-rewardbench/VL_RewardBench cal.py."""


def read_vl(row: Row, part: str | None = None) -> dict[str, Any]:
    """A row of VL-RewardBench: two responses, and of each its rank among people, 0 for the preferred one."""
    responses, ranks = plain(row["response"]), plain(row["human_ranking"])
    faults = []
    if not isinstance(responses, list) or len(responses) != 2 or not all(isinstance(each, str) for each in responses):
        faults.append(("response", "is not a list of two texts", "correct it or leave the row out"))
    if not isinstance(ranks, list) or [int(rank) for rank in ranks] not in ([0, 1], [1, 0]):
        faults.append(("human_ranking", f"{ranks!r} is neither [0, 1] nor [1, 0]", "correct it or leave the row out"))
    if faults:
        raise BadRow(*faults)
    return {
        **rest(row, "query", "response", "human_ranking", "image"),
        "images": images(row),
        "instruction": str(row["query"]).replace("<image>\n", ""),  # as the set's own code does
        "response_a": responses[0],
        "response_b": responses[1],
        "preference": "a" if int(ranks[0]) == 0 else "b",
        "category": VL_GROUPS.get(str(row.get("query_source")).lower()),
    }


def read_multimodal(row: Row, part: str | None = None) -> dict[str, Any]:
    """A row of Multimodal RewardBench; `category` splits safety and reasoning as its own accuracy script does.

    Source: facebookresearch/multimodal_rewardbench scripts/2_get_accuracy.py.
    """
    better = str(row["Better"]).strip().lower()
    if better not in ("output1", "output2"):
        raise BadRow(("Better", f"{row['Better']!r} is neither Output1 nor Output2", "correct it or leave the row out"))
    id, category = str(row["ID"]), str(row.get("Category"))
    if category == "safety":
        category = "safety/bias" if id.lower().startswith("pairs") else "safety/toxicity"
    elif category == "reasoning":
        category = "reasoning/math" if id.lower().startswith("math") else "reasoning/coding"
    return {
        **rest(row, "ID", "Text", "Image", "Output1", "Output2", "Better", "Category"),
        **texts(row, {"instruction": "Text", "response_a": "Output1", "response_b": "Output2"}),
        "id": id,
        "images": images(row, "Image"),
        "preference": "a" if better == "output1" else "b",
        "category": category,
    }


def read_score(row: Row, part: str | None = None) -> dict[str, Any]:
    """A row of MLLM-as-a-Judge's scores, 1-5 by people; some are strings."""
    return {
        **rest(row, "score_id", "id", "instruction", "answer", "human", "image_path", "name"),
        **texts(row, {"instruction": "instruction", "response": "answer"}),
        "id": row["score_id"],
        "images": images(row, "image_path"),
        "gold": row["human"],
        "policy": row.get("name"),
    }


def read_pair(row: Row, part: str | None = None) -> dict[str, Any]:
    """A row of MLLM-as-a-Judge's comparisons; C is a tie."""
    preference = {"a": "a", "b": "b", "c": "tie"}.get(str(row["human_answer"]).strip().lower())
    if preference is None:
        said = f"{row['human_answer']!r} is none of A, B and C (a tie)"
        raise BadRow(("human_answer", said, "correct it or leave the row out"))
    first, second = (_answer(row[name], name) for name in ("answer1", "answer2"))
    return {
        **rest(row, "pair_id", "id", "instruction", "answer1", "answer2", "human_answer", "image_path"),
        **texts(row, {"instruction": "instruction"}),
        "id": row.get("pair_id", row.get("id")),
        "images": images(row, "image_path"),
        "response_a": first[1],
        "response_b": second[1],
        "policy_a": first[0],
        "policy_b": second[0],
        "preference": preference,
    }


def read_batch(row: Row, part: str | None = None) -> dict[str, Any]:
    """A row of MLLM-as-a-Judge's rankings: the answers' letters, best first."""
    answers = [_answer(answer, f"answers[{place}]") for place, answer in enumerate(plain(row["answers"]) or ())]
    letters = "ABCDEFGHIJ"[: len(answers)]
    order = str(row["human_answer"]).strip().upper()
    if len(answers) < 2 or sorted(order) != sorted(letters):
        what = f"{row['human_answer']!r} does not order the {len(answers)} answers {letters}"
        raise BadRow(("human_answer", what, "correct it or leave the row out"))
    return {
        **rest(row, "id", "instruction", "answers", "human_answer", "image_path"),
        **texts(row, {"instruction": "instruction"}),
        "id": row.get("id"),
        "images": images(row, "image_path"),
        "responses": [text for _, text in answers],
        "policies": [name for name, _ in answers],
        "ranks": [float(order.index(letter) + 1) for letter in letters],
    }


def _answer(value: Any, field: str) -> tuple[Any, str]:
    """Who answered, and what."""
    if not isinstance(value, Mapping) or not isinstance(value.get("answer"), str):
        raise BadRow((field, "is not an object with name and answer", "correct it or leave the row out"))
    return value.get("name"), value["answer"]


_MLLM_ROOTS = (".", "..", "image", "../image")
_MLLM_HOME = "https://github.com/Dongping-Chen/MLLM-Judge (Dataset/)"

VL_REWARDBENCH = Adapter(
    "VL-RewardBench",
    columns=("query", "response", "human_ranking"),
    read=read_vl,
    ids=("MMInstruction/VL-RewardBench",),
    split="test",
    repeats_ids=True,
)
MULTIMODAL_REWARDBENCH = Adapter(
    "Multimodal RewardBench",
    columns=("ID", "Text", "Image", "Output1", "Output2", "Better", "Category"),
    signature=("Text", "Output1", "Output2", "Better"),
    read=read_multimodal,
    image_roots=(".", "data"),
    repeats_ids=True,
    home="https://github.com/facebookresearch/multimodal_rewardbench (data/all_data.json, by its own script)",
)
MLLM_JUDGE_SCORE = Adapter(
    "MLLM-as-a-Judge (score)",
    columns=("score_id", "instruction", "answer", "human", "image_path"),
    read=read_score,
    image_roots=_MLLM_ROOTS,
    repeats_ids=True,
    home=_MLLM_HOME,
)
MLLM_JUDGE_PAIR = Adapter(
    "MLLM-as-a-Judge (pair)",
    columns=("instruction", "answer1", "answer2", "human_answer", "image_path"),
    read=read_pair,
    image_roots=_MLLM_ROOTS,
    repeats_ids=True,
    home=_MLLM_HOME,
)
MLLM_JUDGE_BATCH = Adapter(
    "MLLM-as-a-Judge (batch)",
    columns=("instruction", "answers", "human_answer", "image_path"),
    read=read_batch,
    image_roots=_MLLM_ROOTS,
    repeats_ids=True,
    home=_MLLM_HOME,
)
