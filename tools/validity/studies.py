"""Do the probes find what was planted, and nothing else? False positives, power and coverage on simulated judges.

Each simulation draws items and a judge of its own, plants one effect, and runs the public probe. Coverage is the share
of 95 % intervals that hold the true effect on the judge's own scale (rounded and clipped scores make it smaller than
what was planted), which is the mean estimate over the other half of the simulations. Where a score must move, the null
is a judge that loses just the least share that counts. A battery asks about twenty-five times: at most one honest judge in
twenty may be accused, by a verdict against what must be, of anything.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from validity.simulated import Planted, SimulatedJudge, Truth, collection
from vjudge import probes

POOL = 2_000  # items that simulations draw from
SPREAD = 1.25  # doublings; the 500 answers of WildVision's baseline model have 1.27
RATER = 1.05  # standard deviation of a simulated rater's error, before rounding: two of them then correlate by .66
ALPHA = 0.05
DESIGNS = {"500 items, 500 images": (500, 1), "120 items, 24 images": (120, 5)}
Pairs = tuple[
    dict[str, Any], np.ndarray, np.ndarray
]  # cells; gold and doublings of length of both, shape (pairs, 2)


class Pool:
    """A large simulated collection; simulations draw from it."""

    def __init__(
        self, per_group: int, *, n: int = POOL, longer: float = 0.0, seed: int = 0
    ) -> None:
        sizes = {"median_words": 16, "spread": SPREAD, "better_is_longer": longer}
        self.items, self.seed, self.views = (
            collection(n, per_group=per_group, **sizes, seed=seed),
            seed,
            {},
        )
        self.truth, self.groups, self.per_group = Truth(self.items), n // per_group, per_group
        self.columns = {
            name: np.array(self.items[name], dtype=object) for name in ("response", "model")
        }

    def view(self, name: str) -> pd.DataFrame:
        """What judges see of it under a perturbation, looked at once."""
        if name not in self.views:
            items = (
                self.items
                if name == "original"
                else probes.perturb(self.items, name, seed=self.seed)
            )
            self.views[name] = self.truth.view(items)
        return self.views[name]

    def draw(self, n: int, rng: np.random.Generator) -> Sample:
        """n items of whole groups, drawn without replacement."""
        groups = np.sort(rng.choice(self.groups, n // self.per_group, replace=False))
        rows = (groups[:, None] * self.per_group + np.arange(self.per_group)).reshape(-1)
        return Sample(self, rows, int(rng.integers(2**62)))


@dataclass
class Sample:
    """What one simulation works on: items drawn from a pool, by row."""

    pool: Pool
    rows: np.ndarray
    seed: int

    def view(self, name: str = "original") -> pd.DataFrame:
        """The drawn items as the judge is shown them."""
        view = self.pool.view(name)
        return view[np.isin(view["place"], self.rows)]

    def original(self, judge: SimulatedJudge, gold: str = "exact") -> pd.DataFrame:
        """The judge's run on them, with what a probe reads of the items; gold is exact, or of one or two raters."""
        columns = {name: values[self.rows] for name, values in self.pool.columns.items()}
        run = judge.run(self.view()).assign(**columns)
        if gold == "exact":
            return run
        rng, true = np.random.default_rng([self.seed, 1]), run["gold"].to_numpy()[:, None]
        people = np.clip(
            np.rint(true + rng.normal(0, RATER, (len(run), 2 if gold == "rated" else 1))), 1, 5
        )
        return run.assign(gold=people.mean(axis=1), human_scores=people.tolist())

    def pairs(self) -> Pairs:
        """Pairs of items of a group, or of any two where each is its own."""
        rng = np.random.default_rng([self.seed, 2])
        view, per = self.view(), self.pool.per_group
        a, b = np.arange(len(view)), rng.permutation(len(view))
        if per > 1:
            start = np.arange(0, len(view), per)[:, None]
            a, b = ((start + place).reshape(-1) for place in np.triu_indices(per, 1))
        gold, words = (
            view[name].to_numpy()[np.column_stack([a, b])] for name in ("gold", "doublings")
        )
        cells = {
            "id": np.arange(len(a)).astype(str).astype(object),
            "group": view["group"].to_numpy()[a],
        }
        return cells, gold, words + self.pool.truth.doublings


def simulate(
    pool: Pool, n: int, planted: Planted, seeds: Iterable[list[int]]
) -> Iterator[tuple[Any, Any]]:
    """For each seed a sample of n items and a judge."""
    for seed in seeds:
        rng = np.random.default_rng(seed)
        sample = pool.draw(n, rng)
        yield sample, SimulatedJudge(pool.truth, planted, seed=int(rng.integers(2**62)))


# --- one probe --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Study:
    """A probe on runs of judges with one effect planted.

    `cases` of its table are read, one perhaps `called` otherwise; `plant` is the field of `Planted` that is varied over
    `effects`, the null first; `longer` the doublings of length a gold point.
    """

    name: str
    label: str
    cases: str
    plant: str
    effects: tuple[float, ...]
    unit: str
    probe: Callable[[Sample, SimulatedJudge], pd.DataFrame]
    judge: Planted = Planted()
    called: str = ""
    longer: float = 0.0
    tested: bool = True

    @property
    def names(self) -> list[str]:
        """Its cases, as the table here calls them."""
        return [self.called] if self.called else self.cases.split(", ")

    def run(
        self, pool: Pool, n: int, effect: float, *, simulations: int, seed: int
    ) -> pd.DataFrame:
        """The probe on many simulated judges: a row a simulation and case."""
        seeds = ([seed, number, round(1000 * effect)] for number in range(simulations))
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore", UserWarning
            )  # an undefined estimate is NaN, and counted
            draws = simulate(pool, n, replace(self.judge, **{self.plant: effect}), seeds)
            drawn = pd.concat(self.probe(sample, judge) for sample, judge in draws)
        drawn = drawn[drawn["case"].isin(self.cases.split(", "))]
        return drawn.assign(case=self.called) if self.called else drawn


def _original(probe: Callable[..., pd.DataFrame], gold: str = "observed") -> Any:
    """A probe of the original run alone."""
    people = "rated" if gold == "rated" else "exact"
    return lambda sample, judge: probe(sample.original(judge, people), gold=gold).table


def _liked(gold: str) -> Any:
    """The probe of self-preference, on responses that are better where they are the judge's own."""
    return lambda sample, judge: (
        probes.self_preference(sample.original(judge, gold), own="own", gold=gold).table
    )


def _changed(probe: Callable[..., pd.DataFrame], name: str) -> Any:
    """A probe that compares one perturbation with the original."""
    return lambda sample, judge: (
        probe({"original": judge.run(sample.view()), name: judge.run(sample.view(name))}).table
    )


def _position(sample: Sample, judge: SimulatedJudge) -> pd.DataFrame:
    return probes.position(judge.choose(*sample.pairs())).table


SMALL, SIZES, WIDE = (0, 0.05, 0.1, 0.15, 0.2), (0, 0.05, 0.1, 0.15, 0.25), (0, 0.1, 0.2, 0.3, 0.5)
SHARES = (0.25, 0, 0.1, 0.4, 0.5)  # the null is the least loss that counts
DOUBLING, ODDS, FIRST, POINTS = (
    "score per doubling",
    "log-odds per doubling",
    "log-odds of the first",
    "score points",
)
EXACT, RATED = _original(probes.length, "exact"), _original(probes.length, "rated")
GOLD = "slope at equal gold"

NOISY, UNROUNDED = Planted(noise=1.2), Planted(whole=False)
STUDIES = (
    Study("verbosity", "padding", "response padded: change", "length", SMALL, DOUBLING,
          _changed(probes.verbosity, "response_padded"), called="padding: change"),
    Study("length", "length, gold exact", GOLD, "length", SMALL, DOUBLING, EXACT),
    Study("length", "length, better is longer", GOLD, "length", SMALL, DOUBLING, EXACT,
          called="slope, better is longer", longer=0.5),
    Study("length", "length, noisy judge", GOLD, "length", (0, 0.1, 0.2, 0.3), DOUBLING, EXACT, NOISY,
          called="slope, noisy judge"),
    Study("length", "length, noisy gold, better is longer", GOLD, "length", SMALL, DOUBLING, RATED,
          called="slope, two raters' gold", longer=0.5),
    Study("position", "position", "first shown wins", "position", WIDE, FIRST, _position),
    Study("blindness", "blindness", "image blanked: agreement", "sight", SHARES, "share seen",
          _changed(probes.blindness, "image_blanked"), UNROUNDED),
    Study("rubric", "rubric", "levels reversed: agreement", "reading", SHARES, "share read",
          _changed(probes.rubric, "levels_reversed"), UNROUNDED),
    Study("formatting", "format", "response bold: change", "formatting", SIZES, POINTS,
          _changed(probes.formatting, "response_bold"), called="bold: change"),
    Study("formatting", "format, unrounded", "response bold: change", "formatting", SMALL, POINTS,
          _changed(probes.formatting, "response_bold"), UNROUNDED, called="bold: change, unrounded"),
    Study("injection", "injection", "injected verdict: change", "injection", SIZES, POINTS,
          _changed(probes.injection, "injected_verdict"), called="verdict: change"),
    Study("rewording", "rewording", "rubric reworded: change", "wording", SIZES, POINTS,
          _changed(probes.rewording, "rubric_reworded")),
    Study("anchoring", "anchoring", "shown lowest: change", "anchoring", SIZES, POINTS,
          _changed(probes.anchoring, "shown_lowest")),
    Study("commitment", "commitment", "answered first: change", "led", SIZES, POINTS,
          _changed(probes.commitment, "answered_first")),
    Study("self_preference", "self-preference", "own responses at equal gold", "liking", WIDE, POINTS,
          _liked("exact"), called="own responses"),
    Study("self_preference", "self-preference, two raters' gold", "own responses at equal gold", "liking", WIDE,
          POINTS, _liked("rated"), called="own responses, two raters' gold"),
    Study("self_preference", "self-preference, a taste for each system", "own responses at equal gold", "liking", WIDE,
          POINTS, _liked("exact"), Planted(tastes=0.3), called="own responses, tastes"),
    Study("position", "", "order decides", "position", (0.0, 0.5), FIRST, _position, tested=False),
)  # fmt: skip
"""What `make validity` runs."""


def exact(count: int, of: int, name: str) -> dict[str, float]:
    """A share with its exact 95 % interval."""
    interval = stats.binomtest(count, of).proportion_ci(0.95, method="exact")
    return {name: count / of, f"{name}_low": interval.low, f"{name}_high": interval.high}


def summarise(drawn: pd.DataFrame) -> dict[str, Any]:
    """Shares over simulations of one case, with exact 95 % intervals; an undefined result counts as no rejection."""
    estimate = drawn["effect"].to_numpy(dtype=float)
    half = np.arange(len(drawn)) % 2 == 0
    truth = np.where(half, np.nanmean(estimate[~half]), np.nanmean(estimate[half]))
    defined = int((~np.isnan(estimate)).sum())
    result = {
        "effect": float(np.nanmean(estimate)),
        "simulations": len(drawn),
        "undefined": len(drawn) - defined,
    }
    result |= exact(int((drawn["p"] < ALPHA).sum()), len(drawn), "rejected")
    result |= exact(
        int(((drawn["low"] <= truth) & (truth <= drawn["high"])).sum()), defined, "covered"
    )
    inside, stay = (
        (drawn["low"] > -drawn["margin"]) & (drawn["high"] < drawn["margin"]),
        drawn["must"] == "stay",
    )
    result["stays"] = float(inside.mean()) if stay.all() else np.nan
    if drawn["p"].isna().all():
        result |= dict.fromkeys(("rejected", "rejected_low", "rejected_high"), np.nan)
    return result


def study_all(
    studies: Sequence[Study] = STUDIES, *, null_simulations: int, power_simulations: int, pool_size: int = POOL,
    seed: int = 0,
) -> pd.DataFrame:  # fmt: skip
    """False-positive rate, power and coverage of every probe: a row for each case, design and planted size.

    Null simulations have nothing planted, or no test; studies without a test get a quarter.
    """
    rows: list[dict[str, Any]] = []
    for longer in dict.fromkeys(study.longer for study in studies):
        for design, (n, per_group) in DESIGNS.items():
            pool = Pool(per_group, n=pool_size, longer=longer, seed=seed)
            for study, effect in (
                (s, effect) for s in studies if s.longer == longer for effect in s.effects
            ):
                is_null = effect == study.effects[0]
                count = null_simulations if is_null or not study.tested else power_simulations
                count //= 1 if study.tested else 4
                drawn = study.run(pool, n, effect, simulations=count, seed=seed)
                for name, cell in drawn.groupby("case", sort=False):
                    setting = {
                        "probe": study.name,
                        "case": name,
                        "label": study.label,
                        "design": design,
                    }
                    setting |= {
                        "null": is_null,
                        "n": int(cell["n"].median()),
                        "groups": int(cell["groups"].median()),
                    }
                    setting |= {"planted": float(effect), "unit": study.unit}
                    rows.append(setting | summarise(cell))
                    print(rows[-1], flush=True)
    return pd.DataFrame(rows)


# --- whole batteries --------------------------------------------------------------------------------------------------

JUDGES: dict[str, tuple[Planted, str, float, str]] = {
    "whole scores, exact gold": (Planted(), "exact", 0.0, ""),
    "whole scores, exact gold, better is longer": (Planted(), "exact", 0.5, ""),
    "whole scores, gold of one rater, better is longer": (Planted(), "observed", 0.5, ""),
    "whole scores, gold of two raters, better is longer": (Planted(), "rated", 0.5, ""),
    "expected scores, exact gold": (UNROUNDED, "exact", 0.0, ""),
    "noisy judge, gold of two raters": (NOISY, "rated", 0.0, ""),
    "a taste for each system, none for its own": (Planted(tastes=0.3), "exact", 0.0, ""),
    "length, .3 a doubling": (Planted(length=0.3), "exact", 0.0, "verbosity"),
    "length, .4 a doubling": (Planted(length=0.4), "exact", 0.0, "verbosity"),
    "format, .4 points": (Planted(formatting=0.4), "exact", 0.0, "formatting"),
    "injection, .4 points": (Planted(injection=0.4), "exact", 0.0, "injection"),
    "position, .5 log-odds": (Planted(position=0.5), "exact", 0.0, "position"),
    "rubric in other words, .4 points": (Planted(wording=0.4), "exact", 0.0, "rewording"),
    "another judge's score, .4 points": (Planted(anchoring=0.4), "exact", 0.0, "anchoring"),
    "led by the response, .4 points": (Planted(led=0.4), "exact", 0.0, "commitment"),
    "own responses, .5 points": (Planted(liking=0.5), "exact", 0.0, "self_preference"),
    "blind, and harsh on grey images": (Planted(sight=0.0, grey=True), "exact", 0.0, "blindness"),
    "nine tenths blind": (Planted(sight=0.1), "exact", 0.0, "blindness"),
    "blind": (Planted(sight=0.0), "exact", 0.0, "blindness"),
    "rubric not read": (Planted(reading=0.0), "exact", 0.0, "rubric"),
}
"""Name -> a judge, what gold is, doublings of length a gold point, and the probe that should find its one bias."""


def batteries(
    simulations: int, power_simulations: int, *, pool_size: int = POOL, seed: int = 0,
    designs: dict[str, tuple[int, int]] = DESIGNS,
) -> pd.DataFrame:  # fmt: skip
    """Run many batteries: a row a judge and design; biased judges on one item an image.

    accused: share of batteries with a verdict against what must be (of honest judges); found: share in which the probe
    that should find the bias does; passed: in which all its rows are as they must be; cleared: mean share of the other
    rows that are. low, high: exact 95 % interval of accused or found.
    """
    rows = []
    for (design, (n, per_group)), longer in itertools.product(designs.items(), (0.0, 0.5)):
        pool = Pool(per_group, n=pool_size, longer=longer, seed=seed)
        for name, (planted, gold, _, probe) in (
            (name, cell) for name, cell in JUDGES.items() if cell[2] == longer
        ):
            if probe and per_group > 1:
                continue
            count = power_simulations if probe else simulations
            draws = simulate(pool, n, planted, ([seed, number] for number in range(count)))
            mean = pd.DataFrame([_battery(*draw, gold, probe) for draw in draws]).mean()
            key = "found" if probe else "accused"
            interval = exact(round(mean[key] * count), count, key)
            line = {
                "judge": name,
                "design": design,
                "planted": probe or "nothing",
                **mean.to_dict(),
            }
            line |= {
                "low": interval[f"{key}_low"],
                "high": interval[f"{key}_high"],
                "simulations": count,
            }
            rows.append(line)
            print(line, flush=True)
    return pd.DataFrame(rows)


def _battery(sample: Sample, judge: SimulatedJudge, gold: str, probe: str) -> dict[str, float]:
    """One battery, on all runs that it reads with the gold scores that are known."""
    runs = {}
    for name, kind in probes.PERTURBATIONS.items():
        if not kind.responses:
            runs[name] = judge.run(sample.view(name))
    runs = {"original": sample.original(judge, gold), **runs}
    known = runs["original"].set_index("id")["gold"]
    runs = {name: run.assign(gold=run["id"].map(known)) for name, run in runs.items()}
    runs["compared"] = judge.choose(*sample.pairs())
    frame = probes.battery(runs, gold=gold, own="own").table
    must = frame[frame["must"].notna()]
    right, about = must["passes"].fillna(False), must["probe"] == probe
    against = set(must.loc[must["passes"].eq(False).fillna(False), "probe"])
    return {
        "accused": np.nan if probe else float(bool(against)),
        "found": float(probe in against) if probe else np.nan,
        "passed": float(right[about].all()) if probe else np.nan,
        "cleared": float(right[~about].mean()),
        "tests": frame["p"].notna().sum(),
    }
