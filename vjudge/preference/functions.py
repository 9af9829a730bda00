"""Reward functions for trainers: a judge's verdict on an answer, or how right a verdict is.

    reward = preference.reward_function(judge)
    trl.GRPOTrainer(..., reward_funcs=reward)           # or `preference.grpo`, for any architecture
    reward.counts                                       # what had no verdict, and why

verl and OpenRLHF hand over a label alone: it is the id of a row in `rows`.

    reward = preference.reward_function(judge, rows=items, missing=0.0)
    compute_score = reward.verl                         # custom_reward_function.name, of verl
    def reward_func(queries, prompts, labels):          # reward.remote_url, of OpenRLHF
        return reward.openrlhf(queries, prompts, labels, end="<|im_end|>")

Source: huggingface/trl 1.16 trl/trainer/grpo_trainer.py; verl-project/verl@b178a3c
verl/workers/reward_manager/naive.py and batch.py; OpenRLHF/OpenRLHF@3c3be62
openrlhf/utils/agent.py.
"""

from __future__ import annotations

import hashlib
import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from threading import Lock
from typing import Any, Literal

import pandas as pd

from vjudge.data import rows_of, validate
from vjudge.data.checks import check_rows
from vjudge.images import Pictures
from vjudge.judging.candidates import LEFT_OUT
from vjudge.judging.judge import Judge, JudgeLike
from vjudge.prompts import Prompt, Template, families
from vjudge.prompts.parse import parse
from vjudge.records import NAN, Item, Pair

TRUTHS = {"gold": "gold", "people": "human_scores"}
TAIL = 32  # characters at the end of a prompt by which OpenRLHF's answers are cut off
MISSING: tuple[float, list[str]] = (NAN, ["no verdict: the completion is blank"])
UNUSED = ("completion_ids", "trainer_state", "log_extra", "environments")  # of TRL


class Reward(ABC):
    """A reward of each completion; None, or `missing`, where there is none.

    Args:
        rows: what labels refer to by id, for verl and OpenRLHF.
        missing: the reward of a completion without one. TRL takes None and leaves such a completion
            out of its group; verl and OpenRLHF take numbers alone.
    """

    def __init__(self, rows: Any = None, missing: float | None = None) -> None:
        self.missing = missing
        self.tally = Counter[str]()
        self.lock = Lock()  # verl and OpenRLHF call from several threads
        self.by_id = {}
        for row in () if rows is None else rows_of(rows):
            self.by_id[str(row["id"])] = dict(row)

    @property
    def counts(self) -> pd.DataFrame:
        """Completions so far, and their outcomes: one row each with its number, n."""
        return pd.DataFrame({"n": dict(self.tally)}, dtype=int).rename_axis("outcome")

    @abstractmethod
    def check(self, rows: Sequence[Mapping]) -> None:
        """Refuse rows that can't be rewarded, all of them: CollectionError."""

    @abstractmethod
    def values(self, rows: Sequence[Mapping], answers: Sequence[str]) -> list[float]:
        """The reward of each row's answer, NaN where there is none; counts outcomes."""

    def __call__(
        self,
        prompts: Sequence,
        completions: Sequence,
        log_metric: Callable[[str, float], None] | None = None,
        **columns: Any,
    ) -> list[float | None]:
        """The rewards as TRL asks for them.

        Args:
            prompts: texts or conversations; the instruction where there is no such column.
            completions: texts or conversations; a verdict is given on the last turn.
            log_metric: TRL's; the share without a reward is logged as "rewards/missing".
            columns: those of the data set: image or images, criteria and so on.
        """
        rows = []
        for index, prompt in enumerate(prompts):
            instruction, pictures = _turn(prompt)
            row = {"id": str(index), "instruction": instruction, "images": pictures}
            for name, cells in columns.items():
                if name not in UNUSED:
                    row[name] = cells[index]
            if "image" in columns:
                del row["images"]
            rows.append(row)
        answers = [_turn(completion)[0] for completion in completions]
        values = self._valued(rows_of(rows), answers)
        if log_metric is not None:
            n_missing = sum(map(math.isnan, values))
            log_metric("rewards/missing", n_missing / max(1, len(values)))
        return self._filled(values)

    def verl(self, **call: Any) -> Any:
        """The rewards as verl asks for them, of one answer or of a batch.

        Args:
            call: solution_str and ground_truth, or solution_strs and ground_truths: answers, and
                ids in `rows`. The others of verl's arguments are not used.
        """
        if "solution_str" in call:
            return self._by_id([call["ground_truth"]], [call["solution_str"]])[0]
        return self._by_id(call["ground_truths"], call["solution_strs"])

    def openrlhf(
        self, queries: Sequence[str], prompts: Sequence[str], labels: Sequence, *, end: str = ""
    ) -> dict:
        """The rewards as OpenRLHF asks for them.

        Args:
            queries: prompts with their answers, control tokens and images' places spelled out.
            prompts: without the answers.
            labels: ids in `rows`.
            end: the control token that ends an answer, which is cut off.

        ValueError: a query without its prompt.
        """
        import torch

        answers = []
        for query, prompt in zip(queries, prompts, strict=True):
            # Images take more places in the query, so that the end of the prompt is looked for.
            tail = prompt[-TAIL:]
            pieces = query.split(tail, prompt.count(tail))
            if len(pieces) <= prompt.count(tail):
                raise ValueError(f"a query does not hold the end of its prompt, {tail!r}")
            answers.append(pieces[-1].removesuffix(end))
        rewards = torch.tensor(self._by_id(labels, answers))  # (queries,)
        return {"rewards": rewards, "scores": rewards, "extra_logs": {}}

    def _by_id(self, labels: Sequence, answers: Sequence[str]) -> list:
        """Rewards of answers to rows that labels name."""
        if self.missing is None:
            raise ValueError("missing=: say what a completion without a reward gets, such as 0.0")
        unknown = [label for label in labels if str(label) not in self.by_id]
        if unknown:
            raise ValueError(f"the label {unknown[0]!r} is no id of rows=")
        return self._filled(self._valued([self.by_id[str(label)] for label in labels], answers))

    def _valued(self, rows: Sequence[Mapping], answers: Sequence[str]) -> list[float]:
        """`values`, one caller at a time, each completion counted."""
        with self.lock:
            values = self.values(rows, answers)
            self.tally["completions"] += len(values)
        return values

    def _filled(self, values: Sequence[float]) -> list[float | None]:
        """Rewards with `missing` in place of NaN."""
        return [self.missing if math.isnan(value) else value for value in values]


def _turn(turns: Any) -> tuple[str, list]:
    """The text and the pictures of a prompt or completion: of a conversation its last turn."""
    content = turns if isinstance(turns, str) else turns[-1]["content"]
    if isinstance(content, str):
        return content, []
    texts = [part["text"] for part in content if part["type"] == "text"]
    return "\n".join(texts), [part["image"] for part in content if part["type"] == "image"]


class JudgeReward(Reward):
    """See `reward_function`."""

    def __init__(self, judge: JudgeLike, rows: Any, missing: float | None, options: dict) -> None:
        super().__init__(rows, missing)
        self.judge = judge
        self.options = {"progress": False, **options}
        self.pictures = Pictures()
        self.graded = {"": MISSING}  # key -> reward, and its outcomes
        self.__name__ = judge.name  # what TRL's log calls it

    def check(self, rows: Sequence[Mapping]) -> None:
        """See `Reward.check`."""
        self.judge.plan([_item(row, "A response.") for row in rows])

    def values(self, rows: Sequence[Mapping], answers: Sequence[str]) -> list[float]:
        """See `Reward.values`."""
        # 1) the questions, each under a key of all that its verdict depends on
        keys = []
        new = {}
        for row, answer in zip(rows, answers, strict=True):
            item = _item(row, answer.strip())
            key = self._key(item) if answer.strip() else ""
            keys.append(key)
            if key and math.isnan(self.graded.get(key, MISSING)[0]):  # failures may pass
                new[key] = item | {"id": key}

        # 2) the judge grades each new one once
        if new:
            run = self.judge.grade(list(new.values()), **self.options)
            if run["id"].tolist() != list(new):
                raise ValueError("a reward is one verdict on each completion: leave samples= out")
            for record in run.to_dict("records"):
                self.graded[record["id"]] = _outcome(record)

        # 3) a reward for each completion
        self.tally["questions put to the judge"] += len(new)
        for key in keys:
            self.tally.update(self.graded[key][1])
        return [self.graded[key][0] for key in keys]

    def _key(self, row: Mapping) -> str:
        item = Item.from_row(row)
        judged = replace(
            item,
            id="",
            group="",
            images=self._contents(item.images),
            response_images=self._contents(item.response_images),
            gold=NAN,
            feedback=None,
            human_scores=(),
        )
        return hashlib.sha256(repr(judged).encode("utf-8", "surrogatepass")).hexdigest()

    def _contents(self, sources: Sequence) -> tuple[str, ...]:
        """A key of each picture, equal for equal contents."""
        return tuple(self.pictures(source).key for source in sources)


def _item(row: Mapping, response: str) -> dict:
    """A question with one response; other ones that its row may hold are left out."""
    shared = {name: cell for name, cell in row.items() if name not in LEFT_OUT}
    return shared | {"response": response}


def _outcome(record: Mapping) -> tuple[float, list[str]]:
    """The reward by a verdict, and what is counted of it."""
    if math.isnan(record["score"]):
        return NAN, [f"no verdict: {record.get('failure') or 'the judge abstained'}"]
    outcomes = ["closed"] if record.get("closed") else []
    expected = record.get("expected_score", NAN)
    if math.isnan(expected):
        return record["score"], [*outcomes, "a score without a distribution"]
    return expected, [*outcomes, "an expected score"]


def reward_function(
    judge: JudgeLike, *, rows: Any = None, missing: float | None = None, **options: Any
) -> JudgeReward:
    """A judge as the reward function of a trainer: TRL's, verl's or OpenRLHF's.

    An answer's reward is its expected score where there is one, else its score. A question that is
    equal to one before, down to the pixels, is not put to the judge again.

    Args:
        judge: a `Judge`, a panel, or a judge of your own; it grades answers one by one.
        rows, missing: for verl and OpenRLHF, see `Reward`; `missing` is what a completion without
            a verdict gets, None for TRL.
        options: of `Judge.grade`; with `out`, a new process asks for nothing that is recorded.

    Returns:
        What TRL calls; its `verl` and `openrlhf` are what those call. `counts` says what became of
        the completions.

    >>> import vjudge as vj
    >>> (row,) = vj.load_collection("scenes", split="test", limit=1)
    >>> columns = {name: [row[name]] * 3 for name in ("images", "criteria", "descriptions")}
    >>> reward = reward_function(vj.load_judge("tiny", device="cpu"))
    >>> answers = [row["response"], row["response"], ""]
    >>> [known is not None for known in reward([row["instruction"]] * 3, answers, **columns)]
    [True, True, False]
    >>> int(reward.counts.loc["questions put to the judge", "n"])
    1
    """
    return JudgeReward(judge, rows, missing, options)


class VerdictReward(Reward):
    """See `verdict_reward`."""

    def __init__(
        self, template: Template, truth: str, form: float, rows: Any, missing: float | None
    ) -> None:
        super().__init__(rows, missing)
        self.template = template
        self.truth = truth
        self.form = form
        self.__name__ = "verdict"

    def prompt(self, judge: Judge, row: Mapping) -> Prompt:
        """What a judge that learns reads of a row, in its own conversation."""
        if self.template.compares:
            return judge.wording_of_pairs().render(Pair.from_row(row))
        return judge.template.render(Item.from_row(row))

    def check(self, rows: Sequence[Mapping]) -> None:
        """See `Reward.check`."""
        template = self.template
        validate(
            rows,
            needs=template.needs,
            sees_images=template.sees_images,
            pairs=template.compares,
        )
        name = "preference" if template.compares else TRUTHS[self.truth]
        sound = [self._truth(self._subject(row)) is not None for row in rows]
        check_rows(rows, name, sound, "is missing", "fill it in or leave the row out")

    def values(self, rows: Sequence[Mapping], answers: Sequence[str]) -> list[float]:
        """See `Reward.values`."""
        values = []
        for row, answer in zip(rows, answers, strict=True):
            # 1) the verdict, where the answer has the wording's form and ended by itself
            subject = self._subject(row)
            rubric = subject.rubric
            scale = (0, 1) if self.template.compares else self.template.scores(rubric)
            verdict = parse(
                answer,
                scores=scale,
                format=self.template.format,
                finish=row.get("finish") or "stop",
                rubric=rubric,
            )
            # 2) how right it is, from 0 to 1
            truth = self._truth(subject)
            if truth is None:
                values.append(NAN)
                self.tally["no truth"] += 1
                continue
            closeness = 0.0
            if isinstance(truth, str):
                closeness = float(verdict.choice == truth)
            elif verdict.failure is None:
                lowest, highest = (
                    rubric.bounds if rubric and rubric.named else (scale[0], scale[-1])
                )
                closeness = 1 - abs(verdict.score - truth) / (highest - lowest)
            # 3) both parts
            formed = verdict.failure is None
            values.append(self.form * formed + (1 - self.form) * closeness)
            self.tally["in the right form" if formed else f"no verdict: {verdict.failure}"] += 1
            self.tally["right"] += closeness == 1
        return values

    def _subject(self, row: Mapping) -> Item | Pair:
        return Pair.from_row(row) if self.template.compares else Item.from_row(row)

    def _truth(self, subject: Item | Pair) -> float | str | None:
        """The score or the preference that is right; None where there is none."""
        if isinstance(subject, Pair):
            return subject.preference
        scores = [subject.gold] if self.truth == "gold" else subject.human_scores
        scores = [score for score in scores if not math.isnan(score)]
        return sum(scores) / len(scores) if scores else None


def verdict_reward(
    template: Template | str,
    *,
    truth: Literal["gold", "people"] = "gold",
    form: float = 0.1,
    rows: Any = None,
    missing: float | None = None,
) -> VerdictReward:
    """The reward of a judge that learns: a right verdict in the right form.

    It is form * F + (1 - form) * V. F is 1 where the answer holds a verdict that can be read, else
    0. V of a preference is 1 where it is the right one, else 0; of a score 1 - |score - truth| /
    (highest - lowest), without a verdict 0.

        truth 4 of 1 to 5, "[RESULT] 3":  .1 * 1 + .9 * (1 - 1/4) = .775

    Args:
        template: the wording that the judge learns, a `Template` or a name in
            `vjudge.prompts.TEMPLATES`; with one for pairs, `preference` is the truth.
        truth: "gold", or "people" for the mean of `human_scores`, not rounded.
        form: the weight of the form, from 0 to 1.
        rows, missing: as of `reward_function`; a row without a truth has no reward.

    Returns:
        What `vjudge.preference.grpo` takes in place of a judge, and TRL, verl and OpenRLHF.
        `counts` says how many verdicts were formed and right.

    Source: LLaVA-Critic-R1, si0wang/LLaVA-Critic-R1@6fd42d1
    EasyR1/examples/reward_function/math.py, whose weight of the form is .1 and whose V knows right
    and wrong alone.

    >>> reward = verdict_reward("prometheus-vision")
    >>> row = {"criteria": ["Is it right?"], "descriptions": [list("abcde")], "gold": [4.0]}
    >>> values = reward(["What?"], ["So. [RESULT] 3"], response=["A cat."], **row)
    >>> round(values[0], 3)
    0.775
    """
    if truth not in TRUTHS:
        raise ValueError(f'truth={truth!r}: use "gold" or "people"')
    if not 0 <= form <= 1:
        raise ValueError(f"form={form!r}: use a number from 0 to 1")
    return VerdictReward(families.wording(template), truth, form, rows, missing)
