"""One table of scores: made from runs, wide frames and lists; each reading is true of its numbers."""

import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from pandas import DataFrame

import vjudge as vj
from vjudge import metrics
from vjudge.analysis import readings

QUICK = {"n_resamples": 200}
RNG = np.random.default_rng(5)


def wide(n=200, seed=0):
    """Three people, a good judge, a noisy one, noise alone, a judge of 0 to 100, a constant one."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(1, 6, n).astype(float)
    frame = DataFrame({f"r{k}": (truth + rng.integers(-1, 2, n)).clip(1, 5) for k in range(3)})
    frame["good"] = (truth + rng.integers(-1, 2, n) * (rng.random(n) < 0.3)).clip(1, 5)
    frame["noisy"] = (truth + rng.normal(0, 2, n)).round().clip(1, 5)
    frame["noise"] = rng.integers(1, 6, n).astype(float)
    frame["percent"] = 20 * truth + rng.normal(0, 3, n)
    frame["constant"] = 3.0
    frame["image"] = np.arange(n) // 2
    frame["set"] = np.where(np.arange(n) % 3, "photos", "charts")
    frame["model"] = np.resize(list("ABCDEF"), n)
    return frame


PEOPLE = ["r0", "r1", "r2"]


def table(judges=("good", "noisy", "noise"), **changes):
    given = {"people": PEOPLE, "group": "image", "scale": (1, 5)}
    return vj.scores(wide(), judges=list(judges), **{**given, **changes})


def run(judge="tiny", n=30, **columns):
    frame = DataFrame({"id": [f"i{k}" for k in range(n)], "judge": judge})
    frame["score"] = np.resize([1.0, 2, 3, 4, 5], n)
    frame["gold"] = np.resize([1.0, 2, 3, 5, 4], n)
    frame = frame.assign(lowest=1.0, highest=5.0, closed=False, failure=None, sees_image=True)
    return frame.assign(group=np.arange(n) // 3, **columns)


def numbers(text):
    """Every interval of a sentence as floats: (estimate, low, high)."""
    plain = text.replace("\N{MINUS SIGN}", "-")
    found = re.findall(r"(-?\d*\.\d+) \[(-?\d*\.\d+), (-?\d*\.\d+)\]", plain)
    return [tuple(map(float, row)) for row in found]


# --- how tables are made


def test_a_run_brings_its_truth_groups_scale_and_own_columns():
    mine = vj.scores(run(topic="cats"))
    assert mine.judges == ["tiny"] and mine.scale == (1.0, 5.0) and mine.group == "group"
    assert mine.gold == "gold" and "topic" in mine.frame and len(mine) == 30
    expected = metrics.correlate(
        run()["score"], run()["gold"], groups=run()["group"], n_resamples=200
    )
    found = mine.correlate(**QUICK).table.set_index("statistic")
    assert found.loc["pearson", "low"] == pytest.approx(expected.loc["pearson", "low"])


def test_runs_by_name_and_a_frame_of_several_judges_are_one_table():
    both = pd.concat([run("a"), run("b").assign(score=3.0)])
    assert vj.scores(both).judges == ["a", "b"]
    named = vj.scores({"right": run(), "grey": run().iloc[:20]})
    assert named.judges == ["right", "grey"] and named.frame["grey"].isna().sum() == 10
    assert named.missing().table.set_index("who").loc["grey", "missing"] == 10
    with pytest.raises(ValueError, match="two runs are of a judge 'a'"):
        vj.scores({"a": run(), "": run("a")})


def test_samples_are_averaged_and_said():
    twice = pd.concat([run(sample=0), run(sample=1).assign(score=lambda rows: rows["score"] + 1)])
    mine = vj.scores(twice)
    assert mine.frame["tiny"].iloc[0] == 1.5 and "60 verdicts on 30 items" in mine.caveats[0]


def test_a_column_of_a_run_is_averaged_or_refused_and_never_taken_from_the_first_row():
    twice = pd.concat([run(expected_score=2.0), run(expected_score=4.0)])
    assert vj.scores(twice, score="expected_score").frame["tiny"].tolist() == [3.0] * 30
    pairs = DataFrame({"id": ["p", "p"], "judge": "mine", "verdict": ["a", "b"]})
    with pytest.raises(ValueError, match="mine: pair 'p' has 2 verdicts"):
        vj.choices(pairs)
    with pytest.raises(TypeError, match="tiny.score has values that are not numbers.*'vier'"):
        vj.scores(run().astype({"score": object}).assign(score="vier"))


def test_runs_that_tell_another_truth_of_an_item_are_no_one_table():
    other = run("b").assign(gold=run()["gold"] + 1)
    with pytest.raises(ValueError, match="'i0' has 2 values of gold .1.0, 2.0.: give runs of one"):
        vj.scores({"a": run("a"), "b": other})
    vj.scores({"a": run("a"), "b": run("b").assign(gold=np.nan)})


def test_the_scale_of_people_is_the_rubrics_or_is_said():
    hundred = run("b").assign(score=lambda rows: 20 * rows["score"], lowest=0.0, highest=100.0)
    both = vj.scores({"b": hundred, "a": run("a")})
    assert both.scale == (1.0, 5.0) and both.scales["b"] == (0.0, 100.0)
    assert any("people's scale is taken to be 1 to 5" in text for text in both.caveats)
    levels = {"criteria": "Is it right?", "descriptions": list("abcde")}
    items = [{"id": f"i{k}", "instruction": "?", "response": "x", **levels} for k in range(30)]
    assert vj.scores(hundred, items=items).scale == (1.0, 5.0)
    tenths = run("t").assign(lowest=0.0, highest=1.0, score=lambda rows: rows["score"] / 5)
    assert vj.scores(tenths).scale is None  # people gave 1 to 5
    value = run("v").assign(lowest=np.nan, highest=np.nan)
    assert vj.scores({"v": value, "a": run("a")}).scale == (1.0, 5.0)


def test_people_as_lists_become_a_column_a_rater_with_their_places():
    lists = [[4.0, None, 2.0], [1.0, 2.0, 3.0], []] * 10
    mine = vj.scores(run(human_scores=lists).drop(columns="gold"))
    assert mine.people == ["person 1", "person 2", "person 3"]
    assert mine.frame.loc[0, mine.people].tolist()[::2] == [4.0, 2.0]
    assert mine.truth().tolist()[:2] == [3.0, 2.0] and np.isnan(mine.truth()[2])
    assert vj.scores(wide(), judges=["good"], people=PEOPLE).people == PEOPLE


def test_the_index_of_a_frame_changes_nothing():
    frame = wide()
    shuffled = frame.set_axis(np.zeros(len(frame)))
    ours = vj.scores(frame, judges=["good"], people=PEOPLE).correlate(**QUICK).table
    theirs = vj.scores(shuffled, judges=["good"], people=PEOPLE).correlate(**QUICK).table
    pd.testing.assert_frame_equal(ours, theirs)


@pytest.mark.parametrize(
    "change, options, message",
    [
        ({}, {"judges": ["GPT-5"]}, r"columns are absent: \['GPT-5'\]"),
        ({"good": "well"}, {}, "good has values that are not numbers: position 0: 'well'"),
        ({"set": None}, {"benchmark": "set"}, "row 0: 'set' is missing"),
        ({}, {"judges": ["good", "r0"]}, r"\['r0'\] are named twice"),
        ({}, {"judges": []}, "at least one judge"),
    ],
)
def test_a_bad_table_is_refused_by_row_and_column(change, options, message):
    request = {"judges": ["good"], "people": PEOPLE} | options
    with pytest.raises((ValueError, TypeError), match=message):
        vj.scores(wide().assign(**change), **request)


# --- readings that are true of their numbers


def test_better_worse_undecided_and_undefined_judges_are_called_so():
    found = table(("good", "noisy", "noise", "constant")).correlate(**QUICK)
    assert found.reading.startswith("good agrees best with the mean of 3 people: Pearson's r .")
    assert "noise least" in found.reading and "can't be told from no agreement" in found.reading
    assert "Undefined for constant" in found.reading
    rows = found.table.query("statistic == 'pearson'").set_index("judge")
    assert numbers(found.reading)[0][0] == pytest.approx(rows.loc["good", "estimate"], abs=0.006)
    pairs = table(("good", "noisy", "noise")).compare(**QUICK)
    assert pairs.reading.startswith("good agrees better than each of the others")
    same = wide().assign(also=lambda frame: frame["good"].sample(frac=1, random_state=1).to_numpy())
    tied = vj.scores(same, judges=["noise", "also"], people=PEOPLE).compare(**QUICK)
    assert tied.reading.startswith("Undecided between") and "better" not in tied.reading


def test_a_rival_that_beats_the_judge_with_the_highest_mean_is_named():
    """Judges that share different items: "a" has the mean .75 and loses to "b" (.5) where both scored."""
    pairs = DataFrame(
        [
            ("b", "a", 0.8, 0.6, 0.2, 0.1, 0.3, 0.01),
            ("a", "c", 0.9, 0.4, 0.5, 0.4, 0.6, 0.01),
            ("b", "c", 0.2, 0.1, 0.1, -0.2, 0.4, 0.5),
        ],
        columns="a b estimate_a estimate_b difference low high p_holm".split(),
    )
    lost = "b agrees better than a, whose mean is the highest (.20 [.10, .30], p (Holm) = .010)."
    won = "a agrees better than c (.50 [.40, .60], p (Holm) = .010)."
    assert readings.comparisons(pairs) == f"{won} {lost}"
    assert readings.comparisons(pairs.assign(p_holm=[0.01, 0.5, 0.5])).startswith(lost)


def test_one_judge_has_no_rival_and_says_what_to_add():
    alone = table(("good",))
    assert alone.correlate(**QUICK).reading.startswith("good agrees with the mean of 3 people at")
    for result in (alone.compare(), alone.effective_judges()):
        assert "add the runs of another" in repr(result)
    with pytest.raises(vj.NotComputed, match="add the runs"):
        _ = alone.compare().table


def test_of_several_judges_the_only_defined_one_is_not_called_the_best():
    found = table(("good", "constant")).correlate(**QUICK).reading
    assert found.startswith("good agrees with the mean of 3 people at Pearson's r .")
    assert "Undefined for constant" in found and "compare()" not in found


@pytest.mark.parametrize(
    "estimates, lows, highs, ending",
    [
        ([2, 1], [1.6, 0.5], [2.4, 1.5], "then b, 1.00 [.50, 1.50], whose interval is lower."),
        ([2, 1], [1.4, 0.5], [2.6, 1.5], "then b, 1.00 [.50, 1.50]; their intervals overlap."),
        ([2, 1], [np.nan] * 2, [np.nan] * 2, "then b, 1.00; their intervals can't be compared."),
        ([2, np.nan], [1, np.nan], [3, np.nan], "Only a has a strength, 2.00 [1.00, 3.00]."),
        ([np.nan] * 2, [np.nan] * 2, [np.nan] * 2, "No strength is determined by these data."),
        ([2], [1], [3], "Only a has a strength, 2.00 [1.00, 3.00]."),
    ],
)
def test_a_ranking_says_how_the_first_two_intervals_lie(estimates, lows, highs, ending):
    systems = DataFrame({"estimate": estimates, "low": lows, "high": highs}, dtype=float)
    assert readings.ranking(list("ab")[: len(estimates)], systems, "strength").endswith(ending)


@pytest.mark.parametrize(
    "scores, text",
    [
        ([3.0, 3, 3, 3], "two ratings of one item are equal in 1.00 ["),
        ([3.0, 3, np.nan, np.nan], "Agreement is undefined: no item has two ratings."),
    ],
)
def test_people_who_gave_one_score_alone_agree_without_an_alpha(scores, text):
    frame = DataFrame({"p": scores, "q": [np.nan, np.nan, 3, 3]}).assign(good=3.0)
    if not np.isnan(scores[-1]):
        frame["q"] = 3.0
    found = vj.scores(frame, judges=["good"], people=["p", "q"], scale=(1, 5)).agreement(**QUICK)
    assert text in found.reading
    assert ("alpha (ordinal) is undefined" in found.reading) == ("equal" in text)


def test_a_negative_judge_is_the_reverse_of_the_truth():
    frame = wide().assign(turned=lambda rows: 6 - rows["good"])
    found = vj.scores(frame, judges=["turned"], people=PEOPLE).correlate(**QUICK)
    assert "the reverse of the truth's order" in found.reading


def test_nobody_scored_means_no_number_and_a_remedy():
    lonely = vj.scores(wide(), judges=["good", "noisy"])
    for result in lonely.all(**QUICK).values():
        if result.name != "missing":
            assert not result.computed and re.search("add|give|name", result.reason), result
    assert lonely.missing().computed


def test_judges_on_another_scale_are_correlated_and_left_out_of_the_rest_by_name():
    mixed = table(("good", "percent"), scales={"percent": (0, 100)})
    assert set(mixed.correlate(**QUICK).table["judge"]) == {"good", "percent"}
    scaled = "put on people's scale by the ends of their own: percent."
    for result in (mixed.confusion(), mixed.scatter(), mixed.alt_test(), mixed.corrected(100)):
        assert scaled in result.caveats and "percent" in set(result.table["judge"])
    unknown = table(("good", "percent"))
    results = (unknown.confusion(), unknown.calibration(**QUICK), unknown.scatter())
    for result in (*results, unknown.alt_test()):
        assert any("scale than the truth, and left out: percent" in t for t in result.caveats)
        assert "percent" not in set(result.table["judge"])
    assert "no judge has scores on people's scale" in repr(table(("percent",)).confusion())


def test_the_scatter_says_the_means_at_the_lowest_and_the_highest_truth_in_any_order_of_rows():
    judged = {name: run(name, score=np.resize([1.0, 2, 3, 5, 4], 30)) for name in ("tiny", "big")}
    for order in (slice(None), slice(None, None, -1), [*range(2, 30), 0, 1]):
        rows = {name: frame.iloc[order] for name, frame in judged.items()}
        found = vj.scores(rows).scatter()
        assert found.reading.endswith("highest truth: tiny 1.00 to 5.00; big 1.00 to 5.00.")
        assert found.table["truth"].tolist() == [1.0, 2.0, 3.0, 4.0, 5.0] * 2


def test_calibration_says_who_is_too_high_and_who_is_not():
    frame = wide().assign(lenient=lambda rows: rows[PEOPLE].mean(axis=1) + 0.8)
    frame["fair"] = frame[PEOPLE].mean(axis=1) + np.resize([-0.5, 0.5], len(frame))
    found = vj.scores(frame, judges=["lenient", "fair"], people=PEOPLE, scale=(1, 5))
    text = found.calibration(**QUICK).reading
    assert "lenient scores .80 points too high" in text and "fair: no lean shown" in text


def test_people_and_judges_stand_against_the_same_others():
    found = table().raters(**QUICK)
    assert "against the same others good reaches" in found.reading
    assert {"person", "judge"} <= set(found.table["kind"])
    assert "ceiling" not in found.reading + found.caption
    assert "it takes 2: add the scores" in repr(
        vj.scores(wide(), judges=["good"], people="r0").raters()
    )


def test_by_a_column_there_is_a_cell_a_value_and_an_overall():
    found = table(("good", "noise"), benchmark="set").correlate(by="benchmark", **QUICK)
    assert list(found.table["benchmark"].unique()) == ["overall", "charts", "photos"]
    by_own = table(("good", "noise")).correlate(by="set", **QUICK)
    assert "set" in by_own.table and "over 2 sets" in by_own.reading
    assert "there is no column 'aspect'" in repr(table().correlate(by="aspect"))
    assert "has 100 values" in repr(table().correlate(by="group"))


def test_twelve_judges_have_readable_figures_and_split_tables(tmp_path):
    frame = wide(60)
    names = [f"a judge with a rather long name {k}" for k in range(12)]
    for k, name in enumerate(names):
        frame[name] = (frame["good"] + np.random.default_rng(k).normal(0, 0.3 + k / 4, 60)).clip(
            1, 5
        )
    many = vj.scores(frame, judges=names, people=PEOPLE, scale=(1, 5))
    pairs = many.compare(n_resamples=100)
    assert len(pairs.table) == 3 * 66 and pairs.latex().count("Continued") == 1
    assert pairs.plot().get_figwidth() > 5
    assert names[0] in pairs.reading
    many.correlate(n_resamples=100).save("twelve", tmp_path)
    assert (tmp_path / "twelve.pdf").is_file()


# --- the other analyses


def test_levels_panels_effective_judges_and_corrections():
    mine = table(("good", "noisy"), system="model")
    levels = mine.levels("good", **QUICK)
    assert {"item", "system", "within"} == set(levels.table["level"])
    assert "over all items" in levels.reading
    worth = mine.effective_judges(**QUICK)
    assert 1 <= worth.table.loc["effective_judges", "estimate"] <= 2
    assert "2 judges are worth" in worth.reading
    assert mine.panel().judges[-1] == "mean of the judges"
    fixed = mine.corrected(labels=60)
    mean = fixed.table.query("quantity == 'mean score' and judge == 'good'").iloc[0]
    assert mean["low"] <= mean["corrected"] <= mean["high"]
    assert mean["people"] == pytest.approx(mine.truth().mean())
    share = mine.corrected(labels=60, threshold=3, seed=7).table.iloc[1]
    truth = mine.truth()
    drawn = np.random.default_rng(7).choice(len(truth), size=60, replace=False)
    labels = (truth >= 3).astype(float).where(truth.index.isin(drawn))
    good = (mine.frame["good"] >= 3).astype(float)
    expected = metrics.corrected_rate_from_labels(good, labels, groups=mine.groups)
    assert share["quantity"] == "share of 3 or more" and share["judge"] == "good"
    for name, bound in (("corrected", "estimate"), ("low", "low"), ("high", "high")):
        assert share[name] == pytest.approx(expected[bound])
    assert "draw fewer" in repr(mine.corrected(labels=500))


def test_effective_judges_leave_out_by_name_who_has_no_varying_error():
    """A judge without an error, or without a verdict, ended a notebook in a ValueError."""
    wide = table(("good", "noisy"))
    wide.frame["perfect"] = wide.truth() + 1  # always one above
    wide.frame["unread"] = np.nan
    four = replace(wide, judges=["good", "perfect", "noisy", "unread"])
    worth = four.effective_judges(**QUICK)
    expected = wide.effective_judges(**QUICK).table
    pd.testing.assert_frame_equal(worth.table, expected)
    assert set(worth.caveats) >= {
        "without a score of an item that has a truth, and left out: unread.",
        "all errors are equal, and left out: perfect.",
    }
    few = replace(wide, judges=["good", "perfect", "unread"]).effective_judges(**QUICK)
    assert "fewer than two judges" in few.reason and "left out: perfect" in few.reason


def test_judges_that_scored_no_item_in_common_have_no_effective_number():
    """It was a ValueError that called all their errors the same."""
    wide = table(("good", "noisy"))
    first = np.arange(len(wide)) < len(wide) / 2
    wide.frame["good"] = wide.frame["good"].where(first)
    wide.frame["noisy"] = wide.frame["noisy"].mask(first)
    assert "no item has a truth and a score of every judge" in wide.effective_judges().reason


def test_intervals_speak_for_new_systems_where_asked():
    """Systems that judges like differently: the interval for other systems is the wider one."""
    frame = wide()
    frame["good"] += frame["model"].map(dict(zip("ABCDEF", (-1, 1, -0.5, 0.5, 0, 2), strict=True)))
    mine = vj.scores(frame, ["good", "noisy"], PEOPLE, group="image", system="model")
    given, new = mine.correlate(**QUICK).table, mine.correlate(new_systems=True, **QUICK).table
    assert new["estimate"].tolist() == given["estimate"].tolist()
    assert (new["high"] - new["low"] > given["high"] - given["low"])[:3].all()
    assert mine.compare(new_systems=True, **QUICK).computed
    unnamed = vj.scores(frame, ["good"], PEOPLE).correlate(new_systems=True)
    assert "name it when the table is made (system=...)" in repr(unnamed)


def test_a_slope_on_length_knows_peoples_scale():
    frame = wide().assign(answer=["word " * (1 + k % 40) for k in range(200)])
    for scale in ((1, 5), None):
        mine = vj.scores(frame, ["good"], PEOPLE, response="answer", scale=scale)
        unknown = any("no scale is known" in text for text in mine.length().caveats)
        assert unknown == (scale is None)


def test_a_share_that_labels_cannot_correct_says_why():
    found = table(("good",)).corrected(labels=60, threshold=99)
    assert set(found.table["quantity"]) == {"mean score"}
    assert any("good: no corrected share of 99 or more" in text for text in found.caveats)


def test_baselines_use_no_picture():
    frame = wide(40).assign(
        response=["a cat on a mat " * (k % 5 + 1) for k in range(40)],
        reference_answer=["a cat"] * 40,
    )
    mine = vj.scores(frame, judges=["good"], people=PEOPLE, response="response").baselines()
    assert mine.judges == ["good", "length of the response", "ROUGE-L with the reference"]
    assert mine.frame["length of the response"].iloc[0] == 5


def test_disagreements_and_missing_name_the_items_and_reasons():
    mine = vj.scores(
        run(failure=[None] * 29 + ["no verdict: x"]).assign(
            score=lambda rows: rows["score"].where(rows["failure"].isna())
        )
    )
    far = mine.disagreements(3).table
    assert far["gap"].abs().is_monotonic_decreasing and set(far["id"]) <= set(run()["id"])
    # Two of five scores are 1 from the truth: less than half of the scale 1 to 5
    sentence = "Share of items half the scale or more from the true score: tiny .00."
    assert mine.disagreements().reading == sentence
    counted = mine.missing().table.iloc[0]
    assert counted["missing"] == 1 and counted["no verdict"] == 1


@pytest.mark.parametrize(
    "truth, scores, text",
    [
        # The truth's range is 6, and one gap of four is 3
        (
            [2.0, 2, 8, 8],
            [2.0, 2, 8, 5],
            "Share of items half the truth's range or more from T: j .25.",
        ),
        ([3.0, 3], [3.0, 3], "No score counts as far from T, which does not vary: name scale=."),
    ],
)
def test_without_a_scale_the_range_of_the_truth_decides_what_is_far(truth, scores, text):
    found = vj.scores(DataFrame({"j": scores, "gold": truth}), judges=["j"], gold="gold")
    assert found.scale is None
    assert found.disagreements().reading == text.replace("T", "the true score")


def test_a_paper_has_a_file_for_each_analysis_and_a_venue(tmp_path):
    before = vj.settings()
    paper = table(("good", "noisy"), benchmark="set").paper(tmp_path, "eccv", n_resamples=100)
    assert vj.settings() == before
    names = {path.name for path in tmp_path.iterdir()}
    assert {"correlation.pdf", "correlation_table.tex", "comparison.pdf", "raters.png"} <= names
    assert paper["length"].reason and "length.csv" not in names
    with pytest.raises(ValueError, match="unknown venue"):
        table().paper(tmp_path, "vldb")


def test_a_limit_of_any_judge_stands_beside_the_numbers():
    """Of the second judge too: two levels and few items, and few labels unlike the commonest."""
    frame = wide(24).assign(binary=lambda f: (f["good"] > 3) * 4 + 1)
    few = vj.scores(frame, judges=["good", "binary"], people=PEOPLE, scale=(1, 5))
    assert "a score of two levels and 24 items" in " ".join(few.correlate(**QUICK).caveats)
    frame = wide().assign(r0=1.0, r1=1.0, r2=lambda f: np.where(f.index % 40 == 0, 5.0, 1.0))
    scales = dict.fromkeys(["noise", "good"], (1, 5))
    rare = vj.scores(frame, judges=list(scales), people=PEOPLE, scale=(1, 5), scales=scales)
    assert "good, mean score: only" in " ".join(rare.corrected(60).caveats)
    uneven = frame.assign(image=np.where(frame.index < 150, 0, frame.index))
    tested = vj.scores(uneven, list(scales), PEOPLE, scale=(1, 5), scales=scales, group="image")
    assert "groups of very unequal size" in " ".join(tested.alt_test().caveats)


def test_verdicts_without_a_judges_name_are_not_dropped():
    """Rows of a run of several judges whose column `judge` is empty had no place in the table."""
    run = pd.DataFrame({"id": ["a", "b", "a", "b"], "score": [1.0, 2.0, 3.0, 4.0]})
    run["judge"] = ["x", "y", "x", None]
    run.loc[2, "id"] = "c"
    named = vj.scores(run)
    assert named.judges == ["x", "y", "nan"] and named.frame["nan"].notna().sum() == 1
