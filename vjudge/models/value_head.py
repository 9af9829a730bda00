"""Value heads: a judge that writes nothing and gives one number, such as Skywork-VL-Reward.

Source: TRL's AutoModelForCausalLMWithValueHead, and allenai/reward-bench
rewardbench/models/skyvl.py, which reads `value_head.safetensors` into it and takes the
value at the last token.
"""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors.torch import load_file

VALUE_HEAD = "value_head.safetensors"
PREFIX = "v_head.summary."  # of its weight, shape (1, hidden size), and its bias, (1,)


def load_value_head(folder: Path, hidden_size: int, device: torch.device) -> torch.nn.Linear | None:
    """Read the value head of a folder, in float32; None where there is none.

    Its input is the decoder's last hidden state, after the last norm and before the output weights,
    shape (hidden_size,); its output is the value.

    Raises:
        Exception: of a kind of safetensors' or torch's: a damaged file, other tensors than a
            head's, or another hidden size.
    """
    file = folder / VALUE_HEAD
    if not file.is_file():
        return None
    head = torch.nn.Linear(hidden_size, 1, device=device)
    tensors = load_file(file)
    head.load_state_dict({name.removeprefix(PREFIX): tensors[name] for name in tensors})
    return head.requires_grad_(False)
