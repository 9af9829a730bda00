"""`report`: the runs that a card rests on, graded now or given; the card, and its parts with their numbers and figures.

What a part asks, and the sentence that follows from its numbers, are in assets/report.txt. Red is what a test says
after Holm's correction over all tests of the card, and nothing else.
"""

from __future__ import annotations

import html
import re
import tempfile
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

import vjudge
from vjudge import data, metrics, plots
from vjudge.engines.engine import say
from vjudge.metrics.tables import CHOICES, format_number, groups_of, shares
from vjudge.probes import PERTURBATIONS, Trials, Unmet, battery
from vjudge.probes.trials import COMPARED, ORIGINAL, mean, scored
from vjudge.prompts import families
from vjudge.reports import pages
from vjudge.reports.pages import interval_text
from vjudge.runs import Run, RunError

PROBES = ["blindness", "verbosity", "length", "injection", "position", "consistency"]
CONTROLS = [
    name for name in PERTURBATIONS if name.startswith(("image_", "response_padded", "injected_"))
]
SAMPLES = 4  # verdicts an item for consistency
COLUMNS = ["measure", "estimate", "low", "high", "unit", "n", "p_holm", "reading"]
STATISTICS = {"pearson": "Pearson r", "spearman": "Spearman ρ", "kendall": "Kendall τ-b"}
CHOSEN = {"with_ties": "same choice of three", "without_ties": "same choice where people decided",
          "all_pairs": "same choice, no verdict is an error"}  # fmt: skip
ERRORS = {"bias": "mean of score less truth", "mae": "mean absolute error"}
WORK = {
    "n_prompt_tokens": ("reads", "tokens"),
    "n_new_tokens": ("writes", "tokens"),
    "seconds": ("takes", "seconds"),
}
BLIND = ("image_blanked", "image_swapped", "image_shuffled")
MOST = 3  # cases that a sentence names
Result: TypeAlias = tuple[pd.DataFrame, dict[str, Any]]
"""The numbers, of `COLUMNS` those that there are, and what the sentences of assets/report.txt rest on."""


class Part(NamedTuple):
    """One question of a card, its numbers in `COLUMNS`, and the sentence that follows from them.

    `state` is "against" where a test corrected by Holm's method says that something is not as it must be, "open" where
    none can say, "sound" where all is as it must be, "described" where nothing must.
    """

    name: str
    question: str
    table: pd.DataFrame
    sentence: str
    state: str


class CardFigure(NamedTuple):
    """A figure at the venue's width, its caption and its data."""

    name: str
    figure: Figure
    caption: str
    data: pd.DataFrame


@dataclass
class Card:
    """A judge's report card, which shows itself in a notebook: `table` has its numbers, `write(folder)` writes it.

    `parts` are what was measured, `absent` what was not, each with the reason; `remarks` are what to know before a
    number is printed, `methods` sentences, each with what it cites. The rest is what parts rest on: `run` has a row a
    verdict, `scores` one an item: score, gold, group and further judges; `ratings` are those of people.
    """

    judge: str
    collection: str
    truth: str
    run: pd.DataFrame
    scores: pd.DataFrame
    ratings: list[list[Any]]
    trials: Trials
    probes: pd.DataFrame
    facts: Mapping[str, Any]
    venue: str
    by: str | None
    options: dict[str, Any]
    parts: list[Part] = field(default_factory=list)
    absent: list[tuple[str, str]] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    figures: list[CardFigure] = field(default_factory=list)
    methods: list[tuple[str, list[str]]] = field(default_factory=list)

    @property
    def pairs(self) -> bool:
        """Whether it is of comparisons of two responses."""
        return ORIGINAL not in self.trials.runs

    @property
    def groups(self) -> pd.Series | None:
        """The unit of resampling of each item; None where each item is its own."""
        return None if self.scores["group"].is_unique else self.scores["group"]

    @property
    def table(self) -> pd.DataFrame:
        """All numbers of the card, with the part that each belongs to."""
        frames = [part.table.assign(part=part.name, state=part.state) for part in self.parts]
        return pd.concat(frames, ignore_index=True)

    def write(self, folder: str | Path) -> dict[str, Path]:
        """Write report.html, report.pdf and paper/, the same bytes every time; returns their paths by name."""
        paths = {name: Path(folder, f"report.{name}") for name in ("html", "pdf")} | {
            "paper": Path(folder, "paper")
        }
        paths["paper"].mkdir(parents=True, exist_ok=True)
        paths["html"].write_text(pages.to_html(self), encoding="utf-8")
        pages.to_pdf(self, paths["pdf"])
        pages.to_paper(self, paths["paper"])
        return paths

    def _repr_html_(self) -> str:
        # A frame of its own: a notebook's styles and the card's leave one another alone.
        page = html.escape(pages.to_html(self), quote=True)
        return f'<iframe srcdoc="{page}" sandbox="" style="width:100%;height:900px;border:1px solid #ddd"></iframe>'

    def draw(
        self, name: str, plot: Any, drawn: Any, caption: str, data: pd.DataFrame, **options: Any
    ) -> None:
        """Keep a figure of these rows with its data, or say why it can't be drawn."""
        try:
            figure = plot(drawn, **{"column": "half", **options}, venue=self.venue, note=False)
        except ValueError as error:
            self.absent.append((f"figure of {name}", str(error)))
            return
        figure.set_layout_engine("none")  # each drawing would move it by a hair
        self.figures.append(CardFigure(name, figure, caption, data.reset_index(drop=True)))

    def forest(self, name: str, table: pd.DataFrame, caption: str, **options: Any) -> pd.DataFrame:
        """Draw the lines of Pearson's r of a table of correlations, and return them."""
        lines = table.query("statistic == 'pearson' and estimate == estimate").drop(
            columns="missing"
        )
        if len(lines):
            self.draw(name, plots.forest, lines, f"{caption}. {_method(table)}", table, **options)
        else:
            self.absent.append(
                (f"figure of {name}", "undefined everywhere: too few items, or one score for all")
            )
        return lines


def report(
    judge: Any, items: Any = None, *, truth: pd.Series | None = None, score: str = "score", by: str | None = None,
    venue: str = "acl", out: str | Path | None = None, controls: int | None = 200, gold: str = "observed",
    manifest: str | Path | None = None, collection: str | None = None, n_resamples: int = 2_000, seed: int = 0,
    progress: bool = True, **grading: Any,
) -> Card:  # fmt: skip
    """Make a judge's report card: agreement under the human ceiling, its biases, failures, calibration and cost.

    Args:
        judge: a judge, which then grades the items and the controls; or a run; a frame of `load_verdicts`, whose
            further judges stand beside this one; runs by judge, the first of which the card is about and the others
            stand beside it; or runs by perturbation, as `probes.Trials` has them.
        items: what was graded, or is to be; collection: what the card calls it; gold: see `probes.Trials`.
        truth: scores (of pairs: preferences) by id, whose name captions use; None for gold, else the mean of people.
        score: the judge's column: "score", "expected_score", or in a frame of verdicts the judge's name.
        by: a column of the items or the run; agreement is then given for each of its values too.
        venue: of the paper's figures; out: a folder for the card, the paper, and what is graded, which continues there.
        controls: the most items that controls are graded on, in whole groups drawn at random; None for all, 0 for none.
        manifest: the folder of a run that is given; a run that is graded has its own.
        n_resamples, seed: of resampling and draws; grading: further options of `Judge.grade`.
        progress: whether to say the number of verdicts beforehand, and to show the bar of the first run.

    Raises:
        ValueError: there is no verdict, or no such score, column or venue; as `Judge.grade`.

    Source: Mitchell et al., "Model Cards for Model Reporting", FAT* 2019, for what a card is.

    >>> import vjudge as vj
    >>> items = vj.load_collection("scenes", split="test", limit=20)
    >>> run = vj.load_judge("tiny", device="cpu").grade(items, mode="score", progress=False)
    >>> card = vj.report(run, n_resamples=200)  # or vj.report(judge, items), which grades the controls too
    >>> card.absent[0]
    ('human ceiling', 'no item was rated by two people')
    """
    plots.width(venue, "half")  # a venue that is unknown is refused before anything is graded
    items = data.load_collection(items) if isinstance(items, (str, Path)) else items
    facts = {} if manifest is None else Run(manifest).manifest
    runs: Any = None
    if isinstance(judge, pd.DataFrame):
        runs = _runs(judge, score)
    elif isinstance(judge, Mapping):
        runs = judge
        if ORIGINAL not in judge and COMPARED not in judge:
            runs = _side_by_side(judge, score)
    if runs is None:
        if items is None:
            raise ValueError(
                "a judge needs items to grade: give a collection, or a run that was graded before"
            )
        items = data.canonical(data.rows_of(items))
    kind = COMPARED if runs is not None and ORIGINAL not in runs else ORIGINAL
    rows = data.rows_of([] if items is None else items)
    columns = [*rows.columns, *(() if runs is None else runs[kind])]
    if by is not None and by not in columns:
        raise ValueError(
            f"by={by!r} is no column of the items or the run, which have {', '.join(map(str, columns))}"
        )
    with warnings.catch_warnings(record=True) as alerts, tempfile.TemporaryDirectory() as temporary:
        warnings.simplefilter("always")
        warnings.filterwarnings(
            "ignore", "constrained_layout"
        )  # of a figure that shows as much itself
        if runs is not None:
            trials = Trials(
                runs, items, score=score if runs is judge else "score", gold=gold, seed=seed
            )
            run = trials.runs[kind]
        else:
            few, passes = _few(items, controls, seed), len(CONTROLS) + SAMPLES
            if progress:
                line = f"{len(items):,} items once, {len(few):,} under {passes} controls"
                say(
                    f"report: about {len(items) + passes * len(few):,} verdicts: {line}; vj.plan says what they take"
                )
            home = Path(temporary if out is None else out, "runs")
            run = judge.grade(items, out=home / "all", progress=progress, **grading)
            with suppress(RunError):  # not every judge keeps a journal
                facts = Run(home / "all").manifest
            trials = Trials(
                judge, few, out=home, score=score, gold=gold, seed=seed, progress=False, **grading
            )
        if run.empty:
            raise ValueError("the run holds no verdict: there is nothing to report")
        run = run.assign(id=run["id"].map(str))
        if by is not None and by not in run:
            run[by] = run["id"].map({str(row["id"]): row.get(by) for row in rows})
        answers, ratings = _truth(run, items, truth, kind == COMPARED)
        if truth is not None:
            run = run.drop(
                columns="human_scores", errors="ignore"
            )  # they would fill the gaps of the truth
        if kind == COMPARED:
            own = run.get(
                "preference", np.nan
            )  # of each verdict: several people may compare a pair
            run = run.assign(
                preference=own if truth is None else answers.reindex(run["id"]).to_numpy()
            )
            scores, names = pd.DataFrame({"group": groups_of(run)}), ["position"]
        else:
            run = run.assign(gold=answers.reindex(run["id"]).to_numpy())
            few_ids = run["id"] if runs is not None else list(map(str, few["id"]))
            trials.runs[ORIGINAL] = run[run["id"].isin(few_ids)].reset_index(drop=True)
            further = [
                name for name in run.attrs.get("judges", ()) if name in run and name != score
            ]
            scores = scored(run, trials.score).join(
                run.drop_duplicates("id").set_index("id")[further]
            )
            names = PROBES if scores["score"].notna().any() and controls != 0 else []
        probes = battery(trials, probes=names, samples=SAMPLES)
        source = None if items is None else data.origin(items).get("source")
        collection = collection or str(source or run.attrs.get("name") or "the collection")
        card = Card(
            str(run["judge"].iloc[0] if "judge" in run else score), collection, str(answers.name or "the truth given"),
            run, scores, ratings, trials, probes, facts, venue, by, {"n_resamples": n_resamples, "seed": seed},
        )  # fmt: skip
        _measure(card)
    texts = [
        str(alert.message)
        for alert in alerts
        if issubclass(alert.category, (UserWarning, RuntimeWarning))
    ]
    card.remarks += dict.fromkeys(texts)
    if out is not None:
        card.write(out)
    return card


def _few(items: Any, most: int | None, seed: int) -> Any:
    """Whole groups at random until there are as many items as the controls may have."""
    if most is None or len(items) <= most:
        return items
    groups = pd.Series(
        groups_of(pd.DataFrame({name: items[name] for name in ("id", "group")}))
    ).map(str)
    sizes = groups.value_counts().sort_index()
    sizes = sizes.iloc[np.random.default_rng(seed).permutation(len(sizes))].cumsum()
    return items.select(
        np.flatnonzero(groups.isin(sizes.index[: np.searchsorted(sizes, most) + 1]))
    )


def _runs(frame: pd.DataFrame, score: str) -> dict[str, pd.DataFrame]:
    """A run, or a frame of verdicts of several judges, under the name by which `Trials` knows it."""
    if score not in frame and "verdict" in frame:
        return {COMPARED: frame}
    if score not in frame:
        judges = [name for name in frame.attrs.get("judges", ()) if name in frame][:6]
        raise ValueError(
            f"the frame has no column {score!r}: name the judge's with score=, such as {judges}"
        )
    ids = frame.get("id", frame.get("item", pd.Series(range(len(frame)), frame.index)))
    run = frame.assign(id=ids, judge=frame.get("judge", score), score=frame[score])
    if pd.api.types.infer_dtype(frame[score], skipna=True) == "string":
        return {COMPARED: run.assign(verdict=frame[score])}
    if "human_scores" not in run and (
        raters := [name for name in frame.attrs.get("raters", ()) if name in frame]
    ):
        run["human_scores"] = frame[raters].to_numpy().tolist()
    return {ORIGINAL: run}


def _side_by_side(runs: Mapping[str, Any], score: str) -> dict[str, pd.DataFrame]:
    """Runs by judge as the first one's, with the others' scores as further columns."""
    (name, own), *others = runs.items()
    for judge, run in runs.items():
        if not isinstance(run, pd.DataFrame) or not {"id", score} <= set(run):
            raise ValueError(
                f"{judge!r} is no run with the columns id and {score!r} of `Judge.grade`"
            )
        if run["id"].duplicated().any():
            raise ValueError(f"{judge!r} has several verdicts of an item: average_samples first")
    run = own.assign(judge=str(name))
    for judge, other in others:
        by_id = other.set_index(other["id"].map(str))[score]
        run[str(judge)] = by_id.reindex(run["id"].map(str)).to_numpy()
    run.attrs = own.attrs | {"judges": [str(judge) for judge, _ in others]}
    return {ORIGINAL: run}


def _truth(
    run: pd.DataFrame, items: Any, truth: pd.Series | None, pairs: bool
) -> tuple[pd.Series, list[list[Any]]]:
    """The truth by id, under its name, and people's ratings of each item."""
    frame = (
        run[run.columns.intersection(["id", "gold", "human_scores"])] if items is None else items
    )
    people = (
        {}
        if pairs
        else {str(row["id"]): list(row.get("human_scores") or ()) for row in data.rows_of(frame)}
    )
    ratings = [people.get(id, []) for id in run["id"].unique()]
    if pairs and truth is None:
        truth = pd.Series(dtype=object, name="people's preferences")
    elif truth is None:
        truth = data.truth(data.rows_of(frame))
        if truth.attrs.get("labelled_by"):
            raise ValueError("people scored items that a review chose, which are no random sample: report on a"
                             " collection without the column `weight`, or correlate with weights=")  # fmt: skip
        counts = {len(cell) for cell in ratings} - {0}
        if truth.name == "mean of people" and len(counts) == 1:
            truth = truth.rename(
                "one rater's score" if counts == {1} else f"the mean of {counts.pop()} raters"
            )
    truth = truth.set_axis(truth.index.map(str)).groupby(level=0).first()
    if len(truth) and truth.index.intersection(run["id"]).empty:
        raise ValueError(
            f"truth has no id of the run, such as {run['id'].iloc[0]!r}: index it by id"
        )
    return truth, ratings


def _measure(card: Card) -> None:
    """Fill a card with its parts; what a part lacks stands in `absent`."""
    pages.say(card, "judge", {"family": families.find(card.judge.lower().replace("_", "-"))})
    card.remarks += map(str, card.run.attrs.get("traps", ()))
    for name, function in PARTS.items():
        try:
            table, words = function(card)
        except Unmet as error:
            card.absent.append((name, str(error)))
            continue
        empty = {"low": np.nan, "high": np.nan, "p_holm": np.nan, "reading": ""}
        table = (
            pd.DataFrame(empty | dict(table))[COLUMNS]
            .reset_index(drop=True)
            .astype({"measure": str, "n": int})
        )
        question, sentence = pages.say(card, name, words)
        card.parts.append(Part(name, question, table, sentence, words.get("state", "described")))
    rows = card.probes[card.probes["reading"] != "not run"]
    if tests := bool(rows["must"].notna().any()):
        text = f"What each control did to the scores; grey is what is too small to count. {rows.attrs['method']}"
        card.draw("controls", plots.battery_effects, rows, text, rows, column="full")
    pages.say(
        card,
        "end",
        {**rows.attrs, "tests": tests, "n": rows["n"].max(), "version": vjudge.__version__},
    )


def _agreement(card: Card) -> Result:
    """Agreement with the truth, and the human ceiling beside it."""
    if card.pairs:
        if card.run["preference"].isna().all():
            raise Unmet("nobody says which response is better: there is no preference")
        if card.by is not None:
            card.absent.append((f"agreement by {card.by}", "a comparison of pairs has no scores"))
        choices = card.run["verdict"].tolist(), card.run["preference"].tolist()
        table = metrics.pairwise_accuracy(*choices, groups=card.groups)
        words = {"share": table.loc["with_ties"], "method": table.attrs["method"]}
        return table.loc[list(CHOSEN)].assign(measure=CHOSEN.values(), unit="share of pairs"), words
    score, gold = card.scores["score"], card.scores["gold"]
    for values, why in ((gold, "no item has a truth"), (score, "no verdict could be read")):
        if values.isna().all():
            raise Unmet(why)
    blind = {
        name.replace("_", " "): card.trials.scored(name)["score"]
        for name in BLIND
        if name in card.trials.runs
    }
    judges = (
        card.scores.drop(columns=["gold", "group"])
        .rename(columns={"score": card.judge})
        .assign(**blind)
    )
    people, ceiling, height, text = None, {}, None, f"Correlation of scores with {card.truth}"
    if any(sum(map(pd.notna, cell)) > 1 for cell in card.ratings):
        raters = metrics.rater_table(
            card.ratings, {card.judge: score}, groups=card.groups, **card.options
        )
        ceiling = {card.collection: raters.xs(("ceiling", "the others"))}
        people = raters.loc[
            [("ceiling", "the others", "pearson"), (card.judge, "all but one", "pearson")]
        ]
        people = people.assign(
            measure=["ceiling: a rater and the others", "the judge and the same means"]
        )
        height, text = (
            float(people["estimate"].iloc[0]),
            f"{text}; people and the dotted line: a rater and the others",
        )
    else:
        card.absent.append(("human ceiling", "no item was rated by two people"))
    groups = {} if card.groups is None else {card.collection: card.groups}
    columns, truth = {card.collection: judges}, {card.collection: gold}
    whole = metrics.correlation_table(
        columns, truth, groups=groups, ceiling=ceiling, **card.options
    )
    card.forest("agreement", whole, text, ceiling=height)
    frame = pd.DataFrame({"judge": _brief(card.judge), "score": score, "gold": gold})
    text = f"Scores of {card.judge} against {card.truth}"
    card.draw("scores", plots.confusion, frame, text, frame, truth_name=_brief(card.truth))
    own = whole[whole["judge"] == card.judge].set_index("statistic").loc[list(STATISTICS)]
    parts = [own.assign(measure=STATISTICS.values()), people, kinds := _agreement_by(card)]
    words = {"r": own.loc["pearson"], "people": [] if people is None else people.to_dict("records")}
    words |= {"kinds": kinds.to_dict("records"), "method": _method(whole)}
    return pd.concat(parts).assign(unit="correlation"), words


def _agreement_by(card: Card) -> pd.DataFrame:
    """Pearson's r for each value of a column, the highest first."""
    if card.by is None:
        return pd.DataFrame()
    labels = card.run.drop_duplicates("id")[card.by].map(str).to_numpy()
    parts = dict(iter(card.scores.groupby(labels, sort=False)))
    judges = {name: {card.judge: rows["score"]} for name, rows in parts.items()}
    groups = {name: rows["group"] for name, rows in parts.items() if rows["group"].nunique() > 1}
    truth = {name: rows["gold"] for name, rows in parts.items()}
    table = metrics.correlation_table(judges, truth, groups=groups, **card.options)
    text = f"Correlation of scores of {card.judge} with {card.truth}, by {card.by}"
    order = table.sort_values("estimate", kind="stable", ascending=False)
    return card.forest("agreement_by", order, text, rows="benchmark").rename(
        columns={"benchmark": "measure"}
    )


def _probed(kinds: set[str], card: Card) -> Result:
    """What some probes found; described where nothing is tested."""
    rows = card.probes[card.probes["probe"].isin(kinds)].rename(
        columns={"effect": "estimate", "case": "measure"}
    )
    idle, rows = rows[rows["reading"] == "not run"], rows[rows["reading"] != "not run"]
    if rows.empty:
        unread = card.pairs or card.scores["score"].isna().all()
        why = "a comparison of pairs has no scores" if card.pairs else "no verdict could be read"
        raise Unmet(
            "; ".join(idle["note"].unique())
            or (why if unread else "controls=0: no control was asked for")
        )
    card.absent += [(line["measure"] or line["probe"], line["note"]) for _, line in idle.iterrows()]
    tests = rows[rows["must"].notna()]
    against = tests[tests["reading"].str.contains("though it must")]
    sure = int((~tests["reading"].isin(["can't say", "undefined"])).sum())
    state = "described" if tests.empty else "sound" if sure == len(tests) else "open"
    words = {
        "against": _cases(against),
        "cases": _cases(rows),
        "note": rows["note"].iloc[0],
        "sure": sure,
    }
    return rows, words | {"tests": len(tests), "state": "against" if len(against) else state}


def _failures(card: Card) -> Result:
    """Verdicts that could not be read, by reason."""
    run, groups = card.run, groups_of(card.run)
    silent = (
        ~run["verdict"].isin(CHOICES) if card.pairs else run[card.trials.score].isna()
    ).to_numpy()
    units = None if len(set(groups)) in (1, len(run)) else groups
    whole = shares([("", silent, np.ones(len(run)))], groups=units, unit="verdicts").assign(
        measure="without a verdict"
    )
    reasons = run.loc[silent, "failure"].dropna() if "failure" in run else pd.Series(dtype=object)
    # The part before the colon is ours; behind it may stand a model's words.
    kinds = (
        reasons.map(str)
        .str.split(":")
        .str[0]
        .value_counts()
        .rename_axis("measure")
        .reset_index(name="n")
    )
    table = pd.concat([whole, kinds.assign(estimate=kinds["n"] / len(run))]).assign(
        unit="share of verdicts"
    )
    why = (
        "; ".join(f"{kind}: {size:,}" for kind, size in kinds.head(MOST).to_numpy())
        or "the run does not say why"
    )
    return table, {"count": int(silent.sum()), "total": len(run), "why": why}


def _calibration(card: Card) -> Result:
    """What a score means on the truth's scale."""
    if card.pairs:
        raise Unmet("a comparison of pairs has no scores")
    score, gold = card.scores["score"], card.scores["gold"]
    both = card.scores[["score", "gold"]].dropna()
    if len(both) < 4:
        raise Unmet(f"{len(both)} items have both a score and a truth; four are needed")
    (low, least), (high, most) = both.min(), both.max()
    if 2 * (min(high, most) - max(low, least)) < max(high - low, most - least):
        raise Unmet(
            f"scores from {low:g} to {high:g} share less than half of the truth's scale, {least:g} to {most:g}"
        )
    bins = None if both["score"].nunique() <= 11 else 10
    curve = metrics.calibration_curve(score, gold, bins=bins, groups=card.groups)
    text = f"The mean of the truth ({card.truth}) at each score of {card.judge}. {_method(curve)}"
    tables, label = {_brief(card.judge): curve}, _brief(card.truth)
    card.draw("calibration", plots.calibration_curve, tables, text, curve, label=label)
    errors = metrics.calibration_errors(score, gold, groups=card.groups, **card.options)
    words = {"bias": errors.loc["bias"], "mae": errors.loc["mae"], "method": curve.attrs["method"]}
    return errors.assign(measure=ERRORS.values(), unit="score points"), words


def _cost(card: Card) -> Result:
    """Tokens and time a verdict."""
    rows, texts = [], []
    for name, (verb, unit) in WORK.items():
        if name in card.run and len(run := card.run[card.run[name].notna()]):
            effect = mean(run[name].to_numpy(float), groups_of(run))
            rows.append(
                effect._asdict()
                | {"measure": f"a verdict {verb}", "estimate": effect.effect, "unit": unit}
            )
            texts.append(
                f"{verb} {format_number(effect.effect, 2 if unit == 'seconds' else 0)} {unit}"
            )
    if not rows:
        raise Unmet("the run has no counts of tokens and no times")
    return pd.DataFrame(rows), {"texts": ", ".join(texts)}


PARTS: dict[str, Callable[[Card], Result]] = {
    "agreement": _agreement,
    "image": partial(_probed, {"blindness"}),
    "length": partial(_probed, {"verbosity", "length"}),
    "position": partial(_probed, {"position"}),
    "injection": partial(_probed, {"injection"}),
    "consistency": partial(_probed, {"consistency"}),
    "failures": _failures,
    "calibration": _calibration,
    "cost": _cost,
}


def _brief(name: str) -> str:
    """A name for an axis or a legend; the caption has it whole."""
    return name if len(name) <= 28 else name[:27] + "…"


def _method(table: pd.DataFrame) -> str:
    """How a table's numbers were made, once for all its rows: the counts of items stand beside each."""
    match = re.search(
        r"(\d+% bootstrap .+? resamples)(?: of .+?)?(, seed \d+)", table.attrs["method"]
    )
    return f"{match[1]}{match[2]}" if match else str(table.attrs["method"])


def _cases(rows: pd.DataFrame) -> str:
    cells = [
        f"{line['measure'].replace(': ', ', ')} {interval_text(line)} {line['unit']}"
        for _, line in rows.iterrows()
    ]
    return "; ".join(cells[:MOST]) + (
        f"; and {len(cells) - MOST} more" if len(cells) > MOST else ""
    )
