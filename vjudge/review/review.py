"""`Review`: judged items, an annotator's votes on them, and what the votes become.

Each analysis of votes is a method and returns a `Result`; captions say where votes are simulated,
which every vote records.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import datasets
import numpy as np
import pandas as pd
from pandas import DataFrame, Series

from vjudge import analysis, plots
from vjudge.analysis.readings import bounds
from vjudge.analysis.tables import names_of
from vjudge.data.schema import PICTURE_COLUMNS
from vjudge.judging.record import replace_file
from vjudge.metrics import feedback_preference
from vjudge.metrics.shares import shares
from vjudge.plots.escaping import write_csv
from vjudge.plots.save import save_table
from vjudge.plots.style import short
from vjudge.probes.perturbations import beside
from vjudge.results import NotComputed, Result, current
from vjudge.results import analysis as as_result
from vjudge.review.session import Session, assignment
from vjudge.review.show import case_html, review_page
from vjudge.review.votes import TAGS, VoteLog

if TYPE_CHECKING:
    from vjudge.review.widget import Matrix, Reviewer

NO_VOTES = "vote in the widget, or try the rest with simulate_votes()"
FAR = 2  # points off, from which a simulated annotator tags a judge


class Review(Session):
    """Votes of annotators on judged items.

    Args:
        items: a collection with the canonical columns.
        runs: name -> table of `Judge.grade`, or one such table with a column `judge`; one verdict
            an item and judge.
        out: a folder of votes, for all annotators.
        annotator: who votes.
        blind: until an item has its vote, hide names, scores, the truth and what reads as a verdict
            in a feedback (`vjudge.review.hiding.hide_scores`); swap sides.
        seed: of the sides in blind mode, and of the plan; the same for every annotator.
        tags: the error tags offered (`offered_tags`).
        scale: lowest and highest score for items without a rubric.
        annotators: all who review, so that each lists a part of the items (`plan`); none: all.
        overlap: the share of items that all of them review.

    `path` (the annotator's file), `judges`, `criteria`, `listed` (ids), `judge_scores` (items by
    judges), `truth` (of `vj.truth`; all NaN where there is none), `levels` (names of the levels of
    `vjudge.plots.confusion`), `scale` (of all items), `filters` (name -> its values), `plan` (items
    by annotators) and the other arguments can be read. Of pairs nothing can be reviewed: `reason`
    says so, and each method and view with it.

    ReviewError: the folder has votes on another collection or other judges. ValueError: a run has
    several verdicts for an item, or items that the collection lacks.

    >>> import tempfile
    >>> import pandas as pd
    >>> from vjudge.review import Review
    >>> item = {"id": "a", "instruction": "What is it?", "response": "A cat.", "gold": 4}
    >>> run = pd.DataFrame({"id": ["a"], "score": [5.0], "feedback": ["Right, so 5/5."]})
    >>> out = tempfile.mkdtemp()
    >>> review = Review([item], {"mine": run}, out=out, annotator="ann", blind=True, scale=(1, 5))
    >>> review.case.sides["1"]["feedback"]
    'Right, so [hidden].'
    >>> review.score(4)
    >>> review.votes()[["id", "annotator", "field", "value"]].to_numpy().tolist()
    [['a', 'ann', 'score', 4]]
    >>> review.preferences()
    Not computed: a preference is between two judges, and under review is mine: give two runs
    """

    # --- To look at and vote in

    def widget(
        self, *, image_size: int = 420, advance: bool = False, **filters: Any
    ) -> Reviewer | Result:
        """The review as a notebook tool, with a list of its own.

        Args:
            image_size: pixels of an image's longer side at the start.
            advance: go on to the next item when one has its score and its answer.
            filters: of `filter`, such as order="worst".
        """
        from vjudge.review.widget import Reviewer

        if self.reason:
            return Result.not_computed(self.reason, name="review")
        return Reviewer(self, image_size=image_size, advance=advance, **filters)

    def matrix(self, judge: str | None = None) -> Matrix | Result:
        """A judge's scores against the truth, as counts that open the review on their items.

        Args:
            judge: whose scores; None takes the last one.
        """
        from vjudge.review.widget import Matrix

        if self.reason:
            return Result.not_computed(self.reason, name="matrix")
        if self.truth.isna().all():
            return Result.not_computed("no item has a true score yet: vote first", name="matrix")
        return Matrix(self, judge=judge or self.judges[-1])

    # --- What votes become

    @as_result
    def progress(self) -> Result:
        """How far each annotator is, and how long the rest takes at the pace so far."""
        annotators = dict.fromkeys([*self.plan, *self.votes()["annotator"]])
        rows = [{"annotator": name, **self.pace(name)._asdict()} for name in annotators]
        table = DataFrame(rows)
        left = table.loc[table["left"] > 0, "annotator"]
        reading = f"Not done yet: {names_of(left)}." if len(left) else "Everyone is done."
        return Result(
            table, name="review_progress", reading=reading, caption=f"Progress: {self._about()}"
        )

    def scores(self) -> analysis.Scores:
        """The judges' scores beside those of everyone who voted, as `vjudge.scores` has them."""
        reason = self.reason
        if not reason and self.votes("score").empty:
            reason = f"nobody has scored an item yet: {NO_VOTES}"
        if reason:
            return analysis.Scores(DataFrame(), [], reason=reason)
        votes = self.human_scores()
        taken = [*self.judges, *self.items.column_names]
        votes = votes.rename(columns=lambda name: f"{name} (votes)" if name in taken else name)
        item_columns = DataFrame(list(self._rows), index=list(self._ids))
        item_columns = item_columns.drop(columns=[*PICTURE_COLUMNS, *self.judges], errors="ignore")
        return analysis.scores(
            pd.concat([item_columns, self.judge_scores, votes], axis=1),
            judges=list(self.judges),
            people=list(votes),
            group="group",
            response="response",
            scale=self.scale,
            about=self._about("score"),
        )

    @as_result
    def preferences(self) -> Result:
        """Whose feedback people found better, as `vjudge.metrics.feedback_preference` counts it.

        "left" is the review's first judge; the column `answer` has each row in words. Both good and
        both bad are ties; the rows "of decided" leave them out. Intervals go by group (the picture)
        where several votes are on one.
        """
        if len(self.judges) != 2:
            raise NotComputed(
                "a preference is between two judges, and under review is"
                f" {', '.join(self.judges)}: give two runs"
            )
        votes = self.votes("better")
        if votes.empty:
            raise NotComputed(f"nobody has said yet which feedback is better: {NO_VOTES}")
        judge_a, judge_b = self.judges
        sides = votes["value"].replace({judge_a: "left", judge_b: "right"})
        table = feedback_preference(sides, groups=self._groups(votes["id"]))
        # a tie is an answer: it is not missing from the share of decided ones
        table["missing"] = table.loc["left", "missing"]
        answers = {
            "left": f"{judge_a} is better",
            "right": f"{judge_b} is better",
            "both_good": "both good",
            "both_bad": "both bad",
            "left_as_good_or_better": f"{judge_a} as good or better",
            "right_as_good_or_better": f"{judge_b} as good or better",
            "left_of_decided": f"{judge_a} of decided",
            "left_ties_half": f"{judge_a}, ties half",
        }
        text = f"Whose feedback is better; {votes['blind'].sum()} of {len(votes)} answers blind"
        rows = table.reset_index()
        rows.insert(1, "answer", rows["statistic"].map(answers))
        return Result(
            rows,
            name="review_preference",
            reading=_preference_reading(table, judge_a, judge_b),
            caption=f"{text}: {self._about('better')}",
            plot=partial(plots.preference_bars, {(judge_a, judge_b): table}),
            view=rows[["answer", "estimate", "low", "high", "n"]],
        )

    @as_result
    def tags(self) -> Result:
        """How often each error tag was given to each judge's feedback: a row a judge and tag.

        `estimate` is a share of `n`, the pairs of an annotator and an item with any vote, with 95 %
        Wilson intervals, by group (the picture) where several reviews are of one.
        """
        cases = self.votes()[["id", "annotator"]].drop_duplicates()
        votes = self.votes("tags")
        if votes.empty:
            raise NotComputed(f"nobody has given an error tag yet: {NO_VOTES}")
        tag_votes = votes.set_index(["id", "annotator"])["value"].to_dict()
        values = [tag_votes.get(tuple(case), {}) for case in cases.to_numpy()]
        tags = dict.fromkeys(self.offered_tags)  # and those of sessions that offered others
        for value in values:
            for judge in value:
                tags |= dict.fromkeys(value[judge])
        rows = []
        for tag in tags:
            for judge in self.judges:
                hits = np.array([tag in value.get(judge, ()) for value in values])
                rows.append(((judge, tag), hits, np.ones(len(hits))))
        table = shares(
            rows,
            groups=self._groups(cases["id"]),
            unit="reviews",
            index=["judge", "tag"],
        ).reset_index()
        drawn = table[table["estimate"].groupby(table["tag"]).transform("max") > 0]
        never = [tag for tag in tags if tag not in set(drawn["tag"])]
        caption = f"Error tags given to each judge's feedback: {self._about('tags')}"
        if never:
            caption += f". Never given: {', '.join(never)}"
        return Result(
            table,
            name="review_tags",
            reading=_tag_reading(drawn),
            caption=caption,
            plot=partial(
                plots.forest,
                drawn,
                rows="tag",
                by="judge",
                label="share of reviews",
                reference=None,
            ),
            data=table,
        )

    def _groups(self, ids: Series) -> Series | None:
        """The unit of resampling of votes on these items; None where each vote has its own."""
        groups = ids.map(self._facts["group"])
        return groups if groups.duplicated().any() else None

    @as_result
    def disagreements(self, n: int = 10) -> Result:
        """The items on which judges are furthest from the truth, or from each other without one."""
        gaps, reference = self._gaps()
        far = gaps.dropna().sort_values(ascending=False, kind="stable")
        if far.empty:
            raise NotComputed(f"no item has two scores to compare: {NO_VOTES}")
        columns = {"gap": far[:n], "truth": self.truth, **self.judge_scores}
        table = DataFrame(columns).loc[far.index[:n]].rename_axis("id").reset_index()
        return Result(
            table,
            name="review_disagreements",
            reading=(
                f"The largest distance from {reference} is {far.iloc[0]:.3g} points; half of"
                f" {len(far)} items are within {far.median():.3g}."
            ),
            caption=f"The {len(table)} items on which a judge is furthest from {reference}",
        )

    def _gaps(self) -> tuple[Series, str]:
        """How far a judge is from the truth on each item, or from another judge, and from which."""
        if self.truth.notna().any():
            return self._excess.abs().max(axis=1), f"the truth ({self.truth.name})"
        if len(self.judges) < 2:
            raise NotComputed("nobody scored these items, and one judge has nobody to differ from")
        scores = self.judge_scores[self.judge_scores.count(axis=1) > 1]
        return scores.max(axis=1) - scores.min(axis=1), "another judge"

    @as_result
    def example(self, n: int = 1) -> Result:
        """The `n` items that differ most, whole, as the appendices of papers print them."""
        rows = self.disagreements(n).table
        runs = dict(list(self._verdicts.reset_index(drop=True).groupby("judge", sort=False)))
        draw = partial(plots.qualitative, self.items, runs, rows["id"].tolist())
        try:
            draw(venue=current().venue)
        except ValueError as error:
            raise NotComputed(str(error)) from error
        return Result(
            rows,
            name="review_example",
            caption=f"Of {self.source}, where a judge is furthest from {self._gaps()[1]}",
            plot=draw,
        )

    # --- To try the rest

    def simulate_votes(
        self, n_annotators: int = 2, *, share: float = 2 / 3, noise: float = 0.175
    ) -> Review:
        """Vote by a rule, to try what votes become; every such vote is marked as simulated.

        An annotator's score is the truth plus noise, the better feedback is that of the judge whose
        score is nearer, and a judge two or more points off is too critical or too optimistic.

        Args:
            n_annotators: how many vote; each reviews the items in another random order.
            share: of the items that each reviews, in [0, 1].
            noise: its standard deviation, as a share of the scale's width.

        Returns:
            The review as the last of them sees it; its votes stand in the folder "simulated" beside
            the annotators' own. Without a truth there are none.
        """
        if self.reason:
            return self
        robot = self
        for number in range(n_annotators):
            robot = self._as_robot(f"simulated {chr(ord('A') + number)}")
            rng = np.random.default_rng((self.seed, number))
            ids = rng.permutation(self._ids)[: round(share * len(self._ids))]
            for id, error in zip(ids, rng.normal(scale=noise, size=len(ids)), strict=True):
                robot._vote_by_rule(id, error)
        return robot

    def _as_robot(self, annotator: str) -> Review:
        """The same items with the simulated votes."""
        robot = copy(self)
        robot.annotator = annotator
        robot.plan = assignment(self._ids, [annotator])
        folder = self.path.parent / "simulated"
        log = self._log
        robot._log = VoteLog(
            folder, annotator=annotator, collection=log.collection, judges=log.judges
        )
        robot.path = robot._log.path
        robot._simulated = True
        robot.filter()
        return robot

    def _vote_by_rule(self, id: str, error: float) -> None:
        """Vote on one item, unless that was done: its score, the better feedback, and tags."""
        truth = self.truth[id]
        scale = self._facts.loc[id, "scale"]
        if self.votes_on(id) or scale is None or np.isnan(truth):
            return
        score = int(np.clip(np.rint(truth + error * (scale[1] - scale[0])), *scale))
        self.score(score, id=id)
        excess = self.judge_scores.loc[id] - score
        distance = excess.abs().fillna(np.inf)
        side_of = {judge: side for side, judge in self.sides(id).items()}
        if len(distance) == 2 and self._graded.loc[id].all():
            answer = "both bad"
            if distance.max() <= 0.5 or (distance.nunique() == 1 and distance.max() < FAR):
                answer = "both good"
            elif distance.min() < FAR:
                answer = side_of[distance.idxmin()]
            self.better(answer, id=id)
        for judge in excess.index[excess.abs() >= FAR]:
            tag = TAGS[1] if excess[judge] > 0 else TAGS[0]
            if tag in self.offered_tags:
                self.tag([tag], side=side_of[judge], id=id)

    # --- To keep

    def collection(self) -> datasets.Dataset:
        """The items that somebody scored, in their order.

        `human_scores[i]` is the score of `annotators[i]`, NaN for none, in place of earlier ones.
        ValueError: nobody scored.
        """
        scores = self.human_scores()
        scored = scores.notna().any(axis=1).to_numpy()
        if not scored.any():
            raise ValueError("no item has a score yet: vote first")
        columns = {
            "human_scores": scores[scored].to_numpy().tolist(),
            "annotators": [list(scores)] * int(scored.sum()),
        }
        rows = self.items.select(scored.nonzero()[0])
        rows = rows.remove_columns([name for name in columns if name in rows.column_names])
        return beside(rows, datasets.Dataset.from_dict(columns))

    @as_result
    def export(self, folder: str | Path) -> Result:
        """Write what the votes on items became into a folder; files of these names are replaced.

        Returns:
            A row a file, with its path: `votes.csv`; `collection` (a `datasets` folder),
            `error_tags` and `preferences` (.csv, .tex) where anybody gave such votes;
            `review.html`, in which nothing can run, of the listed items as the annotator may see
            them, with everyone's votes. In CSV files a formula begins with "'".
        """
        folder = Path(folder).expanduser()
        folder.mkdir(parents=True, exist_ok=True)
        paths = [folder / "votes.csv"]
        votes = self.votes()
        write_csv(votes, paths[0])
        if "score" in set(votes["field"]):
            paths.append(folder / "collection")
            self.collection().save_to_disk(paths[-1])
        for name, result in (("error_tags", self.tags()), ("preferences", self.preferences())):
            if result.computed:
                save_options = {"caption": result.caption, "folder": folder, "data": result.table}
                paths += save_table(
                    result.view, name, venue=current().venue, **save_options
                ).values()
        paths.append(folder / "review.html")
        replace_file(paths[-1], self._page(dict.fromkeys(votes["annotator"])))
        table = DataFrame({"file": [path.name for path in paths], "path": list(map(str, paths))})
        return Result(
            table,
            name="review_files",
            reading=f"{len(votes)} votes were written, in {len(paths)} files.",
            caption=f"Files: {self._about()}",
            view=table[["file"]],
        )

    def _page(self, annotators: Sequence[str] | dict[str, Any]) -> str:
        """The review as one page of HTML, with everyone's votes."""
        cases = []
        for case in self.cases():
            votes = {name: self.votes_on(case.item.id, name) for name in annotators}
            cases.append((case_html(case, 360), {name: v for name, v in votes.items() if v}))
        return review_page(self, cases, "simulated" if self.votes()["simulated"].any() else "")

    def _about(self, *fields: str) -> str:
        """Whose votes on some fields, else on all, a caption is about, and whether by a rule."""
        votes = self.votes(*fields)
        n_simulated = votes["simulated"].sum()
        kind = "votes"
        if n_simulated:
            kind = f"{n_simulated} simulated votes of {len(votes)}"
            if n_simulated == len(votes):
                kind = "simulated votes"
        return f"{kind} by {votes['annotator'].nunique()} annotators on {self.source}"


def _preference_reading(table: DataFrame, first: str, second: str) -> str:
    """Who was preferred, and whether that decides."""
    text = []
    for row, name in (("left", first), ("right", second)):
        text.append(f"{name}'s feedback is better in {bounds(table.loc[row])}")
    half = table.loc["left_ties_half"]
    conclusion = "people prefer neither by more than noise"
    if half["low"] > 0.5:
        conclusion = f"people prefer {first}"
    elif half["high"] < 0.5:
        conclusion = f"people prefer {second}"
    ties = table["estimate"]["both_good"] + table["estimate"]["both_bad"]
    return (
        f"{' and '.join(text)} of {half['n']:.0f} answers, and {short(ties)} are ties. With ties as"
        f" halves {first} has {bounds(half)}: {conclusion}."
    )


def _tag_reading(table: DataFrame) -> str:
    """The commonest tag of each judge."""
    texts = []
    for judge, rows in table.groupby("judge", sort=False):
        top = rows.loc[rows["estimate"].idxmax()]
        texts.append(f"{top['tag']} for {judge} ({bounds(top)})")
    return f"The commonest of {table['n'].max()} reviews: {'; '.join(texts)}."
