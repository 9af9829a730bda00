"""The probes: each looks for one bias and returns one small table with the columns of `probes.COLUMNS`.

Every probe takes a judge and items, or the runs made of them, and the options of `probes.Trials`; one that lacks
something raises `Unmet`, which says what. A change in agreement is that of the slope of score on gold: -1 where a judge
that followed gold one to one loses all it knew.
"""

from __future__ import annotations

import itertools
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy.spatial.distance import pdist

from vjudge import data
from vjudge.data import rows_of
from vjudge.metrics.baselines import lengths
from vjudge.metrics.tables import groups_of
from vjudge.probes import trials as runs
from vjudge.probes.perturbations import PERTURBATIONS, Perturbation
from vjudge.probes.trials import (
    COMPARED,
    ORIGINAL,
    PADDED,
    SAMPLED,
    Trials,
    Unmet,
    coefficient,
    mean,
    share,
    slope,
)
from vjudge.records import NAN, as_score

AGREEMENT, POINTS, WINS = "score per gold point", "score points", "share less one half"
MOVED = 0.5  # score points: what counts as a move on a scale of whole scores
OWN = (
    "response",
    "gold",
    "feedback",
    "human_scores",
)  # what the responses to a question do not share
Row = dict[str, Any]

# --- one thing changed: the image, the question, the rubric, the reference, the format, a verdict written in ----------


def blindness(judge: Any, items: Any = None, **options: Any) -> pd.DataFrame:
    """Whether the judge looks at the image: blanked, exchanged between groups, its tiles shuffled.

    At least a quarter of the agreement with gold must be lost (`least`): a judge that takes nine tenths from the text
    is not passed. Stored anew as JPEG, the score must stay. Source: MM-JudgeBias (arXiv 2604.18164); sizes are ours.
    """
    return _changes("blindness", Trials.of(judge, items, **options))


def question(judge: Any, items: Any = None, **options: Any) -> pd.DataFrame:
    """Whether the judge reads the instruction: removed, exchanged for another group's, put more politely.

    Reworded, the score must stay; what is lost is described, since rubric and response may say what was asked.
    """
    return _changes("question", Trials.of(judge, items, **options))


def rubric(judge: Any, items: Any = None, **options: Any) -> pd.DataFrame:
    """Whether the judge follows the rubric: its levels reversed, its criterion exchanged for the least similar one.

    A judge that reads reversed levels mirrors its scores, which must move; what another criterion costs is described.
    """
    return _changes("rubric", Trials.of(judge, items, **options))


def formatting(judge: Any, items: Any = None, **options: Any) -> pd.DataFrame:
    """Whether Markdown moves the score or its agreement: a word of each sentence in bold, sentences as a list."""
    return _changes("formatting", Trials.of(judge, items, **options))


def reference(judge: Any, items: Any = None, **options: Any) -> pd.DataFrame:
    """Whether the judge leans on the reference answer: removed, and exchanged for another group's. It must stay."""
    return _changes("reference", Trials.of(judge, items, **options))


def verbosity(judge: Any, items: Any = None, **options: Any) -> pd.DataFrame:
    """Whether sentences that say nothing move the score: responses padded to twice their length. It must stay.

    Each item is its own control: this is the verdict on length. A judge of two responses is also shown the padded
    response against the same one as it was. Where no row's language can be told, padding is refused.
    """
    trials = Trials.of(judge, items, **options)
    if PADDED not in trials.runs:
        if getattr(trials.judge, "pairs", None) is None:
            return _changes("verbosity", trials)
        before = {row["id"]: row for row in rows_of(trials.items)}
        changed = rows_of(trials.changed("response_padded"))
        trials.run(
            PADDED, [_pair(before[row["id"]], row) | {"preference": None} for row in changed]
        )
    both, counts = _both_orders(trials.run(PADDED))
    wins = mean((2 - both["ab"] - both["ba"]) / 2 - 0.5, both["group"])
    return _changes(
        "verbosity", trials, trials.row("padded against itself: wins", wins, WINS, "stay", **counts)
    )


def injection(judge: Any, items: Any = None, **options: Any) -> pd.DataFrame:
    """Whether a verdict or an order written into the response moves the score: each way of `PHRASES`. It must stay.

    The effect is the mean change towards the score that the text asks for, over items whose gold leaves room for it:
    others, chosen for a low first score, would rise by chance. `missing` counts answers that can't be read any more.
    """
    return _changes("injection", Trials.of(judge, items, **options))


def _changes(probe: str, trials: Trials, *more: Row) -> pd.DataFrame:
    """The table of a probe that compares its perturbations with the original."""
    rows: list[Row] = []
    names = [name for name, kind in PERTURBATIONS.items() if kind.probe == probe]
    if trials.judge is None:  # those that were given; where none was, `run` says what is needed
        names = [name for name in names if name in trials.runs] or names[:1]
    for name in names:
        case, kind = name.replace("_", " "), PERTURBATIONS[name]
        try:
            pair = trials.contrast(name)
        except Unmet as error:
            if trials.judge is None:
                raise
            rows.append(trials.row(case, note=str(error)))
            continue
        if probe == "injection":  # where gold leaves room for the score that is asked for
            sign = -1 if name == "injected_worst" else 1
            room = (
                sign * pair["gold"] < (sign * pair["gold"]).max()
                if len(_rated(pair))
                else slice(None)
            )
            pair = pair[room]
            towards = mean(sign * pair["delta"], pair["group"])
            rows.append(trials.row(f"{case}: change", towards, POINTS, "stay", **_counts(pair)))
        elif kind.must == "stay":
            rows += _stays(trials, f"{case}: ", pair, **_counts(pair))
        else:
            rows.append(_lost(trials, case, pair, kind))
    return trials.table(probe, [*rows, *more])


def _stays(trials: Trials, case: str, pair: pd.DataFrame, **counts: Any) -> list[Row]:
    """The mean change and, with gold, the change in agreement."""
    rows = [
        trials.row(f"{case}change", mean(pair["delta"], pair["group"]), POINTS, "stay", **counts)
    ]
    if len(rated := _rated(pair)):
        effect = slope(rated["delta"], rated["gold"], rated["group"])
        rows.append(trials.row(f"{case}agreement", effect, AGREEMENT, "stay", **counts))
    return rows


def _lost(trials: Trials, case: str, pair: pd.DataFrame, kind: Perturbation) -> Row:
    """The change in agreement, which must be lost where no judge can do without the part."""
    rated, counts = _rated(pair), _counts(pair)
    if not len(rated):  # nobody knows what must be lost
        size = mean(pair["delta"].abs(), pair["group"])
        return trials.row(f"{case}: size of the change", size, POINTS, **counts)
    gold, group = rated["gold"], rated["group"]
    effect = slope(rated["delta"], gold, group)
    if kind.must:
        # p is that of a loss of just the least share: of the slope of after - (1 - least) before being 0.
        least = trials.least * kind.loss
        before = slope(rated["before"], gold, group)
        rest = slope(rated["after"] - (1 - least) * rated["before"], gold, group)
        effect = effect._replace(
            p=rest.p if before.low > 0 else NAN
        )  # NaN: no agreement that could be lost
        counts["margin"] = least * before.effect
    return trials.row(f"{case}: agreement", effect, AGREEMENT, kind.must, **counts)


def _rated(pair: pd.DataFrame) -> pd.DataFrame:
    """The items with gold; none where it does not differ."""
    rated = pair[pair["gold"].notna()]
    return rated if rated["gold"].nunique() > 1 else rated.iloc[:0]


def _counts(pair: pd.DataFrame) -> Row:
    return {"missing": pair.attrs["missing"], "moved": float((pair["delta"].abs() >= MOVED).mean())}


# --- at equal gold: length, kinds of image; how the scale is used -----------------------------------------------------


def length(
    judge: Any, items: Any = None, *, unit: str | None = None, **options: Any
) -> pd.DataFrame:
    """The slope of the score on the length of the response at equal gold score, in score points per doubling.

    Exact gold is held equal by its levels, or ten classes and the score within them; of people's mean score the noise
    is taken out. Otherwise this is a description, `verbosity` the verdict: where better answers are longer, noise in
    gold alone gives an honest judge a slope. `unit` is "words" or "characters", None as the responses' script has it.

    >>> import pandas as pd
    >>> from vjudge.probes import length
    >>> run = pd.DataFrame({"id": list("abcd"), "score": [1, 2, 3, 4], "gold": [2, 2, 3, 3], "group": list("abab")})
    >>> table = length(run.assign(response=["w", "w w", "w", "w w"]))
    >>> round(float(table.loc[0, "effect"]), 3), table.loc[0, "reading"]
    (1.0, 'described')
    """
    trials = Trials.of(judge, items, **options)
    cells = trials.scored()
    sizes = lengths(trials.column("response").reindex(cells.index), unit=unit)
    cells["x"] = np.log2(sizes.where(sizes > 0))
    note = f"length in {sizes.attrs['unit']}; "
    return trials.table(
        "length", [_at_equal_gold(trials, cells, "slope at equal gold", "score per doubling", note)]
    )


def _at_equal_gold(
    trials: Trials, cells: pd.DataFrame, case: str, unit: str, note: str = ""
) -> Row:
    """The row of the slope of the score on the column x at equal gold, as `Trials.gold` allows it to be read."""
    cells, rated, lack = cells.assign(error=0.0), trials.gold == "rated", "gold scores"
    if rated:
        lack, people = (
            "human_scores of two people or more an item",
            runs.ratings(trials.column("human_scores")),
        )
        people = people.reindex(cells.index)
        cells["error"] = people.var(axis=1) / people.count(
            axis=1
        )  # NaN of one person, whose noise nobody knows
        cells["gold"] = people.mean(axis=1).where(cells["error"].notna())
    if cells["gold"].isna().all():
        raise Unmet(
            f"needs {lack}: only at equal gold is what people see in an answer told from a bias"
        )
    used = cells.dropna(subset=["score", "gold", "x"])
    x, gold, error = (used[name].to_numpy(dtype=float) for name in ("x", "gold", "error"))
    held = np.column_stack([np.ones(len(x)), gold - gold.mean()]) if rated else runs.equal(gold)
    design = np.column_stack([x - x.mean() if rated else x, held])
    effect = coefficient(used["score"], design, used["group"], error=error if rated else None)
    must = None if trials.gold == "observed" else "stay"
    return trials.row(
        case, effect, unit, must, missing=len(cells) - len(used), note=note + runs.GOLD[trials.gold]
    )


def scale(judge: Any, items: Any = None, **options: Any) -> pd.DataFrame:
    """Leniency (mean of score less gold) and compression (slope of score on gold, less one), as descriptions.

    Whole scores at the ends of the scale and noise in gold flatten that slope for a judge without bias too.
    """
    trials = Trials.of(judge, items, **options)
    cells = trials.scored()
    if cells["gold"].isna().all():
        raise Unmet(
            "needs gold scores: without them nobody knows whether a mild judge saw good answers"
        )
    used = cells.dropna(subset=["score", "gold"])
    error, missing = used["score"] - used["gold"], len(cells) - len(used)
    compression = slope(error, used["gold"], used["group"])
    rows = [trials.row("leniency", mean(error, used["group"]), POINTS, missing=missing),
            trials.row("compression", compression, f"{AGREEMENT}, less one", missing=missing)]  # fmt: skip
    return trials.table("scale", rows)


def image_kinds(
    judge: Any, items: Any = None, *, kind: str = "kind", **options: Any
) -> pd.DataFrame:
    """Agreement with gold by kind of image, the column `kind` of the run or the items, and whether one is favoured.

    Rows of each are "agreement" (slope of score on gold; a description) and "against the others" (difference of mean
    scores at equal gold; must stay 0 where gold is exact or rated).
    """
    trials, rows = Trials.of(judge, items, **options), []
    cells = trials.scored()
    label = trials.column(kind).reindex(cells.index)
    names = sorted(label.dropna().unique(), key=str)
    if len(names) < 2:
        raise Unmet(f"needs two kinds of image or more; {kind!r} has {len(names)}")
    for name in names:
        here = cells[(label == name).to_numpy()].dropna(subset=["score", "gold"])
        rows.append(
            trials.row(
                f"{name}: agreement", slope(here["score"], here["gold"], here["group"]), AGREEMENT
            )
        )
        if name == names[0] or len(names) > 2:  # of two kinds, the second would mirror the first
            cells["x"] = np.where(label.isna(), NAN, (label == name) * 1.0)
            rows.append(_at_equal_gold(trials, cells, f"{name}: against the others", POINTS))
    return trials.table("image_kinds", rows)


# --- two responses ----------------------------------------------------------------------------------------------------


def position(judge: Any, pairs: Any = None, **options: Any) -> pd.DataFrame:
    """Whether the order of the two responses decides the verdict: every pair is shown in both orders.

    `judge` has `compare`, or is the frame that this returned for `pairs`, see `pairs_of_items`. Rows are "first shown
    wins": the share of verdicts for the response shown first less one half, ties counting half (must stay 0); and, a
    description, "order decides": the share of pairs whose two verdicts differ.

    >>> import pandas as pd
    >>> from vjudge.probes import position
    >>> compared = pd.DataFrame({"id": ["1", "2"], "verdict_ab": ["a", "a"], "verdict_ba": ["a", "b"]})
    >>> position(compared).set_index("case")["effect"].to_dict()
    {'first shown wins': 0.25, 'order decides': 0.5}
    """
    trials = Trials.of({COMPARED: judge} if isinstance(judge, pd.DataFrame) else judge, **options)
    if trials.judge is not None and pairs is None:
        raise Unmet("needs pairs: pass pairs=, or make them with probes.pairs_of_items(items)")
    both, counts = _both_orders(trials.run(COMPARED, pairs))
    first = mean((both["ab"] + 1 - both["ba"]) / 2 - 0.5, both["group"])
    decides = share(both["ab"] != both["ba"], both["group"])
    rows = [trials.row("first shown wins", first, WINS, "stay", **counts),
            trials.row("order decides", decides, "share of pairs", **counts)]  # fmt: skip
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
    return both, {
        "missing": len(frame) - len(both),
        "moved": float((both["ab"] != both["ba"]).mean()),
    }


def _pair(a: Mapping[str, Any], b: Mapping[str, Any]) -> Row:
    """Two responses to a question as a row for `Judge.compare`."""
    pair = {name: value for name, value in a.items() if name not in OWN}
    pair |= {
        f"{name}_{side}": row[name]
        for name in ("response", "gold")
        for side, row in (("a", a), ("b", b))
    }
    ahead = float(np.sign(as_score(a["gold"]) - as_score(b["gold"])))
    return pair | {"preference": {1.0: "a", -1.0: "b", 0.0: "tie"}.get(ahead)}


def pairs_of_items(items: Any, *, limit: int | None = None, seed: int = 0) -> list[Row]:
    """Pairs of responses to the same question of a rubric collection, as rows for `Judge.compare`.

    At most `limit` are drawn at random, and which response is a; `preference` is by gold, None where that is unknown.
    """
    rows = list(rows_of(data.canonical(items)))
    rng = np.random.default_rng(seed)
    places = [
        pair for case in data.cases(items)["rows"] for pair in itertools.combinations(case, 2)
    ]
    if limit is not None and len(places) > limit:
        places = [places[i] for i in sorted(rng.choice(len(places), size=limit, replace=False))]
    drawn = [(rows[i], rows[j]) if rng.random() < 0.5 else (rows[j], rows[i]) for i, j in places]
    return [_pair(a, b) | {"id": f"{a['id']}|{b['id']}"} for a, b in drawn]


def consistency(
    judge: Any,
    items: Any = None,
    *,
    samples: int = 4,
    temperature: float = 1.0,
    top_p: float = 0.9,
    **options: Any,
) -> pd.DataFrame:
    """How often (by half a level or more), and by how much, two verdicts on an item differ: descriptions.

    Rows are "disagreement" and "distance". A judge is sampled, by default as Prometheus-Vision was published; of runs,
    "sampled" or the original has several verdicts an item.
    """
    trials = Trials.of(judge, items, **options)
    if trials.judge is not None:
        sampling: Row = dict(
            samples=samples, temperature=temperature, top_p=top_p, seed=trials.seed
        )
        frame = trials.run(SAMPLED, trials.items, mode="feedback", **sampling)
    else:
        frame = trials.runs.get(SAMPLED, trials.run())
    cells = runs.verdicts(frame, trials.score)
    lines = []
    for _, own in cells.dropna(subset="score").groupby(level=0, sort=False):
        gaps = pdist(own[["score"]], "cityblock")
        if len(gaps):
            lines.append(((gaps >= MOVED).mean(), gaps.mean(), own["group"].iloc[0]))
    if not lines:
        raise Unmet(
            'needs repeated verdicts: grade with samples=2 or more and a temperature, as the run "sampled"'
        )
    pairs = pd.DataFrame(lines, columns=["differ", "gap", "group"])
    of = mean if pairs["differ"].any() else share  # all alike: Wilson's interval of a share
    flags, gap = of(pairs["differ"], pairs["group"]), mean(pairs["gap"], pairs["group"])
    flags = flags._replace(
        low=float(np.clip(flags.low, 0, 1)), high=float(np.clip(flags.high, 0, 1))
    )
    gap = gap._replace(low=float(np.clip(gap.low, 0, None)))
    counts = {
        "missing": cells.index.nunique() - len(pairs),
        "moved": float((pairs["differ"] > 0).mean()),
    }
    rows = [trials.row("disagreement", flags, "share of pairs of verdicts", **counts),
            trials.row("distance", gap, POINTS, **counts)]  # fmt: skip
    return trials.table("consistency", rows)


def drift(first: pd.DataFrame, second: pd.DataFrame, **options: Any) -> pd.DataFrame:
    """Whether scores moved between two runs of the same items, such as those of two versions of a judge.

    Rows are "change" (mean of second less first) and, with gold, "agreement"; both must stay. The second run may lack
    items of the first, counted as missing, and has no other: ValueError.
    """
    trials = Trials({ORIGINAL: first, "second": second}, **options)
    pair = trials.contrast("second")
    counts = _counts(pair)
    counts["missing"] += len(trials.scored()) - len(trials.scored("second"))
    return trials.table("drift", _stays(trials, "", pair, **counts))


PROBES: dict[str, Callable[..., pd.DataFrame]] = {probe.__name__: probe for probe in (
    blindness, question, rubric, reference, length, verbosity, formatting, injection, scale, image_kinds, position,
    consistency)}  # fmt: skip
"""The battery's probes, in the order of its table. `drift` compares two runs and stands by itself."""


def battery(
    judge: Any,
    items: Any = None,
    *,
    probes: Sequence[str] = (*PROBES,),
    samples: int = 4,
    **options: Any,
) -> pd.DataFrame:
    """Run every probe that applies to a judge, and return one table with a verdict on each row.

    Each perturbation is graded once: about twenty-five passes over the items. All tests share Holm's correction: of
    honest judges, one in twenty at most is accused of anything. Among runs, "sampled" (of so many `samples`) serves
    `consistency` and "compared" `position`, for which a judge compares responses to one question. `probes` are names of
    `PROBES`; one that does not apply has a row whose `note` says what it needs, as does `attrs["not_run"]`.
    """
    if unknown := [name for name in probes if name not in PROBES]:
        raise ValueError(f"probes {unknown} are unknown; use some of {', '.join(PROBES)}")
    trials, rows, not_run = Trials.of(judge, items, **options), list[Row](), dict[str, str]()
    try:
        with warnings.catch_warnings(record=True) as alerts:
            warnings.simplefilter("always")
            for name in probes:
                try:
                    more: Row = {"samples": samples} if name == "consistency" else {}
                    if (
                        name == "position"
                        and trials.judge is not None
                        and COMPARED not in trials.runs
                    ):
                        limit = len(trials.items)
                        more = {
                            "pairs": pairs_of_items(trials.items, limit=limit, seed=trials.seed)
                            or None
                        }
                    rows += PROBES[name](trials, **more).to_dict("records")
                except Unmet as error:
                    not_run[name] = str(error)
                    rows.append(trials.row("", note=str(error)) | {"probe": name})
    finally:  # a judge that fails warns first
        for (text, kind), count in Counter(
            (str(alert.message), alert.category) for alert in alerts
        ).items():
            warnings.warn(text if count == 1 else f"{text} ({count} times)", kind, stacklevel=2)
    result = trials.table("", rows)
    result.attrs["not_run"] = not_run
    return result
