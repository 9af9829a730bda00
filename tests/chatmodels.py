"""Checkpoint folders of random weights in the layouts of today's image-text-to-text chat models, a second each.

Each holds what a download would: weights as safetensors, config, tokenizer with the family's own special tokens, image
preprocessing, chat template and, where the family has one, generation settings that an engine must not obey unasked.
"""

import json
from functools import partial

import torch
import transformers
from tokenizers import Tokenizer, decoders, pre_tokenizers, processors
from tokenizers import models as tokenizer_models
from transformers import PreTrainedTokenizerFast

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.content is string %}{{ m.content }}{% else %}"
    "{% for p in m.content %}{% if p.type == 'image' %}IMAGE{% else %}{{ p.text }}{% endif %}{% endfor %}{% endif %}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
GEMMA = (
    "{{ bos_token }}{% for m in messages %}<start_of_turn>{{ m.role }}\n{% for p in m.content %}"
    "{% if p.type == 'image' %}<start_of_image>{% else %}{{ p.text | trim }}{% endif %}{% endfor %}<end_of_turn>\n"
    "{% endfor %}{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}"
)
INST = (
    "{{ bos_token }}{% for m in messages %}[INST] {% for p in m.content %}{% if p.type == 'image' %}<image>\n"
    "{% else %}{{ p.text }}{% endif %}{% endfor %} [/INST]{% endfor %}"
)
LAYERS = {"num_hidden_layers": 2, "initializer_range": 0.15}
VISION = LAYERS | {"hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 2}
SMALL = VISION | {"image_size": 16, "patch_size": 4}
SQUARE = {"height": 16, "width": 16}
TEXT = LAYERS | {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 4096,
}
GRID = [[16, 32], [32, 16], [32, 32]]


def make_tokenizer(specials, *, bos, eos, pad, template, **named):
    """A byte-level vocabulary with a family's special tokens; its processor asks for those of `named` by name."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = Tokenizer(
        tokenizer_models.BPE(vocab={c: n for n, c in enumerate(alphabet)}, merges=[])
    )
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    every = list(dict.fromkeys(filter(None, [bos, eos, pad, *specials])))
    backend.add_special_tokens(every)
    backend.add_tokens(["[RESULT]"])
    if bos:
        start = [(bos, backend.token_to_id(bos))]
        backend.post_processor = processors.TemplateProcessing(
            single=f"{bos} $A", special_tokens=start
        )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend,
        bos_token=bos,
        eos_token=eos,
        pad_token=pad,
        additional_special_tokens=[token for token in every if token not in named.values()],
        extra_special_tokens=dict(named),
    )
    tokenizer.chat_template = template
    return tokenizer


def chatml_tokenizer(marks, image, **named):
    """A tokenizer of Qwen's manner, whose template writes `image` for an image."""
    return make_tokenizer(
        ["<|im_start|>", "<|im_end|>", *marks, *named.values()],
        bos=None,
        eos="<|im_end|>",
        pad="<|endoftext|>",
        template=CHATML.replace("IMAGE", image),
        **named,
    )


def _save(folder, kind, config, tokenizer, preprocessor=None, **processor):
    """Write a network of this kind, "" for a language model, with what is read beside it."""
    if kind:
        model = getattr(transformers, f"{kind}ForConditionalGeneration")(config)
    else:
        model = transformers.AutoModelForCausalLM.from_config(config)
    if kind == "Gemma3":
        projection = model.model.multi_modal_projector.mm_input_projection_weight
        torch.nn.init.normal_(projection, std=0.2)
    model.eval().save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    files = {"preprocessor": preprocessor, "processor": processor}
    for name, content in files.items():
        if content:
            content["processor_class"] = f"{kind}Processor"
            (folder / f"{name}_config.json").write_text(json.dumps(content))
    # Sampling and penalties that the checkpoint's authors suggest: how to decode is vjudge's to say.
    settings = {"do_sample": True, "temperature": 0.1, "repetition_penalty": 1.5, "top_k": 1}
    ends = [tokenizer.eos_token, *({"<end_of_turn>"} & tokenizer.get_added_vocab().keys())]
    settings |= _ids(tokenizer) | {"eos_token_id": tokenizer.convert_tokens_to_ids(ends)}
    (folder / "generation_config.json").write_text(json.dumps(settings))
    return folder


def _ids(tokenizer):
    names = ("bos_token_id", "eos_token_id", "pad_token_id")
    return {name: getattr(tokenizer, name) for name in names}


def _text(kind, tokenizer, more=0, **settings):
    sizes = {"model_type": kind, "vocab_size": len(tokenizer) + more}
    return TEXT | _ids(tokenizer) | sizes | settings


def _qwen(kind, folder):
    names = ("image_pad", "video_pad", "vision_start", "vision_end")
    marks = [f"<|{name}|>" for name in names]
    tokenizer = chatml_tokenizer(marks, "<|vision_start|><|image_pad|><|vision_end|>")
    fields = [f"{name.removesuffix('_pad')}_token_id" for name in names]
    ids = dict(zip(fields, tokenizer.convert_tokens_to_ids(marks), strict=True))
    rope = {"rope_type": "default", "mrope_section": [2, 3, 3], "rope_theta": 10000.0}
    text = _text(kind, tokenizer, 3, rope_parameters=rope)
    del text["model_type"]
    family, own = {
        "qwen2_vl": ("Qwen2VL", {"embed_dim": 32, "hidden_size": 64, "mlp_ratio": 2}),
        "qwen2_5_vl": (
            "Qwen2_5_VL",
            {"intermediate_size": 48, "window_size": 16, "fullatt_block_indexes": [1]},
        ),
        "qwen3_vl": (
            "Qwen3VL",
            {
                "intermediate_size": 48,
                "deepstack_visual_indexes": [0],
                "num_position_embeddings": 64,
            },
        ),
    }[kind]
    vision = {"hidden_size": 32, "out_hidden_size": 64, "depth": 2, "num_heads": 2, "patch_size": 4}
    config = getattr(transformers, f"{family}Config")(
        text_config=text, vision_config=vision | own, **ids
    )
    preprocessor = {
        "image_processor_type": "Qwen2VLImageProcessor",
        "patch_size": 4,
        "size": {"shortest_edge": 64, "longest_edge": 2048},
    }
    return _save(folder, family, config, tokenizer, preprocessor)


def _internvl(folder):
    named = {
        "start_image_token": "<img>",
        "end_image_token": "</img>",
        "context_image_token": "<IMG_CONTEXT>",
        "video_token": "<video>",
    }
    tokenizer = chatml_tokenizer([], "<IMG_CONTEXT>\n", **named)
    config = transformers.InternVLConfig(
        text_config=_text("qwen2", tokenizer),
        vision_config=SMALL | {"norm_type": "layer_norm"},
        image_token_id=tokenizer.convert_tokens_to_ids("<IMG_CONTEXT>"),
        image_seq_length=4,
        downsample_ratio=0.5,
    )
    preprocessor = {"image_processor_type": "GotOcr2ImageProcessorFast", "size": SQUARE}
    return _save(folder, "InternVL", config, tokenizer, preprocessor, image_seq_length=4)


def _gemma3(folder):
    named = {
        "boi_token": "<start_of_image>",
        "eoi_token": "<end_of_image>",
        "image_token": "<image_soft_token>",
    }
    tokenizer = make_tokenizer(
        ["<start_of_turn>", "<end_of_turn>", *named.values()],
        bos="<bos>",
        eos="<eos>",
        pad="<pad>",
        template=GEMMA,
        **named,
    )
    boi, eoi, image = tokenizer.convert_tokens_to_ids(list(named.values()))
    kinds = {"sliding_window": 32, "layer_types": ["sliding_attention", "full_attention"]}
    config = transformers.Gemma3Config(
        text_config=_text("gemma3_text", tokenizer, 1, query_pre_attn_scalar=16, **kinds),
        vision_config=SMALL,
        mm_tokens_per_image=4,
        image_token_index=image,
        boi_token_index=boi,
        eoi_token_index=eoi,
    )
    preprocessor = {
        "image_processor_type": "Gemma3ImageProcessor",
        "size": SQUARE,
        "image_seq_length": 4,
    }
    return _save(folder, "Gemma3", config, tokenizer, preprocessor, image_seq_length=4)


def _inst():
    return make_tokenizer(
        ["<image>"], bos="<s>", eos="</s>", pad="<pad>", template=INST, image_token="<image>"
    )


def _of_llava(kind, text, vision, preprocessor, folder, *, make=_inst, more=None, **processor):
    """A network of LLaVA's lineage, whose images stand at "<image>"."""
    tokenizer = make()
    config = getattr(transformers, f"{kind}Config")(
        text_config=_text(text, tokenizer, sliding_window=None),
        vision_config=SMALL | vision,
        image_token_index=tokenizer.convert_tokens_to_ids("<image>"),
        video_token_index=tokenizer.convert_tokens_to_ids("<video>"),
        vision_feature_layer=-1,
        **(more or {}),
    )
    return _save(folder, kind, config, tokenizer, {"size": SQUARE} | preprocessor, **processor)


SIGLIP = {"model_type": "siglip_vision_model"}
_llava_next = partial(
    _of_llava,
    "LlavaNext",
    "mistral",
    {"model_type": "clip_vision_model", "patch_size": 8},
    {
        "image_processor_type": "LlavaNextImageProcessor",
        "size": {"shortest_edge": 16},
        "crop_size": SQUARE,
        "image_grid_pinpoints": GRID,
    },
    more={"image_grid_pinpoints": GRID},
    patch_size=8,
    vision_feature_select_strategy="default",
    num_additional_image_tokens=1,
    image_token="<image>",
)
# LLaVA's class with another tower than CLIP's, so that its own processor prepares the images.
_llava = partial(
    _of_llava,
    "Llava",
    "llama",
    SIGLIP,
    {"image_processor_type": "SiglipImageProcessor"},
    more={"vision_feature_select_strategy": "full", "image_seq_length": 16},
    patch_size=4,
    vision_feature_select_strategy="full",
)
# In the transformers layout: its images are prepared by vjudge, its chat template is its own.
_onevision = partial(
    _of_llava,
    "LlavaOnevision",
    "qwen2",
    SIGLIP,
    {"image_processor_type": "LlavaOnevisionImageProcessor", "image_grid_pinpoints": GRID},
    make=partial(chatml_tokenizer, ["<image>", "<video>"], "<image>\n"),
    more={"image_grid_pinpoints": GRID},
    num_image_tokens=16,
    image_token="<image>",
    video_token="<video>",
    vision_feature_select_strategy="full",
)


def _idefics3(folder):
    places = [f"<row_{row}_col_{column}>" for row in range(1, 7) for column in range(1, 7)]
    marks = ["<fake_token_around_image>", "<image>", "<end_of_utterance>", "<global-img>"]
    written = INST.replace("<image>\n", "<image>").replace(
        " [/INST]", "<end_of_utterance>\nAssistant:"
    )
    tokenizer = make_tokenizer(
        [*marks, *places], bos="<s>", eos="<end_of_utterance>", pad="<pad>", template=written
    )
    config = transformers.Idefics3Config(
        text_config=_text("llama", tokenizer),
        vision_config=SMALL,
        image_token_id=tokenizer.convert_tokens_to_ids("<image>"),
        scale_factor=2,
        pad_token_id=tokenizer.pad_token_id,
    )
    preprocessor = {
        "image_processor_type": "Idefics3ImageProcessor",
        "size": {"longest_edge": 32},
        "max_image_size": {"longest_edge": 16},
        "do_image_splitting": True,
    }
    return _save(folder, "Idefics3", config, tokenizer, preprocessor, image_seq_len=4)


def _language(kind, folder):
    tokenizer = make_tokenizer([], bos="<s>", eos="</s>", pad="<unk>", template=None)
    if kind == "bloom":
        sizes = {"hidden_size": 64, "n_layer": 2, "n_head": 4, "initializer_range": 0.15}
        config = transformers.BloomConfig(vocab_size=len(tokenizer), **sizes, **_ids(tokenizer))
    else:
        own = {"mixtral": {"num_local_experts": 4}, "mistral": {"sliding_window": 64}}
        text = _text(kind, tokenizer, 5, **own.get(kind, {}))
        config = transformers.AutoConfig.for_model(**text)
    return _save(folder, "", config, tokenizer)


CHATS = {kind: partial(_qwen, kind) for kind in ("qwen2_vl", "qwen2_5_vl", "qwen3_vl")}
CHATS |= {
    "internvl": _internvl,
    "gemma3": _gemma3,
    "llava": _llava,
    "llava_next": _llava_next,
    "idefics3": _idefics3,
}
TEXTS = {  # architecture -> the conversation that its judges know
    "llama": "prometheus",  # Prometheus 7B, 13B
    "mistral": "prometheus-2",  # Prometheus 2 7B
    "mixtral": "prometheus-2",  # Prometheus 2 8x7B
    "bloom": "prometheus",  # one that takes no positions
}


def make(kind, folder):
    """Write the folder of one architecture: of `CHATS`, of `TEXTS`, or "onevision"."""
    torch.manual_seed(0)
    folder.mkdir(parents=True, exist_ok=True)
    if kind == "onevision":
        return _onevision(folder)
    return CHATS[kind](folder) if kind in CHATS else _language(kind, folder)


def make_for_vllm(kind, folder, monkeypatch):
    """The same with what vLLM needs: heads of 32 dimensions, and every section of the positions in them."""
    monkeypatch.setenv("VLLM_CPU_KVCACHE_SPACE", "1")
    monkeypatch.setenv("VLLM_CPU_OMP_THREADS_BIND", "nobind")
    monkeypatch.setitem(TEXT, "num_attention_heads", 2)
    monkeypatch.setitem(TEXT, "head_dim", 32)
    make(kind, folder)
    config = json.loads((folder / "config.json").read_text())
    positions = config["text_config"]["rope_parameters"]
    if "mrope_section" in positions:
        positions["mrope_section"] = [4, 6, 6]
        positions["mrope_interleaved"] = kind == "qwen3_vl"  # as published; vLLM asks for the word
    (folder / "config.json").write_text(json.dumps(config))
    return folder
