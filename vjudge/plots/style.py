"""The page that a figure is drawn on, with a venue's fonts and colours, and what figures share.

A figure is made within `page`, which gives a `Page`: its axes, its legend and its end. Below stand
texts that can be drawn, the parts of axes, and what is read from tables.
"""

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
# Both fonts come with matplotlib
SERIF = "STIXGeneral"  # like Times
SANS = "DejaVu Sans"  # also has the characters that the first lacks
# Fonts with the characters of other scripts have names that begin like this
OTHER_SCRIPTS = tuple(
    "Noto Sans,Noto Serif CJK,Droid Sans Fallback,WenQuanYi,Arial Unicode,Microsoft YaHei,Malgun,"
    "MS Gothic,PingFang,Hiragino,Apple SD".split(",")
)


class Venue(NamedTuple):
    """The page of a venue."""

    half: float  # inches of a column's width
    full: float  # inches of the text's width
    height: float  # inches
    text: float = 9  # points
    font: str = SERIF


# If a venue sets its text in one column, "half" is .48 of its width: two figures side by side.
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
CHARACTERS = 16  # that an inch of such text holds at least
STYLE_FILE = str(files("vjudge") / "assets/plots.mplstyle")

# Okabe and Ito's colours without yellow, which is hardly visible on white paper. Markers tell the
# names apart in grey print. There are 7 colours and 8 markers, so that 56 names look different.
PALETTE = "#0072B2 #E69F00 #009E73 #CC79A7 #56B4E9 #D55E00 #333333".split()
MARKERS = "os^DvPX*"
INK = "#222222"
PALE = "#8C8C8C"
GREY = "#D9D9D9"
# Colours of cells: light enough for dark numbers (contrast above 5), also in grey print
FROM_ZERO = sns.color_palette("blend:#F4F8FB,#5BA3D0", as_cmap=True)
AROUND_ZERO = sns.color_palette("blend:#E08A6A,#F7F7F7,#5BA3D0", as_cmap=True)


Look = dict[str, Any]  # options of matplotlib, such as color and marker


class PageFull(ValueError):
    """A page cannot hold a figure in letters that can be read; the message gives the remedy."""


def looks(names: Iterable[str]) -> dict[str, Look]:
    """Give each name a color and a marker, by its position in the list.

    Pass the same list for every figure of a paper.

    >>> looks(["tiny", "blind"])["blind"]
    {'color': '#E69F00', 'marker': 's'}
    """
    styles = zip(names, cycle(PALETTE), cycle(MARKERS), strict=False)
    return {name: {"color": color, "marker": marker} for name, color, marker in styles}


def width(venue: str, column: Column) -> float:
    """Return the inches of a venue's column.

    Raises:
        ValueError: an unknown venue or column.
    """
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
        venue: one of `VENUES`.
        column: whether the figure is as wide as a column ("half") or as the text ("full").

    >>> with page(venue="eccv") as paper:
    ...     fig, ax = paper.subplots(1.5)
    ...     fig = paper.finish(fig, "3 points")
    >>> float(fig.get_figwidth())
    2.3
    """
    inches = width(venue, column)
    size = VENUES[venue]
    # The user's own fonts come last: they may have the characters of other scripts
    family = [size.font, SANS, *_other_scripts(), *plt.rcParams["font.family"]]
    settings = {"font.size": size.text - 1, "font.family": family}
    with plt.style.context([STYLE_FILE, settings], after_reset=True):
        yield Page(inches, size.height)


@dataclass
class Page:
    """The page of a venue, and the drawing of figures on it; `page` makes it."""

    inches: float  # width of figures
    tall: float  # height of the page, in inches
    transliterated: bool = False  # whether a name was, since no font here has its script

    def subplots(
        self, height: float, rows: int = 1, columns: int = 1, **options: Any
    ) -> tuple[Figure, Any]:
        """Make a figure as wide as the page and no higher than the page, and its axes."""
        size = (self.inches, min(height, self.tall))
        return plt.subplots(rows, columns, figsize=size, layout="constrained", **options)

    def panels(
        self,
        rows_by_panel: Mapping[str, DataFrame],
        ratio: float,
        *,
        across: str,
        up: str = "",
        min_inches: float = 1.4,
        min_height: float = 0.5,
        shared: bool = True,
    ) -> tuple[Figure, list[tuple[Axes, DataFrame]]]:
        """Make a figure of panels that fill the page's width row by row, each with its name.

        Args:
            rows_by_panel: name of a panel -> its rows.
            ratio: of a panel's height to its width.
            across, up: labels of the two axes.
            min_inches, min_height: of a panel's width and height, in inches.
            shared: whether all panels have the same axes.

        Returns:
            The figure, and the axes of each panel with its rows.

        Raises:
            PageFull: the panels would be lower than `min_height`.
        """
        # 1) As many columns as the width holds; then as few as these rows need: seven panels in
        # rows of up to six stand in two rows, of four and three
        n = len(rows_by_panel)
        columns = max(1, min(n, int(self.inches / min_inches)))
        rows = math.ceil(n / columns)
        columns = math.ceil(n / rows)
        width = self.inches / columns
        height = rows * (ratio * min(width, 3.3) + 0.35) + 0.2
        self.check(rows * (min_height + 0.35) + 0.2, f"{n} panels")
        fig, axes = self.subplots(
            height, rows, columns, squeeze=False, sharex=shared, sharey=shared
        )
        # 2) Remove the empty axes of the last row, and label the axes above them
        filled = axes.flat[:n]
        for ax in axes.flat[n:]:
            ax.remove()
        for ax in filled[-columns:]:  # no panel stands below these
            ax.tick_params(labelbottom=True)
        # 3) Names and labels
        if n > 1:
            for ax, title in zip(filled, self.fold(rows_by_panel, width - 0.3, 3), strict=True):
                ax.set_title(title)
            fig.supxlabel(across)
            fig.supylabel(up)
        else:
            filled[0].set(xlabel=across, ylabel=up)
        return fig, list(zip(filled, rows_by_panel.values(), strict=True))

    def check(self, inches: float, figure: str) -> None:
        """Refuse a figure that takes so many inches at its least height, if the page has fewer."""
        if inches > self.tall:
            raise PageFull(
                f"{figure} take {inches:.1f} inches and the page has {self.tall:g}: choose some"
                " judges, or group them"
            )

    def fold(self, names: Iterable[str], inches: float, lines: int = 2) -> list[str]:
        """Fold names onto lines of so many inches, and shorten names that need more lines."""
        limit = max(6, int(CHARACTERS * inches))  # characters on a line
        folded = []
        for name in names:
            text = drawable(clean(name))
            if text != clean(name):
                self.transliterated = True
            short_name = textwrap.fill(text, limit, max_lines=lines, placeholder="…")
            if short_name == "…":  # a single word that is too long for a line keeps its beginning
                short_name = text[: limit - 1] + "…"
            folded.append(short_name)
        return folded

    def legend(self, fig: Figure, ax: Axes) -> None:
        """Put the labelled artists of an axes into a legend above the figure, which grows by it."""
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

        Args:
            account: what the numbers rest on, as sentences without a full stop; empty ones are left
                out. It becomes the end of the caption (`fig.get_label()`).
        """
        fig.draw_without_rendering()
        fig.set_layout_engine("none")  # else each drawing would move the axes a little
        texts = [text for text in account if text]
        if self.transliterated:
            texts.append("Names in scripts that no font here has are transliterated")
        fig.set_label(". ".join(texts))
        plt.close(fig)
        return fig


# --- Texts


@cache
def _other_scripts() -> tuple[str, ...]:
    """Return the installed fonts that have the characters of other scripts."""
    names = {font.name for font in fontManager.ttflist}
    return tuple(sorted(name for name in names if name.startswith(OTHER_SCRIPTS)))


@cache
def _has_glyph(character: str) -> bool:
    """Return whether a font that figures use has a character."""
    for name in (SERIF, SANS, *_other_scripts()):
        font = get_font(fontManager.findfont(name, fallback_to_default=False))
        if font.get_char_index(ord(character)):
            return True
    return False


def drawable(text: str) -> str:
    """Transliterate a text if it has characters that no font on this machine can draw.

    >>> drawable("Größe ≥ 1")
    'Größe ≥ 1'
    """
    if all(character == "\n" or _has_glyph(character) for character in text):
        return text
    return anyascii(text)


def clean(text: object) -> str:
    """Replace each character that is not printed, or turns the direction of writing, by a space."""
    return "".join(c if c.isprintable() or c == "\n" else " " for c in str(text))


def short(estimate: float, low: float = math.nan, high: float = math.nan) -> str:
    """Write an estimate, with its bounds if it has them, without the zero before the point.

    A number that is nothing but rounding error of the computation is written as zero.

    >>> short(0.714), short(3e-13, -2e-12, 3e-12)
    ('.71', '.00 [.00, .00]')
    """
    text = format_interval(*np.round([estimate, low, high], 9), zero=False)
    return text.replace("-", "\N{MINUS SIGN}").replace("n/a", "\N{EN DASH}")


# --- Parts of axes


def reach(rows: DataFrame, middle: str) -> np.ndarray:
    """Compute how far intervals reach below and above the column `middle`; shape (2, n)."""
    return rows[["low", "high"]].sub(rows[middle], axis=0).abs().to_numpy(float).T


def draw_cells(ax: Axes, values: DataFrame, texts: DataFrame, **look: Any) -> QuadMesh:
    """Draw coloured cells with a text in each, the first row on top; an undefined one is grey.

    `seaborn.heatmap` would draw the same, but it renders the whole figure once for each panel.

    Args:
        values, texts: the number behind each cell's colour, and its text; the names of their rows
            and columns label the axes.
        look: the colour map and its limits.
    """
    cells = np.ma.masked_invalid(values.to_numpy(float))
    mesh = ax.pcolormesh(cells, edgecolors="white", linewidth=1, **look)
    style: Look = {"ha": "center", "va": "center", "fontsize": MIN_TEXT, "linespacing": 1.0}
    for (row, column), text in np.ndenumerate(texts.to_numpy()):
        ax.text(column + 0.5, row + 0.5, text, color=INK, in_layout=False, **style)
    n_rows, n_columns = cells.shape
    ax.set(ylim=(n_rows, 0), facecolor=GREY)
    ax.set_xticks(np.arange(n_columns) + 0.5, values.columns)
    ax.set_yticks(np.arange(n_rows) + 0.5, values.index)
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    return mesh


def log_axis(ax: Axes, axis: Literal["x", "y"], values: Series) -> None:
    """Make an axis logarithmic, with a few plain numbers over the range of the values.

    The ticks are the powers of ten within the range; if there are fewer than two, four numbers of
    one digit.
    """
    low = values.min()
    high = values.max()
    exponents = np.arange(math.ceil(math.log10(low)), math.floor(math.log10(high)) + 1)
    ticks = list(10.0**exponents)
    if len(ticks) < 2:
        ticks = sorted({float(f"{tick:.1g}") for tick in np.geomspace(low, high, 4)})
    ax.set(**{f"{axis}scale": "log"})
    ax.set(**{f"{axis}ticks": ticks, f"{axis}ticklabels": map("{:g}".format, ticks)})
    ax.minorticks_off()


# --- Tables


def best(table: DataFrame, by: Sequence[str]) -> Series:
    """Mark the rows with the highest estimate among equal values of `by`, to two decimals."""
    rounded = table["estimate"].round(2)
    return rounded == rounded.groupby([table[name] for name in by]).transform("max")


def counts(table: DataFrame) -> str:
    """Write how many items the rows of a table rest on, and how many are missing."""
    if "n" not in table:
        return ""
    low = table["n"].min()
    high = table["n"].max()
    text = f"n = {low:,.0f} to {high:,.0f}" if low < high else f"n = {high:,.0f}"
    if "missing" in table and table["missing"].max() > 0:
        text += f", up to {table['missing'].max():,.0f} missing"
    return text


def need(frame: DataFrame, *columns: str, names: Sequence[str] = ()) -> DataFrame:
    """Copy a frame that must have these columns, with clean texts in the columns `names`.

    Raises:
        ValueError: a column is absent.
    """
    absent = [name for name in (*names, *columns) if name not in frame]
    if absent:
        raise ValueError(f"columns are absent: {absent}; the frame has {list(frame.columns)}")
    return frame.assign(**{name: frame[name].map(clean) for name in names})
