"""How much memory a training takes that reads a large collection from disk, against a small one. `make bench`.

Each in a process of its own: rows of JSON Lines through `load_collection`, the survey of all of them before training,
and a few steps. Run as a script, this file is that process: `bench_streaming.py ROWS FOLDER`.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from time import process_time

FEW, MANY = 1_500, 150_000
IMAGES = 64


def write(file: Path, n: int) -> None:
    """Generated rows: texts of their own, scores and lengths in balance, few image files."""
    from PIL import Image

    for number in range(IMAGES):
        picture = file.parent / f"{number}.png"
        if not picture.is_file():
            Image.effect_noise((96, 96), 20 + number).convert("RGB").save(picture)
    descriptions = ["Wrong.", "Mostly wrong.", "Half right.", "Mostly right.", "Right."]
    with file.open("w", encoding="utf-8") as lines:
        for number in range(n):
            score = number * 7 % 5 + 1
            row = {
                "id": f"row-{number}",
                "images": [f"{number % IMAGES}.png"],
                "instruction": f"Count what is in picture {number % 977} and say how many there are of each.",
                "response": f"I count {number % 11} circles, {number % 13} squares and {number % 17} rings here.",
                "reference_answer": f"There are {number % 5} circles, {number % 7} squares and {number % 3} rings.",
                "criteria": "Are the numbers in the response the numbers in the picture?",
                "descriptions": descriptions,
                "gold": float(score),
                "feedback": f"It said {number % 11} circles and {number % 13} squares; {score} of the counts agree.",
            }
            lines.write(json.dumps(row) + "\n")


def peak() -> float:
    """The most memory this process held so far, in MB, pages of files included."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def train(file: Path, out: Path) -> dict[str, float]:
    """Load, survey and train a few steps; peaks in MB and seconds of processor time."""
    import torch

    import vjudge as vj
    from vjudge.judging.loading import load_judge
    from vjudge.training import fine_tune

    torch.set_num_threads(1)
    load_judge("tiny", device="cpu")  # what loading takes is not the collection's
    found, start = {"ready": peak()}, process_time()
    items = vj.load_collection(file)
    found |= {"loaded": peak(), "loading": process_time() - start}
    fine_tune(
        "tiny", items, out=out, recipe="scenes", steps=4, batch_size=8, warmup=1, allow=["length"], device="cpu",
        checkpoint_every=4, log_every=4, progress=False,
    )  # fmt: skip
    return found | {"peak": peak(), "seconds": process_time() - start}


def test_memory_does_not_grow_with_the_collection(report, tmp_path, size):
    found = {}
    for n in (FEW, int(MANY * min(1, size))):
        write(tmp_path / f"{n}.jsonl", n)
        command = [
            sys.executable,
            __file__,
            str(tmp_path / f"{n}.jsonl"),
            str(tmp_path / f"out-{n}"),
        ]
        done = subprocess.run(
            command, capture_output=True, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"}
        )
        assert done.returncode == 0, done.stderr[-3000:]
        found[n] = json.loads(done.stdout.splitlines()[-1])
    few, many = found.values()
    n = max(found)
    report.add(
        f"training on {n:,} rows from disk against {FEW:,}: memory at its highest",
        f"{many['peak'] - few['peak']:.0f} MB more ({few['peak']:.0f} and {many['peak']:.0f})", "under 200 MB",
    )  # fmt: skip
    report.add("  of it when the collection was loaded", f"{many['loaded'] - few['loaded']:.0f} MB")
    report.add(
        f"  loading {n:,} rows; looking at all of them and 4 steps, a row",
        f"{many['loading']:.1f} s; {1e3 * (many['seconds'] - many['loading']) / n:.2f} ms",
    )
    assert many["peak"] - few["peak"] < 200


if __name__ == "__main__":
    print(json.dumps(train(Path(sys.argv[1]), Path(sys.argv[2]))))
