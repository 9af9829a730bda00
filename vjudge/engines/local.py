"""The torch engine: decode many prompts on this machine, sharing work between them.

It decodes by itself instead of calling `generate`, because a judge needs what that does not give: the distribution over
the scores at the very step that wrote the verdict; images encoded once and common beginnings of prompts computed once,
however many rows share them; rows that leave when they are done; and draws that depend on a row's own seed alone.

A call is planned first: prompts are put into blocks, those about one image together (planning.py). Within a block they
share prefixes (prefixes.py), and waiting ones take the places of those that are done (stream.py). The plan follows
from all prompts of a call, not from the ones still wanted. A continued run therefore computes what an unbroken one
does, with the same bits on the same machine; at most the block that was cut off is computed again.
"""

from __future__ import annotations

import functools
import importlib.metadata
import math
import time
import warnings
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from typing import Any

import torch
import transformers

from vjudge.engines import trial
from vjudge.engines.budget import bytes_per_token, memory_budget
from vjudge.engines.decoding import Decoding, Job, Row, Writer
from vjudge.engines.encoding import Encoder
from vjudge.engines.engine import Answer, Engine
from vjudge.engines.features import ImageFeatures
from vjudge.engines.forward import Forward, complete, forward
from vjudge.engines.pace import LONG, SIZES, Pace
from vjudge.engines.pictures import ProcessedImages
from vjudge.engines.plain import answer_batch, decode_batch, out_of_memory
from vjudge.engines.planning import Plan, Room, blocks_of, find_jobs
from vjudge.engines.prefixes import leaves
from vjudge.engines.stream import Stream
from vjudge.engines.work import Work
from vjudge.models import VisionLanguageModel, settings_fingerprint, weights_fingerprint
from vjudge.prompts import Prompt

# Passes timed at each size: steps of all answers, passes of prompts alone, blocks of plain batches (pace.py).
STEPS, PASSES, BLOCKS = 8, 3, 1
_said: set[str] = set()


class TorchEngine(Engine):
    """Run a loaded vision-language model on this machine.

    Args:
        model: from `vjudge.models.load`.
        image_cache_bytes: how many bytes of image features to keep on the device.
        memory_bytes: what a batch's cache and activations may take under batch_size="auto"; None takes 2 GiB on a CPU
            and what the weights leave of 80 % of a GPU.
        max_rows: the most rows of a batch under "auto"; None plans for 64 on a CPU and 256 on a GPU, and lets the
            measurement of a long call (pace.py) choose half or twice as many.
        image_mode: how images are prepared: "crop" or "pad" for LLaVA-1.5, "anyres" or "pad" for LLaVA-OneVision;
            None for the family's own way.

    Raises:
        ValueError: the family has no such image mode.
    """

    name = "torch"

    def __init__(
        self,
        model: VisionLanguageModel,
        *,
        image_cache_bytes: int = 1 << 29,
        memory_bytes: int | None = None,
        max_rows: int | None = None,
        image_mode: str | None = None,
    ) -> None:
        self.model = model
        self.image_mode = image_mode
        self.encoder = Encoder(
            model.tokenizer, image_token_id=model.image_token_id, tokens_per_image=model.tokens_per_image
        )
        self.image_cache_bytes = image_cache_bytes
        self.work = Work()  # of the last call
        self._pictures(())  # refuses an unknown mode now
        self.memory_bytes = memory_bytes or memory_budget(model)
        self.max_rows = max_rows or (64 if model.device.type == "cpu" else 256)
        self.ceiling = max_rows or int(max(SIZES) * self.max_rows)
        ends = model.model.generation_config.eos_token_id
        ends = model.tokenizer.eos_token_id if ends is None else ends
        self.ends = frozenset(ends if isinstance(ends, list) else [ends])

    def generate(
        self,
        prompts: Sequence[Prompt],
        images: Sequence[Sequence[Any]],
        *,
        score_texts: Mapping[int, str],
        marker: str,
        max_new_tokens: int,
        temperature: float = 0.0,
        top_p: float = 1.0,
        repetition_penalty: float = 1.0,
        seeds: Sequence[int] | None = None,
        batch_size: int | str = "auto",
        wanted: Container[int] | None = None,
    ) -> Iterator[list[Answer]]:
        """Generate a text for every prompt; see `Engine.generate`.

        A row's draws depend on its seed alone. "auto" plans as many rows in a batch as the memory budget holds. A long
        call measures on its first ones whether half or twice as many are faster (`Work.batch_found`).
        """
        run = Decoding(self.encoder.scale(marker, score_texts), max_new_tokens, temperature, top_p, repetition_penalty)
        return self._run(prompts, images, run, seeds, batch_size, wanted)

    def score(
        self,
        prompts: Sequence[Prompt],
        images: Sequence[Sequence[Any]],
        *,
        score_texts: Mapping[int, str],
        marker: str,
        batch_size: int | str = "auto",
        wanted: Container[int] | None = None,
    ) -> Iterator[list[Answer]]:
        """Read the scores' distribution, one forward pass each; see `Engine.score`."""
        run = Decoding(self.encoder.scale(marker, score_texts), max_new_tokens=0)
        return self._run(prompts, images, run, None, batch_size, wanted)

    def forward(self, prompt: Prompt, images: Sequence[Any], *, image_mode: str | None = None) -> Forward:
        """One pass over a prompt for research; see `vjudge.engines.forward.Forward`.

        Args:
            prompt: with an `IMAGE` for each image.
            images: what `open_image` opens.
            image_mode: None for the engine's, else the family's own way.

        Raises:
            ValueError: too long a prompt, an image that can't be opened, an unknown mode.
        """
        return forward(self.model, self.encoder, prompt, images, image_mode or self.image_mode)

    def complete(
        self,
        prompt: Prompt,
        images: Sequence[Any],
        *,
        max_new_tokens: int,
        image_mode: str | None = None,
        repetition_penalty: float = 1.0,
    ) -> list[int]:
        """The greedy continuation of a prompt: token ids, a token that ends the answer included.

        Args:
            max_new_tokens: at least 1.
            repetition_penalty: above 1 makes tokens that were generated less likely; the prompt's are left alone.

        Other arguments and errors as in `forward`.
        """
        return complete(
            self.model,
            self.encoder,
            prompt,
            images,
            image_mode or self.image_mode,
            ends=self.ends,
            max_new_tokens=max_new_tokens,
            repetition_penalty=repetition_penalty,
        )

    def identity(self) -> dict[str, Any]:
        """See `Engine.identity`; reads the weights' files the first time."""
        code = {} if self.model.code is None else {"code": self.model.code}
        return {
            **code,
            "weights": weights_fingerprint(self.model.path, *self.model.others),
            "settings": settings_fingerprint(self.model.path, *self.model.others),
            "engine": ", ".join(
                [
                    self.name,
                    *([] if self.image_mode is None else [f"image_mode={self.image_mode}"]),
                    *([] if self.plain is None else ["rows batched plainly"]),
                ]
            ),
            "device": self.model.device.type,
            "dtype": str(self.model.dtype).removeprefix("torch."),
            "quantization": self.model.quantization,
            "attention": self.model.model.config._attn_implementation,
            "versions": {"torch": torch.__version__, "transformers": transformers.__version__, **self._extras()},
        }

    def _extras(self) -> dict[str, str]:
        """The versions of the packages that compute a part of the model in place of torch."""
        quantized, flash = self.model.quantization, "flash" in str(self.model.model.config._attn_implementation)
        names = ["bitsandbytes"] * (quantized is not None) + ["flash-attn"] * flash
        return {name: importlib.metadata.version(name) for name in names}

    @property
    def plain(self) -> str | None:
        """Why rows share no prefixes here; None where they do. The model is tried the first time."""
        if not hasattr(self, "_plain"):
            self._plain = self._why_plain()
        return self._plain

    def _why_plain(self) -> str | None:
        reason, kind = trial.why_not(self.model), str(self.model.model.config.model_type)
        if reason is not None and kind not in _said:
            _said.add(kind)
            warnings.warn(f"{kind}: rows share no prefixes here and are batched plainly: {reason}", stacklevel=4)
        return reason

    def plan(
        self,
        prompts: Sequence[Prompt],
        images: Sequence[Sequence[Any]],
        run: Decoding,
        *,
        seeds: Sequence[int] | None = None,
        batch_size: int | str = "auto",
    ) -> Plan:
        """Say what a call is going to compute, without computing it; `vj.plan` shows it.

        Args:
            run: how the call decodes.

        Other arguments as in `generate`.
        """
        features = self._pictures(images)
        encode = self.encoder.ids if run.max_new_tokens else functools.partial(self.encoder.forced_ids, scale=run.scale)
        numbers = range(len(prompts)) if seeds is None else seeds
        jobs, failed = find_jobs(self.model, prompts, images, features, encode, numbers)
        tokens = self.memory_bytes // bytes_per_token(self.model)
        given = batch_size if isinstance(batch_size, int) else None
        room = Room(self.model, run.max_new_tokens, given or self.max_rows, None if given else tokens, self.ceiling)
        shares, tries = self.plain is None, not given and len(jobs) >= LONG * room.rows
        cut = functools.partial(blocks_of, room=room, shares=shares, size=max(SIZES) if tries else 1.0)
        made = [block for window in features.windows(jobs) for block in cut(window)]
        return Plan(made, failed, features, room, tries)

    def _run(
        self,
        prompts: Sequence[Prompt],
        images: Sequence[Sequence[Any]],
        run: Decoding,
        seeds: Sequence[int] | None,
        batch_size: int | str,
        wanted: Container[int] | None,
    ) -> Iterator[list[Answer]]:
        """Plan the whole call, then answer block by block."""
        planned = self.plan(prompts, images, run, seeds=seeds, batch_size=batch_size)
        if failed := [answer for answer in planned.failed if wanted is None or answer.index in wanted]:
            yield failed
        self.work = work = Work()
        times = BLOCKS if self.plain else STEPS if run.max_new_tokens else PASSES
        pace = Pace(tries=planned.tries, times=times, found=self.batch_found)
        self.batch_found = None
        for block in planned.blocks:
            left = {job.index for job in block if wanted is None or job.index in wanted}
            given = self.answer_block(block, planned, run, work, pace) if left else iter(())
            before = work.computed_tokens + work.new_tokens, work.answer_seconds
            while left:
                answers = [answer for answer in next(given) if answer.index in left]
                work.images = planned.features.encoded
                left -= {answer.index for answer in answers}
                work.batch_found = (pace.found or 0.0) if planned.tries else 0.0
                if answers:
                    yield answers
            if self.plain is None:
                pace.settle()  # the first block's passes are enough for a trial
            else:  # nothing, where the call before this one computed the block
                pace.took(work.computed_tokens + work.new_tokens - before[0], work.answer_seconds - before[1])

    def answer_block(
        self,
        jobs: list[Job],
        planned: Plan,
        run: Decoding,
        work: Work,
        pace: Pace | None = None,
        *,
        until: float = math.inf,
    ) -> Iterator[list[Answer]]:
        """Answer a block; when it does not fit in the memory, fewer rows at once.

        Args:
            jobs: a block of the plan, or a part of one in its order.
            work: takes note of what is computed.
            pace: says how many rows at once, as a multiple of what is planned; None for that.
            until: when to stop, answers unfinished, as `time.perf_counter` counts.
        """
        features, pace = planned.features, pace or Pace(tries=False, times=0)
        if self.plain is not None:
            decode = functools.partial(self._decode, run=run)
            rows = planned.room.rows_of(len(jobs[0].ids), answer=run.max_new_tokens, size=pace.size)
            for start in range(0, len(jobs), rows):
                answers = answer_batch(jobs[start : start + rows], features.take, decode, self.model.device)
                work.add_batch(answers)
                yield answers
            return
        most: int | None = None
        while jobs:
            found = leaves(jobs)
            limits_of = functools.partial(planned.room.limits, found, most)
            stream = Stream(
                self.model, found, self._writer([], run), self._row(run), features.take, limits_of, work, pace
            )
            given: set[int] = set()
            failed: list[Answer] = []
            try:
                for answers in stream.answers(until):
                    given |= {answer.index for answer in answers}
                    yield answers
            except torch.OutOfMemoryError as error:
                if len(stream.at_work) <= 1:
                    alone = (stream.at_work or found)[0].job
                    failed = [out_of_memory(alone, error)]
                    given.add(alone.index)
                else:
                    most = max(1, min(stream.limits.slots, len(stream.at_work)) // 2)
                pace.settle()
            jobs = [job for job in jobs if job.index not in given] if time.perf_counter() < until else []
            # Outside the except block, whose traceback would keep the failed pass's tensors alive.
            del stream, found
            if failed:
                yield failed
            if jobs and self.model.device.type == "cuda":
                torch.cuda.empty_cache()

    def _row(self, run: Decoding) -> Callable[[Job], Row]:
        """What makes the answer to a prompt."""
        return lambda job: Row(job, run, room=self.model.context_length - len(job.ids))

    def _decode(self, jobs: list[Job], taken: Mapping[str, Any], run: Decoding) -> list[Answer]:
        """One plain batch."""
        return decode_batch(self.model, jobs, taken, self._writer(jobs, run))

    def _pictures(self, images: Sequence[Sequence[Any]]) -> ImageFeatures | ProcessedImages:
        """The images of a call; a text-only judge refuses any."""
        if not self.model.sees_images:
            if self.image_mode is not None:
                raise ValueError(f"image_mode {self.image_mode!r}: this judge reads no images")
            return ProcessedImages(self.model, images)
        return ImageFeatures(self.model, images, self.image_cache_bytes, self.image_mode)

    def _writer(self, jobs: list[Job], run: Decoding, *, counts_prompt: bool | None = None) -> Writer:
        """What writes the answers of a batch.

        Args:
            counts_prompt: whether the repetition penalty counts the prompt; None as the published code has it. LLaVA
                generates from embeddings, so there is no prompt to count; vLLM, which ran Prometheus, and transformers
                count it.
        """
        if counts_prompt is None:
            counts_prompt = not self.model.sees_images or self.model.processor is not None
        return Writer(
            list(map(self._row(run), jobs)),
            run,
            self.encoder,
            words=self.model.leave_words,
            ends=self.ends,
            counts_prompt=counts_prompt,
        )
