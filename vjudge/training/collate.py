"""Rows as prompts and answers, as token ids, and as batches that a model is trained on.

One way for every architecture: the wording's conversation (a chat model's own template) makes the
prompt, the model's own processor its images, and what comes after the prompt carries the loss.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import chain, pairwise
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from vjudge.data import rows_of
from vjudge.engines.tokens import Encoder
from vjudge.engines.vision import call_images, embedded, left_padded
from vjudge.images import picture
from vjudge.models import VisionLanguageModel
from vjudge.prompts import Conversation, Prompt, Template
from vjudge.prompts.answers import ORDINALS, answer_text
from vjudge.records import Item, Pair, text_of

IGNORED = -100  # the label of a token without loss
POOL = 50  # batches within which rows are sorted by length, so that an order is still mostly drawn
CPU = torch.device("cpu")


def prompt_and_target(
    row: Mapping, template: Template, *, shape: str = "feedback"
) -> tuple[Prompt, str]:
    """A row's prompt, and the answer to train on, without what separates the two and ends it.

    Args:
        row: an item with gold and feedback, or a pair with preference and feedback. A row with its
            own `prompt` and `target`, as LLaVA-Critic-113k's, is trained on those.
        template: the wording.
        shape: one of `SHAPES`; "score" needs no feedback.

    ValueError: there is no feedback, score or preference, or the wording has no known answer.

    >>> import vjudge as vj
    >>> from vjudge.prompts import TEMPLATES
    >>> (row,) = vj.load_collection("scenes", split="train", limit=1)
    >>> prompt, target = prompt_and_target(row, TEMPLATES["prometheus-vision"])
    >>> prompt.n_images, target[-10:]
    (1, '[RESULT] 1')

    Source: kaistAI/prometheus-vision sample_train_data.json; of the others the answers that their
    prompts ask for and their authors' code reads (`vjudge.prompts.parse.FORMATS`).
    """
    if not (isinstance(row, Mapping) and "images" in row):
        row = rows_of([row])[0]
    if has_own_texts(row):
        n_images = len(row["images"] or ()) if template.sees_images else 0
        return template.conversation.wrap(row["prompt"], n_images), row["target"]
    item: Any = _subject(row)
    if template.is_json and item.rubric and item.rubric.named:
        raise ValueError(
            "criteria: named criteria are answered by a score each, and a row has one gold; give"
            " rows with prompt and target"
        )
    verdict = _verdict(item)
    feedback = (text_of(row, "feedback") or "").strip()
    if not feedback and shape != "score":
        raise ValueError(
            "feedback: is missing; fill it in, leave the row out, or train the verdict alone"
            " (shape='score')"
        )
    return template.render(item), answer_text(template, feedback, verdict, shape)


def _subject(row: Mapping) -> Item | Pair:
    return Pair.from_row(row) if "response_a" in row else Item.from_row(row)


def pictures_of(row: Mapping, template: Template) -> tuple:
    """The pictures of a row in the order in which its prompt shows them."""
    if has_own_texts(row):
        return tuple(row.get("images") or ())
    return tuple(template.pictures(_subject(row)))


def has_own_texts(row: Mapping) -> bool:
    """Whether a row brings its own prompt and answer, and needs no other text."""
    return text_of(row, "prompt") is not None and text_of(row, "target") is not None


def _verdict(item: Item | Pair) -> Any:
    """The score of an item, or which response of a pair is better."""
    if isinstance(item, Pair):
        if item.preference not in ORDINALS:
            raise ValueError(
                "preference: a target needs 'a' or 'b'; fill it in or leave the row out"
            )
        return item.preference
    if not float(item.gold).is_integer():  # NaN is none
        raise ValueError("gold: a target needs a whole score; fill it in or leave the row out")
    return int(item.gold)


class Example(NamedTuple):
    """One row: the ids of prompt and answer, what to predict of them, and its images."""

    ids: list[int]
    labels: list[int]  # `IGNORED` for the prompt's
    images: tuple


class Coder:
    """Prompts, answers and images as what a model is trained on; every text is plain text."""

    def __init__(self, model: VisionLanguageModel, conversation: Conversation) -> None:
        self.model = replace(model, device=CPU)  # batches are made here, and moved by the trainer
        self.conversation = conversation
        self.source: Any = call_images(self.model)
        tokenizer = model.tokenizer
        self.encoder = Encoder(
            tokenizer,
            image_token_id=model.image_token_id,
            tokens_per_image=model.tokens_per_image,
        )
        self.end = end_of(tokenizer, conversation)
        self.pad = self.end if tokenizer.pad_token_id is None else int(tokenizer.pad_token_id)
        forward = inspect.signature(model.model.forward).parameters
        self.places = model.kind != "chat" and "position_ids" in forward

    @classmethod
    def of(cls, judge: Any) -> Coder:
        """The coder of a judge whose model is here."""
        return cls(judge.engine.model, judge.template.conversation)

    def encode(
        self, prompt: Prompt, images: Sequence, answers: Sequence[str]
    ) -> tuple[list[int], list]:
        """The ids of a prompt with its images' places, and of each answer with its end.

        An answer stands by itself where a vocabulary merges the two at their border, which
        generation can't do.
        """
        (keys,) = self._keys([images])
        prompt, places = self.source.place(prompt, keys)
        start = self.encoder.ids(prompt, image_tokens=places)
        replies = []
        for answer in answers:
            reply = self.conversation.reply + answer
            ids = self.encoder.ids(prompt, suffix=reply, image_tokens=places)
            merged = ids[: len(start)] != start
            ids = self.encoder.text_ids(reply) if merged else ids[len(start) :]
            replies.append([*ids, self.end])
        return start, replies

    def batch(self, sequences: Sequence[Sequence[int]], images: Sequence) -> dict:
        """What the model takes for rows of tokens, padded on the left, with their images.

        A LLaVA gets `shown`, the key of each image in order, and `pictures`, each prepared once.
        """
        keys = self._keys(images)
        picture_keys = list(chain.from_iterable(keys))
        if self.model.kind == "chat":
            self.source.features = {key: self.source.fetched(key) for key in picture_keys}
            return self.source.inputs(sequences, keys)
        ids, mask = left_padded(sequences, self.pad, CPU)
        batch: dict = {"input_ids": ids, "attention_mask": mask}
        if self.places:
            batch["position_ids"] = (mask.cumsum(1) - 1).clamp(min=0)
        if picture_keys:
            batch["shown"] = picture_keys
            batch["pictures"] = {
                key: self.source.prepare(key) for key in dict.fromkeys(picture_keys)
            }
        return batch

    def _keys(self, images: Sequence) -> list:
        """The keys of each row's images, which the source knows until the next call."""
        self.source.pictures.clear()
        return [self.source.keys(list(map(picture, row))) for row in images]


def end_of(tokenizer: PreTrainedTokenizerBase, conversation: Conversation) -> int:
    """The token that ends an answer: what ends a turn, else the vocabulary's own end."""
    markers = [mark for mark in conversation.controls if conversation.closing.startswith(mark)]
    if not conversation.written:
        with suppress(ValueError):  # of a chat template for questions alone
            pieces = conversation.ask(["question"], answer="answer").parts
            markers = [
                str(marker) for piece, marker in pairwise(pieces) if str(piece).endswith("answer")
            ]
    added = tokenizer.get_added_vocab()
    for marker in markers:
        if marker in added:
            return int(added[marker])
    if tokenizer.eos_token_id is None:
        raise ValueError("this tokenizer has no token that ends an answer")
    return int(tokenizer.eos_token_id)


def encode_pictures(model: VisionLanguageModel) -> Any:
    """Have a LLaVA read batches of `Coder`, packed as the original packs; returns the hook.

    Other models take batches as they are.
    """

    def hook(network: PreTrainedModel, _: object, options: dict) -> Any:
        pictures = options.pop("pictures", None)
        if pictures is None:
            return None
        inner = SimpleNamespace(
            model=network,
            config=network.config,
            get_input_embeddings=network.get_input_embeddings,
        )
        judge = replace(model, model=inner)
        source: Any = call_images(judge)
        features = {}
        for key, (tiles, size, mode) in pictures.items():
            features[key] = source.encode(tiles, tuple(size), mode)
        of_rows = list(map(features.__getitem__, options.pop("shown")))
        options["inputs_embeds"] = embedded(judge, options.pop("input_ids"), of_rows)
        return (), options

    return model.model.base_model.register_forward_pre_hook(hook, with_kwargs=True)


class Examples:
    """A collection's examples by number, in a wording; images are opened when they are needed."""

    def __init__(
        self,
        rows: Sequence,
        model: VisionLanguageModel,
        template: Template,
        *,
        shape: str = "feedback",
        max_length: int | None = None,
    ) -> None:
        self.rows = rows
        self.template = template
        self.shape = shape
        self.coder = Coder(model, template.conversation)
        self.sees = model.sees_images and template.sees_images
        self.limit = model.context_length
        if max_length is not None:
            self.limit = min(self.limit, max_length)

    def encode(self, row: Mapping) -> Example:
        """Encode one row; ValueError: nothing to train on, or too long: an example is not cut."""
        prompt, target = prompt_and_target(row, self.template, shape=self.shape)
        images = pictures_of(row, self.template) if self.sees else ()
        if prompt.n_images != len(images):
            raise ValueError(
                f"images: the prompt has {prompt.n_images} image place(s) and the row {len(images)}"
            )
        start, (answer,) = self.coder.encode(prompt, images, [target])
        ids = [*start, *answer]
        if len(ids) > self.limit:
            raise ValueError(
                f"length: prompt and answer have {len(start)} + {len(answer)} tokens, those of"
                f" images included, and the limit is {self.limit}; shorten the texts or images, or"
                " raise max_length where the model takes more"
            )
        return Example(ids, [IGNORED] * len(start) + answer, images)

    def collate(self, numbers: Sequence[int]) -> dict:
        """The batch of rows with these numbers: what the model takes, and `labels`.

        The model computes logits for the columns alone where a label follows.
        """
        examples = [self.encode(self.rows[number]) for number in numbers]
        images = [example.images for example in examples]
        batch = self.coder.batch([example.ids for example in examples], images)
        labels, _ = left_padded([example.labels for example in examples], IGNORED, CPU)
        return {
            **batch,
            "labels": labels,
            "logits_to_keep": predicting(labels),
            "use_cache": False,
        }


def predicting(labels: torch.Tensor) -> torch.Tensor:
    """The columns of labels (rows, tokens) after which some row has a token with loss."""
    return (labels[:, 1:] != IGNORED).any(0).nonzero()[:, 0]


def answer_loss(
    output: Any, labels: torch.Tensor, num_items_in_batch: torch.Tensor | int
) -> torch.Tensor:
    """Cross-entropy over labelled tokens, by their number in the whole step.

    FloatingPointError: it is no number.
    """
    truth = labels[:, 1:][:, predicting(labels)].flatten()
    logits = output.logits.float().flatten(0, 1)
    total = torch.nn.functional.cross_entropy(
        logits, truth.to(logits.device), ignore_index=IGNORED, reduction="sum"
    )
    if not total.isfinite():
        raise FloatingPointError(
            f"the loss is {total:g}; the call continues from the last checkpoint. Lower lr, raise"
            " warmup, or use another precision"
        )
    return total / num_items_in_batch


def training_order(lengths: Sequence[int], *, batch_size: int, steps: int, seed: int) -> list[int]:
    """The rows of a whole training in order: epoch after epoch, each drawn by seed and number.

    A continued training skips what it has seen. Rows of like length stand in one step, and steps
    in random order.
    """
    sizes = np.array(lengths)
    order: list = []
    while len(order) < steps * batch_size:
        rng = np.random.default_rng([seed, len(order) // len(sizes)])
        drawn = rng.permutation(len(sizes))
        pools = np.arange(len(sizes)) // (POOL * batch_size)
        drawn = drawn[np.lexsort([-sizes[drawn], pools])]  # by length within each pool
        n_whole = len(sizes) // batch_size
        full_batches = drawn[: n_whole * batch_size].reshape(n_whole, batch_size)
        order += full_batches[rng.permutation(n_whole)].flatten().tolist()
        order += drawn[full_batches.size :].tolist()
    return order[: steps * batch_size]
