"""Write the answers of a block of prompts together: shared prefixes once, and no place in the batch left empty.

A pass either computes prompts (their prefixes that are not there yet, and what each has to itself) or the next token of
every answer. An answer that is done leaves at once, and the next prompts take the free places.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from vjudge.engines.attention import Buffers, Prefill, Segment, Step, sharing
from vjudge.engines.decoding import Row, Writer
from vjudge.engines.engine import Answer
from vjudge.engines.forward import embed
from vjudge.engines.pace import Pace
from vjudge.engines.prefixes import Leaf, Prefix
from vjudge.engines.work import Work
from vjudge.models import VisionLanguageModel

REFILL = 0.25  # prompts are taken in when this share of the places is free
HELD = 0.5  # seconds that an answer waits for others, because whoever keeps them waits for the disk each time
Take = Callable[[Collection[str]], tuple[Mapping[str, torch.Tensor], dict[str, str]]]


@dataclass(frozen=True)
class Limits:
    """How much is computed at once.

    Args:
        slots: answers.
        tokens: of prompts, in a pass; one prompt is computed in any case.
        grouped: see `Leaf.read_together`.
    """

    slots: int
    tokens: int
    grouped: int


@dataclass
class _Place:
    """An answer's place in the batch: what it reads with others, and the tokens of its own in the buffers."""

    leaf: Leaf
    prefix: Prefix | None
    length: int


class Stream:
    """Write the answers of one block.

    Args:
        model: what computes.
        leaves: the prompts, in the order in which they are taken in.
        writer: without rows yet.
        new_row: makes a prompt's answer.
        take: gives image features by fingerprint, and why there are none; see `ImageFeatures.take`.
        limits_of: says how much at once, for a `size`.
        work: takes note of what is computed.
        pace: says how large a batch is to be, and takes note of how fast it was.
    """

    def __init__(
        self,
        model: VisionLanguageModel,
        leaves: Sequence[Leaf],
        writer: Writer,
        new_row: Callable[[Any], Row],
        take: Take,
        limits_of: Callable[..., Limits],
        work: Work,
        pace: Pace,
    ) -> None:
        self.model, self.writer, self.new_row, self.take = model, writer, new_row, take
        self.waiting = deque(leaves)
        self.work, self.pace = work, pace
        self.limits_of = {size: limits_of(size=size) for size in pace.sizes}
        self.at_work: list[Leaf] = []  # in the pass that is running
        self._places: list[_Place] = []
        slots = max(limits.slots for limits in self.limits_of.values())
        self._buffers = Buffers(slots) if writer.run.max_new_tokens else None
        self._tokens = torch.zeros(0, dtype=torch.long, device=model.device)
        self._step: Step | None = None
        for leaf in leaves:
            for prefix in leaf.path:
                prefix.users += 1

    @property
    def limits(self) -> Limits:
        """How much is computed at once now."""
        return self.limits_of[self.pace.size]

    def answers(self, until: float = math.inf) -> Iterator[list[Answer]]:
        """Pass by pass, the answers that are done.

        Args:
            until: when to stop, as `time.perf_counter` counts.

        Raises:
            torch.OutOfMemoryError: `at_work` did not fit; what was not given is lost.
        """
        ready: list[Answer] = []
        work, given = self.work, time.perf_counter()
        while (self.waiting or self._places) and time.perf_counter() < until:
            started, before, computed = time.perf_counter(), work.image_seconds, work.computed_tokens
            slots = self.limits.slots
            free = slots - len(self._places)
            broken: list[Answer] = []
            if self.waiting and (free >= REFILL * slots or not self._places):
                broken = self._admit(free)
                took = time.perf_counter() - started - (work.image_seconds - before)
                work.prompt_seconds += took
                if self._buffers is None and self.waiting:  # a pass as full as it may be
                    self.pace.took(work.computed_tokens - computed, took)
            else:
                self._advance()
                took = time.perf_counter() - started
                work.answer_seconds += took
                if free < REFILL * slots:  # a batch as full as it may be
                    self.pace.took(len(self._places), took)
            work.at_once = max(work.at_once, len(self._places))
            rows = self.writer.live[len(self._places) - len(self.at_work) :]
            work.new_tokens += len(rows) * bool(self.writer.run.max_new_tokens)
            for row in rows:
                row.seconds += (time.perf_counter() - started) / len(rows)
            ready += self._leave() + broken
            if ready and time.perf_counter() - given >= HELD:
                yield ready
                ready, given = [], time.perf_counter()
        if ready:
            yield ready

    @torch.inference_mode()
    def _admit(self, free: int) -> list[Answer]:
        """Take in as many waiting prompts as fit, write their first tokens, and say which have broken images."""
        chosen: list[Leaf] = []
        planned: set[Prefix] = set()
        count = 0
        while self.waiting and len(chosen) < free:
            fresh = _fresh(self.waiting[0], planned)
            cost = sum(prefix.end - prefix.start for prefix in fresh)
            cost += len(self.waiting[0].job.ids) - self.waiting[0].start
            if chosen and count + cost > self.limits.tokens:
                break
            chosen.append(self.waiting.popleft())
            planned.update(fresh)
            count += cost
        self.at_work = chosen
        needed = dict.fromkeys(key for leaf in chosen if self._shows(leaf) for key in leaf.job.images)
        started = time.perf_counter()
        features, reasons = self.take(list(needed)) if needed else ({}, {})
        self.work.image_seconds += time.perf_counter() - started
        broken = []
        for leaf in chosen:
            if told := [reasons[key] for key in leaf.job.images if key in reasons]:
                broken.append(Answer(leaf.job.index, n_prompt_tokens=len(leaf.job.ids), failure="; ".join(told)))
                _release(leaf.path)
        failed = {answer.index for answer in broken}
        self.at_work = [leaf for leaf in chosen if leaf.job.index not in failed]
        if self.at_work:
            self._prefill(self.at_work, features)
        return broken

    def _prefill(self, chosen: Sequence[Leaf], features: Mapping[str, torch.Tensor]) -> None:
        segments: list[Segment] = []
        inputs: list[torch.Tensor] = []
        planned: set[Prefix] = set()
        lasts, first = [], len(self._places)
        for number, leaf in enumerate(chosen):
            for prefix in _fresh(leaf, planned):
                planned.add(prefix)
                segments.append(Segment(prefix.start, prefix.end - prefix.start, prefix.parent, prefix=prefix))
                inputs.append(self._embedded(leaf, prefix.start, prefix.end, features))
            together = leaf.read_together(self.limits.grouped)
            read = together.end if together else 0
            length = len(leaf.job.ids) - leaf.start
            segments.append(Segment(leaf.start, length, leaf.prefix, slot=first + number, read=read))
            inputs.append(self._embedded(leaf, leaf.start, len(leaf.job.ids), features))
            lasts.append(sum(segment.length for segment in segments) - 1)
            self._places.append(_Place(leaf, together, len(leaf.job.ids) - read))
        if self._buffers is not None:
            self._buffers.reserve(max(place.length for place in self._places))
        positions = torch.cat([torch.arange(each.start, each.start + each.length) for each in segments])
        logits = self._pass(torch.cat(inputs, dim=1), positions, Prefill(segments, self._buffers), lasts)
        self.work.computed_tokens += len(positions)
        self.work.prompt_tokens += sum(len(leaf.job.ids) for leaf in chosen)
        self.writer.admit([self.new_row(leaf.job) for leaf in chosen])
        self._tokens = torch.cat([self._tokens, self.writer.step(logits, first)])
        self._step = None
        for leaf, place in zip(chosen, self._places[first:], strict=True):
            if place.prefix is not None:
                place.prefix.users += 1
            _release(leaf.path)

    @torch.inference_mode()
    def _advance(self) -> None:
        """The next token of every answer."""
        assert self._buffers is not None
        self.at_work = [place.leaf for place in self._places]
        lengths = [place.length for place in self._places]
        self._buffers.reserve(max(lengths) + 1)
        if self._step is None:
            self._step = Step(self._buffers, [place.prefix for place in self._places], self.model.device)
        positions = torch.tensor([place.length + (place.prefix.end if place.prefix else 0) for place in self._places])
        inputs = self.model.model.get_input_embeddings()(self._tokens)[None]
        self._tokens = self.writer.step(self._pass(inputs, positions, self._step.at(lengths), None))
        for place in self._places:
            place.length += 1

    def _pass(self, inputs: torch.Tensor, positions: torch.Tensor, work: Any, lasts: list[int] | None) -> torch.Tensor:
        """Logits, (rows, vocabulary) in float32, of a pass over (1, tokens, hidden), at some tokens or at all."""
        device = self.model.device
        with sharing(self.model.model):
            output = self.model.model(
                inputs_embeds=inputs,
                position_ids=positions[None].to(device),
                use_cache=False,
                logits_to_keep=0 if lasts is None else torch.tensor(lasts, device=device),
                work=work,
            )
        logits: torch.Tensor = output.logits[0].float()
        return logits

    @torch.inference_mode()
    def _leave(self) -> list[Answer]:
        """The answers that are done; the last ones in the batch move to their places."""
        done = [place for place, row in enumerate(self.writer.live) if row.done]
        if not done:
            return []
        answers = [self.writer.live[place].answer(self.writer.encoder, self.writer.run.scale) for place in done]
        for place in done:
            if (prefix := self._places[place].prefix) is not None:
                prefix.release()
        order = list(range(len(self._places)))
        stay = len(order) - len(done)
        free = (place for place in done if place < stay)
        for place in (place for place in range(stay, len(order)) if place not in done):
            order[target := next(free)] = place
            if self._buffers is not None:
                self._buffers.move(place, target, self._places[place].length)
        order = order[:stay]
        self.writer.keep(order)
        self._places = [self._places[place] for place in order]
        self._tokens, self._step = self._tokens[order], None
        return answers

    def _shows(self, leaf: Leaf) -> bool:
        """Whether any of its images is in tokens that are still to be computed."""
        start = next((prefix.start for prefix in leaf.path if not prefix.keys), leaf.start)
        return bool(leaf.job.images) and bool((leaf.job.ids[start:] == self.model.image_token_id).any())

    def _embedded(self, leaf: Leaf, start: int, end: int, features: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Embeddings (1, tokens, hidden) of a part of a prompt, with the image features that stand in it."""
        job = leaf.job
        ids = torch.as_tensor(job.ids[start:end], dtype=torch.long, device=self.model.device)[None]
        within = int(np.count_nonzero(job.ids[start:end] == self.model.image_token_id)) if job.images else 0
        if not within:
            return embed(self.model, ids, ())
        before = int(np.count_nonzero(job.ids[:start] == self.model.image_token_id))
        return embed(self.model, ids, [torch.cat([features[key] for key in job.images])[before : before + within]])


def _fresh(leaf: Leaf, planned: Collection[Prefix]) -> list[Prefix]:
    """The prefixes of a prompt that are neither computed nor about to be."""
    return [prefix for prefix in leaf.path if not prefix.keys and prefix not in planned]


def _release(path: Sequence[Prefix]) -> None:
    for prefix in path:
        prefix.release()
