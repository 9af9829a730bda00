"""A card as files: HTML that holds its images, one A4 page for print, and the folder for a paper; all from assets/."""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from jinja2 import Environment, StrictUndefined
from matplotlib.backends.backend_pdf import PdfPages
from matplotlib.figure import Figure
from matplotlib.image import imread

from vjudge import plots
from vjudge.metrics.tables import format_interval, format_p
from vjudge.plots.save import latex, sentences
from vjudge.plots.style import INK, clean, span

ASSETS = files("vjudge") / "assets"
RED, GREY = "#B3261E", "#6B6B6B"
MARKS = {"against": "Problem:", "open": "Open:", "sound": "Passed:", "described": "Described:"}
LOOKS: dict[str, dict[str, Any]] = {"#": {"scale": 1.9, "weight": "bold"}, "*": {"weight": "bold"},
                                    "!": {"color": RED}, "~": {"scale": 0.85, "color": GREY}}  # fmt: skip
WIDE, TALL, MARGIN, GAP = (
    8.27,
    11.69,
    0.55,
    0.2,
)  # inches of an A4 page, of its margin, and between figures


def interval_text(line: Any) -> str:
    """An estimate and its bounds as the card prints them."""
    estimate, low, high = (float(line.get(name, np.nan)) for name in ("estimate", "low", "high"))
    text = format_interval(estimate, low, high, 1 if line.get("unit") == "tokens" else 2)
    return text.replace("-", "\N{MINUS SIGN}")


def text_of(table: pd.DataFrame) -> pd.DataFrame:
    """A part's numbers as text, without columns that are empty."""
    frame = table[["measure", "unit", "reading"]].astype(str)
    frame.insert(1, "estimate [95%]", table.apply(interval_text, axis=1))
    frame.insert(3, "n", [f"{n:,}" for n in table["n"]])
    tests = table["p_holm"].map(lambda p: "" if np.isnan(p) else format_p(p).removeprefix("= "))
    frame.insert(4, "p (Holm)", tests)
    return frame.loc[:, (frame != "").any()]


def _words(card: Any, macro: str, words: Mapping[str, Any]) -> list[str]:
    """The lines of a macro of assets/report.txt. A text from data can neither begin a line nor cite."""

    def finalize(value: Any) -> str:
        return re.sub(r"[\s⟦⟧]+", " ", str(value))

    env = Environment(
        trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined, finalize=finalize
    )
    env.filters |= {"interval": interval_text, "span": span, "listed": _listed}
    module = env.from_string((ASSETS / "report.txt").read_text(encoding="utf-8")).make_module(
        {"card": card, **words}
    )
    return [line.strip() for line in getattr(module, macro)().splitlines() if line.strip()]


def _listed(facts: Mapping[str, Any], names: Sequence[str] | None = None) -> str:
    """Facts of a manifest in a sentence, those that there are."""
    facts = {name: facts.get(name) for name in names or facts}
    return ", ".join(
        f"{name.replace('_', ' ')} {str(fact)[:40]}"
        for name, fact in facts.items()
        if fact is not None
    )


def say(card: Any, macro: str, words: Mapping[str, Any]) -> list[str]:
    """A part's question and the sentence that follows; what it says of its methods goes to the card's."""
    lines = [line.partition("⟦") for line in _words(card, macro, words)]
    card.methods += [
        (text, [key for key in sources[:-1].split("; ") if key])
        for text, mark, sources in lines
        if mark
    ]
    return [text for text, mark, _ in lines if not mark]


def _context(card: Any) -> dict[str, Any]:
    """What the pages show beside the card's own fields."""
    notes = {
        "What could not be measured": [f"{what}: {why}" for what, why in card.absent],
        "Caveats": card.remarks,
        "How it was made": [" ".join(f"{text}." for text, _ in card.methods)],
    }
    return {
        "marks": MARKS,
        "text_of": text_of,
        "notes": {title: lines for title, lines in notes.items() if lines},
    }


def to_html(card: Any) -> str:
    """A card as one HTML file that needs no other; texts of data and models are escaped and turn no direction."""
    figures = [
        (_caption(one), base64.b64encode(_pixels(one)).decode(), _wide(one)) for one in card.figures
    ]
    template = Environment(autoescape=True).from_string(
        (ASSETS / "report.html").read_text(encoding="utf-8")
    )
    return clean(template.render(card=card, figures=figures, **_context(card)))


def to_pdf(card: Any, path: Path) -> None:
    """A card as one A4 page, in the largest print in which all of it fits."""
    lines = _words(card, "page", _context(card))
    images = [
        (imread(io.BytesIO(_pixels(one))), _caption(one)) for one in card.figures if not _wide(one)
    ][:3]
    with plots.page(note=False) as paper:
        for size in np.arange(11, 3, -0.25):
            figure, end = _sheet(lines, images, paper, float(size))
            if end < TALL - MARGIN:
                break
        with PdfPages(
            path, metadata={"CreationDate": None, "Title": f"Report card: {clean(card.judge)}"}
        ) as pdf:
            pdf.savefig(paper.finish(figure))


def _sheet(
    lines: list[str], images: list[tuple[Any, str]], paper: plots.Page, size: float
) -> tuple[Figure, float]:
    """The page at a size of print, and how far down it reaches, in inches."""
    figure, inner = Figure((WIDE, TALL)), WIDE - 2 * MARGIN

    def write(text: str, x: float, y: float, room: float, scale: float = 1.0, **look: Any) -> float:
        share = 0.88 if "weight" in look else 0.97  # letters are measured as regular ones
        for line in paper.wrap(text, share * room, size * scale):
            place = (MARGIN + x) / WIDE, 1 - y / TALL
            figure.text(*place, line, fontsize=size * scale, va="top", **{"color": INK, **look})
            y += 1.4 * size * scale / 72
        return y

    y, each = MARGIN, (inner + GAP) / 3
    for line in lines:
        if line == "=":
            ends = [y]
            for place, (image, caption) in enumerate(images):
                high = (each - GAP) * image.shape[0] / image.shape[1]
                box = (
                    (MARGIN + each * place) / WIDE,
                    1 - (y + high) / TALL,
                    (each - GAP) / WIDE,
                    high / TALL,
                )
                ax = figure.add_axes(box)
                ax.imshow(image, aspect="auto", interpolation="none")
                ax.axis("off")
                ends.append(
                    write(caption, each * place, y + high + 0.04, each - GAP, 0.75, color=GREY)
                )
            y = max(ends) + size / 100
        else:
            look = LOOKS.get(line[0], {})
            y = write(
                line[1:] if look else line, 0, y + size / 150 * (line[0] == "*"), inner, **look
            )
    return figure, y


def to_paper(card: Any, folder: Path) -> None:
    """The folder for a paper: main.tex, methods.tex and references.bib, tables and figures."""
    for part in card.parts:
        caption, name = f"{part.question} {part.sentence}", part.name
        whole = next((one.data for one in card.figures if one.name == name == "agreement"), None)
        if whole is None:
            plots.save_table(text_of(part.table), name, caption=caption, folder=folder / "tables")
        else:
            caption += " Intervals are at 95%."
            options: dict[str, Any] = {
                "intervals": True,
                "precision": 2,
                "folder": folder / "tables",
            }
            plots.save_correlations(whole, name, caption=caption, **options)
    captions = {}
    for one in card.figures:
        options = {"caption": one.caption, "data": one.data, "folder": folder / "figures"}
        captions[one.name] = (
            plots.save_figure(one.figure, one.name, **options)["txt"].read_text("utf-8").strip()
        )
    entries = re.split(r"\n(?=@)", (ASSETS / "report.bib").read_text(encoding="utf-8"))
    sources: dict[str, str] = {}

    def cite(source: str) -> str:
        """The key of a reference, which joins those of the paper; a text that is in no reference becomes one."""
        number = re.search(r"\d{4}\.\d{4,5}", source)
        entry = next(
            (entry for entry in entries if (number[0] if number else f"{{{source},") in entry), None
        )
        words = (
            latex(source).replace(r"\{", "(").replace(r"\}", ")")
        )  # BibTeX counts these braces too
        entry = (
            entry
            or f"@misc{{source{len(sources)},\n  key = {{{words}}},\n  note = {{{words}}}\n}}\n"
        )
        sources.setdefault(key := re.split("[{,]", entry)[1], entry)
        return key

    tex = Environment(trim_blocks=True, keep_trailing_newline=True, block_start_string="<%", block_end_string="%>",
                      variable_start_string="<<", variable_end_string=">>", comment_start_string="<#",
                      comment_end_string="#>")  # fmt: skip
    tex.filters |= {"latex": latex, "cite": cite}
    for name in ("methods", "main"):
        template = tex.from_string((ASSETS / f"report.{name}.tex").read_text(encoding="utf-8"))
        text = template.render(card=card, captions=captions, width=plots.width(card.venue, "full"))
        (folder / f"{name}.tex").write_text(text, encoding="utf-8")
    (folder / "references.bib").write_text("\n".join(sources.values()), encoding="utf-8")


def _wide(one: Any) -> bool:
    return bool(one.figure.get_figwidth() > 4)


def _caption(one: Any) -> str:
    """A figure's caption with its own account of what is drawn."""
    return sentences(one.caption, str(one.figure.get_label()))


def _pixels(one: Any) -> bytes:
    """A figure as PNG."""
    file = io.BytesIO()
    with plots.page():
        one.figure.savefig(file, format="png", dpi=220, metadata={"Software": None})
    return file.getvalue()
