"""Every public function of `vjudge.metrics` on degenerate input: NaN with a warning, or an error; numbers in print."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from vjudge import metrics
from vjudge.metrics.tables import format_interval

FAST = {"n_resamples": 20}


def verdicts(x):
    """Scores as verdicts, so that one table of input serves both kinds of function."""
    names = {1: "a", 2: "b", 3: "tie"}
    return [v if v is pd.NA else names.get(v, v) for v in x]


def choices(x, names=("a", "b", "tie")):
    """People's: those scores that are a choice."""
    return [dict(zip((1, 2, 3), names, strict=True)).get(None if v is pd.NA else v) for v in x]


def sizes(x):
    """Numbers without their sign, as lengths have none."""
    return [abs(v) if isinstance(v, int | float) else v for v in x]


def texts(x):
    return [None if not isinstance(v, str) and pd.isna(v) else str(v) for v in x]


def ratings(x, y):
    return list(zip(x, y, strict=True))


FEEDBACK = ("left", "right", "both good")
# Name -> a call with two columns of scores and a group of each.
CALLS = {
    "agreement": lambda x, y, g: metrics.agreement(ratings(x, y), groups=g, **FAST),
    "average_samples": lambda x, y, g: metrics.average_samples(
        pd.DataFrame({"id": list(g), "score": list(x)})
    ),
    "bradley_terry": lambda x, y, g: metrics.bradley_terry(g, list(g)[::-1], verdicts(x), **FAST),
    "calibration_curve": lambda x, y, g: metrics.calibration_curve(x, y, groups=g),
    "calibration_errors": lambda x, y, g: metrics.calibration_errors(x, y, groups=g, **FAST),
    "classification": lambda x, y, g: metrics.classification(verdicts(x), verdicts(y), groups=g),
    "compare_judges": lambda x, y, g: metrics.compare_judges(
        y, {"x": x, "y": list(x)[::-1]}, groups=g, **FAST
    ),
    "correlate": lambda x, y, g: metrics.correlate(x, y, groups=g, **FAST),
    "correlate_levels": lambda x, y, g: metrics.correlate_levels(x, y, systems=g, **FAST),
    "correlation_table": lambda x, y, g: metrics.correlation_table(
        {"b": {"x": x}}, {"b": y}, groups={"b": g}, **FAST
    ),
    "feedback_preference": lambda x, y, g: metrics.feedback_preference(
        choices(x, FEEDBACK), groups=g
    ),
    "human_ceiling": lambda x, y, g: metrics.human_ceiling(ratings(x, y), groups=g, **FAST),
    "label_weights": lambda x, y, g: metrics.label_weights(x, y),
    "length_controlled": lambda x, y, g: metrics.length_controlled(
        verdicts(x), sizes(x), sizes(y), groups=g
    ),
    "lengths": lambda x, y, g: metrics.lengths(texts(x)),
    "next_labels": lambda x, y, g: metrics.next_labels(x, y, n=2),
    "overlap_baselines": lambda x, y, g: metrics.overlap_baselines(texts(x), texts(y)),
    "pairwise_accuracy": lambda x, y, g: metrics.pairwise_accuracy(
        verdicts(x), choices(y), groups=g
    ),
    "rater_table": lambda x, y, g: metrics.rater_table(ratings(x, y), x, groups=g, **FAST),
    "tie_calibrated_accuracy": lambda x, y, g: metrics.tie_calibrated_accuracy(
        x, y, within=g, **FAST
    ),
    "win_rate": lambda x, y, g: metrics.win_rate(verdicts(x), groups=g),
}
ELSEWHERE = """published alt_test conformal_intervals corrected_rate corrected_rate_from_labels
effective_judges expected_calibration_error labels_needed prediction_powered_mean scaled severities
temperature_scaling"""  # of other arguments: test_inference.py and test_baselines.py
# A score for each text or item, missing where it has none; a choice of items.
NO_ESTIMATE = {"average_samples", "lengths", "next_labels", "overlap_baselines"}

nan = float("nan")
CASES = {
    "nothing": ([], [], []),
    "one": ([1], [2], ["p"]),
    "one constant": ([3] * 8, [1, 2, 3, 1, 2, 3, 1, 2], list("ppqqrrss")),
    "all missing": ([nan] * 6, [None] * 6, list("ppqqrr")),
    "half missing": ([1, 2, 3, nan, nan, 2, 1, 3], [2, nan, 3, 1, None, 2, 1, 1], list("ppqqrrss")),
    "one group": ([1, 2, 3, 1, 2, 3], [1, 3, 2, 1, 2, 2], ["p"] * 6),
    "nullable integers": (
        pd.array([1, 2, None, 3, 1, 2]),
        pd.array([1, 3, 2, None, 2, 2]),
        list("ppqqrr"),
    ),
    "vast and tiny": ([1e9, -1e9, 1e-9, 2, 3, 1], [1, 2, 3, 1e6, -1e6, 0], list("ppqqrr")),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", CALLS)
def test_undefined_is_nan_with_a_warning(name, case):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            result = CALLS[name](*CASES[case])
        except (TypeError, ValueError) as error:
            assert len(str(error)) > 20 and case in ("nothing", "all missing", "one"), error
            return
    assert all(issubclass(warning.category, UserWarning) for warning in caught), (
        "those that say something to a user"
    )
    if name in NO_ESTIMATE:
        return
    table = result.to_frame() if isinstance(result, pd.Series) else result
    assert not np.isinf(table.select_dtypes("number").to_numpy(dtype=float)).any()
    columns = [
        column for column in ("estimate", "low", "high", "difference", "judge") if column in table
    ]
    if table[columns].isna().any(axis=None):
        assert caught, f"NaN without a warning:\n{table}"


def test_every_public_statistic_is_here_and_has_a_source():
    assert set(metrics.__all__) == {*CALLS, *ELSEWHERE.split()}
    for name in metrics.__all__:
        text = getattr(metrics, name).__doc__
        assert "Source:" in text and ">>>" in text, name


@example([0.0, 0.0, -0.03125], 1, False)
@given(st.lists(st.floats(-1, 1), min_size=3, max_size=3), st.integers(1, 3), st.booleans())
def test_bounds_hold_their_estimate_in_print(values, digits, zero):
    low, estimate, high = sorted(values)
    text = format_interval(estimate, low, high, digits, zero=zero)
    printed = [float(part.strip("[],")) for part in text.split()]
    assert printed[1] <= printed[0] <= printed[2] and "-0.0 " not in text
    if high - low > 1e-4:
        assert printed[1] < printed[2]  # an interval with a width has one in print
