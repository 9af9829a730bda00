"""Figures, captions and tables as files: PDF, SVG, PNG, LaTeX and CSV."""

from __future__ import annotations

import csv
import math
import re
import warnings
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from vjudge.metrics.tables import format_number
from vjudge.plots.style import MIN_TEXT, Column, clean, crowded, need, page, short, texts, width

SYMBOLS = {"pearson": "$r$", "spearman": r"$\rho$", "kendall": r"$\tau$"}
FORMULA = (
    "=",
    "+",
    "-",
    "@",
    "＝",
    "＋",
    "－",
    "＠",
)  # a spreadsheet runs text that begins with one
NUMBER = re.compile(r"\d+(?:,\d{3})*(?:\.\d+)?")


def save_figure(
    fig: Figure, name: str, *, venue: str | None = None, column: Column | None = None, caption: str,
    data: pd.DataFrame, folder: str | Path = "figures",
) -> dict[str, Path]:  # fmt: skip
    """Write a figure as PDF, SVG and PNG (300 dpi), its caption (.txt) and its data (.csv): the same bytes every time.

    Args:
        name: of the files, without an ending: letters, digits, "-" and "_".
        venue, column: for another width than it was drawn for, its height in proportion; None leaves it as it is.
        caption: what is shown; the figure's own account (`fig.get_label()`) is added.
        data: what the figure was drawn from; an index that is not a plain count is written too.

    Returns:
        The path of each file by its ending. A warning says which texts overlap or are cut. ValueError, and nothing
        written: a bad name or venue, an empty caption, or text smaller than 7 pt.
    """
    paths = _paths(folder, name, caption, ("pdf", "svg", "png", "txt", "csv"))
    widths = [width(venue or "acl", kind) for kind in ((column,) if column else ("half", "full"))]
    if (venue or column) and all(abs(fig.get_figwidth() - inches) > 1e-6 for inches in widths):
        fig.set_size_inches(widths[0], fig.get_figheight() * widths[0] / fig.get_figwidth())
    with page():
        fig.draw_without_rendering()
        if small := sorted(
            {text.get_text() for text in texts(fig) if float(text.get_fontsize()) < MIN_TEXT}
        ):
            raise ValueError(f"text below {MIN_TEXT:g} pt in figure {name!r}: {small}; enlarge it")
        for crowd in crowded(fig):
            what = " and ".join(repr(text.get_text()) for text in crowd)
            fault = "overlap" if len(crowd) > 1 else "reaches beyond its edge and is cut there"
            warnings.warn(f"figure {name!r}: {what} {fault}", stacklevel=2)
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
        name: of the files and of the LaTeX label; caption: plain text; precision: decimals in LaTeX; a p value (a
            column `p` or `p_...`) below .001 is printed as such.
        venue: whose page it fits: smaller type, or `table*` across both columns, where it needs that; a table that
            is still too wide is written with a warning.

    Returns:
        The path of each file by its ending; a bad name or an empty caption is a ValueError.

    >>> import tempfile
    >>> paths = save_table(pd.DataFrame({"score": [1, 2]}), "scores", caption="Scores.", folder=tempfile.mkdtemp())
    >>> sorted(path.name for path in paths.values())
    ['scores.csv', 'scores.tex']
    """
    flat = _flat(frame)
    align = "".join("r" if pd.api.types.is_numeric_dtype(kind) else "l" for kind in flat.dtypes)
    cells = flat.map(lambda value: _cell(value, precision))
    for place, column in enumerate(flat.columns):
        if str(column) == "p" or str(column).startswith("p_"):
            tiny = pd.to_numeric(flat.iloc[:, place], errors="coerce").lt(0.001)
            cells.isetitem(place, cells.iloc[:, place].mask(tiny, "$<$0.001"))
    cells = cells.set_axis(map(latex, flat.columns), axis=1)
    return _write(frame, cells, align, name, caption, folder, venue)


def save_correlations(
    table: pd.DataFrame, name: str, *, caption: str, intervals: bool = False, folder: str | Path = "figures",
    precision: int = 3, venue: str = "acl",
) -> dict[str, Path]:  # fmt: skip
    """Write judges (rows) against benchmarks and statistics (columns) as one LaTeX table, the best of a column in bold.

    Args:
        table: as `metrics.correlation_table`: columns judge, benchmark, statistic, estimate; low and high for
            intervals; `ceiling`, True on the rows of people, which stand below a rule and are not compared.
        intervals: whether they stand behind the estimates; others, and what is returned: see `save_table`. The
            caption says what is bold. Where not all benchmarks fit side by side, they stand in blocks below each
            other, in one file.
    """
    columns, bounds = ["benchmark", "statistic"], ["low", "high"] if intervals else []
    rows = need(table, "estimate", *bounds, names=["judge", *columns], once=True)
    people = (
        rows["ceiling"].astype(bool) if "ceiling" in rows else pd.Series(False, index=rows.index)
    )
    rounded = rows["estimate"].astype(float).round(precision).where(~people)
    best = rounded == rounded.groupby([rows[column] for column in columns]).transform("max")
    numbers = rows[["estimate", *bounds]].map(
        lambda number: _minus(short(number, digits=precision))
    )
    text = numbers["estimate"].mask(best, r"\textbf{" + numbers["estimate"] + "}")
    if intervals:
        text += r" {\scriptsize [" + numbers["low"] + ", " + numbers["high"] + "]}"
    rows["text"] = text.where(rows["estimate"].notna(), "--")
    own, others = (rows.loc[kind, "judge"].unique() for kind in (~people, people))
    benchmarks = list(rows["benchmark"].unique())
    statistics = list(rows["statistic"].unique())
    cells = rows.pivot(index="judge", columns=columns, values="text").reindex([*own, *others])
    if best.any():
        caption = f"{caption.strip().rstrip('.')}. Bold: the best of a column."
    # as many benchmarks side by side as the page holds; the others stand in blocks below
    for count in range(1, len(benchmarks) + 1):
        each = math.ceil(len(benchmarks) / count)
        blocks = [
            _block(cells, benchmarks[first : first + each], statistics, others)
            for first in range(0, len(benchmarks), each)
        ]
        if all(_layout(block, venue)[2] for block in blocks):
            break
    return _write(table, blocks, "l" + "r" * each * len(statistics), name, caption, folder, venue)


def _block(
    cells: pd.DataFrame, benchmarks: list[str], statistics: list[str], people: Any
) -> pd.DataFrame:
    """Judges against some of the benchmarks, as cells of LaTeX with a rule under each benchmark."""
    order = pd.MultiIndex.from_product([benchmarks, statistics])
    block = cells.reindex(columns=order).fillna("--")
    block.columns = pd.MultiIndex.from_tuples(
        [(latex(b), SYMBOLS.get(s, latex(s))) for b, s in block.columns]
    )
    rules = []
    for last in range(len(statistics) + 1, len(block.columns) + 2, len(statistics)):
        rules.append(rf"\cmidrule(lr){{{last - len(statistics) + 1}-{last}}}")
    names = [latex(name) for name in block.index]
    for place, name in enumerate(block.index):
        if name in list(people[:1]):
            names[place] = "\\midrule\n" + names[place]  # a rule stands before its row
    block.insert(0, ("", " ".join(rules) + "\njudge"), names)
    return block


def caption(text: str, *tables: pd.DataFrame) -> str:
    """A caption that says n, unit, method, seed and failures, read from what was computed rather than typed.

    Args:
        tables: what statistics returned; each wording of `attrs["method"]` is added once, numbers that differ as a
            range, and how many items they left out. One without a method, as after `pd.concat`, is a ValueError.
    """
    if silent := [place for place, table in enumerate(tables) if not table.attrs.get("method")]:
        raise ValueError(
            f"tables {silent} do not say how they were made (attrs['method']): pass them before pd.concat"
        )
    alike: dict[tuple[str, ...], list[list[str]]] = {}
    for table in tables:
        method = str(table.attrs["method"]).strip()
        alike.setdefault(tuple(NUMBER.split(method)), []).append(NUMBER.findall(method))
    methods = []
    for words, rows in alike.items():
        columns = (
            sorted(set(one), key=lambda text: float(text.replace(",", "")))
            for one in zip(*rows, strict=True)
        )
        ranges = [" to ".join([*column[:1], *column[1:][-1:]]) for column in columns]
        methods.append("".join(chain(*zip_longest(words, ranges, fillvalue=""))))
    missing = []
    for table in tables:
        counts = pd.Series(table.get("missing", 0))
        # Shares of verdicts: the first row is of all; others leave ties out, and those are not missing.
        most = counts.iloc[0] if "malformed" in table.attrs else counts.max()
        missing += [count] if (count := int(table.attrs.get("missing", most))) else []
    some = (
        "1 item"
        if missing == [1]
        else f"{'Up to ' * (len(tables) > 1)}{max(missing, default=0):,} items"
    )
    methods = [method[:1].upper() + method[1:] for method in methods]
    return sentences(
        text, *methods, f"{some} without a score or verdict left out" if missing else ""
    )


def sentences(*parts: str) -> str:
    """Parts of a caption, each with its full stop."""
    whole = ". ".join(part.strip().rstrip(".") for part in parts if part) + "."
    return re.sub(r"(?<=\d) %", "%", clean(whole))


def _paths(
    folder: str | Path, name: str, caption: str, endings: tuple[str, ...]
) -> dict[str, Path]:
    """Where a figure's or table's files go, whose name and caption are checked."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]*", name):
        raise ValueError(f"{name!r} is no file name: use letters, digits, '-' and '_'")
    if not caption.strip():
        raise ValueError(
            f"{name!r} has no caption: say what is shown, with n, unit, method, seed and failures"
        )
    Path(folder).mkdir(parents=True, exist_ok=True)
    return {ending: Path(folder) / f"{name}.{ending}" for ending in endings}


def _flat(frame: pd.DataFrame) -> pd.DataFrame:
    """With the index as columns, unless it is a plain count."""
    if isinstance(frame.index, pd.RangeIndex):
        return frame
    return frame.reset_index(
        names=[level or "" for level in frame.index.names], allow_duplicates=True
    )


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


# Sizes of type from the largest that a table is set in to the smallest: LaTeX's command, points.
SIZES = (("", 10.0), (r"\small", 9.0), (r"\footnotesize", 8.0), (r"\scriptsize", 7.0))
TWO_COLUMNS = ("acl", "icml", "cvpr", "aaai")  # venues where `table*` spans the page


def _layout(cells: pd.DataFrame, venue: str) -> tuple[str, str, bool]:
    """LaTeX's environment and size of type for a table, and whether it fits the venue's page with them.

    A character is taken as half as wide as the type is high, which is wide for Times; a column adds 12 points.
    """
    characters = 0
    for place, column in enumerate(cells.columns):
        head = column[-1] if isinstance(column, tuple) else column
        texts = [head, *cells.iloc[:, place]]
        characters += max(len(_visible(str(text))) for text in texts)
    spaces = 12 * len(cells.columns)
    environments: list[tuple[str, Column]] = [("table", "full")]
    if venue in TWO_COLUMNS:
        environments = [("table", "half"), ("table*", "full")]
    for environment, column in environments:
        for size, points in SIZES:
            if characters * points / 2 + spaces <= 72 * width(venue, column):
                return environment, size, True
    return environment, size, False


def _visible(text: str) -> str:
    """What of a cell of LaTeX is printed."""
    text = text.rpartition("\n")[2]
    return re.sub(r"\\[A-Za-z]+|[{}$\\]", "", text)


def _write(
    data: pd.DataFrame, cells: pd.DataFrame | list[pd.DataFrame], align: str, name: str, caption: str,
    folder: str | Path, venue: str,
) -> dict[str, Path]:  # fmt: skip
    """Data as CSV, and cells of LaTeX as a table with booktabs rules; several blocks stand below each other."""
    paths = _paths(folder, name, caption, ("csv", "tex"))
    write_csv(data, paths["csv"])
    blocks = cells if isinstance(cells, list) else [cells]
    layouts = [_layout(block, venue) for block in blocks]
    environment = max(layout[0] for layout in layouts)  # "table*" where one of them needs it
    size = max((layout[1] for layout in layouts), key=[size for size, _ in SIZES].index)
    if not all(layout[2] for layout in layouts):
        warnings.warn(
            f"table {name!r} is wider than the page of {venue}: leave out columns, or shorten names",
            stacklevel=3,
        )
    tabulars = []
    for block in blocks:
        own = align[: len(block.columns)]
        tabular = block.style.hide(axis="index").to_latex(
            column_format=own, multicol_align="c", hrules=True
        )
        tabulars.append(tabular.strip())
    lines = [
        rf"\begin{{{environment}}}[t]",
        r"\centering",
        rf"\caption{{{latex(caption.strip())}}}",
        rf"\label{{tab:{name}}}",
    ]
    if size:
        lines.append(size)
    lines += ["\n\n\\medskip\n".join(tabulars), rf"\end{{{environment}}}", ""]
    paths["tex"].write_text("\n".join(lines), encoding="utf-8")
    return paths


def _cell(value: Any, precision: int) -> str:
    if pd.api.types.is_scalar(value) and pd.isna(value):
        return "--"
    if pd.api.types.is_number(value) and not pd.api.types.is_bool(value):
        return _minus(
            str(value) if pd.api.types.is_integer(value) else format_number(float(value), precision)
        )
    return latex(value)


def _minus(text: str) -> str:
    return re.sub("[-\N{MINUS SIGN}]", "$-$", text)


_LATEX = str.maketrans(
    {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "\n": " "}
    | {mark: "\\" + mark for mark in "&%$#_{}"}
)


def latex(value: Any) -> str:
    return clean(str(value)).translate(_LATEX)
