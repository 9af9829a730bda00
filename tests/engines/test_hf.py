"""The transformers engine against transformers' own generate and forward, one prompt at a time."""

import math
from dataclasses import replace
from functools import partial

import pytest
import torch
from PIL import Image
from transformers import TopPLogitsWarper

from conftest import make_rows
from originals import FIVE, TEN, answers, ask, noise, render
from vjudge import load_collection, models
from vjudge.engines import HFEngine
from vjudge.engines.cache import share_prefixes
from vjudge.engines.closing import Closing
from vjudge.engines.decoding import draw_tokens
from vjudge.engines.rows import Request
from vjudge.images import Pictures
from vjudge.prompts import IMAGE, TEMPLATES, Prompt
from vjudge.prompts.parse import parse_to_close
from vjudge.records import Criterion, Rubric

HUNDRED = {n: f" {n}" for n in range(101)}
PATHS = pytest.mark.parametrize("shares", [True, False])


@pytest.fixture(scope="module")
def loaded(random_judge):
    """A judge that would rather write an image's token than any word."""
    engine = HFEngine(models.load(random_judge, device="cpu"))
    with torch.no_grad():
        engine.model.model.lm_head.weight[engine.model.image_token_id] *= 50
    return engine


@pytest.fixture
def shares():
    return True


@pytest.fixture
def engine(loaded, shares, monkeypatch):
    """Behind shared prefixes, or as models go whose cache can't be shared."""
    monkeypatch.setattr(loaded, "shares", shares)
    return loaded


@pytest.fixture(scope="module")
def mixed():
    """Prompts of very different lengths with no, one and two images, some of them shared."""
    rows = make_rows(14, seed=5)
    prompts, images = render(rows)
    for n in (3, 8, 13):
        prompts[n] = Prompt(("Say ", rows[n]["response"]))
        images[n] = []
    for n in (4, 9):
        prompts[n] = Prompt(("Compare ", IMAGE, " and\n", IMAGE, rows[n]["response"]))
        images[n] = [noise(50, 30 - n), *rows[n]["images"]]
    return prompts, images


def texts(engine, *call):
    return [answer.text for answer in answers(engine, *call)]


# --- against transformers, one prompt at a time ---------------------------------------------------


def inputs(engine, prompt, images, more=()):
    """What the model takes for a prompt and more tokens, by transformers' own processor."""
    ids = torch.tensor([[*engine.encoder.ids(prompt), *more]])
    taken = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    if images:
        taken |= engine.model.image_processor(images, return_tensors="pt")
    return taken


def written(engine, prompt, images, limit):
    """The greedy continuation by transformers' own generate."""
    taken = inputs(engine, prompt, images)
    silent = [[engine.model.image_token_id]]
    ids = engine.model.model.generate(
        **taken, do_sample=False, max_new_tokens=limit, bad_words_ids=silent
    )
    return ids[0, taken["input_ids"].shape[1] :].tolist()


def distribution(engine, prompt, images, more, scale):
    """The log-probabilities of a scale after a prompt and more tokens, a fresh pass a stem."""
    after = {}
    for stem in scale.next_tokens:
        with torch.no_grad():
            taken = inputs(engine, prompt, images, [*more, *stem])
            logits = engine.model.model(**taken).logits[0, -1]
        logits[engine.model.image_token_id] = -torch.inf  # an image's place is no word
        logprobs = logits.log_softmax(-1)
        after[stem] = {token: float(logprobs[token]) for token in scale.next_tokens[stem]}
    return scale.logprobs(after)


@PATHS
def test_batched_equals_generate_one_at_a_time(engine, mixed, shares):
    together = answers(engine, *mixed, ask(max_new_tokens=16))
    apart = texts(engine, *mixed, ask(max_new_tokens=16, batch_size=3))
    assert apart == [answer.text for answer in together]
    for answer, prompt, shown in zip(together, *mixed, strict=True):
        ids = written(engine, prompt, shown, 16)
        assert answer.n_new_tokens == len(ids)
        assert answer.n_prompt_tokens == len(engine.encoder.ids(prompt))
        if answer.finish == "stop":
            assert ids.pop() in engine.ends
        assert engine.ends.isdisjoint(ids)
        assert answer.text == engine.encoder.text(ids)


@pytest.mark.parametrize("texts_of", [FIVE, HUNDRED])
def test_the_distribution_is_the_models_at_the_verdict(texts_of):
    """Also where a level is several tokens, and where rows end early."""
    taught = HFEngine(models.load("tiny", device="cpu"))
    prompts, images = render(load_collection("scenes", split="test", limit=3))
    prompts[2] = prompts[2].append(" (1) said present, square present, correct.")  # a start
    scale = taught.encoder.scale("[RESULT]", texts_of)
    together = answers(taught, prompts, images, ask(scale=texts_of, max_new_tokens=64))
    for answer, prompt, shown in zip(together, prompts, images, strict=True):
        ids = written(taught, prompt, shown, 64)
        assert answer.text == taught.encoder.text(ids[:-1]) and answer.finish == "stop"
        step = max(n for n, token in enumerate(ids) if token in scale.next_tokens[()])
        expected = distribution(taught, prompt, shown, ids[:step], scale)
        assert answer.score_logprobs == pytest.approx(expected, abs=1e-3)
    assert len({answer.n_new_tokens for answer in together}) > 1


@PATHS
@pytest.mark.parametrize("texts_of", [FIVE, TEN])
@pytest.mark.parametrize("mode", ["score", "feedback"])
def test_a_scale_is_read_behind_prompts_and_behind_answers_that_are_closed(
    engine, mixed, texts_of, mode, shares
):
    """The distribution is that of a fresh pass over prompt, answer and marker; the text stays."""
    call = [prompt.append("\n[RESULT]") for prompt in mixed[0]], mixed[1]
    how = ask(mode, scale=texts_of)
    if mode == "feedback":
        call = mixed
        how = replace(
            how, max_new_tokens=8, closing=Closing(partial(parse_to_close, format="prometheus"))
        )
    marker, scale = engine.encoder.closing_ids("\n[RESULT]", texts_of)
    for answer, prompt, shown in zip(answers(engine, *call, how), *mixed, strict=True):
        ids = written(engine, prompt, shown, 8) if mode == "feedback" else []
        ids = ids[:-1] if answer.finish == "stop" else ids
        assert answer.text == engine.encoder.text(ids)
        expected = distribution(engine, prompt, shown, ids + marker, scale)
        assert answer.score_logprobs == pytest.approx(expected, abs=1e-4)
        assert mode == "score" or answer.closed == max(expected, key=expected.get)


@PATHS
def test_each_criterion_is_closed_behind_the_answer_by_itself(engine, mixed, shares):
    """Scales of their own, one of several tokens; each equals a fresh pass over its own marker."""
    depth = Criterion('how\n"deep"', "Deep?", 1, {0: "Flat.", 10: "Deep."})
    rubric = Rubric("Both", (), named=(Criterion("sign", "Read?", 1, {0: "No.", 1: "Yes."}), depth))
    closing = Closing(
        partial(parse_to_close, format="json"), criterion=TEMPLATES["chat-json"].closing_criterion
    )
    prompts, images = mixed[0][:5], mixed[1][:5]
    how = ask(scale={}, max_new_tokens=6, closing=closing)
    how = replace(how, criteria=[rubric] * 5)
    markers = {"sign": '\n{"scores": {"sign":', depth.name: '\n{"scores": {"how\\n\\"deep\\"":'}
    scales = {"sign": {0: " 0", 1: " 1"}, depth.name: {n: f" {n}" for n in range(11)}}
    for answer, prompt, shown in zip(answers(engine, prompts, images, how), *mixed, strict=False):
        ids = written(engine, prompt, shown, 6)
        ids = ids[:-1] if answer.finish == "stop" else ids
        levels = {}
        for name, texts_of in scales.items():
            marker, scale = engine.encoder.closing_ids(markers[name], texts_of)
            expected = distribution(engine, prompt, shown, ids + marker, scale)
            levels[name] = max(expected, key=expected.get)
        assert (answer.closed_scores, answer.closed, answer.score_logprobs) == (levels, None, None)


# --- sharing --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("every", "pairs", "prefixes"),
    # Rows of 25 tokens, two and two alike. By hand: one prefix of 9 saves 27 tokens and two of 20
    # save 40; one of 15 saves 45 and two of 17 save 34; samples share all but the last token; 3
    # tokens are not worth it.
    [(9, 20, [20, 20]), (15, 17, [15]), (25, 25, [24]), (3, 3, [24] * 4)],
)
def test_rows_share_the_prefixes_that_save_most(every, pairs, prefixes):
    rows = []
    for n in range(4):
        ids = [0] * every + [10 + n // 2] * (pairs - every) + [20 + n] * (25 - pairs)
        rows.append(Request(n, ids=ids))
    assert [len(prefix.ids) for prefix in share_prefixes(rows, None)] == prefixes
    assert len(share_prefixes(rows, rows[1].ids[-1])) >= 2  # no prefix ends before the last image


# --- failures stay in their row -------------------------------------------------------------------


def test_failures_stay_in_their_own_row(engine, tmp_path):
    rows = make_rows(6)
    picture = tmp_path / "gone.png"
    rows[1]["response"] = "word " * 2000
    rows[4]["images"][0].save(picture)
    prompts, images = render(rows)
    images[2], images[3] = [tmp_path / "never.png"], []
    images[4] = [Pictures()(picture)]  # read again when it is wanted
    images[5] = [Image.new("RGB", (70_000, 1))]
    work = engine.answer(prompts, images, ask(max_new_tokens=3, batch_size=2))
    first = next(work)  # the images are named; now a file goes away
    picture.unlink()
    failures = {answer.index: answer.failure for batch in [first, *work] for answer in batch}
    reasons = [
        f"and the model's context holds {engine.model.context_length}",
        "never.png",
        "1 image place(s) and the item 0 image(s)",
        "gone.png",
        "70000 x 1 pixels is too narrow",
    ]
    assert len(failures) == 6 and failures[0] is None
    for row, reason in enumerate(reasons, start=1):
        assert reason in failures[row]


def test_an_answer_stops_at_the_context_and_is_not_closed(random_judge):
    engine = HFEngine(models.load(random_judge, device="cpu"))
    prompts = [Prompt(("x" * 900,)), Prompt(("y",))]
    context = len(engine.encoder.ids(prompts[0])) + 5
    engine.context_length = context
    how = ask(max_new_tokens=9, closing=Closing(partial(parse_to_close, format="prometheus")))
    long, short = answers(engine, prompts, [[], []], how)
    assert long.n_new_tokens <= 5 and long.finish == "length"
    assert long.closed is None and f"context of {context}" in long.unclosed
    assert short.closed in FIVE and short.unclosed is None


SHORTAGES = [
    torch.OutOfMemoryError("CUDA out of memory. Tried to get 2 GiB"),
    MemoryError(),
    RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
    RuntimeError("[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't: 9"),
]


@pytest.mark.parametrize(
    ("shortage", "shares"), list(zip(SHORTAGES, [True, False] * 2, strict=True))
)
def test_out_of_memory_halves_the_batch(engine, mixed, monkeypatch, shortage, shares):
    """Rows are computed again with fewer beside them, and a row that never fits fails."""
    expected = texts(engine, *mixed, ask(max_new_tokens=5))
    generate = HFEngine._generate
    batches = []

    def crowded(self, call, rows, *options, **more):
        output = generate(self, call, rows, *options, **more)
        batches.append([row.index for row in rows])
        if len(rows) > 3 or 0 in batches[-1]:
            raise shortage
        return output

    monkeypatch.setattr(HFEngine, "_generate", crowded)
    first, *others = answers(engine, *mixed, ask(max_new_tokens=5))
    assert len(batches[0]) == 14 and "out of memory with one prompt" in first.failure
    assert [answer.text for answer in others] == expected[1:]


def test_another_error_is_no_shortage(engine, mixed, monkeypatch):
    def broken(*call, **options):
        raise RuntimeError("could not allocate a name")

    monkeypatch.setattr(HFEngine, "_generate", broken)
    with pytest.raises(RuntimeError, match="a name"):
        answers(engine, *mixed, ask(max_new_tokens=5))


def test_wanted_rows_get_the_bits_of_a_whole_call(engine, mixed):
    """A continued run computes the same batches."""
    call = [prompt.append(" [RESULT]") for prompt in mixed[0]], mixed[1]
    how = ask("score", batch_size=4)
    whole = answers(engine, *call, how)
    for wanted in ({3}, {0, 5, 11}):
        part = answers(engine, *call, how, wanted)
        assert {answer.index for answer in part} == wanted
        for answer in part:
            assert answer.score_logprobs == whole[answer.index].score_logprobs


# --- sampling -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("draw", "top_p", "token"),
    # Probabilities: token 2 has 0.5, token 0 has 0.3, token 1 has 0.2; most probable first.
    [(0.49, 1.0, 2), (0.51, 1.0, 0), (0.81, 1.0, 1), (0.999999, 1.0, 1)]
    # 0.7 keeps tokens 2 and 0, of 0.8 together: the border between them is at 0.5 / 0.8 = 0.625.
    + [(0.62, 0.7, 2), (0.63, 0.7, 0), (0.999999, 0.4, 2)],
)
def test_sampling_by_hand(draw, top_p, token):
    logits = torch.tensor([[math.log(0.3), math.log(0.2), math.log(0.5)]])
    scores = TopPLogitsWarper(top_p)(torch.empty(1, 0, dtype=torch.long), logits)
    assert draw_tokens(scores, [draw]).tolist() == [token]


def test_draws_depend_on_the_rows_seed_alone(engine, mixed):
    prompts, images = mixed
    how = ask(seeds=range(1000, 1014), max_new_tokens=8, temperature=0.9, top_p=0.95)
    how = replace(how, repetition_penalty=1.2)
    together = texts(engine, *mixed, how)
    for n in (0, 4, 9):
        alone = replace(how, seeds=[1000 + n])
        assert texts(engine, [prompts[n]], [images[n]], alone) == [together[n]]
    assert texts(engine, *mixed, replace(how, seeds=range(14))) != together
