"""A review without widgets: what is listed, voted, kept on disk, hidden and counted."""

import multiprocessing
import os
import re
import tempfile
from pathlib import Path

import pandas as pd
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from pytest import mark, raises, warns
from reviews import SCORES, N, items, judged, open_review, rows, runs

from vjudge.judging.record import Log
from vjudge.review import ANSWERS, TAGS, Review, ReviewError, matrix


@mark.parametrize(
    "filters, expected",
    [
        ({"criterion": "odd"}, "135"),
        ({"score": "1"}, "04"),
        ({"judge": "first", "score": "2"}, "5"),
        ({"judge": "second", "truth": "1", "score": "5"}, "0"),
        ({"judge": "first", "disagreement": "judge too high"}, "1"),
        ({"disagreement": "judge too low"}, "4"),
        ({"disagreement": "large"}, "014"),
        ({"judge": "first", "disagreement": "none"}, "024"),
        ({"score": "none"}, "3"),
        ({"voted": True}, "2"),
        ({"order": "worst"}, "041235"),  # distances 4, 4, 2, 0, 0; without gold last
        ({"order": "worst", "judge": "first"}, "102435"),
        ({"truth": "5", "criterion": "odd"}, ""),
    ],
)
def test_a_filter_lists_what_it_names_in_the_order(opened, filters, expected):
    review = opened()
    review.goto("i2")
    review.score(3)
    assert review.filter(**filters) == len(expected)
    assert review.listed == [f"i{n}" for n in expected]
    assert [case.item.id for case in review.cases()] == review.listed
    if not expected:
        assert review.case is None and review.step() is None
        with raises(ReviewError, match="no item passes the filters"):
            review.score(3)


def test_a_random_order_is_that_of_its_seed(opened):
    lists = []
    for seed in (1, 1, 2):
        review = opened()
        review.filter(order="random", seed=seed)
        lists.append(review.listed)
    assert lists[0] == lists[1] != lists[2]


@mark.parametrize(
    "act, message",
    [
        (lambda r: r.score(6), "from 1 to 5"),
        (lambda r: r.better("tie"), "left, right, both good, both bad"),
        (lambda r: r.tag(TAGS[:1], side="1"), "side '1' is unknown; use one of left, right"),
        (lambda r: r.filter(mood="good"), "filter .mood. is unknown"),
        (lambda r: r.goto("i9"), "'i9' is not in the list"),
    ],
)
def test_what_can_not_be_meant_is_refused_and_not_written(opened, act, message):
    review = opened()
    with raises(ValueError, match=message):
        act(review)
    assert not review.path.exists()


def test_blind_hides_names_and_scores_until_the_vote(tmp_path):
    hidden = {"feedback": "So the overall score is [hidden].", "hidden": 1}
    told = {name: judged(name).assign(feedback="So the overall score is 4.") for name in runs()}
    review = Review(items(), told, out=tmp_path, annotator="ann", blind=True)
    assert all(list(case.sides.values()) == [hidden] * 2 for case in review.cases())
    review.score(3)
    assert not review.case.revealed  # two judges: the vote about them decides
    review.better("left")
    shown = sorted((verdict["judge"], verdict["score"]) for verdict in review.case.sides.values())
    assert review.case.revealed and shown == [("first", 1.0), ("second", 5.0)]
    review.undo()
    assert not review.case.revealed and review.votes()["blind"].all()
    alone = open_review(tmp_path, judges=("first",), blind=True)
    assert alone.case.sides == {"1": {"feedback": "first about 0", "hidden": 0}}
    alone.score(1)
    assert alone.case.sides["1"]["score"] == 1


def test_a_list_that_tells_makes_a_vote_not_blind(opened):
    review = opened(blind=True)
    lists = [{"judge": "first", "score": "4"}, {"criterion": "odd"}, {"order": "worst"}]
    for number, filters in enumerate(lists, start=1):
        review.filter(**filters)
        review.goto("i1")
        review.score(number)
    votes = pd.read_json(review.path, lines=True)
    assert votes["blind"].tolist() == [False, True, False] and votes["selection"].tolist() == lists


def test_sides_swap_by_seed_and_the_file_holds_the_judge(opened):
    def lefts(name, **options):
        review = opened(name, **options)
        return [review.sides(f"i{n}")["left"] for n in range(120)]

    swapped = lefts("ann", blind=True)
    assert swapped == lefts("bob", blind=True) != lefts("ann", blind=True, seed=1)
    assert 40 < swapped.count("first") < 80
    id = f"i{swapped.index('second')}"
    ann = opened(blind=True)
    ann.goto(id)
    ann.better("left")
    assert list(ann.votes("better")["value"]) == ["second"]
    assert opened().goto(id).votes == {"better": "right"}  # the same judge, on the other side


PAIR = {"id": "p", "instruction": "?", "response_a": "a", "response_b": "b", "images": []}
FIRST = runs("first")
TWICE = {"first": pd.concat([judged("first")] * 2)}


@mark.parametrize(
    "rows, runs, message",
    [
        (rows()[:5], FIRST, "first: item 'i5' is not in the collection"),
        (rows(), TWICE, "first: item 'i0' has several verdicts"),
        (rows(), {"both good": judged("first")}, "name of an answer"),
        (rows(), {}, "there is no run"),
        ([*rows(), rows()[0]], FIRST, "'i0' stands twice"),
    ],
)
def test_runs_and_rows_that_do_not_fit_are_refused(tmp_path, rows, runs, message):
    with raises(ValueError, match=message):
        Review(rows, runs, out=tmp_path, annotator="ann")


def test_a_judge_that_skipped_an_item_is_shown_as_such(tmp_path):
    some = runs() | {"first": judged("first").iloc[1:]}
    review = Review(items(), some, out=tmp_path, annotator="ann")
    assert review.case.sides["left"] == {"judge": "first"}
    with raises(ValueError, match="both graded"):
        review.better("left")
    assert review.filter(judge="first") == N - 1
    assert review.filter(score="none") == 1  # not graded is not without a score


def test_people_stand_for_gold_where_there_is_none(tmp_path):
    bare = [row | {"gold": None, "lowest": 0} for row in rows()]
    people = [row | {"human_scores": [n % 4 + 1.0, 3.0]} for n, row in enumerate(bare)]
    review = Review(people, runs(), out=tmp_path, annotator="ann")
    assert review.truth.name == "mean of people" and review.levels == list("012345")
    assert review.filter(truth="3") == 3  # of 2, 2.5, 3, 3.5, 2, 2.5; 2.5 counts with 3
    nobody = Review(bare, runs(), out=tmp_path / "2", annotator="ann")
    with raises(ValueError, match="no item has a true score"):
        matrix(nobody, judge="first")


VOTES = st.one_of(
    st.tuples(st.just("score"), st.integers(1, 5) | st.none()),
    st.tuples(st.just("better"), st.sampled_from(ANSWERS) | st.none()),
    st.tuples(st.just("note"), st.sampled_from(["looks twice", "=1", None])),
    st.tuples(st.sampled_from(["left", "right"]), st.sampled_from([TAGS[:1], TAGS[:2], None])),
)


class Voting(RuleBasedStateMachine):
    """Any sequence of votes and undoings equals a plain model, in this kernel and in a fresh one."""

    @initialize()
    def start(self):
        self.folder = tempfile.TemporaryDirectory()
        self.model, self.past, self.written = {}, [], b""
        self.restart()

    @rule()
    def restart(self):
        self.review = open_review(Path(self.folder.name), blind=True)

    @rule(number=st.integers(0, N - 1))
    def go(self, number):
        self.review.goto(f"i{number}")

    @rule(vote=VOTES)
    def cast(self, vote):
        field, value = vote
        if field in ("left", "right"):
            value = value and list(value)
            self.review.tag(value or [], side=field)
        else:
            getattr(self.review, field)(value)
        key = (self.review.case.item.id, field)
        if value != self.model.get(key):
            self.past.append((key, self.model.get(key)))
            self.model[key] = value

    @rule()
    def undo(self):
        if not self.past:
            with raises(ReviewError, match="nothing to undo"):
                self.review.undo()
        else:
            key, before = self.past.pop()
            self.model[key] = before
            assert self.review.undo().item.id == key[0]

    @invariant()
    def equals_the_model(self):
        found = {}
        for case in self.review.cases():
            votes = dict(case.votes)
            assert case.revealed == ("better" in votes)
            votes.update(votes.pop("tags", {}))
            for field, value in votes.items():
                found[case.item.id, field] = value
        assert found == {key: value for key, value in self.model.items() if value is not None}
        before = self.written
        self.written = self.review.path.read_bytes() if self.model else b""
        assert self.written.startswith(before)  # lines are only added


TestVoting = Voting.TestCase
TestVoting.settings = settings(max_examples=12, stateful_step_count=20, deadline=None)


def vote_without_end(folder, pipe):
    review = open_review(folder, "killed")
    for turn in range(100_000):
        review.goto(f"i{turn % N}")
        review.score(turn % 5 + 1)
        pipe.send(turn + 1)


def test_a_killed_kernel_loses_no_vote(tmp_path, opened):
    fork = multiprocessing.get_context("fork")
    ours, theirs = fork.Pipe(duplex=False)
    kernel = fork.Process(target=vote_without_end, args=(tmp_path, theirs), daemon=True)
    kernel.start()
    for _ in range(20):
        cast = ours.recv()
    kernel.kill()
    kernel.join()
    while ours.poll():
        cast = ours.recv()
    whole = (tmp_path / "votes" / "killed.jsonl").read_bytes().split(b"\n")[:-1]
    assert len(whole) in (cast, cast + 1) and opened("killed").voted.all()


def test_each_vote_waits_for_the_disk_and_a_full_one_casts_none(opened, monkeypatch):
    review = opened()
    sizes = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: sizes.append(os.fstat(descriptor).st_size))
    review.score(3)
    assert sizes == [review.path.stat().st_size]

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with raises(ReviewError, match="No space left on device; nothing was voted"):
        review.score(4)


def test_a_torn_last_line_is_said_and_voting_goes_on(opened):
    review = opened()
    review.score(2)
    with review.path.open("ab") as file:
        file.write(b'{"annotator": "ann", "id": "i0", "fie')
    for score in (2, 3):
        with warns(RuntimeWarning, match=r"ann.jsonl, line 2: cut short"):
            again = opened()
        assert again.goto("i0").votes == {"score": score}
        again.score(3)


def test_files_merge_by_standing_together_or_one_behind_the_other(opened, tmp_path):
    ann = opened("ann", folder="here")
    bob = opened("bob", folder="there")
    ann.score(4)
    ann.score(5)
    bob.better("both bad")
    both = tmp_path / "both"
    both.mkdir()
    (both / "all.jsonl").write_bytes(ann.path.read_bytes() + bob.path.read_bytes())  # cat
    assert list(opened("carol", folder="both").votes()["value"]) == [5, "both bad"]
    ann.score(2)
    (both / "ann.jsonl").write_bytes(ann.path.read_bytes())  # first lines now stand in two files
    assert set(opened("carol", folder="both").votes()["value"]) == {2, "both bad"}
    assert opened("ann", folder="both").undo().votes == {"score": 5}


@mark.parametrize(
    "change, message",
    [
        (None, "vote 1: no vote"),
        ({"collection": "0123"}, "vote 1: no vote on this collection"),
        ({"field": "mood"}, "is not a vote"),
        ({"field": "better", "value": 5}, "vote 1: the .*better.* 5 is not a vote"),
        ({"id": ["i1"]}, "is not a vote"),
        ({"field": "tags", "value": {"third": []}}, "vote 1: a vote about 'third', not under"),
    ],
)
def test_lines_that_are_no_votes_of_this_review_are_refused(opened, change, message):
    review = opened()
    review.score(1)
    log = Log(review.path)
    (line,) = log.read()
    review.path.unlink()
    log.append([line | change if change else {}])
    with raises(ReviewError, match=message):
        opened()


@mark.parametrize("name", ["../../etc/x", "名字", "x" * 300, "CON\n\ud800"])
def test_any_name_has_a_file_in_the_folder(opened, name):
    review = opened(name)
    review.score(3)
    assert [review.path] == list(review.path.parent.iterdir())
    assert opened(name).goto("i0").votes == {"score": 3}
    with raises(ValueError, match="annotator"):
        opened(" ")
    with raises(ReviewError, match="can't be written"):
        opened(name, folder=f"votes/{review.path.name}").score(1)


def test_a_review_opens_at_the_first_item_without_a_vote(opened):
    review = opened()
    for id in ("i0", "i1", "i3"):
        review.score(2, id=id)
    assert opened().case.item.id == "i2" and opened("bob").case.item.id == "i0"
    review.filter(criterion="odd")
    assert review.case.item.id == "i5"
    with raises(ReviewError, match="'i9' is not under review"):
        review.score(2, id="i9")


def test_every_flipped_bit_of_a_vote_is_seen(opened):
    review = opened()
    review.score(4)
    review.note("looks twice")
    whole = review.path.read_bytes()
    for place in range(0, 8 * len(whole) - 8, 5):  # all but the last line's end
        damaged = bytearray(whole)
        damaged[place // 8] ^= 1 << place % 8
        review.path.write_bytes(damaged)
        with warns(RuntimeWarning, match="cut short by a crash, or changed"):
            review.refresh()
        assert len(review.votes()) < 2


def test_votes_of_a_version_without_checksums_count_and_that_is_said(opened):
    review = opened()
    review.score(4)
    review.note("looks twice")
    votes = review.votes()
    lines = [re.sub(r', "crc": "\w{8}"', "", line) for line in review.path.read_text().split("\n")]
    review.path.write_text("\n".join(lines) + lines[0][:-1])  # and one that is cut short
    with warns(RuntimeWarning, match="2 lines are of a version without checksums"):
        opened()
    with warns(RuntimeWarning, match="line 3: cut short by a crash"):
        opened()
    assert review.votes().equals(votes)
    review.undo()
    assert opened().votes_on("i0") == {"score": 4}


def test_a_plan_deals_a_share_to_all_and_each_of_the_rest_to_one(opened):
    team = dict(annotators=["ann", "bob"], overlap=0.3, seed=1)
    ann, bob = opened("ann", **team), opened("bob", **team)
    assert ann.plan == bob.plan == {"ann": ann.listed, "bob": bob.listed}
    assert set(ann.listed) | set(bob.listed) == {f"i{n}" for n in range(N)}
    assert len(set(ann.listed) & set(bob.listed)) == 2 and len(ann.listed) == len(bob.listed) == 4
    ann.score(3)
    progress = ann.progress()
    assert progress.table[["assigned", "voted", "left"]].to_numpy().tolist() == [
        [4, 1, 3],
        [4, 0, 4],
    ]
    assert progress.reading == "Not done yet: ann and bob."
    with raises(ValueError, match="annotator 'carol' is unknown"):
        opened("carol", **team)


def test_the_time_left_is_the_median_gap_times_what_is_open(opened):
    review = opened()
    for minute, id in enumerate(["i0", "i1", "i2", "i3"]):
        review.score(3, id=id)
        review._log.lines[-1]["time"] = f"2026-01-01T00:0{minute * 2}:00+00:00"
    review._log.lines[-1]["time"] = "2026-01-01T09:00:00+00:00"  # after a night
    assert review.pace("ann") == (N, 4, 2, 4.0)  # gaps of 2, 2 and 536 minutes
    review.score(None, id="i1")  # a withdrawn vote is no vote, in every count
    assert review.pace("ann") == (N, 3, 3, 6.0)  # its time was spent
    assert review.voted.sum() == 3
    assert opened("bob", annotators=["bob"]).pace("ann")[:3] == (3, 3, 0)  # ann has no share here


RESULTS = ("preferences", "tags", "disagreements", "example", "progress")


def test_votes_become_scores_of_judges_and_people(opened):
    ann, bob = opened(), opened("bob")
    for n, score in enumerate(SCORES["second"]):
        ann.score(score, id=f"i{n}")
        bob.score(score, id=f"i{n}")
    scores = ann.scores()
    assert scores.judges == ["first", "second"] and scores.people == ["ann", "bob"]
    table = scores.correlate(n_resamples=0).table
    assert table.query("judge == 'second' and statistic == 'pearson'")["estimate"].tolist() == [1.0]
    assert "votes by 2 annotators" in scores.correlate(n_resamples=0).caption
    assert "simulated" not in scores.correlate(n_resamples=0).caption


def test_simulated_votes_say_so_in_the_data_and_in_every_caption(opened, tmp_path):
    review = opened(blind=True)
    review.score(3)
    review.better("left")
    votes = review.simulate_votes(share=1.0)
    assert len(review.votes()) == 2 and not review.votes()["simulated"].any()
    assert votes.votes()["simulated"].all() and set(votes.votes()["annotator"]) == {
        "simulated A",
        "simulated B",
    }
    before = len(votes.votes())
    assert len(review.simulate_votes(share=1.0).votes()) == before  # the same call adds nothing
    assert votes.human_scores()["simulated A"].notna().sum() == 5  # those with a truth
    for result in (votes.preferences(), votes.tags(), votes.scores().correlate(n_resamples=0)):
        assert "simulated votes by 2 annotators" in result.caption
    files = votes.export(tmp_path / "out").table.set_index("file")["path"]
    assert "simulated" in Path(files["preferences.tex"]).read_text()
    page = Path(files["review.html"]).read_text()
    assert "Votes of simulated A: " in page and "Votes of simulated B: " in page
    # one real vote among them: a flag decides, not a name
    real = opened("simulated C", folder="votes/simulated")
    real.better("both good", id="i3")
    assert "simulated votes of" in real.preferences().caption


@mark.parametrize("case", ["no votes", "one judge", "nobody has truth", "no verdict", "pairs"])
def test_each_result_is_computed_or_says_why(tmp_path, case):
    table, verdicts = rows(), runs()
    if case == "one judge":
        verdicts = runs("first")
    if case == "nobody has truth":
        table = [row | {"gold": None} for row in rows()]
    if case == "no verdict":
        verdicts = {name: run.assign(score=float("nan")) for name, run in runs().items()}
    if case == "pairs":
        table, verdicts = [PAIR], {}
    review = Review(table, verdicts, out=tmp_path, annotator="ann", blind=True)
    votes = review.simulate_votes()
    for view in (review.widget(), review.matrix()):
        assert hasattr(view, "widget") or view.reason
    for chosen in (review, votes):
        for name in RESULTS:
            result = getattr(chosen, name)()
            assert result.computed or len(result.reason) > 20
        assert chosen.export(tmp_path / "out").computed == (case != "pairs")
        for result in (chosen.scores().correlate(n_resamples=0), chosen.scores().agreement()):
            assert result.computed or len(result.reason) > 20
    if case == "pairs":
        with raises(ReviewError, match="each row here is a pair"):
            review.score(3)
