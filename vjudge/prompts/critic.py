"""The wordings of LLaVA-Critic. The slip "answer answers" and the blank at the end of the pointwise one are its own."""

# ruff: noqa: E501
from __future__ import annotations

from vjudge.prompts.conversations import QWEN_1_5
from vjudge.prompts.template import Template

_SOURCE = "lmms-lab/llava-critic-7b README.md (the same text in its model card's quick start)"

_PAIRWISE = """\
Given an image and a corresponding question, please serve as an unbiased and fair judge to evaluate the quality of the answers provided by a Large Multimodal Model (LMM). Determine which answer is better and explain your reasoning with specific details. Your task is provided as follows:
Question: [{instruction}]
The first response: [{response_a}]
The second response: [{response_b}]
ASSISTANT:
"""

_POINTWISE = """\
Given an image and a corresponding question, please serve as an unbiased and fair judge to evaluate the quality of answer answers provided by a Large Multimodal Model (LMM). Score the response out of 100 and explain your reasoning with specific details. Your task is provided as follows:
Question: [{instruction}]
The LMM response: [{response}]
ASSISTANT:
 """  # the last line is one blank

_RUBRIC = """\
Given an image and a corresponding question, please serve as an unbiased and fair judge to evaluate the quality of the answer provided by a Large Multimodal Model (LMM). Score the response strictly by the rubric below and explain your reasoning with specific details. End with a line of the form "Final Score: N", where N is an integer between {lowest} and {highest}. Your task is provided as follows:
Question: [{instruction}]
The LMM response: [{response}]
{reference_section}Rubric: [{criteria}]
{levels}
ASSISTANT:
"""

LLAVA_CRITIC = Template(
    name="llava-critic",
    source=_SOURCE,
    conversation=QWEN_1_5,
    body=_POINTWISE,
    kind="pointwise",
    scale=(0, 100),
    marker="",
    format="llava-critic",
)
LLAVA_CRITIC_PAIR = Template(
    name="llava-critic-pair",
    source=_SOURCE,
    conversation=QWEN_1_5,
    body=_PAIRWISE,
    kind="pairwise",
    marker="",
    format="llava-critic-pair",
)
LLAVA_CRITIC_RUBRIC = Template(
    name="llava-critic-rubric",
    source="ours: LLaVA-Critic publishes no wording with a rubric; built from its pointwise one",
    conversation=QWEN_1_5,
    body=_RUBRIC,
    marker="Final Score:",
    format="final-score",
    reference_section="A reference answer of score {highest}: [{reference_answer}]\n",
)
