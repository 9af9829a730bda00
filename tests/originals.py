"""Small original-layout checkpoints with random weights, as the LLaVA code's own `save_pretrained` leaves them.

Sizes differ from any published checkpoint on purpose: grouped queries, a rope setting, odd widths, several shards.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

SIDE, PATCH = 42, 14  # pixels: nine patches a tile
TEXT = {"hidden_size": 40, "intermediate_size": 72, "num_hidden_layers": 3, "num_attention_heads": 5}
TEXT |= {"num_key_value_heads": 1, "max_position_embeddings": 2048, "rms_norm_eps": 1e-5, "hidden_act": "silu"}
VISION = {"hidden_size": 36, "intermediate_size": 60, "num_hidden_layers": 4, "num_attention_heads": 3}
VISION |= {"image_size": SIDE, "patch_size": PATCH}
SHARED = {"mm_vision_select_layer": -2, "mm_projector_type": "mlp2x_gelu", "mm_use_im_patch_token": False, **TEXT}
PIECES = sorted(set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.,:;!?'\"()[]{}<>/#-_|"))


def write_llava15(folder: Path, *, kind: str = "bin", tower: bool = True, shards: int = 3, **settings: Any) -> Path:
    """A LLaVA-1.5 checkpoint beside its tower's folder `tower-clip`; `kind` is "bin" or "safetensors"."""
    from transformers import CLIPVisionConfig, CLIPVisionModel

    torch.manual_seed(3)
    beside = folder.parent / "tower-clip"
    vision = CLIPVisionModel(CLIPVisionConfig(**VISION, projection_dim=24, hidden_act="quick_gelu"))
    weights = {f"vision_model.{name}": tensor for name, tensor in _noise(vision, "vision_model.").items()}
    if not beside.exists():
        beside.mkdir(parents=True)
        _json(beside / "config.json", {"model_type": "clip", "vision_config": {**VISION, "hidden_act": "quick_gelu"}})
        _json(beside / "preprocessor_config.json", {"crop_size": SIDE, "size": SIDE, "resample": 3})
        torch.save({**weights, "logit_scale": torch.ones(())}, beside / "pytorch_model.bin")
    pieces = write_sentencepiece(folder / "tokenizer.model")
    written = {f"model.vision_tower.vision_tower.{name}": tensor for name, tensor in weights.items()} if tower else {}
    config = {
        "architectures": ["LlavaLlamaForCausalLM"],
        "model_type": "llava",
        "mm_vision_tower": "tower-clip",
        "mm_vision_select_feature": "patch",
        "image_aspect_ratio": "pad",
        "tokenizer_model_max_length": 900,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "vocab_size": pieces,
        "torch_dtype": "float16",
        "transformers_version": "4.31.0",
        **SHARED,
        **settings,
    }
    written |= _decoder(config, bias=False, inv_freq=True)
    _json(folder / "config.json", config)
    _json(folder / "generation_config.json", {"bos_token_id": 1, "eos_token_id": 2, "temperature": 0.9})
    _json(
        folder / "tokenizer_config.json",
        {"tokenizer_class": "LlamaTokenizer", "add_bos_token": True, "bos_token": "<s>", "eos_token": "</s>"}
        | {"unk_token": "<unk>", "legacy": False, "model_max_length": 900},
    )
    write_weights(folder, {name: tensor.half() for name, tensor in written.items()}, kind=kind, shards=shards)
    return folder


def write_onevision(folder: Path, **settings: Any) -> Path:
    """A LLaVA-OneVision checkpoint with a trained SigLIP tower beside the folder of the tower it came from."""
    from transformers import SiglipVisionConfig, SiglipVisionModel
    from transformers.models.qwen2.tokenization_qwen2 import Qwen2Tokenizer

    torch.manual_seed(4)
    beside = folder.parent / "tower-siglip"
    beside.mkdir(parents=True, exist_ok=True)
    _json(
        beside / "config.json",
        {"model_type": "siglip", "vision_config": {**VISION, "model_type": "siglip_vision_model"}},
    )
    smaller = SiglipVisionConfig(**{**VISION, "num_hidden_layers": VISION["num_hidden_layers"] - 1})
    smaller.vision_use_head = False
    tower = _noise(SiglipVisionModel(smaller), "vision_model.")
    written = {f"model.vision_tower.vision_tower.vision_model.{name}": tensor for name, tensor in tower.items()}
    folder.mkdir(parents=True)
    from tokenizers import pre_tokenizers

    alphabet = {symbol: number for number, symbol in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    tokenizer = Qwen2Tokenizer(vocab=alphabet, merges=[], pad_token="<|endoftext|>", eos_token="<|im_end|>")
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|im_start|>", "<|im_end|>"]})
    tokenizer.save_pretrained(folder)
    config = {
        "architectures": ["LlavaQwenForCausalLM"],
        "model_type": "llava_qwen",
        "mm_vision_tower": "tower-siglip",
        "mm_tunable_parts": "mm_vision_tower,mm_mlp_adapter,mm_language_model",
        "mm_patch_merge_type": "spatial_unpad",
        "image_aspect_ratio": "anyres_max_2",
        "image_grid_pinpoints": [[SIDE * w, SIDE * h] for w in (1, 2, 3) for h in (1, 2)],  # no square list
        "eos_token_id": tokenizer.convert_tokens_to_ids("<|im_end|>"),
        "vocab_size": len(tokenizer) + 9,  # spare rows, as Qwen has
        "rope_theta": 5e5,
        "torch_dtype": "bfloat16",
        "transformers_version": "4.40.2",
        **SHARED,
        **settings,
    }
    written |= _decoder(config, bias=True, inv_freq=False)
    written["model.image_newline"] = torch.randn(TEXT["hidden_size"]) / 6
    _json(folder / "config.json", config)
    _json(folder / "generation_config.json", {"eos_token_id": [config["eos_token_id"]], "repetition_penalty": 1.05})
    write_weights(folder, {name: value.bfloat16() for name, value in written.items()}, kind="safetensors", shards=2)
    return folder


def write_weights(folder: Path, weights: dict[str, torch.Tensor], *, kind: str, shards: int) -> None:
    """Spread weights over files, neighbours apart, with the index of each kind."""
    stem, suffix = ("pytorch_model", "bin") if kind == "bin" else ("model", "safetensors")
    names = [f"{stem}-{number:05d}-of-{shards:05d}.{suffix}" for number in range(1, shards + 1)]
    index = {key: names[place % shards] for place, key in enumerate(weights)}
    for name in names:
        part = {key: weights[key].contiguous() for key in weights if index[key] == name}
        if kind == "bin":
            torch.save(part, folder / name)
        else:
            save_file(part, folder / name)
    _json(folder / f"{stem}.{suffix}.index.json", {"weight_map": index})


def write_sentencepiece(file: Path) -> int:
    """A vocabulary in sentencepiece's format with byte fallback, as Llama's; returns its size."""
    from sentencepiece import sentencepiece_model_pb2 as format

    model = format.ModelProto()
    kinds = format.ModelProto.SentencePiece
    entries = [("<unk>", kinds.UNKNOWN), ("<s>", kinds.CONTROL), ("</s>", kinds.CONTROL)]
    entries += [(f"<0x{byte:02X}>", kinds.BYTE) for byte in range(256)]
    entries += [(piece, kinds.NORMAL) for piece in ("▁the", "is", "▁i", "he", "th", "▁t", "▁", *PIECES)]
    for number, (piece, kind) in enumerate(entries):
        model.pieces.add(piece=piece, score=-float(number), type=kind)
    model.trainer_spec.model_type = format.TrainerSpec.BPE
    model.trainer_spec.byte_fallback = True
    model.trainer_spec.vocab_size = len(entries)
    model.normalizer_spec.name = "identity"
    model.normalizer_spec.remove_extra_whitespaces = False
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(model.SerializeToString())
    return len(entries)


def _decoder(config: dict[str, Any], *, bias: bool, inv_freq: bool) -> dict[str, torch.Tensor]:
    """Random weights of the language model and the projector under their original names."""
    width, inner = config["hidden_size"], config["intermediate_size"]
    head = width // config["num_attention_heads"]
    shared = head * config["num_key_value_heads"]
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (config["vocab_size"], width)}
    for layer in range(config["num_hidden_layers"]):
        at = f"model.layers.{layer}"
        for name, rows in (("q_proj", width), ("k_proj", shared), ("v_proj", shared), ("o_proj", width)):
            shapes[f"{at}.self_attn.{name}.weight"] = (rows, width)
            if bias and name != "o_proj":
                shapes[f"{at}.self_attn.{name}.bias"] = (rows,)
        shapes[f"{at}.mlp.gate_proj.weight"] = shapes[f"{at}.mlp.up_proj.weight"] = (inner, width)
        shapes[f"{at}.mlp.down_proj.weight"] = (width, inner)
        shapes[f"{at}.input_layernorm.weight"] = shapes[f"{at}.post_attention_layernorm.weight"] = (width,)
        if inv_freq:
            shapes[f"{at}.self_attn.rotary_emb.inv_freq"] = (head // 2,)
    shapes["model.norm.weight"] = (width,)
    if not config.get("tie_word_embeddings"):
        shapes["lm_head.weight"] = (config["vocab_size"], width)
    shapes["model.mm_projector.0.weight"] = (width, VISION["hidden_size"])
    shapes["model.mm_projector.2.weight"] = (width, width)
    shapes["model.mm_projector.0.bias"] = shapes["model.mm_projector.2.bias"] = (width,)
    return {
        name: torch.randn(shape) * (0.3 if len(shape) > 1 else 0.1) + ("norm" in name) for name, shape in shapes.items()
    }


def _noise(model: Any, prefix: str) -> dict[str, torch.Tensor]:
    return {
        name.removeprefix(prefix): torch.randn_like(tensor) * 0.2 + ("norm" in name and name.endswith("weight"))
        for name, tensor in model.state_dict().items()
    }


def _json(file: Path, content: dict[str, Any]) -> None:
    file.write_text(json.dumps(content), encoding="utf-8")
