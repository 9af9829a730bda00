"""The judges' own prompt templates, to the letter, each with its source. Rendering only: no model, no parsing.

A judge was trained on one exact wording, so a template here is a wire format. Three wordings of absolute grading
exist in print:

- "prometheus-vision", the default: the published training and evaluation samples of Prometheus-Vision.
- "prometheus-vision-readme": its README, which mentions the image and puts the criteria in brackets.
- "prometheus": text Prometheus, in Llama-2's conversation; its judge reads no image.

Text that comes from data is never scanned for markup. A prompt is a tuple of plain strings and the sentinel `IMAGE`;
only the sentinel stands for an image, so a response that says "<image>" or "</s>" stays text. An engine must encode
the strings with special tokens switched off.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import asdict, dataclass
from enum import Enum

from vjudge.records import Item


class _Mark(Enum):
    """Things in a prompt that are not text. An enum, so that a copy or a pickle is still the same object."""

    IMAGE = "<image>"

    def __repr__(self) -> str:
        return self.name


IMAGE = _Mark.IMAGE
"""Stands for one image inside a `Prompt`; the n-th one is the item's n-th image."""


@dataclass(frozen=True)
class Prompt:
    """What goes to an engine: strings, and `IMAGE` where an image belongs.

    Args:
        parts: in reading order; strings are literal text, without any special token.
    """

    parts: tuple[str | _Mark, ...]

    @property
    def text(self) -> str:
        """The prompt for a reader, with "<image>" where an image stands. Not for tokenizing: data may say "<image>"."""
        return "".join(part if isinstance(part, str) else part.value for part in self.parts)

    @property
    def n_images(self) -> int:
        """How many images the prompt expects."""
        return sum(part is IMAGE for part in self.parts)

    def append(self, text: str) -> Prompt:
        """The same prompt with literal text at its end, for example a template's `forced`."""
        *head, last = self.parts or ("",)
        return Prompt((*head, last + text) if isinstance(last, str) else (*head, last, text))


@dataclass(frozen=True)
class Conversation:
    """The words around one user turn, up to where the judge's reply starts.

    Args:
        name: its name in the original code.
        opening: system message and the user's role, up to the image or the prompt.
        closing: from the end of the prompt to the reply, without the space that separates the reply.
    """

    name: str
    opening: str
    closing: str


@dataclass(frozen=True)
class Template:
    """One family's wording of a judging task.

    Args:
        name: its key in `TEMPLATES`.
        source: where the wording is published.
        conversation: the words around the user turn.
        body: the wording, with the fields {reference_clause}, {lowest}, {highest}, {instruction}, {response},
            {reference_section}, {criteria} and {levels}.
        sees_images: whether the judge reads images; a text-only judge's prompt holds none.
        marker: what the judge writes before its verdict.
        format: how `vjudge.parse.parse` reads the answer.
    """

    name: str
    source: str
    conversation: Conversation
    body: str
    sees_images: bool = True
    marker: str = "[RESULT]"
    format: str = "prometheus"

    @property
    def forced(self) -> str:
        """What score mode appends to a prompt so that the next thing the judge writes is `score_text(score)`."""
        return f" {self.marker}"

    def score_text(self, score: int) -> str:
        """A score as the judge writes it right after `marker`, for example " 4"."""
        return f" {score}"

    def render(self, item: Item) -> Prompt:
        """Fill the template for one item; item texts go in as they are, not stripped, escaped or scanned.

        An item without a reference answer has no "###Reference Answer" section and no mention of it in the first
        sentence. Prometheus 2's own template without reference does the same; Prometheus-Vision publishes none, so
        there it is our choice. "Score 5" and "between 1 and 5" follow the rubric's scale, also our choice, because the
        prompt would otherwise contradict the rubric: on a five-level rubric from 1 the published wording comes out.

        Args:
            item: one image in it gives one `IMAGE` and a line feed before the text, as the original does.

        Returns:
            A prompt that ends where the judge's reply starts; the reply is separated by one space.

        Source: prometheus-eval/prometheus-eval libs/prometheus-eval/prometheus_eval/prompts.py
        (ABSOLUTE_PROMPT_WO_REF) for the absent reference.
        """
        rubric = item.rubric
        referenced = bool(item.reference_answer and item.reference_answer.strip())
        body = self.body.format(
            reference_clause=f", a reference answer that gets a score of {rubric.highest}" if referenced else "",
            lowest=rubric.lowest,
            highest=rubric.highest,
            instruction=item.instruction,
            response=item.response,
            reference_section=f"###Reference Answer (Score {rubric.highest}):\n{item.reference_answer}\n\n"
            if referenced
            else "",
            criteria=rubric.criteria,
            levels="\n".join(
                f"Score {score}: {description}"
                for score, description in zip(rubric.scores, rubric.descriptions, strict=True)
            ),
        )
        prompt = Prompt((self.conversation.opening,))
        for _ in item.images if self.sees_images else ():
            prompt = Prompt((*prompt.parts, IMAGE)).append("\n")
        return prompt.append(body + self.conversation.closing)

    def fingerprint(self) -> str:
        """SHA-256 (hex) over everything that shapes a prompt; a run records it."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()


def target(feedback: str, score: int) -> str:
    """The answer a judge is trained to give: the feedback, its closing sentence, and the verdict.

    Args:
        feedback: the feedback; its closing "So the overall score is N." is added unless it already ends so.
        score: a score of the rubric.

    Returns:
        "{feedback} So the overall score is {score}.\\n[RESULT] {score}"

    Raises:
        ValueError: the feedback closes with another score, or holds the verdict marker already.

    Source: kaistAI/prometheus-vision sample_train_data.json.
    """
    feedback = feedback.strip()
    if "[RESULT]" in feedback.upper():
        raise ValueError("the feedback already holds a [RESULT] marker: pass the text before it")
    closing = f"So the overall score is {score}."
    if not feedback.endswith(closing):
        if re.search(r"So the overall score is [^.]*\.$", feedback):
            raise ValueError(f"the feedback closes with another score than {score}: {feedback[-40:]!r}")
        feedback = f"{feedback} {closing}".lstrip()
    return f"{feedback}\n[RESULT] {score}"


VICUNA_V1 = Conversation(
    name="vicuna_v1",
    opening="A chat between a curious user and an artificial intelligence assistant. "
    "The assistant gives helpful, detailed, and polite answers to the user's questions. USER: ",
    closing=" ASSISTANT:",
)
"""Source: kaistAI/prometheus-vision llava/conversation.py (conv_vicuna_v1)."""

LLAMA_2 = Conversation(
    name="llama-2",
    opening="[INST] <<SYS>>\nYou are a fair evaluator language model.\n<</SYS>>\n\n",
    closing=" [/INST]",
)
"""Source: prometheus-eval/prometheus evaluation/benchmark/run_absolute_scoring.py, with FastChat's "llama-2"."""

_VISION = """\
###Task Description:
An instruction (might include an Input inside it), a response to evaluate{reference_clause}, and a score rubric representing an evaluation criterion is given.
1. Write a detailed feedback that assesses the quality of the response strictly based on the given score rubric, not evaluating in general.
2. After writing a feedback, write a score that is an integer between {lowest} and {highest}. You should refer to the score rubric.
3. The output format should look as follows: Feedback: (write a feedback for criteria) [RESULT] (an integer number between {lowest} and {highest})
4. Please do not generate any other opening, closing, and explanations.

###The instruction to evaluate:
{instruction}

###Response to evaluate:
{response}

{reference_section}###Score Rubrics:
{criteria}
{levels}

###Feedback:"""  # noqa: E501

_VISION_README = """\
###Task Description:
An instruction (might include an Input inside it), a response to evaluate{reference_clause}, image and a score rubric representing an evaluation criterion is given.
1. Write a detailed feedback that assesses the quality of the response strictly based on the given score rubric, not evaluating in general.
2. After writing a feedback, write a score that is an integer between {lowest} and {highest}. You should refer to the score rubric.
3. The output format should look as follows: Feedback: (write a feedback for criteria) [RESULT] (an integer number between {lowest} and {highest})
4. Please do not generate any other opening, closing, and explanations.

###The instruction to evaluate:
{instruction}

###Response to evaluate:
{response}

{reference_section}###Score Rubrics:
[{criteria}]
{levels}

###Feedback:"""  # noqa: E501

_TEXT = """\
###Task Description:
An instruction (might include an Input inside it), a response to evaluate{reference_clause}, and a score rubric representing a evaluation criteria are given.
1. Write a detailed feedback that assess the quality of the response strictly based on the given score rubric, not evaluating in general.
2. After writing a feedback, write a score that is an integer between {lowest} and {highest}. You should refer to the score rubric.
3. The output format should look as follows: "Feedback: (write a feedback for criteria) [RESULT] (an integer number between {lowest} and {highest})"
4. Please do not generate any other opening, closing, and explanations.

###The instruction to evaluate:
{instruction}

###Response to evaluate:
{response}

{reference_section}###Score Rubrics:
[{criteria}]
{levels}

###Feedback: """  # noqa: E501

TEMPLATES: dict[str, Template] = {
    template.name: template
    for template in (
        Template(
            name="prometheus-vision",
            source="kaistAI/prometheus-vision sample_eval_data.jsonl, sample_train_data.json",
            conversation=VICUNA_V1,
            body=_VISION,
        ),
        Template(
            name="prometheus-vision-readme",
            source="prometheus-eval/prometheus-vision README.md (formerly kaistAI/prometheus-vision)",
            conversation=VICUNA_V1,
            body=_VISION_README,
        ),
        Template(
            name="prometheus",
            source="prometheus-eval/prometheus evaluation/benchmark/data/vicuna_eval.json; "
            "without the stray quote, comma and line feed that end each prompt of that file",
            conversation=LLAMA_2,
            body=_TEXT,
            sees_images=False,
        ),
    )
}
