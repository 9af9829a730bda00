"""A review without widgets: what is listed, voted, hidden and counted."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from reviews import N, items, judged, open_review, rows, runs

from vjudge import data
from vjudge.metrics import correlate
from vjudge.review import ANSWERS, TAGS, Review, ReviewError


def listed(review):
    return [case.item.id for case in review.cases()]


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({"criterion": "odd"}, [1, 3, 5]),
        ({"score": 1}, [0, 4]),
        ({"judge": "first", "score": (2, 4)}, [1, 2, 5]),
        ({"judge": "second", "truth": (1, 2), "score": 5}, [0]),
        ({"judge": "first", "gap": (-2, -1)}, [1]),
        ({"unparsed": True}, [3]),
        ({"text": "ABOUT 5"}, [5]),
        ({"text": ".*"}, []),
        ({"voted": True}, [2]),
        ({"human": 3}, [2]),
    ],
)
def test_a_filter_lists_what_it_names(opened, filters, expected):
    review = opened()
    review.goto("i2")
    review.score(3)
    assert review.filter(**filters) == len(expected)
    assert listed(review) == [f"i{n}" for n in expected]


def test_orders(opened):
    review = opened()
    review.sort("worst")
    assert listed(review) == ["i0", "i4", "i1", "i2", "i3", "i5"], "distances 4, 4, 2, 0, 0; without gold last"
    review.filter(judge="first")
    review.sort("worst")
    assert listed(review)[0] == "i1"
    lists = []
    for seed in (1, 1, 2):
        review.sort("random", seed=seed)
        lists.append(listed(review))
    assert lists[0] == lists[1] != lists[2]


def test_the_current_item_stays_while_the_list_changes(opened):
    review = opened()
    review.goto("i3")
    review.filter(criterion="odd")
    assert review.case.item.id == "i3" and review.case.number == 1
    review.filter(text="nowhere")
    assert review.case is None and review.step() is None
    with pytest.raises(ReviewError, match="no item passes the filters"):
        review.score(3)


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda r: r.score(6), "from 1 to 5"),
        (lambda r: r.score(True), "from 1 to 5"),
        (lambda r: r.better("tie"), "left, right, both good, both bad"),
        (lambda r: r.tag("rude", side="left"), "unknown"),
        (lambda r: r.tag(TAGS[0], side="1"), "side '1' is unknown; use one of left, right"),
        (lambda r: r.filter(judge="third"), "first, second"),
        (lambda r: r.filter(mood="good"), "filter .mood. is unknown"),
        (lambda r: r.filter(gap=(2, 1)), "wrong way round"),
        (lambda r: r.next_best(judge=None), "use one of first, second"),
    ],
)
def test_what_can_not_be_meant_is_refused_and_not_written(opened, act, message):
    review = opened()
    with pytest.raises(ValueError, match=message):
        act(review)
    assert not review.path.exists()


def test_the_tags_of_the_paper_turn_over_and_notes_are_stripped(opened):
    review = opened()
    review.tag(TAGS[2], side="left")
    review.tag(TAGS[0], side="left")
    review.tag(TAGS[0], True, side="right")
    review.tag(TAGS[2], side="left")
    review.note("  looks twice ")
    assert review.case.votes == {"tags": {"left": [TAGS[0]], "right": [TAGS[0]]}, "note": "looks twice"}
    review.note("")
    review.tag(TAGS[0], False, side="left")
    review.tag(TAGS[0], False, side="right")
    assert review.case.votes == {} and not review.voted.any()
    assert {"too critical", "too optimistic"} <= set(TAGS), "arXiv 2401.06591"


def test_blind_hides_names_scores_and_others_until_the_vote(opened):
    review, other = opened(blind=True), opened("bob", blind=True)
    other.score(1)
    review.refresh()
    case = review.case
    assert not case.revealed and case.others == {}
    assert all(side.judge is None and set(side.verdict) <= {"feedback", "failure"} for side in case.sides)
    review.score(3)
    assert not review.case.revealed, "two judges: the vote about them decides"
    review.better("left")
    case = review.case
    assert case.revealed and case.others == {"bob": {"score": 1}}
    assert {side.judge: side.verdict["score"] for side in case.sides} == {"first": 1.0, "second": 5.0}
    review.undo()
    assert not review.case.revealed and review.votes()["blind"].all()


TOLD = {
    "So the overall score is 4.": ("So the overall score is [hidden].", 1),
    "All but one, so 4/5. Rating: [[4]]": ("All but one, so [hidden]. Rating: [[[hidden]]]", 2),
    "分数：4": ("分数：[hidden]", 1),
    "fine [RESULT] 3": ("fine [RESULT] [hidden]", 1),
    "three people, 4 of the 5 apples": ("three people, 4 of the 5 apples", 0),
    "": ("", 0),
}


def test_a_feedback_that_tells_its_score_does_not_tell_it_blind(tmp_path):
    run = judged("first").assign(feedback=list(TOLD))
    review = Review(items(), {"first": run}, out=tmp_path, annotator="ann", blind=True)
    sides = [case.sides[0] for case in review.cases()]
    assert [(side.verdict["feedback"], side.hidden) for side in sides] == list(TOLD.values())
    assert sides[3].verdict["failure"] == "[hidden]", "a failure may name the scores that it was about"
    review.score(1)
    assert review.case.sides[0].verdict["feedback"] == "So the overall score is 4."


def test_a_look_or_a_list_that_tells_makes_a_vote_not_blind(opened):
    review = opened(blind=True)
    review.reveal()
    assert review.case.revealed and opened(blind=True).case.revealed
    review.better("right")
    review.filter(judge="first", score=4)
    review.score(1)
    review.filter(criterion="odd")
    review.goto("i3")
    review.score(1)
    votes = review.votes()
    assert list(votes["blind"]) == [False, False, True]
    assert [json.loads(text or "{}") for text in votes["selection"]] == [
        {}, {"judge": "first", "score": 4}, {"criterion": "odd"}
    ]  # fmt: skip


def test_sides_swap_by_seed_and_the_file_holds_the_judge(tmp_path):
    many = [{**row, "id": f"m{n}-{row['id']}"} for n in range(20) for row in rows()]
    ids = [row["id"] for row in many]
    run = {name: pd.DataFrame({"id": ids, "score": 3.0, "feedback": "same"}) for name in ("first", "second")}

    def lefts(seed, annotator="ann"):
        review = Review(many, run, out=tmp_path, annotator=annotator, blind=True, seed=seed)
        return [review.sides(id)["left"] for id in ids]

    assert lefts(0) == lefts(0, "bob") != lefts(1)
    assert 40 < lefts(0).count("first") < 80
    review = Review(many, run, out=tmp_path, annotator="ann", blind=True, seed=0)
    review.goto(ids[lefts(0).index("second")])
    review.better("left")
    assert list(review.votes("better")["value"]) == ["second"]
    plain = Review(many, run, out=tmp_path, annotator="ann")
    assert plain.goto(review.case.item.id).votes == {"better": "right"}, "the same judge, now on the other side"


def test_runs_and_rows_that_do_not_fit_are_refused(tmp_path):
    for run, message in (
        (judged("first").assign(id=[f"i{n}" for n in range(1, 7)]), "first: item 'i6' is not in the collection"),
        (pd.concat([judged("first")] * 2), "first: item 'i0' has several verdicts"),
    ):
        with pytest.raises(ValueError, match=message):
            Review(items(), {"first": run}, out=tmp_path, annotator="ann")
    with pytest.raises(ValueError, match="name of an answer"):
        Review(items(), {"both good": judged("first")}, out=tmp_path, annotator="ann")
    pair = {"id": "p", "instruction": "?", "response_a": "a", "response_b": "b", "images": []}
    with pytest.raises(ValueError, match="these rows are pairs"):
        Review([pair], {"first": judged("first")}, out=tmp_path, annotator="ann")
    with pytest.raises(ValueError, match="'i0' stands twice"):
        Review([*rows(), rows()[0]], runs(), out=tmp_path, annotator="ann")


def test_a_judge_that_skipped_an_item_is_shown_as_such(tmp_path):
    review = Review(items(), runs() | {"first": judged("first").iloc[1:]}, out=tmp_path, annotator="ann")
    assert review.case.sides[0].verdict is None and review.filter(judge="first") == N - 1
    assert review.filter(unparsed=True) == 1, "not graded is not unparsed"
    review.filter()
    review.goto("i0")
    with pytest.raises(ValueError, match="both graded"):
        review.better("left")


def test_people_stand_for_gold_where_there_is_none(tmp_path):
    people = [row | {"gold": None, "human_scores": [n % 4 + 1.0, 3.0], "lowest": 0} for n, row in enumerate(rows())]
    review = Review(people, runs(), out=tmp_path, annotator="ann")
    assert review.truth.name == "mean of people" and review.truth.tolist() == [2, 2.5, 3, 3.5, 2, 2.5]
    assert list(review.levels) == ["0", "1", "2", "3", "4", "5"] and review.filter(truth=3) == 3, "2.5 counts with 3"
    nobody = Review([row | {"gold": None} for row in rows()], runs(), out=tmp_path / "2", annotator="ann")
    nobody.sort("worst")
    assert listed(nobody) == [f"i{n}" for n in range(N)]
    words = nobody.confusion("first").attrs["words"]
    assert words == "Rows: no truth. Columns: first. Items: 0; without a truth yet: 6."


def test_the_confusion_counts_every_graded_item_with_a_truth(opened):
    review, bob = opened(), opened("bob")
    table = review.confusion("first")
    assert table.columns.tolist() == ["1", "2", "3", "4", "5", "none"] and table.index.tolist() == list("12345")
    assert {cell: n for cell, n in table.stack().items() if n} == {
        ("1", "1"): 1, ("2", "4"): 1, ("3", "3"): 1, ("4", "none"): 1, ("5", "5"): 1
    }  # fmt: skip
    assert table.attrs["words"] == "Rows: gold. Columns: first. Items: 5; without a truth yet: 1."
    review.score(2)
    bob.score(3)
    voted = review.confusion("first", by="human")
    assert voted.loc["3", "1"] == 1 and voted.to_numpy().sum() == 1, "2.5 counts with 3"
    assert "Items: 1; between two levels, counted with the nearest (halves up): 1; " in voted.attrs["words"]


ANSWER = st.sampled_from(ANSWERS) | st.none()


class Voting(RuleBasedStateMachine):
    """Any sequence of votes and undoings equals a plain model, in this kernel and in a fresh one."""

    @initialize()
    def start(self):
        self.folder = tempfile.TemporaryDirectory()
        self.model, self.past = {}, []
        self.restart()

    @rule()
    def restart(self):
        self.review = open_review(Path(self.folder.name), blind=True)

    @rule(id=st.integers(0, N - 1))
    def go(self, id):
        self.review.goto(f"i{id}")

    @rule(vote=st.tuples(st.just("score"), st.integers(1, 5) | st.none()) | st.tuples(st.just("better"), ANSWER))
    def cast(self, vote):
        name, value = vote
        key = (self.review.case.item.id, name)
        self.past.append((key, self.model.get(key)))
        self.model[key] = value
        getattr(self.review, name)(value)

    @rule()
    def undo(self):
        if self.past:
            key, before = self.past.pop()
            self.model[key] = before
            assert self.review.undo().item.id == key[0]

    @invariant()
    def equals_the_model(self):
        current = self.review.case.item.id
        for id in {id for id, _ in self.model}:
            expected = {name: value for (where, name), value in self.model.items() if where == id and value is not None}
            assert self.review.goto(id).votes == expected
            assert self.review.case.revealed == ("better" in expected)
        self.review.goto(current)

    def teardown(self):
        if hasattr(self, "folder"):
            self.folder.cleanup()


TestVoting = Voting.TestCase
TestVoting.settings = settings(max_examples=15, stateful_step_count=25, deadline=None)


def test_labels_that_next_best_chose_carry_their_weights(tmp_path):
    """Chosen labels are a stratified sample: after a restart, too, plain statistics of them are refused."""
    rng = np.random.default_rng(0)
    score = np.clip(np.rint(3 + rng.normal(size=40)), 1, 5)
    ids = [f"m{number}" for number in range(40)]
    template = {"images": [], "instruction": "?", "response": "x", "criteria": "c", "descriptions": list("abcde")}
    many = data.canonical([{"id": id, **template} for id in ids])
    run = pd.DataFrame({"id": ids, "judge": "first", "score": score, "failure": None, "feedback": "f"})
    review = Review(many, run, out=tmp_path, annotator="ann")
    for choose in (lambda: ids[:3], lambda: review.next_best(20)["id"]):
        for id in choose():
            review.goto(id)
            review.score(int(rng.integers(1, 6)))
    again = Review(many, run, out=tmp_path, annotator="bob")
    human, judged_scores = again.human_scores().mean(axis=1), again.judge_scores["first"]
    with pytest.raises(ValueError, match="next_best, by the score of first, chose.*weights=review.weights"):
        correlate(judged_scores, human, n_resamples=0)
    table = correlate(judged_scores, human, weights=again.weights())
    assert table["n"].eq(human.notna().sum()).all() and again.weights().sum() == pytest.approx(40)
    again.next_best(3)
    before = again.path.read_text()
    again.next_best(3)
    assert again.annotators == ["ann"], "to ask for a list is not to vote"
    assert again.path.read_text() == before, "a list that was named before is not repeated"
