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

from vjudge.names import lazy, public

_NAMES = {
    "ablations": "ABLATIONS ablate over_seeds",
    "checks": "check_balance check_leakage",
    "finetune": "fine_tune",
    "lora": "Lora",
    "recipes": "RECIPES Recipe training_cost",
    "targets": "prompt_and_target",
    "watch": "live_curve read_log",
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names.split()}
__all__ = list(_HOMES)
__getattr__, __dir__ = lazy(__name__, _HOMES), public(__name__)
