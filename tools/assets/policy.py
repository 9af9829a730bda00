"""A small policy for Scenes, made from the embedded judge: `python -m assets.policy --out OUT`.

What that made stands in `FOLDER`, for `load_judge`.

It starts from the judge's weights, which know pictures, and learns to answer Scenes' instructions from answers of mixed
quality: claims are wrong at known rates, some answers stop early, some repeat themselves. So it is imperfect on
purpose, in ways that a judge can tell, and in two ways that a judge may overlook.
"""

from __future__ import annotations

import argparse
import json
import shutil
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedTokenizerFast

from assets.lessons import IGNORED, Lessons
from assets.loop import LOG, Stage, train
from assets.tiny import Trainee
from vjudge import models
from vjudge.data import scenes
from vjudge.prompts import VICUNA_V1

WORDING = {
    "shape": 3,
    "count": 2,
    "colour": 2,
    "size": 2,
    "position": 0,
    "presence": 2,
}  # of the claims, by aspect
WRONG = (0.35, 0.3, 0.2, 0.1, 0.05)  # share of answers with none to four wrong claims
STOPS_EARLY, REPEATS = (
    0.1,
    0.1,
)  # share of answers that make fewer than four claims, or one claim twice
STEPS = 1_000
FOLDER = Path(models.__file__).parents[1] / "assets" / "tiny-policy"


class Answers:
    """Batches of instructions and answers of mixed quality; a batch depends on the seed and the step alone."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast, seed: int) -> None:
        self.lessons, self.seed = Lessons(tokenizer, seed), seed
        self.scene = lru_cache(maxsize=None)(lambda index: scenes.sample("train", seed + 2, index))

    def batch(self, step: int, size: int = 16) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Ids, labels on the answers alone, and pixels."""
        rng = np.random.default_rng([self.seed, 200, step])
        encoder, rows, images = self.lessons.encoder, [], []
        for _ in range(size):
            scene = self.scene(int(rng.integers(self.lessons.n_images)))
            instruction, answer = write(scene, rng)
            images.append(picture(scene))
            start = encoder.ids(VICUNA_V1.wrap(instruction, 1))
            said = [*encoder.text_ids(f" {answer}"), self.lessons.tokenizer.eos_token_id]
            rows.append((start + said, [IGNORED] * len(start) + said))
        return (*self.lessons.pad(rows), self.lessons.pixels(images))


def write(scene: scenes.Scene, rng: np.random.Generator) -> tuple[str, str]:
    """An instruction about a scene and an answer of mixed quality to it."""
    aspect = scenes.ASPECTS[str(rng.choice(list(scenes.ASPECTS)))]
    claims = scenes.truths(scene, aspect.name, rng)[0]
    claims.sort(
        key=lambda claim: scenes.PLACES.index(claim.key) if claim.key in scenes.PLACES else -1
    )
    for place in rng.choice(len(claims), size=rng.choice(len(WRONG), p=WRONG), replace=False):
        claims[place] = scenes.falsify(scene, aspect.name, claims[place], rng)
    habit = rng.random()
    if habit < STOPS_EARLY:
        claims = claims[: int(rng.integers(1, len(claims)))]
    elif habit < STOPS_EARLY + REPEATS:
        claims[int(rng.integers(1, len(claims)))] = claims[0]
    instruction = aspect.instructions[rng.integers(len(aspect.instructions))]
    return instruction, scenes.statement(aspect, claims, WORDING[aspect.name])


def picture(scene: scenes.Scene) -> np.ndarray:
    """The scene at the tower's size."""
    from PIL import Image

    from assets.lessons import IMAGE_SIZE

    drawn = scenes.paint(scene)
    return np.asarray(drawn.resize((IMAGE_SIZE, IMAGE_SIZE), Image.Resampling.BICUBIC))


def main(arguments: Sequence[str] | None = None) -> None:
    """Train a policy from the embedded judge, or go on where that was cut off; OUT/policy is the result."""
    parser = argparse.ArgumentParser(prog="python -m assets.policy", description=main.__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    torch.manual_seed(options.seed)
    judge = models.load("tiny")
    trainee = Trainee(judge.model.train())
    trainee.model.set_attn_implementation("eager")
    answers = Answers(judge.tokenizer, options.seed)
    model = trainee.model.model
    learns = [*model.multi_modal_projector.parameters(), *model.language_model.parameters()]
    learns += list(trainee.model.lm_head.parameters())

    def loss(batch: Any) -> tuple[torch.Tensor, dict[str, float]]:
        value, right = trainee.text_loss(*batch)
        return value, {"right": right}

    train(
        trainee, [Stage("answer", options.steps, 1.5e-3, answers.batch, loss, learns)], options.out
    )
    folder = options.out / "policy"
    folder.mkdir(exist_ok=True)
    for file in judge.folder.iterdir():
        if file.suffix == ".json":
            shutil.copy(file, folder / file.name)
    trainee.model.half().save_pretrained(folder)  # half the size; it is computed with in float32
    shutil.copy(options.out / LOG, folder / LOG)
    facts = {
        "seed": options.seed,
        "steps": options.steps,
        "wrong": WRONG,
        "stops_early": STOPS_EARLY,
    }
    (folder / "training.json").write_text(
        json.dumps({**facts, "repeats": REPEATS}, indent=1) + "\n", encoding="utf-8"
    )


if __name__ == "__main__":
    main()
