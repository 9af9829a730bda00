"""What a generator is asked, stage by stage, and the seed rubrics that it is shown.

The prompts are written for this project: the paper's own are not used. What earlier stages and seeds wrote goes in as
one JSON object, so that no text in it can pose as part of the task.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from vjudge.data import CollectionError, Problem
from vjudge.records import rubric_faults

VERSION = "1"
SYSTEM = (
    "You help to build a data set on which models learn to judge answers about images. You look closely at the image,"
    " you invent nothing that it does not show, and you answer with a single JSON object and nothing else."
)
_TEXT: dict[str, Any] = {"type": "string", "minLength": 1}


def _object(**properties: Any) -> dict[str, Any]:
    """The schema of an object with just these properties."""
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


@dataclass(frozen=True)
class Stage:
    """One kind of call: what is asked, JSON Schema and shape of its answer, and a guess at the tokens of a prompt,
    without its image, and of an answer."""

    name: str
    task: str
    schema: Mapping[str, Any]
    sample: str
    tokens: tuple[int, int]

    @property
    def version(self) -> str:
        """The prompt's name, with a digest of its wording."""
        whole = json.dumps([SYSTEM, self.task, self.sample, self.schema], sort_keys=True)
        return f"{self.name}-{VERSION}-{hashlib.sha256(whole.encode()).hexdigest()[:8]}"

    def text(self, given: Mapping[str, Any], *, note: str = "") -> str:
        """The user's turn: what the call is about as plain JSON values, and why an answer before was rejected."""
        parts = [
            f"Task: {self.name}",
            self.task,
            f"Input:\n{json.dumps(given, ensure_ascii=False, indent=1)}",
            f"Answer with one JSON object of this form and nothing else:\n{self.sample}",
        ]
        if note:
            parts.append(f"An answer to this task was rejected: {note} Give another one that avoids this.")
        return "\n\n".join(parts)


def given_of(text: str) -> tuple[str, dict[str, Any], bool]:
    """Take a user's turn apart: the stage, what was given, and whether an earlier answer was rejected."""
    head, _, rest = text.partition("\n\nInput:\n")
    given, end = json.JSONDecoder().raw_decode(rest)
    return head.split("\n", 1)[0].removeprefix("Task: "), given, "was rejected:" in rest[end:]


BRAINSTORM = Stage(
    "brainstorm",
    "Look at the image and propose `number` different criteria by which somebody could grade written answers about it."
    " A good criterion names one skill or quality (what must be recognised, counted, read, related, inferred, avoided,"
    " or how it must be said); it can only be judged by looking at this image; it allows answers of every quality from"
    " useless to perfect; and it does not give away what the image shows. The examples show the form and the breadth"
    " that is wanted, from other images: take none of them over and don't reword them. Stay clear of everything under"
    " `avoid`. Under `grounds`, say what in this image the criterion can be judged on.",
    _object(criteria={"type": "array", "minItems": 1, "items": _object(criteria=_TEXT, grounds=_TEXT)}),
    '{"criteria": [{"criteria": "one question or sentence", "grounds": "what in the image it is judged on"}]}',
    (640, 220),
)
REFINE = Stage(
    "refine",
    "Turn the draft into a scoring rubric for answers about this image. Make the criterion one precise sentence or"
    " question that a grader can apply without asking back. Then describe what an answer is like at each score from"
    " `lowest` to `highest`, lowest first, one or two sentences each. Neighbouring levels must differ in something that"
    " a grader can see; every level speaks of this criterion alone; none mentions the length of the answer, a number of"
    " points, or what this image shows in particular, so that the rubric serves any question about the image.",
    _object(criteria=_TEXT, descriptions={"type": "array", "items": _TEXT}),
    '{"criteria": "the criterion", "descriptions": ["what the lowest score means", "...", "what the highest means"]}',
    (240, 230),
)
ALIGN = Stage(
    "align",
    "Could a careful grader apply this rubric to answers about this image? It can be applied if the image shows what"
    " the criterion speaks of, clearly enough that right and wrong answers can be told apart by looking. It can't if it"
    " needs sound, motion, other images or knowledge that nobody could have from this image. Be strict.",
    _object(judgeable={"type": "boolean"}, reason=_TEXT),
    '{"judgeable": true, "reason": "one sentence"}',
    (250, 50),
)
INSTRUCTION = Stage(
    "instruction",
    "Write an instruction that a person might give to an assistant together with this image, such that answers to it"
    " can be graded by the rubric, and a reference answer that fully earns the highest score. The instruction must need"
    " the image, must not describe it, and must not mention the rubric or scores. It must ask for something else than"
    " those under `earlier`. The reference answer is what an expert would say who looks at the image: right in every"
    " detail, plain prose, between `least` and `most` long as counted in `unit`.",
    _object(instruction=_TEXT, reference_answer=_TEXT),
    '{"instruction": "what is asked", "reference_answer": "the answer that earns the highest score"}',
    (380, 160),
)
RESPONSE = Stage(
    "response",
    "Write the answer of an assistant to the instruction that earns exactly the score `score` by the rubric, neither"
    " more nor less, and then a grader's feedback on it. The answer must read like an honest attempt: its faults are"
    " the ones that the level of this score describes, they can be seen only by comparing it with the image, and it"
    " never admits them and never mentions scores, levels or the rubric. Answers to all scores must be equally long:"
    " write about `length` (`unit`), no fewer than `least` and no more than `most`, whatever the score; don't pad and"
    " don't cut off. Don't copy the reference answer. The feedback says by the rubric what is right, what is wrong"
    " against the image, and why it is this level and not the one beside it; it does not state the score as a number.",
    _object(response=_TEXT, feedback=_TEXT),
    '{"response": "the assistant\'s answer", "feedback": "the grader\'s feedback"}',
    (540, 260),
)
STAGES = {stage.name: stage for stage in (BRAINSTORM, REFINE, ALIGN, INSTRUCTION, RESPONSE)}


def load_seeds(name_or_path: str | Path = "general") -> list[dict[str, Any]]:
    """Read seed rubrics, from which a generator takes form and breadth; another field is another file.

    >>> len(load_seeds("general")), load_seeds("charts")[0]["area"]
    (50, 'reading off')

    Args:
        name_or_path: "general" or "charts" (an example of a field), which come with vjudge, or a .jsonl file.

    Returns:
        `id`, `area`, `criteria` and `descriptions` (lowest score first, equally many in all), in the file's order.

    Raises:
        CollectionError: no such file, or every line that is no sound seed, with what to do.
    """
    folder = resources.files("vjudge") / "assets" / "seeds"
    path = folder / f"{name_or_path}.jsonl" if str(name_or_path) in ("charts", "general") else Path(name_or_path)
    if not path.is_file():
        raise CollectionError(f"no seed file {str(name_or_path)!r}; give a path, or one of charts, general")
    seeds: list[dict[str, Any]] = []
    problems: list[Problem] = []
    for index, line in enumerate(filter(str.strip, path.read_text("utf-8-sig").splitlines())):
        try:
            row = json.loads(line)
            seed = {"id": str(row["id"]), **{name: row[name] for name in ("area", "criteria", "descriptions")}}
        except (ValueError, TypeError, LookupError) as error:
            what = f"is no JSON object with id, area, criteria and descriptions ({error!r})"
            problems.append(Problem(index, None, "row", what, "repair the line"))
            continue
        faults = rubric_faults(seed["criteria"], seed["descriptions"])
        if any(seed["id"] == other["id"] for other in seeds):
            faults.append(("id", "stands twice"))
        if seeds and not faults and len(seed["descriptions"]) != len(seeds[0]["descriptions"]):
            faults.append(("descriptions", f"are not {len(seeds[0]['descriptions'])} as in the first line"))
        problems += [Problem(index, seed["id"], field, what, "correct the line") for field, what in faults]
        seeds += [] if faults else [seed]
    if problems or not seeds:
        raise CollectionError(f"seeds {str(name_or_path)!r} are not sound" + ("" if problems else ": none"), problems)
    return seeds
