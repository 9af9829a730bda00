"""Better, or only better liked: readings of answers and rewards whose truth is known."""

from pandas import DataFrame
from pytest import approx, raises

from vjudge import preference


def answers(**policies):
    """Answers in pairs of one picture: of each policy, what judge and truth add to the start's."""
    rows = []
    for name, (judge, truth) in {"start": (0, 0), **policies}.items():
        for number in range(20):
            level = 1 + number // 2 % 3
            noise = (number // 2 % 2) * 0.1
            row = {"policy": name, "id": str(number), "group": str(number // 2)}
            row |= {"judge": level + judge + noise, "truth": level + truth - noise}
            rows.append(row | {"repeats": 0.0, "response": "a"})
    return DataFrame(rows)


def test_a_policy_that_is_only_better_liked_is_called_so():
    result = preference.better_or_liked(answers(liked=(1, 0)), name="tiny")
    assert "score by tiny changes by 1.00 [1.00, 1.00]" in result.reading
    assert "true score changes by .00 [.00, .00], not told from none" in result.reading
    table = result.table.set_index(["policy", "measure"])
    assert table.loc[("liked", "true score"), "n"] == 20
    assert table.loc[("start", "true score"), "change"] == 0


def test_policies_do_not_share_a_folder_of_answers(tmp_path):
    with raises(ValueError, match="'round 1' and 'round-1' need names of their own"):
        preference.answers_of(
            {"round 1": "a", "round-1": "b"}, None, [], lambda row, text: 0.0, out=tmp_path
        )


def rewards(error):
    """Ten groups of two answers of true score 3, of which the second has the feature."""
    rows = []
    for group in range(10):
        for place in range(2):
            reward = 3 + place * (error + group % 2 * 0.1)
            row = {"id": str(group), "group": str(group), "candidate": place, "times": 1}
            rows.append(row | {"reward": reward, "true_score": 3.0, "response": "a"})
    return DataFrame(rows)


def test_what_a_judge_overpays_is_told_with_its_sign():
    for error, sign in ((1.0, "overpaid: 'long'"), (-1.0, "underpaid: 'long'")):
        table = rewards(error)
        result = preference.overpaid(table, {"long": table["candidate"] == 1})
        assert sign in result.reading and result.table["estimate"][0] == approx(error + 0.05)
    none = rewards(-0.05)
    assert "No feature" in preference.overpaid(none, {"long": none["candidate"] == 1}).reading
    gone = none.assign(true_score=float("nan"))
    assert not preference.overpaid(gone, {"long": none["candidate"] == 1}).computed


def test_choosing_is_told_beside_what_the_truth_would_choose():
    table = rewards(1.0).assign(true_score=lambda frame: frame["candidate"] + 1.0)
    result = preference.choosing(table, name="tiny", n_resamples=200)
    assert "The best of 2 by tiny is worth 2.00" in result.reading
    assert "100% of what the truth itself could gain" in result.reading
    assert not preference.choosing(table.assign(reward=float("nan"))).computed


def test_what_a_place_adds_is_told_by_way_of_judging():
    table = rewards(0.0).assign(reward=lambda frame: -frame["candidate"] * 2.0)
    result = preference.order_effect({"one order": table})
    assert "By one order the place that moves a reward most is answer 1's: 1.00" in result.reading


def test_a_repeated_sentence_is_found_by_its_text():
    for text, found in {"(1) A. (2) a.": True, "A cup. A plate.": False, "": False}.items():
        assert preference.repeats(text) is found
