"""Rounds of preference learning, and whether answers became better or only better liked."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
from scipy import stats

from vjudge import plots
from vjudge.data import rows_of
from vjudge.data.schema import Items, Row
from vjudge.judging.judge import JudgeLike
from vjudge.judging.loading import load_judge
from vjudge.judging.paths import file_names
from vjudge.metrics.intervals import INTERVAL
from vjudge.plots.style import short
from vjudge.preference.candidates import draw, respond
from vjudge.preference.dpo import train
from vjudge.preference.rewards import best_of_n, make_pairs, reward
from vjudge.results import NotComputed, Result, analysis, current, options

OVER_GROUPS = "means with intervals over groups of answers (Student's t)"


# --- rounds


@dataclass(frozen=True)
class Round:
    """One round: the rewards of its candidates, the pairs of them, and the trained policy."""

    rewards: pd.DataFrame
    pairs: pd.DataFrame
    policy: Path


def rounds(
    policy: str | Path,
    judge: JudgeLike,
    questions: Items,
    *,
    out: str | Path,
    n: int = 2,
    leave_out: Callable[[str], bool] | None = None,
    drawing: Mapping[str, Any] | None = None,
    pairing: Mapping[str, Any] | None = None,
    seed: int = 0,
    **training: Any,
) -> list[Round]:
    """Draw answers, reward them, pair the best with the worst, train; repeat with the new policy.

    Args:
        policy: the checkpoint that the first round starts from.
        judge: what rewards, by scores.
        questions: rows with id, instruction and images.
        out: a folder that gets one folder per round; the same call continues there.
        n: the number of rounds.
        leave_out: a function of an answer's text; True where the answer must not be in a pair.
        drawing, pairing, training: options of `draw`, `make_pairs` and `train`.
        seed: of the first round; it grows by 1 with each round.

    Returns:
        The rounds, in order.
    """
    results: list[Round] = []
    for index in range(n):
        folder = Path(out) / f"round-{index + 1}"
        settings = {"progress": False, **(drawing or {}), "seed": seed + index}
        candidates = draw(load_judge(policy), questions, out=folder / "candidates", **settings)
        rewards = reward(judge, candidates, out=folder / "rewards", progress=False)
        pairable = rewards
        if leave_out is not None:  # an answer without a reward makes no pair
            is_left_out = rewards["response"].map(leave_out)
            pairable = rewards.assign(reward=rewards["reward"].mask(is_left_out))
        pairs = make_pairs(candidates, pairable, **(pairing or {}))
        train(policy, pairs, folder / "policy", seed=seed + index, **training)
        policy = folder / "policy"
        results.append(Round(rewards, pairs, policy))
    return results


def repeats(text: str) -> bool:
    """Say whether a text has the same sentence twice; capitals and spaces make no difference.

    >>> repeats("(1) A cup. (2) A cup."), repeats("A cup. A plate.")
    (True, False)
    """
    sentences = []
    # sentences end at a full stop and the like, or at an enumeration such as "(1)"
    for sentence in re.split(r"\(\d+\)|[.!?。！？]+", text or ""):
        if sentence.strip():
            sentences.append(" ".join(sentence.casefold().split()))
    return len(set(sentences)) < len(sentences)


# --- better, or only better liked


def answers_of(
    policies: Mapping[str, Any],
    judge: JudgeLike,
    questions: Items,
    truth: Callable[[Row, str], float],
    *,
    out: str | Path,
    **drawing: Any,
) -> pd.DataFrame:
    """Have policies answer the same questions, and score each answer by a judge and by the truth.

    Args:
        policies: name -> a checkpoint.
        judge: what scores.
        questions: rows with a rubric, by which the judge scores.
        truth: computes the true score of a question's row and an answer; NaN where there is none.
        out: a folder that records answers and verdicts, in folders named after the policies.
        drawing: options of `respond`.

    Returns:
        One row per answer: policy, id, group, response, judge and truth (scores; NaN where there is
        none), repeats (1 where a sentence stands in it twice, else 0).
    """
    rows = {str(row["id"]): row for row in rows_of(questions)}
    folders = file_names(policies)
    tables = []
    for name, policy in policies.items():
        folder = Path(out) / folders[name]
        answers = respond(load_judge(policy), questions, out=folder, **drawing)
        items = []
        true_scores = []
        for id, text in zip(answers["id"], answers["response"], strict=True):
            if isinstance(text, str):
                items.append({**rows[id], "response": text})
            true_scores.append(truth(rows[id], text or ""))
        run = judge.grade(items, out=f"{folder}-graded", progress=False)
        table = answers[["id", "group", "response"]].assign(policy=name)
        table["judge"] = table["id"].map(run.set_index("id")["score"])
        table["truth"] = true_scores
        table["repeats"] = answers["response"].map(repeats).astype(float)
        tables.append(table)
    return pd.concat(tables, ignore_index=True)


@analysis
def better_or_liked(answers: pd.DataFrame, *, name: str = "the judge") -> Result:
    """Compare the judge's scores and the true scores of policies' answers with the first policy's.

    Args:
        answers: of `answers_of`.
        name: the judge's.

    Returns:
        One row per policy and measure: estimate, low, high, n, and change, change_low, change_high
        against the first policy on the same questions.
    """
    measures = {"judge": f"score by {name}", "truth": "true score"}
    policies = list(answers["policy"].unique())
    start = answers[answers["policy"] == policies[0]].set_index("id")
    rows = []
    for policy in policies:
        of_policy = answers[answers["policy"] == policy].set_index("id")
        for column, measure in measures.items():
            mean = mean_over_groups(of_policy[column], of_policy["group"])
            change = mean_over_groups(of_policy[column] - start[column], of_policy["group"])
            row = {"policy": policy, "measure": measure, **mean, "change": change["estimate"]}
            rows.append(row | {"change_low": change["low"], "change_high": change["high"]})
    table = pd.DataFrame(rows)
    sentences = []
    for policy in policies[1:]:
        changes = []
        for row in table[table["policy"] == policy].itertuples():
            text = short(row.change, row.change_low, row.change_high)
            if row.change_low <= 0 <= row.change_high:
                text += ", not told from none"
            changes.append(f"the {row.measure} changes by {text}")
        sentences.append(f"From {policies[0]!r} to {policy!r} {'; '.join(changes)}.")
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


# --- errors of rewards


@analysis
def overpaid(
    rewards: pd.DataFrame,
    features: Mapping[str, Sequence | pd.Series],
    *,
    name: str = "judge",
) -> Result:
    """Test which features of answers go with a reward above the true score.

    The error is reward - true score. Answers with a feature are compared with those without it
    within each group.

    Args:
        rewards: of `reward`, with `true_score`.
        features: name -> a boolean for every row.
        name: the judge's.

    Returns:
        One row per feature: estimate (the mean error with the feature minus that without it), low,
        high, n (groups with answers of both kinds), and answers (with the feature).

    Raises:
        NotComputed: no answer has both a reward and a true score.
    """
    error = rewards["reward"] - rewards["true_score"]
    if error.isna().all():
        raise NotComputed("no answer has a reward and a true score; give true_scores")
    rows = []
    sentences = []
    for feature, values in features.items():
        has_feature = pd.Series(values, rewards.index, dtype=bool)
        group = rewards["group"]
        difference = error[has_feature].groupby(group).mean()
        difference -= error[~has_feature].groupby(group).mean()
        difference = difference.dropna()  # groups without answers of both kinds
        mean = mean_over_groups(difference, pd.Series(difference.index, difference.index))
        rows.append({"feature": feature, **mean, "answers": int(has_feature.sum())})
        gap = f"{feature!r} by {short(mean['estimate'], mean['low'], mean['high'])}"
        if mean["low"] > 0:
            sentences.append(f"overpaid: {gap}")
        elif mean["high"] < 0:
            sentences.append(f"underpaid: {gap}")
    table = pd.DataFrame(rows)
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
    """Show the true score of the best of n by a judge, beside the best of n by the true score.

    Args:
        rewards: of `reward`, with `true_score`.
        name: the judge's.
        resampling: n_resamples, seed, confidence.

    Returns:
        The rows of `best_of_n` for each column "chosen by": the judge, then the truth.

    Raises:
        NotComputed: no question has a reward and a true score for every answer.
    """
    curves = {}
    try:
        for selector, column in ((name, "reward"), ("the truth", "true_score")):
            selected = rewards.assign(reward=rewards[column])
            curves[selector] = best_of_n(selected, **options(**resampling))
    except ValueError as error:
        raise NotComputed(str(error)) from error
    table = pd.concat(curves, names=["chosen by", "answers"]).reset_index()
    by_judge = table[table["chosen by"] == name]
    single = by_judge.iloc[0]
    best = by_judge.iloc[-1]
    reading = (
        f"The best of {best['answers']} by {name} is worth"
        f" {short(*best[INTERVAL])}, a single answer"
        f" {short(*single[INTERVAL])}."
    )
    # the table's last row is the best of n by the truth
    possible_gain = table["estimate"].iloc[-1] - single["estimate"]
    if possible_gain > 0:
        gain = (best["estimate"] - single["estimate"]) / possible_gain
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
    """Estimate how much an answer's position among the candidates adds to its reward.

    The effect of a position is the mean, over the answers in it, of the reward minus the mean
    reward of all answers of the same true score.

    Args:
        rewards: way of judging -> a table of `reward`, with `true_score`.

    Returns:
        One row per position ("place") and way of judging, with estimate, low, high and n.
    """
    rows = []
    for way, table in rewards.items():
        expected = table.groupby("true_score")["reward"].transform("mean")
        excess = table["reward"] - expected
        for candidate, values in excess.groupby(table["candidate"]):
            mean = mean_over_groups(values, table.loc[values.index, "group"])
            rows.append({"place": f"answer {candidate + 1}", "judged by": way, **mean})
    effects = pd.DataFrame(rows).sort_values("place", kind="stable", ignore_index=True)
    sentences = []
    for way, of_way in effects.groupby("judged by", sort=False):
        largest = of_way.loc[of_way["estimate"].abs().idxmax()]
        text = short(*largest[INTERVAL])
        sentences.append(
            f"By {way} the place that moves a reward most is {largest['place']}'s: {text}."
        )
    return Result(
        effects,
        name="preference_order",
        reading=" ".join(sentences),
        caption="Mean reward of an answer, less the mean of its true score, by its place among the"
        f" candidates; {OVER_GROUPS}",
        plot=partial(
            plots.forest,
            effects,
            rows="place",
            by="judged by",
            label="reward not explained by the true score",
        ),
    )


def mean_over_groups(values: pd.Series, groups: pd.Series) -> dict[str, float]:
    """Compute the mean of group means, with Student's t interval over the groups.

    Returns:
        estimate, low, high, and n, the number of values that are not NaN.

    >>> mean = mean_over_groups(pd.Series([1.0, 2.0, 3.0]), pd.Series(["a", "b", "c"]))
    >>> mean["estimate"], round(float(mean["low"]), 2), mean["n"]
    (2.0, -0.48, 3)
    """
    means = values.groupby(groups).mean().dropna()
    # a single group has no standard error: the interval is NaN, whatever its quantile
    quantile = stats.t.ppf((1 + current().confidence) / 2, max(1, len(means) - 1))
    reach = means.sem() * quantile
    estimate = float(means.mean())
    n = int(values.notna().sum())
    return {"estimate": estimate, "low": estimate - reach, "high": estimate + reach, "n": n}
