"""Which columns of somebody's table are which of ours: named by the caller, or known by their name.

A layout is decided once a table, and arranges each of its rows before the cells are read.
"""

from __future__ import annotations

import difflib
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vjudge.data.cells import number
from vjudge.data.schema import CANONICAL, CollectionError, spelled
from vjudge.records import IMAGE_COLUMNS, RESPONSE_IMAGES, is_missing, text_of

# "rater1", "ann_2", "annotator_a", "human_score_3"
_PEOPLE = "rater|ann|annotator|human|person|expert|grader|coder|evaluator|reviewer"
_RATER = re.compile(rf"({_PEOPLE})(_scores?|_ratings?)?(_?\d+|_[a-z])(_score|_rating)?")
_LEVEL = re.compile(r"score[ _]?(-?\d+)")  # "score_1", "score_-3"
_NAMELESS = re.compile(r"Unnamed: \d+")  # as pandas calls a column without a name
# Words in the names by which other tables call a column of ours, the likeliest first.
_ALIASES = {
    "instruction": "question query prompt instruct task request input",
    "response": "prediction response answer output completion generat caption reply text",
    "gold": "gold score rating label grade mos",
    "preference": "winner prefer choice chosen better vote label",
}

# Columns of a table that needs no columns of raters.
_NOT_RATED = {"human_scores", "response_a", "response_b", "responses"}


@dataclass(frozen=True)
class Layout:
    """How the rows of one table are arranged.

    Args:
        names: each of the table's columns -> ours, None for one that is read otherwise or left out.
        people: columns of one rater's scores each, in the raters' order.
        levels: columns of one level's text each -> the score that it describes, lowest first.
    """

    names: dict
    people: Sequence
    levels: dict

    @property
    def columns(self) -> tuple:
        """The names of the arranged rows' columns."""
        return tuple(map(str, self.arranged(dict.fromkeys(self.names))))

    def arranged(self, row: object) -> Any:
        """A row with its columns under our names; what is no row stays as it is."""
        if not isinstance(row, Mapping):
            return row
        cells = {self.names.get(name, name): cell for name, cell in row.items()}
        cells.pop(None, None)
        for text, pictures in RESPONSE_IMAGES.items():
            if pictures in cells:
                cells.setdefault(text, None)
        if self.people:
            cells["human_scores"] = [row.get(name) for name in self.people]
        if self.levels:
            texts: Any = list(map(row.get, self.levels))
            scores = list(self.levels.values())
            while texts and is_missing(texts[-1]):
                texts.pop()
            if scores != list(range(1, len(scores) + 1)):  # not counted from `lowest` on
                texts = dict(zip(scores, texts, strict=False))
            cells["descriptions"] = texts or None
        return cells

    @property
    def id_remedy(self) -> str:
        """What to do where an id stands twice."""
        if "annotation_id" in self.names:
            return "of Label Studio export JSON, whose rows hold the annotations of all people"
        return "give every row an id of its own"

    def lacking(self, row: Mapping, pair: bool | None = None) -> list:
        """The texts without which no judge can read a row, each with the call that names them.

        Args:
            row: in canonical form.
            pair: whether it must hold two responses, or one; None takes it by its columns.

        Returns:
            For each text its column, what is wrong, and the remedy.
        """
        fields = ["instruction"]
        if pair or (pair is None and {"response_a", "response_b"} & set(row)):
            fields += ["response_a", "response_b"]
        elif not row.get("responses"):
            fields.append("response")
        absent = []
        for name in fields:
            if text_of(row, name) is None and not row.get(RESPONSE_IMAGES.get(name)):
                absent.append(name)
        return [(name, "is missing or blank", self.remedy(name, absent)) for name in absent]

    def remedy(self, name: str, absent: Sequence = ()) -> str:
        """How a column of ours gets its cells: by the call that names all that are absent."""
        if name in self.columns:
            return f"fill it in (column `{name}`), or leave it out"
        columns: dict = {}
        for absent_name in absent or [name]:
            columns.update(self.alike(absent_name, columns))
        likely = [f"`{column}`" for column, ours in columns.items() if ours.startswith(name)]
        if likely:
            return f"did you mean {' and '.join(likely)}? load_collection(..., columns={columns})"
        listed = ", ".join(map(str, self.names))
        columns["YOURS"] = name
        return f"name it: load_collection(..., columns={columns}); the columns are {listed}"

    def alike(self, name: str, taken: Mapping) -> dict:
        """The column, or the two, that most likely hold what a column of ours does."""
        free = [column for column in self.names if column not in CANONICAL.union(taken)]
        free = [column for column in free if not spelled(column).endswith("id")]
        for alias in _ALIASES.get(name, name).split():
            likely = [column for column in free if alias in spelled(column)]
            if name == "response" and len(likely) > 1:
                side_a = [column for column in likely if spelled(column)[-1] in "a1"]
                side_b = [column for column in likely if spelled(column)[-1] in "b2"]
                if side_a and side_b:
                    return {side_a[0]: "response_a", side_b[0]: "response_b"}
            if likely:
                return {likely[0]: name}
        return {}


def layout_of(
    names: Sequence,
    column: Callable,
    columns: Mapping | None = None,
    people: Sequence | None = None,
) -> Layout:
    """The layout of a table, without raters' columns that nobody named.

    Args:
        names: of its columns.
        column: a name -> its cells.
        columns: a column of theirs -> ours.
        people: columns of one rater's scores each, or one that holds everybody's.

    Raises:
        CollectionError: a column that is named is not there, or two would have one name.
    """
    # 1) what the caller names
    _check_named(columns or {}, people or (), names)
    layout = {name: name for name in names} | dict(columns or {})
    if people:
        layout |= dict.fromkeys(people, "human_scores")

    # 2) our names in another spelling ("Response A"), and what a sheet has at its right edge
    nameless = []
    for name in names:
        if spelled(name) in CANONICAL.difference(layout.values()) and layout[name] == name:
            layout[name] = spelled(name)
        if _NAMELESS.fullmatch(str(name)) and all(map(is_missing, column(name))):
            nameless.append(name)
    if nameless:
        note(f"{len(nameless)} columns without a name and without a cell are left out")
        layout |= dict.fromkeys(nameless)

    # 3) no name twice; several columns of people are put together
    several = people if people and len(people) > 1 else ()
    layout |= dict.fromkeys(several)
    for ours, count in Counter(layout.values()).items():
        if ours and count + (ours == "human_scores" and bool(several)) > 1:
            raise CollectionError(f"several columns would be {ours!r}: keep one of them")

    levels = {}
    if "descriptions" not in layout.values():
        levels = _level_columns(names, column)
    settled = Layout(layout | dict.fromkeys(levels), several, levels)
    if {"response_a", "response_b"} <= set(settled.columns):
        _note_preference(settled)
    return settled


def _note_preference(layout: Layout) -> None:
    """Say which column of pairs without a preference looks like one."""
    if "preference" not in layout.columns and layout.alike("preference", {}):
        note(f"these pairs have no column `preference`: {layout.remedy('preference')}")


def _level_columns(names: Sequence, column: Callable) -> dict:
    """Columns score_1 ... score_5 that hold texts -> their scores, lowest first."""
    levels = []
    for name in names:
        match = _LEVEL.fullmatch(str(name).lower())
        if match and numbers_of(column(name)) is None:
            levels.append((int(match[1]), name))
    return {name: score for score, name in sorted(levels)} if len(levels) > 1 else {}


def raters_of(layout: Layout) -> list:
    """The columns that are named like raters ("rater1"), in the raters' order; [] of pairs."""
    if _NOT_RATED.intersection(layout.columns):
        return []
    names = [name for name, ours in layout.names.items() if name == ours]
    raters = [name for name in names if _RATER.fullmatch(spelled(name))]
    return sorted(raters, key=lambda name: (int("0" + re.sub(r"\D", "", str(name))), str(name)))


def are_alike(raters: Sequence) -> bool:
    """Whether names of raters differ in a number or a letter alone."""
    return len({re.sub(r"\d+|_[a-z]$", "", spelled(name)) for name in raters}) == 1


def numbers_of(cells: Iterable, decimal: str | None = None) -> list | None:
    """The numbers in a column, NaN where one is missing; None where a cell is no number."""
    try:
        return [number(cell, decimal) for cell in cells]
    except ValueError:
        return None


def _check_named(columns: Mapping, people: Sequence, names: Sequence) -> None:
    """Refuse columns that a table does not have, and names that are nearly ours."""
    if isinstance(people, str) or not isinstance(columns, Mapping):
        raise CollectionError("columns is a mapping, {yours: ours}, and people a list of columns")
    for name in (*columns, *people):
        if name not in names:
            listed = ", ".join(map(str, names))
            hint = f"{_close(name, names)}in columns= yours come first; yours are {listed}"
            raise CollectionError(f"there is no column {name!r}: {hint}")
    for ours in columns.values():
        if ours not in CANONICAL.union(IMAGE_COLUMNS) and _close(ours, CANONICAL, 0.85):
            raise CollectionError(f"{ours!r} is no column of ours: {_close(ours, CANONICAL)}")


def _close(name: object, names: Iterable, cutoff: float = 0.4) -> str:
    """The name that is most like another, as a question."""
    close = difflib.get_close_matches(str(name), map(str, names), 1, cutoff)
    return f"did you mean {close[0]!r}? " if close else ""


def note(text: str) -> None:
    """Say what was read or left out by its name alone."""
    warnings.warn(text, stacklevel=6)
