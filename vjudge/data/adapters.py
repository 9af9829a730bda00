"""Published data sets: which of their columns is which of ours, and what takes more than a name.

To add a set, put an `Adapter` into `ADAPTERS`, with a function of a row where names do not suffice.
"""

from __future__ import annotations

import functools
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vjudge.data import critic
from vjudge.data.rows import Cells, levels_of
from vjudge.data.schema import RESPONSES, BadRow, CollectionError, Row, plain, spelled
from vjudge.prompts import TEMPLATES
from vjudge.prompts.parse import parse
from vjudge.records import NAN, Item, Rubric, as_score, is_missing, text_of

_REMEDY = "correct it or leave the row out"


@dataclass(frozen=True)
class Adapter:
    """One published data set.

    Args:
        name: as its paper calls it.
        columns: by which its rows are known.
        names: canonical name -> its column, or several with blanks between: the first there.
        more: the cells that take more than a name, from a row.
        drop: pattern of the columns that are not kept.
        ids: on the Hugging Face hub.
        split: the hub's, where none is asked for.
        part: the hub's configuration, for a set that has several.
        files: of its folder: questions, answers, captions (the first that is there).
        image_roots: where relative image paths may count from, seen from the file's folder.
        repeats_ids: a later row of an id is told apart by "#2", "#3".
        benchmark: its key in `vjudge.benchmarks.BENCHMARKS`.
    """

    name: str
    columns: tuple[str, ...]
    names: Mapping[str, str]
    more: Callable[[Row], Cells] = lambda row: {}
    drop: str = ""
    ids: tuple[str, ...] = ()
    split: str = "train"
    part: str = ""
    files: tuple[str, ...] = ()
    image_roots: tuple[str, ...] = (".",)
    repeats_ids: bool = False
    benchmark: str = ""

    def read(self, row: Row) -> Cells:
        """The canonical cells of a row, then its other columns.

        Raises:
            BadRow: what is blank or cannot be read.
        """
        sources = {}
        for name, columns in self.names.items():
            present = [column for column in columns.split() if column in row]
            sources[name] = present[0] if present else ""
        used = set(sources.values())
        cells = {}
        for name, cell in row.items():
            if name not in used and not re.fullmatch(self.drop, name):
                cells[name] = cell
        blank = []
        for name, column in sources.items():
            cells[name] = plain(row.get(column))
            if name in ("instruction", *RESPONSES) and text_of(cells, name) is None:
                blank.append((column or self.names[name], "is missing or blank", _REMEDY))
        if blank:
            raise BadRow(*blank)
        return cells | self.more(row)

    def is_named(self, names: Sequence[str]) -> bool:
        """Whether a file or folder is called after this set, or after its part."""
        own = self.part or spelled(self.name)
        return any(own in spelled(name) for name in names)


def adapter_of(
    rows: Sequence[Row], names: Sequence[str] = (), schema: str | None = None
) -> Adapter | None:
    """The set that rows are of: the one called `schema`, else the one that asks for most columns.

    Where sets have the same columns, `names` of the file and its folder decide, else the first set
    is taken and a warning says so.

    Raises:
        CollectionError: no set is called that.
    """
    fitting = [one for one in ADAPTERS if rows and set(one.columns) <= rows[0].keys()]
    if schema:
        fitting = [one for one in ADAPTERS if spelled(one.name) == spelled(schema)]
        if not fitting:
            known = dict.fromkeys(one.name for one in ADAPTERS)
            raise CollectionError(f"schema={schema!r}: use one of {', '.join(known)}")
    if not fitting:
        return None
    most = max(len(one.columns) for one in fitting)
    best = [one for one in fitting if len(one.columns) == most]
    named = [one for one in best if one.is_named(names)]
    if named or len(best) == 1:
        return (named or best)[0]
    if best[0].part:
        part = critic.part_of(rows)
        return next(one for one in best if one.part == part)
    if len({one.name for one in best}) > 1:
        others = " and ".join(one.name for one in best)
        what = f"the columns are those of {others}, and no name says which"
        remedy = f"read as {best[0].name}; pass schema={best[1].name!r} for the other"
        warnings.warn(f"{what}: {remedy}", stacklevel=6)
    return best[0]


# -- Prometheus-Vision, Prometheus and Prometheus 2: the `orig_*` columns, and ready training rows

_HEADER = re.compile(r"\n###(?:The instruction|Response|Reference Answer|Score Rubrics|Feedback)")
_SECTIONS = re.compile(
    r"\A(?P<images>(?:<image>\n)*).*?"
    r"###The instruction to evaluate:\n(?P<instruction>.*)\n\n"
    r"###Response to evaluate:\n(?P<response>.*?)"
    r"(?:\n\n###Reference Answer \(Score \d+\):\n(?P<reference>.*))?\n\n"
    r"###Score Rubrics:\n(?P<rubric>.*)\n\n###Feedback:",
    re.DOTALL,
)


def _rubric(row: Row) -> Cells:
    """The level descriptions; score and feedback out of the target text where they stand alone."""
    cells: Cells = {"descriptions": []} | levels_of(row)
    score = row.get("orig_score")
    unscored = is_missing(score) or not str(score).strip()
    if unscored and isinstance(row.get("output"), str):
        lowest = cells.get("lowest", 1)
        scores = range(lowest, lowest + len(cells["descriptions"])) or (1,)
        cells |= _target(row["output"], scores, "output")
    return cells


def _preference(row: Row) -> Cells:
    """The scores and the preference of a pair.

    A preference that contradicts the scores is none, and `fault` says why.
    """
    scores = {"a": NAN, "b": NAN}
    faults = []
    for side in scores:
        column = f"orig_score_{side.upper()}"
        try:
            scores[side] = as_score(row.get(column))
        except ValueError as error:
            faults.append(f"{column}: {error}")
    stated = row.get("orig_preference")
    preference: str | None = str(stated).strip().lower()
    if preference not in scores:
        faults.append(f"orig_preference: {stated!r} is neither A nor B")
    elif scores[preference] < max(scores.values()):
        both = f"A {scores['a']:g}, B {scores['b']:g}"
        faults.append(f"orig_preference: {preference.upper()} contradicts the scores ({both})")
    return {
        "score_a": scores["a"],
        "score_b": scores["b"],
        "preference": None if faults else preference,
        "fault": "; ".join(faults) or None,
    }


def _training(row: Row) -> Cells:
    """A row of kaistAI/prometheus-vision's sample_train_data.json, taken apart."""
    try:
        prompt, *targets = [turn["value"] for turn in row["conversations"]]
        item = _item_of(prompt)
    except (LookupError, TypeError, ValueError) as error:
        what = "the prompt is in no known wording, or its sections cannot be told apart"
        raise BadRow(("conversations", what, "use the collection's orig_* columns")) from error
    rubric = item.rubric
    assert rubric is not None
    cells: Cells = {
        "instruction": item.instruction,
        "response": item.response,
        "reference_answer": item.reference_answer,
        "criteria": rubric.criteria,
        "descriptions": list(rubric.descriptions),
    }
    if rubric.lowest != 1:
        cells["lowest"] = rubric.lowest
    if targets:
        cells |= _target(targets[0], rubric.scores, "conversations")
    return cells


def _target(text: str, scores: Sequence[int], field: str) -> Cells:
    """The score and the feedback of a judge's target text."""
    verdict = parse(text, scores=scores)
    if verdict.failure:
        raise BadRow((field, f"its target text has {verdict.failure}", _REMEDY))
    return {"gold": verdict.score, "feedback": verdict.feedback}


def _item_of(prompt: str) -> Item:
    """The item that renders to this prompt; ValueError unless it can be read in one way."""
    headers = _HEADER.findall(prompt)
    match = _SECTIONS.search(prompt)
    if match is None or len(headers) != len(set(headers)):
        raise ValueError("the sections are not there, or one of them twice")
    criteria, *levels = re.split(r"\nScore (-?\d+): ", match["rubric"])
    places = ("",) * match["images"].count("\n")
    for text in (criteria, criteria[1:-1]):  # some wordings put the criteria in brackets
        rubric = Rubric(text, tuple(levels[1::2]), int(levels[0]))
        item = Item("", places, match["instruction"], match["response"], rubric, match["reference"])
        for template in TEMPLATES.values():
            if not template.sees_images or not template.needs or template.compares:
                continue
            talk = template.conversation
            if template.render(item).text == talk.opening + prompt + talk.closing:
                return item
    raise ValueError("no template renders to it")


# -- benchmarks of judges: two responses and whose is better; one and its score; several in order


def _vl(row: Row) -> Cells:
    """VL-RewardBench: of each of two responses its rank, 0 for the preferred one.

    The id's prefix gives the category (vl-rewardbench/VL_RewardBench cal.py); `query_source` only
    looks like it.
    """
    responses = plain(row.get("response"))
    ranks = plain(row.get("human_ranking"))
    if not isinstance(responses, list) or [type(text) for text in responses] != [str, str]:
        raise BadRow(("response", "is not a list of two texts", _REMEDY))
    if not isinstance(ranks, list) or sorted(map(str, ranks)) != ["0", "1"]:
        raise BadRow(("human_ranking", f"{ranks!r} is neither [0, 1] nor [1, 0]", _REMEDY))
    prefix = re.split("[_-]", str(row.get("id")))[0].lower()
    category = "general"
    if prefix in ("hallucination", "rlaif", "rlhf"):
        category = "hallucination"
    elif prefix in ("mathverse", "mmmu"):
        category = "reasoning"
    return {
        "instruction": row["query"].replace("<image>\n", ""),  # as the set's own code does
        "response_a": responses[0],
        "response_b": responses[1],
        "preference": "b" if int(ranks[1]) == 0 else "a",
        "category": category,
    }


def _multimodal(row: Row) -> Cells:
    """Multimodal RewardBench, in its six categories."""
    sides = {"output1": "a", "output2": "b"}
    preference = _choice(row, "Better", sides, "neither Output1 nor Output2")
    return {"preference": preference, "category": str(row.get("Category"))}


def _label_of(row: Row) -> str:
    """The column of MLLM-as-a-Judge's label, which has another name by file, and within one."""
    for name in ("human", "human_answer", "Human_answer"):
        if not is_missing(row.get(name)):
            return name
    return "human"


def _mllm_score(row: Row) -> Cells:
    """MLLM-as-a-Judge: a person's score from 1 to 5."""
    return {"category": row.get("original_dataset"), "gold": row.get(_label_of(row))}


def _mllm_pair(row: Row) -> Cells:
    """MLLM-as-a-Judge: A, B or C (a tie)."""
    choices = {"a": "a", "b": "b", "c": "tie"}
    preference = _choice(row, _label_of(row), choices, "none of A, B and C (a tie)")
    policy_a, response_a = _answer(row.get("answer1"), "answer1")
    policy_b, response_b = _answer(row.get("answer2"), "answer2")
    return {
        "category": row.get("original_dataset"),
        "preference": preference,
        "policy_a": policy_a,
        "response_a": response_a,
        "policy_b": policy_b,
        "response_b": response_b,
    }


def _mllm_batch(row: Row) -> Cells:
    """MLLM-as-a-Judge: the answers' letters, best first."""
    listed = plain(row["answers"])
    if not isinstance(listed, list):
        listed = [listed]
    answers = [_answer(answer, f"answers[{place}]") for place, answer in enumerate(listed)]
    letters = "ABCDEFGHIJ"[: len(answers)]
    label = _label_of(row)
    order = str(row.get(label)).strip().upper()
    if len(answers) < 2 or sorted(order) != sorted(letters):
        what = f"{row.get(label)!r} does not order the {len(answers)} answers {letters}"
        raise BadRow((label, what, _REMEDY))
    return {
        "responses": [text for _, text in answers],
        "policies": [name for name, _ in answers],
        "ranks": [order.index(letter) + 1.0 for letter in letters],
        "category": row.get("original_dataset"),
    }


def _choice(row: Row, column: str, choices: Mapping[str, str], what: str) -> str:
    """What a label says, by its lower-case text."""
    choice = choices.get(str(row.get(column)).strip().lower())
    if choice is None:
        raise BadRow((column, f"{row.get(column)!r} is {what}", _REMEDY))
    return choice


def _answer(value: Any, field: str) -> tuple[Any, str]:
    """Who answered, and what."""
    if not isinstance(value, Mapping) or not isinstance(value.get("answer"), str):
        raise BadRow((field, "is not an object with name and answer", _REMEDY))
    return value.get("name"), value["answer"]


# -- benchmarks of policies: questions about images, without a `response`


def _llava_bench(row: Row) -> Cells:
    """LLaVA-Bench in any of its forms; GPT-4's answer, written from a caption, is the reference.

    The two sets have the same columns: `benchmark` says by the picture's name which one a row is
    of. `context` is what the set's own judge reads in the picture's place: the captions, and of
    COCO the boxes too.
    """
    captions = plain(row.get("captions"))
    caption = "\n".join(captions) if isinstance(captions, list) else row.get("caption")
    boxes = [
        f"{box['category']}: {plain(box['bbox'])}" for box in plain(row.get("instances")) or ()
    ]
    coco = "answer" in row and "text" not in row
    if isinstance(row.get("image"), str):
        coco = bool(re.fullmatch(r"0{4}[0-9]{8}(\.\w+)?", Path(row["image"]).name))
    return {
        "caption": caption,
        "context": "\n".join([f"{caption}\n", *boxes]) if boxes else caption,
        "benchmark": f"LLaVA-Bench ({'COCO' if coco else 'in the wild'})",
        "group": row.get("image_id"),
    }


def _visit(row: Row) -> Cells:
    """VisIT-Bench, of one picture or of several, a JSON list in a text cell, whose order matters.

    `human_ratings_gpt4_correct` is about `gpt4_prediction` and says nothing of the reference.
    """
    pictures: Any = []
    for name in ("image_url", "images", "image"):
        if row.get(name):
            pictures = plain(row[name])
    reference = row.get("reference_output", row.get("output_human_annotated"))
    if not isinstance(reference, str) or not reference.strip():
        reference = None
    return {
        "images": pictures if isinstance(pictures, list) else [pictures],
        "reference_answer": reference,
        "category": row.get("instruction_category"),
        "group": row.get("image_id"),
    }


# -- all of them

_NAMES = {
    "images": "images image",
    "instruction": "orig_instruction",
    "reference_answer": "orig_reference_answer",
    "criteria": "orig_criteria",
    "feedback": "orig_feedback",
}
_SCORED = {"response": "orig_response original_response", "gold": "orig_score"}
# The prompt and target over again, and what was read.
_ORIG = (
    r"instruction|output|messages|input|image|images|orig_score(-?\d+)_description"
    r"|orig_(score|response|preference)(_[AB])?"
)


def _orig(name: str, columns: Sequence[str], owners: Sequence[str] = (), **options: Any) -> Adapter:
    """A set of `orig_*` columns, on the hub under its authors' accounts."""
    ids = tuple(f"{owner}/{name}" for owner in owners)
    defaults: Any = {"names": _NAMES | _SCORED, "more": _rubric, "drop": _ORIG}
    options = defaults | options
    return Adapter(name, ("orig_instruction", *columns), ids=ids, **options)


def _critic(part: str) -> Adapter:
    return Adapter(
        "LLaVA-Critic-113k",
        ("source", "conversations"),
        {"images": "image"},
        functools.partial(critic.read, part=part),
        "conversations",
        ids=("lmms-lab/LLaVA-Critic-113k",),
        part=part,
        repeats_ids=True,
    )


def _mllm(
    kind: str, columns: Sequence[str], more: Callable[[Row], Cells], id: str, **names: str
) -> Adapter:
    """A part of MLLM-as-a-Judge (Dongping-Chen/MLLM-Judge, Dataset/)."""
    return Adapter(
        f"MLLM-as-a-Judge ({kind})",
        ("instruction", "image_path", *columns),
        {"id": id, "images": "image_path", "instruction": "instruction", **names},
        more,
        "id|score_id|answer[12s]?|human|[hH]uman_answer",
        image_roots=(".", "..", "image", "../image"),
        repeats_ids=True,
        benchmark=f"mllm-judge-{kind}",
    )


def _llava(kind: str, columns: Sequence[str], **options: Any) -> Adapter:
    """A form of LLaVA-Bench: a table on the hub, or a folder with the questions and answers."""
    names = {
        "id": "question_id",
        "images": "image",
        "instruction": "text question",
        "reference_answer": "answer gpt_answer",
    }
    return Adapter(
        "LLaVA-Bench",
        ("question_id", "image", *columns),
        names,
        _llava_bench,
        "captions|instances",
        benchmark=f"llava-bench-{kind}",
        **options,
    )


_PROMETHEUS = ("prometheus-eval", "kaist-ai")
_VISION = ("kaist-ai", "prometheus-eval")
_BOXES = "caps_boxes_coco2014_val_80.jsonl"
ADAPTERS = (
    _orig("Perception-Collection", ["orig_response", "orig_criteria", "image"], _VISION),
    _orig(
        "evaluation samples", ["original_response", "orig_criteria"], benchmark="perception-bench"
    ),
    _orig(
        "Perception-Bench",
        ["orig_criteria"],
        _VISION,
        names=_NAMES,
        benchmark="perception-bench",
    ),
    _orig("Feedback-Collection", ["orig_response", "orig_criteria"], _PROMETHEUS),
    _orig(
        "Feedback-Bench",
        ["orig_response", "orig_criteria"],
        _PROMETHEUS,
        benchmark="feedback-bench",
    ),
    _orig(
        "Preference-Collection",
        ["orig_response_A", "orig_response_B", "orig_preference"],
        _PROMETHEUS,
        names=_NAMES | {"response_a": "orig_response_A", "response_b": "orig_response_B"},
        more=_preference,
    ),
    Adapter(
        "Prometheus-Vision",
        ("conversations",),
        {"images": "images image"},
        _training,
        "conversations|images?",
    ),
    _critic("pointwise"),
    _critic("pairwise"),
    Adapter(
        "VL-RewardBench",
        ("query", "response", "human_ranking"),
        {"images": "image", "instruction": "query"},
        _vl,
        "response|human_ranking",
        ids=("MMInstruction/VL-RewardBench",),
        split="test",
        repeats_ids=True,
        benchmark="vl-rewardbench",
    ),
    Adapter(  # facebookresearch/multimodal_rewardbench: all_data.json, which its own script writes
        "Multimodal RewardBench",
        ("Text", "Output1", "Output2", "Better"),
        {
            "id": "ID",
            "images": "Image",
            "instruction": "Text",
            "response_a": "Output1",
            "response_b": "Output2",
        },
        _multimodal,
        "Better|Category",
        image_roots=(".", "data"),
        repeats_ids=True,
        benchmark="multimodal-rewardbench",
    ),
    _mllm(
        "score", ["score_id", "answer"], _mllm_score, "score_id", response="answer", policy="name"
    ),
    _mllm("pair", ["answer1", "answer2"], _mllm_pair, "pair_id id"),
    _mllm("batch", ["answers"], _mllm_batch, "id"),
    _llava(
        "wild",
        ["text", "category"],
        ids=("liuhaotian/llava-bench-in-the-wild",),
        files=("questions.jsonl", "answers_gpt4.jsonl", "context.jsonl"),
        image_roots=("images", "."),
    ),
    _llava(
        "wild",
        ["question", "caption", "gpt_answer"],
        ids=("lmms-lab/llava-bench-in-the-wild",),
    ),
    _llava("coco", ["question", "answer", "caption"], ids=("lmms-lab/llava-bench-coco",)),
    _llava(  # haotian-liu/LLaVA playground/data/coco2014_val_qa_eval
        "coco",
        ["text", "category"],
        files=(
            "qa90_questions.jsonl",
            "qa90_gpt4_answer.jsonl",
            _BOXES,
            f"../../../llava/eval/table/{_BOXES}",
        ),
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
