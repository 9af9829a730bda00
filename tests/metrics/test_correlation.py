"""correlate: hand-derived values, SciPy, public data, and what it refuses."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from vjudge.metrics import correlate

TIFA = Path(__file__).parents[3] / "shared/data/tifa/human_annotations_with_scores.json"
COLUMNS = ["estimate", "low", "high", "n", "missing"]


def estimates(x, y, **options):
    return correlate(x, y, n_resamples=0, **options)["estimate"].tolist()


def test_values_derived_by_hand():
    # Deviations (-2 -1 0 1 2) and (-1 -2 1 0 2): 8 / 10. One swap costs d² = 2, two swaps 4: 1 - 6·4/120 = 0.8.
    # Two of ten pairs are discordant: (8 - 2) / 10.
    assert estimates([1, 2, 3, 4, 5], [2, 1, 4, 3, 5]) == pytest.approx([0.8, 0.8, 0.6], abs=1e-15)


def test_ties_are_midranks_and_tau_b():
    # x 1 1 2 3, y 1 2 2 3: 4 concordant, none discordant, one tie in each: 4 / sqrt(5·5). Midranks 1.5 1.5 3 4 and
    # 1 2.5 2.5 4: covariance 3.75, variances 4.5. Pearson: 2 / sqrt(2.75 · 2) = 2.0 / 2.345.
    expected = [2 / np.sqrt(2.75 * 2), 3.75 / 4.5, 0.8]
    assert estimates([1, 1, 2, 3], [1, 2, 2, 3]) == pytest.approx(expected, abs=1e-15)


@settings(deadline=None, max_examples=200)
@given(
    st.lists(
        st.tuples(*[st.one_of(st.integers(-5, 5), st.floats(-1e3, 1e3).map(lambda v: round(v, 3)))] * 2),
        min_size=3,
        max_size=40,
    )
)
def test_equals_scipy(pairs):
    x, y = np.array(pairs, dtype=float).T
    if len(set(x)) == 1 or len(set(y)) == 1:
        with pytest.warns(UserWarning, match="constant"):
            assert np.isnan(estimates(x, y)).all()
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", stats.NearConstantInputWarning)
        scipy = [stats.pearsonr(x, y)[0], stats.spearmanr(x, y)[0], stats.kendalltau(x, y)[0]]
    np.testing.assert_allclose(estimates(x, y), scipy, rtol=0, atol=1e-12)


def test_frame_and_its_account():
    rng = np.random.default_rng(0)
    gold = rng.integers(1, 6, size=120)
    score = np.where(rng.random(120) < 0.6, gold, rng.integers(1, 6, size=120)).astype(float)
    score[:7] = np.nan
    image = np.arange(120) // 4
    table = correlate(score, gold, groups=image, n_resamples=2000, seed=3)
    assert table.index.tolist() == ["pearson", "spearman", "kendall"] and table.columns.tolist() == COLUMNS
    assert (table["n"] == 113).all() and (table["missing"] == 7).all()
    assert ((table["low"] < table["estimate"]) & (table["estimate"] < table["high"])).all()
    assert table.attrs["n_groups"] == 29 and table.attrs["missing_x"] == 7 and table.attrs["missing_y"] == 0
    assert table.attrs["method"] == (
        "95% bootstrap intervals (Student's on Fisher's z scale), 2,000 resamples of 29 groups of 113 items, seed 3"
    )
    assert table.attrs["undefined_resamples"] == {"pearson": 0, "spearman": 0, "kendall": 0}
    pd.testing.assert_frame_equal(table, correlate(score, gold, groups=image, n_resamples=2000, seed=3))
    assert table.attrs == json.loads(json.dumps(table.attrs))


def test_wider_confidence_is_a_wider_interval_and_more_items_a_narrower_one():
    rng = np.random.default_rng(1)
    x = rng.normal(size=400)
    y = x + rng.normal(size=400)

    def width(n, confidence):
        table = correlate(x[:n], y[:n], confidence=confidence, n_resamples=1000)
        return table["high"] - table["low"]

    assert (width(100, 0.99) > width(100, 0.8)).all() and (width(400, 0.9) < width(50, 0.9)).all()


@pytest.mark.parametrize("missing", [None, np.nan, pd.NA, float("nan")])
def test_missing_is_left_out_and_counted(missing):
    table = correlate([1, 2, missing, 4, 5], [1, 3, 2, 4, missing], n_resamples=0)
    assert table["n"].tolist() == [3] * 3 and table["missing"].tolist() == [2] * 3
    assert table.loc["spearman", "estimate"] == 1


def test_nullable_and_integer_columns():
    nullable = pd.Series([1, 2, None, 4, 3], dtype="Int64")
    assert correlate(nullable, pd.Series([1, 2, 3, 4, 5]), n_resamples=0)["n"].tolist() == [4] * 3


@pytest.mark.parametrize(
    ("x", "y", "reason"),
    [
        ([3, 3, 3, 3], [1, 2, 3, 4], "x constant"),
        ([3, 3, 3, 3], [1, 1, 1, 1], "x and y constant"),
        ([1, 2], [1, 2], "2 complete items"),
        ([], [], "0 complete items"),
        ([np.nan] * 5, [1, 2, 3, 4, 5], "0 complete items"),
        ([1, 2, 3, 4], [1, np.nan, np.nan, 4], "2 complete items"),
        ([1, 2, 3], [np.nan, 2, 3], "2 complete items"),
        ([None, None, None], [None, None, None], "0 complete items"),
        ([0.1 + 0.2, 0.1 + 0.2, 0.1 + 0.2], [1, 2, 3], "x constant"),
    ],
)
def test_undefined_is_nan_with_a_warning(x, y, reason):
    with pytest.warns(UserWarning, match=reason):
        table = correlate(x, y)
    assert table[["estimate", "low", "high"]].isna().all(axis=None)


def test_one_group_has_no_interval():
    with pytest.warns(UserWarning, match="one group"):
        table = correlate([1, 2, 3, 4], [1, 2, 4, 3], groups=["a"] * 4)
    assert table["estimate"].notna().all() and table[["low", "high"]].isna().all(axis=None)


def test_groups_of_one_are_items():
    rng = np.random.default_rng(0)
    x, y = rng.integers(1, 6, size=(2, 40))
    single, items = correlate(x, y, groups=range(40)), correlate(x, y)
    np.testing.assert_allclose(single[["low", "high"]], items[["low", "high"]], atol=0.02)


@settings(deadline=None, max_examples=50)
@given(st.data())
def test_nothing_breaks_on_odd_scores(data):
    n = data.draw(st.integers(0, 12))
    score = st.one_of(st.none(), st.integers(1, 3), st.sampled_from([np.nan, 1.5, -1e300, 1e300, 5e-324]))
    x, y = (data.draw(st.lists(score, min_size=n, max_size=n)) for _ in range(2))
    groups = data.draw(st.lists(st.integers(0, 3), min_size=n, max_size=n))
    options = data.draw(st.sampled_from([{}, dict(groups=groups)]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        warnings.simplefilter("error", RuntimeWarning)
        table = correlate(x, y, **options, n_resamples=20)
    bounds = table[["low", "estimate", "high"]].to_numpy()
    assert (np.isnan(bounds) | (np.abs(bounds) <= 1)).all()
    assert not (bounds[:, 0] > bounds[:, 2]).any()


@pytest.mark.parametrize(("n", "off", "warns"), [(60, 12, True), (60, 30, False), (400, 80, False), (20, 14, False)])
def test_strong_ceilings_are_named_by_their_items(n, off, warns):
    """A warning on every run, not only on those where resamples happen to be constant."""
    rng = np.random.default_rng(0)
    x, y = (np.where(rng.permutation(n) < off, rng.integers(1, 5, n), 5) for _ in range(2))
    y[:3] = x[:3] = [1, 5, 3]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        table = correlate(x, y, n_resamples=50)
    assert any("off the most frequent score" in str(w.message) for w in caught) == warns
    assert table.attrs["off_mode"]["x"] == n - np.bincount(x).max() and set(table.attrs["off_mode"]) == {"x", "y"}


def test_unstable_and_widthless_intervals_warn():
    with pytest.warns(UserWarning, match="undefined in .* of the resamples"):
        correlate([1, 1, 1, 2], [1, 2, 2, 3], n_resamples=500)
    with pytest.warns(UserWarning, match="no width"):
        correlate(range(30), range(30), n_resamples=200)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (dict(x=[1, "4", 3], y=[1, 2, 3]), TypeError, "x has values that are not numbers: position 1: '4'"),
        (dict(x=[1, 2, 3], y=["a", 2, "b"]), TypeError, "position 0: 'a', position 2: 'b'"),
        (dict(x=[1, True, 3], y=[1, 2, 3]), TypeError, "position 1: True"),
        (dict(x=[[1], [2], [3]], y=[1, 2, 3]), TypeError, "position 0"),
        (dict(x=np.ones((3, 2)), y=[1, 2, 3]), ValueError, "one dimension"),
        (dict(x="123", y=[1, 2, 3]), TypeError, "sequence of numbers, not str"),
        (dict(x=[1, 2, np.inf], y=[1, 2, 3]), ValueError, "position 2"),
        (dict(x=[1, 2, 3], y=[1, 2]), ValueError, "x has 3 scores and y has 2"),
        (dict(x=[1, 2, 3], y=[1, 2, 4], groups=["a", None, "b"]), ValueError, "position 1: None"),
        (dict(x=[1, 2, 3], y=[1, 2, 4], groups=["a", "b"]), ValueError, "2 labels for 3 items"),
        (dict(x=[1, 55, 3], y=[1, 2, 3], scale=(1, 5)), ValueError, "x has scores off the scale 1 to 5: position 1"),
        (dict(x=[1, 2, 3], y=[0, 2, 9], scale=(1, 5)), ValueError, "position 0: .*, position 2"),
        (dict(x=[1, 2, 3], y=[1, 2, 3], confidence=95), ValueError, "between 0 and 1"),
        (dict(x=[1, 2, 3], y=[1, 2, 3], n_resamples=-1), ValueError, "negative"),
        (dict(x=pd.Series([1, 2, 3]), y=pd.Series([1, 2, 3], index=[2, 1, 0])), ValueError, "different indexes"),
    ],
)
def test_bad_input_is_named(arguments, error, message):
    with pytest.raises(error, match=message):
        correlate(**arguments)


def test_a_missing_group_of_an_unscored_item_is_no_matter():
    table = correlate([1, 2, 3, None], [2, 1, 3, 4], groups=["a", "b", "c", None], n_resamples=0)
    assert table["n"].tolist() == [3] * 3


@pytest.mark.skipif(not TIFA.exists(), reason=f"public data absent: {TIFA}")
def test_tifa_to_four_decimals():
    """Values recomputed with SciPy from the published records; TIFA's own "Spearman" is Pearson."""
    rows = pd.DataFrame(json.loads(TIFA.read_text()).values())
    published = {  # Pearson and tau-b as TIFA's notebook prints them, Spearman recomputed
        "meteor": (0.3397, 0.3723, 0.2741),
        "bleu": (0.1833, 0.2590, 0.1879),
        "rouge": (0.3289, 0.3360, 0.2449),
        "spice": (0.3281, 0.3073, 0.2318),
        "clipscore_vitb32": (0.3318, 0.3198, 0.2314),
        "tifa_vilt": (0.4932, 0.5000, 0.3824),
        "tifa_git-large": (0.5445, 0.5451, 0.4255),
        "tifa_ofa-large": (0.4961, 0.4866, 0.3725),
        "tifa_blip2-flant5xl": (0.5590, 0.5581, 0.4360),
        "tifa_mplug-large": (0.5967, 0.5922, 0.4717),
    }
    for metric, values in published.items():
        table = correlate(rows[metric], rows["human_avg"], groups=rows["text_id"], n_resamples=20)
        assert table["estimate"].round(4).tolist() == list(values)
        assert table.attrs["n_groups"] == rows["text_id"].nunique()
    raters = pd.DataFrame(rows["human_scores"].tolist())
    agreement = correlate(raters[0], raters[1], n_resamples=0)["estimate"].round(3)
    assert agreement[["pearson", "spearman"]].tolist() == [0.684, 0.722]
