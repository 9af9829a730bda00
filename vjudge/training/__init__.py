"""Fine-tuning: a base and a rubric collection become a judge.

    folder = vjudge.training.fine_tune("liuhaotian/llava-v1.5-7b", items, out="mine", lora=True)
    judge = vjudge.load_judge(folder)

`launch/` has configurations for accelerate: DDP, FSDP, DeepSpeed. It needs
`pip install 'vjudge[train]'`.
"""

from vjudge.lazy import lazy_names

_NAMES = {
    "account": "ablations losses read_log training_log",
    "checks": "check_balance check_leakage",
    "targets": "prompt_and_target",
    "finetune": "fine_tune",
    "recipes": "RECIPES Recipe",
}
__getattr__, __dir__, __all__ = lazy_names(__name__, _NAMES)
