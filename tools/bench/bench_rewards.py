"""What reinforcement does to the embedded models: a policy learns from a judge's rewards, a judge from right
verdicts. Both logs are printed step by step, and their ends are compared. `make bench`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pandas as pd

import vjudge as vj
from vjudge import preference

sys.path.insert(0, str(Path(__file__).parents[2] / "notebooks"))
from scenes_questions import questions_of  # noqa: E402

TRAINING: dict[str, Any] = {
    "freeze": ("tower",),
    "per_device_train_batch_size": 32,  # four questions with eight answers each
    "gradient_accumulation_steps": 1,
    "max_completion_length": 90,
}
SHOWN = ["step", "reward", "reward_std", "completions/mean_length", "completions/clipped_ratio"]


def ends_of(record: dict) -> str:
    """The mean reward of a log's first and last five steps; prints all of it."""
    log = pd.DataFrame(record["log"])[SHOWN]
    print(log.round(3).to_string(index=False))
    return f"{log['reward'][:5].mean():.2f} at first, {log['reward'][-5:].mean():.2f} at last"


def test_a_policy_learns_from_a_judges_rewards(report, tmp_path):
    reward = preference.reward_function(vj.load_judge("tiny"), mode="score")
    options = {"max_steps": 30, "learning_rate": 3e-4, **TRAINING}
    record = preference.grpo(
        "tiny-policy", questions_of("train", 120), reward, tmp_path / "out", **options
    )
    report.add("GRPO, 30 steps of 32 answers: reward by tiny, 1 to 5", ends_of(record), "a rise")
    print(reward.counts)


def test_a_judge_learns_from_right_verdicts(report, tmp_path):
    items = vj.load_collection("scenes", split="train", limit=80)
    reward = preference.verdict_reward("prometheus-vision")
    # it judges these items well already: at temperature 1 nearly all of its verdicts are right
    options = {"max_steps": 20, "learning_rate": 3e-4, "temperature": 1.6, **TRAINING}
    record = preference.grpo("tiny", items, reward, tmp_path / "out", **options)
    report.add("the same of verdicts, 20 steps: reward of tiny, 0 to 1", ends_of(record))
    print(reward.counts)
