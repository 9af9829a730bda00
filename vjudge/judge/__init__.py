"""Judge, and how one is loaded: its family by name or configuration, its wordings, its engine.

judge.py   Judge: grade one response, compare two, rank many
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from inspect import signature
from pathlib import Path
from typing import Any

from vjudge.judge.judge import MAX_NEW_TOKENS, Judge
from vjudge.prompts import MESSAGES, QWEN_1_5, TEMPLATES, Template, families
from vjudge.prompts.families import Family

__all__ = ["MAX_NEW_TOKENS", "Judge", "load_judge"]

SERVER = "openai:"  # how the name of a judge behind a server begins
ENGINES = ("auto", "torch", "server", "vllm", "ray")
UNSET = {"device": "auto", "dtype": "auto", "attention": "auto", "check_memory": True}  # of the others: None
LEFT_OPEN = {"server": (), "vllm": ("dtype", "quantization", "revision")}  # options for a device that an engine takes


def load_judge(
    name_or_path: str | Path,
    *,
    device: str = "auto",
    dtype: str = "auto",
    quantization: str | None = None,
    template: str | Template | None = None,
    engine: str = "auto",
    revision: str | None = None,
    device_map: str | dict[str, Any] | None = None,
    max_memory: dict[int | str, int | str] | None = None,
    offload_folder: str | None = None,
    attention: str = "auto",
    check_memory: bool = True,
    trust_remote_code: bool = False,
    **engine_options: Any,
) -> Judge:
    """Load a judge.

    Args:
        name_or_path: "tiny", the judge inside this package; a folder or a hub id with a LLaVA checkpoint, a chat model
            that reads images, or a language model that does not (it is told of images that it can't see); or
            "openai:MODEL", a model behind an OpenAI-compatible server (`base_url=` names another than OpenAI's).
        device: "auto" takes CUDA, else MPS, else the CPU.
        dtype: "auto" takes bfloat16 on a GPU that has it, float16 on other GPUs, float32 on a CPU.
        quantization: None, "8bit" or "4bit"; needs CUDA and bitsandbytes.
        template: the judge's wording, a name in `vjudge.prompts.TEMPLATES` or a `Template`; None takes the family's own
            (`vjudge.prompts.families`), for a judge of no known family our own, "chat". One that compares two responses
            replaces the family's wording for pairs, any other the one for single responses.
        engine: "torch", "server", "vllm" or "ray"; "auto" takes the server for "openai:MODEL", else torch. vLLM runs in
            this process and has its own ways for a device; Ray loads the judge in `workers=` processes.
        revision: branch, tag or commit of a hub checkpoint.
        device_map: "auto" spreads the weights over all GPUs and, where they are too small, the CPU's memory; or a
            mapping module name -> device; None takes the one device.
        max_memory: with a `device_map`, device (0, 1, ..., "cpu") -> the most to use there, in bytes or as "20GiB".
        offload_folder: with a `device_map`, where weights go that don't fit in any memory.
        attention: "auto" takes FlashAttention where it is installed and can run, else "sdpa"; "flash_attention_2",
            "sdpa" or "eager".
        check_memory: whether to refuse, before weights are fetched or read, a judge that does not fit in the memory
            that is free; `vjudge.models.fits` says what fits without loading.
        trust_remote_code: whether to run a model that is Python code of its checkpoint, where transformers has none. It
            is then said in a warning, and a run's manifest keeps a digest of the code. Read the code first.
        engine_options: for the engine, such as `image_mode`; see `TorchEngine`, `ServerEngine` (`base_url`,
            `concurrency`, `price` and more), `VllmEngine` and `RayEngine` in `vjudge.engines`.

    Raises:
        ValueError: an unknown judge, template or engine; an unsupported checkpoint; an option this machine can't serve.
        TypeError: an option that the engine does not have.
    """
    if engine not in ENGINES:
        raise ValueError(f"engine {engine!r} is unknown; use one of {', '.join(map(repr, ENGINES))}")
    if engine == "auto":
        engine = "server" if str(name_or_path).startswith(SERVER) else "torch"
    chosen = TEMPLATES.get(template or "") if not isinstance(template, Template) else template
    if template is not None and chosen is None:
        raise ValueError(f"template {template!r} is unknown; use one of {sorted(TEMPLATES)} or a Template")
    family = families.find(name_or_path)
    placed: dict[str, Any] = {"device": device, "dtype": dtype, "quantization": quantization, "revision": revision}
    placed |= {"device_map": device_map, "max_memory": max_memory, "offload_folder": offload_folder}
    placed |= {"attention": attention, "check_memory": check_memory, "trust_remote_code": trust_remote_code or None}
    given: dict[str, Any] = {name: value for name, value in placed.items() if value != UNSET.get(name)}
    if engine in LEFT_OPEN and (own := [name for name in given if name not in LEFT_OPEN[engine]]):
        raise ValueError(f"{', '.join(own)}: these are the {engine} engine's own choice; leave them out")
    if engine == "server":
        from vjudge.engines.server import ServerEngine

        served = ServerEngine(str(name_or_path).removeprefix(SERVER), **engine_options)
        single, pairs = _wordings(family or families.FAMILIES["chat"], chosen)
        pairs = pairs and pairs.as_messages()
        return Judge(str(name_or_path), template=single.as_messages(), pairs=pairs, engine=served, family=family)
    if engine == "ray":
        from vjudge.engines.ray import RayEngine

        load = partial(load_judge, template=template, **given)
        spread = RayEngine(name_or_path, load=load, **engine_options)
        return Judge(
            str(name_or_path), template=spread.template, pairs=spread.pairs, engine=spread, family=spread.family
        )
    from vjudge import engines, models  # torch: seconds to import, so only when a model is wanted

    runs: Any
    known: Any
    config: Any
    if engine == "vllm":
        runs = engines.VllmEngine(name_or_path, **given, **engine_options)
        known, config = runs.source, runs.source.config
    else:
        options = {name for name in signature(engines.TorchEngine).parameters if name != "model"}
        if stray := sorted(set(engine_options) - options):
            raise TypeError(
                f"{', '.join(stray)}: the torch engine has no such option; it has {', '.join(sorted(options))}"
            )
        known = models.load(name_or_path, **given)
        if template is None and (chosen := families.recorded(known.path)) is not None:
            template = chosen.name
        runs = engines.local_engine(known, **engine_options)
        config = known.model.config
    # A build tells the family where the vision is ours alone: there are chat models of LLaVA's class, too.
    build = config.to_dict() if known.sees_images and known.processor is None else {}
    family = family or families.find(name_or_path, config=build) or families.FAMILIES["chat"]

    def fitted(wording: Template) -> Template:
        """The wording in the conversation that the checkpoint knows."""
        if not known.sees_images:
            wording = replace(wording, sees_images=False)
        if wording.conversation.name == MESSAGES.name:
            return wording.bind(known.processor or known.tokenizer, image_token=known.image_token)
        if known.tiled and not isinstance(template, Template):
            return replace(wording, conversation=QWEN_1_5)  # a family knows one conversation only
        return wording

    single, pairs = _wordings(family, chosen)
    chats = bool(known.tokenizer.chat_template or getattr(known.processor, "chat_template", None))
    if chosen is not None and not chosen.compares and pairs and pairs.conversation.name == MESSAGES.name and not chats:
        pairs = None  # the family's own would go into a chat template, and this checkpoint has none
    return Judge(
        str(name_or_path),
        template=fitted(single),
        pairs=pairs and fitted(pairs),
        engine=runs,
        family=family,
    )


def _wordings(family: Family, chosen: Template | None) -> tuple[Template, Template | None]:
    """A family's wordings for one response and for two, one of them replaced by the chosen one."""
    if chosen is None:
        return family.template, family.pairs
    return (family.template, chosen) if chosen.compares else (chosen, family.pairs)
