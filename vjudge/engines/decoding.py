"""Writing answers: rows side by side in lanes, their keys and values, and the next token of each.

Everything that a call of the torch engine keeps between two steps stands here; what is computed together is planned in
torch.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from transformers import (
    DynamicCache,
    GenerationConfig,
    LogitsProcessor,
    LogitsProcessorList,
    StoppingCriteria,
    StoppingCriteriaList,
)
from transformers.cache_utils import DynamicLayer

from vjudge.engines.engine import Answer, Ask
from vjudge.engines.tokens import Encoder, Scale
from vjudge.models import VisionLanguageModel

STEP = 64  # tokens by which keys and values get room
COMPACT_BELOW = 0.75  # lanes whose rows are done leave a batch once no more than this share of it is alive
ABREAST = (1, 2, 4, 8, 16)  # how many rows may stand in a lane
GAIN = 0.8  # several rows a lane are chosen where they take no more than this share of the reading of one
NOTHING, SHARED = -2, -1  # in a lane: padding, and the tokens of its prefix


@dataclass(eq=False)
class Prefix:
    """The beginning of one or more prompts, to be computed once, with all their images.

    Args:
        ids: its tokens.
        keys: of its images.
        company: the prefixes that it is computed with, itself included; settled by the plan.
        place: its row among them.
        states: of each layer, keys and values (prefixes, heads, tokens, width) of the company, once computed.
        delta: what multimodal positions add to a token's number after it.
        users: rows that still need it.
    """

    ids: np.ndarray
    keys: tuple[str, ...]
    company: list[Prefix] = field(default_factory=list)
    place: int = 0
    states: list[tuple[torch.Tensor, torch.Tensor]] = field(default_factory=list)
    delta: int = 0
    users: int = 0


@dataclass(eq=False)
class Row:
    """One prompt, and its answer while it is written.

    Args:
        index: of the prompt in the call.
        ids: its tokens, an image's places included.
        keys: of its images.
        seed: of its draws.
        limit: the most tokens of its answer; 0 in a score pass.
        scale: which tokens carry its scores; None without a scale.
        stem: in a score pass, what of a score's text the prompt ends in.
        prefix: what of it is computed first.
    """

    index: int
    ids: np.ndarray
    keys: tuple[str, ...]
    seed: int
    limit: int
    scale: Scale | None = None
    stem: tuple[int, ...] = ()
    prefix: Prefix = field(default_factory=lambda: Prefix(np.zeros(0, np.int32), ()))
    tokens: list[int] = field(default_factory=list)
    scored: dict[int, dict[int, float]] = field(default_factory=dict)  # step -> token -> log-probability
    done: bool = False
    stopped: bool = False
    failure: str | None = None
    seconds: float = 0.0
    draws: Any = None

    @property
    def own(self) -> int:
        """How many tokens it has to itself."""
        return len(self.ids) - len(self.prefix.ids)

    @property
    def score_tokens(self) -> Iterable[int]:
        """The tokens that may write this row's verdict."""
        return self.scale.tokens.values() if self.scale is not None else ()

    def restart(self) -> None:
        """Forget what was written: memory ran out."""
        self.tokens, self.scored, self.done, self.stopped, self.failure = [], {}, False, False, None

    def draw(self, temperature: float) -> float:
        """The uniform number of the step about to be written."""
        if temperature == 0 or self.done:
            return 0.0
        if self.draws is None:
            self.draws = np.random.default_rng(self.seed).random(self.limit)
        return float(self.draws[len(self.tokens)])

    def add(self, token: int, ends: frozenset[int]) -> None:
        """Take the next token, unless the row is done and only still in the batch."""
        if not self.done:
            self.tokens.append(token)
            self.stopped = token in ends
            self.done = self.stopped or len(self.tokens) == self.limit

    def answer(self, encoder: Encoder) -> Answer:
        """The answer as far as it is written."""
        whole = Answer(self.index, n_prompt_tokens=len(self.ids), n_new_tokens=len(self.tokens), seconds=self.seconds)
        ids = self.tokens[:-1] if self.stopped else self.tokens
        whole = replace(whole, text=encoder.text(ids), stopped=self.stopped, failure=self.failure)
        step = encoder.verdict_step(ids, list(self.scored), self.scale.marker) if self.scale and self.scored else None
        if step is None or self.scale is None or self.failure is not None:
            return whole
        return replace(whole, score_logprobs=self.scale.logprobs({(): self.scored[step]}))


class GrowingLayer(DynamicLayer):
    """A layer's cache in a buffer with room for tokens to come, where `DynamicLayer` copies all it holds every time.

    Selecting or cropping rows works as in `DynamicLayer`: the next token starts a new buffer.
    """

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
    """The rows of a batch side by side: a lane holds one prefix, and after it the rows that share it.

    With one row a lane, rows are padded on the left as usual. With several, a prefix is kept and read once for all of
    them, and a mask keeps them apart; that pays where prefixes are long.

    Args:
        model: what computes.
        rows: of a batch, their prefixes computed.
        abreast: the most rows of a lane.
        room: for how many tokens to come.
        most: tokens in a pass.

    Attributes:
        rows: as they stand in the batch, lane by lane; a place that is left empty holds a row that is done.
        cache: keys and values of all lanes, whole once `passes` is through.
    """

    def __init__(self, model: VisionLanguageModel, rows: Sequence[Row], *, abreast: int, room: int, most: int) -> None:
        self.model, self.abreast = model, abreast
        self._multimodal = hasattr(getattr(model.model, "model", None), "rope_deltas")
        by_prefix: dict[Prefix, list[Row]] = {}
        for row in sorted(rows, key=lambda row: row.own):
            by_prefix.setdefault(row.prefix, []).append(row)
        lanes = [
            members[start : start + abreast]
            for members in by_prefix.values()
            for start in range(0, len(members), abreast)
        ]
        lanes.sort(key=lambda lane: lane[-1].own)
        self.parts: list[list[list[Row]]] = []  # lanes whose own tokens are computed in one pass
        for lane in lanes:
            if not self.parts or (len(self.parts[-1]) + 1) * abreast * lane[-1].own > most:
                self.parts.append([])
            self.parts[-1].append(lane)
        empty = Row(-1, np.zeros(0, np.int32), (), 0, 0, done=True)
        self.rows = [row for lane in lanes for row in [*lane, *[empty] * (abreast - len(lane))]]
        self.width = max(len(lane[0].prefix.ids) for lane in lanes) + abreast * lanes[-1][-1].own
        # Whose token stands where: a place in the lane, SHARED for the prefix's, NOTHING for padding.
        slots = np.full((len(lanes), self.width), NOTHING, dtype=np.int64)
        lengths = np.zeros((len(lanes), abreast), dtype=np.int64)
        number = 0
        for part in self.parts:
            own = part[-1][-1].own
            end = self.width - abreast * own
            for lane in part:
                slots[number, end - len(lane[0].prefix.ids) : end] = SHARED
                for place, row in enumerate(lane):
                    after = end + (place + 1) * own
                    slots[number, after - row.own : after] = place
                    lengths[number, place] = len(row.ids) + row.prefix.delta
                number += 1
        self._slots = torch.from_numpy(slots).to(model.device)
        self._lengths = torch.from_numpy(lengths).to(model.device)
        self._places = torch.arange(abreast, device=model.device)
        self._caches, self.cache = self._hold(room)

    def passes(self) -> Iterator[dict[str, Any]]:
        """What the model takes to compute the rows' own tokens, a pass at a time."""
        first = 0
        for part, cache in zip(self.parts, self._caches, strict=True):
            own, size = part[-1][-1].own, cache.get_seq_length()
            tokens = np.zeros((len(part), self.abreast * own), dtype=np.int64)
            positions = np.zeros_like(tokens)
            for number, lane in enumerate(part):
                for place, row in enumerate(lane):
                    after, start = (place + 1) * own, len(row.prefix.ids)
                    tokens[number, after - row.own : after] = row.ids[start:]
                    positions[number, after - row.own : after] = np.arange(start, len(row.ids)) + row.prefix.delta
            slots = self._slots[first : first + len(part), -size - tokens.shape[1] :]
            mask = slots != NOTHING
            if self.abreast > 1:
                asking = torch.arange(size, slots.shape[1], device=mask.device)[:, None]
                visible = (slots[:, None] == SHARED) | (slots[:, None] == slots[:, size:, None])
                visible &= torch.arange(slots.shape[1], device=mask.device) <= asking
                mask = (visible & mask[:, None])[:, None]
            yield {
                **self._inputs(torch.from_numpy(tokens), torch.from_numpy(positions), mask),
                "past_key_values": cache,
                "logits_to_keep": (self._places + 1) * own - 1,
            }
            first += len(part)
        self._caches = []

    def step(self, tokens: torch.Tensor) -> dict[str, Any]:
        """What the model takes to compute the next token of every row, from the last ones (rows,)."""
        fresh = self._places.expand(len(self._slots), -1)
        self._slots = torch.cat([self._slots, fresh], dim=1)
        mask = self._slots != NOTHING
        if self.abreast > 1:
            shared, own = self._slots[:, None] == SHARED, self._slots[:, None] == self._places[:, None]
            mask = (shared | own)[:, None]
        inputs = self._inputs(tokens.view(-1, self.abreast), self._lengths, mask)
        self._lengths = self._lengths + 1
        return {**inputs, "past_key_values": self.cache, "logits_to_keep": 0}

    def compact(self) -> list[int] | None:
        """Drop lanes whose rows are done, once they are many; the places of the rows that stay, None for all."""
        size = self.abreast
        starts = range(0, len(self.rows), size)
        alive = [n for n, start in enumerate(starts) if not all(row.done for row in self.rows[start : start + size])]
        if len(alive) > COMPACT_BELOW * len(self._slots):
            return None
        keep = torch.tensor(alive)  # on the CPU: the layers' caches may be on several devices
        self.cache.batch_select_indices(keep)
        self._slots, self._lengths = self._slots[keep], self._lengths[keep]
        places = [number * size + place for number in alive for place in range(size)]
        self.rows = [self.rows[place] for place in places]
        return places

    def _inputs(self, tokens: torch.Tensor, positions: torch.Tensor, mask: torch.Tensor) -> dict[str, Any]:
        positions = positions.to(self.model.device)
        return {
            "input_ids": tokens.to(self.model.device),
            "attention_mask": mask.long() if mask.dim() == 2 else mask,
            "position_ids": positions.expand(3, *positions.shape) if self._multimodal else positions,
            "use_cache": True,
        }

    def _hold(self, room: int) -> tuple[list[Any], Any]:
        """One buffer a layer with every prefix in its lanes; a cache for each part, and the one of all of them."""
        config = self.model.model.config.get_text_config()
        caches: list[Any] = [DynamicCache(config=config) for _ in self.parts]
        whole: Any = DynamicCache(config=config)
        lanes = [lane for part in self.parts for lane in part]
        for number in range(len(whole.layers)):
            buffers = []
            for kind in (0, 1):
                first = lanes[0][0].prefix.states[number][kind]
                buffers.append(first.new_empty((len(lanes), first.shape[1], self.width + room, first.shape[3])))
            start = 0
            for part, cache in zip(self.parts, caches, strict=True):
                end = self.width - self.abreast * part[-1][-1].own
                sizes = [len(lane[0].prefix.ids) for lane in part]
                views = [buffer[start : start + len(part)] for buffer in buffers]
                for kind, view in enumerate(views):
                    view[:, :, : end - min(sizes)] = 0  # masked, and must hold numbers
                    for place, (lane, size) in enumerate(zip(part, sizes, strict=True)):
                        states = lane[0].prefix.states[number][kind][lane[0].prefix.place]
                        view[place, :, end - size : end] = states[:, states.shape[1] - size :]
                cache.layers[number] = GrowingLayer()
                cache.layers[number].hold(views, end - max(sizes), end)
                start += len(part)
            whole.layers[number] = GrowingLayer()
            whole.layers[number].hold(buffers, 0, self.width)
        return caches, whole


def rows_abreast(model: VisionLanguageModel, rows: Sequence[Row], new: int) -> int:
    """How many rows of a lane cost least while answers are written.

    A step reads each lane's keys and values once, and multiplies every row with all of its lane. Reading a byte takes a
    CPU about as long as eight multiplications and additions, a GPU about as long as fifty; the smaller one is taken.

    Args:
        new: tokens of an answer to plan for.
    """
    config = model.model.config.get_text_config()
    if config._attn_implementation != "sdpa":
        return 1  # the others take no mask of a lane's own
    sharing = len(rows) / len({row.prefix for row in rows})
    heads = config.num_attention_heads
    few = (getattr(config, "num_key_value_heads", None) or heads) / heads
    prefix = sum(len(row.prefix.ids) for row in rows) / len(rows)
    own = sum(row.own for row in rows) / len(rows) + min(new, 4 * STEP) / 2

    def cost(abreast: int) -> float:
        return 16 * few * (prefix / abreast + own) + prefix + abreast * own

    best = min((number for number in ABREAST if number <= sharing), key=cost, default=1)
    return best if cost(best) <= GAIN * cost(1) else 1


class Writer:
    """Write answers: it takes the logits of a step and says each row's next token.

    Args:
        rows: whose answers are written.
        ask: how the call decodes.
        model: whose vocabulary it is.
        ends: tokens that end an answer.
        counts_prompt: whether the repetition penalty counts the prompt; None as the published code has it. LLaVA
            generates from embeddings, so there is no prompt to count; vLLM, which ran Prometheus, and transformers
            count it.
    """

    def __init__(
        self,
        rows: list[Row],
        ask: Ask,
        model: VisionLanguageModel,
        ends: frozenset[int],
        *,
        counts_prompt: bool | None = None,
    ) -> None:
        self.rows, self.ask, self.model, self.ends = rows, ask, model, ends
        self.live = rows  # the rows in the batch, by their place in it
        if counts_prompt is None:
            counts_prompt = not self.model.sees_images or self.model.processor is not None
        self._counts_prompt = counts_prompt
        self._counted: torch.Tensor | None = None  # (live rows, vocabulary): what the penalty counts

    def step(self, logits: torch.Tensor) -> torch.Tensor:
        """Take the next token of each row in the batch, and where it is a score, the distribution over the scores.

        Args:
            logits: (rows, vocabulary), float32; changed in place.

        Returns:
            The tokens, (rows,); of rows that are done, anything.
        """
        for place in (~torch.isfinite(logits.amax(-1))).nonzero().flatten().tolist():
            row = self.live[place]
            if not row.done:
                row.done = True
                row.failure = (
                    f"the model's output is not finite (NaN or infinity) at token {len(row.tokens) + 1}: its weights"
                    f" are damaged, or {self.model.dtype} overflows: try dtype='float32'"
                )
        self.model.leave_words(logits)
        if self.ask.scores:
            self._score(
                [(place, row, row.scale.reads(row.stem)) for place, row in enumerate(self.live) if row.scale], logits
            )
            for row in self.live:
                row.done = True
            return logits.argmax(-1)
        tokens = self._choose(self._penalized(logits))
        written = tokens.tolist()
        verdicts = []
        for place, (row, token) in enumerate(zip(self.live, written, strict=True)):
            if not row.done and token in row.score_tokens:
                verdicts.append((place, row, list(row.score_tokens)))
        self._score(verdicts, logits)
        for row, token in zip(self.live, written, strict=True):
            row.add(token, self.ends)
        if self._counted is not None:
            self._counted.scatter_(1, tokens[:, None], True)
        return tokens

    @property
    def going(self) -> bool:
        """Whether any row of the batch is not done."""
        return not all(row.done for row in self.live)

    def keep(self, places: list[int]) -> None:
        """Note that these rows alone stay in the batch, in this order."""
        self.live = [self.live[place] for place in places]
        if self._counted is not None:
            self._counted = self._counted[places]

    def _score(self, verdicts: Sequence[tuple[int, Row, list[int]]], logits: torch.Tensor) -> None:
        """Log-probabilities of scores' tokens in the whole vocabulary, before temperature, top_p and penalty."""
        verdicts = [(place, row, tokens) for place, row, tokens in verdicts if row.failure is None]
        if not verdicts:
            return
        chosen = logits[[place for place, _, _ in verdicts]]
        logprobs = (chosen - chosen.logsumexp(-1, keepdim=True)).cpu()
        for line, (_, row, tokens) in zip(logprobs, verdicts, strict=True):
            row.scored[len(row.tokens)] = dict(zip(tokens, line[tokens].tolist(), strict=True))

    def _choose(self, logits: torch.Tensor) -> torch.Tensor:
        """The next token of each row: the argmax, or the inverse of the truncated distribution at the row's draw."""
        if self.ask.temperature == 0:
            return logits.argmax(-1)
        draws = [row.draw(self.ask.temperature) for row in self.live]
        return draw_tokens(logits, draws, self.ask.temperature, self.ask.top_p)

    def _penalized(self, logits: torch.Tensor) -> torch.Tensor:
        """The logits after the repetition penalty.

        Source: Keskar et al., CTRL (arXiv 1909.05858), section 4.1, with the sign as Hugging Face and vLLM have it.
        """
        penalty = self.ask.repetition_penalty
        if penalty == 1.0:
            return logits
        if self._counted is None:
            self._counted = torch.zeros_like(logits, dtype=torch.bool)
            for place, row in enumerate(self.live if self._counts_prompt else ()):
                self._counted[place, torch.as_tensor(row.ids, dtype=torch.long, device=logits.device)] = True
        return torch.where(self._counted, torch.where(logits < 0, logits * penalty, logits / penalty), logits)


def draw_tokens(logits: torch.Tensor, draws: Sequence[float], temperature: float, top_p: float) -> torch.Tensor:
    """The token of each row at its draw: the inverse of the distribution that temperature and top_p leave.

    Args:
        logits: (rows, vocabulary).
        draws: one a row, in [0, 1).
        temperature: above 0.
        top_p: in (0, 1].
    """
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
    model.model.generate(
        **inputs,
        generation_config=config,
        logits_processor=LogitsProcessorList([_Choice(writer)]),
        stopping_criteria=StoppingCriteriaList([_End(writer)]),
    )


class _Choice(LogitsProcessor):
    """Let a writer choose: every token but its choice is ruled out."""

    def __init__(self, writer: Writer) -> None:
        self.writer = writer

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        tokens = self.writer.step(scores.float())
        return torch.full_like(scores, -torch.inf).scatter_(1, tokens[:, None], 0.0)


class _End(StoppingCriteria):
    """A row ends where its writer says."""

    def __init__(self, writer: Writer) -> None:
        self.writer = writer

    def __call__(self, input_ids: torch.Tensor, scores: Any, **kwargs: Any) -> torch.Tensor:
        return torch.tensor([row.done for row in self.writer.live], device=input_ids.device)
