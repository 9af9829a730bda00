"""The review as a notebook tool, and a confusion matrix whose cells open it; ipywidgets 7.7 and 8.

Every press calls one method of `vjudge.review.Review` on the item that the page showed. The page's
script (assets/reviewer.js) sends the press, that item and the note in one message. It also takes
keys, and keeps them from JupyterLab, where "d", "d" deletes a cell. Where the script can't run,
buttons work as in any widget. No button is ever disabled, so that a pressed button keeps the focus.
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

Action = Callable[[str | None, bool | None], object]
"""What a button does to an item.

The arguments are the id of the item that the page showed, None where it showed none; and whether
the button showed as pressed, None where only the review knows.
"""

MAX_BUTTONS = 11  # a scale of more scores has a field to type in, in place of a button per score
LABELS = {  # filter -> its label
    "judge": "Judge",
    "score": "Judge's score",
    "truth": "True score",
    "disagreement": "Disagreement",
    "criterion": "Criterion",
    "voted": "My vote",
    "order": "Order",
}
VALUE_LABELS = {  # (filter, value) -> the label of the value; others are labelled as they are
    ("score", NO_SCORE): "no verdict",
    ("disagreement", "large"): "large disagreement",
    ("voted", False): "not yet",
    ("voted", True): "given",
    ("order", "file"): "as in the file",
    ("order", "worst"): "largest disagreement first",
}
_SCRIPT = html.escape((ASSETS / "reviewer.js").read_text("utf-8"))
# `ipw.HTML` runs no script element, but the error handler of an image that can't be loaded
_STYLE = (ASSETS / "reviewer.html").read_text("utf-8") + (
    f"<img src='data:,' alt='' style='display:none' onerror=\"({_SCRIPT})(this)\">"
)


class _View:
    """A widget with a copy as HTML and as text, for a page without a kernel."""

    widget: ipw.DOMWidget
    text: str  # one line
    page: str  # HTML, which stands below that line

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, Any]:
        """Return the view by MIME type; Jupyter passes `include` and `exclude`, unused here."""
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


class Reviewer(_View):
    """A review to look at and vote in; display it as the last line of a cell.

    It works on a copy of the review, so that filters and steps elsewhere move nothing here. Votes
    cast elsewhere are shown after the next action. Where widgets can't run, the current item is
    shown as a plain page.

    Keys, once the tool was clicked: a digit gives that score, and a score of more digits or below 0
    has no key; l, r, g and b say which feedback is better (left, right, both good, both bad); the
    arrows move; u undoes; n goes to the note, and Escape leaves it.

    Args:
        review: the review, which says who votes.
        image_size: the pixels of an image's longer side at the start.
        advance: whether to go on to the next item once an item has its score and its answer.
        filters: the filters of `Review.filter`.
    """

    def __init__(
        self, review: Review, *, image_size: int = 420, advance: bool = False, **filters: Any
    ) -> None:
        self.review = copy(review)
        self.advance = advance
        self._busy = False  # whether an action is under way
        self._buttons: dict[str, ipw.Button] = {}  # by name: "next", "score 4", "left: too vague"
        self._actions: dict[str, Action] = {}  # by name with hyphens for spaces
        self._loaded_note = ""  # the note that was last put into the field
        self._last_events: dict[str, int] = {}  # session of a page -> number of its last event
        self._session = ""  # the session of the last event
        self._case = ipw.HTML()
        self._status = ipw.HTML()
        self._progress = _with_class("vj-progress", ipw.HTML())
        self._score = _with_class("vj-score-field", ipw.IntText())
        note = ipw.Textarea(placeholder="kept when you go on", continuous_update=False)
        self._note = _with_class("vj-note-field", note)
        self._channel = _with_class("vj-channel", ipw.Text())
        self._channel.observe(lambda change: self._receive(change["new"]), names="value")
        self._size = ipw.IntSlider(
            value=image_size,
            min=120,
            max=1600,
            step=20,
            description="Image size",
            continuous_update=False,
        )
        self._size.observe(lambda change: self._perform(lambda: None), names="value")  # redraws
        self._filters = self._filter_controls()
        self.widget = self._layout()
        if filters:
            self.filter(**filters)
        self._draw()

    def filter(self, **filters: Any) -> None:
        """List the items that pass the filters of `Review.filter`, and set the controls to them."""

        def set_controls() -> None:
            # Each change calls `_perform`, which does nothing while this action is under way
            for name, control in self._filters.items():
                control.value = filters.get(name, "")
            self._list()

        self._perform(set_controls)

    # --- Parts of the tool

    def _filter_controls(self) -> dict[str, ipw.Dropdown]:
        """Make a dropdown for each filter."""
        controls = {}
        for name, values in self.review.filters.items():
            options = [("any", "")]
            for value in values:
                label = VALUE_LABELS.get((name, value), str(value)[:60])
                options.append((label, value))
            control = ipw.Dropdown(
                options=options,
                description=LABELS[name],
                style={"description_width": "8em"},
            )
            control.observe(lambda change: self._perform(self._list), names="value")
            controls[name] = control
        return controls

    def _layout(self) -> ipw.DOMWidget:
        """Stack the tool's rows, from the filters to the note."""
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
        rows = [moves, [self._case], [self._status], self._vote_row(), self._tag_boxes(), note]
        return _with_class("vj-reviewer", _tool([filters, *map(ipw.HBox, rows)]))

    def _vote_row(self) -> list[ipw.DOMWidget]:
        """Make the buttons of scores (or a field, on a long scale) and of the better feedback."""
        row = [_label("Your score")]
        lowest, highest = self.review.scale or (1, 5)
        if highest - lowest < MAX_BUTTONS:
            for score in range(lowest, highest + 1):
                cast = partial(self._cast, "score", score)
                # A key types one digit: -1 and 10 have no key
                key = str(score) if 0 <= score <= 9 else ""
                row.append(self._button(f"score {score}", str(score), cast, key))
        else:
            row += [self._score, self._button("score", "Give score", self._cast_typed_score)]
        if len(self.review.judges) == 2:
            row.append(_label("Better feedback"))
            for answer, key in zip(ANSWERS, "lrgb", strict=True):
                cast = partial(self._cast, "better", answer)
                row.append(self._button(answer, answer.capitalize(), cast, key))
        return row

    def _tag_boxes(self) -> list[ipw.DOMWidget]:
        """Make a row of error tags for each side's feedback."""
        boxes = []
        for side in self.review.sides(""):
            row = []
            for tag in self.review.offered_tags:
                row.append(
                    self._button(f"{side}: {tag}", tag, partial(self._toggle_tag, tag, side))
                )
            label = _label(f"Errors in feedback {side}")
            boxes.append(_with_class("vj-tags", ipw.VBox([label, ipw.HBox(row)])))
        return boxes

    def _button(self, name: str, text: str, action: Action, key: str = "") -> ipw.DOMWidget:
        """Make a button for an action, and register both under a name.

        Classes tell the page's script what it is: `vj-do-NAME` its name, `vj-key-KEY` its key, and
        `vj-vote` that it is either pressed or not.
        """
        button = ipw.Button(description=text, tooltip=f"key {key}" if key else text)
        button.on_click(lambda pressed: self._on_click(action))
        self._buttons[name] = button
        slug = name.replace(" ", "-")
        self._actions[slug] = action
        if key:
            button.add_class(f"vj-key-{key}")
        if name not in ("previous", "next", "undo", "note", "score"):
            button.add_class("vj-vote")
        return _with_class(f"vj-do-{slug}", button)

    # --- Actions

    def _on_click(self, action: Action) -> None:
        """Act on the item drawn last; only a page without the script calls this."""
        note = self._note.value
        edited_note = None if note == self._loaded_note else note
        self._perform(partial(action, self._drawn_id, None), self._drawn_id, edited_note)

    def _receive(self, message: str) -> None:
        """Act on the new events of a page, each on the item that the page showed.

        A message is JSON: the session of the page, and a queue of all events that it has not seen
        answered, so that an event may come twice. An event has number, action, item (the position
        in the collection), pressed, and where they were changed note and value (the typed score). A
        message in another form is ignored.
        """
        try:
            content = json.loads(message)
            session = str(content["session"])
            events = {int(event["number"]): dict(event) for event in content["queue"]}
        except (ValueError, TypeError, KeyError):
            return
        for number, event in events.items():
            action = self._actions.get(str(event.get("action")))
            # The numbers of a session's events rise: this one was handled before, or has no action
            if number <= self._last_events.get(session, 0) or action is None:
                continue
            self._last_events[session] = number
            self._session = session
            if str(event.get("value", "")).lstrip("-").isdigit():
                self._score.value = int(event["value"])
            item = str(event.get("item", ""))
            id = self.review.id_at(item)
            if item and id is None:
                self._draw(f"item number {item} is not under review: nothing was voted")
                continue
            is_pressed = event.get("pressed") is True
            self._perform(partial(action, id, is_pressed), id, event.get("note"))

    def _perform(
        self, action: Callable[[], object], id: str | None = None, edited_note: str | None = None
    ) -> None:
        """Save an edited note, run an action, and redraw; an error goes to the status line.

        While an action is under way, another is ignored: it comes from a control that the first
        one changed.

        Args:
            action: the action, without arguments.
            id: the item that the page showed.
            edited_note: the text of the note on that item; None where it was not edited.
        """
        if self._busy:
            return
        self._busy = True
        self.widget.add_class("vj-busy")
        message = ""
        try:
            self.review.refresh()
            if edited_note is not None and id is not None:
                self.review.note(edited_note, id=id)
            action()
        except (ReviewError, ValueError, OSError) as error:
            message = str(error)
        try:
            self._draw(message)
        finally:
            self.widget.remove_class("vj-busy")
            self._busy = False

    # --- What buttons do. Each method is an `Action` once `partial` has bound its first arguments;
    # an action takes id and is_pressed even where it does not use them

    def _step(self, by: int, id: str | None, is_pressed: bool | None) -> None:
        """Move in the list from the item that the page showed."""
        self.review.step(by, id=id)

    def _cast(self, field: str, value: Any, id: str | None, is_pressed: bool | None) -> None:
        """Cast a vote, or withdraw it where its button is pressed.

        With `advance`, the next item follows once this vote completes the one that is drawn.

        Args:
            field: "score" or "better".
            value: the vote.
            id, is_pressed: as for `Action`.

        Raises:
            ReviewError: no item is shown.
        """
        review = self.review
        if id is None:
            raise ReviewError(NOTHING_LISTED)
        was_complete = review.is_complete(id)
        if is_pressed is None:
            is_pressed = review.votes_on(id).get(field) == value
        cast = review.score if field == "score" else review.better
        cast(None if is_pressed else value, id=id)
        is_completed = not was_complete and review.is_complete(id)
        if self.advance and is_completed and id == self._drawn_id:
            review.step(id=id)

    def _cast_typed_score(self, id: str | None, is_pressed: bool | None) -> None:
        """Cast the score in the field; typing the same score again does not withdraw it."""
        self._cast("score", self._score.value, id, False)  # as if its button were not pressed

    def _toggle_tag(self, tag: str, side: str, id: str | None, is_pressed: bool | None) -> None:
        """Give an error tag to a side's feedback, or withdraw it where its button is pressed."""
        if id is None:
            raise ReviewError(NOTHING_LISTED)
        tags = self.review.votes_on(id).get("tags", {}).get(side, [])
        if is_pressed is None:
            is_pressed = tag in tags
        new_tags = [name for name in tags if name != tag]
        if not is_pressed:
            new_tags.append(tag)
        self.review.tag(new_tags, side=side, id=id)

    def _list(self) -> None:
        """List the items that pass the filters in the controls."""
        chosen = {}
        for name, control in self._filters.items():
            if control.value != "":
                chosen[name] = control.value
        self.review.filter(**chosen)

    # --- What is shown

    def _draw(self, error: str = "") -> None:
        """Show the current item, its votes and an error message, if any."""
        case = self.review.case
        self._drawn_id = case.item.id if case else None
        self._draw_progress(case)
        votes: Mapping[str, Any] = {}
        status = "Clear a filter to go on."
        self.page = "No item passes the filters."
        if case:
            votes = case.votes
            status = f"Your vote: {TEMPLATES.words(votes)}"
            self.page = case_html(case, self._size.value)
        if error:
            status = f'<span class="vj-error" role="alert">{escape(error)}</span>'
        self._status.value = status
        self._mark_buttons(votes)
        note = votes.get("note", "")
        # After an error a typed note stays in the field; where the page's script runs, it fills it
        if not error and not self._last_events:
            self._note.value = self._loaded_note = note
        self._case.value = framed(self._page_state(note, bool(error)) + str(self.page))

    def _draw_progress(self, case: ReviewCase | None) -> None:
        """Show the position in the list, the number of items voted on, and the minutes left."""
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

    def _mark_buttons(self, votes: Mapping[str, Any]) -> None:
        """Show the buttons of the current votes as pressed."""
        # Names of buttons; without a vote "score None" and None, which no button has
        pressed = {f"score {votes.get('score')}", votes.get("better")}
        for side, tags in votes.get("tags", {}).items():
            pressed.update(f"{side}: {tag}" for tag in tags)
        for name, button in self._buttons.items():
            button.button_style = "primary" if name in pressed else ""

    def _page_state(self, note: str, is_refused: bool) -> str:
        """Make the element that the page's script reads.

        It has the position of the item in the collection, its note, the session and number of the
        last event, and whether that event was refused.
        """
        item = "" if self._drawn_id is None else self.review.number_of(self._drawn_id)
        done = self._last_events.get(self._session, 0)
        refused = " data-refused" if is_refused else ""
        return (
            f'<div class="vj-state" hidden="" data-item="{item}" data-note="{html.escape(note)}"'
            f' data-session="{html.escape(self._session)}" data-done="{done}"{refused}></div>'
        )


class Matrix(_View):
    """Counts of a judge's scores at each level of the truth; a click opens the items of a count.

    The list of a count is made by score and truth, so that votes on it do not count as blind.

    Args:
        review: the review.
        judge: the judge's name.

    Raises:
        ValueError: the judge is unknown, or no item has a truth.
    """

    def __init__(self, review: Review, *, judge: str) -> None:
        if review.truth.isna().all():
            raise ValueError("no item has a true score: export the votes, and review those items")
        self.judge = judge
        self.reviewer = Reviewer(review)
        self.reviewer.widget.layout.display = "none"
        self.table = review.confusion(judge)
        self.text = self.table.attrs["caption"]
        self.page = self.table.to_html(border=0)
        columns = self.table.columns
        grid = [ipw.HTML(), *map(_label, columns)]  # row by row, from the row of labels
        for row in self.table.index:
            grid.append(_label(row))
            for column in columns:
                grid.append(self._cell(row, column))
        width = f"max-content repeat({len(columns)}, minmax(2.6em, 5em))"
        cells = ipw.GridBox(grid, layout=ipw.Layout(grid_template_columns=width))
        head = ipw.HTML(escape(self.text))
        self.widget = _tool([head, _with_class("vj-matrix", cells), self.reviewer.widget])

    def _cell(self, truth: str, score: str) -> ipw.DOMWidget:
        """Make the button of one count; the larger the count, the bluer the button."""
        count = int(self.table.loc[truth, score])
        button = ipw.Button(description=str(count), disabled=count == 0)
        shade = count / max(1, self.table.to_numpy().max())  # 0 to 1, as a share of the largest
        button.style.button_color = f"rgba(0,114,178,{0.6 * shade:.2f})"
        button.on_click(lambda pressed: self._open(truth, score))
        return _with_class("vj-same" if truth == score else "vj-other", button)

    def _open(self, truth: str, score: str) -> None:
        """List the items of a count in the tool below."""
        self.reviewer.widget.layout.display = ""
        self.reviewer.filter(judge=self.judge, truth=truth, score=score)


def _with_class(name: str, widget: ipw.DOMWidget) -> ipw.DOMWidget:
    """Add a class to a widget, for style sheets, the page's script and tests."""
    widget.add_class(name)
    return widget


def _tool(rows: list[ipw.DOMWidget]) -> ipw.DOMWidget:
    """Stack rows as one widget, with the style sheet and the script above them."""
    return _with_class("vj-tool", ipw.VBox([ipw.HTML(_STYLE), *rows]))


def _label(text: str) -> ipw.DOMWidget:
    """Make a bold label; the text is escaped."""
    return _with_class("vj-label", ipw.HTML(f"<b>{escape(text)}</b>"))
