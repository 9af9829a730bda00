"""Rounds of preference learning, and what they came to: better, or only better liked."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
from scipy import stats

from vjudge import plots
from vjudge.data import rows_of
from vjudge.judging.judge import JudgeLike
from vjudge.judging.loading import load_judge
from vjudge.judging.paths import file_names
from vjudge.plots.style import short
from vjudge.preference.candidates import draw, respond
from vjudge.preference.dpo import train
from vjudge.preference.rewards import best_of_n, make_pairs, reward
from vjudge.results import NotComputed, Result, analysis, current, options

OVER_GROUPS = "means with intervals over groups of answers (Student's t)"


@dataclass(frozen=True)
class Round:
    """One round: the rewards of its candidates, the pairs made of them, the policy it left."""

    rewards: pd.DataFrame
    pairs: pd.DataFrame
    policy: Path


def rounds(
    policy: str | Path,
    judge: JudgeLike,
    questions: Any,
    *,
    out: str | Path,
    n: int = 2,
    leave_out: Callable[[str], bool] | None = None,
    drawing: Mapping[str, Any] | None = None,
    pairing: Mapping[str, Any] | None = None,
    seed: int = 0,
    **training: Any,
) -> list[Round]:
    """Draw answers, reward them, pair the best with the worst, train; then again from there.

    Args:
        policy: the checkpoint that the first round starts from.
        judge: who rewards, by scores.
        questions: rows with id, instruction and images.
        out: a folder with one folder a round; the same call goes on there.
        n: of rounds.
        leave_out: of an answer's text: whether it makes no pair.
        drawing, pairing, training: options of `draw`, `make_pairs` and `train`.
        seed: of the first round; each further one has the next.
    """
    made: list[Round] = []
    start = policy
    for number in range(n):
        folder = Path(out) / f"round-{number + 1}"
        learner = load_judge(start)
        options = {"progress": False, **(drawing or {}), "seed": seed + number}
        candidates = draw(learner, questions, out=folder / "candidates", **options)
        rewards = reward(judge, candidates, out=folder / "rewards", progress=False)
        counted = rewards
        if leave_out is not None:  # without a reward an answer makes no pair
            counted = rewards.assign(
                reward=rewards["reward"].mask(rewards["response"].map(leave_out))
            )
        pairs = make_pairs(candidates, counted, **(pairing or {}))
        train(start, pairs, folder / "policy", seed=seed + number, **training)
        made.append(Round(rewards, pairs, folder / "policy"))
        start = folder / "policy"
    return made


def repeats(text: str) -> bool:
    """Whether a sentence stands in a text twice.

    >>> repeats("(1) A cup. (2) A cup."), repeats("A cup. A plate.")
    (True, False)
    """
    sentences = []
    for sentence in re.split(r"\(\d+\)|[.!?。！？]+", text or ""):
        if sentence.strip():
            sentences.append(" ".join(sentence.casefold().split()))
    return len(set(sentences)) < len(sentences)


def answers_of(
    policies: Mapping[str, Any],
    judge: JudgeLike,
    questions: Any,
    truth: Callable[[Mapping, str], float],
    *,
    out: str | Path,
    **drawing: Any,
) -> pd.DataFrame:
    """Have policies answer the same questions, and judge and truth score the answers.

    Args:
        policies: name -> a checkpoint.
        judge: who scores.
        questions: rows with a rubric, by which the judge scores.
        truth: of a question's row and an answer, its true score; NaN where there is none.
        out: a folder that records answers and verdicts, with folders named after the policies.
        drawing: options of `respond`.

    Returns:
        One row an answer: policy, id, group, response, judge and truth (scores; NaN where there is
        none), repeats.
    """
    rows = {str(row["id"]): row for row in rows_of(questions)}
    folders = file_names(policies)
    tables = []
    for name, policy in policies.items():
        folder = Path(out) / folders[name]
        answers = respond(load_judge(policy), questions, out=folder, **drawing)
        answered = answers.dropna(subset="response")
        items = [
            {**rows[id], "response": text}
            for id, text in zip(answered["id"], answered["response"], strict=True)
        ]
        run = judge.grade(items, out=f"{folder}-graded", progress=False)
        table = answers[["id", "group", "response"]].assign(policy=name)
        table["judge"] = table["id"].map(run.set_index("id")["score"])
        texts = answers["response"].fillna("")
        table["truth"] = [
            truth(rows[id], text) for id, text in zip(answers["id"], texts, strict=True)
        ]
        table["repeats"] = texts.map(repeats).astype(float)
        tables.append(table)
    return pd.concat(tables, ignore_index=True)


@analysis
def better_or_liked(answers: pd.DataFrame, *, name: str = "the judge") -> Result:
    """Compare what judge and truth think of policies' answers with the first policy's.

    Args:
        answers: of `answers_of`.
        name: the judge's.

    Returns:
        A row a policy and measure: estimate, low, high, n, and change, change_low, change_high
        against the first policy on the same questions.
    """
    measures = {"judge": f"score by {name}", "truth": "true score"}
    policies = list(answers["policy"].unique())
    start = answers[answers["policy"] == policies[0]].set_index("id")
    rows = []
    for policy in policies:
        own = answers[answers["policy"] == policy].set_index("id")
        for column, measure in measures.items():
            change = mean_over_groups(own[column] - start[column], own["group"])
            moved = {"change": change["estimate"], "change_low": change["low"]}
            moved["change_high"] = change["high"]
            line = {"policy": policy, "measure": measure}
            rows.append({**line, **mean_over_groups(own[column], own["group"]), **moved})
    table = pd.DataFrame(rows)
    sentences = []
    for policy in policies[1:]:
        parts = table[table["policy"] == policy]
        told = [f"the {row.measure} changes by {_moved(row)}" for row in parts.itertuples()]
        sentences.append(f"From {policies[0]!r} to {policy!r} {'; '.join(told)}.")
    return Result(
        table,
        name="preference_rounds",
        reading=" ".join(sentences),
        caption=f"True score and score by {name} of policies' answers to the same questions;"
        f" {OVER_GROUPS}",
        caveats=["one training each: the interval is over questions, not over trainings"],
        plot=partial(
            plots.forest,
            table[["policy", "measure", "estimate", "low", "high", "n"]],
            rows="policy",
            by="measure",
            label="mean score",
            reference=None,
        ),
    )


def _moved(row: Any) -> str:
    """A change with its interval, and whether it can be told from none."""
    text = short(row.change, row.change_low, row.change_high)
    if row.change_low <= 0 <= row.change_high:
        return f"{text}, not told from none"
    return text


@analysis
def overpaid(rewards: pd.DataFrame, features: Mapping[str, Any], *, name: str = "judge") -> Result:
    """Ask what goes with a reward above the true score, within the answers of one group.

    Args:
        rewards: of `reward`, with `true_score`.
        features: name -> a boolean for every row.
        name: the judge's.
    """
    error = rewards["reward"] - rewards["true_score"]
    if error.isna().all():
        raise NotComputed("no answer has a reward and a true score; give true_scores")
    rows = []
    for feature, holds in features.items():
        holds = pd.Series(holds, rewards.index, dtype=bool)
        with_it = error[holds].groupby(rewards["group"]).mean()
        gap = (with_it - error[~holds].groupby(rewards["group"]).mean()).dropna()
        rows.append({"feature": feature, **mean_over_groups(gap, pd.Series(gap.index, gap.index))})
        rows[-1]["answers"] = int(holds.sum())
    table = pd.DataFrame(rows)
    sentences = []
    for row in table.itertuples():
        gap = f"{row.feature!r} by {short(row.estimate, row.low, row.high)}"
        if row.low > 0:
            sentences.append(f"overpaid: {gap}")
        elif row.high < 0:
            sentences.append(f"underpaid: {gap}")
    reading = "No feature is over- or underpaid by more than noise."
    if sentences:
        reading = f"Points against answers of the same group without it: {'; '.join(sentences)}."
    return Result(
        table,
        name="preference_over_rewarded",
        reading=reading,
        caption=f"What goes with a reward by {name} above the true score, within one group's"
        f" answers; {OVER_GROUPS}",
        plot=partial(
            plots.forest, table, rows="feature", label="error with the feature less without"
        ),
    )


@analysis
def choosing(rewards: pd.DataFrame, *, name: str = "the judge", **resampling: Any) -> Result:
    """Show what the best of n by a judge is truly worth, beside what the truth would choose.

    Args:
        rewards: of `reward`, with `true_score`.
        name: the judge's.
        resampling: n_resamples, seed, confidence.
    """
    try:
        parts = {
            name: best_of_n(rewards, **options(**resampling)),
            "the truth": best_of_n(
                rewards.assign(reward=rewards["true_score"]), **options(**resampling)
            ),
        }
    except ValueError as error:
        raise NotComputed(str(error)) from error
    table = pd.concat(parts, names=["chosen by", "answers"]).reset_index()
    judged = table[table["chosen by"] == name]
    one, best = judged.iloc[0], judged.iloc[-1]
    possible = table["estimate"].iloc[-1] - one["estimate"]
    reading = (
        f"The best of {best['answers']} by {name} is worth"
        f" {short(best['estimate'], best['low'], best['high'])}, a single answer"
        f" {short(one['estimate'], one['low'], one['high'])}."
    )
    if possible > 0:
        gain = (best["estimate"] - one["estimate"]) / possible
        reading += f" That is {gain:.0%} of what the truth itself could gain."
    return Result(
        table,
        name="preference_best_of_n",
        reading=reading,
        caption=f"True score of the answer that {name} prefers among n",
        plot=partial(
            plots.curves,
            table,
            x="answers",
            y="estimate",
            by="chosen by",
            labels=("answers to choose from", "mean true score"),
        ),
    )


@analysis
def order_effect(rewards: Mapping[str, pd.DataFrame]) -> Result:
    """Show what an answer's place among the candidates adds to its reward.

    Args:
        rewards: way of judging -> a table of `reward`, with `true_score`.
    """
    rows = []
    for way, table in rewards.items():
        by_truth = table.groupby("true_score")["reward"].transform("mean")
        for candidate, gaps in (table["reward"] - by_truth).groupby(table["candidate"]):
            cells = {"place": f"answer {candidate + 1}", "judged by": way}
            rows.append({**cells, **mean_over_groups(gaps, table.loc[gaps.index, "group"])})
    result = pd.DataFrame(rows).sort_values("place", kind="stable", ignore_index=True)
    sentences = []
    for way, gaps in result.groupby("judged by", sort=False):
        worst = gaps.loc[gaps["estimate"].abs().idxmax()]
        text = short(worst["estimate"], worst["low"], worst["high"])
        sentences.append(
            f"By {way} the place that moves a reward most is {worst['place']}'s: {text}."
        )
    return Result(
        result,
        name="preference_order",
        reading=" ".join(sentences),
        caption="Mean reward of an answer, less the mean of its true score, by its place among the"
        f" candidates; {OVER_GROUPS}",
        plot=partial(
            plots.forest,
            result,
            rows="place",
            by="judged by",
            label="reward not explained by the true score",
        ),
    )


def mean_over_groups(values: pd.Series, groups: pd.Series) -> dict[str, float]:
    """The mean of groups' means, with Student's t interval over them.

    >>> found = mean_over_groups(pd.Series([1.0, 2.0, 3.0]), pd.Series(["a", "b", "c"]))
    >>> found["estimate"], round(float(found["low"]), 2), found["n"]
    (2.0, -0.48, 3)
    """
    means = values.groupby(groups).mean().dropna()
    half = means.sem() * stats.t.ppf((1 + current().confidence) / 2, max(1, len(means) - 1))
    middle = float(means.mean())
    n = int(values.notna().sum())
    return {"estimate": middle, "low": middle - half, "high": middle + half, "n": n}
