"""Published data sets: which of their columns are which canonical columns.

To add a set, put an `Adapter` into `ADAPTERS`. Where the names of columns do not suffice, give it a
function that computes cells from a row.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vjudge.data.notes import warn
from vjudge.data.rows import CheckedRow, canonical_row
from vjudge.data.schema import CollectionError, Row, as_python, spelled
from vjudge.records import is_missing

_LEVELS = tuple(map("orig_score{}_description".format, range(1, 6)))
# Columns of published sets that are left out: they repeat others as prompt and target.
_REPEATED = ("output", "messages", "input", *_LEVELS)


@dataclass(frozen=True)
class Adapter:
    """One published data set.

    Args:
        name: as its paper calls it.
        columns: a table that has all of these columns belongs to the set. They are not kept,
            unless `names` maps them to a canonical column.
        names: canonical name -> a column of the set, or several with blanks between them, of which
            the first with a value is taken.
        extra_cells: a function of a row that returns the cells for which a name does not suffice.
        ids: on the Hugging Face hub.
        split: on the hub.
        configs: configurations on the hub, for a set that has several.
        files: of questions, answers and captions, for a set that comes as a folder of them.
        benchmark: its key in `vjudge.benchmarks.BENCHMARKS`.
    """

    name: str
    columns: tuple[str, ...]
    names: Mapping[str, str]
    extra_cells: Callable | None = None
    ids: tuple[str, ...] = ()
    split: str = "train"
    configs: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    benchmark: str = ""

    def read(self, row: object) -> CheckedRow:
        """Bring a row of the set into canonical form.

        Columns that the set's description does not mention are kept as they are.

        Returns:
            The row, and what is wrong with it.
        """
        if not isinstance(row, Mapping):
            return canonical_row(row)
        # The first value among the columns of each canonical name.
        used = {*_REPEATED, *self.columns}
        values: dict = {}
        for name, columns in self.names.items():
            values[name] = None
            for column in columns.split():
                used.add(column)
                if values[name] is None:
                    values[name] = as_python(row.get(column))
        cells = {name: cell for name, cell in row.items() if name not in used} | values
        # Add the cells for which a name does not suffice: their function sees the columns of the
        # row and, under the canonical names, the values found so far.
        try:
            if self.extra_cells is not None:
                cells |= self.extra_cells({**row, **values})
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            # The functions below word their errors "COLUMN: REASON". Other errors, such as the
            # KeyError of a missing column, have no reason, and their type's name stands for it.
            field, _, reason = str(error).partition(": ")
            remedy = "correct it or leave the row out"
            return cells, [(field, reason or type(error).__name__, remedy)]
        cells, faults = canonical_row(cells)
        # A published row that names no image has none; None would mean that it is not known.
        return {**cells, "images": cells.get("images") or []}, faults


def adapter_of(columns: Iterable, names: Sequence[str], schema: str | None) -> Adapter | None:
    """Find the published set that a table belongs to.

    Args:
        columns: of the table.
        names: of split, file and folder. They decide among sets with the same columns; where no
            name does, the first set is taken, with a warning.
        schema: the name of the set, where the user gave it.

    Returns:
        The set called `schema`, else the first set whose columns the table has, else None.

    Raises:
        CollectionError: no set is called `schema`.
    """
    if schema:
        for adapter in ADAPTERS:
            if spelled(adapter.name) == spelled(schema):
                return adapter
        listed = ", ".join(adapter.name for adapter in ADAPTERS)
        raise CollectionError(f"schema={schema!r}: use one of {listed}")
    fitting = [adapter for adapter in ADAPTERS if set(adapter.columns).issubset(columns)]
    if not fitting:
        return None
    same_columns = [adapter for adapter in fitting if adapter.columns == fitting[0].columns]
    for name in names:  # the split's name decides before the file's and the folder's
        for adapter in same_columns:
            if spelled(adapter.name) in spelled(name):
                return adapter
    if len(same_columns) > 1:
        taken = same_columns[0].name
        rival = same_columns[1].name
        reason = f"the columns are those of {taken} and {rival}"
        remedy = f"read as {taken}; pass schema={rival!r} for the other"
        warn(f"{reason}, and no name says which: {remedy}")
    return same_columns[0]


# -- Prometheus-Vision, Prometheus and Prometheus 2: the `orig_*` columns; conversations


def _rubric(row: Row) -> dict:
    """Collect the level descriptions from their five columns."""
    return {"descriptions": list(map(row.get, _LEVELS))}


def _preference(row: Row, column: str, choices: Mapping[str, str]) -> dict:
    """Translate the label in a column into a preference; a missing label gives None.

    Args:
        row: of the published set.
        column: of the labels.
        choices: label -> "a", "b" or "tie".

    Raises:
        ValueError: `choices` lacks the label.
    """
    label: Any = row.get(column)
    if is_missing(label):
        return {"preference": None}
    if label not in choices:
        raise ValueError(f"{column}: {label!r} is none of {', '.join(choices)}")
    return {"preference": choices[label]}


def _conversation(row: Row) -> dict:
    """Return the two texts of a training conversation, its prompt and its answer, as they are.

    Only the image placeholders at the start of the prompt are removed.
    LLaVA-Critic-113k and kaistAI/prometheus-vision's sample_train_data.json have such rows.
    """
    human, assistant = row["conversations"]
    prompt = re.sub(r"\A(?:\s*<image>\s*)+", "", human["value"])
    return {"prompt": prompt, "target": assistant["value"]}


# -- benchmarks of judges: two responses and the better one; one and its score; several and ranks


_CATEGORIES = {
    "hallucination": "hallucination",
    "rlaif": "hallucination",
    "rlhf": "hallucination",
    "mathverse": "reasoning",
    "mmmu": "reasoning",
}


def _vl(row: Row) -> dict:
    """Read a row of VL-RewardBench: `human_ranking` ranks two responses, 0 for the preferred one.

    The prefix of the id gives the category (vl-rewardbench/VL_RewardBench cal.py). The column
    `query_source` looks like a category and is none.
    """
    response_a, response_b = as_python(row["response"])
    ranks = as_python(row["human_ranking"])
    if ranks not in ([0, 1], [1, 0]):
        raise ValueError(f"human_ranking: {ranks!r} is neither [0, 1] nor [1, 0]")
    prefix = re.split("[_-]", str(row.get("id")))[0].lower()
    return {
        "instruction": (row["query"] or "").replace("<image>\n", ""),  # as the set's own code does
        "response_a": response_a,
        "response_b": response_b,
        "preference": "a" if ranks == [0, 1] else "b",
        "category": _CATEGORIES.get(prefix, "general"),
    }


_LABEL = "human human_answer Human_answer"  # the name differs by file, and within one file


def _mllm_pair(row: Row) -> dict:
    """Read a pair of MLLM-as-a-Judge, whose label is A, B or C (a tie)."""
    cells = _preference(row, "human", {"A": "a", "B": "b", "C": "tie"})
    for side, column in (("a", "answer1"), ("b", "answer2")):
        cells[f"policy_{side}"] = row[column]["name"]
        cells[f"response_{side}"] = row[column]["answer"]
    return cells


def _mllm_batch(row: Row) -> dict:
    """Read a batch of MLLM-as-a-Judge, whose label lists the answers' letters, best first.

    Raises:
        ValueError: the label is no order of the answers.
    """
    answers = as_python(row["answers"])
    letters = "ABCDEFGHIJ"[: len(answers)]
    order = str(row["human"])
    if sorted(order) != sorted(letters):
        raise ValueError(f"human: {order!r} does not order the {len(answers)} answers {letters}")
    return {
        "responses": [answer["answer"] for answer in answers],
        # "CAB" -> [2, 3, 1]: A comes second, B third and C first.
        "ranks": [order.index(letter) + 1.0 for letter in letters],
    }


_WINNERS = {  # label in the column `winner` -> preference
    "model_a": "a",
    "model_b": "b",
    "tie": "tie",
    "tie (inconsistent)": "tie",
    "tie (bothbad)": "tie",
}


def _mt_bench(row: Row) -> dict:
    """Read a vote of MT-Bench: two conversations, and the model that won at the row's turn.

    The response at turn 1 is the first answer. At turn 2 the second question and answer follow it.
    """
    cells = _preference(row, "winner", _WINNERS)
    for side in "ab":
        # turns:    0 question, 1 answer, 2 question, 3 answer, ...
        # response: answer 1, "User: " turn 2, "Assistant: " turn 3, ... up to the row's turn
        turns = [turn["content"] for turn in row[f"conversation_{side}"]]
        texts = [f"User: {turn}" for turn in turns]
        texts[3::2] = [f"Assistant: {turn}" for turn in turns[3::2]]
        cells[f"response_{side}"] = "\n\n".join([turns[1], *texts[2 : 2 * row["turn"]]])
    question = row["conversation_a"][0]["content"]
    return cells | {"instruction": question, "images": [], "category": f"turn {row['turn']}"}


# -- benchmarks of policies: questions about images, without a `response`


def llava_bench_rows(tables: Iterable[list[dict]]) -> list[dict]:
    """Join the three files of a LLaVA-Bench (questions, answers, captions) into rows.

    GPT-4's answer, written from a caption, is the reference. The column `caption`, which the
    adapter renames to `context`, is what the set's own judge reads in place of the image: the
    captions, for COCO followed by the boxes of objects.

    Args:
        tables: the rows of the three files, in this order.
    """
    questions, answers, captions = tables
    answer_of = {entry["question_id"]: entry["text"] for entry in answers}
    caption_of = {entry["image"]: entry for entry in captions}
    rows = []
    for entry in questions:
        caption = caption_of[entry["image"]]
        context = caption.get("caption") or "\n".join(caption["captions"])
        if "instances" in caption:
            boxes = [f"{box['category']}: {box['bbox']}" for box in caption["instances"]]
            context = "\n".join([f"{context}\n", *boxes])
        rows.append({**entry, "answer": answer_of[entry["question_id"]], "caption": context})
    return rows


# -- all sets

_NAMES = {
    "images": "images image",
    "instruction": "orig_instruction",
    "reference_answer": "orig_reference_answer",
    "criteria": "orig_criteria",
    "feedback": "orig_feedback",
}
_SCORED = _NAMES | {"response": "orig_response original_response", "gold": "orig_score"}
_PAIRED = _NAMES | {"response_a": "orig_response_A", "response_b": "orig_response_B"}


def _orig(name: str, *columns: str, **options: Any) -> Adapter:
    """Describe a set with `orig_*` columns, on the hub under its authors' two accounts.

    Args:
        name: of the set, also on the hub.
        columns: beside `orig_instruction`, those that a table must have to belong to the set.
        options: further fields of `Adapter`; they replace the ones made here, which are of items
            with a response and a score.
    """
    ids = (f"prometheus-eval/{name}", f"kaist-ai/{name}")
    settings: Any = {"names": _SCORED, "extra_cells": _rubric, "ids": ids}
    return Adapter(name, ("orig_instruction", *columns), **settings | options)


_MLLM = {"images": "image_path", "instruction": "instruction", "category": "original_dataset"}


def _mllm(kind: str, columns: Sequence[str], extra_cells: Callable | None, **names: str) -> Adapter:
    """Describe a part of MLLM-as-a-Judge (Dongping-Chen/MLLM-Judge, Dataset/).

    Args:
        kind: "score", "pair" or "batch".
        columns: beside those of all parts, the ones that a table must have to belong to this part.
        extra_cells, names: as in `Adapter`; names in addition to those of all parts.
    """
    return Adapter(
        f"MLLM-as-a-Judge ({kind})",
        ("instruction", "image_path", *columns),
        _MLLM | names,
        extra_cells,
        benchmark=f"mllm-judge-{kind}",
    )


def _llava(kind: str, *files: str) -> Adapter:
    """Describe a LLaVA-Bench.

    Args:
        kind: "Wild" or "COCO".
        files: of questions, answers and captions, in this order.
    """
    return Adapter(
        f"LLaVA-Bench-{kind}",
        ("question_id", "image", "text", "category"),
        dict(
            id="question_id",
            images="image",
            instruction="text",
            reference_answer="answer",
            context="caption",
            category="category",
        ),
        files=files,
        benchmark=f"llava-bench-{kind.lower()}",
    )


ADAPTERS = (
    _orig("Perception-Collection", "orig_response", "orig_criteria", "image"),
    _orig("Feedback-Collection", "orig_response", "orig_criteria"),
    _orig("Feedback-Bench", "orig_response", "orig_criteria", benchmark="feedback-bench"),
    _orig(  # kaistAI/prometheus-vision, not on the hub
        "evaluation samples",
        "original_response",
        "orig_criteria",
        ids=(),
        benchmark="perception-bench",
    ),
    _orig(
        "Preference-Collection",
        "orig_response_A",
        "orig_response_B",
        names=_PAIRED,
        extra_cells=functools.partial(
            _preference, column="orig_preference", choices={"A": "a", "B": "b"}
        ),
    ),
    _orig("Perception-Bench", "orig_criteria", names=_NAMES, benchmark="perception-bench"),
    Adapter(
        "LLaVA's conversations",
        ("conversations",),
        {"images": "images image"},
        _conversation,
        ids=("lmms-lab/LLaVA-Critic-113k",),
        configs=("pointwise", "pairwise"),
    ),
    Adapter(
        "MT-Bench",
        ("conversation_a", "conversation_b", "winner", "turn"),
        dict(group="question_id", policy_a="model_a", policy_b="model_b", annotator="judge"),
        _mt_bench,
        ids=("lmsys/mt_bench_human_judgments",),
        split="human",
        benchmark="mt-bench",
    ),
    Adapter(
        "VL-RewardBench",
        ("query", "response", "human_ranking"),
        {"images": "image", "instruction": "query"},
        _vl,
        ids=("MMInstruction/VL-RewardBench",),
        split="test",
        benchmark="vl-rewardbench",
    ),
    _mllm("score", ["score_id", "answer"], None, id="score_id", response="answer", gold=_LABEL),
    _mllm("pair", ["answer1", "answer2"], _mllm_pair, id="pair_id id", human=_LABEL),
    _mllm("batch", ["answers"], _mllm_batch, id="id", human=_LABEL),
    _llava("Wild", "questions.jsonl", "answers_gpt4.jsonl", "context.jsonl"),
    _llava(  # haotian-liu/LLaVA playground/data/coco2014_val_qa_eval, llava/eval/table
        "COCO", "qa90_questions.jsonl", "qa90_gpt4_answer.jsonl", "caps_boxes_coco2014_val_80.jsonl"
    ),
    Adapter(
        "VisIT-Bench",
        ("instruction_category", "instruction"),
        {
            "images": "image images image_url",
            "instruction": "instruction",
            # The column `human_ratings_gpt4_correct` rates `gpt4_prediction`, not this answer.
            "reference_answer": "reference_output output_human_annotated",
            "category": "instruction_category",
        },
        ids=("mlfoundations/VisIT-Bench",),
        split="test",
        benchmark="visit-bench",
    ),
)
