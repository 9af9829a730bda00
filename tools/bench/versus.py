"""This checkout's transformers engine against that of another one, in turns, on the same prompts; texts compared.

    git worktree add ../before COMMIT
    OMP_NUM_THREADS=1 python tools/bench/versus.py ../before --judge tiny --items 300 --rounds 3
    OMP_NUM_THREADS=1 python tools/bench/versus.py ../before --judge middle --items 30 --rounds 3

Each engine runs in a process of its own on one thread; seconds are those of its processor time. "middle" has 99 million
random parameters and 576 image tokens, all items about one picture; tiny's have 30 an image, 5 an instruction. Both
checkouts answer by `Engine.answer`.
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
from typing import Any

NEW = {"tiny": 64, "middle": 60}  # tokens of an answer at most


def serve(kind: str, n: int) -> None:
    """Answer the same prompts each time a mode is asked for on standard input."""
    import torch
    from bench_engine import FIVE, SINGLE, collection_shape, middle_engine, one_picture

    import vjudge as vj
    from vjudge.engines import Ask

    torch.set_num_threads(1)
    engine: Any = vj.load_judge("tiny", device="cpu").engine
    engine = middle_engine(engine) if kind == "middle" else engine
    prompts, images = zip(*(one_picture if kind == "middle" else collection_shape)(n), strict=True)
    for line in sys.stdin:
        mode = line.strip()
        shown = (
            prompts if mode == "feedback" else [prompt.append(SINGLE.forced) for prompt in prompts]
        )
        start = process_time()
        batches = engine.answer(
            shown, images, Ask(mode, SINGLE.marker, [FIVE] * n, max_new_tokens=NEW[kind])
        )
        answers = sorted(
            (answer for batch in batches for answer in batch), key=lambda answer: answer.index
        )
        said = {"seconds": process_time() - start, "texts": [answer.text for answer in answers]}
        said["scores"] = [
            answer.score_logprobs and list(answer.score_logprobs.values()) for answer in answers
        ]
        print(json.dumps(said), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
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
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env=environment,
                cwd=root,
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
