"""Qualitative examples as the appendices of papers print them: as a figure, and as LaTeX."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from PIL import Image

from vjudge.data import rows_of
from vjudge.images import open_image, thumbnail
from vjudge.plots.save import check_name, latex
from vjudge.plots.style import INK, MIN_TEXT, Page, drawable, looks, page

LINE = 0.125  # inches from line to line
SIDE = 1.3  # inches of the image
PIXELS = 640  # of the longer side of an image
LONGEST = 1_200  # characters of a text that are printed; the rest is "…"


class Example(NamedTuple):
    """One item: its image, texts by their heading, and the judge of each heading that is one's."""

    image: Image.Image | None
    texts: dict[str, str]
    judges: dict[str, str]


def examples(items: Any, runs: Mapping[str, pd.DataFrame], ids: Sequence[Any]) -> list[Example]:
    """What the boxes of some items hold.

    Args:
        items: a collection, as `data.rows_of` takes it.
        runs: by judge, what `Judge.grade` returned: columns id, score; feedback, failure if known.
        ids: of the items, in order of the boxes.
    """
    rows = {str(row["id"]): row for row in rows_of(items)}
    absent = [id for id in map(str, ids) if id not in rows]
    if absent or not len(ids):
        raise ValueError(f"the collection has no item {absent}: give the ids of some of its rows")
    return [_example(rows[str(id)], runs) for id in ids]


def _example(row: Mapping[str, Any], runs: Mapping[str, pd.DataFrame]) -> Example:
    levels = enumerate(row.get("descriptions") or (), 1)
    rubric = [str(row.get("criteria") or ""), *(f"{level}: {text}" for level, text in levels)]
    texts = {"Instruction": row["instruction"], "Response": row["response"]}
    texts |= {"Reference answer": row.get("reference_answer"), "Rubric": "\n".join(rubric).strip()}
    people = [f"{score:g}" for score in row.get("human_scores") or ()]
    if people:
        texts["People"] = "scores " + ", ".join(people)
    elif row.get("gold") is not None and row["gold"] == row["gold"]:
        texts["True score"] = f"{row['gold']:g}"
    judges = {}
    for name, run in runs.items():
        verdicts = run[run["id"].map(str) == str(row["id"])]
        for _, verdict in verdicts.iterrows():
            score = f"score {verdict['score']:g}"
            if pd.isna(verdict["score"]):
                score = f"no score ({verdict.get('failure') or 'no reason given'})"
            judges[f"{name}: {score}"] = str(name)
            texts[f"{name}: {score}"] = str(verdict.get("feedback") or "")
    image = thumbnail(open_image(row["images"][0]), size=PIXELS) if row["images"] else None
    shown = {}
    for heading, text in texts.items():
        if text or heading in judges:
            shown[heading] = str(text)[:LONGEST] + ("…" if len(str(text)) > LONGEST else "")
    return Example(image, shown, judges)


def qualitative(
    items: Any, runs: Mapping[str, pd.DataFrame], ids: Sequence[Any], **options: Any
) -> Figure:
    """Boxes of image, instruction, response, rubric, people's scores and each judge's feedback.

    Args:
        items, runs, ids: see `examples`. A figure higher than the page is a ValueError.
    """
    cases = examples(items, runs, ids)
    colors = {str(name): look.color for name, look in looks(list(runs)).items()}
    with page(**{"column": "full", **options}) as paper:
        folded = [_fold(case, paper, colors) for case in cases]
        pairs = list(zip(cases, folded, strict=True))
        heights = [max(_image_height(case), LINE * len(lines)) + 0.25 for case, lines in pairs]
        total = sum(heights)
        if total > paper.tall:
            raise ValueError(
                f"the boxes need {total:.1f} inches and the page has {paper.tall:g}: show fewer "
                "items, or use `qualitative_latex`, whose boxes break across pages"
            )
        fig = Figure((paper.inches, total))
        top = total
        for (case, lines), height in zip(pairs, heights, strict=True):
            _box(fig, case, lines, top, height)
            top -= height
        return paper.finish(fig, f"{len(cases)} items")


def _image_height(case: Example) -> float:
    return 0.0 if case.image is None else SIDE * case.image.height / case.image.width


def _fold(case: Example, paper: Page, colors: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """The lines of a box from top to bottom, each with its weight and colour."""
    room = paper.inches - 0.25 - (0 if case.image is None else SIDE + 0.1)
    lines = []
    for heading, text in case.texts.items():
        color = colors.get(case.judges.get(heading, ""), INK)
        lines.append((drawable(heading), "bold", color))
        for paragraph in drawable(text).splitlines():
            wrapped = textwrap.wrap(paragraph, int(paper.characters * room))
            lines += [(line, "normal", INK) for line in wrapped]
    return lines


def _box(
    fig: Figure, case: Example, lines: list[tuple[str, str, str]], top: float, height: float
) -> None:
    """One box, whose upper edge is `top` inches above the figure's lower edge."""
    wide, tall = fig.get_size_inches()
    corner = (0.01, (top - height + 0.04) / tall)
    frame = Rectangle(corner, 0.98, (height - 0.08) / tall, fill=False, ec="#999999", lw=0.6)
    fig.add_artist(frame)
    x = 0.12
    if case.image is not None:
        high = _image_height(case)
        ax = fig.add_axes((x / wide, (top - 0.12 - high) / tall, SIDE / wide, high / tall))
        ax.imshow(case.image, aspect="auto")
        ax.axis("off")
        x += SIDE + 0.1
    for place, (line, weight, color) in enumerate(lines):
        y = (top - 0.12 - place * LINE) / tall
        fig.text(x / wide, y, line, weight=weight, color=color, va="top", fontsize=MIN_TEXT)


def qualitative_latex(
    items: Any,
    runs: Mapping[str, pd.DataFrame],
    ids: Sequence[Any],
    name: str,
    *,
    folder: str | Path = "figures",
) -> dict[str, Path]:
    r"""Write the boxes as LaTeX, every text escaped.

    The preamble needs `\usepackage[breakable]{tcolorbox}` and `\usepackage{graphicx}`.

    Args:
        items, runs, ids: see `examples`.
        name: of the file, and the first part of the images' names.

    Returns:
        The path of the file, "tex", and of each image by its item's place: "image 1".
    """
    folder = Path(folder)
    check_name(name)
    cases = examples(items, runs, ids)
    folder.mkdir(parents=True, exist_ok=True)
    paths = {"tex": folder / f"{name}.tex"}
    lines = []
    for place, case in enumerate(cases, 1):
        title = rf"Item {latex(str(ids[place - 1]))}"
        lines.append(rf"\begin{{tcolorbox}}[breakable,colback=white,title={{{title}}}]\small")
        if case.image is not None:
            path = folder / f"{name}_{place}.png"
            case.image.save(path)
            paths[f"image {place}"] = path
            size = "width=.4\\linewidth,height=.3\\textheight,keepaspectratio"
            lines.append(rf"\begin{{center}}\includegraphics[{size}]{{{path.name}}}\end{{center}}")
        for heading, text in case.texts.items():
            paragraphs = [rf"\textbf{{{latex(heading)}}}", *map(latex, text.splitlines())]
            lines.append("\\par ".join(paragraphs) + r"\par\medskip")
        lines.append(r"\end{tcolorbox}")
    paths["tex"].write_text("\n".join(lines) + "\n", encoding="utf-8")
    return paths
