"""Fine-tuning: a base and a rubric collection become a judge.

    folder = vjudge.training.fine_tune("liuhaotian/llava-v1.5-7b", items, out="outputs/mine", lora=True)
    judge = vjudge.load_judge(folder)

    recipes.py    published trainings, each with its source and what of it is not known
    targets.py    what a judge is to answer, to the letter
    examples.py   rows as token ids, with the loss on the answer alone
    checks.py     no cue but the content, and no test item in the collection
    batching.py   examples -> batches; the order of an epoch
    network.py    a batch in, the loss out
    adapters.py   what trains, in full or by LoRA; how the result is stored
    running.py    transformers' Trainer with what it lacks for judges; the log
    steps.py      a recipe as transformers' arguments; a bar over the steps
    card.py       the model card
    tuning.py     fine_tune
    curves.py     the log as a table and as a figure that updates
    assembling.py a tower and a language model with a new projector between them
    cost.py       memory and hours of a training, computed beforehand
    ablations.py  what each part of the recipe is worth, in one table
    launch/       configurations for accelerate: DDP, FSDP, DeepSpeed
    tiny/         how the embedded judge was made

A name brings its module when it is first used. Needs `pip install 'vjudge[train]'`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vjudge.names import lazy, public

if TYPE_CHECKING:
    from vjudge.training.ablations import ABLATIONS, ablate
    from vjudge.training.assembling import assemble
    from vjudge.training.checks import check_balance, check_leakage
    from vjudge.training.cost import training_cost
    from vjudge.training.lora import Lora
    from vjudge.training.recipes import RECIPES, Recipe
    from vjudge.training.targets import prompt_and_target
    from vjudge.training.tuning import fine_tune
    from vjudge.training.watch import live_curve, read_log

__all__ = [
    "ABLATIONS",
    "RECIPES",
    "Lora",
    "Recipe",
    "ablate",
    "assemble",
    "check_balance",
    "check_leakage",
    "fine_tune",
    "live_curve",
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
    "assemble": "assembling",
    "check_balance": "checks",
    "check_leakage": "checks",
    "fine_tune": "tuning",
    "live_curve": "watch",
    "prompt_and_target": "targets",
    "read_log": "watch",
    "training_cost": "cost",
}

__getattr__, __dir__ = lazy(__name__, _HOMES), public(__name__)
