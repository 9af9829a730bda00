"""Pictures as the responses: in every way of giving them, each at its place in the prompt, both orders."""

import base64
import json
from dataclasses import replace

import datasets
import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

import vjudge as vj
from samples import LEVELS, png, scripted
from servers import ChatServer, Reply, Tokenizer, completion, parts_of, vicuna
from vjudge.data import CollectionError, fingerprint, load_collection, rows_of
from vjudge.engines import vision
from vjudge.engines.server import ServerError
from vjudge.images import open_image
from vjudge.prompts import IMAGE, TEMPLATES, VICUNA_V1, Template
from vjudge.records import Item
from vjudge.training.collate import Examples

RUBRIC = {"criteria": "True?", "descriptions": LEVELS}
TASK = {"instruction": "Draw it.", **RUBRIC}


def plain(colour):
    return Image.new("RGB", (40, 40), colour)


def colour_of(source):
    """The name of a plain picture's colour."""
    pixel = open_image(source).getpixel((0, 0))
    names = {(255, 0, 0): "red", (0, 0, 255): "blue", (0, 128, 0): "green", (128, 128, 128): "grey"}
    return names[pixel]


def judge(**wordings):
    """A judge that answers as both wordings want, whose questions are kept."""
    made = scripted(lambda prompt, ask, index: "The final score is 3.")
    return replace(
        made, template=TEMPLATES["chat-picture"], pairs=TEMPLATES["chat-picture-relative"]
    )


PAIR = {
    "id": "p",
    "images": [plain("green")],
    "instruction": "Make it warmer.",
    "response_a": "alpha",
    "response_b": "beta",
    "response_a_images": [plain("red")],
    "response_b_images": [plain("blue")],
    "criteria": "Warmer?",
}


def given(tmp_path):
    """One red picture in every way of giving it."""
    path = tmp_path / "red.png"
    path.write_bytes(png())
    return {
        "path": str(path),
        "Path": path,
        "PIL": plain("red"),
        "bytes": png(),
        "data URI": "data:image/png;base64," + base64.b64encode(png()).decode(),
        "hub": {"bytes": png(), "path": None},
        "array": np.asarray(plain("red")),
        "list": [str(path)],
        "JSON": json.dumps([str(path)]),
    }


@pytest.mark.parametrize(
    "way", ["path", "Path", "PIL", "bytes", "data URI", "hub", "array", "list", "JSON"]
)
@pytest.mark.parametrize("name", ["response_images", "response_image", "Response Images"])
def test_a_picture_is_read_in_every_way_of_giving_it(tmp_path, way, name):
    cell = given(tmp_path)[way]
    items = load_collection([{"id": "a", **TASK, name: cell}])
    assert [colour_of(source) for source in items[0]["response_images"]] == ["red"]
    assert items[0]["response"] is None
    (read,) = rows_of([{"id": "a", **TASK, name: cell}])
    assert [colour_of(source) for source in Item.from_row(read).response_images] == ["red"]
    run = judge().grade({**TASK, name: cell}, progress=False)  # one call
    assert run["score"].tolist() == [3.0] and run["sees_image"].tolist() == [True]
    assert run.attrs["without_images"] == 0


def test_files_and_data_sets_hold_them(tmp_path):
    (tmp_path / "red.png").write_bytes(png())
    line = {"id": "a", **TASK, "response_a_images": ["red.png"], "response_b_image": "red.png"}
    (tmp_path / "pairs.jsonl").write_text(json.dumps(line))
    pairs = load_collection(tmp_path / "pairs.jsonl")
    assert pairs.column_names[:4] == ["id", "images", "instruction", "response_a"]
    assert [colour_of(pairs[0][f"response_{side}_images"][0]) for side in "ab"] == ["red", "red"]
    saved = tmp_path / "saved"
    pairs.save_to_disk(saved)
    assert fingerprint(load_collection(saved)) == fingerprint(pairs)
    # a column of the datasets library that holds one picture
    table = datasets.Dataset.from_list([{"id": "a", **TASK, "response_image": {"bytes": png()}}])
    table = table.cast_column("response_image", datasets.Image())
    assert colour_of(load_collection(table)[0]["response_images"][0]) == "red"
    assert [
        dict(cells)
        for cells in rows_of([Item("a", (), "Draw.", "", response_images=(plain("red"),))])
    ]
    frame = pd.DataFrame([{"id": "a", **TASK, "response_images": [plain("red")]}])
    assert colour_of(rows_of(frame)[0]["response_images"][0]) == "red"


def test_a_picture_decides_the_fingerprint_and_an_empty_column_does_not():
    one, two = (
        {"id": "a", **TASK, "response": "Red.", "response_images": [plain(c)]}
        for c in ("red", "blue")
    )
    bare = {"id": "a", **TASK, "response": "Red."}
    assert len({fingerprint([cells]) for cells in (one, two, bare)}) == 3
    assert fingerprint([bare | {"response_images": []}]) == fingerprint([bare])


REFUSED = [  # changes of a row, wording, what the error says
    ({}, "prometheus-vision", "response_images: template 'prometheus-vision' has no place for"),
    (
        {"response_images": ["no.png"]},
        "chat-picture",
        "response_images[0]: the image 'no.png' does not exist",
    ),
    ({"response_images": []}, "chat-picture", "response: is missing or blank"),
    ({"response": "<image> <image>"}, "chat-picture", "response: 2 times <image> for 1 pictures"),
    (
        {"instruction": "<image> <image>", "images": [png()]},
        "chat-picture",
        "instruction: 2 times <image>",
    ),
    (
        {"response": "Red."},
        "pictures",
        "response: template 'pictures' shows a response's pictures without",
    ),
    (
        {"response_images": [], "response": "Red."},
        "pictures",
        "response_images: is missing, and template",
    ),
]
BODY = "{instruction}: {response_images} End with [RESULT] and a score."
PICTURES = Template("pictures", "ours", VICUNA_V1, BODY)


@pytest.mark.parametrize(("changes", "wording", "reason"), REFUSED)
def test_what_a_wording_can_not_show_is_refused_by_name_before_anything_runs(
    changes, wording, reason
):
    template = PICTURES if wording == "pictures" else TEMPLATES[wording]
    asked = replace(judge(), template=template)
    good = {"id": "a", **TASK, "images": [], "response_images": [png()]}
    if wording == "prometheus-vision":
        good = {"id": "a", **TASK, "images": [], "response": "Red."}
    bad = {"id": "b", **TASK, "images": [], "response": "", "response_images": [png()]} | changes
    with pytest.raises(CollectionError) as error:
        asked.grade([good, bad])
    assert reason in str(error.value) and asked.engine.asked == 0
    assert {problem.id for problem in error.value.problems} == {"b"}


def test_a_missing_question_picture_is_named_where_another_row_has_one():
    rows = [{"id": name, **TASK, "response_images": [png()]} for name in "ab"]
    judge().grade(rows, progress=False)  # text to image: no row has one
    rows[0]["images"] = [png()]
    with pytest.raises(CollectionError, match=r"id 'b'\), images: is missing"):
        judge().grade(rows)


PLACES = [  # the response, and what the prompt reads of it
    ("", "A: ,,<2><3>"),
    ("Look.", "A: Look.,,<2><3>"),
    ("First <image>, then <image>.", "A: First <2>, then <3>.,,"),
]


@pytest.mark.parametrize("conversation", [VICUNA_V1, TEMPLATES["chat"].conversation])
@pytest.mark.parametrize(("response", "read"), PLACES)
def test_pictures_stand_at_their_field_or_at_the_marks_of_their_text(response, read, conversation):
    body = "Q: {instruction}{images} A: {response},,{response_images} E [RESULT]"
    item = Item("a", ("1",), "What?", response, None, response_images=("2", "3"))
    leads = replace(PICTURES, body=body.replace("{images}", ""), conversation=conversation)
    inside = replace(PICTURES, body=body, conversation=conversation)
    for template, question in ((leads, "Q: What? "), (inside, "Q: What?<1> ")):
        prompt = template.render(item)
        numbers = iter(template.pictures(item))
        texts = [f"<{next(numbers)}>" if part is IMAGE else str(part) for part in prompt.parts]
        assert f"{question}{read} E [RESULT]" in "".join(texts)
        assert next(numbers, None) is None
    assert str(leads.render(item).parts[0 if conversation.name == "messages" else 1]) == "<image>"


def test_a_mark_without_pictures_or_without_their_field_is_text():
    item = Item("a", ("1",), "See <image>", "An <image> here", None)
    prompt = replace(
        TEMPLATES["chat-picture"], body="{instruction} {response} {response_images}"
    ).render(item)
    assert prompt.n_images == 1 and "See <image> An <image> here" in prompt.parts[-1]


def test_a_judge_without_eyes_is_told_of_them_and_counted():
    blind = judge()
    blind = replace(blind, template=replace(blind.template, sees_images=False))
    item = {"id": "a", **TASK, "response": "So <image>.", "response_images": [png()]}
    assert "So (an image that you cannot see)." in blind.render(item)
    run = blind.grade([item], progress=False)
    assert run.attrs["without_images"] == 1 and run["sees_image"].tolist() == [False]


@pytest.mark.parametrize("by", ["pairs", "scores"])
def test_pictures_are_not_ranked_as_candidates_in_silence(by):
    cells = {"id": "a", **TASK, "responses": ["One.", "Two."], "response_images": [png(), png()]}
    with pytest.raises(CollectionError, match="response_images: pictures are no candidates"):
        judge().rank([cells], by=by)


def test_another_picture_is_another_verdict_in_the_record(tmp_path, capsys):
    asked = judge()
    for colour, n_asked in (("red", 1), ("red", 1), ("blue", 2)):
        asked.grade(
            [{"id": "a", **TASK, "response_images": [plain(colour)]}], out=tmp_path, progress=False
        )
        assert asked.engine.asked == n_asked
    asked.compare([PAIR], progress=False, unread="missing")
    assert asked.engine.asked == 4


# --- each side's picture at its place, in both orders ---------------------------------------------


ORDERS = {"alpha": ["green", "red", "blue"], "beta": ["green", "blue", "red"]}
"""Which response stands first -> the colours of the prompt's pictures."""


def first_of(text):
    return min(ORDERS, key=text.index)


def test_a_servers_requests_hold_each_sides_picture_behind_its_text():
    """By the bytes of the recorded requests."""
    reply = Reply(completion("The better answer is A."))
    with ChatServer(lambda request: reply) as server:
        served = vj.load_judge(
            "openai:m", base_url=server.url, key_variable=None, template="chat-picture-relative"
        )
        run = served.compare([PAIR], progress=False)
    assert run["verdict_ab"].tolist() == ["a"] and run["verdict_ba"].tolist() == ["b"]
    orders = []
    for request in server.asked:
        read = []
        for part in parts_of(request.body["messages"][0]):
            if "image_url" in part:
                data = part["image_url"]["url"].partition(";base64,")[2]
                read.append(f"<{colour_of(base64.b64decode(data))}>")
            else:
                read.append(part["text"])
        text = "".join(read)
        first = first_of(text)
        second = "beta" if first == "alpha" else "alpha"
        _, one, two = ORDERS[first]
        assert (
            f"Make it warmer.\n<green>\n\nAnswer A: {first}\n<{one}>\n\nAnswer B: {second}\n<{two}>\n"
            in text
        )
        orders.append(first)
    assert sorted(orders) == ["alpha", "beta"]


class Inline(Tokenizer):
    """A server whose chat template writes each part of a turn where it stands."""

    def text(self, body):
        if "prompt" in body:
            return super().text(body)
        turns = []
        for message in body["messages"]:
            read = [part.get("text", "<image>") for part in parts_of(message)]
            turns.append((message["role"], "".join(read)))
        return vicuna(turns, open=self.continues and "continue_final_message" in body)


@pytest.mark.parametrize("tokenizer", [Inline, Tokenizer])
def test_a_servers_tokens_are_compared_with_pictures_among_the_texts(tokenizer):
    """A server that breaks the line before and behind a picture writes another prompt."""
    item = {"id": "a", **TASK, "response": "alpha", "response_images": [png()]}
    reply = Reply(completion("The final score is 3."))
    with ChatServer(lambda request: reply, tokenizer=tokenizer(vicuna)) as server:
        options = {"base_url": server.url, "key_variable": None, "conversation": VICUNA_V1}
        served = vj.load_judge("openai:m", template="chat-picture", **options)
        if tokenizer is Inline:
            assert served.grade(item, progress=False)["score"].tolist() == [3.0]
            return
        with pytest.raises(ServerError, match="does not write the judge's own prompt"):
            served.grade(item, progress=False)


@pytest.mark.parametrize("kind", ["llava", "qwen2_vl", "gemma3"])
def test_a_chat_models_pixels_come_in_the_order_of_the_prompt(kind, base_of, monkeypatch):
    """Each picture's pixels in a batch are those of its colour, as the model's processor gives them."""
    local = vj.load_judge(base_of(kind), device="cpu", template="chat-picture-relative")
    read = {}
    process = vision.ProcessedImages.inputs

    def spy(source, ids, keys):
        inputs = process(source, ids, keys)
        pixels = {}
        for colour in ORDERS["alpha"]:
            pixels[colour] = source._process([[plain(colour)]])["pixel_values"].flatten()
        blocks = inputs["pixel_values"].reshape(3 * len(ids), -1)  # three pictures a row
        for row, shown in zip(ids, blocks.split(3), strict=True):
            colours = []
            for block in shown:
                colours += [name for name, values in pixels.items() if torch.equal(block, values)]
            read[first_of(local.engine.model.tokenizer.decode(row))] = colours
        return inputs

    monkeypatch.setattr(vision.ProcessedImages, "inputs", spy)
    local.compare([PAIR], mode="score", progress=False)
    assert read == ORDERS


def test_the_llava_judges_features_stand_in_the_order_of_the_prompt(random_judge, monkeypatch):
    """The embeddings at the places of the three images are the features of their colours."""
    local = vj.load_judge(random_judge, device="cpu", template="chat-picture-relative")
    model = local.engine.model
    encoder = vision.call_images(model)
    features = {}
    for colour in ("green", "red", "blue"):
        (key,) = encoder.keys([vj.images.Picture(plain(colour))])
        features[colour] = encoder.fetched(key)
    read = {}
    embed = vision.embedded

    def spy(model, ids, given):
        states = embed(model, ids, given)
        for row, embeddings in zip(ids, states, strict=True):
            blocks = embeddings[row == model.image_token_id].split(model.tokens_per_image)
            colours = []
            for block in blocks:
                colours += [name for name, states in features.items() if torch.equal(block, states)]
            text = model.tokenizer.decode(row[row != model.image_token_id])
            read[first_of(text)] = colours
        return states

    monkeypatch.setattr(vision, "embedded", spy)
    local.compare([PAIR], mode="score", progress=False)
    assert read == ORDERS


def test_training_reads_the_pictures_in_the_prompts_order(random_judge):
    local = vj.load_judge(random_judge, device="cpu", template="chat-picture-relative")
    (row,) = rows_of([PAIR | {"preference": "b", "feedback": "It is warmer."}])
    for name, first in (("response_a", "alpha"), ("response_b", "beta")):
        swapped = {"response_a": "response_b", "response_b": "response_a"}
        cells = dict(row)
        if name == "response_b":
            for side, away in swapped.items():
                cells |= {side: row[away], f"{side}_images": row[f"{away}_images"]}
        example = Examples([cells], local.engine.model, local.pairs).encode(cells)
        assert [colour_of(source) for source in example.images] == ORDERS[first]


def test_a_chat_template_that_moves_images_is_refused_and_the_llava_family_has_its_own(base_of):
    local = vj.load_judge("tiny", device="cpu", template="chat-picture")
    assert local.template.conversation.name == "vicuna_v1"  # its template puts images first
    item = {"id": "a", **TASK, "response": "alpha", "response_images": [png()]}
    assert "Answer: alpha\n<image>\n" in local.render(item)
    tokenizer = local.engine.model.tokenizer
    moved = TEMPLATES["chat-picture"].bind(tokenizer, image_token="<image>")
    with pytest.raises(ValueError, match="moves images away from their places"):
        moved.render(Item.from_row({"images": [], **item}))
    leading = TEMPLATES["chat"].bind(tokenizer, image_token="<image>")
    assert leading.render(Item("a", ("1",), "Q", "alpha", None)).n_images == 1
