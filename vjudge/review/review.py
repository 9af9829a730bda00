"""`Review`: judged items, an annotator's votes on them, and the results made of everyone's votes.

Each analysis of votes is a method and returns a `Result`. Every vote records whether it was
simulated, and captions say so.
"""

from __future__ import annotations

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
from vjudge.probes.changes import beside
from vjudge.results import NotComputed, Result, current
from vjudge.results import analysis as as_result
from vjudge.review.session import Session, assignment
from vjudge.review.show import case_html, review_page
from vjudge.review.votes import TAGS, VoteLog

if TYPE_CHECKING:
    from vjudge.review.widget import Matrix, Reviewer

NO_VOTES = "vote in the widget, or try the rest with simulate_votes()"
TOO_CRITICAL, TOO_OPTIMISTIC = TAGS[:2]
FAR = 2  # points; a simulated annotator tags the feedback of a judge that is so far off
PAGE_IMAGE_SIZE = 360  # pixels of an image's longer side on an exported page


class Review(Session):
    """Votes of annotators on judged items.

    Public attributes are the arguments, and:

    - `path`: the annotator's file of votes;
    - `judges`, `criteria`, `judge_scores` (n_items, n_judges), `truth` (of `vj.truth`, all NaN if
      there is none), `scale` (of all items), `levels` (names of the levels of the scale);
    - `plan`: annotator -> ids of the items to review; `filters`: name of a filter -> its values;
      `listed`: ids of the items that pass the filters;
    - `reason`: why nothing can be reviewed, as in a collection of pairs; every method and view then
      shows it. "" where items can be reviewed.

    Args:
        items: a collection with the canonical columns.
        runs: tables of `Judge.grade` by judge's name, or one table with a column `judge`; one
            verdict per item and judge.
        out: the folder of votes, which all annotators share.
        annotator: who votes.
        blind: whether to hide names, scores, the truth, and what reads as a score in a feedback
            (see `vjudge.review.hiding.hide_scores`) until an item has its vote, and to swap sides.
        seed: the seed of sides and plan; the same for every annotator.
        tags: the error tags offered (attribute `offered_tags`).
        scale: the lowest and the highest score of items without a rubric.
        annotators: everyone who reviews, so that each lists a share of the items; none means that
            this annotator lists all.
        overlap: the share of items, in [0, 1], that everyone reviews.

    Raises:
        ReviewError: the folder has votes on another collection or other judges.
        ValueError: a run has several verdicts on an item, or items that the collection lacks.

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

    # --- Views to look at and vote in

    def widget(
        self, *, image_size: int = 420, advance: bool = False, **filters: Any
    ) -> Reviewer | Result:
        """Make a notebook tool for this review; filters and steps in it leave the review as it is.

        Args:
            image_size: the pixels of an image's longer side, which a slider can change.
            advance: whether to go on to the next item once an item has its score and its answer.
            filters: the filters of `filter`, such as order="worst".
        """
        from vjudge.review.widget import Reviewer

        if self.reason:
            return Result.not_computed(self.reason, name="review")
        return Reviewer(self, image_size=image_size, advance=advance, **filters)

    def matrix(self, judge: str | None = None) -> Matrix | Result:
        """Count a judge's scores at each level of the truth; a click on a count opens its items.

        Args:
            judge: the judge's name; None means the last one.
        """
        from vjudge.review.widget import Matrix

        if self.reason:
            return Result.not_computed(self.reason, name="matrix")
        if self.truth.isna().all():
            return Result.not_computed("no item has a true score yet: vote first", name="matrix")
        return Matrix(self, judge=judge or self.judges[-1])

    # --- Results of votes

    @as_result
    def progress(self) -> Result:
        """Count the items that each annotator has voted on and has left, and estimate the time.

        Returns:
            One row per annotator: annotator, assigned, voted and left (numbers of items), and
            minutes_left at the pace so far, NaN below three items voted on.
        """
        # Who has a share of the items, and who voted without one
        annotators = dict.fromkeys([*self.plan, *self.votes()["annotator"]])
        rows = [{"annotator": name, **self.pace(name)._asdict()} for name in annotators]
        table = DataFrame(rows)
        unfinished = table.loc[table["left"] > 0, "annotator"]
        reading = "Everyone is done."
        if unfinished.size:
            reading = f"Not done yet: {names_of(unfinished)}."
        return Result(
            table, name="review_progress", reading=reading, caption=f"Progress: {self._about()}"
        )

    def scores(self) -> analysis.Scores:
        """Put the judges' scores beside those of everyone who voted, as `vjudge.scores` does."""
        reason = self.reason
        if not reason and self.votes("score").empty:
            reason = f"nobody has scored an item yet: {NO_VOTES}"
        if reason:
            return analysis.Scores(DataFrame(), [], reason=reason)
        votes = self.human_scores()
        # An annotator may be called like a judge or a column of the collection
        taken = [*self.judges, *self.items.column_names]
        votes = votes.rename(columns={name: f"{name} (votes)" for name in taken})
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
        """Estimate how often people found each judge's feedback better.

        Returns:
            The table of `vjudge.metrics.feedback_preference`, where "left" is the review's first
            judge and "right" the second, on whichever side they were shown; `answer` is its
            statistic with the judges' names. "Both good" and "both bad" are ties, which the row
            `left_of_decided` leaves out. Intervals resample groups (the image) where a group has
            several votes.
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
        # All rows count as missing only answers that are absent. `feedback_preference` also counts
        # ties as missing from the share of decided answers
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
        """Estimate how often each error tag was given to each judge's feedback.

        Returns:
            One row per judge and tag. `estimate` is a share of the `n` reviews, which are the pairs
            of an annotator and an item with any vote. low and high are the 95 % Wilson score
            interval, over groups (the image) where a group has several reviews.
        """
        votes = self.votes("tags")
        if votes.empty:
            raise NotComputed(f"nobody has given an error tag yet: {NO_VOTES}")
        reviews = self.votes()[["id", "annotator"]].drop_duplicates()
        tag_votes = votes.set_index(["id", "annotator"])["value"].to_dict()
        # One dict (judge -> tags) per review; empty where the review has votes but no tags
        given_tags = [tag_votes.get(tuple(key), {}) for key in reviews.to_numpy()]
        tags = dict.fromkeys(self.offered_tags)
        for tags_by_judge in given_tags:  # an earlier session may have offered other tags
            for judge_tags in tags_by_judge.values():
                tags |= dict.fromkeys(judge_tags)
        rows = []
        for tag in tags:
            for judge in self.judges:
                has_tag = np.array([tag in by_judge.get(judge, ()) for by_judge in given_tags])
                # What `shares` takes: a row's name, what each review adds (0 or 1), and its weight
                rows.append(((judge, tag), has_tag, np.ones(len(has_tag))))
        table = shares(
            rows,
            groups=self._groups(reviews["id"]),
            unit="reviews",
            index=["judge", "tag"],
        ).reset_index()
        # The figure leaves out the tags that nobody gave; the caption names them
        used = table[table["estimate"].groupby(table["tag"]).transform("max") > 0]
        unused = [tag for tag in tags if tag not in set(used["tag"])]
        caption = f"Error tags given to each judge's feedback: {self._about('tags')}"
        if unused:
            caption += f". Never given: {', '.join(unused)}"
        return Result(
            table,
            name="review_tags",
            reading=_tag_reading(used),
            caption=caption,
            plot=partial(
                plots.forest,
                used,
                rows="tag",
                by="judge",
                label="share of reviews",
                reference=None,
            ),
        )

    def _groups(self, ids: Series) -> Series | None:
        """Return the group of each vote's item; None where no two votes share a group."""
        groups = ids.map(self._facts["group"])
        return groups if groups.duplicated().any() else None

    @as_result
    def disagreements(self, n: int = 10) -> Result:
        """List the `n` items on which a judge is furthest from the truth, the largest gap first.

        Where no item has a truth, the gap is the range of the judges' scores.

        Returns:
            One row per item: id, gap (points), truth, and one column of scores per judge.
        """
        gaps, reference = self._largest_gaps()
        gaps = gaps.dropna().sort_values(ascending=False, kind="stable")
        if gaps.empty:
            raise NotComputed(f"no item has two scores to compare: {NO_VOTES}")
        columns = {"gap": gaps[:n], "truth": self.truth, **self.judge_scores}
        table = DataFrame(columns).loc[gaps.index[:n]].rename_axis("id").reset_index()
        return Result(
            table,
            name="review_disagreements",
            reading=(
                f"The largest distance from {reference} is {gaps.iloc[0]:.3g} points; half of"
                f" {len(gaps)} items are within {gaps.median():.3g}."
            ),
            caption=f"The {len(table)} items on which a judge is furthest from {reference}",
        )

    def _largest_gaps(self) -> tuple[Series, str]:
        """Return each item's largest gap between a judge and a reference, and the reference's name.

        The reference is the truth, or another judge where no item has a truth.

        Raises:
            NotComputed: no item has a truth, and there is one judge.
        """
        if self.truth.notna().any():
            return self._score_gaps.abs().max(axis=1), f"the truth ({self.truth.name})"
        if len(self.judges) < 2:
            raise NotComputed("nobody scored these items, and one judge has nobody to differ from")
        scores = self.judge_scores[self.judge_scores.count(axis=1) > 1]
        return scores.max(axis=1) - scores.min(axis=1), "another judge"

    @as_result
    def example(self, n: int = 1) -> Result:
        """Draw the `n` items of `disagreements` in full, as the appendices of papers print them."""
        rows = self.disagreements(n).table
        runs = dict(list(self._verdicts.reset_index(drop=True).groupby("judge", sort=False)))
        draw = partial(plots.qualitative, self.items, runs, rows["id"].tolist())
        try:  # drawn here once, so that a failure is the reason of this result
            draw(venue=current().venue)
        except ValueError as error:
            raise NotComputed(str(error)) from error
        return Result(
            rows,
            name="review_example",
            caption=f"Of {self.source}, where a judge is furthest from {self._largest_gaps()[1]}",
            plot=draw,
        )

    # --- Simulated votes, to try the results

    def simulate_votes(
        self, n_annotators: int = 2, *, share: float = 2 / 3, noise: float = 0.175
    ) -> Review:
        """Cast votes by a rule, to try what votes become; each vote is marked as simulated.

        The rule:

        - An annotator's score is the truth plus normal noise, rounded to the scale.
        - The better feedback is that of the judge whose score is nearer to it. Both are good where
          both judges are within half a point, or equally near and less than two points away; both
          are bad where both are two or more points away.
        - The feedback of a judge two or more points above it is "too optimistic", that of one two
          or more points below it "too critical".

        Args:
            n_annotators: the number of annotators; each reviews the items in another random order.
            share: the share of the items that each reviews, in [0, 1].
            noise: the standard deviation of the noise, as a share of the scale's width.

        Returns:
            The review of the last annotator. The votes are in the folder "simulated" beside the
            annotators' files. Items without a truth or a scale get no votes; an item that an
            annotator voted on in an earlier call keeps those votes.
        """
        if self.reason:
            return self
        simulated = self  # what is returned if there is no annotator
        for number in range(n_annotators):
            simulated = self._simulated_review(f"simulated {chr(ord('A') + number)}")
            rng = np.random.default_rng((self.seed, number))
            ids = rng.permutation(self._ids)[: round(share * len(self._ids))]
            for id, error in zip(ids, rng.normal(scale=noise, size=len(ids)), strict=True):
                simulated._vote_by_rule(id, error)
        return simulated

    def _simulated_review(self, annotator: str) -> Review:
        """Copy this review for a simulated annotator, whose votes go into a separate folder."""
        review = copy(self)
        review.annotator = annotator
        review.plan = assignment(self._ids, [annotator])
        review._log = VoteLog(
            self.path.parent / "simulated",
            annotator=annotator,
            collection=self._log.collection,
            judges=self.judges,
        )
        review.path = review._log.path
        review._simulated = True
        review.filter()
        return review

    def _vote_by_rule(self, id: str, error: float) -> None:
        """Cast the votes of `simulate_votes` on an item, unless it has votes or lacks a truth.

        Args:
            id: the item.
            error: the annotator's deviation from the truth, as a share of the scale's width.
        """
        truth = self.truth[id]
        scale = self._facts.loc[id, "scale"]
        if self.votes_on(id) or scale is None or np.isnan(truth):
            return
        lowest, highest = scale
        score = int(np.clip(np.rint(truth + error * (highest - lowest)), lowest, highest))
        self.score(score, id=id)

        gaps = self.judge_scores.loc[id] - score  # judge -> points, above 0 where it is too high
        distances = gaps.abs().fillna(np.inf)  # a judge without a score is furthest
        side_of = {judge: side for side, judge in self.sides(id).items()}
        if len(distances) == 2 and self._graded.loc[id].all():
            nearest = distances.min()
            furthest = distances.max()
            # Both within half a point, or equally near: neither is better
            if furthest <= 0.5 or (nearest == furthest and furthest < FAR):
                answer = "both good"
            elif nearest < FAR:
                answer = side_of[distances.idxmin()]
            else:
                answer = "both bad"
            self.better(answer, id=id)
        for judge in gaps.index[gaps.abs() >= FAR]:
            tag = TOO_OPTIMISTIC if gaps[judge] > 0 else TOO_CRITICAL
            if tag in self.offered_tags:
                self.tag([tag], side=side_of[judge], id=id)

    # --- Files

    def collection(self) -> datasets.Dataset:
        """Make a collection of the items that somebody scored, in their order.

        `human_scores` of an item has one score per name in `annotators`, NaN where that person gave
        none. They replace the human scores that the collection had.

        Raises:
            ValueError: nobody has scored an item.
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
        """Write everyone's votes and the results made of them into a folder.

        Files of the same names are replaced. In CSV files, a text that a spreadsheet would run as a
        formula begins with "'".

        Returns:
            One row per file, with its path: `votes.csv`; `collection` (a `datasets` folder),
            `error_tags` and `preferences` (.csv, .tex) where anybody gave such votes; and
            `review.html`, a page without scripts that has the listed items, as the annotator may
            see them, and everyone's votes.
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
                saved = save_table(
                    result.view,
                    name,
                    caption=result.caption,
                    folder=folder,
                    venue=current().venue,
                    data=result.table,
                )
                paths += saved.values()
        paths.append(folder / "review.html")
        replace_file(paths[-1], self._page(votes))
        table = DataFrame({"file": [path.name for path in paths], "path": list(map(str, paths))})
        return Result(
            table,
            name="review_files",
            reading=f"{len(votes)} votes were written, in {len(paths)} files.",
            caption=f"Files: {self._about()}",
            view=table[["file"]],
        )

    def _page(self, votes: DataFrame) -> str:
        """Make one HTML page of the listed items, with everyone's votes on each."""
        annotators = votes["annotator"].unique()
        cases = []  # one per item: its HTML, and annotator -> votes on it by field
        for case in self.cases():
            votes_by_annotator = {}
            for annotator in annotators:
                cast = self.votes_on(case.item.id, annotator)
                if cast:
                    votes_by_annotator[annotator] = cast
            cases.append((case_html(case, PAGE_IMAGE_SIZE), votes_by_annotator))
        return review_page(self, cases, "simulated" if votes["simulated"].any() else "")

    def _about(self, *fields: str) -> str:
        """Say for a caption whose votes these are, and how many of them were simulated.

        Args:
            fields: the fields of the votes to count, as for `votes`; none means all.
        """
        votes = self.votes(*fields)
        n_simulated = votes["simulated"].sum()
        if n_simulated == 0:
            kind = "votes"
        elif n_simulated == len(votes):
            kind = "simulated votes"
        else:
            kind = f"{n_simulated} simulated votes of {len(votes)}"
        return f"{kind} by {votes['annotator'].nunique()} annotators on {self.source}"


def _preference_reading(table: DataFrame, judge_a: str, judge_b: str) -> str:
    """Say how often each judge's feedback was preferred, and whether that is significant.

    Args:
        table: the table of `vjudge.metrics.feedback_preference`, "left" being `judge_a`.
    """
    half = table.loc["left_ties_half"]  # share of judge_a's wins, ties counted half
    conclusion = "people prefer neither by more than noise"
    if half["low"] > 0.5:
        conclusion = f"people prefer {judge_a}"
    elif half["high"] < 0.5:
        conclusion = f"people prefer {judge_b}"
    ties = table["estimate"]["both_good"] + table["estimate"]["both_bad"]
    return (
        f"{judge_a}'s feedback is better in {bounds(table.loc['left'])} and {judge_b}'s feedback is"
        f" better in {bounds(table.loc['right'])} of {half['n']:.0f} answers, and {short(ties)} are"
        f" ties. With ties as halves {judge_a} has {bounds(half)}: {conclusion}."
    )


def _tag_reading(table: DataFrame) -> str:
    """Name the commonest tag of each judge."""
    texts = []
    for judge, rows in table.groupby("judge", sort=False):
        top = rows.loc[rows["estimate"].idxmax()]
        texts.append(f"{top['tag']} for {judge} ({bounds(top)})")
    return f"The commonest of {table['n'].max()} reviews: {'; '.join(texts)}."
