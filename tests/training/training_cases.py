"""What the tests of fine-tuning share: rows with feedback, few steps, what a training left, and its end midway."""

import json
from contextlib import contextmanager

import pytest
from safetensors.torch import load_file

from conftest import make_rows
from vjudge.training import fine_tune, finetune

QUIET = [
    pytest.mark.filterwarnings(f"ignore:.*{text}")
    for text in ("verdicts failed", "nothing was learned", "LLaVA-Critic-113k")
]
SMALL = dict(
    recipe="scenes", lr=3e-3, batch_size=4, warmup=2, log_every=1, progress=False, device="cpu"
)


def rows_with_feedback(n=20):
    """Rows in balance: every score as often, every response as long."""
    rows = make_rows(n)
    for number, row in enumerate(rows):
        row |= {"gold": float(number % 5 + 1), "response": "it is a plain picture"}
        row["feedback"] = f"It is answer {number % 7}."
    return rows


def pairs_with_feedback(n=2):
    """Pairs whose first and second response are better in turn."""
    rows = rows_with_feedback(n)
    for number, row in enumerate(rows):
        del row["response"]
        row |= {"response_a": "one thing", "response_b": "two things"}
        row |= {"preference": "ab"[number % 2], "feedback": f"Because of {number}."}
    return rows


def train(base, out, rows=5, **options):
    """A small training, on so many rows or on these."""
    if isinstance(rows, int):
        rows = rows_with_feedback(rows)
    return fine_tune(base, rows, out=out, **SMALL | options)


def weights_of(folder):
    return load_file(folder / "model.safetensors")


def entries_of(folder):
    """The log without seconds."""
    lines = (folder / "training_log.jsonl").read_text().splitlines()
    return [dict(sorted((json.loads(line) | {"seconds": 0}).items())) for line in lines]


def losses_of(folder):
    return [entry["loss"] for entry in entries_of(folder) if "loss" in entry]


def result_of(folder):
    return json.loads((folder / "manifest.json").read_text())["result"]


@contextmanager
def at_step(step, act):
    """Do something to the trainer when so many steps are done."""
    whole = finetune.JudgeTrainer.training_step

    def training_step(self, *args, **options):
        if self.state.global_step == step:
            act(self)
        return whole(self, *args, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(finetune.JudgeTrainer, "training_step", training_step)
        yield


def die(trainer):
    raise KeyboardInterrupt
