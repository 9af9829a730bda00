"""A judge out of real pretrained weights: `python tools/contact/train.py BASE OUT`.

BASE is a LLaVA whose projector is random (SmolLM2-135M behind DINOv2-small). Three stages:

1. words: the tower and the projector are fitted by least squares, so that each patch of a cell
   becomes the sum of the embeddings of what stands there and where ("large black heart top left").
   This needs no decoder, which takes most of the time of a step.
2. describe: `vj.fine_tune` on descriptions of all nine cells; the projector and adapters learn.
3. judge: the same on Scenes' feedback and scores in a short wording; the feedback says what stands
   where before it checks the response's claims against that.

Pictures are 84 pixels wide, four patches a cell. The same command continues where it was cut off.
`--blind` leaves the first two stages and all pictures out.
"""

from __future__ import annotations

import argparse
import json
import shutil
import time
from pathlib import Path
from typing import Any

import torch
from transformers import AutoProcessor

import vjudge as vj
from vjudge import models
from vjudge.data import scenes
from vjudge.prompts import MESSAGES, Template
from vjudge.training import fine_tune

SIDE = 84  # pixels, six patches of 14
ADAPTERS = {"r": 32, "lora_alpha": 64, "lora_dropout": 0.0}
BATCH = 16  # pictures of a step of the first stage
BODY = (
    "Question: {instruction}\nAnswer: {response}\nCriterion: {criteria}\nCheck the answer against"
    " the picture, then score it from {lowest} to {highest}, ending in Final Score: {example}"
)
WORDING = Template(
    "contact", "ours", MESSAGES, BODY, scale=(1, 5), marker="Final Score:", format="final-score"
)


def smaller_pictures(base: Path, out: Path) -> None:
    """Copy the base with an image processor that neither cuts nor keeps more than SIDE pixels."""
    shutil.copytree(base, out)
    for name in ("preprocessor_config.json", "processor_config.json"):
        path = out / name
        if not path.is_file():
            continue
        config = json.loads(path.read_text())
        images = config.get("image_processor", config)
        if "crop_size" in images:
            images["size"] = {"shortest_edge": SIDE}
            images["crop_size"] = {"height": SIDE, "width": SIDE}
            path.write_text(json.dumps(config, indent=2))


def cells(scene: scenes.Scene) -> list[str]:
    """What stands at each of the nine places, in order."""
    said = []
    for place in scenes.PLACES:
        thing = scene.at(place)
        said.append(f"{thing.size} {thing.colour} {thing.shape}" if thing else "empty")
    return said


def fit_words(base: Path, out: Path, *, steps: int, seed: int, precision: str) -> Path:
    """Fit the tower and the projector to sums of words' embeddings; returns the new base."""
    if out.is_dir():
        return out
    small = out.with_name("small")
    shutil.rmtree(small, ignore_errors=True)
    smaller_pictures(base, small)
    torch.manual_seed(seed)
    judge = models.load(small, device="cpu", dtype=torch.float32)
    network: Any = judge.model
    images = AutoProcessor.from_pretrained(small).image_processor
    embeddings = network.get_input_embeddings().weight.detach()

    def embedded(words: str) -> torch.Tensor:
        text = " " + words.replace("-", " ")
        ids = judge.tokenizer(text, add_special_tokens=False).input_ids
        return embeddings[ids].sum(0)

    tower = network.model.vision_tower
    projector = network.model.multi_modal_projector
    network.requires_grad_(False)
    groups = []
    for part, rate in ((tower, 1.5e-4), (projector, 2e-3)):
        part.requires_grad_(True)
        groups.append({"params": list(part.parameters()), "lr": rate})
    optimizer = torch.optim.AdamW(groups, weight_decay=0.01)
    rates = [group["lr"] for group in groups]
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, rates, total_steps=steps, pct_start=0.06
    )
    cell_of = torch.arange(9).view(3, 1, 3, 1).expand(3, 2, 3, 2).flatten()
    began = time.monotonic()
    with out.with_name("words.jsonl").open("w") as log:
        for step in range(1, steps + 1):
            drawn = []
            for number in range(BATCH):
                drawn.append(scenes.sample("train", 11 + seed, step * BATCH + number))
            rows = []
            for scene in drawn:
                said = zip(scenes.PLACES, cells(scene), strict=True)
                rows.append(torch.stack([embedded(f"{what} {place}") for place, what in said]))
            truth = torch.stack(rows)[:, cell_of]
            pixels = images([scenes.paint(scene) for scene in drawn], return_tensors="pt")
            with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bfloat16"):
                seen = tower(pixels["pixel_values"], output_hidden_states=True).hidden_states[-1]
                made = projector(seen[:, 1:])
            loss = (made.float() - truth).square().mean() / truth.var()
            optimizer.zero_grad()
            loss.backward()
            for group in groups:
                torch.nn.utils.clip_grad_norm_(group["params"], 1.0)
            optimizer.step()
            schedule.step()
            if step % 10 == 0:
                seconds = round(time.monotonic() - began, 1)
                entry = {"step": step, "loss": round(loss.item(), 4), "seconds": seconds}
                log.write(json.dumps(entry) + "\n")
                log.flush()
    network.save_pretrained(small)
    return small.rename(out)


def described(n: int) -> list[dict[str, Any]]:
    """Rows that ask for the nine cells of new pictures."""
    rows = []
    for number in range(n):
        scene = scenes.sample("train", 9, number)
        row = {"id": f"describe-{number}", "images": [scenes.paint(scene)]}
        row |= {"prompt": "What stands where in the picture?", "target": description(scene)}
        rows.append(row)
    return rows


def description(scene: scenes.Scene) -> str:
    """What stands at each of the nine places, a line each."""
    said = zip(scenes.PLACES, cells(scene), strict=True)
    return "\n".join([f"{place}: {what}" for place, what in said])


def described_first(items: Any) -> Any:
    """The items with feedback that says what stands where before it checks the claims."""
    texts = []
    for row in items:
        _, split, number = row["group"].split("-")
        scene = scenes.sample(split, 0, int(number))
        texts.append(f"{description(scene)}\n{row['feedback']}")
    return items.remove_columns("feedback").add_column("feedback", texts)


def judged(split: str, n: int, aspects: list[str]) -> Any:
    """One of the five answers of each case about these aspects, every score as often."""
    items = vj.load_collection("scenes", split=split)
    chosen = []
    for number in range(len(items) // 5):
        place = 5 * number + number % 5
        if scenes.ASPECT_OF[items[place]["criteria"]] in aspects:
            chosen.append(place)
    return items.select(chosen[:n])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("base", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--words", type=int, default=2_000, help="steps of 16 pictures")
    parser.add_argument("--describe", type=int, default=1_000, help="steps of a batch of pictures")
    parser.add_argument("--judge", type=int, default=1_250, help="steps of a batch of items")
    parser.add_argument(
        "--held-out", type=int, default=100, help="items graded as it trains; 0 for none"
    )
    parser.add_argument("--aspects", nargs="+", default=list(scenes.ASPECTS))
    parser.add_argument("--lr", type=float, default=5e-4)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--precision", default="float32")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--blind", action="store_true", help="no pictures")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    shared: dict[str, Any] = {
        "recipe": "chat-lora",
        "lora": ADAPTERS,
        "freeze": ("tower",),
        "lr": given.lr,
        "projector_lr": None if given.blind else given.lr / 3,
        "batch_size": given.batch_size,
        "warmup": 0.03,
        "gradient_checkpointing": False,
        "allow": ("length", "scores", "leakage"),
        "seed": given.seed,
        "device": "cpu",
        "precision": given.precision,
        "progress": False,
    }
    start = given.base
    items = judged("train", given.batch_size * given.judge, given.aspects)
    held_out = judged("validation", given.held_out, given.aspects) if given.held_out else None
    if given.blind:
        items = items.remove_columns("images")
        if held_out is not None:
            held_out = held_out.remove_columns("images")
    else:
        start = fit_words(
            given.base,
            given.out / "base",
            steps=given.words,
            seed=given.seed,
            precision=given.precision,
        )
        start = fine_tune(
            start,
            described(given.batch_size * given.describe),
            out=given.out / "describe",
            steps=given.describe,
            checkpoint_every=50,
            **shared,
        )
        items = described_first(items)
    fine_tune(
        start,
        items,
        out=given.out / "judge",
        template=WORDING,
        validation=held_out,
        steps=given.judge,
        evaluate_every=max(1, given.judge // 2),
        checkpoint_every=25,
        **shared,
    )


if __name__ == "__main__":
    main()
