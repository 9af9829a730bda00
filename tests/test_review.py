"""Reviews: what is listed, voted, undone, hidden and kept, with several people and kernels on one file."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time

import datasets
import numpy as np
import pandas as pd
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from PIL import Image

from vjudge import data
from vjudge.metrics import correlate
from vjudge.review import (
    ANSWERS,
    TAGS,
    Review,
    ReviewError,
    collection,
    differences,
    error_tags,
    export,
    merge,
    preference,
    rehearse,
)

N = 6
GOLD = [1.0, 2.0, 3.0, 4.0, 5.0, np.nan]
SCORES = {"first": [1.0, 4.0, 3.0, np.nan, 5.0, 2.0], "second": [5.0, 2.0, 3.0, 4.0, 1.0, 2.0]}


def rows():
    return [
        {
            "id": f"i{n}", "images": [Image.new("RGB", (8, 8), (40 * n, 0, 0))], "instruction": f"Question {n}?",
            "response": f"Answer {n}.", "reference_answer": None, "criteria": "even" if n % 2 == 0 else "odd",
            "descriptions": ["one", "two", "three", "four", "five"], "gold": GOLD[n], "group": f"g{n}",
        }
        for n in range(N)
    ]  # fmt: skip


def judged(name, scores=None):
    scores = SCORES[name] if scores is None else scores
    failures = ["no verdict marker" if np.isnan(score) else None for score in scores]
    table = {"id": [f"i{n}" for n in range(N)], "judge": name, "score": scores, "failure": failures}
    return pd.DataFrame(table | {"feedback": [f"{name} about {n}" for n in range(N)]})


@pytest.fixture(scope="module")
def items():
    return data.canonical(rows())


@pytest.fixture
def opened(items, tmp_path):
    def open_review(annotator="ann", *, file="votes.jsonl", judges=("first", "second"), **options):
        runs = {name: judged(name) for name in judges}
        return Review(items, runs, out=tmp_path / file, annotator=annotator, **options)

    return open_review


def listed(review):
    found = []
    for _ in range(review.progress.listed):
        found.append(review.case.item.id)
        review.next()
    return found


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({}, [0, 1, 2, 3, 4, 5]),
        ({"criterion": "odd"}, [1, 3, 5]),
        ({"judge": "first", "score": 4}, [1]),
        ({"score": 1}, [0, 4]),
        ({"judge": "first", "gap": (-2, -1)}, [1]),
        ({"gap": (1, 4)}, [4]),
        ({"unparsed": True}, [3]),
        ({"unparsed": False}, [0, 1, 2, 4, 5]),
        ({"judge": "second", "unparsed": True}, []),
        ({"text": "ABOUT 5"}, [5]),
        ({"text": "question 3"}, [3]),
        ({"text": ".*"}, []),
        ({"voted": True}, []),
    ],
)
def test_a_filter_lists_what_it_names(opened, filters, expected):
    review = opened()
    assert review.filter(**filters) == len(expected)
    assert listed(review) == [f"i{n}" for n in expected]


def test_orders(opened):
    review = opened()
    review.sort("worst")
    assert listed(review) == ["i0", "i4", "i1", "i2", "i3", "i5"], "distances 4, 4, 2, 0, 0; without gold last"
    review.filter(judge="first")
    review.sort("worst")
    assert listed(review)[0] == "i1"
    review.filter()
    review.sort("random", seed=1)
    once = listed(review)
    review.sort("random", seed=1)
    assert listed(review) == once and sorted(once) == [f"i{n}" for n in range(N)]
    review.sort("random", seed=2)
    assert listed(review) != once


def test_the_current_item_stays_while_the_list_changes(opened):
    review = opened()
    review.goto("i3")
    review.filter(criterion="odd")
    assert review.case.item.id == "i3" and review.case.number == 1
    with pytest.raises(ValueError, match="not in the list"):
        review.goto("i2")


def test_nothing_listed_is_a_state_of_its_own(opened):
    review = opened()
    review.filter(text="nowhere")
    assert review.case is None and review.next() is None
    with pytest.raises(ReviewError, match="no item passes the filters"):
        review.score(3)


def test_votes_survive_a_new_kernel(opened):
    review = opened()
    review.score(4)
    review.better("both bad")
    review.tag(TAGS[0], side="left")
    review.note("  looks twice ")
    again = opened()
    assert again.case.votes == {
        "score": 4, "better": "both bad", "tags": {"left": [TAGS[0]]}, "note": "looks twice"
    }  # fmt: skip
    assert again.progress.voted == 1
    assert again.next_unvoted().item.id == "i1"


def test_undo_goes_back_to_the_item_and_redo_forward(opened):
    review = opened()
    review.score(2)
    review.next()
    review.score(3)
    review.score(5)
    assert review.undo().votes == {"score": 3}
    review.goto("i4")
    assert review.undo().item.id == "i1" and review.case.votes == {}
    assert review.undo().item.id == "i0" and review.case.votes == {}
    with pytest.raises(ReviewError, match="nothing to undo"):
        review.undo()
    assert review.redo().votes == {"score": 2}
    review.goto("i2")
    review.score(1)
    with pytest.raises(ReviewError, match="nothing to redo"):
        review.redo()


@pytest.mark.parametrize("vote", ["score", "better", "note"])
def test_a_vote_can_be_withdrawn(opened, vote):
    review = opened()
    getattr(review, vote)({"score": 3, "better": "left", "note": "x"}[vote])
    getattr(review, vote)(None)
    assert review.case.votes == {} and not len(review.votes()) and not review.progress.voted
    assert vote in review.undo().votes


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda r: r.score(6), "from 1 to 5"),
        (lambda r: r.score(2.5), "from 1 to 5"),
        (lambda r: r.score(True), "from 1 to 5"),
        (lambda r: r.better("tie"), "left, right, both good, both bad"),
        (lambda r: r.tag("rude", side="left"), "unknown"),
        (lambda r: r.tag(TAGS[0]), "say whose feedback"),
        (lambda r: r.note("x" * 20_001), "20001 characters"),
        (lambda r: r.filter(judge="third"), "first, second"),
        (lambda r: r.filter(criterion="other"), "criterion"),
        (lambda r: r.filter(gap=(2, 1)), "wrong way round"),
        (lambda r: r.sort("best"), "file, worst, random"),
    ],
)
def test_what_can_not_be_meant_is_refused_and_not_written(opened, act, message):
    review = opened()
    with pytest.raises(ValueError, match=message):
        act(review)
    assert not review.path.exists()


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
    assert [side.verdict["score"] for side in case.sides] == [SCORES[side.judge][0] for side in case.sides]
    review.undo()
    assert not review.case.revealed
    votes = review.votes()
    assert votes["blind"].all()


def test_a_look_before_the_vote_is_recorded(opened):
    review = opened(blind=True)
    review.reveal()
    assert review.case.revealed
    review.better("right")
    assert not review.votes()["blind"].any()
    assert opened(blind=True).revealed("i0")


def test_sides_swap_by_seed_and_the_file_holds_the_judge(items, tmp_path):
    many = [{**row, "id": f"m{n}-{row['id']}"} for n in range(20) for row in rows()]
    ids = [row["id"] for row in many]
    run = {name: pd.DataFrame({"id": ids, "score": 3.0, "feedback": "same"}) for name in SCORES}

    def lefts(seed, annotator="ann"):
        review = Review(many, run, out=tmp_path / "v.jsonl", annotator=annotator, blind=True, seed=seed)
        return [review.sides(id)["left"] for id in ids]

    assert lefts(0) == lefts(0, "bob") != lefts(1)
    assert 40 < lefts(0).count("first") < 80
    review = Review(many, run, out=tmp_path / "v.jsonl", annotator="ann", blind=True, seed=0)
    review.goto(ids[lefts(0).index("second")])
    review.better("left")
    assert list(review.votes()["value"]) == ["second"]
    plain = Review(many, run, out=tmp_path / "v.jsonl", annotator="ann")
    assert plain.goto(review.case.item.id).votes == {"better": "right"}, "the same judge, now on the other side"


def test_one_judge_is_revealed_by_a_score_and_has_no_better(opened):
    review = opened(judges=("first",), blind=True)
    with pytest.raises(ValueError, match="two judges"):
        review.better("left")
    review.tag(TAGS[1])
    assert not review.case.revealed
    review.score(2)
    assert review.case.revealed


def test_votes_made_on_a_selection_say_so(opened):
    review = opened()
    review.score(1)
    review.sort("worst")
    review.filter(judge="first", gap=(-3, -1))
    review.score(2)
    assert list(review.votes()["selection"]) == ["", '{"gap": [-3, -1], "judge": "first", "order": "worst"}']


def test_a_file_belongs_to_one_review(opened, items, tmp_path):
    opened().score(1)
    with pytest.raises(ReviewError, match="judges"):
        opened(judges=("first",))
    with pytest.raises(ReviewError, match="collection"):
        Review(items.select(range(3)), {name: judged(name).head(3) for name in SCORES},
               out=tmp_path / "votes.jsonl", annotator="ann")  # fmt: skip
    (tmp_path / "other.jsonl").write_text('{"id": 1}\n')
    with pytest.raises(ReviewError, match="no review"):
        opened(file="other.jsonl")


def test_runs_that_do_not_fit_are_refused_with_all_their_faults(items, tmp_path):
    stray = pd.concat([judged("first"), judged("first").assign(id="elsewhere")])
    with pytest.raises(ValueError, match=r"first: 1 items are not .*'elsewhere'.*first: 1 items have several"):
        Review(items, {"first": stray}, out=tmp_path / "v", annotator="ann")
    with pytest.raises(ValueError, match="annotator"):
        Review(items, {"first": judged("first")}, out=tmp_path / "v", annotator=" ")


def test_a_judge_that_skipped_an_item_is_shown_as_such(items, tmp_path):
    runs = {"first": judged("first").iloc[1:], "second": judged("second")}
    review = Review(items, runs, out=tmp_path / "v", annotator="ann")
    assert review.case.sides[0].verdict is None and review.filter(judge="first") == N - 1
    assert review.filter(unparsed=True) == 1, "not graded is not unparsed"
    review.filter()
    review.goto("i0")
    with pytest.raises(ValueError, match="both graded"):
        review.better("left")


def test_a_torn_line_is_cut_off_and_reported(opened):
    review = opened()
    review.score(2)
    with review.path.open("ab") as stream:
        stream.write(b'{"event": "torn')
    again = opened("bob")
    with pytest.warns(RuntimeWarning, match="15 bytes"):
        again.score(3)
    assert [json.loads(line).get("annotator") for line in review.path.read_text().splitlines()] == [None, "ann", "bob"]
    review.score(4)
    assert len(review.votes()) == 2


def test_a_damaged_line_is_named(opened):
    review = opened()
    review.score(2)
    review.score(3)
    lines = review.path.read_text().splitlines()
    lines[1] = "garbage"
    review.path.write_text("\n".join(lines) + "\n")
    with pytest.raises(ReviewError, match="line 2"):
        opened()


SCRIPT = textwrap.dedent(
    """
    import sys
    sys.path.insert(0, {tests!r})
    from test_review import Review, data, judged, rows
    runs = {{name: judged(name) for name in ("first", "second")}}
    review = Review(data.canonical(rows()), runs, out={out!r}, annotator={who!r})
    print("ready", flush=True)
    sys.stdin.readline()
    for turn in range({turns}):
        review.goto(f"i{{turn % 6}}")
        review.score(turn % 5 + 1)
        print(turn, flush=True)
    """
)


def voting(tmp_path, who, turns):
    code = SCRIPT.format(tests=os.path.dirname(__file__), out=str(tmp_path / "votes.jsonl"), who=who, turns=turns)
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=os.getcwd()
    )
    return process


def test_two_kernels_on_one_file_lose_nothing_and_a_kill_loses_nothing(tmp_path, opened):
    crowd = [voting(tmp_path, "ann", 60), voting(tmp_path, "ann", 60), voting(tmp_path, "bob", 100_000)]
    for process in crowd:
        assert process.stdout.readline() == "ready\n"
    for process in crowd:
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in crowd[:2]:
        assert process.wait(60) == 0
    time.sleep(0.05)
    crowd[2].send_signal(signal.SIGKILL)
    told = len(crowd[2].stdout.read().splitlines())
    events = [json.loads(line) for line in (tmp_path / "votes.jsonl").read_bytes().split(b"\n")[:-1]]
    assert "review" in events[0] and sum("review" in event for event in events) == 1
    by = pd.Series([event["annotator"] for event in events[1:]]).value_counts()
    assert by["ann"] == 120 and by["bob"] >= told > 0
    assert opened().progress.voted == 6


def test_two_people_merge_and_conflicts_are_shown(opened, tmp_path):
    one, two = opened(file="one.jsonl"), opened(file="two.jsonl")
    one.score(4)
    time.sleep(0.005)
    two.score(5)
    two.next()
    two.score(2)
    two.undo()
    bob = opened("bob", file="two.jsonl")
    bob.goto("i0")
    bob.score(1)
    bob.better("right")
    paths = [one.path, two.path]
    conflicts, different = merge(paths, tmp_path / "both.jsonl")
    assert conflicts.to_dict("records") == [
        {"id": "i0", "field": "score", "annotator": "ann", str(one.path): 4, str(two.path): 5}
    ]
    assert different.loc[("i0", "score")].to_dict() == {"ann": 5, "bob": 1}
    both = opened(file="both.jsonl")
    assert both.case.votes == {"score": 5} and both.goto("i1").votes == {}
    assert differences(both.votes()).equals(different)
    assert both.redo().votes == {"score": 2}
    with pytest.raises(ReviewError, match="exists"):
        merge(paths, tmp_path / "both.jsonl")
    other = opened(judges=("first",), file="three.jsonl")
    other.score(1)
    with pytest.raises(ReviewError, match="judges differ"):
        merge([*paths, other.path], tmp_path / "all.jsonl")
    again, _ = merge([tmp_path / "both.jsonl", one.path], tmp_path / "twice.jsonl")
    assert len((tmp_path / "twice.jsonl").read_text().splitlines()) == len(both.path.read_text().splitlines())


def test_votes_become_a_collection_with_human_scores(opened, items):
    review, bob = opened(), opened("bob")
    with pytest.raises(ValueError, match="no item has a score"):
        collection(items, review)
    for id, score in (("i0", 1), ("i2", 4), ("i4", 5)):
        review.goto(id)
        review.score(score)
    bob.goto("i2")
    bob.score(2)
    made = collection(items, review)
    assert list(made["id"]) == ["i0", "i2", "i4"] and made["annotators"][0] == ["ann", "bob"]
    np.testing.assert_array_equal(made["human_scores"], [[1, np.nan], [4, 2], [5, np.nan]])
    data.validate(made)
    means = [np.nanmean(scores) for scores in made["human_scores"]]
    assert correlate(means, made["gold"], n_resamples=0).loc["pearson", "n"] == 3


def test_counts_of_answers_and_tags(opened, items):
    review = opened()
    for answer in ANSWERS:
        review.better(answer)
        review.tag(TAGS[2], side="right")
        review.next()
    found = preference(review)
    assert found["estimate"].to_dict() == {
        "left": 0.25, "right": 0.25, "both_good": 0.25, "both_bad": 0.25, "left_as_good_or_better": 0.5,
        "right_as_good_or_better": 0.5, "left_of_decided": 0.5, "left_ties_half": 0.5,
    }  # fmt: skip
    assert found.attrs["words"]["left"] == "first is better" and (found["n"].iloc[:4] == 4).all()
    with pytest.warns(UserWarning):
        assert (preference(review, blind=True)["n"] == 0).all()
    tags = error_tags(review).set_index(["judge", "tag"])
    assert tags.loc[("second", TAGS[2]), ["count", "n", "share"]].tolist() == [4, 4, 1.0]
    assert tags.loc[("first", TAGS[2]), "count"] == 0
    # Wilson's interval of 4 in 4: z^2 / (n + z^2) is its distance from one.
    assert tags.loc[("second", TAGS[2]), "low"] == pytest.approx(1 - 1.959964**2 / (4 + 1.959964**2), abs=1e-6)


def test_export_writes_what_can_be_read_again(opened, items, tmp_path):
    review = opened()
    review.score(2)
    review.better("left")
    review.note("</script> \u202e $x$")
    paths = {path.name: path for path in export(items, review, tmp_path / "out")}
    assert set(paths) == {
        "votes.csv", "votes.jsonl", "collection", "error_tags.csv", "error_tags.tex", "preferences.csv",
        "preferences.tex", *(f"preference_bars.{kind}" for kind in ("pdf", "svg", "png", "txt", "csv")),
    }  # fmt: skip
    bars = pd.read_csv(paths["preference_bars.csv"]).set_index("answer")
    assert bars.loc["first is better", "estimate"] == 1 and "0 votes blind" in paths["preference_bars.txt"].read_text()
    again = data.load_collection(str(paths["collection"]))
    assert again["human_scores"] == [[2.0]] and again[0]["images"][0].size == (8, 8)
    assert len(pd.read_json(paths["votes.jsonl"], lines=True)) == len(pd.read_csv(paths["votes.csv"])) == 3
    assert "toprule" in paths["error_tags.tex"].read_text()


def test_a_feedback_that_tells_its_score_does_not_tell_it_blind(items, tmp_path):
    texts = {
        "So the overall score is 4.": "So the overall score is [hidden].",
        "Score: 4/5, since 4 of 4 hold": "Score: [hidden]/5, since 4 of 4 hold",
        "fine [RESULT] 3": "fine [RESULT] [hidden]",
        "A score of 2.5 fits.": "A score of [hidden] fits.",
        "It scored the 2nd picture": "It scored the 2nd picture",
        "": "",
    }
    run = judged("first").assign(feedback=list(texts))
    review = Review(items, {"first": run}, out=tmp_path / "v", annotator="ann", blind=True)
    shown = [case.sides[0].verdict for case in review.cases()]
    assert [verdict["feedback"] for verdict in shown] == list(texts.values())
    assert shown[3]["failure"] == "[hidden]", "a failure may name the scores that it was about"
    review.score(1)
    assert review.case.sides[0].verdict["feedback"] == "So the overall score is 4."


def test_simulated_votes_are_the_rules_and_called_simulated(opened):
    with pytest.raises(ValueError, match="begins with 'simulated'"):
        rehearse(opened())
    review = opened("simulated ann", blind=True)
    assert rehearse(review, noise=0, n=2) == 2 and review.progress.voted == 2
    assert rehearse(opened("simulated ann", blind=True), noise=0) == 3, "goes on; the item without a true score is left"
    votes = review.votes().set_index(["id", "field"])["value"]
    assert [votes[f"i{n}", "score"] for n in range(5)] == GOLD[:5]
    assert [votes[f"i{n}", "better"] for n in range(5)] == ["first", "second", "both good", "second", "first"]
    assert votes["i0", "tags"] == {"second": [TAGS[0]]} and votes["i3", "tags"] == {"first": [TAGS[0]]}
    assert review.votes()["blind"].sum() == 10, "the tags come after the vote that reveals"


def test_items_without_a_rubric_need_a_scale(tmp_path):
    bare = [{name: value for name, value in row.items() if name not in ("criteria", "descriptions")} for row in rows()]
    run = {"first": judged("first")}
    with pytest.raises(ValueError, match="scale="):
        Review(bare, run, out=tmp_path / "v", annotator="ann").score(50)
    review = Review(bare, run, out=tmp_path / "v", annotator="ann", scale=(0, 100))
    review.score(50)
    assert review.case.votes == {"score": 50}


class Voting(RuleBasedStateMachine):
    """Any sequence of votes and undoings equals a plain model, in this kernel and in a fresh one."""

    @initialize()
    def start(self):
        import tempfile

        self.folder = tempfile.TemporaryDirectory()
        self.items = rows()
        self.review = self.open()
        self.model, self.past, self.future = {}, [], []

    def open(self):
        return Review(
            self.items, {n: judged(n) for n in SCORES}, out=f"{self.folder.name}/v.jsonl", annotator="ann", blind=True
        )

    @rule(id=st.integers(0, N - 1))
    def go(self, id):
        self.review.goto(f"i{id}")

    @rule(value=st.integers(1, 5) | st.none())
    def score(self, value):
        self.cast("score", value)
        self.review.score(value)

    @rule(value=st.sampled_from(ANSWERS))
    def better(self, value):
        self.cast("better", value)
        self.review.better(value)

    def cast(self, name, value):
        key = (self.review.case.item.id, name)
        self.past.append((key, self.model.get(key), value))
        self.future.clear()
        self.model[key] = value

    @precondition(lambda self: self.past)
    @rule()
    def undo(self):
        key, before, _ = self.past[-1]
        self.future.append(self.past.pop())
        self.model[key] = before
        assert self.review.undo().item.id == key[0]

    @precondition(lambda self: self.future)
    @rule()
    def redo(self):
        key, _, value = self.future[-1]
        self.past.append(self.future.pop())
        self.model[key] = value
        assert self.review.redo().item.id == key[0]

    @rule()
    def restart(self):
        self.review = self.open()

    @invariant()
    def equals_the_model(self):
        current = self.review.case.item.id
        for n in range(N):
            expected = {name: value for (id, name), value in self.model.items() if id == f"i{n}" and value is not None}
            assert self.review.goto(f"i{n}").votes == expected
            assert self.review.case.revealed == ("better" in expected)
        self.review.goto(current)

    def teardown(self):
        if hasattr(self, "folder"):
            self.folder.cleanup()


TestVoting = Voting.TestCase
TestVoting.settings = settings(max_examples=25, stateful_step_count=25, deadline=None)


def test_any_dataset_of_rows_will_do(items, tmp_path):
    assert isinstance(items, datasets.Dataset)
    for kind in (items, rows(), items.to_pandas().drop(columns="images")):
        Review(kind, judged("first"), out=tmp_path / "v", annotator="ann")


def many_items(n=40):
    rng = np.random.default_rng(0)
    quality = rng.normal(size=n)
    score = np.clip(np.rint(3 + quality), 1, 5)
    own = np.clip(np.rint(3 + 0.7 * quality + 0.7 * rng.normal(size=n)), 1, 5).astype(int)
    ids = [f"m{number}" for number in range(n)]
    template = {"images": [], "response": "x", "criteria": "c", "descriptions": list("abcde")}
    items = data.canonical([{"id": id, "instruction": f"{id}?", **template} for id in ids])
    run = pd.DataFrame({"id": ids, "judge": "first", "score": score, "failure": None, "feedback": "f"})
    return items, run, dict(zip(ids, own, strict=True))


def test_labels_that_next_best_chose_carry_their_weights(tmp_path):
    """Chosen labels are a stratified sample: after a restart, too, plain statistics of them are refused."""
    items, run, own = many_items()
    review = Review(items, run, out=tmp_path / "votes.jsonl", annotator="ann")
    for id in ("m0", "m1", "m2"):
        review.goto(id)
        review.score(own[id])
    assert review.weights() is None and not review.human_scores().attrs
    for id in review.next_best(20)["id"]:
        review.goto(id)
        review.score(own[id])
    again = Review(items, run, out=tmp_path / "votes.jsonl", annotator="bob")
    human = again.human_scores().mean(axis=1)
    judge = again.judge_scores["first"]
    with pytest.raises(ValueError, match="next_best, by the score of first, chose.*weights=review.weights"):
        correlate(judge, human, n_resamples=0)
    found = correlate(judge, human, weights=again.weights())
    assert found["n"].eq(23).all() and again.weights().sum() == pytest.approx(40)
    assert "stand for 40 items" in found.attrs["method"] and again.annotators == ["ann"]
    labelled = data.load_collection(str(export(items, again, tmp_path / "export")[2]))
    gold = data.truth(labelled)
    with pytest.raises(ValueError, match="the review that left a column `weight` chose"):
        correlate(judge[gold.index], gold, n_resamples=0)
    exported = correlate(judge[gold.index].to_numpy(), gold, weights=labelled["weight"])
    assert exported["estimate"].tolist() == pytest.approx(found["estimate"].tolist())
    again.next_best(3)
    assert again.annotators == ["ann"], "to ask for a list is not to vote"
    last = again.next_best(1)["id"][0]
    again.next_best(1)
    assert (tmp_path / "votes.jsonl").read_text().count('"next_best"') == 2, (
        "a list that was named before is not repeated"
    )
    again.goto(last)
    again.score(1)


def test_annotators_agreement_on_four_way_votes_stands_beside_the_preference(opened):
    for annotator, answers in (("ann", ["left", "both good", "right"]), ("bob", ["left", "both bad", "right"])):
        review = opened(annotator)
        for number, answer in enumerate(answers):
            review.goto(f"i{number}")
            review.better(answer)
    found = preference(opened()).attrs["agreement"]
    # Six answers: left 2, right 2, good 1, bad 1. One of three items differs: 1 - (2 / 6) / (1 - (2 + 2) / 30).
    assert found["n"] == 3 and found["estimate"] == pytest.approx(1 - (2 / 6) / (26 / 30))
