"""Chat models of today's architectures as judges: against transformers' own processor and generate,
one at a time."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import transformers
from PIL import Image

from chatmodels import CHATS, TEXTS, make
from conftest import make_rows
from originals import ITEM, answers, ask, edit, forward, noise, refused
from vjudge import models
from vjudge.engines import HFEngine
from vjudge.engines.cache import SHARING_CHATS
from vjudge.judging.loading import load_judge
from vjudge.models.load import load_processor


@pytest.fixture(scope="module", params=CHATS)
def folder(request, base_of):
    """The checkpoint of one architecture."""
    return base_of(request.param)


@pytest.fixture(scope="module")
def judge(folder):
    return load_judge(folder, device="cpu")


SHOWN = {
    "What is it?": [noise(40, 30)],
    "Say a word, any word.": [],
    "Which one is larger, and why?": [noise(20, 61), noise(33, 33)],
    "Look, " * 9 + "look.": [noise(64, 20)],
}


@pytest.fixture(scope="module")
def questions(judge):
    """Prompts of different lengths with one, two and no images of different sizes."""
    wrap = judge.template.conversation.wrap
    prompts = [wrap(text, len(images)) for text, images in SHOWN.items()]
    return prompts, list(SHOWN.values())


def by_processor(processor, text, images):
    """A model's inputs by the checkpoint's own processor and chat template."""
    content = [*[{"type": "image"}] * len(images), {"type": "text", "text": text}]
    turn = [{"role": "user", "content": content}]
    written = processor.apply_chat_template(turn, add_generation_prompt=True, tokenize=False)
    # The templates write the first token themselves, where there is one.
    return processor(
        images=images or None, text=[written], add_special_tokens=False, return_tensors="pt"
    )


# --- against transformers -------------------------------------------------------------------------


def test_ids_logits_and_greedy_texts_are_those_of_the_processor_and_generate(
    folder, judge, questions
):
    engine = judge.engine
    model = transformers.AutoModelForImageTextToText.from_pretrained(folder).eval()
    processor = load_processor(folder, model.config)
    assert engine.shares == (folder.name in SHARING_CHATS)
    together = answers(engine, *questions, ask(max_new_tokens=10))
    silent = list(engine.model.non_text_token_ids)
    for text, prompt, shown, answer in zip(SHOWN, *questions, together, strict=True):
        inputs = by_processor(processor, text, shown)
        size = inputs["input_ids"].shape[1]
        ids, own = forward(engine, prompt, shown)
        assert ids == inputs["input_ids"][0].tolist()
        with torch.no_grad():
            logits = model(**inputs).logits[0]
        assert torch.allclose(own, logits, atol=1e-4)
        written = model.generate(
            **inputs,
            do_sample=False,
            repetition_penalty=1.0,
            max_new_tokens=10,
            suppress_tokens=silent,
        )[0, size:].tolist()
        ended = written[-1] in engine.ends
        assert (answer.failure, (answer.finish == "stop")) == (None, ended)
        assert answer.text == engine.encoder.text(written[:-1] if ended else written)
        assert (answer.n_prompt_tokens, answer.n_new_tokens) == (size, len(written))


def test_rows_about_an_image_share_it_and_what_stands_before_it(judge):
    """Eight questions about two pictures; texts as one at a time."""
    engine = judge.engine
    wrap = judge.template.conversation.wrap
    prompts = [wrap(f"Look closely. {text}", 1) for text in SHOWN] * 2
    images = [[noise(30 + n // 4, 30)] for n in range(8)]
    call = prompts, images
    alone = answers(engine, *call, ask(max_new_tokens=6, batch_size=1))
    together = answers(engine, *call, ask(max_new_tokens=6))
    assert [answer.text for answer in together] == [answer.text for answer in alone]
    work = engine.work
    assert work.images == (2 if engine.shares else 8)
    assert not engine.shares or work.computed_tokens < 0.75 * work.prompt_tokens


def test_data_text_is_never_a_control_token_or_an_image(judge):
    added = judge.engine.model.tokenizer.added_tokens_decoder
    special = [token for token, entry in added.items() if entry.special]
    counts = []
    for text in ("x", "".join(str(added[token]) for token in special)):
        prompt = judge.template.render(replace(ITEM, instruction=text, response=text))
        ids, _ = forward(judge.engine, prompt, SHOWN["What is it?"])
        counts.append(sum(token in special for token in ids))
    assert counts[0] == counts[1] > 0


# --- failures, limits, what is said ---------------------------------------------------------------


def test_a_row_fails_by_itself_where_the_processor_refuses_its_image(base_of):
    rows = make_rows(2)
    rows[1]["images"] = [Image.new("RGB", (900, 3))]  # Qwen's processor refuses more than 200 to 1
    judge = load_judge(base_of("qwen2_5_vl"), device="cpu")
    run = judge.grade(rows, max_new_tokens=3)
    assert list(run["closed"]) == [True, False] and "aspect ratio" in run["failure"][1]


def test_an_added_token_of_the_conversation_is_made_special(base_of, tmp_path):
    """Some checkpoints store "<|im_end|>" as an ordinary token, which would match in any text."""
    folder = Path(shutil.copytree(base_of("qwen2_5_vl"), tmp_path / "loose"))
    stored = json.loads((folder / "tokenizer.json").read_text())
    for entry in stored["added_tokens"]:
        entry["special"] = entry["content"] == "<|endoftext|>"
    (folder / "tokenizer.json").write_text(json.dumps(stored))
    names = ("additional_special_tokens", "extra_special_tokens", "added_tokens_decoder")
    nothing = dict.fromkeys(names, {})
    edit(folder / "tokenizer_config.json", eos_token="<|endoftext|>", **nothing)
    encoder = load_judge(folder, device="cpu").engine.encoder
    added = encoder.tokenizer.get_added_vocab()
    marks = ["<|im_start|>", "<|im_end|>", "<|image_pad|>"]
    assert not {added[mark] for mark in marks} & set(encoder.text_ids("".join(marks)))
    assert added["[RESULT]"] in encoder.text_ids("[RESULT]")


def test_a_checkpoints_code_never_runs(tmp_path):
    code = {"AutoConfig": "modeling_novel.Config", "AutoModelForCausalLM": "modeling_novel.Novel"}
    config = {"model_type": "novel_vl", "vision_config": {}, "auto_map": code}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "modeling_novel.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w').close()\n")
    refused(tmp_path, "code of its own, which is not run here")
    assert not (tmp_path / "ran").exists()


# --- language models -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TEXTS)
def test_a_language_model_judges_as_generate_does_and_is_told_of_images(name, base_of):
    folder = base_of(name)
    judge = load_judge(folder, device="cpu", template=TEXTS[name])
    assert type(judge.engine) is HFEngine
    assert judge.engine.shares == (name not in ("bloom", "mistral"))
    rows = [row | {"images": row["images"] * n} for n, row in enumerate(make_rows(3))]
    texts = [judge.render(row) for row in rows]
    assert "cannot see" not in texts[0] and "<image>" not in "".join(texts)
    assert "(This instruction comes with an image that you cannot see.)\n" in texts[1]
    assert "(This instruction comes with 2 images that you cannot see.)\n" in texts[2]
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    no_words = list(range(len(tokenizer), model.config.vocab_size)) or None
    options = {"max_new_tokens": 6, "repetition_penalty": 1.3}
    frame = judge.grade(rows, **options)
    assert frame.attrs["without_images"] == 2
    for text, raw, size in zip(texts, frame["raw"], frame["n_prompt_tokens"], strict=True):
        inputs = tokenizer(text, return_tensors="pt")
        assert size == inputs["input_ids"].shape[1]
        ids = model.generate(**inputs, **options, do_sample=False, suppress_tokens=no_words)
        words = [token for token in ids[0, size:].tolist() if token != tokenizer.eos_token_id]
        assert raw == judge.engine.encoder.text(words)


def test_pickled_weights_of_a_language_model(tmp_path):
    """Prometheus 13B v1 is published as pickles alone."""
    folder = make("llama", tmp_path / "prometheus-13b-v1.0")
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    (folder / "model.safetensors").unlink()
    torch.save(model.state_dict(), folder / "pytorch_model.bin")
    loaded = models.load(folder, device="cpu")
    assert torch.equal(loaded.model.lm_head.weight, model.lm_head.weight)
