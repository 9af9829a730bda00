"""Format numbers, intervals and p-values for print."""

from __future__ import annotations

import math
import re

MAX_DIGITS = 5  # after the point, of an interval whose bounds are close to each other


def format_number(value: float, digits: int = 2, *, zero: bool = True) -> str:
    """Format a number for tables and figures: never -0.00, and "n/a" for NaN.

    Args:
        value: the number.
        digits: how many digits follow the point.
        zero: whether the zero before the point is printed.

    >>> format_number(-0.001), format_number(-0.714, zero=False), format_number(float("nan"))
    ('0.00', '-.71', 'n/a')
    """
    if math.isnan(value):
        return "n/a"
    text = f"{value:.{digits}f}"
    if float(text) == 0:
        text = text.removeprefix("-")
    return text if zero else re.sub(r"^(-?)0\.", r"\1.", text)


def format_interval(
    estimate: float, low: float, high: float, digits: int = 2, *, zero: bool = True
) -> str:
    """Format an estimate with its bounds, or alone where a bound is NaN.

    If both bounds look the same in `digits` digits, all three numbers get as many more as make the
    bounds differ, up to five; if five don't, they keep `digits`.

    >>> format_interval(0.714, 0.618, 0.784), format_interval(0.9994, 0.9985, 0.9997)
    ('0.71 [0.62, 0.78]', '0.999 [0.999, 1.000]')
    >>> format_interval(1, 0.9999999, 1)
    '1.00 [1.00, 1.00]'
    """
    if math.isnan(low) or math.isnan(high):
        return format_number(estimate, digits, zero=zero)
    # The fewest digits in which the bounds differ; without any, `digits` stays.
    for more_digits in range(digits, MAX_DIGITS + 1):
        if format_number(low, more_digits) != format_number(high, more_digits):
            digits = more_digits
            break
    numbers = [format_number(number, digits, zero=zero) for number in (estimate, low, high)]
    return "{} [{}, {}]".format(*numbers)


def format_p(p: float) -> str:
    """Format a p-value in three digits, with the sign that relates it to p: "=" or "<".

    >>> format_p(0.0149), format_p(0.0001), format_p(1.0)
    ('= .015', '< .001', '= 1')
    """
    if math.isnan(p):
        return "n/a"
    if p < 0.001:
        return "< .001"
    if p > 0.9995:  # rounds to 1.000
        return "= 1"
    return "= " + format_number(p, 3, zero=False)
