"""How each benchmark is run: its wording, draws, order and decoding, and its own reader of answers.

To add one, add a `Protocol` to `PROTOCOLS`. What a benchmark's code leaves open stands in `open`;
what keeps every run from being official, in `unofficial`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

# What an answer says of the two responses as shown, given which of them people prefer ("a" is the
# first; None where they have none): "a", "b", "tie", or None where it says nothing.
Reader = Callable[[str, str | None], str | None]


@dataclass(frozen=True)
class Protocol:
    """One published way to run a benchmark."""

    source: str  # where it was read
    call: str = "compare"  # the method of `Judge`: "grade", "compare" or "rank"
    template: str | None = None  # the wording; None for the judge's own
    wordings: Mapping[str, str] = field(default_factory=dict)  # by category, in template's place
    quality: str = ""  # the wording of `viescore` that grades a picture by itself
    options: Mapping[str, Any] = field(default_factory=dict)  # of the call
    reader: Reader | None = None  # the benchmark's own; None for the wording's format
    score_reader: Callable[[str], float] | None = None  # the same of scores
    collection: str = ""  # what `load_collection` loads
    n_items: int = 0  # of the whole benchmark
    open: str = ""  # what the published code leaves open
    unofficial: str = ""  # why no run of it is official
    own: tuple[str, ...] = ()  # families whose own wording and decoding are the published ones


def read_overall_judgment(text: str, preferred: str | None) -> str | None:
    """VL-RewardBench's reader, to the letter: any other number than that of the rejected answer
    counts for the preferred one.

    >>> read_overall_judgment("**Overall Judgment:**\\nAnswer 2 is slightly better.", "a")
    'b'

    Source: vl-rewardbench/VL_RewardBench inference_hf.py (process_item).
    """
    pattern = (
        r"(?:Overall Judgment|Therefore)\s*.*\s*-*\s*Answer\s*(\d+)\s*is\s*(?:the\s*)?"
        r"(?:slightly\s*)?better"
    )
    match = re.search(pattern, text.replace("\n", "").replace("*", ""), re.IGNORECASE)
    if match is None:
        return None
    rejected = _other(preferred)
    said = {1: "a", 2: "b"}.get(int(match[1]))
    return rejected if said == rejected else preferred


def read_right_phrase(text: str, preferred: str | None) -> str | None:
    """UnifiedReward's reader, to the letter: right where the right phrase stands anywhere.

    >>> read_right_phrase("Answer 1 is better, or Answer 2 is better.", "b")
    'b'

    Source: CodeGoat24/UnifiedReward benchmark_evaluation/LLaVA_evaluation/
    test_llava_vlrewardbench.py.
    """
    number = 1 if preferred == "a" else 2
    return preferred if f"Answer {number} is better" in text else _other(preferred)


def read_answer_tag(text: str, preferred: str | None) -> str | None:
    """R1-Reward's reader, to the letter: the number between the first tags, else the last 1 or 2.

    A number that is not 1 is the second answer; what is no number counts as wrong.

    >>> read_answer_tag("<think>2?</think><answer> 1 </answer>", "b"), read_answer_tag("So 2.", "b")
    ('a', 'b')

    Source: yfzhang114/r1_reward@3693413 inference/VL-Reward-Bench/r1_reward.py.
    """
    numbers = re.findall(r"<answer>(.*?)</answer>", text, re.DOTALL)[:1]
    if not numbers:
        numbers = re.findall(r"[12]", text)[-1:]
    try:
        return "a" if float(numbers[0]) == 1 else "b"
    except (IndexError, ValueError):
        return _other(preferred)


def read_arena(text: str, preferred: str | None) -> str:
    """WildVision-Bench's reader, to the letter: an answer that can't be read is a tie.

    >>> read_arena("My final verdict is [[B>>A]]", None), read_arena("Neither.", None)
    ('b', 'tie')

    Source: EvolvingLMMs-Lab/lmms-eval@01d6045 wild_vision_bench/utils.py.
    """
    said = set(re.findall(r"\[\[([AB<>=]+)\]\]", text))
    if len(said) == 1:
        text = said.pop()
    signs = {"A>B": "a", "A>>B": "a", "A=B": "tie", "B>A": "b", "B>>A": "b"}
    for sign, verdict in signs.items():
        if sign in text:
            return verdict
    return "tie"


def read_four(text: str, preferred: str | None) -> str | None:
    """GenAI-Bench's reader, to the letter: all from the first to the last brackets of a line.

    >>> read_four("Both fail: [[A=B=Bad]]", None), read_four("[[A>B]] or [[B>A]]", None)
    ('both bad', None)

    Source: TIGER-AI-Lab/GenAI-Bench@f0b0334 inference.py (parse_response).
    """
    signs = {"A>B": "a", "A>>B": "a", "B>A": "b", "B>>A": "b", "A=B": "tie"}
    signs |= {"A=B=Good": "both good", "A=B=Bad": "both bad"}
    match = re.search(r"\[\[(.*)\]\]", text)
    return signs.get(match[1]) if match else None


def read_marked_score(text: str) -> float:
    """MM-JudgeBias's reader, to the letter: the first number behind the last marker, else the last.

    >>> read_marked_score("### Feedback: 2 of 3. ### Score: 7/10"), read_marked_score("So 4, or 5")
    (7.0, 5.0)

    Source: naver-ai/MM-JudgeBias@c8597b2 mm_judgebias/scoring.py.
    """
    number = r"[0-9]+(?:\.[0-9]+)?"
    _, marker, tail = text.rpartition("### Score:")
    numbers = re.findall(number, tail)[:1] if marker else []
    numbers = numbers or re.findall(number, text)[-1:]
    return float(numbers[0]) if numbers else math.nan


def _other(preferred: str | None) -> str | None:
    return {"a": "b", "b": "a"}.get(str(preferred))


_NO_WORDING = "the benchmark's own wording is not part of vjudge"
_GPT_4 = "the judge of the published numbers, gpt-4-0314, is no longer served"

_VL = Protocol(
    "vl-rewardbench/VL_RewardBench@9b10abd prompt.py, inference_hf.py, cal.py",
    template="vl-rewardbench",
    options={
        "samples": 10,
        "orders": "random",
        "temperature": 0.2,
        "top_p": 0.2,
        "max_new_tokens": 2048,
    },
    reader=read_overall_judgment,
    collection="MMInstruction/VL-RewardBench",
    n_items=1250,
    open="the seeds of the orders and of the decoding; its script writes the image behind the text,"
    " and here it stands first",
)
_UNIFIED = replace(
    _VL,
    source="CodeGoat24/UnifiedReward test_llava_vlrewardbench.py",
    template="unified-reward-answers",
    options={"orders": "random", "max_new_tokens": 4096},
    reader=read_right_phrase,
    open="which orders `random.seed(0)` drew there",
)
_CHECKPOINTS = f"{_UNIFIED.open}; the temperature, which is left to the checkpoint: here it is 0"
_DECODING = {"temperature": 0.2, "top_p": 0.4}
_MLLM = Protocol(
    "Dongping-Chen/MLLM-Judge@b55c3c2 scripts/api_benchmark.py; Chen et al., arXiv 2402.04788",
    options={"orders": "one", **_DECODING},
    open="the most tokens of an answer",
    unofficial=_NO_WORDING,
)
_LLAVA = Protocol(
    "haotian-liu/LLaVA@181a2f8 llava/eval/eval_gpt_review_bench.py",
    call="grade",
    template="llava-bench-wild",
    options={"temperature": 0.2, "max_new_tokens": 1024},
    n_items=60,
    open=_GPT_4,
)

PROTOCOLS = {
    "vl-rewardbench": _VL,
    "vl-rewardbench by unified-reward": _UNIFIED,
    "vl-rewardbench by unified-reward-qwen": replace(
        _UNIFIED, source="CodeGoat24/UnifiedReward test_qwen_vlrewardbench.py", open=_CHECKPOINTS
    ),
    "vl-rewardbench by unified-reward-think": replace(
        _UNIFIED,
        source="CodeGoat24/UnifiedReward UnifiedReward-Think test_llava_cot_vl_rewardbench.py",
        template="unified-reward-think",
    ),
    "vl-rewardbench by unified-reward-think-qwen": replace(
        _UNIFIED,
        source="CodeGoat24/UnifiedReward UnifiedReward-Think test_qwen25_cot_vl_rewardbench.py",
        template="unified-reward-think",
        open=_CHECKPOINTS,
    ),
    "vl-rewardbench by unified-reward-think-qwen3vl": replace(
        _UNIFIED,
        source="CodeGoat24/UnifiedReward test_qwen3vl_vlreward_bench.py",
        template="unified-reward-think-qwen3vl",
        open=_CHECKPOINTS,
    ),
    "vl-rewardbench by r1-reward": replace(
        _UNIFIED,
        source="yfzhang114/r1_reward@3693413 inference/VL-Reward-Bench/r1_reward.py",
        template="r1-reward",
        reader=read_answer_tag,
        open="the temperature, which is left to the checkpoint: here it is 0",
        unofficial="the order is drawn at random; the published script always shows the better"
        " response first, so that its number measures the place as well",
    ),
    "multimodal-rewardbench": Protocol(
        "facebookresearch/multimodal_rewardbench@b4b92cd scripts/",
        options={"orders": "one", "max_new_tokens": 1024},
        open="the temperature, which is left to the server",
        unofficial=_NO_WORDING,
    ),
    "mllm-judge-score": replace(
        _MLLM,
        call="grade",
        options=_DECODING,
    ),
    "mllm-judge-pair": _MLLM,
    "mllm-judge-batch": replace(
        _MLLM,
        call="rank",
        options=_DECODING,
        unofficial=f"{_NO_WORDING}; here two answers are compared at a time",
    ),
    "llava-bench-wild": _LLAVA,
    "llava-bench-coco": replace(
        _LLAVA,
        source="haotian-liu/LLaVA@181a2f8 llava/eval/eval_gpt_review_visual.py",
        template="llava-bench-coco",
        n_items=90,
    ),
    "wildvision": Protocol(
        "EvolvingLMMs-Lab/lmms-eval@01d6045 lmms_eval/tasks/wild_vision_bench/utils.py",
        template="wildvision",
        options={"orders": "one", "max_new_tokens": 1024},
        reader=read_arena,
        n_items=500,
        open="the judge is a part of the published numbers: gpt-4o",
    ),
    "visit-bench": Protocol(
        "mlfoundations/VisIT-Bench@45b9bf8 README.md",
        options={"orders": "both"},
        n_items=574,
        open="the decoding",
        unofficial=_NO_WORDING,
    ),
    "genai-bench": Protocol(
        "TIGER-AI-Lab/GenAI-Bench@f0b0334 inference.py",
        wordings={"image_generation": "genai-bench", "image_edition": "genai-bench-edit"},
        options={"orders": "one"},
        reader=read_four,
        n_items=1735 + 919,
        open="the decoding; the votes on videos, a third part, are not judged here",
    ),
    "mmrb2": Protocol(
        "facebookresearch/MMRB2@d0d87ed evaluate/generate_judgements/evaluate.py",
        wordings={
            "image": "mmrb2-image",
            "edit": "mmrb2-edit",
            "interleaved": "mmrb2-interleaved",
            "reasoning": "mmrb2",
        },
        options={"orders": "both", "max_new_tokens": 2000},
        n_items=4000,
        open="the decoding, which is left to a server (a local judge draws at temperature 1); JSON"
        " that is not sound is repaired there, and is no verdict here",
    ),
    "viescore": Protocol(
        "TIGER-AI-Lab/VIEScore@2cbea4e viescore/__init__.py, paper_implementation/run.py",
        call="grade",
        wordings={task: f"viescore-{task}" for task in "t2i tie mie cig sdig msdig sdie".split()},
        quality="viescore-pq",
        options={"max_new_tokens": 1400},
        n_items=4801,
        open="the decoding; answers are asked for up to three times and, where none can be read, a"
        " score is drawn there, and is missing here",
    ),
    "mm-judgebias": Protocol(
        "naver-ai/MM-JudgeBias@c8597b2 mm_judgebias/judge.py",
        call="grade",
        template="mm-judgebias",
        options={"max_new_tokens": 16384},
        score_reader=read_marked_score,
        n_items=2 * 1804,
        open="the decoding, which is left to the server; scores off the scale count there, and are"
        " missing here",
    ),
    "mt-bench": Protocol(
        "lm-sys/FastChat@0283a0b fastchat/llm_judge/",
        options={"orders": "both"},
        open="how persons' votes on one pair are joined: each counts",
        unofficial=f"{_NO_WORDING}; there a choice that only one order gives is a tie",
    ),
    "perception-bench": Protocol(
        "kaistAI/prometheus-vision llava/eval/model_vqa.py",
        call="grade",
        template="prometheus-vision",
        options={"temperature": 1.0, "top_p": 0.9, "max_new_tokens": 1024},
        collection="kaist-ai/Perception-Bench",
        n_items=500,
        open="the set has no responses: those of the model under evaluation are joined first",
    ),
    "feedback-bench": Protocol(
        "prometheus-eval/prometheus evaluation/benchmark/run_absolute_scoring.py;"
        " prometheus-eval/prometheus-eval prometheus_eval/utils.py",
        call="grade",
        collection="prometheus-eval/Feedback-Bench",
        n_items=1000,
        unofficial="each Prometheus has a wording and a decoding of its own, and there are none for"
        " other judges",
        own=("prometheus", "prometheus-2"),
    ),
    "preference-bench": Protocol(
        "prometheus-eval/prometheus-eval libs/prometheus-eval/prometheus_eval/prompts.py",
        template="prometheus-2-relative",
        options={"orders": "one", "temperature": 1.0, "top_p": 0.9, "repetition_penalty": 1.03},
        collection="prometheus-eval/Preference-Bench",
        open="how ties count",
    ),
}
"""By name; "BENCHMARK by FAMILY" is how the authors of a judge ran it on a benchmark."""
