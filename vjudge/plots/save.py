"""Figures, captions and tables as files: PDF, SVG, PNG, LaTeX and CSV."""

from __future__ import annotations

import csv
import re
import warnings
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.text import Text

from vjudge.metrics.tables import format_number
from vjudge.plots.style import MIN_TEXT, Column, clean, need, page, width

SYMBOLS = {"pearson": "$r$", "spearman": r"$\rho$", "kendall": r"$\tau$"}
FORMULA = tuple("=+-@＝＋－＠")  # a spreadsheet runs a text that begins with one
NUMBER = re.compile(r"\d+(?:,\d{3})*(?:\.\d+)?")
SIZES = {"": 10.0, r"\small": 9.0, r"\footnotesize": 8.0, r"\scriptsize": 7.0}  # points
TWO_COLUMNS = ("acl", "icml", "cvpr", "aaai")  # venues where `table*` spans the page


def save_figure(
    fig: Figure,
    name: str,
    *,
    caption: str,
    data: pd.DataFrame,
    folder: str | Path = "figures",
    venue: str | None = None,
    column: Column | None = None,
) -> dict[str, Path]:
    """Write a figure as PDF, SVG and PNG (300 dpi), its caption (.txt) and its data (.csv).

    The files are the same bytes in every run.

    Args:
        fig: what a function of this package returned.
        name: of the files, without an ending: letters, digits, "-" and "_".
        caption: what is shown; the figure's own account (`fig.get_label()`) is added.
        data: what the figure was drawn from; an index that is not a plain count is written too.
        folder: where to write; it is made.
        venue, column: for another width than it was drawn for, its height in proportion.

    Returns:
        The path of each file by its ending.

    Raises:
        ValueError: a bad name or venue, an empty caption, or text smaller than 7 points; nothing is
            written.
    """
    check_name(name, caption)
    if venue or column:
        inches = width(venue or "acl", column or "half")
        if column or fig.get_figwidth() != width(venue or "acl", "full"):
            fig.set_size_inches(inches, fig.get_figheight() * inches / fig.get_figwidth())
    texts = [text for text in fig.findobj(Text) if text.get_visible() and text.get_text().strip()]
    small = sorted({text.get_text() for text in texts if float(text.get_fontsize()) < MIN_TEXT})
    if small:
        raise ValueError(f"text below {MIN_TEXT:g} pt in figure {name!r}: {small}; enlarge it")
    paths = _paths(folder, name, ("pdf", "svg", "png", "txt", "csv"))
    with page():
        fig.savefig(paths["pdf"], metadata={"CreationDate": None})
        fig.savefig(paths["svg"], metadata={"Date": None})
        fig.savefig(paths["png"], dpi=300, metadata={"Software": None})
    paths["txt"].write_text(sentences(caption, str(fig.get_label())) + "\n", encoding="utf-8")
    write_csv(data, paths["csv"])
    return paths


def save_table(
    frame: pd.DataFrame,
    name: str,
    *,
    caption: str,
    folder: str | Path = "figures",
    precision: int = 3,
    venue: str = "acl",
) -> dict[str, Path]:
    """Write a table as CSV (full precision) and as LaTeX with booktabs rules, every text escaped.

    Args:
        frame: its index is written unless it is a plain count; a missing value shows as "--".
        name: of the files and of the LaTeX label.
        caption: plain text.
        folder: where to write; it is made.
        precision: decimals in LaTeX; a p value (a column `p` or `p_...`) below .001 says so.
        venue: whose page it fits: smaller type, or `table*` across both columns, where it needs
            that; a table that is still too wide is written with a warning.

    Returns:
        The path of each file by its ending; a bad name or an empty caption is a ValueError.

    >>> import tempfile
    >>> table = pd.DataFrame({"score": [1, 2]})
    >>> paths = save_table(table, "scores", caption="Scores.", folder=tempfile.mkdtemp())
    >>> sorted(path.name for path in paths.values())
    ['scores.csv', 'scores.tex']
    """
    flat = _flat(frame)
    numeric = [pd.api.types.is_numeric_dtype(kind) for kind in flat.dtypes]
    align = "".join("r" if kind else "l" for kind in numeric)
    cells = flat.map(lambda value: _cell(value, precision))
    for place, column in enumerate(flat.columns):
        if str(column) == "p" or str(column).startswith("p_"):
            tiny = pd.to_numeric(flat.iloc[:, place], errors="coerce").lt(0.001)
            cells.isetitem(place, cells.iloc[:, place].mask(tiny, "$<$0.001"))
    cells.columns = pd.Index([latex(column) for column in flat.columns])
    return _write(frame, [cells], align, name, caption, folder, venue)


def save_correlations(
    table: pd.DataFrame,
    name: str,
    *,
    caption: str,
    folder: str | Path = "figures",
    precision: int = 3,
    venue: str = "acl",
) -> dict[str, Path]:
    """Write judges (rows) against benchmarks and statistics (columns) as one LaTeX table.

    The best of a column is bold, which the caption says. Benchmarks that do not fit side by side
    stand in blocks below each other.

    Args:
        table: as `metrics.correlation_table`: columns judge, benchmark, statistic, estimate;
            `ceiling`, True on the rows of people, which stand below a rule and are not compared.
        name, caption, folder, precision, venue: and what is returned: see `save_table`.
    """
    columns = ["benchmark", "statistic"]
    rows = need(table, "estimate", names=["judge", *columns], once=True)
    people = rows.get("ceiling", pd.Series(False, rows.index)).astype(bool)
    rounded = rows["estimate"].astype(float).round(precision).where(~people)
    best = rounded == rounded.groupby([rows[column] for column in columns]).transform("max")
    texts = rows["estimate"].map(lambda value: _cell(value, precision).replace("0.", ".", 1))
    rows["text"] = texts.mask(best, r"\textbf{" + texts + "}")
    if best.any():
        caption = f"{caption.strip().rstrip('.')}. Bold: the best of a column."
    cells = rows.pivot(index="judge", columns=columns, values="text").fillna("--")
    own = list(rows.loc[~people, "judge"].unique())
    names = [*own, *rows.loc[people, "judge"].unique()]
    benchmarks = list(rows["benchmark"].unique())
    statistics = list(rows["statistic"].unique())
    heads = [latex(name) for name in names]
    if people.any():  # a rule stands before the first row of people
        heads[len(own)] = "\\midrule\n" + heads[len(own)]
    # as many benchmarks side by side as the page holds; the others stand in blocks below
    for each in range(len(benchmarks), 0, -1):
        blocks = []
        for first in range(0, len(benchmarks), each):
            order = pd.MultiIndex.from_product([benchmarks[first : first + each], statistics])
            block = cells.reindex(index=names, columns=order, fill_value="--")
            tops = [(latex(b), SYMBOLS.get(s, latex(s))) for b, s in order]
            block.columns = pd.MultiIndex.from_tuples(tops)
            block.insert(0, ("", "judge"), heads)
            blocks.append(block)
        if all(_layout(block, venue)[2] for block in blocks):
            break
    align = "l" + "r" * each * len(statistics)
    return _write(table, blocks, align, name, caption, folder, venue)


def caption(text: str, *tables: pd.DataFrame) -> str:
    """A caption with n, unit, method, seed and failures, read from what was computed.

    Args:
        text: what is shown.
        tables: what statistics returned; each wording of `attrs["method"]` is added once, numbers
            that differ as a range, and how many items they left out. One without a method, as after
            `pd.concat`, is a ValueError.
    """
    silent = [place for place, table in enumerate(tables) if not table.attrs.get("method")]
    if silent:
        raise ValueError(
            f"tables {silent} do not say how they were made (attrs['method']): "
            "pass them before pd.concat"
        )
    alike: dict[tuple[str, ...], list[list[str]]] = {}
    for table in tables:
        method = str(table.attrs["method"]).strip()
        method = method[:1].upper() + method[1:]
        alike.setdefault(tuple(NUMBER.split(method)), []).append(NUMBER.findall(method))
    methods = []
    for words, rows in alike.items():
        ranges = [_range(numbers) for numbers in zip(*rows, strict=True)]
        methods.append("".join(chain(*zip_longest(words, ranges, fillvalue=""))))
    missing = [count for count in map(_left_out, tables) if count]
    gone = ""
    if missing:
        some = "1 item" if missing == [1] else f"{max(missing):,} items"
        if len(tables) > 1:
            some = f"Up to {max(missing):,} items"
        gone = f"{some} without a score or verdict left out"
    return sentences(text, *methods, gone)


def _range(numbers: tuple[str, ...]) -> str:
    """Numbers at one place of several sentences: one, or the least to the most."""
    ordered = sorted(set(numbers), key=lambda text: float(text.replace(",", "")))
    return ordered[0] if len(ordered) == 1 else f"{ordered[0]} to {ordered[-1]}"


def _left_out(table: pd.DataFrame) -> int:
    """How many items a table left out for want of a score or verdict."""
    counts = pd.Series(table.get("missing", 0))
    # Shares of verdicts: the first row is of all; others leave ties out, which are not missing.
    most = counts.iloc[0] if "malformed" in table.attrs else counts.max()
    return int(table.attrs.get("missing", most))


def sentences(*parts: str) -> str:
    """Parts of a caption, each with its full stop."""
    whole = ". ".join(part.strip().rstrip(".") for part in parts if part) + "."
    return re.sub(r"(?<=\d) %", "%", clean(whole))


def check_name(name: str, caption: str = "none") -> None:
    """Refuse a name that is no file name, and an empty caption."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]*", name):
        raise ValueError(f"{name!r} is no file name: use letters, digits, '-' and '_'")
    if not caption.strip():
        raise ValueError(
            f"{name!r} has no caption: say what is shown, with n, unit, method and seed"
        )


def _paths(folder: str | Path, name: str, endings: tuple[str, ...]) -> dict[str, Path]:
    Path(folder).mkdir(parents=True, exist_ok=True)
    return {ending: Path(folder) / f"{name}.{ending}" for ending in endings}


def _flat(frame: pd.DataFrame) -> pd.DataFrame:
    """With the index as columns, unless it is a plain count."""
    if isinstance(frame.index, pd.RangeIndex):
        return frame
    names = [level or "" for level in frame.index.names]
    return frame.reset_index(names=names, allow_duplicates=True)


def write_csv(frame: pd.DataFrame, path: Path) -> None:
    """Write a CSV that a spreadsheet opens as data.

    Every text is quoted, so that a lone carriage return ends no row. A text that would run as a
    formula, also after white space, gets an apostrophe before it.
    """
    safe = _flat(frame).map(_harmless).rename(columns=_harmless)
    quoting = csv.QUOTE_NONNUMERIC
    safe.to_csv(path, index=False, lineterminator="\n", encoding="utf-8", quoting=quoting)


def _harmless(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    value = value.encode("utf-8", "replace").decode()  # a lone surrogate is no text
    runs = value.lstrip().startswith(FORMULA) or value.startswith(("\t", "\r", "\n"))
    if runs and pd.isna(pd.to_numeric(value, errors="coerce")):
        return "'" + value
    return value


def _layout(cells: pd.DataFrame, venue: str) -> tuple[str, str, bool]:
    """LaTeX's environment and size of type for a table, and whether it then fits the venue's page.

    A character is taken as half as wide as the type is high, which is wide for Times; a column adds
    12 points.
    """
    characters = 0
    for place, column in enumerate(cells.columns):
        head = column[-1] if isinstance(column, tuple) else column
        texts = [str(head), *map(str, cells.iloc[:, place])]
        characters += max(len(_visible(text)) for text in texts)
    spaces = 12 * len(cells.columns)
    environments: dict[str, Column] = {"table": "full"}
    if venue in TWO_COLUMNS:
        environments = {"table": "half", "table*": "full"}
    for environment, column in environments.items():
        for size, points in SIZES.items():
            if characters * points / 2 + spaces <= 72 * width(venue, column):
                return environment, size, True
    return environment, size, False


def _visible(text: str) -> str:
    """What of a cell of LaTeX is printed."""
    text = text.rpartition("\n")[2]
    return re.sub(r"\\[A-Za-z]+|[{}$\\]", "", text)


def _write(
    data: pd.DataFrame,
    blocks: list[pd.DataFrame],
    align: str,
    name: str,
    caption: str,
    folder: str | Path,
    venue: str,
) -> dict[str, Path]:
    """Data as CSV, and cells of LaTeX as a table with booktabs rules; blocks below each other."""
    check_name(name, caption)
    paths = _paths(folder, name, ("csv", "tex"))
    write_csv(data, paths["csv"])
    layouts = [_layout(block, venue) for block in blocks]
    environment = max(layout[0] for layout in layouts)  # "table*" where one of them needs it
    size = max((layout[1] for layout in layouts), key=list(SIZES).index)
    if not all(layout[2] for layout in layouts):
        warnings.warn(
            f"table {name!r} is wider than the page of {venue}: leave out columns or shorten names",
            stacklevel=3,
        )
    tabulars = []
    for block in blocks:
        styler = block.style.hide(axis="index")
        own = align[: len(block.columns)]
        tabulars.append(styler.to_latex(column_format=own, multicol_align="c", hrules=True).strip())
    head = [rf"\begin{{{environment}}}[t]", r"\centering", rf"\caption{{{latex(caption.strip())}}}"]
    head.append(rf"\label{{tab:{name}}}")
    if size:
        head.append(size)
    body = "\n\n\\medskip\n".join(tabulars)
    lines = [*head, body, rf"\end{{{environment}}}", ""]
    paths["tex"].write_text("\n".join(lines), encoding="utf-8")
    return paths


def _cell(value: Any, precision: int) -> str:
    if not pd.api.types.is_scalar(value):
        return latex(value)
    if pd.isna(value):
        return "--"
    if pd.api.types.is_number(value) and not pd.api.types.is_bool(value):
        whole = pd.api.types.is_integer(value)
        return _minus(str(value) if whole else format_number(float(value), precision))
    return latex(value)


def _minus(text: str) -> str:
    return re.sub("[-\N{MINUS SIGN}]", "$-$", text)


_LATEX = str.maketrans(
    {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "\n": " "}
    | {mark: "\\" + mark for mark in "&%$#_{}"}
)


def latex(value: Any) -> str:
    """A text as LaTeX prints it, every special character escaped."""
    return clean(str(value)).translate(_LATEX)
