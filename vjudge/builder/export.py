"""export: a built collection as a folder for the hub, with the account of how it was made as its data card."""

from __future__ import annotations

import io
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import datasets
import huggingface_hub
import pandas as pd
from PIL import Image

from vjudge import __version__, prompts
from vjudge.builder.build import Build
from vjudge.builder.faults import KINDS
from vjudge.builder.prompts import STAGES
from vjudge.builder.stages import LEAN, NEAR
from vjudge.data import CollectionError, validate
from vjudge.images import open_image
from vjudge.prompts import TEMPLATES
from vjudge.records import Item


def export(
    build: Build,
    folder: str | os.PathLike[str],
    *,
    name: str = "Built collection",
    license: str = "other",
    note: str = "",
    allow_imbalance: bool = False,
) -> Path:
    """Write a collection as a folder that is ready for the hub, `load_collection` and `fine_tune`.

    Args:
        build: what `build` returned.
        folder: new or empty.
        name: the collection's, for the card.
        license: its licence, by the hub's identifiers; images and generator may bind you.
        note: a sentence about the images or the generator, for the card's head.
        allow_imbalance: export although lengths lean towards the scores; the card says so.

    Returns:
        The folder: README.md (the data card), images/, and train.parquet in Perception-Collection's columns; see
        `published_row`.

    Raises:
        CollectionError: lengths that lean, unless allowed; rows that fail `vjudge.data.validate`; a folder that holds
            something.
    """
    if build.balance.lean and not allow_imbalance:
        raise CollectionError(
            f"not exported: {build.balance}, so that a judge could score by length. Use another generator or a smaller"
            " tolerance, or allow_imbalance=True to export it with that said in its card"
        )
    folder = Path(folder)
    if folder.exists() and any(folder.iterdir()):
        raise CollectionError(f"{str(folder)!r} holds something already; give a new folder")
    rows = build.rows()
    validate(rows)
    folder.mkdir(parents=True, exist_ok=True)
    paths = {name: _write_image(build.images[name], folder, name) for name in {row["group"] for row in rows}}
    table = datasets.Dataset.from_list([published_row(row, paths[row["group"]]) for row in rows])
    table.to_parquet(str(folder / "train.parquet"))
    (folder / "README.md").write_text(card(build, name=name, license=license, note=note), encoding="utf-8")
    return folder


def published_row(row: Mapping[str, Any], image: str) -> dict[str, Any]:
    """A row in Perception-Collection's columns.

    Args:
        row: of `Build.rows`, or any canonical row with a rubric, gold and feedback.
        image: what its `image` column says.

    Returns:
        `image`, `instruction` (the judge's whole prompt), `output` (the training target), `orig_*`, `id` and `group`.

    Source: kaist-ai/Perception-Collection; the target of prometheus-vision's sample_train_data.json.
    """
    item = Item.from_row({**row, "images": []})
    score = int(row["gold"])
    levels = {f"orig_score{n}_description": text for n, text in enumerate(row["descriptions"], start=1)}
    return {
        "image": image,
        "instruction": TEMPLATES["prometheus-vision"].as_messages().render(item).text,
        "output": prompts.target(row["feedback"], score),
        "orig_instruction": row["instruction"],
        "orig_response": row["response"],
        "orig_reference_answer": row["reference_answer"],
        "orig_criteria": row["criteria"],
        **levels,
        "orig_feedback": row["feedback"],
        "orig_score": score,
        "id": row["id"],
        "group": row["group"],
    }


def card(build: Build, *, name: str, license: str = "other", note: str = "") -> str:
    """The data card: the hub's YAML, what is in the collection, and everything that was wrong and kept out.

    Args:
        build, name, license, note: as in `export`.
    """
    rows, options = build.rows(), build.options
    head = huggingface_hub.DatasetCardData(
        pretty_name=name,
        license=license,
        task_categories=["image-text-to-text"],
        tags=["llm-as-a-judge", "rubric", "feedback", "synthetic"],
        configs=[{"config_name": "default", "data_files": [{"split": "train", "path": "train.parquet"}]}],
    )
    lengths = pd.Series([len(row["response"].split()) for row in rows]).groupby([row["gold"] for row in rows]).mean()
    faults, counts = build.faults()["all"], build.counts()
    sections = [
        f"---\n{head.to_yaml()}\n---\n\n# {name}",
        note,
        f"Written by the model `{build.generator}` and checked by vjudge {__version__}. No text here was written or"
        " verified by people, except where its publisher says so: the scores are those that the generator was asked to"
        " write for. Columns: those of kaist-ai/Perception-Collection.",
        "## What is in it",
        f"{len({case.image for case in build.cases})} of {len(build.images)} images, {build.n_rubrics} rubrics,"
        f" {len(build.cases)} instructions with reference answers, {len(rows)} responses with feedback: one for each"
        f" score. {len(build.incomplete)} instructions were left out because some score lacks its response.",
        "## Length",
        f"Responses were asked for at the length of the reference answer whatever the score, and rejected beyond"
        f" {options['tolerance']:.0%} of it. Of all pairs, {build.balance}; {1 / 2 - LEAN:.0%} to {1 / 2 + LEAN:.0%} is"
        " allowed." + (" **It is exceeded and was exported on request.**" if build.balance.lean else ""),
        "Mean words by score: " + ", ".join(f"{score:g}: {mean:.1f}" for score, mean in lengths.items()) + ".",
        "## What was wrong, and kept out",
        f"A rejected answer was asked for again with the reason, {options['tries']} answers at most to a call; then the"
        f" call is given up ({counts['given_up'].sum()} of {counts['calls'].sum()} calls). Criteria are duplicates"
        f" from {NEAR:g} % of their characters.",
        "\n".join(f"- {kind}: {faults[kind]} ({meaning})" for kind, meaning in KINDS.items()),
        "Requests that the engine repeated: "
        + (", ".join(f"{n} x {reason}" for reason, n in build.repeated.most_common()) or "none")
        + ".",
        "## How it was made",
        "Prompts, written for vjudge (not those of the Perception-Collection paper, whose four stages they follow): "
        + ", ".join(stage.version for stage in STAGES.values())
        + ". Options: "
        + ", ".join(f"{option} {value}" for option, value in options.items())
        + ".",
        "## Limits",
        "A generator's mistakes about an image pass every check made here: rubric and image were matched by the"
        " generator itself, and no check compares a response or a feedback with the image. Have people review a sample"
        " (`vjudge.review`) before training on it or reporting on it.",
    ]
    return "\n\n".join(filter(None, sections)) + "\n"


def _write_image(source: Any, folder: Path, name: str) -> str:
    """Write an image's own file, unchanged, or a PNG of it where there is none; its path below the folder."""
    if isinstance(source, Mapping):
        source = source.get("path") if source.get("bytes") is None else source["bytes"]
    if isinstance(source, (str, Path)) and not str(source).startswith("data:"):
        source = Path(source).read_bytes()
    if not isinstance(source, (bytes, bytearray)):
        file = io.BytesIO()
        open_image(source).save(file, format="PNG")
        source = file.getvalue()
    with Image.open(io.BytesIO(source)) as image:
        path = Path("images", f"{name}.{str(image.format).lower()}")
    (folder / path).parent.mkdir(parents=True, exist_ok=True)
    (folder / path).write_bytes(source)
    return path.as_posix()
