"""The probes: each looks for one bias and returns one small table with the columns of `probes.COLUMNS`.

    probes.blindness(judge, items, out="outputs/tiny-probes")
    probes.blindness({"original": run, "image_blanked": blank})
    probes.blindness(probes.Trials(judge, items, out="outputs/tiny-probes"))

Every probe takes a judge and items, or the runs made of them, and the options of `probes.Trials`: out, score, gold,
margins, least, confidence, seed, and further options of `Judge.grade`.

A change in agreement is the change of the slope of score on gold, in score points a gold point: -1 where a judge that
followed gold one to one loses all it knew. Noise in gold makes all such slopes smaller by one factor, and no judge's
agreement fall.

What is read off observed scores at equal gold (the slope on length, a kind of image against the others) is a
description, unless `gold` says that gold is exact or rated by several people: where better answers are longer, noise in
gold alone gives an honest judge a slope on length. The verdict on length is that of the padding experiment.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from vjudge import data
from vjudge.data import rows_of
from vjudge.metrics._bootstrap import Floats
from vjudge.metrics._tables import scores
from vjudge.metrics.baselines import lengths
from vjudge.probes._cluster import NAN, Effect, coefficient, equal, mean, share, slope
from vjudge.probes.outcome import Unmet, row, table, unmet
from vjudge.probes.perturbations import PERTURBATIONS, PHRASES
from vjudge.probes.runs import (
    COMPARED,
    MOVED,
    ORIGINAL,
    PADDED,
    SAMPLED,
    Contrast,
    Trials,
    groups_of,
    name_of,
    ratings_of,
    scored,
    text_ids,
)  # fmt: skip

AGREEMENT = "score per gold point"
POINTS = "score points"

# --- must the score move? The image, the question, the rubric ---------------------------------------------------------


def blindness(judge: Any, items: Any = None, **options: Any) -> pd.DataFrame:
    """Whether the judge looks at the image: blanked, exchanged between groups, its tiles shuffled.

    The score must move: at least a quarter of the agreement with gold must be lost (`least`), so that a judge that
    takes nine tenths from the text is not passed. Stored anew as JPEG, the image is the same and the score must stay.
    That many judges give the same score with and without the image is MM-JudgeBias's main finding.

    Source: MM-JudgeBias (arXiv 2604.18164); the effect sizes are ours.
    """
    trials = Trials.of(judge, items, **options)
    measures = dict.fromkeys(("image_blanked", "image_swapped", "image_shuffled"), ("agreement",))
    return _table(trials, contrasts(trials, "blindness", {**measures, "image_reencoded": ("change", "agreement")}))


def question(judge: Any, items: Any = None, **options: Any) -> pd.DataFrame:
    """Whether the judge reads the instruction: removed, exchanged for another group's, put more politely.

    Reworded, the score must stay. Where the rubric and the response say by themselves what was asked, as in Scenes, a
    sound judge loses nothing without the instruction: what is lost is described, unless `needs` names "query".
    """
    trials = Trials.of(judge, items, **options)
    measures = {"query_removed": ("agreement",), "query_swapped": ("agreement",)}
    return _table(trials, contrasts(trials, "question", {**measures, "query_reworded": ("change", "agreement")}))


def rubric(judge: Any, items: Any = None, **options: Any) -> pd.DataFrame:
    """Whether the judge follows the rubric: its levels reversed, its criterion exchanged for the least similar one.

    With reversed levels the score must move: a judge that reads them mirrors its scores and loses twice its agreement,
    and nothing where it goes by its own idea of good. What is lost with another criterion is described, unless `needs`
    names "criterion": people's scores by one criterion may well agree with those by another.
    """
    trials = Trials.of(judge, items, **options)
    measures = dict.fromkeys(("levels_reversed", "criterion_swapped"), ("agreement",))
    return _table(trials, contrasts(trials, "rubric", measures))


def change(pair: Contrast, *, confidence: float) -> Effect:
    """The mean change of the score, in points."""
    return mean(pair.delta, pair.group, confidence=confidence)


def agreement(pair: Contrast, *, confidence: float) -> Effect:
    """How much the slope of score on gold changes: score points a gold point."""
    rated = ~np.isnan(pair.gold)
    return slope(pair.delta[rated], pair.gold[rated], pair.group[rated], confidence=confidence)


def loss(pair: Contrast, least: float, *, confidence: float) -> tuple[Effect, float]:
    """The change of the slope of score on gold, with p of the least loss that counts, and that loss.

    Args:
        pair: the scores before and after.
        least: the share of the slope before that must be lost.

    Returns:
        The change; its p is that of a loss of just this share: of the slope of after - (1 - least) before being 0. NaN
        where no agreement is shown before, since then nothing can be lost. And the loss in score points a gold point.
    """
    rated = ~np.isnan(pair.gold)
    gold, group, before = pair.gold[rated], pair.group[rated], pair.before[rated]
    old = slope(before, gold, group, confidence=confidence)
    rest = slope(pair.after[rated] - (1 - least) * before, gold, group, confidence=confidence)
    return agreement(pair, confidence=confidence)._replace(p=rest.p if old.low > 0 else NAN), least * old.effect


def contrasts(trials: Trials, probe: str, measures: Mapping[str, tuple[str, ...]]) -> list[dict[str, Any]]:
    """A row for each perturbation and measure.

    Args:
        trials: the runs.
        probe: name of the probe.
        measures: perturbation -> its measures, of "change" and "agreement". Without gold there is no agreement: the
            size of the change is then described where the score must move, and nothing is where it must stay.
    """
    rows = []
    for name in trials.available(*measures):
        kind, case = PERTURBATIONS[name], name.replace("_", " ")
        try:
            pair = trials.contrast(name)
        except Unmet as error:
            if trials.judge is None:
                raise
            rows.append(unmet(probe, str(error), judge=trials.name) | {"case": case})
            continue
        note = kind.does + _left_out(trials, name)
        common: dict[str, Any] = dict(judge=trials.name, probe=probe, missing=pair.missing, moved=pair.moved)
        must: str | None
        for measure in measures[name]:
            if measure == "agreement" and not pair.has_gold:
                if kind.must == "stay":
                    continue
                effect, unit, margin, must = _mean(trials, np.abs(pair.delta), pair.group), POINTS, NAN, None
                line, text = f"{case}: size of the change", f"{note}; without gold, nobody knows what must be lost"
            elif kind.must == "move" and kind.part in trials.needs:
                effect, margin = loss(pair, trials.least * kind.loss, confidence=trials.confidence)
                unit, must, line, text = AGREEMENT, "move", f"{case}: agreement", note
                if np.isnan(effect.p):
                    text += "; no agreement with gold is shown that could be lost"
            elif kind.must == "move":
                effect, unit, margin, must = agreement(pair, confidence=trials.confidence), AGREEMENT, NAN, None
                line, text = f"{case}: agreement", f"{note}; a verdict where needs names {kind.part!r}"
            else:
                measured, unit = {"change": (change, POINTS), "agreement": (agreement, AGREEMENT)}[measure]
                effect, margin = measured(pair, confidence=trials.confidence), trials.margins[unit]
                must, line, text = kind.must, f"{case}: {measure}", note
            rows.append(row(effect, case=line, must=must, unit=unit, margin=margin, note=text, **common))
    return rows


# --- must the score stay? The reference, the format, a verdict written into the response ------------------------------


def formatting(judge: Any, items: Any = None, **options: Any) -> pd.DataFrame:
    """Whether Markdown moves the score: a word of each sentence in bold, sentences as a list. It must stay.

    So must the agreement with gold: format that moves scores both ways shows itself there, not in the mean change.
    """
    trials = Trials.of(judge, items, **options)
    measures = dict.fromkeys(("response_bold", "response_listed"), ("change", "agreement"))
    return _table(trials, contrasts(trials, "formatting", measures))


def injection(judge: Any, items: Any = None, **options: Any) -> pd.DataFrame:
    """Whether a verdict or an order written into the response moves the score: each way of `PHRASES`. It must stay.

    The effect is the mean change towards the score that the text asks for. Where gold is there, only items whose gold
    score leaves room for that change count. `missing` counts answers that could not be read any more: an injection
    that breaks the verdict succeeded too.
    """
    trials = Trials.of(judge, items, **options)
    rows = []
    for name in trials.available(*(f"injected_{phrase}" for phrase in PHRASES)):
        best = "worst" not in name
        pair, full = towards(trials.contrast(name), best=best)
        note = f"towards the {'best' if best else 'worst'} score" + (f"; {full} items without room" if full else "")
        rows.append(
            row(
                change(pair, confidence=trials.confidence), judge=trials.name, probe="injection", must="stay",
                case=name.replace("_", " ") + ": change", unit=POINTS, margin=trials.margins[POINTS],
                missing=pair.missing, moved=pair.moved, note=note,
            )
        )  # fmt: skip
    return _table(trials, rows)


def towards(pair: Contrast, *, best: bool) -> tuple[Contrast, int]:
    """A contrast of the items with room to go where a text asks, turned so that going there is positive.

    Room is told by gold, not by the first score: items chosen for a low first score would rise by chance.

    Returns:
        The contrast, and how many items had no room.
    """
    full = 0
    if pair.has_gold:
        end = np.nanmax(pair.gold) if best else np.nanmin(pair.gold)
        room = pair.gold < end if best else pair.gold > end
        full, pair = int((~room).sum()), pair.take(room)
    if not best:
        pair = Contrast(-pair.before, -pair.after, pair.gold, pair.group, pair.ids, pair.missing)
    return pair, full


def reference(judge: Any, items: Any = None, **options: Any) -> pd.DataFrame:
    """Whether the judge leans on the reference answer: removed, and exchanged for another group's.

    The truth about a response does not depend on what it is compared with, so the score and its agreement with gold
    must stay.
    """
    trials = Trials.of(judge, items, **options)
    measures = dict.fromkeys(("reference_removed", "reference_swapped"), ("change", "agreement"))
    return _table(trials, contrasts(trials, "reference", measures))


# --- length -----------------------------------------------------------------------------------------------------------


def verbosity(judge: Any, items: Any = None, **options: Any) -> pd.DataFrame:
    """Whether sentences that say nothing move the score: responses padded to twice their length.

    The score must stay. Each item is its own control, so that nothing need be held equal: this is the verdict on
    length. Rows give the mean change, which is about that of one doubling; where gold is there, the change in agreement
    with it; and for a judge of two responses how often the padded response beats the same response as it was, less one
    half.

    Args: see `Trials`. Sentences are in the response's language; where no row's can be told, padding is refused.
    """
    trials = Trials.of(judge, items, **options)
    rows = contrasts(trials, "verbosity", {"response_padded": ("change", "agreement")})
    if PADDED in trials.runs or getattr(trials.judge, "pairs", None) is not None:
        rows.append(_against_itself(trials))
    return _table(trials, rows)


def _against_itself(trials: Trials) -> dict[str, Any]:
    """Each response against itself, padded, in both orders."""
    pairs = []
    if PADDED not in trials.runs:
        before = {
            str(item["id"]): item["response"] for item in rows_of(trials.items.select_columns(["id", "response"]))
        }
        for item in rows_of(trials.changed("response_padded")):
            shared = {name: value for name, value in dict(item).items() if name not in OWN}
            texts = {"response_a": before[item["id"]], "response_b": item["response"]}
            pairs.append({**shared, **texts, "gold_a": item["gold"], "gold_b": item["gold"], "preference": None})
    ab, ba, group, missing = _both_orders(trials.compare(PADDED, pairs))
    return row(
        mean((2 - ab - ba) / 2 - 0.5, group, confidence=trials.confidence), judge=trials.name, probe="verbosity",
        case="padded against itself: wins", must="stay", unit="share less one half",
        margin=trials.margins["share less one half"], missing=missing, moved=float((ab != ba).mean()),
        note="the padded response against the same one as it was, in both orders",
    )  # fmt: skip


def length(judge: Any, items: Any = None, *, unit: str | None = None, **options: Any) -> pd.DataFrame:
    """The slope of the score on the length of the response at equal gold score.

    Better answers may well be longer, so the gold score is held equal. With `gold="exact"`, by a column for each of its
    levels, or, with more than ten levels, ten classes and the score within them; the score must then stay. With
    `gold="rated"`, by people's mean score, whose noise is taken out. Else this is a description: what gold does not
    know of quality is not held equal, and `verbosity` gives the verdict.

    Args:
        unit: "words", "characters", or None for what the responses' script asks for.
        Others: see `Trials`. With runs, the original is enough; items give the responses, unless the run has a column
            `response`.

    Returns:
        Rows "slope at equal gold" (score points a doubling of length) and, as descriptions, "slope at gold g" for each
        level of gold with ten rows or more.

    Raises:
        Unmet: no gold scores, or no responses.

    >>> import pandas as pd
    >>> from vjudge.probes import length
    >>> run = pd.DataFrame({"id": list("abcdef"), "score": [1, 2, 3, 2, 3, 4], "gold": [2, 2, 2, 3, 3, 3]})
    >>> run["response"] = ["w " * 2**n for n in (1, 2, 3, 1, 2, 3)]
    >>> length(run).loc[0, ["case", "effect", "reading"]].to_list()
    ['slope at equal gold', 1.0, 'described']
    """
    trials = Trials.of(judge, items, **options)
    run = trials.scored()
    x, counted = doublings(trials.column("response").reindex(run.ids), unit)
    note = f"length in {counted}"
    common: dict[str, Any] = dict(probe="length", unit="score per doubling")
    rows = [at_equal_gold(trials, x, case="slope at equal gold", note=note, **common)]
    used = ~(np.isnan(run.score) | np.isnan(run.gold) | np.isnan(x))
    levels, counts = np.unique(run.gold[used], return_counts=True)
    for level in levels[counts >= 10] if len(levels) <= 10 else ():
        here = used & (run.gold == level)
        effect = slope(run.score[here], x[here], run.group[here], confidence=trials.confidence)
        rows.append(row(effect, judge=trials.name, case=f"slope at gold {level:g}", must=None, note=note, **common))
    return _table(trials, rows)


def at_equal_gold(trials: Trials, x: Floats, *, probe: str, case: str, unit: str, note: str = "") -> dict[str, Any]:
    """The row of the slope of the original run's score on x at equal gold, as `Trials.gold` allows it to be read.

    Raises:
        Unmet: no gold, or, for `gold="rated"`, no item with two people's scores.
    """
    run = trials.scored()
    gold, error = run.gold, None
    if trials.gold == "rated":
        gold, error = ratings_of(trials.column("human_scores").reindex(run.ids))
        gold[np.isnan(error)] = NAN  # one person's score says nothing of its noise
    if np.isnan(gold).all():
        lack = "human_scores of two people or more an item" if trials.gold == "rated" else "gold scores"
        raise Unmet(f"needs {lack}: only at equal gold is what people see in an answer told from a bias")
    used = ~(np.isnan(run.score) | np.isnan(gold) | np.isnan(x))
    errors = None if error is None else error[used]
    effect = slope_at_equal_gold(run.score[used], x[used], gold[used], run.group[used], errors, trials.confidence)
    held = {
        "observed": "description: gold's noise is not held equal",
        "exact": "gold held equal",
        "rated": "people's mean held equal, less its noise",
    }
    must = None if trials.gold == "observed" else "stay"
    return row(
        effect, judge=trials.name, probe=probe, case=case, must=must, unit=unit, missing=int((~used).sum()),
        margin=trials.margins[unit] if must else NAN, note="; ".join(filter(None, (note, held[trials.gold]))),
    )  # fmt: skip


def slope_at_equal_gold(
    y: Floats, x: Floats, gold: Floats, group: Any, error: Floats | None = None, confidence: float = 0.95
) -> Effect:
    """The slope of y on x at equal gold: by its levels, or, where its `error` variance is given, by its true value."""
    if error is None:
        return coefficient(y, np.column_stack([x, equal(gold)]), group, confidence=confidence)
    design = np.column_stack([x - x.mean(), np.ones(len(x)), gold - gold.mean()])
    return coefficient(y, design, group, error=error, confidence=confidence)


def doublings(texts: pd.Series, unit: str | None) -> tuple[Floats, str]:
    """Base-2 logarithm of the length, NaN for a text that is missing or empty; and what was counted."""
    sizes = lengths(texts, unit=unit)
    return np.log2(sizes.where(sizes > 0).to_numpy(dtype=float)), str(sizes.attrs["unit"])


# --- how the scale is used --------------------------------------------------------------------------------------------


def scale(judge: Any, items: Any = None, **options: Any) -> pd.DataFrame:
    """Leniency and use of the score range, for each judge of a run: descriptions.

    Whole scores that cannot leave the scale are pulled in at its ends, and noise in gold flattens every slope on it,
    for a judge without bias too; so nothing here is a verdict.

    Args: see `Trials`; a run may hold several judges in its column `judge`.

    Returns:
        For each judge: "leniency" (mean of score less gold) and "compression" (slope of score on gold, less one:
        negative where good and bad are pulled together).

    Raises:
        Unmet: no gold scores.
    """
    trials = Trials.of(judge, items, **options)
    run = trials.run()
    judges = run["judge"].astype(str) if "judge" in run else pd.Series(trials.name, index=run.index)
    rows: list[dict[str, Any]] = []
    for name in judges.unique():
        cells = scored(run[(judges == name).to_numpy()], trials.score)
        used = ~(np.isnan(cells.score) | np.isnan(cells.gold))
        if np.isnan(cells.gold).all():
            raise Unmet("needs gold scores: without them nobody knows whether a mild judge saw good answers")
        y, gold, group = cells.score[used], cells.gold[used], cells.group[used]
        effects = [
            (_mean(trials, y - gold, group), "leniency", POINTS),
            (slope(y - gold, gold, group, confidence=trials.confidence), "compression", f"{AGREEMENT}, less one"),
        ]
        common: dict[str, Any] = dict(judge=name, probe="scale", must=None, missing=int((~used).sum()))
        rows += [row(effect, case=case, unit=unit, **common) for effect, case, unit in effects]
    return _table(trials, rows)


def image_kinds(
    judge: Any, items: Any = None, *, kind: str | Sequence[Any] | pd.Series = "kind", **options: Any
) -> pd.DataFrame:
    """Agreement with gold by kind of image (text-rich, photo, generated, ...), and whether a kind is judged mildly.

    Args:
        kind: the column that names each item's kind, in the run or in the items; or the kinds themselves, one for each
            row of the original run.
        Others: see `Trials`.

    Returns:
        For each kind: "agreement" (slope of score on gold) and "leniency" (mean of score less gold) as descriptions,
        and "against the others" (difference of the mean score from other kinds at equal gold; must stay 0 where
        `gold` is exact or rated).

    Raises:
        Unmet: no column of kinds, one kind only, or no gold scores.
    """
    trials = Trials.of(judge, items, **options)
    run, cells = trials.run(), trials.scored()
    if isinstance(kind, str):
        kinds = trials.column(kind)
    elif len(kind) != len(run):
        raise ValueError(f"kind has {len(kind)} values for {len(run)} rows: give one for each")
    else:
        kinds = pd.Series(list(kind), index=text_ids(run), dtype=object)
    label = kinds[~kinds.index.duplicated()].reindex(cells.ids)
    if label.nunique() < 2:
        source = repr(kind) if isinstance(kind, str) else "kind"
        raise Unmet(f"needs two kinds of image or more; {source} has {label.nunique()}")
    used = ~(np.isnan(cells.score) | np.isnan(cells.gold) | label.isna().to_numpy())
    rows: list[dict[str, Any]] = []
    names = sorted(pd.unique(label[label.notna()]), key=str)
    for name in names:
        here = used & (label == name).to_numpy()
        y, gold, group = cells.score[here], cells.gold[here], cells.group[here]
        common: dict[str, Any] = dict(judge=trials.name, probe="image_kinds", must=None)
        rows += [
            row(
                slope(y, gold, group, confidence=trials.confidence), case=f"{name}: agreement", unit=AGREEMENT, **common
            ),
            row(_mean(trials, y - gold, group), case=f"{name}: leniency", unit=POINTS, **common),
        ]
        if name == names[0] or len(names) > 2:  # of two kinds, the second would mirror the first
            x = np.where(label.isna(), NAN, (label == name) * 1.0)
            rows.append(at_equal_gold(trials, x, probe="image_kinds", case=f"{name}: against the others", unit=POINTS))
    return _table(trials, rows)


# --- two responses ----------------------------------------------------------------------------------------------------

OWN = ("response", "gold", "feedback", "human_scores")  # what the responses to a question do not share


def position(judge: Any, pairs: Any = None, *, confidence: float = 0.95, **comparing: Any) -> pd.DataFrame:
    """Whether the order of the two responses decides the verdict: every pair is shown in both orders.

    Args:
        judge: a judge with `compare`, or the frame that it returned with orders="both".
        pairs: as for `Judge.compare`; `pairs_of_items` makes them of a rubric collection.
        confidence: of the intervals.
        comparing: options of `Judge.compare` (out, progress, ...), or of `Trials` (margins, seed).

    Returns:
        Rows "first shown wins": the share of verdicts for the response shown first less one half, ties counting half
        (must stay 0; with both orders of every pair, quality cancels out). And, as a description, "order decides": the
        share of pairs whose verdicts in the two orders differ. Pairs with a missing verdict or an abstention in an
        order are counted as missing.

    Raises:
        Unmet: the judge compares no pairs, or the comparison has one order only.

    >>> import pandas as pd
    >>> from vjudge.probes import position
    >>> compared = pd.DataFrame({"id": ["1", "2"], "group": ["1", "2"], "verdict_ab": ["a", "a"]})
    >>> compared["verdict_ba"] = ["a", "b"]
    >>> position(compared).set_index("case")["effect"].to_dict()
    {'first shown wins': 0.25, 'order decides': 0.5}
    """
    if isinstance(judge, Trials):
        trials = judge
    else:
        if isinstance(judge, pd.DataFrame):
            judge = {COMPARED: judge.assign(verdict=judge.get("verdict"))}
        trials = Trials(judge, confidence=confidence, **comparing)
    if trials.judge is not None and pairs is None:
        raise Unmet("needs pairs: pass pairs=, or make them with probes.pairs_of_items(items)")
    ab, ba, group, missing = _both_orders(trials.compare(COMPARED, pairs))
    differ = ab != ba
    name = name_of(trials.runs[COMPARED])
    common: dict[str, Any] = dict(judge=name, probe="position", missing=missing, moved=float(differ.mean()))
    unit = "share less one half"
    rows = [
        row(first_shown(ab, ba, group, confidence=trials.confidence), case="first shown wins", must="stay", unit=unit,
            margin=trials.margins[unit], **common),
        row(share(differ, group, confidence=trials.confidence), case="order decides", must=None, unit="share of pairs",
            **common),
    ]  # fmt: skip
    return _table(trials, rows)


def first_shown(ab: np.ndarray, ba: np.ndarray, group: np.ndarray, *, confidence: float) -> Effect:
    """Share of verdicts for the response shown first, less one half; 1, 0 or 1/2 for a, b or a tie in each order."""
    return mean((ab + 1 - ba) / 2 - 0.5, group, confidence=confidence)


def _both_orders(frame: pd.DataFrame) -> tuple[Floats, Floats, np.ndarray, int]:
    """Verdicts in the orders ab and ba (1 for a, 0 for b, 1/2 for a tie), their groups, and pairs without one."""
    if not {"verdict_ab", "verdict_ba"} <= set(frame.columns):
        raise Unmet('needs both orders of every pair: compare with orders="both"')
    points = {"a": 1.0, "b": 0.0, "tie": 0.5}
    ab, ba = (frame[f"verdict_{order}"].map(points).to_numpy(dtype=float) for order in ("ab", "ba"))
    used = ~(np.isnan(ab) | np.isnan(ba))
    if not used.any():
        raise Unmet(f"needs verdicts in both orders; none of {len(frame)} pairs has them")
    return ab[used], ba[used], groups_of(frame)[used], int((~used).sum())


def pairs_of_items(items: Any, *, limit: int | None = None, seed: int = 0) -> list[dict[str, Any]]:
    """Pairs of responses to the same question, from a rubric collection.

    Args:
        items: rows with the canonical columns; responses belong together where group, instruction, reference answer
            and rubric are the same.
        limit: pairs drawn at random among all; None keeps all.
        seed: of that draw, and of which response is a.

    Returns:
        Rows for `Judge.compare`; `preference` by gold, "tie" where equal, None where unknown, and `gold_a`, `gold_b`.
    """
    rows = [dict(item) for item in rows_of(data.canonical(items))]
    rng = np.random.default_rng(seed)
    places = [pair for case in data.cases(items)["rows"] for pair in itertools.combinations(case, 2)]
    if limit is not None and len(places) > limit:
        places = [places[i] for i in sorted(rng.choice(len(places), size=limit, replace=False))]
    pairs = []
    for i, j in places:
        first, second = (rows[i], rows[j]) if rng.random() < 0.5 else (rows[j], rows[i])
        shared = {name: value for name, value in first.items() if name not in OWN}
        a, b = first["gold"], second["gold"]
        rated = a is not None and b is not None and a == a and b == b
        pairs.append(
            {
                **shared,
                "id": f"{first['id']}|{second['id']}",
                **{"response_a": first["response"], "response_b": second["response"], "gold_a": a, "gold_b": b},
                "preference": ("tie" if a == b else "a" if a > b else "b") if rated else None,
            }
        )
    return pairs


# --- does a judge agree with itself? ----------------------------------------------------------------------------------


def consistency(
    judge: Any, items: Any = None, *, samples: int = 4, temperature: float = 1.0, top_p: float = 0.9, **options: Any
) -> pd.DataFrame:
    """How often, and by how much, two verdicts on the same item differ: descriptions.

    Args:
        judge: a judge, which is then sampled; a run with a column `sample`; or a mapping of runs of the same items, one
            a seed. (In a mapping for several probes, the run named "sampled" is taken.)
        samples, temperature, top_p: of the sampling; the default is Prometheus-Vision's published decoding.
        Others: see `Trials`.

    Returns:
        Rows "disagreement" (probability that two verdicts on an item differ by half a level or more) and "distance"
        (mean absolute difference of two verdicts on an item). No verdict: no sampled judge disagrees with itself never.
        An item counts with two scores or more; others are missing.

    Raises:
        Unmet: runs without repeated verdicts.
    """
    trials = Trials.of(judge, items, **options)
    if trials.judge is not None:
        sampling = dict(samples=samples, temperature=temperature, top_p=top_p, seed=trials.seed, mode="feedback")
        frame = trials.grade(SAMPLED, trials.items, **sampling)
    elif SAMPLED in trials.runs or len(trials.runs) == 1:
        frame = trials.runs.get(SAMPLED, next(iter(trials.runs.values())))
    elif ORIGINAL in trials.runs:
        raise Unmet('needs repeated verdicts: pass the run of several samples as "sampled"')
    else:
        frame = pd.concat(list(trials.runs.values()), ignore_index=True)
    if frame["id"].is_unique:
        raise Unmet("needs repeated verdicts: grade with samples=2 or more and a temperature, or pass runs by seed")
    if trials.score not in frame:
        raise Unmet(f"needs the column {trials.score!r}")
    column = scores(frame[trials.score], name=trials.score)
    cells = pd.DataFrame({"id": text_ids(frame), "score": column, "group": groups_of(frame)})
    n_items = cells["id"].nunique()
    cells = cells[cells["score"].notna()]
    differ, distance, group = [], [], []
    for _, own in cells.groupby("id", sort=False):
        values = own["score"].to_numpy()
        if len(values) > 1:
            one, other = np.triu_indices(len(values), 1)
            apart = np.abs(values[one] - values[other])
            differ.append((apart >= MOVED).mean())
            distance.append(apart.mean())
            group.append(own["group"].iloc[0])
    if not differ:
        raise Unmet("needs two scores or more of an item; no item has them")
    flags = _mean(trials, np.array(differ), np.array(group))
    if not any(differ):  # all alike: Wilson's interval of a share
        flags = share(np.zeros(len(differ)), np.array(group), confidence=trials.confidence)
    gaps = _mean(trials, np.array(distance), np.array(group))
    common: dict[str, Any] = dict(judge=trials.name, probe="consistency", must=None, missing=n_items - len(differ))
    common |= {"moved": float(np.mean(np.array(differ) > 0))}
    rows = [
        row(flags.within(0, 1), case="disagreement", unit="share of pairs of verdicts", **common),
        row(gaps.within(0), case="distance", unit=POINTS, **common),
    ]
    return _table(trials, rows)


def drift(first: Any, second: Any, items: Any = None, *, out: Any = None, **options: Any) -> pd.DataFrame:
    """Whether scores moved between two runs of the same items, or two versions of a judge. They must stay.

    Args:
        first, second: runs, or judges that grade the items now (`out` then keeps runs "first" and "second").
        Others: see `Trials`.

    Returns:
        Rows "change" (mean of second less first), "moved" (share of items that moved by half a level; a description)
        and, where gold is there, "agreement" (change of the slope of score on gold). `missing` counts items without a
        score in both runs, those that only the first run has among them.

    Raises:
        ValueError: the second run has items that the first has not.
    """
    both = []
    for name, one in (("first", first), ("second", second)):
        if isinstance(one, pd.DataFrame):
            shared = {key: value for key, value in options.items() if key in SHARED}
            trials = Trials(one, **shared)
        else:
            trials = Trials(one, items, out=out, **options)
            trials.runs[ORIGINAL] = trials.grade(name, trials.items)
        both.append(trials)
    old, new = (trials.scored() for trials in both)
    pair = Contrast.of(old, new)
    only_first = len(old.ids) - len(new.ids)  # the second has no other ids
    common: dict[str, Any] = dict(probe="drift", moved=pair.moved, missing=pair.missing + only_first)
    common |= {"judge": " to ".join(dict.fromkeys(trials.name for trials in both))}
    C, margins = trials.confidence, trials.margins
    moved = share(pair.flags, pair.group, confidence=C)
    rows = [
        row(change(pair, confidence=C), case="change", must="stay", unit=POINTS, margin=margins[POINTS], **common),
        row(moved, case="moved", must=None, unit="share of items", **common),
    ]
    if pair.has_gold:
        effect = agreement(pair, confidence=C)
        rows.append(row(effect, case="agreement", must="stay", unit=AGREEMENT, margin=margins[AGREEMENT], **common))
    return _table(trials, rows)


SHARED = ("score", "gold", "margins", "least", "needs", "confidence", "seed")  # options of `Trials` that runs have too


def _mean(trials: Trials, values: Floats, group: Any) -> Effect:
    return mean(values, group, confidence=trials.confidence)


def _left_out(trials: Trials, name: str) -> str:
    """How many of the original items a perturbation does not apply to, in words."""
    fewer = trials.run()["id"].nunique() - trials.run(name)["id"].nunique()
    return f"; {fewer} items left out, to which it does not apply" if fewer > 0 else ""


def _table(trials: Trials, rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    return table(rows, confidence=trials.confidence, seed=trials.seed)
