"""The review as a notebook tool, and a confusion matrix whose cells open it; ipywidgets 7.7 and 8.

Every press calls one method of `vjudge.review.Review` with the item that the page showed. The
page's script (assets/reviewer.js) sends it with that item and the note in one message, takes keys,
and keeps them from JupyterLab, for which "d", "d" deletes a cell; no button is ever disabled, so
that the pressed one keeps the focus. Where the script can't run, buttons work as any widget's.
"""

from __future__ import annotations

import html
import json
from collections.abc import Callable, Mapping
from copy import copy
from functools import partial
from typing import Any

import ipywidgets as ipw

from vjudge.prompts.wordings import ASSETS
from vjudge.review.review import Review
from vjudge.review.session import NO_SCORE, NOTHING_LISTED, ReviewCase
from vjudge.review.show import TEMPLATES, case_html, escape, framed
from vjudge.review.votes import ANSWERS, ReviewError

Act = Callable[[str | None, bool | None], object]  # on an item, its button pressed or not

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
VALUES = {  # of their values
    ("score", NO_SCORE): "no verdict",
    ("disagreement", "large"): "large disagreement",
    ("voted", False): "not yet",
    ("voted", True): "given",
    ("order", "file"): "as in the file",
    ("order", "worst"): "largest disagreement first",
}
_SCRIPT = html.escape((ASSETS / "reviewer.js").read_text("utf-8"))
_STYLE = (ASSETS / "reviewer.html").read_text("utf-8") + (
    f"<img src='data:,' alt='' style='display:none' onerror=\"({_SCRIPT})(this)\">"
)


class _Tool:
    """A widget, and for a page without a kernel its state as HTML and as text."""

    widget: Any
    text: str
    page: str

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, Any]:
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

    It has a list of its own: what the review or another tool lists moves nothing here. Votes cast
    elsewhere show after the next action. Where widgets can't run, the case shows as a plain page.

    Keys, once the tool was clicked: digits score, l, r, g and b say which feedback is better (left,
    right, both good, both bad), the arrows move, u undoes, n goes to the note and Escape back.

    Args:
        review: what is reviewed, and by whom.
        image_size: pixels of an image's longer side at the start.
        advance: go on to the next item when one has its score and its answer.
        filters: of `Review.filter`.
    """

    def __init__(
        self, review: Review, *, image_size: int = 420, advance: bool = False, **filters: Any
    ) -> None:
        self.review = copy(review)
        self.advance = advance
        self._busy = False
        self._buttons: dict[str, Any] = {}  # by what they do: "next", "score 4", "left: too vague"
        self._acts: dict[str, Act] = {}  # the same, by the class of the button
        self._set_note = ""  # what the field was last set to
        self._answered: dict[str, int] = {}  # by the page's session, its last event
        self._session = ""  # the page's whose event came last
        self._case = ipw.HTML()
        self._status = ipw.HTML()
        self._progress = _named("vj-progress", ipw.HTML())
        self._score = _named("vj-score-field", ipw.IntText())
        note = ipw.Textarea(placeholder="kept when you go on", continuous_update=False)
        self._note = _named("vj-note-field", note)
        self._channel = _named("vj-channel", ipw.Text())
        self._channel.observe(lambda change: self._receive(change["new"]), names="value")
        self._size = ipw.IntSlider(
            value=image_size,
            min=120,
            max=1600,
            step=20,
            description="Image size",
            continuous_update=False,
        )
        self._size.observe(lambda change: self._act(lambda: None), names="value")
        self._filters = self._controls()
        self.widget = self._arrange()
        if filters:
            self.filter(**filters)
        self._draw()

    def filter(self, **filters: Any) -> None:
        """List what passes the filters of `Review.filter`, and show them in the controls."""

        def choose() -> None:
            for name, control in self._filters.items():
                control.value = filters.get(name, "")
            self._list()

        self._act(choose)

    # What the tool consists of

    def _controls(self) -> dict[str, Any]:
        """A control for each filter."""
        controls = {}
        for name, values in self.review.filters.items():
            options = [("any", "")]
            for value in values:
                options.append((VALUES.get((name, value), str(value)[:60]), value))
            control = ipw.Dropdown(
                options=options,
                description=LABELS[name],
                style={"description_width": "8em"},
            )
            control.observe(lambda change: self._act(self._list), names="value")
            controls[name] = control
        return controls

    def _arrange(self) -> Any:
        """The tool's rows, from the filters to the note."""
        clear = ipw.Button(description="Clear filters")
        clear.on_click(lambda pressed: self.filter())
        filters = ipw.Accordion(children=[ipw.HBox([*self._filters.values(), clear])])
        filters.selected_index = None  # closed
        filters.set_title(0, "Filter and order")
        moves = [
            self._button("previous", "◀ Previous", partial(self._step, -1), "ArrowLeft"),
            self._button("next", "Next ▶", partial(self._step, 1), "ArrowRight"),
            self._button("undo", "↶ Undo", lambda id, _: self.review.undo(), "u"),
            self._size,
            self._progress,
        ]
        save = self._button("note", "Save note", lambda id, _: None)
        note = [_label("Note"), self._note, save, self._channel]
        rows = [moves, [self._case], [self._status], self._votes(), self._tags(), note]
        return _named("vj-reviewer", _tool([filters, *map(ipw.HBox, rows)]))

    def _votes(self) -> list[Any]:
        """The score's buttons, or a field on a long scale, and those of the better feedback."""
        row = [_label("Your score")]
        lowest, highest = self.review.scale or (1, 5)
        if highest - lowest < MOST_BUTTONS:
            for score in range(lowest, highest + 1):
                name = f"score {score}"
                digit = str(score % 10) if lowest > 0 or score < 10 else ""  # 0 stands for 10
                vote = partial(self._cast, "score", score)
                row.append(self._button(name, str(score), vote, digit))
        else:
            row += [self._score, self._button("score", "Give score", self._give)]
        if len(self.review.judges) == 2:
            row.append(_label("Better feedback"))
            for name, key in zip(ANSWERS, "lrgb", strict=True):
                vote = partial(self._cast, "better", name)
                row.append(self._button(name, name.capitalize(), vote, key))
        return row

    def _tags(self) -> list[Any]:
        """A row of error tags for each feedback."""
        boxes = []
        for side in self.review.sides(""):
            label = _label(f"Errors in feedback {side}")
            row = []
            for tag in self.review.offered_tags:
                row.append(self._button(f"{side}: {tag}", tag, partial(self._tag, tag, side)))
            boxes.append(_named("vj-tags", ipw.VBox([label, ipw.HBox(row)])))
        return boxes

    def _button(self, name: str, text: str, act: Act, key: str = "") -> Any:
        """A button that acts on the item that shows, with its key."""
        button = ipw.Button(description=text, tooltip=f"key {key}" if key else text)
        button.on_click(lambda pressed: self._press(act))
        self._buttons[name] = button
        css = name.replace(" ", "-")
        self._acts[css] = act
        if key:
            button.add_class(f"vj-key-{key}")
        if key[:5] != "Arrow" and name not in ("undo", "note", "score"):
            button.add_class("vj-vote")  # its state is pressed or not
        return _named(f"vj-do-{css}", button)

    # What happens

    def _press(self, act: Act) -> None:
        """Act on the item drawn last, for a page without the script."""
        note = self._note.value
        id = self._drawn_id
        self._act(partial(act, id, None), id, None if note == self._set_note else note)

    def _receive(self, message: str) -> None:
        """Act on the page's events that are new, each on the item that the page showed."""
        try:
            sent = json.loads(message)
            session = str(sent["session"])
            events = {int(event["number"]): dict(event) for event in sent["queue"]}
        except (ValueError, TypeError, KeyError):
            return
        for number, event in events.items():
            act = self._acts.get(str(event.get("action")))
            if number <= self._answered.get(session, 0) or act is None:
                continue
            self._answered[session] = number
            self._session = session
            if str(event.get("value", "")).lstrip("-").isdigit():
                self._score.value = int(event["value"])
            item = str(event.get("item", ""))
            id = self.review.id_at(item)
            if item and id is None:
                self._draw(f"item number {item} is not under review: nothing was voted")
                continue
            self._act(partial(act, id, event.get("pressed") is True), id, event.get("note"))

    def _act(self, act: Callable[[], Any], id: str | None = None, note: str | None = None) -> None:
        """Keep an edited note and do one thing; an error shows in the status line."""
        if self._busy:
            return
        self._busy = True
        self.widget.add_class("vj-busy")
        message = ""
        try:
            self.review.refresh()
            if note is not None and id is not None:  # what was typed must not be lost by going on
                self.review.note(note, id=id)
            act()
        except (ReviewError, ValueError, OSError) as error:
            message = str(error)
        try:
            self._draw(message)
        finally:
            self.widget.remove_class("vj-busy")
            self._busy = False

    def _step(self, by: int, id: str | None, pressed: bool | None) -> None:
        """Go on from the item that showed."""
        self.review.step(by, id=id)

    def _cast(self, field: str, value: object, id: str | None, pressed: bool | None) -> None:
        """Cast a vote, or withdraw it where its button showed as pressed; go on if asked to."""
        review = self.review
        if id is None:
            raise ReviewError(NOTHING_LISTED)
        complete = review.is_complete(id)
        if pressed is None:
            pressed = review.votes_on(id).get(field) == value
        getattr(review, field)(None if pressed else value, id=id)
        if self.advance and id == self._drawn_id and not complete and review.is_complete(id):
            review.step(id=id)

    def _give(self, id: str | None, pressed: bool | None) -> None:
        """Cast the score in the field."""
        self._cast("score", self._score.value, id, False)

    def _tag(self, tag: str, place: str, id: str | None, pressed: bool | None) -> None:
        """Give an error tag, or withdraw it where it stands."""
        if id is None:
            raise ReviewError(NOTHING_LISTED)
        tags = self.review.votes_on(id).get("tags", {}).get(place, [])
        if pressed is None:
            pressed = tag in tags
        remaining = [name for name in tags if name != tag]
        self.review.tag(remaining if pressed else [*remaining, tag], side=place, id=id)

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
        case = self.review.case
        votes = case.votes if case else {}
        self._drawn_id = case.item.id if case else None
        self._draw_progress(case)
        self.page = "No item passes the filters."
        if case:
            self.page = case_html(case, self._size.value)
        self._draw_votes(votes)
        note = votes.get("note", "")
        if not message and not self._answered:  # else the page's script keeps the field
            self._note.value = self._set_note = note
        self._case.value = framed(self._state(note, bool(message)) + str(self.page))
        status = TEMPLATES.words(votes) if case else ""
        self._status.value = f"Your vote: {status}" if case else "Clear a filter to go on."
        if message:
            self._status.value = f'<span class="vj-error" role="alert">{escape(message)}</span>'

    def _draw_progress(self, case: ReviewCase | None) -> None:
        """Where one is, how many items have a vote, and how long the rest takes."""
        review = self.review
        pace = review.pace(review.annotator)
        position = f"item {case.number + 1} of {len(review.listed)}, " if case else ""
        voted = f"{pace.voted} of {pace.assigned} voted by {review.annotator}"
        text = f"{position}{voted}{', blind' if review.blind else ''}"
        if pace.minutes_left > 0:
            text += f", about {max(1, round(pace.minutes_left))} min left"
        self.text = f"Review by {review.annotator}: {text}"
        bar = f'<progress max="{pace.assigned}" value="{pace.voted}"></progress>'
        self._progress.value = f"{bar} <span>{escape(text)}</span>"

    def _draw_votes(self, votes: Mapping[str, Any]) -> None:
        """Mark the buttons of the votes that stand."""
        standing = {f"score {votes.get('score')}", votes.get("better")}
        for side, names in votes.get("tags", {}).items():
            standing.update(f"{side}: {tag}" for tag in names)
        for name, button in self._buttons.items():
            button.button_style = "primary" if name in standing else ""

    def _state(self, note: str, refused: bool) -> str:
        """What the page's script reads: the item, its note, and the last event answered."""
        item = "" if self._drawn_id is None else self.review.number_of(self._drawn_id)
        done = self._answered.get(self._session, 0)
        mark = " data-refused" if refused else ""
        return (
            f'<div class="vj-state" hidden="" data-item="{item}" data-note="{html.escape(note)}"'
            f' data-session="{html.escape(self._session)}" data-done="{done}"{mark}></div>'
        )


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


def _named(name: str, widget: ipw.DOMWidget) -> Any:
    """A widget with a class for style sheets and tests."""
    widget.add_class(name)
    return widget


def _tool(rows: list[Any]) -> Any:
    return _named("vj-tool", ipw.VBox([ipw.HTML(_STYLE), *rows]))


def _label(text: str) -> Any:
    return _named("vj-label", ipw.HTML(f"<b>{escape(text)}</b>"))
