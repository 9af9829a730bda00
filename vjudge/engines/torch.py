"""The torch engine: a loaded model on this machine, read from top to bottom.

A call is cut into blocks of rows that belong together, by their images and texts alone; a block is one batch, or
several where memory is short. In a batch each distinct prefix (what a row shares with others about its images, or all
but its last token) is computed once, its keys and values are copied to the rows, and what a row has to itself follows,
padded on the left. Then all rows write a token a step; finished rows leave.

What is computed together follows from the whole call, never from what is still wanted: a continued run has the bits of
an unbroken one. Models whose cache can't be copied so (sliding windows, states) go through transformers' `generate`.
"""

from __future__ import annotations

import importlib.metadata
import inspect
import itertools
import math
import time
from collections.abc import Container, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
import transformers
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer
from transformers.utils.generic import ModelOutput

from vjudge.engines.decoding import Lanes, Prefix, Row, Writer, generate, rows_abreast
from vjudge.engines.engine import Answer, Ask, Engine, Quantity, Work, check_images, whole
from vjudge.engines.tokens import Encoder, ends_of
from vjudge.engines.vision import ImageFeatures, ProcessedImages
from vjudge.images import Pictures, picture
from vjudge.models import VisionLanguageModel, batch_budget, settings_fingerprint, token_bytes, weights_fingerprint
from vjudge.prompts import Prompt

PLANNED = 256  # tokens of an answer that memory is planned for: feedback is seldom longer, its limit much
PASS_TOKENS = {"cpu": 512}  # of prompts at once; more only leave the CPU's caches
PASS_TOKENS_GPU = 8192
SHORTEST = 8  # tokens: a shorter common beginning is not worth a prefix of its own
IMAGE_INDEX = -200  # how the original code counts an image in a prompt
SHARING_CHATS = ("qwen2_vl", "qwen2_5_vl", "qwen3_vl", "internvl", "llava_next", "llava", "idefics3")
"""Chat models whose prefixes were shared and compared with their own `generate`; others are batched plainly."""
GIB = 1 << 30
SMALL = 50_000_000  # parameters of a decoder


class TorchEngine(Engine):
    """Run a loaded model on this machine.

    Args:
        model: from `vjudge.models.load`.
        max_rows: the most rows of a batch under "auto"; None takes 128 on a CPU and 256 on a GPU.
        image_mode: how images are prepared: "crop" or "pad" for LLaVA-1.5, "anyres" or "pad" for LLaVA-OneVision;
            None for the family's own way.
        threads: of torch on a CPU; None lets the model's size decide, see `threads_for`.

    Raises:
        ValueError: an unsound option; the family has no such image mode.
    """

    name = "torch"

    def __init__(
        self,
        model: VisionLanguageModel,
        *,
        max_rows: int | None = None,
        image_mode: str | None = None,
        threads: int | None = None,
    ) -> None:
        counts = {"max_rows": max_rows, "threads": threads}
        wrong = [name for name, value in counts.items() if value is not None and not whole(value, 1)]
        if faults := [f"{name}={counts[name]!r}: use a whole number from 1, or None" for name in wrong]:
            raise ValueError("; ".join(faults))
        self.model, self.image_mode = model, image_mode
        self.threads = None if model.device.type != "cpu" else threads or threads_for(model)  # None: not ours to say
        self.encoder = Encoder(
            model.tokenizer, image_token_id=model.image_token_id, tokens_per_image=model.tokens_per_image
        )
        self.images_of_a_call()  # refuses an unknown mode now
        self.memory_bytes = batch_budget(model)  # what a batch's cache and activations may take under "auto"
        self.max_rows = max_rows or (128 if model.device.type == "cpu" else 256)
        self.ends = ends_of(model)
        self.plain = why_plain(model)
        self.work: Work = Work()

    # --- a call -------------------------------------------------------------------------------------------------------

    def answer(
        self,
        prompts: Sequence[Prompt],
        images: Sequence[Sequence[Any]],
        ask: Ask,
        wanted: Container[int] | None = None,
    ) -> Iterator[list[Answer]]:
        """See `Engine.answer`; a row's draws depend on its seed alone."""
        if faults := ask.check():
            raise ValueError("; ".join(faults))
        self.work = Work(threads=self.threads or 0, notes=[] if self.plain is None else [self.plain])
        return Call(self, prompts, images, ask, self.work).answers(wanted)

    def plan(
        self, prompts: Sequence[Prompt], images: Sequence[Sequence[Any]], ask: Ask, *, seconds: float = 10.0
    ) -> list[Quantity]:
        """What `answer` would take: counts exactly, times by doing a part of the work."""
        call = Call(self, prompts, images, ask, Work())
        batches = [batch for block in call.blocks() for batch in call.batches(block)]
        rows = [row for batch in batches for row in batch]
        n_tokens = n_computed = sum(len(row.ids) for row in rows)
        if self.plain is None:
            n_computed = sum(len(prefix.ids) for batch in batches for prefix in call.share(batch))
            n_computed += sum(row.own for row in rows)
        n_shown, n_images = sum(len(row.keys) for row in rows), len({key for row in rows for key in row.keys})
        room = max((len(batch) * call.room(max(len(row.ids) for row in batch)) for batch in batches), default=0)
        cached, _ = token_bytes(self.model.model.config, self.model.dtype)
        weights = sum(tensor.nbytes for tensor in self.model.model.parameters())
        n_verdicts = len(prompts) - len(call.failed)
        counts = [
            Quantity("verdicts", len(prompts)),
            Quantity("unanswerable", len(call.failed), note="prompts that fail, each for a reason that the run states"),
            Quantity("prompt tokens", n_tokens),
            Quantity("computed", n_computed, "tokens", "each shared one once"),
            Quantity("saved", 1 - n_computed / max(1, n_tokens), "share of prompt tokens"),
            Quantity("images shown", n_shown),
            Quantity("images encoded", n_images if self.plain is None else n_shown),
            Quantity("answers at once", max(map(len, batches), default=0)),
            Quantity("weights", weights / GIB, "GiB"),
            Quantity("batch", room * cached / GIB, "GiB", "reckoned"),
        ]
        batch = batches[len(batches) // 2] if batches else []  # they stand by length: one of the middle
        new, costs = call.measure(batch, seconds) if batch and seconds > 0 else (math.nan, [math.nan] * 4)
        why = f"no answer ended within {seconds:g} seconds" if seconds > 0 else "nothing was measured: seconds=0"
        why = why if batch else "there is nothing to compute"
        note = why if math.isnan(new) else f"measured on {len(batch)} verdicts"
        counted = (n_images, n_computed, n_verdicts, n_verdicts)
        on_images, on_prompts, on_answers, longest = (cost * n for cost, n in zip(costs, counted, strict=True))
        return [
            *counts,
            Quantity("new tokens", new, "an answer", note),
            Quantity("images", on_images, "seconds", note),
            Quantity("prompts", on_prompts, "seconds", note),
            Quantity("answers", on_answers, "seconds", note),
            Quantity("total", on_images + on_prompts + on_answers, "seconds", note),
            Quantity("at most", on_images + on_prompts + longest, "seconds", note),
        ]

    def identity(self) -> dict[str, Any]:
        """See `Engine.identity`; reads the weights' files the first time."""
        model = self.model
        attention = model.attention
        own = [] if self.image_mode is None else [f"image_mode={self.image_mode}"]
        extras = ["bitsandbytes"] * (model.quantization is not None) + ["flash-attn"] * ("flash" in attention)
        return {
            "weights": weights_fingerprint(model.path, *model.others),
            "settings": settings_fingerprint(model.path, *model.others),
            "engine": ", ".join([self.name, *own, *([] if self.plain is None else ["rows batched plainly"])]),
            "device": model.device.type,
            "dtype": str(model.dtype).removeprefix("torch."),
            "quantization": model.quantization,
            "attention": attention,
            "versions": {
                "torch": torch.__version__,
                "transformers": transformers.__version__,
                **{name: importlib.metadata.version(name) for name in extras},
            },
        }

    def images_of_a_call(self, mode: str | None = None) -> ImageFeatures | ProcessedImages:
        """The images of a call: by the LLaVA families' vision, or a chat model's processor."""
        mode = mode or self.image_mode
        if self.model.kind == "llava":
            return ImageFeatures(self.model, mode)
        return ProcessedImages(self.model, mode)

    # --- research -----------------------------------------------------------------------------------------------------

    @torch.no_grad()  # not inference mode, whose tensors can take no part in later work
    def forward(self, prompt: Prompt, images: Sequence[Any], *, image_mode: str | None = None) -> Forward:
        """One pass over a prompt with an `IMAGE` for each image, for research and for comparison with the original
        code.

        `images` are what `vjudge.images.open_image` opens; `image_mode` None is the engine's, else the family's own
        way.
        ValueError: too long a prompt, an image that can't be opened, an unknown mode.
        """
        source, row, inputs = self._alone(prompt, images, image_mode)
        logits = self.model.model(**inputs, use_cache=False).logits[0, :, : self.model.vocabulary_size].float().cpu()
        ids = torch.as_tensor(row.ids.astype(np.int64))
        if isinstance(source, ProcessedImages):
            pixels = inputs.get("pixel_values")
            return Forward(input_ids=ids, pixel_values=None if pixels is None else pixels.float().cpu(), logits=logits)
        marks = self.encoder.ids(prompt, image_tokens=[1] * len(images))
        ids = torch.tensor([IMAGE_INDEX if token == self.model.image_token_id else token for token in marks])
        tiles, features = source.pixels(row.keys), [source.features(key).float().cpu() for key in row.keys]
        return Forward(
            input_ids=ids,
            pixel_values=torch.cat(tiles).float() if tiles else None,
            image_features=torch.cat(features) if features else None,
            logits=logits,
            tiles_per_image=tuple(map(len, tiles)),
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
        """The greedy continuation of a prompt, `max_new_tokens` at most: token ids, one that ends the answer included.

        A `repetition_penalty` above 1 makes tokens that were generated less likely; other arguments and errors as in
        `forward`.
        """
        ask = Ask(max_new_tokens=max_new_tokens, repetition_penalty=repetition_penalty)
        if faults := ask.check():
            raise ValueError("; ".join(faults))
        _, row, inputs = self._alone(prompt, images, image_mode)
        row.limit = max_new_tokens
        generate(self.model, inputs, Writer([row], ask, self.model, self.ends, counts_prompt=False))
        return row.tokens

    def _alone(self, prompt: Prompt, images: Sequence[Any], mode: str | None) -> tuple[Any, Row, dict[str, Any]]:
        """The inputs of one prompt; its context need not hold an answer."""
        source = self.images_of_a_call(mode)
        check_images(prompt, images)
        keys = source.keys([picture(image) for image in images])
        placed, places = source.place(prompt, keys)
        ids = np.array(self.encoder.ids(placed, image_tokens=places), dtype=np.int32)
        check_length(self.model, ids, self.model.prompt_limit)
        if broken := source.fetch(keys):
            raise ValueError("; ".join(broken.values()))
        return source, Row(0, ids, keys, 0, 0), source.inputs([ids], [keys])


@dataclass
class Forward(ModelOutput):
    """What one pass over a prompt computed, on the CPU.

    Args:
        input_ids: (ids,) int64; for LLaVA's families one -200 for each image, as the original's
            `tokenizer_image_token` gives them; for chat models the model's own, with all places of an image.
        pixel_values: (tiles, 3, side, side) float32, the tiles of all images in order, or as a chat model's processor
            makes them; None without images.
        image_features: (places, hidden) after the projector, as inserted into the prompt; None without images and for
            chat models.
        logits: (positions, vocabulary) float32 over the original's vocabulary, images expanded in place.
        tiles_per_image: how many of the tiles belong to each image.
    """

    input_ids: torch.Tensor | None = None
    pixel_values: torch.Tensor | None = None
    image_features: torch.Tensor | None = None
    logits: torch.Tensor | None = None
    tiles_per_image: tuple[int, ...] | None = None


class Call:
    """One call of the torch engine; `failed` holds the prompts that can't be answered, as far as looked at."""

    def __init__(
        self, engine: TorchEngine, prompts: Sequence[Prompt], images: Sequence[Sequence[Any]], ask: Ask, work: Work
    ) -> None:
        self.engine, self.model, self.encoder = engine, engine.model, engine.encoder
        self.prompts, self.images, self.ask, self.work = prompts, images, ask, work
        self.source = engine.images_of_a_call()
        self.failed: list[Answer] = []
        self._until = math.inf  # when to stop writing, as `time.perf_counter` counts
        self._keys: dict[int, tuple[str, ...]] = {}
        self._stems: dict[int, dict[tuple[int, ...], Row]] = {}
        self._pass_tokens = PASS_TOKENS.get(self.model.device.type, PASS_TOKENS_GPU)
        self._most = int(ask.batch_size) if ask.batch_size != "auto" else engine.max_rows
        cached, active = token_bytes(engine.model.model.config, engine.model.dtype)
        room = engine.memory_bytes - active * self._pass_tokens if engine.plain is None else engine.memory_bytes
        self._room = room // (cached if engine.plain is None else cached + active)  # tokens that a batch may hold

    def answers(self, wanted: Container[int] | None) -> Iterator[list[Answer]]:
        """The answers to rows of `wanted`, a batch at a time; blocks and batches without one are left out."""

        def mine(things: Iterable[Any]) -> list[Any]:
            return [thing for thing in things if wanted is None or thing.index in wanted]

        blocks = self.blocks()
        if failed := mine(self.failed):
            yield failed
        for block in blocks:
            if wanted is not None and not any(index in wanted for index in block):
                continue
            n_failed = len(self.failed)
            with using_threads(self.engine.threads):
                batches = self.batches(block)
            if failed := mine(self.failed[n_failed:]):
                yield failed
            for batch in filter(mine, batches):
                with using_threads(self.engine.threads):
                    answers = self.compute(batch)
                if answers := mine(answers):
                    yield answers

    # --- the plan: what is computed together, from the whole call -----------------------------------------------------

    def blocks(self) -> list[list[int]]:
        """Cut the call into blocks as large as a batch may be, prompts about the same images together, the longest
        first.

        Nothing is tokenised for it: a block of which nothing is wanted costs next to nothing.
        """
        pictures = Pictures()
        groups: dict[tuple[str, ...], list[tuple[str, int]]] = {}
        for index, prompt in enumerate(self.prompts):
            try:
                sources = self.images[index]
                check_images(prompt, sources)
                # Decoded when needed: rows of a data set are read one by one, and none is kept.
                again = [lambda i=index, n=number: pictures(self.images[i][n]).open() for number in range(len(sources))]
                self._keys[index] = keys = self.source.keys(list(map(pictures, sources)), again)
                groups.setdefault(keys, []).append((prompt.text, index))
            except (ValueError, OSError) as error:
                self.failed.append(Answer(index, failure=str(error)))
        by_length = sorted(groups.items(), key=lambda group: -max(len(text) for text, _ in group[1]))
        blocks: list[list[int]] = [[]]
        for _, rows in by_length:
            for number, (_, index) in enumerate(sorted(rows)):  # common beginnings stand together
                size = len(blocks[-1])
                if size >= self._most or (number == 0 and 2 * size >= self._most and size + len(rows) > self._most):
                    blocks.append([])
                blocks[-1].append(index)
        for block in blocks:
            self.source.settle(key for index in block for key in self._keys[index])
        return [block for block in blocks if block]

    def batches(self, block: Sequence[int]) -> list[list[Row]]:
        """Tokenise a block, and cut it where memory does not hold all of it at once."""
        rows: list[Row] = []
        for index in block:
            try:
                rows += self._rows(index)
            except (ValueError, OSError) as error:
                self.failed.append(Answer(index, failure=str(error)))
        most = self._most
        if self.ask.batch_size == "auto" and rows:
            most = max(1, min(most, self._room // self.room(max(len(row.ids) for row in rows))))
        n_batches = -(-len(rows) // most)
        return [rows[n * len(rows) // n_batches : (n + 1) * len(rows) // n_batches] for n in range(n_batches)]

    def room(self, length: int) -> int:
        """The tokens that memory is planned for, of a row with so long a prompt."""
        limit = 0 if self.ask.scores else self.ask.max_new_tokens
        planned = limit if self.engine.plain is not None else min(limit, PLANNED)
        return min(length + planned, self.model.context_length)

    def _rows(self, index: int) -> list[Row]:
        """One prompt as tokens: a row, or in a score pass one for each stem of its scale."""
        ask, encoder, model = self.ask, self.encoder, self.model
        texts = ask.scale(index)
        scale = encoder.scale(ask.marker, texts) if texts else None
        prompt, places = self.source.place(self.prompts[index], self._keys[index])
        if not ask.scores:
            ids = encoder.ids(prompt, image_tokens=places)
        elif scale is None:
            raise ValueError("a score pass needs a scale: this prompt has none")
        else:
            ids = encoder.forced_ids(prompt, scale, image_tokens=places)
        rows = []
        for stem in scale.stems if ask.scores and scale is not None else ((),):
            tokens = np.array([*ids, *stem], dtype=np.int32)
            check_length(model, tokens, min(model.prompt_limit, model.context_length - 1))
            limit = 0 if ask.scores else min(ask.max_new_tokens, model.context_length - len(tokens))
            rows.append(Row(index, tokens, self._keys[index], ask.seed(index), limit, scale, stem))
        return rows

    def share(self, rows: Sequence[Row]) -> list[Prefix]:
        """Give each row its prefix: what rows about the same images have in common, or all but its last token."""
        prefixes = []
        for keys, group in itertools.groupby(rows, key=lambda row: row.keys):
            members = list(group)
            images = np.flatnonzero(np.isin(members[0].ids, self.model.wordless))
            least = max([SHORTEST - 1, *images]) + 1
            shared = [common_length(one.ids, other.ids) for one, other in itertools.pairwise(members)]
            for length, sharers in best_prefixes(members, shared, least)[1]:
                prefixes.append(Prefix(sharers[0].ids[:length], keys))
                for row in sharers:
                    row.prefix = prefixes[-1]
        return prefixes

    # --- the work -----------------------------------------------------------------------------------------------------

    def compute(self, rows: Sequence[Row]) -> list[Answer]:
        """Answer a batch; when it does not fit in the memory, its halves, and at last a failure that says so."""
        started, shortage = time.perf_counter(), None
        rows = [replace(row) for row in rows]  # as none was written before
        try:
            broken = self._batch(rows)
        except (RuntimeError, MemoryError) as error:
            if not out_of_memory(error):
                raise
            shortage = f"out of memory with one prompt of {len(rows[0].ids)} tokens: {str(error).splitlines()[0]}"
        if shortage is not None:  # outside of the except block, whose traceback keeps the failed batch's tensors alive
            if self.model.device.type == "cuda":
                torch.cuda.empty_cache()
            if len(rows) > 1:
                half = (len(rows) + 1) // 2
                return [*self.compute(rows[:half]), *self.compute(rows[half:])]
            rows, broken = [replace(rows[0])], {}
            rows[0].failure = shortage
        answers = []
        for row in rows:
            row.seconds = (time.perf_counter() - started) / len(rows)
            row.failure = "; ".join(broken[key] for key in row.keys if key in broken) or row.failure
            answers += self._scores(row) if self.ask.scores else [row.answer(self.encoder)]
        return answers

    def _scores(self, row: Row) -> list[Answer]:
        """The answer of a score pass, once all stems of its scale are there."""
        assert row.scale is not None
        stems = self._stems.setdefault(row.index, {})
        stems[row.stem] = row
        if len(stems) < len(row.scale.stems):
            return []
        rows = list(self._stems.pop(row.index).values())
        seconds = sum(each.seconds for each in rows)
        answer = Answer(row.index, n_prompt_tokens=len(stems[()].ids), stopped=True, seconds=seconds)
        if failure := next((each.failure for each in rows if each.failure is not None), None):
            return [replace(answer, failure=failure)]
        logprobs = row.scale.logprobs({stem: each.scores[0] for stem, each in stems.items()})
        return [replace(answer, score_logprobs=logprobs)]

    @torch.inference_mode()
    def _batch(self, rows: Sequence[Row]) -> dict[str, str]:
        """Compute a batch whole, and say which of its images can't be had."""
        work, started = self.work, time.perf_counter()
        broken: dict[str, str] = self.source.fetch(list(dict.fromkeys(key for row in rows for key in row.keys)))
        work.images = self.source.encoded
        work.image_seconds += time.perf_counter() - started
        rows = [row for row in rows if not any(key in broken for key in row.keys)]
        if not rows:
            return broken
        work.at_once = max(work.at_once, len(rows))
        work.prompt_tokens += sum(len(row.ids) for row in rows)
        writer, started = Writer(rows, self.ask, self.model, self.engine.ends), time.perf_counter()
        if self.engine.plain is not None:
            generate(self.model, self.source.inputs([row.ids for row in rows], [row.keys for row in rows]), writer)
            work.computed_tokens += sum(len(row.ids) for row in rows)
            prompts_done = time.perf_counter() if self.ask.scores else started  # its time is not told apart
        else:
            self._prefill(self.share(rows))
            prompts_done = self._write(writer, rows)
        work.images = self.source.encoded
        work.prompt_seconds += prompts_done - started
        work.answer_seconds += time.perf_counter() - prompts_done
        work.new_tokens += sum(len(row.tokens) for row in rows)
        return broken

    def _prefill(self, prefixes: Sequence[Prefix]) -> None:
        """Compute prefixes, neighbours together, as many as a pass takes."""
        company: list[Prefix] = []
        for prefix in prefixes:
            if company and (len(company) + 1) * max(len(company[0].ids), len(prefix.ids)) > self._pass_tokens:
                self._prefill_pass(company)
                company = []
            company.append(prefix)
        self._prefill_pass(company)

    def _prefill_pass(self, prefixes: Sequence[Prefix]) -> None:
        inputs = self.source.inputs([prefix.ids for prefix in prefixes], [prefix.keys for prefix in prefixes])
        cache: Any = DynamicCache(config=self.model.model.config.get_text_config())
        inner: Any = getattr(self.model.model, "model", None)
        multimodal, shown = hasattr(inner, "rope_deltas"), any(prefix.keys for prefix in prefixes)
        if not (multimodal and shown):  # otherwise the model places images by itself
            positions = (inputs["attention_mask"].cumsum(-1) - 1).clamp(min=0)
            inputs["position_ids"] = positions.expand(3, *positions.shape) if multimodal else positions
        self.model.model(**inputs, past_key_values=cache, use_cache=True, logits_to_keep=1)
        deltas = inner.rope_deltas.flatten().tolist() if multimodal and shown else [0] * len(prefixes)
        for place, (prefix, delta) in enumerate(zip(prefixes, deltas, strict=True)):
            own, prefix.delta = slice(-len(prefix.ids), None), int(delta)
            prefix.states = [(layer.keys[place, :, own], layer.values[place, :, own]) for layer in cache.layers]
        self.work.computed_tokens += sum(len(prefix.ids) for prefix in prefixes)

    def _write(self, writer: Writer, rows: Sequence[Row]) -> float:
        """The rows' own tokens, then a token a step until every row is done; when the prompts were computed."""
        new = max(row.limit for row in rows)
        lanes = Lanes(self.model, rows, abreast=rows_abreast(self.model, rows), new=new, most=self._pass_tokens)
        for prefix in {row.prefix for row in rows}:
            prefix.states = []
        writer.rows = lanes.rows
        logits = [self.model.model(**inputs).logits.flatten(0, 1).float() for inputs in lanes.passes()]
        self.work.computed_tokens += sum(row.own for row in rows)
        tokens = writer.step(torch.cat(logits))
        prompts_done = time.perf_counter()
        while writer.going and time.perf_counter() < self._until:
            if (places := lanes.compact()) is not None:
                writer.keep(places)
                tokens = tokens[places]
            tokens = writer.step(self.model.model(**lanes.step(tokens)).logits.flatten(0, 1).float())
        return prompts_done

    def measure(self, batch: Sequence[Row], seconds: float) -> tuple[float, list[float]]:
        """Do a batch, as time allows: tokens of an answer; seconds of an image, a token, an answer, the longest."""
        self._until = time.perf_counter() + seconds
        with using_threads(self.engine.threads):
            answers = self.compute(batch)
        work, limits = self.work, {row.index: row.limit for row in batch}
        per_image = work.image_seconds / max(1, work.images)
        per_token = work.prompt_seconds / max(1, work.computed_tokens)
        if self.ask.scores:
            return 0.0, [per_image, per_token, 0.0, 0.0]
        per_new = work.answer_seconds / max(1, work.new_tokens)
        sound = [answer for answer in answers if answer.failure is None]
        lengths = [each.n_new_tokens for each in sound if each.stopped or each.n_new_tokens == limits[each.index]]
        length = sum(lengths) / len(lengths) if lengths else math.nan
        return length, [per_image, per_token, per_new * length, per_new * self.ask.max_new_tokens]


def best_prefixes(
    rows: Sequence[Row], shared: Sequence[int], least: int
) -> tuple[int, list[tuple[int, Sequence[Row]]]]:
    """The tokens saved, and each prefix's length with its rows, of the prefixes that save most.

    The rows are about the same images, sorted by text; `shared` is how many tokens each has in common with the next.
    """
    if len(rows) == 1:
        return 0, [(len(rows[0].ids) - 1, rows)]
    common = min(*shared, *(len(row.ids) - 1 for row in rows))
    together = (len(rows) - 1) * common if common >= least else 0
    cuts = [0, *(place for place, length in enumerate(shared, start=1) if length == min(shared)), len(rows)]
    parts = [best_prefixes(rows[a:b], shared[a : b - 1], least) for a, b in itertools.pairwise(cuts)]
    apart = sum(saved for saved, _ in parts)
    if together > apart:
        return together, [(common, rows)]
    return apart, [prefix for _, prefixes in parts for prefix in prefixes]


def common_length(one: np.ndarray, other: np.ndarray) -> int:
    """How many leading tokens two rows have in common."""
    size = min(len(one), len(other))
    apart = np.flatnonzero(one[:size] != other[:size])
    return int(apart[0]) if len(apart) else size


def check_length(model: VisionLanguageModel, ids: np.ndarray, limit: int) -> None:
    """Refuse a prompt of more tokens than the limit, which is the tokenizer's or that of the model's context."""
    if len(ids) <= limit:
        return
    n_image_tokens = int(np.isin(ids, model.wordless).sum())
    places = f", {n_image_tokens} of them for images," if n_image_tokens else ""
    reason = (
        f"this judge's limit is {model.prompt_limit} (the original cuts a longer prompt and then fails)"
        if limit == model.prompt_limit
        else f"the model's context holds {model.context_length}, an answer included"
    )
    raise ValueError(f"the prompt has {len(ids)} tokens{places} and {reason}; shorten the item's texts")


def why_plain(model: VisionLanguageModel) -> str | None:
    """Why a model's rows share no prefixes, by its configuration; None where they do."""
    config = model.model.config.get_text_config()
    kind = str(model.model.config.model_type)
    if model.kind == "chat" and kind not in SHARING_CHATS:
        return f"{kind}: rows share no images or prefixes here and are batched plainly: not tried for this model"
    needs = {"attention_mask", "position_ids", "past_key_values", "logits_to_keep"}
    lacks = needs - inspect.signature(model.model.forward).parameters.keys()
    if lacks or getattr(model.model, "_is_stateful", False):
        return f"{kind}: rows share no prefixes here and are batched plainly: its positions or cache are its own"
    scaling = (getattr(config, "rope_parameters", None) or {}).get("rope_type")
    if scaling in ("dynamic", "longrope"):
        return f"{kind}: rows are batched plainly: its positions are scaled by the prompt's length ({scaling})"
    if any(type(layer) is not DynamicLayer for layer in DynamicCache(config=config).layers):
        return f"{kind}: rows share no prefixes here and are batched plainly: it has layers with a window or a state"
    return None


def threads_for(model: VisionLanguageModel) -> int:
    """How many threads help this model on a CPU: one where its matrices are small, else as many as torch has."""
    size = sum(weight.numel() for weight in model.model.parameters())
    return 1 if size < SMALL else torch.get_num_threads()


@contextmanager
def using_threads(count: int | None) -> Iterator[None]:
    """Let torch use so many threads, and the caller's number again afterwards."""
    before = torch.get_num_threads()
    if count is None or count == before:
        yield
        return
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def out_of_memory(error: BaseException) -> bool:
    """Whether memory ran out: on a GPU torch says so, on a CPU by a plain RuntimeError."""
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
        return True
    signs = ("out of memory", "can't allocate memory", "cannot allocate memory", "not enough memory")
    return any(sign in str(error).casefold() for sign in signs)
