"""Preference learning: a judge's scores become preferences, and a policy learns from them.

    policy = preference.load_policy("my-vlm")
    candidates = preference.draw(policy, questions)             # 5 answers each, temperature 0.7, top_p 0.9
    rewards = preference.reward(judge, candidates, by="pairs")  # r_i = sum_k a_ki - sum_l a_il
    pairs = preference.make_pairs(candidates, rewards)          # best against worst
    preference.train("my-vlm", pairs, "outputs/round-1")        # DPO

A name brings its module when it is first used: `import vjudge.preference` loads no torch.
"""

from vjudge import lazy

_NAMES = {
    "dpo": "DpoSettings Round run_rounds train",
    "policy": "DRAWS Policy draw load_policy",
    "rewards": "best_of_n make_pairs repetition reward write_llava_next",
    "truth": "compare_policies mean_of scene_candidates scene_questions score_answers true_score with_true_scores",
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names.split()}
__all__ = list(_HOMES)
__getattr__, __dir__ = lazy(__name__, _HOMES), __all__.copy
