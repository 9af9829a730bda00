"""The torch engine against transformers' own generate and forward, and against itself one prompt at a time."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import make_model, make_rows, make_tokenizer, save_judge
from PIL import Image

from vjudge import models
from vjudge.engines import Ask, TorchEngine
from vjudge.engines import torch as engine_module
from vjudge.engines.torch import Row, TorchCall, draw_tokens, threads_for, using_threads
from vjudge.images import Pictures
from vjudge.prompts import IMAGE, TEMPLATES, Prompt
from vjudge.records import Item

TEMPLATE = TEMPLATES["prometheus-vision"]
FIVE = {n: f" {n}" for n in range(1, 6)}


def ask(mode: str = "feedback", *, scale: Any = FIVE, n: int = 60, **how: Any) -> Ask:
    """How a call of up to n prompts is asked."""
    return Ask(mode, "[RESULT]", [scale] * n, **how)


@pytest.fixture(scope="module")
def random_engine(random_judge: Path) -> TorchEngine:
    return TorchEngine(models.load(random_judge, device="cpu"))


@pytest.fixture(scope="module")
def taught_engine(taught_judge: Path) -> TorchEngine:
    return TorchEngine(models.load(taught_judge, device="cpu"))


@pytest.fixture(scope="module")
def mixed() -> tuple[list[Prompt], list[list[Image.Image]]]:
    """Prompts of very different lengths with no, one and two images, some of them shared."""
    random = np.random.default_rng(3)
    noise = [Image.fromarray(random.integers(0, 256, (30 + 9 * n, 50, 3), dtype=np.uint8)) for n in range(3)]
    prompts, images = [], []
    for number, row in enumerate(make_rows(14, seed=5)):
        rendered = TEMPLATE.render(Item.from_row(row))
        if number % 5 == 3:
            prompts.append(Prompt(("Say ",) + (row["response"],)))
            images.append([])
        elif number % 5 == 4:
            prompts.append(Prompt(("Compare ", IMAGE, " and\n", IMAGE, row["response"])))
            images.append([noise[number % 3], row["images"][0]])
        else:
            prompts.append(rendered)
            images.append(row["images"])
    return prompts, images


def answers(batches: Any) -> list[Any]:
    return sorted((answer for batch in batches for answer in batch), key=lambda answer: answer.index)


# --- against transformers, and one at a time --------------------------------------------------------------------------


def pixels_of(engine: TorchEngine, images: list[Any]) -> dict[str, Any]:
    return dict(engine.model.image_processor(images, return_tensors="pt")) if images else {}


def reference_ids(engine: TorchEngine, prompt: Prompt, images: list[Any], max_new_tokens: int) -> list[int]:
    """The greedy continuation by transformers' own generate, one prompt, no padding."""
    ids = torch.tensor([engine.encoder.ids(prompt)])
    how: dict[str, Any] = {"do_sample": False, "max_new_tokens": max_new_tokens, **pixels_of(engine, images)}
    bad = [[engine.model.image_token_id]]
    out = engine.model.model.generate(input_ids=ids, attention_mask=torch.ones_like(ids), bad_words_ids=bad, **how)
    return out[0, ids.shape[1] :].tolist()


def worded(engine: TorchEngine, logits: torch.Tensor) -> torch.Tensor:
    """Log-probabilities where an image's place is no word."""
    logits[engine.model.image_token_id] = -torch.inf
    return logits.log_softmax(-1)


def test_batched_equals_generate_one_at_a_time(random_engine: TorchEngine, mixed: Any) -> None:
    prompts, images = mixed
    for how in (ask(max_new_tokens=24), ask(max_new_tokens=24, batch_size=3)):
        together = answers(random_engine.answer(prompts, images, how))
        assert [answer.failure for answer in together] == [None] * len(prompts)
        for answer, prompt, shown in zip(together, prompts, images, strict=True):
            expected = reference_ids(random_engine, prompt, shown, 24)
            ended = expected[-1] in random_engine.ends
            assert answer.text == random_engine.encoder.text(expected[:-1] if ended else expected)
            assert (answer.stopped, answer.n_new_tokens) == (ended, len(expected))
            assert answer.n_prompt_tokens == len(random_engine.encoder.ids(prompt))
        assert len({answer.text for answer in together}) > len(prompts) // 2


def test_rows_that_end_early_leave_the_batch(taught_engine: TorchEngine, rows: Any) -> None:
    items = [Item.from_row(row) for row in rows[:12]]
    prompts = [TEMPLATE.render(item) for item in items]
    images = [item.images for item in items]
    prompts[3] = prompts[3].append(" It is red. So the overall score is")  # a shorter answer than the rest
    prompts[7] = prompts[7].append(" It is blue. So the overall score is 3.\n[RESULT]")
    alone = answers(taught_engine.answer(prompts, images, ask(max_new_tokens=40, batch_size=1)))
    together = answers(taught_engine.answer(prompts, images, ask(max_new_tokens=40)))
    assert [answer.text for answer in together] == [answer.text for answer in alone]
    assert len({answer.n_new_tokens for answer in together}) > 2 and all(answer.stopped for answer in together)


def test_prefixes_are_computed_once_and_change_nothing(random_engine: TorchEngine) -> None:
    """Thirty responses about two images: what they have in common is computed once an image; samples share all."""
    rows = [row | {"instruction": "What is it?"} for row in make_rows(30)]
    prompts = [TEMPLATE.render(Item.from_row(row)) for row in rows] + [TEMPLATE.render(Item.from_row(rows[0]))] * 4
    images = [rows[place % 2]["images"] for place in range(34)]
    alone = answers(random_engine.answer(prompts, images, ask(max_new_tokens=8, batch_size=1)))
    together = answers(random_engine.answer(prompts, images, ask(max_new_tokens=8)))
    work = random_engine.work
    assert work.computed_tokens < 0.85 * work.prompt_tokens and work.images == 2 and work.at_once == 34
    assert [answer.text for answer in together] == [answer.text for answer in alone]


@pytest.mark.parametrize(
    ("beginnings", "prefixes"),
    # Rows of 25 tokens, two and two alike. By hand: one prefix of 9 saves 27 tokens and two of 20 save 40; one of 15
    # saves 45 and two of 17 save 34; samples of one prompt share all but the last token; 3 tokens are not worth it.
    [((9, 20), [20, 20]), ((15, 17), [15]), ((25, 25), [24]), ((3, 3), [24, 24, 24, 24])],
)
def test_rows_share_the_prefixes_that_save_most(beginnings: tuple[int, int], prefixes: list[int]) -> None:
    all_rows, pairs = beginnings
    rows = []
    for n in range(4):
        rows.append(Row(n, [0] * all_rows + [10 + n // 2] * (pairs - all_rows) + [20 + n] * (25 - pairs)))
    together = engine_module.best_prefixes(rows, engine_module.SHORTEST)[1]
    assert [length for length, _ in together] == prefixes
    assert [row.index for _, sharers in together for row in sharers] == [0, 1, 2, 3]


def test_rows_that_share_a_lane_write_what_they_write_alone(random_engine: TorchEngine, monkeypatch: Any) -> None:
    """A prefix is kept once for several rows, and a mask keeps them apart, also where lanes leave the batch."""
    rows = make_rows(23)
    prompts = [TEMPLATE.render(Item.from_row(row)) for row in rows]
    images = [rows[place % 3]["images"] for place in range(23)]
    for how in (ask(max_new_tokens=24), ask(max_new_tokens=24, temperature=0.8)):
        alone = answers(random_engine.answer(prompts, images, how))
        with monkeypatch.context() as patch:
            patch.setattr(engine_module, "rows_abreast", lambda *_: 4)
            together = answers(random_engine.answer(prompts, images, how))
        assert [answer.text for answer in together] == [answer.text for answer in alone]
    assert len({answer.n_new_tokens for answer in together}) > 1


def test_a_scale_of_ten_is_read_in_two_steps_and_its_shares_add_up(random_engine: TorchEngine, rows: Any) -> None:
    """The scores' probabilities are those of their texts, by plain passes over each."""
    ten, engine = {n: f" {n}" for n in range(1, 11)}, random_engine
    prompts = [TEMPLATE.render(Item.from_row(row)).append(TEMPLATE.forced) for row in rows[:6]]
    images = [row["images"] for row in rows[:6]]
    scale = engine.encoder.scale("[RESULT]", ten)
    one, zero = scale.paths[10]
    for answer, prompt, shown in zip(
        answers(engine.answer(prompts, images, ask("score", scale=ten))), prompts, images, strict=True
    ):
        first = worded(engine, engine.forward(prompt, shown).logits[-1])
        after = worded(engine, engine.forward(prompt.append(" 1"), shown).logits[-1])
        both = float(first[one]) + float(after[zero])
        expected = {n: float(first[scale.paths[n][0]]) for n in range(2, 6)} | {10: both}
        expected[1] = math.log(math.exp(float(first[one])) - math.exp(both))
        assert {n: answer.score_logprobs[n] for n in expected} == pytest.approx(expected, abs=1e-4)


def test_score_distribution_is_the_models_at_the_verdict(taught_engine: TorchEngine, rows: Any) -> None:
    """The recorded log-probabilities are those of one plain forward pass over the whole answer."""
    engine, items = taught_engine, [Item.from_row(row) for row in rows[:8]]
    prompts, images = [TEMPLATE.render(item) for item in items], [list(item.images) for item in items]
    tokens = engine.encoder.scale("[RESULT]", FIVE).tokens
    together = answers(engine.answer(prompts, images, ask(max_new_tokens=40)))
    for answer, shown, prompt in zip(together, images, prompts, strict=True):
        written = reference_ids(engine, prompt, shown, 40)
        step = max(n for n, token in enumerate(written) if token in tokens.values())
        ids = torch.tensor([engine.encoder.ids(prompt) + written[:step]])
        logprobs = worded(engine, engine.model.model(input_ids=ids, **pixels_of(engine, shown)).logits[0, -1].detach())
        expected = {n: float(logprobs[token]) for n, token in tokens.items()}
        assert answer.stopped and answer.score_logprobs == pytest.approx(expected, abs=1e-4)


# --- failures stay in their row ---------------------------------------------------------------------------------------


def test_failures_stay_in_their_own_row(random_engine: TorchEngine, tmp_path: Path) -> None:
    rows = make_rows(6)
    rows[1]["response"] = "word " * 2000
    picture = tmp_path / "gone.png"
    rows[4]["images"][0].save(picture)
    prompts = [TEMPLATE.render(Item.from_row(row)) for row in rows]
    images: list[Any] = [row["images"] for row in rows]
    images[2], images[3] = [tmp_path / "never.png"], []
    images[4] = [Pictures(keep_bytes=0)(picture)]  # read again when it is wanted
    images[5] = [Image.new("RGB", (70_000, 1))]  # to a short side of 32 it would be 2.2 million wide
    work = random_engine.answer(prompts, images, ask(max_new_tokens=3, batch_size=2))
    first = next(work)  # the plan is made; now a file goes away
    picture.unlink()
    failures = {answer.index: answer.failure for batch in [first, *work] for answer in batch}
    expected = {
        1: f"tokens, 4 of them for images, and the model's context holds {random_engine.model.context_length}",
        2: "never.png",
        3: "1 image place(s) and the item 0 image(s)",
        4: "gone.png",
        5: "70000 x 1 pixels is too narrow",
    }
    assert failures[0] is None and len(failures) == 6
    assert all(reason in failures[row] for row, reason in expected.items())


def test_an_answer_stops_at_the_context(random_judge: Path) -> None:
    engine = TorchEngine(models.load(random_judge, device="cpu"))
    length = len(engine.encoder.ids(Prompt(("x" * 900,))))
    engine.model.model.config.text_config.max_position_embeddings = length + 5
    prompts = [Prompt(("x" * 900,)), Prompt(("y",))]
    together = answers(engine.answer(prompts, [[], []], ask(max_new_tokens=9)))
    assert together[0].n_new_tokens <= 5
    assert not together[0].stopped
    assert together[1].n_new_tokens == 9 or together[1].stopped


@pytest.mark.parametrize(
    ("at", "error"),
    [
        ("prefixes", torch.OutOfMemoryError("no room")),
        ("prompts", RuntimeError("can't allocate memory: 9 bytes")),
        ("answers", torch.OutOfMemoryError("no room")),
        ("plain", RuntimeError("can't allocate memory: 9 bytes")),
    ],
)
def test_out_of_memory_halves_the_batch(
    random_engine: TorchEngine, mixed: Any, monkeypatch: Any, at: str, error: Exception
) -> None:
    """Wherever the memory runs out, rows are computed again with fewer beside them, and a row that never fits fails."""
    prompts, images = mixed
    monkeypatch.setattr(random_engine, "plain", "for this test" if at == "plain" else None)
    expected = answers(random_engine.answer(prompts, images, ask(max_new_tokens=5)))
    batch, kind, sizes = TorchCall._batch, type(random_engine.model.model), [list[int]()]
    step = kind.forward

    def watched(self: TorchCall, rows: Any) -> None:
        sizes.append([row.index for row in rows])
        batch(self, rows)

    def crowded(self: Any, **inputs: Any) -> Any:
        prompts = isinstance(inputs.get("logits_to_keep"), torch.Tensor)  # the last token of each row's own
        now = "prefixes" if inputs.get("inputs_embeds") is not None else "prompts" if prompts else "answers"
        if at in ("plain", now) and (len(sizes[-1]) > 3 or 0 in sizes[-1]):
            raise error
        return step(self, **inputs)

    monkeypatch.setattr(TorchCall, "_batch", watched)
    monkeypatch.setattr(kind, "forward", crowded)
    together = answers(random_engine.answer(prompts, images, ask(max_new_tokens=5)))
    assert len(together) == max(map(len, sizes)) == 14 and "out of memory with one prompt of" in together[0].failure
    assert [answer.text for answer in together[1:]] == [answer.text for answer in expected[1:]]


def test_wanted_rows_get_the_bits_of_a_whole_call(random_engine: TorchEngine, mixed: Any) -> None:
    """A continued run computes the same batches, so that its numbers are those of an unbroken one."""
    prompts, images = mixed
    forced = [prompt.append(" [RESULT]") for prompt in prompts]
    how = ask("score", batch_size=4)
    whole = answers(random_engine.answer(forced, images, how))
    for wanted in ({3}, {0, 5, 11}, {13, 1}):
        part = answers(random_engine.answer(forced, images, how, wanted))
        assert {answer.index for answer in part} == wanted
        assert all(answer.score_logprobs == whole[answer.index].score_logprobs for answer in part)


# --- sampling ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("draw", "top_p", "token"),
    # Probabilities by hand: token 2 has 0.5, token 0 has 0.3, token 1 has 0.2; most probable first.
    [(0.0, 1.0, 2), (0.49, 1.0, 2), (0.51, 1.0, 0), (0.81, 1.0, 1), (0.999999, 1.0, 1)]
    # 0.7 keeps tokens 2 and 0, of 0.8 together: the border between them is at 0.5 / 0.8 = 0.625.
    + [(0.62, 0.7, 2), (0.63, 0.7, 0), (0.999999, 0.7, 0), (0.999999, 0.4, 2)],
)
def test_sampling_by_hand(draw: float, top_p: float, token: int) -> None:
    logits = torch.tensor([[math.log(0.3), math.log(0.2), math.log(0.5)]])
    assert draw_tokens(logits, [draw], 1.0, top_p).tolist() == [token]


def test_draws_depend_on_the_rows_seed_alone(random_engine: TorchEngine, mixed: Any) -> None:
    prompts, images = mixed
    how = ask(seeds=[1000 + n for n in range(14)], max_new_tokens=12, temperature=0.9, top_p=0.95)
    together = answers(random_engine.answer(prompts, images, how))
    for n in (0, 4, 9):
        alone = answers(random_engine.answer([prompts[n]], [images[n]], replace(how, seeds=[1000 + n])))
        assert alone[0].text == together[n].text
    other = answers(random_engine.answer(prompts, images, replace(how, seeds=range(14))))
    assert [answer.text for answer in other] != [answer.text for answer in together]


def test_no_answer_holds_an_image_token(random_judge: Path, tmp_path: Path) -> None:
    """Not even when the model prefers it to every other token."""
    tokenizer = make_tokenizer()
    model = make_model(tokenizer)
    with torch.no_grad():
        model.lm_head.weight[model.config.image_token_id] *= 50
    engine = TorchEngine(models.load(save_judge(tmp_path / "judge", model, tokenizer), device="cpu"))
    prompts = [Prompt((f"Say {n}.",)) for n in range(8)]
    together = answers(engine.answer(prompts, [[]] * 8, ask(max_new_tokens=12)))
    assert not any("<image>" in answer.text for answer in together)


# --- what is said -----------------------------------------------------------------------------------------------------


def test_the_callers_threads_are_left_as_they_were(random_engine: TorchEngine, mixed: Any) -> None:
    prompts, images = mixed
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        for _ in random_engine.answer(prompts, images, ask(max_new_tokens=3, batch_size=4)):
            assert torch.get_num_threads() == 2
        assert threads_for(random_engine.model) == 1 and random_engine.work.threads == 1
        with using_threads(1):
            assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(before)


def test_a_block_of_which_nothing_is_wanted_is_not_tokenised(random_engine: TorchEngine, monkeypatch: Any) -> None:
    prompts, tokenised = [Prompt((f"Say {n}.",)) for n in range(30)], []
    kind, original = type(random_engine.encoder), type(random_engine.encoder).ids
    monkeypatch.setattr(kind, "ids", lambda *args, **how: tokenised.append(args) or original(*args, **how))
    part = answers(random_engine.answer(prompts, [[]] * 30, ask(max_new_tokens=2, batch_size=4), {17}))
    assert [answer.index for answer in part] == [17] and len(tokenised) == 4
