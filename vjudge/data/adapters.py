"""Published data sets: which of their columns is which of ours, and how what takes more than a name is read."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from vjudge.data.schema import Adapter, BadRow, Row, levels_of, plain
from vjudge.prompts import TEMPLATES
from vjudge.prompts.parse import parse
from vjudge.records import NAN, Item, Rubric, Verdict, as_score, is_missing

_MEND = "correct it or leave the row out"


# -- Prometheus-Vision, Prometheus and Prometheus 2: the `orig_*` columns, and ready training rows

_LEVEL = re.compile(r"orig_score(-?\d+)_description")
_HEADER = re.compile(r"\n###(?:The instruction|Response|Reference Answer|Score Rubrics|Feedback)")
_SECTIONS = re.compile(
    r"\A(?P<images>(?:<image>\n)*).*?"
    r"###The instruction to evaluate:\n(?P<instruction>.*)\n\n###Response to evaluate:\n(?P<response>.*?)"
    r"(?:\n\n###Reference Answer \(Score \d+\):\n(?P<reference>.*))?\n\n"
    r"###Score Rubrics:\n(?P<rubric>.*)\n\n###Feedback:",
    re.DOTALL,
)


def _rubric(row: Row, part: str | None) -> dict[str, Any]:
    """The level descriptions; of a row without a score also score and feedback, as its target text states them."""
    cells: dict[str, Any] = {"descriptions": []} | levels_of(row, _LEVEL)
    score, lowest = row.get("orig_score"), cells.get("lowest", 1)
    if (is_missing(score) or not str(score).strip()) and isinstance(row.get("output"), str):
        scores = range(lowest, lowest + len(cells["descriptions"])) or (1,)
        cells["gold"], cells["feedback"] = _target(row["output"], scores, "output")
    return cells


def _preference(row: Row, part: str | None) -> dict[str, Any]:
    """The scores and the preference of a pair; where it contradicts the scores there is none, and `fault` says why."""
    scores, faults = dict.fromkeys("ab", NAN), []
    for side in "ab":
        try:
            scores[side] = as_score(row.get(f"orig_score_{side.upper()}"))
        except ValueError as error:
            faults.append(f"orig_score_{side.upper()}: {error}")
    preference = str(row.get("orig_preference")).strip().lower()
    if preference not in ("a", "b"):
        faults.append(f"orig_preference: {row.get('orig_preference')!r} is neither A nor B")
    elif scores[preference] < max(scores.values()):
        stated = f"A {scores['a']:g}, B {scores['b']:g}"
        faults.append(f"orig_preference: {preference.upper()} contradicts the scores ({stated})")
    cells = {
        "score_a": scores["a"],
        "score_b": scores["b"],
        "preference": None if faults else preference,
    }
    return cells | {"fault": "; ".join(faults) or None}


def _training(row: Row, part: str | None) -> dict[str, Any]:
    """A row of kaistAI/prometheus-vision's sample_train_data.json: its prompt taken apart, and its target's verdict."""
    try:
        prompt, *targets = [turn["value"] for turn in row["conversations"]]
        item, rubric = _take_apart(prompt)
    except (LookupError, TypeError, ValueError) as error:
        what = "the prompt is in no known wording, or its sections cannot be told apart"
        raise BadRow(("conversations", what, "use the collection's orig_* columns")) from error
    cells = {name: getattr(item, name) for name in ("instruction", "response", "reference_answer")}
    cells |= {"criteria": rubric.criteria, "descriptions": list(rubric.descriptions)}
    cells |= {"lowest": rubric.lowest} if rubric.lowest != 1 else {}
    if targets:
        cells["gold"], cells["feedback"] = _target(targets[0], rubric.scores, "conversations")
    return cells


def _target(text: str, scores: Sequence[int], field: str) -> tuple[float, str]:
    """The score and the feedback of a judge's target text."""
    verdict = parse(text, scores=scores)
    if verdict.failure:
        raise BadRow((field, f"its target text has {verdict.failure}", _MEND))
    return verdict.score, verdict.feedback


def _take_apart(prompt: str) -> tuple[Item, Rubric]:
    """The item that renders to this prompt; ValueError unless there is exactly one way to read it."""
    headers, match = _HEADER.findall(prompt), _SECTIONS.search(prompt)
    if match is None or len(headers) != len(set(headers)):
        raise ValueError("the sections are not there, or one of them twice")
    criteria, *levels = re.split(r"\nScore (-?\d+): ", match["rubric"])
    places = ("",) * match["images"].count("\n")
    templates = [
        each for each in TEMPLATES.values() if each.sees_images and each.needs and not each.compares
    ]
    for template, text in itertools.product(
        templates, (criteria, criteria[1:-1])
    ):  # some put it in brackets
        rubric = Rubric(text, tuple(levels[1::2]), int(levels[0]))
        item = Item("", places, match["instruction"], match["response"], rubric, match["reference"])
        if (
            template.render(item).text
            == template.conversation.opening + prompt + template.conversation.closing
        ):
            return item, rubric
    raise ValueError("no template renders to it")


# -- LLaVA-Critic-113k: its rows are told from their prompts, in the wordings of many benchmarks

PARTS = {
    "pointwise": ("response",),
    "pairwise": ("response_a", "response_b"),
}  # and the responses of their rows


class Wording(NamedTuple):
    """One way in which prompts of the set are written; none of the set's rows could be looked at."""

    name: str  # whose it is
    form: str  # patterns with the canonical names of the texts in braces; {} for one that is passed over
    format: str  # of the answer in `vjudge.prompts.parse`; "" for a number from 0 to 1 that it opens with
    scale: tuple[int, int] | None = None  # lowest and highest score; None for pairs

    @property
    def part(self) -> str:
        return "pointwise" if self.scale else "pairwise"

    def cut(self, prompt: str) -> dict[str, str]:
        """The texts by name; none for another wording, and where a text holds a separator of its own."""
        opening, *rest = re.split(r"\{([a-z_]*)\}", self.form)
        cells = {}
        _, *pieces = re.split(opening, prompt, maxsplit=1)
        for name, separator in zip(rest[::2], rest[1::2], strict=True):
            if len(pieces) != 1:
                return {}
            cells[name], *pieces = re.split(separator, pieces[0], maxsplit=2)
        return {name: text for name, text in cells.items() if name} if len(pieces) == 1 else {}


_LAST = r"[^|]*\|\s{0,3}\Z"  # the last cell of MM-Vet's table, which is left open
WORDINGS = (
    Wording(  # lmms-lab/llava-critic-7b README.md; Xiaooolong/vev data/sources/image_llava_critic.py
        "llava-critic-pair",
        r"Question: ?\[{instruction}\]\s{1,2}(?:The first response|Response [1A]): ?\[{response_a}\]"
        r"\s{1,2}(?:The second response|Response [2B]): ?\[{response_b}\](?:\s{1,2}ASSISTANT:|\s{0,3}\Z)",
        "llava-critic-pair",
    ),
    Wording(  # lmms-lab/llava-critic-7b README.md
        "llava-critic",
        r"Question: ?\[{instruction}\]\s{1,2}The LMM response: ?\[{response}\]\s{1,2}ASSISTANT:",
        "llava-critic",
        (0, 100),
    ),
    Wording(  # EvolvingLMMs-Lab/lmms-eval wild_vision_bench/utils.py
        "arena",
        r"<\|User Prompt\|>\n?{instruction}\s{0,2}<\|The Start of Assistant A's Answer\|>\n?{response_a}"
        r"\n?<\|The End of Assistant A's Answer\|>\s{0,2}<\|The Start of Assistant B's Answer\|>\n?{response_b}"
        r"\n?<\|The End of Assistant B's Answer\|>",
        "arena",
    ),
    Wording(  # EvolvingLMMs-Lab/lmms-eval llava_wilder/utils.py: the first assistant is the reference
        "assistants",
        r"\[Question\]\n?{instruction}\s{0,2}\[Assistant 1\]\n?{reference_answer}"
        r"\s{0,2}\[End of Assistant 1\]\s{0,2}\[Assistant 2\]\n?{response}\s{0,2}\[End of Assistant 2\]",
        "reference-scores",
        (1, 10),
    ),
    Wording(  # EvolvingLMMs-Lab/lmms-eval dc100_en/utils.py
        "caption",
        r"Text Caption: ?{response}\s{0,2}From 0 to 100, how much do you rate for this Text Caption",
        "llava-critic",
        (0, 100),
    ),
    Wording(  # EvolvingLMMs-Lab/lmms-eval mmvet/utils.py
        "mm-vet",
        r"[Qq]uestion \| [Gg]round truth \| [Pp]rediction \|{}"
        rf"\n(?=[^\n|]+\|[^\n|]*\|{_LAST})"  # its table's last line
        rf"{{instruction}} ?\| ?(?=[^\n|]*\|{_LAST}){{reference_answer}} ?\| ?(?={_LAST}){{response}} ?\|\s{{0,3}}\Z",
        "",
        (0, 1),
    ),
)
"""What prompts look like, the more certain first."""

_OPTION = re.compile(r"^\(?[A-Z][.):] ?\S", re.MULTILINE)
_LETTER = re.compile(r"\(?([A-Z])[.)]?(?:\s|$)")
_NUMBER = re.compile(r"\s*([0-9]{1,3}(?:\.[0-9]{1,3})?)(?![\w.]|\s*[-/%])")


def _worded(row: Row) -> tuple[str, str, Wording | None, dict[str, str]]:
    """A row's prompt, without image marks at its start, its answer, its wording if that is known, and the texts."""
    match plain(row.get("conversations")):
        case [{"from": "human", "value": str(prompt)}, {"from": "gpt", "value": str(answer)}]:
            prompt = re.sub(r"\A(?:\s{0,3}<image>\s{0,3})+", "", prompt)
            fitting = ((wording, texts) for wording in WORDINGS if (texts := wording.cut(prompt)))
            return prompt, answer, *next(fitting, (None, {}))
    raise BadRow(("conversations", "is not one human and one gpt turn", _MEND))


def _verdict(answer: str, wording: Wording) -> Verdict:
    if wording.format:
        return parse(answer, format=wording.format)
    number = _NUMBER.match(answer)
    if number is None or float(number[1]) > 1:
        return Verdict(NAN, answer.strip(), answer, "no number from 0 to 1 opens the answer")
    return Verdict(float(number[1]), answer[number.end() :].strip(), answer)


def _critic(row: Row, part: str | None) -> dict[str, Any]:
    """A row as an item with a score ("pointwise") or as a pair ("pairwise").

    `gold` is on the row's own `scale`, "0-100", "1-10" or "0-1": correlate within one. A row that can't be read as what
    its part holds has no label and the reason in `fault`; `fine_tune` trains on its `prompt` and `target` all the same.
    Source: lmms-lab/llava-critic-113k (the columns); LLaVA-VL/LLaVA-NeXT#461 (the mixture); `WORDINGS`.
    """
    prompt, answer, wording, texts = _worded(row)
    part = part or (wording.part if wording else "pointwise")
    empty = dict.fromkeys(("instruction", "reference_answer", *PARTS[part]))
    cells = {"prompt": prompt, "target": answer, "wording": wording and wording.name, **empty}
    if wording is None:
        fault = "the prompt is in another wording, or a text holds its headers: its texts cannot be told apart"
        if len(_OPTION.findall(prompt)) > 1 and _LETTER.match(answer):
            fault = "a question with lettered options: its answer is a letter, and no judgement"
        return cells | {"fault": fault}
    verdict = _verdict(answer, wording)
    cells["feedback"] = verdict.feedback or None
    if wording.part != part:
        return cells | {"fault": f"the row is {wording.part} and stands in the {part} part"}
    cells |= {**texts, "fault": verdict.failure}
    if wording.scale:
        return cells | {"gold": verdict.score, "scale": f"{wording.scale[0]}-{wording.scale[1]}"}
    return cells | {"preference": verdict.choice if verdict.choice in ("a", "b", "tie") else None}


def settle(rows: Iterable[Row]) -> str:
    """Which part rows are of: what most of them are."""
    counts = Counter[str]()
    for row in rows:
        with suppress(BadRow):
            _, _, wording, _ = _worded(row)
            counts[wording.part if wording else ""] += 1
    return max(PARTS, key=counts.__getitem__)


# -- benchmarks of judges: two responses and whose is better; one and its score; several in order

_CATEGORIES = {"mathverse": "reasoning", "mmmu": "reasoning"}
_CATEGORIES |= dict.fromkeys(("hallucination", "rlaif", "rlhf"), "hallucination")


def _vl(row: Row, part: str | None) -> dict[str, Any]:
    """VL-RewardBench: of each of two responses its rank, 0 for the preferred one.

    The id's prefix gives the category (vl-rewardbench/VL_RewardBench cal.py); `query_source` only looks like it.
    """
    responses, ranks = plain(row.get("response")), plain(row.get("human_ranking"))
    if not isinstance(responses, list) or [*map(type, responses)] != [str, str]:
        raise BadRow(("response", "is not a list of two texts", _MEND))
    if not isinstance(ranks, list) or sorted(map(str, ranks)) != ["0", "1"]:
        raise BadRow(("human_ranking", f"{ranks!r} is neither [0, 1] nor [1, 0]", _MEND))
    return {
        "instruction": row["query"].replace("<image>\n", ""),  # as the set's own code does
        "response_a": responses[0],
        "response_b": responses[1],
        "preference": "ab"[int(ranks[1]) == 0],
        "category": _CATEGORIES.get(re.split("[_-]", str(row.get("id")))[0].lower(), "general"),
    }


def _multimodal(row: Row, part: str | None) -> dict[str, Any]:
    """Multimodal RewardBench, in its six categories."""
    preference = _choice(
        row, "Better", {"output1": "a", "output2": "b"}, "neither Output1 nor Output2"
    )
    return {"preference": preference, "category": str(row.get("Category"))}


def _mllm_judge(row: Row, part: str | None) -> dict[str, Any]:
    """MLLM-as-a-Judge: a person's score from 1 to 5; A, B or C (a tie); or the answers' letters, best first.

    The column of that judgement has another name by file, and within one.
    """
    label = next(
        (
            name
            for name in ("human", "human_answer", "Human_answer")
            if not is_missing(row.get(name))
        ),
        "human",
    )
    cells = {"category": row.get("original_dataset")}
    if "answer" in row:
        return cells | {"gold": row.get(label)}
    if "answers" not in row:
        preference = _choice(
            row, label, {"a": "a", "b": "b", "c": "tie"}, "none of A, B and C (a tie)"
        )
        (first, a), (second, b) = (_answer(row.get(name), name) for name in ("answer1", "answer2"))
        cells |= {"preference": preference, "policy_a": first, "response_a": a}
        return cells | {"policy_b": second, "response_b": b}
    listed = plain(row["answers"])
    answers = [
        _answer(it, f"answers[{n}]")
        for n, it in enumerate(listed if isinstance(listed, list) else [listed])
    ]
    letters, order = "ABCDEFGHIJ"[: len(answers)], str(row.get(label)).strip().upper()
    if len(answers) < 2 or sorted(order) != sorted(letters):
        raise BadRow(
            (
                label,
                f"{row.get(label)!r} does not order the {len(answers)} answers {letters}",
                _MEND,
            )
        )
    policies, responses = map(list, zip(*answers, strict=True))
    return {
        "responses": responses,
        "policies": policies,
        "ranks": [order.index(it) + 1.0 for it in letters],
    } | cells


def _choice(row: Row, column: str, choices: Mapping[str, str], what: str) -> str:
    """What a label says, by its lower-case text."""
    choice = choices.get(str(row.get(column)).strip().lower())
    if choice is None:
        raise BadRow((column, f"{row.get(column)!r} is {what}", _MEND))
    return choice


def _answer(value: Any, field: str) -> tuple[Any, str]:
    """Who answered, and what."""
    if not isinstance(value, Mapping) or not isinstance(value.get("answer"), str):
        raise BadRow((field, "is not an object with name and answer", _MEND))
    return value.get("name"), value["answer"]


# -- benchmarks of policies: questions about images, without a `response`


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
    pictures: Any = next(
        (plain(row[name]) for name in ("image", "images", "image_url") if row.get(name)), []
    )
    reference = next(
        (row[name] for name in ("reference_output", "output_human_annotated") if name in row), None
    )
    return {
        "images": pictures if isinstance(pictures, list) else [pictures],
        "reference_answer": reference if isinstance(reference, str) and reference.strip() else None,
        "category": row.get("instruction_category"),
        "group": row.get("image_id"),
    }


# -- all of them

_ORIG = ("instruction", "reference_answer", "criteria", "feedback")
_NAMES = {"images": "images image"} | {name: f"orig_{name}" for name in _ORIG}
_ITEM = _NAMES | {
    "response": "orig_response original_response",
    "gold": "orig_score",
}  # samples say `original_`
_PAIR = _NAMES | {"response_a": "orig_response_A", "response_b": "orig_response_B"}
# The prompt and target over again, and what was read.
_DROP = f"instruction|output|messages|input|image|images|{_LEVEL.pattern}|orig_(score|response|preference)(_[AB])?"


def _set(
    name: str, columns: str, names: dict[str, str], owner: str = "prometheus-eval", **options: Any
) -> Adapter:
    """A set that both of the authors' accounts hold on the hub; the only split of all is train."""
    ids = tuple(
        f"{account}/{name}" for account in dict.fromkeys((owner, "prometheus-eval", "kaist-ai"))
    )
    return Adapter(
        name,
        tuple(columns.split()),
        names,
        **{"more": _rubric, "drop": _DROP, "ids": ids, **options},
    )


_RESPONSE = "orig_instruction orig_response"
_BENCH = f"{_RESPONSE} orig_criteria orig_score1_description orig_score5_description"


def _mllm(kind: str, columns: str, id: str, **names: str) -> Adapter:
    """A part of MLLM-as-a-Judge (Dongping-Chen/MLLM-Judge, Dataset/)."""
    return Adapter(
        f"MLLM-as-a-Judge ({kind})",
        ("instruction", "image_path", *columns.split()),
        {"id": id, "images": "image_path", "instruction": "instruction", **names},
        _mllm_judge,
        "id|score_id|answer[12s]?|human|[hH]uman_answer",
        image_roots=(".", "..", "image", "../image"),
        repeats_ids=True,
        benchmark=f"mllm-judge-{kind}",
    )


def _llava(kind: str, columns: str, *ids: str, **options: Any) -> Adapter:
    """A form of LLaVA-Bench: a table on the hub, or a folder with the questions and their answers."""
    names = {"id": "question_id", "images": "image", "instruction": "text question"}
    names["reference_answer"] = "answer gpt_answer"
    options |= {"ids": ids, "drop": "captions|instances", "benchmark": f"llava-bench-{kind}"}
    return Adapter(
        "LLaVA-Bench", ("question_id", "image", *columns.split()), names, _llava_bench, **options
    )


_WILD = ("questions.jsonl", "answers_gpt4.jsonl", "context.jsonl")
_BOXES = "caps_boxes_coco2014_val_80.jsonl"
_COCO = (
    "qa90_questions.jsonl",
    "qa90_gpt4_answer.jsonl",
    _BOXES,
    f"../../../llava/eval/table/{_BOXES}",
)

ADAPTERS = (
    _set("Perception-Collection", _RESPONSE, _ITEM, "kaist-ai"),
    _set(
        "evaluation samples",
        "orig_instruction original_response",
        _ITEM,
        ids=(),
        benchmark="perception-bench",
    ),
    _set(
        "Perception-Bench",
        "orig_instruction orig_criteria",
        _NAMES,
        "kaist-ai",
        benchmark="perception-bench",
    ),
    _set("Feedback-Collection", _RESPONSE, _ITEM),
    _set("Feedback-Bench", _BENCH, _ITEM, benchmark="feedback-bench"),
    _set(
        "Preference-Collection",
        "orig_response_A orig_response_B orig_preference",
        _PAIR,
        more=_preference,
    ),
    Adapter(
        "Prometheus-Vision",
        ("conversations",),
        {"images": "images image"},
        _training,
        "conversations|images?",
    ),
    Adapter(
        "LLaVA-Critic-113k",
        ("source", "conversations"),
        {"images": "image"},
        _critic,
        "conversations",
        ids=("lmms-lab/LLaVA-Critic-113k",),
        parts=tuple(PARTS),
        settle=settle,
        repeats_ids=True,
    ),
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
    Adapter(  # facebookresearch/multimodal_rewardbench data/all_data.json, which its own script writes
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
    _mllm("score", "score_id answer", "score_id", response="answer", policy="name"),
    _mllm("pair", "answer1 answer2", "pair_id id"),
    _mllm("batch", "answers", "id"),
    _llava(
        "wild",
        "text category",
        "liuhaotian/llava-bench-in-the-wild",
        files=_WILD,
        image_roots=("images", "."),
    ),
    _llava("wild", "question caption gpt_answer", "lmms-lab/llava-bench-in-the-wild"),
    _llava("coco", "question answer caption", "lmms-lab/llava-bench-coco"),
    # haotian-liu/LLaVA playground/data/coco2014_val_qa_eval
    _llava("coco", "text category", files=_COCO, image_roots=(".", "val2014")),
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
