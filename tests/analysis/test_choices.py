"""One table of choices: people's and judges' verdicts on pairs, each analysis or the reason why not."""

import numpy as np
import pytest
from pandas import DataFrame

import vjudge as vj


def wide(n=300):
    """A judge that is right in four of five pairs, one that guesses, one that always says a."""
    rng = np.random.default_rng(0)
    people = rng.choice(["a", "b"], n)
    right = rng.random(n) < 0.8
    flipped = np.where(people == "a", "b", "a")
    frame = DataFrame({"people": people, "good": np.where(right, people, flipped)})
    frame["guess"] = rng.choice(["a", "b"], n)
    frame["always a"] = "a"
    frame["x"] = rng.choice(["M1", "M2"], n)
    frame["y"] = "M3"
    return frame.assign(picture=np.arange(n) // 2)


def table(**changes):
    judges = ["good", "guess", "always a"]
    return vj.choices(
        wide(), **{"judges": judges, "people": "people", "group": "picture", **changes}
    )


def test_who_chooses_as_people_do_and_who_is_told_apart():
    found = table().accuracy()
    assert found.reading.startswith(
        "Where both decide, good chooses as people do most often: .77 ["
    )
    assert "coin: guess and always a" in found.reading
    rows = found.table.query("statistic == 'with_ties'").set_index("judge")["estimate"]
    assert rows["good"] == pytest.approx((wide()["good"] == wide()["people"]).mean())
    pairs = table().compare()
    assert pairs.reading.startswith("good chooses as people do more often than each of the others")
    assert pairs.plot().get_figwidth() > 3


def test_what_a_run_says_of_a_verdict_is_no_column_of_its_pairs():
    run = DataFrame({"id": ["p", "q"], "judge": "tiny", "verdict": ["a", "b"], "topic": "cats"})
    run = run.assign(raw_ab="[RESULT] A", scores_ba=None, draws=None, votes_a=1, feedback="x")
    assert vj.choices(run).frame.columns.tolist() == ["id", "topic", "tiny", "group"]


def test_win_rates_show_a_judge_that_always_says_a_beside_people():
    found = table().win_rates()
    wins = found.table.query("statistic == 'win'").set_index("judge")["estimate"]
    assert wins["always a"] == 1 and wins["people"] == pytest.approx(
        (wide()["people"] == "a").mean()
    )
    assert found.plot()


def test_systems_have_strengths_by_people_and_by_a_judge():
    found = table(systems=("x", "y")).bradley_terry("good")
    assert set(found.table.index) == {"M1", "M2", "M3"}
    assert "name the two columns with the systems" in repr(table().bradley_terry())
    with pytest.raises(vj.NotComputed, match="no column 'z'"):
        table(systems=("x", "z"))


def test_what_does_not_apply_says_why():
    nobody = vj.choices(wide(), judges=["good"])
    assert "add the column preference" in repr(nobody.accuracy())
    assert "add the runs of another" in repr(table(judges=["good"]).compare())
    assert "both orders" in repr(table().positions())
    assert "correlate() needs scores of single responses" in repr(table().correlate())
    scores = vj.scores(DataFrame({"m": [1.0, 2.0]}), judges=["m"])
    assert "accuracy() needs verdicts on pairs" in repr(scores.accuracy())


def test_a_run_of_pairs_is_a_table_of_choices(tmp_path):
    verdicts = np.resize(["a", "b", "tie", None], 40)
    run = DataFrame({"id": range(40), "judge": "mine", "verdict": verdicts, "preference": "a"})
    mine = vj.choices(run)
    assert mine.judges == ["mine"] and mine.people == ["preference"]
    with pytest.raises(ValueError, match="use vj.choices"):
        vj.scores(run, score="verdict")
    paper = mine.paper(tmp_path)
    assert paper["win_rates"].computed and (tmp_path / "win_rates.pdf").is_file()


def test_public_pairs_give_the_published_share():
    """GPT-4o is right in .774 of the pairs of images that a person and it decide."""
    public = vj.load_verdicts("genai-bench").only(["GPT-4o"])
    parts = [
        public.where(benchmark=f"image {kind}").accuracy() for kind in ("generation", "editing")
    ]
    rows = [part.table.set_index("statistic").loc["both_decided"] for part in parts]
    shares = np.average([row["estimate"] for row in rows], weights=[row["n"] for row in rows])
    assert shares == pytest.approx(0.774, abs=5e-4)
