"""The judges that are known by name: how each is asked, read, and decoded in print."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from vjudge.prompts.conversation import MESSAGES, Conversation
from vjudge.prompts.template import Template
from vjudge.prompts.wordings import ASSETS, TEMPLATES

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
    >>> families.family_of("checkpoints/my-judge-7b").name
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


def family_of(name_or_path: str | Path) -> Family | None:
    """Find the family of a judge by hub id, by the name of its folder, or by what stands in there.

    A folder's judge.json may name the family. A checkpoint that merely has a known judge's
    architecture is not taken for it.

    >>> family_of("lmms-lab/llava-critic-7b").name, family_of("lmms-lab/LLaVA-Critic-R1-7B").name
    ('llava-critic', 'llava-critic-r1')
    >>> family_of("openai:gpt-4o") is None
    True
    """
    name = Path(name_or_path).name.lower()
    longest = ""  # "llava-critic-r1" goes before "llava-critic"
    match = None
    for family in FAMILIES.values():
        for id in family.ids:
            stem = id.lower().rpartition("/")[2]
            if stem in name and len(stem) > len(longest):
                longest = stem
                match = family
    return match or FAMILIES.get(str(_read_record(Path(name_or_path)).get("family")))


def record(folder: Path, template: Template) -> None:
    """Write down the wording that a checkpoint was fine-tuned on, for `recorded`."""
    published = TEMPLATES.get(template.name)
    stored: Any = template.name
    if published is None or (published.body, published.marker) != (template.body, template.marker):
        if not template.conversation.written:  # the checkpoint's own chat template
            template = template.as_messages()
        stored = asdict(template)
    text = json.dumps({"template": stored}, ensure_ascii=False)
    (folder / RECORD).write_text(text + "\n", encoding="utf-8")


def recorded(folder: Path) -> Template | None:
    """The wording that a checkpoint was fine-tuned on, as `record` wrote it down.

    None where nothing is said; ValueError where it can't be read or is unknown here.
    """
    stored = _read_record(folder).get("template")
    if not isinstance(stored, dict):
        return wording(stored) if stored else None
    conversation = stored["conversation"]
    conversation["controls"] = tuple(conversation["controls"])
    scale = tuple(stored["scale"]) if stored["scale"] else None
    return Template(**stored | {"conversation": Conversation(**conversation), "scale": scale})


def _read_record(folder: Path) -> dict:
    file = folder / RECORD
    if not file.is_file():
        return {}
    try:
        return dict(json.loads(file.read_bytes()))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{file} can't be read ({error}): give load_judge a template=") from error


# --- the judges of `../assets/families.json`, each with the decoding that its authors published

_ASIDE = ("paper", "note", "checkpoints")  # for readers alone


def _register_all() -> None:
    text = (ASSETS / "families.json").read_text(encoding="utf-8")
    for name, row in json.loads(text).items():
        fields = {key: value for key, value in row.items() if key not in _ASIDE}
        if fields.pop("own_conversation", False):  # pairs in the checkpoint's chat template
            fields["pairs"] = replace(TEMPLATES[fields["pairs"]], conversation=MESSAGES)
        register(name, **fields)


_register_all()
