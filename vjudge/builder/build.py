"""build: images, seed rubrics and a generator -> rubrics, instructions, responses with feedback, a folder for the hub.

One shape goes from end to end, a canonical row that grows: id and image (`group`), rubric, instruction, response. What
is asked stands in assets/stages.json, our own words; what seeds and earlier stages wrote goes in as one JSON object, so
that no text in it can pose as part of the task.

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
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import resources
from itertools import chain, combinations, groupby
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
import pandas as pd
from scipy import stats
from tqdm.auto import tqdm

from vjudge import __version__, prompts
from vjudge.builder import faults
from vjudge.builder.faults import Fault, check_text
from vjudge.data import CollectionError, Problem, n_words, validate
from vjudge.engines import Answer, Ask
from vjudge.images import ImageError, fingerprint, open_image
from vjudge.records import NAN, Item, Rubric, is_int_at_least
from vjudge.runs import Run

SPARE = 2  # criteria to brainstorm beyond those that are needed, for near duplicates
EXAMPLES = 3  # seed rubrics shown to each brainstorm
TURNS = 3  # how often at most an image brainstorms for the rubrics that it lacks
REFERENCE_LENGTH = {"least": 15, "most": 250}  # words
NEAR_INSTRUCTION = (
    90.0  # instructions about one image may well resemble each other; see `faults.NEAR`
)
LEAN = 0.05  # how far the share of pairs in which the better response is the longer one may lie from a half
SYSTEM = (
    "You help to build a data set on which models learn to judge answers about images. You look closely at the image,"
    " you invent nothing that it does not show, and you answer with a single JSON object and nothing else."
)
_ASSETS = resources.files("vjudge") / "assets"
_KEYS = ("call", "try", "prompt_digest")
_NAME = re.compile(r"\w[\w.-]*")  # becomes a file's name in the exported folder

Row = dict[str, Any]
Task = tuple[Row, Row]  # a row, and what the generator is given about it, as plain JSON values


class BuildError(RuntimeError):
    """A build can't go on; the message says why and what to do. What was answered is in the record."""


STAGES: dict[str, Row] = json.loads((_ASSETS / "stages.json").read_text("utf-8"))
"""What is asked, in order: task, schema and shape of the answer, about how many tokens prompt and answer have."""
VERSION = hashlib.sha256(json.dumps([SYSTEM, STAGES]).encode()).hexdigest()[:8]  # of the prompts


def task_text(stage: str, given: Mapping[str, Any], *, note: str = "") -> str:
    """The user's turn: what is asked about what is given, as plain JSON values, and why an answer was rejected."""
    task, shown = " ".join(STAGES[stage]["task"]), json.dumps(given, ensure_ascii=False, indent=1)
    form = f"Answer with one JSON object of this form and nothing else:\n{STAGES[stage]['sample']}"
    again = (
        f"\n\nAn answer to this task was rejected: {note} Give another one that avoids this."
        if note
        else ""
    )
    return f"Task: {stage}\n\n{task}\n\nInput:\n{shown}\n\n{form}{again}"


def load_seeds(name_or_path: str | Path = "general") -> list[Row]:
    """Read seed rubrics, from which a generator takes form and breadth: "general", "charts" or a .jsonl file.

    Returns `id`, `area`, `criteria` and `descriptions` (lowest score first, equally many in all), in the file's order;
    CollectionError names the first row that is no sound seed.

    >>> len(load_seeds("general")), load_seeds("charts")[0]["area"]
    (50, 'reading off')
    """
    own = str(name_or_path) in ("charts", "general")
    path = _ASSETS / "seeds" / f"{name_or_path}.jsonl" if own else Path(name_or_path).expanduser()
    if not path.is_file() or not path.read_bytes().strip():
        raise CollectionError(
            f"no seeds in {str(name_or_path)!r}; give a path, or one of charts, general"
        )
    seeds: list[Row] = []
    for number, line in enumerate(
        filter(str.strip, path.read_text("utf-8-sig").splitlines()), start=1
    ):
        try:
            row = json.loads(line)
            seeds.append(
                {
                    "id": str(row["id"]),
                    **{name: row[name] for name in ("area", "criteria", "descriptions")},
                }
            )
            Rubric(row["criteria"], row["descriptions"])
            if (
                len(row["descriptions"]) != len(seeds[0]["descriptions"])
                or len({one["id"] for one in seeds}) < number
            ):
                raise ValueError(
                    "the id of an earlier row, or not as many descriptions as in the first one"
                )
        except (ValueError, TypeError, LookupError) as error:
            what = (
                "a seed is a JSON object with id, area, criteria and descriptions: correct the line"
            )
            raise CollectionError(
                f"seeds {str(name_or_path)!r}, row {number}: {error!r}; {what}"
            ) from error
    return seeds


@dataclass(frozen=True)
class Build:
    """A built collection and the account of how it came about.

    `rows` are canonical, one a response, by image, rubric, instruction and score, of the `n_cases` instructions that
    have a response for every score; `n_incomplete` lack some. `log` has one row an answer, and one for each criterion
    taken out beside it: call, stage, try, fault (missing where kept), detail. `balance` is `length_balance`'s.
    """

    generator: str
    images: Mapping[str, Any]
    options: Mapping[str, Any]
    rows: list[Row]
    n_rubrics: int
    n_cases: int
    n_incomplete: int
    log: pd.DataFrame
    balance: tuple[float, float]

    def faults(self) -> pd.DataFrame:
        """Count everything that was wrong: one row for each of `KINDS`, one column a stage, and "all"."""
        table = pd.crosstab(self.log["fault"], self.log["stage"])
        table = table.reindex(index=list(faults.KINDS), columns=list(STAGES), fill_value=0)
        return table.assign(all=table.sum(axis=1))

    def export(
        self,
        folder: str | os.PathLike[str],
        *,
        name: str = "Built collection",
        license: str = "other",
    ) -> Path:
        """Write the collection as a folder that is ready for the hub, `load_collection` and `fine_tune`.

        A new or empty `folder` gets README.md (the data card), images/ and train.parquet in Perception-Collection's
        columns, whole prompt and training target among them. `license` is the hub's identifier: images and generator
        may bind you. Where length tells the score, a RuntimeWarning and the card say so.
        """
        folder = Path(folder)
        if folder.exists() and any(folder.iterdir()):
            raise CollectionError(f"{str(folder)!r} holds something already; give a new folder")
        validate(self.rows)
        share, p = self.balance
        balance = f"the better of two responses to an instruction is the longer one in {share:.1%} (p = {p:.2g})"
        if lean := abs(share - 0.5) > LEAN and p < 0.05:
            remedy = "a judge could score by length. Use another generator or a smaller tolerance"
            warnings.warn(f"{balance}: {remedy}", RuntimeWarning, stacklevel=2)
        (folder / "images").mkdir(parents=True, exist_ok=True)
        paths = {
            image: f"images/{image}.png"
            for image in dict.fromkeys(row["group"] for row in self.rows)
        }
        for image in paths:
            source = self.images[image]
            if isinstance(source, (str, os.PathLike)) and not str(source).startswith("data:"):
                paths[image] = f"images/{image}{Path(source).suffix}"
                shutil.copyfile(source, folder / paths[image])
            else:
                open_image(source).save(folder / paths[image])
        table = pd.DataFrame([_published(row, paths[row["group"]]) for row in self.rows])
        table.to_parquet(folder / "train.parquet", index=False)
        words = pd.Series([n_words(row["response"]) for row in self.rows])
        facts = {
            "build": self,
            "name": name,
            "license": license,
            "n_shown": len(paths),
            "version": __version__,
        }
        facts |= {
            "balance": balance,
            "lean": lean,
            "words": words.groupby(table["orig_score"]).mean(),
        }
        facts |= {
            "faults": self.faults()["all"],
            "kinds": faults.KINDS,
            "near": faults.NEAR,
            "prompts": VERSION,
        }
        card = jinja2.Template(
            (_ASSETS / "card.md").read_text("utf-8"), keep_trailing_newline=True
        ).render(facts)
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
        tolerance: how far a response's length, by `data.n_words`, may lie from the reference answer's, as a share.
        tries: answers at most to one call: a rejected one is asked for again with the reason.
        temperature, max_new_tokens, seed: of the draws, as in `Judge.grade`.
        skip_unanswered: go on without calls that the generator does not answer, and count them.

    Raises CollectionError for unsound seeds and all images that can't be used; ValueError for options; RunError where
    `out` holds another call's record; BuildError where the generator does not answer, or no answer to a stage could be
    kept, with the counts by reason.
    """
    options: Row = {"rubrics": rubrics, "instructions": instructions, "tolerance": tolerance}
    options |= {
        "seed": seed,
        "tries": tries,
        "temperature": temperature,
        "max_new_tokens": max_new_tokens,
    }
    wrong = Ask(temperature=temperature, max_new_tokens=max_new_tokens).check()
    for name, least in {"rubrics": 1, "instructions": 1, "tries": 1, "seed": 0}.items():
        if not is_int_at_least(options[name], least):
            wrong.append(f"{name}={options[name]!r}: use a whole number from {least}")
    if not 0 < tolerance < 1:
        wrong.append(f"tolerance={tolerance!r}: use a share in (0, 1)")
    if not getattr(getattr(generator, "template", None), "sees_images", False):
        wrong.append(
            f"generator={generator!r}: every stage shows an image; give a Judge that reads them"
        )
    if wrong:
        raise ValueError("; ".join(wrong))
    examples, (pictures, prints) = load_seeds(seeds), _pictures(images)
    n_levels = len(examples[0]["descriptions"])
    manifest = {
        "kind": "collection build",
        "generator": generator.name,
        "engine": generator.engine.identity(),
    }
    manifest |= {
        "options": options,
        "prompts": VERSION,
        "seeds": _digest(json.dumps(examples)),
        "images": prints,
    }
    calls = estimate(
        len(pictures), rubrics=rubrics, instructions=instructions, n_levels=n_levels
    ).loc["all", "calls"]
    with Run(out, keys=_KEYS).open(manifest, expected=int(calls)) as run:
        stages = _Stages(generator, pictures, examples, options, skip_unanswered, progress, run)
        entries = stages.make_rubrics()
        cases = stages.make_cases(entries)
        responses = stages.make_responses(cases)
    by_case = (
        list(rows) for _, rows in groupby(responses, lambda row: row["id"].rpartition("-")[0])
    )
    sets = [rows for rows in by_case if len(rows) == n_levels]
    balance = length_balance([n_words(row["response"]) for row in rows] for rows in sets)
    counts, log = (len(entries), len(sets), len(cases) - len(sets)), pd.DataFrame(stages.log)
    built = Build(generator.name, pictures, options, [*chain(*sets)], *counts, log, balance)
    if not sets:
        n_faults, last = (
            built.faults()["all"].sort_values(ascending=False),
            log.dropna(subset=["fault"]).iloc[-1],
        )
        reasons = ", ".join(f"{kind} {n}" for kind, n in n_faults.items() if n)
        raise BuildError(
            f"nothing was built: no instruction got a response for every score, and the build ended at"
            f" {max(log['stage'], key=[*STAGES].index)!r}. What was wrong, by count: {reasons}. The last:"
            f" {last['detail']}. The answers are in {run.path}. Use a generator that follows instructions (7 billion"
            " parameters or more), or raise max_new_tokens, tolerance or tries; a changed call needs another folder"
        )
    return built


def estimate(
    n_images: int, *, rubrics: int = 3, instructions: int = 2, n_levels: int = 5
) -> pd.DataFrame:
    """Estimate what a build of so many images takes where nothing is rejected; `n_levels` are a rubric's scores.

    Returns one row a stage, and "all": calls; prompt_tokens and new_tokens, roughly, with 800 for an image.

    >>> int(estimate(5000).loc["all", "calls"])
    215000
    """
    table = pd.DataFrame(
        {"calls": n_images * np.cumprod([1, rubrics, 1, instructions, n_levels])},
        index=list(STAGES),
    )
    table["prompt_tokens"] = table["calls"] * [stage["tokens"][0] for stage in STAGES.values()]
    table["new_tokens"] = table["calls"] * [stage["tokens"][1] for stage in STAGES.values()]
    table.loc["all"] = table.sum()
    return table.rename_axis("stage")


def length_balance(lengths: Iterable[Sequence[float]]) -> tuple[float, float]:
    """Test whether length tells the score within instructions; `lengths` of each one's responses, lowest score first.

    Returns in which share of pairs the better of two responses to an instruction is the longer one, ties as half (NaN
    without cases), and the p of the test that length and score are independent within instructions.

    Source: Hirsch, Slack and Smith, Water Resources Research 18 (1982): Kendall's test in blocks, normal approximation
    with ties. The mean of the blocks alone is used, because instructions differ in how long an answer they ask for.

    >>> length_balance([[10, 11, 12, 13, 14]] * 4)[0]
    1.0
    """
    statistic = pairs = variance = 0.0
    for block in lengths:
        signs = [np.sign(later - earlier) for earlier, later in combinations(block, 2)]
        own, *ties = (n * (n - 1) * (2 * n + 5) for n in (len(block), *Counter(block).values()))
        statistic, pairs, variance = (
            statistic + sum(signs),
            pairs + len(signs),
            variance + (own - sum(ties)) / 18,
        )
    if not pairs:
        return NAN, NAN
    p = float(2 * stats.norm.sf(abs(statistic) / math.sqrt(variance))) if variance else 1.0
    return float(statistic / pairs + 1) / 2, p


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
        criteria = {f"seed {seed['id']}": faults.normal(seed["criteria"]) for seed in self.seeds}
        n_levels = len(self.seeds[0]["descriptions"])
        rubrics: dict[str, list[Row]] = {image: [] for image in self.images}
        drafts: dict[str, list[str]] = {image: [] for image in self.images}

        def read_ideas(row: Row, given: Row, answer: Row) -> Row:
            tasks: list[Task] = []
            for idea in [
                {name: check_text(name, text) for name, text in one.items()}
                for one in answer["criteria"]
            ]:
                if len(tasks) == given["number"] - SPARE:
                    break
                id, draft = f"{row['group']}-r{len(drafts[row['group']])}", idea["criteria"]
                drafts[row["group"]].append(draft)
                if clash := faults.near_duplicate(draft, criteria):
                    self.count("brainstorm", row, None, clash)
                    continue
                criteria[id] = faults.normal(draft)
                wanted = {
                    "draft": draft,
                    "grounds": idea["grounds"],
                    "lowest": 1,
                    "highest": n_levels,
                }
                tasks.append(({"id": id, "group": row["group"]}, wanted))
            return {"tasks": tasks}

        def read_rubric(row: Row, given: Row, answer: Row) -> Row:
            text = check_text("criteria", answer["criteria"])
            levels = [check_text("descriptions", level) for level in answer["descriptions"]]
            if not len({" ".join(level.split()) for level in levels}) == len(levels) == n_levels:
                wanted = f"{n_levels} descriptions, all different"
                raise Fault(
                    "wrong form", f"not {wanted}, but {levels!r}"[:200], f"it needs {wanted}."
                )
            if clash := faults.near_duplicate(
                text, {id: one for id, one in criteria.items() if id != row["id"]}
            ):
                raise clash
            criteria[row["id"]] = faults.normal(text)
            return {"criteria": text, "descriptions": levels}

        def read_fit(row: Row, given: Row, answer: Row) -> Row:
            if not answer["judgeable"]:
                raise Fault("not judgeable", f"{row['criteria'][:60]!r}: {answer['reason'][:120]}")
            return {}

        for turn in range(TURNS):
            brainstorms: list[Task] = []
            for image in (
                image for image, kept in rubrics.items() if len(kept) < self.options["rubrics"]
            ):
                rng = np.random.default_rng(
                    int(_digest(f"{self.options['seed']}/{turn}/{image}"), 16)
                )
                examples = [
                    self.seeds[place] for place in rng.permutation(len(self.seeds))[:EXAMPLES]
                ]
                number = self.options["rubrics"] - len(rubrics[image]) + SPARE
                given = {"number": number, "examples": examples, "avoid": [*drafts[image]]}
                brainstorms.append(({"id": f"{image}/{turn}", "group": image}, given))
            refinements = chain.from_iterable(
                row["tasks"] for row in self.ask("brainstorm", brainstorms, read_ideas)
            )
            fits = [(row, _rubric(row)) for row in self.ask("refine", [*refinements], read_rubric)]
            for row in self.ask("align", fits, read_fit):
                rubrics[row["group"]].append(row)
        return [*chain(*rubrics.values())]

    def make_cases(self, rubrics: Sequence[Row]) -> list[Row]:
        """Write instructions with reference answers for each rubric, all different within an image."""
        texts: dict[str, dict[str, str]] = {image: {} for image in self.images}
        cases: dict[str, list[Row]] = {image: [] for image in self.images}

        def read(row: Row, given: Row, answer: Row) -> Row:
            highest = len(row["descriptions"])
            instruction = check_text("instruction", answer["instruction"], range(1, highest + 1))
            reference = check_text("reference_answer", answer["reference_answer"], (highest,))
            _check_length("reference_answer", reference, given)
            if clash := faults.near_duplicate(instruction, texts[row["group"]], NEAR_INSTRUCTION):
                raise Fault(
                    "repetition",
                    f"instruction {clash.detail}",
                    "it repeated an instruction about this image.",
                )
            texts[row["group"]][row["id"]] = faults.normal(instruction)
            return {"instruction": instruction, "reference_answer": reference}

        for number in range(self.options["instructions"]):
            tasks: list[Task] = []
            for row in rubrics:
                earlier = [case["instruction"] for case in cases[row["group"]]]
                given = _rubric(row) | {"earlier": earlier} | REFERENCE_LENGTH
                tasks.append((row | {"id": f"{row['id']}-i{number}"}, given))
            for case in self.ask("instruction", tasks, read):
                cases[case["group"]].append(case)
        return [
            case
            for of_image in cases.values()
            for case in sorted(of_image, key=lambda case: case["id"])
        ]

    def make_responses(self, cases: Sequence[Row]) -> list[Row]:
        """Write a response and feedback for each score of each case, alike in length."""
        texts = {faults.normal(case["reference_answer"]) for case in cases}

        def read(row: Row, given: Row, answer: Row) -> Row:
            response = check_text("response", answer["response"], (given["score"],))
            _check_length("response", response, given)
            feedback = faults.check_feedback(answer["feedback"], given["score"])
            own = {faults.normal(response), f"feedback {faults.normal(feedback)}"}
            if own & texts:
                raise Fault(
                    "repetition",
                    f"{response[:60]!r} or its feedback stands elsewhere",
                    "it repeated a text.",
                )
            texts.update(own)
            return {"response": response, "feedback": feedback}

        tasks: list[Task] = []
        for case in cases:
            length = n_words(case["reference_answer"])
            slack = max(1, math.floor(length * self.options["tolerance"]))
            given = _rubric(case) | {
                name: case[name] for name in ("instruction", "reference_answer")
            }
            bounds = {"length": length, "least": max(1, length - slack), "most": length + slack}
            case = {"images": [self.images[case["group"]]], **case}
            for score in range(1, len(case["descriptions"]) + 1):
                row = {**case, "id": f"{case['id']}-s{score}", "gold": float(score)}
                tasks.append((row, given | {"score": score, **bounds}))
        return self.ask("response", tasks, read)

    def ask(
        self, stage: str, tasks: Sequence[Task], read: Callable[[Row, Row, Row], Row]
    ) -> list[Row]:
        """Ask, try by try: each row with what `read` makes of its answer, without those that are given up."""
        results: dict[str, Row] = {}
        notes = {row["id"]: "" for row, _ in tasks}
        for number in range(self.options["tries"]):
            wave = [task for task in tasks if task[0]["id"] in notes]
            for (row, given), record in zip(
                wave, self._records(stage, wave, number, notes), strict=True
            ):
                fault = None
                del notes[row["id"]]
                try:
                    answer = faults.read_answer(
                        record, STAGES[stage]["schema"], self.options["max_new_tokens"]
                    )
                    results[row["id"]] = row | read(row, given, answer)
                except Fault as error:
                    fault = error
                    if error.note:
                        notes[row["id"]] = error.note
                self.count(stage, row, number, fault)
        return [results[row["id"]] for row, _ in tasks if row["id"] in results]

    def count(self, stage: str, row: Row, number: int | None, fault: Fault | None) -> None:
        """Count an answer, or with no number a criterion that is taken out although its answer was sound."""
        entry = {"call": f"{stage}/{row['id']}", "stage": stage, "try": number}
        self.log.append(entry | {"fault": fault and fault.kind, "detail": fault and fault.detail})

    def _records(self, stage: str, wave: Sequence[Task], number: int, notes: Row) -> list[Row]:
        """The recorded answers of a wave, after asking for those that are missing."""
        conversation = replace(self.generator.template.conversation, system=SYSTEM)
        head = (
            f"{SYSTEM}\n\n" if conversation.written else ""
        )  # a family's own opening was fixed in training
        prompts = [
            conversation.wrap(head + task_text(stage, given, note=notes[row["id"]]), 1)
            for row, given in wave
        ]
        calls = [f"{stage}/{row['id']}" for row, _ in wave]
        keys = [
            (call, number, _digest(f"{one.system}\0{one.text}"))
            for call, one in zip(calls, prompts, strict=True)
        ]
        if missing := {place for place, key in enumerate(keys) if key not in self.run.done}:
            seeds = [
                int(_digest(f"{self.options['seed']}/{number}/{call}", 7), 16) for call in calls
            ]
            decoding = {name: self.options[name] for name in ("temperature", "max_new_tokens")}
            pictures = [[self.images[row["group"]]] for row, _ in wave]
            answers = self.generator.engine.answer(
                prompts, pictures, Ask(seeds=seeds, top_p=0.95, **decoding), missing
            )
            silent = list[Answer]()
            for answer in tqdm(
                chain.from_iterable(answers), stage, len(missing), False, disable=not self.progress
            ):
                if answer.transient:
                    silent.append(answer)
                else:
                    self._keep(answer, keys)
            reasons = Counter(str(answer.failure)[:200] for answer in silent)
            stopped = any(reason.startswith("not asked") for reason in reasons)
            if silent and (stopped or not self.skip_unanswered):
                listed = ", ".join(f"{reason} ({n})" for reason, n in reasons.most_common(3))
                raise BuildError(
                    f"{len(silent)} calls of the stage {stage!r} got no answer: {listed}. Everything else is in"
                    f" {self.run.path}: repeat the call to ask for them again; where only some stay without an answer,"
                    " skip_unanswered=True goes on without them and counts them"
                )
            for answer in silent:
                self._keep(replace(answer, failure=faults.SKIPPED), keys)
        return [self.run.done[key] for key in keys]

    def _keep(self, answer: Answer, keys: Sequence[tuple[str, int, str]]) -> None:
        what = {
            name: getattr(answer, name) for name in ("text", "failure", "finish", "n_new_tokens")
        }
        self.run.append([dict(zip(_KEYS, keys[answer.index], strict=True)) | what])


def _check_length(name: str, text: str, given: Row) -> None:
    """Hold a text's length against what was asked for; the note asks for so much more or less as it was off."""
    length, least, most = n_words(text), given["least"], given["most"]
    if not least <= length <= most:
        note = f"{name} had {length} words, and must have no fewer than {least} and no more than {most}."
        if target := given.get("length"):
            note += f" Aim at {max(1, round(target * target / max(1, length)))} words."
        raise Fault("length", f"{name} has {length} words, not {least} to {most}", note)


def _rubric(row: Row) -> Row:
    """A row's rubric as the generator is given it."""
    levels = {str(score): text for score, text in enumerate(row["descriptions"], start=1)}
    return {"criteria": row["criteria"], "descriptions": levels}


def _digest(text: str, length: int = 16) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:length]


def _published(row: Mapping[str, Any], image: str) -> Row:
    """A row in Perception-Collection's columns."""
    item, score = Item.from_row({**row, "images": []}), int(row["gold"])
    return {
        "image": image,
        "instruction": prompts.TEMPLATES["prometheus-vision"].as_messages().render(item).text,
        "output": prompts.target(row["feedback"], score),
        **{
            f"orig_{name}": row[name]
            for name in ("instruction", "response", "reference_answer", "criteria")
        },
        **{
            f"orig_score{n}_description": text
            for n, text in enumerate(row["descriptions"], start=1)
        },
        **{
            "orig_feedback": row["feedback"],
            "orig_score": score,
            "id": row["id"],
            "group": row["group"],
        },
    }


def _pictures(
    images: Mapping[str, Any] | Iterable[str | Path],
) -> tuple[dict[str, Any], dict[str, str]]:
    """Images and their fingerprints by name, all of them opened once."""
    pairs = (
        images.items()
        if isinstance(images, Mapping)
        else [(path.stem, path) for path in map(Path, images)]
    )
    pictures: dict[str, Any] = {}
    names: dict[str, str] = {}  # by fingerprint
    problems: list[Problem] = []
    for index, (name, source) in enumerate(pairs):
        if not _NAME.fullmatch(name) or name in pictures:
            remedy = "give others of letters, digits, _ - . as {name: path}"
            problems.append(
                Problem(index, name, "name", "is no plain file name, or an earlier image's", remedy)
            )
        pictures[name] = source
        try:
            if (first := names.setdefault(fingerprint(open_image(source)), name)) != name:
                problems.append(
                    Problem(index, name, "image", f"shows the same as {first!r}", "leave it out")
                )
        except ImageError as error:
            problems.append(Problem(index, name, "image", str(error), "repair it, or leave it out"))
    if problems or not names:
        raise CollectionError(
            f"{len(problems)} problems with {len(pictures)} images, of which one is needed",
            problems,
        )
    return pictures, {name: key for key, name in names.items()}
