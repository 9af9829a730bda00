"""Published human and judge scores, and figures recomputed from them that this project did not write."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from vjudge.metrics import (
    FIVE_POINT,
    agreement,
    average_correlations,
    bradley_terry,
    calibration_errors,
    classification,
    correlate,
    human_ceiling,
    length_controlled,
    longer_wins,
    pairwise_accuracy,
    win_rate,
)

DATA = Path(__file__).parents[3] / "shared/data"
BASELINE = "claude-3-sonnet-20240229"


def read(folder, load):
    if not (DATA / folder).exists():
        pytest.skip(f"public data absent: {DATA / folder}")
    return load(DATA / folder)


@pytest.fixture(scope="module")
def tifa():
    path = "tifa/human_annotations_with_scores.json"
    return read(path, lambda file: pd.DataFrame(json.loads(file.read_text()).values()))


@pytest.fixture(scope="module")
def wildvision():
    return read("wildvision/wildvision_pairwise_gpt4o.jsonl.gz", lambda file: pd.read_json(file, lines=True))


@pytest.fixture(scope="module", params=["gpt4o", "gemini"])
def viescore(request):
    rows = read(f"viescore/{request.param}_0shot.jsonl.gz", lambda file: pd.read_json(file, lines=True))
    humans = np.array(rows["human"].tolist())  # items, three raters, SC and PQ
    rows["group"] = rows["task"] + "/" + rows["gen_model"]
    for name, values in (
        ("SC", (rows["judge_sc01"], humans[:, :, 0])),
        ("PQ", (rows["judge_pq01"], humans[:, :, 1])),
        ("O", (np.sqrt(rows["judge_sc01"] * rows["judge_pq01"]), np.sqrt(humans.prod(axis=2)))),
    ):
        rows[f"judge {name}"], rows[f"human {name}"] = values[0], values[1].mean(axis=1)
    published = json.loads((DATA / "viescore/recomputed.json").read_text())[f"results_{request.param}_0shot"]
    return request.param, rows, published


def test_tifa_raters(tifa):
    ceiling = human_ceiling(tifa["human_scores"], groups=tifa["text_id"], n_resamples=100)
    assert ceiling["estimate"][["pearson", "spearman"]].round(3).tolist() == [0.684, 0.722]
    found = agreement(tifa["human_scores"], groups=tifa["text_id"], scale=(1, 5), n_resamples=100)
    table = np.array(tifa["human_scores"].tolist())
    assert found["estimate"]["exact"] == (table[:, 0] == table[:, 1]).mean()
    assert found["n"].eq(800).all()


def test_viescore_each_average_under_its_own_name(viescore):
    judge, rows, published = viescore
    for aspect in ("SC", "PQ", "O"):
        rho = spearman_of_groups(rows, aspect)
        by_task = rho.groupby(rho.index.str.split("/").str[0])
        # The published "Fisher z" averages are tanh of means, of models and then of tasks, and no atanh. The overall
        # score is a mean of square roots whose last bit depends on the order of the raters, which makes or breaks ties:
        # by order, .4036 to .4042 for GPT-4o.
        tanh_of_means = np.tanh(np.tanh(by_task.mean()).mean())
        assert tanh_of_means == pytest.approx(published[aspect], abs=5e-4 if aspect == "O" else 5.1e-5)
        columns = rows[f"judge {aspect}"], rows[f"human {aspect}"]
        table = average_correlations(*columns, within=rows["group"], n_resamples=0)["estimate"]
        average = table.xs("spearman", level="statistic")
        assert average["mean"] == pytest.approx(rho.mean()) and average["mean"] < average["fisher"] < average["pooled"]
        if aspect == "SC" and judge == "gpt4o":  # data folder's README
            fisher = np.tanh(np.arctanh(rho).groupby(by_task.ngroup()).mean().mean())
            values = [by_task.mean().mean(), fisher, average["pooled"]]
            assert np.round(values, 4).tolist() == [0.5236, 0.5360, 0.7050]


def spearman_of_groups(rows, aspect):
    parts = rows.groupby("group")[[f"judge {aspect}", f"human {aspect}"]]
    return parts.apply(lambda part: correlate(*part.to_numpy().T, n_resamples=0).loc["spearman", "estimate"])


def test_wildvision_win_rates(wildvision):
    board = pd.read_csv(DATA / "wildvision/leaderboard_recomputed.csv", index_col="model")
    apart = 0
    for model, rows in wildvision.groupby("model"):
        found = win_rate(rows["verdict"], side="b", labels=FIVE_POINT, groups=rows["question_id"])
        published = board.loc[model]
        assert 100 * found.loc["win_of_all", "estimate"] == pytest.approx(published["win_rate"], abs=1e-9)
        assert found.loc["win", "n"] == published["n"]
        assert found.loc["tie", "estimate"] * published["n"] == pytest.approx(published["tie"])
        apart += found.attrs["malformed"] + found.attrs["missing"]
        if not found.attrs["malformed"] + found.attrs["missing"]:
            assert found.loc["win", "estimate"] == found.loc["win_of_all", "estimate"]
    assert apart == 26


def test_wildvision_elo(wildvision):
    """Bradley-Terry with ties as half wins and strong verdicts three times, the baseline at 1000."""
    strong = wildvision["verdict"].isin(["A>>B", "B>>A"])
    with pytest.warns(UserWarning, match="500 comparisons of a player with itself"):
        found = bradley_terry(
            wildvision["baseline"],
            wildvision["model"],
            wildvision["verdict"],
            labels=FIVE_POINT,
            weights=1.0 + 2 * strong,
            anchor=BASELINE,
            groups=wildvision["question_id"],
            n_resamples=100,
        )
    assert round(found.loc["gpt-4o", "elo"], 2) == 1365.83
    board = pd.read_csv(DATA / "wildvision/leaderboard_recomputed.csv", index_col="model").drop(BASELINE)
    # Every model meets the baseline alone, so that its strength is the log of its odds.
    won = 3 * board["much_better"] + board["better"] + board["tie"] / 2
    lost = 3 * board["much_worse"] + board["worse"] + board["tie"] / 2
    np.testing.assert_allclose(found.loc[board.index, "elo"], 1000 + 400 * np.log10(won / lost), atol=1e-8)
    assert found.attrs["malformed"] + found.attrs["missing"] == 26
    others = found.drop(BASELINE)
    assert ((others["elo_low"] < others["elo"]) & (others["elo"] < others["elo_high"])).all()


def test_wildvision_longer_answers_win(wildvision):
    found = longer_wins(
        wildvision["verdict"],
        wildvision["tok_a"],
        wildvision["tok_b"],
        labels=FIVE_POINT,
        groups=wildvision["question_id"],
    )
    assert round(found.loc["longer_wins", "estimate"], 3) == 0.663
    assert found.loc["longer_wins", "n"] == 9903
    assert found.loc["longer_wins", "low"] > 0.6


def verdicts(name):
    return read(f"verdicts/{name}.csv.gz", pd.read_csv)


def figures(name):
    """Published or recomputed figures of a table: name -> (value, digits that were printed)."""
    rows = read("verdicts/figures.json", lambda file: json.loads(file.read_text()))[name]
    return {row["figure"]: row.get("published", row["recomputed"]) for row in rows}


GENAI = {"A": "a", "B": "b", "G": "tie", "D": "tie", "T": "tie"}
GENAI_TASKS = ("image_generation", "image_edition", "video_generation")


def test_genai_bench_accuracies_as_printed():
    """13 judges, three tasks: four answers, a bare tie right against either tie, a malformed verdict wrong."""
    rows, published = verdicts("genai_bench_pairs"), figures("genai_bench_pairs")
    judges = list(rows.columns[rows.columns.get_loc("preference") + 1 :])
    assert len(judges) == 13
    for judge in judges:
        for task in GENAI_TASKS:
            part = rows[rows["criterion"] == task]
            preference = part["preference"]
            verdict = part[judge].where(part[judge].ne("X"))
            verdict = verdict.where(verdict.ne("T") | ~preference.isin(["G", "D"]), preference)
            found = classification(verdict, preference, groups=part["group"])
            accuracy = 100 * found.loc[("all", "accuracy_of_all"), "estimate"]
            assert round(accuracy, 2) == published[f"{judge} accuracy % {task}"], (judge, task)


def test_genai_bench_where_both_decide():
    rows, published = verdicts("genai_bench_pairs"), figures("genai_bench_pairs")
    rows = rows[rows["criterion"].isin(["image_generation", "image_edition"])]
    for judge in ("gpt4o", "gemini_1_5_pro", "idefics2", "llava"):
        found = pairwise_accuracy(
            rows[judge], rows["preference"], labels=GENAI, preference_labels=GENAI, groups=rows["group"]
        )
        expected = published[f"{judge} accuracy where both decide, images"]
        assert found.loc["both_decided", "estimate"] == pytest.approx(expected, abs=5e-7)
        assert found.loc["both_decided", "low"] < expected < found.loc["both_decided", "high"]


def test_ceiling_of_viescore():
    rows, published = verdicts("viescore_images"), figures("viescore_images")
    for aspect in ("SC", "PQ"):
        people = rows.loc[rows["criterion"] == aspect, ["human_1", "human_2", "human_3"]]
        found = human_ceiling(people, n_resamples=0)["estimate"]["spearman"]
        name = f"{aspect} human ceiling: rater vs mean of other two, pooled spearman, mean of 3"
        assert found == pytest.approx(published[name], abs=5e-7)


def test_mllm_as_a_judge_errors_as_printed():
    rows, published = verdicts("mllm_judge_scores"), figures("mllm_judge_scores")
    for judge in ("llava_critic_7b", "gemini_2_5_flash", "phi4_15b"):
        errors = calibration_errors(rows[judge], rows["human_1"], methods=[], n_resamples=0)["estimate"]["raw"]
        close = agreement(rows[[judge, "human_1"]], n_resamples=0)
        assert round(errors["mae"], 4) == published[f"{judge} mae"]
        assert round(errors["bias"], 4) == published[f"{judge} bias"]
        assert round(errors["exact"], 4) == round(close.loc["exact", "estimate"], 4) == published[f"{judge} exact"]
        assert round(close.loc["within_one", "estimate"], 4) == published[f"{judge} within_1"]
        assert close.loc["exact", "n"] == published[f"{judge} n"]


def test_wildvision_at_equal_length(wildvision):
    """Length moves GPT-4o's verdicts with every preference unknown."""
    rows = wildvision[wildvision["model"] == "gpt-4o"]
    swapped = {"A>>B": "b", "A>B": "b", "A=B": "tie", "B>A": "a", "B>>A": "a"}
    table = length_controlled(rows["verdict"], rows["tok_b"], rows["tok_a"], labels=swapped)
    assert table.loc["length_log_odds", "low"] > 0
    assert table.loc["win_rate", "estimate"] == (403 + 7) / 500, "255 + 148 won and 14 tied of 500"


def correlations_in(name, rows):
    """Figure -> the two columns and the statistic it is of, for every correlation that figures.json has of a table."""
    people = rows[[column for column in rows if column.startswith("human_") and column[6:].isdigit()]]
    mean, all_of = people.mean(axis=1), {}
    if name == "mllm_judge_scores":
        judges, human = ("llava_critic_7b", "gemini_2_5_flash", "phi4_15b"), rows["human_1"]
        for judge in judges:
            all_of |= {f"{judge} {s}": (rows[judge], human, s) for s in ("pearson", "spearman", "kendall_b")}
            all_of[f"{judge} pearson of expected score"] = (rows[f"{judge}_expected"], human, "pearson")
            whole = rows.dropna(subset=[*judges, "human_1"])
            all_of |= {f"{judge} vs {other} pearson": (whole[judge], whole[other], "pearson") for other in judges}
        three = rows[list(judges)].mean(axis=1, skipna=False)
        all_of["mean of three judges pearson"] = (three, human, "pearson")
        chart = rows["group"].str.lower() == "chartqa"
        all_of["llava_critic_7b pearson ChartQA"] = (rows.loc[chart, "llava_critic_7b"], human[chart], "pearson")
    if name == "tifa160_images":
        two = rows[["tifa_human_1", "tifa_human_2"]].mean(axis=1)
        for judge in rows.columns[rows.columns.get_loc("meteor") :]:
            for statistic in ("pearson", "spearman", "kendall"):
                all_of[f"{judge} {statistic}, five raters"] = (rows[judge], mean, statistic)
                all_of[f"{judge} {statistic}, two raters"] = (rows[judge], two, statistic)
            all_of[f"{judge} pearson (printed as Spearman), two raters"] = (rows[judge], two, "pearson")
        all_of["the two TIFA raters pearson"] = (rows["tifa_human_1"], rows["tifa_human_2"], "pearson")
        all_of["two-rater mean vs five-rater mean pearson"] = (two, mean, "pearson")
        all_of["human_1 vs human_2 pearson"] = (rows["human_1"], rows["human_2"], "pearson")
    if name == "viescore_images":
        for aspect, judge in itertools.product(("SC", "PQ"), ("gpt4o", "gpt4v", "gemini", "llava")):
            part = rows["criterion"] == aspect
            figure = f"{judge}_0shot {aspect} pooled spearman with mean of 3"
            all_of[figure] = (rows.loc[part, f"{judge}_0shot"], mean[part], "spearman")
    if name == "wildvision_models":
        others = rows[rows["model"] != BASELINE]
        elo, length = others["human_elo_anony"], others["mean_tokens"]
        all_of["judge mean verdict vs human Elo spearman, 20 models"] = (others["judge_mean_verdict"], elo, "spearman")
        all_of["mean tokens vs human Elo spearman"] = (length, elo, "spearman")
        ranked = others.dropna(subset="human_elo_anony")
        all_of["mean tokens vs judge win rate spearman"] = (ranked["mean_tokens"], ranked["judge_win_rate"], "spearman")
    return all_of


@pytest.mark.parametrize(
    ("name", "number"),
    [("mllm_judge_scores", 17), ("tifa160_images", 23), ("viescore_images", 8), ("wildvision_models", 3)],
)
def test_every_correlation_to_its_printed_digit(name, number):
    rows, published = verdicts(name), figures(name)
    checked = 0
    for figure, (x, y, statistic) in correlations_in(name, rows).items():
        if figure in published:
            estimate = correlate(x, y, n_resamples=0).loc[statistic.removesuffix("_b"), "estimate"]
            digits = len(str(published[figure]).split(".")[1])
            assert round(estimate, digits) == published[figure], figure
            checked += 1
    assert checked == number
