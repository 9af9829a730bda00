"""The probes: each looks for one bias and returns one small table with the columns of `COLUMNS`.

Every probe takes a judge and items, or the runs made of them, and the options of `ProbeRuns`; one
that lacks something raises `MissingInputError`, which says what. A change in agreement is that of
the slope of score on gold: -1 where a judge that followed gold one to one loses all it knew.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import datasets
import numpy as np
import pandas as pd
from scipy.spatial.distance import pdist

from vjudge import data
from vjudge.asking import Images
from vjudge.data import rows_of
from vjudge.engines.engine import Ask
from vjudge.images import Pictures
from vjudge.metrics.baselines import lengths
from vjudge.metrics.tables import groups_of
from vjudge.probes.effects import coefficient, equal, mean, share, slope
from vjudge.probes.perturbations import PERTURBATIONS, Perturbation, beside
from vjudge.probes.runs import (
    COMPARED,
    GOLD,
    ORIGINAL,
    PADDED,
    SAMPLED,
    MissingInputError,
    ProbeRuns,
    ratings,
    verdicts,
)
from vjudge.records import NAN, as_score, unit_of

AGREEMENT = "score per gold point"
POINTS = "score points"
WINS = "share less one half"
MOVED = 0.5  # score points: what counts as a move on a scale of whole scores
OWN_TOKENS = 128  # of the judge's own answer
ANSWERED = "answered_first"
OWN = ("response", "gold", "feedback", "human_scores")  # what responses to a question don't share
Row = dict[str, Any]

# --- one thing changed: image, question, rubric, reference, format, a score shown or written in ---


def blindness(judge: Any, items: Any = None, **options: Any) -> pd.DataFrame:
    """Test whether the judge looks at the image: blanked, exchanged between groups, shuffled.

    At least a quarter of the agreement with gold must be lost (`least`). Exchanged images decide:
    a judge that gives grey images the lowest score loses all agreement on blanked ones without
    having seen any, so that blanked and shuffled ones count only beside these. Stored anew as
    JPEG, the score must stay.

    Source: MM-JudgeBias (arXiv 2604.18164); sizes are ours.
    """
    return _changes("blindness", judge, items, **options)


def question(judge: Any, items: Any = None, **options: Any) -> pd.DataFrame:
    """Test whether the judge reads the instruction: removed, exchanged, put more politely.

    Politely put, the score must stay; the others are descriptions, since rubric and response may
    say what was asked.
    """
    return _changes("question", judge, items, **options)


def rubric(judge: Any, items: Any = None, **options: Any) -> pd.DataFrame:
    """Test whether the judge follows the rubric: levels reversed, another criterion.

    A judge that reads reversed levels mirrors its scores, which must move; what the least similar
    criterion of the collection costs is described.
    """
    return _changes("rubric", judge, items, **options)


def rewording(judge: Any, items: Any = None, **options: Any) -> pd.DataFrame:
    """Test whether other words for the same rubric move the score. It must stay.

    Criterion and levels stand in a sentence around them; to test a paraphrase of your own, grade it
    and pass the run as "rubric_reworded".
    """
    return _changes("rewording", judge, items, **options)


def formatting(judge: Any, items: Any = None, **options: Any) -> pd.DataFrame:
    """Test whether Markdown moves the score: a bold word in each sentence, sentences as a list."""
    return _changes("formatting", judge, items, **options)


def reference(judge: Any, items: Any = None, **options: Any) -> pd.DataFrame:
    """Test whether removing or exchanging the reference answer moves the score. It must stay."""
    return _changes("reference", judge, items, **options)


def injection(judge: Any, items: Any = None, **options: Any) -> pd.DataFrame:
    """Test whether a verdict or an order in the response (`PHRASES`) moves the score. It must stay.

    The effect is the mean change towards the score that the text asks for, over items whose gold
    leaves room for it: others, chosen for a low first score, would rise by chance. `missing` counts
    answers that can't be read any more.
    """
    return _changes("injection", judge, items, **options)


def anchoring(judge: Any, items: Any = None, **options: Any) -> pd.DataFrame:
    """Test whether another judge's score, shown beside the question, moves the score.

    The highest and the lowest score of the rubric are shown. The effect is the mean change towards
    the shown score, over items as of `injection`. It must stay.
    """
    return _changes("anchoring", judge, items, **options)


def commitment(judge: Any, items: Any = None, **options: Any) -> pd.DataFrame:
    """Test whether the score changes once the judge has answered the question itself.

    The judge answers each instruction before it sees a response, and is then shown its answer
    beside the question. A judge that the response led has another score or another agreement with
    gold. Items may hold the answers in the column `own_answer`.
    """
    runs = ProbeRuns.of(judge, items, **options)
    if runs.judge is not None and ANSWERED not in runs.runs:
        runs.run(ANSWERED, runs.changed(ANSWERED, _with_own_answers(runs)))
    return _changes("commitment", runs)


def _with_own_answers(runs: ProbeRuns) -> datasets.Dataset:
    """The items with the judge's own answer to each instruction, one for responses to it."""
    items = runs.items
    judge = runs.judge
    if "own_answer" in items.column_names:
        return items
    if getattr(judge, "engine", None) is None or judge.gives_values:
        what = "a judge that writes answers, or its answers in the items' column own_answer"
        raise MissingInputError(f"needs {what}")
    rows = rows_of(items)
    places: dict[tuple[str, str], int] = {}
    keys = [(unit_of(row), row["instruction"]) for row in rows]
    for place, key in enumerate(keys):
        places.setdefault(key, place)
    sees = judge.template.sees_images
    prompts = []
    for place in places.values():
        n_images = len(rows[place]["images"] or ()) if sees else 0
        prompts.append(judge.template.conversation.wrap(rows[place]["instruction"], n_images))
    images = Images(rows, [*places.values()] if sees else [], Pictures())
    texts = [""] * len(prompts)
    for batch in judge.engine.answer(prompts, images, Ask(max_new_tokens=OWN_TOKENS)):
        for answer in batch:
            texts[answer.index] = answer.text
    own = dict(zip(places, texts, strict=True))
    column = datasets.Dataset.from_dict({"own_answer": [own[key] for key in keys]})
    return beside(items, column)


def verbosity(judge: Any, items: Any = None, **options: Any) -> pd.DataFrame:
    """Test whether sentences that say nothing move the score: responses of twice their length.

    Each item is its own control: this is the verdict on length. It must stay. A judge of two
    responses is also shown the padded response against the same one as it was.
    """
    runs = ProbeRuns.of(judge, items, **options)
    rows = _change_rows(runs, "verbosity")
    if PADDED in runs.runs or getattr(runs.judge, "pairs", None) is not None:
        pairs = None
        if PADDED not in runs.runs:
            before = {row["id"]: row for row in rows_of(runs.items)}
            changed = rows_of(runs.changed("response_padded"))
            pairs = [_pair(before[row["id"]], row) | {"preference": None} for row in changed]
        both, counts = _both_orders(runs.run(PADDED, pairs))
        wins = mean((2 - both["ab"] - both["ba"]) / 2 - 0.5, both["group"])
        says = "padding {raises} a response's share of wins against itself by {size}"
        rows.append(runs.row("padded against itself: wins", wins, WINS, "stay", says, **counts))
    return runs.table("verbosity", rows)


def _changes(probe: str, judge: Any, items: Any = None, **options: Any) -> pd.DataFrame:
    """The table of a probe that compares its perturbations with the original."""
    runs = ProbeRuns.of(judge, items, **options)
    return runs.table(probe, _change_rows(runs, probe))


def _change_rows(runs: ProbeRuns, probe: str) -> list[Row]:
    """The rows of a probe's perturbations; of given runs, of those that there are."""
    names = [name for name, kind in PERTURBATIONS.items() if kind.probe == probe]
    if runs.judge is None:
        names = [name for name in names if name in runs.runs] or names[:1]
    rows = []
    for name in names:
        try:
            rows += _change(runs, name, runs.contrast(name))
        except MissingInputError as error:
            if runs.judge is None:
                raise
            rows.append(runs.row(name.replace("_", " "), note=str(error)))
    return rows


def _change(runs: ProbeRuns, name: str, pair: pd.DataFrame) -> list[Row]:
    """The rows of one perturbation."""
    kind = PERTURBATIONS[name]
    case = name.replace("_", " ")
    if kind.asks:
        gold = kind.asks * pair["gold"]
        if len(_rated(pair)):
            pair = pair[gold < gold.max()]  # where gold leaves room for the score that is asked for
        towards = mean(kind.asks * pair["delta"], pair["group"])
        says = f"{kind.does} moves scores {{towards}} it by {{size}}"
        return [runs.row(f"{case}: change", towards, POINTS, "stay", says, **_counts(runs, pair))]
    if kind.must == "stay":
        return _stays(runs, f"{case}: ", kind.does, pair)
    return [_lost(runs, case, kind, pair)]


def _stays(runs: ProbeRuns, case: str, does: str, pair: pd.DataFrame) -> list[Row]:
    """The mean change and, with gold, the change in agreement."""
    cells = _counts(runs, pair)
    effect = mean(pair["delta"], pair["group"])
    says = f"{does} {{raises}} scores by {{size}}"
    rows = [runs.row(f"{case}change", effect, POINTS, "stay", says, **cells)]
    rated = _rated(pair)
    if len(rated):
        effect = slope(rated["delta"], rated["gold"], rated["group"])
        says = f"{does} {{raises}} the slope of scores on gold by {{size}}"
        rows.append(runs.row(f"{case}agreement", effect, AGREEMENT, "stay", says, **cells))
    return rows


def _lost(runs: ProbeRuns, case: str, kind: Perturbation, pair: pd.DataFrame) -> Row:
    """The change in agreement, which must be lost where no judge can do without the part."""
    cells = _counts(runs, pair)
    rated = _rated(pair)
    if not len(rated):  # nobody knows what must be lost
        size = mean(pair["delta"].abs(), pair["group"])
        says = f"{kind.does} moves a score by {{size}} either way"
        return runs.row(f"{case}: size of the change", size, POINTS, None, says, **cells)
    gold = rated["gold"]
    group = rated["group"]
    effect = slope(rated["delta"], gold, group)
    if kind.must == "move":
        # p is that of a loss of just the least share: of after - (1 - least) before having slope 0
        least = runs.least * kind.loss
        before = slope(rated["before"], gold, group)
        rest = slope(rated["after"] - (1 - least) * rated["before"], gold, group)
        effect = effect._replace(p=rest.p if before.low > 0 else NAN)
        cells["margin"] = least * before.effect
    says = f"{kind.does} {{raises}} the slope of scores on gold by {{size}}"
    return runs.row(f"{case}: agreement", effect, AGREEMENT, kind.must, says, **cells)


def _rated(pair: pd.DataFrame) -> pd.DataFrame:
    """The items with gold; none where it does not differ."""
    rated = pair[pair["gold"].notna()]
    return rated if rated["gold"].nunique() > 1 else rated.iloc[:0]


def _counts(runs: ProbeRuns, pair: pd.DataFrame) -> Row:
    moved = float((pair["delta"].abs() >= MOVED).mean())
    return {"missing": pair.attrs["missing"], "moved": moved} | runs.published(pair)


# --- at equal gold: length, authors, kinds of image; how the scale is used ---


def length(
    judge: Any, items: Any = None, *, unit: str | None = None, **options: Any
) -> pd.DataFrame:
    """Estimate the slope of the score on the response's length at equal gold, per doubling.

    Exact gold is held equal by its levels, or ten classes and the score within them; of people's
    mean score the noise is taken out. Otherwise this is a description, `verbosity` the verdict:
    where better answers are longer, noise in gold alone gives an honest judge a slope. `unit` is
    "words" or "characters", None as the responses' script has it.

    >>> import pandas as pd
    >>> from vjudge.probes import length
    >>> run = pd.DataFrame({"id": list("abcd"), "score": [1, 2, 3, 4], "gold": [2, 2, 3, 3]})
    >>> table = length(run.assign(group=list("abab"), response=["w", "w w", "w", "w w"]))
    >>> round(float(table.loc[0, "effect"]), 3), table.loc[0, "finding"]
    (1.0, 'doubling the length raises scores at equal gold by 1.00')
    """
    runs = ProbeRuns.of(judge, items, **options)
    cells = runs.scored()
    sizes = lengths(runs.column("response").reindex(cells.index), unit=unit)
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


# --- two responses, two verdicts, two runs ---


def position(judge: Any, pairs: Any = None, **options: Any) -> pd.DataFrame:
    """Test whether the order of two responses decides: every pair is shown in both orders.

    `judge` has `compare`, or is the frame that this returned for `pairs`; None makes pairs of the
    items, see `pairs_of_items`. Rows are "first shown wins": the share of verdicts for the response
    shown first less one half, ties counting half (must stay 0); and, a description, "order
    decides": the share of pairs whose two verdicts differ.

    >>> import pandas as pd
    >>> from vjudge.probes import position
    >>> verdicts = {"verdict_ab": ["a", "a"], "verdict_ba": ["a", "b"]}
    >>> table = position(pd.DataFrame({"id": ["1", "2"], **verdicts}))
    >>> table.set_index("case")["effect"].to_dict()
    {'first shown wins': 0.25, 'order decides': 0.5}
    """
    if isinstance(judge, pd.DataFrame):
        judge = {COMPARED: judge}
    runs = ProbeRuns.of(judge, **options)
    if pairs is None and runs.judge is not None and COMPARED not in runs.runs:
        pairs = pairs_of_items(runs.items, limit=len(runs.items), seed=runs.seed)
        if not pairs:
            raise MissingInputError("needs pairs: no two items are responses to one question")
    both, counts = _both_orders(runs.run(COMPARED, pairs))
    first = mean((both["ab"] + 1 - both["ba"]) / 2 - 0.5, both["group"])
    decides = share(both["ab"] != both["ba"], both["group"])
    wins = "standing first {raises} the share of wins by {size}"
    order = "the order decides {size} of the pairs"
    rows = [
        runs.row("first shown wins", first, WINS, "stay", wins, **counts),
        runs.row("order decides", decides, "share of pairs", says=order, **counts),
    ]
    return runs.table("position", rows)


def _both_orders(frame: pd.DataFrame) -> tuple[pd.DataFrame, Row]:
    """Verdicts in the orders ab and ba (1 for a, 0 for b, 1/2 for a tie) with group, and counts."""
    if not {"verdict_ab", "verdict_ba"} <= set(frame.columns):
        raise MissingInputError('needs both orders of every pair: compare with orders="both"')
    both = pd.DataFrame({"group": groups_of(frame)}, index=frame.index)
    for order in ("ab", "ba"):
        both[order] = frame[f"verdict_{order}"].map({"a": 1.0, "b": 0.0, "tie": 0.5}).astype(float)
    both = both.dropna()
    if both.empty:
        what = f"none of {len(frame)} pairs has them"
        raise MissingInputError(f"needs verdicts in both orders; {what}")
    moved = float((both["ab"] != both["ba"]).mean())
    return both, {"missing": len(frame) - len(both), "moved": moved}


def _pair(a: Mapping[str, Any], b: Mapping[str, Any]) -> Row:
    """Two responses to a question as a row for `Judge.compare`."""
    pair = {name: value for name, value in a.items() if name not in OWN}
    for name in ("response", "gold"):
        pair |= {f"{name}_a": a[name], f"{name}_b": b[name]}
    ahead = float(np.sign(as_score(a["gold"]) - as_score(b["gold"])))
    return pair | {"preference": {1.0: "a", -1.0: "b", 0.0: "tie"}.get(ahead)}


def pairs_of_items(items: Any, *, limit: int | None = None, seed: int = 0) -> list[Row]:
    """Make pairs of responses to the same question of a rubric collection, for `Judge.compare`.

    At most `limit` are drawn at random, and which response is a; `preference` is by gold, None
    where that is unknown.
    """
    rows = list(rows_of(data.canonical(items)))
    rng = np.random.default_rng(seed)
    places: list[tuple[int, int]] = []
    for case in data.cases(items)["rows"]:
        places += itertools.combinations(case, 2)
    if limit is not None and len(places) > limit:
        places = [places[i] for i in sorted(rng.choice(len(places), size=limit, replace=False))]
    pairs = []
    for i, j in places:
        a, b = (rows[i], rows[j]) if rng.random() < 0.5 else (rows[j], rows[i])
        pairs.append(_pair(a, b) | {"id": f"{a['id']}|{b['id']}"})
    return pairs


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


def drift(first: pd.DataFrame, second: pd.DataFrame, **options: Any) -> pd.DataFrame:
    """Test whether scores moved between two runs of the same items, as of two versions of a judge.

    Rows are "change" (mean of second less first) and, with gold, "agreement"; both must stay. The
    second run may lack items of the first, counted as missing, and has no other: ValueError.
    """
    runs = ProbeRuns({ORIGINAL: first, "second": second}, **options)
    pair = runs.contrast("second")
    pair.attrs["missing"] += len(runs.scored()) - len(runs.scored("second"))
    return runs.table("drift", _stays(runs, "", "the second run", pair))


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
