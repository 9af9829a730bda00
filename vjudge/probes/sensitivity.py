"""Does the score move when it must? The image, the question and the rubric taken away or exchanged.

Each probe takes a judge and items, or the runs made of them:

    probes.blindness(judge, items, out="outputs/tiny-probes")
    probes.blindness({"original": run, "image_blanked": blank})

and returns the table of `probes.COLUMNS`. Shared arguments:

    judge: a `vjudge.Judge` or anything with its `grade`; or runs, by "original" and the names in `PERTURBATIONS`
    items: the collection; not needed with runs
    out: a folder, one run a sub-folder; the same call continues there
    score: the run's column that is compared, "score" or "expected_score"
    confidence: of the intervals, in (0, 1)
    seed: of the perturbations
    grading: further options of `Judge.grade`

A change in agreement is the change of the slope of score on gold, in score points a gold point: -1 where a judge that
followed gold one to one loses all it knew. It needs gold scores; without them the size of the change is given.
"""

from __future__ import annotations

from typing import Any

import pandas as pd

from vjudge.probes.contrasts import contrasts
from vjudge.probes.outcome import table
from vjudge.probes.trials import Trials


def blindness(
    judge: Any, items: Any = None, *, out: Any = None, score: str = "score", confidence: float = 0.95, seed: int = 0,
    **grading: Any,
) -> pd.DataFrame:  # fmt: skip
    """Whether the judge looks at the image: blanked, exchanged between groups, its tiles shuffled.

    The score must move: agreement with gold must be lost. p tests that nothing is lost, so a small p speaks for the
    judge. That many judges give the same score with and without the image is MM-JudgeBias's main finding.
    """
    trials = Trials.of(judge, items, out=out, seed=seed, confidence=confidence, **grading)
    measures = dict.fromkeys(("image_blanked", "image_swapped", "image_shuffled"), ("agreement",))
    rows = contrasts(trials, "blindness", measures, score=score, confidence=confidence)
    return table(rows, confidence=confidence, seed=seed)


def question(
    judge: Any, items: Any = None, *, out: Any = None, score: str = "score", confidence: float = 0.95, seed: int = 0,
    **grading: Any,
) -> pd.DataFrame:  # fmt: skip
    """Whether the judge reads the instruction: removed, exchanged for another group's, put more politely.

    Removed or exchanged, the score must move; reworded, it must stay. Where the rubric and the response say by
    themselves what was asked, as in Scenes, a sound judge need not move; read this probe with the collection in mind.
    """
    trials = Trials.of(judge, items, out=out, seed=seed, confidence=confidence, **grading)
    measures = dict.fromkeys(("query_removed", "query_swapped", "query_reworded"), ("change", "agreement"))
    rows = contrasts(trials, "question", measures, score=score, confidence=confidence)
    return table(rows, confidence=confidence, seed=seed)


def rubric(
    judge: Any, items: Any = None, *, out: Any = None, score: str = "score", confidence: float = 0.95, seed: int = 0,
    **grading: Any,
) -> pd.DataFrame:  # fmt: skip
    """Whether the judge follows the rubric: its levels reversed, its criterion exchanged for the least similar one.

    The score must move. With reversed levels, a judge that reads them mirrors its scores: agreement changes by -2, and
    by 0 where it goes by its own idea of good. With another criterion, agreement with the old gold must be lost.
    """
    trials = Trials.of(judge, items, out=out, seed=seed, confidence=confidence, **grading)
    measures = dict.fromkeys(("levels_reversed", "criterion_swapped"), ("agreement",))
    rows = contrasts(trials, "rubric", measures, score=score, confidence=confidence)
    return table(rows, confidence=confidence, seed=seed)
