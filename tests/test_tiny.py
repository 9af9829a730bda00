"""The embedded judge on held-out scenes: it judges well, it looks, and grading it is exact."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from safetensors import safe_open

import vjudge as vj
from vjudge import probes
from vjudge.data import scenes
from vjudge.records import Item

N = 160
ASSETS = Path(vj.__file__).parent / "assets"


@pytest.fixture(scope="module")
def judge():
    return vj.load_judge("tiny")


@pytest.fixture(scope="module")
def items():
    return vj.load_collection("scenes", split="test", limit=N)


@pytest.fixture(scope="module")
def run(judge, items):
    return judge.grade(items, progress=False)


def _pearson(run, column="score"):
    return run[column].corr(run["gold"])


def test_it_agrees_with_the_truth_over_all_and_within_every_aspect(run):
    assert min(_pearson(run), _pearson(run, "expected_score")) >= 0.92
    for aspect, rows in run.groupby(run["criteria"].map(scenes.ASPECT_OF)):
        assert _pearson(rows) >= 0.80, aspect


def test_it_agrees_with_and_without_a_reference_answer(run, items):
    given = pd.Series([text is not None for text in items["reference_answer"]])
    assert 0.3 < given.mean() < 0.7
    assert min(_pearson(run[given]), _pearson(run[~given])) >= 0.90


def test_its_answers_can_be_read(run):
    assert run["score"].notna().mean() >= 0.99
    assert (run["score"].isna() == run["failure"].notna()).all()


@pytest.mark.parametrize("change", [probes.blanked, probes.swapped])
def test_without_the_right_picture_it_knows_nothing(judge, items, change):
    blind = judge.grade(change(items), progress=False)
    assert abs(_pearson(blind)) <= 0.25


def test_its_feedback_names_the_error(run, items):
    """Feedback of a rightly scored item is mostly the true one, word for word."""
    right = run[run["score"] == run["gold"]]
    true = pd.Series(items["feedback"])[right.index]
    same = [text.startswith(own) for text, own in zip(right["feedback"], true, strict=True)]
    assert np.mean(same) > 0.8


def test_batches_equal_one_at_a_time(judge, items, run):
    """Texts are the same to the letter; where one differs, the choice was a tie within 1e-5."""
    some = items.select(range(0, 40, 2))
    alone = judge.grade(some, batch_size=1, progress=False)
    together = judge.grade(some, progress=False)
    assert alone["raw"].tolist() == together["raw"].tolist()
    np.testing.assert_allclose(alone["expected_score"], together["expected_score"], atol=1e-4)


def test_the_distribution_is_the_verdicts(run):
    """Greedy decoding writes the score that the distribution at the verdict says is likeliest."""
    known = run[run["score"].notna()]
    shares = pd.DataFrame(known["probabilities"].tolist(), known.index)
    assert (shares.idxmax(axis=1).astype(float) == known["score"]).all()
    assert known["probability_mass"].min() > 0.9
    mean = shares @ shares.columns.astype(float)
    np.testing.assert_allclose(mean, known["expected_score"], atol=1e-9)


@pytest.mark.parametrize("name", ["tiny", "tiny-base", "tiny-policy"])
def test_vllm_finds_the_weights_of_what_is_shipped(name):
    with safe_open(ASSETS / name / "model.safetensors", "pt") as weights:
        tower = [key for key in weights.keys() if "vision_tower" in key]
    assert tower and all(key.startswith("vision_tower.vision_model.") for key in tower)


@pytest.mark.parametrize("name", ["tiny", "tiny-base", "tiny-policy"])
def test_a_chat_endpoint_writes_what_is_shipped_its_own_prompts(name, items):
    """A server has the chat template alone, and adds no token to what it writes."""
    judge = vj.load_judge(name, template="prometheus-vision")
    tokenizer = judge.engine.model.tokenizer
    image = judge.engine.model.image_token_id
    places = judge.engine.model.tokens_per_image
    for row in items.select(range(20)):
        item = Item.from_row(row)
        own = judge.engine.encoder.ids(judge.template.render(item))
        messages = judge.template.as_messages().render(item).messages()
        text = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
        served = tokenizer(text, add_special_tokens=False).input_ids
        where = served.index(image)
        assert served[:where] + [image] * places + served[where + 1 :] == own


def test_the_package_ships_weights_log_and_card():
    assert (ASSETS / "tiny/model.safetensors").stat().st_size <= 12_000_000
    log = pd.read_json(ASSETS / "tiny/training_log.jsonl", lines=True)
    assert log["stage"].unique().tolist() == ["tower", "describe", "read", "judge"]
    card = (ASSETS / "tiny/README.md").read_text()
    assert "python -m assets.tiny" in card and "--seed" in card
