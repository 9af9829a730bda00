"""Wordings: each to the letter, against its published samples and the original code."""

# ruff: noqa: E501

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from vjudge import prompts
from vjudge.prompts import TEMPLATES, Control, Prompt, Template
from vjudge.records import Item, Pair, Rubric

SHARED = Path(__file__).parents[3] / "shared"
SAMPLES = SHARED / "data" / "prometheus_vision_samples"
FIXTURES = SHARED / "fixtures" / "llava15-original" / "golden.json"
CRITIC = SHARED / "fixtures" / "llava-next-original"

SYSTEM = (
    "A chat between a curious user and an artificial intelligence assistant. "
    "The assistant gives helpful, detailed, and polite answers to the user's questions."
)
ITEM = Item(
    id="a",
    images=("cat.png",),
    instruction="Describe the animal.\nBe brief.",
    response="  A {black} cat \u2014 asleep.",
    rubric=Rubric("Is every claim true?", ("None.", "Few.", "Half.", "Most.", "All.")),
    reference_answer="A black cat asleep on a mat.",
    context="A cat on a mat.",
)

# Typed from the sources named in each template, so that this check stands without any other file.
VISION = """###Task Description:
An instruction (might include an Input inside it), a response to evaluate, a reference answer that gets a score of 5, and a score rubric representing an evaluation criterion is given.
1. Write a detailed feedback that assesses the quality of the response strictly based on the given score rubric, not evaluating in general.
2. After writing a feedback, write a score that is an integer between 1 and 5. You should refer to the score rubric.
3. The output format should look as follows: Feedback: (write a feedback for criteria) [RESULT] (an integer number between 1 and 5)
4. Please do not generate any other opening, closing, and explanations.

###The instruction to evaluate:
Describe the animal.
Be brief.

###Response to evaluate:
  A {black} cat \u2014 asleep.

###Reference Answer (Score 5):
A black cat asleep on a mat.

###Score Rubrics:
Is every claim true?
Score 1: None.
Score 2: Few.
Score 3: Half.
Score 4: Most.
Score 5: All.

###Feedback:"""
README = VISION.replace(", and a score rubric", ", image and a score rubric").replace(
    "Is every claim true?", "[Is every claim true?]"
)
TEXT = (
    VISION.replace("representing an evaluation criterion is given", "representing a evaluation criteria are given")
    .replace("that assesses the quality", "that assess the quality")
    .replace("Feedback: (write a feedback", '"Feedback: (write a feedback')
    .replace("(an integer number between 1 and 5)", '(an integer number between 1 and 5)"')
    .replace("Is every claim true?", "[Is every claim true?]")
    + " "
)
LLAMA_2 = "[INST] <<SYS>>\nYou are a fair evaluator language model.\n<</SYS>>\n\n"
UNSEEN = "(This instruction comes with an image that you cannot see.)\n"
BLIND_TEXT = TEXT.replace("Describe the animal.", f"{UNSEEN}Describe the animal.")
PROMETHEUS_2 = (
    "You are a fair judge assistant tasked with providing clear, objective feedback based on specific criteria, ensuring each assessment reflects the absolute standards set for performance.\n"
    + BLIND_TEXT.replace("Feedback: (write", "(write")
)
RELATIVE_2 = """You are a fair judge assistant assigned to deliver insightful feedback that compares individual performances, highlighting how each stands relative to others within the same cohort.
###Task Description:
An instruction (might include an Input inside it), a response to evaluate, a reference answer, and a score rubric representing a evaluation criteria are given.
1. Write a detailed feedback that assess the quality of two responses strictly based on the given score rubric, not evaluating in general.
2. After writing a feedback, choose a better response between Response A and Response B. You should refer to the score rubric.
3. The output format should look as follows: "(write a feedback for criteria) [RESULT] (A or B)"
4. Please do not generate any other opening, closing, and explanations.

###Instruction:
(This instruction comes with an image that you cannot see.)
Describe the animal.
Be brief.

###Response A:
  A {black} cat \u2014 asleep.

###Response B:
A dog.

###Reference Answer:
A black cat asleep on a mat.

###Score Rubric:
[Is every claim true?]

###Feedback: """
CHATML = "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n<|im_start|>user\n<image>\n"
REPLY = "<|im_end|>\n<|im_start|>assistant\n"
POINTWISE = "Given an image and a corresponding question, please serve as an unbiased and fair judge to evaluate the quality of answer answers provided by a Large Multimodal Model (LMM). Score the response out of 100 and explain your reasoning with specific details. Your task is provided as follows:\nQuestion: [Describe the animal.\nBe brief.]\nThe LMM response: [  A {black} cat \u2014 asleep.]\nASSISTANT:\n "
PAIRWISE = "Given an image and a corresponding question, please serve as an unbiased and fair judge to evaluate the quality of the answers provided by a Large Multimodal Model (LMM). Determine which answer is better and explain your reasoning with specific details. Your task is provided as follows:\nQuestion: [Describe the animal.\nBe brief.]\nThe first response: [  A {black} cat \u2014 asleep.]\nThe second response: [A dog.]\nASSISTANT:\n"
PAIR = Pair(
    id="p",
    images=("cat.png",),
    instruction=ITEM.instruction,
    response_a=ITEM.response,
    response_b="A dog.",
    rubric=ITEM.rubric,
    reference_answer=ITEM.reference_answer,
)


def subject(template: Template, **changes: Any) -> Item | Pair:
    """What a template judges, with other texts."""
    if not template.compares:
        return replace(ITEM, **changes)
    if "response" in changes:
        changes["response_a"] = changes.pop("response")
    return replace(PAIR, **changes)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("prometheus-vision", f"{SYSTEM} USER: <image>\n{VISION} ASSISTANT:"),
        ("prometheus-vision-readme", f"{SYSTEM} USER: <image>\n{README} ASSISTANT:"),
        ("prometheus", f"{LLAMA_2}{BLIND_TEXT} [/INST]"),
        ("prometheus-2", f"[INST] {PROMETHEUS_2} [/INST]"),
        ("prometheus-2-relative", f"[INST] {RELATIVE_2} [/INST]"),
        ("llava-critic", f"{CHATML}{POINTWISE}{REPLY}"),
        ("llava-critic-pair", f"{CHATML}{PAIRWISE}{REPLY}"),
    ],
)
def test_each_wording_to_the_letter(name: str, expected: str) -> None:
    template = TEMPLATES[name]
    prompt = template.render(subject(template))
    assert prompt.text == expected
    assert prompt.n_images == template.sees_images == (not name.startswith("prometheus-2") and name != "prometheus")


def test_the_benchmarks_own_protocols_to_the_letter() -> None:
    """By the digests of the original texts, put together as the original scripts do."""
    item = Item("i", ("a.png",), "Q?", "RESP", reference_answer="REF", context="CTX")
    digests = {"llava-bench-wild": "e29569a1", "llava-bench-coco": "12f72131", "llava-wilder": "ac4681f9"}
    for name, digest in digests.items():
        prompt = TEMPLATES[name].as_messages().render(item)
        assert hashlib.sha256(prompt.text.removeprefix("<image>").encode()).hexdigest().startswith(digest)
        assert prompt.n_images == (name == "llava-wilder")  # the others read the context instead
    assert prompt.system == "You are a helpful assistant."
    assert "checking the quality of the answer" in TEMPLATES["llava-bench-wild"].as_messages().render(item).system
    with pytest.raises(
        ValueError, match="shows the judge what is in the picture, in words, and 'i' has none: add cont"
    ):
        TEMPLATES["llava-bench-wild"].render(replace(item, context=" "))
    assert "background. \nDo not consider" in TEMPLATES["detailed-caption"].render(item).text


def test_every_template_says_what_it_judges() -> None:
    for name, template in TEMPLATES.items():
        assert template.name == name and template.source
        assert template.compares == ("{response_a}" in template.body)
        assert ("criteria" in template.needs) == (template.kind in ("absolute", "relative"))
        low, high = template.scale or (1, 5)
        assert template.scores(ITEM.rubric) == (() if template.compares else tuple(range(low, high + 1)))
    assert TEMPLATES["prometheus-vision"].score_texts((1, 2)) == {1: " 1", 2: " 2"}
    assert TEMPLATES["prometheus-2-relative"].score_texts(()) == {0: " A", 1: " B"}
    assert TEMPLATES["llava-critic"].score_texts(range(101)) == {}
    assert len({template.fingerprint() for template in TEMPLATES.values()}) == len(TEMPLATES)
    assert "An instruction about an image, " in TEMPLATES["chat"].render(ITEM).text
    with pytest.raises(ValueError, match="kind 'x' is unknown"):
        replace(TEMPLATES["chat"], kind="x")


def test_the_published_samples_byte_for_byte() -> None:
    if not SAMPLES.is_dir():
        pytest.skip(f"the published samples are not at {SAMPLES}")
    template = TEMPLATES["prometheus-vision"]
    rows = [json.loads(line) for line in (SAMPLES / "sample_eval_data.jsonl").read_text("utf-8").splitlines()]
    assert len(rows) == 3
    for row in rows:
        levels = tuple(row[f"orig_score{score}_description"] for score in range(1, 6))
        item = Item(
            id="a",
            images=(row["image"],),
            instruction=row["orig_instruction"],
            response=row["original_response"],
            rubric=Rubric(row["orig_criteria"], levels),
            reference_answer=row["orig_reference_answer"],
        )
        assert template.render(item).text == f"{SYSTEM} USER: <image>\n{row['instruction']} ASSISTANT:"


def test_the_original_codes_prompt_byte_for_byte() -> None:
    if not FIXTURES.is_file():
        pytest.skip(f"the original code's outputs are not at {FIXTURES}")
    golden = json.loads(FIXTURES.read_text("utf-8"))["prompts"]["prometheus"]["prompt"]
    item = Item(
        id="a",
        images=("wide.png",),
        instruction="Describe the coloured boxes in the picture.\nBe brief.",
        response="Two boxes; one is red, the other  blue \u2014 see left.\n\n- 12 px\n- 3.5 cm",
        rubric=Rubric(
            "Does the response name every box?",
            (
                "None named.",
                "Few named.",
                "Half named.",
                "Most named.",
                "All named, e.g. \"red\" & 'blue' (na\u00efve caf\u00e9 \u2603).",
            ),
        ),
        reference_answer="A striped field with five boxes.",
    )
    assert TEMPLATES["prometheus-vision-readme"].render(item).text == golden


def test_chatml_byte_for_byte_and_token_for_token() -> None:
    if not CRITIC.is_dir():
        pytest.skip(f"the original code's outputs are not at {CRITIC}")
    golden = json.loads((CRITIC / "golden.json").read_text("utf-8"))["prompts"]
    import numpy as np
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(CRITIC / "llava-critic-qwen-tiny")
    arrays = np.load(CRITIC / "golden.npz")
    for name, case in golden.items():
        prompt = prompts.question(prompts.QWEN_1_5, case["question"], n_images=case["question"].count("<image>"))
        assert prompt.text == case["prompt"]
        assert spell(tokenizer, prompt) == arrays[f"ids/{name}"].tolist(), name


def spell(tokenizer: Any, prompt: Prompt) -> list[int]:
    """Token ids by the rule that engines obey: text without special tokens, -200 for an image, controls by name."""
    ids: list[int] = []
    for part in prompt.parts:
        if isinstance(part, str):
            ids += tokenizer.encode(part, add_special_tokens=False, split_special_tokens=True)
        else:
            ids.append(tokenizer.convert_tokens_to_ids(part.text) if isinstance(part, Control) else -200)
    return ids


@pytest.mark.parametrize(
    "name", [name for name, template in TEMPLATES.items() if "{reference_section}" in template.body]
)
def test_without_a_reference_answer_nothing_mentions_one(name: str) -> None:
    template = TEMPLATES[name]
    whole = template.render(subject(template)).text
    expected = whole.replace(", a reference answer that gets a score of 5", "").replace(", a reference answer", "")
    for section in (
        "###Reference Answer (Score 5):\nA black cat asleep on a mat.\n\n",
        "###Reference Answer:\nA black cat asleep on a mat.\n\n",
        "A reference answer of score 5: [A black cat asleep on a mat.]\n",
    ):
        expected = expected.replace(section, "")
    for reference in (None, "", " \n"):
        assert template.render(subject(template, reference_answer=reference)).text == expected != whole
    assert "eference" not in expected
