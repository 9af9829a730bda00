"""A card as files: HTML that holds its images, one A4 page for print, and the folder for a paper."""

from __future__ import annotations

import base64
import io
import re
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment
from matplotlib.backends.backend_pdf import PdfPages
from matplotlib.figure import Figure
from matplotlib.image import imread
from matplotlib.lines import Line2D

from vjudge import plots
from vjudge.plots.save import latex
from vjudge.plots.style import INK, clean, span
from vjudge.reports.card import Card, Picture, interval_text

ASSETS = files("vjudge") / "assets"
RED, GREY = "#B3261E", "#6B6B6B"
MARKS = {"against": ("✗", RED), "open": ("?", GREY), "sound": ("✓", "#1B6E53"), "described": ("•", GREY)}
SMALL = (
    "Estimates stand before their 95% intervals. Red is what a test says after Holm's correction over all tests of the"
    " card; a question mark is what these items can't decide."
)
TALL, MARGIN, INNER = 11.69, 0.55, 8.27 - 2 * 0.55  # inches of an A4 page, its margin and the width between


def write(card: Card, folder: Path) -> dict[str, Path]:
    """Write a card into a folder; see `Card.write`."""
    paths = {"html": folder / "report.html", "pdf": folder / "report.pdf", "paper": folder / "paper"}
    paths["paper"].mkdir(parents=True, exist_ok=True)
    paths["html"].write_text(to_html(card), encoding="utf-8")
    to_pdf(card, paths["pdf"])
    to_paper(card, paths["paper"])
    return paths


def to_html(card: Card) -> str:
    """A card as one HTML file that needs no other; texts of data and models are escaped and turn no direction."""
    shown = [(_caption(one), _pixels(one), one.figure.get_figwidth() > 4) for one in card.pictures]
    figures = [(text, base64.b64encode(image).decode(), full) for text, image, full in shown]
    template = Environment(autoescape=True).from_string((ASSETS / "report.html").read_text(encoding="utf-8"))
    own = {"marks": MARKS, "small": SMALL, "subtitle": _subtitle(card), "notes": _notes(card)}
    return clean(template.render(card=card, figures=figures, **own))


def to_pdf(card: Card, path: Path) -> None:
    """A card as one A4 page, in the largest print in which all of it fits."""
    with plots.page(note=False) as paper:
        for size in np.arange(9, 3, -0.25):
            sheet = _Sheet(paper, float(size), card)
            if sheet.y < TALL - MARGIN:
                break
        with PdfPages(path, metadata={"CreationDate": None, "Title": f"Report card: {clean(card.judge)}"}) as pdf:
            pdf.savefig(paper.finish(sheet.figure))


class _Sheet:
    """The page at a size of print; `y` is how far down it reaches, in inches."""

    def __init__(self, paper: plots.Page, size: float, card: Card) -> None:
        self.paper, self.size, self.y, self.figure = paper, size, MARGIN, Figure((INNER + 2 * MARGIN, TALL))
        self.row((0, INNER, "A JUDGE'S REPORT CARD", 0.85, {"color": GREY}))
        self.row((0, INNER, card.judge, 1.9, {"weight": "bold"}))
        self.row((0, INNER, _subtitle(card), 1, {}), rule=INK)
        for part in card.parts:
            mark, color = MARKS[part.state]
            unit = part.table["unit"].iloc[0].replace("correlation", "")
            first, red = part.table.iloc[0], {"color": RED} if part.state == "against" else {}
            self.row(
                (0, 0.2, mark, 1, {"color": color, "weight": "bold"}),
                (0.2, 1.6, part.question, 1, {"weight": "bold"}),
                (1.9, 1.75, f"{interval_text(first)} {unit}\n{first['measure']}", 0.9, {}),
                (3.7, 0.8, f"n = {span(part.table['n'])}", 0.85, {"color": GREY}),
                (4.55, INNER - 4.55, part.sentence, 0.95, red),
                rule="#DDDDDD",
            )
        tops, wide = [self.y] * 2, INNER / 2 - 0.12
        for picture in [one for one in card.pictures if one.figure.get_figwidth() < 4][:3]:
            column = tops.index(min(tops))
            scale = min(wide / picture.figure.get_figwidth(), size / 8.5)
            width, height = picture.figure.get_size_inches() * scale
            box = (
                self.place(column * (wide + 0.24), tops[column] + height),
                (width / (INNER + 2 * MARGIN), height / TALL),
            )
            ax = self.figure.add_axes((*box[0], *box[1]))
            ax.imshow(imread(io.BytesIO(_pixels(picture))), aspect="auto", interpolation="none")
            ax.axis("off")
            self.y = tops[column] + height + 0.03
            self.row((column * (wide + 0.24), wide, _caption(picture), 0.8, {"color": GREY}))
            tops[column] = self.y + 0.1
        self.y = max(tops)
        for title, lines in _notes(card):
            self.y += size / 150
            self.row((0, INNER, title, 1, {"weight": "bold"}))
            self.row((0, INNER, " • ".join(lines), 0.85, {}))
        self.row((0, INNER, SMALL, 0.8, {"color": GREY}))

    def place(self, x: float, y: float) -> tuple[float, float]:
        """Inches from the margin and from the top, as shares of the page from its lower left."""
        return (MARGIN + x) / (INNER + 2 * MARGIN), 1 - y / TALL

    def row(self, *cells: tuple[float, float, str, float, dict[str, Any]], rule: str = "") -> None:
        """Cells beside one another: place and width in inches, text, its size in those of the page, and looks."""
        ends = []
        for x, inches, text, scale, look in cells:
            size, y = self.size * scale, self.y
            share = 0.88 if look.get("weight") == "bold" else 0.97  # letters are measured as regular ones
            for line in [line for part in text.split("\n") for line in self.paper.wrap(part, share * inches, size)]:
                self.figure.text(*self.place(x, y), line, fontsize=size, va="top", **{"color": INK, **look})
                y += 1.4 * size / 72
            ends.append(y)
        self.y = max(ends) + self.size / 200
        if rule:
            (left, y), (right, _) = self.place(0, self.y), self.place(INNER, self.y)
            self.figure.add_artist(Line2D([left, right], [y, y], color=rule, lw=0.8))
            self.y += self.size / 150


def to_paper(card: Card, folder: Path) -> None:
    """The folder for a paper: main.tex, methods.tex and references.bib, tables and figures."""
    names = [part.name.replace(" ", "_") for part in card.parts]
    for name, part in zip(names, card.parts, strict=True):
        caption = f"{part.question} {part.sentence}"
        if name == "agreement" and card.correlations is not None:
            caption += " The best of a column is bold; intervals are at 95%."
            options: dict[str, Any] = {"intervals": True, "precision": 2}
            plots.save_correlations(card.correlations, name, caption=caption, folder=folder / "tables", **options)
        else:
            plots.save_table(part.text, name, caption=caption, folder=folder / "tables")
    body = [rf"\input{{tables/{name}}}" for name in names]
    for name, figure, caption, frame in card.pictures:
        paths = plots.save_figure(figure, name, caption=caption, data=frame, folder=folder / "figures")
        text = latex(paths["txt"].read_text(encoding="utf-8").strip())
        body += [r"\begin{figure}[p]\centering", rf"\includegraphics{{figures/{name}}}", rf"\caption{{{text}}}"]
        body += [rf"\label{{fig:{name}}}", r"\end{figure}"]
    lines = [rf"\item {latex(what)}: {latex(why)}" for what, why in card.absent]
    body += [r"\paragraph{Not measured}\begin{itemize}", *lines, r"\end{itemize}"] if lines else []
    entries = re.split(r"\n(?=@)", (ASSETS / "report.bib").read_text(encoding="utf-8"))
    sentences, cited = [], dict[str, str]()
    for text, sources in card.methods:
        keys = []
        for source in sources:
            number = re.search(r"\d{4}\.\d{4,5}", source)
            entry = next((entry for entry in entries if (number[0] if number else f"{{{source},") in entry), None)
            title = latex(source).replace(r"\{", "(").replace(r"\}", ")")  # BibTeX counts these braces too
            entry = entry or f"@misc{{source{len(cited)},\n  title = {{{{{title}}}}}\n}}\n"
            keys.append(re.split("[{,]", entry)[1])
            cited[keys[-1]] = entry
        sentences.append(latex(text) + (rf"~\cite{{{','.join(keys)}}}" if keys else "") + ".")
    (folder / "methods.tex").write_text("\n".join(sentences) + "\n", encoding="utf-8")
    (folder / "references.bib").write_text("\n".join(cited.values()), encoding="utf-8")
    fields = {"WIDTH": f"{plots.width(card.venue, 'full'):.2f}in", "TITLE": latex(f"Report card: {card.judge}")}
    fields["BODY"] = "\n".join(body)
    main = (ASSETS / "report.tex").read_text(encoding="utf-8")
    (folder / "main.tex").write_text(re.sub("<([A-Z]+)>", lambda match: fields[match[1]], main), encoding="utf-8")


def _subtitle(card: Card) -> str:
    """What was judged, and what it was held against."""
    count, groups = len(card.scores.ids), len(set(card.scores.group))
    inside = f" in {groups:,} groups" if groups < count else ""
    return clean(f"{count:,} items{inside} of {card.collection}, held against {card.truth}.")


def _notes(card: Card) -> list[tuple[str, list[str]]]:
    """The lists below a card's parts; those that are empty are left out."""
    notes = {
        "What could not be measured": [f"{what}: {why}" for what, why in card.absent],
        "To know before a number is printed": card.remarks,
        "How it was made": [" ".join(f"{text}." for text, _ in card.methods)],
    }
    return [(title, lines) for title, lines in notes.items() if lines]


def _caption(picture: Picture) -> str:
    """A figure's caption with its own account of what is drawn."""
    return clean(
        ". ".join(part.rstrip(".") for part in (picture.caption, str(picture.figure.get_label())) if part) + "."
    )


def _pixels(picture: Picture) -> bytes:
    """A figure as PNG."""
    file = io.BytesIO()
    with plots.page():
        picture.figure.savefig(file, format="png", dpi=220, metadata={"Software": None})
    return file.getvalue()
