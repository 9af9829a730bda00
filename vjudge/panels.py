"""Several judges as one: each grades or compares by itself, and what they say is combined."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from vjudge.asking import CARRIED
from vjudge.comparing import POINTS, majority, sign

__all__ = ["Panel", "panel"]
__dir__ = __all__.copy

WAYS = ("mean", "median", "majority")
GRADED = ("score", "expected_score", "failure", "feedback", "closed")  # of each member
NOBODY = "no member gave a verdict"
COMPARED = ("verdict", "consistent", "probability_a", "failure", "closed")


def folder_of(name: str) -> str:
    """A judge's name as that of a folder."""
    return re.sub(r"[^\w.-]+", "-", name).strip("-.")


@dataclass(frozen=True)
class Panel:
    """Several judges under one name, which grade and compare as one judge does.

    Args:
        judges: two or more, each with a name of its own.
        combine: "mean", "median" or "majority" of the members that gave a verdict. Equally frequent
            scores of a majority are averaged. Of pairs, mean and median are taken of 1 for the
            first response, -1 for the second and 0 for a tie, and their sign decides.
        name: what the table's `judge` column says.

    Raises:
        ValueError: fewer than two judges, duplicate names, an unknown way to combine.

    >>> import vjudge as vj
    >>> judges = [vj.load_judge(name, device="cpu") for name in ("tiny", "tiny-base")]
    >>> vj.panel(judges, combine="median").combine
    'median'
    """

    judges: Sequence
    _: KW_ONLY
    combine: str = "mean"
    name: str = "panel"

    def __post_init__(self) -> None:
        folders = {folder_of(judge.name) for judge in self.judges}
        if len(folders) < max(2, len(self.judges)):
            raise ValueError(
                f"a panel has two judges or more with names of their own, not {self.judges}:"
                " set judge.name"
            )
        if self.combine not in WAYS:
            raise ValueError(f"combine={self.combine!r}: use one of {', '.join(WAYS)}")

    def grade(self, items: Any, **options: Any) -> pd.DataFrame:
        """Grade every response by every member.

        The arguments are those of `Judge.grade`; each member's run is kept in a folder of its name
        inside `out`.

        Returns:
            One row a verdict: id, judge, sample (where there are several), score (the members'
            combined), failure (where no member gave a score), n and missing (how many members
            gave one and did not), closed (whether a member's was); score_NAME,
            expected_score_NAME, failure_NAME, feedback_NAME and closed_NAME of each; what was
            given. `attrs["members"]` has each run's own.

        Raises:
            ValueError: members whose scores have no common scale; and as `Judge.grade`.
        """
        scales = {judge.template.scale for judge in self.judges}
        if len(scales) > 1 or any(judge.gives_values for judge in self.judges):
            raise ValueError(
                f"the members' scores have no common scale ({self.judges}): give them wordings with"
                " one scale, or compare"
            )
        runs = self._runs("grade", items, options)
        scores = pd.DataFrame({name: run["score"] for name, run in runs.items()})
        if self.combine == "majority":
            score = scores.mode(axis=1).mean(axis=1)
        else:
            score = scores.agg(self.combine, axis=1)
        return self._joined(runs, {"score": score}, scores, GRADED)

    def compare(self, pairs: Any, **options: Any) -> pd.DataFrame:
        """Compare the two responses of every pair by every member.

        The arguments are those of `Judge.compare`; each member's run is kept in a folder of its
        name inside `out`.

        Returns:
            One row a pair: id, judge, verdict (the members' combined); failure, n, missing and
            closed as of `grade`; votes_a, votes_b and votes_tie; verdict_NAME, consistent_NAME,
            probability_a_NAME, failure_NAME and closed_NAME of each; what was given.

        Raises:
            ValueError: a member has no wording for pairs; and as `Judge.compare`.
        """
        for judge in self.judges:
            if not judge.gives_values:
                judge.wording_of_pairs()  # an error before the first member starts
        runs = self._runs("compare", pairs, options)
        verdicts = pd.DataFrame({name: run["verdict"] for name, run in runs.items()})
        columns = {"verdict": verdicts.apply(self._choice, axis=1).astype(object)}
        for choice in POINTS:
            columns[f"votes_{choice}"] = (verdicts == choice).sum(axis=1)
        return self._joined(runs, columns, verdicts, COMPARED)

    def _runs(self, call: str, rows: Any, options: Mapping) -> dict:
        """Each member's run by its name."""
        runs = {}
        for judge in self.judges:
            own = dict(options)
            if options.get("out") is not None:
                own["out"] = Path(options["out"]) / folder_of(judge.name)
            runs[judge.name] = getattr(judge, call)(rows, **own)
        return runs

    def _choice(self, choices: pd.Series) -> str | None:
        """What the members' choices say together; None where no member chose."""
        points = choices.map(POINTS).dropna()
        if self.combine == "majority" or points.empty:
            return majority(choices.tolist())
        return sign(points.agg(self.combine))

    def _joined(
        self,
        runs: Mapping,
        combined: Mapping,
        verdicts: pd.DataFrame,
        columns: Sequence,
    ) -> pd.DataFrame:
        """The combined columns, who is missing, each member's own, and what was given."""
        first = runs[self.judges[0].name]
        frame = first.filter(["id", "sample"]).assign(**combined)
        frame.insert(1, "judge", self.name)
        frame["n"] = verdicts.notna().sum(axis=1)
        frame["missing"] = len(runs) - frame["n"]
        nobody = frame["n"] == 0
        frame["failure"] = nobody.map({True: NOBODY, False: None}).astype(object)
        closed = pd.DataFrame({name: run["closed"] for name, run in runs.items()})
        frame["closed"] = closed.any(axis=1)
        for name, run in runs.items():
            own = run.filter(columns)
            frame = frame.join(own.add_suffix(f"_{name}"))
        frame = frame.join(first.filter(CARRIED))
        frame.attrs = {
            "judge": self.name,
            "scale": first.attrs["scale"],
            "collection": first.attrs["collection"],
            "failures": {NOBODY: int(nobody.sum())},
            "members": {name: run.attrs for name, run in runs.items()},
        }
        return frame


panel = Panel
