"""The perturbations by name: one thing changed in every item, and whether scores must change.

To add one, write a function of a row's cells or of a collection (in `changes.py`), and enter it in
`PERTURBATIONS`. Rows that it does not apply to are left out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import datasets
import pandas as pd

from vjudge.data import canonical, rows_of
from vjudge.data.schema import Items
from vjudge.probes.changes import (
    ANCHOR,
    PHRASES,
    NotApplicableError,
    Rewrite,
    answered,
    blanked,
    bold,
    inserting,
    padded,
    reencoded,
    reversed_levels,
    reworded_rubric,
    rewritten,
    swapped,
)
from vjudge.probes.decisions import Must
from vjudge.results import NotComputed, Result, analysis

# Changes a collection; the second argument is the seed, which some changes ignore.
Change = Callable[[datasets.Dataset, int], datasets.Dataset]


@dataclass(frozen=True)
class Perturbation:
    """One thing changed in every item.

    Attributes:
        probe: the probe whose table has it.
        must: "stay" where a valid judge's score may not change, "move" where it can't judge
            without what was changed.
        does: names the change, as the subject of a sentence.
        change: makes the changed collection.
        loss: the share of its slope on gold that a judge loses if it judges by what was changed
            alone: 1 where none is left, 2 where the slope is reversed. Where `must` is "move".
        asks: 1 or -1 where the inserted text asks for the highest or the lowest score, else 0.
        responses: whether it changes responses that are images, which few collections have.
    """

    probe: str
    must: Must
    does: str
    change: Change
    loss: float = 1.0
    asks: int = 0
    responses: bool = False


def _by_row(rewrite: Rewrite) -> Change:
    """Make a change of a collection from the change of a row; the seed is not used."""
    return lambda items, seed: rewritten(items, rewrite)


PERTURBATIONS = {
    "image_blanked": Perturbation(
        "blindness", "move", "a grey image", lambda items, seed: blanked(items)
    ),
    "image_swapped": Perturbation(
        "blindness",
        "move",
        "another group's image",
        lambda items, seed: swapped(items, seed=seed),
    ),
    "response_image_blanked": Perturbation(
        "blindness",
        "move",
        "a grey picture as the response",
        lambda items, seed: blanked(items, responses=True),
        responses=True,
    ),
    "response_image_swapped": Perturbation(
        "blindness",
        "move",
        "another group's picture as the response",
        lambda items, seed: swapped(items, seed=seed, responses=True),
        responses=True,
    ),
    "image_reencoded": Perturbation(
        "blindness", "stay", "storing the image anew", lambda items, seed: reencoded(items)
    ),
    "response_padded": Perturbation(
        "verbosity", "stay", "padding", lambda items, seed: padded(items, seed=seed)
    ),
    "response_bold": Perturbation("formatting", "stay", "bold type", _by_row(bold)),
    "levels_reversed": Perturbation(
        # loss 2: the slope on gold goes from 1 to -1
        "rubric",
        "move",
        "reversing the levels",
        _by_row(reversed_levels),
        loss=2.0,
    ),
    "rubric_reworded": Perturbation(
        "rewording", "stay", "rewording the rubric", _by_row(reworded_rubric)
    ),
    "answered_first": Perturbation(
        "commitment", "stay", "answering the question first", _by_row(answered)
    ),
    "shown_highest": Perturbation(
        "anchoring",
        "stay",
        "showing the highest score",
        _by_row(inserting("instruction", ANCHOR + "{best}.")),
        asks=1,
    ),
    "shown_lowest": Perturbation(
        "anchoring",
        "stay",
        "showing the lowest score",
        _by_row(inserting("instruction", ANCHOR + "{worst}.")),
        asks=-1,
    ),
}
"""Name -> perturbation."""

for _name, _phrase in PHRASES.items():
    PERTURBATIONS[f"injected_{_name}"] = Perturbation(
        "injection",
        "stay",
        f"an injected verdict ({_name})",
        _by_row(inserting("response", _phrase)),
        asks=-1 if _name == "worst" else 1,
    )


def perturb(items: Items, name: str, *, seed: int = 0) -> datasets.Dataset:
    """Change one thing in every item.

    Args:
        items: a collection.
        name: a key of `PERTURBATIONS`. "answered_first" needs the judge's own answers in the
            column `own_answer`.
        seed: of random choices.

    Returns:
        The canonical collection without rows that the change does not apply to.

    Raises:
        ValueError: an unknown name, or nothing to change.

    Source: MM-JudgeBias (arXiv 2604.18164) changes question, image and response likewise; the texts
    are ours.

    >>> from vjudge import load_collection, probes
    >>> items = load_collection("scenes", split="test", limit=2)
    >>> reverse = probes.perturb(items, "levels_reversed")
    >>> reverse[0]["descriptions"] == items[0]["descriptions"][::-1]
    True
    """
    if name not in PERTURBATIONS:
        raise ValueError(f"perturbation {name!r} is unknown; use one of {', '.join(PERTURBATIONS)}")
    return PERTURBATIONS[name].change(items, seed)


@analysis
def example(items: Items, name: str, *, seed: int = 0) -> Result:
    """Show the texts of the first item that a perturbation changes, before and after.

    Raises:
        NotComputed: it applies to no item, or changes images alone.

    >>> import vjudge as vj
    >>> items = vj.load_collection("scenes", split="test", limit=2)
    >>> vj.probes.example(items, "response_padded").table["column"].tolist()
    ['response']
    """
    collection = canonical(items)
    if "response" not in collection.column_names:
        raise NotComputed("single responses are changed, and each row is a pair")
    try:
        changed = perturb(collection, name, seed=seed)
    except NotApplicableError as error:
        raise NotComputed(f"{name}: {error}") from error
    # compare the first changed row with the row of its id: rows may have been left out before it
    after = changed.remove_columns("images")[0]
    by_id = {str(row["id"]): row for row in rows_of(collection.remove_columns("images"))}
    before = by_id[str(after["id"])]
    rows = [(column, before[column], new) for column, new in after.items() if new != before[column]]
    if not rows:
        raise NotComputed(f"{name} changes pictures alone: see probes.perturb(items, {name!r})")
    return Result(
        pd.DataFrame(rows, columns=["column", "before", "after"]).astype(str),
        name="example",
        caption=f"What {name.replace('_', ' ')} changes, of item {after['id']}",
    )
