"""Does a judge agree with itself: over samples and seeds of one run, and between two runs or model versions?

The table is that of `vjudge.probes.sensitivity`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from vjudge.metrics._tables import check_options, scores
from vjudge.probes.contrasts import Contrast, agreement, change
from vjudge.probes.estimates import mean, share
from vjudge.probes.outcome import Unmet, row, table
from vjudge.probes.trials import Trials, groups_of

SAMPLED = "sampled"


def consistency(
    judge: Any, items: Any = None, *, samples: int = 4, temperature: float = 1.0, top_p: float = 0.9, out: Any = None,
    score: str = "score", confidence: float = 0.95, seed: int = 0, **grading: Any,
) -> pd.DataFrame:  # fmt: skip
    """How often, and by how much, two verdicts on the same item differ. They must stay the same.

    Args:
        judge: a judge, which is then sampled; a run with a column `sample`; or a mapping of runs of the same items, one
            a seed. (In a mapping for several probes, the run named "sampled" is taken.)
        samples, temperature, top_p, seed: of the sampling; the default is Prometheus-Vision's published decoding.
        Others: as in `vjudge.probes.sensitivity`.

    Returns:
        Rows "disagreement" (probability that two verdicts on an item differ by half a level or more) and "distance"
        (mean absolute difference of two verdicts on an item). No p: no sampled judge disagrees with itself never.
        An item counts with two scores or more; others are missing.

    Raises:
        Unmet: runs without repeated verdicts.
    """
    trials = Trials.of(judge, items, out=out, seed=seed, confidence=confidence, **grading)
    if trials.judge is not None:
        options = dict(samples=samples, temperature=temperature, top_p=top_p, seed=seed, mode="feedback")
        frame = trials.grade(SAMPLED, trials.items, **options)
    elif SAMPLED in trials.runs or len(trials.runs) == 1:
        frame = trials.runs.get(SAMPLED, next(iter(trials.runs.values())))
    elif "original" in trials.runs:
        raise Unmet('needs repeated verdicts: pass the run of several samples as "sampled"')
    else:
        frame = pd.concat(list(trials.runs.values()), ignore_index=True)
    ids = frame["id"].astype(str).to_numpy()
    if len(np.unique(ids)) == len(ids):
        raise Unmet("needs repeated verdicts: grade with samples=2 or more and a temperature, or pass runs by seed")
    if score not in frame:
        raise Unmet(f"needs the column {score!r}")
    cells = pd.DataFrame({"id": ids, "score": scores(frame[score], name=score), "group": groups_of(frame)})
    n_items = cells["id"].nunique()
    cells = cells[cells["score"].notna()]
    differ, distance, group = [], [], []
    for m, own, groups in _by_count(cells):
        one, other = np.triu_indices(m, 1)
        apart = np.abs(own[:, one] - own[:, other])
        differ += (apart >= 0.5).mean(axis=1).tolist()
        distance += apart.mean(axis=1).tolist()
        group += list(groups)
    if not differ:
        raise Unmet("needs two scores or more of an item; no item has them")
    told: dict[str, Any] = dict(judge=trials.name, probe="consistency", must="stay")
    told |= {"missing": n_items - len(differ), "moved": float(np.mean(np.array(differ) > 0))}
    flags = mean(np.array(differ), np.array(group), confidence=confidence)
    if flags.low == flags.high:  # all alike: the interval of a share keeps a width
        flags = share(np.array(differ) > 0, np.array(group), confidence=confidence)
    gaps = mean(np.array(distance), np.array(group), confidence=confidence)
    bounded = [flags.within(0, 1)._replace(p=np.nan), gaps.within(0)._replace(p=np.nan)]
    made = [
        row(bounded[0], case="disagreement", unit="share of pairs of verdicts", **told),
        row(bounded[1], case="distance", unit="score points", **told),
    ]
    return table(made, confidence=confidence, seed=seed)


def _by_count(cells: pd.DataFrame) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    """Items of two scores or more by how many they have: m, scores of shape (items, m), and their groups."""
    code, _ = pd.factorize(cells["id"])
    order = np.argsort(code, kind="stable")
    counts = np.bincount(code)
    size = counts[code][order]
    scores, groups = cells["score"].to_numpy()[order], cells["group"].to_numpy(dtype=object)[order]
    for m in np.unique(counts[counts > 1]):
        here = size == m
        yield int(m), scores[here].reshape(-1, m), groups[here].reshape(-1, m)[:, 0]


def drift(
    first: Any, second: Any, items: Any = None, *, out: Any = None, score: str = "score", confidence: float = 0.95,
    seed: int = 0, **grading: Any,
) -> pd.DataFrame:  # fmt: skip
    """Whether scores moved between two runs of the same items, or two versions of a judge. They must stay.

    Args:
        first, second: runs, or judges that grade the items now (`out` then keeps runs "first" and "second").
        Others: as in `vjudge.probes.sensitivity`.

    Returns:
        Rows "change" (mean of second less first), "moved" (share of items that moved by half a level; no p) and, where
        gold is known, "agreement" (change of the slope of score on gold). `missing` counts items without a score in
        both runs, those that only the first run has among them.

    Raises:
        ValueError: the second run has items that the first has not.
    """
    check_options(confidence=confidence)
    runs = []
    for name, one in (("first", first), ("second", second)):
        if isinstance(one, pd.DataFrame):
            trials = Trials(one, seed=seed)
            runs.append((trials.name, trials.run()))
        else:
            trials = Trials(one, items, out=out, seed=seed, **grading)
            runs.append((trials.name, trials.grade(name, trials.items)))
    pair = Contrast.of(runs[0][1], runs[1][1], score=score)
    names = " to ".join(dict.fromkeys(name for name, _ in runs))
    only_first = runs[0][1]["id"].nunique() - runs[1][1]["id"].nunique()  # the second has no other ids
    told: dict[str, Any] = dict(judge=names, probe="drift", must="stay", moved=pair.moved)
    told |= {"missing": pair.n_left_out + only_first}
    rows = [
        row(change(pair, confidence=confidence), case="change", unit="score points", **told),
        row(share(pair.flags, pair.group, confidence=confidence), case="moved", unit="share of items", **told),
    ]
    if pair.has_gold:
        estimate = agreement(pair, confidence=confidence)
        rows.append(row(estimate, case="agreement", unit="score per gold point", **told))
    return table(rows, confidence=confidence, seed=seed)
