"""Whoever sets COLLECTION to a file of theirs gets each section that applies, and one line for each that does not.

A selection runs here: every notebook that analyses a collection, and both kinds of venue.
`make strangers` runs each of them on every kind at a venue of one column and at one of two.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from PIL import Image

from strangers.kinds import KINDS, write
from strangers.running import FOLDER, Kernel, kernel, lines_of
from vjudge import plots

WHOLE = bool(os.environ.get("VJUDGE_STRANGERS"))  # every notebook on every kind at every venue
VENUES = ("neurips", "acl")  # of one column, and of two
COVER = [
    (name, kind, venue)
    for name, venue, kinds in (
        ("01_inspect_data", "neurips", ("pairs", "table")),
        ("01_inspect_data", "acl", ("long", "saved")),
        ("03_correlation", "neurips", ("raters",)),
        ("03_correlation", "acl", ("from_0",)),
        ("04_length_bias", "acl", ("few",)),
        ("05_review_feedback", "neurips", ("no_reference",)),
    )
    for kind in kinds
]
SECTIONS = {
    "01_inspect_data": {"inspect_length"},
    "03_correlation": {
        f"correlation_{name}" for name in ("judges", "rivals", "confusion", "calibration")
    },
    "04_length_bias": {
        f"length_{name}" for name in ("balance", "planted", "scatter", "padding", "battery_effects")
    },
    "05_review_feedback": {"review_agreement", "review_preference"},
}
"""Figures of the sections that apply to whatever people scored."""
NOTEBOOKS = list(SECTIONS)
CELLS = [(name, kind, venue) for name in NOTEBOOKS for kind in KINDS for venue in VENUES]
SHIPPED = FOLDER.parent / "figures"


@pytest.fixture(scope="module")
def running() -> Iterator[Kernel]:
    with kernel() as process:
        yield process


@pytest.mark.parametrize(("name", "kind", "venue"), CELLS if WHOLE else COVER)
def test_every_section_runs_or_says_why_not(name, kind, venue, running, tmp_path):
    before = {path: path.stat().st_mtime_ns for path in SHIPPED.iterdir()}
    (tmp_path / "data").mkdir()
    data = write(kind, tmp_path / "data")
    parameters = {"COLLECTION": data, "LIMIT": 30, "SAMPLES": 3, "VENUE": venue}
    lines = lines_of(running.run(name, parameters, tmp_path))
    skipped = [line for line in lines if line.startswith("Skipped")]
    drawn = {path.stem: path for path in (tmp_path / "figures").glob("*.png")}
    if kind not in ("pairs", "unscored"):
        absent = SECTIONS[name] - set(drawn)
        absent -= (
            {"length_battery_effects"}
            if any("nothing to draw" in line for line in skipped)
            else set()
        )
        assert not absent, skipped
    assert all(line.endswith((".", ":")) and len(line) < 300 for line in skipped), skipped
    if kind == "raters":
        captions = " ".join(
            path.read_text(encoding="utf-8") for path in (tmp_path / "figures").glob("*.txt")
        )
        assert "mean of 3 raters" in captions and "true score" not in captions.lower().replace(
            "equal true score", ""
        )
    widths = {round(300 * getattr(plots.VENUES[venue], column)) for column in ("half", "full")}
    for path in drawn.values():
        assert any(abs(Image.open(path).width - width) <= 1 for width in widths), path.name
    assert before == {path: path.stat().st_mtime_ns for path in SHIPPED.iterdir()}, (
        "the shipped figures stay"
    )
    print(f"{name} on {kind} for {venue}: {len(skipped)} skipped")


def test_the_selection_covers_every_notebook_and_venue():
    assert {kind for _, kind, _ in COVER} <= set(KINDS)
    assert {venue for *_, venue in COVER} == set(VENUES)
    assert {name for name, *_ in COVER} == set(NOTEBOOKS)
