"""`inspect`: what a collection holds, and how well its scores are predicted without the images."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
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

WORD = r"[^\W_]+"  # letters and digits of any script
MAX_CRITERIA = 20  # lines of a figure
MAX_RUBRICS = 64  # rubrics that are compared with each other
MAX_IMAGES = 12  # images on one sheet
THUMBNAIL = 240  # pixels of a longer side
# Columns that `texts` has also where the collection lacks them; they are empty then
_OPTIONAL = "reference_answer criteria gold preference human_scores".split()
# Columns that `question` shows once; those that it shows per response; and those of `sample`
_SHARED = "instruction reference_answer criteria".split()
_OF_RESPONSES = "response response_a response_b preference gold human_scores feedback".split()
_SAMPLED = "id group instruction response response_a response_b preference gold criteria".split()


def inspect(items: Items) -> Inspection:
    """Check a collection, and return its inspection.

    Args:
        items: items or pairs, with or without rubrics and scores, as for `data.rows_of`.

    Returns:
        An `Inspection`; each of its methods returns a `Result`.

    Raises:
        CollectionError: rows are bad or images do not open; the message names every one.

    >>> import vjudge as vj
    >>> inspect(vj.load_collection("scenes", split="test", limit=10))
    Inspection of 10 rows
    """
    return Inspection(items)


class Inspection:
    """A checked collection; the result of a method that does not apply to it says why.

    Attributes:
        rows: the canonical rows.
        texts: a table of them without the images; its index is the position in `rows`.
    """

    def __init__(self, items: Items) -> None:
        self.rows = data.rows_of(items)
        self._pictures = Pictures()
        data.validate(self.rows, needs=(), pictures=self._pictures)
        texts = []
        for row in self.rows:
            cells = dict.fromkeys(_OPTIONAL) | row | {"group": unit_of(row)}
            texts.append({name: cells[name] for name in cells if name not in PICTURE_COLUMNS})
        self.texts = DataFrame(texts)

    def __repr__(self) -> str:
        return f"Inspection of {len(self.texts):,} rows"

    def _scored(self) -> tuple[DataFrame, str]:
        """Return `texts` with the truth in `gold`, and the truth's name.

        Raises:
            NotComputed: no row has a gold score or human scores.
        """
        try:
            truth = data.truth(self.rows)
        except data.CollectionError as error:
            raise NotComputed(str(error)) from error
        name = str(truth.name).replace("gold", "true score")
        return self.texts.assign(gold=truth.to_numpy()), name

    @analysis
    def overview(self) -> Result:
        """Count rows, questions, criteria, groups (the units of resampling), and filled columns."""
        filled = self.texts[["reference_answer", "gold", "preference"]].notna().sum()
        has_ratings = ratings(self.texts["human_scores"]).notna().any(axis=1)
        counts = {
            "rows": len(self.texts),
            "questions": len(data.cases(self.rows)),
            **self.texts[["criteria", "group"]].nunique(),
            **filled.add_prefix("with "),
            "with human_scores": has_ratings.sum(),
        }
        return Result(DataFrame([counts]), name="inspect_overview", caption="What was loaded")

    @analysis
    def sample(self, n: int = 8) -> Result:
        """Show `n` random rows, drawn by the seed of `settings`: texts, scores, first images."""
        rows = self.texts.sample(min(n, len(self.texts)), random_state=current().seed).sort_index()
        images = {}
        for position, id in rows["id"].items():
            # (column, position in its list, image): the first image of the row, if it has any
            for _, _, source in islice(pictures_in(self.rows[position]), 1):
                images[id] = source
        return Result(
            rows.filter(_SAMPLED).dropna(axis=1, how="all"),
            name="inspect_sample",
            caption=f"{len(rows)} of {len(self.texts):,} rows",
            plot=partial(_sheet, images) if images else None,
        )

    @analysis
    def question(self, id: str | None = None) -> Result:
        """Show everything that a judge is given for one question: images, rubric, each response.

        Args:
            id: the id of one of its rows; None means the question whose responses have the most
                different scores.
        """
        cases = data.cases(self.rows)
        positions = self._question_rows(cases, id)
        rows = self.texts.loc[positions].sort_values("gold", kind="stable")
        first = self.rows[positions[0]]
        lines = [(name.replace("_", " "), first.get(name)) for name in _SHARED]
        lines += [(f"score {score}", text) for score, text in row_levels(first).items()]
        images: dict = dict(enumerate(first.get("images") or (), start=1))  # label -> source
        for position, row in rows.iterrows():
            for name in _OF_RESPONSES:
                if row.get(name):
                    lines.append((f"{row['id']}: {name.replace('_', ' ')}", row[name]))
            for column, index, source in pictures_in(self.rows[position]):
                if column != "images":  # then it is of a response, the first one without a number
                    number = f" ({index + 1})" if index else ""
                    images[f"{row['id']}: {column.removesuffix('_images')}{number}"] = source
        return Result(
            DataFrame(lines, columns=["what", "text"]).dropna(),
            name="inspect_question",
            caption=f"One of {len(cases):,} questions; its {len(rows)} of {len(self.texts):,} rows",
            plot=partial(_sheet, images) if images else None,
        )

    def _question_rows(self, cases: DataFrame, id: str | None) -> list[int]:
        """Return the positions of the rows of one question.

        Args:
            cases: the table of `data.cases`, one row per question.
            id: as for `question`.
        """
        if id is None:
            n_scores = cases["scores"].map(lambda scores: len(set(scores)))
            return cases.loc[n_scores.idxmax(), "rows"]
        matches = self.texts.index[self.texts["id"] == str(id)]
        if matches.empty:
            raise NotComputed(f"no row has the id {id!r}")
        # Every row belongs to exactly one question
        return next(positions for positions in cases["rows"] if matches[0] in positions)

    @analysis
    def scores(self) -> Result:
        """Count the true scores by criterion, each at the nearest whole level."""
        rows, truth = self._scored()
        counts = pd.crosstab(rows["criteria"].fillna("none"), rows["gold"].round().astype("Int64"))
        levels = sorted({*data.levels(self.rows), *counts.columns})
        counts = counts.reindex(columns=levels, fill_value=0)
        # The share of items that have the commonest level, over all criteria
        share = counts.sum().max() / counts.to_numpy().sum()
        order = counts.sum(axis=1).sort_values(ascending=False, kind="stable")
        counts = counts.loc[order.index]
        return Result(
            counts.rename_axis("criterion").reset_index(),
            name="inspect_scores",
            reading=f"Always giving the commonest score is right for {share:.1%} of the items.",
            caption=f"Items by criterion and {truth}",
            plot=partial(_count_map, counts.head(MAX_CRITERIA), truth),
        )

    @analysis
    def lengths(self) -> Result:
        """Test whether the longer of two responses is the better one, by `metrics.length_test`."""
        if "response_a" in self.texts:
            return self._longer_of_two()
        rows, truth = self._scored()
        resampling = options()
        del resampling["confidence"]  # `length_test` has no such option
        table = metrics.length_test(rows, **resampling)
        # `within` is the same probability as `auc`, between responses to one question alone
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
        """Estimate how often the longer response of a pair is the preferred one."""
        difference = metrics.lengths(self.texts["response_a"])
        difference -= metrics.lengths(self.texts["response_b"])
        # "a": the longer response is preferred, "b": the shorter one; NaN where both are equal
        preference = self.texts["preference"]
        mirrored = preference.replace({"a": "b", "b": "a"})
        longer = preference.where(difference > 0, mirrored).where(difference != 0)
        if not longer.isin(("a", "b")).any():
            remedy = self.rows.layout.remedy("preference")
            raise NotComputed(f"no pair of unequal lengths has a preference: {remedy}")
        table = metrics.win_rate(longer, groups=self.texts["group"]).loc[["win_ties_out"]]
        estimate, low, high = table.iloc[0][["estimate", "low", "high"]]
        return Result(
            table.reset_index(drop=True),
            name="inspect_length",
            reading=f"The longer response of a pair is the preferred one with probability"
            f" {short(estimate, low, high)}, which {_decision(low, high, 0.5)}.",
            caption="How often the longer response is preferred, ties left out",
        )

    @analysis
    def blind(self) -> Result:
        """Correlate judges that never look at an image with the truth.

        "ROUGE-L" scores a response by the longest sequence of words that it shares with the
        reference answer; "length" counts its words.
        """
        rows, truth = self._scored()
        scores = DataFrame({"length": metrics.lengths(rows["response"])})
        if rows["reference_answer"].notna().any():
            scores["ROUGE-L"] = _reference_overlap(rows)
        lines = []
        for judge, column in scores.items():
            correlation = metrics.correlate(column, rows["gold"], groups=rows["group"], **options())
            lines.append({"judge": judge, **correlation.loc["spearman"]})
        table = DataFrame(lines).sort_values("estimate", key=abs, ascending=False)
        if table["estimate"].isna().all():
            raise NotComputed("three scored items are needed whose scores and lengths differ")
        judge, estimate, low, high = table.iloc[0, :4]  # the strongest correlation, of any sign
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
        """Measure the overlap of responses with their reference answers by ROUGE-L, per score."""
        rows, truth = self._scored()
        rows = rows.assign(rouge_l=_reference_overlap(rows)).dropna(subset=["gold", "rouge_l"])
        if rows.empty:
            raise NotComputed("no scored row has a reference answer: add reference_answer")
        levels = rows["gold"].round()
        # One row per level: count, min, 25%, 50%, 75%, max
        quartiles = rows.groupby(levels)["rouge_l"].describe().drop(columns=["mean", "std"])
        medians = quartiles["50%"]
        draw = partial(
            sns.boxplot, rows, x=levels, y="rouge_l", native_scale=True, color=PALETTE[4]
        )
        axes = {"xlabel": truth, "ylabel": "ROUGE-L with the reference", "ylim": (0, 1.02)}
        return Result(
            quartiles.rename_axis(truth).reset_index(),
            name="inspect_reference_overlap",
            reading=f"The median ROUGE-L with the reference is {short(medians.iloc[0])} at the"
            f" lowest {truth} and {short(medians.iloc[-1])} at the highest.",
            caption=f"ROUGE-L of response and reference answer by {truth}",
            plot=partial(_figure, draw, 1.9, f"n = {len(rows):,}", axes=axes),
            data=rows[["id", "group", "gold", "rouge_l"]],
        )

    @analysis
    def rubrics(self) -> Result:
        """Compare each two rubrics by ROUGE-L: their full texts, and their criteria alone.

        Of more than `MAX_RUBRICS` rubrics, a random sample is compared.
        """
        criteria = {}  # full text -> criteria
        for row in self.rows:
            if row.get("criteria"):
                texts = [row["criteria"], *(row.get("descriptions") or ())]
                criteria["\n".join(texts)] = row["criteria"]
        drawn = Series(criteria, dtype=object)
        drawn = drawn.sample(min(MAX_RUBRICS, len(drawn)), random_state=current().seed)
        overlaps = []
        for (text_a, criteria_a), (text_b, criteria_b) in combinations(sorted(drawn.items()), 2):
            overlaps.append((rouge_l(criteria_a, criteria_b), rouge_l(text_a, text_b)))
        if not overlaps:
            raise NotComputed("fewer than two rubrics: there is nothing to compare")
        table = DataFrame(overlaps, columns=["criteria alone", "with levels"])
        draw = partial(sns.histplot, table, bins=20, binrange=(0, 1), element="step")
        axes = {"xlabel": "ROUGE-L of two rubrics", "ylabel": "pairs", "xlim": (0, 1)}
        return Result(
            table.describe().rename_axis("ROUGE-L").reset_index(),
            name="inspect_rubric_overlap",
            reading=f"{len(criteria)} distinct rubrics; two of them share"
            f" {short(table['criteria alone'].median())} of the words of their criteria (median).",
            caption=f"ROUGE-L of {len(table):,} pairs of rubrics",
            plot=partial(_figure, draw, 2.1, axes=axes),
            data=table,
        )

    @analysis
    def pictures(self) -> Result:
        """Count images by their size, and show some."""
        lines = []  # one per use of an image: key of its content, source, width, height
        for row in self.rows:
            for _, _, source in pictures_in(row):
                image = self._pictures(source)
                lines.append((image.key, source, *image.size))
        if not lines:
            raise NotComputed("no row has a picture: add a column `images`")
        uses = DataFrame(lines, columns=["key", "source", "width", "height"])
        # One row per image: uses of the same content have one key
        table = uses.drop_duplicates("key").reset_index(drop=True)
        table["items"] = uses.groupby("key", sort=False).size().to_numpy()
        drawn = {}  # label -> source; labels begin with a number and are all different
        for image in table.head(MAX_IMAGES).itertuples():
            drawn[f"{image.Index + 1}: {image.width} x {image.height}"] = image.source
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
        """Measure how well people agree with one another, by `metrics.agreement`."""
        scores = ratings(self.texts["human_scores"])
        counts = scores.notna().sum(axis=1)
        if not (counts >= 2).any():
            raise NotComputed("no row has two people's scores: add human_scores or people=[...]")
        scale = data.levels(self.rows)
        table = metrics.agreement(scores, scale=scale, groups=self.texts["group"], **options())
        alpha, low, high = table.loc["alpha_interval", ["estimate", "low", "high"]]
        size = f" {short(alpha, low, high)}"
        if np.isnan(alpha):
            size = ", which is undefined: all items that two people scored have one score"
        return Result(
            table.rename_axis("coefficient").reset_index(),
            name="inspect_people",
            reading=f"Up to {counts.max()} people scored an item; their agreement is Krippendorff's"
            f" alpha (interval){size}."
            f" {(counts == 0).sum():,} of {len(self.texts):,} rows have nobody's score.",
            caption="Agreement of people with one another",
        )


def rouge_l(text: Any, reference: Any) -> float:
    """Compute the F1 of the longest common subsequence of words; NaN where a text is missing.

    Source: Lin, ROUGE (2004), section 3.

    >>> rouge_l("a red cat", "the red cat")
    0.6666666666666666
    """
    if not isinstance(text, str) or not isinstance(reference, str):
        return float("nan")
    words = re.findall(WORD, text.lower())
    reference_words = re.findall(WORD, reference.lower())
    # 2 P R / (P + R) with P = lcs / n_words and R = lcs / n_reference_words
    longest = LCSseq.similarity(words, reference_words)
    return 2 * longest / max(1, len(words) + len(reference_words))


def _reference_overlap(rows: DataFrame) -> list[float]:
    """Compute ROUGE-L of each response with its reference answer."""
    return list(map(rouge_l, rows["response"], rows["reference_answer"]))


def _decision(low: float, high: float, chance: float) -> str:
    """Say whether an interval excludes the value of pure chance."""
    if np.isnan(low):
        return "has no interval"
    if low > chance or high < chance:
        return f"is beyond chance ({short(chance)})"
    return f"can't be told from chance ({short(chance)})"


# --- Figures


def _sheet(images: Mapping[Any, Any], **look: Any) -> Figure:
    """Draw images side by side, each under its label.

    Args:
        images: label -> a source that `images.open_image` opens.
        look: options of `plots.page`.
    """
    with plots.page(**look) as paper:
        panels = {label: DataFrame() for label in images}  # an image has no rows of data
        # Height over width of a panel: .45, .70 and .95 for one to three images, so that few wide
        # panels do not fill the page; 1 for more
        ratio = min(1.0, 0.2 + len(panels) / 4)
        fig, axes = paper.panels(panels, ratio, across="", min_inches=1.2, shared=False)
        for (ax, _), source in zip(axes, images.values(), strict=True):
            ax.imshow(thumbnail(open_image(source), size=THUMBNAIL))
            ax.set_axis_off()
        return paper.finish(fig)


def _figure(
    draw: Callable[..., Any],
    height: float,
    label: str = "",
    *,
    axes: Mapping[str, Any],
    **look: Any,
) -> Figure:
    """Draw a figure of one panel.

    Args:
        draw: a function of seaborn that has its data already and takes the axes as `ax`.
        height: of the figure, in inches.
        label: what the caption adds, such as "n = 80".
        axes: labels and limits, as `Axes.set` takes them.
        look: options of `plots.page`.
    """
    with plots.page(**look) as paper:
        fig, ax = paper.subplots(height)
        draw(ax=ax)
        ax.set(**axes)
        return paper.finish(fig, label)


def _count_map(counts: DataFrame, truth: str, **look: Any) -> Figure:
    """Draw the number of items of each criterion (rows) at each true score (columns).

    Args:
        counts: the numbers, the commonest criterion first.
        truth: the label of the horizontal axis.
        look: options of `plots.page`.
    """
    with plots.page(**look) as paper:
        fig, ax = paper.subplots(0.7 + 0.25 * len(counts))  # inches: the axis, and each row
        # Each criterion is shortened to one line, a third of the page's width
        cells = counts.set_axis(paper.fold(counts.index, paper.inches / 3, 1))
        draw_cells(ax, cells, cells.astype(str), cmap=FROM_ZERO, vmin=0)
        ax.set(xlabel=truth)
        return paper.finish(fig, f"The {len(counts)} commonest criteria")
