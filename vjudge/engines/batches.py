"""Which prompts of a call are computed together, and which beginnings they share.

The batches of a call follow from its images and texts alone, so that a continued run has the bits
of an unbroken one. In a batch, what rows about the same images have in common is a prefix, computed
once.
"""

from __future__ import annotations

import itertools
import math
import os.path
from collections.abc import Collection, Iterator, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch

from vjudge.engines.engine import Ask, Sources, Wanted, Work, check_images
from vjudge.engines.rows import Prefix, Row
from vjudge.engines.vision import images_of
from vjudge.images import Pictures
from vjudge.models import VisionLanguageModel
from vjudge.prompts import Prompt

MAX_ROWS = 320  # of a batch under "auto": more bring nothing
PLANNED = 256  # tokens of an answer that memory is planned for: few are longer
SHORTEST = 8  # tokens: a shorter common beginning is not worth a prefix of its own
CPU_BATCH = 2 << 30  # bytes of a batch on a CPU


class Call:
    """The prompts of one call, cut into batches of rows.

    A prompt that can't be answered is a row with a `failure`.
    """

    def __init__(
        self,
        engine: Any,
        prompts: Sequence[Prompt],
        images: Sources,
        ask: Ask,
        *,
        wanted: Wanted = None,
        image_mode: str | None = None,
    ) -> None:
        self.engine = engine
        self.source: Any = images_of(engine.model, image_mode or engine.image_mode)
        self.prompts = prompts
        self.images = images
        self.ask = ask
        self.work = Work(threads=engine.threads or 0)
        if engine.plain is not None:
            self.work.notes.append(engine.plain)
        self.wanted = {row for row in range(len(prompts)) if wanted is None or row in wanted}
        self.pictures = Pictures()
        self.keys: dict[int, tuple[str, ...]] = {}
        self.failures: dict[int, str] = {}  # of prompts whose images can't be had
        for index in range(len(prompts)):
            try:
                self.keys[index] = self._keys_of(index)
            except (ValueError, OSError) as error:
                self.failures[index] = str(error)

    def batches(self) -> Iterator[list[Row]]:
        """The batches that hold any of the wanted prompts."""
        most = MAX_ROWS
        room = math.inf
        if isinstance(self.ask.batch_size, int):
            most = self.ask.batch_size
        else:
            room = batch_tokens(self.engine.model)
        order = [*self.failures, *self._order()]
        for start in range(0, len(order), most):
            block = order[start : start + most]
            if self.wanted.isdisjoint(block):
                continue
            rows = [self.row(index) for index in block]
            planned = []  # tokens
            for row in rows:
                n_tokens = len(row.ids) + min(row.limit, PLANNED)
                planned.append(n_tokens * max(1, len(row.readings)))
            for part in cut(planned, room):
                if not self.wanted.isdisjoint(block[part]):
                    yield rows[part]

    def row(self, index: int) -> Row:
        """One prompt as tokens."""
        ask = self.ask
        model = self.engine.model
        row = Row(index, seed=ask.seed(index))
        try:
            if index in self.failures:
                raise ValueError(self.failures[index])
            row.keys = self.keys[index]
            prompt, places = self.source.place(self.prompts[index], row.keys)
            ids, row.scale = self.engine.encoder.asked(prompt, ask, index, image_tokens=places)
            n_tokens = len(ids)
            if ask.scores and row.scale is not None:
                n_tokens += len(row.scale.stems[-1])
            check_length(model, n_tokens)
        except (ValueError, OSError) as error:
            return Row(index, failure=str(error))
        row.ids = ids
        row.n_prompt_tokens = len(ids)
        if ask.mode == "feedback":
            row.limit = min(ask.max_new_tokens, model.context_length - len(ids))
            return row
        row.finish = "stop"
        if row.scale is not None:
            row.read_after(ids, row.scale)
        return row

    def _keys_of(self, index: int) -> tuple[str, ...]:
        """The names of a prompt's images, which are read again when they are opened: none stays."""
        check_images(self.prompts[index], self.images[index])
        shown = []
        for number, source in enumerate(self.images[index]):
            look = self.pictures(source)
            again = partial(self._open, index, number)
            shown.append(SimpleNamespace(key=look.key, size=look.size, open=again))
        return self.source.keys(shown)

    def _open(self, index: int, number: int) -> Any:
        return self.pictures(self.images[index][number]).open()

    def _order(self) -> list[int]:
        """The prompts, those about the same images together, the longest first.

        Nothing is tokenized for it.
        """
        texts = {index: self.prompts[index].text for index in self.keys}
        longest: dict[tuple[str, ...], int] = {}
        for index, keys in self.keys.items():
            longest[keys] = max(longest.get(keys, 0), len(texts[index]))

        def place(index: int) -> Any:
            keys = self.keys[index]
            return -longest[keys], keys, texts[index], index

        return sorted(self.keys, key=place)


def check_length(model: VisionLanguageModel, n_tokens: int) -> None:
    """Refuse a prompt that is too long for the tokenizer or for the model's context."""
    limit = min(model.prompt_limit, model.context_length - 1)
    if n_tokens > limit:
        raise ValueError(
            f"the prompt has {n_tokens} tokens, those of images included, and the model's context"
            f" holds {model.context_length}, of which a prompt may take {limit}; shorten the item's"
            " texts"
        )


def share(rows: Sequence[Row], non_text_token_ids: Collection[int]) -> list[Prefix]:
    """Give each row its prefix: what it shares with others about its images, or nearly all."""
    prefixes = []
    for keys, group in itertools.groupby(rows, key=lambda row: row.keys):
        members = list(group)
        least = SHORTEST
        for place, token in enumerate(members[0].ids):
            if token in non_text_token_ids:
                least = max(least, place + 1)  # all images stand in the prefix
        for length, sharers in best_prefixes(members, least):
            prefix = Prefix(sharers[0].ids[:length], keys)
            prefixes.append(prefix)
            for row in sharers:
                row.prefix = prefix
    return prefixes


def best_prefixes(rows: Sequence[Row], least: int) -> list[tuple[int, Sequence[Row]]]:
    """The prefixes, of `least` tokens where rows share one, that save most, with their rows.

    The rows are about the same images, sorted by text. A row by itself has all but its last token
    as its prefix.
    """
    ids = [row.ids for row in rows]
    shortest = min(map(len, ids)) - 1
    if len(rows) == 1:
        return [(shortest, rows)]
    common = min(shortest, len(os.path.commonprefix(ids)))
    # 1) what is saved by a prefix of its own for each way that the rows go on
    parts = [list(part) for _, part in itertools.groupby(rows, key=lambda row: row.ids[common])]
    if len(parts) == 1:
        parts = [[row] for row in rows]
    apart = []
    for part in parts:
        apart += best_prefixes(part, least)
    saved = sum((len(sharers) - 1) * length for length, sharers in apart)
    # 2) against one prefix for all
    if common >= least and (len(rows) - 1) * common > saved:
        return [(common, rows)]
    return apart


def cut(lengths: Sequence[int], most: float) -> list[slice]:
    """Neighbours that are computed together: about `most` tokens, padding included."""
    parts = []
    start = 0
    longest = 0
    for end, length in enumerate(lengths):
        longest = max(longest, length)
        if end > start and (end + 1 - start) * longest > most:
            parts.append(slice(start, end))
            start = end
            longest = length
    return [*parts, slice(start, len(lengths))]


def batch_tokens(model: VisionLanguageModel) -> int:
    """How many tokens a batch may have under "auto".

    2 GiB on a CPU, on GPUs what the weights leave of 80 %: the devices' size and not what is free
    decides, so that the next run plans alike.
    """
    config = model.model.config.get_text_config()
    heads = config.num_attention_heads
    width = getattr(config, "head_dim", None) or config.hidden_size // heads
    heads = getattr(config, "num_key_value_heads", None) or heads
    numbers = 2 * config.num_hidden_layers * heads * width  # keys and values of a token
    numbers += 20 * config.hidden_size  # its activations
    room = CPU_BATCH
    devices = {weight.device for weight in model.model.parameters() if weight.is_cuda}
    if devices:
        sizes = [torch.cuda.get_device_properties(device).total_memory for device in devices]
        room = max(room, int(0.8 * sum(sizes)) - model.model.get_memory_footprint())
    return room // (numbers * model.dtype.itemsize)
