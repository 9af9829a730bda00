"""How large a batch is fastest, found while the run's own first rows are computed.

Memory says how large a batch may be, not how large it should be. The first passes of a long call are therefore made at
half the planned size, at the planned one and at twice that, as far as memory goes, and timed. Nothing is computed for
the measurement alone, and nothing twice.
"""

from __future__ import annotations

import math

SIZES = (0.5, 1.0, 2.0)  # of the planned one, in the order in which they are tried: a batch that fills up grows
BETTER = 1.05  # how much faster another size must be than the planned one; less may be chance
LONG = 8  # planned batches in a call from which on the measurement is worth its time


class Pace:
    """Which of a few batch sizes takes least time a token.

    Which pass has which size follows from counting passes and not from the clock, up to the choice itself: a continued
    run that is told the choice computes the batches of the unbroken one, and so the same bits.

    Args:
        tries: whether to try sizes; without, it is the planned one.
        times: passes to time at each size; the fastest counts, because what disturbs a pass only slows it.
        found: what was chosen when the run began, as a multiple of the planned size; None to choose.

    Attributes:
        found: what is chosen; None while sizes are tried.
    """

    def __init__(self, *, tries: bool, times: int, found: float | None = None) -> None:
        self._waiting = [size for size in SIZES for _ in range(times)] if tries else []
        self._least: dict[float, float] = {}  # size -> seconds a token
        self.found = found if tries else 1.0

    @property
    def sizes(self) -> tuple[float, ...]:
        """The sizes that passes may have from now on."""
        return SIZES if self._waiting else (self.size,)

    @property
    def size(self) -> float:
        """The size of the next pass, as a multiple of the planned one."""
        if self._waiting:
            return self._waiting[0]
        return 1.0 if self.found is None else self.found

    def took(self, tokens: int, seconds: float) -> None:
        """Take note of a pass of that size; of no tokens where it was not needed."""
        if not self._waiting:
            return
        size = self._waiting.pop(0)
        if tokens:
            self._least[size] = min(self._least.get(size, math.inf), seconds / tokens)
        if not self._waiting:
            self.settle()

    def settle(self) -> None:
        """End the trial, with what was measured so far."""
        self._waiting = []
        if self.found is None:
            best = min(self._least, key=self._least.__getitem__, default=1.0)
            faster = best in self._least and self._least[best] * BETTER < self._least.get(1.0, 0.0)
            self.found = best if faster else 1.0
