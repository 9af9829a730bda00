"""Sentences about a probe's table: direction, size, interval, and whether the items decide."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from vjudge.metrics.formatting import format_p
from vjudge.plots.style import short
from vjudge.records import is_missing

MAX_ROWS = 3  # of a judge that get a sentence each
MANY_MISSING = 0.05  # share of items


def effect_sentence(does: str, effect: float, low: float, high: float) -> str:
    """Put an effect into a sentence with its direction, size and interval.

    Args:
        does: the sentence with placeholders {raises}, {towards} or {above}, which the effect's sign
            fills, and {size}, its absolute value.
        effect, low, high: the estimate and its interval; the sentence of a NaN effect is "".

    >>> effect_sentence("padding {raises} scores by {size}", -0.16, -0.27, -0.05)
    'padding lowers scores by .16 (change −.16 [−.27, −.05])'
    >>> effect_sentence("padding {raises} scores by {size}", 0.001, -0.48, 0.48)
    'padding changes scores by .00 (change .00 [−.48, .48])'
    """
    if np.isnan(effect):
        return ""
    directions = {"raises": "raises", "towards": "towards", "above": "above"}
    if effect < 0:
        directions = {"raises": "lowers", "towards": "away from", "above": "below"}
    size = short(abs(effect))
    if size in (".00", "0"):
        directions["raises"] = "changes"
    sentence = does.format(**directions, size=size)
    if np.isnan(low):
        return f"{sentence} (no interval)"
    return f"{sentence} (change {short(effect, low, high)})"


def decision(row: Mapping[str, Any]) -> str:
    """Return the second half of a row's sentence, behind its finding: the verdict and the margin.

    Args:
        row: of a probe's table, with a verdict other than "not run" and "undefined".
    """
    note = f" ({row['note']})" if row["note"] else ""
    margin = short(row["margin"])
    verdict = row["verdict"]
    if verdict == "described":
        return f"; no test{note}"
    if row["must"] == "move":
        if verdict == "moves":
            return f", more than {margin}: it moves, as it must"
        if verdict == "stays":
            return f", less than {margin}: it stays, though it must move"
        lost = "agreement" if np.isnan(row["margin"]) else margin  # NaN: there is none to lose
        return f"; these items can't say whether {lost} is lost{note}"
    p = format_p(row["p_holm"])
    if verdict == "stays":
        return f", within the margin of {margin}: it stays, as it must"
    if verdict == "moves":
        return f", beyond the margin of {margin}, p (Holm) {p}: it moves, though it must stay"
    if abs(row["effect"]) < row["margin"]:
        return f"; these items can't say whether that is within the margin of {margin}"
    return f"; beyond the margin of {margin}, but not significant, p (Holm) {p}"


def margins(rows: pd.DataFrame) -> str:
    """Return a sentence on what each distinct margin is a share of; "" without a test."""
    tests = rows[rows["must"].notna() & rows["margin"].notna()]
    texts = []
    for margin, share in zip(tests["margin"], tests["margin_of"], strict=True):
        texts.append(f"{short(margin)} is {share}")
    return f" Margins: {'; '.join(dict.fromkeys(texts))}." if texts else ""


def row_sentence(row: Mapping[str, Any]) -> str:
    """Put one row into a sentence, without its full stop."""
    if row["verdict"] == "not run":
        return f"not run: {row['note']}"
    if row["verdict"] == "undefined":
        return f"{row['case']}: undefined, of {row['n']} items in {row['groups']} groups"
    return row["finding"] + decision(row)


def reading(table: pd.DataFrame) -> str:
    """Say what a table shows of each judge.

    If a judge has at most three rows, each gets a sentence. Else, if it has one to three tests,
    each test gets a sentence. Else its rows are summarised (`_summary`).
    """
    sentences = []
    rows_with_sentence = []
    has_several = table["judge"].nunique() > 1
    for judge, rows in table.groupby("judge", sort=False):
        candidates = rows if len(rows) <= MAX_ROWS else rows[rows["must"].notna()]
        if 0 < len(candidates) <= MAX_ROWS:
            text = "; and ".join(map(row_sentence, candidates.to_dict("records")))
            rows_with_sentence.append(candidates)
        else:
            text = _summary(rows)
        text = text[:1].upper() + text[1:]
        sentences.append(f"{judge}: {text}." if has_several else f"{text}.")
    text = " ".join(sentences)
    if rows_with_sentence:
        text += margins(pd.concat(rows_with_sentence))
    return text


def _summary(rows: pd.DataFrame) -> str:
    """Write the text on one judge with many rows: its tests counted by outcome, and its failures.

    At most three failures are stated, those largest in multiples of their margin first. The probes
    or cases that were not run are named.
    """
    tests = rows[rows["must"].notna()]
    if tests.empty:
        described = rows[rows["verdict"] == "described"].to_dict("records")[:MAX_ROWS]
        return "nothing is tested" + "".join(f"; {row_sentence(row)}" for row in described)
    passes = tests["passes"]  # NA where undecided
    # comparing NA gives NA, which counts neither as right nor as a failure
    n_right = int(passes.eq(True).fillna(False).sum())
    failures = tests[passes.eq(False).fillna(False)]
    text = f"of {len(tests)} tests {n_right} came out as they must, {len(failures)} did not, and"
    text += f" {int(passes.isna().sum())} are undecided with these items"
    if len(failures):
        size = (failures["effect"].abs() / failures["margin"]).fillna(np.inf)
        findings = failures.loc[size.sort_values(ascending=False).index, "finding"].tolist()
        text += ". Against what must be: " + "; ".join(findings[:MAX_ROWS])
        if len(findings) > MAX_ROWS:
            text += f"; and {len(findings) - MAX_ROWS} more"
    # a probe of which some cases ran is named by the cases that did not
    is_skipped = rows["verdict"] == "not run"
    has_run = rows["probe"].isin(rows.loc[~is_skipped, "probe"])
    not_run = rows["case"].where(has_run, rows["probe"])[is_skipped].unique()
    if len(not_run):
        text += f". Not run: {', '.join(not_run)}; the column note says why"
    return text


def missing_caveats(table: pd.DataFrame) -> list[str]:
    """Return the caveat about missing items, a list of one; empty where few are missing.

    It names the row with the largest share of missing items, if that is above `MANY_MISSING`.
    """
    share = table["missing"] / (table["n"] + table["missing"]).clip(lower=1)
    largest = share.fillna(0).max() if len(share) else 0.0
    if is_missing(largest) or largest <= MANY_MISSING:
        return []
    case = table.loc[share.idxmax(), "case"]
    return [
        f"up to {largest:.0%} of the items lack a score in one of the runs ({case}) and"
        " are left out: what was changed may have made them unreadable"
    ]
