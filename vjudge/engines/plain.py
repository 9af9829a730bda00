"""Plain batches: rows padded on the left, each computed whole; for models whose rows can't share prefixes."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch

from vjudge.engines.cache import growing_cache
from vjudge.engines.decoding import Job, Writer
from vjudge.engines.engine import Answer
from vjudge.engines.forward import embed
from vjudge.models import VisionLanguageModel

COMPACT_BELOW = 0.75  # finished rows leave a batch once no more than this share of its rows is alive


def answer_batch(
    jobs: list[Job],
    take: Callable[..., tuple[Mapping[str, Any], dict[str, str]]],
    decode: Callable[[list[Job], Mapping[str, Any]], list[Answer]],
    device: torch.device,
) -> list[Answer]:
    """Answer one batch; when it does not fit in the memory, its halves.

    Args:
        take: gives images by fingerprint, and why there are none.
        decode: from prompts and images to answers.
    """
    if not jobs:
        return []
    started = time.perf_counter()
    try:
        taken, broken = take(list(dict.fromkeys(key for job in jobs for key in job.images)))
        whole = [job for job in jobs if not any(key in broken for key in job.images)]
        answers = decode(whole, taken) if whole else []
    except torch.OutOfMemoryError as error:
        if len(jobs) == 1:
            return [out_of_memory(jobs[0], error)]
        answers = []
        whole = []
    else:
        for job in jobs:
            reasons = [broken[key] for key in job.images if key in broken]
            if reasons:
                answers.append(Answer(job.index, n_prompt_tokens=len(job.ids), failure="; ".join(reasons)))
        share = (time.perf_counter() - started) / len(answers)
        return [replace(answer, seconds=share) for answer in answers]
    # Outside the except block, whose traceback would keep the failed batch's tensors alive.
    if device.type == "cuda":
        torch.cuda.empty_cache()
    half = (len(jobs) + 1) // 2
    return answer_batch(jobs[:half], take, decode, device) + answer_batch(jobs[half:], take, decode, device)


def out_of_memory(job: Job, error: torch.OutOfMemoryError) -> Answer:
    """A prompt that does not fit even by itself."""
    reason = f"out of memory with one prompt of {len(job.ids)} tokens: {error}"
    return Answer(job.index, n_prompt_tokens=len(job.ids), failure=reason)


@torch.inference_mode()
def decode_batch(
    loaded: VisionLanguageModel, jobs: list[Job], features: Mapping[str, torch.Tensor], writer: Writer
) -> list[Answer]:
    """One batch through the model: a left-padded prefill, then a token a step until every row is done."""
    model = loaded.model
    inputs, mask = _inputs(loaded, jobs, features)
    position = (mask.cumsum(-1) - 1).clamp(min=0)
    cache = growing_cache(model.config) if writer.run.max_new_tokens else None
    while True:
        logits = (
            model(
                inputs_embeds=inputs,
                attention_mask=mask,
                position_ids=position,
                past_key_values=cache,
                use_cache=cache is not None,
                logits_to_keep=1,
            )
            .logits[:, -1]
            .float()
        )
        tokens = writer.step(logits)
        going = writer.going()
        if cache is None or not going:
            return writer.answers()
        position = position[:, -1:] + 1
        if len(going) <= COMPACT_BELOW * len(writer.live):
            keep = torch.tensor(going)  # on the CPU: the layers' caches may be on several devices
            cache.batch_select_indices(keep)
            mask, position, tokens = mask[keep], position[keep], tokens[keep]
            writer.keep(going)
        mask = torch.cat([mask, mask.new_ones((len(mask), 1))], dim=-1)
        inputs = model.get_input_embeddings()(tokens[:, None])


def _inputs(
    model: VisionLanguageModel, jobs: list[Job], features: Mapping[str, torch.Tensor]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Left-padded embeddings (rows, longest, hidden) with image features in place, and the mask of real tokens."""
    width = max(len(job.ids) for job in jobs)
    ids = torch.zeros((len(jobs), width), dtype=torch.long)
    mask = torch.zeros((len(jobs), width), dtype=torch.long)
    for row, job in enumerate(jobs):
        ids[row, width - len(job.ids) :] = torch.as_tensor(job.ids)
        mask[row, width - len(job.ids) :] = 1
    ids, mask = ids.to(model.device), mask.to(model.device)
    return embed(model, ids, [features[key] for job in jobs for key in job.images]), mask
