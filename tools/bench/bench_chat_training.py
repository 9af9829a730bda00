"""Fine-tuning a chat model against TRL's SFTTrainer, TRL by its defaults. `make bench`.

A Qwen2.5-VL of random weights learns a chat wording's answers: the same rows, tokens, trained weights, batches and rate. The
ways take turns and are counted in examples a second of processor time, from the loaded base to the end of the last step.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from time import process_time
from typing import Any

import pytest
import torch
from transformers import AutoModelForImageTextToText, TrainerCallback

import chatmodels
import vjudge as vj
from vjudge.data import rows_of
from vjudge.prompts import TEMPLATES
from vjudge.records import Item
from vjudge.training import RECIPES, fine_tune, finetune
from vjudge.training.collate import Examples
from vjudge.training.targets import prompt_and_target

BATCH, TURNS, SEED = 8, 2, 0
RECIPE = RECIPES["chat"]


class Clock(TrainerCallback):
    """When the last step was done, in seconds of processor time."""

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.end = process_time()


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    torch.set_num_threads(1)
    return chatmodels.make("qwen2_5_vl", tmp_path_factory.mktemp("models") / "qwen2_5_vl")


@pytest.fixture(scope="module")
def judge(base):
    return vj.load_judge(base, template="chat", device="cpu")


@pytest.fixture(scope="module")
def rows(size):
    return vj.load_collection("scenes", split="train", limit=BATCH * max(2, int(10 * size)))


@pytest.fixture(scope="module")
def ours(base, rows, tmp_path_factory) -> Callable[[], float]:
    def run() -> float:
        folder = tmp_path_factory.mktemp("ours")
        began = []
        survey = finetune.survey
        clock = Clock()
        init = finetune.JudgeTrainer.__init__

        def surveyed(*arguments: Any) -> Any:
            began.append(process_time())  # the base is loaded now
            return survey(*arguments)

        def with_clock(self: Any, *arguments: Any, **options: Any) -> None:
            init(self, *arguments, **options)
            self.add_callback(clock)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(finetune, "survey", surveyed)
            patch.setattr(finetune.JudgeTrainer, "__init__", with_clock)
            fine_tune(
                base,
                rows,
                out=folder / "out",
                template="chat",
                recipe="chat",
                batch_size=BATCH,
                steps=len(rows) // BATCH,
                checkpoint_every=10**6,
                allow=["length", "scores"],
                device="cpu",
                precision="float32",
                seed=SEED,
                progress=False,
            )
        return len(rows) / (clock.end - began[0])

    return run


@pytest.fixture(scope="module")
def theirs(base, rows, judge, tmp_path_factory) -> Callable[[], float]:
    trl = pytest.importorskip(
        "trl", reason="TRL is needed to compare with: pip install 'vjudge[train]'"
    )
    import datasets

    model = judge.engine.model
    made = []
    for row in rows:
        _, target = prompt_and_target(row, judge.template)
        (question,) = TEMPLATES["chat"].render(Item.from_row(row)).messages()
        content = [{"type": part["type"], "text": part.get("text")} for part in question["content"]]
        answer = [{"type": "text", "text": target}]
        made.append(
            {
                "images": row["images"],
                "prompt": [{"role": "user", "content": content}],
                "completion": [{"role": "assistant", "content": answer}],
            }
        )
    dataset = datasets.Dataset.from_list(made).cast_column(
        "images", datasets.Sequence(datasets.Image())
    )
    examples = Examples(rows_of(rows), model, judge.template)

    def run(**changes: Any) -> float:
        network = AutoModelForImageTextToText.from_pretrained(base, dtype=torch.float32)
        network.model.visual.requires_grad_(False)
        began = process_time()
        settings = trl.SFTConfig(
            str(tmp_path_factory.mktemp("theirs")),
            per_device_train_batch_size=BATCH,
            max_steps=len(rows) // BATCH,
            learning_rate=RECIPE.lr,
            lr_scheduler_type=RECIPE.schedule,
            warmup_steps=RECIPE.warmup,
            max_length=None,
            seed=SEED,
            save_strategy="no",
            bf16=False,
            use_cpu=True,
            report_to="none",
            disable_tqdm=True,
            **changes,
        )
        clock = Clock()
        trainer = trl.SFTTrainer(
            network,
            settings,
            train_dataset=dataset,
            processing_class=model.processor,
            callbacks=[clock],
        )
        prepared = process_time() - began
        batch = trainer.data_collator([dataset[0]])
        example = examples.encode(examples.rows[0])
        trained = batch["labels"][0].tolist()
        own = [token for token in example.labels if token != -100]
        assert [token for token in trained if token != -100][: len(own)] == own
        began = process_time() - prepared
        trainer.train()
        return len(rows) / (clock.end - began)

    return run


def test_a_chat_model_against_trl(ours, theirs, report):
    mine = []
    default = []
    for _ in range(TURNS):
        mine.append(ours())
        default.append(theirs())
    rates = f"{median(mine):.1f}, {median(default):.1f}"
    report.add("a chat model, examples a second of processor time: ours, TRL by default", rates)
    ratio = median(mine) / median(default)
    report.add("fine-tuning a chat model: ours / TRL by default", f"{ratio:.2f}", "1")
    whole = theirs(gradient_checkpointing=False)
    report.add("ours / TRL without gradient checkpointing", f"{median(mine) / whole:.2f}")
