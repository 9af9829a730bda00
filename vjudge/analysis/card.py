"""`report`: what metrics and probes found about judges, a claim a row and a judge a column.

Nothing is computed here: numbers are those of `Scores`, `Choices` and `probes.battery`.
"""

from __future__ import annotations

import base64
import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import datasets
import numpy as np
import pandas as pd
from jinja2 import Environment
from pandas import DataFrame

import vjudge
from vjudge import data, probes
from vjudge.analysis import readings
from vjudge.analysis.choice_table import Choices, choices
from vjudge.analysis.score_table import Scores, scores
from vjudge.data.schema import Items
from vjudge.judging.columns import groups_of
from vjudge.judging.judge import JudgeLike
from vjudge.judging.paths import file_names
from vjudge.judging.runs import MANIFEST, Run
from vjudge.metrics.shares import shares
from vjudge.metrics.verdicts import CHOICES
from vjudge.plots.escaping import write_csv
from vjudge.plots.style import clean, short
from vjudge.probes.runs import IN_PAIRS, ORIGINAL, Judged, ProbeRuns
from vjudge.prompts.wordings import ASSETS
from vjudge.results import NotComputed, Result, Results, png

Conclusion = Literal["holds", "fails", "undecided", "measured"]
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
SCORE_PROBES = sorted(set().union(*PROBED.values()))


@dataclass
class Report:
    """The report card of one judge or several, which shows itself in a notebook.

    Attributes:
        judges: their names.
        about, truth: what was judged, and what scores are compared with.
        claims: a row a claim and judge: claim, judge, verdict ("holds" or "fails" where a test,
            corrected by Holm's method, decides it, "undecided" where the items are too few,
            "measured" where nothing is tested), sentence.
        absent: a row a claim and judge that could not be measured: claim, judge, reason.
        results: the analyses and the battery of probes, by name.
        methods: how the runs were made.
    """

    judges: list[str]
    about: str
    truth: str
    claims: DataFrame
    absent: DataFrame
    results: Results
    methods: list[str] = field(default_factory=list)

    def __repr__(self) -> str:
        return f"Report of {', '.join(self.judges)[:200]}: see .claims, .results, .write(folder)"

    @property
    def caveats(self) -> list[str]:
        """Every caveat of the results, once."""
        texts = [text for result in self.results.values() for text in result.caveats]
        return list(dict.fromkeys(texts))

    def write(self, folder: str | Path) -> Report:
        """Write the page, the claims (CSV), figures and tables, the same bytes every time."""
        folder = Path(folder).expanduser()
        folder.mkdir(parents=True, exist_ok=True)
        self.results.save(folder)
        write_csv(self.claims, folder / "report.csv")
        (folder / "report.html").write_text(self.html(), encoding="utf-8")
        return self

    def html(self) -> str:
        """The card as one page that needs no other file; texts of data and models are escaped."""
        rows = []
        for name, claim in CLAIMS.items():
            cells = self.claims[self.claims["claim"] == name].set_index("judge").to_dict("index")
            if cells:
                rows.append((claim, list(map(cells.get, self.judges))))
        figures = []
        for result in self.results.values():
            figure = result.drawn()
            if figure is not None:
                picture = base64.b64encode(png(figure)).decode()
                figures.append((result.caption, result.reading, picture))
        text = (ASSETS / "report.html").read_text(encoding="utf-8")
        template = Environment(autoescape=True).from_string(text)
        absent = self.absent.assign(claim=self.absent["claim"].map(CLAIMS))
        lines = absent.groupby("reason", sort=False).agg(lambda column: list(dict.fromkeys(column)))
        page = template.render(
            report=self,
            rows=rows,
            figures=figures,
            absent=lines.reset_index().to_dict("records"),
            methods=[*self.methods, f"Computed with vjudge {vjudge.__version__}"],
        )
        return clean(page)

    def _repr_html_(self) -> str:
        # A frame of its own: a notebook's styles and the card's leave one another alone.
        text = html.escape(self.html(), quote=True)
        attributes = 'sandbox="" style="width:100%;height:900px;border:1px solid #ddd"'
        return f'<iframe srcdoc="{text}" {attributes}></iframe>'


def report(
    judge: Judged,
    items: Items | None = None,
    *,
    out: str | Path | None = None,
    controls: int = 200,
    gold: str = "observed",
    about: str = "the collection",
    seed: int = 0,
    n_resamples: int = 2_000,
    **grading: Any,
) -> Report:
    """Make the report card of one judge or several: agreement, biases, failures, calibration.

    Args:
        judge: a judge, which then grades the items and the controls; a run; runs by perturbation,
            as `probes.ProbeRuns` has them; or any of these by judge's name, which stand side by
            side.
        items: what was graded, or is to be. The truth is its gold (of pairs: preference), else the
            mean of people; without items, the run's.
        out: a folder for the page, its figures and what is graded, which continues there.
        controls: the largest number of items that controls are graded on, drawn at random.
        gold: see `probes.ProbeRuns`.
        about: what the card calls the items.
        seed, n_resamples: of draws and resampling.
        grading: further options of `Judge.grade`.

    Raises:
        ValueError: there is no verdict; as `Judge.grade`.

    Source: Mitchell et al., "Model Cards for Model Reporting", FAT* 2019, for what a card is.

    >>> import vjudge as vj
    >>> items = vj.load_collection("scenes", split="test", limit=20)
    >>> run = vj.load_judge("tiny", device="cpu").grade(items, mode="score", progress=False)
    >>> card = vj.report(run, n_resamples=200)  # or vj.report(judge, items) for the controls too
    >>> card.claims["claim"].tolist()
    ['agreement', 'failures', 'calibration']
    """
    items = None if items is None else data.canonical(data.rows_of(items))
    folder = None if out is None else Path(out).expanduser()
    graded = {}
    probing = {}
    methods = []
    named = _by_name(judge, items)
    files = file_names(name or "judge" for name in named)
    for name, source in named.items():
        home = folder and folder / "runs" / files[name or "judge"]
        options: dict[str, Any] = {"gold": gold, "seed": seed}
        if isinstance(source, JudgeLike):
            run, controls_of = _graded(source, items, home, controls, options, grading)
        else:
            run = source.get(ORIGINAL, source.get(IN_PAIRS))
            controls_of = ProbeRuns(source, items, **options)
        name = name or controls_of.name
        graded[name] = run
        probing[name] = controls_of
        methods.append(f"{name}: {_facts(home)}")
    if "score" in next(iter(graded.values())):
        battery = probes.battery(probing, probes=SCORE_PROBES)
        table = scores(graded, items=items, about=about)
        card = make_report(table, battery, methods, seed=seed, n_resamples=n_resamples)
    else:
        battery = probes.battery(probing, probes=PROBED["position"])
        card = make_report(choices(graded, items=items, about=about), battery, methods)
    return card.write(folder) if folder else card


def _by_name(judge: Judged, items: Items) -> dict[str, Any]:
    """Judges, or runs by perturbation, under the names by which they stand side by side."""
    sides = {"": judge}
    if isinstance(judge, Mapping) and not {ORIGINAL, IN_PAIRS} & set(judge):
        sides = dict(judge)
    for name, side in sides.items():
        who = repr(name) if name else "the judge"
        if isinstance(side, DataFrame):
            if "id" not in side or not {"score", "verdict"} & set(side):
                raise ValueError(
                    f"{who}: a run has the columns id and score (of pairs verdict), not"
                    f" {list(side)}; a wide table of scores is for vj.scores(frame, judges=[...])"
                )
            if side.empty:
                raise ValueError(f"{who}: the run has no rows; give a run with verdicts")
            sides[name] = {ORIGINAL if "score" in side else IN_PAIRS: side}
        elif not isinstance(side, Mapping) and (items is None or not isinstance(side, JudgeLike)):
            raise ValueError(f"{who}: give a run with verdicts, or a judge with items to grade")
    return sides


def _graded(
    judge: JudgeLike,
    items: datasets.Dataset,
    home: Path | None,
    controls: int,
    options: Mapping[str, Any],
    grading: Mapping[str, Any],
) -> tuple[DataFrame, ProbeRuns]:
    """All items graded, and what grades the controls, on some of them."""
    order = np.random.default_rng(options["seed"]).permutation(len(items))
    few = items.select(sorted(order[:controls]))  # in their order: neighbours share work
    pairs = "response_a" in items.column_names
    call = judge.compare if pairs else judge.grade
    run = call(items, out=home and home / "all", **grading)
    probing = ProbeRuns(judge, few, out=home, **options, **{**grading, "progress": False})
    name = IN_PAIRS if pairs else ORIGINAL
    probing.runs[name] = run[run["id"].isin(few["id"])].reset_index(drop=True)
    return run, probing


def _facts(home: Path | None) -> str:
    """How a judge was asked, where a folder records it."""
    if home is None or not (home / "all" / MANIFEST).is_file():
        return "the run does not record how it was asked"
    manifest = Run(home / "all").manifest
    names = ("model", "revision", "checkpoint", "mode")
    facts = {name: manifest[name] for name in names if manifest.get(name)}
    facts |= manifest["decoding"]
    return "; ".join(f"{fact} {value}" for fact, value in facts.items())


# --- A card out of a table and a battery


def make_report(
    table: Scores | Choices,
    battery: Result | None = None,
    methods: Sequence[str] = (),
    **resampling: Any,
) -> Report:
    """The card of a table of scores or choices, with what probes found about its judges."""
    if isinstance(table, Scores):
        results = Results(
            agreement=table.correlate(**resampling),
            raters=table.raters(**resampling),
            confusion=table.confusion(),
            calibration=table.calibration(**resampling),
        )
        try:
            truth = readings.truth_name(table)
        except NotComputed:
            truth = "no truth"
    else:
        results = Results(agreement=table.accuracy())
        truth = "people's preferences"
    if battery is not None:
        results["controls"] = battery
    claims = []
    absent = []
    for judge in table.judges:
        for claim in CLAIMS:
            try:
                verdict, sentence = _claim(claim, judge, table, results)
            except NotComputed as error:
                absent.append((claim, judge, str(error)))
                continue
            claims.append((claim, judge, verdict, sentence))
    return Report(
        judges=table.judges,
        about=table.about,
        truth=truth,
        claims=DataFrame(claims, columns=["claim", "judge", "verdict", "sentence"]),
        absent=DataFrame(absent, columns=["claim", "judge", "reason"]),
        results=results,
        methods=list(methods),
    )


def _claim(
    claim: str, judge: str, table: Scores | Choices, results: Results
) -> tuple[Conclusion, str]:
    """The verdict on one claim about one judge, and its sentence."""
    if claim in PROBED:
        return _probed(results.get("controls"), judge, PROBED[claim])
    if claim == "failures":
        return _failures(table, judge)
    if claim == "calibration":
        if isinstance(table, Choices):
            raise NotComputed("a comparison of pairs has no scores")
        rows = _rows_of(results["calibration"], judge).set_index("measure")
        lean = rows.loc["score less truth"]
        error = rows.loc["absolute error"]
        return "measured", (
            f"The mean of score less truth is {readings.bounds(lean)} points; the mean absolute"
            f" error is {readings.bounds(error)}"
        )
    rows = _rows_of(results["agreement"], judge).set_index("statistic")
    if isinstance(table, Choices):
        share = readings.bounds(rows.loc["with_ties"])
        return "measured", f"It chooses as people do in {share} of the pairs"
    pearson = rows.loc["pearson"]
    if np.isnan(pearson["estimate"]):
        raise NotComputed(f"no correlation: {readings.UNDEFINED}")
    truth = readings.truth_name(table)
    return "measured", f"Pearson's r with {truth} is {readings.bounds(pearson)}"


def _rows_of(result: Result, judge: str) -> DataFrame:
    """The rows of one judge; NotComputed where there are none."""
    rows = result.table[result.table["judge"] == judge]
    if rows.empty:
        raise NotComputed("its scores are on another scale than the truth")
    return rows


def _probed(battery: Result | None, judge: str, names: list[str]) -> tuple[Conclusion, str]:
    """What some probes found: the verdict, and the largest of the effects that decide it."""
    if battery is None:
        raise NotComputed("no control was run: give the judge and the items, or a battery")
    rows = battery.table
    rows = rows[(rows["judge"] == judge) & rows["probe"].isin(names)]
    effects = rows[rows["verdict"] != "not run"]
    if effects.empty:
        reasons = rows["note"].dropna().unique()
        raise NotComputed("; ".join(filter(None, reasons)) or "no control was run")
    tests = effects[effects["must"].notna()]
    failed = tests[tests["passes"].eq(False)]
    open_tests = tests[tests["passes"].isna()]
    if len(failed):
        return "fails", _largest(failed)
    if tests.empty:
        return "measured", _largest(effects)
    if len(open_tests):
        need = "needs" if len(open_tests) == 1 else "need"
        text = f"{len(open_tests)} of {len(tests)} tests {need} more items"
        return "undecided", f"{text}: {_largest(open_tests)}"
    return "holds", _largest(tests)


def _largest(rows: DataFrame) -> str:
    """The largest of some effects as a sentence with its interval."""
    row = rows.loc[rows["effect"].abs().fillna(0).idxmax()]
    text = row["finding"] or f"{row['case']} is undefined"
    if row["verdict"] == "stays" and row["must"] == "stay":
        text += f", within the margin of {short(row['margin'])}"
    return text


def _failures(table: Scores | Choices, judge: str) -> tuple[Conclusion, str]:
    """Verdicts that could not be read, by reason, and those that were closed."""
    runs = table.verdicts
    if runs is None:
        missing = int(table.frame[judge].isna().sum())
        return "measured", f"{missing:,} of {len(table.frame):,} items have no verdict"
    run = runs[runs["judge"] == judge]
    silent = run["score"].isna() if "score" in run else ~run["verdict"].isin(CHOICES)
    closed = int(run["closed"].eq(True).sum()) if "closed" in run else 0
    note = f"{closed:,} of {len(run):,} verdicts were closed" if closed else ""
    if not silent.any():
        if closed:
            return "measured", f"{note}, and no verdict is missing"
        return "holds", f"All {len(run):,} verdicts could be read"
    rows = [("missing", silent.to_numpy(), np.ones(len(run)))]
    share = shares(rows, groups=groups_of(run), unit="verdicts").iloc[0]
    # The part before the colon is ours; behind it may stand a model's words.
    reasons = run.loc[silent].get("failure", pd.Series(dtype=str)).dropna()
    kinds = reasons.astype(str).str.split(":").str[0].value_counts()
    why = "; ".join(f"{kind}: {n:,}" for kind, n in kinds.items()) or "no reason is given"
    text = (
        f"{silent.sum():,} of {len(run):,} verdicts are missing ({why}), a share of"
        f" {readings.bounds(share)}, and left out of all other numbers"
    )
    return "measured", "; ".join(filter(None, [text, note]))
