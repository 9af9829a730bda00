"""What an original LLaVA checkpoint holds, in the terms of transformers.

Source: kaistAI/prometheus-vision and LLaVA-VL/LLaVA-NeXT, llava/model/ (builder.py, llava_arch.py,
multimodal_encoder).
"""

from __future__ import annotations

import itertools
import math
import re
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers import AddedToken
from tokenizers.pre_tokenizers import Metaspace
from torch.nn.functional import pad
from transformers import (
    CONFIG_MAPPING,
    CLIPVisionConfig,
    LlavaConfig,
    LlavaOnevisionConfig,
    SiglipVisionConfig,
)
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil
from transformers.models.llava_onevision.image_processing_pil_llava_onevision import (
    LlavaOnevisionImageProcessorPil,
)

from vjudge.models.files import (
    fetch,
    fetch_weights,
    read_settings,
    read_tensors,
    weight_files,
)
from vjudge.models.layout import decoder_of
from vjudge.prompts import QWEN_1_5, VICUNA_V1

VOCABULARY_WEIGHTS = ("language_model.model.embed_tokens.weight", "language_model.lm_head.weight")
OWN_TOWER = "model.vision_tower.vision_tower."  # begins the names of a tower in a checkpoint


class Original:
    """An original checkpoint folder in transformers' terms; its files are read when asked for.

    Raises:
        ValueError: what transformers' classes can't hold.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.settings = read_settings(folder / "config.json")
        # Images are cut into tiles by LLaVA-NeXT and OneVision.
        self.tiled = decoder_of(self.settings) == "qwen2"
        self.tied = bool(self.settings.get("tie_word_embeddings", False))
        # OneVision reads its tower's last layer, LLaVA-1.5 the one before it.
        self.layer = -1 if self.tiled else int(self.settings.get("mm_vision_select_layer", -2))

        # The tower's own folder says what the checkpoint does not: sizes, heads, activation.
        self.tower = str(self.settings["mm_vision_tower"])
        for parent in (folder.parent, folder):
            self.tower_folder = parent / self.tower  # or an absolute path
            if self.tower_folder.is_dir():
                break
        else:
            self.tower_folder = fetch(self.tower, ["config.json", "preprocessor_config.json"])
        self.origins = (folder, self.tower_folder)  # of its weights and settings
        read_settings(self.tower_folder / "config.json")  # refuses bad numbers
        classes: Any = SiglipVisionConfig if self.tiled else CLIPVisionConfig
        self.tower_config = classes.from_pretrained(self.tower_folder, local_files_only=True)
        if self.tiled:  # the original deletes the last layer and the pooling head
            self.tower_config.num_hidden_layers -= 1
            self.tower_config.vision_use_head = False

    @cached_property
    def weights(self) -> dict[str, torch.Tensor]:
        """The checkpoint's own weights by their original names."""
        return read_tensors(self.folder)

    @cached_property
    def tower_weights(self) -> dict[str, torch.Tensor]:
        """The tower's weights by their names in a tower.

        LLaVA-1.5 reads its tower from `mm_vision_tower` last, LLaVA-OneVision first, and puts the
        checkpoint's own over it.
        """
        tower = _inside(self.weights, OWN_TOWER)
        if not (tower and self.tiled):
            if not weight_files(self.tower_folder):
                fetch_weights(self.tower)
            tower = read_tensors(self.tower_folder)
        # transformers 5 saves a tower by itself without the prefix that the hub's files have.
        return _inside(tower, "vision_model.") or tower

    @cached_property
    def tokenizer(self) -> Any:
        """The original's tokenizer, by the class that reads it alike, with places for images."""
        # 1) the words of the checkpoint's files
        # The classes by name make an all but empty vocabulary where there are no files.
        files = ("tokenizer.json", "tokenizer.model", "vocab.json")
        if not any((self.folder / file).is_file() for file in files):
            raise ValueError(f"{self.folder} holds no tokenizer")
        family = transformers.Qwen2Tokenizer if self.tiled else transformers.LlamaTokenizer
        tokenizer: Any = family.from_pretrained(self.folder, local_files_only=True)

        # 2) the places of images and videos, after all words
        marks = []
        for mark in ("<image>", "<video>") if self.tiled else ("<image>",):
            marks.append(f"{mark[:-1]}_place>" if mark in tokenizer.get_vocab() else mark)
        places = [AddedToken(mark, special=True, normalized=False) for mark in marks]
        tokenizer.add_tokens(places, special_tokens=True)

        # 3) the conversation
        body = _CHATML if self.tiled else _VICUNA
        system = (QWEN_1_5 if self.tiled else VICUNA_V1).system
        if not self.tiled:
            # The original reads the text after an image by itself, which puts sentencepiece's blank
            # before it; so does this, for whoever reads a prompt in one go.
            blank = Metaspace(prepend_scheme="always", split=False)
            tokenizer.backend_tokenizer.pre_tokenizer = blank
        template = f'{{% set IMAGE = "{marks[0]}\\n" %}}{{% set SYSTEM = "{system}" %}}'
        # The beginning-of-text token is written where prompts have one: chat endpoints add none.
        if tokenizer("").input_ids[:1] == [tokenizer.bos_token_id]:
            template += "{{ bos_token }}"
        tokenizer.chat_template = template + body
        return tokenizer

    @cached_property
    def config(self) -> Any:
        """The whole model's configuration: an image's place follows the words.

        The rows of the embeddings are filled up to a multiple of 64.
        """
        entries = len(self.tokenizer)
        n_words = entries - 2 if self.tiled else entries - 1
        shared: dict[str, Any] = {
            "vision_config": self.tower_config,
            "text_config": self._text_settings(64 * math.ceil(entries / 64)),
            "image_token_index": n_words,
            "projector_hidden_act": "gelu",
            "vision_feature_layer": self.layer,
            "tie_word_embeddings": self.tied,
        }
        if self.tiled:
            return LlavaOnevisionConfig(
                **shared,
                architectures=["LlavaOnevisionForConditionalGeneration"],
                vision_feature_select_strategy="full",
                vision_aspect_ratio=self.settings["image_aspect_ratio"],
                video_token_index=n_words + 1,
                image_grid_pinpoints=self.grid,
            )
        return LlavaConfig(
            **shared,
            architectures=["LlavaForConditionalGeneration"],
            vision_feature_select_strategy="default",
            image_seq_length=(self.tower_config.image_size // self.tower_config.patch_size) ** 2,
        )

    def _text_settings(self, rows: int) -> dict[str, Any]:
        kind = str(decoder_of(self.settings))
        text: dict[str, Any] = {"rope_theta": 10_000.0}
        for key in (*CONFIG_MAPPING[kind]().to_dict(), "rope_theta", "rope_scaling"):
            if self.settings.get(key) is not None:
                text[key] = self.settings[key]
        return text | {"model_type": kind, "vocab_size": rows, "tie_word_embeddings": self.tied}

    @property
    def grid(self) -> list[list[int]]:
        """The resolutions that a tiled image may take, each (height, width) as in transformers."""
        listed = self.settings["image_grid_pinpoints"]
        if isinstance(listed, list):  # (width, height)
            return [[height, width] for width, height in listed]
        # the first and the last in tiles, "(1x1),...,(6x6)"
        left, top, right, bottom = map(int, re.findall(r"\d+", listed))
        size = self.tower_config.image_size
        tiles = itertools.product(range(left, right + 1), range(top, bottom + 1))
        return [[height * size, width * size] for width, height in tiles]

    @property
    def image_processor(self) -> Any:
        if not self.tiled:
            return CLIPImageProcessorPil.from_pretrained(self.tower_folder, local_files_only=True)
        size = self.tower_config.image_size
        half = [0.5, 0.5, 0.5]  # SigLIP's, fixed in the original
        kind: Any = LlavaOnevisionImageProcessorPil
        return kind(
            size={"height": size, "width": size},
            image_grid_pinpoints=self.grid,
            image_mean=half,
            image_std=half,
        )

    @cached_property
    def tensors(self) -> dict[str, torch.Tensor]:
        """All weights by their names in the written folder, zeros in the rows after the words.

        Source: the names of llava-hf/llava-1.5-7b-hf, which transformers, vLLM and TRL read.
        """
        tensors: dict[str, torch.Tensor] = {}
        for key, tensor in self.weights.items():
            # Today's classes compute the rotary frequencies.
            if not key.startswith(OWN_TOWER) and not key.endswith("rotary_emb.inv_freq"):
                tensors[_new_name(key)] = tensor
        for key, tensor in self.tower_weights.items():
            if self._in_tower(key):
                tensors[f"vision_tower.vision_model.{key}"] = tensor
        if self.tied:
            tensors.pop(VOCABULARY_WEIGHTS[1], None)
        rows = self.config.text_config.vocab_size
        for name in VOCABULARY_WEIGHTS:
            if name in tensors:
                rows_of_words = tensors[name][: self.config.image_token_index]
                tensors[name] = pad(rows_of_words, (0, 0, 0, rows - len(rows_of_words)))
        return tensors

    def _in_tower(self, key: str) -> bool:
        """Whether the configured tower has a weight: deleted layers and its head are gone."""
        layer = re.match(r"encoder\.layers\.(\d+)\.", key)
        if layer and int(layer[1]) >= self.tower_config.num_hidden_layers:
            return False
        return not key.startswith("head.") and not key.endswith("position_ids")


def _inside(tensors: dict[str, torch.Tensor], prefix: str) -> dict[str, torch.Tensor]:
    """The tensors whose names begin so, by the rest of their names."""
    keys = [key for key in tensors if key.startswith(prefix)]
    return {key.removeprefix(prefix): tensors[key] for key in keys}


def _new_name(key: str) -> str:
    """transformers' name of a weight of the decoder, the projector or the newline."""
    if key == "model.image_newline":
        return "image_newline"
    projector = re.fullmatch(r"model\.mm_projector\.([02])\.(weight|bias)", key)
    if projector:
        number = 1 + int(projector[1]) // 2
        return f"multi_modal_projector.linear_{number}.{projector[2]}"
    return f"language_model.{key}"


# The originals' conversations (llava/conversation.py: conv_vicuna_v1, conv_qwen) in Jinja.
_CONTENT = (
    "{% if message['content'] is string %}{{ message['content'] }}{% else %}"
    "{% for part in message['content'] if part['type'] in ['image', 'image_url'] %}"
    "{{ IMAGE }}{% endfor %}"
    "{% for part in message['content'] if part['type'] == 'text' %}"
    "{{ part['text'] }}{% endfor %}{% endif %}"
)
_VICUNA = (
    "{% if messages[0]['role'] != 'system' %}{{ SYSTEM + ' ' }}{% endif %}"
    "{% for message in messages %}"
    "{% if message['role'] == 'user' %}USER: "
    "{% elif message['role'] == 'assistant' %}ASSISTANT: {% endif %}"
    f"{_CONTENT}{{{{ eos_token if message['role'] == 'assistant' else ' ' }}}}"
    "{% endfor %}{% if add_generation_prompt %}ASSISTANT:{% endif %}"
)
_CHATML = (
    "{% if messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\\n' + SYSTEM + '<|im_end|>\\n' }}{% endif %}"
    "{% for message in messages %}"
    f"{{{{ '<|im_start|>' + message['role'] + '\\n' }}}}{_CONTENT}{{{{ '<|im_end|>\\n' }}}}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
