"""The review as a notebook tool, and a confusion matrix whose cells open it on their items; ipywidgets 7.7 and 8.

Every button calls one method of `vjudge.review.Review`. JupyterLab would take a key typed right after a press on a
button for a shortcut of its own ("d", "d" deletes a cell): the tool is marked as a place without shortcuts, by its only
script, and the button that was pressed keeps the focus, as it alone is not disabled while the tool works.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib import resources
from typing import Any

import ipywidgets as ipw

from vjudge.review.review import ANSWERS, MOST_LEVELS, ORDERS, Review, ReviewCase
from vjudge.review.show import View, case_html, escape, pictures, vote_lines
from vjudge.review.votes import ReviewError

SIZES = (240, 360, 520, 760, 1080)  # pixels of an image's longer side
KEYS = {
    "n": "next", "p": "previous", "w": "next without a vote", "l": "left", "r": "right", "g": "both good",
    "b": "both bad", "u": "undo", "v": "reveal", "t": "true score", "d": "differences",
}  # fmt: skip
"""Key -> what it does; digits give the score."""
ANY = "any"
_UNSET = {"judge": ANY, "text": ""}


class Reviewer:
    """A review to look at and vote in; display it as the last line of a cell.

    Args:
        review: the state; votes cast through it elsewhere show after the next action here.
        image_size: pixels of an image's longer side at the start, one of `SIZES` or another.
        watch: called after each action, such as to draw what votes change.

    Where widgets can't run, the current case shows as a plain page.
    """

    def __init__(self, review: Review, *, image_size: int = 360, watch: Callable[[], None] = lambda: None) -> None:
        self.review, self._watch = review, watch
        self._sizes, self._size, self._start = sorted({*SIZES, image_size}), image_size, image_size
        self._busy, self._typed = False, ""
        # Shared: a layout of its own for each of seventy controls would be most of a notebook's saved widget state.
        self._auto, self._wide = ipw.Layout(width="auto"), ipw.Layout(width="17em")
        self._button_style = ipw.ButtonStyle()
        self._case = ipw.HTML(layout=ipw.Layout(width="auto"))
        self._status = ipw.HTML(layout=ipw.Layout(width="auto", min_height="1.6em"))
        self._progress = _named("vj-progress", ipw.HTML())
        self._buttons, self._toggles, self._fields = dict[str, Any](), dict[str, Any](), list[Any]()
        self._tags: dict[tuple[str, str], Any] = {}
        self._scale: tuple[int, int] | None = None
        self._drawn, self._pictures = ("", 0), ""
        self._scores = ipw.HBox(layout=_row("auto"))
        self._filters = self._make_filters()
        self._goto = self._text("id", "go to the item of this id")
        self._goto.observe(self._on_id, names="value")
        note = ipw.Layout(flex="1 1 18rem", width="auto", height="3.4em")
        self._note = ipw.Textarea(placeholder="kept when you go on", layout=note)
        self._keys = ipw.Text(placeholder="click here and type", layout=ipw.Layout(width="12em"))
        _named("vj-key-field", self._keys).observe(self._on_keys, names="value")
        self.widget = self._arrange()
        with self._working():
            self._draw()

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        """The widget, and for a page without a kernel the case as HTML and as text."""
        case = self.review.case
        page = "no item passes the filters" if case is None else self._case_html(case)
        text = f"Review by {self.review.annotator}: {self._progress_text()}"
        return _bundle(self.widget, text, f'<div class="vj-note">{escape(text)}</div>{page}')

    def filter(self, **filters: Any) -> None:
        """List what passes the filters of `Review.filter`, and show them in the controls."""
        self._act(partial(self._set_filters, filters))

    # What it is made of

    def _make_filters(self) -> dict[str, Any]:
        review, levels = self.review, self.review.levels
        choices = [(ANY, None), *levels.items()]
        bounds = [bound for level in levels.values() for bound in (level if isinstance(level, tuple) else [level])]
        span = max(bounds, default=0) - min(bounds, default=0)
        far = max(2, math.ceil(span / 5))
        gaps = [(f"judge too kind by {far} or more", (-span, -far)), ("judge too kind", (-span, -0.5)),
                ("agree", (-0.49, 0.49)), ("judge too strict", (0.5, span)),
                (f"judge too strict by {far} or more", (far, span))]  # fmt: skip
        short = [name if len(name) <= 60 else f"{name[:57]}..." for name in review.criteria]
        dropdowns: dict[str, Sequence[Any]] = {
            "judge": [ANY, *review.judges],
            "score": choices,
            "truth": choices,
            "human": choices,
            "gap": [(ANY, None), *(gaps if span else [])],
            "criterion": [(ANY, None), *zip(short, review.criteria, strict=True)],
            "unparsed": [(ANY, None), ("no score could be read", True), ("score read", False)],
            "voted": [(ANY, None), ("not yet by me", False), ("by me", True)],
            "order": ORDERS,
        }
        controls: dict[str, Any] = {
            name: ipw.Dropdown(options=options, description=name, style=_WIDE, layout=self._wide)
            for name, options in dropdowns.items()
        }
        controls["text"] = self._text("text", "a part of any text")
        controls["order"].value = review.order
        for control in controls.values():
            control.observe(lambda change: self._act(self._filter, change["owner"]), names="value")
        return controls

    def _arrange(self) -> Any:
        review = self.review
        places = ("left", "right") if len(review.judges) == 2 else tuple(map(str, range(1, len(review.judges) + 1)))
        self._answers = ANSWERS if len(places) == 2 else ()
        moves = [
            self._button("previous", "◀ Previous", partial(review.step, -1)),
            self._button("next", "Next ▶", review.step),
            self._button("next without a vote", "Next without a vote ▶▶", review.next_unvoted),
            self._button("undo", "↶ Undo", review.undo),
        ]
        looks = [
            self._button("smaller", "Image −", partial(self._zoom, -1)),
            self._button("larger", "Image +", partial(self._zoom, 1)),
            self._toggle("differences", "Mark differences"),
            self._toggle("true score", "Show true score"),
            self._button("reveal", "Reveal before voting", review.reveal),
        ]
        answers = [self._button(name, name.capitalize(), partial(self._turn, "better", name)) for name in self._answers]
        better = _named("vj-better", ipw.HBox([_label("Better feedback"), *answers], layout=_row("auto")))
        clear = self._button("all items", "Clear filters", partial(self._set_filters, {}))
        filters = ipw.Accordion(children=[ipw.HBox([*self._filters.values(), self._goto, clear], layout=_row())])
        filters.set_title(0, "Filter, order, go to an item")
        filters.selected_index = None  # closed
        save = self._button("note", "Save note", lambda: None)
        box = ipw.VBox(
            [
                ipw.HTML(_STYLE),
                filters,
                ipw.HBox([*moves, self._progress], layout=_row()),
                ipw.HBox(looks, layout=_row()),
                self._case,
                self._status,
                ipw.HBox([self._scores, *([better] if answers else [])], layout=_row()),
                ipw.HBox([self._tags_of(place, of_several=len(places) > 1) for place in places], layout=_row()),
                ipw.HBox([_label("Note"), self._note, save], layout=_row()),
                ipw.HBox([_label("Keys"), self._keys, ipw.HTML(_KEY_HELP)], layout=_row()),
            ],
            layout=ipw.Layout(width="100%", max_width="66rem"),
        )
        return _named("vj-tool", _named("vj-reviewer", box))

    def _tags_of(self, place: str, *, of_several: bool) -> Any:
        """The error tags of one feedback, under where it stands."""
        row = []
        for tag in self.review.tags:
            button = ipw.Button(description=tag, layout=self._auto, style=self._button_style)
            button.on_click(partial(self._act, partial(self.review.tag, tag, side=place)))
            self._tags[place, tag] = button
            row.append(button)
        head = ipw.HTML(f"<b>Errors in the {f'{place} ' * of_several}feedback</b>")
        layout = ipw.Layout(flex="1 1 18rem", width="auto")
        return _named("vj-tags", ipw.VBox([head, ipw.HBox(row, layout=_row())], layout=layout))

    def _text(self, name: str, placeholder: str) -> Any:
        options = {"continuous_update": False, "style": _WIDE, "layout": self._wide}
        return ipw.Text(description=name, placeholder=placeholder, **options)

    def _button(self, name: str, text: str, act: Callable[[], Any]) -> Any:
        button = ipw.Button(description=text, layout=self._auto, style=self._button_style)
        button.on_click(partial(self._act, act))
        self._buttons[name] = _named("vj-do-" + name.replace(" ", "-"), button)
        return button

    def _toggle(self, name: str, text: str) -> Any:
        self._toggles[name] = toggle = ipw.ToggleButton(description=text, layout=self._auto)
        toggle.observe(lambda change: self._act(lambda: None, change["owner"]), names="value")
        return toggle

    # What it does

    def _act(self, act: Callable[[], Any], pressed: Any = None) -> None:
        """Do one thing, with everything else disabled meanwhile; an error is told in the status line."""
        if self._busy:
            return
        with self._working(pressed):
            message = ""
            try:
                self.review.refresh()
                if self.review.case is not None:  # what was typed must not be lost by going on
                    self.review.note(self._note.value)
                act()
            except (ReviewError, ValueError, OSError) as error:
                message = str(error)
            self._draw(message)
        self._watch()

    @contextlib.contextmanager
    def _working(self, pressed: Any = None) -> Iterator[None]:
        self._busy = True
        self.widget.add_class("vj-busy")
        for control in self._controls():
            control.disabled = control is not pressed
        try:
            yield
        finally:
            shut = {id(control) for control in self._shut() if control is not pressed}
            for control in self._controls():
                control.disabled = id(control) in shut
            self.widget.remove_class("vj-busy")
            self._busy = False

    def _controls(self) -> list[Any]:
        """All that can be pressed or set, but for the key field, which keeps its focus."""
        groups = (self._buttons, self._toggles, self._tags, self._filters)
        return [*(control for group in groups for control in group.values()), *self._fields, self._goto, self._note]

    def _turn(self, field: str, value: Any) -> None:
        """Cast a vote; the same one again withdraws it."""
        case = self.review.case
        getattr(self.review, field)(None if case and case.votes.get(field) == value else value)

    def _zoom(self, step: int) -> None:
        self._size = self._sizes[min(max(self._sizes.index(self._size) + step, 0), len(self._sizes) - 1)]

    def _on_id(self, change: dict[str, Any]) -> None:
        if id := change["new"].strip():
            self._act(partial(self.review.goto, id), self._goto)
            self._goto.value = ""

    def _set_filters(self, filters: dict[str, Any]) -> None:
        for name, control in self._filters.items():
            if name != "order":
                control.value = filters.get(name, _UNSET.get(name))
        self._filter()

    def _filter(self) -> None:
        values = {name: control.value for name, control in self._filters.items()}
        order = values.pop("order")
        self.review.filter(**{name: value for name, value in values.items() if value not in (ANY, "")})
        if order != self.review.order:
            self.review.sort(order)

    def _on_keys(self, change: dict[str, Any]) -> None:
        """Act on each new character of the key field; what was deleted from it does nothing."""
        before, self._typed = self._typed, change["new"]
        fresh = self._typed.removeprefix(before) if self._typed.startswith(before) else self._typed[-1:]
        for key in "" if before.startswith(self._typed) else fresh.lower():
            name = KEYS.get(key, f"score {key}")
            if name in self._toggles:
                self._toggles[name].value ^= True
            elif name in self._buttons:
                self._buttons[name].click()
            elif not key.isspace():
                self._status.value = _error(f"the key {key} does nothing here")

    # What it shows

    def _draw(self, message: str = "") -> None:
        """Show what the review says now, and an error, with which the note that was typed stays in its field."""
        case = self.review.case
        votes = {} if case is None else case.votes
        self._progress.value = f"<span>{escape(self._progress_text())}</span>"
        self._case.value = View("No item passes the filters." if case is None else self._case_html(case)).html
        self._draw_scores(case)
        for answer in self._answers:
            self._buttons[answer].button_style = "primary" if votes.get("better") == answer else ""
        for (place, tag), button in self._tags.items():
            button.button_style = "warning" if tag in votes.get("tags", {}).get(place, ()) else ""
        lines = "; ".join(vote_lines(votes)) or "none yet"
        self._status.value = escape(f"Your vote: {lines}" if case else "Clear a filter to go on.")
        if message:
            self._status.value = _error(message)
        else:
            self._note.value = votes.get("note", "")

    def _case_html(self, case: ReviewCase) -> str:
        drawn = (case.item.id, self._size)
        if drawn != self._drawn:  # votes change the texts around the pictures, not the pictures
            enlarge = self._size > self._start  # zoomed in beyond what a small picture has
            self._drawn, self._pictures = drawn, pictures(case.item, self._size, enlarge=enlarge)
        truth, differences = (self._toggles[name].value for name in ("true score", "differences"))
        return case_html(case, pictures=self._pictures, truth=truth, differences=differences)

    def _draw_scores(self, case: ReviewCase | None) -> None:
        """A button for each score of the current item, or a field where there are too many."""
        scale = None if case is None else case.scale
        if scale != self._scale:
            self._scale, self._fields, controls = scale, [], []
            for name in [name for name in self._buttons if name.startswith("score")]:
                del self._buttons[name]
            if scale and scale[1] - scale[0] < MOST_LEVELS:
                for score in range(scale[0], scale[1] + 1):
                    controls.append(self._button(f"score {score}", str(score), partial(self._turn, "score", score)))
            elif scale:
                field = ipw.BoundedIntText(min=scale[0], max=scale[1], layout=ipw.Layout(width="6em"))
                self._fields = [field]
                controls = [field, self._button("score", "Give score", lambda: self.review.score(field.value))]
            self._scores.children = [_label("Your score"), *controls]
        own = None if case is None else case.votes.get("score")
        for name, button in self._buttons.items():
            if name.startswith("score "):
                button.button_style = "primary" if name == f"score {own}" else ""

    def _shut(self) -> list[Any]:
        """The controls that can do nothing now."""
        case, buttons = self.review.case, self._buttons
        if case is None:
            shut = [button for name, button in buttons.items() if name not in ("undo", "all items")]
            return [*shut, *self._tags.values(), *self._toggles.values(), *self._fields, self._note]
        graded = all(side.verdict is not None for side in case.sides)
        shut = [] if graded else [buttons[answer] for answer in self._answers]
        shut += [buttons["reveal"]] if case.revealed else [self._toggles["true score"]]
        shut += [buttons["previous"]] * (case.number == 0)
        return shut + [buttons["next"]] * (case.number == self.review.progress.listed - 1)

    def _progress_text(self) -> str:
        case, counts = self.review.case, self.review.progress
        place = f"item {case.number + 1} of {counts.listed}, " if case else ""
        blind = ", blind" if self.review.blind else ""
        return f"{place}{counts.voted_in_all} of {counts.items} voted by {self.review.annotator}{blind}"


class Matrix:
    """A judge's scores against the truth, as counts: a click on a cell opens the review on its items, votes redraw it.

    Args:
        review: what is reviewed; its truth, or the mean of the scores voted here, is chosen above the matrix.
        judge: whose scores; the first judge's when None, ValueError where it is not under review.
        image_size: as in `Reviewer`.

    A click lists by score and truth, so that votes on that list are not blind.
    """

    def __init__(self, review: Review, *, judge: str | None = None, image_size: int = 360) -> None:
        if judge is not None and judge not in review.judges:
            raise ValueError(f"judge {judge!r} is not under review; use one of {', '.join(review.judges)}")
        self.review, self.reviewer = review, Reviewer(review, image_size=image_size, watch=self._draw)
        voted = ("scores voted here", "human")
        truths = [(str(review.truth.name), "truth"), voted] if review.truth.notna().any() else [voted]
        options = {"style": {"description_width": "auto"}, "layout": ipw.Layout(width="auto", max_width="24em")}
        self._judge = ipw.Dropdown(options=list(review.judges), description="Judge (columns)", **options)
        self._judge.value = judge or review.judges[0]
        self._by = ipw.Dropdown(options=truths, description="Truth (rows)", **options)
        self._head = ipw.HTML()
        self._cells: dict[tuple[str, str], Any] = {}
        table = self._table()
        grid = [ipw.HTML(), *map(_label, table.columns)]
        for row in table.index[::-1]:
            grid += [_label(row), *(self._cell(row, column) for column in table.columns)]
        width = f"max-content repeat({len(table.columns)}, minmax(2.6em, 5em))"
        cells = ipw.GridBox(grid, layout=ipw.Layout(grid_template_columns=width, width="auto"))
        for control in (self._judge, self._by):
            control.observe(lambda change: self._draw(), names="value")
        self.reviewer.widget.layout.display = "none"
        choices = ipw.HBox([self._judge, self._by], layout=_row())
        parts = [ipw.HTML(_STYLE), choices, self._head, _named("vj-matrix", cells), self.reviewer.widget]
        self.widget = _named("vj-tool", ipw.VBox(parts, layout=ipw.Layout(width="100%", max_width="66rem")))
        self._draw()

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        """The widget, and for a page without a kernel the counts as HTML and as text."""
        table = self._table()[::-1]
        page = f'<div class="vj-note">{escape(self._words(table))}</div>{table.to_html(border=0)}'
        return _bundle(self.widget, f"{self._words(table)}\n{table.to_string()}", page)

    def _table(self) -> Any:
        return self.review.confusion(self._judge.value, by=self._by.value)

    def _cell(self, row: str, column: str) -> Any:
        button = ipw.Button(layout=ipw.Layout(width="auto"), style=ipw.ButtonStyle())
        button.on_click(lambda _: self._open(row, column))
        self._cells[row, column] = _named("vj-same" if row == column else "vj-other", button)
        return button

    def _open(self, row: str, column: str) -> None:
        """List a cell's items in the tool below."""
        levels = self.review.levels
        score = {"unparsed": True} if column == "none" else {"score": levels[column]}
        self.reviewer.widget.layout.display = ""
        self.reviewer.filter(judge=self._judge.value, **score, **{self._by.value: levels[row]})

    def _draw(self) -> None:
        try:
            table = self._table()
        except ReviewError as error:  # of somebody's file; the tool below says so too
            self._head.value = _error(str(error))
            return
        most = max(1, table.to_numpy().max(initial=0))
        for (row, column), button in self._cells.items():
            count = int(table.loc[row, column])
            button.description, button.disabled = str(count), count == 0
            button.tooltip = f"truth {row}, {self._judge.value} {column}: {count}"
            button.style.button_color = f"rgba(0,114,178,{0.6 * count / most:.2f})"
        self._head.value = f'<span class="vj-keys">{escape(self._words(table))}</span>'

    def _words(self, table: Any) -> str:
        counts, binned = table.attrs, any(isinstance(level, tuple) for level in self.review.levels.values())
        words = [f"Rows: {counts['truth']}. Columns: {self._judge.value}. Items: {counts['n']}"]
        words += ["scores in ranges"] * binned
        notes = {
            "between": "between two levels, counted with the nearest (halves up)",
            "missing": "without a truth yet",
        }
        return "; ".join([*words, *(f"{notes[name]}: {counts[name]}" for name in notes if counts[name])]) + "."


matrix = Matrix  # called like a function, as the last line of a cell
_WIDE = {"description_width": "5em"}
_STYLE = (resources.files("vjudge") / "assets" / "reviewer.html").read_text("utf-8")
_KEY_HELP = "; ".join(f"<b>{key}</b> {name}" for key, name in {"1</b>-<b>5": "score", **KEYS}.items())
_KEY_HELP = f'<span class="vj-keys">{_KEY_HELP}</span>'


def _bundle(widget: Any, text: str, page: str) -> dict[str, Any]:
    """What a widget shows with a kernel, and as HTML and text without."""
    view = {"version_major": 2, "version_minor": 0, "model_id": widget.model_id}
    return {"text/plain": text, "text/html": View(page).html, "application/vnd.jupyter.widget-view+json": view}


def _named(name: str, widget: Any) -> Any:
    """A widget with a class for style sheets and tests."""
    widget.add_class(name)
    return widget


def _row(width: str = "100%") -> Any:
    return ipw.Layout(flex_flow="row wrap", width=width)


def _label(text: str) -> Any:
    return _named("vj-label", ipw.HTML(f"<b>{escape(text)}</b>", layout=ipw.Layout(width="auto")))


def _error(message: str) -> str:
    return f'<span class="vj-error">{escape(message)}</span>'
