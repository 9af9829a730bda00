"""Language models as judges, Prometheus among them: against transformers' generate; what they are told of images."""

import pytest
import torch
import transformers

from chatmodels import TEXTS, make
from conftest import make_rows
from vjudge import models
from vjudge.engines import HFEngine
from vjudge.judge import load_judge


@pytest.mark.parametrize("name", TEXTS)
def test_a_language_model_judges_as_generate_does_and_is_told_of_images(name, tmp_path):
    folder = make(name, tmp_path / name)
    judge = load_judge(folder, device="cpu", template=TEXTS[name])
    assert type(judge.engine) is HFEngine
    assert judge.engine.shares == (name not in ("bloom", "mistral"))
    rows = make_rows(3)
    rows[1]["images"] = rows[1]["images"] * 2
    assert "cannot see" not in judge.render(rows[2] | {"images": []})
    texts = [judge.render(row) for row in rows]
    assert "(This instruction comes with an image that you cannot see.)\n" in texts[0]
    assert "(This instruction comes with 2 images that you cannot see.)\n" in texts[1]
    assert not any("<image>" in text for text in texts)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
    no_words = list(range(len(tokenizer), model.config.vocab_size)) or None
    options = {"do_sample": False, "max_new_tokens": 6, "suppress_tokens": no_words}

    def generated(text):
        inputs = tokenizer(text, return_tensors="pt")
        ids = model.generate(**inputs, **options, repetition_penalty=1.3)
        answer = ids[0, inputs["input_ids"].shape[1] :].tolist()
        words = [token for token in answer if token != tokenizer.eos_token_id]
        return str(judge.engine.encoder.text(words))

    frame = judge.grade(rows, max_new_tokens=6, repetition_penalty=1.3, progress=False)
    assert list(frame["n_prompt_tokens"]) == [len(tokenizer(text).input_ids) for text in texts]
    assert list(frame["raw"]) == [generated(text) for text in texts]
    scored = judge.grade(rows[:1], mode="score", progress=False).iloc[0]
    forced = tokenizer(judge.render(rows[0], mode="score") + " ", return_tensors="pt")
    with torch.no_grad():
        logits = model(**forced).logits[0, -1, : len(tokenizer)]
    digits = logits.softmax(-1)[tokenizer.convert_tokens_to_ids(list("12345"))]
    assert scored["probability_mass"] == pytest.approx(float(digits.sum()), abs=1e-6)
    expected = (digits / digits.sum()).tolist()
    assert list(scored["probabilities"].values()) == pytest.approx(expected, abs=1e-5)


def test_pickled_weights_of_a_language_model(tmp_path):
    """Prometheus 13B v1 is published as pickles alone."""
    folder = make("llama", tmp_path / "prometheus-13b-v1.0")
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    (folder / "model.safetensors").unlink()
    torch.save(model.state_dict(), folder / "pytorch_model.bin")
    loaded = models.load(folder, device="cpu")
    assert torch.equal(loaded.model.lm_head.weight, model.lm_head.weight)
