"""What is measured: each part yields (what, how much), as soon as it is known."""

from __future__ import annotations

import gc
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple
from unittest.mock import patch

import pandas as pd
import torch

import vjudge as vj
from gpu import bases
from vjudge.engines import HFEngine
from vjudge.models import convert
from vjudge.models.find import find_checkpoint
from vjudge.models.placement import GIB, needed_bytes, place
from vjudge.records import Item

Measures = Iterator[tuple[str, object]]


@dataclass
class Bench:
    """Where checkpoints and trainings are written, and how large everything is."""

    folder: Path
    small: bool
    loaded: dict[Any, vj.Judge] = field(default_factory=dict)  # the last judge by its options
    before: pd.DataFrame | None = None  # what variants are compared with

    @property
    def device(self) -> str:
        return "cpu" if self.small else "cuda"

    @property
    def limit(self) -> int:
        """Tokens of an answer at most."""
        return 6 if self.small else 64

    def items(self, full: int) -> list[dict]:
        """Items of Scenes, so many at the full size."""
        return list(vj.load_collection("scenes", split="train", limit=4 if self.small else full))

    def base(self, kind: str) -> Path:
        """A checkpoint in transformers' layout, written where it is not there yet."""
        shape = "short" if kind == "short" else "full"
        if self.small:
            kind = kind.replace("short", "llava")
            shape = "small"
        folder = self.folder / kind
        if folder.exists():
            return folder
        if kind == "chat":
            return bases.write_qwen(folder, shape, self.device)
        original = bases.write_llava(self.folder / "original", shape, self.device)
        convert(original, folder)
        shutil.rmtree(original)
        return folder

    def judge(self, kind: str = "llava", **options: Any) -> vj.Judge:
        """A judge; the one before gives its memory back first."""
        key = (kind, *options.items())
        if key not in self.loaded:
            self.release()
            template = "prometheus-vision" if kind != "chat" else "chat"
            options = {"device": self.device, "template": template} | options
            if options.get("engine") == "vllm":
                del options["device"]
            self.loaded[key] = vj.load_judge(self.base(kind), **options)
        return self.loaded[key]

    def release(self) -> None:
        self.loaded.clear()
        gc.collect()
        torch.cuda.empty_cache()


def answers(judge: vj.Judge, items: list[dict], limit: int) -> pd.DataFrame:
    """The text and the expected score of each item, and the seconds that both took."""
    made = {}
    seconds = {}
    for mode, options in (("feedback", {"max_new_tokens": limit}), ("score", {})):
        start = perf_counter()
        made[mode] = judge.grade(items, mode=mode, unread="missing", progress=False, **options)
        seconds[mode] = perf_counter() - start
    run = pd.DataFrame({"text": made["feedback"]["raw"], "score": made["score"]["expected_score"]})
    run.attrs = seconds
    return run


def apart(run: pd.DataFrame, reference: pd.DataFrame) -> Measures:
    same = int((run["text"] == reference["text"]).sum())
    yield "texts equal", f"{same} of {len(run)}"
    yield "expected scores apart at most", (run["score"] - reference["score"]).abs().max()


def precision(bench: Bench, kind: str) -> Measures:
    """bfloat16 against float32."""
    items = bench.items(16)
    runs = {}
    for dtype in ("float32", "bfloat16"):
        runs[dtype] = answers(bench.judge(kind, dtype=dtype), items, bench.limit)
    yield from apart(runs["bfloat16"], runs["float32"])


def published(bench: Bench, judge: vj.Judge, items: list[dict]) -> list[str]:
    """The published loop: a picture is prepared, and `generate` called, for each item alone."""
    engine: Any = judge.engine
    model = engine.model
    texts = []
    for item in items:
        prompt = judge.template.render(Item.from_row(item))
        ids = torch.tensor([engine.encoder.ids(prompt)], device=model.device)
        pictures = [picture.convert("RGB") for picture in item["images"]]
        pixels = model.image_processor(pictures, return_tensors="pt")["pixel_values"]
        written = model.model.generate(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            pixel_values=pixels.to(model.device, model.dtype),
            do_sample=False,
            max_new_tokens=bench.limit,
            eos_token_id=sorted(engine.ends),
            pad_token_id=min(engine.ends),
            suppress_tokens=list(model.non_text_token_ids),
        )[0, ids.shape[1] :].tolist()
        while written and written[-1] in engine.ends:
            written.pop()
        texts.append(engine.encoder.text(written))
    return texts


def rates(bench: Bench) -> Measures:
    """Items a second, beside the published loop; memory and tokens beside what was planned."""
    # 1) the loop on some items, this engine on all
    items = bench.items(150)
    some = items[: max(2, len(items) // 10)]
    judge = bench.judge(dtype="bfloat16")
    engine: Any = judge.engine
    published(bench, judge, some[:1])  # warms the device
    start = perf_counter()
    texts = published(bench, judge, some)
    pace = (perf_counter() - start) / len(some)
    if not bench.small:
        torch.cuda.reset_peak_memory_stats()
    run = answers(judge, items, bench.limit)
    for mode, seconds in run.attrs.items():
        yield f"{mode}: items a second", len(items) / seconds
        yield f"{mode}: times the published loop", pace * len(items) / seconds
    same = sum(map(str.__eq__, texts, run["text"]))
    yield "texts equal to the loop's", f"{same} of {len(texts)}"
    # 2) what was planned
    planned = vj.plan(judge, items, mode="score")["planned"]
    yield "prompt tokens: counted / planned", engine.work.prompt_tokens / planned["prompt tokens"]
    placed = place(device=bench.device, dtype="bfloat16")
    weights = needed_bytes(find_checkpoint(bench.base("llava")), placed)
    yield "weights: GiB planned", weights / GIB
    yield "weights: GiB held", engine.model.model.get_memory_footprint() / GIB
    if not bench.small:
        yield "highest: GiB", torch.cuda.max_memory_allocated() / GIB


def shortage(bench: Bench) -> Measures:
    """Memory runs out: batches are halved, and texts stay."""
    items = bench.items(64)
    judge = bench.judge(dtype="bfloat16")
    if not bench.small:
        torch.cuda.reset_peak_memory_stats()
    before = answers(judge, items, bench.limit)
    sizes = []
    compute = HFEngine._compute

    def counted(engine: HFEngine, call: Any, rows: Any) -> None:
        sizes.append(len(rows))
        if bench.small and len(rows) > 2:
            raise torch.OutOfMemoryError("simulated on a CPU")
        compute(engine, call, rows)

    if not bench.small:
        # half of what the batch took beside the weights
        held = torch.cuda.memory_allocated()
        room = (held + torch.cuda.max_memory_allocated()) / 2
        torch.cuda.empty_cache()
        total = torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction(room / total)
    with patch.object(HFEngine, "_compute", counted):
        after = answers(judge, items, bench.limit)
    if not bench.small:
        torch.cuda.set_per_process_memory_fraction(1.0)
    yield "rows at once", " ".join(map(str, sizes))
    yield from apart(after, before)


def variant(bench: Bench, **options: Any) -> Measures:
    """The same judge in another way, against bfloat16 as it is."""
    items = bench.items(32)
    if bench.before is None:
        bench.before = answers(bench.judge(dtype="bfloat16"), items, bench.limit)
    before = bench.before
    other = bench.judge(dtype="bfloat16", **options)
    answers(other, items[:1], 1)  # warms
    after = answers(other, items, bench.limit)
    yield from apart(after, before)
    for mode, seconds in after.attrs.items():
        yield f"{mode}: times the rate", before.attrs[mode] / seconds


def adapters(bench: Bench, quantization: str | None) -> Measures:
    """Steps of LoRA or QLoRA."""
    base = bench.base("llava")
    bench.release()
    log: list[dict] = []
    vj.training.fine_tune(
        base,
        bench.items(16),
        out=bench.folder / f"lora-{quantization}",
        template="prometheus-vision",
        recipe="prometheus-vision-lora",
        lora={"merge": False, "r": 16},
        quantization=quantization,
        device=bench.device,
        precision="bfloat16",
        steps=2 if bench.small else 6,
        batch_size=2 if bench.small else 4,
        log_every=1,
        allow=("length", "scores", "leakage"),
        on_log=log.append,
        progress=False,
    )
    losses = [entry["loss"] for entry in log if "loss" in entry]
    yield "losses", " ".join(f"{loss:.3f}" for loss in losses)
    times = [entry["seconds"] for entry in log if "loss" in entry]
    yield "seconds a step", (times[-1] - times[0]) / (len(times) - 1)


def preferences(bench: Bench, way: str) -> Measures:
    """Steps of DPO or GRPO, on four layers: a round is stored in float32."""
    base = bench.base("short")
    bench.release()
    rows = bench.items(8)
    size = {"max_steps": 2, "per_device_train_batch_size": 2, "gradient_accumulation_steps": 1}
    out = bench.folder / way
    if way == "dpo":
        pairs = [row | {"chosen": "A red cup.", "rejected": row["response"]} for row in rows]
        record = vj.preference.train(base, pairs, out, lora=True, **size)
    else:
        size |= {"num_generations": 2, "max_completion_length": bench.limit}
        reward = lambda completions, **_: [float(len(text)) for text in completions]  # noqa: E731
        record = vj.preference.grpo(base, rows, reward, out, lora=True, **size)
    yield "losses", " ".join(f"{float(entry['loss']):.3f}" for entry in record["log"])


class Part(NamedTuple):
    """A part: what it runs, its time in seconds on a GPU, and the packages that it needs."""

    run: Callable[[Bench], Measures]
    seconds: float = 60
    needs: tuple[str, ...] = ()

    def measure(self, bench: Bench) -> Measures:
        """What it measured, or why it was not run; its errors are a line."""
        missing = [name for name in self.needs if find_spec(name) is None]
        if missing:
            yield "not run", f"{', '.join(missing)} not installed"
            return
        try:
            yield from self.run(bench)
        except Exception as error:  # of any kind: the parts after it are measured
            yield "failed", f"{type(error).__name__}: {str(error)[:300]}"


PARTS = {
    "LLaVA, bfloat16 against float32": Part(partial(precision, kind="llava"), 100),
    "rates and memory": Part(rates, 60),
    "out of memory": Part(shortage, 40),
    "vLLM": Part(partial(variant, engine="vllm"), 120, ("vllm",)),
    "FlashAttention": Part(partial(variant, attention="flash_attention_2"), 40, ("flash_attn",)),
    "plain attention": Part(partial(variant, attention="eager"), 40),
    "8 bits": Part(partial(variant, quantization="8bit"), 60, ("bitsandbytes",)),
    "4 bits": Part(partial(variant, quantization="4bit"), 60, ("bitsandbytes",)),
    "Qwen2.5-VL, bfloat16 against float32": Part(partial(precision, kind="chat"), 80),
    "LoRA": Part(partial(adapters, quantization=None), 60, ("peft",)),
    "QLoRA": Part(partial(adapters, quantization="4bit"), 60, ("peft", "bitsandbytes")),
    "DPO": Part(partial(preferences, way="dpo"), 60, ("trl", "peft")),
    "GRPO": Part(partial(preferences, way="grpo"), 60, ("trl", "vjudge.preference.reinforcement")),
}
