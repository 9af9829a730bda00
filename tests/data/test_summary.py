"""Summaries of a collection, on rows whose answers are counted by hand and against SciPy and scikit-learn."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import samples
from samples import png
from scipy import stats
from sklearn.metrics import roc_auc_score

from vjudge import data
from vjudge.records import Item

LEVELS = ["bad", "fair", "good"]


def row(number, **changes):
    changes = {"criteria": "Right?", "descriptions": LEVELS, "gold": 1.0, "group": f"g{number}", **changes}
    return samples.row(f"i{number}", images=changes.pop("images", []), **changes)


def test_cases_are_the_responses_to_one_question():
    changes = [{"gold": 3.0}, {"gold": 1.0}, {"gold": None}, {"reference_answer": "a dog"}, {"group": "b"}]
    changes.append({"descriptions": ["bad", "fair", "best"]})
    cases = data.cases([row(n, **{"group": "a", **change}) for n, change in enumerate(changes)])
    assert cases["rows"].tolist() == [[0, 1, 2], [3], [4], [5]] and cases["n"].tolist() == [3, 1, 1, 1]
    assert cases["scores"].tolist() == [[1.0, 3.0], [1.0], [1.0], [1.0]]
    assert cases["reference"].tolist() == [False, True, False, False]


def test_levels_are_those_of_every_rubric():
    assert data.levels([row(0), row(1, lowest=0), row(2, descriptions=None)]) == [0, 1, 2, 3]


def texts(lengths, golds, groups=None):
    groups = range(len(golds)) if groups is None else groups
    return [
        row(i, response=" ".join("w" * int(n)), gold=gold, group=str(group))
        for i, (n, gold, group) in enumerate(zip(lengths, golds, groups, strict=True))
    ]


def test_auc_by_hand():
    # Pairs of different score: (1, 2) 1 < 3 won, (1, 3) 1 < 2 won, (2, 3) 3 > 2 lost, and the second 1 (of length 2):
    # against 2 won, against 3 a tie. 3.5 of 5.
    rows = texts([1, 2, 3, 2], [1, 1, 2, 3])
    assert data.lengths(rows)[["words", "characters"]].iloc[:2].to_numpy().tolist() == [[1, 1], [2, 3]]
    table = data.length_test(rows, n_resamples=0)
    assert table.at["words", "auc"] == pytest.approx(3.5 / 5) and np.isnan(table.at["words", "low"])


def test_length_test_equals_scipy_and_scikit_learn():
    rng = np.random.default_rng(3)
    golds = rng.integers(1, 3, 80).astype(float)
    lengths = rng.integers(1, 12, 80) + golds

    def auc(places):
        return roc_auc_score(golds[places] == 2, lengths[places])

    words = data.length_test(texts(lengths, golds), n_resamples=2_000).loc["words"]
    bootstrap = stats.bootstrap((np.arange(80),), auc, n_resamples=500, vectorized=False, method="percentile", rng=0)
    assert words["auc"] == pytest.approx(auc(np.arange(80)))
    assert [words["low"], words["high"]] == pytest.approx(list(bootstrap.confidence_interval), abs=0.02)


def test_interval_is_of_the_groups_and_covers():
    rng = np.random.default_rng(0)
    golds, lengths = np.tile([1.0, 2.0], 60), rng.integers(5, 30, 120)
    alone = data.length_test(texts(lengths, golds), n_resamples=400).loc["words"]
    four = texts(np.repeat(lengths, 4), np.repeat(golds, 4), np.repeat(np.arange(120), 4))
    copied = data.length_test(four, n_resamples=400).loc["words"]
    # Four copies of every item in its own group are no more evidence than one.
    assert copied["auc"] == pytest.approx(alone["auc"]) and alone["low"] < 0.5 < alone["high"]
    assert copied["high"] - copied["low"] == pytest.approx(alone["high"] - alone["low"], rel=0.15)


def test_planted_length_is_found_and_equal_lengths_are_certain():
    golds = np.tile([1.0, 2.0, 3.0], 10)
    longer = data.length_test(texts(golds * 4, golds), n_resamples=100).loc["words"]
    assert longer["auc"] == longer["low"] == longer["high"] == 1.0
    same = data.length_test(texts(np.full(30, 5), golds), n_resamples=100).loc["words"]
    assert same["auc"] == same["low"] == same["high"] == 0.5
    table = data.length_test([row(0), row(1, gold=None), row(2, response=None)])
    assert table["n"].tolist() == [1, 1] and table["missing"].tolist() == [2, 2] and table["auc"].isna().all()


@pytest.mark.parametrize("name", ["cases", "lengths", "levels"])
def test_a_dataset_rows_and_items_give_the_same_and_nothing_gives_nothing(name):
    rows = [row(i, images=[{"bytes": png((i, 0, 0)), "path": None}], reference_answer="a cat") for i in range(3)]
    function = getattr(data, name)
    frames = [pd.DataFrame(function(each)) for each in (data.canonical(rows), [Item.from_row(made) for made in rows])]
    for frame in frames:
        pd.testing.assert_frame_equal(frame, pd.DataFrame(function(rows)))
    assert len(function([])) == 0
    bare = [{"id": str(n), "instruction": "What?", "response": "A cat.", "gold": 80 + n} for n in range(2)]
    assert len(function(bare)) == (0 if name == "levels" else 2)  # without rubrics, too
