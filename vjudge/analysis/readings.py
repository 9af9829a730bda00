"""Sentences made of numbers: direction, size, interval, and whether the difference is significant.

Each function takes the rows of a table and returns one to three sentences that hold for any data.
No sentence calls an effect small while its interval includes large effects.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from pandas import DataFrame, Series

from vjudge.analysis.tables import names_of
from vjudge.metrics.formatting import format_p
from vjudge.metrics.multiple_testing import ALPHA
from vjudge.plots.style import short

SYMBOLS = {"pearson": "Pearson's r", "spearman": "Spearman's rho", "kendall": "Kendall's tau"}
SCOPES = {  # level of `metrics.correlate_levels` -> its words in a sentence
    "item": "over all items",
    "system": "between the systems' means",
    "within": "within a system",
}
# Why a correlation is undefined; a sentence ends with it
UNDEFINED = "it takes three items that both scored, and scores that differ"


def bounds(row: Series) -> str:
    """Format an estimate with its interval, as ".45 [.40, .50]"."""
    return short(row["estimate"], row["low"], row["high"])


def difference(row: Series) -> str:
    """Format a difference with its interval."""
    return short(row["difference"], row["low"], row["high"])


def truth_correlations(rows: DataFrame, truth: str, statistic: str) -> str:
    """Say which judge agrees best and which least with the truth.

    Args:
        rows: one row per judge, of one statistic: judge, estimate, low, high.
        truth: the name of the truth.
        statistic: "pearson", "spearman" or "kendall".
    """
    symbol = SYMBOLS[statistic]
    defined = rows.dropna(subset="estimate").sort_values("estimate", ascending=False)
    if defined.empty:
        return f"No judge has a correlation with {truth}: {UNDEFINED}."
    best = defined.iloc[0]
    worst = defined.iloc[-1]
    size = f"{symbol} {bounds(best)}{_sign(best)}"
    if len(defined) == 1:  # nothing to compare it with
        text = f"{best['judge']} agrees with {truth} at {size}."
    else:
        text = f"{best['judge']} agrees best with {truth}: {size}; {worst['judge']} least:"
        text += f" {bounds(worst)}{_sign(worst)}."
    undefined = rows.loc[rows["estimate"].isna(), "judge"]
    if len(undefined):
        text += f" Undefined for {names_of(undefined)}: {UNDEFINED}."
    if len(defined) > 1:
        text += " Which judge is better by more than noise is a question for compare()."
    return text


def _sign(row: Series) -> str:
    """Write a clause where the interval of a correlation is not above 0; "" where it is."""
    if np.isnan(row["low"]):
        return ", without an interval"
    if row["low"] > 0:
        return ""
    if row["high"] < 0:
        return ", the reverse of the truth's order"
    return ", which can't be told from no agreement"


def by_subset(cells: DataFrame, truth: str, column: str, overall: str) -> str:
    """Say how the agreement of the best judge varies over subsets.

    Args:
        cells: one row per judge and subset: judge, `column` (the name of the subset), estimate,
            low, high.
        truth: the name of the truth.
        column: the column that makes the subsets.
        overall: the name of the rows over all items, which are left out.
    """
    subsets = cells[cells[column] != overall].dropna(subset="estimate")
    if subsets.empty:
        return f"No judge has a correlation with {truth} within any {column}: {UNDEFINED}."
    # The best judge has the highest plain mean over subsets, whatever their sizes
    means = subsets.groupby("judge", sort=False)["estimate"].mean()
    best = means.sort_values(ascending=False).index[0]
    of_best = subsets[subsets["judge"] == best].sort_values("estimate")
    # Its rows with the lowest and the highest estimate
    bottom = of_best.iloc[0]
    top = of_best.iloc[-1]
    n_subsets = subsets[column].nunique()
    text = f"{best} has the highest mean over {n_subsets} {_plural(column, n_subsets)}"
    if n_subsets > 1:
        text += f", from {bounds(bottom)} ({bottom[column]}) to {bounds(top)} ({top[column]})"
    text += "."
    if subsets["judge"].nunique() > 1:
        winners = subsets.loc[subsets.groupby(column, sort=False)["estimate"].idxmax(), "judge"]
        text += f" It is the highest in {(winners == best).sum()} of {n_subsets}."
    return text


def _plural(noun: str, count: int) -> str:
    """Return a noun in the plural, unless it counts one.

    >>> _plural("task", 2), _plural("criterion", 3)
    ('tasks', 'criteria')
    """
    if count == 1:
        return noun
    return {"criterion": "criteria", "criteria": "criteria"}.get(noun, f"{noun}s")


def comparisons(pairs: DataFrame, noun: str = "agrees better") -> str:
    """Name the best judge, the rivals it beats or loses to, and those where this is undecided.

    The best judge has the highest mean of its estimates; a rival wins or loses significantly.

    Args:
        pairs: one row per pair of judges: a, b, estimate_a, estimate_b, difference (a minus b),
            low, high, p_holm.
        noun: what the better judge does, such as "agrees better".
    """
    defined = pairs.dropna(subset=["difference", "p_holm"])
    if defined.empty:
        return "No two judges can be compared: " + UNDEFINED + "."
    estimates = pd.concat(
        [
            defined[["a", "estimate_a"]].set_axis(["judge", "estimate"], axis=1),
            defined[["b", "estimate_b"]].set_axis(["judge", "estimate"], axis=1),
        ]
    )
    # A judge has one estimate per pair, each on the items that both scored: the mean decides
    best = estimates.groupby("judge")["estimate"].mean().idxmax()
    rows = _against_rivals(defined, best)
    won = rows[(rows["p_holm"] < ALPHA) & (rows["difference"] > 0)]
    # Pairs may be on different items: among three judges one may beat that of the highest mean
    lost = rows[(rows["p_holm"] < ALPHA) & (rows["difference"] < 0)]
    undecided = rows[rows["p_holm"] >= ALPHA]
    sentences = []
    if len(won):
        nearest = won.loc[won["difference"].idxmin()]  # the rival beaten by least
        has_won_all = len(won) == len(rows) and len(rows) > 1
        rivals = "each of the others" if has_won_all else names_of(won["rival"])
        size = f"{difference(nearest)}, p (Holm) {format_p(nearest['p_holm'])}"
        if len(won) > 1:
            size = f"by least against {nearest['rival']}: {size}"
        sentences.append(f"{best} {noun} than {rivals} ({size}).")
    for _, row in lost.iterrows():
        size = short(-row["difference"], -row["high"], -row["low"])  # of rival minus best
        sentences.append(
            f"{row['rival']} {noun} than {best}, whose mean is the highest"
            f" ({size}, p (Holm) {format_p(row['p_holm'])})."
        )
    if len(undecided):
        # The widest interval shows how large an effect these data can't exclude
        widest = undecided.loc[(undecided["high"] - undecided["low"]).idxmax()]
        text = f"Undecided between {best} and {names_of(undecided['rival'])}"
        sentences.append(f"{text} (difference {difference(widest)} against {widest['rival']}).")
    return " ".join(sentences)


def _against_rivals(pairs: DataFrame, judge: str) -> DataFrame:
    """Return the pairs of one judge, with its `rival` and the difference of judge minus rival."""
    as_a = pairs[pairs["a"] == judge].rename(columns={"b": "rival"})
    as_b = pairs[pairs["b"] == judge].rename(columns={"a": "rival"})
    # Where the judge is b, the sign changes and the ends of the interval change places
    mirrored = as_b.assign(difference=-as_b["difference"], low=-as_b["high"], high=-as_b["low"])
    return pd.concat([as_a, mirrored])


def judge_beside_people(table: DataFrame) -> str:
    """Say whether the best judge agrees with people as well as a person does.

    The judge's rank among the people is by estimates alone, without a test.

    Args:
        table: one row per person and judge: judge (the name of either), kind ("person" or
            "judge"), estimate, low, high.
    """
    people = table[table["kind"] == "person"].dropna(subset="estimate")
    judges = table[table["kind"] == "judge"].dropna(subset="estimate")
    if people.empty:
        return "No person can be held against the others: it takes two who scored the same items."
    low = short(people["estimate"].min())
    high = short(people["estimate"].max())
    size = high if low == high else f"{low} to {high}"
    text = f"A person agrees with the mean of the others at {size}"
    if judges.empty:
        return f"{text}."
    best = judges.loc[judges["estimate"].idxmax()]
    n_higher = int((people["estimate"] > best["estimate"]).sum())
    if n_higher == 0:
        rank = "no lower than any person"
    elif n_higher == len(people):
        rank = "lower than every person"
    else:
        rank = f"below {n_higher} of {len(people)} people"
    return f"{text}; against the same others {best['judge']} reaches {bounds(best)}, {rank}."


def error_correlation(table: DataFrame, n_judges: int) -> str:
    """Say how many independent judges a panel is worth, and what one more judge would add.

    Args:
        table: the table of `metrics.effective_judges`, with rows error_correlation,
            effective_judges, next_judge.
        n_judges: the number of judges in the panel.
    """
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
    """Say which judges score too high or too low; of more than three, name the two extremes.

    Args:
        rows: one row per judge: judge, estimate (the mean of score minus truth), low, high.
        truth: the name of the truth.
    """
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
    """Say which judges may replace a person: those that beat at least half of the people.

    Args:
        table: one row per judge: judge, winning_rate, advantage, low, high.
        epsilon: the cost-benefit margin of the alternative annotator test.
    """
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
    """Say how well people agree with each other.

    Args:
        table: the table of `metrics.agreement`; its rows alpha_ordinal and exact are stated.
        n_raters: the number of people.
    """
    alpha = table.loc["alpha_ordinal"]
    exact = table.loc["exact"]
    if np.isnan(exact["estimate"]):
        return "Agreement is undefined: no item has two ratings."
    equal = f"two ratings of one item are equal in {bounds(exact)} of pairs"
    if np.isnan(alpha["estimate"]):
        return (
            f"Of {n_raters} people, {equal}; Krippendorff's alpha (ordinal) is undefined, as the"
            " ratings of these items do not vary."
        )
    return f"{n_raters} people agree at Krippendorff's alpha (ordinal) {bounds(alpha)}; {equal}."


def at_levels(table: DataFrame, judge: str) -> str:
    """State one judge's correlation at each level; `table` has rows of the keys of `SCOPES`."""
    texts = []
    for level, scope in SCOPES.items():
        if level in table.index:
            texts.append(f"{bounds(table.loc[level])} {scope}")
    return f"{judge}: {'; '.join(texts)}."


def shared_choices(table: DataFrame, where: str) -> str:
    """Say which judge chooses as people do most often, and which ones can't be told from chance.

    Args:
        table: one row per judge (and subset): judge, estimate (a share of pairs), low, high.
        where: the beginning of the sentence, such as "Where both decide, ".
    """
    defined = table.dropna(subset="estimate")
    if defined.empty:
        return "No pair has both a judge's verdict and a person's."
    best = defined.loc[defined["estimate"].idxmax()]
    text = f"{where}{best['judge']} chooses as people do most often: {bounds(best)} of the pairs"
    at_chance = defined[(defined["low"] <= 0.5) & (defined["high"] >= 0.5)]["judge"].unique()
    if len(at_chance):
        text += f"; not told apart from a coin: {names_of(at_chance)}"
    return f"{text}."


def ranking(names: Sequence[str], table: DataFrame, quantity: str) -> str:
    """Say which system is strongest, and whether its interval is above that of the second.

    Args:
        names: the systems, the strongest first.
        table: their rows in the same order: estimate, low, high.
        quantity: what is estimated, such as "strength".
    """
    defined = table.set_axis(list(names)).dropna(subset="estimate")
    if defined.empty:
        return f"No {quantity} is determined by these data."
    top = defined.iloc[0]
    if len(defined) == 1:
        return f"Only {top.name} has a {quantity}, {bounds(top)}."
    second = defined.iloc[1]
    if np.isnan(top["low"]) or np.isnan(second["high"]):
        relation = "; their intervals can't be compared"
    elif top["low"] > second["high"]:
        relation = ", whose interval is lower"
    else:
        relation = "; their intervals overlap"
    return (
        f"{top.name} is strongest, {bounds(top)}; then {second.name}, {bounds(second)}{relation}."
    )


def far_scores(rows: DataFrame, truth: str, scale: tuple[float, float] | None) -> str:
    """Say which share of each judge's scores is far from the truth.

    A score is far if it is at least half the scale from the truth; where the scale is unknown, at
    least half the range of the truth.

    Args:
        rows: one row per judge and item: judge, gold (the truth), gap (score minus truth, NaN where
            either is missing).
        truth: the name of the truth.
        scale: its lowest and highest level; None where they are unknown.
    """
    lowest, highest = scale or (rows["gold"].min(), rows["gold"].max())
    if lowest == highest:
        return f"No score counts as far from {truth}, which does not vary: name scale=."
    scored = rows.dropna(subset="gap")
    is_far = scored["gap"].abs() >= (highest - lowest) / 2
    shares = is_far.groupby(scored["judge"], sort=False).mean()
    texts = ", ".join(f"{judge} {short(share)}" for judge, share in shares.items())
    ruler = "the scale" if scale else "the truth's range"
    return f"Share of items half {ruler} or more from {truth}: {texts}."
