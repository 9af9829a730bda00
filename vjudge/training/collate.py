"""Rows as token ids with the loss on the answer alone; batches of them, with pictures; the order of an epoch."""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.utils.data

from vjudge.data import Problem
from vjudge.engines.tokens import Encoder
from vjudge.engines.vision import vision_of
from vjudge.images import open_image, picture
from vjudge.models import VisionLanguageModel
from vjudge.prompts import Template
from vjudge.training.targets import prompt_and_target

IGNORED = -100  # the label of a token without loss
KEPT_TOKENS = 1 << 24  # ids kept ready between epochs: 64 MB; a larger collection is encoded again when it is read
POOL = 50  # batches within which rows are sorted by length, so that an order is still mostly drawn


@dataclass(frozen=True)
class Example:
    """One row as token ids.

    Args:
        ids: prompt, with a place for each image token, then the answer and its end.
        n_prompt: how many of the ids are the prompt's, without loss.
        images: what `open_image` opens, in order.
        index: the row's place in the collection.
    """

    ids: list[int]
    n_prompt: int
    images: tuple[Any, ...]
    index: int

    @property
    def labels(self) -> list[int]:
        """The ids to predict: the answer's own, `IGNORED` for the prompt's."""
        return [IGNORED] * self.n_prompt + self.ids[self.n_prompt :]


class Coder:
    """Turn rows into ids for one model and one wording.

    Args:
        model: whose vocabulary and image sizes count; its images have to be prepared by this package.
        template: the wording.
        shape: of the answer, see `targets.SHAPES`.
        max_length: the most tokens of an example; None takes the model's own limit.

    Raises:
        ValueError: a chat model that prepares images by its own processor.
    """

    def __init__(
        self, model: VisionLanguageModel, template: Template, *, shape: str = "feedback", max_length: int | None = None
    ) -> None:
        if model.processor is not None:
            raise ValueError(
                f"judge {model.name!r} ({model.model.config.model_type}) prepares images by its own processor, and"
                " fine-tuning here knows LLaVA-1.5, LLaVA-OneVision and text-only models; train it with TRL's"
                " SFTTrainer on rows of vjudge.training.prompt_and_target, then load_judge the result"
            )
        self.model, self.template, self.shape = model, template, shape
        image_token = model.image_token_id
        self.encoder = Encoder(model.tokenizer, image_token_id=image_token, tokens_per_image=model.tokens_per_image)
        self.vision = vision_of(model.model, model.image_processor) if model.sees_images else None
        self.longest = min(model.prompt_limit, model.context_length)
        self.limit = self.longest if max_length is None else min(self.longest, max_length)
        self.end = self.encoder.end(template.conversation)

    @property
    def sees(self) -> bool:
        """Whether images are shown: the model reads them and the wording has a place for them."""
        return self.vision is not None and self.template.sees_images

    def images(self, row: Any) -> tuple[Any, ...]:
        """The images of a row that are shown."""
        return tuple(row.images if hasattr(row, "images") else row.get("images") or ()) if self.sees else ()

    def mode(self, n_images: int) -> str:
        """How the images of a prompt with so many are prepared."""
        return self.vision.default_mode(n_images) if self.vision else ""

    def __call__(self, row: Any, index: int = 0) -> Example:
        """Encode one row.

        Raises:
            ValueError: nothing to train on, an image that can't be opened, or an example that is too long, with its
                length and the limit: an example is never cut.
        """
        prompt, target = prompt_and_target(row, self.template, shape=self.shape)
        images = self.images(row)
        if prompt.n_images != len(images):
            raise ValueError(f"images: the prompt has {prompt.n_images} image place(s) and the row {len(images)}")
        places = [self._places(source, self.mode(len(images))) for source in images]
        plain = self.shape == "description"  # as LLaVA has it: nothing between image and text, and a line feed after
        text = f"{target}\n" if plain else f"{self.template.conversation.reply}{target}"
        start, (answer,) = self.encoder.answered(prompt, [text], image_tokens=places)
        ids = [*start, *answer, *([] if plain else [self.end])]
        if len(ids) > self.limit:
            of_images = f", {sum(places)} of them for images" if places else ""
            raise ValueError(
                f"length: prompt and answer have {len(ids)} tokens ({len(start)} + {len(ids) - len(start)}{of_images})"
                f" and the limit is {self.limit}; shorten the rubric or the texts, or raise max_length up to the"
                f" model's {self.longest}"
            )
        return Example(ids, len(start), images, index)

    def _places(self, source: Any, mode: str) -> int:
        """How many tokens an image takes; its header is looked at only where its size decides that."""
        assert self.vision is not None
        if not self.model.tiled:
            return self.vision.n_tokens((1, 1), mode)
        size = picture(source).size
        self.vision.check(size, mode)
        return self.vision.n_tokens(size, mode)


class Examples(torch.utils.data.Dataset[Example]):
    """The examples of a collection, in its order.

    Args:
        rows: indexable; a row's images stay undecoded until a batch needs them.
        coder: encodes a row.
    """

    def __init__(self, rows: Sequence[Any], coder: Coder) -> None:
        self.rows, self.coder = rows, coder
        self.lengths = array("i")  # tokens of each row
        self.n_prompt = array("i")
        self._ids: array[int] | None = array("i")
        self._starts = array("q")

    def survey(self, rows: Iterable[Any]) -> Iterator[tuple[int, Any, str]]:
        """Encode every row once, in order, and yield those that can't be trained on, with the reason."""
        for index, row in enumerate(rows):
            try:
                example = self.coder(row, index)
            except (ValueError, OSError, KeyError) as error:
                yield index, row, str(error)
                continue
            self.lengths.append(len(example.ids))
            self.n_prompt.append(example.n_prompt)
            if self._ids is not None:
                self._starts.append(len(self._ids))
                self._ids.extend(example.ids)
                if len(self._ids) > KEPT_TOKENS:
                    self._ids, self._starts = None, array("q")

    @property
    def longest_answer(self) -> int:
        """The most tokens that carry loss in a row."""
        return max(whole - start for whole, start in zip(self.lengths, self.n_prompt, strict=True))

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Example:
        if self._ids is None or not self.lengths:
            return self.coder(self.rows[index], index)
        start = self._starts[index]
        ids = self._ids[start : start + self.lengths[index]].tolist()
        images = self.coder.images(self.rows[index]) if self.coder.sees else ()
        return Example(ids, self.n_prompt[index], images, index)


class Collator:
    """Make a batch: padded ids, labels, and pictures that are opened now, each once.

    A row whose image fails is left out of its batch and named in it.

    Args:
        coder: of the examples.
        padding: "left" or "right".
        rows: of the collection, for their ids in messages.
    """

    def __init__(self, coder: Coder, *, padding: str = "left", rows: Sequence[Any] = ()) -> None:
        self.coder, self.padding, self.rows = coder, padding, rows
        pad = coder.model.tokenizer.pad_token_id
        self.pad = coder.end if pad is None else int(pad)

    def __call__(self, examples: Sequence[Example]) -> dict[str, Any]:
        """The batch of examples.

        Returns:
            input_ids, attention_mask, position_ids and labels (rows, tokens), and pictures: for each image in order its
            size, mode and key, and at its first place in the batch its tiles. Where rows were left out also faults, for
            the trainer to take out and count: batches may be made ahead, by workers, and in several processes.
        """
        rows, pictures, faults = [], [], []
        seen: set[str] = set()
        for example in examples:
            new = set(seen)  # what a row that is left out showed first is not in the batch
            try:
                shown = [self._picture(source, len(example.images), new) for source in example.images]
            except (ValueError, OSError) as error:
                what, _, remedy = str(error).rpartition("; ")
                id = str(id_of(self.rows[example.index])) if len(self.rows) else None
                faults.append(
                    Problem(example.index, id, "images", what or str(error), remedy if what else "replace the file")
                )
                continue
            seen = new
            rows.append((example.ids, example.labels))
            pictures += shown
        if not rows:  # every row failed: a batch without loss
            rows.append(([self.coder.end] * 2, [IGNORED] * 2))
        width = max(len(ids) for ids, _ in rows)
        ids, mask, labels = (torch.full((len(rows), width), value) for value in (self.pad, 0, IGNORED))
        for place, (tokens, truth) in enumerate(rows):
            where = slice(width - len(tokens), width) if self.padding == "left" else slice(0, len(tokens))
            ids[place, where], mask[place, where] = torch.tensor(tokens), 1
            labels[place, where] = torch.tensor(truth)
        positions = (mask.cumsum(1) - 1).clamp(min=0)
        batch = dict(input_ids=ids, attention_mask=mask, position_ids=positions, labels=labels, pictures=pictures)
        return batch | ({"faults": faults} if faults else {})

    def _picture(self, source: Any, n_images: int, seen: set[str]) -> dict[str, Any]:
        vision, mode = self.coder.vision, self.coder.mode(n_images)
        assert vision is not None
        key = f"{mode}:{picture(source).key}"
        if key in seen:
            return {"key": key}
        image = open_image(source)
        vision.check(image.size, mode)
        seen.add(key)
        return {"key": key, "mode": mode, "size": image.size, "tiles": vision.tiles([image], mode)[0]}


def id_of(row: Any) -> Any:
    """The id of a row or an item."""
    return row.get("id") if hasattr(row, "get") else row.id


class Order(torch.utils.data.Sampler[int]):
    """The rows of a whole training in order: epoch after epoch, each drawn by seed and number alone.

    One order for all epochs: a continued training skips what it has seen, and needs to know of no epoch.

    Args:
        lengths: tokens of each row.
        batch_size: rows of one optimiser step; rows of like length stand in one step, steps in random order.
        steps: how many steps there are; the last of an epoch is filled up from the next.
        seed: of the draws.
        grouped: whether to group by length.
    """

    def __init__(self, lengths: Sequence[int], *, batch_size: int, steps: int, seed: int, grouped: bool) -> None:
        self.lengths, self.batch_size, self.steps = np.array(lengths), batch_size, steps
        self.seed, self.grouped = seed, grouped

    def __len__(self) -> int:
        return self.steps * self.batch_size

    def __iter__(self) -> Iterator[int]:
        epochs = itertools.chain.from_iterable(map(self.epoch, itertools.count()))
        return itertools.islice(epochs, len(self))

    def epoch(self, number: int) -> list[int]:
        """Every row once."""
        rng = np.random.default_rng([self.seed, number])
        order = rng.permutation(len(self.lengths))
        if self.grouped:
            pools = [
                part[np.argsort(-self.lengths[part], kind="stable")] for part in _cut(order, POOL * self.batch_size)
            ]
            steps = [step for pool in pools for step in _cut(pool, self.batch_size)]
            whole = [step for step in steps if len(step) == self.batch_size]
            rest = [step for step in steps if len(step) < self.batch_size]
            order = np.concatenate([*(whole[i] for i in rng.permutation(len(whole))), *rest])
        return [int(index) for index in order]


def _cut(values: np.ndarray, size: int) -> list[np.ndarray]:
    return [values[start : start + size] for start in range(0, len(values), size)]
