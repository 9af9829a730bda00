"""The rows of a benchmark, as a judge takes them: loaded, converted from the published form, with a
rubric.

Each converter returns rows that `Judge.compare` or `Judge.grade` takes. Their column `category`
decides the prompt template where a benchmark has several.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain, count
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from vjudge.benchmarks.protocols import Protocol
from vjudge.data import CollectionError, canonical, load_collection, rows_of
from vjudge.data.files import rows_of_file
from vjudge.data.schema import Row
from vjudge.prompts import IMAGE, Template
from vjudge.records import RESPONSE_IMAGES, Rubric, is_missing

ConvertedRow = dict[str, Any]  # a row as `Judge.compare` or `Judge.grade` takes it
Segment = Sequence[Any]  # a pair: ("text", the text) or ("image", the image or its path)


def _meaning(row: Row, index: int, column: str, meanings: Mapping[str, str]) -> str:
    """Translate a cell by `meanings`.

    Raises:
        CollectionError: the cell is not in `meanings`; the message names the row and all choices.
    """
    cell = row.get(column)
    if cell is None or cell not in meanings:
        choices = ", ".join(meanings)
        raise CollectionError(f"row {index}: {column} is {cell!r}: use one of {choices}")
    return meanings[cell]


# --- GenAI-Bench

VOTES = {"leftvote": "a", "rightvote": "b", "tievote": "both good", "bothbad_vote": "both bad"}


def genai_bench_rows(row: Row, index: int) -> list[ConvertedRow]:
    """Convert a vote of TIGER-Lab/GenAI-Bench on two images to a pair.

    The pair's column `vote` is "a", "b", "both good" or "both bad"; in `preference` both kinds of
    tie are "tie". A row with a source image is of the task of editing.

    Raises:
        CollectionError: an unknown vote, or a vote on videos.
    """
    vote = _meaning(row, index, "vote_type", VOTES)
    if "left_video" in row:
        raise CollectionError(f"row {index} is of videos: use the votes on images")
    pair: ConvertedRow = {"vote": vote, "preference": vote if vote in ("a", "b") else "tie"}
    if "source_image" in row:
        columns = ("left_output_image", "right_output_image")
        pair |= {
            "category": "image_edition",
            "images": [row["source_image"]],
            "instruction": row["instruct_prompt"],
            "context": f"Source Image prompt: {row['source_prompt']}\n"
            f"Target Image prompt after editing: {row['target_prompt']}",
        }
    else:
        columns = ("left_image", "right_image")
        pair |= {"category": "image_generation", "instruction": row["prompt"]}
    for side, column in zip("ab", columns, strict=True):
        pair[f"response_{side}_images"] = [row[column]]
    return [pair | {"id": f"{pair['category']}:{index}"}]


# --- MMRB2

MMRB2_FILES = ("t2i.json", "edit.json", "interleaved.json", "reasoning.json")
_SOURCES = {  # task -> the sources of its prompts
    "image": "evalmuse oneigbench r2ibench wise realunify_ueg",
    "edit": "emu-edit dreambench new_synthetic_edit text_heavy_edit risebench hq-edit",
    "interleaved": "isgbench chameleon interleavedeval mmmg",
    "reasoning": "mindcube blink muirbench realunify visulogic vstar",
}
MMRB2_TASKS = {source: task for task, sources in _SOURCES.items() for source in sources.split()}


def mmrb2_file(path: Path) -> list[ConvertedRow]:
    """Read the published pairs of MMRB2's four files in a folder, or of one file.

    Images stay paths relative to the file; the column `folder`, added here, says where that is.
    Files that are absent are skipped.

    Raises:
        CollectionError: there are no pairs.
    """
    files = [path] if path.is_file() else [path / name for name in MMRB2_FILES]
    rows = []
    for file in filter(Path.is_file, files):
        pairs = json.loads(file.read_text(encoding="utf-8"))["pairs"]
        rows += [{**pair, "folder": file.parent} for pair in pairs]
    if not rows:
        raise CollectionError(f"{str(path)!r} holds none of {', '.join(MMRB2_FILES)}")
    return rows


def mmrb2_rows(row: Row, index: int) -> list[ConvertedRow]:
    """Convert a published pair of MMRB2, in either of its two forms.

    They are a pair of facebookresearch/MMRB2's files, which hold text and images as segments, and a
    row of rl-research's data set on the hub, whose texts have placeholders of images.

    Raises:
        CollectionError: an unknown source of the prompt, or an unknown choice.
    """
    source = row.get("prompt_source")
    metadata = row.get("prompt_metadata") or {}
    if isinstance(metadata, str):  # JSON, on the hub
        metadata = json.loads(metadata)
    id = row.get("id", row.get("pair_id"))
    pair: ConvertedRow = {
        "id": id,
        "group": f"{source}:{metadata.get('id', id)}",
        "category": _meaning(row, index, "prompt_source", MMRB2_TASKS),
        "preference": _meaning(row, index, "chosen", {"A": "a", "B": "b"}),
    }
    for name in ("prompt", "response_a", "response_b"):
        if "prompt_text" in row:  # rl-research/multimodal-rewardbench-2
            segments = _segments(row[f"{name}_text"], row[f"{name}_images"])
        elif name == "prompt":
            segments = row["prompt_content"]
        else:
            segments = row[name]["response_content"]
        column = name.replace("prompt", "instruction")
        image_column = RESPONSE_IMAGES.get(column, "images")
        pair[column], pair[image_column] = _interleaved(segments, row.get("folder", Path()))
    return [pair]


def _segments(text: str | None, images: Sequence | None) -> list[Segment]:
    """Split a text at its placeholders "<image_1>" into texts and images, in their order.

    Placeholders take the images in turn; images without a placeholder follow the text.

        "A <image_1> B", [x, y]  ->  ("text", "A"), ("image", x), ("text", "B"), ("image", y)
    """
    remaining = list(images or ())
    segments: list[Segment] = []
    for number, piece in enumerate(re.split(r"<image_\d+>", text or "")):
        if number and remaining:  # a placeholder stands before every piece but the first
            segments.append(("image", remaining.pop(0)))
        if piece.strip():
            segments.append(("text", piece.strip()))
    return segments + [("image", image) for image in remaining]


def _interleaved(segments: Iterable[Segment], folder: Path) -> tuple[str, list]:
    """Join segments to one text, with a placeholder per image, and a list of the images.

    Args:
        segments: texts and images, in their order.
        folder: what paths of images are relative to.

    Returns:
        The text, "" where there are only images; and the images, in the order of placeholders.
    """
    text = ""
    images = []
    for kind, content in segments:
        if kind == "image":
            text += str(IMAGE)
            images.append(str(folder / content) if isinstance(content, str) else content)
        else:
            text += content
    if not text.replace(str(IMAGE), "").strip():
        text = ""
    return text, images


# --- VIEScore: ImagenHub's images, and ratings of them by three human raters

VIESCORE_TASKS = {  # a task's folder -> its category, and the column that its template shows
    "Text-Guided_IG": ("t2i", "prompt"),
    "Text-Guided_IE": ("tie", "instruction"),
    "Mask-Guided_IE": ("mie", "instruction"),
    "Control-Guided_IG": ("cig", "text"),
    "Subject-Driven_IG": ("sdig", "prompt"),
    "Multi-Concept_IC": ("msdig", "prompt"),
    "Subject-Driven_IE": ("sdie", "subject"),
}


def viescore_file(path: Path) -> list[ConvertedRow]:
    """Read ImagenHub's images from a folder, one row per image that VIEScore's human raters rated.

    The folder holds, at any depth:

    - one folder per task, such as "ImagenHub_Text-Guided_IG". It holds the file
      dataset_lookup.json; one folder of generated images per system, with the system's name; and,
      for tasks with source images, these in the folders "input" and "token", which are no systems;
    - per task a folder whose name ends with the task's, such as "Text-Guided_IG". It holds one file
      of ratings per rater, NAME_rater1.tsv and so on: a row per image, a column per system.

    Tasks without ratings or not in `VIESCORE_TASKS`, and images without a rating, are skipped.

    Raises:
        CollectionError: no image has a rating.
    """
    rows = []
    for lookup in sorted(path.rglob("dataset_lookup.json")):
        task = lookup.parent.name.removeprefix("ImagenHub_")
        entries = json.loads(lookup.read_text(encoding="utf-8"))
        files = sorted(path.rglob(f"*{task}/*_rater*.tsv"))
        raters = [pd.read_csv(file, sep="\t", index_col="uid") for file in files]
        if not raters or task not in VIESCORE_TASKS:
            continue
        for image in sorted(lookup.parent.glob("*/*")):
            system = image.parent.name  # "input" and "token" have no column of ratings
            if system in raters[0] and image.name in raters[0].index:
                # a cell is a text such as "[1, 0.5]": semantics, quality
                ratings = [json.loads(rater.at[image.name, system]) for rater in raters]
                rows.append(_rated(task, image, entries[image.name], np.array(ratings, float)))
    if not rows:
        raise CollectionError(f"{str(path)!r} holds no picture of ImagenHub that people rated")
    return rows


def _rated(task: str, image: Path, entry: Row, ratings: np.ndarray) -> ConvertedRow:
    """Make an image's row.

    Args:
        task: a key of `VIESCORE_TASKS`.
        image: the file, TASK/SYSTEM/NAME.
        entry: the image's entry in dataset_lookup.json; it holds the instruction.
        ratings: semantics and quality in [0, 1], shape (raters, 2). A rater's score in
            `human_scores` is the square root of their product.
    """
    category, column = VIESCORE_TASKS[task]
    instruction = entry[column].replace("<token> ", "")
    if column == "subject":
        instruction = entry[column].replace("_", " ")
    # Both editing tasks edit one photograph in several turns: sample_7_1.jpg, sample_7_2.jpg.
    photograph = re.match(r"sample_\d+", image.name)
    group = f"{task}:{image.name}"
    if photograph and category in ("tie", "mie"):
        group = f"photograph:{photograph[0]}"
    # the source images have the generated image's name, in two other folders of the task
    sources = [image.parents[1] / name / image.name for name in ("input", "token")]
    semantics, quality = ratings.mean(axis=0)
    return {
        "id": f"{task}:{image.name}:{image.parent.name}",
        "group": group,
        "category": category,
        "system": image.parent.name,
        "instruction": instruction,
        "images": [str(file) for file in sources if file.is_file()],
        "response_images": [str(image)],
        "people_semantics": semantics,
        "people_quality": quality,
        "human_scores": np.sqrt(ratings.prod(axis=1)).tolist(),
    }


# --- MM-JudgeBias

BIASES = {
    "integrality": ("text_dominance", "image_dominance", "response_dominance"),
    "congruity": ("instruction_misalignment", "image_misalignment"),
    "robustness": (
        "detail_description",
        "unnecessary_image",
        "visual_transformation",
        "texture_insertion",
    ),
}
"""MM-JudgeBias's biases by kind: scores must stay under robustness, and fall under the others."""
_KIND = {bias: kind for kind, biases in BIASES.items() for bias in biases}


def mm_judgebias_rows(row: Row, index: int) -> list[ConvertedRow]:
    """Convert a row of naver-ai/MM-JudgeBias to two items of one group: unbiased, then biased.

    Raises:
        CollectionError: an unknown kind of bias.
    """
    kind = _meaning(row, index, "bias_type", _KIND)
    items = []
    for variant in ("unbiased", "biased"):
        image = row.get(f"{variant}_image")
        items.append(
            {
                "id": f"{row['id']}:{variant}",
                "group": str(row["id"]),
                "category": row["bias_type"],
                "kind": kind,
                "variant": variant,
                "images": [] if is_missing(image) else [image],
                "instruction": row[f"{variant}_instruction"],
                "response": row["response"],
            }
        )
    return items


# --- the converters by benchmark

FROM_FILES: Mapping[str, Callable[[Path], list[ConvertedRow]]] = {
    "mmrb2": mmrb2_file,
    "viescore": viescore_file,
}
"""Readers of files and folders; other benchmarks' files are read by `load_collection`."""
FROM_ROW: Mapping[str, Callable[[Row, int], list[ConvertedRow]]] = {
    "genai-bench": genai_bench_rows,
    "mmrb2": mmrb2_rows,
    "mm-judgebias": mm_judgebias_rows,
}
"""Converters of a published row, given its index, to one row or several."""


# --- the rows of any benchmark


GENERAL = Rubric(
    "Is the answer right, complete and helpful, given the question and what the images show?",
    (
        "It is wrong, or does not answer the question.",
        "It is mostly wrong, or leaves out most of what was asked.",
        "It is partly right, with clear mistakes or omissions.",
        "It is right in all that matters, with a small mistake or omission.",
        "It is right and complete, and says it clearly.",
    ),
)
"""The rubric for rows without criteria, where the prompt template shows criteria."""


def published_rows(name: str, collection: str, data: Any) -> Sequence[Row]:
    """Load a benchmark's rows in canonical form.

    Args:
        name: the benchmark.
        collection: its data set on the hub, "" where there is none.
        data: rows, canonical or as published, or a path to them; None takes `collection`. Rows
            without the column `instruction` are taken to be as published, and converted.

    Returns:
        The rows; an item or a pair each.

    Raises:
        ValueError: there is neither `data` nor a collection.
        CollectionError: rows that can't be read.
    """
    if data is None:
        data = collection
    if isinstance(data, (str, Path)):
        if not data:
            reason = f"{name} is not on the hub in one piece, or not in columns known here"
            raise ValueError(f"{reason}: give its rows as data=")
        if name in FROM_FILES:
            data = FROM_FILES[name](Path(data))
        elif name in FROM_ROW:
            data = rows_of_file(Path(data))
        else:
            return rows_of(load_collection(data))
    elif isinstance(data, pd.DataFrame):
        data = data.to_dict("records")
    convert = FROM_ROW.get(name)
    if convert is not None and len(data) and "instruction" not in data[0]:  # rows as published
        data = list(chain.from_iterable(map(convert, data, count())))
    return rows_of(canonical(data))


def rows_by_category(protocol: Protocol, rows: Sequence[Row]) -> dict[str, Sequence[Row]]:
    """Split rows by category where each category has its own prompt template.

    Returns:
        Category -> its rows; "" -> all rows where one template serves all.

    Raises:
        CollectionError: a category without a template.
    """
    if not protocol.wordings or not len(rows):
        return {"": rows}
    rows_of_category: dict[str, list[Row]] = {}
    for row in rows:
        rows_of_category.setdefault(str(row.get("category")), []).append(row)
    unknown = [category for category in rows_of_category if category not in protocol.wordings]
    if unknown:
        choices = ", ".join(protocol.wordings)
        raise CollectionError(f"rows of category {', '.join(unknown)}: use one of {choices}")
    return dict(rows_of_category)


def with_rubric(rows: Sequence[Row], template: Template) -> tuple[Sequence[Row], int]:
    """Give rows without criteria the rubric `GENERAL`, if the prompt template shows criteria.

    Returns:
        The rows, and how many of them were given the rubric.
    """
    if "criteria" not in template.needs:
        return rows, 0
    filled = [dict(row) for row in rows]
    n_filled = 0
    for row in filled:
        if is_missing(row.get("criteria")) or row["criteria"] == "":
            row.update(GENERAL.as_row())
            n_filled += 1
    return filled, n_filled
