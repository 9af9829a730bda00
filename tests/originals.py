"""Small original-layout checkpoints with random weights, as the LLaVA code's own `save_pretrained` leaves them.

Sizes differ from any published checkpoint on purpose: grouped queries, a rope setting, odd widths, several shards.
"""

import itertools
import json
import string
from dataclasses import replace

import numpy as np
import pytest
import torch
from huggingface_hub import save_torch_state_dict
from PIL import Image
from sentencepiece import SentencePieceTrainer
from transformers import (
    CLIPVisionConfig,
    CLIPVisionModel,
    LlamaForCausalLM,
    Qwen2ForCausalLM,
    SiglipVisionConfig,
    SiglipVisionModel,
)

from chatmodels import make_tokenizer
from vjudge import models
from vjudge.engines import Ask
from vjudge.engines.batches import Batcher
from vjudge.engines.vision import call_images
from vjudge.prompts import IMAGE, TEMPLATES
from vjudge.records import Item, Pair, Rubric

SIDE, PATCH = 42, 14  # pixels: nine patches a tile
FIVE = {n: f" {n}" for n in range(1, 6)}
TEN = {n: f" {n}" for n in range(1, 11)}
TEXT = {
    "hidden_size": 40,
    "intermediate_size": 72,
    "num_hidden_layers": 3,
    "num_attention_heads": 5,
    "num_key_value_heads": 1,
    "max_position_embeddings": 2048,
    "rms_norm_eps": 1e-5,
}
VISION = {
    "hidden_size": 36,
    "intermediate_size": 60,
    "num_hidden_layers": 4,
    "num_attention_heads": 3,
    "image_size": SIDE,
    "patch_size": PATCH,
}
VOCABULARY = 370
SHARED = {
    "mm_vision_select_layer": -2,
    "mm_projector_type": "mlp2x_gelu",
    "mm_use_im_patch_token": False,
    **TEXT,
}
JUDGED = {
    "id": "a",
    "images": ("cat.png",),
    "instruction": "Describe the animal.\nBe brief.",
    "rubric": Rubric("Is every claim true?", ("None.", "Few.", "Half.", "Most.", "All.")),
    "reference_answer": "A black cat asleep on a mat.",
}
CRITERIA = [
    {"name": "right", "criteria": "Is it right?", "weight": 3.0},
    {"name": "rude", "criteria": "Is it kind?", "weight": 1.0},
]
RESPONSE = "  A {black} cat \u2014 asleep."
ITEM = Item(response=RESPONSE, context="A cat on a mat.", **JUDGED)
PAIR = Pair(response_a=RESPONSE, response_b="A dog.", **JUDGED)


def subject(template, **changes):
    """What a template judges, with other texts."""
    if not template.compares:
        return replace(ITEM, **changes)
    if "response" in changes:
        changes["response_a"] = changes.pop("response")
    return replace(PAIR, **changes)


def noise(wide, high):
    """A picture of random pixels, the same for the same size."""
    levels = np.random.default_rng(wide).integers(0, 256, (high, wide, 3), dtype=np.uint8)
    return Image.fromarray(levels)


def question(conversation, text, n_images):
    """The prompt of a free question; "<image>" stands where an image goes, else they come first."""
    first, *others = text.split("<image>")
    if not others:
        return conversation.wrap(text, n_images)
    assert len(others) == n_images
    parts = [first]
    for piece in others:
        parts += [IMAGE, piece]
    return conversation.ask(parts)


def ask(mode="feedback", *, scale=FIVE, **how):
    """How up to sixty prompts are asked."""
    return Ask(mode, "[RESULT]", [scale] * 60, **how)


def render(rows):
    """The prompts of rows in Prometheus-Vision's wording, and their images."""
    template = TEMPLATES["prometheus-vision"]
    prompts = [template.render(Item.from_row(row)) for row in rows]
    return prompts, [row["images"] for row in rows]


def answers(engine, *call):
    """An engine's answers in the order of the prompts."""
    every = itertools.chain.from_iterable(engine.answer(*call))
    return sorted(every, key=lambda answer: answer.index)


def forward(engine, prompt, images):
    """One pass over a prompt: its ids, places of images among them, and its logits."""
    source = call_images(engine.model, engine.image_mode)
    call = Batcher(engine, source, [prompt], [images], Ask())
    row = call.request(0)
    assert call.source.fetch([row]), row.failure
    with torch.no_grad():
        inputs = call.source.inputs([row.ids], [row.keys])
        return row.ids, engine.model.model(**inputs, use_cache=False).logits[0].float()


def logits_of(judge, text, images=()):
    """The logits after a free question, images first."""
    prompt = question(judge.template.conversation, text, n_images=len(images))
    return forward(judge.engine, prompt, images)[1]


def write_llava15(folder, **settings):
    """A LLaVA-1.5 checkpoint in three .bin files beside its tower's folder `tower-clip`."""
    torch.manual_seed(3)
    # 1) the tower
    vision = {**VISION, "hidden_act": "quick_gelu"}
    settings_of_tower = CLIPVisionConfig(**vision, projection_dim=24)
    tower = _noise(CLIPVisionModel(settings_of_tower), "vision_model.")
    beside = folder.parent / "tower-clip"
    _json(beside / "config.json", {"model_type": "clip", "vision_config": vision})
    _json(beside / "preprocessor_config.json", {"crop_size": SIDE, "size": SIDE, "resample": 3})
    torch.save(tower | {"logit_scale": torch.ones(())}, beside / "pytorch_model.bin")
    # 2) settings
    config = {
        "architectures": ["LlavaLlamaForCausalLM"],
        "model_type": "llava",
        "mm_vision_tower": "tower-clip",
        "image_aspect_ratio": "pad",
        "bos_token_id": 1,
        "eos_token_id": 2,
        "vocab_size": VOCABULARY,
        "torch_dtype": "float16",
        **SHARED,
        **settings,
    }
    _json(folder / "config.json", config)
    _json(folder / "generation_config.json", {"eos_token_id": 2, "temperature": 0.9})
    names = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "add_bos_token": True}
    kind = {"tokenizer_class": "LlamaTokenizer", "legacy": False}
    _json(folder / "tokenizer_config.json", names | kind)
    write_sentencepiece(folder / "tokenizer")
    # 3) weights
    weights = _decoder(LlamaForCausalLM, VOCABULARY)
    weights |= {f"model.vision_tower.vision_tower.{name}": tower[name] for name in tower}
    # older classes stored it
    weights["model.layers.0.self_attn.rotary_emb.inv_freq"] = torch.ones(4)
    halves = {name: tensor.half() for name, tensor in weights.items()}
    save_torch_state_dict(halves, folder, max_shard_size=100_000, safe_serialization=False)
    return folder


def write_onevision(folder, **settings):
    """A LLaVA-OneVision checkpoint with a trained SigLIP tower beside the folder of the tower it came from."""
    torch.manual_seed(4)
    # 1) the tower
    vision = {**VISION, "model_type": "siglip_vision_model"}
    beside = folder.parent / "tower-siglip"
    _json(beside / "config.json", {"model_type": "siglip", "vision_config": vision})
    smaller = SiglipVisionConfig(**VISION | {"num_hidden_layers": 3})  # one less
    smaller.vision_use_head = False
    tower = _noise(SiglipVisionModel(smaller), "model.vision_tower.vision_tower.vision_model.")
    # 2) settings
    tokenizer = make_tokenizer(
        ["<|im_start|>"], bos=None, eos="<|im_end|>", pad="<|endoftext|>", template=None
    )
    tokenizer.save_pretrained(folder)
    end = tokenizer.convert_tokens_to_ids("<|im_end|>")
    config = {
        "architectures": ["LlavaQwenForCausalLM"],
        "model_type": "llava_qwen",
        "mm_vision_tower": "tower-siglip",
        "mm_patch_merge_type": "spatial_unpad",
        "image_aspect_ratio": "anyres_max_2",
        # no square list
        "image_grid_pinpoints": [[SIDE * w, SIDE * h] for w in (1, 2, 3) for h in (1, 2)],
        "rope_theta": 5e5,
        "vocab_size": len(tokenizer) + 9,  # spare rows, as Qwen has
        "eos_token_id": end,
        "torch_dtype": "bfloat16",
        **SHARED,
        **settings,
    }
    _json(folder / "config.json", config)
    _json(folder / "generation_config.json", {"eos_token_id": [end], "repetition_penalty": 1.05})
    # 3) weights
    weights = tower | _decoder(Qwen2ForCausalLM, config["vocab_size"])
    weights["model.image_newline"] = torch.randn(TEXT["hidden_size"]) / 6
    halves = {name: tensor.bfloat16() for name, tensor in weights.items()}
    save_torch_state_dict(halves, folder, max_shard_size=150_000)
    return folder


def write_sentencepiece(prefix):
    """A vocabulary in sentencepiece's format with byte fallback, as Llama's."""
    SentencePieceTrainer.train(
        sentence_iterator=iter([string.printable.strip(), "the thing is here"]),
        model_prefix=str(prefix),
        vocab_size=VOCABULARY,
        model_type="bpe",
        byte_fallback=True,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        minloglevel=2,
    )


def _decoder(decoder, vocab_size):
    """Random weights of the language model and the projector under their original names."""
    weights = _noise(decoder(decoder.config_class(**TEXT, vocab_size=vocab_size)))
    width = TEXT["hidden_size"]
    for layer, inputs in ((0, VISION["hidden_size"]), (2, width)):
        weights[f"model.mm_projector.{layer}.weight"] = torch.randn(width, inputs) * 0.3
        weights[f"model.mm_projector.{layer}.bias"] = torch.randn(width) * 0.1
    return weights


def _noise(model, prefix=""):
    """Random weights of a model, norms around 1."""
    weights = {}
    for name, tensor in model.state_dict().items():
        around = 1 if "norm" in name and name.endswith("weight") else 0
        weights[prefix + name.removeprefix("vision_model.")] = torch.normal(
            around, 0.2, tensor.shape
        )
    return weights


def refused(folder, reason):
    """A checkpoint is refused when it is loaded."""
    with pytest.raises(ValueError, match=reason):
        models.load(folder, device="cpu")


def edit(file, **changes):
    """Change entries of a JSON file."""
    _json(file, json.loads(file.read_text()) | changes)


def _json(file, content):
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(content), encoding="utf-8")
