"""Figures: the venue's width, legible text, the same bytes twice, and every verdict accounted for."""

from __future__ import annotations

import matplotlib

matplotlib.use("agg")

import itertools
import re
from pathlib import Path

import matplotlib.font_manager
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text
from PIL import Image
from scipy import stats

from vjudge import metrics, plots, probes
from vjudge.plots import canvas

CAPTION = "Scores of a simulated judge, 100 verdicts, 3 failed; seed 0."


def make_run(judge="tiny", seed=0):
    rng = np.random.default_rng(seed)
    gold = np.repeat([1.0, 2, 3, 4, 5], 20)
    score = np.where(rng.random(100) < 0.8, gold, rng.integers(1, 6, size=100))
    score[[3, 44, 90]] = np.nan
    failure = np.where(np.isnan(score), "no verdict marker", None)
    expected = np.clip(score + rng.normal(0, 0.2, 100), 1, 5)
    texts = ["word " * n for n in rng.integers(20, 40, size=100)]
    columns = dict(score=score, expected_score=expected, gold=gold, failure=failure, response=texts)
    return pd.DataFrame({"judge": judge, **columns})


def make_table(*, intervals=True):
    rows = [("Prometheus-Vision 13B", "LLaVA-Bench", 0.786), ("Prometheus-Vision 13B", "VisIT-Bench", 0.574),
            ("LLaVA-1.5 13B", "LLaVA-Bench", -0.005), ("LLaVA-1.5 13B", "VisIT-Bench", np.nan)]  # fmt: skip
    table = pd.DataFrame(rows, columns=["judge", "benchmark", "estimate"])
    return table.assign(low=table["estimate"] - 0.1, high=table["estimate"] + 0.1, missing=2) if intervals else table


def two_judges():
    return pd.concat([make_run(), make_run("blind", seed=1)], ignore_index=True)


def make_answers():
    """Prometheus-Vision's human comparison of feedback: the counts of its 135 judgements."""
    counts = {"Prometheus-Vision v GPT-4V": (21, 36, 57, 21), "GPT-4 v GPT-4V": (26, 30, 70, 9)}
    rows = [(name, *n) for name, n in counts.items()]
    return pd.DataFrame(rows, columns=["comparison", "left", "right", "both good", "both bad"])


def preferences(answers, **size):
    counts = answers.set_index("comparison").to_dict("index")
    return plots.preference_bars({name: metrics.feedback_preference(n) for name, n in counts.items()}, **size)


def wins(run, **size):
    verdicts = np.where(run["score"] > run["gold"], "a", np.where(run["score"] < run["gold"], "b", "tie"))
    return plots.preference_bars({"tiny v blind": metrics.win_rate(verdicts)}, **size)


def make_cells():
    rows = []
    for design, pace in (("500 images", 12), ("24 images", 7)):
        for label, planted in itertools.product(("length", "position"), (0, 0.05, 0.1, 0.2)):
            power = 0.05 + 0.95 * (1 - np.exp(-((pace * planted) ** 2)))
            rows.append((label, design, planted, power, power * 0.95, power + 0.05 * (1 - power), 300))
    columns = ["label", "design", "planted", "rejected", "rejected_low", "rejected_high", "simulations"]
    return pd.DataFrame(rows, columns=columns).assign(unit="score per doubling")


def correlations(run):
    parts = {
        name: metrics.correlate(rows["score"], rows["gold"], n_resamples=50) for name, rows in run.groupby("judge")
    }
    return pd.concat(parts, names=["judge"]).reset_index()


def by_judge(run):
    return {name: rows.reset_index(drop=True)["score"] for name, rows in run.groupby("judge", sort=False)}


def rivals(run, **size):
    return plots.who_beats_whom(metrics.compare_judges(run["gold"][:100], by_judge(run), n_resamples=200), **size)


def reliability(run, **size):
    gold = run["gold"][:100]
    return plots.reliability_curve({n: metrics.calibration_curve(s, gold) for n, s in by_judge(run).items()}, **size)


def scatter_of_lengths(run, **size):
    return plots.length_scatter(run, probes.length(run.assign(id=run.index)), **size)


def make_log():
    """A training's log: losses, and evaluations of which the first is undefined."""
    losses = [{"step": step, "loss": 12 * 0.5**step} for step in range(1, 9)]
    found = [(0, np.nan, 0.0), (4, 0.4, 0.8), (8, 0.9, 1.0)]
    graded = [
        {"step": step, "pearson": r, "low": r - 0.1, "high": min(1.0, r + 0.1), "parsed": parsed, "n": 60}
        for step, r, parsed in found
    ]
    return pd.DataFrame([*losses, *graded]).sort_values("step", kind="stable").reset_index(drop=True)


FIGURES = {
    "heatmap": (plots.heatmap, make_table),
    "scatter": (plots.score_by_score, make_run),
    "violin": (lambda run, **size: plots.score_by_score(run, score="expected_score", **size), make_run),
    "panels": (plots.score_by_score, two_judges),
    "distribution": (plots.score_distribution, two_judges),
    "length": (plots.length_by_score, make_run),
    "lengths": (scatter_of_lengths, make_run),
    "forest": (lambda run, **size: plots.forest(correlations(run).query("statistic == 'pearson'"), **size), two_judges),
    "forests": (lambda run, **size: plots.forest(correlations(run), by="statistic", **size), two_judges),
    "confusion": (plots.confusion, make_run),
    "confusions": (plots.confusion, two_judges),
    "reliability": (reliability, two_judges),
    "rivals": (rivals, two_judges),
    "preferences": (preferences, make_answers),
    "wins": (wins, make_run),
    "power": (plots.power_curves, make_cells),
    "training": (plots.training_curve, make_log),
    "loss": (lambda log, **size: plots.training_curve(log.drop(columns="parsed"), **size), make_log),
}


WIDE = ("panels", "confusions", "rivals", "training")


def shown(fig):
    return [text.get_text() for text in fig.findobj(Text) if text.get_visible() and text.get_text()]


@pytest.mark.parametrize("name", FIGURES)
def test_files_are_the_same_bytes_twice_and_the_venues_width(name, tmp_path, recwarn):
    draw, data = FIGURES[name]
    column = "full" if name in WIDE else "half"
    written = []
    for folder in ("one", "two"):
        with plt.rc_context({"font.size": 20, "savefig.bbox": "tight", "pdf.fonttype": 3}):  # a user's own settings
            frame = data()
            fig = draw(frame, column=column)
            paths = plots.save_figure(fig, name, column=column, caption=CAPTION, data=frame, folder=tmp_path / folder)
        written.append({ending: path.read_bytes() for ending, path in paths.items()})
    assert set(written[0]) == {"pdf", "svg", "png", "txt", "csv"}
    for ending in written[0]:
        assert written[0][ending] == written[1][ending], ending
    inches = {"half": 3.03, "full": 6.30}[column]
    assert abs(Image.open(paths["png"]).width - inches * 300) < 1.01  # matplotlib releases round differently
    box = re.search(rb"/MediaBox \[ 0 0 ([\d.]+) ", written[0]["pdf"])
    assert float(box[1]) == pytest.approx(inches * 72, abs=0.01)
    assert f'width="{inches * 72:g}pt"'.encode() in written[0]["svg"]
    assert b"/Type3" not in written[0]["pdf"] and b"/FontFile2" in written[0]["pdf"]
    assert b"DejaVuSans" in written[0]["pdf"] and b"CreationDate" not in written[0]["pdf"]
    assert paths["txt"].read_text() == CAPTION + "\n"
    pd.testing.assert_frame_equal(pd.read_csv(paths["csv"]), frame, check_dtype=False)
    assert not [warning for warning in recwarn if "beyond its edge" in str(warning.message)]
    assert not plt.get_fignums()


def test_the_font_is_the_one_matplotlib_ships():
    with plots.style():
        found = matplotlib.font_manager.findfont(matplotlib.font_manager.FontProperties())
    assert Path(matplotlib.get_data_path()) in Path(found).parents


def test_style_leaves_no_trace():
    before = dict(matplotlib.rcParams)
    with plots.style("icml"):
        assert matplotlib.rcParams["font.size"] == 7
    assert dict(matplotlib.rcParams) == before


@pytest.mark.parametrize("venue", ["icml", "eccv"])  # the smallest text; the narrowest page. ACL's column is above
def test_every_figure_fits_the_venue(venue, tmp_path, recwarn, monkeypatch):
    save = Figure.savefig  # the other files are those of the test above
    monkeypatch.setattr(Figure, "savefig", lambda fig, path, **how: save(fig, path, **how) if "png" in path.name else 0)
    for name, (draw, data) in FIGURES.items():
        column = "half" if plots.VENUES[venue].half and name not in WIDE else "full"
        fig = draw(data(), venue=venue, column=column)
        assert min(text.get_fontsize() for text in fig.findobj(Text) if text.get_text()) >= 7
        path = plots.save_figure(
            fig, name, venue=venue, column=column, caption=CAPTION, data=make_table(), folder=tmp_path
        )["png"]
        assert abs(Image.open(path).width - plots.width(venue, column) * 300) < 1.01
    assert not [str(warning.message) for warning in recwarn if "beyond its edge" in str(warning.message)]


def test_failures_and_missing_are_counted_in_the_figure():
    run = make_run()
    run.loc[10, "gold"] = np.nan
    for fig in (plots.score_by_score(run), plots.score_distribution(run)):
        assert "96 verdicts, 3 failed, 1 missing" in shown(fig)
    assert "at most 2 pairs a cell are left out for a missing score" in shown(plots.heatmap(make_table()))
    off = run.assign(score=run["score"].replace(5, 9))
    assert any("off the scale, not drawn" in text for text in shown(plots.score_distribution(off)))


def test_scatter_shows_the_count_of_every_cell():
    run = make_run()
    texts = shown(plots.score_by_score(run))
    cells = run.groupby(["gold", "score"]).size().tolist()
    for count in set(cells):
        assert texts.count(str(count)) >= cells.count(count)


def test_heatmap_prints_estimates_intervals_and_gaps():
    texts = shown(plots.heatmap(make_table()))
    assert ".786" in texts and "[.69, .89]" in texts and "−.005" in texts and "n/a" in texts
    assert not any(text.startswith("[") for text in shown(plots.heatmap(make_table(intervals=False))))
    with pytest.raises(ValueError, match="more than once"):
        plots.heatmap(pd.concat([make_table(), make_table()]))


def test_length_note_is_scipys_test():
    run = make_run()
    words = run["response"].str.split().str.len()
    test = stats.kruskal(*[words[run["gold"] == level] for level in range(1, 6)])
    note = next(text for text in shown(plots.length_by_score(run)) if "Kruskal" in text)
    assert f"H = {test.statistic:.1f}" in note and "100 items, 0 missing" in note
    assert note == next(t for t in shown(plots.length_by_score(run.assign(response=words))) if "Kruskal" in t)


def test_forest_prints_each_estimate_with_its_interval():
    table = make_table().query("benchmark == 'LLaVA-Bench'").assign(n=90)
    texts = shown(plots.forest(table))
    assert ".786 [.69, .89]" in texts and any(text.startswith("−.005 [−.1") for text in texts)
    fig = plots.forest(table.assign(estimate=[0.5, np.nan]))
    assert "undefined" in shown(fig) and "n = 90, 2 missing" in shown(fig)
    with pytest.raises(ValueError, match="more than once"):
        plots.forest(make_table())


def test_confusion_counts_every_verdict():
    run = make_run()
    texts = shown(plots.confusion(run))
    cells = run.groupby(["gold", "score"]).size()
    assert sum(texts.count(str(n)) for n in set(cells)) >= len(cells)
    assert "none" in texts and texts.count("20") >= 5, "a column for verdicts without a score; the true scores' margin"
    exact, close = ((run["score"] - run["gold"]).abs().le(reach).mean() for reach in (0, 1))
    assert any(f"{exact:.1%} exact, {close:.1%} within one" in text for text in texts)
    assert "none" not in shown(plots.confusion(run.dropna(subset="score")))
    off = run.assign(score=run["score"].replace(5, 9))
    assert str(int((off["score"].isna() | (off["score"] == 9)).sum())) in shown(plots.confusion(off))


def test_lines_of_the_length_scatter_have_the_probes_slope():
    run = make_run().assign(id=range(100))
    probe = probes.length(run)
    slope = probe.loc[0, "effect"]
    (ax,) = plots.length_scatter(run, probe).axes
    assert len(ax.lines) == 5
    for line in ax.lines:
        x, y = np.log2(line.get_xdata()), line.get_ydata()
        np.testing.assert_allclose(np.diff(y) / np.diff(x), slope, atol=1e-9)
    whole = run.dropna(subset="score")
    design = np.column_stack([np.log2(whole["response"].str.split().str.len()), pd.get_dummies(whole["gold"])])
    assert np.linalg.lstsq(design.astype(float), whole["score"], rcond=None)[0][0] == pytest.approx(slope)
    lengths = run.assign(response=run["response"].str.split().str.len())
    assert shown(plots.length_scatter(lengths, probe)) == shown(plots.length_scatter(run, probe))
    with pytest.raises(ValueError, match="one judge"):
        plots.length_scatter(run, probe.iloc[1:])


def test_rivals_say_who_is_better():
    run = two_judges()
    worse = run.loc[run["judge"] == "blind", "score"].sample(frac=1, random_state=0).to_numpy()
    run.loc[run["judge"] == "blind", "score"] = worse
    found = metrics.compare_judges(run["gold"][:100], by_judge(run), n_resamples=200)
    texts = shown(plots.who_beats_whom(found))
    gap = canvas.short(found.loc[("tiny", "blind", "pearson"), "difference"])
    assert any(text.startswith(f"+{gap}\np") for text in texts) and any(text.startswith(f"−{gap}\np") for text in texts)
    own = metrics.correlate(run["score"][:100], run["gold"][:100], n_resamples=0).loc["pearson", "estimate"]
    assert any(text.startswith("tiny (") for text in texts) and own > 0.5
    fills = {patch.get_facecolor() for patch in plots.who_beats_whom(found).axes[0].patches}
    assert len(fills) == 2, "better one way, worse the other"


def test_bars_of_answers_are_their_shares():
    fig = preferences(make_answers())
    heights = sorted(bar.get_height() for bar in fig.axes[0].patches)
    np.testing.assert_allclose(heights, sorted(100 * n / 135 for n in (21, 36, 57, 21, 26, 30, 70, 9)))
    assert {"21", "36", "57", "26", "30", "70", "9", "270 judgements, 0 missing"} <= set(shown(fig))
    unread = metrics.win_rate(["a", "b", "tie", "??", None])
    assert "3 judgements, 2 missing (1 unreadable)" in shown(plots.preference_bars({"one": unread}))
    with pytest.raises(ValueError, match="'both_good'"):
        plots.preference_bars({"one": unread.rename(index={"win": "left"})})


def test_reliability_and_power_are_drawn_where_they_are():
    gold = pd.Series([1.0, 2, 2, 3, 5, 5])
    table = metrics.calibration_curve(gold, gold)
    upper, _ = plots.reliability_curve({"one": table}).axes
    (line,) = [line for line in upper.lines if line.get_marker() == "o"]
    np.testing.assert_allclose(np.array(line.get_xydata(), dtype=float), [[1, 1], [2, 2], [3, 3], [5, 5]])
    with pytest.raises(ValueError, match="at least one"):
        plots.reliability_curve({})
    cells = make_cells()
    fig = plots.power_curves(cells, column="full")
    ys = [tuple(line.get_ydata()) for ax in fig.axes for line in ax.lines if len(line.get_ydata()) == 4]
    assert tuple(cells["rejected"][:4]) in ys and "300 simulations a point" in shown(fig)


def test_captions_are_read_from_what_was_computed():
    run = make_run()
    found = metrics.correlate(run["score"], run["gold"], n_resamples=50, seed=7)
    told = plots.caption("Shown.", found, found, run=run)
    assert told.startswith("Shown. 95%") and told.count("resamples") == 1 and "seed 7" in told
    assert told.endswith("97 verdicts, 3 failed, 0 missing (no verdict marker: 3).")
    assert plots.caption("Shown", found).endswith("Left out for a missing score: 3.")
    fewer = metrics.correlate(run["score"][:90], run["gold"][:90], n_resamples=1000, seed=7)
    assert "50 to 1,000 resamples of 88 to 97 items, seed 7" in plots.caption("Shown", found, fewer)
    with pytest.raises(ValueError, match=r"tables \[1\]"):
        plots.caption("Shown", found, pd.DataFrame({"a": [1]}))


def test_looks_are_distinct_and_follow_the_list():
    given = plots.looks(list("abcdefg"))
    assert len({look.color for look in given.values()}) == len({look.marker for look in given.values()}) == 7
    assert plots.looks(["a", "b"])["b"] == given["b"]


@pytest.mark.parametrize(
    ("number", "text"),
    [(0.5, ".500"), (-0.0055, "−.005"), (1.0, "1.00"), (0.9999, "1.00"), (-1.0, "−1.00"), (0.0, ".000")],
)
def test_correlations_are_printed_as_journals_do(number, text):
    assert canvas.short(number) == text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (dict(name="../up"), "no file name"),
        (dict(caption=" "), "no caption"),
        (dict(venue="nature"), "unknown venue"),
        (dict(venue="neurips"), "one column"),
        (dict(column="third"), "half"),
    ],
)
def test_save_figure_refuses(options, message, tmp_path):
    fig = plots.score_by_score(make_run())
    with pytest.raises(ValueError, match=message):
        plots.save_figure(
            fig, options.pop("name", "ok"), **dict(caption=CAPTION, data=make_table(), folder=tmp_path) | options
        )
    assert not list(tmp_path.iterdir())


def test_small_or_cut_text_is_noticed(tmp_path):
    fig = plots.score_by_score(make_run())
    label = fig.axes[0].text(0.5, 0.5, "too small", fontsize=5)
    with pytest.raises(ValueError, match="too small"):
        plots.save_figure(fig, "small", caption=CAPTION, data=make_table(), folder=tmp_path)
    label.remove()
    fig.text(0.95, 0.5, "runs out of the page", fontsize=8)
    with pytest.warns(UserWarning, match="beyond its edge"):
        plots.save_figure(fig, "cut", caption=CAPTION, data=make_table(), folder=tmp_path)


def test_plots_refuse_what_they_cannot_draw():
    with pytest.raises(ValueError, match=r"columns are absent: \['gold'\]"):
        plots.score_by_score(make_run().drop(columns="gold"))
    with pytest.raises(ValueError, match="differ: .*'other'"):
        plots.score_distribution(make_run(), names=["tiny", "other"])
    with pytest.raises(ValueError, match="no verdict"):
        plots.score_by_score(make_run().iloc[:0])


def test_table_is_escaped_and_complete(tmp_path):
    index = pd.Index(["tiny_1", r"\input{x}"], name="judge_name")
    frame = pd.DataFrame({"r & co": [1 / 3, np.nan], "note": ["50% #1", "{~^}"]}, index=index)
    paths = plots.save_table(frame, "main", caption="95% intervals & more", folder=tmp_path)
    pd.testing.assert_frame_equal(pd.read_csv(paths["csv"], index_col=0), frame)
    latex = paths["tex"].read_text()
    for part in (
        r"\toprule",
        r"r \& co",
        "0.333",
        " -- ",
        r"tiny\_1",
        r"50\% \#1",
        r"judge\_name",
        r"\label{tab:main}",
    ):
        assert part in latex, part
    assert r"\caption{95\% intervals \& more}" in latex and r"\input" not in latex
    with pytest.raises(ValueError, match="no caption"):
        plots.save_table(frame, "main", caption="", folder=tmp_path)
