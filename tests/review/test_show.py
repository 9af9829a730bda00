"""Views of items: all that a reader needs is there, and hostile text is only text."""

from __future__ import annotations

import re

import pandas as pd
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from PIL import Image
from reviews import HOSTILE, Reader

from vjudge import review
from vjudge.records import Item

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
    parts = ("i0", "What is shown?", "A red field.", "A field, red all over.", "Is it right?", "level five")
    parts += ("The field is red.", "2, 3", "800 x 400", "true score")
    verdicts = (None, VERDICT, pd.Series(VERDICT))
    for view, more in zip((review.show(row(), verdict=verdict) for verdict in verdicts), (0, 1, 1), strict=True):
        for text in (Reader(view._repr_html_()).text, repr(view)):
            assert all(part in text for part in (*parts, *("tiny", "3.46", "60%") * more)) and ("Judge" in text) == more
    assert "4 level four judge, 60%\n" in repr(view) and "2 level two true score, 2%\n" in repr(view)
    true = re.findall(r'<li class="vj-true" style="background-color[^>]*><b>(\d)</b>', view._repr_html_())
    assert true == ["2"], "it stands out where the style sheet is dropped, too"
    with pytest.raises(ValueError, match="'i7', the item is 'i0'"):
        review.show(row(), verdict=VERDICT | {"id": "i7"})


def test_what_is_missing_or_failed_is_said():
    text = repr(review.show(row(reference_answer=None, gold=None, feedback=None, human_scores=None, images=[])))
    assert "Reference answer: none given" in text and "True score: none" in text
    assert "Reference feedback" not in text and "Human scores" not in text and "true score" not in text
    view = review.show(row(images=["<b>gone</b>.png"]))
    assert "does not exist" in repr(view) and "<b>gone" not in view._repr_html_()
    failed = {"id": "i0", "score": float("nan"), "expected_score": float("nan"), "probabilities": None}
    view = review.show(row(), verdict=failed | {"feedback": "", "raw": "I like it", "failure": "no verdict marker"})
    assert "no verdict marker" in repr(view) and "I like it" in repr(view) and "nan" not in repr(view)


FIELDS = ("id", "instruction", "response", "reference_answer", "criteria", "feedback")


def all_views(text):
    changes = {name: f"{name} {text}" for name in FIELDS} | {"descriptions": [f"{i} {text}" for i in range(5)]}
    item = row(images=[Image.new("RGB", (2, 2))], **changes)
    verdict = {"judge": text, "feedback": f"x {text}", "id": changes["id"], "failure": f"y {text}", "raw": text}
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
        assert page.startswith('<div class="vj tex2jax_ignore mathjax_ignore">'), "dollars are no mathematics"
        assert not {"\x1b", "\u202e"} & {*page, *repr(view)}, "no terminal is steered, no text reordered"


def test_a_case_is_sorted_by_score_and_shows_the_question_once():
    items = [row(id=f"i{n}", gold=gold, response=f"answer {n}") for n, gold in enumerate([5.0, None, 1.0])]
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
