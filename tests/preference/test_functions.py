"""Rewards by a judge and of verdicts, as TRL, verl and OpenRLHF call for them."""

import pytest
from pandas import DataFrame
from PIL import Image

from vjudge import preference
from vjudge.data import CollectionError

NAN = float("nan")
RUBRIC = {"criteria": "Is it right?", "descriptions": ["bad", "poor", "fair", "good", "right"]}
RED, BLUE = (Image.new("RGB", (8, 8), colour) for colour in ("red", "blue"))


class Lengths:
    """A judge whose score is the number of words; "?" has no verdict, "~" no distribution."""

    name = "lengths"

    def __init__(self):
        self.asked = []

    def grade(self, items, **options):
        assert options == {"progress": False}
        self.asked.append([item["response"] for item in items])
        rows = []
        for item in items:
            score = NAN if "?" in item["response"] else float(len(item["response"].split()))
            expected = NAN if "~" in item["response"] else score + 0.25
            failure = "no marker" if score != score else None
            cells = {"id": item["id"], "score": score, "expected_score": expected}
            rows.append(cells | {"failure": failure, "closed": "!" in item["response"]})
        return DataFrame(rows)


def columns(n, **more):
    return {name: [cell] * n for name, cell in {**RUBRIC, **more}.items()}


def test_equal_questions_are_graded_once_and_every_outcome_is_counted():
    judge = Lengths()
    reward = preference.reward_function(judge)
    logged = []
    answers = ["a b", "a b ", "why?", "", "so ~", "yes!"]
    options = {"completion_ids": [[1]] * 6, "trainer_state": None, "log_extra": print}
    options |= {"log_metric": lambda *entry: logged.append(entry)}
    rewards = reward(["What?"] * 6, answers, **options, **columns(6, image=RED))
    assert rewards == [2.25, 2.25, None, None, 2.0, 1.25]
    assert logged == [("rewards/missing", 2 / 6)]
    assert judge.asked == [["a b", "why?", "so ~", "yes!"]]
    # another picture, question or rubric is another question; a failure is asked again
    again = [
        ("What?", RED, "a b"),
        ("What?", BLUE, "a b"),
        ("Why?", RED, "a b"),
        ("What?", RED, "why?"),
    ]
    for instruction, picture, answer in again:
        reward([instruction], [answer], **columns(1, images=[picture]))
    reward(["What?"], ["a b"], **columns(1, images=[RED]) | {"criteria": ["Is it short?"]})
    assert judge.asked[1:] == [["a b"], ["a b"], ["why?"], ["a b"]]
    assert reward.counts["n"].to_dict() == {
        "questions put to the judge": 8,
        "an expected score": 7,
        "no verdict: no marker": 2,
        "no verdict: the completion is blank": 1,
        "a score without a distribution": 1,
        "closed": 1,
        "completions": 11,
    }


def test_a_reward_that_equals_that_of_missing_ones_is_not_counted_as_missing():
    logged = []
    reward = preference.reward_function(Lengths(), missing=1.25)
    log = {"log_metric": lambda *entry: logged.append(entry)}
    assert reward(["What?"] * 2, ["yes", "why?"], **log, **columns(2, image=RED)) == [1.25, 1.25]
    assert logged == [("rewards/missing", 1 / 2)]


def test_pictures_of_a_response_are_told_by_their_content():
    judge = Lengths()
    reward = preference.reward_function(judge)
    for picture in (RED, RED.copy(), BLUE):
        reward(["What?"], ["a b"], **columns(1, image=RED, response_images=[picture]))
    assert judge.asked == [["a b"], ["a b"]]


def test_conversations_bring_their_question_and_pictures():
    judge = Lengths()
    reward = preference.reward_function(judge)
    parts = [{"type": "image", "image": RED}, {"type": "text", "text": "What?"}]
    said = [{"role": "assistant", "content": "a b c"}]
    spoken = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": parts}]
    assert reward([spoken], [said], **columns(1)) == [3.25]
    assert reward(["What?"], ["a b c"], **columns(1, images=[RED])) == [3.25]
    assert len(judge.asked) == 1


def test_verl_and_openrlhf_name_rows_by_their_labels():
    rows = [{"id": "q1", "instruction": "What?", "images": [RED], **RUBRIC}]
    reward = preference.reward_function(Lengths(), rows=rows, missing=-1.0)
    one = {"data_source": "mine", "solution_str": "a b", "ground_truth": "q1", "extra_info": {}}
    assert reward.verl(**one) == 2.25
    many = {"data_sources": ["mine"] * 2, "solution_strs": ["a", "why?"]}
    assert reward.verl(**many, ground_truths=["q1"] * 2, extra_infos=[{}] * 2) == [1.25, -1.0]
    # OpenRLHF decodes a picture's places into the query, and the prompt holds its tail twice
    tail = "<|im_end|>\n<|im_start|>assistant\n"
    prompt = f"<img>Hi{tail}Hello{tail}"
    query = f"<pad><pad><pad>Hi{tail}Hello{tail}a b c<|im_end|>"
    given = reward.openrlhf([query], [prompt], ["q1"], end="<|im_end|>")
    assert given["rewards"].tolist() == given["scores"].tolist() == [3.25]
    with pytest.raises(ValueError, match="does not hold the end of its prompt"):
        reward.openrlhf(["a b c"], [prompt], ["q1"])
    with pytest.raises(ValueError, match="'q2' is no id of rows="):
        reward.verl(**one | {"ground_truth": "q2"})
    with pytest.raises(ValueError, match="missing=: say what"):
        preference.reward_function(Lengths(), rows=rows).verl(**one)


SCORED = {"gold": 4.0, "human_scores": [3.0, None, 4.0], "response": "A cat."}


@pytest.mark.parametrize(
    "answer, options, finish, reward",
    [
        ("So. [RESULT] 4", {}, "stop", 1.0),
        ("So. [RESULT] 3", {}, "stop", 0.1 + 0.9 * 3 / 4),
        ("So. [RESULT] 1", {"form": 0.5}, "stop", 0.5 + 0.5 * 1 / 4),
        ("So. [RESULT] 3", {"truth": "people"}, "stop", 0.1 + 0.9 * (1 - 0.5 / 4)),
        ("So. [RESULT] 9", {}, "stop", 0.0),
        ("So. [RESULT] 4", {}, "length", 0.0),
    ],
)
def test_a_verdicts_reward_by_hand(answer, options, finish, reward):
    function = preference.verdict_reward("prometheus-vision", **options)
    given = function(["What?"], [answer], finish=[finish], **columns(1, **SCORED))
    assert given == pytest.approx([reward])
    assert function.counts.loc["right", "n"] == (reward == 1.0)


def test_a_preference_is_right_or_wrong_and_rows_without_a_truth_have_no_reward():
    function = preference.verdict_reward("r1-reward")
    pair = {"response_a": "A cat.", "response_b": "A dog.", "images": []}
    texts = ["<think>.</think><answer>2</answer>", "<answer>1</answer>", "none"]
    rewards = function(["What?"] * 3, texts, preference=["b", "b", "b"], **columns(3, **pair))
    assert rewards == pytest.approx([1.0, 0.1, 0.0])
    assert function([""], texts[:1], preference=[None], **columns(1, **pair)) == [None]
    row = {"id": "p", "instruction": "What?", "preference": None, **pair}
    with pytest.raises(CollectionError, match=r"\(id 'p'\), preference: is missing"):
        function.check([row])
    for options in ({"truth": "votes"}, {"form": 2}):
        with pytest.raises(ValueError, match="use"):
            preference.verdict_reward("r1-reward", **options)
