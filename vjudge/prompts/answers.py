"""The answer that each prompt template asks for: a judge is trained on it, and examples show it."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from vjudge.prompts.formats import FORMATS

if TYPE_CHECKING:
    from vjudge.prompts.template import Template

ANSWER_FORMS = {"r1-reward": "<think>{feedback}</think>|<answer>{number}</answer>"}
"""Template name -> the form of its answers, where it is not that of its format (`Format.answer`).

"|" divides a form into its feedback and its verdict, in their order.
"""
ORDINALS = {"a": ("1", "first"), "b": ("2", "second")}
"""Response -> the number and the ordinal by which answers name it."""


def answer_text(
    template: Template, feedback: str, verdict: int | str, shape: str = "feedback"
) -> str:
    """Write an answer in the form that a prompt template asks for.

    Args:
        template: the prompt template.
        feedback: the text before or after the verdict.
        verdict: a whole score; for a comparison the better response, "a" or "b".
        shape: "feedback" for feedback and verdict in the form's own order, "score" for the verdict
            alone, "score-first" for the verdict before its feedback.

    Raises:
        ValueError: the form of the template's answers is unknown, or `target` refuses the feedback.
    """
    # 1) a JSON object, or the form of the template or of its format
    if template.is_json:
        cell = {"choice": str(verdict).upper()} if template.compares else {"score": verdict}
        text = {"feedback": feedback}
        shapes = {"feedback": text | cell, "score": cell, "score-first": cell | text}
        return json.dumps(shapes[shape], ensure_ascii=False)
    form = ANSWER_FORMS.get(template.name, FORMATS[template.format].answer)
    if not form:
        raise ValueError(
            f"template: the answers of {template.name!r} have no known form; give rows with prompt"
            " and target"
        )
    if template.format == "prometheus" and shape == "feedback":  # adds a closing sentence
        return target(feedback, int(verdict))

    # 2) fill both halves of the form: "{feedback}\n|[RESULT] {verdict}" ends with the verdict,
    #    "Score: {verdict}\n|{feedback}" begins with it
    fields = {"feedback": feedback, "verdict": verdict}
    if template.compares:
        number, ordinal = ORDINALS[str(verdict)]
        fields |= {"verdict": str(verdict).upper(), "number": number, "ordinal": ordinal}
    opening, _, ending = form.partition("|")
    verdict_leads = "{feedback}" in ending
    opening = opening.format(**fields)
    ending = ending.format(**fields)
    sentence = opening if verdict_leads else ending  # the half with the verdict
    # 3) put them together
    if shape == "score":
        return sentence.strip()
    if shape == "score-first" and not verdict_leads:
        return f"{sentence}\n{opening.strip()}"
    return opening + ending


def target(feedback: str, score: int) -> str:
    """Build the answer a Prometheus judge is trained on: feedback, a closing sentence, the verdict.

    The closing sentence is added unless the feedback ends with it already.

    >>> target("The caption names every box.", 5)
    'The caption names every box. So the overall score is 5.\\n[RESULT] 5'

    Raises:
        ValueError: the feedback closes with a different score, or holds the verdict marker already.

    Source: kaistAI/prometheus-vision sample_train_data.json.
    """
    feedback = feedback.strip()
    if "[RESULT]" in feedback.upper():
        raise ValueError("the feedback already holds a [RESULT] marker: pass the text before it")
    closing = f"So the overall score is {score}."
    if not feedback.endswith(closing):
        # A last sentence of this beginning has another score, such as "4.5.", or another form
        if re.search(r"\bso the overall score is (?:[^.]|\.\d)*\.?$", feedback, re.IGNORECASE):
            raise ValueError(
                f"the feedback closes with another score than {score}, or otherwise than by"
                f" {closing!r}: {feedback[-40:]!r}"
            )
        feedback = f"{feedback} {closing}".lstrip()
    return f"{feedback}\n[RESULT] {score}"
