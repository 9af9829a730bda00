"""`python -m vjudge.training CONFIG`: fine-tune by a file, also under `torchrun` or `accelerate launch`.

CONFIG is YAML or JSON with the arguments of `fine_tune`; a collection is a name, or arguments of `load_collection`:

    base: liuhaotian/llava-v1.5-7b
    items: {name: kaist-ai/Perception-Collection, split: train}
    out: outputs/mine
    lora: {rank: 128}
"""

from __future__ import annotations

import argparse
import inspect
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

from vjudge.data import load_collection
from vjudge.training.finetune import fine_tune
from vjudge.training.recipes import Recipe


def read_config(file: Path) -> dict[str, Any]:
    """The arguments of `fine_tune` that a file gives, collections still by name, or ValueError."""
    settings = yaml.safe_load(file.read_text(encoding="utf-8"))
    if not isinstance(settings, Mapping):
        raise ValueError(f"{file} holds no settings; write lines such as 'base: tiny'")
    names = ({*inspect.signature(fine_tune).parameters} - {"changes", "on_log"}) | set(Recipe.__dataclass_fields__)
    if wrong := sorted(set(settings) - names):
        raise ValueError(f"{file}: {', '.join(wrong)} is no setting of fine_tune; use {', '.join(sorted(names))}")
    if missing := [name for name in ("base", "items", "out") if name not in settings]:
        raise ValueError(f"{file}: {', '.join(missing)} must be given")
    return dict(settings)


def main(arguments: Sequence[str] | None = None) -> None:
    """Fine-tune a judge by a configuration file."""
    parser = argparse.ArgumentParser(prog="python -m vjudge.training", description=main.__doc__)
    parser.add_argument("config", type=Path, help="YAML or JSON with the arguments of vjudge.training.fine_tune")
    settings = read_config(parser.parse_args(arguments).config)
    for name in ("items", "validation"):
        if items := settings.get(name):
            options = dict(items) if isinstance(items, Mapping) else {"name": items}
            settings[name] = load_collection(options.pop("name"), **options)
    folder = fine_tune(**settings)
    if os.environ.get("RANK", "0") == "0":
        print(folder)


if __name__ == "__main__":
    main()
