"""Before a judge's training and around it: a base put together, descriptions for its projector, ablations."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from chatmodels import make_text
from conftest import make_rows
from transformers import CLIPVisionConfig, CLIPVisionModel, LlavaConfig
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

import vjudge as vj
from vjudge.data import CollectionError
from vjudge.models.memory import GIB
from vjudge.prompts import TEMPLATES
from vjudge.training import ABLATIONS, Lora, ablate, assemble, fine_tune, read_log, training_cost
from vjudge.training import lora as adapters
from vjudge.training.ablations import Trial, length_tells, less_data, without_rubric
from vjudge.training.examples import IGNORED, Coder

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*verdicts failed"),
    pytest.mark.filterwarnings("ignore:.*constant"),  # three steps teach no judge to tell answers apart
]


@pytest.fixture(scope="module")
def parts(tmp_path_factory) -> tuple[Path, Path]:
    """A CLIP tower and a language model, each by itself."""
    tower, decoder = tmp_path_factory.mktemp("tower"), tmp_path_factory.mktemp("decoder")
    torch.manual_seed(0)
    sizes = dict(hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2)
    CLIPVisionModel(CLIPVisionConfig(**sizes, image_size=28, patch_size=14)).save_pretrained(tower)
    side = {"height": 28, "width": 28}
    CLIPImageProcessorPil(size={"shortest_edge": 28}, crop_size=side).save_pretrained(tower)
    return tower, make_text("llama", decoder / "llama")


@pytest.fixture(scope="module")
def assembled(parts, tmp_path_factory) -> Path:
    return assemble(*parts, tmp_path_factory.mktemp("base") / "base")


def descriptions(n: int = 8) -> list[dict[str, object]]:
    rows = make_rows(n)
    return [
        {"id": row["id"], "images": row["images"], "instruction": "Describe it.", "response": f"a picture, number {i}"}
        for i, row in enumerate(rows)
    ]


# A base


def test_an_assembled_base_holds_both_parts_bit_for_bit_and_answers(parts, assembled):
    judge = vj.load_judge(assembled, template="prometheus-vision", device="cpu", dtype="float32")
    model = judge.engine.model.model
    tower = CLIPVisionModel.from_pretrained(parts[0]).state_dict()
    assert tower and all(torch.equal(model.model.vision_tower.state_dict()[name], tower[name]) for name in tower)
    from transformers import AutoModelForCausalLM

    decoder = AutoModelForCausalLM.from_pretrained(parts[1]).state_dict()
    held = model.state_dict()
    for name, value in decoder.items():
        mine = held[name.replace("model.", "model.language_model.", 1)]
        assert torch.equal(mine[: len(value)], value), name
    rows = make_rows(2)
    seen = judge.grade(rows, max_new_tokens=4)
    assert (seen["n_prompt_tokens"] > 4).all()


def test_a_projector_is_drawn_from_its_seed(parts, tmp_path):
    def first(seed: int) -> torch.Tensor:
        folder = assemble(*parts, tmp_path / f"{seed}-{len(list(tmp_path.iterdir()))}", seed=seed)
        model = vj.load_judge(folder, template="prometheus-vision", device="cpu").engine.model.model
        return model.model.multi_modal_projector.linear_1.weight.detach().clone()

    assert torch.equal(first(0), first(0)) and not torch.equal(first(0), first(1))


def test_parts_of_another_kind_are_refused(parts, tmp_path):
    with pytest.raises(ValueError, match="give a CLIP model"):
        assemble(parts[1], parts[1], tmp_path / "base")
    (tmp_path / "full").mkdir()
    (tmp_path / "full/file").touch()
    with pytest.raises(ValueError, match="not empty"):
        assemble(*parts, tmp_path / "full")


# Descriptions


def test_a_description_is_trained_on_its_image_alone(assembled):
    """The ids are the image's places and the text with a line feed, as in LLaVA; only the text has loss."""
    judge = vj.load_judge(assembled, template="prometheus-vision", device="cpu")
    coder = Coder(judge.engine.model, judge.template, shape="description")
    tokenizer = judge.engine.model.tokenizer
    for row in descriptions(3):
        example = coder(row)
        asked = example.ids[: example.n_prompt]
        assert asked.count(judge.engine.model.image_token_id) == 4
        assert len(asked) - 4 <= 1  # what opens every text
        assert tokenizer.decode([token for token in example.labels if token != IGNORED]) == f"{row['response']}\n"


def test_a_new_projector_learns_from_descriptions_and_nothing_else_changes(assembled, tmp_path):
    rows = descriptions(4)
    folder = fine_tune(
        assembled, rows, out=tmp_path / "out", recipe="prometheus-vision-projector", shape="description", lr=3e-2,
        batch_size=4, steps=40, warmup=2, log_every=1, progress=False, device="cpu",
    )  # fmt: skip
    before = vj.load_judge(assembled, template="prometheus-vision", device="cpu").engine.model.model.state_dict()
    after = vj.load_judge(folder, device="cpu").engine.model.model.state_dict()
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed and all("projector" in name for name in changed)
    losses = read_log(tmp_path / "out")["loss"].dropna()
    assert losses.iloc[-1] < losses.iloc[0] - 1  # the decoder is random, and stays


def test_descriptions_that_lack_something_are_named(assembled, tmp_path):
    rows = descriptions(4)
    rows[1]["response"] = " "
    rows[2]["images"] = []
    options = dict(out=tmp_path / "out", recipe="prometheus-vision-projector", shape="description", device="cpu")
    with pytest.raises(CollectionError, match="2 of 4 rows") as error:
        fine_tune(assembled, rows, **options)
    assert "row 1" in str(error.value) and "row 2" in str(error.value)
    with pytest.raises(ValueError, match="no verdict"):
        fine_tune(assembled, descriptions(4), validation=make_rows(2), **options)


# Ablations


def test_an_ablation_changes_what_it_says(random_judge):
    items = vj.load_collection("scenes", split="train", limit=600)
    trial = Trial(items, items, TEMPLATES["prometheus-vision"], n_rows=60)
    changed = {name: ablation(trial) for name, ablation in ABLATIONS.items()}
    assert changed["full recipe"] is trial
    assert changed["no feedback"].options["shape"] == "score"
    assert changed["score before feedback"].options["shape"] == "score-first"
    assert not any(changed["no reference answer"].rows["reference_answer"])
    assert not any(changed["no reference answer"].test["reference_answer"]) and any(trial.rows["reference_answer"])
    images = [image for row in changed["no image"].rows["images"] for image in row]
    assert all(len(np.unique(np.asarray(image))) == 1 for image in images)
    assert "Score Rubrics" not in changed["no rubric"].template.body and not changed["no rubric"].template.reads_rubric
    assert len(changed["a quarter of the rows"].rows) == 15
    assert changed["nothing frozen"].options["freeze"] == ()


def test_rows_in_which_length_tells_the_score_are_as_many_and_their_test_is_not_touched():
    items = vj.load_collection("scenes", split="train", limit=600)
    trial = Trial(items, items, TEMPLATES["prometheus-vision"], n_rows=60)
    planted = length_tells(trial)
    assert len(planted.rows) == 60 and planted.test is items
    assert vj.data.length_test(trial.rows, n_resamples=0).loc["words", "auc"] == pytest.approx(0.5, abs=0.1)
    assert vj.data.length_test(planted.rows, n_resamples=0).loc["words", "auc"] > 0.8
    assert len(less_data(trial, share=0.5).rows) == 30


def test_ablations_that_do_not_apply_are_refused_before_any_training(random_judge, tmp_path):
    items = vj.load_collection("scenes", split="train", limit=40)
    trial = Trial(items, items, TEMPLATES["llava-critic"], n_rows=40)
    with pytest.raises(ValueError, match="no section"):
        without_rubric(trial)
    with pytest.raises(ValueError, match="give more items"):
        length_tells(trial)
    with pytest.raises(ValueError, match="unknown ablations: no sleep"):
        ablate(random_judge, items, test=items, out=tmp_path, names=["no sleep"])


def test_the_table_compares_every_training_with_the_full_recipe(taught_judge, tmp_path):
    items = vj.load_collection("scenes", split="train", limit=60)
    test = vj.load_collection("scenes", split="test", limit=20)
    options = dict(
        test=test, out=tmp_path / "out", names=["no feedback"], template="prometheus-vision", n_rows=20,
        recipe="scenes", steps=3, batch_size=4, device="cpu", progress=False, n_resamples=200, log_every=1,
    )  # fmt: skip
    table = ablate(taught_judge, items, **options)
    assert list(table.index) == ["full recipe", "no feedback"]
    assert (table["rows"] == 20).all() and (table["steps"] == 3).all() and (table["n"] <= 20).all()
    assert np.isnan(table.loc["full recipe", "difference"])
    again = ablate(taught_judge, items, **options)
    assert again.equals(table)


# What a training takes


def test_the_computed_adapters_and_weights_are_those_that_train(random_judge):
    """Counted from the configuration alone, they are as many as peft and the model have."""
    lora = Lora(rank=8)
    judge = vj.load_judge(random_judge, device="cpu").engine.model
    whole = sum(weight.numel() for weight in judge.model.parameters())
    tower = sum(weight.numel() for name, weight in judge.model.named_parameters() if "vision_tower" in name)
    found = training_cost(random_judge)
    assert (found.parameters, found.trained) == (whole, whole - tower)
    assert training_cost(random_judge, freeze=()).trained == whole
    adapters.prepare(judge, freeze=("tower",), lora=lora)
    learns = sum(weight.numel() for weight in judge.model.parameters() if weight.requires_grad)
    assert training_cost(random_judge, lora=lora).trained == learns


def test_the_cost_of_seven_billion_weights_follows_the_bytes_and_products():
    name = LlavaConfig()  # transformers' own default: LLaVA-1.5 7B
    full, spread = training_cost(name), training_cost(name, devices=8)
    held = (18 * full.trained + 4 * (full.parameters - full.trained)) / GIB  # the tower's are held once, in float32
    assert full.weights + full.states == pytest.approx(held, abs=0.2)
    assert spread.states == pytest.approx(full.states / 8, abs=0.1)
    assert spread.hours == pytest.approx(full.hours / 8, abs=0.1)
    adapted, four = training_cost(name, lora=True), training_cost(name, lora=True, quantization="4bit", gpu="T4")
    assert adapted.weights == pytest.approx(2 * full.parameters / GIB, abs=0.2)
    assert four.weights < adapted.weights / 3 and four.total < 14.7 < adapted.total < 40 < full.total
    hours = 150_000 * 1_500 * 8 * 6.74e9 / (312e12 * 0.35) / 3600  # 2 forward, 2 again, 2 and 2 backward
    assert full.hours == pytest.approx(hours, rel=0.02)
    with pytest.raises(ValueError, match="known are"):
        training_cost(name, gpu="abacus")
