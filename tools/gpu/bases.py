"""Checkpoints of random weights in bfloat16: an original LLaVA-1.5 and a Qwen2.5-VL, at 7B or small."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from huggingface_hub import save_torch_state_dict
from sentencepiece import SentencePieceTrainer
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    CLIPVisionConfig,
    CLIPVisionModel,
    LlamaConfig,
)

import chatmodels
import vjudge as vj
from vjudge.prompts import TEMPLATES
from vjudge.records import Item

SIZES = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")
LLAVA = {"llava": (4096, 11008, 32, 32), "short": (4096, 11008, 4, 32), "small": (64, 128, 2, 4)}
TOWER = (1024, 4096, 24, 16)
SMALL_TOWER = (32, 64, 3, 2)


def write_llava(folder: Path, device: str, shape: str) -> None:
    """An original LLaVA-1.5 checkpoint with its tower beside its files."""
    # 1) settings
    small = shape == "small"
    side = 32 if small else 336  # of a picture; a patch has 16 or 14 pixels
    sizes = dict(zip(SIZES, SMALL_TOWER if small else TOWER, strict=True))
    vision = CLIPVisionConfig(**sizes, image_size=side, patch_size=16 if small else 14)
    sizes = dict(zip(SIZES, LLAVA[shape], strict=True))
    text = LlamaConfig(**sizes, vocab_size=1600, max_position_embeddings=8192)
    settings = {
        "architectures": ["LlavaLlamaForCausalLM"],
        "mm_vision_tower": "tower",
        "mm_projector_type": "mlp2x_gelu",
        "mm_use_im_patch_token": False,
        "torch_dtype": "bfloat16",
    }
    tower_folder = folder / "tower"
    tower_folder.mkdir(parents=True)
    _write(tower_folder / "preprocessor_config.json", {"crop_size": side, "size": side})
    _write(folder / "config.json", text.to_dict() | settings)
    _write(folder / "tokenizer_config.json", {"bos_token": "<s>", "add_bos_token": True})
    # 2) a vocabulary of the prompts
    template = TEMPLATES["prometheus-vision"]
    rows = vj.load_collection("scenes", split="train", limit=100)
    SentencePieceTrainer.train(
        sentence_iterator=(template.render(Item.from_row(row)).text for row in rows),
        model_prefix=str(folder / "tokenizer"),
        vocab_size=800,
        model_type="bpe",
        byte_fallback=True,
        minloglevel=2,
    )
    # 3) weights
    with torch.device(device):
        tower = CLIPVisionModel(vision).bfloat16()
        weights = AutoModelForCausalLM.from_config(text, dtype=torch.bfloat16).state_dict()
        for layer, width in ((0, vision.hidden_size), (2, text.hidden_size)):
            linear = torch.nn.Linear(width, text.hidden_size, dtype=torch.bfloat16)
            for name, tensor in linear.state_dict().items():
                weights[f"model.mm_projector.{layer}.{name}"] = tensor
    tower.save_pretrained(tower_folder)
    save_torch_state_dict(weights, folder)


def write_qwen(folder: Path, device: str, *, small: bool) -> None:
    """A Qwen2.5-VL: the small one of the tests, at 7B with new weights."""
    chatmodels.make("qwen2_5_vl", folder)
    if small:
        return
    settings = json.loads((folder / "config.json").read_text())
    text = settings["text_config"]
    text |= dict(zip(SIZES, (3584, 18944, 28, 28), strict=True))
    text |= {"num_key_value_heads": 4, "head_dim": 128, "layer_types": ["full_attention"] * 28}
    text |= {"initializer_range": 0.02, "max_position_embeddings": 8192}
    text["rope_parameters"]["mrope_section"] = [16, 24, 24]
    vision = {"hidden_size": 1280, "intermediate_size": 3420, "depth": 32, "num_heads": 16}
    vision |= {"out_hidden_size": 3584, "patch_size": 14, "window_size": 112}
    settings["vision_config"] |= vision | {"fullatt_block_indexes": [7, 15, 23, 31]}
    _write(folder / "config.json", settings)
    pixels = {"shortest_edge": 3136, "longest_edge": 200_704}  # 256 tokens a picture at most
    preprocessor = {"image_processor_type": "Qwen2VLImageProcessor", "patch_size": 14}
    _write(folder / "preprocessor_config.json", preprocessor | {"size": pixels})
    with torch.device(device):
        config = AutoConfig.from_pretrained(folder)
        model = AutoModelForImageTextToText.from_config(config, dtype=torch.bfloat16)
    model.save_pretrained(folder)


def _write(file: Path, content: dict) -> None:
    file.write_text(json.dumps(content))
