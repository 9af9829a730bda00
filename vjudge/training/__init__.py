"""Fine-tuning: a base and a rubric collection become a judge.

    folder = vjudge.training.fine_tune("liuhaotian/llava-v1.5-7b", items, out="mine", lora=True)
    judge = vjudge.load_judge(folder)

`launch/` has configurations for accelerate: DDP, FSDP, DeepSpeed. It needs
`pip install 'vjudge[train]'`.
"""

from vjudge.lazy import lazy_getattr

_NAMES = {
    "account": "ablations losses read_log training_log",
    "checks": "check_balance check_leakage",
    "targets": "prompt_and_target",
    "finetune": "fine_tune",
    "recipes": "RECIPES Recipe",
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names.split()}
__all__ = list(_HOMES)
__getattr__, __dir__ = lazy_getattr(__name__, _HOMES), __all__.copy
