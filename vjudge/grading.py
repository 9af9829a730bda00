"""A judge's call: rows -> questions -> answers -> records -> a table.

`prepare` (asking.py) makes the questions; `answered` takes each answer from the record of the run
or from the engine, and `read` reads it. A table is made of records alone, so that a continued run
ends in the same table as an unbroken one. comparing.py does as much for pairs and rankings.
"""

from __future__ import annotations

import hashlib
import math
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
from vjudge.asking import Call, Options, Question, Record, prepare
from vjudge.engines.engine import Answer, Ask, Engine, say
from vjudge.images import Picture
from vjudge.prompts.parse import parse
from vjudge.records import NAN, Verdict, weighted_mean
from vjudge.runs import Run, plain

COUNTS = {  # what `attrs` count -> how it is said
    "failures": "verdicts failed",
    "closed": "verdicts were closed: the answer held none, and the most probable one counts",
    "unclosed": "were not closed",
    "abstained": "abstained: neither a verdict nor a failure",
    "without_images": "were judged without an image",
    "remarks": "replies had a remark",
}
SHOWN = 5  # reasons on a line
DECODING = ("max_new_tokens", "temperature", "top_p", "repetition_penalty")
WORK = ("n_prompt_tokens", "n_new_tokens", "seconds")
FLOATS = "score expected_score probability_mass probability_a seconds gold score_a score_b".split()
INTEGERS = ("sample", "n_prompt_tokens", "n_new_tokens")
KINDS = dict.fromkeys(FLOATS, "float64") | dict.fromkeys(INTEGERS, "int64") | {"closed": "bool"}


def grade(judge: Any, items: Any, options: Options) -> pd.DataFrame:
    """The table of `Judge.grade`: a record as its row, without what no row has."""
    call = prepare(judge, items, options)
    records = answered(call)
    rows = []
    for question, record in zip(call.questions, records, strict=True):
        row = record | call.carried[question.row]
        if row["probabilities"]:  # in JSON a key is a text
            row["probabilities"] = {int(n): share for n, share in row["probabilities"].items()}
        rows.append(row)
    frame = table(call, records, rows)
    absent = ["asked", "order", "unclosed"]
    if options.samples == 1:
        absent.append("sample")
    rare = ("choice", "scores", "reasoning", "served_model", "remarks")
    absent += [name for name in rare if frame[name].isna().all()]
    return frame.drop(columns=absent, errors="ignore")


# -- questions -> answers -> records


def answered(call: Call) -> list:
    """The record of each question, in their order."""
    template = call.template
    ask = call.ask
    decoding: Record = {}
    if ask.mode == "feedback":
        decoding = {name: getattr(ask, name) for name in DECODING}
        decoding["seed"] = call.options.seed
        decoding["unread"] = "close" if ask.closing else "missing"
    about = {
        "judge": call.judge.name,
        "mode": ask.mode,
        "decoding": decoding,
        "template": {"name": template.name, "fingerprint": template.fingerprint()},
        "note": {"samples": call.options.samples, "origin": call.origin},
    }
    if template.day:  # that the prompts name; a continued run keeps it
        about["day"] = template.day
    return collect(
        call.judge.engine,
        call.questions,
        call.images,
        ask,
        partial(read, mode=ask.mode, format=template.format),
        about,
        out=call.options.out,
        progress=call.options.progress,
    )


def collect(
    engine: Engine,
    questions: Sequence,
    images: Sequence,
    ask: Ask,
    reader: Callable,
    about: Record,
    *,
    out: str | Path | None,
    progress: bool,
) -> list:
    """Answer each question from the record in `out` where it was asked before, else by the engine.

    `reader` makes a record of an answer; `about` is the manifest without the engine's part.
    """
    # 1) the record of earlier calls
    opened: Any = nullcontext()
    keys: list = []
    if out is not None:
        for question, own in zip(questions, images, strict=True):
            keys.append(_asked(question, own))
        manifest = {"vjudge": vjudge.__version__, **about, **engine.identity()}
        opened = Run(out).open(manifest)
    with opened as run:
        done = {}
        for place, key in enumerate(keys):
            if key in run.done:
                done[place] = run.done[key]
        wanted = set(range(len(questions))) - set(done)
        kept = len(run.done) - len(done) if run else 0
        if kept or (done and wanted):
            others = f"{kept} kept in the record but not in this call"
            say(f"{out}: reused {len(done)}, new {len(wanted)}, {others}")

        # 2) what the engine answers, saved batch by batch
        prompts = [question.prompt for question in questions]
        with tqdm(total=len(questions), initial=len(done), disable=not progress) as bar:
            for answers in engine.answer(prompts, images, ask, wanted) if wanted else ():
                lasting = []
                for one in answers:
                    question = questions[one.index]
                    key = {"id": question.id, "sample": question.sample, "order": question.order}
                    record = plain(key | reader(one, question))
                    done[one.index] = record
                    if run and not one.transient:  # the next call asks those again
                        lasting.append({**record, "asked": keys[one.index]})
                if run:
                    run.append(lasting)
                bar.update(len(answers))
    return [done[place] for place in range(len(questions))]


def _asked(question: Question, images: Sequence[Picture]) -> str:
    """A digest of all that one verdict depends on and the manifest does not say."""
    what = (replace(question, row=0), [image.key for image in images])
    return hashlib.sha256(repr(what).encode()).hexdigest()


# -- reading an answer


def read(answer: Answer, question: Question, *, mode: str, format: str) -> Record:
    """One verdict as a run keeps it, in the order of the table: NaN or None where there is none."""
    shares, mass = distribution(answer.score_logprobs, question.scores)
    verdict = verdict_of(answer, question, mode=mode, format=format)
    closed = False
    if answer.failure is None and verdict.failure is not None:
        verdict = likeliest(verdict, answer, question, shares)
        closed = mode == "feedback" and verdict.failure is None
    expected = NAN
    if verdict.failure or verdict.choice == "abstain":  # a distribution belongs to a verdict
        shares = {}
        mass = NAN
    elif shares:
        expected = sum(score * share for score, share in shares.items())
    return {
        **vars(verdict),
        "expected_score": expected,
        "probabilities": shares or None,
        "probability_mass": mass,
        "closed": closed,
        "reasoning": answer.reasoning or None,
        "unclosed": answer.unclosed,
        "served_model": answer.served,
        "remarks": "; ".join(answer.remarks) or None,
        **{name: getattr(answer, name) for name in WORK},
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
    if failure is None and mode == "value":
        if answer.value is not None and math.isfinite(answer.value):
            return Verdict(answer.value, "", answer.text)
        failure = "the value head gave no finite number"
    return Verdict(NAN, "", answer.text, failure or "no score of the rubric has a probability")


def likeliest(verdict: Verdict, answer: Answer, question: Question, shares: Mapping) -> Verdict:
    """The most probable verdict of a score pass, or what an answer was closed with."""
    scores = answer.closed_scores
    if scores:
        mean = weighted_mean(scores, question.weights)
        return replace(verdict, failure=None, score=mean, scores=scores)
    level = answer.closed
    if not answer.text and shares:
        level = max(shares, key=shares.__getitem__)  # the lowest of equals
    if level is None:
        return verdict
    if not question.order:
        return replace(verdict, failure=None, score=float(level))
    choice = "b" if level else "a"
    if shares and shares[0] == shares[1]:
        choice = "tie"
    return replace(verdict, failure=None, choice=choice)


def distribution(logprobs: Mapping | None, scores: Sequence) -> tuple[dict, float]:
    """Log-probabilities as score -> probability over a scale, and their mass; empty without any."""
    values = [logprobs.get(score, NAN) for score in scores] if logprobs else []
    if not values or not all(value < math.inf for value in values):  # NaN is not, either
        return {}, NAN
    masses = list(map(math.exp, values))
    total = sum(masses)
    if total == 0:
        return {}, 0.0
    return {score: mass / total for score, mass in zip(scores, masses, strict=True)}, total


# -- records -> a table


def table(call: Call, records: Sequence, rows: Sequence, *remarks: str) -> pd.DataFrame:
    """Rows as a frame, with what its verdicts lack counted in `attrs` and said on one line."""
    frame = pd.DataFrame(rows, dtype=object)
    frame = frame.where(frame.notna(), None)
    frame = frame.astype({name: kind for name, kind in KINDS.items() if name in frame})
    frame.insert(1, "judge", call.judge.name)
    frame.attrs = account(call, records)
    said = list(remarks)
    for name, words in COUNTS.items():
        count = frame.attrs[name]
        if isinstance(count, dict):
            reasons = [f"{n} x {reason}" for reason, n in count.items()]
            words = f"{words}: {', '.join(reasons[:SHOWN])}"
            count = sum(count.values())
        if count:
            said.append(f"{count} of {len(records)} {words}")
    served = Counter(one["served_model"] for one in records if one["served_model"])
    if len(served) > 1:
        names = ", ".join(f"{name} ({n})" for name, n in served.items())
        said.append(f"the model's name moved: {names}")
    if said:
        say("; ".join(said))
    return frame


def account(call: Call, records: Sequence) -> Record:
    """What the verdicts of a call lack, counted; their scale, and what the engine computed."""
    rubrics = [question.rubric for question in call.questions if question.rubric]
    bounds = {rubric.bounds for rubric in rubrics if rubric.named}
    work = call.judge.engine.work
    return {
        "failures": dict(Counter(one["failure"] for one in records if one["failure"])),
        "closed": sum(one["closed"] for one in records),
        "unclosed": dict(Counter(one["unclosed"] for one in records if one["unclosed"])),
        "remarks": dict(Counter(one["remarks"] for one in records if one["remarks"])),
        "abstained": sum(one["choice"] == "abstain" for one in records),
        "without_images": call.blind,
        "scale": bounds.pop() if len(bounds) == 1 else call.template.scale,
        "unbounded": call.ask.mode == "value",
        "collection": call.origin,
        "work": asdict(work) if work else None,  # None where it computes elsewhere
    }
