"""`report`: the card of one judge or several, one page with a row per claim and a column per judge.

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
from vjudge.analysis.tables import truth_of
from vjudge.data.schema import Items
from vjudge.judging.columns import closed_in, groups_of
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
Finding = tuple[Conclusion, str]  # on one claim about one judge: the conclusion, and a sentence
CLAIMS = {
    "agreement": "Scores agree with the truth",
    "image": "Scores depend on the image",
    "length": "Length by itself does not change scores",
    "position": "The order of responses does not change the choice",
    "injection": "A verdict written into the response does not change scores",
    "failures": "Verdicts can be read",
    "calibration": "Scores are neither too high nor too low",
}
PROBED = {  # claim -> the probes that test it
    "image": ["blindness"],
    "length": ["verbosity", "length"],
    "position": ["position"],
    "injection": ["injection"],
}
SCORE_PROBES = sorted(set().union(*PROBED.values()))  # all of them, for a card on scores
FACTS = ("model", "revision", "checkpoint", "mode")  # entries of a run's manifest on the card


@dataclass
class Report:
    """The report card of one judge or several; a notebook displays it.

    Attributes:
        judges: the names of the judges.
        about: what was judged.
        truth: the name of the truth that scores are compared with.
        claims: one row per claim and judge: claim, judge, verdict, sentence. The verdict is "holds"
            or "fails" where a test, corrected by Holm's method, is significant; "undecided" where
            the items are too few; "measured" where nothing is tested.
        absent: one row per claim and judge that could not be measured: claim, judge, reason.
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
        """The caveats of all results, each once."""
        texts = [text for result in self.results.values() for text in result.caveats]
        return list(dict.fromkeys(texts))

    def write(self, folder: str | Path) -> Report:
        """Write the page, the claims (CSV), figures and tables: the same bytes in every run."""
        folder = Path(folder).expanduser()
        folder.mkdir(parents=True, exist_ok=True)
        self.results.save(folder)
        write_csv(self.claims, folder / "report.csv")
        (folder / "report.html").write_text(self.html(), encoding="utf-8")
        return self

    def html(self) -> str:
        """Make one HTML page without other files; texts of data and models are escaped."""
        # Each row: the text of a claim, and a list with one finding (or None) per judge
        rows = []
        for claim, text in CLAIMS.items():
            findings = self.claims[self.claims["claim"] == claim].set_index("judge")
            if len(findings):
                by_judge = findings.to_dict("index")  # judge -> its claim, verdict and sentence
                rows.append((text, [by_judge.get(judge) for judge in self.judges]))
        figures = []  # (caption, reading, PNG in base64)
        for result in self.results.values():
            figure = result.drawn()
            if figure is not None:
                image = base64.b64encode(png(figure)).decode()
                figures.append((result.caption, result.reading, image))
        # One row per reason, with the lists of claims and of judges that it holds for
        absent = self.absent.assign(claim=self.absent["claim"].map(CLAIMS))
        reasons = absent.groupby("reason", sort=False).agg(lambda names: list(dict.fromkeys(names)))
        source = (ASSETS / "report.html").read_text(encoding="utf-8")
        page = (
            Environment(autoescape=True)
            .from_string(source)
            .render(
                report=self,
                rows=rows,
                figures=figures,
                absent=reasons.reset_index().to_dict("records"),
                methods=[*self.methods, f"Computed with vjudge {vjudge.__version__}"],
            )
        )
        return clean(page)

    def _repr_html_(self) -> str:
        """Put the page into a frame, so that its styles and the notebook's stay apart."""
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
            as for `probes.ProbeRuns`; or a mapping from judges' names to any of these, for a card
            with several columns.
        items: the collection that was graded, or that a judge is to grade. The truth is its gold
            (for pairs, its preference), or the mean of people where gold is missing. Without
            items, the columns of the run are used.
        out: a folder for the page and its figures, and for what is graded, which continues there.
        controls: the largest number of items that controls are graded on, drawn at random.
        gold: what kind of truth gold is, see `probes.ProbeRuns`.
        about: what the card calls the items.
        seed, n_resamples: the seed of draws and resampling, and the number of resamples.
        grading: further options of `Judge.grade`.

    Raises:
        ValueError: there is no verdict; and as for `Judge.grade`.

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
    sources = _by_name(judge, items)
    files = file_names(name or "judge" for name in sources)
    options: dict[str, Any] = {"gold": gold, "seed": seed}
    runs = {}
    probing = {}
    methods = []
    for name, source in sources.items():
        home = folder and folder / "runs" / files[name or "judge"]  # None where nothing is written
        if isinstance(source, JudgeLike):
            run, probe_runs = _graded(source, items, home, controls, options, grading)
        else:  # runs by perturbation: verdicts are counted in the unperturbed one
            run = source.get(ORIGINAL, source.get(IN_PAIRS))
            probe_runs = ProbeRuns(source, items, **options)
        name = name or probe_runs.name  # "" stands for the name that the judge has itself
        runs[name] = run
        probing[name] = probe_runs
        methods.append(f"{name}: {_facts(home)}")

    # Runs on single responses have scores; runs on pairs have choices, with one probe
    if "score" in next(iter(runs.values())):
        battery = probes.battery(probing, probes=SCORE_PROBES)
        table = scores(runs, items=items, about=about)
        card = make_report(table, battery, methods, seed=seed, n_resamples=n_resamples)
    else:
        battery = probes.battery(probing, probes=PROBED["position"])
        card = make_report(choices(runs, items=items, about=about), battery, methods)
    return card.write(folder) if folder else card


def _by_name(judge: Judged, items: Items) -> dict[str, Any]:
    """Return each judge, or its runs by perturbation, under the judge's name.

    A run becomes a mapping with one entry, the unperturbed run. The name is "" where `judge` is not
    a mapping by judges' names.

    Raises:
        ValueError: a run is empty or without the columns of verdicts, or a judge has no items.
    """
    sources = {"": judge}
    # A mapping with an unperturbed run has the runs of one judge by perturbation
    if isinstance(judge, Mapping) and not {ORIGINAL, IN_PAIRS} & set(judge):
        sources = dict(judge)
    for name, source in sources.items():
        who = repr(name) if name else "the judge"
        if isinstance(source, DataFrame):
            if "id" not in source or not {"score", "verdict"} & set(source):
                raise ValueError(
                    f"{who}: a run has the columns id and score (of pairs verdict), not"
                    f" {list(source)}; a wide table of scores is for vj.scores(frame, judges=[...])"
                )
            if source.empty:
                raise ValueError(f"{who}: the run has no rows; give a run with verdicts")
            sources[name] = {ORIGINAL if "score" in source else IN_PAIRS: source}
        elif not isinstance(source, Mapping):
            if items is None or not isinstance(source, JudgeLike):
                raise ValueError(f"{who}: give a run with verdicts, or a judge with items to grade")
    return sources


def _graded(
    judge: JudgeLike,
    items: datasets.Dataset,
    home: Path | None,
    controls: int,
    options: Mapping[str, Any],
    grading: Mapping[str, Any],
) -> tuple[DataFrame, ProbeRuns]:
    """Grade all items, and prepare the controls on some of them.

    Args:
        judge, items: as for `report`.
        home: the folder of this judge's runs; None records nothing.
        controls: the largest number of items for controls.
        options, grading: options of `ProbeRuns` and of `Judge.grade`.

    Returns:
        The run on all items, and the runs of the controls, each graded when a probe needs it.
    """
    order = np.random.default_rng(options["seed"]).permutation(len(items))
    subset = items.select(sorted(order[:controls]))  # file order: neighbours share work
    has_pairs = "response_a" in items.column_names
    grade = judge.compare if has_pairs else judge.grade
    run = grade(items, out=home and home / "all", **grading)
    probe_runs = ProbeRuns(judge, subset, out=home, **options, **{**grading, "progress": False})
    # The unperturbed run of the controls is a part of the run on all items
    name = IN_PAIRS if has_pairs else ORIGINAL
    probe_runs.runs[name] = run[run["id"].isin(subset["id"])].reset_index(drop=True)
    return run, probe_runs


def _facts(home: Path | None) -> str:
    """Describe how a judge was asked by the manifest in its folder; say so where there is none."""
    if home is None or not (home / "all" / MANIFEST).is_file():
        return "the run does not record how it was asked"
    manifest = Run(home / "all").manifest
    facts = {name: manifest[name] for name in FACTS if manifest.get(name)} | manifest["decoding"]
    return "; ".join(f"{fact} {value}" for fact, value in facts.items())


# --- A card made of a table and a battery


def make_report(
    table: Scores | Choices,
    battery: Result | None = None,
    methods: Sequence[str] = (),
    **resampling: Any,
) -> Report:
    """Make the card of a table of scores or choices.

    Args:
        table: the verdicts of one judge or several.
        battery: the result of `probes.battery` for these judges; None leaves out its claims.
        methods: one sentence per judge, which says how its run was made.
        resampling: n_resamples, seed, confidence; used for scores alone.
    """
    if isinstance(table, Scores):
        results = Results(
            agreement=table.correlate(**resampling),
            raters=table.raters(**resampling),
            confusion=table.confusion(),
            calibration=table.calibration(**resampling),
        )
        try:
            _, truth = truth_of(table)
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
                verdict, sentence = _finding(claim, judge, table, results)
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


def _finding(claim: str, judge: str, table: Scores | Choices, results: Results) -> Finding:
    """Conclude on one claim about one judge.

    Args:
        claim: a key of `CLAIMS`.
        judge: the judge's name.
        table: the verdicts of all judges.
        results: the analyses of the table, and the battery of probes as "controls".

    Raises:
        NotComputed: nothing was measured.
    """
    if claim in PROBED:
        return _probe_finding(results.get("controls"), judge, PROBED[claim])
    if claim == "failures":
        return _failure_finding(table, judge)
    if claim == "calibration":
        if isinstance(table, Choices):
            raise NotComputed("a comparison of pairs has no scores")
        rows = _rows_of(results["calibration"], judge).set_index("measure")
        bias = readings.bounds(rows.loc["score less truth"])
        error = readings.bounds(rows.loc["absolute error"])
        text = f"The mean of score less truth is {bias} points; the mean absolute error is {error}"
        return "measured", text
    # the claim "agreement"
    rows = _rows_of(results["agreement"], judge).set_index("statistic")
    if isinstance(table, Choices):
        share = readings.bounds(rows.loc["with_ties"])
        return "measured", f"It chooses as people do in {share} of the pairs"
    pearson = rows.loc["pearson"]
    if np.isnan(pearson["estimate"]):
        raise NotComputed(f"no correlation: {readings.UNDEFINED}")
    _, truth = truth_of(table)
    return "measured", f"Pearson's r with {truth} is {readings.bounds(pearson)}"


def _rows_of(result: Result, judge: str) -> DataFrame:
    """Return the rows of one judge.

    Raises:
        NotComputed: there are none, which means that its scores have another scale.
    """
    rows = result.table[result.table["judge"] == judge]
    if rows.empty:
        raise NotComputed("its scores are on another scale than the truth")
    return rows


def _probe_finding(battery: Result | None, judge: str, names: list[str]) -> Finding:
    """Conclude on a claim from the probes that test it.

    - "fails": at least one test failed.
    - "undecided": none failed, and at least one had too few items.
    - "holds": all tests passed.
    - "measured": there are effects, but none has a test (its `must` is missing).

    The sentence states the largest effect of the rows that decided, such as the failed ones.

    Args:
        battery: the result of `probes.battery`; None where no probe was run.
        judge: the judge's name.
        names: the names of the probes.

    Raises:
        NotComputed: none of these probes was run.
    """
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
    undecided = tests[tests["passes"].isna()]
    if tests.empty:
        return "measured", _largest_effect(effects)
    if len(failed):
        return "fails", _largest_effect(failed)
    if len(undecided):
        need = "needs" if len(undecided) == 1 else "need"
        text = f"{len(undecided)} of {len(tests)} tests {need} more items"
        return "undecided", f"{text}: {_largest_effect(undecided)}"
    return "holds", _largest_effect(tests)


def _largest_effect(rows: DataFrame) -> str:
    """Return the sentence on the largest effect, with its interval."""
    # An undefined effect is taken for 0, so that any defined one is larger
    row = rows.loc[rows["effect"].abs().fillna(0).idxmax()]
    text = row["finding"] or f"{row['case']} is undefined"
    if row["verdict"] == "stays" and row["must"] == "stay":
        text += f", within the margin of {short(row['margin'])}"
    return text


def _failure_finding(table: Scores | Choices, judge: str) -> Finding:
    """Count the verdicts that are missing, by reason, and those that were closed.

    A verdict is closed where the answer held none, and the most probable one counts. The claim
    "holds" where no verdict is missing or closed; else it is "measured".
    """
    runs = table.verdicts
    if runs is None:  # a wide table tells no reasons
        missing = int(table.frame[judge].isna().sum())
        return "measured", f"{missing:,} of {len(table.frame):,} items have no verdict"
    run = runs[runs["judge"] == judge]
    is_missing = run["score"].isna() if "score" in run else ~run["verdict"].isin(CHOICES)
    closed = closed_in(run)
    if not is_missing.any():
        if closed:
            return "measured", f"{closed}, and no verdict is missing"
        return "holds", f"All {len(run):,} verdicts could be read"
    # `shares` takes a name, what each verdict adds to the share (0 or 1), and its weight
    rows = [("missing", is_missing.to_numpy(), np.ones(len(run)))]
    share = shares(rows, groups=groups_of(run), unit="verdicts").iloc[0]
    # The text before the colon is the package's; a model's words may follow it
    reasons = run.loc[is_missing].get("failure", pd.Series(dtype=str)).dropna()
    counts = reasons.astype(str).str.split(":").str[0].value_counts()
    listing = "; ".join(f"{reason}: {n:,}" for reason, n in counts.items())
    text = (
        f"{is_missing.sum():,} of {len(run):,} verdicts are missing"
        f" ({listing or 'no reason is given'}), a share of {readings.bounds(share)}, and left out"
        " of all other numbers"
    )
    return "measured", f"{text}; {closed}" if closed else text
