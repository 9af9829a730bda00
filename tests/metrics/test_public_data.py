"""Published human and judge scores, and figures recomputed from them that others wrote."""

import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from vjudge.metrics import (
    agreement,
    bradley_terry,
    calibration_errors,
    correlate,
    correlate_levels,
    human_ceiling,
    pairwise_accuracy,
    win_rate,
)

DATA = Path(__file__).parents[3] / "shared/data"
pytestmark = pytest.mark.skipif(not DATA.exists(), reason="the public data are not at hand")
MLLM = ["llava_critic_7b", "gemini_2_5_flash", "phi4_15b"]
BASELINE = "claude-3-sonnet-20240229"


@pytest.fixture(scope="module")
def wildvision():
    board = pd.read_csv(DATA / "wildvision/leaderboard_recomputed.csv", index_col="model")
    file = DATA / "wildvision/wildvision_pairwise_gpt4o.jsonl.gz"
    return pd.read_json(file, lines=True), board


def test_tifa_raters():
    file = DATA / "tifa/human_annotations_with_scores.json"
    tifa = pd.DataFrame(json.loads(file.read_text()).values())
    ceiling = human_ceiling(tifa["human_scores"], groups=tifa["text_id"], n_resamples=100)
    assert ceiling["estimate"][["pearson", "spearman"]].round(3).tolist() == [0.684, 0.722]


@pytest.mark.parametrize("judge", ["gpt4o", "gemini"])
def test_viescore_averages_within_task_and_model(judge):
    rows = pd.read_json(DATA / f"viescore/{judge}_0shot.jsonl.gz", lines=True)
    recomputed = json.loads((DATA / "viescore/recomputed.json").read_text())
    published = recomputed[f"results_{judge}_0shot"]
    rows[["SC", "PQ"]] = np.mean(rows["human"].tolist(), axis=1)  # over three raters
    group = rows["task"] + "/" + rows["gen_model"]
    for aspect in ("SC", "PQ"):
        x = rows[f"judge_{aspect.lower()}01"]
        y = rows[aspect]
        rho = pd.Series()
        for name, here in group.groupby(group).groups.items():
            rho[name] = correlate(x[here], y[here], n_resamples=0)["estimate"]["spearman"]
        # The published "Fisher z" averages are tanh of means, of models and then of tasks.
        means = rho.groupby(lambda name: name.split("/")[0]).mean()
        assert np.tanh(np.tanh(means).mean()) == pytest.approx(published[aspect], abs=5.1e-5)
        levels = correlate_levels(x, y, systems=group, n_resamples=0)["estimate"]
        table = levels.xs("spearman", level="statistic")
        assert table["within"] == pytest.approx(rho.mean()) and table["within"] < table["item"]
        if (judge, aspect) == ("gpt4o", "SC"):  # data folder's README
            assert [round(means.mean(), 4), round(table["item"], 4)] == [0.5236, 0.7050]


def test_wildvision_win_rates(wildvision):
    battles, board = wildvision
    turned = {"A>B": "B>A", "A>>B": "B>>A", "B>A": "A>B", "B>>A": "A>>B"}
    apart = 0
    for model, rows in battles.groupby("model"):
        published = board.loc[model]
        table = win_rate(rows["verdict"].replace(turned), groups=rows["question_id"])
        rate = 100 * table.loc["win_of_all", "estimate"]
        assert rate == pytest.approx(published["win_rate"], abs=1e-9)
        assert table.loc["win", "n"] == published["n"]
        assert table.loc["tie", "estimate"] * published["n"] == pytest.approx(published["tie"])
        apart += table.attrs["malformed"] + table.attrs["missing"]
    assert apart == 26
    # Of decided verdicts on unequal lengths the longer response wins 66.3 %.
    gap = battles["tok_a"] - battles["tok_b"]
    verdict = battles["verdict"].where(gap > 0, battles["verdict"].replace(turned))
    table = win_rate(verdict.where((gap != 0) & gap.notna()))
    assert table.loc["win_ties_out", ["estimate", "n"]].round(3).tolist() == [0.663, 9903]


def test_wildvision_elo(wildvision):
    """Bradley-Terry, ties as half wins, strong verdicts three times, the baseline at 1000."""
    battles, board = wildvision
    times = 1 + 2 * battles["verdict"].isin(["A>>B", "B>>A"])
    rows = battles.loc[battles.index.repeat(times)].reset_index()
    columns = (rows[name] for name in ("baseline", "model", "verdict"))
    with pytest.warns(UserWarning, match="comparisons of a player with itself"):
        elo = bradley_terry(*columns, groups=rows["question_id"])["elo"]
    elo += 1000 - elo[BASELINE]
    assert round(elo["gpt-4o"], 2) == 1365.83
    # Every model meets the baseline alone, so that its strength is the log of its odds.
    board = board.drop(BASELINE)
    won = 3 * board["much_better"] + board["better"] + board["tie"] / 2
    lost = 3 * board["much_worse"] + board["worse"] + board["tie"] / 2
    expected = 1000 + 400 * np.log10(won / lost)
    np.testing.assert_allclose(elo[board.index], expected, atol=1e-8)


def public(name):
    """A table of verdicts, and the figures published or recomputed of it: name -> value."""
    figures = json.loads((DATA / "verdicts/figures.json").read_text())[name]
    values = {row["figure"]: row.get("published", row["recomputed"]) for row in figures}
    return pd.read_csv(DATA / f"verdicts/{name}.csv.gz"), values


def test_genai_bench_accuracies_where_both_decide():
    rows, published = public("genai_bench_pairs")
    rows = rows[rows["criterion"].isin(["image_generation", "image_edition"])]
    words = {"A": "a", "B": "b", "G": "tie", "D": "tie", "T": "tie"}
    for judge in ("gpt4o", "gemini_1_5_pro", "idefics2", "llava"):
        table = pairwise_accuracy(rows[judge].map(words), rows["preference"].map(words))
        expected = published[f"{judge} accuracy where both decide, images"]
        assert table.loc["both_decided", "estimate"] == pytest.approx(expected, abs=5e-7)


def test_mllm_as_a_judge_errors_as_printed():
    rows, published = public("mllm_judge_scores")
    for judge in MLLM:
        errors = calibration_errors(rows[judge], rows["human_1"], n_resamples=0)
        close = agreement(rows[[judge, "human_1"]], n_resamples=0).rename(
            {"within_one": "within_1"}
        )
        values = pd.concat([errors, close])["estimate"].round(4)
        for name in ("mae", "bias", "exact", "within_1"):
            assert values[name] == published[f"{judge} {name}"]
        assert close.loc["exact", "n"] == published[f"{judge} n"]


def of_mllm(rows):
    """Figure -> the two columns that it is of."""
    human = rows["human_1"]
    whole = rows.dropna(subset=[*MLLM, "human_1"])
    figures = {}
    for judge in MLLM:
        for statistic in ("pearson", "spearman", "kendall_b"):
            figures[f"{judge} {statistic}"] = (rows[judge], human)
        figures[f"{judge} pearson of expected score"] = (rows[f"{judge}_expected"], human)
        for other in MLLM:
            figures[f"{judge} vs {other} pearson"] = (whole[judge], whole[other])
    figures["mean of three judges pearson"] = (rows[MLLM].mean(axis=1, skipna=False), human)
    chart = rows[rows["group"].str.lower() == "chartqa"]
    figures["llava_critic_7b pearson ChartQA"] = (chart["llava_critic_7b"], chart["human_1"])
    return figures


def test_every_correlation_to_its_printed_digit():
    rows, published = public("mllm_judge_scores")
    columns = {figure: pair for figure, pair in of_mllm(rows).items() if figure in published}
    assert len(columns) == 17
    for figure, pair in columns.items():
        statistic = re.search("pearson|spearman|kendall", figure)[0]
        estimate = correlate(*pair, n_resamples=0).loc[statistic, "estimate"]
        digits = len(str(published[figure]).split(".")[1])
        assert round(estimate, digits) == published[figure], figure
