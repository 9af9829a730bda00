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
import re
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from rapidfuzz import fuzz, process

from vjudge import plots
from vjudge.builder import faults
from vjudge.builder.faults import STAGES, Fault, check_length, check_text
from vjudge.data import CollectionError, Problem, n_words, validate
from vjudge.engines import Answer, Ask
from vjudge.images import ImageError, Pictures, open_image
from vjudge.judging.asking import Question
from vjudge.judging.grading import collect
from vjudge.judging.judge import Judge
from vjudge.metrics import length_test
from vjudge.prompts.wordings import ASSETS
from vjudge.records import Rubric
from vjudge.results import NotComputed, Result, analysis

N_SPARE = 3  # criteria to brainstorm beyond those that are needed, for those that are not kept
N_EXAMPLES = 3  # seed rubrics shown to each brainstorm
REFERENCE_LENGTH = {"least": 15, "most": 250}  # words
SIMILAR_INSTRUCTION = 90.0  # instructions about one image resemble each other; see `faults.NEAR`
TOLERATED_BALANCE = 0.05  # how far the share of better and longer responses may lie from a half
SYSTEM = (
    "You help to build a data set on which models learn to judge answers about images. You look"
    " closely at the image, you invent nothing that it does not show, and you answer with a single"
    " JSON object and nothing else."
)
VERSION = hashlib.sha256(json.dumps([SYSTEM, STAGES]).encode()).hexdigest()[:8]  # of the prompts
_NAME = re.compile(r"\w[\w.-]*")  # becomes a file's name in the exported folder

JsonObject = dict
Task = tuple[
    JsonObject, JsonObject
]  # a row, and what the generator is given about it, as plain JSON values


class BuildError(RuntimeError):
    """The generator does not answer; the message says why. Every answer is in the record."""


def load_seeds(name_or_path: str | Path = "general") -> list:
    """Read seed rubrics, which show a generator form and breadth.

    >>> len(load_seeds("general")), load_seeds("charts")[0]["area"]
    (50, 'reading off')

    Args:
        name_or_path: "general", "charts" or a .jsonl file.

    Returns:
        `id`, `area`, `criteria` and `descriptions` (lowest score first, equally many in all), in
        the file's order.

    Raises:
        CollectionError: the first row that is no sound seed. OSError: there is no such file.
    """
    path: Any = Path(name_or_path)
    if name_or_path in ("charts", "general"):
        path = ASSETS / "seeds" / f"{name_or_path}.jsonl"
    seeds: list = []
    for number, text in enumerate(path.read_text("utf-8-sig").splitlines(), start=1):
        try:
            seed = json.loads(text)
            rubric = Rubric(seed["criteria"], seed["descriptions"])
            if len(rubric.levels) != len((seeds or [seed])[0]["descriptions"]):
                raise ValueError("it has not as many descriptions as the first row")
            seeds.append(seed)
        except (ValueError, TypeError, LookupError) as error:
            raise CollectionError(
                f"{path}, row {number}: {error!r}; a seed is a JSON object with id, area, criteria"
                " and descriptions: correct the line"
            ) from error
    return seeds


@dataclass(frozen=True)
class Build:
    """A built collection and the account of how it came about.

    `rows` are canonical, one a response, of the `n_cases`
    instructions that have a response for every score; `n_incomplete` lack some. `log` has one row
    an answer: call, stage, try, fault (missing where it is kept), detail.
    """

    generator: str
    images: Mapping
    options: Mapping
    rows: list
    n_rubrics: int
    n_cases: int
    n_incomplete: int
    log: pd.DataFrame

    @property
    def balance(self) -> tuple[float, float]:
        """In which share of pairs the better of two responses to an instruction is the longer one,
        and the p of its test; see `vjudge.metrics.length_test`."""
        by_words = length_test(self.rows, n_resamples=0).loc["words"]
        return float(by_words["within"]), float(by_words["p"])

    def faults(self) -> pd.DataFrame:
        """Count what was wrong: one row for each of `KINDS`, one column a stage, and "all"."""
        table = pd.crosstab(self.log["fault"], self.log["stage"])
        table = table.reindex(index=list(faults.KINDS), columns=list(STAGES), fill_value=0)
        return table.assign(all=table.sum(axis=1))

    @analysis
    def caught(self, planted: Mapping[str, int] | None = None) -> Result:
        """Show which faults were found in the generator's answers.

        Args:
            planted: how many of a kind a scripted generator made, to compare.
        """
        table = self.faults()["all"].rename("found").rename_axis("fault").reset_index()
        if planted is not None:
            table.insert(1, "planted", [int(planted.get(kind, 0)) for kind in table["fault"]])
        table = table[table.iloc[:, 1:].sum(axis=1) > 0].reset_index(drop=True)
        return Result(
            table,
            name="build_faults",
            reading=_caught_reading(table, len(self.log)),
            caption=f"Faults in the answers of {self.generator}; a fault that was not planted is"
            " the generator's own",
            plot=partial(_draw_faults, table) if len(table) else None,
        )

    @analysis
    def diversity(self, seeds: str | Path = "general") -> Result:
        """Show how like a seed, and another rubric, each criterion is, in percent of characters.

        Args:
            seeds: as of `build`.
        """
        criteria = list({row["criteria"]: None for row in self.rows})
        if not criteria:
            raise NotComputed("nothing was built; see caught()")
        texts = list(map(faults.normal, criteria))
        seed_texts = [faults.normal(seed["criteria"]) for seed in load_seeds(seeds)]
        similarities = process.cdist(texts, texts, scorer=fuzz.ratio)
        np.fill_diagonal(similarities, -1)  # (N, N): a criterion is not its own neighbour
        table = pd.DataFrame({"criterion": criteria})
        table["closest seed"] = process.cdist(texts, seed_texts, scorer=fuzz.ratio).max(axis=1)
        table["closest other rubric"] = pd.Series(similarities.max(axis=1)).where(
            lambda percent: percent >= 0
        )
        nearest = table.iloc[:, 1:]
        n_near = int((nearest >= faults.NEAR).any(axis=1).sum())
        return Result(
            table,
            name="build_diversity",
            reading=f"Of {len(table)} criteria the closest to a seed is"
            f" {nearest.iloc[:, 0].max():.0f} % like it, the median"
            f" {nearest.iloc[:, 0].median():.0f} %; {n_near} reach"
            f" {faults.NEAR:.0f} %, from where on two are near duplicates.",
            caption="How like the closest seed, and the closest other rubric, each criterion is;"
            f" dashed: from {faults.NEAR:.0f} % on a criterion is rejected",
            plot=partial(_draw_diversity, nearest),
            view=table.sort_values("closest seed", ascending=False).round(0),
        )

    def export(
        self,
        folder: str | Path,
        *,
        name: str = "Built collection",
        license: str = "other",
    ) -> Path:
        """Write the collection as a folder for the hub, `load_collection` and `fine_tune`.

        Args:
            folder: a new or empty one. It gets README.md (the data card), images/ and
                train.parquet in the canonical columns.
            name: the collection's.
            license: the hub's identifier; images and generator may bind you.

        Returns:
            The folder. Where length predicts the score, a RuntimeWarning and the card say so.

        Raises:
            CollectionError: the folder holds something already, or there are no rows.
        """
        folder = Path(folder).expanduser()
        if folder.exists() and any(folder.iterdir()):
            raise CollectionError(f"{str(folder)!r} holds something already; give a new folder")
        validate(self.rows)
        share, p = self.balance
        lean = abs(share - 0.5) > TOLERATED_BALANCE and p < 0.05
        if lean:
            warnings.warn(
                f"the better of two responses to an instruction is the longer one in {share:.1%}"
                f" (p = {p:.2g}): a judge could score by length. Use another generator or a"
                " smaller tolerance",
                RuntimeWarning,
                stacklevel=2,
            )
        self._write_rows(folder)
        card = jinja2.Template((ASSETS / "card.md").read_text("utf-8")).render(
            build=self,
            name=name,
            license=license,
            share=share,
            p=p,
            lean=lean,
            faults=self.faults()["all"],
            kinds=faults.KINDS,
            prompts=VERSION,
        )
        (folder / "README.md").write_text(f"{card}\n", encoding="utf-8")
        return folder

    def _write_rows(self, folder: Path) -> None:
        """Write the rows, and each image once."""
        (folder / "images").mkdir(parents=True, exist_ok=True)
        rows = []
        for row in self.rows:
            path = f"images/{row['group']}.png"
            if not (folder / path).exists():
                open_image(row["images"][0]).save(folder / path)
            rows.append(row | {"images": [path]})
        pd.DataFrame(rows).to_parquet(folder / "train.parquet", index=False)


def _caught_reading(table: pd.DataFrame, n_answers: int) -> str:
    """How many answers were rejected, most often why, and whether planted faults were found."""
    if table.empty:
        return f"None of {n_answers:,} answers was rejected."
    worst = table.loc[table["found"].idxmax()]
    text = (
        f"{table['found'].sum():,} of {n_answers:,} answers were rejected, most often as"
        f" {worst['fault']!r} ({worst['found']})."
    )
    if "planted" not in table:
        return text
    missed = table[table["found"] < table["planted"]]
    if missed.empty:
        return f"{text} Every planted fault was found."
    listed = ", ".join(
        f"{row.fault!r} ({row.found} of {row.planted})" for row in missed.itertuples()
    )
    return f"{text} Fewer were found than planted of {listed}."


def _draw_faults(table: pd.DataFrame, **options: Any) -> Figure:
    """Bars of the faults that were found, beside those that were planted."""
    bars = table.set_index("fault").iloc[::-1, ::-1]
    with plots.page(**options) as paper:
        fig, ax = paper.subplots(0.9 + 0.28 * len(bars))
        bars.plot.barh(ax=ax, width=0.76, legend=False)
        for container in ax.containers:
            ax.bar_label(container, padding=2)
        if "planted" in table:
            ax.legend(reverse=True)  # as the bars stand
        ax.set(xlabel="answers", ylabel="")
        return paper.finish(fig)


def _draw_diversity(like: pd.DataFrame, **options: Any) -> Figure:
    """Histograms of likeness in percent, side by side."""
    with plots.page(**options) as paper:
        fig, panels = paper.panels(
            {name: like[name].dropna() for name in like},
            0.7,
            across="characters in the same order (%)",
            up="criteria",
            shared=False,
        )
        for ax, values in panels:
            ax.hist(values, bins=range(0, 101, 10))
            ax.axvline(faults.NEAR, color="black", ls="--", lw=0.8)
            ax.set_xlim(0, 100)
        return paper.finish(fig)


def build(
    images: Mapping,
    generator: Judge,
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
    progress: bool = True,
) -> Build:
    """Build a collection, or continue a build that was stopped.

    An answer is one JSON object, also after prose or in a fenced block. Servers and vLLM hold the
    generator to the stage's schema; elsewhere the wording has to suffice. Where no instruction got
    a response for every score, a RuntimeWarning counts why, and the result has no rows.

    Args:
        images: name -> what `vjudge.images.open_image` opens.
        generator: a `Judge` that reads images, such as `load_judge("openai:MODEL")`.
        out: the folder of the record, where the same call continues after any interruption.
        seeds: seed rubrics, see `load_seeds`.
        rubrics, instructions: of an image and of a rubric; 3 and 2 in Perception-Collection.
        tolerance: how far a response's length, by `data.n_words`, may lie from the reference
            answer's, as a share in (0, 1).
        tries: answers at most to one call: a rejected one is asked for again with the reason.
        temperature, max_new_tokens, seed: of the draws, as in `Judge.grade`.
        progress: whether to show a bar.

    Raises:
        CollectionError: unsound seeds, and all images that can't be used.
        ValueError: options.
        RunError: `out` holds another call's record.
        BuildError: the generator does not answer; the same call asks again.
    """
    options = {"rubrics": rubrics, "instructions": instructions, "tolerance": tolerance}
    options |= {"seed": seed, "tries": tries}
    options |= {"temperature": temperature, "max_new_tokens": max_new_tokens}
    _check(images, generator, options)
    stages = _Stages(
        generator, images, load_seeds(seeds), options, Path(out).expanduser(), progress
    )
    made = stages.make_rubrics()
    cases = stages.make_cases(made)
    rows = stages.make_responses(cases)
    n_cases = len(rows) // stages.n_levels
    log = pd.DataFrame(stages.log)
    if not rows:
        counts = log["fault"].value_counts().to_dict()
        warnings.warn(
            f"nothing was built: no instruction got a response for every score ({counts}). Use a"
            " generator that follows instructions (7 billion parameters or more), or raise"
            " max_new_tokens, tolerance or tries",
            RuntimeWarning,
            stacklevel=2,
        )
    n_incomplete = len(cases) - n_cases
    return Build(generator.name, images, options, rows, len(made), n_cases, n_incomplete, log)


def _check(images: Mapping, generator: Judge, options: JsonObject) -> None:
    """Refuse options and images that can't be used, before anything is asked."""
    if min(options["rubrics"], options["instructions"], options["tries"]) < 1:
        raise ValueError("rubrics, instructions, tries: use whole numbers from 1")
    if not 0 < options["tolerance"] < 1:
        raise ValueError(f"tolerance={options['tolerance']!r}: use a share in (0, 1)")
    if not isinstance(images, Mapping):
        raise ValueError(
            "images: give name -> picture, such as {path.name: path for path in paths}"
        )
    if not hasattr(generator, "template"):
        raise ValueError(f"generator: give a Judge, not a {type(generator).__name__}")
    if not generator.template.sees_images:
        raise ValueError("generator: every stage shows an image; give a Judge that reads them")
    problems = []
    for index, (name, source) in enumerate(images.items()):
        if not _NAME.fullmatch(name):
            remedy = "use letters, digits, _ - ."
            problems.append(Problem(index, name, "name", "is no plain file name", remedy))
        try:
            open_image(source)
        except ImageError as error:
            problems.append(Problem(index, name, "image", str(error), "repair it, or leave it out"))
    if problems or not images:
        raise CollectionError(f"{len(problems)} problems with {len(images)} images", problems)


@dataclass
class _Stages:
    """The stages that ask the generator; every answer is recorded before it is used, and counted.

    Whether one is kept follows from the answers alone, so that a build that was killed takes the
    same path again.
    """

    generator: Any
    images: Mapping
    seeds: Sequence
    options: JsonObject
    out: Path
    progress: bool

    def __post_init__(self) -> None:
        self.pictures = Pictures()
        self.n_levels = len(self.seeds[0]["descriptions"])
        self.n_waves = 0
        self.log: list = []
        # What was written so far, to find repetitions; texts as `faults.normal` gives them.
        self.criteria = {}
        for number, seed in enumerate(self.seeds, start=1):
            self.criteria[f"seed {number}"] = faults.normal(seed["criteria"])
        self.instructions: dict = {image: {} for image in self.images}
        self.texts: set = set()

    # -- rubrics: brainstorm criteria, refine them, keep those that are new and fit their image

    def make_rubrics(self) -> list:
        brainstorms: list = []
        for index, image in enumerate(self.images):
            rng = np.random.default_rng([self.options["seed"], index])
            drawn = rng.permutation(len(self.seeds))[:N_EXAMPLES]
            examples = [self.seeds[number] for number in drawn]
            task_input = {"number": self.options["rubrics"] + N_SPARE, "examples": examples}
            brainstorms.append(({"id": image, "group": image}, task_input))
        drafts: list = []
        for row in self.ask("brainstorm", brainstorms, self.read_ideas):
            drafts += row["tasks"]
        refined = self.ask("refine", drafts, self.read_rubric)
        fitting = self.ask("align", [(row, _rubric(row)) for row in refined], self.read_fit)
        rubrics = []
        for _, of_image in groupby(fitting, key=itemgetter("group")):
            rubrics += list(of_image)[: self.options["rubrics"]]
        return rubrics

    def read_ideas(self, row: JsonObject, given: JsonObject, answer: JsonObject) -> JsonObject:
        """The refinements to ask for."""
        tasks: list = []
        for number, idea in enumerate(answer["criteria"][: given["number"]]):
            bounds: JsonObject = {"lowest": 1, "highest": self.n_levels}
            bounds["draft"] = check_text("criteria", idea["criteria"])
            bounds["grounds"] = check_text("grounds", idea["grounds"])
            tasks.append(({"id": f"{row['id']}-r{number}", "group": row["group"]}, bounds))
        return {"tasks": tasks}

    def read_rubric(self, row: JsonObject, given: JsonObject, answer: JsonObject) -> JsonObject:
        text = check_text("criteria", answer["criteria"])
        levels = [check_text("descriptions", level) for level in answer["descriptions"]]
        if len(levels) != self.n_levels or len(set(levels)) != self.n_levels:
            requirement = f"{self.n_levels} descriptions, all different"
            raise Fault(
                "wrong form", f"not {requirement}, but {levels!r}"[:200], f"it needs {requirement}."
            )
        clash = faults.near_duplicate(text, self.criteria)
        if clash:
            raise replace(clash, note="")  # another wording of it would not be new, either
        self.criteria[row["id"]] = faults.normal(text)
        return {"criteria": text, "descriptions": levels}

    def read_fit(self, row: JsonObject, given: JsonObject, answer: JsonObject) -> JsonObject:
        reason = check_text("reason", answer["reason"])
        if not answer["judgeable"]:
            raise Fault("not judgeable", f"{row['criteria'][:60]!r}: {reason[:120]}")
        return {}

    # -- instructions with reference answers for each rubric, all different within an image

    def make_cases(self, rubrics: Sequence) -> list:
        cases: list = []
        for number in range(self.options["instructions"]):
            tasks: list = []
            for row in rubrics:
                earlier = [case["instruction"] for case in cases if case["group"] == row["group"]]
                task_input = _rubric(row) | {"earlier": earlier} | REFERENCE_LENGTH
                tasks.append((row | {"id": f"{row['id']}-i{number}"}, task_input))
            cases += self.ask("instruction", tasks, self.read_case)
        return cases

    def read_case(self, row: JsonObject, given: JsonObject, answer: JsonObject) -> JsonObject:
        scores = range(1, self.n_levels + 1)
        instruction = check_text("instruction", answer["instruction"], scores)
        reference = check_text("reference_answer", answer["reference_answer"], scores[-1:])
        check_length("reference_answer", reference, given)
        earlier = self.instructions[row["group"]]
        clash = faults.near_duplicate(instruction, earlier, SIMILAR_INSTRUCTION)
        if clash:
            raise replace(clash, kind="repetition")
        earlier[row["id"]] = faults.normal(instruction)
        self.texts.add(faults.normal(reference))
        return {"instruction": instruction, "reference_answer": reference}

    # -- a response and feedback for each score of each case, alike in length

    def make_responses(self, cases: Sequence) -> list:
        """The responses of the cases that have one for every score."""
        tasks: list = []
        for case in cases:
            length = n_words(case["reference_answer"])
            slack = max(1, int(length * self.options["tolerance"]))
            images = [self.images[case["group"]]]
            task_input = _rubric(case) | {
                "instruction": case["instruction"],
                "reference_answer": case["reference_answer"],
                "length": length,
                "least": length - slack,
                "most": length + slack,
            }
            for score in range(1, self.n_levels + 1):
                cells = {"id": f"{case['id']}-s{score}", "gold": float(score), "images": images}
                tasks.append((case | cells, task_input | {"score": score}))
        accepted = self.ask("response", tasks, self.read_response)
        n_kept = Counter(map(_case_of, accepted))
        return [row for row in accepted if n_kept[_case_of(row)] == self.n_levels]

    def read_response(self, row: JsonObject, given: JsonObject, answer: JsonObject) -> JsonObject:
        response = check_text("response", answer["response"], (given["score"],))
        check_length("response", response, given)
        feedback = faults.check_feedback(answer["feedback"], given["score"])
        new_texts = {faults.normal(response), f"feedback {faults.normal(feedback)}"}
        if new_texts & self.texts:
            detail = f"{response[:60]!r} or its feedback stands elsewhere"
            raise Fault("repetition", detail, "it repeated a text.")
        self.texts |= new_texts
        return {"response": response, "feedback": feedback}

    # -- asking

    def ask(self, stage: str, tasks: Sequence, read: Callable) -> list:
        """Ask, try by try: each row with what `read` makes of its answer, if one is kept.

        `read` takes the row, what was given and the answer.
        """
        results: dict = {}
        notes = {row["id"]: "" for row, _ in tasks}  # of the calls that are still open
        for number in range(self.options["tries"]):
            wave = [task for task in tasks if task[0]["id"] in notes]
            records = self._answers(stage, wave, number, notes) if wave else []
            for (row, task_input), record in zip(wave, records, strict=True):
                entry = {"call": f"{stage}/{row['id']}", "stage": stage, "try": number}
                entry |= {"fault": None, "detail": None}
                del notes[row["id"]]
                try:
                    answer = faults.read_answer(record, STAGES[stage]["schema"])
                    results[row["id"]] = row | read(row, task_input, answer)
                except Fault as fault:
                    entry |= {"fault": fault.kind, "detail": fault.detail}
                    if fault.note:
                        notes[row["id"]] = fault.note
                self.log.append(entry)
        return [results[row["id"]] for row, _ in tasks if row["id"] in results]

    def _answers(self, stage: str, wave: Sequence, number: int, notes: JsonObject) -> list:
        """The answers to a wave of calls, each from its record where it was asked before."""
        conversation = replace(self.generator.template.conversation, system=SYSTEM)
        questions = []
        pictures: Any = []
        for index, (row, task_input) in enumerate(wave):
            prompt = conversation.wrap(task_text(stage, task_input, note=notes[row["id"]]), 1)
            questions.append(Question(index, row["id"], prompt, number))
            pictures.append([self.pictures(self.images[row["group"]])])
        ask = Ask(
            seeds=[question.seed(self.options["seed"]) for question in questions],
            schemas=[STAGES[stage]["schema"]] * len(wave),
            temperature=self.options["temperature"],
            top_p=0.95,
            max_new_tokens=self.options["max_new_tokens"],
        )
        self.n_waves += 1
        records = collect(
            self.generator.engine,
            questions,
            pictures,
            ask,
            _record,
            {"options": self.options, "prompts": VERSION, "note": {}},
            out=self.out / f"{self.n_waves:02d}-{stage}",
            progress=self.progress,
        )
        silent = Counter(record["failure"] for record in records if record["transient"])
        if silent:
            raise BuildError(
                f"{silent.total()} calls of the stage {stage!r} got no answer: {dict(silent)}."
                f" Everything else is in {self.out}: repeat the call to ask for them again, or"
                " leave their images out"
            )
        return records


def _record(answer: Answer, _: Question) -> JsonObject:
    """What is kept of an answer."""
    return {
        "text": answer.text,
        "failure": answer.failure,
        "finish": answer.finish,
        "transient": answer.transient,
    }


def task_text(stage: str, given: Mapping, *, note: str = "") -> str:
    """The user's turn: what is asked about what is given, and why an answer was rejected."""
    task = " ".join(STAGES[stage]["task"])
    input_text = json.dumps(given, ensure_ascii=False, indent=1)
    form = f"Answer with one JSON object of this form and nothing else:\n{STAGES[stage]['sample']}"
    text = f"Task: {stage}\n\n{task}\n\nInput:\n{input_text}\n\n{form}"
    if note:
        text += f"\n\nAn answer to this was rejected: {note} Give another one that avoids this."
    return text


def _case_of(row: JsonObject) -> str:
    """The id of a response's case."""
    return str(row["id"].rpartition("-")[0])


def _rubric(row: JsonObject) -> JsonObject:
    """A row's rubric as the generator is given it."""
    levels = {str(score): text for score, text in enumerate(row["descriptions"], start=1)}
    return {"criteria": row["criteria"], "descriptions": levels}
