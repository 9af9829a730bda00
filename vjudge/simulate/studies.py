"""What `make validity` studies: each probe, what is planted in the simulated judges, and how the probe estimates it.

To study a new probe, add a `Study`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from vjudge import probes
from vjudge.probes import contrasts, positions, scales, stability
from vjudge.probes.contrasts import Contrast
from vjudge.probes.estimates import Estimate, equal, rank_correlation, share
from vjudge.probes.lengths import log_odds_of_length, slope_at_equal_gold
from vjudge.simulate.collections import collection
from vjudge.simulate.judges import Planted, SimulatedJudge, Truth, View, views

POOL = 2_000  # items that simulations draw from
SPREAD = 1.25  # doublings; the 500 answers of WildVision's baseline model have 1.27
VIEWS = ("image_blanked", "levels_reversed", "query_removed", "reference_removed", "response_padded", "response_bold",
         "injected_verdict")  # fmt: skip


@dataclass
class Sample:
    """What one simulation works on: items drawn from a pool, by row, and how many pairs."""

    pool: Pool
    rows: np.ndarray
    seed: int
    n_pairs: int
    pairs_a_group: int

    def view(self, name: str = "original") -> View:
        """The drawn items as the judge is shown them."""
        return self.pool.views[name].take(self.pool.places[name][self.rows])

    @property
    def texts(self) -> pd.DataFrame:
        """The drawn items' texts."""
        return self.pool.texts.iloc[self.rows]


Estimates = dict[str, Estimate]
Estimator = Callable[[Sample, SimulatedJudge], Estimates]
Public = Callable[[Sample, SimulatedJudge], pd.DataFrame]


class Pool:
    """A large simulated collection, looked at once; simulations draw from it."""

    def __init__(self, per_group: int, *, n: int = POOL, longer: float = 0.0, seed: int = 0) -> None:
        items = collection(n, per_group=per_group, median_words=16, spread=SPREAD, better_is_longer=longer, seed=seed)
        self.truth = Truth(items)
        self.views = views(self.truth, items, VIEWS, seed=seed)
        self.texts = items.select_columns(["id", "response", "reference_answer"]).to_pandas().astype(object)
        self.per_group = per_group
        self.places = {name: np.searchsorted(view.place, np.arange(n)) for name, view in self.views.items()}

    def draw(self, n: int, rng: np.random.Generator) -> Sample:
        """n items of whole groups, drawn without replacement."""
        n_groups = n // self.per_group
        groups = np.sort(rng.choice(len(self.texts) // self.per_group, n_groups, replace=False))
        rows = (groups[:, None] * self.per_group + np.arange(self.per_group)).reshape(-1)
        pairs_a_group = 1 if self.per_group == 1 else 10
        return Sample(
            pool=self,
            rows=rows,
            seed=int(rng.integers(2**62)),
            n_pairs=n_groups * pairs_a_group,
            pairs_a_group=pairs_a_group,
        )


@dataclass(frozen=True)
class Study:
    """One probe under one planted effect.

    Args:
        name: of the probe; label: of its panel in the figure.
        cases: case in the probe's table -> how the table here calls it.
        plant: effect -> what is planted.
        effects: planted sizes, 0 first where there is a null; unit: of them.
        estimate: case -> what the probe estimates, on arrays, by the probe's own function.
        public: the public probe on the runs of the same judge; a test holds both to the same numbers.
        longer: doublings of length a gold point in the collection: above 0, better answers are longer.
        tested: whether the probe has a p; else coverage alone is studied.
    """

    name: str
    label: str
    cases: dict[str, str]
    plant: Callable[[float], Planted]
    effects: tuple[float, ...]
    unit: str
    estimate: Estimator
    public: Public
    longer: float = 0.0
    tested: bool = True


C: dict[str, Any] = {"confidence": 0.95}


def _pair(sample: Sample, judge: SimulatedJudge, name: str) -> Contrast:
    return Contrast(judge.scored(sample.view()), judge.scored(sample.view(name)))


def _runs(sample: Sample, judge: SimulatedJudge, name: str) -> dict[str, pd.DataFrame]:
    return {"original": judge.run(sample.view()), name: judge.run(sample.view(name))}


def _length(sample: Sample, judge: SimulatedJudge) -> Estimates:
    view = sample.view()
    run, doublings = judge.scored(view), view.doublings
    ranks = rank_correlation(doublings, run.score, equal(run.gold), run.group, **C)
    return {"slope at equal gold": slope_at_equal_gold(run, doublings, **C), "partial rank correlation": ranks}


def _overlap(sample: Sample, judge: SimulatedJudge) -> Estimates:
    view = sample.view()
    return {"overlap: slope at equal gold": slope_at_equal_gold(judge.scored(view), view.overlap, **C)}


def _injection(sample: Sample, judge: SimulatedJudge) -> Estimates:
    pair = _pair(sample, judge, "injected_verdict")
    stability.towards(pair, best=True)
    return {"injected verdict: change": contrasts.change(pair, **C)}


def _scale(sample: Sample, judge: SimulatedJudge) -> Estimates:
    run = judge.scored(sample.view())
    return {"leniency": scales.leniency(run, **C), "compression": scales.compression(run, **C)}


def _kinds(sample: Sample, judge: SimulatedJudge) -> Estimates:
    view = sample.view()
    run = judge.scored(view)
    return {"text-rich: leniency": scales.against_others(run.score - run.gold, view.kind > 0, run.group, **C)}


def _kinds_public(sample: Sample, judge: SimulatedJudge) -> pd.DataFrame:
    view = sample.view()
    frame, kind = judge.run(view), np.where(view.kind > 0, "text-rich", "photo")
    order = np.argsort(-view.kind, kind="stable")  # of two kinds, the first is the one reported
    return probes.image_kinds(frame.iloc[order], kind=kind[order])


def _pairs(sample: Sample) -> tuple[dict[str, Any], np.ndarray, np.ndarray, np.ndarray]:
    """Cells, gold, log2 of the length, and preference of pairs; the same for one sample however often it is asked."""
    rng, n = np.random.default_rng(sample.seed), sample.n_pairs
    gold = rng.integers(1, 6, (n, 2)).astype(float)
    doublings = np.log2(np.rint(2 ** rng.normal(6, SPREAD, (n, 2))) + 1)
    preference = np.sign(gold[:, 0] - gold[:, 1])
    group = np.array([f"picture-{i // sample.pairs_a_group}" for i in range(n)], dtype=object)
    return {"id": [f"pair-{i}" for i in range(n)], "group": group}, gold, doublings, preference


def _position(sample: Sample, judge: SimulatedJudge) -> Estimates:
    cells, gold, doublings, _ = _pairs(sample)
    ab, ba = judge.choices(gold, doublings)
    return {
        "first shown wins": positions.first_shown(ab, ba, cells["group"], **C),
        "order decides": share(ab != ba, cells["group"], **C),
    }


def _position_public(sample: Sample, judge: SimulatedJudge) -> pd.DataFrame:
    return probes.position(judge.choose(*_pairs(sample)[:3]))


def _pairwise(sample: Sample, judge: SimulatedJudge) -> Estimates:
    cells, gold, doublings, preference = _pairs(sample)
    ab, ba = judge.choices(gold, doublings)
    words = np.rint(2**doublings)
    slope, _, _ = log_odds_of_length((ab + ba) / 2, words[:, 0] - words[:, 1], preference, cells["group"], **C)
    return {"length: log-odds": slope}


def _pairwise_public(sample: Sample, judge: SimulatedJudge) -> pd.DataFrame:
    cells, gold, doublings, preference = _pairs(sample)
    texts = [
        {f"response_{side}": "w" * int(n) for side, n in zip("ab", row, strict=True)} for row in np.rint(2**doublings)
    ]
    names = np.select([preference > 0, preference < 0], ["a", "b"], "tie")
    return probes.length_controlled(
        judge.choose(cells, gold, doublings), pd.DataFrame(texts).assign(id=cells["id"], preference=names)
    )


def _drift(sample: Sample, judge: SimulatedJudge) -> Estimates:
    view = sample.view()
    pair = Contrast(_before(judge).scored(view), judge.scored(view, sample=1))
    return {"change": contrasts.change(pair, **C)}


def _before(judge: SimulatedJudge) -> SimulatedJudge:
    return replace(judge, planted=replace(judge.planted, leniency=0.0))


def _drift_public(sample: Sample, judge: SimulatedJudge) -> pd.DataFrame:
    view = sample.view()
    return probes.drift(_before(judge).run(view), judge.run(view, first=1))


def _consistency(sample: Sample, judge: SimulatedJudge) -> Estimates:
    frame = _consistency_public(sample, judge)
    return {
        case: Estimate(*(frame[name][place] for name in Estimate._fields)) for place, case in enumerate(frame["case"])
    }


def _consistency_public(sample: Sample, judge: SimulatedJudge) -> pd.DataFrame:
    return probes.consistency(judge.run(sample.view(), samples=4))


def _deviation(sample: Sample, judge: SimulatedJudge) -> Estimates:
    pair = _pair(sample, judge, "image_blanked")
    return {"integrality: image blanked": share(~pair.flags, pair.group, **C)}


def _changed(probe: Callable[..., pd.DataFrame], name: str, measure: str) -> tuple[Estimator, Public]:
    """A probe that compares one perturbation with the original."""
    estimate = {"change": contrasts.change, "agreement": contrasts.agreement}[measure]
    case = f"{name.replace('_', ' ')}: {measure}"
    return (
        lambda sample, judge: {case: estimate(_pair(sample, judge, name), **C)},
        lambda sample, judge: probe(_runs(sample, judge, name)),
    )


def _original(probe: Callable[..., pd.DataFrame], *, texts: bool = False) -> Public:
    """A probe that needs the original run, and the items' texts where asked."""
    return lambda sample, judge: probe(judge.run(sample.view()), *([sample.texts] if texts else []))


STUDIES = (
    Study("length", "length", {"slope at equal gold": "slope at equal gold", "partial rank correlation": "rank"},
          lambda b: Planted(length=b), (0, 0.05, 0.1, 0.15, 0.2), "score per doubling",
          _length, _original(probes.length, texts=True)),
    Study("length", "length, better is longer",
          {"slope at equal gold": "slope, better is longer", "partial rank correlation": "rank, better is longer"},
          lambda b: Planted(length=b), (0, 0.05, 0.1, 0.15, 0.2), "score per doubling",
          _length, _original(probes.length, texts=True), longer=0.5),
    Study("length", "length, noisy judge",
          {"slope at equal gold": "slope, noisy judge", "partial rank correlation": "rank, noisy judge"},
          lambda b: Planted(length=b, noise=1.2), (0, 0.1, 0.2, 0.3), "score per doubling",
          _length, _original(probes.length, texts=True)),
    Study("verbosity", "padding", {"response padded: change": "padding: change"},
          lambda b: Planted(length=b), (0, 0.05, 0.1, 0.15, 0.2), "score per doubling",
          *_changed(probes.verbosity, "response_padded", "change")),
    Study("length_controlled", "length in pairs", {"length: log-odds": "log-odds of length"},
          lambda b: Planted(pairwise_length=b), (0, 0.1, 0.2, 0.3, 0.5), "log-odds per doubling",
          _pairwise, _pairwise_public),
    Study("position", "position", {"first shown wins": "first shown wins"},
          lambda b: Planted(position=b), (0, 0.1, 0.2, 0.3, 0.5), "log-odds of the first", _position, _position_public),
    Study("blindness", "blindness (sees)", {"image blanked: agreement": "image blanked: agreement"},
          lambda b: Planted(sight=b), (0, 0.05, 0.1, 0.15, 0.25), "share seen",
          *_changed(probes.blindness, "image_blanked", "agreement")),
    Study("rubric", "rubric (reads)", {"levels reversed: agreement": "levels reversed: agreement"},
          lambda b: Planted(reading=b), (0, 0.02, 0.05, 0.08, 0.12), "share read",
          *_changed(probes.rubric, "levels_reversed", "agreement")),
    Study("question", "question (reads)", {"query removed: agreement": "query removed: agreement"},
          lambda b: Planted(listening=b), (0, 0.05, 0.1, 0.15, 0.25), "share read",
          *_changed(probes.question, "query_removed", "agreement")),
    Study("reference", "reference", {"reference removed: agreement": "reference removed: agreement"},
          lambda b: Planted(copying=b), (0, 0.05, 0.1, 0.15, 0.25), "share copied",
          *_changed(probes.reference, "reference_removed", "agreement")),
    Study("reference", "reference overlap", {"overlap: slope at equal gold": "overlap: slope"},
          lambda b: Planted(overlap=b), (0, 0.25, 0.5, 1, 1.5), "score, full overlap",
          _overlap, _original(probes.reference, texts=True)),
    Study("formatting", "format", {"response bold: change": "bold: change"},
          lambda b: Planted(formatting=b), (0, 0.05, 0.1, 0.15, 0.25), "score points",
          *_changed(probes.formatting, "response_bold", "change")),
    Study("injection", "injection", {"injected verdict: change": "verdict: change"},
          lambda b: Planted(injection=b), (0, 0.05, 0.1, 0.15, 0.25), "score points",
          _injection, lambda sample, judge: probes.injection(_runs(sample, judge, "injected_verdict"))),
    Study("scale", "leniency", {"leniency": "leniency"},
          lambda b: Planted(leniency=b), (0, 0.05, 0.1, 0.15, 0.25), "score points", _scale, _original(probes.scale)),
    Study("scale", "range compression", {"compression": "compression"},
          lambda b: Planted(compression=-b, whole=False), (0, 0.02, 0.05, 0.08, 0.12), "share of the slope",
          _scale, _original(probes.scale)),
    Study("image_kinds", "kinds of image", {"text-rich: leniency": "text-rich: leniency"},
          lambda b: Planted(kind=b), (0, 0.1, 0.2, 0.3, 0.5), "score points", _kinds, _kinds_public),
    Study("drift", "drift", {"change": "change"},
          lambda b: Planted(leniency=b), (0, 0.05, 0.1, 0.15, 0.25), "score points", _drift, _drift_public),
    Study("consistency", "", {"disagreement": "disagreement", "distance": "distance"},
          lambda b: Planted(noise=b), (0.3, 0.6), "noise, score points",
          _consistency, _consistency_public, tested=False),
    Study("judgebias", "", {"integrality: image blanked": "Bias-Deviation, image blanked"},
          lambda b: Planted(sight=b), (0.5, 1.0), "share seen",
          _deviation, lambda sample, judge: probes.judgebias(_runs(sample, judge, "image_blanked")), tested=False),
    Study("position", "", {"order decides": "order decides"},
          lambda b: Planted(position=b), (0.0, 0.5), "log-odds of the first",
          _position, _position_public, tested=False),
)  # fmt: skip
"""What `make validity` runs."""
