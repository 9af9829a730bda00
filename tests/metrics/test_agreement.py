"""Agreement of raters: hand-derived values, krippendorff, scikit-learn and statsmodels, and what is refused."""

from __future__ import annotations

import itertools
import warnings

import krippendorff
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from sklearn.metrics import cohen_kappa_score

from vjudge.metrics import agreement, average_samples, human_ceiling, noise_corrected, rater_table
from vjudge.metrics.agreement import AGREEMENT, Patterns, _agreement

# Six targets rated by four judges: Shrout and Fleiss (1979), table 2.
SHROUT_FLEISS = [[9, 2, 5, 8], [6, 1, 3, 2], [8, 4, 6, 8], [7, 1, 2, 6], [10, 5, 6, 9], [6, 2, 4, 7]]


def estimates(ratings, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return agreement(ratings, n_resamples=0, **options)["estimate"]


def simulated(n=120, raters=3, missing=0.2, seed=0):
    rng = np.random.default_rng(seed)
    table = np.clip(np.round(3 + rng.normal(size=(n, 1)) + 0.7 * rng.normal(size=(n, raters))), 1, 5)
    table[rng.random(table.shape) < missing] = np.nan
    return table


def test_icc_of_shrout_and_fleiss():
    found = estimates(SHROUT_FLEISS)
    assert found[["icc_1_1", "icc_2_1", "icc_2_k"]].round(2).tolist() == [0.17, 0.29, 0.62]


def test_icc_equals_an_analysis_of_variance():
    """Mean squares by statsmodels' two-way ANOVA, put into Shrout and Fleiss' formulas."""
    import statsmodels.formula.api as smf
    from statsmodels.stats.anova import anova_lm

    table = simulated(40, 3, missing=0)
    rows = [(i, j, table[i, j]) for i in range(40) for j in range(3)]
    long = pd.DataFrame(rows, columns=["item", "rater", "score"])
    squares = anova_lm(smf.ols("score ~ C(item) + C(rater)", long).fit())["mean_sq"]
    items, raters, error = squares["C(item)"], squares["C(rater)"], squares["Residual"]
    found = estimates(table)
    assert found["icc_2_1"] == pytest.approx(
        (items - error) / (items + 2 * error + 3 * (raters - error) / 40), abs=1e-10
    )
    assert found["icc_2_k"] == pytest.approx((items - error) / (items + (raters - error) / 40), abs=1e-10)


def test_values_derived_by_hand():
    # Pairs (1,1) (2,2) (3,3) (1,2): exact 3/4, within one 4/4. Cohen: chance (2·1 + 1·2 + 1·1)/16 = 5/16,
    # (3/4 - 5/16) / (11/16) = 7/11. Quadratic: observed 1/4; expected mean of (a - b)² over all 16 = 20/16;
    # 1 - (1/4)/(20/16) = 0.8.
    found = estimates([[1, 1], [2, 2], [3, 3], [1, 2]])
    assert found["exact"] == 0.75 and found["within_one"] == 1
    assert found["cohen_kappa"] == pytest.approx(7 / 11, abs=1e-15)
    assert found["quadratic_kappa"] == pytest.approx(0.8, abs=1e-15)
    # Krippendorff, nominal: 8 values, levels 3, 3, 2; observed 2/8; expected 1 - (6 + 6 + 2)/56 = 42/56.
    assert found["alpha_nominal"] == pytest.approx(1 - (2 / 8) / (42 / 56), abs=1e-15)


@settings(deadline=None, max_examples=150)
@given(
    st.integers(2, 4).flatmap(
        lambda m: st.lists(
            st.lists(st.one_of(st.just(np.nan), st.integers(1, 5).map(float)), min_size=m, max_size=m),
            min_size=1,
            max_size=15,
        )
    )
)
def test_alpha_equals_krippendorff(rows):
    table = np.array(rows)
    found = estimates(table)
    paired = table[(~np.isnan(table)).sum(axis=1) >= 2]
    if len(np.unique(paired[~np.isnan(paired)])) < 2:
        assert found[["alpha_nominal", "alpha_ordinal", "alpha_interval"]].isna().all()
        return
    for level in ("nominal", "ordinal", "interval"):
        theirs = krippendorff.alpha(reliability_data=table.T, level_of_measurement=level)
        assert found[f"alpha_{level}"] == pytest.approx(theirs, abs=1e-10)


def test_kappas_equal_scikit_learn():
    table = simulated()
    expected = {None: [], "quadratic": []}
    for i, j in itertools.combinations(range(3), 2):
        both = ~np.isnan(table[:, [i, j]]).any(axis=1)
        x, y = table[both][:, [i, j]].T
        for weights, values in expected.items():
            values.append(cohen_kappa_score(x, y, weights=weights, labels=[1, 2, 3, 4, 5]))
    found = estimates(table)
    assert found["cohen_kappa"] == pytest.approx(np.mean(expected[None]), abs=1e-10)
    assert found["quadratic_kappa"] == pytest.approx(np.mean(expected["quadratic"]), abs=1e-10)


def test_kappa_weights_are_distances_of_scores_not_of_levels():
    """1, 2 and 5 with nobody giving 3 or 4: the distance of 2 and 5 is 3, not 1."""
    rows = [[1, 1], [2, 2], [5, 5], [2, 5]]
    theirs = cohen_kappa_score(*np.transpose(rows), weights="quadratic", labels=[1, 2, 3, 4, 5])
    assert estimates(rows)["quadratic_kappa"] == pytest.approx(theirs, abs=1e-10)


def test_frame_its_account_and_the_bootstrap():
    table = simulated()
    groups = np.arange(120) // 4
    found = agreement(table, groups=groups, n_resamples=400, seed=5)
    assert found.index.tolist() == list(AGREEMENT)
    assert (found["low"] < found["estimate"]).all() and (found["estimate"] < found["high"]).all()
    complete = (~np.isnan(table)).all(axis=1).sum()
    paired = ((~np.isnan(table)).sum(axis=1) >= 2).sum()
    assert found.loc["icc_2_1", "n"] == complete and found.loc["icc_2_1", "missing"] == 120 - complete
    assert found.loc["alpha_ordinal", "n"] == paired and found.loc["alpha_ordinal", "missing"] == 120 - paired
    assert found.attrs["n_groups"] == 30 and found.attrs["n_raters"] == 3
    again = agreement(pd.DataFrame(table), groups=groups, n_resamples=400, seed=5)
    pd.testing.assert_frame_equal(found, again)


def test_a_replicate_is_the_statistic_of_the_drawn_items():
    table = simulated(30, 3, missing=0)
    patterns = Patterns.of(table)
    drawn = np.random.default_rng(0).integers(0, 30, 30)
    weights = np.bincount(patterns.cell[drawn], minlength=len(patterns.values))[:, None]
    pairs = [(0, 1), (0, 2), (1, 2)]
    np.testing.assert_allclose(_agreement(patterns, pairs, weights)[:, 0], estimates(table[drawn]), atol=1e-12)


def test_ragged_lists_are_padded():
    lists = [[1, 2, 3], [2, 2], None, [5], [4, 5, 5]]
    table = np.array([[1, 2, 3], [2, 2, np.nan], [np.nan] * 3, [5, np.nan, np.nan], [4, 5, 5]])
    pd.testing.assert_series_equal(estimates(lists), estimates(table))


def test_ceiling_is_each_rater_against_the_mean_of_the_others():
    table = simulated(80, 3, missing=0)
    found = human_ceiling(table, n_resamples=200)
    expected = []
    for rater in range(3):
        others = np.delete(table, rater, axis=1).mean(axis=1)
        own = table[:, rater]
        expected.append([f(own, others)[0] for f in (stats.pearsonr, stats.spearmanr, stats.kendalltau)])
    np.testing.assert_allclose(found["estimate"], np.mean(expected, axis=0), atol=1e-10)
    np.testing.assert_allclose([list(r.values()) for r in found.attrs["raters"].values()], expected, atol=1e-10)
    assert ((found["low"] < found["estimate"]) & (found["estimate"] < found["high"])).all()


def test_one_table_of_raters_their_mean_the_ceiling_and_judges():
    """Every row by SciPy from the raters' columns, as someone would put the table together by hand."""
    people = pd.DataFrame(simulated(80, 3, missing=0), columns=["ann", "bob", "eve"])
    rng = np.random.default_rng(1)
    judges = {
        "fine": people.mean(axis=1) + rng.normal(size=80),
        "coarse": (people["ann"] + rng.integers(0, 2, 80)).where(rng.random(80) < 0.9),
    }
    found = rater_table(people, judges, n_resamples=200)
    rho = found["estimate"].xs("spearman", level="statistic")
    others = {name: people.drop(columns=name).mean(axis=1) for name in people}
    for name in people:
        assert rho[name, "the others"] == pytest.approx(stats.spearmanr(people[name], others[name])[0], abs=1e-10)
        assert rho["fine", name] == pytest.approx(stats.spearmanr(judges["fine"], people[name])[0], abs=1e-10)
    mean = stats.spearmanr(judges["fine"], people.mean(axis=1))[0]
    assert rho["fine", "the mean"] == pytest.approx(mean, abs=1e-10)
    like_for_like = np.mean([stats.spearmanr(judges["fine"], others[name])[0] for name in people])
    assert rho["fine", "all but one"] == pytest.approx(like_for_like, abs=1e-10)
    assert rho["ceiling", "the others"] == pytest.approx(human_ceiling(people, n_resamples=0)["estimate"]["spearman"])
    assert (found["low"] < found["estimate"]).all() and (found["estimate"] < found["high"]).all()
    gone = int(judges["coarse"].isna().sum())
    assert gone and found.loc[("coarse", "the mean"), "missing"].eq(gone).all()
    assert rater_table(people, judges["fine"].to_numpy(), n_resamples=0).index[-1][0] == "judge"
    with pytest.raises(ValueError, match="one score for each of the 80 items"):
        rater_table(people, [1, 2, 3])


def test_agreement_of_annotators_on_four_way_votes():
    """Labels have no order: Krippendorff's nominal alpha and kappa alone, on words."""
    rng = np.random.default_rng(0)
    truth = rng.choice(["left", "right", "both good", "both bad"], 60)
    votes = pd.DataFrame({name: np.where(rng.random(60) < 0.7, truth, "both good") for name in ("ann", "bob")})
    votes.loc[:4, "bob"] = None
    found = agreement(votes, level="nominal", n_resamples=200)
    assert found.index.tolist() == ["alpha_nominal", "cohen_kappa", "exact"]
    codes = votes.apply(lambda column: pd.Categorical(column, sorted(set(truth))).codes).replace(-1, np.nan)
    theirs = krippendorff.alpha(reliability_data=codes.to_numpy().T, level_of_measurement="nominal")
    assert found.loc["alpha_nominal", "estimate"] == pytest.approx(theirs, abs=1e-10)
    both = votes.dropna()
    assert found.loc["cohen_kappa", "estimate"] == pytest.approx(cohen_kappa_score(both["ann"], both["bob"]), abs=1e-10)
    assert found["missing"].eq(5).all() and (found["low"] < found["estimate"]).all()
    with pytest.raises(TypeError, match="position 0: 'left'|not numbers"):
        agreement(votes)


def test_perfect_agreement_of_a_few_items_is_not_certain():
    found = agreement([[1, 1], [2, 2], [4, 4], [5, 5], [2, 2], [3, 3]], groups=list("xxyyzz"), n_resamples=200)
    q2 = stats.t.ppf(0.975, 2) ** 2
    assert found.loc["exact", ["estimate", "low", "high"]].tolist() == pytest.approx([1, 3 / (3 + q2), 1])


def test_samples_of_one_judge_are_averaged_and_failures_carried_along():
    run = pd.DataFrame(
        {
            "id": ["p", "p", "p", "q", "q", "r"],
            "judge": "tiny",
            "sample": [0, 1, 2, 0, 1, 0],
            "score": [4.0, 5.0, np.nan, np.nan, np.nan, 2.0],
            "expected_score": [3.5, 4.5, np.nan, np.nan, np.nan, 2.5],
            "gold": [4.0, 4.0, 4.0, 1.0, 1.0, 2.0],
            "human_scores": [[4, 5]] * 3 + [[1, 1]] * 2 + [[2, 3]],
            "failure": [None, None, "no score", "cut off", "cut off", None],
        }
    )
    found = average_samples(run).set_index("id")
    assert found["score"].tolist()[::2] == [4.5, 2.0] and np.isnan(found["score"]["q"])
    assert found[["n_samples", "n_failed"]].to_numpy().tolist() == [[3, 1], [2, 2], [1, 0]]
    assert found["failure"].tolist() == [None, "cut off", None] and found["human_scores"]["p"] == [4, 5]
    assert found["sd"]["p"] == pytest.approx(np.std([4, 5], ddof=1)) and found["expected_score"]["p"] == 4
    assert found.attrs["failures"] == {"cut off": 2, "no score": 1}
    assert found.attrs["missing"] == 1 and found.attrs["partly_failed"] == 1
    with pytest.raises(ValueError, match="needs id"):
        average_samples(run.drop(columns="id"))


def test_noise_correction_finds_the_correlation_with_the_true_score():
    """All are normal; the judge correlates .8 with the truth, and the raters' noise hides part of it."""
    rng = np.random.default_rng(0)
    truth = rng.normal(size=4000)
    judge = 0.8 * truth + 0.6 * rng.normal(size=4000)
    ratings = truth[:, None] + 1.5 * rng.normal(size=(4000, 3)) + np.array([0, 1, -1])
    found = noise_corrected(judge, ratings, n_resamples=200)
    assert found.loc["observed", "estimate"] == pytest.approx(0.8 * np.sqrt(1 / 1.75), abs=0.03)
    assert found.loc["reliability", "estimate"] == pytest.approx(1 / 1.75, abs=0.03)
    assert found.loc["corrected", "low"] < 0.8 < found.loc["corrected", "high"]
    # Cronbach's alpha, by its own formula.
    alpha = 3 / 2 * (1 - ratings.var(axis=0, ddof=1).sum() / ratings.sum(axis=1).var(ddof=1))
    assert found.loc["reliability", "estimate"] == pytest.approx(alpha, abs=1e-10)


def unequal(n=400, seed=0):
    """Ratings by one to four raters an item, each item with raters of its own, and the truth behind them."""
    rng = np.random.default_rng(seed)
    truth = rng.normal(size=n)
    table = truth[:, None] + 1.5 * rng.normal(size=(n, 4))
    table[np.arange(4) >= rng.integers(1, 5, n)[:, None]] = np.nan
    return truth, table


def test_icc_of_unequal_numbers_of_ratings_equals_an_analysis_of_variance():
    import statsmodels.formula.api as smf
    from statsmodels.stats.anova import anova_lm

    _, table = unequal(60)
    table = table[(~np.isnan(table)).sum(axis=1) >= 2]
    size = (~np.isnan(table)).sum(axis=1)
    rows, columns = np.nonzero(~np.isnan(table))
    long = pd.DataFrame({"item": rows, "score": table[rows, columns]})
    between, within = anova_lm(smf.ols("score ~ C(item)", long).fit())["mean_sq"]
    per_item = (size.sum() - (size**2).sum() / size.sum()) / (len(size) - 1)
    expected = (between - within) / (between + (per_item - 1) * within)
    assert estimates(table)["icc_1_1"] == pytest.approx(expected, abs=1e-10)
    lists = [list(row[~np.isnan(row)]) for row in table]
    assert estimates(lists)["icc_1_1"] == pytest.approx(expected, abs=1e-10)


def test_noise_correction_of_unequal_numbers_of_ratings():
    truth, table = unequal(6000)
    judge = 0.8 * truth + 0.6 * np.random.default_rng(7).normal(size=len(truth))
    found = noise_corrected(judge, table, raters="different", n_resamples=200)
    # The mean of 1 / m over m = 1, 2, 3, 4 is 25 / 48: what is left of a noise of variance 2.25 in the means.
    assert found.loc["reliability", "estimate"] == pytest.approx(1 / (1 + 2.25 * 25 / 48), abs=0.03)
    assert found.loc["corrected", "low"] < 0.8 < found.loc["corrected", "high"]
    assert found["n"].eq(len(truth)).all() and found["missing"].eq(0).all()
    with pytest.warns(UserWarning, match='raters="different"'):
        noise_corrected(judge[:9], table[:9, :3] * np.array([1, 1, np.nan]), n_resamples=0)


def test_reliability_of_equal_numbers_is_icc_1_k():
    table = simulated(50, 3, missing=0)
    means = table.mean(axis=1)
    within = ((table - means[:, None]) ** 2).sum() / (50 * 2)
    found = noise_corrected(means + 0.1, table, raters="different", n_resamples=0)
    assert found.loc["reliability", "estimate"] == pytest.approx(1 - within / (3 * means.var(ddof=1)), abs=1e-10)


def test_a_correction_beyond_one_is_not_clipped():
    ratings = simulated(30, 2, missing=0)
    with pytest.warns(UserWarning, match="beyond 1"):
        found = noise_corrected(ratings.mean(axis=1), ratings, n_resamples=0)
    assert found.loc["corrected", "estimate"] > 1


@pytest.mark.parametrize(
    ("ratings", "undefined"),
    [
        ([], AGREEMENT),  # nothing
        ([[1], [2], [3]], AGREEMENT),  # one rater
        ([[np.nan, np.nan]] * 3, AGREEMENT),  # all missing
        ([[1, np.nan], [np.nan, 2]], AGREEMENT),  # no item shared
        ([[3, 3], [3, 3], [3, 3]], AGREEMENT[:8]),  # constant: the shares remain
        ([[1, 2]], AGREEMENT[3:8]),  # one item
        ([[1, np.nan], [1, 2], [2, 3]], ()),
    ],
)
def test_degenerate_tables_are_nan_with_a_warning(ratings, undefined):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = agreement(ratings, n_resamples=50)
    assert set(found.index[found["estimate"].isna()]) >= set(undefined) - {"cohen_kappa", "quadratic_kappa"}
    if undefined:
        assert any("undefined" in str(w.message) for w in caught)
    assert all(issubclass(w.category, UserWarning) for w in caught)


@pytest.mark.parametrize(
    ("ratings", "options", "error", "message"),
    [
        ([["1", 2], [2, "x"]], {}, TypeError, "rater 0 .*'1'.*rater 1 .*'x'"),
        ([[1, 2], [6, 0]], {"scale": (1, 5)}, ValueError, "item 1, rater 0: 6, item 1, rater 1: 0"),
        ([[1, np.inf]], {}, ValueError, "infinite"),
        ([1, 2, 3], {}, TypeError, "item 0"),
        (np.ones(3), {}, ValueError, "two dimensions"),
        ("123", {}, TypeError, "not str"),
        (pd.DataFrame([[1, 2]], columns=["ann", "ann"]), {}, ValueError, "share a name: ann"),
        ([[1, 2]], {"scale": (5, 1)}, ValueError, "lowest and the highest"),
        ([[1, 2], [2, 3]], {"groups": ["a", None]}, ValueError, "position 1"),
        ([[1, 2], [2, 3]], {"confidence": 95}, ValueError, "between 0 and 1"),
    ],
)
def test_bad_input_is_named(ratings, options, error, message):
    with pytest.raises(error, match=message):
        agreement(ratings, **options)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.lists(st.one_of(st.none(), st.integers(1, 3), st.floats(-1e6, 1e6)), max_size=4), max_size=8))
def test_no_exception_on_any_table_of_numbers(rows):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        for function in (agreement, human_ceiling):
            found = function(rows, n_resamples=20)
            assert not np.isinf(found["estimate"]).any()
        noise_corrected([1.0] * len(rows), rows, n_resamples=20)
