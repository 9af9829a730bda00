"""The torch engine against the published way and against padded batches: ratios within one run. `make bench`.

(a) the published way: for each item its image is prepared, and `generate` called on it alone;
(b) left-padded batches of 16 in file order through `generate`, as evaluation harnesses do;
(c) our engine, feedback; (d) our engine, score.

Each is measured in turns with the others, in seconds of processor time of one thread, so that a busy machine slows all
alike. Greedy, float32, the same tokens and limits. Every way answers every item, and texts are compared on all of them.
"""

from __future__ import annotations

from time import process_time

import numpy as np
import pytest
import torch
from PIL import Image

import vjudge as vj
from vjudge.engines import Ask, TorchEngine
from vjudge.models import VisionLanguageModel
from vjudge.prompts import TEMPLATES
from vjudge.records import Item

HARNESS_BATCH = 16
SINGLE = TEMPLATES["prometheus-vision"]
FIVE = {n: f" {n}" for n in range(1, 6)}


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


# --- what is judged ---------------------------------------------------------------------------------------------------


def scenes_rows(n):
    return list(vj.load_collection("scenes", split="test", limit=n))


def collection_shape(n, *, image=30, instruction=5):
    """Perception-Collection's shape: 30 responses an image, 5 an instruction, on texts of scenes."""
    rows = scenes_rows(n)
    for place, row in enumerate(rows):
        row["images"] = rows[place - place % image]["images"]
        row["instruction"] = rows[place - place % instruction]["instruction"]
    return [(SINGLE.render(Item.from_row(row)), row["images"]) for row in rows]


def bench_shape(n):
    """Perception-Bench's shape: one response an image."""
    rows = scenes_rows(10 * n)[::10]
    return [(SINGLE.render(Item.from_row(row)), row["images"]) for row in rows]


# --- the ways ---------------------------------------------------------------------------------------------------------


class Ways:
    """The four ways on the same prompts, each with the texts it wrote and the time it took."""

    def __init__(self, engine, work, new):
        self.engine, self.work, self.new = engine, work, new
        self.texts = {way: {} for way in "abc"}
        self.seconds = dict.fromkeys("abcd", 0.0)
        self.done = dict.fromkeys("abcd", 0)
        self.spent = {}

    def published(self, places):
        start = process_time()
        for place in places:
            self.texts["a"] |= self._generate([place])
        self._took("a", start, len(places))

    def padded(self, places):
        start = process_time()
        for first in range(0, len(places), HARNESS_BATCH):
            self.texts["b"] |= self._generate(places[first : first + HARNESS_BATCH])
        self._took("b", start, len(places))

    def feedback(self, places):
        start = process_time()
        chosen = [self.work[place] for place in places]
        ask = Ask("feedback", "[RESULT]", [FIVE] * len(chosen), max_new_tokens=self.new)
        answers = self.engine.answer([prompt for prompt, _ in chosen], [images for _, images in chosen], ask)
        self.texts["c"] |= {places[each.index]: each.text for batch in answers for each in batch}
        self._took("c", start, len(places))

    def score(self, places):
        start = process_time()
        chosen = [self.work[place] for place in places]
        forced = [prompt.append(SINGLE.forced) for prompt, _ in chosen]
        ask = Ask("score", "[RESULT]", [FIVE] * len(chosen))
        answers = [a for batch in self.engine.answer(forced, [i for _, i in chosen], ask) for a in batch]
        assert all(answer.score_logprobs for answer in answers)
        self._took("d", start, len(places))
        self.spent = vars(self.engine.work)

    def rate(self, way):
        return self.done[way] / self.seconds[way]

    def _took(self, way, start, n):
        self.seconds[way] += process_time() - start
        self.done[way] += n

    def _generate(self, places):
        model, encoder = self.engine.model, self.engine.encoder
        ids = [encoder.ids(self.work[place][0]) for place in places]
        width = max(map(len, ids))
        padded = torch.tensor([[0] * (width - len(row)) + row for row in ids])
        mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in ids])
        pictures = [image.convert("RGB") for place in places for image in self.work[place][1]]
        beyond = range(model.vocabulary_size, model.model.config.text_config.vocab_size)
        with torch.inference_mode():
            written = model.model.generate(
                input_ids=padded,
                attention_mask=mask,
                pixel_values=model.image_processor(pictures, return_tensors="pt")["pixel_values"],
                do_sample=False,
                max_new_tokens=self.new,
                eos_token_id=sorted(self.engine.ends),
                pad_token_id=0,
                suppress_tokens=[*model.wordless, *beyond] or None,  # as our engine: no words of an answer
            )[:, width:].tolist()
        texts = {}
        for place, row in zip(places, written, strict=True):
            ends = [step for step, token in enumerate(row) if token in self.engine.ends]
            texts[place] = encoder.text(row[: ends[0]] if ends else row)
        return texts


def measured(engine, work, *, new, rounds):
    """Run the ways in turns: in each round, (a) and (b) on a part of the items, (c) and (d) on all of them."""
    ways, places = Ways(engine, work, new), list(range(len(work)))
    for way in (ways.published, ways.padded, ways.feedback, ways.score):
        way(places[:2])  # warm
    ways.seconds, ways.done = dict.fromkeys("abcd", 0.0), dict.fromkeys("abcd", 0)
    share = -(-len(places) // rounds // HARNESS_BATCH) * HARNESS_BATCH  # whole batches of (b)
    for start in range(0, len(places), share):
        ways.published(places[start : start + share])
        ways.feedback(places)
        ways.padded(places[start : start + share])
        ways.score(places)
    return ways


def tell(report, name, ways, *, wanted=("", "", "")):
    for label, one, other, want in (
        ("(c) feedback / (a) one generate an item", "c", "a", wanted[0]),
        ("(c) feedback / (b) padded batches", "c", "b", wanted[1]),
        ("(d) score / (a)", "d", "a", wanted[2]),
    ):
        report.add(f"{name}: {label}", f"{ways.rate(one) / ways.rate(other):.1f}", want)
    rates = ", ".join(f"({way}) {ways.rate(way):.2g}" for way in "abcd")
    report.add(f"{name}: verdicts a second of processor time", rates)
    total, computed = ways.spent["prompt_tokens"], ways.spent["computed_tokens"]
    report.add(f"{name}: prompt tokens computed", f"{computed:.0f} of {total:.0f}")
    for way in "ab":
        same = sum(ways.texts[way][place] == text for place, text in ways.texts["c"].items())
        report.add(f"{name}: texts of (c) equal to ({way})'s", f"{same} of {len(ways.work)}", "all")


# --- the embedded judge -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tiny():
    return vj.load_judge("tiny", device="cpu").engine


def test_tiny_on_the_collections_shape(tiny, report, size):
    work = collection_shape(int(300 * size))
    ways = measured(tiny, work, new=64, rounds=3)
    tell(report, "tiny, 30 an image", ways, wanted=("8", "1.5", "18"))


def test_tiny_on_one_response_an_image(tiny, report, size):
    ways = measured(tiny, bench_shape(int(100 * size)), new=64, rounds=2)
    tell(report, "tiny, 1 an image", ways)


def test_sixteen_bits(report, size):
    """bfloat16 rounds, so that a text may part from the one written alone: how often is measured, not promised."""
    engine = vj.load_judge("tiny", device="cpu", dtype="bfloat16").engine
    ways = Ways(engine, collection_shape(int(60 * size)), 64)
    places = list(range(len(ways.work)))
    ways.feedback(places)
    together = dict(ways.texts["c"])
    for place in places:
        ways.feedback([place])
    same = sum(together[place] == text for place, text in ways.texts["c"].items())
    report.add("tiny in bfloat16: texts together equal to those alone", f"{same} of {len(places)}")


# --- a judge of the middle size ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def middle(tiny):
    """About 100 million random parameters, 576 image tokens; no token ends an answer."""
    from transformers import CLIPVisionConfig, LlamaConfig, LlavaConfig, LlavaForConditionalGeneration
    from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

    torch.manual_seed(0)
    side, tokenizer = 336, tiny.model.tokenizer
    sizes = {"hidden_size": 512, "intermediate_size": 2048, "num_hidden_layers": 6, "num_attention_heads": 8}
    vision = CLIPVisionConfig(**sizes, image_size=side, patch_size=14)
    sizes = {"hidden_size": 768, "intermediate_size": 2304, "num_hidden_layers": 10, "num_attention_heads": 12}
    text = LlamaConfig(**sizes, vocab_size=len(tokenizer) + 8, initializer_range=0.05)
    token = tiny.model.image_token_id
    config = LlavaConfig(vision_config=vision, text_config=text, image_token_index=token, image_seq_length=576)
    model = LlavaForConditionalGeneration(config).eval()
    model.generation_config.eos_token_id = len(tokenizer) + 7
    processor = CLIPImageProcessorPil(size={"shortest_edge": side}, crop_size={"height": side, "width": side})
    loaded = VisionLanguageModel(
        name="middle",
        path=tiny.model.path,
        folder=tiny.model.folder,
        kind="llava",
        model=model,
        tokenizer=tokenizer,
        image_processor=processor,
        device=torch.device("cpu"),
        dtype=torch.float32,
    )
    return TorchEngine(loaded, threads=1)


def test_middle_on_the_collections_shape(middle, report, size):
    millions = sum(weight.numel() for weight in middle.model.model.parameters()) / 1e6
    random = np.random.default_rng(0)
    picture = Image.fromarray(random.integers(0, 256, (336, 336, 3), dtype=np.uint8))
    work = [(prompt, [picture]) for prompt, _ in collection_shape(int(30 * size))]
    name = f"{millions:.0f} M parameters, 576 image tokens"
    ways = measured(middle, work, new=60, rounds=1)
    tell(report, name, ways, wanted=("6", "1.7", "12"))
