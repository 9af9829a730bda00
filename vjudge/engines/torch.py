"""The torch engine: a loaded model on this machine, read from top to bottom.

A call is cut into blocks of prompts that belong together, by their images and texts alone; a block is one batch, or
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
import time
from collections.abc import Container, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
import transformers
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer
from transformers.utils.generic import ModelOutput

from vjudge.engines.decoding import Lanes, Prefix, Row, Writer, cut, generate, multimodal
from vjudge.engines.engine import Answer, Ask, Engine, Quantity, Work, check_images, whole
from vjudge.engines.tokens import Encoder, ends_of
from vjudge.engines.vision import ImageFeatures, ProcessedImages, images_of
from vjudge.images import Pictures, picture
from vjudge.models import VisionLanguageModel, batch_budget, settings_fingerprint, token_bytes, weights_fingerprint
from vjudge.prompts import Prompt

LIMITS = {"cpu": (128, 512)}  # rows of a batch under "auto", tokens of prompts at once: more leave the CPU's caches
LIMITS_ELSEWHERE = (256, 8192)
PLANNED = 256  # tokens of an answer that memory is planned for: feedback is seldom longer, its limit much
SHORTEST = 8  # tokens: a shorter common beginning is not worth a prefix of its own
IMAGE_INDEX = -200  # how the original code counts an image in a prompt
SMALL = 50_000_000  # parameters
SHARING_CHATS = ("qwen2_vl", "qwen2_5_vl", "qwen3_vl", "internvl", "llava_next", "llava", "idefics3")
"""Chat models whose prefixes were shared and compared with their own `generate`; others are batched plainly."""


class TorchEngine(Engine):
    """Run a loaded model on this machine.

    Args:
        model: from `vjudge.models.load`.
        image_mode: how images are prepared: "crop" or "pad" for LLaVA-1.5, "anyres" or "pad" for LLaVA-OneVision;
            None for the family's own way.
        threads: of torch on a CPU; None lets the model's size decide, see `threads_for`.

    Raises:
        ValueError: an unsound option; the family has no such image mode.
    """

    name = "torch"

    def __init__(
        self, model: VisionLanguageModel, *, image_mode: str | None = None, threads: int | None = None
    ) -> None:
        if not (threads is None or whole(threads, 1)):
            raise ValueError(f"threads={threads!r}: use a whole number from 1, or None")
        self.model, self.image_mode = model, image_mode
        self.threads = None if model.device.type != "cpu" else threads or threads_for(model)  # None: not ours to say
        self.encoder = Encoder(
            model.tokenizer, image_token_id=model.image_token_id, tokens_per_image=model.tokens_per_image
        )
        self.images_of_a_call()  # refuses an unknown mode now
        self.memory_bytes = batch_budget(model)  # what a batch's cache and activations may take under "auto"
        self.ends, self.plain = ends_of(model), why_plain(model)
        self.work: Work = Work()

    def answer(
        self, prompts: Sequence[Prompt], images: Sequence[Sequence[Any]], ask: Ask, wanted: Container[int] | None = None
    ) -> Iterator[list[Answer]]:
        """See `Engine.answer`; a row's draws depend on its seed alone."""
        if faults := ask.check():
            raise ValueError("; ".join(faults))
        self.work = Work(threads=self.threads or 0, notes=[] if self.plain is None else [self.plain])
        return TorchCall(self, prompts, images, ask, self.work).answers(wanted)

    def plan(self, prompts: Sequence[Prompt], images: Sequence[Sequence[Any]], ask: Ask) -> list[Quantity]:
        """What `answer` would take: everything but the answers' length and the time, exactly."""
        verdicts, _, shown, new, total = super().plan(prompts, images, ask)
        batches = [
            [row for rows in batch for row in rows if row.failure is None]
            for batch in TorchCall(self, prompts, images, ask, Work()).batches()
        ]
        rows = [row for batch in batches for row in batch]
        n_tokens = n_computed = sum(len(row.ids) for row in rows)
        keys = [key for row in rows for key in row.keys]
        if self.plain is None:
            n_computed = sum(len(prefix.ids) for batch in batches for prefix in share(batch, self.model.wordless))
            n_computed += sum(row.own for row in rows)
        return [
            verdicts,
            Quantity("unanswerable", len(prompts) - len({row.index for row in rows}), "", "the run says each reason"),
            Quantity("prompt tokens", n_tokens),
            Quantity("computed", n_computed, "tokens", "each shared one once"),
            shown,
            Quantity("images encoded", len(keys if self.plain is not None else set(keys))),
            Quantity("answers at once", max(map(len, batches), default=0)),
            new,
            total,
        ]

    def identity(self) -> dict[str, Any]:
        """See `Engine.identity`; reads the weights' files the first time."""
        model = self.model
        ways = [self.name, *([f"image_mode={self.image_mode}"] if self.image_mode else [])]
        extras = ["bitsandbytes"] * (model.quantization is not None) + ["flash-attn"] * ("flash" in model.attention)
        versions = {"torch": torch.__version__, "transformers": transformers.__version__}
        return {
            "weights": weights_fingerprint(model.path, *model.others),
            "settings": settings_fingerprint(model.path, *model.others),
            "engine": ", ".join([*ways, *(["rows batched plainly"] if self.plain else [])]),
            "device": model.device.type,
            "dtype": str(model.dtype).removeprefix("torch."),
            "quantization": model.quantization,
            "attention": model.attention,
            "versions": versions | {name: importlib.metadata.version(name) for name in extras},
        }

    def images_of_a_call(self, mode: str | None = None) -> ImageFeatures | ProcessedImages:
        """What prepares the images of a call."""
        return images_of(self.model, mode or self.image_mode)

    # --- research -----------------------------------------------------------------------------------------------------

    @torch.no_grad()  # not inference mode, whose tensors can take no part in later work
    def forward(self, prompt: Prompt, images: Sequence[Any], *, image_mode: str | None = None) -> Forward:
        """One pass over a prompt, for research and for comparison with the original code.

        `images`, one for each `IMAGE`, are what `vjudge.images.open_image` opens; `image_mode` None is the engine's,
        else the family's own way. ValueError: too long a prompt, an image that can't be opened, an unknown mode.
        """
        source, row, inputs = self._alone(prompt, images, image_mode)
        logits = self.model.model(**inputs, use_cache=False).logits[0, :, : self.model.vocabulary_size].float().cpu()
        ids = torch.as_tensor(row.ids.astype(np.int64))
        if isinstance(source, ProcessedImages):
            pixels = inputs.get("pixel_values")
            return Forward(input_ids=ids, pixel_values=None if pixels is None else pixels.float().cpu(), logits=logits)
        marks = self.encoder.ids(prompt, image_tokens=[1] * len(images))
        ids = torch.tensor([IMAGE_INDEX if token == self.model.image_token_id else token for token in marks])
        tiles, features = source.pixels(row.keys), [source.features[key].float().cpu() for key in row.keys]
        return Forward(
            input_ids=ids,
            pixel_values=torch.cat(tiles).float() if tiles else None,
            image_features=torch.cat(features) if features else None,
            logits=logits,
            tiles_per_image=tuple(map(len, tiles)),
        )

    def complete(
        self, prompt: Prompt, images: Sequence[Any], *, max_new_tokens: int, image_mode: str | None = None, **how: Any
    ) -> list[int]:
        """The greedy continuation of a prompt, `max_new_tokens` at most: token ids, one that ends the answer included.

        A `repetition_penalty` above 1 makes tokens that were generated less likely; the rest is as in `forward`.
        """
        ask = Ask(max_new_tokens=max_new_tokens, **how)
        if faults := ask.check():
            raise ValueError("; ".join(faults))
        _, _, inputs = self._alone(prompt, images, image_mode)
        row = Row(0, limit=max_new_tokens)  # without the prompt's tokens, so that no penalty counts them
        generate(self.model, inputs, Writer([row], ask, self.model, self.ends))
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
        return source, Row(0, ids, keys), source.inputs([ids], [keys])


@dataclass
class Forward(ModelOutput):
    """What one pass over a prompt computed, on the CPU; None where there are no images.

    Args:
        input_ids: (ids,) int64; for LLaVA's families one -200 for each image, as the original's
            `tokenizer_image_token` gives them; for chat models the model's own, with all places of an image.
        pixel_values: float32, (tiles, 3, side, side) of all images in order, or as a chat model's processor makes them.
        image_features: (places, hidden) after the projector, as inserted into the prompt; None for chat models.
        logits: (positions, vocabulary) float32 over the original's vocabulary, images expanded in place.
        tiles_per_image: how many of the tiles belong to each image.
    """

    input_ids: torch.Tensor | None = None
    pixel_values: torch.Tensor | None = None
    image_features: torch.Tensor | None = None
    logits: torch.Tensor | None = None
    tiles_per_image: tuple[int, ...] | None = None


class TorchCall:
    """One call of the torch engine. A prompt is a row, or in a score pass a row for each stem of its scale."""

    def __init__(
        self, engine: TorchEngine, prompts: Sequence[Prompt], images: Sequence[Sequence[Any]], ask: Ask, work: Work
    ) -> None:
        self.engine, self.model, self.encoder = engine, engine.model, engine.encoder
        self.prompts, self.images, self.ask, self.work = prompts, images, ask, work
        self.source = engine.images_of_a_call()
        self._keys: dict[int, tuple[str, ...]] = {}
        self._failures: dict[int, str] = {}  # of prompts whose images can't be had
        self._most, self._pass_tokens = LIMITS.get(self.model.device.type, LIMITS_ELSEWHERE)
        self._most = self._most if ask.batch_size == "auto" else int(ask.batch_size)

    def answers(self, wanted: Container[int] | None) -> Iterator[list[Answer]]:
        """The answers to prompts of `wanted`, a batch at a time."""
        for batch in self.batches(wanted):
            with using_threads(self.engine.threads):
                answers = self.compute(batch)
            yield [answer for answer in answers if wanted is None or answer.index in wanted]

    # --- the plan: what is computed together, from the whole call -----------------------------------------------------

    def blocks(self) -> list[list[int]]:
        """Cut the call into blocks as large as a batch may be, prompts about the same images together, the longest
        first; those whose images can't be had stand in one of their own.

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
                self._failures[index] = str(error)
        blocks: list[list[int]] = [[]]
        for rows in sorted(groups.values(), key=lambda rows: -max(len(text) for text, _ in rows)):
            for number, (_, index) in enumerate(sorted(rows)):  # common beginnings stand together
                size = len(blocks[-1])
                if size >= self._most or (number == 0 and 2 * size >= self._most and size + len(rows) > self._most):
                    blocks.append([])
                blocks[-1].append(index)
        for block in blocks:
            self.source.settle(key for index in block for key in self._keys[index])
        return [block for block in [list(self._failures), *blocks] if block]

    def batches(self, wanted: Container[int] | None = None) -> Iterator[list[list[Row]]]:
        """The rows of prompts that are computed together, with any of `wanted` among them: blocks, cut where memory
        does not hold all of one at once; prompts that fail before stand by themselves.
        """
        cached, active = token_bytes(self.model.model.config, self.model.dtype)
        if self.engine.plain is None:
            room = (self.engine.memory_bytes - active * self._pass_tokens) // cached  # in tokens
        else:
            room = self.engine.memory_bytes // (cached + active)
        for block in self.blocks():
            if wanted is not None and not any(index in wanted for index in block):
                continue
            with using_threads(self.engine.threads):
                prompts = list(map(self.rows, block))
            failures = [rows for rows in prompts if rows[0].failure is not None]
            prompts = [rows for rows in prompts if rows[0].failure is None]
            most, lengths = self._most, [len(row.ids) for rows in prompts for row in rows]
            if self.ask.batch_size == "auto" and lengths:
                longest = max(lengths) + (0 if self.ask.scores else min(self.ask.max_new_tokens, PLANNED))
                most = max(1, min(most, room // min(longest, self.model.context_length)))
            n, size = -(-len(lengths) // most), len(prompts)
            for part in (failures, *(prompts[k * size // n : (k + 1) * size // n] for k in range(n))):
                if any(wanted is None or rows[0].index in wanted for rows in part):
                    yield part

    def rows(self, index: int) -> list[Row]:
        """One prompt as tokens, or as a row that says why it can't be answered."""
        ask, model = self.ask, self.model
        if index in self._failures:
            return [Row(index, failure=self._failures[index])]
        keys = self._keys[index]
        try:
            prompt, places = self.source.place(self.prompts[index], keys)
            ids, scale, stems = self.encoder.asked(prompt, ask, index, image_tokens=places)
            rows = []
            for stem in stems:
                tokens = np.array([*ids, *stem], dtype=np.int32)
                check_length(model, tokens, min(model.prompt_limit, model.context_length - 1))
                limit = 0 if ask.scores else min(ask.max_new_tokens, model.context_length - len(tokens))
                rows.append(Row(index, tokens, keys, ask.seed(index), limit, scale, stem))
            return rows
        except (ValueError, OSError) as error:
            return [Row(index, failure=str(error))]

    # --- the work -----------------------------------------------------------------------------------------------------

    def compute(self, prompts: Sequence[list[Row]]) -> list[Answer]:
        """Answer a batch; when it does not fit in the memory, its halves, and at last a failure that says so."""
        started, shortage = time.perf_counter(), None
        fresh = [[replace(row) for row in rows] for rows in prompts]
        try:
            self._batch([row for rows in fresh for row in rows if row.failure is None])
        except (RuntimeError, MemoryError) as error:
            if not out_of_memory(error):
                raise
            n_tokens = len(prompts[0][0].ids)
            shortage = f"out of memory with one prompt of {n_tokens} tokens: {str(error).splitlines()[0]}"
        if shortage is not None:  # outside of the except block, whose traceback keeps the failed batch's tensors alive
            del fresh
            if self.model.device.type == "cuda":
                torch.cuda.empty_cache()
            if len(prompts) > 1:
                half = (len(prompts) + 1) // 2
                return [*self.compute(prompts[:half]), *self.compute(prompts[half:])]
            fresh = [[replace(row, failure=shortage) for row in prompts[0]]]
        seconds = time.perf_counter() - started
        self.work.seconds += seconds
        return [self._answer(rows, seconds / len(fresh)) for rows in fresh]

    def _answer(self, rows: Sequence[Row], seconds: float) -> Answer:
        """What was written, or read after each stem, for one prompt."""
        row, scale, verdict = rows[0], rows[0].scale, None
        failure = next((each.failure for each in rows if each.failure is not None), None)
        ids = row.tokens[:-1] if row.stopped and row.tokens else row.tokens
        if failure is None and scale is not None and self.ask.scores:
            verdict = scale.logprobs({each.stem: each.scores[0] for each in rows})
        elif failure is None and scale is not None and row.scores:
            step = self.encoder.verdict_step(ids, list(row.scores), scale.marker)
            verdict = None if step is None else scale.logprobs({(): row.scores[step]})
        return Answer(
            row.index,
            text=self.encoder.text(ids),
            n_prompt_tokens=len(row.ids),
            n_new_tokens=len(row.tokens),
            score_logprobs=verdict,
            stopped=row.stopped,
            seconds=seconds,
            failure=failure,
        )

    @torch.inference_mode()
    def _batch(self, rows: Sequence[Row]) -> None:
        """Compute a batch whole; a row whose images can't be had fails."""
        work = self.work
        broken: dict[str, str] = self.source.fetch(list(dict.fromkeys(key for row in rows for key in row.keys)))
        for row in rows:
            row.failure = "; ".join(broken[key] for key in row.keys if key in broken) or None
        if rows := [row for row in rows if row.failure is None]:
            work.at_once = max(work.at_once, len(rows))
            work.prompt_tokens += sum(len(row.ids) for row in rows)
            if self.engine.plain is not None:
                writer = Writer(rows, self.ask, self.model, self.engine.ends)
                generate(self.model, self.source.inputs([row.ids for row in rows], [row.keys for row in rows]), writer)
                work.computed_tokens += sum(len(row.ids) for row in rows)
            else:
                self._prefill(share(rows, self.model.wordless))
                self._write(rows)
            work.new_tokens += sum(len(row.tokens) for row in rows)
        work.images = self.source.encoded

    def _prefill(self, prefixes: Sequence[Prefix]) -> None:
        """Compute prefixes, neighbours together, as many as a pass takes."""
        inner: Any = getattr(self.model.model, "model", None)
        for part in cut([len(prefix.ids) for prefix in prefixes], self._pass_tokens):
            company = prefixes[part]
            inputs = self.source.inputs([prefix.ids for prefix in company], [prefix.keys for prefix in company])
            cache: Any = DynamicCache(config=self.model.model.config.get_text_config())
            places_images = multimodal(self.model) and any(prefix.keys for prefix in company)
            if not places_images:  # otherwise the model says itself where they stand
                positions = (inputs["attention_mask"].cumsum(-1) - 1).clamp(min=0)
                inputs["position_ids"] = positions.expand(3, *positions.shape) if multimodal(self.model) else positions
            self.model.model(**inputs, past_key_values=cache, use_cache=True, logits_to_keep=1)
            deltas = inner.rope_deltas.flatten().tolist() if places_images else [0] * len(company)
            for place, (prefix, delta) in enumerate(zip(company, deltas, strict=True)):
                own, prefix.delta = slice(-len(prefix.ids), None), int(delta)
                prefix.states = [(layer.keys[place, :, own], layer.values[place, :, own]) for layer in cache.layers]
            self.work.computed_tokens += sum(len(prefix.ids) for prefix in company)

    def _write(self, rows: Sequence[Row]) -> None:
        """Compute the rows' own tokens, then a token a step until every row is done."""
        lanes = Lanes(self.model, rows, new=max(row.limit for row in rows), most=self._pass_tokens)
        writer = Writer(lanes.rows, self.ask, self.model, self.engine.ends)
        logits = [self.model.model(**inputs).logits.flatten(0, 1).float() for inputs in lanes.passes()]
        for row in rows:
            row.prefix.states = []  # the lanes hold them
        self.work.computed_tokens += sum(row.own for row in rows)
        tokens = writer.step(torch.cat(logits))
        while writer.going:
            if (places := lanes.compact()) is not None:
                writer.keep(places)
                tokens = tokens[places]
            tokens = writer.step(self.model.model(**lanes.step(tokens)).logits.flatten(0, 1).float())


def share(rows: Sequence[Row], wordless: Sequence[int]) -> list[Prefix]:
    """Give each row its prefix: what rows about the same images have in common, or all but its last token."""
    prefixes = []
    for keys, group in itertools.groupby(rows, key=lambda row: row.keys):
        members = list(group)
        images = np.flatnonzero(np.isin(members[0].ids, wordless))
        least = max([SHORTEST - 1, *images]) + 1
        shared = [common_length(one.ids, other.ids) for one, other in itertools.pairwise(members)]
        for length, sharers in best_prefixes(members, shared, least)[1]:
            prefixes.append(Prefix(sharers[0].ids[:length], keys))
            for row in sharers:
                row.prefix = prefixes[-1]
    return prefixes


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
    reason = f"the model's context holds {model.context_length}, an answer included"
    if limit == model.prompt_limit:
        reason = f"this judge's limit is {limit} (the original cuts a longer prompt and then fails)"
    n_image_tokens = int(np.isin(ids, model.wordless).sum())
    places = f", {n_image_tokens} of them for images," if n_image_tokens else ""
    raise ValueError(f"the prompt has {len(ids)} tokens{places} and {reason}; shorten the item's texts")


def why_plain(model: VisionLanguageModel) -> str | None:
    """Why a model's rows share no prefixes, by its configuration; None where they do."""
    config, kind = model.model.config.get_text_config(), str(model.model.config.model_type)
    scaling = (getattr(config, "rope_parameters", None) or {}).get("rope_type")
    needs = {"attention_mask", "position_ids", "past_key_values", "logits_to_keep"}
    own = not needs <= inspect.signature(model.model.forward).parameters.keys()
    reasons = {
        "not tried for this model": model.kind == "chat" and kind not in SHARING_CHATS,
        "its positions or cache are its own": own or getattr(model.model, "_is_stateful", False),
        f"its positions are scaled by the prompt's length ({scaling})": scaling in ("dynamic", "longrope"),
        "it has layers with a window or a state": any(
            type(layer) is not DynamicLayer for layer in DynamicCache(config=config).layers
        ),
    }
    why = next((reason for reason, holds in reasons.items() if holds), None)
    return why and f"{kind}: rows share no images or prefixes here and are batched plainly: {why}"


def threads_for(model: VisionLanguageModel) -> int:
    """How many threads help this model on a CPU: one where its matrices are small, else as many as torch has."""
    return 1 if sum(weight.numel() for weight in model.model.parameters()) < SMALL else torch.get_num_threads()


@contextmanager
def using_threads(count: int | None) -> Iterator[None]:
    """Let torch use so many threads, and the caller's number again afterwards; None leaves it as it is."""
    before = torch.get_num_threads()
    torch.set_num_threads(count or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def out_of_memory(error: BaseException) -> bool:
    """Whether memory ran out: on a GPU torch says so, on a CPU by a plain RuntimeError."""
    signs = ("out of memory", "can't allocate memory", "cannot allocate memory", "not enough memory")
    out = isinstance(error, (torch.OutOfMemoryError, MemoryError))
    return out or any(sign in str(error).casefold() for sign in signs)
