"""Two processes on this machine's CPU over gloo: one training, exact resumption, counts over all, FSDP's steps."""

import json
import os
import subprocess
import sys
from pathlib import Path

import torch
import transformers
from packaging.version import Version
from PIL import Image
from pytest import approx, fixture, mark, raises, skip
from training_cases import (
    SMALL,
    at_step,
    die,
    entries_of,
    losses_of,
    rows_with_feedback,
    weights_of,
)

import vjudge as vj
from conftest import make_rows
from samples import lines
from vjudge.training import fine_tune, finetune

pytestmark = mark.filterwarnings("ignore:.*nothing was learned")
STEPS = SMALL | dict(steps=4, checkpoint_every=2, allow=["length", "scores"])
GRADED = STEPS | dict(evaluate_every=2)


def write_rows(folder, name, n):
    """Rows in a file, with an image file each."""
    rows = rows_with_feedback(n)
    for number, row in enumerate(rows):
        image = folder / f"{name}-{number}.jpg"
        Image.effect_noise((40, 36), 40 + number).convert("RGB").save(image)
        row |= {"images": [image.name], "instruction": f"{name}? {row['instruction']}"}
    lines(folder / f"{name}.jsonl", *rows)


def two_processes(judge, folder):
    """What each of two processes does."""
    rows, held = (vj.load_collection(folder / f"{name}.jsonl") for name in ("rows", "held"))
    fine_tune(judge, rows, out=folder / "whole", validation=held, **GRADED)
    with at_step(3, die), raises(KeyboardInterrupt):
        fine_tune(judge, rows, out=folder / "cut", validation=held, **GRADED)
    fine_tune(judge, rows, out=folder / "cut", validation=held, **GRADED)
    spread_on_cpu()
    with raises(Trained):
        fine_tune(judge, rows, out=folder / "fsdp", **STEPS)


class Trained(Exception):
    """Where a training under FSDP ends here."""


def spread_on_cpu():
    """FSDP without the GPU that accelerate and torch ask for: it trains, but can't gather weights to store."""
    from accelerate import Accelerator, PartialState
    from accelerate.utils import DistributedType
    from transformers.trainer_utils import SaveStrategy

    settings = """FSDP_VERSION=1 FSDP_SHARDING_STRATEGY=FULL_SHARD FSDP_USE_ORIG_PARAMS=true
        FSDP_STATE_DICT_TYPE=FULL_STATE_DICT FSDP_SYNC_MODULE_STATES=false
        FSDP_AUTO_WRAP_POLICY=TRANSFORMER_BASED_WRAP FSDP_CPU_RAM_EFFICIENT_LOADING=false
        FSDP_TRANSFORMER_CLS_TO_WRAP=LlamaDecoderLayer
        ACCELERATE_USE_CPU=true ACCELERATE_USE_FSDP=true"""
    os.environ |= dict(setting.split("=") for setting in settings.split())
    whole = finetune._arguments

    def on_cpu(*args, **options):
        arguments = whole(*args, **options)
        # The processes are up, and told otherwise now.
        assert arguments.process_index == int(os.environ["RANK"])
        arguments.use_cpu, arguments.save_strategy = False, SaveStrategy.NO
        PartialState._shared_state |= {
            "distributed_type": DistributedType.MULTI_GPU,
            "device": torch.device("cpu"),
        }
        return arguments

    def gather(*args, **options):
        raise Trained

    finetune._arguments = on_cpu
    Accelerator.get_state_dict = gather


@fixture(scope="module")
def two(random_judge, tmp_path_factory):
    """What two processes made that accelerate's launcher started with the configuration given for DDP."""
    if Version(transformers.__version__) < Version("5.20"):
        skip("older trainers resume on one CPU process alone: torch does not know their cpu:0")
    folder = tmp_path_factory.mktemp("two")
    write_rows(folder, "rows", 10)
    write_rows(folder, "held", 3)
    config = str(Path(vj.__file__).parent / "training/launch/ddp.yaml")
    launcher = f"accelerate.commands.launch --config_file {config} --num_processes 2"
    launcher += " --mixed_precision no --main_process_port 0"
    done = subprocess.run(
        [sys.executable, "-m", *launcher.split(), __file__, str(random_judge), str(folder)],
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-6000:]
    return folder


def graded(folder):
    return [entry for entry in entries_of(folder) if "parsed" in entry]


def distance(some, others):
    """How far two networks' weights lie apart."""
    squares = [(some[name].double() - others[name]).square().sum() for name in some]
    return float(sum(squares)) ** 0.5


def test_two_processes_are_one_training(two, random_judge, tmp_path):
    """The same losses, verdicts and weights as in one process, up to the order of sums in float32; cut off, the same.

    Adam multiplies a relative error of 1e-7 in a step's sum: losses agree to 1e-5, weights to a thousandth of what
    training changed. A wrong weight of a token or of a row changes both at the first digits. FSDP's shards are flat, so
    that what decays must not be read off them: losses would differ from the third on.
    """
    rows, held = (vj.load_collection(two / f"{name}.jsonl") for name in ("rows", "held"))
    fine_tune(random_judge, rows, out=tmp_path / "one", validation=held, **GRADED)
    for folder in ("whole", "fsdp"):
        assert losses_of(two / folder) == approx(losses_of(tmp_path / "one"), rel=1e-5)
    before, one, other = map(
        weights_of, (random_judge, tmp_path / "one/judge", two / "whole/judge")
    )
    assert distance(one, other) <= 1e-3 * distance(one, before)
    verdicts = [json.dumps(graded(folder)) for folder in (tmp_path / "one", two / "whole")]
    assert verdicts[0] == verdicts[1]
    assert [entry["step"] for entry in graded(two / "whole")] == [0, 2, 4]
    assert distance(weights_of(two / "cut/judge"), other) == 0
    assert json.dumps(entries_of(two / "cut")) == json.dumps(entries_of(two / "whole"))


def test_what_spread_weights_cannot_do_is_refused_with_another_way(
    random_judge, tmp_path, monkeypatch
):
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    for options in ({"validation": make_rows(5)}, {"lora": True}):
        with raises(ValueError, match="train adapters under DDP"):
            fine_tune(random_judge, make_rows(5), out=tmp_path / "out", **options, **STEPS)


if __name__ == "__main__":
    two_processes(Path(sys.argv[1]), Path(sys.argv[2]))
    # gloo's thread may still hold a tensor: dropping it while Python shuts down aborts one process in thirty
    # (pytorch/pytorch#190489), also behind `destroy_process_group`, as FSDP keeps its groups.
    os._exit(0)
