"""Policy: a vision-language model that answers instructions, without any judge's wording around them.

Its answers are a run, as a judge's verdicts are. Several to each question are the candidates that a judge rewards.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from vjudge.calls import Images, check_ask, check_rows, collect, seed_of
from vjudge.data import check_pictures, rows_of
from vjudge.engines.engine import Answer, Ask
from vjudge.judge import load_judge
from vjudge.prompts import Conversation, Prompt
from vjudge.records import unit_of

if TYPE_CHECKING:
    from vjudge.engines import Engine

DRAWS = {"samples": 5, "temperature": 0.7, "top_p": 0.9}
"""How `draw` draws unless told otherwise: as LLaVA-Critic (arXiv 2410.02712), section on preference learning."""
_COLUMNS: dict[str, Any] = {
    **{"id": object, "sample": "int64", "response": object, "failure": object, "finished": bool},
    **{"n_prompt_tokens": "int64", "n_new_tokens": "int64", "seconds": "float64"},
}


@dataclass(frozen=True)
class Policy:
    """A model that answers instructions about images: its name in tables, its engine, and the words around them."""

    name: str
    engine: Engine
    conversation: Conversation
    sees_images: bool = True  # one that does not is given the instruction alone

    def prompt(self, question: Mapping[str, Any]) -> Prompt:
        """What goes to the engine for one question: its images, then its instruction as plain text."""
        n_images = len(question.get("images") or ()) if self.sees_images else 0
        return self.conversation.wrap(question["instruction"], n_images)

    def render(self, question: Mapping[str, Any]) -> str:
        """The prompt as text; "<image>" stands where an image goes."""
        return self.prompt(rows_of([question])[0]).text

    def respond(
        self,
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
        """Answer every question of a collection; options, and what is raised, are as of `Judge.grade`.

        Args:
            questions: rows with `id`, `images` and `instruction`; what else they hold is not shown to the policy.

        Returns:
            One row an answer, in the collection's order: id, policy, sample (from 0), response (None where there is
            none), failure (None or the reason; a blank answer is one), finished (whether the policy ended the answer
            itself), n_prompt_tokens, n_new_tokens, seconds, group. What failed or was cut off is said on one line.
        """
        decoding: dict[str, Any] = {"max_new_tokens": max_new_tokens, "temperature": temperature, "top_p": top_p}
        ask = Ask(batch_size=batch_size, **decoding)
        check_ask(ask, samples=samples, seed=seed)
        rows = rows_of(questions)
        sound = [isinstance(row.get("instruction"), str) and row["instruction"].strip() != "" for row in rows]
        check_rows(rows, "instruction", sound, "is missing or blank", "fill it in or leave the row out")
        if self.sees_images:
            check_pictures(rows)
        prompts = [prompt for row in rows for prompt in [self.prompt(row)] * samples]
        keys = [(str(row["id"]), sample) for row in rows for sample in range(samples)]
        about: dict[str, Any] = {"policy": self.name, "conversation": self.conversation.name, "note": {}}
        about |= {"decoding": {**decoding, "samples": samples, "seed": seed}}
        images = Images(rows, samples if self.sees_images else 0)
        ask = replace(ask, seeds=[seed_of(seed, *key) for key in keys])
        request = (self.engine, prompts, images, ask, keys, _record, about)
        answers = collect(*request, unit="answer", out=out, progress=progress)
        frame = pd.DataFrame(answers, columns=list(_COLUMNS)).astype(_COLUMNS)
        frame.insert(1, "policy", self.name)
        frame["group"] = [unit_of(row) for row in rows for _ in range(samples)]
        reasons = dict(Counter(frame["failure"].dropna()))
        n_cut = int((~frame["finished"] & frame["failure"].isna()).sum())
        remarks = [f"{sum(reasons.values())} of {len(frame)} answers failed: {reasons}"] if reasons else []
        remarks += [f"{n_cut} of {len(frame)} answers were cut off by a limit"] if n_cut else []
        if remarks:
            print("; ".join(remarks), file=sys.stderr)
        return frame


def _record(answer: Answer) -> dict[str, Any]:
    """One answer as the run keeps it, without its key."""
    text = answer.text.strip()
    failure = answer.failure or (None if text else "the answer is blank")
    own = {name: getattr(answer, name) for name in ("n_prompt_tokens", "n_new_tokens", "seconds")}
    return {"response": None if failure else text, "failure": failure, **own, "finished": answer.stopped}


def load_policy(name_or_path: str | Path, *, name: str | None = None, **options: Any) -> Policy:
    """Load a policy, any model that `load_judge` loads, in its family's conversation; the options are `load_judge`'s.

    >>> import vjudge as vj
    >>> policy = vj.preference.load_policy("tiny", device="cpu")
    >>> (question,) = vj.load_collection("scenes", split="test", limit=1)
    >>> policy.respond([question], max_new_tokens=4, progress=False)["n_new_tokens"].tolist()
    [4]
    """
    loaded = load_judge(name_or_path, **options)
    words, sees = loaded.template.conversation, loaded.template.sees_images
    return Policy(name or str(name_or_path), engine=loaded.engine, conversation=words, sees_images=sees)


def draw(policy: Policy, questions: Any, **options: Any) -> list[dict[str, Any]]:
    """Draw candidates, several answers of a policy to each question, by `DRAWS` and the options of `Policy.respond`.

    It returns a row a question: its own columns, such as a rubric, without those of an earlier response; `responses`
    (distinct, in the order drawn) and `times` (how often each was drawn).
    """
    options, earlier = DRAWS | options, ("response", "gold", "feedback", "human_scores")
    answers, rows = policy.respond(questions, **options)["response"], []
    for place, question in enumerate(rows_of(questions)):
        counts = Counter(answers[place * options["samples"] : (place + 1) * options["samples"]].dropna())
        own = {name: value for name, value in question.items() if name not in earlier}
        rows.append({**own, "responses": list(counts), "times": list(counts.values())})
    return rows
