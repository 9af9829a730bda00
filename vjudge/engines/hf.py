"""The transformers engine: run a loaded model on this machine.

`HFEngine._compute` shows the engine on one page: images, prefixes, `generate`, and what is read
after the answers. batches.py says which rows are computed together, cache.py how they share
keys and values, and decoding.py how a token is chosen. Models whose cache can't be
shared (with sliding windows or states) give whole prompts to `generate`.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import torch
import transformers
from transformers import GenerationConfig, LogitsProcessorList

from vjudge.engines.batches import Batcher
from vjudge.engines.cache import (
    Shared,
    can_share,
    inputs_after_prefixes,
    keep_for_readings,
    prefill,
    share_prefixes,
)
from vjudge.engines.decoding import Writer, logprobs_of, not_finite, zero_not_finite
from vjudge.engines.engine import NOISE, Answer, Answers, Ask, Engine, Sources, Wanted, Work
from vjudge.engines.rows import Reading, Request, Tokenized
from vjudge.engines.tokens import Encoder, ends_of
from vjudge.engines.vision import call_images
from vjudge.models import VisionLanguageModel
from vjudge.prompts import Prompt

SMALL = 50_000_000  # parameters; a smaller model is faster on one thread
SHORTAGES = (
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_ALLOC_FAILED",
    "CUDA error: out of memory",
    "MPS backend out of memory",
    "DefaultCPUAllocator: ",
)
"""What the messages of RuntimeErrors hold that report a shortage; torch has no type for these."""


class HFEngine(Engine):
    """Run a loaded model on this machine.

    Args:
        model: from `vjudge.models.load`.
        image_mode: "crop" or "pad" for LLaVA-1.5, "anyres" or "pad" for LLaVA-OneVision; None for
            the way that the family was published with.

    Raises:
        ValueError: an image mode that the family does not have.
    """

    name = "hf"

    def __init__(self, model: VisionLanguageModel, *, image_mode: str | None = None) -> None:
        call_images(model, image_mode)  # refuses an unknown mode now
        self.model = model
        self.image_mode = image_mode
        self.encoder = Encoder(
            model.tokenizer,
            image_token_id=model.image_token_id,
            tokens_per_image=model.tokens_per_image,
        )
        self.context_length = model.context_length
        self.ends = ends_of(model)
        self.shares = can_share(model)
        self.small = model.model.num_parameters() < SMALL
        self.auto = 128 if self.small else 64  # rows of a batch, until memory runs out
        self.noise = NOISE.get(str(model.dtype).removeprefix("torch."), self.noise)
        self.work: Work = Work()

    def answer(
        self,
        prompts: Sequence[Prompt],
        images: Sources,
        ask: Ask,
        wanted: Wanted = None,
    ) -> Answers:
        """Answer every prompt, see `Engine.answer`; a row's draws depend on its seed alone."""
        if ask.mode == "value" and self.model.value_head is None:
            raise ValueError(f"judge {self.model.name!r} has no value head")
        self.work = Work()
        source = call_images(self.model, self.image_mode)
        # Batches hold prompts that are not wanted, too, so that they are those of a whole call.
        call = Batcher(self, source, prompts, images, ask, wanted=wanted)
        n_threads = torch.get_num_threads()
        for batch in call.batches(unbroken=True):
            # Many threads on a small model wait for each other where other work is running.
            torch.set_num_threads(1 if self.small else n_threads)
            try:
                answers = self._answer_batch(call, batch)
            finally:
                torch.set_num_threads(n_threads)
            yield [answer for answer in answers if answer.index in call.wanted]

    def identity(self) -> dict[str, Any]:
        """Return what decides the answers, see `Engine.identity`."""
        model = self.model
        return {
            "checkpoint": model.checkpoint,
            "engine": self.name,
            "image_mode": self.image_mode,
            "device": model.device.type,
            "dtype": str(model.dtype).removeprefix("torch."),
            "quantization": model.quantization,
            "attention": model.model.config.get_text_config()._attn_implementation,
            "versions": {"torch": torch.__version__, "transformers": transformers.__version__},
        }

    def _answer_batch(self, call: Batcher, rows: Sequence[Request]) -> list[Answer]:
        """Answer a batch; if memory runs out, answer its halves.

        A row that does not fit alone gets a `failure`. Later batches have the halves' size.

        Args:
            call: the batches of the call; `call.size` is lowered if memory runs out.
            rows: the requests of one batch.

        Returns:
            Their answers, in the same order.
        """
        started = time.perf_counter()
        shortage = None
        try:
            self._compute(call, rows)
        except (RuntimeError, MemoryError) as error:
            if not is_shortage(error):
                raise
            shortage = f"{type(error).__name__}: {error}"
        # Outside of the except block, because the error's traceback keeps the tensors alive.
        if shortage is not None:
            torch.cuda.empty_cache()
            rows = [call.request(row.index) for row in rows]  # anew: the old ones are half computed
            if len(rows) > 1:
                half = len(rows) // 2
                call.size = half
                return [
                    *self._answer_batch(call, rows[:half]),
                    *self._answer_batch(call, rows[half:]),
                ]
            rows[0].failure = f"out of memory with one prompt: {shortage}"
        seconds = time.perf_counter() - started
        self.work.seconds += seconds
        return [row.finished_answer(seconds / len(rows)) for row in rows]

    @torch.inference_mode()
    def _compute(self, call: Batcher, rows: Sequence[Request]) -> None:
        """Compute a batch from images to distributions, and set the results in its rows."""
        # 1) encode each image once; rows whose images can't be read drop out
        rows = call.source.fetch(rows)
        # 2) write the answers, with each distinct prefix computed once; `shared` holds the keys and
        # values of prompts and answers, None where there are none that a reading could begin with
        shared = None
        if rows and call.ask.mode == "feedback":
            shared = self._write(call, rows)
        # 3) read values after prompts, or distributions where verdicts stand or are to stand
        if rows and call.ask.mode == "value":
            self._read_values(call, rows)
        readings = [reading for row in rows for reading in row.readings]
        if readings:
            self._read(call, readings, shared)
        # 4) combine a row's readings into its distributions
        for row in rows:
            row.combine_readings()
        self.work.images = call.source.encoded

    def _write(self, call: Batcher, rows: Sequence[Request]) -> Shared | None:
        """Write the answers, and plan what is read after them.

        Returns:
            The keys and values of prompts and answers, which the readings begin with; None where
            the model can't share them.
        """
        writer = Writer(self.model, self.ends, rows, call.ask)
        longest = max(row.writing.limit for row in rows)  # `writer` ends each row at its own limit
        _, shared = self._generate(call, rows, None, writer, max_new_tokens=longest)
        for row in rows:
            row.plan_readings(self.encoder, call.ask, self.ends, self.context_length)
            self.work.new_tokens += len(row.writing.tokens)
        if shared is not None:
            keep_for_readings(rows, shared)
        return shared

    def _read(self, call: Batcher, readings: Sequence[Reading], shared: Shared | None) -> None:
        """Set the log-probabilities of each reading: those of the scale's next tokens after it.

        Args:
            call: holds the images of the rows.
            readings: of all rows of the batch, each with its prefix in `shared`, if that is given.
            shared: the keys and values that the readings begin with; None computes them anew.
        """
        output, _ = self._generate(call, readings, shared, max_new_tokens=1, output_logits=True)
        logits = output.logits[0]  # (readings, vocabulary)
        for position in zero_not_finite(logits):
            readings[position].failure = not_finite(self.model, 1)
        self.model.mask_non_text(logits)
        for reading, row_logits in zip(readings, logits, strict=True):
            reading.logprobs = logprobs_of(reading.scale.next_tokens[reading.stem], row_logits)

    def _read_values(self, call: Batcher, rows: Sequence[Request]) -> None:
        """Set the value of each answer: what the value head returns after the prompt."""
        head: Any = self.model.value_head
        output, _ = self._generate(call, rows, None, max_new_tokens=1, output_hidden_states=True)
        # hidden_states[pass][layer]: the pass over the prompt, the last layer, the last token
        states = output.hidden_states[0][-1][:, -1]  # (rows, hidden)
        values = head(states.to(head.weight)).float()  # (rows, 1)
        for position in zero_not_finite(values):
            rows[position].failure = not_finite(self.model, 1)
        for row, value in zip(rows, values[:, 0].tolist(), strict=True):
            row.answer.value = value

    def _generate(
        self,
        call: Batcher,
        rows: Sequence[Tokenized],
        shared: Shared | None,
        *processors: Writer,
        **options: Any,
    ) -> tuple[Any, Shared | None]:
        """Run the model's own `generate`, after the rows' prefixes where they can be shared.

        Args:
            call: holds the images of the rows.
            rows: what the model reads.
            shared: the keys and values of the rows' prefixes, which are changed in place; None
                finds and computes prefixes first, if the model can share them.
            processors: the writer that chooses tokens; none where only the output is read.
            options: for transformers' `GenerationConfig`.

        Returns:
            The output of `generate`, and the keys and values of the rows; None for these where
            they can't be shared.
        """
        # 1) what the model reads: tokens after shared prefixes, or whole prompts
        if self.shares and shared is None:
            prefixes = share_prefixes(rows, self.model.image_token_id)
            shared = prefill(self.model, call.source, prefixes)
            self.work.computed_tokens += sum(len(prefix.ids) for prefix in prefixes)
        if shared is not None:
            inputs = inputs_after_prefixes(self.model, rows, shared)
        else:
            inputs = call.source.inputs([row.ids for row in rows], [row.keys for row in rows])
        self.work.prompt_tokens += sum(len(row.ids) for row in rows)
        self.work.computed_tokens += sum(row.n_after_prefix for row in rows)
        # 2) generate
        settings = GenerationConfig(
            pad_token_id=min(self.ends),
            eos_token_id=sorted(self.ends),
            return_dict_in_generate=True,
            **options,
        )
        output = self.model.model.generate(
            **inputs,
            generation_config=settings,
            logits_processor=LogitsProcessorList(processors),
        )
        return output, shared


def is_shortage(error: Exception) -> bool:
    """Tell whether an error says that memory is short, so that fewer rows at once may fit."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return any(name in str(error) for name in SHORTAGES)
