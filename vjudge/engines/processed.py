"""The engine of chat models that read images through their own processor, and of models that take no embeddings.

Every row is computed whole, with the model's own `generate`: its positions, masks and cache are its own business. What
a judge needs besides (draws by a row's own seed, the distribution over the scores, early ends) is put in where
transformers lets one choose the next token.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from PIL import Image
from transformers import (
    GenerationConfig,
    LogitsProcessor,
    LogitsProcessorList,
    StoppingCriteria,
    StoppingCriteriaList,
)

from vjudge.engines.decoding import Decoding, Job, Writer
from vjudge.engines.encoding import Scale
from vjudge.engines.engine import Answer
from vjudge.engines.forward import Forward, check_answer, check_length
from vjudge.engines.local import TorchEngine
from vjudge.engines.pictures import ProcessedImages
from vjudge.models import VisionLanguageModel
from vjudge.prompts import Prompt

TEXT_INPUTS = ("input_ids", "attention_mask", "token_type_ids", "mm_token_type_ids", "text_replacement_offsets")
KINDS_OF_TOKEN = ("mm_token_type_ids", "token_type_ids")  # where a processor says which tokens are an image's

_said: set[str] = set()


def local_engine(model: VisionLanguageModel, **options: Any) -> TorchEngine:
    """The engine for a loaded model: the one that shares work between rows, where the architecture allows it.

    Args:
        model: from `vjudge.models.load`.
        options: of `TorchEngine`.
    """
    return (TorchEngine if model.shares else ProcessorEngine)(model, **options)


class ProcessorEngine(TorchEngine):
    """Run a chat model by its own processor and `generate`, rows batched plainly.

    An image is prepared and encoded again for every row that shows it; nothing else is shared either, which is said
    once for each architecture.

    Args and errors as for `TorchEngine`; there is no image mode, and no cache of image features.
    """

    def __init__(self, model: VisionLanguageModel, *, image_mode: str | None = None, **options: Any) -> None:
        if image_mode is not None:
            raise ValueError(f"image_mode {image_mode!r}: this judge prepares images by its own processor alone")
        super().__init__(model, **options)
        pad = model.tokenizer.pad_token_id
        self.pad = min(self.ends) if pad is None else int(pad)
        kind = str(model.model.config.model_type)
        if kind not in _said:
            _said.add(kind)
            warnings.warn(
                f"{kind}: this architecture is batched plainly; rows share no image encoding or prompt here"
                " (a vLLM server shares both)",
                stacklevel=3,
            )

    def forward(self, prompt: Prompt, images: Sequence[Any], *, image_mode: str | None = None) -> Forward:
        """One pass over a prompt for research.

        Arguments and errors as in `TorchEngine.forward`. In the result `input_ids` are the model's own, with all places
        of an image; `pixel_values` are as the processor makes them; `image_features` are None.
        """
        inputs = self._alone(prompt, images, image_mode)
        with torch.no_grad():
            logits = self.model.model(**inputs, use_cache=False).logits[0, :, : self.model.vocabulary_size]
        pixels = inputs.get("pixel_values")
        return Forward(
            input_ids=inputs["input_ids"][0].cpu(),
            pixel_values=None if pixels is None else pixels.float().cpu(),
            logits=logits.float().cpu(),
        )

    def complete(
        self,
        prompt: Prompt,
        images: Sequence[Any],
        *,
        max_new_tokens: int,
        image_mode: str | None = None,
        repetition_penalty: float = 1.0,
    ) -> list[int]:
        """The greedy continuation of a prompt; arguments and errors as in `TorchEngine.complete`."""
        check_answer(max_new_tokens, repetition_penalty)
        inputs = self._alone(prompt, images, image_mode)
        run = Decoding(Scale("", {}, {}), max_new_tokens, repetition_penalty=repetition_penalty)
        job = Job(0, inputs["input_ids"][0].cpu().numpy(), (), 0)
        return self._write(inputs, self._writer([job], run, counts_prompt=False)).rows[0].tokens

    def identity(self) -> dict[str, Any]:
        """See `Engine.identity`."""
        return super().identity() | {"engine": f"{self.name}, rows batched plainly"}

    def _why_plain(self) -> str:
        return "the model prepares its inputs by itself"

    def _pictures(self, images: Sequence[Sequence[Any]]) -> ProcessedImages:
        return ProcessedImages(self.model, images)

    @torch.inference_mode()
    def _decode(self, jobs: list[Job], taken: Mapping[str, Any], run: Decoding) -> list[Answer]:
        """One batch through the model's own `generate`."""
        inputs = self._inputs_of(
            [job.ids.tolist() for job in jobs], [[taken[key] for key in job.images] for job in jobs]
        )
        return self._write(inputs, self._writer(jobs, run)).answers()

    def _write(self, inputs: dict[str, Any], writer: Writer) -> Writer:
        limit = max(1, *(row.limit for row in writer.rows))
        self.model.model.generate(
            **inputs,
            generation_config=GenerationConfig(
                do_sample=False, max_new_tokens=limit, pad_token_id=self.pad, eos_token_id=sorted(self.ends)
            ),
            logits_processor=LogitsProcessorList([_Choose(writer)]),
            stopping_criteria=StoppingCriteriaList([_Done(writer)]),
        )
        return writer

    def _alone(self, prompt: Prompt, images: Sequence[Any], image_mode: str | None) -> dict[str, Any]:
        """The inputs of one prompt."""
        if image_mode is not None:
            raise ValueError(f"image_mode {image_mode!r}: this judge prepares images by its own processor alone")
        if prompt.n_images != len(images):
            raise ValueError(f"the prompt has {prompt.n_images} image place(s) and there are {len(images)} image(s)")
        pictures = ProcessedImages(self.model, [images])
        keys = pictures.register(0, images)
        written, _ = pictures.place(prompt, keys)
        ids = self.encoder.ids(written)
        check_length(self.model, len(ids), sum(map(ids.count, self.model.wordless)), answered=False)
        opened, broken = pictures.take(keys)
        if broken:
            raise ValueError("; ".join(broken.values()))
        return self._inputs_of([ids], [[opened[key] for key in keys]])

    def _inputs_of(self, ids: Sequence[list[int]], images: Sequence[list[Image.Image]]) -> dict[str, Any]:
        """What `forward` and `generate` take: left-padded ids, the mask of real tokens, and the processor's tensors."""
        model, processor = self.model, self.model.processor
        width = max(map(len, ids))
        padded = [[self.pad] * (width - len(row)) + row for row in ids]
        mask = [[0] * (width - len(row)) + [1] * len(row) for row in ids]
        inputs: dict[str, Any] = {"input_ids": torch.tensor(padded), "attention_mask": torch.tensor(mask)}
        shown = [row for row in images if row]
        if shown:
            made = processor(
                images=shown,
                text=[processor.image_token * len(row) for row in shown],
                padding=True,
                return_tensors="pt",
            )
            inputs |= {name: tensor for name, tensor in made.items() if name not in TEXT_INPUTS}
            name = next((name for name in KINDS_OF_TOKEN if name in made), None)
            if name is not None and getattr(processor, "return_mm_token_type_ids", False):
                inputs[name] = torch.tensor(processor.create_mm_token_type_ids(padded)) * inputs["attention_mask"]
        for name, tensor in inputs.items():
            if isinstance(tensor, torch.Tensor):
                inputs[name] = tensor.to(model.device, model.dtype if tensor.is_floating_point() else None)
        return inputs


class _Choose(LogitsProcessor):
    """Let a writer choose: every token but its choice is ruled out."""

    def __init__(self, writer: Writer) -> None:
        self.writer = writer

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        tokens = self.writer.step(scores)
        return torch.full_like(scores, -torch.inf).scatter_(1, tokens[:, None], 0.0)


class _Done(StoppingCriteria):
    """A row ends where its writer says."""

    def __init__(self, writer: Writer) -> None:
        self.writer = writer

    def __call__(self, input_ids: torch.Tensor, scores: Any, **kwargs: Any) -> torch.Tensor:
        return torch.tensor([row.done for row in self.writer.rows], device=input_ids.device)
