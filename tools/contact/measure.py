"""What a judge of real weights learned: `python tools/contact/measure.py WHAT JUDGE [JUDGE ...]`.

WHAT is one of

    judge     grades the five answers of held-out cases of Scenes, with pictures, with blanked and
              with swapped ones: correlation with the truth, share of readable verdicts, best of n
    adapters  LoRA and QLoRA side by side, a few steps each, from the folder of a base
    dpo       20 steps of DPO from the folder of a policy, on pairs of Scenes' best and worst answer
    curve     writes the logs of what train.py left in a folder to curve.csv beside this file
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import pandas as pd
from train import ADAPTERS, WORDING, described_first, judged

import vjudge as vj
from vjudge import preference
from vjudge.data import scenes
from vjudge.training import fine_tune

PLACES = ["shape", "colour", "size", "position", "presence"]  # what was trained on


def whole_cases(n: int, aspects: list[str]) -> Any:
    """The five answers of the first n cases of the test split about these aspects."""
    items = vj.load_collection("scenes", split="test")
    chosen: list[int] = []
    for first in range(0, len(items), 5):
        if scenes.ASPECT_OF[items[first]["criteria"]] in aspects and len(chosen) < 5 * n:
            chosen += range(first, first + 5)
    return items.select(chosen)


def measure(folder: Path, given: argparse.Namespace) -> None:
    judge = vj.load_judge(folder, device="cpu", template=WORDING if given.wording else None)
    items = whole_cases(given.n, given.aspects)
    changed = {"shown": items}
    if not given.only_shown:
        changed["blanked"] = vj.probes.blanked(items)
        changed["swapped"] = vj.probes.swapped(items)
    for what, shown in changed.items():
        run = judge.grade(shown, max_new_tokens=150, unread="missing", progress=False)
        aspect = [scenes.ASPECT_OF[criteria] for criteria in items["criteria"]]
        run = run.assign(aspect=aspect, case=[id.rpartition("-")[0] for id in run["id"]])
        table = vj.correlate(run["score"], run["gold"], groups=run["group"])
        found = table.loc["pearson", ["estimate", "low", "high", "n"]].round(3).to_dict()
        print(folder, what, found, f"read {run['score'].notna().mean():.3f}", flush=True)
        exact = (run["score"] == run["gold"]).groupby(run["aspect"]).mean().round(2)
        by = run.groupby("aspect")[["score", "gold"]].corr().iloc[0::2, 1].droplevel(1).round(2)
        print("  exact:", exact.to_dict(), " r:", by.to_dict(), flush=True)
        if what == "shown":
            rewards = pd.DataFrame({"id": run["case"], "true_score": run["gold"], "times": 1})
            rewards = rewards.assign(reward=run["expected_score"].fillna(run["score"]))
            rewards["group"] = run["group"]
            curve = preference.best_of_n(rewards, n_resamples=2_000)
            print(curve[["estimate", "low", "high", "n", "missing"]].round(2), flush=True)


def adapters(folder: Path, given: argparse.Namespace) -> None:
    items = described_first(judged("train", 8 * given.steps, PLACES))
    for name, bits in (("LoRA", None), ("QLoRA", "4bit")):
        losses: list[float] = []

        def note(entry: dict[str, Any], losses: list[float] = losses) -> None:
            losses.append(round(entry["loss"], 3))

        began = time.process_time()
        fine_tune(
            folder, items, out=Path(tempfile.mkdtemp()) / name, template=WORDING,
            recipe="chat-lora", lora=ADAPTERS, quantization=bits, lr=1e-3, batch_size=8,
            steps=given.steps, log_every=1, gradient_checkpointing=False, on_log=note,
            allow=("length", "scores"), device="cpu", precision="bfloat16", progress=False,
        )  # fmt: skip
        seconds = time.process_time() - began
        print(name, losses, f"{seconds:.0f} s of processor time", flush=True)


def dpo(folder: Path, given: argparse.Namespace) -> None:
    items = vj.load_collection("scenes", split="train")
    pairs = []
    for first in range(0, 5 * 4 * given.steps, 5):
        case = items.select(range(first, first + 5))
        by_score = {row["gold"]: row for row in case}
        row = {name: case[0][name] for name in ("id", "images", "instruction", "group")}
        row |= {"chosen": by_score[5.0]["response"], "rejected": by_score[1.0]["response"]}
        pairs.append(row)
    record = preference.train(
        folder, pairs, Path(tempfile.mkdtemp()) / "policy", lora={"r": 16, "lora_alpha": 32},
        dtype="bfloat16", learning_rate=2e-4, warmup_steps=2, per_device_train_batch_size=4,
        gradient_accumulation_steps=1,
    )  # fmt: skip
    log = pd.DataFrame(record["log"])
    names = ["loss", "rewards/margins", "rewards/accuracies"]
    print(log[names].iloc[[0, 4, 9, 14, -1]].round(3))
    print(record["steps"], "steps")


def curve(folder: Path, given: argparse.Namespace) -> None:
    logs = []
    for stage in ("describe", "judge"):
        log = pd.read_json(folder / stage / "training_log.jsonl", lines=True)
        # Where a run continued, its clock began anew.
        began = log["seconds"].shift(fill_value=0).where(log["seconds"].diff() < 0, 0).cumsum()
        log["seconds"] += began
        logs.append(log.assign(stage=stage, examples=given.batch_size * log["step"]))
    names = ["stage", "examples", "loss", "seconds"]
    table = pd.concat(logs)[names].assign(base="SmolLM2 and DINOv2")
    table.round(4).to_csv(Path(__file__).with_name("curve.csv"), index=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("what", choices=["judge", "adapters", "dpo", "curve"])
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--n", type=int, default=40, help="cases")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--aspects", nargs="+", default=PLACES)
    parser.add_argument("--only-shown", action="store_true", help="no other pictures")
    parser.add_argument("--batch-size", type=int, default=8, help="of the logged training")
    parser.add_argument("--wording", action="store_true", help="ask in the wording of train.py")
    given = parser.parse_args()
    for folder in given.folders:
        ways = {"judge": measure, "adapters": adapters, "dpo": dpo, "curve": curve}
        ways[given.what](folder, given)


if __name__ == "__main__":
    main()
