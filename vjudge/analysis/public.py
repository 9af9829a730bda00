"""`load_verdicts`: public verdicts of real judges as a table of scores or choices."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from vjudge.analysis.choice_table import Choices
from vjudge.analysis.score_table import Scores
from vjudge.data.verdicts import load_set


def load_verdicts(
    name: str, *, baselines: bool = False, folder: str | Path | None = None
) -> Scores | Choices:
    """Load people's ratings and real judges' verdicts on the same items.

    "viescore", "tifa160", "genai-bench" and "wildvision" come with the package; "mllm-judge" is
    downloaded into the user's cache.

    Args:
        name: one of `vjudge.data.verdicts.verdict_sets()`.
        baselines: whether metrics that are no judges, such as CLIPScore or chance, are added to the
            judges.
        folder: a clone of the public files of "mllm-judge", which is read instead of a download.

    Returns:
        `Scores`, or `Choices` where people and judges compared two responses. It has licence,
        citation and caveats, and the caveats stand beside every number.

    Raises:
        CollectionError: there is no such set, a file can't be fetched, or its content has changed.

    >>> public = load_verdicts("tifa160")
    >>> len(public), public.people[:2], public.licence
    (800, ['person 1', 'person 2'], 'Apache-2.0')
    """
    public_set = load_set(name, folder=folder)
    judges = list(public_set.judges)
    if baselines:
        judges += public_set.baselines
    people = {column: column.replace("human_", "person ") for column in public_set.people}
    fields: dict[str, Any] = {
        "frame": public_set.frame.rename(columns=people),
        "judges": judges,
        "people": list(people.values()),
        "group": "group",
        "benchmark": "benchmark",
        "about": public_set.title,
        "source": public_set.source,
        "licence": public_set.licence,
        "citation": public_set.citation,
        "caveats": list(public_set.caveats),
    }
    if public_set.kind == "pairs":
        # The opponent wrote response a, the system response b
        systems: Any = (public_set.opponent, public_set.system)
        return Choices(**fields, systems=systems if all(systems) else None)
    # A judge whose scores are numbers without bounds has no scale
    scales = {judge: scale for judge, scale in public_set.judge_scales.items() if scale}
    return Scores(**fields, system=public_set.system, scale=public_set.people_scale, scales=scales)
