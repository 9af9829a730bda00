"""Records: canonical rows in, sound objects out, and a clear refusal otherwise."""

import math

import numpy as np
import pytest

from vjudge.records import Criterion, Item, Rubric, as_score, is_missing, weighted_mean

LEVELS = ("bad", "poor", "fair", "good", "best")
ANCHORS = {"0": "None is true.", "50": "Half is true.", "100": "All is true."}
NAMED = [
    {"name": "Accuracy", "criteria": "Are the facts right?", "weight": 3},
    {"name": "Errors", "criteria": "How much is invented?", "weight": -1},
]


def row(**changes):
    base = {"id": "a", "instruction": "Describe.", "response": "A cat."}
    return {**base, "criteria": "Is it right?", "descriptions": list(LEVELS), **changes}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"criteria": " "}, "criteria: is missing or blank"),
        ({"criteria": None}, "criteria: is missing or blank"),
        ({"descriptions": ["no"]}, "1 level"),
        ({"descriptions": ["no", "", "yes"]}, "score 2 is missing or blank"),
        ({"descriptions": ["no", "yes", " no"]}, "two levels are the same text"),
        ({"descriptions": {"1": "no", "2.5": "yes"}}, "'2.5' is not a whole number"),
        ({"descriptions": {"1": "no", "top": "yes"}}, "'top' is not a number"),
        ({"descriptions": {"1": "no", "5": None}}, "1 level"),
        ({"criteria": [{"name": "Accuracy"}]}, "has no name, or no text"),
        ({"criteria": ["Accuracy"]}, "is not an object with a name"),
        ({"criteria": [NAMED[0], NAMED[0]]}, "a name stands twice"),
        ({"criteria": [NAMED[0] | {"weight": 0}]}, "all weights are 0"),
        ({"criteria": NAMED, "descriptions": None}, "named criteria need a scale"),
    ],
)
def test_an_unsound_rubric_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        Item.from_row(row(**changes))
    with pytest.raises(ValueError, match="is not a list of texts"):
        Rubric("Right?", "no yes")


def test_a_rubric_of_anchors_spans_their_whole_scale():
    rubric = Item.from_row(row(descriptions=ANCHORS | {"7": None})).rubric
    assert rubric.scores == tuple(range(101))
    assert (rubric.lowest, rubric.highest) == (0, 100)
    assert rubric.levels == [(int(score), text) for score, text in ANCHORS.items()]
    assert rubric == Item.from_row(row(**rubric.as_row())).rubric and hash(rubric)


def test_named_criteria_are_combined_by_their_weights():
    rubric = Item.from_row(row(criteria=NAMED)).rubric
    assert rubric.weights == {"Accuracy": 3.0, "Errors": -1.0}
    assert weighted_mean({"Accuracy": 5, "Errors": 2}, rubric.weights) == (3 * 5 - 2) / 4
    assert rubric.bounds == ((3 * 1 - 5) / 4, (3 * 5 - 1) / 4)
    assert "Accuracy: Are the facts right?\nErrors:" in rubric.criteria
    assert rubric == Item.from_row(row(**rubric.as_row())).rubric
    unweighted = Item.from_row(row(criteria=[{"name": "Clear", "criteria": "Is it?"}])).rubric
    assert unweighted.named == (Criterion("Clear", "Is it?"),)


def test_a_full_row_comes_through_unchanged():
    item = Item.from_row(
        row(id=7, gold="4", human_scores=[4, None, "5"], lowest=0, reference_answer=" A cat. ")
    )
    assert (item.id, item.gold, item.group, item.reference_answer) == ("7", 4, "7", " A cat. ")
    assert np.array_equal(item.human_scores, [4, math.nan, 5], equal_nan=True)
    assert item.rubric.scores == (0, 1, 2, 3, 4)


@pytest.mark.parametrize("bad", ["four", "4/5", True, float("inf"), [4], "9" * 5000])
def test_missing_and_scores(bad):
    assert is_missing(None) and is_missing(np.float32("nan")) and not is_missing("nan")
    assert as_score("4") == 4 and math.isnan(as_score("  "))
    with pytest.raises(ValueError, match="is not a number"):
        as_score(bad)
