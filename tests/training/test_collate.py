"""Rows to batches: exactly the answer carries loss, by each model's own processor and conversation."""

import numpy as np
import torch
from PIL import Image
from pytest import approx, mark, raises
from training_cases import pairs_with_feedback, rows_with_feedback

from chatmodels import CHATS, TEXTS
from originals import forward
from vjudge.judging.loading import load_judge
from vjudge.prompts import TEMPLATES
from vjudge.prompts.parse import parse
from vjudge.training.collate import (
    IGNORED,
    Examples,
    answer_loss,
    encode_pictures,
    training_order,
)
from vjudge.training.targets import prompt_and_target

MODELS = dict.fromkeys(CHATS, "chat") | TEXTS
MODELS |= {"random": "prometheus-vision", "onevision": "llava-critic-rubric"}


def judge_of(base, template, rows):
    """A judge, and its examples of some rows."""
    judge = load_judge(base, template=template, device="cpu")
    return judge, Examples(rows, judge.engine.model, judge.template)


def mixed_rows():
    """One image, none, two, of several sizes; texts of several lengths."""
    rows = rows_with_feedback(4)
    pictures = [Image.effect_noise(size, 90).convert("RGB") for size in ((60, 40), (30, 90))]
    for row, images in zip(rows, ([pictures[0]], [], pictures, [pictures[1]]), strict=True):
        row["images"] = images
    rows[2]["response"] = "it is " * 12
    return rows


@mark.parametrize("kind", MODELS)
def test_exactly_the_answers_tokens_carry_loss(kind, base_of):
    """Decoded they are feedback, verdict and the end; a padded batch has the loss of each row by
    itself, as the judge's engine computes it."""
    rows = mixed_rows()
    judge, examples = judge_of(base_of(kind), MODELS[kind], rows)
    engine, network = judge.engine, judge.engine.model.model
    total, n_tokens = 0.0, 0
    for row in rows:
        example = examples.encode(row)
        start = example.labels.count(IGNORED)
        trained = example.labels[start:]
        assert example.labels[:start] == [IGNORED] * start and example.ids[start:] == trained
        prompt, target = prompt_and_target(row, judge.template)
        answer = judge.template.conversation.reply + target
        assert engine.model.tokenizer.decode(trained[:-1]) == answer
        assert row["feedback"] in target and target.rstrip(".").endswith(f"{row['gold']:.0f}")
        assert trained[-1] in engine.ends
        _, logits = forward(engine, prompt.append(answer), example.images)
        logits = logits[-len(trained) :]
        loss = torch.nn.functional.cross_entropy(logits, torch.tensor(trained), reduction="sum")
        total += float(loss)
        n_tokens += len(trained)
    batch = examples.collate(range(len(rows)))
    labels = batch.pop("labels")
    assert ((labels != IGNORED) <= (batch["attention_mask"] == 1)).all()
    if kind == "random":
        assert (len(batch["pictures"]), len(batch["shown"])) == (2, 4)  # each is opened once
    hook = encode_pictures(engine.model)
    with torch.no_grad():
        loss = answer_loss(network(**batch), labels, n_tokens)
    hook.remove()
    assert float(loss) == approx(total / n_tokens, rel=1e-4)


@mark.parametrize("kind", CHATS)
def test_a_chat_models_own_processor_and_template_make_the_example(kind, base_of):
    row = rows_with_feedback(1)[0]
    judge, examples = judge_of(base_of(kind), "chat", [row])
    processor = judge.engine.model.processor
    prompt, target = prompt_and_target(row, TEMPLATES["chat"])
    text = processor.apply_chat_template(prompt.messages(), add_generation_prompt=True)
    text += judge.template.conversation.reply + target
    options = {"add_special_tokens": False, "return_tensors": "pt"}
    own = processor(text=text, images=[row["images"]], **options)
    batch = examples.collate([0])
    assert batch["input_ids"][0, :-1].tolist() == own.pop("input_ids")[0].tolist()
    assert int(batch["labels"][0, -1]) in judge.engine.ends
    for name in own.keys() & batch.keys():
        of_tokens = name in ("attention_mask", "mm_token_type_ids", "token_type_ids")
        values = batch[name][:, :-1] if of_tokens else batch[name]
        torch.testing.assert_close(values, own[name], check_dtype=False)
    assert "pixel_values" in batch


PAIRS = {  # wording -> its answer to a pair whose first response is the better one
    "prometheus-2-relative": "So. [RESULT] A",
    "llava-critic-pair": "The first response is better.\nSo.",
    "llava-critic-r1-pair": "<think>So.</think>\\boxed{1}",
    "r1-reward": "<think>So.</think><answer>1</answer>",
    "unified-reward-think": "<think>\nSo.\n</think>\n<answer>Answer 1 is better</answer>",
    "unified-reward-answers": "So.\nAnswer 1 is better.",
    "chat-relative": "So.\nThe better answer is A.",
    "chat-json-pairs": '{"feedback": "So.", "choice": "A"}',
}
SCORES = {  # wording, shape -> its answer of score 4
    ("prometheus-vision", "feedback"): "So. So the overall score is 4.\n[RESULT] 4",
    ("prometheus-vision", "score"): "[RESULT] 4",
    ("prometheus-vision", "score-first"): "[RESULT] 4\nSo.",
    ("unified-reward", "feedback"): "So.\nFinal Score: 4",
    ("chat", "feedback"): "So.\nThe final score is 4.",
    ("chat-json", "feedback"): '{"feedback": "So.", "score": 4}',
    ("chat-json", "score"): '{"score": 4}',
    ("llava-critic", "feedback"): "Score: 4\nSo.",
    ("llava-critic-r1", "feedback"): "<think>So.</think>\\boxed{4}",
}


@mark.parametrize("name", PAIRS)
def test_a_pairs_answer_is_the_wordings_own_and_is_read_back(name):
    template = TEMPLATES[name]
    row = pairs_with_feedback(1)[0] | {"feedback": "So."}
    assert prompt_and_target(row, template)[1] == PAIRS[name]
    for row["preference"] in "ab":
        for shape in ("feedback", "score"):
            _, target = prompt_and_target(row, template, shape=shape)
            assert ("So." in target) is (shape == "feedback")
            assert parse(target, format=template.format).choice == row["preference"]
    with raises(ValueError, match="preference: a target needs 'a' or 'b'"):
        prompt_and_target(row | {"preference": None}, template)


@mark.parametrize("name, shape", SCORES)
def test_a_scores_answer_is_the_wordings_own_and_is_read_back(name, shape):
    row = rows_with_feedback(1)[0] | {"gold": 4.0, "feedback": "So."}
    template = TEMPLATES[name]
    _, target = prompt_and_target(row, template, shape=shape)
    assert target == SCORES[name, shape]
    if shape != "score-first":
        assert parse(target, scores=(1, 2, 3, 4, 5), format=template.format).score == 4


def test_named_criteria_need_an_answer_of_their_own():
    named = [{"name": name, "criteria": "Is it?"} for name in ("accuracy", "style")]
    with raises(ValueError, match="criteria: named criteria are answered by a score each"):
        prompt_and_target(rows_with_feedback(1)[0] | {"criteria": named}, TEMPLATES["chat-json"])


def test_epochs_are_drawn_anew_and_alike():
    lengths = [n * 7 % 13 + 1 for n in range(37)]
    order = training_order(lengths, steps=18, batch_size=4, seed=1)
    first, second = order[:37], order[37:]
    assert sorted(first) == list(range(37)) and len(set(second)) == 35 and first[:35] != second
    steps = np.array(lengths)[first[:36]].reshape(9, 4)
    assert np.ptp(steps, axis=1).mean() < 2  # rows of like length stand together


def test_published_texts_go_in_as_they_are(base_of):
    """A row of LLaVA-Critic-113k is trained on its own prompt and answer, in ChatML."""
    row = {"id": "1", "images": [Image.new("RGB", (20, 30))]}
    row |= {"prompt": "Say <|im_end|> which.", "target": " A.\nScore: 7"}
    judge, examples = judge_of(base_of("onevision"), "llava-critic", [row])
    tokenizer, example = judge.engine.model.tokenizer, examples.encode(row)
    start = example.labels.count(IGNORED)
    assert tokenizer.decode(example.ids[start:]) == " A.\nScore: 7<|im_end|>"
    asked = tokenizer.decode(example.ids[:start]).replace("<image>", "")
    assert asked.endswith("user\n\nSay <|im_end|> which.<|im_end|>\n<|im_start|>assistant\n")
    assert (
        example.ids.count(tokenizer.convert_tokens_to_ids("<|im_end|>")) == 3
    )  # the one in the text is spelled out
