"""Every public function of `vjudge.metrics` on degenerate input: NaN with a warning, or an error."""

import inspect
import warnings

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from vjudge import metrics
from vjudge.metrics.caveats import add_caveats
from vjudge.metrics.formatting import format_interval


def verdicts(x, names=("a", "b", "tie"), others=True):
    """Scores as verdicts; what is no choice stays as it is, or is missing of people."""
    words = dict(zip((1, 2, 3), names, strict=True))
    read = [None if v is pd.NA else words.get(v, v if others else None) for v in x]
    return [pd.NA if v is pd.NA else word for v, word in zip(x, read, strict=True)]


def texts(x):
    return [None if not isinstance(v, str) and pd.isna(v) else str(v) for v in x]


def ratings(x, y):
    return list(zip(x, y, strict=True))


def arguments(x, y, group):
    """What each function takes of two columns of scores and a group of each."""
    feedback = verdicts(x, ("left", "right", "both good"), others=False)
    return {
        "agreement": (ratings(x, y),),
        "best_of_n": (x, y),
        "bradley_terry": (group, group[::-1], verdicts(x)),
        "calibration_curve": (x, y),
        "compare_choices": (
            verdicts(y, others=False),
            {"x": verdicts(x), "y": verdicts(list(x)[::-1])},
        ),
        "calibration_errors": (x, y),
        "compare_judges": (y, {"x": x, "y": list(x)[::-1]}),
        "correlate": (x, y),
        "correlate_levels": (x, y),
        "feedback_preference": (feedback,),
        "lengths": (texts(x),),
        "pairwise_accuracy": (verdicts(x), verdicts(y, others=False)),
        "raters": (ratings(x, y), {"x": x}),
        "win_rate": (verdicts(x),),
    }


TAKES = list(arguments([], [], []))
ELSEWHERE = """alt_test conformal_coverage conformal_intervals corrected_rate corrected_rate_from_labels
effective_judges expected_calibration_error labels_needed length_controlled_win_rate length_test
prediction_powered_mean ranking_accuracy scaled severities temperature_scaling"""  # elsewhere

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


def call(name, x, y, group):
    function = getattr(metrics, name)
    parameters = inspect.signature(function).parameters
    options = {"groups": group, "systems": group}
    options = {name: value for name, value in options.items() if name in parameters}
    if "options" in parameters or "n_resamples" in parameters:
        options["n_resamples"] = 20
    return function(*arguments(x, y, group)[name], **options)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", TAKES)
def test_undefined_is_nan_with_a_warning(name, case):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            result = call(name, *CASES[case])
        except (TypeError, ValueError) as error:
            assert len(str(error)) > 20 and case in ("nothing", "all missing", "one"), error
            return
    # Warnings say something to a user.
    assert all(issubclass(warning.category, UserWarning) for warning in caught)
    if name == "lengths":  # missing where a text is
        return
    table = pd.DataFrame(result)
    assert not np.isinf(table.select_dtypes("number").to_numpy(dtype=float)).any()
    columns = table.columns.intersection(["estimate", "low", "high", "difference", "judge"])
    if table[columns].isna().any(axis=None):
        assert caught, f"NaN without a warning:\n{table}"


def test_every_public_statistic_is_here_and_has_a_source_and_an_example():
    assert set(metrics.__all__) == {*TAKES, *ELSEWHERE.split()}
    for name in metrics.__all__:
        text = getattr(metrics, name).__doc__
        assert "Source:" in text and ">>>" in text, name


def test_a_caveat_is_kept_once_and_warned_of_once():
    table = pd.DataFrame({"estimate": [1.0]})
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        add_caveats(table, ["few labels"])
        add_caveats(table, iter(["few labels", "a ceiling"]))
    assert table.attrs["caveats"] == ["few labels", "a ceiling"]
    assert [str(warning.message) for warning in caught] == table.attrs["caveats"]
    assert all(warning.filename == __file__ for warning in caught)


@example([0.0, 0.0, -0.03125], 1, False)
@given(st.lists(st.floats(-1, 1), min_size=3, max_size=3), st.integers(1, 3), st.booleans())
def test_bounds_hold_their_estimate_in_print(values, digits, zero):
    low, estimate, high = sorted(values)
    text = format_interval(estimate, low, high, digits, zero=zero)
    printed = [float(part.strip("[],")) for part in text.split()]
    assert printed[1] <= printed[0] <= printed[2] and "-0.0 " not in text
    if high - low > 1e-4:
        assert printed[1] < printed[2]  # an interval with a width has one in print
