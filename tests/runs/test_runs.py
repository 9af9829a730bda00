"""A run keeps what it was given, through torn lines, full disks and second writers."""

from __future__ import annotations

import errno
import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from vjudge.runs import Run, RunError

MANIFEST = {"judge": "tiny", "decoding": {"seed": 0, "temperature": 0.0}, "note": {"started": "today"}}


def verdict(id: str, sample: int = 0, **values: Any) -> dict[str, Any]:
    return {"id": id, "sample": sample, "score": 3.0, **values}


def test_values_come_back_exactly(tmp_path: Path) -> None:
    values = {
        "score": float("nan"),
        "expected_score": 0.1 + 0.2,
        "tiny": 5e-324,
        "numpy": np.float64(1 / 3),
        "count": np.int64(7),
        "probabilities": {1: math.pi, 2: np.float32(0.1).item()},
        "raw": 'line\nbreak \u2028 "quoted" \udce9 ☃\0',
        "failure": None,
    }
    with Run(tmp_path / "run").open(MANIFEST) as run:
        run.append([verdict("a", **values)])
    (back,) = Run(tmp_path / "run").verdicts()
    assert back["score"] is None
    assert back["expected_score"] == 0.1 + 0.2 and back["tiny"] == 5e-324 and back["numpy"] == 1 / 3
    assert back["probabilities"] == {"1": math.pi, "2": np.float32(0.1).item()}
    assert back["raw"] == values["raw"] and back["failure"] is None and back["count"] == 7


def test_a_run_continues(tmp_path: Path) -> None:
    with Run(tmp_path).open(MANIFEST) as run:
        run.append([verdict("a"), verdict("a", 1)])
    with Run(tmp_path).open({**MANIFEST, "note": {"started": "tomorrow"}}) as run:
        assert list(run.done) == [("a", 0), ("a", 1)]
        run.append([verdict("b")])
    assert [v["id"] for v in Run(tmp_path).verdicts()] == ["a", "a", "b"]
    assert Run(tmp_path).manifest["note"] == {"started": "today"}


@pytest.mark.filterwarnings("ignore:.*damaged line:RuntimeWarning")
def test_a_torn_end_is_moved_aside_wherever_it_is_torn(tmp_path: Path) -> None:
    """Cut the file at every byte, as a kill may: whole lines stay, the torn one goes."""
    with Run(tmp_path).open(MANIFEST) as run:
        run.append([verdict("é1"), verdict("é2")])
    file = tmp_path / "verdicts.jsonl"
    whole = file.read_bytes()
    first = whole.index(b"\n") + 1
    for size in range(len(whole)):
        file.write_bytes(whole[:size])
        (tmp_path / "damaged.jsonl").unlink(missing_ok=True)
        expected = [] if size < first else ["é1"]
        assert [v["id"] for v in Run(tmp_path).verdicts()] == expected
        with Run(tmp_path).open(MANIFEST) as run:
            assert [key[0] for key in run.done] == expected
            run.append([verdict("next")])
        assert [v["id"] for v in Run(tmp_path).verdicts()] == [*expected, "next"]
        assert (tmp_path / "damaged.jsonl").exists() == (size not in (0, first))


def test_a_damaged_line_is_named_and_moved_aside(tmp_path: Path) -> None:
    with Run(tmp_path).open(MANIFEST) as run:
        run.append([verdict("a"), verdict("b"), verdict("c")])
    file = tmp_path / "verdicts.jsonl"
    lines = file.read_bytes().splitlines(keepends=True)
    damaged, unfilled = lines[1].replace(b"3.0", b"4.0"), b"\0" * 100 + b"\n" + b"\0" * 50  # after a power cut
    file.write_bytes(lines[0] + damaged + lines[2] + unfilled)
    with pytest.warns(RuntimeWarning, match=r"verdicts.jsonl, lines 2, 4, 5: 3 damaged lines.*left out"):
        assert [v["id"] for v in Run(tmp_path).verdicts()] == ["a", "c"]
    assert file.read_bytes() == lines[0] + damaged + lines[2] + unfilled  # to read changes nothing
    with pytest.warns(RuntimeWarning, match="lines 2, 4, 5: .*moved to damaged.jsonl.*computed again"):
        run = Run(tmp_path).open(MANIFEST)
    with run:
        assert [key[0] for key in run.done] == ["a", "c"]
        run.append([verdict("b")])
    assert (tmp_path / "damaged.jsonl").read_bytes() == damaged + unfilled + b"\n"
    with Run(tmp_path).open(MANIFEST) as run:
        assert [key[0] for key in run.done] == ["a", "c", "b"]


def test_a_verdict_that_stands_twice_is_refused(tmp_path: Path) -> None:
    with Run(tmp_path).open(MANIFEST) as run:
        run.append([verdict("a")])
    file = tmp_path / "verdicts.jsonl"
    file.write_bytes(file.read_bytes() * 2)
    with pytest.raises(RunError, match="line 2.*twice; remove one of the two lines"):
        Run(tmp_path).open(MANIFEST)
    with pytest.raises(RunError, match="line 1: not a verdict of this kind"):
        Run(tmp_path, keys=("id", "order")).verdicts()


@pytest.mark.skipif(sys.platform == "win32", reason="links take rights on Windows")
@pytest.mark.parametrize("name", ["run.lock", "manifest.json", "manifest.json.new", "verdicts.jsonl", "damaged.jsonl"])
def test_a_link_is_not_followed(tmp_path: Path, name: str) -> None:
    """A received run can't make us write, or read as ours, a file elsewhere."""
    folder, secret = tmp_path / "run", tmp_path / "secret"
    folder.mkdir()
    secret.write_text("precious")
    if name != "manifest.json.new":
        with Run(folder).open(MANIFEST) as run:
            run.append([verdict("a")])
        (folder / name).unlink(missing_ok=True)
    (folder / name).symlink_to(secret)
    if name == "damaged.jsonl":
        (folder / "verdicts.jsonl").write_bytes(b"damaged\n")
    if name == "manifest.json.new":
        Run(folder).open(MANIFEST).close()  # what was left of a start is written anew, beside the link
    else:
        with pytest.raises(RunError, match=f"{name} is a link"):
            Run(folder).open(MANIFEST)
    assert secret.read_text() == "precious"


def test_a_complete_run_on_a_read_only_disk_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Run(tmp_path).open(MANIFEST) as run:
        run.append([verdict("a"), verdict("b")])
    original = os.open

    def read_only(path: Any, flags: int, *rest: Any, **more: Any) -> int:
        if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            raise OSError(errno.EROFS, "Read-only file system")
        return original(path, flags, *rest, **more)

    monkeypatch.setattr(os, "open", read_only)
    with Run(tmp_path).open(MANIFEST, expected=2) as run:
        assert [key[0] for key in run.done] == ["a", "b"]
    with pytest.raises(RunError, match="can't be written"):
        Run(tmp_path).open(MANIFEST, expected=3)
    with pytest.raises(RunError, match="differs from this call in judge"):
        Run(tmp_path).open({**MANIFEST, "judge": "other"}, expected=2)


def test_another_manifest_is_refused_and_each_difference_named(tmp_path: Path) -> None:
    Run(tmp_path).open(MANIFEST).close()
    changed = {"judge": "other", "decoding": {"seed": 1, "temperature": 0.0}, "extra": [1, 2]}
    with pytest.raises(RunError) as refusal:
        Run(tmp_path).open(changed)
    message = str(refusal.value)
    assert 'judge: "tiny" -> "other"; decoding.seed: 0 -> 1; extra: "absent" -> [1, 2]' in message
    assert "temperature" not in message and "note" not in message
    assert "another folder" in message
    Run(tmp_path).open(MANIFEST).close()  # the refusal left the run usable


def test_folders_of_something_else_are_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("precious")
    with pytest.raises(RunError, match=r"other files and no run \(thesis.tex\)"):
        Run(tmp_path).open(MANIFEST)
    assert sorted(os.listdir(tmp_path)) == ["thesis.tex"]
    for other in ('{"name": "a web app"}', '{"format": 1}'):
        (tmp_path / "manifest.json").write_text(other)
        with pytest.raises(RunError, match="not a run of this vjudge"):
            Run(tmp_path).open(MANIFEST)
    (tmp_path / "manifest.json").write_text("{")
    with pytest.raises(RunError, match="can't be read"):
        Run(tmp_path).open(MANIFEST)
    with pytest.raises(RunError, match="holds no run"):
        _ = Run(tmp_path / "empty").manifest


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    for path in ("", 5, None):
        with pytest.raises(RunError, match=f"kept in a folder, and {path!r} names none: give a folder's path as out="):
            Run(path)  # type: ignore[arg-type]
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="can't be written"):
        Run(tmp_path / "file" / "run").open(MANIFEST)


def test_a_disk_that_fills_up_keeps_what_was_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write

    def full(descriptor: int, data: Any) -> int:
        if len(data) > 10:
            return write(descriptor, data[: len(data) // 2])  # a short write, then nothing fits
        raise OSError(errno.ENOSPC, "No space left on device")

    with Run(tmp_path).open(MANIFEST) as run:
        run.append([verdict("a")])
        before = (tmp_path / "verdicts.jsonl").read_bytes()
        monkeypatch.setattr(os, "write", full)
        with pytest.raises(RunError, match="No space left on device; 1 verdicts are saved"):
            run.append([verdict("b"), verdict("c")])
        assert (tmp_path / "verdicts.jsonl").read_bytes() == before
        monkeypatch.setattr(os, "write", write)
        run.append([verdict("b")])  # room again: the same object goes on
    assert [v["id"] for v in Run(tmp_path).verdicts()] == ["a", "b"]


@pytest.mark.skipif(sys.platform == "win32", reason="no lock on Windows")
def test_one_process_at_a_time(tmp_path: Path) -> None:
    code = f"""
import sys
from vjudge.runs import Run
with Run({str(tmp_path)!r}).open({json.dumps({"judge": "tiny"})}):
    print("held", flush=True)
    sys.stdin.read()
"""
    holder = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None and holder.stdout.readline() == "held\n"
    with pytest.raises(RunError, match=rf"written by another process \(number {holder.pid}\)"):
        Run(tmp_path).open({"judge": "tiny"})
    holder.kill()
    holder.wait()
    holder.stdout.close()
    Run(tmp_path).open({"judge": "tiny"}).close()  # the system let go with the process
    with Run(tmp_path).open({"judge": "tiny"}), pytest.raises(RunError, match="another process"):
        Run(tmp_path).open({"judge": "tiny"})
