"""The runs that a probe compares, graded once or given; effects that hold when rows share an image; verdicts on them.

"Moves" needs a p value of no effect below .05 after Holm's correction over all tests of the table, so that one honest
judge in twenty at most is accused of anything. "Stays" needs the whole interval inside a stated margin: that an effect
was not shown does not show that there is none. Where a score must move, the margin is the least effect that counts, and
p is that of an effect of just this size. What the intervals cover was measured: figures/validity.csv.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import datasets
import numpy as np
import pandas as pd
from scipy import special

from vjudge.data import canonical
from vjudge.metrics.agreement import read_ratings
from vjudge.metrics.resampling import Floats
from vjudge.metrics.tables import group_codes, groups_of, holm, scores, shares, warn
from vjudge.probes.perturbations import PERTURBATIONS, perturb
from vjudge.records import NAN

ORIGINAL = "original"
SAMPLED = "sampled"  # several verdicts an item
COMPARED = "compared"  # a comparison of pairs, as `Judge.compare` returns it
PADDED = "compared_padded"  # a comparison of each response with itself, padded
GOLD = {"observed": "description: gold's noise is not held equal", "exact": "gold held equal",
        "rated": "people's mean held equal, less its noise"}  # fmt: skip
STEP = 1.0  # score points: what a score changes by if it changes at all, where nothing observed says how much
LEVEL = 0.05  # of the verdicts; the p values are there for any other
TAIL = 1 - LEVEL / 2
MARGINS = {
    "score points": 0.2,
    "score per doubling": 0.2,
    "score per gold point": 0.1,
    "share less one half": 0.05,
}
"""Unit -> the largest effect that counts as none, for scales of about five levels: a fifth of a level, a tenth of the
slope on gold, and 45 to 55 % for one of two responses."""
COLUMNS = {
    "judge": object, "probe": object, "case": object, "must": object, "effect": float, "low": float, "high": float,
    "unit": object, "p": float, "p_holm": float, "margin": float, "verdict": object, "n": int, "groups": int,
    "missing": int, "moved": float, "reading": object, "note": object,
}  # fmt: skip
"""A probe's columns.

- must: "move" where a sound judge's score must change, "stay" where it must not, None for a description
- low, high: the 95 % interval of the effect; n, groups: rows and independent groups used; missing: rows left out
- p: two-sided, of no effect where the score must stay, of an effect of `margin` where it must move; p_holm: corrected
- margin: the largest effect that counts as none where the score must stay, the least loss where it must move
  (a smaller effect is never called a failure, however sure it is)
- verdict: "moves", "stays" or "can't say"; reading: the verdict against what must be, in words
- moved: share of items whose score changed by half a level or more
"""


class Unmet(ValueError):
    """A probe lacks something; the message says what it needs and how to give it."""


class Trials:
    """Runs by name: "original", the names of `PERTURBATIONS`, "sampled", "compared" and "compared_padded".

    Every probe takes the arguments of this class, or one of its objects, so that several probes share runs.

    Args:
        judge: a judge; or the runs themselves, as a mapping of name to frame, or one frame, the original run.
        items: what the judge grades; with runs, needed only by probes that look at the texts.
        out: a folder in which each run is kept in a folder of its own name; the same call continues there.
        score: the run's column that is compared, "score" or "expected_score".
        gold: what gold is, where scores are read at equal gold. "observed": of unknown noise, so that such rows are
            descriptions. "exact": the truth itself, as in generated collections. "rated": the mean of `human_scores`,
            two or more an item. In each case an item without gold has the mean of its `human_scores`.
        margins: unit -> the largest effect that counts as none, beside `MARGINS`.
        least: the least share of its agreement with gold that a judge must lose with the image or the rubric, 0-1.
        seed: of the perturbations; grading: further options of `Judge.grade`, such as mode or batch_size.
    """

    def __init__(
        self, judge: Any, items: Any = None, *, out: Any = None, score: str = "score", gold: str = "observed",
        margins: Mapping[str, float] | None = None, least: float = 0.25, seed: int = 0, **grading: Any,
    ) -> None:  # fmt: skip
        runs = {ORIGINAL: judge} if isinstance(judge, pd.DataFrame) else judge
        self.judge = None if isinstance(runs, Mapping) else judge
        if gold not in GOLD:
            raise ValueError(f"gold={gold!r}: use one of {', '.join(GOLD)}")
        if not 0 < least < 1:
            raise ValueError(
                f"least={least}: give a share of the agreement with gold, above 0 and below 1"
            )
        if unknown := set(margins or ()) - set(MARGINS):
            raise ValueError(
                f"margins: no unit is called {', '.join(sorted(unknown))}; use {', '.join(MARGINS)}"
            )
        if self.judge is not None and not hasattr(judge, "grade"):
            raise ValueError(
                f"judge is a {type(judge).__name__}; give a Judge, a run (DataFrame) or a mapping of runs"
            )
        if self.judge is None and (out is not None or grading):
            raise ValueError("out and grading options are for a judge; runs are graded already")
        self.runs = (
            {name: _checked(run, name) for name, run in runs.items()} if self.judge is None else {}
        )
        names = [
            str(name)
            for run in self.runs.values()
            if "judge" in run
            for name in run["judge"].head(1)
        ]
        self.name = " to ".join(dict.fromkeys(names)) or str(getattr(self.judge, "name", "judge"))
        self.out = None if out is None else Path(out)
        self.score, self.gold, self.margins = score, gold, {**MARGINS, **(margins or {})}
        self.least, self.seed, self.grading = least, seed, grading
        self._source = items

    @classmethod
    def of(cls, judge: Any, items: Any = None, **options: Any) -> Trials:
        """The trials themselves where these are passed on, else new ones."""
        if not isinstance(judge, Trials):
            return cls(judge, items, **options)
        if options or items is not None:
            raise ValueError(
                "items and options belong to the Trials: give them where these are set up"
            )
        return judge

    @cached_property
    def items(self) -> datasets.Dataset:
        """The collection, canonical."""
        if self._source is None:
            raise Unmet("needs the items: pass the collection that was graded as items=")
        return canonical(self._source)

    def column(self, name: str) -> pd.Series:
        """A column of the original run or, where it has none, of the items, by id; `Unmet` where neither has it."""
        frame: Any = self.run()
        if name not in frame:
            frame = self._source if isinstance(self._source, pd.DataFrame) else self.items
        if name not in getattr(frame, "column_names", frame):
            raise Unmet(f"needs the items' column {name}")
        values = pd.Series([*frame[name]], index=text_ids(frame), dtype=object)
        return values[~values.index.duplicated()]

    def changed(self, name: str) -> datasets.Dataset:
        """The collection after a perturbation; `Unmet` where this applies to no item."""
        items = self.items
        try:
            changed = perturb(items, name, seed=self.seed)
        except ValueError as error:
            raise Unmet(f"{name}: {error}") from error
        if not len(changed):
            raise Unmet(f"{name}: applies to none of the {len(items)} items")
        return changed

    def run(self, name: str = ORIGINAL, items: Any = None, **options: Any) -> pd.DataFrame:
        """A run by name; where it is not there, graded now, in a folder of that name: of `items` if its name says none.

        `Unmet` where runs were given without this one, or a judge has no wording for two responses.
        """
        if name in self.runs:
            return self.runs[name]
        paired = name in (COMPARED, PADDED)
        if self.judge is None:
            how = (
                f'grade probes.perturb(items, "{name}")'
                if name in PERTURBATIONS
                else "grade the items"
            )
            how = "compare pairs in both orders" if paired else how
            raise Unmet(f"needs the run {name!r}: {how} and pass it in the mapping of runs")
        if paired and getattr(self.judge, "pairs", None) is None:
            raise Unmet(f"needs a judge with a wording for two responses; {self.name!r} has none")
        if items is None:
            items = self.items if name == ORIGINAL else self.changed(name)
        grade = self.judge.compare if paired else self.judge.grade
        out = None if self.out is None else self.out / name
        self.runs[name] = _checked(grade(items, out=out, **{**self.grading, **options}), name)
        return self.runs[name]

    def scored(self, name: str = ORIGINAL) -> pd.DataFrame:
        """A run's scores by item, see `scored`."""
        return scored(self.run(name), self.score)

    def contrast(self, name: str) -> pd.DataFrame:
        """Items that the original run and another scored: before, after, delta, gold, group.

        `attrs["missing"]` counts the others of the second run, which may lack items of the first.
        """
        old, new = self.scored(), self.scored(name)
        if unknown := [id for id in new.index if id not in old.index]:
            text = (
                f"{len(unknown)} ids of the second run are not in the first, such as {unknown[0]!r}"
            )
            raise ValueError(f"{text}: compare runs of the same items")
        pair = old.loc[new.index].rename(columns={"score": "before"}).assign(after=new["score"])
        pair["delta"] = pair["after"] - pair["before"]
        pair.attrs["missing"] = int(pair["delta"].isna().sum())
        return pair[pair["delta"].notna()]

    def row(
        self,
        case: str,
        effect: Effect | None = None,
        unit: str = "",
        must: str | None = None,
        **cells: Any,
    ) -> dict[str, Any]:
        """A row of a probe's table, before the verdict; a description has neither p nor margin."""
        line = {
            "judge": self.name,
            "case": case,
            "must": must,
            **(effect or Effect())._asdict(),
            "unit": unit,
        }
        line |= {
            "margin": self.margins.get(unit, NAN),
            "missing": 0,
            "moved": NAN,
            "note": "",
            **cells,
        }
        return line if must else line | {"p": NAN, "margin": NAN}

    def table(self, probe: str, rows: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
        """A probe's rows with their verdicts, Holm's method over all.

        `attrs` has n_tests, method, and against: (probe, case) of each verdict against what must be.
        """
        lines = [{"probe": probe, **row} for row in rows]
        cells = {
            name: pd.Series([line.get(name) for line in lines], dtype=kind)
            for name, kind in COLUMNS.items()
        }
        frame = judged(pd.DataFrame(cells))
        wrong = frame.loc[
            frame["reading"].astype(str).str.contains("though it must"), ["probe", "case"]
        ]
        frame.attrs = {
            "n_tests": int(frame["p"].notna().sum()),
            "against": [*wrong.itertuples(index=False, name=None)],
            "method": f"95% intervals by a jackknife over groups with Student's t; seed {self.seed}",
        }
        return frame


def _checked(run: Any, name: str) -> pd.DataFrame:
    """A run with ids that stand once in a sample, or an error that says what is wrong with it."""
    paired = name in (COMPARED, PADDED)
    maker, verdicts = (
        ("compare", ("verdict", "verdict_ab")) if paired else ("grade", ("score", "expected_score"))
    )
    if not isinstance(run, pd.DataFrame) or "id" not in run or not {*verdicts} & {*run}:
        text = f"run {name!r}: give a DataFrame as Judge.{maker} returns it"
        raise ValueError(f"{text}, with the columns id and {verdicts[0]}")
    twice = run.duplicated([column for column in ("id", "sample") if column in run])
    if twice.any() and not paired:
        ids = ", ".join(map(repr, run.loc[twice, "id"].head(5)))
        raise ValueError(
            f"run {name!r}: {int(twice.sum())} ids stand twice ({ids}); give one judge's run of each item"
        )
    return run


def verdicts(run: pd.DataFrame, score: str) -> pd.DataFrame:
    """A run's verdicts by id: score, gold (where missing, the mean of people's) and group."""
    if score not in run:
        raise Unmet(f"needs the column {score!r}; the run has {', '.join(run.columns[:12])}")
    gold = scores(run["gold"], name="gold") if "gold" in run else np.full(len(run), NAN)
    if "human_scores" in run and np.isnan(gold).any():  # as `data.truth` has it
        gold = np.where(np.isnan(gold), ratings(run["human_scores"]).mean(axis=1), gold)
    cells = {"score": scores(run[score], name=score), "gold": gold, "group": groups_of(run)}
    return pd.DataFrame(cells, index=text_ids(run))


def scored(run: pd.DataFrame, score: str) -> pd.DataFrame:
    """As `verdicts`, a row an item: the score is the mean over its samples."""
    frame = verdicts(run, score)
    items = frame[~frame.index.duplicated()]
    return (
        items
        if len(items) == len(frame)
        else items.assign(score=frame.groupby(level=0, sort=False)["score"].mean())
    )


def text_ids(run: Any) -> pd.Index:
    """Ids as text."""
    return pd.Index([str(id) for id in run["id"]], dtype=object)


def ratings(cells: pd.Series) -> pd.DataFrame:
    """People's scores of each item, a column a place in its list; NaN where nobody scored."""
    return pd.DataFrame(read_ratings(cells)[0], index=cells.index)


# --- effects ----------------------------------------------------------------------------------------------------------


class Effect(NamedTuple):
    """An estimate, its 95 % interval, the two-sided p of a true value of 0 (NaN where 0 is no sensible null), and the
    rows and independent groups used."""

    effect: float = NAN
    low: float = NAN
    high: float = NAN
    p: float = NAN
    n: int = 0
    groups: int = 0


def coefficient(y: Any, design: Floats, groups: Any, *, error: Floats | None = None) -> Effect:
    """The first column's least-squares coefficient, its interval and p robust to groups of dependent rows.

    Of responses (n,), regressors (n, k) and each row's group; `error` is the variance (n,) with which each row's last
    regressor was measured: taken out of its sum of squares, such noise does not pass for an effect of the first.

    NaN with a warning where it is not determined. Where no group's removal changes it, the interval reaches as far as
    steps of one score point would take it in as many groups as could have taken one without any of these showing it; p
    is then 1 for a coefficient of zero, else that of the sign test.

    Source: the leave-one-cluster-out jackknife (CV3J) of MacKinnon, Nielsen and Webb, Journal of Econometrics 232
    (2023), with Student's t on G - 1 degrees of freedom; noise: Fuller, Measurement Error Models (1987), section 2.2; a
    share of which none of G was seen: Clopper and Pearson, Biometrika 26 (1934).
    """
    y, x, code = (
        np.asarray(y, dtype=float),
        np.asarray(design, dtype=float),
        group_codes(groups, np.full(len(y), True)),
    )
    n, n_groups = len(y), int(code.max(initial=-1)) + 1
    if n_groups < 2:
        return _undefined(f"{n} rows, and not two groups of them", n, n_groups)
    x = x[:, [0, *(1 + np.flatnonzero(x[:, 1:].any(axis=0)))]]
    if np.linalg.matrix_rank(x) == np.linalg.matrix_rank(x[:, 1:]):
        return _undefined("what is measured does not vary once the rest is held equal", n, n_groups)
    order = np.argsort(code, kind="stable")
    starts = np.searchsorted(code[order], np.arange(n_groups))
    xs, ys = x[order], y[order]
    squares = xs[:, :, None] * xs[:, None, :]
    if error is not None:
        squares[:, -1, -1] -= error[order]
    square = np.add.reduceat(squares, starts, axis=0)
    cross = np.add.reduceat(xs * ys[:, None], starts, axis=0)
    whole, right = square.sum(axis=0), cross.sum(axis=0)
    if error is not None and np.linalg.eigvalsh(whole)[0] <= 0:
        return _undefined("what is held equal is nothing but noise", n, n_groups)
    effect = float((np.linalg.pinv(whole, hermitian=True) @ right)[0])
    left_out = _solutions(whole - square, right - cross, whole)
    deviation = math.sqrt((n_groups - 1) / n_groups * ((left_out - left_out.mean()) ** 2).sum())
    if deviation <= 1e-12 * max(1.0, abs(effect)):  # all groups agree: no spread to judge by
        effect, p = (0.0, 1.0) if abs(effect) <= 1e-12 else (effect, 2.0 ** (1 - n_groups))
        alone = x[:, 0] - x[:, 1:] @ np.linalg.lstsq(x[:, 1:], x[:, 0], rcond=None)[0]
        unseen = 1 - (1 - TAIL) ** (1 / n_groups)
        reach = float(STEP * unseen * np.abs(alone).mean() / (alone**2).mean())
    else:
        reach = deviation * float(special.stdtrit(n_groups - 1, TAIL))
        p = 2 * float(special.stdtr(n_groups - 1, -abs(effect) / deviation))
    return Effect(effect, effect - reach, effect + reach, p, n, n_groups)


def _undefined(why: str, n: int, groups: int) -> Effect:
    warn(f"undefined: {why}")
    return Effect(n=n, groups=groups)


def _solutions(square: Floats, right: Floats, whole: Floats) -> Floats:
    """The first coefficient of each group-deleted fit; a column that a deletion empties drops out of its fit."""
    thin = (np.diagonal(square, axis1=1, axis2=2) <= 1e-9 * np.diagonal(whole)).any(axis=1)
    first = np.empty(len(square))
    try:
        first[~thin] = np.linalg.solve(square[~thin], right[~thin][..., None])[:, 0, 0]
    except np.linalg.LinAlgError:
        thin = np.ones(len(square), dtype=bool)
    if thin.any():
        first[thin] = (
            np.linalg.pinv(square[thin], rcond=1e-9, hermitian=True) @ right[thin][..., None]
        )[:, 0, 0]
    return first


def mean(values: Any, groups: Any) -> Effect:
    """The mean, its interval and p, robust to groups of dependent rows; see `coefficient`."""
    return coefficient(values, np.ones((len(values), 1)), groups)


def slope(y: Any, x: Any, groups: Any) -> Effect:
    """The slope of y on x, its interval and p, robust to groups of dependent rows; see `coefficient`."""
    x = np.asarray(x, dtype=float)
    return coefficient(y, np.column_stack([x - x.sum() / max(1, len(x)), np.ones(len(x))]), groups)


def share(flags: Any, groups: Any) -> Effect:
    """A share of true flags with Wilson's interval at the effective number of rows; p is NaN. See `metrics.shares`."""
    flags, code = np.asarray(flags, dtype=float), group_codes(groups, np.full(len(flags), True))
    row = shares([("share", flags, np.ones(len(flags)))], groups=code, unit="items").iloc[0]
    n_groups = int(code.max(initial=-1)) + 1
    estimate = float(row["estimate"]) if n_groups > 1 else NAN
    return Effect(estimate, float(row["low"]), float(row["high"]), NAN, len(flags), n_groups)


def equal(values: Floats, *, most: int = 10) -> Floats:
    """Columns that hold finite values of shape (n,) equal in a regression: one for each of at most so many levels, or
    for as many classes of equal counts, with the value itself beside them."""
    levels, code = np.unique(values, return_inverse=True)
    if len(levels) <= most:
        return np.eye(len(levels))[code.reshape(-1)]
    edges = np.unique(np.quantile(values, np.linspace(0, 1, most + 1)[1:-1]))
    classes = np.eye(len(edges) + 1)[np.searchsorted(edges, values, side="right")]
    return np.column_stack([classes, values - values.mean()])


def judged(frame: pd.DataFrame) -> pd.DataFrame:
    """A probe's rows with p_holm, verdict and reading.

    Source: Holm, Scandinavian Journal of Statistics 6 (1979); two one-sided tests by an interval inside a margin:
    Schuirmann, Journal of Pharmacokinetics and Biopharmaceutics 15 (1987).
    """
    p_holm, must, stay = (
        holm(frame["p"].to_numpy(dtype=float)),
        frame["must"],
        frame["must"] == "stay",
    )
    inside = (-frame["margin"] < frame["low"]) & (frame["high"] < frame["margin"])
    # An effect that is too small to count is never called a failure, however sure it is.
    counts = ~(frame["effect"].abs() < frame["margin"])
    sure, lost = p_holm < LEVEL, frame["effect"] < -frame["margin"]
    said: list[Any] = [None, "stays", "moves", "stays"]
    verdict = np.select(
        [must.isna(), stay & inside, sure & (stay & counts | lost), sure & ~stay], said, "can't say"
    )
    verdict = pd.Series(verdict, frame.index, dtype=object)
    against = verdict + ", though it must " + must
    cases = [
        frame["unit"] == "",
        frame["effect"].isna(),
        must.isna(),
        verdict == "can't say",
        verdict != must + "s",
    ]
    words = ["not run", "undefined", "described", "can't say", against, "moves, as it must"]
    some = [
        f"stays; {moved:.0%} of items moved" if moved > 0 else "stays" for moved in frame["moved"]
    ]
    return frame.assign(
        p_holm=p_holm, verdict=verdict, reading=np.select([*cases, must == "move"], words, some)
    )
