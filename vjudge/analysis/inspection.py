"""What is in a collection, and what of its scores can be told without looking at a picture."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from itertools import combinations, islice
from typing import Any

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.figure import Figure
from pandas import DataFrame, Series
from rapidfuzz.distance import LCSseq

from vjudge import data, metrics, plots
from vjudge.data.schema import PICTURE_COLUMNS, Items, pictures_in
from vjudge.data.summary import ratings
from vjudge.images import Pictures, open_image, thumbnail
from vjudge.plots.style import FROM_ZERO, PALETTE, draw_cells, short
from vjudge.records import row_levels, unit_of
from vjudge.results import NotComputed, Result, analysis, current, options

MOST_CRITERIA = 20  # that a figure has lines for
MOST_RUBRICS = 64  # whose pairs are compared
MOST_PICTURES = 12  # on one sheet
_COLUMNS = "reference_answer criteria gold preference human_scores".split()
_SHARED = "instruction reference_answer criteria".split()
_OF_RESPONSES = "response response_a response_b preference gold human_scores feedback".split()
_SAMPLED = "id group instruction response response_a response_b preference gold criteria".split()


def inspect(items: Items) -> Inspection:
    """Check a collection, and look into it.

    Args:
        items: as for `data.rows_of`: items or pairs, with or without rubrics and scores.

    Returns:
        An `Inspection`, each of whose methods returns a Result.

    Raises:
        CollectionError: every bad row, and every picture that does not open.

    >>> import vjudge as vj
    >>> inspect(vj.load_collection("scenes", split="test", limit=10))
    Inspection of 10 rows
    """
    return Inspection(items)


class Inspection:
    """A collection that was checked; a method that does not apply to it says why."""

    def __init__(self, items: Items) -> None:
        self.rows = data.rows_of(items)
        self._pictures = Pictures()
        data.validate(self.rows, needs=(), pictures=self._pictures)
        texts = []
        for row in self.rows:
            cells = dict.fromkeys(_COLUMNS) | row | {"group": unit_of(row)}
            texts.append({name: cells[name] for name in cells if name not in PICTURE_COLUMNS})
        self.texts = DataFrame(texts)  # the rows without their pictures

    def __repr__(self) -> str:
        return f"Inspection of {len(self.texts):,} rows"

    def _scored(self) -> tuple[DataFrame, str]:
        """The rows with their truth in `gold`, and what it is called."""
        try:
            truth = data.truth(self.rows)
        except data.CollectionError as error:
            raise NotComputed(str(error)) from error
        name = str(truth.name).replace("gold", "true score")
        return self.texts.assign(gold=truth.to_numpy()), name

    @analysis
    def overview(self) -> Result:
        """Count what there is: rows, questions, criteria, groups (the units of resampling)."""
        filled = self.texts[["reference_answer", "gold", "preference"]].notna().sum()
        counts = {
            "rows": len(self.texts),
            "questions": len(data.cases(self.rows)),
            **self.texts[["criteria", "group"]].nunique(),
            **filled.add_prefix("with "),
            "with human_scores": ratings(self.texts["human_scores"]).notna().any(axis=1).sum(),
        }
        return Result(DataFrame([counts]), name="inspect_overview", caption="What was loaded")

    @analysis
    def sample(self, n: int = 8) -> Result:
        """Show n rows, drawn by the seed of `settings`: texts, scores and first pictures."""
        rows = self.texts.sample(min(n, len(self.texts)), random_state=current().seed).sort_index()
        pictures = {}
        for position, id in rows["id"].items():
            for _, source in islice(pictures_in(self.rows[position]), 1):
                pictures[id] = source
        return Result(
            rows.filter(_SAMPLED).dropna(axis=1, how="all"),
            name="inspect_sample",
            caption=f"{len(rows)} of {len(self.texts):,} rows",
            plot=partial(_sheet, pictures) if pictures else None,
        )

    @analysis
    def question(self, id: str | None = None) -> Result:
        """Show all that a judge is given of one question: pictures, rubric, each response.

        Args:
            id: of one of its rows; None takes the question whose responses have most scores.
        """
        cases = data.cases(self.rows)
        places = cases["rows"][cases["scores"].map(lambda scores: len(set(scores))).idxmax()]
        if id is not None:
            named = self.texts.index[self.texts["id"] == str(id)]
            if named.empty:
                raise NotComputed(f"no row has the id {id!r}")
            places = next(rows for rows in cases["rows"] if named[0] in rows)
        rows = self.texts.loc[places].sort_values("gold", kind="stable")
        judged = self.rows[places[0]]
        lines = [(name.replace("_", " "), judged.get(name)) for name in _SHARED]
        lines += [(f"score {score}", text) for score, text in row_levels(judged).items()]
        pictures: dict = dict(enumerate(judged.get("images") or (), start=1))
        for position, row in rows.iterrows():
            for name in _OF_RESPONSES:
                if row.get(name):
                    lines.append((f"{row['id']}: {name.replace('_', ' ')}", row[name]))
            for column, source in pictures_in(self.rows[position]):
                if column != "images":
                    pictures[f"{row['id']}: {column.removesuffix('_images')}"] = source
        return Result(
            DataFrame(lines, columns=["what", "text"]).dropna(),
            name="inspect_question",
            caption=f"One of {len(cases):,} questions; its {len(rows)} of {len(self.texts):,} rows",
            plot=partial(_sheet, pictures) if pictures else None,
        )

    @analysis
    def scores(self) -> Result:
        """Count the true scores, each at the nearest level, by criterion."""
        rows, truth = self._scored()
        counts = pd.crosstab(rows["criteria"].fillna("none"), rows["gold"].round().astype("Int64"))
        levels = sorted({*data.levels(self.rows), *counts.columns})
        counts = counts.reindex(columns=levels, fill_value=0)
        share = counts.sum().max() / counts.to_numpy().sum()
        order = counts.sum(axis=1).sort_values(ascending=False, kind="stable")
        return Result(
            counts.loc[order.index].rename_axis("criterion").reset_index(),
            name="inspect_scores",
            reading=f"Always giving the commonest score is right for {share:.1%} of the items.",
            caption=f"Items by criterion and {truth}",
            plot=partial(_count_map, counts.loc[order.index[:MOST_CRITERIA]], truth),
        )

    @analysis
    def lengths(self) -> Result:
        """Test whether the longer response is the better one: `metrics.length_test`."""
        if "response_a" in self.texts:
            return self._longer_of_two()
        rows, truth = self._scored()
        chosen = options()
        del chosen["confidence"]
        table = metrics.length_test(rows, **chosen)
        auc, low, high, within = table.loc["words", ["auc", "low", "high", "within"]]
        scale = data.levels(self.rows) or None
        figure = partial(plots.length_by_score, rows, score_name=truth, scale=scale)
        return Result(
            table.reset_index(),
            name="inspect_length",
            reading=f"The better of two responses is the longer with probability"
            f" {short(auc, low, high)}, which {_decision(low, high, 0.5)}; of two responses to one"
            f" question with {short(within)}.",
            caption=f"Response length by {truth}",
            plot=figure if rows["gold"].notna().any() else None,
            data=data.lengths(rows),
        )

    def _longer_of_two(self) -> Result:
        """How often the longer response of a pair is the preferred one."""
        difference = metrics.lengths(self.texts["response_a"])
        difference -= metrics.lengths(self.texts["response_b"])
        preferred = self.texts["preference"]
        longer = preferred.where(difference > 0, preferred.replace({"a": "b", "b": "a"}))
        longer = longer.where(difference != 0)
        if not longer.isin(("a", "b")).any():
            remedy = self.rows.layout.remedy("preference")
            raise NotComputed(f"no pair of unequal lengths has a preference: {remedy}")
        table = metrics.win_rate(longer, groups=self.texts["group"]).loc[["win_ties_out"]]
        _, low, high = share = table.iloc[0][["estimate", "low", "high"]]
        return Result(
            table.reset_index(drop=True),
            name="inspect_length",
            reading=f"The longer response of a pair is the preferred one with probability"
            f" {short(*share)}, which {_decision(low, high, 0.5)}.",
            caption="How often the longer response is preferred, ties left out",
        )

    @analysis
    def blind(self) -> Result:
        """Correlate judges that never look at a picture with the truth.

        "ROUGE-L" scores a response by the words that it shares, in order, with the reference
        answer; "length" counts its words.
        """
        rows, truth = self._scored()
        scores = DataFrame({"length": metrics.lengths(rows["response"])})
        if rows["reference_answer"].notna().any():
            scores["ROUGE-L"] = _shared_words(rows)
        lines = []
        for judge in scores:
            correlation = metrics.correlate(
                scores[judge], rows["gold"], groups=rows["group"], **options()
            )
            lines.append({"judge": judge, **correlation.loc["spearman"]})
        table = DataFrame(lines).sort_values("estimate", key=abs, ascending=False)
        if table["estimate"].isna().all():
            raise NotComputed("three scored items are needed whose scores and lengths differ")
        judge, estimate, low, high = table.iloc[0, :4]
        return Result(
            table,
            name="inspect_blind",
            reading=f"Of the judges that never look, {judge} agrees best with {truth}: Spearman's"
            f" rho {short(estimate, low, high)}, which {_decision(low, high, 0)}.",
            caption=f"Judges that never look: correlation with {truth}",
            plot=partial(plots.forest, table, label=f"Spearman's rho with {truth}"),
            data=rows[["id", "group", "gold"]].join(scores),
        )

    @analysis
    def references(self) -> Result:
        """Compare responses of each score with their reference answers, by ROUGE-L."""
        rows, truth = self._scored()
        rows = rows.assign(rouge_l=_shared_words(rows)).dropna(subset=["gold", "rouge_l"])
        if rows.empty:
            raise NotComputed("no scored row has a reference answer: add reference_answer")
        shares = rows.groupby(rows["gold"].round())["rouge_l"]
        table = shares.describe().drop(columns=["mean", "std"]).rename_axis(truth).reset_index()
        return Result(
            table,
            name="inspect_reference_overlap",
            reading=f"The median ROUGE-L with the reference is {short(table['50%'].iloc[0])} at the"
            f" lowest {truth} and {short(table['50%'].iloc[-1])} at the highest.",
            caption=f"ROUGE-L of response and reference answer by {truth}",
            plot=partial(
                _figure,
                partial(
                    sns.boxplot,
                    rows,
                    x=rows["gold"].round(),
                    y="rouge_l",
                    native_scale=True,
                    color=PALETTE[4],
                ),
                1.9,
                f"n = {len(rows):,}",
                axes=dict(xlabel=truth, ylabel="ROUGE-L with the reference", ylim=(0, 1.02)),
            ),
            data=rows[["id", "group", "gold", "rouge_l"]],
        )

    @analysis
    def rubrics(self) -> Result:
        """Compare rubrics by ROUGE-L, whole and by their criteria alone, two by two."""
        criteria = {}
        for row in self.rows:
            if row.get("criteria"):
                texts = [row["criteria"], *(row.get("descriptions") or ())]
                criteria["\n".join(texts)] = row["criteria"]
        drawn = Series(criteria, dtype=object)
        drawn = drawn.sample(min(MOST_RUBRICS, len(drawn)), random_state=current().seed)
        lines = []
        for rubric_a, rubric_b in combinations(sorted(drawn.items()), 2):
            lines.append(list(map(rouge_l, rubric_a, rubric_b)))
        if not lines:
            raise NotComputed("fewer than two rubrics: there is nothing to compare")
        table = DataFrame(lines, columns=["with levels", "criteria alone"]).iloc[:, ::-1]
        return Result(
            table.describe().rename_axis("ROUGE-L").reset_index(),
            name="inspect_rubric_overlap",
            reading=f"{len(criteria)} distinct rubrics; two of them share"
            f" {short(table['criteria alone'].median())} of the words of their criteria (median).",
            caption=f"ROUGE-L of {len(table):,} pairs of rubrics",
            plot=partial(
                _figure,
                partial(sns.histplot, table, bins=20, binrange=(0, 1), element="step"),
                2.1,
                axes=dict(xlabel="ROUGE-L of two rubrics", ylabel="pairs", xlim=(0, 1)),
            ),
            data=table,
        )

    @analysis
    def pictures(self) -> Result:
        """Count pictures and their sizes, and show some."""
        pictures: dict = {}  # by content: size, items
        for row in self.rows:
            for _, source in pictures_in(row):
                picture = self._pictures(source)
                pictures.setdefault(picture.key, [source, *picture.size, 0])[3] += 1
        if not pictures:
            raise NotComputed("no row has a picture: add a column `images`")
        columns = ["source", "width", "height", "items"]
        table = DataFrame(pictures.values(), columns=columns)
        drawn = {}
        for picture in table.head(MOST_PICTURES).itertuples():
            drawn[f"{picture.Index + 1}: {picture.width} x {picture.height}"] = picture.source
        sizes = table.groupby(["width", "height"])["items"].agg(pictures="size", items="sum")
        return Result(
            sizes.sort_values("pictures", ascending=False).reset_index(),
            name="inspect_pictures",
            reading=f"{len(table):,} pictures in {len(sizes):,} size(s); all of them open.",
            caption=f"The first {len(drawn)} of {len(table):,} pictures, with their pixels",
            plot=partial(_sheet, drawn),
        )

    @analysis
    def people(self) -> Result:
        """Measure how far people agree with one another: `metrics.agreement`."""
        scores = ratings(self.texts["human_scores"])
        counts = scores.notna().sum(axis=1)
        if counts.max() < 2:
            raise NotComputed("no row has two people's scores: add human_scores or people=[...]")
        scale = data.levels(self.rows)
        table = metrics.agreement(scores, scale=scale, groups=self.texts["group"], **options())
        alpha = table.loc["alpha_interval"]
        return Result(
            table.rename_axis("coefficient").reset_index(),
            name="inspect_people",
            reading=f"Up to {counts.max()} people scored an item; their agreement is Krippendorff's"
            f" alpha (interval) {short(alpha['estimate'], alpha['low'], alpha['high'])}."
            f" {(counts == 0).sum():,} of {len(self.texts):,} rows have nobody's score.",
            caption="Agreement of people with one another",
        )


def rouge_l(text: Any, reference: Any) -> float:
    """F1 of the longest common subsequence of words; NaN where a text is missing.

    Source: Lin, ROUGE (2004), section 3.

    >>> rouge_l("a red cat", "the red cat")
    0.6666666666666666
    """
    if not isinstance(text, str) or not isinstance(reference, str):
        return float("nan")
    tokens = [re.findall(r"[^\W_]+", piece.lower()) for piece in (text, reference)]
    return 2 * LCSseq.similarity(*tokens) / max(1, len(tokens[0]) + len(tokens[1]))


def _shared_words(rows: DataFrame) -> list:
    """ROUGE-L of each response with its reference answer."""
    return list(map(rouge_l, rows["response"], rows["reference_answer"]))


def _decision(low: float, high: float, chance: float) -> str:
    """What an interval says of a chance value."""
    if np.isnan(low):
        return "has no interval"
    if low > chance or high < chance:
        return f"is beyond chance ({short(chance)})"
    return f"can't be told from chance ({short(chance)})"


# -- figures


def _sheet(pictures: dict, **look: Any) -> Figure:
    """Pictures side by side, each under its name."""
    with plots.page(**look) as paper:
        panels = {name: DataFrame() for name in pictures}
        ratio = min(1.0, 0.2 + len(panels) / 4)  # one or two stay small
        fig, axes = paper.panels(panels, ratio, across="", min_inches=1.2, shared=False)
        for (ax, _), source in zip(axes, pictures.values(), strict=True):
            ax.imshow(thumbnail(open_image(source), size=240))
            ax.set_axis_off()
        return paper.finish(fig)


def _figure(draw: Callable, height: float, account: str = "", *, axes: dict, **look: Any) -> Figure:
    """What a function of seaborn draws into axes of a height in inches, and their labels."""
    with plots.page(**look) as paper:
        fig, ax = paper.subplots(height)
        draw(ax=ax)
        ax.set(**axes)
        return paper.finish(fig, account)


def _count_map(counts: DataFrame, truth: str, **look: Any) -> Figure:
    """How many items of each criterion have each score."""
    with plots.page(**look) as paper:
        fig, ax = paper.subplots(0.7 + 0.25 * len(counts))
        names = paper.fold(counts.index, paper.inches / 3, 1)
        cells = counts.set_axis(names)
        draw_cells(ax, cells, cells.astype(str), cmap=FROM_ZERO, vmin=0)
        ax.set(xlabel=truth)
        return paper.finish(fig, f"The {len(counts)} commonest criteria")
