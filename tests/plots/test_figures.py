"""Figures: legible at every venue, for any number of judges and any name; every item drawn or counted."""

from __future__ import annotations

import warnings

import gallery as g
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from gallery import crowded, texts
from scipy import stats

from vjudge import metrics, plots
from vjudge.plots import scores, style

WIDE = {"column": "full"}


def shown(fig):
    return [text.get_text() for text in texts(fig)]


def points(ax):
    """The estimates of a forest's lines."""
    return [line.get_xdata()[0] for line in ax.lines if len(line.get_xdata()) == 1]


# Each venue, column, font and number of judges occurs, the narrowest page with the most judges.
VARIANTS = [
    ("acl", "half", None, 2),
    ("neurips", "full", None, 3),
    ("cvpr", "full", "sans", 6),
    ("icml", "full", "times", 5),
    ("aaai", "half", None, 4),
    ("iclr", "half", None, 1),
    ("eccv", "half", None, 8),
]


@pytest.mark.parametrize(("venue", "column", "font", "judges"), VARIANTS)
def test_no_text_overlaps_is_cut_or_small(venue, column, font, judges):
    assert {variant[0] for variant in VARIANTS} == set(plots.VENUES)
    wrong = {}
    for number, (name, draw) in enumerate(g.FIGURES.items()):
        if judges == 1 and name in ("who beats whom", "wins"):
            continue  # a pair is needed
        if venue != "neurips" and (number + judges) % 3:
            continue  # each figure at every third venue, all of them at one
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            fig = draw(judges, {"venue": venue, "column": column, "font": font})
        own = "full" if name == "boxes" else column
        assert fig.get_figwidth() == plots.width(venue, own)
        faults = crowded(fig)
        faults += [text for text in texts(fig) if text.get_fontsize() < plots.MIN_TEXT]
        if faults or fig.get_figheight() > plots.VENUES[venue].height + 0.01:
            wrong[name] = faults, fig.get_figheight()
        family = {"times": "STIXGeneral", "sans": "DejaVu Sans"}[font or plots.VENUES[venue].font]
        assert {text.get_fontfamily()[0] for text in texts(fig)} == {family}, name
    assert not wrong
    assert not plt.get_fignums()


@pytest.mark.parametrize("name", ["a$\\frac{$ b", "\ud800lone", "x\x00y\u202ez", "<b>&amp;"])
def test_names_from_data_are_text(name):
    def renamed(frame, column, old=g.NAMES[0]):
        names = [name if value == old else value for value in frame[column]]
        return frame.assign(**{column: pd.Series(names, dtype=object)})

    figures = [
        plots.confusion(renamed(g.run(2), "judge"), **WIDE),
        plots.heatmap(renamed(g.pearson(2), "judge")),
        plots.preference_bars({(name, "other"): next(iter(g.answers(1).values()))}),
        plots.tag_bars(renamed(g.tags(2), "tag", "hallucinates")),
    ]
    for fig in figures:
        fig.draw_without_rendering()
        words = " ".join(shown(fig)).replace("\n", " ")
        assert style.clean(name).split()[0][:4] in words


def test_a_character_that_no_font_has_is_a_box_and_warned_of():
    name = "回答是否准确描述了图片中的物体"
    if style.east_asian():
        pytest.skip("a font for Chinese is installed")
    with pytest.warns(UserWarning, match="Noto Sans CJK"):
        fig = plots.forest(g.pearson(2, 1).replace(g.NAMES[0], name))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fig.savefig("/dev/null", format="png")
    assert any("\N{WHITE SQUARE}" in text for text in shown(fig))


def test_long_names_are_numbered_and_stand_in_the_caption():
    fig = plots.forest(g.long_names())
    assert "(3) " in fig.get_label() and g.long_names()["judge"][0].strip() in fig.get_label()
    assert any(text.startswith("(1)") and text.endswith("…") for text in shown(fig))


KINDS = {
    "whole": g.run(1),
    "means of three": g.run(1, means=True),
    "to a hundred": g.run(1, 300, top=100),
    "shares": g.run(1).assign(gold=lambda t: t["gold"] / 7, score=lambda t: t["score"] / 5),
    "without truth": g.run(1).assign(gold=lambda t: t["gold"].where(t["id"] % 7 > 0)),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_verdict_is_drawn_or_counted(kind):
    frame = KINDS[kind]
    both = len(frame.dropna(subset=["score", "gold"]))
    rated = int(frame["gold"].notna().sum())
    fig = plots.confusion(frame, **WIDE)
    assert sum(int(text.get_text() or 0) for text in fig.axes[0].texts) == rated
    assert fig.get_label().startswith(f"{both:,} of {len(frame):,} verdicts; 3 without a score")
    assert ("18 without a true score" in fig.get_label()) == (kind == "without truth")
    binned = "Bins of" in fig.get_label() or "drawn at the nearer" in fig.get_label()
    assert binned == (kind in ("means of three", "to a hundred", "shares"))
    label = plots.length_by_score(frame, **WIDE).get_label()
    counts = label.split("n at each level: ")[1].split(". ")[0].split(", ")
    assert label.startswith(f"{rated:,} ") and sum(map(int, counts)) == rated
    fig = plots.length_scatter(frame, g.slopes(1), **WIDE)
    assert len(fig.axes[0].collections[0].get_offsets()) == both
    assert f"{both:,} of {len(frame):,} verdicts" in fig.get_label()
    assert f"{both:,} of {len(frame):,}" in plots.agreement_scatter(frame).get_label()


def test_what_is_off_a_given_scale_is_counted():
    frame = g.run(1).assign(score=lambda t: t["score"].replace(5, 9))
    off = int((frame["score"] == 9).sum())
    options = {"scale": range(1, 6), **WIDE}
    fig = plots.confusion(frame, **options)
    assert "off" in shown(fig) and "3 without a score" in fig.get_label()
    assert sum(int(text.get_text() or 0) for text in fig.axes[0].texts) == 120
    lengths = plots.length_by_score(frame, score="score", **options)
    assert f"{off} off the scale, not drawn" in lengths.get_label()
    assert "off" not in shown(plots.confusion(frame)), "a wider scale is read from the scores"
    halves = scores.bins(pd.Series([1, 5.0]))
    places = halves.place(pd.Series([1.5, 2.49, 4.5, 5.0, 5.4, np.nan]))
    assert places.tolist() == [1, 1, 4, 4, -2, -1]


def test_rows_of_one_index_are_those_of_their_judge():
    """Runs that were joined without a new index."""
    joined = g.run(3).set_index("id")
    for draw in (plots.confusion, plots.agreement_scatter, plots.length_by_score):
        new = draw(joined.reset_index(), **WIDE)
        assert shown(draw(joined, **WIDE)) == shown(new) and draw(joined).get_label()
    panels = [[text.get_text() for text in ax.texts] for ax in plots.confusion(joined, **WIDE).axes]
    assert panels[0] != panels[1]


def test_a_heatmap_shows_every_cell_its_interval_and_the_best():
    table = g.pearson(4, 3)
    fig = plots.heatmap(table, **WIDE)
    assert shown(fig).count("–") == 1
    cells = table.dropna()[["estimate", "low", "high"]].to_numpy()
    numbers = [[style.short(value) for value in cell] for cell in cells]
    assert {f"{r}\n[{low}, {high}]" for r, low, high in numbers} <= set(shown(fig))
    bold = [text.get_text()[:3] for text in texts(fig) if text.get_weight() == "bold"]
    best = table.query("not ceiling").groupby("benchmark")["estimate"].max()
    assert sorted(bold) == sorted(style.short(r) for r in best), "people are not compared"
    assert "Bold: the highest of a column, people not compared" in fig.get_label()
    many = pd.concat([table.assign(benchmark=table["benchmark"] + str(k)) for k in range(5)])
    turned = plots.heatmap(many, **WIDE)
    assert "Bold: the highest of a row" in turned.get_label()
    assert sum("[" in text for text in shown(turned)) == len(many.dropna())
    negative = g.pearson(2).assign(estimate=np.linspace(-0.8, 0.8, 9))
    assert plots.heatmap(negative).axes[0].collections[0].cmap.name == "RdBu"
    ranks = plots.rank_heatmap(table, **WIDE)
    assert shown(ranks).count("1") == 3 and "people" not in shown(ranks)


def test_estimates_are_drawn_row_by_row():
    fig = plots.forest(g.correlations(4, 1), by="statistic")
    assert len(points(fig.axes[0])) == len(g.correlations(4, 1))
    few = g.pearson(3, 1).assign(n=[4, 120, 200, 300])
    fig = plots.forest(few, ceiling=0.86, **WIDE)
    faces = [x.get_markerfacecolor() for x in fig.axes[0].lines if len(x.get_xdata()) == 1]
    assert faces[0] == "white" and "white" not in faces[1:]
    assert "Hollow: fewer than 20 items" in fig.get_label() and "ceiling" in shown(fig)
    multiples = plots.small_multiples(g.pearson(3, 5))
    assert len(multiples.axes) == 5
    assert (
        len({ax.get_xlim() for ax in multiples.axes})
        == 1
        == len({ax.get_ylim() for ax in multiples.axes})
    )
    fig = plots.battery_effects(g.battery(), **WIDE)
    assert sum(len(points(ax)) for ax in fig.axes) == 4
    assert "question removed, leniency, position" in fig.get_label()
    assert "response padded" in shown(fig), "without the name of the statistic"
    fig = plots.tag_bars(g.tags(2))
    assert sorted(60 * np.array(points(fig.axes[0])).round(3)) == pytest.approx(
        sorted(g.tags(2).query("count > 0")["count"]), abs=0.1
    )
    assert "Given to none: other" in fig.get_label()
    fig = plots.curves(g.power(), **g.POWER)
    drawn = np.concatenate([line.get_ydata() for ax in fig.axes for line in ax.lines])
    assert set(g.power()["rejected"]) <= set(drawn)
    words = set(shown(plots.training_curve(g.training())))
    assert {"loss per token", "Pearson r", "readable verdicts"} <= words
    lengths = plots.length_scatter(g.run(2), g.slopes(2))
    for ax in lengths.axes:
        line = ax.lines[-1]
        slope = np.diff(line.get_ydata()) / np.diff(np.log2(line.get_xdata()))
        np.testing.assert_allclose(slope, 0.2, atol=1e-9)


def test_bars_of_answers_add_up_to_a_hundred_and_name_their_sides():
    fig = plots.preference_bars(g.answers(3), **WIDE)
    widths = sorted(bar.get_width() for bar in fig.axes[0].patches)
    expected = sorted(100 * n / 135 for n in (21, 36, 57, 21, 26, 30, 70, 9))
    np.testing.assert_allclose(widths, expected)
    assert {"21", "36", "57", "26", "30", "70", "first better"} <= set(shown(fig))
    assert any(f"v {g.NAMES[1]}" in text.replace("\n", " ") for text in shown(fig))
    one = plots.preference_bars({("tiny", "blind"): next(iter(g.answers(1).values()))}, **WIDE)
    assert {"tiny better", "blind better"} <= set(shown(one))
    with pytest.warns(UserWarning):
        unread = metrics.win_rate(["a", "b", "tie", "??", None])
    label = plots.preference_bars({"one": unread}).get_label()
    assert label.startswith("3 judgements, 2 without an answer (1 unreadable)")


def test_judges_against_each_other_show_differences_and_corrected_p():
    table = g.comparisons(3)
    fig = plots.who_beats_whom(table, **WIDE)
    gap = table.loc[(g.NAMES[0], g.NAMES[2], "pearson"), "difference"]
    words = " ".join(shown(fig)).replace("\n", " ")
    assert style.short(gap) in words and style.short(-gap) in words
    assert all(name in words for name in g.NAMES[:3])
    assert sum("p =" in text or "p <" in text for text in shown(fig)) == 6 and not fig.legends
    undefined = plots.who_beats_whom(table.assign(p=np.nan, p_holm=np.nan), **WIDE)
    assert "n/a" not in " ".join(shown(undefined))


def test_a_win_matrix_is_bold_where_the_corrected_test_says_so():
    verdicts = {("a", "b"): ["a"] * 40 + ["b"] * 10, ("a", "c"): ["a"] * 29 + ["b"] * 21}
    verdicts["b", "c"] = ["a"] * 25 + ["b"] * 25
    fig = plots.win_matrix({pair: metrics.win_rate(votes) for pair, votes in verdicts.items()})
    bold = {text.get_text().split("\n")[0] for text in texts(fig) if text.get_weight() == "bold"}
    assert bold == {".80", ".20"}
    p = 2 * 2 * stats.norm.sf(0.08 / np.sqrt(0.25 / 50))  # 29 of 50, the second of three by Holm
    assert f".58\np = {p:.3f}".replace("0.", ".") in shown(fig)
    sure = plots.win_matrix({("a", "b"): metrics.win_rate(["a"] * 20)})
    assert any("p < .001" in text for text in shown(sure))


def test_boxes_hold_image_texts_scores_and_what_went_wrong(tmp_path):
    boxes = g.boxes(3)
    boxes["items"][0]["instruction"] = r"\input{x} 100% & <b>$"
    fig = plots.qualitative(**boxes)
    words = " ".join(shown(fig))
    assert len([ax for ax in fig.axes if ax.images]) == 1
    for part in (
        "scores 2, 3",
        "True score",
        f"{g.NAMES[0]}: score 1",
        "no score (no verdict: cut",
    ):
        assert part in words
    paths = plots.qualitative_latex(**boxes, name="cases", folder=tmp_path)
    latex = paths["tex"].read_text()
    assert latex.count(r"\begin{tcolorbox}") == 2 == latex.count(r"\end{tcolorbox}")
    assert r"\textbackslash{}input\{x\} 100\% \& <b>\$" in latex and r"\input" not in latex
    assert paths["image 1"].name in latex and paths["image 1"].is_file()
    for wrong, message in ((["z"], r"no item \['z'\]"), (["a"] * 9, "inches")):
        with pytest.raises(ValueError, match=message):
            plots.qualitative(**boxes | {"ids": wrong})


@pytest.mark.parametrize(
    ("draw", "frame", "message"),
    [
        (plots.confusion, g.run(1).drop(columns="gold"), r"columns are absent: \['gold'\]"),
        (plots.confusion, g.run(1).iloc[:0], "no verdict"),
        (plots.heatmap, pd.concat([g.pearson(2)] * 2), "more than once"),
        (plots.battery_effects, g.battery().assign(effect=0, low=0, high=0), "nothing to draw"),
        (plots.win_matrix, {}, "no pair"),
        (lambda frame: plots.length_scatter(frame, g.slopes(1)), g.run(2), "one for each"),
        (lambda frame: plots.confusion(frame, font="comic"), g.run(1), "font must be one of"),
        (lambda frame: plots.confusion(frame, venue="nature"), g.run(1), "unknown venue"),
    ],
)
def test_plots_refuse_what_they_cannot_draw(draw, frame, message):
    with pytest.raises(ValueError, match=message):
        draw(frame)
