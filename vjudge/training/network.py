"""The part of a judge that trains: a batch in, the loss on the answers out."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from vjudge.engines.vision import vision_of
from vjudge.models import VisionLanguageModel
from vjudge.training.batching import States
from vjudge.training.examples import IGNORED
from vjudge.training.lora import part_of


class Network(nn.Module):
    """A judge's model with the loss on its answers.

    Images go through the family's own vision (`vjudge.engines.vision`), as in grading, and output weights are applied
    to the positions that carry loss alone. What a frozen tower saw of an image is kept for its next showing.

    Args:
        judge: the loaded model; adapters may stand in it already.
        frozen: whether the tower stays as it is.
        states: where a frozen tower's states are kept; None to keep none.
    """

    _keys_to_ignore_on_save = None

    def __init__(self, judge: VisionLanguageModel, *, frozen: bool = False, states: States | None = None) -> None:
        super().__init__()
        self.model = judge.model
        self.frozen, self.states = frozen, states
        self.vision = vision_of(judge.model, judge.image_processor) if judge.sees_images else None
        self.image_token_id = judge.image_token_id
        taken = inspect.signature(self.model.forward).parameters
        self.chooses = "logits_to_keep" in taken
        self.takes_positions = "position_ids" in taken

    @property
    def config(self) -> Any:
        """The model's configuration, for the trainer."""
        return self.model.config

    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        position_ids: torch.Tensor,
        labels: torch.Tensor,
        pictures: list[dict[str, Any]],
        num_items_in_batch: torch.Tensor | int | None = None,
    ) -> dict[str, torch.Tensor]:
        """The cross-entropy over labelled tokens, divided by `num_items_in_batch`, or by their number here."""
        inputs = self.embeddings(input_ids, pictures)
        wanted = labels[:, 1:] != IGNORED
        columns = wanted.any(0).nonzero()[:, 0]
        if not len(columns):
            columns = columns.new_zeros(1)
        options: dict[str, Any] = {"position_ids": position_ids} if self.takes_positions else {}
        if self.chooses:
            options["logits_to_keep"] = columns
        logits = self.model(inputs_embeds=inputs, attention_mask=attention_mask, use_cache=False, **options).logits
        if not self.chooses:
            logits = logits[:, columns]
        truth = labels[:, 1:][:, columns]
        n = wanted.sum() if num_items_in_batch is None else num_items_in_batch
        total = functional.cross_entropy(
            logits.flatten(0, 1).float(), truth.flatten(), ignore_index=IGNORED, reduction="sum"
        )
        if self.vision is not None and not pictures and torch.distributed.is_initialized():
            # Every process must have a gradient for every weight that trains.
            unused = (p for name, p in self.named_parameters() if p.requires_grad and part_of(name) != "decoder")
            total = total + sum(p.sum() * 0 for p in unused)
        return {"loss": total / torch.as_tensor(n, device=total.device).clamp(min=1)}

    def embeddings(self, ids: torch.Tensor, pictures: list[dict[str, Any]]) -> torch.Tensor:
        """The embeddings (rows, tokens, hidden) of ids, with image features in the images' places, in order."""
        words = self.model.get_input_embeddings()
        if self.image_token_id is None:
            embedded: torch.Tensor = words(ids)
            return embedded
        places = ids == self.image_token_id
        inputs: torch.Tensor = words(ids.masked_fill(places, 0))
        if pictures:
            seen: dict[str, torch.Tensor] = {}  # rows of a batch share images
            for picture in pictures:
                if picture["key"] not in seen:
                    seen[picture["key"]] = self._features(picture, inputs.device)
            features = torch.cat([seen[picture["key"]] for picture in pictures])
            inputs = inputs.masked_scatter(places.unsqueeze(-1), features.to(inputs))
        return inputs

    def _features(self, picture: dict[str, Any], device: torch.device) -> torch.Tensor:
        """One image through tower and projector; alone, so that its bits don't depend on its company."""
        assert self.vision is not None
        states = picture.get("states")
        if states is None and self.states is not None:
            states = self.states.get(picture["key"])  # batches are made ahead: it may have been kept since
        if states is None:
            with torch.set_grad_enabled(torch.is_grad_enabled() and not self.frozen):
                states = self.vision.encode(picture["tiles"])
            if self.states is not None:
                self.states.put(picture["key"], states.cpu())
        return self.vision.project(states.to(device), tuple(picture["size"]), picture["mode"])
