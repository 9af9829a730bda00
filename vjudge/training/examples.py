"""A collection as token ids with the loss on the answer alone; rows are encoded when a batch asks for them."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch.utils.data

from vjudge.engines.tokens import Encoder
from vjudge.engines.vision import vision_of
from vjudge.images import picture
from vjudge.models import VisionLanguageModel
from vjudge.prompts import Template
from vjudge.training.targets import prompt_and_target

IGNORED = -100  # the label of a token without loss
KEPT_TOKENS = 1 << 24  # ids kept ready between epochs: 64 MB; a larger collection is encoded again when it is read


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
        own = min(model.prompt_limit, model.context_length)
        self.limit = own if max_length is None else min(own, max_length)
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
        answer = f"{target}\n" if plain else f"{self.template.conversation.reply}{target}"
        asked, (answered,) = self.encoder.answered(prompt, [answer], image_tokens=places)
        whole = [*asked, *answered, *([] if plain else [self.end])]
        if len(whole) > self.limit:
            held = f", {sum(places)} of them for images" if places else ""
            raise ValueError(
                f"length: prompt and answer have {len(whole)} tokens"
                f" ({len(asked)} + {len(whole) - len(asked)}{held}) and"
                f" the limit is {self.limit}; shorten the rubric or the texts, or raise max_length up to the model's"
                f" {min(self.model.prompt_limit, self.model.context_length)}"
            )
        return Example(whole, len(asked), images, index)

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

    def survey(self, rows: Iterable[tuple[int, Any]]) -> Iterable[tuple[int, Any, str]]:
        """Encode every row once, in order, and yield those that can't be trained on, with the reason."""
        for index, row in rows:
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

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Example:
        if self._ids is None or not self.lengths:
            return self.coder(self.rows[index], index)
        start = self._starts[index]
        ids = self._ids[start : start + self.lengths[index]].tolist()
        images = self.coder.images(self.rows[index]) if self.coder.sees else ()
        return Example(ids, self.n_prompt[index], images, index)
