"""GRPO by TRL on small models: scored as it was written, repeatable, resumable; a judge learns."""

from pathlib import Path

import pytest
import torch
from PIL import Image

from conftest import make_rows
from vjudge import models, preference
from vjudge.data import CollectionError
from vjudge.engines import Ask
from vjudge.judging.loading import load_judge
from vjudge.preference.reinforcement import Learner, grpo
from vjudge.training.collate import encode_pictures

POLICY = Path(models.locate("tiny-policy"))
FAST = {"num_generations": 4, "per_device_train_batch_size": 8, "gradient_accumulation_steps": 1}
FAST |= {"max_completion_length": 6, "learning_rate": 2e-3, "freeze": ["tower", "projector"]}
QUESTIONS = [
    {
        "id": str(n),
        "instruction": f"What is in picture {n}?",
        "images": [Image.new("RGB", (40, 30))],
    }
    for n in range(4)
]


def many_a(prompts, completions, **columns):
    return [text.count("a") / 5 for text in completions]


@pytest.mark.parametrize("kind", ["onevision", "qwen2_vl", "gemma3"])
def test_answers_are_scored_by_the_tokens_and_pixels_that_they_were_written_by(kind, base_of):
    policy = load_judge(base_of(kind), dtype="float32")
    prompts = [preference.prompt_of(policy, row) for row in QUESTIONS[:2]]
    learner = Learner(policy, QUESTIONS[:2], prompts)
    tokens = learner.answers([0, 1, 0], Ask(max_new_tokens=5, temperature=1.0, seeds=[1, 2, 3]))
    assert [len(ids) <= 5 for ids in tokens] == [True] * 3 and tokens[0] != tokens[2]
    # greedy answers are what the scoring pass finds most probable, step by step
    tokens = learner.answers([0, 1], Ask(max_new_tokens=4))
    sequences = [learner.ids[n] + ids for n, ids in enumerate(tokens)]
    batch = learner.batch([0, 1], sequences, [len(ids) for ids in tokens])
    labels = batch.pop("labels")
    model = policy.engine.model
    encode_pictures(model)
    with torch.no_grad():
        logits = model.model(**batch).logits[:, :-1]
    logits[..., list(model.non_text_token_ids)] = -torch.inf
    scored = labels[:, 1:] >= 0
    assert logits.argmax(-1)[scored].tolist() == labels[:, 1:][scored].tolist()


def test_the_reward_rises_and_an_interrupted_training_ends_in_the_same_bits(tmp_path, monkeypatch):
    options = {**FAST, "max_steps": 6}
    whole = grpo(POLICY, QUESTIONS, many_a, tmp_path / "whole", **options)
    rewards = [entry["reward"] for entry in whole["log"]]
    assert len(rewards) == 6 and sum(rewards[3:]) > sum(rewards[:3])
    assert grpo(POLICY, QUESTIONS, many_a, tmp_path / "whole", **options) == whole
    answers = Learner.answers
    calls = []

    def broken(learner, *arguments):
        calls.append(arguments)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return answers(learner, *arguments)

    options |= {"save_strategy": "steps", "save_steps": 1}
    monkeypatch.setattr(Learner, "answers", broken)
    with pytest.raises(KeyboardInterrupt):
        grpo(POLICY, QUESTIONS, many_a, tmp_path / "cut", **options)
    grpo(POLICY, QUESTIONS, many_a, tmp_path / "cut", **options)
    assert len(calls) == 7  # not from the start
    assert models.fingerprint(tmp_path / "cut") == models.fingerprint(tmp_path / "whole")
    with pytest.raises(ValueError, match=r"another training \(other reward\)"):
        grpo(POLICY, QUESTIONS, preference.verdict_reward, tmp_path / "cut", **options)


@pytest.mark.parametrize("lora", [None, {"r": 4}])
def test_a_judge_learns_from_right_verdicts_held_to_where_it_began(random_judge, tmp_path, lora):
    items = make_rows(4)
    reward = preference.verdict_reward("prometheus-vision")
    options = {**FAST, "freeze": [], "beta": 0.1, "max_steps": 2, "lora": lora}
    record = grpo(random_judge, items, reward, tmp_path / "out", **options)
    assert record["log"][0]["kl"] == pytest.approx(0, abs=1e-6)
    assert reward.counts.loc["completions", "n"] == 16
    assert load_judge(tmp_path / "out").template.name == "prometheus-vision"


@pytest.mark.parametrize(
    "change, message",
    [
        ({"max_completion_length": 5000}, r"4 of 4 rows(.|\n)*leaves no room in the context"),
        ({"top_k": 5, "use_vllm": True}, "top_k, use_vllm: not used"),
        ({"num_generations": 3}, "divisible"),
        ({"judge": "tiny"}, "has no columns|criteria|descriptions"),
        ({"rows": [QUESTIONS[0] | {"instruction": " "}]}, "instruction: is missing or blank"),
    ],
)
def test_unsound_calls_are_refused_before_a_folder_is_made(random_judge, tmp_path, change, message):
    judge = load_judge("tiny", device="cpu") if change.pop("judge", None) else many_a
    rows = change.pop("rows", QUESTIONS)
    with pytest.raises((CollectionError, ValueError), match=message):
        grpo(random_judge, rows, judge, tmp_path / "out", **FAST | change)
    assert not (tmp_path / "out").exists()
