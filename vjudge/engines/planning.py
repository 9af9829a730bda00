"""What a call is going to compute: prompts as tokens, in blocks whose rows share work, and how many at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from vjudge.engines.attention import ROOM
from vjudge.engines.decoding import Job
from vjudge.engines.engine import Answer
from vjudge.engines.forward import check_length
from vjudge.engines.prefixes import Leaf, in_order
from vjudge.engines.sharing import blocks
from vjudge.engines.stream import Limits
from vjudge.models import VisionLanguageModel
from vjudge.prompts import Prompt

BLOCK = 4  # planned batches' worth of rows that take each other's places
PLANNED = 4 * ROOM  # tokens of an answer that memory is planned for: feedback is seldom longer, its limit much
PASS_TOKENS = {"cpu": 2048, "cuda": 8192}  # of prompts at once; more save nothing on a CPU, and on a GPU by reckoning
GROUPED = {
    "cpu": 128,
    "cuda": 4096,
}  # see `Leaf.read_together`; on a GPU a group costs kernels in each layer (reckoned)


@dataclass(frozen=True)
class Plan:
    """What a call is going to compute.

    Args:
        blocks: prompts in the order in which they are computed; those of a block share work.
        failed: prompts that can't be answered.
        features: the call's images.
        room: how much at once.
        tries: whether the call is long enough to find its batch size by measurement (pace.py), and may.
    """

    blocks: list[list[Job]]
    failed: list[Answer]
    features: Any
    room: Room
    tries: bool = False


@dataclass(frozen=True)
class Room:
    """How much of a call there is room for at once.

    Args:
        model: what computes.
        max_new_tokens: of an answer; 0 for a score pass.
        rows: the most answers at once.
        tokens: the most tokens that the memory holds; None where the number of rows was given.
        ceiling: the most answers at once while sizes are tried, and after a larger one was chosen; None for `rows`.
    """

    model: VisionLanguageModel
    max_new_tokens: int
    rows: int
    tokens: int | None
    ceiling: int | None = None

    def rows_of(self, length: int, *, shared: float = 0.0, answer: int = PLANNED, size: float = 1.0) -> int:
        """How many answers to write at once.

        Args:
            length: tokens that the longest prompt has to itself.
            shared: its part of the tokens that it has with others.
            answer: tokens of an answer to plan for, if it may have so many.
            size: how many times the planned number, as far as the memory holds them.
        """
        if self.tokens is None:
            return self.rows
        length = min(length + min(self.max_new_tokens, answer), self.model.context_length)
        held = self.tokens // (length + int(shared))
        return max(1, min(int(min(self.rows, held) * size), held, max(self.rows, self.ceiling or 0)))

    def limits(self, found: Sequence[Leaf], most: int | None = None, *, size: float = 1.0) -> Limits:
        """How much of a block to compute at once: `size` times what is planned; `most` rows after memory ran out."""
        kind = "cpu" if self.model.device.type == "cpu" else "cuda"
        together = [leaf.read_together(GROUPED[kind]) for leaf in found]
        lengths = [len(leaf.job.ids) - (each.end if each else 0) for leaf, each in zip(found, together, strict=True)]
        held = {prefix for leaf in found for prefix in leaf.path}
        slots = self.rows_of(max(lengths), shared=sum(prefix.end for prefix in held) / len(found), size=size)
        # A score pass is nothing but prompts: there the size of the passes is the batch's.
        tokens = int(PASS_TOKENS[kind] * (1.0 if self.max_new_tokens else size))
        if most is not None:
            slots, tokens = min(slots, most), max(1, tokens * most // slots)
        return Limits(slots, tokens, GROUPED[kind])


def find_jobs(
    model: VisionLanguageModel,
    prompts: Sequence[Prompt],
    images: Sequence[Sequence[Any]],
    features: Any,
    encode: Callable[..., list[int]],
    seeds: Sequence[int],
) -> tuple[list[Job], list[Answer]]:
    """Prompts as tokens, and the failures of those that can't be answered.

    Args:
        prompts, images, seeds: one a row.
        features: takes note of the images.
        encode: turns a prompt into ids.
    """
    jobs, failed = [], []
    names: dict[str, int] = {}
    for index, (prompt, seed) in enumerate(zip(prompts, seeds, strict=True)):
        try:
            sources = images[index]
            if prompt.n_images != len(sources):
                raise ValueError(
                    f"the prompt has {prompt.n_images} image place(s) and the item {len(sources)} image(s)"
                )
            keys = features.register(index, sources)
            written, taken = features.place(prompt, keys)
            ids = np.array(encode(written, image_tokens=taken), dtype=np.int32)
            check_length(model, len(ids), sum(int((ids == token).sum()) for token in model.wordless), answered=True)
            numbers = [-1 - names.setdefault(key, len(names)) for key in keys] if taken else []
            shown = tuple(zip(numbers, taken or (), strict=True))
            jobs.append(Job(index, ids, keys, seed, model.image_token_id, shown))
        except (ValueError, OSError) as error:
            failed.append(Answer(index, failure=str(error)))
    return jobs, failed


def blocks_of(jobs: list[Job], room: Room, *, shares: bool, size: float = 1.0) -> Iterator[list[Job]]:
    """Cut jobs into blocks, the longest prompts first: one that is too long for the memory shows at once.

    Args:
        jobs: whose images fit in the cache together.
        shares: whether rows share prefixes: a block then holds several batches, and all rows of an image where it can.
            Otherwise it is one batch of rows about as long.
        size: of such a batch, as a multiple of the planned one: where sizes are tried, the largest.
    """
    if not jobs:
        return
    if not shares:
        jobs = sorted(jobs, key=lambda job: (-len(job.ids), job.index))
        start = 0
        while start < len(jobs):
            rows = room.rows_of(len(jobs[start].ids), answer=room.max_new_tokens, size=size)
            yield jobs[start : start + rows]
            start += rows
        return
    groups: dict[str, list[Job]] = {}
    for job in jobs:
        groups.setdefault(job.images[0] if job.images else "", []).append(job)
    by_length = sorted(groups.items(), key=lambda entry: -max(len(job.ids) for job in entry[1]))
    line = [job for _, group in by_length for job in in_order(group)]
    numbered: dict[str, list[int]] = {}
    for place, job in enumerate(line):
        numbered.setdefault(job.images[0] if job.images else "", []).append(place)
    for block in blocks(numbered, BLOCK * room.rows_of(len(max(jobs, key=lambda job: len(job.ids)).ids))):
        yield [line[place] for place in block]
