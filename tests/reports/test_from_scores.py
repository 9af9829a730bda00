"""A stranger's wide table of scores: three judges, four benchmarks, three people, responses, with holes."""

import numpy as np
from numpy import clip, nan
from pandas import DataFrame
from pytest import approx, fixture, mark, raises
from scipy import stats

import vjudge as vj
from plots.gallery import crowded
from vjudge import plots

JUDGES = ["GPT-4o", "LLaVA-Critic_7B", "Prometheus-Vision"]
PEOPLE = ["rater 1", "rater 2", "rater 3"]


def wide(n=160):
    """Judge 2 adds .5 points for each doubling of the response's length; judge 3 is noise."""
    rng = np.random.default_rng(3)
    truth = rng.uniform(1, 5, n)
    words = rng.integers(5, 200, n)
    people = truth[:, None] + rng.normal(0, 0.5, (n, 3))
    frame = DataFrame(clip(np.round(people), 1, 5), columns=PEOPLE)
    frame[JUDGES[0]] = clip(np.round(truth + rng.normal(0, 0.4, n)), 1, 5)
    frame[JUDGES[1]] = truth + 0.5 * np.log2(words / 30) + rng.normal(0, 0.5, n)
    frame[JUDGES[2]] = rng.integers(1, 6, n).astype(float)
    frame.loc[[0, 7, 9], JUDGES[0]] = nan
    frame.loc[5, PEOPLE[1:]] = nan
    sets = np.resize(["MM-Vet", "VisIT", "LLaVA-B", "Wild"], n)
    responses = ["word " * count for count in words]
    return frame.assign(set=sets, answer=responses, picture=np.arange(n) // 2)


OPTIONS = {"benchmark": "set", "group": "picture", "response": "answer", "n_resamples": 100}


FIGURES = "heatmap forest matrix ranks multiples confusion scatter calibration length".split()


@fixture(scope="module")
def analysis(tmp_path_factory):
    return vj.from_scores(wide(), JUDGES, PEOPLE, out=tmp_path_factory.mktemp("paper"), **OPTIONS)


@mark.parametrize("venue", ["neurips", "acl", "cvpr"])
def test_figures_of_a_wide_table_are_legible_at_a_venue(venue, analysis):
    if venue != "neurips":
        analysis = vj.from_scores(wide(), JUDGES, PEOPLE, venue=venue, **OPTIONS)
        assert not analysis.files
    for name in FIGURES:
        figure = getattr(analysis, name)
        assert not crowded(figure), name
        assert figure.get_figwidth() == plots.width(venue, "full")


def test_one_judge_and_one_person_have_what_there_is():
    alone = vj.from_scores(wide(40), JUDGES[:1], PEOPLE[0], n_resamples=100)
    assert alone.matrix is alone.length is alone.ranks is None and alone.calibration
    one_set = vj.from_scores(
        wide(40).assign(set="MM-Vet"), JUDGES, PEOPLE, benchmark="set", n_resamples=100
    )
    assert one_set.multiples is one_set.ranks is None
    tens = wide(40).assign(Tens=lambda frame: 10 * frame[JUDGES[0]])
    alone = vj.from_scores(tens, ["Tens"], PEOPLE, n_resamples=100)
    assert alone.confusion is alone.scatter is None and alone.forest
    with raises(TypeError, match="give a DataFrame, not a str"):
        vj.from_scores("scores.csv", JUDGES, PEOPLE)


def test_a_wide_table_becomes_all_tables_and_figures(analysis):
    for name in FIGURES:
        assert set(analysis.files[name]) == {"pdf", "svg", "png", "tex", "txt", "csv"}
        caption = analysis.files[name]["txt"].read_text()
        assert "Missing scores: GPT-4o 3, LLaVA-Critic_7B 0" in caption
    tables = ("correlations", "comparisons")
    assert set(analysis.files) == {*FIGURES, *tables}
    latex, pairs = (analysis.files[name]["tex"].read_text() for name in tables)
    assert pairs.count(r"\\") == 4  # a head and three pairs
    assert "Bold: the best judge of each benchmark" in latex and r"LLaVA-Critic\_7B" in latex
    for name in ("MM-Vet", "VisIT", "LLaVA-B", "Wild", "overall"):
        assert latex.count(f"{name} & ") == 4  # three judges and people


def test_the_numbers_are_those_of_scipy_and_of_what_was_planted(analysis):
    frame = wide()
    table = analysis.correlations.set_index(["benchmark", "judge", "statistic"])["estimate"]
    reference = frame[PEOPLE].mean(axis=1)
    for name, here in [("overall", reference.notna()), ("VisIT", frame["set"] == "VisIT")]:
        both = here & frame[JUDGES[0]].notna()
        expected = stats.kendalltau(frame.loc[both, JUDGES[0]], reference[both]).statistic
        assert table[name, JUDGES[0], "kendall"] == approx(expected)
    assert ("overall", "one person", "pearson") in table.index
    assert analysis.counts["missing"].tolist() == [3, 0, 0, 0]
    slopes = analysis.length_slopes.set_index("judge")
    planted = slopes.loc[JUDGES[1]]
    assert planted["low"] < 0.5 < planted["high"]
    assert abs(slopes.loc[JUDGES[0], "effect"]) < 0.15  # an honest judge has no slope


@mark.parametrize(
    "change, options, message",
    [
        ({}, {"judges": ["GPT-5"]}, r"columns are absent: \['GPT-5'\]"),
        ({JUDGES[0]: "good"}, {}, "GPT-4o has values that are not numbers: position 0: 'good'"),
        ({"set": None}, {}, "row 0: 'set' is missing"),
        ({}, {"venue": "vldb"}, "unknown venue 'vldb'"),
        ({}, {"judges": [*JUDGES, PEOPLE[0]]}, r"columns \['rater 1'\] are named twice"),
        ({"human": 3}, {"judges": ["human"]}, "a judge can't be called 'human'"),
        ({"set": "overall"}, {}, "a benchmark can't be called 'overall'"),
        ({}, {"judges": "mine"}, r"absent: \['mine'\]"),
        (dict.fromkeys(JUDGES, 3), {}, "no judge has a correlation.*'GPT-4o': 40"),
    ],
)
def test_a_bad_table_is_refused_by_row_and_column(change, options, message):
    frame = wide(40).assign(**change)
    request = {"judges": JUDGES, "human": PEOPLE, "venue": "acl"} | options
    with raises((ValueError, TypeError), match=message):
        vj.from_scores(frame, **request, benchmark="set")
