"""Figures that others published of public verdicts, recomputed from the tables in the package.

Each number was copied from the place that is named beside it. "Recomputed" ones are not in print: they were computed from
the same tables with NumPy and SciPy alone.
"""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import vjudge as vj
from vjudge.data.verdicts import load_set
from vjudge.metrics import (
    agreement,
    bradley_terry,
    calibration_errors,
    correlate,
    correlate_levels,
    pairwise_accuracy,
    raters,
    win_rate,
)

DATA = Path(__file__).parents[3] / "shared/data"
pytestmark = pytest.mark.filterwarnings("ignore:.*interval")
BASELINE = "claude-3-sonnet-20240229"


@pytest.fixture(scope="module")
def sets():
    names = ("viescore", "tifa160", "genai-bench", "wildvision")
    return {name: load_set(name) for name in names}


def spearman(x, y):
    return correlate(x, y, n_resamples=0)["estimate"]["spearman"]


# --- VIEScore

# TIGER-AI-Lab/VIEScore@2cbea4e paper_implementation/analyze_json.ipynb; of GPT-4o the abstract of arXiv 2312.14867 has
# 0.4 over all, and the rest is recomputed.
VIESCORE = {
    ("Gemini", "SC"): 0.3322,
    ("Gemini", "PQ"): 0.2675,
    ("Gemini", "O"): 0.3048,
    ("GPT-4o", "SC"): 0.445867,
    ("GPT-4o", "PQ"): 0.339941,
    ("GPT-4o", "O"): 0.403546,
}
# Recomputed: pooled Spearman with the mean of three people, guesses counted.
VIESCORE_POOLED = {
    ("GPT-4o", "SC"): 0.704981,
    ("GPT-4V", "SC"): 0.504913,
    ("Gemini", "SC"): 0.510672,
    ("LLaVA", "SC"): 0.174977,
    ("GPT-4o", "PQ"): 0.526189,
    ("GPT-4V", "PQ"): 0.474482,
    ("Gemini", "PQ"): 0.466946,
    ("LLaVA", "PQ"): 0.025951,
}
VIESCORE_CEILING = {"SC": 0.787371, "PQ": 0.684733}  # recomputed, pooled, mean of three people
CRITERIA = {"SC": "semantic consistency", "PQ": "perceptual quality"}


@pytest.fixture(scope="module")
def images(sets):
    """SC and PQ of VIEScore side by side: an index of images, a frame of each criterion."""
    data = sets["viescore"]
    frame = data.frame.assign(**data.published)
    frame.index = frame["id"].str.rpartition(":")[0]
    sides = {}
    for key, criterion in CRITERIA.items():
        sides[key] = frame[frame["criterion"] == criterion]
    assert sides["SC"].index.is_unique and sides["SC"].index.equals(sides["PQ"].index)
    return sides


def upstream_average(x, y, cells):
    """VIEScore's average of correlations: tanh of means, of generators and then of tasks."""
    rho = pd.Series()
    for cell, here in cells.groupby(cells).groups.items():
        rho[cell] = spearman(x[here], y[here])
    means = rho.groupby(lambda cell: cell.split("/")[0]).mean()
    return rho, np.tanh(np.tanh(means).mean())


@pytest.mark.parametrize("judge", ["Gemini", "GPT-4o"])
def test_viescore_averages_within_task_and_generator(judge, images):
    scored = images["SC"][judge].notna() & images["PQ"][judge].notna()
    sides = {key: side[scored] for key, side in images.items()}
    cells = sides["SC"]["benchmark"] + "/" + sides["SC"]["system"]
    scores = {key: side[judge] / 10 for key, side in sides.items()}
    people = {key: side[["human_1", "human_2", "human_3"]] for key, side in sides.items()}
    # Over all is the geometric mean of both criteria, of each person and then of the three.
    scores["O"] = np.sqrt(scores["SC"] * scores["PQ"])
    people["O"] = np.sqrt(people["SC"] * people["PQ"])
    for key, score in scores.items():
        human = people[key].mean(axis=1)
        rho, average = upstream_average(score, human, cells)
        published = VIESCORE[judge, key]
        digits = len(str(published).split(".")[1])
        assert average == pytest.approx(published, abs=0.51 * 10**-digits), key
        levels = correlate_levels(score, human, systems=cells, n_resamples=0)["estimate"]
        table = levels.xs("spearman", level="statistic")
        assert table["within"] == pytest.approx(rho.mean()) and table["within"] < table["item"]


def test_viescore_gpt4o_three_ways(images):
    """Upstream's average, the plain mean over generators and all images at once: .446, .511, .705."""
    side = images["SC"]
    cells = side["benchmark"] + "/" + side["system"]
    rho, average = upstream_average(side["GPT-4o"], side["human"], cells)
    by_task = rho.groupby(lambda cell: cell.split("/")[0]).mean()
    assert [round(average, 3), round(rho.mean(), 3)] == [0.446, 0.511]
    assert round(by_task.mean(), 4) == 0.5236


def of_one_person(people, **options):
    """The mean correlation of a person with the mean of the others."""
    table = raters(people, **options)
    return table[table["who"] == "one person"].set_index("statistic")["estimate"]


def test_viescore_over_all_images(images):
    for (judge, key), expected in VIESCORE_POOLED.items():
        side = images[key]
        assert spearman(side[judge], side["human"]) == pytest.approx(expected, abs=1e-6), judge
    for key, expected in VIESCORE_CEILING.items():
        people = images[key][["human_1", "human_2", "human_3"]]
        rho = of_one_person(people, n_resamples=0)["spearman"]
        assert rho == pytest.approx(expected, abs=1e-6)


# --- TIFA160

# j-min/DSG@7330119 README.md: Spearman and Kendall with the mean of five people.
DSG = {
    "DSG, mPLUG": (0.463, 0.380),
    "DSG without dependencies, mPLUG": (0.464, 0.378),
    "DSG, InstructBLIP": (0.442, 0.364),
    "DSG without dependencies, InstructBLIP": (0.436, 0.355),
    "DSG, PaLI-17B": (0.571, 0.458),
    "DSG without dependencies, PaLI-17B": (0.570, 0.457),
}
# Yushi-Hu/tifa@8e37050 human_annotations/compute_correlation.ipynb: with the mean of two people; what it prints as Spearman
# is Pearson, and Kendall.
TIFA = {
    "TIFA, mPLUG": (0.5967, 0.4717),
    "CLIPScore": (0.3318, 0.2314),
    "METEOR": (0.3397, 0.2741),
}


def test_dsg_with_five_people(sets):
    data = sets["tifa160"]
    for judge, expected in DSG.items():
        table = correlate(data.published[judge], data.frame["human"], n_resamples=0)["estimate"]
        found = table[["spearman", "kendall"]].round(3)
        assert tuple(found) == expected, judge
    found = spearman(data.frame["TIFA, mPLUG"], data.frame["human"])
    assert found == pytest.approx(0.608195, abs=1e-6)  # recomputed


def test_tifa_with_two_people_prints_pearson_as_spearman(sets):
    frame = sets["tifa160"].frame
    two = frame[["tifa_human_1", "tifa_human_2"]].mean(axis=1)
    for judge, expected in TIFA.items():
        table = correlate(frame[judge], two, n_resamples=0)["estimate"]
        assert tuple(table[["pearson", "kendall"]].round(4)) == expected, judge
    found = spearman(frame["TIFA, mPLUG"], two)
    assert found == pytest.approx(0.592188, abs=1e-6)  # recomputed


def test_tifa_raters(sets):
    """Recomputed: the two of TIFA, the five of DSG, and both together."""
    frame = sets["tifa160"].frame
    two = frame[["tifa_human_1", "tifa_human_2"]]
    one = of_one_person(two, groups=frame["group"], n_resamples=100)
    assert one[["pearson", "spearman"]].round(3).tolist() == [0.684, 0.722]
    pairs = frame[[f"human_{number}" for number in range(1, 6)]].corr()
    assert pairs.loc["human_1", "human_2"] == pytest.approx(0.896496, abs=1e-6)
    mean = pairs.to_numpy()[np.triu_indices(5, k=1)].mean()
    assert mean == pytest.approx(0.694625, abs=1e-6)
    means = correlate(two.mean(axis=1), frame["human"], n_resamples=0)["estimate"]["pearson"]
    assert means == pytest.approx(0.818373, abs=1e-6)


# --- GenAI-Bench

# TIGER-AI-Lab/GenAI-Bench@f0b0334 genaibench_results.txt: accuracy in per cent on generated images, edited images, videos.
GENAI_BENCH = {
    "chance": (25.36, 25.90, 25.16),
    "GPT-4o": (45.59, 53.54, 48.46),
    "Gemini 1.5 Pro": (44.67, 55.93, 46.21),
    "LLaVA": (37.00, 26.12, 30.40),
    "Idefics2": (42.25, 27.31, 16.46),
    "LLaVA-NeXT": (22.65, 25.35, 21.70),
    "MiniCPM-V 2.5": (37.81, 25.24, 6.55),
    "BLIP-2": (26.34, 26.01, 16.93),
    "Video-LLaVA": (37.75, 26.66, 0.00),
    "CogVLM": (29.34, 0.00, 24.60),
    "Qwen-VL": (26.63, 14.91, 2.15),
    "InstructBLIP": (3.11, 19.80, 3.74),
    "Idefics1": (0.81, 5.66, 0.19),
}
# Recomputed, on images: right where judge and person decide, and the judge's rate of the first.
GENAI_BENCH_IMAGES = {
    "GPT-4o": (0.773665, 0.383572),
    "Gemini 1.5 Pro": (0.703311, 0.308214),
    "Idefics2": (0.544248, 0.660136),
    "LLaVA": (0.487832, 0.999623),
}


@pytest.mark.parametrize("judge", GENAI_BENCH)
def test_genai_bench_accuracies_as_printed(judge, sets):
    data = sets["genai-bench"]
    graded = data.published.replace("malformed", None)
    for task, printed in zip(
        ("image generation", "image editing", "video generation"), GENAI_BENCH[judge], strict=True
    ):
        here = data.frame["benchmark"] == task
        run = data.frame[here].assign(
            category=task, verdict=graded[judge], preference=graded["preference"]
        )
        table = (
            vj.benchmark(run, name="genai-bench").table.loc["overall"].xs("wrong", level="unread")
        )
        assert 100 * table["estimate"].iloc[0] == pytest.approx(printed, abs=0.00501), task


def test_genai_bench_where_both_decide(sets):
    frame = sets["genai-bench"].frame
    frame = frame[frame["benchmark"] != "video generation"]
    for judge, (accuracy, first) in GENAI_BENCH_IMAGES.items():
        table = pairwise_accuracy(frame[judge], frame["preference"])["estimate"]
        assert table["both_decided"] == pytest.approx(accuracy, abs=1e-6)
        rate = win_rate(frame[judge])["estimate"]
        assert rate["win_of_all"] == pytest.approx(first, abs=1e-6)
    assert win_rate(frame["preference"])["estimate"]["win"] == pytest.approx(0.332705, abs=1e-6)


def test_genai_bench_two_judges_agree(sets):
    """Recomputed; two malformed verdicts count as the same."""
    data = sets["genai-bench"]
    graded = data.published[data.frame["benchmark"] != "video generation"]
    same = graded["GPT-4o"] == graded["Gemini 1.5 Pro"]
    assert same.mean() == pytest.approx(0.563301, abs=1e-6)


# --- WildVision-Bench

# WildVision-AI/WildVision-Bench@79dacc0 elo_leaderboard.md: win rate in per cent.
WILDVISION = {
    "gpt-4o": 80.6,
    "gpt-4-vision-preview": 71.8,
    "aria": 68.0,
    "Reka-Flash": 58.8,
    "claude-3-opus-20240229": 53.0,
    "yi-vl-plus": 52.8,
    "llava-v1.6-34b": 49.2,
    BASELINE: 0.2,
    "claude-3-haiku-20240307": 30.6,
    "gemini-pro-vision": 32.6,
    "deepseek-vl-7b-chat": 35.6,
    "llava-v1.6-vicuna-13b": 33.8,
    "cogvlm-chat-hf": 30.6,
    "llava-v1.6-vicuna-7b": 27.0,
    "idefics2-8b-chatty": 26.4,
    "Qwen-VL-Chat": 19.6,
    "llava-1.5-7b-hf": 18.0,
    "llava-v1.5-13b": 16.8,
    "Bunny-v1_0-3B": 16.6,
    "MiniCPM-V": 13.6,
    "tiny-llava-v1-hf": 11.0,
    "uform-gen2-qwen-500m": 10.8,
}
GPT_4O = {"B>>A": 255, "B>A": 148, "A=B": 14, "A>B": 72, "A>>B": 11}  # README.md
TURNED = {"A>B": "B>A", "A>>B": "B>>A", "B>A": "A>B", "B>>A": "A>>B"}


def test_wildvision_win_rates_and_counts(sets):
    data = sets["wildvision"]
    graded = data.published["GPT-4o"]
    unread = 0
    for model, rows in data.frame.groupby("system_b"):
        grades = graded[rows.index].replace("malformed", None).replace(TURNED)
        table = win_rate(grades, groups=rows["group"])
        assert 100 * table.loc["win_of_all", "estimate"] == pytest.approx(WILDVISION[model])
        unread += table["missing"]["win"]
    assert unread == (graded == "malformed").sum() == 26
    counts = graded[data.frame["system_b"] == "gpt-4o"].value_counts()
    assert counts.to_dict() == GPT_4O


def test_wildvision_longer_answers_win(sets):
    """Recomputed: of decided verdicts on unequal lengths the longer response wins 66.3 %."""
    frame = sets["wildvision"].frame
    gap = frame["tokens_a"] - frame["tokens_b"]
    turned = frame["GPT-4o"].map({"a": "b", "b": "a", "tie": "tie"})
    longer = frame["GPT-4o"].where(gap > 0, turned).where(gap != 0)
    table = win_rate(longer, groups=frame["group"])
    assert table.loc["win_ties_out", ["estimate", "n"]].round(6).tolist() == [0.663435, 9903]


def test_wildvision_elo(sets):
    """Bradley-Terry, ties as half wins, strong verdicts three times, the baseline at 1000."""
    data = sets["wildvision"]
    grades = data.published["GPT-4o"]
    frame = data.frame.assign(grade=grades)
    rows = frame.loc[frame.index.repeat(1 + 2 * grades.isin(["A>>B", "B>>A"]))]
    columns = (rows[name] for name in ("system_a", "system_b", "GPT-4o"))
    with pytest.warns(UserWarning, match="comparisons of a player with itself"):
        elo = bradley_terry(*columns, groups=rows["group"])["elo"]
    elo += 1000 - elo[BASELINE]
    assert round(elo["gpt-4o"], 2) == 1365.83  # README.md
    # Every model meets the baseline alone, so that its strength is the log of its odds.
    counts = pd.crosstab(frame["system_b"], frame["grade"]).drop(BASELINE)
    won = 3 * counts["B>>A"] + counts["B>A"] + counts["A=B"] / 2
    lost = 3 * counts["A>>B"] + counts["A>B"] + counts["A=B"] / 2
    expected = 1000 + 400 * np.log10(won / lost)
    np.testing.assert_allclose(elo[counts.index], expected, atol=1e-8)


def test_wildvision_models_and_people(sets):
    """The judge's order of 20 models and people's in the arena, recomputed. In print is .94, of an earlier Elo list."""
    data = sets["wildvision"]
    values = {"A>>B": -2, "A>B": -1, "A=B": 0, "B>A": 1, "B>>A": 2}
    models = pd.DataFrame({"mean": data.published["GPT-4o"].map(values).fillna(0)})
    models["won"] = (data.frame["GPT-4o"] == "b").astype(float)
    models["tokens"] = data.frame["tokens_b"]
    means = models.groupby(data.frame["system_b"]).mean().drop(BASELINE)
    elo = data.systems["human_elo"].dropna().drop(BASELINE)
    assert len(elo) == 20
    found = {name: stats.spearmanr(means.loc[elo.index, name], elo)[0] for name in means}
    expected = {"won": 0.949981, "mean": 0.974436, "tokens": 0.578947}
    assert found == pytest.approx(expected, abs=1e-6)
    lengths = stats.spearmanr(means.loc[elo.index, "tokens"], means.loc[elo.index, "won"])[0]
    assert lengths == pytest.approx(0.698007, abs=1e-6)


# --- MLLM-as-a-Judge: not part of the project, since its ratings may not be given on for every use

MLLM = ["llava_critic_7b", "gemini_2_5_flash", "phi4_15b"]


@pytest.mark.skipif(not DATA.is_dir(), reason="labels that may not be given on: MLLM-as-a-Judge")
def test_mllm_as_a_judge_to_the_printed_digits():
    figures = json.loads((DATA / "verdicts/figures.json").read_text())["mllm_judge_scores"]
    printed = {row["figure"]: row.get("published", row["recomputed"]) for row in figures}
    rows = pd.read_csv(DATA / "verdicts/mllm_judge_scores.csv.gz")
    human = rows["human_1"]
    whole = rows.dropna(subset=[*MLLM, "human_1"])
    found = {}
    for judge in MLLM:
        table = correlate(rows[judge], human, n_resamples=0)["estimate"]
        close = agreement(rows[[judge, "human_1"]], n_resamples=0)
        found[f"{judge} n"] = close.loc["exact", "n"]
        errors = calibration_errors(rows[judge], human, n_resamples=0)["estimate"]
        values = {"pearson": table["pearson"], "spearman": table["spearman"]}
        values |= {"kendall_b": table["kendall"], "mae": errors["mae"], "bias": errors["bias"]}
        values |= {"exact": close["estimate"]["exact"], "within_1": close["estimate"]["within_one"]}
        found |= {f"{judge} {name}": value for name, value in values.items()}
        expected = correlate(rows[f"{judge}_expected"], human, n_resamples=0)["estimate"]
        found[f"{judge} pearson of expected score"] = expected["pearson"]
        for other in MLLM:
            pair = correlate(whole[judge], whole[other], n_resamples=0)["estimate"]
            found[f"{judge} vs {other} pearson"] = pair["pearson"]
    mean = correlate(rows[MLLM].mean(axis=1, skipna=False), human, n_resamples=0)["estimate"]
    found["mean of three judges pearson"] = mean["pearson"]
    chart = rows[rows["group"].str.lower() == "chartqa"]
    table = correlate(chart["llava_critic_7b"], chart["human_1"], n_resamples=0)["estimate"]
    found["llava_critic_7b pearson ChartQA"] = table["pearson"]
    assert len(printed) == 32 and set(printed) <= set(found)
    for figure, value in printed.items():
        digits = len(str(value).partition(".")[2])
        assert round(found[figure], digits) == value, figure
