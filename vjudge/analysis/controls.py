"""`picture_controls`: how much of a judge's agreement comes from the image?"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from pandas import DataFrame

from vjudge import data, probes
from vjudge.analysis.choice_table import Choices, choices
from vjudge.analysis.score_table import Scores, scores
from vjudge.data.schema import Items
from vjudge.judging.asking import PairsNotSupportedError
from vjudge.judging.judge import JudgeLike
from vjudge.judging.paths import file_name

JPEG_QUALITY = 2
AS_GIVEN = "right picture"  # the condition of the unchanged collection
FORCED = "forced score"  # the condition without feedback before the verdict
# Name of a condition -> the function that changes the images of a collection
CHANGES: dict[str, Callable[..., Any]] = {
    f"JPEG, quality {JPEG_QUALITY}": partial(probes.reencoded, quality=JPEG_QUALITY),
    "grey picture": probes.blanked,
    "another picture": probes.swapped,
}


def picture_controls(
    judge: JudgeLike,
    items: Items,
    *,
    out: str | Path | None = None,
    about: str | None = None,
    **grading: Any,
) -> Scores | Choices:
    """Grade a collection with its images, with worse or wrong ones, and without feedback.

    A judge that looks at the image agrees less with the truth where the image is grey or another
    item's. The swapped image is the fairer control, since grey images are unusual input.

    Args:
        judge: the judge.
        items: the collection. Pairs are compared as they are, without controls.
        out: a folder that records every verdict; the same call continues there.
        about: what captions call the collection; None means the name it was loaded by.
        grading: further options of `Judge.grade`.

    Returns:
        `Scores` with one judge per condition: "right picture", "forced score" (no feedback before
        the verdict), "JPEG, quality 2", "grey picture", "another picture". A condition that does
        not apply is left out, and a caveat says so. For pairs, `Choices`.

    Raises:
        CollectionError: there are bad rows; all are named before any work.

    >>> import vjudge as vj
    >>> items = vj.load_collection("scenes", limit=12)
    >>> judge = vj.load_judge("tiny", device="cpu")
    >>> vj.picture_controls(judge, items, progress=False).judges
    ['right picture', 'forced score', 'JPEG, quality 2', 'grey picture', 'another picture']
    """
    if about is None:
        about = Path(data.origin(items).get("source", "the collection")).name
    caveats: list[str] = []

    def folder_of(name: str) -> Path | None:
        """Return the folder of one condition; None where nothing is recorded."""
        return None if out is None else Path(out) / file_name(name)

    if "response_a" in data.canonical(items).column_names:
        try:
            run = judge.compare(items, out=folder_of("pairs"), **grading)
        except PairsNotSupportedError as error:
            return Choices(DataFrame(), [], about=about, reason=str(error))
        return choices({judge.name: run}, items=items, about=about)
    runs = {AS_GIVEN: judge.grade(items, out=folder_of(AS_GIVEN), **grading)}
    try:
        forced = {**grading, "mode": "score"}
        runs[FORCED] = judge.grade(items, out=folder_of(FORCED), **forced)
    except ValueError as error:  # such as of options that take feedback
        caveats.append(f"no forced score: {error}")
    for name, change in CHANGES.items():
        try:
            rows = change(items)
        except ValueError as error:  # such as of a collection without images
            caveats.append(f"not graded with {name}: {error}")
        else:
            runs[name] = judge.grade(rows, out=folder_of(name), **grading)
    return scores(runs, items=items, about=about, caveats=caveats)
