"""Files: the venue's width, the same bytes twice, captions that account for what is drawn, tables safe to open."""

from __future__ import annotations

import csv
import re

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from gallery import FIGURES, NAMES, correlations, pearson, run
from PIL import Image

from vjudge import metrics, plots

CAPTION = "Scores of a made-up judge."


def test_files_are_the_same_bytes_twice_and_the_venues_width(tmp_path, recwarn):
    written = []
    for folder in ("one", "two"):
        with plt.rc_context(
            {"font.size": 20, "savefig.bbox": "tight", "pdf.fonttype": 3, "svg.fonttype": "path"}
        ):
            fig = FIGURES["heatmap"](3, {"venue": "neurips", "column": "half"})
            paths = plots.save_figure(
                fig, "name", caption=CAPTION, data=pearson(2), folder=tmp_path / folder
            )
        written.append({ending: path.read_bytes() for ending, path in paths.items()})
    assert set(written[0]) == {"pdf", "svg", "png", "txt", "csv"} and written[0] == written[1]
    with Image.open(paths["png"]) as picture:
        assert abs(picture.width - 2.64 * 300) < 1.01  # matplotlib releases round differently
    box = re.search(rb"/MediaBox \[ 0 0 ([\d.]+) ", written[0]["pdf"])
    assert float(box[1]) == pytest.approx(2.64 * 72, abs=0.01)
    assert b"/Type3" not in written[0]["pdf"] and b"/FontFile2" in written[0]["pdf"]
    assert b"CreationDate" not in written[0]["pdf"] and b"<text" in written[0]["svg"]
    pd.testing.assert_frame_equal(pd.read_csv(paths["csv"]), pearson(2))
    assert not recwarn and not plt.get_fignums()


def test_the_figures_own_account_is_part_of_its_caption(tmp_path):
    fig = plots.confusion(run(1, means=True), truth_name="mean of three people")
    path = plots.save_figure(fig, "one", caption=CAPTION, data=run(1), folder=tmp_path)["txt"]
    text = path.read_text()
    assert text.startswith("Scores of a made-up judge. 117 of 120 verdicts; 3 without a score. ")
    assert "drawn at the nearer" in text and "true score" not in text and text.count("117") == 1


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("../up", {}, "no file name"),
        ("ok", {"caption": " "}, "no caption"),
        ("ok", {"venue": "x"}, "unknown venue"),
        ("ok", {}, "too small"),
    ],
)
def test_save_figure_refuses_before_it_writes(name, options, message, tmp_path):
    fig = plots.length_by_score(run(1))
    fig.axes[0].text(3, 3, "too small", fontsize=5)
    with pytest.raises(ValueError, match=message):
        plots.save_figure(
            fig, name, **{"caption": CAPTION, "data": run(1), "folder": tmp_path, **options}
        )
    assert not list(tmp_path.iterdir())


def test_captions_are_read_from_what_was_computed():
    frame = run(1)
    table = metrics.correlate(frame["score"], frame["gold"], n_resamples=50, seed=7)
    fewer = metrics.correlate(frame["score"][:90], frame["gold"][:90], n_resamples=1000, seed=7)
    text = plots.caption("95 % of them", table, table)
    assert text.startswith("95% of them. 95%") and text.count("resamples") == 1 and "seed 7" in text
    assert plots.caption("Shown", table).endswith("3 items without a score or verdict left out.")
    assert "50 to 1,000 resamples of 88 to 117 items, seed 7" in plots.caption(
        "Shown", table, fewer
    )
    ties = metrics.feedback_preference(["left"] * 5 + ["both good"] * 7 + [None])
    assert "7 items" not in plots.caption("Shown", ties) and "1 item without" in plots.caption(
        "Shown", ties
    )
    with pytest.raises(ValueError, match=r"tables \[1\]"):
        plots.caption("Shown", table, pd.DataFrame({"a": [1]}))


def test_table_is_escaped_and_complete(tmp_path):
    index = pd.Index(["tiny_1", r"\input{x}"], name="judge_name")
    frame = pd.DataFrame(
        {"r & co": [1 / 3, np.nan], "note": ["50% #1", "{~^}"], "list": [["a_b"], ["$"]]},
        index=index,
    )
    paths = plots.save_table(
        frame.assign(n=[3, 4]), "main", caption="95% intervals & more", folder=tmp_path
    )
    latex = paths["tex"].read_text()
    for part in (r"\toprule", r"r \& co", "0.333", " -- ", r"tiny\_1", r"50\% \#1", r"judge\_name", r"\label{tab:main}",
                 r"['a\_b']", r"['\$']", " & 3 ", r"\caption{95\% intervals \& more}"):  # fmt: skip
        assert part in latex, part
    assert r"\input" not in latex


def test_a_spreadsheet_runs_no_cell(tmp_path):
    frame = pd.DataFrame(
        {"=1+1": ["=HYPERLINK(1)", "+1", "-x", "@f", "-0.5", "a=b"], "n": [-1, 2, 3, 4, 5, 6]}
    )
    read = pd.read_csv(plots.save_table(frame, "t", caption="A.", folder=tmp_path)["csv"])
    assert list(read.columns) == ["'=1+1", "n"] and read["n"].tolist() == frame["n"].tolist()
    assert read["'=1+1"].tolist() == ["'=HYPERLINK(1)", "+1", "'-x", "'@f", "-0.5", "a=b"]
    notes = ["good\r=1+1", "\uff1d1+1", "  =1", "\n=1", "\r=1", "a, b", "", 'say "no"']
    path = plots.save_table(pd.DataFrame({"note": notes}), "n", caption="A.", folder=tmp_path)[
        "csv"
    ]
    with open(path, encoding="utf-8", newline="") as file:
        written = [cell for (cell,) in csv.reader(file)][1:]
    assert written == [notes[0], *["'" + note for note in notes[1:5]], *notes[5:]]


def test_the_judges_table_marks_the_best_and_rules_off_people(tmp_path):
    table = correlations(3, 2)
    paths = plots.save_correlations(
        table, "judges", caption="Pearson, Spearman, Kendall.", folder=tmp_path
    )
    latex = paths["tex"].read_text()
    rows = {line.split(" & ")[0]: line for line in latex.split("\n") if " & " in line}
    assert (
        r"\multicolumn{3}{c}{LLaVA-Bench}" in latex
        and r"$\rho$" in latex
        and latex.count(r"\textbf") == 6
    )
    assert (
        latex.index(rows["people"]) > latex.rindex(r"\midrule") and "textbf" not in rows["people"]
    )
    assert rows[NAMES[1]].count("--") == 3
    pd.testing.assert_frame_equal(pd.read_csv(paths["csv"]), table)


def test_a_p_value_is_never_zero_in_a_table(tmp_path):
    frame = pd.DataFrame({"p": [0.0004, 0.2], "p_holm": [1e-9, np.nan], "part": [0.0001, 1.0]})
    latex = plots.save_table(frame, "p", caption="A.", folder=tmp_path)["tex"].read_text()
    assert "$<$0.001 & $<$0.001 & 0.000" in latex and "0.200 & -- & 1.000" in latex


@pytest.mark.parametrize(
    ("venue", "columns", "begin", "size"),
    [
        ("acl", 3, "table", ""),
        ("acl", 8, "table*", ""),
        ("neurips", 8, "table", ""),
        ("neurips", 12, "table", "footnotesize"),
        ("eccv", 11, "table", "scriptsize"),
    ],
)
def test_a_table_takes_the_type_that_its_venue_needs(venue, columns, begin, size, tmp_path):
    frame = pd.DataFrame({f"col{place}": [0.5] for place in range(columns)})
    options = {"caption": "A.", "folder": tmp_path, "venue": venue}
    lines = plots.save_table(frame, "t", **options)["tex"].read_text().split("\n")
    assert lines[0] == rf"\begin{{{begin}}}[t]" and lines[-2] == rf"\end{{{begin}}}"
    assert lines[4].strip("\\") == (size if size else "begin{tabular}{" + "r" * columns + "}")


def test_a_table_that_no_page_holds_is_written_with_a_warning(tmp_path):
    frame = pd.DataFrame({f"column {place}": [0.5] for place in range(30)})
    with pytest.warns(UserWarning, match="'t' is wider than the page of acl"):
        plots.save_table(frame, "t", caption="A.", folder=tmp_path)


def test_benchmarks_that_do_not_fit_side_by_side_stand_in_blocks(tmp_path):
    one = correlations(3, 4)
    table = pd.concat([one, one.assign(benchmark=one["benchmark"] + " 2")], ignore_index=True)
    path = plots.save_correlations(table, "j", caption="A.", folder=tmp_path, venue="neurips")[
        "tex"
    ]
    latex = path.read_text()
    assert latex.count(r"\begin{tabular}") > 1 == latex.count(r"\begin{table}")
    assert latex.count(r"\multicolumn{3}") == 8 and latex.count(r"\textbf") == 24
