"""Graded items in the prompt: earlier turns with their pictures, never items that are judged."""

import json
from dataclasses import replace

import pytest
from PIL import Image

import vjudge as vj
from samples import Scripted, judge_of, row
from servers import ChatServer, Reply, completion
from vjudge.data import CollectionError
from vjudge.judging.judge import Judge
from vjudge.prompts import QWEN_1_5, TEMPLATES, VICUNA_V1
from vjudge.records import Item


def pictured(id, colour, **cells):
    return row(id, images=[Image.new("RGB", (8, 8), colour)], reference_answer="Red.", **cells)


SHOWN = [
    pictured("x", "red", response="Rose.", gold=4, feedback="Nearly."),
    pictured("y", "blue", response="Sky.", gold=2, feedback="No </s> sign."),
]
JUDGED = [pictured("a", "green"), pictured("b", "grey", response="Ash.")]


def chat(write=None, **fields):
    template = replace(TEMPLATES["chat"].as_messages(), **fields)
    return Judge("mine", template=template, engine=Scripted(write=write))


def test_each_example_is_an_earlier_turn_with_its_picture():
    def write(prompt, ask, place):
        turns = prompt.messages()
        assert [turn["role"] for turn in turns] == [
            "user",
            "assistant",
            "user",
            "assistant",
            "user",
        ]
        assert turns[1]["content"] == [{"type": "text", "text": "Nearly.\nThe final score is 4."}]
        assert [turn["content"][0]["type"] for turn in turns[::2]] == ["image"] * 3
        assert "Rose." in turns[0]["content"][1]["text"] and prompt.n_images == 3
        return "The final score is 3."

    judge = chat(write).with_examples(SHOWN)
    assert repr(judge).endswith("2 examples)")
    run = judge.grade(JUDGED)
    assert run["score"].tolist() == [3, 3]
    assert "examples" not in repr(chat()), "the judge itself is as it was"


@pytest.mark.parametrize(
    ("conversation", "between"),
    [(VICUNA_V1, "</s>USER: "), (QWEN_1_5, "<|im_end|>\n<|im_start|>user\n")],
)
def test_conversations_of_their_own_are_continued_as_the_original_code_writes_turns(
    conversation, between
):
    template = replace(TEMPLATES["prometheus-vision"], conversation=conversation)
    first, item = Item.from_row(SHOWN[1]), Item.from_row(JUDGED[0])
    turns = template.render(item, [first]).text
    asked, alone = template.render(first).text, template.render(item).text
    answer = "No </s> sign. So the overall score is 2.\n[RESULT] 2"
    behind = alone.removeprefix(conversation.opening)
    assert turns == f"{asked}{conversation.reply}{answer}{between}{behind}"


def test_what_has_no_turns_or_no_scores_refuses():
    text_judge = Judge("mistral", template=TEMPLATES["prometheus-2"], engine=Scripted())
    with pytest.raises(ValueError, match="conversation 'mistral' has one turn"):
        text_judge.with_examples(SHOWN)
    with pytest.raises(ValueError, match="a comparison asks for a choice"):
        pair = JUDGED[0] | {"response_a": "1", "response_b": "2"}
        del pair["response"]
        judge = replace(chat(), pairs=TEMPLATES["chat-relative"]).with_examples(SHOWN)
        judge.compare([pair])


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        ({"gold": None}, "row 1 .id 'y'., gold: is not on the scale"),
        ({"gold": 2.5}, "row 1 .id 'y'., gold: is not on the scale"),
        ({"feedback": None}, "row 1 .id 'y'., feedback: is missing"),
        ({"response": ""}, "row 1 .id 'y'., response: is missing or blank"),
        ({"criteria": [{"name": "n", "criteria": "c"}]}, "row 1 .id 'y'., criteria: are several"),
    ],
)
def test_bad_examples_are_named(cells, message):
    with pytest.raises(CollectionError, match=message):
        chat().with_examples([SHOWN[0], SHOWN[1] | cells])


def test_an_item_that_is_judged_is_no_example():
    judge = chat().with_examples(SHOWN)
    with pytest.raises(CollectionError, match="row 1 .id 'x'., id: is an example"):
        judge.grade([JUDGED[0], JUDGED[1] | {"id": "x"}])
    with pytest.raises(CollectionError, match="row 0 .id 'c'., id: is an example"):
        judge.grade([SHOWN[0] | {"id": "c"}, JUDGED[0]])
    judge = chat(lambda *_: "The final score is 3.")
    nameless = [{name: cell for name, cell in each.items() if name != "id"} for each in SHOWN]
    numbered = [{**JUDGED[0], "id": "0"}]  # the position of an example is no id
    assert judge.with_examples(nameless).grade(numbered)["score"].tolist() == [3]


def test_examples_are_sent_and_their_tokens_counted(tmp_path):
    """The wire bytes: pictures in their turns; a run of other examples is another run."""
    with ChatServer(lambda request: Reply(completion("The final score is 3."))) as server:
        judge = vj.load_judge("openai:m", base_url=server.url, key_variable=None)
        bare = judge.plan(JUDGED)["planned"]
        judge = judge.with_examples(SHOWN)
        judge.grade(JUDGED[:1], out=tmp_path, progress=False)
        with pytest.raises(vj.judging.runs.RunError, match="examples"):
            judge.with_examples(SHOWN[:1]).grade(JUDGED[:1], out=tmp_path, progress=False)
    sent = json.loads(json.dumps(server.asked[-1].body))["messages"]
    urls = [turn["content"][0]["image_url"]["url"] for turn in sent if turn["role"] == "user"]
    assert len(set(urls)) == 3 and sent[3]["content"] == "No </s> sign.\nThe final score is 2."
    plan = judge.plan(JUDGED)["planned"]
    assert plan["images shown"] == 3 * bare["images shown"]
    assert plan["prompt tokens"] > 2 * bare["prompt tokens"]


def test_the_embedded_judge_and_a_panel_take_them():
    items = vj.load_collection("scenes", split="test", limit=4)
    judge = vj.load_judge("tiny", device="cpu")
    shown = judge.with_examples(items.select([0]))
    one, two = (each.grade(items.select([2, 3]), progress=False) for each in (judge, shown))
    assert two["score"].notna().all() and (two["n_prompt_tokens"] > one["n_prompt_tokens"]).all()
    panel = vj.panel([judge, replace(judge, name="other")]).with_examples(items.select([0]))
    assert all(len(member.examples) == 1 for member in panel.members)
    assert not judge_of().examples
