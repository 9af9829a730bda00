"""Aligning: chosen on one half of the groups, reported on the other, and honest by simulation."""

import numpy as np
import pandas as pd
import pytest

import vjudge as vj
from samples import row
from vjudge.analysis.aligning import CHOOSES, REPORTS, _reading, choice_of, halved
from vjudge.results import NotComputed

QUICK = {"n_resamples": 0, "seed": 1}


class Noisy:
    """A judge whose scores are the truth and noise of its own, given by a seed."""

    sees_images = False

    def __init__(self, name, spread, *, missing=()):
        self.name = name
        self.spread = spread
        self.missing = list(missing)

    def grade(self, items, **options):
        frame = pd.DataFrame(
            {name: [item[name] for item in items] for name in ("id", "group", "human_scores")}
        )
        noise = np.random.default_rng(len(self.name)).normal(size=len(frame))
        frame["score"] = frame["human_scores"].map(np.mean) + self.spread * noise
        frame.loc[self.missing, "score"] = np.nan
        frame.insert(1, "judge", self.name)
        cells = {"failure": None, "closed": False, "n_prompt_tokens": 10, "n_new_tokens": 2}
        return frame.assign(**cells, lowest=1.0, highest=5.0, sees_image=False)


def rows(n=48, images=24):
    drawn = np.random.default_rng(0).integers(1, 6, (n, 2)).astype(float)
    cells = {"images": [], "gold": 1.0}  # people are asked, whatever is true
    return [
        row(str(k), **cells, group=f"g{k % images}", human_scores=list(drawn[k])) for k in range(n)
    ]


def test_the_better_candidate_is_chosen_on_one_half_and_reported_on_the_other():
    candidates = {"poor": Noisy("poor", 5.0), "good": Noisy("better", 0.3, missing=[3, 4])}
    result = vj.align(candidates, rows(), **QUICK)
    table = result.table.set_index(["judge", "half"])
    assert table.index.tolist() == [(j, h) for h in (CHOOSES, REPORTS) for j in candidates]
    assert table["chosen"].groupby("judge").all().to_dict() == {"good": True, "poor": False}
    assert table["n"].groupby("half").first().sum() == 46 and (table["missing"] == 0).all()
    assert table["tokens"].tolist() == [48 * 12] * 4
    reported = table.loc[("good", REPORTS), "estimate"]
    assert f"Report {reported:.2f}".replace("0.", ".") in result.reading
    assert "1,152 tokens" in result.reading and result.drawn() is not None
    assert any("2 of 48 items are left out" in text and "good 2" in text for text in result.caveats)
    assert result.table.equals(vj.align(candidates, rows(), **QUICK).table)
    # by hand: the halves are whole groups, and the numbers plain correlations
    frame = candidates["good"].grade(rows()).drop(index=[3, 4])
    chooses = halved(frame["group"], 1)
    people = frame["human_scores"].map(np.mean)
    assert frame["group"][chooses].nunique() == 12
    assert not set(frame["group"][chooses]) & set(frame["group"][~chooses])
    by_hand = [
        np.corrcoef(frame["score"][half], people[half])[0, 1] for half in (chooses, ~chooses)
    ]
    assert table.loc["good", "estimate"].tolist() == pytest.approx(by_hand)


def test_the_reported_number_of_equally_good_candidates_is_not_inflated():
    """200 studies of eight judges that all correlate at .5 with people, on 40 images of an item.

    The number by which the best was chosen is too high by far; the reported one is not.
    """
    random = np.random.default_rng(3)
    numbers = []
    for study in range(200):
        people = random.normal(size=40)
        judged = 0.5 * people[:, None] + np.sqrt(0.75) * random.normal(size=(40, 8))
        chooses = halved(pd.Series(range(40)), study).to_numpy()
        parts = []
        for half, items in {CHOOSES: chooses, REPORTS: ~chooses}.items():
            estimates = [np.corrcoef(judged[items, k], people[items])[0, 1] for k in range(8)]
            parts.append(pd.DataFrame({"judge": range(8), "half": half, "estimate": estimates}))
        cells = pd.concat(parts)
        numbers.append(cells[cells["judge"] == int(choice_of(cells))]["estimate"].tolist())
    chosen, reported = np.mean(numbers, axis=0)
    error = np.std(numbers, axis=0)[1] / np.sqrt(200)
    assert chosen > 0.65 and abs(reported - 0.49) < 3 * error  # E(r) is .49 of 20 items


def test_what_can_not_be_aligned_says_why():
    pair = [Noisy("one", 1.0), Noisy("three", 1.0)]
    result = vj.align(pair, rows(9, images=3), **QUICK)
    with pytest.raises(NotComputed, match="3 groups have a score of people"):
        result.table  # noqa: B018
    with pytest.raises(ValueError, match="two candidates have one name"):
        vj.align([pair[0], pair[0]], rows())
    with pytest.raises(ValueError, match="a choice takes two"):
        vj.align({"one": pair[0]}, rows())
    with pytest.raises(ValueError, match="response: columns of the collection"):
        vj.align({"response": pair[0], "other": pair[1]}, rows())


def test_few_groups_are_a_caveat_and_judges_are_recorded_apart(tmp_path):
    items = vj.load_collection("scenes", split="test", limit=32)
    tiny = vj.load_judge("tiny", device="cpu")
    pair = {"plain": tiny, "readme": tiny.reworded("prometheus-vision-readme")}
    result = vj.align(pair, items, mode="score", out=tmp_path, progress=False)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["plain", "readme"]
    assert any("has 2 groups: both choice and number are rough" in text for text in result.caveats)
    assert "the true score" in result.reading


def test_a_half_without_any_estimate_still_has_a_reading():
    """The largest of no numbers was a ValueError."""
    cells = pd.DataFrame({"judge": ["a", "b"] * 2, "half": [CHOOSES] * 2 + [REPORTS] * 2})
    cells["estimate"] = cells["low"] = cells["high"] = [0.5, 0.4, np.nan, np.nan]
    cells = cells.assign(tokens=7.0, chosen=cells["judge"] == "a")
    text = _reading(cells, "people", "pearson")
    assert text.startswith("a agrees best") and "may be chance" not in text
