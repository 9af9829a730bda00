"""The page a figure is drawn on: venues, text sizes, fonts and colours, and what all figures share."""

from __future__ import annotations

import math
import re
import unicodedata
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.resources import files
from itertools import cycle, islice
from typing import Any, Literal, NamedTuple

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, findfont, fontManager, get_font
from matplotlib.lines import Line2D
from matplotlib.text import Text
from matplotlib.textpath import TextToPath
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullFormatter, NullLocator

from vjudge.metrics._tables import format_interval, format_number, format_p

Column = Literal["half", "full"]


class Venue(NamedTuple):
    """Inches of a column and of the whole text, its height, and the body text in points."""

    half: float
    full: float
    height: float
    text: float


# A venue that sets its text in one column gives "half" as .48 of it: two figures side by side.
VENUES: dict[str, Venue] = {
    "acl": Venue(3.03, 6.30, 9.7, 9),
    "neurips": Venue(2.64, 5.5, 9.0, 9),
    "iclr": Venue(2.64, 5.5, 9.0, 9),
    "icml": Venue(3.25, 6.75, 9.0, 8),
    "cvpr": Venue(3.25, 6.875, 8.875, 8),
    "eccv": Venue(2.3, 4.8, 7.6, 9),
    "aaai": Venue(3.3, 6.975, 9.0, 9),
}
MIN_TEXT = 7.0  # points
SHARED = files("vjudge") / "assets/plots.mplstyle"

# Okabe and Ito's colours; a marker, a hatch and a dash beside each, for print in gray.
PALETTE = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#333333")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
HATCHES = ("", "////", "....", "xxxx", "----", "\\\\\\\\", "++++", "||||")
DASHES = ("-", (0, (4, 1.5)), (0, (1, 1)), (0, (5, 1, 1, 1)), (0, (2, 2)), (0, (7, 2)), (0, (3, 1, 1, 1, 1, 1)), "-.")
INK, PALE, TRUTH = "#222222", "#8C8C8C", "#D9D9D9"

# Both fonts come with matplotlib; STIX is a Times. Chinese, Japanese and Korean are drawn by the first of these.
FONTS = {"sans": "DejaVu Sans", "times": "STIXGeneral"}
EAST_ASIAN = re.compile(r"CJK|Source Han|WenQuanYi|PingFang|Hiragino|YaHei|SimHei|SimSun|Heiti|Arial Unicode|IPA", re.I)
# Where a line may break: at spaces, after "/", "_" and "-", and between Chinese characters.
PIECES = re.compile(r"[ \n]+|[\u2e80-\u9fff\uf900-\uffef]|[^ \n/_\-\u2e80-\u9fff\uf900-\uffef]*[/_-]?")


class Look(NamedTuple):
    """How one judge is drawn throughout a paper."""

    color: str
    marker: str
    hatch: str
    dash: Any

    @property
    def bar(self) -> dict[str, Any]:
        """Options of a bar."""
        return dict(fc=self.color, hatch=self.hatch, ec="white" if self.hatch else INK, lw=0.4)

    @property
    def point(self) -> dict[str, Any]:
        """Options of points."""
        return dict(color=self.color, marker=self.marker, mec=INK, mew=0.4)


def looks(names: Sequence[str]) -> dict[str, Look]:
    """A colour, marker, hatch and dash for each name, by its place in the list: pass the same list for every figure.

    >>> from vjudge.plots import looks
    >>> looks(["tiny", "blind"])["blind"].marker
    's'
    """
    return dict(zip(names, islice(cycle(map(Look, PALETTE, MARKERS, HATCHES, DASHES)), len(names)), strict=True))


def width(venue: str, column: Column) -> float:
    """Width in inches of a figure in a venue's column.

    Raises:
        ValueError: unknown venue or column.

    >>> from vjudge.plots import width
    >>> width("acl", "half")
    3.03
    """
    if venue not in VENUES:
        raise ValueError(f"unknown venue {venue!r}: use one of {', '.join(VENUES)}")
    if column not in ("half", "full"):
        raise ValueError(f'column must be "half" or "full", not {column!r}')
    return float(getattr(VENUES[venue], column))


@contextmanager
def page(
    *, venue: str = "acl", column: Column = "half", note: bool = True, font: Literal["sans", "times"] = "sans"
) -> Iterator[Page]:
    """A page of a venue: matplotlib's settings for it, and the `Page` that figures are drawn with.

    Args:
        venue, column: one of `VENUES`, and "half" or "full"; font: "sans" or "times".
        note: whether counts stand in grey in the corner, or in the caption alone.

    Raises:
        ValueError: an unknown venue, column or font.

    >>> from vjudge import plots
    >>> with plots.page(venue="eccv") as page:
    ...     fig, ax = page.subplots(1.5)
    ...     _ = ax.plot([1, 2, 3])
    ...     fig = page.finish(fig, "3 points")
    >>> float(fig.get_figwidth())
    2.3
    """
    inches = width(venue, column)
    if font not in FONTS:
        raise ValueError(f"font must be one of {', '.join(FONTS)}, not {font!r}")
    families = [FONTS[font], *_east_asian()]
    small = ("xtick.labelsize", "ytick.labelsize", "legend.fontsize", "legend.title_fontsize")
    large, body = ("font.size", "axes.titlesize", "axes.labelsize"), max(MIN_TEXT, VENUES[venue].text - 1)
    fonts: dict[Any, Any] = {**dict.fromkeys(large, body), **dict.fromkeys(small, MIN_TEXT), "font.family": families}
    with mpl.rc_context():
        mpl.rcdefaults()  # a user's own settings would change the bytes
        mpl.rcParams.update(mpl.rc_params_from_file(str(SHARED), use_default_template=False))
        mpl.rcParams.update(fonts)
        yield Page(inches, VENUES[venue].height, note, families)


@dataclass
class Page:
    """What figures of one venue are drawn with; `page` makes it."""

    inches: float  # width
    tall: float  # the most height that the venue's page has
    note: bool
    families: list[str]  # a character is drawn by the first font that has it
    account: list[str] = field(default_factory=list)  # what the caption must say
    spare: dict[str, list[tuple[Text, float]]] = field(default_factory=dict)
    lacking: set[str] = field(default_factory=set)  # characters that no font has
    columns: int = 1

    def subplots(self, height: float, rows: int = 1, columns: int = 1, **options: Any) -> tuple[Figure, Any]:
        """A figure of the page's width, no higher than the page, and its axes, as `plt.subplots`."""
        size = (self.inches, min(height, self.tall))
        return plt.subplots(rows, columns, figsize=size, layout="constrained", **options)

    def panels(
        self, count: int, ratio: float, *, least: float = 1.4, margin: float = 0.25, **options: Any
    ) -> tuple[Figure, list[Axes]]:
        """A figure and the axes of its panels in rows; ratio: of their height by width; margin: the inches around."""
        for columns in range(max(1, min(count, int(self.inches / least))), count + 1):
            rows = -(-count // columns)
            height = rows * (ratio * min(self.inches / columns, 3.3) + margin) + 0.2
            if height <= self.tall:
                break
        self.columns = columns
        fig, axes = self.subplots(height, rows, columns, squeeze=False, **options)
        for ax in axes.flat[count:]:
            ax.remove()
        return fig, list(axes.flat[:count])

    @property
    def panel_inches(self) -> float:
        return self.inches / self.columns

    def name_panels(self, axes: Sequence[Axes], names: Sequence[str], ylabel: str) -> None:
        """Names above panels where there are several, and the vertical axes' label at the left of each row."""
        for place, (ax, name) in enumerate(zip(axes, names, strict=True)):
            if len(axes) > 1:
                ax.set_title("\n".join(self.wrap(name, self.panel_inches - 0.35)[:2]), pad=4, fontsize=MIN_TEXT)
            if place % self.columns == 0:
                ax.set_ylabel(ylabel)

    def text_width(self, text: str, size: float = MIN_TEXT) -> float:
        """Inches of the widest line."""
        return max(_points(line, tuple(self.families)) for line in text.split("\n")) * size / 100 / 72

    def drawable(self, text: str) -> str:
        """A text as the fonts can draw it: what they lack is a box, of which `finish` warns."""
        text, held = clean(text), _characters(tuple(self.families))
        self.lacking |= (lacking := {c for c in text if not c.isspace() and ord(c) not in held})
        return "".join("\N{WHITE SQUARE}" if c in lacking else c for c in text)

    def wrap(self, text: str, inches: float, size: float = MIN_TEXT) -> list[str]:
        """Lines of at most that width, broken at spaces, after hyphens, and within Chinese; else within a word."""
        text = re.sub(r" ([<=]|<=) ", "\N{NO-BREAK SPACE}\\1\N{NO-BREAK SPACE}", self.drawable(text))
        lines = [""]
        for piece in PIECES.findall(text):
            if lines[-1] and self.text_width(lines[-1] + piece.rstrip(), size) > inches:
                lines.append("")
            for character in piece if self.text_width(piece, size) > inches else [piece]:
                if lines[-1] and self.text_width(lines[-1] + character.rstrip(), size) > inches:
                    lines.append("")
                lines[-1] += character if lines[-1] else character.lstrip()
        return [line.rstrip() for line in lines if line.strip()] or [""]

    def labels(self, names: Sequence[Any], inches: float, *, lines: int = 3, what: str = "Names") -> list[str]:
        """Names wrapped to a width; where one needs more lines, all are cut and numbered, and the caption has them."""
        folded = [self.wrap(str(name), inches) for name in names]
        if all(len(parts) <= lines for parts in folded):
            return ["\n".join(parts) for parts in folded]
        whole = [f"({place}) {clean(str(name))}" for place, name in enumerate(names, 1)]
        self.account.append(f"{what}: " + "; ".join(whole))
        numbered = [self.wrap(name, inches - 0.1) for name in whole]
        return ["\n".join(parts[:lines]) + "…" * (len(parts) > lines) for parts in numbered]

    def grid(
        self, rows: Sequence[Any], columns: Sequence[Any], tall: Callable[[float], float], below: float
    ) -> tuple[Figure, Axes, float]:
        """A figure, its axes and the inches of a cell; `tall` is a cell's least height by its width, `below` inches."""
        left = self.labels(rows, 0.34 * self.inches, what="Rows")
        side = (self.inches - max(map(self.text_width, left)) - 0.25) / len(columns)
        above = ["\n".join(self.wrap(str(name), side - 0.04)) for name in columns]
        words = [word for name in columns for word in re.split(r"\s+|(?<=[/_-])", str(name))]
        upright = any(self.text_width(word) > side - 0.04 for word in words) or any(n.count("\n") > 1 for n in above)
        head = 0.125 * (1 + max(name.count("\n") for name in above))
        if upright:
            above = self.labels(columns, 1.0, lines=max(1, int(side / 0.125)), what="columns")
            head = max(map(self.text_width, above))
        high = max(tall(side), 0.13 * max(text.count("\n") + 1 for text in left) + 0.06)
        fig, ax = self.subplots(high * len(left) + head + 0.05 + below)
        ax.set(xlim=(-0.5, len(above) - 0.5), ylim=(len(left) - 0.5, -0.5))
        alignment = "left" if upright else "center"
        ax.set_xticks(range(len(above)), above, rotation=90 if upright else 0, multialignment=alignment)
        ax.set_yticks(range(len(left)), left)
        ax.tick_params(length=0, top=False, labeltop=True, bottom=False, labelbottom=False)
        ax.spines[:].set_visible(False)
        return fig, ax, side

    def legend(self, fig: Figure, handles: Sequence[Any], **options: Any) -> None:
        """A legend above the figure, which grows by it, with as many columns as the page is wide."""
        names = self.labels([handle.get_label() for handle in handles], self.inches - 0.5, lines=2, what="Legend")
        for count in range(len(handles), 0, -1):
            widths = [max(map(self.text_width, part)) + 0.36 for part in np.array_split(names, count)]
            if sum(widths) <= self.inches - 0.05:
                break
        fig.legend(list(handles), names, loc="outside upper center", ncols=count, handlelength=1.8, handletextpad=0.5,
                   columnspacing=0.9, **options)  # fmt: skip
        self._grow(fig, len(np.array_split(names, count)[0]) + ("title" in options))

    def _grow(self, fig: Figure, lines: int) -> None:
        fig.set_figheight(min(self.tall, fig.get_figheight() + 0.135 * lines + 0.06))

    def optional(self, text: Text, what: str, room: float = math.inf) -> None:
        """A text that is left out, with all others of its kind, where one is wider than `room` inches or overlaps."""
        self.spare.setdefault(what, []).append((text, room))

    def finish(self, fig: Figure, *account: str) -> Figure:
        """Draw the figure, settle its ticks and close it, so that it is shown as it will be saved.

        Args:
            account: what the numbers rest on, for the corner and for the caption (`fig.get_label()`).

        Warns:
            UserWarning: no installed font has a character; once for the figure.
        """
        for name in fig.findobj(Text):
            name.set_text(self.drawable(name.get_text()))
        counts = [text for text in account if text]
        if self.note and counts:
            lines = [line for text in counts for line in self.wrap(text, 0.93 * self.inches)]
            fig.supxlabel("\n".join(lines), x=0.99, ha="right", fontsize=MIN_TEXT, color="#555555", linespacing=1.1)
            self._grow(fig, len(lines))
        fig.draw_without_rendering()
        for what, members in self.spare.items():
            crowd = {id(text) for pair in crowded(fig) for text in pair}
            wide = any(text.get_window_extent().width / fig.dpi > room for text, room in members)
            if wide or any(id(text) in crowd for text, _ in members):
                for text, _ in members:
                    text.remove()
                self.account.append(f"{what} that do not fit are in the figure's data")
                fig.draw_without_rendering()
        if self.lacking:
            some = f"{len(self.lacking)} of the figure's characters ({''.join(sorted(self.lacking)[:12])})"
            remedy = "Install one that has them, for example Noto Sans CJK, and restart the kernel"
            warnings.warn(f"no installed font has {some}: they are drawn as boxes. {remedy}", stacklevel=3)
        _settle(fig)
        fig.set_label(". ".join([*counts, *self.account]))
        plt.close(fig)  # a notebook then shows it once, where the cell returns it
        return fig


def texts(fig: Figure) -> list[Text]:
    """The texts that are drawn: not those of axes that are off, nor of ticks that are no longer there."""
    hidden = set()
    for ax in fig.findobj(Axes):
        for axis in (ax.xaxis, ax.yaxis):
            ticks = axis.majorTicks[len(axis.get_majorticklocs()) :] + axis.minorTicks
            for artist in ticks if ax.axison else [axis]:
                hidden |= set(map(id, artist.findobj(Text)))
    visible = [text for text in fig.findobj(Text) if text.get_visible() and text.get_text().strip()]
    return [text for text in visible if id(text) not in hidden]


def crowded(fig: Figure) -> list[tuple[Text, ...]]:
    """Pairs of texts that overlap, and single ones that reach beyond the figure's edge."""
    visible = texts(fig)
    if not visible:
        return []
    boxes = np.array([text.get_window_extent().extents for text in visible])
    slack = 0.012 * fig.dpi
    beyond = (boxes[:, :2] < -slack).any(axis=1) | (boxes[:, 2:] > np.array(fig.bbox.max) + slack).any(axis=1)
    low, high = np.maximum(boxes[:, None, :2], boxes[None, :, :2]), np.minimum(boxes[:, None, 2:], boxes[None, :, 2:])
    over = ((high - low) > (slack, 2.2 * slack)).all(axis=2)  # a line's box is higher than its ink
    pairs = np.argwhere(np.triu(over, 1))
    return [(visible[place],) for place in np.flatnonzero(beyond)] + [(visible[i], visible[j]) for i, j in pairs]


def names_of(values: pd.Series) -> pd.Series:
    """A column of names as text that can be drawn."""
    return pd.Series([clean(str(value)) for value in values], index=values.index, dtype=object)


_KINDS = dict.fromkeys(("Cc", "Zl", "Zp"), " ") | dict.fromkeys(("Cs", "Cn"), "\N{REPLACEMENT CHARACTER}") | {"Cf": ""}


def clean(text: str) -> str:
    """A text from data as it can be drawn: no surrogates, control characters or marks that turn its direction."""
    return "".join(c if c == "\n" else _KINDS.get(unicodedata.category(c), c) for c in str(text))


def _settle(fig: Figure) -> None:
    """Keep the ticks as they are: outside `page` matplotlib would choose them by other settings."""
    for ax in fig.findobj(Axes):
        for axis, limits in ((ax.xaxis, ax.get_xlim()), (ax.yaxis, ax.get_ylim())):
            if not isinstance(axis.get_major_locator(), FixedLocator):
                near = [at for at in axis.get_majorticklocs() if min(limits) <= at <= max(limits)]
                axis.set_ticks(near, axis.get_major_formatter().format_ticks(near))
            axis.set_ticks(axis.get_minorticklocs(), minor=True)
            axis.set_minor_formatter(NullFormatter())
        ax.set(xlim=ax.get_xlim(), ylim=ax.get_ylim())
    fig.draw_without_rendering()


@lru_cache(maxsize=1)
def _east_asian() -> list[str]:
    return sorted({font.name for font in fontManager.ttflist if EAST_ASIAN.search(font.name)})[:1]


@lru_cache(maxsize=8)
def _characters(families: tuple[str, ...]) -> frozenset[int]:
    """What these fonts have."""
    return frozenset(c for name in families for c in get_font(findfont(FontProperties(family=[name]))).get_charmap())


@lru_cache(maxsize=4096)
def _points(line: str, families: tuple[str, ...]) -> float:
    """The width of a line in points, at 100 points."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of absent characters `finish` warns, once
        font = FontProperties(family=list(families), size=100)
        return float(TextToPath().get_text_width_height_descent(clean(line), font, False)[0]) if line.strip() else 0.0


# What figures draw alike.


def ink_on(color: Any) -> str:
    """White on dark colours, ink on pale ones: whichever stands out more."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(color)]
    return "white" if 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2] < 0.213 else INK


def key(name: str, look: Look, **options: Any) -> Line2D:
    """A legend's entry for a judge drawn as points or lines."""
    return Line2D([], [], ms=4, label=name, **{**look.point, **options})


def bars(ax: Axes, rows: pd.DataFrame, x: str, y: str, look: Look, *, low: str = "low", high: str = "high",
         shift: Any = 0.0, **options: Any) -> None:  # fmt: skip
    """Points of a judge with their intervals as bars, on a line where there is a dash (`ls`)."""
    reach = np.abs(rows[[low, high]].to_numpy(float) - rows[[y]].to_numpy(float)).T
    ax.errorbar(rows[x] + shift, rows[y], yerr=reach, **{**look.point, "ls": look.dash, **options})


def ceiling_line(ax: Axes, axis: str, at: float | None) -> list[Line2D]:
    """A dotted line where people's agreement stands, across an axis; its legend's entry."""
    if at is None:
        return []
    look: dict[str, Any] = dict(color=INK, ls=":", lw=1)
    (ax.axvline if axis == "x" else ax.axhline)(at, zorder=-1, **look)
    return [Line2D([], [], label="ceiling", **look)]


def log_ticks(ax: Axes, axis: str, low: float, high: float) -> None:
    """Plain numbers on a logarithmic axis, at 1, 2 and 5 where a decade would leave hardly a tick."""
    both = getattr(ax, f"{axis}axis")
    both.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 200 * low else (1,)))
    both.set_minor_locator(NullLocator())
    both.set_major_formatter(FuncFormatter(lambda number, _: f"{number:g}"))
    getattr(ax, f"set_{axis}lim")(low / 1.5, high * 1.5)


def short(number: float, digits: int = 2) -> str:
    """A correlation as journals print it: no zero before the point, a minus sign for a hyphen, and no minus zero."""
    return format_number(number, digits, zero=False).replace("-", "\N{MINUS SIGN}")


def interval(estimate: float, low: float, high: float) -> tuple[str, str]:
    """An estimate and its bounds in brackets, with the same decimals; the bounds are "" where there are none."""
    value, _, bounds = format_interval(estimate, low, high, zero=False).replace("-", "\N{MINUS SIGN}").partition(" ")
    return value, bounds


def p_text(p: float, floor: float | None = None) -> str:
    """A p value as journals print it: "p = .012", "p < .001", "p ≤ .0001" at the least that permutations can give."""
    return f"p {format_p(p, floor=floor)}".replace("<=", "\N{LESS-THAN OR EQUAL TO}")


def span(counts: pd.Series | Sequence[float]) -> str:
    """Counts as one number or as a range."""
    low, high = int(min(counts)), int(max(counts))
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def items(table: pd.DataFrame, unit: str) -> str:
    """How many items the rows of a table rest on."""
    if "n" not in table or table["n"].isna().all():
        return ""
    text = f"n = {span(table['n'].dropna())}{f' {unit}' * bool(table['n'].nunique() > 1)}"
    most = int(table["missing"].fillna(0).max()) if "missing" in table else 0
    return text + (f", up to {most:,} missing" if most else "")


def need(frame: pd.DataFrame, *columns: str, once: Sequence[str] = ()) -> None:
    """Refuse a frame without these columns, or in which a cell or line, named by `once`, appears twice."""
    if absent := [name for name in columns if name not in frame.columns]:
        raise ValueError(f"columns are absent: {absent}; the frame has {list(frame.columns)}")
    if once and (twice := frame.loc[frame.duplicated(list(once)), list(once)].drop_duplicates().to_numpy().tolist()):
        raise ValueError(f"{twice} appear more than once: give one row of each, for example one statistic of several")
