"""Group relative policy optimisation (GRPO) by TRL's trainer: a policy learns from rewards.

The policy answers by the engine that it answers with afterwards. The seed of an answer depends on
the step, the question and the index of the draw alone. Answers are scored with the tokens and
pixels that they were written with.

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
from vjudge.data.schema import Items, Row
from vjudge.engines.engine import Ask
from vjudge.engines.vision import left_padded
from vjudge.judging.asking import seed_of
from vjudge.judging.judge import Judge, JudgeLike
from vjudge.preference.candidates import checked, prompt_of
from vjudge.preference.functions import Reward, VerdictReward, reward_function
from vjudge.preference.policies import Make, WeightPlan, optimise, trl
from vjudge.prompts import Prompt, families
from vjudge.training import weights
from vjudge.training.collate import CPU, IGNORED, Coder

DEFAULTS: dict = {
    "beta": 0.0,  # weight of the penalty on moving away from the reference; 0 needs none
    "learning_rate": 1e-6,
    "lr_scheduler_type": "constant",
    "num_generations": 8,  # answers per question; each is compared with their mean
    "per_device_train_batch_size": 8,  # answers per forward pass
    "gradient_accumulation_steps": 4,  # forward passes per step
    "max_completion_length": 512,  # tokens; a longer answer is truncated
    "temperature": 1.0,
    "loss_type": "dapo",
    "gradient_checkpointing": False,
    "save_strategy": "no",  # "steps", with `save_steps`: an interrupted training resumes from there
    "seed": 0,  # for the order of questions, the draws and the initial adapters
}
"""The default options of `grpo`, those of `trl.GRPOConfig`.

Source: TRL's own defaults, except answers per step, the constant rate, and what is not published.
"""
NOT_USED = (  # options of TRL's own ways to generate
    "top_k min_p generation_kwargs cache_implementation use_vllm chat_template_kwargs"
    " use_transformers_continuous_batching sync_ref_model"
).split()


def grpo(
    policy: str | Path,
    rows: Items,
    judge: JudgeLike | Reward | Callable[..., list],
    out: str | Path,
    *,
    freeze: Sequence[str] = (),
    lora: Mapping | bool | None = None,
    quantization: str | None = None,
    dtype: str = "auto",
    **options: Any,
) -> dict:
    """Train a policy on rewards of its own answers; a finished training is not repeated.

    Args:
        policy, freeze, lora, quantization, dtype: as in `vjudge.preference.train`.
        rows: questions with instruction, images, and what the judge's prompt template shows.
        judge: what gives the rewards. A judge; the result of `reward_function`; the result of
            `verdict_reward`, which asks the policy as a judge, by that prompt template; or any
            function that TRL's trainer takes. It gets the rows' columns and `finish`, "stop" where
            an answer ended by itself.
        out: as in `train`; the record is `grpo.json`. On a CPU the same call gives the same bits.
        options: of `trl.GRPOConfig`; they take precedence over the defaults, `DEFAULTS`.

    Returns:
        The record: settings, steps, and `log`, TRL's metrics by step: reward, reward_std,
        rewards/missing (the share without a reward), completions/clipped_ratio and so on.

    Raises:
        CollectionError: rows that can't be asked or rewarded, or leave no room for an answer.
        ValueError: the checkpoint can't be trained; `out` holds another training; an option of
            TRL's own ways to generate.
        RuntimeError: a question that the policy could not answer.
    """
    unused = sorted(set(options) & set(NOT_USED))
    if unused:
        raise ValueError(f"{', '.join(unused)}: not used, the policy answers by its own engine")
    reward: Any = reward_function(judge) if isinstance(judge, JudgeLike) else judge
    questions = checked(rows, ("instruction",))
    if isinstance(reward, Reward):
        reward.check(questions)
    template = reward.template if isinstance(reward, VerdictReward) else None
    options = DEFAULTS | options

    def build(loaded: Judge) -> Make:
        # a judge that learns is asked by its template, another policy by the instruction alone
        render = reward.prompt if template else prompt_of
        learner = Learner(loaded, questions, [render(loaded, row) for row in questions])
        learner.check_lengths(options["max_completion_length"])
        return lambda *arguments: GroupTrainer(learner, reward, *arguments)

    name = getattr(reward, "__name__", type(reward).__name__)
    record = optimise(
        policy,
        out,
        "grpo.json",
        WeightPlan(freeze, lora, quantization, dtype),
        config=trl.GRPOConfig,
        build=build,
        settings={"rows": data.fingerprint(questions), "reward": name},
        options=options,
        template=template,
    )
    if template is not None:  # so that `load_judge` asks the trained policy by it
        families.record(Path(out).expanduser(), template)
    return record


class Learner:
    """A policy and its questions: answers them, and batches answers to be scored.

    Questions are referred to by their indices in `rows`.
    """

    def __init__(self, policy: Judge, rows: Sequence[Row], prompts: Sequence[Prompt]) -> None:
        self.engine: Any = policy.engine
        self.coder = Coder.of(policy)
        self.rows = rows
        self.prompts = prompts
        self.images = []
        self.ids = []  # the token ids of each prompt
        for row, prompt in zip(rows, prompts, strict=True):
            images = row["images"][: prompt.n_images]
            self.images.append(images)
            self.ids.append(self.coder.encode(prompt, images, [])[0])

    def check_lengths(self, n_new: int) -> None:
        """Raise CollectionError, naming all rows whose prompts leave no room for `n_new` tokens."""
        limit = self.engine.context_length - n_new
        fits = [len(ids) <= limit for ids in self.ids]
        reason = f"leaves no room in the context for max_completion_length={n_new}"
        check_rows(self.rows, "length", fits, reason, "lower it, or leave the row out")

    def answers(self, indices: Sequence[int], sampling: Ask) -> list[list[int]]:
        """Answer questions, and return the token ids of each answer.

        Args:
            indices: of the questions; a question that is drawn several times stands several times.
            sampling: the sampling parameters, with a seed for each answer.

        Raises:
            RuntimeError: the engine could not answer a question.
        """
        prompts = [self.prompts[index] for index in indices]
        images = [self.images[index] for index in indices]
        tokens: list = [None] * len(indices)
        # The engine yields answers in batches of its own order; `answer.index` counts in `prompts`.
        for batch in self.engine.answer(prompts, images, sampling):
            for answer in batch:
                if answer.failure is not None:
                    row = self.rows[indices[answer.index]]
                    raise RuntimeError(f"row {row['id']!r} has no answer: {answer.failure}")
                tokens[answer.index] = list(answer.tokens)
        return tokens

    def batch(
        self, indices: Sequence[int], sequences: Sequence[list[int]], n_new: Sequence[int]
    ) -> dict:
        """Collate prompts and their answers to a batch that the model takes.

        Args:
            indices: of the questions.
            sequences: the token ids of prompt and answer.
            n_new: the number of tokens of each answer; `labels` ignore all other tokens.
        """
        batch = self.coder.batch(sequences, [self.images[index] for index in indices])
        labels = []
        for ids, n in zip(sequences, n_new, strict=True):
            n_prompt = len(ids) - n
            labels.append([IGNORED] * n_prompt + ids[n_prompt:])
        batch["labels"], _ = left_padded(labels, IGNORED, CPU)
        return batch


class GroupTrainer(weights.OwnCheckpoints, trl.GRPOTrainer):
    """TRL's GRPO trainer, on what a `Learner` writes and scores.

    TRL's methods hand over prompts as texts, which lose their images. The methods below look the
    questions up by `self.indices`: the index of the question of each answer that is computed at
    present. They have TRL's signatures, and ignore the arguments that the indices replace.

    Args:
        learner: the policy and its questions.
        reward: a reward function in TRL's form.
        reference: the frozen reference model; None with adapters.
        adapters: the adapters' settings; None where the weights themselves train.
        arguments: TRL's training arguments.
    """

    def __init__(
        self, learner: Learner, reward: Any, reference: Any, adapters: Any, arguments: Any
    ) -> None:
        self.learner = learner
        self.indices: list[int] = []
        # With a beta TRL would load the reference from the disk by another class: it gets ours.
        beta = arguments.beta
        arguments.beta = 0.0
        instructions = [row["instruction"] for row in learner.rows]
        super().__init__(
            model=learner.coder.model.model,
            reward_funcs=reward,
            args=arguments,
            train_dataset=datasets.Dataset.from_dict(
                {"prompt": instructions, "index": range(len(instructions))}
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
        """Let the order of an epoch depend on its number alone, so that a training can resume."""
        sampler = super()._get_train_sampler(dataset)
        sampler.set_epoch = lambda epoch: sampler.generator.manual_seed(self.args.seed + epoch)
        return sampler

    def _generate_and_score_completions(self, inputs: Sequence[Mapping]) -> dict:
        """Remember which questions are answered.

        The indices are added to TRL's output, so that it shuffles them together with the answers.
        """
        self.indices = [entry["index"] for entry in inputs]
        output = super()._generate_and_score_completions(inputs)
        return output | {"indices": torch.tensor(self.indices)}  # (answers,)

    def _compute_loss(self, model: Any, inputs: Mapping) -> torch.Tensor:
        """Remember the questions whose answers are scored."""
        self.indices = inputs["indices"].tolist()
        return super()._compute_loss(model, inputs)

    def _tokenize_prompts(self, _: Sequence) -> tuple[list, None, dict]:
        """Return the token ids of the learner's prompts, no images and no further inputs."""
        return [self.learner.ids[index] for index in self.indices], None, {}

    def _generate_single_turn(self, *_: Any, **__: Any) -> tuple[list[list[int]], None]:
        """Answer by the policy's engine, each answer from its own seed.

        Returns:
            The token ids of each answer, and None: their log-probabilities are computed later.
        """
        step = f"{self.state.global_step}.{self._step % self.args.gradient_accumulation_steps}"
        seeds = []
        for draw, index in enumerate(self.indices):
            unit = f"{step}.{self.accelerator.process_index}.{draw}"
            seeds.append(seed_of(self.args.seed, str(self.learner.rows[index]["id"]), unit))
        sampling = Ask(
            max_new_tokens=self.max_completion_length,
            temperature=self.temperature,
            top_p=self.top_p,
            repetition_penalty=self.repetition_penalty,
            seeds=seeds,
        )
        self.model.eval()
        with self.accelerator.autocast():
            tokens = self.learner.answers(self.indices, sampling)
        self.model.train()
        return tokens, None

    def _calculate_rewards(
        self, inputs: Sequence, prompts: Sequence, completions: Sequence, ids: Sequence
    ) -> torch.Tensor:
        """Reward answers by functions that get all columns of the rows, and `finish`.

        TRL's `inputs` are replaced by these rows; `ids` are the token ids of each answer.
        """
        rows = []
        for index, tokens in zip(self.indices, ids, strict=True):
            finish = "stop" if tokens[-1] in self.eos_token_ids else "length"
            rows.append({**self.learner.rows[index], "finish": finish})
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
        """Compute log-probabilities and entropies of answer tokens, (answers, logits_to_keep) each.

        The answers stand in the last `logits_to_keep` columns of `input_ids`, padded on the right.
        They are scored in blocks of `batch_size`; None scores all at once.

        Returns:
            The log-probabilities; the entropies, None if the model computes none; and None, in the
            place of TRL's auxiliary loss.
        """
        size = batch_size or len(input_ids)
        n_new = attention_mask[:, -logits_to_keep:].sum(1).tolist()
        sequences = []
        for ids, mask in zip(input_ids, attention_mask, strict=True):
            sequences.append(ids[mask.bool()].tolist())  # prompt and answer without padding
        logprobs: list[torch.Tensor] = []
        entropies: list[torch.Tensor] = []
        for start in range(0, len(sequences), size):
            block = slice(start, start + size)
            batch = self.learner.batch(self.indices[block], sequences[block], n_new[block])
            with self.accelerator.autocast():
                output = model(**self._prepare_input(batch), fused_lm_head=True)
            # The learner pads on the left, TRL pads answers on the right.
            #   _ _ p p p a a     ->  a a _
            #   _ p p p a a a         a a a
            for row, n in enumerate(n_new[block]):
                for rows, values in ((logprobs, output.log_probs), (entropies, output.entropy)):
                    if values is not None:
                        answer = values[row, values.shape[1] - n :]  # (n,)
                        rows.append(pad(answer, (0, logits_to_keep - n)))  # (logits_to_keep,)
        return torch.stack(logprobs), torch.stack(entropies) if entropies else None, None
