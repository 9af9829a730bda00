"""Length and score: by hand, against SciPy, over whole groups and within questions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from vjudge import data, metrics
from vjudge.metrics.length import within_blocks


def texts(lengths: Any, golds: Any, groups: Any = None) -> list[dict[str, Any]]:
    """Items of so many words, each its own question."""
    groups = range(len(golds)) if groups is None else groups
    rows = []
    for i, (n, gold, group) in enumerate(zip(lengths, golds, groups, strict=True)):
        words = " ".join("w" * int(n))
        rows.append({"id": f"i{i}", "instruction": f"q{i}", "response": words, "gold": gold})
        rows[-1]["group"] = f"g{group}"
    return rows


def test_auc_by_hand() -> None:
    # Pairs of different score: 1 < 3 and 1 < 2 are won, 3 > 2 is lost; the second 1, of length 2,
    # wins against 3 and ties with the other of length 2: 3.5 of 5.
    rows = texts([1, 2, 3, 2], [1, 1, 2, 3])
    assert data.lengths(rows)[["words", "characters"]].iloc[1].tolist() == [2, 3]
    words = metrics.length_test(rows, n_resamples=0).loc["words"]
    assert words["auc"] == pytest.approx(3.5 / 5) and np.isnan(words[["low", "within"]]).all()


def test_the_interval_is_of_the_groups() -> None:
    rng = np.random.default_rng(0)
    golds, lengths = np.tile([1.0, 2.0], 60), rng.integers(5, 30, 120)
    alone = metrics.length_test(texts(lengths, golds), n_resamples=400).loc["words"]
    four = texts(np.repeat(lengths, 4), np.repeat(golds, 4), np.repeat(np.arange(120), 4))
    copied = metrics.length_test(four, n_resamples=400).loc["words"]
    # Four copies of every item in its own group are no more evidence than one.
    assert copied["auc"] == pytest.approx(alone["auc"]) and alone["low"] < 0.5 < alone["high"]
    width = alone["high"] - alone["low"]
    assert copied["high"] - copied["low"] == pytest.approx(width, rel=0.15)


def test_what_is_certain_and_what_is_undefined() -> None:
    golds = np.tile([1.0, 2.0, 3.0], 10)
    for lengths, auc in ((golds * 4, 1.0), (np.full(30, 5), 0.5)):
        words = metrics.length_test(texts(lengths, golds), n_resamples=100).loc["words"]
        assert words[["auc", "low", "high"]].tolist() == [auc] * 3
    rows = texts([1, 2, 3], [1.0, None, 2.0])
    rows[2]["response"] = None
    table = metrics.length_test(rows)
    assert table[["n", "missing"]].to_numpy().tolist() == [[1, 2]] * 2
    assert table["auc"].isna().all()


def block(*lengths: float) -> np.ndarray:
    return np.column_stack([np.arange(len(lengths)), lengths]).astype(float)


def test_within_a_question_by_hand() -> None:
    # 10 concordant pairs; the variance of Kendall's S of five is 300 / 18.
    assert within_blocks([block(1, 2, 3, 4, 5)]) == (1.0, pytest.approx(0.0143, abs=1e-4))
    for level in ([block(5, 4), block(1, 2)], [block(7, 7, 7)]):
        assert within_blocks(level) == (0.5, 1.0)
    assert np.isnan(within_blocks([])).all()
    # Over all pairs the better is longer in 17 of 36, within the questions always.
    share, p = within_blocks([block(10, 11, 12), block(100, 101, 102)] * 3)
    assert share == 1.0 and p == pytest.approx(1.24e-4, abs=1e-6)


def test_within_a_question_ties_equal_scipys() -> None:
    scores, lengths = [1, 1, 2, 3, 3, 4, 5, 2], [3, 3, 5, 4, 9, 9, 9, 7]
    expected = stats.kendalltau(scores, lengths, method="asymptotic").pvalue
    assert within_blocks([np.column_stack([scores, lengths])])[1] == pytest.approx(expected)


def test_lengths_are_words_and_a_character_of_a_spaceless_script_is_one() -> None:
    mixed = metrics.lengths(pd.Series(["one two three", "一只黑猫", "", None], index=list("pqrs")))
    assert mixed.tolist()[:3] == [3, 4, 0] and np.isnan(mixed["s"])
    assert mixed.attrs["unit"] == "words"
