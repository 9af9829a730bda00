"""The stages of a build: rubrics, instructions, responses with feedback, asked of a generator.

One canonical row grows from stage to stage: id and image (`group`), rubric, instruction, response.
The tasks are in assets/stages.json, in this project's own words. What seeds and earlier stages
wrote enters a prompt as one JSON object, so that no text in it can pose as part of the task.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from vjudge.builder import faults
from vjudge.builder.faults import STAGES, Fault, check_length, check_text
from vjudge.data import CollectionError, n_words
from vjudge.data.files import rows_of_file
from vjudge.engines import Answer, Ask
from vjudge.images import Pictures
from vjudge.judging.asking import Question
from vjudge.judging.grading import collect
from vjudge.prompts.wordings import ASSETS
from vjudge.records import Rubric

N_SPARE = 3  # criteria to brainstorm beyond those that are needed, since some are rejected
N_EXAMPLES = 3  # seed rubrics shown to each brainstorm
REFERENCE_LENGTH = {"least": 15, "most": 250}  # words
# The similarity from which on an instruction repeats another one about its image, in percent.
# Instructions about one image resemble each other, so that it is above `faults.NEAR`.
SIMILAR_INSTRUCTION = 90.0
SYSTEM = (
    "You help to build a data set on which models learn to judge answers about images. You look"
    " closely at the image, you invent nothing that it does not show, and you answer with a single"
    " JSON object and nothing else."
)
VERSION = hashlib.sha256(json.dumps([SYSTEM, STAGES]).encode()).hexdigest()[:8]  # of the prompts

JsonObject = dict[str, Any]


class BuildError(RuntimeError):
    """The generator does not answer; the message says why. Every answer so far is in the record."""


def load_seeds(name_or_path: str | Path = "general") -> list[JsonObject]:
    """Read seed rubrics, which show a generator form and breadth.

    >>> len(load_seeds("general")), load_seeds("charts")[0]["area"]
    (50, 'reading off')

    Args:
        name_or_path: "general", "charts" or a .jsonl file.

    Returns:
        Dicts with `id`, `area`, `criteria` and `descriptions` (lowest score first, equally many in
        all seeds), in the file's order.

    Raises:
        CollectionError: the file is broken, or a row is no valid seed; the message names the
            first one.
        OSError: there is no such file.
    """
    path: Any = Path(name_or_path)
    if name_or_path in ("charts", "general"):
        path = ASSETS / "seeds" / f"{name_or_path}.jsonl"
    seeds: list[JsonObject] = []
    for number, seed in enumerate(rows_of_file(path), start=1):
        try:
            rubric = Rubric(seed["criteria"], seed["descriptions"])
            seeds.append(seed)
            if len(rubric.levels) != len(seeds[0]["descriptions"]):
                raise ValueError("it has not as many descriptions as the first row")
        except (ValueError, TypeError, LookupError) as error:
            raise CollectionError(
                f"{path}, row {number}: {error!r}; a seed is a JSON object with id, area, criteria"
                " and descriptions: correct the line"
            ) from error
    return seeds


class Task(NamedTuple):
    """One call of the generator.

    Attributes:
        row: the canonical row so far, which the answer extends.
        inputs: what the prompt gives the generator, as plain JSON values.
        note: why the answer of the previous attempt was rejected; empty at the first attempt.
    """

    row: JsonObject
    inputs: JsonObject
    note: str = ""


@dataclass
class Stages:
    """The stages, in the order of their methods: `make_rubrics`, `make_cases`, `make_responses`.

    Every answer is recorded before it is used. Whether it is accepted follows from the answers
    alone, so that a build that was killed makes the same decisions again.

    Args:
        generator: a `Judge` that reads images.
        images: name -> image.
        seeds: seed rubrics, see `load_seeds`.
        options: rubrics, instructions, tolerance, tries, seed, temperature, max_new_tokens, as for
            `build`.
        out: the folder of the record.
        progress: whether to show bars.
    """

    generator: Any
    images: Mapping
    seeds: Sequence[JsonObject]
    options: JsonObject
    out: Path
    progress: bool

    def __post_init__(self) -> None:
        self.pictures = Pictures()
        self.n_levels = len(self.seeds[0]["descriptions"])
        self.n_batches = 0
        self.log: list[JsonObject] = []
        # What was written so far, to find repetitions. All texts as `faults.normal` returns them.
        self.criteria: dict[str, str] = {}  # a seed's number, or a rubric's id -> criteria
        for number, seed in enumerate(self.seeds, start=1):
            self.criteria[f"seed {number}"] = faults.normal(seed["criteria"])
        # image -> id of a case -> instruction
        self.instructions: dict[str, dict[str, str]] = {image: {} for image in self.images}
        self.texts: set[str] = set()  # reference answers, responses and feedback

    # -- rubrics: brainstorm criteria, refine them, keep those that are new and fit their image

    def make_rubrics(self) -> list[JsonObject]:
        """Return rows with a rubric, at most options["rubrics"] per image."""
        # 1) criteria for each image, with random seeds as examples
        brainstorms = []
        for index, image in enumerate(self.images):
            rng = np.random.default_rng([self.options["seed"], index])
            drawn = rng.permutation(len(self.seeds))[:N_EXAMPLES]
            examples = [self.seeds[number] for number in drawn]
            inputs = {"number": self.options["rubrics"] + N_SPARE, "examples": examples}
            brainstorms.append(Task({"id": image, "group": image}, inputs))

        # 2) a rubric made of each criterion; `read_ideas` turned the criteria into tasks
        refinements = []
        for row in self.ask("brainstorm", brainstorms, self.read_ideas):
            refinements += row["refinements"]
        refined = self.ask("refine", refinements, self.read_rubric)

        # 3) the rubrics that the generator finds applicable to the image
        fitting = self.ask("align", [Task(row, _rubric(row)) for row in refined], self.read_fit)
        rubrics = []
        # `ask` keeps the order of its tasks, so that the rubrics of an image stand side by side.
        for _, of_image in groupby(fitting, key=itemgetter("group")):
            rubrics += list(of_image)[: self.options["rubrics"]]
        return rubrics

    def read_ideas(self, task: Task, answer: JsonObject) -> JsonObject:
        """Turn brainstormed criteria into tasks of the next stage.

        Returns:
            One cell, "refinements": a list of tasks.
        """
        image = task.row["group"]
        refinements = []
        for number, idea in enumerate(answer["criteria"][: task.inputs["number"]]):
            inputs = {
                "lowest": 1,
                "highest": self.n_levels,
                "draft": check_text("criteria", idea["criteria"]),
                "grounds": check_text("grounds", idea["grounds"]),
            }
            refinements.append(Task({"id": f"{image}-r{number}", "group": image}, inputs))
        return {"refinements": refinements}

    def read_rubric(self, task: Task, answer: JsonObject) -> JsonObject:
        """Return the cells of a refined rubric: criteria and descriptions.

        Raises:
            Fault: its levels are not as asked, or its criteria are a near duplicate.
        """
        text = check_text("criteria", answer["criteria"])
        levels = [check_text("descriptions", level) for level in answer["descriptions"]]
        if len(levels) != self.n_levels or len(set(levels)) != self.n_levels:
            requirement = f"{self.n_levels} descriptions, all different"
            raise Fault(
                "wrong form", f"not {requirement}, but {levels!r}"[:200], f"it needs {requirement}."
            )
        duplicate = faults.near_duplicate(text, self.criteria)
        if duplicate:
            raise replace(duplicate, note="")  # final: another wording would not be new, either
        self.criteria[task.row["id"]] = faults.normal(text)
        return {"criteria": text, "descriptions": levels}

    def read_fit(self, task: Task, answer: JsonObject) -> JsonObject:
        """Accept a rubric that the generator finds applicable to the image, with no new cells.

        Raises:
            Fault: the generator finds it not applicable.
        """
        reason = check_text("reason", answer["reason"])
        if not answer["judgeable"]:
            raise Fault("not judgeable", f"{task.row['criteria'][:60]!r}: {reason[:120]}")
        return {}

    # -- instructions with reference answers for each rubric, all different within an image

    def make_cases(self, rubrics: Sequence[JsonObject]) -> list[JsonObject]:
        """Return rows with an instruction and its reference answer."""
        cases: list[JsonObject] = []
        for number in range(self.options["instructions"]):
            tasks = []
            for row in rubrics:
                # The instructions that the row's image has from all of its rubrics so far.
                earlier = [case["instruction"] for case in cases if case["group"] == row["group"]]
                inputs = _rubric(row) | {"earlier": earlier} | REFERENCE_LENGTH
                tasks.append(Task(row | {"id": f"{row['id']}-i{number}"}, inputs))
            cases += self.ask("instruction", tasks, self.read_case)
        return cases

    def read_case(self, task: Task, answer: JsonObject) -> JsonObject:
        """Return the cells of a case: instruction and reference answer.

        Raises:
            Fault: a text is not as asked, or the instruction repeats another one of its image.
        """
        scores = range(1, self.n_levels + 1)  # an instruction may state none of them as a verdict
        instruction = check_text("instruction", answer["instruction"], scores)
        # The reference answer earns the highest score, which is the one that it may not state.
        reference = check_text("reference_answer", answer["reference_answer"], scores[-1:])
        check_length("reference_answer", reference, task.inputs)
        earlier = self.instructions[task.row["group"]]
        duplicate = faults.near_duplicate(instruction, earlier, SIMILAR_INSTRUCTION)
        if duplicate:
            raise replace(duplicate, kind="repetition")
        earlier[task.row["id"]] = faults.normal(instruction)
        self.texts.add(faults.normal(reference))
        return {"instruction": instruction, "reference_answer": reference}

    # -- a response and feedback for each score of each case, of similar length

    def make_responses(self, cases: Sequence[JsonObject]) -> list[JsonObject]:
        """Return a row per response, of those cases alone that have a response for every score."""
        tasks = []
        for case in cases:
            length = n_words(case["reference_answer"])
            slack = max(1, int(length * self.options["tolerance"]))  # words
            images = [self.images[case["group"]]]
            inputs = _rubric(case) | {
                "instruction": case["instruction"],
                "reference_answer": case["reference_answer"],
                "length": length,
                "least": length - slack,
                "most": length + slack,
            }
            for score in range(1, self.n_levels + 1):
                cells = {"id": f"{case['id']}-s{score}", "gold": float(score), "images": images}
                tasks.append(Task(case | cells, inputs | {"score": score}))
        accepted = self.ask("response", tasks, self.read_response)
        n_accepted = Counter(map(_case_of, accepted))
        return [row for row in accepted if n_accepted[_case_of(row)] == self.n_levels]

    def read_response(self, task: Task, answer: JsonObject) -> JsonObject:
        """Return the cells of a response: the response and its feedback.

        Raises:
            Fault: a text is not as asked, or repeats an earlier one.
        """
        score = task.inputs["score"]
        response = check_text("response", answer["response"], (score,))
        check_length("response", response, task.inputs)
        feedback = faults.check_feedback(answer["feedback"], score)
        # The prefix keeps feedback apart: a feedback may be worded like some response.
        new_texts = {faults.normal(response), f"feedback {faults.normal(feedback)}"}
        if new_texts & self.texts:
            raise Fault(
                "repetition",
                f"{response[:60]!r} or its feedback stands elsewhere",
                "it repeated a text.",
            )
        self.texts |= new_texts
        return {"response": response, "feedback": feedback}

    # -- asking

    def ask(
        self,
        stage: str,
        tasks: Sequence[Task],
        read: Callable[[Task, JsonObject], JsonObject],
    ) -> list[JsonObject]:
        """Ask the generator for every task of a stage; ask again where an answer is rejected.

        Every attempt asks for all pending tasks at once, at most options["tries"] times. Each
        answer becomes a row of the log.

        Args:
            stage: a key of `STAGES`.
            tasks: with different ids.
            read: returns the new cells of a task's row from the answer; raises a Fault where the
                answer is rejected.

        Returns:
            The extended rows of the tasks with an accepted answer, in the order of the tasks.
        """
        accepted: dict[str, JsonObject] = {}  # id -> extended row
        pending = list(tasks)
        for attempt in range(self.options["tries"]):
            records = self._answers(stage, pending, attempt) if pending else []
            rejected = []
            for task, record in zip(pending, records, strict=True):
                id = task.row["id"]
                entry = {"call": f"{stage}/{id}", "stage": stage, "try": attempt}
                entry |= {"fault": None, "detail": None}
                try:
                    answer = faults.read_answer(record, STAGES[stage]["schema"])
                    accepted[id] = task.row | read(task, answer)
                except Fault as fault:
                    entry |= {"fault": fault.kind, "detail": fault.detail}
                    if fault.note:  # a fault without a note is final
                        rejected.append(task._replace(note=fault.note))
                self.log.append(entry)
            pending = rejected
        return [accepted[task.row["id"]] for task in tasks if task.row["id"] in accepted]

    def _answers(self, stage: str, tasks: Sequence[Task], attempt: int) -> list[JsonObject]:
        """Return a record per task: from the folder where it was asked before, else by asking.

        Args:
            stage, tasks: as for `ask`.
            attempt: number of the attempt, from 0.

        Returns:
            What `_record` makes of each answer, in the order of the tasks.

        Raises:
            BuildError: some call got no answer, for a reason that may pass.
        """
        conversation = replace(self.generator.template.conversation, system=SYSTEM)
        questions = []
        for index, task in enumerate(tasks):
            text = task_text(stage, task.inputs, note=task.note)
            picture = self.pictures(self.images[task.row["group"]])
            prompt = conversation.wrap(text, 1)
            questions.append(Question(index, task.row["id"], prompt, attempt, images=[picture]))
        ask = Ask(
            seeds=[question.seed(self.options["seed"]) for question in questions],
            schemas=[STAGES[stage]["schema"]] * len(tasks),
            temperature=self.options["temperature"],
            top_p=0.95,
            max_new_tokens=self.options["max_new_tokens"],
        )
        self.n_batches += 1
        records = collect(
            self.generator.engine,
            questions,
            ask,
            _record,
            {"options": self.options, "prompts": VERSION},
            out=self.out / f"{self.n_batches:02d}-{stage}",
            progress=self.progress,
        )
        unanswered = Counter(record["failure"] for record in records if record["transient"])
        if unanswered:
            raise BuildError(
                f"{unanswered.total()} calls of the stage {stage!r} got no answer:"
                f" {dict(unanswered)}. Everything else is in {self.out}: repeat the call to ask for"
                " them again, or leave their images out"
            )
        return records


def _record(answer: Answer, _: Question) -> JsonObject:
    """Return what is recorded of an answer; `collect` also passes its question, unused here."""
    return {
        "text": answer.text,
        "failure": answer.failure,
        "finish": answer.finish,
        "transient": answer.transient,
    }


def task_text(stage: str, inputs: Mapping, *, note: str = "") -> str:
    """Write the user's turn of a prompt: the task, its inputs, the form of the answer.

    Args:
        stage: a key of `STAGES`.
        inputs: as plain JSON values.
        note: why the answer of the previous attempt was rejected; empty to say nothing of it.
    """
    task = " ".join(STAGES[stage]["task"])
    input_text = json.dumps(inputs, ensure_ascii=False, indent=1)
    form = f"Answer with one JSON object of this form and nothing else:\n{STAGES[stage]['sample']}"
    text = f"Task: {stage}\n\n{task}\n\nInput:\n{input_text}\n\n{form}"
    if note:
        text += f"\n\nAn answer to this was rejected: {note} Give another one that avoids this."
    return text


def _case_of(row: JsonObject) -> str:
    """Return the id of a response's case: "cup-r0-i1-s5" -> "cup-r0-i1"."""
    return str(row["id"].rpartition("-")[0])


def _rubric(row: JsonObject) -> JsonObject:
    """Return a row's rubric as prompts give it: criteria, and a dict score -> description."""
    levels = {str(score): text for score, text in enumerate(row["descriptions"], start=1)}
    return {"criteria": row["criteria"], "descriptions": levels}
