"""Parsing: exactly one score of the rubric, where the format puts it, or a failure that says why."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vjudge.parse import parse
from vjudge.prompts import target

SCALE = (1, 2, 3, 4, 5)
FORMAT_LINE = "Feedback: (write a feedback for criteria) [RESULT] (an integer number between 1 and 5)"


@pytest.mark.parametrize(
    ("text", "score", "feedback"),
    [
        ("Good work. So the overall score is 4.\n[RESULT] 4", 4, "Good work. So the overall score is 4."),
        ("Feedback: Good.\n[RESULT] 4", 4, "Good."),
        ("###Feedback: Good. [RESULT] 4", 4, "Good."),
        ("**Feedback:** Good. **[RESULT]** **4**", 4, "Good."),
        ("Good. **[RESULT] 4**.", 4, "Good."),
        ("Good. [RESULT] (4)", 4, "Good."),
        ("Good. [RESULT] [4]", 4, "Good."),
        ("Good. [RESULT]: 4", 4, "Good."),
        ("Good. [RESULT] = '4'", 4, "Good."),
        ("Good. [Result] 4", 4, "Good."),
        ("Good. [RESULT]4", 4, "Good."),
        ("Good. [RESULT]\n\n4\n", 4, "Good."),
        ("Good. [RESULT] 4/5", 4, "Good."),
        ("Good. [RESULT] 4 out of 5.", 4, "Good."),
        ("Good. [RESULT] 4.0", 4, "Good."),
        ("Good. [RESULT] 4. It names 3 things.", 4, "Good."),
        ("Good. [RESULT] 4\n\n2. Another point", 4, "Good."),
        ("A score between 1 and 5 [RESULT] 3", 3, "A score between 1 and 5"),
        (f"{FORMAT_LINE}\nGood. [RESULT] 3", 3, "(write a feedback for criteria) [RESULT] (an integer number between"),
        ("Good. [RESULT] 4\nGood. [RESULT] 4", 4, "Good. [RESULT] 4\nGood."),
        ("[RESULT] 4", 4, ""),
        ("The feedback: none. [RESULT] 1", 1, "The feedback: none."),
    ],
)
def test_a_stated_score_is_read(text: str, score: int, feedback: str) -> None:
    verdict = parse(text, scores=SCALE)
    assert (verdict.score, verdict.failure, verdict.raw) == (score, None, text)
    assert verdict.feedback.startswith(feedback)


@pytest.mark.parametrize(
    ("text", "failure"),
    [
        ("", "empty answer"),
        (" \n", "empty answer"),
        ("Good. So the overall score is 4.", "no verdict marker"),
        ("Score: 4", "no verdict marker"),
        ("[RESULT 4]", "no verdict marker"),
        ("Good. [RESULT]", "no number after the last verdict marker"),
        ("Good. [RESULT] four", "no number after the last verdict marker"),
        ("Good. [RESULT] IV", "no number after the last verdict marker"),
        ("Good. [RESULT] \uff14", "no number after the last verdict marker"),
        ("Good. [RESULT] \u0664", "no number after the last verdict marker"),
        ("Good. [RESULT] \u2463", "no number after the last verdict marker"),
        (FORMAT_LINE, "no number after the last verdict marker"),
        ("Good. [RESULT] 4 and again [RESULT]", "no number after the last verdict marker"),
        ("Good. [RESULT] 4th", "'4th' after the last verdict marker is not a plain number"),
        ("Good. [RESULT] 80%", "'80%' after the last verdict marker is not a plain number"),
        ("Good. [RESULT] 4\u00b2", "'4\u00b2' after the last verdict marker is not a plain number"),
        ("Good. [RESULT] 4.5.1", "'4.5.1' after the last verdict marker is not a plain number"),
        ("Good. [RESULT] 4/10", "a score out of 10 on a rubric up to 5"),
        ("Good. [RESULT] 4-5", "more than one number after the last verdict marker"),
        ("Good. [RESULT] 4 or 5", "more than one number after the last verdict marker"),
        ("Good. [RESULT] 4 to 5", "more than one number after the last verdict marker"),
        ("Good. [RESULT] 4, 5", "more than one number after the last verdict marker"),
        ("Good. [RESULT] 4 5", "more than one number after the last verdict marker"),
        ("Good. [RESULT] 4/5/6", "more than one number after the last verdict marker"),
        ("Good. [RESULT] 7", "score 7 is off the rubric (1-5)"),
        ("Good. [RESULT] 0", "score 0 is off the rubric (1-5)"),
        ("Good. [RESULT] -4", "score -4 is off the rubric (1-5)"),
        ("Good. [RESULT] 45", "score 45 is off the rubric (1-5)"),
        ("Good. [RESULT] 4.5", "score 4.5 is off the rubric (1-5)"),
        ("Good. [RESULT] 4 [RESULT] 2", "two different verdicts: 4 and 2"),
        ("Good. [RESULT] 4 [RESULT] 2 [RESULT] 4", "two different verdicts: 4 and 2"),
        ("Good. [RESULT] 4 [RESULT] 2 [RESULT] 3", "3 different verdicts: 4, 2 and 3"),
        ("Good. [RESULT] 7 [RESULT] 3", "two different verdicts: 7 and 3"),
        ("So the overall score is 4.\n[RESULT] 2", "two different verdicts: 4 and 2"),
        ("So the overall score is **4**. [RESULT] 2", "two different verdicts: 4 and 2"),
        ("[RESULT] 2. So the overall score is 4.", "two different verdicts: 2 and 4"),
    ],
)
def test_anything_else_is_a_failure_with_its_reason(text: str, failure: str) -> None:
    verdict = parse(text, scores=SCALE)
    assert math.isnan(verdict.score) and verdict.failure == failure and verdict.raw == text


def test_a_failure_keeps_what_the_judge_wrote() -> None:
    assert parse("Feedback: Fine. [RESULT] 9", scores=SCALE).feedback == "Fine."
    assert parse("Feedback: cut off in the mid", scores=SCALE).feedback == "cut off in the mid"


def test_the_scale_is_the_rubrics() -> None:
    assert parse("[RESULT] 0", scores=(0, 1, 2)).score == 0
    assert parse("[RESULT] 10", scores=tuple(range(11))).score == 10
    assert parse("[RESULT] 7/10", scores=tuple(range(11))).score == 7
    assert parse("[RESULT] 3", scores=(0, 1, 2)).failure == "score 3 is off the rubric (0-2)"


def test_wrong_use_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown verdict format 'xml'; one of: prometheus"):
        parse("x", scores=SCALE, format="xml")
    with pytest.raises(ValueError, match="scores is empty"):
        parse("x", scores=())


@pytest.mark.parametrize("unit", ["9", "*", "(", " ", "\n", "4 ", "[RESULT] ", "the overall score is "])
def test_a_flood_fails_in_linear_time(unit: str) -> None:
    assert parse("[RESULT] 4" + unit * 10**5 + "[RESULT]", scores=SCALE).failure  # a quadratic pattern would hang here


prose = st.text(max_size=200).filter(
    lambda text: "[result]" not in text.lower() and "overall score" not in text.lower()
)


@settings(deadline=None)  # a busy machine is no failure
@given(prose, st.sampled_from(SCALE))
def test_a_training_target_reads_back(feedback: str, score: int) -> None:
    answer = target(feedback, score)
    verdict = parse(answer, scores=SCALE)
    assert verdict.score == score
    if not feedback.strip().lower().lstrip("#*").startswith("feedback"):
        assert target(verdict.feedback, score) == answer


@settings(deadline=None)  # a busy machine is no failure
@given(st.lists(st.one_of(prose, st.just("[RESULT]"), st.sampled_from("0123456789")), max_size=12).map(" ".join))
def test_every_answer_is_a_score_of_the_rubric_or_a_failure(text: str) -> None:
    verdict = parse(text, scores=SCALE)
    assert verdict.raw == text
    assert (verdict.score in SCALE) == (verdict.failure is None)
    if verdict.failure is None:  # the score stands in the text, after the last marker
        assert f"{verdict.score:g}" in text.rpartition("[RESULT]")[2]


@settings(deadline=None)  # a busy machine is no failure
@given(prose, st.sampled_from(SCALE), st.sampled_from(SCALE))
def test_two_verdicts_count_only_when_they_agree(feedback: str, first: int, second: int) -> None:
    verdict = parse(f"{feedback} [RESULT] {first}\n{feedback} [RESULT] {second}", scores=SCALE)
    assert (verdict.failure is None) == (first == second)


@settings(deadline=None)  # a busy machine is no failure
@given(prose, st.integers())
def test_scores_off_the_rubric_never_pass(feedback: str, number: int) -> None:
    verdict = parse(f"{feedback} [RESULT] {number}", scores=SCALE)
    assert (verdict.failure is None) == (number in SCALE)
