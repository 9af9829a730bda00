"""Views of items, and what votes become: all that a reader needs is there, and hostile text is only text."""

from __future__ import annotations

import json
import re

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from PIL import Image
from reviews import HOSTILE, Reader, items, judged

from vjudge import data, review
from vjudge.records import Item
from vjudge.review import ANSWERS, TAGS, Review, collection, error_tags, export, preference

VERDICT = {
    "id": "i0", "judge": "tiny", "score": 4.0, "expected_score": 3.456, "feedback": "Nearly right.", "raw": "",
    "probabilities": {1: 0.01, 2: 0.02, 3: 0.3, 4: 0.6, 5: 0.07}, "failure": None,
}  # fmt: skip


def row(**changes):
    return {
        "id": "i0", "images": [Image.new("RGB", (800, 400), "red")], "instruction": "What is shown?",
        "response": "A red field.", "reference_answer": "A field, red all over.", "criteria": "Is it right?",
        "descriptions": ["level one", "level two", "level three", "level four", "level five"], "gold": 2.0,
        "feedback": "The field is red.", "human_scores": [2.0, 3.0], "group": "g",
    } | changes  # fmt: skip


def test_an_item_shows_all_its_parts_and_the_verdict_beside_the_truth():
    parts = (
        "i0",
        "What is shown?",
        "A red field.",
        "A field, red all over.",
        "Is it right?",
        "level five",
    )
    parts += ("The field is red.", "2, 3", "800 x 400", "true score")
    verdicts = (None, VERDICT, pd.Series(VERDICT))
    for view, more in zip(
        (review.show(row(), verdict=verdict) for verdict in verdicts), (0, 1, 1), strict=True
    ):
        for text in (Reader(view._repr_html_()).text, repr(view)):
            assert (
                all(part in text for part in (*parts, *("tiny", "3.46", "60%") * more))
                and ("Judge" in text) == more
            )
    assert "4 level four judge, 60%\n" in repr(view) and "2 level two true score, 2%\n" in repr(
        view
    )
    true = re.findall(
        r'<li class="vj-true" style="background-color[^>]*><b>(\d)</b>', view._repr_html_()
    )
    assert true == ["2"], "it stands out where the style sheet is dropped, too"
    with pytest.raises(ValueError, match="'i7', the item is 'i0'"):
        review.show(row(), verdict=VERDICT | {"id": "i7"})


def test_what_is_missing_or_failed_is_said():
    text = repr(
        review.show(
            row(reference_answer=None, gold=None, feedback=None, human_scores=None, images=[])
        )
    )
    assert "Reference answer: none given" in text and "True score: none" in text
    assert (
        "Reference feedback" not in text and "Human scores" not in text and "true score" not in text
    )
    view = review.show(row(images=["<b>gone</b>.png"]))
    assert "does not exist" in repr(view) and "<b>gone" not in view._repr_html_()
    failed = {
        "id": "i0",
        "score": float("nan"),
        "expected_score": float("nan"),
        "probabilities": None,
    }
    view = review.show(
        row(), verdict=failed | {"feedback": "", "raw": "I like it", "failure": "no verdict marker"}
    )
    assert (
        "no verdict marker" in repr(view) and "I like it" in repr(view) and "nan" not in repr(view)
    )


FIELDS = ("id", "instruction", "response", "reference_answer", "criteria", "feedback")


def all_views(text):
    changes = {name: f"{name} {text}" for name in FIELDS} | {
        "descriptions": [f"{i} {text}" for i in range(5)]
    }
    item = row(images=[Image.new("RGB", (2, 2))], **changes)
    verdict = {
        "judge": text,
        "feedback": f"x {text}",
        "id": changes["id"],
        "failure": f"y {text}",
        "raw": text,
    }
    yield review.show(item, verdict=VERDICT | verdict)
    yield review.show_case([item])
    yield review.contact_sheet([item["images"][0]], captions=[text])


def structure(view):
    reader = Reader(view._repr_html_())
    return reader.tags, [(tag, name) for tag, name, _ in reader.attributes]


@given(st.text(max_size=60))
@example(HOSTILE)
def test_any_text_is_only_text(text):
    for view, harmless in zip(all_views(text), all_views("harmless"), strict=True):
        assert structure(view) == structure(harmless)
        page = view._repr_html_()
        page.encode()
        assert page.startswith('<div class="vj tex2jax_ignore mathjax_ignore">'), (
            "dollars are no mathematics"
        )
        assert not {"\x1b", "\u202e"} & {*page, *repr(view)}, (
            "no terminal is steered, no text reordered"
        )


def test_a_case_is_sorted_by_score_and_shows_the_question_once():
    items = [
        row(id=f"i{n}", gold=gold, response=f"answer {n}")
        for n, gold in enumerate([5.0, None, 1.0])
    ]
    page = review.show_case([items[0], Item.from_row(items[1]), items[2]])._repr_html_()
    assert page.index("answer 2") < page.index("answer 0") < page.index("answer 1")
    assert page.count("What is shown?") == 1 and page.count("<img") == 1
    with pytest.raises(ValueError, match="instruction, group"):
        review.show_case([row(), row(instruction="Else?", group="h")])


def test_contact_sheet_shows_every_image_or_why_not():
    view = review.contact_sheet([Image.new("RGB", (9, 8)), b"broken"], image_size=4)
    assert repr(view).startswith("9 x 8\nno image: ")
    with pytest.raises(ValueError):
        review.contact_sheet([b"", b""], captions=["x"])


def test_votes_become_a_collection_with_human_scores(opened):
    ann, bob = opened(), opened("bob")
    with pytest.raises(ValueError, match="no item has a score"):
        collection(items(), ann)
    for id, score in (("i0", 1), ("i2", 4), ("i4", 5)):
        ann.goto(id)
        ann.score(score)
    bob.goto("i2")
    bob.score(2)
    rows = collection(items(), ann)
    assert list(rows["id"]) == ["i0", "i2", "i4"] and rows["annotators"][0] == ["ann", "bob"]
    np.testing.assert_array_equal(rows["human_scores"], [[1, np.nan], [4, 2], [5, np.nan]])
    data.validate(rows)


def test_counts_of_answers_and_tags(opened):
    ann = opened()
    for answer in ANSWERS:
        ann.better(answer)
        ann.tag(TAGS[2], side="right")
        ann.step()
    shares = preference(ann)
    assert shares["estimate"].to_dict() == {
        "left": 0.25, "right": 0.25, "both_good": 0.25, "both_bad": 0.25, "left_as_good_or_better": 0.5,
        "right_as_good_or_better": 0.5, "left_of_decided": 0.5, "left_ties_half": 0.5,
    }  # fmt: skip
    assert shares.attrs["words"]["left"] == "first is better" and (shares["n"].iloc[:4] == 4).all()
    tags = error_tags(ann).set_index(["judge", "tag"])
    assert tags.loc[("second", TAGS[2]), ["count", "n", "share"]].tolist() == [4, 4, 1.0]
    assert tags.loc[("first", TAGS[2]), "count"] == 0
    # Wilson's interval of 4 in 4: z^2 / (n + z^2) is its distance from one.
    assert tags.loc[("second", TAGS[2]), "low"] == pytest.approx(
        1 - 1.959964**2 / (4 + 1.959964**2), abs=1e-6
    )
    with pytest.raises(ValueError, match="between two judges; under review: first"):
        preference(opened(folder="one", judges=("first",)))


def test_export_writes_what_can_be_read_again_and_no_formula(opened, tmp_path):
    ann = opened("=cmd", tags=("@tag", *TAGS))
    ann.score(2)
    ann.better("left")
    ann.tag("@tag", side="left")
    ann.note("=HYPERLINK(1) </script> \u202e $x$")
    paths = {path.name: path for path in export(items(), ann, tmp_path / "out")}
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


def test_the_page_holds_no_more_than_its_annotator_may_see_and_no_markup(tmp_path):
    runs = {
        name: judged(name).assign(feedback=f"{HOSTILE} Score: 4") for name in ("first", "second")
    }
    ann = Review(items(), runs, out=tmp_path / "votes", annotator=HOSTILE, blind=True)
    ann.better("left")
    page = export(items(), ann, tmp_path / "export")[-1].read_text(encoding="utf-8")
    assert not {"script", "a", "svg"} & set(Reader(page).tags) and "default-src 'none'" in page
    assert page.count('<img src="data:') == 6 and "\x1b" not in page and "\u202e" not in page
    assert page.count("Score: 4") == 2 and page.count("Score: [hidden]") == 10
    assert page.count("Left: ") == 1, "one item has its vote"
