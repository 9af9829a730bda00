"""The true score of free answers about scenes, a judge that is pleased alone, and the policy that comes with vjudge."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest

from vjudge import preference
from vjudge.data.scenes import ASPECT_OF, rows
from vjudge.preference import true_score


def test_the_true_score_of_an_answer_is_the_collections_own() -> None:
    for row in rows("test", limit=120):
        parts = true_score({"group": row["group"], "aspect": ASPECT_OF[row["criteria"]]}, row["response"])
        assert parts["score"] == row["gold"] and parts["claims"] == 4 and not parts["unreadable"]


def test_free_answers_lose_for_what_is_missing_repeated_or_off_the_question() -> None:
    row = next(row for row in rows("test", limit=10) if row["gold"] == 5)
    question = {"group": row["group"], "aspect": ASPECT_OF[row["criteria"]]}
    sentences = [f"({i + 1}) {text.strip()}" for i, text in enumerate(re.split(r"\(\d+\)", row["response"])[1:])]
    assert true_score(question, " ".join(sentences[:3]))["score"] == 4
    repeated = true_score(question, " ".join([*sentences[:3], sentences[0]]))
    assert repeated["score"] == 4 and repeated["repeated"] == 1
    strange = true_score(question, " ".join([*sentences, "(5) I like it."]))
    assert strange["score"] == 4 and strange["unreadable"] == 1
    assert true_score(question, "")["score"] == 1
    with pytest.raises(ValueError, match="names no scene"):
        true_score({**question, "group": "photo"}, "")


def test_the_policy_for_scenes_answers_in_claims_and_imperfectly() -> None:
    questions = preference.scene_questions("validation", limit=40)
    options = {"temperature": 1.0, "max_new_tokens": 90, "progress": False}
    answers = preference.load_policy("tiny-policy").respond(questions, **options)
    scored = preference.score_answers(questions, answers)
    assert scored["true_unreadable"].mean() < 0.5 and scored["true_claims"].mean() > 3
    assert 1.7 < scored["true_score"].mean() < 3 and scored["true_score"].max() > 3


def test_policies_side_by_side_show_a_judge_that_is_pleased_alone() -> None:
    rng, n = np.random.default_rng(4), 60
    base = pd.DataFrame({"id": [f"q{i}" for i in range(n)], "group": [f"g{i // 2}" for i in range(n)]})
    before = base.assign(judge=rng.normal(3, 0.3, n), truth=rng.normal(3, 0.3, n))
    pleased = before.assign(judge=before["judge"] + rng.normal(1, 0.2, n), truth=before["truth"] - 0.5)
    table = preference.compare_policies({"before": before, "after": pleased, "short": pleased[:50]}, n_resamples=500)
    assert table.loc[("judge", "before"), "estimate"] == pytest.approx(before["judge"].mean())
    assert np.isnan(table.loc[("judge", "before"), "change"])
    assert table.loc[("judge", "after"), "change_low"] > 0.8
    assert table.loc[("truth", "after"), ["change", "change_high"]].tolist() == pytest.approx([-0.5, -0.5])
    assert table.loc[("judge", "short"), ["n", "missing"]].tolist() == [50, 10] and "bootstrap" in table.attrs["method"]
    with pytest.raises(KeyError, match="length"):
        preference.compare_policies({"after": pleased}, columns=["length"])


@pytest.mark.filterwarnings("ignore")  # so few answers
def test_what_a_judge_overpays_is_the_mean_error_with_a_mark_less_that_without() -> None:
    error, mark = pd.Series([2.0, 1, 0, 0, 0, np.nan]), [True, True, False, False, False, True]
    row = preference.mean_of(error, list("abcdef"), mark=mark, n_resamples=300).iloc[0]
    assert (row["estimate"], row["n"], row["missing"]) == (1.5, 5, 1) and row["low"] < 1.5 < row["high"]
