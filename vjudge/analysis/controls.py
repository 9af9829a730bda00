"""One judge in several ways on one collection: what of its agreement comes from the picture?"""

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
AS_GIVEN = "right picture"
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
    """Grade a collection as it is, without feedback, and with pictures that tell less or nothing.

    A judge that reads the picture loses its agreement with the truth where the picture is grey or
    another item's. The swapped picture is the fairer control, since a grey one is unusual.

    Args:
        judge: who grades.
        items: the collection. Of pairs, both orders are compared as they are.
        out: a folder that records every verdict; the same call goes on there.
        about: what captions call the collection; None takes the name it was loaded by.
        grading: further options of `Judge.grade`.

    Returns:
        `Scores` with a judge for each way of asking: "right picture", "forced score" (no feedback
        before the verdict), "JPEG, quality 2", "grey picture", "another picture"; of pairs
        `Choices`. What could not be asked is a caveat.

    Raises:
        CollectionError: bad rows, all named before any work.

    >>> import vjudge as vj
    >>> items = vj.load_collection("scenes", limit=12)
    >>> judge = vj.load_judge("tiny", device="cpu")
    >>> vj.picture_controls(judge, items, progress=False).judges
    ['right picture', 'forced score', 'JPEG, quality 2', 'grey picture', 'another picture']
    """
    folder = None if out is None else Path(out)
    if about is None:
        about = Path(data.origin(items).get("source", "the collection")).name
    caveats: list[str] = []

    def graded(name: str, rows: Any, **options: Any) -> DataFrame:
        home = folder and folder / file_name(name)
        return judge.grade(rows, out=home, **{**grading, **options})

    if "response_a" in data.canonical(items).column_names:
        try:
            run = judge.compare(items, out=folder and folder / "pairs", **grading)
        except PairsNotSupportedError as error:
            return Choices(DataFrame(), [], about=about, reason=str(error))
        return choices({judge.name: run}, items=items, about=about)
    runs = {AS_GIVEN: graded(AS_GIVEN, items)}
    try:
        runs["forced score"] = graded("forced score", items, mode="score")
    except ValueError as error:
        caveats.append(f"no forced score: {error}")
    for name, change in CHANGES.items():
        try:
            rows = change(items)
        except ValueError as error:
            caveats.append(f"not graded with {name}: {error}")
        else:
            runs[name] = graded(name, rows)
    return scores(runs, items=items, about=about, caveats=caveats)
