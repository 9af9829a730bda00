"""Load a judge by its name, and a run by its folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from vjudge import engines
from vjudge.engines.progress import say
from vjudge.judging.asking import Options
from vjudge.judging.comparing import comparison_table
from vjudge.judging.grading import grade_table
from vjudge.judging.judge import Judge, wordings_of
from vjudge.judging.runs import Run, RunError
from vjudge.prompts import CONVERSATIONS, MESSAGES, QWEN_1_5, Template, families

SERVER = "openai:"  # how the name of a judge behind a server begins
ENGINES = ("auto", "hf", "server", "vllm", "ray")


def load_judge(
    name_or_path: str | Path | Mapping[str, Any],
    *,
    template: str | Template | None = None,
    engine: str = "auto",
    **options: Any,
) -> Judge:
    """Load a judge.

    Args:
        name_or_path: "tiny", the judge inside this package; a folder or a hub id with a LLaVA
            checkpoint, a chat model that reads images, or a language model that does not (its
            prompts say that there are images which it can't see); or "openai:MODEL", a model behind
            an OpenAI-compatible server (OpenAI's, or the one at `base_url=`). A dict holds all
            arguments of this call, as the parameters cell of a notebook gives them.
        template: the judge's prompt template, a `Template` or a name in `vjudge.prompts.TEMPLATES`;
            one that compares two responses becomes the template for pairs. None takes the templates
            of the judge's family (`vjudge.prompts.families`), or of "chat" if that is unknown.
        engine: "hf" (transformers), "server", "vllm" (in this process) or "ray" (`workers=`
            processes); "auto" is "server" for "openai:MODEL", otherwise "hf".
        options: of the engine, see `vjudge.engines`. For "hf": `device` ("auto" takes CUDA, else
            MPS, else the CPU); `dtype` ("auto" is bfloat16 or float16 on a GPU, float32 on a CPU);
            `quantization`, "8bit" or "4bit" (needs bitsandbytes); `revision`, a branch, tag or
            commit of a hub checkpoint; `device_map` ("auto" spreads the weights over all GPUs and
            the CPU's memory); `attention` ("flash_attention_2", "sdpa", "eager").

    Raises:
        ValueError: an unknown name or value, or an unsupported checkpoint.
        TypeError: an option that the engine does not have.

    >>> import vjudge as vj
    >>> vj.load_judge("tiny", device="cpu")
    Judge('tiny', template='prometheus-vision', pairs=None, engine='hf')
    """
    # 1) a dict holds the arguments of this call; those in the dict win
    if isinstance(name_or_path, Mapping):
        return load_judge(**{"template": template, "engine": engine, **options, **name_or_path})
    name = str(name_or_path)
    if engine not in ENGINES:
        raise ValueError(f"engine {engine!r} is unknown; use one of {', '.join(ENGINES)}")
    # 2) a judge whose model is elsewhere: in Ray's processes, or behind a server
    if engine == "ray":
        load = partial(load_judge, template=template)
        ray = engines.RayEngine(name_or_path, load=load, **options)
        return Judge(name, template=ray.template, engine=ray, pairs=ray.pairs, family=ray.family)
    wording = None if template is None else families.wording(template)
    if engine == "server" or (engine == "auto" and name.startswith(SERVER)):
        return _served(name, wording, options)
    # 3) a model in this process
    local: Any  # an engine
    if engine == "vllm":
        local = engines.VllmEngine(name_or_path, **options)
    else:
        from vjudge import models  # torch: seconds to import, so only for a model here

        mode = options.pop("image_mode", None)
        local = engines.HFEngine(models.load(name_or_path, **options), image_mode=mode)
    return _fitted(name_or_path, local, wording, exact=isinstance(template, Template))


def _served(name: str, wording: Template | None, options: dict[str, Any]) -> Judge:
    """Load a judge behind a server, which writes the conversation around a prompt itself.

    Args:
        name: "openai:MODEL" or the model's name alone.
        wording: the template that the caller chose, or None.
        options: of `ServerEngine`.
    """
    family = families.family_of(name)
    asked = family or families.FAMILIES["chat"]
    single, pairs = wordings_of(asked.template, asked.pairs, wording)
    # a template with a conversation written out belongs to a judge that was trained in it: the
    # engine checks that the server writes the same
    for template in filter(None, (single, pairs)):
        if template.conversation.written:
            options.setdefault("conversation", template.conversation)
    engine = engines.ServerEngine(name.removeprefix(SERVER), **options)
    if pairs is not None:
        pairs = pairs.as_messages()
    return Judge(name, template=single.as_messages(), pairs=pairs, engine=engine, family=family)


def _fitted(
    name_or_path: str | Path, engine: Any, wording: Template | None, *, exact: bool
) -> Judge:
    """Make the judge of a model that was loaded here, asked in its checkpoint's conversation.

    Args:
        name_or_path: of the judge, as it was given to `load_judge`.
        engine: an `HFEngine` or a `VllmEngine`.
        wording: the template that the caller chose; None takes the one that the checkpoint was
            fine-tuned on, or those of its family.
        exact: whether `wording` is the caller's own `Template`, which keeps its conversation.
    """
    # 1) the family by its name, since an architecture does not tell what a model was trained on
    model = engine.model
    if wording is None:
        wording = families.recorded(model.path)
    family = families.family_of(name_or_path) or families.family_of(model.path)
    if family is None and model.value_head is not None:
        family = families.FAMILIES["skywork-vl-reward"]  # its template is the bare conversation
    if family is None and wording is None:
        say(f"{name_or_path}: no judge of this name is known, so it is asked as any chat model")
    family = family or families.FAMILIES["chat"]
    single, pairs = wordings_of(family.template, family.pairs, wording)

    # 2) the conversation around both templates: the checkpoint's chat template; without a usable
    # one, the fallback, which a LLaVA architecture decides, otherwise the chosen template
    tokenizer = model.processor or model.tokenizer  # it has the chat template
    fallback = None if wording is None else wording.conversation
    if model.kind == "llava":
        fallback = CONVERSATIONS.get(model.model.config.model_type)

    def fitted(template: Template) -> Template:
        """Put a template into the model's conversation, without images if the model sees none."""
        if not model.sees_images:
            template = replace(template, sees_images=False)
        if template.conversation.name == MESSAGES.name:
            return template.bind(tokenizer, image_token=model.image_token, otherwise=fallback)
        # LLaVA-OneVision models (tiled) were trained in this conversation, whatever the family's is
        if model.tiled and not exact and template.conversation.name != QWEN_1_5.name:
            return replace(template, conversation=QWEN_1_5)
        return template

    return Judge(
        str(name_or_path),
        template=fitted(single),
        pairs=None if pairs is None else fitted(pairs),
        engine=engine,
        family=family,
    )


def load_run(folder: str | Path) -> pd.DataFrame:
    """Read a run back without its judge, a GPU or a key.

    Args:
        folder: the `out` of `Judge.grade` or `Judge.compare`. That of `Judge.rank` gives the table
            of grades or comparisons from which the ranks follow; that of a panel holds one such
            folder per member, to be loaded each.

    Returns:
        The table that the call returned, in the collection's order, with all rows whose verdicts
        the folder holds. Rows that still lack verdicts are counted on one printed line.

    Raises:
        RunError: the folder holds no run, or several, which the error names; or a run without
            a complete row: repeat its call, which adds them.

    >>> import tempfile
    >>> import vjudge as vj
    >>> folder = tempfile.mkdtemp()
    >>> items = vj.load_collection("scenes", split="test", limit=3)
    >>> run = vj.load_judge("tiny", device="cpu").grade(items, out=folder, progress=False)
    >>> vj.load_run(folder).equals(run)
    True
    """
    run = Run(folder)
    call = run.manifest.get("note") or {}
    recorded = {verdict["asked"]: verdict for verdict in run.verdicts()}
    rows = run.rows()
    finished = []  # the records and the cells of each row
    for row in rows:
        if recorded.keys() >= set(row["asked"]):
            finished.append(([recorded[key] for key in row["asked"]], row["cells"]))
    if not finished:
        raise RunError(f"{run.path} has no rows with verdicts: repeat the call that made it")
    missing = len(rows) - len(finished)
    if missing:
        say(f"{run.path}: {missing} of {len(rows)} rows wait for verdicts: repeat the call")
    options = Options(samples=call["samples"], orders=call["orders"])
    make_table = comparison_table if call["call"] == "compare" else grade_table
    return make_table(finished, call["judge"], options)
