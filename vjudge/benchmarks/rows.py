"""The rows of a benchmark as a judge is given them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from vjudge import data
from vjudge.benchmarks.protocols import Protocol
from vjudge.prompts import Template
from vjudge.records import Rubric, is_missing

Row = Mapping[str, Any]

GENERAL = Rubric(
    "Is the answer right, complete and helpful, given the question and what the images show?",
    (
        "It is wrong, or does not answer the question.",
        "It is mostly wrong, or leaves out most of what was asked.",
        "It is partly right, with clear mistakes or omissions.",
        "It is right in all that matters, with a small mistake or omission.",
        "It is right and complete, and says it clearly.",
    ),
)
"""What a judge is given whose wording shows criteria, where a benchmark has none."""


def published_rows(rule: Protocol, given: Any) -> Sequence[Row]:
    """A benchmark's rows: those that are given, canonical or as published, else the hub's."""
    source = rule.collection if given is None else given
    if isinstance(source, (str, Path)):
        if not source:
            what = f"{rule.benchmark} is not on the hub in one piece, or not in columns known here"
            raise ValueError(f"{what}: give its rows as data=")
        return data.rows_of(data.load_collection(source))
    read = AS_PUBLISHED.get(rule.benchmark)
    rows = given.to_dict("records") if isinstance(given, pd.DataFrame) else given
    if read is not None and len(rows) and "response_a" not in rows[0]:
        rows = [read(row, place) for place, row in enumerate(rows)]
    return data.rows_of(rows)


def mt_bench_row(row: Row, place: int) -> dict[str, Any]:
    """A vote of lmsys/mt_bench_human_judgments as a pair, without images.

    Of a second turn, the response holds the second question between the two answers.
    """
    responses = {}
    for side in "ab":
        turns = [turn["content"] for turn in row[f"conversation_{side}"]]
        response = turns[1]
        if row["turn"] == 2:
            response = f"{turns[1]}\n\nUser: {turns[2]}\n\nAssistant: {turns[3]}"
        responses[f"response_{side}"] = response
    return {
        "id": str(place),
        "images": [],
        "instruction": row["conversation_a"][0]["content"],
        **responses,
        "preference": {"model_a": "a", "model_b": "b"}.get(row["winner"], "tie"),
        "group": str(row["question_id"]),
        "category": f"turn {row['turn']}",
    }


def genai_bench_row(row: Row, place: int) -> dict[str, Any]:
    """A vote of TIGER-Lab/GenAI-Bench on two pictures as a pair; the last two images are judged."""
    images = ("source_image", "left_image", "right_image", "left_output_image")
    task = "image_edition" if "source_image" in row else "image_generation"
    return {
        "id": f"{task}:{place}",
        "images": [row[name] for name in (*images, "right_output_image") if name in row],
        "instruction": row["prompt"] if "prompt" in row else row["instruct_prompt"],
        "response_a": "The last image but one.",
        "response_b": "The last image.",
        "preference": {"leftvote": "a", "rightvote": "b"}.get(row["vote_type"], "tie"),
        "category": task,
    }


AS_PUBLISHED: dict[str, Callable[[Row, int], dict[str, Any]]] = {
    "mt-bench": mt_bench_row,
    "genai-bench": genai_bench_row,
}
"""Sets whose published rows are read here; those of the others `load_collection` knows."""


def with_rubric(rows: Sequence[Row], wording: Template) -> tuple[Sequence[Row], int]:
    """The rows with `GENERAL` where a wording shows criteria and a row has none; how many have it.

    A row that has criteria of its own keeps them.
    """
    if "criteria" not in wording.needs:
        return rows, 0
    filled = [dict(row) for row in rows]
    count = 0
    for row in filled:
        if is_missing(row.get("criteria")) or row["criteria"] == "":
            row.update(GENERAL.as_row())
            count += 1
    return filled, count
