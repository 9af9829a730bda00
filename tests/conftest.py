"""What several test files share: a small judge made of random weights, and a small collection whose
true score can be read off the picture."""

from __future__ import annotations

import os

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

# Drawn anew where a person runs the tests; in continuous integration a failure is the change's and not the draw's.
settings.register_profile(
    "drawn", deadline=None, derandomize=os.environ.get("VJUDGE_EXAMPLES") == "same"
)
settings.load_profile("drawn")

PATCH, SIDE = 16, 32  # pixels; four image tokens
COLOURS = {1: "red", 2: "green", 3: "blue", 4: "white", 5: "black"}
WORDS = "the is a not of and it has are they answer picture whole empty plain square bright dark wrong right".split()
DESCRIPTIONS = ["Wrong.", "Mostly wrong.", "Half right.", "Mostly right.", "Right."]


def make_rows(n: int, *, seed: int = 0) -> list[dict[str, Any]]:
    """A canonical collection of plain pictures: the colour decides the score, and texts differ in length."""
    import numpy as np
    from PIL import Image

    random = np.random.default_rng(seed)
    pictures = {score: Image.new("RGB", (40, 36), colour) for score, colour in COLOURS.items()}
    rows = []
    for number in range(n):
        score = int(random.integers(1, 6))
        response = " ".join(random.choice(WORDS, size=random.integers(2, 30)))
        rows.append(
            {
                "id": f"item-{number}",
                "images": [pictures[score]],
                "instruction": f"What is it {' '.join(random.choice(WORDS, size=random.integers(0, 9)))}?",
                "response": response,
                "reference_answer": None if number % 3 else "it is plain",
                "criteria": "Is the answer right?",
                "descriptions": DESCRIPTIONS,
                "gold": float(score),
                "human_scores": [float(score), float(min(5, score + 1))],
                "group": f"picture-{score}",
            }
        )
    return rows


def make_tokenizer() -> Any:
    """A byte-level BPE of about 500 entries, as the embedded judge's: "[RESULT]" is an ordinary entry."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    from vjudge.prompts import TEMPLATES
    from vjudge.records import Item

    texts = [
        TEMPLATES["prometheus-vision"].render(Item.from_row(row)).text.replace("<image>", "")
        for row in make_rows(40)
    ]
    texts += [
        f"It is {colour}. So the overall score is {n}.\n[RESULT] {n}"
        for n, colour in COLOURS.items()
    ] * 20
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    special = ["<pad>", "<s>", "</s>", "<image>"]
    trainer = trainers.BpeTrainer(
        vocab_size=900,
        special_tokens=special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(texts, trainer)
    backend.add_tokens(["[RESULT]"])
    backend.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", 1)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        bos_token="<s>",
        eos_token="</s>",
        pad_token="<pad>",
        extra_special_tokens=["<image>"],
    )


def make_model(tokenizer: Any) -> Any:
    """A LLaVA of random weights, wide enough apart that greedy choices are seldom ties."""
    import torch
    from transformers import (
        CLIPVisionConfig,
        LlamaConfig,
        LlavaConfig,
        LlavaForConditionalGeneration,
    )

    torch.manual_seed(0)
    sizes = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    picture = {"image_size": SIDE, "patch_size": PATCH, "projection_dim": 64}
    ids = {
        f"{name}_token_id": getattr(tokenizer, f"{name}_token_id") for name in ("bos", "eos", "pad")
    }
    text = {"intermediate_size": 192, "num_key_value_heads": 2, "max_position_embeddings": 1024}
    config = LlavaConfig(
        vision_config=CLIPVisionConfig(**sizes, **picture, intermediate_size=128),
        text_config=LlamaConfig(
            **sizes, **text, **ids, vocab_size=len(tokenizer), initializer_range=0.15
        ),
        image_token_index=tokenizer.convert_tokens_to_ids("<image>"),
        image_seq_length=(SIDE // PATCH) ** 2,
        vision_feature_layer=-1,
        vision_feature_select_strategy="default",
    )
    return LlavaForConditionalGeneration(config).eval()


def make_processor() -> Any:
    """What makes pixels of its pictures."""
    from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

    return CLIPImageProcessorPil(
        size={"shortest_edge": SIDE}, crop_size={"height": SIDE, "width": SIDE}
    )


def save_judge(folder: Path, model: Any, tokenizer: Any) -> Path:
    """Write a checkpoint folder in the transformers layout."""
    from vjudge.training.weights import tower_names

    model.save_pretrained(folder, state_dict=tower_names(model.state_dict()))
    tokenizer.save_pretrained(folder)
    make_processor().save_pretrained(folder)
    return folder


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Original checkpoints are converted into the user's cache: here, into a folder of the tests'."""
    os.environ["XDG_CACHE_HOME"] = str(tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="session")
def rows() -> list[dict[str, Any]]:
    """Sixty canonical rows over five pictures."""
    return make_rows(60)


@pytest.fixture(scope="session")
def random_judge(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint folder of random weights."""
    tokenizer = make_tokenizer()
    return save_judge(
        tmp_path_factory.mktemp("random") / "prometheus-vision", make_model(tokenizer), tokenizer
    )


@pytest.fixture(scope="session")
def base_of(random_judge: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The folder of a base to train by its kind, made once: of `chatmodels`, or "random"."""
    from chatmodels import make

    made = {"random": random_judge}

    def base(kind: str) -> Path:
        if kind not in made:
            made[kind] = make(kind, tmp_path_factory.mktemp("bases") / kind)
        return made[kind]

    return base


@pytest.fixture
def opened(tmp_path: Path) -> Any:
    """Opens a review of six items by two judges, as often as a test in `tests/review` wants."""
    from reviews import open_review

    return partial(open_review, tmp_path)
