"""A judge out of real pretrained weights: `python tools/contact/train.py BASE OUT`.

BASE is a LLaVA whose projector is random (SmolLM2-135M behind DINOv2-small). Two calls of
`vj.fine_tune`: the projector learns to name what stands where, then the judge is trained on
Scenes. Pictures are 126 pixels wide: nine by nine patches, three by three for each cell.
The same command continues where it was cut off; `blind` behind it trains without pictures.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import vjudge as vj
from vjudge.data import scenes
from vjudge.training import fine_tune

SIDE = 126  # pixels, nine patches of 14
ADAPTERS = {"r": 32, "lora_alpha": 64, "lora_dropout": 0.0}
N_DESCRIBED, N_JUDGED = 8_000, 4_000  # examples
SEED = 0


def smaller_pictures(base: Path, out: Path) -> Path:
    """Copy the base with an image processor that neither cuts nor keeps more than SIDE pixels."""
    if not out.is_dir():
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
    return out


def description(scene: scenes.Scene) -> str:
    """What stands at each place, a line each."""
    lines = []
    for place in scenes.PLACES:
        thing = scene.at(place)
        what = f"{thing.size} {thing.colour} {thing.shape}" if thing else "empty"
        lines.append(f"{place}: {what}")
    return "\n".join(lines)


def described(n: int) -> list[dict]:
    rows = []
    for number in range(n):
        scene = scenes.sample("train", 9, number)
        rows.append(
            {
                "id": f"describe-{number}",
                "images": [scenes.draw(scene)],
                "prompt": "What stands where in the picture?",
                "target": description(scene),
            }
        )
    return rows


def main() -> None:
    base, out = Path(sys.argv[1]), Path(sys.argv[2])
    blind = "blind" in sys.argv[3:]
    out.mkdir(parents=True, exist_ok=True)
    judged = vj.load_collection("scenes", split="train").select(range(N_JUDGED))
    held_out = vj.load_collection("scenes", split="validation").select(range(100))
    if blind:
        start = base
        judged = judged.remove_columns("images")
        held_out = held_out.remove_columns("images")
    else:
        small = smaller_pictures(base, out / "base")
        start = fine_tune(
            small,
            described(N_DESCRIBED),
            out=out / "describe",
            recipe="chat-lora",
            lora=ADAPTERS,
            freeze=("tower",),
            lr=5e-4,
            projector_lr=1e-3,
            batch_size=8,
            epochs=1,
            warmup=0.03,
            gradient_checkpointing=False,
            allow=("length", "scores", "leakage"),
            seed=SEED,
            device="cpu",
            precision="float32",
            progress=False,
        )
    fine_tune(
        start,
        judged,
        out=out / "judge",
        recipe="chat-lora",
        lora=ADAPTERS,
        freeze=("tower",),
        validation=held_out,
        lr=5e-4,
        projector_lr=None if blind else 5e-4,
        batch_size=8,
        epochs=1,
        warmup=0.03,
        evaluate_every=200,
        checkpoint_every=100,
        gradient_checkpointing=False,
        allow=("length", "scores", "leakage"),
        seed=SEED,
        device="cpu",
        precision="float32",
        progress=False,
    )


if __name__ == "__main__":
    main()
