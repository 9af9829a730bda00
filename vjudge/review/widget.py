"""The review as a notebook tool, and a confusion matrix whose cells open it; ipywidgets 7.7 and 8.

Every button calls one method of `vjudge.review.Review`. JupyterLab would take a key typed after a
press on a button for a shortcut of its own ("d", "d" deletes a cell): the tool is marked as a place
without shortcuts, by its only script, and the button that was pressed keeps the focus, as it is
never disabled by its own press.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import ipywidgets as ipw

from vjudge.review.review import DISAGREEMENTS, Review, ReviewCase
from vjudge.review.show import ASSETS, View, case_html, escape, vote_words
from vjudge.review.votes import ANSWERS, ReviewError

ZOOM = 1.45  # one step of the pictures' size
SMALLEST, LARGEST = 120, 1600  # pixels of a picture's longer side
ORDERS = [("as in the file", "file"), ("largest disagreement first", "worst"), ("random", "random")]
_STYLE = (ASSETS / "reviewer.html").read_text("utf-8")


class Reviewer:
    """A review to look at and vote in; display it as the last line of a cell.

    Votes cast through the review elsewhere show after the next action here. Where widgets can't
    run, the case shows as a plain page.

    Args:
        review: what is reviewed, and by whom.
        image_size: pixels of an image's longer side at the start.
    """

    def __init__(self, review: Review, *, image_size: int = 420) -> None:
        self.review = review
        self._size = image_size
        self._busy = False
        self._buttons: dict[str, Any] = {}  # by what they do: "next", "score 4", "left: too vague"
        self._case = ipw.HTML()
        self._status = ipw.HTML()
        self._progress = _named("vj-progress", ipw.HTML())
        self._bar = _named("vj-bar", ipw.IntProgress(max=max(len(review.voted), 1)))
        self._score = _named("vj-score-field", ipw.IntText())
        self._note = _named("vj-note-field", ipw.Textarea(placeholder="kept when you go on"))
        self._truth = ipw.ToggleButton(description="Show true score")
        self._truth.observe(lambda change: self._act(lambda: None), names="value")
        self._filters = self._make_filters()
        self.widget = self._arrange()
        self._draw()

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        """The widget, and for a page without a kernel the case as HTML and as text."""
        text = f"Review by {self.review.annotator}: {self._place}"
        return _bundle(self.widget, text, f'<div class="vj-note">{escape(text)}</div>{self._page}')

    def filter(self, **filters: Any) -> None:
        """List what passes the filters of `Review.filter`, and show them in the controls."""

        def choose() -> None:
            for name, control in self._filters.items():
                if name != "order":
                    control.value = filters.get(name, "")
            self._filter()

        self._act(choose)

    # What the tool consists of

    def _make_filters(self) -> dict[str, Any]:
        """The controls of the list, by the name of their filter."""
        review = self.review
        levels = list(review.levels.items())
        options: dict[str, tuple[str, list[Any]]] = {
            "judge": ("Judge", [(name, name) for name in review.judges]),
            "score": ("Judge's score", levels),
            "truth": ("True score", levels),
            "disagreement": ("Disagreement", [(name, name) for name in DISAGREEMENTS]),
            "unparsed": ("Verdict", [("no verdict", True), ("a verdict", False)]),
            "criterion": ("Criterion", [(name[:60], name) for name in review.criteria]),
            "voted": ("My vote", [("not yet", False), ("given", True)]),
        }
        style = {"description_width": "8em"}
        controls: dict[str, Any] = {}
        for name, (label, choices) in options.items():
            controls[name] = ipw.Dropdown(
                options=[("any", ""), *choices], description=label, style=style
            )
        controls["text"] = ipw.Text(
            description="Text contains", continuous_update=False, style=style
        )
        controls["order"] = ipw.Dropdown(
            options=ORDERS, value=review.order, description="Order", style=style
        )
        for control in controls.values():
            control.observe(lambda change: self._act(self._filter), names="value")
        return controls

    def _arrange(self) -> Any:
        """The tool's rows, from the filters to the note."""
        review = self.review
        button = self._button
        clear = ipw.Button(description="Clear filters")
        clear.on_click(lambda pressed: self.filter())
        filters = ipw.Accordion(children=[ipw.HBox([*self._filters.values(), clear])])
        filters.selected_index = None  # closed
        filters.set_title(0, "Filter and order")
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
            self._truth,
            button("reveal", "Reveal before voting", review.reveal),
        ]
        note = [_label("Note"), self._note, button("note", "Save note", lambda: None)]
        rows = [moves, looks, [self._case], [self._status], self._scores(), self._tags(), note]
        return _named("vj-reviewer", _tool([filters, *map(ipw.HBox, rows)]))

    def _scores(self) -> list[Any]:
        """The score's buttons, or a field on a long scale, and those of the better feedback."""
        levels = self.review.levels
        scores = [_label("Your score")]
        if all(low == high for low, high in levels.values()):
            for level in levels:
                vote = partial(self._turn, "score", int(level))
                scores.append(self._button(f"score {level}", level, vote))
        else:
            give = self._button("score", "Give score", lambda: self.review.score(self._score.value))
            scores += [self._score, give]
        if len(self.review.judges) != 2:
            return [ipw.HBox(scores)]
        answers = [_label("Better feedback")]
        for name in ANSWERS:
            vote = partial(self._turn, "better", name)
            answers.append(self._button(name, name.capitalize(), vote))
        return [ipw.HBox(scores), _named("vj-better", ipw.HBox(answers))]

    def _tags(self) -> list[Any]:
        """A row of error tags for each feedback."""
        boxes = []
        for place in self.review.sides(""):
            head = ipw.HTML(f"<b>Errors in feedback {place}</b>")
            row = []
            for tag in self.review.tags:
                vote = partial(self.review.tag, tag, side=place)
                row.append(self._button(f"{place}: {tag}", tag, vote))
            boxes.append(_named("vj-tags", ipw.VBox([head, ipw.HBox(row)])))
        return boxes

    def _button(self, name: str, text: str, act: Callable[[], Any]) -> Any:
        button = self._buttons[name] = ipw.Button(description=text)
        button.on_click(partial(self._act, act))
        return _named("vj-do-" + name.replace(" ", "-"), button)

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

    def _turn(self, field: str, value: Any) -> None:
        """Cast a vote; the same one again withdraws it."""
        case = self.review.case
        if case and case.votes.get(field) == value:
            value = None
        getattr(self.review, field)(value)

    def _zoom(self, factor: float) -> None:
        self._size = min(max(round(self._size * factor), SMALLEST), LARGEST)

    def _filter(self) -> None:
        """List what the controls say."""
        chosen = {}
        for name, control in self._filters.items():
            if name != "order" and control.value != "":
                chosen[name] = control.value
        self.review.filter(**chosen)
        order = self._filters["order"].value
        if order != self.review.order:
            self.review.sort(order)

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
            self._page = case_html(case, self._size, truth=self._truth.value)
        self._case.value = View(self._page).html

        # 3) the buttons
        chosen = {f"score {votes.get('score')}", votes.get("better")}
        for side, names in votes.get("tags", {}).items():
            chosen.update(f"{side}: {tag}" for tag in names)
        for name, button in self._buttons.items():
            button.button_style = "primary" if name in chosen else ""
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
            return name != "undo"
        if name in ANSWERS:
            return not all("feedback" in verdict for verdict in case.sides.values())
        if name.startswith("score "):
            return case.scale is None or not case.scale[0] <= int(name[6:]) <= case.scale[1]
        if name == "previous":
            return case.number == 0
        if name == "next":
            return case.number == len(self.review.listed) - 1
        return name == "reveal" and case.revealed


class Matrix:
    """A judge's scores against the truth, as counts.

    A click on a cell opens the review on its items: votes on that list, which is made by score and
    truth, are not blind.

    Args:
        review: what is reviewed.
        judge: whose scores; the first judge's where None.
        image_size: as in `Reviewer`.

    ValueError: an unknown judge, or no item has a truth.
    """

    def __init__(self, review: Review, *, judge: str | None = None, image_size: int = 420) -> None:
        if review.truth.isna().all():
            raise ValueError("no item has a true score: export the votes, and review those items")
        self.review = review
        self.judge = judge or review.judges[0]
        if self.judge not in review.judges:
            raise ValueError(f"judge {judge!r} is unknown; use one of {', '.join(review.judges)}")
        self.reviewer = Reviewer(review, image_size=image_size)
        self.reviewer.widget.layout.display = "none"
        # The highest truth first, as `vjudge.plots.confusion` draws it.
        self.table = review.confusion(self.judge)[::-1]
        grid = [ipw.HTML(), *map(_label, self.table.columns)]
        for row in self.table.index:
            grid.append(_label(row))
            for column in self.table.columns:
                grid.append(self._cell(row, column))
        width = f"max-content repeat({len(self.table.columns)}, minmax(2.6em, 5em))"
        cells = ipw.GridBox(grid, layout=ipw.Layout(grid_template_columns=width))
        words = f'<span class="vj-keys">{escape(self.table.attrs["words"])}</span>'
        head = ipw.HTML(words)
        self.widget = _tool([head, _named("vj-matrix", cells), self.reviewer.widget])

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        """The widget, and for a page without a kernel the counts as HTML and as text."""
        words = self.table.attrs["words"]
        page = f'<div class="vj-note">{escape(words)}</div>{self.table.to_html(border=0)}'
        return _bundle(self.widget, f"{words}\n{self.table.to_string()}", page)

    def _cell(self, row: str, column: str) -> Any:
        """The button of one count."""
        count = int(self.table.loc[row, column])
        button = ipw.Button(description=str(count), disabled=count == 0)
        button.tooltip = f"truth {row}, {self.judge} {column}: {count}"
        share = count / max(1, self.table.to_numpy().max())
        button.style.button_color = f"rgba(0,114,178,{0.6 * share:.2f})"
        button.on_click(lambda pressed: self._open(row, column))
        return _named("vj-same" if row == column else "vj-other", button)

    def _open(self, row: str, column: str) -> None:
        """List a cell's items in the tool below."""
        filters: dict[str, Any] = {"judge": self.judge, "truth": self.review.levels[row]}
        if column == "none":
            filters["unparsed"] = True
        else:
            filters["score"] = self.review.levels[column]
        self.reviewer.widget.layout.display = ""
        self.reviewer.filter(**filters)


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
