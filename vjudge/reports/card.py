"""A judge's report card: its parts, each a question, its numbers, and the one sentence that follows.

Red is what a test says after Holm's correction over all tests of the card, and nothing else.
"""

from __future__ import annotations

import html
import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

import vjudge
from vjudge import metrics, plots
from vjudge.metrics._tables import CHOICES, format_interval, format_number, format_p, shares
from vjudge.probes import Trials, Unmet
from vjudge.probes.outcome import mean
from vjudge.probes.trials import groups_of
from vjudge.prompts import families

COLUMNS = ["measure", "estimate", "low", "high", "unit", "n", "p_holm", "reading"]
STATISTICS = {"pearson": "Pearson r", "spearman": "Spearman ρ", "kendall": "Kendall τ-b"}
FACTS = ("model", "revision", "weights", "dtype", "quantization", "engine", "device")  # of a manifest, for a paper
CHOSEN = {
    "with_ties": "same choice of three",
    "without_ties": "same choice where people decided",
    "all_pairs": "same choice, no verdict is an error",
}
WORK = {"n_prompt_tokens": ("reads", "tokens"), "n_new_tokens": ("writes", "tokens"), "seconds": ("takes", "seconds")}
BLIND = ("image_blanked", "image_swapped", "image_shuffled")
MOST = 3  # cases that a sentence names
Result: TypeAlias = tuple[list[tuple[str, Any, str]], str, str]
"""Rows (what is measured; estimate, bounds and n, perhaps p and reading; the unit), the sentence, and the state."""


@dataclass
class Part:
    """One question of a card.

    `table` has the columns `COLUMNS`. `state` is "against" where a test corrected by Holm's method says that something
    is not as it must be, "open" where none can say, "sound" where all is as it must be, "described" where nothing must.
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
        frame.insert(1, "estimate [95%]", self.table.apply(interval_text, axis=1))
        frame.insert(3, "n", [f"{n:,}" for n in self.table["n"]])
        tests = self.table["p_holm"].map(lambda p: "" if math.isnan(p) else format_p(p).removeprefix("= "))
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

    Its parts are what was measured, `absent` what was not, each with the reason; `remarks` are what to know before a
    number is printed, `methods` sentences, each with the keys or papers that it cites. The rest is what parts rest on:
    run has one row a verdict, scores one entry an item; probes is the battery's table, or why there is none.
    """

    judge: str
    collection: str
    truth: str
    run: pd.DataFrame
    pairs: bool
    scores: pd.DataFrame
    trials: Trials
    venue: str
    by: str | None
    options: dict[str, Any]
    facts: dict[str, Any]
    others: dict[str, pd.Series]
    ratings: list[list[Any]]
    probes: pd.DataFrame | str
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
        return None if self.scores["group"].nunique() == len(self.scores) else self.scores["group"].to_numpy()

    def write(self, folder: str | Path) -> dict[str, Path]:
        """Write report.html, report.pdf and the folder for a paper (paper/), the same bytes every time.

        Returns the path of each by its name: html, pdf, paper.
        """
        from vjudge.reports import pages

        paths = {name: Path(folder, f"report.{name}") for name in ("html", "pdf")} | {"paper": Path(folder, "paper")}
        paths["paper"].mkdir(parents=True, exist_ok=True)
        paths["html"].write_text(pages.to_html(self), encoding="utf-8")
        pages.to_pdf(self, paths["pdf"])
        pages.to_paper(self, paths["paper"])
        return paths

    def _repr_html_(self) -> str:
        from vjudge.reports.pages import to_html

        # A frame of its own: a notebook's styles and the card's leave one another alone.
        page = html.escape(to_html(self), quote=True)
        return f'<iframe srcdoc="{page}" sandbox="" style="width:100%;height:900px;border:1px solid #ddd"></iframe>'

    def measure(self) -> None:
        """Fill the card with its parts; what a part lacks stands in `absent`."""
        _describe(self)
        for name, (question, function) in PARTS.items():
            if name == "agreement by" and self.by is None:
                continue
            try:
                rows, sentence, state = function(self)
            except Unmet as error:
                self.absent.append((name, str(error)))
                continue
            empty = {"p_holm": math.nan, "reading": ""}
            lines = [empty | dict(line) | {"measure": str(label), "unit": unit} for label, line, unit in rows]
            table = pd.DataFrame(lines).reindex(columns=COLUMNS).astype({"n": int})
            self.parts.append(Part(name, question.format(truth=self.truth, by=self.by), table, sentence, state))
        if not isinstance(self.probes, str) and self.probes["must"].notna().any():
            ran = self.probes[self.probes["reading"] != "not run"]
            text = "What each control did to the scores; grey is what is too small to count"
            self.draw("controls", plots.battery_effects, text, ran, ran, column="full")
            self.say(f"Controls rest on up to {ran['n'].max():,} items, with {ran.attrs['method']}", "mackinnon2023")
            self.say(f"Holm's method corrects for their {ran.attrs['n_tests']} tests", "holm1979")
            self.say("A score stays where its whole interval lies inside a margin stated beforehand", "schuirmann1987")
        self.say(f"Computed with vjudge {vjudge.__version__}, seed {self.options['seed']}")

    def draw(self, name: str, plot: Callable[..., Figure], text: str, given: Any, data: Any, **options: Any) -> None:
        """Keep a figure with its data, or say why it can't be drawn."""
        try:
            figure = plot(given, **{"column": "half", **options}, venue=self.venue, note=False)
        except ValueError as error:
            self.absent.append((f"figure of {name}", str(error)))
            return
        figure.set_layout_engine("none")  # each drawing would move it by a hair
        text += f". {_method(data)}" if data.attrs else ""
        self.pictures.append(Picture(name, figure, text, data.reset_index(drop=True)))

    def say(self, sentence: str, *cited: str) -> None:
        """Add a sentence to the methods."""
        self.methods.append((sentence, list(cited)))


def _describe(card: Card) -> None:
    """Who judged what, and how its verdicts came about, from the run's manifest."""
    facts, attrs = card.facts, card.run.attrs
    what = "pairs of responses" if card.pairs else "responses"
    count = f"{len(card.scores):,} {what} in {card.scores['group'].nunique():,} groups"
    card.say(f"The judge {card.judge} graded {count} of {card.collection}", "mitchell2019")
    if family := families.find(card.judge.lower().replace("_", "-")):
        card.say(f"It belongs to the {family.name} family", *family.paper.split("; "))
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
    record |= {"template": (facts.get("template") or {}).get("name")}
    words = [f"{name} {str(value)[:40]}" for name, value in record.items() if value]
    card.say(f"The run's manifest has {', '.join(words)}")


def _agreement(card: Card) -> Result:
    """Agreement with the truth, and the human ceiling beside it."""
    if card.pairs:
        return _preferences(card)
    gold, score, groups = card.scores["gold"].to_numpy(), card.scores["score"].to_numpy(), card.groups
    for values, why in ((gold, "no item has a truth"), (score, "no verdict could be read")):
        if not np.isfinite(values).any():
            raise Unmet(why)
    blind = {name: card.trials.scored(name) for name in BLIND if name in card.trials.runs}
    beside = card.others | {name.replace("_", " "): run["score"] for name, run in blind.items()}
    columns = {card.judge: score} | {name: run.reindex(card.scores.index).to_numpy() for name, run in beside.items()}
    people, ceiling = None, {}
    if max((int(pd.notna(cell).sum()) for cell in card.ratings if cell), default=0) > 1:
        people = metrics.rater_table(card.ratings, {card.judge: score}, groups=groups, **card.options)
        ceiling = {card.collection: people.xs(("ceiling", "the others"))}
    else:
        card.absent.append(("human ceiling", "no item was rated by two people"))
    units = {} if groups is None else {card.collection: groups}
    judges, truth = {card.collection: columns}, {card.collection: gold}
    whole = metrics.correlation_table(judges, truth, groups=units, ceiling=ceiling, **card.options)
    card.correlations = whole
    card.say(f"Scores are held against {card.truth}, with {_method(whole)}", "efron1993")
    own = whole[(whole["judge"] == card.judge) & ~whole["ceiling"]].set_index("statistic")
    rows, r = [(words, own.loc[name], "correlation") for name, words in STATISTICS.items()], own.loc["pearson"]
    sentence = f"Its scores and {card.truth} correlate at r = {interval_text(r)} over {int(r['n']):,} items."
    if math.isnan(r["estimate"]):
        sentence = "Its agreement is undefined: too few items, or one score for all."
    text, height = f"Correlation of scores with {card.truth}", None
    if people is not None:
        best, like = (people.loc[(*who, "pearson")] for who in (("ceiling", "the others"), (card.judge, "all but one")))
        rows.append(("ceiling: a rater and the others", best, "correlation"))
        rows.append(("the judge and the same means", like, "correlation"))
        like_people = f"{interval_text(best)}, the judge and the same means {interval_text(like)}"
        sentence += f" A rater and the mean of the others reach {like_people}."
        text, height = f"{text}; people and the dotted line: a rater and the others", float(best["estimate"])
        card.say("The ceiling is the mean over raters of their correlation with the others' mean", "calderon2025")
    lines = whole[whole["statistic"] == "pearson"].drop(columns="missing")
    if lines["estimate"].notna().any():
        card.draw("agreement", plots.forest, text, lines, whole, ceiling=height)
    frame = pd.DataFrame({"judge": _brief(card.judge), "score": score, "gold": gold})
    text = f"Scores of {card.judge} against {card.truth}"
    card.draw("scores", plots.confusion, text, frame, frame, truth_name=_brief(card.truth))
    return rows, sentence, "described"


def _preferences(card: Card) -> Result:
    """Agreement of verdicts on pairs."""
    if "preference" not in card.run or card.run["preference"].isna().all():
        raise Unmet("nobody says which response is better: there is no preference")
    verdicts, people = card.run["verdict"].tolist(), card.run["preference"].tolist()
    table = metrics.pairwise_accuracy(verdicts, people, groups=card.groups)
    card.say(f"Agreement: {table.attrs['method']}", "wilson1927")
    rows = [(words, table.loc[name], "share of pairs") for name, words in CHOSEN.items()]
    share = interval_text(table.loc["with_ties"])
    return rows, f"It makes the same choice as people in a share of {share} of the pairs.", "described"


def _agreement_by(card: Card) -> Result:
    """Agreement for each value of a column."""
    if card.by not in card.run:
        raise ValueError(f"by={card.by!r} is no column of the run, which has {', '.join(map(str, card.run.columns))}")
    label = card.run[card.by][~card.run["id"].duplicated()].astype(str).to_numpy()
    where, cells = {name: label == name for name in dict.fromkeys(label)}, card.scores
    judges = {name: {card.judge: cells["score"][here]} for name, here in where.items()}
    truth = {name: cells["gold"][here] for name, here in where.items()}
    groups = {name: cells["group"][here] for name, here in where.items() if cells["group"][here].nunique() > 1}
    table = metrics.correlation_table(judges, truth, groups=groups, **card.options)
    lines = table[(table["statistic"] == "pearson") & table["estimate"].notna()].drop(columns="missing")
    if lines.empty:
        raise Unmet("undefined everywhere: too few items, or one score for all")
    lines = lines.sort_values("estimate", kind="stable", ascending=False)
    text = f"Correlation of scores of {card.judge} with {card.truth}, by {card.by}"
    card.draw("agreement_by", plots.forest, text, lines, table, rows="benchmark")
    ends = [f"{interval_text(line)} ({line['benchmark']})" for _, line in lines.iloc[[-1, 0]].iterrows()]
    rows = [(line["benchmark"], line, "correlation") for _, line in lines.iterrows()]
    return rows, f"From r = {ends[0]} to {ends[1]}.", "described"


def _probe(claim: str, *kinds: str) -> Callable[[Card], Result]:
    """What the tests of some probes say together of a claim; a description where nothing is tested."""

    def measure(card: Card) -> Result:
        if isinstance(card.probes, str):
            raise Unmet(card.probes)
        rows = card.probes[card.probes["probe"].isin(kinds)].rename(columns={"effect": "estimate"})
        idle, rows = rows[rows["reading"] == "not run"], rows[rows["reading"] != "not run"]
        if rows.empty:
            raise Unmet("; ".join(idle["note"].unique()) or "a comparison of pairs has no scores")
        card.absent += [(line["case"] or line["probe"], line["note"]) for _, line in idle.iterrows()]
        tested = rows[rows["must"].notna()]
        against = tested[tested["reading"].str.contains("though it must")]
        sure = int((~tested["reading"].isin(["can't say", "undefined"])).sum())
        sound = "sound" if sure == len(tested) else "open"
        state = "against" if len(against) else "described" if tested.empty else sound
        note = f" ({rows['note'].iloc[0]})" if rows["note"].iloc[0] else ""
        sentence = {
            "against": f"Corrected tests contradict that {claim}: {_cases(against)}.",
            "sound": f"All {sure} tests bear out that {claim}.",
            "open": f"{sure} of {len(tested)} tests bear out that {claim}; for the others the items are too few.",
            "described": f"Described, not tested: {_cases(rows)}{note}.",
        }[state]
        return [(line["case"], line, line["unit"]) for _, line in rows.iterrows()], sentence, state

    return measure


def _failures(card: Card) -> Result:
    """Verdicts that could not be read, by reason."""
    run, groups = card.run, groups_of(card.run)
    silent = (~run["verdict"].isin(CHOICES) if card.pairs else run[card.trials.score].isna()).to_numpy()
    total, count = len(silent), int(silent.sum())
    units = None if len(set(groups)) in (1, total) else groups
    table = shares([("", silent, np.ones(total))], groups=units, unit="verdicts")
    reasons = run.loc[silent, "failure"].dropna() if "failure" in run else pd.Series(dtype=object)
    # The part before the colon is ours; behind it may stand a model's words.
    kinds = reasons.astype(str).str.split(":").str[0].value_counts()
    rows: list[tuple[str, Any, str]] = [("without a verdict", table.iloc[0], "share of verdicts")]
    rows += [(kind, {"estimate": size / total, "n": size}, "share of verdicts") for kind, size in kinds.items()]
    sentence = f"All {total:,} verdicts could be read."
    if count:
        why = "; ".join(f"{kind}: {size:,}" for kind, size in kinds.head(MOST).items()) or "the run does not say why"
        sentence = f"{count:,} of {total:,} have no verdict ({why}). No other number counts them; none was guessed."
    card.say(sentence.rstrip("."), "wilson1927")
    return rows, sentence, "described"


def _calibration(card: Card) -> Result:
    """What a score means on the truth's scale."""
    columns = card.scores["score"].to_numpy(), card.scores["gold"].to_numpy()
    both = np.isfinite(columns).all(axis=0)
    if card.pairs or both.sum() < 4:
        few = f"{int(both.sum())} items have both a score and a truth; four are needed"
        raise Unmet("a comparison of pairs has no scores" if card.pairs else few)
    (low, high), (least, most) = ((float(values[both].min()), float(values[both].max())) for values in columns)
    if 2 * (min(high, most) - max(low, least)) < max(high - low, most - least):
        raise Unmet(f"scores from {low:g} to {high:g} share less than half of the truth's scale, {least:g} to {most:g}")
    bins = None if len(np.unique(columns[0][both])) <= 11 else 10
    curve = metrics.calibration_curve(*columns, bins=bins, groups=card.groups)
    text, label = f"The mean of the truth ({card.truth}) at each score of {card.judge}", _brief(card.truth)
    card.draw("calibration", plots.calibration_curve, text, {_brief(card.judge): curve}, curve, label=label)
    errors = metrics.calibration_errors(*columns, groups=card.groups, **card.options)
    names = {("raw", "bias"): "mean of score less truth", ("raw", "mae"): "mean absolute error"}
    names["isotonic", "mae"] = "the same after an isotonic map"
    bias, raw, mapped = (errors.loc[key] for key in names)
    side = "milder than" if bias["low"] > 0 else "harsher than" if bias["high"] < 0 else "not shown to differ from"
    sentence = f"On average it is {side} {card.truth} ({interval_text(bias)} points)"
    better = errors.loc[("reduction", "mae"), "low"] > 0
    after = f", and {interval_text(mapped)} after a map to the truth's scale" if better else ""
    isotonic = "the map to the truth's scale is isotonic, fitted on the other half of the items"
    card.say(f"Calibration: {curve.attrs['method']}; {isotonic}", "barlow1972")
    rows = [(words, errors.loc[key], "score points") for key, words in names.items()]
    return rows, f"{sentence}; its mean absolute error is {interval_text(raw)}{after}.", "described"


def _cost(card: Card) -> Result:
    """Tokens and time a verdict."""
    rows: list[tuple[str, Any, str]] = []
    texts = []
    for name, (verb, unit) in WORK.items():
        if name in card.run and card.run[name].notna().any():
            run = card.run[card.run[name].notna()]
            effect = mean(run[name].to_numpy(float), groups_of(run))
            rows.append((f"a verdict {verb}", {**effect._asdict(), "estimate": effect.effect}, unit))
            texts.append(f"{verb} {format_number(effect.effect, 2 if unit == 'seconds' else 0)} {unit}")
    if not rows:
        raise Unmet("the run has no counts of tokens and no times")
    return rows, f"A verdict {', '.join(texts)}.", "described"


MOVES = "does not move its scores"
PARTS: dict[str, tuple[str, Callable[[Card], Result]]] = {
    "agreement": ("Does it agree with {truth}?", _agreement),
    "agreement by": ("How does that differ by {by}?", _agreement_by),
    "image": ("Does it look at the image?", _probe("it judges by the image", "blindness")),
    "length": ("Does it reward length?", _probe(f"length by itself {MOVES}", "verbosity", "length")),
    "position": (
        "Does the order of responses decide?",
        _probe("the response shown first has no advantage", "position"),
    ),
    "injection": ("Does it obey a response?", _probe(f"a verdict in the response {MOVES}", "injection")),
    "consistency": ("Does it agree with itself?", _probe("it agrees with itself", "consistency")),
    "failures": ("Can its verdicts be read?", _failures),
    "calibration": ("Does a score mean what it says?", _calibration),
    "cost": ("What does a verdict cost?", _cost),
}


def interval_text(line: Any) -> str:
    """An estimate and its bounds as the card prints them."""
    estimate, low, high = (float(line.get(name, math.nan)) for name in ("estimate", "low", "high"))
    digits = 1 if line.get("unit") == "tokens" else 2
    return format_interval(estimate, low, high, digits).replace("-", "\N{MINUS SIGN}")


def _brief(name: str) -> str:
    """A name for an axis or a legend; the caption has it whole."""
    return name if len(name) <= 28 else name[:27] + "…"


def _method(table: pd.DataFrame) -> str:
    """How a table's numbers were made, once for all its rows: the counts of items stand beside each."""
    match = re.search(r"(\d+% bootstrap .+? resamples)(?: of .+?)?(, seed \d+)", table.attrs["method"])
    return f"{match[1]}{match[2]}" if match else str(table.attrs["method"])


def _cases(rows: pd.DataFrame) -> str:
    cells = [f"{line['case'].replace(': ', ', ')} {interval_text(line)} {line['unit']}" for _, line in rows.iterrows()]
    return "; ".join(cells[:MOST]) + (f"; and {len(cells) - MOST} more" if len(cells) > MOST else "")
