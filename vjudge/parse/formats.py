"""The formats that can be read, as a table: name, pattern, scale, example, source."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from vjudge.parse import readers
from vjudge.parse.reading import Reading


@dataclass(frozen=True)
class Format:
    """One way in which judges write a verdict.

    Args:
        name: its key in `FORMATS`.
        gives: "score", or "choice" between two responses.
        pattern: what is read, for a person.
        scale: lowest and highest score of the format's own; None where the rubric's holds, or where a choice is made
            without numbers.
        example: an answer's verdict in it.
        source: who writes it.
        read: the answer -> what it says (internal).
    """

    name: str
    gives: str
    pattern: str
    scale: tuple[int, int] | None
    example: str
    source: str
    read: Callable[[str, tuple[float, float]], Reading]


FORMATS: dict[str, Format] = {
    format.name: format
    for format in (
        Format(
            "prometheus",
            "score",
            "the number after the last [RESULT]",
            None,
            "The answer is mostly right. So the overall score is 4.\n[RESULT] 4",
            "prometheus-eval/prometheus-vision README.md; prometheus-eval/prometheus-eval parser.py",
            readers.prometheus,
        ),
        Format(
            "prometheus-relative",
            "choice",
            "A, B or tie after the last [RESULT]",
            None,
            "Response A misses the cat, Response B names it. [RESULT] B",
            "Prometheus 2: prometheus-eval/prometheus-eval parser.py; ties are ours",
            readers.relative,
        ),
        Format(
            "llava-critic",
            "score",
            'the number after "Final Score" (or Overall, Total); else after "Score:" or before "out of 100"; else a'
            " first line that is a number",
            (0, 100),
            "The response is accurate but brief.\nFinal Score: 85",
            "LLaVA-Critic-113k pointwise rows (LLaVA-VL/LLaVA-NeXT#461)",
            readers.critic_score,
        ),
        Format(
            "llava-critic-pair",
            "choice",
            "any of better-response, arena, mt-bench and two-scores; two of them must agree",
            (1, 10),
            "The better response: [second].\nReason: it names the number.",
            "LLaVA-Critic-113k pairwise rows",
            readers.critic_pair,
        ),
        Format(
            "better-response",
            "choice",
            '"The better response: [first|second|1|2|A|B]", or a line "Two responses are equally good."',
            None,
            "The better response: [1].",
            "LLaVA-Critic-113k",
            readers.better,
        ),
        Format(
            "arena",
            "choice",
            "[[A>>B]], [[A>B]], [[A=B]], [[B>A]] or [[B>>A]]",
            None,
            "My final verdict is: [[A>>B]]",
            "LLaVA-Critic-113k; WildVision; lmarena/arena-hard-auto",
            readers.arena,
        ),
        Format(
            "two-scores",
            "choice",
            "a first line of two scores, the higher one wins",
            (1, 10),
            "8 6\nAssistant 1 describes the scene in more detail.",
            "LLaVA-Critic-113k; haotian-liu/LLaVA llava/eval (LLaVA-Bench)",
            readers.two_scores,
        ),
        Format(
            "final-score",
            "score",
            'the number after the last "Final Score"',
            None,
            "The caption fits the image.\nFinal Score: 4",
            "UnifiedReward (arXiv 2503.05236), pointwise",
            readers.final_score,
        ),
        Format(
            "unified-reward",
            "choice",
            'a line that begins "Answer 1 is better" or "Answer 2 is better"; "Overall Judgment" binds over it',
            None,
            "Both name the dog, one its colour.\nAnswer 1 is better",
            "UnifiedReward (arXiv 2503.05236), pairwise",
            readers.unified_reward,
        ),
        Format(
            "vl-rewardbench",
            "choice",
            '"Overall Judgment: Answer 1|2 is better"',
            None,
            "1. Accuracy: Answer 1 is better.\nOverall Judgment: Answer 2 is better.",
            "vl-rewardbench/VL_RewardBench",
            readers.vl_rewardbench,
        ),
        Format(
            "think-answer",
            "choice",
            "1 or 2 in <answer>, after </think>",
            None,
            "<think>The first invents a dog.</think><answer>2</answer>",
            "R1-Reward (yfzhang114/r1_reward)",
            readers.think_answer,
        ),
        Format(
            "boxed",
            "choice",
            "1 or 2 in \\boxed{}, after </think> where the judge thinks",
            None,
            "<think>The first invents a dog.</think>\\boxed{2}",
            "LLaVA-Critic-R1 (LLaVA-VL/LLaVA-NeXT#475)",
            readers.boxed,
        ),
        Format(
            "boxed-score",
            "score",
            "the number in \\boxed{}, after </think> where the judge thinks",
            None,
            "<think>One claim is wrong.</think>\\boxed{4}",
            "ours, after LLaVA-Critic-R1's form for pairs",
            readers.boxed_score,
        ),
        Format(
            "mt-bench",
            "choice",
            "[[A]], [[B]], or [[C]] for a tie",
            None,
            "Assistant A reads the sign right. [[A]]",
            "MT-Bench (arXiv 2306.05685); Multimodal RewardBench",
            readers.mt_bench,
        ),
        Format(
            "mt-bench-score",
            "score",
            "the number in [[ ]]",
            (1, 10),
            "It misreads the sign. Rating: [[5]]",
            "MT-Bench (arXiv 2306.05685), single-answer grading",
            readers.mt_bench_score,
        ),
        Format(
            "flow-judge",
            "score",
            "the number in <score>; the feedback in <feedback>",
            None,
            "<feedback>\nOne claim is wrong.\n</feedback>\n<score>\n4\n</score>",
            "flowaicom/Flow-Judge-v0.1",
            readers.flow,
        ),
    )
}
"""What can be read, by name."""
