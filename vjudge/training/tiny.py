"""The embedded judge, trained from nothing on Scenes: `python -m vjudge.training.tiny --out outputs/tiny-training`.

Stages: the vision tower alone learns to name what each patch shows; then it is frozen, and projector and decoder learn to
check statements about a picture (image description); then to judge, with the loss on feedback and score alone.
"""

from __future__ import annotations

import argparse
import json
import platform
import shutil
import time
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
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
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

from vjudge import prompts
from vjudge.engines.encoding import Encoder
from vjudge.prompts import IMAGE, TEMPLATES, Prompt
from vjudge.records import Item
from vjudge.scenes import collection, language, world
from vjudge.scenes.language import NUMBERS, Claim
from vjudge.training.loop import LOG, Stage, train

TEMPLATE = TEMPLATES["prometheus-vision"]
IMAGE_SIZE, PATCH_SIZE, N_PATCHES = 96, 16, 36
WIDTH, MLP, HEADS, TOWER_LAYERS, DECODER_LAYERS = 128, 384, 4, 4, 5
CONTEXT = 1024
SPECIALS = ("<pad>", "<s>", "</s>", "<image>")
STEPS = {"tower": 2_400, "describe": 2_000, "judge": 3_200}
POOL = 12_000  # pictures of the train split that training draws on
IGNORED = -100  # label of a token without loss
EMPTY = "empty"


# --- tokenizer ---------------------------------------------------------------------------------------------------------


def phrases() -> list[str]:
    """List the fixed phrases of prompt and answer that are one ordinary token each: a prompt then takes few tokens."""
    item = Item.from_row(
        {
            "id": "0", "images": ["x"], "instruction": "\0", "response": "\0", "reference_answer": "\0", "criteria": "\0",
            "descriptions": [f"\0{i}" for i in range(5)],
        }
    )  # fmt: skip
    found = []
    for reference in ("\0", None):
        rendered = TEMPLATE.render(Item(**{**vars(item), "reference_answer": reference}))
        for part in rendered.parts:
            if isinstance(part, str):
                pieces = part.replace(TEMPLATE.conversation.closing, f"\0{TEMPLATE.conversation.closing}").split("\0")
                found += [piece.lstrip("01234").rstrip(" ") if piece != rendered.parts[0] else piece for piece in pieces]
    found += [" So the overall score is", TEMPLATE.marker]
    return [piece for piece in dict.fromkeys(found) if len(piece) > 1]


def make_tokenizer(n_cases: int = 3_000) -> PreTrainedTokenizerFast:
    """Train the byte-level BPE on Scenes' own words; a word with its leading space becomes one token."""

    def corpus() -> Iterator[str]:
        for index in range(n_cases):
            for row in collection.rows_of("train", index)[1]:
                yield " ".join([row["instruction"], row["criteria"], *row["descriptions"]])
                yield "\n".join([row["criteria"], *row["descriptions"], row["instruction"]])
                yield f"{row['response']}\n {prompts.target(row['feedback'], int(row['gold']))} {row['reference_answer'] or ''}"

    tokenizer = Tokenizer(models.BPE())
    words = r" ?\([0-9]\)| ?[A-Za-z]+(?:-[A-Za-z]+)*| ?[0-9]| ?[^\sA-Za-z0-9]+|\s"
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(words), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=4_000,
        min_frequency=20,
        special_tokens=list(SPECIALS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(corpus(), trainer)
    tokenizer.add_tokens([AddedToken(phrase, special=False, normalized=False) for phrase in phrases()])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", tokenizer.token_to_id("<s>"))]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        bos_token="<s>",
        eos_token="</s>",
        additional_special_tokens=["<image>"],
        model_max_length=CONTEXT,
        clean_up_tokenization_spaces=False,
    )


# --- model -------------------------------------------------------------------------------------------------------------


def make_model(tokenizer: PreTrainedTokenizerFast, seed: int) -> LlavaForConditionalGeneration:
    """Build the untrained judge: a LLaVA-1.5 of about two million parameters."""
    torch.manual_seed(seed)
    spread = 0.06  # at this width the usual 0.02 learns much more slowly
    config = LlavaConfig(
        vision_config=CLIPVisionConfig(
            hidden_size=WIDTH,
            intermediate_size=MLP,
            num_hidden_layers=TOWER_LAYERS,
            num_attention_heads=HEADS,
            image_size=IMAGE_SIZE,
            patch_size=PATCH_SIZE,
            projection_dim=WIDTH,
        ),
        text_config=LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=WIDTH,
            intermediate_size=MLP,
            num_hidden_layers=DECODER_LAYERS,
            num_attention_heads=HEADS,
            num_key_value_heads=HEADS,
            max_position_embeddings=CONTEXT,
            initializer_range=spread,
            bos_token_id=tokenizer.bos_token_id,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
            tie_word_embeddings=False,
        ),
        image_token_index=tokenizer.convert_tokens_to_ids("<image>"),
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


def make_image_processor() -> CLIPImageProcessorPil:
    """Make CLIP's preprocessing at 96 x 96 pixels."""
    side = {"height": IMAGE_SIZE, "width": IMAGE_SIZE}
    return CLIPImageProcessorPil(size={"shortest_edge": IMAGE_SIZE}, crop_size=side)


class Trainee(nn.Module):
    """The judge together with the heads that only the first stage needs.

    Heads name, for a patch, the shape, colour and size of the thing in its cell (the last class is "nothing"), the cell, and how
    many things of the same colour and of the same shape the picture shows: counting becomes a matter of looking.
    """

    def __init__(self, model: LlavaForConditionalGeneration) -> None:
        super().__init__()
        self.model = model
        sizes = {"shape": len(world.SHAPES) + 1, "colour": len(world.COLOURS) + 1, "size": len(world.SIZES) + 1}
        sizes |= {"cell": len(world.PLACES), "colour_count": len(NUMBERS), "shape_count": len(NUMBERS)}
        self.heads = nn.ModuleDict({name: nn.Linear(WIDTH, n) for name, n in sizes.items()})

    def patches(self, pixels: torch.Tensor) -> torch.Tensor:
        """Encode pictures (batch, 3, 96, 96) into patch features (batch, 36, width), without the class token."""
        return self.model.model.vision_tower(pixel_values=pixels).last_hidden_state[:, 1:]

    def text_loss(self, ids: torch.Tensor, labels: torch.Tensor, pixels: torch.Tensor | None) -> tuple[torch.Tensor, float]:
        """Cross-entropy on labelled tokens, and the share of them that is predicted right.

        Sequences are padded on the right, so causal attention alone keeps padding out.
        """
        embeddings = self.model.get_input_embeddings()(ids)
        if pixels is not None:
            with torch.no_grad():
                features = self.patches(pixels)
            features = self.model.model.multi_modal_projector(features)
            where = (ids == self.model.config.image_token_id).unsqueeze(-1)
            embeddings = embeddings.masked_scatter(where, features.to(embeddings.dtype))
        hidden = self.model.model.language_model(inputs_embeds=embeddings, use_cache=False).last_hidden_state
        wanted = labels[:, 1:] != IGNORED
        logits = self.model.lm_head(hidden[:, :-1][wanted])
        truth = labels[:, 1:][wanted]
        loss = functional.cross_entropy(logits, truth)
        return loss, float((logits.argmax(-1) == truth).float().mean())


# --- batches -----------------------------------------------------------------------------------------------------------


class Data:
    """Batches for each stage; a batch depends on the seed and the step alone."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast, seed: int, *, n_images: int = POOL) -> None:
        self.tokenizer, self.seed = tokenizer, seed
        self.encoder = Encoder(
            tokenizer, image_token_id=tokenizer.convert_tokens_to_ids("<image>"), tokens_per_image=N_PATCHES
        )
        self.n_images = n_images
        processor = make_image_processor()
        self.mean = torch.tensor(processor.image_mean).view(1, 3, 1, 1)
        self.std = torch.tensor(processor.image_std).view(1, 3, 1, 1)
        self._cached = lru_cache(maxsize=None)(self._draw)
        self.scene = lru_cache(maxsize=None)(self._sample)

    def rng(self, stage: int, step: int) -> np.random.Generator:
        return np.random.default_rng([self.seed, 100 + stage, step])

    def _sample(self, index: int) -> world.Scene:
        return world.sample("train", self.seed + 1, index)  # seed 0 is the collection that users load

    def _draw(self, index: int) -> np.ndarray:
        return _small(world.draw(self.scene(index), size=collection.IMAGE_SIZE))

    def pixels(self, images: Sequence[np.ndarray]) -> torch.Tensor:
        """Normalise pictures as the image processor does: (batch, 3, 96, 96), float32."""
        batch = torch.from_numpy(np.stack(images)).permute(0, 3, 1, 2).float() / 255
        return (batch - self.mean) / self.std

    def tower(self, step: int, size: int = 64) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        """Pictures and, for each patch, the classes of its cell. A third of the pictures are in random colours."""
        rng = self.rng(0, step)
        names = ("shape", "colour", "size", "cell", "shape_count", "colour_count")
        images, labels = [], {name: np.full((size, N_PATCHES), IGNORED) for name in names}
        cells = [(row // 2) * 3 + column // 2 for row in range(6) for column in range(6)]
        for i in range(size):
            index = int(rng.integers(self.n_images))
            scene = self.scene(index)
            recoloured = rng.random() < 1 / 3
            if recoloured:
                palette = {place: tuple(int(v) for v in rng.integers(0, 225, size=3)) for place in world.PLACES}
                images.append(_small(world.draw(scene, size=collection.IMAGE_SIZE, palette=palette)))
            else:
                images.append(self._cached(index))
            things = [scene.at(place) for place in world.PLACES]
            for name, values in (("shape", world.SHAPES), ("colour", tuple(world.COLOURS)), ("size", tuple(world.SIZES))):
                classes = [values.index(getattr(t, name)) if t else len(values) for t in things]
                if not (recoloured and name == "colour"):
                    labels[name][i] = [classes[cell] for cell in cells]
            labels["cell"][i] = cells
            for kind in ("shape", "colour"):
                if not (recoloured and kind == "colour"):
                    alike = [scene.count(getattr(t, kind), kind) if t else IGNORED for t in things]
                    labels[f"{kind}_count"][i] = [alike[cell] for cell in cells]
        return self.pixels(images), {name: torch.from_numpy(values) for name, values in labels.items()}

    def claims(self, scene: world.Scene, rng: np.random.Generator, n: int) -> list[Claim]:
        """Sample statements of all kinds about a scene, half of them right."""
        made = []
        for kind in rng.choice(["shape", "colour", "size", "count", "presence"], size=n, p=[0.22, 0.14, 0.12, 0.26, 0.26]):
            if kind == "count":
                if rng.random() < 0.75:
                    key, attribute = scene.counted[rng.integers(len(scene.counted))]
                else:
                    attribute = "colour" if rng.random() < 0.5 else "shape"
                    key = str(rng.choice(list(world.COLOURS) if attribute == "colour" else world.SHAPES))
                seen, values = NUMBERS[scene.count(key, attribute)], NUMBERS[: world.MOST_ALIKE + 1]
            elif kind == "presence":
                claim = collection.truths(scene, "presence", rng)[0][0]
                key, seen, values = claim.key, claim.seen, ("present", "absent")
            else:
                key = str(rng.choice(world.PLACES))
                thing = scene.at(key)
                values = {"shape": world.SHAPES, "colour": tuple(world.COLOURS), "size": tuple(world.SIZES)}[str(kind)]
                seen = getattr(thing, str(kind)) if thing else EMPTY
            said = seen if rng.random() < 0.5 and seen != EMPTY else str(rng.choice([v for v in values if v != seen]))
            made.append(Claim(key, said, seen))
        return made

    def describe(self, step: int, size: int = 16, n_checks: int = 4) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Pictures followed by feedback on random statements; loss on what is seen and on verdicts, not on what was said."""
        rng = self.rng(1, step)
        question = Prompt((TEMPLATE.conversation.opening, IMAGE, "\n", TEMPLATE.conversation.closing))
        rows, images = [], []
        for _ in range(size):
            index = int(rng.integers(self.n_images))
            scene = self.scene(index)
            images.append(self._cached(index))
            ids = self.encoder.ids(question)
            labels = [IGNORED] * len(ids)
            for _ in range(n_checks):
                more, marks = self.checked(self.claims(scene, rng, language.N_CLAIMS))
                ids, labels = ids + more, labels + marks
            rows.append((ids, labels))
        return (*self.pad(rows), self.pixels(images))

    def drill(self, step: int, size: int = 64) -> tuple[torch.Tensor, torch.Tensor, None]:
        """Feedback on random statements without a picture; loss on verdicts alone: comparing and counting."""
        rng = self.rng(2, step)
        rows = []
        for _ in range(size):
            scene = self.scene(int(rng.integers(self.n_images)))
            ids, labels = self.checked(self.claims(scene, rng, language.N_CLAIMS), seen=False)
            rows.append((ids, labels))
        return (*self.pad(rows), None)

    def checked(self, claims: list[Claim], seen: bool = True) -> tuple[list[int], list[int]]:
        """Encode feedback on claims as ids and labels; labelled are what is seen (if `seen`) and every verdict."""
        ids: list[int] = []
        labels: list[int] = []

        def add(text: str, labelled: bool) -> None:
            new = self.encoder.text_ids(text)
            ids.extend(new)
            labels.extend(new if labelled else [IGNORED] * len(new))

        for i, claim in enumerate(claims, start=1):
            add(f" ({i}) said {claim.said}, {claim.key}", False)
            add(f" {claim.seen}", seen)
            add(",", False)
            add(f" {'correct' if claim.right else 'wrong'}", True)
            add(".", False)
        wrong = sum(not claim.right for claim in claims)
        score = language.score(claims)
        add(f" {language.WRONG_COUNTS[wrong]}", True)
        add(" wrong. So the overall score is", False)
        add(f" {score}", True)
        add(f".\n{TEMPLATE.marker}", False)
        add(f" {score}", True)
        return ids, labels

    def judge(self, step: int, size: int = 16) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Items of the train split in the judge's template; loss on feedback, score and end alone."""
        rng = self.rng(3, step)
        rows, images = [], []
        for _ in range(size):
            index = int(rng.integers(self.n_images))
            scene = self.scene(index)
            row = collection.case(scene, str(rng.choice(list(language.ASPECTS))), rng)[0]
            images.append(self._cached(index))
            item = Item.from_row({"id": "train", "images": ["picture"], **row})
            ids = self.encoder.ids(TEMPLATE.render(item))
            answer = self.encoder.text_ids(" " + prompts.target(row["feedback"], int(row["gold"])))
            answer.append(self.tokenizer.eos_token_id)
            rows.append((ids + answer, [IGNORED] * len(ids) + answer))
        return (*self.pad(rows), self.pixels(images))

    def pad(self, rows: Sequence[tuple[list[int], list[int]]]) -> tuple[torch.Tensor, torch.Tensor]:
        """Pad on the right: ids and labels, (batch, longest)."""
        longest = max(len(ids) for ids, _ in rows)
        ids = torch.full((len(rows), longest), self.tokenizer.pad_token_id)
        labels = torch.full((len(rows), longest), IGNORED)
        for i, (row, marks) in enumerate(rows):
            ids[i, : len(row)] = torch.tensor(row)
            labels[i, : len(marks)] = torch.tensor(marks)
        return ids, labels


def _small(image: Image.Image) -> np.ndarray:
    """Reduce a picture to the tower's size as the image processor does."""
    return np.asarray(image.resize((IMAGE_SIZE, IMAGE_SIZE), Image.Resampling.BICUBIC))


# --- stages ------------------------------------------------------------------------------------------------------------


def stages(trainee: Trainee, data: Data, steps: dict[str, int]) -> list[Stage]:
    """The three stages; later ones go on with a share of the earlier one's batches."""
    model = trainee.model
    tower = [*model.model.vision_tower.parameters(), *trainee.heads.parameters()]
    rest = [*model.model.multi_modal_projector.parameters(), *model.model.language_model.parameters()]
    rest += model.lm_head.parameters()

    def name_patches(batch: Any) -> tuple[torch.Tensor, dict[str, float]]:
        pixels, labels = batch
        features = trainee.patches(pixels)
        total, numbers = torch.zeros(()), {}
        for name, truth in labels.items():
            logits = trainee.heads[name](features)
            total = total + functional.cross_entropy(logits.flatten(0, 1), truth.flatten(), ignore_index=IGNORED)
            known = truth != IGNORED
            numbers[name] = float((logits.argmax(-1) == truth)[known].float().mean())
        return total, numbers

    def read(batch: Any) -> tuple[torch.Tensor, dict[str, float]]:
        task, *tensors = batch
        loss, right = trainee.text_loss(*tensors)
        return loss, {f"{task}_loss": loss.item(), f"{task}_right": right}

    def describe(step: int) -> tuple[Any, ...]:
        return ("drill", *data.drill(step)) if step % 8 == 7 else ("describe", *data.describe(step))

    def judge(step: int) -> tuple[Any, ...]:
        unseen = steps["describe"] + step  # descriptions go on with batches that their own stage has not had
        return ("describe", *data.describe(unseen)) if step % 6 == 5 else ("judge", *data.judge(step))

    return [
        Stage("tower", steps["tower"], 1.5e-3, data.tower, name_patches, tower),
        Stage("describe", steps["describe"], 2e-3, describe, read, rest, decay=0.4, floor=0.3),
        Stage("judge", steps["judge"], 1.5e-3, judge, read, rest),
    ]


def save(trainee: Trainee, tokenizer: PreTrainedTokenizerFast, folder: Path) -> None:
    """Write the judge as a transformers folder: weights, configuration, tokenizer, preprocessing."""
    folder.mkdir(parents=True, exist_ok=True)
    trainee.model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    make_image_processor().save_pretrained(folder)


def main(arguments: Sequence[str] | None = None) -> None:
    """Train the embedded judge from nothing, or go on where a training was cut off."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder for checkpoints, log and the trained judge")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--precision", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--tokenizer", type=Path, help="take this folder's tokenizer instead of training one")
    for name, n in STEPS.items():
        parser.add_argument(f"--{name}-steps", type=int, default=n)
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    steps = {name: getattr(options, f"{name}_steps") for name in STEPS}
    source = options.tokenizer or (options.out / "tokenizer" if (options.out / "tokenizer").exists() else None)
    tokenizer = PreTrainedTokenizerFast.from_pretrained(source) if source else make_tokenizer()
    tokenizer.save_pretrained(options.out / "tokenizer")
    trainee = Trainee(make_model(tokenizer, options.seed))
    trainee.model.set_attn_implementation("eager")  # on a CPU, faster to train at these lengths than the fused kernel
    data = Data(tokenizer, options.seed)
    began = time.monotonic()
    train(
        trainee,
        stages(trainee, data, steps),
        options.out,
        precision=options.precision,
        after_stage=lambda name: save(trainee, tokenizer, options.out / name),
    )
    shutil.copy(options.out / LOG, options.out / "judge" / LOG)
    facts = {"seed": options.seed, "steps": steps, "torch": torch.__version__, "python": platform.python_version()}
    print(json.dumps({**facts, "seconds_this_call": round(time.monotonic() - began)}))


if __name__ == "__main__":
    main()
