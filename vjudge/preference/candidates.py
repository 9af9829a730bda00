"""What a policy answers to questions, and the candidates that its answers become."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from vjudge.data import check_pictures, rows_of
from vjudge.engines.engine import Answer
from vjudge.engines.progress import say
from vjudge.images import Pictures
from vjudge.judging.asking import Options, Question
from vjudge.judging.grading import collect
from vjudge.judging.judge import Judge
from vjudge.preference.rewards import check_texts
from vjudge.prompts import Prompt
from vjudge.records import unit_of

DRAWS = {"samples": 5, "temperature": 0.7, "top_p": 0.9}
"""How `draw` draws by default.

Source: LLaVA-Critic (arXiv 2410.02712), section on preference learning.
"""
WORK_TYPES = {"finished": bool, "n_prompt_tokens": int, "n_new_tokens": int, "seconds": float}
EARLIER = "response gold feedback human_scores true_scores ranks".split()


def prompt_of(policy: Judge, question: Mapping) -> Prompt:
    """What a policy reads: the question's images, if it sees any, then the plain instruction."""
    row = rows_of([question])[0]
    n_images = 0
    if policy.template.sees_images:
        n_images = len(row.get("images") or ())
    return policy.template.conversation.wrap(row["instruction"], n_images)


def respond(
    policy: Judge,
    questions: Any,
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
    """Have a policy answer the instruction of every question, without a judge's wording.

    Args:
        policy: any model that `load_judge` loads.
        questions: rows with id, instruction and images.
        samples, temperature, top_p, seed, batch_size, max_new_tokens, out, progress: as of
            `Judge.grade`.

    Returns:
        One row an answer, in the collection's order: id, policy, sample (from 0), response (None
        where there is none), failure (None or the reason; a blank answer is one), finished
        (whether the policy ended the answer itself), n_prompt_tokens, n_new_tokens, seconds,
        group. Failed and cut-off answers are counted on one line of stderr.

    Raises:
        ValueError: an unsound option. CollectionError: rows without an instruction or pictures.
        RunError: `out` holds another call.

    >>> import vjudge as vj
    >>> (question,) = vj.load_collection("scenes", split="test", limit=1)
    >>> policy = vj.load_judge("tiny-policy", device="cpu")
    >>> answers = vj.preference.respond(policy, [question], max_new_tokens=4, progress=False)
    >>> answers["n_new_tokens"].tolist()
    [4]
    """
    # 1) the questions, checked
    decoding: Any = {"max_new_tokens": max_new_tokens, "temperature": temperature, "top_p": top_p}
    options = Options(samples=samples, seed=seed, batch_size=batch_size, **decoding)
    ask = replace(options, unread="missing").ask(policy.template, None)
    rows = rows_of(questions)
    check_texts(rows, "instruction", "fill it in or leave the row out")
    if policy.template.sees_images:
        check_pictures(rows)

    # 2) each asked as often as samples say
    asked, groups = _asked(policy, rows, samples)
    note = {"policy": policy.name, "conversation": policy.template.conversation.name, "note": {}}
    answers = collect(
        policy.engine,
        asked,
        replace(ask, marker="", seeds=[question.seed(seed) for question in asked]),
        _record,
        {**note, "decoding": {**decoding, "samples": samples, "seed": seed}},
        out=out,
        progress=progress,
    )

    # 3) the table
    return _table(answers, policy.name, groups)


def _asked(policy: Judge, rows: Any, samples: int) -> tuple:
    """Ask each row's question as often as it is drawn, and list the group of each draw."""
    asked: list = []
    groups: list = []
    pictures = Pictures()
    for place, row in enumerate(rows):
        prompt = prompt_of(policy, row)
        shown = row.get("images") or ()
        images = list(map(pictures, shown[: prompt.n_images]))
        question = Question(place, str(row["id"]), prompt, images=images)
        asked += [replace(question, sample=sample) for sample in range(samples)]
        groups += [unit_of(row)] * samples
    return asked, groups


def _table(answers: Any, policy: str, groups: list) -> pd.DataFrame:
    """One row an answer; those that failed or were cut off are counted on stderr."""
    columns = ["id", "policy", "sample", "response", "failure", *WORK_TYPES]
    frame = pd.DataFrame(answers, columns=columns, dtype=object)
    frame = frame.astype({"sample": int, **WORK_TYPES}).assign(policy=policy, group=groups)
    remarks = Counter(frame["failure"].dropna())
    remarks["cut off by a limit"] = int((frame["failure"].isna() & ~frame["finished"]).sum())
    listed = ", ".join(f"{n} x {remark}" for remark, n in remarks.most_common() if n)
    if listed:
        say(f"of {len(frame)} answers {listed}")
    return frame


def _record(answer: Answer, _: Question) -> dict:
    """What is kept of an answer."""
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


def draw(policy: Judge, questions: Any, **options: Any) -> list:
    """Draw several answers of a policy to each question, as candidates.

    Args:
        policy, questions, options: as of `respond`; `DRAWS` are the defaults.

    Returns:
        A row a question with its own columns, such as a rubric, without those of earlier
        responses; `responses` (distinct, in the order drawn) and `times` (how often each was).
    """
    options = DRAWS | options
    answers = respond(policy, questions, **options)["response"]
    rows = []
    for index, question in enumerate(rows_of(questions)):
        offset = index * options["samples"]
        counts = Counter(answers[offset : offset + options["samples"]].dropna())
        cells = {name: value for name, value in question.items() if name not in EARLIER}
        rows.append({**cells, "responses": list(counts), "times": list(counts.values())})
    return rows
