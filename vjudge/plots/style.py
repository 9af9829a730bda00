"""The page that a figure is drawn on, with a venue's fonts and colours, and what figures share.

A figure is made within `page`, which gives a `Page` with methods for axes, legend and account. The
sections below it make texts drawable, draw parts of axes, and read tables.
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
# How the names of fonts with the characters of other scripts begin
OTHER_SCRIPTS = tuple(
    "Noto Sans,Noto Serif CJK,Droid Sans Fallback,WenQuanYi,Arial Unicode,Microsoft YaHei,Malgun,"
    "MS Gothic,PingFang,Hiragino,Apple SD".split(",")
)


class Venue(NamedTuple):
    """The page of a venue."""

    half: float  # width of a column, in inches
    full: float  # width of the text, in inches
    height: float  # of the text, in inches
    text: float = 9  # size of the letters beside a figure, in points
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
MIN_TEXT = 7.0  # points: the smallest text in a figure
CHARACTERS = 16  # that an inch of the smallest text holds at least
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


Look = dict[str, Any]  # keyword arguments of a matplotlib function, such as color and marker


class PageFull(ValueError):
    """A figure does not fit on a page in readable letters; the message gives the remedy."""


def looks(names: Iterable[str]) -> dict[str, Look]:
    """Give each name a color and a marker, by its position among the names.

    Names have the same look in all figures of a paper if each figure gets the same names.

    >>> looks(["tiny", "blind"])["blind"]
    {'color': '#E69F00', 'marker': 's'}
    """
    styles = zip(names, cycle(PALETTE), cycle(MARKERS), strict=False)
    return {name: {"color": color, "marker": marker} for name, color, marker in styles}


def width(venue: str, column: Column) -> float:
    """Return the width of a venue's column ("half") or text ("full"), in inches.

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

    Yields:
        The page to draw a figure on.

    Raises:
        ValueError: an unknown venue or column.

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
    settings = {"font.size": size.text - 1, "font.family": family}  # one point below the text
    with plt.style.context([STYLE_FILE, settings], after_reset=True):
        yield Page(inches, size.height)


@dataclass
class Page:
    """The page of a venue, and the drawing of figures on it; `page` makes it."""

    inches: float  # width of figures
    tall: float  # height of the page, in inches
    transliterated: bool = False  # whether `fold` had to transliterate a name

    def subplots(
        self, height: float, rows: int = 1, columns: int = 1, **options: Any
    ) -> tuple[Figure, Any]:
        """Make a figure as wide as the page, and no higher than the page, with its axes.

        Args:
            height: in inches. rows, columns: the numbers of axes. options: of `plt.subplots`.

        Returns:
            The figure, and one axes or an array of them, as `plt.subplots` has it.
        """
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
        """Make a figure of panels that fill the page's width row by row, each titled by its name.

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
        # 1) Take as many columns as the width holds, and then only as many as that number of rows
        # needs: if six of seven panels fit into a row, there are two rows, of four and of three
        n = len(rows_by_panel)
        columns = max(1, min(n, int(self.inches / min_inches)))
        rows = math.ceil(n / columns)
        columns = math.ceil(n / rows)
        width = self.inches / columns
        # Inches: 0.35 for the title and ticks of a row, 0.2 for the label below all rows; a panel
        # that is wider than 3.3 inches is no higher than one of 3.3 inches
        height = rows * (ratio * min(width, 3.3) + 0.35) + 0.2
        self.check(rows * (min_height + 0.35) + 0.2, f"{n} panels")
        fig, axes = self.subplots(
            height, rows, columns, squeeze=False, sharex=shared, sharey=shared
        )
        # 2) Remove the empty axes of the last row, and write tick labels at the axes above them
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
        """Refuse a figure that is higher than the page.

        Args:
            inches: the least height of the figure. figure: what is drawn, for the error.

        Raises:
            PageFull: the page has fewer inches.
        """
        if inches > self.tall:
            raise PageFull(
                f"{figure} take {inches:.1f} inches and the page has {self.tall:g}: choose some"
                " judges, or group them"
            )

    def fold(self, names: Iterable[str], inches: float, lines: int = 2) -> list[str]:
        """Fold each name onto at most `lines` lines of a width in inches, shortened if need be.

        A name in a script that no font here has is transliterated, which `finish` then reports.
        """
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
        """Put the labelled artists of an axes into a legend, and make the figure higher for it."""
        handles, names = ax.get_legend_handles_labels()
        if not names:
            return
        names = self.fold(names, self.inches - 0.45, 1)
        width = max(map(len, names)) / CHARACTERS + 0.45  # 0.45 inches for the marker and margins
        columns = max(1, int(self.inches / width))
        fig.legend(handles, names, loc="outside upper center", ncols=columns)
        lines = math.ceil(len(names) / columns)
        fig.set_figheight(min(self.tall, fig.get_figheight() + 0.15 * lines + 0.05))

    def finish(self, fig: Figure, *account: str) -> Figure:
        """Draw a figure and close it, so that a notebook shows it once.

        Args:
            account: sentences on the data and marks of the figure, each without a full stop; empty
                ones are left out. Joined, they become the end of the caption (`fig.get_label()`).
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
    """Return the names of installed fonts that have the characters of other scripts."""
    names = {font.name for font in fontManager.ttflist}
    return tuple(sorted(name for name in names if name.startswith(OTHER_SCRIPTS)))


@cache
def _has_glyph(character: str) -> bool:
    """Return whether any font that figures use has a character."""
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
    """Replace unprintable characters, and those that turn the direction of writing, by spaces."""
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
    """Compute the lengths of whiskers: how far `low` and `high` are from the column `middle`.

    Returns:
        An array of shape (2, n), as matplotlib's `xerr` and `yerr` take it.
    """
    return rows[["low", "high"]].sub(rows[middle], axis=0).abs().to_numpy(float).T


def draw_cells(ax: Axes, values: DataFrame, texts: DataFrame, **look: Any) -> QuadMesh:
    """Draw coloured cells with a text in each, the first row on top; an undefined one is grey.

    `seaborn.heatmap` would draw the same, but it renders the whole figure once for each panel.

    Args:
        values: the number behind each cell's colour; the names of its rows and columns label the
            axes.
        texts: the text of each cell.
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

    The ticks are the powers of ten within the range. If there are fewer than two, they are up to
    four numbers of one digit.

    Args:
        values: the numbers above 0 whose range the ticks cover.
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
    """Mark the rows with the highest estimate in their group, to two decimals.

    Args:
        by: the columns whose values define the groups.
    """
    rounded = table["estimate"].round(2)
    return rounded == rounded.groupby([table[name] for name in by]).transform("max")


def counts(table: DataFrame) -> str:
    """Describe how many items the rows of a table rest on, and how many are missing.

    Args:
        table: columns n and missing; "" is returned without n.
    """
    if "n" not in table:
        return ""
    low = table["n"].min()
    high = table["n"].max()
    text = f"n = {low:,.0f} to {high:,.0f}" if low < high else f"n = {high:,.0f}"
    if "missing" in table and table["missing"].max() > 0:
        text += f", up to {table['missing'].max():,.0f} missing"
    return text


def need(frame: DataFrame, *columns: str, names: Sequence[str] = ()) -> DataFrame:
    """Copy a frame, with clean texts in some columns, after a check that it has the columns.

    Args:
        columns: the names of columns that it must have.
        names: the names of further such columns, whose cells become clean texts.

    Raises:
        ValueError: a column is absent.
    """
    absent = [name for name in (*names, *columns) if name not in frame]
    if absent:
        raise ValueError(f"columns are absent: {absent}; the frame has {list(frame.columns)}")
    return frame.assign(**{name: frame[name].map(clean) for name in names})
