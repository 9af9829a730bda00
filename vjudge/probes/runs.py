"""The runs that a probe compares: one of the original items, one for each perturbation; graded once, or given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pandas as pd

from vjudge.data import canonical
from vjudge.metrics._bootstrap import Floats
from vjudge.metrics._tables import check_options, scores
from vjudge.probes._cluster import NAN
from vjudge.probes.outcome import LEAST, MARGINS, NEEDS, Unmet
from vjudge.probes.perturbations import PERTURBATIONS, perturb
from vjudge.records import is_missing

ORIGINAL = "original"
SAMPLED = "sampled"  # several verdicts an item
COMPARED = "compared"  # a comparison of pairs, as `Judge.compare` returns it
PADDED = "compared_padded"  # a comparison of each response with itself, padded
GOLD = ("observed", "exact", "rated")
MOVED = 0.5  # score points: what counts as a move on a scale of whole scores


class Trials:
    """Runs by name: "original", the names of `PERTURBATIONS`, "sampled", "compared" and "compared_padded".

    Every probe takes the arguments of this class, or one of its objects, so that several probes share runs.

    Args:
        judge: anything with `grade(items, out=, progress=, ...)` as `vjudge.Judge` has it; or the runs themselves, as
            a mapping of name to frame, or one frame, which is the original run.
        items: what the judge grades; with runs, needed only by probes that look at the texts.
        out: a folder in which each run is kept in a folder of its own name; the same call continues there.
        score: the run's column that is compared, "score" or "expected_score".
        gold: what gold is, for whatever is read off observed scores at equal gold. "observed": scores of unknown
            noise, so that such rows are descriptions: where better answers are longer, noise in gold alone makes an
            honest judge look as if it paid for length. "exact": the truth itself, as in generated collections.
            "rated": the mean of `human_scores`, two or more an item, whose disagreement says how noisy it is.
            In each case an item without a gold score has the mean of its `human_scores`.
        margins: unit -> the largest effect that counts as none, beside `outcome.MARGINS`.
        least: the least share of its agreement with gold that a judge must lose with a part it must look at, 0-1.
        needs: parts ("image", "rubric", "query", "criterion") without which this collection can't be judged: a judge
            must lose agreement with each. For other parts, what is lost is described.
        confidence: of the intervals, in (0, 1).
        seed: of the perturbations.
        grading: further options of `Judge.grade`: mode, batch_size, temperature and so on.
    """

    def __init__(
        self,
        judge: Any,
        items: Any = None,
        *,
        out: Any = None,
        score: str = "score",
        gold: str = "observed",
        margins: Mapping[str, float] | None = None,
        least: float = LEAST,
        needs: Sequence[str] = NEEDS,
        confidence: float = 0.95,
        seed: int = 0,
        **grading: Any,
    ) -> None:
        check_options(confidence=confidence)
        if gold not in GOLD:
            raise ValueError(f"gold={gold!r}: use one of {', '.join(GOLD)}")
        if not 0 < least < 1:
            raise ValueError(f"least={least}: give a share of the agreement with gold, above 0 and below 1")
        unknown = set(margins or ()) - set(MARGINS)
        if unknown:
            raise ValueError(f"margins: no unit is called {', '.join(sorted(unknown))}; use {', '.join(MARGINS)}")
        self.judge = None if isinstance(judge, (Mapping, pd.DataFrame)) else judge
        if self.judge is not None and not hasattr(judge, "grade"):
            raise ValueError(f"judge is a {type(judge).__name__}; give a Judge, a run (DataFrame) or a mapping of runs")
        if self.judge is None and (out is not None or grading):
            raise ValueError("out and grading options are for a judge; runs are graded already")
        frames = {ORIGINAL: judge} if isinstance(judge, pd.DataFrame) else judge if self.judge is None else {}
        self.runs: dict[str, pd.DataFrame] = {name: _checked(run, name) for name, run in frames.items()}
        self.out = None if out is None else Path(out)
        wrong = set(needs) - {kind.part for kind in PERTURBATIONS.values() if kind.must == "move"}
        if wrong:
            raise ValueError(f"needs: no perturbation takes {', '.join(sorted(wrong))} away")
        self.score, self.gold, self.margins = score, gold, {**MARGINS, **(margins or {})}
        self.least, self.needs = least, tuple(needs)
        self.confidence, self.seed, self.grading = confidence, seed, grading
        self._source, self._items = items, None
        self._changed: dict[str, datasets.Dataset] = {}
        self._scored: dict[str, Scored] = {}

    @classmethod
    def of(cls, judge: Any, items: Any = None, **options: Any) -> Trials:
        """The trials themselves where these are passed on, else new ones."""
        if not isinstance(judge, Trials):
            return cls(judge, items, **options)
        if options or items is not None:
            raise ValueError("items and options belong to the Trials: give them where these are set up")
        return judge

    @property
    def name(self) -> str:
        """The judge's name, as its runs have it."""
        if self.judge is not None:
            return str(getattr(self.judge, "name", type(self.judge).__name__))
        return next((name_of(run) for run in self.runs.values() if "judge" in run and len(run)), "judge")

    @property
    def items(self) -> datasets.Dataset:
        """The collection, canonical."""
        if self._source is None:
            raise Unmet("needs the items: pass the collection that was graded as items=")
        if self._items is None:
            source = self._source
            self._items = canonical(source.to_dict("records") if isinstance(source, pd.DataFrame) else source)
        return self._items

    def column(self, name: str) -> pd.Series:
        """A column of the original run or, where it has none, of the items, by id.

        Raises:
            Unmet: neither has it.
        """
        run = self.run()
        source = run if name in run else self._source if isinstance(self._source, pd.DataFrame) else self.items
        if name not in (source.columns if isinstance(source, pd.DataFrame) else source.features):
            raise Unmet(f"needs the items' column {name}")
        values = source[name] if isinstance(source, pd.DataFrame) else list(source[name])
        ids = text_ids(source if isinstance(source, pd.DataFrame) else pd.DataFrame({"id": list(source["id"])}))
        held = np.empty(len(ids), dtype=object)
        held[:] = list(values)
        series = pd.Series(held, index=pd.Index(ids, dtype=object))
        return series[~series.index.duplicated()]

    def changed(self, name: str) -> datasets.Dataset:
        """The collection after a perturbation."""
        if name not in self._changed:
            self._changed[name] = perturb(self.items, name, seed=self.seed)
        return self._changed[name]

    def run(self, name: str = ORIGINAL) -> pd.DataFrame:
        """A run, graded now where it is not there.

        Raises:
            Unmet: runs were given and this one is not among them, or the perturbation applies to no item.
        """
        if name in self.runs:
            return self.runs[name]
        if self.judge is None:
            how = f'grade probes.perturb(items, "{name}") and pass it' if name in PERTURBATIONS else "pass it"
            raise Unmet(f"needs the run {name!r}: {how} in the mapping of runs")
        if name == ORIGINAL:
            return self.grade(name, self.items)
        try:
            items = self.changed(name)
        except ValueError as error:
            raise Unmet(f"{name}: {error}") from error
        if not len(items):
            raise Unmet(f"{name}: applies to none of the {len(self.items)} items")
        return self.grade(name, items)

    def grade(self, name: str, items: Any, **options: Any) -> pd.DataFrame:
        """Grade items under a name, once."""
        if name not in self.runs:
            assert self.judge is not None
            out = None if self.out is None else self.out / name
            self.runs[name] = _checked(self.judge.grade(items, out=out, **{**self.grading, **options}), name)
        return self.runs[name]

    def compare(self, name: str, pairs: Any) -> pd.DataFrame:
        """Compare pairs in both orders under a name, once.

        Raises:
            Unmet: runs were given without this one, or the judge has no wording for two responses.
        """
        if name not in self.runs:
            if self.judge is None:
                raise Unmet(f"needs a comparison of pairs in both orders: pass it as the run {name!r}")
            if getattr(self.judge, "pairs", None) is None:
                raise Unmet(f"needs a judge with a wording for two responses; {self.name!r} has none")
            out = None if self.out is None else self.out / name
            self.runs[name] = _checked(self.judge.compare(pairs, out=out, **self.grading), name)
        return self.runs[name]

    def available(self, *names: str) -> list[str]:
        """Those of the perturbations that can be run, or were given; the first where none can, so `run` says why."""
        return list(names) if self.judge is not None else [name for name in names if name in self.runs] or [names[0]]

    def scored(self, name: str = ORIGINAL) -> Scored:
        """A run's scores by item."""
        if name not in self._scored:
            self._scored[name] = scored(self.run(name), self.score)
        return self._scored[name]

    def contrast(self, name: str) -> Contrast:
        """The scores of the same items in the original run and in another."""
        return Contrast.of(self.scored(), self.scored(name))


def _checked(run: Any, name: str) -> pd.DataFrame:
    """A run with ids that stand once in a sample, or an error that says what is wrong with it."""
    if name in (COMPARED, PADDED):
        if not isinstance(run, pd.DataFrame) or not {"id", "verdict"} <= set(run.columns):
            raise ValueError(
                f"run {name!r}: give a DataFrame as Judge.compare returns it, with the columns id and verdict"
            )
        return run
    if not isinstance(run, pd.DataFrame) or "id" not in run or not {"score", "expected_score"} & set(run.columns):
        raise ValueError(f"run {name!r}: give a DataFrame with the columns id and score, as Judge.grade returns it")
    twice = run.duplicated([column for column in ("id", "sample", "judge") if column in run])
    if twice.any():
        ids = ", ".join(map(repr, run.loc[twice, "id"].head(5)))
        raise ValueError(f"run {name!r}: {int(twice.sum())} ids stand twice ({ids}); give every item its own id")
    return run


@dataclass
class Scored:
    """A run as arrays, an entry an item: ids and groups as text; scores and gold, NaN where missing."""

    ids: np.ndarray
    score: Floats
    gold: Floats
    group: np.ndarray

    def __getitem__(self, rows: Any) -> Scored:
        return Scored(self.ids[rows], self.score[rows], self.gold[rows], self.group[rows])


def scored(run: pd.DataFrame, score: str) -> Scored:
    """A run's scores by item; the mean over samples where there are several. Missing stays NaN.

    An item without gold has the mean of people's scores, where it has these.

    Raises:
        Unmet: the run has no such column.
        TypeError: a score is no number; each is named.
    """
    if score not in run:
        raise Unmet(f"needs the column {score!r}; the run has {', '.join(run.columns[:12])}")
    ids = text_ids(run)
    gold = scores(run["gold"], name="gold") if "gold" in run else np.full(len(run), NAN)
    if "human_scores" in run:  # as `data.truth` has it
        gold = np.where(np.isnan(gold), ratings_of(run["human_scores"])[0], gold)
    result = Scored(ids, scores(run[score], name=score), gold, groups_of(run))
    if "sample" not in run and run["id"].is_unique:
        return result
    frame = pd.DataFrame({"id": ids, "score": result.score})
    first = ~frame["id"].duplicated().to_numpy()
    means = frame.groupby("id", sort=False)["score"].mean()
    return Scored(ids[first], means.to_numpy(dtype=float), gold[first], result.group[first])


@dataclass
class Contrast:
    """The scores of the same items before and after one change, of those scored in both.

    Args:
        before, after, gold, group: an entry an item.
        missing: items of the changed run that lack one of the two scores.
    """

    before: Floats
    after: Floats
    gold: Floats
    group: np.ndarray
    ids: np.ndarray
    missing: int

    @classmethod
    def of(cls, old: Scored, new: Scored) -> Contrast:
        """The contrast of two runs.

        Raises:
            ValueError: the second has items that the first has not.
        """
        if not np.array_equal(old.ids, new.ids):
            place = {id: row for row, id in enumerate(old.ids)}
            unknown = [id for id in new.ids if id not in place]
            if unknown:
                raise ValueError(
                    f"{len(unknown)} ids of the second run are not in the first ({', '.join(map(repr, unknown[:5]))}): "
                    "compare runs of the same items"
                )
            old = old[[place[id] for id in new.ids]]
        used = ~np.isnan(new.score - old.score)
        return cls(old.score, new.score, old.gold, old.group, new.ids, int((~used).sum())).take(used)

    def take(self, rows: np.ndarray) -> Contrast:
        """Some of the items."""
        before, after, gold = self.before[rows], self.after[rows], self.gold[rows]
        return Contrast(before, after, gold, self.group[rows], self.ids[rows], self.missing)

    @property
    def delta(self) -> Floats:
        """The change of each score."""
        return self.after - self.before

    @property
    def flags(self) -> np.ndarray:
        """Which scores moved by half a level or more."""
        return np.abs(self.delta) >= MOVED

    @property
    def moved(self) -> float:
        """The share of items whose score moved; NaN of none."""
        return float(self.flags.mean()) if len(self.before) else NAN

    @property
    def has_gold(self) -> bool:
        """Whether gold scores of these items are there and differ."""
        return len(np.unique(self.gold[~np.isnan(self.gold)])) > 1


def text_ids(run: pd.DataFrame) -> np.ndarray:
    """Ids as text."""
    ids = run["id"].to_numpy(dtype=object)
    if pd.api.types.infer_dtype(ids, skipna=False) == "string":
        return ids
    return np.array([str(id) for id in ids], dtype=object)


def groups_of(run: pd.DataFrame) -> np.ndarray:
    """The unit of resampling of each row: its group, its id where it names none."""
    if "group" not in run:
        return text_ids(run)
    labels = run["group"].to_numpy(dtype=object)
    gone = pd.isna(labels)
    return np.where(gone, text_ids(run), labels) if gone.any() else labels


def name_of(run: pd.DataFrame) -> str:
    """The judge of a run."""
    return str(run["judge"].iloc[0]) if "judge" in run and len(run) else "judge"


def ratings_of(cells: pd.Series) -> tuple[Floats, Floats]:
    """Each item's mean of people's scores, NaN of none, and the variance of that mean, NaN of fewer than two.

    Args:
        cells: a list of scores an item, missing ones None or NaN.
    """
    means, errors = np.full(len(cells), NAN), np.full(len(cells), NAN)
    for place, cell in enumerate(cells):
        values = (
            [] if not isinstance(cell, (list, tuple, np.ndarray)) else [float(v) for v in cell if not is_missing(v)]
        )
        if values:
            means[place] = np.mean(values)
        if len(values) > 1:
            errors[place] = np.var(values, ddof=1) / len(values)
    return means, errors
