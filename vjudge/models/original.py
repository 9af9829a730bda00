"""Read an original LLaVA checkpoint in transformers' terms: settings, tokenizer, weights.

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
from vjudge.models.find import decoder_of
from vjudge.prompts import QWEN_1_5, VICUNA_V1

VOCABULARY_WEIGHTS = ("language_model.model.embed_tokens.weight", "language_model.lm_head.weight")
TOWER_PREFIX = "model.vision_tower.vision_tower."  # of the names of a tower's weights, if included


class Original:
    """Read an original checkpoint folder in transformers' terms; each file when it is needed.

    Args:
        folder: the folder of the checkpoint; `mm_vision_tower` in its config.json names the folder
            or hub id of its vision tower.

    Raises:
        ValueError: files that are missing or damaged.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.settings = read_settings(folder / "config.json")
        # LLaVA-NeXT and OneVision, which have a Qwen2 decoder, cut images into tiles.
        self.tiled = decoder_of(self.settings) == "qwen2"
        # Tied: the output weights are the embeddings.
        self.tied = bool(self.settings.get("tie_word_embeddings", False))
        # The tower's layer whose output is used: OneVision takes the last one of those that remain
        # (see below), LLaVA-1.5 the one before the last, unless its settings say otherwise.
        self.layer = -1 if self.tiled else int(self.settings.get("mm_vision_select_layer", -2))

        # The tower's own folder holds what the checkpoint lacks: sizes, heads, activation. A path
        # may be relative to the checkpoint or to its parent, or absolute.
        self.tower = str(self.settings["mm_vision_tower"])
        for parent in (folder.parent, folder):
            self.tower_folder = parent / self.tower
            if self.tower_folder.is_dir():
                break
        else:  # no such folder: it is a hub id
            self.tower_folder = fetch(self.tower, ["config.json", "preprocessor_config.json"])
        self.origins = (folder, self.tower_folder)  # of its weights and settings
        read_settings(self.tower_folder / "config.json")  # refuses bad numbers
        config_class: Any = SiglipVisionConfig if self.tiled else CLIPVisionConfig
        self.tower_config = config_class.from_pretrained(self.tower_folder, local_files_only=True)
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

        LLaVA-1.5 uses those of `mm_vision_tower`, OneVision those in the checkpoint, if any.
        """
        tower = _with_prefix(self.weights, TOWER_PREFIX)
        if not (tower and self.tiled):
            if not weight_files(self.tower_folder):
                fetch_weights(self.tower)
            tower = read_tensors(self.tower_folder)
        # Files on the hub have this prefix; without it, as transformers 5 saves a tower by itself,
        # no name is left, and the names are right already.
        return _with_prefix(tower, "vision_model.") or tower

    @cached_property
    def tokenizer(self) -> Any:
        """The original's tokenizer, with tokens for images and a chat template."""
        tokenizer = self._plain_tokenizer()

        # 1) tokens for the places of images and videos, after all others
        places = []
        for spelling in ("<image>", "<video>") if self.tiled else ("<image>",):
            # Where the vocabulary holds it as a word of text, the place gets another spelling.
            if spelling in tokenizer.get_vocab():
                spelling = f"{spelling[:-1]}_place>"
            places.append(AddedToken(spelling, special=True, normalized=False))
        tokenizer.add_tokens(places, special_tokens=True)

        # 2) the conversation as a chat template
        conversation = VICUNA_V1
        body = _VICUNA
        if self.tiled:
            conversation = QWEN_1_5
            body = _CHATML
        template = f'{{% set IMAGE = "{places[0].content}\\n" %}}'
        template += f'{{% set SYSTEM = "{conversation.system}" %}}'
        # The beginning-of-text token is written out, because chat endpoints add none.
        if tokenizer("").input_ids[:1] == [tokenizer.bos_token_id]:
            template += "{{ bos_token }}"
        tokenizer.chat_template = template + body
        return tokenizer

    def _plain_tokenizer(self) -> Any:
        """Load the tokenizer of the checkpoint's files; ValueError if there are none."""
        # Without any of these files transformers would make an almost empty vocabulary.
        files = ("tokenizer.json", "tokenizer.model", "vocab.json")
        if not any((self.folder / file).is_file() for file in files):
            raise ValueError(f"{self.folder} holds no tokenizer")
        tokenizer_class = transformers.Qwen2Tokenizer if self.tiled else transformers.LlamaTokenizer
        tokenizer: Any = tokenizer_class.from_pretrained(self.folder, local_files_only=True)
        if not self.tiled:
            # The original encodes the text after an image by itself, so that sentencepiece puts a
            # blank before it. This setting does so in a prompt that is encoded in one go.
            blank = Metaspace(prepend_scheme="always", split=False)
            tokenizer.backend_tokenizer.pre_tokenizer = blank
        return tokenizer

    @cached_property
    def config(self) -> Any:
        """The configuration of the whole model.

        An image's token is the first after those of the text. The embeddings have a multiple of 64
        rows; spare rows are filled with zeros.

            rows     0 ... 31,999   32,000    32,001 ... 32,063
            tokens   text           <image>   spare
        """
        n_tokens = len(self.tokenizer)
        n_text_tokens = n_tokens - 2 if self.tiled else n_tokens - 1  # <video> comes after <image>
        shared: dict[str, Any] = {
            "vision_config": self.tower_config,
            "text_config": self._text_settings(64 * math.ceil(n_tokens / 64)),
            "image_token_index": n_text_tokens,
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
                video_token_index=n_text_tokens + 1,
                image_grid_pinpoints=self.grid,
            )
        return LlavaConfig(
            **shared,
            architectures=["LlavaForConditionalGeneration"],
            vision_feature_select_strategy="default",
            image_seq_length=(self.tower_config.image_size // self.tower_config.patch_size) ** 2,
        )

    def _text_settings(self, n_rows: int) -> dict[str, Any]:
        """Return the decoder's settings, with a vocabulary of `n_rows` entries."""
        kind = str(decoder_of(self.settings))
        text: dict[str, Any] = {"rope_theta": 10_000.0}
        for key in (*CONFIG_MAPPING[kind]().to_dict(), "rope_theta", "rope_scaling"):
            if self.settings.get(key) is not None:
                text[key] = self.settings[key]
        return text | {"model_type": kind, "vocab_size": n_rows, "tie_word_embeddings": self.tied}

    @property
    def grid(self) -> list[list[int]]:
        """The sizes of the grids of a tiled image, each (height, width) in pixels."""
        listed = self.settings["image_grid_pinpoints"]
        if isinstance(listed, list):  # each (width, height) in pixels
            return [[height, width] for width, height in listed]
        # A text names the smallest and the largest grid in tiles, "(1x1),...,(6x6)".
        low_x, low_y, high_x, high_y = map(int, re.findall(r"\d+", listed))
        size = self.tower_config.image_size
        grids = itertools.product(range(low_x, high_x + 1), range(low_y, high_y + 1))
        return [[down * size, across * size] for across, down in grids]

    @property
    def image_processor(self) -> Any:
        """The image processor: the tower's own, or of a tiled model that of the original code."""
        if not self.tiled:
            return CLIPImageProcessorPil.from_pretrained(self.tower_folder, local_files_only=True)
        size = self.tower_config.image_size
        half = [0.5, 0.5, 0.5]  # SigLIP's, fixed in the original code
        processor_class: Any = LlavaOnevisionImageProcessorPil
        return processor_class(
            size={"height": size, "width": size},
            image_grid_pinpoints=self.grid,
            image_mean=half,
            image_std=half,
        )

    @cached_property
    def tensors(self) -> dict[str, torch.Tensor]:
        """All weights by their names in the transformers layout.

        Source: the names of llava-hf/llava-1.5-7b-hf, which transformers, vLLM and TRL read.
        """
        tensors: dict[str, torch.Tensor] = {}
        # 1) decoder and projector; rotary frequencies are computed by today's classes
        for key, tensor in self.weights.items():
            if not key.startswith(TOWER_PREFIX) and not key.endswith("rotary_emb.inv_freq"):
                tensors[_new_name(key)] = tensor
        # 2) vision tower
        for key, tensor in self.tower_weights.items():
            if self._is_in_tower(key):
                tensors[f"vision_tower.vision_model.{key}"] = tensor
        # 3) embeddings and output weights: zeros in the rows after those of the text
        if self.tied:
            tensors.pop(VOCABULARY_WEIGHTS[1], None)
        n_rows = self.config.text_config.vocab_size
        for name in VOCABULARY_WEIGHTS:
            if name in tensors:
                text_rows = tensors[name][: self.config.image_token_index]
                tensors[name] = pad(text_rows, (0, 0, 0, n_rows - len(text_rows)))
        return tensors

    def _is_in_tower(self, key: str) -> bool:
        """Tell whether the configured tower has a weight: deleted layers and its head are gone."""
        layer = re.match(r"encoder\.layers\.(\d+)\.", key)
        if layer and int(layer[1]) >= self.tower_config.num_hidden_layers:
            return False
        return not key.startswith("head.") and not key.endswith("position_ids")


def _with_prefix(tensors: dict[str, torch.Tensor], prefix: str) -> dict[str, torch.Tensor]:
    """Return the tensors whose names begin with a prefix, by the rest of their names."""
    keys = [key for key in tensors if key.startswith(prefix)]
    return {key.removeprefix(prefix): tensors[key] for key in keys}


def _new_name(key: str) -> str:
    """Return transformers' name of a weight of the decoder, the projector or the newline.

    >>> _new_name("model.mm_projector.2.bias"), _new_name("lm_head.weight")
    ('multi_modal_projector.linear_2.bias', 'language_model.lm_head.weight')
    """
    if key == "model.image_newline":
        return "image_newline"
    # The original numbers linear layers 0 and 2, with the activation function between them.
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
