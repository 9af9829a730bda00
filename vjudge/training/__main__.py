"""`python -m vjudge.training CONFIG`: fine-tune by a file, also under torchrun and accelerate.

CONFIG is YAML or JSON with the arguments of `fine_tune`; a collection is a name, or arguments of
`load_collection`:

    base: liuhaotian/llava-v1.5-7b
    items: {name: kaist-ai/Perception-Collection, split: train}
    out: outputs/mine
"""

import sys
from pathlib import Path

import yaml  # type: ignore[import-untyped]

from vjudge.data import load_collection
from vjudge.training.finetune import fine_tune


def main(config: str | Path) -> None:
    settings = yaml.safe_load(Path(config).read_text(encoding="utf-8"))
    if not isinstance(settings, dict) or not {"base", "items", "out"} <= settings.keys():
        raise SystemExit(
            f"{config} must give at least base, items and out, in lines such as 'base: tiny'"
        )
    for name in ("items", "validation"):
        if name in settings:
            options = settings[name]
            if not isinstance(options, dict):
                options = {"name": options}
            settings[name] = load_collection(options.pop("name"), **options)
    fine_tune(**settings)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit("usage: python -m vjudge.training CONFIG")
    main(sys.argv[1])
