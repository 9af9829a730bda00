"""The Ray engine on two workers with the embedded judge: the table that one process gives, also
over a worker's death.

One small Ray serves the whole file: no dashboard, no usage report, 100 MB of shared memory, its
files in a folder of its own (short, because a socket's path has a limit).
"""

import os
import secrets
import shutil
import signal
import tempfile
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pandas as pd
import pytest

from vjudge.data import load_collection
from vjudge.engines import ray as engine_module
from vjudge.engines.ray import RayEngine
from vjudge.judging.loading import load_judge
from vjudge.judging.runs import Run

ray = pytest.importorskip("ray", reason="Ray is not installed")


@pytest.mark.parametrize("failures", [0, 2, 9])
def test_a_node_that_starts_slowly_is_waited_for(failures, monkeypatch, capsys):
    slow = Exception("The current node timed out during startup.")
    init = Mock(side_effect=[slow] * failures + [None])
    monkeypatch.setattr(engine_module, "PAUSE", 0)
    for name, stand_in in (("init", init), ("shutdown", Mock()), ("is_initialized", lambda: False)):
        monkeypatch.setattr(ray, name, stand_in)
    if failures == 9:
        with pytest.raises(RuntimeError, match="in 4 attempts .*timed out.*ray start --head"):
            engine_module.start_ray()
        assert init.call_count == 4
    else:
        assert engine_module.start_ray() is ray
        assert capsys.readouterr().err.count("Ray's node has not started") == failures


@pytest.fixture(scope="module")
def cluster():
    folder = Path(tempfile.mkdtemp(prefix="vj"))
    (folder / "token").write_text(secrets.token_hex(32))
    before = dict(os.environ)
    os.environ |= {
        "RAY_AUTH_TOKEN_PATH": str(folder / "token"),  # instead of one in the home folder
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_enable_worker_prestart": "0",
        "RAY_prestart_worker_first_driver": "0",
    }
    try:
        engine_module.start_ray(
            num_cpus=2,
            object_store_memory=100 << 20,
            _temp_dir=str(folder),
            log_to_driver=False,
        )
        yield
    finally:
        ray.shutdown()
        os.environ.clear()
        os.environ.update(before)
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def judges(cluster):
    """The embedded judge on two workers, and in this process."""
    return load_judge("tiny", engine="ray", workers=2), load_judge("tiny")


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(engine_module, "BLOCK_ROWS", 5)


@pytest.fixture(scope="module")
def scenes():
    return load_collection("scenes", split="test", limit=20)


def assert_same(one, other):
    """Equal but for the time a row took, and a probability's last bits, which a batch decides."""
    apart = ["seconds", "probabilities", "expected_score", "probability_mass"]
    pd.testing.assert_frame_equal(
        one.drop(columns=apart), other.drop(columns=apart), check_exact=True
    )
    np.testing.assert_allclose(one[apart[2:]], other[apart[2:]], atol=1e-5)


def test_a_worker_killed_in_mid_run_loses_and_doubles_nothing(
    judges, scenes, tmp_path, monkeypatch
):
    spread, alone = judges
    workers = spread.engine.workers
    append = Run.append
    before = [_process(worker) for worker in workers]
    alive = list(before)

    def kill(run, verdicts):
        append(run, verdicts)
        if alive:  # the first block is on the disk, every worker has another one under way
            os.kill(alive[0], signal.SIGKILL)
            alive.clear()

    monkeypatch.setattr(Run, "append", kill)
    table = spread.grade(scenes, out=tmp_path / "run")
    assert_same(table, alone.grade(scenes))
    lines = Run(tmp_path / "run").verdicts()
    assert len(lines) == 20 and {line["id"] for line in lines} == set(scenes["id"])
    after = [_process(worker) for worker in workers]
    assert after[0] != before[0] and after[1] == before[1]


def _process(worker):
    return ray.get(worker.__ray_call__.remote(lambda actor: os.getpid()))


def test_score_mode_draws_and_a_failure(judges, scenes):
    spread, alone = judges
    rows = [dict(scenes[n]) for n in range(7)]
    rows[2] = {**rows[2], "response": "much too long " * 600}
    options = {"samples": 2, "temperature": 0.8, "seed": 3}
    for call in ({"mode": "score"}, options):
        table = spread.grade(rows, **call)
        assert_same(table, alone.grade(rows, **call))
        assert set(table["id"][table["failure"].notna()]) == {rows[2]["id"]}


def test_what_a_cluster_cannot_do_is_said(judges):
    # The other engine's workers hold the two CPUs: a third would wait for ever.
    for workers in (None, 1):
        with pytest.raises(ValueError, match="say how many; .* Ray has 0 CPUs and 0 GPUs free"):
            RayEngine("tiny", load=load_judge, workers=workers)
    worker = judges[0].engine.workers[0]
    with pytest.raises(ValueError, match="no judge 'no-such-judge'"):  # as the worker raises it
        ray.get(worker.__ray_call__.remote(lambda worker: load_judge("no-such-judge")))
