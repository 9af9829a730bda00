"""Recognise that memory is short."""

from __future__ import annotations

import torch

SHORTAGES = (
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_ALLOC_FAILED",
    "CUDA error: out of memory",
    "MPS backend out of memory",
    "DefaultCPUAllocator: ",
)
"""What the messages of RuntimeErrors hold that report a shortage; torch has no type for these."""


def is_shortage(error: Exception) -> bool:
    """Tell whether an error says that memory is short, so that fewer rows at once may fit."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return any(name in str(error) for name in SHORTAGES)
