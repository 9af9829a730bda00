"""Draw a policy's responses to questions; several distinct ones to a question are candidates."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from vjudge.data import CollectionError, Problem, check_pictures, rows_of
from vjudge.data.checks import check_rows
from vjudge.data.schema import Items, Row
from vjudge.engines.engine import Answer
from vjudge.engines.progress import say
from vjudge.images import ImageError, Pictures
from vjudge.judging.asking import Options, Question
from vjudge.judging.grading import collect
from vjudge.judging.judge import Judge
from vjudge.prompts import Prompt
from vjudge.records import text_of, unit_of

DRAWS = {"samples": 5, "temperature": 0.7, "top_p": 0.9}
"""The default options of `draw`.

Source: LLaVA-Critic (arXiv 2410.02712), section on preference learning.
"""
# the columns of an answer that say how it was written -> their types
WORK_TYPES = {"finished": bool, "n_prompt_tokens": int, "n_new_tokens": int, "seconds": float}
# Columns of a collection that belong to earlier responses, not to the question.
OF_EARLIER_RESPONSES = "response gold feedback human_scores true_scores ranks".split()


def prompt_of(policy: Judge, question: Row) -> Prompt:
    """Make the prompt of a policy: the question's images, if it sees any, and the instruction."""
    row = rows_of([question])[0]
    n_images = 0
    if policy.template.sees_images:
        n_images = len(row.get("images") or ())
    return policy.template.conversation.wrap(row["instruction"], n_images)


def respond(
    policy: Judge,
    questions: Items,
    *,
    samples: int = 1,
    temperature: float = 0.0,
    top_p: float = 1.0,
    seed: int = 0,
    batch_size: int | str = "auto",
    max_new_tokens: int = 1024,
    out: str | Path | None = None,
    progress: bool = True,
) -> pd.DataFrame:
    """Have a policy answer the instruction of every question, without a judge's prompt template.

    Args:
        policy: any model that `load_judge` loads.
        questions: rows with id, instruction and images.
        samples, temperature, top_p, seed, batch_size, max_new_tokens, out, progress: as in
            `Judge.grade`.

    Returns:
        One row per answer, in the collection's order:

        - id, policy, sample (from 0), group;
        - response: the text, None where there is none;
        - failure: None or the reason; a blank answer is a failure;
        - finished: whether the policy ended the answer itself, before a limit did;
        - n_prompt_tokens, n_new_tokens, seconds.

        Failed and truncated answers are counted on one line of stderr.

    Raises:
        ValueError: an invalid option.
        CollectionError: rows without an instruction or images.
        RunError: `out` holds another call.

    >>> import vjudge as vj
    >>> (question,) = vj.load_collection("scenes", split="test", limit=1)
    >>> policy = vj.load_judge("tiny-policy", device="cpu")
    >>> answers = vj.preference.respond(policy, [question], max_new_tokens=4, progress=False)
    >>> answers["n_new_tokens"].tolist()
    [4]
    """
    # 1) check options and rows before the long work starts
    decoding: Any = {"max_new_tokens": max_new_tokens, "temperature": temperature, "top_p": top_p}
    options = Options(samples=samples, seed=seed, batch_size=batch_size, **decoding)
    sampling = replace(options, unread="missing").ask(policy.template, None)
    rows = rows_of(questions)
    check_texts(rows, "instruction")
    if policy.template.sees_images:
        check_pictures(rows)

    # 2) ask each question `samples` times, each time from its own seed; without a prompt template
    #    there is no marker behind which a verdict would stand
    asked, groups = _asked(policy, rows, samples)
    manifest = {
        "policy": policy.name,
        "conversation": policy.template.conversation.name,
        "note": {},
        "decoding": {**decoding, "samples": samples, "seed": seed},
    }
    answers = collect(
        policy.engine,
        asked,
        replace(sampling, marker="", seeds=[question.seed(seed) for question in asked]),
        _record,
        manifest,
        out=out,
        progress=progress,
    )
    return _table(answers, policy.name, groups)


def _asked(policy: Judge, rows: Sequence[Row], samples: int) -> tuple[list[Question], list[str]]:
    """Make the questions that a policy is asked: one per row and sample, in this order.

    Returns:
        The questions, and the group of each.
    """
    asked: list[Question] = []
    groups: list[str] = []
    open_image = Pictures()
    for index, row in enumerate(rows):
        prompt = prompt_of(policy, row)
        sources = row.get("images") or ()
        images = [open_image(source) for source in sources[: prompt.n_images]]
        question = Question(index, str(row["id"]), prompt, images=images)
        asked += [replace(question, sample=sample) for sample in range(samples)]
        groups += [unit_of(row)] * samples
    return asked, groups


def _table(answers: Sequence[dict], policy: str, groups: list[str]) -> pd.DataFrame:
    """Make the table of `respond`; count failed and truncated answers on stderr.

    Args:
        answers: the cells of each answer, as `_record` makes them, with id and sample.
        policy: its name.
        groups: the group of each answer.
    """
    columns = ["id", "policy", "sample", "response", "failure", *WORK_TYPES]
    table = pd.DataFrame(answers, columns=columns, dtype=object)
    table = table.astype({"sample": int, **WORK_TYPES}).assign(policy=policy, group=groups)
    counts = Counter(table["failure"].dropna())
    counts["cut off by a limit"] = int((table["failure"].isna() & ~table["finished"]).sum())
    remarks = ", ".join(f"{n} x {remark}" for remark, n in counts.most_common() if n)
    if remarks:
        say(f"of {len(table)} answers {remarks}")
    return table


def _record(answer: Answer, _: Question) -> dict[str, Any]:
    """Turn an engine's answer into the cells that are recorded.

    The second argument, the question, is not used: `collect` passes it to every such function.
    """
    text = answer.text.strip()
    failure = answer.failure
    if failure is None and not text:
        failure = "the answer is blank"
    return {
        "response": text if failure is None else None,
        "failure": failure,
        "finished": answer.finish == "stop",
        "n_prompt_tokens": answer.n_prompt_tokens,
        "n_new_tokens": answer.n_new_tokens,
        "seconds": answer.seconds,
    }


def draw(policy: Judge, questions: Items, **options: Any) -> list[dict[str, Any]]:
    """Draw several answers of a policy to each question, as candidates.

    Args:
        policy, questions, options: as in `respond`; `DRAWS` are the defaults.

    Returns:
        One row per question, with its own columns, such as a rubric, but without those of earlier
        responses; `responses` (distinct, in the order drawn) and `times` (how often each was).
    """
    options = DRAWS | options
    answers = respond(policy, questions, **options)["response"]
    n_samples = options["samples"]
    rows = []
    for index, question in enumerate(rows_of(questions)):
        start = index * n_samples  # answers are in the order of questions, all samples of each
        counts = Counter(answers[start : start + n_samples].dropna())
        cells = {
            name: value for name, value in question.items() if name not in OF_EARLIER_RESPONSES
        }
        rows.append({**cells, "responses": list(counts), "times": list(counts.values())})
    return rows


# --- checks of rows that a policy answers or is trained on


def check_texts(rows: Sequence[Row], column: str) -> None:
    """Raise CollectionError, naming all rows whose text in a column is missing or blank."""
    has_text = [text_of(row, column) is not None for row in rows]
    remedy = "fill it in or leave the row out"
    check_rows(rows, column, has_text, "is missing or blank", remedy)


def checked(
    items: Items, texts: Sequence[str] = ("instruction", "chosen", "rejected")
) -> list[dict[str, Any]]:
    """Check rows to train on, and return them with `images` as a list.

    Args:
        items: the rows.
        texts: columns that must hold a text in every row.

    Raises:
        CollectionError: there are no rows, or rows lack one of the `texts` or have an image that
            can't be opened.
    """
    rows = rows_of(items)
    if not len(rows):
        raise CollectionError(
            "there are no rows to train on: of pairs see attrs['left_out'] of make_pairs"
        )
    check_pictures(rows)
    for column in texts:
        check_texts(rows, column)
    open_image = Pictures()
    problems = []
    for index, row in enumerate(rows):
        for source in row.get("images") or ():
            try:
                open_image(source)
            except ImageError as error:  # its message is "reason; remedy"
                reason, _, remedy = str(error).rpartition("; ")
                problems.append(Problem(index, str(row.get("id")), "images", reason, remedy))
    if problems:
        raise CollectionError.of_rows(problems, len(rows))
    return [{**row, "images": list(row.get("images") or ())} for row in rows]
