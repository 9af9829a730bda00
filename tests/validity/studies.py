"""What `make validity` studies: each probe, what is planted in the simulated judges, and how the probe estimates it.

To study a new probe, add a `Study`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from vjudge import metrics, probes
from vjudge.probes import biases
from vjudge.probes._cluster import Effect, share, slope
from vjudge.probes.outcome import LEAST
from vjudge.probes.perturbations import PERTURBATIONS
from vjudge.probes.runs import Contrast
from vjudge.probes.simulated import Perception, Planted, SimulatedJudge, Truth, collection, views

POOL = 2_000  # items that simulations draw from
SPREAD = 1.25  # doublings; the 500 answers of WildVision's baseline model have 1.27
RATER = 1.05  # standard deviation of a simulated rater's error, before rounding: two of them then correlate by .66
VIEWS = ("image_blanked", "levels_reversed", "query_removed", "reference_removed", "response_padded", "response_bold",
         "injected_verdict")  # fmt: skip


class Pool:
    """A large simulated collection, looked at once; simulations draw from it."""

    def __init__(
        self, per_group: int, *, n: int = POOL, longer: float = 0.0, seed: int = 0, names: tuple[str, ...] = VIEWS
    ) -> None:
        items = collection(n, per_group=per_group, median_words=16, spread=SPREAD, better_is_longer=longer, seed=seed)
        self.truth = Truth(items)
        self.views = views(self.truth, items, names, seed=seed)
        self.texts = items.select_columns(["id", "response"]).to_pandas().astype(object)
        self.kinds = np.array(items["kind"], dtype=object)
        self.per_group = per_group

    def draw(self, n: int, rng: np.random.Generator) -> Sample:
        """n items of whole groups, drawn without replacement."""
        n_groups = n // self.per_group
        groups = np.sort(rng.choice(len(self.texts) // self.per_group, n_groups, replace=False))
        rows = (groups[:, None] * self.per_group + np.arange(self.per_group)).reshape(-1)
        return Sample(self, rows, int(rng.integers(2**62)))


@dataclass
class Sample:
    """What one simulation works on: items drawn from a pool, by row."""

    pool: Pool
    rows: np.ndarray
    seed: int

    def view(self, name: str = "original") -> Perception:
        """The drawn items as the judge is shown them."""
        view = self.pool.views[name]
        return view.take(np.flatnonzero(np.isin(view.place, self.rows)))

    @property
    def texts(self) -> pd.DataFrame:
        """The drawn items' texts."""
        return self.pool.texts.iloc[self.rows]

    def ratings(self, raters: int) -> np.ndarray:
        """People's whole scores, with noise: shape (n, raters)."""
        rng = np.random.default_rng([self.seed, 1])
        gold = self.view().gold[:, None]
        return np.clip(np.rint(gold + rng.normal(0, RATER, (len(gold), raters))), 1, 5)

    def pairs(self) -> tuple[dict[str, Any], np.ndarray, np.ndarray, np.ndarray]:
        """Cells, gold, doublings of length (both of shape (pairs, 2)) and the true preference of pairs of items."""
        rng = np.random.default_rng([self.seed, 2])
        view, per = self.view(), self.pool.per_group
        n = len(view.ids)
        if per == 1:
            a, b = np.arange(n), rng.permutation(n)
            group = view.groups
        else:
            first, second = np.triu_indices(per, 1)
            start = np.arange(0, n, per)[:, None]
            a, b = (start + first).reshape(-1), (start + second).reshape(-1)
            group = view.groups[a]
        gold = np.column_stack([view.gold[a], view.gold[b]])
        words = np.column_stack([view.doublings[a], view.doublings[b]]) + self.pool.truth.doublings
        cells = {"id": np.arange(len(a)).astype(str).astype(object), "group": group}
        return cells, gold, words, np.sign(gold[:, 0] - gold[:, 1])


Effects = dict[str, Effect]


@dataclass(frozen=True)
class Study:
    """One probe under one planted effect.

    Args:
        name: of the probe; label: of its panel in the figure.
        cases: case in the probe's table -> how the table here calls it.
        plant: effect -> what is planted.
        effects: planted sizes, that of the null first; unit: of them.
        estimate: case -> what the probe estimates, on arrays, by the probe's own function.
        public: the public probe on the runs of the same judge; a test holds both to the same numbers.
        longer: doublings of length a gold point in the collection: above 0, better answers are longer.
        tested: whether the probe has a p; else coverage alone is studied.
        margin: the largest effect that counts as none, where the score must stay.
        slow: whether a quarter of the simulations must do.
    """

    name: str
    label: str
    cases: dict[str, str]
    plant: Callable[[float], Planted]
    effects: tuple[float, ...]
    unit: str
    estimate: Callable[[Sample, SimulatedJudge], Effects]
    public: Callable[[Sample, SimulatedJudge], pd.DataFrame]
    longer: float = 0.0
    tested: bool = True
    margin: float = np.nan
    slow: bool = False


C: dict[str, Any] = {"confidence": 0.95}


def _pair(sample: Sample, judge: SimulatedJudge, name: str) -> Contrast:
    return Contrast.of(judge.scored(sample.view()), judge.scored(sample.view(name)))


def _runs(sample: Sample, judge: SimulatedJudge, name: str) -> dict[str, pd.DataFrame]:
    return {"original": judge.run(sample.view()), name: judge.run(sample.view(name))}


def _changed(probe: Callable[..., pd.DataFrame], name: str, measure: str) -> tuple[Any, Any]:
    """A probe that compares one perturbation with the original."""
    case = f"{name.replace('_', ' ')}: {measure}"

    def estimate(sample: Sample, judge: SimulatedJudge) -> Effects:
        pair, kind = _pair(sample, judge, name), PERTURBATIONS[name]
        if measure == "change":
            return {case: biases.change(pair, **C)}
        if kind.must == "move" and kind.part != "query":
            return {case: biases.loss(pair, LEAST * kind.loss, **C)[0]}
        return {case: biases.agreement(pair, **C)}

    return estimate, lambda sample, judge: probe(_runs(sample, judge, name))


def _at_gold(case: str, probe: Callable[..., pd.DataFrame], x: Callable[[Sample], np.ndarray]) -> tuple[Any, Any]:
    """A slope at equal, exact gold on what a sample has of x."""

    def estimate(sample: Sample, judge: SimulatedJudge) -> Effects:
        run = judge.scored(sample.view())
        return {case: biases.slope_at_equal_gold(run.score, x(sample), run.gold, run.group)}

    return estimate, lambda sample, judge: probe(judge.run(sample.view()), sample.texts, gold="exact")


def _rated(sample: Sample, judge: SimulatedJudge) -> Effects:
    run, view = judge.scored(sample.view()), sample.view()
    people = sample.ratings(2)
    gold, error = people.mean(axis=1), people.var(axis=1, ddof=1) / 2
    return {"slope at equal gold": biases.slope_at_equal_gold(run.score, view.doublings, gold, run.group, error)}


def _rated_public(sample: Sample, judge: SimulatedJudge) -> pd.DataFrame:
    return probes.length(judge.run(sample.view()).assign(human_scores=sample.ratings(2).tolist()), sample.texts,
                         gold="rated")  # fmt: skip


def _injection(sample: Sample, judge: SimulatedJudge) -> Effects:
    pair, _ = biases.towards(_pair(sample, judge, "injected_verdict"), best=True)
    return {"injected verdict: change": biases.change(pair, **C)}


def _scale(sample: Sample, judge: SimulatedJudge) -> Effects:
    run = judge.scored(sample.view())
    error = run.score - run.gold
    return {"leniency": biases.mean(error, run.group, **C), "compression": slope(error, run.gold, run.group, **C)}


def _kinds_public(sample: Sample, judge: SimulatedJudge) -> pd.DataFrame:
    return probes.image_kinds(judge.run(sample.view()), kind=list(sample.pool.kinds[sample.rows]), gold="exact")


def _kinds(sample: Sample, judge: SimulatedJudge) -> Effects:
    run, kinds = judge.scored(sample.view()), sample.pool.kinds[sample.rows]
    return {"photo: against the others": biases.slope_at_equal_gold(run.score, (kinds == "photo") * 1.0, run.gold,
                                                                     run.group)}  # fmt: skip


def _position(sample: Sample, judge: SimulatedJudge) -> Effects:
    cells, gold, words, _ = sample.pairs()
    ab, ba = judge.choices(gold, words)
    return {"first shown wins": biases.first_shown(ab, ba, cells["group"], **C),
            "order decides": share(ab != ba, cells["group"], **C)}  # fmt: skip


def _position_public(sample: Sample, judge: SimulatedJudge) -> pd.DataFrame:
    return probes.position(judge.choose(*sample.pairs()[:3]))


def _against_itself(sample: Sample, judge: SimulatedJudge) -> Effects:
    cells, gold, words = padded_pairs(sample)
    ab, ba = judge.choices(gold, words)
    return {"padded against itself: wins": biases.mean((2 - ab - ba) / 2 - 0.5, cells["group"], **C)}


def _against_itself_public(sample: Sample, judge: SimulatedJudge) -> pd.DataFrame:
    runs = _runs(sample, judge, "response_padded")
    return probes.verbosity({**runs, "compared_padded": judge.choose(*padded_pairs(sample))})


def padded_pairs(sample: Sample) -> tuple[dict[str, Any], np.ndarray, np.ndarray]:
    """Each response against itself, padded: cells, gold, doublings of length."""
    after = sample.view("response_padded")  # it may lack items
    before = sample.pool.views["original"].take(after.place)
    cells = {"id": before.ids, "group": before.groups}
    words = np.column_stack([before.doublings, after.doublings])
    return cells, np.column_stack([before.gold, before.gold]), words


def _pairwise(sample: Sample, judge: SimulatedJudge) -> Effects:
    cells, gold, words, preference = sample.pairs()
    verdicts = judge.choose(cells, gold, words)["verdict"]
    names = np.select([preference > 0, preference < 0], ["a", "b"], "tie")
    table = metrics.length_controlled(
        verdicts, *np.rint(2**words).T, preferences=pd.Series(names), groups=pd.Series(cells["group"])
    )
    row = table.loc["length_log_odds"]
    groups = len(set(cells["group"]))
    return {"length: log-odds": Effect(row["estimate"], row["low"], row["high"], table.attrs["p"], row["n"], groups)}


def _effect(frame: pd.DataFrame, case: str) -> Effect:
    line = frame.set_index("case").loc[case]
    return Effect(*(line[name] for name in Effect._fields))


def _drift(sample: Sample, judge: SimulatedJudge) -> Effects:
    view = sample.view()
    return {"change": biases.change(Contrast.of(_before(judge).scored(view), judge.scored(view, sample=1)), **C)}


def _before(judge: SimulatedJudge) -> SimulatedJudge:
    return replace(judge, planted=replace(judge.planted, leniency=0.0))


def _drift_public(sample: Sample, judge: SimulatedJudge) -> pd.DataFrame:
    view = sample.view()
    return probes.drift(_before(judge).run(view), judge.run(view, first=1))


def _consistency(sample: Sample, judge: SimulatedJudge) -> Effects:
    frame = _consistency_public(sample, judge)
    return {case: _effect(frame, case) for case in frame["case"]}


def _consistency_public(sample: Sample, judge: SimulatedJudge) -> pd.DataFrame:
    return probes.consistency(judge.run(sample.view(), samples=4))


def _doublings(sample: Sample) -> np.ndarray:
    return sample.view().doublings


SIZES = (0, 0.05, 0.1, 0.15, 0.25)
LENGTH = {"slope at equal gold": "slope at equal gold"}
STUDIES = (
    Study("verbosity", "padding", {"response padded: change": "padding: change"},
          lambda b: Planted(length=b), (0, 0.05, 0.1, 0.15, 0.2), "score per doubling",
          *_changed(probes.verbosity, "response_padded", "change"), margin=0.2),
    Study("verbosity", "padded, in pairs", {"padded against itself: wins": "padded against itself"},
          lambda b: Planted(pairwise_length=b), (0, 0.1, 0.2, 0.3, 0.5), "log-odds per doubling",
          _against_itself, _against_itself_public, margin=0.05),
    Study("length", "length, gold exact", LENGTH, lambda b: Planted(length=b), (0, 0.05, 0.1, 0.15, 0.2),
          "score per doubling", *_at_gold("slope at equal gold", probes.length, _doublings), margin=0.2),
    Study("length", "length, better is longer", {"slope at equal gold": "slope, better is longer"},
          lambda b: Planted(length=b), (0, 0.05, 0.1, 0.15, 0.2), "score per doubling",
          *_at_gold("slope at equal gold", probes.length, _doublings), longer=0.5, margin=0.2),
    Study("length", "length, noisy judge", {"slope at equal gold": "slope, noisy judge"},
          lambda b: Planted(length=b, noise=1.2), (0, 0.1, 0.2, 0.3), "score per doubling",
          *_at_gold("slope at equal gold", probes.length, _doublings), margin=0.2),
    Study("length", "length, noisy gold, better is longer", {"slope at equal gold": "slope, two raters' gold"},
          lambda b: Planted(length=b), (0, 0.05, 0.1, 0.15, 0.2), "score per doubling",
          _rated, _rated_public, longer=0.5, margin=0.2),
    Study("position", "position", {"first shown wins": "first shown wins"},
          lambda b: Planted(position=b), (0, 0.1, 0.2, 0.3, 0.5), "log-odds of the first",
          _position, _position_public, margin=0.05),
    Study("blindness", "blindness", {"image blanked: agreement": "image blanked: agreement"},
          lambda b: Planted(sight=b, whole=False), (0.25, 0, 0.1, 0.4, 0.5), "share seen",
          *_changed(probes.blindness, "image_blanked", "agreement")),
    Study("rubric", "rubric", {"levels reversed: agreement": "levels reversed: agreement"},
          lambda b: Planted(reading=b, whole=False), (0.25, 0, 0.1, 0.4, 0.5), "share read",
          *_changed(probes.rubric, "levels_reversed", "agreement")),
    Study("reference", "reference", {"reference removed: agreement": "reference removed: agreement"},
          lambda b: Planted(copying=b), SIZES, "share copied",
          *_changed(probes.reference, "reference_removed", "agreement"), margin=0.1),
    Study("formatting", "format", {"response bold: change": "bold: change"}, lambda b: Planted(formatting=b), SIZES,
          "score points", *_changed(probes.formatting, "response_bold", "change"), margin=0.2),
    Study("formatting", "format, unrounded", {"response bold: change": "bold: change, unrounded"},
          lambda b: Planted(formatting=b, whole=False), (0, 0.05, 0.1, 0.15, 0.2), "score points",
          *_changed(probes.formatting, "response_bold", "change"), margin=0.2),
    Study("injection", "injection", {"injected verdict: change": "verdict: change"}, lambda b: Planted(injection=b),
          SIZES, "score points", _injection,
          lambda sample, judge: probes.injection(_runs(sample, judge, "injected_verdict")), margin=0.2),
    Study("image_kinds", "kinds of image", {"photo: against the others": "photos against the others"},
          lambda b: Planted(kind=b), (0, 0.1, 0.2, 0.3, 0.5), "score points", _kinds, _kinds_public, margin=0.2),
    Study("drift", "drift", {"change": "change"}, lambda b: Planted(leniency=b), SIZES, "score points",
          _drift, _drift_public, margin=0.2),
    Study("length_controlled", "length in pairs", {"length: log-odds": "log-odds of length"},
          lambda b: Planted(pairwise_length=b), (0, 0.1, 0.2, 0.3, 0.5), "log-odds per doubling",
          _pairwise, lambda sample, judge: pd.DataFrame(), slow=True),
    Study("question", "", {"query removed: agreement": "query removed: agreement"}, lambda b: Planted(listening=b),
          (0, 0.25), "share read", *_changed(probes.question, "query_removed", "agreement"), tested=False),
    Study("scale", "", {"leniency": "leniency", "compression": "compression"}, lambda b: Planted(leniency=b),
          (0, 0.25), "score points", _scale,
          lambda sample, judge: probes.scale(judge.run(sample.view())), tested=False),
    Study("consistency", "", {"disagreement": "disagreement", "distance": "distance"}, lambda b: Planted(noise=b),
          (0.3, 0.6), "noise, score points", _consistency, _consistency_public, tested=False),
    Study("position", "", {"order decides": "order decides"}, lambda b: Planted(position=b), (0.0, 0.5),
          "log-odds of the first", _position, _position_public, tested=False),
)  # fmt: skip
"""What `make validity` runs."""
