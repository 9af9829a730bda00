"""TRL's DPO trainer, whose checkpoints a later call goes on from.

transformers saves LLaVA's weights under the names of its older classes, and its trainer then finds none of them when it
resumes: it warns, and goes on with the optimiser of one training and the weights of another. So a checkpoint here holds
the weights that train under the network's own names, and one with other names is refused. Adapters are PEFT's to save.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import trl

from vjudge.training.running import save_weights


class PairTrainer(trl.DPOTrainer):
    """`trl.DPOTrainer` with checkpoints as above; its arguments are TRL's."""

    def _save(self, output_dir: str | None = None, state_dict: dict[str, Any] | None = None) -> None:
        network: Any = self.accelerator.unwrap_model(self.model)
        if hasattr(network, "peft_config"):
            super()._save(output_dir, state_dict)
        elif self.args.should_save:
            folder = Path(output_dir or str(self.args.output_dir))
            folder.mkdir(parents=True, exist_ok=True)
            save_weights(network, folder / "model.safetensors", {"format": "pt"}, state_dict)

    def _issue_warnings_after_load(self, load_result: Any) -> None:
        if load_result.unexpected_keys:
            raise ValueError(f"the checkpoint is of another model: it has {load_result.unexpected_keys[:3]}")
