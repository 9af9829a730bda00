"""Votes on disk: nothing is lost by a kill, files merge by standing together, and foreign ones are refused."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap

import pytest
from reviews import items, runs

from vjudge.review import Review, ReviewError


def lines(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_a_vote_is_a_line_and_the_last_one_wins(opened):
    review = opened()
    assert not review.path.parent.exists(), "looking leaves no file"
    review.score(4)
    review.score(5)
    review.tag("too critical", side="left")
    votes = lines(review.path)
    assert [(vote["annotator"], vote["id"], vote["field"], vote["value"]) for vote in votes] == [
        ("ann", "i0", "score", 4), ("ann", "i0", "score", 5), ("ann", "i0", "tags", {"first": ["too critical"]})
    ]  # fmt: skip
    again = opened()
    assert again.case.votes == {"score": 5, "tags": {"left": ["too critical"]}} and len(lines(review.path)) == 3


def test_undo_appends_what_was_there_before(opened):
    review = opened(blind=True)
    review.score(2)
    review.score(3)
    review.step()
    review.better("left")
    assert review.undo().votes == {} and review.case.item.id == "i1" and not review.case.revealed
    assert review.undo().votes == {"score": 2} and review.case.item.id == "i0"
    again = opened(blind=True)
    assert again.undo().votes == {} and again.votes().empty
    with pytest.raises(ReviewError, match="nothing to undo"):
        again.undo()
    assert [(vote["id"], vote["value"]) for vote in lines(review.path)[3:]] == [("i1", None), ("i0", 2), ("i0", None)]


SCRIPT = textwrap.dedent(
    """
    import sys
    sys.path.insert(0, {tests!r})
    from reviews import items, runs
    from vjudge.review import Review
    review = Review(items(), runs(), out={out!r}, annotator="killed")
    for turn in range(100_000):
        review.goto(f"i{{turn % 6}}")
        review.score(turn % 5 + 1)
        print(turn, flush=True)
    """
)


def test_a_killed_kernel_loses_no_vote(tmp_path, opened):
    code = SCRIPT.format(tests=os.path.dirname(__file__), out=str(tmp_path / "votes"))
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    for _ in range(20):
        process.stdout.readline()
    process.send_signal(signal.SIGKILL)
    cast = 20 + len(process.stdout.read().splitlines())
    process.wait()
    whole = (tmp_path / "votes" / "killed.jsonl").read_bytes().split(b"\n")[:-1]
    assert len(whole) in (cast, cast + 1)
    assert opened("killed").voted.all()


def test_a_torn_last_line_is_said_and_voting_goes_on(opened):
    review = opened()
    review.score(2)
    with review.path.open("ab") as file:
        file.write(b'{"annotator": "ann", "id": "i0", "fie')
    with pytest.warns(RuntimeWarning, match=r"ann.jsonl, line 2: cut short"):
        again = opened()
    assert again.case.votes == {"score": 2}
    again.score(3)
    with pytest.warns(RuntimeWarning, match="line 2: cut short"):
        assert opened().case.votes == {"score": 3}


def test_files_merge_by_standing_together_or_one_behind_the_other(opened, tmp_path):
    ann, bob = opened("ann", folder="here"), opened("bob", folder="there")
    ann.score(4)
    ann.score(5)
    bob.score(1)
    bob.better("both bad")
    both = tmp_path / "both"
    both.mkdir()
    (both / "all.jsonl").write_bytes(ann.path.read_bytes() + bob.path.read_bytes())  # cat ann.jsonl bob.jsonl
    expected = {"ann": {"score": 5}, "bob": {"score": 1, "better": "both bad"}}
    review = opened("carol", folder="both")
    assert review.case.others == expected and review.annotators == ["ann", "bob"]
    ann.score(2)
    (both / "ann.jsonl").write_bytes(ann.path.read_bytes())  # its first lines stand in two files now
    assert opened("carol", folder="both").case.others == expected | {"ann": {"score": 2}}
    assert len(opened("ann", folder="both").votes()) == 3
    assert opened("ann", folder="both").undo().votes == {"score": 5}


def test_votes_on_something_else_are_refused(opened, tmp_path):
    review = opened()
    review.score(1)
    review.better("left")
    with pytest.raises(ReviewError, match='line 2: a vote about "first", not under review'):
        opened(judges=("second",))
    fewer = {name: run.head(3) for name, run in runs().items()}
    with pytest.raises(ReviewError, match="line 1: a vote on another collection"):
        Review(items().select(range(3)), fewer, out=tmp_path / "votes", annotator="ann")
    with pytest.raises(ReviewError, match="is a file: give a folder"):
        Review(items(), runs(), out=review.path, annotator="ann")


@pytest.mark.parametrize(
    ("change", "message"),
    [(None, "line 1: not a vote"), ({"value": "4"}, "is not a vote"), ({"field": "mood"}, "is not a vote")],
)
def test_lines_that_are_no_votes_are_refused(opened, change, message):
    review = opened()
    review.score(1)
    review.path.write_text(json.dumps(change and lines(review.path)[0] | change) + "\n")
    with pytest.raises(ReviewError, match=message):
        opened()


@pytest.mark.parametrize("name", ["../../etc/x", "a/b", "名字", " ", "x" * 300, "CON\n\ud800"])
def test_any_name_has_a_file_in_the_folder(tmp_path, name):
    if not name.strip():
        with pytest.raises(ValueError, match="annotator"):
            Review(items(), runs(), out=tmp_path, annotator=name)
        return
    review = Review(items(), runs(), out=tmp_path / "v", annotator=name)
    review.score(3)
    assert [review.path] == list((tmp_path / "v").iterdir())
    assert Review(items(), runs(), out=tmp_path / "v", annotator=name).case.votes == {"score": 3}


def test_each_vote_waits_for_the_disk_and_a_full_one_casts_none(opened, monkeypatch):
    review, sizes = opened(), []
    monkeypatch.setattr(os, "fsync", lambda descriptor: sizes.append(os.fstat(descriptor).st_size))
    review.score(3)
    assert sizes == [review.path.stat().st_size]

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ReviewError, match="No space left on device; nothing was voted"):
        review.score(4)
