"""Several verdicts as one: those of a panel's judges, and one judge's samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from vjudge.data.schema import Items
from vjudge.engines.engine import Engine
from vjudge.judging.comparing import SIGNED_POINTS, majority, sign
from vjudge.judging.judge import Judge, JudgeLike
from vjudge.judging.paths import file_names
from vjudge.judging.ranking import rank
from vjudge.prompts import Template
from vjudge.records import Item, Pair

__all__ = ["Panel", "combine_samples", "panel"]
__dir__ = __all__.copy

WAYS = ("mean", "median", "majority")
OF_MEMBERS = tuple(  # columns that a panel's table repeats of each member, such as score_NAME
    "score scores expected_score verdict consistent probability_a failure feedback closed".split()
)
NOBODY = "no member gave a verdict"


def check_way(combine: str) -> None:
    """Refuse an unknown way to combine verdicts by ValueError."""
    if combine not in WAYS:
        raise ValueError(f"combine={combine!r}: use one of {', '.join(WAYS)}")


def combined_score(scores: pd.Series, how: str) -> float:
    """Combine scores, leaving out missing ones.

    Args:
        scores: of the members or samples.
        how: "mean", "median" or "majority", the most frequent score; if several are equally
            frequent, their mean.

    >>> combined_score(pd.Series([1.0, 4.0, 4.0]), "majority")
    4.0
    """
    if how == "majority":
        scores = scores.mode()
        how = "mean"
    return float(scores.agg(how))


def combine_samples(run: pd.DataFrame, *, combine: str = "mean") -> pd.DataFrame:
    """Combine the samples of a run of graded items into one row per item.

    Pairs need no such call, since `Judge.compare` counts votes.

    Args:
        run: from `Judge.grade(samples=k)`, of one judge or several.
        combine: "mean", "median" or "majority" of the scores that are not missing; the equally
            frequent scores of a majority are averaged.

    Returns:
        One row per item and judge, in the run's order, with the columns id, judge, score, n (how
        many samples have a score), missing (how many have none), failure (why no sample has one),
        closed (whether some sample was), and the run's columns from `lowest` on.

    Raises:
        ValueError: an unknown `combine`.

    >>> run = pd.DataFrame({"id": ["a"] * 3, "judge": "mine", "score": [4.0, 4.0, 1.0]})
    >>> run = run.assign(failure=None, closed=False, lowest=1.0, highest=5.0)
    >>> combine_samples(run, combine="majority")[["id", "score", "n"]].values.tolist()
    [['a', 4.0, 3]]
    """
    check_way(combine)
    items = run.groupby(["judge", "id"], sort=False)
    first = run.drop_duplicates(["judge", "id"]).set_index(["judge", "id"], drop=False)
    frame = first[["id", "judge"]].copy()
    frame["score"] = items["score"].agg(combined_score, how=combine)
    frame["n"] = items["score"].count()
    frame["missing"] = items.size() - frame["n"]
    reasons = items["failure"].agg(lambda texts: "; ".join(texts.dropna().unique()) or None)
    frame["failure"] = reasons.astype(object).where(frame["n"] == 0, None)
    frame["closed"] = items["closed"].any()
    # from `lowest` on, a run's columns are of the item, and equal in all of its samples
    return frame.join(first.loc[:, "lowest":]).reset_index(drop=True)


@dataclass(frozen=True)
class Panel:
    """Several judges under one name, which grade and compare as one judge does.

    Args:
        judges: two or more, each with a name of its own.
        combine: "mean", "median" or "majority" of the verdicts of those members that gave one.
            Equally frequent scores of a majority are averaged. For pairs, mean and median are taken
            of 1 for the first response, -1 for the second and 0 for a tie, and their sign decides.
        name: what the column `judge` of its tables says.

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
        file_names([judge.name for judge in self.judges])  # a ValueError where two share a name
        check_way(self.combine)

    @property
    def sees_images(self) -> bool:
        """Whether at least one member is shown the images of items."""
        return any(judge.sees_images for judge in self.judges)

    @property
    def members(self) -> list[Judge]:
        """All members that are a `Judge`, including those of a panel in the panel."""
        members: list[Judge] = []
        for judge in self.judges:
            if isinstance(judge, Panel):
                members += judge.members
            elif isinstance(judge, Judge):
                members.append(judge)
        return members

    def grade(self, items: Items, **options: Any) -> pd.DataFrame:
        """Grade every response by every member.

        The arguments are those of `Judge.grade`; in the folder `out`, each member's run has a
        folder of the member's name.

        Returns:
            One row per item and sample, with the columns:
            - id, judge, sample (where there are several), score (the members' scores combined);
            - n and missing (how many members gave a score, and how many did not), failure (None or
              that no member gave one), closed (whether some member's verdict was);
            - for each member, with its name: score_NAME, scores_NAME (by criterion, where there are
              several), expected_score_NAME, failure_NAME, feedback_NAME and closed_NAME;
            - lowest and highest, sees_image (whether every member was shown the image), and the
              columns of the collection.
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

    def compare(self, pairs: Items, **options: Any) -> pd.DataFrame:
        """Compare the two responses of every pair by every member.

        The arguments are those of `Judge.compare`; in the folder `out`, each member's run has a
        folder of the member's name.

        Returns:
            One row per pair, with the columns:
            - id, judge, verdict (the members' verdicts combined), verdict_ab and verdict_ba (those
              of one order combined, where every member has them);
            - votes_a, votes_b and votes_tie (how many members chose each); n, missing, failure and
              closed as of `grade`;
            - for each member, with its name: verdict_NAME, consistent_NAME, probability_a_NAME,
              failure_NAME and closed_NAME;
            - lowest and highest, sees_image, and the columns of the collection.

        Raises:
            PairsNotSupportedError: a member has no template for pairs. Other errors are those of
                `Judge.compare`.
        """
        for judge in self.members:
            if not judge.gives_values:
                judge.wording_of_pairs()  # an error before the first member starts
        return self.combined(self._runs("compare", pairs, options))

    def _runs(self, call: str, rows: Items, options: dict[str, Any]) -> dict[str, pd.DataFrame]:
        """Call a method, "grade" or "compare", of each member; return the runs by its name."""
        runs = {}
        for judge, folder in self.folders(options.get("out")):
            runs[judge.name] = getattr(judge, call)(rows, **options | {"out": folder})
        return runs

    def folders(self, out: str | Path | None) -> list[tuple[JudgeLike, Path | None]]:
        """List each member and its folder in `out`; None is the folder where no record is kept."""
        files = file_names(judge.name for judge in self.judges)
        folders = [None if out is None else Path(out) / file for file in files.values()]
        return list(zip(self.judges, folders, strict=True))

    def combined(self, runs: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
        """Combine the members' runs of the same rows into the panel's table.

        Args:
            runs: member's name -> its run; all of graded items, or all of compared pairs.
        """
        frame = runs[self.judges[0].name].filter(["id", "sample"])
        frame.insert(1, "judge", self.name)
        shared = set.intersection(*map(set, runs.values()))  # columns that all runs have
        if "verdict" not in shared:
            verdicts = of_members(runs, "score")
            frame["score"] = verdicts.apply(combined_score, axis=1, how=self.combine)
            return self._joined(frame, verdicts, runs)
        verdicts = of_members(runs, "verdict")
        for name in ("verdict", "verdict_ab", "verdict_ba"):
            if name in shared:
                choices = of_members(runs, name).apply(self._choice, axis=1)
                frame[name] = choices.astype(object)
        for choice in SIGNED_POINTS:
            frame[f"votes_{choice}"] = (verdicts == choice).sum(axis=1)
        return self._joined(frame, verdicts, runs)

    def _choice(self, choices: pd.Series) -> str | None:
        """Combine the members' choices on a pair; None where no member chose."""
        points = choices.map(SIGNED_POINTS).dropna()  # a, b and tie as 1, -1 and 0
        if self.combine == "majority" or points.empty:
            return majority(choices.tolist())
        return sign(points.agg(self.combine))

    def _joined(
        self, frame: pd.DataFrame, verdicts: pd.DataFrame, runs: Mapping[str, pd.DataFrame]
    ) -> pd.DataFrame:
        """Complete the panel's table by how many members lack a verdict, and by the runs' columns.

        Args:
            frame: the table, with the combined verdicts.
            verdicts: one column per member, missing where it gave no verdict.
            runs: member's name -> its run.
        """
        # 1) how many members gave a verdict; a row fails where none did
        frame["n"] = verdicts.notna().sum(axis=1)
        frame["missing"] = len(runs) - frame["n"]
        nobody = frame["n"] == 0
        frame["failure"] = nobody.map({True: NOBODY, False: None}).astype(object)
        frame["closed"] = of_members(runs, "closed").any(axis=1)

        # 2) the columns of each member, with its name as a suffix
        for name, run in runs.items():
            frame = frame.join(run.filter(OF_MEMBERS).add_suffix(f"_{name}"))

        # 3) from `lowest` on, a run's columns repeat the row: its scale, the collection's columns
        of_rows = runs[self.judges[0].name].loc[:, "lowest":]
        taken = {name: f"item_{name}" for name in of_rows.columns.intersection(frame.columns)}
        frame = frame.join(of_rows.rename(columns=taken))
        frame["sees_image"] = of_members(runs, "sees_image").all(axis=1)
        frame.attrs = {
            "failures": {NOBODY: int(nobody.sum())},
            "members": {name: run.attrs for name, run in runs.items()},
        }
        return frame

    def rank(self, candidates: Items, *, by: str = "pairs", **options: Any) -> pd.DataFrame:
        """Rank the responses to each instruction by the panel's verdicts, see `Judge.rank`."""
        judged = partial(self.compare if by == "pairs" else self.grade, **options)
        return rank(candidates, by, judged, noise=noise_of(self))

    def render(self, item: Item | Pair | Mapping[str, Any], **options: Any) -> str:
        """Write what each member reads for one item, pair or row, under a heading with its name."""
        texts = [f"## {judge.name}\n{judge.render(item, **options)}" for judge in self.judges]
        return "\n\n".join(texts)

    def plan(self, items: Items, *, by: str = "pairs", **options: Any) -> pd.DataFrame:
        """Add up what a call takes of the members, see `vjudge.plan`."""
        plans = [judge.plan(items, by=by, **options) for judge in self.judges]
        total = plans[0].copy()
        total["planned"] = sum(plan["planned"] for plan in plans)
        total["note"] = total["note"].where(total["note"] == "", f"of {len(plans)} members")
        return total

    def reworded(self, template: Template | str) -> Panel:
        """Return the same panel, each member with another prompt template."""
        return self._changed("reworded", template)

    def with_examples(self, rows: Items) -> Panel:
        """Return the same panel, each member shown graded items in every prompt."""
        return self._changed("with_examples", rows)

    def _changed(self, method: str, argument: Any) -> Panel:
        """Replace each member by what its method returns.

        Raises:
            AttributeError: a member that is neither a `Judge` nor a panel lacks the method.
        """
        return replace(self, judges=[getattr(judge, method)(argument) for judge in self.judges])


def of_members(runs: Mapping[str, pd.DataFrame], name: str) -> pd.DataFrame:
    """Put a column of every member's run into a frame with one column per member."""
    return pd.DataFrame({judge: run[name] for judge, run in runs.items()})


def noise_of(judge: JudgeLike) -> float:
    """Return the numeric noise of a judge's scores, as a share of the scale.

    That of a panel is its noisiest member's, that of an unknown kind of judge the default.
    """
    if isinstance(judge, Panel):
        return max(map(noise_of, judge.judges))
    return judge.engine.noise if isinstance(judge, Judge) else Engine.noise


panel = Panel
