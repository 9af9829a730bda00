"""The judges' own wordings and conversations, to the letter, each with its source.

The texts stand in `vjudge/assets/prompts`, one file a wording.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from vjudge.prompts.conversation import MESSAGES, Conversation
from vjudge.prompts.template import Template

FOLDER = Path(__file__).parents[1] / "assets" / "prompts"

# --- conversations

_VICUNA = (
    "A chat between a curious user and an artificial intelligence assistant. The assistant gives"
    " helpful, detailed, and polite answers to the user's questions."
)
_EVALUATOR = "You are a fair evaluator language model."
_ASSISTANT = "You are a helpful assistant."
_CHECKER = "You are a helpful and precise assistant for checking the quality of the answer."

VICUNA_V1 = Conversation(
    name="vicuna_v1", opening=f"{_VICUNA} USER: ", closing=" ASSISTANT:", system=_VICUNA
)
"""Source: kaistAI/prometheus-vision llava/conversation.py (conv_vicuna_v1)."""

LLAMA_2 = Conversation(
    name="llama-2",
    opening=f"[INST] <<SYS>>\n{_EVALUATOR}\n<</SYS>>\n\n",
    closing=" [/INST]",
    system=_EVALUATOR,
)
"""Source: prometheus-eval/prometheus evaluation/benchmark/run_absolute_scoring.py, with FastChat's
"llama-2"."""

MISTRAL = Conversation(name="mistral", opening="[INST] ", closing=" [/INST]")
"""It knows no system role. Source: prometheus-eval/prometheus-eval prometheus_eval/judge.py, with
FastChat's "mistral"."""

QWEN_1_5 = Conversation(
    name="qwen_1_5",
    opening=f"<|im_start|>system\n{_ASSISTANT}<|im_end|>\n<|im_start|>user\n",
    closing="<|im_end|>\n<|im_start|>assistant\n",
    controls=("<|im_start|>", "<|im_end|>"),
    reply="",
    system=_ASSISTANT,
)
"""LLaVA-OneVision's. Source: LLaVA-VL/LLaVA-NeXT llava/conversation.py (conv_qwen)."""

CONVERSATIONS = {"llava": VICUNA_V1, "llava_onevision": QWEN_1_5}
"""By architecture: the conversation of a LLaVA checkpoint that brings no chat template."""

# --- wordings

TEMPLATES: dict = {}
"""The wordings by name."""


def _text(name: str) -> str:
    return (FOLDER / f"{name}.txt").read_text(encoding="utf-8")


def _add(name: str, conversation: Conversation, source: str, **fields: Any) -> None:
    """One wording, whose text is the file of its name."""
    fields = {"marker": ""} | fields
    TEMPLATES[name] = Template(name, source, conversation, _text(name), **fields)


# Prometheus-Vision, by its published samples and by its README.
_add(
    "prometheus-vision",
    VICUNA_V1,
    "kaistAI/prometheus-vision sample_eval_data.jsonl, sample_train_data.json",
    marker="[RESULT]",
)
_add(
    "prometheus-vision-readme",
    VICUNA_V1,
    "prometheus-eval/prometheus-vision README.md (formerly kaistAI/prometheus-vision)",
    marker="[RESULT]",
)

# Prometheus and Prometheus 2, which read no images.
_PROMETHEUS_2 = "prometheus-eval/prometheus-eval libs/prometheus-eval/prometheus_eval/prompts.py"
_RELATIVE = {
    "format": "prometheus-relative",
    "reference_clause": ", a reference answer",
    "reference_section": "###Reference Answer:\n{reference_answer}\n\n",
}
_add(
    "prometheus",
    LLAMA_2,
    "prometheus-eval/prometheus evaluation/benchmark/data/vicuna_eval.json; without the stray"
    " quote, comma and line feed that end each prompt of that file",
    marker="[RESULT]",
    sees_images=False,
)
_add(
    "prometheus-2",
    MISTRAL,
    f"{_PROMETHEUS_2} (ABS_SYSTEM_PROMPT, ABSOLUTE_PROMPT, ABSOLUTE_PROMPT_WO_REF,"
    " SCORE_RUBRIC_TEMPLATE)",
    marker="[RESULT]",
    sees_images=False,
)
_add(
    "prometheus-2-relative",
    MISTRAL,
    f"{_PROMETHEUS_2} (REL_SYSTEM_PROMPT, RELATIVE_PROMPT, RELATIVE_PROMPT_WO_REF; the rubric as"
    " load_rubric gives it there: the criteria in brackets, without levels)",
    marker="[RESULT]",
    sees_images=False,
    **_RELATIVE,
)

# LLaVA-Critic. The slip "answer answers" and the blank at the end of the pointwise one are its own.
_CRITIC = "lmms-lab/llava-critic-7b README.md (the same text in its model card's quick start)"
_OUT_OF_100 = {"scale": (0, 100), "format": "llava-critic"}
_add("llava-critic", QWEN_1_5, _CRITIC, **_OUT_OF_100)
_add("llava-critic-pair", QWEN_1_5, _CRITIC, format="llava-critic-pair")
_add(
    "llava-critic-rubric",
    QWEN_1_5,
    "ours: LLaVA-Critic publishes no wording with a rubric; built from its pointwise one",
    marker="Final Score:",
    format="final-score",
    reference_section="A reference answer of score {highest}: [{reference_answer}]\n",
)

# LLaVA-Critic-R1, a Qwen2.5-VL: the published words stand behind the question.
_CRITIC_R1 = (
    "LLaVA-VL/LLaVA-NeXT@df17966 llava-critic-r1/EasyR1/examples/format_prompt/math_format.jinja"
    " behind LLaVA-Critic's question. The code that words its question is not published, so that"
    " this question, without LLaVA-Critic's last line, is our choice"
)
_add("llava-critic-r1", MESSAGES, _CRITIC_R1, scale=(0, 100), format="boxed-score")
_add("llava-critic-r1-pair", MESSAGES, _CRITIC_R1, format="boxed")

# UnifiedReward: LLaVA-OneVision's checkpoints, and Qwen2.5-VL's with a wording of their own.
_UNIFIED = "CodeGoat24/UnifiedReward@ff6f520"
_UNDERSTANDING = f"{_UNIFIED} inference_llava/image_understanding"
_POINTS = {"scale": (0, 100), "marker": "Final Score:", "format": "final-score"}
_add(
    "unified-reward",
    QWEN_1_5,
    f"{_UNDERSTANDING}/point_score_image_understanding.py",
    **_POINTS,
)
_add(
    "unified-reward-pair",
    QWEN_1_5,
    f"{_UNDERSTANDING}/pair_rank_image_understanding.py, which does not read its answers",
    format="llava-critic-pair",
)
_add(
    "unified-reward-answers",
    QWEN_1_5,
    f"{_UNIFIED} benchmark_evaluation/LLaVA_evaluation/test_llava_vlrewardbench.py",
    format="unified-reward",
)
_add(
    "unified-reward-qwen",
    MESSAGES,
    f"{_UNIFIED} inference_qwen/image_understanding/qwen_point_score_image_understanding.py",
    **_POINTS,
)
_add(
    "unified-reward-think",
    QWEN_1_5,
    f"{_UNIFIED} UnifiedReward-Think/inference_llava/image_understanding/"
    "infer_cot_image_understanding.py",
    format="think-answer",
)
_add(
    "unified-reward-think-qwen3vl",
    MESSAGES,
    f"{_UNIFIED} UnifiedReward-Think/benchmark_evaluation/vLLM_qwen3_evaluation/"
    "test_qwen3vl_vlreward_bench.py",
    format="think-answer",
)

_add(
    "r1-reward",
    MESSAGES,
    "yfzhang114/r1_reward@3693413 inference/VL-Reward-Bench/r1_reward.py",
    format="think-answer",
)

# A value head reads the conversation itself: the response is the assistant's turn.
_add(
    "skywork-vl-reward",
    MESSAGES,
    "Skywork/Skywork-VL-Reward-7B README.md; allenai/reward-bench@218337c"
    " rewardbench/models/skyvl.py",
    reply="{response}",
)

# Ours, for chat models that were not trained to judge; the checkpoint's chat template goes around
# them. What real models obey is measured by tools/contact.
_CHAT = {
    "unread": "close",
    "reference_section": "Reference answer of score {highest}: {reference_answer}\n\n",
}
_CHAT_PAIRS = {
    "unread": "close",
    "reference_section": "Reference answer: {reference_answer}\n\n",
}
_add("chat", MESSAGES, "ours", marker="The final score is", format="score", **_CHAT)
_add(
    "chat-relative",
    MESSAGES,
    "ours",
    marker="The better answer is",
    format="better-response",
    **_CHAT_PAIRS,
)
_add("chat-json", MESSAGES, "ours", marker='"score":', format="json", **_CHAT)
_add(
    "chat-json-pairs",
    MESSAGES,
    "ours",
    marker='"choice":',
    format="json-choice",
    **_CHAT_PAIRS,
)

# Benchmarks' own protocols. The judge of LLaVA-Bench is a language model that reads captions in the
# picture's place.
_RULES = "haotian-liu/LLaVA@181a2f8 llava/eval/table/rule.json"
_LMMS = "EvolvingLMMs-Lab/lmms-eval"
_ASKED_BY = (
    ". LLaVA-Critic's paper (arXiv 2410.02712) evaluates it on this benchmark; its own code is not"
    " published, so whether it asked in exactly these words, and where the image stood, is not"
    " known"
)
_CAPTIONS = replace(MESSAGES, system=_CHECKER)
_TWO_SCORES = {"scale": (1, 10), "format": "reference-scores"}
_add(
    "llava-bench-wild",
    _CAPTIONS,
    f"{_RULES} (llava_bench_conv, _detail and _complex, which are one text), put together as by"
    " llava/eval/eval_gpt_review_bench.py. That script writes a line feed between every two"
    " characters of a context that is one text, as published ones are; here it stays as it is, as"
    " in lmms-eval",
    sees_images=False,
    **_TWO_SCORES,
)
_add(
    "llava-bench-coco",
    _CAPTIONS,
    f"{_RULES} (conv, detail and complex, which are one text), put together as by"
    " llava/eval/eval_gpt_review_visual.py",
    sees_images=False,
    **_TWO_SCORES,
)
_add(
    "llava-wilder",
    QWEN_1_5,
    f"{_LMMS}@0529eb4 lmms_eval/tasks/llava_wilder/utils.py{_ASKED_BY}",
    **_TWO_SCORES,
)
_add(
    "detailed-caption",
    QWEN_1_5,
    f"{_LMMS}@0ad7b14 lmms_eval/tasks/internal_eval/dc100_en_utils.py (ImageDC){_ASKED_BY}",
    **_OUT_OF_100,
)
_ARENA = _text("wildvision.system")
_add(
    "wildvision",
    replace(QWEN_1_5, opening=QWEN_1_5.opening.replace(_ASSISTANT, _ARENA), system=_ARENA),
    f"{_LMMS}@01d6045 lmms_eval/tasks/wild_vision_bench/utils.py{_ASKED_BY}",
    format="arena",
)
_add(
    "vl-rewardbench",
    MESSAGES,
    "vl-rewardbench/VL_RewardBench@9b10abd prompt.py, inference_hf.py",
    format="vl-rewardbench",
)
_add(
    "mmrb2",
    MESSAGES,
    "facebookresearch/MMRB2@1a09882 evaluate/generate_judgements/evaluator_apis/llm_judges/"
    "evaluation_prompts.py (get_reasoning_prompt), api_pairwise_evaluator.py. There each part is a"
    " message part of its own, with the image where it stands in the task; here they are one text",
    format="json-choice",
)
