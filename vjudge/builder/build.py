"""build: images, seed rubrics and a generator -> a collection of responses with scores and feedback."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import datasets
import pandas as pd

from vjudge.builder.ask import KEYS, Asker, BuildError
from vjudge.builder.faults import KINDS
from vjudge.builder.prompts import STAGES, load_seeds
from vjudge.builder.stages import REFERENCE_LENGTH, Balance, Case, Stages
from vjudge.data import CollectionError, Problem, canonical
from vjudge.engines import Engine
from vjudge.engines.engine import say, whole
from vjudge.images import ImageError, fingerprint, open_image
from vjudge.prompts import MESSAGES, Conversation
from vjudge.runs import Run

IMAGE_TOKENS = 800  # what a generator counts for an image, for the estimate
TOP_P = 0.95
_NAME = re.compile(r"\w[\w.-]*(?:/\w[\w.-]*)*")  # becomes a file's name in the exported folder


@dataclass(frozen=True)
class Build:
    """A built collection and the account of how it came about.

    Args:
        generator: the model's name.
        images: name -> what `open_image` opens.
        options: what `build` was given.
        cases: instructions with a response for every score: what is exported.
        incomplete: instructions for which some score's response was given up; they are left out whole, so that every
            score is equally common.
        n_rubrics: kept.
        log: one row an answer, and one for what a check across calls took out: call, stage, image, try, fault (missing
            where it was kept), detail.
        silences: (stage, reason) -> requests without an answer.
        repeated: reason -> requests that the engine itself repeated.
        balance: whether the better of two responses to an instruction is the longer one.
    """

    generator: str
    images: Mapping[str, Any]
    options: Mapping[str, Any]
    cases: tuple[Case, ...]
    incomplete: tuple[Case, ...]
    n_rubrics: int
    log: pd.DataFrame
    silences: Counter[tuple[str, str]]
    repeated: Counter[str]
    balance: Balance

    def rows(self) -> list[dict[str, Any]]:
        """The collection's rows, one a response, by image, rubric, instruction and score, in the canonical columns."""
        return [
            {
                "id": f"{case.id}-s{score}",
                "images": [self.images[case.image]],
                "instruction": case.instruction,
                "response": made.response,
                "reference_answer": case.reference,
                "criteria": case.rubric.criteria,
                "descriptions": list(case.rubric.descriptions),
                "gold": float(score),
                "feedback": made.feedback,
                "group": case.image,
            }
            for case in self.cases
            for score, made in sorted(case.responses.items())
        ]

    def items(self) -> datasets.Dataset:
        """The collection as `load_collection` gives it."""
        return canonical(self.rows())

    def faults(self) -> pd.DataFrame:
        """Count everything that was wrong: one row for each of `KINDS`, one column a stage, and "all"."""
        table = pd.crosstab(self.log["fault"], self.log["stage"])
        table = table.reindex(index=list(KINDS), columns=list(STAGES), fill_value=0)
        for (stage, _), n in self.silences.items():
            table.loc["no answer", stage] += n
        return table.assign(all=table.sum(axis=1)).rename_axis(index="fault", columns="stage")

    def counts(self) -> pd.DataFrame:
        """What the stages came to: calls, answers to them, calls that were given up; one row a stage."""
        answers = self.log[self.log["try"].notna()]
        of_stage = answers.groupby("stage")
        table = pd.DataFrame({"calls": of_stage["call"].nunique(), "answers": of_stage.size()})
        kept = answers[answers["fault"].isna()].groupby("stage")["call"].nunique()
        table["given_up"] = table["calls"] - kept.reindex(table.index, fill_value=0)
        return table.reindex(list(STAGES), fill_value=0).rename_axis("stage")

    def export(self, folder: str | Path, **options: Any) -> Path:
        """Write the collection as a folder for the hub; see `vjudge.builder.export`."""
        from vjudge.builder.export import export

        return export(self, folder, **options)


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
        generator: a `Judge`, from `load_judge("openai:MODEL")` or any vision-language model that it loads; only its
            engine and its conversation are used. Or an engine that takes messages.
        out: the folder of the record. The same call continues there after any interruption and ends in the same
            collection; a call that differs in anything that matters is refused.
        seeds: the name or path of a seed file (`load_seeds`), or its rows.
        rubrics: an image's; Perception-Collection has 3.
        instructions: a rubric's; Perception-Collection has 2, so that an image has 6 instructions and 30 responses.
        unit: of lengths: "words", split at white space, or "characters", for scripts without spaces.
        tolerance: how far a response's length may lie from the reference answer's, as a share of it, whatever its
            score.
        tries: answers at most to one call: a rejected one is asked for again with the reason, the last rejection gives
            the call up. Also how often a request without an answer is put to the generator in one run.
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
        BuildError: the generator does not answer, or no answer to a stage could be kept, with the counts by reason;
            what it did answer is recorded.
        RunError: `out` can't be used.

    Source: Prometheus-Vision (arXiv 2401.06591), section on Perception-Collection, for the counts.
    """
    size = {"rubrics": rubrics, "instructions": instructions, "unit": unit, "tolerance": tolerance, "seed": seed}
    decoding = {"temperature": temperature, "max_new_tokens": max_new_tokens}
    options = {**size, "tries": tries, **decoding}
    _check(options)
    rows = load_seeds(seeds) if isinstance(seeds, (str, Path)) else [*seeds]
    pictures, prints = _pictures(images)
    engine, conversation, name = _generator(generator)
    manifest = {
        "kind": "collection build",
        "generator": name,
        "engine": engine.identity(),
        "options": options,
        "prompts": {stage.name: stage.version for stage in STAGES.values()},
        "seeds": hashlib.sha256(json.dumps(rows).encode()).hexdigest(),
        "images": prints,
    }
    n_levels = len(rows[0]["descriptions"])
    plan = estimate(len(pictures), rubrics=rubrics, instructions=instructions, n_levels=n_levels, price=price)
    total = plan.loc["all"]
    if progress:
        money = "" if price is None else f", {total['price']:.2f} at the given price"
        say(f"{len(pictures)} images: at least {total['calls']:.0f} calls, {total['new_tokens']:.0f} new tokens{money}")
    with Run(out, keys=KEYS).open(manifest, expected=int(total["calls"])) as run:
        asker = Asker(
            engine,
            conversation,
            name=name,
            images=pictures,
            run=run,
            tries=tries,
            seed=seed,
            decoding={**decoding, "top_p": TOP_P},
            skip_unanswered=skip_unanswered,
            progress=progress,
        )
        stages = Stages(asker=asker, seeds=rows, **size)  # type: ignore[arg-type]
        kept = stages.make_rubrics()
        cases = stages.make_cases(kept)
        stages.make_responses(cases)
    complete = tuple(case for case in cases if case.complete)
    built = Build(
        generator=name,
        images=pictures,
        options=options,
        cases=complete,
        incomplete=tuple(case for case in cases if not case.complete),
        n_rubrics=sum(map(len, kept.values())),
        log=pd.DataFrame(asker.log),
        silences=asker.silences,
        repeated=asker.repeated,
        balance=stages.balance(complete),
    )
    if not complete:
        raise BuildError(_why_empty(built, run.path))
    return built


def estimate(
    n_images: int,
    *,
    rubrics: int = 3,
    instructions: int = 2,
    n_levels: int = 5,
    price: tuple[float, float] | None = None,
) -> pd.DataFrame:
    """Estimate what a build takes where nothing is rejected.

    Args:
        n_images: how many.
        rubrics, instructions, price: as in `build`.
        n_levels: scores of a rubric.

    Returns:
        One row a stage, and "all": calls; prompt_tokens and new_tokens, roughly, with 800 for an image; price, NaN
        without one.

    >>> int(estimate(5000, price=(2.5, 10.0)).loc["all", "calls"])
    215000
    """
    of_rubrics = n_images * rubrics
    calls = [n_images, of_rubrics, of_rubrics, of_rubrics * instructions, of_rubrics * instructions * n_levels]
    table = pd.DataFrame({"calls": calls}, index=pd.Index(STAGES, name="stage"))
    table["prompt_tokens"] = [n * (s.tokens[0] + IMAGE_TOKENS) for n, s in zip(calls, STAGES.values(), strict=True)]
    table["new_tokens"] = [n * s.tokens[1] for n, s in zip(calls, STAGES.values(), strict=True)]
    cost = math.nan if price is None else table["prompt_tokens"] * price[0] / 1e6 + table["new_tokens"] * price[1] / 1e6
    table["price"] = cost
    table.loc["all"] = table.sum(min_count=1)
    return table


def _why_empty(built: Build, path: Path) -> str:
    """Where a build that made nothing came to its end, what was wrong, and what to do."""
    counts, faults = built.counts(), built.faults()
    stage = next(name for name in reversed(STAGES) if counts.at[name, "calls"] or faults[name].any())
    reasons = ", ".join(f"{kind} {n}" for kind, n in faults["all"].sort_values(ascending=False).items() if n)
    rejected = built.log.dropna(subset=["fault"])
    last = f" The last: {rejected['detail'].iloc[-1]}." if len(rejected) else ""
    return (
        f"nothing was built: no instruction got a response for every score, and the build ended at {stage!r}. What was"
        f" wrong, by count: {reasons}.{last} The answers are in {path}: read some there. Use a generator that follows"
        " instructions (7 billion parameters or more), raise max_new_tokens where answers were cut off, tolerance where"
        " lengths were missed, or tries; a changed call needs another folder"
    )


def _check(options: Mapping[str, Any]) -> None:
    """Refuse unsound options, all of them at once."""
    least = {"rubrics": 1, "instructions": 1, "tries": 1, "max_new_tokens": 1, "seed": 0}
    wrong = [
        f"{n}={options[n]!r}: use a whole number from {low}" for n, low in least.items() if not whole(options[n], low)
    ]
    if not 0 < options["tolerance"] < 1:
        wrong.append(f"tolerance={options['tolerance']!r}: use a share between 0 and 1")
    if options["unit"] not in REFERENCE_LENGTH:
        wrong.append(f"unit={options['unit']!r}: use one of {', '.join(REFERENCE_LENGTH)}")
    if not 0 <= options["temperature"] < math.inf:
        wrong.append(f"temperature={options['temperature']!r}: use 0 or more")
    if wrong:
        raise ValueError("; ".join(wrong))


def _pictures(images: Mapping[str, Any] | Iterable[str | Path]) -> tuple[dict[str, Any], dict[str, str]]:
    """Images and their fingerprints by name, all of them opened once."""
    if not isinstance(images, Mapping):
        paths = [Path(path) for path in images]
        images = {path.stem: path for path in paths}
        if len(images) < len(paths):
            raise CollectionError("two images have the same file name: give names yourself, as {name: path}")
    problems: list[Problem] = []
    prints: dict[str, str] = {}
    first: dict[str, str] = {}
    for index, (name, source) in enumerate(images.items()):
        if not _NAME.fullmatch(name):
            problems.append(Problem(index, name, "name", "is no plain file name", "use letters, digits, _ - . only"))
        try:
            prints[name] = fingerprint(open_image(source))
        except ImageError as error:
            what, _, remedy = str(error).rpartition("; ")
            problems.append(Problem(index, name, "image", what, remedy))
            continue
        if first.setdefault(prints[name], name) != name:
            problems.append(Problem(index, name, "image", f"shows the same as {first[prints[name]]!r}", "leave it out"))
    if problems or not prints:
        what = f"{len(problems)} of {len(images)} images can't be used" if problems else "no images"
        raise CollectionError(what, problems)
    return dict(images), prints


def _generator(generator: Any) -> tuple[Engine, Conversation, str]:
    """The engine, its conversation and its name."""
    if isinstance(generator, Engine):
        return generator, MESSAGES, str(getattr(generator, "model", generator.name))
    if not all(hasattr(generator, name) for name in ("engine", "template", "name")):
        raise ValueError(f"generator is a {type(generator).__name__}: give a Judge, from load_judge")
    if not generator.template.sees_images:
        raise ValueError(f"generator {generator.name!r} reads no images, and every stage shows one")
    return generator.engine, generator.template.conversation, generator.name
