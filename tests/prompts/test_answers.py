"""Answers as judges write them, each with the verdict that a careful person gives: read so, or a failure."""

# ruff: noqa: E501

from __future__ import annotations

import pytest

from vjudge.prompts.parse import parse

FIVE, TEN, ZERO = (1, 2, 3, 4, 5), tuple(range(1, 11)), (0, 1, 2)
# By format: answers with a person's verdict; None where the person gives none, or another scale. Written before the
# parser that reads them; those of half of the list, and of a second list, were looked at once it was done.
ANSWERS: dict[str, list[tuple[str, float | str | None]]] = {
    "prometheus": [
        ("Good overall. [RESULT] [4]/5", 4),
        ("Good overall. [RESULT] (2)/10", None),
        ('Weak. [RESULT] "2" / 7', None),
        ("Fine. [RESULT] 4 (out of 5)", 4),
        ("Fine. [RESULT] 5 (on a scale of 1 to 5)", 5),
        ("Fine. [RESULT] 5 on a scale of 1-10", None),
        ("Fine. [RESULT] 2 of the 5 claims are supported", None),
        ("Fine. [RESULT] 4 because 3 of the 5 claims are right", None),
        ("Fine. [RESULT] 4 because most of the claims are right", 4),
        ("Fine. [RESULT] 4. Or maybe 5.", None),
        ("Fine. [RESULT] 4. No, 3.", None),
        ("Fine. [RESULT] 3\u20134", None),
        ("Fine. [RESULT] 3\u202f/\u202f10", None),
        ("Fine. [RESULT] 3\u00bd", None),
        ("Fine. [RESULT] 4 percent", None),
        ("Fine. [RESULT] 5 %", None),
        ("Fine. [RESULT] 4?", None),
        ("Fine. [RESULT] 3 would be too generous", None),
        ("Fine. [RESULT] 5 is not warranted", None),
        ("Fine. [RESULT] not applicable", None),
        ("The response is off. [RESULT] Score: 2", None),
    ],
    "final-score": [
        ("Final Score: 4/5", 4),
        ("Final Score (out of 5): 4", 4),
        ("Final Score (out of 10): 4", None),
        ("**Final Score** (1\u20135)**:** 4", 4),
        ("Final Score: [2] / [10]", None),
        ("Final Score: 3 (average of 2 and 4)", None),
        ("Final Score: 4 (Excellent: 5, Good: 4)", None),
    ],
    "llava-critic": [
        ("Final Score (1-5): 3", None),
        ("Final Score (0-100): 72", 72),
        ("Final Score (1-100): 72", 72),
        ("Score (out of 10): 7", None),
        ("Score: [85]/100", 85),
        ("I would say 80-85 out of 100.", None),
        ("Score: 70\u201375", None),
        ("Score: 4 out of 5 stars", None),
    ],
    "prometheus-relative": [
        ("[RESULT] A is not as good as B", None),
        ("[RESULT] A is outperformed by B", None),
        ("[RESULT] A outperforms B", "a"),
        ("[RESULT] B is better than A", "b"),
        ("[RESULT] B is the better response.", "b"),
        ("[RESULT] A because B does not name the cat", "a"),
        ("[RESULT] B, which is not perfect but more precise", "b"),
        ("[RESULT] (A) (B)", None),
        ("[RESULT] A or maybe B", None),
        ("[RESULT] A\u00a0B", None),
        ("[RESULT] A, although B is better", None),
        ("[RESULT] A. Response B is longer, but not better.", "a"),
        ("[RESULT] neither A nor B", None),
        ("[RESULT] Tie", "tie"),
        ("[RESULT] A=B", None),
        ("[RESULT] The better response is B", None),
    ],
    "unified-reward": [
        ("Answer 1 is better than Answer 2.", "a"),
        ("Answer 1 is better? No, it is not.", None),
        ("Answer 1 is better than nothing, but Answer 2 is better", None),
        ("Answer 1 is better or equal", None),
    ],
    "vl-rewardbench": [
        ("Overall Judgment: Answer 1 is not as good as Answer 2.", None),
        ("Overall Judgment: Answer 1 is the better one because it does not hallucinate.", "a"),
        ("**Overall Judgment**: Answer 1 is more accurate and complete.", "a"),
        ("Overall Judgment: Answer 2 is better than Answer 1, which is not grounded.", "b"),
    ],
    "better-response": [
        ("The better response: [1]/[2]", None),
        ("The better response: [2], not [1]", "b"),
        ("The better response: the first one.", "a"),
        ("The better response is: [second] because it is not vague.", "b"),
    ],
    "llava-critic-pair": [
        ("8/10", None),
        ("7/8\nThe second is better.", None),
        ("8 7\nThe first is better.", "a"),
        ("The better response: [1] is worse than [2]", None),
    ],
    "arena": [
        ("My final verdict is: [[A>B]]", "a"),
        ("My final verdict is not [[A>B]]", None),
    ],
    "mt-bench": [
        ("[[A]] is not better than the other", None),
        ("Assistant B is better: [[B]].", "b"),
        ("My verdict isn't [[B]]", None),
        ("I cannot give [[A]]; it is [[B]]", None),
    ],
    "mt-bench-score": [
        ("Rating: [[7]]/100", None),
        ("Rating: [[7]]/10", 7),
        ("Rating: [[7]] out of 10, as 3 of 4 claims hold.", 7),
        ("Rating: [[6]]-[[7]]", None),
    ],
    "boxed-score": [
        ("<think>x</think>\\boxed{3}/10", None),
        ("<think>x</think>$\\boxed{3}$", 3),
        ("<think>x</think>\\boxed{3}%", None),
    ],
    "boxed": [
        ("<think>x</think>\\boxed{1 \\text{ or } 2}", None),
        ("<think>x</think>\\boxed{1}.", "a"),
    ],
    "think-answer": [
        ("<think>x</think><answer>2 is not better</answer>", None),
        ("<think>x</think><answer>Answer 2</answer>", "b"),
    ],
    "flow-judge": [
        ("<feedback>x</feedback><score>3</score>/10", None),
        ("<feedback>x</feedback><score>3 out of 5</score>", 3),
        ("<feedback>x</feedback><score>3 (out of 10)</score>", None),
        ("<feedback>x</feedback><score>3\u20134</score>", None),
        ("<feedback>x</feedback>\n<score>\n5\n</score>\n", 5),
    ],
}
OTHER_SCALES = [
    (TEN, "Fine. [RESULT] 7/10", 7),
    (TEN, "Fine. [RESULT] 7 (out of 5)", None),
    (ZERO, "Fine. [RESULT] 1 (0-2)", 1),
    (ZERO, "Fine. [RESULT] 1 (1-5)", None),
]


def verdict(text: str, format: str, scores: tuple[int, ...] = FIVE) -> float | str | None:
    read = parse(text, scores=scores, format=format)
    return None if read.failure else read.choice or read.score


@pytest.mark.parametrize("format", ANSWERS)
def test_read_as_a_person_reads_it(format: str) -> None:
    wrong = [(text, person) for text, person in ANSWERS[format] if verdict(text, format) != person]
    assert not wrong


def test_other_scales_than_five_levels() -> None:
    assert [verdict(text, "prometheus", scores) for scores, text, _ in OTHER_SCALES] == [
        person for *_, person in OTHER_SCALES
    ]
