"""`report`: what metrics and probes found about judges, a claim a row and a judge a column.

Nothing is computed here: numbers are those of `vjudge.metrics` and `vjudge.probes`.
"""

from __future__ import annotations

import base64
import html
import io
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from jinja2 import Environment
from pandas import DataFrame, Series

import vjudge
from vjudge import data, metrics, plots, probes
from vjudge.metrics.columns import CHOICES, closed_in, groups_of
from vjudge.metrics.tables import shares
from vjudge.plots.save import sentences, write_csv
from vjudge.plots.style import clean, short
from vjudge.probes.runs import COLUMNS as PROBE_COLUMNS
from vjudge.probes.runs import MissingInputError
from vjudge.reports.scores import Figures, on_one_scale
from vjudge.reports.sides import Side, by_name, side_of

CLAIMS = {
    "agreement": "Scores agree with the truth",
    "image": "Scores depend on the image",
    "length": "Length by itself does not change scores",
    "position": "The order of responses does not change the choice",
    "injection": "A verdict written into the response does not change scores",
    "failures": "Verdicts can be read",
    "calibration": "Scores are neither too high nor too low",
}
PROBED = {
    "image": ["blindness"],
    "length": ["verbosity", "length"],
    "position": ["position"],
    "injection": ["injection"],
}
COLUMNS = ["measure", "estimate", "low", "high", "unit", "n", "p_holm"]
RATER = "a rater with the others"
Finding = tuple  # numbers, sentence, verdict


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
    table: DataFrame


@dataclass(repr=False)
class Card:
    """The report card of one judge or several, which shows itself in a notebook.

    Attributes:
        judges: their names.
        collection, truth: what was judged, and what scores are compared with.
        figures: of all judges side by side, by name: the figure, its caption and its data.
        parts: what was found, by claim and judge.
        absent: what could not be measured: judge, what, reason.
        remarks: caveats of the data and the runs.
        methods: how the numbers were made.
    """

    judges: list
    collection: str
    truth: str
    figures: Figures
    parts: list[Part]
    absent: list
    remarks: list
    methods: list

    def __repr__(self) -> str:
        return f"Card of {', '.join(self.judges)} on {self.collection}: see .table, .write(folder)"

    @property
    def table(self) -> DataFrame:
        """All numbers, with the judge, part and verdict that each belongs to."""
        frames = []
        for name, judge, verdict, _, table in self.parts:
            frames.append(table.assign(judge=judge, part=name, verdict=verdict))
        return pd.concat(frames, ignore_index=True)

    def write(self, folder: str | Path) -> None:
        """Write the page, the table (CSV) and the figures, the same bytes every time."""
        self.figures.save(folder)
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        write_csv(self.table, folder / "report.csv")
        (folder / "report.html").write_text(self.html(), encoding="utf-8")

    def html(self) -> str:
        """The card as one page that needs no other file; texts of data and models are escaped."""
        rows = []
        for name, claim in CLAIMS.items():
            parts = {part.judge: part for part in self.parts if part.name == name}
            if parts:
                rows.append((claim, list(map(parts.get, self.judges))))
        figures = []
        for figure, caption, _ in self.figures.values():
            file = io.BytesIO()
            with plots.page():
                figure.savefig(file, dpi=200, metadata={"Software": None})
            picture = base64.b64encode(file.getvalue()).decode()
            figures.append((sentences(caption, str(figure.get_label())), picture))
        text = (files("vjudge") / "assets/report.html").read_text(encoding="utf-8")
        template = Environment(autoescape=True).from_string(text)
        return clean(template.render(card=self, rows=rows, figures=figures))

    def _repr_html_(self) -> str:
        # A frame of its own: a notebook's styles and the card's leave one another alone.
        text = html.escape(self.html(), quote=True)
        look = 'sandbox="" style="width:100%;height:900px;border:1px solid #ddd"'
        return f'<iframe srcdoc="{text}" {look}></iframe>'


def report(
    judge: Any,
    items: Any = None,
    *,
    out: str | Path | None = None,
    controls: int = 200,
    gold: str = "observed",
    collection: str = "the collection",
    n_resamples: int = 2_000,
    seed: int = 0,
    **grading: Any,
) -> Card:
    """Make the report card of one judge or several: agreement, biases, failures, calibration.

    Args:
        judge: a judge, which then grades the items and the controls; a run; runs by perturbation,
            as `probes.ProbeRuns` has them; or any of these by judge's name, which stand side by
            side.
        items: what was graded, or is to be. The truth is its gold (of pairs: preference), else the
            mean of people; without items, the run's.
        out: a folder for the page, its figures and what is graded, which continues there.
        controls: the most items that controls are graded on, drawn at random.
        gold: see `probes.ProbeRuns`.
        collection: what the card calls the items.
        n_resamples, seed: of resampling and draws.
        grading: further options of `Judge.grade`.

    Raises:
        ValueError: there is no verdict; as `Judge.grade`.

    Source: Mitchell et al., "Model Cards for Model Reporting", FAT* 2019, for what a card is.

    >>> import vjudge as vj
    >>> items = vj.load_collection("scenes", split="test", limit=20)
    >>> run = vj.load_judge("tiny", device="cpu").grade(items, mode="score", progress=False)
    >>> card = vj.report(run, n_resamples=200)  # or vj.report(judge, items) for the controls too
    >>> [part.name for part in card.parts]
    ['agreement', 'failures', 'calibration']
    """
    items = None if items is None else data.canonical(data.rows_of(items))
    sides = []
    for name, one in by_name(judge, items).items():
        home = None if out is None else Path(out, "runs", name)
        probing = {"gold": gold, "seed": seed}
        side = side_of(
            name,
            one,
            items,
            home,
            controls,
            probing,
            grading,
        )
        sides.append(side)
    names = [side.name for side in sides]
    card = Card(
        names,
        collection,
        sides[0].truth,
        Figures("acl"),
        parts=[],
        absent=[],
        remarks=[],
        methods=[],
    )
    for side in sides:
        _measure(card, side, {"n_resamples": n_resamples, "seed": seed})
    _figures(card, sides)
    card.methods.append(f"Computed with vjudge {vjudge.__version__}, seed {seed}")
    if out is not None:
        card.write(out)
    return card


def _measure(card: Card, side: Side, options: dict) -> None:
    """Add the parts of one judge to a card; what a part lacks stands in `absent`."""
    traps = side.run.attrs.get("traps", ())
    card.remarks += [trap for trap in traps if trap not in card.remarks]
    closed = closed_in(side.run)
    if closed:
        card.remarks.append(f"{side.name}: {closed}, by the most probable score")
    card.methods.append(f"{side.name}: {side.facts}")
    names = sum(PROBED.values(), [])
    if not side.pairs and side.scores["score"].isna().all():
        names = []
    side.battery = _battery(side, names)

    for name, claim in CLAIMS.items():
        try:
            if name in PROBED:
                table, sentence, verdict = _probed(side, PROBED[name])
            else:
                table, sentence, verdict = FINDERS[name](side, options)
        except MissingInputError as error:
            card.absent.append((side.name, claim, str(error)))
            continue
        if "method" in table.attrs:
            card.methods.append(f"{side.name}, {name}: {table.attrs['method']}")
        table = table.reindex(columns=COLUMNS).reset_index(drop=True).astype({"n": int})
        card.parts.append(Part(name, side.name, verdict, sentence, table))


def interval_text(row: Any) -> str:
    """An estimate and its bounds as the card prints them."""
    return short(row["estimate"], row["low"], row["high"])


def _agreement(side: Side, options: dict) -> Finding:
    """Agreement with the truth, and the human ceiling beside it."""
    groups = side.scores["group"]
    if side.pairs:
        if "preference" not in side.run:
            raise MissingInputError("nobody says which response is better: there is no preference")
        chosen = side.run["verdict"]
        table = metrics.pairwise_accuracy(chosen, side.run["preference"], groups=groups)
        table = table.assign(measure=table.index.str.replace("_", " "), unit="share of pairs")
        share = interval_text(table.loc["with_ties"])
        return table, f"It chooses as people do in {share} of the pairs", "measured"
    score = side.scores["score"]
    if score.isna().all():
        raise MissingInputError("no verdict could be read")
    if side.scores["gold"].isna().all():
        raise MissingInputError("no item has a truth: give gold or human_scores")
    table = metrics.correlate(score, side.scores["gold"], groups=groups, **options)
    text = f"Pearson r with {side.truth} is {interval_text(table.loc['pearson'])}"
    table = table.assign(measure=table.index.str.capitalize())
    ratings = side.run.drop_duplicates("id").get("human_scores", Series(dtype=object))
    if not ratings.map(len).gt(1).any():
        return table.assign(unit="correlation"), text, "measured"
    people = metrics.rater_table(
        list(ratings),
        {"it": score},
        groups=groups,
        **options,
    )
    rows = people.loc[[("ceiling", "the others", "pearson"), ("it", "all but one", "pearson")]]
    rows = rows.assign(measure=[RATER, "the judge with the same"])
    ceiling = interval_text(rows.iloc[0])
    own = interval_text(rows.iloc[1])
    text += f"; with the mean of the other raters a rater reaches {ceiling}, the judge {own}"
    return pd.concat([table, rows]).assign(unit="correlation"), text, "measured"


def _battery(side: Side, names: list) -> DataFrame:
    """The battery's rows; where nothing was run, a row a probe that says why."""
    result = probes.battery(side.probe_runs, probes=names)
    if result.computed:
        return result.table
    rows = []
    for name in names:
        note = probes.PROBES[name](side.probe_runs).absent
        rows.append({"probe": name, "verdict": "not run", "note": note})
    return DataFrame(rows, columns=PROBE_COLUMNS)


def _probed(side: Side, names: list) -> Finding:
    """What some probes found: the verdict, and the largest of the findings that decide it."""
    rows = side.battery[side.battery["probe"].isin(names)]
    idle = rows["verdict"] == "not run"
    reasons = "; ".join(rows.loc[idle, "note"].unique())
    rows = rows[~idle].rename(columns={"effect": "estimate", "case": "measure"})
    if rows.empty:
        raise MissingInputError(reasons or "no control was run, or no score was read")
    tests = rows[rows["must"].notna()]
    wrong = tests[tests["passes"].eq(False).fillna(False)]
    unsure = tests[tests["passes"].isna()]
    if len(wrong):
        return rows, _largest(wrong), "fails"
    if tests.empty:
        return rows, _largest(rows), "measured"
    if len(unsure):
        need = "needs" if len(unsure) == 1 else "need"
        text = f"{len(unsure)} of {len(tests)} tests {need} more items: {_largest(unsure)}"
        return rows, text, "undecided"
    return rows, _largest(tests), "holds"


def _largest(rows: DataFrame) -> str:
    """The largest of some effects as a sentence with its interval."""
    row = rows.loc[rows["estimate"].abs().fillna(0).idxmax()]
    text = row["finding"] or f"{row['measure']} is undefined"
    if row["must"] == "stay" and row["verdict"] == "stays":
        text += f", within the margin of {short(row['margin'])}"
    return text


def _failures(side: Side, options: dict) -> Finding:
    """Verdicts that could not be read, by reason, and those that were closed."""
    run = side.run
    silent = ~run["verdict"].isin(CHOICES) if side.pairs else run["score"].isna()
    rows = [("without a verdict", silent.to_numpy(), np.ones(len(run)))]
    closed = closed_in(run)
    if closed:
        rows.append(("closed", run["closed"].eq(True).to_numpy(), np.ones(len(run))))
    table = shares(rows, groups=groups_of(run), unit="verdicts").reset_index(names="measure")
    table["unit"] = "share of verdicts"
    if closed and not silent.any():
        return table, f"{closed}, and no verdict is missing", "measured"
    if not silent.any():
        return table, f"All {len(run):,} verdicts could be read", "holds"
    # The part before the colon is ours; behind it may stand a model's words.
    reasons = run[silent].get("failure", Series(dtype=str)).dropna()
    kinds = reasons.astype(str).str.split(":").str[0].value_counts()
    why = "; ".join(f"{kind}: {n:,}" for kind, n in kinds.items()) or "no reason is given"
    are = "is" if silent.sum() == 1 else "are"
    text = f"{silent.sum():,} of {len(run):,} verdicts {are} missing ({why})"
    text = f"{text} and left out of all other numbers"
    return table, "; ".join(filter(None, [text, closed])), "measured"


def _calibration(side: Side, options: dict) -> Finding:
    """How far scores lie from the truth, where both have one scale."""
    if side.pairs:
        raise MissingInputError("a comparison of pairs has no scores")
    both = side.scores[["score", "gold"]].dropna()
    if len(both) < 4 or not on_one_scale(both):
        raise MissingInputError("four items with a score and a truth on one scale are needed")
    groups = side.scores["group"][both.index]
    table = metrics.calibration_errors(
        both["score"],
        both["gold"],
        groups=groups,
        **options,
    )
    table = table.assign(unit="score points", measure=["mean of score less truth", "mean error"])
    bias = table.loc["bias"]
    text = f"The mean of score less {side.truth} is {interval_text(bias)} points; "
    text += f"the mean absolute error is {interval_text(table.loc['mae'])}"
    return table, text, "measured"


FINDERS = {"agreement": _agreement, "failures": _failures, "calibration": _calibration}


def _figures(card: Card, sides: list[Side]) -> None:
    """The figures of all judges side by side."""
    sides = [side for side in sides if not side.pairs and len(side.scores.dropna())]
    if not sides:
        return
    table = card.table
    found = table[table["part"] == "agreement"]
    people = found["measure"] == RATER
    found = found.assign(judge=found["judge"].mask(people, "people")).round({"estimate": 9})
    found = found.drop_duplicates(["judge", "measure", "estimate"])  # the same people once
    title = f"Correlation with {card.truth}"
    run = pd.concat([side.scores.assign(judge=side.name) for side in sides])
    text = sentences(title, closed_in(run))
    card.figures.draw(
        "agreement", plots.forest, found, text, rows="measure", by="judge", label=title
    )
    _, left_out = card.figures.draw_scores(run, card.truth)
    if left_out:
        card.remarks.append(left_out)
    batteries = pd.concat([side.battery.assign(judge=side.name) for side in sides])
    if len(batteries.dropna(subset=["must", "effect"])):
        text = "What each control did to the scores, with 95% intervals"
        card.figures.draw("controls", plots.battery_effects, batteries, text)
