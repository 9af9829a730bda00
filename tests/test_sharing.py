"""Shared prefixes: which tokens are shared, that each is computed once, and that answers stay what they were."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from chatmodels import make_onevision, make_text
from PIL import Image

from vjudge import models
from vjudge.engines import TorchEngine
from vjudge.engines.decoding import Job
from vjudge.engines.prefixes import SHORTEST, in_order, leaves, n_unique
from vjudge.prompts import IMAGE, Prompt

ASKED: dict[str, Any] = {"score_texts": {n: f" {n}" for n in range(1, 6)}, "marker": "[RESULT]"}


def job(index: int, *runs: tuple[int, int]) -> Job:
    """A prompt of runs (token, how often)."""
    ids = np.concatenate([np.full(times, token, np.int32) for token, times in runs])
    return Job(index, ids, (), index)


# --- the tree ---------------------------------------------------------------------------------------------------------


def test_prefixes_by_hand() -> None:
    """Two levels, a prompt by itself, and a common run that is too short to keep apart."""
    jobs = [
        job(0, (1, 30), (2, 20), (3, 5)),
        job(1, (9, 40)),
        job(2, (1, 30), (2, 20), (4, 6)),
        job(3, (1, 30), (5, SHORTEST - 1), (6, 3)),
        job(4, (1, 30), (5, SHORTEST - 1), (7, 3)),
    ]
    found = {leaf.job.index: leaf for leaf in leaves(in_order(jobs))}
    spans = {index: [(prefix.start, prefix.end, prefix.rows) for prefix in leaf.path] for index, leaf in found.items()}
    assert spans == {
        0: [(0, 30, 4), (30, 50, 2)],
        1: [],
        2: [(0, 30, 4), (30, 50, 2)],
        3: [(0, 30, 4)],
        4: [(0, 30, 4)],
    }
    assert found[0].prefix is found[2].prefix and found[3].prefix is found[0].path[0]
    assert n_unique(list(found.values())) == 30 + 20 + 5 + 6 + 40 + 2 * (SHORTEST - 1 + 3)
    # (4 - 1) * 30 reads are saved by the first prefix, (2 - 1) * 50 by the second.
    together = found[0].read_together(90)
    assert together is found[0].path[0] and found[0].read_together(91) is None


def test_an_image_is_told_by_its_number() -> None:
    """The places of all images hold one id; prompts share those of their own image alone, and ids are held once."""
    ids = np.concatenate([np.full(times, token, np.int32) for token, times in ((1, 10), (7, 20), (2, 12))])
    jobs = [Job(index, ids, (str(n),), index, 7, ((-1 - n, 20),)) for index, n in enumerate((0, 1, 0))]
    assert jobs[1].atoms.tolist() == [1] * 10 + [-2] * 20 + [2] * 12 and jobs[1].ids is ids
    found = leaves(in_order(jobs))
    spans = {leaf.job.index: [(prefix.start, prefix.end) for prefix in leaf.path] for leaf in found}
    assert spans == {0: [(0, 10), (10, 41)], 1: [(0, 10)], 2: [(0, 10), (10, 41)]}


def test_equal_prompts_keep_their_last_token() -> None:
    """The answer follows from a token that is the prompt's own."""
    found = leaves([job(0, (1, 20)), job(1, (1, 20)), job(2, (1, 20))])
    assert [(leaf.start, len(leaf.job.ids)) for leaf in found] == [(19, 20)] * 3
    assert n_unique(found) == 19 + 3


# --- engines ----------------------------------------------------------------------------------------------------------


def words(random: Any, low: int, high: int) -> str:
    return " ".join(random.choice("the picture shows a red house and two cats".split(), random.integers(low, high)))


def prompts_of(n_images: int) -> tuple[list[Prompt], list[list[Any]]]:
    """Two pictures or none, two instructions each, three responses each; each response once more in a second sample."""
    random = np.random.default_rng(0)
    sizes = [(40, 30), (16, 50)]
    pictures = [Image.fromarray(random.integers(0, 256, (h, w, 3), dtype=np.uint8)) for w, h in sizes]
    prompts, images = [], []
    for picture in pictures:
        for _ in range(2):
            asked = f" Judge what is said. {words(random, 6, 12)}: "
            for _ in range(3):
                said = words(random, 2, 15)
                prompts += [Prompt(("See ", IMAGE, asked, said) if n_images else (asked, said))] * 2
                images += [[picture] * n_images] * 2
    return prompts, images


def engine_of(kind: str, folder: Path) -> TorchEngine:
    made = make_onevision(folder) if kind == "onevision" else make_text(kind, folder)
    return TorchEngine(models.load(made, device="cpu"))


def answers(batches: Any) -> list[Any]:
    return sorted((answer for batch in batches for answer in batch), key=lambda answer: answer.index)


@pytest.mark.parametrize("kind", ["onevision", "llama", "mixtral"])
def test_sharing_changes_no_answer(kind: str, tmp_path: Path, monkeypatch: Any) -> None:
    """Every token is computed once, and texts and distributions are those of plain batches and of one at a time."""
    engine = engine_of(kind, tmp_path)
    assert engine.plain is None
    prompts, images = prompts_of(int(kind == "onevision"))
    options: dict[str, Any] = {"max_new_tokens": 12, **ASKED}
    forced = [prompt.append(" [RESULT]") for prompt in prompts]
    shared = answers(engine.generate(prompts, images, **options))
    work = engine.work
    assert work.prompt_tokens == sum(answer.n_prompt_tokens for answer in shared)
    assert work.computed_tokens < 0.6 * work.prompt_tokens and work.new_tokens == sum(a.n_new_tokens for a in shared)
    assert work.images == (2 if kind == "onevision" else 0)
    scored = answers(engine.score(forced, images, **ASKED))
    few = answers(engine.generate(prompts, images, batch_size=3, **options))
    penalized = answers(engine.generate(prompts, images, repetition_penalty=1.3, **options))
    monkeypatch.setattr(engine, "_plain", "for this test")
    alone = answers(engine.generate(prompts, images, batch_size=1, **options))
    assert [a.text for a in shared] == [a.text for a in few] == [a.text for a in alone]
    other = answers(engine.generate(prompts, images, repetition_penalty=1.3, batch_size=1, **options))
    assert [a.text for a in penalized] == [a.text for a in other] != [a.text for a in alone]
    for one, two in zip(scored, answers(engine.score(forced, images, **ASKED)), strict=True):
        assert one.score_logprobs == pytest.approx(two.score_logprobs, abs=1e-4)


def test_samples_of_a_prompt_are_computed_from_one(tmp_path: Path) -> None:
    engine = engine_of("llama", tmp_path)
    prompt = Prompt(("The answer to judge is this: a red house. Judge it.",))
    found = answers(engine.generate([prompt] * 6, [[]] * 6, max_new_tokens=8, temperature=1.0, **ASKED))
    assert engine.work.computed_tokens == found[0].n_prompt_tokens - 1 + 6
    assert len({answer.text for answer in found}) > 1
    alone = answers(
        engine.generate([prompt], [[]], max_new_tokens=8, temperature=1.0, seeds=[4], batch_size=1, **ASKED)
    )
    assert alone[0].text == found[4].text


def test_what_can_not_share_says_so_and_is_batched_plainly(tmp_path: Path, monkeypatch: Any) -> None:
    """A sliding window is not the shared attention's; it is found by trial, and said once."""
    monkeypatch.setattr("vjudge.engines.local._said", set())
    engine = engine_of("mistral", tmp_path)
    with pytest.warns(UserWarning, match=r"mistral: rows share no prefixes here.*sliding_window"):
        assert "sliding_window" in str(engine.plain)
    assert engine.identity()["engine"] == "torch, rows batched plainly"
    prompts, images = prompts_of(0)
    found = answers(engine.generate(prompts, images, max_new_tokens=6, **ASKED))
    alone = answers(engine.generate(prompts, images, max_new_tokens=6, batch_size=1, **ASKED))
    assert [answer.text for answer in found] == [answer.text for answer in alone]
    assert engine.work.computed_tokens == engine.work.prompt_tokens


def test_the_trial_finds_attention_of_another_kind(tmp_path: Path, monkeypatch: Any) -> None:
    """A decoder that does something of its own with its keys is caught by its logits."""
    engine = engine_of("llama", tmp_path)
    layer = engine.model.model.model.layers[1].self_attn
    own = layer.forward

    def shifted(*inputs: Any, **named: Any) -> Any:
        output, weights = own(*inputs, **named)
        return output.roll(1, dims=1), weights  # looks at its neighbour in the row, whoever that is

    monkeypatch.setattr(layer, "forward", shifted)
    monkeypatch.setattr("vjudge.engines.local._said", set())
    with pytest.warns(UserWarning, match="of the largest apart"):
        assert engine.plain is not None


def test_the_decoder_keeps_its_own_attention(tmp_path: Path) -> None:
    """After a call, and after one that failed, the model attends as before."""
    engine = engine_of("llama", tmp_path)
    config = engine.model.model.config
    before = config._attn_implementation
    ids = torch.tensor([engine.encoder.ids(Prompt(("A text.",)))])
    expected = engine.model.model(input_ids=ids).logits
    list(engine.generate([Prompt(("A text.",))] * 2, [[], []], max_new_tokens=2, **ASKED))
    assert config._attn_implementation == before
    assert torch.equal(engine.model.model(input_ids=ids).logits, expected)
