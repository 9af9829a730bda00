"""build: images, seed rubrics and a generator -> a `Build`: rows, counts of what was wrong, a folder for the hub."""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import datasets
import huggingface_hub
import pandas as pd

from vjudge import __version__, prompts
from vjudge.builder.faults import KINDS
from vjudge.builder.prompts import STAGES, load_seeds
from vjudge.builder.stages import KEYS, LEAN, NEAR, REFERENCE_LENGTH, Balance, BuildError, Case, Stages
from vjudge.data import CollectionError, Problem, canonical, validate
from vjudge.engines import Ask, Engine
from vjudge.engines.engine import say, whole
from vjudge.images import ImageError, fingerprint, open_image
from vjudge.prompts import MESSAGES, TEMPLATES, Conversation
from vjudge.records import Item
from vjudge.runs import Run

IMAGE_TOKENS = 800  # what a generator counts for an image, for the estimate
_NAME = re.compile(r"\w[\w.-]*(?:/\w[\w.-]*)*")  # becomes a file's name in the exported folder


@dataclass(frozen=True)
class Build:
    """A built collection and the account of how it came about.

    `cases` have a response for every score and are exported, `incomplete` ones lack some. `log` has one row an answer,
    and one for what a check across calls took out: call, stage, image, try, fault (missing where kept), detail.
    """

    generator: str
    images: Mapping[str, Any]
    options: Mapping[str, Any]
    cases: tuple[Case, ...]
    incomplete: tuple[Case, ...]
    n_rubrics: int
    log: pd.DataFrame
    balance: Balance

    def rows(self) -> list[dict[str, Any]]:
        """The collection's rows, one a response, by image, rubric, instruction and score, in the canonical columns."""
        return [
            {
                "id": f"{case.id}-s{score}", "images": [self.images[case.image]], "instruction": case.instruction,
                "response": case.responses[score]["response"], "reference_answer": case.reference,
                "criteria": case.rubric.criteria, "descriptions": list(case.rubric.descriptions),
                "gold": float(score), "feedback": case.responses[score]["feedback"], "group": case.image,
            }
            for case in self.cases
            for score in case.rubric.scores
        ]  # fmt: skip

    def items(self) -> datasets.Dataset:
        """The collection as `load_collection` gives it."""
        return canonical(self.rows())

    def faults(self) -> pd.DataFrame:
        """Count everything that was wrong: one row for each of `KINDS`, one column a stage, and "all"."""
        table = pd.crosstab(self.log["fault"], self.log["stage"])
        table = table.reindex(index=list(KINDS), columns=list(STAGES), fill_value=0)
        return table.assign(all=table.sum(axis=1)).rename_axis(index="fault", columns="stage")

    def counts(self) -> pd.DataFrame:
        """What the stages came to: calls, answers to them, calls that were given up; one row a stage."""
        answers = self.log[self.log["try"].notna()]
        calls = answers.assign(kept=answers["fault"].isna()).groupby(["stage", "call"])["kept"].agg(["size", "any"])
        of_stage = calls.groupby("stage")
        table = pd.DataFrame({"calls": of_stage.size(), "answers": of_stage["size"].sum()})
        table["given_up"] = table["calls"] - of_stage["any"].sum()
        return table.reindex(list(STAGES), fill_value=0).rename_axis("stage")

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
            folder: new or empty; it gets README.md (the data card), images/ and train.parquet, see `published_row`.
            name, license, note: for the card; the licence by the hub's identifiers: images and generator may bind you.
            allow_imbalance: export although lengths lean towards the scores; the card says so.

        Raises:
            CollectionError: lengths that lean; rows that fail `vjudge.data.validate`; a folder that holds something.
        """
        if self.balance.lean and not allow_imbalance:
            raise CollectionError(
                f"not exported: {self.balance}, so that a judge could score by length. Use another generator or a"
                " smaller tolerance, or allow_imbalance=True to export it with that said in its card"
            )
        folder = Path(folder)
        if folder.exists() and any(folder.iterdir()):
            raise CollectionError(f"{str(folder)!r} holds something already; give a new folder")
        rows = self.rows()
        validate(rows)
        paths = {}
        for image in {case.image: None for case in self.cases}:
            source = self.images[image]
            is_file = isinstance(source, (str, Path)) and not str(source).startswith("data:")
            path = paths[image] = f"images/{image}{Path(source).suffix if is_file else '.png'}"
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            if is_file:
                shutil.copyfile(source, folder / path)
            else:
                open_image(source).save(folder / path)
        table = datasets.Dataset.from_list([published_row(row, paths[row["group"]]) for row in rows])
        table.to_parquet(str(folder / "train.parquet"))
        (folder / "README.md").write_text(self._card(rows, name, license, note), encoding="utf-8")
        return folder

    def _card(self, rows: list[dict[str, Any]], name: str, license: str, note: str) -> str:
        """The data card: the hub's YAML, what is in the collection, and everything that was wrong and kept out."""
        head = huggingface_hub.DatasetCardData(
            pretty_name=name,
            license=license,
            task_categories=["image-text-to-text"],
            tags=["llm-as-a-judge", "rubric", "feedback", "synthetic"],
            configs=[{"config_name": "default", "data_files": [{"split": "train", "path": "train.parquet"}]}],
        )
        words = pd.Series([len(row["response"].split()) for row in rows]).groupby([row["gold"] for row in rows]).mean()
        faults, counts = self.faults()["all"], self.counts().sum()
        template = (resources.files("vjudge") / "assets" / "card.md").read_text("utf-8")
        return template.format(
            build=self,
            head=head.to_yaml(),
            name=name,
            note=f"\n{note}\n" if note else "",
            version=__version__,
            n_shown=len({case.image for case in self.cases}),
            n_images=len(self.images),
            n_cases=len(self.cases),
            n_rows=len(rows),
            n_incomplete=len(self.incomplete),
            least=0.5 - LEAN,
            most=0.5 + LEAN,
            lean=" **It is exceeded and was exported on request.**" if self.balance.lean else "",
            words=", ".join(f"{score:g}: {mean:.1f}" for score, mean in words.items()),
            counts=counts,
            near=NEAR,
            faults="\n".join(f"- {kind}: {faults[kind]} ({meaning})" for kind, meaning in KINDS.items()),
            prompts=", ".join(stage.version for stage in STAGES.values()),
            options=", ".join(f"{option} {value}" for option, value in self.options.items()),
        )


def build(
    images: Mapping[str, Any] | Iterable[str | Path],
    generator: Any,
    *,
    out: str | Path,
    seeds: str | Path | Sequence[Mapping[str, Any]] = "general",
    rubrics: int = 3,
    instructions: int = 2,
    unit: str = "words",
    tolerance: float = 0.15,
    tries: int = 3,
    temperature: float = 1.0,
    max_new_tokens: int = 1024,
    seed: int = 0,
    price: tuple[float, float] | None = None,
    skip_unanswered: bool = False,
    progress: bool = True,
) -> Build:
    """Build a collection, or continue a build that was stopped.

    Args:
        images: name -> what `vjudge.images.open_image` opens, or paths, whose stems are the names.
        generator: a `Judge`, such as `load_judge("openai:MODEL")`, or an engine that takes messages.
        out: the folder of the record, where the same call continues after any interruption.
        seeds: the name or path of a seed file (`load_seeds`), or its rows.
        rubrics, instructions: of an image and of a rubric; 3 and 2 in Perception-Collection.
        unit: of lengths: "words", or "characters" for scripts without spaces.
        tolerance: how far a response's length may lie from the reference answer's, as a share of it.
        tries: answers at most to one call: a rejected one is asked for again with the reason.
        temperature, max_new_tokens: of the generator, as in `Judge.grade`.
        seed: of the draws.
        price: for a million prompt tokens and a million new ones, for the estimate.
        skip_unanswered: go on without calls that the generator does not answer, and count them.
        progress: whether to show the estimate and progress bars.

    Returns:
        The collection, and the account of how it was made.

    Raises:
        CollectionError: unsound seeds; images that can't be opened, or two that are the same; all of them.
        ValueError: an unsound option; a generator that reads no images.
        BuildError: the generator does not answer, or no answer to a stage could be kept, with the counts by reason.
        RunError: `out` can't be used, or holds the record of a call that differs.

    Source: Prometheus-Vision (arXiv 2401.06591), section on Perception-Collection, for the counts.
    """
    options: dict[str, Any] = {"rubrics": rubrics, "instructions": instructions, "unit": unit, "tolerance": tolerance}
    options |= {"seed": seed, "tries": tries, "temperature": temperature, "max_new_tokens": max_new_tokens}
    wrong = Ask(temperature=temperature, max_new_tokens=max_new_tokens).check()
    least = {"rubrics": 1, "instructions": 1, "tries": 1, "seed": 0}
    wrong += [f"{n}={options[n]!r}: use a whole number from {k}" for n, k in least.items() if not whole(options[n], k)]
    if not 0 < tolerance < 1:
        wrong.append(f"tolerance={tolerance!r}: use a share between 0 and 1")
    if unit not in REFERENCE_LENGTH:
        wrong.append(f"unit={unit!r}: use one of {', '.join(REFERENCE_LENGTH)}")
    if wrong:
        raise ValueError("; ".join(wrong))
    rows = load_seeds(seeds) if isinstance(seeds, (str, Path)) else [*seeds]
    pictures, prints = _pictures(images)
    engine, conversation, name = _generator(generator)
    versions = {stage.name: stage.version for stage in STAGES.values()}
    manifest = {"kind": "collection build", "generator": name, "engine": engine.identity(), "options": options}
    manifest |= {"prompts": versions, "seeds": hashlib.sha256(json.dumps(rows).encode()).hexdigest(), "images": prints}
    counts = {"rubrics": rubrics, "instructions": instructions, "n_levels": len(rows[0]["descriptions"])}
    total = estimate(len(pictures), **counts, price=price).loc["all"]
    if progress:
        money = "" if price is None else f", {total['price']:.2f} at the given price"
        say(f"{len(pictures)} images: at least {total['calls']:.0f} calls, {total['new_tokens']:.0f} new tokens{money}")
    with Run(out, keys=KEYS).open(manifest, expected=int(total["calls"])) as run:
        stages = Stages(engine, conversation, pictures, run, options, skip_unanswered, progress, rows)
        entries = stages.make_rubrics()
        cases = stages.make_cases(entries)
        stages.make_responses(cases)
    complete = tuple(case for case in cases if case.complete)
    incomplete, n_rubrics = tuple(case for case in cases if not case.complete), sum(map(len, entries.values()))
    log, balance = pd.DataFrame(stages.log), stages.balance(complete)
    built = Build(name, pictures, options, complete, incomplete, n_rubrics, log, balance)
    if not complete:
        counts, rejected = built.faults()["all"].sort_values(ascending=False), built.log.dropna(subset=["fault"])
        stage = max(built.log["stage"], key=[*STAGES].index)
        reasons = ", ".join(f"{kind} {n}" for kind, n in counts.items() if n)
        raise BuildError(
            f"nothing was built: no instruction got a response for every score, and the build ended at {stage!r}. What"
            f" was wrong, by count: {reasons}. The last: {rejected['detail'].iloc[-1]}. The answers are in {run.path}:"
            " read some there. Use a generator that follows instructions (7 billion parameters or more), raise"
            " max_new_tokens where answers were cut off, tolerance where lengths were missed, or tries; a changed call"
            " needs another folder"
        )
    return built


def estimate(
    n_images: int,
    *,
    rubrics: int = 3,
    instructions: int = 2,
    n_levels: int = 5,
    price: tuple[float, float] | None = None,
) -> pd.DataFrame:
    """Estimate what a build of so many images takes where nothing is rejected.

    Args:
        rubrics, instructions, price: as in `build`.
        n_levels: scores of a rubric.

    Returns:
        One row a stage, and "all": calls; prompt_tokens and new_tokens, roughly, with 800 for an image; price, NaN
        without one.

    >>> int(estimate(5000, price=(2.5, 10.0)).loc["all", "calls"])
    215000
    """
    n_rubrics, n_cases = n_images * rubrics, n_images * rubrics * instructions
    table = pd.DataFrame({"calls": [n_images, n_rubrics, n_rubrics, n_cases, n_cases * n_levels]}, index=list(STAGES))
    table["prompt_tokens"] = table["calls"] * [stage.tokens[0] + IMAGE_TOKENS for stage in STAGES.values()]
    table["new_tokens"] = table["calls"] * [stage.tokens[1] for stage in STAGES.values()]
    cost = (math.nan, math.nan) if price is None else price
    table["price"] = (table["prompt_tokens"] * cost[0] + table["new_tokens"] * cost[1]) / 1e6
    table.loc["all"] = table.sum(min_count=1)
    return table.rename_axis("stage")


def published_row(row: Mapping[str, Any], image: str) -> dict[str, Any]:
    """A row in Perception-Collection's columns.

    Args:
        row: of `Build.rows`, or any canonical row with a rubric, gold and feedback.
        image: what its `image` column says.

    Returns:
        `image`, `instruction` (the judge's whole prompt), `output` (the training target), `orig_*`, `id` and `group`.

    Source: kaist-ai/Perception-Collection; the target of prometheus-vision's sample_train_data.json.
    """
    item, score = Item.from_row({**row, "images": []}), int(row["gold"])
    fields = ("instruction", "response", "reference_answer", "criteria")
    return {
        "image": image,
        "instruction": TEMPLATES["prometheus-vision"].as_messages().render(item).text,
        "output": prompts.target(row["feedback"], score),
        **{f"orig_{field}": row[field] for field in fields},
        **{f"orig_score{n}_description": text for n, text in enumerate(row["descriptions"], start=1)},
        "orig_feedback": row["feedback"],
        "orig_score": score,
        "id": row["id"],
        "group": row["group"],
    }


def _pictures(images: Mapping[str, Any] | Iterable[str | Path]) -> tuple[dict[str, Any], dict[str, str]]:
    """Images and their fingerprints by name, all of them opened once."""
    if not isinstance(images, Mapping):
        paths = [Path(path) for path in images]
        images = {path.stem: path for path in paths}
        if len(images) < len(paths):
            raise CollectionError("two images have the same file name: give names yourself, as {name: path}")
    problems: list[Problem] = []
    names: dict[str, str] = {}  # by fingerprint
    for index, (name, source) in enumerate(images.items()):
        if not _NAME.fullmatch(name):
            problems.append(Problem(index, name, "name", "is no plain file name", "use letters, digits, _ - . only"))
        try:
            first = names.setdefault(fingerprint(open_image(source)), name)
        except ImageError as error:
            what, _, remedy = str(error).rpartition("; ")
            problems.append(Problem(index, name, "image", what, remedy))
        else:
            if first != name:
                problems.append(Problem(index, name, "image", f"shows the same as {first!r}", "leave it out"))
    if problems or not names:
        what = f"{len(problems)} problems with {len(images)} images" if images else "no images"
        raise CollectionError(what, problems)
    return dict(images), {name: key for key, name in names.items()}


def _generator(generator: Any) -> tuple[Engine, Conversation, str]:
    """The engine, its conversation and its name."""
    if isinstance(generator, Engine):
        return generator, MESSAGES, str(getattr(generator, "model", generator.name))
    if not all(hasattr(generator, name) for name in ("engine", "template", "name")):
        raise ValueError(f"generator is a {type(generator).__name__}: give a Judge, from load_judge")
    if not generator.template.sees_images:
        raise ValueError(f"generator {generator.name!r} reads no images, and every stage shows one")
    return generator.engine, generator.template.conversation, generator.name
