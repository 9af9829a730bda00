"""Writing answers: rows side by side in lanes, their keys and values, and the next token of each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from transformers import DynamicCache, GenerationConfig, LogitsProcessor, LogitsProcessorList
from transformers.cache_utils import DynamicLayer

from vjudge.engines.engine import Answer, Ask
from vjudge.engines.tokens import Encoder, Scale
from vjudge.models import VisionLanguageModel

STEP = 64  # tokens by which keys and values get room
COMPACT_BELOW = 0.75  # lanes whose rows are done leave a batch once no more than this share of it is alive
NOTHING, SHARED = -2, -1  # in a lane: padding, and the tokens of its prefix


@dataclass(eq=False)
class Prefix:
    """The beginning of prompts of a batch, with all its images, computed once: each layer's keys and values (heads,
    tokens, width), and `delta`, what multimodal positions add to a token's number after it.
    """

    ids: np.ndarray
    keys: tuple[str, ...]
    states: list[tuple[torch.Tensor, torch.Tensor]] = field(default_factory=list)
    delta: int = 0


@dataclass(eq=False)
class Row:
    """One prompt, and its answer while it is written.

    `limit` is the most tokens of its answer, 0 in a score pass; `stem` what of a score's text the prompt ends in there;
    `scores` step -> token -> log-probability, where a score's token was written.
    """

    index: int
    ids: np.ndarray
    keys: tuple[str, ...]
    seed: int
    limit: int
    scale: Scale | None = None
    stem: tuple[int, ...] = ()
    prefix: Prefix = field(init=False)
    tokens: list[int] = field(init=False, default_factory=list)
    scores: dict[int, dict[int, float]] = field(init=False, default_factory=dict)
    done: bool = field(init=False, default=False)
    stopped: bool = field(init=False, default=False)
    failure: str | None = field(init=False, default=None)
    seconds: float = field(init=False, default=0.0)
    draws: Any = field(init=False, default=None)

    @property
    def own(self) -> int:
        """How many tokens it has to itself."""
        return len(self.ids) - len(self.prefix.ids)

    def draw(self) -> float:
        """The uniform number of the step about to be written."""
        if self.draws is None:
            self.draws = np.random.default_rng(self.seed).random(self.limit)
        return 0.0 if self.done else float(self.draws[len(self.tokens)])

    def add(self, token: int, ends: frozenset[int]) -> None:
        """Take the next token, unless the row is done and only still in the batch."""
        if not self.done:
            self.tokens.append(token)
            self.stopped = token in ends
            self.done = self.stopped or len(self.tokens) == self.limit

    def answer(self, encoder: Encoder) -> Answer:
        """The answer as far as it is written."""
        ids = self.tokens[:-1] if self.stopped else self.tokens
        step = encoder.verdict_step(ids, list(self.scores), self.scale.marker) if self.scale and self.scores else None
        verdict = None if step is None or self.scale is None else self.scale.logprobs({(): self.scores[step]})
        return Answer(
            self.index,
            text=encoder.text(ids),
            n_prompt_tokens=len(self.ids),
            n_new_tokens=len(self.tokens),
            score_logprobs=None if self.failure else verdict,
            stopped=self.stopped,
            seconds=self.seconds,
            failure=self.failure,
        )


class GrowingLayer(DynamicLayer):
    """A layer's cache in a buffer with room for tokens to come, where `DynamicLayer` copies all it holds every time."""

    def hold(self, buffers: Sequence[torch.Tensor], start: int, end: int) -> None:
        """Take over the tokens from `start` to `end` of keys and values (rows, heads, tokens, width)."""
        self.dtype, self.device, self.is_initialized = buffers[0].dtype, buffers[0].device, True
        self._buffers, self._start, self._end = buffers, start, end
        self.keys, self.values = (buffer[:, :, start:end] for buffer in buffers)
        self._held = self.keys

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Append keys and values (rows, heads, tokens, width); return all of them."""
        more = key_states.shape[2]
        # Anything that gave the layer other tensors since (a selection of rows, say) left the buffers behind.
        if self.keys is not self._held or self._end + more > self._buffers[0].shape[2]:
            held, buffers = self.get_seq_length(), []
            tensors: Any = (self.keys, self.values)
            for tensor in tensors:
                rows, heads, _, width = tensor.shape
                buffers.append(tensor.new_empty((rows, heads, held + more + STEP, width)))
                buffers[-1][:, :, :held] = tensor
            self.hold(buffers, 0, held)
        for buffer, states in zip(self._buffers, (key_states, value_states), strict=True):
            buffer[:, :, self._end : self._end + more] = states
        self.hold(self._buffers, self._start, self._end + more)
        whole: Any = (self.keys, self.values)
        return whole


class Lanes:
    """The rows of a batch side by side: a lane holds one prefix, and after it the rows that share it, `abreast` at
    most.

    With one row a lane, rows are padded on the left as usual. With several, a prefix is kept and read once for all of
    them, and a mask keeps them apart; that pays where prefixes are long. An empty place holds a done row.
    """

    def __init__(self, model: VisionLanguageModel, rows: Sequence[Row], *, abreast: int, new: int, most: int) -> None:
        self.model, self.abreast = model, abreast
        by_prefix: dict[Prefix, list[Row]] = {}
        for row in sorted(rows, key=lambda row: row.own):
            by_prefix.setdefault(row.prefix, []).append(row)
        lanes = [
            members[start : start + abreast]
            for members in by_prefix.values()
            for start in range(0, len(members), abreast)
        ]
        lanes.sort(key=lambda lane: lane[-1].own)
        empty = Row(-1, np.zeros(0, np.int32), (), 0, 0)
        empty.done = True
        self.rows = [row for lane in lanes for row in [*lane, *[empty] * (abreast - len(lane))]]
        self.parts = self._cut(lanes, most)
        self.width = max(len(lane[0].prefix.ids) for lane in lanes) + abreast * lanes[-1][-1].own
        # Whose token stands where: a place in the lane, SHARED for the prefix's, NOTHING for padding.
        slots = np.full((len(lanes), self.width), NOTHING)
        tokens, positions = np.zeros((2, len(lanes), self.width), dtype=np.int64)
        lengths = np.zeros((len(lanes), abreast), dtype=np.int64)
        for first, last, own in self.parts:
            end = self.width - abreast * own
            for number, lane in enumerate(lanes[first:last], start=first):
                size, delta = len(lane[0].prefix.ids), lane[0].prefix.delta
                slots[number, end - size : end] = SHARED
                for place, row in enumerate(lane):
                    after = end + (place + 1) * own
                    here = slice(after - row.own, after)
                    slots[number, here] = place
                    tokens[number, here] = row.ids[size:]
                    positions[number, here] = np.arange(size, len(row.ids)) + delta
                    lengths[number, place] = len(row.ids) + delta
        self._slots, self._tokens, self._positions = map(self._tensor, (slots, tokens, positions))
        self._lengths, self._places = self._tensor(lengths), self._tensor(np.arange(abreast))
        # Which keys each place sees while answers are written, those to come included: (lanes, 1, places, keys).
        slots_to_be = torch.cat([self._slots, self._places.repeat(new).expand(len(lanes), -1)], dim=1)[:, None, None]
        self._visible = (slots_to_be == SHARED) | (slots_to_be == self._places[:, None])
        self._caches, self.cache = self._hold(lanes, abreast * min(STEP, new))

    def passes(self) -> Iterator[dict[str, Any]]:
        """What the model takes to compute the rows' own tokens, a pass at a time."""
        for (first, last, own), cache in zip(self.parts, self._caches, strict=True):
            size, end = cache.get_seq_length(), self.width - self.abreast * own
            slots = self._slots[first:last, None, end - size :]
            columns = torch.arange(slots.shape[-1], device=slots.device)
            visible = (slots == SHARED) | (slots == slots[:, :, size:].transpose(1, 2))
            visible &= columns <= columns[size:, None]
            here = (slice(first, last), slice(end, None))
            yield {
                **self._inputs(self._tokens[here], self._positions[here], visible[:, None]),
                "past_key_values": cache,
                "logits_to_keep": (self._places + 1) * own - 1,
            }
        self._caches = []

    def step(self, tokens: torch.Tensor) -> dict[str, Any]:
        """What the model takes to compute the next token of every row, from the last ones (rows,)."""
        visible = self._visible[..., : self.cache.get_seq_length() + self.abreast]
        inputs = self._inputs(tokens.view(-1, self.abreast), self._lengths, visible)
        self._lengths = self._lengths + 1
        return {**inputs, "past_key_values": self.cache, "logits_to_keep": 0}

    def compact(self) -> list[int] | None:
        """Drop lanes whose rows are done, once they are many; the places of the rows that stay, None for all."""
        size = self.abreast
        starts = range(0, len(self.rows), size)
        alive = [n for n, start in enumerate(starts) if not all(row.done for row in self.rows[start : start + size])]
        if len(alive) > COMPACT_BELOW * len(starts):
            return None
        keep = torch.tensor(alive)  # on the CPU: the layers' caches may be on several devices
        self.cache.batch_select_indices(keep)
        self._visible, self._lengths = self._visible[keep], self._lengths[keep]
        places = [number * size + place for number in alive for place in range(size)]
        self.rows = [self.rows[place] for place in places]
        return places

    def _cut(self, lanes: Sequence[Sequence[Row]], most: int) -> list[tuple[int, int, int]]:
        """Lanes whose own tokens are computed in one pass, as (first, last, longest of their rows' own tokens)."""
        parts: list[tuple[int, int, int]] = []
        for number, lane in enumerate(lanes):
            if not parts or (number + 1 - parts[-1][0]) * self.abreast * lane[-1].own > most:
                parts.append((number, number, 0))
            parts[-1] = (parts[-1][0], number + 1, lane[-1].own)
        return parts

    def _hold(self, lanes: Sequence[Sequence[Row]], room: int) -> tuple[list[Any], Any]:
        """One buffer a layer with every prefix in its lanes; a cache for each part, and the one of all of them."""
        config = self.model.model.config.get_text_config()
        caches: list[Any] = [DynamicCache(config=config) for _ in self.parts]
        whole: Any = DynamicCache(config=config)
        sizes = [len(lane[0].prefix.ids) for lane in lanes]
        for layer in range(len(whole.layers)):
            states = [lane[0].prefix.states[layer] for lane in lanes]
            size = self.width + room
            buffers = [part.new_empty((len(lanes), part.shape[0], size, part.shape[2])) for part in states[0]]
            for (first, last, own), cache in zip(self.parts, caches, strict=True):
                end = self.width - self.abreast * own
                for kind, buffer in enumerate(buffers):
                    buffer[first:last, :, : end - min(sizes[first:last])] = 0  # masked, and must hold numbers
                    for number in range(first, last):
                        buffer[number, :, end - sizes[number] : end] = states[number][kind]
                cache.layers[layer] = GrowingLayer()
                cache.layers[layer].hold([buffer[first:last] for buffer in buffers], end - max(sizes[first:last]), end)
            whole.layers[layer] = GrowingLayer()
            whole.layers[layer].hold(buffers, 0, self.width)
        return caches, whole

    def _inputs(self, tokens: torch.Tensor, positions: torch.Tensor, visible: torch.Tensor) -> dict[str, Any]:
        config = self.model.model.config.get_text_config()
        multimodal = hasattr(getattr(self.model.model, "model", None), "rope_deltas")
        return {
            "input_ids": tokens,
            # Other kinds of attention take no mask of a row's own, and have one row a lane.
            "attention_mask": visible if config._attn_implementation == "sdpa" else visible[:, 0, -1].long(),
            "position_ids": positions.expand(3, *positions.shape) if multimodal else positions,
            "use_cache": True,
        }

    def _tensor(self, array: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(array).to(self.model.device)


def rows_abreast(model: VisionLanguageModel, rows: Sequence[Row]) -> int:
    """How many rows stand in a lane: two where they share a prefix that is twice as long as what is a row's own.

    More than two were slower in `tests/bench/versus.py`, as two may be behind a short prefix: every row is multiplied
    with all of its lane.
    """
    if model.model.config.get_text_config()._attn_implementation != "sdpa":
        return 1  # the others take no mask of a lane's own
    sharing = len(rows) / len({row.prefix for row in rows})
    prefix, own = (sum(len(row.prefix.ids) for row in rows), sum(row.own for row in rows))
    return 2 if sharing >= 2 and prefix > 2 * own else 1


class Writer:
    """Write answers: it takes the logits of a step and says each row's next token.

    The repetition penalty counts the prompt as published: LLaVA generates from embeddings, so there is none to count;
    vLLM, which ran Prometheus, and transformers count it.
    """

    def __init__(
        self,
        rows: Sequence[Row],
        ask: Ask,
        model: VisionLanguageModel,
        ends: frozenset[int],
        *,
        counts_prompt: bool | None = None,
    ) -> None:
        self.rows, self.ask, self.model, self.ends = list(rows), ask, model, ends
        self._counts_prompt = model.kind != "llava" if counts_prompt is None else counts_prompt
        self._counted: torch.Tensor | None = None  # (rows, vocabulary): what the penalty counts

    @property
    def going(self) -> bool:
        """Whether any row of the batch is not done."""
        return not all(row.done for row in self.rows)

    def keep(self, places: list[int]) -> None:
        """Note that these rows alone stay in the batch, in this order."""
        self.rows = [self.rows[place] for place in places]
        if self._counted is not None:
            self._counted = self._counted[places]

    def step(self, logits: torch.Tensor) -> torch.Tensor:
        """The next token of each row from float32 logits (rows, vocabulary), changed in place; scores are noted."""
        for place in (~torch.isfinite(logits.amax(-1))).nonzero().flatten().tolist():
            row = self.rows[place]
            if not row.done:
                row.done = True
                row.failure = (
                    f"the model's output is not finite (NaN or infinity) at token {len(row.tokens) + 1}: its weights"
                    f" are damaged, or {self.model.dtype} overflows: try dtype='float32'"
                )
        self.model.leave_words(logits)
        if self.ask.scores:
            self._score({n: row.scale.reads(row.stem) for n, row in enumerate(self.rows) if row.scale}, logits)
            for row in self.rows:
                row.done = True
            return logits.argmax(-1)
        chances, ask = self._penalized(logits), self.ask
        if ask.temperature == 0:
            tokens = chances.argmax(-1)
        else:
            tokens = draw_tokens(chances, [row.draw() for row in self.rows], ask.temperature, ask.top_p)
        steps = list(zip(self.rows, tokens.tolist(), strict=True))
        verdicts = {}
        for place, (row, token) in enumerate(steps):
            if not row.done and row.scale and token in row.scale.tokens.values():
                verdicts[place] = list(row.scale.tokens.values())
        self._score(verdicts, logits)
        for row, token in steps:
            row.add(token, self.ends)
        if self._counted is not None:
            self._counted.scatter_(1, tokens[:, None], True)
        return tokens

    def _score(self, verdicts: Mapping[int, list[int]], logits: torch.Tensor) -> None:
        """Log-probabilities of scores' tokens in the whole vocabulary, before temperature, top_p and penalty."""
        if not verdicts:
            return
        chosen = logits[list(verdicts)]
        logprobs = (chosen - chosen.logsumexp(-1, keepdim=True)).cpu()
        for line, (place, tokens) in zip(logprobs, verdicts.items(), strict=True):
            row = self.rows[place]
            row.scores[len(row.tokens)] = dict(zip(tokens, line[tokens].tolist(), strict=True))

    def _penalized(self, logits: torch.Tensor) -> torch.Tensor:
        """The logits after the repetition penalty.

        Source: Keskar et al., CTRL (arXiv 1909.05858), section 4.1, with the sign as Hugging Face and vLLM have it.
        """
        penalty = self.ask.repetition_penalty
        if penalty == 1.0:
            return logits
        if self._counted is None:
            self._counted = torch.zeros_like(logits, dtype=torch.bool)
            for place, row in enumerate(self.rows if self._counts_prompt else ()):
                self._counted[place, torch.as_tensor(row.ids, dtype=torch.long, device=logits.device)] = True
        return torch.where(self._counted, torch.where(logits < 0, logits * penalty, logits / penalty), logits)


def draw_tokens(logits: torch.Tensor, draws: Sequence[float], temperature: float, top_p: float) -> torch.Tensor:
    """The token of each row at its draw in [0, 1): the inverse of what temperature and top_p leave of the logits."""
    uniform = torch.tensor(draws, dtype=logits.dtype, device=logits.device)
    chances, order = (logits / temperature).softmax(-1).sort(dim=-1, descending=True, stable=True)
    kept = chances.cumsum(-1) - chances < top_p
    reached = (chances * kept).cumsum(-1)
    place = (reached <= uniform[:, None] * reached[:, -1:]).sum(-1, keepdim=True)
    # Rounding can put a draw near 1 past the last kept token.
    return order.gather(-1, torch.minimum(place, kept.sum(-1, keepdim=True) - 1)).squeeze(-1)


@torch.inference_mode()
def generate(model: VisionLanguageModel, inputs: Mapping[str, Any], writer: Writer) -> None:
    """Write answers by the model's own `generate`: its positions, masks and cache are its own business."""
    pad = model.tokenizer.pad_token_id
    config = GenerationConfig(
        do_sample=False,
        max_new_tokens=max(1, *(row.limit for row in writer.rows)),
        pad_token_id=min(writer.ends) if pad is None else int(pad),
        eos_token_id=sorted(writer.ends),
    )
    processors = LogitsProcessorList([WriterChoice(writer)])
    model.model.generate(**inputs, generation_config=config, logits_processor=processors)


class WriterChoice(LogitsProcessor):
    """Let a writer choose: every token but its choice is ruled out, and a row that is done ends."""

    def __init__(self, writer: Writer) -> None:
        self.writer = writer

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        done = torch.tensor([row.done for row in self.writer.rows], device=scores.device)
        tokens = self.writer.step(scores.float()).masked_fill(done, min(self.writer.ends))
        return torch.full_like(scores, -torch.inf).scatter_(1, tokens[:, None], 0.0)
