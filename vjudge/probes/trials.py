"""Names that reports still use."""

from vjudge.probes.effects import mean
from vjudge.probes.runs import COMPARED, ORIGINAL, scored

__all__ = ["COMPARED", "ORIGINAL", "mean", "scored"]
