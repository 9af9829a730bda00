"""Several verdicts as one: those of a panel's judges, and one judge's samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from vjudge.engines.engine import Engine
from vjudge.judging.choices import SIGNED_POINTS, majority, sign
from vjudge.judging.judge import Judge, JudgeLike
from vjudge.judging.paths import file_names
from vjudge.judging.ranking import rank
from vjudge.prompts import Template
from vjudge.records import Item, Pair

__all__ = ["Panel", "combine_samples", "panel"]
__dir__ = __all__.copy

WAYS = ("mean", "median", "majority")
GRADED = ("score", "scores", "expected_score", "failure", "feedback", "closed")  # of each member
NOBODY = "no member gave a verdict"
COMBINED = ("verdict", "consistent", "probability_a", "failure", "closed")


def check_way(combine: str) -> None:
    """Refuse an unknown way to combine verdicts."""
    if combine not in WAYS:
        raise ValueError(f"combine={combine!r}: use one of {', '.join(WAYS)}")


def combined_score(scores: pd.Series, how: str) -> float:
    """Several scores as one, without the missing; equals of a majority are averaged."""
    if how == "majority":
        scores, how = scores.mode(), "mean"
    return float(scores.agg(how))


def combine_samples(run: pd.DataFrame, *, combine: str = "mean") -> pd.DataFrame:
    """Make one row an item of a run of several samples.

    Args:
        run: from `Judge.grade(samples=k)`; of several judges, too.
        combine: "mean", "median" or "majority" of the verdicts that there are; equally frequent
            scores of a majority are averaged.

    Returns:
        One row an item and judge, in their order: id, judge, score, n and missing (how many
        verdicts there are and are not), failure (why there is none), closed (whether some was), and
        the columns from `lowest` on. Pairs need no such call: `Judge.compare` counts votes.

    >>> run = pd.DataFrame({"id": ["a"] * 3, "judge": "mine", "score": [4.0, 4.0, 1.0]})
    >>> run = run.assign(failure=None, closed=False, lowest=1.0, highest=5.0)
    >>> combine_samples(run, combine="majority")[["id", "score", "n"]].values.tolist()
    [['a', 4.0, 3]]
    """
    check_way(combine)
    items = run.groupby(["judge", "id"], sort=False)
    frame = items[["id", "judge"]].head(1).set_index(["judge", "id"], drop=False)
    frame["score"] = items["score"].agg(combined_score, how=combine)
    frame["n"] = items["score"].count()
    frame["missing"] = items.size() - frame["n"]
    reasons = items["failure"].agg(lambda texts: "; ".join(texts.dropna().unique()) or None)
    frame["failure"] = reasons.astype(object).where(frame["n"] == 0, None)
    frame["closed"] = items["closed"].any()
    item_columns = run.iloc[:, run.columns.get_loc("lowest") :].columns
    first = run.drop_duplicates(["judge", "id"]).set_index(["judge", "id"])[item_columns]
    return frame.join(first).reset_index(drop=True)


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

    judges: Sequence[JudgeLike]
    _: KW_ONLY
    combine: str = "mean"
    name: str = "panel"

    def __post_init__(self) -> None:
        if len(self.judges) < 2:
            raise ValueError(f"a panel has two judges or more, not {self.judges}")
        file_names([judge.name for judge in self.judges])  # refuses names that look alike
        check_way(self.combine)

    @property
    def sees_images(self) -> bool:
        """Whether some member is shown the images of items."""
        return any(judge.sees_images for judge in self.judges)

    @property
    def members(self) -> list[Judge]:
        """All judges, those of a panel in the panel too."""
        members: list[Judge] = []
        for judge in self.judges:
            if isinstance(judge, Panel):
                members += judge.members
            elif isinstance(judge, Judge):
                members.append(judge)
        return members

    def grade(self, items: Any, **options: Any) -> pd.DataFrame:
        """Grade every response by every member.

        The arguments are those of `Judge.grade`; each member's run is kept in a folder of its name
        inside `out`.

        Returns:
            One row a verdict: id, judge, sample (where there are several), score (the members'
            combined), failure (where no member gave a score), n and missing (how many members
            gave one and did not), closed (whether a member's was); score_NAME, scores_NAME (by
            criterion, where there are several), expected_score_NAME, failure_NAME, feedback_NAME
            and closed_NAME of each; lowest and highest, sees_image (whether every member was shown
            the image), and what was given.
            `attrs["members"]` has each run's counts.

        Raises:
            ValueError: members whose scores have no common scale; and as `Judge.grade`.
        """
        scales = {judge.template.scale for judge in self.members}
        if len(scales) > 1 or any(judge.gives_values for judge in self.members):
            raise ValueError(
                f"the members' scores have no common scale ({self.judges}): give them wordings with"
                " one scale, or compare"
            )
        return self.combined(self._runs("grade", items, options))

    def compare(self, pairs: Any, **options: Any) -> pd.DataFrame:
        """Compare the two responses of every pair by every member.

        The arguments are those of `Judge.compare`; each member's run is kept in a folder of its
        name inside `out`.

        Returns:
            One row a pair: id, judge, verdict (the members' combined), verdict_ab and verdict_ba
            (theirs of one order, where every member has it); failure, n, missing and closed as of
            `grade`; votes_a, votes_b and votes_tie; verdict_NAME, consistent_NAME,
            probability_a_NAME, failure_NAME and closed_NAME of each; what was given.

        Raises:
            ValueError: a member has no wording for pairs; and as `Judge.compare`.
        """
        for judge in self.members:
            if not judge.gives_values:
                judge.wording_of_pairs()  # an error before the first member starts
        return self.combined(self._runs("compare", pairs, options))

    def combined(self, runs: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
        """The panel's run, made of the members' runs of the same rows, by their names."""
        names = set.intersection(*map(set, runs.values()))
        if "verdict" not in names:
            scores = of_members(runs, "score")
            score = scores.apply(combined_score, axis=1, how=self.combine)
            return self._joined(runs, {"score": score}, scores, GRADED)
        verdicts = of_members(runs, "verdict")
        columns = {}
        for name in ("verdict", "verdict_ab", "verdict_ba"):
            if name in names:
                choices = of_members(runs, name).apply(self._choice, axis=1)
                columns[name] = choices.astype(object)
        for choice in SIGNED_POINTS:
            columns[f"votes_{choice}"] = (verdicts == choice).sum(axis=1)
        return self._joined(runs, columns, verdicts, COMBINED)

    def rank(self, candidates: Any, *, by: str = "pairs", **options: Any) -> pd.DataFrame:
        """Rank the responses to each instruction by the panel's verdicts, see `Judge.rank`."""
        judged = partial(self.compare if by == "pairs" else self.grade, **options)
        return rank(candidates, by, judged, noise=noise_of(self))

    def render(self, item: Item | Pair | Mapping, **options: Any) -> str:
        """What each member reads for one item, pair or row, below its name."""
        texts = [f"## {judge.name}\n{judge.render(item, **options)}" for judge in self.judges]
        return "\n\n".join(texts)

    def plan(self, items: Any, *, by: str = "pairs", **options: Any) -> pd.DataFrame:
        """What a call would take of all members together, see `vjudge.plan`."""
        plans = [judge.plan(items, by=by, **options) for judge in self.judges]
        total = plans[0].copy()
        total["planned"] = sum(plan["planned"] for plan in plans)
        total["note"] = total["note"].where(total["note"] == "", f"of {len(plans)} members")
        return total

    def reworded(self, template: Template | str) -> Panel:
        """The same panel, each member asked in another wording."""
        return replace(self, judges=[judge.reworded(template) for judge in self.members])

    def with_examples(self, rows: Any) -> Panel:
        """The same panel, each member shown graded items in every prompt."""
        return replace(self, judges=[judge.with_examples(rows) for judge in self.members])

    def _runs(self, call: str, rows: Any, options: dict) -> dict:
        """Each member's run by its name."""
        runs = {}
        for judge, folder in self.folders(options.get("out")):
            runs[judge.name] = getattr(judge, call)(rows, **options | {"out": folder})
        return runs

    def folders(self, out: str | Path | None) -> list[tuple[Any, Path | None]]:
        """Each member with its folder in `out`, None where nothing is kept."""
        files = file_names(judge.name for judge in self.judges)
        folders = [None if out is None else Path(out) / file for file in files.values()]
        return list(zip(self.judges, folders, strict=True))

    def _choice(self, choices: pd.Series) -> str | None:
        """What the members' choices say together; None where no member chose."""
        points = choices.map(SIGNED_POINTS).dropna()
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
        first = runs[self.judges[0].name]
        frame = first.filter(["id", "sample"]).assign(**combined)
        frame.insert(1, "judge", self.name)
        frame["n"] = verdicts.notna().sum(axis=1)
        frame["missing"] = len(runs) - frame["n"]
        nobody = frame["n"] == 0
        frame["failure"] = nobody.map({True: NOBODY, False: None}).astype(object)
        frame["closed"] = of_members(runs, "closed").any(axis=1)
        for name, run in runs.items():
            frame = frame.join(run.filter(columns).add_suffix(f"_{name}"))
        # a table's columns from `lowest` on are of the row: its scale, and what was given
        of_items = first.iloc[:, first.columns.get_loc("lowest") :]
        taken = {name: f"item_{name}" for name in of_items.columns.intersection(frame.columns)}
        frame = frame.join(of_items.rename(columns=taken))
        frame["sees_image"] = of_members(runs, "sees_image").all(axis=1)
        frame.attrs = {
            "failures": {NOBODY: int(nobody.sum())},
            "members": {name: run.attrs for name, run in runs.items()},
        }
        return frame


def of_members(runs: Mapping[str, pd.DataFrame], name: str) -> pd.DataFrame:
    """A column of every member's run, by the member's name."""
    return pd.DataFrame({judge: run[name] for judge, run in runs.items()})


def noise_of(judge: JudgeLike) -> float:
    """The share of the scale below which differences of a judge's scores say nothing."""
    if isinstance(judge, Panel):
        return max(map(noise_of, judge.judges))
    return judge.engine.noise if isinstance(judge, Judge) else Engine.noise


panel = Panel
