"""The review as a notebook tool, and a confusion matrix whose cells open it; ipywidgets 7.7 and 8.

Every button calls one method of `vjudge.review.Review`. JupyterLab would take a key typed after a
press on a button for a shortcut of its own ("d", "d" deletes a cell): the tool is marked as a place
without shortcuts, by its only script, and the button that was pressed keeps the focus, as it is
never disabled by its own press.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import ipywidgets as ipw

from vjudge.review.review import Review, ReviewCase
from vjudge.review.show import ASSETS, View, case_html, escape, vote_words
from vjudge.review.votes import ANSWERS, ReviewError

ZOOM = 1.45  # one step of the pictures' size
SMALLEST, LARGEST = 120, 1600  # pixels of a picture's longer side
KEYS = {  # key -> the button that it presses; a digit gives the score
    "n": "next",
    "p": "previous",
    "w": "next without a vote",
    "l": "left",
    "r": "right",
    "g": "both good",
    "b": "both bad",
    "u": "undo",
    "d": "differences",
    "v": "reveal",
    "t": "true score",
}
FILTERS = {  # filter -> its label
    "judge": "Judge",
    "score": "Judge's score",
    "truth": "True score",
    "human": "Score voted here",
    "disagreement": "Disagreement",
    "unparsed": "Verdict",
    "criterion": "Criterion",
    "voted": "My vote",
    "order": "Order",
    "text": "Text contains",
    "id": "Go to item",
}
ORDERS = {
    "as in the file": "file",
    "largest disagreement first": "worst",
    "random": "random",
}
_STYLE = (ASSETS / "reviewer.html").read_text("utf-8")


class Reviewer:
    """A review to look at and vote in; display it as the last line of a cell.

    Votes cast through the review elsewhere show after the next action here. Where widgets can't
    run, the case shows as a plain page.

    Args:
        review: what is reviewed, and by whom.
        image_size: pixels of an image's longer side at the start.
        watch: called after each action.
    """

    def __init__(
        self, review: Review, *, image_size: int = 420, watch: Callable[[], None] = lambda: None
    ) -> None:
        self.review = review
        self._watch = watch
        self._size = image_size
        self._busy = False
        self._typed = ""  # into the key field
        # A layout of its own for each of seventy controls would fill the notebook's saved state.
        self._look = {"layout": ipw.Layout(), "style": ipw.ButtonStyle()}
        self._buttons: dict[str, Any] = {}  # by what they do: "next", "score 4", "left: too vague"
        self._case = ipw.HTML()
        self._status = ipw.HTML()
        self._progress = _named("vj-progress", ipw.HTML())
        self._bar = _named("vj-bar", ipw.IntProgress(max=max(len(review.voted), 1)))
        self._score = _named("vj-score-field", ipw.IntText())
        self._note = _named("vj-note-field", ipw.Textarea(placeholder="kept when you go on"))
        self._keys = _named("vj-key-field", ipw.Text(placeholder="click here and type"))
        self._keys.observe(self._on_keys, names="value")
        self._filters = self._make_filters()
        self.widget = self._arrange()
        self._draw()

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        """The widget, and for a page without a kernel the case as HTML and as text."""
        text = f"Review by {self.review.annotator}: {self._place}"
        return _bundle(self.widget, text, f'<div class="vj-note">{escape(text)}</div>{self._page}')

    def filter(self, **filters: Any) -> None:
        """List what passes the filters of `Review.filter`, and show them in the controls."""
        self._act(partial(self._filter, filters))

    # What the tool consists of

    def _make_filters(self) -> dict[str, Any]:
        review = self.review
        levels = list(review.levels.items())
        criteria = [
            (name if len(name) < 60 else f"{name[:57]}...", name) for name in review.criteria
        ]
        choices: dict[str, Any] = {
            "judge": [(name, name) for name in review.judges],
            "score": levels,
            "truth": levels,
            "human": levels,
            "disagreement": _disagreements(review.levels),
            "unparsed": [("no verdict", True), ("a verdict", False)],
            "criterion": criteria,
            "voted": [("not yet", False), ("given", True)],
        }
        look: dict[str, Any] = {"layout": ipw.Layout(), "style": {"description_width": "8em"}}
        controls = {}
        for name, label in FILTERS.items():
            if name in ("text", "id"):
                control = ipw.Text(description=label, continuous_update=False, **look)
            elif name == "order":
                control = ipw.Dropdown(options=list(ORDERS.items()), description=label, **look)
                control.value = review.order
            else:
                options = [("any", ""), *choices[name]]
                control = ipw.Dropdown(options=options, description=label, **look)
            control.observe(lambda change: self._act(self._filter, change["owner"]), names="value")
            controls[name] = control
        return controls

    def _arrange(self) -> Any:
        review, button = self.review, self._button
        clear = button("all items", "Clear filters", partial(self._filter, {}))
        filters = ipw.Accordion(children=[ipw.HBox([*self._filters.values(), clear])])
        filters.selected_index = None  # closed
        filters.set_title(0, "Filter, order, go to an item")
        moves = [
            button("previous", "◀ Previous", partial(review.step, -1)),
            button("next", "Next ▶", review.step),
            button("next without a vote", "Next without a vote ▶▶", review.next_unvoted),
            button("undo", "↶ Undo", review.undo),
            self._bar,
            self._progress,
        ]
        looks = [
            button("smaller", "Image −", partial(self._zoom, 1 / ZOOM)),
            button("larger", "Image +", partial(self._zoom, ZOOM)),
            self._toggle("differences", "Mark differences"),
            self._toggle("true score", "Show true score"),
            button("reveal", "Reveal before voting", review.reveal),
        ]
        note = [_label("Note"), self._note, button("note", "Save note", lambda: None)]
        keys = "; ".join(f"<b>{key}</b> {name}" for key, name in KEYS.items())
        help = ipw.HTML(f'<span class="vj-keys"><b>1</b>-<b>5</b> score; {keys}</span>')
        rows = [moves, looks, [self._case], [self._status], self._scores(), self._tags(), note]
        rows.append([_label("Keys"), self._keys, help])
        return _named("vj-reviewer", _tool([filters, *map(ipw.HBox, rows)]))

    def _scores(self) -> list[Any]:
        """The score's buttons, or a field on a long scale, and those of the better feedback."""
        levels = self.review.levels
        if any(low != high for low, high in levels.values()):
            give = self._button("score", "Give score", lambda: self.review.score(self._score.value))
            scores = [self._score, give]
        else:
            scores = []
            for level in levels:
                turn = partial(self._turn, "score", int(level))
                scores.append(self._button(f"score {level}", level, turn))
        row = [ipw.HBox([_label("Your score"), *scores])]
        if len(self.review.judges) == 2:
            answers = [_label("Better feedback")]
            for name in ANSWERS:
                turn = partial(self._turn, "better", name)
                answers.append(self._button(name, name.capitalize(), turn))
            row.append(_named("vj-better", ipw.HBox(answers)))
        return row

    def _tags(self) -> list[Any]:
        boxes = []
        places = list(self.review.sides(""))
        for place in places:
            side = f"{place} " if len(places) > 1 else ""
            head = ipw.HTML(f"<b>Errors in the {side}feedback</b>")
            row = []
            for tag in self.review.tags:
                act = partial(self.review.tag, tag, side=place)
                row.append(self._button(f"{place}: {tag}", tag, act))
            boxes.append(_named("vj-tags", ipw.VBox([head, ipw.HBox(row)])))
        return boxes

    def _button(self, name: str, text: str, act: Callable[[], Any]) -> Any:
        button = self._buttons[name] = ipw.Button(description=text, **self._look)
        button.on_click(partial(self._act, act))
        return _named("vj-do-" + name.replace(" ", "-"), button)

    def _toggle(self, name: str, text: str) -> Any:
        toggle = ipw.ToggleButton(description=text, layout=self._look["layout"])
        toggle.observe(lambda change: self._act(lambda: None, change["owner"]), names="value")
        self._buttons[name] = toggle
        return toggle

    # What happens

    def _act(self, act: Callable[[], Any], pressed: Any = None) -> None:
        """Do one thing, while the tool takes no clicks; an error shows in the status line."""
        if self._busy:
            return
        self._busy = True
        self.widget.add_class("vj-busy")
        message = ""
        try:
            self.review.refresh()
            if self.review.listed:  # what was typed must not be lost by going on
                self.review.note(self._note.value)
            act()
        except (ReviewError, ValueError, OSError) as error:
            message = str(error)
        try:
            self._draw(message, pressed)
        finally:
            self.widget.remove_class("vj-busy")
            self._busy = False
        self._watch()

    def _turn(self, field: str, value: Any) -> None:
        """Cast a vote; the same one again withdraws it."""
        case = self.review.case
        if case and case.votes.get(field) == value:
            value = None
        getattr(self.review, field)(value)

    def _zoom(self, factor: float) -> None:
        self._size = min(max(round(self._size * factor), SMALLEST), LARGEST)

    def _filter(self, filters: Mapping[str, Any] | None = None) -> None:
        """List what the controls say, after they were set to some filters."""
        controls = self._filters
        if filters is not None:
            for name, control in controls.items():
                if name != "order":
                    control.value = filters.get(name, "")
        values = {name: control.value for name, control in controls.items() if control.value != ""}
        id = values.pop("id", "").strip()
        controls["id"].value = ""
        order = values.pop("order")
        if "disagreement" in values:
            name, bounds = values.pop("disagreement")
            values[name] = bounds
        self.review.filter(**values)
        if order != self.review.order:
            self.review.sort(order)
        if id:
            self.review.goto(id)

    def _on_keys(self, change: Mapping[str, Any]) -> None:
        """Act on what was typed into the key field; deleting does nothing."""
        before = self._typed
        self._typed = change["new"]
        if before.startswith(self._typed):
            return
        fresh = self._typed[-1:]
        if self._typed.startswith(before):
            fresh = self._typed.removeprefix(before)
        for key in fresh.lower():
            button = self._buttons.get(KEYS.get(key, f"score {key}"))
            if isinstance(button, ipw.ToggleButton):
                button.value = not button.value
            elif button is not None:
                button.click()
            elif not key.isspace():
                self._draw(f"the key {key} does nothing here")

    # What shows

    def _draw(self, message: str = "", pressed: Any = None) -> None:
        """Show the review as it is now; with an error, a typed note stays in its field."""
        review = self.review
        case = review.case
        votes = case.votes if case else {}

        # 1) where one is
        voted = review.voted
        place = f"item {case.number + 1} of {len(review.listed)}, " if case else ""
        blind = ", blind" if review.blind else ""
        self._place = f"{place}{voted.sum()} of {len(voted)} voted by {review.annotator}{blind}"
        self._progress.value = f"<span>{escape(self._place)}</span>"
        self._bar.value = int(voted.sum())

        # 2) the item
        self._page = "No item passes the filters."
        if case:
            truth = self._buttons["true score"].value
            differences = self._buttons["differences"].value
            self._page = case_html(case, self._size, truth=truth, differences=differences)
        self._case.value = View(self._page).html

        # 3) the buttons
        chosen = {f"score {votes.get('score')}", votes.get("better")}
        tags: set[str] = set()
        for side, names in votes.get("tags", {}).items():
            tags.update(f"{side}: {tag}" for tag in names)
        for name, button in self._buttons.items():
            button.button_style = ""
            if name in chosen:
                button.button_style = "primary"
            elif name in tags:
                button.button_style = "warning"
            button.disabled = button is not pressed and self._is_idle(name, case)

        # 4) the note and the last line
        self._note.disabled = case is None
        if message:
            self._status.value = f'<span class="vj-error">{escape(message)}</span>'
            return
        self._note.value = votes.get("note", "")
        vote = f"Your vote: {vote_words(votes) or 'none yet'}"
        self._status.value = escape(vote if case else "Clear a filter to go on.")

    def _is_idle(self, name: str, case: ReviewCase | None) -> bool:
        """Whether a button can do nothing now."""
        if case is None:
            return name not in ("undo", "all items")
        if name in ANSWERS:
            return not all("feedback" in verdict for verdict in case.sides.values())
        if name.startswith("score "):
            return case.scale is None or not case.scale[0] <= int(name[6:]) <= case.scale[1]
        if name == "previous":
            return case.number == 0
        if name == "next":
            return case.number == len(self.review.listed) - 1
        return name == ("reveal" if case.revealed else "true score")


class Matrix:
    """A judge's scores against the truth, as counts.

    A click on a cell opens the review on its items.

    The truth, or the mean of the scores voted here, is chosen above the matrix; votes redraw it. A
    click lists by score and truth, so that votes on that list are not blind.

    Args:
        review: what is reviewed.
        judge: whose scores; the first judge's where None.
        image_size: as in `Reviewer`.
    """

    def __init__(self, review: Review, *, judge: str | None = None, image_size: int = 420) -> None:
        self.review = review
        self.reviewer = Reviewer(review, image_size=image_size, watch=self._draw)
        self.reviewer.widget.layout.display = "none"

        # 1) what is counted
        truths = [("scores voted here", "human")]
        if review.truth.notna().any():
            truths.insert(0, (str(review.truth.name), "truth"))
        look: dict[str, Any] = {"style": {"description_width": "auto"}}
        self._judge = ipw.Dropdown(options=review.judges, description="Judge (columns)", **look)
        self._judge.value = judge or review.judges[0]
        self._by = ipw.Dropdown(options=truths, description="Truth (rows)", **look)
        for control in (self._judge, self._by):
            control.observe(lambda change: self._draw(), names="value")

        # 2) the cells
        self._head = ipw.HTML()
        self._cells: dict[tuple[str, str], Any] = {}
        table = self._table()
        grid = [ipw.HTML(), *map(_label, table.columns)]
        for row in table.index:
            grid.append(_label(row))
            for column in table.columns:
                cell = self._cells[row, column] = ipw.Button()
                cell.on_click(partial(self._open, row, column))
                grid.append(_named("vj-same" if row == column else "vj-other", cell))
        width = f"max-content repeat({len(table.columns)}, minmax(2.6em, 5em))"
        cells = ipw.GridBox(grid, layout=ipw.Layout(grid_template_columns=width))
        choice = _named("vj-choice", ipw.HBox([self._judge, self._by]))
        rows = [choice, self._head, _named("vj-matrix", cells), self.reviewer.widget]
        self.widget = _tool(rows)
        self._draw()

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        """The widget, and for a page without a kernel the counts as HTML and as text."""
        table = self._table()
        words = table.attrs["words"]
        page = f'<div class="vj-note">{escape(words)}</div>{table.to_html(border=0)}'
        return _bundle(self.widget, f"{words}\n{table.to_string()}", page)

    def _table(self) -> Any:
        """The counts, highest truth first, as `vjudge.plots.confusion` draws them."""
        return self.review.confusion(self._judge.value, by=self._by.value)[::-1]

    def _open(self, row: str, column: str, button: Any) -> None:
        """List a cell's items in the tool below."""
        levels = self.review.levels
        filters = {"judge": self._judge.value, self._by.value: levels[row]}
        if column == "none":
            filters["unparsed"] = True
        else:
            filters["score"] = levels[column]
        self.reviewer.widget.layout.display = ""
        self.reviewer.filter(**filters)

    def _draw(self) -> None:
        table = self._table()
        most = max(1, table.to_numpy().max(initial=0))
        for (row, column), button in self._cells.items():
            count = int(table.loc[row, column])
            button.description = str(count)
            button.disabled = count == 0
            button.tooltip = f"truth {row}, {self._judge.value} {column}: {count}"
            button.style.button_color = f"rgba(0,114,178,{0.6 * count / most:.2f})"
        self._head.value = f'<span class="vj-keys">{escape(table.attrs["words"])}</span>'


def _disagreements(levels: Mapping[str, tuple[int, int]]) -> list[tuple[str, Any]]:
    """Options of the filter by distance: label, and a filter of `Review.filter` with its bounds."""
    if not levels:
        return []
    ends = list(levels.values())
    span = ends[-1][1] - ends[0][0]
    large = max(1, round(0.5 * span))
    return [
        (f"large disagreement ({large} or more)", ("distance", (large, span))),
        ("judge too high", ("gap", (-span, -0.5))),
        ("judge too low", ("gap", (0.5, span))),
        ("agreement", ("distance", (0, 0.49))),
    ]


def _bundle(widget: Any, text: str, page: str) -> dict[str, Any]:
    """What a widget shows with a kernel, and as HTML and text without."""
    view = {"version_major": 2, "version_minor": 0, "model_id": widget.model_id}
    return {
        "text/plain": text,
        "text/html": View(page).html,
        "application/vnd.jupyter.widget-view+json": view,
    }


def _named(name: str, widget: Any) -> Any:
    """A widget with a class for style sheets and tests."""
    widget.add_class(name)
    return widget


def _tool(rows: list[Any]) -> Any:
    return _named("vj-tool", ipw.VBox([ipw.HTML(_STYLE), *rows]))


def _label(text: str) -> Any:
    return _named("vj-label", ipw.HTML(f"<b>{escape(text)}</b>"))
