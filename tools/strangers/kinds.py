"""Small collections as strangers bring them: each kind in the file, the columns and the scale that its people use."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw

import vjudge as vj

Row = dict[str, Any]
COLOURS = ("red", "green", "blue", "yellow", "black")
SHAPES = ("circle", "square", "bar")
FIVE = [
    "Nothing is right.",
    "One thing is right.",
    "Two things are right.",
    "Three are right.",
    "All is right.",
]
GERMAN = (
    "Wie genau beschreibt die Antwort das Bild? Achten Sie auf Farbe, Form und Lage jedes genannten Gegenstandes, auf "
    "Auslassungen ebenso wie auf Erfundenes, und auf nichts anderes, auch nicht auf Stil oder Länge."
)
CHINESE = 3 * (
    "回答对图片的描述有多准确？请逐一核对每个物体的颜色、形状和位置，"
    "既要注意遗漏，也要注意虚构的内容，不要考虑文风或长度。"
)


def picture(folder: Path, number: int) -> str:
    """Draw a picture of one coloured shape, each of another size; returns its file name."""
    name, side = f"picture-{number}.png", 40 + 2 * number
    image = Image.new("RGB", (side, side + 8), "white")
    draw, box = ImageDraw.Draw(image), (8, 8, side - 8, side - 12)
    shape, colour = SHAPES[number % 3], COLOURS[number % 5]
    draw.ellipse(box, fill=colour) if shape == "circle" else draw.rectangle(
        box if shape == "square" else (8, 8, 16, side - 8), fill=colour
    )
    image.save(folder / name)
    return name


def rows(folder: Path, n: int = 32, levels: int = 5, lowest: int = 1) -> list[Row]:
    """Responses to questions about pictures, four a picture; what is right of a response is its gold score."""
    random, table = np.random.default_rng(0), []
    for number in range(n):
        subject = number // 4
        gold = lowest + int(random.integers(levels))
        colour = (
            COLOURS[subject % 5]
            if gold > lowest + levels // 2
            else COLOURS[int(random.integers(5))]
        )
        words = ["I see it clearly."] * int(random.integers(3))
        row = {
            "id": f"row-{number}",
            "image": picture(folder, subject),
            "instruction": "What is in the picture?",
            "response": " ".join([f"The picture has a {colour} {SHAPES[subject % 3]}.", *words]),
            "reference_answer": f"A {COLOURS[subject % 5]} {SHAPES[subject % 3]} on white.",
            "criteria": "Is the answer true of the picture?",
            "descriptions": [
                f"{level} of {levels - 1} points are right." for level in range(levels)
            ],
            "gold": gold,
        }
        table.append(row | ({"lowest": lowest} if lowest != 1 else {}))
    return table


def _jsonl(folder: Path, table: list[Row]) -> str:
    path = folder / "items.jsonl"
    path.write_text(
        "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in table), encoding="utf-8"
    )
    return str(path)


def _without(table: list[Row], *names: str) -> list[Row]:
    return [{name: cell for name, cell in row.items() if name not in names} for row in table]


def _raters(folder: Path) -> list[Row]:
    """Three people's ratings in place of gold; one did not rate every item."""
    random, table = np.random.default_rng(1), rows(folder)
    near = [np.clip(row["gold"] + random.integers(-1, 2, 3), 1, 5).tolist() for row in table]
    ratings = [
        [*three[:2], None if number % 7 == 3 else three[2]] for number, three in enumerate(near)
    ]
    return [
        row | {"human_scores": three}
        for row, three in zip(_without(table, "gold"), ratings, strict=True)
    ]


def _fractional(folder: Path) -> list[Row]:
    """Gold between the levels, and missing of one item."""
    table = rows(folder)
    shift = np.random.default_rng(2).choice([-0.75, -0.5, 0, 0.25, 1 / 3], len(table))
    scores = [
        None if n == 5 else min(5.0, max(1.0, row["gold"] + shift[n]))
        for n, row in enumerate(table)
    ]
    return [row | {"gold": score} for row, score in zip(table, scores, strict=True)]


def _pairs(folder: Path) -> list[Row]:
    """Two responses a row, with people's preference."""
    table = rows(folder, 40)
    return [
        {
            name: a[name]
            for name in ("image", "instruction", "reference_answer", "criteria", "descriptions")
        }
        | {"id": f"pair-{a['id']}", "response_a": a["response"], "response_b": b["response"]}
        | {"preference": "tie" if a["gold"] == b["gold"] else "a" if a["gold"] > b["gold"] else "b"}
        for a, b in zip(table[::2], table[1::2], strict=True)
    ]


def _table(folder: Path) -> str:
    """A CSV with `image_path`, levels as a list in a cell, several criteria, and no group."""
    named = [
        {
            "image_path": row["image"],
            "descriptions": json.dumps(FIVE),
            **_without([row], "image", "descriptions")[0],
        }
        | {"criteria": f"{row['criteria']} ({'colour' if number % 2 else 'shape'})"}
        for number, row in enumerate(rows(folder))
    ]
    path = folder / "items.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(named[0]))
        writer.writeheader()
        writer.writerows(named)
    return str(path)


def _saved(folder: Path) -> str:
    """A folder such as notebook 05 exports: a `datasets` collection with two raters."""
    (folder / "source").mkdir()
    items = vj.load_collection(_jsonl(folder / "source", _raters(folder / "source")))
    scored = [
        [score for score in scores[:2] if score is not None] for scores in items["human_scores"]
    ]
    items = items.remove_columns("human_scores").add_column("human_scores", scored)
    items.save_to_disk(folder / "collection")
    return str(folder / "collection")


ROWS: dict[str, Callable[[Path], list[Row]]] = {
    "raters": _raters,
    "fractional": _fractional,
    "from_0": lambda folder: rows(folder, levels=4, lowest=0),
    "from_1": lambda folder: rows(folder, levels=4),
    "ten": lambda folder: rows(folder, levels=10),
    "long": lambda folder: [
        row | {"criteria": (GERMAN, CHINESE)[n % 2]} for n, row in enumerate(rows(folder))
    ],
    "few": lambda folder: rows(folder, 20),
    "pairs": _pairs,
    "no_reference": lambda folder: _without(rows(folder), "reference_answer"),
    "unscored": lambda folder: _without(rows(folder), "gold"),
    "text_only": lambda folder: [row | {"images": []} for row in _without(rows(folder), "image")],
}
KINDS = ("table", *ROWS, "saved")


def write(kind: str, folder: Path) -> str:
    """Write a collection of a kind into a folder; returns where it is."""
    return {"table": _table, "saved": _saved}.get(
        kind, lambda path: _jsonl(path, ROWS[kind](path))
    )(folder)
