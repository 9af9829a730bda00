"""Sentences about a probe's table: direction, size, interval, and whether the items decide."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from vjudge.metrics.formatting import format_p
from vjudge.plots.style import short
from vjudge.records import is_missing

MOST = 3  # rows of a judge that are each told


def effect_sentence(does: str, effect: float, low: float, high: float) -> str:
    """A finding with its direction and size, and with its interval where there is one.

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
    """What a row's verdict says against its margin, as the end of its finding's sentence."""
    note = f" ({row['note']})" if row["note"] else ""
    margin = short(row["margin"])
    p = format_p(row["p_holm"])
    if row["verdict"] == "described":
        return f"; no test{note}"
    if row["must"] == "move":
        return {
            "moves": f", more than {margin}: it moves, as it must",
            "stays": f", less than {margin}: it stays, though it must move",
            "can't say": f"; these items can't say whether {margin} is lost{note}",
        }[row["verdict"]]
    if row["verdict"] == "stays":
        return f", within the margin of {margin}: it stays, as it must"
    if row["verdict"] == "moves":
        return f", beyond the margin of {margin}, p (Holm) {p}: it moves, though it must stay"
    if abs(row["effect"]) < row["margin"]:
        return f"; these items can't say whether that is within the margin of {margin}"
    return f"; beyond the margin of {margin}, but not significant, p (Holm) {p}"


def margins(rows: pd.DataFrame) -> str:
    """What the margins of the tests are shares of, each once."""
    tests = rows[rows["must"].notna() & rows["margin"].notna()]
    texts = [
        f"{short(margin)} is {share}"
        for margin, share in zip(tests["margin"], tests["margin_of"], strict=True)
    ]
    return f" Margins: {'; '.join(dict.fromkeys(texts))}." if texts else ""


def row_sentence(row: Mapping[str, Any]) -> str:
    """One row as a sentence, without its full stop."""
    if row["verdict"] == "not run":
        return f"not run: {row['note']}"
    if row["verdict"] == "undefined":
        return f"{row['case']}: undefined, of {row['n']} items in {row['groups']} groups"
    return row["finding"] + decision(row)


def reading(table: pd.DataFrame) -> str:
    """What a table says of each judge: row by row, or where there are many rows in sum."""
    sentences = []
    chosen_rows = []
    several = table["judge"].nunique() > 1
    for judge, rows in table.groupby("judge", sort=False):
        tests = rows[rows["must"].notna()]
        chosen = rows if len(rows) <= MOST else tests
        if 0 < len(chosen) <= MOST:
            text = "; and ".join(map(row_sentence, chosen.to_dict("records")))
            chosen_rows.append(chosen)
        else:
            text = _in_sum(rows)
        text = text[:1].upper() + text[1:]
        sentences.append(f"{judge}: {text}." if several else f"{text}.")
    return " ".join(sentences) + (margins(pd.concat(chosen_rows)) if chosen_rows else "")


def _in_sum(rows: pd.DataFrame) -> str:
    """How many tests came out as they must, which did not, and what was not run."""
    tests = rows[rows["must"].notna()]
    if tests.empty:
        described = rows[rows["verdict"] == "described"].to_dict("records")[:MOST]
        return "nothing is tested" + "".join(f"; {row_sentence(row)}" for row in described)
    passes = tests["passes"]
    wrong = tests[passes.eq(False).fillna(False)]
    right = int(passes.eq(True).fillna(False).sum())
    text = f"of {len(tests)} tests {right} came out as they must, {len(wrong)} did not, and"
    text += f" {int(passes.isna().sum())} are undecided with these items"
    if len(wrong):
        size = (wrong["effect"].abs() / wrong["margin"]).fillna(np.inf)
        worst = wrong.loc[size.sort_values(ascending=False).index].to_dict("records")
        text += ". Against what must be: " + "; ".join(row["finding"] for row in worst[:MOST])
        if len(worst) > MOST:
            text += f"; and {len(worst) - MOST} more"
    idle = rows.loc[rows["verdict"] == "not run", "probe"].unique()
    if len(idle):
        text += f". Not run: {', '.join(idle)}; the column note says why"
    return text


def missing_text(table: pd.DataFrame) -> list[str]:
    """A caveat where many rows of a test are missing."""
    share = table["missing"] / (table["n"] + table["missing"]).clip(lower=1)
    worst = share.fillna(0).max() if len(share) else 0.0
    if is_missing(worst) or worst <= 0.05:
        return []
    row = table.loc[share.idxmax()]
    return [
        f"up to {share.max():.0%} of the items lack a score in one of the runs ({row['case']}) and"
        " are left out: what was changed may have made them unreadable"
    ]
