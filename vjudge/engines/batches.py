"""The prompts of a call in batches: in which order, how many at once, behind which prefixes."""

from __future__ import annotations

import os.path
from collections.abc import Iterator, Sequence
from typing import Protocol

from vjudge.engines.engine import Ask, Sources, Wanted, check_images
from vjudge.engines.rows import Prefix, Request, Tokenized
from vjudge.engines.tokens import Encoder
from vjudge.engines.vision import CallImages
from vjudge.images import Pictures
from vjudge.prompts import Prompt

MIN_PREFIX = 8  # tokens; computing a shorter one apart saves nothing


class LocalEngine(Protocol):
    """What batches need of an engine on this machine."""

    auto: int  # prompts at once, where nobody says
    context_length: int  # tokens of a prompt and its answer together
    encoder: Encoder


class Batcher:
    """The prompts of one call, cut into batches of rows.

    A prompt that can't be answered is a row with a `failure`.
    """

    def __init__(
        self,
        engine: LocalEngine,
        source: CallImages,
        prompts: Sequence[Prompt],
        images: Sources,
        ask: Ask,
        *,
        wanted: Wanted = None,
    ) -> None:
        self.engine = engine
        self.source = source
        self.prompts = prompts
        self.ask = ask
        self.size = engine.auto if ask.batch_size == "auto" else int(ask.batch_size)  # of a batch
        self.wanted = range(len(prompts)) if wanted is None else wanted
        self.keys: dict[int, tuple[str, ...]] = {}
        self.failures: dict[int, str] = {}  # of prompts whose images can't be had
        pictures = Pictures()
        for index, prompt in enumerate(prompts):
            try:
                check_images(prompt, images[index])
                self.keys[index] = self.source.keys(list(map(pictures, images[index])))
            except (ValueError, OSError) as error:
                self.failures[index] = str(error)

    def batches(self, *, unbroken: bool) -> Iterator[list[Request]]:
        """The batches that hold any of the wanted prompts, fewer at once where memory ran out.

        `unbroken`: with the other prompts that an unbroken run computes beside them.
        """
        order = [*self.failures, *self._order()]
        if not unbroken:
            order = [index for index in order if index in self.wanted]
        while order:
            block = order[: self.size]
            order = order[self.size :]
            if any(index in self.wanted for index in block):
                yield list(map(self.row, block))

    def row(self, index: int) -> Request:
        """One prompt as tokens."""
        ask = self.ask
        context = self.engine.context_length
        if index in self.failures:
            return Request(index, failure=self.failures[index])
        row = Request(index, keys=self.keys[index])
        try:
            prompt, places = self.source.place(self.prompts[index], row.keys)
            encoder = self.engine.encoder
            row.ids, row.scale = encoder.asked(prompt, ask, index, image_tokens=places)
            row.n_prompt_tokens = len(row.ids)
            if ask.mode != "feedback":
                row.answer.finish = "stop"
            if ask.scores and row.scale:
                row.read_behind(row.ids, row.scale)
            longest = row.readings[-1] if row.readings else row
            n_tokens = len(longest.ids)
            if n_tokens >= context:
                raise ValueError(
                    f"the prompt has {n_tokens} tokens, those of images included, and the model's"
                    f" context holds {context}; shorten the item's texts"
                )
        except (ValueError, OSError) as error:
            return Request(index, failure=str(error))
        row.limit = min(ask.max_new_tokens, context - len(row.ids))
        return row

    def _order(self) -> list[int]:
        """The prompts, those about the same images together, the longest first.

        Nothing is tokenized for it.
        """
        texts = {index: self.prompts[index].text for index in self.keys}
        groups: dict[tuple[str, ...], int] = {}
        for index in sorted(texts, key=lambda index: -len(texts[index])):
            groups.setdefault(self.keys[index], len(groups))
        return sorted(texts, key=lambda index: (groups[self.keys[index]], texts[index]))


def share(rows: Sequence[Tokenized], image_token_id: int | None) -> list[Prefix]:
    """Give rows, sorted by images and text, prefixes that hold all their images.

    A row joins the prefix before it, cut to what they have in common, where that saves more than a
    prefix of its own does; a prefix of its own has all its tokens but the last.

        tokens of rows        prefix     rows   saved by joining     saved by splitting
        a b c d e f | 1       a b c d e f  2    2 x 4 (a b c d,      1 x 6 (a b c d e f,
        a b c d e f | 2                         once for three)      once for two)
        a b c d x y | 3       <- joins
    """
    prefixes: list[Prefix] = []
    newest = Prefix([], (), 0)
    n_sharing = 0  # rows behind the last prefix
    for row in rows:
        n_needed = MIN_PREFIX
        if image_token_id in row.ids:  # up to its last image
            n_needed = max(n_needed, len(row.ids) - row.ids[::-1].index(image_token_id))
        n_common = len(os.path.commonprefix([newest.ids, row.ids[:-1]]))
        saved_if_joined = n_sharing * n_common
        saved_if_split = (n_sharing - 1) * len(newest.ids)
        fits = newest.keys == row.keys and n_common >= n_needed
        if fits and saved_if_joined > saved_if_split:
            newest.ids = row.ids[:n_common]
        else:
            newest = Prefix(row.ids[:-1], row.keys, len(prefixes))
            prefixes.append(newest)
            n_sharing = 0
        n_sharing += 1
        row.prefix = newest
    return prefixes
