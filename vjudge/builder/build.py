"""build: images, seed rubrics and a generator -> rubrics, instructions, responses with feedback.

One shape goes from end to end, a canonical row that grows: id and image (`group`), rubric,
instruction, response. What is asked stands in assets/stages.json, our own words; what seeds and
earlier stages wrote goes in as one JSON object, so that no text in it can pose as part of the task.

Source: the four stages of Perception-Collection (arXiv 2401.06591): seeds; brainstorming and
refining rubrics; an instruction and a reference answer; a response and feedback for each score.
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
from dataclasses import dataclass, replace
from importlib import resources
from itertools import chain, groupby
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
import pandas as pd
from tqdm.auto import tqdm

from vjudge import __version__, prompts
from vjudge.builder import faults
from vjudge.builder.faults import Fault, check_text
from vjudge.data import CollectionError, Problem, n_words, validate
from vjudge.engines import Answer, Ask
from vjudge.images import ImageError, fingerprint, open_image
from vjudge.metrics import length_test
from vjudge.records import Item, Rubric, is_int_at_least
from vjudge.runs import Run

N_SPARE = 2  # criteria to brainstorm beyond those that are needed, for near duplicates
N_EXAMPLES = 3  # seed rubrics shown to each brainstorm
N_TURNS = 3  # how often at most an image brainstorms for the rubrics that it lacks
REFERENCE_LENGTH = {"least": 15, "most": 250}  # words
SIMILAR_INSTRUCTION = 90.0  # instructions about one image resemble each other; see `faults.NEAR`
TOLERATED_BALANCE = 0.05  # how far the share of better and longer responses may lie from a half
SYSTEM = (
    "You help to build a data set on which models learn to judge answers about images. You look"
    " closely at the image, you invent nothing that it does not show, and you answer with a single"
    " JSON object and nothing else."
)
_ASSETS = resources.files("vjudge") / "assets"
_KEYS = ("call", "try", "prompt_digest")
_NAME = re.compile(r"\w[\w.-]*")  # becomes a file's name in the exported folder

Row = dict[str, Any]
Task = tuple[Row, Row]  # a row, and what the generator is given about it, as plain JSON values
Reader = Callable[[Row, Row, Row], Row]  # of a row, what was given, and the answer


class BuildError(RuntimeError):
    """A build can't go on; the message says why and what to do. Every answer is in the record.

    `built` is the account of a build that kept nothing, else None.
    """

    def __init__(self, message: str, built: Build | None = None) -> None:
        super().__init__(message)
        self.built = built


STAGES: dict[str, Row] = json.loads((_ASSETS / "stages.json").read_text("utf-8"))
"""What is asked, in order: task, schema and sample of the answer, about how many tokens."""
VERSION = hashlib.sha256(json.dumps([SYSTEM, STAGES]).encode()).hexdigest()[:8]  # of the prompts


def load_seeds(name_or_path: str | Path = "general") -> list[Row]:
    """Read seed rubrics, which show a generator form and breadth.

    >>> len(load_seeds("general")), load_seeds("charts")[0]["area"]
    (50, 'reading off')

    Args:
        name_or_path: "general", "charts" or a .jsonl file.

    Returns:
        `id`, `area`, `criteria` and `descriptions` (lowest score first, equally many in all), in
        the file's order.

    Raises:
        CollectionError: the first row that is no sound seed.
    """
    path = Path(name_or_path).expanduser()
    if str(name_or_path) in ("charts", "general"):
        path = Path(str(_ASSETS / "seeds" / f"{name_or_path}.jsonl"))
    text = path.read_text("utf-8-sig") if path.is_file() else ""
    if not text.strip():
        remedy = "give a path, or one of charts, general"
        raise CollectionError(f"no seeds in {str(name_or_path)!r}; {remedy}")
    seeds: list[Row] = []
    for number, line in enumerate(filter(str.strip, text.splitlines()), start=1):
        try:
            seeds.append(_seed(json.loads(line), seeds))
        except (ValueError, TypeError, LookupError) as error:
            form = "a seed is a JSON object with id, area, criteria and descriptions"
            raise CollectionError(
                f"seeds {str(name_or_path)!r}, row {number}: {error!r}; {form}: correct the line"
            ) from error
    return seeds


def _seed(cells: Any, earlier: Sequence[Row]) -> Row:
    seed = {name: cells[name] for name in ("id", "area", "criteria", "descriptions")}
    seed["id"] = str(seed["id"])
    Rubric(seed["criteria"], seed["descriptions"])
    if seed["id"] in [other["id"] for other in earlier]:
        raise ValueError("an earlier row has this id")
    if earlier and len(seed["descriptions"]) != len(earlier[0]["descriptions"]):
        raise ValueError("it has not as many descriptions as the first row")
    return seed


def estimate(
    n_images: int, *, rubrics: int = 3, instructions: int = 2, n_levels: int = 5
) -> pd.DataFrame:
    """Estimate what a build of so many images takes where nothing is rejected.

    >>> int(estimate(5000).loc["all", "calls"])
    215000

    Args:
        n_images, rubrics, instructions: as for `build`.
        n_levels: how many scores a rubric has.

    Returns:
        One row a stage, and "all": calls; prompt_tokens and new_tokens, roughly, with 800 for an
        image.
    """
    calls = n_images * np.cumprod([1, rubrics, 1, instructions, n_levels])
    table = pd.DataFrame({"calls": calls}, index=pd.Index(list(STAGES), name="stage"))
    for place, name in enumerate(["prompt_tokens", "new_tokens"]):
        table[name] = table["calls"] * [stage["tokens"][place] for stage in STAGES.values()]
    table.loc["all"] = table.sum()
    return table


@dataclass(frozen=True)
class Build:
    """A built collection and the account of how it came about.

    `rows` are canonical, one a response, by image, rubric, instruction and score, of the `n_cases`
    instructions that have a response for every score; `n_incomplete` lack some. `log` has one row
    an answer, and one for each criterion taken out beside it: call, stage, try, fault (missing
    where kept), detail. `balance` says in which share of pairs the better of two responses to an
    instruction is the longer one, and the p of its test (`vjudge.metrics.length_test`).
    """

    generator: str
    images: Mapping[str, Any]
    options: Mapping[str, Any]
    rows: list[Row]
    n_rubrics: int
    n_cases: int
    n_incomplete: int
    log: pd.DataFrame

    @property
    def balance(self) -> tuple[float, float]:
        words = length_test(self.rows, n_resamples=0).loc["words"]
        return float(words["within"]), float(words["p"])

    def faults(self) -> pd.DataFrame:
        """Count what was wrong: one row for each of `KINDS`, one column a stage, and "all"."""
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
        """Write the collection as a folder for the hub, `load_collection` and `fine_tune`.

        Args:
            folder: a new or empty one. It gets README.md (the data card), images/ and train.parquet
                in Perception-Collection's columns, whole prompt and training target among them.
            name: the collection's.
            license: the hub's identifier; images and generator may bind you.

        Returns:
            The folder. Where length predicts the score, a RuntimeWarning and the card say so.

        Raises:
            CollectionError: the folder holds something already.
        """
        folder = Path(folder)
        if folder.exists() and any(folder.iterdir()):
            raise CollectionError(f"{str(folder)!r} holds something already; give a new folder")
        validate(self.rows)
        share, p = self.balance
        balance = "the better of two responses to an instruction is the longer one in"
        balance = f"{balance} {share:.1%} (p = {p:.2g})"
        lean = abs(share - 0.5) > TOLERATED_BALANCE and p < 0.05
        if lean:
            remedy = "Use another generator or a smaller tolerance"
            warnings.warn(
                f"{balance}: a judge could score by length. {remedy}", RuntimeWarning, stacklevel=2
            )
        paths = self._write_images(folder)
        table = pd.DataFrame([_published(row, paths[row["group"]]) for row in self.rows])
        table.to_parquet(folder / "train.parquet", index=False)
        words = pd.Series([n_words(row["response"]) for row in self.rows])
        template = jinja2.Template((_ASSETS / "card.md").read_text("utf-8"))
        card = template.render(
            build=self,
            name=name,
            license=license,
            n_shown=len(paths),
            version=__version__,
            balance=balance,
            lean=lean,
            words=words.groupby(table["orig_score"]).mean(),
            faults=self.faults()["all"],
            kinds=faults.KINDS,
            near=faults.NEAR,
            prompts=VERSION,
        )
        (folder / "README.md").write_text(f"{card}\n", encoding="utf-8")
        return folder

    def _write_images(self, folder: Path) -> dict[str, str]:
        """Write the images that rows show; a file is copied as it is. Returns their paths."""
        (folder / "images").mkdir(parents=True, exist_ok=True)
        paths = {}
        for image in dict.fromkeys(row["group"] for row in self.rows):
            source = self.images[image]
            is_file = isinstance(source, (str, os.PathLike)) and not str(source).startswith("data:")
            suffix = Path(source).suffix if is_file else ".png"
            paths[image] = f"images/{image}{suffix}"
            if is_file:
                shutil.copyfile(source, folder / paths[image])
            else:
                open_image(source).save(folder / paths[image])
        return paths


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

    An answer is one JSON object, also after prose or in a fenced block. Servers and vLLM hold the
    generator to the stage's schema; elsewhere the wording has to suffice.

    Args:
        images: name -> what `vjudge.images.open_image` opens, or paths, whose stems are the names.
        generator: a `Judge` that reads images, such as `load_judge("openai:MODEL")`.
        out: the folder of the record, where the same call continues after any interruption.
        seeds: seed rubrics, see `load_seeds`.
        rubrics, instructions: of an image and of a rubric; 3 and 2 in Perception-Collection.
        tolerance: how far a response's length, by `data.n_words`, may lie from the reference
            answer's, as a share in (0, 1).
        tries: answers at most to one call: a rejected one is asked for again with the reason.
        temperature, max_new_tokens, seed: of the draws, as in `Judge.grade`.
        skip_unanswered: go on without calls that the generator does not answer, and count them.
        progress: whether to show a bar.

    Raises:
        CollectionError: unsound seeds, and all images that can't be used.
        ValueError: options.
        RunError: `out` holds another call's record.
        BuildError: the generator does not answer, or no answer to a stage could be kept, with the
            counts by reason.
    """
    options: Row = {
        "rubrics": rubrics,
        "instructions": instructions,
        "tolerance": tolerance,
        "seed": seed,
        "tries": tries,
        "temperature": temperature,
        "max_new_tokens": max_new_tokens,
    }
    _check_options(options, generator)
    examples = load_seeds(seeds)
    pictures, prints = _open_images(images)
    n_levels = len(examples[0]["descriptions"])
    manifest = {
        "kind": "collection build",
        "generator": generator.name,
        "engine": generator.engine.identity(),
        "options": options,
        "prompts": VERSION,
        "seeds": _digest(json.dumps(examples)),
        "images": prints,
    }
    plan = estimate(len(pictures), rubrics=rubrics, instructions=instructions, n_levels=n_levels)
    with Run(out, keys=_KEYS).open(manifest, expected=int(plan.loc["all", "calls"])) as run:
        stages = _Stages(generator, pictures, examples, options, skip_unanswered, progress, run)
        made = stages.make_rubrics()
        cases = stages.make_cases(made)
        responses = stages.make_responses(cases)
    rows: list[Row] = []
    for _, members in groupby(responses, key=lambda row: row["id"].rpartition("-")[0]):
        of_case = list(members)
        if len(of_case) == n_levels:
            rows += of_case
    n_cases = len(rows) // n_levels
    log = pd.DataFrame(stages.log)
    built = Build(
        generator.name, pictures, options, rows, len(made), n_cases, len(cases) - n_cases, log
    )
    if not rows:
        raise BuildError(_why_nothing(built, run.path), built)
    return built


def _check_options(options: Row, generator: Any) -> None:
    """Raise a ValueError that names every unsound option."""
    ask = Ask(temperature=options["temperature"], max_new_tokens=options["max_new_tokens"])
    wrong = ask.check()
    for name, least in {"rubrics": 1, "instructions": 1, "tries": 1, "seed": 0}.items():
        if not is_int_at_least(options[name], least):
            wrong.append(f"{name}={options[name]!r}: use a whole number from {least}")
    if not 0 < options["tolerance"] < 1:
        wrong.append(f"tolerance={options['tolerance']!r}: use a share in (0, 1)")
    if not getattr(getattr(generator, "template", None), "sees_images", False):
        what = "every stage shows an image; give a Judge that reads them"
        wrong.append(f"generator={generator!r}: {what}")
    if wrong:
        raise ValueError("; ".join(wrong))


def _open_images(
    images: Mapping[str, Any] | Iterable[str | Path],
) -> tuple[dict[str, Any], dict[str, str]]:
    """Images and their fingerprints by name, all of them opened once."""
    if not isinstance(images, Mapping):
        paths = [Path(path) for path in images]
        pairs = [(path.stem, path) for path in paths]
    else:
        pairs = list(images.items())
    pictures: dict[str, Any] = {}
    prints: dict[str, str] = {}
    problems: list[Problem] = []
    for index, (name, source) in enumerate(pairs):
        if not _NAME.fullmatch(name) or name in pictures:
            what = "is no plain file name, or an earlier image's"
            remedy = "give others of letters, digits, _ - . as {name: path}"
            problems.append(Problem(index, name, "name", what, remedy))
        pictures[name] = source
        try:
            key = fingerprint(open_image(source))
        except ImageError as error:
            problems.append(Problem(index, name, "image", str(error), "repair it, or leave it out"))
            continue
        same = [other for other, print in prints.items() if print == key and other != name]
        if same:
            what = f"shows the same as {same[0]!r}"
            problems.append(Problem(index, name, "image", what, "leave it out"))
        prints[name] = key
    if problems or not prints:
        what = f"{len(problems)} problems with {len(pictures)} images, of which one is needed"
        raise CollectionError(what, problems)
    return pictures, prints


def _why_nothing(built: Build, record: Path) -> str:
    counts = built.faults()["all"].sort_values(ascending=False)
    reasons = ", ".join(f"{kind} {n}" for kind, n in counts.items() if n)
    last = built.log.dropna(subset=["fault"]).iloc[-1]
    reached = max(built.log["stage"], key=[*STAGES].index)
    return (
        "nothing was built: no instruction got a response for every score, and the build ended at"
        f" {reached!r}. What was wrong, by count: {reasons}. The last: {last['detail']}. The"
        f" answers are in {record}. Use a generator that follows instructions (7 billion"
        " parameters or more), or raise max_new_tokens, tolerance or tries; a changed call needs"
        " another folder"
    )


@dataclass
class _Stages:
    """The stages that ask the generator; every answer is recorded before it is used, and counted.

    Whether one is kept follows from the answers alone, so that a build that was killed takes the
    same path again.
    """

    generator: Any
    images: Mapping[str, Any]
    seeds: Sequence[Row]
    options: Row
    skip_unanswered: bool
    progress: bool
    run: Run

    def __post_init__(self) -> None:
        self.n_levels = len(self.seeds[0]["descriptions"])
        self.log: list[Row] = []
        # What was written so far, to find repetitions; texts as `faults.normal` gives them.
        self.criteria: dict[str, str] = {}
        for seed in self.seeds:
            self.criteria[f"seed {seed['id']}"] = faults.normal(seed["criteria"])
        self.drafts: dict[str, list[str]] = {image: [] for image in self.images}
        self.instructions: dict[str, dict[str, str]] = {image: {} for image in self.images}
        self.texts: set[str] = set()

    # -- rubrics: brainstorm criteria, refine them, keep those that are new and fit their image

    def make_rubrics(self) -> list[Row]:
        rubrics: dict[str, list[Row]] = {image: [] for image in self.images}
        for turn in range(N_TURNS):
            brainstorms: list[Task] = []
            for image, kept in rubrics.items():
                n_lacking = self.options["rubrics"] - len(kept)
                if n_lacking:
                    brainstorms.append(self._brainstorm(image, turn, n_lacking))
            ideas = self.ask("brainstorm", brainstorms, self.read_ideas)
            tasks = chain.from_iterable(row["tasks"] for row in ideas)
            refined = self.ask("refine", list(tasks), self.read_rubric)
            fits = [(row, _rubric(row)) for row in refined]
            for row in self.ask("align", fits, self.read_fit):
                rubrics[row["group"]].append(row)
        return [*chain(*rubrics.values())]

    def _brainstorm(self, image: str, turn: int, n_lacking: int) -> Task:
        rng = np.random.default_rng(int(_digest(f"{self.options['seed']}/{turn}/{image}"), 16))
        places = rng.permutation(len(self.seeds))[:N_EXAMPLES]
        given = {
            "number": n_lacking + N_SPARE,
            "examples": [self.seeds[place] for place in places],
            "avoid": [*self.drafts[image]],
        }
        return {"id": f"{image}/{turn}", "group": image}, given

    def read_ideas(self, row: Row, given: Row, answer: Row) -> Row:
        """The refinements to ask for; near duplicates are counted and left out."""
        ideas = []
        for one in answer["criteria"]:
            ideas.append({name: check_text(name, text) for name, text in one.items()})
        drafts = self.drafts[row["group"]]
        tasks: list[Task] = []
        for idea in ideas:
            if len(tasks) == given["number"] - N_SPARE:
                break
            id = f"{row['group']}-r{len(drafts)}"
            draft = idea["criteria"]
            drafts.append(draft)
            clash = faults.near_duplicate(draft, self.criteria)
            if clash:
                self.count("brainstorm", row, None, clash)
                continue
            self.criteria[id] = faults.normal(draft)
            wanted: Row = {"draft": draft, "grounds": idea["grounds"], "lowest": 1}
            wanted["highest"] = self.n_levels
            tasks.append(({"id": id, "group": row["group"]}, wanted))
        return {"tasks": tasks}

    def read_rubric(self, row: Row, given: Row, answer: Row) -> Row:
        text = check_text("criteria", answer["criteria"])
        levels = [check_text("descriptions", level) for level in answer["descriptions"]]
        distinct = {" ".join(level.split()) for level in levels}
        if len(levels) != self.n_levels or len(distinct) != self.n_levels:
            wanted = f"{self.n_levels} descriptions, all different"
            raise Fault("wrong form", f"not {wanted}, but {levels!r}"[:200], f"it needs {wanted}.")
        others = {id: one for id, one in self.criteria.items() if id != row["id"]}
        clash = faults.near_duplicate(text, others)
        if clash:
            raise clash
        self.criteria[row["id"]] = faults.normal(text)
        return {"criteria": text, "descriptions": levels}

    def read_fit(self, row: Row, given: Row, answer: Row) -> Row:
        if not answer["judgeable"]:
            raise Fault("not judgeable", f"{row['criteria'][:60]!r}: {answer['reason'][:120]}")
        return {}

    # -- instructions with reference answers for each rubric, all different within an image

    def make_cases(self, rubrics: Sequence[Row]) -> list[Row]:
        cases: list[Row] = []
        for number in range(self.options["instructions"]):
            tasks: list[Task] = []
            for row in rubrics:
                earlier = [case for case in cases if case["group"] == row["group"]]
                given = _rubric(row) | {"earlier": [case["instruction"] for case in earlier]}
                tasks.append((row | {"id": f"{row['id']}-i{number}"}, given | REFERENCE_LENGTH))
            cases += self.ask("instruction", tasks, self.read_case)
        order = list(self.images)
        return sorted(cases, key=lambda case: (order.index(case["group"]), case["id"]))

    def read_case(self, row: Row, given: Row, answer: Row) -> Row:
        highest = self.n_levels
        instruction = check_text("instruction", answer["instruction"], range(1, highest + 1))
        reference = check_text("reference_answer", answer["reference_answer"], (highest,))
        _check_length("reference_answer", reference, given)
        earlier = self.instructions[row["group"]]
        clash = faults.near_duplicate(instruction, earlier, SIMILAR_INSTRUCTION)
        if clash:
            note = "it repeated an instruction about this image."
            raise Fault("repetition", f"instruction {clash.detail}", note)
        earlier[row["id"]] = faults.normal(instruction)
        self.texts.add(faults.normal(reference))
        return {"instruction": instruction, "reference_answer": reference}

    # -- a response and feedback for each score of each case, alike in length

    def make_responses(self, cases: Sequence[Row]) -> list[Row]:
        tasks: list[Task] = []
        for case in cases:
            length = n_words(case["reference_answer"])
            slack = max(1, math.floor(length * self.options["tolerance"]))
            given = _rubric(case) | {
                "instruction": case["instruction"],
                "reference_answer": case["reference_answer"],
                "length": length,
                "least": max(1, length - slack),
                "most": length + slack,
            }
            shown = {"images": [self.images[case["group"]]], **case}
            for score in range(1, self.n_levels + 1):
                row = {**shown, "id": f"{case['id']}-s{score}", "gold": float(score)}
                tasks.append((row, given | {"score": score}))
        return self.ask("response", tasks, self.read_response)

    def read_response(self, row: Row, given: Row, answer: Row) -> Row:
        response = check_text("response", answer["response"], (given["score"],))
        _check_length("response", response, given)
        feedback = faults.check_feedback(answer["feedback"], given["score"])
        own = {faults.normal(response), f"feedback {faults.normal(feedback)}"}
        if own & self.texts:
            what = f"{response[:60]!r} or its feedback stands elsewhere"
            raise Fault("repetition", what, "it repeated a text.")
        self.texts |= own
        return {"response": response, "feedback": feedback}

    # -- asking

    def ask(self, stage: str, tasks: Sequence[Task], read: Reader) -> list[Row]:
        """Ask, try by try: each row with what `read` makes of its answer, if one is kept."""
        results: dict[str, Row] = {}
        notes = {row["id"]: "" for row, _ in tasks}  # of the calls that are still open
        for number in range(self.options["tries"]):
            wave = [task for task in tasks if task[0]["id"] in notes]
            records = self._records(stage, wave, number, notes)
            for (row, given), record in zip(wave, records, strict=True):
                fault = None
                del notes[row["id"]]
                try:
                    limit = self.options["max_new_tokens"]
                    answer = faults.read_answer(record, STAGES[stage]["schema"], limit)
                    faults.check_copied(answer, json.loads(STAGES[stage]["sample"]))
                    results[row["id"]] = row | read(row, given, answer)
                except Fault as error:
                    fault = error
                    if error.note:
                        notes[row["id"]] = error.note
                self.count(stage, row, number, fault)
        return [results[row["id"]] for row, _ in tasks if row["id"] in results]

    def count(self, stage: str, row: Row, number: int | None, fault: Fault | None) -> None:
        """Count an answer; with no number, a criterion taken out of a sound answer."""
        entry = {"call": f"{stage}/{row['id']}", "stage": stage, "try": number}
        kind = fault.kind if fault else None
        self.log.append(entry | {"fault": kind, "detail": fault.detail if fault else None})

    def _records(self, stage: str, wave: Sequence[Task], number: int, notes: Row) -> list[Row]:
        """The recorded answers of a wave, after asking for those that are missing."""
        conversation = replace(self.generator.template.conversation, system=SYSTEM)
        # A family's own opening was fixed in training, and has no place for our system message.
        head = f"{SYSTEM}\n\n" if conversation.written else ""
        calls = [f"{stage}/{row['id']}" for row, _ in wave]
        wrapped = []
        keys = []
        for call, (row, given) in zip(calls, wave, strict=True):
            text = head + task_text(stage, given, note=notes[row["id"]])
            prompt = conversation.wrap(text, 1)
            wrapped.append(prompt)
            keys.append((call, number, _digest(f"{prompt.system}\0{prompt.text}")))
        missing = {place for place, key in enumerate(keys) if key not in self.run.done}
        if missing:
            seed = f"{self.options['seed']}/{number}"
            ask = Ask(
                seeds=[int(_digest(f"{seed}/{call}", 7), 16) for call in calls],
                schemas=[STAGES[stage]["schema"]] * len(calls),
                temperature=self.options["temperature"],
                top_p=0.95,
                max_new_tokens=self.options["max_new_tokens"],
            )
            pictures = [[self.images[row["group"]]] for row, _ in wave]
            answers = self.generator.engine.answer(wrapped, pictures, ask, missing)
            hidden = not self.progress
            bar = tqdm(chain.from_iterable(answers), stage, len(missing), False, disable=hidden)
            self._keep(stage, bar, keys)
        return [self.run.done[key] for key in keys]

    def _keep(self, stage: str, answers: Iterable[Answer], keys: Sequence[Any]) -> None:
        """Record answers; a BuildError where the generator gave none."""
        silent = []
        for answer in answers:
            if answer.transient:
                silent.append(answer)
            else:
                self._append(answer, keys)
        reasons = Counter(str(answer.failure)[:200] for answer in silent)
        stopped = any(reason.startswith("not asked") for reason in reasons)
        if silent and (stopped or not self.skip_unanswered):
            listed = ", ".join(f"{reason} ({n})" for reason, n in reasons.most_common(3))
            raise BuildError(
                f"{len(silent)} calls of the stage {stage!r} got no answer: {listed}. Everything"
                f" else is in {self.run.path}: repeat the call to ask for them again; where only"
                " some stay without an answer, skip_unanswered=True goes on without them and counts"
                " them"
            )
        for answer in silent:
            self._append(replace(answer, failure=faults.SKIPPED), keys)

    def _append(self, answer: Answer, keys: Sequence[Any]) -> None:
        record = dict(zip(_KEYS, keys[answer.index], strict=True))
        for name in ("text", "failure", "finish", "n_new_tokens"):
            record[name] = getattr(answer, name)
        self.run.append([record])


def task_text(stage: str, given: Mapping[str, Any], *, note: str = "") -> str:
    """The user's turn: what is asked about what is given, and why an answer was rejected."""
    task = " ".join(STAGES[stage]["task"])
    shown = json.dumps(given, ensure_ascii=False, indent=1)
    form = f"Answer with one JSON object of this form and nothing else:\n{STAGES[stage]['sample']}"
    text = f"Task: {stage}\n\n{task}\n\nInput:\n{shown}\n\n{form}"
    if note:
        text += (
            f"\n\nAn answer to this task was rejected: {note} Give another one that avoids this."
        )
    return text


def _check_length(name: str, text: str, given: Row) -> None:
    """Compare a text's length with what was asked for.

    The note asks for so much more or less as the text was off.
    """
    length = n_words(text)
    least = given["least"]
    most = given["most"]
    if least <= length <= most:
        return
    note = (
        f"{name} had {length} words, and must have no fewer than {least} and no more than {most}."
    )
    target = given.get("length")
    if target:
        note += f" Aim at {max(1, round(target * target / max(1, length)))} words."
    raise Fault("length", f"{name} has {length} words, not {least} to {most}", note)


def _rubric(row: Row) -> Row:
    """A row's rubric as the generator is given it."""
    levels = {str(score): text for score, text in enumerate(row["descriptions"], start=1)}
    return {"criteria": row["criteria"], "descriptions": levels}


def _digest(text: str, length: int = 16) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:length]


def _published(row: Row, image: str) -> Row:
    """A row in Perception-Collection's columns."""
    item = Item.from_row({**row, "images": []})
    score = int(row["gold"])
    template = prompts.TEMPLATES["prometheus-vision"].as_messages()
    cells: Row = {
        "image": image,
        "instruction": template.render(item).text,
        "output": prompts.target(row["feedback"], score),
    }
    for name in ("instruction", "response", "reference_answer", "criteria"):
        cells[f"orig_{name}"] = row[name]
    for level, text in enumerate(row["descriptions"], start=1):
        cells[f"orig_score{level}_description"] = text
    cells |= {"orig_feedback": row["feedback"], "orig_score": score}
    return cells | {"id": row["id"], "group": row["group"]}
