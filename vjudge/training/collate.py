"""Rows as token ids and batches, the loss, and the order in which rows are trained on.

Every architecture takes the same path: the prompt template's conversation (a chat model's own chat
template) makes the prompt, the model's own processor encodes the images, and the tokens after the
prompt carry the loss.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import chain, pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from vjudge.engines.tokens import Encoder
from vjudge.engines.vision import call_images, embedded, left_padded
from vjudge.images import picture
from vjudge.models import VisionLanguageModel
from vjudge.prompts import Conversation, Prompt, Template
from vjudge.training.targets import pictures_of, prompt_and_target

IGNORED = -100  # the label of a token without loss
POOL = 50  # rows are sorted by length within so many batches, so that the order stays mostly random
CPU = torch.device("cpu")


class Example(NamedTuple):
    """One row as a training example.

    Attributes:
        ids: token ids of prompt and answer.
        labels: as many: `IGNORED` for the prompt's tokens, the answer's ids for the answer's.
        images: of the prompt, in order, undecoded.
    """

    ids: list[int]
    labels: list[int]
    images: tuple


class Coder:
    """Turns prompts, answers and images into what a model is trained on.

    Texts are encoded as plain text: a control token that is written in one is not taken as such.

    Args:
        model: whose tokenizer and image processor are used.
        conversation: of the prompt template.
    """

    def __init__(self, model: VisionLanguageModel, conversation: Conversation) -> None:
        self.model = replace(model, device=CPU)  # batches are made here, and moved by the trainer
        self.conversation = conversation
        self.source: Any = call_images(self.model)  # the images of the present call, by their keys
        tokenizer = model.tokenizer
        self.encoder = Encoder(
            tokenizer,
            image_token_id=model.image_token_id,
            tokens_per_image=model.tokens_per_image,
        )
        self.end = end_of(tokenizer, conversation)
        self.pad = self.end if tokenizer.pad_token_id is None else int(tokenizer.pad_token_id)
        forward = inspect.signature(model.model.forward).parameters
        self.takes_positions = model.kind != "chat" and "position_ids" in forward

    @classmethod
    def of(cls, judge: Any) -> Coder:
        """Make the coder of a judge whose model is on this machine."""
        return cls(judge.engine.model, judge.template.conversation)

    def encode(
        self, prompt: Prompt, images: Sequence, answers: Sequence[str]
    ) -> tuple[list[int], list[list[int]]]:
        """Encode a prompt, and answers that follow it.

        Args:
            prompt: of one row.
            images: the prompt's, in order.
            answers: texts, each of which may follow the prompt.

        Returns:
            The ids of the prompt with placeholders for its images' tokens, and the ids of each
            answer with the token that ends it.
        """
        # `image_tokens` counts the tokens in the place of each image.
        (keys,) = self._keys([images])
        prompt, image_tokens = self.source.place(prompt, keys)
        prompt_ids = self.encoder.ids(prompt, image_tokens=image_tokens)
        answer_ids = []
        for answer in answers:
            # Encode prompt and answer together, as the vocabulary splits the whole text. Where it
            # merges the last piece of the prompt with the first of the answer, which cannot happen
            # in generation, encode the answer by itself.
            reply = self.conversation.reply + answer
            ids = self.encoder.ids(prompt, suffix=reply, image_tokens=image_tokens)
            if ids[: len(prompt_ids)] == prompt_ids:
                ids = ids[len(prompt_ids) :]
            else:
                ids = self.encoder.text_ids(reply)
            answer_ids.append([*ids, self.end])
        return prompt_ids, answer_ids

    def batch(self, sequences: Sequence[Sequence[int]], images: Sequence) -> dict:
        """Make a model's inputs of several sequences, padded on the left, and their images.

        Args:
            sequences: token ids per row.
            images: a list of images per row.

        Returns:
            The keyword arguments of the model's forward pass. Those of a LLaVA, for the hook of
            `encode_pictures`, hold `shown`, the key of each image in order, and `pictures`, each
            distinct image prepared once.
        """
        keys = self._keys(images)
        image_keys = list(chain.from_iterable(keys))
        # A chat model's processor prepares each image; `inputs` joins the results with the tokens.
        if self.model.kind == "chat":
            self.source.features = {key: self.source.fetched(key) for key in image_keys}
            return self.source.inputs(sequences, keys)

        # Other models take tokens, and a LLaVA prepared images.
        ids, mask = left_padded(sequences, self.pad, CPU)  # (rows, tokens)
        batch: dict = {"input_ids": ids, "attention_mask": mask}
        if self.takes_positions:
            # Positions count from the first token that is no padding: mask 0 0 1 1 1 -> 0 0 0 1 2
            batch["position_ids"] = (mask.cumsum(1) - 1).clamp(min=0)
        if image_keys:
            batch["shown"] = image_keys
            batch["pictures"] = {key: self.source.prepare(key) for key in dict.fromkeys(image_keys)}
        return batch

    def _keys(self, images: Sequence) -> list[list[str]]:
        """Return the keys of each row's images.

        They replace the images of the call before in `source`, whose methods take these keys.

        Args:
            images: a list of images per row.
        """
        self.source.pictures.clear()
        return [self.source.keys(list(map(picture, row))) for row in images]


def end_of(tokenizer: PreTrainedTokenizerBase, conversation: Conversation) -> int:
    """Find the token that ends an answer: the end of a turn, else the vocabulary's own end.

    Returns:
        Its id.

    Raises:
        ValueError: the tokenizer has neither.
    """
    # A conversation of this package: the control token that its text after a turn starts with.
    closing = conversation.closing
    markers = [marker for marker in conversation.controls if closing.startswith(marker)]
    if not conversation.written:
        # A chat template: the marker that follows the answer of an example turn. A template for
        # questions alone refuses such a turn with a ValueError.
        with suppress(ValueError):
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


class _Wrapped:
    """A LLaVA's inner network with the attributes of the whole model that the engine's code reads.

    A forward hook gets the inner network, while `vjudge.engines.vision` takes the whole model,
    whose attribute `model` the inner network is.
    """

    def __init__(self, network: PreTrainedModel) -> None:
        self.model = network
        self.config = network.config
        self.get_input_embeddings = network.get_input_embeddings


def encode_pictures(model: VisionLanguageModel) -> Any:
    """Make a LLaVA take the batches of `Coder`: encode their images as the original code does.

    A hook before each forward pass replaces `input_ids`, `shown` and `pictures` by embeddings with
    image features in their places. Batches without images, and those of other models, pass
    unchanged.

    Returns:
        The handle of the hook, whose `remove` takes it off.
    """

    # torch calls the hook with the positional arguments of the forward pass, here none, and with
    # the named ones; it returns both as they shall be, or None to change nothing.
    def hook(network: PreTrainedModel, _: object, options: dict) -> tuple[tuple, dict] | None:
        pictures = options.pop("pictures", None)
        if pictures is None:
            return None
        inner = replace(model, model=_Wrapped(network))
        source: Any = call_images(inner)
        # Encode each distinct image once, then repeat features in the order in which they appear.
        features = {}
        for key, (tiles, size, mode) in pictures.items():
            features[key] = source.encode(tiles, tuple(size), mode)
        in_order = [features[key] for key in options.pop("shown")]
        options["inputs_embeds"] = embedded(inner, options.pop("input_ids"), in_order)
        return (), options

    return model.model.base_model.register_forward_pre_hook(hook, with_kwargs=True)


class Examples:
    """The training examples of a collection, encoded when they are asked for.

    Args:
        rows: canonical rows.
        model: the judge's.
        template: the prompt template.
        shape: of the answer, see `prompt_and_target`.
        max_length: the most tokens of an example; None, or more than the model's context, for the
            model's context.
    """

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
        self.sees_images = model.sees_images and template.sees_images
        self.limit = model.context_length
        if max_length is not None:
            self.limit = min(self.limit, max_length)

    def encode(self, row: Mapping) -> Example:
        """Encode one row as prompt, answer and images.

        Raises:
            ValueError: the row has nothing to train on (see `prompt_and_target`), not as many
                images as its prompt, or more tokens than the limit: examples are not truncated.
        """
        prompt, target = prompt_and_target(row, self.template, shape=self.shape)
        images = pictures_of(row, self.template) if self.sees_images else ()
        if prompt.n_images != len(images):
            raise ValueError(
                f"images: the prompt has {prompt.n_images} image place(s) and the row {len(images)}"
            )
        prompt_ids, (answer_ids,) = self.coder.encode(prompt, images, [target])
        ids = prompt_ids + answer_ids
        if len(ids) > self.limit:
            raise ValueError(
                f"length: prompt and answer have {len(prompt_ids)} + {len(answer_ids)} tokens,"
                f" those of images included, and the limit is {self.limit}; shorten the texts or"
                " images, or raise max_length where the model takes more"
            )
        return Example(ids, [IGNORED] * len(prompt_ids) + answer_ids, images)

    def collate(self, indices: Sequence[int]) -> dict:
        """Make the batch of the rows with these indices.

        Returns:
            The keyword arguments of the model's forward pass: those of `Coder.batch`, `labels`, and
            `logits_to_keep`, the positions that predict a token with loss: the model computes
            logits there alone.
        """
        examples = [self.encode(self.rows[index]) for index in indices]
        images = [example.images for example in examples]
        batch = self.coder.batch([example.ids for example in examples], images)
        labels, _ = left_padded([example.labels for example in examples], IGNORED, CPU)
        return {
            **batch,
            "labels": labels,  # (rows, tokens)
            "logits_to_keep": predicting(labels),
            "use_cache": False,
        }


def predicting(labels: torch.Tensor) -> torch.Tensor:
    """Return the positions whose next token has loss in at least one row.

    Args:
        labels: (rows, tokens), `IGNORED` where a token has no loss.

    labels  -100 -100 -100    4    2       position 2 predicts the 4, position 3 the 2, and
            -100 -100    7    8    2       position 1 predicts the 7: [1, 2, 3]
    """
    return (labels[:, 1:] != IGNORED).any(0).nonzero()[:, 0]


def answer_loss(
    output: Any, labels: torch.Tensor, num_items_in_batch: torch.Tensor | int
) -> torch.Tensor:
    """Compute the cross-entropy of the tokens with loss, divided by their number in the step.

    Args:
        output: with `logits` (rows, positions, vocabulary) at the positions of `predicting`.
        labels: (rows, tokens).
        num_items_in_batch: number of tokens with loss in the whole step, over all passes and
            processes; the name is transformers'.

    Raises:
        FloatingPointError: the loss is NaN or infinite.
    """
    targets = labels[:, 1:][:, predicting(labels)].flatten()  # (rows * positions,)
    logits = output.logits.float().flatten(0, 1)  # (rows * positions, vocabulary)
    total = torch.nn.functional.cross_entropy(
        logits, targets.to(logits.device), ignore_index=IGNORED, reduction="sum"
    )
    if not total.isfinite():
        raise FloatingPointError(
            f"the loss is {total:g}; the call continues from the last checkpoint. Lower lr, raise"
            " warmup, or use another precision"
        )
    return total / num_items_in_batch


def training_order(lengths: Sequence[int], *, batch_size: int, steps: int, seed: int) -> list[int]:
    """Order the rows of a whole training, epoch after epoch.

    Rows of similar length share a batch, so that little is padded, and batches come in random
    order. The order follows from the arguments alone, so that a continued training skips what it
    has seen.

    Args:
        lengths: tokens per row.
        batch_size: rows per step.
        steps: of the whole training.
        seed: of the random order; each epoch has its own.

    Returns:
        steps * batch_size indices of rows.
    """
    sizes = np.array(lengths)
    order: list[int] = []
    while len(order) < steps * batch_size:
        epoch = len(order) // len(sizes)
        rng = np.random.default_rng([seed, epoch])
        # Draw a random order, cut it into pools of 50 batches, and sort each pool by length, the
        # longest first: `lexsort` sorts by its last key, the pool, then by the one before.
        drawn = rng.permutation(len(sizes))
        pools = np.arange(len(sizes)) // (POOL * batch_size)
        drawn = drawn[np.lexsort([-sizes[drawn], pools])]
        # Shuffle the full batches; the remaining rows end the epoch.
        n_full = len(sizes) // batch_size
        full_batches = drawn[: n_full * batch_size].reshape(n_full, batch_size)
        order += full_batches[rng.permutation(n_full)].flatten().tolist()
        order += drawn[full_batches.size :].tolist()
    return order[: steps * batch_size]
