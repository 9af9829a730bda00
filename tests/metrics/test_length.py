"""Length and score: by hand, against SciPy, over whole groups and within questions."""

import numpy as np
import pytest
from scipy import stats

from vjudge import data, metrics
from vjudge.metrics.block_permutation import within_blocks


def texts(lengths, golds, copies=1):
    """Items of so many words, each its own question; copies of one are a group."""
    rows = []
    for i, (n, gold) in enumerate(zip(lengths, golds, strict=True)):
        row = {"group": f"g{i}", "response": " ".join("w" * int(n)), "gold": gold}
        rows += [{"id": f"{i} {c}", "instruction": f"{i} {c}", **row} for c in range(copies)]
    return rows


def test_auc_by_hand():
    # Pairs of different score: 1 < 3 and 1 < 2 are won, 3 > 2 is lost; the second 1, of length 2,
    # wins against 3 and ties with the other of length 2: 3.5 of 5.
    rows = texts([1, 2, 3, 2], [1, 1, 2, 3])
    assert data.lengths(rows)[["words", "characters"]].iloc[1].tolist() == [2, 3]
    words = metrics.length_test(rows, n_resamples=0).loc["words"]
    assert words["auc"] == pytest.approx(3.5 / 5) and np.isnan(words[["low", "within"]]).all()


def test_the_interval_is_of_the_groups():
    rng = np.random.default_rng(0)
    golds, lengths = np.tile([1.0, 2.0], 60), rng.integers(5, 30, 120)
    alone = metrics.length_test(texts(lengths, golds), n_resamples=400).loc["words"]
    copied = metrics.length_test(texts(lengths, golds, 4), n_resamples=400).loc["words"]
    # Four copies of every item in its own group are no more evidence than one.
    assert copied["auc"] == pytest.approx(alone["auc"]) and alone["low"] < 0.5 < alone["high"]
    width = alone["high"] - alone["low"]
    assert copied["high"] - copied["low"] == pytest.approx(width, rel=0.15)


def test_what_is_certain_and_what_is_undefined():
    golds = np.tile([1.0, 2.0, 3.0], 10)
    for lengths, auc in ((golds * 4, 1.0), (np.full(30, 5), 0.5)):
        words = metrics.length_test(texts(lengths, golds), n_resamples=100).loc["words"]
        assert words[["auc", "low", "high"]].tolist() == [auc] * 3
    rows = texts([1, 2, 3], [1.0, None, 2.0])
    rows[2]["response"] = None
    table = metrics.length_test(rows)
    assert table[["n", "missing"]].to_numpy().tolist() == [[1, 2]] * 2
    assert table["auc"].isna().all()


def blocks(*lengths):
    return [np.column_stack([range(len(own)), own]) for own in lengths]


# Kendall's test with ties; within the last questions the better is the longer always, over all
# pairs in 17 of 36.
TIED = np.column_stack([[1, 1, 2, 3, 3, 4, 5, 2], [3, 3, 5, 4, 9, 9, 9, 7]])
WITHIN = [
    ([TIED], 21.5 / 25, stats.kendalltau(*TIED.T, method="asymptotic").pvalue),
    (blocks([5, 4], [1, 2]), 0.5, 1),
    (blocks([7, 7, 7]), 0.5, 1),
    ([], np.nan, np.nan),
    (blocks([10, 11, 12], [100, 101, 102]) * 3, 1, 2 / 6**6),
    (blocks([1, 2]) * 4, 1, 2 / 2**4),  # the normal distribution says .046
    (blocks([1, 2]) * 60, 1, 2 * stats.norm.sf(np.sqrt(60))),
]


@pytest.mark.parametrize(("own", "share", "p"), WITHIN)
def test_within_a_question(own, share, p):
    assert within_blocks(own) == pytest.approx((share, p), rel=5e-3, nan_ok=True)


def test_within_equals_scipys_exact_kendall():
    rng = np.random.default_rng(0)
    for _ in range(20):
        block = np.column_stack([rng.permutation(6), rng.permutation(6)])
        exact = stats.kendalltau(*block.T, method="exact").pvalue
        assert within_blocks([block])[1] == pytest.approx(exact)
