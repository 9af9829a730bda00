"""The win rate that would remain if both sides' responses were equally long."""

from __future__ import annotations

import numpy as np
import pandas as pd
from scipy import special

from vjudge.metrics.array_types import Booleans, Column, Floats, Groups
from vjudge.metrics.caveats import add_caveats
from vjudge.metrics.columns import as_floats, check_columns, check_options, is_blank
from vjudge.metrics.groups import group_codes, groups_from_ids
from vjudge.metrics.intervals import t_quantile
from vjudge.metrics.logistic import Logistic
from vjudge.metrics.shares import shares
from vjudge.metrics.verdicts import read_choices

WINS_OF_A = {"a": 1.0, "b": 0.0, "tie": 0.5}
MAX_LOGIT = 20.0  # a larger prediction shows that the likelihood has no finite maximum
MIN_COMPARISONS = 10


def length_controlled_win_rate(
    verdicts: Column,
    length_a: Column,
    length_b: Column,
    *,
    difficulty: Column | None = None,
    groups: Groups = None,
    confidence: float = 0.95,
) -> pd.DataFrame:
    """Estimate how often side a would win if its responses were as long as those of side b.

    A logistic regression predicts the verdicts from an intercept, tanh(difference in length / its
    standard deviation) and, if given, each instruction's difficulty. The estimate is the mean
    prediction with a difference in length of 0, over all comparisons with lengths (and difficulty),
    also those without a verdict.

    Args:
        verdicts: as in `win_rate`, a tie being half a win; or numbers, the probability that a wins
            (AlpacaEval's `preference` minus 1, where a is its output_2).
        length_a, length_b: of the two responses, in the same unit (AlpacaEval counts characters).
        difficulty: of each instruction (AlpacaEval's `instruction_difficulty`).
        groups, confidence: as in `win_rate`.

    Returns:
        Rows `win_rate` (a tie is half a win) and `length_controlled`, with columns estimate, low,
        high, n and missing (comparisons without a verdict, a length or a given difficulty).

    Raises:
        ValueError: fewer than ten comparisons have a verdict and lengths, or the lengths never
            differ, or numeric verdicts lie outside of [0, 1].

    AlpacaEval's regression has two more penalties, which need its own data: an L1 penalty, chosen
    by cross-validation, and a pull towards the results of its "gamed" baselines. Where no finite
    maximum exists, Firth's penalty is used here, with a caveat.

    Source: Dubois, Galambosi, Liang and Hashimoto, Length-Controlled AlpacaEval (arXiv
    2404.04475).

    >>> verdicts = ["a", "a", "b", "b", "a", "b"] * 5
    >>> table = length_controlled_win_rate(verdicts, [9, 8, 2, 3, 4, 6] * 5, [5] * 30)
    >>> table["estimate"].round(2).to_dict()
    {'win_rate': 0.5, 'length_controlled': 0.48}
    """
    # 1) The columns, and which comparisons can be used
    check_options(confidence=confidence)
    columns = {"length_a": length_a, "length_b": length_b}
    if difficulty is not None:
        columns["difficulty"] = difficulty
    groups, caveats = groups_from_ids(verdicts, groups)
    check_columns(verdicts=verdicts, groups=groups, **columns)
    points = _points(verdicts)
    features = np.stack([as_floats(column, name=name) for name, column in columns.items()])
    has_features = ~np.asarray(np.isnan(features).any(axis=0))
    used = has_features & ~np.isnan(points)
    # 2) The fit, and the mean prediction at equal lengths
    design = _design(features, has_features, used)
    sample = design[used], points[used], group_codes(groups, used)
    fit = Logistic.of(*sample, penalise=False)
    if np.abs(design[used] @ fit.coefficients).max() > MAX_LOGIT:
        fit = Logistic.of(*sample, penalise=True)
        caveats.append("Firth's penalty makes the fit finite: length tells all verdicts")
    at_equal_lengths = design[has_features]
    at_equal_lengths[:, -1] = 0.0  # the difference in length
    controlled = _mean_prediction(fit, at_equal_lengths, confidence)
    # 3) A table with the plain win rate beside it
    rows = [("win_rate", np.where(used, points, 0), used)]
    table = shares(rows, groups=groups, unit="comparisons", confidence=confidence)
    table.loc["length_controlled"] = [*controlled, used.sum(), (~used).sum()]
    add_caveats(table, caveats)
    return table.astype({"n": int, "missing": int})


def _points(verdicts: Column) -> Floats:
    """Convert verdicts, texts or numbers, to points of side a: 1 for a win, 0.5 for a tie.

    Returns:
        The points of n comparisons, 0 to 1, NaN without a verdict; (n,).

    Raises:
        ValueError: a number lies outside of [0, 1], or no text can be read.
    """
    if any(isinstance(cell, str) and not is_blank(cell) for cell in verdicts):
        choice, _, _ = read_choices(verdicts)
        return np.array([WINS_OF_A.get(word, np.nan) for word in choice])
    points = as_floats(verdicts, name="verdicts")
    outside = points[(points < 0) | (points > 1)]
    if outside.size:
        raise ValueError(
            f"verdicts has {outside.size} values outside of [0, 1], such as {outside[0]:g}: give"
            " the probability that a wins (AlpacaEval's preference less 1)"
        )
    return points


def _design(features: Floats, has_features: Booleans, used: Booleans) -> Floats:
    """Build the design of the regression: intercept, difficulty if given, difference in length.

    Args:
        features: length a, length b and, if given, difficulty; (2 or 3, n).
        has_features: comparisons without a missing feature; (n,).
        used: those that have a verdict, too; (n,).

    Returns:
        An array of shape (n, 2 or 3), whose last column is tanh(difference / standard deviation).

    Raises:
        ValueError: fewer than ten comparisons are used, or the lengths never differ.
    """
    difference = features[0] - features[1]
    spread = 0.0
    if has_features.sum() > 1:
        spread = float(np.std(difference[has_features], ddof=1))
    if used.sum() < MIN_COMPARISONS or spread == 0:
        raise ValueError(
            f"{used.sum()} comparisons have a verdict and lengths, which differ by {spread:.3g}:"
            " use ten or more, of different lengths"
        )
    intercept = np.ones(len(difference))
    return np.column_stack([intercept, *features[2:], np.tanh(difference / spread)])


def _mean_prediction(fit: Logistic, design: Floats, confidence: float) -> list[float]:
    """Average the predicted probabilities of the rows of a design.

    Returns:
        Estimate, low and high. The interval is symmetric on the logit scale, so that it stays
        within 0 and 1.
    """
    probability = special.expit(design @ fit.coefficients)
    mean = float(probability.mean())
    # Delta method, twice: the gradient of the mean with respect to the coefficients gives the
    # standard error of the mean; times the derivative of the logit, 1 / (p (1 - p)), it is that of
    # the mean's logit
    gradient = (probability * (1 - probability)) @ design / len(probability)  # (coefficients,)
    standard_error = float(fit.errors(gradient[None])[0]) / (mean * (1 - mean))
    half_width = t_quantile(confidence, fit.freedom) * standard_error
    low, high = special.expit(special.logit(mean) + np.array([-half_width, half_width]))
    return [mean, low, high]
