"""Correlations, their levels and tables, and judges compared: by hand, SciPy, enumeration."""

import re
import time
import warnings

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from statsmodels.stats.multitest import multipletests

from vjudge import metrics
from vjudge.metrics import (
    compare_judges,
    correlate,
    correlate_levels,
)
from vjudge.metrics.cells import distinct_rows
from vjudge.metrics.intervals import bootstrap_interval
from vjudge.metrics.resampling import Design, bootstrap
from vjudge.metrics.weighted_correlation import correlations

SCIPY = {"pearson": stats.pearsonr, "spearman": stats.spearmanr, "kendall": stats.kendalltau}


def estimates(x, y):
    return correlate(x, y, n_resamples=0)["estimate"].tolist()


def hold(table, value="estimate"):
    """Whether every interval holds its estimate."""
    return ((table["low"] < table[value]) & (table[value] < table["high"])).all()


NUMBER = st.one_of(st.integers(-5, 5), st.floats(-1e3, 1e3).map(lambda value: round(value, 3)))


@given(st.lists(st.tuples(NUMBER, NUMBER), min_size=3, max_size=40))
def test_equals_scipy(pairs):
    x, y = np.array(pairs, dtype=float).T
    if len(set(x)) == 1 or len(set(y)) == 1:
        with pytest.warns(UserWarning, match="constant"):
            assert np.isnan(estimates(x, y)).all()
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", stats.NearConstantInputWarning)
        scipy = [function(x, y)[0] for function in SCIPY.values()]
    np.testing.assert_allclose(estimates(x, y), scipy, rtol=0, atol=1e-12)


def test_frame_and_its_account():
    item = np.arange(120)
    score = np.where(item < 7, np.nan, item % 5 + item % 3)
    table = correlate(score, item % 5, groups=item // 4, n_resamples=500, seed=3)
    assert table.columns.tolist() == ["estimate", "low", "high", "n", "missing"]
    assert (table["n"] == 113).all() and (table["missing"] == 7).all() and hold(table)
    assert table.attrs["method"] == (
        "95% bootstrap intervals (Student's on Fisher's z scale), 500 resamples of 29 groups of"
        " 113 items, seed 3"
    )


FLOATS = np.random.default_rng(0).normal(size=30)
TWICE = [1, 2, 2, 4, 5, 3, 3, 1] * 5
WARNED = {
    "constant": (lambda: correlate([0.1 + 0.2] * 3, [1, 2, 3]), "x constant"),
    "few resamples": (
        lambda: correlate(TWICE, TWICE[::-1], n_resamples=5),
        "n_resamples=5: .* few",
    ),
    "perfect": (lambda: correlate(FLOATS, 2 * FLOATS + 1, n_resamples=200), "without width"),
    "sound": (lambda: correlate(TWICE, TWICE[::-1], n_resamples=200), ""),
    "four systems": (
        lambda: correlate_levels(TWICE, TWICE[::-1], systems=list("abcd") * 10, levels=["system"]),
        "of 4 systems; intervals take five",
    ),
}


@pytest.mark.parametrize("case", WARNED)
def test_what_is_not_sound_is_said(case):
    call, message = WARNED[case]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    assert bool(caught) == (case != "sound")
    for warning in caught:
        assert re.search(message, str(warning.message))
        assert warning.filename == __file__, "a warning names the caller's line"


WRONG = [
    (dict(y=["a", 2, "b"]), TypeError, "y has .* not numbers: position 0: 'a', position 2: 'b'"),
    (dict(x=[1, 2, np.inf]), ValueError, "position 2"),
    (dict(groups=["a", None, "b"]), ValueError, "position 1: None"),
    (dict(groups=["a", "b"]), ValueError, "x has 3, y has 3, groups has 2"),
    (dict(confidence=95), ValueError, "between 0 and 1"),
    (dict(n_resamples=1e4), ValueError, "whole number"),
    (
        dict(x=pd.Series([1, 2, 3]), y=pd.Series([1, 2, 3], index=[2, 1, 0])),
        ValueError,
        "different indexes",
    ),
]


@pytest.mark.parametrize(("arguments", "error", "message"), WRONG)
def test_bad_input_is_named(arguments, error, message):
    with pytest.raises(error, match=message):
        correlate(**{"x": [1, 2, 3], "y": [1, 2, 4], **arguments})


@pytest.mark.parametrize("grouped", [False, True])
def test_many_rows_take_the_time_of_scipy(grouped):
    rng = np.random.default_rng(0)
    groups = np.arange(100_000) // 2
    common = rng.normal(size=50_000)[groups]
    x = common + rng.normal(size=100_000)
    y = common + rng.normal(size=100_000)
    if grouped:
        x = np.digitize(x, [-1, 0, 1, 2])
        y = np.digitize(y, [-1, 0, 1, 2])
    began = time.process_time()
    table = correlate(x, y, groups=groups if grouped else None)
    assert time.process_time() - began < 3  # it was 40
    tau = stats.kendalltau(x, y).statistic
    assert table.loc["kendall", "estimate"] == pytest.approx(tau, abs=1e-12)
    assert "one of 50 random blocks" in table.attrs["method"] and hold(table)


def test_many_grouped_rows_take_seconds_everywhere():
    rng = np.random.default_rng(0)
    groups = np.arange(100_000) // 5
    gold = rng.integers(1, 6, 100_000)
    scores = np.clip(gold[:, None] + rng.integers(-1, 2, (100_000, 2)), 1, 5)
    verdicts = np.where(scores > 3, "a", "b").T
    for call in (
        lambda: compare_judges(gold, dict(enumerate(scores.T)), groups=groups),
        lambda: metrics.agreement(scores, groups=groups),  # it was 10
        lambda: metrics.calibration_errors(scores[:, 0], gold, groups=groups),
        lambda: metrics.pairwise_accuracy(*verdicts, groups=groups),
    ):
        began = time.process_time()
        call()
        assert time.process_time() - began < 3


# Levels


@pytest.mark.parametrize("groups", [None, "item"])
def test_levels_equal_scipy_and_the_same_numbers_have_one_interval(groups):
    rng = np.random.default_rng(0)
    rows = pd.DataFrame({"system": np.repeat(range(6), 30), "item": np.tile(range(30), 6)})
    skill = rng.normal(size=6)[rows.system]
    rows["gold"] = np.clip(np.round(3 + skill + rng.normal(size=180)), 1, 5)
    rows["judge"] = np.clip(np.round(rows.gold + 0.8 * rng.normal(size=180)), 1, 5)
    options = dict(groups=None if groups is None else rows[groups], n_resamples=200)
    table = correlate_levels(rows.judge, rows.gold, systems=rows.system, **options)
    means = rows.groupby("system")[["judge", "gold"]].mean()
    for name in SCIPY:
        within = [part.judge.corr(part.gold, name) for _, part in rows.groupby("system")]
        pooled = [each.judge.corr(each.gold, name) for each in (rows, means)]
        found = table["estimate"].xs(name, level="statistic")
        assert found.tolist() == pytest.approx([*pooled, np.mean(within)], abs=1e-10)
    assert hold(table)
    low, high = stats.t.interval(0.95, 5, np.mean(within), stats.sem(within))  # of Kendall's tau
    assert table.loc[("within", "kendall"), ["low", "high"]].tolist() == pytest.approx([low, high])
    pd.testing.assert_frame_equal(correlate(rows.judge, rows.gold, **options), table.xs("item"))
    # Fisher's interval of six systems, from the textbook
    r, low, high = table.loc[("system", "pearson"), ["estimate", "low", "high"]]
    half = 1.959964 / np.sqrt(6 - 3)
    assert [low, high] == pytest.approx(np.tanh(np.arctanh(r) + np.array([-half, half])))


def test_simpsons_paradox_is_pointed_out():
    """Within each system the judge ranks perfectly, and it likes the weaker system better."""
    gold, judge = [1, 2, 3, 11, 12, 13], [11, 12, 13, 1, 2, 3]
    with pytest.warns(UserWarning, match="pearson, spearman, kendall: opposite signs .*Simpson"):
        table = correlate_levels(judge, gold, systems=list("aaabbb"), n_resamples=0)
    assert table.loc[("within", "spearman"), "estimate"] == pytest.approx(1)


# Designs


def crossed(rng, *, systems=8, images=30, judges=1, between=0.9, of_system=0.3, r=0.6):
    """Scores of a reference and judges on systems by images, which share both kinds of error."""
    latent = np.full((judges + 1, judges + 1), between)
    latent[0] = latent[:, 0] = r
    np.fill_diagonal(latent, 1)
    root = np.linalg.cholesky(latent).T
    own, by_system, by_image = (
        rng.normal(size=(*shape, judges + 1)) @ root
        for shape in ((systems, images), (systems, 1), (1, images))
    )
    share = np.sqrt([0.8 - of_system, of_system, 0.2])
    scores = share[0] * own + share[1] * by_system + share[2] * by_image
    image, system = np.meshgrid(np.arange(images), np.arange(systems))
    return scores.reshape(-1, judges + 1), image.ravel(), system.ravel()


def test_crossed_designs_speak_for_new_systems():
    held = {"both": 0, "images": 0}
    for seed in range(60):
        scores, image, system = crossed(np.random.default_rng(seed))
        for name, groups in {"both": [image, system], "images": image}.items():
            row = correlate(*scores.T, groups=groups, n_resamples=200).loc["pearson"]
            held[name] += row["low"] <= 0.6 <= row["high"]
    assert held["both"] >= 55 > held["images"] + 4, held
    table = correlate(*scores.T, groups=pd.DataFrame({"image": image, "system": system}))
    assert "of 30 by 8 groups of 240 items" in table.attrs["method"] and hold(table)
    with pytest.warns(UserWarning, match="given these systems"):
        table = correlate(*scores.T, groups=image, n_resamples=200)
    assert "given these systems" in table.attrs["caveats"][0]
    with pytest.raises(ValueError, match="has 4 units: new ones can be spoken for from 5 on"):
        correlate(*scores.T, groups=[image, system % 4])


def test_crossed_designs_keep_the_level_of_a_comparison():
    told = {"both": 0, "images": 0}
    for seed in range(60):
        scores, image, system = crossed(np.random.default_rng(seed), judges=2, of_system=0.4)
        judges = {"a": scores[:, 1], "b": scores[:, 2]}
        for name, groups in {"both": [image, system], "images": image}.items():
            table = compare_judges(scores[:, 0], judges, groups=groups)
            told[name] += table["p"].iloc[0] <= 0.05
    assert told["both"] <= 5 < told["images"], told


def test_benchmarks_are_pooled_within():
    """Noise on two scales is no agreement, and the mean is Fisher's."""
    rng = np.random.default_rng(0)
    set_name = np.repeat(["short", "long"], [60, 40])
    gold = rng.normal(size=100) + 20 * (set_name == "long")
    noise = rng.normal(size=100) + 20 * (set_name == "long")
    good = gold + rng.normal(size=100) * np.where(set_name == "long", 3, 0.3)
    assert correlate(noise, gold, n_resamples=0).loc["pearson", "estimate"] > 0.9
    table = correlate(noise, gold, strata=set_name)
    assert table["estimate"].abs().max() < 0.25 and (table["low"] < 0).all() and hold(table)
    parts = [stats.pearsonr(good[rows], gold[rows])[0] for rows in (slice(60), slice(60, 100))]
    with pytest.warns(UserWarning, match=r"strata differ \(Pearson's r: Q = .* I\^2 = 9\d%\)"):
        table = correlate(good, gold, strata=set_name)
    mean = np.tanh(np.average(np.arctanh(parts), weights=[57, 37]))
    assert table.loc["pearson", "estimate"] == pytest.approx(mean, abs=1e-12)
    # The interval is that of the two strata's, each on its own
    errors = []
    for rows in (slice(60), slice(60, 100)):
        own = correlate(good[rows], gold[rows], n_resamples=4_000).loc["pearson"]
        errors.append(np.arctanh(own["high"]) - np.arctanh(own["low"]))
    width = np.arctanh(table.loc["pearson", "high"]) - np.arctanh(table.loc["pearson", "low"])
    assert width == pytest.approx(np.hypot(57 * errors[0], 37 * errors[1]) / 94, rel=0.1)
    compared = compare_judges(gold, {"noise": noise, "good": good}, strata=set_name)
    assert (compared["difference"] < -0.3).all() and (compared["p"] < 0.01).all()
    gold[60:] = 3.0
    with pytest.warns(UserWarning, match="long: left out of the mean over strata"):
        table = correlate(good, gold, strata=set_name)
    assert table["n"].tolist() == [60] * 3 and table["missing"].tolist() == [40] * 3


def test_judges_of_several_benchmarks_are_compared_within_them():
    rng = np.random.default_rng(1)
    truth = {"five": rng.integers(1, 6, 60), "hundred": rng.integers(50, 100, 60)}
    judges = {
        name: pd.DataFrame({"a": gold + rng.normal(size=60), "noise": rng.permutation(gold)})
        for name, gold in truth.items()
    }
    frame = pd.concat(judges).droplevel(1)
    gold = np.concatenate(list(truth.values()))
    units = [*np.arange(60) // 2, *range(60, 120)]
    noise, a = (
        correlate(frame[name].to_numpy(), gold, groups=units, strata=frame.index)
        for name in ("noise", "a")
    )
    assert noise["estimate"].abs().max() < 0.3 < a["estimate"].min()
    assert a["n"].eq(120).all() and hold(a) and hold(noise)
    compared = compare_judges(gold, frame.to_dict("list"), strata=frame.index, each=True)
    assert compared.index.levels[0].tolist() == ["five", "hundred", "overall"]
    alone = compare_judges(truth["five"], judges["five"])
    columns = ["difference", "low", "high", "p", "n", "missing"]
    pd.testing.assert_frame_equal(compared.loc["five", columns], alone[columns])
    p = compared["p"].drop("overall")
    for name in SCIPY:
        expected = multipletests(p.xs(name, level="statistic"), method="holm")[1]
        found = compared["p_holm"].drop("overall").xs(name, level="statistic")
        np.testing.assert_allclose(found, expected)


def test_votes_on_one_item_are_one_group():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2, 40)).round(1)
    ids = np.repeat([f"item {i}" for i in range(40)], 5)
    once = correlate(x, y)
    with pytest.warns(UserWarning, match="200 rows have 40 ids: rows of one id are resampled"):
        votes = correlate(np.repeat(x, 5), np.repeat(y, 5), ids=ids)
    with pytest.warns(UserWarning, match="200 rows have 40 ids"):
        labelled = correlate(pd.Series(np.repeat(x, 5), ids), pd.Series(np.repeat(y, 5), ids))
    pd.testing.assert_frame_equal(votes, labelled)
    width = (votes["high"] - votes["low"]) / (once["high"] - once["low"])
    assert width.between(0.9, 1.15).all(), width
    # Numbers of rows are no ids: two frames put under one another have each twice.
    rows = correlate(pd.Series(x, [*range(20)] * 2), pd.Series(y, [*range(20)] * 2))
    pd.testing.assert_frame_equal(rows, once)


def test_kendall_of_a_binary_judge_is_as_wide_as_its_ties_are():
    """The correction for items drawn twice (a tenth of the width) is for scores without ties."""
    x = np.array([0, 0, 1, 0, 1, 1, 0, 1, 1, 0, 1, 0, 0, 1, 1, 1, 0, 0, 1, 0.0])
    y = np.array([1, 2, 3, 3, 5, 4, 2, 3, 4, 1, 5, 3, 1, 2, 4, 5, 4, 2, 3, 1.0])
    cells, cell = distinct_rows(np.column_stack([x, y]))
    drawn = bootstrap(
        lambda w: correlations(*cells.T, w)[2],
        Design(cell),
        n_resamples=500,
        seed=0,
    )
    table = correlate(x, y, n_resamples=500)
    untied = 100 / 190  # ten of either: 100 of 190 pairs differ in x, more in y
    expected = bootstrap_interval(
        drawn,
        table.loc["kendall", "estimate"],
        1 + (2 * untied - 1) ** 2 * 5 / 20,
        method="fisher",
        n_units=20,
        confidence=0.95,
    )
    assert table.loc["kendall", ["low", "high"]].tolist() == pytest.approx(expected)
    assert "a score of two levels and 20 items" in table.attrs["caveats"][0]


LIMITS = {
    "ceiling": ([5] * 36 + [1, 2, 3, 4], [5] * 36 + [2, 1, 3, 4], "of both scores are at the top"),
    "tails": (FLOATS, np.r_[FLOATS[:29] / 9, 99], "heavy tails"),
    "binary": ([0, 1, 1] * 5, [1, 2, 3] * 5, "a score of two levels and 15 items"),
}


@pytest.mark.parametrize("case", LIMITS)
def test_known_limits_stand_beside_the_numbers(case):
    x, y, message = LIMITS[case]
    with pytest.warns(UserWarning, match=message):
        table = correlate(x, y, n_resamples=200)
    assert any(message in text for text in table.attrs["caveats"])


def test_order_and_index_change_no_number():
    rng = np.random.default_rng(2)
    frame = pd.DataFrame(rng.integers(1, 6, (60, 3)), columns=["gold", "a", "b"])
    frame["a"] = (frame["a"] + frame["gold"]) // 2
    frame["image"] = np.arange(60) % 12
    frame["system"] = np.arange(60) // 12
    frame["set"] = np.where(frame["image"] < 6, "p", "q")
    calls = {
        "correlate": lambda f: correlate(f["a"], f["gold"], groups=[f["image"], f["system"]]),
        "strata": lambda f: correlate(f["a"], f["gold"], groups=f["image"], strata=f["set"]),
        "levels": lambda f: correlate_levels(f["a"], f["gold"], systems=f["system"], n_resamples=0),
        "compare": lambda f: compare_judges(f["gold"], f[["a", "b"]], groups=f["image"]),
    }
    for call in calls.values():
        expected = call(frame)
        turned = frame.sample(frac=1, random_state=0)
        for other in (turned, turned.set_axis([0] * 60), frame.set_axis([*range(30)] * 2)):
            pd.testing.assert_frame_equal(call(other), expected)
    swapped = compare_judges(frame["gold"], frame[["b", "a"]], groups=frame["image"])
    np.testing.assert_allclose(swapped["difference"], -calls["compare"](frame)["difference"])
    np.testing.assert_allclose(swapped["p"], calls["compare"](frame)["p"])


# Judges compared


def test_judges_are_compared_on_common_items_and_corrected_together():
    rng = np.random.default_rng(0)
    gold = rng.normal(size=200)
    judges = pd.DataFrame(gold[:, None] + rng.normal(size=(200, 4)) * [0.3, 1, 1, 4])
    judges.columns = ["best", "one", "other", "worst"]
    judges.loc[:9, "worst"] = np.nan
    table = compare_judges(gold, judges, n_resamples=200)
    assert table.loc[("best", "one"), "n"].tolist() == [200] * 3  # a gap costs others nothing
    pair = table.loc[("best", "worst")]
    assert (pair["n"] == 190).all() and (pair["missing"] == 10).all() and hold(pair, "difference")
    expected = np.transpose([estimates(judges[name][10:], gold[10:]) for name in ("best", "worst")])
    np.testing.assert_allclose(pair[["estimate_a", "estimate_b"]], expected, rtol=0, atol=1e-12)
    error = (table["high"] - table["low"]) / 2 / stats.t.ppf(0.975, table["n"] - 1)
    expected = 2 * stats.t.sf(table["difference"].abs() / error, table["n"] - 1)
    np.testing.assert_allclose(table["p"], expected)
    for _, rows in table.groupby(level="statistic"):
        np.testing.assert_allclose(rows["p_holm"], multipletests(rows["p"], method="holm")[1])
    told = table["p_holm"].xs("kendall", level="statistic") <= 0.05
    assert told.tolist() == [True, True, True, False, True, True]  # "one" and "other" are alike
    with pytest.raises(ValueError, match="two or more, each with a name of its own, not one"):
        compare_judges(gold, judges[["one"]])


def test_similar_judges_are_told_apart_by_ranks():
    """Of 60 samples a plain jackknife told better ones in 12 and 15, a permutation of ranks in 14.

    At an equal correlation, by swapping judges at random, 3 of 60 are told apart by chance.
    """
    root = np.linalg.cholesky([[1, 0.72, 0.67], [0.72, 1, 0.97], [0.67, 0.97, 1]]).T
    apart = {"equal": np.zeros(3), "better": np.zeros(3)}
    for seed in range(60):
        rng = np.random.default_rng(seed)
        gold, better, worse = (rng.normal(size=(50, 3)) @ root).T
        swap = rng.random(50) < 0.5
        equal = np.where(swap, [better, worse], [worse, better])
        for kind, (a, b) in {"equal": equal, "better": (better, worse)}.items():
            apart[kind] += (compare_judges(gold, {"a": a, "b": b})["p"] <= 0.05).to_numpy()
    assert (apart["better"] >= [20, 18, 18]).all() and apart["equal"].max() <= 7, apart


def test_equivalence_is_two_one_sided_tests():
    rng = np.random.default_rng(0)
    gold = rng.normal(size=300)
    judges = {"a": gold + rng.normal(size=300), "b": gold + rng.normal(size=300)}
    table = compare_judges(gold, judges, margin=0.15)
    error = (table["high"] - table["low"]) / 2 / stats.t.ppf(0.975, 299)
    above = stats.t.sf((table["difference"] + 0.15) / error, 299)
    below = stats.t.cdf((table["difference"] - 0.15) / error, 299)
    np.testing.assert_allclose(table["p_equivalence"], np.maximum(above, below))
    assert (table["p_equivalence"] < 0.05).all() and (table["p"] > 0.05).all()
    wide = compare_judges(gold[:30], {name: own[:30] for name, own in judges.items()}, margin=0.15)
    assert (wide["p_equivalence"] > 0.05).all()
    with pytest.raises(ValueError, match="above 0"):
        compare_judges(gold, judges, margin=0)


def test_a_group_that_outweighs_others_leaves_few_degrees_of_freedom():
    """Of 40 rows beside 19 of 2 they are those of 78^2 / (40^2 + 19 * 2^2) = 3.6 equal groups."""
    rng = np.random.default_rng(0)
    gold, a, b = rng.normal(size=(3, 78))
    group = np.repeat(np.arange(20), [40, *[2] * 19])
    table = compare_judges(gold, {"a": gold + a, "b": gold + b}, groups=group)
    half = (table["high"] - table["low"]) / 2
    t = table["difference"].abs() / half * stats.t.ppf(0.975, 78**2 / 1676 - 1)
    np.testing.assert_allclose(table["p"], 2 * stats.t.sf(t, 78**2 / 1676 - 1))
