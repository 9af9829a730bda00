"""The result of a build: the collection with its export, its faults, its criteria's diversity."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from rapidfuzz import fuzz, process

from vjudge import plots
from vjudge.builder import faults
from vjudge.builder.stages import VERSION, JsonObject, load_seeds
from vjudge.data import CollectionError, validate
from vjudge.data.notes import warn
from vjudge.images import open_image
from vjudge.metrics import length_test
from vjudge.prompts.wordings import ASSETS
from vjudge.results import NotComputed, Result, analysis

# How far from a half the share of pairs may lie in which the better response is the longer one.
TOLERATED_BALANCE = 0.05


@dataclass(frozen=True)
class Build:
    """A built collection, and how it came about.

    Attributes:
        generator: its name.
        images: name -> image, as they were given.
        options: of the call of `build`.
        rows: canonical rows, one per response, of the instructions that have a response for every
            score.
        n_rubrics, n_cases, n_incomplete: rubrics; instructions with a response for every score;
            instructions that lack some response and are left out.
        log: one row per answer, with the columns call, stage, try (from 0), fault (missing where
            the answer was accepted) and detail.
    """

    generator: str
    images: Mapping
    options: JsonObject
    rows: list[JsonObject]
    n_rubrics: int
    n_cases: int
    n_incomplete: int
    log: pd.DataFrame

    @property
    def balance(self) -> tuple[float, float]:
        """Measure whether length predicts the score.

        Returns:
            The share of pairs of responses to one instruction in which the better response is the
            longer one, and the p value of its test; see `vjudge.metrics.length_test`.
        """
        by_words = length_test(self.rows, n_resamples=0).loc["words"]
        return float(by_words["within"]), float(by_words["p"])

    def faults(self) -> pd.DataFrame:
        """Count the faults: one row per kind in `KINDS`, one column per stage, and "all"."""
        table = pd.crosstab(self.log["fault"], self.log["stage"])
        table = table.reindex(index=list(faults.KINDS), columns=list(faults.STAGES), fill_value=0)
        return table.assign(all=table.sum(axis=1))

    @analysis
    def caught(self, planted: Mapping[str, int] | None = None) -> Result:
        """Show which faults were found in the generator's answers.

        Args:
            planted: kind of fault -> how many a scripted generator made, to compare.
        """
        # One row per kind of fault that was found or planted.
        table = self.faults()["all"].rename("found").rename_axis("fault").reset_index()
        if planted is not None:
            table.insert(1, "planted", [int(planted.get(kind, 0)) for kind in table["fault"]])
        table = table[table.iloc[:, 1:].sum(axis=1) > 0].reset_index(drop=True)
        return Result(
            table,
            name="build_faults",
            reading=_caught_reading(table, len(self.log)),
            caption=f"Faults in the answers of {self.generator}; a fault that was not planted is"
            " the generator's own",
            plot=partial(_draw_faults, table) if len(table) else None,
        )

    @analysis
    def diversity(self, seeds: str | Path = "general") -> Result:
        """Show how similar each criterion is to its closest seed, and to its closest other rubric.

        Similarity is rapidfuzz's ratio: the percentage of characters in the same order. "The
        closest other rubric" is the most similar other criterion of this build.

        Args:
            seeds: as for `build`.

        Raises:
            NotComputed: nothing was built.
        """
        criteria = list({row["criteria"]: None for row in self.rows})  # each once, in order
        if not criteria:
            raise NotComputed("nothing was built; see caught()")
        texts = list(map(faults.normal, criteria))
        seed_texts = [faults.normal(seed["criteria"]) for seed in load_seeds(seeds)]
        similarities = process.cdist(texts, texts, scorer=fuzz.ratio)  # (criteria, criteria)
        np.fill_diagonal(similarities, -1)  # a criterion is not its own neighbour
        table = pd.DataFrame({"criterion": criteria})
        table["closest seed"] = process.cdist(texts, seed_texts, scorer=fuzz.ratio).max(axis=1)
        closest = pd.Series(similarities.max(axis=1))
        table["closest other rubric"] = closest.where(closest >= 0)  # a single criterion has none
        nearest = table.iloc[:, 1:]
        n_near = int((nearest >= faults.NEAR).any(axis=1).sum())
        to_seed = nearest["closest seed"]
        return Result(
            table,
            name="build_diversity",
            reading=f"Of {len(table)} criteria the closest to a seed is {to_seed.max():.0f} % like"
            f" it, the median {to_seed.median():.0f} %; {n_near} reach {faults.NEAR:.0f} %, from"
            " where on two are near duplicates.",
            caption="How like the closest seed, and the closest other rubric, each criterion is;"
            f" dashed: from {faults.NEAR:.0f} % on a criterion is rejected",
            plot=partial(_draw_diversity, nearest),
            view=table.sort_values("closest seed", ascending=False).round(0),
        )

    def export(
        self,
        folder: str | Path,
        *,
        name: str = "Built collection",
        license: str = "other",
    ) -> Path:
        """Write the collection as a folder for the hub, `load_collection` and `fine_tune`.

        Where length predicts the score, a RuntimeWarning and the data card say so.

        Args:
            folder: a new or empty one. It gets README.md (the data card), images/ and
                train.parquet in the canonical columns.
            name: of the collection.
            license: the hub's identifier. The licences of the images and the generator may
                restrict your choice.

        Returns:
            The folder.

        Raises:
            CollectionError: the folder is not empty, or there are no rows.
        """
        folder = Path(folder).expanduser()
        if folder.exists() and any(folder.iterdir()):
            raise CollectionError(f"{str(folder)!r} holds something already; give a new folder")
        validate(self.rows)

        # 1) Warn where the better response is significantly often the longer or the shorter one.
        share, p = self.balance
        predicts_score = abs(share - 0.5) > TOLERATED_BALANCE and p < 0.05
        if predicts_score:
            warn(
                f"the better of two responses to an instruction is the longer one in {share:.1%}"
                f" (p = {p:.2g}): a judge could score by length. Use another generator or a"
                " smaller tolerance",
                RuntimeWarning,
            )

        # 2) Write images and rows, and the data card.
        self._write_rows(folder)
        card = jinja2.Template((ASSETS / "card.md").read_text("utf-8")).render(
            build=self,
            name=name,
            license=license,
            share=share,
            p=p,
            lean=predicts_score,
            faults=self.faults()["all"],
            kinds=faults.KINDS,
            prompts=VERSION,
        )
        (folder / "README.md").write_text(f"{card}\n", encoding="utf-8")
        return folder

    def _write_rows(self, folder: Path) -> None:
        """Write the rows to train.parquet, and each image once to images/.

        The written rows name their image by its path in the folder.
        """
        (folder / "images").mkdir(parents=True, exist_ok=True)
        rows = []
        for row in self.rows:
            path = f"images/{row['group']}.png"
            if not (folder / path).exists():
                open_image(row["images"][0]).save(folder / path)
            rows.append(row | {"images": [path]})
        pd.DataFrame(rows).to_parquet(folder / "train.parquet", index=False)


def _caught_reading(table: pd.DataFrame, n_answers: int) -> str:
    """Say how many answers were rejected, most often why, and whether planted faults were found.

    Args:
        table: one row per kind of fault; columns fault, found and, to compare, planted.
        n_answers: all answers of the generator.
    """
    if table.empty:
        return f"None of {n_answers:,} answers was rejected."
    worst = table.loc[table["found"].idxmax()]
    text = (
        f"{table['found'].sum():,} of {n_answers:,} answers were rejected, most often as"
        f" {worst['fault']!r} ({worst['found']})."
    )
    if "planted" not in table:
        return text
    missed = table[table["found"] < table["planted"]]
    if missed.empty:
        return f"{text} Every planted fault was found."
    counts = [f"{row.fault!r} ({row.found} of {row.planted})" for row in missed.itertuples()]
    return f"{text} Fewer were found than planted of {', '.join(counts)}."


def _draw_faults(table: pd.DataFrame, **options: Any) -> Figure:
    """Draw a bar per kind of fault: how many were found and, beside it, how many were planted.

    Args:
        table: as for `_caught_reading`.
        options: of `plots.page`.
    """
    # From bottom to top the last kind comes first, and "found" before "planted".
    bars = table.set_index("fault").iloc[::-1, ::-1]
    with plots.page(**options) as paper:
        fig, ax = paper.subplots(0.9 + 0.28 * len(bars))  # inches: the axis, and each bar
        bars.plot.barh(ax=ax, width=0.76, legend=False)
        for container in ax.containers:
            ax.bar_label(container, padding=2)
        if "planted" in table:
            ax.legend(reverse=True)  # in the order of the bars, from top to bottom
        ax.set(xlabel="answers", ylabel="")
        return paper.finish(fig)


def _draw_diversity(similarities: pd.DataFrame, **options: Any) -> Figure:
    """Draw a histogram per column of similarities in percent, side by side.

    Args:
        similarities: a row per criterion, NaN where it has no neighbour.
        options: of `plots.page`.
    """
    with plots.page(**options) as paper:
        fig, panels = paper.panels(
            {name: similarities[name].dropna() for name in similarities},
            0.7,  # height by width
            across="characters in the same order (%)",
            up="criteria",
            shared=False,
        )
        for ax, values in panels:
            ax.hist(values, bins=range(0, 101, 10))
            ax.axvline(faults.NEAR, color="black", ls="--", lw=0.8)
            ax.set_xlim(0, 100)
        return paper.finish(fig)
