"""Comparing and ranking: both orders, what they say together, durable and resumable."""

import math

import pandas as pd
import pytest

from samples import judge_of, pair, scripted
from vjudge.data import CollectionError

PAIRS = [
    pair("1", "long answer", "short", preference="a", group="g"),
    pair("2", "brief", "much longer", preference="a", group="g"),
    pair("3", "same", "four", preference="tie", group="h"),
]


def comparing(choose):
    """A judge whose text follows from the two responses; its choice has .9 as A and .8 as B."""

    def write(prompt, ask, index):
        first, rest = prompt.text.split("###Response A:\n")[1].split("\n\n###Response B:\n")
        text = choose(first, rest.split("\n\n###")[0])
        sure = {"A": 0.1, "B": 0.8}.get(text.rpartition("[RESULT] ")[2])
        logprobs = None if sure is None else {0: math.log(1 - sure), 1: math.log(sure)}
        return {"text": text, "score_logprobs": logprobs}

    return scripted(write)


def longer(first, second):
    choice = "tie" if len(first) == len(second) else "A" if len(first) > len(second) else "B"
    return f"Length decides. [RESULT] {choice}"


def first_place(first, second):
    return "The first. [RESULT] A"


def unsure(first, second):
    if "long" in first:
        return "Hm."
    return "[RESULT] abstain" if "brief" in (first, second) else longer(first, second)


@pytest.mark.parametrize(
    ("choose", "verdicts", "in_ab", "in_ba", "n_consistent", "said"),
    [
        (longer, "a b tie", "a b tie", "a b tie", 3, "6 of 6 were judged without an image"),
        (first_place, "tie tie tie", "a a a", "b b b", 0, "3 of 3 verdicts changed with the order"),
        # a failure and an abstention are no choices
        (
            unsure,
            "None None tie",
            "None abstain tie",
            "a None tie",
            1,
            "2 of 6 verdicts failed: 2 x",
        ),
    ],
)
def test_orders_and_what_they_say_together(
    choose, verdicts, in_ab, in_ba, n_consistent, said, capsys
):
    frame = comparing(choose).compare(PAIRS)
    for name, expected in {"verdict": verdicts, "verdict_ab": in_ab, "verdict_ba": in_ba}.items():
        assert " ".join(map(str, frame[name])) == expected
    assert frame["consistent"].eq(True).sum() == n_consistent
    assert frame["failure"].notna().sum() == verdicts.count("None")
    assert frame["group"].tolist() == ["g", "g", "h"] and said in capsys.readouterr().err
    if choose is longer:  # P(a) is .9 where A is shown and wins, .8 where it is second and wins
        assert frame["probability_a"][:2].tolist() == pytest.approx([0.85, 0.15])


@pytest.mark.parametrize(
    ("orders", "samples", "n"), [("both", 3, 6), ("one", 3, 3), ("random", 4, 4), ("random", 1, 1)]
)
def test_votes(orders, samples, n, tmp_path):
    """k draws a pair, each a vote, the order of each draw kept, also in a continued record."""
    options = {"orders": orders, "samples": samples, "temperature": 1.0}
    pairs = [{**one, "preference": None} for one in PAIRS]
    frame = comparing(longer).compare(pairs, **options)
    assert list(frame["verdict"]) == ["a", "b", "tie"] and frame["failure"].isna().all()
    votes = frame[["votes_a", "votes_b", "votes_tie", "votes_missing"]].to_numpy().tolist()
    assert votes == [[n, 0, 0, 0], [0, n, 0, 0], [0, 0, n, 0]]
    shown = [[draw["order"] for draw in draws] for draws in frame["draws"]]
    assert [len(each) for each in shown] == [n] * 3
    if samples == 4:
        assert len({order for draws in shown for order in draws}) == 2, "seeded, both appear"
    comparing(longer).compare(pairs[:1], out=tmp_path, **options)
    again = comparing(longer).compare(pairs, out=tmp_path, **options)
    pd.testing.assert_frame_equal(again, frame)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"orders": "all"}, "orders='all'"),
        ({"samples": 2}, "decoding are all the same: set"),
        ({"unread": "guess"}, "unread='guess': use"),
    ],
)
def test_wrong_options(options, message):
    with pytest.raises(ValueError, match=message):
        comparing(longer).compare(PAIRS, **options)


def test_wrong_use():
    judge = comparing(longer)
    few = [{"id": "1", "responses": ["a", "b"]}, {"id": "2", "responses": ["a"]}]
    with pytest.raises(CollectionError, match="row 1 .*not a list of two texts"):
        judge.rank(few)
    judge.pairs = None
    with pytest.raises(ValueError, match="has no wording for two responses"):
        judge.compare(PAIRS)
    with pytest.raises(ValueError, match="'llava-critic-pair' have no place"):
        judge_of().compare(PAIRS, mode="score")


def test_best_of_n_by_pairs():
    shared = {"images": [], "instruction": "Say.", "criteria": "Said?"}
    rows = [
        {"id": "x", "responses": ["aa", "aaaa", "a", "bb"], **shared},
        {"id": "y", "responses": ["b", "bb"], "group": "g", **shared},
    ]
    frame = comparing(longer).rank(rows)
    # r_i = sum_k a_ki - sum_l a_il over 6 comparisons each: 0, 6, -6, 0.
    assert (frame["value"] * frame["n"]).tolist()[:4] == pytest.approx([0, 6, -6, 0])
    assert frame["rank"].tolist() == [2, 1, 4, 2, 2, 1] and frame["n"].tolist() == [6] * 4 + [2] * 2
    assert frame.index[frame["best"]].tolist() == [1, 5] and not frame["missing"].any()
    assert frame["group"].tolist() == ["x"] * 4 + ["g"] * 2
