"""Make figures and tables into LaTeX environments, with the cells of tables made readable."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pandas as pd
from pandas import DataFrame

from vjudge.metrics.formatting import format_number, format_p
from vjudge.plots.escaping import latex, printable, with_index
from vjudge.plots.style import clean
from vjudge.records import is_missing

# Columns whose heads are not simply their names without underscores
HEADS = {
    "p_holm": "p (Holm)",
    "a": "judge A",
    "b": "judge B",
    "pearson": "Pearson",
    "spearman": "Spearman",
    "kendall": "Kendall",
}
MISSING = "\N{EN DASH}"
# A cell of numbers: a missing value, or a number, perhaps after "< " or with an interval behind it,
# such as "-.71 [-.8, -.6]"
NUMBER = "(?:\N{EN DASH}|(?:< )?[-\N{MINUS SIGN}]?\\.?\\d[^a-zA-Z]*)$"
TWO_COLUMNS = ("acl", "icml", "cvpr", "aaai")  # venues where `figure*` or `table*` spans the page
WIDE_FIGURE = 4.0  # inches; a wider figure spans two columns
WIDE_TABLE = 50  # characters of a row, two between columns; a wider table spans two columns
LONG_TEXT = 60  # characters: a column with a longer text is folded
LONG_WORD = 25  # characters: but not if it has a word of this length or more
FOLD_WIDTH = 40  # characters on a line of a folded column
MAX_LINES = 40  # lines of a table on one page


def sentences(*texts: str) -> str:
    """Join the parts of a caption, each with one full stop; empty parts are left out."""
    return clean(". ".join(text.strip().rstrip(".") for text in texts if text) + ".")


def figure_latex(name: str, caption: str, inches: float) -> str:
    r"""Make the `figure` environment that shows a saved figure; it needs the package graphicx.

    A figure wider than 4 inches spans both columns (`figure*`; in one column that is the same).
    """
    environment = "figure*" if inches > WIDE_FIGURE else "figure"
    return _lines(
        "% in the preamble: \\usepackage{graphicx}",
        rf"\begin{{{environment}}}[t]",
        r"\centering",
        r"\includegraphics[width=\linewidth,height=.75\textheight,keepaspectratio]"
        rf"{{{name}.pdf}}",
        rf"\caption{{{latex(caption)}}}",
        rf"\label{{fig:{name}}}",
        rf"\end{{{environment}}}",
    )


def table_latex(frame: DataFrame, name: str, *, caption: str, venue: str = "acl") -> str:
    """Make the LaTeX of a table, split into environments of at most 40 lines of text.

    Characters that pdflatex does not know are transliterated; the caption then says so.

    Args:
        frame, caption, venue: as in `save.save_table`.
        name: the LaTeX label is tab:NAME; that of a second environment is tab:NAME-2.
    """
    texts = table_texts(frame)
    everything = "".join([*texts, *texts.to_numpy().ravel()])
    if printable(everything) != everything:
        caption = sentences(caption, "Names in other scripts are transliterated")
    # Characters of each column's longest cell, with two between columns
    widths = [max(map(len, [head, *column])) + 2 for head, column in texts.items()]
    environment = "table"
    if venue in TWO_COLUMNS and sum(widths) > WIDE_TABLE:
        environment = "table*"
    alignments = [_alignment(column) for _, column in texts.items()]
    head = _row(map(latex, texts.columns))
    # 1) The page of each row, from 0. The longest text in a folded column gives the lines of a row.
    is_folded = [alignment.startswith("p") for alignment in alignments]
    lengths = texts.loc[:, is_folded].map(len).max(axis=1).fillna(0)
    lines_of_row = 1 + (lengths - 1).clip(lower=0) // FOLD_WIDTH
    page_of_row = (lines_of_row.cumsum() - 1) // MAX_LINES
    # 2) An environment for each page; a table without rows has one page
    environments = []
    for number in range(int(page_of_row.max()) + 1 if len(texts) else 1):
        body = [_row(map(latex, row)) for row in texts[page_of_row == number].to_numpy()]
        rules = [r"\toprule", head, r"\midrule", *body, r"\bottomrule"]
        columns = "".join(alignments)
        if number == 0:
            start = [r"\centering", rf"\caption{{{latex(caption)}}}\smallskip"]
            label = name
        else:  # a continuation keeps the number of its table
            start = [r"\addtocounter{table}{-1}\centering", r"\caption{(Continued.)}\smallskip"]
            label = f"{name}-{number + 1}"
        environments.append(
            _lines(
                rf"\begin{{{environment}}}[t]",
                *start,
                rf"\label{{tab:{label}}}",
                r"\begin{adjustbox}{max width=\linewidth}",
                rf"\begin{{tabular}}{{{columns}}}",
                *rules,
                r"\end{tabular}",
                r"\end{adjustbox}",
                rf"\end{{{environment}}}",
            )
        )
    return "\n".join(environments)


def _lines(*lines: str) -> str:
    """Join lines of LaTeX, each ended by a line break."""
    return "\n".join(lines) + "\n"


def _row(cells: Iterable[str]) -> str:
    """Join escaped cells to a row of a LaTeX table."""
    return " & ".join(cells) + r" \\"


def _alignment(texts: pd.Series) -> str:
    """Choose the alignment of a column: numbers right, long texts folded ("p"), others left."""
    if texts.str.match(NUMBER).all():
        return "r"
    longest_word = texts.str.split().explode().str.len().max()
    if texts.str.len().max() > LONG_TEXT and longest_word < LONG_WORD:
        return r"p{.5\linewidth}"
    return "l"


def table_texts(frame: DataFrame) -> DataFrame:
    """Convert a table's cells and heads to readable texts.

    Numbers have three digits (whole numbers from 10 on have none after the point), small p values
    become "< .001", and missing values a dash. The index becomes columns, as in `with_index`.

    >>> table_texts(pd.DataFrame({"estimate": [0.12345], "p_holm": [1e-6]})).values.tolist()
    [['0.123', '< .001']]
    >>> table_texts(pd.DataFrame({"passes": [True, False]})).values.tolist()
    [['True'], ['False']]
    """
    flat = with_index(frame)
    # Columns are joined by position: two may have one head, as "r_1" and "r 1" do
    texts = pd.concat([_column_texts(column) for _, column in flat.items()], axis=1)
    return texts.set_axis([HEADS.get(name, str(name).replace("_", " ")) for name in flat], axis=1)


def _column_texts(column: pd.Series) -> pd.Series:
    """Convert a column's cells to texts, in a format for the whole column; "–" where missing."""
    name = str(column.name)
    to_text: Callable[[Any], str] = _cell_text
    if name == "p" or name.startswith("p_"):
        to_text = _p_text
    elif name not in ("estimate", "low", "high") and _is_whole(column):
        to_text = "{:,.0f}".format
    texts = [MISSING if is_missing(value) else to_text(value) for value in column]
    return pd.Series(texts, index=column.index, dtype=object)


def _is_whole(column: pd.Series) -> bool:
    """Return whether a column holds only whole numbers, such as scores of a rubric."""
    if not pd.api.types.is_numeric_dtype(column) or pd.api.types.is_bool_dtype(column):
        return False
    numbers = column.dropna()
    return len(numbers) > 0 and bool((numbers % 1 == 0).all())


def _p_text(value: float) -> str:
    """Write a p value, such as ".02" or "< .001"."""
    return format_p(value).removeprefix("= ")


def _cell_text(value: object) -> str:
    """Convert a cell to text: a float with three digits, but a whole one from 10 on with none."""
    if not isinstance(value, float):
        return clean(value)
    if value.is_integer() and abs(value) >= 10:
        return f"{value:,.0f}"
    return format_number(value, 3)
