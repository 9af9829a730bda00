"""A result: a table of numbers with its reading, its caveats, its caption and its figure.

Analyses, probes, benchmarks, training logs and reviews return one. As the last line of a notebook
cell it displays itself; in a script `.table` has the numbers and `.save(name)` writes the files.
"""

from __future__ import annotations

import html
import io
import re
import sys
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cache, wraps
from pathlib import Path
from typing import Any, ParamSpec

from matplotlib.figure import Figure
from pandas import DataFrame

from vjudge.plots.latex import sentences, table_latex, table_texts
from vjudge.plots.save import save_figure, save_table
from vjudge.plots.style import Column, PageFull, page, width

__all__ = ["NotComputed", "Result", "settings"]
__dir__ = __all__.copy

PNG_DPI = 120  # pixels per inch of a figure that is encoded as PNG
CELL_DPI = 93.6  # pixels per inch at which a notebook cell displays that PNG
VIEW_ROWS = 16  # a cell displays at most this number of rows of a table
NO_FILE = ". No file was written"  # ends the reason of a result that `save` could not write

Bundle = tuple[dict[str, Any], dict[str, Any]]
"""One output of a notebook cell: its content by MIME type, and its metadata."""


class NotComputed(ValueError):
    """An analysis does not apply to these data; the message has the reason and the remedy."""


# --- Settings


@dataclass(frozen=True)
class Settings:
    """The defaults of every analysis; `settings` changes them.

    Attributes:
        venue: the venue whose page figures and tables fit, one of `plots.VENUES`.
        column: the width of a figure, "half" or "full".
        figures: the folder that `Result.save` writes to.
        seed: the seed of resampling and of random draws.
        n_resamples: the number of bootstrap resamples for an interval, at least 0.
        confidence: the coverage of intervals, in (0, 1).
    """

    venue: str = "acl"
    column: Column = "full"
    figures: str | Path = "figures"
    seed: int = 0
    n_resamples: int = 2_000
    confidence: float = 0.95


_STATE = {"settings": Settings()}  # one entry, which `settings` replaces


def current() -> Settings:
    """Return the settings in force."""
    return _STATE["settings"]


def settings(**changes: Any) -> Settings:
    """Set the defaults that are named, for every analysis, and return all defaults.

    In a notebook, each warning is from then on printed as one plain line, and only once.

    Args:
        changes: any of venue, column, figures, seed, n_resamples, confidence; see `Settings`.

    Returns:
        The settings that are now in force.

    Raises:
        ValueError: the venue or the column is unknown.
        TypeError: a setting is unknown.

    >>> settings(venue="acl").venue
    'acl'
    """
    changed = replace(current(), **changes)
    width(changed.venue, changed.column)  # raises ValueError for an unknown venue or column
    _STATE["settings"] = changed
    _simplify_warnings()
    return changed


def _simplify_warnings() -> None:
    """In a notebook, print each warning as one plain line; elsewhere change nothing."""
    ipython = sys.modules.get("IPython")
    if ipython is not None and ipython.get_ipython() is not None:
        warnings.showwarning = _print_warning


def _print_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    """Print the message of a warning, as a replacement of `warnings.showwarning`.

    Args:
        message: the warning.
        _, __: its category, file and line number, which are not printed.
    """
    _print_once(" ".join(str(message).split()))


@cache  # a second call with the same message runs nothing
def _print_once(message: str) -> None:
    """Print a message as a note, the first time it occurs."""
    print(f"Note: {message}")


def options(**changes: Any) -> dict[str, Any]:
    """Return seed, n_resamples and confidence; those not given or None are from the settings."""
    names = ("seed", "n_resamples", "confidence")
    defaults = {name: getattr(current(), name) for name in names}
    return defaults | {name: value for name, value in changes.items() if value is not None}


# --- Results


class Result:
    """The outcome of one analysis: its numbers, sentences and figure.

    Three tables belong to it. `table` has all numbers. `view` has the rows and columns that a
    notebook cell and LaTeX print. `data` has what the figure draws, and is the CSV file beside it.

    Args:
        table: the numbers, as a function of `vjudge.metrics` or `vjudge.probes` returns them; None
            where the analysis was not computed.
        name: the name of its files, unless `save` is given another.
        reading: one to three sentences made of the numbers.
        caption: what table and figure show; "" means the name in words. The table's
            `attrs["method"]` is appended.
        caveats: the known limits of these numbers; those in `table.attrs["caveats"]` come first.
            Captions and files print them too.
        data_caveats: what holds for every number made of the same data, such as the licence. Only
            the notebook cell and `.caveats` have them.
        plot: a function that draws the figure and takes the options of `plots.page`; None where
            there is no figure.
        data: what the figure draws; None means `table`.
        view: what a cell and LaTeX print; None means `table`.
        reason: why the analysis was not computed; "" where it was.

    >>> result = Result(DataFrame({"estimate": [0.5]}), name="half", reading="It is one half.")
    >>> result.reading, result.table["estimate"].tolist()
    ('It is one half.', [0.5])
    """

    def __init__(
        self,
        table: DataFrame | None,
        *,
        name: str,
        reading: str = "",
        caption: str = "",
        caveats: Iterable[str] = (),
        data_caveats: Iterable[str] = (),
        plot: Callable[..., Figure] | None = None,
        data: DataFrame | None = None,
        view: DataFrame | None = None,
        reason: str = "",
    ) -> None:
        attrs = {} if table is None else table.attrs
        self.name = name
        self.reading = reading
        self.reason = reason
        self._table = table
        self._view = view
        self._data = data
        self._plot = plot
        self._caption = sentences(caption or name.replace("_", " "), attrs.get("method", ""))
        self._caveats = [*attrs.get("caveats", ()), *caveats]
        self._data_caveats = list(data_caveats)
        # (venue, column) -> the figure drawn for it; only the latest, so at most one entry
        self._figures: dict[tuple[str, str], Figure] = {}

    @classmethod
    def not_computed(cls, reason: str, *, name: str = "result") -> Result:
        """Make the result of an analysis that does not apply: it shows the reason, no numbers."""
        return cls(None, name=name, reason=reason)

    def __repr__(self) -> str:
        if self.reason:
            return f"Not computed: {self.reason}"
        return f"Result({self.name!r}, {len(self.table)} rows): {self.reading}"

    @property
    def computed(self) -> bool:
        """Whether there are numbers."""
        return self._table is not None

    @property
    def table(self) -> DataFrame:
        """All numbers.

        Raises:
            NotComputed: the analysis does not apply.
        """
        if self._table is None:
            raise NotComputed(self.reason)
        return self._table

    @property
    def view(self) -> DataFrame:
        """The rows and columns that a cell and LaTeX print.

        Raises:
            NotComputed: the analysis does not apply.
        """
        return self.table if self._view is None else self._view

    # --- caveats and caption

    @property
    def caveats(self) -> list[str]:
        """The known limits of these numbers, then those of the data."""
        return [*distinct(self._caveats), *distinct(self._data_caveats)]

    def add_caveats(self, texts: Iterable[str]) -> None:
        """Add known limits of these numbers."""
        self._caveats += texts

    def add_data_caveats(self, texts: Iterable[str]) -> None:
        """Add known limits of the data."""
        self._data_caveats += texts

    @property
    def caption(self) -> str:
        """The caption of the figure: what it shows, the method, its label, and the caveats."""
        figure = self.drawn()
        if figure is None:
            return self._caption_with("")
        return self._caption_with(str(figure.get_label()))  # such as "n = 80, 2 left out"

    def _caption_with(self, figure_label: str) -> str:
        """Join the caption, the figure's label ("" for a table) and the caveats."""
        caveats = [f"Caveat: {text}" for text in distinct(self._caveats)]
        return sentences(self._caption, figure_label, *caveats)

    # --- figure and files

    def plot(self, **look: Any) -> Figure:
        """Draw the figure, by default for the venue and column of `settings`.

        Args:
            look: venue, column ("half" or "full"), and further options of this figure.

        Raises:
            NotComputed: the analysis does not apply, or has no figure.
        """
        if self.reason:
            raise NotComputed(self.reason)
        if self._plot is None:
            raise NotComputed(f"{self.name} has no figure; its numbers are in .table")
        defaults = {"venue": current().venue, "column": current().column}
        return self._plot(**{**defaults, **look})

    def drawn(self) -> Figure | None:
        """Return the figure that notebook cells and files show, or None where there is none.

        It is drawn again only when the venue or the column of `settings` has changed. Where it does
        not fit on a page, the result has no figure from then on, and a caveat gives the reason.
        """
        if self.reason or self._plot is None:
            return None
        key = (current().venue, current().column)
        if key not in self._figures:
            try:
                self._figures = {key: self.plot()}
            except PageFull as error:
                self.add_caveats([f"no figure: {error}"])
                self._plot = None
                return None
        return self._figures[key]

    def latex(self) -> str:
        """Write the table as LaTeX (booktabs, every text escaped), split into pages where long.

        Raises:
            NotComputed: the analysis does not apply.
        """
        caption = self._caption_with("")
        return table_latex(self.view, self.name, caption=caption, venue=current().venue)

    def save(self, name: str | None = None, folder: str | Path | None = None) -> Result:
        """Write the figure (PDF, SVG, PNG, `.tex`), its data (CSV), the caption, and the table.

        Args:
            name: the name of the files, without an ending; None keeps the result's name.
            folder: where to write; None means the folder `figures` of `settings`.

        Returns:
            The result itself. A result that was not computed writes nothing, and its reason then
            says so.
        """
        if name is not None:
            self.name = name
        if self.reason:
            # The suffix of an earlier call is removed first, so that it never stands twice
            self.reason = self.reason.removesuffix(NO_FILE).rstrip(".") + NO_FILE
            return self
        folder = current().figures if folder is None else folder
        figure = self.drawn()
        # Without a figure, NAME.csv has all numbers. With one, NAME.csv has what the figure draws,
        # and NAME_table.csv what the table prints.
        table_name = self.name
        table_data = self.table
        if figure is not None:
            data = self.table if self._data is None else self._data
            save_figure(figure, self.name, caption=self.caption, data=data, folder=folder)
            table_name = f"{self.name}_table"
            table_data = self.view
        save_table(
            self.view,
            table_name,
            caption=self._caption_with(""),
            venue=current().venue,
            data=table_data,
            folder=folder,
        )
        return self

    # --- in a notebook

    def _ipython_display_(self) -> None:
        """Display figure, table, reading and caveats when the result is a cell's last line."""
        from IPython.display import display

        for content, metadata in self._bundles():
            display(content, metadata=metadata, raw=True)

    def _bundles(self) -> list[Bundle]:
        """List the outputs of a cell: the figure, the table, then reading and caveats.

        Each has a plain text beside its image, HTML or Markdown, since Jupyter, GitHub, Colab and
        VS Code do not all show the same MIME types.
        """
        if self.reason:
            sentence = f"Not computed: {self.reason.rstrip('.')}."
            return [({"text/plain": sentence, "text/markdown": escape_markdown(sentence)}, {})]
        bundles: list[Bundle] = []
        figure = self.drawn()
        if figure is not None:
            pixels = round(CELL_DPI * figure.get_figwidth())
            content = {"image/png": png(figure), "text/plain": self._caption}
            bundles.append((content, {"image/png": {"width": pixels, "alt": self._caption}}))
        bundles.append((self._table_content(), {}))
        lines = [self.reading, *(f"Caveat: {text}" for text in self.caveats)]
        plain = "\n".join(filter(None, lines))
        if plain:
            bundles.append(({"text/plain": plain, "text/markdown": self._markdown()}, {}))
        return bundles

    def _table_content(self) -> dict[str, Any]:
        """Format the first rows of the view as escaped HTML and as plain text."""
        texts = table_texts(self.view.head(VIEW_ROWS))
        n_hidden = len(self.view) - len(texts)
        markup = texts.to_html(index=False, escape=True, border=0)
        plain = texts.to_string(index=False)
        if n_hidden > 0:
            markup += f"<p>… and {n_hidden:,} more rows in <code>.table</code></p>"
            plain += f"\n... and {n_hidden:,} more rows in .table"
        return {"text/html": markup, "text/plain": plain}

    def _markdown(self) -> str:
        """Format reading and caveats as Markdown; markup in texts of data and models is escaped."""
        paragraphs = []
        if self.reading:
            paragraphs.append(f"**Reading.** {escape_markdown(self.reading)}")
        for text in distinct(self._caveats):
            paragraphs.append(f"*Caveat:* {escape_markdown(text)}")
        data_caveats = distinct(self._data_caveats)
        if data_caveats:
            items = "".join(f"<li>{html.escape(text)}</li>" for text in data_caveats)
            summary = f"<summary>{len(data_caveats)} caveats of the data</summary>"
            paragraphs.append(f"<details>{summary}<ul>{items}</ul></details>")
        return "\n\n".join(paragraphs)


class Results(dict[str, Result]):
    """Several results by name, which a cell displays one after the other.

    >>> half = Result(DataFrame({"estimate": [0.5]}), name="half")
    >>> list(Results(half=half))
    ['half']
    """

    def __missing__(self, name: str) -> Result:
        """Return a result that lists the existing names, so that a wrong name raises no error."""
        return Result.not_computed(f"there is no {name!r} here, only {', '.join(self)}", name=name)

    def save(self, folder: str | Path | None = None) -> Results:
        """Write each result under its name; those that were not computed write nothing."""
        for name, result in self.items():
            result.save(name, folder)
        return self

    def _ipython_display_(self) -> None:
        for result in self.values():
            result._ipython_display_()


# --- What makes results

Parameters = ParamSpec("Parameters")


def analysis(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Decorate a function that returns a result, so that data it can't analyse stop no notebook.

    - A NotComputed that the function raises becomes a result that shows the reason. Any other
      error is raised.
    - A method of an object whose attribute `reason` is a text, the reason why the object can't be
      analysed, is not called: its result shows that reason.
    - A warning becomes a caveat of the result, so that a limit stands beside its number. Only a
      library's DeprecationWarning or FutureWarning stays a warning.
    """

    @wraps(function)
    def run(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("default")
            try:
                reason = getattr(args[0], "reason", "") if args else ""  # args[0]: self of a method
                if isinstance(reason, str) and reason:  # a DataFrame may have a column `reason`
                    raise NotComputed(reason)
                result = function(*args, **kwargs)
            except NotComputed as error:
                result = Result.not_computed(str(error), name=function.__name__)
        for warning in caught:
            category = warning.category
            if issubclass(category, DeprecationWarning | FutureWarning):  # of a library
                warnings.warn_explicit(warning.message, category, warning.filename, warning.lineno)
            else:
                result.add_caveats([str(warning.message)])
        return result

    return run


# --- Texts and images


def distinct(texts: Iterable[str]) -> list[str]:
    """Return each sentence once, with one full stop.

    Of sentences that differ only in numbers, the first is returned, with the count of the others.

    >>> distinct(["5 groups of 9", "6 groups of 9", "few items."])
    ['5 groups of 9 (and 1 alike).', 'few items.']
    """
    alike: dict[str, list[str]] = {}  # by the sentence with 0 for each number
    for text in texts:
        sentence = " ".join(text.split()).rstrip(".")
        if not sentence:
            continue
        key = re.sub(r"([<=] )?\.?\d+", "0", sentence)  # "p = .03" and "p < .001" are alike
        variants = alike.setdefault(key, [])
        if sentence not in variants:
            variants.append(sentence)
    lines = []
    for first, *others in alike.values():
        count = f" (and {len(others)} alike)" if others else ""
        lines.append(f"{first}{count}.")
    return lines


def png(figure: Figure) -> bytes:
    """Encode a figure as PNG, the same bytes in every run."""
    file = io.BytesIO()
    with page():
        figure.savefig(file, format="png", dpi=PNG_DPI, metadata={"Software": None})
    return file.getvalue()


def escape_markdown(text: str) -> str:
    r"""Escape a text so that Markdown and HTML show it as it is.

    >>> escape_markdown("a_b <i> *c*")
    'a\\_b &lt;i&gt; \\*c\\*'
    """
    return re.sub(r"([\\`*_{}\[\]$#|!~])", r"\\\1", html.escape(text, quote=False))
