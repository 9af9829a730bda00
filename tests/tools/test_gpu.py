"""`make gpu` on small weights, so that it is right where there is a GPU; and how it keeps its time."""

import os
import time
from importlib.util import find_spec

import pandas as pd
import pytest

from gpu.__main__ import main, watch


@pytest.mark.filterwarnings("ignore")
def test_every_part_is_measured_on_small_weights(tmp_path, capsys):
    from gpu.parts import PARTS

    main(["--small", "--out", str(tmp_path)])
    table = pd.read_csv(tmp_path / "gpu.csv")
    assert list(dict.fromkeys(table["part"])) == list(PARTS)
    measured = table.set_index(["part", "what"])["measured"]
    missing = {
        name for name, part in PARTS.items() if not all(map(find_spec, part.needs))
    }  # as on a GPU: said, and nothing else
    assert set(table.loc[table["what"] == "not run", "part"]) == missing
    assert not (table["what"] == "failed").any(), table.to_string()
    assert measured["out of memory", "rows at once"] == "4 2 2 4 2 2"
    for part in ("out of memory", "plain attention"):
        assert measured[part, "texts equal"] == "4 of 4"
    assert measured["rates and memory", "texts equal to the loop's"] == "2 of 2"
    weights = [
        float(measured["rates and memory", f"weights: GiB {how}"]) for how in ("planned", "held")
    ]
    assert weights[0] == pytest.approx(weights[1], rel=0.1)
    for part in {"LoRA", "DPO", "GRPO"} - missing:
        assert len(measured[part, "losses"].split()) == 2
    assert (tmp_path / "gpu.md").read_text() in capsys.readouterr().out + "\n"


def child(names, folder, pipe):
    for name in names:
        pipe.send((name, "begun", 1))
        if name == "slow":
            time.sleep(60)
        if name == "dies":
            os._exit(3)
        pipe.send((name, "seconds", 0.0))


def test_a_part_that_hangs_or_dies_leaves_the_others_their_time(tmp_path):
    lines = watch(child, {"quick": 60, "dies": 60, "after": 60, "slow": 0.5}, tmp_path)
    assert [line[:2] for line in lines] == [
        ("quick", "begun"),
        ("quick", "seconds"),
        ("dies", "begun"),
        ("dies", "failed"),
        ("after", "begun"),
        ("after", "seconds"),
        ("slow", "begun"),
        ("slow", "failed"),
    ]
    assert [line[2] for line in lines if line[1] == "failed"] == [
        "the process ended",
        "stopped after 0.5 s, or at the end",
    ]
    assert watch(child, {"quick": 60}, tmp_path, total=0.0) == [
        ("quick", "not run", "0 s were over")
    ]
