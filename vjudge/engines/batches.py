"""Cut the prompts of a call into batches: in which order, and how many at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from vjudge.engines.engine import Ask, Sources, Wanted, check_images
from vjudge.engines.rows import Request
from vjudge.engines.tokens import Encoder
from vjudge.engines.vision import CallImages
from vjudge.images import Pictures
from vjudge.prompts import Prompt


class LocalEngine(Protocol):
    """What a `Batcher` needs of an engine on this machine."""

    auto: int  # prompts at once under batch_size="auto"
    context_length: int  # the most tokens of a prompt and its answer together
    encoder: Encoder


class Batcher:
    """Cut the prompts of one call into batches of requests.

    A prompt that can't be answered becomes a request with a `failure`.

    Args:
        engine: says how many prompts to compute at once, and encodes them.
        source: the images of the call.
        prompts, images, ask, wanted: as for `Engine.answer`.
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
        # prompts per batch; an engine whose memory runs out sets a smaller number
        self.size = engine.auto if ask.batch_size == "auto" else int(ask.batch_size)
        self.wanted = range(len(prompts)) if wanted is None else wanted
        self.keys: dict[int, tuple[str, ...]] = {}  # prompt -> the keys of its images
        self.failures: dict[int, str] = {}  # prompt -> why its images can't be read
        pictures = Pictures()  # opens each path once
        for index, prompt in enumerate(prompts):
            try:
                check_images(prompt, images[index])
                self.keys[index] = source.keys(list(map(pictures, images[index])))
            except (ValueError, OSError) as error:
                self.failures[index] = str(error)

    def batches(self, *, unbroken: bool) -> Iterator[list[Request]]:
        """Yield the batches that hold at least one wanted prompt.

        The engine may lower `size` between two batches.

        Args:
            unbroken: True cuts all prompts of the call into batches, wanted or not, as if the call
                had never been interrupted, because the last bits of an answer depend on the prompts
                beside it. False leaves out the prompts that are not wanted.
        """
        order = [*self.failures, *self._order()]  # positions of prompts in the call
        if not unbroken:
            order = [index for index in order if index in self.wanted]
        while order:
            batch = order[: self.size]
            order = order[self.size :]
            if any(index in self.wanted for index in batch):
                yield [self.request(index) for index in batch]

    def request(self, index: int) -> Request:
        """Return the request for the prompt at position `index` of the call.

        It holds the tokens of the prompt, the tokens of its scale, and how long the answer may be;
        or nothing but a `failure`, where an image can't be read or the prompt can't be encoded.
        """
        if index in self.failures:
            return Request(index, failure=self.failures[index])
        ask = self.ask
        context = self.engine.context_length
        request = Request(index, keys=self.keys[index])
        try:
            # 1) the tokens; `places`: how many each image takes, None for the encoder's own number
            prompt, places = self.source.place(self.prompts[index], request.keys)
            request.ids, request.scale = self.engine.encoder.row_ids(
                prompt, ask, index, image_tokens=places
            )
            request.n_prompt_tokens = len(request.ids)
            # 2) score and value mode write nothing; a scale is then read right after the prompt
            if ask.mode != "feedback":
                request.answer.finish = "stop"
            if ask.is_score_pass and request.scale:
                request.read_after(request.ids, request.scale)
            # 3) room in the model's context, also for a reading, which is longer than its prompt
            n_tokens = max(len(row.ids) for row in (request, *request.readings))
            if n_tokens >= context:
                raise ValueError(
                    f"the prompt has {n_tokens} tokens, those of images included, and the model's"
                    f" context holds {context}; shorten the item's texts"
                )
        except (ValueError, OSError) as error:
            return Request(index, failure=str(error))
        request.writing.limit = min(ask.max_new_tokens, context - len(request.ids))
        return request

    def _order(self) -> list[int]:
        """Return the positions of the prompts whose images can be read, in the order of computing.

        Prompts with the same images form a group; the group with the longest prompt comes first.
        Within a group the texts are in alphabetical order, so that prompts with a common beginning
        are neighbours. Texts are compared, and not tokens, because no prompt is encoded yet.
        """
        texts = {index: self.prompts[index].text for index in self.keys}
        # The rank of a group is that of its longest prompt.
        ranks: dict[tuple[str, ...], int] = {}
        for index in sorted(texts, key=lambda index: -len(texts[index])):
            ranks.setdefault(self.keys[index], len(ranks))
        return sorted(texts, key=lambda index: (ranks[self.keys[index]], texts[index]))
