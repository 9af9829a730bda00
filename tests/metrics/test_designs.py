"""Raters' severity, the alternative annotator test, panels and plans, where designs are not plain."""

import warnings

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import vjudge as vj
from validity import numbers
from vjudge import metrics
from vjudge.metrics.noninferiority import exact_p, noninferiority_test


def unequally_assigned(rng, groups=1):
    """Four raters of known severity, two an item; two of them are given the better items."""
    severity = np.array([0.5, 0.0, -0.5, 0.0])
    image = np.arange(60) // groups
    quality = rng.normal(3, 1, 60)
    mood = rng.normal(0, 0.6 * (groups > 1), (60, 4))  # of a rater on the items of an image
    rows = []
    for item in range(60):
        odds = np.exp((quality[item] - 3) * np.array([1, 1, -1, -1]))
        for rater in rng.choice(4, 2, replace=False, p=odds / odds.sum()):
            score = quality[item] - severity[rater] + mood[image[item], rater]
            rows.append([item, image[item], "abcd"[rater], score + rng.normal(0, 0.7)])
    columns = ["item", "image", "rater", "score"]
    return pd.DataFrame(rows, columns=columns), dict(zip("abcd", severity, strict=True))


@pytest.mark.parametrize("groups", [1, 5])
def test_severities_hold_where_raters_saw_unequal_items(groups):
    held = []
    errors = []
    for seed in range(40):
        frame, severity = unequally_assigned(np.random.default_rng(seed), groups)
        table = metrics.severities(frame, groups=frame["image"])
        truth = table.index.map(severity)
        held.append(((table["low"] <= truth) & (truth <= table["high"])).mean())
        errors.append((table["estimate"] - truth).sort_index())
    assert np.mean(held) > 0.9, np.mean(held)
    assert np.abs(np.mean(errors, axis=0)).max() < 0.1  # raters' own means are .3 off


def test_severities_equal_least_squares_with_an_effect_of_every_item():
    import statsmodels.formula.api as smf

    frame, _ = unequally_assigned(np.random.default_rng(5))
    fit = smf.ols("score ~ 0 + C(rater) + C(item)", frame).fit().params
    effects = fit[[f"C(rater)[{name}]" for name in "abcd"]].to_numpy()
    table = metrics.severities(frame).loc[list("abcd")]
    np.testing.assert_allclose(table["estimate"], effects.mean() - effects, atol=1e-9)
    shuffled = frame.sample(frac=1, random_state=0).set_axis([0] * len(frame))
    again = metrics.severities(shuffled).loc[list("abcd")]
    np.testing.assert_allclose(again[["low", "high"]], table[["low", "high"]], atol=1e-9)


def test_teams_on_disjoint_items_are_not_compared():
    rng = np.random.default_rng(0)
    rows = []
    for item in range(40):
        better = item < 20
        for rater in "ab" if better else "cd":
            rows.append([item, rater, 3 + 2 * better + rng.normal(0, 0.3)])
    frame = pd.DataFrame(rows, columns=["item", "rater", "score"])
    with pytest.warns(UserWarning, match="raters fall into 2 parts that share no items"):
        table = metrics.severities(frame)
    assert table["estimate"].abs().max() < 0.2 and table["items"].eq(20).all()
    assert table.groupby("part").apply(lambda part: "".join(sorted(part.index))).tolist() == [
        "ab",
        "cd",
    ]
    alone = pd.DataFrame([[99, "e", 1.0]], columns=frame.columns)
    with pytest.warns(UserWarning, match="e: undefined .of one rater alone"):
        table = metrics.severities(pd.concat([frame, alone]))
    assert np.isnan(table.loc["e", "estimate"])


def test_the_exact_test_by_enumeration():
    # Three items at epsilon .5: the score is lowest where the judge is ahead in all three, and that
    # is likeliest, .25^3, where the share behind is as large as it can be.
    assert exact_p(0, 3, 3, 0.5) == pytest.approx(0.25**3)
    assert exact_p(0, 0, 30, 0.01) == pytest.approx(0.99**30)
    assert exact_p(30, 0, 30, 0.01) == pytest.approx(1)
    # Beside a t test where counts are large
    lead = np.repeat([1.0, -1.0, 0.0], [40, 35, 125])
    t = stats.ttest_1samp(lead, 0.1, alternative="less").pvalue
    assert noninferiority_test(lead, np.arange(200), 0.1) == pytest.approx(t)
    assert exact_p(40, 35, 200, 0.1) == pytest.approx(t, abs=0.01)
    assert exact_p(60, 52, 301, 0.1) == pytest.approx(exact_p(60, 52, 300, 0.1), abs=0.01)


def test_alt_test_keeps_its_level_where_people_are_nearly_always_right():
    """The person is ahead by exactly epsilon; 30 items, of which few favour the judge."""
    rng = np.random.default_rng(0)
    told = {"items": 0, "images": 0}
    for _ in range(400):
        lead = rng.choice([1.0, -1.0, 0.0], 30, p=[0.11, 0.01, 0.88])
        told["items"] += noninferiority_test(lead, np.arange(30), 0.1) <= 0.05
        image = rng.choice([1.0, -1.0, 0.0], 20, p=[0.3, 0.1, 0.6]).repeat(5)
        told["images"] += noninferiority_test(image, np.arange(100) // 5, 0.2) <= 0.05
    assert told["items"] <= 20 and told["images"] <= 32, told  # 50 to 60 with a t test over items


def test_numbers_of_items_are_reduced_to_those_of_groups_without_rounding_errors():
    """22 * (15 / 22) is 14.999999999999998 in floating point: the judge leads in all 15 groups."""
    unit = np.arange(22) % 15
    assert noninferiority_test(np.full(22, -1.0), unit, 0.1) == exact_p(0, 15, 15, 0.1)


def test_alt_test_of_one_group_is_undefined_and_says_so():
    rng = np.random.default_rng(0)
    people = pd.DataFrame(rng.integers(1, 6, (100, 3)))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        table = metrics.alt_test(people, pd.Series(rng.integers(1, 6, 100)), groups=["image"] * 100)
    assert table["p"].isna().all() and not table["rejected"].any()
    assert {warning.category for warning in caught} == {UserWarning}
    assert any("30 items in two groups or more" in str(warning.message) for warning in caught)


def test_people_come_as_lists_too():
    rng = np.random.default_rng(0)
    truth = rng.integers(1, 6, size=120)
    people = pd.DataFrame(truth[:, None] + rng.integers(-1, 2, size=(120, 3))).astype(float)
    people.loc[::7, 1] = np.nan
    lists = pd.Series([[None if np.isnan(x) else x for x in row] for row in people.to_numpy()])
    judge = pd.Series(truth + rng.integers(-1, 2, size=120))
    for call in (
        lambda people: metrics.alt_test(people, judge, measure="rmse"),
        lambda people: metrics.labels_needed(judge, people, above=0.3),
    ):
        expected = call(people)
        pd.testing.assert_frame_equal(call(lists), expected, check_names=False)
        pd.testing.assert_frame_equal(call(people.to_numpy()), expected)
    lists[1] = 3.0  # whose it is nobody knows
    with pytest.raises(TypeError, match="ratings of item 1 are 3.0: give a list of numbers"):
        metrics.alt_test(lists, judge, measure="rmse")
    twice = metrics.alt_test(people.set_axis([0] * 120), judge.set_axis([0] * 120), measure="rmse")
    pd.testing.assert_frame_equal(twice, metrics.alt_test(people, judge, measure="rmse"))


def test_a_plan_counts_the_error_of_its_pilot():
    """Judges .82 and .80 with people: of plans from a pilot, the true power is what is promised."""
    power = []
    inside = []
    for seed in range(60):
        own, other, people = numbers.two_judges(400, np.random.default_rng(seed))
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)
                plan = metrics.labels_needed(
                    pd.Series(own), pd.DataFrame(people), rival=pd.Series(other)
                ).loc[2]
        except ValueError:  # the rival is ahead by chance
            continue
        if plan["items"] > 0:
            true = stats.norm.cdf(0.0774 * np.sqrt((plan["items"] - 3) / 1.032) - 1.96)
            power.append(true)
            inside.append(plan["low"] <= true <= plan["high"])
    assert len(power) > 20 and np.mean(power) > 0.8 and np.mean(inside) > 0.9
    judge = pd.Series(own)
    table = metrics.labels_needed(
        judge, pd.DataFrame(people), rival=pd.Series(other), difference=0.03
    )
    assert table[["low", "high"]].sub(table["power"], axis=0).abs().max(axis=None) < 1e-9
    assert table["power"].between(0.8, 0.81).all()
    with pytest.warns(UserWarning, match="the pilot doesn't show that the judge is ahead"):
        plan = metrics.labels_needed(
            judge, pd.DataFrame(people), above=np.corrcoef(own, people.mean(axis=1))[0, 1] - 0.005
        )
    assert plan["items"].isna().any()
    image = np.arange(400) // 4
    shared = np.random.default_rng(1).normal(size=(2, 100))[:, image]
    truth = people.mean(axis=1) + shared[0]
    plans = [
        metrics.labels_needed(
            judge + shared[0] + shared[1], pd.Series(truth), above=0.3, groups=groups
        )
        for groups in (None, image)
    ]
    assert plans[1].loc[1, "items"] > 1.3 * plans[0].loc[1, "items"]


def test_panels_are_resampled_by_group():
    rng = np.random.default_rng(0)
    image = np.arange(100) // 5
    shared = rng.normal(size=(20, 1))[image]
    errors = pd.DataFrame(
        shared + 0.3 * rng.normal(size=(20, 4))[image] + rng.normal(size=(100, 4))
    )
    alone = metrics.effective_judges(errors)
    grouped = metrics.effective_judges(errors, groups=image)
    width = (grouped["high"] - grouped["low"]) / (alone["high"] - alone["low"])
    assert (width > 1.3).all() and grouped["n"].eq(100).all()
    assert grouped["estimate"].tolist() == pytest.approx(alone["estimate"].tolist())


def test_rows_of_one_id_are_one_unit_wherever_items_are():
    """Five equal votes an item: tests and intervals are those of the items, and a caveat says so."""
    rng = np.random.default_rng(0)
    votes = np.repeat(np.arange(40), 5)
    ids = [f"item {n}" for n in votes]
    people = pd.DataFrame(rng.integers(1, 6, (40, 3)).astype(float)).loc[votes].set_axis(ids)
    judge = people.mean(axis=1) + pd.Series(rng.normal(size=40)).loc[votes].to_numpy()
    for call in (
        lambda **groups: metrics.alt_test(people, judge, measure="rmse", **groups),
        lambda **groups: metrics.effective_judges(people, **groups),
        lambda **groups: metrics.labels_needed(judge, people, above=0.1, **groups),
    ):
        with pytest.warns(UserWarning, match="200 rows have 40 ids"):
            table = call()
        pd.testing.assert_frame_equal(table, call(groups=ids))
    frame = people.set_axis(["x", "y", "z"], axis=1).assign(judge=judge)
    for rows in (frame, frame.rename_axis("id").reset_index()):
        table = vj.scores(rows, ["judge"], ["x", "y", "z"])
        own = table.correlate(n_resamples=200)
        by_id = metrics.correlate(judge, people.mean(axis=1), groups=ids, n_resamples=200)
        assert own.table["low"].tolist() == pytest.approx(by_id["low"].tolist())
        assert "200 rows have 40 ids" in " ".join(own.caveats)


def test_coverage_of_conformal_intervals_counts_groups():
    rng = np.random.default_rng(0)
    image = np.arange(200) // 10
    truth = pd.Series(rng.normal(3, 1, 200))
    judge = truth + rng.normal(size=20)[image]
    alone, grouped = (
        metrics.conformal_coverage(judge, truth, groups=groups).loc["all"]
        for groups in (None, image)
    )
    assert grouped["share"] == alone["share"] and grouped["low"] < alone["low"] - 0.05
