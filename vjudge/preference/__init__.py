"""Preference learning: a judge's scores become preferences, and a policy learns from them.

    policy = vjudge.load_judge("my-vlm")                        # any model
    candidates = preference.draw(policy, questions)             # 5 answers each
    rewards = preference.reward(judge, candidates, by="pairs")  # r_i = sum_k a_ki - sum_l a_il
    pairs = preference.make_pairs(candidates, rewards)          # best against worst
    preference.train("my-vlm", pairs, "outputs/round-1")        # DPO

A name brings its module when it is first used: `import vjudge.preference` loads no torch.
"""

from vjudge.lazy import lazy_names

_NAMES = {
    "candidates": "DRAWS draw prompt_of respond",
    "dpo": "PUBLISHED train",
    "rewards": "best_of_n make_pairs reward",
    "functions": "Reward reward_function verdict_reward",
    "reinforcement": "DEFAULTS grpo",
    "learning": "Round answers_of better_or_liked choosing order_effect overpaid repeats rounds",
}
__getattr__, __dir__, __all__ = lazy_names(__name__, _NAMES)
