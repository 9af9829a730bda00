"""What is measured: each part yields (what, how much), as soon as it is known."""

from __future__ import annotations

import gc
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import pandas as pd
import torch

import vjudge as vj
from bench.bench_engine import Ways
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

    def __post_init__(self) -> None:
        self.device = "cpu" if self.small else "cuda"
        self.limit = 6 if self.small else 64  # tokens of an answer at most

    def items(self, n: int) -> list[dict]:
        """Items of Scenes, so many at the full size."""
        return list(vj.load_collection("scenes", split="train", limit=4 if self.small else n))

    def base(self, shape: str) -> Path:
        """A checkpoint in transformers' layout, written where it is not there yet."""
        folder = self.folder / shape
        if not folder.exists() and shape == "qwen":
            bases.write_qwen(folder, self.device, small=self.small)
        elif not folder.exists():
            original = self.folder / "original"
            bases.write_llava(original, self.device, "small" if self.small else shape)
            convert(original, folder)
            shutil.rmtree(original)
        return folder

    def judge(self, shape: str = "llava", **options: Any) -> vj.Judge:
        """A judge; the one before gives its memory back first."""
        key = (shape, *options.items())
        if key not in self.loaded:
            self.release()
            if "engine" not in options:
                options["device"] = self.device
            wording = "chat" if shape == "qwen" else "prometheus-vision"
            self.loaded[key] = vj.load_judge(self.base(shape), template=wording, **options)
        return self.loaded[key]

    def release(self) -> None:
        self.loaded.clear()
        gc.collect()
        torch.cuda.empty_cache()


def answers(judge: vj.Judge, items: list[dict], limit: int) -> pd.DataFrame:
    """The text and the expected score of each item, and the seconds that each took."""
    options: dict[str, Any] = {"unread": "missing", "progress": False}
    written = judge.grade(items, max_new_tokens=limit, **options)
    read = judge.grade(items, mode="score", **options)
    columns = {"text": written["raw"], "score": read["expected_score"]}
    return pd.DataFrame(columns | {"feedback": written["seconds"], "scoring": read["seconds"]})


def apart(run: pd.DataFrame, reference: pd.DataFrame) -> Measures:
    yield "texts equal", f"{(run['text'] == reference['text']).sum()} of {len(run)}"
    yield "expected scores apart at most", (run["score"] - reference["score"]).abs().max()


def precision(bench: Bench, shape: str) -> Measures:
    """bfloat16 against float32."""
    runs = []
    for dtype in ("float32", "bfloat16"):
        runs.append(answers(bench.judge(shape, dtype=dtype), bench.items(16), bench.limit))
    yield from apart(runs[1], runs[0])


def rates(bench: Bench) -> Measures:
    """Items a second beside the published loop; tokens and memory beside what was planned."""
    judge = bench.judge(dtype="bfloat16")
    items = bench.items(150)
    engine: Any = judge.engine
    work = [(judge.template.render(Item.from_row(item)), item["images"]) for item in items]
    ways = Ways(engine, work, bench.limit)
    everything = list(range(len(work)))
    if not bench.small:
        torch.cuda.reset_peak_memory_stats()
    for way, places in (("a", everything[:16]), ("c", everything), ("d", everything)):
        ways.run(way, places[:1])  # warms the device
        ways.start()
        ways.run(way, places)
        rate = ways.rate(way, wall=True)
        yield {"a": "published loop", "c": "feedback", "d": "score"}[way] + ": items a second", rate
    same = [ways.texts["c"][place] == text for place, text in ways.texts["a"].items()]
    yield "texts equal to the loop's", f"{sum(same)} of {len(same)}"
    planned = vj.plan(judge, items, mode="score")["planned"]
    yield "prompt tokens: counted / planned", engine.work.prompt_tokens / planned["prompt tokens"]
    placed = place(device=bench.device, dtype="bfloat16")
    planned_bytes = needed_bytes(find_checkpoint(bench.base("llava")), placed)
    yield "weights: held / planned", engine.model.model.get_memory_footprint() / planned_bytes
    if not bench.small:
        yield "highest: GiB", torch.cuda.max_memory_allocated() / GIB


def shortage(bench: Bench) -> Measures:
    """Too many rows at once: batches are halved, and scores stay."""
    items = bench.items(600)
    judge = bench.judge(dtype="bfloat16")
    sizes = []
    compute = HFEngine._compute

    def counted(engine: HFEngine, call: Any, rows: Any) -> None:
        sizes.append(len(rows))
        if bench.small and len(rows) > 2:
            raise torch.OutOfMemoryError("simulated on a CPU")
        compute(engine, call, rows)

    grade = partial(judge.grade, items, mode="score", progress=False)
    before = grade()["expected_score"]
    with patch.object(HFEngine, "_compute", counted):
        after = grade(batch_size=len(items))["expected_score"]
    yield "rows at once", " ".join(map(str, sizes))
    yield "expected scores apart at most", (after - before).abs().max()


def variant(bench: Bench, **options: Any) -> Measures:
    """The same judge in another way, against bfloat16 as it is."""
    items = bench.items(32)
    if bench.before is None:
        bench.before = answers(bench.judge(dtype="bfloat16"), items, bench.limit)
    judge = bench.judge(dtype="bfloat16", **options)
    answers(judge, items[:1], 1)  # warms the device
    run = answers(judge, items, bench.limit)
    yield from apart(run, bench.before)
    for mode in ("feedback", "scoring"):
        yield f"{mode}: times the rate", bench.before[mode].sum() / run[mode].sum()


def adapters(bench: Bench, quantization: str | None) -> Measures:
    """Steps of LoRA or QLoRA."""
    base = bench.base("llava")
    bench.release()
    log: list[dict] = []
    vj.training.fine_tune(
        base,
        bench.items(16),
        out=bench.folder / f"lora-{quantization}",
        recipe="prometheus-vision-lora",
        lora={"merge": False, "r": 16},
        quantization=quantization,
        device=bench.device,
        precision="bfloat16",
        steps=2,
        batch_size=2,
        log_every=1,
        allow=("length", "scores", "leakage"),
        on_log=log.append,
        progress=False,
    )
    yield "losses", " ".join(f"{entry['loss']:.3f}" for entry in log if "loss" in entry)


def preferences(bench: Bench, way: str) -> Measures:
    """Steps of DPO or GRPO, on four layers: what a round leaves is float32."""
    base = bench.base("llava" if bench.small else "short")
    bench.release()
    rows = bench.items(8)
    out = bench.folder / way
    size = {"max_steps": 2, "per_device_train_batch_size": 2, "gradient_accumulation_steps": 1}
    if way == "dpo":
        pairs = [row | {"chosen": "A red cup.", "rejected": row["response"]} for row in rows]
        record = vj.preference.train(base, pairs, out, lora=True, **size)
    else:
        size |= {"num_generations": 2, "max_completion_length": bench.limit}
        record = vj.preference.grpo(base, rows, length_of, out, lora=True, **size)
    yield "losses", " ".join(f"{float(entry['loss']):.3f}" for entry in record["log"])


def length_of(completions: list, **_: Any) -> list[float]:
    """A reward."""
    return [float(len(completion)) for completion in completions]


class Part(NamedTuple):
    """What runs, its time in seconds on a GPU, and the packages that it needs."""

    run: Callable[[Bench], Measures]
    seconds: float
    needs: tuple[str, ...] = ()


PARTS = {
    "LLaVA, bfloat16 against float32": Part(partial(precision, shape="llava"), 90),
    "rates and memory": Part(rates, 50),
    "out of memory": Part(shortage, 40),
    "vLLM": Part(partial(variant, engine="vllm"), 120, ("vllm",)),
    "FlashAttention": Part(partial(variant, attention="flash_attention_2"), 40, ("flash_attn",)),
    "plain attention": Part(partial(variant, attention="eager"), 40),
    "8 bits": Part(partial(variant, quantization="8bit"), 60, ("bitsandbytes",)),
    "4 bits": Part(partial(variant, quantization="4bit"), 60, ("bitsandbytes",)),
    "Qwen2.5-VL, bfloat16 against float32": Part(partial(precision, shape="qwen"), 80),
    "LoRA": Part(partial(adapters, quantization=None), 60, ("peft",)),
    "QLoRA": Part(partial(adapters, quantization="4bit"), 60, ("peft", "bitsandbytes")),
    "DPO": Part(partial(preferences, way="dpo"), 60, ("trl", "peft")),
    "GRPO": Part(partial(preferences, way="grpo"), 60, ("trl", "peft")),
}
