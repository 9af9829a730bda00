"""Several judges as one: each grades or compares by itself, and what they say is combined."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from vjudge.asking import CARRIED, ORDERS
from vjudge.comparing import POINTS, majority, sign
from vjudge.engines.engine import say
from vjudge.judge import Judge

__all__ = ["Panel", "panel"]
__dir__ = __all__.copy

WAYS = ("mean", "median", "majority")
GRADED = ("score", "expected_score", "failure", "feedback", "closed")  # of each member
NOBODY = "no member gave a verdict"
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

    def grade(self, items: Any, **options: Any) -> pd.DataFrame:
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
        verdicts = column_of(runs, "verdict")
        columns = {"verdict": verdicts.apply(self._choice, axis=1).astype(object)}
        for order in ORDERS:
            votes = column_of(runs, f"verdict_{order}")
            if votes.shape[1] == len(runs):
                columns[f"verdict_{order}"] = votes.apply(self._choice, axis=1).astype(object)
        if "verdict_ba" in columns:
            agree = columns["verdict_ab"] == columns["verdict_ba"]
            known = columns["verdict_ab"].notna() & columns["verdict_ba"].notna()
            columns["consistent"] = agree.astype(object).where(known, None)
        for choice in POINTS:
            columns[f"votes_{choice}"] = (verdicts == choice).sum(axis=1)
        return self._joined(runs, columns, verdicts, COMPARED)

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
        return sign(points.agg(self.combine))

    def _joined(
        self,
        runs: Mapping[str, pd.DataFrame],
        combined: Mapping[str, pd.Series],
        verdicts: pd.DataFrame,
        columns: Sequence[str],
    ) -> pd.DataFrame:
        """The combined columns, who is missing, each member's own, and what was given."""
        # 1) what the members say together; those without a verdict are counted and said
        first = next(iter(runs.values()))
        frame = first.filter(["id", "sample"]).assign(**combined)
        frame.insert(1, "judge", self.name)
        frame["n"] = verdicts.notna().sum(axis=1)
        frame["missing"] = len(runs) - frame["n"]
        nobody = frame["n"] == 0
        frame["failure"] = nobody.map({True: NOBODY, False: None}).astype(object)
        fewer = int((frame["missing"] > 0).sum())
        if fewer:
            what = f"{self.name}: {fewer} of {len(frame)} rows lack a member's verdict"
            say(f"{what}, {int(nobody.sum())} of them every member's")

        # 2) each member's own columns, and what was given
        for name, run in runs.items():
            for column in columns:
                if column in run:
                    frame[f"{column}_{name}"] = run[column]
        frame = frame.join(first.filter(CARRIED))
        shared = {name: first.attrs[name] for name in SHARED if name in first.attrs}
        failures = {NOBODY: int(nobody.sum())} if nobody.any() else {}
        members = {name: run.attrs for name, run in runs.items()}
        frame.attrs = shared | {"judge": self.name, "failures": failures, "members": members}
        return frame
