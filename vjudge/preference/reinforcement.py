"""Group relative policy optimisation (GRPO) by TRL's trainer: a policy learns from rewards.

The policy answers by the engine that it answers with afterwards, from seeds that a step, a question
and a draw decide, and its answers are scored with the tokens and pixels that it wrote them by.

Source: DeepSeekMath (arXiv 2402.03300); huggingface/trl 1.16 trl/trainer/grpo_trainer.py, whose
methods for one processor of the model's own are replaced here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import datasets
import torch
from torch.nn.functional import pad

from vjudge import data
from vjudge.data.checks import check_rows
from vjudge.engines.engine import Ask
from vjudge.engines.vision import left_padded
from vjudge.judging.asking import seed_of
from vjudge.judging.judge import Judge, JudgeLike
from vjudge.preference.candidates import prompt_of
from vjudge.preference.functions import Reward, VerdictReward, reward_function
from vjudge.preference.policies import optimise, trl
from vjudge.preference.rewards import checked
from vjudge.prompts import families
from vjudge.training import weights
from vjudge.training.collate import CPU, IGNORED, Coder

DEFAULTS: dict = {
    "beta": 0.0,  # how strongly the policy is held to the reference; 0 needs none
    "learning_rate": 1e-6,
    "lr_scheduler_type": "constant",
    "num_generations": 8,  # answers to a question, of which each is compared with the mean
    "per_device_train_batch_size": 8,  # answers computed at once
    "gradient_accumulation_steps": 4,  # times so many are a step
    "max_completion_length": 512,  # tokens; a longer answer is cut off
    "temperature": 1.0,
    "loss_type": "dapo",
    "gradient_checkpointing": False,
    "save_strategy": "no",  # "steps", with `save_steps`: an interrupted training goes on from there
    "seed": 0,  # of the order of questions, of draws and of adapters
}
"""How `grpo` trains unless told otherwise, as options of `trl.GRPOConfig`.

Source: TRL's own defaults, but for answers a step, a constant rate, and what is not published.
"""
UNUSED = (  # options of TRL's way to answer
    "top_k min_p generation_kwargs cache_implementation use_vllm chat_template_kwargs"
    " use_transformers_continuous_batching sync_ref_model"
).split()


def grpo(
    policy: str | Path,
    rows: Any,
    judge: JudgeLike | Reward | Callable[..., list],
    out: str | Path,
    *,
    freeze: Sequence[str] = (),
    lora: Mapping | bool | None = None,
    quantization: str | None = None,
    dtype: str = "auto",
    **options: Any,
) -> dict:
    """Train a policy on rewards of its own answers; what `out` holds is not trained again.

    Args:
        policy, freeze, lora, quantization, dtype: as of `vjudge.preference.train`.
        rows: questions with instruction, images, and what the judge's wording shows.
        judge: who rewards: a judge, from `reward_function` or `verdict_reward` (the policy is then
            asked as a judge, in that wording), or any function that TRL's trainer takes. It is
            given the rows' columns, and `finish`: "stop" where an answer ended by itself.
        out: as of `train`; the record is `grpo.json`. On a CPU the same call ends in the same bits.
        options: of `trl.GRPOConfig`, before those in `DEFAULTS`; those of its own ways to generate
            are refused.

    Returns:
        The record: settings, steps, and `log`, TRL's metrics by step: reward, reward_std,
        rewards/missing (the share without a reward), completions/clipped_ratio and so on.

    Raises:
        CollectionError: rows that can't be asked, rewarded, or leave no room for an answer.
        ValueError: the folder can't be trained; another training stands in `out`; an option that
            is not used. RuntimeError: a question that the policy could not answer.
    """
    unused = sorted(set(options) & set(UNUSED))
    if unused:
        raise ValueError(f"{', '.join(unused)}: not used, the policy answers by its own engine")
    reward: Any = reward_function(judge) if isinstance(judge, JudgeLike) else judge
    questions = checked(rows, ("instruction",))
    if isinstance(reward, Reward):
        reward.check(questions)
    template = reward.template if isinstance(reward, VerdictReward) else None
    options = DEFAULTS | options

    def build(loaded: Judge) -> Callable:
        ask = reward.prompt if template else prompt_of
        prompts = [ask(loaded, row) for row in questions]
        learner = Learner(loaded, questions, prompts)
        learner.check_lengths(options["max_completion_length"])
        return lambda *made: GroupTrainer(learner, reward, *made)

    name = getattr(reward, "__name__", type(reward).__name__)
    record = optimise(
        policy,
        out,
        "grpo.json",
        trl.GRPOConfig,
        build,
        {"rows": data.fingerprint(questions), "reward": name},
        options,
        freeze=freeze,
        lora=lora,
        quantization=quantization,
        dtype=dtype,
        template=template,
    )
    if template is not None:
        families.record(Path(out).expanduser(), template)
    return record


class Learner:
    """A policy, the questions put to it, and how its answers are written and scored."""

    def __init__(self, policy: Judge, rows: Sequence[Mapping], prompts: Sequence) -> None:
        self.engine: Any = policy.engine
        self.coder = Coder.of(policy)
        self.rows = rows
        self.prompts = prompts
        self.images = []
        self.ids = []
        for row, prompt in zip(rows, prompts, strict=True):
            images = row["images"][: prompt.n_images]
            self.images.append(images)
            self.ids.append(self.coder.encode(prompt, images, [])[0])

    def check_lengths(self, n_new: int) -> None:
        """Refuse all rows whose prompts leave no room for an answer."""
        limit = self.engine.context_length - n_new
        sound = [len(ids) <= limit for ids in self.ids]
        reason = f"leaves no room in the context for max_completion_length={n_new}"
        check_rows(self.rows, "length", sound, reason, "lower it, or leave the row out")

    def answers(self, numbers: Sequence[int], ask: Ask) -> list[list[int]]:
        """The tokens of an answer to each question, by the questions' numbers."""
        prompts = [self.prompts[number] for number in numbers]
        images = [self.images[number] for number in numbers]
        tokens: list = [None] * len(numbers)
        for batch in self.engine.answer(prompts, images, ask):
            for answer in batch:
                if answer.failure is not None:
                    row = self.rows[numbers[answer.index]]
                    raise RuntimeError(f"row {row['id']!r} has no answer: {answer.failure}")
                tokens[answer.index] = list(answer.tokens)
        return tokens

    def batch(self, numbers: Sequence[int], sequences: Sequence, n_new: Sequence[int]) -> dict:
        """What the model takes for questions with their answers, whose tokens alone are scored."""
        batch = self.coder.batch(sequences, [self.images[number] for number in numbers])
        labels = []
        for ids, n in zip(sequences, n_new, strict=True):
            labels.append([IGNORED] * (len(ids) - n) + ids[len(ids) - n :])
        batch["labels"], _ = left_padded(labels, IGNORED, CPU)
        return batch


class GroupTrainer(weights.OwnCheckpoints, trl.GRPOTrainer):
    """TRL's, on what a `Learner` writes and scores."""

    def __init__(
        self, learner: Learner, reward: Any, reference: Any, adapters: Any, arguments: Any
    ) -> None:
        self.learner = learner
        self.numbers: list[int] = []  # of the questions that are computed at present
        beta = arguments.beta
        arguments.beta = 0.0  # TRL would read the reference from the disk, by another class
        questions = [row["instruction"] for row in learner.rows]
        super().__init__(
            model=learner.coder.model.model,
            reward_funcs=reward,
            args=arguments,
            train_dataset=datasets.Dataset.from_dict(
                {"prompt": questions, "number": range(len(questions))}
            ),
            processing_class=learner.coder.model.tokenizer,
            peft_config=adapters,
        )
        arguments.beta = self.beta = beta
        if beta and reference is not None:
            trl.trainer.utils.add_fused_lm_head(reference, temperature=self.temperature)
            self.ref_model = self.accelerator.prepare_model(reference, evaluation_mode=True)
        self.eos_token_ids = sorted(learner.engine.ends)
        self.aux_loss_enabled = False

    def _get_train_sampler(self, dataset: Any = None) -> Any:
        """TRL's, with an order of each epoch by its number alone, so that a training resumes."""
        sampler = super()._get_train_sampler(dataset)
        sampler.set_epoch = lambda epoch: sampler.generator.manual_seed(self.args.seed + epoch)
        return sampler

    def _generate_and_score_completions(self, inputs: Sequence[Mapping]) -> dict:
        self.numbers = [entry["number"] for entry in inputs]
        output = super()._generate_and_score_completions(inputs)
        return output | {"numbers": torch.tensor(self.numbers)}  # (answers,), shuffled with them

    def _compute_loss(self, model: Any, inputs: Mapping) -> torch.Tensor:
        self.numbers = inputs["numbers"].tolist()
        return super()._compute_loss(model, inputs)

    def _tokenize_prompts(self, _: Sequence) -> tuple[list, None, dict]:
        return [self.learner.ids[number] for number in self.numbers], None, {}

    def _generate_single_turn(self, *_: Any, **__: Any) -> tuple[list[list[int]], None]:
        """Answers by the policy's engine, each from a seed of its own."""
        step = f"{self.state.global_step}.{self._step % self.args.gradient_accumulation_steps}"
        seeds = []
        for draw, number in enumerate(self.numbers):
            unit = f"{step}.{self.accelerator.process_index}.{draw}"
            seeds.append(seed_of(self.args.seed, str(self.learner.rows[number]["id"]), unit))
        ask = Ask(
            max_new_tokens=self.max_completion_length,
            temperature=self.temperature,
            top_p=self.top_p,
            repetition_penalty=self.repetition_penalty,
            seeds=seeds,
        )
        self.model.eval()
        with self.accelerator.autocast():
            tokens = self.learner.answers(self.numbers, ask)
        self.model.train()
        return tokens, None

    def _calculate_rewards(
        self, inputs: Sequence, prompts: Sequence, completions: Sequence, ids: Sequence
    ) -> torch.Tensor:
        """Rewards of answers, by functions that are given all columns of the rows."""
        rows = []
        for number, tokens in zip(self.numbers, ids, strict=True):
            finish = "stop" if tokens[-1] in self.eos_token_ids else "length"
            rows.append({**self.learner.rows[number], "finish": finish})
        return super()._calculate_rewards(rows, prompts, completions, ids)

    def _get_per_token_logps_and_entropies(
        self,
        model: Any,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        logits_to_keep: int,
        batch_size: int | None = None,
        **_: Any,
    ) -> tuple[torch.Tensor, torch.Tensor | None, None]:
        """Log-probabilities and entropies of answers' tokens, (answers, logits_to_keep) each."""
        size = batch_size or len(input_ids)
        n_new = attention_mask[:, -logits_to_keep:].sum(1).tolist()
        sequences = []
        for ids, mask in zip(input_ids, attention_mask, strict=True):
            sequences.append(ids[mask.bool()].tolist())
        logprobs: list[torch.Tensor] = []
        entropies: list[torch.Tensor] = []
        for start in range(0, len(sequences), size):
            block = slice(start, start + size)
            batch = self.learner.batch(self.numbers[block], sequences[block], n_new[block])
            with self.accelerator.autocast():
                output = model(**self._prepare_input(batch), fused_lm_head=True)
            # The learner pads on the left, TRL answers on the right.
            #   _ _ p p p a a     ->  a a _
            #   _ p p p a a a         a a a
            for row, n in enumerate(n_new[block]):
                for made, column in ((logprobs, output.log_probs), (entropies, output.entropy)):
                    if column is not None:
                        answer = column[row, column.shape[1] - n :]  # (n,)
                        made.append(pad(answer, (0, logits_to_keep - n)))
        return torch.stack(logprobs), torch.stack(entropies) if entropies else None, None
