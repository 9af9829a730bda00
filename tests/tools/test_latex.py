"""`make latex`: what was saved compiles in articles of one and of two columns, and what overflows is said."""

import pandas as pd
import pytest

import latex
from vjudge import plots

NAMES = [r"100%_of & #1 {judge} $x$ ^~\ ", "模型", "[brackets]", "*stars*", "Größe", "a|b <c>"]


def test_faults_are_read_from_the_log_by_file():
    log = """vjudge-file a.tex
Overfull \\hbox (1.9pt too wide) in paragraph at lines 1--2
LaTeX Warning: File `a.pdf' not found on input line 4.
vjudge-file b.tex
Overfull \\hbox (16.5pt too wide) in paragraph at lines 1--2
! Undefined control sequence.
l.5 \\x
"""
    faults = [(fault.file, fault.kind) for fault in latex.faults_in(log, "acl")]
    assert faults == [("a.tex", "missing"), ("b.tex", "overfull"), ("b.tex", "error")]


def test_where_there_is_no_pdflatex_it_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setattr(latex.shutil, "which", lambda name: None)
    with pytest.raises(FileNotFoundError, match="apt-get install .*texlive-latex-extra"):
        latex.compile_folder(tmp_path, tmp_path / "out")


@pytest.mark.skipif(not latex.has_pdflatex(), reason="pdflatex is not installed")
def test_hostile_tables_and_figures_compile_in_one_and_two_columns(tmp_path):
    frame = pd.DataFrame({name: [0.5 - place] * 45 for place, name in enumerate(NAMES * 2)}.items())
    wide = pd.DataFrame(
        [[0.123] * 12] * 45, columns=[f"{name} {i}" for i, name in enumerate(NAMES * 2)]
    )
    wide.insert(0, "judge", (NAMES * 8)[:45])
    folder = tmp_path / "saved"
    caption = "5% of [all] & more. " * 20
    plots.save_table(wide, "wide", caption=caption, folder=folder)
    plots.save_table(frame.astype(str), "texts", caption="[a] 5%", folder=folder)
    folded = pd.DataFrame({"criterion": ["Is each thing named as it is? " * 5] * 25, "n": 3})
    plots.save_table(folded, "folded", caption="Items", folder=folder)
    rows = [[name, "[set] 5%", "pearson", 0.5, 0.4, 0.6, 9] for name in NAMES]
    columns = ["judge", "benchmark", "statistic", "estimate", "low", "high", "n"]
    table = pd.DataFrame(rows, columns=columns)
    plots.save_figure(plots.forest(table), "figure", caption=caption, data=table, folder=folder)
    faults = latex.compile_folder(folder, tmp_path / "out")
    assert faults.empty, faults.to_string()
    assert all((tmp_path / f"out/{venue}.pdf").stat().st_size > 10_000 for venue in latex.ARTICLES)

    (folder / "figure.pdf").unlink()
    (folder / "long.tex").write_text(r"\noindent\mbox{" + "x" * 200 + "}", encoding="utf-8")
    faults = latex.compile_folder(folder, tmp_path / "out")
    assert {"long.tex"} == set(faults[faults["kind"] == "overfull"]["file"])
    assert "figure.tex" in set(faults["file"])
