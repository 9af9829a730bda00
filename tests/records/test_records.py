"""Records: canonical rows in, sound objects out, and a clear refusal otherwise."""

import math

import numpy as np
import pytest

from vjudge.records import Criterion, Item, Rubric, as_score, is_missing

LEVELS = ("bad", "poor", "fair", "good", "best")
ANCHORS = {"0": "None is true.", "50": "Half is true.", "100": "All is true."}
NAMED = [
    {"name": "Accuracy", "criteria": "Are the facts right?", "weight": 3},
    {"name": "Errors", "criteria": "How much is invented?", "weight": 1},
]
POINT = {"name": "Sign", "criteria": "Is the sign read?", "descriptions": {"0": "No.", "1": "Yes."}}
DEPTH = {"name": "Depth", "criteria": "How deep?", "descriptions": ["a", "b", "c"], "lowest": 0}


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
        ({"criteria": [NAMED[0] | {"weight": 0}]}, "'Accuracy': the weight 0 is not above 0"),
        ({"criteria": [NAMED[0] | {"weight": -1}]}, "describe the worst level first"),
        ({"criteria": [NAMED[0] | {"weight": "much"}]}, "'much' is not a number"),
        ({"criteria": [POINT | {"descriptions": {0: "No."}}]}, "'Sign': has 1 level"),
        ({"criteria": [POINT | {"descriptions": {0: "No.", 1: "No."}}]}, "the same text"),
        ({"criteria": [POINT | {"descriptions": {1: "No.", "1": "Yes."}}]}, "score 1 stands twice"),
        ({"criteria": [POINT | {"descriptions": "no/yes"}]}, "'Sign': is not a list of texts"),
        ({"criteria": [DEPTH | {"lowest": 0.5}]}, "'Depth': 0.5 is not a whole number"),
        ({"criteria": [POINT | {"lowest": 1}]}, "lowest=1 is not its first level"),
        ({"criteria": [POINT | {"points": 3}]}, "'Sign': its points would not be used"),
        ({"criteria": [POINT, NAMED[0]], "descriptions": None}, "named criteria need a scale"),
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
    assert rubric.combined({"Accuracy": 5, "Errors": 2}) == (3 * 5 + 2) / 4
    assert (rubric.bounds, rubric.mixed) == ((1, 5), False)
    assert "Accuracy: Are the facts right?\nErrors:" in rubric.criteria
    assert rubric == Item.from_row(row(**rubric.as_row())).rubric
    unweighted = Item.from_row(row(criteria=[{"name": "Clear", "criteria": "Is it?"}])).rubric
    assert unweighted.named == (Criterion("Clear", "Is it?"),)


@pytest.mark.parametrize(
    ("descriptions", "named", "bounds", "mean"),
    [  # Sign 1 of 0 to 1 is all of its width, Depth 0 of 0 to 2 none, Accuracy 4 of 1 to 5 3/4
        (list(LEVELS), [POINT | {"weight": 3}, DEPTH], (1, 5), 1 + 4 * 3 / 4),
        (ANCHORS, [POINT, DEPTH], (0, 100), 50),
        (list(LEVELS), [POINT, NAMED[0]], (1, 5), 1 + 4 * (1 + 3 * 3 / 4) / 4),
        (None, [POINT, DEPTH], (0, 1), 1 / 2),  # of unequal scales the share
        (None, [DEPTH, DEPTH | {"name": "Sign"}], (0, 2), 1 / 2),  # of equal ones theirs
    ],
)
def test_each_criterion_has_its_own_scale(descriptions, named, bounds, mean):
    scores = {"Sign": 1, "Depth": 0, "Accuracy": 4}
    item = Item.from_row(row(criteria=named, descriptions=descriptions))
    assert (item.rubric.bounds, item.rubric.combined(scores)) == (bounds, mean)
    assert item.rubric == Item.from_row(row(**item.rubric.as_row())).rubric and hash(item.rubric)
    assert item.rubric.by_name[named[-1]["name"]].criteria == named[-1]["criteria"]


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
