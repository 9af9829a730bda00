"""Few labels, and which to give next: by hand, and intervals that cover."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from vjudge.metrics import correlate, label_weights, next_labels
from vjudge.metrics.labels import FIRST_LABELS


def population(rng, n=500, rho=0.7):
    """Simulated scores of a judge with few low ones, and what people would say."""
    z = rng.standard_normal(n)
    human = rho * z + np.sqrt(1 - rho**2) * rng.standard_normal(n)
    return np.digitize(z, [-1.9, -1.2, -0.3, 0.9]) + 1.0, np.digitize(
        human, [-1.2, -0.5, 0.2, 1]
    ) + 1.0


def test_weights_undo_unequal_labelling():
    # Two strata of 100 and 4 items, four labels each: by hand, the labels of the large one count 25 times.
    x = np.array([1.0] * 100 + [2.0] * 4)
    y = np.full(104, np.nan)
    y[:4], y[100:] = [1, 1, 1, 3], [3, 3, 3, 1]
    r = np.corrcoef(x, [1.0] * 75 + [3.0] * 25 + [3.0] * 3 + [1.0])[0, 1]
    assert correlate(x, y, weights=label_weights(x, y)).loc["pearson", "estimate"] == pytest.approx(
        r, abs=1e-12
    )


def test_the_first_labels_go_to_every_stratum_and_no_item_twice():
    x, _ = population(np.random.default_rng(1))
    chosen = next_labels(x, np.full(500, np.nan), n=20, seed=3)
    assert chosen["position"].is_unique and (chosen["stratum"].value_counts() == FIRST_LABELS).all()
    assert (x[chosen["position"]] == chosen["judge"]).all()
    assert len(next_labels(x[:30], np.full(30, np.nan), n=99)) == 30


def test_labels_that_were_chosen_are_refused_unless_they_are_weighted():
    """Plain correlation of chosen labels is biased: .724 where the truth was .634 was seen, at a coverage of 82 %."""
    x, y = population(np.random.default_rng(5))
    human = pd.Series(np.nan, index=range(500))
    chosen = next_labels(x, human, n=60)["position"]
    human[chosen] = y[chosen]
    human.attrs["labelled_by"] = "next_best, by the score of tiny,"
    with pytest.raises(
        ValueError, match="y was labelled where next_best, by the score of tiny, chose.*weights="
    ):
        correlate(x, human)
    table = correlate(x, human, weights=label_weights(x, human))
    assert (table["low"] < table["estimate"]).all() and table["n"].eq(60).all()
    assert "stratified jackknife of 60 labels that stand for 500 items" in table.attrs["method"]
    grouped = correlate(x, human, weights=label_weights(x, human), groups=np.arange(500) // 5)
    assert (grouped["high"] - grouped["low"] > 0.7 * (table["high"] - table["low"])).all()


def test_strata_without_enough_labels_are_said():
    with pytest.warns(UserWarning, match="1 of 2 strata have no label"):
        assert label_weights([1] * 9 + [2] * 9, [3.0] * 9 + [np.nan] * 9).isna().all()
    with pytest.warns(UserWarning, match="single label"):
        table = correlate([1, 2, 3, 4], [1, 2, 2, 4], weights=[5, 2, 2, 2])
    assert table["estimate"].notna().all() and table["low"].isna().all()
    with pytest.raises(ValueError, match="must be positive: position 1"):
        correlate([1, 2, 3], [1, 2, 2], weights=[1, 0, 2])
    for n in (-1, 3.5, 0):
        with pytest.raises(ValueError, match="whole number from 1"):
            next_labels([1, 2, 3], [None] * 3, n=n)
