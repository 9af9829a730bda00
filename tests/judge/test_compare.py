"""Comparing and ranking: both orders, what they say together, durable and resumable."""

from __future__ import annotations

import math
from dataclasses import replace

import pandas as pd
import pytest

import vjudge as vj
from samples import pair, scripted
from vjudge.data import CollectionError
from vjudge.judge import Judge, majority
from vjudge.prompts import TEMPLATES

QUIET = {"progress": False}
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
    ("choose", "verdicts", "in_ab", "in_ba", "consistent", "said"),
    [
        (longer, ["a", "b", "tie"], ["a", "b", "tie"], ["a", "b", "tie"], [True] * 3, "3 pairs"),
        (
            first_place,  # a planted position bias
            ["tie"] * 3,
            ["a"] * 3,
            ["b"] * 3,
            [False] * 3,
            "3 of 3 verdicts changed with the order; 3 pairs have no image and were judged without",
        ),
        (
            unsure,  # a failure and an abstention are no choices
            [None, None, "tie"],
            [None, "abstain", "tie"],
            ["a", None, "tie"],
            [None, None, True],
            "2 of 6 comparisons failed: 2 x no verdict marker; ",
        ),
    ],
)
def test_orders_and_what_they_say_together(
    choose, verdicts, in_ab, in_ba, consistent, said, capsys
):
    frame = comparing(choose).compare(PAIRS, **QUIET)
    assert frame["verdict"].tolist() == verdicts and frame["consistent"].tolist() == consistent
    assert frame["verdict_ab"].tolist() == in_ab and frame["verdict_ba"].tolist() == in_ba
    assert frame["preference"].tolist() == ["a", "a", "tie"]
    assert frame["group"].tolist() == ["g", "g", "h"] and frame.attrs["without_images"] == 3
    assert frame["failure"].notna().tolist() == [
        None in each for each in zip(in_ab, in_ba, strict=True)
    ]
    assert capsys.readouterr().err.startswith(said)
    if choose is longer:  # P(a) is .9 where A is shown and wins, .8 where it is second and wins
        assert frame["probability_a"][:2].tolist() == pytest.approx([0.85, 0.15])
        assert math.isnan(frame["probability_a"][2])


def test_battles_carry_their_policies_to_the_benchmarks_own_number():
    sides = [("x", "y"), ("y", "x"), ("x", "z")]
    battles = [
        {**one, "policy_a": a, "policy_b": b} for one, (a, b) in zip(PAIRS, sides, strict=True)
    ]
    frame = comparing(longer).compare(battles, **QUIET)
    assert frame[["policy_a", "policy_b"]].to_numpy().tolist() == [list(each) for each in sides]
    table = vj.benchmark(frame, name="visit-bench", n_resamples=0)
    assert set(table.index.get_level_values("part")) == {"x", "y", "z"}


def test_an_interrupted_comparison_continues(tmp_path):
    whole = comparing(longer).compare(PAIRS, out=tmp_path, **QUIET)
    record = tmp_path / "verdicts.jsonl"
    record.write_bytes(b"".join(record.read_bytes().splitlines(keepends=True)[:3]))
    judge = comparing(longer)
    frame = judge.compare(PAIRS, out=tmp_path, **QUIET)
    assert judge.engine.asked == 3
    pd.testing.assert_frame_equal(frame, whole)
    assert frame.attrs == whole.attrs
    other = judge.compare([PAIRS[0], pair("2", "x", "much longer")], out=tmp_path, **QUIET)
    assert judge.engine.asked == 5 and list(other["verdict"]) == ["a", "b"]


@pytest.mark.parametrize(
    ("orders", "samples", "n", "columns"),
    [
        ("both", 3, 6, ["verdict_ab", "verdict_ba"]),
        ("one", 3, 3, ["verdict_ab"]),
        ("random", 4, 4, []),
        ("random", 1, 1, []),
    ],
)
def test_votes(orders, samples, n, columns, tmp_path):
    """k draws a pair, each a vote, the order of each draw kept, also in a continued record."""
    options = {"orders": orders, "samples": samples, "temperature": 1.0, **QUIET}
    pairs = [{**one, "preference": None} for one in PAIRS]
    frame = comparing(longer).compare(pairs, **options)
    assert list(frame["verdict"]) == ["a", "b", "tie"] and frame["failure"].isna().all()
    votes = frame[["votes_a", "votes_b", "votes_tie", "votes_missing"]].to_numpy().tolist()
    assert votes == [[n, 0, 0, 0], [0, n, 0, 0], [0, 0, n, 0]] and set(columns) <= set(frame)
    shown = [[draw["order"] for draw in draws] for draws in frame["draws"]]
    assert [len(each) for each in shown] == [n] * 3 and {"verdict", "raw"} <= set(
        frame["draws"][0][0]
    )
    if orders == "both":
        assert shown == [["ab", "ba"] * 3] * 3
    if samples == 4:
        assert len({order for draws in shown for order in draws}) == 2, "seeded, both appear"
    first = comparing(longer).compare(pairs[:1], out=tmp_path, **options)
    again = comparing(longer).compare(pairs, out=tmp_path, **options)
    pd.testing.assert_frame_equal(again, frame)
    pd.testing.assert_frame_equal(first, frame[:1])


def test_missing_votes_are_counted_and_equal_ones_are_a_tie():
    said = iter(["A", "?", "A", "B"])
    judge = scripted(lambda prompt, ask, place: f"So. [RESULT] {next(said)}")
    row = judge.compare([pair("x")], orders="one", samples=4, temperature=1.0, **QUIET).iloc[0]
    assert (row["verdict"], row["votes_a"], row["votes_b"], row["votes_missing"]) == ("a", 2, 1, 1)
    assert row["failure"].startswith("ab: ")
    assert [majority(each) for each in (["a", "b"], ["a", None], [None])] == ["tie", "a", None]


CRITIC = {
    "template": TEMPLATES["llava-critic"],
    "pairs": TEMPLATES["llava-critic-pair"],
}
FEW = [{"id": "1", "responses": ["a", "b"]}, {"id": "2", "responses": ["a"]}]


@pytest.mark.parametrize(
    ("call", "rows", "options", "error", "message", "words"),
    [
        ("compare", PAIRS, {"orders": "all"}, ValueError, "orders='all'", {}),
        ("compare", PAIRS, {"samples": 2}, ValueError, "decoding are all the same: set", {}),
        ("compare", PAIRS, {"unread": "guess"}, ValueError, "unread='guess': use", {}),
        ("compare", PAIRS, {"samples": 0}, ValueError, "samples=0: use a whole number", {}),
        ("rank", [], {"by": "votes"}, ValueError, "by='votes'", {}),
        ("rank", [], {"orders": "one"}, TypeError, "orders", {}),
        ("rank", FEW, {}, CollectionError, "row 1 .*not a list of two texts", {}),
        ("compare", PAIRS, {}, ValueError, "has no wording for two responses", {"pairs": None}),
        (
            "compare",
            PAIRS,
            {"mode": "score"},
            ValueError,
            "'llava-critic-pair' have no place",
            CRITIC,
        ),
    ],
)
def test_wrong_use(call, rows, options, error, message, words):
    judge = replace(comparing(longer), **words)
    with pytest.raises(error, match=message):
        getattr(judge, call)(rows, **options)
    with pytest.raises(ValueError, match="template= judges one response and pairs= compares two"):
        Judge("x", template=CRITIC["pairs"], engine=judge.engine)


def test_best_of_n_by_pairs():
    shared = {"images": [], "instruction": "Say.", "criteria": "Said?"}
    rows = [
        {"id": "x", "responses": ["aa", "aaaa", "a", "bb"], **shared},
        {"id": "y", "responses": ["b", "bb"], "group": "g", **shared},
    ]
    frame = comparing(longer).rank(rows, **QUIET)
    first = frame[frame["id"] == "x"]
    # r_i = sum_k a_ki - sum_l a_il over 6 comparisons each: 0, 6, -6, 0.
    assert (first["value"] * first["n"]).tolist() == pytest.approx([0, 6, -6, 0])
    assert first["rank"].tolist() == [2, 1, 4, 2] and first.index[first["best"]].tolist() == [1]
    assert first["n"].tolist() == [6] * 4 and first["missing"].tolist() == [0] * 4
    assert frame["group"].tolist() == ["x"] * 4 + ["g"] * 2
    assert frame["candidate"].tolist() == [0, 1, 2, 3, 0, 1]
    biased = comparing(first_place).rank(rows, **QUIET)
    assert biased["value"].tolist() == [0] * 6  # both orders cancel a position bias


def test_best_of_n_by_scores(rows):
    """The value is the expected score where there is one, else the score; a failure is missing."""

    def write(prompt, ask, place):
        even = dict.fromkeys(ask.scale(place), math.log(0.2))
        logprobs = even if place == 0 else None
        return {"text": f"So. [RESULT] {(3, 5, 'x')[place]}", "score_logprobs": logprobs}

    candidates = [{**rows[0], "responses": ["one", "two", "three"]}]
    frame = scripted(write).rank(candidates, by="scores", **QUIET)
    assert frame["value"][:2].tolist() == pytest.approx([3.0, 5.0])
    assert frame["rank"][:2].tolist() == [2, 1] and frame["missing"].tolist() == [0, 0, 1]
    assert frame["best"].tolist() == [False, True, False]


def test_a_real_model_in_one_pass_each_order():
    """What the pass says is what the judge finds more probable: by hand, order by order."""
    real = vj.load_judge("tiny", device="cpu", template="prometheus-2-relative")
    rows = list(vj.load_collection("scenes", split="test", limit=4))
    pairs = [{**row, "response_a": row["response"], "response_b": "plain red"} for row in rows]
    frame = real.compare(pairs, mode="score", **QUIET)
    assert frame["failure"].isna().all() and frame["verdict_ab"].isin(["a", "b"]).all()
    swapped = [{**p, "response_a": p["response_b"], "response_b": p["response_a"]} for p in pairs]
    other = real.compare(swapped, mode="score", **QUIET)
    assert other["verdict_ab"].map({"a": "b", "b": "a"}).tolist() == frame["verdict_ba"].tolist()
    assert (1 - other["probability_a"]).tolist() == pytest.approx(frame["probability_a"], abs=1e-5)
