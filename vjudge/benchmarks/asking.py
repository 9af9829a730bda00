"""Ask a judge by a protocol, and list every way in which that differs from the published one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from vjudge.benchmarks.measures import TIES
from vjudge.benchmarks.protocols import Deviation, Protocol, Reader
from vjudge.benchmarks.rows import with_rubric
from vjudge.data import rows_of
from vjudge.data.schema import PICTURE_COLUMNS, Items, Row
from vjudge.judging.asking import Options
from vjudge.judging.candidates import LEFT_OUT
from vjudge.judging.comparing import SWAPPED, sign
from vjudge.judging.counts import WORK
from vjudge.judging.judge import Judge, JudgeLike
from vjudge.prompts import Template, families
from vjudge.records import RESPONSE_IMAGES, from_csv

IMMATERIAL = ("batch_size", "seed")  # options that no protocol decides
# options of drawing an answer; mode="score" draws none
DRAWING = ("samples", "temperature", "top_p", "repetition_penalty")


def asked(
    judge: Judge,
    protocol: Protocol,
    rows: Sequence[Row],
    name: str,
    *,
    out: str | Path | None,
    progress: bool,
    template: str | Template | None = None,
    **chosen: Any,
) -> tuple[pd.DataFrame, Template, list[Deviation]]:
    """Run a judge by a protocol on rows that share one prompt template.

    Args:
        judge, protocol, rows: who is asked, how, and about what.
        name: the benchmark, for error messages.
        out, progress: as in `Judge.grade`.
        template: a prompt template in place of the protocol's.
        chosen: options of the call in place of the protocol's.

    Returns:
        The run, the prompt template, and how both differ from the published ones.

    Raises:
        ValueError: responses are images, which the judge or the template does not show.
    """
    # 1) the prompt template, and whether it shows what is judged
    asked_judge, asked_template, deviations = _with_template(judge, protocol, template)
    has_images = any(row.get(column) for row in rows for column in RESPONSE_IMAGES.values())
    if has_images and not (judge.template.sees_images and asked_template.sees_images):
        refusal = f"responses of {name} are pictures, and template {asked_template.name!r} of"
        raise ValueError(f"{refusal} judge {judge.name!r} shows none: give one that sees pictures")

    # 2) options and rows; where the protocol compares or ranks, but the template shows a single
    #    response, each response is graded by itself
    singly = protocol.call != "grade" and not asked_template.compares
    published = _published_options(judge, protocol, singly=singly)
    deviations += _option_deviations(published, chosen)
    if chosen.get("mode") == "score":  # draws nothing
        published = {key: value for key, value in published.items() if key not in DRAWING}
    options = published | chosen | {"out": out, "progress": progress}
    rows, n_filled = with_rubric(rows, asked_template)
    if n_filled:
        text = f"{n_filled} of {len(rows)} rows have no criteria: they get general ones"
        deviations.append(Deviation("rows", text))

    # 3) the run
    if singly and protocol.call == "compare" and not judge.gives_values:
        run = _by_scores(asked_judge, rows, **options)
    elif protocol.quality and asked_template.name == protocol.template:
        run = viescore(asked_judge, rows, quality=protocol.quality, **options)
    else:
        run = getattr(asked_judge, protocol.call)(rows, **options)
    # the benchmark's own reader is for answers to its own template alone
    if asked_template.name == protocol.template and options.get("mode") != "score":
        run = _read_as_published(run, protocol)
    return run, asked_template, deviations


def family_name(judge: JudgeLike) -> str:
    """Return the name of a judge's family, "" where it has none."""
    return getattr(getattr(judge, "family", None), "name", "")


def _with_template(
    judge: Judge, protocol: Protocol, chosen: str | Template | None
) -> tuple[Judge, Template, list[Deviation]]:
    """Give a judge the chosen prompt template, else the protocol's, else its own.

    A judge with a value head is asked by no prompt template: it is returned as it is.

    Returns:
        The judge with that template, the template, and how it differs from the published one.
    """
    default = judge.template
    if protocol.call != "grade" and judge.pairs is not None:
        default = judge.pairs
    # `protocol.own` lists the families whose own template is the published one
    unofficial = "" if family_name(judge) in protocol.own else protocol.unofficial
    requested = chosen or protocol.template
    if judge.gives_values:
        text = "a value head is asked in no wording: each response gets a number"
        return judge, default, _wording_deviations(unofficial, text)
    if requested is None:
        reason = (
            f"asked in the judge's wording {default.name!r}: {unofficial}" if unofficial else ""
        )
        singly = ""
        if protocol.call != "grade" and judge.pairs is None:
            singly = "each response is graded by itself: the judge has no wording for two"
        return judge, default, _wording_deviations(reason, singly)

    template = families.wording(requested)
    difference = ""
    if template.name != protocol.template:
        published = protocol.template or "none that vjudge has"
        difference = f"the wording is {template.name!r}, published is {published!r}"
    # a `Template` of the published name may have another text
    elif template.fingerprint() != families.wording(protocol.template).fingerprint():
        difference = f"the wording is another than the published {template.name!r}"
    deviations = _wording_deviations(unofficial, difference)
    if template.sees_images and not judge.template.sees_images:
        deviations.append(Deviation("images", "the judge sees no images"))
    return judge.reworded(template), template, deviations


def _wording_deviations(*texts: str) -> list[Deviation]:
    """Make a deviation in the prompt template of each text that is not blank."""
    return [Deviation("wording", text) for text in texts if text]


def _published_options(judge: Judge, protocol: Protocol, *, singly: bool) -> dict[str, Any]:
    """Return the published options of the call, without those that the judge does not take.

    Args:
        judge, protocol: as in `asked`; a family that the protocol lists in `own` brings its own.
        singly: whether each response is graded by itself where the protocol compares or ranks.
    """
    options = dict(protocol.options)
    if judge.family and judge.family.name in protocol.own:
        options = dict(judge.family.published)
    if judge.gives_values:  # it neither draws nor compares
        options = {}
    if singly:
        options.pop("orders", None)
        if protocol.call == "rank":
            options["by"] = "scores"
    return options


def _option_deviations(published: Mapping[str, Any], chosen: Mapping[str, Any]) -> list[Deviation]:
    """List the chosen options that differ from the published ones and can change a verdict.

    An option that the protocol does not state has the default of `Judge.grade`.
    """
    defaults = {**asdict(Options()), "unread": "missing", **published}
    deviations = []
    for option, value in chosen.items():
        expected = defaults.get(option)
        if value != expected and option not in IMMATERIAL:
            text = f"{option} is {value!r}, published is {expected!r}"
            deviations.append(Deviation("option", text))
    return deviations


def _by_scores(judge: Judge, pairs: Sequence[Row], **options: Any) -> pd.DataFrame:
    """Compare two responses by the difference of the scores that each gets by itself.

    Args:
        judge: one that grades single responses.
        pairs: rows with `response_a` and `response_b`.
        options: of `Judge.grade`; of several samples the mean score counts.

    Returns:
        One row per pair, with verdict, failure (the first one of its two responses), closed and
        sees_image. The verdict is missing where a score is.

    Source: Prometheus (arXiv 2310.08491), section on ranking evaluation.
    """
    rows = []
    for pair in pairs:
        shared = {name: cell for name, cell in pair.items() if name not in LEFT_OUT}
        for side in "ab":
            single = {"id": f"{pair['id']}/{side}", "response": pair[f"response_{side}"]}
            single["response_images"] = pair.get(f"response_{side}_images")
            rows.append(shared | single)
    graded = judge.grade(rows, **options)
    # graded rows are in the order pair, side, sample
    scores = graded["score"].to_numpy(float).reshape(len(pairs), 2, -1).mean(axis=2)  # (pairs, 2)
    difference = pd.Series(scores[:, 0] - scores[:, 1])
    run = pd.DataFrame([*pairs]).drop(columns=[*PICTURE_COLUMNS], errors="ignore")
    run["verdict"] = difference.map(sign, na_action="ignore").astype(object)
    of_pair = graded.groupby(np.repeat(run.index, len(graded) // len(run)))
    run["failure"] = of_pair["failure"].first()
    run["closed"] = of_pair["closed"].any()
    run["sees_image"] = of_pair["sees_image"].all()
    return run


# --- the benchmark's own reader


def _read_as_published(run: pd.DataFrame, protocol: Protocol) -> pd.DataFrame:
    """Return the run with verdicts, or scores, as the protocol's own reader reads the answers.

    A protocol has a `reader` of verdicts, a `score_reader`, or neither: then the run is returned as
    it is.
    """
    if protocol.reader:
        run = reread(run, protocol.reader)
    if protocol.score_reader:
        scores = run["raw"].map(protocol.score_reader)
        # a score outside the scale is none, and a failure stays only where there is no score
        run["score"] = scores.where(scores.between(run["lowest"], run["highest"]))
        run["failure"] = run["failure"].where(run["score"].isna(), None)
    return run


def reread(run: pd.DataFrame, reader: Reader) -> pd.DataFrame:
    """Replace a comparison's verdicts by those of a benchmark's own reader.

    A pair's verdict is the choice of more than half of its draws, None where no choice has so many.

    Args:
        run: needs `draws` or the columns `raw_ab` and `raw_ba`, and `preference` where the reader
            looks at it.
        reader: reads one answer.

    Returns:
        The run with the new `verdict` and two counts per row: `unread_draws`, answers without a
        choice, and `empty_draws`, those of them that are empty or that a server failed to give.

    Source: each reader's benchmark, see `PROTOCOLS`.

    >>> import pandas as pd
    >>> from vjudge.benchmarks import reread
    >>> run = pd.DataFrame({"id": ["p"], "raw_ab": ["<1>"], "raw_ba": ["<2>"]})
    >>> reread(run, lambda text, preferred: "a" if "1" in text else "b")["verdict"].tolist()
    ['a']
    """
    verdicts = []
    n_unread = []
    n_empty = []
    for row in run.to_dict("records"):
        draws = _draws_of(row)
        # a draw without a choice votes None, and counts among all votes
        votes = [_read_draw(draw, row.get("preference"), reader) for draw in draws]
        n_unread.append(votes.count(None))
        n_empty.append(sum(not draw["raw"] for draw in draws))
        leading = max(("a", "b", *TIES), key=votes.count)
        has_majority = votes.count(leading) > len(votes) / 2
        verdicts.append(leading if has_majority else None)
    run = run.assign(unread_draws=n_unread, empty_draws=n_empty)
    return run.assign(verdict=pd.Series(verdicts, index=run.index, dtype=object))


def _draws_of(row: Row) -> list[dict[str, Any]]:
    """Return a compared pair's draws, each with its `order` and its answer, `raw`."""
    draws = from_csv(row.get("draws"))  # a list, or its text in a file
    if draws is None:  # one draw per order
        orders = [order for order in ("ab", "ba") if f"raw_{order}" in row]
        draws = [{"order": order, "raw": row[f"raw_{order}"]} for order in orders]
    return draws


def _read_draw(draw: Mapping[str, Any], preference: str | None, reader: Reader) -> str | None:
    """Read one draw's answer.

    Returns:
        "a" or "b", which name the pair's responses whatever the order shown; or a tie; or None
        where the answer is empty or can't be read.
    """
    if not draw["raw"]:
        return None
    if draw["order"] == "ab":
        return reader(draw["raw"], preference)
    # A reader names the responses as shown: in the order "ba" its "a" is the pair's b.
    choice = reader(draw["raw"], SWAPPED.get(preference or "", preference))
    return SWAPPED.get(choice or "", choice)


# --- images, by two prompt templates


def viescore(
    judge: Judge,
    items: Items,
    *,
    quality: str | Template = "viescore-pq",
    out: str | Path | None = None,
    **options: Any,
) -> pd.DataFrame:
    """Grade images for following the instruction and for perceptual quality, and combine both.

    Args:
        judge: one whose prompt template grades what was asked, such as
            `load_judge(..., template="viescore-t2i")`, or EditScore in its own.
        items: rows with `response_images`, and `images` where an image was edited.
        quality: the template that grades the image by itself, without its source.
        out: a folder that records both runs.
        options: of `Judge.grade`.

    Returns:
        The run of the first template with the columns `semantics` and `quality`, the two scores;
        `score` is the square root of their product, on the scale of both. EditScore's own number
        is this on 0 to 10: divide by 2.5.

    Source: VIEScore (arXiv 2312.14867), TIGER-AI-Lab/VIEScore@2cbea4e viescore/__init__.py;
    VectorSpaceLab/EditScore@389008c editscore/__init__.py.

    >>> import vjudge as vj
    >>> judge = vj.load_judge("tiny", device="cpu").reworded("viescore-t2i")
    >>> items = vj.load_collection("drawings", split="test", limit=1)
    >>> run = viescore(judge, items, progress=False, max_new_tokens=8)
    >>> run[["semantics", "quality", "score"]].shape
    (1, 3)
    """
    rows = rows_of(items)
    folders = {}
    for name in ("semantics", "quality"):
        folders[name] = None if out is None else Path(out) / name
    semantics = judge.grade(rows, out=folders["semantics"], **options)
    without_source = [{**row, "images": []} for row in rows]
    quality_run = judge.reworded(quality).grade(without_source, out=folders["quality"], **options)
    run = semantics.assign(semantics=semantics["score"], quality=quality_run["score"])
    run["score"] = np.sqrt(run["semantics"] * run["quality"])
    run["failure"] = semantics["failure"].fillna(quality_run["failure"])
    run["closed"] = semantics["closed"] | quality_run["closed"]
    work = [*WORK]  # tokens and seconds of both runs
    run[work] = semantics[work] + quality_run[work]
    return run
