"""Files: the venue's width, the same bytes twice, captions that account for what is drawn, tables safe to open."""

import csv

import matplotlib.pyplot as plt
import pandas as pd
import pytest
from gallery import correlations, pearson, run
from numpy import nan
from PIL import Image

from vjudge import plots
from vjudge.plots.escaping import latex as escaped
from vjudge.plots.latex import table_latex

CAPTION = "Scores of a made-up judge."


def test_files_are_the_same_bytes_twice_and_the_venues_width(tmp_path):
    written = []
    own = {"font.size": 20, "savefig.bbox": "tight", "pdf.fonttype": 3, "svg.fonttype": "path"}
    for folder in (tmp_path / "one", tmp_path / "two"):
        with plt.rc_context(own):
            fig = plots.heatmap(pearson(3, 4), venue="neurips", column="half")
            paths = plots.save_figure(fig, "name", caption=CAPTION, data=pearson(2), folder=folder)
        written.append({ending: path.read_bytes() for ending, path in paths.items()})
    assert (
        set(written[0]) == {"pdf", "svg", "png", "tex", "txt", "csv"} and written[0] == written[1]
    )
    with Image.open(paths["png"]) as picture:
        assert picture.width == pytest.approx(2.64 * 300, abs=1)
    assert b"/Type3" not in written[0]["pdf"] and b"/FontFile2" in written[0]["pdf"]
    assert b"<text" in written[0]["svg"]
    pd.testing.assert_frame_equal(pd.read_csv(paths["csv"]), pearson(2))
    text = paths["txt"].read_text()
    assert text.startswith(f"{CAPTION} n = 280 to 300, up to 4 missing. Bold: the best")


def test_save_figure_refuses_before_it_writes(tmp_path):
    for name, text, message in (("../up", CAPTION, "no file name"), ("ok", " ", "no caption")):
        with pytest.raises(ValueError, match=message):
            plots.save_figure(plt.Figure(), name, caption=text, data=run(1), folder=tmp_path)
    assert not list(tmp_path.iterdir())


def test_table_is_escaped_and_complete(tmp_path):
    frame = pd.DataFrame(
        {
            "judge_name": ["tiny_1", r"\input{x}"],
            "r & co": [1 / 3, nan],
            "note": ["50% #1", "{~^}"],
            "list": [["a_b"], ["$"]],
            "n": [3, 4],
            "p_holm": [1e-9, 0.2],
            "low": [-0.5, 0.0],
        }
    ).set_index("judge_name")
    paths = plots.save_table(frame, "main", caption="95% intervals & more", folder=tmp_path)
    latex = paths["tex"].read_text()
    parts = [r"\toprule", r"r \& co", "0.333", " -- ", r"tiny\_1", r"50\% \#1", "judge name"]
    parts += [r"\label{tab:main}", r"['a\_b']", " & 3 ", r"\caption{95\% intervals \& more}"]
    for part in [*parts, "$<$ .001", "$-$0.500", "max width"]:
        assert part in latex, part
    assert r"\input" not in latex


def test_a_spreadsheet_runs_no_cell(tmp_path):
    bad = ["=HYPERLINK(1)", "\uff1d1+1", "  =1", "\n=1", "\r=1"]
    good = ["good\r=1+1", "a, b", "", 'a="no"']
    frame = pd.DataFrame({"=1+1": bad + good, "n": range(-1, 8)})
    path = plots.save_table(frame, "t", caption="A.", folder=tmp_path)["csv"]
    with open(path, encoding="utf-8", newline="") as file:
        written = list(csv.reader(file))
    assert written[0] == ["'=1+1", "n"] and written[1][1] == "-1"
    safe = ["'" + note for note in bad] + good
    assert [row[0] for row in written[1:]] == safe


def test_a_wide_table_stands_across_both_columns_where_there_are_two(tmp_path):
    table = correlations(3, 2)
    for venue, begin in (("acl", "table*"), ("neurips", "table")):
        paths = plots.save_table(table, "all", caption="All.", folder=tmp_path, venue=venue)
        latex = paths["tex"].read_text()
        assert rf"\begin{{{begin}}}[t]" in latex and rf"\end{{{begin}}}" in latex
        assert "adjustbox" in latex[:70]


HOSTILE = {
    r"100%_of & #1 {j} $x$ ^~\\": r"100\%\_of \& \#1 \{j\} \$x\$ \textasciicircum{}\textasciitilde{}",
    "[brackets]": "{}[brackets]",  # else an option of the line break that ends the row above
    "*stars*": "{}*stars*",
    "p < .001 | x > 2": "p $<$ .001 $|$ x $>$ 2",  # OT1 prints other signs for these
    "-0.5": "$-$0.5",
    "Größe-é-ł": "Größe-é-ł",
    "模型": "MoXing",
    "Модель": "Model'",
    "ŧ": "t",  # no T1 font has it
    "a ≥ b ≤ c": r"a $\ge$ b $\le$ c",
}


@pytest.mark.parametrize(("text", "printed"), HOSTILE.items())
def test_latex_prints_what_a_name_says(text, printed):
    assert printed in escaped(text) and escaped(text).startswith(printed[:2])


def test_a_rows_first_cell_is_no_option_and_other_scripts_are_said_to_be_transliterated():
    frame = pd.DataFrame({"judge": ["[a]", "*b"], "n": [1234.0, nan]})
    latex = table_latex(frame, "t", caption="[All] 5%")
    assert (
        "{}[a] & 1,234 \\\\\n{}*b & -- \\\\\n" in latex and r"\caption{{}[All] 5\%.}" not in latex
    )
    assert r"\caption{{}[All] 5\%}" in latex and r"\begin{tabular}{lr}" in latex
    latex = table_latex(frame.assign(judge=["模型", "b"]), "t", caption="All")
    assert r"\caption{All. Names in other scripts are transliterated.}" in latex


def test_long_tables_are_parts_with_labels_of_their_own_and_long_texts_are_folded():
    frame = pd.DataFrame({"note": ["word " * 30] * 81, "x": [-0.5] * 81})
    latex = table_latex(frame, "t", caption="All")
    assert latex.count(r"\caption{All}") == 1 and latex.count("(Continued.)") == 8
    assert all(rf"\label{{tab:t{part}}}" in latex for part in ("", "-2", "-9"))
    # a text of 150 characters takes four lines, of which a page holds forty
    assert latex.count(r"\begin{tabular}{p{.5\linewidth}r}") == 9
    assert latex.count("word word") >= 81
    short = table_latex(frame.assign(note="word"), "t", caption="All")
    assert short.count("(Continued.)") == 2 and short.count("$-$0.5") == 81


def test_columns_of_one_head_stay_two():
    frame = pd.DataFrame({"judge": ["x", "y"], "r_1": [0.1, 0.2], "r 1": [0.3, 0.4]})
    latex = table_latex(frame, "t", caption="All")
    assert r"y & 0.200 & 0.400 \\" in latex
    assert "judge & r 1 & r 1" in latex


def test_a_few_columns_of_long_names_span_both_columns():
    frame = pd.DataFrame(
        {"judge": ["a-long-name-of-a-model-of-some-place/with-its-version-90B"], "n": 3}
    )
    assert r"\begin{table*}" in table_latex(frame, "t", caption="All")
    assert r"\begin{table}" in table_latex(frame.assign(judge="tiny"), "t", caption="All")


def test_a_saved_figure_is_no_higher_than_its_page_and_names_no_folder(tmp_path):
    fig = plots.heatmap(pearson(3, 4))
    path = plots.save_figure(fig, "f", caption="5% [a]", data=pearson(2), folder=tmp_path)["tex"]
    latex = path.read_text()
    assert r"height=.75\textheight,keepaspectratio]{f.pdf}" in latex
    assert r"\caption{5\% [a]. n =" in latex and r"\label{fig:f}" in latex
    assert str(tmp_path) not in latex
