"""The judges that are known by name: how each is asked, read, and decoded in print."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from vjudge.prompts.conversation import MESSAGES, Conversation
from vjudge.prompts.template import Template
from vjudge.prompts.wordings import TEMPLATES

RECORD = "judge.json"  # in a checkpoint's folder: its family, or the wording it was trained on


@dataclass(frozen=True)
class Family:
    """Judges that are asked and read alike."""

    name: str
    template: Template  # how it scores one response
    pairs: Template | None = None  # how it compares two; None where it was never taught to
    # Hub ids, or parts of names: a folder or an id whose name holds one of these belongs to it.
    ids: Sequence = ()
    # The decoding of its paper: `judge.grade(items, **judge.family.published)`; a comparison drops
    # "samples".
    published: Mapping = field(default_factory=dict)


FAMILIES: dict = {}
"""Every known family by name; `register` adds to it."""


def register(
    name: str, *, template: Template | str, pairs: Template | str | None = None, **fields: Any
) -> Family:
    """Make a family known to `load_judge`; `fields` are further ones of `Family`.

    A template may be the name of one in `vjudge.prompts.TEMPLATES`. ValueError: a name that is
    taken, an unknown template.

    >>> from vjudge.prompts import VICUNA_V1, Template, families
    >>> body = "Q: {instruction}\\nA: {response}\\n{criteria}\\nEnd with [RESULT] and a score."
    >>> mine = Template("mine", "my paper", VICUNA_V1, body)
    >>> families.register("mine", ids=["me/my-judge-7b"], template=mine).template.format
    'prometheus'
    >>> families.find("checkpoints/my-judge-7b").name
    'mine'
    """
    if name in FAMILIES:
        raise ValueError(f"family {name!r} exists: choose another name")
    FAMILIES[name] = Family(
        name,
        template=wording(template),
        pairs=None if pairs is None else wording(pairs),
        **fields,
    )
    return FAMILIES[name]


def wording(template: Template | str) -> Template:
    """A `Template`, or the one of a name in `vjudge.prompts.TEMPLATES`; else ValueError."""
    if isinstance(template, str) and template in TEMPLATES:
        return TEMPLATES[template]
    if not isinstance(template, Template):
        raise ValueError(
            f"template {template!r} is unknown; use one of {sorted(TEMPLATES)} or a Template"
        )
    return template


def find(name_or_path: str | Path) -> Family | None:
    """Find the family of a judge by hub id, by the name of its folder, or by what stands in there.

    A folder's judge.json may name the family. A checkpoint that merely has a known judge's
    architecture is not taken for it.

    >>> find("lmms-lab/llava-critic-7b").name, find("lmms-lab/LLaVA-Critic-R1-7B").name
    ('llava-critic', 'llava-critic-r1')
    >>> find("openai:gpt-4o") is None
    True
    """
    name = Path(name_or_path).name.lower()
    longest = ""  # "llava-critic-r1" goes before "llava-critic"
    found = None
    for family in FAMILIES.values():
        for id in family.ids:
            stem = id.lower().rpartition("/")[2]
            if stem in name and len(stem) > len(longest):
                longest = stem
                found = family
    return found or FAMILIES.get(str(_read_record(Path(name_or_path)).get("family")))


def record(folder: Path, template: Template) -> None:
    """Write down the wording that a checkpoint was fine-tuned on, for `recorded`."""
    known = TEMPLATES.get(template.name)
    kept: Any = template.name
    if known is None or known.body != template.body or known.marker != template.marker:
        if not template.conversation.written:  # the checkpoint's own chat template
            template = template.as_messages()
        kept = asdict(template)
    text = json.dumps({"template": kept}, ensure_ascii=False)
    (folder / RECORD).write_text(text + "\n", encoding="utf-8")


def recorded(folder: Path) -> Template | None:
    """The wording that a checkpoint was fine-tuned on, as `record` wrote it down.

    None where nothing is said; ValueError where it can't be read or is unknown here.
    """
    kept = _read_record(folder).get("template")
    if not isinstance(kept, dict):
        return wording(kept) if kept else None
    words = kept["conversation"]
    words["controls"] = tuple(words["controls"])
    scale = tuple(kept["scale"]) if kept["scale"] else None
    return Template(**kept | {"conversation": Conversation(**words), "scale": scale})


def _read_record(folder: Path) -> dict:
    file = folder / RECORD
    if not file.is_file():
        return {}
    try:
        return dict(json.loads(file.read_bytes()))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{file} can't be read ({error}): give load_judge a template=") from error


# --- the judges, each with the decoding that its authors published

_SAMPLED = {"temperature": 1.0, "top_p": 0.9, "max_new_tokens": 1024}
_GREEDY = {"temperature": 0.0, "max_new_tokens": 4096}

register(
    "prometheus-vision",
    template="prometheus-vision",  # published for absolute grading alone
    # kaist-ai/prometheus-vision-7b-v1.0, kaist-ai/prometheus-vision-13b-v1.0,
    # prometheus-eval/prometheus-vision-7b-v1.0, prometheus-eval/prometheus-vision-13b-v1.0
    ids=["prometheus-vision"],
    published=_SAMPLED,  # Source: kaistAI/prometheus-vision llava/eval/model_vqa.py
    # Lee et al., Prometheus-Vision, arXiv 2401.06591
)
# Of the text judges the repetition penalty counts the prompt, as transformers and vLLM have it;
# both were published with tries until an answer parses, which are not made here.
register(
    "prometheus",
    template="prometheus",  # absolute grading alone
    # of kaist-ai and of prometheus-eval
    ids=["prometheus-7b-v1.0", "prometheus-13b-v1.0"],
    # Source: prometheus-eval/prometheus evaluation/benchmark/run_absolute_scoring.py
    published={**_SAMPLED, "repetition_penalty": 1.03, "max_new_tokens": 256, "samples": 3},
    # Kim et al., Prometheus, arXiv 2310.08491
)
register(
    "prometheus-2",
    template="prometheus-2",
    pairs="prometheus-2-relative",
    # prometheus-eval/prometheus-7b-v2.0, prometheus-eval/prometheus-8x7b-v2.0
    ids=["prometheus-7b-v2", "prometheus-8x7b-v2", "prometheus-2"],
    # Source: prometheus-eval/prometheus-eval prometheus_eval/utils.py
    published={**_SAMPLED, "repetition_penalty": 1.03},
    # Kim et al., Prometheus 2, arXiv 2405.01535
)
register(
    "llava-critic",  # its paper's benchmarks have wordings of their own in TEMPLATES
    template="llava-critic",
    pairs="llava-critic-pair",
    # lmms-lab/llava-critic-7b, lmms-lab/llava-critic-72b
    ids=["llava-critic"],
    published=_GREEDY,
    # Xiong et al., LLaVA-Critic, arXiv 2410.02712
)
register(
    "llava-critic-r1",
    template="llava-critic-r1",
    pairs="llava-critic-r1-pair",
    # lmms-lab/LLaVA-Critic-R1-7B, lmms-lab/LLaVA-Critic-R1-7B-Plus-Qwen,
    # lmms-lab/LLaVA-Critic-R1-7B-Plus-Mimo, lmms-lab/LLaVA-Critic-R1-7B-LLaMA32v
    ids=["llava-critic-r1"],
    # Wang et al., LLaVA-Critic-R1, arXiv 2509.00676
)
# UnifiedReward on LLaVA-OneVision and on Qwen2.5-VL: the same words for pairs, in the checkpoint's
# own conversation. Its code for pairs in free words ("unified-reward-pair") reads no answer.
register(
    "unified-reward",
    template="unified-reward",
    pairs="unified-reward-answers",
    ids=[
        "CodeGoat24/UnifiedReward-7b",
        "CodeGoat24/UnifiedReward-7b-v1.5",
        "CodeGoat24/UnifiedReward-0.5b",
    ],
    published=_GREEDY,
    # Wang et al., UnifiedReward, arXiv 2503.05236
)
register(
    "unified-reward-qwen",
    template="unified-reward-qwen",
    pairs=replace(TEMPLATES["unified-reward-answers"], conversation=MESSAGES),
    # CodeGoat24/UnifiedReward-qwen-3b, CodeGoat24/UnifiedReward-qwen-7b,
    # CodeGoat24/UnifiedReward-qwen-32b, CodeGoat24/UnifiedReward-qwen-72b
    ids=["unifiedreward-qwen", "unifiedreward-2.0-qwen"],
    published={"max_new_tokens": 4096},  # the temperature is left to the checkpoint
    # Wang et al., UnifiedReward, arXiv 2503.05236
)
# These were taught to compare alone; one response is put to them as to any chat model.
register(
    "unified-reward-think",
    template="chat",
    pairs="unified-reward-think",
    ids=["CodeGoat24/UnifiedReward-Think-7b"],
    published=_GREEDY,
    # Wang et al., UnifiedReward-Think, arXiv 2505.03318
)
register(
    "unified-reward-think-qwen",
    template="chat",
    pairs=replace(TEMPLATES["unified-reward-think"], conversation=MESSAGES),
    # CodeGoat24/UnifiedReward-Think-qwen-7b
    ids=["unifiedreward-think-qwen"],
    published={"max_new_tokens": 4096},
    # Wang et al., UnifiedReward-Think, arXiv 2505.03318
)
register(
    "unified-reward-think-qwen3vl",
    template="chat",
    pairs="unified-reward-think-qwen3vl",
    # CodeGoat24/UnifiedReward-Think-qwen3vl-2b, -4b, -8b and -32b
    ids=["unifiedreward-think-qwen3vl"],
    # Wang et al., UnifiedReward-Think, arXiv 2505.03318
)
register(
    "r1-reward",
    template="chat",
    pairs="r1-reward",
    ids=["yifanzhang114/R1-Reward"],
    # Zhang et al., R1-Reward, arXiv 2505.02835
)
register(
    "skywork-vl-reward",  # a value for each response; two are compared by their values
    template="skywork-vl-reward",
    # Skywork/Skywork-VL-Reward-7B
    ids=["skywork-vl-reward"],
    # Wang et al., Skywork-VL Reward, arXiv 2505.07263
)
# Any chat model; and benchmarks' prompts for any chat model, with the benchmark's decoding.
register(
    "chat",
    template="chat",
    pairs="chat-relative",
    published={"temperature": 0.0, "max_new_tokens": 1024},
)
register(
    "vl-rewardbench",
    template="chat",
    pairs="vl-rewardbench",
    # Source: vl-rewardbench/VL_RewardBench inference_hf.py; 10 draws, each order at random
    published={"temperature": 0.2, "top_p": 0.2, "max_new_tokens": 2048},
    # Li et al., VL-RewardBench, arXiv 2411.17451
)
