"""The embedded judge's model card: what it is, how it was made, and what it does on held-out scenes."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import pandas as pd

from assets.loop import LOG
from vjudge import probes
from vjudge.data import load_collection, scenes
from vjudge.judging.loading import load_judge
from vjudge.metrics import correlate


def evaluate(folder: Path, *, limit: int | None = None) -> pd.DataFrame:
    """Grade the test split with a judge, also with pictures blanked and swapped.

    Args:
        folder: the judge.
        limit: how many items; None is the whole split.

    Returns:
        One row a reading and part (all items or an aspect): reading, part, estimate, low, high (Pearson with its 95 %
        interval over pictures), n, missing; `attrs` hold `parsed` and `exact`, shares of all items in feedback mode.
    """
    judge, items = load_judge(folder), load_collection("scenes", split="test", limit=limit)
    written = judge.grade(items)
    runs = {
        "score written": (written, "score"),
        "expected score": (written, "expected_score"),
        "forced, without feedback": (judge.grade(items, mode="score"), "expected_score"),
        "image blanked": (judge.grade(probes.blanked(items)), "score"),
        "image swapped": (judge.grade(probes.swapped(items)), "score"),
    }
    rows = []
    for reading, (run, column) in runs.items():
        aspect = run["criteria"].map(scenes.ASPECT_OF)
        for part in ("all", *scenes.ASPECTS):
            table = run[(aspect == part) | (part == "all")]
            found = correlate(
                table[column], table["gold"], groups=table["group"], n_resamples=2_000
            )
            rows.append({"reading": reading, "part": part, **found.loc["pearson"]})
    result = pd.DataFrame(rows)
    result.attrs = {
        "parsed": written["score"].notna().mean(),
        "exact": (written["score"] == written["gold"]).mean(),
    }
    return result


def write_base(
    folder: Path,
    *,
    command: str,
    facts: dict[str, Any],
    seen: dict[str, tuple[float, int]],
    n_judged: int = 300,
) -> None:
    """Write README.md into the folder of a base that has learned to describe and to read, and not to judge.

    Args:
        folder: the base, with its training log.
        command: what trained it.
        facts: versions and the like, as they were.
        seen: what was measured on held-out pictures: in words, the share of tokens that was right and their number.
        n_judged: how many items of the test split it is asked to judge, so that the card can say how it does.
    """
    items = load_collection("scenes", split="test", limit=n_judged)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it can't be read is what the card says
        asked = load_judge(folder, template="prometheus-vision").grade(
            items, max_new_tokens=80, progress=False
        )
    measured = "\n".join(f"| {what} | {share:.1%} | {n:,} |" for what, (share, n) in seen.items())
    (folder / "README.md").write_text(
        f"""---
license: apache-2.0
pipeline_tag: image-text-to-text
tags: [llava]
---

# tiny-base: what a judge for Scenes is fine-tuned from

A LLaVA-1.5 of the same sizes as `tiny`, whose vision tower it has, bit for bit. Projector and decoder have learned,
from nothing, to say what a picture of Scenes shows and to read what a text claims. It has never seen a judge's prompt,
a rubric or a whole answer of a judge. Notebook 02 makes a judge of it.

## Training

    {command}

{", ".join(f"{name}: {value}" for name, value in facts.items())}.

Stages, and seconds since the start when each ended: {_ends(folder)}. The log is `{LOG}`.
First it completes statements about a picture with what is seen there and whether the statement is right; some are
drilled without a picture. Then it finds what a response claims, and where. The statements are worded as in feedback and
end in a count and a score, without any prompt around them: so it knows how such a text goes on, and not what it is the
answer to.

## Evaluation

On pictures of the test split, half of whose things are combinations of shape, colour and place that training never
showed; the text up to each token is given:

| what | right | tokens |
|---|---|---|
{measured}

Asked to judge the first {len(items)} items of the test split in the wording of Prometheus-Vision, it gives
{asked["score"].notna().mean():.1%} verdicts that can be read.
""",
        encoding="utf-8",
    )


def write(folder: Path, *, command: str, facts: dict[str, Any]) -> None:
    """Write README.md into a judge's folder: its make, its training and its evaluation, measured now.

    Args:
        folder: the judge, with its training log.
        command: what trained it.
        facts: seed, steps, versions and the like, as they were.
    """
    measured = evaluate(folder)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    text, vision = config["text_config"], config["vision_config"]
    size = (folder / "model.safetensors").stat().st_size / 1e6
    parts = list(dict.fromkeys(measured["part"]))
    lines = [
        f"| {reading} | "
        + " | ".join(
            f"{row.estimate:.3f} [{row.low:.3f}, {row.high:.3f}]" for row in rows.itertuples()
        )
        + " |"
        for reading, rows in measured.groupby("reading", sort=False)
    ]
    n = int((measured["n"] + measured["missing"]).max())
    card = f"""---
license: apache-2.0
pipeline_tag: image-text-to-text
tags: [vision-language-model-as-a-judge, llava]
---

# tiny: the embedded judge of vjudge

A LLaVA-1.5-shaped judge of {size / 4:.1f} million parameters ({size:.1f} MB in float32) that grades responses about
Scenes, vjudge's generated pictures, in the wording of Prometheus-Vision. It makes every cell of the notebooks run on a
laptop. It knows nothing but Scenes: on photographs or free text its scores mean nothing.

- Tower: CLIP ViT, {vision["image_size"]} x {vision["image_size"]} pixels, patch {vision["patch_size"]},
  width {vision["hidden_size"]}, {vision["num_hidden_layers"]} layers. Projector: two layers, GELU.
- Decoder: Llama, width {text["hidden_size"]}, {text["num_hidden_layers"]} layers, {text["vocab_size"]} tokens
  (byte-level BPE over the words of Scenes; the template's fixed phrases are one ordinary token each).

## Training

From nothing, on pictures of the train split, by `tools/assets/tiny.py`:

    {command}

{", ".join(f"{name}: {value}" for name, value in facts.items())}.

Stages, and seconds since the start when each ended: {_ends(folder)}.
The log is `{LOG}`. First the vision tower alone names what each patch shows and counts its like; then it is frozen, and
projector and decoder learn to check statements about a picture; then to find what a response claims, and where; then to
judge, with the loss on feedback and score alone.

## Evaluation

The whole test split of Scenes (n = {n}; at least half of the things in each picture are combinations of shape,
colour and place that training never showed), greedy decoding in float32. Pearson correlation with the true score, with
95 % bootstrap intervals over pictures:

| | {" | ".join(parts)} |
|---|{"---|" * len(parts)}
{chr(10).join(lines)}

Answers with a readable verdict: {measured.attrs["parsed"]:.1%}. Score exactly right: {measured.attrs["exact"]:.1%}. The
forced score shows what the feedback is worth: this judge counts errors while it writes them down.
"""
    (folder / "README.md").write_text(card, encoding="utf-8")


def _ends(folder: Path) -> str:
    """Each stage with the seconds at which it ended, from the log."""
    entries = [json.loads(line) for line in (folder / LOG).read_text(encoding="utf-8").splitlines()]
    ends = {entry["stage"]: entry["seconds"] for entry in entries}
    return ", ".join(f"{name} {seconds:.0f}" for name, seconds in ends.items())
