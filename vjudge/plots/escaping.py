"""Make texts from data and models harmless, for LaTeX and for spreadsheets."""

from __future__ import annotations

import csv
import re
from pathlib import Path

from anyascii import anyascii
from pandas import DataFrame
from pandas.api.types import is_integer_dtype

from vjudge.plots.style import clean

# How a text begins that a spreadsheet runs as a formula: with a sign, also after white space, or
# with a tab or a line break
FORMULA = re.compile(r"\s*[=+@＝＋－＠-]|[\t\r\n]")
# The letters from U+00A1 to U+017F, apart from a few, are in LaTeX's T1 fonts
T1_LETTERS = set(filter(str.isalpha, map(chr, range(0xA1, 0x180)))) - set("ĦħĸĿŀŉŦŧſ")
# All characters that pdflatex prints, some of them through `_LATEX`
PRINTED = {*map(chr, range(32, 127)), *"\n\N{MINUS SIGN}\N{EN DASH}\u2265\u2264", *T1_LETTERS}
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


def latex(value: object) -> str:
    r"""Convert a value to LaTeX that prints its text, with every special character escaped.

    >>> latex("[50%] a_b"), latex("-0.5"), latex("p < 1")
    ('{}[50\\%] a\\_b', '$-$0.5', 'p $<$ 1')
    """
    text = printable(clean(value)).translate(_LATEX)
    # At the start of a table's row, "[" or "*" would be an option of the line break before it
    text = re.sub(r"^\s*(?=[\[*])", "{}", text)
    return re.sub(r"^-(?=[\d.])", "$-$", text)  # a negative number has a minus sign, no hyphen


def printable(text: str) -> str:
    """Transliterate the characters that pdflatex can't print.

    >>> printable("Größe ≥ 模型")
    'Größe ≥ MoXing'
    """
    return "".join(c if c in PRINTED else anyascii(c) for c in text)


def write_csv(frame: DataFrame, path: Path) -> None:
    """Write a CSV that a spreadsheet opens without running any cell as a formula.

    Every text is quoted, so that a lone carriage return ends no row. A text or head that would run
    as a formula gets an apostrophe before it. The index is written unless it only counts rows.
    """
    safe = with_index(frame).map(_harmless).rename(columns=_harmless)
    safe.to_csv(
        path,
        index=False,
        lineterminator="\n",
        encoding="utf-8",
        errors="replace",
        quoting=csv.QUOTE_NONNUMERIC,
    )


def _harmless(value: object) -> object:
    """Put an apostrophe before a text that a spreadsheet would run; keep all other values."""
    if isinstance(value, str) and FORMULA.match(value):
        return "'" + value
    return value


def with_index(frame: DataFrame) -> DataFrame:
    """Turn the index into columns; drop it if it is a plain count of rows (unnamed integers)."""
    index = frame.index
    is_count = index.nlevels == 1 and index.name is None and is_integer_dtype(index)
    return frame.reset_index(drop=is_count)
