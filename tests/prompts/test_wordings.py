"""Wordings: each to the letter, against its published samples and the original code."""

# ruff: noqa: E501

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import pytest
from jsonschema import ValidationError, validate

from originals import question
from vjudge import prompts
from vjudge.prompts import TEMPLATES, Control
from vjudge.records import Criterion, Item, Pair, Rubric

SHARED = Path(__file__).parents[3] / "shared"
SAMPLES = SHARED / "data" / "prometheus_vision_samples"
FIXTURES = SHARED / "fixtures" / "llava15-original" / "golden.json"
CRITIC = SHARED / "fixtures" / "llava-next-original"

SYSTEM = prompts.VICUNA_V1.system
ITEM = Item(
    id="a",
    images=("cat.png",),
    instruction="Describe the animal.\nBe brief.",
    response="  A {black} cat \u2014 asleep.",
    rubric=Rubric("Is every claim true?", ("None.", "Few.", "Half.", "Most.", "All.")),
    reference_answer="A black cat asleep on a mat.",
    context="A cat on a mat.",
)

PAIR = Pair(
    id="p",
    images=("cat.png",),
    instruction=ITEM.instruction,
    response_a=ITEM.response,
    response_b="A dog.",
    rubric=ITEM.rubric,
    reference_answer=ITEM.reference_answer,
)


def subject(template, **changes):
    """What a template judges, with other texts."""
    if not template.compares:
        return replace(ITEM, **changes)
    if "response" in changes:
        changes["response_a"] = changes.pop("response")
    return replace(PAIR, **changes)


def test_each_wording_to_the_letter():
    """By one digest of all prompts; the texts were typed from the sources that the templates name."""
    prompts = {
        name: template.render(subject(template))
        for name, template in TEMPLATES.items()
        if not template.reply and not name.startswith("chat")  # those are ours, and measured
    }
    assert prompts["prometheus-vision"].text.startswith(
        f"{SYSTEM} USER: <image>\n###Task Description"
    )
    assert all(prompt.n_images == TEMPLATES[name].sees_images for name, prompt in prompts.items())
    digest = hashlib.sha256(
        "\n".join(prompts[name].text for name in sorted(prompts)).encode()
    ).hexdigest()
    assert (len(prompts), digest[:12]) == (24, "a6008e9bfdf2")


@pytest.mark.skipif(not SAMPLES.is_dir(), reason=f"the published samples are not at {SAMPLES}")
def test_the_published_samples_byte_for_byte():
    rows = [
        json.loads(line)
        for line in (SAMPLES / "sample_eval_data.jsonl").read_text("utf-8").splitlines()
    ]
    assert len(rows) == 3
    for row in rows:
        rubric = Rubric(
            row["orig_criteria"],
            tuple(row[f"orig_score{score}_description"] for score in range(1, 6)),
        )
        texts = (
            row["orig_instruction"],
            row["original_response"],
            rubric,
            row["orig_reference_answer"],
        )
        item = Item("a", (row["image"],), *texts)
        prompt = TEMPLATES["prometheus-vision"].render(item)
        assert prompt.text == f"{SYSTEM} USER: <image>\n{row['instruction']} ASSISTANT:"


def test_the_original_codes_prompt_byte_for_byte():
    if not FIXTURES.is_file():
        pytest.skip(f"the original code's outputs are not at {FIXTURES}")
    golden = json.loads(FIXTURES.read_text("utf-8"))["prompts"]["prometheus"]["prompt"]
    levels = [f"{count} named." for count in ("None", "Few", "Half", "Most")]
    levels.append("All named, e.g. \"red\" & 'blue' (na\u00efve caf\u00e9 \u2603).")
    item = Item(
        "a",
        ("wide.png",),
        "Describe the coloured boxes in the picture.\nBe brief.",
        "Two boxes; one is red, the other  blue \u2014 see left.\n\n- 12 px\n- 3.5 cm",
        Rubric("Does the response name every box?", tuple(levels)),
        "A striped field with five boxes.",
    )
    assert TEMPLATES["prometheus-vision-readme"].render(item).text == golden


def test_chatml_byte_for_byte_and_token_for_token():
    if not CRITIC.is_dir():
        pytest.skip(f"the original code's outputs are not at {CRITIC}")
    golden = json.loads((CRITIC / "golden.json").read_text("utf-8"))["prompts"]
    import numpy as np
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(CRITIC / "llava-critic-qwen-tiny")
    arrays = np.load(CRITIC / "golden.npz")
    for name, case in golden.items():
        n_images = case["question"].count("<image>")
        prompt = question(prompts.QWEN_1_5, case["question"], n_images)
        assert prompt.text == case["prompt"]
        assert spell(tokenizer, prompt) == arrays[f"ids/{name}"].tolist(), name


JUDGES = SHARED / "data" / "judges"
FILLED = {  # the names of the texts in the files of `JUDGES`
    "Query": "instruction",
    "question": "instruction",
    "data_obj['query']": "instruction",
    "Response": "response",
    "R1": "response_a",
    "answer1": "response_a",
    "answers[0]": "response_a",
    "R2": "response_b",
    "answer2": "response_b",
    "answers[1]": "response_b",
}
THOUGHT = "<think>\n1. Clarity: Answer 1 (9/10) - ...; Answer 2 (7/10) - ...\nTotal score:\nAnswer 1: 9+8=17\nAnswer 2: 7+7=14\n</think>\n"
# wording | its file | an answer in its form | the verdict
PUBLISHED = r"""
unified-reward | unified-reward-points.txt | It names both.\nFinal Score: 85 | 85
unified-reward-qwen | - | It names both.\nFinal Score: 100 | 100
unified-reward-pair | unified-reward-pairs.txt | The first response is better. | a
unified-reward-answers | unified-reward-answers-pairs.txt | Both try.\nAnswer 2 is better. | b
unified-reward-think | unified-reward-think-llava-pairs.txt | THOUGHT<answer>Answer 1 is better</answer> | a
unified-reward-think-qwen3vl | unified-reward-think-qwen3vl-pairs.txt | THOUGHT<answer>Answer 2 is better</answer> | b
r1-reward | r1-reward-pairs.txt | <think>1 is vague.</think><answer>2</answer> | b
llava-critic-r1 | - | <think>Fine.</think> \boxed{85} | 85
llava-critic-r1-pair | - | <think>2 is vague.</think> \boxed{1} | a
vl-rewardbench | vl-rewardbench-pairs.txt | 1. ...\n**Overall Judgment: Answer 2 is better.** | b
mmrb2 | - | {"reasoning": "B is vague.", "better_response": "A"} | a
"""


@pytest.mark.parametrize("row", PUBLISHED.split("\n")[1:-1])
def test_todays_judges(row):
    """Each prompt to the letter, and an answer in its form is read."""
    name, file, answer, verdict = row.split(" | ")
    answer = answer.replace("THOUGHT", THOUGHT).replace("\\n", "\n")
    template = TEMPLATES[name]
    judged = subject(template)
    prompt = template.render(judged)
    read = prompts.parse.parse(answer, scores=template.scores(), format=template.format)
    assert (read.choice or f"{read.score:g}") == verdict
    if file != "-" and JUDGES.is_dir():
        text = (JUDGES / file).read_text("utf-8").removeprefix("<image>\n")
        for placeholder, field in FILLED.items():
            text = text.replace(f"{{{placeholder}}}", getattr(judged, field, ""))
        assert prompt == template.conversation.wrap(text, 1)


def test_a_value_heads_response_is_the_assistants_turn():
    template = TEMPLATES["skywork-vl-reward"]
    assert (template.gives, template.closing, template.scores()) == ("value", None, ())
    prompt = replace(template, conversation=prompts.QWEN_1_5).render(ITEM)
    turn = f"<image>\n{ITEM.instruction}<|im_end|>\n<|im_start|>assistant\n{ITEM.response}"
    assert prompt.text.endswith(turn)
    with pytest.raises(ValueError, match="needs its checkpoint"):
        template.render(ITEM)


SCORES = {"accuracy": 3, "clarity": 3}
SEVERAL = replace(
    ITEM.rubric, named=(Criterion("accuracy", "True?"), Criterion("clarity", "Clear?"))
)


def test_wordings_of_json_form_say_it_and_have_its_schema():
    one = TEMPLATES["chat-json"]
    pairs = TEMPLATES["chat-json-pairs"]
    for rubric, verdict in ((ITEM.rubric, {"score": 3}), (SEVERAL, {"scores": SCORES})):
        text = one.render(replace(ITEM, rubric=rubric)).text
        form = json.loads(text.rpartition("for example: ")[2])
        assert form | verdict == form
        validate(form, one.schema(rubric))
        with pytest.raises(ValidationError):
            validate({"feedback": "", "score": 6}, one.schema(rubric))
    assert "accuracy: True?\nclarity: Clear?\n" in text
    assert one.forced == '{"score":' and pairs.score_texts(()) == {0: ' "A', 1: ' "B'}
    assert '"choice": "B"' in pairs.render(PAIR).text
    with pytest.raises(ValueError, match="several criteria: use template='chat-json'"):
        TEMPLATES["chat"].render(replace(ITEM, rubric=SEVERAL))


def spell(tokenizer, prompt):
    """Token ids by the rule that engines obey: text without special tokens, -200 for an image, controls by name."""
    ids = []
    for part in prompt.parts:
        if isinstance(part, str):
            ids += tokenizer.encode(part, add_special_tokens=False, split_special_tokens=True)
        else:
            ids.append(
                tokenizer.convert_tokens_to_ids(part.text) if isinstance(part, Control) else -200
            )
    return ids


def test_without_a_reference_answer_nothing_mentions_one():
    for template in (
        template for template in TEMPLATES.values() if "{reference_section}" in template.body
    ):
        whole = template.render(subject(template)).text
        text = template.render(subject(template, reference_answer=" \n")).text
        assert "eference" not in text and text != whole
