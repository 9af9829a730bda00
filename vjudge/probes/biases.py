"""The probes: the score beside one thing changed, at equal gold, and in both orders; all at once.

Every probe takes a judge and items, or the runs made of them, or several judges by name, and the
options of `ProbeRuns`. It returns a `Result`; of a probe that lacks something this says what. A
change in agreement is that of the slope of score on gold: -1 where a judge that followed gold one
to one loses all it knew.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import datasets
import numpy as np
import pandas as pd

from vjudge.data import rows_of
from vjudge.data.schema import Items
from vjudge.data.summary import n_words
from vjudge.engines.engine import Ask
from vjudge.judging.judge import Judge
from vjudge.plots.scores import length_scatter
from vjudge.probes.effects import mean, slope
from vjudge.probes.finish import Drawing, at_equal_gold, finish, probed
from vjudge.probes.pairs import position
from vjudge.probes.perturbations import PERTURBATIONS, beside
from vjudge.probes.runs import (
    AGREEMENT,
    DOUBLING,
    MIN_LOSS,
    PUBLISHED,
    SCORE_POINTS,
    Judged,
    MissingInputError,
    ProbeRow,
    ProbeRuns,
)
from vjudge.probes.systems import self_preference
from vjudge.records import NAN, unit_of
from vjudge.results import NotComputed, Result, analysis

OWN_TOKENS = 128  # of the judge's own answer
ANSWERED = "answered_first"


@analysis
def blindness(judge: Judged, items: Items | None = None, **options: Any) -> Result:
    """Test whether the judge looks at the image: blanked, and exchanged between groups.

    At least a quarter of the agreement with gold must be lost. Exchanged images decide: a judge
    that gives grey images the lowest score loses all agreement on blanked ones without having seen
    any, so that blanked ones count only beside these. Stored anew as JPEG, the score must stay.
    Where responses are pictures, these are blanked and exchanged likewise.

    Source: MM-JudgeBias (arXiv 2604.18164); sizes are ours.

    >>> import pandas as pd
    >>> from vjudge.probes import blindness
    >>> run = pd.DataFrame({"id": list("abcd"), "score": [1, 2, 4, 5], "gold": [1, 2, 4, 5]})
    >>> changed = run.assign(score=3)
    >>> table = blindness({"original": run, "image_swapped": changed}).table
    >>> table["finding"][0].partition(" (change")[0]
    "another group's image lowers the slope of scores on gold by 1.00"
    """
    return _perturbed("blindness", judge, items, **options)


@analysis
def rubric(judge: Judged, items: Items | None = None, **options: Any) -> Result:
    """Test whether the judge reads the rubric: its levels reversed, which must mirror the scores.

    Of a judge that reads the rubric, reversed levels turn the slope on gold from 1 to -1. A judge
    that reads the descriptions alone, or the numbers alone, is not told from one that reads both.

    Source: the probe is ours, for rubrics as Prometheus has them (arXiv 2310.08491).

    >>> import pandas as pd
    >>> from vjudge.probes import rubric
    >>> run = pd.DataFrame({"id": list("abcd"), "score": [1, 2, 4, 5], "gold": [1, 2, 4, 5]})
    >>> changed = run.assign(score=[5, 4, 2, 1])
    >>> table = rubric({"original": run, "levels_reversed": changed}).table
    >>> table["finding"][0].partition(" (change")[0]
    'reversing the levels lowers the slope of scores on gold by 2.00'
    """
    return _perturbed("rubric", judge, items, **options)


@analysis
def rewording(judge: Judged, items: Items | None = None, **options: Any) -> Result:
    """Test whether other words for the same rubric move the score. It must stay.

    Criterion and levels stand in a sentence around them, a mild change; to test a paraphrase, grade
    it and pass the run as "rubric_reworded".

    Source: ours.

    >>> import pandas as pd
    >>> from vjudge.probes import rewording
    >>> run = pd.DataFrame({"id": list("abcd"), "score": [1, 2, 4, 5], "gold": [1, 2, 4, 5]})
    >>> changed = run.assign(score=[2, 2, 4, 5])
    >>> table = rewording({"original": run, "rubric_reworded": changed}).table
    >>> table["finding"][0].partition(" (change")[0]
    'rewording the rubric raises scores by .25'
    """
    return _perturbed("rewording", judge, items, **options)


@analysis
def formatting(judge: Judged, items: Items | None = None, **options: Any) -> Result:
    """Test whether Markdown's bold type in the response moves the score. It must stay.

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
    return _perturbed("formatting", judge, items, **options)


@analysis
def injection(judge: Judged, items: Items | None = None, **options: Any) -> Result:
    """Test whether a verdict or an order in the response (`PHRASES`) moves the score. It must stay.

    The effect is the mean change towards the score that the text asks for, over items whose gold
    leaves room for it: others, chosen for a low first score, would rise by chance. `missing` counts
    answers that can't be read any more. That these phrases fail does not say that others would.

    Source: Shi et al., JudgeDeceiver (arXiv 2403.17710), on injected orders; the phrases are ours.

    >>> import pandas as pd
    >>> from vjudge.probes import injection
    >>> run = pd.DataFrame({"id": list("abcd"), "score": [1, 2, 4, 5], "gold": [1, 2, 4, 5]})
    >>> changed = run.assign(score=5)
    >>> table = injection({"original": run, "injected_verdict": changed}).table
    >>> table["finding"][0].partition(" (change")[0]
    'an injected verdict (verdict) shifts scores towards it by 2.67'
    """
    return _perturbed("injection", judge, items, **options)


@analysis
def anchoring(judge: Judged, items: Items | None = None, **options: Any) -> Result:
    """Test whether another judge's score, shown beside the question, moves the score.

    The highest and the lowest score of the rubric are shown. The effect is the mean change towards
    the shown score, over items as of `injection`. It must stay.

    Source: Koo et al., CoBBLEr (arXiv 2309.17012), on the bandwagon effect; the test is ours.

    >>> import pandas as pd
    >>> from vjudge.probes import anchoring
    >>> run = pd.DataFrame({"id": list("abcd"), "score": [1, 2, 4, 5], "gold": [1, 2, 4, 5]})
    >>> changed = run.assign(score=[2, 3, 5, 5])
    >>> table = anchoring({"original": run, "shown_highest": changed}).table
    >>> table["finding"][0].partition(" (change")[0]
    'showing the highest score shifts scores towards it by 1.00'
    """
    return _perturbed("anchoring", judge, items, **options)


@analysis
def commitment(judge: Judged, items: Items | None = None, **options: Any) -> Result:
    """Test whether the score changes once the judge has answered the question itself.

    The judge answers each instruction before it sees a response, and is then shown its answer
    beside the question. A judge that was influenced by the response has another score or another
    agreement with gold. Items may hold the answers in the column `own_answer`.

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
    """The rows of `commitment`, after the judge has answered."""
    if runs.judge is not None and ANSWERED not in runs.runs:
        runs.run(ANSWERED, runs.changed(ANSWERED, _with_own_answers(runs)))
    return _changes("commitment", runs)


def _with_own_answers(runs: ProbeRuns) -> datasets.Dataset:
    """The items with the judge's own answer to each instruction, one for responses to it."""
    items = runs.items
    judge = runs.judge
    if "own_answer" in items.column_names:
        return items
    if not isinstance(judge, Judge) or judge.gives_values:
        remedy = "a judge that writes answers, or its answers in the items' column own_answer"
        raise MissingInputError(f"needs {remedy}")
    prompts: list[Any] = []
    images = []
    prompt_of_row = []
    prompt_of: dict[Any, int] = {}  # question -> its prompt
    for row in rows_of(items):
        question = (unit_of(row), row["instruction"])
        if question not in prompt_of:
            prompt_of[question] = len(prompts)
            pictures = row["images"] or () if judge.sees_images else ()
            images.append(pictures)
            conversation = judge.template.conversation
            prompts.append(conversation.wrap(row["instruction"], len(pictures)))
        prompt_of_row.append(prompt_of[question])
    texts = {}
    for batch in judge.engine.answer(prompts, images, Ask(max_new_tokens=OWN_TOKENS)):
        for answer in batch:
            texts[answer.index] = answer.text
    answers = [texts[index] for index in prompt_of_row]
    return beside(items, datasets.Dataset.from_dict({"own_answer": answers}))


@analysis
def verbosity(judge: Judged, items: Items | None = None, **options: Any) -> Result:
    """Test whether sentences that say nothing move the score: responses of twice their length.

    Each item is its own control: this is the verdict on length. It must stay. One kind of verbosity
    is tried: repetition, hedging and useful detail are others. The sentences are English.

    Source: Zheng et al. (arXiv 2306.05685), on verbosity; the sentences are ours.

    >>> import pandas as pd
    >>> from vjudge.probes import verbosity
    >>> run = pd.DataFrame({"id": list("abcd"), "score": [1, 2, 4, 5], "gold": [1, 2, 4, 5]})
    >>> changed = run.assign(score=[1, 1, 3, 4])
    >>> table = verbosity({"original": run, "response_padded": changed}).table
    >>> table["finding"][0].partition(" (change")[0]
    'padding lowers scores by .75'
    """
    return _perturbed("verbosity", judge, items, **options)


def _perturbed(probe: str, judge: Judged, items: Items, **options: Any) -> Result:
    return probed(probe, partial(_changes, probe), judge, items, **options)


def _changes(probe: str, runs: ProbeRuns) -> list[ProbeRow]:
    """The rows of a probe's perturbations; of given runs, of those that there are."""
    names = [name for name, kind in PERTURBATIONS.items() if kind.probe == probe]
    if runs.judge is None:
        names = [name for name in names if name in runs.runs] or names[:1]
    elif "response_images" not in runs.items.column_names:
        names = [name for name in names if not PERTURBATIONS[name].responses]
    rows = []
    reasons = []
    for name in names:
        try:
            rows += _change(runs, name)
        except MissingInputError as error:
            reasons.append(error)
            case = name.replace("_", " ")
            rows.append(runs.row(case, note=str(error), perturbation=name))
    if len(reasons) == len(names):
        raise reasons[0]
    return rows


def _change(runs: ProbeRuns, name: str) -> list[ProbeRow]:
    """The rows of one perturbation: the change of the scores, that of their agreement, or both.

    A mean change is tested where the score must stay; agreement, where there is gold, unless a
    score is asked for.
    """
    kind = PERTURBATIONS[name]
    case = name.replace("_", " ")
    pair, missing = runs.contrast(name)
    rated = pair.dropna(subset="gold")
    has_gold = rated["gold"].nunique() > 1
    if kind.asks and has_gold:  # where gold leaves room for the score that is asked for
        room = kind.asks * pair["gold"]
        pair = pair[room < room.max()]
    cells: ProbeRow = {"perturbation": name, "missing": missing, **runs.published(pair)}
    delta = pair["delta"]
    group = pair["group"]
    step = runs.ruler.step
    if kind.asks:
        effect = mean(kind.asks * delta, group, step=step)
        does = f"{kind.does} shifts scores {{towards}} it by {{size}}"
        return [runs.row(f"{case}: change", effect, SCORE_POINTS, "stay", does, **cells)]
    rows = []
    if kind.must == "stay":
        effect = mean(delta, group, step=step)
        does = f"{kind.does} {{raises}} scores by {{size}}"
        rows.append(runs.row(f"{case}: change", effect, SCORE_POINTS, "stay", does, **cells))
    elif not has_gold:  # nobody knows what must be lost
        effect = mean(delta.abs(), group, step=step)
        does = f"{kind.does} moves a score by {{size}} either way"
        note = "without gold nobody knows what must be lost"
        size = f"{case}: size of the change"
        rows.append(runs.row(size, effect, SCORE_POINTS, does=does, note=note, **cells))
    if has_gold:
        rows.append(_agreement(runs, name, rated, cells))
    return rows


def _agreement(runs: ProbeRuns, name: str, rated: pd.DataFrame, cells: ProbeRow) -> ProbeRow:
    """The change in agreement with gold."""
    kind = PERTURBATIONS[name]
    gold = rated["gold"]
    group = rated["group"]
    step = runs.ruler.step
    effect = slope(rated["delta"], gold, group, step=step)
    if kind.must == "move":
        # p is that of a loss of just the least share: of after - (1 - least) before having slope 0
        required_loss = MIN_LOSS * kind.loss
        before = slope(rated["before"], gold, group, step=step)
        remaining = rated["after"] - (1 - required_loss) * rated["before"]
        slope_left = slope(remaining, gold, group, step=step)
        effect = effect._replace(p=slope_left.p if before.low > 0 else NAN)
        of = f"{required_loss:.0%} of its slope on gold"
        cells = {**cells, "margin": required_loss * before.effect, "margin_of": of}
    does = f"{kind.does} {{raises}} the slope of scores on gold by {{size}}"
    case = f"{name.replace('_', ' ')}: agreement"
    return runs.row(case, effect, AGREEMENT, kind.must, does, gold=gold, **cells)


@analysis
def length(judge: Judged, items: Items | None = None, **options: Any) -> Result:
    """Estimate the slope of the score on the response's length at equal gold, per doubling.

    Exact gold is held equal by its levels, or ten classes and the score within them; of people's
    mean score the noise is taken out. Otherwise the slope is only described, and `verbosity` is
    the test: where better answers are longer, noise in gold alone gives an honest judge a slope.
    Length is in words; a character of a script without spaces is a word.

    The figure shows each score less the mean score at the same gold, a panel a judge.

    Source: Dubois et al., length-controlled AlpacaEval (arXiv 2404.04475), by a regression too;
    ours holds gold equal.

    >>> import pandas as pd
    >>> from vjudge.probes import length
    >>> run = pd.DataFrame({"id": list("abcd"), "score": [1, 2, 3, 4], "gold": [2, 2, 3, 3]})
    >>> table = length(run.assign(group=list("abab"), response=["w", "w w", "w", "w w"])).table
    >>> round(float(table.loc[0, "effect"]), 3), table.loc[0, "finding"].partition(" (")[0]
    (1.0, 'doubling the length raises scores at equal gold by 1.00')
    """
    drawn: list[pd.DataFrame] = []  # each judge's scores with their texts
    truths: set[str] = set()

    def figure(table: pd.DataFrame) -> Drawing | None:
        if not drawn:
            return None
        verdicts = pd.concat(drawn).rename_axis("id").reset_index()
        lines = table.dropna(subset="effect")
        truth_name = " or ".join(sorted(truths))
        return partial(length_scatter, verdicts, lines, truth_name=truth_name), verdicts

    def rows_of_length(runs: ProbeRuns) -> list[ProbeRow]:
        cells = runs.scores.copy()
        cells["response"] = runs.column("response").reindex(cells.index)
        n_words_of = cells["response"].map(n_words, na_action="ignore").astype(float)
        if n_words_of.isna().all():
            raise MissingInputError("needs responses of words: these are pictures")
        cells["x"] = np.log2(n_words_of.where(n_words_of > 0))
        row = at_equal_gold(runs, cells, "slope at equal gold", DOUBLING, "doubling the length")
        if not np.isnan(row["effect"]):
            truths.add(runs.truth_name)
            drawn.append(cells.drop(columns="x").assign(judge=runs.name))
        return [row]

    return probed("length", rows_of_length, judge, items, figure=figure, **options)


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
    Holm's correction: of honest judges, one in twenty at most is accused of anything.

    Args:
        judge, items, options: see `ProbeRuns`. Among runs, "compared" serves `position`, for which
            a judge compares responses to one question.
        probes: names of `PROBES`.
        own: the judge's own name among the responses' authors, for `self_preference`.

    Returns:
        The rows of all probes; one that does not apply has a row with the verdict "not run", whose
        `note` says what it needs. The figure shows the tested effects as shares of their margins.

    ValueError: an unknown probe or an unsound option.

    Source: of each probe, its own; Holm (1979) for the correction.

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
            further = {"own": own} if name == "self_preference" else {}
            result = PROBES[name](runs, **further)
            if result.computed:
                rows += result.table.to_dict("records")
            else:
                rows.append(runs.row("", note=result.reason) | {"probe": name})
            caveats += result.caveats
        tables.append(runs.table("", rows))
    everything = pd.concat(tables)
    if (everything["verdict"] == "not run").all():
        raise NotComputed("; ".join(everything["note"].unique()))
    return finish("battery", tables, caveats)


@analysis
def bias_table(results: Result) -> Result:
    """Bias deviation and conformity of each perturbation of a battery, see `bias_scores`.

    Deviation, the fall as a share of the largest possible one, is best at 1 where the score must
    move; conformity, how close it stays, at 1 where it must stay.

    Args:
        results: what a probe or `battery` returned.

    NotComputed: there is no perturbation on a known scale.
    """
    rows = results.table.dropna(subset="deviation").drop_duplicates(["judge", "perturbation"])
    if rows.empty:
        raise NotComputed("no perturbation was graded, or no scale of the scores is known")
    columns = ["judge", "perturbation", "must", *PUBLISHED, "n"]
    return Result(
        rows[columns].reset_index(drop=True),
        name="bias_scores",
        caption="Bias deviation (1 is best where the score must move) and bias conformity (1 is"
        " best where it must stay), with 95% intervals, MM-JudgeBias (arXiv 2604.18164)",
    )
