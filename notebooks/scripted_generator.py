"""The generator of notebook 07: a script that knows what pictures of Scenes show, and no model."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from vjudge.data import n_words, scenes
from vjudge.data.scenes import ASPECT_OF, ASPECTS
from vjudge.engines import Answer, Ask, Engine
from vjudge.images import open_image, pixel_digest
from vjudge.judging.loading import load_judge
from vjudge.prompts import TEMPLATES, Prompt

# The stage in which a fault is planted; "" for any.
STAGE_OF = {"not JSON": "", "score leak": "response", "not judgeable": "brainstorm"}


PLANTED = {"not JSON": 0.04, "score leak": 0.06, "not judgeable": 0.3}
PICTURES = (".jpg", ".jpeg", ".png", ".webp")


def chosen(
    generator: str, folder: str, limit: int, *, out: str
) -> tuple[Any, dict[str, Any], Counter[str] | None]:
    """A generator, its pictures by name and, of the script, the counts of what it plants.

    The script builds in `out` anew each time; a model goes on with what is there.
    """
    if generator == "scripted":
        shutil.rmtree(out, ignore_errors=True)
        script = ScriptedGenerator(limit, planted=PLANTED)
        return script, script.images, script.sent
    shutil.rmtree(Path(out) / "collection", ignore_errors=True)  # it follows from the record
    files = [path for path in Path(folder).iterdir() if path.suffix.lower() in PICTURES]
    return load_judge(generator), {path.stem: path for path in sorted(files)[:limit]}, None


class ScriptedGenerator(Engine):
    """A generator for `vjudge.builder.build` that knows `n_images` pictures of Scenes.

    `planted` gives kinds of faults and the share of first tries in which each is made: "not JSON",
    "score leak" (the response grades itself) and "not judgeable" (a criterion about sound).
    `images` are the pictures by name, for `build`; `sent` counts the planted faults that were made.
    """

    name = "scripted from Scenes"
    template = TEMPLATES["prometheus-vision"].as_messages()

    def __init__(self, n_images: int = 4, *, planted: Mapping[str, float] | None = None) -> None:
        self.engine = self
        self.planted = dict(planted or {})
        self.sent = Counter[str]()
        self.images = {}
        self.scenes = {}
        for index in range(n_images):
            scene = scenes.sample("train", 0, index)
            picture = scenes.paint(scene)
            self.images[f"scene-{index:03d}"] = picture
            self.scenes[pixel_digest(picture)] = scene

    def identity(self) -> dict[str, Any]:
        return {"engine": self.name, "versions": {}, "planted": self.planted}

    def answer(
        self,
        prompts: Sequence[Prompt],
        images: Sequence[Sequence[Any]],
        ask: Ask,
        wanted: Container[int] | None = None,
    ) -> Iterator[list[Answer]]:
        """Answer every prompt; see `Engine.answer`."""
        for row, prompt in enumerate(prompts):
            if wanted is None or row in wanted:
                task = prompt.text.removeprefix("<image>").strip()
                yield [Answer(row, self.reply(task, images[row][0]), finish="stop")]

    def reply(self, task: str, image: Any) -> str:
        """Answer one task of the builder; the task and the picture alone decide."""
        stage, given, again = given_of(task)
        key = pixel_digest(open_image(image))
        rng = np.random.default_rng(list(hashlib.sha256(f"{key}{task}".encode()).digest()))
        answer = sound_answer(stage, given, self.scenes[key], rng)
        fault = ""
        for kind, share in self.planted.items():
            drawn = rng.random() < share and not again
            if drawn and not fault and STAGE_OF[kind] in ("", stage):
                fault = kind
                self.sent[kind] += 1
        if fault == "score leak":
            answer["response"] += f" This answer deserves a score of {given['score']}."
        elif fault == "not judgeable":
            answer["criteria"][0]["criteria"] = "Is the melody that is playing named?"
        text = json.dumps(answer)
        return text[:-1] if fault == "not JSON" else text


def given_of(task: str) -> tuple[str, dict[str, Any], bool]:
    """A task's stage, what was given, and whether an earlier answer was rejected."""
    head, _, rest = task.partition("\n\nInput:\n")
    given, end = json.JSONDecoder().raw_decode(rest)
    stage = head.split("\n", 1)[0].removeprefix("Task: ")
    return stage, given, "was rejected:" in rest[end:]


def sound_answer(
    stage: str, given: dict[str, Any], scene: scenes.Scene, rng: np.random.Generator
) -> dict[str, Any]:
    """An answer without a fault."""
    if stage == "brainstorm":
        drawn = [str(rng.choice(ASPECTS[name].criteria)) for name in rng.permutation([*ASPECTS])]
        drawn = drawn[: given["number"]]
        return {"criteria": [{"criteria": text, "grounds": "the shapes"} for text in drawn]}
    criteria = given["draft"] if stage == "refine" else given["criteria"]
    aspect = ASPECTS[ASPECT_OF.get(criteria, "shape")]
    if stage == "refine":
        return {"criteria": criteria, "descriptions": scenes.write_rubric(aspect, 0)[1]}
    if stage == "align":
        reason = "It can be seen." if criteria in ASPECT_OF else "No picture shows it."
        return {"judgeable": criteria in ASPECT_OF, "reason": reason}
    rows = [row for _ in range(20) for row in scenes.case(scene, aspect.name, rng)]
    if stage == "instruction":
        rows = [row for row in rows if row["gold"] == 5]
        new = [row for row in rows if row["instruction"] not in given["earlier"]]
        row = (new or rows)[0]
        return {"instruction": row["instruction"], "reference_answer": row["response"]}
    rows = [row for row in rows if row["gold"] == given["score"]]
    lengths = range(given["least"], given["most"] + 1)
    fitting = [row for row in rows if n_words(row["response"]) in lengths]
    row = (fitting or rows)[0]
    return {"response": row["response"], "feedback": row["feedback"]}
