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
from itertools import cycle
from typing import Any, Literal, NamedTuple

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
from matplotlib.ticker import FixedLocator, LogLocator, NullFormatter, NullLocator

from vjudge.metrics.tables import format_interval, format_p

Column = Literal["half", "full"]


class Venue(NamedTuple):
    half: float  # inches of a column
    full: float  # and of the whole text
    height: float
    text: float  # points of the body


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
SHARED = str(files("vjudge") / "assets/plots.mplstyle")

# Okabe and Ito's colours; a marker, a hatch and a dash beside each, for print in gray.
PALETTE = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#333333")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
HATCHES = ("", "////", "....", "xxxx", "----", "\\\\\\\\", "++++", "||||")
DASHES = (
    "-",
    (0, (4, 1.5)),
    (0, (1, 1)),
    (0, (5, 1, 1, 1)),
    (0, (2, 2)),
    (0, (7, 2)),
    (0, (3, 1, 1, 1, 1, 1)),
    "-.",
)
INK, PALE, TRUTH = "#222222", "#8C8C8C", "#D9D9D9"
CEILING: dict[str, Any] = dict(
    color=INK, ls=":", lw=1, zorder=-1, label="ceiling"
)  # people's agreement
SMALL: dict[str, Any] = dict(fontsize=MIN_TEXT)
MIDDLE: dict[str, Any] = dict(ha="center", va="center")

# Both fonts come with matplotlib; STIX is a Times. Chinese, Japanese and Korean are drawn by the first of these.
FONTS = {"sans": "DejaVu Sans", "times": "STIXGeneral"}
EAST_ASIAN = re.compile(
    r"CJK|Source Han|WenQuanYi|PingFang|Hiragino|YaHei|SimHei|SimSun|Heiti|Arial Unicode|IPA", re.I
)
# Where a line may break: at spaces, after "/", "_" and "-", and between Chinese characters.
PIECES = re.compile(
    r"[ \n]+|[\u2e80-\u9fff\uf900-\uffef]|[^ \n/_\-\u2e80-\u9fff\uf900-\uffef]*[/_-]?"
)


class Look(NamedTuple):
    """How one judge is drawn throughout a paper."""

    color: str
    marker: str = ""
    hatch: str = ""
    dash: Any = "-"

    @property
    def bar(self) -> dict[str, Any]:
        return dict(fc=self.color, hatch=self.hatch, ec="white" if self.hatch else INK, lw=0.4)

    @property
    def point(self) -> dict[str, Any]:
        return dict(color=self.color, marker=self.marker, mec=INK, mew=0.4)


def looks(names: Sequence[str]) -> dict[str, Look]:
    """A colour, marker, hatch and dash for each name, by its place in the list: pass the same list for every figure.

    >>> looks(["tiny", "blind"])["blind"].marker
    's'
    """
    return dict(zip(names, cycle(map(Look, PALETTE, MARKERS, HATCHES, DASHES)), strict=False))


def width(venue: str, column: Column) -> float:
    """Inches of a venue's column; an unknown venue or column is a ValueError."""
    if venue not in VENUES or column not in ("half", "full"):
        raise ValueError(
            f'unknown venue {venue!r} or column {column!r}: use {", ".join(VENUES)}; "half" or "full"'
        )
    return float(getattr(VENUES[venue], column))


@contextmanager
def page(
    *,
    venue: str = "acl",
    column: Column = "half",
    note: bool = True,
    font: Literal["sans", "times"] = "sans",
) -> Iterator[Page]:
    """A page of a venue: matplotlib's settings for it, and the `Page` that figures are drawn with.

    Args:
        venue, column, font: as the types say, and one of `VENUES`; all others are a ValueError.
        note: whether counts stand in grey in the corner, or in the caption alone.

    >>> with page(venue="eccv") as paper:
    ...     fig, ax = paper.subplots(1.5)
    ...     fig = paper.finish(fig, "3 points")
    >>> float(fig.get_figwidth())
    2.3
    """
    inches = width(venue, column)
    if font not in FONTS:
        raise ValueError(f"font must be one of {', '.join(FONTS)}, not {font!r}")
    east_asian = sorted(
        {font.name for font in fontManager.ttflist if EAST_ASIAN.search(font.name)}
    )[:1]
    families = (FONTS[font], *east_asian)
    held = {
        c
        for name in families
        for c in get_font(findfont(FontProperties(family=[name]))).get_charmap()
    }
    fonts: dict[str, Any] = {
        "font.size": max(MIN_TEXT, VENUES[venue].text - 1),
        "font.family": families,
    }
    with plt.style.context(
        [SHARED, fonts], after_reset=True
    ):  # a user's own settings would change the bytes
        yield Page(inches, VENUES[venue].height, note, families, held)


@dataclass
class Page:
    """What figures of one venue are drawn with; `page` makes it."""

    inches: float  # width
    tall: float  # the most height that the venue's page has
    note: bool
    families: tuple[str, ...]  # a character is drawn by the first font that has it
    held: set[int]  # the characters that one of them has
    account: list[str] = field(default_factory=list)  # what the caption must say
    spare: dict[str, list[tuple[Text, float]]] = field(default_factory=dict)
    lacking: set[str] = field(default_factory=set)  # characters that no font has

    def subplots(
        self, height: float, rows: int = 1, columns: int = 1, **options: Any
    ) -> tuple[Figure, Any]:
        """A figure of the page's width, no higher than the page, and its axes, as `plt.subplots`."""
        size = (self.inches, min(height, self.tall))
        return plt.subplots(rows, columns, figsize=size, layout="constrained", **options)

    def panels(
        self,
        names: Sequence[str],
        ratio: float,
        *,
        label: str = "",
        margin: float = 0.25,
        **options: Any,
    ) -> tuple[Figure, list[Axes], float]:
        """A figure, its axes by name, and their inches; ratio: of height by width; margin: the inches around each."""
        count = len(names)
        for columns in range(max(1, min(count, int(self.inches / 1.4))), count + 1):
            rows, each = -(-count // columns), self.inches / columns
            height = rows * (ratio * min(each, 3.3) + margin) + 0.2
            if height <= self.tall:
                break
        fig, axes = self.subplots(height, rows, columns, squeeze=False, **options)
        for ax in axes.flat[count:]:
            ax.remove()
        for ax, name in zip(axes.flat, names if count > 1 else (), strict=False):
            ax.set_title("\n".join(self.wrap(name, each - 0.35)[:2]), pad=4, **SMALL)
        for ax in axes[:, 0]:
            ax.set_ylabel(label)
        return fig, list(axes.flat[:count]), each

    def text_width(self, text: str, size: float = MIN_TEXT) -> float:
        """Inches of the widest line."""
        return max(_points(line, self.families) for line in text.split("\n")) * size / 100 / 72

    def drawable(self, text: str) -> str:
        """A text as the fonts can draw it: what they lack is a box, of which `finish` warns."""
        text = clean(text)
        self.lacking |= (
            lacking := {c for c in text if not c.isspace() and ord(c) not in self.held}
        )
        return "".join("\N{WHITE SQUARE}" if c in lacking else c for c in text)

    def wrap(self, text: str, inches: float, size: float = MIN_TEXT) -> list[str]:
        """Lines of at most that width, broken at spaces, after hyphens, and within Chinese; else within a word."""
        text = re.sub(
            r" ([<=]|<=) ", "\N{NO-BREAK SPACE}\\1\N{NO-BREAK SPACE}", self.drawable(text)
        )
        lines = [""]
        for piece in PIECES.findall(text):
            long = self.text_width(piece, size) > inches
            if long and lines[-1]:
                lines.append("")
            for part in piece if long else [piece]:
                if lines[-1] and self.text_width(lines[-1] + part.rstrip(), size) > inches:
                    lines.append("")
                lines[-1] += part if lines[-1] else part.lstrip()
        return [line.rstrip() for line in lines if line.strip()] or [""]

    def labels(
        self, names: Sequence[Any], inches: float, *, lines: int = 3, what: str = "Names"
    ) -> list[str]:
        """Names wrapped to a width; where one needs more lines, all are cut and numbered, and the caption has them."""
        folded = [self.wrap(str(name), inches) for name in names]
        if all(len(parts) <= lines for parts in folded):
            return ["\n".join(parts) for parts in folded]
        whole = [f"({place}) {clean(str(name))}" for place, name in enumerate(names, 1)]
        self.account.append(f"{what}: " + "; ".join(whole))
        numbered = [self.wrap(name, inches - 0.1) for name in whole]
        return ["\n".join(parts[:lines]) + "…" * (len(parts) > lines) for parts in numbered]

    def grid(
        self,
        rows: Sequence[Any],
        columns: Sequence[Any],
        tall: Callable[[float], float],
        below: float,
    ) -> tuple[Figure, Axes, float]:
        """A figure, its axes and the inches of a cell; `tall` is a cell's least height by its width, `below` inches."""
        left = self.labels(rows, 0.34 * self.inches, what="Rows")
        side = (self.inches - max(map(self.text_width, left)) - 0.25) / len(columns)
        above = ["\n".join(self.wrap(str(name), side - 0.04)) for name in columns]
        words = re.split(r"\s+|(?<=[/_-])", self.drawable(" ".join(map(str, columns))))
        upright = (
            max(map(self.text_width, words)) > side - 0.04 or max(n.count("\n") for n in above) > 1
        )
        head = 0.125 * (1 + max(name.count("\n") for name in above))
        if upright:
            above = self.labels(columns, 1.0, lines=max(1, int(side / 0.125)), what="Columns")
            head = max(map(self.text_width, above))
        high = max(tall(side), 0.13 * max(text.count("\n") + 1 for text in left) + 0.06)
        fig, ax = self.subplots(high * len(left) + head + 0.05 + below)
        ax.set(xlim=(-0.5, len(above) - 0.5), ylim=(len(left) - 0.5, -0.5))
        ax.set_xticks(
            range(len(above)),
            above,
            rotation=90 * upright,
            multialignment="left" if upright else "center",
        )
        ax.set_yticks(range(len(left)), left)
        ax.tick_params(length=0, top=False, labeltop=True, bottom=False, labelbottom=False)
        ax.spines[:].set_visible(False)
        return fig, ax, side

    def legend(self, fig: Figure, handles: Sequence[Any], **options: Any) -> None:
        """A legend above the figure, which grows by it, with as many columns as the page is wide."""
        names = self.labels(
            [handle.get_label() for handle in handles], self.inches - 0.5, lines=2, what="Legend"
        )
        for count in range(len(handles), 0, -1):
            parts = np.array_split(names, count)
            if sum(max(map(self.text_width, part)) + 0.36 for part in parts) <= self.inches - 0.05:
                break
        look: dict[str, Any] = dict(
            loc="outside upper center", handlelength=1.8, handletextpad=0.5, columnspacing=0.9
        )
        fig.legend(list(handles), names, ncols=count, **look, **options)
        self._grow(fig, len(parts[0]) + ("title" in options))

    def _grow(self, fig: Figure, lines: int) -> None:
        fig.set_figheight(min(self.tall, fig.get_figheight() + 0.135 * lines + 0.06))

    def optional(self, text: Text, what: str, room: float = math.inf) -> None:
        """A text that is left out, with all others of its kind, where one is wider than `room` inches or overlaps."""
        self.spare.setdefault(what, []).append((text, room))

    def finish(self, fig: Figure, *account: str) -> Figure:
        """Draw the figure, settle its ticks and close it, so that it is shown as it will be saved.

        account: what the numbers rest on, for the corner and the caption (`fig.get_label()`). One warning names the
        characters that no installed font has.
        """
        for name in fig.findobj(Text):
            name.set_text(self.drawable(name.get_text()))
        counts = [text for text in account if text]
        if self.note and counts:
            lines = [line for text in counts for line in self.wrap(text, 0.93 * self.inches)]
            fig.supxlabel(
                "\n".join(lines), x=0.99, ha="right", color="#555555", linespacing=1.1, **SMALL
            )
            self._grow(fig, len(lines))
        fig.draw_without_rendering()
        for what, members in self.spare.items():
            crowd = {id(text) for pair in crowded(fig) for text in pair}
            if any(
                id(text) in crowd or text.get_window_extent().width > room * fig.dpi
                for text, room in members
            ):
                for text, _ in members:
                    text.remove()
                self.account.append(f"{what.capitalize()} that do not fit are in the figure's data")
                fig.draw_without_rendering()
        if self.lacking:
            some = f"{len(self.lacking)} of the figure's characters ({''.join(sorted(self.lacking)[:12])})"
            remedy = "Install one that has them, for example Noto Sans CJK, and restart the kernel"
            warnings.warn(
                f"no installed font has {some}: they are drawn as boxes. {remedy}", stacklevel=3
            )
        for ax in fig.findobj(
            Axes
        ):  # outside `page` matplotlib would choose the ticks by other settings
            for axis, limits in ((ax.xaxis, ax.get_xlim()), (ax.yaxis, ax.get_ylim())):
                if not isinstance(axis.get_major_locator(), FixedLocator):
                    near = [
                        at for at in axis.get_majorticklocs() if min(limits) <= at <= max(limits)
                    ]
                    axis.set_ticks(near, axis.get_major_formatter().format_ticks(near))
                axis.set_ticks(axis.get_minorticklocs(), minor=True)
                axis.set_minor_formatter(NullFormatter())
            ax.set(xlim=ax.get_xlim(), ylim=ax.get_ylim())
        fig.draw_without_rendering()
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
                hidden |= set(artist.findobj(Text))
    return [
        text
        for text in fig.findobj(Text)
        if text.get_visible() and text.get_text().strip() and text not in hidden
    ]


def crowded(fig: Figure) -> list[tuple[Text, ...]]:
    """Pairs of texts that overlap, and single ones that reach beyond the figure's edge."""
    visible = texts(fig)
    boxes = np.array([text.get_window_extent().extents for text in visible]).reshape(-1, 4)
    slack = 0.012 * fig.dpi
    beyond = (boxes[:, :2] < -slack).any(axis=1) | (
        boxes[:, 2:] > np.array(fig.bbox.max) + slack
    ).any(axis=1)
    low, high = (
        np.maximum(boxes[:, None, :2], boxes[None, :, :2]),
        np.minimum(boxes[:, None, 2:], boxes[None, :, 2:]),
    )
    over = ((high - low) > (slack, 2.2 * slack)).all(axis=2)  # a line's box is higher than its ink
    pairs = np.argwhere(np.triu(over, 1))
    return [(visible[place],) for place in np.flatnonzero(beyond)] + [
        (visible[i], visible[j]) for i, j in pairs
    ]


_KINDS = (
    dict.fromkeys(("Cc", "Zl", "Zp"), " ")
    | dict.fromkeys(("Cs", "Cn"), "\N{REPLACEMENT CHARACTER}")
    | {"Cf": ""}
)


def clean(text: Any) -> str:
    """A text from data as it can be drawn: no surrogates, control characters or marks that turn its direction."""
    return "".join(c if c == "\n" else _KINDS.get(unicodedata.category(c), c) for c in str(text))


@lru_cache(maxsize=4096)
def _points(line: str, families: tuple[str, ...]) -> float:
    """The width of a line in points, at 100 points."""
    font = FontProperties(family=list(families), size=100)
    return (
        float(TextToPath().get_text_width_height_descent(line, font, False)[0])
        if line.strip()
        else 0.0
    )


def ink_on(color: Any) -> str:
    """White on dark colours, ink on pale ones: whichever stands out more."""
    return (
        "white" if np.dot(np.power(to_rgb(color), 2.2), (0.2126, 0.7152, 0.0722)) < 0.213 else INK
    )


def keys(styles: dict[str, Look], **options: Any) -> list[Line2D]:
    """A legend's entries for judges drawn as points or lines, where there are several."""
    return [
        Line2D([], [], ms=4, label=name, **{**look.point, "ls": look.dash, **options})
        for name, look in styles.items()
    ]


def bars(ax: Axes, rows: pd.DataFrame, x: str, y: str, look: Look, *, low: str = "low", high: str = "high",
         shift: Any = 0.0, **options: Any) -> None:  # fmt: skip
    """Points of a judge with their intervals as bars, on a line where there is a dash (`ls`)."""
    reach = np.abs(rows[[low, high]].to_numpy(float) - rows[[y]].to_numpy(float)).T
    ax.errorbar(rows[x] + shift, rows[y], yerr=reach, **{**look.point, "ls": look.dash, **options})


def log_axis(ax: Axes, axis: str, low: float, high: float) -> None:
    """A logarithmic axis with plain numbers, at 1, 2 and 5 where a decade would leave hardly a tick."""
    both = getattr(ax, f"{axis}axis")
    ax.set(**{f"{axis}scale": "log", f"{axis}lim": (low / 1.5, high * 1.5)})
    both.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 200 * low else (1,)))
    both.set_minor_locator(NullLocator())
    both.set_major_formatter("{x:g}")


def short(
    estimate: float, low: float = math.nan, high: float = math.nan, *, digits: int = 2
) -> str:
    """A number, with its interval where it has one, as journals print it: no zero before the point, a minus sign."""
    return format_interval(estimate, low, high, digits, zero=False).replace("-", "\N{MINUS SIGN}")


def p_text(p: float) -> str:
    """A p value; a dash where it is undefined."""
    return "\N{EN DASH}" if math.isnan(p) else f"p {format_p(p)}"


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


def need(
    frame: pd.DataFrame, *columns: str, names: Sequence[str] = (), once: bool = False
) -> pd.DataFrame:
    """A frame whose `names` are texts that can be drawn; refused without these columns, or with a name `once` twice."""
    if absent := [name for name in (*names, *columns) if name not in frame.columns]:
        raise ValueError(f"columns are absent: {absent}; the frame has {list(frame.columns)}")
    if once and (
        twice := frame.loc[frame.duplicated(list(names)), list(names)]
        .drop_duplicates()
        .to_numpy()
        .tolist()
    ):
        raise ValueError(
            f"{twice} appear more than once: give one row of each, for example one statistic of several"
        )
    return frame.assign(**{name: frame[name].astype(object).map(clean) for name in names})
