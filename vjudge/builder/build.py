"""build: images, seed rubrics and a generator -> rubrics, instructions, responses with feedback.

Source: the four stages of Perception-Collection (arXiv 2401.06591): seeds; brainstorming and
refining rubrics; an instruction and a reference answer; a response and feedback for each score.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from vjudge.builder.built import Build
from vjudge.builder.stages import JsonObject, Stages, load_seeds
from vjudge.data import CollectionError, Problem
from vjudge.data.notes import warn
from vjudge.images import ImageError, open_image
from vjudge.judging.judge import Judge

_NAME = re.compile(r"\w[\w.-]*")  # an image's name: `Build.export` calls its file so


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

    Each answer of the generator is one JSON object, which may follow prose or stand in a fenced
    block. Servers and vLLM constrain the generator to the stage's schema; other engines rely on
    the prompt. Where no instruction got a response for every score, a RuntimeWarning counts why,
    and the result has no rows.

    Args:
        images: name -> what `vjudge.images.open_image` opens.
        generator: a `Judge` that reads images, such as `load_judge("openai:MODEL")`.
        out: the folder of the record; the same call continues there after any interruption.
        seeds: seed rubrics, see `load_seeds`.
        rubrics, instructions: rubrics per image, and instructions per rubric; 3 and 2 in
            Perception-Collection.
        tolerance: how far a response's length, by `data.n_words`, may lie from the reference
            answer's, as a share in (0, 1).
        tries: how many answers to ask for per call: after a rejected one the next prompt says why.
        temperature, max_new_tokens, seed: of sampling, as in `Judge.grade`.
        progress: whether to show a bar.

    Raises:
        CollectionError: invalid seeds, or images that cannot be used, all of them.
        ValueError: an option is out of its range, or of the wrong kind.
        RunError: `out` holds the record of another call.
        BuildError: the generator does not answer; the same call asks again.
    """
    options = {
        "rubrics": rubrics,
        "instructions": instructions,
        "tolerance": tolerance,
        "seed": seed,
        "tries": tries,
        "temperature": temperature,
        "max_new_tokens": max_new_tokens,
    }
    # 1) everything that can be refused before the generator is asked
    _check(images, generator, options)
    seed_rubrics = load_seeds(seeds)
    stages = Stages(generator, images, seed_rubrics, options, Path(out).expanduser(), progress)

    # 2) the stages, each of which extends the rows of the one before
    rubric_rows = stages.make_rubrics()
    cases = stages.make_cases(rubric_rows)
    rows = stages.make_responses(cases)

    # 3) the counts; `make_responses` returns complete cases alone, which have one row per level
    n_cases = len(rows) // stages.n_levels
    log = pd.DataFrame(stages.log)
    if not rows:
        counts = log["fault"].value_counts().to_dict()
        warn(
            f"nothing was built: no instruction got a response for every score ({counts}). Use a"
            " generator that follows instructions (7 billion parameters or more), or raise"
            " max_new_tokens, tolerance or tries",
            RuntimeWarning,
        )
    return Build(
        generator.name,
        images,
        options,
        rows,
        n_rubrics=len(rubric_rows),
        n_cases=n_cases,
        n_incomplete=len(cases) - n_cases,
        log=log,
    )


def _check(images: Mapping, generator: Judge, options: JsonObject) -> None:
    """Refuse options and images that cannot be used, before the generator is asked anything.

    Args:
        images, generator: as for `build`.
        options: the numbers that `build` takes, by name.

    Raises:
        ValueError, CollectionError: as in `build`.
    """
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
