"""Pairs as batches for TRL's DPO trainer: the very tokens and pixels that the policy's engine answers with.

TRL's own collation renders texts through a chat template and reads control tokens in them. This one encodes every text
as plain text and puts the conversation's control tokens where the conversation says, as the engine does, so that a
policy is trained on what it was asked and can't be steered by what an answer spells.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from vjudge.engines.tokens import Encoder
from vjudge.engines.vision import KINDS_OF_TOKEN, TEXT_INPUTS, ProcessedImages, vision_of
from vjudge.images import open_image, picture
from vjudge.models import VisionLanguageModel
from vjudge.prompts import Conversation


class PairBatches:
    """Make a batch of pairs: chosen responses first, then rejected ones, as TRL's loss takes them apart.

    Args:
        model: the policy.
        conversation: the words around an instruction.
        max_length: the most tokens of prompt and response, the image's included; a response is cut there (`n_cut`).

    Calling it with rows of instruction, images, chosen and rejected gives input_ids, attention_mask and completion_mask
    (2 x rows, longest), padded on the right, and the pixels as the model's class takes them. The token that ends a turn
    follows a response that is not cut.
    """

    def __init__(
        self, model: VisionLanguageModel, conversation: Conversation, *, max_length: int | None = None
    ) -> None:
        self.model, self.conversation, self.max_length = model, conversation, max_length
        self.encoder = Encoder(
            model.tokenizer, image_token_id=model.image_token_id, tokens_per_image=model.tokens_per_image
        )
        self.end = self.encoder.end(conversation)
        self.pad = self.end if model.tokenizer.pad_token_id is None else int(model.tokenizer.pad_token_id)

    def __call__(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, torch.Tensor]:
        encoded = [self.encode(row) for row in rows]
        sides = [(prompt, each[side]) for side in (0, 1) for prompt, *each in encoded]
        width = max(len(prompt) + len(text) for prompt, text in sides)
        width = min(width, self.max_length or width)
        ids = torch.full((len(sides), width), self.pad)
        attended, completed = torch.zeros_like(ids), torch.zeros_like(ids)
        for row, (prompt, text) in enumerate(sides):
            whole = (prompt + text)[:width]
            ids[row, : len(whole)] = torch.tensor(whole)
            attended[row, : len(whole)] = 1
            completed[row, len(prompt) : len(whole)] = 1
        batch = {"input_ids": ids, "attention_mask": attended, "completion_mask": completed}
        return batch | self.pixels([row["images"] for row in rows] * 2, batch)

    def encode(self, row: Mapping[str, Any]) -> tuple[list[int], list[int], list[int]]:
        """The ids of a row's prompt, and of its two responses after it."""
        prompt = self.conversation.wrap(row["instruction"], len(row["images"]))
        taken: list[int] | None = None
        if row["images"] and self.model.processor is not None:
            pictures = ProcessedImages(self.model)
            prompt, taken = pictures.place(prompt, pictures.keys(list(map(picture, row["images"]))))
        elif row["images"]:
            vision = vision_of(self.model.model, self.model.image_processor)
            mode = vision.default_mode(len(row["images"]))
            taken = [vision.n_tokens(open_image(image).size, mode) for image in row["images"]]
        texts = [f"{self.conversation.reply}{row[side]}" for side in ("chosen", "rejected")]
        start, (chosen, rejected) = self.encoder.answered(prompt, texts, image_tokens=taken)
        return start, [*chosen, self.end], [*rejected, self.end]

    def n_cut(self, rows: Sequence[Mapping[str, Any]]) -> int:
        """How many pairs have a response that `max_length` cuts.

        Raises:
            ValueError: one of them lies beyond it with its prompt alone: nothing of its responses would be left.
        """
        if self.max_length is None:
            return 0
        count = 0
        for row in rows:
            prompt, *texts = self.encode(row)
            if len(prompt) >= self.max_length:
                raise ValueError(
                    f"the prompt of pair {row.get('id')!r} has {len(prompt)} tokens and max_length is"
                    f" {self.max_length}: raise it, or leave the pair out"
                )
            count += len(prompt) + max(map(len, texts)) > self.max_length
        return count

    def pixels(self, images: Sequence[Sequence[Any]], batch: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """The images of a batch as the model's class takes them."""
        opened = [[open_image(image) for image in row] for row in images]
        shown = [row for row in opened if row]
        if not shown:
            return {}
        if (processor := self.model.processor) is not None:
            texts = [processor.image_token * len(row) for row in shown]
            made = processor(images=shown, text=texts, padding=True, return_tensors="pt")
            inputs = {name: tensor for name, tensor in made.items() if name not in TEXT_INPUTS}
            name = next((name for name in KINDS_OF_TOKEN if name in made), None)
            if name is not None and getattr(processor, "return_mm_token_type_ids", False):
                kinds = processor.create_mm_token_type_ids(batch["input_ids"].tolist())
                inputs[name] = torch.tensor(kinds) * batch["attention_mask"]
            return inputs
        vision = vision_of(self.model.model, self.model.image_processor)
        tiles = [each for row in shown for each in vision.tiles(row, vision.default_mode(len(row)))]
        if not self.model.tiled:
            return {"pixel_values": torch.cat(tiles)}
        most = max(len(each) for each in tiles)
        padded = [torch.cat([each, each.new_zeros(most - len(each), *each.shape[1:])]) for each in tiles]
        sizes = [[image.height, image.width] for row in shown for image in row]
        counts = torch.tensor([len(row) for row in shown])
        return {"pixel_values": torch.stack(padded), "image_sizes": torch.tensor(sizes), "batch_num_images": counts}
