"""The words every other file speaks: a rubric, an item to grade, a pair to compare, and a verdict.

A missing number is NaN and a missing text is None, never a stand-in value.
"""

from __future__ import annotations

import ast
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from numbers import Real
from typing import Any

NAN = float("nan")
IMAGE_COLUMNS = tuple(
    "images image img imgs picture pictures image_path image_paths img_path img_paths image_file"
    " image_files image_filename image_filenames image_file_name image_file_names picture_path"
    " picture_paths".split()
)
"""The names under which a row may hold its pictures; `images` is the canonical one."""
RESPONSE_IMAGES = {name: f"{name}_images" for name in ("response", "response_a", "response_b")}
"""The column of each response's text -> the column of its pictures."""


def is_missing(value: object) -> bool:
    """Whether a table cell holds no value: None, a NaN of any numeric type, or pandas' NA."""
    if value is None or type(value).__name__ == "NAType":
        return True
    return isinstance(value, Real) and value != value


def as_score(value: Any) -> float:
    """A score stored as an int, a float or a string; NaN where it is missing or blank.

    >>> as_score(" 4 "), as_score(3.5), as_score(None)
    (4.0, 3.5, nan)

    Raises:
        ValueError: the value is no finite number.
    """
    if is_missing(value) or (isinstance(value, str) and not value.strip()):
        return NAN
    try:
        score = float(value)
    except (TypeError, ValueError):
        score = NAN
    if isinstance(value, bool) or not math.isfinite(score):
        raise ValueError(f"{brief(value)} is not a number")
    return score


def brief(value: object) -> str:
    """The first characters of a value for an error message."""
    return f"{value!r:.60}"


def from_csv(cell: object) -> Any:
    """A list or mapping whose cell became a text in a CSV file; anything else as it is.

    >>> from_csv("[4.0, None, 2.0]"), from_csv("{'1': 0.5}"), from_csv("[RESULT] 4")
    ([4.0, None, 2.0], {'1': 0.5}, '[RESULT] 4')
    """
    if not isinstance(cell, str) or cell[:1] not in ("[", "{"):
        return cell
    for read in (json.loads, ast.literal_eval):
        with suppress(ValueError, SyntaxError, RecursionError, MemoryError):
            return read(cell)
    return cell


# --- what a response is graded by


@dataclass(frozen=True)
class Criterion:
    """One of several criteria that are graded in one call; a negative weight counts against."""

    name: str
    description: str
    weight: float = 1.0

    def as_cells(self) -> dict:
        """The entry of a row's `criteria`."""
        return {"name": self.name, "criteria": self.description, "weight": self.weight}


@dataclass(frozen=True)
class Rubric:
    """What is graded, and what earns each score.

    >>> Rubric("Is it right?", {0: "Nothing is.", 50: "Half is.", 100: "All is."}).highest
    100

    Args:
        criteria: what is graded; for several criteria the text that describes them all.
        descriptions: one text for each score from `lowest` up; or a mapping of anchors, score ->
            text, whose other whole numbers go undescribed.
        lowest: the first description's score; of anchors it is the smallest one.
        named: several criteria, each of which gets a score of the same scale.

    Raises:
        ValueError: `rubric_faults` finds something.
    """

    criteria: str
    descriptions: Sequence | Mapping = field(hash=False)
    lowest: int = 1
    named: tuple = ()

    def __post_init__(self) -> None:
        faults = rubric_faults(
            self.criteria, self.descriptions, lowest=self.lowest, named=self.named
        )
        if faults:
            raise ValueError("; ".join(f"{name}: {what}" for name, what in faults))
        descriptions: Any = _levels(self.descriptions, self.lowest)
        object.__setattr__(self, "lowest", min(descriptions))
        if len(descriptions) == 1 + max(descriptions) - self.lowest:  # each score has one
            descriptions = tuple(descriptions.values())
        object.__setattr__(self, "descriptions", descriptions)
        object.__setattr__(self, "named", tuple(self.named))

    @property
    def levels(self) -> list:
        """The scores that are described, each with its description, lowest first."""
        return list(_levels(self.descriptions, self.lowest).items())

    @property
    def highest(self) -> int:
        return self.levels[-1][0]

    @property
    def scores(self) -> tuple:
        """The scale, lowest first: (1, 2, 3, 4, 5) for five descriptions."""
        return tuple(range(self.lowest, self.highest + 1))

    @property
    def weights(self) -> dict:
        """The weight of each named criterion."""
        return {criterion.name: criterion.weight for criterion in self.named}

    @property
    def bounds(self) -> tuple[float, float]:
        """The lowest and the highest weighted mean that named criteria can get."""
        low = {}
        high = {}
        for name, weight in self.weights.items():
            low[name] = self.lowest if weight > 0 else self.highest
            high[name] = self.highest if weight > 0 else self.lowest
        return weighted_mean(low, self.weights), weighted_mean(high, self.weights)

    def as_row(self) -> dict:
        """The cells of a row from which `Item.from_row` builds this rubric."""
        criteria: Any = self.criteria
        if self.named:
            criteria = [criterion.as_cells() for criterion in self.named]
        return {"criteria": criteria, "descriptions": self.descriptions, "lowest": self.lowest}


def weighted_mean(scores: Mapping, weights: Mapping) -> float:
    """Mean of scores by name, sum(w * s) / sum(|w|); weights may be negative."""
    total = sum(weight * scores[name] for name, weight in weights.items())
    return total / sum(map(abs, weights.values()))


def anchors_of(descriptions: Mapping) -> dict:
    """Descriptions by score, lowest first, from keys such as "50"; without those that are None.

    Raises:
        ValueError: a key is no whole number.
    """
    anchors = {}
    for key, text in descriptions.items():
        if text is not None:  # a column of mappings has every row's keys
            anchors[_whole(key)] = text
    return dict(sorted(anchors.items()))


def _whole(value: Any) -> int:
    score = as_score(value)
    if score % 1 != 0:
        raise ValueError(f"{brief(value)} is not a whole number")
    return int(score)


def _levels(descriptions: Any, lowest: int = 1) -> dict:
    """Descriptions by score, from a list or from anchors."""
    if isinstance(descriptions, Mapping):
        return anchors_of(descriptions)
    return dict(enumerate(descriptions, start=lowest))


def criteria_of(value: Any) -> tuple[str, tuple]:
    """A row's criteria as a text and, where there are several, by name.

    Args:
        value: a text; or a list of {"name", "criteria", "weight"}.

    Raises:
        ValueError: an entry has no name or no text, a weight that is no number, or anything else,
            such as descriptions of its own, which would not be used.
    """
    if is_missing(value) or isinstance(value, str):
        return value or "", ()
    named = []
    for cells in value:
        if not isinstance(cells, Mapping):
            raise ValueError(f"{brief(cells)} is not an object with a name and criteria")
        name = text_of(cells, "name")
        text = text_of(cells, "criteria")
        if name is None or text is None:
            raise ValueError(f"{brief(cells)} has no name, or no text as its criteria")
        weight = cells.get("weight")
        criterion = Criterion(name, text, 1.0 if weight is None else as_score(weight))
        unused = [
            key for key in cells if key not in criterion.as_cells() and cells[key] is not None
        ]
        if unused:
            raise ValueError(
                f"criterion {name!r}: its {', '.join(map(str, unused))} would not be used: all"
                " criteria share the row's descriptions, so write there what earns each score"
            )
        named.append(criterion)
    return "\n".join(f"{one.name}: {one.description}" for one in named), tuple(named)


def rubric_faults(
    criteria: Any, descriptions: Any, *, lowest: int = 1, named: Sequence[Criterion] = ()
) -> list:
    """What keeps criteria and level descriptions from being a rubric: (field, what is wrong)."""
    faults = []
    if not isinstance(criteria, str) or not criteria.strip():
        faults.append(("criteria", "is missing or blank"))
    if len({criterion.name.casefold() for criterion in named}) < len(named):
        faults.append(("criteria", "a name stands twice"))
    if named and not any(criterion.weight for criterion in named):
        faults.append(("criteria", "all weights are 0"))
    try:
        _check_levels(descriptions, lowest)
    except ValueError as error:
        faults.append(("descriptions", str(error)))
    return faults


def _check_levels(descriptions: Any, lowest: int) -> None:
    if isinstance(descriptions, str) or not isinstance(descriptions, Sequence | Mapping):
        raise ValueError(
            "is not a list of texts, one for each score, nor a mapping of scores to texts"
        )
    texts = []
    for score, text in _levels(descriptions, lowest).items():
        if not isinstance(text, str) or not text.strip():
            raise ValueError(f"the level for score {score} is missing or blank")
        texts.append(text.strip())
    if len(texts) < 2:
        raise ValueError(f"has {len(texts)} level(s) where at least two are needed")
    if len(set(texts)) < len(texts):
        raise ValueError("two levels are the same text")


# --- what is judged


@dataclass(frozen=True)
class Item:
    """One response to grade: what was asked about which images, the answer, and the rubric."""

    id: str  # unique within its collection
    images: tuple  # for `vjudge.images.open_image`, as the model sees them; may be empty
    instruction: str
    response: str
    rubric: Rubric | None = None  # None for a judge whose wording shows none
    reference_answer: str | None = None  # that earns the highest score
    gold: float = NAN  # the true or reference score, with its feedback
    feedback: str | None = None
    human_scores: tuple = ()  # one for each rater, NaN for a rater who gave none
    group: str = ""  # the unit of resampling, usually the image; the id where the data names none
    context: str | None = None  # the picture in words, for a judge that reads these in its place
    response_images: tuple = ()  # pictures that are the response, or stand in it

    @classmethod
    def from_row(cls, row: Mapping) -> Item:
        """Build an item from a canonical row, as `vjudge.data.rows_of` gives it.

        >>> Item.from_row({"id": 7, "instruction": "What?", "response": "A cat.", "gold": "4"}).gold
        4.0

        Raises:
            KeyError, ValueError: what the row lacks, or what is wrong with it.
        """
        return cls(
            **_shared(row),
            **_response(row, "response"),
            gold=as_score(row.get("gold")),
            feedback=text_of(row, "feedback"),
            human_scores=tuple(map(as_score, _list(row.get("human_scores")))),
        )


@dataclass(frozen=True)
class Pair:
    """Two responses to compare; the other fields are those of `Item`."""

    id: str
    images: tuple
    instruction: str
    response_a: str
    response_b: str
    criteria: str = ""  # what is compared; the rubric's where there is one
    rubric: Rubric | None = None
    reference_answer: str | None = None
    preference: str | None = None  # "a", "b" or "tie"; None where unknown
    group: str = ""
    context: str | None = None
    response_a_images: tuple = ()
    response_b_images: tuple = ()

    @classmethod
    def from_row(cls, row: Mapping) -> Pair:
        """Build a pair from a row with `response_a`, `response_b` and `preference`."""
        criteria, _ = criteria_of(row.get("criteria"))
        return cls(
            **_shared(row),
            **_response(row, "response_a"),
            **_response(row, "response_b"),
            criteria=criteria,
            preference=text_of(row, "preference"),
        )


@dataclass(frozen=True)
class Verdict:
    """What a judge's answer says: exactly one of a score, a choice and a failure."""

    score: float  # on the scale; NaN where the judge chose or nothing could be read
    feedback: str  # the text before the verdict; the text after it where the verdict comes first
    raw: str  # the judge's whole answer, unchanged
    failure: str | None = None  # begins with one of `vjudge.prompts.parse.REASONS`
    choice: str | None = None  # "a", "b", "tie" or "abstain"; the last two are no failures
    # the two that a choice follows from, a reference's and the response's, or one a criterion
    scores: tuple | Mapping | None = None


# --- rows


def lowest_of(row: Mapping) -> int:
    """The score of a canonical row's first description, 1 where `lowest` says none.

    Raises:
        ValueError: it is no whole number.
    """
    return 1 if is_missing(row.get("lowest")) else _whole(row["lowest"])


def row_levels(row: Mapping) -> dict:
    """The descriptions of a canonical row by their scores, lowest first; empty without any."""
    descriptions = row.get("descriptions")
    anchors = _list(row.get("anchors"))
    if anchors:
        return dict(zip(anchors, _list(descriptions), strict=True))
    return {} if is_missing(descriptions) else _levels(descriptions, lowest_of(row))


def unit_of(row: Mapping) -> str:
    """The unit of resampling of a canonical row: its group, else the row itself, by its id."""
    return str(row["id"] if is_missing(row.get("group")) else row["group"])


def _shared(row: Mapping) -> dict:
    """The fields that items and pairs have in common."""
    return {
        "id": str(row["id"]),
        "images": _list(row.get("images")),
        "instruction": row["instruction"],
        "rubric": _rubric_of(row),
        "reference_answer": text_of(row, "reference_answer"),
        "group": unit_of(row),
        "context": text_of(row, "context"),
    }


def _response(row: Mapping, name: str) -> dict:
    """A response's text, which may be missing where it has pictures, and these."""
    pictures = _list(row.get(RESPONSE_IMAGES[name]))
    text = text_of(row, name) or "" if pictures else row[name]
    return {name: text, RESPONSE_IMAGES[name]: pictures}


def _rubric_of(row: Mapping) -> Rubric | None:
    """A row's rubric; None where the row describes no level."""
    criteria, named = criteria_of(row.get("named_criteria") or row.get("criteria"))
    levels = row_levels(row)
    if levels:
        return Rubric(criteria, levels, named=named)
    if named:
        raise ValueError("descriptions: named criteria need a scale: describe its ends")
    return None


def _list(value: Iterable | None) -> tuple:
    return () if value is None or is_missing(value) else tuple(value)


def text_of(row: Mapping, name: str) -> str | None:
    """A cell's text; None where it is missing or blank."""
    value = row.get(name)
    return None if is_missing(value) or not str(value).strip() else str(value)


def is_int_at_least(value: object, least: int) -> bool:
    """Whether an option is a whole number, `least` or more."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= least
