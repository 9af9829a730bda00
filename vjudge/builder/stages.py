"""The stages of a build: images and seed rubrics -> rubrics, instructions, responses with feedback.

Source: the four stages of Perception-Collection (arXiv 2401.06591, section on its construction): seeds; brainstorming
and refining rubrics; an instruction and a reference answer; a response and feedback for each score.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from rapidfuzz import fuzz, process
from scipy import stats

from vjudge.builder.ask import Asker, Call
from vjudge.builder.faults import Fault, check_feedback, check_rubric, check_text, normal
from vjudge.builder.prompts import ALIGN, BRAINSTORM, INSTRUCTION, REFINE, RESPONSE
from vjudge.records import Rubric

SPARE = 2  # criteria to brainstorm beyond those that are needed, for those that checks remove
EXAMPLES = 3  # seed rubrics shown to each brainstorm
ROUNDS = 2  # how often an image may brainstorm anew, and lengths that lean may be mended
REFERENCE_LENGTH = {"words": (15, 250), "characters": (30, 1500)}
LEAN = 0.05  # how far the share of pairs in which the better response is the longer one may lie from a half
NEAR = 80.0
"""From where two criteria are near duplicates: rapidfuzz's ratio, the share of characters that both have in the same
order, in percent. Of the 2,016 pairs among 58 seeds and 6 published criteria, all different, the closest has 63;
rewordings of one criterion have 83 to 97 (English, German, Chinese), different criteria in Chinese up to 69, in German
71. A criterion that puts another noun into a short sentence ("... the sizes ..." for "... the colours ...") is taken
for a repetition too, which costs a draft."""
NEAR_INSTRUCTION = 90.0  # the same for the instructions of one image, which may well resemble each other


@dataclass(frozen=True)
class Response:
    """A response with its feedback."""

    response: str
    feedback: str


@dataclass(frozen=True)
class Case:
    """One instruction about one image with its rubric: what the responses to it share.

    Args:
        id: "IMAGE-r0-i1": the image's name, the rubric's number, the instruction's.
        responses: score -> response and feedback; complete once every score has one.
    """

    id: str
    image: str
    rubric: Rubric
    instruction: str
    reference: str
    responses: dict[int, Response] = field(default_factory=dict)

    @property
    def complete(self) -> bool:
        """Whether every score has its response."""
        return len(self.responses) == len(self.rubric.scores)


@dataclass(frozen=True)
class Balance:
    """Whether the better of two responses to an instruction is the longer one.

    Args:
        share: of the pairs in which it is, ties as half, in [0, 1]; NaN without cases.
        p: of the test that length and score are independent within instructions.
    """

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
    """Texts that a new one is compared with, in any script; see `NEAR`."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        self.texts = {name: normal(text) for name, text in texts.items()}

    def near(self, text: str, least: float = NEAR) -> tuple[str, float] | None:
        """The name of the closest text and its ratio in percent, where that reaches `least`."""
        closest = process.extractOne(normal(text), self.texts, scorer=fuzz.ratio, score_cutoff=least)
        return None if closest is None else (closest[2], closest[1])

    def add(self, name: str, text: str) -> Fault | None:
        """Take a criterion in under a name, or say what it is a near duplicate of."""
        if clash := self.near(text):
            return Fault("near duplicate", f"{text[:60]!r} is {clash[1]:.0f} % like {clash[0]}")
        self.texts[name] = normal(text)
        return None


@dataclass(frozen=True, kw_only=True)
class Stages:
    """The stages that ask the generator, with what they go by; see `vjudge.builder.build`."""

    asker: Asker
    seeds: Sequence[Mapping[str, Any]]
    rubrics: int
    instructions: int
    unit: str
    tolerance: float
    seed: int

    def length(self, text: str) -> int:
        """A text's length in `unit`."""
        return len(text.split()) if self.unit == "words" else len(text)

    def make_rubrics(self) -> dict[str, list[tuple[str, Rubric]]]:
        """Stage 2: brainstorm criteria for each image, refine them into rubrics, and keep those that fit and are new.

        Returns:
            Image -> (number, rubric), `rubrics` of them or fewer.
        """
        known = {f"seed {seed['id']}": seed["criteria"] for seed in self.seeds}
        drafts, refined = Texts(known), Texts(known)
        kept: dict[str, list[tuple[str, Rubric]]] = {name: [] for name in self.asker.images}
        waiting: dict[str, deque[tuple[Call, dict[str, str]]]] = {name: deque() for name in kept}
        avoid: dict[str, list[str]] = {name: [] for name in kept}
        taken: Counter[str] = Counter()
        for number in range(ROUNDS + 1):
            short = [name for name in kept if len(kept[name]) < self.rubrics]
            calls = [self._brainstorm(name, number, avoid[name]) for name in short]
            for call, proposed in self.asker.ask(calls).items():
                waiting[call.image].extend((call, draft) for draft in proposed)
                avoid[call.image] += [draft["criteria"] for draft in proposed]
            while wave := self._take(drafts, kept, waiting, taken):
                fits = []
                for call, rubric in self.asker.ask(wave).items():
                    if clash := refined.add(f"{call.image} {call.subject}", rubric.criteria):
                        self.asker.remove(call, clash)
                    else:
                        fits.append(self._align(call.image, call.subject, rubric))
                for call, answer in self.asker.ask(fits).items():
                    if answer["judgeable"]:
                        kept[call.image].append(call.subject)
                    else:
                        reason = f"{call.subject[1].criteria[:60]!r}: {answer['reason'][:120]}"
                        self.asker.remove(call, Fault("not judgeable", reason))
        return kept

    def make_cases(self, rubrics: Mapping[str, Sequence[tuple[str, Rubric]]]) -> list[Case]:
        """Stage 3: an instruction and its reference answer for each rubric, all different within an image.

        Returns:
            Cases without responses, by image, rubric and instruction.
        """
        cases: dict[str, list[Case]] = {name: [] for name in rubrics}
        for number in range(self.instructions):
            calls = [
                self._instruct(name, slot, number, rubric, [case.instruction for case in cases[name]])
                for name, entries in rubrics.items()
                for slot, rubric in entries
            ]
            for call, (instruction, reference) in self.asker.ask(calls, review=_different).items():
                id, rubric = call.subject
                cases[call.image].append(Case(id, call.image, rubric, instruction, reference))
        return [case for of_image in cases.values() for case in sorted(of_image, key=lambda case: case.id)]

    def make_responses(self, cases: Sequence[Case]) -> None:
        """Stage 4: a response and feedback for each score of each case, alike in length; fills `Case.responses`."""
        owners: dict[str, Any] = {normal(case.reference): case for case in cases}

        def review(accepted: dict[Call, Response], fresh: dict[Call, Response]) -> dict[Call, Fault]:
            """Reject a response or feedback that stands elsewhere in the collection."""
            faults = {}
            for call, made in fresh.items():
                texts = [normal(made.response), f"feedback {normal(made.feedback)}"]
                if any(owners.get(text, call) is not call for text in texts):
                    detail = f"{made.response[:60]!r} or its feedback stands elsewhere"
                    faults[call] = Fault("repetition", detail, "it repeated a text that stands elsewhere.")
                else:
                    owners.update(dict.fromkeys(texts, call))
            return faults

        calls = [self._respond(case, score, 0) for case in cases for score in case.rubric.scores]
        for call, made in self.asker.ask(calls, review=review).items():
            case, score = call.subject
            case.responses[score] = made
        for number in range(1, ROUNDS + 1):
            complete = [case for case in cases if case.complete]
            side = self.balance(complete).lean
            calls = [self._respond(case, score, number) for case in complete for score in self._leaning(case, side)]
            for call, made in self.asker.ask(calls, review=review).items():
                case, score = call.subject
                lengths = f"{self.length(case.responses[score].response)} to {self.length(made.response)}"
                self.asker.remove(call, Fault("leaning length", f"{case.id}, score {score}: {lengths} {self.unit}"))
                case.responses[score] = made

    def balance(self, cases: Sequence[Case]) -> Balance:
        """Test whether length tells the score within complete cases."""
        return length_balance([[self.length(case.responses[s].response) for s in case.rubric.scores] for case in cases])

    def _take(
        self,
        drafts: Texts,
        kept: Mapping[str, Sequence[Any]],
        waiting: Mapping[str, deque[tuple[Call, dict[str, str]]]],
        taken: Counter[str],
    ) -> list[Call]:
        """Refine as many new drafts as each image lacks rubrics."""
        wave = []
        for name in kept:
            missing = self.rubrics - len(kept[name])
            while missing and waiting[name]:
                call, draft = waiting[name].popleft()
                if clash := drafts.add(f"{name} r{taken[name]}", draft["criteria"]):
                    self.asker.remove(call, clash)
                    continue
                wave.append(self._refine(name, f"r{taken[name]}", draft))
                taken[name] += 1
                missing -= 1
        return wave

    def _leaning(self, case: Case, side: int) -> list[int]:
        """The scores of a case whose responses pull the lengths towards the scores."""
        middle, centre = (case.rubric.scores[0] + case.rubric.highest) / 2, self.length(case.reference)
        lengths = {score: self.length(made.response) for score, made in case.responses.items()}
        return [score for score, n in sorted(lengths.items()) if (n - centre) * (score - middle) * side > 0]

    def _brainstorm(self, name: str, number: int, avoid: Sequence[str]) -> Call:
        digest = hashlib.sha256(f"{self.seed}/{number}/{name}".encode()).digest()
        rng = np.random.default_rng(list(digest[:8]))
        drawn = rng.choice(len(self.seeds), size=min(EXAMPLES, len(self.seeds)), replace=False)
        examples = [{key: self.seeds[i][key] for key in ("criteria", "descriptions")} for i in drawn]
        given = {"number": self.rubrics + SPARE, "examples": examples, "avoid": list(avoid)}

        def read(answer: dict[str, Any]) -> list[dict[str, str]]:
            return [{key: check_text(key, text) for key, text in draft.items()} for draft in answer["criteria"]]

        return Call(f"brainstorm/{name}/{number}", BRAINSTORM, name, given, read)

    def _refine(self, name: str, slot: str, draft: Mapping[str, str]) -> Call:
        n_levels = len(self.seeds[0]["descriptions"])
        given = {"draft": draft["criteria"], "grounds": draft["grounds"], "lowest": 1, "highest": n_levels}
        return Call(f"refine/{name}-{slot}", REFINE, name, given, lambda answer: check_rubric(answer, n_levels), slot)

    def _align(self, name: str, slot: str, rubric: Rubric) -> Call:
        return Call(f"align/{name}-{slot}", ALIGN, name, _given(rubric), lambda answer: answer, (slot, rubric))

    def _instruct(self, name: str, slot: str, number: int, rubric: Rubric, earlier: Sequence[str]) -> Call:
        band = REFERENCE_LENGTH[self.unit]
        given = {**_given(rubric), "earlier": list(earlier), "least": band[0], "most": band[1], "unit": self.unit}

        def read(answer: dict[str, Any]) -> tuple[str, str]:
            instruction = check_text("instruction", answer["instruction"], graded=True)
            reference = check_text("reference_answer", answer["reference_answer"], score=rubric.highest)
            self._check_length("reference_answer", reference, band)
            return instruction, reference

        id = f"{name}-{slot}-i{number}"
        return Call(f"instruction/{id}", INSTRUCTION, name, given, read, (id, rubric))

    def _respond(self, case: Case, score: int, again: int) -> Call:
        """Ask for a response; each further time within half the distance from its target."""
        target = self.length(case.reference)
        slack = max(1, math.floor(target * self.tolerance * 0.5**again))
        band = (max(1, target - slack), target + slack)
        given = {
            **_given(case.rubric),
            "instruction": case.instruction,
            "reference_answer": case.reference,
            "score": score,
            "length": target,
            "least": band[0],
            "most": band[1],
            "unit": self.unit,
        }

        def read(answer: dict[str, Any]) -> Response:
            response = check_text("response", answer["response"], score=score)
            self._check_length("response", response, band, target)
            return Response(response, check_feedback(answer["feedback"], score))

        id = f"response/{case.id}-s{score}" + (f"-again{again}" if again else "")
        return Call(id, RESPONSE, case.image, given, read, (case, score))

    def _check_length(self, name: str, text: str, band: tuple[int, int], target: int | None = None) -> None:
        """Hold a text's length against what was asked for; the note asks for so much more or less as it was off."""
        length, (least, most) = self.length(text), band
        if not least <= length <= most:
            aim = "" if target is None else f" Aim at {max(1, round(target * target / max(1, length)))} {self.unit}."
            note = f"{name} had {length} {self.unit}, and must have no fewer than {least} and no more than {most}.{aim}"
            raise Fault("length", f"{name} has {length} {self.unit}, not {least} to {most}", note)


def _different(accepted: dict[Call, Any], fresh: dict[Call, Any]) -> dict[Call, Fault]:
    """Reject an instruction that asks the same as an earlier one about its image."""
    others: dict[str, Texts] = {}
    faults = {}
    for call, (instruction, _) in [*accepted.items(), *fresh.items()]:
        texts = others.setdefault(call.image, Texts({text: text for text in call.given["earlier"]}))
        if call in fresh and texts.near(instruction, NEAR_INSTRUCTION):
            detail = f"the instruction repeats one about this image: {instruction[:60]!r}"
            faults[call] = Fault("repetition", detail, "the instruction repeats one about this image.")
        else:
            texts.texts[call.id] = normal(instruction)
    return faults


def _given(rubric: Rubric) -> dict[str, Any]:
    levels = {str(score): text for score, text in zip(rubric.scores, rubric.descriptions, strict=True)}
    return {"criteria": rubric.criteria, "descriptions": levels}
