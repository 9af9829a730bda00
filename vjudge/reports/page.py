"""A card as a page: HTML that holds its images, and PDF for print, drawn without a browser."""

from __future__ import annotations

import base64
import io
from importlib.resources import files
from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import pandas as pd
from jinja2 import Environment
from matplotlib.backends.backend_pdf import PdfPages
from matplotlib.figure import Figure

import vjudge
from vjudge import plots
from vjudge.metrics._tables import format_interval, format_p
from vjudge.plots.style import INK, clean, span
from vjudge.reports.card import Card, Part, Picture, interval_text, tally, the

RED, GREEN, GREY = "#B3261E", "#1B6E53", "#6B6B6B"
MARKS = {"against": ("✗", RED), "open": ("?", GREY), "sound": ("✓", GREEN), "described": ("•", GREY)}
WORDS = {
    "against": "against it, by a corrected test",
    "open": "open",
    "sound": "as it must be",
    "described": "described",
}
A4 = (8.27, 11.69)  # inches
DPI = 250

PAGE = files("vjudge") / "assets" / "report.html"
SMALL = (
    "Estimates stand before their {confidence} intervals. Red is what a test says after Holm's correction over all"
    " tests of the card; a question mark is what these items can't decide. vjudge {version}."
)


def to_html(card: Card) -> str:
    """A card as one HTML file that needs no other; all text of data and models is escaped, and turns no direction."""
    environment = Environment(autoescape=True, trim_blocks=False)
    figures = []
    for picture in card.pictures:
        figures.append((picture, _inline(picture.figure), _caption(picture)))
    page = environment.from_string(PAGE.read_text(encoding="utf-8")).render(
        card=card, parts=[(part, _lines(part)) for part in card.parts], tiles=tiles(card), figures=figures,
        marks=MARKS, words=WORDS, subtitle=subtitle(card), methods=methods(card), small=small(),
    )  # fmt: skip
    return clean(page)


def to_pdf(card: Card, path: str | Path) -> None:
    """A card as A4 pages: questions and answers on the first, then figures and how it was made."""
    with plots.page(venue="acl", column="full", note=False) as paper:
        pen = _Pen(paper)
        pen.text("A JUDGE'S REPORT CARD", 7.5, color=GREY)
        pen.text(clean(card.judge), 18, weight="bold")
        pen.text(subtitle(card), 9, after=0.1)
        pen.rule(INK, 1.2)
        pen.tiles(tiles(card))
        for part in card.parts:
            pen.part(part)
        if card.pictures:
            pen.title("Figures", card.pictures[0].figure.get_figheight() + 0.6)
        for column in ("half", "full"):
            pen.figures(
                [picture for picture in card.pictures if picture.column == column], 2 if column == "half" else 1
            )
        for title, lines in (
            ("What could not be measured", [f"{what}: {why}" for what, why in card.absent]),
            ("To know before a number is printed", card.remarks),
            ("How it was made", [methods(card)]),
        ):
            if lines:
                pen.title(title)
            for line in lines:
                pen.text(("" if title.startswith("How") else "•  ") + line, 8, after=0.03)
        pen.text(small(), 7, color=GREY, before=0.1)
        with PdfPages(path, metadata={"CreationDate": None, "Title": f"Report card: {clean(card.judge)}"}) as pdf:
            for place, sheet in enumerate(pen.sheets, 1):
                number = f"{clean(card.judge)[:60]}: {place} of {len(pen.sheets)}"
                sheet.text(0.5, 0.3 / A4[1], number, ha="center", fontsize=7, color=GREY)
                pdf.savefig(paper.finish(sheet))


class _Pen:
    """Writes down A4 pages from the top, and takes a new one where a piece does not fit."""

    def __init__(self, paper: plots.Page, margin: float = 0.62) -> None:
        self.paper, self.margin, self.wide = paper, margin, A4[0] - 2 * margin
        self.sheets: list[Figure] = []
        self.new()

    def new(self) -> None:
        self.sheets.append(plt.figure(figsize=A4))
        self.y = self.margin

    def room(self, inches: float) -> None:
        if self.y + inches > A4[1] - self.margin:
            self.new()

    def write(self, x: float, y: float, text: str, size: float, **look: Any) -> None:
        self.sheets[-1].text(x / A4[0], 1 - y / A4[1], text, fontsize=size, va="top", **{"color": INK, **look})

    def text(self, text: str, size: float, *, before: float = 0.0, after: float = 0.05, x: float = 0.0,
             inches: float | None = None, **look: Any) -> None:  # fmt: skip
        """A paragraph at the pen's place."""
        share = 0.89 if look.get("weight") == "bold" else 0.97  # letters are measured as regular ones
        lines = self.paper.wrap(text, share * (self.wide - x if inches is None else inches), size)
        self.y += before
        for line in lines:
            self.room(size * 1.4 / 72)
            self.write(self.margin + x, self.y, line, size, **look)
            self.y += size * 1.4 / 72
        self.y += after

    def rule(self, color: str, width: float) -> None:
        y = 1 - self.y / A4[1]
        ends = [self.margin / A4[0], 1 - self.margin / A4[0]]
        self.sheets[-1].add_artist(mpl.lines.Line2D(ends, [y, y], color=color, lw=width))
        self.y += 0.1

    def title(self, text: str, below: float = 0.5) -> None:
        self.room(0.5 + below)
        self.text(text, 11, before=0.16, after=0.03, weight="bold")
        self.rule("#DDDDDD", 0.8)

    def tiles(self, tiles: list[tuple[str, str, str]]) -> None:
        step, top, low = self.wide / len(tiles), self.y, self.y
        for place, (value, words, state) in enumerate(tiles):
            self.y = top
            at: dict[str, Any] = dict(x=place * step, inches=step - 0.1)
            self.text(
                value,
                12 if len(value) < 19 else 10,
                weight="bold",
                color=RED if state == "against" else INK,
                after=0.01,
                **at,
            )
            self.text(words, 7.5, color=GREY, **at)
            low = max(low, self.y)
        self.y = low + 0.04
        self.rule("#DDDDDD", 0.8)

    def part(self, part: Part) -> None:
        """A question, its first number, and the sentence that follows."""
        mark, color = MARKS[part.state]
        left, right = 0.24, 2.55
        self.room(0.17 * max(3, len(self.paper.wrap(part.sentence, 0.97 * (self.wide - right), 8.5))))
        top = self.y
        self.text(mark, 9.5, color=color, weight="bold")
        self.y = top
        self.text(part.question, 8.5, x=left, inches=right - left - 0.15, after=0.0, weight="bold")
        self.text(f"n = {span(part.table['n'])}", 7.5, x=left, after=0.0, color=GREY)
        low, self.y = self.y, top
        self.text(part.sentence, 8.5, x=right, color=RED if part.state == "against" else INK, after=0.0)
        self.y = max(low, self.y) + 0.075

    def figures(self, pictures: list[Picture], columns: int, gap: float = 0.3) -> None:
        """Figures with their captions, each in the column that is shorter."""
        wide, tops = (self.wide - gap * (columns - 1)) / columns, [self.y] * columns
        for picture in pictures:
            fig, lines = picture.figure, self.paper.wrap(_caption(picture), 0.97 * wide, 7)
            size = min(wide / fig.get_figwidth(), 1.0)
            w, h = fig.get_figwidth() * size, fig.get_figheight() * size
            place = min(range(columns), key=lambda column: tops[column])
            if tops[place] + h + len(lines) * 0.132 + 0.2 > A4[1] - self.margin:
                self.new()
                place, tops = 0, [self.y] * columns
            x, y = self.margin + place * (wide + gap), tops[place]
            ax = self.sheets[-1].add_axes((x / A4[0], 1 - (y + h) / A4[1], w / A4[0], h / A4[1]))
            ax.imshow(_pixels(fig), aspect="auto", interpolation="none")
            ax.axis("off")
            for number, line in enumerate(lines):
                self.write(x, y + h + 0.05 + number * 0.132, line, 7, color=GREY)
            tops[place] = y + h + len(lines) * 0.132 + 0.25
        self.y = max(tops)


def tiles(card: Card) -> list[tuple[str, str, str]]:
    """The four numbers at the top: value, what it is, and a state for its colour."""
    by_name = {part.name: part for part in card.parts}
    agreement, failures = by_name.get("agreement"), by_name["failures"].table.iloc[0]
    first = None if agreement is None else agreement.table.iloc[0]
    value = "–" if first is None else _estimate(first)
    what = "agreement: not measured" if first is None else f"{first['measure']} with {card.truth}"
    top = pd.DataFrame() if agreement is None else agreement.table[agreement.table["measure"].str.contains("ceiling")]
    ceiling = ("–", "human ceiling: not measured") if top.empty else (_estimate(top.iloc[0]), "human ceiling")
    counts = tally(card.parts)
    tests = [part for part in card.parts if part.state != "described"]
    rest = f"speak against it; {counts['open']} open, {counts['sound']} as they must be"
    controls = (f"{counts['against']} of {len(tests)}", f"controls {rest}") if tests else ("–", "controls: none run")
    read = f"{100 * (1 - failures['estimate']):.{0 if failures['estimate'] in (0, 1) else 2}f} %"
    return [
        (value, clean(what), ""),
        (*ceiling, ""),
        (read, f"of {int(failures['n']):,} verdicts could be read", ""),
        (*controls, "against" if counts["against"] else ""),
    ]


def subtitle(card: Card) -> str:
    """What was judged, and what it was held against."""
    counts = card.counts
    groups = f" in {counts['groups']:,} groups" if counts["groups"] < counts["items"] else ""
    return clean(f"{counts['items']:,} items{groups} of {card.collection}, held against {the(card.truth)}.")


def methods(card: Card) -> str:
    """The methods as one paragraph, without its citations."""
    return clean(" ".join(f"{text[:1].upper()}{text[1:]}." for text, _ in card.methods if text))


def small() -> str:
    return SMALL.format(confidence="95 %", version=vjudge.__version__)


def _lines(part: Part) -> list[dict[str, Any]]:
    tested = bool((part.table["reading"] != "").any())
    return [
        {
            "measure": clean(row["measure"]),
            "estimate": _estimate(row),
            "unit": row["unit"],
            "n": f"{row['n']:,}",
            "p": None if not tested else "" if pd.isna(row["p_holm"]) else format_p(row["p_holm"]).removeprefix("= "),
            "reading": row["reading"],
            "state": "against" if "though" in row["reading"] else "",
        }
        for _, row in part.table.iterrows()
    ]


def _estimate(row: Any) -> str:
    if row["unit"] == "tokens":
        return format_interval(row["estimate"], row["low"], row["high"], 1)
    return interval_text(row)


def _caption(picture: Picture) -> str:
    parts = [part for part in str(picture.figure.get_label() or "").rstrip(".").split(". ") if part]
    account = [part if part.startswith("n =") else part[:1].upper() + part[1:] for part in parts]
    return clean(". ".join([picture.caption.rstrip("."), *account]) + ".")


def _inline(fig: Figure) -> str:
    """A figure as an SVG image in the page itself, its texts as outlines."""
    file = io.BytesIO()
    with plots.page():
        mpl.rcParams["svg.fonttype"] = "path"
        fig.savefig(file, format="svg", metadata={"Date": None})
    return "data:image/svg+xml;base64," + base64.b64encode(file.getvalue()).decode()


def _pixels(fig: Figure) -> Any:
    file = io.BytesIO()
    with plots.page():
        fig.savefig(file, format="png", dpi=DPI)
    file.seek(0)
    return plt.imread(file)
