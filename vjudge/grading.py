"""A judge's call: rows -> questions -> answers -> records -> a table.

`prepare` (asking.py) makes the questions; `answered` takes each answer from the record of the run
or from the engine, and `read` reads it. A table is made of records alone, so that a continued run
ends in the same table as an unbroken one. comparing.py does as much for pairs and rankings.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
from tqdm.auto import tqdm

import vjudge
from vjudge.asking import Call, Images, Options, Question, Record, prepare
from vjudge.engines.engine import Answer, Ask, Engine, say
from vjudge.prompts.parse import parse
from vjudge.records import NAN, Verdict, weighted_mean
from vjudge.runs import Run, plain

LOW_MASS = 0.5  # below it the judge would rather have written something else than a score
REMARKS = {  # what is said of what `attrs` count
    "failures": "{n} of {total} {verdicts} failed: {reasons}",
    "closed": "{n} of {total} {verdicts} were closed: the answer held none, and the most probable "
    "one at its end counts",
    "unclosed": "not closed: {reasons}",
    "without_distribution": "{n} of {total} have a score and no distribution: no log-probabilities "
    "came with it, or it was written in other tokens than the scale's",
    "low_mass": f"{{n}} of {{total}} {{verdicts}} rest on less than {LOW_MASS:g} of the "
    "probability: the judge would rather have written something else there",
    "without_images": "{n} {rows} have no image and were judged without",
}
SHOWN = 5  # reasons on a line
WORK = ("n_prompt_tokens", "n_new_tokens", "seconds")
DECODING = ("max_new_tokens", "temperature", "top_p", "repetition_penalty", "seed", "unread")
FLOATS = "score expected_score probability_mass probability_a seconds gold score_a score_b".split()
INTEGERS = ("sample", "n_prompt_tokens", "n_new_tokens")
KINDS = dict.fromkeys(FLOATS, "float64") | dict.fromkeys(INTEGERS, "int64") | {"closed": "bool"}


def grade(judge: Any, items: Any, options: Options) -> pd.DataFrame:
    """The table of `Judge.grade`: a record as its row, without what no row has."""
    call = prepare(judge, items, options)
    records = answered(call)
    absent = {"asked", "order", "strong", "unclosed"}
    if call.options.samples == 1:
        absent.add("sample")
    for name in ("choice", "scores", "reasoning"):
        if not any(record[name] for record in records):
            absent.add(name)
    rows = []
    for question, record in zip(call.questions, records, strict=True):
        row = {name: cell for name, cell in record.items() if name not in absent}
        if row["probabilities"]:  # in JSON a key is a text
            row["probabilities"] = {int(n): share for n, share in row["probabilities"].items()}
        rows.append(row | call.carried[question.row])
    return table(call, records, rows)


# -- questions -> answers -> records


def answered(call: Call) -> list[Record]:
    """The record of each question, in their order."""
    template = call.template
    mode = call.ask.mode
    decoding = {}
    if mode == "feedback":
        decoding = {name: getattr(call.options, name) for name in DECODING}
    about = {
        "judge": call.judge.name,
        "mode": mode,
        "decoding": decoding,
        "template": {"name": template.name, "fingerprint": template.fingerprint()},
        "note": {"samples": call.options.samples, "origin": call.origin},
    }
    return collect(
        call.judge.engine,
        call.questions,
        call.images,
        call.ask,
        partial(read, mode=mode, format=template.format),
        about,
        out=call.options.out,
        progress=call.options.progress,
    )


def collect(
    engine: Engine,
    questions: Sequence[Question],
    images: Images,
    ask: Ask,
    reader: Callable[[Answer, Question], Record],
    about: Record,
    *,
    out: str | Path | None,
    progress: bool,
    unit: str = "verdict",
) -> list[Record]:
    """Answer each question from the record in `out` where it was asked before, else by the engine.

    `reader` makes a record of an answer, `about` is the manifest without what is said here.
    """
    # 1) the record of earlier calls
    opened: Any = nullcontext()
    asked: list[str] = []
    if out is not None:
        for place, question in enumerate(questions):
            asked.append(_asked(question, images[place], ask, place))
        manifest = _manifest(engine, about, batch_size=ask.batch_size, asked=asked)
        opened = Run(out, keys=("asked",)).open(manifest, expected=len(asked))
    with opened as run:
        done = {}
        for place, key in enumerate(asked):
            if (key,) in run.done:
                done[place] = run.done[(key,)]
        if run and run.note and run.note["asked"] != manifest["note"]["asked"]:
            others = f"{len(run.done) - len(done)} kept in the record but not in this call"
            say(f"{out}: reused {len(done)}, new {len(asked) - len(done)}, {others}")

        # 2) what the engine answers, saved batch by batch
        wanted = set(range(len(questions))) - set(done)
        prompts = [question.prompt for question in questions]
        bar = tqdm(total=len(questions), initial=len(done), unit=unit, disable=not progress)
        failed = 0
        with bar:
            for answers in engine.answer(prompts, images, ask, wanted) if wanted else ():
                lasting = []
                for one in answers:
                    question = questions[one.index]
                    record = plain(question.key | reader(one, question))
                    done[one.index] = record
                    failed += record["failure"] is not None
                    if run and not one.transient:  # the next call asks those again
                        lasting.append({"asked": asked[one.index], **record})
                if run:
                    run.append(lasting)
                bar.set_postfix(failed=failed, refresh=False)
                bar.update(len(answers))
    return [done[place] for place in range(len(questions))]


def _asked(question: Question, images: Sequence[Any], ask: Ask, place: int) -> str:
    """A digest of all that one verdict depends on and the manifest does not say."""
    prompt = (question.prompt.parts, question.prompt.system)
    keys = [getattr(image, "key", "unreadable") for image in images]
    what = (question.key, prompt, keys, ask.scale(place), ask.schema(place), question.weights)
    return _digest(repr(what))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _manifest(engine: Engine, about: Record, *, batch_size: Any, asked: Sequence[str]) -> Record:
    """What was run; its note may differ from call to call."""
    identity = engine.identity()
    note = {
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "batch_size": batch_size,
        "questions": len(asked),
        "asked": _digest("".join(sorted(asked))),
        **about["note"],
    }
    versions = {"vjudge": vjudge.__version__, **identity["versions"]}
    return {**about, **identity, "versions": versions, "note": note}


# -- reading an answer


def read(answer: Answer, question: Question, *, mode: str, format: str) -> Record:
    """One verdict as a run keeps it: NaN or None where there is none."""
    shares, mass = distribution(answer.score_logprobs, question.scores)
    verdict = verdict_of(answer, question, mode=mode, format=format)

    # 1) without a verdict: the most probable one where a score was forced or the answer closed
    closed = verdict.failure is not None and (answer.closed, answer.closed_scores) != (None, None)
    likeliest = answer.closed
    if mode == "score" and shares and answer.failure is None:
        likeliest = max(shares, key=shares.__getitem__)  # the lowest of equals
    if closed and answer.closed_scores:
        scores = {name: float(score) for name, score in answer.closed_scores.items()}
        mean = weighted_mean(scores, question.weights)
        verdict = replace(verdict, failure=None, score=mean, scores=scores)
    elif verdict.failure is not None and likeliest is not None and question.order:
        choice = "b" if likeliest else "a"
        if shares and shares[0] == shares[1]:
            choice = "tie"
        verdict = replace(verdict, failure=None, choice=choice)
    elif verdict.failure is not None and likeliest is not None:
        verdict = replace(verdict, failure=None, score=float(likeliest))

    # 2) a distribution belongs to a verdict
    expected = NAN
    if verdict.failure is not None or verdict.abstained:
        shares = {}
        mass = NAN
    elif shares:
        expected = sum(score * share for score, share in shares.items())

    # 3) what is kept, in the order of the table
    return {
        "score": verdict.score,
        "expected_score": expected,
        "probabilities": shares or None,
        "probability_mass": mass,
        "feedback": verdict.feedback,
        "raw": verdict.raw,
        "failure": verdict.failure,
        "closed": closed,
        **{name: getattr(answer, name) for name in WORK},
        "choice": verdict.choice,
        "scores": verdict.scores or None,
        "reasoning": answer.reasoning or None,
        "strong": verdict.strong,
        "unclosed": answer.unclosed,
    }


def verdict_of(answer: Answer, question: Question, *, mode: str, format: str) -> Verdict:
    """What an answer says, or why it says nothing."""
    failure = answer.failure
    if failure is None and mode == "feedback":
        return parse(
            answer.text,
            scores=question.scores,
            format=format,
            finish=answer.finish,
            weights=question.weights,
        )
    if failure is None and mode == "score":
        failure = "no score of the rubric has a probability"
    elif failure is None:
        if answer.value is not None and math.isfinite(answer.value):
            return Verdict(answer.value, "", answer.text)
        failure = "the value head gave no finite number"
    return Verdict(NAN, "", answer.text, failure)


def distribution(
    logprobs: Mapping[int, float] | None, scores: Sequence[int]
) -> tuple[dict[int, float], float]:
    """Log-probabilities as score -> probability over a scale, and their mass; empty without any."""
    if logprobs is None or not scores:
        return {}, NAN
    values = [logprobs.get(score, NAN) for score in scores]
    if not all(value < math.inf for value in values):  # NaN is not, either
        return {}, NAN
    highest = max(values)
    if highest == -math.inf:
        return {}, 0.0
    weights = [math.exp(value - highest) for value in values]
    total = sum(weights)
    shares = {score: weight / total for score, weight in zip(scores, weights, strict=True)}
    return shares, total * math.exp(highest)


# -- records -> a table


def table(call: Call, records: Sequence[Record], rows: Sequence[Record]) -> pd.DataFrame:
    """Rows as a frame, with what its verdicts lack counted in `attrs` and said on one line."""
    frame = pd.DataFrame(rows, dtype=object)
    frame = frame.where(frame.notna(), None)
    frame = frame.astype({name: kind for name, kind in KINDS.items() if name in frame})
    frame.insert(1, "judge", call.judge.name)
    frame.attrs = account(call, records)
    remarks = call.remarks + remarks_of(frame.attrs, len(records), compares=call.template.compares)
    if remarks:
        say("; ".join(remarks))
    return frame


def account(call: Call, records: Sequence[Record]) -> Record:
    """What the verdicts of a call lack, counted; and what the engine computed."""
    low_mass = 0
    silent = 0
    for place, record in enumerate(records):
        if record["failure"] is None and record["choice"] != "abstain":
            low_mass += call.ask.scores and record["probability_mass"] < LOW_MASS
            silent += bool(call.ask.scale(place)) and record["probabilities"] is None
    work = call.judge.engine.work
    attrs: Record = {
        "judge": call.judge.name,
        "mode": call.ask.mode,
        "failures": dict(Counter(one["failure"] for one in records if one["failure"])),
        "closed": sum(one["closed"] for one in records),
        "unclosed": dict(Counter(one["unclosed"] for one in records if one["unclosed"])),
        "low_mass": low_mass,
        "without_images": call.without_images,
        "work": asdict(work) if work else None,  # None where it computes elsewhere
    }
    if call.origin:
        attrs["collection"] = call.origin
    if not call.template.compares:
        rubrics = [question.rubric for question in call.questions]
        bounds = {rubric.bounds for rubric in rubrics if rubric and rubric.named}
        attrs["scale"] = bounds.pop() if len(bounds) == 1 else call.template.scale
        attrs["unbounded"] = call.ask.mode == "value"
        attrs["without_distribution"] = silent
    return attrs


def remarks_of(attrs: Record, total: int, *, compares: bool) -> list[str]:
    """What is said of a table: what it lacks, and nothing of a whole one."""
    words = {"total": total, "verdicts": "verdicts", "rows": "items"}
    if compares:
        words |= {"verdicts": "comparisons", "rows": "pairs"}
    remarks = []
    for name, text in REMARKS.items():
        n = attrs.get(name)
        if isinstance(n, dict):
            reasons = [f"{count} x {reason}" for reason, count in Counter(n).most_common(SHOWN)]
            if len(n) > SHOWN:
                reasons.append(f"and {len(n) - SHOWN} more reasons")
            words["reasons"] = ", ".join(reasons)
            n = sum(n.values())
        if n:
            remarks.append(text.format(n=n, **words))
    return remarks
