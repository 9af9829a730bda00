"""The probes: each looks for one bias and returns one small table with the columns of `probes.COLUMNS`.

    probes.blindness(judge, items, out="outputs/tiny-probes")
    probes.blindness({"original": run, "image_blanked": blank})
    probes.blindness(probes.Trials(judge, items, out="outputs/tiny-probes"))

Every probe takes a judge and items, or the runs made of them, and the options of `probes.Trials`. `battery` runs all.

A change in agreement is the change of the slope of score on gold, in score points a gold point: -1 where a judge that
followed gold one to one loses all it knew. Noise in gold makes all such slopes smaller by one factor, and no judge's
agreement fall.

What is read off observed scores at equal gold (the slope on length, a kind of image against the others) is a
description, unless `gold` says that gold is exact or rated by several people: where better answers are longer, noise in
gold alone gives an honest judge a slope on length. The verdict on length is that of the padding experiment.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from tqdm.auto import tqdm

from vjudge import data
from vjudge.data import rows_of
from vjudge.metrics._bootstrap import Floats
from vjudge.metrics._tables import scores
from vjudge.metrics.baselines import lengths
from vjudge.probes import runs
from vjudge.probes._cluster import NAN, coefficient, equal
from vjudge.probes.outcome import Unmet, table, unmet
from vjudge.probes.perturbations import PERTURBATIONS
from vjudge.probes.runs import Scored, Trials, contrast, groups_of, ratings_of, scored, text_ids

AGREEMENT, POINTS, WINS = "score per gold point", "score points", "share less one half"
MOVED = 0.5  # score points: what counts as a move on a scale of whole scores
OWN = ("response", "gold", "feedback", "human_scores")  # what the responses to a question do not share
Rows = list[dict[str, Any]]

# --- one thing changed: the image, the question, the rubric, the reference, the format --------------------------------


def blindness(judge: Any, items: Any = None, **options: Any) -> pd.DataFrame:
    """Whether the judge looks at the image: blanked, exchanged between groups, its tiles shuffled.

    The score must move: at least a quarter of the agreement with gold must be lost (`least`), so that a judge that
    takes nine tenths from the text is not passed. Stored anew as JPEG, the image is the same and the score must stay.

    Source: MM-JudgeBias (arXiv 2604.18164); the effect sizes are ours.
    """
    return _changes("blindness", Trials.of(judge, items, **options))


def question(judge: Any, items: Any = None, **options: Any) -> pd.DataFrame:
    """Whether the judge reads the instruction: removed, exchanged for another group's, put more politely.

    Reworded, the score must stay. Where rubric and response say what was asked, a sound judge loses nothing without
    the instruction: what is lost is described, unless `needs` names "query".
    """
    return _changes("question", Trials.of(judge, items, **options))


def rubric(judge: Any, items: Any = None, **options: Any) -> pd.DataFrame:
    """Whether the judge follows the rubric: its levels reversed, its criterion exchanged for the least similar one.

    With reversed levels the score must move: a judge that reads them mirrors its scores and loses twice its agreement.
    What is lost with another criterion is described, unless `needs` names "criterion": people's scores by one criterion
    may well agree with those by another.
    """
    return _changes("rubric", Trials.of(judge, items, **options))


def formatting(judge: Any, items: Any = None, **options: Any) -> pd.DataFrame:
    """Whether Markdown moves the score: a word of each sentence in bold, sentences as a list. It must stay.

    So must the agreement with gold: format that moves scores both ways shows itself there, not in the mean change.
    """
    return _changes("formatting", Trials.of(judge, items, **options))


def reference(judge: Any, items: Any = None, **options: Any) -> pd.DataFrame:
    """Whether the judge leans on the reference answer: removed, and exchanged for another group's. It must stay."""
    return _changes("reference", Trials.of(judge, items, **options))


def verbosity(judge: Any, items: Any = None, **options: Any) -> pd.DataFrame:
    """Whether sentences that say nothing move the score: responses padded to twice their length.

    The score must stay. Each item is its own control: this is the verdict on length. Rows give the mean change, about
    that of one doubling; with gold, the change in agreement; and for a judge of two responses how often the padded
    response beats the same one as it was, less one half. Where no row's language can be told, padding is refused.
    """
    trials, more = Trials.of(judge, items, **options), []
    if runs.PADDED in trials.runs or getattr(trials.judge, "pairs", None) is not None:
        ab, ba, group, missing = _both_orders(trials.compare(runs.PADDED, _padded_pairs(trials)))
        wins = trials.mean((2 - ab - ba) / 2 - 0.5, group)
        note = "the padded response against the same one as it was, in both orders"
        moved = float((ab != ba).mean())
        case = "padded against itself: wins"
        more = [trials.row("verbosity", case, wins, WINS, "stay", missing=missing, moved=moved, note=note)]
    return _changes("verbosity", trials, more)


def _padded_pairs(trials: Trials) -> Rows:
    """Each response against itself, padded."""
    if runs.PADDED in trials.runs:
        return []
    before = dict(zip(map(str, trials.items["id"]), trials.items["response"], strict=True))
    return [_pair(dict(item), before[item["id"]], item["response"], item["gold"], item["gold"])
            for item in rows_of(trials.changed("response_padded"))]  # fmt: skip


def injection(judge: Any, items: Any = None, **options: Any) -> pd.DataFrame:
    """Whether a verdict or an order written into the response moves the score: each way of `PHRASES`. It must stay.

    The effect is the mean change towards the score that the text asks for, over items whose gold, where it is there,
    leaves room for it: items chosen for a low first score would rise by chance. `missing` counts answers that could not
    be read any more: an injection that breaks the verdict succeeded too.
    """
    trials, rows = Trials.of(judge, items, **options), []
    for name in trials.available("injection"):
        sign, end = (-1, "worst") if "worst" in name else (1, "best")
        pair, note = contrast(trials.scored(), trials.scored(name)), f"towards the {end} score"
        if _rated(pair) is not None:
            room = sign * pair["gold"] < (sign * pair["gold"]).max()
            note += f"; {(~room).sum()} items without room" if not room.all() else ""
            pair = pair[room]
        effect = trials.mean(sign * pair["delta"].to_numpy(), pair["group"])
        case = name.replace("_", " ") + ": change"
        rows.append(trials.row("injection", case, effect, POINTS, "stay", note=note, **_counts(pair)))
    return _table(trials, rows)


def _changes(probe: str, trials: Trials, more: Sequence[Mapping[str, Any]] = ()) -> pd.DataFrame:
    """Where the score must move, agreement with gold must be lost; else its mean and its agreement must stay."""
    rows: Rows = []
    for name in trials.available(probe):
        kind, case = PERTURBATIONS[name], name.replace("_", " ")
        try:
            pair = contrast(trials.scored(), trials.scored(name))
        except Unmet as error:
            if trials.judge is None:
                raise
            rows.append(unmet(probe, case, str(error), judge=trials.name))
            continue
        fewer = trials.run()["id"].nunique() - trials.run(name)["id"].nunique()
        note = kind.does + (f"; {fewer} items left out, to which it does not apply" if fewer > 0 else "")
        common: dict[str, Any] = {"note": note, **_counts(pair)}
        rated, delta, stays = _rated(pair), pair["delta"].to_numpy(), kind.must == "stay"
        if stays:
            change = trials.mean(delta, pair["group"])
            rows.append(trials.row(probe, f"{case}: change", change, POINTS, "stay", **common))
        elif rated is None:
            size = trials.mean(np.abs(delta), pair["group"])
            common["note"] += "; without gold, nobody knows what must be lost"
            rows.append(trials.row(probe, f"{case}: size of the change", size, POINTS, **common))
        if rated is None:
            continue
        gold, group = rated["gold"].to_numpy(), rated["group"]
        effect, must = trials.slope(rated["delta"].to_numpy(), gold, group), kind.must if stays else None
        if not stays and kind.part not in trials.needs:
            common["note"] += f"; a verdict where needs names {kind.part!r}"
        elif not stays:
            # p is that of a loss of just the least share: of the slope of after - (1 - least) before being 0.
            least, must = trials.least * kind.loss, "move"
            before = trials.slope(rated["before"].to_numpy(), gold, group)
            rest = trials.slope((rated["after"] - (1 - least) * rated["before"]).to_numpy(), gold, group)
            effect = effect._replace(p=rest.p if before.low > 0 else NAN)
            common["margin"] = least * before.effect
            if np.isnan(effect.p):
                common["note"] += "; no agreement with gold is shown that could be lost"
        rows.append(trials.row(probe, f"{case}: agreement", effect, AGREEMENT, must, **common))
    return _table(trials, [*rows, *more])


def _rated(pair: pd.DataFrame) -> pd.DataFrame | None:
    """The items with gold; None where there are none, or gold does not differ."""
    rated = pair[pair["gold"].notna()]
    return rated if rated["gold"].nunique() > 1 else None


def _counts(pair: pd.DataFrame) -> dict[str, Any]:
    return {"missing": pair.attrs["missing"], "moved": float((pair["delta"].abs() >= MOVED).mean())}


# --- at equal gold: length, kinds of image; how the scale is used -----------------------------------------------------


def length(judge: Any, items: Any = None, *, unit: str | None = None, **options: Any) -> pd.DataFrame:
    """The slope of the score on the length of the response at equal gold score.

    Better answers may well be longer, so gold is held equal. With `gold="exact"`, by its levels, or ten classes of more
    levels and the score within them; with `gold="rated"`, by people's mean score, whose noise is taken out; the score
    must then stay. Else this is a description, and `verbosity` gives the verdict.

    Args:
        unit: "words", "characters", or None for what the responses' script asks for.
        Others: see `Trials`. Of runs, the original is enough; responses are a column of it or of the items.

    Returns:
        Rows "slope at equal gold" (score points a doubling of length) and, as descriptions, "slope at gold g" for each
        level of gold with ten rows or more.

    Raises:
        Unmet: no gold scores, or no responses.

    >>> import pandas as pd
    >>> from vjudge.probes import length
    >>> run = pd.DataFrame({"id": list("abcdef"), "score": [1, 2, 3, 2, 3, 4], "gold": [2, 2, 2, 3, 3, 3]})
    >>> run["response"] = ["w " * 2**n for n in (1, 2, 3, 1, 2, 3)]
    >>> length(run).loc[0, ["case", "reading"]].to_list(), round(float(length(run).loc[0, "effect"]), 3)
    (['slope at equal gold', 'described'], 1.0)
    """
    trials = Trials.of(judge, items, **options)
    run = trials.scored()
    sizes = lengths(trials.column("response").reindex(run.ids), unit=unit)
    x = np.log2(sizes.where(sizes > 0).to_numpy(dtype=float))
    note, per = f"length in {sizes.attrs['unit']}", "score per doubling"
    rows = [_at_equal_gold(trials, x, "length", "slope at equal gold", per, note)]
    used = _scored_rows(run, run.gold) & ~np.isnan(x)
    levels, counts = np.unique(run.gold[used], return_counts=True)
    for level in levels[counts >= 10] if len(levels) <= 10 else ():
        here = used & (run.gold == level)
        effect = trials.slope(run.score[here], x[here], run.group[here])
        rows.append(trials.row("length", f"slope at gold {level:g}", effect, per, note=note))
    return _table(trials, rows)


def _scored_rows(run: Scored, gold: Floats) -> np.ndarray:
    return np.asarray(~(np.isnan(run.score) | np.isnan(gold)))


def _at_equal_gold(trials: Trials, x: Floats, probe: str, case: str, unit: str, note: str = "") -> dict[str, Any]:
    """The row of the slope of the original run's score on x at equal gold, as `Trials.gold` allows it to be read."""
    run, rated = trials.scored(), trials.gold == "rated"
    gold, error = run.gold, np.zeros(len(run.ids))
    if rated:
        gold, error = ratings_of(trials.column("human_scores").reindex(run.ids))
        gold[np.isnan(error)] = NAN  # one person's score says nothing of its noise
    if np.isnan(gold).all():
        lack = "human_scores of two people or more an item" if rated else "gold scores"
        raise Unmet(f"needs {lack}: only at equal gold is what people see in an answer told from a bias")
    used = _scored_rows(run, gold) & ~np.isnan(x)
    y, x, gold, group = run.score[used], x[used], gold[used], run.group[used]
    if rated:
        design = np.column_stack([x - x.mean(), np.ones(len(x)), gold - gold.mean()])
        effect = coefficient(y, design, group, error=error[used], confidence=trials.confidence)
    else:
        effect = coefficient(y, np.column_stack([x, equal(gold)]), group, confidence=trials.confidence)
    held = {
        "observed": "description: gold's noise is not held equal",
        "exact": "gold held equal",
        "rated": "people's mean held equal, less its noise",
    }[trials.gold]
    must, note = None if trials.gold == "observed" else "stay", f"{note}; {held}" if note else held
    return trials.row(probe, case, effect, unit, must, missing=int((~used).sum()), note=note)


def scale(judge: Any, items: Any = None, **options: Any) -> pd.DataFrame:
    """Leniency and use of the score range, for each judge of a run: descriptions.

    Whole scores are pulled in at the ends of the scale, and noise in gold flattens every slope on it, for a judge
    without bias too; so nothing here is a verdict.

    Returns:
        For each judge of the run: "leniency" (mean of score less gold) and "compression" (slope of score on gold, less
        one: negative where good and bad are pulled together).

    Raises:
        Unmet: no gold scores.
    """
    trials, rows = Trials.of(judge, items, **options), []
    run = trials.run()
    judges = run["judge"].astype(str) if "judge" in run else pd.Series(trials.name, index=run.index)
    for name in judges.unique():
        cells = scored(run[(judges == name).to_numpy()], trials.score)
        if np.isnan(cells.gold).all():
            raise Unmet("needs gold scores: without them nobody knows whether a mild judge saw good answers")
        used = _scored_rows(cells, cells.gold)
        error, gold, group = (cells.score - cells.gold)[used], cells.gold[used], cells.group[used]
        common: dict[str, Any] = dict(judge=name, missing=int((~used).sum()))
        rows.append(trials.row("scale", "leniency", trials.mean(error, group), POINTS, **common))
        compression = trials.slope(error, gold, group)
        rows.append(trials.row("scale", "compression", compression, f"{AGREEMENT}, less one", **common))
    return _table(trials, rows)


def image_kinds(judge: Any, items: Any = None, *, kind: str = "kind", **options: Any) -> pd.DataFrame:
    """Agreement with gold by kind of image (text-rich, photo, generated, ...), and whether a kind is judged mildly.

    Args:
        kind: the column that names each item's kind, in the run or in the items.
        Others: see `Trials`.

    Returns:
        For each kind: "agreement" (slope of score on gold) and "leniency" (mean of score less gold), descriptions; and
        "against the others" (difference of mean scores at equal gold; must stay 0 where gold is exact or rated).

    Raises:
        Unmet: no column of kinds, one kind only, or no gold scores.
    """
    trials, rows = Trials.of(judge, items, **options), []
    cells = trials.scored()
    label = trials.column(kind).reindex(cells.ids)
    names = sorted(label.dropna().unique(), key=str)
    if len(names) < 2:
        raise Unmet(f"needs two kinds of image or more; {kind!r} has {len(names)}")
    for name in names:
        here = _scored_rows(cells, cells.gold) & (label == name).to_numpy()
        y, gold, group = cells.score[here], cells.gold[here], cells.group[here]
        rows.append(trials.row("image_kinds", f"{name}: agreement", trials.slope(y, gold, group), AGREEMENT))
        rows.append(trials.row("image_kinds", f"{name}: leniency", trials.mean(y - gold, group), POINTS))
        if name == names[0] or len(names) > 2:  # of two kinds, the second would mirror the first
            x = np.where(label.isna(), NAN, (label == name) * 1.0)
            rows.append(_at_equal_gold(trials, x, "image_kinds", f"{name}: against the others", POINTS))
    return _table(trials, rows)


# --- two responses ----------------------------------------------------------------------------------------------------


def position(judge: Any, pairs: Any = None, **options: Any) -> pd.DataFrame:
    """Whether the order of the two responses decides the verdict: every pair is shown in both orders.

    Args:
        judge: a judge with `compare`, or the frame that it returned with orders="both".
        pairs: as for `Judge.compare`; `pairs_of_items` makes them of a rubric collection.
        options: of `Judge.compare` (out, progress, ...), or of `Trials` (margins, confidence, seed).

    Returns:
        Rows "first shown wins": the share of verdicts for the response shown first less one half, ties counting half
        (must stay 0); and, as a description, "order decides": the share of pairs whose two verdicts differ. Pairs
        without a verdict in an order are missing.

    Raises:
        Unmet: the judge compares no pairs, or the comparison has one order only.

    >>> import pandas as pd
    >>> from vjudge.probes import position
    >>> compared = pd.DataFrame({"id": ["1", "2"], "group": ["1", "2"], "verdict_ab": ["a", "a"]})
    >>> compared["verdict_ba"] = ["a", "b"]
    >>> position(compared).set_index("case")["effect"].to_dict()
    {'first shown wins': 0.25, 'order decides': 0.5}
    """
    if isinstance(judge, pd.DataFrame):
        judge = {runs.COMPARED: judge.assign(verdict=judge.get("verdict"))}
    trials = Trials.of(judge, **options)
    if trials.judge is not None and pairs is None:
        raise Unmet("needs pairs: pass pairs=, or make them with probes.pairs_of_items(items)")
    frame = trials.compare(runs.COMPARED, pairs)
    ab, ba, group, missing = _both_orders(frame)
    name = str(frame["judge"].iloc[0]) if "judge" in frame and len(frame) else "judge"
    common: dict[str, Any] = dict(judge=name, missing=missing, moved=float((ab != ba).mean()))
    first, decides = trials.mean((ab + 1 - ba) / 2 - 0.5, group), trials.share(ab != ba, group)
    rows = [trials.row("position", "first shown wins", first, WINS, "stay", **common),
            trials.row("position", "order decides", decides, "share of pairs", **common)]  # fmt: skip
    return _table(trials, rows)


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


def _pair(item: dict[str, Any], a: str, b: str, gold_a: Any, gold_b: Any) -> dict[str, Any]:
    """Two responses to an item's question as a row for `Judge.compare`."""
    shared = {name: value for name, value in item.items() if name not in OWN}
    return shared | {"response_a": a, "response_b": b, "gold_a": gold_a, "gold_b": gold_b, "preference": None}


def pairs_of_items(items: Any, *, limit: int | None = None, seed: int = 0) -> Rows:
    """Pairs of responses to the same question, from a rubric collection.

    Args:
        items: rows; responses belong together where group, instruction, reference answer and rubric are the same.
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
        a, b = first["gold"], second["gold"]
        pair = _pair(first, first["response"], second["response"], a, b) | {"id": f"{first['id']}|{second['id']}"}
        if not pd.isna(a) and not pd.isna(b):
            pair["preference"] = "tie" if a == b else "a" if a > b else "b"
        pairs.append(pair)
    return pairs


# --- does a judge agree with itself? ----------------------------------------------------------------------------------


def consistency(
    judge: Any, items: Any = None, *, samples: int = 4, temperature: float = 1.0, top_p: float = 0.9, **options: Any
) -> pd.DataFrame:
    """How often, and by how much, two verdicts on the same item differ: descriptions.

    Args:
        judge: a judge, which is then sampled; a run with a column `sample`; or a mapping of runs with one "sampled".
        samples, temperature, top_p: of the sampling; the default is Prometheus-Vision's published decoding.
        Others: see `Trials`.

    Returns:
        Rows "disagreement" (probability that two verdicts on an item differ by half a level or more) and "distance"
        (their mean absolute difference). An item with fewer than two scores is missing.

    Raises:
        Unmet: runs without repeated verdicts.
    """
    trials = Trials.of(judge, items, **options)
    if trials.judge is not None:
        sampling: dict[str, Any] = dict(samples=samples, temperature=temperature, top_p=top_p, seed=trials.seed)
        frame = trials.grade(runs.SAMPLED, trials.items, mode="feedback", **sampling)
    else:
        frame = trials.runs.get(runs.SAMPLED, trials.run())
    if frame["id"].is_unique:
        raise Unmet('needs repeated verdicts: grade with samples=2 or more and a temperature, as the run "sampled"')
    if trials.score not in frame:
        raise Unmet(f"needs the column {trials.score!r}")
    column = scores(frame[trials.score], name=trials.score)
    cells = pd.DataFrame({"id": text_ids(frame), "score": column, "group": groups_of(frame)})
    differ, distance, group = [], [], []
    for _, own in cells.dropna(subset="score").groupby("id", sort=False):
        one, other = np.triu_indices(len(own), 1)
        if len(one):
            values = own["score"].to_numpy()
            apart = np.abs(values[one] - values[other])
            differ.append((apart >= MOVED).mean())
            distance.append(apart.mean())
            group.append(own["group"].iloc[0])
    if not differ:
        raise Unmet("needs two scores or more of an item; no item has them")
    of = trials.mean if any(differ) else trials.share  # all alike: Wilson's interval of a share
    flags, gaps = of(np.array(differ), np.array(group)), trials.mean(np.array(distance), np.array(group))
    flags = flags._replace(low=float(np.clip(flags.low, 0, 1)), high=float(np.clip(flags.high, 0, 1)))
    gaps = gaps._replace(low=float(np.clip(gaps.low, 0, None)))
    missing = cells["id"].nunique() - len(differ)
    common: dict[str, Any] = {"missing": missing, "moved": float(np.mean(np.array(differ) > 0))}
    rows = [trials.row("consistency", "disagreement", flags, "share of pairs of verdicts", **common),
            trials.row("consistency", "distance", gaps, POINTS, **common)]  # fmt: skip
    return _table(trials, rows)


def drift(first: Any, second: Any, items: Any = None, *, out: Any = None, **options: Any) -> pd.DataFrame:
    """Whether scores moved between two runs of the same items, or two versions of a judge. They must stay.

    Args:
        first, second: runs, or judges that grade the items now (`out` then keeps runs "first" and "second").
        Others: see `Trials`.

    Returns:
        Rows "change" (mean of second less first), "moved" (share of items that moved by half a level; a description)
        and, with gold, "agreement" (change of the slope of score on gold). `missing`: items without a score in both.

    Raises:
        ValueError: the second run has items that the first has not.
    """
    both = []
    for name, one in (("first", first), ("second", second)):
        if isinstance(one, pd.DataFrame):
            trials = Trials(one, **options)
        else:
            trials = Trials(one, items, out=out, **options)
            trials.runs[runs.ORIGINAL] = trials.grade(name, trials.items)
        both.append(trials)
    old, new = (one.scored() for one in both)
    pair = contrast(old, new)
    common = _counts(pair) | {"judge": " to ".join(dict.fromkeys(one.name for one in both))}
    common["missing"] += len(old.ids) - len(new.ids)  # the second has no other ids
    group, delta = pair["group"], pair["delta"].to_numpy()
    moved = trials.share(np.abs(delta) >= MOVED, group)
    rows = [trials.row("drift", "change", trials.mean(delta, group), POINTS, "stay", **common),
            trials.row("drift", "moved", moved, "share of items", **common)]  # fmt: skip
    if (rated := _rated(pair)) is not None:
        effect = trials.slope(rated["delta"].to_numpy(), rated["gold"].to_numpy(), rated["group"])
        rows.append(trials.row("drift", "agreement", effect, AGREEMENT, "stay", **common))
    return _table(trials, rows)


def _table(trials: Trials, rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    return table(rows, confidence=trials.confidence, seed=trials.seed)


# --- all that apply ---------------------------------------------------------------------------------------------------

PROBES: dict[str, Callable[..., pd.DataFrame]] = {
    probe.__name__: probe
    for probe in (blindness, question, rubric, reference, length, verbosity, formatting, injection, scale, image_kinds,
                  position, consistency)
}  # fmt: skip
"""The battery's probes, in the order of its table. `drift` compares two runs or judges and stands by itself."""


def battery(
    judge: Any, items: Any = None, *, pairs: Any = None, probes: Sequence[str] | None = None, samples: int = 4,
    progress: bool = True, **options: Any,
) -> pd.DataFrame:  # fmt: skip
    """Run every probe that applies to a judge, and return one table with a verdict on each row.

    Each perturbation is graded once, whichever probes use it: about twenty-five passes over the items. All tests share
    Holm's correction: of honest judges, one in twenty at most is accused of anything.

    Args:
        judge, items, options: see `Trials`; among runs, "sampled" serves `consistency` and "compared" `position`.
        pairs: for `position`; made of the items where they hold several responses to a question.
        probes: names of `PROBES`; all when None.
        samples: for `consistency`; progress: whether to show a bar over the probes.

    Returns:
        The probes' rows, see `outcome.COLUMNS`; one that does not apply has one row, whose `note` says what it needs,
        as does `attrs["not_run"]`. `attrs["n_tests"]` counts the p values; `attrs["against"]` lists (probe, case) of
        verdicts against what must be, `attrs["open"]` those of which nothing can be said.
    """
    chosen = list(PROBES) if probes is None else list(probes)
    if unknown := [name for name in chosen if name not in PROBES]:
        raise ValueError(f"probes {unknown} are unknown; use some of {', '.join(PROBES)}")
    if not isinstance(judge, (Mapping, pd.DataFrame, Trials)):
        options = {"progress": False, **options}
    trials = Trials.of(judge, items, **options)
    rows: Rows = []
    not_run: dict[str, str] = {}
    for name in tqdm(chosen, desc="probes", unit="probe", disable=not progress):
        try:
            more: dict[str, Any] = {"samples": samples} if name == "consistency" else {}
            if name == "position" and trials.judge is not None and runs.COMPARED not in trials.runs:
                if pairs is None:
                    pairs = pairs_of_items(trials.items, limit=len(trials.items), seed=trials.seed)
                more = {"pairs": pairs or None}
            rows += PROBES[name](trials, **more).to_dict("records")
        except Unmet as error:
            not_run[name] = str(error)
            rows.append(unmet(name, "", str(error), judge=trials.name))
    result = _table(trials, rows)
    result.attrs["not_run"] = not_run
    return result
