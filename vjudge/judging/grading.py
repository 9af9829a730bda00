"""Questions -> answers -> verdicts -> a table.

A `Call` (asking.py) holds the questions. `answer_questions` takes each answer from the record of
the run or from the engine, and `read` makes a record of it. Tables are made of records alone, so
that a continued run ends in the same table as an unbroken one. comparing.py makes those of pairs.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeAlias

import pandas as pd

import vjudge
from vjudge.engines.closing import most_probable
from vjudge.engines.engine import Answer, Ask, Engine
from vjudge.engines.progress import progress_bar, say
from vjudge.judging.asking import DECODING, Call, Options, Question
from vjudge.judging.counts import WORK, announce
from vjudge.judging.criteria import join_criteria
from vjudge.judging.record import Record, Records, json_value
from vjudge.judging.runs import Run
from vjudge.prompts.parse import parse
from vjudge.records import NAN, Verdict

FLOATS = (
    "score expected_score probability_mass probability_a seconds gold score_a score_b"
    " lowest highest"
).split()
COLUMN_DTYPES = dict.fromkeys(FLOATS, "float64")
COLUMN_DTYPES |= dict.fromkeys(["sample", "n_prompt_tokens", "n_new_tokens"], "int64")
COLUMN_DTYPES |= dict.fromkeys(["closed", "sees_image"], "bool")
JudgedRow: TypeAlias = tuple[list[Record], Record]
"""The records of a row's questions, and the cells of the row that its run repeats."""


def grade(call: Call) -> pd.DataFrame:
    """Make the table of `Judge.grade`."""
    records = answer_questions(call, "grade")
    frame = grade_table(group_by_row(call, records), call.judge.name, call.options)
    return announce(call, frame, records)


def group_by_row(call: Call, records: Records) -> list[JudgedRow]:
    """Group the records of a call by the collection's rows."""
    rows: list[JudgedRow] = [([], cells) for cells in call.cells]
    for question, record in zip(call.questions, records, strict=True):
        rows[question.row][0].append(record)
    return rows


def grade_table(rows: Sequence[JudgedRow], judge: str, options: Options) -> pd.DataFrame:
    """Make the table of graded rows, without the columns that are empty in all of them."""
    verdicts = []
    for records, cells in rows:
        scale = (cells["lowest"], cells["highest"])
        verdicts += [record | cells for record in join_criteria(records, scale)]
    frame = make_table(verdicts, judge)
    absent = ["asked", "order", "unclosed"]
    if options.samples == 1:
        absent.append("sample")
    rare = ["choice", "scores", "reasoning", "served_model", "remarks"]
    absent += [name for name in rare if frame[name].isna().all()]
    return frame.drop(columns=absent, errors="ignore")


def make_table(rows: Records, judge: str) -> pd.DataFrame:
    """Make a frame of rows, each column in its own type, and the judge's name beside the id."""
    frame = pd.DataFrame(rows, dtype=object)
    frame = frame.where(frame.notna(), None)
    frame = frame.astype({name: kind for name, kind in COLUMN_DTYPES.items() if name in frame})
    frame.insert(1, "judge", judge)
    return frame


# -- questions -> answers -> records


def answer_questions(call: Call, kind: str) -> list[Record]:
    """Answer all questions of a call, and return the record of each, in their order.

    Args:
        kind: "grade" or "compare", so that `load_run` makes the same table again.
    """
    options = call.options
    template = call.template
    ask = call.ask
    decoding: Record = {}
    if ask.mode == "feedback":
        decoding = {name: getattr(ask, name) for name in DECODING}
        decoding["seed"] = options.seed
        decoding["unread"] = "close" if ask.closing else "missing"
    call_manifest = {
        "judge": call.judge.name,
        "mode": ask.mode,
        "decoding": decoding,
        "template": {"name": template.name, "fingerprint": template.fingerprint()},
        "note": {
            "call": kind,
            "judge": call.judge.name,
            "samples": options.samples,
            "orders": options.orders,
            "origin": call.origin,
        },
    }
    if call.judge.examples:
        call_manifest["examples"] = [example.id for example in call.judge.examples]
    if template.day:  # the day that the prompts name; a continued run keeps it
        call_manifest["day"] = template.day
    return collect(
        call.judge.engine,
        call.questions,
        ask,
        partial(read, mode=ask.mode, format=template.format),
        call_manifest,
        cells_of_rows=call.cells,
        out=options.out,
        progress=options.progress,
    )


def collect(
    engine: Engine,
    questions: Sequence[Question],
    ask: Ask,
    reader: Callable[[Answer, Question], Record],
    call_manifest: Record,
    *,
    out: str | Path | None,
    progress: bool,
    cells_of_rows: Records = (),
) -> list[Record]:
    """Take each answer from the record in `out` where it stands there, otherwise from the engine.

    Args:
        questions: what is asked.
        reader: makes a record of an answer.
        call_manifest: the run's manifest without the engine's entries.
        out: the run's folder; None keeps no record.
        cells_of_rows: what the run repeats of each row, for `load_run`.

    Returns:
        The record of each question, in their order.
    """
    # 1) what earlier calls recorded
    keys = list(map(verdict_key, questions)) if out is not None else []
    with _recording(out, engine, call_manifest, _rows(questions, keys, cells_of_rows)) as run:
        recorded = run.done if run else {}
        done = {index: recorded[key] for index, key in enumerate(keys) if key in recorded}
        missing = set(range(len(questions))) - done.keys()
        n_unused = len(recorded) - len(done)  # of rows that this call has not, or has otherwise
        if n_unused or (done and missing):
            unused = f"{n_unused} kept in the record but not in this call"
            say(f"{out}: reused {len(done)}, new {len(missing)}, {unused}")

        # 2) what the engine answers, saved batch by batch: a crash loses one batch at most
        prompts = [question.prompt for question in questions]
        images = [question.images for question in questions]
        with progress_bar(len(questions), len(done), show=progress) as bar:
            for answers in engine.answer(prompts, images, ask, missing) if missing else ():
                lasting = []
                for answer in answers:
                    question = questions[answer.index]
                    record = json_value(_names(question) | reader(answer, question))
                    done[answer.index] = record
                    if run and not answer.transient:  # the next call asks a transient one again
                        lasting.append({**record, "asked": keys[answer.index]})
                if run:
                    run.append(lasting)
                bar.update(len(answers))
    return [done[index] for index in range(len(questions))]


def _names(question: Question) -> Record:
    """Return what tells the record of a question from the others of its row."""
    names: Record = {"id": question.id, "sample": question.sample, "order": question.order}
    if question.criterion:
        names["criterion"] = question.criterion
    return names


@contextmanager
def _recording(
    out: str | Path | None, engine: Engine, call_manifest: Record, rows: Records
) -> Iterator[Run | None]:
    """Open the record in a folder, and keep the rows of the call there.

    Yields:
        The run; None without a folder.
    """
    if out is None:
        yield None
        return
    manifest = {"vjudge": vjudge.__version__, **call_manifest, **engine.identity()}
    with Run(out).open(manifest) as run:
        if run.changes:
            say(f"{out}: continued, though these are not as they were: {'; '.join(run.changes)}")
        run.keep(rows)
        yield run


def _rows(
    questions: Sequence[Question], keys: Sequence[str], cells_of_rows: Records
) -> list[Record]:
    """List what `Run.keep` writes: each row's id, the keys of its verdicts, and its cells."""
    rows: dict[int, Record] = {}
    for question, key in zip(questions, keys, strict=False):  # no keys: nothing is recorded
        if cells_of_rows:  # without them no table is made of the run
            row = {"id": question.id, "asked": [], "cells": cells_of_rows[question.row]}
            rows.setdefault(question.row, row)["asked"].append(key)
    return list(rows.values())


def verdict_key(question: Question) -> str:
    """Digest all that one verdict depends on and the manifest does not say.

    The record finds a verdict by this key, also one that an older version wrote: the names and the
    order of the fields of `Question`, `Prompt` and `Rubric` are part of it.
    """
    # the same row at another position is the same question; a picture counts by its content
    depends_on: tuple = (replace(question, row=0), [image.key for image in question.images])
    if question.criterion:
        depends_on += (question.criterion,)
    return hashlib.sha256(repr(depends_on).encode()).hexdigest()


# -- an answer -> a record


def read(answer: Answer, question: Question, *, mode: str, format: str) -> Record:
    """Read one answer into the record that a run keeps, in the order of the table's columns.

    A number that is missing is NaN, anything else that is missing None.
    """
    # 1) the verdict that the answer states, or else the one that its distribution decides
    shares, mass = distribution(answer.score_logprobs, question.scores)
    verdict = verdict_of(answer, question, mode=mode, format=format)
    closed = False
    if verdict.failure and not answer.failure:
        verdict = decide(verdict, answer, question, shares, mode)
        closed = mode == "feedback" and not verdict.failure

    # 2) the distribution, which belongs to a verdict
    expected = NAN  # sum of score x P(score): 2 x .9 + 3 x .1 = 2.1
    if verdict.failure or verdict.choice == "abstain":
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
    """Read what an answer states, or why it states no verdict."""
    failure = answer.failure
    if failure is None and mode == "feedback":
        return answer.verdict or parse(  # an engine that closes answers has read it already
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


def decide(
    verdict: Verdict,
    answer: Answer,
    question: Question,
    shares: Mapping[int, float],
    mode: str,
) -> Verdict:
    """Decide an answer that states no verdict by the distribution over its scale.

    In a score pass the most probable score is the verdict, the lowest of equals. Another answer may
    have been closed by the engine, with one score or with one a criterion. In a comparison the
    scores 0 and 1 choose the first and the second response, and equal shares are a tie.

    Returns:
        The verdict without its failure; the same verdict where nothing decides it.
    """
    # 1) closed with a score for each named criterion
    scores = answer.closed_scores
    if scores and question.rubric:
        mean = question.rubric.combined(scores)
        return replace(verdict, failure=None, score=mean, scores=scores)
    # 2) one level of the scale: closed with it, or the most probable one
    level = answer.closed
    if mode == "score" and shares:
        level = most_probable(shares)
    if level is None:
        return verdict
    if not question.order:
        return replace(verdict, failure=None, score=float(level))
    # 3) in a comparison the levels are the two responses
    choice = "b" if level else "a"
    if shares and shares[0] == shares[1]:
        choice = "tie"
    return replace(verdict, failure=None, choice=choice)


def distribution(
    logprobs: Mapping[int, float] | None, scores: Sequence[int]
) -> tuple[dict[int, float], float]:
    """Turn log-probabilities into a distribution over a scale.

    P = .09 of "1" and .81 of "2" are the shares .1 and .9 and the mass .9.

    Returns:
        Score -> its share of the scale's probability, and that probability (the mass). {} and NaN
        where a score has none, {} and 0 where all are 0.
    """
    values = [logprobs.get(score, NAN) for score in scores] if logprobs else []
    if not values or not all(value < math.inf for value in values):  # false for NaN, too
        return {}, NAN
    masses = list(map(math.exp, values))
    total = sum(masses)
    if total == 0:
        return {}, 0.0
    return {score: mass / total for score, mass in zip(scores, masses, strict=True)}, total
