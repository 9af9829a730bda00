"""The answer that each wording asks for: what a judge is trained on, and what examples show."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vjudge.prompts.template import Template

TARGETS = {
    "prometheus": ("{feedback}\n", "[RESULT] {verdict}"),
    "prometheus-relative": ("{feedback} ", "[RESULT] {verdict}"),
    "final-score": ("{feedback}\n", "Final Score: {verdict}"),
    "score": ("{feedback}\n", "The final score is {verdict}."),
    "better-response": ("{feedback}\n", "The better answer is {verdict}."),
    "llava-critic": ("{feedback}", "Score: {verdict}\n"),
    "llava-critic-pair": ("{feedback}", "The {ordinal} response is better.\n"),
    "boxed": ("<think>{feedback}</think>", "\\boxed{{{number}}}"),
    "boxed-score": ("<think>{feedback}</think>", "\\boxed{{{verdict}}}"),
    "unified-reward": ("{feedback}\n", "Answer {number} is better."),
    "think-answer": (
        "<think>\n{feedback}\n</think>\n",
        "<answer>Answer {number} is better</answer>",
    ),
}
"""Format of a wording -> what is written before the verdict, and the verdict."""
OWN = {"r1-reward": ("<think>{feedback}</think>", "<answer>{number}</answer>")}  # by name
OPENING = ("llava-critic", "llava-critic-pair")  # formats whose answers open with the verdict
PLACES = {"a": ("1", "first"), "b": ("2", "second")}


def answer_text(template: Template, feedback: str, verdict: Any, shape: str = "feedback") -> str:
    """The text of an answer in a wording's own form.

    Args:
        template: the wording.
        feedback: the text before or behind the verdict.
        verdict: a whole score; of two responses "a" or "b".
        shape: "feedback", "score" (the verdict alone) or "score-first".

    ValueError: the wording's answers have no known form, or the feedback holds a verdict.
    """
    if template.is_json:
        cell = {"choice": verdict.upper()} if template.compares else {"score": verdict}
        text = {"feedback": feedback}
        shapes = {"feedback": text | cell, "score": cell, "score-first": cell | text}
        return json.dumps(shapes[shape], ensure_ascii=False)
    target_form = OWN.get(template.name, TARGETS.get(template.format))
    if target_form is None:
        raise ValueError(
            f"template: the answers of {template.name!r} have no known form; give rows with prompt"
            " and target"
        )
    if template.format == "prometheus" and shape == "feedback":
        return target(feedback, verdict)
    fields = {"verdict": verdict}
    if template.compares:
        number, ordinal = PLACES[verdict]
        fields = {"verdict": verdict.upper(), "number": number, "ordinal": ordinal}
    before = target_form[0].format(feedback=feedback)
    sentence = target_form[1].format(**fields)
    if shape == "score":
        return sentence.strip()
    if template.format in OPENING:
        return sentence + before
    if shape == "score-first":
        return f"{sentence}\n{before.strip()}"
    return before + sentence


def target(feedback: str, score: int) -> str:
    """The answer a judge is trained to give: feedback, its closing sentence, and the verdict.

    The sentence is added unless the feedback ends so. ValueError: the feedback closes with another
    score, or holds the verdict marker already.

    >>> target("The caption names every box.", 5)
    'The caption names every box. So the overall score is 5.\\n[RESULT] 5'

    Source: kaistAI/prometheus-vision sample_train_data.json.
    """
    feedback = feedback.strip()
    if "[RESULT]" in feedback.upper():
        raise ValueError("the feedback already holds a [RESULT] marker: pass the text before it")
    closing = f"So the overall score is {score}."
    if not feedback.endswith(closing):
        if re.search(r"So the overall score is [^.]*\.$", feedback):
            raise ValueError(
                f"the feedback closes with another score than {score}: {feedback[-40:]!r}"
            )
        feedback = f"{feedback} {closing}".lstrip()
    return f"{feedback}\n[RESULT] {score}"
