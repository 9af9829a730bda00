"""A judge's report card: its parts, each a question, its numbers, and the one sentence that follows.

Red is what a test says after Holm's correction over all tests of the card, and nothing else. What was not measured is
listed with the reason.
"""

from __future__ import annotations

import html
import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

import vjudge
from vjudge import metrics, plots
from vjudge.metrics._tables import CHOICES, format_interval, format_number, format_p, shares
from vjudge.probes import Trials, Unmet
from vjudge.probes._cluster import mean
from vjudge.probes.runs import Scored, groups_of
from vjudge.prompts import families

COLUMNS = ["measure", "estimate", "low", "high", "unit", "n", "p_holm", "reading"]
STATISTICS = {"pearson": "Pearson r", "spearman": "Spearman ρ", "kendall": "Kendall τ-b"}
FACTS = ("model", "revision", "weights", "dtype", "quantization", "engine", "device")  # of a manifest, for a paper
BLIND = ("image_blanked", "image_swapped", "image_shuffled")
MOST = 3  # cases that a sentence names


@dataclass
class Part:
    """One question of a card.

    Args:
        name, question: of the part.
        table: its numbers: columns measure, estimate, low, high, unit, n, p_holm and reading.
        sentence: what follows from them.
        state: "against" where a test corrected by Holm's method says that something is not as it must be, "open" where
            none can say, "sound" where all is as it must be, "described" where nothing must be.
    """

    name: str
    question: str
    table: pd.DataFrame
    sentence: str
    state: str

    @property
    def text(self) -> pd.DataFrame:
        """The table as it is printed, without columns that are empty."""
        frame = self.table[["measure", "unit", "reading"]].astype(str)
        frame.insert(1, "estimate [95%]", [interval_text(line) for _, line in self.table.iterrows()])
        frame.insert(3, "n", [f"{n:,}" for n in self.table["n"]])
        tests = ["" if math.isnan(p) else format_p(p).removeprefix("= ") for p in self.table["p_holm"]]
        frame.insert(4, "p (Holm)", tests)
        return frame.loc[:, (frame != "").any()]


class Picture(NamedTuple):
    """A figure of a card at the venue's width, its caption and its data."""

    name: str
    figure: Figure
    caption: str
    data: pd.DataFrame


@dataclass
class Card:
    """A judge's report card; it shows itself in a notebook.

    Args:
        judge, collection: names; truth: what scores are held against, in words.
        run: one row a verdict, with the truth in its column `gold`; of pairs, with people's choice in `preference`.
        trials: the controls' runs; probes: the battery's table, None where there was nothing to probe.
        pairs: whether pairs were compared; scores: of each item, NaN for pairs; ratings: people's, a list an item.
        others: further judges' scores by id; facts: the run's manifest; venue: of the figures; options: of resampling.
        parts: what was measured; absent: what was not, each with the reason; remarks: what to know before a number is
            printed; pictures: the figures; correlations: all judges', as `metrics.correlation_table` has them.
        methods: sentences, each with what it cites: keys of `assets/report.bib`, or papers in words.
    """

    judge: str
    collection: str
    truth: str
    run: pd.DataFrame
    trials: Trials
    pairs: bool
    scores: Scored
    venue: str
    options: dict[str, Any]
    probes: pd.DataFrame | None = None
    ratings: list[list[Any]] = field(default_factory=list)
    others: dict[str, pd.Series] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    parts: list[Part] = field(default_factory=list)
    absent: list[tuple[str, str]] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    pictures: list[Picture] = field(default_factory=list)
    correlations: pd.DataFrame | None = None
    methods: list[tuple[str, list[str]]] = field(default_factory=list)

    @property
    def table(self) -> pd.DataFrame:
        """All numbers of the card, with the part that each belongs to."""
        frames = [part.table.assign(part=part.name, state=part.state) for part in self.parts]
        return pd.concat(frames, ignore_index=True)

    @property
    def groups(self) -> np.ndarray | None:
        """The unit of resampling of each item; None where each item is its own."""
        return None if len(set(self.scores.group)) == len(self.scores.ids) else self.scores.group

    def write(self, folder: str | Path) -> dict[str, Path]:
        """Write report.html, report.pdf and the folder for a paper (paper/), the same bytes every time.

        Returns:
            The path of each by its name: html, pdf, paper.
        """
        from vjudge.reports.pages import write

        return write(self, Path(folder))

    def _repr_html_(self) -> str:
        from vjudge.reports.pages import to_html

        # A frame of its own: a notebook's styles and the card's leave one another alone.
        page = html.escape(to_html(self), quote=True)
        return f'<iframe srcdoc="{page}" sandbox="" style="width:100%;height:900px;border:1px solid #ddd"></iframe>'

    def add(self, name: str, question: str, measure: Callable[..., tuple[Any, ...]], *given: Any) -> None:
        """Add a part, or why it could not be measured.

        Args:
            measure: returns rows, the sentence and perhaps the state; or raises Unmet. A row is what is measured;
                estimate, bounds and n, perhaps p and reading; and the unit.
        """
        try:
            rows, sentence, *state = measure(self, *given)
        except Unmet as error:
            self.absent.append((name, str(error)))
            return
        empty = {"p_holm": math.nan, "reading": ""}
        lines = [empty | dict(line) | {"measure": str(label), "unit": unit} for label, line, unit in rows]
        table = pd.DataFrame(lines).reindex(columns=COLUMNS).astype({"n": int})
        self.parts.append(Part(name, question, table, sentence, *state or ["described"]))

    def draw(self, name: str, plot: Callable[..., Figure], text: str, given: Any, data: Any, **options: Any) -> None:
        """Keep a figure with its data, or say why it can't be drawn."""
        try:
            figure = plot(given, **{"column": "half", **options}, venue=self.venue, note=False)
        except ValueError as error:
            self.absent.append((f"figure of {name}", str(error)))
            return
        figure.set_layout_engine("none")  # each drawing would move it by a hair
        text = f"{text[:1].upper()}{text[1:]}" + (f". {_method(data)}" if data.attrs else "")
        self.pictures.append(Picture(name, figure, text, data.reset_index(drop=True)))

    def say(self, sentence: str, *cited: str) -> None:
        """Add a sentence to the methods."""
        self.methods.append((sentence, list(cited)))


def measure(card: Card, by: str | None) -> None:
    """Fill a card with its parts; `by` is a column for each of whose values the agreement is given too."""
    _describe(card)
    card.add("agreement", f"Does it agree with {card.truth}?", _preferences if card.pairs else _agreement)
    if by is not None:
        card.add("agreement by", f"How does that differ by {by}?", _agreement_by, by)
    moves = "does not move its scores"
    card.add("image", "Does it look at the image?", _probe, ["blindness"], "it judges by the image")
    card.add("length", "Does it reward length?", _probe, ["verbosity", "length"], f"length by itself {moves}")
    order = "Does the order of responses decide?"
    card.add("position", order, _probe, ["position"], "the response shown first has no advantage")
    card.add("injection", "Does it obey a response?", _probe, ["injection"], f"a verdict in the response {moves}")
    card.add("consistency", "Does it agree with itself?", _probe, ["consistency"], "it agrees with itself")
    card.add("failures", "Can its verdicts be read?", _failures)
    card.add("calibration", "Does a score mean what it says?", _calibration)
    card.add("cost", "What does a verdict cost?", _cost)
    _draw_controls(card)
    card.say(f"Computed with vjudge {vjudge.__version__}, seed {card.options['seed']}")


def _describe(card: Card) -> None:
    """Who judged what, and how its verdicts came about, from the run's manifest."""
    facts, attrs = card.facts, card.run.attrs
    what = "pairs of responses" if card.pairs else "responses"
    count = f"{len(card.scores.ids):,} {what} in {len(set(card.scores.group)):,} groups"
    card.say(f"The judge {card.judge} graded {count} of {card.collection}", "mitchell2019")
    if family := families.find(card.judge.lower().replace("_", "-")):
        wording = (facts.get("template") or {}).get("name")
        asked = f" and was asked in the wording {wording}" if wording else ""
        card.say(f"It belongs to the {family.name} family{asked}", *family.paper.split("; "))
    if attrs.get("citation"):
        card.say(f"Verdicts and people's ratings were read from {attrs['source']}", *attrs["citation"].split("; "))
    card.remarks += map(str, attrs.get("traps", ()))
    if not facts:
        card.say("The run does not record the judge's revision and decoding")
        return
    how = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in (facts.get("decoding") or {}).items())
    how = f"decoding with {how}" if how else "one forward pass that reads the distribution over the scores"
    card.say(f"Verdicts were drawn in {facts.get('mode')} mode by {how}")
    record = {name: facts.get(name) for name in FACTS} | (facts.get("versions") or {})
    record["items"] = (facts.get("collection") or {}).get("fingerprint")
    words = [f"{name} {str(value)[:40]}" for name, value in record.items() if value]
    card.say(f"The run's manifest has {', '.join(words)}")


def _preferences(card: Card) -> tuple[Any, ...]:
    """Agreement of verdicts on pairs."""
    if "preference" not in card.run or card.run["preference"].isna().all():
        raise Unmet("nobody says which response is better: there is no preference")
    verdicts, people = card.run["verdict"].tolist(), card.run["preference"].tolist()
    table = metrics.pairwise_accuracy(verdicts, people, groups=card.groups)
    card.say(f"Agreement: {table.attrs['method']}", "wilson1927")
    names = {"with_ties": "same choice of three", "without_ties": "same choice where people decided"}
    names["all_pairs"] = "same choice, no verdict is an error"
    share = interval_text(table.loc["with_ties"])
    rows = [(words, table.loc[name], "share of pairs") for name, words in names.items()]
    return rows, f"It makes the same choice as people in a share of {share} of the pairs."


def _agreement(card: Card) -> tuple[Any, ...]:
    """Agreement with the truth, and the human ceiling beside it."""
    gold, score, groups = card.scores.gold, card.scores.score, card.groups
    for values, why in ((gold, "no item has a truth"), (score, "no verdict could be read")):
        if not np.isfinite(values).any():
            raise Unmet(why)
    blind = {name: card.trials.scored(name) for name in BLIND if name in card.trials.runs}
    columns = card.others | {name.replace("_", " "): pd.Series(run.score, run.ids) for name, run in blind.items()}
    others = {name: column.reindex(card.scores.ids).to_numpy() for name, column in columns.items()}
    raters = max((int(pd.notna(cell).sum()) for cell in card.ratings if cell), default=0)
    sides: dict[str, Any] = {} if groups is None else {"groups": {card.collection: groups}}
    if raters > 1:
        people = metrics.rater_table(card.ratings, {card.judge: score}, groups=groups, **card.options)
        sides["ceiling"] = {card.collection: people.xs(("ceiling", "the others"))}
    else:
        card.absent.append(("human ceiling", "no item was rated by two people"))
    judges = {card.collection: {card.judge: score, **others}}
    whole = metrics.correlation_table(judges, {card.collection: gold}, **sides, **card.options)
    card.correlations = whole
    card.say(f"Scores are held against {card.truth}, with {_method(whole)}", "efron1993")
    own = whole[(whole["judge"] == card.judge) & ~whole["ceiling"]].set_index("statistic")
    rows, r = [(words, own.loc[name], "correlation") for name, words in STATISTICS.items()], own.loc["pearson"]
    sentence = f"Its scores and {card.truth} correlate at r = {interval_text(r)} over {int(r['n']):,} items."
    if math.isnan(r["estimate"]):
        sentence = "Its agreement is undefined: too few items, or one score for all."
    text, height = f"Correlation of scores with {card.truth}", None
    if raters > 1:
        best, like = (people.loc[(*who, "pearson")] for who in (("ceiling", "the others"), (card.judge, "all but one")))
        rows.append(("ceiling: a rater and the others", best, "correlation"))
        rows.append(("the judge and the same means", like, "correlation"))
        relation = "; the intervals overlap"
        if like["high"] < best["low"] or like["low"] > best["high"]:
            relation = f": it stands {'below' if like['high'] < best['low'] else 'above'} a person"
        sentence += f" A rater and the mean of the others reach {interval_text(best)}, the judge and the same means"
        sentence += f" {interval_text(like)}{relation}."
        text, height = f"{text}; people and the dotted line: a rater and the others", float(best["estimate"])
        ceiling_is = "The human ceiling is the mean over raters of each one's correlation with the mean of the others"
        card.say(f"{ceiling_is}, and the judge is held to the same means", "calderon2025")
    lines = whole[whole["statistic"] == "pearson"].drop(columns="missing")
    if lines["estimate"].notna().any():
        card.draw("agreement", plots.forest, text, lines, whole, ceiling=height)
    frame = pd.DataFrame({"judge": brief(card.judge), "score": score, "gold": gold})
    text = f"Scores of {card.judge} against {card.truth}"
    card.draw("scores", plots.confusion, text, frame, frame, truth_name=brief(card.truth))
    return rows, sentence


def _agreement_by(card: Card, by: str) -> tuple[Any, ...]:
    """Agreement for each value of a column."""
    if by not in card.run:
        raise ValueError(f"by={by!r} is no column of the run, which has {', '.join(map(str, card.run.columns))}")
    label = card.run[by][~card.run["id"].duplicated()].astype(str).to_numpy()
    where = {name: label == name for name in dict.fromkeys(label)}
    judges = {name: {card.judge: card.scores.score[here]} for name, here in where.items()}
    truth = {name: card.scores.gold[here] for name, here in where.items()}
    groups = {name: card.scores.group[here] for name, here in where.items()}
    groups = {name: codes for name, codes in groups.items() if len(set(codes)) > 1}
    table = metrics.correlation_table(judges, truth, groups=groups, **card.options)
    lines = table[(table["statistic"] == "pearson") & table["estimate"].notna()].drop(columns="missing")
    if lines.empty:
        raise Unmet("undefined everywhere: too few items, or one score for all")
    lines = lines.sort_values("estimate", kind="stable", ascending=False)
    text = f"Correlation of scores of {card.judge} with {card.truth}, by {by}"
    card.draw("agreement_by", plots.forest, text, lines, table, rows="benchmark")
    ends = [f"{interval_text(line)} ({line['benchmark']})" for _, line in lines.iloc[[-1, 0]].iterrows()]
    rows = [(line["benchmark"], line, "correlation") for _, line in lines.iterrows()]
    return rows, f"From r = {ends[0]} to {ends[1]}."


def _probe(card: Card, kinds: list[str], claim: str) -> tuple[Any, ...]:
    """What the tests of some probes say together of a claim; a description where nothing is tested."""
    if card.pairs and kinds != ["position"]:
        raise Unmet("a comparison of pairs has no scores")
    if card.probes is None and card.pairs:
        raise Unmet("each pair was shown in one order")
    if card.probes is None:
        judged = np.isfinite(card.scores.score).any()
        raise Unmet("controls=0: no control was asked for" if judged else "no verdict could be read")
    rows = card.probes[card.probes["probe"].isin(kinds)].rename(columns={"effect": "estimate"})
    idle, rows = rows[rows["reading"] == "not run"], rows[rows["reading"] != "not run"]
    if rows.empty:
        raise Unmet("; ".join(idle["note"].unique()))
    card.absent += [(line["case"] or line["probe"], line["note"]) for _, line in idle.iterrows()]
    cells = [(line["case"], line, line["unit"]) for _, line in rows.iterrows()]
    tested = rows[rows["must"].notna()]
    against = tested[tested["reading"].str.contains("though it must")]
    sure = int((~tested["reading"].isin(["can't say", "undefined"])).sum())
    if len(against):
        return cells, f"Corrected tests contradict that {claim}: {_cases(against)}.", "against"
    if sure and sure == len(tested):
        return cells, f"All {sure} tests bear out that {claim}.", "sound"
    if len(tested):
        few = "for the others the items are too few"
        return cells, f"{sure} of {len(tested)} tests bear out that {claim}; {few}.", "open"
    note = rows["note"].iloc[0]
    return cells, f"Described, not tested: {_cases(rows)}{f' ({note})' if note else ''}."


def _draw_controls(card: Card) -> None:
    """The figure of all controls, and how they were tested."""
    if card.probes is not None and card.probes["must"].notna().any():
        ran = card.probes[card.probes["reading"] != "not run"]
        text = "What each control did to the scores; grey is what is too small to count"
        card.draw("controls", plots.battery_effects, text, ran, ran, column="full")
        card.say(f"Controls rest on up to {ran['n'].max():,} items, with {ran.attrs['method']}", "mackinnon2023")
        card.say(f"Holm's method corrects for their {ran.attrs['n_tests']} tests", "holm1979")
        card.say("A score stays where its whole interval lies inside a margin stated beforehand", "schuirmann1987")


def _failures(card: Card) -> tuple[Any, ...]:
    """Verdicts that could not be read, by reason."""
    run, groups = card.run, groups_of(card.run)
    silent = (~run["verdict"].isin(CHOICES) if card.pairs else run[card.trials.score].isna()).to_numpy()
    total, count = len(silent), int(silent.sum())
    units = None if len(set(groups)) in (1, total) else groups
    table = shares([("", silent, np.ones(total))], groups=units, confidence=0.95, unit="verdicts")
    reasons = run.loc[silent, "failure"].dropna() if "failure" in run else pd.Series(dtype=object)
    # The part before the colon is ours; behind it may stand a model's words.
    kinds = reasons.astype(str).str.split(":").str[0].value_counts()
    rows = [("without a verdict", table.iloc[0], "share of verdicts")]
    rows += [(kind, {"estimate": size / total, "n": size}, "share of verdicts") for kind, size in kinds.items()]
    sentence = f"All {total:,} verdicts could be read."
    if count:
        why = "; ".join(f"{kind}: {size:,}" for kind, size in kinds.head(MOST).items()) or "the run does not say why"
        sentence = f"{count:,} of {total:,} have no verdict ({why}). No other number counts them; none was guessed."
    card.say(sentence.rstrip("."), "wilson1927")
    return rows, sentence


def _calibration(card: Card) -> tuple[Any, ...]:
    """What a score means on the truth's scale."""
    if card.pairs:
        raise Unmet("a comparison of pairs has no scores")
    columns = card.scores.score, card.scores.gold
    both = np.isfinite(columns).all(axis=0)
    if both.sum() < 4:
        raise Unmet(f"{int(both.sum())} items have both a score and a truth; four are needed")
    (low, high), (least, most) = ((float(values[both].min()), float(values[both].max())) for values in columns)
    if 2 * (min(high, most) - max(low, least)) < max(high - low, most - least):
        spans = f"the judge's scores go from {low:g} to {high:g}, the truth's from {least:g} to {most:g}"
        raise Unmet(f"{spans}: they share less than half of a scale")
    bins = None if len(np.unique(columns[0][both])) <= 11 else 10
    curve = metrics.calibration_curve(*columns, bins=bins, groups=card.groups)
    label = "mean gold" if card.truth == "gold" else brief(card.truth)
    text = f"{card.truth} at each score of {card.judge}, on average"
    card.draw("calibration", plots.calibration_curve, text, {brief(card.judge): curve}, curve, label=label)
    errors = metrics.calibration_errors(*columns, methods=["isotonic"], groups=card.groups, **card.options)
    names = {("raw", "bias"): "mean of score less truth", ("raw", "mae"): "mean absolute error"}
    names["isotonic", "mae"] = "the same after an isotonic map"
    bias, raw, mapped = (errors.loc[key] for key in names)
    side = "is milder than" if bias["low"] > 0 else "is not shown to differ from"
    side = "is harsher than" if bias["high"] < 0 else side
    sentence = f"On average it {side} {card.truth} ({interval_text(bias)} points); its mean absolute error is"
    sentence += f" {interval_text(raw)}"
    if mapped["low_reduction"] > 0:
        sentence += f", and {interval_text(mapped)} after a map to the truth's scale"
    isotonic = "the map to the truth's scale is isotonic, fitted on the other half of the items"
    card.say(f"Calibration: {curve.attrs['method']}; {isotonic}", "barlow1972")
    return [(words, errors.loc[key], "score points") for key, words in names.items()], sentence + "."


def _cost(card: Card) -> tuple[Any, ...]:
    """Tokens and time a verdict."""
    rows, texts = [], []
    work = {
        "n_prompt_tokens": ("reads", "tokens"),
        "n_new_tokens": ("writes", "tokens"),
        "seconds": ("takes", "seconds"),
    }
    for name, (verb, unit) in work.items():
        if name in card.run and card.run[name].notna().any():
            run = card.run[card.run[name].notna()]
            effect = mean(run[name].to_numpy(float), groups_of(run))
            rows.append((f"a verdict {verb}", {**effect._asdict(), "estimate": effect.effect}, unit))
            texts.append(f"{verb} {format_number(effect.effect, 2 if unit == 'seconds' else 0)} {unit}")
    if not rows:
        raise Unmet("the run has no counts of tokens and no times")
    return rows, f"A verdict {', '.join(texts)}."


def brief(name: str) -> str:
    """A name for an axis or a legend; the caption has it whole."""
    return name if len(name) <= 28 else name[:27] + "…"


def interval_text(line: Any) -> str:
    """An estimate and its bounds as the card prints them."""
    estimate, low, high = (float(line.get(name, math.nan)) for name in ("estimate", "low", "high"))
    digits = 1 if line.get("unit") == "tokens" else 2
    return format_interval(estimate, low, high, digits).replace("-", "\N{MINUS SIGN}")


def _method(table: pd.DataFrame) -> str:
    """How a table's numbers were made; the counts of items stand beside each."""
    match = re.search(r"(\d+% bootstrap .+? resamples)(?: of .+?)?(, seed \d+)", table.attrs["method"])
    return f"{match[1]}{match[2]}" if match else str(table.attrs["method"])


def _cases(rows: pd.DataFrame) -> str:
    cells = [f"{line['case'].replace(': ', ', ')} {interval_text(line)} {line['unit']}" for _, line in rows.iterrows()]
    return "; ".join(cells[:MOST]) + (f"; and {len(cells) - MOST} more" if len(cells) > MOST else "")
