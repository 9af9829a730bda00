"""The vLLM engine: vLLM inside this process, for GPUs.

It runs LLaVA-1.5, LLaVA-OneVision, Qwen-VL and text-only judges; an original LLaVA checkpoint by way of the
transformers folder that `vjudge.checkpoints.convert` writes, once. Prompts go to vLLM as token ids of our own making,
so that no text from data can become a control token, with one image token for each image, which vLLM widens to the
places the image takes. Rows of an image and of a common beginning follow one another, for vLLM's prefix cache.

What is not as in `TorchEngine`:

- Pixels come from vLLM's own preparation of images, by transformers' processor. The family's way is the only way, and
  several images in a prompt are refused for LLaVA-OneVision, which vLLM cuts into tiles and the original pads.
- vLLM's arithmetic depends on what else is in its batch: two runs may differ in the last bits, and so, after a near
  tie, in words.
- Log-probabilities are over all rows of the output layer, those beyond the vocabulary included.
- A request that vLLM turns down (too long, say) is a failure of its row.

The requests are tested against a stand-in for vLLM that answers from a small model. It was never run against vLLM
itself, which needs a GPU: check a hundred verdicts against engine="torch" before trusting it with a thousand.

A vLLM *server* is another engine: `vllm serve FOLDER --enable-prefix-caching`, then
`load_judge("openai:FOLDER", base_url="http://HOST:8000/v1", key_variable=None, choices="structured_outputs",
continue_fields={"add_generation_prompt": False, "continue_final_message": True})`.

Source: vllm-project/vllm, vllm/sampling_params.py (SamplingParams), vllm/inputs/data.py (TokensPrompt) and
vllm/model_executor/models/llava.py (an image token is replaced by the image's places).
"""

from __future__ import annotations

import dataclasses
import importlib.util
import time
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import transformers
from PIL import Image

from vjudge import models
from vjudge.engines.engine import Answer, Engine
from vjudge.engines.sharing import image_groups, image_key
from vjudge.engines.source import prepare
from vjudge.engines.tokens import Encoder, Scale
from vjudge.images import fingerprint, open_image
from vjudge.prompts import Prompt

ROWS = 1024  # given to vLLM at once under batch_size="auto"; what is lost at most when the process dies
LOGPROBS = 128  # tokens whose log-probabilities vLLM gives at most for one place
LEAST_TEMPERATURE = 0.01  # below it vLLM would take another
OURS = ("model", "tokenizer", "trust_remote_code", "logprobs_mode", "max_logprobs", "limit_mm_per_prompt")
ASKED = frozenset(  # fields of a request that follow from the call
    ["n", "max_tokens", "temperature", "top_p", "repetition_penalty", "seed", "logprobs", "logprob_token_ids"]
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
        cache: where converted checkpoints are kept; None takes vjudge's folder in the user's cache.
        image_bytes: of opened images handed to vLLM at once, at most.
        sampling: further fields of vLLM's SamplingParams for feedback mode, such as `{"top_k": 40}`; a run's manifest
            keeps them.
        options: for vLLM's `LLM`, such as `tensor_parallel_size`, `max_model_len` or `gpu_memory_utilization`.

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
        cache: str | Path | None = None,
        image_bytes: int = 2 << 30,
        sampling: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        if importlib.util.find_spec("vllm") is None:
            raise ImportError(
                "engine='vllm' needs vLLM, and a GPU it supports: pip install 'vjudge[vllm]'; a vLLM server elsewhere"
                " is reached by 'openai:MODEL' with base_url="
            )
        if taken := [name for name in OURS if name in options]:
            raise ValueError(f"{', '.join(taken)}: this engine sets these itself; leave them out")
        if taken := [name for name in sampling or {} if name in ASKED]:
            raise ValueError(f"sampling: {', '.join(taken)} follow from the call; leave them out")
        if quantization == "8bit":
            raise ValueError('quantization="8bit" is not vLLM\'s; use "4bit", or one of its own methods such as "fp8"')
        import vllm

        if "logprob_token_ids" not in getattr(vllm.SamplingParams, "__annotations__", {}):
            raise ValueError(f"vLLM {vllm.__version__} can't give the log-probabilities of chosen tokens; upgrade it")
        self.vllm, self.max_images, self.image_bytes = vllm, max_images, image_bytes
        self.sampling, self.options = dict(sampling or {}), options
        self.quantization = quantization
        vllm.SamplingParams(**self.sampling)  # refuses an unknown field now
        self.source = prepare(judge, revision=revision, cache=cache)
        if self.source.tiled and max_images > 1:
            raise ValueError(
                f"max_images={max_images}: vLLM cuts several images of a prompt into tiles, and LLaVA-OneVision's own"
                ' code pads them; grade such items with engine="torch"'
            )
        self.encoder = Encoder(self.source.tokenizer, image_token_id=self.source.image_token_id, tokens_per_image=1)
        self.ends, self.wordless = self.source.ends, self.source.wordless
        limits: dict[str, Any] = {}
        if self.source.sees_images:
            video = {"video": 0} if hasattr(self.source.config, "video_token_id") else {}
            limits = {"limit_mm_per_prompt": {"image": max_images, **video}}
        self.llm = vllm.LLM(
            model=str(self.source.folder),
            trust_remote_code=False,
            dtype=dtype,
            max_logprobs=LOGPROBS,
            logprobs_mode="raw_logprobs",
            **limits,
            **{"enable_prefix_caching": True, "generation_config": "vllm", "seed": 0, **options},
            **({"quantization": {"4bit": "bitsandbytes"}.get(quantization, quantization)} if quantization else {}),
        )

    def __repr__(self) -> str:
        return f"VllmEngine({str(self.source.folder)!r})"

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
        """Generate a text for every prompt; see `Engine.generate`. Seeds are sent modulo 2**63.

        `batch_size` is how many requests vLLM is given at once; its own scheduler batches them. "auto" gives 1,024.

        Raises:
            ValueError: also for a temperature between 0 and 0.01, which vLLM would raise to 0.01.
        """
        if 0 < temperature < LEAST_TEMPERATURE:
            raise ValueError(f"temperature={temperature!r}: vLLM knows 0 and numbers from {LEAST_TEMPERATURE}")
        scale = self.encoder.scale(marker, score_texts)
        fields: dict[str, Any] = {"max_tokens": max_new_tokens, "temperature": temperature, **self._common(scale)}
        fields |= {"top_p": top_p} if temperature else {}
        fields |= {"repetition_penalty": repetition_penalty} if repetition_penalty != 1 else {}
        fields |= {"stop_token_ids": list(self.ends), "logit_bias": dict.fromkeys(self.wordless, -100.0)}

        def params(row: int) -> Any:
            seed = {"seed": (row if seeds is None else seeds[row]) % 2**63} if temperature else {}
            return self.vllm.SamplingParams(**fields, **seed, **self.sampling)

        return self._run(_Call(prompts, images, params, scale, forced=False), batch_size, wanted)

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
        """Read the scores' distribution; see `Engine.score`. vLLM writes one token, of the scale's alone."""
        scale = self.encoder.scale(marker, score_texts)
        fields = {"max_tokens": 1, "temperature": 0.0, "allowed_token_ids": list(scale.tokens.values())}
        params = self.vllm.SamplingParams(**fields, **self._common(scale))
        return self._run(_Call(prompts, images, lambda row: params, scale, forced=True), batch_size, wanted)

    def identity(self) -> dict[str, Any]:
        """See `Engine.identity`; reads the weights' files the first time."""
        return {
            "weights": models.weights_fingerprint(*self.source.origins),
            "settings": models.settings_fingerprint(*self.source.origins),
            "engine": self.name,
            "dtype": str(self.llm.llm_engine.model_config.dtype).removeprefix("torch."),
            "quantization": self.quantization,
            "sampling": self.sampling,
            "options": {name: value for name, value in sorted(self.options.items()) if name not in RESOURCES},
            "versions": {"vllm": self.vllm.__version__, "transformers": transformers.__version__},
        }

    def _common(self, scale: Scale) -> dict[str, Any]:
        """What every request asks for: token ids instead of text, and the log-probabilities of the scale's tokens."""
        tokens = list(scale.tokens.values())
        if len(tokens) > LOGPROBS:
            raise ValueError(f"a scale of {len(tokens)} scores: vLLM gives log-probabilities of {LOGPROBS} at most")
        asked = {"logprobs": len(tokens), "logprob_token_ids": tokens} if tokens else {}
        return {"detokenize": False, **asked}

    def _run(self, call: _Call, batch_size: int | str, wanted: Container[int] | None) -> Iterator[list[Answer]]:
        """Refuse what vLLM was not set up for, then ask block by block."""
        rows = [row for row in range(len(call.prompts)) if wanted is None or row in wanted]
        most = max((call.prompts[row].n_images for row in rows), default=0)
        if most > self.max_images:
            raise ValueError(f"some prompts hold {most} images: give load_judge max_images={most}")
        return self._answers(call, rows, batch_size if isinstance(batch_size, int) else ROWS)

    def _answers(self, call: _Call, rows: Sequence[int], size: int) -> Iterator[list[Answer]]:
        jobs, failed = self._jobs(call, set(rows))
        if failed:
            yield failed
        block: list[_Job] = []
        opened: dict[str, tuple[Image.Image, str]] = {}
        for job in jobs:
            try:
                sources = call.images[job.row]
                fresh = [number for number, key in enumerate(job.keys) if key not in opened]
                opened |= {job.keys[number]: _opened(sources[number]) for number in fresh}
            except (ValueError, OSError) as error:
                yield [Answer(job.row, failure=str(error))]
                continue
            job.images = [opened[key] for key in job.keys]
            block.append(job)
            if len(block) == size or sum(3 * one.width * one.height for one, _ in opened.values()) > self.image_bytes:
                yield self._asked(block, call)
                block, opened = [], {}
        if block:
            yield self._asked(block, call)

    def _jobs(self, call: _Call, rows: set[int]) -> tuple[list[_Job], list[Answer]]:
        """The requests' token ids, rows of an image and of a common beginning together, and the rows that fail."""
        jobs, failed = [], []
        for place, group in enumerate(image_groups(call.images, len(call.prompts)).values()):
            for row in group:
                if row not in rows:
                    continue
                prompt, sources = call.prompts[row], call.images[row]
                try:
                    if prompt.n_images != len(sources):
                        raise ValueError(
                            f"the prompt has {prompt.n_images} image place(s) and the item {len(sources)} image(s)"
                        )
                    marks = [1] * len(sources)
                    ids = (
                        self.encoder.forced_ids(prompt, call.scale, image_tokens=marks)
                        if call.forced
                        else self.encoder.ids(prompt, image_tokens=marks)
                    )
                    jobs.append(_Job(row, place, ids, [image_key(source) for source in sources]))
                except (ValueError, OSError) as error:
                    failed.append(Answer(row, failure=str(error)))
        jobs.sort(key=lambda job: (job.place, job.ids, job.row))
        return jobs, failed

    def _asked(self, jobs: Sequence[_Job], call: _Call) -> list[Answer]:
        """Let vLLM answer a block; where it turns a request down, find out which one."""
        started = time.perf_counter()
        requests = [_request(job) for job in jobs]
        try:
            outputs = self.llm.generate(requests, [call.params(job.row) for job in jobs], use_tqdm=False)
        except ValueError as error:  # raised before anything is computed; a dead engine raises something else
            if len(jobs) == 1:
                return [Answer(jobs[0].row, n_prompt_tokens=len(jobs[0].ids), failure=f"vLLM: {error}")]
            half = len(jobs) // 2
            return self._asked(jobs[:half], call) + self._asked(jobs[half:], call)
        share = (time.perf_counter() - started) / len(jobs)
        answers = [self._answer(job.row, output, call) for job, output in zip(jobs, outputs, strict=True)]
        return [dataclasses.replace(answer, seconds=share) for answer in answers]

    def _answer(self, row: int, output: Any, call: _Call) -> Answer:
        written = output.outputs[0]
        ids, stopped = list(written.token_ids), written.finish_reason == "stop"
        n_prompt, n_new = len(output.prompt_token_ids), len(ids)
        if n_prompt > self.source.prompt_limit:
            reason = f"the prompt has {n_prompt} tokens and this judge's limit is {self.source.prompt_limit}"
            return Answer(row, n_prompt_tokens=n_prompt, failure=f"{reason}; shorten the item's texts")
        if call.forced:
            scores = _scores(written, 0, call.scale)
            return Answer(row, n_prompt_tokens=n_prompt, score_logprobs=scores, stopped=True)
        if ids and ids[-1] in self.ends:
            ids = ids[:-1]
        known = set(call.scale.tokens.values())
        step = self.encoder.verdict_step(
            ids, [place for place, token in enumerate(ids) if token in known], call.scale.marker
        )
        return Answer(
            row,
            text=self.encoder.text(ids),
            n_prompt_tokens=n_prompt,
            n_new_tokens=n_new,
            score_logprobs=None if step is None else _scores(written, step, call.scale),
            stopped=stopped,
        )


@dataclass(frozen=True)
class _Call:
    """What the requests of one call share."""

    prompts: Sequence[Prompt]
    images: Sequence[Sequence[Any]]
    params: Any  # row -> SamplingParams
    scale: Scale
    forced: bool  # a score pass


@dataclass
class _Job:
    """One request to come."""

    row: int
    place: int  # of its image among the images
    ids: list[int]
    keys: list[str]
    images: list[tuple[Image.Image, str]] = dataclasses.field(default_factory=list)


def _request(job: _Job) -> dict[str, Any]:
    """A prompt as vLLM takes it; the pixels' fingerprint names an image in its caches."""
    request: dict[str, Any] = {"prompt_token_ids": job.ids}
    if job.images:
        request["multi_modal_data"] = {"image": [image for image, _ in job.images]}
        request["multi_modal_uuids"] = {"image": [name for _, name in job.images]}
    return request


def _opened(source: Any) -> tuple[Image.Image, str]:
    image = open_image(source)
    return image, fingerprint(image)


def _scores(written: Any, step: int, scale: Scale) -> dict[int, float]:
    """The scores' log-probabilities where a token was written."""
    listed = written.logprobs[step]
    if missing := [score for score, token in scale.tokens.items() if token not in listed]:
        raise RuntimeError(f"vLLM gave no log-probability for the scores {missing}, which it was asked for")
    return {score: float(listed[token].logprob) for score, token in scale.tokens.items()}
