"""Sentences made of numbers: direction, size, interval, and whether the data decide.

Each function takes the rows of a table and returns one to three sentences that hold for any data. A
sentence never calls an effect small that its interval leaves open.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from pandas import DataFrame, Series

from vjudge.analysis.tables import RatingTable, names_of, truth_of
from vjudge.metrics.formatting import format_p
from vjudge.metrics.multiple_testing import ALPHA
from vjudge.plots.style import short

SYMBOLS = {"pearson": "Pearson's r", "spearman": "Spearman's rho", "kendall": "Kendall's tau"}
SCOPES = {
    "item": "over all items",
    "system": "between the systems' means",
    "within": "within a system",
}
UNDEFINED = "it takes three items that both scored, and scores that differ"


def bounds(row: Series) -> str:
    """An estimate with its interval, as ".45 [.40, .50]"."""
    return short(row["estimate"], row["low"], row["high"])


def difference(row: Series) -> str:
    """A difference with its interval."""
    return short(row["difference"], row["low"], row["high"])


def truth_name(table: RatingTable) -> str:
    """What the truth is called. NotComputed: there is none."""
    return truth_of(table)[1]


def truth_correlations(rows: DataFrame, truth: str, statistic: str) -> str:
    """Who agrees with the truth; rows of one statistic: judge, estimate, low, high."""
    symbol = SYMBOLS[statistic]
    defined = rows.dropna(subset="estimate").sort_values("estimate", ascending=False)
    if defined.empty:
        return f"No judge has a correlation with {truth}: {UNDEFINED}."
    best = defined.iloc[0]
    if len(rows) == 1:
        text = f"{best['judge']} agrees with {truth} at {symbol} {bounds(best)}"
        return f"{text}{_sign(best)}."
    text = f"{best['judge']} agrees best with {truth}: {symbol} {bounds(best)}{_sign(best)}"
    if len(defined) > 1:
        worst = defined.iloc[-1]
        text += f"; {worst['judge']} least: {bounds(worst)}{_sign(worst)}"
    text += "."
    gone = rows.loc[rows["estimate"].isna(), "judge"]
    if len(gone):
        text += f" Undefined for {names_of(gone)}: {UNDEFINED}."
    return f"{text} Which judge is better by more than noise is a question for compare()."


def _sign(row: Series) -> str:
    """What the interval says of the sign of a correlation."""
    if np.isnan(row["low"]):
        return ", without an interval"
    if row["low"] > 0:
        return ""
    if row["high"] < 0:
        return ", the reverse of the truth's order"
    return ", which can't be told from no agreement"


def by_subset(cells: DataFrame, truth: str, column: str, overall: str) -> str:
    """How the agreement of the best judge varies over subsets; rows: judge, subset, estimate ..."""
    subsets = cells[cells[column] != overall].dropna(subset="estimate")
    if subsets.empty:
        return f"No judge has a correlation with {truth} within any {column}: {UNDEFINED}."
    order = subsets.groupby("judge", sort=False)["estimate"].mean().sort_values(ascending=False)
    of_best = subsets[subsets["judge"] == order.index[0]].sort_values("estimate")
    high = of_best.iloc[-1]
    low = of_best.iloc[0]
    winners = subsets.loc[subsets.groupby(column, sort=False)["estimate"].idxmax(), "judge"]
    n_subsets = subsets[column].nunique()
    text = f"{order.index[0]} has the highest mean over {n_subsets} {_plural(column, n_subsets)}"
    if n_subsets > 1:
        text += f", from {bounds(low)} ({low[column]}) to {bounds(high)} ({high[column]})"
    text += "."
    if subsets["judge"].nunique() > 1:
        n_first = int((winners == order.index[0]).sum())
        text += f" It is the highest in {n_first} of {n_subsets}."
    return text


def _plural(noun: str, count: int) -> str:
    """The noun, in the plural unless it counts one.

    >>> _plural("task", 2), _plural("criterion", 3)
    ('tasks', 'criteria')
    """
    if count == 1:
        return noun
    return {"criterion": "criteria", "criteria": "criteria"}.get(noun, f"{noun}s")


def comparisons(pairs: DataFrame, noun: str = "agrees better") -> str:
    """Which judge is better than which; rows: a, b, estimate_a, estimate_b, difference, p_holm."""
    defined = pairs.dropna(subset=["difference", "p_holm"])
    if defined.empty:
        return "No two judges can be compared: " + UNDEFINED + "."
    estimates = pd.concat(
        [
            defined[["a", "estimate_a"]].set_axis(["judge", "estimate"], axis=1),
            defined[["b", "estimate_b"]].set_axis(["judge", "estimate"], axis=1),
        ]
    )
    best = estimates.groupby("judge")["estimate"].mean().idxmax()
    rows = _seen_from(defined, best)
    sure = rows[(rows["p_holm"] < ALPHA) & (rows["difference"] > 0)]
    unsure = rows[rows["p_holm"] >= ALPHA]
    sentences = []
    if len(sure):
        nearest = sure.loc[sure["difference"].idxmin()]
        everyone = len(sure) == len(rows) and len(rows) > 1
        whom = "each of the others" if everyone else names_of(sure["rival"])
        size = f"{difference(nearest)}, p (Holm) {format_p(nearest['p_holm'])}"
        where = f"by least against {nearest['rival']}: " if len(sure) > 1 else ""
        sentences.append(f"{best} {noun} than {whom} ({where}{size}).")
    if len(unsure):
        widest = unsure.loc[(unsure["high"] - unsure["low"]).idxmax()]
        text = f"Undecided between {best} and {names_of(unsure['rival'])}"
        sentences.append(f"{text} (difference {difference(widest)} against {widest['rival']}).")
    return " ".join(sentences)


def _seen_from(pairs: DataFrame, judge: str) -> DataFrame:
    """The pairs of one judge, with differences of it less its rival."""
    ahead = pairs[pairs["a"] == judge].rename(columns={"b": "rival"})
    behind = pairs[pairs["b"] == judge].rename(columns={"a": "rival"})
    turned = behind.assign(
        difference=-behind["difference"], low=-behind["high"], high=-behind["low"]
    )
    return pd.concat([ahead, turned])


def judge_beside_people(table: DataFrame) -> str:
    """May a judge stand where a person stands; rows: who, kind, estimate, low, high."""
    people = table[table["kind"] == "person"].dropna(subset="estimate")
    judges = table[table["kind"] == "judge"].dropna(subset="estimate")
    if people.empty:
        return "No person can be held against the others: it takes two who scored the same items."
    low = people["estimate"].min()
    high = people["estimate"].max()
    text = f"A person agrees with the mean of the others at {short(low)} to {short(high)}"
    if len(people) == 1 or short(low) == short(high):
        text = f"A person agrees with the mean of the others at {short(high)}"
    if judges.empty:
        return f"{text}."
    best = judges.loc[judges["estimate"].idxmax()]
    below = int((people["estimate"] > best["estimate"]).sum())
    where = f"below {below} of {len(people)} people"
    if below == 0:
        where = "no lower than any person"
    elif below == len(people):
        where = "lower than every person"
    text += f"; against the same others {best['judge']} reaches {bounds(best)}, {where}."
    return text


def error_correlation(table: DataFrame, n_judges: int) -> str:
    """What a panel is worth; rows error_correlation, effective_judges, next_judge."""
    shared = table.loc["error_correlation"]
    worth = table.loc["effective_judges"]
    if np.isnan(shared["estimate"]):
        return "How far the judges' errors are correlated is undefined."
    added = table.loc["next_judge"]
    return (
        f"The errors of two judges correlate at {bounds(shared)}, so that {n_judges} judges are"
        f" worth {bounds(worth)} independent ones; one more like them would add {bounds(added)}."
    )


def bias(rows: DataFrame, truth: str) -> str:
    """Who scores too high or too low; rows: judge, estimate, low, high of score less truth."""
    defined = rows.dropna(subset="estimate")
    if defined.empty:
        return f"No judge has scores on the scale of {truth}."
    sentences = []
    for _, row in defined.iterrows():
        size = short(abs(row["estimate"]))
        interval = f"[{short(row['low'])}, {short(row['high'])}]"
        if np.isnan(row["low"]):
            text = f"{row['judge']}: mean of score less truth {short(row['estimate'])}"
        elif row["low"] > 0:
            text = f"{row['judge']} scores {size} points too high {interval}"
        elif row["high"] < 0:
            text = f"{row['judge']} scores {size} points too low {interval}"
        else:
            text = f"{row['judge']}: no lean shown, {bounds(row)} points"
        sentences.append(text)
    if len(sentences) > 3:
        lenient = defined.loc[defined["estimate"].idxmax()]
        harsh = defined.loc[defined["estimate"].idxmin()]
        return (
            f"The most lenient judge is {lenient['judge']}, {bounds(lenient)} points above {truth}"
            f" on average; the harshest {harsh['judge']}, {bounds(harsh)}."
        )
    return f"Against {truth}: " + "; ".join(sentences) + "."


def replacement(table: DataFrame, epsilon: float) -> str:
    """Which judges may replace a person; rows: judge, winning_rate, advantage, low, high."""
    tested = table.dropna(subset="winning_rate")
    if tested.empty:
        return "No judge was tested: a person needs 30 items that the judge and others scored."
    passed = tested[tested["winning_rate"] >= 0.5]
    best = tested.loc[tested["advantage"].idxmax()]
    text = f"No judge may replace a person (epsilon {epsilon:g})"
    if len(passed):
        text = f"{names_of(passed['judge'])} may replace a person (epsilon {epsilon:g})"
    share = short(best["advantage"], best["low"], best["high"])
    return f"{text}: {best['judge']} is at least as close to the others on {share} of the items."


def rater_agreement(table: DataFrame, n_raters: int) -> str:
    """How far people agree with each other; rows alpha_ordinal, exact, ..."""
    if "alpha_ordinal" not in table.index or np.isnan(table.loc["alpha_ordinal", "estimate"]):
        return "Agreement is undefined: no item has two ratings, or there is no variation."
    alpha = bounds(table.loc["alpha_ordinal"])
    equal = bounds(table.loc["exact"])
    return (
        f"{n_raters} people agree at Krippendorff's alpha (ordinal) {alpha}; two ratings of one"
        f" item are equal in {equal} of pairs."
    )


def at_levels(table: DataFrame, judge: str) -> str:
    """What one number mixes; rows item, system, within of one judge."""
    texts = []
    for level, scope in SCOPES.items():
        if level in table.index:
            texts.append(f"{bounds(table.loc[level])} {scope}")
    return f"{judge}: {'; '.join(texts)}."


def slopes(table: DataFrame, truth: str) -> str:
    """Whether scores depend on length at equal truth; rows: judge, estimate, low, high, passes."""
    defined = table.dropna(subset="estimate")
    if defined.empty:
        return "No slope of the score on length is determined by these data."
    sentences = []
    for _, row in defined.iterrows():
        direction = "rises" if row["estimate"] > 0 else "falls"
        decides = "" if row["low"] > 0 or row["high"] < 0 else ", which noise alone can give"
        text = f"the score of {row['judge']} {direction} by {short(abs(row['estimate']))} points"
        sentences.append(f"{text} [{short(row['low'])}, {short(row['high'])}]{decides}")
    return f"At equal {truth.removeprefix('the ')}, per doubling of length, {'; '.join(sentences)}."


def shared_choices(table: DataFrame, where: str) -> str:
    """How often judges choose as people do; rows: judge, estimate, low, high."""
    defined = table.dropna(subset="estimate")
    if defined.empty:
        return "No pair has both a judge's verdict and a person's."
    best = defined.loc[defined["estimate"].idxmax()]
    text = f"{where}{best['judge']} chooses as people do most often: {bounds(best)} of the pairs"
    chance = defined[(defined["low"] <= 0.5) & (defined["high"] >= 0.5)]["judge"].unique()
    if len(chance):
        text += f"; not told apart from a coin: {names_of(chance)}"
    return f"{text}."


def ranking(names: Sequence[str], table: DataFrame, quantity: str) -> str:
    """Who is strongest; the rows of a table by strength: estimate, low, high."""
    if table["estimate"].isna().all() or len(names) < 2:
        return f"No {quantity} is determined by these data."
    top = table.iloc[0]
    second = table.iloc[1]
    decided = top["low"] > second["high"]
    text = f"{names[0]} is strongest, {bounds(top)}; then {names[1]}, {bounds(second)}"
    return f"{text}{'' if decided else '; their intervals overlap'}."
