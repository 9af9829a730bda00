"""build: images, seed rubrics and a generator -> a collection of responses with scores and feedback."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from vjudge.builder.ask import KEYS, BuildError
from vjudge.builder.export import Build
from vjudge.builder.prompts import STAGES, load_seeds
from vjudge.builder.stages import REFERENCE_LENGTH, Stages
from vjudge.data import CollectionError, Problem
from vjudge.engines import Ask, Engine
from vjudge.engines.engine import say, whole
from vjudge.images import ImageError, fingerprint, open_image
from vjudge.prompts import MESSAGES, Conversation
from vjudge.runs import Run

IMAGE_TOKENS = 800  # what a generator counts for an image, for the estimate
_NAME = re.compile(r"\w[\w.-]*(?:/\w[\w.-]*)*")  # becomes a file's name in the exported folder


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
