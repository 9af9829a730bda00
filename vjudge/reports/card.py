"""A judge's report card: its parts, each a question with its numbers and the one sentence that follows."""

from __future__ import annotations

import html
import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
from matplotlib.figure import Figure

from vjudge import plots
from vjudge.metrics._tables import format_interval
from vjudge.reports.evidence import Request, gather

COLUMNS = ("measure", "estimate", "low", "high", "unit", "n", "p_holm", "reading")
STATES = ("against", "open", "sound", "described")


@dataclass
class Part:
    """One question of a card.

    Args:
        name, question: of the part.
        table: its numbers, columns `COLUMNS`.
        sentence: what follows from them.
        state: "against" where a test corrected by Holm's method says that something is not as it must be, "open" where
            none can say, "sound" where all is as it must be, "described" where nothing must be.
    """

    name: str
    question: str
    table: pd.DataFrame
    sentence: str
    state: str = "described"


class Picture(NamedTuple):
    """A figure of a card at the venue's width, its caption and its data."""

    name: str
    figure: Figure
    caption: str
    data: pd.DataFrame
    column: str = "half"


@dataclass
class Card:
    """A judge's report card.

    Args:
        judge, collection, truth: names; counts: of items, groups and verdicts.
        parts: what was measured; absent: what was not, each with the reason.
        remarks: what to know before a number is printed.
        pictures: the figures; tables: for a paper, "agreement" as `metrics.correlation_table` has it.
        methods: sentences, each with the keys of what it cites; sources: what is cited by key, see `paper.SOURCES`.
        venue: whose width figures have.
    """

    judge: str
    collection: str
    truth: str
    counts: dict[str, int]
    parts: list[Part] = field(default_factory=list)
    absent: list[tuple[str, str]] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    pictures: list[Picture] = field(default_factory=list)
    tables: dict[str, pd.DataFrame] = field(default_factory=dict)
    methods: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)
    sources: dict[str, str] = field(default_factory=dict)
    venue: str = "acl"

    @property
    def table(self) -> pd.DataFrame:
        """All numbers of the card, with the part that each belongs to."""
        frames = [part.table.assign(part=part.name, state=part.state) for part in self.parts]
        return pd.concat(frames, ignore_index=True)[["part", *COLUMNS, "state"]]

    def write(self, folder: str | Path) -> dict[str, Path]:
        """Write the card (report.html, report.pdf) and the folder for a paper (paper/); the same bytes every time.

        Returns:
            The path of each by its name.
        """
        from vjudge.reports.page import to_html, to_pdf
        from vjudge.reports.paper import write_paper

        home = Path(folder)
        home.mkdir(parents=True, exist_ok=True)
        (home / "report.html").write_text(to_html(self), encoding="utf-8")
        to_pdf(self, home / "report.pdf")
        write_paper(self, home / "paper")
        return {"html": home / "report.html", "pdf": home / "report.pdf", "paper": home / "paper"}

    def _repr_html_(self) -> str:
        from vjudge.reports.page import to_html

        # A frame of its own: a notebook's styles and the card's leave one another alone.
        page = html.escape(to_html(self), quote=True)
        return f'<iframe srcdoc="{page}" sandbox="" style="width:100%;height:900px;border:1px solid #ddd"></iframe>'


def report(
    judge: Any,
    items: Any = None,
    *,
    truth: Any = None,
    truth_name: str | None = None,
    score: str = "score",
    by: str | None = None,
    pairs: Any = None,
    venue: str = "acl",
    out: str | Path | None = None,
    controls: int | None = 200,
    samples: int = 4,
    gold: str = "observed",
    manifest: Any = None,
    name: str | None = None,
    collection: str | None = None,
    confidence: float = 0.95,
    n_resamples: int = 2_000,
    seed: int = 0,
    progress: bool = True,
    **grading: Any,
) -> Card:
    """Make a judge's report card: agreement under the human ceiling, its biases, failures, calibration and cost.

    Args:
        judge: a judge, which then grades the items and the controls, after the cost is said on one line; or a run that
            `Judge.grade` or `Judge.compare` returned; a frame of `load_verdicts` or of one's own, with `score` naming
            the judge's column; or runs by name, as `probes.Trials` has them: "original", the perturbations, "sampled",
            "compared". Further runs in the mapping are other judges, who stand beside this one in the paper's table.
        items: what was graded, or is to be.
        truth: what scores are held against: None for gold, else the mean of people; a column of the run or the items;
            or values, a Series by id or one a verdict. truth_name: what captions call it.
        score: the judge's column, "score", "expected_score", or of a frame of verdicts the judge's name.
        by: a column of the run; agreement is then given for each of its values too.
        pairs: for the order of two responses; None makes them of the items.
        venue: of the paper's figures, one of `plots.VENUES`.
        out: a folder. The card and the paper's folder are written there; runs are kept in its `runs`, so that the same
            call continues after an interruption. None writes nothing.
        controls: the most items that controls are graded on, in whole groups drawn at random; None for all, 0 for none.
        samples: verdicts an item for consistency.
        gold: "observed", "exact" or "rated", see `probes.Trials`.
        manifest: of a run that is given: its folder, or the manifest itself; a run that is graded has its own.
        name, collection: what the card calls the judge and the items; None takes the names they came with.
        confidence, n_resamples, seed: of intervals, resampling and draws.
        progress: whether to say the cost and show progress.
        grading: further options of `Judge.grade`: mode, batch_size and so on.

    Returns:
        The card. It shows itself in a notebook; `table` has its numbers, `absent` what could not be measured and why;
        `write(folder)` writes it.

    Raises:
        ValueError: there is no verdict, or no such column, truth or venue; as `Judge.grade` where it grades.

    Source: Mitchell et al., "Model Cards for Model Reporting", FAT* 2019, for what a card is.

    >>> import vjudge as vj
    >>> items = vj.load_collection("scenes", split="test", limit=20)
    >>> run = vj.load_judge("tiny", device="cpu").grade(items, mode="score", progress=False)
    >>> card = vj.report(run, n_resamples=200)  # or vj.report(judge, items), which grades the controls too
    >>> [part.name for part in card.parts]
    ['agreement', 'failures', 'calibration', 'cost']
    >>> card.absent[0]
    ('human ceiling', 'nobody rated the items twice: no ratings of people')
    """
    from vjudge.reports.parts import measure

    plots.width(venue, "half")
    place = None if out is None else Path(out)
    with warnings.catch_warnings(record=True) as alerts:
        warnings.simplefilter("always")
        warnings.filterwarnings("ignore", "constrained_layout")  # of a figure that shows as much itself
        call = Request(score, truth, truth_name, pairs, place, controls, samples, manifest, name, collection, progress)
        probing = dict(gold=gold, confidence=confidence, seed=seed)
        evidence = gather(judge, items, call, probing=probing, grading=grading)
        card = measure(evidence, by, venue, dict(confidence=confidence, n_resamples=n_resamples, seed=seed))
    texts = [str(alert.message) for alert in alerts if issubclass(alert.category, (UserWarning, RuntimeWarning))]
    card.remarks += {re.sub(r"\d+", "", text): text for text in texts}.values()  # once, whatever its numbers
    if place is not None:
        card.write(place)
    return card


def tally(parts: Sequence[Part]) -> dict[str, int]:
    """How many parts are in each state."""
    return {state: sum(part.state == state for part in parts) for state in STATES}


def the(truth: str) -> str:
    """A truth's name in a sentence."""
    return f"the {truth}" if truth.startswith("mean of") else truth


def ways(table: pd.DataFrame) -> list[pd.DataFrame]:
    """How each of a table's numbers was made, apart, so that `plots.caption` says once what they share."""
    texts = re.findall(r"\d+% bootstrap .+?seed \d+", table.attrs["method"]) or [table.attrs["method"]]
    frames = [pd.DataFrame() for _ in texts]
    for frame, text in zip(frames, texts, strict=True):
        frame.attrs["method"] = text
    return frames


def interval_text(line: Any) -> str:
    """An estimate and its bounds as the card prints them."""
    estimate, low, high = (float(line[name]) for name in ("estimate", "low", "high"))
    return format_interval(estimate, low, high).replace("-", "\N{MINUS SIGN}")
