"""The probes: each looks for one bias and returns one small table with the columns of `probes.COLUMNS`.

    probes.blindness(judge, items, out="outputs/tiny-probes")
    probes.blindness({"original": run, "image_blanked": blank})
    probes.blindness(probes.Trials(judge, items, out="outputs/tiny-probes"))

Every probe takes a judge and items, or the runs made of them, and the options of `probes.Trials`; one that lacks
something raises `Unmet`, which says what. `battery` runs all.

A change in agreement is the change of the slope of score on gold, in score points a gold point: -1 where a judge that
followed gold one to one loses all it knew. Noise in gold makes all such slopes smaller by one factor.

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
from vjudge.metrics.baselines import lengths
from vjudge.probes import trials as runs
from vjudge.probes.outcome import NAN, Unmet, coefficient, equal
from vjudge.probes.perturbations import PERTURBATIONS
from vjudge.probes.trials import COMPARED, ORIGINAL, PADDED, SAMPLED, Trials, contrast, groups_of, ratings_of

AGREEMENT, POINTS, WINS = "score per gold point", "score points", "share less one half"
MOVED = 0.5  # score points: what counts as a move on a scale of whole scores
OWN = ("response", "gold", "feedback", "human_scores")  # what the responses to a question do not share
Row = dict[str, Any]

# --- one thing changed: the image, the question, the rubric, the reference, the format, a verdict written in ----------


def blindness(judge: Any, items: Any = None, **options: Any) -> pd.DataFrame:
    """Whether the judge looks at the image: blanked, exchanged between groups, its tiles shuffled.

    At least a quarter of the agreement with gold must be lost (`least`), so that a judge that takes nine tenths from
    the text is not passed. Stored anew as JPEG, the image is the same and the score must stay.

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
    trials = Trials.of(judge, items, **options)
    if PADDED not in trials.runs and getattr(trials.judge, "pairs", None) is None:
        return _changes("verbosity", trials)
    pairs = []
    if PADDED not in trials.runs:
        before = dict(zip(map(str, trials.items["id"]), trials.items["response"], strict=True))
        for item in rows_of(trials.changed("response_padded")):
            pairs.append(_pair(item, before[item["id"]], item["response"], item["gold"], item["gold"]))
    both, common = _both_orders(trials.run(PADDED, pairs))
    wins = trials.mean((2 - both["ab"] - both["ba"]) / 2 - 0.5, both["group"])
    common["note"] = "the padded response against the same one as it was, in both orders"
    return _changes("verbosity", trials, trials.row("padded against itself: wins", wins, WINS, "stay", **common))


def injection(judge: Any, items: Any = None, **options: Any) -> pd.DataFrame:
    """Whether a verdict or an order written into the response moves the score: each way of `PHRASES`. It must stay.

    The effect is the mean change towards the score that the text asks for, over items whose gold, where it is there,
    leaves room for it: items chosen for a low first score would rise by chance. `missing` counts answers that could not
    be read any more: an injection that breaks the verdict succeeded too.
    """
    return _changes("injection", Trials.of(judge, items, **options))


def _changes(probe: str, trials: Trials, *more: Row) -> pd.DataFrame:
    """The table of a probe that compares its perturbations with the original."""
    rows: list[Row] = []
    for name in trials.available(probe):
        case, does = name.replace("_", " "), PERTURBATIONS[name].does
        try:
            pair = contrast(trials.scored(), trials.scored(name))
        except Unmet as error:
            if trials.judge is None:
                raise
            rows.append(trials.row(case, note=str(error), reading="not run"))
            continue
        fewer = trials.run()["id"].nunique() - trials.run(name)["id"].nunique()
        does += f"; {fewer} items left out, to which it does not apply" if fewer > 0 else ""
        rows += _injected(trials, case, pair) if probe == "injection" else _changed(trials, name, pair, does)
    return trials.table(probe, [*rows, *more])


def _injected(trials: Trials, case: str, pair: pd.DataFrame) -> list[Row]:
    """Towards the score that is asked for, where gold leaves room for it."""
    sign, note = (-1, "towards the worst score") if "worst" in case else (1, "towards the best score")
    if len(_rated(pair)):
        room = sign * pair["gold"] < (sign * pair["gold"]).max()
        note += f"; {(~room).sum()} items without room" if not room.all() else ""
        pair = pair[room]
    effect = trials.mean(sign * pair["delta"], pair["group"])
    return [trials.row(f"{case}: change", effect, POINTS, "stay", note=note, **_counts(pair))]


def _changed(trials: Trials, name: str, pair: pd.DataFrame, note: str) -> list[Row]:
    """Where the score must move, agreement with gold must be lost; else its mean and its agreement must stay."""
    rows, case, kind = [], name.replace("_", " "), PERTURBATIONS[name]
    common, rated, must = {"note": note, **_counts(pair)}, _rated(pair), "stay" if kind.must == "stay" else None
    if must:
        change = trials.mean(pair["delta"], pair["group"])
        rows.append(trials.row(f"{case}: change", change, POINTS, must, **common))
    elif not len(rated):
        size = trials.mean(pair["delta"].abs(), pair["group"])
        common["note"] += "; without gold, nobody knows what must be lost"
        rows.append(trials.row(f"{case}: size of the change", size, POINTS, **common))
    if not len(rated):
        return rows
    gold, group = rated["gold"], rated["group"]
    effect = trials.slope(rated["delta"], gold, group)
    if not must and kind.part not in trials.needs:
        common["note"] += f"; a verdict where needs names {kind.part!r}"
    elif not must:
        # p is that of a loss of just the least share: of the slope of after - (1 - least) before being 0.
        must, least = "move", trials.least * kind.loss
        before = trials.slope(rated["before"], gold, group)
        rest = trials.slope(rated["after"] - (1 - least) * rated["before"], gold, group)
        effect = effect._replace(p=rest.p if before.low > 0 else NAN)
        common["margin"] = least * before.effect
        if np.isnan(effect.p):
            common["note"] += "; no agreement with gold is shown that could be lost"
    return [*rows, trials.row(f"{case}: agreement", effect, AGREEMENT, must, **common)]


def _rated(pair: pd.DataFrame) -> pd.DataFrame:
    """The items with gold; none where it does not differ."""
    rated = pair[pair["gold"].notna()]
    return rated if rated["gold"].nunique() > 1 else rated.iloc[:0]


def _counts(pair: pd.DataFrame) -> Row:
    return {"missing": pair.attrs["missing"], "moved": float((pair["delta"].abs() >= MOVED).mean())}


# --- at equal gold: length, kinds of image; how the scale is used -----------------------------------------------------


def length(judge: Any, items: Any = None, *, unit: str | None = None, **options: Any) -> pd.DataFrame:
    """The slope of the score on the length of the response at equal gold score.

    Better answers may well be longer, so gold is held equal. With `gold="exact"`, by its levels, or ten classes of more
    levels and the score within them; with `gold="rated"`, by people's mean score, whose noise is taken out; the score
    must then stay. Else this is a description, and `verbosity` gives the verdict. `unit` is "words", "characters", or
    None for what the responses' script asks for; responses are a column of the original run or of the items.

    Rows are "slope at equal gold" (score points a doubling of length) and, as descriptions, "slope at gold g" for each
    level of gold with ten rows or more.

    >>> import pandas as pd
    >>> from vjudge.probes import length
    >>> run = pd.DataFrame({"id": list("abcdef"), "score": [1, 2, 3, 2, 3, 4], "gold": [2, 2, 2, 3, 3, 3]})
    >>> run["response"] = ["w " * 2**n for n in (1, 2, 3, 1, 2, 3)]
    >>> length(run).loc[0, ["case", "reading"]].to_list(), round(float(length(run).loc[0, "effect"]), 3)
    (['slope at equal gold', 'described'], 1.0)
    """
    trials = Trials.of(judge, items, **options)
    cells = trials.scored()
    sizes = lengths(trials.column("response").reindex(cells.index), unit=unit)
    cells["x"] = np.log2(sizes.where(sizes > 0))
    note, per = f"length in {sizes.attrs['unit']}", "score per doubling"
    rows = [_at_equal_gold(trials, cells, "slope at equal gold", per, f"{note}; ")]
    levels = cells.dropna(subset=["score", "gold", "x"]).groupby("gold")
    for level, here in levels if levels.ngroups <= 10 else ():
        if len(here) >= 10:
            effect = trials.slope(here["score"], here["x"], here["group"])
            rows.append(trials.row(f"slope at gold {level:g}", effect, per, note=note))
    return trials.table("length", rows)


def _at_equal_gold(trials: Trials, cells: pd.DataFrame, case: str, unit: str, note: str = "") -> Row:
    """The row of the slope of the score on the column x at equal gold, as `Trials.gold` allows it to be read."""
    cells, rated = cells.assign(error=0.0), trials.gold == "rated"
    if rated:
        cells["gold"], cells["error"] = ratings_of(trials.column("human_scores").reindex(cells.index))
        cells["gold"] = cells["gold"].where(cells["error"].notna())  # one person's score says nothing of its noise
    if cells["gold"].isna().all():
        lack = "human_scores of two people or more an item" if rated else "gold scores"
        raise Unmet(f"needs {lack}: only at equal gold is what people see in an answer told from a bias")
    used = cells.dropna(subset=["score", "gold", "x"])
    x, gold, error = (used[name].to_numpy(dtype=float) for name in ("x", "gold", "error"))
    if rated:
        design = np.column_stack([x - x.mean(), np.ones(len(x)), gold - gold.mean()])
    else:
        design, error = np.column_stack([x, equal(gold)]), None
    effect = coefficient(used["score"], design, used["group"], error=error, confidence=trials.confidence)
    must = None if trials.gold == "observed" else "stay"
    note += {
        "observed": "description: gold's noise is not held equal",
        "exact": "gold held equal",
        "rated": "people's mean held equal, less its noise",
    }[trials.gold]
    return trials.row(case, effect, unit, must, missing=len(cells) - len(used), note=note)


def scale(judge: Any, items: Any = None, **options: Any) -> pd.DataFrame:
    """Leniency (mean of score less gold) and compression (slope of score on gold, less one: negative where good and bad
    are pulled together), as descriptions.

    Whole scores are pulled in at the ends of the scale, and noise in gold flattens every slope on it, for a judge
    without bias too; so nothing here is a verdict.
    """
    trials = Trials.of(judge, items, **options)
    cells = trials.scored()
    if cells["gold"].isna().all():
        raise Unmet("needs gold scores: without them nobody knows whether a mild judge saw good answers")
    used = cells.dropna(subset=["score", "gold"])
    error, missing = used["score"] - used["gold"], len(cells) - len(used)
    leniency, compression = trials.mean(error, used["group"]), trials.slope(error, used["gold"], used["group"])
    rows = [trials.row("leniency", leniency, POINTS, missing=missing),
            trials.row("compression", compression, f"{AGREEMENT}, less one", missing=missing)]  # fmt: skip
    return trials.table("scale", rows)


def image_kinds(judge: Any, items: Any = None, *, kind: str = "kind", **options: Any) -> pd.DataFrame:
    """Agreement with gold by kind of image (text-rich, photo, generated, ...), and whether a kind is judged mildly.

    `kind` is the column that names each item's kind, in the run or in the items. Rows of each kind are "agreement"
    (slope of score on gold) and "leniency" (mean of score less gold), descriptions; and "against the others"
    (difference of mean scores at equal gold; must stay 0 where gold is exact or rated).
    """
    trials, rows = Trials.of(judge, items, **options), []
    cells = trials.scored()
    label = trials.column(kind).reindex(cells.index)
    names = sorted(label.dropna().unique(), key=str)
    if len(names) < 2:
        raise Unmet(f"needs two kinds of image or more; {kind!r} has {len(names)}")
    for name in names:
        here = cells[(label == name).to_numpy()].dropna(subset=["score", "gold"])
        agreement = trials.slope(here["score"], here["gold"], here["group"])
        leniency = trials.mean(here["score"] - here["gold"], here["group"])
        rows.append(trials.row(f"{name}: agreement", agreement, AGREEMENT))
        rows.append(trials.row(f"{name}: leniency", leniency, POINTS))
        if name == names[0] or len(names) > 2:  # of two kinds, the second would mirror the first
            cells["x"] = np.where(label.isna(), NAN, (label == name) * 1.0)
            rows.append(_at_equal_gold(trials, cells, f"{name}: against the others", POINTS))
    return trials.table("image_kinds", rows)


# --- two responses ----------------------------------------------------------------------------------------------------


def position(judge: Any, pairs: Any = None, **options: Any) -> pd.DataFrame:
    """Whether the order of the two responses decides the verdict: every pair is shown in both orders.

    `judge` has `compare`, or is the frame that this returned; `pairs` are as it takes them, see `pairs_of_items`. Rows
    are "first shown wins": the share of verdicts for the response shown first less one half, ties counting half (must
    stay 0); and, as a description, "order decides": the share of pairs whose two verdicts differ.

    >>> import pandas as pd
    >>> from vjudge.probes import position
    >>> compared = pd.DataFrame({"id": ["1", "2"], "group": ["1", "2"], "verdict_ab": ["a", "a"]})
    >>> compared["verdict_ba"] = ["a", "b"]
    >>> position(compared).set_index("case")["effect"].to_dict()
    {'first shown wins': 0.25, 'order decides': 0.5}
    """
    if isinstance(judge, pd.DataFrame):
        judge = {COMPARED: judge.assign(verdict=judge.get("verdict"))}
    trials = Trials.of(judge, **options)
    if trials.judge is not None and pairs is None:
        raise Unmet("needs pairs: pass pairs=, or make them with probes.pairs_of_items(items)")
    frame = trials.run(COMPARED, pairs)
    both, common = _both_orders(frame)
    common["judge"] = str(frame["judge"].iloc[0]) if "judge" in frame and len(frame) else "judge"
    first = trials.mean((both["ab"] + 1 - both["ba"]) / 2 - 0.5, both["group"])
    decides = trials.share(both["ab"] != both["ba"], both["group"])
    rows = [trials.row("first shown wins", first, WINS, "stay", **common),
            trials.row("order decides", decides, "share of pairs", **common)]  # fmt: skip
    return trials.table("position", rows)


def _both_orders(frame: pd.DataFrame) -> tuple[pd.DataFrame, Row]:
    """Verdicts in the orders ab and ba (1 for a, 0 for b, 1/2 for a tie) with their group, and what a row tells."""
    if not {"verdict_ab", "verdict_ba"} <= set(frame.columns):
        raise Unmet('needs both orders of every pair: compare with orders="both"')
    points = {"a": 1.0, "b": 0.0, "tie": 0.5}
    cells = {order: frame[f"verdict_{order}"].map(points).astype(float) for order in ("ab", "ba")}
    both = pd.DataFrame({**cells, "group": groups_of(frame)}).dropna(subset=["ab", "ba"])
    if both.empty:
        raise Unmet(f"needs verdicts in both orders; none of {len(frame)} pairs has them")
    return both, {"missing": len(frame) - len(both), "moved": float((both["ab"] != both["ba"]).mean())}


def _pair(item: Mapping[str, Any], a: str, b: str, gold_a: Any, gold_b: Any) -> Row:
    """Two responses to an item's question as a row for `Judge.compare`."""
    shared = {name: value for name, value in item.items() if name not in OWN}
    return shared | {"response_a": a, "response_b": b, "gold_a": gold_a, "gold_b": gold_b, "preference": None}


def pairs_of_items(items: Any, *, limit: int | None = None, seed: int = 0) -> list[Row]:
    """Pairs of responses to the same question, from a rubric collection.

    Args:
        limit: pairs drawn at random among all; None keeps all.
        seed: of that draw, and of which response is a.

    Returns:
        Rows for `Judge.compare`; `preference` by gold, "tie" where equal, None where unknown, and `gold_a`, `gold_b`.
    """
    rows = list(rows_of(data.canonical(items)))
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


# --- does a judge agree with itself, and with what it was? ------------------------------------------------------------


def consistency(
    judge: Any, items: Any = None, *, samples: int = 4, temperature: float = 1.0, top_p: float = 0.9, **options: Any
) -> pd.DataFrame:
    """How often, and by how much, two verdicts on the same item differ: descriptions.

    Rows are "disagreement" (probability that they differ by half a level or more) and "distance" (their mean absolute
    difference). A judge is sampled, by default as Prometheus-Vision was published; of runs, "sampled" or the original
    has several verdicts an item. An item with fewer than two scores is missing.
    """
    trials = Trials.of(judge, items, **options)
    if trials.judge is not None:
        sampling: Row = dict(samples=samples, temperature=temperature, top_p=top_p, seed=trials.seed)
        frame = trials.run(SAMPLED, trials.items, mode="feedback", **sampling)
    else:
        frame = trials.runs.get(SAMPLED, trials.run())
    if frame["id"].is_unique:
        raise Unmet('needs repeated verdicts: grade with samples=2 or more and a temperature, as the run "sampled"')
    cells = runs.verdicts(frame, trials.score)
    lines = []
    for _, own in cells.dropna(subset="score").groupby(level=0, sort=False):
        gaps = np.array([abs(one - other) for one, other in itertools.combinations(own["score"], 2)])
        if len(gaps):
            lines.append(((gaps >= MOVED).mean(), gaps.mean(), own["group"].iloc[0]))
    if not lines:
        raise Unmet("needs two scores or more of an item; no item has them")
    pairs = pd.DataFrame(lines, columns=["differ", "gap", "group"])
    of = trials.mean if pairs["differ"].any() else trials.share  # all alike: Wilson's interval of a share
    flags, gap = of(pairs["differ"], pairs["group"]), trials.mean(pairs["gap"], pairs["group"])
    flags = flags._replace(low=float(np.clip(flags.low, 0, 1)), high=float(np.clip(flags.high, 0, 1)))
    gap = gap._replace(low=float(np.clip(gap.low, 0, None)))
    common = {"missing": cells.index.nunique() - len(pairs), "moved": float((pairs["differ"] > 0).mean())}
    rows = [trials.row("disagreement", flags, "share of pairs of verdicts", **common),
            trials.row("distance", gap, POINTS, **common)]  # fmt: skip
    return trials.table("consistency", rows)


def drift(first: Any, second: Any, items: Any = None, *, out: Any = None, **options: Any) -> pd.DataFrame:
    """Whether scores moved between two runs of the same items, or two versions of a judge. They must stay.

    `first` and `second` are runs, or judges that grade the items now (`out` then keeps runs "first" and "second"). Rows
    are "change" (mean of second less first), "moved" (share of items that moved by half a level; a description) and,
    with gold, "agreement" (change of the slope of score on gold). `missing` counts items without a score in both.

    Raises:
        ValueError: the second run has items that the first has not.
    """
    both = []
    for name, one in (("first", first), ("second", second)):
        trials = Trials(one, **({} if isinstance(one, pd.DataFrame) else {"items": items, "out": out}), **options)
        if trials.judge is not None:
            trials.runs[ORIGINAL] = trials.run(name, trials.items)
        both.append(trials)
    old, new = (one.scored() for one in both)
    pair = contrast(old, new)
    common = _counts(pair) | {"judge": " to ".join(dict.fromkeys(one.name for one in both))}
    common["missing"] += len(old) - len(new)  # the second has no other ids
    moved = trials.share(pair["delta"].abs() >= MOVED, pair["group"])
    rows = [trials.row("change", trials.mean(pair["delta"], pair["group"]), POINTS, "stay", **common),
            trials.row("moved", moved, "share of items", **common)]  # fmt: skip
    if len(rated := _rated(pair)):
        effect = trials.slope(rated["delta"], rated["gold"], rated["group"])
        rows.append(trials.row("agreement", effect, AGREEMENT, "stay", **common))
    return trials.table("drift", rows)


# --- all that apply ---------------------------------------------------------------------------------------------------

_ALL = (blindness, question, rubric, reference, length, verbosity, formatting, injection, scale, image_kinds, position,
        consistency)  # fmt: skip
PROBES: dict[str, Callable[..., pd.DataFrame]] = {probe.__name__: probe for probe in _ALL}
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
        The probes' rows, see `COLUMNS`, and their `attrs`; one that does not apply has one row, whose `note` says what
        it needs, as does `attrs["not_run"]`.
    """
    chosen = list(PROBES) if probes is None else list(probes)
    if unknown := [name for name in chosen if name not in PROBES]:
        raise ValueError(f"probes {unknown} are unknown; use some of {', '.join(PROBES)}")
    if not isinstance(judge, (Mapping, pd.DataFrame, Trials)):
        options = {"progress": False, **options}
    trials = Trials.of(judge, items, **options)
    rows: list[Row] = []
    not_run: dict[str, str] = {}
    for name in tqdm(chosen, desc="probes", unit="probe", disable=not progress):
        try:
            more: Row = {"samples": samples} if name == "consistency" else {}
            if name == "position" and trials.judge is not None and COMPARED not in trials.runs:
                if pairs is None:
                    pairs = pairs_of_items(trials.items, limit=len(trials.items), seed=trials.seed)
                more = {"pairs": pairs or None}
            rows += PROBES[name](trials, **more).to_dict("records")
        except Unmet as error:
            not_run[name] = str(error)
            rows.append(trials.row("", note=str(error), reading="not run") | {"probe": name})
    result = trials.table("", rows)
    result.attrs["not_run"] = not_run
    return result
