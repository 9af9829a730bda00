"""The transformers engine against the published way and against padded batches: ratios within one run. `make bench`.

(a) the published way: for each item its image is prepared, and `generate` called on it alone;
(b) left-padded batches of 16 in file order through `generate`, as evaluation harnesses do;
(c) our engine, feedback; (d) our engine, score.

Each is measured in turns with the others, in seconds of processor time of one thread, so that a busy machine slows all
alike. Greedy, float32, the same tokens and limits. Every way answers every item, and texts are compared on all of them.
"""

from __future__ import annotations

from dataclasses import replace
from time import perf_counter, process_time

import numpy as np
import pytest
import torch
from PIL import Image
from transformers import CLIPVisionConfig, LlamaConfig, LlavaConfig, LlavaForConditionalGeneration
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

import vjudge as vj
from vjudge.engines import Ask, HFEngine
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


def collection_shape(n, *, image=30, instruction=5):
    """Perception-Collection's shape: 30 responses an image, 5 an instruction, on texts of scenes."""
    rows = list(vj.load_collection("scenes", split="test", limit=n))
    for place, row in enumerate(rows):
        row["images"] = rows[place - place % image]["images"]
        row["instruction"] = rows[place - place % instruction]["instruction"]
    return [(SINGLE.render(Item.from_row(row)), row["images"]) for row in rows]


def scenes(n):
    """Scenes as it is: ten responses an image, mostly five an instruction."""
    rows = vj.load_collection("scenes", split="test", limit=n)
    return [(SINGLE.render(Item.from_row(row)), row["images"]) for row in rows]


def bench_shape(n):
    """Perception-Bench's shape: one response an image."""
    rows = list(vj.load_collection("scenes", split="test", limit=10 * n))[::10]
    return [(SINGLE.render(Item.from_row(row)), row["images"]) for row in rows]


class Ways:
    """The four ways on the same prompts, each with the texts it wrote and the time it took."""

    def __init__(self, engine, work, new):
        self.engine, self.work, self.new = engine, work, new
        self.texts = {way: {} for way in "abcd"}
        self.start()

    def start(self):
        """Begin to count."""
        self.seconds, self.wall = dict.fromkeys("abcd", 0.0), dict.fromkeys("abcd", 0.0)
        self.done = dict.fromkeys("abcd", 0)

    def run(self, way, places):
        """Answer these places in one of the ways."""
        start, wall = process_time(), perf_counter()
        if way in "ab":
            together = 1 if way == "a" else HARNESS_BATCH
            for first in range(0, len(places), together):
                self.texts[way] |= self._generate(places[first : first + together])
        else:
            prompts, images = zip(*(self.work[place] for place in places), strict=True)
            if way == "d":
                prompts = [prompt.append(SINGLE.forced) for prompt in prompts]
            ask = Ask(
                "feedback" if way == "c" else "score",
                "[RESULT]",
                [FIVE] * len(places),
                max_new_tokens=self.new,
            )
            answers = [
                answer for batch in self.engine.answer(prompts, images, ask) for answer in batch
            ]
            assert way == "c" or all(answer.score_logprobs for answer in answers)
            self.texts[way] |= {places[answer.index]: answer.text for answer in answers}
        self.seconds[way] += process_time() - start
        self.wall[way] += perf_counter() - wall
        self.done[way] += len(places)

    def rate(self, way, *, wall=False):
        return self.done[way] / (self.wall if wall else self.seconds)[way]

    def _generate(self, places):
        model, encoder = self.engine.model, self.engine.encoder
        ids = [encoder.ids(self.work[place][0]) for place in places]
        width = max(map(len, ids))
        padded = torch.tensor([[0] * (width - len(row)) + row for row in ids])
        mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in ids])
        pictures = [image.convert("RGB") for place in places for image in self.work[place][1]]
        pixels = model.image_processor(pictures, return_tensors="pt")
        with torch.inference_mode():
            written = model.model.generate(
                input_ids=padded.to(model.device),
                attention_mask=mask.to(model.device),
                pixel_values=pixels["pixel_values"].to(model.device, model.dtype),
                do_sample=False,
                max_new_tokens=self.new,
                eos_token_id=sorted(self.engine.ends),
                pad_token_id=0,
                suppress_tokens=list(model.non_text_token_ids),  # as our engine
            )[:, width:].tolist()
        texts = {}
        for place, row in zip(places, written, strict=True):
            ends = [step for step, token in enumerate(row) if token in self.engine.ends]
            texts[place] = encoder.text(row[: ends[0]] if ends else row)
        return texts


def measured(engine, work, *, new, rounds):
    """Run the ways in turns: in each round, (a) and (b) on a part of the items, (c) and (d) on all of them."""
    ways, places = Ways(engine, work, new), list(range(len(work)))
    for way in "abcd":
        ways.run(way, places[:2])  # warm
    ways.start()
    share = -(-len(places) // rounds // HARNESS_BATCH) * HARNESS_BATCH  # whole batches of (b)
    for start in range(0, len(places), share):
        for way in "acbd":
            ways.run(way, places[start : start + share] if way in "ab" else places)
    return ways


def tell(report, name, ways, *, wanted=("", "", "")):
    for label, one, other, want in (
        ("(c) feedback / (a) one generate an item", "c", "a", wanted[0]),
        ("(c) feedback / (b) padded batches", "c", "b", wanted[1]),
        ("(d) score / (a)", "d", "a", wanted[2]),
    ):
        ratio = ways.rate(one) / ways.rate(other)
        by_clock = ways.rate(one, wall=True) / ways.rate(other, wall=True)
        report.add(f"{name}: {label}", f"{ratio:.1f} ({by_clock:.1f} in wall time)", want)
    rates = ", ".join(f"({way}) {ways.rate(way):.2g}" for way in "abcd")
    report.add(f"{name}: verdicts a second of processor time", rates)
    spent = ways.engine.work
    report.add(
        f"{name}: prompt tokens computed", f"{spent.computed_tokens} of {spent.prompt_tokens}"
    )
    for way in "ab":
        same = sum(ways.texts[way][place] == text for place, text in ways.texts["c"].items())
        report.add(f"{name}: texts of (c) equal to ({way})'s", f"{same} of {len(ways.work)}", "all")


@pytest.fixture(scope="module")
def tiny():
    return vj.load_judge("tiny", device="cpu").engine


def test_tiny_on_the_collections_shape(tiny, report, size):
    work = collection_shape(int(300 * size))
    ways = measured(tiny, work, new=64, rounds=3)
    tell(report, "tiny, 30 an image", ways, wanted=("8", "1.5", "18"))


def test_tiny_on_scenes(tiny, report, size):
    ways = measured(tiny, scenes(int(150 * size)), new=64, rounds=3)
    tell(report, "tiny, Scenes, 10 an image", ways, wanted=("5", "", "12"))


def test_tiny_on_one_response_an_image(tiny, report, size):
    ways = measured(tiny, bench_shape(int(100 * size)), new=64, rounds=2)
    tell(report, "tiny, 1 an image", ways)


def test_sixteen_bits(report, size):
    """bfloat16 rounds, so that a text may part from the one written alone: how often is measured, not promised."""
    engine = vj.load_judge("tiny", device="cpu", dtype="bfloat16").engine
    ways = Ways(engine, collection_shape(int(60 * size)), 64)
    places = list(range(len(ways.work)))
    ways.run("c", places)
    together = dict(ways.texts["c"])
    for place in places:
        ways.run("c", [place])
    same = sum(together[place] == text for place, text in ways.texts["c"].items())
    report.add("tiny in bfloat16: texts together equal to those alone", f"{same} of {len(places)}")


def middle_engine(tiny):
    """About 100 million random parameters, 576 image tokens; no token ends an answer."""
    torch.manual_seed(0)
    side, tokenizer = 336, tiny.model.tokenizer
    sizes = {
        "hidden_size": 512,
        "intermediate_size": 2048,
        "num_hidden_layers": 6,
        "num_attention_heads": 8,
    }
    vision = CLIPVisionConfig(**sizes, image_size=side, patch_size=14)
    sizes = {
        "hidden_size": 768,
        "intermediate_size": 2304,
        "num_hidden_layers": 10,
        "num_attention_heads": 12,
    }
    text = LlamaConfig(**sizes, vocab_size=len(tokenizer) + 8, initializer_range=0.05)
    token = tiny.model.image_token_id
    config = LlavaConfig(
        vision_config=vision, text_config=text, image_token_index=token, image_seq_length=576
    )
    model = LlavaForConditionalGeneration(config).eval()
    model.generation_config.eos_token_id = len(tokenizer) + 7
    processor = CLIPImageProcessorPil(
        size={"shortest_edge": side}, crop_size={"height": side, "width": side}
    )
    return HFEngine(replace(tiny.model, name="middle", model=model, image_processor=processor))


def one_picture(n):
    """Prompts of the collection's shape, all about one picture of noise."""
    noise = np.random.default_rng(0).integers(0, 256, (336, 336, 3), dtype=np.uint8)
    return [(prompt, [Image.fromarray(noise)]) for prompt, _ in collection_shape(n)]


def test_middle_on_the_collections_shape(tiny, report, size):
    engine = middle_engine(tiny)
    millions = sum(weight.numel() for weight in engine.model.model.parameters()) / 1e6
    ways = measured(engine, one_picture(int(30 * size)), new=60, rounds=1)
    tell(report, f"{millions:.0f} M parameters, 576 image tokens", ways, wanted=("6", "1.7", "12"))
