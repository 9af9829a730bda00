"""Fine-tuning: losses on exactly the target, exact resumption, adapters, and what is refused before any work."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from chatmodels import make_onevision, make_text
from conftest import make_rows
from PIL import Image
from transformers import TrainerCallback

import vjudge as vj
from vjudge import prompts
from vjudge.data import CollectionError, rows_of
from vjudge.images import picture
from vjudge.judge import load_judge
from vjudge.prompts import TEMPLATES
from vjudge.training import checks, fine_tune, recipes
from vjudge.training import lora as adapters
from vjudge.training.batching import Collator, Order, States
from vjudge.training.examples import IGNORED, Coder, Examples
from vjudge.training.network import Network

pytestmark = pytest.mark.filterwarnings("ignore:.*verdicts failed")
SMALL: dict[str, Any] = dict(recipe="scenes", lr=3e-3, batch_size=4, warmup=2, log_every=1, progress=False)


def rows_with_feedback(n: int = 20, *, n_images: int = 1) -> list[dict[str, Any]]:
    rows = make_rows(n)
    for number, row in enumerate(rows):
        row["gold"] = float(number % 5 + 1)
        row["response"] = "it is a plain picture"
        row["feedback"] = f"It is answer {number % 7}."
        row["images"] = row["images"] * n_images
    return rows


@pytest.fixture(scope="module")
def onevision(tmp_path_factory) -> Path:
    return make_onevision(tmp_path_factory.mktemp("ov") / "judge")


@pytest.fixture(scope="module")
def text_only(tmp_path_factory) -> Path:
    return make_text("llama", tmp_path_factory.mktemp("text") / "judge")


@pytest.fixture(params=["llava", "onevision", "text"])
def base(request, random_judge, onevision, text_only) -> tuple[Path, str]:
    """A checkpoint and the wording to train it on."""
    return {
        "llava": (random_judge, "prometheus-vision"),
        "onevision": (onevision, "prometheus-vision"),
        "text": (text_only, "prometheus"),
    }[request.param]


def coder_of(folder: Path, template: Any, **options: Any) -> tuple[Any, Coder]:
    judge = load_judge(folder, template=template, device="cpu")
    return judge, Coder(judge.engine.model, judge.template, **options)


# What is trained on


def test_the_trained_tokens_are_exactly_the_target(base):
    """Decoded, the labelled tokens are the published target and the end; the ids before them are the judge's prompt."""
    judge, coder = coder_of(*base)
    tokenizer, engine = judge.engine.model.tokenizer, judge.engine
    for row in rows_with_feedback(6):
        example = coder(row)
        trained = [token for token in example.labels if token != IGNORED]
        written = judge.template.conversation.reply + prompts.target(row["feedback"], int(row["gold"]))
        assert tokenizer.decode(trained[:-1]) == written
        assert trained[-1] in engine.ends
        assert example.ids[example.n_prompt :] == trained
        prompt = judge.template.render(vj.records.Item.from_row(row))
        if judge.engine.model.sees_images:
            features = engine.images_of_a_call()
            prompt, taken = features.place(prompt, features.keys(list(map(picture, row["images"]))))
            assert example.ids[: example.n_prompt] == engine.encoder.ids(prompt, image_tokens=taken)
        else:
            assert example.ids[: example.n_prompt] == engine.encoder.ids(prompt)


ABSOLUTE = [name for name, t in TEMPLATES.items() if not t.compares and t.marker in ("[RESULT]", "Final Score:")]


@pytest.mark.parametrize("conversation", ["own", "chatml"])
@pytest.mark.parametrize("name", ABSOLUTE)
def test_every_wording_trains_the_target_alone(name, conversation, random_judge, onevision, text_only):
    """In Vicuna's, Llama's and Mistral's conversations and in Qwen's, with two images where the judge sees any."""
    template = TEMPLATES[name]
    if conversation == "own" and template.conversation.controls:
        pytest.skip("its own conversation is ChatML")
    if name.startswith("chat"):
        folder = onevision
    elif conversation == "chatml":
        folder = onevision
    else:
        folder = random_judge if template.sees_images else text_only
    judge, coder = coder_of(folder, name)
    row = rows_with_feedback(3, n_images=2 if judge.template.sees_images else 1)[1]
    example = coder(row)
    trained = [token for token in example.labels if token != IGNORED]
    tokenizer = judge.engine.model.tokenizer
    wanted = (
        prompts.target(row["feedback"], 2) if template.marker == "[RESULT]" else f"{row['feedback']}\nFinal Score: 2"
    )
    assert tokenizer.decode(trained[:-1]) == judge.template.conversation.reply + wanted
    places = [i for i, token in enumerate(example.ids) if token == judge.engine.model.image_token_id]
    assert not places or max(places) < example.n_prompt
    assert (len(places) > 0) == judge.template.sees_images


@pytest.mark.parametrize("padding", ["left", "right"])
def test_padding_keeps_every_label_and_the_loss(base, padding):
    judge, coder = coder_of(*base)
    rows = rows_with_feedback(5, n_images=1)
    rows[2]["response"] = "it is " * 12
    if judge.engine.model.sees_images:
        rows[3]["images"] = rows[3]["images"] * 2
    examples = [coder(row, index) for index, row in enumerate(rows)]
    batch = Collator(coder, padding=padding)(examples)
    for example, ids, mask, labels in zip(
        examples, batch["input_ids"], batch["attention_mask"], batch["labels"], strict=True
    ):
        assert ids[mask.bool()].tolist() == example.ids
        assert labels[mask.bool()].tolist() == example.labels
        assert (labels[~mask.bool()] == IGNORED).all()
    network = Network(judge.engine.model)
    with torch.no_grad():
        together = network(**batch)["loss"]
        n = sum(label != IGNORED for e in examples for label in e.labels)
        alone = sum(network(**Collator(coder)([e]), num_items_in_batch=n)["loss"] for e in examples)
    assert float(together) == pytest.approx(float(alone), rel=1e-5)


def test_the_loss_is_transformers_own(random_judge):
    """On one image a row the same number as the model's own loss over the same labels."""
    judge, coder = coder_of(random_judge, "prometheus-vision")
    model = judge.engine.model
    rows = rows_with_feedback(3)
    batch = Collator(coder, padding="right")([coder(row) for row in rows])
    pixels = model.image_processor([row["images"][0] for row in rows], return_tensors="pt")["pixel_values"]
    with torch.no_grad():
        inputs = {key: batch[key] for key in ("input_ids", "attention_mask", "labels")}
        theirs = model.model(**inputs, pixel_values=pixels).loss
        assert float(Network(model)(**batch)["loss"]) == pytest.approx(float(theirs), abs=1e-5)


def test_published_texts_go_in_as_they_are(onevision):
    """A row of LLaVA-Critic-113k is trained on its own prompt and answer, in ChatML."""
    judge, coder = coder_of(onevision, None)
    row = {
        "id": "1",
        "images": [Image.new("RGB", (20, 30))],
        "prompt": "Say <|im_end|> which.",
        "target": " A.\nScore: 7",
    }
    example = coder(row)
    tokenizer = judge.engine.model.tokenizer
    assert tokenizer.decode([t for t in example.labels if t != IGNORED]) == " A.\nScore: 7<|im_end|>"
    asked = tokenizer.decode(example.ids[: example.n_prompt]).replace("<image>", "")
    assert asked.endswith("<|im_start|>user\n\nSay <|im_end|> which.<|im_end|>\n<|im_start|>assistant\n")
    end = tokenizer.convert_tokens_to_ids("<|im_end|>")
    assert example.ids.count(end) == 3, "the one in the text is spelled out"


def test_the_published_sample_gives_its_own_target():
    file = Path(__file__).parents[2] / "shared/data/prometheus_vision_samples/sample_train_data.json"
    if not file.is_file():
        pytest.skip(f"{file} is not there")
    for row, made in zip(json.loads(file.read_text()), rows_of(file), strict=True):
        prompt, target = vj.training.prompt_and_target(made, TEMPLATES["prometheus-vision"])
        assert target == row["conversations"][1]["value"]
        assert prompt.text.endswith(row["conversations"][0]["value"].removeprefix("<image>\n") + " ASSISTANT:")


# What is refused, before any work


def test_everything_wrong_with_the_rows_is_said_at_once(random_judge, tmp_path):
    rows = rows_with_feedback(10)
    rows[1]["feedback"] = None
    rows[3]["gold"] = None
    rows[4]["descriptions"] = [f"{level} {'words ' * 600}" for level in rows[4]["descriptions"]]
    rows[6]["images"] = [str(tmp_path / "gone.png")]
    rows[7]["feedback"] = "Fine. So the overall score is 1."
    with pytest.raises(CollectionError) as caught:
        fine_tune(random_judge, rows, out=tmp_path / "out", **SMALL)
    by_row = {problem.index: str(problem) for problem in caught.value.problems}
    assert sorted(by_row) == [1, 3, 4, 6, 7]
    assert "feedback: is missing" in by_row[1] and "whole score" in by_row[3] and "gone.png" in by_row[6]
    assert re.search(r"have \d+ tokens \(\d+ \+ \d+, 4 of them for images\) and the limit is \d+", by_row[4])
    assert not (tmp_path / "out").exists()


def test_an_unbalanced_collection_is_refused_with_the_figure(random_judge, tmp_path):
    rows = rows_with_feedback(40)
    for row in rows:
        row["response"] = "word " * int(row["gold"])
    with pytest.raises(CollectionError, match=r"with probability 1\.00"):
        fine_tune(random_judge, rows, out=tmp_path, **SMALL)
    assert checks.check_balance(rows, allow=["length"])["auc"] == 1.0
    few = [row for row in rows_with_feedback(40) if row["gold"] != 2 or int(row["id"][5:]) < 5]
    with pytest.raises(CollectionError, match=r"8\.0 times as frequent as the rarest"):
        checks.check_balance(few)
    assert checks.check_balance(few, allow=["scores"])["ratio"] == 8.0
    pairs = [
        {"response_a": "a b" if n % 2 else "a", "response_b": "c", "preference": "ab"[n % 2 - 1]} for n in range(8)
    ]
    with pytest.raises(CollectionError, match="longer one with probability 0.75"):
        checks.check_balance(pairs)


def test_leakage_is_found_by_pixels_and_by_texts(tmp_path):
    rows = rows_with_feedback(4)
    for number, row in enumerate(rows):
        row["images"] = [Image.new("RGB", (8, 8), (number, 0, 0))]
        row["response"] = f"answer {number}"
    rows[1]["images"][0].save(tmp_path / "same.png")
    other = Image.new("RGB", (8, 8), (99, 0, 0))
    test = [rows[0] | {"id": "t0", "images": [other]}, rows[3] | {"id": "t1", "images": [str(tmp_path / "same.png")]}]
    test[1]["response"] = "another"
    with pytest.raises(CollectionError) as caught:
        checks.check_leakage(rows, test)
    assert [(p.index, p.field) for p in caught.value.problems] == [(0, "response"), (1, "images")]
    assert checks.check_leakage(rows, test, allow=["leakage"]) == 2
    assert checks.check_leakage(rows[2:3], test) == 0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (dict(quantization="4bit"), "add lora=True"),
        (dict(recipe="mine"), "recipe 'mine' is unknown"),
        (dict(rate=1), "no such setting"),
        (dict(lr=-1.0), "lr=-1.0"),
        (dict(freeze=["head"]), "name parts out of"),
        (dict(freeze=["tower", "projector", "decoder"]), "nothing to train"),
        (dict(freeze=["decoder"], lora=True), "leave one of them out"),
        (dict(precision="float16"), "for GPUs"),
        (dict(allow=["all"]), "allow="),
        (dict(rows_at_once=3), "no multiple"),
    ],
)
def test_unsound_options_are_refused(random_judge, tmp_path, options, said):
    with pytest.raises(ValueError, match=said):
        fine_tune(random_judge, rows_with_feedback(5), out=tmp_path / "out", **{**SMALL, "steps": 1, **options})


def test_a_chat_model_with_its_own_processor_is_refused_with_another_way(tmp_path):
    from chatmodels import make_chat

    folder = make_chat("qwen2_vl", tmp_path / "judge")
    with pytest.raises(ValueError, match="SFTTrainer"):
        fine_tune(folder, rows_with_feedback(5), out=tmp_path / "out", template="chat", **SMALL)


# Training


class Kill(TrainerCallback):
    """Stop the process, as far as the training can tell, at the end of a step."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step == self.step:
            raise KeyboardInterrupt


def weights_of(folder: Path) -> dict[str, torch.Tensor]:
    from safetensors.torch import load_file

    return load_file(folder / "model.safetensors")


def entries_of(folder: Path) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in (folder / "training_log.jsonl").read_text().splitlines()]
    return [{key: value for key, value in entry.items() if key != "seconds"} for entry in found]


def test_a_killed_training_resumes_to_the_same_weights_and_log(random_judge, tmp_path):
    rows, held_out = rows_with_feedback(18), rows_with_feedback(3)
    for row in held_out:
        row["images"], row["instruction"] = [Image.new("RGB", (30, 30), "purple")], "Another?"
    options = SMALL | dict(
        steps=9, checkpoint_every=2, evaluate_every=3, rows_at_once=2, validation=held_out, lora=None
    )
    whole = fine_tune(random_judge, rows, out=tmp_path / "whole", **options)
    step = int(np.random.default_rng().integers(1, 9))
    with pytest.raises(KeyboardInterrupt):
        fine_tune(random_judge, rows, out=tmp_path / "cut", callbacks=[Kill(step)], **options)
    seen: list[dict[str, Any]] = []
    resumed = fine_tune(random_judge, rows, out=tmp_path / "cut", on_log=seen.append, **options)
    expected = weights_of(whole)
    for name, weight in weights_of(resumed).items():
        assert torch.equal(weight, expected[name]), (step, name)
    assert json.dumps(entries_of(tmp_path / "cut")) == json.dumps(entries_of(tmp_path / "whole")), step
    assert [entry["step"] for entry in seen] == [entry["step"] for entry in entries_of(tmp_path / "cut")]
    with pytest.raises(ValueError, match=r"holds another training \(recipe was"):
        fine_tune(random_judge, rows, out=tmp_path / "cut", **options | {"lr": 1e-4})
    assert fine_tune(random_judge, rows, out=tmp_path / "cut", **options) == resumed, "done is done"


def test_one_batch_is_learned_by_heart(base, tmp_path):
    folder, template = base
    rows = rows_with_feedback(3)
    for row, name in zip(rows, ("white", "red", "blue"), strict=True):
        row["images"], row["response"] = [Image.new("RGB", (16, 16), name)], f"it is {name} {name}"
    done = fine_tune(
        folder, rows, out=tmp_path / "out", template=template,
        **SMALL | dict(steps=60, batch_size=3, lr=5e-3, warmup=5, log_every=10, checkpoint_every=60),
    )  # fmt: skip
    losses = [entry["loss"] for entry in entries_of(tmp_path / "out")]
    assert losses[0] > 1 and losses[-1] < 0.05
    judge = load_judge(done, device="cpu")
    assert judge.template.name == template
    run = judge.grade(rows, max_new_tokens=60, progress=False)
    assert run["score"].tolist() == [row["gold"] for row in rows]
    assert run["feedback"].str.startswith("It is answer").all()


def test_adapters_merged_and_kept_give_the_same_logits(base, tmp_path):
    folder, template = base
    rows = rows_with_feedback(10)
    options = SMALL | dict(template=template, steps=6, lora={"rank": 4, "alpha": 8}, lr=1e-2)
    merged = load_judge(fine_tune(folder, rows, out=tmp_path / "merged", **options), device="cpu")
    kept = load_judge(fine_tune(folder, rows, out=tmp_path / "kept", merge=False, **options), device="cpu")
    assert (tmp_path / "kept/judge/adapter_model.safetensors").is_file()
    assert not (tmp_path / "kept/judge/model.safetensors").exists()
    before = load_judge(folder, device="cpu", template=template)
    images = rows[0]["images"] if merged.engine.model.sees_images else []
    logits = [judge.forward("What is it?", images).logits for judge in (merged, kept, before)]
    assert torch.allclose(logits[0], logits[1], atol=1e-5)
    assert not torch.allclose(logits[0], logits[2], atol=1e-2)
    assert kept.template.name == template
    assert kept.grade(rows[:2], mode="score", progress=False)["expected_score"].notna().all()
    card = (tmp_path / "kept/judge/README.md").read_text()
    assert "rank 4" in card and "base_model:" in card


@pytest.mark.parametrize(
    ("freeze", "trained"),
    [
        (["tower"], {"projector", "decoder"}),
        (["tower", "decoder"], {"projector"}),
        (["projector"], {"tower", "decoder"}),
    ],
)
def test_frozen_parts_stay_as_they_are(random_judge, tmp_path, freeze, trained):
    from vjudge.training.network import part_of

    done = fine_tune(random_judge, rows_with_feedback(8), out=tmp_path / "out", freeze=freeze, steps=2, **SMALL)
    before, after = weights_of(random_judge), weights_of(done)
    changed = {part_of(name) for name in before if not torch.equal(before[name], after[name])}
    assert changed == trained


def test_the_papers_default_freezes_the_tower():
    assert recipes.RECIPES["prometheus-vision"].freeze == ("tower",)
    assert recipes.RECIPES["prometheus-vision-projector"].freeze == ("tower", "decoder")
    for recipe in recipes.RECIPES.values():
        assert recipe.source
    assert recipes.RECIPES["llava-critic"].lr == 2e-6 and recipes.RECIPES["llava-critic"].batch_size == 32


def test_cached_states_change_nothing_and_save_the_tower(random_judge, tmp_path):
    rows = rows_with_feedback(20)
    kept = fine_tune(random_judge, rows, out=tmp_path / "a", steps=6, **SMALL)
    anew = fine_tune(random_judge, rows, out=tmp_path / "b", steps=6, cache_bytes=0, **SMALL)
    for name, weight in weights_of(anew).items():
        assert torch.equal(weight, weights_of(kept)[name])
    states = States(10_000)
    states.put("a", torch.zeros(1000))
    states.put("b", torch.zeros(2000))
    assert states.get("a") is None and states.get("b") is not None and states.bytes == 8000


def test_accumulated_passes_are_one_batch(random_judge, tmp_path):
    """The loss of each step is the same however its rows are divided, though rows differ in length."""
    rows = rows_with_feedback(12)
    for number, row in enumerate(rows):
        row["feedback"] += " It is plain." * (number % 3)
    losses = []
    for at_once in (4, 1):
        out = tmp_path / str(at_once)
        fine_tune(
            random_judge, rows, out=out, steps=4, rows_at_once=at_once, gradient_checkpointing=at_once == 1, **SMALL
        )
        losses.append([entry["loss"] for entry in entries_of(out)])
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)


def test_an_image_that_fails_is_left_out_counted_and_named(random_judge, tmp_path):
    rows = rows_with_feedback(8)
    for number, row in enumerate(rows):
        Image.effect_noise((200, 200), 90).convert("RGB").save(tmp_path / f"{number}.jpg")
        row["images"] = [str(tmp_path / f"{number}.jpg")]
    whole = (tmp_path / "2.jpg").read_bytes()
    (tmp_path / "2.jpg").write_bytes(whole[: len(whole) // 2])  # its header is sound, its pixels are not
    fine_tune(random_judge, rows, out=tmp_path / "out", steps=4, **SMALL)
    assert entries_of(tmp_path / "out")[-1]["skipped"] == 1
    assert "image failed: 1" in (tmp_path / "out/judge/README.md").read_text().replace("\n", " ")
    with pytest.raises(CollectionError, match="2.jpg") as caught:
        fine_tune(random_judge, rows, out=tmp_path / "strict", steps=4, max_bad_images=0, **SMALL)
    assert [problem.id for problem in caught.value.problems] == ["item-2"]


def test_a_loss_that_is_no_number_stops_and_keeps_the_last_good_checkpoint(random_judge, tmp_path):
    class Spoil(TrainerCallback):
        def on_step_begin(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
            if state.global_step == 5:
                next(p for p in model.parameters() if p.requires_grad).data.fill_(float("nan"))

    rows = rows_with_feedback(12)
    options = SMALL | dict(steps=8, checkpoint_every=2)
    with pytest.raises(FloatingPointError, match=r"step 6: the loss is nan; the last good checkpoint is checkpoint-4"):
        fine_tune(random_judge, rows, out=tmp_path / "out", callbacks=[Spoil()], **options)
    whole = fine_tune(random_judge, rows, out=tmp_path / "whole", **options)
    resumed = fine_tune(random_judge, rows, out=tmp_path / "out", **options)
    assert all(torch.equal(weight, weights_of(whole)[name]) for name, weight in weights_of(resumed).items())


def test_the_best_weights_are_kept(random_judge, tmp_path, monkeypatch):
    from vjudge.training import running

    worth = iter([0.1, 0.9, 0.3, 0.2])
    found = dict(low=0.0, high=1.0, parsed=1.0, n=2)
    monkeypatch.setattr(running, "graded", lambda run: {"pearson": next(worth), **found})
    rows, held_out = rows_with_feedback(8), rows_with_feedback(2)
    options = SMALL | dict(steps=6, evaluate_every=2, validation=held_out, allow=["leakage"])
    best = fine_tune(random_judge, rows, out=tmp_path / "best", **options)
    worth = iter([0.1, 0.9, 0.3, 0.2])
    last = fine_tune(random_judge, rows, out=tmp_path / "last", keep="last", **options)
    kept = {f"model.{name}": weight for name, weight in weights_of(best).items()}
    assert [entry["pearson"] for entry in entries_of(tmp_path / "best") if "pearson" in entry] == [0.1, 0.9, 0.3, 0.2]
    assert not all(torch.equal(weight, weights_of(last)[name]) for name, weight in weights_of(best).items())
    assert kept


def test_epochs_are_drawn_anew_and_alike():
    examples: Any = type("E", (), {"lengths": Examples([], None).lengths, "__len__": lambda self: 37})()  # type: ignore[arg-type]
    examples.lengths.extend([n * 7 % 13 + 1 for n in range(37)])
    order = Order(examples, batch_size=4, steps=14, seed=1, grouped=True)
    first = order.epoch(0)
    assert sorted(first) == sorted(order.epoch(1)) == list(range(37)) and order.epoch(1) != first
    assert list(order) == [*first, *order.epoch(1)][:56] == list(order) and len(order) == 56
    steps = [[examples.lengths[i] for i in first[start : start + 4]] for start in range(0, 36, 4)]
    assert np.mean([max(step) - min(step) for step in steps]) < 2


@pytest.mark.parametrize("bits", ["4bit", "8bit"])
@pytest.mark.parametrize("merge", [None, True])
def test_adapters_train_on_a_quantised_base(random_judge, tmp_path, bits, merge):
    """It was refused on a CPU, and failed on a GPU where the projector trains: quantised weights can't."""
    pytest.importorskip("bitsandbytes")
    options = dict(lora=dict(rank=4, alpha=8), quantization=bits, precision="float32", steps=3, merge=merge)
    folder = fine_tune(random_judge, rows_with_feedback(12), out=tmp_path, device="cpu", **options, **SMALL)
    trained, base = (
        dict(load_judge(path, device="cpu").engine.model.model.named_parameters()) for path in (folder, random_judge)
    )
    assert (folder / "adapter_config.json").is_file() is (merge is None)
    if merge:
        changed = {name for name in base if not torch.equal(base[name], trained[name].float())}
        assert {adapters.part_of(name) for name in changed} == {"decoder", "projector"}
    else:
        assert any("lora_" in name for name in trained) and any("projector.modules_to_save" in name for name in trained)
