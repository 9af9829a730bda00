"""Figures: legible at every venue, for any number of judges and any name; every item drawn or counted."""

from functools import partial

import gallery as g
import matplotlib.pyplot as plt
import numpy as np
from gallery import crowded, texts
from pandas import concat
from pytest import mark, raises
from seaborn.utils import relative_luminance

from vjudge import metrics, plots
from vjudge.plots import style
from vjudge.results import Result

WIDE = {"column": "full"}
BOUNDS = ["estimate", "low", "high"]


def shown(fig):
    return [text.get_text() for text in texts(fig)]


def bold(fig):
    return sorted(t.get_text().split("\n")[0] for t in texts(fig) if t.get_weight() == "bold")


# Each venue, column and number of judges occurs, the narrowest page with the most judges.
VARIANTS = [
    ("acl", "half", 2),
    ("neurips", "full", 3),
    ("cvpr", "full", 6),
    ("icml", "full", 5),
    ("aaai", "half", 4),
    ("iclr", "half", 1),
    ("eccv", "half", 8),
]


@mark.filterwarnings("error", "ignore::DeprecationWarning")  # those are of seaborn's calls
@mark.parametrize("venue, column, judges", VARIANTS)
def test_no_text_overlaps_is_cut_or_small(venue, column, judges):
    for number, (name, figure) in enumerate(g.figures(judges).items()):
        if venue != "neurips" and (number + judges) % 3:
            continue  # each figure at every third venue, all of them at one
        fig = g.draw(*figure, venue=venue, column=column)
        assert not crowded(fig), name
        assert fig.get_figwidth() == plots.width(venue, "full" if name == "boxes" else column)
        assert fig.get_figheight() <= plots.VENUES[venue].height + 0.01, name
        assert min(text.get_fontsize() for text in texts(fig)) >= style.MIN_TEXT, name
        assert {text.get_fontfamily()[0] for text in texts(fig)} == {plots.VENUES[venue].font}
    assert not plt.get_fignums()


KINDS = {
    "means of three": g.run(1, means=True),
    "without truth": g.run(1).assign(gold=lambda t: t["gold"].where(t["id"] % 7 > 0)),
    "off the scale": g.run(1).replace({"score": {5: 9}}),
}


@mark.parametrize("kind", KINDS)
def test_every_verdict_is_drawn_or_counted(kind):
    frame = KINDS[kind]
    both = len(frame.dropna(subset=["score", "gold"]))
    fig = plots.confusion(frame, scale=(1, 5), **WIDE)
    assert sum(int(text.get_text() or 0) for text in fig.axes[0].texts) == frame["gold"].count()
    counted = f"{both:,} of {len(frame):,} rows have score and gold"
    assert fig.get_label() == f"Cells: numbers of items. {counted}" and "none" in shown(fig)
    assert plots.agreement_scatter(frame).get_label().startswith(counted)
    closed = plots.confusion(frame.assign(closed=frame["id"] < 5), scale=(1, 5))
    assert (
        closed.get_label()
        == f"Cells: numbers of items. {counted}; 5 of {len(frame)} verdicts were closed"
    )
    counted = f"{frame['gold'].count():,} of"
    assert plots.length_by_score(frame).get_label().startswith(counted)
    fig = plots.length_scatter(frame, g.slopes(1), **WIDE)
    assert len(fig.axes[0].collections[0].get_offsets()) == both


def test_a_heatmap_shows_every_cell_its_interval_and_the_best():
    table = g.pearson(4, 3)
    fig = plots.heatmap(table, **WIDE)
    cells = table.dropna()[BOUNDS].to_numpy()
    expected = {style.short(*cell).replace(" [", "\n[") for cell in cells}
    assert expected <= set(shown(fig))
    best = table.groupby("benchmark")["estimate"].max()
    assert [text.split()[0] for text in bold(fig)] == sorted(style.short(r) for r in best)
    ranks = plots.rank_heatmap(table, **WIDE)
    assert bold(ranks).count("1") >= 3


def points(fig):
    """The estimates of a forest's lines."""
    bars = [bars for ax in fig.axes for bars in ax.containers if hasattr(bars, "has_xerr")]
    return np.concatenate([one[0].get_xdata() for one in bars])


def test_estimates_are_drawn_row_by_row():
    table = g.correlations(4, 1)
    fig = plots.forest(table, by="statistic", **WIDE)
    np.testing.assert_allclose(sorted(points(fig)), sorted(table["estimate"].dropna()))
    assert {style.short(*table.loc[0, BOUNDS])} <= set(shown(fig))
    for column in ("place", "kind", "panel", "y"):
        named = table.head(2).assign(**{column: ["answer 1", "answer 2"]})
        assert "answer 2" in shown(plots.forest(named, rows=column, **WIDE)), column
    fewer = g.pearson(3, 5).drop(14)  # a judge that the last benchmark lacks
    multiples = plots.forest(fewer, panel="benchmark", **WIDE)
    assert len({(ax.get_xlim(), ax.get_ylim()) for ax in multiples.axes}) == 1
    assert set(shown(multiples)) >= {*g.BENCHMARKS, "GPT-4o"}
    fig = plots.battery_effects(g.battery(), **WIDE)
    assert len(points(fig)) == 5 and "response padded" in shown(fig)
    assert sorted(points(fig))[-1] == 2 / 0.25  # in margins
    assert {"must stay", "must move", "against what must be", "undecided"} <= set(shown(fig))
    assert fig.get_label().endswith("Left out, as nothing was tested: 1 cases")
    curve = plots.training_curve(g.training())
    assert {"loss per token", "Pearson r"} <= set(shown(curve))
    assert curve.get_label() == "Not drawn, since undefined: 1 of 7 points"
    line = plots.length_scatter(g.run(1), g.slopes(1)).axes[0].lines[-1]
    x, y = np.log2(line.get_xdata()), line.get_ydata()
    np.testing.assert_allclose(y - y[0], 0.2 * (x - x[0]), atol=1e-9)


def test_lengths_of_judges_without_a_verdict_and_of_texts_without_words():
    """A judge that reads nothing was an error of NaN; texts without a word were counted as drawn."""
    frame = g.run(2)
    frame.loc[frame["judge"] == g.NAMES[1], "score"] = np.nan
    frame["response"] = frame["response"].mask(frame.index % 4 == 0, "")
    fig = plots.length_scatter(frame, g.slopes(2))
    n_drawn = len(fig.axes[0].collections[0].get_offsets())
    assert 0 < n_drawn < 90
    assert fig.get_label() == f"{n_drawn} of 240 rows have score and gold and response"


def test_bars_of_answers_add_up_to_a_hundred():
    fig = plots.preference_bars(g.answers(3), **WIDE)
    widths = sorted(bar.get_width() for bar in fig.axes[0].patches)
    expected = sorted(100 * n / 135 for n in (21, 36, 57, 21, 26, 30, 70, 9))
    np.testing.assert_allclose(widths, expected)
    assert {"16", "42", "first better", "both bad"} <= set(shown(fig))
    words = {"win": "wins", "tie": "ties", "loss": "loses"}
    missing = {"one": metrics.win_rate(["a", "b", "tie", None])}
    fig = plots.preference_bars(missing, labels=words)
    whiskers = "Whiskers below the bars: 95% intervals of the first and the last share"
    assert fig.get_label() == f"n = 3, up to 1 missing. {whiskers}"
    assert any(text.startswith("one (1") for text in shown(fig))


def test_judges_against_each_other_show_differences_and_corrected_p():
    table = g.comparisons(3)
    fig = plots.who_beats_whom(table, **WIDE)
    gap = table.loc[(g.NAMES[2], g.NAMES[0], "pearson"), "difference"]
    words = " ".join(shown(fig))
    assert style.short(gap) in words and style.short(-gap) in words and words.count("\np ") == 6
    undefined = plots.who_beats_whom(table.assign(p_holm=np.nan), **WIDE)
    assert "n/a" not in " ".join(shown(undefined))


def test_boxes_hold_image_texts_scores_and_what_went_wrong(tmp_path):
    items, rest = g.boxes(3)
    items[0]["instruction"] = r"\input{x} 100% & <b>$"
    items[0]["human_scores"] = [2, None, 3]  # the second rater gave none, which was "nan"
    name = "Prometheus-Vision 13B"
    rest["runs"][name] = rest["runs"][name].assign(closed=True)
    fig = plots.qualitative(items, **rest)
    words = " ".join(shown(fig))
    assert len([ax for ax in fig.axes if ax.images]) == 1
    for part in (
        "People's scores 2, –, 3",
        "True score 2",
        "13B: score 1 (closed)",
        "no verdict (no verdict: cut",
    ):
        assert part in words
    latex = plots.qualitative_latex(items, **rest, name="cases", folder=tmp_path).read_text()
    assert latex.count(r"\begin{tcolorbox}") == 2 == latex.count(r"\end{tcolorbox}")
    assert r"\textbackslash{}input\{x\} 100\% \& $<$b$>$\$" in latex and r"\input" not in latex
    assert "{cases_1.png}" in latex and (tmp_path / "cases_1.png").is_file()
    with raises(ValueError, match="inches"):
        plots.qualitative(items, rest["runs"], ["a"] * 9)


@mark.parametrize(
    "draw, frame, message",
    [
        (plots.confusion, g.run(1).drop(columns="gold"), r"columns are absent: \['gold'\]"),
        (plots.battery_effects, g.battery().assign(effect=np.nan), "nothing to draw"),
        (plots.forest, g.pearson(2, 1).iloc[:0], "no row: there is nothing to draw"),
        (lambda frame: plots.length_scatter(frame, g.slopes(1)), g.run(2), "one for each"),
        (lambda frame: plots.confusion(frame, venue="nature"), g.run(1), "unknown venue"),
    ],
)
def test_plots_refuse_what_they_cannot_draw(draw, frame, message):
    with raises(ValueError, match=message):
        draw(frame)


def contrast(cell, text):
    """Of two colours, as WCAG 2 defines it."""
    light, dark = sorted((relative_luminance(cell), relative_luminance(text)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def test_numbers_in_cells_are_read_on_every_colour():
    table = g.pearson(5, 3)
    table.loc[:4, "estimate"] = [1, -1, 0.66, -0.66, 0]
    for fig in (plots.heatmap(table), plots.rank_heatmap(table), plots.confusion(g.run(1))):
        colours = fig.axes[0].collections[0].get_facecolors()
        for cell, text in zip(colours, fig.axes[0].texts, strict=True):
            assert not text.get_text() or contrast(cell, text.get_color()) > 5


def test_a_single_panel_names_its_axes():
    """The confusion of one judge had none: drawing cells emptied both labels."""
    ax = plots.confusion(g.run(1), truth_name="mean of three people").axes[0]
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("judge's score", "mean of three people")


def test_wide_tables_fit_the_page_or_say_that_they_do_not():
    """Fourteen judges in a column: confusions were flat stripes, a forest a page and more."""
    wide = concat([g.run(7), g.run(7).assign(judge=lambda t: t["judge"] + " b")])
    fig = plots.confusion(wide, venue="cvpr")
    assert not crowded(fig) and len(fig.axes) == 14
    cell = min(ax.get_window_extent().height for ax in fig.axes) / fig.dpi / 5
    assert 72 * cell > style.MIN_TEXT
    kinds = concat([g.pearson(8, 1).assign(kind=kind) for kind in ("one", "two", "three", "four")])
    tall = concat([kinds, kinds.assign(judge=kinds["judge"] + " b")])
    fig = plots.forest(tall, by="kind", venue="cvpr")
    assert [ax.get_title() for ax in fig.axes] == ["one", "two", "three", "four"]
    np.testing.assert_allclose(sorted(points(fig)), sorted(tall["estimate"]))
    many = tall.assign(judge=[f"judge {number}" for number in range(len(tall))])
    many = concat([many, many.assign(judge=many["judge"] + " b")])
    with raises(style.PageFull, match=r"128 lines take 1\d.\d inches .* choose some"):
        plots.forest(many)
    with raises(style.PageFull, match="60 panels"):
        plots.agreement_scatter(g.run(1).assign(judge=np.arange(120) // 2))
    result = Result(many, name="many", plot=partial(plots.forest, many))
    assert result.drawn() is None and "no figure: 128 lines" in result.caveats[0]


def test_a_name_of_one_long_word_keeps_its_beginning():
    with plots.page() as paper:
        assert paper.fold(["TongYiQianWenCaiPan", "GPT-4o"], 0.5, 1) == ["TongYiQ…", "GPT-4o"]
