"""`make gpu` on small weights, so that it is right where there is a GPU; and how it keeps its time."""

import time
from importlib.util import find_spec
from types import SimpleNamespace

import pandas as pd
import pytest

from gpu.__main__ import main, run


@pytest.mark.filterwarnings("ignore")
def test_every_part_is_measured_on_small_weights(tmp_path, capsys):
    from gpu.parts import PARTS

    main(["--small", "--out", str(tmp_path)])
    table = pd.read_csv(tmp_path / "gpu.csv")
    assert list(dict.fromkeys(table["part"])) == list(PARTS)
    missing = {name for name, part in PARTS.items() if not all(map(find_spec, part.needs))}
    assert set(table.loc[table["what"] == "not run", "part"]) == missing
    assert not (table["what"] == "failed").any(), table.to_string()
    measured = table.set_index(["part", "what"])["measured"]
    assert measured["out of memory", "rows at once"] == "4 2 2"
    assert float(measured["out of memory", "expected scores apart at most"]) == 0
    assert measured["plain attention", "texts equal"] == "4 of 4"
    assert measured["rates and memory", "texts equal to the loop's"] == "4 of 4"
    assert float(measured["rates and memory", "weights: held / planned"]) == pytest.approx(
        1, abs=0.1
    )
    for part in ("LoRA", "DPO", "GRPO"):
        assert part in missing or len(measured[part, "losses"].split()) == 2
    assert (tmp_path / "gpu.md").read_text() in capsys.readouterr().out


def hangs(_):
    yield "begun", 1
    time.sleep(60)


def breaks(_):
    yield "begun", 1
    raise RuntimeError("CUDA error | of a kernel")


def test_a_part_that_hangs_or_fails_is_a_line_and_the_others_are_measured():
    part = SimpleNamespace(seconds=60, needs=(), run=lambda _: iter([("value", 2.5)]))
    parts = {
        "breaks": SimpleNamespace(seconds=60, needs=(), run=breaks),
        "hangs": SimpleNamespace(seconds=0.1, needs=(), run=hangs),
        "lacks": SimpleNamespace(seconds=60, needs=("no_such_package",), run=breaks),
        "after": part,
    }
    lines = [line for line in run(parts, None) if line[1] != "seconds"]
    assert lines == [
        ("breaks", "begun", 1),
        ("breaks", "failed", "RuntimeError: CUDA error | of a kernel"),
        ("hangs", "begun", 1),
        ("hangs", "failed", "TimeoutError: stopped after 0.1 s"),
        ("lacks", "not run", "no_such_package not installed"),
        ("after", "value", 2.5),
    ]
    parts = {"hangs": SimpleNamespace(seconds=60, needs=(), run=hangs), "after": part}
    lines = [line[:2] for line in run(parts, None, budget=0.1)]
    assert lines == [
        ("hangs", "begun"),
        ("hangs", "failed"),
        ("hangs", "seconds"),
        ("after", "not run"),
    ]
