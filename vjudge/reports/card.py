"""`report`: what metrics and probes found about judges, a claim a row and a judge a column.

Nothing is computed here: numbers are those of `vjudge.metrics` and `vjudge.probes`.
"""

from __future__ import annotations

import html
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

import vjudge
from vjudge import data, metrics, plots, probes
from vjudge.metrics.tables import CHOICES, format_number, groups_of, shares
from vjudge.probes.effects import mean
from vjudge.probes.runs import MissingInputError
from vjudge.reports import page
from vjudge.reports.page import interval_text
from vjudge.reports.sides import SAMPLES, Side, by_name, check_request, side_of

CLAIMS = {
    "agreement": "Scores agree with the truth",
    "image": "Scores depend on the image",
    "length": "Length by itself does not change scores",
    "position": "The order of responses does not change the choice",
    "injection": "A verdict written into the response does not change scores",
    "consistency": "Repeated verdicts agree",
    "failures": "Verdicts can be read",
    "calibration": "Scores are neither too high nor too low",
    "cost": "Work for a verdict",
}
PROBED = {
    "image": ["blindness"],
    "length": ["verbosity", "length"],
    "position": ["position"],
    "injection": ["injection"],
    "consistency": ["consistency"],
}
BLIND = ("image_blanked", "image_swapped", "image_shuffled")
WORK = {"n_prompt_tokens": "tokens read", "n_new_tokens": "tokens written", "seconds": "seconds"}
COLUMNS = ["measure", "estimate", "low", "high", "unit", "n", "p_holm"]
ALERTS = (UserWarning, RuntimeWarning)
Finding = tuple[pd.DataFrame, str, str]  # numbers, sentence, verdict


class Part(NamedTuple):
    """One claim about one judge.

    `verdict` is "holds" or "fails" where a test, corrected by Holm's method over all tests of the
    judge, decides it, "undecided" where the items are too few, "measured" where nothing is tested.
    `sentence` has direction and size, `table` the numbers, with the columns of `COLUMNS`.
    """

    name: str
    judge: str
    verdict: str
    sentence: str
    table: pd.DataFrame


class CardFigure(NamedTuple):
    """A figure, its caption and its data."""

    name: str
    figure: Figure
    caption: str
    data: pd.DataFrame


@dataclass
class Card:
    """The report card of one judge or several, which shows itself in a notebook.

    Attributes:
        judges: their names.
        collection, truth: what was judged, and what scores are held against.
        parts: what was found, by claim and judge.
        absent: what could not be measured: judge, what, reason.
        remarks: what to know before a number is printed.
        methods: how the numbers were made.
        figures: of all judges side by side.
    """

    judges: list[str]
    collection: str
    truth: str
    size: str
    venue: str
    parts: list[Part] = field(default_factory=list)
    absent: list[tuple[str, str, str]] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    methods: list[str] = field(default_factory=list)
    figures: list[CardFigure] = field(default_factory=list)

    @property
    def judge(self) -> str:
        """The first judge."""
        return self.judges[0]

    @property
    def table(self) -> pd.DataFrame:
        """All numbers, with the judge, part and verdict that each belongs to."""
        frames = []
        for part in self.parts:
            about = {"judge": part.judge, "part": part.name, "verdict": part.verdict}
            frames.append(part.table.assign(**about))
        return pd.concat(frames, ignore_index=True)

    def write(self, folder: str | Path) -> dict[str, Path]:
        """Write the page, the table and the figures, the same bytes every time.

        Returns:
            The path of the page ("html"), the table ("csv", "tex") and each figure's PDF by name.
        """
        caption = f"Report card of {', '.join(self.judges)}, {self.collection}; 95% intervals."
        options: dict[str, Any] = {"folder": folder, "precision": 2, "venue": self.venue}
        with warnings.catch_warnings():
            warnings.filterwarnings(
                "ignore", message="table 'report'"
            )  # names may be of any length
            paths = plots.save_table(self.table, "report", caption=caption, **options)
        for one in self.figures:
            files: dict[str, Any] = {"caption": one.caption, "data": one.data, "folder": folder}
            paths[one.name] = plots.save_figure(one.figure, one.name, **files)["pdf"]
        paths["html"] = Path(folder, "report.html")
        paths["html"].write_text(page.to_html(self, CLAIMS), encoding="utf-8")
        return paths

    def _repr_html_(self) -> str:
        # A frame of its own: a notebook's styles and the card's leave one another alone.
        text = html.escape(page.to_html(self, CLAIMS), quote=True)
        style = "width:100%;height:900px;border:1px solid #ddd"
        return f'<iframe srcdoc="{text}" sandbox="" style="{style}"></iframe>'

    def draw(
        self,
        name: str,
        plot: Callable[..., Figure],
        rows: Any,
        table: pd.DataFrame,
        caption: str,
        /,
        **options: Any,
    ) -> None:
        """Keep a figure of these rows, or say why it can't be drawn."""
        try:
            figure = plot(rows, venue=self.venue, column="full", **options)
        except ValueError as error:
            self.absent.append(("", f"figure of {name}", str(error)))
            return
        figure.set_layout_engine("none")  # each drawing would move it by a hair
        self.figures.append(CardFigure(name, figure, caption, table.reset_index(drop=True)))


def report(
    judge: Any,
    items: Any = None,
    *,
    truth: pd.Series | None = None,
    score: str = "score",
    by: str | None = None,
    venue: str = "acl",
    out: str | Path | None = None,
    controls: int | None = 200,
    gold: str = "observed",
    manifest: str | Path | None = None,
    collection: str | None = None,
    n_resamples: int = 2_000,
    seed: int = 0,
    progress: bool = True,
    **grading: Any,
) -> Card:
    """Make the report card of one judge or several: agreement, biases, failures, calibration, cost.

    Args:
        judge: a judge, which then grades the items and the controls; a run; a frame of
            `load_verdicts`, whose further judges stand beside `score`; runs by perturbation, as
            `probes.ProbeRuns` has them; or any of these by judge's name, which stand side by side.
        items: what was graded, or is to be.
        truth: scores (of pairs: preferences) by id, whose name captions use; None for gold, else
            the mean of people.
        score: the judge's column: "score", "expected_score", or in a frame of verdicts its name.
        by: a column of the items or the run; agreement is then given for each of its values too.
        venue: of the figures and tables.
        out: a folder for the page, its figures and what is graded, which continues there.
        controls: the most items that controls are graded on, in whole groups drawn at random; None
            for all, 0 for none.
        gold: see `probes.ProbeRuns`.
        manifest: the folder of a run that is given; a run that is graded has its own.
        collection: what the card calls the items.
        n_resamples, seed: of resampling and draws.
        progress: whether to say the number of verdicts beforehand, and to show the first run's bar.
        grading: further options of `Judge.grade`.

    Raises:
        ValueError: there is no verdict, or no such score, column or venue; as `Judge.grade`.

    Source: Mitchell et al., "Model Cards for Model Reporting", FAT* 2019, for what a card is.

    >>> import vjudge as vj
    >>> items = vj.load_collection("scenes", split="test", limit=20)
    >>> run = vj.load_judge("tiny", device="cpu").grade(items, mode="score", progress=False)
    >>> card = vj.report(run, n_resamples=200)  # or vj.report(judge, items) for the controls too
    >>> card.absent[0]
    ('tiny', 'Human ceiling', 'no item was rated by two people')
    """
    plots.width(venue, "full")  # an unknown venue is refused before anything is graded
    items = None if items is None else data.canonical(data.rows_of(items))
    given = by_name(judge, score)
    for one in given.values():
        check_request(one, items, by)
    with warnings.catch_warnings(record=True) as alerts, tempfile.TemporaryDirectory() as folder:
        warnings.simplefilter("always")
        home = Path(folder if out is None else out, "runs")
        sides = []
        for name, one in given.items():
            own = home / name if len(given) > 1 else home
            side = side_of(
                name, one, items, own, truth=truth, by=by, score=score, gold=gold,
                controls=controls, manifest=manifest, seed=seed, progress=progress, grading=grading,
            )  # fmt: skip
            sides.append(side)
        first = sides[0]
        source = None if items is None else data.origin(items).get("source")
        called = collection or source or first.run.attrs.get("name") or "the collection"
        size = f"{len(first.scores):,} {'pairs' if first.pairs else 'items'}"
        if first.groups is not None:
            size += f" in {first.scores['group'].nunique():,} groups"
        card = Card(list(given), str(called), first.truth, size, venue)
        options: dict[str, Any] = {"n_resamples": n_resamples, "seed": seed}
        for side in sides:
            _measure(card, side, controls, options)
        _figures(card, [side for side in sides if _has_scores(side)], by, options)
    card.remarks += [str(alert.message) for alert in alerts if issubclass(alert.category, ALERTS)]
    card.remarks = list(dict.fromkeys(card.remarks))
    card.methods.append(f"Computed with vjudge {vjudge.__version__}, seed {seed}")
    card.methods = list(dict.fromkeys(card.methods))
    if out is not None:
        card.write(out)
    return card


def _has_scores(side: Side) -> bool:
    return not side.pairs and len(side.scores[["score", "gold"]].dropna()) > 0


def _measure(card: Card, side: Side, controls: int | None, options: dict[str, Any]) -> None:
    """Add the parts of one judge to a card; what a part lacks stands in `absent`."""
    card.remarks += map(str, side.run.attrs.get("traps", ()))
    card.methods.append(f"{side.name}: {side.facts or 'the run does not record how it was asked'}")
    names = ["blindness", "verbosity", "length", "injection", "position", "consistency"]
    if side.pairs:
        names = ["position"]
    elif controls == 0 or side.scores["score"].isna().all():
        names = []
    side.battery = probes.battery(side.probe_runs, probes=names, samples=SAMPLES)
    for name, find in FINDERS.items():
        try:
            table, sentence, verdict = find(card, side, name, options)
        except MissingInputError as error:
            card.absent.append((side.name, CLAIMS[name], str(error)))
            continue
        table = table.reindex(columns=COLUMNS).reset_index(drop=True).astype({"n": int})
        card.parts.append(Part(name, side.name, verdict, sentence, table))


def _agreement(card: Card, side: Side, name: str, options: dict[str, Any]) -> Finding:
    """Agreement with the truth, and the human ceiling beside it."""
    if side.pairs:
        if "preference" not in side.run or side.run["preference"].isna().all():
            raise MissingInputError("nobody says which response is better: there is no preference")
        choices = side.run["verdict"].tolist(), side.run["preference"].tolist()
        table = metrics.pairwise_accuracy(*choices, groups=side.groups)
        table = table.assign(measure=table.index.str.replace("_", " "), unit="share of pairs")
        share = interval_text(table.loc["with_ties"])
        return table, f"It chooses as people do in {share} of the pairs", "measured"
    for column, why in (("gold", "no item has a truth"), ("score", "no verdict could be read")):
        if side.scores[column].isna().all():
            raise MissingInputError(why)
    score = side.scores["score"]
    table = metrics.correlate(score, side.scores["gold"], groups=side.groups, **options)
    card.methods.append(f"Agreement: {table.attrs['method']}")
    text = f"Pearson r with {card.truth} is {interval_text(table.loc['pearson'])}"
    table = table.assign(measure=table.index.str.capitalize())
    if any(sum(map(pd.notna, cell)) > 1 for cell in side.ratings):
        raters = metrics.rater_table(side.ratings, {"it": score}, groups=side.groups, **options)
        rows = [("ceiling", "the others", "pearson"), ("it", "all but one", "pearson")]
        people = raters.loc[rows].assign(measure=["a rater and the others", "it and the same"])
        ceiling, own = map(interval_text, people.to_dict("records"))
        text += f"; with the mean of the other raters a rater reaches {ceiling} and it {own}"
        table = pd.concat([table, people])
    else:
        card.absent.append((side.name, "Human ceiling", "no item was rated by two people"))
    return table.assign(unit="correlation"), text, "measured"


def _probed(card: Card, side: Side, name: str, options: dict[str, Any]) -> Finding:
    """What some probes found: the verdict, and the largest of the findings that decide it."""
    rows = side.battery[side.battery["probe"].isin(PROBED[name])]
    idle = rows["reading"] == "not run"
    reasons = list(rows.loc[idle, "note"].unique())
    rows = rows[~idle].rename(columns={"effect": "estimate", "case": "measure"})
    if rows.empty:
        why = "no verdict could be read, or no control was asked for (controls=0)"
        if side.pairs:
            why = "a comparison of pairs has no scores"
        raise MissingInputError("; ".join(reasons) or why)
    card.absent += [(side.name, CLAIMS[name], reason) for reason in reasons]
    card.methods.append(f"Controls: {side.battery.attrs['method']}; p by Holm over all tests")
    tests = rows[rows["must"].notna()]
    wrong = tests[tests["reading"].str.contains("though it must")]
    unsure = tests[~tests["reading"].str.match("moves|stays")]
    if len(wrong):
        return rows, _largest(wrong), "fails"
    if tests.empty:
        return rows, _largest(rows), "measured"
    if len(unsure):
        text = f"{len(unsure)} of {len(tests)} tests need more items: {_largest(unsure)}"
        return rows, text, "undecided"
    return rows, _largest(tests), "holds"


def _largest(rows: pd.DataFrame) -> str:
    """The largest of some effects as a sentence with its interval, and how many others are."""
    row = rows.loc[rows["estimate"].abs().fillna(0).idxmax()]
    text = row["finding"] or f"{row['measure']} is undefined"
    bounds = interval_text(row).partition(" ")[2]
    text += f" ({bounds} {row['unit']})" if bounds else ""
    if len(rows) > 1:
        text += f"; {len(rows) - 1} more in the table"
    return text


def _failures(card: Card, side: Side, name: str, options: dict[str, Any]) -> Finding:
    """Verdicts that could not be read, by reason."""
    run = side.run
    silent = ~run["verdict"].isin(CHOICES) if side.pairs else run[side.probe_runs.score].isna()
    groups = groups_of(run)
    units = None if len(set(groups)) in (1, len(run)) else groups
    rows = [("without a verdict", silent.to_numpy(), np.ones(len(run)))]
    table = shares(rows, groups=units, unit="verdicts").reset_index(names="measure")
    # The part before the colon is ours; behind it may stand a model's words.
    reasons = pd.Series(dtype=str) if "failure" not in run else run.loc[silent, "failure"].dropna()
    kinds = reasons.map(lambda text: str(text).partition(":")[0]).value_counts()
    for kind, n in kinds.items():
        table.loc[len(table)] = {"measure": kind, "n": n, "estimate": n / len(run)}
    table["unit"] = "share of verdicts"
    if not silent.any():
        return table, f"All {len(run):,} verdicts could be read", "holds"
    why = "; ".join(f"{kind}: {n:,}" for kind, n in kinds.head(3).items())
    text = f"{silent.sum():,} of {len(run):,} verdicts are missing ({why or 'no reason is given'})"
    return table, f"{text}, and no other number counts them", "measured"


def _calibration(card: Card, side: Side, name: str, options: dict[str, Any]) -> Finding:
    """How far scores lie from the truth, where both have one scale."""
    if side.pairs:
        raise MissingInputError("a comparison of pairs has no scores")
    both = side.scores[["score", "gold"]].dropna()
    if len(both) < 4:
        raise MissingInputError(f"{len(both)} items have a score and a truth; four are needed")
    low, high = both.min(), both.max()
    shared = high.min() - low.max()
    if 2 * shared < (high - low).max():
        ends = f"scores from {low['score']:g} to {high['score']:g}, the truth from {low['gold']:g}"
        why = "share less than half of a scale"
        raise MissingInputError(f"{ends} to {high['gold']:g}, {why}")
    columns = side.scores["score"], side.scores["gold"]
    table = metrics.calibration_errors(*columns, groups=side.groups, **options)
    table = table.assign(unit="score points", measure=["mean of score less truth", "mean error"])
    bias = table.loc["bias"]
    side_of_truth = "above" if bias["estimate"] > 0 else "below"
    size = format_number(abs(bias["estimate"]), zero=False)
    bounds = interval_text(bias).partition(" ")[2]
    text = f"Scores lie {size} points {side_of_truth} {card.truth} on average {bounds}; "
    text += f"the mean absolute error is {interval_text(table.loc['mae'])}"
    return table, text, "measured"


def _cost(card: Card, side: Side, name: str, options: dict[str, Any]) -> Finding:
    """Tokens and time a verdict."""
    rows = []
    for column, unit in WORK.items():
        if column in side.run and side.run[column].notna().any():
            known = side.run[side.run[column].notna()]
            effect = mean(known[column].to_numpy(float), groups_of(known))
            row = effect._asdict() | {"measure": unit, "estimate": effect.effect, "unit": unit}
            rows.append(row)
    if not rows:
        raise MissingInputError("the run has no counts of tokens and no times")
    text = ", ".join(f"{row['estimate']:.3g} {row['unit']}" for row in rows)
    return pd.DataFrame(rows), text, "measured"


FINDERS: dict[str, Callable[[Card, Side, str, dict[str, Any]], Finding]] = {
    "agreement": _agreement,
    **dict.fromkeys(PROBED, _probed),
    "failures": _failures,
    "calibration": _calibration,
    "cost": _cost,
}


def _figures(card: Card, sides: list[Side], by: str | None, options: dict[str, Any]) -> None:
    """The figures of all judges side by side."""
    if not sides:
        return
    lines = []
    curves = {}
    for side in sides:
        columns = {side.name: side.scores["score"]}
        for name in BLIND:
            if name in side.probe_runs.runs:
                label = f"{side.name}, {name.replace('_', ' ')}"
                columns[label] = side.probe_runs.scored(name)["score"]
        for label, score in columns.items():
            gold = side.scores["gold"].reindex(score.index)
            groups = side.scores["group"].reindex(score.index)
            row = metrics.correlate(score, gold, groups=groups, **options).loc["pearson"]
            lines.append({"judge": label, **row})
        score, gold = side.scores["score"], side.scores["gold"]
        bins = None if score.nunique() <= 11 else 10
        curves[side.name] = metrics.calibration_curve(score, gold, bins=bins, groups=side.groups)
    table = pd.DataFrame(lines)
    title = f"Pearson correlation with {card.truth}"
    card.draw("agreement", plots.forest, table.dropna(subset="estimate"), table, title, label=title)
    if by is not None:
        table = _by_value(sides, by, options)
        rows = table.dropna(subset="estimate")
        look: dict[str, Any] = {"rows": by, "by": "judge" if len(sides) > 1 else None}
        card.draw(
            "agreement_by", plots.forest, rows, table, f"{title}, by {by}", label=title, **look
        )
    run = pd.concat([side.scores.assign(judge=side.name) for side in sides])
    text = f"Scores by {card.truth}; shade: share of a row"
    card.draw("scores", plots.confusion, run, run, text, truth_name=card.truth)
    whole = pd.concat(curves, names=["name", "row"]).reset_index()
    text = f"Mean of the truth ({card.truth}) at each score"
    card.draw("calibration", plots.calibration_curve, curves, whole, text, label=card.truth)
    batteries = pd.concat([side.battery.assign(judge=side.name) for side in sides])
    batteries = batteries[batteries["reading"] != "not run"]
    if batteries["must"].notna().any():
        text = "What each control did to the scores, with 95% intervals"
        card.draw("controls", plots.battery_effects, batteries, batteries, text)


def _by_value(sides: list[Side], by: str, options: dict[str, Any]) -> pd.DataFrame:
    """Pearson's r of each judge for each value of a column, in order of the first judge's r."""
    rows = []
    for side in sides:
        labels = side.run.drop_duplicates("id").set_index("id")[by].map(str)
        for value, part in side.scores.groupby(labels.reindex(side.scores.index), sort=False):
            groups = part["group"] if part["group"].nunique() > 1 else None
            row = metrics.correlate(part["score"], part["gold"], groups=groups, **options)
            rows.append({"judge": side.name, by: value, **row.loc["pearson"]})
    table = pd.DataFrame(rows)
    order = table[table["judge"] == sides[0].name].sort_values("estimate", ascending=False)[by]
    return table.sort_values(by, key=lambda column: column.map(list(order).index), kind="stable")
