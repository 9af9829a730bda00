"""What a generator is asked, stage by stage (assets/stages.json, our own words), and the seed rubrics it is shown. What
earlier stages and seeds wrote goes in as one JSON object, so that no text in it can pose as part of the task.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from vjudge.data import CollectionError, Problem
from vjudge.records import rubric_faults

VERSION = "1"
SYSTEM = (
    "You help to build a data set on which models learn to judge answers about images. You look closely at the image,"
    " you invent nothing that it does not show, and you answer with a single JSON object and nothing else."
)
_ASSETS = resources.files("vjudge") / "assets"


@dataclass(frozen=True)
class Stage:
    """One kind of call: what is asked, JSON Schema and shape of its answer, and a guess at the tokens of a prompt,
    without its image, and of an answer."""

    name: str
    task: str
    schema: Mapping[str, Any]
    sample: str
    tokens: Sequence[int]

    @property
    def version(self) -> str:
        """The prompt's name, with a digest of its wording."""
        whole = json.dumps([SYSTEM, self.task, self.sample, self.schema], sort_keys=True)
        return f"{self.name}-{VERSION}-{hashlib.sha256(whole.encode()).hexdigest()[:8]}"

    def text(self, given: Mapping[str, Any], *, note: str = "") -> str:
        """The user's turn: what the call is about as plain JSON values, and why an answer before was rejected."""
        parts = [
            f"Task: {self.name}",
            self.task,
            f"Input:\n{json.dumps(given, ensure_ascii=False, indent=1)}",
            f"Answer with one JSON object of this form and nothing else:\n{self.sample}",
        ]
        if note:
            parts.append(f"An answer to this task was rejected: {note} Give another one that avoids this.")
        return "\n\n".join(parts)


def given_of(text: str) -> tuple[str, dict[str, Any], bool]:
    """Take a user's turn apart: the stage, what was given, and whether an earlier answer was rejected."""
    head, _, rest = text.partition("\n\nInput:\n")
    given, end = json.JSONDecoder().raw_decode(rest)
    return head.split("\n", 1)[0].removeprefix("Task: "), given, "was rejected:" in rest[end:]


STAGES = {
    name: Stage(name, **fields | {"task": " ".join(fields["task"])})
    for name, fields in json.loads((_ASSETS / "stages.json").read_text("utf-8")).items()
}
"""What is asked, by stage, in the order of the stages."""


def load_seeds(name_or_path: str | Path = "general") -> list[dict[str, Any]]:
    """Read seed rubrics, from which a generator takes form and breadth; another field is another file.

    >>> len(load_seeds("general")), load_seeds("charts")[0]["area"]
    (50, 'reading off')

    Args:
        name_or_path: "general" or "charts" (an example of a field), which come with vjudge, or a .jsonl file.

    Returns:
        `id`, `area`, `criteria` and `descriptions` (lowest score first, equally many in all), in the file's order.

    Raises:
        CollectionError: no such file, or every line that is no sound seed, with what to do.
    """
    own = _ASSETS / "seeds" / f"{name_or_path}.jsonl"
    path = own if str(name_or_path) in ("charts", "general") else Path(name_or_path).expanduser()
    if not path.is_file():
        raise CollectionError(f"no seed file {str(name_or_path)!r}; give a path, or one of charts, general")
    seeds: list[dict[str, Any]] = []
    problems: list[Problem] = []
    for index, line in enumerate(filter(str.strip, path.read_text("utf-8-sig").splitlines())):
        try:
            row = json.loads(line)
            seed = {"id": str(row["id"]), **{name: row[name] for name in ("area", "criteria", "descriptions")}}
        except (ValueError, TypeError, LookupError) as error:
            what = f"is no JSON object with id, area, criteria and descriptions ({error!r})"
            problems.append(Problem(index, None, "row", what, "repair the line"))
            continue
        faults = rubric_faults(seed["criteria"], seed["descriptions"])
        if any(seed["id"] == other["id"] for other in seeds):
            faults.append(("id", "stands twice"))
        if seeds and not faults and len(seed["descriptions"]) != len(seeds[0]["descriptions"]):
            faults.append(("descriptions", f"are not {len(seeds[0]['descriptions'])} as in the first line"))
        problems += [Problem(index, seed["id"], field, what, "correct the line") for field, what in faults]
        seeds += [] if faults else [seed]
    if problems or not seeds:
        raise CollectionError(f"seeds {str(name_or_path)!r} are not sound" + ("" if problems else ": none"), problems)
    return seeds
