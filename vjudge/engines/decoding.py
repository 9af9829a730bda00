"""Writing answers: rows side by side in lanes, their keys and values, and the next token of each."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from transformers import DynamicCache, GenerationConfig, LogitsProcessor, LogitsProcessorList
from transformers.cache_utils import DynamicLayer

from vjudge.engines.engine import Ask
from vjudge.engines.tokens import Scale
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
    """One prompt as tokens, and its answer while it is written.

    `limit` is the most tokens of its answer, 0 in a score pass; `stem` what of a score's text the prompt ends in there;
    `scores` step -> token -> log-probability, where a score's token was written.
    """

    index: int
    ids: np.ndarray = field(default_factory=functools.partial(np.zeros, 0, np.int32))
    keys: tuple[str, ...] = ()
    seed: int = 0
    limit: int = 0
    scale: Scale | None = None
    stem: tuple[int, ...] = ()
    failure: str | None = None
    prefix: Prefix = field(init=False)
    tokens: list[int] = field(init=False, default_factory=list)
    scores: dict[int, dict[int, float]] = field(init=False, default_factory=dict)
    done: bool = field(init=False, default=False)
    stopped: bool = field(init=False, default=False)

    @property
    def own(self) -> int:
        """How many tokens it has to itself."""
        return len(self.ids) - len(self.prefix.ids)

    @functools.cached_property
    def random(self) -> np.random.Generator:
        """The source of its draws, one a step."""
        return np.random.default_rng(self.seed)


class GrowingLayer(DynamicLayer):
    """A layer's keys and values in buffers (rows, heads, tokens, width) with room for tokens to come, where
    `DynamicLayer` copies all it holds every time; `end` tokens are held.
    """

    def __init__(self, buffers: Sequence[torch.Tensor], end: int) -> None:
        super().__init__()
        self.lazy_initialization(*buffers)
        self._hold(buffers, end)

    def update(self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        """Append keys and values; return all of them."""
        buffers, start = self._buffers, self.get_seq_length()
        end = start + key_states.shape[2]
        if (lack := end - buffers[0].shape[2]) > 0:
            buffers = [torch.nn.functional.pad(buffer, (0, 0, 0, lack + STEP)) for buffer in buffers]
        for buffer, states in zip(buffers, (key_states, value_states), strict=True):
            buffer[:, :, start:end] = states
        self._hold(buffers, end)
        return self.keys, self.values

    def batch_select_indices(self, indices: torch.Tensor) -> None:
        """Keep these rows alone."""
        self._hold([buffer[indices.to(buffer.device)] for buffer in self._buffers], self.get_seq_length())

    def _hold(self, buffers: Sequence[torch.Tensor], end: int) -> None:
        self._buffers = buffers
        self.keys, self.values = (buffer[:, :, :end] for buffer in buffers)


class Lanes:
    """The rows of a batch side by side: a lane is one prefix, and after it the rows that share it, `abreast` at most.

    With one row a lane, rows are padded on the left as usual. With two, a prefix is kept and read once for both, and a
    mask keeps them apart; that pays where prefixes are long. An empty place holds a done row. `new` is the most tokens
    of an answer, `most` those that are computed in one pass.
    """

    def __init__(self, model: VisionLanguageModel, rows: Sequence[Row], *, new: int, most: int) -> None:
        self.model, self.abreast = model, rows_abreast(model, rows)
        abreast, by_prefix = self.abreast, dict[Prefix, list[Row]]()
        for row in sorted(rows, key=lambda row: row.own):
            by_prefix.setdefault(row.prefix, []).append(row)
        lanes = [row[at : at + abreast] for row in by_prefix.values() for at in range(0, len(row), abreast)]
        lanes.sort(key=lambda lane: lane[-1].own)
        empty = Row(-1)
        empty.done = True
        self.rows = [row for lane in lanes for row in [*lane, *[empty] * (abreast - len(lane))]]
        self.prefixes = [lane[0].prefix for lane in lanes]
        widths = [abreast * lane[-1].own for lane in lanes]
        sizes = [len(prefix.ids) for prefix in self.prefixes]
        parts = cut(widths, most)  # lanes whose own tokens are computed in one pass
        self.width = max(sizes) + widths[-1]
        self.parts = [(part, self.width - widths[part.stop - 1]) for part in parts]  # and the column where these begin
        # Whose token stands where: a place in the lane, SHARED for the prefix's, NOTHING for padding.
        slots = np.full((len(lanes), self.width), NOTHING)
        tokens, positions = np.zeros((2, len(lanes), self.width), dtype=np.int64)
        lengths = np.zeros((len(lanes), abreast), dtype=np.int64)
        for part, start in self.parts:
            for number in range(part.start, part.stop):
                prefix, size = self.prefixes[number], len(self.prefixes[number].ids)
                slots[number, start - size : start] = SHARED
                for place, row in enumerate(lanes[number]):
                    end = start + (place + 1) * (self.width - start) // abreast
                    slots[number, end - row.own : end] = place
                    tokens[number, end - row.own : end] = row.ids[size:]
                    positions[number, end - row.own : end] = np.arange(size, len(row.ids)) + prefix.delta
                    lengths[number, place] = len(row.ids) + prefix.delta
        self._slots, self._tokens, self._positions, self._lengths, self._places = (
            torch.from_numpy(array).to(model.device)
            for array in (slots, tokens, positions, lengths, np.arange(abreast))
        )
        # Which keys each place sees while answers are written, those to come included: (lanes, 1, places, keys).
        slots_to_be = torch.cat([self._slots, self._places.repeat(new).expand(len(lanes), -1)], dim=1)[:, None, None]
        self._mask = self._masked((slots_to_be == SHARED) | (slots_to_be == self._places[:, None]))
        self._buffers = []  # keys and values of each layer: (lanes, heads, tokens, width)
        for layer in self.prefixes[0].states:
            heads, _, width = layer[0].shape
            shape = (len(lanes), heads, self.width + abreast * min(STEP, new), width)
            self._buffers.append([part.new_empty(shape) for part in layer])
        self.cache = cache_of(GrowingLayer(buffers, self.width) for buffers in self._buffers)

    def passes(self) -> Iterator[dict[str, Any]]:
        """What the model takes to compute the rows' own tokens, a pass at a time, after their prefixes."""
        sizes = [len(prefix.ids) for prefix in self.prefixes]
        for part, start in self.parts:
            first, layers = start - max(sizes[part]), []
            for layer, buffers in enumerate(self._buffers):
                for kind, buffer in enumerate(buffers):
                    buffer[part, :, : start - min(sizes[part])] = 0  # masked, and must hold numbers
                    for number in range(part.start, part.stop):
                        buffer[number, :, start - sizes[number] : start] = self.prefixes[number].states[layer][kind]
                layers.append(GrowingLayer([buffer[part, :, first:] for buffer in buffers], start - first))
            slots = self._slots[part, None, first:]
            columns = torch.arange(slots.shape[-1], device=slots.device)
            visible = (slots == SHARED) | (slots == slots[:, :, start - first :].transpose(1, 2))
            visible &= columns <= columns[start - first :, None]
            inputs = self._inputs(
                self._tokens[part, start:], self._positions[part, start:], self._masked(visible[:, None])
            )
            ends = (self._places + 1) * ((self.width - start) // self.abreast) - 1
            yield {**inputs, "past_key_values": cache_of(layers), "logits_to_keep": ends}
        self._buffers = []  # the cache has them, and other ones later

    def step(self, tokens: torch.Tensor) -> dict[str, Any]:
        """What the model takes to compute the next token of every row, from the last ones (rows,)."""
        mask = self._mask[..., : self.cache.get_seq_length() + self.abreast]
        inputs = self._inputs(tokens.view(-1, self.abreast), self._lengths, mask)
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
        self._mask, self._lengths = self._mask[keep], self._lengths[keep]
        places = [number * size + place for number in alive for place in range(size)]
        self.rows = [self.rows[place] for place in places]
        return places

    def _masked(self, visible: torch.Tensor) -> torch.Tensor:
        """The mask that attention takes: numbers, which it would make of truth values for each layer anew."""
        if self.model.attention != "sdpa":
            return visible[:, 0, -1].long()  # the others take no mask of a row's own, and have one row a lane
        return torch.zeros_like(visible, dtype=self.model.dtype).masked_fill_(~visible, -torch.inf)

    def _inputs(self, tokens: torch.Tensor, positions: torch.Tensor, mask: torch.Tensor) -> dict[str, Any]:
        positions = positions.expand(3, *positions.shape) if multimodal(self.model) else positions
        return {"input_ids": tokens, "attention_mask": mask, "position_ids": positions, "use_cache": True}


def cache_of(layers: Iterable[GrowingLayer]) -> Any:
    """A cache of these layers."""
    cache: Any = DynamicCache()
    cache.layers = list(layers)
    return cache


def cut(lengths: Sequence[int], most: int) -> list[slice]:
    """Neighbours that are computed in one pass: as many as have about `most` tokens, padding included."""
    parts, start = list[slice](), 0
    for end in range(1, len(lengths) + 1):
        if end - start > 1 and (end - start) * max(lengths[start], lengths[end - 1]) > most:
            parts.append(slice(start, end - 1))
            start = end - 1
    return [*parts, slice(start, len(lengths))]


def multimodal(model: VisionLanguageModel) -> bool:
    """Whether its tokens have three positions each, time, height and width, as in Qwen-VL."""
    return hasattr(getattr(model.model, "model", None), "rope_deltas")


def rows_abreast(model: VisionLanguageModel, rows: Sequence[Row]) -> int:
    """How many rows stand in a lane: two where they share a prefix that is twice as long as what is a row's own.

    More than two were slower in `tests/bench/versus.py`, as two may be behind a short prefix: every row is multiplied
    with all of its lane.
    """
    if model.attention != "sdpa":
        return 1  # the others take no mask of a lane's own
    sharing = len(rows) / len({row.prefix for row in rows})
    prefix, own = (sum(len(row.prefix.ids) for row in rows), sum(row.own for row in rows))
    return 2 if sharing >= 2 and prefix > 2 * own else 1


class Writer(LogitsProcessor):
    """Takes the logits of a step and says each row's next token, to `generate` too.

    The repetition penalty counts the prompt as published: LLaVA generates from embeddings, so there is none to count;
    vLLM, which ran Prometheus, and transformers count it.
    """

    def __init__(self, rows: Sequence[Row], ask: Ask, model: VisionLanguageModel, ends: frozenset[int]) -> None:
        self.rows, self.ask, self.model, self.ends = list(rows), ask, model, ends
        self._counted: torch.Tensor | None = None  # (rows, vocabulary): what the penalty counts

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """What `generate` takes: every token but the choice is ruled out, and a row that is done ends."""
        done = torch.tensor([row.done for row in self.rows], device=scores.device)
        tokens = self.step(scores.float()).masked_fill(done, min(self.ends))
        return torch.full_like(scores, -torch.inf).scatter_(1, tokens[:, None], 0.0)

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
                row.done = row.stopped = True
            return logits.argmax(-1)
        chances, ask = self._penalized(logits), self.ask
        if ask.temperature == 0:
            tokens = chances.argmax(-1)
        else:
            draws = [0.0 if row.done else row.random.random() for row in self.rows]
            tokens = draw_tokens(chances, draws, ask.temperature, ask.top_p)
        if self._counted is not None:
            self._counted.scatter_(1, tokens[:, None], True)
        steps = [(n, self.rows[n], token) for n, token in enumerate(tokens.tolist()) if not self.rows[n].done]
        verdicts = [(n, row.scale) for n, row, token in steps if row.scale and token in row.scale.tokens.values()]
        self._score({n: list(scale.tokens.values()) for n, scale in verdicts}, logits)
        for _, row, token in steps:
            row.tokens.append(token)
            row.stopped = token in self.ends
            row.done = row.stopped or len(row.tokens) == row.limit
        return tokens

    def _score(self, reads: Mapping[int, list[int]], logits: torch.Tensor) -> None:
        """Log-probabilities of scores' tokens in the whole vocabulary, before temperature, top_p and penalty."""
        if not reads:
            return
        chosen = logits[list(reads)]
        logprobs = (chosen - chosen.logsumexp(-1, keepdim=True)).cpu()
        for line, (place, tokens) in zip(logprobs, reads.items(), strict=True):
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
            for place, row in enumerate(self.rows if self.model.kind != "llava" else ()):
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
    model.model.generate(**inputs, generation_config=config, logits_processor=LogitsProcessorList([writer]))
