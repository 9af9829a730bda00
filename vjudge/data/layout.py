"""Which columns of a user's table are which canonical columns: by name, or as the caller says.

A layout is decided once per table; it then arranges each row before the cells are read.
"""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vjudge.data.cells import number
from vjudge.data.notes import warn
from vjudge.data.schema import CANONICAL, CollectionError, RowFaults, spelled
from vjudge.records import IMAGE_COLUMNS, RESPONSE_IMAGES, is_missing, text_of

# "rater1", "ann_2", "annotator_a", "human_score_3"
_PEOPLE = "rater|ann|annotator|human|person|expert|grader|coder|evaluator|reviewer"
_RATER = re.compile(rf"({_PEOPLE})(_scores?|_ratings?)?(_?\d+|_[a-z])(_score|_rating)?")
_LEVEL = re.compile(r"score[ _]?(-?\d+)")  # "score_1", "score_-3"
_NAMELESS = re.compile(r"Unnamed: \d+")  # as pandas calls a column without a name
# For each canonical column, words in the names that other tables give it, the likeliest first.
_ALIASES = {
    "instruction": "question query prompt instruct task request input",
    "response": "prediction response answer output completion generat caption reply text",
    "gold": "gold score rating label grade mos",
    "preference": "winner prefer choice chosen better vote label",
}

# Rows with one of these columns need no columns of raters: they have scores, or take none.
_NOT_RATED = {"human_scores", "response_a", "response_b", "responses"}


@dataclass(frozen=True)
class Layout:
    """How the rows of one table are arranged.

    Args:
        names: each column of the table -> its canonical name. None for a column that is left out,
            or that is read as one of `people` or `levels`.
        people: the columns that hold one rater's scores each, in the raters' order.
        levels: the columns that hold one level description each -> the score that it describes,
            lowest first.
    """

    names: dict
    people: Sequence
    levels: dict

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns after `arrange`, which is tried on a row of empty cells."""
        return tuple(map(str, self.arrange(dict.fromkeys(self.names))))

    def arrange(self, row: object) -> Any:
        """Return a row under the canonical names; an object that is no row is returned as it is."""
        if not isinstance(row, Mapping):
            return row
        cells = {self.names.get(name, name): cell for name, cell in row.items()}
        cells.pop(None, None)
        # A response that is an image needs no column for its text.
        for text, images in RESPONSE_IMAGES.items():
            if images in cells:
                cells.setdefault(text, None)
        if self.people:
            cells["human_scores"] = [row.get(name) for name in self.people]
        if self.levels:
            # The last scores of a rubric with fewer levels are empty, and left out.
            texts: Any = list(map(row.get, self.levels))
            scores = list(self.levels.values())
            while texts and is_missing(texts[-1]):
                texts.pop()
            # Scores 1, 2, 3, ... make a list; others, such as 0, 50, 100, a dict score -> text.
            if scores != list(range(1, len(scores) + 1)):
                texts = dict(zip(scores, texts, strict=False))
            cells["descriptions"] = texts or None
        return cells

    @property
    def id_remedy(self) -> str:
        """What to do where two rows have the same id."""
        if "annotation_id" in self.names:
            return "of Label Studio export JSON, whose rows hold the annotations of all people"
        return "give every row an id of its own"

    def missing_texts(self, row: Mapping, pair: bool | None = None) -> RowFaults:
        """List the texts that every judge needs and a row lacks.

        A response's images stand for its text.

        Args:
            row: in canonical form.
            pair: whether the row must have two responses (True) or one (False); None decides by
                the row's columns.

        Returns:
            A fault per missing text. Each remedy shows one call that names all missing columns.
        """
        if pair is None:
            pair = "response_a" in row or "response_b" in row
        needed = ["instruction"]
        if pair:
            needed += ["response_a", "response_b"]
        elif not row.get("responses"):  # candidates have their list
            needed.append("response")
        missing = []
        for name in needed:
            if text_of(row, name) is None and not row.get(RESPONSE_IMAGES.get(name)):
                missing.append(name)
        return [(name, "is missing or blank", self.remedy(name, missing)) for name in missing]

    def remedy(self, name: str, missing: Sequence[str] = ()) -> str:
        """Say what the user can do to fill a canonical column.

        Args:
            name: the canonical column.
            missing: all canonical columns that a row lacks, so that the suggested call names them
                all; () for `name` alone.
        """
        if name in self.columns:
            return f"fill it in (column `{name}`), or leave it out"
        suggested: dict = {}  # the argument columns=, theirs -> ours
        for missing_name in missing or [name]:
            suggested |= self.likely_columns(missing_name, suggested)
        # By prefix: for "response" the suggestion may be two columns, response_a and response_b.
        likely = [f"`{column}`" for column, ours in suggested.items() if ours.startswith(name)]
        if likely:
            return f"did you mean {' and '.join(likely)}? load_collection(..., columns={suggested})"
        listed = ", ".join(map(str, self.names))
        suggested["YOURS"] = name
        return f"name it: load_collection(..., columns={suggested}); the columns are {listed}"

    def likely_columns(self, name: str, taken: Mapping) -> dict:
        """Guess which column of the table holds the cells of a canonical column.

        Args:
            name: the canonical column.
            taken: columns of the table that were guessed for other canonical columns.

        Returns:
            The likeliest column -> `name`; for "response" two columns -> response_a and
            response_b where their names end in a and b, or 1 and 2. Empty where no name fits.
        """
        free = []  # columns that may hold it: no canonical ones, none with ids, none taken
        for column in self.names:
            if column not in CANONICAL.union(taken) and not spelled(column).endswith("id"):
                free.append(column)
        for alias in _ALIASES.get(name, name).split():
            likely = [column for column in free if alias in spelled(column)]
            if name == "response" and len(likely) > 1:
                # Names such as "answer_a" and "answer_b", or "model 1" and "model 2"
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
    """Decide the layout of a table.

    Columns of raters are taken only where `people` names them; `raters_of` finds the others.

    Args:
        names: of the table's columns.
        column: a function that returns the cells of a column by its name.
        columns: what the caller says: a column of the table -> its canonical name.
        people: what the caller says: the columns that hold one rater's scores each, or the one
            that holds everybody's.

    Raises:
        CollectionError: the table lacks a named column, or two columns would get one name.
    """
    # 1) what the caller names
    _check_named(columns or {}, people or (), names)
    layout = {name: name for name in names} | dict(columns or {})
    if people:
        layout |= dict.fromkeys(people, "human_scores")

    # 2) canonical names in another spelling ("Response A"); empty columns at a sheet's right edge
    nameless = []
    for name in names:
        if spelled(name) in CANONICAL.difference(layout.values()) and layout[name] == name:
            layout[name] = spelled(name)
        # `column` is called for few names: it reads all rows.
        if _NAMELESS.fullmatch(str(name)) and all(map(is_missing, column(name))):
            nameless.append(name)
    if nameless:
        warn(f"{len(nameless)} columns without a name and without a cell are left out")
        layout |= dict.fromkeys(nameless)  # None: left out

    # 3) several columns of raters become one, `human_scores`, and a single one was renamed to it in
    #    step 1; no name may be given twice
    raters = people if people and len(people) > 1 else ()
    layout |= dict.fromkeys(raters)
    _check_unique([*layout.values(), "human_scores" if raters else None])

    # 4) columns of level descriptions become one, `descriptions`
    levels = {}
    if "descriptions" not in layout.values():
        levels = _level_columns(names, column)
    settled = Layout(layout | dict.fromkeys(levels), raters, levels)
    if {"response_a", "response_b"} <= set(settled.columns):
        _note_preference(settled)
    return settled


def _check_unique(names: Sequence[str | None]) -> None:
    """Refuse a layout in which two columns have the same canonical name.

    Args:
        names: the canonical name of each column; None, which may be repeated, for no column.
    """
    for name, count in Counter(names).items():
        if name and count > 1:
            raise CollectionError(f"several columns would be {name!r}: keep one of them")


def _note_preference(layout: Layout) -> None:
    """Warn where pairs have no preference although some column looks like one, and name it."""
    if "preference" not in layout.columns and layout.likely_columns("preference", {}):
        warn(f"these pairs have no column `preference`: {layout.remedy('preference')}")


def _level_columns(names: Sequence, column: Callable) -> dict:
    """Find the columns score_1 ... score_5 that hold level descriptions.

    Args:
        names, column: as for `layout_of`.

    Returns:
        Column -> the score that it describes, lowest first; empty for fewer than two columns.
    """
    levels = []
    for name in names:
        # A column score_1 with numbers holds scores, such as those of rater 1.
        match = _LEVEL.fullmatch(str(name).lower())
        if match and numbers_of(column(name)) is None:
            levels.append((int(match[1]), name))
    if len(levels) < 2:
        return {}
    return {name: score for score, name in sorted(levels)}


def raters_of(layout: Layout) -> list:
    """List the columns that are named like raters ("rater1"), by number, then by name.

    The list is empty where the table has people's scores already, or holds pairs or candidates.
    """
    if _NOT_RATED.intersection(layout.columns):
        return []
    names = [name for name, ours in layout.names.items() if name == ours]  # not yet renamed
    raters = [name for name in names if _RATER.fullmatch(spelled(name))]
    # By all digits of the name; the "0" makes a name without digits ("annotator_a") a 0.
    return sorted(raters, key=lambda name: (int("0" + re.sub(r"\D", "", str(name))), str(name)))


def are_alike(raters: Sequence) -> bool:
    """Tell whether the names of raters' columns differ only in a number or a letter."""
    return len({re.sub(r"\d+|_[a-z]$", "", spelled(name)) for name in raters}) == 1


def numbers_of(cells: Iterable, decimal: str | None = None) -> list[float] | None:
    """Read a column of numbers, NaN where one is missing; None where some cell is no number."""
    try:
        return [number(cell, decimal) for cell in cells]
    except ValueError:
        return None


def _check_named(columns: Mapping, people: Sequence, names: Sequence) -> None:
    """Refuse columns that the table lacks, and canonical names that seem misspelt.

    Args:
        columns, people: what the caller says, see `layout_of`.
        names: of the table's columns.
    """
    if isinstance(people, str) or not isinstance(columns, Mapping):
        raise CollectionError("columns is a mapping, {yours: ours}, and people a list of columns")
    for name in (*columns, *people):
        if name not in names:
            listed = ", ".join(map(str, names))
            hint = f"{_close(name, names)}in columns= yours come first; yours are {listed}"
            raise CollectionError(f"there is no column {name!r}: {hint}")
    for ours in columns.values():
        # Below a similarity of .85 it counts as a further column of the user's.
        if ours not in CANONICAL.union(IMAGE_COLUMNS) and _close(ours, CANONICAL, 0.85):
            raise CollectionError(f"{ours!r} is no column of ours: {_close(ours, CANONICAL)}")


def _close(name: object, names: Iterable, cutoff: float = 0.4) -> str:
    """Write the question "did you mean NAME? " with the closest of some names.

    Args:
        name: as the user wrote it.
        names: to choose from.
        cutoff: the similarity in [0, 1] that the closest must reach; below it the text is empty.
    """
    close = difflib.get_close_matches(str(name), map(str, names), 1, cutoff)
    return f"did you mean {close[0]!r}? " if close else ""
