"""The review as a notebook tool, and a confusion matrix whose cells open it; ipywidgets 7.7 and 8.

Every button calls one method of `vjudge.review.Review`. JupyterLab would take a key typed after a
press on a button for a shortcut of its own ("d", "d" deletes a cell): the tool is marked as a place
without shortcuts, by its only script, and no button is ever disabled, so that the pressed one keeps
the focus.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import ipywidgets as ipw

from vjudge.review.review import NO_SCORE, Review
from vjudge.review.show import ASSETS, TEMPLATES, case_html, escape, framed
from vjudge.review.votes import ANSWERS, ReviewError

MOST_BUTTONS = 11  # a longer scale has a field
LABELS = {  # of the filters
    "judge": "Judge",
    "score": "Judge's score",
    "truth": "True score",
    "disagreement": "Disagreement",
    "criterion": "Criterion",
    "voted": "My vote",
    "order": "Order",
}
WORDS = {  # of their values
    ("score", NO_SCORE): "no verdict",
    ("disagreement", "large"): "large disagreement",
    ("voted", False): "not yet",
    ("voted", True): "given",
    ("order", "file"): "as in the file",
    ("order", "worst"): "largest disagreement first",
}
_STYLE = (ASSETS / "reviewer.html").read_text("utf-8")


class _Tool:
    """A widget, and for a page without a kernel its state as HTML and as text."""

    widget: Any
    text: str
    page: str

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        view = {
            "version_major": 2,
            "version_minor": 0,
            "model_id": self.widget.model_id,
        }
        return {
            "text/plain": self.text,
            "text/html": framed(f'<div class="vj-note">{escape(self.text)}</div>{self.page}'),
            "application/vnd.jupyter.widget-view+json": view,
        }


class Reviewer(_Tool):
    """A review to look at and vote in; display it as the last line of a cell.

    Votes cast through the review elsewhere show after the next action here. Where widgets can't
    run, the case shows as a plain page.

    Args:
        review: what is reviewed, and by whom.
        image_size: pixels of an image's longer side at the start.
    """

    def __init__(self, review: Review, *, image_size: int = 420) -> None:
        self.review = review
        self._busy = False
        self._buttons: dict[str, Any] = {}  # by what they do: "next", "score 4", "left: too vague"
        self._case = ipw.HTML()
        self._status = ipw.HTML()
        self._progress = _named("vj-progress", ipw.HTML())
        self._score = _named("vj-score-field", ipw.IntText())
        self._note = _named("vj-note-field", ipw.Textarea(placeholder="kept when you go on"))
        self._size = ipw.IntSlider(
            value=image_size,
            min=120,
            max=1600,
            step=20,
            description="Image size",
            continuous_update=False,
        )
        self._size.observe(lambda change: self._act(lambda: None), names="value")
        self._filters: dict[str, Any] = {}  # their controls
        for name, values in review.filters.items():
            options = [("any", "")]
            for value in values:
                options.append((WORDS.get((name, value), str(value)[:60]), value))
            control = ipw.Dropdown(
                options=options,
                description=LABELS[name],
                style={"description_width": "8em"},
            )
            control.observe(lambda change: self._act(self._list), names="value")
            self._filters[name] = control
        self.widget = self._arrange()
        self._draw()

    def filter(self, **filters: Any) -> None:
        """List what passes the filters of `Review.filter`, and show them in the controls."""

        def choose() -> None:
            for name, control in self._filters.items():
                control.value = filters.get(name, "")
            self._list()

        self._act(choose)

    # What the tool consists of

    def _arrange(self) -> Any:
        """The tool's rows, from the filters to the note."""
        review = self.review
        button = self._button
        clear = ipw.Button(description="Clear filters")
        clear.on_click(lambda pressed: self.filter())
        controls = [*self._filters.values(), clear]
        filters = ipw.Accordion(children=[ipw.HBox(controls)])
        filters.selected_index = None  # closed
        filters.set_title(0, "Filter and order")
        moves = [
            button("previous", "◀ Previous", partial(review.step, -1)),
            button("next", "Next ▶", review.step),
            button("undo", "↶ Undo", review.undo),
            self._size,
            self._progress,
        ]
        note = [_label("Note"), self._note, button("note", "Save note", lambda: None)]
        rows = [moves, [self._case], [self._status], self._scores(), self._tags(), note]
        return _named("vj-reviewer", _tool([filters, *map(ipw.HBox, rows)]))

    def _scores(self) -> list[Any]:
        """The score's buttons, or a field on a long scale, and those of the better feedback."""
        row = [_label("Your score")]
        lowest, highest = self.review.scale or (1, 5)
        if highest - lowest < MOST_BUTTONS:
            for score in range(lowest, highest + 1):
                vote = partial(self._turn, "score", score)
                row.append(self._button(f"score {score}", str(score), vote))
        else:
            give = self._button("score", "Give score", lambda: self.review.score(self._score.value))
            row += [self._score, give]
        if len(self.review.judges) == 2:
            row.append(_label("Better feedback"))
            for name in ANSWERS:
                vote = partial(self._turn, "better", name)
                row.append(self._button(name, name.capitalize(), vote))
        return row

    def _tags(self) -> list[Any]:
        """A row of error tags for each feedback."""
        boxes = []
        for place in self.review.sides(""):
            label = _label(f"Errors in feedback {place}")
            row = []
            for tag in self.review.tags:
                vote = partial(self._tag, tag, place)
                row.append(self._button(f"{place}: {tag}", tag, vote))
            boxes.append(_named("vj-tags", ipw.VBox([label, ipw.HBox(row)])))
        return boxes

    def _button(self, name: str, text: str, act: Callable[[], Any]) -> Any:
        button = ipw.Button(description=text)
        button.on_click(lambda pressed: self._act(act))
        self._buttons[name] = button
        return _named("vj-do-" + name.replace(" ", "-"), button)

    # What happens

    def _act(self, act: Callable[[], Any]) -> None:
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
            self._draw(message)
        finally:
            self.widget.remove_class("vj-busy")
            self._busy = False

    def _turn(self, field: str, value: Any) -> None:
        """Cast a vote; the same one again withdraws it."""
        if self._votes.get(field) == value:
            value = None
        getattr(self.review, field)(value)

    def _tag(self, tag: str, place: str) -> None:
        """Give an error tag; the same one again withdraws it."""
        tags = self._votes.get("tags", {}).get(place, [])
        kept = [name for name in tags if name != tag]
        if tag not in tags:
            kept.append(tag)
        self.review.tag(kept, side=place)

    def _list(self) -> None:
        """List what the controls say."""
        chosen = {}
        for name, control in self._filters.items():
            if control.value != "":
                chosen[name] = control.value
        self.review.filter(**chosen)

    # What shows

    def _draw(self, message: str = "") -> None:
        """Show the review as it is now; with an error, a typed note stays in its field."""
        review = self.review
        case = review.case
        votes = case.votes if case else {}
        self._votes = votes

        # 1) where one is
        voted = review.voted
        place = f"item {case.number + 1} of {len(review.listed)}, " if case else ""
        blind = ", blind" if review.blind else ""
        place = f"{place}{voted.sum()} of {len(voted)} voted by {review.annotator}{blind}"
        self.text = f"Review by {review.annotator}: {place}"
        bar = f'<progress max="{len(voted)}" value="{voted.sum()}"></progress>'
        self._progress.value = f"{bar} <span>{escape(place)}</span>"

        # 2) the item
        self.page = "No item passes the filters."
        if case:
            self.page = case_html(case, self._size.value)
        self._case.value = framed(self.page)

        # 3) the votes on it
        chosen = {f"score {votes.get('score')}", votes.get("better")}
        for side, names in votes.get("tags", {}).items():
            chosen.update(f"{side}: {tag}" for tag in names)
        for name, button in self._buttons.items():
            button.button_style = "primary" if name in chosen else ""
        if message:
            self._status.value = f'<span class="vj-error">{escape(message)}</span>'
            return
        self._note.value = votes.get("note", "")
        self._status.value = "Clear a filter to go on."
        if case:
            self._status.value = f"Your vote: {TEMPLATES.words(votes)}"


class Matrix(_Tool):
    """A judge's scores against the truth, as counts.

    A click on a cell opens the review on its items: votes on that list, which is made by score and
    truth, are not blind.

    Args:
        review: what is reviewed.
        judge: whose scores.

    ValueError: an unknown judge, or no item has a truth.
    """

    def __init__(self, review: Review, *, judge: str) -> None:
        if review.truth.isna().all():
            raise ValueError("no item has a true score: export the votes, and review those items")
        self.judge = judge
        self.reviewer = Reviewer(review)
        self.reviewer.widget.layout.display = "none"
        self.table = review.confusion(judge)
        self.text = self.table.attrs["words"]
        self.page = self.table.to_html(border=0)
        columns = self.table.columns
        grid = [ipw.HTML(), *map(_label, columns)]
        for row in self.table.index:
            grid.append(_label(row))
            for column in columns:
                grid.append(self._cell(row, column))
        width = f"max-content repeat({len(columns)}, minmax(2.6em, 5em))"
        cells = ipw.GridBox(grid, layout=ipw.Layout(grid_template_columns=width))
        head = ipw.HTML(escape(self.text))
        self.widget = _tool([head, _named("vj-matrix", cells), self.reviewer.widget])

    def _cell(self, row: str, column: str) -> Any:
        """The button of one count."""
        count = int(self.table.loc[row, column])
        button = ipw.Button(description=str(count), disabled=count == 0)
        share = count / max(1, self.table.to_numpy().max())
        button.style.button_color = f"rgba(0,114,178,{0.6 * share:.2f})"
        button.on_click(lambda pressed: self._open(row, column))
        return _named("vj-same" if row == column else "vj-other", button)

    def _open(self, row: str, column: str) -> None:
        """List a cell's items in the tool below."""
        self.reviewer.widget.layout.display = ""
        self.reviewer.filter(judge=self.judge, truth=row, score=column)


def _named(name: str, widget: Any) -> Any:
    """A widget with a class for style sheets and tests."""
    widget.add_class(name)
    return widget


def _tool(rows: list[Any]) -> Any:
    return _named("vj-tool", ipw.VBox([ipw.HTML(_STYLE), *rows]))


def _label(text: str) -> Any:
    return _named("vj-label", ipw.HTML(f"<b>{escape(text)}</b>"))
