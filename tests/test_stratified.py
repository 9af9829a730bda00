"""Labelling some of the items: strata, the estimate of all of them, and what to label next."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from vjudge import plots, simulate
from vjudge.metrics import correlate
from vjudge.metrics.stratified import FIRST_LABELS, allocate, correlate_labelled, strata


def population(rng, n=500, rho=0.7):
    """Simulated scores of a judge with few low ones, and what people would say."""
    z = rng.standard_normal(n)
    human = rho * z + np.sqrt(1 - rho**2) * rng.standard_normal(n)
    return np.digitize(z, [-1.9, -1.2, -0.3, 0.9]) + 1.0, np.digitize(human, [-1.2, -0.5, 0.2, 1]) + 1.0


def test_strata_are_scores_and_small_ones_join_a_neighbour():
    judge = [1] + [2] * 5 + [3] * 5 + [5] * 2 + [np.nan]
    assert list(strata(judge)) == [0] + [0] * 5 + [1] * 5 + [1] * 2 + [-1]
    many = strata(np.linspace(0, 1, 1000))
    assert np.array_equal(np.bincount(many), np.full(10, 100))


def test_labels_of_everything_give_the_plain_correlation():
    x, y = population(np.random.default_rng(0), n=200)
    found = correlate_labelled(x, y)
    expected = [stats.pearsonr(x, y)[0], stats.spearmanr(x, y)[0], stats.kendalltau(x, y)[0]]
    np.testing.assert_allclose(found["estimate"], expected, atol=1e-10)
    assert found["estimate"].between(found["low"], found["high"]).all() and (found["n"] == 200).all()


def test_weights_undo_unequal_labelling():
    # Two strata of 100 and 4 items, four labels each: by hand, the labels of the large one count 25 times.
    x = np.array([1.0] * 100 + [2.0] * 4)
    y = np.full(104, np.nan)
    y[:4], y[100:] = [1, 1, 1, 3], [3, 3, 3, 1]
    full = np.concatenate([[1.0] * 75, [3.0] * 25, [3.0] * 3, [1.0]])
    assert correlate_labelled(x, y).loc["pearson", "estimate"] == pytest.approx(np.corrcoef(x, full)[0, 1], abs=1e-12)
    assert abs(correlate(x, y, n_resamples=0).loc["pearson", "estimate"] - np.corrcoef(x, full)[0, 1]) > 0.2


def test_the_first_labels_go_to_every_stratum_and_no_item_twice():
    x, _ = population(np.random.default_rng(1))
    chosen = allocate(x, np.full(500, np.nan), n=20, seed=3)
    assert chosen["position"].is_unique and (chosen["stratum"].value_counts() == FIRST_LABELS).all()
    assert (x[chosen["position"]] == chosen["judge"]).all()
    pd.testing.assert_frame_equal(chosen, allocate(x, np.full(500, np.nan), n=20, seed=3))
    assert len(allocate(x[:30], np.full(30, np.nan), n=99)) == 30


def test_labels_go_where_they_take_most_off_the_variance():
    x, y = population(np.random.default_rng(2))
    human = np.full(500, np.nan)
    human[allocate(x, human, n=40)["position"]] = 0
    human = np.where(np.isnan(human), np.nan, y)
    chosen = allocate(x, human, n=60)
    assert chosen["gain"].between(0, 1, inclusive="neither").all()
    labels = chosen["stratum"].value_counts().sort_index() + 8
    share = np.bincount(strata(x)) / len(x)
    assert labels[0] / share[0] > 2 * labels[3] / share[3], "rare extreme scores tell more about a correlation"


@pytest.mark.parametrize(
    ("judge", "human", "message"),
    [
        ([1.0] * 9, [1.0, 2.0] + [np.nan] * 7, "undefined"),
        ([1.0, 2.0] * 9, [3.0] * 18, "undefined"),
        (pd.Series([1.0, 2, 3]), pd.Series([1.0, 2, 3], index=[2, 1, 0]), "different indexes"),
        (list("abc"), [1, 2, 3], "numbers"),
        ([1, 2], [1], "labels?"),
    ],
)
def test_degenerate_input(judge, human, message):
    if message == "undefined":
        with pytest.warns(UserWarning, match=message):
            assert correlate_labelled(judge, human)["estimate"].isna().all()
    else:
        with pytest.raises((TypeError, ValueError), match=message):
            correlate_labelled(judge, human)


def test_chosen_labels_give_narrower_intervals_that_still_cover():
    """150 simulated reviews of 60 labels among 500: chosen ones against random order."""
    truth = np.corrcoef(*population(np.random.default_rng(99), n=1_000_000))[0, 1]
    found = {"chosen": [], "random": []}
    for seed in range(150):
        rng = np.random.default_rng(seed)
        x, y = population(rng)
        drawn, chosen = np.full(500, np.nan), np.full(500, np.nan)
        order = rng.permutation(500)[:60]
        drawn[order] = y[order]
        while np.isfinite(chosen).sum() < 60:
            batch = allocate(x, chosen, n=10, seed=10_000 + seed)["position"]
            chosen[batch] = y[batch]
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            found["chosen"].append(correlate_labelled(x, chosen).loc["pearson"])
        found["random"].append(correlate(x, drawn, n_resamples=1_000, seed=seed).loc["pearson"])
    tables = {name: pd.DataFrame(rows) for name, rows in found.items()}
    width = {name: (table["high"] - table["low"]).mean() for name, table in tables.items()}
    assert width["chosen"] < 0.9 * width["random"], "about .26 against .30: as good as 28 % fewer labels"
    covered = {name: table["low"].le(truth) & table["high"].ge(truth) for name, table in tables.items()}
    # At a true coverage of .95, 150 reviews show less than .90 once in 200 times.
    assert covered["chosen"].mean() >= 0.90 and covered["random"].mean() >= 0.90
    assert abs(tables["chosen"]["estimate"].mean() - truth) < 0.02


def test_the_study_of_labelling_shows_what_choosing_is_worth():
    found = simulate.labelling(n_items=300, budgets=(40, 80), simulations=25, n_resamples=200)
    width = found.pivot(index="labels", columns="order", values="width")
    assert (width["chosen"] < width["random"]).all() and (width.loc[80] < width.loc[40]).all()
    assert found["covered"].between(0.6, 1).all() and (found["simulations"] == 25).all()
    fig = plots.label_curve(found)
    assert fig.axes[0].get_xlabel() == "labelled items" and len(fig.axes[0].containers) == 2
