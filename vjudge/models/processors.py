"""Load the processor of a chat model, which prepares its images and names their tokens."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

from transformers import PreTrainedConfig

# Without torchvision, transformers 5.17 has no such class under its short name.
from transformers.models.auto.processing_auto import PROCESSOR_MAPPING

from vjudge.models.find import NO_HUB


def load_processor(folder: Path, config: PreTrainedConfig) -> Any:
    """Load a chat model's own processor, based on PIL, without its part for videos.

    The part for videos needs torchvision, and vjudge shows no videos.
    """
    # 1) the processor's class, without the attribute for videos
    kind: Any = PROCESSOR_MAPPING[type(config)]

    class Processor(kind):
        @classmethod
        def get_attributes(cls) -> list[str]:
            """Return the names of the parts that are loaded."""
            return [name for name in kind.get_attributes() if name != "video_processor"]

    Processor.__name__ = kind.__name__  # which transformers compares with the stored name
    # 2) SmolVLM's constructor needs an argument for videos even so
    options: dict[str, Any] = dict(NO_HUB)
    if "video_processor" in inspect.signature(kind.__init__).parameters:
        options["video_processor"] = None
    return Processor.from_pretrained(folder, backend="pil", **options)
