"""Qualitative examples as the appendices of papers print them: as a figure, and as LaTeX."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import text_to_path
from PIL import Image

from vjudge.data import rows_of
from vjudge.data.schema import Items, pictures_in
from vjudge.images import open_image, thumbnail
from vjudge.plots.escaping import latex
from vjudge.plots.save import check_name
from vjudge.plots.style import MIN_TEXT, PageFull, clean, drawable, page
from vjudge.records import is_missing, row_levels

LINE = 0.125  # inches from line to line
BOX_SHARE = 0.7  # of the page's width that a line of text takes
MIN_LINES = 11  # lines of a box, beside its image
HEADINGS = {
    "instruction": "Instruction",
    "response": "Response",
    "response_a": "Response A",
    "response_b": "Response B",
    "reference_answer": "Reference answer",
    "criteria": "Rubric",
    "descriptions": "Score levels",
    "human_scores": "People's scores",
    "preference": "People's choice",
    "gold": "True score",
}


def _cases(items: Any, runs: Mapping, ids: Sequence) -> list:
    """The pictures of each item as one, or None, and its texts by heading."""
    rows = {str(row["id"]): row for row in rows_of(items)}
    absent = [id for id in map(str, ids) if id not in rows]
    if absent:
        raise ValueError(f"the collection has no item {absent}: give the ids of some of its rows")
    cases = []
    for id in map(str, ids):
        pictures = [thumbnail(open_image(source), size=640) for _, source in pictures_in(rows[id])]
        image = _stacked(pictures) if pictures else None
        texts = _texts(rows[id])
        for name, run in runs.items():
            for verdict in run[run["id"].map(str) == id].to_dict("records"):
                texts[f"{name}: {_heading(verdict)}"] = verdict.get("feedback") or ""
        cases.append((image, texts))
    return cases


def _stacked(pictures: Sequence[Image.Image]) -> Image.Image:
    """Pictures of a question and its responses one below another, on white, each as wide."""
    width = max(picture.width for picture in pictures)
    scaled = [
        picture.resize((width, round(picture.height * width / picture.width)))
        for picture in pictures
    ]
    gap = width // 32
    height = sum(picture.height + gap for picture in scaled) - gap
    sheet = Image.new("RGB", (width, height), "white")
    top = 0
    for picture in scaled:
        sheet.paste(picture, (0, top))
        top += picture.height + gap
    return sheet


def _heading(verdict: Mapping) -> str:
    """What a judge decided, or why it did not."""
    chosen = verdict.get("verdict", verdict.get("score"))
    if is_missing(chosen):
        return f"no verdict ({verdict.get('failure') or 'no reason given'})"
    decided = f"says {chosen}" if "verdict" in verdict else f"score {chosen:g}"
    return f"{decided} (closed)" if verdict.get("closed") else decided


def _texts(row: Mapping) -> dict:
    """An item's own texts by heading."""
    texts = {}
    for name, heading in HEADINGS.items():
        value = row.get(name)
        if name == "descriptions":
            levels = row_levels(row)
            value = "\n".join(f"{score}: {text}" for score, text in levels.items())
        elif name == "human_scores":
            value = ", ".join(map("{:g}".format, value or ()))
        elif name == "gold" and value is not None:
            value = f"{value:g}".replace("nan", "")
        if value:
            texts[heading] = str(value)
    return texts


def qualitative(items: Any, runs: Mapping, ids: Sequence, **options: Any) -> Figure:
    """Boxes of pictures, instruction, response, rubric, people's scores and each judge's feedback.

    Args:
        items: a collection, as `data.rows_of` takes it.
        runs: by judge, what `Judge.grade` returned: columns id, score; feedback, failure if known.
        ids: of the items, in order of the boxes.

    Raises:
        ValueError: an item is absent; the boxes are higher than the page.
    """
    cases = _cases(items, runs, ids)
    with page(**{"column": "full", **options}) as paper:
        boxes = [_lines(texts, BOX_SHARE * paper.inches) for _, texts in cases]
        sizes = [max(len(lines), MIN_LINES) for lines in boxes]
        height = LINE * sum(sizes) + 0.2
        if height > paper.tall:
            raise PageFull(
                f"the boxes need {height:.1f} inches and the page has {paper.tall:g}: show fewer "
                "items, or use `qualitative_latex`, whose boxes break across pages"
            )
        shape: dict = {"width_ratios": (1, 4), "height_ratios": sizes, "squeeze": False}
        fig, axes = paper.subplots(height, len(cases), 2, **shape)
        for (left, right), (image, _), lines, size in zip(axes, cases, boxes, sizes, strict=True):
            left.axis("off")
            if image is not None:
                left.imshow(image)
                left.set_anchor("N")
            right.set(ylim=(size, -0.9), xticks=[], yticks=[])
            right.spines[:].set_visible(True)
            for y, (label, weight) in enumerate(lines):
                style: dict = {"weight": weight, "va": "top", "fontsize": MIN_TEXT}
                right.text(0.01, y, label, in_layout=False, **style)
        return paper.finish(fig, f"{len(cases)} items")


def _lines(texts: Mapping, inches: float) -> list[tuple[str, str]]:
    """The lines of a box from top to bottom, each with its weight, folded at so many inches."""
    lines = []
    for heading, text in texts.items():
        lines.append((drawable(clean(heading)), "bold"))
        for paragraph in drawable(clean(text)).splitlines():
            limit = int(inches * len(paragraph) / max(_inches(paragraph), 1e-6))
            lines += [(wrapped, "normal") for wrapped in textwrap.wrap(paragraph, max(limit, 20))]
    return lines


def _inches(text: str) -> float:
    """How wide a text is on one line of a box."""
    prop = FontProperties(size=MIN_TEXT)
    points, *_ = text_to_path.get_text_width_height_descent(text, prop, ismath=False)
    return float(points) / 72


def qualitative_latex(
    items: Items, runs: Mapping, ids: Sequence, name: str, *, folder: str | Path = "figures"
) -> Path:
    r"""Write the boxes as LaTeX, every text escaped.

    The preamble needs `\usepackage[breakable]{tcolorbox}` and `\usepackage{graphicx}`.

    Args:
        items, runs, ids: see `qualitative`.
        name: of the file, and the first part of the images' names.

    Returns:
        The path of the file; the images stand beside it.
    """
    check_name(name)
    folder = Path(folder).expanduser()
    cases = _cases(items, runs, ids)
    folder.mkdir(parents=True, exist_ok=True)
    lines = []
    for number, (image, texts) in enumerate(cases, 1):
        lines.append(rf"\begin{{tcolorbox}}[breakable,colback=white,title=Item {number}]\small")
        if image is not None:
            path = folder / f"{name}_{number}.png"
            image.save(path)
            lines.append(rf"\includegraphics[width=.4\linewidth]{{{path.name}}}\par\medskip")
        for heading, text in texts.items():
            paragraphs = [rf"\textbf{{{latex(heading)}}}", *map(latex, text.splitlines())]
            lines.append("\\par ".join(paragraphs) + r"\par\medskip")
        lines.append(r"\end{tcolorbox}")
    path = folder / f"{name}.tex"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path
