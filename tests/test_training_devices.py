"""Fine-tuning by a file and in several processes: the same training as in one, and what stops one stops all.

Run as a script by accelerate's launcher, this file is one of the two processes of the tests below.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from conftest import make_rows
from packaging.version import Version
from PIL import Image
from safetensors.torch import load_file
from transformers import TrainerCallback

import vjudge as vj
from vjudge.data import CollectionError
from vjudge.judge import load_judge
from vjudge.training import fine_tune
from vjudge.training.__main__ import collection as collection_of
from vjudge.training.__main__ import read_config
from vjudge.training.batching import Collator, States
from vjudge.training.examples import Coder
from vjudge.training.network import Network
from vjudge.training.watch import save_weights

BROKEN = 5  # the row whose image is cut off in the middle
TINY = dict(base="tiny", recipe="scenes", shape="score-first", steps=4, batch_size=8, rows_at_once=2, warmup=2)
SMALL: dict[str, Any] = dict(recipe="scenes", lr=3e-3, batch_size=4, warmup=2, steps=6, checkpoint_every=2)
QUIET: dict[str, Any] = dict(log_every=1, progress=False, device="cpu")


def collection(folder: Path, n: int = 16, *, broken: bool = False) -> Path:
    """Rows in a file, with an image file each."""
    rows = make_rows(n)
    for number, row in enumerate(rows):
        file = folder / f"{number}.jpg"
        Image.effect_noise((40, 36), 40 + number).convert("RGB").save(file)
        if broken and number == BROKEN:  # the header is sound, the pixels are not
            file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
        row |= {"images": [file.name], "gold": float(number % 5 + 1), "feedback": f"It is answer {number % 7}."}
    path = folder / ("broken.jsonl" if broken else "rows.jsonl")
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def entries_of(folder: Path) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in (folder / "training_log.jsonl").read_text().splitlines()]
    return [{key: value for key, value in entry.items() if key != "seconds"} for entry in found]


def weights_of(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "judge/model.safetensors")


def same(one: Path, two: Path, base: Path, *, step: int | None = None) -> None:
    """Two trainings of a base are one up to the order of sums in float32.

    A step's gradient is a sum over rows, in another order when the rows stand in two processes: a relative error of
    some 1e-7, which a few steps of Adam multiply. So losses agree to 1e-5, and weights differ by at most a thousandth
    of what training changed. A wrong weight of a token or of a row changes both at the first digits. With `step`, the
    weights are that checkpoint's: those of the judge are the best ones, which may be the base's own.
    """
    curves = [[entry["loss"] for entry in entries_of(folder) if "loss" in entry] for folder in (one, two)]
    assert len(curves[0]) >= 3 and curves[0] == pytest.approx(curves[1], rel=1e-5)
    if step is None:
        before, first, second = load_file(base / "model.safetensors"), weights_of(one), weights_of(two)
    else:
        network: Any = load_judge(base, device="cpu").engine
        before = {f"model.{name}": weight for name, weight in network.model.model.state_dict().items()}
        first, second = (
            load_file(f"{folder}/checkpoints/checkpoint-{step}/model.safetensors") for folder in (one, two)
        )
    changed = sum(float((first[name].double() - before[name]).square().sum()) for name in first) ** 0.5
    differ = sum(float((first[name].double() - second[name]).square().sum()) for name in first) ** 0.5
    print(f"weights differ by {differ / changed:.1e} of what changed")
    assert 0 < changed and differ < 1e-3 * changed, (differ, changed)


# The two processes


class Kill(TrainerCallback):
    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step == 3:
            raise KeyboardInterrupt


class Spoil(TrainerCallback):
    """No number any more, in the second process alone."""

    def on_step_begin(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        if state.global_step == 5 and os.environ["RANK"] == "1":
            next(weight for weight in model.parameters() if weight.requires_grad).data.fill_(float("nan"))


def error_of(call: Callable[[], Any]) -> str:
    try:
        call()
    except (KeyboardInterrupt, FloatingPointError, CollectionError) as error:
        return f"{type(error).__name__}: {error}"
    return ""


def two_processes(judge: Path, folder: Path) -> None:
    """What each of two processes does; what was raised goes into a file of its own."""
    rows, broken = vj.load_collection(folder / "rows.jsonl"), vj.load_collection(folder / "broken.jsonl")
    options = SMALL | QUIET
    graded = options | dict(evaluate_every=3, validation=vj.load_collection(folder / "held_out.jsonl"))
    said: dict[str, str] = {}
    fine_tune(judge, rows, out=folder / "whole", **graded)
    said["cut"] = error_of(lambda: fine_tune(judge, rows, out=folder / "cut", callbacks=[Kill()], **graded))
    fine_tune(judge, rows, out=folder / "cut", **graded)
    fine_tune(judge, broken, out=folder / "broken", **options)
    said["strict"] = error_of(lambda: fine_tune(judge, broken, out=folder / "strict", max_bad_images=0, **options))
    said["spoilt"] = error_of(lambda: fine_tune(judge, rows, out=folder / "spoilt", callbacks=[Spoil()], **graded))
    fine_tune(judge, rows, out=folder / "spoilt", **graded)
    (folder / f"said-{os.environ['RANK']}.json").write_text(json.dumps(said))
    spread_on_cpu()
    with pytest.raises(Trained):
        fine_tune(judge, rows, out=folder / "fsdp", **options)


class Trained(Exception):
    """Where a training under FSDP ends here."""


def spread_on_cpu() -> None:
    """FSDP without a GPU: what accelerate 1.15 and torch 2.13 ask of one is stood in for.

    accelerate makes FSDP of processes on GPUs alone, and gives a CPU a number that torch refuses. Full weights can't be
    gathered: torch reads memory there that it freed before, and the process dies. So this trains, and stores nothing.
    """
    from accelerate import Accelerator, PartialState
    from accelerate.utils import DistributedType
    from transformers.trainer_utils import SaveStrategy

    from vjudge.training import tuning

    os.environ |= {
        "ACCELERATE_USE_CPU": "true",
        "ACCELERATE_USE_FSDP": "true",
        "FSDP_VERSION": "1",
        "FSDP_SHARDING_STRATEGY": "FULL_SHARD",
        "FSDP_AUTO_WRAP_POLICY": "TRANSFORMER_BASED_WRAP",
        "FSDP_TRANSFORMER_CLS_TO_WRAP": "LlamaDecoderLayer",
        "FSDP_STATE_DICT_TYPE": "FULL_STATE_DICT",
        "FSDP_USE_ORIG_PARAMS": "true",
        "FSDP_SYNC_MODULE_STATES": "false",
        "FSDP_CPU_RAM_EFFICIENT_LOADING": "false",
    }
    arguments_of = tuning.arguments_of

    def on_cpu(*args: Any, **options: Any) -> Any:
        arguments = arguments_of(*args, **options)
        assert arguments.process_index == int(os.environ["RANK"])  # the processes are up, and told otherwise now
        arguments.use_cpu, arguments.save_strategy = False, SaveStrategy.NO
        PartialState._shared_state |= {"distributed_type": DistributedType.MULTI_GPU, "device": torch.device("cpu")}
        return arguments

    def gather(*args: Any, **options: Any) -> Any:
        raise Trained

    tuning.arguments_of = on_cpu
    Accelerator.get_state_dict = gather


def launch(*arguments: str | Path, with_accelerate: bool = False) -> None:
    """Two processes on this machine's CPU, over gloo; by accelerate's launcher with the configuration given for DDP."""
    how = ["torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    if with_accelerate:
        file = Path(vj.__file__).parent / "training/launch/ddp.yaml"
        how = ["accelerate.commands.launch", "--config_file", str(file), "--num_processes", "2"]
        how += ["--mixed_precision", "no", "--main_process_port", "0"]
    root = Path(vj.__file__).parents[1]
    path = os.pathsep.join([str(root), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, "-m", *how, *map(str, arguments)],
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-6000:]


# Several processes


def test_two_processes_by_a_file_are_one_training(tmp_path):
    """Scenes on the embedded judge: the same losses, verdicts and weights, every token with the same weight."""
    import yaml

    named = {"name": "scenes", "split": "train", "limit": 50}
    held_out = {"name": "scenes", "split": "test", "limit": 9}
    more = {"evaluate_every": 2, "checkpoint_every": 4, "allow": ["length", "scores"]}
    file = tmp_path / "judge.yaml"
    out = {"items": named, "validation": held_out, "out": str(tmp_path / "two")}
    file.write_text(yaml.safe_dump(TINY | QUIET | more | out))
    launch("-m", "vjudge.training", file)
    loaded = {"items": collection_of(named), "validation": collection_of(held_out)}
    fine_tune(out=tmp_path / "one", **TINY | QUIET | more | loaded)
    same(tmp_path / "one", tmp_path / "two", Path(vj.__file__).parent / "assets/tiny", step=4)
    graded = [[entry for entry in entries_of(tmp_path / name) if "parsed" in entry] for name in ("one", "two")]
    assert json.dumps(graded[0]) == json.dumps(graded[1]) and [entry["step"] for entry in graded[0]] == [0, 2, 4]
    steps = [entry["step"] for entry in entries_of(tmp_path / "two") if "loss" in entry]
    assert steps == [1, 2, 3, 4], "the main process alone writes the log"


@pytest.fixture(scope="module")
def two(random_judge, tmp_path_factory) -> Path:
    """What two processes made; see `two_processes`."""
    if Version(transformers.__version__) < Version("5.20"):
        pytest.skip("older trainers resume on one CPU process alone: torch does not know their cpu:0")
    folder = tmp_path_factory.mktemp("two")
    rows = collection(folder)
    (folder / "other").mkdir()
    collection(folder / "other", broken=True)
    lines = (folder / "other/broken.jsonl").read_text().replace('"images": ["', '"images": ["other/')
    (folder / "broken.jsonl").write_text(lines)
    held_out = [json.loads(line) for line in rows.read_text().splitlines()[:5]]
    for number, row in enumerate(held_out):
        Image.new("RGB", (30, 30), (number, 0, 0)).save(folder / f"held-{number}.png")
        row |= {"images": [f"held-{number}.png"], "instruction": "Another?"}
    (folder / "held_out.jsonl").write_text("".join(json.dumps(row) + "\n" for row in held_out))
    launch(Path(__file__), random_judge, folder, with_accelerate=True)
    return folder


def test_two_processes_resume_to_the_same_weights_and_log(two):
    said = [json.loads((two / f"said-{rank}.json").read_text()) for rank in (0, 1)]
    assert all(each["cut"].startswith("KeyboardInterrupt") for each in said)
    whole = weights_of(two / "whole")
    assert all(torch.equal(weight, whole[name]) for name, weight in weights_of(two / "cut").items())
    assert json.dumps(entries_of(two / "cut")) == json.dumps(entries_of(two / "whole"))


def test_images_that_fail_are_counted_over_all_processes(two):
    left_out = [entry["left_out"] for entry in entries_of(two / "broken") if "left_out" in entry]
    assert [problem["id"] for problem in left_out] == [f"item-{BROKEN}"]
    assert entries_of(two / "broken")[-1]["skipped"] == 1
    assert "image failed: 1" in (two / "broken/judge/README.md").read_text().replace("\n", " ")
    for rank in (0, 1):  # whichever of them met it
        said = json.loads((two / f"said-{rank}.json").read_text())["strict"]
        assert said.startswith("CollectionError") and f"{BROKEN}.jpg" in said


def test_a_loss_that_is_no_number_in_one_process_stops_both(two):
    for rank in (0, 1):
        said = json.loads((two / f"said-{rank}.json").read_text())["spoilt"]
        assert "step 6: the loss is nan; the last good checkpoint is checkpoint-4" in said
    whole = weights_of(two / "whole")
    assert all(torch.equal(weight, whole[name]) for name, weight in weights_of(two / "spoilt").items())


def test_weights_that_are_spread_take_the_same_steps(two, random_judge, tmp_path):
    """FSDP's shards are flat, so that what decays must not be read off them: losses would differ from the third on."""
    fine_tune(random_judge, vj.load_collection(two / "rows.jsonl"), out=tmp_path / "one", **SMALL | QUIET)
    curves = [[entry["loss"] for entry in entries_of(folder)] for folder in (tmp_path / "one", two / "fsdp")]
    assert len(curves[0]) == 6 and curves[0] == pytest.approx(curves[1], rel=1e-5)


def test_checkpoints_name_weights_as_the_model_does(tmp_path):
    """Without what FSDP puts before the name of what it wraps; from the whole weights, not from shards."""
    wrapped = torch.nn.ModuleDict({"layer": torch.nn.ModuleDict({"_fsdp_wrapped_module": torch.nn.Linear(2, 3)})})
    whole = {"layer.weight": torch.ones(3, 2), "layer.bias": torch.zeros(3)}
    save_weights(wrapped, tmp_path / "weights.safetensors", {}, whole)
    assert {name: tuple(w.shape) for name, w in load_file(tmp_path / "weights.safetensors").items()} == {
        "layer.weight": (3, 2),
        "layer.bias": (3,),
    }


def test_workers_name_the_rows_they_leave_out(random_judge, tmp_path):
    rows = vj.load_collection(collection(tmp_path, broken=True))
    fine_tune(random_judge, rows, out=tmp_path / "out", workers=1, **SMALL | QUIET)
    entries = entries_of(tmp_path / "out")
    assert [entry["left_out"]["index"] for entry in entries if "left_out" in entry] == [BROKEN]
    assert entries[-1]["skipped"] == 1


@pytest.mark.parametrize("how", ["FSDP", "ZeRO-3", "ZeRO-3 in a file"])
def test_what_spread_weights_cannot_do_is_refused_with_another_way(how, random_judge, tmp_path, monkeypatch):
    rows = make_rows(5)
    if how == "FSDP":
        monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    else:
        monkeypatch.setenv("ACCELERATE_USE_DEEPSPEED", "true")
        monkeypatch.setenv("ACCELERATE_DEEPSPEED_ZERO_STAGE", "3")
    if how.endswith("file"):
        (tmp_path / "zero.json").write_text('{"zero_optimization": {"stage": 3}}')
        monkeypatch.delenv("ACCELERATE_DEEPSPEED_ZERO_STAGE")
        monkeypatch.setenv("ACCELERATE_DEEPSPEED_CONFIG_FILE", str(tmp_path / "zero.json"))
    with pytest.raises(ValueError, match=f"{how[:6]}.*grade the finished judge"):
        fine_tune(random_judge, rows, out=tmp_path / "out", validation=rows, **SMALL | QUIET)
    with pytest.raises(ValueError, match=f"{how[:6]}.*train adapters under DDP"):
        fine_tune(random_judge, rows, out=tmp_path / "out", lora=True, **SMALL | QUIET)
    assert not (tmp_path / "out").exists()


def test_images_that_rows_share_are_encoded_once_a_batch(random_judge, tmp_path):
    """And a row that is left out takes none of them along."""
    judge = load_judge(random_judge, template="prometheus-vision", device="cpu")
    model, states = judge.engine.model, States(1 << 20)
    coder = Coder(model, judge.template)
    rows = [vj.data.rows_of(vj.load_collection(collection(tmp_path, broken=True)))[n] for n in range(7)]
    rows[BROKEN]["images"] = [rows[0]["images"][0], rows[BROKEN]["images"][0]]  # a sound one, then the broken one
    shown = [rows[BROKEN], rows[0], rows[1], rows[0]]
    batch = Collator(coder, states=states)([coder(row, index) for index, row in enumerate(shown)])
    assert [problem.index for problem in batch.pop("faults")] == [0]
    assert ["tiles" in picture for picture in batch["pictures"]] == [True, True, False]
    with torch.no_grad():
        together = float(Network(model, frozen=True, states=states)(**batch)["loss"])
        again = Collator(coder)([coder(row) for row in shown[1:]])
        assert states.encoded == 2
        for picture, copied in zip(again["pictures"], (0, 1, 0), strict=True):  # each by itself
            picture |= {"key": str(id(picture)), "tiles": again["pictures"][copied]["tiles"]}
        assert float(Network(model)(**again)["loss"]) == together


# Configurations


def test_a_configuration_says_what_is_wrong_with_it(tmp_path):
    file = tmp_path / "judge.yaml"
    file.write_text("base: tiny\nitems: scenes\nout: x\nlearning_rate: 1\n")
    with pytest.raises(ValueError, match="learning_rate is no setting"):
        read_config(file)
    file.write_text("base: tiny\nlr: 1\n")
    with pytest.raises(ValueError, match="items, out must be given"):
        read_config(file)
    file.write_text("- tiny\n")
    with pytest.raises(ValueError, match="no settings"):
        read_config(file)


@pytest.mark.parametrize("name", ["ddp", "fsdp", "deepspeed"])
def test_the_launch_configurations_are_accelerates(name):
    from accelerate.commands.config.config_args import load_config_from_file

    file = Path(vj.__file__).parent / "training/launch" / f"{name}.yaml"
    config = load_config_from_file(str(file))
    assert config.num_processes == 8
    assert str(config.distributed_type).rpartition(".")[2] in ("MULTI_GPU", "FSDP", "DEEPSPEED")


if __name__ == "__main__":
    two_processes(Path(sys.argv[1]), Path(sys.argv[2]))
