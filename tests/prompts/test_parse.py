"""Parsing: exactly one score of the rubric, where the format puts it, or a failure that says why."""

# ruff: noqa: E501

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vjudge.prompts import TEMPLATES, target
from vjudge.prompts.parse import FORMATS, parse, suggest_format
from vjudge.records import CHOICES

SCALE = (1, 2, 3, 4, 5)
FORMAT_LINE = "Feedback: (write a feedback for criteria) [RESULT] (an integer number between 1 and 5)"


@pytest.mark.parametrize(
    ("text", "score", "feedback"),
    [
        ("Good work. So the overall score is 4.\n[RESULT] 4", 4, "Good work. So the overall score is 4."),
        ("###Feedback: Good. [RESULT] 4", 4, "Good."),
        ("**Feedback:** Good. **[RESULT]** **4**", 4, "Good."),
        ("Good. [RESULT] (4)", 4, "Good."),
        ("Good. [Result] 4", 4, "Good."),
        ("Good. [RESULT] 4. It names 3 things.", 4, "Good."),
        (f"{FORMAT_LINE}\nGood. [RESULT] 3", 3, "(write a feedback for criteria) [RESULT] (an integer number between"),
        ("Good. [RESULT] 4\nGood. [RESULT] 4", 4, "Good. [RESULT] 4\nGood."),
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
        ("Good. So the overall score is 4.", "no verdict marker"),
        ("Good. [RESULT]", "no number after the last verdict marker"),
        ("Good. [RESULT] IV", "no number after the last verdict marker"),
        ("Good. [RESULT] 4 and again [RESULT]", "no number after the last verdict marker"),
        ("Good. [RESULT] 4th", "'4th' after the last verdict marker is not a plain number"),
        ("Good. [RESULT] 4/10", "a score out of 10 on a scale up to 5"),
        ("Good. [RESULT] 4-5", "more than one number after the last verdict marker"),
        ("Good. [RESULT] 7", "score 7 is off the rubric (1-5)"),
        ("Good. [RESULT] 4.5", "score 4.5 is off the rubric (1-5)"),
        ("Good. [RESULT] 4 [RESULT] 2", "two different verdicts: 4 and 2"),
        ("Good. [RESULT] 4 [RESULT] 2 [RESULT] 3", "3 different verdicts: 4, 2 and 3"),
        ("So the overall score is 4.\n[RESULT] 2", "two different verdicts: 4 and 2"),
    ],
)
def test_anything_else_is_a_failure_with_its_reason(text: str, failure: str) -> None:
    verdict = parse(text, scores=SCALE)
    assert math.isnan(verdict.score) and verdict.failure == failure and verdict.raw == text


def test_wrong_use_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown verdict format 'xml'; one of: arena, .*prometheus"):
        parse("x", scores=SCALE, format="xml")
    with pytest.raises(ValueError, match="scores is empty"):
        parse("x", scores=())


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


def said(text: str, format: str) -> float | str | None:
    """A verdict in one word: its score, its choice, or its failure."""
    verdict = parse(text, scores=SCALE, format=format)
    assert verdict.raw == text
    return verdict.failure or verdict.choice or verdict.score


EXAMPLES: dict[str, tuple[str, float | str]] = {
    "prometheus": ("The answer is mostly right. So the overall score is 4.\n[RESULT] 4", 4),
    "prometheus-relative": ("Response A misses the cat, Response B names it. [RESULT] B", "b"),
    "final-score": ("The caption fits the image.\nFinal Score: 4", 4),
    "score": ("The sign is misread.\n**Score:** 2", 2),
    "llava-critic": ("The response is accurate but brief.\nFinal Score: 85", 85),
    "llava-critic-pair": ("The better response: [second].\nReason: it names the number.", "b"),
    "better-response": ("The better response: [1].", "a"),
    "arena": ("My final verdict is: [[A>>B]]", "a"),
    "mt-bench": ("Assistant A reads the sign right. [[A]]", "a"),
    "mt-bench-score": ("It misreads the sign. Rating: [[5]]", 5),
    "two-scores": ("8 6\nAssistant 1 describes the scene in more detail.", "a"),
    "reference-scores": ("9 7\nAssistant 2 leaves the date out.", 7),
    "unified-reward": ("Both name the dog, one its colour.\nAnswer 1 is better", "a"),
    "vl-rewardbench": ("1. Accuracy: Answer 1 is better.\nOverall Judgment: Answer 2 is better.", "b"),
    "think-answer": ("<think>The first invents a dog.</think><answer>2</answer>", "b"),
    "boxed": ("<think>The first invents a dog.</think>\\boxed{2}", "b"),
    "boxed-score": ("<think>One claim is wrong.</think>\\boxed{4}", 4),
    "flow-judge": ("<feedback>\nOne claim is wrong.\n</feedback>\n<score>\n4\n</score>", 4),
}


def test_every_format_reads_its_judges_answers() -> None:
    assert EXAMPLES.keys() == FORMATS.keys()
    for name, (text, verdict) in EXAMPLES.items():
        assert said(text, name) == verdict
        assert isinstance(verdict, str) == (FORMATS[name].gives == "choice")
    for template in TEMPLATES.values():
        assert (FORMATS[template.format].gives == "choice") == template.compares
        assert template.scale is None or FORMATS[template.format].scale == template.scale


@pytest.mark.parametrize(
    ("format", "text", "expected"),
    [
        ("prometheus", "It can't be seen. [RESULT] N/A", "abstain"),
        ("prometheus", "[RESULT] 4 ... [RESULT] N/A", "two different verdicts: 4 and abstention"),
        ("prometheus-relative", "Feedback: B names it.\n**[RESULT]** **Response A**.", "a"),
        ("prometheus-relative", "[RESULT] A good answer would name it", "'A good answer' after the last verdict marker is not a plain choice"),
        ("prometheus-relative", "(write a feedback) [RESULT] (A or B)", "more than one choice after the last verdict marker"),
        ("llava-critic", "Accuracy Score: 20\nClarity Score: 30", "two different verdicts: 20 and 30"),
        ("llava-critic", "Score: 85%", "'85%' after the score is not a plain number"),
        ("llava-critic", "Final Score: 120", "score 120 is off the scale (0-100)"),
        ("llava-critic", "Score: N/A, the image is blank", "abstain"),
        ("llava-critic", "The response scores well: 3 of its claims hold.", "no score"),
        ("llava-critic-pair", "**The better response: [second].** Reason", "b"),
        ("llava-critic-pair", "Two responses are equally good.\nBoth name it.", "tie"),
        ("llava-critic-pair", "8 6\n...\n[[B>A]]", "two different verdicts: B and A"),
        ("llava-critic-pair", "The better response: [first]\nThe better response: [2]", "two different verdicts: A and B"),
        ("llava-critic-pair", "The better response: [first|second|1|2|A|B]", 'more than one choice after the "The better response"'),
        ("llava-critic-pair", "Which is the better response? The second.", "no verdict in any of LLaVA-Critic's forms"),
        ("llava-critic-pair", "Two responses are equally good. The better response: [2]", "two different verdicts: B and tie"),
        ("llava-critic-pair", "11 3\nGood.", "score 11 is off the scale (1-10)"),
        ("llava-critic-pair", "[[yes]]", "'[[yes]]' is no [[A>>B]] to [[B>>A]], [[A]], [[B]] or [[C]]"),
        ("arena", "I lean to [[A > B]] because", "a"),
        ("arena", "[[A>B]] no, [[A>>B]]", "two different verdicts: A and A>>B"),
        ("two-scores", "7.5, 8\nOk", "b"),
        ("reference-scores", "9 6.5\nShort.", 6.5),
        ("reference-scores", "Scores: 9 6", "no first line of two scores"),
        ("final-score", "Final Score: **4** of quality", 4),
        ("unified-reward", "Answer 1 is better in style, Answer 2 in facts.\nOverall Judgment: Answer 2 is better.", "b"),
        ("unified-reward", "I think Answer 2 is better", 'no "Answer N is better"'),
        ("vl-rewardbench", "Overall Judgment: Answer X is better.", 'no choice after the "Overall Judgment"'),
        ("vl-rewardbench", "Overall Judgment: Both answers are equally good", "tie"),
        ("vl-rewardbench", "Overall Judgment: Answer 1 is not better.", "'1 is not bett' after the \"Overall Judgment\" is not a plain choice"),
        ("think-answer", "<think>I first say <answer>1</answer></think> <answer>2</answer>", "b"),
        ("think-answer", "<think>so <answer>1</answer>", "the thinking never ends"),
        ("think-answer", "<answer>1</answer> no, <answer><b>2</b></answer>", "'<answer>' has no end"),
        ("think-answer", "<answer>1}", "'<answer>1}' has no end"),
        ("think-answer", "<Answer>1</answer>", "a"),
        ("think-answer", "<answer>1|2</answer>", "more than one choice after the <answer>"),
        ("think-answer", "<answer>1 and some prose</answer>", "'1 and some pr' after the <answer> is not a plain choice"),
        ("boxed", "\\boxed{\\text{2}}", "b"),
        ("boxed", "\\boxed{1} or \\boxed{2", "'\\\\boxed{2' has no end"),
        ("boxed-score", "\\boxed{4/5}", 4),
        ("mt-bench", "[[C]]", "tie"),
        ("mt-bench-score", "Rating: [[**7**/10]]", 7),
        ("mt-bench-score", "[[6]] or [[7]]", "two different verdicts: 6 and 7"),
        ("llava-critic-pair", "[[A>B]], so [[B]]", "two different verdicts: A and B"),
        ("mt-bench", "[[A]] is my verdict, not [[B]]", "'[[B]]' is denied"),
        ("flow-judge", "<feedback>a <score> tag</feedback><score>3</score>", 3),
        ("flow-judge", "<feedback>It says <score>5</score>.</feedback>", "no <score>"),
        ("score", "**Rating**: 4/5\nShort.", 4),
        ("score", "3/4", "a score out of 4 on a scale up to 5"),
        ("score", "\u8bc4\u5206\uff1a\uff14", 'no number after the "Score:"'),
        ("prometheus", "[RESULT] 3 (1-10)", "a score on another scale (1-10) than 1-5"),
        ("prometheus", "[RESULT] 3 (of 7) [RESULT] 4", 4),  # what is no verdict of the scale is prose before the last
        ("prometheus", "[RESULT] 3, or so [RESULT] 4", "two different verdicts: 3 and 4"),
    ],
)  # fmt: skip
def test_real_looking_and_hostile_answers(format: str, text: str, expected: float | str) -> None:
    assert said(text, format) == expected


def test_scores_keep_their_own_scale_and_say_it() -> None:
    assert parse("Final Score: 85", format="llava-critic").scale == (0.0, 100.0)
    assert parse("[RESULT] 2", scores=(0, 1, 2)).scale == (0.0, 2.0)
    both = parse("8 6.5\nBecause.", format="llava-critic-pair")
    assert (both.scores, both.scale, both.choice) == ((8.0, 6.5), (1.0, 10.0), "a") and math.isnan(both.score)
    assert both.feedback == "Because."
    assert [parse(f"[[{x}]]", format="arena").strong for x in ("A>>B", "A>B", "A=B")] == [True, False, False]
    tie = parse("[[C]]", format="mt-bench")
    assert tie.failure is None and math.isnan(tie.score) and tie.scale is None and not tie.abstained
    assert parse("[RESULT] N/A", scores=SCALE).abstained


def test_feedback_is_the_text_beside_the_verdict() -> None:
    assert parse("The better response: [2].\nIt names it.", format="better-response").feedback == "It names it."
    assert parse("It names it.\nThe better response: [2].", format="better-response").feedback == "It names it."
    flow = "<feedback>\nTwo claims.\n</feedback>\n<score>4</score>"
    assert parse(flow, scores=SCALE, format="flow-judge").feedback == "Two claims."
    assert parse("<think>Hm.</think>\n<answer>1</answer>", format="think-answer").feedback == "Hm."


FLOODS = ["9", "*", "(", " ", "\n", "[RESULT] A ", "The better response: [", "[[A", "[[", "<score>", "<answer>", "<feedback>",
          "\\boxed{", "Final Score: ", "Score: 4 ", "4/100 ", "<think>", "</think>", "Answer 1 is better\n", "\n*",
          "Overall Judgment: ", "Two responses are equally good\n", "score (", "9 ", "(1-5) ", "score (1-5): ", "4 (out of ",
          "Score: 4 or maybe ", "[RESULT] 4. ", "A (or ", "Overall Judgment: A is not ", "\u00a0", "\u2014", "not [[A]] "]  # fmt: skip


@pytest.mark.parametrize("format", FORMATS)
def test_floods_take_linear_time(format: str) -> None:
    for unit in FLOODS:  # a quadratic pattern would take minutes
        text = unit * (100_000 // len(unit))
        verdict = parse(text, scores=SCALE, format=format)
        assert (verdict.failure is None) == (verdict.choice is not None or not math.isnan(verdict.score))


snippets = st.sampled_from(
    "[RESULT] A B tie 4 85 /100 N/A [[A]] [[A>>B]] [[B>A]] [[C]] <think> </think> <answer>1</answer> <score>4</score> \n"
    " Final Score: \\boxed{2} or is better Answer 1 2 <image> </s> USER: ###Feedback:".split(" ")
    + [
        "The better response: [",
        "Overall Judgment:",
        "Two responses are equally good.",
        "Answer 1 is better",
        "\n8 6\n",
    ]
)


@pytest.mark.parametrize("format", FORMATS)
@settings(deadline=None, max_examples=60)
@given(text=st.lists(st.one_of(prose, snippets), max_size=8).map(" ".join))
def test_every_answer_is_one_verdict_of_its_kind_or_a_failure(format: str, text: str) -> None:
    verdict = parse(text, scores=SCALE, format=format)
    rule = FORMATS[format]
    assert verdict.raw == text
    if verdict.failure is None and not verdict.abstained:
        assert (verdict.choice in CHOICES) == (rule.gives == "choice")
        if rule.gives == "score":
            low, high = rule.scale or (1, 5)
            assert low <= verdict.score <= high and verdict.scale == (low, high)
            assert f"{verdict.score:g}" in text


@pytest.mark.parametrize(
    ("texts", "format", "expected"),
    [
        (["**Score:** 3", "**Score:** 4"], "prometheus", "score"),
        (["3/4"], "prometheus", None),  # a score of another scale is no better for another format
        (["\u5206\u6570\uff1a3"], "prometheus", "score"),
        (["<score>3</score>", "<score>4</score>", "no"], "prometheus", "flow-judge"),
        (["Answer 1 is better"], "prometheus-relative", "unified-reward"),
        (["", " "], "prometheus", None),
    ],
)
def test_the_format_that_would_read_the_failures_is_named(texts: list[str], format: str, expected: str | None) -> None:
    assert suggest_format(texts, scores=SCALE, format=format) == expected
