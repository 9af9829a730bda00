"""Small original-layout checkpoints with random weights, as the LLaVA code's own `save_pretrained` leaves them.

Sizes differ from any published checkpoint on purpose: grouped queries, a rope setting, odd widths, several shards.
"""

import itertools
import json

import torch
from safetensors.torch import save_file
from sentencepiece import sentencepiece_model_pb2 as format
from tokenizers import pre_tokenizers
from transformers import (
    CLIPVisionConfig,
    CLIPVisionModel,
    LlamaForCausalLM,
    Qwen2ForCausalLM,
    SiglipVisionConfig,
    SiglipVisionModel,
)
from transformers.models.qwen2.tokenization_qwen2 import Qwen2Tokenizer

from vjudge.engines import Ask
from vjudge.engines.batches import Call
from vjudge.engines.vision import images_of
from vjudge.prompts import IMAGE, TEMPLATES
from vjudge.records import Item

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
SHARED = {
    "mm_vision_select_layer": -2,
    "mm_projector_type": "mlp2x_gelu",
    "mm_use_im_patch_token": False,
    **TEXT,
}
PIECES = sorted(
    set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.,:;!?'\"()[]{}<>/#-_|")
)


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
    source = images_of(engine.model, engine.image_mode)
    call = Call(engine, source, [prompt], [images], Ask())
    row = call.row(0)
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
    tower = _noise(CLIPVisionModel(CLIPVisionConfig(**vision, projection_dim=24)))
    weights = {f"vision_model.{name}": tensor for name, tensor in tower.items()}
    beside = folder.parent / "tower-clip"
    _json(beside / "config.json", {"model_type": "clip", "vision_config": vision})
    _json(beside / "preprocessor_config.json", {"crop_size": SIDE, "size": SIDE, "resample": 3})
    torch.save({**weights, "logit_scale": torch.ones(())}, beside / "pytorch_model.bin")
    # 2) settings
    config = {
        "architectures": ["LlavaLlamaForCausalLM"],
        "model_type": "llava",
        "mm_vision_tower": "tower-clip",
        "image_aspect_ratio": "pad",
        "bos_token_id": 1,
        "eos_token_id": 2,
        "vocab_size": _write_sentencepiece(folder / "tokenizer.model"),
        "torch_dtype": "float16",
        **SHARED,
        **settings,
    }
    _json(folder / "config.json", config)
    _json(folder / "generation_config.json", {"eos_token_id": 2, "temperature": 0.9})
    names = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "add_bos_token": True}
    kind = {"tokenizer_class": "LlamaTokenizer", "legacy": False}
    _json(folder / "tokenizer_config.json", names | kind)
    # 3) weights
    tower = {f"model.vision_tower.vision_tower.{name}": weights[name] for name in weights}
    weights = tower | _decoder(LlamaForCausalLM, config)
    # older classes stored it
    weights["model.layers.0.self_attn.rotary_emb.inv_freq"] = torch.ones(4)
    halves = {name: tensor.half() for name, tensor in weights.items()}
    _write_weights(folder, halves, kind="bin", shards=3)
    return folder


def write_onevision(folder, **settings):
    """A LLaVA-OneVision checkpoint with a trained SigLIP tower beside the folder of the tower it came from."""
    torch.manual_seed(4)
    # 1) the tower
    vision = {**VISION, "model_type": "siglip_vision_model"}
    beside = folder.parent / "tower-siglip"
    _json(beside / "config.json", {"model_type": "siglip", "vision_config": vision})
    smaller = SiglipVisionConfig(**{**VISION, "num_hidden_layers": VISION["num_hidden_layers"] - 1})
    smaller.vision_use_head = False
    weights = {}
    for name, tensor in _noise(SiglipVisionModel(smaller)).items():
        weights[f"model.vision_tower.vision_tower.vision_model.{name}"] = tensor
    # 2) settings
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    alphabet = {letter: number for number, letter in enumerate(letters)}
    tokenizer = Qwen2Tokenizer(
        vocab=alphabet, merges=[], pad_token="<|endoftext|>", eos_token="<|im_end|>"
    )
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|im_start|>", "<|im_end|>"]})
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
    weights |= _decoder(Qwen2ForCausalLM, config)
    weights["model.image_newline"] = torch.randn(TEXT["hidden_size"]) / 6
    halves = {name: tensor.bfloat16() for name, tensor in weights.items()}
    _write_weights(folder, halves, kind="safetensors", shards=2)
    return folder


def _write_weights(folder, weights, *, kind, shards):
    """Spread weights over files, neighbours apart, with the index of each kind."""
    stem, save = ("pytorch_model", torch.save) if kind == "bin" else ("model", save_file)
    names = [f"{stem}-{number:05d}-of-{shards:05d}.{kind}" for number in range(1, shards + 1)]
    index = {key: names[place % shards] for place, key in enumerate(weights)}
    for name in names:
        save(
            {key: weights[key].contiguous() for key in weights if index[key] == name}, folder / name
        )
    _json(folder / f"{stem}.{kind}.index.json", {"weight_map": index})


def _write_sentencepiece(file):
    """A vocabulary in sentencepiece's format with byte fallback, as Llama's; returns its size."""
    model, kinds = format.ModelProto(), format.ModelProto.SentencePiece
    entries = [("<unk>", kinds.UNKNOWN), ("<s>", kinds.CONTROL), ("</s>", kinds.CONTROL)]
    entries += [(f"<0x{byte:02X}>", kinds.BYTE) for byte in range(256)]
    entries += [
        (piece, kinds.NORMAL) for piece in ("▁the", "is", "▁i", "he", "th", "▁t", "▁", *PIECES)
    ]
    for number, (piece, kind) in enumerate(entries):
        model.pieces.add(piece=piece, score=-float(number), type=kind)
    model.trainer_spec.model_type, model.trainer_spec.byte_fallback = format.TrainerSpec.BPE, True
    model.trainer_spec.vocab_size = len(entries)
    model.normalizer_spec.name, model.normalizer_spec.remove_extra_whitespaces = "identity", False
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(model.SerializeToString())
    return len(entries)


def _decoder(decoder, settings):
    """Random weights of the language model and the projector under their original names."""
    config = decoder.config_class(
        vocab_size=settings["vocab_size"], **{name: settings[name] for name in TEXT}
    )
    weights = _noise(decoder(config))
    width = settings["hidden_size"]
    for layer, inputs in ((0, VISION["hidden_size"]), (2, width)):
        weights[f"model.mm_projector.{layer}.weight"] = torch.randn(width, inputs) * 0.3
        weights[f"model.mm_projector.{layer}.bias"] = torch.randn(width) * 0.1
    return weights


def _noise(model):
    return {
        name.removeprefix("vision_model."): torch.randn_like(tensor) * 0.2
        + ("norm" in name and name.endswith("weight"))
        for name, tensor in model.state_dict().items()
    }


def _json(file, content):
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(content), encoding="utf-8")
