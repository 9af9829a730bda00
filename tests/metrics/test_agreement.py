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

from vjudge.metrics import agreement, raters


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
    # Shrout and Fleiss (1979), table 4: ICC(1,1) = .17, from mean squares 11.24 and 6.26, ICC(2,4)
    # = .62 and ICC(3,4) = .91; digits by pingouin 0.7.0, `intraclass_corr`.
    "Shrout and Fleiss": (
        FOUR_JUDGES,
        {"icc": 0.1657417684, "icc_2k": 0.6200505476, "icc_3k": 0.9093155424},
    ),
    # pingouin 0.7.0 of the first twelve; an item that one rater did not rate counts in neither.
    "three raters": (
        [[3, 2, 3], [4, 2, 3], [1, 1, 1], [2, 1, 2], [3, 2, 1], [1, 2, 2], [2, 3, 2], [4, 5, 4]]
        + [[2, 3, 2], [2, 2, 2], [2, 4, 5], [2, 4, 3], [5, np.nan, 5]],
        {"icc_2k": 0.7589641434, "icc_3k": 0.7477919529},
    ),
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


BLANKS = ["", " ", None, np.nan, pd.NA, "n/a", "NA", "nan", "None", "NULL", "#N/A"]


@pytest.mark.parametrize("blank", BLANKS)
def test_a_blank_is_no_label_and_no_score(blank):
    labels = pd.DataFrame({"ann": ["x", "y", "x", "y", blank], "bob": ["x", "y", "x", "y", "x"]})
    labels = pd.concat([labels, pd.DataFrame({"ann": ["y"], "bob": [blank]})])
    table = agreement(labels, level="nominal", n_resamples=0)
    assert table["estimate"].to_list() == [1, 1, 1, 1] and table["missing"].eq(2).all()
    scored = labels.replace({"x": 1, "y": 5})
    assert agreement(scored, n_resamples=0)["estimate"].drop(["icc_2k", "icc_3k"]).eq(1).all()


def test_a_pair_of_raters_without_variation_is_left_out_of_kappa_and_said():
    """Ann and bob both gave 1 alone where they met; the other two pairs have a kappa each."""
    nan = np.nan
    rows = [[1, 1, nan]] * 3 + [[1, nan, 1], [2, nan, 2], [1, nan, 2], [nan, 1, 1], [nan, 2, 1]]
    with pytest.warns(UserWarning, match="kappa is undefined of 1 of 3 pairs of raters"):
        table = agreement(rows, n_resamples=100)
    # Ann and eve: 2/3 alike, chance (2 * 1 + 1 * 2) / 9; bob and eve: 1/2, chance 1/2.
    assert table["estimate"]["cohen_kappa"] == pytest.approx(((2 / 3 - 4 / 9) / (5 / 9) + 0) / 2)


@pytest.mark.parametrize(("m", "n"), [(3, 10), (5, 15)])
def test_exact_agreement_of_few_items_holds_the_truth(m, n):
    """Pairs of ratings of one item are not independent: .86 and .89 of intervals held it."""
    rng = np.random.default_rng(0)

    def ratings(items):
        spread = rng.normal(size=(items, 1)) + 0.7 * rng.normal(size=(items, m))
        return np.clip(np.round(3 + spread), 1, 5)

    truth = estimates(ratings(10_000))["exact"]
    count = 0
    for _ in range(150):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            row = agreement(ratings(n), n_resamples=0).loc["exact"]
        count += row["low"] <= truth <= row["high"]
    assert count > 0.9 * 150


def test_people_and_judges_are_held_against_the_same_others():
    """Every row by SciPy from the raters' columns, as one would put the table together by hand."""
    people = pd.DataFrame(simulated(missing=0), columns=["ann", "bob", "eve"])
    judge = (people["ann"] + people.index % 2).where(people.index > 8)
    table = raters(people, {"judge": judge}, n_resamples=200)
    others = {name: people.drop(columns=name).mean(axis=1) for name in people}
    each = [people[name].corr(others[name], method="spearman") for name in people]
    two = [others[name].corr(people[name], method="spearman") for name in people]
    judged = [judge.corr(other, method="spearman") for other in others.values()]
    rho = table[table["statistic"] == "spearman"].set_index("who")
    expected = [*each, np.mean(each), np.mean(two), np.mean(judged)]
    assert rho["estimate"].tolist() == pytest.approx(expected, abs=1e-10)
    assert rho["kind"].tolist() == ["person"] * 3 + ["mean of k people"] * 2 + ["judge"]
    assert rho["others"].tolist() == [2, 2, 2, 2, 1, 2]
    assert (table["low"] < table["estimate"]).all() and (table["estimate"] < table["high"]).all()
    assert rho.loc["judge", "missing"] == 9
    as_lists = pd.Series(people.to_numpy().tolist(), index=people.index)
    same = raters(as_lists, {"judge": judge}, n_resamples=200)
    pd.testing.assert_frame_equal(same.drop(columns="who"), table.drop(columns="who"))


def test_a_rater_with_too_few_items_is_left_out_of_the_mean():
    """Crowd workers: one of them shares two items with others."""
    people = pd.DataFrame(simulated(missing=0), columns=["ann", "bob", "eve"])
    people["new"] = people["ann"].where(people.index < 2)
    with pytest.warns(UserWarning, match="new.*undefined"):
        table = raters(people, n_resamples=100).set_index(["who", "statistic"])["estimate"]
    assert table["new"].isna().all() and table["one person"].notna().all()


CASES = {
    "agreement": lambda frame, group: agreement(frame, groups=group, n_resamples=300),
    "labels": lambda frame, group: agreement(frame, groups=group, n_resamples=300, level="nominal"),
    "raters": lambda frame, group: raters(
        frame, {"judge": frame["ann"]}, groups=group, n_resamples=300
    ).query("kind != 'person'"),
}


@pytest.mark.parametrize("name", CASES)
def test_order_and_names_change_nothing_but_the_draws(name):
    frame = pd.DataFrame(simulated(missing=0.1), columns=["ann", "bob", "eve"])
    group = frame.index.to_numpy() // 4
    table = CASES[name](frame, group)
    order = np.random.default_rng(1).permutation(100)
    swapped = frame[["eve", "ann", "bob"]]
    others = {
        "rows": (frame.iloc[order], group[order]),
        "raters": (swapped, group),
        "index": (frame.set_axis([0] * 100), group),
        "groups": (frame, np.array([f"image {number * 7 % 25}" for number in group])),
    }
    if name == "labels":
        others["labels"] = (frame.replace({1: "b", 2: "a", 3: "e", 4: "d", 5: "c"}), group)
    for change, (other, groups) in others.items():
        theirs = CASES[name](other, groups)
        exact = ["estimate", "n", "missing"]
        np.testing.assert_allclose(theirs[exact], table[exact], atol=1e-10, err_msg=change)
        np.testing.assert_allclose(
            theirs[["low", "high"]], table[["low", "high"]], atol=0.06, err_msg=change
        )


HEAD = pd.DataFrame({"score": [-3.2, 0.4, 11.0, 2.5], "gold": [1, 2, 5, 4]})
UNBOUNDED = HEAD.assign(lowest=np.nan, highest=np.nan)
WRONG = [
    ([["1", 2], [2, "x"]], TypeError, "rater 0 .*position 0: '1'"),
    ([1, 2, 3], TypeError, "item 0"),
    (pd.DataFrame([[1, 2]], columns=["ann", "ann"]), ValueError, "share a name: ann"),
    (UNBOUNDED, ValueError, "agreement needs a scale, and 8 of ratings have none"),
    (
        pd.concat([UNBOUNDED, UNBOUNDED.assign(lowest=1, highest=5)]),
        ValueError,
        "8 of ratings have",
    ),
    (
        HEAD.assign(lowest=1, highest=5),
        ValueError,
        "3 of ratings lie outside of the scale, .* -3.2",
    ),
]


@pytest.mark.parametrize(("ratings", "error", "message"), WRONG)
def test_bad_input_is_named(ratings, error, message):
    with pytest.raises(error, match=message):
        agreement(ratings)


def test_scores_without_levels_are_said():
    """Two runs of a value head in a frame: nothing in the numbers tells that they have no scale."""
    rng = np.random.default_rng(0)
    heads = pd.DataFrame(rng.normal(size=(40, 2)), columns=["one", "two"])
    with pytest.warns(UserWarning, match="80 ratings have 80 levels. If they are scores"):
        agreement(heads, n_resamples=0)
    with pytest.raises(ValueError, match="outside of the scale"):
        agreement(heads, scale=(1, 2, 3, 4, 5), n_resamples=0)


def test_ratings_without_a_scale_are_refused_before_memory_runs_out():
    ratings = np.random.default_rng(0).normal(size=(6_000, 2))
    with pytest.raises(ValueError, match="6,000 different rows of ratings have 12,000 levels"):
        agreement(ratings)
