"""Load low-rank adapters (LoRA) on their base, as `peft` stores them."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vjudge.models.files import ADAPTER_FILE, fingerprint, library_errors, read_settings
from vjudge.models.find import folder_of

if TYPE_CHECKING:
    from vjudge.models.load import VisionLanguageModel


def base_of(name_or_path: str | Path) -> str | None:
    """Return the name or path of the base of a folder of adapters; None for anything else."""
    file = folder_of(name_or_path) / ADAPTER_FILE
    if not file.is_file():
        return None
    return str(read_settings(file)["base_model_name_or_path"])


def with_adapters(base: VisionLanguageModel, name_or_path: str | Path) -> VisionLanguageModel:
    """Return a loaded base with the adapters of a folder put on it, unmerged.

    Args:
        base: the model that the adapters were trained on; its network is changed.
        name_or_path: the folder of the adapters.

    Raises:
        ValueError: the adapters do not fit the base, or can't be read.
    """
    folder = folder_of(name_or_path)
    sources = (base.path, *base.sources)
    checkpoint = fingerprint(folder, *sources)  # before the weights are read
    with library_errors(str(folder), folder), warnings.catch_warnings():
        import peft

        # 1) peft only warns of an adapter that the configuration names and the file lacks; here
        # that is an error
        warnings.filterwarnings("error", message=".*missing adapter keys")
        wrapped: Any = peft.PeftModel.from_pretrained(base.model, folder, local_files_only=True)
        # 2) peft passes over an adapter in the file that the configuration does not name; here that
        # is an error, too
        stored = peft.load_peft_weights(folder, device="cpu", local_files_only=True)
        unused = set(stored) - set(peft.get_peft_model_state_dict(wrapped))
        if unused:
            raise ValueError(
                f"judge {str(folder)!r}: {len(unused)} of {len(stored)} adapter weights have no"
                f" module in the base by its {ADAPTER_FILE}, such as {min(unused)}; correct its"
                " target_modules"
            )
    wrapped.requires_grad_(False)
    return replace(
        base,
        name=str(name_or_path),
        path=folder,
        model=wrapped.base_model.model.eval(),
        sources=sources,
        checkpoint=checkpoint,
    )
