"""Benchmarks whose responses are pictures, and their rows as published; MM-JudgeBias's rows, too.

A row of theirs becomes one that `Judge.compare` or `Judge.grade` takes; the category decides the
wording where a benchmark has several.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from vjudge.data import CollectionError, rows_of
from vjudge.data.schema import Row
from vjudge.judging.counts import WORK
from vjudge.judging.judge import Judge
from vjudge.prompts import IMAGE, Template
from vjudge.records import RESPONSE_IMAGES, is_missing

_Cells = dict[str, Any]


def viescore(
    judge: Judge,
    items: Any,
    *,
    quality: str | Template = "viescore-pq",
    out: str | Path | None = None,
    **options: Any,
) -> pd.DataFrame:
    """Grade pictures by what was asked and by how they look, and by both together.

    Args:
        judge: one whose wording grades what was asked, such as
            `load_judge(..., template="viescore-t2i")`, or EditScore in its own.
        items: rows with `response_images`, and `images` where a picture was edited.
        quality: the wording that grades the picture by itself, without its source.
        out: a folder that records both runs.
        options: of `Judge.grade`.

    Returns:
        The run of the first wording with the columns `semantics` and `quality`, the two scores;
        `score` is the square root of their product, on the scale of both. EditScore's own number
        is this on 0 to 10: divide by 2.5.

    Source: VIEScore (arXiv 2312.14867), TIGER-AI-Lab/VIEScore@2cbea4e viescore/__init__.py;
    VectorSpaceLab/EditScore@389008c editscore/__init__.py.

    >>> import vjudge as vj
    >>> judge = vj.load_judge("tiny", device="cpu").reworded("viescore-t2i")
    >>> items = vj.load_collection("drawings", split="test", limit=1)
    >>> run = viescore(judge, items, progress=False, max_new_tokens=8)
    >>> run[["semantics", "quality", "score"]].shape
    (1, 3)
    """
    rows = rows_of(items)
    folders: Sequence[Path | None] = [None, None]
    if out is not None:
        folders = [Path(out) / "semantics", Path(out) / "quality"]
    asked = judge.grade(rows, out=folders[0], **options)
    unsourced = [{**row, "images": []} for row in rows]
    seen = judge.reworded(quality).grade(unsourced, out=folders[1], **options)
    run = asked.assign(semantics=asked["score"], quality=seen["score"])
    run["score"] = np.sqrt(run["semantics"] * run["quality"])
    run["failure"] = asked["failure"].fillna(seen["failure"])
    run["closed"] = asked["closed"] | seen["closed"]
    work = [*WORK]
    run[work] = asked[work] + seen[work]
    return run


def _one_of(row: Row, index: int, column: str, meanings: Mapping[str, str]) -> str:
    """What a cell stands for; CollectionError names the row of one that stands for nothing."""
    cell = row.get(column)
    if cell is None or cell not in meanings:
        choices = ", ".join(meanings)
        raise CollectionError(f"row {index}: {column} is {cell!r}: use one of {choices}")
    return meanings[cell]


# --- GenAI-Bench

VOTES = {"leftvote": "a", "rightvote": "b", "tievote": "both good", "bothbad_vote": "both bad"}


def genai_bench_rows(row: Row, index: int) -> list[_Cells]:
    """A vote of TIGER-Lab/GenAI-Bench on two pictures as a pair; `vote` is one of four."""
    vote = _one_of(row, index, "vote_type", VOTES)
    if "left_video" in row:
        raise CollectionError(f"row {index} is of videos: use the votes on images")
    cells: _Cells = {"vote": vote, "preference": vote if vote in ("a", "b") else "tie"}
    sides = ("left_image", "right_image")
    if "source_image" in row:
        sides = ("left_output_image", "right_output_image")
        cells |= {
            "category": "image_edition",
            "images": [row["source_image"]],
            "instruction": row["instruct_prompt"],
            "context": f"Source Image prompt: {row['source_prompt']}\n"
            f"Target Image prompt after editing: {row['target_prompt']}",
        }
    else:
        cells |= {"category": "image_generation", "instruction": row["prompt"]}
    for side, column in zip("ab", sides, strict=True):
        cells[f"response_{side}_images"] = [row[column]]
    return [cells | {"id": f"{cells['category']}:{index}"}]


# --- MMRB2

MMRB2_FILES = ("t2i.json", "edit.json", "interleaved.json", "reasoning.json")
_SOURCES = {  # of the prompts of each task
    "image": "evalmuse oneigbench r2ibench wise realunify_ueg",
    "edit": "emu-edit dreambench new_synthetic_edit text_heavy_edit risebench hq-edit",
    "interleaved": "isgbench chameleon interleavedeval mmmg",
    "reasoning": "mindcube blink muirbench realunify visulogic vstar",
}
MMRB2_TASKS = {source: task for task, sources in _SOURCES.items() for source in sources.split()}


def mmrb2_file(path: Path) -> list[_Cells]:
    """The pairs of MMRB2's four files in a folder, or of one of them; pictures by their paths."""
    files = [path] if path.is_file() else [path / name for name in MMRB2_FILES]
    rows = []
    for file in filter(Path.is_file, files):
        pairs = json.loads(file.read_text(encoding="utf-8"))["pairs"]
        rows += [{**pair, "folder": file.parent} for pair in pairs]
    if not rows:
        raise CollectionError(f"{str(path)!r} holds none of {', '.join(MMRB2_FILES)}")
    return rows


def mmrb2_rows(row: Row, index: int) -> list[_Cells]:
    """A pair of facebookresearch/MMRB2's files, or of rl-research/multimodal-rewardbench-2."""
    source = row.get("prompt_source")
    metadata = row.get("prompt_metadata") or {}
    if isinstance(metadata, str):
        metadata = json.loads(metadata)
    id = row.get("id", row.get("pair_id"))
    cells: _Cells = {
        "id": id,
        "group": f"{source}:{metadata.get('id', id)}",
        "category": _one_of(row, index, "prompt_source", MMRB2_TASKS),
        "preference": _one_of(row, index, "chosen", {"A": "a", "B": "b"}),
    }
    for name in ("prompt", "response_a", "response_b"):
        if "prompt_text" in row:
            segments = _segments(row[f"{name}_text"], row[f"{name}_images"])
        elif name == "prompt":
            segments = row["prompt_content"]
        else:
            segments = row[name]["response_content"]
        column = name.replace("prompt", "instruction")
        pictures = RESPONSE_IMAGES.get(column, "images")
        cells[column], cells[pictures] = _interleaved(segments, row.get("folder", Path()))
    return [cells]


def _segments(text: str | None, pictures: Sequence | None) -> list[tuple[str, Any]]:
    """The hub's text with "<image_1>" in it, as the texts and pictures of the files."""
    remaining = list(pictures or ())
    segments: list[tuple[str, Any]] = []
    for number, piece in enumerate(re.split(r"<image_\d+>", text or "")):
        if number and remaining:
            segments.append(("image", remaining.pop(0)))
        if piece.strip():
            segments.append(("text", piece.strip()))
    return segments + [("image", picture) for picture in remaining]


def _interleaved(segments: Iterable[Sequence], folder: Path) -> tuple[str, list]:
    """A text with a mark for each of its pictures, and these; no text of pictures alone."""
    text = ""
    pictures = []
    for kind, content in segments:
        if kind == "image":
            pictures.append(str(folder / content) if isinstance(content, str) else content)
        text += str(IMAGE) if kind == "image" else content
    return ("" if not text.replace(str(IMAGE), "").strip() else text), pictures


# --- VIEScore: ImagenHub's pictures, and three people's ratings of them

VIESCORE_TASKS = {  # a task's folder -> its category, and the column that its wording shows
    "Text-Guided_IG": ("t2i", "prompt"),
    "Text-Guided_IE": ("tie", "instruction"),
    "Mask-Guided_IE": ("mie", "instruction"),
    "Control-Guided_IG": ("cig", "text"),
    "Subject-Driven_IG": ("sdig", "prompt"),
    "Multi-Concept_IC": ("msdig", "prompt"),
    "Subject-Driven_IE": ("sdie", "subject"),
}


def viescore_file(path: Path) -> list[_Cells]:
    """ImagenHub's pictures in a folder, one row a picture that VIEScore's people rated.

    It holds a folder a task, such as "ImagenHub_Text-Guided_IG", with dataset_lookup.json and a
    folder of pictures for each system, "input" and "token"; and anywhere the ratings,
    *_rater1.tsv and so on, in a folder that ends with the task's name, too.
    """
    rows = []
    for lookup in sorted(path.rglob("dataset_lookup.json")):
        task = lookup.parent.name.removeprefix("ImagenHub_")
        entries = json.loads(lookup.read_text(encoding="utf-8"))
        files = sorted(path.rglob(f"*{task}/*_rater*.tsv"))
        raters = [pd.read_csv(file, sep="\t", index_col="uid") for file in files]
        if not raters or task not in VIESCORE_TASKS:
            continue
        for picture in sorted(lookup.parent.glob("*/*")):
            system = picture.parent.name
            if system in raters[0] and picture.name in raters[0].index:
                ratings = [json.loads(table.at[picture.name, system]) for table in raters]
                rows.append(_rated(task, picture, entries[picture.name], np.array(ratings, float)))
    if not rows:
        raise CollectionError(f"{str(path)!r} holds no picture of ImagenHub that people rated")
    return rows


def _rated(task: str, picture: Path, entry: Row, ratings: np.ndarray) -> _Cells:
    """A picture as a row; `ratings` (raters, 2) are of semantics and quality, in [0, 1]."""
    category, column = VIESCORE_TASKS[task]
    instruction = entry[column].replace("<token> ", "")
    if column == "subject":
        instruction = entry[column].replace("_", " ")
    # both editing tasks edit one photograph in several turns: sample_7_1.jpg, sample_7_2.jpg
    photograph = re.match(r"sample_\d+", picture.name)
    group = f"{task}:{picture.name}"
    if photograph and category in ("tie", "mie"):
        group = f"photograph:{photograph[0]}"
    sources = [picture.parents[1] / name / picture.name for name in ("input", "token")]
    semantics, quality = ratings.mean(axis=0)
    return {
        "id": f"{task}:{picture.name}:{picture.parent.name}",
        "group": group,
        "category": category,
        "system": picture.parent.name,
        "instruction": instruction,
        "images": [str(file) for file in sources if file.is_file()],
        "response_images": [str(picture)],
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
"""MM-JudgeBias's kinds of bias: scores must fall, and of robustness stay."""
_KIND = {bias: kind for kind, biases in BIASES.items() for bias in biases}


def mm_judgebias_rows(row: Row, index: int) -> list[_Cells]:
    """Both variants of a row of naver-ai/MM-JudgeBias, unbiased first, as items of one group."""
    kind = _one_of(row, index, "bias_type", _KIND)
    rows = []
    for variant in ("unbiased", "biased"):
        picture = row.get(f"{variant}_image")
        rows.append(
            {
                "id": f"{row['id']}:{variant}",
                "group": str(row["id"]),
                "category": row["bias_type"],
                "kind": kind,
                "variant": variant,
                "images": [] if is_missing(picture) else [picture],
                "instruction": row[f"{variant}_instruction"],
                "response": row["response"],
            }
        )
    return rows


# --- all of them

FROM_FILES: Mapping[str, Callable[[Path], list[_Cells]]] = {
    "mmrb2": mmrb2_file,
    "viescore": viescore_file,
}
"""Sets whose files and folders are read here; of the others `load_collection` reads them."""
FROM_ROW: Mapping[str, Callable[[Row, int], list[_Cells]]] = {
    "genai-bench": genai_bench_rows,
    "mmrb2": mmrb2_rows,
    "mm-judgebias": mm_judgebias_rows,
}
"""Sets whose published rows are read here, by row and number; one may become several."""
