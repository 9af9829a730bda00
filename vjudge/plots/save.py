"""Figures, captions and tables as files: PDF, SVG, PNG, LaTeX and CSV."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
from anyascii import anyascii
from matplotlib.figure import Figure
from pandas import DataFrame
from pandas.api.types import is_integer_dtype

from vjudge.judging.columns import closed_in
from vjudge.metrics.formatting import format_number, format_p
from vjudge.plots.style import best, clean, counts, need, page, short
from vjudge.records import is_missing

FORMULA = re.compile(r"\s*[=+@＝＋－＠-]|[\t\r\n]")  # a spreadsheet runs a text that begins so
TWO_COLUMNS = ("acl", "icml", "cvpr", "aaai")  # venues where `table*` spans the page
NARROW = 50  # characters of a row that one of two columns holds
MOST_LINES = 40  # of text, of a table on one page
WIDE = 4.0  # inches; a wider figure spans two columns
HEADS = {"p_holm": "p (Holm)", "a": "judge A", "b": "judge B"}
HEADS |= {"pearson": "Pearson", "spearman": "Spearman", "kendall": "Kendall"}
PREAMBLE = "% in the preamble: \\usepackage{booktabs,adjustbox}, \\usepackage[T1]{fontenc}\n"
NOTHING = "\N{EN DASH}"  # what stands for a missing value
NUMBER = "(?:\N{EN DASH}|(?:< )?[-\N{MINUS SIGN}]?\\.?\\d[^a-zA-Z]*)$"  # with its interval
FOLDED = 60  # characters of a text that stands on several lines
FOLD = 40  # characters on each of them
LONG_WORD = 25  # characters of a word that such lines cannot hold
T1_LETTERS = set(filter(str.isalpha, map(chr, range(0xA1, 0x180)))) - set(
    "ĦħĸĿŀŉŦŧſ"
)  # of T1 fonts
PRINTED = {*map(chr, range(32, 127)), *"\n\N{MINUS SIGN}\N{EN DASH}\u2265\u2264", *T1_LETTERS}


def save_figure(
    fig: Figure, name: str, *, caption: str, data: DataFrame, folder: str | Path = "figures"
) -> dict[str, Path]:
    """Write a figure as PDF, SVG and PNG (300 dpi), its LaTeX, its caption and its data (CSV).

    The files are the same bytes in every run.

    Args:
        fig: what a function of this package returned.
        name: of the files, without an ending: letters, digits, "-" and "_".
        caption: what is shown; the figure's own account (`fig.get_label()`) is added.
        data: what the figure was drawn from; an index that is not a plain count is written too.
        folder: where to write; it is made.

    Returns:
        The path of each file by its ending: pdf, svg, png, tex (a `figure` environment with the
        escaped caption and a label), txt (the caption), csv.

    ValueError: a bad name or an empty caption.
    """
    check_name(name, caption)
    paths = _paths(folder, name, "pdf", "svg", "png", "tex", "txt", "csv")
    with page():
        for ending, changing in (("pdf", "CreationDate"), ("svg", "Date"), ("png", "Software")):
            fig.savefig(paths[ending], metadata={changing: None})
    account = str(fig.get_label())
    text = caption if account and account in caption else sentences(caption, account)
    paths["txt"].write_text(text + "\n", encoding="utf-8")
    paths["tex"].write_text(figure_latex(name, text, fig.get_figwidth()), encoding="utf-8")
    write_csv(data, paths["csv"])
    return paths


def figure_latex(name: str, caption: str, inches: float) -> str:
    r"""The `figure` environment that shows a saved figure; it needs the package graphicx.

    A figure wider than 4 inches spans both columns (`figure*`; in one column that is the same).
    """
    environment = "figure*" if inches > WIDE else "figure"
    lines = [
        "% in the preamble: \\usepackage{graphicx}",
        rf"\begin{{{environment}}}[t]",
        r"\centering",
        r"\includegraphics[width=\linewidth,height=.75\textheight,keepaspectratio]"
        rf"{{{name}.pdf}}",
        rf"\caption{{{latex(caption)}}}",
        rf"\label{{fig:{name}}}",
        rf"\end{{{environment}}}",
    ]
    return "\n".join(lines) + "\n"


def save_table(
    frame: DataFrame,
    name: str,
    *,
    caption: str,
    folder: str | Path = "figures",
    venue: str = "acl",
    bold: DataFrame | None = None,
    data: DataFrame | None = None,
) -> dict[str, Path]:
    """Write a table as CSV (full precision) and as LaTeX with booktabs rules, every text escaped.

    The preamble needs the packages booktabs and adjustbox: a table that is wider than its column is
    scaled to it, and one of more than 40 lines is split into several.

    Args:
        frame: its index is written unless it is a plain count; a missing value shows as "--", and a
            p value (a column `p` or `p_...`) below .001 says so.
        name: of the files and of the LaTeX label.
        caption: plain text.
        folder: where to write; it is made.
        venue: where two columns stand on its page, a table too wide for one is `table*`.
        bold: by the frame's index and some of its columns, which cells are bold.
        data: what the CSV holds; None means the frame.

    Returns:
        The path of each file by its ending.

    ValueError: a bad name or an empty caption.

    >>> import tempfile
    >>> table = pd.DataFrame({"score": [1, 2]})
    >>> paths = save_table(table, "scores", caption="Scores.", folder=tempfile.mkdtemp())
    >>> sorted(path.name for path in paths.values())
    ['scores.csv', 'scores.tex']
    """
    check_name(name, caption)
    paths = _paths(folder, name, "csv", "tex")
    write_csv(frame if data is None else data, paths["csv"])
    text = table_latex(frame, name, caption=caption, venue=venue, bold=bold)
    paths["tex"].write_text(PREAMBLE + text, encoding="utf-8")
    return paths


def table_latex(
    frame: DataFrame,
    name: str,
    *,
    caption: str,
    venue: str = "acl",
    bold: DataFrame | None = None,
) -> str:
    """A table as LaTeX, in parts of at most 40 lines of text; arguments as of `save_table`.

    Characters that pdflatex does not know are transliterated, which the caption says.
    """
    texts = table_texts(frame)
    everything = "".join([*texts, *texts.to_numpy().ravel()])
    if printable(everything) != everything:
        caption = sentences(caption, "Names in other scripts are transliterated")
    cells = texts.map(latex)
    if bold is not None:
        named = cells.set_axis(_flat(frame).columns, axis=1)
        marks = bold.reset_index(drop=True).reindex(columns=named.columns, fill_value=False)
        cells = named.mask(marks, r"\textbf{" + named + "}").set_axis(cells.columns, axis=1)
    lengths = [max([len(head), *map(len, column)]) + 2 for head, column in texts.items()]
    wide = venue in TWO_COLUMNS and sum(lengths) > NARROW
    environment = "table*" if wide else "table"
    alignments = [_alignment(column) for _, column in texts.items()]
    folded = texts.loc[:, [kind.startswith("p") for kind in alignments]]
    heights = 1 + (folded.map(len) - 1).clip(lower=0).max(axis=1).fillna(0) // FOLD  # in lines
    pages = (heights.cumsum() - 1) // MOST_LINES
    tables = []
    for number in range(int(pages.max()) + 1 if len(pages) else 1):
        rows = [cells.columns.map(latex), *cells[pages == number].to_numpy()]
        head, *body = [" & ".join(row) + r" \\" for row in rows]
        title = latex(caption)
        label = name
        if number:
            # a part has the number of its table
            title = "(Continued.)"
            label = f"{name}-{number + 1}"
        lines = [
            rf"\begin{{{environment}}}[t]",
            r"\addtocounter{table}{-1}\centering" if number else r"\centering",
            rf"\caption{{{title}}}\smallskip",
            rf"\label{{tab:{label}}}",
            r"\begin{adjustbox}{max width=\linewidth}",
            rf"\begin{{tabular}}{{{''.join(alignments)}}}",
            *[r"\toprule", head, r"\midrule", *body, r"\bottomrule"],
            r"\end{tabular}",
            r"\end{adjustbox}",
            rf"\end{{{environment}}}",
        ]
        tables.append("\n".join(lines) + "\n")
    return "\n".join(tables)


def _alignment(texts: pd.Series) -> str:
    """Of a column: numbers right, long texts folded, others left."""
    if texts.str.match(NUMBER).all():
        return "r"
    if texts.str.len().max() > FOLDED and texts.str.split().explode().str.len().max() < LONG_WORD:
        return r"p{.5\linewidth}"
    return "l"


def table_texts(frame: DataFrame) -> DataFrame:
    """A table's cells and heads as texts that a person reads: three digits, p values, no NaN.

    >>> table_texts(pd.DataFrame({"estimate": [0.12345], "p_holm": [1e-6]})).values.tolist()
    [['0.123', '< .001']]
    >>> table_texts(pd.DataFrame({"passes": [True, False]})).values.tolist()
    [['True'], ['False']]
    """
    flat = _flat(frame)
    # columns of one head, such as "r_1" and "r 1", stay two
    texts = pd.concat([_column_texts(values) for _, values in flat.items()], axis=1)
    return texts.set_axis([HEADS.get(name, str(name).replace("_", " ")) for name in flat], axis=1)


def _column_texts(values: pd.Series) -> pd.Series:
    """A column's cells as texts; "–" where one is missing."""
    to_text: Callable[[Any], str] = _cell_text
    if str(values.name) == "p" or str(values.name).startswith("p_"):
        to_text = _p_text
    elif _is_whole(values):
        to_text = "{:,.0f}".format
    texts = [NOTHING if is_missing(value) else to_text(value) for value in values]
    return pd.Series(texts, index=values.index, dtype=object)


def _is_whole(values: pd.Series) -> bool:
    """Whether a column holds whole numbers alone, such as scores of a rubric."""
    numbers = values.dropna()
    if pd.api.types.is_bool_dtype(values):
        return False
    if not pd.api.types.is_numeric_dtype(values) or values.name in ("estimate", "low", "high"):
        return False
    return len(numbers) > 0 and bool((numbers % 1 == 0).all())


def _p_text(value: float) -> str:
    return format_p(value).removeprefix("= ")


def _cell_text(value: object) -> str:
    """A cell: numbers with three digits, whole ones plain."""
    if isinstance(value, float):
        return (
            f"{value:,.0f}" if value.is_integer() and abs(value) >= 10 else format_number(value, 3)
        )
    return clean(value)


def save_correlations(
    table: DataFrame, name: str, *, caption: str, folder: str | Path = "figures", venue: str = "acl"
) -> dict:
    """Write correlations as one LaTeX table: a row a benchmark and judge, a column a statistic.

    The best of each benchmark is bold, which the caption says.

    Args:
        table: columns judge, benchmark, statistic, estimate;
            `ceiling`, True on the rows of people, which are not compared.
        name, caption, folder, venue: and what is returned: see `save_table`.
    """
    keys = ["benchmark", "judge", "statistic"]
    rows = need(table, "estimate", names=keys)
    rows["bold"] = best(rows, ["benchmark", "statistic"])
    bounds = rows.reindex(columns=["estimate", "low", "high"]).to_numpy(float)
    rows["text"] = [short(*row) for row in bounds]
    grid = rows.set_index(keys)[["text", "bold"]].unstack(sort=False)
    paths = save_table(
        grid["text"],
        name,
        caption=sentences(caption, counts(table), "Bold: the best judge of each benchmark"),
        folder=folder,
        venue=venue,
        bold=grid["bold"],
    )
    write_csv(table, paths["csv"])
    return paths


def caption(text: str, *tables: DataFrame) -> str:
    """A caption with n, unit, method, seed and failures, read from what was computed.

    Args:
        text: what is shown.
        tables: what statistics returned; `attrs["method"]` of the first is added, and how many
            items they left out. One without a method, as after `pd.concat`, is a KeyError. Of runs
            among them it is added how many verdicts were closed.
    """
    closed = map(closed_in, tables)
    statistics = [table for table in tables if "closed" not in table]
    methods = list(dict.fromkeys(table.attrs["method"] for table in statistics))
    if len(methods) > 1:
        methods = [f"{methods[0]}; alike for the others, of their own items"]
    missing = max((table["missing"].max() for table in statistics if "missing" in table), default=0)
    if missing:
        methods.append(f"Items without a score or verdict are left out, up to {missing:,.0f}")
    return sentences(text, *methods, *closed)


def sentences(*texts: str) -> str:
    """Parts of a caption, each with its full stop."""
    return clean(". ".join(text.strip().rstrip(".") for text in texts if text) + ".")


def check_name(name: str, caption: str = "none") -> None:
    """Refuse a name that is no file name, and an empty caption."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]*", name):
        raise ValueError(f"{name!r} is no file name: use letters, digits, '-' and '_'")
    if not caption.strip():
        raise ValueError(
            f"{name!r} has no caption: say what is shown, with n, unit, method and seed"
        )


def _paths(folder: str | Path, name: str, *endings: str) -> dict:
    home = Path(folder).expanduser()
    home.mkdir(parents=True, exist_ok=True)
    return {ending: home / f"{name}.{ending}" for ending in endings}


def _flat(frame: DataFrame) -> DataFrame:
    """With the index as columns, unless it is a count of rows."""
    index = frame.index
    is_count = index.nlevels == 1 and index.name is None and is_integer_dtype(index)
    return frame.reset_index(drop=is_count)


def write_csv(frame: DataFrame, path: Path) -> None:
    """Write a CSV that a spreadsheet opens as data.

    Every text is quoted, so that a lone carriage return ends no row. A text that would run as a
    formula, also after white space, gets an apostrophe before it.
    """
    safe = _flat(frame).map(_harmless).rename(columns=_harmless)
    safe.to_csv(
        path,
        index=False,
        lineterminator="\n",
        encoding="utf-8",
        errors="replace",
        quoting=csv.QUOTE_NONNUMERIC,
    )


def _harmless(value: object) -> Any:
    if isinstance(value, str) and FORMULA.match(value):
        return "'" + value
    return value


_LATEX = str.maketrans(
    {
        "\N{MINUS SIGN}": "$-$",
        "\N{EN DASH}": "--",
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "\n": " ",
    }
    | {mark: "\\" + mark for mark in "&%$#_{}"}
    | {mark: f"${mark}$" for mark in "<>|"}
    | {"\N{GREATER-THAN OR EQUAL TO}": r"$\ge$", "\N{LESS-THAN OR EQUAL TO}": r"$\le$"}
)


def printable(text: str) -> str:
    """A text in characters that pdflatex prints: others are transliterated.

    >>> printable("Größe ≥ 模型")
    'Größe ≥ MoXing'
    """
    return "".join(c if c in PRINTED else anyascii(c) for c in text)


def latex(value: object) -> str:
    r"""A text as LaTeX prints it, every special character escaped.

    >>> latex("[50%] a_b"), latex("-0.5"), latex("p < 1")
    ('{}[50\\%] a\\_b', '$-$0.5', 'p $<$ 1')
    """
    # a row that begins with a bracket or a star would be an option of the line break before it
    text = re.sub(r"^\s*(?=[\[*])", "{}", printable(clean(value)).translate(_LATEX))
    return re.sub(r"^-(?=[\d.])", "$-$", text)
