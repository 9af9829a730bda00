"""build: images, seed rubrics and a generator -> a collection of responses with scores and feedback."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from vjudge.builder import stages
from vjudge.builder.asking import KEYS, Asker
from vjudge.builder.cost import cost
from vjudge.builder.plan import Plan
from vjudge.builder.prompts import STAGES
from vjudge.builder.result import Build
from vjudge.builder.seeds import Seed, fingerprint, load_seeds
from vjudge.data import CollectionError, Problem
from vjudge.engines import Engine
from vjudge.engines.engine import say
from vjudge.images import ImageError, open_image
from vjudge.images import fingerprint as image_fingerprint
from vjudge.prompts import MESSAGES, Conversation
from vjudge.runs import Run

_NAME = re.compile(r"[\w.-]+(?:/[\w.-]+)*")


def build(
    images: Mapping[str, Any] | Iterable[str | Path],
    generator: Any,
    *,
    out: str | Path,
    seeds: str | Path | Sequence[Seed] = "general",
    plan: Plan | None = None,
    price: tuple[float, float] | None = None,
    skip_unanswered: bool = False,
    progress: bool = True,
) -> Build:
    """Build a collection, or continue a build that was stopped.

    Args:
        images: name -> what `vjudge.images.open_image` opens, or paths, whose stems are the names.
        generator: a `Judge`, from `load_judge("openai:MODEL")` or any vision-language model that it loads; only its
            engine and its conversation are used. Or a `ServerEngine`.
        out: the folder of the record. The same call continues there after any interruption and ends in the same
            collection; a call that differs in anything that matters is refused.
        seeds: the name or path of a seed file (`load_seeds`), or seeds.
        plan: how much to build and what to accept; None for Perception-Collection's counts.
        price: for a million prompt tokens and a million new ones, for the account.
        skip_unanswered: go on without calls that the generator does not answer, and count them.
        progress: whether to show progress bars.

    Returns:
        The collection, and the account of how it was made.

    Raises:
        CollectionError: unsound seeds; images that can't be opened, or two that are the same; all of them.
        ValueError: a generator that reads no images.
        BuildError: the generator does not answer; what it did answer is kept.
        RunError: `out` can't be used.
    """
    plan, found = plan or Plan(), load_seeds(seeds)
    pictures, prints = _pictures(images)
    engine, conversation, name = _generator(generator)
    manifest = {
        "kind": "collection build",
        "generator": name,
        "engine": engine.identity(),
        "plan": plan.as_json(),
        "prompts": {stage.name: stage.version for stage in STAGES.values()},
        "seeds": fingerprint(found),
        "images": prints,
    }
    planned = cost(len(pictures), plan=plan, seeds=found, price=price)
    total = planned.loc["all"]
    money = "" if price is None else f", {total['price']:.2f} at the given price and {total['most_price']:.2f} at most"
    line = (
        f"{len(pictures)} images: {total['calls']:.0f} calls planned, {total['most_calls']:.0f} at most; about"
        f" {total['prompt_tokens']:.0f} prompt and {total['new_tokens']:.0f} new tokens{money}"
    )
    if progress:
        say(line)
    with Run(out, keys=KEYS).open(manifest | {"note": line}, expected=int(total["calls"])) as run:
        asker = Asker(
            engine,
            conversation,
            name=name,
            images=pictures,
            plan=plan,
            run=run,
            skip_unanswered=skip_unanswered,
            progress=progress,
        )
        rubrics = stages.make_rubrics(asker, found, plan)
        cases = stages.make_cases(asker, rubrics, plan)
        mended = stages.make_responses(asker, cases, plan)
    kept = {entry.calls["refine"]: entry.rubric for entries in rubrics.values() for entry in entries}
    return Build(
        generator=name,
        plan=plan,
        seeds=tuple(found),
        images=pictures,
        rubrics=kept,
        cases=tuple(case for case in cases if case.complete),
        incomplete=tuple(case for case in cases if not case.complete),
        attempts=pd.DataFrame(asker.attempts),
        removed=pd.DataFrame(asker.removed, columns=["stage", "image", "fault", "detail"]),
        mended=pd.DataFrame(mended, columns=["round", "auc", "within", "redone", "replaced"]),
        repetitions=asker.transport,
        planned=planned,
        price=price,
    )


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
            problems.append(Problem(index, name, "name", "has other characters than A-z, 0-9, _ . -", "rename it"))
        try:
            prints[name] = image_fingerprint(open_image(source))
        except ImageError as error:
            what, _, remedy = str(error).rpartition("; ")
            problems.append(Problem(index, name, "image", what, remedy))
            continue
        if first.setdefault(prints[name], name) != name:
            problems.append(Problem(index, name, "image", f"shows the same as {first[prints[name]]!r}", "leave it out"))
    if problems or not prints:
        raise CollectionError(
            f"{len(problems)} of {len(images)} images can't be used" if problems else "no images", problems
        )
    return dict(images), prints


def _generator(generator: Any) -> tuple[Engine, Conversation, str]:
    """The engine, its conversation and its name."""
    if isinstance(generator, Engine):
        if generator.name != "server":
            raise ValueError("generator: give the Judge that load_judge returns, so that its conversation is known")
        return generator, MESSAGES, str(getattr(generator, "model", generator.name))
    if not all(hasattr(generator, name) for name in ("engine", "template", "name")):
        raise ValueError(f"generator is a {type(generator).__name__}: give a Judge or a ServerEngine")
    if not generator.template.sees_images:
        raise ValueError(f"generator {generator.name!r} reads no images, and every stage shows one")
    return generator.engine, generator.template.conversation, generator.name
