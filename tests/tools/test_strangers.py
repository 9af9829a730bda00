"""Whoever sets COLLECTION to a file of theirs gets each section that applies, and one line for each that does not.

A selection runs here: every notebook that analyses a collection, and both kinds of venue.
`make strangers` runs each of them on every kind at a venue of one column and at one of two.
"""

import itertools
import os

import pytest
from PIL import Image

from strangers.kinds import KINDS, write
from strangers.running import FOLDER, kernel, lines_of
from vjudge import plots

WHOLE = bool(os.environ.get("VJUDGE_STRANGERS"))  # every notebook on every kind at every venue
VENUES = ("neurips", "acl")  # of one column, and of two
COVER = """\
01_inspect_data pairs neurips
01_inspect_data table neurips
01_inspect_data long acl
01_inspect_data saved acl
03_correlation no_reference neurips
03_correlation few acl
04_length_bias from_0 acl
05_review_feedback raters neurips
"""
COVER = [line.split() for line in COVER.splitlines()]
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
CELLS = list(itertools.product(SECTIONS, KINDS, VENUES))
SHIPPED = FOLDER.parent / "figures"


@pytest.fixture(scope="module")
def running():
    with kernel() as process:
        yield process


@pytest.mark.parametrize(("name", "kind", "venue"), CELLS if WHOLE else COVER)
def test_every_section_runs_or_says_why_not(name, kind, venue, running, tmp_path):
    before = {path: path.stat().st_mtime_ns for path in SHIPPED.iterdir()}
    (tmp_path / "data").mkdir()
    data = write(kind, tmp_path / "data")
    parameters = {"COLLECTION": data, "LIMIT": 30, "SAMPLES": 3, "VENUE": venue}
    lines = lines_of(running.run(name, parameters, tmp_path))
    skipped = [line for line in lines if line.startswith("Not computed")]
    drawn = {path.stem: path for path in (tmp_path / "figures").glob("*.png")}
    if kind not in ("pairs", "unscored"):
        absent = SECTIONS[name] - set(drawn)
        assert not absent, skipped
    assert all(line.endswith((".", ":")) and len(line) < 400 for line in skipped), skipped
    if kind == "raters" and name == "03_correlation":
        texts = [path.read_text(encoding="utf-8") for path in (tmp_path / "figures").glob("*.txt")]
        assert "the mean of 3 people" in " ".join(texts)
    widths = {round(300 * getattr(plots.VENUES[venue], column)) for column in ("half", "full")}
    for path in drawn.values():
        assert any(abs(Image.open(path).width - width) <= 1 for width in widths), path.name
    assert before == {path: path.stat().st_mtime_ns for path in SHIPPED.iterdir()}, (
        "the shipped figures stay"
    )
    print(f"{name} on {kind} for {venue}: {len(skipped)} skipped")


def test_the_selection_covers_every_notebook_and_venue():
    names, kinds, venues = map(set, zip(*COVER, strict=True))
    assert names == set(SECTIONS) and kinds <= set(KINDS) and venues == set(VENUES)
