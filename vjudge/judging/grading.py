"""Questions -> answers -> verdicts -> a table.

A `Call` (asking.py) holds the questions. `answer_questions` takes each answer from the record of
the run or from the engine, and `read` turns an answer into a record. Tables are made of records
alone, so that a continued run ends in the same table as an uninterrupted one. comparing.py makes
the tables of pairs.
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
"""The type of a run's column; columns that are not named here hold objects."""
JudgedRow: TypeAlias = tuple[list[Record], Record]
"""The records of a row's questions, and the cells of the row that its run repeats."""


def grade(call: Call) -> pd.DataFrame:
    """Make the table of `Judge.grade`."""
    records = answer_questions(call, "grade")
    frame = grade_table(group_by_row(call, records), call.judge.name, call.options)
    return announce(call, frame, records)


def group_by_row(call: Call, records: Records) -> list[JudgedRow]:
    """Group the records of a call's questions by the rows of its collection."""
    rows: list[JudgedRow] = [([], cells) for cells in call.cells]
    for question, record in zip(call.questions, records, strict=True):
        rows[question.row][0].append(record)
    return rows


def grade_table(rows: Sequence[JudgedRow], judge: str, options: Options) -> pd.DataFrame:
    """Make the table of graded rows: one row per row of the collection and sample.

    Args:
        rows: the records and the cells of each row.
        judge: its name.
        options: of the call; `load_run` knows `samples` and `orders` alone.
    """
    verdicts = []
    for records, cells in rows:
        scale = (cells["lowest"], cells["highest"])
        verdicts += [record | cells for record in join_criteria(records, scale)]
    frame = make_table(verdicts, judge)
    # leave out what only a record needs, and what is empty in all rows
    dropped = ["asked", "order", "unclosed"]
    if options.samples == 1:
        dropped.append("sample")
    rare = ["choice", "scores", "reasoning", "served_model", "remarks"]
    dropped += [name for name in rare if frame[name].isna().all()]
    return frame.drop(columns=dropped, errors="ignore")


def make_table(rows: Records, judge: str) -> pd.DataFrame:
    """Make a frame of rows whose first entry is the id; the judge's name becomes the second column.

    A missing value is NaN in a column of floats, None in a column of objects.
    """
    frame = pd.DataFrame(rows, dtype=object)
    frame = frame.where(frame.notna(), None)  # the columns of floats turn None into NaN again
    frame = frame.astype({name: kind for name, kind in COLUMN_DTYPES.items() if name in frame})
    frame.insert(1, "judge", judge)
    return frame


# -- questions -> answers -> records


def answer_questions(call: Call, kind: str) -> list[Record]:
    """Answer all questions of a call, and return the record of each, in their order.

    Args:
        call: the questions.
        kind: "grade" or "compare", noted in the manifest: `load_run` makes the table of that kind.
    """
    options = call.options
    template = call.template
    ask = call.ask
    decoding: Record = {}  # a score pass and a value head draw no tokens
    if ask.mode == "feedback":
        decoding = {name: getattr(ask, name) for name in DECODING}
        decoding["seed"] = options.seed
        decoding["unread"] = "close" if ask.closing else "missing"
    call_manifest = {
        "judge": call.judge.name,
        "mode": ask.mode,
        "decoding": decoding,
        "template": {"name": template.name, "fingerprint": template.fingerprint()},
        "note": {  # what `load_run` needs; it may differ between calls of one run
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
    """Take each question's record from the run in `out`, otherwise ask the engine and write it.

    Args:
        engine: answers the questions.
        questions: what is asked.
        ask: the sampling parameters, and the scale and the seed of each question.
        reader: makes a record of an answer.
        call_manifest: the run's manifest without the engine's entries.
        out: the run's folder; None keeps no record.
        progress: whether to show a bar.
        cells_of_rows: the cells of each row that the run repeats, for `load_run`; () where no table
            is made of the run.

    Returns:
        The record of each question, in their order.
    """
    # 1) what earlier calls recorded: index of a question -> its record
    keys = list(map(verdict_key, questions)) if out is not None else []
    with _recording(out, engine, call_manifest, _rows(questions, keys, cells_of_rows)) as run:
        recorded = run.done if run else {}
        done = {index: recorded[key] for index, key in enumerate(keys) if key in recorded}
        missing = set(range(len(questions))) - done.keys()
        n_unused = len(recorded) - len(done)  # of rows that this call lacks or asks otherwise
        if n_unused or (done and missing):
            unused = f"{n_unused} kept in the record but not in this call"
            say(f"{out}: reused {len(done)}, new {len(missing)}, {unused}")

        # 2) what the engine answers; each batch is saved at once, so that a crash loses one at most
        prompts = [question.prompt for question in questions]
        images = [question.images for question in questions]
        with progress_bar(len(questions), len(done), show=progress) as bar:
            for answers in engine.answer(prompts, images, ask, missing) if missing else ():
                lasting = []  # records to write
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
    """Return the entries by which the record of a question differs from others of its row."""
    names: Record = {"id": question.id, "sample": question.sample, "order": question.order}
    if question.criterion:
        names["criterion"] = question.criterion
    return names


@contextmanager
def _recording(
    out: str | Path | None, engine: Engine, call_manifest: Record, rows: Records
) -> Iterator[Run | None]:
    """Open the run in the folder `out` for writing, and write the rows of the call there.

    Args:
        out: the run's folder, or None.
        engine: its identity completes the manifest.
        call_manifest: the other entries of the manifest.
        rows: for `Run.keep`.

    Yields:
        The run; None where `out` is None.
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
    """List what `Run.keep` writes: each row's id, the keys of its verdicts, and its cells.

    Args:
        questions: of the call.
        keys: the `verdict_key` of each question; [] where nothing is recorded.
        cells_of_rows: the cells of each row of the collection.
    """
    rows: dict[int, Record] = {}
    for question, key in zip(questions, keys, strict=False):  # no keys, no rows
        if cells_of_rows:  # without cells, no table is made of the run
            row = {"id": question.id, "asked": [], "cells": cells_of_rows[question.row]}
            rows.setdefault(question.row, row)["asked"].append(key)
    return list(rows.values())


def verdict_key(question: Question) -> str:
    """Digest what a verdict depends on beside the manifest: the question and its images' content.

    A run finds its verdicts by this key, those that an older version wrote included. The names and
    the order of the fields of `Question`, `Prompt` and `Rubric` are part of it: don't change them.
    """
    # the same row at another position is the same question
    depends_on: tuple = (replace(question, row=0), [image.key for image in question.images])
    if question.criterion:
        depends_on += (question.criterion,)
    return hashlib.sha256(repr(depends_on).encode()).hexdigest()


# -- an answer -> a record


def read(answer: Answer, question: Question, *, mode: str, format: str) -> Record:
    """Read one answer into a record, whose entries are in the order of the table's columns.

    A missing number is NaN; any other missing entry is None.

    Args:
        answer: of the engine.
        question: what it answers.
        mode: "feedback", "score" or "value".
        format: how the template's answers are parsed.
    """
    # 1) the verdict that the answer states; where it states none, the one that the distribution
    # over the scale decides
    shares, mass = distribution(answer.score_logprobs, question.scores)
    verdict = verdict_of(answer, question, mode=mode, format=format)
    closed = False
    if verdict.failure and not answer.failure:
        verdict = decide(verdict, answer, question, shares, mode)
        closed = mode == "feedback" and not verdict.failure

    # 2) the distribution over the scale, kept only with a verdict that is on the scale
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
    """Read the verdict that an answer states; one without a score or choice holds the reason.

    A score pass states none by itself: `decide` chooses it, and the failure is that of an answer
    without a distribution.
    """
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
            return Verdict(answer.value, "", answer.text)  # score, feedback, raw
        failure = "the value head gave no finite number"
    return Verdict(NAN, "", answer.text, failure or "no score of the rubric has a probability")


def decide(
    verdict: Verdict,
    answer: Answer,
    question: Question,
    shares: Mapping[int, float],
    mode: str,
) -> Verdict:
    """Give an answer that states no verdict the one that the distribution over its scale decides.

    In a score pass that is the most probable score, the lowest of equally probable ones. In other
    modes the engine may have closed the answer, with one score or with one per criterion. In a
    comparison the scores 0 and 1 choose the first and the second response, and equal shares are a
    tie.

    Args:
        verdict: what `verdict_of` read, with a failure.
        answer, question: of this verdict.
        shares: score -> its share of the scale's probability; {} where there is no distribution.
        mode: "feedback", "score" or "value".

    Returns:
        The decided verdict, without a failure; the same verdict where nothing decides it.
    """
    # 1) closed with a score for each named criterion
    scores = answer.closed_scores
    if scores and question.rubric:
        mean = question.rubric.combined(scores)
        return replace(verdict, failure=None, score=mean, scores=scores)
    # 2) one level of the scale: the one that the answer was closed with, or the most probable one
    level = answer.closed
    if mode == "score" and shares:
        level = most_probable(shares)
    if level is None:
        return verdict
    if not question.order:  # an item, whose levels are scores
        return replace(verdict, failure=None, score=float(level))
    # 3) in a comparison the levels are the two responses
    choice = "b" if level else "a"
    if shares and shares[0] == shares[1]:
        choice = "tie"
    return replace(verdict, failure=None, choice=choice)


def distribution(
    logprobs: Mapping[int, float] | None, scores: Sequence[int]
) -> tuple[dict[int, float], float]:
    """Turn the log-probabilities of scores into a distribution over their scale.

    The probabilities .09 of "1" and .81 of "2" give the shares {1: .1, 2: .9} and the mass .9.

    Args:
        logprobs: score -> log-probability in the whole vocabulary; None where there are none.
        scores: the scale.

    Returns:
        Score -> its share of the scale's probability, and that probability (the mass). {} and NaN
        where some score has no log-probability, {} and 0 where all probabilities are 0.
    """
    values = [logprobs.get(score, NAN) for score in scores] if logprobs else []
    if not values or not all(value < math.inf for value in values):  # false for NaN, too
        return {}, NAN
    masses = list(map(math.exp, values))
    total = sum(masses)
    if total == 0:
        return {}, 0.0
    return {score: mass / total for score, mass in zip(scores, masses, strict=True)}, total
