"""Figures: legible at every venue, for any number of judges and any name; and every item drawn or counted."""

from __future__ import annotations

import itertools
import re
import warnings

import gallery as g
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from matplotlib.collections import PathCollection
from matplotlib.colors import to_rgb

from vjudge import metrics, plots
from vjudge.plots import scores, style
from vjudge.plots.style import crowded, texts

WIDE = {"column": "full"}
CHINESE = "回答是否准确描述了图片中的物体"


def shown(fig):
    return [text.get_text() for text in texts(fig)]


# All venues, columns, fonts and numbers of judges with each figure would take an hour: here each occurs, the narrowest
# page with the most judges.
VARIANTS = [
    ("acl", "half", "sans", 2), ("neurips", "half", "sans", 3), ("cvpr", "half", "times", 4),
    ("icml", "full", "sans", 5), ("aaai", "half", "sans", 6), ("iclr", "full", "times", 7),
    ("eccv", "half", "times", 8),
]  # fmt: skip


@pytest.mark.parametrize(("venue", "column", "font", "judges"), VARIANTS)
def test_no_text_overlaps_is_cut_or_small_and_what_is_shown_is_what_is_saved(
    venue, column, font, judges
):
    assert {variant[0] for variant in VARIANTS} == set(plots.VENUES)
    wrong = {}
    for number, (name, draw) in enumerate(g.FIGURES.items()):
        if venue != "neurips" and (number + judges) % 2:
            continue  # each figure at every second venue, all of them at one
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            fig = draw(judges, {"venue": venue, "column": column, "font": font})
        assert fig.get_figwidth() == plots.width(venue, column)
        faults = [[text.get_text() for text in crowd] for crowd in crowded(fig)]
        faults += [text.get_text() for text in texts(fig) if text.get_fontsize() < plots.MIN_TEXT]
        if faults or fig.get_figheight() > plots.VENUES[venue].height + 0.01:
            wrong[name] = faults, fig.get_figheight()
        if venue == "neurips":  # drawn again under other settings, as a notebook does
            before = sorted(shown(fig)), [ax.get_position().bounds for ax in fig.axes]
            with plt.rc_context(
                {"font.size": 20, "text.parse_math": True, "axes.formatter.limits": (0, 0)}
            ):
                fig.draw_without_rendering()
            assert sorted(shown(fig)) == before[0], name
            np.testing.assert_allclose(
                before[1], [ax.get_position().bounds for ax in fig.axes], atol=2e-3
            )
    assert not wrong
    assert not plt.get_fignums()


@pytest.mark.parametrize("name", ["a$\\frac{$ b", "\ud800lone", "x\x00y\u202ez", "<b>&amp;"])
def test_names_from_data_are_text(name):
    def renamed(frame, column, old=g.NAMES[0]):
        return frame.assign(
            **{column: pd.Series([name if v == old else v for v in frame[column]], dtype=object)}
        )

    figures = [
        plots.confusion(renamed(g.run(2), "judge"), **WIDE),
        plots.heatmap(renamed(g.pearson(2), "judge")),
    ]
    figures.append(plots.preference_bars({(name, "other"): g.wins(1)[(g.NAMES[0], "baseline")]}))
    figures.append(plots.tag_bars(renamed(g.tags(2), "tag", "hallucinates")))
    for fig in figures:
        fig.draw_without_rendering()
        assert any(
            style.clean(name).split()[0][:4] in text.replace("\n", " ") for text in shown(fig)
        ), shown(fig)


def test_chinese_is_drawn_by_a_font_that_has_it_or_warned_of_once(monkeypatch, tmp_path):
    table = g.pearson(2, 1).replace(g.NAMES[0], CHINESE)
    monkeypatch.setattr(style, "EAST_ASIAN", re.compile("$^"))
    with pytest.warns(UserWarning, match="Noto Sans CJK") as noted:
        fig = plots.forest(table)
        fig.savefig("/dev/null", format="png")
    assert len(noted) == 1 and any("\N{WHITE SQUARE}" in text for text in shown(fig))
    every = (
        "Last Resort High-Efficiency"  # comes with matplotlib and has a picture for each character
    )
    if any(font.name == every for font in style.fontManager.ttflist):
        monkeypatch.setattr(style, "EAST_ASIAN", re.compile(every))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            fig = plots.forest(table)
            plots.save_figure(fig, "chinese", caption="Chinese names.", data=table, folder=tmp_path)
        assert CHINESE in [text.replace("\n", "") for text in shown(fig)]


def test_long_names_are_numbered_and_stand_in_the_caption():
    fig = plots.forest(g.long_names())
    assert "(3) " in fig.get_label() and g.long_names()["judge"][0] in fig.get_label()
    assert any(text.startswith("(1)") and text.endswith("…") for text in shown(fig))


def test_the_note_and_the_font_are_options():
    noted, bare = (plots.confusion(g.run(1), note=note) for note in (True, False))
    assert any("117 of 120 verdicts" in text for text in shown(noted))
    assert (
        not any("verdicts" in text for text in shown(bare))
        and noted.get_label() == bare.get_label()
    )
    assert {
        text.get_fontfamily()[0] for text in texts(plots.confusion(g.run(1), font="times"))
    } == {"STIXGeneral"}
    for wrong in ({"font": "comic"}, {"venue": "nature"}, {"column": "third"}):
        with pytest.raises(ValueError, match="font must be one of|unknown venue"):
            plots.confusion(g.run(1), **wrong)


KINDS = {
    "whole": g.run(1),
    "means of three": g.run(1, means=True),
    "one to ten": g.run(1, 300, top=10),
    "to a hundred": g.run(1, 300, top=100),
    "shares": g.run(1, 300).assign(gold=lambda t: t["gold"] / 7, score=lambda t: t["score"] / 5),
    "without truth": g.run(1).assign(gold=lambda t: t["gold"].where(t["id"] % 7 > 0)),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_verdict_is_drawn_or_counted(kind):
    frame = KINDS[kind]
    both, rated = (
        int((frame["score"].notna() & frame["gold"].notna()).sum()),
        int(frame["gold"].notna().sum()),
    )
    fig = plots.confusion(frame, **WIDE)
    assert sum(int(text.get_text()) for text in fig.axes[0].texts) == rated
    assert fig.get_label().startswith(f"{both:,} of {len(frame):,} verdicts; 3 without a score")
    assert ("18 without a true score" in fig.get_label()) == (kind == "without truth")
    binned = "Bins of" in fig.get_label() or "drawn at the nearer" in fig.get_label()
    assert binned == (kind in ("means of three", "to a hundred", "shares"))
    fig = plots.length_by_score(frame, **WIDE)
    labels = [label.get_text() for label in fig.axes[0].get_xticklabels()]
    assert sum(int(label.split("n=")[1]) for label in labels if "n=" in label) in (0, rated)
    assert fig.get_label().startswith(f"{rated:,} ")
    fig = plots.length_scatter(frame, g.slope(), **WIDE)
    points = sum(
        len(c.get_offsets()) for c in fig.axes[0].collections if isinstance(c, PathCollection)
    )
    assert points == both and f"{both:,} of {len(frame):,} verdicts" in fig.get_label()


def test_what_is_off_a_given_scale_is_counted():
    frame = g.run(1).assign(score=lambda t: t["score"].replace(5, 9))
    off, options = int((frame["score"] == 9).sum()), {"scale": range(1, 6)}
    fig = plots.confusion(frame, **options, **WIDE)
    assert "off" in shown(fig) and str(off) in shown(fig) and "3 without a score" in fig.get_label()
    lengths = plots.length_by_score(frame, score="score", **options)
    assert f"{off} off the scale, not drawn" in lengths.get_label()
    assert "off" not in shown(plots.confusion(frame)), "a wider scale is read from the scores"
    halves = scores.bins(pd.Series([1, 5.0]))
    assert halves.place(pd.Series([1.5, 2.49, 4.5, 5.0, 5.4, np.nan])).tolist() == [
        1,
        1,
        4,
        4,
        -2,
        -1,
    ]


def test_tables_are_drawn_row_by_row():
    table = g.pearson(4, 3)
    fig = plots.heatmap(table, **WIDE)
    assert shown(fig).count("–") == 1 and {
        style.short(r) for r in table["estimate"].dropna()
    } <= set(shown(fig))
    bold = [text.get_text() for text in texts(fig) if text.get_weight() == "bold"]
    best = (
        table.query("not ceiling").groupby("benchmark")["estimate"].max()
    )  # people are not compared
    assert sorted(bold) == sorted(style.short(r) for r in best)
    negative = (
        plots.heatmap(g.pearson(2).assign(estimate=np.linspace(-0.8, 0.8, 9))).axes[0].images[0]
    )
    assert negative.norm.vmin == -1 and negative.cmap.name == "RdBu"
    fig = plots.forest(g.correlations(4, 1), by="statistic")
    assert sum(len(line.get_xdata()) == 1 for line in fig.axes[0].lines) == len(
        g.correlations(4, 1)
    )
    fig = plots.battery_effects(g.battery(), **WIDE)
    drawn = sum(len(line.get_xdata()) == 1 for ax in fig.axes for line in ax.lines)
    assert (
        drawn + 1 + 1 + 1 == len(g.battery())
        and "No score changed in: question removed: change" in fig.get_label()
    )
    assert "Described, not drawn: leniency. Without a number: position" in fig.get_label()
    fig = plots.tag_bars(g.tags(2))
    bars = sum(round(bar.get_width() * 60 / 100) for bar in fig.axes[0].patches)
    assert bars == g.tags(2)["count"].sum() and "Given to none: other" in fig.get_label()
    fig = plots.curves(g.power(), **g.POWER)
    points = {
        tuple(line.get_ydata())
        for ax in fig.axes
        for line in ax.lines
        if len(line.get_ydata()) == 4
    }
    assert set(itertools.chain(*points)) >= set(g.power()["rejected"])
    assert {"loss per token", "Pearson r", "readable verdicts"} <= set(
        shown(plots.training_curve(g.training()))
    )
    for line in plots.length_scatter(g.run(1), g.slope()).axes[0].lines:
        slope = np.diff(line.get_ydata()) / np.diff(np.log2(line.get_xdata()))
        np.testing.assert_allclose(slope, 0.2, atol=1e-9)


def test_bars_of_answers_add_up_to_a_hundred():
    fig = plots.preference_bars(g.answers(3), **WIDE)
    widths = [bar.get_width() for bar in fig.axes[0].patches]
    np.testing.assert_allclose(
        sorted(widths), sorted(100 * n / 135 for n in (21, 36, 57, 21, 26, 30, 70, 9))
    )
    assert {"21", "36", "57", "26", "30", "70", "9", g.NAMES[0], g.NAMES[1]} <= set(shown(fig))
    unread = metrics.win_rate(["a", "b", "tie", "??", None])
    assert (
        "3 judgements, 2 without an answer (1 unreadable)"
        in plots.preference_bars({"one": unread}).get_label()
    )
    small = plots.preference_bars({("a", "b"): list(g.answers(5).values())[3]}, venue="eccv")
    assert "a better 1, both good 8, both bad 6, b better 120" in small.get_label()


def test_ink_stands_out_on_every_shade():
    def luminance(color):
        linear = [
            c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(color)
        ]
        return float(np.dot([0.2126, 0.7152, 0.0722], linear))

    for color in [
        color for name in ("Blues", "RdBu") for color in plt.get_cmap(name)(np.linspace(0, 1, 50))
    ]:
        back, ink = luminance(color), luminance(style.ink_on(color))
        assert (max(back, ink) + 0.05) / (min(back, ink) + 0.05) > 3.9


def test_rivals_stand_in_one_triangle_with_names():
    table = g.comparisons(3)
    fig = plots.who_beats_whom(table, **WIDE)
    gap = table.loc[(g.NAMES[0], g.NAMES[2], "pearson"), "difference"]
    assert style.short(gap) in " ".join(shown(fig)) and not any(
        text.strip().isdigit() for text in shown(fig)
    )
    assert all(any(name in text.replace("\n", " ") for text in shown(fig)) for name in g.NAMES[:3])
    assert sum("p" == text[:1] for text in shown(fig)) == 3 == len(fig.axes[0].patches)
    keys = [text.get_text() for text in fig.legends[0].get_texts()]
    shades = {patch.get_facecolor() for patch in fig.axes[0].patches}
    assert len(keys) == len(shades), (
        "the legend has an entry for each shade that is drawn, no other"
    )
    undefined = plots.who_beats_whom(table.assign(p=np.nan, p_holm=np.nan), **WIDE)
    assert "n/a" not in " ".join(shown(undefined)) and not undefined.legends


def test_one_pair_of_judges_is_named_in_the_legend():
    fig = plots.preference_bars({("tiny", "blind"): next(iter(g.answers(1).values()))}, **WIDE)
    assert {"tiny better", "blind better"} <= set(shown(fig))


def test_few_items_are_hollow_and_ceilings_are_drawn():
    fig = plots.forest(g.pearson(3, 1).assign(n=[4, 120, 200, 300]), ceiling=0.86, **WIDE)
    faces = [line.get_markerfacecolor() for line in fig.axes[0].lines if len(line.get_xdata()) == 1]
    assert faces[0] == "white" and "white" not in faces[1:]
    assert (
        any("n=4" in text for text in shown(fig))
        and "hollow: fewer than 20 items" in fig.get_label()
    )
    assert "ceiling" in shown(fig)
    assert any(0.86 in line.get_xdata() for line in fig.axes[0].lines)


def test_plots_refuse_what_they_cannot_draw():
    for draw, frame, message in (
        (plots.confusion, g.run(1).drop(columns="gold"), r"columns are absent: \['gold'\]"),
        (plots.confusion, g.run(1).iloc[:0], "no verdict"),
        (plots.heatmap, pd.concat([g.pearson(2)] * 2), "more than once"),
        (plots.battery_effects, g.battery().assign(effect=0, low=0, high=0), "nothing to draw"),
    ):
        with pytest.raises(ValueError, match=message):
            draw(frame)
