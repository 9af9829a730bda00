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
from typing import Any, Literal, NamedTuple

import pandas as pd

from vjudge.data import rows_of, validate
from vjudge.data.checks import check_rows
from vjudge.data.schema import Items, Row
from vjudge.images import Pictures
from vjudge.judging.candidates import LEFT_OUT
from vjudge.judging.judge import Judge, JudgeLike
from vjudge.prompts import Prompt, Template, families
from vjudge.prompts.parse import parse
from vjudge.records import NAN, Item, Pair, Verdict

PROMPT_TAIL = 32  # characters at the end of a prompt that separate it from OpenRLHF's answer
# arguments of a reward function that are no columns of the data set
NOT_COLUMNS = ("completion_ids", "trainer_state", "log_extra", "environments")  # TRL's own


class Reward(ABC):
    """A reward of each completion; None, or `missing`, where there is none.

    Args:
        rows: what labels refer to by id, for verl and OpenRLHF.
        missing: the reward of a completion without one. TRL takes None and leaves such a completion
            out of its group; verl and OpenRLHF take numbers alone.
    """

    def __init__(self, rows: Items | None = None, missing: float | None = None) -> None:
        self.missing = missing
        self.tally = Counter[str]()  # outcome -> number of completions
        self.lock = Lock()  # verl and OpenRLHF call from several threads
        self.by_id: dict[str, Row] = {}
        for row in () if rows is None else rows_of(rows):
            self.by_id[str(row["id"])] = dict(row)

    @property
    def counts(self) -> pd.DataFrame:
        """Count the completions so far and their outcomes: one row per outcome, column n."""
        return pd.DataFrame({"n": dict(self.tally)}, dtype=int).rename_axis("outcome")

    @abstractmethod
    def check(self, rows: Sequence[Row]) -> None:
        """Raise CollectionError, naming all rows that can't be rewarded."""

    @abstractmethod
    def values(self, rows: Sequence[Row], answers: Sequence[str]) -> list[float]:
        """Compute the reward of each row's answer, NaN where there is none; count outcomes."""

    def __call__(
        self,
        prompts: Sequence,
        completions: Sequence,
        log_metric: Callable[[str, float], None] | None = None,
        **columns: Any,
    ) -> list[float | None]:
        """Compute rewards in the form that TRL asks for.

        Args:
            prompts: texts or conversations; the instruction where there is no such column.
            completions: texts or conversations; the last turn is judged.
            log_metric: TRL's; the share without a reward is logged as "rewards/missing".
            columns: those of the data set: image or images, criteria and so on.
        """
        rows = []
        for index, prompt in enumerate(prompts):
            instruction, images = _last_turn(prompt)
            row: dict[str, Any] = {"id": str(index), "instruction": instruction}
            if "image" not in columns:
                row["images"] = images
            for name, cells in columns.items():
                if name not in NOT_COLUMNS:
                    row[name] = cells[index]
            rows.append(row)
        answers = [_last_turn(completion)[0] for completion in completions]
        values = self._locked_values(rows_of(rows), answers)
        if log_metric is not None:
            n_missing = sum(map(math.isnan, values))
            log_metric("rewards/missing", n_missing / max(1, len(values)))
        return self._filled(values)

    def verl(self, **call: Any) -> Any:
        """Compute rewards in the form that verl asks for: of one answer, or of a batch.

        Args:
            call: solution_str and ground_truth, or solution_strs and ground_truths: answers, and
                ids in `rows`. verl's other arguments are ignored.
        """
        if "solution_str" in call:
            return self._by_id([call["ground_truth"]], [call["solution_str"]])[0]
        return self._by_id(call["ground_truths"], call["solution_strs"])

    def openrlhf(
        self, queries: Sequence[str], prompts: Sequence[str], labels: Sequence, *, end: str = ""
    ) -> dict:
        """Compute rewards in the form that OpenRLHF asks for.

        Args:
            queries: prompts with their answers, control tokens and image placeholders spelled out.
            prompts: the same without the answers.
            labels: ids in `rows`.
            end: the control token that ends an answer; it is removed.

        Raises:
            ValueError: a query without its prompt.
        """
        import torch

        answers = []
        for query, prompt in zip(queries, prompts, strict=True):
            # Images have more placeholders in the query than in the prompt, so that lengths differ.
            # The answer is found behind the prompt's tail instead.
            # The prompt holds its tail n_tails times; what follows the last of these is the answer.
            tail = prompt[-PROMPT_TAIL:]
            n_tails = prompt.count(tail)
            pieces = query.split(tail, n_tails)
            if len(pieces) <= n_tails:
                raise ValueError(f"a query does not hold the end of its prompt, {tail!r}")
            answers.append(pieces[-1].removesuffix(end))
        rewards = torch.tensor(self._by_id(labels, answers))  # (queries,)
        return {"rewards": rewards, "scores": rewards, "extra_logs": {}}

    def _by_id(self, labels: Sequence, answers: Sequence[str]) -> list[float | None]:
        """Compute the rewards of answers to the rows whose ids are the labels."""
        if self.missing is None:  # verl and OpenRLHF take no None as a reward
            raise ValueError("missing=: say what a completion without a reward gets, such as 0.0")
        unknown = [label for label in labels if str(label) not in self.by_id]
        if unknown:
            raise ValueError(f"the label {unknown[0]!r} is no id of rows=")
        rows = [self.by_id[str(label)] for label in labels]
        return self._filled(self._locked_values(rows, answers))

    def _locked_values(self, rows: Sequence[Row], answers: Sequence[str]) -> list[float]:
        """Call `values` for one caller at a time, and count the completions."""
        with self.lock:
            values = self.values(rows, answers)
            self.tally["completions"] += len(values)
        return values

    def _filled(self, values: Sequence[float]) -> list[float | None]:
        """Replace NaN by `missing`."""
        return [self.missing if math.isnan(value) else value for value in values]


def _last_turn(turns: Any) -> tuple[str, list]:
    """Return the text and the images of the last turn of a conversation; a text is one turn."""
    content = turns if isinstance(turns, str) else turns[-1]["content"]
    if isinstance(content, str):
        return content, []
    texts = [part["text"] for part in content if part["type"] == "text"]
    return "\n".join(texts), [part["image"] for part in content if part["type"] == "image"]


# --- a judge as a reward function


class Outcome(NamedTuple):
    """The reward of one completion, and how `counts` counts it."""

    reward: float  # NaN where there is none
    counted: list[str]  # the outcomes that it adds 1 to


BLANK = Outcome(NAN, ["no verdict: the completion is blank"])


class JudgeReward(Reward):
    """See `reward_function`."""

    def __init__(
        self, judge: JudgeLike, rows: Items | None, missing: float | None, options: dict
    ) -> None:
        super().__init__(rows, missing)
        self.judge = judge
        self.options = {"progress": False, **options}
        self.open_image = Pictures()
        # the key of a question and its completion -> its outcome; "" is that of blank completions
        self.outcomes = {"": BLANK}
        self.__name__ = judge.name  # TRL's log has it

    def check(self, rows: Sequence[Row]) -> None:
        """See `Reward.check`."""
        self.judge.plan([_item(row, "A response.") for row in rows])

    def values(self, rows: Sequence[Row], answers: Sequence[str]) -> list[float]:
        """See `Reward.values`."""
        # 1) the key of each completion, and the questions without a reward, by their keys
        keys = []
        new: dict[str, dict] = {}
        for row, answer in zip(rows, answers, strict=True):
            if not answer.strip():
                keys.append("")
                continue
            item = _item(row, answer.strip())
            key = self._key(item)
            keys.append(key)
            # a question without a verdict is asked again: a server's failure may pass
            if math.isnan(self.outcomes.get(key, BLANK).reward):
                new[key] = item | {"id": key}

        # 2) the judge grades each new question once
        if new:
            run = self.judge.grade(list(new.values()), **self.options)
            if run["id"].tolist() != list(new):
                raise ValueError("a reward is one verdict on each completion: leave samples= out")
            for verdict in run.to_dict("records"):
                self.outcomes[verdict["id"]] = _outcome(verdict)

        # 3) the reward of each completion
        self.tally["questions put to the judge"] += len(new)
        for key in keys:
            self.tally.update(self.outcomes[key].counted)
        return [self.outcomes[key].reward for key in keys]

    def _key(self, row: Row) -> str:
        """Compute a key of everything that a verdict depends on, images by their content.

        The id, the group and the true scores, which no judge sees, are blanked: equal questions and
        responses have one key, whatever row they stand in.
        """
        item = Item.from_row(row)
        judged = replace(
            item,
            id="",
            group="",
            images=self._content_keys(item.images),
            response_images=self._content_keys(item.response_images),
            gold=NAN,
            feedback=None,
            human_scores=(),
        )
        return hashlib.sha256(repr(judged).encode("utf-8", "surrogatepass")).hexdigest()

    def _content_keys(self, sources: Sequence) -> tuple[str, ...]:
        """Return a key of each image's content."""
        return tuple(self.open_image(source).key for source in sources)


def _item(row: Row, response: str) -> dict[str, Any]:
    """Return a question with one response, without the responses and scores of its row."""
    shared = {name: cell for name, cell in row.items() if name not in LEFT_OUT}
    return shared | {"response": response}


def _outcome(verdict: Mapping[str, Any]) -> Outcome:
    """Return the outcome of a run's row; its reward is the expected score, else the score."""
    if math.isnan(verdict["score"]):
        return Outcome(NAN, [f"no verdict: {verdict.get('failure') or 'the judge abstained'}"])
    counted = ["closed"] if verdict.get("closed") else []
    expected = verdict.get("expected_score", NAN)
    if math.isnan(expected):
        return Outcome(verdict["score"], [*counted, "a score without a distribution"])
    return Outcome(expected, [*counted, "an expected score"])


def reward_function(
    judge: JudgeLike, *, rows: Items | None = None, missing: float | None = None, **options: Any
) -> JudgeReward:
    """Make a reward function of a judge, for TRL, verl or OpenRLHF.

    The reward of an answer is its expected score where there is one, else its score. A question
    that equals an earlier one, images included, is not put to the judge again.

    Args:
        judge: a `Judge`, a panel, or a judge of your own; it grades answers one by one.
        rows, missing: for verl and OpenRLHF, see `Reward`; `missing` is what a completion without
            a verdict gets, None for TRL.
        options: of `Judge.grade`; with `out`, a new process asks for nothing that is recorded.

    Returns:
        What TRL calls; its methods `verl` and `openrlhf` are what those call. `counts` says what
        became of the completions.

    >>> import vjudge as vj
    >>> (row,) = vj.load_collection("scenes", split="test", limit=1)
    >>> columns = {name: [row[name]] * 3 for name in ("images", "criteria", "descriptions")}
    >>> reward = reward_function(vj.load_judge("tiny", device="cpu"))
    >>> answers = [row["response"], row["response"], ""]
    >>> [value is not None for value in reward([row["instruction"]] * 3, answers, **columns)]
    [True, True, False]
    >>> int(reward.counts.loc["questions put to the judge", "n"])
    1
    """
    return JudgeReward(judge, rows, missing, options)


# --- a policy that learns to judge


TRUTHS = {"gold": "gold", "people": "human_scores"}  # kind of truth -> its column


class VerdictReward(Reward):
    """See `verdict_reward`."""

    def __init__(
        self,
        template: Template,
        truth: str,
        form: float,
        rows: Items | None,
        missing: float | None,
    ) -> None:
        super().__init__(rows, missing)
        self.template = template
        self.truth = truth
        self.form = form
        self.__name__ = "verdict"  # TRL's log has it

    def prompt(self, judge: Judge, row: Row) -> Prompt:
        """Render a row for the judge that learns, in its own conversation format."""
        if self.template.compares:
            return judge.wording_of_pairs().render(Pair.from_row(row))
        return judge.template.render(Item.from_row(row))

    def check(self, rows: Sequence[Row]) -> None:
        """See `Reward.check`."""
        template = self.template
        validate(
            rows,
            needs=template.needs,
            sees_images=template.sees_images,
            pairs=template.compares,
        )
        column = "preference" if template.compares else TRUTHS[self.truth]
        has_truth = [self._truth(self._subject(row)) is not None for row in rows]
        check_rows(rows, column, has_truth, "is missing", "fill it in or leave the row out")

    def values(self, rows: Sequence[Row], answers: Sequence[str]) -> list[float]:
        """See `Reward.values`."""
        values = []
        for row, answer in zip(rows, answers, strict=True):
            # verl and OpenRLHF do not say how an answer ended: it counts as complete
            subject = self._subject(row)
            truth = self._truth(subject)
            if truth is None:
                values.append(NAN)
                self.tally["no truth"] += 1
                continue
            verdict, scale = self._read(subject, answer, row.get("finish") or "stop")
            has_form = verdict.failure is None
            right = _closeness(verdict, truth, scale)
            values.append(self.form * has_form + (1 - self.form) * right)
            self.tally["in the right form" if has_form else f"no verdict: {verdict.failure}"] += 1
            self.tally["right"] += right == 1
        return values

    def _read(
        self, subject: Item | Pair, answer: str, finish: str
    ) -> tuple[Verdict, tuple[float, float]]:
        """Read the verdict that an answer holds.

        Args:
            subject: what was judged.
            answer: the text.
            finish: "stop" where the answer ended by itself, "length" where it was truncated.

        Returns:
            The verdict, and a pair: the lowest and the highest possible score.
        """
        rubric = subject.rubric
        # a preference has no scale: 0 and 1 stand in for one, and nothing looks at them
        levels = (0, 1) if self.template.compares else self.template.scores(rubric)
        verdict = parse(
            answer, scores=levels, format=self.template.format, finish=finish, rubric=rubric
        )
        if rubric and rubric.named:  # criteria of their own scales
            return verdict, rubric.bounds
        return verdict, (levels[0], levels[-1])

    def _subject(self, row: Row) -> Item | Pair:
        """Make the item or the pair that the prompt template judges."""
        return Pair.from_row(row) if self.template.compares else Item.from_row(row)

    def _truth(self, subject: Item | Pair) -> float | str | None:
        """Return the true preference, or the mean of the true scores; None where there is none."""
        if isinstance(subject, Pair):
            return subject.preference
        scores = [subject.gold] if self.truth == "gold" else subject.human_scores
        scores = [score for score in scores if not math.isnan(score)]
        return sum(scores) / len(scores) if scores else None


def _closeness(verdict: Verdict, truth: float | str, scale: tuple[float, float]) -> float:
    """Rate from 0 to 1 how right a verdict is.

    A preference is right (1) or not (0). A score loses its distance from the truth as a share of
    the scale: 3 for a truth of 4 on 1 to 5 gets 1 - 1/4. No verdict gets 0.
    """
    if isinstance(truth, str):
        return float(verdict.choice == truth)
    if verdict.failure is not None:
        return 0.0
    lowest, highest = scale
    return 1 - abs(verdict.score - truth) / (highest - lowest)


def verdict_reward(
    template: Template | str,
    *,
    truth: Literal["gold", "people"] = "gold",
    form: float = 0.1,
    rows: Items | None = None,
    missing: float | None = None,
) -> VerdictReward:
    """Make the reward function of a judge that learns: a right verdict in the right form.

    The reward is form * F + (1 - form) * V. F is 1 where the answer holds a verdict that can be
    read, else 0. V of a preference is 1 where it is the right one, else 0; V of a score is
    1 - |score - truth| / (highest - lowest), and 0 without a verdict.

        truth 4 of 1 to 5, "[RESULT] 3":  .1 * 1 + .9 * (1 - 1/4) = .775

    Args:
        template: the prompt template that the judge learns, a `Template` or a name in
            `vjudge.prompts.TEMPLATES`; for a template of pairs, `preference` is the truth.
        truth: "gold", or "people" for the mean of `human_scores`, not rounded.
        form: the weight of the form, from 0 to 1.
        rows, missing: as in `reward_function`; a row without a truth has no reward.

    Returns:
        What `vjudge.preference.grpo` takes in place of a judge, and TRL, verl and OpenRLHF.
        `counts` says how many verdicts were in the right form, and right.

    Raises:
        ValueError: an unknown truth, or a weight outside [0, 1].

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
