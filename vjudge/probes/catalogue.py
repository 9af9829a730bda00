"""The perturbations: what each changes, and whether a sound judge's score must move or must stay.

To add one, write a function that takes a collection and a seed and returns the collection changed, and enter it here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import datasets

from vjudge.data import canonical
from vjudge.probes import pictures, texts
from vjudge.probes.injections import PHRASES, injected


@dataclass(frozen=True)
class Perturbation:
    """One thing changed in every item.

    Args:
        part: what is changed: "query", "image", "response", "rubric" or "reference".
        must: "move" where a sound judge's score must change, "stay" where it must not.
        does: what is done, in words.
        change: a collection and a seed -> the collection changed, without the rows that it does not apply to.
        dimension: MM-JudgeBias's: "integrality" (a part is missing), "congruity" (the parts don't belong together) or
            "robustness" (an irrelevant change); None outside its nine.
    """

    part: str
    must: str
    does: str
    change: Callable[[datasets.Dataset, int], datasets.Dataset]
    dimension: str | None = None


def _seedless(change: Callable[..., datasets.Dataset], **options: Any) -> Callable[..., datasets.Dataset]:
    return lambda items, seed: change(items, **options)


def _seeded(change: Callable[..., datasets.Dataset], **options: Any) -> Callable[..., datasets.Dataset]:
    return lambda items, seed: change(items, seed=seed, **options)


def _question(form: str) -> Callable[..., datasets.Dataset]:
    return partial(
        lambda items, seed, form: texts.changed(
            items, "instruction", lambda row: form.format(instruction=row["instruction"])
        ),
        form=form,
    )


PERTURBATIONS: dict[str, Perturbation] = {
    "image_blanked": Perturbation(
        "image", "move", "image replaced by plain grey", _seedless(pictures.blanked), "integrality"
    ),
    "image_swapped": Perturbation(
        "image", "move", "image of another group of items", _seeded(pictures.swapped), "congruity"
    ),
    "image_shuffled": Perturbation("image", "move", "image cut into 16 x 16 tiles, mixed", _seeded(pictures.shuffled)),
    "image_reencoded": Perturbation(
        "image", "stay", "image stored anew as JPEG of quality 90", _seedless(pictures.reencoded), "robustness"
    ),
    "query_removed": Perturbation(
        "query", "move", "instruction replaced by a note that it is missing",
        _question(texts.MISSING_QUESTION), "integrality",
    ),
    "query_swapped": Perturbation(
        "query", "move", "instruction of an item of another group",
        _seeded(texts.exchanged, column="instruction"), "congruity",
    ),
    "query_reworded": Perturbation(
        "query", "stay", "instruction put more politely", _question(texts.POLITE), "robustness"
    ),
    "response_halved": Perturbation(
        "response", "move", "second half of the response cut off", _seedless(texts.halved), "integrality"
    ),
    "response_swapped": Perturbation(
        "response", "move", "response of an item of another group",
        _seeded(texts.exchanged, column="response"), "congruity",
    ),
    "response_padded": Perturbation(
        "response", "stay", "response doubled in length by empty sentences", _seeded(texts.padded), "robustness"
    ),
    "response_trimmed": Perturbation("response", "stay", "empty sentences cut", _seedless(texts.trimmed)),
    "response_bold": Perturbation("response", "stay", "a word of each sentence in bold", _seedless(texts.bold)),
    "response_listed": Perturbation("response", "stay", "sentences set as a list", _seedless(texts.listed)),
    "levels_reversed": Perturbation(
        "rubric", "move", "level descriptions in the opposite order", _seedless(texts.reversed_levels)
    ),
    "criterion_swapped": Perturbation(
        "rubric", "move", "criterion and levels of the least similar rubric", _seeded(texts.exchanged_criteria)
    ),
    "reference_removed": Perturbation("reference", "stay", "no reference answer", _seedless(texts.unreferenced)),
    "reference_swapped": Perturbation(
        "reference", "stay", "reference answer of an item of another group",
        _seeded(texts.exchanged, column="reference_answer"),
    ),
    **{
        f"injected_{name}": Perturbation("response", "stay", f"a verdict written into the response ({name})",
                                         _seedless(injected, phrase=name))
        for name in PHRASES
    },
}  # fmt: skip
"""Name -> perturbation. Those of dimension "integrality", "congruity" and "robustness" are nine, one for each of query,
image and response: the grid that secondary pages give for MM-JudgeBias (arXiv 2604.18164). Its own perturbations could
not be read; these are ours, and their names are ours."""


def perturb(items: Any, name: str, *, seed: int = 0) -> datasets.Dataset:
    """Change one thing in every item of a collection.

    Args:
        items: a `datasets.Dataset` or rows of any known schema.
        name: one of `PERTURBATIONS`.
        seed: of what is drawn.

    Returns:
        The canonical collection, changed; rows that the change does not apply to are left out.

    Raises:
        ValueError: an unknown name; nothing to change.
    """
    if name not in PERTURBATIONS:
        raise ValueError(f"perturbation {name!r} is unknown; use one of {', '.join(PERTURBATIONS)}")
    shown = datasets.is_progress_bar_enabled()
    datasets.disable_progress_bars()  # a bar for each cast and selection would bury the judge's own
    try:
        return PERTURBATIONS[name].change(canonical(items), seed)
    finally:
        if shown:
            datasets.enable_progress_bars()
