"""Several judges as one: each grades or compares by itself, and what they say is combined."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from vjudge.asking import CARRIED
from vjudge.comparing import POINTS, majority
from vjudge.engines.engine import say
from vjudge.judge import Judge

__all__ = ["Panel", "panel"]
__dir__ = __all__.copy

WAYS = ("mean", "median", "majority")
GRADED = ("score", "expected_score", "failure", "feedback", "closed")  # of each member
SHARED = ("mode", "scale", "collection")  # of `attrs`
COMPARED = ("verdict", "consistent", "probability_a", "failure", "closed")


def panel(judges: Sequence[Judge], *, combine: str = "mean", name: str = "panel") -> Panel:
    """Join judges to a panel, which grades and compares as a judge does.

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
    >>> vj.panel(judges, combine="median")
    Panel('tiny', 'tiny-base', combine='median')
    """
    judges = tuple(judges)
    folders = [folder_of(judge.name) for judge in judges]
    if len(judges) < 2:
        raise ValueError(f"a panel has two judges or more, not {len(judges)}")
    if len(set(folders)) < len(folders):
        names = ", ".join(repr(judge.name) for judge in judges)
        raise ValueError(f"judges need names of their own ({names}): set judge.name")
    if combine not in WAYS:
        raise ValueError(f"combine={combine!r}: use one of {', '.join(WAYS)}")
    return Panel(judges, combine, name)


def column_of(runs: Mapping[str, pd.DataFrame], column: str) -> pd.DataFrame:
    """One column of all runs that have it, side by side."""
    return pd.DataFrame({name: run[column] for name, run in runs.items() if column in run})


def folder_of(name: str) -> str:
    """A judge's name as that of a folder."""
    return re.sub(r"[^\w.-]+", "-", name).strip("-.")


@dataclass(frozen=True)
class Panel:
    """Several judges under one name; see `panel`."""

    judges: tuple[Judge, ...]
    combine: str
    name: str = "panel"

    def __repr__(self) -> str:
        names = ", ".join(repr(judge.name) for judge in self.judges)
        return f"Panel({names}, combine={self.combine!r})"

    def grade(
        self,
        items: Any,
        **options: Any,
    ) -> pd.DataFrame:
        """Grade every response by every member.

        The arguments are those of `Judge.grade`; each member's run is kept in a folder of its name
        inside `out`.

        Returns:
            One row a verdict: id, judge, sample (where there are several), score (the members'
            combined), failure (where no member gave a score), n and missing (how many members
            gave one and did not); score_NAME, expected_score_NAME, failure_NAME, feedback_NAME and
            closed_NAME of each; what was given. `attrs["members"]` has each run's own.

        Raises:
            ValueError: members whose scores have no common scale; and as `Judge.grade`.
        """
        scales = {judge.template.scale for judge in self.judges}
        if len(scales) > 1 or any(judge.gives_values for judge in self.judges):
            listed = ", ".join(f"{judge.name!r} {judge.template.name!r}" for judge in self.judges)
            remedy = "give them wordings with one scale, or compare"
            raise ValueError(f"the members' scores have no common scale ({listed}): {remedy}")
        runs = self._runs("grade", items, options)
        scores = column_of(runs, "score")
        frame = self._start(runs)
        if self.combine == "majority":
            frame["score"] = scores.mode(axis=1).mean(axis=1)
        else:
            frame["score"] = scores.agg(self.combine, axis=1)
        return self._joined(frame, runs, scores, GRADED)

    def compare(
        self,
        pairs: Any,
        **options: Any,
    ) -> pd.DataFrame:
        """Compare the two responses of every pair by every member.

        The arguments are those of `Judge.compare`; each member's run is kept in a folder of its
        name inside `out`.

        Returns:
            One row a pair: id, judge, verdict (the members' combined) and, where all members saw
            both orders, verdict_ab, verdict_ba and consistent; failure, n and missing as of
            `grade`; votes_a, votes_b and votes_tie; verdict_NAME, consistent_NAME,
            probability_a_NAME, failure_NAME and closed_NAME of each; what was given.

        Raises:
            ValueError: a member has no wording for pairs; and as `Judge.compare`.
        """
        for judge in self.judges:
            if not judge.gives_values:
                judge.wording_of_pairs()  # an error before the first member starts
        runs = self._runs("compare", pairs, options)
        frame = self._start(runs)
        for column in ("verdict", "verdict_ab", "verdict_ba"):
            votes = column_of(runs, column)
            if votes.shape[1] == len(runs):
                frame[column] = votes.apply(self._choice, axis=1).astype(object)
        if "verdict_ba" in frame:
            agree = frame["verdict_ab"] == frame["verdict_ba"]
            known = frame[["verdict_ab", "verdict_ba"]].notna().all(axis=1)
            frame["consistent"] = agree.astype(object).where(known, None)
        verdicts = column_of(runs, "verdict")
        for choice in POINTS:
            frame[f"votes_{choice}"] = (verdicts == choice).sum(axis=1)
        return self._joined(frame, runs, verdicts, COMPARED)

    def _runs(self, call: str, rows: Any, options: Mapping[str, Any]) -> dict[str, pd.DataFrame]:
        """Each member's run by its name."""
        runs = {}
        for judge in self.judges:
            own = dict(options)
            if own.get("out") is not None:
                own["out"] = Path(own["out"]) / folder_of(judge.name)
            runs[judge.name] = getattr(judge, call)(rows, **own)
        return runs

    def _choice(self, choices: pd.Series) -> str | None:
        """What the members' choices say together; None where no member chose."""
        points = choices.map(POINTS).dropna()
        if self.combine == "majority" or points.empty:
            return majority(choices.tolist())
        lead = points.agg(self.combine)
        if lead == 0:
            return "tie"
        return "a" if lead > 0 else "b"

    def _start(self, runs: dict[str, pd.DataFrame]) -> pd.DataFrame:
        """The columns that tell one row from another."""
        first = runs[self.judges[0].name]
        frame = first[[name for name in ("id", "sample") if name in first]].copy()
        frame.insert(1, "judge", self.name)
        return frame

    def _joined(
        self,
        frame: pd.DataFrame,
        runs: dict[str, pd.DataFrame],
        verdicts: pd.DataFrame,
        columns: Sequence[str],
    ) -> pd.DataFrame:
        """The combined columns, who is missing, each member's own, and what was given."""
        # 1) members without a verdict are counted, and said where there are any
        frame["n"] = verdicts.notna().sum(axis=1)
        frame["missing"] = len(runs) - frame["n"]
        nobody = frame["n"] == 0
        frame["failure"] = pd.Series(None, index=frame.index, dtype=object)
        frame.loc[nobody, "failure"] = "no member gave a verdict"
        fewer = int((frame["missing"] > 0).sum())
        if fewer:
            what = f"{self.name}: {fewer} of {len(frame)} rows lack a member's verdict"
            say(f"{what}, {int(nobody.sum())} of them every member's")

        # 2) each member's own columns
        for name, run in runs.items():
            for column in columns:
                if column in run:
                    frame[f"{column}_{name}"] = run[column]

        # 3) what was given
        first = next(iter(runs.values()))
        for column in CARRIED:
            if column in first:
                frame[column] = first[column]
        failures = {}
        if nobody.any():
            failures["no member gave a verdict"] = int(nobody.sum())
        frame.attrs = {name: first.attrs[name] for name in SHARED if name in first.attrs}
        frame.attrs |= {"judge": self.name, "failures": failures}
        frame.attrs["members"] = {name: run.attrs for name, run in runs.items()}
        return frame
