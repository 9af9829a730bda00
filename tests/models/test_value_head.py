"""A judge with a value head, from its folder to the table, on a small Qwen2.5-VL of random weights."""

import pytest
import torch
import transformers
from safetensors.torch import save_file

from chatmodels import make
from conftest import make_rows
from originals import answers, refused
from vjudge.engines import Ask
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
