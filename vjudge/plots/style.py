"""The page that a figure is drawn on: venues, fonts, colours, and what all figures share."""

from __future__ import annotations

import math
import textwrap
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from itertools import cycle
from typing import Any, Literal, NamedTuple

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import findfont, fontManager, get_font
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import LogLocator, NullLocator

from vjudge.metrics.tables import format_interval

Column = Literal["half", "full"]
Font = Literal["times", "sans"]


class Venue(NamedTuple):
    """Inches of a column, of the whole text and of the page's height; points and font of text."""

    half: float
    full: float
    height: float
    text: float
    font: Font = "times"


# A venue that sets its text in one column gives "half" as .48 of it: two figures side by side.
# Springer (ECCV) asks for sans serif letters in figures; the others set their text in Times.
VENUES: dict[str, Venue] = {
    "acl": Venue(3.03, 6.30, 9.7, 9),
    "neurips": Venue(2.64, 5.5, 9.0, 9),
    "iclr": Venue(2.64, 5.5, 9.0, 9),
    "icml": Venue(3.25, 6.75, 9.0, 8),
    "cvpr": Venue(3.25, 6.875, 8.875, 8),
    "eccv": Venue(2.3, 4.8, 7.6, 9, "sans"),
    "aaai": Venue(3.3, 6.975, 9.0, 9),
}
MIN_TEXT = 7.0  # points
CHARACTERS = {"times": 20, "sans": 16}  # in an inch of such text, counted on the safe side
SHARED = str(files("vjudge") / "assets/plots.mplstyle")

# Okabe and Ito's colours; a marker, a hatch and a dash beside each, for print in gray.
PALETTE = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#333333")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
HATCHES = ("", "////", "....", "xxxx", "----", "\\\\\\\\", "++++", "||||")
DASHES = ("-", "--", ":", "-.", (0, (2, 2)), (0, (7, 2)), (0, (3, 1, 1, 1, 1, 1)), (0, (5, 1)))
INK, PALE, GREY = "#222222", "#8C8C8C", "#D9D9D9"
SMALL: dict[str, Any] = dict(fontsize=MIN_TEXT)
CENTER: dict[str, Any] = dict(ha="center", va="center", **SMALL)
BOX = "\N{WHITE SQUARE}"

# Both fonts come with matplotlib; STIX is a Times. A character that the first lacks is taken from
# the next: DejaVu, then one of the fonts for Chinese, Japanese and Korean that is installed.
FONTS: dict[str, list[str]] = {"sans": ["DejaVu Sans"], "times": ["STIXGeneral", "DejaVu Sans"]}
EAST_ASIAN = (
    "Noto Sans CJK JP", "Noto Sans CJK SC", "Source Han Sans", "PingFang SC", "Hiragino Sans",
    "Microsoft YaHei", "SimHei", "WenQuanYi Zen Hei", "Arial Unicode MS",
)  # fmt: skip


class Look(NamedTuple):
    """How one judge is drawn throughout a paper."""

    color: str
    marker: str = ""
    hatch: str = ""
    dash: Any = "-"

    @property
    def bar(self) -> dict[str, Any]:
        """Options of a bar or patch."""
        edge = "white" if self.hatch else INK
        return dict(fc=self.color, hatch=self.hatch, ec=edge, lw=0.4)

    @property
    def point(self) -> dict[str, Any]:
        """Options of markers."""
        return dict(color=self.color, marker=self.marker, mec=INK, mew=0.4)


def looks(names: Sequence[Any]) -> dict[Any, Look]:
    """A colour, marker, hatch and dash for each name, by its place in the list.

    Pass the same list for every figure of a paper.

    >>> looks(["tiny", "blind"])["blind"].marker
    's'
    """
    return dict(zip(names, cycle(map(Look, PALETTE, MARKERS, HATCHES, DASHES)), strict=False))


def width(venue: str, column: Column) -> float:
    """Inches of a venue's column; an unknown venue or column is a ValueError."""
    if venue not in VENUES or column not in ("half", "full"):
        known = ", ".join(VENUES)
        raise ValueError(
            f'unknown venue {venue!r} or column {column!r}: use {known}; "half" or "full"'
        )
    return float(getattr(VENUES[venue], column))


@contextmanager
def page(
    *, venue: str = "acl", column: Column = "half", font: Font | None = None
) -> Iterator[Page]:
    """Set matplotlib up for a venue, whatever the user's own settings are.

    Args:
        venue, column: what the figure's width is that of; see `VENUES`.
        font: "times" or "sans"; None takes the venue's.

    >>> with page(venue="eccv") as paper:
    ...     fig, ax = paper.subplots(1.5)
    ...     fig = paper.finish(fig, "3 points")
    >>> float(fig.get_figwidth())
    2.3
    """
    inches = width(venue, column)
    font = font or VENUES[venue].font
    if font not in FONTS:
        raise ValueError(f"font must be one of {', '.join(FONTS)}, not {font!r}")
    size = max(MIN_TEXT, VENUES[venue].text - 1)
    settings: dict[str, Any] = {"font.size": size, "font.family": FONTS[font] + east_asian()}
    with plt.style.context([SHARED, settings], after_reset=True):
        yield Page(inches, VENUES[venue].height, CHARACTERS[font])


@dataclass
class Page:
    """What figures of one venue are drawn with; `page` makes it."""

    inches: float  # width
    tall: float  # the most height that the venue's page has
    characters: int  # in an inch of the smallest text
    account: list[str] = field(default_factory=list)  # what the caption must say

    def subplots(
        self, height: float, rows: int = 1, columns: int = 1, **options: Any
    ) -> tuple[Figure, Any]:
        """A figure as wide as the page, no higher than the page, and its axes."""
        size = (self.inches, min(height, self.tall))
        return plt.subplots(rows, columns, figsize=size, layout="constrained", **options)

    def panels(
        self,
        names: Sequence[Any],
        ratio: float,
        *,
        least: float = 1.4,
        most: float = 3.3,
        **options: Any,
    ) -> tuple[Figure, list[Axes]]:
        """A figure and one axes for each name, which is its title where there are several.

        Args:
            names: of the panels, which fill rows.
            ratio: of a panel's height by its width.
            least: inches of a panel's width.
            most: inches of width from which on its height grows no more.
        """
        columns = max(1, min(len(names), int(self.inches / least)))
        rows = math.ceil(len(names) / columns)
        each = min(self.inches / columns, most)
        height = rows * (ratio * each + 0.35) + 0.2
        fig, axes = self.subplots(height, rows, columns, squeeze=False, **options)
        for ax in axes.flat[len(names) :]:
            ax.remove()
        shown = list(axes.flat[: len(names)])
        if len(names) > 1:
            titles = self.labels(names, self.inches / columns - 0.3, lines=3, what="Panels")
            for ax, title in zip(shown, titles, strict=True):
                ax.set_title(title, pad=3, **SMALL)
        return fig, shown

    def labels(
        self, names: Sequence[Any], inches: float, *, lines: int = 3, what: str = "Names"
    ) -> list[str]:
        """Names on a few lines each; where one is cut, all are numbered and the caption has them.

        Args:
            names: any texts from data.
            inches: the width of a line, turned into a number of characters.
            lines: the most lines of a name.
            what: how the caption calls them.
        """
        most = max(6, int(self.characters * inches))
        texts = [drawable(name) for name in names]
        folded = [textwrap.wrap(text, most) or [""] for text in texts]
        if max(map(len, folded), default=0) <= lines:
            return ["\n".join(part) for part in folded]
        numbered = [f"({place}) {text}" for place, text in enumerate(texts, 1)]
        self.account.append(f"{what}: " + "; ".join(numbered))
        cut = []
        for text in numbered:
            part = textwrap.wrap(text, most, max_lines=lines, placeholder="…")
            cut.append("\n".join(part))
        return cut

    def named(self, names: Sequence[Any], inches: float, **options: Any) -> dict[Any, str]:
        """Each name with its label."""
        return dict(zip(names, self.labels(names, inches, **options), strict=True))

    def name_axes(self, fig: Figure, across: str, up: str = "") -> None:
        """Labels that all panels share."""
        fig.supxlabel(across, fontsize="medium")
        fig.supylabel(up, fontsize="medium")

    def legend(self, fig: Figure, handles: Sequence[Any], **options: Any) -> None:
        """A legend above the figure, which grows by it."""
        names = [drawable(handle.get_label()) for handle in handles]
        names = [textwrap.shorten(name, int(self.characters * self.inches) - 8) for name in names]
        columns = int(self.inches / (max(map(len, names)) / self.characters + 0.45))
        columns = max(1, min(columns, len(names)))
        look: dict[str, Any] = dict(loc="outside upper center", ncols=columns, columnspacing=1.2)
        fig.legend(list(handles), names, **look, **options)
        lines = math.ceil(len(names) / columns)
        fig.set_figheight(min(self.tall, fig.get_figheight() + 0.15 * lines + 0.05))

    def finish(self, fig: Figure, *account: str) -> Figure:
        """Draw a figure and close it, so that a notebook shows it once.

        account: what the numbers rest on. It is part of the caption (`fig.get_label()`).
        """
        fig.draw_without_rendering()
        parts = [text.rstrip(".") for text in (*account, *self.account) if text]
        fig.set_label(". ".join(parts))
        plt.close(fig)
        return fig


@cache
def east_asian() -> list[str]:
    """The installed fonts for Chinese, Japanese and Korean."""
    installed = {font.name for font in fontManager.ttflist}
    return [name for name in EAST_ASIAN if name in installed]


@cache
def _characters() -> frozenset[int]:
    """The characters that one of the fonts has."""
    families = [*FONTS["times"], *east_asian()]
    return frozenset().union(*(get_font(findfont(name)).get_charmap() for name in families))


def drawable(text: Any) -> str:
    """A text from data as the fonts can draw it; what they lack is a box, and warned of."""
    shown = "".join(c if c.isspace() or ord(c) in _characters() else BOX for c in clean(text))
    if shown.count(BOX) > clean(text).count(BOX):
        warnings.warn(
            f"no installed font has all characters of {clean(text)!r}, drawn as boxes: install one "
            "that has them, for example Noto Sans CJK, and restart the kernel",
            stacklevel=3,
        )
    return shown


def clean(text: Any) -> str:
    """A text with a space for each character that is not printed or turns the direction."""
    return "".join(c if c.isprintable() or c == "\n" else " " for c in str(text))


def keys(styles: dict[Any, Look], **options: Any) -> list[Line2D]:
    """A legend's entries for judges drawn as points or lines."""
    handles = []
    for name, look in styles.items():
        shown = {**look.point, "ls": look.dash, "ms": 4, **options}
        handles.append(Line2D([], [], label=str(name), **shown))
    return handles


def patches(styles: dict[Any, Look]) -> list[Patch]:
    """A legend's entries for bars."""
    return [Patch(label=str(name), **look.bar) for name, look in styles.items()]


def bars(
    ax: Axes, rows: pd.DataFrame, x: str, y: str, look: Look, low: str = "low", high: str = "high"
) -> None:
    """Points of a judge on a line, with their intervals."""
    ends = np.abs(rows[[low, high]].to_numpy(float) - rows[[y]].to_numpy(float)).T
    ax.errorbar(rows[x], rows[y], ends, ms=3.5, elinewidth=0.8, ls=look.dash, **look.point)


def log_axis(ax: Axes, axis: str, low: float, high: float) -> None:
    """A logarithmic axis with plain numbers and at least three ticks."""
    one = ax.xaxis if axis == "x" else ax.yaxis
    ax.set(**{f"{axis}scale": "log", f"{axis}lim": (low / 1.2, high * 1.2)})
    subs = {10: (1, 2, 3, 5, 7), 20: (1, 2, 5), 200: (1, 3)}  # by the ratio of the ends
    one.set_major_locator(
        LogLocator(subs=next((s for r, s in subs.items() if high < r * low), (1,)))
    )
    one.set_minor_locator(NullLocator())
    one.set_major_formatter("{x:g}")


def short(
    estimate: float, low: float = math.nan, high: float = math.nan, *, digits: int = 2
) -> str:
    """A number, with its interval where it has one, without the zero before the point."""
    text = format_interval(estimate, low, high, digits, zero=False)
    return text.replace("-", "\N{MINUS SIGN}")


def span(counts: Any) -> str:
    """Counts as one number or as a range."""
    low = int(min(counts))
    high = int(max(counts))
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def items(table: pd.DataFrame, unit: str) -> str:
    """How many items the rows of a table rest on."""
    if "n" not in table or table["n"].isna().all():
        return ""
    text = f"n = {span(table['n'].dropna())}"
    if table["n"].nunique() > 1:
        text += f" {unit}"
    if "missing" in table and table["missing"].max() > 0:
        text += f", up to {int(table['missing'].max()):,} missing"
    return text


def need(
    frame: pd.DataFrame, *columns: str, names: Sequence[str] = (), once: bool = False
) -> pd.DataFrame:
    """Check the columns of a frame, and clean the texts of those in `names`.

    Raises:
        ValueError: a column is absent; with `once`, a combination of names stands on two rows.
    """
    absent = [name for name in (*names, *columns) if name not in frame.columns]
    if absent:
        raise ValueError(f"columns are absent: {absent}; the frame has {list(frame.columns)}")
    twice = frame.duplicated(list(names)) if once else pd.Series(False, index=frame.index)
    if twice.any():
        rows = frame.loc[twice, list(names)].drop_duplicates().to_numpy().tolist()
        raise ValueError(
            f"{rows} appear more than once: give one row of each, such as one statistic of several"
        )
    return frame.assign(**{name: frame[name].map(clean) for name in names})
