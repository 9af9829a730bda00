"""Figures, captions and tables as files: PDF, SVG, PNG, LaTeX and CSV."""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from vjudge.plots.style import MIN_TEXT, Column, clean, crowded, need, page, short, texts, width

SYMBOLS = {"pearson": "$r$", "spearman": r"$\rho$", "kendall": r"$\tau$"}
FORMULA = ("=", "+", "-", "@", "\t", "\r")  # a spreadsheet runs a text cell that begins with one


def save_figure(
    fig: Figure, name: str, *, venue: str | None = None, column: Column | None = None, caption: str,
    data: pd.DataFrame, folder: str | Path = "figures",
) -> dict[str, Path]:  # fmt: skip
    """Write a figure as PDF, SVG and PNG (300 dpi), its caption (.txt) and its data (.csv): the same bytes every time.

    Args:
        fig: the figure; name: of its files, without an ending: letters, digits, "-" and "_".
        venue, column: for another width than it was drawn for, its height in proportion; None leaves it as it is.
        caption: what is shown; the figure's own account (`fig.get_label()`) is added where it is not in it.
        data: what the figure was drawn from; an index that is not a plain count is written too.
        folder: made when absent.

    Returns:
        The path of each file by its ending.

    Raises:
        ValueError: a bad name or venue, an empty caption, or text smaller than 7 pt. Nothing is written.

    Warns:
        UserWarning: texts overlap, or something reaches beyond the figure's edge and would be cut.
    """
    paths = _paths(folder, name, caption, ("pdf", "svg", "png", "txt", "csv"))
    widths = [width(venue or "acl", kind) for kind in ((column,) if column else ("half", "full"))]
    if (venue or column) and all(abs(fig.get_figwidth() - inches) > 1e-6 for inches in widths):
        fig.set_size_inches(widths[0], fig.get_figheight() * widths[0] / fig.get_figwidth())
    with page():
        fig.draw_without_rendering()
        small = sorted({text.get_text() for text in texts(fig) if float(text.get_fontsize()) < MIN_TEXT})
        if small:
            raise ValueError(f"text below {MIN_TEXT:g} pt in figure {name!r}: {small}; enlarge it")
        for crowd in crowded(fig):
            what = " and ".join(repr(text.get_text()) for text in crowd)
            fault = "overlap" if len(crowd) > 1 else "reaches beyond its edge and is cut there"
            warnings.warn(f"figure {name!r}: {what} {fault}", stacklevel=2)
        fig.savefig(paths["pdf"], metadata={"CreationDate": None})
        fig.savefig(paths["svg"], metadata={"Date": None})
        fig.savefig(paths["png"], dpi=300, metadata={"Software": None})
    account = [part for part in str(fig.get_label() or "").split(". ") if part and part.rstrip(".") not in caption]
    account = [part if part.startswith("n =") else part[:1].upper() + part[1:] for part in account]
    whole = ". ".join([caption.strip().rstrip("."), *account]).rstrip(".") + "."
    paths["txt"].write_text(_plain(whole) + "\n", encoding="utf-8")
    write_csv(data, paths["csv"])
    return paths


def save_table(
    frame: pd.DataFrame, name: str, *, caption: str, folder: str | Path = "figures", precision: int = 3
) -> dict[str, Path]:
    """Write a table as CSV (full precision) and as LaTeX with booktabs rules, every text escaped.

    Args:
        frame: the table; its index is written unless it is a plain count.
        name: of the files, without an ending, and of the LaTeX label; caption: plain text; folder: made when absent.
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
    flat = frame
    if not isinstance(frame.index, pd.RangeIndex):
        flat = frame.reset_index(names=[level or "" for level in frame.index.names], allow_duplicates=True)
    paths = _paths(folder, name, caption, ("csv", "tex"))
    write_csv(frame, paths["csv"])
    align = "".join("r" if pd.api.types.is_numeric_dtype(kind) else "l" for kind in flat.dtypes)
    cells = flat.map(lambda value: _cell(value, precision)).set_axis(map(latex, flat.columns), axis=1)
    paths["tex"].write_text(_tabular(cells, name, caption, align), encoding="utf-8")
    return paths


def save_correlations(
    table: pd.DataFrame, name: str, *, caption: str, intervals: bool = False, folder: str | Path = "figures",
    precision: int = 3,
) -> dict[str, Path]:  # fmt: skip
    """Write judges (rows) against benchmarks and statistics (columns) as one LaTeX table, the best of a column in bold.

    Args:
        table: as `metrics.correlation_table`: columns judge, benchmark, statistic, estimate; low and high for
            intervals; `ceiling`, True on the rows of people, which stand below a rule and are not compared.
        name, caption, folder, precision: see `save_table`.
        intervals: whether intervals stand behind the estimates.

    Returns:
        The path of each file by its ending; the CSV is the frame as it came.

    Raises:
        ValueError: a column is absent, a cell appears twice, or as `save_table`.
    """
    keys, bounds = ["judge", "benchmark", "statistic"], ["low", "high"] if intervals else []
    need(table, *keys, "estimate", *bounds, once=keys)
    people = table["ceiling"].astype(bool) if "ceiling" in table else pd.Series(False, index=table.index)
    rounded = table["estimate"].astype(float).round(precision)
    best = rounded == rounded.where(~people).groupby([table["benchmark"], table["statistic"]]).transform("max")

    def cell(row: pd.Series) -> str:
        if math.isnan(row["estimate"]):
            return "--"
        numbers = [_minus(short(row[part], precision)) for part in ("estimate", *bounds)]
        text = rf"\textbf{{{numbers[0]}}}" if best[row.name] and not people[row.name] else numbers[0]
        return text + (rf" {{\scriptsize [{', '.join(numbers[1:])}]}}" if bounds else "")

    texts = table.assign(text=table.apply(cell, axis=1)).set_index(keys)["text"]
    cells = texts.unstack(keys[1:], sort=False).fillna("--")
    benchmarks, own = list(table["benchmark"].unique()), list(table.loc[~people, "judge"].unique())
    cells = cells.sort_index(axis=1, level=0, sort_remaining=False, key=lambda names: names.map(benchmarks.index))
    cells = cells.loc[[*own, *table.loc[people, "judge"].unique()]]
    wide = cells.columns.get_level_values(0).value_counts(sort=False)
    ends = 1 + wide.cumsum()
    rules = " ".join(rf"\cmidrule(lr){{{end - size + 1}-{end}}}" for end, size in zip(ends, wide, strict=True))
    cells.columns = pd.MultiIndex.from_tuples([(latex(b), SYMBOLS.get(str(s), latex(s))) for b, s in cells.columns])
    cells.insert(0, ("", "judge"), [latex(judge) for judge in cells.index])
    text = _tabular(cells, name, caption, "l" + "r" * (len(cells.columns) - 1)).split("\n")
    text.insert(text.index(r"\toprule") + 2, rules)
    if people.any():
        text.insert(text.index(r"\midrule") + 1 + len(own), r"\midrule")
    paths = _paths(folder, name, caption, ("csv", "tex"))
    write_csv(table, paths["csv"])
    paths["tex"].write_text("\n".join(text), encoding="utf-8")
    return paths


def caption(text: str, *tables: pd.DataFrame) -> str:
    """A caption that says n, unit, method, seed and failures, read from what was computed rather than typed.

    Args:
        text: what is shown, in full sentences.
        tables: what statistics returned; each wording of `attrs["method"]` is added once, numbers that differ as a
            range, and how many items they left out.

    Raises:
        ValueError: a table has no method, as after `pd.concat`: pass the tables as they were returned.
    """
    silent = [place for place, table in enumerate(tables) if not table.attrs.get("method")]
    if silent:
        raise ValueError(f"tables {silent} do not say how they were made (attrs['method']): pass them before pd.concat")
    parts = [text.strip().rstrip("."), *_methods([str(table.attrs["method"]).strip().rstrip(".") for table in tables])]
    missing = [count for count in map(_missing, tables) if count]
    if missing:
        some = "1 item" if missing == [1] else f"{'Up to ' if len(tables) > 1 else ''}{max(missing):,} items"
        parts.append(f"{some} without a score or verdict left out")
    return _plain(". ".join(parts) + ".")


def _missing(table: pd.DataFrame) -> int:
    if "missing" in table.attrs:
        return int(table.attrs["missing"])
    if "missing" not in table or table.empty:
        return 0
    # Shares of verdicts: the first row is of all; others leave ties out, and those are not missing.
    return int(table["missing"].iloc[0] if "malformed" in table.attrs else table["missing"].max())


def _methods(methods: Sequence[str]) -> list[str]:
    """Each wording once; where wordings differ in their numbers alone, with the numbers' ranges."""
    number = re.compile(r"\d+(?:,\d{3})*(?:\.\d+)?")
    alike: dict[str, list[list[str]]] = {}
    for method in methods:
        wording = number.sub("{}", method.replace("{", "(").replace("}", ")"))
        alike.setdefault(wording, []).append(number.findall(method))
    merged = [wording.format(*map(_numbers, zip(*rows, strict=True))) for wording, rows in alike.items()]
    return [method[:1].upper() + method[1:] for method in merged]


def _numbers(numbers: Sequence[str]) -> str:
    ordered = sorted(set(numbers), key=lambda text: float(text.replace(",", "")))
    return ordered[0] if len(ordered) == 1 else f"{ordered[0]} to {ordered[-1]}"


def _plain(text: str) -> str:
    return re.sub(r"(?<=\d) %", "%", clean(text))


def _paths(folder: str | Path, name: str, caption: str, endings: Sequence[str]) -> dict[str, Path]:
    """Where a figure's or table's files go, whose name and caption are checked."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]*", name):
        raise ValueError(f"{name!r} is no file name: use letters, digits, '-' and '_'")
    if not caption.strip():
        raise ValueError(f"{name!r} has no caption: say what is shown, with n, unit, method, seed and failures")
    Path(folder).mkdir(parents=True, exist_ok=True)
    return {ending: Path(folder) / f"{name}.{ending}" for ending in endings}


def write_csv(frame: pd.DataFrame, path: Path) -> None:
    """A CSV that a spreadsheet opens as data: a text that it would run as a formula has an apostrophe before it."""
    safe = frame.map(_harmless).rename(columns=_harmless)
    indexed = not isinstance(frame.index, pd.RangeIndex)
    if indexed:
        safe = safe.rename(index=_harmless).rename_axis(index=[_harmless(name) for name in frame.index.names])
    safe.to_csv(path, index=indexed, lineterminator="\n", encoding="utf-8")


def _harmless(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    value = value.encode("utf-8", "replace").decode()  # a lone surrogate is no text
    return "'" + value if value.startswith(FORMULA) and pd.isna(pd.to_numeric(value, errors="coerce")) else value


def _tabular(cells: pd.DataFrame, name: str, caption: str, align: str) -> str:
    """A table of LaTeX cells with booktabs rules."""
    look: dict[str, Any] = {"position": "t", "position_float": "centering", "multicol_align": "c"}
    about = {"caption": latex(caption.strip()), "label": f"tab:{name}"}
    return str(cells.style.hide(axis="index").to_latex(column_format=align, hrules=True, **about, **look))


def _cell(value: Any, precision: int) -> str:
    if pd.api.types.is_scalar(value) and pd.isna(value):
        return "--"
    if pd.api.types.is_number(value) and not pd.api.types.is_bool(value):
        whole = pd.api.types.is_integer(value)
        return _minus(str(value) if whole else f"{round(float(value), precision) + 0.0:.{precision}f}")
    return latex(value)


def _minus(text: str) -> str:
    return re.sub("[-\N{MINUS SIGN}]", "$-$", text)


_LATEX = str.maketrans(
    {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "\n": " "}
    | {mark: "\\" + mark for mark in "&%$#_{}"}
)


def latex(value: Any) -> str:
    return clean(str(value)).translate(_LATEX)
