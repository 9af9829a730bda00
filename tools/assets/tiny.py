"""The embedded judge, trained from nothing on Scenes: `python -m assets.tiny --out outputs/tiny-training`.

Stages: the vision tower alone learns to name what each patch shows; then it is frozen, and projector and decoder
learn to check statements about a picture (image description); then to judge, with the loss on feedback and score alone.
"""

from __future__ import annotations

import argparse
import platform
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import nn
from torch.nn import functional
from transformers import (
    CLIPVisionConfig,
    GenerationConfig,
    LlamaConfig,
    LlavaConfig,
    LlavaForConditionalGeneration,
    PreTrainedTokenizerFast,
)

from assets import card
from assets.lessons import (
    HEADS,
    IGNORED,
    IMAGE_SIZE,
    N_PATCHES,
    PATCH_SIZE,
    Lessons,
    make_image_processor,
)
from assets.loop import LOG, Stage, train
from assets.tokenizer import CONTEXT, image_token, make_tokenizer
from vjudge import models
from vjudge.training.weights import tower_names

CLAIM_LAYER = 2  # how many decoder layers may be used to know which claim a token belongs to
WIDTH, MLP, ATTENTION_HEADS, TOWER_LAYERS, DECODER_LAYERS = 128, 384, 4, 4, 5
STEPS = {"tower": 2_400, "describe": 2_000, "read": 400, "judge": 2_000}


def make_model(tokenizer: PreTrainedTokenizerFast, seed: int) -> LlavaForConditionalGeneration:
    """Build the untrained judge: a LLaVA-1.5 of about two million parameters."""
    torch.manual_seed(seed)
    spread = 0.06  # at this width the usual 0.02 learns much more slowly
    config = LlavaConfig(
        vision_config=CLIPVisionConfig(
            hidden_size=WIDTH,
            intermediate_size=MLP,
            num_hidden_layers=TOWER_LAYERS,
            num_attention_heads=ATTENTION_HEADS,
            image_size=IMAGE_SIZE,
            patch_size=PATCH_SIZE,
            projection_dim=WIDTH,
        ),
        text_config=LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=WIDTH,
            intermediate_size=MLP,
            num_hidden_layers=DECODER_LAYERS,
            num_attention_heads=ATTENTION_HEADS,
            num_key_value_heads=ATTENTION_HEADS,
            max_position_embeddings=CONTEXT,
            initializer_range=spread,
            bos_token_id=tokenizer.bos_token_id,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
            tie_word_embeddings=False,
        ),
        image_token_index=image_token(tokenizer),
        vision_feature_layer=-1,
        vision_feature_select_strategy="default",
        image_seq_length=N_PATCHES,
        projector_hidden_act="gelu",
        tie_word_embeddings=False,
    )
    model = LlavaForConditionalGeneration(config)
    for name, weight in model.named_parameters():
        if weight.ndim > 1 and ("vision_tower" in name or "projector" in name):
            nn.init.normal_(weight, std=spread)
    model.generation_config = GenerationConfig(
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        do_sample=False,
    )
    return model


class Trainee(nn.Module):
    """The judge together with the heads that only the first stage needs.

    Heads name, for a patch, the shape, colour and size of the thing in its cell (the last class is "nothing"), the
    cell, and how many things of the same colour and of the same shape the picture shows: counting becomes a matter of
    looking.
    """

    def __init__(self, model: LlavaForConditionalGeneration) -> None:
        super().__init__()
        self.model = model
        self.heads = nn.ModuleDict({name: nn.Linear(WIDTH, n) for name, n in HEADS.items()})

    def patches(self, pixels: torch.Tensor) -> torch.Tensor:
        """Encode pictures (batch, 3, 96, 96) into patch features (batch, 36, width), without the class token."""
        return self.model.model.vision_tower(pixel_values=pixels).last_hidden_state[:, 1:]

    def text_loss(
        self,
        ids: torch.Tensor,
        labels: torch.Tensor,
        pixels: torch.Tensor | None,
        claims: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, float]:
        """Cross-entropy on labelled tokens, and the share of them that is predicted right.

        `claims` says to which claim each token belongs; where given, the second layer is made to know it (a loss of its
        own): without that, finding claim (3) in a response takes many times the steps to emerge. Sequences are padded
        on the right, so causal attention alone keeps padding out.
        """
        embeddings = self.model.get_input_embeddings()(ids)
        if pixels is not None:
            with torch.no_grad():
                features = self.patches(pixels)
            features = self.model.model.multi_modal_projector(features)
            where = (ids == self.model.config.image_token_id).unsqueeze(-1)
            embeddings = embeddings.masked_scatter(where, features.to(embeddings.dtype))
        output = self.model.model.language_model(
            inputs_embeds=embeddings, use_cache=False, output_hidden_states=claims is not None
        )
        wanted = labels[:, 1:] != IGNORED
        logits = self.model.lm_head(output.last_hidden_state[:, :-1][wanted])
        truth = labels[:, 1:][wanted]
        loss = functional.cross_entropy(logits, truth)
        if claims is not None:
            guesses = self.heads["claim"](output.hidden_states[CLAIM_LAYER])
            loss = loss + functional.cross_entropy(
                guesses.flatten(0, 1), claims.flatten(), ignore_index=IGNORED
            )
        return loss, float((logits.argmax(-1) == truth).float().mean())


def stages(trainee: Trainee, lessons: Lessons, steps: dict[str, int]) -> list[Stage]:
    """The three stages; later ones go on with a share of the earlier one's batches."""
    model = trainee.model
    heads = [head for name, head in trainee.heads.items() if name != "claim"]
    tower = [
        *model.model.vision_tower.parameters(),
        *(weight for head in heads for weight in head.parameters()),
    ]
    rest = [
        *model.model.multi_modal_projector.parameters(),
        *model.model.language_model.parameters(),
    ]
    rest += [*model.lm_head.parameters(), *trainee.heads["claim"].parameters()]

    def name_patches(batch: Any) -> tuple[torch.Tensor, dict[str, float]]:
        pixels, labels = batch
        features = trainee.patches(pixels)
        total, numbers = torch.zeros(()), {}
        for name, truth in labels.items():
            logits = trainee.heads[name](features)
            total = total + functional.cross_entropy(
                logits.flatten(0, 1), truth.flatten(), ignore_index=IGNORED
            )
            known = truth != IGNORED
            numbers[name] = float((logits.argmax(-1) == truth)[known].float().mean())
        return total, numbers

    def read(batch: Any) -> tuple[torch.Tensor, dict[str, float]]:
        task, *tensors = batch
        loss, right = trainee.text_loss(*tensors)
        return loss, {f"{task}_loss": loss.item(), f"{task}_right": right}

    def describe(step: int) -> tuple[Any, ...]:
        return (
            ("drill", *lessons.drill(step))
            if step % 8 == 7
            else ("describe", *lessons.describe(step))
        )

    def reading(step: int) -> tuple[Any, ...]:
        unseen = (
            steps["describe"] + step
        )  # descriptions go on with batches that their own stage has not had
        return (
            ("describe", *lessons.describe(unseen))
            if step % 6 == 5
            else ("read", *lessons.read(step))
        )

    def judge(step: int) -> tuple[Any, ...]:
        if step % 6 == 5:
            return ("describe", *lessons.describe(steps["describe"] + steps["read"] + step))
        return (
            ("read", *lessons.read(steps["read"] + step))
            if step % 6 == 2
            else ("judge", *lessons.judge(step))
        )

    return [
        Stage("tower", steps["tower"], 1.5e-3, lessons.tower, name_patches, tower),
        Stage("describe", steps["describe"], 2e-3, describe, read, rest, decay=0.4, floor=0.3),
        Stage("read", steps["read"], 1.5e-3, reading, read, rest, decay=0.0),
        Stage("judge", steps["judge"], 1.5e-3, judge, read, rest),
    ]


def save(trainee: Trainee, tokenizer: PreTrainedTokenizerFast, folder: Path) -> None:
    """Write the judge as a transformers folder: weights, configuration, tokenizer, preprocessing."""
    folder.mkdir(parents=True, exist_ok=True)
    trainee.model.save_pretrained(folder, state_dict=tower_names(trainee.model.state_dict()))
    tokenizer.save_pretrained(folder)
    make_image_processor().save_pretrained(folder)


def main(arguments: Sequence[str] | None = None) -> None:
    """Train the embedded judge from nothing, or go on where a training was cut off; OUT/judge is the result."""
    parser = argparse.ArgumentParser(prog="python -m assets.tiny", description=main.__doc__)
    parser.add_argument(
        "--out", type=Path, required=True, help="folder for checkpoints, log and the trained judge"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--threads", type=int, default=1, help="more than one pays only on idle cores"
    )
    parser.add_argument(
        "--precision", choices=("float32", "bfloat16"), default="float32", help="of matrix products"
    )
    for name, n in STEPS.items():
        parser.add_argument(f"--{name}-steps", type=int, default=n)
    parser.add_argument(
        "--tower", help="a judge whose vision tower is taken as it is, instead of training one"
    )
    parser.add_argument(
        "--last",
        choices=tuple(STEPS),
        default="judge",
        help="the stage to end with; OUT/LAST is made",
    )
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    steps = {name: getattr(options, f"{name}_steps") for name in STEPS} | (
        {"tower": 0} if options.tower else {}
    )
    stored = options.out / "tokenizer"
    tokenizer = (
        PreTrainedTokenizerFast.from_pretrained(stored) if stored.exists() else make_tokenizer()
    )
    tokenizer.save_pretrained(stored)
    trainee = Trainee(make_model(tokenizer, options.seed))
    trainee.model.set_attn_implementation(
        "eager"
    )  # on a CPU, faster to train at these lengths than the fused kernel
    if options.tower:
        seeing = models.load(options.tower, device="cpu", dtype="float32").model.model.vision_tower
        trainee.model.model.vision_tower.load_state_dict(seeing.state_dict())
    train(
        trainee,
        stages(trainee, Lessons(tokenizer, options.seed), steps)[
            : list(STEPS).index(options.last) + 1
        ],
        options.out,
        precision=options.precision,
        after_stage=lambda name: save(trainee, tokenizer, options.out / name),
    )
    made = options.out / options.last
    shutil.copy(options.out / LOG, made / LOG)
    given = {
        name: value for name, value in vars(options).items() if name != "out" and value is not None
    }
    words = [f"--{name.replace('_', '-')} {value}" for name, value in given.items()]
    command = f"{parser.prog} --out OUT {' '.join(words)}"
    facts = {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
    }
    if options.last == "judge":
        card.write(made, command=command, facts=facts)
    elif options.last != "tower":
        card.write_base(
            made,
            command=command,
            facts=facts,
            seen=held_out(trainee, Lessons(tokenizer, 0, split="test")),
        )


def held_out(
    trainee: Trainee, lessons: Lessons, *, batches: int = 8
) -> dict[str, tuple[float, int]]:
    """How well it describes and reads on a split's pictures: share of labelled tokens right, and their number."""
    found: dict[str, tuple[float, int]] = {}
    checked, claimed = "what is seen, and whether a statement is right", "what a response claims"
    tasks: dict[str, Any] = {checked: lessons.describe, claimed: lessons.read}
    for what, task in tasks.items():
        right, n = 0.0, 0
        for step in range(batches):
            batch = task(step)
            with torch.no_grad():
                share, count = trainee.text_loss(*batch)[1], int((batch[1][:, 1:] != IGNORED).sum())
            right, n = right + share * count, n + count
        found[what] = (right / n, n)
    return found
