"""`python -m vjudge.training CONFIG`: fine-tune by a file, also under `torchrun` or `accelerate launch`.

CONFIG is YAML or JSON with the arguments of `fine_tune`; a collection is a name, or arguments of `load_collection`:

    {base: liuhaotian/llava-v1.5-7b, items: {name: kaist-ai/Perception-Collection, split: train}, out: outputs/mine}
"""

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

import yaml  # type: ignore[import-untyped]

from vjudge.data import load_collection
from vjudge.training.finetune import fine_tune


def main(arguments: Sequence[str] | None = None) -> None:
    """Fine-tune a judge by a configuration file."""
    parser = argparse.ArgumentParser(prog="python -m vjudge.training", description=main.__doc__)
    parser.add_argument("config", type=Path, help="YAML or JSON with the arguments of vjudge.training.fine_tune")
    file = parser.parse_args(arguments).config
    settings = yaml.safe_load(file.read_text(encoding="utf-8"))
    if not isinstance(settings, dict) or not {"base", "items", "out"} <= settings.keys():
        parser.error(f"{file} must give at least base, items and out, in lines such as 'base: tiny'")
    for name in ("items", "validation"):
        if items := settings.get(name):
            options = items if isinstance(items, dict) else {"name": items}
            settings[name] = load_collection(options.pop("name"), **options)
    folder = fine_tune(**settings)
    if os.environ.get("RANK", "0") == "0":
        print(folder)


if __name__ == "__main__":
    main()
