"""People's ratings and labels, read into one shape: items by raters."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pandas as pd
from pandas.api.types import is_list_like

from vjudge.metrics.array_types import Floats, Ratings
from vjudge.metrics.columns import as_floats, check_columns, check_items, is_blank
from vjudge.records import from_csv, is_missing


def read_ratings(ratings: Ratings, *, nominal: bool = False) -> tuple[Floats, list[Any]]:
    """Ratings (labels as numbers if nominal) as floats (n, m), NaN where missing, and raters."""
    frame = ratings if isinstance(ratings, pd.DataFrame) else ratings_frame(ratings)
    if not frame.columns.is_unique:
        twice = ", ".join(map(str, frame.columns[frame.columns.duplicated()]))
        raise ValueError(f"raters share a name: {twice}; give each column its own")
    table = np.empty(frame.shape)
    if nominal:
        labels = frame.map(label_text).to_numpy(dtype=object)
        codes = pd.factorize(labels.ravel())[0].reshape(labels.shape)
        table = np.where(codes < 0, np.nan, codes)
    else:
        for column, name in enumerate(frame):
            table[:, column] = as_floats(frame[name], name=f"rater {name}")
    return table, list(frame)


def ratings_frame(ratings: Ratings) -> pd.DataFrame:
    """Lists of ratings, one an item, as a frame, items by raters."""
    rows = []
    for position, cell in enumerate(ratings):
        row = from_csv(cell)
        if is_missing(row):
            row = []
        elif isinstance(row, str | bytes) or not hasattr(row, "__iter__"):
            raise TypeError(
                f"ratings of item {position} are {row!r}: give a list of numbers, one a rater"
            )
        rows.append(list(row))
    return pd.DataFrame(rows, dtype=object)


def label_text(label: object) -> str | None:
    """A label as text, None where it is missing or blank; 1, 1.0 and NumPy's are one label.

    pandas turns whole numbers into floats where one is missing.

    >>> [label_text(label) for label in (1.0, "1.0", np.int64(1), 1.5, None, " ")]
    ['1', '1', '1', '1.5', None, None]
    """
    if is_blank(label):
        return None
    if isinstance(label, float | np.floating) and label.is_integer():
        return str(int(label))
    return re.sub(r"^([+-]?\d+)\.0*$", r"\1", str(label).strip())


def rater_table(people: Ratings) -> pd.DataFrame:
    """People's labels as a frame, items by persons, from a frame, a Series of lists or an array.

    >>> rater_table(pd.Series([[4.0, None], [5.0]])).to_numpy().tolist()
    [[4.0, nan], [5.0, nan]]
    """
    if isinstance(people, pd.Series) and people.map(from_csv).map(is_list_like).any():
        frame = ratings_frame(people)
        return frame.where(frame.notna()).infer_objects().set_axis(people.index)
    return pd.DataFrame(people)


def aligned_to(people: pd.DataFrame, **columns: pd.Series) -> list[pd.Series]:
    """Columns as people's items are ordered, by position where indexes are equal, else by label."""
    rows = []
    for name, column in columns.items():
        if isinstance(column, pd.Series) and not column.index.equals(people.index):
            check_items(people=people, **{name: column})
            column = column.reindex(people.index)
        check_columns(people=people, **{name: column})
        rows.append(pd.Series(column).set_axis(people.index))
    return rows
