"""Rewards over ordered pairs by hand, pairs and what was left out of them, best of n."""

import itertools
from types import SimpleNamespace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from pandas import DataFrame, concat
from pytest import approx, raises

from vjudge import preference

NAN = float("nan")
CHOICES = {-1: "a", 0: "tie", 1: "b", None: None}  # points of the second response -> the verdict
SWAPPED = {-1: "b", 0: "tie", 1: "a", None: None}


def candidates(n, k, **more):
    rows = []
    for number in range(n):
        texts = [f"answer {place} of q{number}" for place in range(k)]
        row = {"id": f"q{number}", "instruction": "What?", "responses": texts, "images": [], **more}
        rows.append(row)
    return rows


def compared(rows, rule, **options):
    """Rewards by a judge for whom the second of two texts is better (1), as good (0), worse."""

    def compare(pairs, orders="both"):
        table = []
        for pair in pairs:
            a, b = pair["response_a"], pair["response_b"]
            table.append({"verdict_ab": CHOICES[rule(a, b)], "verdict_ba": SWAPPED[rule(b, a)]})
        return DataFrame(table).iloc[:, : 1 if orders == "one" else 2]

    return preference.reward(SimpleNamespace(compare=compare), rows, by="pairs", **options)


def published(texts, rule):
    """r_i = sum_k a_ki - sum_l a_il written out."""
    found = []
    for i, text in enumerate(texts):
        others = [other for j, other in enumerate(texts) if j != i and other != text]
        gained = sum(rule(other, text) for other in others)
        found.append(float(gained - sum(rule(text, other) for other in others)))
    return found


@given(st.lists(st.sampled_from([-1, 0, 1]), min_size=20, max_size=20))
def test_reward_is_the_published_sum_over_ordered_pairs(points):
    (row,) = candidates(1, 5)
    table = dict(zip(itertools.permutations(row["responses"], 2), points, strict=True))

    def rule(first, second):
        return table[first, second]

    assert compared([row], rule)["reward"].tolist() == published(row["responses"], rule)


def test_what_depends_on_the_place_alone_cancels_over_both_orders():
    rows = candidates(3, 4)
    for constant in (-1, 1):
        frame = compared(rows, lambda first, second, c=constant: c)
        assert (frame["reward"] == 0).all()
        pairs = preference.make_pairs(rows, frame)
        counted = {"questions": 3, "without_pair": 3, "left_out": {"pair: a tie": 3}}
        assert pairs.attrs == counted and pairs.empty
    one = compared(rows, lambda first, second: -1, orders="one")
    assert one["reward"].tolist() == [3, 1, -1, -3] * 3  # one order rewards the place


def test_a_repeated_answer_counts_as_often_and_one_without_a_verdict_has_no_reward():
    (row,) = candidates(1, 4, times=[2, 1, 1, 1])
    texts = row["responses"]

    def rule(first, second):
        return int(np.sign(texts.index(second) - texts.index(first)))

    assert compared([row], rule)["reward"].tolist() == published([texts[0], *texts], rule)[1:]
    gone = set(texts[1:3])
    frame = compared([row], lambda first, second: None if {first, second} == gone else 1)
    assert frame["reward"].isna().tolist() == [False, True, True, False]
    pairs = preference.make_pairs([row], frame)
    assert pairs.attrs["left_out"] == {"response: without a reward": 2, "pair: a tie": 1}


def test_scores_of_candidates_of_ones_own_keep_their_picture_and_what_is_missing():
    rows = []
    for texts in (["a", "b"], ["c", "d"]):
        rows.append({"instruction": "What?", "image": "a.png", "responses": texts})
    graded = DataFrame({"score": [4, NAN, 4, 3], "expected_score": [3.5, NAN, NAN, 3]})
    frame = preference.reward(SimpleNamespace(grade=lambda items: graded), rows)
    assert frame["reward"].fillna(0).tolist() == [4, 0, 4, 3] and frame["true_score"].isna().all()
    (pair,) = preference.make_pairs(rows, frame).to_dict("records")
    assert pair["id"] == "1/0-1" and pair["images"] == ["a.png"]  # a policy would learn it blind
    said = DataFrame({"verdict": ["a", "tie"]})  # of a value head, or a panel
    frame = preference.reward(SimpleNamespace(compare=lambda items: said), rows, by="pairs")
    assert frame["reward"].tolist() == [2, -2, 0, 0]
    with raises(ValueError, match="takes each order once"):
        preference.reward(None, rows, by="pairs", orders="random")
    with raises(TypeError, match="orders"):  # a score has no order
        preference.reward(SimpleNamespace(grade=lambda items: graded), rows, orders="random")
    with raises(ValueError, match=r'by=\'wins\': use "scores" or "pairs"'):
        preference.reward(None, rows, by="wins")


def test_extremes_and_all_pairs_with_margins_and_lengths():
    texts = ["word " * 4, "word " * 31, "word " * 5, "a b c d"]
    rows = candidates(1, 4, responses=texts, true_scores=[1.0, 2.0, 3.0, 4.0])
    graded = DataFrame({"score": [2.0, 5.0, 1.0, 5.0]})
    frame = preference.reward(SimpleNamespace(grade=lambda items: graded), rows)
    (pair,) = preference.make_pairs(rows, frame).to_dict("records")
    assert pair["id"] == "q0/1-2" and pair["margin"] == 4 and pair["true_rejected"] == 3
    every = preference.make_pairs(rows, frame, every=True)
    assert len(every) == 5 and (every["margin"] > 0).all()
    assert every.attrs["left_out"] == {"pair: a tie": 1}
    near = preference.make_pairs(rows, frame, every=True, min_margin=1.0, max_length_ratio=2.0)
    assert set(near["id"]) == {"q0/3-0", "q0/3-2"}
    reasons = {"one response more than 2 times as long": 2, "a tie": 1, "margin not above 1": 1}
    assert near.attrs["left_out"] == {f"pair: {reason}": n for reason, n in reasons.items()}


def test_best_of_n_is_the_mean_over_every_choice_of_n_and_counts_what_is_left_out():
    values = np.random.default_rng(3).normal(size=4)
    judged = np.array([1.0, 0.0, 1.0, 2.0])
    table = DataFrame({"id": "q", "group": "g", "reward": judged, "true_score": values})
    table["times"] = times = [1, 2, 1, 1]
    other = table.assign(id="r", reward=[1.0, 2.0, 3.0, NAN], group="h")
    curve = preference.best_of_n(concat([table, other]), n_resamples=0)
    drawn = np.repeat(range(4), times)
    for n, best in curve["estimate"].items():
        means = []
        for choice in map(list, itertools.combinations(drawn, n)):
            means.append(values[choice][judged[choice] == judged[choice].max()].mean())
        assert best == approx(np.mean(means))
    assert curve[["n", "missing"]].to_numpy().tolist() == [[1, 1]] * 5
    with raises(ValueError, match=r"a true score for every answer \(1 left out\)"):
        preference.best_of_n(other)
