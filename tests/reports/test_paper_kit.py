"""The page holds all it shows, hostile text is escaped, and the paper's folder compiles at every venue."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import vjudge as vj
from vjudge.plots import VENUES, width
from vjudge.reports import Card
from vjudge.reports.methods import _sources
from vjudge.reports.page import to_html, to_pdf
from vjudge.reports.paper import write_paper

HOSTILE = "<script>alert(1)</script> 100%_of & #1 {judge} $x$ ^~\\ \u202e评 ρ"


@pytest.fixture(scope="module")
def run() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    gold = rng.integers(1, 6, 40)
    score = np.clip(gold + rng.integers(-1, 2, 40), 1, 5).astype(float)
    frame = pd.DataFrame(
        {"id": range(40), "judge": HOSTILE, "score": score, "gold": gold, "kind": ["a_b", "c & d"] * 20}
    )
    return frame.assign(human_scores=[[value, min(value + 1, 5)] for value in gold], failure=None)


@pytest.fixture(scope="module")
def card(run: pd.DataFrame) -> Card:
    failed = run.assign(score=run["score"].where(run.index > 0), failure=[HOSTILE] + [None] * 39)
    return vj.report(failed, by="kind", collection=HOSTILE, truth_name=HOSTILE, n_resamples=100, progress=False)


def parsed(folder: Path) -> str:
    """What pdflatex would read, checked: braces, environments, files and keys."""
    text = (folder / "main.tex").read_text(encoding="utf-8")
    for name in re.findall(r"\\input\{(.+?)\}", text):
        text = text.replace(rf"\input{{{name}}}", (folder / f"{name}.tex").read_text(encoding="utf-8"))
    lines = [line for line in text.splitlines() if not line.startswith("%")]
    bare = re.sub(r"\\textbackslash\{\}|\\[\\{}%&#$_]", "", "\n".join(lines))
    depth = np.cumsum([{"{": 1, "}": -1}.get(character, 0) for character in bare])
    assert depth.min() >= 0 and depth[-1] == 0
    assert re.findall(r"\\begin\{(\w+)\}", bare).__len__() == re.findall(r"\\end\{(\w+)\}", bare).__len__()
    for name in re.findall(r"\\includegraphics\{(.+?)\}", bare):
        assert (folder / f"{name}.pdf").is_file(), name
    keys = {key for keys in re.findall(r"\\cite\{(.+?)\}", bare) for key in keys.split(",")}
    entries = re.findall(r"@misc\{(\w+),", (folder / "references.bib").read_text(encoding="utf-8"))
    assert keys <= set(entries) and len(entries) == len(set(entries)) and keys
    for line in re.sub(r"(?s).*\\begin\{document\}", "", bare).splitlines():  # of specials, only a table's & is left
        assert not re.search(
            r"[#$%]", line.replace("$-$", "").replace(r"$r$", "").replace(r"$\rho$", "").replace(r"$\tau$", "")
        ), line
    return text


@pytest.mark.parametrize("venue", VENUES)
def test_the_folder_of_a_paper_is_whole_at_every_venue(run: pd.DataFrame, venue: str, tmp_path: Path) -> None:
    card = vj.report(run, venue=venue, n_resamples=50, progress=False)
    write_paper(card, tmp_path)
    text = parsed(tmp_path)
    assert f"textwidth={width(venue, 'full'):.2f}in" in text
    assert [picture.name for picture in card.pictures] == ["agreement", "scores", "calibration"]
    for picture in card.pictures:
        assert picture.figure.get_figwidth() == pytest.approx(width(venue, picture.column))


@pytest.mark.skipif(
    shutil.which("pdflatex") is None, reason="pdflatex is not installed; the parsed folder is checked above"
)
def test_main_tex_compiles_whatever_names_hold(card: Card, tmp_path: Path) -> None:
    write_paper(card, tmp_path)
    latex = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "main.tex"]
    unbroken = {**os.environ, "max_print_line": "1000"}
    for command in (latex, ["bibtex", "main"], latex, latex):
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, timeout=120, env=unbroken)
        assert done.returncode == 0, done.stdout[-2000:].decode("utf-8", "replace")
    log = (tmp_path / "main.log").read_text(encoding="utf-8", errors="replace")
    assert "(./tables/agreement.tex)" in log and "(./tables/card.tex)" in log, "a table wider than the page is said"
    assert "undefined" not in log.lower() and (tmp_path / "main.pdf").stat().st_size > 20_000


def test_hostile_names_are_text_on_the_page_and_in_the_paper(card: Card, tmp_path: Path) -> None:
    paths = card.write(tmp_path)
    page = paths["html"].read_text(encoding="utf-8")
    assert "<script" not in page and "&lt;script&gt;alert(1)" in page and "\u202e" not in page
    assert re.findall(r"<img[^>]*src=\"(?!data:image/svg)", page) == []
    assert "<script" not in card._repr_html_() and 'sandbox=""' in card._repr_html_()
    text = parsed(paths["paper"])
    assert r"100\%\_of \& \#1 \{judge\} \$x\$" in text
    assert paths["html"].stat().st_size < 600_000 and paths["pdf"].stat().st_size < 600_000
    assert to_html(card) == page  # the same bytes
    to_pdf(card, tmp_path / "again.pdf")
    assert (tmp_path / "again.pdf").read_bytes() == paths["pdf"].read_bytes()


def test_a_citation_is_an_entry_whatever_it_is() -> None:
    sources: dict[str, str] = {}
    keys = _sources(
        sources,
        "Chen et al. 2024, MLLM-as-a-Judge, arXiv 2402.04788; Kumar et al. 2026, arXiv 2604.25235; {my} 100% own",
    )
    assert keys == ("chen24", "kumar26", "source3")
    assert "author = {Chen and others}" in sources["chen24"] and "{MLLM-as-a-Judge}" in sources["chen24"]
    assert sources["source3"].count("{") == sources["source3"].count("}") and r"100\%" in sources["source3"]
