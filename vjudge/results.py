"""A result: a table of numbers with its reading, its caveats, its caption and its figure.

Analyses, probes, benchmarks, training logs and reviews return one. As the last line of a notebook
cell it shows itself; in a script `.table` has the numbers and `.save(name)` writes the files.
"""

from __future__ import annotations

import html
import io
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping
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

PNG_DPI = 120  # of figures in a notebook
VIEW_ROWS = 16  # of a table that a cell shows


class NotComputed(ValueError):
    """An analysis does not apply to these data; the message has the reason and the remedy."""


# --- Settings


@dataclass(frozen=True)
class Settings:
    """What every analysis takes unless its own argument says otherwise; `settings` changes it.

    Attributes:
        venue: whose page figures and tables fit, one of `plots.VENUES`.
        column: "half" or "full", the width of a figure.
        figures: the folder that `Result.save` writes to.
        seed: of resampling and random draws.
        n_resamples: of bootstrap intervals, at least 0.
        confidence: coverage of intervals, in (0, 1).
    """

    venue: str = "acl"
    column: Column = "full"
    figures: str | Path = "figures"
    seed: int = 0
    n_resamples: int = 2_000
    confidence: float = 0.95


_STATE = {"settings": Settings()}


def current() -> Settings:
    """The settings in force."""
    return _STATE["settings"]


def settings(**changes: Any) -> Settings:
    """Set once what every analysis of a notebook repeats; without arguments show it.

    In a notebook, warnings are then one plain line each, and each is shown once.

    Args:
        changes: any of venue, column, figures, seed, n_resamples, confidence, see `Settings`.

    Returns:
        The settings that are now in force.

    ValueError: an unknown venue or column. TypeError: an unknown setting.

    >>> settings(venue="acl").venue
    'acl'
    """
    chosen = replace(current(), **changes)
    width(chosen.venue, chosen.column)  # refuses what no page has
    _STATE["settings"] = chosen
    _plain_warnings()
    return chosen


def _plain_warnings() -> None:
    """Show warnings in a notebook as one line each, once; elsewhere leave them as they are."""
    ipython = sys.modules.get("IPython")
    if ipython is not None and ipython.get_ipython() is not None:
        warnings.showwarning = _note


@cache
def _say(message: str) -> None:
    print(f"Note: {message}")


def _note(message: Warning | str, *_: Any, **__: Any) -> None:
    """What `warnings` calls for each warning."""
    _say(" ".join(str(message).split()))


# --- Results


class Result:
    """What an analysis found.

    Args:
        table: the numbers, as a function of `vjudge.metrics` or `vjudge.probes` returns them.
        name: of its files, where `save` is given none.
        reading: one to three sentences made of the numbers.
        caption: what table and figure show; the table's `attrs["method"]` is added.
        caveats: each known limit that applies to this number; those in `table.attrs["caveats"]` are
            added. Texts that differ in their numbers alone are given once, with their count.
        data_caveats: what must be said of the data beside every number made of them.
        plot: a function that draws the figure and takes the options of `plots.page`.
        data: what the figure was drawn from; None means the table.
        view: the table as a cell and LaTeX show it; None means `table`.

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
        absent: str = "",
    ) -> None:
        attributes: Mapping[str, Any] = {} if table is None else table.attrs
        self.name = name
        self.reading = reading
        self._limits = [*attributes.get("caveats", ()), *caveats]
        self._data_caveats = list(data_caveats)
        self.absent = absent  # why it was not computed; "" where it was
        self._table = table
        self._caption = sentences(caption or name.replace("_", " "), attributes.get("method", ""))
        self._plot = plot
        self._data = data
        self._view = view
        self._figures: dict[tuple[str, str], Figure] = {}  # the last one, by its venue and column

    @classmethod
    def not_computed(cls, reason: str, *, name: str = "result") -> Result:
        """The result of an analysis that does not apply: it shows the reason, without numbers."""
        return cls(None, name=name, absent=reason)

    def __repr__(self) -> str:
        if self.absent:
            return f"Not computed: {self.absent}"
        return f"Result({self.name!r}, {len(self.table)} rows): {self.reading}"

    @property
    def caveats(self) -> list[str]:
        """Each known limit of these numbers, then what must be said of the data."""
        return [*once(self._limits), *once(self._data_caveats)]

    def add_caveats(self, texts: Iterable[str]) -> None:
        """Add known limits of these numbers."""
        self._limits += texts

    def add_data_caveats(self, texts: Iterable[str]) -> None:
        """Add what must be said of the data."""
        self._data_caveats += texts

    @property
    def computed(self) -> bool:
        """Whether there are numbers."""
        return self._table is not None

    @property
    def table(self) -> DataFrame:
        """The numbers. NotComputed where the analysis does not apply."""
        if self._table is None:
            raise NotComputed(self.absent)
        return self._table

    @property
    def shown(self) -> DataFrame:
        """The table as a cell and LaTeX show it."""
        return self.table if self._view is None else self._view

    @property
    def caption(self) -> str:
        """What is shown, with the method and what the figure's numbers rest on."""
        figure = self.drawn()
        account = "" if figure is None else str(figure.get_label())
        return self._describe(account)

    def _describe(self, account: str = "") -> str:
        """The caption; of a table it has no account of what the figure draws."""
        caveats = [f"Caveat: {text}" for text in once(self._limits)]
        return sentences(self._caption, account, *caveats)

    def plot(self, **look: Any) -> Figure:
        """Draw the figure, by default for the venue and column of `settings`.

        Args:
            look: venue, column ("half" or "full"), and further options of this figure.

        NotComputed: the analysis does not apply, or has no figure.
        """
        if self.absent or self._plot is None:
            raise NotComputed(
                self.absent or f"{self.name} has no figure; its numbers are in .table"
            )
        defaults = {"venue": current().venue, "column": current().column}
        return self._plot(**{**defaults, **look})

    def drawn(self) -> Figure | None:
        """The figure as cells and files show it, drawn once a venue and column; None for none."""
        if self.absent or self._plot is None:
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
        """The table as LaTeX (booktabs, every text escaped), split where it is longer than a page.

        NotComputed: the analysis does not apply.
        """
        return table_latex(self.shown, self.name, caption=self._describe(), venue=current().venue)

    def save(self, name: str | None = None, folder: str | Path | None = None) -> Result:
        """Write the figure (PDF, SVG, PNG, `.tex`), its data (CSV), the caption, and the table.

        Args:
            name: of the files, without an ending; None takes the result's own.
            folder: None takes that of `settings`.

        Returns:
            The result itself. One that was not computed writes nothing, and says so.
        """
        if name is not None:
            self.name = name
        if self.absent:
            self.absent = f"{self.absent.rstrip('.')}. No file was written"
            return self
        folder = current().figures if folder is None else folder
        figure = self.drawn()
        data = self.table if self._data is None else self._data
        if figure is not None:
            save_figure(figure, self.name, caption=self.caption, data=data, folder=folder)
        save_table(
            self.shown,
            self.name if figure is None else f"{self.name}_table",
            caption=self._describe(),
            venue=current().venue,
            data=self.table if figure is None else self.shown,
            folder=folder,
        )
        return self

    # --- in a notebook

    def _ipython_display_(self) -> None:
        """Show figure, table, reading and caveats, each in a form that every viewer has."""
        from IPython.display import display

        for data, metadata in self._bundles():
            display(data, metadata=metadata, raw=True)

    def _bundles(self) -> list[tuple[dict[str, Any], dict[str, Any]]]:
        """The outputs of a cell: MIME type -> content, with their metadata."""
        if self.absent:
            sentence = f"Not computed: {self.absent.rstrip('.')}."
            return [({"text/plain": sentence, "text/markdown": escape_markdown(sentence)}, {})]
        bundles = []
        figure = self.drawn()
        if figure is not None:
            size = {"width": round(72 * figure.get_figwidth() * 1.3)}
            picture = {"image/png": png(figure), "text/plain": self._caption}
            bundles.append((picture, {"image/png": {**size, "alt": self._caption}}))
        bundles.append((self._table_bundle(), {}))
        lines = [self.reading, *(f"Caveat: {text}" for text in self.caveats)]
        plain = "\n".join(filter(None, lines))
        if plain:
            bundles.append(({"text/plain": plain, "text/markdown": self._markdown()}, {}))
        return bundles

    def _table_bundle(self) -> dict[str, Any]:
        """The first rows of the table as HTML, every text escaped."""
        texts = table_texts(self.shown.head(VIEW_ROWS))
        hidden = len(self.shown) - len(texts)
        page_text = texts.to_html(index=False, escape=True, border=0)
        plain = texts.to_string(index=False)
        if hidden > 0:
            page_text += f"<p>… and {hidden:,} more rows in <code>.table</code></p>"
            plain += f"\n... and {hidden:,} more rows in .table"
        return {"text/html": page_text, "text/plain": plain}

    def _markdown(self) -> str:
        """Reading and caveats; texts of data and models are no markup."""
        lines = []
        if self.reading:
            lines.append(f"**Reading.** {escape_markdown(self.reading)}")
        lines += [f"*Caveat:* {escape_markdown(text)}" for text in once(self._limits)]
        data = once(self._data_caveats)
        if data:
            items = "".join(f"<li>{html.escape(text)}</li>" for text in data)
            lines.append(
                f"<details><summary>{len(data)} caveats of the data</summary><ul>{items}</ul>"
                "</details>"
            )
        return "\n\n".join(lines)


class Results(dict[str, Result]):
    """Several results by name, which a cell shows one after the other.

    >>> half = Result(DataFrame({"estimate": [0.5]}), name="half")
    >>> list(Results(half=half))
    ['half']
    """

    def __missing__(self, name: str) -> Result:
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
    """Decorate a function that returns a result.

    What it raises as NotComputed becomes a result that says so, so that a notebook goes on; what it
    warns of becomes the result's caveats, so that a limit stands where the number stands. Warnings
    that a library's code will change stay warnings.
    """

    @wraps(function)
    def run(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("default")
            try:
                absent = getattr(args[0], "absent", "") if args else ""
                if absent:
                    raise NotComputed(absent)
                result = function(*args, **kwargs)
            except NotComputed as error:
                result = Result.not_computed(str(error), name=function.__name__)
        for warning in caught:
            category = warning.category
            if issubclass(category, DeprecationWarning | FutureWarning):  # of a library's code
                warnings.warn_explicit(warning.message, category, warning.filename, warning.lineno)
            else:
                result.add_caveats([str(warning.message)])
        return result

    return run


def once(texts: Iterable[str]) -> list[str]:
    """Sentences, each once; those that differ in their numbers alone as the first, and a count.

    >>> once(["5 groups of 9", "6 groups of 9", "few items."])
    ['5 groups of 9 (and 1 alike).', 'few items.']
    """
    similar: dict[str, list[str]] = {}
    for text in texts:
        sentence = " ".join(text.split()).rstrip(".")
        if sentence:
            same = similar.setdefault(re.sub(r"([<=] )?\.?\d+", "0", sentence), [])
            if sentence not in same:
                same.append(sentence)
    lines = []
    for same in similar.values():
        count = f" (and {len(same) - 1} alike)" if len(same) > 1 else ""
        lines.append(f"{same[0]}{count}.")
    return lines


def png(figure: Figure) -> bytes:
    """A figure as the bytes of a PNG, the same in every run."""
    file = io.BytesIO()
    with page():
        figure.savefig(file, format="png", dpi=PNG_DPI, metadata={"Software": None})
    return file.getvalue()


def escape_markdown(text: str) -> str:
    r"""A text that Markdown and HTML show as it is.

    >>> escape_markdown("a_b <i> *c*")
    'a\\_b &lt;i&gt; \\*c\\*'
    """
    return re.sub(r"([\\`*_{}\[\]$#|!~])", r"\\\1", html.escape(text, quote=False))


def options(**changes: Any) -> dict[str, Any]:
    """The resampling options of `settings`, with changes over them; None changes nothing."""
    names = ("seed", "n_resamples", "confidence")
    defaults = {name: getattr(current(), name) for name in names}
    return defaults | {name: value for name, value in changes.items() if value is not None}
