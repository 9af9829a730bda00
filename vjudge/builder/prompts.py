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

from vjudge.data import CollectionError
from vjudge.records import Rubric

ASSETS = resources.files("vjudge") / "assets"
SYSTEM = (
    "You help to build a data set on which models learn to judge answers about images. You look closely at the image,"
    " you invent nothing that it does not show, and you answer with a single JSON object and nothing else."
)


@dataclass(frozen=True)
class Stage:
    """One kind of call: what is asked, schema and shape of its answer, about how many tokens prompt and answer have."""

    name: str
    task: str
    schema: Mapping[str, Any]
    sample: str
    tokens: Sequence[int]

    @property
    def version(self) -> str:
        """The prompt's name, with a digest of its wording."""
        whole = json.dumps([SYSTEM, self.task, self.sample, self.schema], sort_keys=True)
        return f"{self.name}-1-{hashlib.sha256(whole.encode()).hexdigest()[:8]}"

    def text(self, given: Mapping[str, Any], *, note: str = "") -> str:
        """The user's turn: what the call is about as plain JSON values, and why an answer before was rejected."""
        again = f"\n\nAn answer to this task was rejected: {note} Give another one that avoids this." if note else ""
        return (
            f"Task: {self.name}\n\n{self.task}\n\nInput:\n{json.dumps(given, ensure_ascii=False, indent=1)}\n\n"
            f"Answer with one JSON object of this form and nothing else:\n{self.sample}{again}"
        )


def given_of(text: str) -> tuple[str, dict[str, Any], bool]:
    """Take a user's turn apart: the stage, what was given, and whether an earlier answer was rejected."""
    head, _, rest = text.partition("\n\nInput:\n")
    given, end = json.JSONDecoder().raw_decode(rest)
    return head.split("\n", 1)[0].removeprefix("Task: "), given, "was rejected:" in rest[end:]


STAGES = {
    name: Stage(name, **fields | {"task": " ".join(fields["task"])})
    for name, fields in json.loads((ASSETS / "stages.json").read_text("utf-8")).items()
}
"""What is asked, by stage, in the order of the stages."""


def load_seeds(name_or_path: str | Path = "general") -> list[dict[str, Any]]:
    """Read seed rubrics, from which a generator takes form and breadth: "general", "charts" or a .jsonl file.

    Returns `id`, `area`, `criteria` and `descriptions` (lowest score first, equally many in all), in the file's order;
    CollectionError names the first row that is no sound seed.

    >>> len(load_seeds("general")), load_seeds("charts")[0]["area"]
    (50, 'reading off')
    """
    own = str(name_or_path) in ("charts", "general")
    path = ASSETS / "seeds" / f"{name_or_path}.jsonl" if own else Path(name_or_path).expanduser()
    if not path.is_file():
        raise CollectionError(f"no seed file {str(name_or_path)!r}; give a path, or one of charts, general")
    seeds: list[dict[str, Any]] = []
    for number, line in enumerate(filter(str.strip, path.read_text("utf-8-sig").splitlines()), start=1):
        try:
            row = json.loads(line)
            seeds.append({"id": str(row["id"]), **{name: row[name] for name in ("area", "criteria", "descriptions")}})
            Rubric(row["criteria"], row["descriptions"])
            if len(row["descriptions"]) != len(seeds[0]["descriptions"]) or len({one["id"] for one in seeds}) < number:
                raise ValueError("the id of an earlier row, or not as many descriptions as in the first one")
        except (ValueError, TypeError, LookupError) as error:
            what = "a seed is a JSON object with id, area, criteria and descriptions: correct the line"
            raise CollectionError(f"seeds {str(name_or_path)!r}, row {number}: {error!r}; {what}") from error
    if not seeds:
        raise CollectionError(f"seeds {str(name_or_path)!r}: the file holds none")
    return seeds
