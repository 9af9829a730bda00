"""Figures and tables as files: PDF, SVG, PNG and LaTeX, each with its caption and data."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.text import Text

from vjudge.plots.canvas import MIN_TEXT, Column, style, width


def save_figure(
    fig: Figure,
    name: str,
    *,
    venue: str = "acl",
    column: Column = "half",
    caption: str,
    data: pd.DataFrame,
    folder: str | Path = "figures",
) -> dict[str, Path]:
    """Write a figure as PDF, SVG and PNG (300 dpi), its caption (.txt) and its data (.csv): the same bytes every time.

    Args:
        fig: the figure; it is set to the venue's width, its height in proportion.
        name: file name without an ending: letters, digits, "-" and "_".
        venue, column: see `VENUES`.
        caption: what is shown, with n, unit, method, seed and failures.
        data: what the figure was drawn from; an index that is not a plain count is written too.
        folder: made when absent.

    Returns:
        The path of each file by its ending.

    Raises:
        ValueError: a bad name or venue, an empty caption, or text smaller than 7 pt at this width. Nothing is written.

    Warns:
        UserWarning: something reaches beyond the figure's edge and would be cut.
    """
    _check_name(name, caption)
    inches = width(venue, column)
    fig.set_size_inches(inches, fig.get_figheight() * inches / fig.get_figwidth())
    with style(venue):
        fig.draw_without_rendering()
        small = sorted({text.get_text() for text in _texts(fig) if float(text.get_fontsize()) < MIN_TEXT})
        if small:
            raise ValueError(
                f"text below {MIN_TEXT:g} pt in figure {name!r}: {small}; enlarge it or shorten the figure"
            )
        edges, canvas = fig.get_tightbbox(), fig.bbox_inches
        over = max(canvas.x0 - edges.x0, edges.x1 - canvas.x1, canvas.y0 - edges.y0, edges.y1 - canvas.y1)
        if over > 0.01:
            warnings.warn(f"figure {name!r} reaches {over:.2f} in beyond its edge and is cut there", stacklevel=2)
        paths = _paths(folder, name, ("pdf", "svg", "png", "txt", "csv"))
        fig.savefig(paths["pdf"], metadata={"CreationDate": None})
        fig.savefig(paths["svg"], metadata={"Date": None})
        fig.savefig(paths["png"], dpi=300, metadata={"Software": None})
    paths["txt"].write_text(caption.strip() + "\n", encoding="utf-8")
    _write_csv(data, paths["csv"])
    return paths


def save_table(
    frame: pd.DataFrame,
    name: str,
    *,
    caption: str,
    folder: str | Path = "figures",
    precision: int = 3,
) -> dict[str, Path]:
    """Write a table as CSV (full precision) and as LaTeX with booktabs rules, every text escaped.

    Args:
        frame: the table; its index is kept unless it is a plain count.
        name: file name without an ending, and the LaTeX label after "tab:".
        caption: the LaTeX caption, as plain text.
        folder: made when absent.
        precision: decimals in LaTeX; a missing value shows as "--".

    Returns:
        The path of each file by its ending.

    Raises:
        ValueError: a bad name or an empty caption.

    >>> import tempfile
    >>> import pandas as pd
    >>> from vjudge.plots import save_table
    >>> frame = pd.DataFrame({"score": [1, 2]})
    >>> paths = save_table(frame, "scores", caption="Scores.", folder=tempfile.mkdtemp())
    >>> sorted(path.name for path in paths.values())
    ['scores.csv', 'scores.tex']
    """
    _check_name(name, caption)
    paths = _paths(folder, name, ("csv", "tex"))
    _write_csv(frame, paths["csv"])
    named = frame.rename_axis(index=[None if level is None else _latex(str(level)) for level in frame.index.names])
    styler = named.style.format(precision=precision, na_rep="--", escape="latex").format_index(escape="latex", axis=1)
    plain = isinstance(frame.index, pd.RangeIndex)
    styler = styler.hide(axis="index") if plain else styler.format_index(escape="latex", axis=0)
    latex = styler.to_latex(
        hrules=True, caption=_latex(caption.strip()), label=f"tab:{name}", position="t", position_float="centering"
    )
    paths["tex"].write_text(latex, encoding="utf-8")
    return paths


def _check_name(name: str, caption: str) -> None:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]*", name):
        raise ValueError(f"{name!r} is no file name: use letters, digits, '-' and '_'")
    if not caption.strip():
        raise ValueError(f"{name!r} has no caption: say what is shown, with n, unit, method, seed and failures")


def _paths(folder: str | Path, name: str, endings: Sequence[str]) -> dict[str, Path]:
    Path(folder).mkdir(parents=True, exist_ok=True)
    return {ending: Path(folder) / f"{name}.{ending}" for ending in endings}


def _write_csv(frame: pd.DataFrame, path: Path) -> None:
    frame.to_csv(path, index=not isinstance(frame.index, pd.RangeIndex), lineterminator="\n")


def _texts(fig: Figure) -> Iterator[Text]:
    return (text for text in fig.findobj(Text) if text.get_visible() and text.get_text().strip())


_LATEX: Mapping[int, str] = str.maketrans(
    {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    | {mark: "\\" + mark for mark in "&%$#_{}"}
)


def _latex(text: str) -> str:
    return text.translate(_LATEX)
