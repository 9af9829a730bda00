"""Agreement of raters: by hand, published tables, krippendorff, SciPy and scikit-learn."""

import itertools
import warnings

import krippendorff
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import cohen_kappa_score

from vjudge.metrics import agreement, human_ceiling, rater_table


def estimates(ratings, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return agreement(ratings, n_resamples=0, **options)["estimate"]


def simulated(missing):
    """Scores of 100 items by three raters."""
    rng = np.random.default_rng(0)
    scores = 3 + rng.normal(size=(100, 1)) + 0.7 * rng.normal(size=(100, 3))
    return np.where(rng.random(scores.shape) < missing, np.nan, np.clip(np.round(scores), 1, 5))


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
    # Mean squares of sets of 3, 2 and 3 scores: between 13.875/2, within 2/5; (8 - 22/8)/2 = 2.625 a
    # set.
    "unequal": (
        [[1, 2, 3], [4, 4, np.nan], [5, 5, 5]],
        {"icc": (6.9375 - 0.4) / (6.9375 + 1.625 * 0.4)},
    ),
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
def test_alpha_equals_krippendorff(rows):
    table = np.array(rows)
    values = estimates(table)
    paired = table[(~np.isnan(table)).sum(axis=1) >= 2]
    for level in ("nominal", "ordinal", "interval"):
        if len(set(paired[~np.isnan(paired)])) < 2:
            assert np.isnan(values[f"alpha_{level}"])
        else:
            theirs = krippendorff.alpha(reliability_data=table.T, level_of_measurement=level)
            assert values[f"alpha_{level}"] == pytest.approx(theirs, abs=1e-10)


def test_kappas_equal_scikit_learn():
    """Nobody gives 3 or 4: weights are distances of scores, not of levels."""
    table = simulated(missing=0.2)
    table[(table == 3) | (table == 4)] = 5
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
    people = pd.DataFrame(simulated(missing=0), columns=["ann", "bob", "eve"])
    judge = (people["ann"] + people.index % 2).where(people.index > 8)
    table = rater_table(people, {"judge": judge}, n_resamples=200)
    others = {name: people.drop(columns=name).mean(axis=1) for name in people}
    each = [people[name].corr(others[name], method="spearman") for name in people]
    judged = [judge.corr(other, method="spearman") for other in others.values()]
    rows = [(name, "the others") for name in (*people, "ceiling")] + [("judge", "all but one")]
    rho = table["estimate"].xs("spearman", level="statistic")[rows].tolist()
    assert rho == pytest.approx([*each, np.mean(each), np.mean(judged)], abs=1e-10)
    assert human_ceiling(people, n_resamples=0)["estimate"]["spearman"] == rho[3]
    assert (table["low"] < table["estimate"]).all() and (table["estimate"] < table["high"]).all()
    assert table.loc["judge", "missing"].eq(9).all()


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
