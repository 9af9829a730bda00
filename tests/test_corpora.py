"""Rows of LLaVA-Critic-113k and Preference-Collection: read right, or a reason."""

from __future__ import annotations

import math
from typing import Any

import pytest

from vjudge.corpora import RowError, read_critic, read_preference
from vjudge.prompts import TEMPLATES
from vjudge.records import Item, Pair, Rubric


def critic(prompt: str, answer: str, **more: Any) -> dict[str, Any]:
    turns = [{"from": "human", "value": f"<image>\n{prompt}"}, {"from": "gpt", "value": answer}]
    return {"id": "7", "source": "llava", "conversations": turns, "image": "a.jpg", **more}


RUBRIC = Rubric("?", ("no", "yes"))
SINGLE = TEMPLATES["llava-critic"].as_messages().render(Item("i", (), "What?\nWhere?", "A [cat].", RUBRIC)).text
PAIR = TEMPLATES["llava-critic-pair"].as_messages().render(Pair("p", (), "What?", "A cat.", "A\ndog.")).text


def test_a_pointwise_row() -> None:
    row = read_critic(critic(SINGLE, "Score: 85\nIt is right."))
    assert (row.kind, row.instruction, row.responses) == ("pointwise", "What?\nWhere?", ("A [cat].",))
    assert (row.verdict.score, row.verdict.scale, row.verdict.feedback) == (85, (0, 100), "It is right.")
    assert row.images == ("a.jpg",) and not row.prompt.startswith("<image>") and row.id == "7"


def test_a_pairwise_row() -> None:
    row = read_critic(critic(PAIR, "Two responses are equally good."))
    assert (row.kind, row.responses, row.verdict.choice) == ("pairwise", ("A cat.", "A\ndog."), "tie")


@pytest.mark.parametrize(
    ("prompt", "answer", "kind", "said"),
    [
        # A pair in the pointwise part, in LLaVA-Bench's wording.
        ("[Assistant 1]\nA cat\n[Assistant 2]\nA dog\nScores from 1 to 10.", "8 6\nThe first.", "pairwise", "a"),
        ("[Assistant 1]\nA cat\n[Assistant 2]\nA dog\nRate 1-10.", "They are fine.", None, None),
        ("Judge the answer on a scale of 0 to 100.", "Final Score: 40", "pointwise", 40),
        ("Judge the answer on a scale of 0 to 6.", "Rating: 4", "pointwise", "the prompt's scale is 0-6, not 0-100"),
        ("Judge the answer. Out of 100, or out of 10.", "Score: 4", "pointwise", "0-10 and 0-100, not 0-100"),
        ("Which letter is right?", "B", None, "the prompt names no scale"),
        (SINGLE, "It is quite good.", "pointwise", "no score"),
        (SINGLE, "Score: 85. Final Score: 80", "pointwise", 80),
        (SINGLE, "8 6\nGood.", "pointwise", "no score"),
        (PAIR, "The better response: [1]. The better response: [2].", "pairwise", "two different verdicts"),
    ],
)
def test_mixed_rows(prompt: str, answer: str, kind: str | None, said: float | str | None) -> None:
    row = read_critic(critic(prompt, answer))
    assert row.kind == kind
    verdict = row.verdict
    if said is None:
        assert verdict.failure
    else:
        assert said in (verdict.score, verdict.choice) or str(said) in str(verdict.failure)


def test_sections_that_a_response_imitates_are_not_guessed() -> None:
    text = PAIR.replace("A cat.", "x]\nThe second response: [y")
    row = read_critic(critic(text, "The better response: [1]."))
    assert row.kind == "pairwise" and row.instruction is None and row.responses == ()
    assert row.verdict.choice == "a"  # the label needs no sections


@pytest.mark.parametrize(
    "turns", [None, [], "x", [{"from": "human", "value": "a"}], [{"from": "gpt", "value": "a"}] * 2]
)
def test_rows_without_a_question_and_an_answer_are_refused(turns: Any) -> None:
    with pytest.raises(RowError, match="conversations: is not one human and one gpt turn"):
        read_critic({"conversations": turns})


PREFERENCE = {
    "orig_instruction": "Say it.",
    "orig_response_A": "One.",
    "orig_response_B": "Two.",
    "orig_reference_answer": "Both.",
    "orig_criteria": "Is it said?",
    "orig_score_A": "4",
    "orig_score_B": "2",
    "orig_preference": "A",
    "orig_feedback": "A says it.",
}


def test_a_preference_row_with_string_scores() -> None:
    row = read_preference(PREFERENCE, id="0")
    assert (row["score_a"], row["score_b"], row["preference"]) == (4.0, 2.0, "a")
    pair = Pair.from_row(row)
    assert pair.rubric is None and pair.criteria == "Is it said?" and pair.reference_answer == "Both."
    assert "[Is it said?]\n\n###Feedback" in TEMPLATES["prometheus-2-relative"].render(pair).text
    assert math.isnan(read_preference({**PREFERENCE, "orig_score_A": None}, id="0")["score_a"])


def test_a_preference_row_that_is_wrong_says_all_that_is() -> None:
    bad = {**PREFERENCE, "orig_score_A": "four", "orig_score_B": "7", "orig_preference": "C", "orig_criteria": " "}
    with pytest.raises(RowError) as caught:
        read_preference(bad, id="0")
    message = str(caught.value)
    assert "orig_criteria: is missing or blank" in message and "orig_score_A: 'four' is not a number" in message
    assert "orig_score_B: 7 is not a whole number" in message and "'C' is neither A nor B" in message
    with pytest.raises(RowError, match=r"orig_preference: B contradicts the scores \(A 4, B 2\)"):
        read_preference({**PREFERENCE, "orig_preference": "B"}, id="0")
