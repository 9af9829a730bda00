"""This checkout's torch engine against that of another one, in turns, on the same prompts; texts compared.

    git worktree add ../before 4397f59
    OMP_NUM_THREADS=1 python tests/bench/versus.py ../before --judge tiny --items 300 --rounds 3
    OMP_NUM_THREADS=1 python tests/bench/versus.py ../before --judge middle --items 30 --rounds 3

Each engine runs in a process of its own on one thread; seconds are those of its processor time. "middle" has 99 million
random parameters and 576 image tokens, all items about one picture; tiny's have 30 an image, 5 an instruction.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from time import process_time

NEW = {"tiny": 64, "middle": 60}  # tokens of an answer at most


def serve(kind: str, n: int) -> None:
    """Answer the same prompts each time a mode is asked for on standard input."""
    import numpy as np
    import torch
    from PIL import Image
    from transformers import CLIPVisionConfig, LlamaConfig, LlavaConfig, LlavaForConditionalGeneration
    from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

    import vjudge as vj
    from vjudge import engines, models
    from vjudge.prompts import TEMPLATES
    from vjudge.records import Item

    torch.set_num_threads(1)
    single, texts = TEMPLATES["prometheus-vision"], {n: f" {n}" for n in range(1, 6)}
    model = models.load("tiny", device="cpu")
    if kind == "middle":
        torch.manual_seed(0)
        sizes = {"hidden_size": 512, "intermediate_size": 2048, "num_hidden_layers": 6, "num_attention_heads": 8}
        vision = CLIPVisionConfig(**sizes, image_size=336, patch_size=14)
        sizes = {"hidden_size": 768, "intermediate_size": 2304, "num_hidden_layers": 10, "num_attention_heads": 12}
        text = LlamaConfig(**sizes, vocab_size=len(model.tokenizer) + 8, initializer_range=0.05)
        token = model.image_token_id
        config = LlavaConfig(vision_config=vision, text_config=text, image_token_index=token, image_seq_length=576)
        network = LlavaForConditionalGeneration(config).eval()
        network.generation_config.eos_token_id = len(model.tokenizer) + 7  # no token ends an answer
        square = {"height": 336, "width": 336}
        processor = CLIPImageProcessorPil(size={"shortest_edge": 336}, crop_size=square)
        loaded = {"name": kind, "path": model.path, "tokenizer": model.tokenizer, "image_processor": processor}
        place = {"device": model.device, "dtype": model.dtype}
        fields = models.VisionLanguageModel.__dataclass_fields__
        loaded |= {name: value for name, value in (("folder", model.path), ("kind", "llava")) if name in fields}
        model = models.VisionLanguageModel(**loaded, **place, model=network)
    engine = engines.TorchEngine(model)
    rows = list(vj.load_collection("scenes", split="test", limit=n))
    noise = Image.fromarray(np.random.default_rng(0).integers(0, 256, (336, 336, 3), dtype=np.uint8))
    images = [[noise] if kind == "middle" else rows[place - place % 30]["images"] for place in range(n)]
    prompts = [
        single.render(Item.from_row(row | {"instruction": rows[i - i % 5]["instruction"]}))
        for i, row in enumerate(rows)
    ]
    for line in sys.stdin:
        mode = line.strip()
        shown = prompts if mode == "feedback" else [prompt.append(single.forced) for prompt in prompts]
        start = process_time()
        if hasattr(engines, "Ask"):
            batches = engine.answer(
                shown, images, engines.Ask(mode, single.marker, [texts] * n, max_new_tokens=NEW[kind])
            )
        elif mode == "feedback":
            options = {"score_texts": texts, "marker": single.marker, "max_new_tokens": NEW[kind]}
            batches = engine.generate(shown, images, **options)
        else:
            batches = engine.score(shown, images, score_texts=texts, marker=single.marker)
        answers = sorted((answer for batch in batches for answer in batch), key=lambda answer: answer.index)
        said = {"seconds": process_time() - start, "texts": [answer.text for answer in answers]}
        said["scores"] = [answer.score_logprobs and list(answer.score_logprobs.values()) for answer in answers]
        print(json.dumps(said), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path, help="the other checkout")
    parser.add_argument("--judge", choices=list(NEW), default="tiny")
    parser.add_argument("--items", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    here = Path(__file__).resolve()
    sides = []
    for root in (given.before.resolve(), here.parents[2]):
        environment = {**os.environ, "PYTHONPATH": str(root), "OMP_NUM_THREADS": "1"}
        command = [sys.executable, str(here), "--serve", given.judge, str(given.items)]
        sides.append(
            subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment, cwd=root
            )
        )
    for mode in ("feedback", "score"):
        ratios = []
        for _ in range(given.rounds + 1):  # the first warms
            answers = []
            for side in sides:
                side.stdin.write(mode + "\n")
                side.stdin.flush()
                answers.append(json.loads(side.stdout.readline()))
            ratios.append(answers[0]["seconds"] / answers[1]["seconds"])
        before, now = answers
        same = sum(one == other for one, other in zip(before["texts"], now["texts"], strict=True))
        pairs = [(a, b) for a, b in zip(before["scores"], now["scores"], strict=True) if a and b]
        apart = max((abs(x - y) for a, b in pairs for x, y in zip(a, b, strict=True)), default=0.0)
        listed = ", ".join(f"{ratio:.2f}" for ratio in ratios[1:])
        print(
            f"{given.judge}, {mode}: {statistics.median(ratios[1:]):.2f} of the other's rate ({listed});"
            f" {same} of {given.items} texts equal; log-probabilities of scores apart by {apart:.1e}"
        )
    for side in sides:
        side.stdin.close()
        side.wait()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        serve(sys.argv[2], int(sys.argv[3]))
    else:
        main()
