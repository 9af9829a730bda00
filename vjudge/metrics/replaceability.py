"""Test whether a judge may replace the people who label: the alternative annotator test."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd
from scipy import stats

from vjudge.metrics.array_types import Groups, Integers
from vjudge.metrics.caveats import add_caveats, warn
from vjudge.metrics.cells import dense_ranks
from vjudge.metrics.columns import check_columns
from vjudge.metrics.groups import balanced_group_caveats, group_codes, groups_from_ids
from vjudge.metrics.intervals import INTERVAL
from vjudge.metrics.noninferiority import noninferiority_test
from vjudge.metrics.ratings import aligned_to, label_text, rater_table
from vjudge.metrics.shares import shares

MIN_PEOPLE = 3
ITEMS_PER_PERSON = 30  # at least, for a test
FALSE_DISCOVERIES = 0.05  # the false discovery rate that the correction holds


def alt_test(
    people: pd.DataFrame | pd.Series,
    judge: pd.Series,
    *,
    epsilon: float = 0.2,
    measure: Literal["accuracy", "rmse"] = "accuracy",
    groups: Groups = None,
    confidence: float = 0.95,
) -> pd.DataFrame:
    """Test whether a judge may replace a person who labels: the alternative annotator test.

    Each person is left out in turn. On that person's items the test compares who agrees better with
    the other people: the judge or the person.

    Epsilon is a share of items: a person may be ahead by less than that, and the judge is still the
    better choice, since it costs less. The authors use 0.2 where the people are experts, 0.15 where
    they are trained, 0.1 where they are a crowd.

    Args:
        people: labels, items by persons, NaN where a person gave none; or a Series of lists, as
            `human_scores` of a collection.
        judge: the judge's label of each item, by the same index, NaN where there is none.
        epsilon: in [0, 1), see above.
        measure: how agreement with the other people is measured. "accuracy", for categories, is the
            share of people who gave the same label; "rmse", for scores, is minus the root mean
            squared distance from theirs.
        groups: the unit of sampling of each item, such as its image; None: each item is its own.
        confidence: of the intervals.

    Returns:
        One row per person, with columns
        - n: items that the person, the judge and others labelled;
        - advantage: the share of these on which the judge is at least as close to the others, with
          low and high, its Wilson score interval;
        - p: one-sided, against the person being ahead by epsilon or more, see
          `noninferiority.noninferiority_test`;
        - rejected: whether p is significant after Benjamini and Yekutieli's correction at .05.
        A person with fewer than 30 items has NaN and is not counted. Further columns hold the same
        number in each row:
        - winning_rate: the share of persons whose test is rejected; winning_rate_low and
          winning_rate_high, its Wilson score interval over persons. From .5 on the judge may
          replace people;
        - advantage_probability: the mean advantage; advantage_probability_low and _high, its
          interval over items;
        - missing: items without a label of the judge.

    Raises:
        ValueError: an unknown measure, an epsilon outside [0, 1), fewer than three people.

    >>> rng = np.random.default_rng(0)
    >>> truth = rng.integers(1, 6, size=200)
    >>> people = pd.DataFrame(truth[:, None] + rng.integers(-1, 2, size=(200, 4)))
    >>> alt_test(people, pd.Series(truth), measure="rmse")["winning_rate"].tolist()
    [1.0, 1.0, 1.0, 1.0]

    Source: Calderon, Reichart and Dror, arXiv 2501.10970, section 3.
    """
    if measure not in ("accuracy", "rmse"):
        raise ValueError(f'measure={measure!r}: use "accuracy" for categories, "rmse" for scores')
    if not 0 <= epsilon < 1:
        raise ValueError(f"epsilon={epsilon!r}: use a share of items, from 0 to below 1")
    people = rater_table(people)
    if people.shape[1] < MIN_PEOPLE:
        raise ValueError(
            f"people has {people.shape[1]} columns: the test takes three people or more"
        )
    groups, caveats = groups_from_ids(people, groups)
    check_columns(people=people, groups=groups)
    (judge,) = aligned_to(people, judge=judge)
    people = people.reset_index(drop=True)
    judge = judge.reset_index(drop=True)
    if measure == "accuracy":  # 1, 1.0 and "1" are one category
        people = people.map(label_text)
        judge = judge.map(label_text)
    every_item = np.ones(len(people), dtype=bool)
    unit = group_codes(groups, every_item)

    # 1) One test per person
    tests = [_test_person(person, people, judge, unit, measure, epsilon) for person in people]
    rows = [(test.person, test.is_ahead, test.shared) for test in tests]
    table = shares(rows, groups=groups, unit="items", confidence=confidence, index="person")
    add_caveats(table, [*caveats, *balanced_group_caveats(groups, every_item)])
    table = table.rename(columns={"estimate": "advantage"})
    table["n"] = [test.n for test in tests]
    table["p"] = [test.p for test in tests]
    table["rejected"] = _rejected(table["p"])
    table = table[["n", "advantage", "low", "high", "p", "rejected"]]

    # 2) The same for all persons together
    is_tested = table["p"].notna()
    # Persons with too few items don't count. If all have too few, all are passed on, without any
    # shared item, and the mean is NaN.
    counted = [test for test in tests if is_tested[test.person]] or tests
    over_persons = shares(
        [("winning_rate", table["rejected"], is_tested)],
        groups=None,
        unit="people",
        confidence=confidence,
    )
    over_items = _mean_advantage(counted, groups, confidence)
    for name, row in pd.concat([over_persons, over_items])[INTERVAL].iterrows():
        table[name], table[f"{name}_low"], table[f"{name}_high"] = row
    return table.assign(missing=int(judge.isna().sum()))


def _rejected(p: pd.Series) -> pd.Series:
    """Return which p-values are significant at a false discovery rate of .05; NaN never is.

    The correction is Benjamini and Yekutieli's, since tests of the same items depend on each other.
    """
    is_tested = p.notna()
    if not is_tested.any():
        warn(f"no person has {ITEMS_PER_PERSON} items in two groups or more: the test is undefined")
    rejected = pd.Series(False, p.index)
    adjusted = stats.false_discovery_control(p[is_tested], method="by")
    rejected[is_tested] = adjusted <= FALSE_DISCOVERIES
    return rejected


def _mean_advantage(tests: list[PersonTest], groups: Groups, confidence: float) -> pd.DataFrame:
    """Average the judge's advantage over persons, as one row of `shares`.

    The interval allows for the persons' advantages on the same items depending on one another.
    """
    is_ahead = np.stack([test.is_ahead for test in tests])  # (persons, items)
    shared = np.stack([test.shared for test in tests])
    return shares(
        [("advantage_probability", is_ahead, shared)],
        groups=groups,
        unit="items",
        confidence=confidence,
    )


@dataclass(frozen=True)
class PersonTest:
    """The test of a judge against one person.

    Attributes:
        person: the person's name.
        n: how many items the person, the judge and others labelled.
        shared: whether each item is one of these, shape (items,); all False if n is below 30.
        is_ahead: whether it is, and the judge is at least as close to the others; shape (items,).
        p: the p-value, see `noninferiority_test`; NaN if n is below 30.
    """

    person: Hashable
    n: int
    shared: pd.Series
    is_ahead: pd.Series
    p: float


def _test_person(
    person: Hashable,
    people: pd.DataFrame,
    judge: pd.Series,
    unit: Integers,
    measure: str,
    epsilon: float,
) -> PersonTest:
    """Test whether one person is ahead of the judge by epsilon or more, see `alt_test`.

    Args:
        person: the column of this person in `people`.
        people: labels, items by persons.
        judge: the judge's label of each item.
        unit: the unit of sampling of each item, 0..G-1.
        measure, epsilon: see `alt_test`.
    """
    labels = people[person]
    other_people = people.drop(columns=person)
    shared = labels.notna() & judge.notna() & other_people.notna().any(axis=1)
    n = shared.sum()
    shared &= n >= ITEMS_PER_PERSON  # if they are too few, none counts, and p is NaN
    gap = _closeness(other_people, judge, measure) - _closeness(other_people, labels, measure)
    lead = -np.sign(gap[shared].to_numpy())  # 1 where the person is closer to the others
    units = dense_ranks(unit[shared.to_numpy()])  # without the units that share no item
    p = noninferiority_test(lead, units, epsilon)
    return PersonTest(person, n, shared, shared & (gap >= 0), p)


def _closeness(others: pd.DataFrame, labels: pd.Series, measure: str) -> pd.Series:
    """Measure how close labels are to those of the other people; the higher, the closer.

    Args:
        others: the other people's labels, items by persons.
        labels: the label of each item.
        measure: "accuracy" or "rmse", see `alt_test`.

    Returns:
        Per item the share of the other people who gave the same label if the measure is "accuracy",
        else minus the root mean squared distance from their labels.
    """
    if measure == "accuracy":
        is_equal = others.eq(labels, axis=0)
        return is_equal.sum(axis=1) / others.notna().sum(axis=1)
    distance = others.astype(float).sub(labels.astype(float), axis=0)
    return -np.sqrt((distance**2).mean(axis=1))
