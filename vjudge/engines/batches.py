"""The prompts of a call as rows of tokens: in which order, how many, behind which prefixes."""

from __future__ import annotations

import os.path
from collections.abc import Iterator, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

from vjudge.engines.engine import Ask, Sources, Wanted, Work, check_images
from vjudge.engines.rows import Prefix, Row
from vjudge.engines.vision import images_of
from vjudge.images import Pictures
from vjudge.prompts import Prompt

AUTO = 64  # rows of a batch under "auto", until memory runs out
SHORTEST = 8  # tokens: a shorter common beginning is not worth a prefix of its own


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
    ) -> None:
        self.engine = engine
        self.source: Any = images_of(engine.model, engine.image_mode)
        self.prompts = prompts
        self.images = images
        self.ask = ask
        self.size = AUTO if ask.batch_size == "auto" else int(ask.batch_size)  # of a batch
        self.work = Work()
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
        """The batches that hold any of the wanted prompts, fewer at once where memory ran out."""
        order = [*self.failures, *self._order()]
        while order:
            block = order[: self.size]
            order = order[self.size :]
            if not self.wanted.isdisjoint(block):
                yield [self.row(index) for index in block]

    def row(self, index: int) -> Row:
        """One prompt as tokens."""
        ask = self.ask
        model = self.engine.model
        if index in self.failures:
            return Row(index, failure=self.failures[index])
        row = Row(index, keys=self.keys[index], seed=ask.seed(index))
        try:
            prompt, places = self.source.place(self.prompts[index], row.keys)
            row.ids, row.scale = self.engine.encoder.asked(prompt, ask, index, image_tokens=places)
            row.n_prompt_tokens = len(row.ids)
            if ask.mode != "feedback":
                row.finish = "stop"
            if ask.scores and row.scale:
                row.read_after(row.ids, row.scale)
            n_tokens = len((row.readings or [row])[-1].ids)
            if n_tokens >= model.context_length:
                raise ValueError(
                    f"the prompt has {n_tokens} tokens, those of images included, and the model's"
                    f" context holds {model.context_length}; shorten the item's texts"
                )
        except (ValueError, OSError) as error:
            return Row(index, failure=str(error))
        if ask.mode == "feedback":
            row.limit = min(ask.max_new_tokens, model.context_length - len(row.ids))
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
        groups: dict[Any, int] = {}
        for index in sorted(texts, key=lambda index: -len(texts[index])):
            groups.setdefault(self.keys[index], len(groups))
        return sorted(texts, key=lambda index: (groups[self.keys[index]], texts[index]))


def share(rows: Sequence[Row], image_token_id: int | None) -> list[Prefix]:
    """Give rows, sorted by images and text, prefixes that hold all their images.

    A row joins the prefix before it, cut to what they share, where more is saved than lost by it;
    a prefix of its own has all but the last token.
    """
    prefixes: list[Prefix] = []
    last = Prefix([], ())
    sharers = 0
    for row in rows:
        least = SHORTEST
        if image_token_id in row.ids:
            least = max(least, len(row.ids) - row.ids[::-1].index(image_token_id))
        common = len(os.path.commonprefix([last.ids, row.ids[:-1]]))
        worth = sharers * common > (sharers - 1) * len(last.ids)
        if last.keys == row.keys and common >= least and worth:
            last.ids = row.ids[:common]
        else:
            last = Prefix(row.ids[:-1], row.keys)
            prefixes.append(last)
            sharers = 0
        sharers += 1
        row.prefix = last
    return prefixes
