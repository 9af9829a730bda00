"""A result shows, saves and refuses: its numbers, its words, and none of either where nothing was computed."""

import warnings

import matplotlib.pyplot as plt
import pandas as pd
import pytest
from IPython.core.interactiveshell import InteractiveShell
from PIL import Image

import vjudge as vj
from vjudge import plots
from vjudge.results import Result, Results, analysis, escape_markdown, png

TABLE = pd.DataFrame(
    {"judge": ["a_<b>", "c"], "estimate": [0.5, 0.25], "low": [0.4, 0.1], "high": [0.6, 0.4]}
)


def forest(**look):
    return plots.forest(TABLE, **look)


def result(**changes):
    table = TABLE.copy()
    table.attrs = {"method": "95% intervals", "caveats": ["few items"]}
    given = {"name": "two", "reading": "a_<b> is 50 %.", "caption": "Two judges", "plot": forest}
    return Result(table, **{**given, **changes})


def test_a_cell_shows_figure_table_reading_and_caveats_and_no_markup_of_data():
    kinds = [data for data, _ in result()._bundles()]
    assert [next(iter(data)) for data in kinds] == ["image/png", "text/html", "text/plain"]
    assert kinds[0]["image/png"].startswith(b"\x89PNG")
    html = kinds[1]["text/html"]
    assert "a_&lt;b&gt;" in html and "<b>" not in html and "0.500" in html
    assert "few items." in kinds[2]["text/markdown"] and "<b>" not in kinds[2]["text/markdown"]
    assert "50 %" in kinds[2]["text/plain"]


def test_a_notebook_cell_displays_it(capsys):
    shell = InteractiveShell.instance()
    shell.user_ns["shown"] = result()
    shell.run_cell("shown")
    out = capsys.readouterr().out
    assert "a_<b> is 50 %." in out and "Caveat: few items." in out and "0.250" in out


def test_save_writes_figure_caption_data_and_table_and_returns_itself(tmp_path):
    saved = result().save("forest", tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {
        *(f"forest.{ending}" for ending in ("pdf", "svg", "png", "tex", "txt", "csv")),
        "forest_table.tex",
        "forest_table.csv",
    }
    assert saved.name == "forest"
    text = (tmp_path / "forest.tex").read_text()
    assert "\\includegraphics[" in text and "{forest.pdf}" in text
    assert "95\\% intervals" in text and "\\label{fig:forest}" in text and str(tmp_path) not in text
    assert (tmp_path / "forest.txt").read_text().startswith("Two judges. 95% intervals.")
    again = result().save("forest", tmp_path / "again")
    for path in again and (tmp_path / "again").iterdir():
        assert path.read_bytes() == (tmp_path / path.name).read_bytes()


def test_what_was_not_computed_says_so_and_a_script_cannot_miss_it(tmp_path):
    nobody = Result.not_computed("nobody scored these items; add human_scores")
    assert nobody._bundles()[0][0]["text/plain"].startswith("Not computed: nobody scored")
    for use in (lambda: nobody.table, nobody.plot, nobody.latex):
        with pytest.raises(vj.NotComputed, match="add human_scores"):
            use()
    assert "No file was written" in repr(nobody.save("x", tmp_path)) and not list(
        tmp_path.iterdir()
    )
    with pytest.raises(vj.NotComputed, match="no figure"):
        result(plot=None).plot()


def test_warnings_become_caveats_and_not_computed_becomes_a_result():
    @analysis
    def fine():
        warnings.warn("groups are unequal", stacklevel=2)
        return result()

    @analysis
    def undefined():
        raise vj.NotComputed("no item has a truth: give gold")

    @analysis
    def old():
        warnings.warn("pandas will change", FutureWarning, stacklevel=2)
        return result()

    with pytest.warns(FutureWarning, match="will change"):
        assert old().caveats == ["few items."], "a library's future is no limit of the numbers"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert fine().caveats == ["few items.", "groups are unequal."]
        assert not undefined().computed and "give gold" in repr(undefined())


def test_settings_hold_for_all_and_arguments_come_first(tmp_path):
    before = vj.settings()
    try:
        vj.settings(venue="eccv", figures=tmp_path)
        drawn = result()
        assert drawn.plot().get_figwidth() == pytest.approx(4.8)
        assert drawn.plot(venue="acl", column="half").get_figwidth() == pytest.approx(3.03)
        drawn.save()
        assert (tmp_path / "two.pdf").is_file()
        with pytest.raises(ValueError, match="use one of acl"):
            vj.settings(venue="pnas")
        with pytest.raises(TypeError):
            vj.settings(fonts=3)
    finally:
        vj.settings(**vars(before))


def test_a_figure_is_drawn_anew_where_venue_or_column_changed(tmp_path):
    before = vj.settings()
    drawn = result()
    try:
        for change, inches in (
            ({"venue": "acl", "column": "full"}, 6.3),
            ({"venue": "eccv"}, 4.8),
            ({"column": "half"}, 2.3),
        ):
            vj.settings(**change)
            drawn.save("forest", tmp_path)
            assert Image.open(tmp_path / "forest.png").width == pytest.approx(300 * inches, abs=1)
            figure = drawn.drawn()
            vj.settings(seed=7)
            assert drawn.drawn() is figure, "the numbers are those of the table"
    finally:
        vj.settings(**vars(before))


def test_a_caption_says_which_of_its_sentences_are_caveats(tmp_path):
    saved = result(caveats=["tiny: no interval"]).save(folder=tmp_path)
    text = (tmp_path / "two.txt").read_text()
    assert text == saved.caption + "\n"
    assert text == "Two judges. 95% intervals. Caveat: few items. Caveat: tiny: no interval.\n"
    assert "Caveat: few items" in saved.latex()


def test_several_results_are_saved_under_their_names(tmp_path):
    Results(one=result(plot=None), none=Result.not_computed("no pairs")).save(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"one.csv", "one.tex"}
    assert "no 'scatter' here, only one" in repr(Results(one=result(plot=None))["scatter"])


def test_long_tables_are_split_and_long_cells_cut(tmp_path):
    long = pd.DataFrame({"judge": [f"j{n}" for n in range(95)], "p_holm": 1e-9})
    text = Result(long, name="long", caption="Many").latex()
    assert text.count(r"\begin{table}") == 3 and "$<$ .001" in text and "Continued" in text
    html = Result(long, name="long")._bundles()[0][0]["text/html"]
    assert "79 more rows" in html and html.count("<tr") == 17


def test_pictures_are_the_same_bytes_twice():
    assert png(forest()) == png(forest())
    plt.close("all")


@pytest.mark.parametrize("text", ["**bold**", "[x](http://y)", "<script>", "$x$", "a|b"])
def test_no_text_is_markup(text):
    escaped = escape_markdown(text)
    assert not any(mark in escaped.replace("\\" + mark, "") for mark in "*[$|")
    assert "<script>" not in escaped


def test_warnings_in_a_notebook_are_one_plain_line_and_nothing_else_is_changed(capsys):
    shell = InteractiveShell.instance()
    shown = warnings.showwarning
    try:
        shell.run_cell("import vjudge as vj\nvj.settings()")
        shell.run_cell("import warnings\nfor _ in range(2):\n    warnings.warn('few\\n items')")
        out = capsys.readouterr().out
        assert out.count("Note: few items") == 1 and "UserWarning" not in out
    finally:
        warnings.showwarning = shown


def test_a_result_that_is_saved_twice_says_once_that_no_file_was_written(tmp_path):
    nobody = Result.not_computed("no pairs.").save("x", tmp_path)
    assert nobody.save("x", tmp_path).reason == "no pairs. No file was written"


def test_a_table_with_a_column_called_reason_is_analysed():
    @analysis
    def count(table):
        return result()

    assert count(pd.DataFrame({"reason": ["no", ""]})).computed
