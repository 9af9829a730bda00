"""A run keeps what it was given, through torn lines, full disks and second writers."""

import math
import subprocess
import sys

import numpy as np
import pytest

from vjudge.judging.runs import Run, RunError

pytestmark = pytest.mark.filterwarnings("ignore:.*damaged lines:RuntimeWarning")
MANIFEST = {
    "judge": "tiny",
    "decoding": {"seed": 0, "temperature": 0.0},
    "note": {"started": "today"},
}


def write(folder, *ids):
    """Add verdicts to a run; gives their file."""
    with Run(folder).open(MANIFEST) as run:
        run.append([{"asked": id, "score": 3.0} for id in ids])
    return folder / "verdicts.jsonl"


def ids(folder):
    return [verdict["asked"] for verdict in Run(folder).verdicts()]


def test_values_come_back_exactly_and_a_run_continues(tmp_path):
    text = 'line\nbreak \u2028 "quoted" \udce9 ☃\0'
    values = {"score": math.nan, "numpy": np.float64(1 / 3), "shares": {1: 5e-324}, "raw": text}
    for sample in (0, 1):
        with Run(tmp_path / "run").open({**MANIFEST, "note": {"started": sample}}) as run:
            assert list(run.done) == ["0"][:sample]
            run.append([{"asked": str(sample), **values}])
    back, _ = Run(tmp_path / "run").verdicts()
    expected = values | {"score": None, "numpy": 1 / 3, "shares": {"1": 5e-324}}
    assert back == {"asked": "0", **expected}
    assert Run(tmp_path / "run").manifest["note"] == {"started": 1}


def test_a_torn_end_is_passed_over_wherever_it_is_torn(tmp_path):
    """Cut the file at every byte of its end, as a kill may: whole lines stay, the torn one goes."""
    file = write(tmp_path, "é1", "é2")
    whole = file.read_bytes()
    first = whole.index(b"\n") + 1
    for size in (0, 1, *range(first - 1, len(whole) - 1)):
        file.write_bytes(whole[:size])
        expected = [] if size < first - 1 else ["é1"]
        assert ids(tmp_path) == expected
        write(tmp_path, "next")
        assert ids(tmp_path) == [*expected, "next"]


def test_damaged_lines_are_counted_and_stay_where_they_are(tmp_path):
    file = write(tmp_path, "a", "b", "c")
    lines = file.read_bytes().splitlines(keepends=True)
    damaged = lines[0] + lines[1].replace(b"3.0", b"4.0") + lines[2] + b"\0" * 100
    file.write_bytes(damaged)
    with pytest.warns(RuntimeWarning, match="2 damaged lines.*their verdicts are computed again"):
        write(tmp_path, "b")
    assert ids(tmp_path) == ["a", "c", "b"] and file.read_bytes().startswith(damaged + b"\n")


def test_another_call_or_folder_is_refused_and_each_difference_named(tmp_path):
    Run(tmp_path / "run").open(MANIFEST).close()
    with pytest.raises(RunError, match="another folder") as refusal:
        Run(tmp_path / "run").open({**MANIFEST, "judge": "other", "extra": [1, 2]})
    assert "in judge: 'tiny' -> 'other'; extra: None -> [1, 2]. " in str(refusal.value)
    Run(tmp_path / "run").open(MANIFEST).close()  # the refusal left the run usable
    (tmp_path / "thesis.tex").write_text("precious")
    (tmp_path / "manifest.json").write_text("[" * 10**6)
    with pytest.raises(RunError, match="can't be read"):
        Run(tmp_path).open(MANIFEST)
    with pytest.raises(RunError, match="can't be written"):
        Run(tmp_path / "thesis.tex" / "run").open(MANIFEST)


@pytest.mark.skipif(sys.platform == "win32", reason="no limit on the size of files on Windows")
def test_a_disk_that_fills_up_keeps_what_was_written(tmp_path):
    import resource

    size = write(tmp_path, "a").stat().st_size
    with Run(tmp_path).open(MANIFEST) as run:
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 9, limits[1]))  # half of a line fits
        try:
            with pytest.raises(RunError, match="File too large; 1 verdicts are saved: make room"):
                run.append([{"asked": "b"}])
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    write(tmp_path, "c")
    assert ids(tmp_path) == ["a", "c"]


def test_one_process_at_a_time(tmp_path):
    code = "import sys; from vjudge.judging.runs import Run; run = Run(sys.argv[1]).open({}); print(); sys.stdin.read()"
    command = [sys.executable, "-c", code, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout.readline() == b"\n"
        with pytest.raises(RunError, match="another process that writes here"):
            Run(tmp_path).open({})
        holder.kill()
    with Run(tmp_path).open({}):  # the system let go
        pass
