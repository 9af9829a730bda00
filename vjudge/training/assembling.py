"""A base of one's own: a vision tower and a language model, with a new projector between them.

assemble("openai/clip-vit-large-patch14-336", "lmsys/vicuna-7b-v1.5", "outputs/base")
fine_tune("outputs/base", descriptions, out="outputs/described", recipe="prometheus-vision-projector",
          shape="description")                            # the projector learns what the tower sees
fine_tune("outputs/described/judge", items, out="outputs/mine")   # then the judge
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import torch
from tokenizers import AddedToken
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    CLIPVisionModel,
    GenerationConfig,
    LlavaConfig,
    LlavaForConditionalGeneration,
)
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

from vjudge.models.places import fetch_checkpoint, read_json
from vjudge.training.lora import tower_names

IMAGE = "<image>"


def assemble(
    tower: str | Path,
    decoder: str | Path,
    out: str | Path,
    *,
    layer: int = -2,
    dtype: str | torch.dtype = "auto",
    seed: int = 0,
) -> Path:
    """Put a CLIP tower and a language model together as a LLaVA-1.5 whose projector has learned nothing yet.

    Args:
        tower: folder or hub id of a CLIP model, with its image preprocessing.
        decoder: folder or hub id of a causal language model with its tokenizer.
        out: the new checkpoint's folder.
        layer: of the tower, the one whose states are projected; -2 is LLaVA's.
        dtype: of the stored weights; "auto" is the decoder's own.
        seed: of the projector's first values.

    Returns:
        `out`, for `fine_tune` and `load_judge`: both parts bit for bit, two new matrices with GELU between them
        (LLaVA's mlp2x_gelu, drawn as torch draws them), and a token "<image>" after the decoder's own vocabulary.

    Raises:
        ValueError: a part is missing or of another kind; the folder holds something.

    Source: haotian-liu/LLaVA llava/model/multimodal_projector/builder.py; the layout is transformers' own.
    """
    out = Path(out).expanduser()
    if out.exists() and any(out.iterdir()):
        raise ValueError(f"{out} is not empty: give a folder of its own")
    eye_folder, voice_folder = _folder(tower, "tower"), _folder(decoder, "decoder")
    kind = str(read_json(eye_folder / "config.json").get("model_type", ""))
    if kind not in ("clip", "clip_vision_model"):
        raise ValueError(f"tower {str(tower)!r} is of type {kind!r}; give a CLIP model")
    safe: dict[str, Any] = {"local_files_only": True, "use_safetensors": True, "dtype": dtype}
    voice: Any = AutoModelForCausalLM.from_pretrained(voice_folder, **safe)
    if not hasattr(voice, "lm_head") or not hasattr(voice, "model"):
        raise ValueError(f"decoder {str(decoder)!r} ({voice.config.model_type}) has not Llama's layout; give another")
    eye: Any = CLIPVisionModel.from_pretrained(eye_folder, **{**safe, "dtype": voice.dtype})
    tokenizer: Any = AutoTokenizer.from_pretrained(voice_folder, local_files_only=True)
    tokenizer.add_tokens([AddedToken(IMAGE, special=True, normalized=False)])
    place = tokenizer.convert_tokens_to_ids(IMAGE)
    if place >= voice.get_input_embeddings().num_embeddings:
        voice.resize_token_embeddings(place + 1, mean_resizing=False)
    config = LlavaConfig(
        vision_config=eye.config,
        text_config=voice.config,
        image_token_index=place,
        image_seq_length=(eye.config.image_size // eye.config.patch_size) ** 2,
        vision_feature_layer=layer,
        vision_feature_select_strategy="default",
        projector_hidden_act="gelu",
        tie_word_embeddings=bool(voice.config.tie_word_embeddings),
    )
    with torch.device("meta"):
        whole: Any = LlavaForConditionalGeneration(config)
    whole.model.vision_tower, whole.model.language_model, whole.lm_head = eye, voice.model, voice.lm_head
    whole.model.multi_modal_projector = _projector(whole.model.multi_modal_projector, seed).to(voice.dtype)
    ids = {name: value for name, value in voice.generation_config.to_dict().items() if name.endswith("_token_id")}
    whole.generation_config = GenerationConfig(**ids)
    partial = out.with_name(f".{out.name}.part")
    shutil.rmtree(partial, ignore_errors=True)
    whole.save_pretrained(partial, state_dict=tower_names(whole.state_dict()))
    tokenizer.save_pretrained(partial)
    CLIPImageProcessorPil.from_pretrained(eye_folder, local_files_only=True).save_pretrained(partial)
    shutil.rmtree(out, ignore_errors=True)
    partial.rename(out)
    return out


def _projector(empty: torch.nn.Module, seed: int) -> torch.nn.Module:
    """The projector with values as a new torch layer has them."""
    made = empty.to_empty(device="cpu")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        for part in made.modules():
            if isinstance(part, torch.nn.Linear):
                part.reset_parameters()
    return made


def _folder(name_or_path: str | Path, part: str) -> Path:
    folder = Path(name_or_path).expanduser()
    if (folder / "config.json").is_file():
        return folder
    try:
        return fetch_checkpoint(str(name_or_path))
    except ValueError as error:
        raise ValueError(f"{part}: {error}") from error
