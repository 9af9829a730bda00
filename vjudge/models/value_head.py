"""Value heads: a judge that writes nothing and gives one number, such as Skywork-VL-Reward.

Source: TRL's AutoModelForCausalLMWithValueHead; allenai/reward-bench
rewardbench/models/skyvl.py, which reads `value_head.safetensors` into it and takes the value at the
last token.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from transformers.models.auto.image_processing_auto import AutoImageProcessor

from vjudge.models.files import read_settings
from vjudge.models.find import find_checkpoint, locate

VALUE_HEAD = "value_head.safetensors"
# settings of preprocessor_config.json by which pixels are normalised
PIXELS = ("do_rescale", "rescale_factor", "do_normalize", "image_mean", "image_std")
PREFIX = "v_head.summary."  # of the names of its weight (1, hidden size) and its bias (1,)


def load_value_head(folder: Path, hidden_size: int, device: torch.device) -> torch.nn.Linear | None:
    """Read the value head of a folder, in float32; return None where there is none.

    The head maps the decoder's last hidden state (hidden_size,), after the last norm and before the
    output weights, to the value.

    Raises:
        Exception: a damaged file, tensors that are no head's, or another hidden size. The error is
            safetensors' or torch's own; `load` turns it into a ValueError.
    """
    file = folder / VALUE_HEAD
    if not file.is_file():
        return None
    head = torch.nn.Linear(hidden_size, 1, device=device)
    tensors = load_file(file)
    head.load_state_dict({name.removeprefix(PREFIX): tensors[name] for name in tensors})
    return head.requires_grad_(False)


def classifier(judge: str | Path, out: str | Path) -> Path:
    """Write a judge with a value head as vLLM serves it; the weights are links.

        vllm serve OUT --runner pooling --convert classify

    Args:
        judge: a folder or a hub id with `value_head.safetensors`.
        out: a new folder.

    Returns:
        The folder.

    Raises:
        FileExistsError: `out` exists.
    """
    source = locate(judge)
    out = Path(out).expanduser()
    out.mkdir(parents=True)
    # 1) settings: vLLM takes the usual two classes unless it is told that there is one number
    config = read_settings(source / "config.json") | {"num_labels": 1}
    if "text_config" in config:  # for some architectures vLLM takes the number from here
        config["text_config"]["num_labels"] = 1
    (out / "config.json").write_text(json.dumps(config, indent=1), encoding="utf-8")
    # 2) the head under vLLM's names
    head = {}
    prefix = "score." if find_checkpoint(source).kind == "text" else "language_model.score."
    for name, tensor in load_file(source / VALUE_HEAD).items():
        head[name.replace(PREFIX, prefix)] = tensor
    save_file(head, out / "score.safetensors", {"format": "pt"})
    # 3) how pixels are normalised, in full
    written = {VALUE_HEAD, "config.json"}  # files that get no link, because `out` has its own
    pixels = source / "preprocessor_config.json"
    if pixels.is_file():
        (out / pixels.name).write_text(json.dumps(_normalisation(pixels)), encoding="utf-8")
        written.add(pixels.name)
    # 4) links to the other files, and an index of which file holds which tensor
    file_of_tensor = dict.fromkeys(head, "score.safetensors")
    for file in source.iterdir():
        if file.name in written or file.name.endswith(".index.json"):
            continue
        (out / file.name).symlink_to(file.resolve())
        if file.suffix == ".safetensors":
            with safe_open(file, framework="pt") as tensors:
                file_of_tensor |= dict.fromkeys(tensors.keys(), file.name)
    index = {"metadata": {}, "weight_map": file_of_tensor}
    (out / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")
    return out


def _normalisation(file: Path) -> dict[str, Any]:
    """Return a `preprocessor_config.json` with the settings of `PIXELS` that it leaves out.

    transformers takes those from the class of the image processor. vLLM 0.32 takes them from the
    file alone and, where it names none, gives the model raw bytes, 0 to 255.
    """
    processor = AutoImageProcessor.from_pretrained(
        file.parent, backend="pil", local_files_only=True
    )
    defaults = {name: getattr(processor, name) for name in PIXELS if hasattr(processor, name)}
    return defaults | read_settings(file)
