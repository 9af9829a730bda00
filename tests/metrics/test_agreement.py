"""Agreement of raters: by hand, published tables, krippendorff, SciPy and scikit-learn."""

from __future__ import annotations

import itertools
import warnings

import krippendorff
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from sklearn.metrics import cohen_kappa_score

from vjudge.metrics import agreement, human_ceiling, rater_table


def estimates(ratings, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return agreement(ratings, n_resamples=0, **options)["estimate"]


def simulated(n=120, raters=3, missing=0.2):
    rng = np.random.default_rng(0)
    scores = 3 + rng.normal(size=(n, 1)) + 0.7 * rng.normal(size=(n, raters))
    table = np.clip(np.round(scores), 1, 5)
    table[rng.random(table.shape) < missing] = np.nan
    return table


FOUR_JUDGES = [[9, 2, 5, 8], [6, 1, 3, 2], [8, 4, 6, 8], [7, 1, 2, 6], [10, 5, 6, 9], [6, 2, 4, 7]]
SKEWED = [[1, 1]] * 118 + [[1, 0]] * 5 + [[0, 1]] * 2
BY_HAND = {
    # Pairs (1,1) (2,2) (3,3) (1,2): exact 3/4, within one 4/4. Cohen: chance (2·1 + 1·2 + 1·1)/16 =
    # 5/16, (3/4 - 5/16) / (11/16) = 7/11. Quadratic: observed 1/4; expected mean of (a - b)² over
    # all 16 = 20/16; 1 - (1/4)/(20/16) = 0.8. Krippendorff, nominal: 8 values, levels 3, 3, 2;
    # observed 2/8; expected 1 - (6 + 6 + 2)/56 = 42/56. AC1: shares 3/8, 3/8, 2/8, chance
    # (15 + 15 + 12)/64 / 2 = 21/64. AC2: weights 1, 3/4, 0 of distances 0, 1, 2, sum 6; agreement
    # (3 + 3/4)/4 = 15/16, chance 6/(3·2) · 42/64 = 21/32.
    "small": (
        [[1, 1], [2, 2], [3, 3], [1, 2]],
        {
            "exact": 0.75,
            "within_one": 1,
            "cohen_kappa": 7 / 11,
            "quadratic_kappa": 0.8,
            "alpha_nominal": 1 - (2 / 8) / (42 / 56),
            "gwet_ac1": (3 / 4 - 21 / 64) / (43 / 64),
            "gwet_ac2": (15 / 16 - 21 / 32) / (11 / 32),
        },
    ),
    # Shrout and Fleiss (1979), table 4: ICC(1,1) = .17, from mean squares 11.24 and 6.26.
    "Shrout and Fleiss": (FOUR_JUDGES, {"icc": 0.1657}),
    # Gwet (2002): 118 of 125 alike in one category; kappa -.023, AC1 .941.
    "skewed": (SKEWED, {"cohen_kappa": -0.0234, "gwet_ac1": 0.9408, "gwet_ac2": 0.9408}),
}


@pytest.mark.parametrize("name", BY_HAND)
def test_values_by_hand_and_as_published(name):
    ratings, expected = BY_HAND[name]
    assert estimates(ratings)[list(expected)].to_dict() == pytest.approx(expected, abs=5e-5)


RATING = st.one_of(st.just(np.nan), st.integers(1, 5).map(float))


@given(
    st.integers(2, 4).flatmap(
        lambda m: st.lists(st.lists(RATING, min_size=m, max_size=m), min_size=1, max_size=15)
    )
)
def test_alpha_equals_krippendorff_and_icc_the_analysis_of_variance(rows):
    table = np.array(rows)
    values = estimates(table)
    paired = table[(~np.isnan(table)).sum(axis=1) >= 2]
    numbers = paired[~np.isnan(paired)]
    for level in ("nominal", "ordinal", "interval"):
        if len(np.unique(numbers)) < 2:
            assert np.isnan(values[f"alpha_{level}"])
        else:
            theirs = krippendorff.alpha(reliability_data=table.T, level_of_measurement=level)
            assert values[f"alpha_{level}"] == pytest.approx(theirs, abs=1e-10)
    if len(paired) > 1 and len(np.unique(numbers)) > 1:
        sizes = (~np.isnan(paired)).sum(axis=1)
        means = np.nanmean(paired, axis=1)
        inner = np.nansum((paired - means[:, None]) ** 2) / (len(numbers) - len(paired))
        outer = sizes @ (means - numbers.mean()) ** 2 / (len(paired) - 1)
        m = (len(numbers) - (sizes**2).sum() / len(numbers)) / (len(paired) - 1)
        if outer + (m - 1) * inner > 1e-9:
            icc = (outer - inner) / (outer + (m - 1) * inner)
            assert values["icc"] == pytest.approx(icc, abs=1e-8)


@pytest.mark.parametrize("gap", [False, True])
def test_kappas_equal_scikit_learn(gap):
    """With a gap nobody gives 3 or 4: weights are distances of scores, not of levels."""
    table = simulated()
    if gap:
        table = np.where((table == 3) | (table == 4), 5, table)
    for name, weights in (("cohen_kappa", None), ("quadratic_kappa", "quadratic")):
        theirs = []
        for i, j in itertools.combinations(range(3), 2):
            x, y = table[~np.isnan(table[:, [i, j]]).any(axis=1)][:, [i, j]].T
            theirs.append(cohen_kappa_score(x, y, weights=weights, labels=[1, 2, 3, 4, 5]))
        assert estimates(table)[name] == pytest.approx(np.mean(theirs), abs=1e-10)


def test_labels_without_an_order():
    """A missing label makes floats of the others, and changes none."""
    rng = np.random.default_rng(0)
    gold = pd.Series(rng.integers(0, 4, 60))
    other = gold.where(rng.random(60) < 0.7, 1).where(gold.index > 4)
    votes = pd.DataFrame({"ann": gold.astype(str), "bob": other})
    table = agreement(votes, level="nominal", n_resamples=200)
    assert table.index.tolist() == ["alpha_nominal", "cohen_kappa", "gwet_ac1", "exact"]
    codes = np.array([gold, other])
    theirs = krippendorff.alpha(reliability_data=codes, level_of_measurement="nominal")
    expected = [theirs, cohen_kappa_score(*codes[:, 5:].astype(int))]
    assert table["estimate"].tolist()[:2] == pytest.approx(expected, abs=1e-10)
    assert table["missing"].eq(5).all() and (table["low"] < table["estimate"]).all()


def test_one_table_of_raters_the_ceiling_and_judges():
    """Every row by SciPy from the raters' columns, as one would put the table together by hand."""
    people = pd.DataFrame(simulated(80, 3, missing=0), columns=["ann", "bob", "eve"])
    rng = np.random.default_rng(1)
    judge = (people["ann"] + rng.integers(0, 2, 80)).where(rng.random(80) < 0.9)
    table = rater_table(people, {"judge": judge}, n_resamples=200).sort_index()
    rho = table["estimate"].xs("spearman", level="statistic")
    others = {name: people.drop(columns=name).mean(axis=1) for name in people}
    each = [stats.spearmanr(people[name], others[name])[0] for name in people]
    expected = [*each, np.mean(each)]
    known = judge.notna()
    expected.append(np.mean([stats.spearmanr(judge[known], o[known])[0] for o in others.values()]))
    rows = [(name, "the others") for name in (*people, "ceiling")] + [("judge", "all but one")]
    assert rho[rows].tolist() == pytest.approx(expected, abs=1e-10)
    assert human_ceiling(people, n_resamples=0)["estimate"]["spearman"] == rho[rows[3]]
    assert (table["low"] < table["estimate"]).all() and (table["estimate"] < table["high"]).all()
    missing = table.loc[("judge", "all but one"), "missing"]
    assert missing.eq(judge.isna().sum()).all() and judge.isna().any()


HEAD = pd.DataFrame({"score": [-3.2, 0.4, 11.0, 2.5], "gold": [1, 2, 5, 4]})
HEAD.attrs["unbounded"] = True
WRONG = [
    ([["1", 2], [2, "x"]], TypeError, "rater 0 .*position 0: '1'"),
    ([1, 2, 3], TypeError, "item 0"),
    (pd.DataFrame([[1, 2]], columns=["ann", "ann"]), ValueError, "share a name: ann"),
    (HEAD, ValueError, "agreement needs scores on people's scale"),
]


@pytest.mark.parametrize(("ratings", "error", "message"), WRONG)
def test_bad_input_is_named(ratings, error, message):
    with pytest.raises(error, match=message):
        agreement(ratings)
