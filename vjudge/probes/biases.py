"""The probes that compare scores before and after one thing is changed in every item.

Every probe takes a judge and items, or the runs made of them, or several judges by name, and the
options of `ProbeRuns`. It returns a `Result`; a probe that lacks something says what in it. A
change in agreement is a change of the slope of score on gold: -1 where a judge that followed gold
one to one loses all its agreement.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import datasets
import pandas as pd

from vjudge.data import rows_of
from vjudge.data.schema import Items
from vjudge.engines.engine import Ask
from vjudge.judging.judge import Judge
from vjudge.probes.changes import beside
from vjudge.probes.decisions import AGREEMENT, BIAS_COLUMNS, MIN_LOSS, SCORE_POINTS, ProbeRow
from vjudge.probes.effects import mean, slope
from vjudge.probes.finish import finish, probed
from vjudge.probes.lengths import length
from vjudge.probes.pairs import position
from vjudge.probes.perturbations import PERTURBATIONS
from vjudge.probes.runs import Judged, MissingInputError, ProbeRuns
from vjudge.probes.systems import self_preference
from vjudge.records import NAN, unit_of
from vjudge.results import NotComputed, Result, analysis

NO_AGREEMENT = "without the change no agreement with gold is shown: there is nothing to lose"

# --- the rows of a perturbation


def perturbation_rows(probe: str, runs: ProbeRuns) -> list[ProbeRow]:
    """Make the rows of a probe's perturbations for one judge.

    A judge grades the items under each perturbation that applies to them. Where runs are given,
    only the perturbations whose runs are among them count. A perturbation that lacks something gets
    a row with the verdict "not run".

    Raises:
        MissingInputError: every perturbation lacks something; it is the first one's error.
    """
    rows = []
    first_error = None
    has_rows = False
    for name in _names(probe, runs):
        try:
            rows += _rows_of(runs, name)
            has_rows = True
        except MissingInputError as error:
            first_error = first_error or error
            rows.append(runs.row(_case(name), note=str(error), perturbation=name))
    if first_error is not None and not has_rows:
        raise first_error
    return rows


def _names(probe: str, runs: ProbeRuns) -> list[str]:
    """Name the perturbations of a probe that apply: to given runs, or to the items of a judge."""
    names = [name for name, kind in PERTURBATIONS.items() if kind.probe == probe]
    if runs.judge is None:
        given = [name for name in names if name in runs.runs]
        return given or names[:1]  # the first one, so that the error says which run is needed
    if "response_images" in runs.items.column_names:
        return names
    return [name for name in names if not PERTURBATIONS[name].responses]


def _case(name: str) -> str:
    """Write a perturbation's name in words."""
    return name.replace("_", " ")


def _rows_of(runs: ProbeRuns, name: str) -> list[ProbeRow]:
    """Make the rows of one perturbation: the change of scores, of their agreement, or both.

    must         inserted text asks    rows
    stay         for a score           change towards that score
    stay         for nothing           change; with gold also agreement
    move         for nothing           agreement; without gold the size of the change, untested
    """
    kind = PERTURBATIONS[name]
    items, missing = runs.contrast(name)
    items_with_gold = items.dropna(subset="gold")
    has_gold = items_with_gold["gold"].nunique() > 1
    # keep the items whose gold leaves room for a change: gold below its highest value where the
    # highest score is asked for (asks = 1), above its lowest where the lowest is (asks = -1)
    if kind.asks and has_gold:
        room = kind.asks * items["gold"]
        items = items[room < room.max()]  # items without gold are left out too
    cells: ProbeRow = {"perturbation": name, "missing": missing, **runs.published(items)}
    case = f"{_case(name)}: change"
    change = items["delta"]
    does = f"{kind.does} {{raises}} scores by {{size}}"
    if kind.asks:  # count a change towards the score that is asked for as positive
        change = kind.asks * change
        does = f"{kind.does} shifts scores {{towards}} it by {{size}}"
    rows = []
    if kind.must == "stay":
        effect = mean(change, items["group"], step=runs.ruler.step)
        rows.append(runs.row(case, effect, SCORE_POINTS, "stay", does, **cells))
    elif not has_gold:
        effect = mean(change.abs(), items["group"], step=runs.ruler.step)
        case = f"{_case(name)}: size of the change"
        does = f"{kind.does} moves a score by {{size}} either way"
        note = "without gold nobody knows what must be lost"
        rows.append(runs.row(case, effect, SCORE_POINTS, does=does, note=note, **cells))
    if has_gold and not kind.asks:
        rows.append(_agreement(runs, name, items_with_gold, cells))
    return rows


def _agreement(runs: ProbeRuns, name: str, items: pd.DataFrame, cells: ProbeRow) -> ProbeRow:
    """Make the row of the change in agreement: the slope of the scores' change on gold.

    Where the score must stay, p is that of no change. Where it must move, p is that of a loss of
    just the required share s of the slope: if a judge lost just s, then after - (1 - s) before has
    no slope on gold. That slope is tested.

        s = .25, slope before 1, after .2:  .2 - .75 * 1 = -.55, so that more than s is lost
    """
    kind = PERTURBATIONS[name]
    gold = items["gold"]
    group = items["group"]
    step = runs.ruler.step
    effect = slope(items["delta"], gold, group, step=step)
    if kind.must == "move":
        required_loss = MIN_LOSS * kind.loss
        before = slope(items["before"], gold, group, step=step)
        excess = items["after"] - (1 - required_loss) * items["before"]
        p = slope(excess, gold, group, step=step).p
        if before.low > 0:
            effect = effect._replace(p=p)
            share = f"{required_loss:.0%} of its slope on gold"
            cells = {**cells, "margin": required_loss * before.effect, "margin_of": share}
        else:
            effect = effect._replace(p=NAN)
            cells = {**cells, "margin": NAN, "note": NO_AGREEMENT}
    does = f"{kind.does} {{raises}} the slope of scores on gold by {{size}}"
    case = f"{_case(name)}: agreement"
    return runs.row(case, effect, AGREEMENT, kind.must, does, gold=gold, **cells)


# --- the probes


MAX_ANSWER_TOKENS = 128  # of the judge's own answer to a question, for `commitment`
ANSWERED = "answered_first"


def perturbation_probe(probe: str, judge: Judged, items: Items | None, **options: Any) -> Result:
    """Run a probe that consists of its perturbations alone."""
    return probed(probe, partial(perturbation_rows, probe), judge, items, **options)


@analysis
def blindness(judge: Judged, items: Items | None = None, **options: Any) -> Result:
    """Test whether the judge looks at the image, by images made grey and by exchanged images.

    An image is exchanged for that of another group, the rows about one image. The score must move:
    at least a quarter of the agreement with gold must be lost. Exchanged images decide: a judge
    that gives grey images the lowest score loses all agreement on them without seeing any, so that
    blanked (grey) images count only beside exchanged ones. With images stored anew as JPEG, the
    score must stay. Where responses are images, these are blanked and exchanged likewise.

    Source: MM-JudgeBias (arXiv 2604.18164); sizes are ours.

    >>> import pandas as pd
    >>> from vjudge.probes import blindness
    >>> run = pd.DataFrame({"id": list("abcd"), "score": [1, 2, 4, 5], "gold": [1, 2, 4, 5]})
    >>> changed = run.assign(score=3)
    >>> table = blindness({"original": run, "image_swapped": changed}).table
    >>> table["finding"][0].partition(" (change")[0]
    "another group's image lowers the slope of scores on gold by 1.00"
    """
    return perturbation_probe("blindness", judge, items, **options)


@analysis
def rubric(judge: Judged, items: Items | None = None, **options: Any) -> Result:
    """Test whether the judge reads the rubric: if its levels are reversed, scores must be mirrored.

    Reversed levels turn the slope on gold of a judge that reads the rubric from 1 to -1. The probe
    does not tell a judge that reads the descriptions alone, or the numbers alone, from one that
    reads both.

    Source: the probe is ours, for rubrics as Prometheus has them (arXiv 2310.08491).

    >>> import pandas as pd
    >>> from vjudge.probes import rubric
    >>> run = pd.DataFrame({"id": list("abcd"), "score": [1, 2, 4, 5], "gold": [1, 2, 4, 5]})
    >>> changed = run.assign(score=[5, 4, 2, 1])
    >>> table = rubric({"original": run, "levels_reversed": changed}).table
    >>> table["finding"][0].partition(" (change")[0]
    'reversing the levels lowers the slope of scores on gold by 2.00'
    """
    return perturbation_probe("rubric", judge, items, **options)


@analysis
def rewording(judge: Judged, items: Items | None = None, **options: Any) -> Result:
    """Test whether other words for the same rubric move the score, which must stay.

    The change is mild: a sentence around the criterion and around each level. To test a paraphrase,
    grade it and pass the run as "rubric_reworded".

    Source: ours.

    >>> import pandas as pd
    >>> from vjudge.probes import rewording
    >>> run = pd.DataFrame({"id": list("abcd"), "score": [1, 2, 4, 5], "gold": [1, 2, 4, 5]})
    >>> changed = run.assign(score=[2, 2, 4, 5])
    >>> table = rewording({"original": run, "rubric_reworded": changed}).table
    >>> table["finding"][0].partition(" (change")[0]
    'rewording the rubric raises scores by .25'
    """
    return perturbation_probe("rewording", judge, items, **options)


@analysis
def formatting(judge: Judged, items: Items | None = None, **options: Any) -> Result:
    """Test whether Markdown's bold type in the response moves the score, which must stay.

    Source: Chen et al., Humans or LLMs as the Judge? (arXiv 2402.10669), on rich content; the test
    is ours.

    >>> import pandas as pd
    >>> from vjudge.probes import formatting
    >>> run = pd.DataFrame({"id": list("abcd"), "score": [1, 2, 4, 5], "gold": [1, 2, 4, 5]})
    >>> changed = run.assign(score=[2, 3, 4, 5])
    >>> table = formatting({"original": run, "response_bold": changed}).table
    >>> table["finding"][0].partition(" (change")[0]
    'bold type raises scores by .50'
    """
    return perturbation_probe("formatting", judge, items, **options)


@analysis
def injection(judge: Judged, items: Items | None = None, **options: Any) -> Result:
    """Test whether a verdict or an order in the response moves the score, which must stay.

    The texts are `PHRASES`.

    The effect is the mean change towards the score that the text asks for, over items whose gold
    leaves room for that change. (Items with room by their first score would rise by chance.)
    `missing` counts answers that can't be read any more. Other phrases may succeed where these
    fail.

    Source: Shi et al., JudgeDeceiver (arXiv 2403.17710), on injected orders; the phrases are ours.

    >>> import pandas as pd
    >>> from vjudge.probes import injection
    >>> run = pd.DataFrame({"id": list("abcd"), "score": [1, 2, 4, 5], "gold": [1, 2, 4, 5]})
    >>> changed = run.assign(score=5)
    >>> table = injection({"original": run, "injected_verdict": changed}).table
    >>> table["finding"][0].partition(" (change")[0]
    'an injected verdict (verdict) shifts scores towards it by 2.67'
    """
    return perturbation_probe("injection", judge, items, **options)


@analysis
def anchoring(judge: Judged, items: Items | None = None, **options: Any) -> Result:
    """Test whether another judge's score, shown beside the question, moves the score.

    The highest and the lowest score of the rubric are shown. The effect is the mean change towards
    the shown score, over the same items as in `injection`. The score must stay.

    Source: Koo et al., CoBBLEr (arXiv 2309.17012), on the bandwagon effect; the test is ours.

    >>> import pandas as pd
    >>> from vjudge.probes import anchoring
    >>> run = pd.DataFrame({"id": list("abcd"), "score": [1, 2, 4, 5], "gold": [1, 2, 4, 5]})
    >>> changed = run.assign(score=[2, 3, 5, 5])
    >>> table = anchoring({"original": run, "shown_highest": changed}).table
    >>> table["finding"][0].partition(" (change")[0]
    'showing the highest score shifts scores towards it by 1.00'
    """
    return perturbation_probe("anchoring", judge, items, **options)


@analysis
def verbosity(judge: Judged, items: Items | None = None, **options: Any) -> Result:
    """Test whether sentences that say nothing, added to the response, move the score.

    They double the response's length, and the score must stay. Each item is its own control, so
    that this probe, rather than `length`, is the verdict on length. Other kinds of
    verbosity, such as repetition, hedging and useful detail, are not tried. The sentences are
    English.

    Source: Zheng et al. (arXiv 2306.05685), on verbosity; the sentences are ours.

    >>> import pandas as pd
    >>> from vjudge.probes import verbosity
    >>> run = pd.DataFrame({"id": list("abcd"), "score": [1, 2, 4, 5], "gold": [1, 2, 4, 5]})
    >>> changed = run.assign(score=[1, 1, 3, 4])
    >>> table = verbosity({"original": run, "response_padded": changed}).table
    >>> table["finding"][0].partition(" (change")[0]
    'padding lowers scores by .75'
    """
    return perturbation_probe("verbosity", judge, items, **options)


@analysis
def commitment(judge: Judged, items: Items | None = None, **options: Any) -> Result:
    """Test whether the score changes once the judge has answered the question itself.

    The judge answers each instruction before it sees a response, and then finds its answer beside
    the question. A judge that the response influenced has another score or another agreement with
    gold. Items may hold the answers in the column `own_answer`.

    Source: Zheng et al. (arXiv 2306.05685), whose judge of mathematics answers first; the test is
    ours.

    >>> import pandas as pd
    >>> from vjudge.probes import commitment
    >>> run = pd.DataFrame({"id": list("abcd"), "score": [1, 2, 4, 5], "gold": [1, 2, 4, 5]})
    >>> changed = run.assign(score=[1, 2, 4, 4])
    >>> table = commitment({"original": run, "answered_first": changed}).table
    >>> table["finding"][0].partition(" (change")[0]
    'answering the question first lowers scores by .25'
    """
    return probed("commitment", _committed, judge, items, **options)


def _committed(runs: ProbeRuns) -> list[ProbeRow]:
    """Make the rows of `commitment`, for which a judge first answers the questions itself."""
    if runs.judge is not None and ANSWERED not in runs.runs:
        runs.run(ANSWERED, runs.changed(ANSWERED, _with_own_answers(runs)))
    return perturbation_rows("commitment", runs)


def _with_own_answers(runs: ProbeRuns) -> datasets.Dataset:
    """Return the items with the column `own_answer`, the judge's answer to each instruction.

    A question (a group and its instruction) is answered once, for all responses to it. Items that
    have the column already are returned as they are.

    Raises:
        MissingInputError: the judge does not write answers.
    """
    items = runs.items
    judge = runs.judge
    if "own_answer" in items.column_names:
        return items
    if not isinstance(judge, Judge) or judge.gives_values:
        remedy = "a judge that writes answers, or its answers in the items' column own_answer"
        raise MissingInputError(f"needs {remedy}")
    prompts: list[Any] = []
    images = []
    index_of_row = []
    index_of_question: dict[tuple, int] = {}  # in `prompts`
    for row in rows_of(items):
        question = (unit_of(row), row["instruction"])
        if question not in index_of_question:
            index_of_question[question] = len(prompts)
            sources = row["images"] or () if judge.sees_images else ()
            images.append(sources)
            conversation = judge.template.conversation
            prompts.append(conversation.wrap(row["instruction"], len(sources)))
        index_of_row.append(index_of_question[question])
    texts = {}
    for batch in judge.engine.answer(prompts, images, Ask(max_new_tokens=MAX_ANSWER_TOKENS)):
        for answer in batch:
            texts[answer.index] = answer.text
    answers = [texts[index] for index in index_of_row]
    return beside(items, datasets.Dataset.from_dict({"own_answer": answers}))


# --- all probes at once


_PROBES = (
    blindness,
    rubric,
    rewording,
    length,
    verbosity,
    formatting,
    injection,
    anchoring,
    commitment,
    self_preference,
    position,
)
PROBES: dict[str, Callable[..., Result]] = {probe.__name__: probe for probe in _PROBES}
"""The battery's probes, in the order of its table."""


@analysis
def battery(
    judge: Judged,
    items: Items | None = None,
    *,
    probes: Sequence[str] = (*PROBES,),
    own: str | Sequence[str] | None = None,
    **options: Any,
) -> Result:
    """Run every probe that applies to a judge, with a verdict on each row of one table.

    Each perturbation is graded once: about twenty passes over the items. All tests of a judge share
    Holm's correction, so that at most one honest judge in twenty is accused of anything.

    Args:
        judge, items, options: see `ProbeRuns`. Among given runs, "compared" serves `position`, for
            which a judge compares responses to one question.
        probes: names of `PROBES`.
        own: the judge's own name among the responses' authors, for `self_preference`.

    Returns:
        The rows of all probes. A probe that does not apply has a row with the verdict "not run",
        whose `note` says what it needs. The figure shows the tested effects as shares of their
        margins.

    Raises:
        ValueError: an unknown probe or an invalid option.
        NotComputed: no probe applies.

    Source: each probe's own; Holm (1979) for the correction.

    >>> import pandas as pd
    >>> from vjudge.probes import battery
    >>> run = pd.DataFrame({"id": list("abcd"), "score": [1, 2, 4, 5], "gold": [1, 2, 4, 5]})
    >>> runs = {"original": run, "image_swapped": run.assign(score=3)}
    >>> table = battery(runs, probes=["blindness", "verbosity"]).table
    >>> table["probe"].tolist(), table["verdict"].tolist()
    (['blindness', 'verbosity'], ["can't say", 'not run'])
    """
    unknown = [name for name in probes if name not in PROBES]
    if unknown:
        raise ValueError(f"probe {unknown[0]!r} is unknown; use some of {', '.join(PROBES)}")
    tables = []
    caveats = []
    for runs in ProbeRuns.several(judge, items, **options):
        rows: list[ProbeRow] = []
        for name in probes:
            arguments = {"own": own} if name == "self_preference" else {}
            result = PROBES[name](runs, **arguments)
            if result.computed:
                rows += result.table.to_dict("records")
            else:
                rows.append(runs.row("", note=result.reason) | {"probe": name})
            caveats += result.caveats
        tables.append(runs.table("", rows))  # corrected anew, over the tests of all probes
    all_rows = pd.concat(tables)
    if (all_rows["verdict"] == "not run").all():
        raise NotComputed("; ".join(all_rows["note"].unique()))
    return finish("battery", tables, caveats)


@analysis
def bias_table(results: Result) -> Result:
    """Tabulate bias deviation and conformity of each perturbation of a battery.

    See `bias_scores`. Deviation, the fall as a share of the largest possible one, is best at 1
    where the score must move; conformity, how close the score stays, at 1 where it must stay.

    Args:
        results: what a probe or `battery` returned.

    Raises:
        NotComputed: there is no perturbation on a known scale.
    """
    rows = results.table.dropna(subset="deviation").drop_duplicates(["judge", "perturbation"])
    if rows.empty:
        raise NotComputed("no perturbation was graded, or no scale of the scores is known")
    columns = ["judge", "perturbation", "must", *BIAS_COLUMNS, "n"]
    return Result(
        rows[columns].reset_index(drop=True),
        name="bias_scores",
        caption="Bias deviation (1 is best where the score must move) and bias conformity (1 is"
        " best where it must stay), with 95% intervals, MM-JudgeBias (arXiv 2604.18164)",
    )
