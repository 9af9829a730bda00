"""Probes of one thing changed: image, question, rubric, reference, format, another score.

A change in agreement is that of the slope of score on gold: -1 where a judge that followed gold one
to one loses all it knew.
"""

from __future__ import annotations

from typing import Any

import datasets
import pandas as pd

from vjudge.asking import Images
from vjudge.data import rows_of
from vjudge.engines.engine import Ask
from vjudge.images import Pictures
from vjudge.probes.effects import mean, slope
from vjudge.probes.pairs import both_orders, pair_of
from vjudge.probes.perturbations import PERTURBATIONS, Perturbation, beside
from vjudge.probes.runs import (
    AGREEMENT,
    MOVED,
    ORIGINAL,
    PADDED,
    POINTS,
    WINS,
    MissingInputError,
    ProbeRuns,
)
from vjudge.records import NAN, unit_of

OWN_TOKENS = 128  # of the judge's own answer
ANSWERED = "answered_first"
Row = dict[str, Any]


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
            pairs = [pair_of(before[row["id"]], row) | {"preference": None} for row in changed]
        both, counts = both_orders(runs.run(PADDED, pairs))
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


def drift(first: pd.DataFrame, second: pd.DataFrame, **options: Any) -> pd.DataFrame:
    """Test whether scores moved between two runs of the same items, as of two versions of a judge.

    Rows are "change" (mean of second less first) and, with gold, "agreement"; both must stay. The
    second run may lack items of the first, counted as missing, and has no other: ValueError.
    """
    runs = ProbeRuns({ORIGINAL: first, "second": second}, **options)
    pair = runs.contrast("second")
    pair.attrs["missing"] += len(runs.scored()) - len(runs.scored("second"))
    return runs.table("drift", _stays(runs, "", "the second run", pair))
