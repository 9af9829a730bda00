"""Loading a collection of Perception-Collection's size from a local file: rows a second, and memory. `make bench`."""

from __future__ import annotations

import json
import subprocess
import sys

from PIL import Image

ROWS = 150_000  # Perception-Collection's
SCRIPT = """
import resource, sys
from time import process_time
import vjudge, datasets, pandas, torch
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
start = process_time()
items = vjudge.load_collection(sys.argv[1])
took = process_time() - start
first = items[0]
print(len(items), took, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def test_a_large_collection(report, size, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    Image.new("RGB", (64, 48), "red").save(tmp_path / "picture.png")
    line = {
        "images": ["picture.png"],
        "instruction": "What stands in the middle of the picture, and which colour does it have? "
        * 2,
        "criteria": "Does the response describe the picture as it is?",
        "descriptions": [
            f"Level {n}: a sentence that says what such a response is like." for n in range(1, 6)
        ],
        "reference_answer": "A red field without anything else. " * 8,
        "gold": 3,
    }
    rows, peaks = int(ROWS * min(1.0, size)), {}
    for part in (rows // 10, rows):
        file = tmp_path / f"{part}.jsonl"
        write(file, line, part)
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT, str(file)], capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr[-2000:]
        found, took, peak = (float(value) for value in done.stdout.split()[-3:])
        assert found == part
        peaks[part] = peak / 1024
    mib = file.stat().st_size / (1 << 20)
    report.add(
        f"load_collection of {rows:,} rows ({mib:.0f} MiB of JSON lines)",
        f"{rows / took:,.0f} rows a second of processor time",
    )
    report.add("load_collection: memory at its highest", f"{peaks[rows]:.0f} MiB more than before")
    grown = peaks[rows] - peaks[rows // 10]
    report.add(
        f"load_collection: memory, {rows:,} rows against {rows // 10:,}",
        f"{grown:.0f} MiB more, {1024 * grown / (rows - rows // 10):.1f} KiB a row",
    )


def write(file, line, rows):
    """So many rows, 30 responses an image."""
    with file.open("w", encoding="utf-8") as stream:
        for number in range(rows):
            row = {
                "id": str(number),
                **line,
                "response": f"Response {number}. " * 20,
                "group": str(number // 30),
            }
            stream.write(json.dumps(row) + "\n")
