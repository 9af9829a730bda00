"""Pairs about texts alone, on which Prometheus ranks by its scores: HHH Alignment, MT-Bench human judgements."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vjudge.data.adapters.adapter import Adapter, Row, rest, texts
from vjudge.data.schema import BadRow, plain

HHH_PARTS = ("harmless", "helpful", "honest", "other")


def read_hhh(row: Row, part: str | None = None) -> dict[str, Any]:
    """A row of HHH Alignment: two answers, the one labelled 1 preferred; `category` is its part.

    Source: HuggingFaceH4/hhh_alignment (card: input; targets with choices and labels).
    """
    targets = plain(row["targets"])
    choices, labels = (
        plain(targets.get(name)) if isinstance(targets, Mapping) else None for name in ("choices", "labels")
    )
    faults = []
    if not isinstance(choices, list) or len(choices) != 2 or not all(isinstance(each, str) for each in choices):
        faults.append(("targets.choices", "is not a list of two texts", "correct it or leave the row out"))
    if not isinstance(labels, list) or sorted(map(str, labels)) != ["0", "1"]:
        faults.append(("targets.labels", f"{labels!r} is neither [0, 1] nor [1, 0]", "correct it or leave the row out"))
    if faults:
        raise BadRow(*faults)
    assert isinstance(choices, list) and isinstance(labels, list)
    return {
        **rest(row, "input", "targets"),
        **texts(row, {"instruction": "input"}),
        "images": [],
        "response_a": choices[0],
        "response_b": choices[1],
        "preference": "a" if int(labels[0]) == 1 else "b",
        "category": part,
    }


def read_mt_bench(row: Row, part: str | None = None) -> dict[str, Any]:
    """A row of MT-Bench's judgements: the first turn, or both as one text each, which is our wording.

    Source: lmsys/mt_bench_human_judgments (card); the question is the unit of resampling, as many people judge each.
    """
    faults = []
    winner = str(row["winner"]).strip().lower()
    preference = {"model_a": "a", "model_b": "b"}.get(winner, "tie" if winner.startswith("tie") else None)
    if preference is None:
        said = f"{row['winner']!r} is none of model_a, model_b and tie"
        faults.append(("winner", said, "correct it or leave the row out"))
    turn = row["turn"]
    if turn not in (1, 2):
        faults.append(("turn", f"{turn!r} is neither 1 nor 2", "correct it or leave the row out"))
    talks: dict[str, tuple[list[str], list[str]]] = {}
    for side in "ab":
        name = f"conversation_{side}"
        said_by = _turns(plain(row[name]))
        if said_by is None or len(said_by[0]) < (turn if turn in (1, 2) else 1):
            what = "is not a list of user and assistant messages, by turns, up to the judged one"
            faults.append((name, what, "correct it or leave the row out"))
        else:
            talks[side] = said_by
    if len(talks) == 2 and turn in (1, 2) and talks["a"][0][:turn] != talks["b"][0][:turn]:
        faults.append(("conversation_b", "asks something else than conversation_a", "correct it or leave the row out"))
    if faults:
        raise BadRow(*faults)
    names = ("question_id", "model_a", "model_b", "judge", "turn")
    return {
        **rest(row, "conversation_a", "conversation_b", "winner", "model_a", "model_b"),
        "id": "/".join(str(row.get(name)) for name in names),
        "images": [],
        "instruction": _together(talks["a"][0][:turn], "User"),
        "response_a": _together(talks["a"][1][:turn], "Assistant"),
        "response_b": _together(talks["b"][1][:turn], "Assistant"),
        "policy_a": row.get("model_a"),
        "policy_b": row.get("model_b"),
        "preference": preference,
        "category": f"turn {turn}",
        "group": str(row["question_id"]),
    }


def _turns(conversation: Any) -> tuple[list[str], list[str]] | None:
    """What the user and the assistant said, turn by turn; None where it is no such conversation."""
    if not isinstance(conversation, list) or not all(isinstance(message, Mapping) for message in conversation):
        return None
    sides = [[message.get("content") for message in conversation[start::2]] for start in (0, 1)]
    roles = [message.get("role") for message in conversation]
    sound = roles == ["user", "assistant"] * (len(roles) // 2) and all(
        isinstance(text, str) and text.strip() for side in sides for text in side
    )
    return (sides[0], sides[1]) if sound else None


def _together(said: list[str], who: str) -> str:
    """One turn as it is; two as a numbered text."""
    if len(said) == 1:
        return said[0]
    return "\n\n".join(f"{who}, turn {number}:\n{text}" for number, text in enumerate(said, start=1))


HHH = Adapter(
    "HHH Alignment",
    columns=("input", "targets"),
    read=read_hhh,
    ids=("HuggingFaceH4/hhh_alignment",),
    split="test",
    parts=HHH_PARTS,
)
MT_BENCH = Adapter(
    "MT-Bench human judgements",
    columns=("question_id", "model_a", "model_b", "winner", "conversation_a", "conversation_b", "turn"),
    signature=("winner", "conversation_a", "conversation_b", "turn"),
    read=read_mt_bench,
    ids=("lmsys/mt_bench_human_judgments",),
    split="human",
    repeats_ids=True,
)
