"""The wordings of Prometheus-Vision, Prometheus and Prometheus 2."""

# ruff: noqa: E501
from __future__ import annotations

from vjudge.prompts.conversations import LLAMA_2, MISTRAL, VICUNA_V1
from vjudge.prompts.template import Template

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

###Feedback:"""

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

###Feedback:"""

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

###Feedback: """

_ABSOLUTE_2 = """\
You are a fair judge assistant tasked with providing clear, objective feedback based on specific criteria, ensuring each assessment reflects the absolute standards set for performance.
###Task Description:
An instruction (might include an Input inside it), a response to evaluate{reference_clause}, and a score rubric representing a evaluation criteria are given.
1. Write a detailed feedback that assess the quality of the response strictly based on the given score rubric, not evaluating in general.
2. After writing a feedback, write a score that is an integer between {lowest} and {highest}. You should refer to the score rubric.
3. The output format should look as follows: "(write a feedback for criteria) [RESULT] (an integer number between {lowest} and {highest})"
4. Please do not generate any other opening, closing, and explanations.

###The instruction to evaluate:
{instruction}

###Response to evaluate:
{response}

{reference_section}###Score Rubrics:
[{criteria}]
{levels}

###Feedback: """

_RELATIVE_2 = """\
You are a fair judge assistant assigned to deliver insightful feedback that compares individual performances, highlighting how each stands relative to others within the same cohort.
###Task Description:
An instruction (might include an Input inside it), a response to evaluate{reference_clause}, and a score rubric representing a evaluation criteria are given.
1. Write a detailed feedback that assess the quality of two responses strictly based on the given score rubric, not evaluating in general.
2. After writing a feedback, choose a better response between Response A and Response B. You should refer to the score rubric.
3. The output format should look as follows: "(write a feedback for criteria) [RESULT] (A or B)"
4. Please do not generate any other opening, closing, and explanations.

###Instruction:
{instruction}

###Response A:
{response_a}

###Response B:
{response_b}

{reference_section}###Score Rubric:
[{criteria}]

###Feedback: """

PROMETHEUS_VISION = Template(
    name="prometheus-vision",
    source="kaistAI/prometheus-vision sample_eval_data.jsonl, sample_train_data.json",
    conversation=VICUNA_V1,
    body=_VISION,
)
PROMETHEUS_VISION_README = Template(
    name="prometheus-vision-readme",
    source="prometheus-eval/prometheus-vision README.md (formerly kaistAI/prometheus-vision)",
    conversation=VICUNA_V1,
    body=_VISION_README,
)
PROMETHEUS = Template(
    name="prometheus",
    source="prometheus-eval/prometheus evaluation/benchmark/data/vicuna_eval.json; "
    "without the stray quote, comma and line feed that end each prompt of that file",
    conversation=LLAMA_2,
    body=_TEXT,
    sees_images=False,
)
PROMETHEUS_2 = Template(
    name="prometheus-2",
    source="prometheus-eval/prometheus-eval libs/prometheus-eval/prometheus_eval/prompts.py "
    "(ABS_SYSTEM_PROMPT, ABSOLUTE_PROMPT, ABSOLUTE_PROMPT_WO_REF, SCORE_RUBRIC_TEMPLATE)",
    conversation=MISTRAL,
    body=_ABSOLUTE_2,
    sees_images=False,
)
PROMETHEUS_2_RELATIVE = Template(
    name="prometheus-2-relative",
    source="prometheus-eval/prometheus-eval libs/prometheus-eval/prometheus_eval/prompts.py "
    "(REL_SYSTEM_PROMPT, RELATIVE_PROMPT, RELATIVE_PROMPT_WO_REF; the rubric as load_rubric gives it there: the "
    "criteria in brackets, without levels)",
    conversation=MISTRAL,
    body=_RELATIVE_2,
    kind="relative",
    sees_images=False,
    format="prometheus-relative",
    reference_clause=", a reference answer",
    reference_section="###Reference Answer:\n{reference_answer}\n\n",
)
