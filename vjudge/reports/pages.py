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
WIDE, TALL, MARGIN = 8.27, 11.69, 0.55  # inches of an A4 page and of its margin
INNER = WIDE - 2 * MARGIN


def to_html(card: Card) -> str:
    """A card as one HTML file that needs no other; texts of data and models are escaped and turn no direction."""
    figures = [
        (_caption(one), base64.b64encode(_pixels(one)).decode(), one.figure.get_figwidth() > 4) for one in card.pictures
    ]
    template = Environment(autoescape=True).from_string((ASSETS / "report.html").read_text(encoding="utf-8"))
    own = {"marks": MARKS, "small": SMALL, "subtitle": _subtitle(card), "notes": _notes(card)}
    return clean(template.render(card=card, figures=figures, **own))


def to_pdf(card: Card, path: Path) -> None:
    """A card as one A4 page, in the largest print in which all of it fits."""
    with plots.page(note=False) as paper:
        for size in np.arange(9, 3, -0.25):
            figure, end = _sheet(card, paper, float(size))
            if end < TALL - MARGIN:
                break
        with PdfPages(path, metadata={"CreationDate": None, "Title": f"Report card: {clean(card.judge)}"}) as pdf:
            pdf.savefig(paper.finish(figure))


def _sheet(card: Card, paper: plots.Page, size: float) -> tuple[Figure, float]:
    """The page at a size of print, and how far down it reaches, in inches."""
    figure, y = Figure((WIDE, TALL)), MARGIN

    def row(*cells: tuple[float, float, str | Picture, float, dict[str, Any]], rule: str = "") -> None:
        """Cells beside one another: place and width in inches, a text or figure, its size in the page's, and looks."""
        nonlocal y
        ends = [y]
        for x, inches, content, scale, look in cells:
            bottom = y
            if isinstance(content, Picture):
                width, height = content.figure.get_size_inches() * inches / content.figure.get_figwidth()
                bottom += height + 0.04
                box = ((MARGIN + x) / WIDE, 1 - (y + height) / TALL, width / WIDE, height / TALL)
                ax = figure.add_axes(box)
                ax.imshow(imread(io.BytesIO(_pixels(content))), aspect="auto", interpolation="none")
                ax.axis("off")
                content = _caption(content)
            share = 0.88 if look.get("weight") == "bold" else 0.97  # letters are measured as regular ones
            for part in content.split("\n"):
                for line in paper.wrap(part, share * inches, size * scale):
                    place = (MARGIN + x) / WIDE, 1 - bottom / TALL
                    figure.text(*place, line, fontsize=size * scale, va="top", **{"color": INK, **look})
                    bottom += 1.4 * size * scale / 72
            ends.append(bottom)
        y = max(ends) + size / 200
        if rule:
            ends_of = [MARGIN / WIDE, 1 - MARGIN / WIDE]
            figure.add_artist(Line2D(ends_of, [1 - y / TALL] * 2, color=rule, lw=0.8))
            y += size / 150

    row((0, INNER, "A JUDGE'S REPORT CARD", 0.85, {"color": GREY}))
    row((0, INNER, card.judge, 1.9, {"weight": "bold"}))
    row((0, INNER, _subtitle(card), 1, {}), rule=INK)
    for part in card.parts:
        mark, color = MARKS[part.state]
        first, red = part.table.iloc[0], {"color": RED} if part.state == "against" else {}
        number = f"{interval_text(first)} {first['unit'].replace('correlation', '')}\n{first['measure']}"
        row(
            (0, 0.2, mark, 1, {"color": color, "weight": "bold"}),
            (0.2, 1.6, part.question, 1, {"weight": "bold"}),
            (1.9, 1.75, number, 0.9, {}),
            (3.7, 0.8, f"n = {span(part.table['n'])}", 0.85, {"color": GREY}),
            (4.55, INNER - 4.55, part.sentence, 0.95, red),
            rule="#DDDDDD",
        )
    small = [picture for picture in card.pictures if picture.figure.get_figwidth() < 4][:3]
    each = (INNER + 0.2) / 3
    row(*((each * place, each - 0.2, picture, 0.75, {"color": GREY}) for place, picture in enumerate(small)))
    for title, lines in _notes(card):
        y += size / 150
        row((0, INNER, title, 1, {"weight": "bold"}))
        row((0, INNER, " • ".join(lines), 0.85, {}))
    row((0, INNER, SMALL, 0.8, {"color": GREY}))
    return figure, y


def to_paper(card: Card, folder: Path) -> None:
    """The folder for a paper: main.tex, methods.tex and references.bib, tables and figures."""
    body = []
    for part in card.parts:
        name, caption = part.name.replace(" ", "_"), f"{part.question} {part.sentence}"
        if name == "agreement" and card.correlations is not None:
            caption += " The best of a column is bold; intervals are at 95%."
            options: dict[str, Any] = {"intervals": True, "precision": 2}
            plots.save_correlations(card.correlations, name, caption=caption, folder=folder / "tables", **options)
        else:
            plots.save_table(part.text, name, caption=caption, folder=folder / "tables")
        body.append(rf"\input{{tables/{name}}}")
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
            words = latex(source).replace(r"\{", "(").replace(r"\}", ")")  # BibTeX counts these braces too
            entry = entry or f"@misc{{source{len(cited)},\n  key = {{{words}}},\n  note = {{{words}}}\n}}\n"
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
    groups = f" in {card.scores['group'].nunique():,} groups" * (card.groups is not None)
    return clean(f"{len(card.scores):,} items{groups} of {card.collection}, held against {card.truth}.")


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
    parts = (picture.caption, str(picture.figure.get_label()))
    return clean(". ".join(part.rstrip(".") for part in parts if part) + ".")


def _pixels(picture: Picture) -> bytes:
    """A figure as PNG."""
    file = io.BytesIO()
    with plots.page():
        picture.figure.savefig(file, format="png", dpi=220, metadata={"Software": None})
    return file.getvalue()
