"""TRL's DPO trainer, whose checkpoints a later call goes on from.

transformers saves LLaVA's weights under the names of its older classes, and its trainer then finds none of them when it
resumes: it warns, and goes on with the optimiser of one training and the weights of another. So a checkpoint here holds
the weights that train under the network's own names, and one with other names is refused. Adapters are PEFT's to save.
"""

from __future__ import annotations

from typing import Any

import trl

from vjudge.training.watch import OwnNames


class PairTrainer(OwnNames, trl.DPOTrainer):
    """`trl.DPOTrainer` with checkpoints as above; its arguments are TRL's."""

    def _save(self, output_dir: str | None = None, state_dict: dict[str, Any] | None = None) -> None:
        adapted = hasattr(self.accelerator.unwrap_model(self.model), "peft_config")
        save = trl.DPOTrainer._save if adapted else OwnNames._save
        save(self, output_dir, state_dict)
