"""Write figures and tables to files: PDF, SVG, PNG, LaTeX and CSV, with their captions."""

from __future__ import annotations

import re
from pathlib import Path

from matplotlib.figure import Figure
from pandas import DataFrame

from vjudge.plots.escaping import write_csv
from vjudge.plots.latex import figure_latex, sentences, table_latex
from vjudge.plots.style import page

PREAMBLE = "% in the preamble: \\usepackage{booktabs,adjustbox}, \\usepackage[T1]{fontenc}\n"


def save_figure(
    fig: Figure, name: str, *, caption: str, data: DataFrame, folder: str | Path = "figures"
) -> dict[str, Path]:
    """Write a figure as PDF, SVG and PNG (300 dpi), with its caption and its data (CSV).

    The files have the same bytes in every run.

    Args:
        fig: a figure that a function of this package drew.
        name: of the files, without an ending: letters, digits, "-" and "_".
        caption: what the figure shows. The figure's own account of its data (`fig.get_label()`) is
            added, unless the caption holds it already.
        data: what the figure was drawn from; an index that is not a plain count is written too.
        folder: where to write; it is made if absent.

    Returns:
        The path of each file by its ending: pdf, svg, png, tex (a `figure` environment with the
        escaped caption and a label), txt (the caption), csv.

    Raises:
        ValueError: a bad name or an empty caption.
    """
    check_name(name, caption)
    paths = _paths(folder, name, "pdf", "svg", "png", "tex", "txt", "csv")
    # Leave out of each format the field that changes from run to run or from version to version
    with page():
        for ending, changing in (("pdf", "CreationDate"), ("svg", "Date"), ("png", "Software")):
            fig.savefig(paths[ending], metadata={changing: None})
    account = str(fig.get_label())
    if not account or account not in caption:
        caption = sentences(caption, account)
    paths["txt"].write_text(caption + "\n", encoding="utf-8")
    paths["tex"].write_text(figure_latex(name, caption, fig.get_figwidth()), encoding="utf-8")
    write_csv(data, paths["csv"])
    return paths


def save_table(
    frame: DataFrame,
    name: str,
    *,
    caption: str,
    folder: str | Path = "figures",
    venue: str = "acl",
    data: DataFrame | None = None,
) -> dict[str, Path]:
    """Write a table as CSV (full precision) and as LaTeX with booktabs rules, every text escaped.

    The preamble needs the packages booktabs and adjustbox: a table that is wider than its column is
    scaled to it, and one of more than 40 lines is split into several.

    Args:
        frame: its index is written unless it is a plain count. A missing value shows as "--", and a
            p value (a column `p` or `p_...`) below .001 as "< .001".
        name: of the files and of the LaTeX label.
        caption: plain text.
        folder: where to write; it is made if absent.
        venue: one of `VENUES`; if its pages have two columns, a table that is too wide for one
            column becomes a `table*`.
        data: what the CSV holds; None writes the frame.

    Returns:
        The path of each file by its ending: csv, tex.

    Raises:
        ValueError: a bad name or an empty caption.

    >>> import tempfile, pandas as pd
    >>> table = pd.DataFrame({"score": [1, 2]})
    >>> paths = save_table(table, "scores", caption="Scores.", folder=tempfile.mkdtemp())
    >>> sorted(path.name for path in paths.values())
    ['scores.csv', 'scores.tex']
    """
    check_name(name, caption)
    paths = _paths(folder, name, "csv", "tex")
    write_csv(frame if data is None else data, paths["csv"])
    text = table_latex(frame, name, caption=caption, venue=venue)
    paths["tex"].write_text(PREAMBLE + text, encoding="utf-8")
    return paths


def check_name(name: str, caption: str = "none") -> None:
    """Refuse a name that is no file name, and an empty caption.

    Raises:
        ValueError: either is refused. Without `caption` only the name is checked.
    """
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]*", name):
        raise ValueError(f"{name!r} is no file name: use letters, digits, '-' and '_'")
    if not caption.strip():
        raise ValueError(
            f"{name!r} has no caption: say what is shown, with n, unit, method and seed"
        )


def _paths(folder: str | Path, name: str, *endings: str) -> dict[str, Path]:
    """Make a folder, and return the path of a file in it for each ending."""
    home = Path(folder).expanduser()
    home.mkdir(parents=True, exist_ok=True)
    return {ending: home / f"{name}.{ending}" for ending in endings}
