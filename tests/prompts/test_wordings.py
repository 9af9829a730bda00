"""Wordings: each to the letter, against its published samples and the original code."""

# ruff: noqa: E501

import hashlib
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from jsonschema import ValidationError, validate

from originals import ITEM, PAIR, subject
from vjudge import prompts
from vjudge.prompts import TEMPLATES
from vjudge.records import Criterion, Item, Rubric

GOLDEN = Path(__file__).parents[1] / "golden/llava15-original/golden.json"


def test_each_wording_to_the_letter():
    """By one digest of all prompts; the texts were typed from the sources that the templates name."""
    texts = []
    for name in sorted(TEMPLATES):
        template = TEMPLATES[name]
        # those without a text are ours, and measured; of pictures see below
        if not (template.reply or name.startswith("chat") or "images}" in template.body):
            texts.append(template.render(subject(template)).text)
    digest = hashlib.sha256("\n".join(texts).encode()).hexdigest()
    assert (len(texts), digest[:12]) == (23, "22e9e686a797")


# Of each wording that shows pictures, the digest of the original's text without its pictures, and
# with <> where a text stands: computed from the repositories that `source` names.
PICTURED = """
editscore 4de53e701dda5b8e
editscore-quality d31d067c66715244
editscore-qwen3-vl c63989124665ba84
editscore-qwen3-vl-quality 8249deba103d112d
genai-bench 6cab1cd9b30b7e32
genai-bench-edit 8fbec90ab1a411a9
mm-judgebias aa37e2b12d6bb844
mmrb2 437b96bd367c416a
mmrb2-edit 5299246187e71b0f
mmrb2-image 480031efc9bc6bc9
mmrb2-interleaved 7e620536a9d3481d
unified-reward-edit 7dfa160307745cc1
unified-reward-edit-pair 18efff3d6e762a8b
unified-reward-edit-quality ddb40baa511dbf2f
unified-reward-flex deb0b2ec302e54e0
unified-reward-image e0da583b3807aa6b
unified-reward-image-pair 1e4cd95de7283145
unified-reward-think-image 91eeb2d9e2193418
unified-reward-think-qwen3vl-image 38f58646a1d723f5
viescore-cig e5cad306f49f6cf1
viescore-mie aa9b94540f7605af
viescore-msdig 6c272bbc7c895d5b
viescore-pq 2473ff2c7406e065
viescore-sdie a3bbed12db2b33e7
viescore-sdig f8a17a1a1a7170d6
viescore-t2i 984aec52d430e140
viescore-tie bb7d9b0fd9741509
"""


@pytest.mark.parametrize("row", PICTURED.split("\n")[1:-1])
def test_wordings_that_show_pictures_to_the_letter(row):
    name, digest = row.split()
    template = TEMPLATES[name]
    fields = set(re.findall(r"(?<!{){(\w+)}", template.body))
    text = template.body.format(**{field: "" if "images" in field else "<>" for field in fields})
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == digest
    assert re.search("@[0-9a-f]{7} ", template.source)


def test_each_wording_that_shows_pictures_is_tested():
    named = {row.split()[0] for row in PICTURED.split("\n")[1:-1]}
    shown = {name for name, template in TEMPLATES.items() if "images}" in template.body}
    assert named == {name for name in shown if not name.startswith("chat")}


def test_the_original_codes_prompt_byte_for_byte():
    golden = json.loads(GOLDEN.read_text("utf-8"))["prompts"]["prometheus"]["prompt"]
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


JUDGES = Path(__file__).parent / "published"
FILLED = {  # by our names, those of the texts in the files of `JUDGES`
    "instruction": "Query question data_obj['query']",
    "response": "Response",
    "response_a": "R1 answer1 answers[0]",
    "response_b": "R2 answer2 answers[1]",
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
    if file != "-":
        text = (JUDGES / file).read_text("utf-8").removeprefix("<image>\n")
        for field, places in FILLED.items():
            for place in places.split():
                text = text.replace(f"{{{place}}}", getattr(judged, field, ""))
        assert prompt == template.conversation.wrap(text, 1)


def test_llava_critic_r1_is_asked_to_think_and_to_box_its_answer():
    suffix = (JUDGES / "llava-critic-r1-suffix.jinja").read_text("utf-8").rstrip("\n")
    suffix = suffix.removeprefix("{{ content | trim }}")
    for name in ("llava-critic-r1", "llava-critic-r1-pair"):
        template = TEMPLATES[name]
        assert f"]{suffix}" in template.render(subject(template)).text


def test_a_value_heads_response_is_the_assistants_turn():
    template = TEMPLATES["skywork-vl-reward"]
    assert (template.gives, template.closing, template.scores()) == ("value", None, ())
    prompt = replace(template, conversation=prompts.QWEN_1_5).render(ITEM)
    turn = f"<image>\n{ITEM.instruction}<|im_end|>\n<|im_start|>assistant\n{ITEM.response}"
    assert prompt.text.endswith(turn)
    *_, reply = template.render(ITEM).messages()  # for a server
    assert reply == {"role": "assistant", "content": [{"type": "text", "text": ITEM.response}]}


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


def test_without_a_reference_answer_nothing_mentions_one():
    for template in TEMPLATES.values():
        if "{reference_section}" in template.body:
            text = template.render(subject(template, reference_answer=" \n")).text
            assert "eference" not in text
