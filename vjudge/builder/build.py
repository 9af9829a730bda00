"""build: images, seed rubrics and a generator -> rubrics, instructions, responses with feedback, a folder for the hub.

One shape goes from end to end, a canonical row that grows: id and image (`group`), rubric, instruction, response.

Source: the four stages of Perception-Collection (arXiv 2401.06591, section on its construction): seeds; brainstorming
and refining rubrics; an instruction and a reference answer; a response and feedback for each score.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, combinations, groupby
from pathlib import Path
from typing import Any, NamedTuple

import datasets
import jinja2
import numpy as np
import pandas as pd
from scipy import stats
from tqdm.auto import tqdm

from vjudge import __version__, prompts
from vjudge.builder import faults
from vjudge.builder.faults import Fault
from vjudge.builder.prompts import ASSETS, STAGES, SYSTEM, load_seeds
from vjudge.data import CollectionError, Problem, validate
from vjudge.engines import Answer, Ask
from vjudge.engines.engine import whole
from vjudge.images import ImageError, fingerprint, open_image
from vjudge.records import NAN, Item, rubric_faults
from vjudge.runs import Run

IMAGE_TOKENS = 800  # what a generator counts for an image, for the estimate
SPARE = 2  # criteria to brainstorm beyond those that are needed, for near duplicates
EXAMPLES = 3  # seed rubrics shown to each brainstorm
TURNS = 3  # how often at most an image brainstorms for the rubrics that it lacks
REFERENCE_LENGTH = {"words": {"least": 15, "most": 250}, "characters": {"least": 30, "most": 1500}}
NEAR_INSTRUCTION = 90.0  # instructions about one image may well resemble each other; see `faults.NEAR`
LEAN = 0.05  # how far the share of pairs in which the better response is the longer one may lie from a half
_KEYS = ("call", "try", "prompt_digest")
_NAME = re.compile(r"\w[\w.-]*(?:/\w[\w.-]*)*")  # becomes a file's name in the exported folder

Row = dict[str, Any]
Task = tuple[Row, Row]  # a row, and what the generator is given about it, as plain JSON values


class BuildError(RuntimeError):
    """A build can't go on; the message says why and what to do. What was answered is in the record."""


class Balance(NamedTuple):
    """In which share of pairs the better of two responses to an instruction is the longer one, ties as half (NaN
    without cases), and the p of the test that length and score are independent within instructions."""

    share: float
    p: float

    @property
    def lean(self) -> bool:
        """Whether better is longer, or shorter, by more than `LEAN` and than chance (p < .05)."""
        return abs(self.share - 0.5) > LEAN and self.p < 0.05

    def __str__(self) -> str:
        return f"the better of two responses to an instruction is the longer one in {self.share:.1%} (p = {self.p:.2g})"


@dataclass(frozen=True)
class Build:
    """A built collection and the account of how it came about.

    `rows` are canonical, one a response, by image, rubric, instruction and score, of the `n_cases` instructions that
    have a response for every score; `n_incomplete` lack some. `log` has one row an answer, and one for what a check
    across calls took out: call, stage, image, try, fault (missing where kept), detail.
    """

    generator: str
    images: Mapping[str, Any]
    options: Mapping[str, Any]
    rows: list[Row]
    n_rubrics: int
    n_cases: int
    n_incomplete: int
    log: pd.DataFrame
    balance: Balance

    def faults(self) -> pd.DataFrame:
        """Count everything that was wrong: one row for each of `KINDS`, one column a stage, and "all"."""
        table = pd.crosstab(self.log["fault"], self.log["stage"])
        table = table.reindex(index=list(faults.KINDS), columns=list(STAGES), fill_value=0)
        return table.assign(all=table.sum(axis=1))

    def counts(self) -> pd.DataFrame:
        """What the stages came to: calls, answers to them, calls that were given up; one row a stage."""
        answers = self.log.dropna(subset=["try"]).groupby("stage")
        table = pd.DataFrame({"calls": answers["call"].nunique(), "answers": answers.size()})
        table["given_up"] = table["calls"] - table["answers"] + answers["fault"].count()
        return table.reindex(list(STAGES), fill_value=0)

    def export(
        self,
        folder: str | os.PathLike[str],
        *,
        name: str = "Built collection",
        license: str = "other",
        note: str = "",
        allow_imbalance: bool = False,
    ) -> Path:
        """Write the collection as a folder that is ready for the hub, `load_collection` and `fine_tune`.

        Args:
            folder: new or empty; it gets README.md (the data card), images/ and train.parquet, which has
                Perception-Collection's columns, whole prompt and training target among them.
            name, license, note: for the card; the licence by the hub's identifiers: images and generator may bind you.
            allow_imbalance: whether lengths that lean are no CollectionError, but said in the card.
        """
        if self.balance.lean and not allow_imbalance:
            raise CollectionError(
                f"not exported: {self.balance}, so that a judge could score by length. Use another generator or a"
                " smaller tolerance, or allow_imbalance=True to export it with that said in its card"
            )
        folder = Path(folder)
        if folder.exists() and any(folder.iterdir()):
            raise CollectionError(f"{str(folder)!r} holds something already; give a new folder")
        validate(self.rows)
        paths = {}
        for image in {row["group"]: None for row in self.rows}:
            source = self.images[image]
            file = Path(source) if isinstance(source, (str, Path)) and not str(source).startswith("data:") else None
            path = paths[image] = f"images/{image}{file.suffix if file else '.png'}"
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            if file:
                shutil.copyfile(file, folder / path)
            else:
                open_image(source).save(folder / path)
        table = datasets.Dataset.from_list([_published(row, paths[row["group"]]) for row in self.rows])
        table.to_parquet(str(folder / "train.parquet"))
        words = pd.Series([len(row["response"].split()) for row in self.rows])
        facts = {"build": self, "name": name, "license": license, "note": note, "n_shown": len(paths), "lean": LEAN}
        facts |= {"faults": self.faults()["all"], "counts": self.counts().sum(), "version": __version__}
        facts |= {"words": words.groupby([row["gold"] for row in self.rows]).mean(), "stages": STAGES}
        facts |= {"kinds": faults.KINDS, "near": faults.NEAR}
        card = jinja2.Template((ASSETS / "card.md").read_text("utf-8"), keep_trailing_newline=True).render(facts)
        (folder / "README.md").write_text(card, encoding="utf-8")
        return folder


def build(
    images: Mapping[str, Any] | Iterable[str | Path],
    generator: Any,
    *,
    out: str | Path,
    seeds: str | Path = "general",
    rubrics: int = 3,
    instructions: int = 2,
    unit: str = "words",
    tolerance: float = 0.15,
    tries: int = 3,
    temperature: float = 1.0,
    max_new_tokens: int = 1024,
    seed: int = 0,
    skip_unanswered: bool = False,
    progress: bool = True,
) -> Build:
    """Build a collection, or continue a build that was stopped.

    Args:
        images: name -> what `vjudge.images.open_image` opens, or paths, whose stems are the names.
        generator: a `Judge` that reads images, such as `load_judge("openai:MODEL")`, or a `ScriptedGenerator`.
        out: the folder of the record, where the same call continues after any interruption.
        seeds: seed rubrics, see `load_seeds`.
        rubrics, instructions: of an image and of a rubric; 3 and 2 in Perception-Collection.
        unit: of lengths: "words", or "characters" for scripts without spaces.
        tolerance: how far a response's length may lie from the reference answer's, as a share of it.
        tries: answers at most to one call: a rejected one is asked for again with the reason.
        temperature, max_new_tokens, seed: of the draws, as in `Judge.grade`.
        skip_unanswered: go on without calls that the generator does not answer, and count them.

    Raises CollectionError for unsound seeds and every image that can't be used; ValueError for options; RunError where
    `out` can't be used, or holds the record of another call; BuildError where the generator does not answer, or no
    answer to a stage could be kept, with the counts by reason.

    Source: Prometheus-Vision (arXiv 2401.06591), section on Perception-Collection, for the counts.
    """
    options: Row = {"rubrics": rubrics, "instructions": instructions, "unit": unit, "tolerance": tolerance}
    options |= {"seed": seed, "tries": tries, "temperature": temperature, "max_new_tokens": max_new_tokens}
    sound = {name: (whole(options[name], 1), "a whole number from 1") for name in ("rubrics", "instructions", "tries")}
    sound |= {"seed": (whole(seed, 0), "a whole number from 0"), "tolerance": (0 < tolerance < 1, "a share in (0, 1)")}
    sound |= {"unit": (unit in REFERENCE_LENGTH, " or ".join(REFERENCE_LENGTH))}
    wrong = Ask(temperature=temperature, max_new_tokens=max_new_tokens).check()
    wrong += [f"{name}={options[name]!r}: use {remedy}" for name, (fine, remedy) in sound.items() if not fine]
    if not getattr(getattr(generator, "template", None), "sees_images", False):
        wrong.append(f"generator={generator!r}: every stage shows an image; give a Judge that reads them")
    if wrong:
        raise ValueError("; ".join(wrong))
    examples, (pictures, prints) = load_seeds(seeds), _pictures(images)
    manifest = {"kind": "collection build", "generator": generator.name, "engine": generator.engine.identity()}
    manifest |= {"options": options, "prompts": {name: stage.version for name, stage in STAGES.items()}}
    manifest |= {"seeds": hashlib.sha256(json.dumps(examples).encode()).hexdigest(), "images": prints}
    n_levels = len(examples[0]["descriptions"])
    calls = estimate(len(pictures), rubrics=rubrics, instructions=instructions, n_levels=n_levels).loc["all", "calls"]
    with Run(out, keys=_KEYS).open(manifest, expected=int(calls)) as run:
        stages = _Stages(generator, pictures, examples, options, skip_unanswered, progress, run)
        entries = stages.make_rubrics()
        cases = stages.make_cases(entries)
        responses = stages.make_responses(cases)
    by_case = (list(rows) for _, rows in groupby(responses, lambda row: row["id"].rpartition("-")[0]))
    sets = [rows for rows in by_case if len(rows) == n_levels]
    balance = length_balance([stages.length(row["response"]) for row in rows] for rows in sets)
    counts, log = (len(entries), len(sets), len(cases) - len(sets)), pd.DataFrame(stages.log)
    built = Build(generator.name, pictures, options, [*chain(*sets)], *counts, log, balance)
    if not sets:
        n_faults, last = built.faults()["all"].sort_values(ascending=False), log.dropna(subset=["fault"]).iloc[-1]
        reasons = ", ".join(f"{kind} {n}" for kind, n in n_faults.items() if n)
        raise BuildError(
            f"nothing was built: no instruction got a response for every score, and the build ended at"
            f" {max(log['stage'], key=[*STAGES].index)!r}. What was wrong, by count: {reasons}. The last:"
            f" {last['detail']}. The answers are in {run.path}: read some there. Use a generator that follows"
            " instructions (7 billion parameters or more), raise max_new_tokens where answers were cut off, tolerance"
            " where lengths were missed, or tries; a changed call needs another folder"
        )
    return built


def estimate(
    n_images: int,
    *,
    rubrics: int = 3,
    instructions: int = 2,
    n_levels: int = 5,
    price: tuple[float, float] = (NAN, NAN),
) -> pd.DataFrame:
    """Estimate what a build of so many images takes where nothing is rejected; `n_levels` are a rubric's scores.

    Returns one row a stage, and "all": calls; prompt_tokens and new_tokens, roughly, with 800 for an image; their price
    by that of a million of either.

    >>> int(estimate(5000, price=(2.5, 10.0)).loc["all", "calls"])
    215000
    """
    n_rubrics, n_cases = n_images * rubrics, n_images * rubrics * instructions
    table = pd.DataFrame({"calls": [n_images, n_rubrics, n_rubrics, n_cases, n_cases * n_levels]}, index=list(STAGES))
    table["prompt_tokens"] = table["calls"] * [stage.tokens[0] + IMAGE_TOKENS for stage in STAGES.values()]
    table["new_tokens"] = table["calls"] * [stage.tokens[1] for stage in STAGES.values()]
    table["price"] = (table["prompt_tokens"] * price[0] + table["new_tokens"] * price[1]) / 1e6
    table.loc["all"] = table.sum(min_count=1)
    return table.rename_axis("stage")


def length_balance(lengths: Iterable[Sequence[float]]) -> Balance:
    """Test whether length tells the score within instructions; `lengths` of each one's responses, lowest score first.

    Source: Hirsch, Slack and Smith, Water Resources Research 18 (1982): Kendall's test in blocks, normal approximation
    with ties. The mean of the blocks alone is used, because instructions differ in how long an answer they ask for.

    >>> print(length_balance([[10, 11, 12, 13, 14]] * 4))
    the better of two responses to an instruction is the longer one in 100.0% (p = 9.6e-07)
    """
    statistic = pairs = variance = 0.0
    for block in lengths:
        signs = [np.sign(later - earlier) for earlier, later in combinations(block, 2)]
        own, *ties = (n * (n - 1) * (2 * n + 5) for n in (len(block), *Counter(block).values()))
        statistic, pairs, variance = statistic + sum(signs), pairs + len(signs), variance + (own - sum(ties)) / 18
    if not pairs:
        return Balance(NAN, NAN)
    p = float(2 * stats.norm.sf(abs(statistic) / math.sqrt(variance))) if variance else 1.0
    return Balance(float(statistic / pairs + 1) / 2, p)


@dataclass
class _Stages:
    """The stages that ask the generator; every answer is recorded before it is used, and counted in `log`.

    Whether one is kept follows from the answers alone, so that a build that was killed takes the same path again.
    """

    generator: Any
    images: Mapping[str, Any]
    seeds: Sequence[Row]
    options: Row
    skip_unanswered: bool
    progress: bool
    run: Run
    log: list[Row] = field(default_factory=list)

    def make_rubrics(self) -> list[Row]:
        """Brainstorm criteria, refine them, and keep rubrics that are new and fit their image."""
        drafts = {f"seed {seed['id']}": faults.normal(seed["criteria"]) for seed in self.seeds}
        refined, n_levels = dict(drafts), len(self.seeds[0]["descriptions"])
        rubrics: dict[str, list[Row]] = {image: [] for image in self.images}
        earlier: dict[str, list[str]] = {image: [] for image in self.images}

        def read_drafts(row: Row, given: Row, answer: Row) -> list[Row]:
            texts = (draft.items() for draft in answer["criteria"])
            return [{name: faults.check_text(name, text) for name, text in draft} for draft in texts]

        def read_rubric(row: Row, given: Row, answer: Row) -> Row:
            criteria = faults.check_text("criteria", answer["criteria"])
            levels = [faults.check_text("descriptions", level) for level in answer["descriptions"]]
            wrong = [f"{name} {what}" for name, what in rubric_faults(criteria, levels)]
            if len(levels) != n_levels:
                wrong.append(f"{len(levels)} descriptions where {n_levels} are needed")
            if wrong:
                raise Fault("wrong form", "; ".join(wrong), f"it needs {n_levels} descriptions, all different.")
            if clash := faults.near_duplicate(criteria, refined):
                raise clash
            refined[row["id"]] = faults.normal(criteria)
            return {"criteria": criteria, "descriptions": levels}

        for turn in range(TURNS):
            lacks = {image: self.options["rubrics"] - len(kept) for image, kept in rubrics.items()}
            brainstorms: list[Task] = []
            for image in filter(lacks.get, lacks):
                rng = np.random.default_rng(int(_digest(f"{self.options['seed']}/{turn}/{image}", 16), 16))
                places = rng.choice(len(self.seeds), size=min(EXAMPLES, len(self.seeds)), replace=False)
                examples = [{name: self.seeds[i][name] for name in ("criteria", "descriptions")} for i in places]
                given = {"number": lacks[image] + SPARE, "examples": examples, "avoid": [*earlier[image]]}
                brainstorms.append(({"id": f"{image}/{turn}", "group": image}, given))
            refinements: list[Task] = []
            for row, ideas in self.ask("brainstorm", brainstorms, read_drafts):
                image = row["group"]
                for idea in ideas:
                    if not lacks[image]:
                        break
                    id = f"{image}-r{len(earlier[image])}"
                    earlier[image].append(idea["criteria"])
                    if clash := faults.near_duplicate(idea["criteria"], drafts):
                        self.count("brainstorm", row, None, clash)
                        continue
                    drafts[id] = faults.normal(idea["criteria"])
                    given = {"draft": idea["criteria"], "grounds": idea["grounds"], "lowest": 1, "highest": n_levels}
                    refinements.append(({"id": id, "group": image}, given))
                    lacks[image] -= 1
            fits = [(row | rubric, _rubric(rubric)) for row, rubric in self.ask("refine", refinements, read_rubric)]
            for row, fit in self.ask("align", fits, lambda row, given, answer: answer):
                if fit["judgeable"]:
                    rubrics[row["group"]].append(row)
                else:
                    detail = f"{row['criteria'][:60]!r}: {fit['reason'][:120]}"
                    self.count("align", row, None, Fault("not judgeable", detail))
        return [*chain(*rubrics.values())]

    def make_cases(self, rubrics: Sequence[Row]) -> list[Row]:
        """Write instructions with reference answers for each rubric, all different within an image."""
        bounds = REFERENCE_LENGTH[self.options["unit"]] | {"unit": self.options["unit"]}
        texts: dict[str, dict[str, str]] = {image: {} for image in self.images}
        cases: dict[str, list[Row]] = {image: [] for image in self.images}

        def read(row: Row, given: Row, answer: Row) -> Row:
            instruction = faults.check_text("instruction", answer["instruction"], graded=True)
            highest = len(row["descriptions"])
            reference = faults.check_text("reference_answer", answer["reference_answer"], score=highest)
            self._check_length("reference_answer", reference, given)
            if faults.closest(instruction, texts[row["group"]], NEAR_INSTRUCTION):
                what = "the instruction repeats one about this image"
                raise Fault("repetition", f"{what}: {instruction[:60]!r}", f"{what}.")
            texts[row["group"]][row["id"]] = faults.normal(instruction)
            return {"instruction": instruction, "reference_answer": reference}

        for number in range(self.options["instructions"]):
            tasks: list[Task] = []
            for row in rubrics:
                earlier = [case["instruction"] for case in cases[row["group"]]]
                tasks.append((row | {"id": f"{row['id']}-i{number}"}, _rubric(row) | {"earlier": earlier} | bounds))
            for row, answer in self.ask("instruction", tasks, read):
                cases[row["group"]].append(row | answer)
        return [case for of_image in cases.values() for case in sorted(of_image, key=lambda case: case["id"])]

    def make_responses(self, cases: Sequence[Row]) -> list[Row]:
        """Write a response and feedback for each score of each case, alike in length."""
        texts = {faults.normal(case["reference_answer"]) for case in cases}

        def read(row: Row, given: Row, answer: Row) -> Row:
            response = faults.check_text("response", answer["response"], score=given["score"])
            self._check_length("response", response, given)
            feedback = faults.check_feedback(answer["feedback"], given["score"])
            own = {faults.normal(response), f"feedback {faults.normal(feedback)}"}
            if own & texts:
                detail = f"{response[:60]!r} or its feedback stands elsewhere"
                raise Fault("repetition", detail, "it repeated a text that stands elsewhere.")
            texts.update(own)
            return {"response": response, "feedback": feedback}

        tasks: list[Task] = []
        for case in cases:
            length = self.length(case["reference_answer"])
            slack = max(1, math.floor(length * self.options["tolerance"]))
            bounds = {"length": length, "least": max(1, length - slack), "most": length + slack}
            given = _rubric(case) | {name: case[name] for name in ("instruction", "reference_answer")}
            for score in range(1, len(case["descriptions"]) + 1):
                row = {
                    "images": [self.images[case["group"]]],
                    **case,
                    "id": f"{case['id']}-s{score}",
                    "gold": float(score),
                }
                tasks.append((row, given | {"score": score, **bounds, "unit": self.options["unit"]}))
        return [row | answer for row, answer in self.ask("response", tasks, read)]

    def length(self, text: str) -> int:
        return len(text.split()) if self.options["unit"] == "words" else len(text)

    def _check_length(self, name: str, text: str, given: Row) -> None:
        """Hold a text's length against what was asked for; the note asks for so much more or less as it was off."""
        length, least, most, unit = self.length(text), given["least"], given["most"], given["unit"]
        if not least <= length <= most:
            note = f"{name} had {length} {unit}, and must have no fewer than {least} and no more than {most}."
            if target := given.get("length"):
                note += f" Aim at {max(1, round(target * target / max(1, length)))} {unit}."
            raise Fault("length", f"{name} has {length} {unit}, not {least} to {most}", note)

    def ask(self, stage: str, tasks: Sequence[Task], read: Callable[[Row, Row, Row], Any]) -> list[tuple[Row, Any]]:
        """Ask, try by try: each row with what `read` makes of it and its answer, without those that are given up."""
        results: dict[str, Any] = {}
        notes = {row["id"]: "" for row, _ in tasks}
        for number in range(self.options["tries"]):
            wave = [task for task in tasks if task[0]["id"] in notes]
            for (row, given), record in zip(wave, self._records(stage, wave, number, notes), strict=True):
                fault = None
                try:
                    answer = faults.read_answer(record, STAGES[stage].schema, self.options["max_new_tokens"])
                    results[row["id"]] = read(row, given, answer)
                except Fault as error:
                    fault = error
                self.count(stage, row, number, fault)
                if fault is None or fault.kind == "no answer":
                    del notes[row["id"]]
                else:
                    notes[row["id"]] = fault.note
        return [(row, results[row["id"]]) for row, _ in tasks if row["id"] in results]

    def count(self, stage: str, row: Row, number: int | None, fault: Fault | None) -> None:
        """Count an answer, or with no number something that is taken out although its own answer was sound."""
        entry = {"call": f"{stage}/{row['id']}", "stage": stage, "image": row["group"], "try": number}
        self.log.append(entry | {"fault": fault and fault.kind, "detail": fault and fault.detail})

    def _records(self, stage: str, wave: Sequence[Task], number: int, notes: Row) -> list[Mapping[str, Any]]:
        """The recorded answers of a wave, after asking for those that are missing."""
        conversation = replace(self.generator.template.conversation, system=SYSTEM)
        head = f"{SYSTEM}\n\n" if conversation.written else ""  # a family's own opening was fixed in training
        texts = [head + STAGES[stage].text(given, note=notes[row["id"]]) for row, given in wave]
        prompts = [conversation.wrap(text, 1) for text in texts]
        calls = [f"{stage}/{row['id']}" for row, _ in wave]
        digests = [_digest(f"{prompt.system}\0{prompt.text}", 16) for prompt in prompts]
        keys = [(call, number, digest) for call, digest in zip(calls, digests, strict=True)]

        def keep(answer: Answer) -> None:
            names = ("text", "failure", "stopped", "n_prompt_tokens", "n_new_tokens")
            key = dict(zip(_KEYS, keys[answer.index], strict=True))
            self.run.append([key | {name: getattr(answer, name) for name in names}])

        silent: dict[int, str] = {}
        if missing := {place for place, key in enumerate(keys) if key not in self.run.done}:
            seeds = [int(_digest(f"{self.options['seed']}/{number}/{call}", 7), 16) for call in calls]
            decoding = {name: self.options[name] for name in ("temperature", "max_new_tokens")}
            ask = Ask(seeds=seeds, top_p=0.95, **decoding)
            pictures = [[self.images[row["group"]]] for row, _ in wave]
            answers = chain.from_iterable(self.generator.engine.answer(prompts, pictures, ask, missing))
            for answer in tqdm(answers, desc=stage, total=len(missing), disable=not self.progress, leave=False):
                if answer.transient:
                    silent[answer.index] = str(answer.failure)[:200]
                else:
                    keep(answer)
        stopped = any(reason.startswith("not asked") for reason in silent.values())
        if silent and (stopped or not self.skip_unanswered):
            reasons = ", ".join(f"{reason} ({n})" for reason, n in Counter(silent.values()).most_common(3))
            raise BuildError(
                f"{len(silent)} calls got no answer ({calls[min(silent)]}, for example): {reasons}. Everything else"
                f" is in {self.run.path}: repeat the call to ask for them again; where only some stay without an"
                " answer, skip_unanswered=True goes on without them and counts them"
            )
        for place in silent:
            keep(Answer(place, failure=faults.SKIPPED))
        return [self.run.done[key] for key in keys]


def _rubric(row: Row) -> Row:
    """A row's rubric as the generator is given it."""
    levels = {str(score): text for score, text in enumerate(row["descriptions"], start=1)}
    return {"criteria": row["criteria"], "descriptions": levels}


def _digest(text: str, length: int) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:length]


def _published(row: Mapping[str, Any], image: str) -> Row:
    """A row in Perception-Collection's columns."""
    item, score = Item.from_row({**row, "images": []}), int(row["gold"])
    return {
        "image": image,
        "instruction": prompts.TEMPLATES["prometheus-vision"].as_messages().render(item).text,
        "output": prompts.target(row["feedback"], score),
        **{f"orig_{name}": row[name] for name in ("instruction", "response", "reference_answer", "criteria")},
        **{f"orig_score{n}_description": text for n, text in enumerate(row["descriptions"], start=1)},
        **{"orig_feedback": row["feedback"], "orig_score": score, "id": row["id"], "group": row["group"]},
    }


def _pictures(images: Mapping[str, Any] | Iterable[str | Path]) -> tuple[dict[str, Any], dict[str, str]]:
    """Images and their fingerprints by name, all of them opened once."""
    if not isinstance(images, Mapping):
        paths = [Path(path) for path in images]
        images = {path.stem: path for path in paths}
        if len(images) < len(paths):
            raise CollectionError("two images have the same file name: give names yourself, as {name: path}")
    names: dict[str, str] = {}  # by fingerprint
    problems: list[Problem] = []
    for index, (name, source) in enumerate(images.items()):
        if not _NAME.fullmatch(name):
            problems.append(Problem(index, name, "name", "is no plain file name", "use letters, digits, _ - . only"))
        try:
            if (first := names.setdefault(fingerprint(open_image(source)), name)) != name:
                problems.append(Problem(index, name, "image", f"shows the same as {first!r}", "leave it out"))
        except ImageError as error:
            problems.append(Problem(index, name, "image", str(error), "repair it, or leave it out"))
    if problems or not names:
        raise CollectionError(f"{len(problems)} problems with {len(images)} images, of which one is needed", problems)
    return dict(images), {name: key for key, name in names.items()}
