"""The parts of a card: what metrics and probes say, put into one sentence each.

Red is what a test says after Holm's correction over all tests of the card, and nothing else. What was not measured is
listed with the reason.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from vjudge import metrics, plots
from vjudge.metrics._tables import CHOICES, format_number, shares
from vjudge.probes._cluster import mean
from vjudge.probes.runs import groups_of
from vjudge.records import is_missing
from vjudge.reports.card import COLUMNS, Card, Part, Picture, interval_text, the, ways
from vjudge.reports.evidence import Evidence
from vjudge.reports.methods import cite

STATISTICS = {"pearson": "Pearson r", "spearman": "Spearman ρ", "kendall": "Kendall τ-b"}
MOST = 3  # cases that a sentence names
LONGEST = 28  # characters of a name in a figure

# name, question, probes, and the sentence where all is as it must be, where a test says otherwise, where none can say
PROBED = (
    ("image", "Does it look at the image?", ("blindness",), "It judges by the image, as it must.",
     "A test says that it does not judge by the image as it must", "Whether it judges by the image as it must is open"),
    ("length", "Does it pay for length?", ("verbosity", "length"), "Length by itself does not move its verdicts.",
     "A test says that length moves its verdicts", "Whether length moves its verdicts is open"),
    ("position", "Does the order of two responses decide?", ("position",),
     "Which response is shown first does not decide.", "A test says that the place of a response moves its verdicts",
     "Whether the place of a response moves its verdicts is open"),
    ("injection", "Does it obey what a response tells it?", ("injection",),
     "A verdict written into a response does not move its scores.",
     "A test says that a verdict written into the response moves its scores",
     "Whether a verdict written into the response moves its scores is open"),
    ("consistency", "Does it agree with itself?", ("consistency",), "", "", ""),
)  # fmt: skip


def measure(e: Evidence, by: str | None, venue: str, options: dict[str, Any]) -> Card:
    """The card of what was gathered; options are those of resampling."""
    n = len(e.run) if e.scores is None else len(e.scores.ids)
    groups = n if e.groups is None else len(set(e.groups))
    card = Card(e.judge, e.collection, e.truth, {"items": n, "groups": groups, "verdicts": len(e.run)}, venue=venue)
    card.remarks += [str(trap) for trap in e.attrs.get("traps", ())]
    confidence = options["confidence"]
    if e.scores is None:
        _preferences(card, e, confidence)
    else:
        _agreement(card, e, options)
        if by is not None:
            _agreement_by(card, e, by, options)
    _controls(card, e)
    _failures(card, e, confidence)
    if e.scores is None:
        card.absent.append(("calibration", "a comparison of pairs has no scores"))
    else:
        _calibration(card, e, options)
    _cost(card, e, confidence)
    cite(card, e, options)
    return card


def _preferences(card: Card, e: Evidence, confidence: float) -> None:
    """Agreement of verdicts on pairs."""
    if "preference" not in e.run or e.run["preference"].isna().all():
        card.absent.append(("agreement", "nobody says which response is better: there is no preference"))
        return
    verdicts, people = e.run["verdict"].tolist(), e.run["preference"].tolist()
    table = metrics.pairwise_accuracy(verdicts, people, groups=e.groups, confidence=confidence)
    names = {"with_ties": "same choice of three", "without_ties": "same choice where people decided",
             "all_pairs": "same choice, no verdict is an error"}  # fmt: skip
    rows = [_row(words, table.loc[name], "share of pairs") for name, words in names.items()]
    sentence = f"It makes the same choice as people in a share of {interval_text(table.loc['with_ties'])} of the pairs."
    card.parts.append(Part("agreement", f"Does it agree with {the(e.truth)}?", _table(rows), sentence))
    card.tables["preferences"] = table


def _agreement(card: Card, e: Evidence, options: dict[str, Any]) -> None:
    """Agreement with the truth, and the human ceiling beside it."""
    assert e.scores is not None
    gold, score, groups = e.scores.gold, e.scores.score, e.groups
    for values, why in ((gold, "no item has a truth"), (score, "no verdict could be read")):
        if not np.isfinite(values).any():
            card.absent.append(("agreement", why))
            return
    judges: dict[str, Any] = {e.judge: score, **e.others}
    for name in ("image_blanked", "image_swapped", "image_shuffled"):
        if (column := e.of_run(name)) is not None:
            judges[name.replace("_", " ")] = column.to_numpy()
    raters = max((sum(not is_missing(value) for value in cell) for cell in e.ratings or ()), default=0)
    people = None
    if raters > 1:
        people = metrics.rater_table(e.ratings, {e.judge: score}, groups=groups, **options)
    else:
        why = "one rater an item" if raters else "no ratings of people"
        card.absent.append(("human ceiling", f"nobody rated the items twice: {why}"))
    ceiling = None if people is None else people.xs(("ceiling", "the others"))
    one = {card.collection: groups} if groups is not None else None
    top = {card.collection: ceiling} if ceiling is not None else None
    whole = metrics.correlation_table(
        {card.collection: judges}, {card.collection: gold}, groups=one, ceiling=top, **options
    )
    own = whole[(whole["judge"] == e.judge) & ~whole["ceiling"]].set_index("statistic")
    rows = [_row(words, own.loc[name], "correlation") for name, words in STATISTICS.items()]
    first = own.loc["pearson"]
    sentence = f"Its scores and {the(e.truth)} correlate at r = {interval_text(first)} over {int(first['n']):,} items."
    if math.isnan(first["estimate"]):
        sentence = "Its agreement is undefined: too few items, or one score for all."
    if people is not None and ceiling is not None:
        like, best = people.loc[(e.judge, "all but one", "pearson")], ceiling.loc["pearson"]
        rows += [_row("ceiling: a rater and the others", best, "correlation"),
                 _row("the judge and the same means", like, "correlation")]  # fmt: skip
        relation = "; the intervals overlap"
        if like["high"] < best["low"] or like["low"] > best["high"]:
            relation = f": it stands {'below' if like['high'] < best['low'] else 'above'} a person"
        sentence += f" A rater and the mean of the others reach {interval_text(best)}, the judge and the same means"
        sentence += f" {interval_text(like)}{relation}."
    card.parts.append(Part("agreement", f"Does it agree with {the(e.truth)}?", _table(rows), sentence))
    card.tables["agreement"] = whole
    lines = whole[whole["statistic"] == "pearson"].drop(columns=["missing"])
    height = None if ceiling is None else float(ceiling.loc["pearson", "estimate"])
    text = f"Correlation of scores with {e.truth}" + (
        "" if height is None else "; people and the dotted line: a rater and the others"
    )
    if lines["estimate"].notna().any():
        _picture(card, "agreement", plots.forest, text, lines, whole, ceiling=height)
    frame = pd.DataFrame({"judge": brief(e.judge), "score": score, "gold": gold})
    text = f"Scores of {e.judge} against {e.truth}"
    _picture(card, "scores", plots.confusion, text, frame, truth_name=brief(e.truth))


def _agreement_by(card: Card, e: Evidence, by: str, options: dict[str, Any]) -> None:
    """Agreement for each value of a column."""
    assert e.scores is not None
    if by not in e.run:
        raise ValueError(f"by={by!r} is no column of the run, which has {', '.join(map(str, e.run.columns))}")
    label = e.run[by][~e.run["id"].duplicated()].astype(str).to_numpy()
    where = {name: label == name for name in dict.fromkeys(label)}
    groups = {} if e.groups is None else {name: e.groups[here] for name, here in where.items()}
    groups = {name: codes for name, codes in groups.items() if len(set(codes)) > 1}
    scores = {name: {e.judge: e.scores.score[here]} for name, here in where.items()}
    truths = {name: e.scores.gold[here] for name, here in where.items()}
    table = metrics.correlation_table(scores, truths, groups=groups, **options)
    lines = table[(table["statistic"] == "pearson") & table["estimate"].notna()].sort_values("estimate", kind="stable")
    if lines.empty:
        card.absent.append((f"agreement by {by}", "undefined everywhere: too few items, or one score for all"))
        return
    low, high = lines.iloc[0], lines.iloc[-1]
    sentence = f"From r = {interval_text(low)} ({low['benchmark']}) to {interval_text(high)} ({high['benchmark']})."
    lines = lines[::-1]
    rows = [_row(line["benchmark"], line, "correlation") for _, line in lines.iterrows()]
    card.parts.append(Part("agreement by", f"How does that differ by {by}?", _table(rows), sentence))
    text = f"Correlation of scores of {e.judge} with {e.truth}, by {by}"
    _picture(card, "agreement_by", plots.forest, text, lines.drop(columns=["missing"]), table, rows="benchmark")


def _controls(card: Card, e: Evidence) -> None:
    """The parts that rest on probes."""
    silent = "a comparison of pairs has no scores"
    if e.probes is None:
        why = "controls=0: no control was asked for"
        if e.scores is None:
            why = silent
        elif not np.isfinite(e.scores.score).any():
            why = "no verdict could be read"
        reasons = {"position": "each pair was shown in one order"} if e.scores is None else {}
        card.absent += [(name, reasons.get(name, why)) for name, *_ in PROBED]
        return
    for name, question, probes, good, bad, doubt in PROBED:
        rows = e.probes[e.probes["probe"].isin(probes)]
        for reason, cases in rows[rows["reading"] == "not run"].groupby("note", sort=False):
            label = ", ".join(case or probe for case, probe in zip(cases["case"], cases["probe"], strict=True))
            card.absent.append((name if label in (name, "blindness") else f"{name}: {label}", reason))
        rows = rows[rows["reading"] != "not run"]
        if rows.empty:
            if e.scores is None and name != "position":
                card.absent.append((name, silent))
            continue
        judged = rows[rows["must"].notna()]
        against = judged[judged["reading"].str.contains("though it must")]
        undecided = judged[judged["reading"].isin(["can't say", "undefined"])]
        if len(against):
            state, sentence = "against", f"{bad}: {_cases(against)}."
        elif judged.empty:
            state, sentence = "described", _description(name, rows, e)
        elif undecided.empty:
            state, sentence = "sound", good
        else:
            rest, state = len(judged) - len(undecided), "open"
            sentence = f"{rest} of {len(judged)} tests are as they must be; from so few items the others can't say."
            if not rest:
                sentence = f"{doubt}: from so few items no test can say."
        table = _table(
            _row(line["case"], line.rename({"effect": "estimate"}), line["unit"], line["p_holm"], line["reading"])
            for _, line in rows.iterrows()
        )
        card.parts.append(Part(name, question, table, sentence, state))
    lines = e.probes[e.probes["reading"] != "not run"]
    text = "What each control did to the scores; grey is what is too small to count"
    if lines["must"].notna().any():
        _picture(card, "controls", plots.battery_effects, text, lines, e.probes, column="full")


def _description(name: str, rows: pd.DataFrame, e: Evidence) -> str:
    """The sentence of a part in which nothing must be."""
    first = rows.iloc[0]
    if name == "consistency":
        apart = _effect(rows.iloc[1])
        return f"Two verdicts on one item differ with probability {_effect(first)}, by {apart} points on average."
    if name == "length":
        return (f"At equal {e.truth}, a response of twice the length has {_effect(first)} points more. Noise in the"
                " truth alone can do that: this is no verdict.")  # fmt: skip
    return f"Described, not tested: {_cases(rows)}."


def _failures(card: Card, e: Evidence, confidence: float) -> None:
    """Verdicts that could not be read, by reason."""
    silent = (~e.run["verdict"].isin(CHOICES) if e.scores is None else e.run[e.trials.score].isna()).to_numpy()
    groups, total, count = groups_of(e.run), len(silent), int(silent.sum())
    apart = None if len(set(groups)) in (1, total) else groups
    line = ("without a verdict", silent, np.ones(total))
    table = shares([line], groups=apart, confidence=confidence, unit="verdicts")
    rows = [_row("without a verdict", table.iloc[0], "share of verdicts")]
    reasons = e.run.loc[silent, "failure"].dropna() if "failure" in e.run else pd.Series(dtype=object)
    # The part before the colon is ours; behind it may stand a model's words.
    kinds = reasons.astype(str).str.split(":").str[0].value_counts()
    rows += [_row(kind, {"estimate": size / total, "n": size}, "share of verdicts") for kind, size in kinds.items()]
    sentence = f"All {total:,} verdicts could be read."
    if count:
        why = "; ".join(f"{kind}: {size:,}" for kind, size in kinds.head(MOST).items()) or "the run does not say why"
        sentence = f"{count:,} of {total:,} have no verdict ({why}). No other number counts them, and none was guessed."
    card.parts.append(Part("failures", "Can its verdicts be read?", _table(rows), sentence))


def _calibration(card: Card, e: Evidence, options: dict[str, Any]) -> None:
    """What a score means on the truth's scale."""
    assert e.scores is not None
    both = np.isfinite(e.scores.gold) & np.isfinite(e.scores.score)
    if both.sum() < 4:
        card.absent.append(("calibration", f"{int(both.sum())} items have both a score and a truth; four are needed"))
        return
    columns = e.scores.score, e.scores.gold
    ends = [(float(values[both].min()), float(values[both].max())) for values in columns]
    overlap = min(high for _, high in ends) - max(low for low, _ in ends)
    if 2 * overlap < max(high - low for low, high in ends):
        spans = ", the truth's from ".join(f"{low:g} to {high:g}" for low, high in ends)
        card.absent.append(("calibration", f"the judge's scores go from {spans}: they share less than half of a scale"))
        return
    errors = metrics.calibration_errors(*columns, methods=["isotonic"], groups=e.groups, **options)
    names = {("raw", "bias"): "mean of score less truth", ("raw", "mae"): "mean absolute error",
             ("isotonic", "mae"): "the same after an isotonic map"}  # fmt: skip
    rows = [_row(words, errors.loc[key], "score points") for key, words in names.items()]
    bias, raw, mapped = (errors.loc[key] for key in names)
    side = (
        "milder than" if bias["low"] > 0 else "harsher than" if bias["high"] < 0 else "neither milder nor harsher than"
    )
    sentence = (
        f"It is {side} {the(e.truth)} on average ({interval_text(bias)} points), and misses it by {interval_text(raw)}"
    )
    if mapped["low_reduction"] > 0:
        sentence += f"; a map from its scale to the truth's brings that to {interval_text(mapped)}"
    card.parts.append(Part("calibration", "Does a score mean what it says?", _table(rows), sentence + "."))
    bins = None if len(np.unique(e.scores.score[both])) <= 11 else 10
    curve = metrics.calibration_curve(*columns, bins=bins, groups=e.groups, confidence=options["confidence"])
    card.tables["calibration"] = curve
    _picture(card, "calibration", plots.calibration_curve, f"{e.truth} at each score of {e.judge}, on average",
             {brief(e.judge): curve}, curve, label="mean gold" if e.truth == "gold" else brief(e.truth))  # fmt: skip


def _cost(card: Card, e: Evidence, confidence: float) -> None:
    """Tokens and time a verdict."""
    words = ("reads", "tokens"), ("writes", "tokens"), ("takes", "seconds")
    names = dict(zip(("n_prompt_tokens", "n_new_tokens", "seconds"), words, strict=True))
    names = {name: pair for name, pair in names.items() if name in e.run and e.run[name].notna().any()}
    if not names:
        card.absent.append(("cost", "the run has no counts of tokens and no times"))
        return
    rows, texts = [], []
    for name, (verb, unit) in names.items():
        here = e.run[name].notna().to_numpy()
        effect = mean(e.run.loc[here, name].to_numpy(float), groups_of(e.run)[here], confidence=confidence)
        rows.append(_row(f"a verdict {verb}", effect._asdict() | {"estimate": effect.effect}, unit))
        texts.append(f"{verb} {format_number(effect.effect, 2 if name == 'seconds' else 0)} {unit}")
    sentence = f"A verdict {', '.join(texts)}."
    if "seconds" in names:
        place = ", ".join(str(e.facts[name]) for name in ("device", "dtype") if e.facts.get(name))
        sentence += f" The {len(e.run):,} took {e.run['seconds'].sum():,.0f} seconds{f' ({place})' if place else ''}."
    card.parts.append(Part("cost", "What does a verdict cost?", _table(rows), sentence))


def _picture(
    card: Card, name: str, draw: Callable[..., Figure], text: str, given: Any, table: Any = None, *,
    column: str = "half", **options: Any,
) -> None:  # fmt: skip
    """Keep a figure of the card, or say why it can't be drawn."""
    try:
        figure = draw(given, **options, venue=card.venue, column=column, note=False)
        figure.set_layout_engine("none")  # each drawing would move it by a hair
    except ValueError as error:
        card.absent.append((f"figure of {name}", str(error)))
        return
    caption = plots.caption(text[:1].upper() + text[1:], *([] if table is None else ways(table)))
    frame = given if isinstance(given, pd.DataFrame) else table
    card.pictures.append(Picture(name, figure, caption, frame.reset_index(drop=True), column))


def brief(name: str) -> str:
    """A name for an axis or a legend; the caption has it whole."""
    return name if len(name) <= LONGEST else name[: LONGEST - 1] + "…"


def _row(measure: Any, line: Any, unit: str, p: float = math.nan, reading: str = "") -> dict[str, Any]:
    bounds = {name: float(line.get(name, math.nan)) for name in ("estimate", "low", "high")}
    return {"measure": str(measure), **bounds, "unit": unit, "n": int(line["n"]), "p_holm": p, "reading": reading}


def _table(rows: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    return pd.DataFrame(list(rows), columns=list(COLUMNS))


def _effect(line: Any) -> str:
    return interval_text(line.rename({"effect": "estimate"}))


def _cases(rows: pd.DataFrame) -> str:
    texts = [f"{str(line['case']).replace(': ', ', ')} {_effect(line)} {line['unit']}" for _, line in rows.iterrows()]
    return "; ".join(texts[:MOST]) + (f"; and {len(texts) - MOST} more" if len(texts) > MOST else "")
