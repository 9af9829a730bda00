"""Fine-tuning: a base and a rubric collection become a judge.

    folder = vjudge.training.fine_tune("liuhaotian/llava-v1.5-7b", items, out="outputs/mine", lora=True)
    judge = vjudge.load_judge(folder)

    recipes.py    published trainings, each with its source and what of it is not known; what a training takes
    targets.py    what a judge is to answer, to the letter
    checks.py     no cue but the content, and no test item in the collection
    collate.py    rows -> token ids with the loss on the answer alone -> batches; the order of an epoch
    lora.py       what trains, in full or by adapters, always in float32; how the result is stored
    finetune.py   fine_tune: transformers' Trainer with what it lacks for judges
    watch.py      the log, checkpoints, how far weights moved, the model card
    ablations.py  what each part of the recipe is worth over several seeds, in one table
    launch/       configurations for accelerate: DDP, FSDP, DeepSpeed

A name brings its module when it is first used. Needs `pip install 'vjudge[train]'`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vjudge.names import lazy, public

if TYPE_CHECKING:
    from vjudge.training.ablations import ABLATIONS, ablate, over_seeds
    from vjudge.training.checks import check_balance, check_leakage
    from vjudge.training.finetune import fine_tune
    from vjudge.training.lora import Lora
    from vjudge.training.recipes import RECIPES, Recipe, training_cost
    from vjudge.training.targets import prompt_and_target
    from vjudge.training.watch import live_curve, read_log

__all__ = [
    "ABLATIONS",
    "RECIPES",
    "Lora",
    "Recipe",
    "ablate",
    "check_balance",
    "check_leakage",
    "fine_tune",
    "live_curve",
    "over_seeds",
    "prompt_and_target",
    "read_log",
    "training_cost",
]

_HOMES = {
    "ABLATIONS": "ablations",
    "RECIPES": "recipes",
    "Lora": "lora",
    "Recipe": "recipes",
    "ablate": "ablations",
    "check_balance": "checks",
    "check_leakage": "checks",
    "fine_tune": "finetune",
    "live_curve": "watch",
    "over_seeds": "ablations",
    "prompt_and_target": "targets",
    "read_log": "watch",
    "training_cost": "recipes",
}

__getattr__, __dir__ = lazy(__name__, _HOMES), public(__name__)
