"""A run keeps what it was given, through torn lines, full disks and second writers."""

from __future__ import annotations

import contextlib
import errno
import math
import os
import subprocess
import sys

import numpy as np
import pytest

from vjudge.runs import Run, RunError

MANIFEST = {
    "judge": "tiny",
    "decoding": {"seed": 0, "temperature": 0.0},
    "note": {"started": "today"},
}


def write(folder, *ids):
    """Add verdicts to a run; gives their file."""
    with Run(folder).open(MANIFEST) as run:
        run.append([{"id": id, "sample": 0, "score": 3.0} for id in ids])
    return folder / "verdicts.jsonl"


def ids(folder):
    return [verdict["id"] for verdict in Run(folder).verdicts()]


def test_values_come_back_exactly_and_a_run_continues(tmp_path):
    text = 'line\nbreak \u2028 "quoted" \udce9 ☃\0'
    values = {"score": math.nan, "expected_score": 0.1 + 0.2, "numpy": np.float64(1 / 3)}
    values |= {"count": np.int64(7), "probabilities": {1: 5e-324}, "raw": text, "failure": None}
    with Run(tmp_path / "run").open(MANIFEST) as run:
        run.append([{"id": "a", "sample": 0, **values}])
    with Run(tmp_path / "run").open({**MANIFEST, "note": {"started": "tomorrow"}}) as run:
        assert list(run.done) == [("a", 0)]
        run.append([{"id": "a", "sample": 1}])
    back, _ = Run(tmp_path / "run").verdicts()
    expected = values | {"score": None, "numpy": 1 / 3, "count": 7, "probabilities": {"1": 5e-324}}
    assert back == {"id": "a", "sample": 0, **expected}
    assert Run(tmp_path / "run").manifest["note"] == {"started": "tomorrow"}


@pytest.mark.filterwarnings("ignore:.*damaged line:RuntimeWarning")
def test_a_torn_end_is_moved_aside_wherever_it_is_torn(tmp_path):
    """Cut the file at every byte of its end, as a kill may: whole lines stay, the torn one goes."""
    file = write(tmp_path, "é1", "é2")
    whole = file.read_bytes()
    first = whole.index(b"\n") + 1
    for size in (0, 1, *range(first - 1, len(whole))):
        file.write_bytes(whole[:size])
        (tmp_path / "damaged.jsonl").unlink(missing_ok=True)
        expected = [] if size < first else ["é1"]
        assert ids(tmp_path) == expected
        write(tmp_path, "next")
        assert ids(tmp_path) == [*expected, "next"]
        assert (tmp_path / "damaged.jsonl").exists() == (size not in (0, first))


def test_a_damaged_line_is_named_and_moved_aside(tmp_path):
    file = write(tmp_path, "a", "b", "c")
    lines = file.read_bytes().splitlines(keepends=True)
    damaged = lines[1].replace(b"3.0", b"4.0")
    unfilled = b"\0" * 100 + b"\n" + b"\0" * 50  # after a power cut
    file.write_bytes(lines[0] + damaged + lines[2] + unfilled)
    assert ids(tmp_path) == ["a", "c"]
    assert file.read_bytes() == lines[0] + damaged + lines[2] + unfilled  # to read changes nothing
    with pytest.warns(
        RuntimeWarning, match=r"3 damaged lines \(2, 4, 5\).*moved to damaged.jsonl.*computed again"
    ):
        write(tmp_path, "b")
    assert (tmp_path / "damaged.jsonl").read_bytes() == damaged + unfilled + b"\n"
    assert ids(tmp_path) == ["a", "c", "b"]
    file.write_bytes(file.read_bytes() * 2)
    with pytest.raises(RunError, match="line 4.*stands there twice; remove it"):
        Run(tmp_path).open(MANIFEST)


def test_a_flipped_bit_gives_no_other_verdict(tmp_path):
    """In no place of the record is it read as something else; in the manifest it is refused, or in a note."""
    for path, step in ((write(tmp_path, "a"), 1), (tmp_path / "manifest.json", 19)):
        whole = path.read_bytes()
        for bit in range(0, 8 * len(whole), step):
            flipped = bytearray(whole)
            flipped[bit // 8] ^= 1 << bit % 8
            path.write_bytes(flipped)
            if path.name == "verdicts.jsonl":
                assert Run(tmp_path).verdicts() == [], bit
                continue
            with contextlib.suppress(RunError):
                Run(tmp_path).open(MANIFEST).close()
                assert Run(tmp_path).manifest | {"note": 0} == {**MANIFEST, "format": 3, "note": 0}
        path.write_bytes(whole)


@pytest.mark.skipif(sys.platform == "win32", reason="links take rights on Windows")
@pytest.mark.parametrize(
    "name", ["run.lock", "manifest.json", "manifest.json.new", "verdicts.jsonl", "damaged.jsonl"]
)
def test_a_link_is_not_followed(tmp_path, name):
    """A received run can't make us write, or read as ours, a file elsewhere."""
    folder, secret = tmp_path / "run", tmp_path / "secret"
    folder.mkdir()
    secret.write_text("precious")
    if name == "manifest.json.new":  # what was left of a start is written anew, beside the link
        (folder / name).symlink_to(secret)
        Run(folder).open(MANIFEST).close()
    else:
        write(folder, "a").write_bytes(b"damaged\n")
        (folder / name).unlink(missing_ok=True)
        (folder / name).symlink_to(secret)
        with pytest.raises(RunError, match=f"{name} is a link"):
            Run(folder).open(MANIFEST)
    assert secret.read_text() == "precious"


def test_a_complete_run_on_a_read_only_disk_is_read(tmp_path, monkeypatch):
    write(tmp_path, "a", "b")
    original = os.open

    def read_only(path, flags, *rest, **more):
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


def test_another_call_or_folder_is_refused_and_each_difference_named(tmp_path):
    Run(tmp_path / "run").open(MANIFEST).close()
    with pytest.raises(RunError, match="another folder") as refusal:
        Run(tmp_path / "run").open(
            {"judge": "other", "decoding": {"seed": 1, "temperature": 0.0}, "extra": [1, 2]}
        )
    assert 'in judge: "tiny" -> "other"; decoding.seed: 0 -> 1; extra: "absent" -> [1, 2]. ' in str(
        refusal.value
    )
    Run(tmp_path / "run").open(MANIFEST).close()  # the refusal left the run usable
    (tmp_path / "thesis.tex").write_text("precious")
    with pytest.raises(RunError, match=r"other files and no run \(run, thesis.tex\)"):
        Run(tmp_path).open(MANIFEST)
    assert sorted(os.listdir(tmp_path)) == ["run", "thesis.tex"]
    (tmp_path / "manifest.json").write_text("[" * 10**6)
    with pytest.raises(RunError, match="can't be read"):
        Run(tmp_path).open(MANIFEST)
    with pytest.raises(RunError, match="can't be written"):
        Run(tmp_path / "thesis.tex" / "run").open(MANIFEST)


@pytest.mark.skipif(sys.platform == "win32", reason="no limit on the size of files on Windows")
@pytest.mark.filterwarnings("ignore:.*damaged lines:RuntimeWarning")
def test_a_disk_that_fills_up_keeps_what_was_written(tmp_path):
    import resource

    size = write(tmp_path, "a").stat().st_size
    with Run(tmp_path).open(MANIFEST) as run:
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 9, limits[1]))  # half of a line fits
        try:
            with pytest.raises(RunError, match="File too large; 1 verdicts are saved: make room"):
                run.append([{"id": "b", "sample": 0}])
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    write(tmp_path, "c")
    assert ids(tmp_path) == ["a", "c"]


def test_one_process_at_a_time(tmp_path):
    code = "import sys; from vjudge.runs import Run; run = Run(sys.argv[1]).open({}); print(); sys.stdin.read()"
    command = [sys.executable, "-c", code, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == b"\n"
        with pytest.raises(RunError, match="written by another process"):
            Run(tmp_path).open({})
        holder.kill()
    with (
        Run(tmp_path).open({}),
        pytest.raises(RunError, match="another process"),
    ):  # the system let go
        Run(tmp_path).open({})
