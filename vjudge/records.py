"""The records every other file speaks of: a rubric, an item to grade, a pair to compare, a verdict.

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
from typing import Any, TypeAlias

NAN = float("nan")
IMAGE_COLUMNS = tuple(
    "images image img imgs picture pictures image_path image_paths img_path img_paths image_file"
    " image_files image_filename image_filenames image_file_name image_file_names picture_path"
    " picture_paths".split()
)
"""The names under which a row may hold its images; `images` is the canonical one."""
RESPONSE_IMAGES = {name: f"{name}_images" for name in ("response", "response_a", "response_b")}
"""The column of each response's text -> the column of its images."""
CRITERION_CELLS = ("name", "criteria", "weight", "descriptions", "lowest", "anchors")
"""The keys that an entry of a row's `criteria` may have."""

Row: TypeAlias = Mapping[str, Any]
"""A row of a collection: column -> cell."""
Cells: TypeAlias = dict[str, Any]
"""Name -> value: some cells of a row, or some fields of a dataclass."""
Levels: TypeAlias = dict[int, Any]
"""Score -> the text that describes it, in ascending order of scores."""


# --- the cells of a row


def is_missing(value: object) -> bool:
    """Whether a table cell holds no value: None, a NaN of any numeric type, or pandas' NA."""
    if value is None or type(value).__name__ == "NAType":
        return True
    return isinstance(value, Real) and value != value  # only a NaN differs from itself


def as_score(value: Any) -> float:
    """Convert a score stored as an int, a float or a string; NaN if it is missing or blank.

    >>> as_score(" 4 "), as_score(3.5), as_score(None)
    (4.0, 3.5, nan)

    Raises:
        ValueError: the value is not a finite number.
    """
    if is_missing(value) or (isinstance(value, str) and not value.strip()):
        return NAN
    try:
        score = float(value)
    except (TypeError, ValueError):
        score = NAN
    if isinstance(value, bool) or not math.isfinite(score):  # float(True) would be 1.0
        raise ValueError(f"{brief(value)} is not a number")
    return score


def brief(value: object) -> str:
    """Return the first 60 characters of a value's repr for an error message."""
    return f"{value!r:.60}"


def from_csv(cell: object) -> Any:
    """Parse a list or a mapping that a CSV file stores as text; return any other cell unchanged.

    The text is JSON, or what Python's `repr` writes. A text that is neither stays a text.

    >>> from_csv("[4.0, None, 2.0]"), from_csv("{'1': 0.5}"), from_csv("[RESULT] 4")
    ([4.0, None, 2.0], {'1': 0.5}, '[RESULT] 4')
    """
    if not isinstance(cell, str) or cell[:1] not in ("[", "{"):
        return cell
    for parse in (json.loads, ast.literal_eval):
        with suppress(ValueError, SyntaxError, RecursionError, MemoryError):
            return parse(cell)
    return cell


def text_of(row: Row, name: str) -> str | None:
    """Return a cell's value as text; None if it is missing or blank."""
    value = row.get(name)
    return None if is_missing(value) or not str(value).strip() else str(value)


def _tuple_of(value: Iterable | None) -> tuple:
    """Return a cell's list as a tuple; an empty one if the cell is missing."""
    # mypy can't see that `is_missing` covers None
    return () if value is None or is_missing(value) else tuple(value)


def _whole_number(value: Any) -> int:
    """Convert a whole number stored as an int, a float or a string to an int.

    Raises:
        ValueError: the value is missing or not a whole number.
    """
    score = as_score(value)
    if score % 1 != 0:  # true for NaN, too
        raise ValueError(f"{brief(value)} is not a whole number")
    return int(score)


def is_int_at_least(value: object, least: int) -> bool:
    """Whether an option is an int (no bool) of `least` or more."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


# --- the levels of a scale


def anchors_of(descriptions: Mapping) -> Levels:
    """Convert a mapping of scores to descriptions into one with int keys, sorted by score.

    Args:
        descriptions: the keys may be texts, such as "50". A description that is None is left out:
            where a table's column holds mappings, each of them has the keys of all rows.

    Raises:
        ValueError: a key is no whole number, or two keys are the same number.
    """
    anchors: Levels = {}
    for key, text in descriptions.items():
        if text is None:
            continue
        score = _whole_number(key)
        if score in anchors:
            raise ValueError(f"the level for score {score} stands twice")
        anchors[score] = text
    return dict(sorted(anchors.items()))


def _levels(descriptions: Any, lowest: int = 1) -> Levels:
    """Map each score to its description.

    Args:
        descriptions: a list of texts; or a mapping of anchors, score -> text; or None.
        lowest: the score of a list's first text; a mapping does not need it.

    Returns:
        An empty mapping for None.

    Raises:
        ValueError: `descriptions` is of another type, or `anchors_of` refuses a key.
    """
    if isinstance(descriptions, Mapping):
        return anchors_of(descriptions)
    if descriptions is None:
        return {}
    if isinstance(descriptions, str) or not isinstance(descriptions, Sequence):
        raise ValueError(
            "is not a list of texts, one for each score, nor a mapping of scores to texts"
        )
    return dict(enumerate(descriptions, start=lowest))


def _check_levels(descriptions: Any, lowest: int = 1) -> None:
    """Check the levels of a scale; the arguments are those of `_levels`.

    Raises:
        ValueError: a level is blank, two are equal, or there are fewer than two.
    """
    texts = []
    for score, text in _levels(descriptions, lowest).items():
        if not isinstance(text, str) or not text.strip():
            raise ValueError(f"the level for score {score} is missing or blank")
        texts.append(text.strip())
    if len(texts) < 2:
        raise ValueError(f"has {len(texts)} level(s) where at least two are needed")
    if len(set(texts)) < len(texts):
        raise ValueError("two levels are the same text")


def lowest_of(row: Row) -> int:
    """Return the score of a canonical row's first description: its `lowest`, or 1 by default.

    Raises:
        ValueError: `lowest` is no whole number.
    """
    return 1 if is_missing(row.get("lowest")) else _whole_number(row["lowest"])


def row_levels(row: Row) -> Levels:
    """Map each score to its description, for a canonical row (see `vjudge.data.rows_of`).

    The scores of the row's `descriptions` are its `anchors`; without anchors they count up from
    its `lowest`.

    Returns:
        An empty mapping where the row has no descriptions.
    """
    descriptions = row.get("descriptions")
    anchors = _tuple_of(row.get("anchors"))
    if anchors:
        return dict(zip(anchors, _tuple_of(descriptions), strict=True))
    return {} if is_missing(descriptions) else _levels(descriptions, lowest_of(row))


# --- several criteria, each of which gets a score


@dataclass(frozen=True)
class Criterion:
    """One of several criteria, each of which gets a score.

    >>> sign = Criterion("sign", "Is the sign read?", 2, {0: "No.", 1: "Yes."})  # of a checklist
    >>> sign.as_cells()["anchors"]
    [0, 1]

    Args:
        name: the name of the criterion.
        description: what is graded.
        weight: the weight of its score in the mean over all criteria, above 0.
        descriptions: the text of each score, as in `Rubric`; empty to use the rubric's levels.

    Raises:
        ValueError: the weight is not above 0, or the levels are invalid.
    """

    name: str
    description: str
    weight: float = 1.0
    descriptions: Sequence | Mapping = field(default=(), hash=False)

    def __post_init__(self) -> None:
        if not self.weight > 0:
            raise ValueError(
                f"the weight {self.weight:g} is not above 0: for what counts against a response,"
                " describe the worst level first"
            )
        if self.descriptions:
            _check_levels(self.descriptions)
        # a frozen dataclass allows no plain assignment; a list becomes a mapping from score 1 up
        object.__setattr__(self, "descriptions", _levels(self.descriptions))

    def __str__(self) -> str:
        return f"{self.name}: {self.description}"

    def as_cells(self) -> Cells:
        """Return the entry of a row's `criteria` from which `criteria_of` builds this criterion."""
        cells = {"name": self.name, "criteria": self.description, "weight": self.weight}
        if self.descriptions:
            levels = _levels(self.descriptions)
            cells |= {"anchors": list(levels), "descriptions": list(levels.values())}
        return cells


def criteria_of(value: Any) -> tuple[str, tuple[Criterion, ...]]:
    """Read a row's criteria.

    Args:
        value: a text; or a list of mappings with the keys `CRITERION_CELLS`, of which only "name"
            and "criteria" are required; or a missing cell.

    Returns:
        tuple: a text that describes all criteria ("" for a missing cell), and one `Criterion` per
            entry of a list (none for a text).

    Raises:
        ValueError: an entry has no name or no text, an invalid weight or level, or a key that is
            none of `CRITERION_CELLS`, whose value would not be used.
    """
    if is_missing(value) or isinstance(value, str):
        return value or "", ()
    named = []
    for cells in value:
        if not isinstance(cells, Mapping):
            raise ValueError(f"{brief(cells)} is not an object with a name and criteria")
        try:
            named.append(_criterion(cells))
        except ValueError as error:
            raise ValueError(f"criterion {cells.get('name')!r}: {error}") from error
    return "\n".join(map(str, named)), tuple(named)


def _criterion(cells: Row) -> Criterion:
    """Build a criterion from its entry in a row's `criteria`; `criteria_of` lists the errors."""
    name = text_of(cells, "name")
    text = text_of(cells, "criteria")
    if name is None or text is None:
        raise ValueError(f"{brief(cells)} has no name, or no text as its criteria")
    unused = [key for key in cells if key not in CRITERION_CELLS and cells[key] is not None]
    if unused:
        raise ValueError(
            f"its {', '.join(map(str, unused))} would not be used: write"
            f" {', '.join(CRITERION_CELLS)}"
        )
    weight = 1.0 if is_missing(cells.get("weight")) else as_score(cells["weight"])
    levels = row_levels(cells)
    # an entry with anchors, or without levels, may still name its lowest score: it must agree
    if not is_missing(cells.get("lowest")) and [lowest_of(cells)] != list(levels)[:1]:
        raise ValueError(f"lowest={cells['lowest']} is not its first level")
    return Criterion(name, text, weight, levels)


def mean_on_scale(
    terms: Sequence[tuple[float, float, tuple[float, float]]], bounds: tuple[float, float]
) -> float:
    """Combine scores on different scales into their weighted mean.

    Each score counts as its share of its scale. A 1 of 0 to 1 and a 2 of 1 to 5 are the shares 1
    and .25; with weights 2 and 1 their mean is .75, which on a scale from 1 to 5 is the score 4.

    >>> mean_on_scale([(1, 2, (0, 1)), (2, 1, (1, 5))], (1, 5))
    4.0

    Args:
        terms: per score (the score, its weight, (lowest, highest) of its scale).
        bounds: (lowest, highest) of the scale of the mean.
    """
    lowest, highest = bounds
    points = 0.0
    for score, weight, (low, high) in terms:
        # multiplied first: on one scale the mean of whole scores is then exact
        points += weight * (score - low) * (highest - lowest) / (high - low)
    return lowest + points / sum(weight for _, weight, _ in terms)


# --- what a response is graded by


@dataclass(frozen=True)
class Rubric:
    """What is graded, and what earns each score.

    >>> Rubric("Is it right?", {0: "Nothing is.", 50: "Half is.", 100: "All is."}).highest
    100

    Args:
        criteria: what is graded; for several criteria the text that describes them all.
        descriptions: one text for each score from `lowest` up; or a mapping of anchors, score ->
            text, whose scale also has the whole numbers between them. It may be empty where all
            named criteria have levels of their own.
        lowest: the score of the first description. It is ignored for anchors, and becomes the
            smallest of them.
        named: several criteria, each of which gets a score; () for a single criterion.

    Raises:
        ValueError: `rubric_faults` lists a fault.
    """

    criteria: str
    descriptions: Sequence | Mapping = field(hash=False)  # a mapping can't be hashed
    lowest: int = 1
    named: tuple[Criterion, ...] = ()

    def __post_init__(self) -> None:
        # 1) refuse an invalid rubric
        faults = rubric_faults(
            self.criteria, self.descriptions, lowest=self.lowest, named=self.named
        )
        if faults:
            raise ValueError("; ".join(f"{name}: {fault}" for name, fault in faults))
        # 2) equal rubrics get equal fields, which are part of a recorded verdict's key:
        #    descriptions as a tuple if each score of the scale has one, else by score
        levels: Any = _levels(self.descriptions, self.lowest)
        lowest = min(levels, default=None)  # None: the levels are those of the named criteria
        if levels and len(levels) == 1 + max(levels) - lowest:
            levels = tuple(levels.values())
        object.__setattr__(self, "descriptions", levels)
        object.__setattr__(self, "named", tuple(self.named))
        # without levels of the rubric, `bounds` follows from the `named` that were just set
        object.__setattr__(self, "lowest", self.bounds[0] if lowest is None else lowest)

    @property
    def levels(self) -> list[tuple[int, str]]:
        """The pairs (score, its description), lowest score first; only described scores."""
        return list(_levels(self.descriptions, self.lowest).items())

    @property
    def bounds(self) -> tuple[int, int]:
        """The lowest and the highest score of its scale.

        A rubric without levels has the scale that its named criteria share, or 0 to 1 where they
        have different ones.
        """
        if self.levels:
            return self.levels[0][0], self.levels[-1][0]
        criteria_bounds = {rubric.bounds for rubric in self.by_name.values()}
        return criteria_bounds.pop() if len(criteria_bounds) == 1 else (0, 1)

    @property
    def highest(self) -> int:
        """The highest score of its scale."""
        return self.bounds[1]

    @property
    def scores(self) -> tuple[int, ...]:
        """The whole numbers of the scale, lowest first: (1, 2, 3, 4, 5) for five descriptions."""
        return tuple(range(self.lowest, self.highest + 1))

    @property
    def by_name(self) -> dict[str, Rubric]:
        """Criterion name -> the rubric of this criterion alone.

        A criterion without levels of its own gets those of this rubric.
        """
        rubrics = {}
        for criterion in self.named:
            levels = criterion.descriptions or dict(self.levels)
            rubrics[criterion.name] = Rubric(criterion.description, levels)
        return rubrics

    @property
    def scales(self) -> dict[str, tuple[int, ...]]:
        """Criterion name -> the whole numbers of its scale, lowest first."""
        return {name: rubric.scores for name, rubric in self.by_name.items()}

    @property
    def mixed(self) -> bool:
        """Whether some named criterion has levels of its own."""
        return any(criterion.descriptions for criterion in self.named)

    def combined(self, scores: Mapping[str, float]) -> float:
        """Return the weighted mean of the criteria's scores, on this rubric's scale.

        Args:
            scores: criterion name -> score; one for each of `named`.
        """
        rubrics = self.by_name
        terms = []
        for criterion in self.named:
            bounds = rubrics[criterion.name].bounds
            terms.append((scores[criterion.name], criterion.weight, bounds))
        return mean_on_scale(terms, self.bounds)

    def as_row(self) -> Cells:
        """Return the cells of a row from which `Item.from_row` builds this rubric."""
        criteria: Any = self.criteria
        if self.named:
            criteria = [criterion.as_cells() for criterion in self.named]
        descriptions = self.descriptions or None
        return {"criteria": criteria, "descriptions": descriptions, "lowest": self.lowest}


def rubric_faults(
    criteria: Any, descriptions: Any, *, lowest: int = 1, named: Sequence[Criterion] = ()
) -> list[tuple[str, str]]:
    """List the faults for which `Rubric` refuses these arguments.

    Returns:
        One pair (argument, what is wrong with it) per fault; empty for a valid rubric.
    """
    faults = []
    if not isinstance(criteria, str) or not criteria.strip():
        faults.append(("criteria", "is missing or blank"))
    if len({criterion.name.casefold() for criterion in named}) < len(named):
        faults.append(("criteria", "a name stands twice"))
    if named and not descriptions:
        if not all(criterion.descriptions for criterion in named):
            faults.append(("descriptions", "named criteria need a scale: describe its ends"))
        return faults  # `Criterion` has checked the levels of each criterion
    try:
        _check_levels(descriptions, lowest)
    except ValueError as error:
        faults.append(("descriptions", str(error)))
    return faults


# --- what is judged


@dataclass(frozen=True)
class Item:
    """One response to grade: what was asked about which images, the answer, and the rubric."""

    id: str  # unique within its collection
    images: tuple  # sources for `vjudge.images.open_image`, in the model's order; may be empty
    instruction: str
    response: str
    rubric: Rubric | None = None  # None for a judge whose prompt template shows none
    reference_answer: str | None = None  # an answer that earns the highest score
    gold: float = NAN  # the true or reference score
    feedback: str | None = None  # the text that explains `gold`
    human_scores: tuple[float, ...] = ()  # one per rater, NaN for a rater who gave none
    group: str = ""  # the unit of resampling, usually the image; the id where the data names none
    context: str | None = None  # a description of the image, for a judge that reads text alone
    response_images: tuple = ()  # images that are the response, or are part of it

    @classmethod
    def from_row(cls, row: Row) -> Item:
        """Build an item from a canonical row, as `vjudge.data.rows_of` gives it.

        >>> Item.from_row({"id": 7, "instruction": "What?", "response": "A cat.", "gold": "4"}).gold
        4.0

        Raises:
            KeyError: a required cell is missing.
            ValueError: a cell is invalid.
        """
        return cls(
            **_shared(row),
            **_response(row, "response"),
            gold=as_score(row.get("gold")),
            feedback=text_of(row, "feedback"),
            human_scores=tuple(map(as_score, _tuple_of(row.get("human_scores")))),
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
    def from_row(cls, row: Row) -> Pair:
        """Build a pair from a row with `response_a`, `response_b` and `preference`.

        Raises:
            KeyError: a required cell is missing.
            ValueError: a cell is invalid.
        """
        criteria, _ = criteria_of(row.get("criteria"))
        return cls(
            **_shared(row),
            **_response(row, "response_a"),
            **_response(row, "response_b"),
            criteria=criteria,
            preference=text_of(row, "preference"),
        )


Subject: TypeAlias = Item | Pair
"""What a judge judges."""


def unit_of(row: Row) -> str:
    """Return the unit of resampling of a canonical row: its group, else its id."""
    return str(row["id"] if is_missing(row.get("group")) else row["group"])


def _shared(row: Row) -> Cells:
    """Return the fields that items and pairs have in common."""
    return {
        "id": str(row["id"]),
        "images": _tuple_of(row.get("images")),
        "instruction": row["instruction"],
        "rubric": _rubric_of(row),
        "reference_answer": text_of(row, "reference_answer"),
        "group": unit_of(row),
        "context": text_of(row, "context"),
    }


def _response(row: Row, name: str) -> Cells:
    """Return the fields of a response: its text and its images.

    The text may be missing where there are images, and is then "".

    Raises:
        KeyError: there are neither images nor a cell for the text.
    """
    images = _tuple_of(row.get(RESPONSE_IMAGES[name]))
    text = (text_of(row, name) or "") if images else row[name]
    return {name: text, RESPONSE_IMAGES[name]: images}


def _rubric_of(row: Row) -> Rubric | None:
    """Build a row's rubric; None where the row describes no level and names no criteria."""
    # `rows_of` moves a list of criteria to `named_criteria`, and leaves their text in `criteria`
    criteria, named = criteria_of(row.get("named_criteria") or row.get("criteria"))
    levels = row_levels(row)
    return Rubric(criteria, levels, named=named) if levels or named else None


# --- what a judge says


@dataclass(frozen=True)
class Verdict:
    """What was read from a judge's answer: exactly one of a score, a choice and a failure."""

    score: float  # on the scale; NaN for a choice or a failure
    feedback: str  # the text before the verdict; the text after it where the verdict comes first
    raw: str  # the judge's whole answer, unchanged
    failure: str | None = None  # begins with one of `vjudge.prompts.parse.REASONS`
    choice: str | None = None  # "a", "b", "tie" or "abstain"; the last two are no failures
    # a tuple: all scores of an answer that gives several, such as one for each of two responses;
    # a mapping: criterion name -> score
    scores: tuple[float, ...] | Mapping[str, float] | None = None
