"""Reviewing judges' feedback as a plain state machine: filter, order, vote, undo, resume. No widgets.

Every vote is on the disk before the call that cast it returns; several annotators, and several kernels of one, may
write one file. What the view shows is always what the file says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from vjudge import data
from vjudge.metrics import label_weights, next_labels
from vjudge.review.cases import ORDERS, Case, Cases, Progress, Selection
from vjudge.review.journal import Event, Journal, ReviewError
from vjudge.review.votes import ANSWERS, NOTE_LIMIT, TAGS, Votes, header, new_event, placed
from vjudge.runs import shortened


class Review:
    """Votes of one annotator on judged items.

    Args:
        items: a collection with the canonical columns.
        runs: the judges' verdicts: name -> table of `Judge.grade`, or one such table, whose `judge` column names
            them. One verdict an item and judge; items that a run lacks are shown as not graded.
        out: the file of votes (JSON lines), made by the first vote and continued ever after.
        annotator: who votes.
        blind: hide judges' names, their scores, the true score and others' votes until the item has its vote, and
            swap sides. In a feedback that tells its score ("the overall score is 4") `[hidden]` stands for the number.
        seed: of the sides in blind mode; the same for every annotator.
        tags: the error tags offered.
        scale: lowest and highest score for items without a rubric.

    `path` (the file), `judges` and `criteria` (the most frequent first), `annotator`, `blind` and `tags` can be read.

    Raises:
        ReviewError: the file is of another collection or of other judges.
        ValueError: a run has several verdicts for an item, or items that the collection lacks; they are named.
    """

    def __init__(
        self,
        items: Any,
        runs: pd.DataFrame | Mapping[str, pd.DataFrame],
        *,
        out: str | Path,
        annotator: str,
        blind: bool = False,
        seed: int = 0,
        tags: Sequence[str] = TAGS,
        scale: tuple[int, int] | None = None,
    ) -> None:
        if not isinstance(annotator, str) or not annotator.strip():
            raise ValueError("annotator: give a name, so that votes can be told apart")
        self.annotator, self.blind, self.tags = annotator, blind, tuple(tags)
        self._seed, self._own_scale = seed, scale
        self._cases = Cases(items, runs)
        self.path, self.judges, self.criteria = Path(out), self._cases.judges, self._cases.criteria
        self._header = header(data.fingerprint(items), self.judges)
        self._journal, self._votes, self._started = Journal(out), Votes(), False
        self._selection = Selection()
        self._list = np.arange(len(self._cases))
        self._position = 0
        self.refresh()

    @property
    def annotators(self) -> list[str]:
        """Everyone whose votes are in the file."""
        return self._votes.annotators

    @property
    def order(self) -> str:
        """The order of the list: see `sort`."""
        return self._selection.order

    @property
    def judge_scores(self) -> pd.DataFrame:
        """The judges' scores: one row an item (index `id`), one column a judge, NaN for none. Blind views hide them."""
        return self._cases.scores.set_axis(pd.Index(self._cases.texts["id"], name="id"))

    def refresh(self) -> None:
        """Take in what other kernels wrote.

        Raises:
            ReviewError: the file is of another review, or damaged.
        """
        self._take(self._journal.read())

    # What is shown

    @property
    def case(self) -> Case | None:
        """The current item, None where no item passes the filters."""
        return self._case(self._position) if len(self._list) else None

    def cases(self) -> Iterator[Case]:
        """The listed items one after another; the current one stays."""
        return (self._case(number) for number in range(len(self._list)))

    def revealed(self, id: str) -> bool:
        """Whether an item's names and scores are open to this annotator: not blind, voted, or looked up."""
        if not self.blind or (self.annotator, id) in self._votes.revealed:
            return True
        decisive = "better" if len(self.judges) == 2 else "score"
        return self._votes.last(self.annotator, id, decisive) is not None

    def sides(self, id: str) -> dict[str, str]:
        """Place -> judge: which feedback stands where. Blind views hide it."""
        return self._cases.sides(id, seed=self._seed if self.blind else None)

    @property
    def progress(self) -> Progress:
        """How far this annotator is."""
        voted = self._voted()
        return Progress(int(voted[self._list].sum()), len(self._list), int(voted.sum()), len(self._cases))

    def next(self) -> Case | None:
        """Go to the next item of the list; at its end, stay."""
        self._position = min(self._position + 1, max(len(self._list) - 1, 0))
        return self.case

    def previous(self) -> Case | None:
        """Go to the item before; at the start, stay."""
        self._position = max(self._position - 1, 0)
        return self.case

    def next_unvoted(self) -> Case | None:
        """Go to the next item of the list without a vote, round its end if need be; stay where there is none."""
        waiting = np.flatnonzero(~self._voted()[self._list])
        if len(waiting):
            after = waiting[waiting > self._position]
            self._position = int(after[0] if len(after) else waiting[0])
        return self.case

    def goto(self, id: str) -> Case | None:
        """Go to an item of the list.

        Raises:
            ValueError: the item is not in the list.
        """
        if not self._show(self._cases.place.get(id, -1)):
            raise ValueError(f"item {id!r} is not in the list; clear the filters with filter()")
        return self.case

    def filter(
        self,
        *,
        judge: str | None = None,
        score: float | None = None,
        gap: tuple[float, float] | None = None,
        criterion: str | None = None,
        unparsed: bool | None = None,
        voted: bool | None = None,
        text: str | None = None,
    ) -> int:
        """Choose what is listed; what is left out does not restrict.

        Args:
            judge: whose score the next three look at; any judge's where None.
            score: the judge's score.
            gap: bounds of gold minus score, both included.
            criterion: the item's criterion, whole.
            unparsed: verdicts without a score, or with one.
            voted: items with a vote of this annotator, or without. The list is made now: voting does not change it.
            text: a part of the instruction, response, reference answer or a feedback, in any case of letters.

        Returns:
            How many items are listed. The current item stays current where it is among them. A vote carries the
            selection it was made on: a list made by scores tells something about them, also in blind mode.

        Raises:
            ValueError: an unknown judge or criterion, or bounds the wrong way round.
        """
        given = {"judge": judge, "score": score, "gap": gap, "criterion": criterion, "unparsed": unparsed}
        given |= {"voted": voted, "text": text}
        self._cases.check(judge, criterion, gap)
        self._selection.filters = {name: value for name, value in given.items() if value is not None}
        self._relist()
        return len(self._list)

    def sort(self, order: str = "file", *, seed: int = 0) -> None:
        """Choose the order of the list, and go to its start.

        Args:
            order: "file"; "worst", the largest distance of a score from gold first (of any judge, or of the filter's);
                or "random".
            seed: of "random".
        """
        if order not in ORDERS:
            raise ValueError(f"order {order!r} is unknown; use one of {', '.join(ORDERS)}")
        self._selection.order, self._selection.seed = order, seed
        self._relist()
        self._position = 0

    # What is voted

    def score(self, value: float | None) -> None:
        """Give the current item's response a score of one's own; None withdraws it.

        Raises:
            ValueError: the score is not on the rubric's scale.
        """
        case = self._current()
        if case.scale is None:
            raise ValueError(f"item {case.item.id!r} has no rubric: open the review with scale=, such as (0, 100)")
        lowest, highest = case.scale
        if value is not None and (isinstance(value, bool) or value not in range(lowest, highest + 1)):
            raise ValueError(f"score {value!r} is not a whole number from {lowest} to {highest}")
        self._vote("score", None if value is None else int(value))

    def better(self, answer: str | None) -> None:
        """Say which of two feedbacks is better: "left", "right", "both good" or "both bad"; None withdraws it.

        Raises:
            ValueError: another answer, or not exactly two judges with a feedback on this item.
        """
        if answer is not None and answer not in ANSWERS:
            raise ValueError(f"answer {answer!r} is unknown; use one of {', '.join(ANSWERS)}")
        case = self._current()
        if len(case.sides) != 2 or any(side.verdict is None for side in case.sides):
            raise ValueError("which feedback is better can be asked only of two judges that both graded the item")
        sides = self.sides(case.item.id)
        self._vote("better", answer, left=sides["left"], right=sides["right"])

    def tag(self, name: str, on: bool | None = None, *, side: str | None = None) -> None:
        """Set an error tag on a feedback of the current item, take it off, or turn it over where `on` is None.

        Args:
            name: one of the review's tags.
            side: the place of the feedback, such as "left"; not needed where one judge is reviewed.

        Raises:
            ValueError: an unknown tag or side.
        """
        if name not in self.tags:
            raise ValueError(f"tag {name!r} is unknown; use one of {', '.join(self.tags)}, or open with tags=")
        id = self._current().item.id
        sides = self.sides(id)
        side = next(iter(sides)) if side is None and len(sides) == 1 else side
        if side not in sides:
            raise ValueError(f"side {side!r} is unknown: say whose feedback is meant, one of {', '.join(sides)}")
        vote = self._votes.last(self.annotator, id, "tags")
        tagged = dict(vote["value"]) if vote else {}
        held = tagged.pop(sides[side], [])
        wanted = name not in held if on is None else on
        if wanted != (name in held):
            kept = [tag for tag in self.tags if (wanted if tag == name else tag in held)]
            self._vote("tags", {**tagged, **({sides[side]: kept} if kept else {})} or None)

    def note(self, text: str | None) -> None:
        """Keep a free note on the current item; blank withdraws it.

        Raises:
            ValueError: more than `NOTE_LIMIT` characters.
        """
        text = (text or "").strip() or None
        if text and len(text) > NOTE_LIMIT:
            raise ValueError(f"the note has {len(text)} characters; at most {NOTE_LIMIT} are kept")
        if text != self._current().votes.get("note"):
            self._vote("note", text)

    def reveal(self) -> None:
        """Show names and scores of the current item before voting; the file records it, and the vote is not blind."""
        case = self._current()
        if not case.revealed:
            self._write(lambda: new_event(self.annotator, id=case.item.id, field="reveal", value=True))

    def undo(self) -> Case | None:
        """Take back this annotator's last vote, and go to its item; nothing where there is none.

        Raises:
            ReviewError: there is nothing to undo.
        """
        return self._turn("undo", self._votes.done)

    def redo(self) -> Case | None:
        """Cast the vote again that was taken back last.

        Raises:
            ReviewError: there is nothing to redo.
        """
        return self._turn("redo", self._votes.undone)

    def votes(self) -> pd.DataFrame:
        """Everyone's votes, one a row: see `vjudge.review.votes.Votes.table`."""
        self.refresh()
        return self._votes.table()

    def human_scores(self) -> pd.DataFrame:
        """Everyone's scores: one row an item of the collection (index `id`), one column an annotator, NaN for none.

        Where some items were scored because `next_best` named them, `attrs["labelled_by"]` says so, and the statistics
        of `vjudge.metrics` refuse what they would get wrong: `correlate` takes `weights=review.weights()`.
        """
        votes = self.votes()
        scored = votes[votes["field"] == "score"].astype({"value": float})
        wide = scored.pivot(index="id", columns="annotator", values="value")
        table = wide.reindex(index=pd.Index(self._cases.texts["id"], name="id"), columns=self.annotators)
        if judges := sorted({self._votes.chosen[id] for id in scored["id"] if id in self._votes.chosen}):
            table.attrs["labelled_by"] = f"next_best, by the score of {' and of '.join(judges)},"
            table.attrs["labelled_by_judges"] = judges
        return table

    def weights(self) -> pd.Series | None:
        """How many items each scored item stands for, where `next_best` chose some of them.

        Returns:
            One weight an item of the collection (index `id`), NaN where nobody scored it: for `correlate(weights=)`.
            None where `next_best` chose none of the scored items, which then count alike.

        Raises:
            ValueError: items were chosen by the scores of two judges, so that no one set of weights holds.

        Source: see `vjudge.metrics.label_weights`.
        """
        human = self.human_scores()
        judges = human.attrs.get("labelled_by_judges", [])
        if len(judges) > 1:
            raise ValueError(f"items were chosen by the scores of {' and of '.join(judges)}: choose by one judge alone")
        return label_weights(self._cases.scores[judges[0]].to_numpy(), human.mean(axis=1)) if judges else None

    def next_best(self, n: int = 10, *, judge: str | None = None, seed: int = 0) -> pd.DataFrame:
        """Which items to label next so that the interval of the judge-human correlation shrinks fastest.

        Args:
            n: how many.
            judge: of whose score; not needed where one judge is reviewed.
            seed: of the choice among items of one score.

        Returns:
            One row an item, the most useful first: `id`, `stratum`, `judge` (its score), `gain`. `goto` goes there. An
            item counts as labelled when anybody scored it; its label is the mean of their scores. The file records
            what was named, so that whoever reads the scores later knows: see `weights`.

        Raises:
            ValueError: the judge is unknown, or not named among several.

        `vjudge.metrics.next_labels` says how.
        """
        judge = self.judges[0] if judge is None and len(self.judges) == 1 else judge
        if judge not in self.judges:
            raise ValueError(f"judge {judge!r}: name one of {', '.join(self.judges)}")
        chosen = next_labels(self._cases.scores[judge], self.human_scores().mean(axis=1).to_numpy(), n=n, seed=seed)
        ids = self._cases.texts["id"].iloc[chosen["position"]].tolist()
        if any(self._votes.chosen.get(id) != judge for id in ids):
            self._write(lambda: new_event(self.annotator, field="next_best", id=ids, value=judge))
        return chosen.drop(columns="position").assign(id=ids)[["id", "stratum", "judge", "gain"]]

    # How it works

    def _take(self, events: Sequence[Event]) -> None:
        if events and not self._started:
            if "review" not in events[0]:
                raise ReviewError(f"{self.path} is no review: its first line does not say what is reviewed")
            unlike = [name for name in self._header if events[0].get(name) != self._header[name]]
            if unlike:
                told = "; ".join(f"{name}: {shortened(events[0].get(name))} there" for name in unlike)
                raise ReviewError(f"{self.path} is another review ({told}); use another file")
            self._started = True
        self._votes.add(events)

    def _write(self, make: Callable[[], Event]) -> None:
        def decide(others: list[Event]) -> list[Event]:
            self._take(others)
            return [make()] if self._started else [self._header, make()]

        self._take(self._journal.append(decide))

    def _vote(self, name: str, value: Any, **more: Any) -> None:
        case = self._current()
        selection = self._selection.note()
        content = {"id": case.item.id, "field": name, "value": value, **more, "blind": not case.revealed}
        self._write(lambda: new_event(self.annotator, **content, **({"selection": selection} if selection else {})))

    def _turn(self, kind: str, stacks: Mapping[str, list[Event]]) -> Case | None:
        turned: list[Event] = []

        def make() -> Event:
            stack = stacks.get(self.annotator)
            if not stack:
                raise ReviewError(f"there is nothing to {kind}")
            turned.append(stack[-1])
            return new_event(self.annotator, **{kind: stack[-1]["event"]})

        self._write(make)
        self._show(self._cases.place[turned[0]["id"]])
        return self.case

    def _current(self) -> Case:
        case = self.case
        if case is None:
            raise ReviewError("no item passes the filters: there is nothing to vote on; clear them with filter()")
        return case

    def _case(self, number: int) -> Case:
        index = int(self._list[number])
        id = str(self._cases.texts["id"].iloc[index])
        shown, sides = self.revealed(id), self.sides(id)
        others = [name for name in self.annotators if name != self.annotator] if shown else []
        held = {name: placed(votes, sides) for name in others if (votes := self._votes.of(name, id))}
        item, own = self._cases.item(index), placed(self._votes.of(self.annotator, id), sides)
        scale = (item.rubric.lowest, item.rubric.highest) if item.rubric else self._own_scale
        views = tuple(self._cases.side(id, judge, place, shown=shown) for place, judge in sides.items())
        return Case(index, number, item, scale, views, own, held, shown)

    def _voted(self) -> np.ndarray:
        return self._cases.texts["id"].isin(self._votes.voted(self.annotator)).to_numpy()

    def _show(self, index: int) -> bool:
        """Go to an item of the list; whether it is there."""
        found = np.flatnonzero(self._list == index)
        self._position = int(found[0]) if len(found) else self._position
        return len(found) > 0

    def _relist(self) -> None:
        current = int(self._list[self._position]) if len(self._list) else -1
        chosen = self._selection
        self._list = self._cases.select(chosen.filters, order=chosen.order, seed=chosen.seed, voted=self._voted())
        self._position = 0
        self._show(current)
