"""The stages of a build: images and seed rubrics -> rubrics, instructions, responses with feedback.

Source: the four stages of Perception-Collection (arXiv 2401.06591, section on its construction): seeds; brainstorming
and refining rubrics; an instruction and a reference answer; a response and feedback for each score.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from rapidfuzz import fuzz, process
from scipy import stats
from tqdm.auto import tqdm

from vjudge.builder.faults import Fault, check_feedback, check_rubric, check_text, normal, read_object
from vjudge.builder.prompts import STAGES, SYSTEM, Stage
from vjudge.engines import Answer, Ask, Engine
from vjudge.prompts import Conversation, Prompt
from vjudge.records import Rubric
from vjudge.runs import Run

KEYS = ("call", "try", "prompt_digest")
FIELDS = ("text", "failure", "stopped", "n_prompt_tokens", "n_new_tokens")
TOP_P = 0.95
SKIPPED = "given up without an answer"
SPARE = 2  # criteria to brainstorm beyond those that are needed, for near duplicates
EXAMPLES = 3  # seed rubrics shown to each brainstorm
TURNS = 3  # how often at most an image brainstorms for the rubrics that it lacks
REFERENCE_LENGTH = {"words": (15, 250), "characters": (30, 1500)}
LEAN = 0.05  # how far the share of pairs in which the better response is the longer one may lie from a half
NEAR = 80.0
"""From where two criteria are near duplicates: rapidfuzz's ratio in percent. Of 2,016 pairs of different criteria the
closest has 63 (Chinese 69, German 71); rewordings of one criterion have 83 to 97."""
NEAR_INSTRUCTION = 90.0  # the same for the instructions of one image, which may well resemble each other


class BuildError(RuntimeError):
    """A build can't go on; the message says why and what to do. What was answered is in the record."""


@dataclass(frozen=True, eq=False)
class Task:
    """One thing to ask the generator for."""

    id: str  # such as "response/cat-r0-i1-s3"
    stage: Stage
    image: str
    given: Mapping[str, Any]  # plain JSON values
    read: Callable[[dict[str, Any]], Any]  # of the answer's fields; raises `Fault`
    subject: Any = None  # what the build knows the call by


@dataclass(frozen=True)
class Case:
    """One instruction about one image, called `id` ("IMAGE-r0-i1", with the numbers of rubric and instruction), with
    its rubric, its reference answer, and score -> response and feedback."""

    id: str
    image: str
    rubric: Rubric
    instruction: str
    reference: str
    responses: dict[int, dict[str, str]] = field(default_factory=dict)

    @property
    def complete(self) -> bool:
        """Whether every score has its response."""
        return len(self.responses) == len(self.rubric.scores)


@dataclass(frozen=True)
class Balance:
    """In which share of pairs the better of two responses to an instruction is the longer one, ties as half (NaN
    without cases), and the p of the test that length and score are independent within instructions."""

    share: float
    p: float

    @property
    def lean(self) -> int:
        """1 where better is longer and -1 where it is shorter, by more than `LEAN` and than chance (p < .05)."""
        beyond = abs(self.share - 0.5) > LEAN and self.p < 0.05
        return (1 if self.share > 0.5 else -1) if beyond else 0

    def __str__(self) -> str:
        return f"the better of two responses to an instruction is the longer one in {self.share:.1%} (p = {self.p:.2g})"


def length_balance(lengths: Sequence[Sequence[float]]) -> Balance:
    """Test whether length tells the score within instructions.

    Args:
        lengths: for each instruction the lengths of its responses, lowest score first.

    Source: Hirsch, Slack and Smith, Water Resources Research 18 (1982): Kendall's test in blocks, normal approximation
    with ties. The mean of the blocks alone is used, because instructions differ in how long an answer they ask for.

    >>> print(length_balance([[10, 11, 12, 13, 14]] * 4))
    the better of two responses to an instruction is the longer one in 100.0% (p = 9.6e-07)
    """
    statistic = pairs = variance = 0.0
    for block in lengths:
        n = len(block)
        statistic += sum(np.sign(block[j] - block[i]) for i in range(n) for j in range(i + 1, n))
        ties = sum(t * (t - 1) * (2 * t + 5) for t in Counter(block).values())
        pairs, variance = pairs + n * (n - 1) / 2, variance + (n * (n - 1) * (2 * n + 5) - ties) / 18
    if not pairs:
        return Balance(math.nan, math.nan)
    p = float(2 * stats.norm.sf(abs(statistic) / math.sqrt(variance))) if variance else 1.0
    return Balance(float(statistic / pairs + 1) / 2, p)


class Texts:
    """Texts by name that a new one is compared with, in any script; see `NEAR`."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        self.texts = {name: normal(text) for name, text in texts.items()}

    def near(self, text: str, least: float = NEAR) -> tuple[str, float, str] | None:
        """The closest text, its ratio in percent and its name, where the ratio reaches `least`."""
        return process.extractOne(normal(text), self.texts, scorer=fuzz.ratio, score_cutoff=least)

    def add(self, name: str, text: str) -> Fault | None:
        """Take a criterion in under a name, or say what it is a near duplicate of."""
        if clash := self.near(text):
            detail = f"{text[:60]!r} is {clash[1]:.0f} % like {clash[2]}"
            return Fault("near duplicate", detail, "it was too close to a criterion that there is already.")
        self.texts[name] = normal(text)
        return None


@dataclass
class Stages:
    """The stages that ask the generator, with the options and seeds of `build`; every answer is counted in `log`.

    An answer is recorded before it is used, and only what the record lacks is asked for. Whether one is kept follows
    from the answers alone, so that a build that was killed takes the same path again.
    """

    engine: Engine
    conversation: Conversation
    images: Mapping[str, Any]
    run: Run
    options: Mapping[str, Any]
    skip_unanswered: bool
    progress: bool
    seeds: Sequence[Mapping[str, Any]]
    log: list[dict[str, Any]] = field(default_factory=list, init=False)

    def ask(self, calls: Sequence[Task]) -> dict[Task, Any]:
        """Ask, try by try: call -> what its `read` made of the answer, in the order of `calls`, unless given up."""
        accepted: dict[Task, Any] = {}
        notes = dict.fromkeys(calls, "")
        for number in range(self.options["tries"]):
            wave = [call for call in notes if call not in accepted]
            for call, row in zip(wave, self._answers(wave, number, notes) if wave else (), strict=True):
                try:
                    accepted[call] = self._read(call, row)
                    self.count(call, None, number)
                except Fault as fault:
                    self.count(call, fault, number)
                    notes[call] = fault.note
                    if fault.kind == "no answer":
                        del notes[call]
        return {call: accepted[call] for call in calls if call in accepted}

    def count(self, call: Task, fault: Fault | None, number: int | None = None) -> None:
        """Count an answer, or with no number something that is taken out although its own answer was sound."""
        entry = {"call": call.id, "stage": call.stage.name, "image": call.image, "try": number}
        self.log.append(entry | {"fault": fault and fault.kind, "detail": fault and fault.detail})

    def _read(self, call: Task, row: Mapping[str, Any]) -> Any:
        """What a recorded answer holds."""
        if failure := row["failure"]:
            if failure == SKIPPED:
                raise Fault("no answer", failure)
            if "refused" in failure or "filter" in failure:
                raise Fault("refusal", failure, "it was refused, and the task is harmless.")
            raise Fault("turned down", failure, "")
        try:
            answer = read_object(row["text"], call.stage.schema)
        except Fault as fault:
            if not row["stopped"] and fault.kind == "not JSON":
                limit = self.options["max_new_tokens"]
                raise Fault("cut off", f"at {limit} new tokens", "it was too long.") from None
            raise
        return call.read(answer)

    def _answers(self, wave: Sequence[Task], number: int, notes: Mapping[Task, str]) -> list[Mapping[str, Any]]:
        """The recorded answers of a wave, after asking for those that are missing."""
        prompts = [self._prompt(call, notes[call]) for call in wave]
        keys = [(call.id, number, _digest(f"{p.system}\0{p.text}", 16)) for call, p in zip(wave, prompts, strict=True)]

        def record(answers: Sequence[Answer]) -> None:
            heads = [dict(zip(KEYS, keys[answer.index], strict=True)) for answer in answers]
            rows = [{name: getattr(answer, name) for name in FIELDS} for answer in answers]
            self.run.append(head | row for head, row in zip(heads, rows, strict=True))

        missing = {place for place, key in enumerate(keys) if key not in self.run.done}
        silent: dict[int, str] = {}
        if missing:
            seeds = [int(_digest(f"{self.options['seed']}/{number}/{call.id}", 7), 16) for call in wave]
            decoding = {name: self.options[name] for name in ("temperature", "max_new_tokens")}
            ask = Ask(seeds=seeds, top_p=TOP_P, **decoding)
            pictures = [[self.images[call.image]] for call in wave]
            with tqdm(total=len(missing), desc=wave[0].stage.name, disable=not self.progress, leave=False) as bar:
                for batch in self.engine.answer(prompts, pictures, ask, missing):
                    record([answer for answer in batch if not answer.transient])
                    silent |= {answer.index: str(answer.failure)[:200] for answer in batch if answer.transient}
                    bar.update(len(batch))
        stopped = any(reason.startswith("not asked") for reason in silent.values())
        if silent and (stopped or not self.skip_unanswered):
            reasons = ", ".join(f"{reason} ({n})" for reason, n in Counter(silent.values()).most_common(3))
            raise BuildError(
                f"{len(silent)} calls got no answer ({wave[min(silent)].id}, for example): {reasons}. Everything else"
                f" is in {self.run.path}: repeat the call to ask for them again"
                + ("" if stopped else "; skip_unanswered=True goes on without them and counts them")
            )
        record([Answer(place, failure=SKIPPED) for place in silent])
        return [self.run.done[key] for key in keys]

    def _prompt(self, call: Task, note: str) -> Prompt:
        text = call.stage.text(call.given, note=note)
        if self.conversation.written:  # a family's own opening was fixed in training
            text = f"{SYSTEM}\n\n{text}"
        return replace(self.conversation, system=SYSTEM).wrap(text, 1)

    def length(self, text: str) -> int:
        return len(text.split()) if self.options["unit"] == "words" else len(text)

    def make_rubrics(self) -> dict[str, list[tuple[str, Rubric]]]:
        """Brainstorm criteria, refine them, and keep rubrics that fit and are new: image -> (number, rubric)."""
        criteria = {f"seed {seed['id']}": seed["criteria"] for seed in self.seeds}
        drafts, refined = Texts(criteria), Texts(criteria)
        rubrics: dict[str, list[tuple[str, Rubric]]] = {name: [] for name in self.images}
        earlier: dict[str, list[str]] = {name: [] for name in rubrics}
        for turn in range(TURNS):
            lacks = {name: self.options["rubrics"] - len(rubrics[name]) for name in rubrics}
            ideas = self.ask([self._brainstorm(name, turn, n, earlier[name]) for name, n in lacks.items() if n > 0])
            refinements = []
            for task, answer in ideas.items():
                for draft in answer:
                    if not lacks[task.image]:
                        break
                    slot = f"r{len(earlier[task.image])}"
                    earlier[task.image].append(draft["criteria"])
                    if clash := drafts.add(f"{task.image} {slot}", draft["criteria"]):
                        self.count(task, clash)
                    else:
                        refinements.append(self._refine(task.image, slot, draft, refined))
                        lacks[task.image] -= 1
            fits = [
                Task(f"align/{task.image}-{task.subject}", STAGES["align"], task.image, _given(rubric), dict,
                     (task.subject, rubric))
                for task, rubric in self.ask(refinements).items()
            ]  # fmt: skip
            for task, answer in self.ask(fits).items():
                slot, rubric = task.subject
                if answer["judgeable"]:
                    rubrics[task.image].append((slot, rubric))
                else:
                    self.count(task, Fault("not judgeable", f"{rubric.criteria[:60]!r}: {answer['reason'][:120]}"))
        return rubrics

    def make_cases(self, rubrics: Mapping[str, Sequence[tuple[str, Rubric]]]) -> list[Case]:
        """Write instructions with reference answers for each rubric, all different within an image."""
        cases: dict[str, list[Case]] = {name: [] for name in rubrics}
        texts = {name: Texts({}) for name in rubrics}
        for number in range(self.options["instructions"]):
            calls = [
                self._instruct(name, slot, number, rubric, [case.instruction for case in cases[name]], texts[name])
                for name, entries in rubrics.items()
                for slot, rubric in entries
            ]
            for call, case in self.ask(calls).items():
                cases[call.image].append(case)
        return [case for of_image in cases.values() for case in sorted(of_image, key=lambda case: case.id)]

    def make_responses(self, cases: Sequence[Case]) -> None:
        """Write a response and feedback for each score of each case, alike in length, into `Case.responses`."""
        texts = {normal(case.reference) for case in cases}
        tasks = [self._respond(case, score, texts) for case in cases for score in case.rubric.scores]
        for task, answer in self.ask(tasks).items():
            case, score = task.subject
            case.responses[score] = answer

    def balance(self, cases: Sequence[Case]) -> Balance:
        """Test whether length tells the score within complete cases."""
        return length_balance([
            [self.length(case.responses[score]["response"]) for score in case.rubric.scores] for case in cases
        ])  # fmt: skip

    def _brainstorm(self, name: str, turn: int, number: int, earlier: list[str]) -> Task:
        rng = np.random.default_rng(int(_digest(f"{self.options['seed']}/{turn}/{name}", 16), 16))
        places = rng.choice(len(self.seeds), size=min(EXAMPLES, len(self.seeds)), replace=False)
        examples = [{key: self.seeds[i][key] for key in ("criteria", "descriptions")} for i in places]
        given = {"number": number + SPARE, "examples": examples, "avoid": [*earlier]}

        def read(answer: dict[str, Any]) -> list[dict[str, str]]:
            return [{key: check_text(key, text) for key, text in draft.items()} for draft in answer["criteria"]]

        return Task(f"brainstorm/{name}/{turn}", STAGES["brainstorm"], name, given, read)

    def _refine(self, name: str, slot: str, draft: Mapping[str, str], refined: Texts) -> Task:
        n_levels = len(self.seeds[0]["descriptions"])
        given = {"draft": draft["criteria"], "grounds": draft["grounds"], "lowest": 1, "highest": n_levels}

        def read(answer: dict[str, Any]) -> Rubric:
            rubric = check_rubric(answer, n_levels)
            if clash := refined.add(f"{name} {slot}", rubric.criteria):
                raise clash
            return rubric

        return Task(f"refine/{name}-{slot}", STAGES["refine"], name, given, read, slot)

    def _instruct(self, name: str, slot: str, number: int, rubric: Rubric, earlier: list[str], texts: Texts) -> Task:
        least, most = REFERENCE_LENGTH[self.options["unit"]]
        given = _given(rubric) | {"earlier": earlier, "least": least, "most": most, "unit": self.options["unit"]}
        id = f"{name}-{slot}-i{number}"

        def read(answer: dict[str, Any]) -> Case:
            instruction = check_text("instruction", answer["instruction"], graded=True)
            reference = check_text("reference_answer", answer["reference_answer"], score=rubric.highest)
            self._check_length("reference_answer", reference, least, most)
            if texts.near(instruction, NEAR_INSTRUCTION):
                what = "the instruction repeats one about this image"
                raise Fault("repetition", f"{what}: {instruction[:60]!r}", f"{what}.")
            texts.texts[id] = normal(instruction)
            return Case(id, name, rubric, instruction, reference)

        return Task(f"instruction/{id}", STAGES["instruction"], name, given, read)

    def _respond(self, case: Case, score: int, texts: set[str]) -> Task:
        target = self.length(case.reference)
        slack = max(1, math.floor(target * self.options["tolerance"]))
        least, most = max(1, target - slack), target + slack
        given = _given(case.rubric) | {"instruction": case.instruction, "reference_answer": case.reference}
        given |= {"score": score, "length": target, "least": least, "most": most, "unit": self.options["unit"]}

        def read(answer: dict[str, Any]) -> dict[str, str]:
            response = check_text("response", answer["response"], score=score)
            self._check_length("response", response, least, most, target)
            feedback = check_feedback(answer["feedback"], score)
            own = {normal(response), f"feedback {normal(feedback)}"}
            if own & texts:
                detail = f"{response[:60]!r} or its feedback stands elsewhere"
                raise Fault("repetition", detail, "it repeated a text that stands elsewhere.")
            texts.update(own)
            return {"response": response, "feedback": feedback}

        return Task(f"response/{case.id}-s{score}", STAGES["response"], case.image, given, read, (case, score))

    def _check_length(self, name: str, text: str, least: int, most: int, target: int | None = None) -> None:
        """Hold a text's length against what was asked for; the note asks for so much more or less as it was off."""
        length, unit = self.length(text), self.options["unit"]
        if not least <= length <= most:
            aim = f" Aim at {max(1, round(target * target / max(1, length)))} {unit}." if target else ""
            note = f"{name} had {length} {unit}, and must have no fewer than {least} and no more than {most}.{aim}"
            raise Fault("length", f"{name} has {length} {unit}, not {least} to {most}", note)


def _given(rubric: Rubric) -> dict[str, Any]:
    levels = {str(score): text for score, text in zip(rubric.scores, rubric.descriptions, strict=True)}
    return {"criteria": rubric.criteria, "descriptions": levels}


def _digest(text: str, length: int) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:length]
