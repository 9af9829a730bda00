"""The judges that are known by name: how each is asked, read and, as published, decoded."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from vjudge.prompts.conversation import MESSAGES, Conversation
from vjudge.prompts.template import Template
from vjudge.prompts.wordings import ASSETS, TEMPLATES, with_tuples

RECORD = "judge.json"  # file in a checkpoint's folder: its family, or the template of its training


@dataclass(frozen=True)
class Family:
    """A family of judges that share their prompt templates and the format of their answers."""

    name: str
    template: Template  # how it scores one response
    pairs: Template | None = None  # how it compares two; None where it was never trained to
    # Hub ids, or parts of names: a folder or an id whose name contains one belongs to the family.
    ids: Sequence[str] = ()
    # The sampling parameters of its paper, for `judge.grade(items, **judge.family.published)`;
    # leave out "samples" for `judge.compare`.
    published: Mapping[str, Any] = field(default_factory=dict)


FAMILIES: dict[str, Family] = {}
"""Every known family by name; `register` adds to it."""


def register(
    name: str, *, template: Template | str, pairs: Template | str | None = None, **fields: Any
) -> Family:
    """Make a family known to `load_judge`.

    Args:
        name: a new name.
        template: how a judge scores one response: a template, or its name in
            `vjudge.prompts.TEMPLATES`.
        pairs: the same for two responses; None where the family compares none.
        fields: further fields of `Family`: `ids` and `published`.

    >>> from vjudge.prompts import VICUNA_V1, Template, families
    >>> body = "Q: {instruction}\\nA: {response}\\n{criteria}\\nEnd with [RESULT] and a score."
    >>> mine = Template("mine", "my paper", VICUNA_V1, body)
    >>> families.register("mine", ids=["me/my-judge-7b"], template=mine).template.format
    'prometheus'
    >>> families.family_of("checkpoints/my-judge-7b").name
    'mine'

    Raises:
        ValueError: the name is taken, or a template is unknown.
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
    """Return the template of this name in `vjudge.prompts.TEMPLATES`, or a `Template` unchanged.

    Raises:
        ValueError: the name is unknown.
    """
    if isinstance(template, str) and template in TEMPLATES:
        return TEMPLATES[template]
    if not isinstance(template, Template):
        raise ValueError(
            f"template {template!r} is unknown; use one of {sorted(TEMPLATES)} or a Template"
        )
    return template


def family_of(name_or_path: str | Path) -> Family | None:
    """Find the family of a judge by its hub id, its folder's name, or its folder's judge.json.

    The architecture does not count: a checkpoint that only shares a known judge's has no family.

    >>> family_of("lmms-lab/llava-critic-7b").name, family_of("lmms-lab/LLaVA-Critic-R1-7B").name
    ('llava-critic', 'llava-critic-r1')
    >>> family_of("openai:gpt-4o") is None
    True
    """
    name = Path(name_or_path).name.lower()
    # an id's last part -> its family; where two families have the same, the first one keeps it
    matches: dict[str, Family] = {}
    for family in FAMILIES.values():
        for id in family.ids:
            stem = id.lower().rpartition("/")[2]  # "my-judge-7b" of "me/my-judge-7b"
            if stem and stem in name:
                matches.setdefault(stem, family)
    if matches:  # the longest: "llava-critic-r1" takes precedence over "llava-critic"
        return matches[max(matches, key=len)]
    # without a record the key is "None", which names no family
    return FAMILIES.get(str(_read_record(Path(name_or_path)).get("family")))


def record(folder: Path, template: Template) -> None:
    """Record in a checkpoint's folder the template that it was fine-tuned on, for `recorded`.

    A template of `TEMPLATES` is recorded by its name, any other one with all its fields.
    """
    published = TEMPLATES.get(template.name)
    stored: Any = template.name
    if published is None or (published.body, published.marker) != (template.body, template.marker):
        # a chat template is not recorded: the checkpoint has it
        if not template.conversation.written:
            template = template.as_messages()
        stored = asdict(template)
    text = json.dumps({"template": stored}, ensure_ascii=False)
    (folder / RECORD).write_text(text + "\n", encoding="utf-8")


def recorded(folder: Path) -> Template | None:
    """Read the template that a checkpoint was fine-tuned on; None where none is recorded.

    Raises:
        ValueError: the record can't be read, or names a template that is unknown here.
    """
    stored = _read_record(folder).get("template")
    if not isinstance(stored, dict):  # a name, or None
        return wording(stored) if stored else None
    conversation = Conversation(**with_tuples(stored["conversation"]))
    return Template(**with_tuples(stored) | {"conversation": conversation})


def _read_record(folder: Path) -> dict[str, Any]:
    """Read a folder's judge.json; {} where there is none.

    Raises:
        ValueError: the file is no valid JSON.
    """
    file = folder / RECORD
    if not file.is_file():
        return {}
    try:
        return dict(json.loads(file.read_bytes()))
    except (TypeError, ValueError, RecursionError) as error:  # TypeError: JSON, but no object
        raise ValueError(f"{file} can't be read ({error}): give load_judge a template=") from error


# --- the judges of `../assets/families.json`, with the sampling parameters that authors published

_NOTES = ("paper", "note", "checkpoints")  # keys of the file that only people read


def _register_all() -> None:
    """Register the judges of `assets/families.json`."""
    text = (ASSETS / "families.json").read_text(encoding="utf-8")
    for name, row in json.loads(text).items():
        fields = {key: value for key, value in row.items() if key not in _NOTES}
        if fields.pop("own_conversation", False):  # pairs are asked in the checkpoint's template
            fields["pairs"] = replace(TEMPLATES[fields["pairs"]], conversation=MESSAGES)
        register(name, **fields)


_register_all()
