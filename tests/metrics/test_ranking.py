"""Rankings of systems: the numbers of mt-metrics-eval's own tests, and by hand.

Source of the cases and values marked so: google-research/mt-metrics-eval at 68a481a,
tau_optimization_test.py, stats_test.py, data_test.py (Apache-2.0).
"""

import numpy as np
import pandas as pd
import pytest

from vjudge.metrics import best_of_n, ranking_accuracy, raters
from vjudge.metrics.ranking import rank_groups

nan = np.nan
# mt-metrics-eval: judge's and people's scores, items by systems; accuracy and threshold
CALIBRATED = [
    ([[0, 2, 6, 8]], [[1, 2, 3, 4]], 1.0, 0),
    ([[0, 2, 6, 8]], [[1, 1, 1, 4]], 4 / 6, 4),
    ([[2, 1, 1.5, 5, 3]], [[1, 2, 2, 3, 4]], 0.7, 0.5),
    (
        [
            [0, 5, 2, 3, 2],
            [nan, 2, 1, 5, 3],
            [9, 1, 5, 3, 8],
            [9, 3, 4, 4, 1],
            [nan, nan, nan, nan, nan],
        ],
        [
            [1, 5, 2, 1, 1],
            [4, 2, 2, 1, 4],
            [5, 9, 2, 8, 7],
            [7, 6, nan, 3, 2],
            [nan, nan, nan, nan, nan],
        ],
        0.4916666666666668,
        1,
    ),
]


def long(*tables):
    """Items by systems as columns: item, system and each table's scores."""
    item, system = np.indices(np.shape(tables[0])).reshape(2, -1)
    return item, system, *(np.ravel(np.array(table, dtype=float)) for table in tables)


@pytest.mark.parametrize(("judge", "people", "accuracy", "threshold"), CALIBRATED)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_calibrated_ties_equal_mt_metrics_eval(judge, people, accuracy, threshold):
    item, system, x, y = long(judge, people)
    table = ranking_accuracy(y, {"judge": x}, systems=system, items=item)
    row = table.loc[("judge", "tie_calibrated")]
    assert row["estimate"] == pytest.approx(accuracy) and row["threshold"] == threshold


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_soft_accuracy_equals_mt_metrics_eval():
    # PairwiseConfidenceError of two systems and three items: .872 of 1,000 permutations. Exactly it
    # is 7/8: people's difference is -1 on each item, p = 1; the judge's 1, -1, -1, and of eight
    # sums of signs seven are -1 or more.
    people, judge = [1, 2, 3, 2, 3, 4], [2, 2, 4, 1, 3, 5]
    system = [0, 0, 0, 1, 1, 1]
    item = [0, 1, 2] * 2
    row = ("judge", "soft_pairwise")
    table = ranking_accuracy(people, {"judge": judge}, systems=system, items=item)
    assert table.loc[row, "estimate"] == pytest.approx(0.872, abs=1e-9)
    options = {"systems": system, "items": item, "n_permutations": 100_000}
    table = ranking_accuracy(people, {"judge": judge}, **options)
    assert table.loc[row, "estimate"] == pytest.approx(7 / 8, abs=0.005)


# mt-metrics-eval: p of pairs (upper triangle), level, ranks
RANKS = [
    ([1, 1, 1, 1, 1, 1], 0.5, [1, 1, 1, 1]),
    ([1, 1, 1, 1, 1, 1], 1.0, [1, 2, 3, 4]),
    ([1, 0, 1, 1, 1, 1], 0.5, [1, 1, 2, 2]),
    ([0, 1, 1, 1, 1, 0], 0.5, [1, 2, 2, 3]),
]


@pytest.mark.parametrize(("upper", "level", "ranks"), RANKS)
def test_ranks_equal_mt_metrics_eval(upper, level, ranks):
    p = np.zeros((4, 4))
    p[np.triu_indices(4, 1)] = upper
    assert rank_groups(p, level) == ranks


def several(seed=1, systems=8, items=40):
    rng = np.random.default_rng(seed)
    quality = np.linspace(0, 2, systems)[:, None] + rng.normal(size=(systems, items))
    people = np.round(quality + rng.normal(0, 0.5, quality.shape))
    judges = {
        "good": quality + rng.normal(0, 0.4, quality.shape),
        "as good": quality + rng.normal(0, 0.4, quality.shape),
        "noise": rng.normal(size=quality.shape),
    }
    system, item = np.indices(quality.shape).reshape(2, -1)
    frame = pd.DataFrame({name: scores.ravel() for name, scores in judges.items()})
    return frame.assign(people=people.ravel(), system=system, item=item)


def test_judges_are_ranked_in_groups():
    frame = several()
    names = ["noise", "good", "as good"]

    def call(rows, judges):
        groups = {"systems": rows["system"], "items": rows["item"]}
        return ranking_accuracy(rows["people"], rows[judges], **groups)

    table = call(frame, names)
    assert (table["low"] < table["estimate"]).all()
    assert (table["estimate"] <= table["high"]).all()
    ranks = table["rank"].unstack()
    assert ranks.loc["noise", "tie_calibrated"] == 2 and (ranks.loc["good"] == 1).all()
    assert ranks.loc["as good", "tie_calibrated"] == 1
    # Order of rows and judges, and the index, change nothing but permutations
    turned = frame.sample(frac=1, random_state=0).set_axis([0] * len(frame))
    again = call(turned, names[::-1]).loc[table.index]
    np.testing.assert_allclose(again["estimate"], table["estimate"], atol=1e-6)
    assert (again["rank"] == table["rank"]).all()
    with pytest.raises(ValueError, match="answers an item twice"):
        call(pd.concat([frame, frame]), names)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_best_of_n_by_hand():
    # The picks: 3 of (1, 3), 5 or 2 of (5, 2, 2) tied, 1 of (4, 1); one alone is left out.
    people = [1, 3, 5, 2, 2, 4, 1, 9, nan]
    judge = [1, 2, 7, 7, 1, 1, 2, 5, 3]
    table = best_of_n(people, judge, groups=list("aabbbccdd"))
    regret = np.array([0, 1.5, 3])
    chance = np.array([1, 2, 1.5])
    assert table["estimate"].tolist() == pytest.approx(
        [regret.mean(), chance.mean(), (chance - regret).mean(), 0.5]
    )
    half = 4.302653 * regret.std(ddof=1) / np.sqrt(3)
    assert table.loc["regret", "high"] == pytest.approx(1.5 + half) and table["n"].eq(3).all()
    assert table.loc["regret", "low"] == 0 and table["missing"].eq(1).all()
    assert "1 questions with one scored response are left out" in table.attrs["caveats"]


def test_two_judges_of_one_name_are_refused():
    judges = pd.DataFrame([[1, 2], [2, 1]], columns=["1", 1])
    with pytest.raises(ValueError, match="one or more, each with a name of its own, not 1, 1"):
        ranking_accuracy([1, 2], judges, systems=list("ab"), items=[0, 0])
    with pytest.raises(ValueError, match="each with a name of its own"):
        raters([[1, 2], [2, 1]], judges)
