"""What the prompts of a block have in common: a tree of token runs, each to be computed once.

The prompts about one image share it and what stands before it; those about one instruction share that, too. Every run
of tokens that several prompts begin with is a `Prefix`; what a prompt has to itself follows the longest of these.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from vjudge.engines.decoding import Job

SHORTEST = 8  # tokens: a shorter run costs more to keep apart than to compute again


@dataclass(eq=False)
class Prefix:
    """A run of tokens that several prompts share, and which follows its parent's.

    Args:
        parent: the prefix before it; None at the beginning of the prompts.
        start, end: where it stands in each of its prompts.
        rows: how many prompts run through it.
        keys, values: of each layer, its parents' included: (heads, end, width) tensors once they are computed.
        users: prompts that are still to be computed after it, and answers being written that look at it.
    """

    parent: Prefix | None
    start: int
    end: int
    rows: int
    keys: list[Any] = field(default_factory=list)
    values: list[Any] = field(default_factory=list)
    users: int = 0

    @property
    def path(self) -> list[Prefix]:
        """Its parents, from the beginning, and itself."""
        return [*(self.parent.path if self.parent else ()), self]

    def release(self) -> None:
        """A user is done with it; what has none is forgotten."""
        self.users -= 1
        if self.users <= 0:
            self.forget()

    def forget(self) -> None:
        """Drop the keys and values; they are computed again if they are needed again."""
        self.keys, self.values = [], []


@dataclass(eq=False)
class Leaf:
    """A prompt at the end of its prefixes.

    Args:
        job: the prompt.
        prefix: the longest that it shares; None where it shares nothing.
    """

    job: Job
    prefix: Prefix | None

    @property
    def path(self) -> list[Prefix]:
        """Its prefixes, from the beginning."""
        return self.prefix.path if self.prefix else []

    @property
    def start(self) -> int:
        """Where its own tokens begin; it has one at least, from which its answer follows."""
        return self.prefix.end if self.prefix else 0

    def read_together(self, least: int) -> Prefix | None:
        """The prefix that its answer reads together with other answers: that which saves most, if it saves `least`.

        Args:
            least: reads of a token saved at every step, all answers after the prefix together. Answers are put into
                groups by these prefixes, and every group costs time of its own.
        """
        best = max(self.path, key=lambda prefix: (prefix.rows - 1) * prefix.end, default=None)
        return best if best and (best.rows - 1) * best.end >= least else None


def in_order(jobs: Sequence[Job]) -> list[Job]:
    """The jobs so that those with a common beginning stand together."""
    return sorted(jobs, key=lambda job: (job.atoms.tobytes(), job.index))


def leaves(jobs: Sequence[Job]) -> list[Leaf]:
    """Find the prefixes of prompts that stand `in_order`.

    Args:
        jobs: of one block.

    Returns:
        The prompts with their prefixes, in the same order.
    """
    atoms = [job.atoms for job in jobs]
    common = [_common(one, other) for one, other in zip(atoms, atoms[1:], strict=False)]
    found: list[Leaf] = []
    _split(jobs, common, 0, len(jobs), None, found)
    return found


def n_unique(found: Sequence[Leaf]) -> int:
    """How many tokens there are to compute, each shared one counted once."""
    prefixes = {id(prefix): prefix for leaf in found for prefix in leaf.path}
    own = sum(len(leaf.job.ids) - leaf.start for leaf in found)
    return own + sum(prefix.end - prefix.start for prefix in prefixes.values())


def _common(one: np.ndarray, other: np.ndarray) -> int:
    """How many leading tokens two prompts share, short of the last token of either."""
    length = min(len(one), len(other)) - 1
    differ = np.flatnonzero(one[:length] != other[:length])
    return int(differ[0]) if len(differ) else length


def _split(
    jobs: Sequence[Job], common: Sequence[int], low: int, high: int, parent: Prefix | None, found: list[Leaf]
) -> None:
    """Append the leaves of jobs[low:high], which all follow `parent`.

    A prefix of two jobs or more lies between neighbours whose common beginning is longer than the parent by `SHORTEST`.
    """
    start = parent.end if parent else 0
    place = low
    while place < high:
        last = place + 1
        while last < high and common[last - 1] >= start + SHORTEST:
            last += 1
        if last - place == 1:
            found.append(Leaf(jobs[place], parent))
        else:
            prefix = Prefix(parent, start, min(common[place : last - 1]), rows=last - place)
            _split(jobs, common, place, last, prefix, found)
        place = last
