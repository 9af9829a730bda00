"""The page that a figure is drawn on: venues, fonts, colours, and what all figures share."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from itertools import cycle
from typing import Any, Literal, NamedTuple

import matplotlib.pyplot as plt
import numpy as np
import seaborn as sns
from anyascii import anyascii
from matplotlib.axes import Axes
from matplotlib.collections import QuadMesh
from matplotlib.figure import Figure
from matplotlib.font_manager import fontManager, get_font
from pandas import DataFrame, Series

from vjudge.metrics.formatting import format_interval

Column = Literal["half", "full"]
SERIF = "STIXGeneral"  # a Times; both fonts come with matplotlib
SANS = "DejaVu Sans"  # also has what the first lacks
OTHER_SCRIPTS = tuple(
    "Noto Sans,Noto Serif CJK,Droid Sans Fallback,WenQuanYi,Arial Unicode,Microsoft YaHei,Malgun,"
    "MS Gothic,PingFang,Hiragino,Apple SD".split(",")
)


class Venue(NamedTuple):
    """Inches of a column, of the whole text and of the page's height; points and font of text."""

    half: float
    full: float
    height: float
    text: float = 9
    font: str = SERIF


# A venue that sets its text in one column gives "half" as .48 of it: two figures side by side.
# Springer (ECCV) asks for sans serif letters in figures; the others set their text in Times.
VENUES = {
    "acl": Venue(3.03, 6.30, 9.7),
    "neurips": Venue(2.64, 5.5, 9.0),
    "iclr": Venue(2.64, 5.5, 9.0),
    "icml": Venue(3.25, 6.75, 9.0, 8),
    "cvpr": Venue(3.25, 6.875, 8.875, 8),
    "eccv": Venue(2.3, 4.8, 7.6, font=SANS),
    "aaai": Venue(3.3, 6.975, 9.0),
}
MIN_TEXT = 7.0  # points
CHARACTERS = 16  # in an inch of such text, counted on the safe side
SHARED = str(files("vjudge") / "assets/plots.mplstyle")

# Okabe and Ito's colours but yellow, which white paper swallows; a marker beside each, for print in
# grey. The lists are of different lengths, so that 56 names look different.
PALETTE = "#0072B2 #E69F00 #009E73 #CC79A7 #56B4E9 #D55E00 #333333".split()
MARKERS = "os^DvPX*"
INK = "#222222"
PALE = "#8C8C8C"
GREY = "#D9D9D9"
# Colours of cells: as light as dark numbers need (contrasts above 5), in print in grey, too.
FROM_ZERO = sns.color_palette("blend:#F4F8FB,#5BA3D0", as_cmap=True)
AROUND_ZERO = sns.color_palette("blend:#E08A6A,#F7F7F7,#5BA3D0", as_cmap=True)


Look = dict[str, Any]  # options of matplotlib, such as color and marker


class PageFull(ValueError):
    """A page cannot hold this figure in letters that can be read; the message has the remedy."""


def looks(names: Iterable[str]) -> dict[str, Look]:
    """A color and a marker for each name, by its place in the list.

    Pass the same list for every figure of a paper.

    >>> looks(["tiny", "blind"])["blind"]
    {'color': '#E69F00', 'marker': 's'}
    """
    styles = {}
    for name, color, marker in zip(names, cycle(PALETTE), cycle(MARKERS), strict=False):
        styles[name] = {"color": color, "marker": marker}
    return styles


def width(venue: str, column: Column) -> float:
    """Inches of a venue's column; an unknown venue or column is a ValueError."""
    if venue not in VENUES or column not in ("half", "full"):
        raise ValueError(
            f"unknown venue {venue!r} or column {column!r}: use one of {', '.join(VENUES)}, and"
            ' "half" or "full"'
        )
    return getattr(VENUES[venue], column)


@contextmanager
def page(*, venue: str = "acl", column: Column = "half") -> Iterator[Page]:
    """Set matplotlib up for a venue, whatever the user's own settings are.

    Args:
        venue, column: whose width is used; see `VENUES`.

    >>> with page(venue="eccv") as paper:
    ...     fig, ax = paper.subplots(1.5)
    ...     fig = paper.finish(fig, "3 points")
    >>> float(fig.get_figwidth())
    2.3
    """
    inches = width(venue, column)
    size = VENUES[venue]
    # the user's own fonts come last: they may have the characters of other scripts
    family = [size.font, SANS, *_other_scripts(), *plt.rcParams["font.family"]]
    settings = {"font.size": size.text - 1, "font.family": family}
    with plt.style.context([SHARED, settings], after_reset=True):
        yield Page(inches, size.height)


@dataclass
class Page:
    """What figures of one venue are drawn with; `page` makes it."""

    inches: float  # width
    tall: float  # the most height that the venue's page has
    transliterated: bool = False  # whether a name was, since no font here has its script

    def subplots(
        self, height: float, rows: int = 1, columns: int = 1, **options: Any
    ) -> tuple[Figure, Any]:
        """A figure as wide as the page, no higher than the page, and its axes."""
        size = (self.inches, min(height, self.tall))
        return plt.subplots(rows, columns, figsize=size, layout="constrained", **options)

    def panels(
        self,
        rows_by_panel: Mapping,
        ratio: float,
        *,
        across: str,
        up: str = "",
        min_inches: float = 1.4,
        min_height: float = 0.5,
        shared: bool = True,
    ) -> tuple[Figure, list]:
        """A figure, and axes with the rows of each panel, whose name is its title.

        Args:
            rows_by_panel: name of a panel -> its rows; the panels fill lines.
            ratio: of a panel's height by its width.
            across, up: labels of the two axes.
            min_inches, min_height: of a panel's width and height, in inches.
            shared: whether all panels have the same axes.

        PageFull: the panels would be lower than `min_height`.
        """
        columns = max(1, min(len(rows_by_panel), int(self.inches / min_inches)))
        rows = math.ceil(len(rows_by_panel) / columns)
        columns = math.ceil(len(rows_by_panel) / rows)  # no row is left half empty
        width = self.inches / columns
        height = rows * (ratio * min(width, 3.3) + 0.35) + 0.2
        self.check(rows * (min_height + 0.35) + 0.2, f"{len(rows_by_panel)} panels")
        fig, axes = self.subplots(
            height, rows, columns, squeeze=False, sharex=shared, sharey=shared
        )
        filled = axes.flat[: len(rows_by_panel)]
        for ax in axes.flat[len(rows_by_panel) :]:
            ax.remove()
        for ax in filled[-columns:]:  # no panel stands below these
            ax.tick_params(labelbottom=True)
        if len(rows_by_panel) > 1:
            for ax, title in zip(filled, self.fold(rows_by_panel, width - 0.3, 3), strict=True):
                ax.set_title(title)
            fig.supxlabel(across)
            fig.supylabel(up)
        else:
            filled[0].set(xlabel=across, ylabel=up)
        return fig, list(zip(filled, rows_by_panel.values(), strict=True))

    def check(self, inches: float, figure: str) -> None:
        """Raise PageFull where a figure is higher than the page at its least height."""
        if inches > self.tall:
            raise PageFull(
                f"{figure} take {inches:.1f} inches and the page has {self.tall:g}: choose some"
                " judges, or group them"
            )

    def fold(
        self,
        names: Iterable,
        inches: float,
        lines: int = 2,
    ) -> list:
        """Names on lines of so many inches; what does not fit on the last one is cut off."""
        limit = max(6, int(CHARACTERS * inches))
        folded = []
        for name in names:
            text = drawable(clean(name))
            self.transliterated |= text != clean(name)
            folds = textwrap.fill(text, limit, max_lines=lines, placeholder="…")
            folded.append(text[: limit - 1] + "…" if folds == "…" else folds)  # one long word
        return folded

    def legend(self, fig: Figure, ax: Axes) -> None:
        """The named artists of an axes as a legend above the figure, which grows by it."""
        handles, names = ax.get_legend_handles_labels()
        if not names:
            return
        names = self.fold(names, self.inches - 0.45, 1)
        width = max(map(len, names)) / CHARACTERS + 0.45
        columns = max(1, int(self.inches / width))
        fig.legend(handles, names, loc="outside upper center", ncols=columns)
        lines = math.ceil(len(names) / columns)
        fig.set_figheight(min(self.tall, fig.get_figheight() + 0.15 * lines + 0.05))

    def finish(self, fig: Figure, *account: str) -> Figure:
        """Draw a figure and close it, so that a notebook shows it once.

        account: what the numbers rest on. It is part of the caption (`fig.get_label()`).
        """
        fig.draw_without_rendering()
        fig.set_layout_engine("none")  # each drawing would move it by a hair
        scripts = "Names in scripts that no font here has are transliterated"
        fig.set_label(". ".join(filter(None, [*account, scripts * self.transliterated])))
        plt.close(fig)
        return fig


@cache
def _other_scripts() -> tuple[str, ...]:
    """The installed fonts that have the characters of other scripts than matplotlib's own have."""
    names = {font.name for font in fontManager.ttflist}
    return tuple(sorted(name for name in names if name.startswith(OTHER_SCRIPTS)))


@cache
def _has_glyph(character: str) -> bool:
    """Whether a font that figures use has a character."""
    for name in (SERIF, SANS, *_other_scripts()):
        font = get_font(fontManager.findfont(name, fallback_to_default=False))
        if font.get_char_index(ord(character)):
            return True
    return False


def drawable(text: str) -> str:
    """A text that fonts on this machine can draw: other scripts are transliterated.

    >>> drawable("Größe ≥ 1")
    'Größe ≥ 1'
    """
    if all(character == "\n" or _has_glyph(character) for character in text):
        return text
    return anyascii(text)


def clean(text: object) -> str:
    """A text with a space for each character that is not printed or turns the direction."""
    return "".join(c if c.isprintable() or c == "\n" else " " for c in str(text))


def reach(rows: DataFrame, middle: str) -> np.ndarray:
    """How far intervals reach below and above their estimates: shape (2, n)."""
    return rows[["low", "high"]].sub(rows[middle], axis=0).abs().to_numpy(float).T


def draw_cells(ax: Axes, values: DataFrame, texts: DataFrame, **look: Any) -> QuadMesh:
    """Coloured cells with a text in each, the first row on top; an undefined one is grey.

    What `seaborn.heatmap` draws, which draws the whole figure anew for each of its panels.
    """
    cells = np.ma.masked_invalid(values.to_numpy(float))
    mesh = ax.pcolormesh(cells, edgecolors="white", linewidth=1, **look)
    style: dict = {"ha": "center", "va": "center", "fontsize": MIN_TEXT, "linespacing": 1.0}
    for (row, column), text in np.ndenumerate(texts.to_numpy()):
        ax.text(column + 0.5, row + 0.5, text, color=INK, in_layout=False, **style)
    n_rows, n_columns = cells.shape
    ax.set(ylim=(n_rows, 0), facecolor=GREY)
    ax.set_xticks(np.arange(n_columns) + 0.5, values.columns)
    ax.set_yticks(np.arange(n_rows) + 0.5, values.index)
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    return mesh


def log_axis(ax: Axes, axis: str, values: Series) -> None:
    """A logarithmic axis with a few plain numbers: powers of ten where there are several."""
    low = values.min()
    high = values.max()
    ticks = list(10.0 ** np.arange(math.ceil(math.log10(low)), math.floor(math.log10(high)) + 1))
    if len(ticks) < 2:
        ticks = sorted({float(f"{tick:.1g}") for tick in np.geomspace(low, high, 4)})
    ax.set(**{f"{axis}scale": "log"})
    ax.set(**{f"{axis}ticks": ticks, f"{axis}ticklabels": map("{:g}".format, ticks)})
    ax.minorticks_off()


def short(estimate: float, low: float = math.nan, high: float = math.nan) -> str:
    """An estimate, with its bounds where it has them, without the zero before the point.

    What is no more than rounding of the computation is zero.

    >>> short(0.714), short(3e-13, -2e-12, 3e-12)
    ('.71', '.00 [.00, .00]')
    """
    text = format_interval(*np.round([estimate, low, high], 9), zero=False)
    return text.replace("-", "\N{MINUS SIGN}").replace("n/a", "\N{EN DASH}")


def best(table: DataFrame, by: Sequence) -> Series:
    """Which rows have the highest estimate of their group, as printed."""
    rounded = table["estimate"].round(2)
    return rounded == rounded.groupby([table[name] for name in by]).transform("max")


def counts(table: DataFrame) -> str:
    """How many items the rows of a table rest on, and how many are missing."""
    if "n" not in table:
        return ""
    low = table["n"].min()
    high = table["n"].max()
    text = f"n = {low:,.0f} to {high:,.0f}" if low < high else f"n = {high:,.0f}"
    if "missing" in table and table["missing"].max() > 0:
        text += f", up to {table['missing'].max():,.0f} missing"
    return text


def need(frame: DataFrame, *columns: str, names: Sequence = ()) -> DataFrame:
    """A copy of a frame with the texts of `names` clean; an absent column is a ValueError."""
    absent = [name for name in (*names, *columns) if name not in frame]
    if absent:
        raise ValueError(f"columns are absent: {absent}; the frame has {list(frame.columns)}")
    return frame.assign(**{name: frame[name].map(clean) for name in names})
