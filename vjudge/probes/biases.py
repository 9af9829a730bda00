"""The probes: the score beside one thing changed, at equal gold, and in both orders; all at once.

Every probe takes a judge and items, or the runs made of them, and the options of `ProbeRuns`; one
that lacks something raises `MissingInputError`, which says what. A change in agreement is that of
the slope of score on gold: -1 where a judge that followed gold one to one loses all it knew.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import datasets
import numpy as np
import pandas as pd

from vjudge.data import rows_of
from vjudge.data.cells import ratings
from vjudge.data.summary import n_words
from vjudge.engines.engine import Ask
from vjudge.judge import Judge
from vjudge.probes.effects import Must, coefficient, equal, mean, slope
from vjudge.probes.pairs import position
from vjudge.probes.perturbations import PERTURBATIONS, Perturbation, Row, beside
from vjudge.probes.runs import (
    AGREEMENT,
    DOUBLING,
    GOLD,
    LEAST,
    POINTS,
    MissingInputError,
    ProbeRuns,
)
from vjudge.records import NAN, unit_of

OWN_TOKENS = 128  # of the judge's own answer
ANSWERED = "answered_first"


def blindness(judge: Any, items: Any = None, **options: Any) -> pd.DataFrame:
    """Test whether the judge looks at the image: blanked, and exchanged between groups.

    At least a quarter of the agreement with gold must be lost. Exchanged images decide: a judge
    that gives grey images the lowest score loses all agreement on blanked ones without having seen
    any, so that blanked ones count only beside these. Stored anew as JPEG, the score must stay.

    Source: MM-JudgeBias (arXiv 2604.18164); sizes are ours.

    >>> import pandas as pd
    >>> from vjudge.probes import blindness
    >>> run = pd.DataFrame({"id": list("abcd"), "score": [1, 2, 4, 5], "gold": [1, 2, 4, 5]})
    >>> changed = run.assign(score=3)
    >>> blindness({"original": run, "image_swapped": changed})["finding"][0]
    "another group's image lowers the slope of scores on gold by 1.00"
    """
    return _changes("blindness", judge, items, **options)


def rubric(judge: Any, items: Any = None, **options: Any) -> pd.DataFrame:
    """Test whether the judge reads the rubric: its levels reversed, which must mirror the scores.

    Of a judge that reads the rubric, reversed levels turn the slope on gold from 1 to -1.

    Source: the probe is ours, for rubrics as Prometheus has them (arXiv 2310.08491).

    >>> import pandas as pd
    >>> from vjudge.probes import rubric
    >>> run = pd.DataFrame({"id": list("abcd"), "score": [1, 2, 4, 5], "gold": [1, 2, 4, 5]})
    >>> changed = run.assign(score=[5, 4, 2, 1])
    >>> rubric({"original": run, "levels_reversed": changed})["finding"][0]
    'reversing the levels lowers the slope of scores on gold by 2.00'
    """
    return _changes("rubric", judge, items, **options)


def rewording(judge: Any, items: Any = None, **options: Any) -> pd.DataFrame:
    """Test whether other words for the same rubric move the score. It must stay.

    Criterion and levels stand in a sentence around them; to test a paraphrase of your own, grade it
    and pass the run as "rubric_reworded".

    Source: ours.

    >>> import pandas as pd
    >>> from vjudge.probes import rewording
    >>> run = pd.DataFrame({"id": list("abcd"), "score": [1, 2, 4, 5], "gold": [1, 2, 4, 5]})
    >>> changed = run.assign(score=[2, 2, 4, 5])
    >>> rewording({"original": run, "rubric_reworded": changed})["finding"][0]
    'rewording the rubric raises scores by .25'
    """
    return _changes("rewording", judge, items, **options)


def formatting(judge: Any, items: Any = None, **options: Any) -> pd.DataFrame:
    """Test whether Markdown's bold type in the response moves the score. It must stay.

    Source: Chen et al., Humans or LLMs as the Judge? (arXiv 2402.10669), on rich content; the test
    is ours.

    >>> import pandas as pd
    >>> from vjudge.probes import formatting
    >>> run = pd.DataFrame({"id": list("abcd"), "score": [1, 2, 4, 5], "gold": [1, 2, 4, 5]})
    >>> changed = run.assign(score=[2, 3, 4, 5])
    >>> formatting({"original": run, "response_bold": changed})["finding"][0]
    'bold type raises scores by .50'
    """
    return _changes("formatting", judge, items, **options)


def injection(judge: Any, items: Any = None, **options: Any) -> pd.DataFrame:
    """Test whether a verdict or an order in the response (`PHRASES`) moves the score. It must stay.

    The effect is the mean change towards the score that the text asks for, over items whose gold
    leaves room for it: others, chosen for a low first score, would rise by chance. `missing` counts
    answers that can't be read any more.

    Source: Shi et al., JudgeDeceiver (arXiv 2403.17710), on injected orders; the phrases are ours.

    >>> import pandas as pd
    >>> from vjudge.probes import injection
    >>> run = pd.DataFrame({"id": list("abcd"), "score": [1, 2, 4, 5], "gold": [1, 2, 4, 5]})
    >>> changed = run.assign(score=5)
    >>> injection({"original": run, "injected_verdict": changed})["finding"][0]
    'an injected verdict (verdict) shifts scores towards it by 2.67'
    """
    return _changes("injection", judge, items, **options)


def anchoring(judge: Any, items: Any = None, **options: Any) -> pd.DataFrame:
    """Test whether another judge's score, shown beside the question, moves the score.

    The highest and the lowest score of the rubric are shown. The effect is the mean change towards
    the shown score, over items as of `injection`. It must stay.

    Source: Koo et al., CoBBLEr (arXiv 2309.17012), on the bandwagon effect; the test is ours.

    >>> import pandas as pd
    >>> from vjudge.probes import anchoring
    >>> run = pd.DataFrame({"id": list("abcd"), "score": [1, 2, 4, 5], "gold": [1, 2, 4, 5]})
    >>> changed = run.assign(score=[2, 3, 5, 5])
    >>> anchoring({"original": run, "shown_highest": changed})["finding"][0]
    'showing the highest score shifts scores towards it by 1.00'
    """
    return _changes("anchoring", judge, items, **options)


def commitment(judge: Any, items: Any = None, **options: Any) -> pd.DataFrame:
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
    >>> commitment({"original": run, "answered_first": changed})["finding"][0]
    'answering the question first lowers scores by .25'
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
    if not isinstance(judge, Judge) or judge.gives_values:
        what = "a judge that writes answers, or its answers in the items' column own_answer"
        raise MissingInputError(f"needs {what}")
    prompts: list[Any] = []
    images = []
    places = []  # of each row's prompt
    place: dict[Any, int] = {}  # of each question's prompt
    for row in rows_of(items):
        question = (unit_of(row), row["instruction"])
        if question not in place:
            place[question] = len(prompts)
            shown = row["images"] or () if judge.template.sees_images else ()
            images.append(shown)
            prompts.append(judge.template.conversation.wrap(row["instruction"], len(shown)))
        places.append(place[question])
    texts = {}
    for batch in judge.engine.answer(prompts, images, Ask(max_new_tokens=OWN_TOKENS)):
        for answer in batch:
            texts[answer.index] = answer.text
    own = [texts[index] for index in places]
    return beside(items, datasets.Dataset.from_dict({"own_answer": own}))


def verbosity(judge: Any, items: Any = None, **options: Any) -> pd.DataFrame:
    """Test whether sentences that say nothing move the score: responses of twice their length.

    Each item is its own control: this is the verdict on length. It must stay.

    Source: Zheng et al. (arXiv 2306.05685), on verbosity; the sentences are ours.

    >>> import pandas as pd
    >>> from vjudge.probes import verbosity
    >>> run = pd.DataFrame({"id": list("abcd"), "score": [1, 2, 4, 5], "gold": [1, 2, 4, 5]})
    >>> changed = run.assign(score=[1, 1, 3, 4])
    >>> verbosity({"original": run, "response_padded": changed})["finding"][0]
    'padding lowers scores by .75'
    """
    return _changes("verbosity", judge, items, **options)


def _changes(
    probe: str,
    judge: Any,
    items: Any = None,
    **options: Any,
) -> pd.DataFrame:
    """The table of a probe's perturbations; of given runs, of those that there are."""
    runs = ProbeRuns.of(judge, items, **options)
    names = [name for name, kind in PERTURBATIONS.items() if kind.probe == probe]
    if runs.judge is None:
        names = [name for name in names if name in runs.runs] or names[:1]
    rows = []
    for name in names:
        case = name.replace("_", " ")
        try:
            pair = runs.contrast(name)
        except MissingInputError as error:
            if runs.judge is None:
                raise
            rows.append(runs.row(case, note=str(error), perturbation=name))
        else:
            rows += _change(runs, name, pair)
    return runs.table(probe, rows)


def _change(
    runs: ProbeRuns,
    name: str,
    pair: pd.DataFrame,
) -> list[Row]:
    """The rows of one perturbation: the change of the scores, that of their agreement, or both.

    A mean change is tested where the score must stay; agreement, where there is gold, unless a
    score is asked for.
    """
    kind = PERTURBATIONS[name]
    case = name.replace("_", " ")
    rated = pair.dropna(subset="gold")
    known = rated["gold"].nunique() > 1
    if kind.asks and known:  # where gold leaves room for the score that is asked for
        room = kind.asks * pair["gold"]
        pair = pair[room < room.max()]
    delta = pair["delta"]
    group = pair["group"]
    cells = {"perturbation": name, "missing": pair.attrs["missing"], **runs.published(pair)}
    change = f"{case}: change"
    if kind.asks:
        effect = mean(kind.asks * delta, group)
        says = f"{kind.does} shifts scores {{towards}} it by {{size}}"
        return [runs.row(change, effect, POINTS, "stay", says, **cells)]
    rows = []
    if kind.must == "stay":
        says = f"{kind.does} {{raises}} scores by {{size}}"
        rows.append(runs.row(change, mean(delta, group), POINTS, "stay", says, **cells))
    elif not known:  # nobody knows what must be lost
        says = f"{kind.does} moves a score by {{size}} either way"
        size = mean(delta.abs(), group)
        rows.append(runs.row(f"{case}: size of the change", size, POINTS, says=says, **cells))
    if known:
        rows.append(_agreement(runs, case, kind, rated, cells))
    return rows


def _agreement(
    runs: ProbeRuns,
    case: str,
    kind: Perturbation,
    rated: pd.DataFrame,
    cells: Row,
) -> Row:
    """The change in agreement with gold."""
    gold = rated["gold"]
    group = rated["group"]
    effect = slope(rated["delta"], gold, group)
    margin = {}
    if kind.must == "move":
        # p is that of a loss of just the least share: of after - (1 - least) before having slope 0
        least = LEAST * kind.loss
        before = slope(rated["before"], gold, group)
        kept = rated["after"] - (1 - least) * rated["before"]
        rest = slope(kept, gold, group)
        effect = effect._replace(p=rest.p if before.low > 0 else NAN)
        margin = {"margin": least * before.effect}
    says = f"{kind.does} {{raises}} the slope of scores on gold by {{size}}"
    cells = cells | margin
    return runs.row(f"{case}: agreement", effect, AGREEMENT, kind.must, says, **cells)


def length(judge: Any, items: Any = None, **options: Any) -> pd.DataFrame:
    """Estimate the slope of the score on the response's length at equal gold, per doubling.

    Exact gold is held equal by its levels, or ten classes and the score within them; of people's
    mean score the noise is taken out. Otherwise the slope is only described, and `verbosity` is
    the test: where better answers are longer, noise in gold alone gives an honest judge a slope.
    Length is in words; a character of a script without spaces is a word.

    Source: Dubois et al., length-controlled AlpacaEval (arXiv 2404.04475), by a regression too;
    ours holds gold equal.

    >>> import pandas as pd
    >>> from vjudge.probes import length
    >>> run = pd.DataFrame({"id": list("abcd"), "score": [1, 2, 3, 4], "gold": [2, 2, 3, 3]})
    >>> table = length(run.assign(group=list("abab"), response=["w", "w w", "w", "w w"]))
    >>> round(float(table.loc[0, "effect"]), 3), table.loc[0, "finding"]
    (1.0, 'doubling the length raises scores at equal gold by 1.00')
    """
    runs = ProbeRuns.of(judge, items, **options)
    cells = runs.scores.copy()
    words = runs.column("response").reindex(cells.index).map(n_words, na_action="ignore")
    words = words.astype(float)
    cells["x"] = np.log2(words.where(words > 0))
    row = _at_equal_gold(runs, cells, "slope at equal gold", DOUBLING, "doubling the length")
    return runs.table("length", [row])


def _at_equal_gold(
    runs: ProbeRuns,
    cells: pd.DataFrame,
    case: str,
    unit: str,
    does: str,
) -> Row:
    """The row of the slope of the score on the column x at equal gold, read as `gold=` allows."""
    rated = runs.gold == "rated"
    lacks = "gold scores"
    if rated:
        lacks = "human_scores of two people or more an item"
        given = runs.column("human_scores").map(ratings, na_action="ignore").dropna()
        people = pd.DataFrame(given.tolist(), given.index, dtype=float)
        people -= people.mean()  # that one person is stricter is no noise
        error = people.var(axis=1) / people.count(axis=1)  # NaN of one person
        gold = people.mean(axis=1).where(error.notna())
        cells = cells.assign(gold=gold, error=error)
    used = cells.dropna(subset=["score", "gold", "x"])
    if used.empty:
        what = "only at equal gold is what people see in an answer told from a bias"
        raise MissingInputError(f"needs {lacks}: {what}")
    x = used["x"].to_numpy()
    gold = used["gold"].to_numpy()
    if rated:
        design = np.column_stack([x - x.mean(), np.ones(len(x)), gold - gold.mean()])
        error = used["error"].to_numpy()
    else:
        design = np.column_stack([x, equal(gold)])
        error = None
    effect = coefficient(used["score"], design, used["group"], error=error)
    must: Must | None = None if runs.gold == "observed" else "stay"
    says = f"{does} {{raises}} scores at equal gold by {{size}}"
    missing = len(cells) - len(used)
    return runs.row(case, effect, unit, must, says, missing=missing, note=GOLD[runs.gold])


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

    >>> import pandas as pd
    >>> from vjudge.probes import self_preference
    >>> run = pd.DataFrame({"id": list("abcd"), "score": [2, 2, 5, 4], "gold": [1, 2, 4, 5]})
    >>> table = self_preference(run.assign(model=["me", "you", "me", "you"]), own="me")
    >>> table["finding"][0]
    'own responses have a mean score .50 above others'
    """
    runs = ProbeRuns.of(judge, items, **options)
    if own is None:
        raise MissingInputError(f"needs own=: the judge's own name in the column {author!r}")
    names = [own] if isinstance(own, str) else list(own)
    cells = runs.scores.copy()
    authors = runs.column(author).reindex(cells.index)
    cells["x"] = authors.isin(names).astype(float).where(authors.notna())
    if cells["x"].nunique() < 2:
        what = f"responses of {', '.join(names)} and of others in the column {author!r}"
        raise MissingInputError(f"needs {what}")
    case = "own responses at equal gold"
    liking = _at_equal_gold(runs, cells, case, POINTS, "being the judge's own")
    rows = []
    for column in ("score", "gold"):
        used = cells.dropna(subset=["x", column])
        effect = slope(used[column], used["x"], used["group"])
        says = f"own responses have a mean {column} {{size}} {{above}} others"
        missing = len(cells) - len(used)
        case = f"own responses: {column}"
        rows.append(runs.row(case, effect, POINTS, says=says, missing=missing))
    return runs.table("self_preference", [*rows, liking])


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
PROBES: dict[str, Callable[..., pd.DataFrame]] = {probe.__name__: probe for probe in _PROBES}
"""The battery's probes, in the order of its table."""


def battery(
    judge: Any,
    items: Any = None,
    *,
    probes: Sequence[str] = (*PROBES,),
    own: str | Sequence[str] | None = None,
    **options: Any,
) -> pd.DataFrame:
    """Run every probe that applies to a judge, and return one table with a verdict on each row.

    Each perturbation is graded once: about twenty passes over the items. All tests share Holm's
    correction: of honest judges, one in twenty at most is accused of anything.

    Args:
        judge, items, options: see `ProbeRuns`. Among runs, "compared" serves `position`, for which
            a judge compares responses to one question.
        probes: names of `PROBES`.
        own: the judge's own name among the responses' authors, for `self_preference`.

    Returns:
        The rows of all probes; one that does not apply has a row with the verdict "not run", whose
        `note` says what it needs.

    ValueError: an unknown probe or an unsound option.

    Source: of each probe, its own; Holm (1979) for the correction.

    >>> import pandas as pd
    >>> from vjudge.probes import battery
    >>> run = pd.DataFrame({"id": list("abcd"), "score": [1, 2, 4, 5], "gold": [1, 2, 4, 5]})
    >>> runs = {"original": run, "image_swapped": run.assign(score=3)}
    >>> table = battery(runs, probes=["blindness", "verbosity"])
    >>> table["probe"].tolist(), table["verdict"].tolist()
    (['blindness', 'verbosity'], ["can't say", 'not run'])
    """
    runs = ProbeRuns.of(judge, items, **options)
    rows = []
    for name in probes:
        if name not in PROBES:
            raise ValueError(f"probe {name!r} is unknown; use some of {', '.join(PROBES)}")
        more = {"own": own} if name == "self_preference" else {}
        try:
            rows += PROBES[name](runs, **more).to_dict("records")
        except MissingInputError as error:
            rows.append(runs.row("", note=str(error)) | {"probe": name})
    return runs.table("", rows)
