"""What votes become: a collection with human scores, preferences, tags, files that are safe to open."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from reviews import HOSTILE, Reader, items, judged

from vjudge import data
from vjudge.metrics import correlate
from vjudge.review import ANSWERS, TAGS, Review, collection, error_tags, export, preference


def test_votes_become_a_collection_with_human_scores(opened):
    review, bob = opened(), opened("bob")
    with pytest.raises(ValueError, match="no item has a score"):
        collection(items(), review)
    for id, score in (("i0", 1), ("i2", 4), ("i4", 5)):
        review.goto(id)
        review.score(score)
    bob.goto("i2")
    bob.score(2)
    rows = collection(items(), review)
    assert list(rows["id"]) == ["i0", "i2", "i4"] and rows["annotators"][0] == ["ann", "bob"]
    np.testing.assert_array_equal(rows["human_scores"], [[1, np.nan], [4, 2], [5, np.nan]])
    data.validate(rows)


def test_counts_of_answers_and_tags(opened):
    review = opened()
    for answer in ANSWERS:
        review.better(answer)
        review.tag(TAGS[2], side="right")
        review.step()
    shares = preference(review)
    assert shares["estimate"].to_dict() == {
        "left": 0.25, "right": 0.25, "both_good": 0.25, "both_bad": 0.25, "left_as_good_or_better": 0.5,
        "right_as_good_or_better": 0.5, "left_of_decided": 0.5, "left_ties_half": 0.5,
    }  # fmt: skip
    assert shares.attrs["words"]["left"] == "first is better" and (shares["n"].iloc[:4] == 4).all()
    tags = error_tags(review).set_index(["judge", "tag"])
    assert tags.loc[("second", TAGS[2]), ["count", "n", "share"]].tolist() == [4, 4, 1.0]
    assert tags.loc[("first", TAGS[2]), "count"] == 0
    # Wilson's interval of 4 in 4: z^2 / (n + z^2) is its distance from one.
    assert tags.loc[("second", TAGS[2]), "low"] == pytest.approx(1 - 1.959964**2 / (4 + 1.959964**2), abs=1e-6)
    with pytest.raises(ValueError, match="between two judges; under review: first"):
        preference(opened(folder="one", judges=("first",)))


def test_export_writes_what_can_be_read_again_and_no_formula(opened, tmp_path):
    review = opened("=cmd", tags=("@tag", *TAGS))
    review.score(2)
    review.better("left")
    review.tag("@tag", side="left")
    review.note("=HYPERLINK(1) </script> \u202e $x$")
    paths = {path.name: path for path in export(items(), review, tmp_path / "out")}
    assert set(paths) == {
        "votes.csv", "votes.jsonl", "collection", "error_tags.csv", "error_tags.tex", "preferences.csv",
        "preferences.tex", "review.html",
    }  # fmt: skip
    again = data.load_collection(str(paths["collection"]))
    assert again["human_scores"] == [[2.0]] and again[0]["images"][0].size == (8, 8)
    votes = [json.loads(line) for line in paths["votes.jsonl"].read_text().splitlines()]
    assert votes[-1]["value"].startswith("=HYPERLINK") and votes[0]["annotator"] == "=cmd"
    for path in (path for path in paths.values() if path.suffix == ".csv"):
        cells = pd.read_csv(path, dtype=str).fillna("").to_numpy().ravel()
        assert not [cell for cell in cells if cell.startswith(tuple("=+@"))]
    assert "toprule" in paths["error_tags.tex"].read_text()
    shares = pd.read_csv(paths["preferences.csv"]).set_index("answer")["estimate"]
    assert shares["first is better"] == 1


def test_weights_go_with_the_collection(opened, tmp_path):
    review = opened(judges=("second",))
    for id in review.next_best(4)["id"]:
        review.goto(id)
        review.score(3 if id == "i0" else 4)
    rows = data.load_collection(str(export(items(), review, tmp_path / "export")[2]))
    assert sum(rows["weight"]) == pytest.approx(6)
    without = rows.remove_columns("gold")
    with pytest.raises(ValueError, match="the review that left a column `weight` chose"):
        correlate([1.0, 2, 3, 4], data.truth(without), n_resamples=0)


def test_the_page_holds_no_more_than_its_annotator_may_see_and_no_markup(tmp_path):
    runs = {name: judged(name).assign(feedback=f"{HOSTILE} Score: 4") for name in ("first", "second")}
    review = Review(items(), runs, out=tmp_path / "votes", annotator=HOSTILE, blind=True)
    review.better("left")
    page = export(items(), review, tmp_path / "export")[-1].read_text(encoding="utf-8")
    assert not {"script", "a", "svg"} & set(Reader(page).tags) and "default-src 'none'" in page
    assert page.count('<img src="data:') == 6 and "\x1b" not in page and "\u202e" not in page
    assert page.count("Score: 4") == 2 and page.count("Score: [hidden]") == 10
    assert page.count("Left: ") == 1, "one item has its vote"
