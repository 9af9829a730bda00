"""A judge's call: rows -> questions -> answers -> records -> a table.

`prepare` (asking.py) makes the questions; `answered` takes each answer from the record of the run
or from the engine, and `read` reads it. A table is made of records alone, so that a continued run
ends in the same table as an unbroken one. comparing.py does as much for pairs and rankings.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

import vjudge
from vjudge.engines.engine import Answer, Ask, Engine
from vjudge.engines.progress import progress_bar, say
from vjudge.images import Picture
from vjudge.judging.asking import DECODING, Call, Options, Question, Record, prepare
from vjudge.judging.record import json_value
from vjudge.judging.runs import Run
from vjudge.prompts.parse import parse
from vjudge.records import NAN, Verdict, is_missing, mean_of_shares

COUNTS = {  # what `attrs` count -> how it is said
    "failures": "verdicts failed",
    "closed": "verdicts were closed: the answer held none, and the most probable one counts",
    "unclosed": "were not closed",
    "abstained": "abstained: neither a verdict nor a failure",
    "without_images": "were judged without an image",
    "remarks": "replies had a remark",
}
MAX_REASONS = 5  # reasons on a line
OF_CRITERIA = ("failure", "feedback", "raw", "reasoning", "unclosed")  # of each criterion
WORK = ("n_prompt_tokens", "n_new_tokens", "seconds")
FLOATS = (
    "score expected_score probability_mass probability_a seconds gold score_a score_b"
    " lowest highest"
).split()
INTEGERS = ("sample", "n_prompt_tokens", "n_new_tokens")
COLUMN_DTYPES = dict.fromkeys(FLOATS, "float64") | dict.fromkeys(INTEGERS, "int64")
COLUMN_DTYPES |= {"closed": "bool", "sees_image": "bool"}


def grade(judge: Any, items: Any, options: Options) -> pd.DataFrame:
    """The table of `Judge.grade`."""
    call = prepare(judge, items, options)
    records = answered(call, "grade")
    frame = graded(by_row(call, records), call.facts, judge=judge.name, samples=options.samples)
    return announced(call, frame, records)


def by_row(call: Call, records: Sequence) -> list[list[Record]]:
    """The records of each row of the collection."""
    answers: list = [[] for _ in call.facts]
    for question, record in zip(call.questions, records, strict=True):
        answers[question.row].append(record)
    return answers


def graded(answers: Sequence, facts: Sequence, *, judge: str, samples: int) -> pd.DataFrame:
    """A table of each row's records and its further cells, without what no row has."""
    rows = []
    for records, cells in zip(answers, facts, strict=True):
        rows += [record | cells for record in joined(records, cells)]
    frame = table(rows, judge)
    absent = ["asked", "order", "unclosed"] + ["sample"] * (samples == 1)
    rare = frame[["choice", "scores", "reasoning", "served_model", "remarks"]]
    absent += rare.columns[rare.isna().all()].tolist()
    return frame.drop(columns=absent, errors="ignore")


def joined(records: Sequence[Record], cells: Record) -> list[Record]:
    """One record a sample: of criteria that were asked apart their scores by name, and the mean."""
    if "criterion" not in records[0]:
        return list(records)
    samples: dict[int, list[Record]] = {}
    for record in records:
        samples.setdefault(record["sample"], []).append(record)
    return [of_criteria(sample, (cells["lowest"], cells["highest"])) for sample in samples.values()]


def of_criteria(records: Sequence[Record], bounds: tuple[float, float]) -> Record:
    """The records of one sample's criteria as one; without each score there is no mean."""
    row: Record = {name: records[0][name] for name in ("id", "sample", "order")}
    scores = {record["criterion"]["name"]: record["score"] for record in records}
    for name in ("score", "expected_score"):
        row[name] = NAN
        terms = []
        for record in records:
            criterion = record["criterion"]
            terms.append((record[name], criterion["weight"], criterion["bounds"]))
        if not any(is_missing(score) for score, *_ in terms):
            row[name] = mean_of_shares(terms, bounds)
    for name in OF_CRITERIA:
        texts = [
            f"{record['criterion']['name']}: {record[name]}" for record in records if record[name]
        ]
        row[name] = "\n".join(texts) or records[0][name]
    abstained = any(record["choice"] == "abstain" for record in records)
    row |= {"choice": "abstain" if abstained else None, "scores": scores}
    row |= {"probabilities": None, "probability_mass": NAN}
    row["closed"] = any(record["closed"] for record in records)
    return row | {"served_model": None, "remarks": None} | work_of(records)


# -- questions -> answers -> records


def answered(call: Call, kind: str) -> list:
    """The record of each question, in their order; `kind` is "grade" or "compare"."""
    template = call.template
    ask = call.ask
    decoding: Record = {}
    if ask.mode == "feedback":
        decoding = {name: getattr(ask, name) for name in DECODING}
        decoding["seed"] = call.options.seed
        decoding["unread"] = "close" if ask.closing else "missing"
    call_manifest = {
        "judge": call.judge.name,
        "mode": ask.mode,
        "decoding": decoding,
        "template": {"name": template.name, "fingerprint": template.fingerprint()},
        "note": {
            "call": kind,
            "judge": call.judge.name,
            "samples": call.options.samples,
            "orders": call.options.orders,
            "origin": call.origin,
        },
    }
    if call.judge.examples:
        call_manifest["examples"] = [example.id for example in call.judge.examples]
    if template.day:  # that the prompts name; a continued run keeps it
        call_manifest["day"] = template.day
    return collect(
        call.judge.engine,
        call.questions,
        call.images,
        ask,
        partial(read, mode=ask.mode, format=template.format),
        call_manifest,
        facts=call.facts,
        out=call.options.out,
        progress=call.options.progress,
    )


def collect(
    engine: Engine,
    questions: Sequence,
    images: Sequence,
    ask: Ask,
    reader: Callable,
    call_manifest: Record,
    *,
    out: str | Path | None,
    progress: bool,
    facts: Sequence = (),
) -> list:
    """Answer each question from the record in `out` where it was asked before, else by the engine.

    `reader` makes a record of an answer; `call_manifest` is the manifest without the engine's part;
    `facts` are the cells of each row that the record keeps for `load_run`.
    """
    # 1) the record of earlier calls
    keys = list(map(_asked, questions, images)) if out is not None else []
    with _recording(out, engine, call_manifest, _rows(questions, keys, facts)) as run:
        recorded = run.done if run else {}
        done = {index: recorded[key] for index, key in enumerate(keys) if key in recorded}
        missing = set(range(len(questions))) - done.keys()
        n_unused = len(recorded) - len(done)
        if n_unused or (done and missing):
            unused = f"{n_unused} kept in the record but not in this call"
            say(f"{out}: reused {len(done)}, new {len(missing)}, {unused}")

        # 2) what the engine answers, saved batch by batch
        prompts = [question.prompt for question in questions]
        with progress_bar(len(questions), len(done), show=progress) as bar:
            for answers in engine.answer(prompts, images, ask, missing) if missing else ():
                lasting = []
                for answer in answers:
                    question = questions[answer.index]
                    names: Record = {"id": question.id, "sample": question.sample}
                    names["order"] = question.order
                    if question.criterion:
                        names["criterion"] = question.criterion
                    record = json_value(names | reader(answer, question))
                    done[answer.index] = record
                    if run and not answer.transient:  # the next call asks those again
                        lasting.append({**record, "asked": keys[answer.index]})
                if run:
                    run.append(lasting)
                bar.update(len(answers))
    return [done[index] for index in range(len(questions))]


@contextmanager
def _recording(
    out: str | Path | None, engine: Engine, call_manifest: Record, rows: Sequence
) -> Iterator[Run | None]:
    """The record in a folder, opened for a call on some rows; None without a folder."""
    if out is None:
        yield None
        return
    manifest = {"vjudge": vjudge.__version__, **call_manifest, **engine.identity()}
    with Run(out).open(manifest) as run:
        if run.changes:
            say(f"{out}: continued, though these are not as they were: {'; '.join(run.changes)}")
        run.keep(rows)
        yield run


def _rows(questions: Sequence, keys: Sequence, facts: Sequence) -> list[Record]:
    """Each row's id, the keys of its verdicts, and its cells; none where nothing is recorded."""
    rows: dict[int, Record] = {}
    for question, key in zip(questions, keys, strict=False):
        if facts:
            cells = {"id": question.id, "asked": [], "cells": facts[question.row]}
            rows.setdefault(question.row, cells)["asked"].append(key)
    return list(rows.values())


def _asked(question: Question, images: Sequence[Picture]) -> str:
    """A digest of all that one verdict depends on and the manifest does not say."""
    depends_on: tuple = (replace(question, row=0), [image.key for image in images])
    if question.criterion:
        depends_on += (question.criterion,)
    return hashlib.sha256(repr(depends_on).encode()).hexdigest()


def work_of(records: Sequence) -> Record:
    """What several answers took, who gave them, and what was remarked of them."""
    row = {name: sum(record[name] for record in records) for name in WORK}
    for name in ("served_model", "remarks"):
        texts = dict.fromkeys(record[name] for record in records if record[name])
        if texts:
            row[name] = "; ".join(texts)
    return row


# -- reading an answer


def read(answer: Answer, question: Question, *, mode: str, format: str) -> Record:
    """One verdict as a run keeps it, in the order of the table: NaN or None where there is none."""
    shares, mass = distribution(answer.score_logprobs, question.scores)
    verdict = verdict_of(answer, question, mode=mode, format=format)
    closed = False
    if answer.failure is None and verdict.failure is not None:
        if mode == "score":
            verdict = of_score_pass(verdict, question, shares)
        elif mode == "feedback":
            verdict = of_closing(verdict, answer, question, shares)
            closed = verdict.failure is None
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
        return answer.verdict or parse(
            answer.text,
            scores=question.scores,
            format=format,
            finish=answer.finish,
            rubric=question.rubric,
        )
    if failure is None and mode == "value":
        if answer.value is not None and math.isfinite(answer.value):
            return Verdict(answer.value, "", answer.text)
        failure = "the value head gave no finite number"
    return Verdict(NAN, "", answer.text, failure or "no score of the rubric has a probability")


def of_score_pass(verdict: Verdict, question: Question, shares: Mapping) -> Verdict:
    """The most probable score or choice, the lowest of equals; without a distribution, none."""
    if not shares:
        return verdict
    return _settled(verdict, question, max(shares, key=shares.__getitem__), shares)


def of_closing(verdict: Verdict, answer: Answer, question: Question, shares: Mapping) -> Verdict:
    """What an answer without a verdict was closed with, if it was."""
    if answer.closed_scores:
        scores = answer.closed_scores
        rubric: Any = question.rubric
        return replace(verdict, failure=None, score=rubric.combined(scores), scores=scores)
    if answer.closed is None:
        return verdict
    return _settled(verdict, question, answer.closed, shares)


def _settled(verdict: Verdict, question: Question, level: int, shares: Mapping) -> Verdict:
    """A verdict whose level is decided: a score; of two responses 0 or 1, a tie of equals."""
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


def table(rows: Sequence, judge: str) -> pd.DataFrame:
    """Rows as a frame, each column of its own kind."""
    frame = pd.DataFrame(rows, dtype=object)
    frame = frame.where(frame.notna(), None)
    frame = frame.astype({name: kind for name, kind in COLUMN_DTYPES.items() if name in frame})
    frame.insert(1, "judge", judge)
    return frame


def announced(call: Call, frame: pd.DataFrame, records: Sequence, *remarks: str) -> pd.DataFrame:
    """The table, with what its verdicts lack counted in `attrs` and said on one line."""
    frame.attrs = account(call, records)
    lines = [*call.remarks, *remarks]
    for name, meaning in COUNTS.items():
        number = frame.attrs[name]
        if isinstance(number, dict):
            reasons = [f"{n} x {reason}" for reason, n in number.items()]
            meaning = f"{meaning}: {', '.join(reasons[:MAX_REASONS])}"
            number = sum(number.values())
        if number:
            lines.append(f"{number} of {len(records)} {meaning}")
    served = count(records, "served_model")
    if len(served) > 1:
        names = ", ".join(f"{name} ({n})" for name, n in served.items())
        lines.append(f"the model's name moved: {names}")
    if lines:
        say("; ".join(lines))
    return frame


def count(records: Sequence, name: str) -> dict:
    """How many records have each text under a name."""
    return dict(Counter(record[name] for record in records if record[name]))


def account(call: Call, records: Sequence) -> Record:
    """What the verdicts of a call lack, counted, and what the engine computed."""
    work = call.judge.engine.work
    return {
        "failures": count(records, "failure"),
        "closed": sum(record["closed"] for record in records),
        "unclosed": count(records, "unclosed"),
        "remarks": count(records, "remarks"),
        "abstained": sum(record["choice"] == "abstain" for record in records),
        "without_images": call.blind,
        "work": asdict(work) if work else None,  # None where it computes elsewhere
    }
