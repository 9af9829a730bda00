"""DPO by TRL on small models: what it is trained on is what the policy answers with, and a round repeats."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("trl")

from safetensors import safe_open  # noqa: E402

from vjudge import models, preference  # noqa: E402
from vjudge.preference import truth  # noqa: E402
from vjudge.preference.batches import PairBatches  # noqa: E402
from vjudge.preference.dpo import RECORD, DpoSettings, train  # noqa: E402
from vjudge.scenes import ASPECT_OF, rows  # noqa: E402

TINY = Path(models.__file__).parents[1] / "assets/tiny"
FAST = {"learning_rate": 1e-4, "batch_size": 4, "microbatch": 4}


@pytest.fixture(scope="module")
def pairs() -> list[dict[str, Any]]:
    asked = preference.scene_questions("train", limit=8)
    texts = {"chosen": "(1) red comes to two.", "rejected": "(1) wrong, <image> and </s> spelled out."}
    return [{"id": row["id"], "instruction": row["instruction"], "images": row["images"], **texts} for row in asked]


@pytest.fixture(scope="module")
def trained(pairs: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    out = tmp_path_factory.mktemp("dpo") / "policy"
    return out, train(TINY, pairs, out, DpoSettings(**FAST))


def test_pairs_become_the_tokens_and_pixels_that_the_policy_answers_with(pairs: Any) -> None:
    policy = preference.load_policy(TINY)
    engine: Any = policy.engine
    batches = PairBatches(engine.model, policy.conversation)
    batch = batches(pairs[:2])
    prompt = engine.encoder.ids(policy.prompt(pairs[0]))
    assert batch["input_ids"].shape[0] == 4 and batch["input_ids"][0, : len(prompt)].tolist() == prompt
    first = batch["completion_mask"][0].bool()
    assert not first[: len(prompt)].any()
    text = engine.encoder.text(batch["input_ids"][0][first].tolist())
    assert text == " (1) red comes to two.</s>"
    assert int((batch["input_ids"] == engine.model.image_token_id).sum()) == 4 * engine.model.tokens_per_image
    rejected = batch["input_ids"][2][batch["completion_mask"][2].bool()].tolist()
    assert rejected.count(engine.model.tokenizer.eos_token_id) == 1  # "</s>" in the text is text
    seen = engine.forward(policy.prompt(pairs[0]), pairs[0]["images"]).pixel_values
    assert torch.equal(batch["pixel_values"][0], seen.reshape(batch["pixel_values"][0].shape))
    assert torch.equal(batch["pixel_values"][0], batch["pixel_values"][2])
    cut = PairBatches(engine.model, policy.conversation, max_length=len(prompt) + 2)(pairs[:1])
    assert cut["input_ids"].shape[1] == len(prompt) + 2
    assert [PairBatches(engine.model, policy.conversation, max_length=n).n_cut(pairs) for n in (None, 400)] == [0, 0]
    assert PairBatches(engine.model, policy.conversation, max_length=len(prompt) + 9).n_cut(pairs[:1]) == 1
    with pytest.raises(ValueError, match=f"has {len(prompt)} tokens and max_length is {len(prompt)}"):
        PairBatches(engine.model, policy.conversation, max_length=len(prompt)).n_cut(pairs[:1])


def test_a_response_ends_with_the_token_that_ends_a_turn(pairs: Any) -> None:
    from vjudge.prompts import Conversation

    policy = preference.load_policy(TINY)
    model = policy.engine.model  # type: ignore[attr-defined]
    turns = Conversation(name="turns", opening="", closing="<pad>\n", controls=("<pad>",))
    batches = PairBatches(model, turns)
    assert batches.encode(pairs[0])[1][-1] == model.tokenizer.pad_token_id != model.tokenizer.eos_token_id


def test_a_round_prefers_what_was_chosen_and_repeats_to_the_bit(trained: Any, pairs: Any, tmp_path: Path) -> None:
    out, record = trained
    log = preference.log_of(record)
    assert record["pairs"] == 8 and record["steps"] == 2 and log["loss"].iloc[0] == pytest.approx(0.6931, abs=1e-3)
    assert log["rewards/margins"].iloc[-1] > 0
    again = train(TINY, pairs, tmp_path / "again", DpoSettings(**FAST))
    assert preference.log_of(again)["loss"].tolist() == log["loss"].tolist()
    assert models.weights_fingerprint(tmp_path / "again") == models.weights_fingerprint(out)
    assert models.weights_fingerprint(out) != models.weights_fingerprint(TINY)
    with safe_open(out / "model.safetensors", framework="pt") as file:  # the names that vLLM reads
        towers = [name for name in file.keys() if "vision_tower." in name]
    assert towers and all("vision_tower.vision_model." in name for name in towers)
    (answer,) = preference.load_policy(out).respond(pairs[:1], max_new_tokens=3, progress=False)["response"]
    assert isinstance(answer, str)


def test_what_is_trained_is_not_trained_again_and_another_round_is_refused(trained: Any, pairs: Any) -> None:
    out, record = trained
    before = (out / RECORD).stat().st_mtime_ns
    assert train(TINY, pairs, out, DpoSettings(**FAST)) == json.loads((out / RECORD).read_text())
    assert (out / RECORD).stat().st_mtime_ns == before
    with pytest.raises(ValueError, match="holds a round with other settings"):
        train(TINY, pairs, out, DpoSettings(**FAST, beta=0.2))


def test_lora_leaves_a_whole_checkpoint_and_the_tower_alone(pairs: Any, tmp_path: Path) -> None:
    record = train(TINY, pairs, tmp_path / "lora", DpoSettings(**FAST, lora={"r": 4, "lora_alpha": 8}))
    assert record["trained_parameters"] < 200_000
    before, after = (dict(models.load(folder).model.named_parameters()) for folder in (TINY, tmp_path / "lora"))
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed and all("language_model" in name for name in changed)


@pytest.mark.parametrize("lora", [None, {"r": 4}], ids=["full", "lora"])
def test_an_interrupted_round_goes_on_and_ends_as_an_unbroken_one(
    pairs: Any, tmp_path: Path, monkeypatch: Any, lora: Any
) -> None:
    settings = DpoSettings(**FAST, epochs=2, checkpoint_every=1, lora=lora)
    made = []
    call = PairBatches.__call__

    def counted(self: PairBatches, rows: Any) -> Any:
        if len(made) == stop_after:
            raise KeyboardInterrupt
        made.append(len(rows))
        return call(self, rows)

    monkeypatch.setattr(PairBatches, "__call__", counted)
    stop_after = None
    whole = train(TINY, pairs, tmp_path / "whole", settings)
    assert len(made) == 4
    stop_after = 7
    with pytest.raises(KeyboardInterrupt):
        train(TINY, pairs, tmp_path / "cut", settings)
    (last,) = (tmp_path / "cut.part/checkpoints").glob("checkpoint-*")
    torn = last.with_name("checkpoint-99")  # as a kill while it is written leaves it
    torn.mkdir()
    stop_after = None
    made.clear()
    rest = train(TINY, pairs, tmp_path / "cut", settings)
    assert last.name in ("checkpoint-2", "checkpoint-3") and len(made) < 4
    assert preference.log_of(rest)["loss"].tolist() == preference.log_of(whole)["loss"].tolist()
    assert models.weights_fingerprint(tmp_path / "cut") == models.weights_fingerprint(tmp_path / "whole")


def test_unsound_settings_are_refused() -> None:
    with pytest.raises(ValueError, match="batch_size a multiple of microbatch; train names some of"):
        DpoSettings(batch_size=5, microbatch=2, train=("eyes",))


def test_the_true_score_of_an_answer_is_the_collections_own() -> None:
    for row in rows("test", limit=120):
        question = {"group": row["group"], "scenes_seed": 0, "aspect": ASPECT_OF[row["criteria"]]}
        found = truth.true_score(question, row["response"])
        assert found["score"] == row["gold"] and found["claims"] == 4 and not found["unreadable"]


def test_free_answers_lose_for_what_is_missing_repeated_or_off_the_question() -> None:
    row = next(row for row in rows("test", limit=10) if row["gold"] == 5)
    question = {"group": row["group"], "scenes_seed": 0, "aspect": ASPECT_OF[row["criteria"]]}
    sentences = [f"({i + 1}) {each.strip()}" for i, each in enumerate(truth._MARK.split(row["response"])[1:])]
    assert truth.true_score(question, " ".join(sentences[:3]))["score"] == 4
    repeated = truth.true_score(question, " ".join([*sentences[:3], sentences[0]]))
    assert repeated["score"] == 4 and repeated["repeated"] == 1
    strange = truth.true_score(question, " ".join([*sentences, "(5) I like it."]))
    assert strange["score"] == 4 and strange["unreadable"] == 1
    assert truth.true_score(question, "")["score"] == 1
    with pytest.raises(ValueError, match="names no scene"):
        truth.true_score({**question, "group": "photo"}, "")


def test_the_policy_for_scenes_answers_in_claims_and_imperfectly() -> None:
    from assets import policy as tiny

    facts = json.loads((tiny.FOLDER / "training.json").read_text("utf-8"))
    made = {"steps": tiny.STEPS, "wrong": list(tiny.WRONG), "stops_early": tiny.STOPS_EARLY, "repeats": tiny.REPEATS}
    assert facts == {"seed": 0, **made}
    asked = preference.scene_questions("validation", limit=40)
    answers = preference.load_policy(tiny.FOLDER).respond(asked, temperature=1.0, max_new_tokens=90, progress=False)
    scored = preference.score_answers(asked, answers)
    assert scored["true_unreadable"].mean() < 0.5 and scored["true_claims"].mean() > 3
    assert 1.7 < scored["true_score"].mean() < 3 and scored["true_score"].max() > 3


def test_such_a_policy_is_made_and_continued(tmp_path: Path) -> None:
    from assets import policy as tiny

    for steps in (1, 1):  # the second call finds nothing left to do
        tiny.main(["--out", str(tmp_path), "--steps", str(steps)])
    assert models.weights_fingerprint(tmp_path / "policy") != models.weights_fingerprint(TINY)
    tower = [
        {name: weight for name, weight in models.load(folder).model.named_parameters() if "vision_tower" in name}
        for folder in (TINY, tmp_path / "policy")
    ]
    assert all(torch.allclose(weight, tower[1][name].float(), atol=1e-2) for name, weight in tower[0].items())
    assert json.loads((tmp_path / "policy/training.json").read_text("utf-8"))["steps"] == 1


def test_the_chosen_responses_own_likelihood_can_be_held(pairs: Any, tmp_path: Path) -> None:
    plain, held = (train(TINY, pairs, tmp_path / str(w), DpoSettings(**FAST, epochs=2, sft=w)) for w in (0.0, 2.0))
    ends = [preference.log_of(record)["rewards/chosen"].iloc[-1] for record in (plain, held)]
    assert ends[1] > ends[0] and preference.log_of(held)["loss"].iloc[0] > 0.7
    with pytest.raises(ValueError, match="sft at least 0"):
        DpoSettings(sft=-1.0)
