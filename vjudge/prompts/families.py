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

RECORD = "judge.json"  # in a checkpoint's folder: its family, or the wording it was trained on


@dataclass(frozen=True)
class Family:
    """Judges that are asked and read alike."""

    name: str
    template: Template  # how it scores one response
    pairs: Template | None = None  # how it compares two; None where it was never taught to
    # Hub ids, or parts of names: a folder or an id whose name contains one belongs to the family.
    ids: Sequence[str] = ()
    # The decoding of its paper: `judge.grade(items, **judge.family.published)`; a comparison drops
    # "samples".
    published: Mapping[str, Any] = field(default_factory=dict)


FAMILIES: dict[str, Family] = {}
"""Every known family by name; `register` adds to it."""


def register(
    name: str, *, template: Template | str, pairs: Template | str | None = None, **fields: Any
) -> Family:
    """Make a family known to `load_judge`; `fields` are further ones of `Family`.

    A template may be the name of one in `vjudge.prompts.TEMPLATES`.

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
    """Return a template, which may be given by its name in `vjudge.prompts.TEMPLATES`.

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

    A checkpoint that merely has a known judge's architecture is not taken for it.

    >>> family_of("lmms-lab/llava-critic-7b").name, family_of("lmms-lab/LLaVA-Critic-R1-7B").name
    ('llava-critic', 'llava-critic-r1')
    >>> family_of("openai:gpt-4o") is None
    True
    """
    name = Path(name_or_path).name.lower()
    matches: dict[str, Family] = {}  # by the part of the name; of equal ids the first family's
    for family in FAMILIES.values():
        for id in family.ids:
            stem = id.lower().rpartition("/")[2]
            if stem and stem in name:
                matches.setdefault(stem, family)
    if matches:  # the longest: "llava-critic-r1" goes before "llava-critic"
        return matches[max(matches, key=len)]
    return FAMILIES.get(str(_read_record(Path(name_or_path)).get("family")))


def record(folder: Path, template: Template) -> None:
    """Record in a checkpoint's folder the wording that it was fine-tuned on, for `recorded`."""
    published = TEMPLATES.get(template.name)
    stored: Any = template.name
    if published is None or (published.body, published.marker) != (template.body, template.marker):
        if not template.conversation.written:  # the checkpoint's own chat template
            template = template.as_messages()
        stored = asdict(template)
    text = json.dumps({"template": stored}, ensure_ascii=False)
    (folder / RECORD).write_text(text + "\n", encoding="utf-8")


def recorded(folder: Path) -> Template | None:
    """Read the wording that a checkpoint was fine-tuned on; None where none is recorded.

    Raises:
        ValueError: the record can't be read, or names a wording that is unknown here.
    """
    stored = _read_record(folder).get("template")
    if not isinstance(stored, dict):
        return wording(stored) if stored else None
    conversation = Conversation(**with_tuples(stored["conversation"]))
    return Template(**with_tuples(stored) | {"conversation": conversation})


def _read_record(folder: Path) -> dict[str, Any]:
    """Read a folder's judge.json; {} where there is none."""
    file = folder / RECORD
    if not file.is_file():
        return {}
    try:
        return dict(json.loads(file.read_bytes()))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{file} can't be read ({error}): give load_judge a template=") from error


# --- the judges of `../assets/families.json`, each with the decoding that its authors published

_NOTES = ("paper", "note", "checkpoints")  # for readers alone


def _register_all() -> None:
    """Register the judges of `assets/families.json`."""
    text = (ASSETS / "families.json").read_text(encoding="utf-8")
    for name, row in json.loads(text).items():
        fields = {key: value for key, value in row.items() if key not in _NOTES}
        if fields.pop("own_conversation", False):  # pairs in the checkpoint's chat template
            fields["pairs"] = replace(TEMPLATES[fields["pairs"]], conversation=MESSAGES)
        register(name, **fields)


_register_all()
