"""Preference learning: a judge's scores become preferences, and a policy learns from them.

    policy = preference.load_policy("my-vlm")
    candidates = preference.draw(policy, questions)             # 5 answers each, temperature 0.7, top_p 0.9
    rewards = preference.reward(judge, candidates, by="pairs")  # r_i = sum_k a_ki - sum_l a_il
    pairs = preference.make_pairs(candidates, rewards)          # best against worst
    preference.train("my-vlm", pairs, "outputs/round-1")        # DPO

    policy.py       Policy: an engine and a conversation; its answers are a run
    candidates.py   several answers to each question
    rewards.py      what a judge makes of them: scores, or points over all ordered pairs
    pairs.py        which is preferred to which; what was left out
    formats.py      files for TRL and for LLaVA-NeXT
    batches.py      pairs as the tokens and pixels that the policy answers with
    trainer.py      TRL's trainer, with checkpoints that can be gone on from
    dpo.py          one round of DPO by TRL
    rounds.py       several rounds, each from the last one's policy
    best.py         the best of n answers by a judge, for every n
    hacking.py      whether the judge is pleased and the truth is not
    board.py        a policy under evaluation: its row with an interval
    truth.py        the true score of a free answer about a scene
    tiny.py         a small policy for Scenes, made from the embedded judge

A name brings its module when it is first used: `import vjudge.preference` loads no torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vjudge.names import lazy, public

if TYPE_CHECKING:
    from vjudge.preference.best import best_of_n
    from vjudge.preference.board import evaluate, leaderboard
    from vjudge.preference.candidates import account, draw, gather
    from vjudge.preference.dpo import DpoSettings, log_of, train
    from vjudge.preference.formats import from_trl, read_llava_next, to_trl, unsafe, write_llava_next
    from vjudge.preference.hacking import compare_policies, over_rewarded, phrases_that_grew
    from vjudge.preference.pairs import make_pairs, true_order
    from vjudge.preference.policy import Policy, load_policy
    from vjudge.preference.rewards import by_question, reward
    from vjudge.preference.rounds import Recipe, Round, run_rounds
    from vjudge.preference.truth import scene_candidates, scene_questions, score_answers, true_score, with_true_scores

__all__ = [
    "DpoSettings",
    "Policy",
    "Recipe",
    "Round",
    "account",
    "best_of_n",
    "by_question",
    "compare_policies",
    "draw",
    "evaluate",
    "from_trl",
    "gather",
    "leaderboard",
    "load_policy",
    "log_of",
    "make_pairs",
    "over_rewarded",
    "phrases_that_grew",
    "read_llava_next",
    "reward",
    "run_rounds",
    "scene_candidates",
    "scene_questions",
    "score_answers",
    "to_trl",
    "train",
    "true_order",
    "true_score",
    "unsafe",
    "with_true_scores",
    "write_llava_next",
]

_HOMES = {
    **dict.fromkeys(("DpoSettings", "log_of", "train"), "dpo"),
    **dict.fromkeys(("Policy", "load_policy"), "policy"),
    **dict.fromkeys(("Recipe", "Round", "run_rounds"), "rounds"),
    **dict.fromkeys(("account", "draw", "gather"), "candidates"),
    "best_of_n": "best",
    **dict.fromkeys(("by_question", "reward"), "rewards"),
    **dict.fromkeys(("compare_policies", "over_rewarded", "phrases_that_grew"), "hacking"),
    **dict.fromkeys(("evaluate", "leaderboard"), "board"),
    **dict.fromkeys(("from_trl", "read_llava_next", "to_trl", "unsafe", "write_llava_next"), "formats"),
    **dict.fromkeys(("make_pairs", "true_order"), "pairs"),
    **dict.fromkeys(
        ("scene_candidates", "scene_questions", "score_answers", "true_score", "with_true_scores"), "truth"
    ),
}

__getattr__, __dir__ = lazy(__name__, _HOMES), public(__name__)
