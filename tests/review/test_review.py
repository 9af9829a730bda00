"""A review without widgets: what is listed, voted, kept on disk, hidden and counted."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from reviews import N, items, judged, open_review, rows, runs

from vjudge.review import ANSWERS, TAGS, Review, ReviewError


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({"criterion": "odd"}, [1, 3, 5]),
        ({"score": 1}, [0, 4]),
        ({"judge": "first", "score": (2, 4)}, [1, 2, 5]),
        ({"judge": "second", "truth": (1, 2), "score": 5}, [0]),
        ({"judge": "first", "disagreement": "judge too high"}, [1]),
        ({"disagreement": "judge too low"}, [4]),
        ({"judge": "first", "disagreement": "large"}, [1]),
        ({"judge": "first", "disagreement": "none"}, [0, 2, 4]),
        ({"unparsed": False}, [0, 1, 2, 4, 5]),
        ({"unparsed": True}, [3]),
        ({"text": "ABOUT 5"}, [5]),
        ({"text": ".*"}, []),
        ({"voted": True}, [2]),
    ],
)
def test_a_filter_lists_what_it_names(opened, filters, expected):
    review = opened()
    review.goto("i2")
    review.score(3)
    assert review.filter(**filters) == len(expected)
    assert review.listed == [f"i{n}" for n in expected]


def test_orders_and_the_current_item_stays_while_the_list_changes(opened):
    review = opened()
    review.sort("worst")
    assert review.listed == ["i0", "i4", "i1", "i2", "i3", "i5"], (
        "distances 4, 4, 2, 0, 0; without gold last"
    )
    review.filter(judge="first")
    assert review.listed[0] == "i1"
    review.filter()
    lists = []
    for seed in (1, 1, 2):
        review.sort("random", seed=seed)
        lists.append(review.listed)
    assert lists[0] == lists[1] != lists[2]
    review.sort()
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
        (lambda r: r.better("tie"), "left, right, both good, both bad"),
        (lambda r: r.tag("rude", side="left"), "unknown"),
        (lambda r: r.tag(TAGS[0], side="1"), "side '1' is unknown; use one of left, right"),
        (lambda r: r.filter(mood="good"), "filter .mood. is unknown"),
        (lambda r: r.filter(disagreement="some"), "large, judge too high, judge too low, none"),
    ],
)
def test_what_can_not_be_meant_is_refused_and_not_written(opened, act, message):
    review = opened()
    with pytest.raises(ValueError, match=message):
        act(review)
    assert not review.path.exists()


def test_the_tags_of_the_paper_turn_over_and_notes_are_stripped(opened):
    review, name, other = opened(), TAGS[0], TAGS[2]
    for tag, on, side in (
        (other, None, "left"),
        (name, None, "left"),
        (name, True, "right"),
        (other, None, "left"),
    ):
        review.tag(tag, on, side=side)
    review.note("  looks twice ")
    assert review.case.votes == {"tags": {"left": [name], "right": [name]}, "note": "looks twice"}
    review.note("")
    for side in ("left", "right"):
        review.tag(name, False, side=side)
    assert review.case.votes == {} and not review.voted.any()
    assert {"too critical", "too optimistic"} <= set(TAGS), "arXiv 2401.06591"


def test_blind_hides_names_and_scores_until_the_vote(opened):
    review = opened(blind=True)
    case = review.case
    assert not case.revealed
    assert all(set(verdict) <= {"feedback", "failure", "hidden"} for verdict in case.sides.values())
    review.score(3)
    assert not review.case.revealed, "two judges: the vote about them decides"
    review.better("left")
    case = review.case
    assert case.revealed
    assert {verdict["judge"]: verdict["score"] for verdict in case.sides.values()} == {
        "first": 1.0,
        "second": 5.0,
    }
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
    verdicts = [case.sides["1"] for case in review.cases()]
    assert [(verdict["feedback"], verdict["hidden"]) for verdict in verdicts] == list(TOLD.values())
    assert verdicts[3]["failure"] == "[hidden]", "a failure may name the scores that it was about"
    review.score(1)
    assert review.case.sides["1"]["feedback"] == "So the overall score is 4."


def test_a_look_or_a_list_that_tells_makes_a_vote_not_blind(opened):
    review = opened(blind=True)
    review.reveal()
    assert review.case.revealed and opened(blind=True).case.revealed
    review.better("right")
    for filters, id in (({"judge": "first", "score": 4}, "i1"), ({"criterion": "odd"}, "i3")):
        review.filter(**filters)
        review.goto(id)
        review.score(1)
    votes = review.votes()
    assert list(votes["blind"]) == [False, False, True]
    selections = [json.loads(text or "{}") for text in votes["selection"]]
    assert selections == [{}, {"judge": "first", "score": 4}, {"criterion": "odd"}]


def test_sides_swap_by_seed_and_the_file_holds_the_judge(tmp_path):
    many = [{**row, "id": f"m{n}-{row['id']}"} for n in range(20) for row in rows()]
    ids = [row["id"] for row in many]
    run = {
        name: pd.DataFrame({"id": ids, "score": 3.0, "feedback": "same"})
        for name in ("first", "second")
    }
    ann, bob = (
        Review(many, run, out=tmp_path, annotator=name, blind=True) for name in ("ann", "bob")
    )
    other = Review(many, run, out=tmp_path, annotator="ann", blind=True, seed=1)
    lefts, again, others = (
        [review.sides(id)["left"] for id in ids] for review in (ann, bob, other)
    )
    assert lefts == again != others and 40 < lefts.count("first") < 80
    id = ids[lefts.index("second")]
    ann.goto(id)
    ann.better("left")
    assert list(ann.votes("better")["value"]) == ["second"]
    plain = Review(many, run, out=tmp_path, annotator="ann")
    assert plain.goto(id).votes == {"better": "right"}, "the same judge, now on the other side"


PAIR = {"id": "p", "instruction": "?", "response_a": "a", "response_b": "b", "images": []}


@pytest.mark.parametrize(
    ("rows", "runs", "message"),
    [
        (rows()[:5], {"first": judged("first")}, "first: item 'i5' is not in the collection"),
        (
            rows(),
            {"first": pd.concat([judged("first")] * 2)},
            "first: item 'i0' has several verdicts",
        ),
        (rows(), {"both good": judged("first")}, "name of an answer"),
        (rows(), {}, "there is no run"),
        ([PAIR], {"first": judged("first")}, "these rows are pairs"),
        ([*rows(), rows()[0]], {"first": judged("first")}, "'i0' stands twice"),
    ],
)
def test_runs_and_rows_that_do_not_fit_are_refused(tmp_path, rows, runs, message):
    with pytest.raises(ValueError, match=message):
        Review(rows, runs, out=tmp_path, annotator="ann")


def test_a_judge_that_skipped_an_item_is_shown_as_such(tmp_path):
    review = Review(
        items(), runs() | {"first": judged("first").iloc[1:]}, out=tmp_path, annotator="ann"
    )
    assert review.case.sides["left"] == {"judge": "first"}
    with pytest.raises(ValueError, match="both graded"):
        review.better("left")
    assert review.filter(judge="first") == N - 1
    assert review.filter(unparsed=True) == 1, "not graded is not unparsed"


def test_people_stand_for_gold_where_there_is_none(tmp_path):
    people = [
        row | {"gold": None, "human_scores": [n % 4 + 1.0, 3.0], "lowest": 0}
        for n, row in enumerate(rows())
    ]
    review = Review(people, runs(), out=tmp_path, annotator="ann")
    assert review.truth.name == "mean of people" and review.truth.tolist() == [
        2,
        2.5,
        3,
        3.5,
        2,
        2.5,
    ]
    assert list(review.levels) == ["0", "1", "2", "3", "4", "5"] and review.filter(truth=3) == 3, (
        "2.5 counts with 3"
    )
    nobody = Review(
        [row | {"gold": None} for row in rows()], runs(), out=tmp_path / "2", annotator="ann"
    )
    nobody.sort("worst")
    assert nobody.listed == [f"i{n}" for n in range(N)]
    assert "Items: 0; without a truth yet: 6." in nobody.confusion("first").attrs["words"]


def test_the_confusion_counts_every_graded_item_with_a_truth(opened):
    table = opened().confusion("first")
    assert table.columns.tolist() == [
        "1",
        "2",
        "3",
        "4",
        "5",
        "none",
    ] and table.index.tolist() == list("12345")
    assert {cell: n for cell, n in table.stack().items() if n} == {
        ("1", "1"): 1, ("2", "4"): 1, ("3", "3"): 1, ("4", "none"): 1, ("5", "5"): 1
    }  # fmt: skip
    assert table.attrs["words"].startswith(
        "Rows: gold. Columns: first. Items: 5; without a truth yet: 1. Scores between"
    )


ANSWER = st.sampled_from(ANSWERS) | st.none()


class Voting(RuleBasedStateMachine):
    """Any sequence of votes and undoings equals a plain model, in this kernel and in a fresh one."""

    @initialize()
    def start(self):
        self.folder, self.model, self.past, self.written = (
            tempfile.TemporaryDirectory(),
            {},
            [],
            b"",
        )
        self.restart()

    @rule()
    def restart(self):
        self.review = open_review(Path(self.folder.name), blind=True)

    @rule(id=st.integers(0, N - 1))
    def go(self, id):
        self.review.goto(f"i{id}")

    @rule(
        vote=st.tuples(st.just("score"), st.integers(1, 5) | st.none())
        | st.tuples(st.just("better"), ANSWER)
    )
    def cast(self, vote):
        name, value = vote
        key = (self.review.case.item.id, name)
        self.past.append((key, self.model.get(key)))
        self.model[key] = value
        getattr(self.review, name)(value)

    @rule()
    def undo(self):
        if not self.past:
            with pytest.raises(ReviewError, match="nothing to undo"):
                self.review.undo()
        else:
            key, before = self.past.pop()
            self.model[key] = before
            assert self.review.undo().item.id == key[0]

    @invariant()
    def equals_the_model(self):
        current = self.review.case.item.id
        for id in {id for id, _ in self.model}:
            expected = {
                name: value
                for (where, name), value in self.model.items()
                if where == id and value is not None
            }
            assert self.review.goto(id).votes == expected
            assert self.review.case.revealed == ("better" in expected)
        self.review.goto(current)
        before, self.written = self.written, self.review.path.read_bytes() if self.model else b""
        assert self.written.startswith(before), "lines are only added"

    def teardown(self):
        self.folder.cleanup()


TestVoting = Voting.TestCase
TestVoting.settings = settings(max_examples=15, stateful_step_count=25, deadline=None)


SCRIPT = """
from pathlib import Path
from reviews import open_review
review = open_review(Path({out!r}), "killed")
for turn in range(100_000):
    review.goto(f"i{{turn % 6}}")
    review.score(turn % 5 + 1)
    print(turn, flush=True)
"""


def test_a_killed_kernel_loses_no_vote(tmp_path, opened):
    command = [sys.executable, "-c", SCRIPT.format(out=str(tmp_path))]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    )
    seen = [process.stdout.readline() for _ in range(20)]
    process.kill()
    cast = len(seen) + len(process.communicate()[0].splitlines())
    whole = (tmp_path / "votes" / "killed.jsonl").read_bytes().split(b"\n")[:-1]
    assert len(whole) in (cast, cast + 1) and opened("killed").voted.all()


def test_each_vote_waits_for_the_disk_and_a_full_one_casts_none(opened, monkeypatch):
    review, sizes = opened(), []
    monkeypatch.setattr(os, "fsync", lambda descriptor: sizes.append(os.fstat(descriptor).st_size))
    review.score(3)
    assert sizes == [review.path.stat().st_size]
    monkeypatch.setattr(
        os, "fsync", lambda _: (_ for _ in ()).throw(OSError(28, "No space left on device"))
    )
    with pytest.raises(ReviewError, match="No space left on device; nothing was voted"):
        review.score(4)


def test_a_torn_last_line_is_said_and_voting_goes_on(opened):
    review = opened()
    review.score(2)
    with review.path.open("ab") as file:
        file.write(b'{"annotator": "ann", "id": "i0", "fie')
    for score in (2, 3):
        with pytest.warns(RuntimeWarning, match=r"ann.jsonl, line 2: cut short"):
            again = opened()
        assert again.case.votes == {"score": score}
        again.score(3)


def test_files_merge_by_standing_together_or_one_behind_the_other(opened, tmp_path):
    ann, bob = opened("ann", folder="here"), opened("bob", folder="there")
    ann.score(4)
    ann.score(5)
    bob.score(1)
    bob.better("both bad")
    both = tmp_path / "both"
    both.mkdir()
    (both / "all.jsonl").write_bytes(
        ann.path.read_bytes() + bob.path.read_bytes()
    )  # cat ann.jsonl bob.jsonl
    review = opened("carol", folder="both")
    votes = review.votes()[["annotator", "field", "value"]].to_numpy().tolist()
    assert votes == [["ann", "score", 5], ["bob", "score", 1], ["bob", "better", "both bad"]]
    assert review.annotators == ["ann", "bob"]
    ann.score(2)
    (both / "ann.jsonl").write_bytes(
        ann.path.read_bytes()
    )  # its first lines stand in two files now
    values = opened("carol", folder="both").votes()["value"].tolist()
    assert values == [2, 1, "both bad"] or values == [1, "both bad", 2]
    assert opened("ann", folder="both").undo().votes == {"score": 5}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (None, "line 1: no vote on this collection"),
        ({"collection": "0123"}, "line 1: no vote on this collection"),
        ({"value": "4"}, "is not a vote"),
        ({"field": "mood"}, "is not a vote"),
        ({"field": "better", "value": 5}, "line 1: the .*better.* 5 is not a vote"),
        ({"id": ["i1"]}, "is not a vote"),
        (
            {"field": "tags", "value": {"third": ["too critical"]}},
            "line 1: a vote about 'third', not under review",
        ),
        ({"field": "better", "value": "third"}, "not under review"),
    ],
)
def test_lines_that_are_no_votes_of_this_review_are_refused(opened, change, message):
    review = opened()
    review.score(1)
    review.path.write_text(
        json.dumps(change and json.loads(review.path.read_text()) | change) + "\n"
    )
    with pytest.raises(ReviewError, match=message):
        opened()


@pytest.mark.parametrize("name", ["../../etc/x", "名字", "x" * 300, "CON\n\ud800"])
def test_any_name_has_a_file_in_the_folder(tmp_path, name):
    review = open_review(tmp_path, name)
    review.score(3)
    assert [review.path] == list((tmp_path / "votes").iterdir())
    assert open_review(tmp_path, name).case.votes == {"score": 3}
    with pytest.raises(ValueError, match="annotator"):
        open_review(tmp_path, " ")
    with pytest.raises(ReviewError, match="is a file: give a folder"):
        Review(items(), runs(), out=review.path, annotator=name)
