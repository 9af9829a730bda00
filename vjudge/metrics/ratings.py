"""Read human ratings and labels into one shape: a table of items by raters."""

from __future__ import annotations

import re
from collections.abc import Hashable
from itertools import zip_longest

import numpy as np
import pandas as pd
from pandas.api.types import is_list_like

from vjudge.metrics.array_types import Floats, Ratings
from vjudge.metrics.columns import as_floats, check_columns, check_items, is_blank
from vjudge.records import from_csv, is_missing


def read_ratings(ratings: Ratings, *, nominal: bool = False) -> tuple[Floats, list[Hashable]]:
    """Read ratings of n items by m raters as numbers.

    Args:
        ratings: a frame with one column per rater, a 2-D array, or one list of ratings per item.
        nominal: whether the ratings are labels, which are then numbered from 0.

    Returns:
        The ratings, shape (n, m), NaN where missing; and the raters' names.

    Raises:
        ValueError: two raters share a name, or a rating is infinite.
        TypeError: a rating is no number, or an item has no list of ratings.
    """
    frame = ratings if isinstance(ratings, pd.DataFrame) else ratings_frame(ratings)
    if not frame.columns.is_unique:
        twice = ", ".join(map(str, frame.columns[frame.columns.duplicated()]))
        raise ValueError(f"raters share a name: {twice}; give each column its own")
    table = np.empty(frame.shape)
    if nominal:
        # Equal labels of all raters share a code.
        labels = frame.map(label_text).to_numpy(dtype=object)
        codes = pd.factorize(labels.ravel())[0].reshape(labels.shape)  # -1 where missing
        table = np.where(codes < 0, np.nan, codes)
    else:
        for column, name in enumerate(frame):
            table[:, column] = as_floats(frame[name], name=f"rater {name}")
    return table, list(frame)


def ratings_frame(ratings: Ratings) -> pd.DataFrame:
    """Make a frame, items by raters, from one list of ratings per item.

    Shorter lists are filled up with None. A list may be written as text, as in a CSV file.

    Raises:
        TypeError: an item has a number or a text instead of a list.

    >>> ratings_frame([[4, 5], "[3]", None]).to_numpy().tolist()
    [[4, 5], [3, None], [None, None]]
    """
    rows = []
    for position, cell in enumerate(ratings):
        row = from_csv(cell)
        if is_missing(row):
            row = []
        elif isinstance(row, str | bytes) or not hasattr(row, "__iter__"):
            raise TypeError(
                f"ratings of item {position} are {row!r}: give a list of numbers, one a rater"
            )
        rows.append(row)
    # Items [[4, 5], [3]] are raters [[4, 3], [5, None]].
    by_rater = zip_longest(*rows)
    # The columns are named, so that as many items remain if none has a rating.
    return pd.DataFrame(by_rater, columns=range(len(rows)), dtype=object).T


def label_text(label: object) -> str | None:
    """Write a label as text, so that 1, 1.0, "1.0" and NumPy's 1 are one label.

    pandas turns whole numbers into floats where one is missing.

    Returns:
        The text; None where the label is missing or blank.

    >>> [label_text(label) for label in (1.0, "1.0", np.int64(1), 1.5, None, " ")]
    ['1', '1', '1', '1.5', None, None]
    """
    if is_blank(label):
        return None
    if isinstance(label, float | np.floating) and label.is_integer():
        return str(int(label))
    return re.sub(r"^([+-]?\d+)\.0*$", r"\1", str(label).strip())


def rater_table(people: Ratings) -> pd.DataFrame:
    """Make a frame of human labels, items by raters, from a frame, an array or a Series of lists.

    >>> rater_table(pd.Series([[4.0, None], [5.0]])).to_numpy().tolist()
    [[4.0, nan], [5.0, nan]]
    """
    if isinstance(people, pd.Series) and people.map(from_csv).map(is_list_like).any():
        frame = ratings_frame(people)
        return frame.where(frame.notna()).infer_objects().set_axis(people.index)
    return pd.DataFrame(people)


def aligned_to(people: pd.DataFrame, **columns: pd.Series) -> list[pd.Series]:
    """Put columns of items into the order of the human labels.

    Items are matched by position where a column has the index of `people` or is no Series, else
    by label. An item that a column lacks is NaN.

    Args:
        people: human labels, one row per item.
        columns: the columns by the names that errors use.

    Returns:
        The columns in the order given, with the index of `people`.
    """
    aligned = []
    for name, column in columns.items():
        if isinstance(column, pd.Series) and not column.index.equals(people.index):
            check_items(people=people, **{name: column})
            column = column.reindex(people.index)
        check_columns(people=people, **{name: column})
        aligned.append(pd.Series(column).set_axis(people.index))
    return aligned
