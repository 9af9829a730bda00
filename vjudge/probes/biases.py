"""Probes of the scores as they are, at equal gold and over samples; the battery of all probes.

Every probe takes a judge and items, or the runs made of them, and the options of `ProbeRuns`; one
that lacks something raises `MissingInputError`, which says what.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy.spatial.distance import pdist

from vjudge.metrics import lengths
from vjudge.probes.changes import (
    anchoring,
    blindness,
    commitment,
    formatting,
    injection,
    question,
    reference,
    rewording,
    rubric,
    verbosity,
)
from vjudge.probes.effects import coefficient, equal, mean, share, slope
from vjudge.probes.pairs import position
from vjudge.probes.runs import (
    AGREEMENT,
    GOLD,
    MOVED,
    POINTS,
    SAMPLED,
    MissingInputError,
    ProbeRuns,
    ratings,
    verdicts,
)

Row = dict[str, Any]


def length(judge: Any, items: Any = None, **options: Any) -> pd.DataFrame:
    """Estimate the slope of the score on the response's length at equal gold, per doubling.

    Exact gold is held equal by its levels, or ten classes and the score within them; of people's
    mean score the noise is taken out. Otherwise this is a description, `verbosity` the verdict:
    where better answers are longer, noise in gold alone gives an honest judge a slope. Length is
    in words; a character of a script without spaces is a word.

    >>> import pandas as pd
    >>> from vjudge.probes import length
    >>> run = pd.DataFrame({"id": list("abcd"), "score": [1, 2, 3, 4], "gold": [2, 2, 3, 3]})
    >>> table = length(run.assign(group=list("abab"), response=["w", "w w", "w", "w w"]))
    >>> round(float(table.loc[0, "effect"]), 3), table.loc[0, "finding"]
    (1.0, 'doubling the length raises scores at equal gold by 1.00')
    """
    runs = ProbeRuns.of(judge, items, **options)
    cells = runs.scored()
    sizes = lengths(runs.column("response").reindex(cells.index))
    cells["x"] = np.log2(sizes.where(sizes > 0))
    note = f"length in {sizes.attrs['unit']}; "
    about = ("slope at equal gold", "score per doubling", "doubling the length")
    return runs.table("length", [_at_equal_gold(runs, cells, *about, note)])


def _at_equal_gold(
    runs: ProbeRuns, cells: pd.DataFrame, case: str, unit: str, does: str, note: str = ""
) -> Row:
    """The row of the slope of the score on the column x at equal gold, read as `gold=` allows."""
    lacks = "gold scores"
    cells = cells.assign(error=0.0)
    if runs.gold == "rated":
        lacks = "human_scores of two people or more an item"
        people = ratings(runs.column("human_scores")).reindex(cells.index)
        cells["error"] = people.var(axis=1) / people.count(axis=1)  # NaN of one person
        cells["gold"] = people.mean(axis=1).where(cells["error"].notna())
    if cells["gold"].isna().all():
        what = "only at equal gold is what people see in an answer told from a bias"
        raise MissingInputError(f"needs {lacks}: {what}")
    used = cells.dropna(subset=["score", "gold", "x"])
    x, gold, error = used[["x", "gold", "error"]].to_numpy(dtype=float).T
    if runs.gold == "rated":
        design = np.column_stack([x - x.mean(), np.ones(len(x)), gold - gold.mean()])
        effect = coefficient(used["score"], design, used["group"], error=error)
    else:
        effect = coefficient(used["score"], np.column_stack([x, equal(gold)]), used["group"])
    must = None if runs.gold == "observed" else "stay"
    says = f"{does} {{raises}} scores at equal gold by {{size}}"
    missing = len(cells) - len(used)
    return runs.row(case, effect, unit, must, says, missing=missing, note=note + GOLD[runs.gold])


def self_preference(
    judge: Any,
    items: Any = None,
    *,
    own: str | Sequence[str] | None = None,
    author: str = "model",
    **options: Any,
) -> pd.DataFrame:
    """Test whether the judge prefers its own responses to others of equal quality.

    Rows are "own responses: score" and "own responses: gold", the plain differences from others,
    which are descriptions; and "own responses at equal gold", which is liking without quality and
    must stay 0 where gold is exact or rated.

    Args:
        judge, items, options: see `ProbeRuns`.
        own: the judge's name, or those of its family, in the column `author`.
        author: the column that says whose response it is.

    Source: Spiliopoulou et al. (arXiv 2508.06709): the shift of a judge's scores on its own
    responses, given an independent measure of their quality; here by least squares.
    """
    runs = ProbeRuns.of(judge, items, **options)
    if own is None:
        raise MissingInputError(f"needs own=: the judge's own name in the column {author!r}")
    names = [own] if isinstance(own, str) else list(own)
    cells = runs.scored()
    authors = runs.column(author).reindex(cells.index)
    cells["x"] = authors.isin(names).astype(float).where(authors.notna())
    if cells["x"].nunique() < 2:
        what = f"responses of {', '.join(names)} and of others in the column {author!r}"
        raise MissingInputError(f"needs {what}")
    liking = _at_equal_gold(
        runs, cells, "own responses at equal gold", POINTS, "being the judge's own"
    )
    rows = []
    for column in ("score", "gold"):
        used = cells.dropna(subset=["x", column])
        effect = slope(used[column], used["x"], used["group"])
        says = f"own responses have a mean {column} {{size}} {{above}} others"
        missing = len(cells) - len(used)
        case = f"own responses: {column}"
        rows.append(runs.row(case, effect, POINTS, says=says, missing=missing))
    return runs.table("self_preference", [*rows, liking])


def image_kinds(
    judge: Any, items: Any = None, *, kind: str = "kind", **options: Any
) -> pd.DataFrame:
    """Estimate agreement by kind of image, the column `kind`, and whether one kind is favoured.

    Rows of each are "agreement" (slope of score on gold; a description) and "against the others"
    (difference of mean scores at equal gold; must stay 0 where gold is exact or rated).
    """
    runs = ProbeRuns.of(judge, items, **options)
    cells = runs.scored()
    label = runs.column(kind).reindex(cells.index)
    names = sorted(label.dropna().unique(), key=str)
    if len(names) < 2:
        raise MissingInputError(f"needs two kinds of image or more; {kind!r} has {len(names)}")
    rows = []
    for name in names:
        here = cells[label == name].dropna(subset=["score", "gold"])
        effect = slope(here["score"], here["gold"], here["group"])
        says = f"on {name} the slope of scores on gold is {{size}}"
        rows.append(runs.row(f"{name}: agreement", effect, AGREEMENT, says=says))
        if name == names[0] or len(names) > 2:  # of two kinds, the second would mirror the first
            cells["x"] = (label == name).astype(float).where(label.notna())
            case = f"{name}: against the others"
            rows.append(_at_equal_gold(runs, cells, case, POINTS, f"the kind {name}"))
    return runs.table("image_kinds", rows)


def scale(judge: Any, items: Any = None, **options: Any) -> pd.DataFrame:
    """Describe leniency (mean of score less gold) and compression (slope on gold, less one).

    Whole scores at the ends of the scale and noise in gold flatten that slope for a judge without
    bias too.
    """
    runs = ProbeRuns.of(judge, items, **options)
    cells = runs.scored()
    if cells["gold"].isna().all():
        what = "without them nobody knows whether a mild judge saw good answers"
        raise MissingInputError(f"needs gold scores: {what}")
    used = cells.dropna(subset=["score", "gold"])
    error = used["score"] - used["gold"]
    lenient = mean(error, used["group"])
    narrow = slope(error, used["gold"], used["group"])
    counts: Row = {"missing": len(cells) - len(used)}
    says = "the mean score is {size} {above} gold"
    flat = "the slope of scores on gold is {size} {above} one"
    rows = [
        runs.row("leniency", lenient, POINTS, says=says, **counts),
        runs.row("compression", narrow, f"{AGREEMENT}, less one", says=flat, **counts),
    ]
    return runs.table("scale", rows)


def consistency(
    judge: Any,
    items: Any = None,
    *,
    samples: int = 4,
    temperature: float = 1.0,
    top_p: float = 0.9,
    **options: Any,
) -> pd.DataFrame:
    """Describe how often (by half a level), and by how much, two verdicts on an item differ.

    Rows are "disagreement" and "distance". A judge is sampled, by default as Prometheus-Vision was
    published; of runs, "sampled" or the original has several verdicts an item.
    """
    runs = ProbeRuns.of(judge, items, **options)
    if runs.judge is None:
        frame = runs.runs.get(SAMPLED, runs.run())
    else:
        decoding = {"temperature": temperature, "top_p": top_p, "seed": runs.seed}
        frame = runs.run(SAMPLED, runs.items, mode="feedback", samples=samples, **decoding)
    cells = verdicts(frame, runs.score)
    lines = []
    for _, own in cells.dropna(subset="score").groupby(level=0, sort=False):
        gaps = pdist(own[["score"]], "cityblock")
        if len(gaps):
            lines.append(((gaps >= MOVED).mean(), gaps.mean(), own["group"].iloc[0]))
    if not lines:
        what = 'grade with samples=2 or more and a temperature, as the run "sampled"'
        raise MissingInputError(f"needs repeated verdicts: {what}")
    pairs = pd.DataFrame(lines, columns=["differ", "gap", "group"])
    estimate = mean if pairs["differ"].any() else share  # all alike: Wilson's interval
    differ = estimate(pairs["differ"], pairs["group"])
    differ = differ._replace(low=max(differ.low, 0.0), high=min(differ.high, 1.0))
    gap = mean(pairs["gap"], pairs["group"])
    gap = gap._replace(low=max(gap.low, 0.0))
    missing = cells.index.nunique() - len(pairs)
    counts = {"missing": missing, "moved": float((pairs["differ"] > 0).mean())}
    often = "two verdicts on an item differ in {size} of the pairs"
    far = "two verdicts on an item are {size} apart"
    rows = [
        runs.row("disagreement", differ, "share of pairs of verdicts", says=often, **counts),
        runs.row("distance", gap, POINTS, says=far, **counts),
    ]
    return runs.table("consistency", rows)


PROBES: dict[str, Callable[..., pd.DataFrame]] = {
    "blindness": blindness,
    "question": question,
    "rubric": rubric,
    "rewording": rewording,
    "reference": reference,
    "length": length,
    "verbosity": verbosity,
    "formatting": formatting,
    "injection": injection,
    "anchoring": anchoring,
    "commitment": commitment,
    "self_preference": self_preference,
    "scale": scale,
    "image_kinds": image_kinds,
    "position": position,
    "consistency": consistency,
}
"""The battery's probes, in the order of its table. `drift` compares two runs."""


def battery(
    judge: Any,
    items: Any = None,
    *,
    probes: Sequence[str] = (*PROBES,),
    samples: int = 4,
    own: str | Sequence[str] | None = None,
    **options: Any,
) -> pd.DataFrame:
    """Run every probe that applies to a judge, and return one table with a verdict on each row.

    Each perturbation is graded once: about thirty passes over the items. All tests share Holm's
    correction: of honest judges, one in twenty at most is accused of anything.

    Args:
        judge, items, options: see `ProbeRuns`. Among runs, "sampled" serves `consistency`,
            "compared" `position`, for which a judge compares responses to one question.
        probes: names of `PROBES`.
        samples: verdicts an item for `consistency`.
        own: the judge's own name among the responses' authors, for `self_preference`.

    Returns:
        The rows of all probes; one that does not apply has a row whose `note` says what it needs,
        as does `attrs["not_run"]`.

    ValueError: an unknown probe or an unsound option.
    """
    unknown = [name for name in probes if name not in PROBES]
    if unknown:
        raise ValueError(f"probes {unknown} are unknown; use some of {', '.join(PROBES)}")
    runs = ProbeRuns.of(judge, items, **options)
    more: dict[str, Row] = {"consistency": {"samples": samples}, "self_preference": {"own": own}}
    rows = []
    not_run = {}
    for name in probes:
        try:
            rows += PROBES[name](runs, **more.get(name, {})).to_dict("records")
        except MissingInputError as error:
            not_run[name] = str(error)
            rows.append(runs.row("", note=str(error)) | {"probe": name})
    result = runs.table("", rows)
    result.attrs["not_run"] = not_run
    return result
