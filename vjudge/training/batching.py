"""Examples to batches: padding, pictures, the order of an epoch."""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
import torch.utils.data

from vjudge.data import Problem
from vjudge.images import open_image, picture
from vjudge.training.examples import IGNORED, Coder, Example, Examples


class States:
    """What a frozen tower saw of each image, kept in main memory, the longest unused dropped first.

    Args:
        limit_bytes: the most to keep.
    """

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes, self.bytes, self.encoded, self.reused = limit_bytes, 0, 0, 0
        self._kept: OrderedDict[str, torch.Tensor] = OrderedDict()

    def get(self, key: str) -> torch.Tensor | None:
        """An image's states, if they are kept."""
        found = self._kept.get(key)
        if found is not None:
            self._kept.move_to_end(key)
            self.reused += 1
        return found

    def put(self, key: str, states: torch.Tensor) -> None:
        """Keep an image's states."""
        self.encoded += 1
        if key in self._kept or states.nbytes > self.limit_bytes:
            return
        self._kept[key] = states
        self.bytes += states.nbytes
        while self.bytes > self.limit_bytes:
            self.bytes -= self._kept.popitem(last=False)[1].nbytes


class Collator:
    """Make a batch: padded ids, labels, and pictures that are opened now.

    A row whose image fails is left out of its batch and named in it.

    Args:
        coder: of the examples.
        states: of the frozen tower; None where it trains, or where workers make the batches.
        padding: "left" or "right".
        name: row number -> its id, for messages.
    """

    def __init__(self, coder: Coder, *, states: States | None = None, padding: str = "left", name: Any = str) -> None:
        if padding not in ("left", "right"):
            raise ValueError(f'padding={padding!r}: use "left" or "right"')
        tokenizer = coder.model.tokenizer
        self.coder, self.states, self.padding, self.name = coder, states, padding, name
        self.pad = coder.end if tokenizer.pad_token_id is None else int(tokenizer.pad_token_id)

    def __call__(self, examples: Sequence[Example]) -> dict[str, Any]:
        """The batch of examples.

        Returns:
            input_ids, attention_mask, position_ids and labels (rows, tokens), and pictures: for each image in order its
            size, mode and key, and at its first place in the batch its tiles or the tower's states of them. Where rows
            were left out also faults, for the trainer to take out and count: batches may be made ahead, by workers, and
            in several processes.
        """
        rows, pictures, faults = [], [], []
        known: dict[str, dict[str, Any]] = {}
        for example in examples:
            seen = dict(known)  # what a row that is left out showed first is not in the batch
            try:
                shown = [self._picture(source, len(example.images), seen) for source in example.images]
            except (ValueError, OSError) as error:
                faults.append(self._fault(example, str(error)))
                continue
            known = seen
            rows.append((example.ids, example.labels))
            pictures += shown
        if not rows:  # every row failed: a batch without loss
            rows.append(([self.coder.end] * 2, [IGNORED] * 2))
        width = max(len(ids) for ids, _ in rows)
        made = torch.full((3, len(rows), width), 0)
        made[0], made[2] = self.pad, IGNORED
        for place, (ids, labels) in enumerate(rows):
            where = slice(width - len(ids), width) if self.padding == "left" else slice(0, len(ids))
            made[0, place, where] = torch.tensor(ids)
            made[1, place, where] = 1
            made[2, place, where] = torch.tensor(labels)
        ids, mask, labels = made
        positions = (mask.cumsum(1) - 1).clamp(min=0)
        batch = {
            "input_ids": ids,
            "attention_mask": mask,
            "position_ids": positions,
            "labels": labels,
            "pictures": pictures,
        }
        return batch | ({"faults": faults} if faults else {})

    def _picture(self, source: Any, n_images: int, known: dict[str, dict[str, Any]]) -> dict[str, Any]:
        vision = self.coder.vision
        assert vision is not None
        mode = self.coder.mode(n_images)
        key = f"{mode}:{picture(source).key}"
        if key in known:
            return known[key]
        states = self.states.get(key) if self.states is not None else None
        found: dict[str, Any] = {"key": key, "mode": mode, "size": (1, 1)}
        if states is None or self.coder.model.tiled:
            image = open_image(source)
            vision.check(image.size, mode)
            found["size"] = image.size
        known[key] = dict(found)
        return found | ({"tiles": vision.tiles([image], mode)[0]} if states is None else {"states": states})

    def _fault(self, example: Example, why: str) -> Problem:
        what, _, remedy = why.rpartition("; ")
        return Problem(
            example.index, self.name(example.index), "images", what or why, remedy if what else "replace the file"
        )


class Order(torch.utils.data.Sampler[int]):
    """The rows of a whole training in order: epoch after epoch, each drawn by seed and number alone.

    One order for all epochs: a continued training skips what it has seen, and needs to know of no epoch.

    Args:
        examples: with their lengths.
        batch_size: rows of one optimiser step; rows of like length stand in one step, steps in random order.
        steps: how many steps there are; the last of an epoch is filled up from the next.
        seed: of the draws.
        grouped: whether to group by length.
    """

    def __init__(self, examples: Examples, *, batch_size: int, steps: int, seed: int, grouped: bool) -> None:
        self.examples, self.batch_size, self.steps = examples, batch_size, steps
        self.seed, self.grouped = seed, grouped

    def __len__(self) -> int:
        return self.steps * self.batch_size

    def __iter__(self) -> Iterator[int]:
        epochs = itertools.chain.from_iterable(map(self.epoch, itertools.count()))
        return itertools.islice(epochs, len(self))

    def epoch(self, number: int) -> list[int]:
        """Every row once."""
        rng = np.random.default_rng([self.seed, number])
        order = rng.permutation(len(self.examples))
        if self.grouped:
            lengths = np.frombuffer(self.examples.lengths, dtype=np.int32)
            pool = 50 * self.batch_size  # sorted within pools, so that an order is still mostly drawn
            pools = [part[np.argsort(-lengths[part], kind="stable")] for part in _cut(order, pool)]
            steps = [step for part in pools for step in _cut(part, self.batch_size)]
            whole, rest = (
                [s for s in steps if len(s) == self.batch_size],
                [s for s in steps if len(s) < self.batch_size],
            )
            order = np.concatenate([*(whole[i] for i in rng.permutation(len(whole))), *rest])
        return [int(index) for index in order]


def _cut(values: np.ndarray, size: int) -> list[np.ndarray]:
    return [values[start : start + size] for start in range(0, len(values), size)]
