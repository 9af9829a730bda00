"""Fine-tuning against TRL's SFTTrainer: the same model, rows, tokens, batches and rates. `make bench`.

TRL runs with its defaults and its own collation of images, which take the loss on the completion alone and gradient
checkpointing for granted; only bfloat16, its default, is turned off, so that both compute in float32. The ways take
turns and are counted in examples a second of processor time, with everything that each prepares before its first step.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from statistics import median
from time import process_time
from typing import Any

import pytest
import torch
from transformers import TrainerCallback

import vjudge as vj
from vjudge.data import rows_of
from vjudge.judging.loading import load_judge
from vjudge.training import RECIPES, fine_tune, finetune
from vjudge.training.collate import Examples, training_order

BATCH, TURNS, SEED = 16, 2, 0
# The judge stage's recipe without decay, which TRL would spread otherwise, and on an answer that tiny was not taught.
CHANGES: dict[str, Any] = dict(recipe="scenes", batch_size=BATCH, warmup=2, weight_decay=0.0)
SHAPE = "score-first"


class Clock(TrainerCallback):
    """When the last step was done, in seconds of processor time."""

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.end = process_time()


@pytest.fixture(scope="module")
def rows(size):
    torch.set_num_threads(1)
    return vj.load_collection("scenes", split="train", limit=BATCH * int(10 * size))


@pytest.fixture(scope="module")
def judge():
    return load_judge("tiny", device="cpu")


@pytest.fixture(scope="module")
def examples(judge, rows):
    return Examples(rows_of(rows), judge.engine.model, judge.template, shape=SHAPE, max_length=None)


@pytest.fixture(scope="module")
def ours(rows, tmp_path_factory) -> Callable[..., tuple[float, list[float]]]:
    """Train with this package: examples a second, and the losses of the steps."""

    def run(**changes: Any) -> tuple[float, list[float]]:
        folder = tmp_path_factory.mktemp("ours")
        began, ends, survey, log = [], [], finetune.survey, finetune.JudgeTrainer.log

        def surveyed(*arguments: Any) -> Any:
            began.append(process_time())  # the base is loaded now
            return survey(*arguments)

        def logged(*arguments: Any) -> Any:
            ends.append(process_time())
            return log(*arguments)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(finetune, "survey", surveyed)
            patch.setattr(finetune.JudgeTrainer, "log", logged)
            options = (
                CHANGES
                | dict(steps=len(rows) // BATCH, log_every=1, checkpoint_every=10**6, seed=SEED)
                | changes
            )
            allow = ["length", "scores"]  # so few rows
            fine_tune(
                "tiny", rows, out=folder / "out", shape=SHAPE, allow=allow, device="cpu", precision="float32",
                progress=False, **options,
            )  # fmt: skip
        lines = (folder / "out/training_log.jsonl").read_text().splitlines()
        return len(rows) / (ends[-2] - began[0]), [json.loads(line)["loss"] for line in lines]

    return run


@pytest.fixture(scope="module")
def theirs(rows, judge, examples, tmp_path_factory) -> Callable[..., tuple[float, list[float]]]:
    """Train with TRL: the same."""
    trl = pytest.importorskip(
        "trl", reason="TRL is needed to compare with: pip install 'vjudge[train]'"
    )
    import datasets
    from transformers import AutoModelForImageTextToText, LlavaProcessor

    from vjudge.training.targets import prompt_and_target

    model, tokenizer = judge.engine.model, judge.engine.model.tokenizer
    processor = LlavaProcessor(
        model.image_processor, tokenizer, patch_size=model.model.config.vision_config.patch_size,
        vision_feature_select_strategy="default", image_token="<image>", num_additional_image_tokens=1,
    )  # fmt: skip
    made = []
    for row in rows:
        prompt, target = prompt_and_target(row, judge.template, shape=SHAPE)
        made.append(
            {
                "images": row["images"],
                "prompt": f"{tokenizer.bos_token}{prompt.text}",
                "completion": f"{judge.template.conversation.reply}{target}{tokenizer.eos_token}",
            }
        )
    dataset = datasets.Dataset.from_list(
        made,
        features=datasets.Features(
            {
                "images": datasets.Sequence(datasets.Image()),
                "prompt": datasets.Value("string"),
                "completion": datasets.Value("string"),
            }
        ),
    )

    def run(order: list[int] | None = None, **changes: Any) -> tuple[float, list[float]]:
        class Trainer(trl.SFTTrainer):
            def _get_train_sampler(self, *args: Any) -> Any:
                return super()._get_train_sampler(*args) if order is None else order

        recipe = RECIPES["scenes"]
        base = AutoModelForImageTextToText.from_pretrained(model.path, dtype=torch.float32)
        base.model.vision_tower.requires_grad_(False)
        clock, began = Clock(), process_time()
        settings = trl.SFTConfig(
            str(tmp_path_factory.mktemp("theirs")), per_device_train_batch_size=BATCH,
            max_steps=len(rows) // BATCH, learning_rate=recipe.lr, lr_scheduler_type=recipe.schedule,
            warmup_steps=CHANGES["warmup"], weight_decay=CHANGES["weight_decay"], adam_beta1=recipe.betas[0],
            adam_beta2=recipe.betas[1], max_grad_norm=recipe.clip, seed=SEED, logging_steps=1, save_strategy="no",
            bf16=False, use_cpu=True, report_to="none", disable_tqdm=True, **changes,
        )  # fmt: skip
        trainer = Trainer(
            base, settings, train_dataset=dataset, processing_class=processor, callbacks=[clock]
        )
        prepared = process_time() - began
        for index in range(0, len(rows), 7):  # the tokens are the same, and so is what carries loss
            batch = trainer.data_collator([dataset[index]])
            example = examples.encode(examples.rows[index])
            assert (
                batch["input_ids"][0].tolist() == example.ids
                and batch["labels"][0].tolist() == example.labels
            )
        began = process_time() - prepared
        trainer.train()
        return len(rows) / (clock.end - began), [
            entry["loss"] for entry in trainer.state.log_history if "loss" in entry
        ]

    return run


def test_against_trl(ours, theirs, rows, examples, report):
    shape = dict(batch_size=BATCH, steps=len(rows) // BATCH, seed=SEED)
    lengths = [len(examples.encode(row).ids) for row in examples.rows]
    order = training_order(lengths, **shape)
    mine, default = [], []
    for _ in range(TURNS):
        mine.append(ours())
        default.append(theirs())
    rate, base = (median(each[0] for each in runs) for runs in (mine, default))
    report.add(
        "examples a second of processor time: ours, TRL by default", f"{rate:.1f}, {base:.1f}"
    )
    report.add("fine-tuning on Scenes: ours / TRL by default", f"{rate / base:.2f}", "1.3")
    in_order, curve = theirs(order)
    apart = max(abs(a - b) / b for a, b in zip(mine[0][1], curve, strict=True))
    report.add(
        "losses of the same steps in the same order, ours and TRL's: apart by at most",
        f"{apart:.1e}",
        "noise",
    )
    report.add("the last of them: ours, TRL's", f"{mine[0][1][-1]:.5f}, {curve[-1]:.5f}")
    assert apart < 1e-3
    whole, _ = theirs(gradient_checkpointing=False)
    report.add("ours / TRL without gradient checkpointing", f"{rate / whole:.2f}")
    report.add("ours / TRL in our order (grouped by length)", f"{rate / in_order:.2f}")
