"""The transformers engine: a loaded model on this machine, read from top to bottom.

`HFEngine._compute` is the engine on one page: images, prefixes, the rows' own tokens, a token a
step, and what is read after answers. Which rows are computed together stands in batches.py, how
they share keys and values in cache.py, and how a token is chosen in decoding.py. Models whose cache
can't be shared so (sliding windows, states) go through transformers' `generate`.
"""

from __future__ import annotations

import importlib.metadata
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import transformers
from transformers import GenerationConfig, LogitsProcessorList
from transformers.utils.generic import ModelOutput

from vjudge.engines.batches import Call, share
from vjudge.engines.cache import RowCache, prefill, why_plain
from vjudge.engines.decoding import Writer, check_finite, read
from vjudge.engines.engine import (
    Answer,
    Answers,
    Ask,
    Engine,
    Quantity,
    Sources,
    Wanted,
    Work,
)
from vjudge.engines.rows import Row
from vjudge.engines.tokens import Encoder, ends_of
from vjudge.engines.vision import ProcessedImages, images_of
from vjudge.models import VisionLanguageModel, settings_fingerprint, weights_fingerprint
from vjudge.prompts import Prompt
from vjudge.records import is_int_at_least

COMPACT_BELOW = 0.75  # rows that are done leave once no more than this share is being written
IMAGE_INDEX = -200  # how the original code counts an image in a prompt
SMALL = 50_000_000  # parameters


class HFEngine(Engine):
    """Run a loaded model on this machine.

    Args:
        model: from `vjudge.models.load`.
        image_mode: "crop" or "pad" for LLaVA-1.5, "anyres" or "pad" for LLaVA-OneVision; None for
            the family's own way. ValueError for one that it does not have.
        threads: of torch on a CPU; None takes one for a small model, else as many as torch has.
    """

    name = "hf"

    def __init__(
        self,
        model: VisionLanguageModel,
        *,
        image_mode: str | None = None,
        threads: int | None = None,
    ) -> None:
        if threads is not None and not is_int_at_least(threads, 1):
            raise ValueError(f"threads={threads!r}: use a whole number from 1, or None")
        images_of(model, image_mode)  # refuses an unknown mode now
        self.model = model
        self.image_mode = image_mode
        self.threads = None  # not ours to say
        if model.device.type == "cpu":
            self.threads = threads or threads_for(model)
        self.encoder = Encoder(
            model.tokenizer,
            image_token_id=model.image_token_id,
            tokens_per_image=model.tokens_per_image,
        )
        self.ends = ends_of(model)
        self.plain = why_plain(model)  # why rows share nothing; None where they do
        self.work: Work = Work()

    def answer(
        self, prompts: Sequence[Prompt], images: Sources, ask: Ask, wanted: Wanted = None
    ) -> Answers:
        """See `Engine.answer`; a row's draws depend on its seed alone."""
        if ask.mode == "value" and self.model.value_head is None:
            raise ValueError(f"judge {self.model.name!r} has no value head")
        call = Call(self, prompts, images, ask, wanted=wanted)
        self.work = call.work
        for batch in call.batches():
            with using_threads(self.threads):
                answers = self._answered(call, batch)
            yield [answer for answer in answers if answer.index in call.wanted]

    def plan(self, prompts: Sequence[Prompt], images: Sources, ask: Ask) -> list[Quantity]:
        """What `answer` would take: all but the answers' length and the time, exactly."""
        verdicts, _, shown, new, total = super().plan(prompts, images, ask)
        call = Call(self, prompts, images, ask)
        n_lost = 0
        encoded: list[str] = []
        for batch in call.batches():
            rows = [row for row in batch if row.failure is None]
            n_lost += len(batch) - len(rows)
            for row in self._shared(call, rows):
                encoded += row.keys
        n_encoded = len(encoded) if self.plain else len(set(encoded))
        return [
            verdicts,
            shown,
            Quantity("unanswerable", n_lost, "", "the run says each reason"),
            Quantity("prompt tokens", call.work.prompt_tokens),
            Quantity("computed", call.work.computed_tokens, "tokens", "each shared one once"),
            Quantity("images encoded", n_encoded),
            Quantity("answers at once", call.work.at_once),
            new,
            total,
        ]

    def identity(self) -> dict[str, Any]:
        """See `Engine.identity`; reads the weights' files the first time."""
        model = self.model
        engine = self.name
        if self.image_mode:
            engine += f", image_mode={self.image_mode}"
        if self.plain:
            engine += ", rows batched plainly"
        versions = {"torch": torch.__version__, "transformers": transformers.__version__}
        if model.quantization is not None:
            versions["bitsandbytes"] = importlib.metadata.version("bitsandbytes")
        if "flash" in model.attention:
            versions["flash-attn"] = importlib.metadata.version("flash-attn")
        return {
            "weights": weights_fingerprint(model.path, *model.others),
            "settings": settings_fingerprint(model.path, *model.others),
            "engine": engine,
            "device": model.device.type,
            "dtype": str(model.dtype).removeprefix("torch."),
            "quantization": model.quantization,
            "attention": model.attention,
            "versions": versions,
        }

    # --- one prompt, for research and for comparison with the original code ---------------------

    @torch.no_grad()  # not inference mode, whose tensors can take no part in later work
    def forward(
        self, prompt: Prompt, images: Sequence[Any], *, image_mode: str | None = None
    ) -> Forward:
        """One pass over a prompt.

        `images`, one for each `IMAGE`, are what `vjudge.images.open_image` opens; `image_mode` None
        is the engine's, else the family's own way. ValueError: too long a prompt, an image that
        can't be opened, an unknown mode.
        """
        call = Call(self, [prompt], [images], Ask(), image_mode=image_mode)
        row = alone(call)
        source = call.source
        inputs = source.inputs([row.ids], [row.keys])
        output = self.model.model(**inputs, use_cache=False)
        logits = output.logits[0, :, : self.model.vocabulary_size].float().cpu()
        if isinstance(source, ProcessedImages):
            pixels = inputs.get("pixel_values")
            if pixels is not None:
                pixels = pixels.float().cpu()
            return Forward(torch.tensor(row.ids), pixels, logits=logits)
        ids = torch.tensor(self.encoder.ids(prompt, image_tokens=[1] * len(images)))
        if not row.keys:
            return Forward(ids, logits=logits)
        ids[ids == self.model.image_token_id] = IMAGE_INDEX
        tiles = torch.cat([source.prepare(key)[0] for key in row.keys])
        features = torch.cat([source.features[key].float().cpu() for key in row.keys])
        return Forward(ids, tiles, features, logits)

    def complete(
        self,
        prompt: Prompt,
        images: Sequence[Any],
        *,
        max_new_tokens: int,
        image_mode: str | None = None,
        repetition_penalty: float = 1.0,
    ) -> list[int]:
        """The greedy continuation of a prompt: token ids, one that ends the answer included.

        A `repetition_penalty` above 1 makes tokens that were generated less likely; the rest is as
        in `forward`.
        """
        ask = Ask(max_new_tokens=max_new_tokens, repetition_penalty=repetition_penalty)
        faults = ask.check()
        if faults:
            raise ValueError("; ".join(faults))
        call = Call(self, [prompt], [images], ask, image_mode=image_mode)
        row = alone(call)
        self._compute(call, [row])
        return row.tokens

    # --- a batch --------------------------------------------------------------------------------

    def _answered(self, call: Call, rows: Sequence[Row]) -> list[Answer]:
        """Answer a batch; when memory is short its halves, and at last a failure that says so."""
        started = time.perf_counter()
        shortage = ""
        try:
            self._compute(call, rows)
        except (RuntimeError, MemoryError) as error:
            if not out_of_memory(error):
                raise
            shortage = str(error).splitlines()[0]
        if shortage:  # outside of the except block, whose traceback keeps the tensors alive
            if self.model.device.type == "cuda":
                torch.cuda.empty_cache()
            rows = [call.row(row.index) for row in rows]
            if len(rows) > 1:
                half = (len(rows) + 1) // 2
                return [*self._answered(call, rows[:half]), *self._answered(call, rows[half:])]
            n_tokens = len(rows[0].ids)
            rows[0].failure = f"out of memory with one prompt of {n_tokens} tokens: {shortage}"
        seconds = time.perf_counter() - started
        call.work.seconds += seconds
        return [row.answer(seconds / len(rows)) for row in rows]

    @torch.inference_mode()
    def _compute(self, call: Call, rows: Sequence[Row]) -> None:
        """Compute a batch whole."""
        # 1) encode each image once
        rows = with_images(call, rows)
        call.work.images = call.source.encoded
        if not rows:
            return
        # 2) compute each distinct prefix once
        passes = self._prefilled(call, rows)
        # 3) write the answers, each from its prefix on
        if call.ask.mode == "feedback":
            self._write(call, rows)
            passes = [reading for row in rows for reading in row.readings]
            call.work.new_tokens += sum(len(row.tokens) for row in rows)
            call.work.computed_tokens += sum(reading.own for reading in passes)
        # 4) read at the verdicts' places and behind answers that are closed, one criterion a round
        while passes:
            self._read(call, passes)
            unsettled = [row for row in rows if row.settle(self.encoder, self._context)]
            passes = self._prefilled(call, unsettled) if unsettled else []
        call.work.images = call.source.encoded

    @property
    def _context(self) -> int:
        return self.model.context_length

    def _shared(self, call: Call, rows: Sequence[Row]) -> list[Row]:
        """What is computed for prompts (readings where nothing is written), behind prefixes."""
        passes: list[Row] = []
        for row in rows:
            passes += row.readings if row.readings else [row]
        work = call.work
        if self.plain is None:
            prefixes = share(passes, self.model.non_text_token_ids)
            work.computed_tokens += sum(len(prefix.ids) for prefix in prefixes)
        work.at_once = max(work.at_once, len(passes))
        work.prompt_tokens += sum(len(row.ids) for row in passes)
        work.computed_tokens += sum(row.own for row in passes)
        return passes

    def _prefilled(self, call: Call, rows: Sequence[Row]) -> list[Row]:
        """`_shared` with the prefixes' keys and values computed."""
        passes = self._shared(call, rows)
        if self.plain is None:
            prefixes = {id(row.prefix): row.prefix for row in passes}
            prefill(self.model, call.source, list(prefixes.values()))
        return passes

    def _write(self, call: Call, rows: Sequence[Row]) -> None:
        """Write answers behind their prefixes, a token a step, until every row is done."""
        if self.plain is not None:
            writer = Writer(self.model, self.ends, rows, call.ask)
            longest = max(row.limit for row in rows)
            self._generate(call, rows, writer, max_new_tokens=longest)
            for row in rows:
                row.end(self.encoder, call.ask, self.ends, self._context)
            return
        cache = RowCache(self.model, rows)
        writer = Writer(self.model, self.ends, cache.rows, call.ask)
        logits = torch.cat([output.logits[:, -1] for _, output in cache.own_tokens()])
        tokens = writer.step(logits.float())
        while True:
            # 1) rows that are done leave, once they are many
            for place in writer.ended:
                row = cache.rows[place]
                row.end(self.encoder, call.ask, self.ends, self._context)
                if row.readings:
                    cache.give_prefix(place)
            alive = [place for place, row in enumerate(cache.rows) if not row.done]
            if not alive:
                return
            if len(alive) <= COMPACT_BELOW * len(cache.rows):
                cache.keep(alive)
                writer.keep(alive)
                tokens = tokens[alive]
            # 2) the others get their next token
            tokens = writer.step(cache.step(tokens))

    def _generate(
        self, call: Call, rows: Sequence[Row], writer: Writer | None, **options: Any
    ) -> Any:
        """The model's own `generate`, whose positions, masks and cache are its own business."""
        pad = self.model.tokenizer.pad_token_id
        settings = GenerationConfig(
            pad_token_id=min(self.ends) if pad is None else int(pad),
            eos_token_id=sorted(self.ends),
            return_dict_in_generate=True,
            **options,
        )
        inputs = call.source.inputs([row.ids for row in rows], [row.keys for row in rows])
        processors = LogitsProcessorList([writer] if writer else [])
        return self.model.model.generate(
            **inputs, generation_config=settings, logits_processor=processors
        )

    def _read(self, call: Call, rows: Sequence[Row]) -> None:
        """Read what stands after rows: distributions over scales, or values."""
        head = self.model.value_head if call.ask.mode == "value" else None
        hidden = head is not None
        passes: Any = []  # rows with the logits and the last layer's states of their last tokens
        if self.plain is None:
            cache = RowCache(self.model, rows)
            for part, output in cache.own_tokens(output_hidden_states=hidden):
                states = output.hidden_states[-1][:, -1] if hidden else None
                passes.append((part, output.logits[:, -1], states))
        else:
            output = self._generate(
                call, rows, None, max_new_tokens=1, output_logits=True, output_hidden_states=hidden
            )
            states = output.hidden_states[0][-1][:, -1] if hidden else None
            passes = [(rows, output.logits[0], states)]
        for part, logits, states in passes:
            if head is None:
                read(self.model, part, logits.float())
                continue
            values = head(states.to(head.weight)).float()
            check_finite(self.model, part, values)
            for row, value in zip(part, values[:, 0].tolist(), strict=True):
                row.value = value


@dataclass
class Forward(ModelOutput):
    """What one pass over a prompt computed, on the CPU; None where there are no images.

    Args:
        input_ids: (ids,) int64; for LLaVA's families one -200 for each image, as the original's
            `tokenizer_image_token` gives them, else the model's own, with all places of an image.
        pixel_values: float32, (tiles, 3, side, side) of all images in order, or as a chat model's
            processor makes them.
        image_features: (places, hidden) after the projector; None for chat models.
        logits: (positions, vocabulary) float32 over the original's vocabulary, images expanded.
    """

    input_ids: torch.Tensor | None = None
    pixel_values: torch.Tensor | None = None
    image_features: torch.Tensor | None = None
    logits: torch.Tensor | None = None


def with_images(call: Call, rows: Sequence[Row]) -> list[Row]:
    """The sound rows whose images can be had; the others fail."""
    rows = [row for row in rows if row.failure is None]
    keys = dict.fromkeys(key for row in rows for key in row.keys)
    broken = call.source.fetch(list(keys))
    for row in rows:
        reasons = [broken[key] for key in row.keys if key in broken]
        if reasons:
            row.failure = "; ".join(reasons)
    return [row for row in rows if row.failure is None]


def alone(call: Call) -> Row:
    """A call's only prompt, with its images; ValueError where it can't be answered."""
    row = call.row(0)
    with_images(call, [row])
    if row.failure is not None:
        raise ValueError(row.failure)
    return row


def threads_for(model: VisionLanguageModel) -> int:
    """How many threads help this model on a CPU: one where its matrices are small, else all."""
    n_parameters = sum(weight.numel() for weight in model.model.parameters())
    return 1 if n_parameters < SMALL else torch.get_num_threads()


@contextmanager
def using_threads(count: int | None) -> Iterator[None]:
    """Let torch use so many threads, and the caller's number afterwards; None changes nothing."""
    before = torch.get_num_threads()
    torch.set_num_threads(count or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def out_of_memory(error: BaseException) -> bool:
    """Whether memory ran out: on a GPU torch says so, on a CPU by a plain RuntimeError."""
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
        return True
    text = str(error).casefold()
    signs = ("out of memory", "allocate memory", "not enough memory")
    return any(sign in text for sign in signs)
