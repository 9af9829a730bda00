"""A scripted generator, to show and test a build without a model: it knows each picture of Scenes by its pixels."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from vjudge.data import n_words, scenes
from vjudge.data.scenes import ASPECT_OF, ASPECTS
from vjudge.engines import Answer, Ask, Engine
from vjudge.images import data_uri, fingerprint, image_bytes, open_image
from vjudge.prompts import TEMPLATES, Prompt


class ScriptedGenerator(Engine):
    """A generator for `build`, by script, that knows `n_images` pictures of Scenes.

    `planted` gives kinds of faults and the share of first tries in which each is made: "not JSON", "score leak" (the
    response grades itself) and "not judgeable" (a criterion about sound). `images` are PNG files by name, for `build`;
    `sent` counts the planted faults that were made.
    """

    name = "scripted from Scenes"
    template = TEMPLATES["prometheus-vision"].as_messages()

    def __init__(self, n_images: int = 4, *, planted: Mapping[str, float] | None = None) -> None:
        self.engine, self.planted, self.sent = self, dict(planted or {}), Counter[str]()
        drawn = {
            f"scene-{index:03d}": scenes.sample("train", 0, index) for index in range(n_images)
        }
        self.images = {
            name: image_bytes(data_uri(scenes.draw(scene))) for name, scene in drawn.items()
        }
        self._scenes = {
            fingerprint(open_image(self.images[name])): scene for name, scene in drawn.items()
        }

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
        key = fingerprint(open_image(image))
        rng = np.random.default_rng(list(hashlib.sha256(f"{key}{task}".encode()).digest()))
        answer = self._sound(stage, given, self._scenes[key], rng)
        places = {"not JSON": stage, "score leak": "response", "not judgeable": "brainstorm"}
        kinds = [kind for kind, share in self.planted.items() if rng.random() < share and not again]
        fault = next((kind for kind in kinds if places[kind] == stage), "")
        self.sent.update([fault] if fault else [])
        if fault == "score leak":
            answer["response"] += f" This answer deserves a score of {given['score']}."
        elif fault == "not judgeable":
            answer["criteria"][0]["criteria"] = "Is the melody that is playing named?"
        return json.dumps(answer)[: -1 if fault == "not JSON" else None]

    def _sound(
        self, stage: str, given: dict[str, Any], scene: Any, rng: np.random.Generator
    ) -> dict[str, Any]:
        """An answer without a fault."""
        if stage == "brainstorm":
            drawn = [
                str(rng.choice(ASPECTS[name].criteria)) for name in rng.permutation(list(ASPECTS))
            ]
            fresh = [criteria for criteria in drawn if criteria not in given["avoid"]]
            return {
                "criteria": [
                    {"criteria": text, "grounds": "the shapes"} for text in fresh[: given["number"]]
                ]
            }
        criteria = given["draft"] if stage == "refine" else given["criteria"]
        known, aspect = criteria in ASPECT_OF, ASPECTS[ASPECT_OF.get(criteria, "shape")]
        if stage == "refine":
            return {"criteria": criteria, "descriptions": scenes.rubric(aspect, 0)[1]}
        if stage == "align":
            return {
                "judgeable": known,
                "reason": "It can be seen." if known else "Nothing in the picture shows it.",
            }
        rows = [row for _ in range(20) for row in scenes.case(scene, aspect.name, rng)]
        if stage == "instruction":
            row = min(
                rows, key=lambda row: (row["gold"] != 5, row["instruction"] in given["earlier"])
            )
            return {"instruction": row["instruction"], "reference_answer": row["response"]}
        lengths = range(given["least"], given["most"] + 1)
        row = min(
            rows,
            key=lambda row: (
                row["gold"] != given["score"],
                n_words(row["response"]) not in lengths,
            ),
        )
        return {"response": row["response"], "feedback": row["feedback"]}


def given_of(text: str) -> tuple[str, dict[str, Any], bool]:
    """Take a user's turn apart: the stage, what was given, and whether an earlier answer was rejected."""
    head, _, rest = text.partition("\n\nInput:\n")
    given, end = json.JSONDecoder().raw_decode(rest)
    return head.split("\n", 1)[0].removeprefix("Task: "), given, "was rejected:" in rest[end:]
