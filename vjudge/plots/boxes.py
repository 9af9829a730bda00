"""Show qualitative examples as the appendices of papers do: as a figure, and as LaTeX."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import text_to_path
from pandas import DataFrame
from PIL import Image

from vjudge.data import rows_of
from vjudge.data.schema import Items, pictures_in
from vjudge.images import open_image, thumbnail
from vjudge.plots.escaping import latex
from vjudge.plots.save import check_name
from vjudge.plots.style import MIN_TEXT, Look, PageFull, clean, drawable, page
from vjudge.records import is_missing, row_levels

LINE_INCHES = 0.125  # from one line of text to the next
BOX_SHARE = 0.7  # the share of the page's width that a line of text takes
MIN_LINES = 11  # height of a box, in lines of text, that leaves room for its image
MIN_CHARACTERS = 20  # that a line may hold
THUMBNAIL_SIZE = 640  # pixels of the longer side
# Fields of an item -> their headings in a box, from top to bottom
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


@dataclass(frozen=True)
class BoxContent:
    """The image and the texts that the box of one item shows."""

    image: Image.Image | None  # all images of the item stacked into one
    texts: dict[str, str]  # heading -> text, from top to bottom


def _examples(
    items: Items, runs: Mapping[str, DataFrame], ids: Sequence[object]
) -> list[BoxContent]:
    """Collect the content of a box for each id, in their order.

    Args:
        items, runs, ids: as in `qualitative`.

    Raises:
        ValueError: the collection lacks an id.
    """
    rows = {str(row["id"]): row for row in rows_of(items)}
    absent = [id for id in map(str, ids) if id not in rows]
    if absent:
        raise ValueError(f"the collection has no item {absent}: give the ids of some of its rows")
    examples = []
    for id in map(str, ids):
        images = [
            thumbnail(open_image(source), size=THUMBNAIL_SIZE)
            for _, _, source in pictures_in(rows[id])  # its column, its position, the image
        ]
        texts = _item_texts(rows[id])
        for name, run in runs.items():
            for verdict in run[run["id"].map(str) == id].to_dict("records"):
                texts[f"{name}: {_decision(verdict)}"] = verdict.get("feedback") or ""
        examples.append(BoxContent(_stacked(images) if images else None, texts))
    return examples


def _stacked(images: Sequence[Image.Image]) -> Image.Image:
    """Stack images on a white sheet, one below the other, scaled to the same width."""
    width = max(image.width for image in images)
    scaled = [image.resize((width, round(image.height * width / image.width))) for image in images]
    gap = width // 32
    height = sum(image.height + gap for image in scaled) - gap
    sheet = Image.new("RGB", (width, height), "white")
    top = 0
    for image in scaled:
        sheet.paste(image, (0, top))
        top += image.height + gap
    return sheet


def _decision(verdict: Mapping[str, Any]) -> str:
    """Describe what a judge decided, or why it did not decide.

    Args:
        verdict: a row of a run, which has `verdict` if pairs were compared, else `score`.
    """
    decided = verdict.get("verdict", verdict.get("score"))
    if is_missing(decided):
        return f"no verdict ({verdict.get('failure') or 'no reason given'})"
    # A verdict on a pair is a word, and a score a number. "closed": the engine was made to complete
    # an answer without a verdict.
    text = f"says {decided}" if "verdict" in verdict else f"score {decided:g}"
    return f"{text} (closed)" if verdict.get("closed") else text


def _item_texts(row: Mapping[str, Any]) -> dict[str, str]:
    """Collect an item's texts by heading, without those that are empty or missing."""
    texts = {}
    for name, heading in HEADINGS.items():
        value = row.get(name)
        if name == "descriptions":
            value = "\n".join(f"{score}: {text}" for score, text in row_levels(row).items())
        elif name == "human_scores":
            # A rater who gave no score keeps a position, since the position identifies the rater
            value = ", ".join("–" if is_missing(score) else f"{score:g}" for score in value or ())
        elif name == "gold":
            value = "" if is_missing(value) else f"{value:g}"
        if value:
            texts[heading] = str(value)
    return texts


def qualitative(
    items: Items, runs: Mapping[str, DataFrame], ids: Sequence[object], **options: Any
) -> Figure:
    """Draw a box for each item: images, texts, human scores and each judge's feedback.

    Args:
        items: a collection, as `data.rows_of` takes it.
        runs: judge's name -> what `Judge.grade` or `Judge.compare` returned: columns id, and score
            or verdict; optionally feedback, failure, closed.
        ids: of the items, in the order of the boxes.
        options: of `page`; the column is "full" by default.

    Raises:
        ValueError: the collection lacks an id.
        PageFull: the boxes are higher than the page.
    """
    examples = _examples(items, runs, ids)
    with page(**{"column": "full", **options}) as paper:
        boxes = [_folded_lines(example.texts, BOX_SHARE * paper.inches) for example in examples]
        n_lines = [max(len(lines), MIN_LINES) for lines in boxes]
        height = LINE_INCHES * sum(n_lines) + 0.2
        if height > paper.tall:
            raise PageFull(
                f"the boxes need {height:.1f} inches and the page has {paper.tall:g}: show fewer "
                "items, or use `qualitative_latex`, whose boxes break across pages"
            )
        # A row for each item: its image at the left, and its texts at the right
        fig, axes = paper.subplots(
            height, len(examples), 2, width_ratios=(1, 4), height_ratios=n_lines, squeeze=False
        )
        for row, example in enumerate(examples):
            left, right = axes[row]
            left.axis("off")
            if example.image is not None:
                left.imshow(example.image)
                left.set_anchor("N")
            # y counts lines from the top, with almost one line of space above the first
            right.set(ylim=(n_lines[row], -0.9), xticks=[], yticks=[])
            right.spines[:].set_visible(True)
            for y, (text, weight) in enumerate(boxes[row]):
                style: Look = {"weight": weight, "va": "top", "fontsize": MIN_TEXT}
                right.text(0.01, y, text, in_layout=False, **style)
        return paper.finish(fig, f"{len(examples)} items")


def _folded_lines(texts: Mapping[str, str], inches: float) -> list[tuple[str, str]]:
    """Fold the texts of a box into lines.

    Args:
        texts: heading -> text. inches: the width of a line.

    Returns:
        The lines from top to bottom, each with its font weight: "bold" for a heading, else
        "normal".
    """
    lines = []
    for heading, text in texts.items():
        lines.append((drawable(clean(heading)), "bold"))
        for paragraph in drawable(clean(text)).splitlines():
            # The paragraph's own mean width of a character says how many fit on a line
            limit = int(inches * len(paragraph) / max(_inches(paragraph), 1e-6))
            folds = textwrap.wrap(paragraph, max(limit, MIN_CHARACTERS))
            lines += [(fold, "normal") for fold in folds]
    return lines


def _inches(text: str) -> float:
    """Measure how many inches wide a text is, on one line of a box."""
    font = FontProperties(size=MIN_TEXT)
    points, *_ = text_to_path.get_text_width_height_descent(text, font, ismath=False)
    return float(points) / 72  # an inch has 72 points


def qualitative_latex(
    items: Items,
    runs: Mapping[str, DataFrame],
    ids: Sequence[object],
    name: str,
    *,
    folder: str | Path = "figures",
) -> Path:
    r"""Write the boxes of `qualitative` as a LaTeX file, with every text escaped.

    The preamble needs `\usepackage[breakable]{tcolorbox}` and `\usepackage{graphicx}`.

    Args:
        items, runs, ids: as in `qualitative`.
        name: of the file, NAME.tex; the images are NAME_1.png and so on.
        folder: where to write; it is made if absent.

    Returns:
        The path of the file; the images are in the same folder.

    Raises:
        ValueError: a bad name, or the collection lacks an id.
    """
    check_name(name)
    folder = Path(folder).expanduser()
    examples = _examples(items, runs, ids)
    folder.mkdir(parents=True, exist_ok=True)
    lines = []
    for number, example in enumerate(examples, 1):
        lines.append(rf"\begin{{tcolorbox}}[breakable,colback=white,title=Item {number}]\small")
        if example.image is not None:
            path = folder / f"{name}_{number}.png"
            example.image.save(path)
            lines.append(rf"\includegraphics[width=.4\linewidth]{{{path.name}}}\par\medskip")
        for heading, text in example.texts.items():
            paragraphs = [rf"\textbf{{{latex(heading)}}}", *map(latex, text.splitlines())]
            lines.append("\\par ".join(paragraphs) + r"\par\medskip")
        lines.append(r"\end{tcolorbox}")
    path = folder / f"{name}.tex"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path
