"""Preference pairs as files that trainers read: TRL's rows and LLaVA-NeXT's list."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import datasets
import pandas as pd

from vjudge.data import CollectionError, Problem, rows_of
from vjudge.images import fingerprint, open_image
from vjudge.runs import replace_file

IMAGE_MARK = "<image>"
_TEXT = {"type": datasets.Value("string"), "text": datasets.Value("string")}
_MESSAGES = datasets.List({"role": datasets.Value("string"), "content": datasets.List(_TEXT)})
TRL_FEATURES = datasets.Features(
    {
        "id": datasets.Value("string"),
        "prompt": _MESSAGES,
        "chosen": _MESSAGES,
        "rejected": _MESSAGES,
        "images": datasets.List(datasets.Image()),
    }
)
"""TRL's conversational preference format with images; `id` is ours, and its trainer passes over it."""


def to_trl(pairs: Any) -> datasets.Dataset:
    """Pairs as TRL's DPOTrainer reads them, ready for `save_to_disk` or the hub.

    Args:
        pairs: from `make_pairs`, or rows with its columns id, instruction, images, chosen and rejected.

    Returns:
        id; prompt, chosen and rejected as messages, an image's place first and then the instruction; images. TRL's own
        processing puts these texts through a chat template and reads control tokens in them: `unsafe` finds such rows.
        `train` does not: it encodes texts as plain text.

    Raises:
        CollectionError: every pair without a text.

    Source: huggingface/trl docs/source/dataset_formats.md, preference and vision data sets.
    """
    rows = []
    for row in checked(pairs):
        places = [{"type": "image", "text": None} for _ in row["images"]]
        said = {name: [_message("assistant", _said(row[name]))] for name in ("chosen", "rejected")}
        prompt = [_message("user", [*places, *_said(row["instruction"])])]
        rows.append({"id": str(row["id"]), "prompt": prompt, **said, "images": list(row["images"])})
    return datasets.Dataset.from_list(rows, features=TRL_FEATURES)


def from_trl(dataset: Any) -> list[dict[str, Any]]:
    """Rows of TRL's format as pairs: id, instruction, images, chosen, rejected.

    Args:
        dataset: what `to_trl` makes, or another set with one user turn and one reply.

    Raises:
        CollectionError: every row of another shape.
    """
    rows, problems = [], []
    for index, row in enumerate(rows_of(dataset)):
        id = str(row.get("id", index))
        try:
            texts = {name: _text_of(row[name]) for name in ("prompt", "chosen", "rejected")}
        except (KeyError, TypeError, ValueError) as error:
            problems.append(Problem(index, id, "prompt, chosen, rejected", str(error), "give one turn each"))
            continue
        rows.append({"id": id, "instruction": texts.pop("prompt"), "images": list(row.get("images") or ()), **texts})
    if problems:
        raise CollectionError(f"{len(problems)} rows are not of TRL's preference format:", problems)
    return rows


def write_llava_next(pairs: Any, folder: str | Path) -> Path:
    """Write pairs as LLaVA-NeXT's DPO code reads them: `pairs.json`, and the images in `images/`.

    Args:
        pairs: as for `to_trl`.
        folder: made where it is not there; `--data_path FOLDER/pairs.json --image_folder FOLDER/images`.

    Returns:
        The path of `pairs.json`: a list of {id, image, prompt, chosen, rejected}. `image` is a file's name, a list of
        them where there are several, and absent without one; equal pictures are one file.

    Raises:
        CollectionError: every pair without a text, or whose instruction spells "<image>", which that code would delete.

    Source: LLaVA-VL/LLaVA-NeXT llava/train/train_dpo.py (DPODataset), which puts the image's mark before the prompt.
    """
    rows = checked(pairs)
    problems = [
        Problem(index, str(row["id"]), "instruction", f"spells {IMAGE_MARK}", "LLaVA-NeXT deletes it: leave it out")
        for index, row in enumerate(rows)
        if IMAGE_MARK in row["instruction"]
    ]
    if problems:
        raise CollectionError(f"{len(problems)} pairs can't be written for LLaVA-NeXT:", problems)
    folder = Path(folder)
    (folder / "images").mkdir(parents=True, exist_ok=True)
    made = []
    for row in rows:
        names = [_save(image, folder / "images") for image in row["images"]]
        image = {"image": names[0] if len(names) == 1 else names} if names else {}
        texts = {"prompt": row["instruction"], "chosen": row["chosen"], "rejected": row["rejected"]}
        made.append({"id": str(row["id"]), **image, **texts})
    path = folder / "pairs.json"
    replace_file(path, json.dumps(made, indent=1, ensure_ascii=False) + "\n")
    return path


def read_llava_next(path: str | Path, *, images: str | Path | None = None) -> list[dict[str, Any]]:
    """Read a file of LLaVA-NeXT's format as pairs: id, instruction, images (paths), chosen, rejected.

    Args:
        path: the JSON file.
        images: the folder that image names count from; None takes `images` beside the file.

    Raises:
        CollectionError: every row without one of its texts.
    """
    path = Path(path)
    folder = Path(images) if images is not None else path.parent / "images"
    rows = []
    for index, row in enumerate(json.loads(path.read_text(encoding="utf-8"))):
        named = row.get("image") or []
        files = [str(folder / name) for name in ([named] if isinstance(named, str) else named)]
        texts = {name: row.get(name) for name in ("chosen", "rejected")}
        rows.append({"id": str(row.get("id", index)), "instruction": row.get("prompt"), "images": files, **texts})
    return checked(rows)


def unsafe(pairs: Any, tokenizer: Any) -> pd.DataFrame:
    """Find texts that spell a control token of a tokenizer, which a trainer's chat template would let act as one.

    Args:
        pairs: as for `to_trl`.
        tokenizer: a transformers tokenizer, or a processor with one.

    Returns:
        One row a finding: id, field, token.
    """
    inner = getattr(tokenizer, "tokenizer", tokenizer)
    controls = {str(entry) for entry in inner.added_tokens_decoder.values() if entry.special}
    controls |= {str(token) for token in inner.all_special_tokens} - {""}
    found = [
        {"id": str(row["id"]), "field": name, "token": token}
        for row in checked(pairs)
        for name in ("instruction", "chosen", "rejected")
        for token in sorted(controls)
        if token in row[name]
    ]
    return pd.DataFrame(found, columns=["id", "field", "token"])


def checked(pairs: Any) -> list[dict[str, Any]]:
    """Pairs as rows, or an error that names every one without a text."""
    rows: Sequence[Mapping[str, Any]] = rows_of(pairs)
    problems = [
        Problem(index, str(row.get("id")), name, "is missing or blank", "fill it in or leave the pair out")
        for index, row in enumerate(rows)
        for name in ("instruction", "chosen", "rejected")
        if not isinstance(row.get(name), str) or not row[name].strip()
    ]
    if problems:
        raise CollectionError(f"{len(problems)} texts are missing among {len(rows)} pairs:", problems)
    return [{**row, "images": list(row.get("images") or ())} for row in rows]


def _message(role: str, content: list[dict[str, Any]]) -> dict[str, Any]:
    return {"role": role, "content": content}


def _said(text: str) -> list[dict[str, Any]]:
    return [{"type": "text", "text": text}]


def _text_of(messages: Any) -> str:
    """The text of one turn."""
    turns = list(messages)
    if len(turns) != 1:
        raise ValueError(f"has {len(turns)} turns")
    content = turns[0]["content"]
    if isinstance(content, str):
        return content
    (text,) = [part["text"] for part in content if part["type"] == "text"]
    return str(text)


def _save(image: Any, folder: Path) -> str:
    """Save an image under a name made of its pixels."""
    opened = open_image(image)
    name = f"{fingerprint(opened)[:24]}.png"
    if not (folder / name).exists():
        opened.save(folder / f"{name}.new", format="PNG")
        (folder / f"{name}.new").replace(folder / name)
    return name
