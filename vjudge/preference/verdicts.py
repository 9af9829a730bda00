"""The reward of a policy that learns to judge: how right its verdict is, and whether it has one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from vjudge.data import validate
from vjudge.data.checks import check_rows
from vjudge.data.schema import Items, Row
from vjudge.judging.judge import Judge
from vjudge.preference.functions import Reward
from vjudge.prompts import Prompt, Template, families
from vjudge.prompts.parse import parse
from vjudge.records import NAN, Item, Pair, Verdict

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
        """Read the verdict of an answer; return it with the lowest and the highest score."""
        rubric = subject.rubric
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
